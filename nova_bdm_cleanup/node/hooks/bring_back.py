# SPDX-License-Identifier: Apache-2.0
"""The hooks where Nova reads the mappings by itself, after the cleanup.

For a start, an undelete, and a start that was interrupted; for a guest that
ran when the host went down; and for the reboots of Nova 25 to 27.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import functools
import threading
from typing import Any, Callable

from nova_bdm_cleanup.node import cleaning
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.hooks.fit import (
    BOOT,
    DISKS,
    DISKS_TAKEN,
    Needs,
    REBOOT,
    START,
)

_Wrapped = Callable[..., Any]

_RESUME = '_resume_guests_state'

#: How it is found out whether a guest is off.
_STATE = (
    'ComputeDriver.get_info(self, instance, use_cache)',
    'Host.get_guest(self, instance)',
    'Guest.is_active(self)',
)

#: What the hooks need of this Nova, by the name of the trigger.
NEEDS: Mapping[str, Needs] = {
    triggers.START.name: Needs((
        'ComputeManager._power_on(self, context, instance)', DISKS_TAKEN,
        *_STATE), ((START, DISKS),), (triggers.START,)),
    triggers.HOST_BOOT.name: Needs((
        'ComputeManager._resume_guests_state(self, context, instance, '
        'net_info)', DISKS_TAKEN, *_STATE),
        ((BOOT, '_init_instance'), ('_init_instance', _RESUME),
         (_RESUME, DISKS)), (triggers.HOST_BOOT,)),
}

#: The mappings that what this thread carries out must not hand to the virt
#: driver.
_current = threading.local()


def wraps(names: Sequence[str], is_plain: bool) -> Iterator[
        tuple[str, Callable[[_Wrapped], _Wrapped]]]:
    """What is to be put around which methods of the manager.

    :param names: of the triggers
    :param is_plain: Nova itself does not clean up before a reboot
    """
    if is_plain:
        yield REBOOT, functools.partial(_cleaning_before, triggers.HARD_REBOOT)
    for trigger, method in ((triggers.START, START),
                            (triggers.HOST_BOOT, _RESUME)):
        if trigger.name in names:
            yield method, functools.partial(_cleaning_before, trigger)
    yield DISKS, _without_withheld


def _cleaning_before(trigger: Trigger, original: _Wrapped) -> _Wrapped:
    @functools.wraps(original)
    def wrapped(self: Any, context: Any, instance: Any,
                *args: Any, **kwargs: Any) -> Any:
        with cleaning.harmless(trigger, instance):
            _clean_before(self, context.elevated(), instance, trigger)
        try:
            return original(self, context, instance, *args, **kwargs)
        finally:
            _current.withheld = frozenset()

    return wrapped


def _clean_before(manager: Any, context: Any, instance: Any,
                  trigger: Trigger) -> None:
    """Clean up, and remember what must not be connected."""
    bdms = cleaning.mappings(context, instance)
    if trigger is triggers.HARD_REBOOT:
        before = {bdm.uuid for bdm in bdms}
        manager._delete_dangling_bdms(context, instance, bdms)
        _current.withheld = before - {bdm.uuid for bdm in bdms}
    else:
        _current.withheld = cleaning.clean(
            manager, context, instance, bdms, trigger)


# What the virt driver is given


def _without_withheld(original: _Wrapped) -> _Wrapped:
    """For what reads the mappings after the cleanup."""

    @functools.wraps(original)
    def _get_instance_block_device_info(self: Any, context: Any,
                                        instance: Any, *args: Any,
                                        bdms: Any = None,
                                        **kwargs: Any) -> Any:
        withheld: frozenset[str] = getattr(_current, 'withheld', frozenset())
        if withheld and bdms is None:
            bdms = cleaning.mappings(context, instance)
        if bdms is not None:
            # They are another list than the cleanup was given.
            cleaning.take_out(bdms, withheld)
        return original(self, context, instance, *args, bdms=bdms, **kwargs)

    return _get_instance_block_device_info
