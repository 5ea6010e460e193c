# SPDX-License-Identifier: Apache-2.0
"""The hooks on what takes a server from its host.

In all of these Nova takes every attachment of the server anew.  Where a
mapping dangles, that fails half way and leaves the neighbours of the disk only
reserved; or it succeeds, and the server gets a disk that is somebody else's.

What dangles is removed where the guest is provably off and before Nova asks
Cinder for anything.  Where it may not be removed, the operation ends there:
the other disks stay attached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import functools
import inspect
import threading
from typing import Any, Callable

from nova import exception, objects
from nova.compute import task_states, vm_states
import nova.conf
from oslo_log import log as logging

from nova_bdm_cleanup.node import boot, cleaning
from nova_bdm_cleanup.node.cleaning import Cleaning
from nova_bdm_cleanup.node.cleanup import actions, log_lines, triggers
from nova_bdm_cleanup.node.cleanup.cleaner import Assessment
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.hooks.fit import DISKS, DISKS_TAKEN, Needs
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import DANGLING, Finding, Reason

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_Wrapped = Callable[..., Any]

#: Of a mapping of such a kind Nova cannot take the attachment anew, or should
#: not.
_DANGLES = DANGLING | {Reason.ROOT_VOLUME_DANGLING}

#: The source's part of a move has begun, or was broken off.
_FIRST = 'resize_migrating'

#: The operator's own word: Nova goes on as if nobody had looked.
_TOLERATED = (Reason.OBSERVE_MODE, Reason.NOT_SELECTED)

_TERMINATE = '_terminate_volume_connections'
_PREPARE = '_prep_block_device'
_REBUILD = '_rebuild_default_impl'
_CHECK = 'check_can_live_migrate_source'
_OFFLOAD = '_shelve_offload_instance'
_EVACUATE = '_do_rebuild_instance'

_TERMINATED = (
    'ComputeManager._terminate_volume_connections(self, context, instance, '
    'bdms)')

#: What the hooks need of this Nova, by the name of the trigger.
NEEDS: Mapping[str, Needs] = {
    'move': Needs(
        (DISKS_TAKEN, _TERMINATED),
        [(caller, called) for caller in ('_resize_instance', 'revert_resize')
         for called in (DISKS, _TERMINATE)], (triggers.MOVE,)),
    'shelve': Needs(
        (DISKS_TAKEN, _TERMINATED),
        ((_OFFLOAD, DISKS), (_OFFLOAD, _TERMINATE)),
        (triggers.SHELVE,)),
    'unshelve': Needs(
        ('ComputeManager._prep_block_device(self, context, instance, bdms)',),
        (('_unshelve_instance', _PREPARE),), (triggers.UNSHELVE,)),
    # Every release gives it other parameters, all of them by name.
    'evacuate': Needs(
        (DISKS_TAKEN, 'ComputeManager._rebuild_default_impl'),
        ((_EVACUATE, _REBUILD), (_EVACUATE, _PREPARE),
         ('_destroy_evacuated_instances', DISKS)),
        (triggers.EVACUATE,)),
    'live_migration': Needs(
        ('ComputeManager.check_can_live_migrate_source(self, ctxt, instance, '
         'dest_check_data)',),
        (), (triggers.LIVE_MIGRATION,)),
    'delete': Needs((DISKS_TAKEN,), (('_shutdown_instance', DISKS),),
                    (triggers.DELETE,)),
}

#: What this thread has seen in the way of a server before its disks were
#: disconnected: the server, the cleanup and the findings.
_foreseen = threading.local()


def wraps(names: Sequence[str]) -> Iterator[
        tuple[str, Callable[[_Wrapped], _Wrapped]]]:
    """What is to be put around which methods of the manager.

    :param names: of the triggers
    """
    leaving = _by_state(names, triggers.MOVE, triggers.SHELVE)
    disconnecting = {**leaving, **_by_state(names, triggers.DELETE)}
    returns = triggers.EVACUATE.name in names
    if disconnecting or returns:
        yield DISKS, functools.partial(
            _before_the_driver, disconnecting, returns)
    if leaving:
        yield _TERMINATE, _preceded_by(functools.partial(
            _after_the_driver, leaving))
    for trigger, method, act in (
            (triggers.UNSHELVE, _PREPARE, _before_an_unshelve),
            (triggers.EVACUATE, _REBUILD, _before_an_evacuation),
            (triggers.LIVE_MIGRATION, _CHECK, _refuse_to_migrate)):
        if trigger.name in names:
            yield method, _preceded_by(act)


def _by_state(names: Sequence[str],
              *triggers: Trigger) -> dict[str | None, Trigger]:
    """Those that are wanted, by the task states of Nova."""
    return {state: trigger for trigger in triggers if trigger.name in names
            for state in trigger.states}


def _preceded_by(act: Callable[[Mapping[str, Any]], None]
                 ) -> Callable[[_Wrapped], _Wrapped]:
    """Something is done before a method of the manager.

    :param act: does it, with what the method is given, by name
    """
    def wrap(original: _Wrapped) -> _Wrapped:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            act(signature.bind(*args, **kwargs).arguments)
            return original(*args, **kwargs)

        return wrapped

    return wrap


# On the host that the server leaves


def _before_the_driver(by_state: Mapping[str | None, Trigger],
                       returns: bool, original: _Wrapped) -> _Wrapped:
    """The driver is about to disconnect all disks.

    It goes by addresses, and another guest of this host may have the disk, or
    its address, by now.

    :param returns: also of a server that was evacuated, now that this host is
        back
    """
    @functools.wraps(original)
    def _get_instance_block_device_info(
            self: Any, context: Any, instance: Any,
            refresh_conn_info: bool = False, bdms: Any = None) -> Any:
        trigger = by_state.get(instance.task_state)
        if bdms is None and returns and instance.host != self.host and not (
                refresh_conn_info
                or instance.task_state == task_states.MIGRATING):
            trigger = triggers.EVACUATE
            bdms = cleaning.mappings(context, instance)
        if trigger is None or refresh_conn_info:
            pass
        elif bdms is None and instance.task_state == _FIRST:
            # nova-compute died in a move and takes it back at its start: it
            # starts the guest by the addresses that are stored.
            bdms = cleaning.mappings(context, instance)
            cleaning.withhold(
                self, context.elevated(), instance, bdms, trigger)
        elif bdms is not None:
            kept = _neighbours_disks(self, context, instance, bdms, trigger)
            if kept:
                # Nova goes on with a list of its own.
                bdms = objects.BlockDeviceMappingList(objects=[
                    b for b in bdms if b.uuid not in kept])
        return original(self, context, instance, refresh_conn_info, bdms)

    return _get_instance_block_device_info


def _neighbours_disks(manager: Any, context: Any, instance: Any, bdms: Any,
                      trigger: Trigger) -> frozenset[str]:
    """The mappings whose disks the driver must not take from this host.

    :raises InstanceFaultRollback: when the operation should not even begin
    """
    kept = set()
    obstacles = []
    _foreseen.last = None
    # Of a host that returns: all its servers share the time of its start.
    booting = boot.current()
    if booting is not None and not booting.allows():
        return frozenset()
    with cleaning.harmless(trigger, instance):
        cleanup = Cleaning(manager, context.elevated(), instance, trigger)
        if cleanup.observes:
            return frozenset()
        dangling = list(filter(_dangles, cleanup.preview(bdms).plan.findings))
        _foreseen.last = instance.uuid, cleanup, dangling
        is_first = instance.task_state == _FIRST
        for finding in dangling:
            obstacle = _not_to_disconnect(cleanup, finding)
            if is_first and (obstacle or not finding.is_due):
                obstacles.append((finding, obstacle))
            elif obstacle and finding.bdm:
                cleanup.lines.left(finding, obstacle)
                kept.add(finding.bdm.uuid)
    if obstacles:
        # The guest still runs, and nothing has been changed.
        raise exception.InstanceFaultRollback(
            _refusal(cleanup, instance, obstacles))
    return frozenset(kept)


def _not_to_disconnect(cleanup: Cleaning, finding: Finding) -> str:
    """Why the driver must not disconnect a disk; empty: it may."""
    bdm = finding.bdm
    if bdm is None or not bdm.has_connection_info:
        return ''
    try:
        return actions.obstacle_to_disconnect(
            cleanup.host, cleanup.cinder, bdm)
    except Exception as exc:
        # Undecided.  A disk too many on a host is less harm than one too few.
        return log_lines.masked(exc)


def _after_the_driver(by_state: Mapping[str | None, Trigger],
                      given: Mapping[str, Any]) -> None:
    """The guest is off and its disks are disconnected; Cinder is next."""
    trigger = by_state.get(given['instance'].task_state)
    if trigger is not None:
        _remove(given, trigger)


def _remove(given: Mapping[str, Any], trigger: Trigger) -> None:
    """Remove what dangles.

    :raises InstanceUnacceptable: when some of it is still there
    """
    instance, bdms = given['instance'], given['bdms']
    before: tuple[Any, Any, Sequence[Finding]] = getattr(
        _foreseen, 'last', None) or (None, None, ())
    server, cleanup, foreseen = before
    _foreseen.last = None
    looked_at: set[str] = set()
    left = []
    with cleaning.harmless(trigger, instance):
        cleanup = Cleaning(
            given['self'], given['context'].elevated(), instance, trigger)
        cleanup.run(bdms)
        removed = cleanup.cleaner.removed
        # Whoever comes next reads the rows anew.
        cleaning.take_out(bdms, removed)
        for finding in cleanup.cleaner.plan.findings:
            if finding.bdm:
                looked_at.add(finding.bdm.uuid)
                if (_dangles(finding) and not cleanup.observes
                        and finding.bdm.uuid not in removed):
                    left.append((finding, ''))
    if server == instance.uuid:
        # No answer takes back what was seen a moment ago.
        left += [(finding, 'it could not be looked at again')
                 for finding in foreseen
                 if finding.bdm and finding.bdm.uuid not in looked_at]
    if left:
        raise _refusal(cleanup, instance, left)


# On the host that the server comes to


def _before_an_unshelve(given: Mapping[str, Any]) -> None:
    """The volumes of a server that is on no host are about to be connected."""
    # Builds and rebuilds come here, too.
    if given['instance'].vm_state == vm_states.SHELVED_OFFLOADED:
        _withhold(given, triggers.UNSHELVE)


def _before_an_evacuation(given: Mapping[str, Any]) -> None:
    """A server is about to be made anew, whose host is dead."""
    if given.get('evacuate'):
        _withhold(given, triggers.EVACUATE)


def _withhold(given: Mapping[str, Any], trigger: Trigger) -> None:
    cleaning.withhold(given['self'], given['context'].elevated(),
                      given['instance'], given['bdms'], trigger)


# Where the guest goes on


def _refuse_to_migrate(given: Mapping[str, Any]) -> None:
    """Refuse what would attach a disk that is not this server's.

    Nothing has happened yet.

    :raises MigrationPreCheckError: which a scheduler takes for an answer
    """
    context, instance = given['ctxt'], given['instance']
    obstacles = []
    with cleaning.harmless(triggers.LIVE_MIGRATION, instance):
        cleanup = Cleaning(given['self'], context.elevated(), instance,
                           triggers.LIVE_MIGRATION)
        bdms = cleaning.mappings(context, instance)
        if cleanup.observes:
            cleanup.run(bdms)
            return
        # Nova makes a new attachment for every volume.  An unused volume of
        # the same project does no harm, and must not keep a host from being
        # drained.
        found = cleanup.preview(bdms)
        dangling = [(finding, _whose(found, finding, instance))
                    for finding in found.plan.findings if _dangles(finding)]
        obstacles = [(finding, whose) for finding, whose in dangling if whose]
    if obstacles:
        raise exception.MigrationPreCheckError(reason=_told(
            cleanup, instance, obstacles))


def _whose(found: Assessment, finding: Finding, instance: Any) -> str:
    """That a disk is another project's, or not free; empty: it is neither."""
    volume = found.volumes.get(finding.volume_id or '')
    if volume is None:
        return ''
    if not spelling.is_same(volume.project or '', instance.project_id):
        return 'the volume is another project\'s'
    if volume.status != 'available':
        return 'the volume is %s' % volume.status
    return ''


