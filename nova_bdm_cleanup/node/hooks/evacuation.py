# SPDX-License-Identifier: Apache-2.0
"""The hooks on evacuations: on the new host, and on the former one later.

A BDM that dangles is removed on the new host, where the disk was never
connected.  The former host still has it: when it comes back, it disconnects
the disk by the address in the deleted BDM.  After an evacuation that failed
the guest may still run on the former host; then this waits until the guest is
powered off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import datetime
import functools
from typing import Any, Callable, NamedTuple

from nova import objects, utils
from nova.objects import fields

from nova_bdm_cleanup.node.cleanup import actions, triggers
from nova_bdm_cleanup.node.hooks import operation
from nova_bdm_cleanup.node.hooks.operation import Operation
from nova_bdm_cleanup.node.hooks.wrapping import log_failure, NovaCall
from nova_bdm_cleanup.node.instance_cleanup import InstanceCleanup
from nova_bdm_cleanup.rules.facts import Bdm, Finding
from nova_bdm_cleanup.rules.reasons import Reason

#: The states of the evacuations that their former host ends when it starts.
_DONE = 'done'
_OPEN_STATES = ('accepted', 'pre-migrating', _DONE)

#: An evacuation that failed may have written and removed BDMs, too.
_STATES_OF_FAILURE = ('failed', 'error')

#: What is to be disconnected once the guest of a server is off, by server.
#: The next start of nova-compute finds it again.
_at_power_off: dict[str, Callable[[], None]] = {}


def evacuate(call: NovaCall) -> None:
    """Remove what dangles before Nova makes new attachments.

    All checks of Nova are behind it, on a host that the server comes to.
    """
    if call.arguments.get('evacuate'):
        operation.arrive(call)


@contextlib.contextmanager
def destroy(call: NovaCall) -> Iterator[None]:
    """Disconnect what was removed while this host was down.

    Nova then destroys the guests of the evacuated instances.  It reads only
    BDMs that still exist.  An evacuation that is under way may remove one
    before that; hence the second time.
    """
    context = call.context.elevated()
    returning = Operation(call, triggers.RETURN)
    evacuated: Mapping[str, Sequence[_Evacuation]] = {}
    done: set[str] = set()
    with log_failure(None):
        evacuated = _evacuated(context, call.manager.host)
    _disconnect_all(returning, context, evacuated, done)
    with returning.begun():
        yield
    _disconnect_all(returning, context, evacuated, done)


@contextlib.contextmanager
def power_off(call: NovaCall) -> Iterator[None]:
    """Disconnect what an evacuation removed, once the guest is off."""
    yield
    disconnect = _at_power_off.pop(call.instance.uuid, None)
    if disconnect is not None:
        with log_failure(call.instance):
            disconnect()


class _Evacuation(NamedTuple):
    """An evacuation of an instance from this host."""

    began: datetime.datetime
    #: When it failed; None: it has not.
    failed: datetime.datetime | None
    #: The instance has left this host.
    is_done: bool

    def covers(self, time: datetime.datetime | None) -> bool:
        """Return whether the new host may have changed a row at a time."""
        return time is not None and self.began <= time and (
            self.failed is None or time <= self.failed)


def _evacuated(context: Any, host: str
               ) -> Mapping[str, Sequence[_Evacuation]]:
    """Return the evacuations from a host, by the uuid of the instance.

    Those that the host has ended at an earlier start are not among them.
    """
    with utils.temporary_mutation(context, read_deleted='yes'):
        evacuations = objects.MigrationList.get_by_filters(context, {
            'source_compute': host,
            'migration_type': fields.MigrationType.EVACUATION,
            'status': [*_OPEN_STATES, *_STATES_OF_FAILURE]})
    found: dict[str, list[_Evacuation]] = {}
    for each in evacuations:
        found.setdefault(each.instance_uuid, []).append(_Evacuation(
            each.created_at,
            (each.updated_at or each.created_at
             if each.status in _STATES_OF_FAILURE else None),
            each.status == _DONE))
    return dict(sorted(found.items()))


def _disconnect_all(returning: Operation, context: Any,
                    evacuated: Mapping[str, Sequence[_Evacuation]],
                    done: set[str]) -> None:
    for server, evacuations in evacuated.items():
        with log_failure(None):
            _disconnect_removed(returning, context, server, evacuations, done)


def _disconnect_removed(returning: Operation, context: Any, server: str,
                        evacuations: Sequence[_Evacuation],
                        done: set[str]) -> None:
    """Disconnect the disks that only an evacuation has taken from a server.

    What was written in one has an address of the new host: what its owner
    detached there, and what a failed evacuation attached.

    :param done: the BDMs that need nothing any more; more are added
    """
    with utils.temporary_mutation(context, read_deleted='only'):
        rows = objects.BlockDeviceMappingList.get_by_instance_uuid(
            context, server)
    # A database may keep whole seconds.
    removed = [row for row in rows if row.is_volume and row.uuid not in done
               and any(each.covers(row.deleted_at) for each in evacuations)
               and not any(each.covers(row.updated_at or row.created_at)
                           for each in evacuations)]
    if not removed:
        return
    done.update(row.uuid for row in removed)
    instance = _instance(context, server)
    if (instance.host == returning.host
            and any(each.is_done for each in evacuations)):
        # It has come back to this host: its guest is not one of before.
        return
    cleanup = returning.cleanup(instance)
    if cleanup.observes:
        return
    with cleanup.counted():
        is_off = cleanup.host.is_off()
    disconnect = functools.partial(
        _disconnect_rows, returning, context, server, removed)
    if is_off:
        disconnect()
    else:
        # Nova destroys the guest next, unless the evacuation has failed.
        _at_power_off[server] = disconnect


def _instance(context: Any, server: str) -> Any:
    with utils.temporary_mutation(context, read_deleted='yes'):
        return objects.Instance.get_by_uuid(context, server)


def _disconnect_rows(returning: Operation, context: Any, server: str,
                     removed: Sequence[Any]) -> None:
    """Disconnect the disks of some deleted rows; the guest is off."""
    instance = _instance(context, server)
    cleanup = returning.cleanup(instance)
    with cleanup.counted():
        # A volume may have been attached again since.
        attached = {bdm.volume_id for bdm in cleanup.host.register(
            returning.read_bdms(instance))}
        for bdm in cleanup.host.register(removed):
            if bdm.has_connection_info and bdm.volume_id not in attached:
                _disconnect(cleanup, bdm)


def _disconnect(cleanup: InstanceCleanup, bdm: Bdm) -> None:
    host, volume_id = cleanup.host, bdm.volume_id or ''
    finding = Finding(Reason.EVACUATED, 'its mapping was removed when the '
                      'server was evacuated from this host', bdm=bdm)
    try:
        with contextlib.ExitStack() as guards:
            guards.enter_context(host.volume_lock(volume_id))
            # Where Cinder does not answer, nothing is connected meanwhile.
            with contextlib.suppress(Exception):
                guards.enter_context(host.guard(volume_id))
            guards.enter_context(host.disconnecting(bdm))
            claim = actions.claim_on(host, cleanup.cinder, host.name, bdm)
            if claim is not None:
                cleanup.lines.still_connected(finding, str(claim))
                host.note(bdm)
            elif host.disconnect(bdm):
                cleanup.lines.disconnected(finding)
        return
    except Exception as exc:
        failure = exc
    cleanup.lines.failed(
        finding, actions.reason_of(failure, triggers.RETURN), 'disconnect',
        failure)
