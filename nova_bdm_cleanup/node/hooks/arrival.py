# SPDX-License-Identifier: Apache-2.0
"""An instance that comes to this host, and what dangles before it does.

A BDM that is left would name an address of the former host, and a later boot
or a detach would use it here.
"""

from __future__ import annotations

from nova_bdm_cleanup.node import instance_cleanup
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.hooks import disks
from nova_bdm_cleanup.node.hooks.wrapping import Call
from nova_bdm_cleanup.node.instance_cleanup import InstanceCleanup


def clean(call: Call, trigger: Trigger) -> str:
    """Remove what dangles, or refuse the operation before any removal.

    A removal that fails refuses it, too.  Nova reads the BDMs after it.

    :returns: why the operation is refused, or ''
    """
    context, instance = call.context.elevated(), call.instance
    with instance_cleanup.log_failure(trigger, instance):
        cleanup = InstanceCleanup(call.manager, context, instance, trigger)
        bdms = instance_cleanup.read_bdms(context, instance)
        if cleanup.observes:
            cleanup.run(bdms)
            return ''
        found = disks.dangling(cleanup.preview(bdms).plan.findings)
        left = tuple(finding for finding in found if not finding.is_due)
        if found and not left:
            left = disks.remove(cleanup, bdms, found)
            # Perhaps only the answer of the database was lost.
            existing = {bdm.uuid for bdm in instance_cleanup.read_bdms(
                context, instance)} if left else ()
            left = tuple(finding for finding in left
                         if finding.bdm and finding.bdm.uuid in existing)
        if left:
            return disks.refusal(
                cleanup, instance, [(finding, '') for finding in left])
    return ''