# What is common


def _dangles(finding: Finding) -> bool:
    """Whether a mapping stands in the way, as far as the operator minds."""
    return finding.bdm is not None and (
        finding.reason in _DANGLES or not finding.decision.connect) and (
        finding.withheld not in _TOLERATED)


def _refusal(cleanup: Cleaning, instance: Any,
             obstacles: Sequence[tuple[Finding, str]]) -> Exception:
    error: Exception = exception.InstanceUnacceptable(
        instance_id=instance.uuid,
        reason=_told(cleanup, instance, obstacles))
    return error


def _told(cleanup: Cleaning, instance: Any,
          obstacles: Sequence[tuple[Finding, str]]) -> str:
    """Say in the log and in an event what is in the way, and in a text what
    to do.
    """
    reasons = []
    for finding, obstacle in obstacles:
        why = '; '.join(filter(None, (
            finding.explanation, finding.obstacle, obstacle)))
        cleanup.lines.refused(finding, why)
        reasons.append('volume %s is in the way (%s: %s)' % (
            finding.volume_id, finding.reason, why))
        try:
            cleanup.host.record_event('bdm_cleanup refused: volume %s (%s)' % (
                finding.volume_id, finding.reason))
        except Exception:
            LOG.debug('no instance action event', exc_info=True)
    return ('%s. Look at it with "openstack bdm show %s"; a hard reboot '
            'removes what may be removed' % (
                '; '.join(reasons), instance.uuid))
