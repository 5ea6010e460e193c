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
"""The hook on nova-compute's manager: installed on the class, removable.

Nova 28 and later call ``self._delete_dangling_bdms(context, instance, bdms)``
in every reboot: there ours takes the place of theirs.  Earlier releases have
no such call, so ``_reboot_instance`` is wrapped to make it first.  In both
cases Nova's instance lock is held, and nothing of Nova is copied.
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
from nova.virt.libvirt.host import Host as LibvirtHost
from nova.volume import cinder as nova_cinder
from oslo_log import log as logging

from nova_bdm_cleanup import options
from nova_bdm_cleanup.cleanup import cleaner
from nova_bdm_cleanup.cleanup import loglines
from nova_bdm_cleanup.deadline import Deadline
from nova_bdm_cleanup.plugin import access
from nova_bdm_cleanup.plugin.host import NovaHost
from nova_bdm_cleanup.store.journal import Journal

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_CLEANUP = '_delete_dangling_bdms'
_REBOOT = '_reboot_instance'
_DISKS = '_get_instance_block_device_info'

#: How long a soft reboot waits at most, in seconds.  It changes nothing, and
#: no release before Nova 28 asks Cinder for anything in one.
_SOFT_TIMEOUT = 5.0

#: What is called or replaced, with the parameters that it must have.
_EXPECTED: Sequence[Tuple[Any, str, Tuple[str, ...]]] = (
    (nova_manager.ComputeManager, _REBOOT,
     ('self', 'context', 'instance', 'block_device_info', 'reboot_type')),
    (nova_driver.ComputeDriver, 'power_off',
     ('self', 'instance', 'timeout', 'retry_interval')),
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
    (neutron.API, 'get_instance_nw_info',
     ('self', 'context', 'instance', 'kwargs')),
    (nova_cinder, 'cinderclient',
     ('context', 'microversion', 'skip_version_check', 'check_only')),
)

#: Called with the mappings between the cleanup and the virt driver.
_EXPECTED_DISKS = (nova_manager.ComputeManager, _DISKS,
                   ('self', 'context', 'instance', 'refresh_conn_info',
                    'bdms'))

_lock = threading.Lock()
_replaced: Dict[str, Any] = {}

#: The mappings that the reboot which this thread carries out must not hand to
#: the virt driver.
_reboot = threading.local()


def differences() -> List[str]:
    """What this Nova does otherwise than the hook knows; empty: nothing."""
    found = []
    expected = list(_EXPECTED)
    has_builtin = hasattr(nova_manager.ComputeManager, _CLEANUP)
    if has_builtin:
        expected.append((nova_manager.ComputeManager, _CLEANUP,
                         ('self', 'context', 'instance', 'bdms')))
    else:
        expected.append(_EXPECTED_DISKS)
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
    if not found:
        reboot = inspect.unwrap(getattr(nova_manager.ComputeManager, _REBOOT))
        called = _CLEANUP if has_builtin else _DISKS
        if called not in reboot.__code__.co_names:
            found.append('ComputeManager.%s does not call %s'
                         % (_REBOOT, called))
    return found


def install() -> None:
    """Put the hook on the class; doing it again is harmless."""
    manager = nova_manager.ComputeManager
    with _lock:
        if _replaced:
            return
        builtin = vars(manager).get(_CLEANUP)
        _replaced[_CLEANUP] = builtin
        setattr(manager, _CLEANUP, _delete_dangling_bdms)
        if builtin is None:
            for name, wrap in ((_REBOOT, _cleaning_first),
                               (_DISKS, _without_withheld)):
                original = vars(manager)[name]
                _replaced[name] = original
                setattr(manager, name, wrap(original))


def uninstall() -> None:
    """Give the class its own methods back."""
    with _lock:
        for name, original in _replaced.items():
            if original is None:
                delattr(nova_manager.ComputeManager, name)
            else:
                setattr(nova_manager.ComputeManager, name, original)
        _replaced.clear()


def _cleaning_first(original: Callable[..., Any]) -> Callable[..., Any]:
    """For Nova 25 to 27, whose reboot has no place for a cleanup."""

    @functools.wraps(original)
    def _reboot_instance(self: Any, context: Any, instance: Any,
                         block_device_info: Any, reboot_type: str) -> Any:
        try:
            elevated = context.elevated()
            bdms = objects.BlockDeviceMappingList.get_by_instance_uuid(
                elevated, instance.uuid)
            before = {bdm.uuid for bdm in bdms}
            self._delete_dangling_bdms(elevated, instance, bdms)
            _reboot.withheld = before - {bdm.uuid for bdm in bdms}
        except Exception:
            LOG.exception('bdm-cleanup failed; the reboot goes on',
                          instance=instance)
        try:
            return original(self, context, instance, block_device_info,
                            reboot_type)
        finally:
            _reboot.withheld = frozenset()

    return _reboot_instance


def _without_withheld(original: Callable[..., Any]) -> Callable[..., Any]:
    """For the same releases, which read the mappings after the cleanup."""

    @functools.wraps(original)
    def _get_instance_block_device_info(self: Any, context: Any,
                                        instance: Any, *args: Any,
                                        bdms: Any = None,
                                        **kwargs: Any) -> Any:
        if bdms is not None:
            # They are another list than the cleanup was given.
            _take_out(bdms, getattr(_reboot, 'withheld', frozenset()))
        return original(self, context, instance, *args, bdms=bdms, **kwargs)

    return _get_instance_block_device_info


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
        _take_out(bdms, _withheld(self, context, instance, bdms))
    except Exception:
        # Whatever is wrong with the cleanup, the user asked for a reboot.
        LOG.exception('bdm-cleanup failed; the reboot goes on',
                      instance=instance)


def _take_out(bdms: Any, uuids: AbstractSet[str]) -> None:
    for bdm in [b for b in bdms if b.uuid in uuids]:
        bdms.objects.remove(bdm)


def _withheld(manager: Any, context: Any, instance: Any,
              bdms: Any) -> FrozenSet[str]:
    """Clean up; the mappings that the driver must not connect after it."""
    policy = options.policy(CONF)
    # A soft reboot keeps the domain: the guest would go on with the disk.
    hard = instance.task_state in task_states.hard_reboot_states
    deadline = Deadline(policy.timeout if hard
                        else min(policy.timeout, _SOFT_TIMEOUT))
    host = NovaHost(manager, context, instance, deadline,
                    task_states.hard_reboot_states if hard
                    else task_states.soft_reboot_states)
    cleaning = cleaner.Cleaner(
        host,
        access.cinder_for(context, instance, deadline),
        Journal(*options.store(CONF)),
        loglines.LogLines(instance, context.request_id),
        policy,
        deadline)
    act = cleaning.clean if hard else cleaning.report
    return act(host.known_server(), host.adopt(bdms))
