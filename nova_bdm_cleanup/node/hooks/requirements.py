# SPDX-License-Identifier: Apache-2.0
"""The check that the hooks fit this Nova.

The wrapped methods, the called functions and their callers are compared with
the table before anything is installed: names, parameters, calls and task
states.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
import inspect
import types
from typing import Any

from nova.compute import manager as nova_manager, task_states
from nova.network import neutron
from nova.scheduler.client.report import SchedulerReportClient
from nova.virt import block_device, driver as nova_driver
from nova.virt.libvirt.driver import LibvirtDriver
from nova.virt.libvirt.guest import Guest as LibvirtGuest
from nova.virt.libvirt.host import Host as LibvirtHost
from nova.volume import cinder as nova_cinder

from nova_bdm_cleanup.node import options
from nova_bdm_cleanup.node.cleanup.triggers import ALWAYS_ON, Trigger
from nova_bdm_cleanup.node.hooks import table
from nova_bdm_cleanup.node.hooks.table import Requirement

#: The owners of the functions that the table names.
_OWNERS: Mapping[str, Any] = {owner.__name__: owner for owner in (
    nova_manager.ComputeManager, nova_driver.ComputeDriver, LibvirtDriver,
    LibvirtHost, LibvirtGuest, block_device.DriverVolumeBlockDevice,
    neutron.API, nova_cinder, SchedulerReportClient)} | {
    table.VOLUME_API: nova_cinder.API}


def differences() -> list[str]:
    """Return what keeps the plugin from working in this Nova at all."""
    common = [_requirement(hook) for hook in table.HOOKS
              if hook.trigger is None]
    common += [need for need in table.REQUIREMENTS if not need.triggers]
    return list(dict.fromkeys(
        _differing(common) + _differences_for(ALWAYS_ON)))


def differences_by_word(words: Iterable[str]) -> dict[str, list[str]]:
    """Return what keeps words of ``triggers`` from working in this Nova."""
    return {word: _differences_for(options.triggers_of_word(word))
            for word in words}


def has_builtin() -> bool:
    """Return whether Nova has a cleanup of its own, wrapped or not."""
    return hasattr(nova_manager.ComputeManager, table.BUILTIN_CLEANUP.name)


def _differences_for(triggers: Collection[Trigger]) -> list[str]:
    found = []
    for trigger in triggers:
        needs = [_requirement(hook) for hook in table.hooks_for(
            [trigger], has_builtin()) if hook.trigger is not None]
        needs += [need for need in table.REQUIREMENTS
                  if trigger in need.triggers]
        found += (_differing(needs) or _not_called(needs))
        found += _unknown_states(trigger)
    return list(dict.fromkeys(found))


def _requirement(hook: table.Hook) -> Requirement:
    return Requirement(str(hook.method), hook.method.parameters,
                       callers=hook.callers)


def _differing(needs: Iterable[Requirement]) -> list[str]:
    """Return which functions are missing, or take other parameters."""
    found = []
    for need in needs:
        owner, _, name = need.function.rpartition('.')
        function = getattr(_OWNERS[owner], name, None)
        if function is None:
            found.append('%s is missing' % need.function)
            continue
        actual = ', '.join(inspect.signature(function).parameters)
        if need.parameters is not None and actual != need.parameters:
            found.append('%s takes (%s) and not (%s)' % (
                need.function, actual, need.parameters))
    return found


def _not_called(needs: Iterable[Requirement]) -> list[str]:
    """Return which functions their callers do not call."""
    return ['%s.%s does not call %s' % (table.MANAGER, caller, name)
            for need in needs
            for name in [need.function.rpartition('.')[2]]
            for caller in need.callers if not _calls(caller, name)]


def _calls(caller: str, name: str) -> bool:
    function = inspect.unwrap(
        getattr(nova_manager.ComputeManager, caller, len))
    return name in _names(getattr(function, '__code__', None))


def _names(code: types.CodeType | None) -> frozenset[str]:
    """Return the names in a function, and in the functions inside it."""
    if code is None:
        return frozenset()
    return frozenset(code.co_names).union(*(
        _names(each) for each in code.co_consts
        if isinstance(each, types.CodeType)))


def _unknown_states(trigger: Trigger) -> list[str]:
    known = {value for value in vars(task_states).values()
             if isinstance(value, str)}
    return ['Nova has no task state "%s"' % state
            for state in sorted(s for s in trigger.states if s)
            if state not in known]
