# SPDX-License-Identifier: Apache-2.0
"""The hooks on nova-compute's manager: installed on the class, removable.

Nova 28 and later call ``self._delete_dangling_bdms(context, instance, bdms)``
in every reboot: there ours takes the place of theirs, and calls theirs where
it only observes.  Earlier releases have no such call, so ``_reboot_instance``
is wrapped to make it first.  In both cases Nova's instance lock is held.  A
start and the resume of a guest when the host boots have no such place in any
release and no lock: ``_power_on`` and ``_resume_guests_state`` are wrapped.
Nothing of Nova is copied.

What wraps is imported only where it is wanted, and then at once.
"""

from __future__ import annotations

from collections.abc import Sequence
import functools
from typing import Any, Callable

from nova.compute import manager as nova_manager
import nova.conf
from oslo_log import log as logging

from nova_bdm_cleanup.node import boot, cleaning, options, startup
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.hooks import fit
from nova_bdm_cleanup.rules.facts import Policy

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_replaced: dict[str, Any] = {}


def install(names: Sequence[str]) -> None:
    """Put the hooks on the class; doing it again is harmless.

    :param names: of the triggers
    """
    if _replaced:
        return
    methods = vars(nova_manager.ComputeManager)
    # Nova itself does not clean up before a reboot.
    is_plain = False
    if triggers.HARD_REBOOT.name in names:
        builtin = _replaced[fit.CLEANUP] = methods.get(fit.CLEANUP)
        if builtin is not None:
            # Whoever unwraps it finds Nova's.
            functools.update_wrapper(
                _delete_dangling_bdms, builtin, assigned=(), updated=())
        setattr(nova_manager.ComputeManager, fit.CLEANUP,
                _delete_dangling_bdms)
        is_plain = builtin is None
    if set(names) - set(triggers.BRINGS_BACK):
        from nova_bdm_cleanup.node.hooks import moves

        for name, wrap in moves.wraps(names):
            _wrap(name, wrap)
    if is_plain or {triggers.START.name, triggers.HOST_BOOT.name} & set(names):
        from nova_bdm_cleanup.node.hooks import bring_back

        for name, wrap in bring_back.wraps(names, is_plain):
            _wrap(name, wrap)
    if fit.BOOT in methods:
        _wrap(fit.BOOT, functools.partial(_booting, names))


def _wrap(name: str, wrap: Callable[[Callable[..., Any]], Any]) -> None:
    original = vars(nova_manager.ComputeManager)[name]
    _replaced.setdefault(name, original)
    setattr(nova_manager.ComputeManager, name, wrap(original))


def uninstall() -> None:
    """Give the class its own methods back."""
    for name, original in _replaced.items():
        if original is None:
            delattr(nova_manager.ComputeManager, name)
        else:
            setattr(nova_manager.ComputeManager, name, original)
    _replaced.clear()


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
    builtin = _replaced.get(fit.CLEANUP)
    if builtin is not None and _observes():
        # What it raises fails the reboot, as it does without the plugin.
        builtin(self, context, instance, bdms)


def _observes() -> bool:
    """Tell whether the plugin only observes."""
    try:
        return options.settings(CONF).policy.observe
    except Exception:
        # Read again by a nova-compute that was told to read its files, and
        # wrong now: a typo never acts.
        return True


def _booting(names: Sequence[str],
             original: Callable[..., Any]) -> Callable[..., Any]:
    """For the start of nova-compute, in which many servers may come back."""

    @functools.wraps(original)
    def init_host(self: Any, *args: Any, **kwargs: Any) -> Any:
        with boot.going_on(_begin(self, names),
                           functools.partial(options.counters, CONF)):
            return original(self, *args, **kwargs)

    return init_host


def _begin(manager: Any, names: Sequence[str]) -> float:
    """nova-compute starts: say so, and do by the clock what is wanted.

    :param names: of the triggers whose hooks are installed
    :returns: how many seconds the cleanups of this start have
    """
    seconds = Policy.timeout
    try:
        # Read again by a nova-compute that was told to read its files, and
        # perhaps wrong by now.
        settings = options.settings(CONF)
        seconds = settings.policy.timeout
        process = startup.record(CONF, names)
        if settings.watches:
            from nova_bdm_cleanup.node import periodic

            periodic.begin(manager, process)
    except Exception:
        LOG.exception('bdm-cleanup does nothing by the clock')
    return seconds
