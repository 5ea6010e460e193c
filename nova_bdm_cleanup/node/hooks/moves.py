# SPDX-License-Identifier: Apache-2.0
"""The hooks on operations that take an instance from or to a host.

In all of them Nova makes a new attachment for every volume.  If a BDM dangles,
that fails half way and leaves the other volumes of the instance only reserved;
or it succeeds, and the instance gets a volume that is no longer its own.

Dangling BDMs are removed while the guest is provably off and before Nova asks
Cinder for anything.  If one must not be removed, the operation is refused: the
other volumes stay attached.
"""

from __future__ import annotations

from collections.abc import Sequence
import threading
from typing import Any

from nova import exception, objects
from nova.compute import task_states, vm_states
from oslo_log import log as logging

from nova_bdm_cleanup.node import boot, instance_cleanup
from nova_bdm_cleanup.node.cleanup import actions, log_lines, triggers
from nova_bdm_cleanup.node.cleanup.cleaner import Assessment
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.hooks.wrapping import Call
from nova_bdm_cleanup.node.instance_cleanup import InstanceCleanup
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Finding
from nova_bdm_cleanup.rules.reasons import NOT_REATTACHED, Reason

LOG = logging.getLogger(__name__)

#: The triggers in which the driver disconnects all volumes.
_DISCONNECTING = (triggers.MOVE, triggers.SHELVE, triggers.DELETE)

#: What this thread has seen of an instance before its volumes were
#: disconnected: its uuid, the cleanup and the findings.
_seen_before = threading.local()


# On the host that the instance leaves


def before_disconnect(call: Call) -> None:
    """Keep the driver from disconnecting a neighbour's volume.

    The driver disconnects by address, and another guest of this host may have
    got the volume or its address.

    :raises InstanceFaultRollback: when the operation must not begin
    """
    instance, context = call.instance, call.arguments['context']
    if call.arguments.get('refresh_conn_info'):
        return
    trigger = call.trigger_of(instance.task_state)
    if trigger not in _DISCONNECTING:
        trigger = None
    bdms = call.bdms
    if (bdms is None and triggers.RETURN in call.triggers
            and instance.host != call.manager.host
            and instance.task_state != task_states.MIGRATING):
        # It was evacuated, and this host is back.
        trigger = triggers.RETURN
        bdms = instance_cleanup.read_bdms(context, instance)
    if trigger is None:
        return
    if bdms is not None:
        call.arguments['bdms'] = _without_neighbours_volumes(
            call, bdms, trigger)
    elif _is_still_on(instance):
        # nova-compute died in a move and reverts it at its start: it starts
        # the guest with the stored addresses.
        bdms = instance_cleanup.read_bdms(context, instance)
        instance_cleanup.clean_list(
            call.manager, context.elevated(), instance, bdms, trigger)
        call.arguments['bdms'] = bdms


def _is_still_on(instance: Any) -> bool:
    """Return whether the source's part of a move has just begun, or was
    interrupted.
    """
    return bool(instance.task_state == task_states.RESIZE_MIGRATING)


def _without_neighbours_volumes(call: Call, bdms: Any,
                                trigger: Trigger) -> Any:
    kept = _volumes_to_keep(
        call.manager, call.arguments['context'], call.instance, bdms, trigger)
    # Nova goes on with its own list.
    return objects.BlockDeviceMappingList(objects=[
        bdm for bdm in bdms if bdm.uuid not in kept]) if kept else bdms


def _volumes_to_keep(manager: Any, context: Any, instance: Any, bdms: Any,
                     trigger: Trigger) -> frozenset[str]:
    """Return the BDMs whose volumes the driver must not disconnect.

    :raises InstanceFaultRollback: when the operation must not begin
    """
    kept: set[str] = set()
    obstacles = []
    _seen_before.last = None
    # All instances of a host that is back share the time of its start.
    booting = boot.current()
    with instance_cleanup.log_failure(trigger, instance):
        cleanup = InstanceCleanup(
            manager, context.elevated(), instance, trigger)
        if cleanup.observes:
            return frozenset()
        found = (Assessment(
                     left_out=cleanup.rows_alone(bdms, Reason.TIMED_OUT))
                 if booting is not None and not booting.allows()
                 else cleanup.preview(bdms))
        for uuid, finding in found.left_out.items():
            cleanup.lines.left(finding, finding.address)
            kept.add(uuid)
        dangling = list(filter(_dangles, found.plan.findings))
        _seen_before.last = instance.uuid, cleanup, dangling
        # Nothing may be raised while a former host starts.
        is_on = trigger is triggers.MOVE and _is_still_on(instance)
        for finding in dangling:
            obstacle = _obstacle_to_disconnect(cleanup, finding)
            if is_on and (obstacle or not finding.is_due):
                obstacles.append((finding, obstacle))
            elif obstacle and finding.bdm and finding.bdm.uuid not in kept:
                cleanup.lines.left(finding, obstacle)
                kept.add(finding.bdm.uuid)
    if obstacles:
        # The guest still runs, and nothing has been changed.
        raise exception.InstanceFaultRollback(
            _refusal(cleanup, instance, obstacles))
    return frozenset(kept)


