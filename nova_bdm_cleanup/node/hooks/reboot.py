# SPDX-License-Identifier: Apache-2.0
"""The hooks on reboots.

Nova 28 and later call ``_delete_dangling_bdms(context, instance, bdms)`` in
every reboot, under the lock of the instance.  Before, Nova had no cleanup of
its own, and read the BDMs itself.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib

from nova_bdm_cleanup.node import instance_cleanup
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.hooks import start
from nova_bdm_cleanup.node.hooks.wrapping import Call


def replace_builtin(call: Call) -> None:
    """Clean up, and drop the BDMs that must not be connected."""
    instance_cleanup.clean_list(
        call.manager, call.context, call.instance, call.bdms,
        _trigger_of(call))
    if instance_cleanup.observes():
        # An exception fails the reboot, as it does without the plugin.
        call.carry_out()


@contextlib.contextmanager
def clean_before(call: Call) -> Iterator[None]:
    """Clean up before a reboot, where Nova has no cleanup of its own."""
    with start.clean(call, _trigger_of(call)):
        yield


def _trigger_of(call: Call) -> Trigger:
    """Return the trigger of a reboot; a soft one in an unknown task state.

    A soft reboot keeps the domain: the guest would go on with the disk.
    """
    return call.trigger_of(call.instance.task_state) or triggers.SOFT_REBOOT

