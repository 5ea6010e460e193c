# SPDX-License-Identifier: Apache-2.0
"""The hooks on operations in which Nova starts a guest by its rows.

These are reboots; starts, undeletes and interrupted starts; and, when
nova-compute starts, guests that ran when the host went down and guests whose
move was interrupted.

Nova 28 and later call ``_delete_dangling_bdms(context, instance, bdms)`` in
every reboot, under the lock of the instance.  Before, Nova had no cleanup of
its own, and, as in the other operations, read the BDMs itself.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib

from nova_bdm_cleanup.node import instance_cleanup
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.hooks.operation import current, Operation
from nova_bdm_cleanup.node.hooks.wrapping import log_failure, NovaCall


@contextlib.contextmanager
def replace_builtin(call: NovaCall) -> Iterator[bool]:
    """Clean up in a reboot, and drop the BDMs that must not be connected.

    Yields whether Nova's own cleanup must not run.
    """
    with log_failure(call.instance):
        operation = current() or Operation(call, _trigger_of_reboot(call))
        try:
            operation.clean(call.instance, call.bdms)
        finally:
            instance_cleanup.take_out(call.bdms, operation.taken_out)
    # In that mode it fails the reboot as it does without the plugin.
    yield not instance_cleanup.observes()


@contextlib.contextmanager
def begin_reboot(call: NovaCall) -> Iterator[None]:
    """Begin a reboot, in which Nova calls its own cleanup."""
    with Operation(call, _trigger_of_reboot(call)).begun():
        yield


@contextlib.contextmanager
def clean_before_reboot(call: NovaCall) -> Iterator[None]:
    """Clean up before a reboot, where Nova has no cleanup of its own."""
    with _cleaned_up(call, _trigger_of_reboot(call)):
        yield


@contextlib.contextmanager
def clean_before(call: NovaCall) -> Iterator[None]:
    """Clean up before a start, or before Nova resumes a guest.

    The wrapped method alone tells which of the two it is.
    """
    with _cleaned_up(call, call.triggers[0]):
        yield


@contextlib.contextmanager
def clean_interrupted_move(call: NovaCall) -> Iterator[None]:
    """Clean up before Nova restores a guest whose move was interrupted."""
    instance = call.instance
    if (instance.host == call.manager.host
            and instance.task_state in triggers.INTERRUPTED_MOVE.states):
        with _cleaned_up(call, triggers.INTERRUPTED_MOVE):
            yield
    else:
        yield


@contextlib.contextmanager
def _cleaned_up(call: NovaCall, trigger: Trigger) -> Iterator[None]:
    """Clean up, and begin an operation that starts a guest."""
    operation = Operation(call, trigger)
    with operation.begun():
        with log_failure(call.instance):
            operation.clean(
                call.instance, operation.read_bdms(call.instance))
        yield


def _trigger_of_reboot(call: NovaCall) -> Trigger:
    """Return the trigger of a reboot; a soft one in an unknown task state.

    A soft reboot keeps the domain: the guest would go on with the disk.
    """
    return call.trigger_of(call.instance.task_state) or triggers.SOFT_REBOOT
