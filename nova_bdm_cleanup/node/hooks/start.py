# SPDX-License-Identifier: Apache-2.0
"""The hooks where Nova reads the BDMs itself after the cleanup.

They serve starts, undeletes and interrupted starts; guests that ran when the
host went down; and, through :mod:`reboot`, the reboots of Nova 25 to 27.  Only
in these reboots does Nova hold the lock of the instance.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import threading

from nova_bdm_cleanup.node import instance_cleanup
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.hooks.wrapping import Call

#: The uuids of the BDMs that must not be connected, in the call that this
#: thread carries out.
_current = threading.local()


@contextlib.contextmanager
def clean_before(call: Call) -> Iterator[None]:
    """Clean up before a start, or before Nova resumes a guest.

    The wrapped method alone tells which of the two it is.
    """
    with clean(call, call.triggers[0]):
        yield


@contextlib.contextmanager
def clean(call: Call, trigger: Trigger) -> Iterator[None]:
    """Clean up, and remember the BDMs that the call must not connect."""
    with instance_cleanup.log_failure(trigger, call.instance):
        _clean(call, trigger)
    try:
        yield
    finally:
        _current.not_connected = frozenset()


def take_out(call: Call) -> None:
    """Drop the BDMs that must not be connected."""
    not_connected: frozenset[str] = getattr(
        _current, 'not_connected', frozenset())
    if not_connected and call.bdms is None:
        call.arguments['bdms'] = instance_cleanup.read_bdms(
            call.context, call.instance)
    if call.bdms is not None:
        # The cleanup was given another list.
        instance_cleanup.take_out(call.bdms, not_connected)


def _clean(call: Call, trigger: Trigger) -> None:
    context = call.context.elevated()
    bdms = instance_cleanup.read_bdms(context, call.instance)
    _current.not_connected = instance_cleanup.clean(
        call.manager, context, call.instance, bdms, trigger)
