# SPDX-License-Identifier: Apache-2.0
"""The hooks on shelves and unshelves.

An offloaded instance is on no host, and its volumes are only reserved.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib

from nova import exception
import nova.conf

from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.hooks import arrival
from nova_bdm_cleanup.node.hooks.departure import Departure
from nova_bdm_cleanup.node.hooks.wrapping import Call

CONF = nova.conf.CONF


def shelve(call: Call) -> None:
    """Look before a shelve begins that also offloads the instance.

    :raises InstanceUnacceptable: when it must not begin
    """
    if CONF.shelved_offload_time == 0:
        refusal = Departure.of(call, triggers.SHELVE).refusal()
        if refusal:
            call.manager._delete_snapshot_of_shelved_instance(
                call.context, call.instance,
                call.arguments['image_id'])
            raise exception.InstanceUnacceptable(
                instance_id=call.instance.uuid, reason=refusal)


@contextlib.contextmanager
def offload(call: Call) -> Iterator[None]:
    """Look before an offload, which deletes the files of the instance.

    :raises InstanceUnacceptable: when it must not begin
    """
    leaving = Departure.of(call, triggers.SHELVE)
    refusal = leaving.refusal()
    if refusal:
        raise exception.InstanceUnacceptable(
            instance_id=call.instance.uuid, reason=refusal)
    with leaving.begun():
        yield


def unshelve(call: Call) -> None:
    """Clean up before an unshelve begins.

    Nothing is connected, and the addresses are those of the last host.

    :raises InstanceUnacceptable: when what dangles cannot be removed
    """
    refusal = arrival.clean(call, triggers.UNSHELVE)
    if refusal:
        # Nova gives it back only where the instance was spawned.
        call.manager.reportclient.delete_allocation_for_instance(
            call.context.elevated(), call.instance.uuid,
            force=True)
        raise exception.InstanceUnacceptable(
            instance_id=call.instance.uuid, reason=refusal)