def _obstacle_to_disconnect(cleanup: InstanceCleanup,
                            finding: Finding) -> str:
    """Return why a volume must not be disconnected; empty: it may be."""
    bdm = finding.bdm
    if bdm is None or not bdm.has_connection_info:
        return ''
    try:
        return actions.obstacle_to_disconnect(
            cleanup.host, cleanup.cinder, bdm)
    except Exception as exc:
        # Undecided.  A device too many on a host does less harm than one too
        # few.
        return log_lines.masked(exc)


def after_disconnect(call: Call) -> None:
    """Remove dangling BDMs before Nova asks Cinder for new attachments.

    The guest is off, and its volumes are disconnected.

    :raises InstanceUnacceptable: when one of them is still there
    """
    trigger = call.trigger_of(call.instance.task_state)
    if trigger is not None:
        _remove(call, trigger)


def _remove(call: Call, trigger: Trigger) -> None:
    instance, bdms = call.instance, call.bdms
    before: tuple[Any, Any, Sequence[Finding]] = getattr(
        _seen_before, 'last', None) or (None, None, ())
    server, cleanup, seen_before = before
    _seen_before.last = None
    seen: set[str] = set()
    left = []
    with instance_cleanup.log_failure(trigger, instance):
        cleanup = InstanceCleanup(
            call.manager, call.arguments['context'].elevated(), instance,
            trigger)
        if server == instance.uuid:
            cleanup.cleaner.settled = frozenset(
                finding.volume_id for finding in seen_before
                if finding.is_due)
        cleanup.run(bdms)
        removed = cleanup.cleaner.removed
        # Nova reads the rows again for its next step.
        instance_cleanup.take_out(bdms, removed)
        for finding in cleanup.cleaner.plan.findings:
            if finding.bdm:
                seen.add(finding.bdm.uuid)
                if (_dangles(finding) and not cleanup.observes
                        and finding.bdm.uuid not in removed):
                    left.append((finding, ''))
    if server == instance.uuid:
        # A missing answer does not revoke the findings of the first look.
        left += [(finding, 'the second look failed')
                 for finding in seen_before
                 if finding.bdm and finding.bdm.uuid not in seen]
    if left:
        raise _refusal(cleanup, instance, left)


# On the host that the instance comes to


def before_unshelve(call: Call) -> None:
    """Clean up before Nova connects the volumes of an offloaded instance."""
    # Builds and rebuilds come here, too.
    if call.instance.vm_state == vm_states.SHELVED_OFFLOADED:
        _clean_list(call, triggers.UNSHELVE)


def before_evacuation(call: Call) -> None:
    """Clean up before Nova rebuilds an instance whose host is down."""
    if call.arguments.get('evacuate'):
        _clean_list(call, triggers.EVACUATE)


def _clean_list(call: Call, trigger: Trigger) -> None:
    instance_cleanup.clean_list(
        call.manager, call.arguments['context'].elevated(), call.instance,
        call.bdms, trigger)


# Where the guest goes on


def refuse_live_migration(call: Call) -> None:
    """Refuse to attach a volume of another project, or one not available.

    Nothing has been changed yet.

    :raises MigrationPreCheckError: so that the scheduler tries another host
    """
    context, instance = call.arguments['ctxt'], call.instance
    obstacles = []
    with instance_cleanup.log_failure(triggers.LIVE_MIGRATION, instance):
        cleanup = InstanceCleanup(call.manager, context.elevated(), instance,
                                  triggers.LIVE_MIGRATION)
        bdms = instance_cleanup.read_bdms(context, instance)
        if cleanup.observes:
            cleanup.run(bdms)
            return
        # Nova makes a new attachment for every volume.  An unused volume of
        # the same project does no harm, and must not keep a host from being
        # drained.
        found = cleanup.preview(bdms)
        dangling = [(finding, _obstacle_to_attach(found, finding, instance))
                    for finding in found.plan.findings if _dangles(finding)]
        obstacles = [(finding, why) for finding, why in dangling if why]
    if obstacles:
        raise exception.MigrationPreCheckError(reason=_report(
            cleanup, instance, obstacles))


def _obstacle_to_attach(found: Assessment, finding: Finding,
                        instance: Any) -> str:
    """Return why Nova must not attach a volume; empty: it may."""
    volume = found.volumes.get(finding.volume_id or '')
    if volume is None:
        return ''
    if not spelling.is_same(volume.project or '', instance.project_id):
        return 'the volume belongs to another project'
    if volume.status != 'available':
        return 'the volume is %s' % volume.status
    return ''


# What all of them use


def _dangles(finding: Finding) -> bool:
    """Return whether a BDM is in the way of a new attachment."""
    return finding.bdm is not None and (
        finding.reason in NOT_REATTACHED
        or not finding.decision.connect)


def _refusal(cleanup: InstanceCleanup, instance: Any,
             obstacles: Sequence[tuple[Finding, str]]) -> Exception:
    error: Exception = exception.InstanceUnacceptable(
        instance_id=instance.uuid,
        reason=_report(cleanup, instance, obstacles))
    return error


def _report(cleanup: InstanceCleanup, instance: Any,
            obstacles: Sequence[tuple[Finding, str]]) -> str:
    """Log what is in the way, and record an event for each obstacle.

    :returns: a text with the obstacles and the remedy
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
