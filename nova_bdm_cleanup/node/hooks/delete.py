# SPDX-License-Identifier: Apache-2.0
"""The hook on deletes of instances whose BDMs are already deleted."""

from __future__ import annotations

from nova_bdm_cleanup.node import instance_cleanup
from nova_bdm_cleanup.node.hooks.wrapping import NovaCall


def drop_removed(call: NovaCall) -> None:
    """Drop the BDMs that this host has removed before.

    For a guest that was deleted while this host was down, Nova reads every BDM
    that the instance ever had: the driver would be given their addresses, and
    their volumes would be deleted with the instance.
    """
    if any(bdm.obj_attr_is_set('deleted') and bdm.deleted
           for bdm in call.bdms) and not instance_cleanup.observes():
        instance_cleanup.take_out(
            call.bdms, instance_cleanup.removed_from(call.instance))
