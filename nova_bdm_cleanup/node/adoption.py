# SPDX-License-Identifier: Apache-2.0
"""Adoptions: the disks of guests that go on, with all that these need.

A live migration that has failed may leave the mappings of its disks with the
attachments of the other host.  Nova rolls it back, or gives it up at its
start, without its lock; so what follows takes the lock, and reads everything
again.  To abort the job of a migration takes time, too, and ``init_host`` must
not wait for it: hence a thread of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import threading
import time
from typing import Any

from nova import context as nova_context, exception, objects
from nova.compute import vm_states
import nova.conf
from oslo_log import log as logging

from nova_bdm_cleanup.node import (
    domains,
    instance as node_instance,
    options,
    shutdown,
)
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.cleanup.log_lines import masked, with_traceback
from nova_bdm_cleanup.node.instance_cleanup import InstanceCleanup
from nova_bdm_cleanup.openstack.deadline import Deadline, TimedOut
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Plan

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

#: Seconds that a live migration has to end its job, and Nova what it does with
#: its lock; and between two looks at the job.
_ENDS_WITHIN, _INTERVAL = 120.0, 1.0

#: Seconds in which Nova sets the state of a server after a roll-back.
_STATE_SETTLES_IN = 2.0

#: Seconds that an administrator waits for Nova's lock of a server.
_LOCK_PATIENCE = 5.0

#: The servers that have no guest, or are about to have none.
_WITHOUT_GUEST = (vm_states.BUILDING, vm_states.DELETED,
                  vm_states.SOFT_DELETED, vm_states.SHELVED_OFFLOADED)


class NotHere(Exception):
    """The server has no guest on this host."""


class Busy(Exception):
    """Nova works on the server, and holds its lock."""


def preview(manager: Any, server: str) -> Plan:
    """Return what :func:`carry_out` would do, also in mode ``observe``.

    :param manager: the ComputeManager
    :param server: the uuid of the server
    :raises NotHere: when it has no guest on this host
    :raises Exception: why Nova or Cinder did not answer
    """
    cleanup, bdms = _cleanup(manager, server, triggers.REPAIR)
    with cleanup.counted():
        return cleanup.cleaner.preview(cleanup.host.register(bdms))


def carry_out(manager: Any, server: str) -> Plan:
    """Adopt the disks of a server, on the word of an administrator.

    :returns: the findings; the due ones were carried out
    :raises NotHere: when it has no guest on this host
    :raises Busy: when Nova holds its lock
    """
    return _adopt(manager, server, triggers.REPAIR)


def follow(manager: Any, servers: Sequence[str]) -> None:
    """Adopt the disks of servers whose live migration has failed.

    It returns at once.

    :param servers: the uuids of the servers
    """
    if servers and not options.settings(CONF).policy.observe:
        threading.Thread(target=_follow, args=(manager, servers),
                         name='bdm-cleanup', daemon=True).start()


def _follow(manager: Any, servers: Sequence[str]) -> None:
    for server in servers:
        failure: Exception | None = None
        try:
            _wait_for_end(manager, server)
            _adopt(manager, server, triggers.ROLLBACK)
        except Exception as exc:
            failure = exc
        if isinstance(failure, (NotHere, Busy)):
            LOG.info('bdm-cleanup: the disks of server %s are left as its '
                     'live migration has left them: %s', server, failure)
        elif failure:
            # The thread has no caller that could log it.
            LOG.error('bdm-cleanup failed after a live migration',
                      exc_info=with_traceback(failure))


def _wait_for_end(manager: Any, server: str) -> None:
    """Wait until the guest has no job, and its records are settled.

    Then nothing has to be waited for with the lock.
    """
    begun = time.monotonic()
    settle_time = options.settings(CONF).policy.settle_time.total_seconds()
    settled = begun + max(settle_time, _STATE_SETTLES_IN)
    while not shutdown.has_begun(manager) and (
            time.monotonic() < settled
            or time.monotonic() < begun + _ENDS_WITHIN
            and _has_job(manager.driver, server)):
        shutdown.wait(manager, _INTERVAL)


def _has_job(driver: Any, server: str) -> bool:
    """Return whether a guest has a job; one that is not known has none."""
    if not domains.is_libvirt(driver):
        return False
    try:
        return node_instance.is_migrating(
            driver._host.get_guest(objects.Instance(uuid=server)))
    except Exception as exc:
        failure = masked(exc)
    LOG.debug('The job of server %s is not known: %s', server, failure)
    return False


def _adopt(manager: Any, server: str, trigger: triggers.Trigger) -> Plan:
    patience = _LOCK_PATIENCE if trigger is triggers.REPAIR else _ENDS_WITHIN
    try:
        with node_instance.hold_lock(
                server, Deadline(patience, option='lock')):
            cleanup, bdms = _cleanup(manager, server, trigger)
            return cleanup.run(bdms).plan
    except TimedOut as exc:
        raise Busy('Nova works on the server') from exc


def _cleanup(manager: Any, server: str, trigger: triggers.Trigger
             ) -> tuple[InstanceCleanup, Any]:
    """Return a cleanup, and the BlockDeviceMappingList of the server."""
    context = nova_context.get_admin_context()
    try:
        instance = objects.Instance.get_by_uuid(
            context, server, expected_attrs=[])
    except exception.InstanceNotFound as exc:
        raise NotHere('this Nova has no such server') from exc
    if spelling.host(instance.host) != spelling.host(manager.host):
        raise NotHere('the server is on host %s' % instance.host
                      if instance.host else 'the server is on no host')
    if instance.vm_state in _WITHOUT_GUEST:
        raise NotHere('the server is %s' % instance.vm_state)
    policy = options.settings(CONF).policy
    if trigger is triggers.REPAIR:
        # The options are for what the plugin does by itself.
        policy = dataclasses.replace(policy, observe=False, reconnect=True)
    return InstanceCleanup(
        manager, context, instance, trigger, policy=policy
    ), objects.BlockDeviceMappingList.get_by_instance_uuid(
        context, server)
