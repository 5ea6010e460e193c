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
    """Clean up, and drop the BDMs that must not be connected."""
    # A soft reboot keeps the domain: the guest would go on with the disk.
    trigger = (call.trigger_of(call.instance.task_state)
               or triggers.SOFT_REBOOT)
    instance_cleanup.clean_list(
        call.manager, call.arguments['context'], call.instance, call.bdms,
        trigger)
    if _observes():
        # An exception fails the reboot, as it does without the plugin.
        call.carry_out()


def _observes() -> bool:
    """Return whether the plugin only observes."""
    try:
        return options.settings(CONF).policy.observe
    except Exception:
        # nova-compute has reloaded its configuration, and an option is wrong
        # now: a typo must never remove anything.
        return True
