# SPDX-License-Identifier: Apache-2.0
"""The hooks on nova-compute's manager: installed on the class, removable.

Nova 28 and later call ``self._delete_dangling_bdms(context, instance, bdms)``
in every reboot: there ours takes the place of theirs.  Earlier releases have
no such call, so ``_reboot_instance`` is wrapped to make it first.  In both
cases Nova's instance lock is held.  A start and the resume of a guest when the
host boots have no such place in any release and no lock: ``_power_on`` and
``_resume_guests_state`` are wrapped.  Nothing of Nova is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
import functools
import threading
from typing import Any, Callable

from nova.compute import manager as nova_manager
import nova.conf
from oslo_log import log as logging

from nova_bdm_cleanup.cleanup import triggers
from nova_bdm_cleanup.cleanup.triggers import Trigger
from nova_bdm_cleanup.plugin import boot, cleaning, fit, options, startup

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_replaced: dict[str, Any] = {}

#: The mappings that what this thread carries out must not hand to the virt
#: driver.
_current = threading.local()


def install(names: Sequence[str], sweeps: bool = False) -> None:
    """Put the hooks on the class; doing it again is harmless.

    :param names: of the triggers
    :param sweeps: servers that are off are to be swept
    """
    if _replaced:
        return
    methods = vars(nova_manager.ComputeManager)
    # Whether Nova reads the mappings again after the cleanup.
    reads_again = False
    if triggers.HARD_REBOOT.name in names:
        builtin = _replaced[fit.CLEANUP] = methods.get(fit.CLEANUP)
        if builtin is not None:
            # Whoever unwraps it finds Nova's.
            functools.update_wrapper(
                _delete_dangling_bdms, builtin, assigned=(), updated=())
        setattr(nova_manager.ComputeManager, fit.CLEANUP,
                _delete_dangling_bdms)
        if builtin is None:
            _wrap(fit.REBOOT, functools.partial(
                _cleaning_before, triggers.HARD_REBOOT))
            reads_again = True
    for trigger, method in ((triggers.START, fit.START),
                            (triggers.HOST_BOOT, fit.RESUME)):
        if trigger.name in names:
            _wrap(method, functools.partial(_cleaning_before, trigger))
            reads_again = True
    if (sweeps or triggers.START.name in names) and (
            not fit.differences_for('sweep')):
        from nova_bdm_cleanup.plugin import sweeping

        _wrap(fit.START, sweeping.waiting)
    if set(names) - set(triggers.BRINGS_BACK):
        from nova_bdm_cleanup.plugin import moves

        for name, wrap in moves.wraps(names):
            _wrap(name, wrap)
    if reads_again:
        _wrap(fit.DISKS, _without_withheld)
    if fit.BOOT in methods:
        _wrap(fit.BOOT, functools.partial(_booting, names))


def _wrap(name: str, wrap: Callable[[Callable[..., Any]], Any]) -> None:
    original = vars(nova_manager.ComputeManager)[name]
    _replaced.setdefault(name, original)
    setattr(nova_manager.ComputeManager, name, wrap(original))


def can_sweep() -> bool:
    """Whether this Nova lets servers be swept, and starts wait for it."""
    return (fit.START in _replaced
            and not fit.differences_for('sweep'))


def uninstall() -> None:
    """Give the class its own methods back."""
    for name, original in _replaced.items():
        if original is None:
            delattr(nova_manager.ComputeManager, name)
        else:
            setattr(nova_manager.ComputeManager, name, original)
    _replaced.clear()


# Reboots


def _delete_dangling_bdms(self: Any, context: Any, instance: Any,
                          bdms: Any) -> None:
    """Remove dangling block device mappings and stale attachments.

    Stands in for the method of that name of Nova 28 and later.

    :param self: the ComputeManager
    :param context: the elevated context of the reboot
    :param instance: the instance, whose lock is held
    :param bdms: its BlockDeviceMappingList; what the driver must not connect
        is taken out
    """
    # A soft reboot keeps the domain: the guest would go on with the disk.
    is_hard = instance.task_state in triggers.HARD_REBOOT.states
    cleaning.withhold(
        self, context, instance, bdms,
        triggers.HARD_REBOOT if is_hard else triggers.SOFT_REBOOT)


# Where Nova reads the mappings by itself, after the cleanup


def _cleaning_before(trigger: Trigger, original: Callable[..., Any]
                     ) -> Callable[..., Any]:
    """For a start, an undelete, and a start that was interrupted; for a guest
    that ran when the host went down; and for the reboots of Nova 25 to 27.
    """
    @functools.wraps(original)
    def bring_back(self: Any, context: Any, instance: Any,
                   *args: Any, **kwargs: Any) -> Any:
        with cleaning.harmless(trigger, instance):
            _clean_before(self, context.elevated(), instance, trigger)
        try:
            return original(self, context, instance, *args, **kwargs)
        finally:
            _current.withheld = frozenset()

    return bring_back


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


def _booting(names: Sequence[str],
             original: Callable[..., Any]) -> Callable[..., Any]:
    """For the start of nova-compute, in which many servers may come back."""

    @functools.wraps(original)
    def init_host(self: Any, *args: Any, **kwargs: Any) -> Any:
        with boot.going_on(_begin(self, names)):
            return original(self, *args, **kwargs)

    return init_host


def _begin(manager: Any, names: Sequence[str]) -> float:
    """nova-compute starts: say so, and do by the clock what is wanted.

    :param names: of the triggers whose hooks are installed
    :returns: how many seconds the cleanups of this start have
    """
    seconds: float = options.HOST_BOOT_TIMEOUT
    try:
        # Read again by a nova-compute that was told to read its files, and
        # perhaps wrong by now.
        settings = options.settings(CONF)
        seconds = settings.host_boot_timeout
        process = startup.record(CONF, names)
        if settings.watches:
            from nova_bdm_cleanup.plugin import watching

            watching.begin(manager, process, can_sweep())
    except Exception:
        LOG.exception('bdm-cleanup does nothing by the clock')
    return seconds


# What the virt driver is given


def _without_withheld(original: Callable[..., Any]) -> Callable[..., Any]:
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
