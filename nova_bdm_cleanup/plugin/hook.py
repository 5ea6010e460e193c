# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""The hooks on nova-compute's manager: installed on the class, removable.

Nova 28 and later call ``self._delete_dangling_bdms(context, instance, bdms)``
in every reboot: there ours takes the place of theirs.  Earlier releases have
no such call, so ``_reboot_instance`` is wrapped to make it first.  In both
cases Nova's instance lock is held.  A start and the resume of a guest when the
host boots have no such place in any release and no lock: ``_power_on`` and
``_resume_guests_state`` are wrapped.  Nothing of Nova is copied.
"""

from __future__ import annotations

import functools
import inspect
import threading
from typing import (
    AbstractSet,
    Any,
    Callable,
    Dict,
    FrozenSet,
    List,
    Mapping,
    Sequence,
    Tuple,
)

from nova import objects
from nova.compute import manager as nova_manager
from nova.compute import task_states
import nova.conf
from nova.network import neutron
from nova.virt import block_device
from nova.virt import driver as nova_driver
from nova.virt.libvirt.driver import LibvirtDriver
from nova.virt.libvirt.guest import Guest as LibvirtGuest
from nova.virt.libvirt.host import Host as LibvirtHost
from nova.volume import cinder as nova_cinder
from oslo_log import log as logging

from nova_bdm_cleanup import options
from nova_bdm_cleanup.cleanup import triggers
from nova_bdm_cleanup.cleanup.triggers import Trigger
from nova_bdm_cleanup.plugin import boot
from nova_bdm_cleanup.plugin import cleaning
from nova_bdm_cleanup.plugin import sweeping
from nova_bdm_cleanup.plugin import watching

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_CLEANUP = '_delete_dangling_bdms'
_REBOOT = '_reboot_instance'
_DISKS = '_get_instance_block_device_info'
_START = '_power_on'
_RESUME = '_resume_guests_state'
_BOOT = 'init_host'

#: A class or module, the name of a function, and the parameters that it must
#: have.
_Signature = Tuple[Any, str, Tuple[str, ...]]

#: What is called or replaced, whatever the trigger.
_EXPECTED: Sequence[_Signature] = (
    (nova_driver.ComputeDriver, 'detach_volume',
     ('self', 'context', 'connection_info', 'instance', 'mountpoint',
      'encryption')),
    (nova_driver.ComputeDriver, 'get_volume_connector',
     ('self', 'instance')),
    (LibvirtDriver, '_disconnect_volume',
     ('self', 'context', 'connection_info', 'instance', 'encryption',
      'destroy_secrets', 'force')),
    (LibvirtHost, 'delete_secret', ('self', 'usage_type', 'usage_id')),
    (block_device.DriverVolumeBlockDevice, '_get_volume',
     ('context', 'volume_api', 'volume_id')),
    (nova_cinder, 'cinderclient',
     ('context', 'microversion', 'skip_version_check', 'check_only')),
)

#: Called with the mappings between the cleanup and the virt driver.
_EXPECTED_DISKS: _Signature = (
    nova_manager.ComputeManager, _DISKS,
    ('self', 'context', 'instance', 'refresh_conn_info', 'bdms'))

#: How it is found out whether a guest is off.
_EXPECTED_STATE: Sequence[_Signature] = (
    (nova_driver.ComputeDriver, 'get_info',
     ('self', 'instance', 'use_cache')),
    (LibvirtHost, 'get_guest', ('self', 'instance')),
    (LibvirtGuest, 'is_active', ('self',)),
)

_EXPECTED_START: Sequence[_Signature] = (
    (nova_manager.ComputeManager, _START, ('self', 'context', 'instance')),
    _EXPECTED_DISKS, *_EXPECTED_STATE)

#: What is called or replaced for one trigger, besides.
_EXPECTED_FOR: Mapping[str, Sequence[_Signature]] = {
    triggers.HARD_REBOOT.name: (
        (nova_manager.ComputeManager, _REBOOT,
         ('self', 'context', 'instance', 'block_device_info', 'reboot_type')),
        (nova_driver.ComputeDriver, 'power_off',
         ('self', 'instance', 'timeout', 'retry_interval')),
        (neutron.API, 'get_instance_nw_info',
         ('self', 'context', 'instance', 'kwargs'))),
    triggers.START.name: _EXPECTED_START,
    # Starts have to wait for it.
    triggers.SWEEP.name: (
        *_EXPECTED_START,
        (LibvirtGuest, 'get_xml_desc',
         ('self', 'dump_inactive', 'dump_sensitive', 'dump_migratable')),
        (LibvirtGuest, 'detach_device',
         ('self', 'conf', 'persistent', 'live'))),
    triggers.HOST_BOOT.name: (
        (nova_manager.ComputeManager, _RESUME,
         ('self', 'context', 'instance', 'net_info')),
        _EXPECTED_DISKS, *_EXPECTED_STATE),
}

_TRIGGERS_OF: Mapping[str, Sequence[Trigger]] = {
    triggers.HARD_REBOOT.name: (triggers.HARD_REBOOT, triggers.SOFT_REBOOT),
    triggers.START.name: (triggers.START,),
    triggers.SWEEP.name: (triggers.SWEEP,),
    triggers.HOST_BOOT.name: (triggers.HOST_BOOT,),
}

_lock = threading.Lock()
_replaced: Dict[str, Any] = {}
#: Of the triggers whose hooks are installed.
_names: List[str] = []

#: The mappings that what this thread carries out must not hand to the virt
#: driver.
_current = threading.local()


def differences() -> List[str]:
    """What this Nova does otherwise than every hook knows; empty: nothing."""
    return _differing(_EXPECTED)


def differences_for(name: str) -> List[str]:
    """The same for what only one of the triggers needs.

    :param name: of the trigger
    """
    expected = list(_EXPECTED_FOR[name])
    calls = []
    if name == triggers.HARD_REBOOT.name:
        if _has_builtin():
            expected.append((nova_manager.ComputeManager, _CLEANUP,
                             ('self', 'context', 'instance', 'bdms')))
        else:
            expected.append(_EXPECTED_DISKS)
        calls = [(_REBOOT, _CLEANUP if _has_builtin() else _DISKS)]
    elif name in (triggers.START.name, triggers.SWEEP.name):
        calls = [(_START, _DISKS)]
    else:
        calls = [(_BOOT, '_init_instance'), ('_init_instance', _RESUME),
                 (_RESUME, _DISKS)]
    return (_differing(expected) or [
        'ComputeManager.%s does not call %s' % call for call in calls
        if not _calls(*call)]) + _unknown_states(name)


def _differing(expected: Sequence[_Signature]) -> List[str]:
    found = []
    for owner, name, parameters in expected:
        func = getattr(owner, name, None)
        if func is None:
            found.append('%s.%s is missing' % (owner.__name__, name))
            continue
        actual = tuple(inspect.signature(func).parameters)
        if actual != parameters:
            found.append('%s.%s takes (%s) and not (%s)' % (
                owner.__name__, name, ', '.join(actual),
                ', '.join(parameters)))
    return found


def _has_builtin() -> bool:
    """Whether Nova has a cleanup of its own, replaced by now or not."""
    if _CLEANUP in _replaced:
        return _replaced[_CLEANUP] is not None
    return hasattr(nova_manager.ComputeManager, _CLEANUP)


def _calls(name: str, called: str) -> bool:
    func = inspect.unwrap(getattr(nova_manager.ComputeManager, name, len))
    code = getattr(func, '__code__', None)
    return code is not None and called in code.co_names


def _unknown_states(name: str) -> List[str]:
    known = {value for value in vars(task_states).values()
             if isinstance(value, str)}
    return ['Nova has no task state "%s"' % state
            for trigger in _TRIGGERS_OF[name]
            for state in sorted(s for s in trigger.states if s)
            if state not in known]


def install(names: Sequence[str], sweeps: bool = False) -> None:
    """Put the hooks on the class; doing it again is harmless.

    :param names: of the triggers
    :param sweeps: servers that are off are to be swept
    """
    with _lock:
        if _replaced:
            return
        _names[:] = names
        builtin = vars(nova_manager.ComputeManager).get(_CLEANUP)
        needs_disks = False
        if triggers.HARD_REBOOT.name in names:
            _replaced[_CLEANUP] = builtin
            setattr(nova_manager.ComputeManager, _CLEANUP,
                    _delete_dangling_bdms)
            if builtin is None:
                _wrap(_REBOOT, _cleaning_first)
                needs_disks = True
        if triggers.START.name in names:
            _wrap(_START, _starting)
            needs_disks = True
        elif sweeps and not differences_for(triggers.SWEEP.name):
            _wrap(_START, _after_a_sweep)
        if triggers.HOST_BOOT.name in names:
            _wrap(_RESUME, _resuming)
            needs_disks = True
        if needs_disks:
            _wrap(_DISKS, _without_withheld)
        if _BOOT in vars(nova_manager.ComputeManager):
            _wrap(_BOOT, _booting)


def _wrap(name: str, wrap: Callable[[Callable[..., Any]], Any]) -> None:
    original = vars(nova_manager.ComputeManager)[name]
    _replaced[name] = original
    setattr(nova_manager.ComputeManager, name, wrap(original))


def can_sweep() -> bool:
    """Whether this Nova lets servers be swept, and starts wait for it."""
    return (_START in _replaced
            and not differences_for(triggers.SWEEP.name))


def uninstall() -> None:
    """Give the class its own methods back."""
    with _lock:
        for name, original in _replaced.items():
            if original is None:
                delattr(nova_manager.ComputeManager, name)
            else:
                setattr(nova_manager.ComputeManager, name, original)
        _replaced.clear()


# Reboots


def _cleaning_first(original: Callable[..., Any]) -> Callable[..., Any]:
    """For Nova 25 to 27, whose reboot has no place for a cleanup."""

    @functools.wraps(original)
    def _reboot_instance(self: Any, context: Any, instance: Any,
                         block_device_info: Any, reboot_type: str) -> Any:
        try:
            elevated = context.elevated()
            bdms = _mappings(elevated, instance)
            before = {bdm.uuid for bdm in bdms}
            self._delete_dangling_bdms(elevated, instance, bdms)
            _current.withheld = before - {bdm.uuid for bdm in bdms}
        except Exception:
            LOG.exception('bdm-cleanup failed; the reboot goes on',
                          instance=instance)
        try:
            return original(self, context, instance, block_device_info,
                            reboot_type)
        finally:
            _current.withheld = frozenset()

    return _reboot_instance


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
    try:
        # A soft reboot keeps the domain: the guest would go on with the disk.
        is_hard = instance.task_state in triggers.HARD_REBOOT.states
        _take_out(bdms, cleaning.clean(
            self, context, instance, bdms,
            triggers.HARD_REBOOT if is_hard else triggers.SOFT_REBOOT))
    except Exception:
        # Whatever is wrong with the cleanup, the user asked for a reboot.
        LOG.exception('bdm-cleanup failed; the reboot goes on',
                      instance=instance)


# Starts


def _starting(original: Callable[..., Any]) -> Callable[..., Any]:
    """For a start, an undelete, and a start that was interrupted."""

    @functools.wraps(original)
    def _power_on(self: Any, context: Any, instance: Any) -> Any:
        sweeping.wait_for(instance.uuid)
        _clean_before(self, context, instance, triggers.START)
        try:
            return original(self, context, instance)
        finally:
            _current.withheld = frozenset()

    return _power_on


def _after_a_sweep(original: Callable[..., Any]) -> Callable[..., Any]:
    """For the same starts, where these do not clean up."""

    @functools.wraps(original)
    def _power_on(self: Any, context: Any, instance: Any) -> Any:
        sweeping.wait_for(instance.uuid)
        return original(self, context, instance)

    return _power_on


def _resuming(original: Callable[..., Any]) -> Callable[..., Any]:
    """For a guest that ran when the host went down."""

    @functools.wraps(original)
    def _resume_guests_state(self: Any, context: Any, instance: Any,
                             net_info: Any) -> Any:
        _clean_before(self, context, instance, triggers.HOST_BOOT)
        try:
            return original(self, context, instance, net_info)
        finally:
            _current.withheld = frozenset()

    return _resume_guests_state


def _clean_before(manager: Any, context: Any, instance: Any,
                  trigger: Trigger) -> None:
    """Clean up before Nova reads the mappings by itself."""
    try:
        elevated = context.elevated()
        _current.withheld = cleaning.clean(
            manager, elevated, instance, _mappings(elevated, instance),
            trigger)
    except Exception:
        LOG.exception('bdm-cleanup failed; %s', trigger.goes_on,
                      instance=instance)


def _booting(original: Callable[..., Any]) -> Callable[..., Any]:
    """For the start of nova-compute, in which many servers may come back."""

    @functools.wraps(original)
    def init_host(self: Any, *args: Any, **kwargs: Any) -> Any:
        watching.begin(self, _names, can_sweep())
        with boot.of(self, options.host_boot_timeout(CONF)):
            return original(self, *args, **kwargs)

    return init_host


# What the virt driver is given


def _without_withheld(original: Callable[..., Any]) -> Callable[..., Any]:
    """For what reads the mappings after the cleanup."""

    @functools.wraps(original)
    def _get_instance_block_device_info(self: Any, context: Any,
                                        instance: Any, *args: Any,
                                        bdms: Any = None,
                                        **kwargs: Any) -> Any:
        withheld: FrozenSet[str] = getattr(_current, 'withheld', frozenset())
        if withheld and bdms is None:
            bdms = _mappings(context, instance)
        if bdms is not None:
            # They are another list than the cleanup was given.
            _take_out(bdms, withheld)
        return original(self, context, instance, *args, bdms=bdms, **kwargs)

    return _get_instance_block_device_info


def _mappings(context: Any, instance: Any) -> Any:
    return objects.BlockDeviceMappingList.get_by_instance_uuid(
        context, instance.uuid)


def _take_out(bdms: Any, uuids: AbstractSet[str]) -> None:
    for bdm in [b for b in bdms if b.uuid in uuids]:
        bdms.objects.remove(bdm)
