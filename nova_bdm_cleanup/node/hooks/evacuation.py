# SPDX-License-Identifier: Apache-2.0
"""The hooks on evacuations: on the new host, and on the former one later.

A BDM that dangles is removed on the new host, where the disk was never
connected.  The former host still has it: when it comes back, it disconnects
the disk by the address in the deleted BDM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import contextlib
import datetime
import threading
from typing import Any, NamedTuple

from nova import exception, objects, utils
from nova.objects import fields

from nova_bdm_cleanup.node import instance_cleanup
from nova_bdm_cleanup.node.cleanup import actions, triggers
from nova_bdm_cleanup.node.hooks import arrival
from nova_bdm_cleanup.node.hooks.departure import Departure
from nova_bdm_cleanup.node.hooks.wrapping import Call
from nova_bdm_cleanup.node.instance_cleanup import InstanceCleanup
from nova_bdm_cleanup.rules.facts import Bdm, Finding
from nova_bdm_cleanup.rules.reasons import Reason

#: The states of the evacuations that their former host ends when it starts.
_DONE = 'done'
_OPEN_STATES = ('accepted', 'pre-migrating', _DONE)

#: An evacuation that failed may have written BDMs, too.
_STATES_OF_FAILURE = ('failed', 'error')

#: Whether this thread destroys the guests of evacuated instances.
_this_thread = threading.local()


def evacuate(call: Call) -> None:
    """Clean up before an instance is rebuilt whose host is down.

    :raises InstanceFaultRollback: when what dangles cannot be removed
    """
    if call.arguments.get('evacuate'):
        refusal = arrival.clean(call, triggers.EVACUATE)
        if refusal:
            raise exception.InstanceFaultRollback(
                exception.InstanceUnacceptable(
                    instance_id=call.instance.uuid, reason=refusal))


@contextlib.contextmanager
def destroy(call: Call) -> Iterator[None]:
    """Disconnect what was removed while this host was down.

    Nova then destroys the guests of the evacuated instances.  It reads only
    BDMs that still exist.  An evacuation that is under way may remove one
    before that; hence the second time.
    """
    manager, context = call.manager, call.context.elevated()
    evacuated: Mapping[str, _Evacuation] = {}
    done: set[str] = set()
    with instance_cleanup.log_failure(triggers.RETURN, None):
        evacuated = _evacuated(context, manager.host)
    _disconnect_all(manager, context, evacuated, done)
    _this_thread.destroys = True
    try:
        yield
    finally:
        _this_thread.destroys = False
    _disconnect_all(manager, context, evacuated, done)


def withhold(call: Call) -> None:
    """Keep the driver from disconnecting what another guest here has."""
    if call.bdms is None and getattr(_this_thread, 'destroys', False):
        with instance_cleanup.log_failure(triggers.RETURN, call.instance):
            call.arguments['bdms'] = Departure.of(
                call, triggers.RETURN, is_last=True).given(
                    instance_cleanup.read_bdms(call.context, call.instance))


class _Evacuation(NamedTuple):
    """The evacuations of an instance that this host has not ended yet."""

    #: When the first of them began.
    began: datetime.datetime
    #: The instance has left this host.
    is_done: bool


def _evacuated(context: Any, host: str) -> Mapping[str, _Evacuation]:
    """Return the evacuations from a host, by the uuid of the instance."""
    with utils.temporary_mutation(context, read_deleted='yes'):
        evacuations = objects.MigrationList.get_by_filters(context, {
            'source_compute': host,
            'migration_type': fields.MigrationType.EVACUATION,
            'status': [*_OPEN_STATES, *_STATES_OF_FAILURE]})
    states: dict[str, set[str]] = {}
    began: dict[str, datetime.datetime] = {}
    for each in evacuations:
        server = each.instance_uuid
        states.setdefault(server, set()).add(each.status)
        began[server] = min(each.created_at,
                            began.get(server, each.created_at))
    return {server: _Evacuation(began[server], _DONE in found)
            for server, found in sorted(states.items())
            if found.intersection(_OPEN_STATES)}


def _disconnect_all(manager: Any, context: Any,
                    evacuated: Mapping[str, _Evacuation],
                    done: set[str]) -> None:
    for server, evacuation in evacuated.items():
        with instance_cleanup.log_failure(triggers.RETURN, None):
            _disconnect_removed(manager, context, server, evacuation, done)


def _disconnect_removed(manager: Any, context: Any, server: str,
                        evacuation: _Evacuation, done: set[str]) -> None:
    """Disconnect the disks that only an evacuation has taken from a server.

    What its owner detached on the new host was written there, and has the
    address there.

    :param done: the BDMs that need nothing any more; more are added
    """
    with utils.temporary_mutation(context, read_deleted='only'):
        rows = objects.BlockDeviceMappingList.get_by_instance_uuid(
            context, server)
    removed = [row for row in rows if row.is_volume
               and row.uuid not in done and row.deleted_at
               # A database may keep whole seconds.
               and row.deleted_at >= evacuation.began
               > (row.updated_at or row.created_at)]
    if not removed:
        return
    done.update(row.uuid for row in removed)
    with utils.temporary_mutation(context, read_deleted='yes'):
        instance = objects.Instance.get_by_uuid(context, server)
    if evacuation.is_done and instance.host == manager.host:
        # It has come back to this host: its guest is not one of before.
        return
    cleanup = InstanceCleanup(manager, context, instance, triggers.RETURN)
    if cleanup.observes:
        return
    with cleanup.counted():
        disks = [bdm for bdm in cleanup.host.adopt(removed)
                 if bdm.has_connection_info]
        if not cleanup.host.is_off():
            # Nova destroys it next.
            cleanup.host.power_off()
        for bdm in disks:
            _disconnect(cleanup, bdm)


def _disconnect(cleanup: InstanceCleanup, bdm: Bdm) -> None:
    host, volume_id = cleanup.host, bdm.volume_id or ''
    finding = Finding(Reason.EVACUATED, 'its mapping was removed when the '
                      'server was evacuated from this host', bdm=bdm)
    try:
        with host.volume_lock(volume_id), host.guard(volume_id):
            obstacle = actions.obstacle_to_disconnect(
                host, cleanup.cinder, bdm)
            if obstacle:
                cleanup.lines.left(finding, obstacle)
            elif host.disconnect(bdm):
                cleanup.lines.disconnected(finding)
    except Exception as exc:
        cleanup.lines.failed(
            finding, actions.reason_of(exc, triggers.RETURN), 'disconnect',
            exc)
