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
from typing import Any, Callable, Dict, FrozenSet, List, Sequence, Tuple

from nova.compute import manager as nova_manager
from nova.compute import task_states
import nova.conf
from nova import objects
from nova.virt import driver as nova_driver
from nova.volume import cinder as nova_cinder
from oslo_log import log as logging

from nova_bdm_cleanup import audit as audits
from nova_bdm_cleanup import cleaner
from nova_bdm_cleanup import conf as our_conf
from nova_bdm_cleanup import deadline as deadlines
from nova_bdm_cleanup import journal as journals
from nova_bdm_cleanup.model import Reason
from nova_bdm_cleanup.plugin import access
from nova_bdm_cleanup.plugin import host as hosts

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_CLEANUP = '_delete_dangling_bdms'
_REBOOT = '_reboot_instance'

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
    (nova_cinder, 'cinderclient',
     ('context', 'microversion', 'skip_version_check', 'check_only')),
)

_lock = threading.Lock()
_replaced: Dict[str, Any] = {}


def differences() -> List[str]:
    """What this Nova does otherwise than the hook knows; empty: nothing."""
    found = []
    expected = list(_EXPECTED)
    has_builtin = hasattr(nova_manager.ComputeManager, _CLEANUP)
    if has_builtin:
        expected.append((nova_manager.ComputeManager, _CLEANUP,
                         ('self', 'context', 'instance', 'bdms')))
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
    if has_builtin and not found:
        reboot = inspect.unwrap(getattr(nova_manager.ComputeManager, _REBOOT))
        if _CLEANUP not in reboot.__code__.co_names:
            found.append('ComputeManager.%s does not call %s'
                         % (_REBOOT, _CLEANUP))
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
            original = vars(manager)[_REBOOT]
            _replaced[_REBOOT] = original
            setattr(manager, _REBOOT, _cleaning_first(original))


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
        elevated = context.elevated()
        try:
            bdms = objects.BlockDeviceMappingList.get_by_instance_uuid(
                elevated, instance.uuid)
            self._delete_dangling_bdms(elevated, instance, bdms)
        except Exception:
            LOG.exception('bdm-cleanup failed; the reboot goes on',
                          instance=instance)
        return original(self, context, instance, block_device_info,
                        reboot_type)

    return _reboot_instance


def _delete_dangling_bdms(self: Any, context: Any, instance: Any,
                          bdms: Any) -> None:
    """Remove dangling block device mappings and stale attachments.

    Stands in for the method of that name of Nova 28 and later.

    :param self: the ComputeManager
    :param context: the elevated context of the reboot
    :param instance: the instance, whose lock is held
    :param bdms: its BlockDeviceMappingList; what is removed is taken out
    """
    try:
        released = _clean(self, context, instance, bdms)
        for bdm in [b for b in bdms if b.uuid in released]:
            bdms.objects.remove(bdm)
    except Exception:
        # Whatever is wrong with the cleanup, the user asked for a reboot.
        LOG.exception('bdm-cleanup failed; the reboot goes on',
                      instance=instance)


def _clean(manager: Any, context: Any, instance: Any,
           bdms: Any) -> FrozenSet[str]:
    policy = our_conf.policy(CONF)
    deadline = deadlines.Deadline(policy.timeout)
    host = hosts.NovaHost(manager, context, instance, deadline)
    # A soft reboot keeps the domain: the guest would go on with the disk.
    hard = instance.task_state in task_states.hard_reboot_states
    return cleaner.Cleaner(
        host,
        access.cinder_for(context, instance, deadline),
        journals.Journal(*our_conf.journal(CONF)),
        audits.Audit(instance, context.request_id),
        policy,
        deadline,
    ).clean(host.known_server(), host.adopt(bdms),
            report_only=None if hard else Reason.SOFT_REBOOT)
