# SPDX-License-Identifier: Apache-2.0
"""The hooks on resizes and cold migrations, and on their reverts.

The host that the instance leaves looks first, and removes what dangles when
the guest is off.  Once the instance is on its way, nothing is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import datetime
from typing import Any

from nova import exception, objects
from nova.compute import manager as nova_manager, task_states
from nova.virt import hardware

from nova_bdm_cleanup.node import instance_cleanup
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.hooks import disks
from nova_bdm_cleanup.node.hooks.departure import Departure
from nova_bdm_cleanup.node.hooks.wrapping import Call
from nova_bdm_cleanup.node.instance_cleanup import InstanceCleanup

# On the host that the instance leaves


@contextlib.contextmanager
def resize(call: Call) -> Iterator[None]:
    """Look before a resize or a cold migration begins on its source.

    :raises InstanceFaultRollback: when it must not begin
    """
    leaving = Departure.of(call, triggers.MOVE, is_copied=True)
    refusal = leaving.refusal()
    if refusal:
        instance = call.instance
        # As in the method itself: otherwise the migration stays open.
        with call.manager._error_out_instance_on_exception(
                call.context, instance,
                instance_state=instance.vm_state), \
             nova_manager.errors_out_migration_ctxt(
                 call.arguments['migration']):
            raise exception.InstanceFaultRollback(
                exception.InstanceUnacceptable(
                    instance_id=instance.uuid, reason=refusal))
    with leaving.begun():
        yield


def resize_across_cells(call: Call) -> None:
    """Refuse a move to another cell before the guest is off.

    The other cell has a copy of every BDM, and Cinder a second attachment of
    every volume: a removal here does not help.

    :raises InstanceUnacceptable: when a BDM dangles
    """
    context, instance = call.context.elevated(), call.instance
    obstacles = []
    with instance_cleanup.log_failure(triggers.MOVE, instance):
        cleanup = InstanceCleanup(call.manager, context, instance,
                                  triggers.MOVE)
        if cleanup.observes:
            return
        found = cleanup.preview(instance_cleanup.read_bdms(context, instance))
        obstacles = [(finding, '') for finding
                     in disks.dangling(found.plan.findings)]
    if obstacles:
        raise exception.InstanceUnacceptable(
            instance_id=instance.uuid,
            reason=disks.refusal(cleanup, instance, obstacles))


def revert(call: Call) -> Any:
    """Look before a revert begins on the host that the instance leaves.

    An exception would leave the instance neither here nor there.
    """
    leaving = Departure.of(call, triggers.MOVE)
    if leaving.refusal():
        for restore in (_restore_migration, _restore_request_spec,
                        _restore_task_state):
            with instance_cleanup.log_failure(triggers.MOVE, call.instance):
                restore(call)
        return None
    with leaving.begun():
        return call.carry_out()


# What nova-api has changed for a revert


def _restore_migration(call: Call) -> None:
    migration = call.arguments['migration']
    migration.status = 'finished'
    migration.save()


def _restore_request_spec(call: Call) -> None:
    """Restore the flavor that the scheduler goes by."""
    instance, request_spec = call.instance, call.arguments['request_spec']
    if (request_spec is not None
            and call.arguments['migration'].migration_type == 'resize'):
        request_spec.flavor = instance.flavor
        request_spec.numa_topology = hardware.numa_get_constraints(
            instance.flavor, instance.image_meta)
        request_spec.save()


def _restore_task_state(call: Call) -> None:
    call.instance.task_state = None
    # It may have been deleted meanwhile.
    with contextlib.suppress(exception.InstanceNotFound,
                             exception.UnexpectedTaskStateError):
        call.instance.save(
            expected_task_state=[task_states.RESIZE_REVERTING])


# On the host that the instance comes to


def finish(call: Call) -> None:
    """Take out of a list what the other host could not remove.

    Nova there has written every other BDM since the operation began, and
    Cinder is asked only about the rest.
    """
    instance, trigger = call.instance, triggers.FINISH
    context = call.context.elevated()
    if not call.bdms or instance.task_state not in trigger.states:
        return
    with instance_cleanup.log_failure(trigger, instance):
        began = _began(context, instance)
        unwritten = objects.BlockDeviceMappingList(objects=[
            bdm for bdm in call.bdms if bdm.is_volume and not (
                began is not None and (bdm.updated_at or began) > began)])
        uuids = {bdm.uuid for bdm in unwritten}
        if uuids:
            cleanup = InstanceCleanup(call.manager, context, instance, trigger)
            left = disks.remove(cleanup, unwritten)
            instance_cleanup.take_out(
                call.bdms, uuids - {bdm.uuid for bdm in unwritten})
            cleanup.cleaner.report_not_connected(left)


def _began(context: Any, instance: Any) -> datetime.datetime | None:
    """Return when the operation of this request began."""
    action = objects.InstanceAction.get_by_request_id(
        context, instance.uuid, context.request_id)
    began: datetime.datetime | None = action.start_time if action else None
    return began
