# SPDX-License-Identifier: Apache-2.0
"""The hook on reboots where Nova has a cleanup of its own.

Nova 28 and later call ``_delete_dangling_bdms(context, instance, bdms)`` in
every reboot, under the lock of the instance.
"""

from __future__ import annotations

import nova.conf

from nova_bdm_cleanup.node import instance_cleanup, options
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.hooks.wrapping import Call

CONF = nova.conf.CONF


def replace_builtin(call: Call) -> None:
    """Clean up, and take out of the BDMs what must not be connected."""
    # A soft reboot keeps the domain: the guest would go on with the disk.
    trigger = (call.trigger_of(call.instance.task_state)
               or triggers.SOFT_REBOOT)
    instance_cleanup.clean_list(
        call.manager, call.arguments['context'], call.instance, call.bdms,
        trigger)
    if _observes():
        # What it raises fails the reboot, as it does without the plugin.
        call.carry_out()


def _observes() -> bool:
    """Return whether the plugin only observes."""
    try:
        return options.settings(CONF).policy.observe
    except Exception:
        # Read again by a nova-compute that was told to read its files, and
        # wrong now: a typo never acts.
        return True
