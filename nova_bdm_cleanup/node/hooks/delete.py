# SPDX-License-Identifier: Apache-2.0
"""The hooks on deletes of instances, whose BDMs Nova has read before."""

from __future__ import annotations

from nova import objects

from nova_bdm_cleanup.node import instance, instance_cleanup
from nova_bdm_cleanup.node.hooks.wrapping import NovaCall


def renew(call: NovaCall) -> None:
    """Bring the BDMs of an instance up to date.

    Nova's API sends them with the request, and a reboot that had the lock
    meanwhile may have given a disk a new attachment, which would stay.
    """
    if instance_cleanup.observes():
        return
    _drop_removed(call)
    rows = {row.uuid: row for row in
            objects.BlockDeviceMappingList.get_by_instance_uuid(
                call.context.elevated(), call.instance.uuid)}
    instance.renew(call.bdms, rows)


def _drop_removed(call: NovaCall) -> None:
    """Drop the BDMs that this host has removed before.

    For a guest that was deleted while this host was down, Nova reads every BDM
    that the instance ever had: the driver would be given their addresses, and
    their volumes would be deleted with the instance.
    """
    if any(bdm.obj_attr_is_set('deleted') and bdm.deleted
           for bdm in call.bdms):
        instance_cleanup.take_out(
            call.bdms, instance_cleanup.removed_from(call.instance))
