# SPDX-License-Identifier: Apache-2.0
"""Whether this Nova is one that the hooks know.

What they replace, what they call and who calls them is compared before
anything is installed: names, parameters, calls and task states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import inspect
from typing import Any, NamedTuple

from nova.compute import manager as nova_manager, task_states
from nova.network import neutron
from nova.virt import block_device, driver as nova_driver
from nova.virt.libvirt.driver import LibvirtDriver
from nova.virt.libvirt.guest import Guest as LibvirtGuest
from nova.virt.libvirt.host import Host as LibvirtHost
from nova.volume import cinder as nova_cinder

from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.cleanup.triggers import Trigger

CLEANUP = '_delete_dangling_bdms'
REBOOT = '_reboot_instance'
DISKS = '_get_instance_block_device_info'
START = '_power_on'
BOOT = 'init_host'

#: Where the functions are that a line names.
_OWNERS: Mapping[str, Any] = {owner.__name__: owner for owner in (
    nova_manager.ComputeManager, nova_driver.ComputeDriver, LibvirtDriver,
    LibvirtHost, LibvirtGuest, block_device.DriverVolumeBlockDevice,
    neutron.API, nova_cinder)}

#: What is called or replaced, whatever the trigger, with its parameters.
_ALWAYS = (
    'ComputeDriver.detach_volume(self, context, connection_info, instance, '
    'mountpoint, encryption)',
    'LibvirtDriver._disconnect_volume(self, context, connection_info, '
    'instance, encryption, destroy_secrets, force)',
    'Host.delete_secret(self, usage_type, usage_id)',
    'DriverVolumeBlockDevice._get_volume(context, volume_api, volume_id)',
    'nova.volume.cinder.cinderclient(context, microversion, '
    'skip_version_check, check_only)',
)

#: Called with the mappings between the cleanup and the virt driver.
DISKS_TAKEN = (
    'ComputeManager._get_instance_block_device_info(self, context, instance, '
    'refresh_conn_info, bdms)')


class Needs(NamedTuple):
    """What the hooks of one trigger need of this Nova, besides."""

    #: What is called or replaced, with its parameters, if they matter.
    functions: Sequence[str]
    #: A method of the manager, and one that it has to call.
    calls: Sequence[tuple[str, str]]
    #: Those of which it has to have the task states.
    triggers: Sequence[Trigger]


def differences() -> list[str]:
    """What this Nova does otherwise than every hook knows; empty: nothing."""
    return _differing(_ALWAYS)


def differences_for(*names: str) -> list[str]:
    """The same for what only some triggers need.

    :param names: of the triggers
    """
    return [text for needs in map(_needs_of, names) for text in (
        _differing(needs.functions) or [
            'ComputeManager.%s does not call %s' % call
            for call in needs.calls if not _calls(*call)]
        ) + _unknown_states(needs.triggers)]


def _needs_of(name: str) -> Needs:
    """Those of other triggers than reboots are where their hooks are."""
    if name == triggers.HARD_REBOOT.name:
        return Needs((
            'ComputeManager._reboot_instance(self, context, instance, '
            'block_device_info, reboot_type)',
            'ComputeDriver.power_off(self, instance, timeout, retry_interval)',
            'API.get_instance_nw_info(self, context, instance, kwargs)',
            'ComputeManager._delete_dangling_bdms(self, context, instance, '
            'bdms)' if has_builtin() else DISKS_TAKEN),
            ((REBOOT, CLEANUP if has_builtin() else DISKS),),
            (triggers.HARD_REBOOT, triggers.SOFT_REBOOT))
    if name in triggers.BRINGS_BACK:
        from nova_bdm_cleanup.node.hooks import bring_back

        return bring_back.NEEDS[name]
    from nova_bdm_cleanup.node.hooks import moves

    return moves.NEEDS[name]


def has_builtin() -> bool:
    """Whether Nova has a cleanup of its own, replaced by now or not."""
    method = inspect.unwrap(
        getattr(nova_manager.ComputeManager, CLEANUP, len))
    return bool(method.__module__ == nova_manager.__name__)


def _differing(expected: Sequence[str]) -> list[str]:
    found = []
    for function in expected:
        path, _, parameters = function.rstrip(')').partition('(')
        owner, _, name = path.rpartition('.')
        func = getattr(_OWNERS[owner], name, None)
        if func is None:
            found.append('%s is missing' % path)
            continue
        actual = ', '.join(inspect.signature(func).parameters)
        if parameters and actual != parameters:
            found.append('%s takes (%s) and not (%s)' % (
                path, actual, parameters))
    return found


def _calls(name: str, called: str) -> bool:
    func = inspect.unwrap(getattr(nova_manager.ComputeManager, name, len))
    code = getattr(func, '__code__', None)
    return code is not None and called in code.co_names


def _unknown_states(used: Sequence[Trigger]) -> list[str]:
    known = {value for value in vars(task_states).values()
             if isinstance(value, str)}
    return ['Nova has no task state "%s"' % state
            for trigger in used
            for state in sorted(s for s in trigger.states if s)
            if state not in known]
