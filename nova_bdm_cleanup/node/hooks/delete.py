# SPDX-License-Identifier: Apache-2.0
"""The hooks on deletes of instances.

These are also the deletes that nova-compute resumes, soft-deleted instances
whose time is over, and guests that were deleted while this host was down.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import datetime

from nova_bdm_cleanup.node import instance_cleanup
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.hooks.departure import Departure
from nova_bdm_cleanup.node.hooks.wrapping import Call

#: nova-api deletes the BDMs of an instance itself when its host is down, and
#: the host counts as down after this time.
_DOWN = datetime.timedelta(seconds=60)


@contextlib.contextmanager
def shut_down(call: Call) -> Iterator[None]:
    """Keep the driver from disconnecting a neighbour's disk."""
    with Departure.of(call, triggers.DELETE, is_last=True).begun():
        yield


def drop_removed(call: Call) -> None:
    """Drop the BDMs that were removed before the instance was deleted.

    For a guest that was deleted while this host was down, Nova reads every BDM
    that the instance ever had: the driver would be given their addresses, and
    their volumes would be deleted with the instance.
    """
    instance = call.instance
    with instance_cleanup.log_failure(triggers.DELETE, instance):
        deleted = [bdm for bdm in call.bdms
                   if bdm.obj_attr_is_set('deleted') and bdm.deleted]
        if not deleted or instance_cleanup.observes():
            return
        instance_cleanup.take_out(call.bdms, [
            bdm.uuid for bdm in deleted
            if _is_earlier(bdm.deleted_at, instance.deleted_at)])
        # These too, if they were removed right before the delete.
        instance_cleanup.take_out(
            call.bdms, instance_cleanup.removed_from(instance))


def _is_earlier(bdm: datetime.datetime | None,
                instance: datetime.datetime | None) -> bool:
    """Return whether a BDM was deleted before its instance was."""
    return instance is None or bdm is None or bdm < instance - _DOWN
