# SPDX-License-Identifier: Apache-2.0
"""Model of Nova's database, Placement, the hosts and the journal."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import datetime
import functools
import json
from typing import Any, TypeVar

from nova.compute import power_state, vm_states

from nova_bdm_cleanup.openstack.deadline import TimedOut
from nova_bdm_cleanup.rules.facts import Policy
from nova_bdm_cleanup.tests.simulation import cinder as model
from nova_bdm_cleanup.tests.simulation.scheduler import Scheduler, Violation

T = TypeVar('T')

#: The compute host of the scenario, and another one.
HERE, THERE = 'here', 'there'

#: Their nova-compute processes, which can be killed.
COMPUTE, OTHER_COMPUTE = 'nova-compute', 'other nova-compute'
COMPUTES = {HERE: COMPUTE, THERE: OTHER_COMPUTE}

#: The project of the servers.
OWN_PROJECT = 'project'


#: Suffix of the other host's locks.
_OTHER_HOST_SUFFIX = ' elsewhere'

#: A call fails before or after it has taken effect.
BEFORE, AFTER = 'fails', 'fails, although it took effect'

#: Failures of a request: Cinder refuses it; Cinder carries it out and the
#: answer is lost; Cinder carries it out after the plugin's timeout.
REFUSED, LOST, LATE = 'is refused', 'loses its answer', 'is answered too late'

#: All reads of Cinder lag, not only those of one kind.
ALL = 'all'

#: A read of Cinder lags, and so do those after it.
_MISSES = 'does not see the last %d writes'

#: The longest time that reads of Cinder lag behind its writes.
MAX_LAG = datetime.timedelta(seconds=10)

#: The plugin and the properties distinguish these ages.
_AGES = (MAX_LAG, datetime.timedelta(minutes=5), datetime.timedelta(hours=1))

#: Attributes that two worlds of a scenario share, and those that
#: ``fingerprint`` compares in another form.
_NOT_IN_FINGERPRINT = (
    'scheduler', 'reads', 'changes', 'cinder', 'rows', 'actions', 'entries',
    'locks', 'now', 'migration_records', 'at_power_off', 'answers',
    'disconnects', 'requests', 'starts')


class Silence(Exception):
    """Cinder does not answer."""


@dataclasses.dataclass
class Server:
    """A row of Nova's instances.  A shelved one has no host."""

    uuid: str
    host: str = HERE
    project_id: str = OWN_PROJECT
    vm_state: str = vm_states.ACTIVE
    task_state: str | None = None
    power_state: int = power_state.RUNNING
    locked_by: str | None = None


@dataclasses.dataclass
class Row:
    """A row of Nova's block device mappings."""

    uuid: str
    instance_uuid: str
    volume_id: str | None
    attachment_id: str | None = None
    connection_info: str | None = None
    device_name: str = '/dev/vdb'
    boot_index: int | None = None
    source_type: str = 'volume'
    destination_type: str = 'volume'
    tag: str | None = None
    deleted: bool = False
    created_at: datetime.datetime = model.START
    updated_at: datetime.datetime | None = None
    deleted_at: datetime.datetime | None = None

    @property
    def is_connected(self) -> bool:
        return self.connection_info is not None

    @property
    def number(self) -> int | None:
        if self.connection_info is None:
            return None
        return _address_in(self.connection_info)[1]

    @property
    def host_of_address(self) -> str | None:
        """Return the host on which its number is that of its volume."""
        if self.connection_info is None:
            return None
        return _address_in(self.connection_info)[0]


def number_of(connection_info: Mapping[str, Any]) -> int:
    return int(connection_info['data']['target_lun'])


@functools.lru_cache(maxsize=None)
def _address_in(connection_info: str) -> tuple[str, int]:
    """Return the host and the number in a row's connection info."""
    found = json.loads(connection_info)
    return found['host'], number_of(found)


@functools.lru_cache(maxsize=None)
def connection(volume: str, number: int, host: str) -> str:
    """Return the connection info that Nova keeps for a volume.

    :param host: the host that the volume is exported to; only the properties
        ask for it
    """
    return json.dumps({
        'driver_volume_type': 'iscsi', 'serial': volume, 'host': host,
        'data': {'target_iqn': model.TARGET, 'target_lun': number,
                 'target_portal': '192.0.2.1:3260', 'volume_id': volume}})


@dataclasses.dataclass
class Disk:
    """A disk in the definition of a guest."""

    serial: str
    number: int


@dataclasses.dataclass
class Guest:
    """The guest of a server in libvirt.  A running one has all disks open."""

    is_running: bool = False
    #: libvirt knows it.
    is_defined: bool = True
    #: It is being migrated to another host, or was.
    is_leaving: bool = False
    has_left: bool = False
    #: Disks by the name of the device in the guest.
    disks: dict[str, Disk] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Host:
    """The kernel and libvirt of a host."""

    #: The servers that a device was connected for, by its LUN.
    devices: dict[int, set[str]] = dataclasses.field(default_factory=dict)
    guests: dict[str, Guest] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class ServerAction:
    """The instance action of a volume attach or volume swap."""

    id: int
    instance_uuid: str
    action: str
    start_time: datetime.datetime
    #: Result and end of its event, once it has ended.
    result: str | None = None
    finish_time: datetime.datetime | None = None
    #: Where it runs, if that is told.
    host: str | None = None
    #: nova-compute has begun it.
    has_begun: bool = False


@dataclasses.dataclass
class Migration:
    """Nova's record of a move, a live migration or an evacuation."""

    id: int
    instance_uuid: str
    source_compute: str
    dest_compute: str
    migration_type: str
    status: str
    created_at: datetime.datetime
    updated_at: datetime.datetime | None = None

    @property
    def uuid(self) -> str:
        return str(self.id)


@dataclasses.dataclass
class Entry:
    """An entry of the plugin's journal."""

    record: Mapping[str, Any]
    began: datetime.datetime
    #: Name, outcome and subject of each step.
    steps: list[tuple[str, str, Mapping[str, Any]]] = dataclasses.field(
        default_factory=list)
    id = 'entry'

    @property
    def time(self) -> float:
        return self.began.timestamp()

    def step(self, name: str, outcome: str, **subject: Any) -> None:
        self.steps.append((name, outcome, subject))

    def finish(self, outcome: str, spent: Mapping[str, int]) -> None:
        pass


class World:
    """The whole state of the model.

    :param scheduler: interleaves the actors
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        scheduler.fingerprint = self.fingerprint
        self.reads, self.changes = scheduler.reads, scheduler.changes
        #: The true time.
        self.now = model.START
        #: By how much the clock of a host is wrong.
        self.clock_errors: dict[str, datetime.timedelta] = {}
        self.cinder = model.Cinder(self.reads, self.changes, self.true_time)
        self.hosts = {name: Host() for name in (HERE, THERE)}
        self.servers: dict[str, Server] = {}
        self.rows: dict[str, Row] = {}
        self.actions: list[ServerAction] = []
        #: Source and target of each server that moves.
        self.migrations: dict[str, tuple[str, str]] = {}
        #: Nova's records of all moves; the last ones come last.
        self.migration_records: list[Migration] = []
        #: Hosts with allocations, by server or migration.
        self.allocations: dict[str, frozenset[str]] = {}
        #: The dead host of each evacuated server.
        self.evacuated: dict[str, str] = {}
        #: Locks in the memory of the nova-computes.
        self.locks: dict[str, object] = {}
        #: Whether nova-compute runs on this host.
        self.is_up = True
        #: nova-compute was killed in Nova's own part of an operation.
        self.killed_in_nova = False
        #: It was killed while a server moved; Nova resumes few moves.
        self.killed_in_move = False
        #: Servers are resumed in the other order, by their uuid.
        self.boots_in_reverse = False
        #: ``resume_guests_state_on_host_boot``.
        self.resumes_guests = False
        #: The plugin's first reads were not answered.  Then only claims on
        #: addresses decide.
        self.first_look_failed = False
        #: Cinder answers no request of the plugin, or none from some on.
        self.is_silent = False
        self.may_fall_silent = False
        #: The end of the operation is compared with that without the plugin.
        self.is_compared = False
        #: A limit or a lock withholds every removal.
        self.withholds = False
        #: The choices of the initial state.
        self.initial_choices: tuple[int, ...] = ()
        #: The limits of an hour are used up.
        self.hour_is_used_up = False
        #: An administrator asks for the operations, in spite of a lock.
        self.asked_by_admin = False
        #: The reads of Cinder that lag: ``volume``, ``attachment``, ``list``
        #: or all.
        self.lagging = ''
        #: The number of writes that they have seen; None: all.
        self.seen_until: int | None = None
        #: A disk cannot be removed, a call failed, or another operation is in
        #: progress: the plugin may keep a dangling mapping.
        self.may_keep = False
        #: What Cinder gave each host in operations, the disconnects that are
        #: announced, and who asks for a connection or holds that up: the
        #: memory of ``node.connections``.
        self.answers: dict[str, dict[str, Any]] = {HERE: {}, THERE: {}}
        self.disconnects: dict[str, list[Any]] = {HERE: [], THERE: []}
        self.requests: dict[str, list[Any]] = {HERE: [], THERE: []}
        self.starts: dict[str, list[Any]] = {HERE: [], THERE: []}
        #: What the nova-computes disconnect once a guest is off, by host.
        self.at_power_off: dict[str, dict[str, Callable[[], None]]] = {
            HERE: {}, THERE: {}}
        #: Devices whose addresses Nova has forgotten: of a host that was
        #: evacuated, and of a swap that failed.
        self.forgotten_devices: set[int] = set()
        #: Devices that the plugin has left and logged, by host, server and
        #: number.
        self.devices_left: set[tuple[str, str, int]] = set()
        #: The disconnects that each host has noted, to be done later.
        self.notes: dict[str, list[Any]] = {HERE: [], THERE: []}
        #: Answers of Cinder that a killed nova-compute has forgotten, by
        #: server and number.
        self.forgotten_answers: set[tuple[str, int]] = set()
        #: Volumes that were being attached or detached when a move began.
        self.in_operation_at_move: set[str | None] = set()
        #: Volumes that were healthy when a move began.
        self.healthy_at_move: set[str | None] = set()
        #: Dangling mappings that the plugin has kept in the last operation,
        #: and all that it has removed.
        self.kept: set[str] = set()
        self.removed: set[str] = set()
        #: The volume at which Nova's part of an operation has failed.
        self.failed_at = ''
        #: How often the owner reboots the server at the end.
        self.reboots_at_end = 2
        #: An administrator has its disks adopted before that.
        self.is_repaired_at_end = False
        #: What a guest has had since it was swapped, by server and device.
        self.swapped: dict[tuple[str, str], str | None] = {}
        #: It was not read or not written which disks a guest had.
        self.proof_is_lost = False
        #: The server was deleted during another operation.
        self.deleted_meanwhile = False
        self.policy = Policy()
        #: Entries of the plugin's journal.
        self.entries: list[Entry] = []
        #: Guests that do not react to a soft reboot.
        self.hanging: set[str] = set()
        #: Volumes of operations in progress.
        self.in_operation: set[str] = set()
        #: Properties that the scenario is not about.
        self.unchecked_properties: frozenset[str] = frozenset()
        #: Volumes that are not checked at the end, because an operation on
        #: them was interrupted.
        self.unchecked_volumes: set[str] = set()
        #: Whether a volume that the scenario attached is still attached, by
        #: server and volume.
        self.attached: dict[tuple[str, str], bool] = {}
        self._serial = 0

    @property
    def reads_may_lag(self) -> bool:
        """Tell whether the scenario is about reads that lag.

        Then nothing else fails.
        """
        return bool(self.lagging)

    def serial(self) -> int:
        self._serial += 1
        return self._serial

    @property
    def this_host(self) -> str:
        """Return the host of the current actor."""
        actor = self.scheduler.current
        if actor is None:
            return HERE
        found: str = actor.local.get('host') or (
            THERE if actor.process == OTHER_COMPUTE else HERE)
        return found

    @contextlib.contextmanager
    def acting_on(self, host: str) -> Iterator[None]:
        """Have the current actor act as the nova-compute of a host."""
        local = {} if self.scheduler.current is None else (
            self.scheduler.current.local)
        former, local['host'] = local.get('host'), host
        try:
            yield
        finally:
            local['host'] = former

    def step(self, description: str, *failures: str,
             question: str = '') -> str | None:
        """Let other actors continue before something happens."""
        actor = self.scheduler.current
        possible: Sequence[str] = failures
        if self.reads_may_lag:
            possible = self._possible_lags() if question == 'Cinder' else ()
        failure = self.scheduler.step(
            description, possible
            if actor is not None and actor.is_cleaning else (), question)
        if failure and self.reads_may_lag:
            self._begin_lag(failure)
            return None
        if failure and question:
            self.miss_answer()
        elif failure:
            self.may_keep = True
        return failure

    def hears_cinder(self) -> bool:
        """Return whether Cinder answers the plugin; it may fall silent."""
        if self.may_fall_silent and not self.is_silent:
            self.is_silent = self.scheduler.choose(
                ('', 'Cinder falls silent')) != ''
        if self.is_silent:
            self.miss_answer()
        return not self.is_silent

    def change_cinder(self, description: str, change: Callable[[], T]) -> T:
        """Let other actors continue before the plugin has Cinder do something.

        :raises CinderError: when it refuses
        :raises Silence: when there is no answer
        :raises TimedOut: when it does it later
        """
        failure = self.step(description, REFUSED, LOST, LATE)
        if failure == REFUSED:
            raise model.Refused(description)
        if not self.hears_cinder():
            raise Silence('Cinder does not answer')
        if failure == LATE:
            self.scheduler.spawn('Cinder, late', 'cinder', lambda:
                                 self._do_late(description, change))
            raise TimedOut(description)
        result = change()
        if failure:
            raise Silence('the answer was lost')
        return result

    def _do_late(self, description: str, change: Callable[[], object]) -> None:
        self.step(description)
        with contextlib.suppress(model.CinderError):
            change()

    @property
    def is_cleaning(self) -> bool:
        """Tell whether the current actor is inside the plugin."""
        actor = self.scheduler.current
        return actor is not None and actor.is_cleaning

    def miss_answer(self) -> None:
        """Note that a question of the plugin is not answered."""
        self.may_keep = True
        if not self.entries:
            self.first_look_failed = True

    # Reads of Cinder that lag

    def _possible_lags(self) -> Sequence[str]:
        """Return how many writes a read of Cinder may miss from now on."""
        past = self.cinder.past or ()
        if self.seen_until is not None:
            return ()
        self.reads('past of Cinder')
        young = sum(p.time > self.now - MAX_LAG for p in past)
        return [_MISSES % number for number in range(1, young + 1)]

    def _begin_lag(self, chosen: str) -> None:
        self.may_keep = True
        self.seen_until = len(self.cinder.past or ()) - next(
            n for n in range(1, 99) if chosen == _MISSES % n)

    def cinder_for(self, kind: str) -> model.Cinder:
        """Return Cinder's records as the plugin reads them.

        :param kind: what is read: ``volume``, ``attachment`` or ``list``
        """
        past = self.cinder.past
        if (past is None or self.seen_until is None
                or self.lagging not in (kind, ALL)):
            return self.cinder
        self.reads('past of Cinder')
        seen = max(self.seen_until, sum(
            p.time <= self.now - MAX_LAG for p in past))
        return self.cinder.before(past[seen]) if seen < len(past) else (
            self.cinder)

    def wait(self, seconds: float) -> None:
        """Wait as the cleaner does; then older writes are seen."""
        self.step(f'waits {seconds:g} s')
        self.changes('time')
        self.now += datetime.timedelta(seconds=seconds)

    def true_time(self) -> datetime.datetime:
        """Return the time, which each wait changes."""
        self.reads('time')
        return self.now

    def ask(self, description: str, error_type: type[Exception],
            question: str = '') -> None:
        """Let other actors continue before a read.

        :raises error_type: when there is no answer
        """
        if self.step(description, BEFORE, question=question or description):
            raise error_type(description)

    @contextlib.contextmanager
    def attempt(self, description: str, error_type: type[Exception]
                ) -> Iterator[None]:
        """Let other actors continue before a call that can fail.

        :raises error_type: before or after it has taken effect
        """
        failure = self.step(description, BEFORE, AFTER)
        if failure == BEFORE:
            raise error_type(failure)
        yield
        if failure:
            raise error_type(failure)

    def fingerprint(self) -> object:
        """Return the state, without the memory of processes."""
        cinder = self.cinder
        return repr((
            self._fingerprint_of(cinder.volumes, cinder.attachments),
            [(self._age_of(p.time),
              self._fingerprint_of(p.volumes, p.attachments))
             for p in cinder.past or ()],
            cinder.back_end.exports,
            [(r.uuid, r.volume_id, r.attachment_id, r.connection_info,
              r.device_name, r.boot_index, r.deleted,
              self._age_of(r.created_at), self._age_of(r.updated_at))
             for r in self.rows.values()],
            [(m.instance_uuid, m.source_compute, m.dest_compute, m.status,
              # The order of their times makes a difference, too.
              [((r.updated_at or r.created_at) < m.created_at,
                m.updated_at and (r.updated_at or r.created_at) <= m.updated_at
                ) for r in self.rows.values()
               if r.instance_uuid == m.instance_uuid])
             for m in self.migration_records],
            [(s.instance_uuid, s.result, self._age_of(s.start_time))
             for s in self.actions],
            # Leave out the creation times of mappings in plans.
            [(e.steps, [{**a, 'bdm': a.get('bdm', {}).get('uuid')}
                        for a in e.record['actions']])
             for e in self.entries],
            sorted(self.locks), list(map(sorted, self.at_power_off.values())),
            [[(a.given, a.operation() is None) for a in answers.values()]
             for answers in self.answers.values()],
            [len(found) for announced in (
                self.disconnects, self.requests, self.starts)
             for found in announced.values()],
            [sorted(map(str, value)) if isinstance(value, set) else value
             for name, value in vars(self).items()
             if name not in _NOT_IN_FINGERPRINT]))

    def _fingerprint_of(self, volumes: Mapping[str, model.Volume],
                        attachments: Mapping[str, model.Attachment]
                        ) -> object:
        return (
            [(v.id, v.project, v.status, v.is_attached, v.migration_status,
              self._age_of(v.updated_at)) for v in volumes.values()],
            [(a.id, a.volume, a.server, a.status, a.host, a.number,
              self._age_of(a.attached_at)) for a in attachments.values()])

    def _age_of(self, time: datetime.datetime | None) -> int | None:
        """Return which of the ages that make a difference a time has."""
        return None if time is None else bisect.bisect(_AGES, self.now - time)

    def ago(self, hours: float) -> datetime.datetime:
        return self.now - datetime.timedelta(hours=hours)

    @property
    def clock_is_ahead(self) -> bool:
        """Tell whether the clock of a host is ahead of the true time."""
        return any(error > datetime.timedelta()
                   for error in self.clock_errors.values())

    def host_now(self) -> datetime.datetime:
        """Return the time by the clock of the current actor's host."""
        self.reads(f'clock of {self.this_host}')
        return self.true_time() + self.clock_errors.get(
            self.this_host, datetime.timedelta())

    def violated(self, name: str, text: str, situation: str = '') -> None:
        if name not in self.unchecked_properties:
            raise Violation(name, text, situation)

    def server(self, uuid: str) -> Server:
        self.reads(f'server {uuid}')
        return self.servers[uuid]

    def change_server(self, uuid: str, **values: Any) -> None:
        self.changes(f'server {uuid}')
        for name, value in values.items():
            setattr(self.servers[uuid], name, value)

    def servers_of(self, host: str) -> list[Server]:
        self.reads(*(f'server {uuid}' for uuid in self.servers))
        return [s for s in self.servers.values() if s.host == host]

    def users(self, host: str, number: int) -> list[str]:
        """Return the servers whose guests have a device of a host open."""
        guests = self.hosts[host].guests
        self.reads('guests', *(f'guest of {s}' for s in guests))
        return [server for server, guest in guests.items()
                if guest.is_running and any(
                    d.number == number for d in guest.disks.values())]

    def allocate(self, consumer: str, *hosts: str) -> None:
        """Replace the allocations of a consumer by these hosts."""
        self.changes('allocations')
        self.allocations.pop(consumer, None)
        if hosts:
            self.allocations[consumer] = frozenset(hosts)

    # Nova's records of moves

    def begin_migration(self, server: str, source: str, target: str,
                        kind: str, status: str) -> None:
        self.changes('migrations')
        self.migrations[server] = source, target
        self.record_migration(server, source, target, kind, status)

    def record_migration(self, server: str, source: str, target: str,
                         kind: str, status: str) -> None:
        self.changes('migrations')
        self.migration_records.append(Migration(
            self.serial(), server, source, target, kind, status,
            self.tick()))

    def change_migration(self, server: str, status: str) -> None:
        """Change the status of the last move of a server, if it has moved."""
        record = next((m for m in reversed(self.migration_records)
                       if m.instance_uuid == server), None)
        if record is not None:
            self.changes('migrations')
            record.status, record.updated_at = status, self.tick()

    def tick(self) -> datetime.datetime:
        """Return the time of a write; no two are written at once."""
        self.now += datetime.timedelta(microseconds=1)
        return self.true_time()

    # Nova's rows

    def rows_of(self, server: str) -> list[Row]:
        self.reads(f'rows of {server}')
        return [r for r in self.rows.values()
                if r.instance_uuid == server and not r.deleted]

    def volumes_of(self, server: str) -> list[Row]:
        return [r for r in self.rows_of(server) if r.volume_id]

    def row_of(self, server: str, volume: str) -> Row | None:
        return next((r for r in self.rows_of(server)
                     if r.volume_id == volume), None)

    def add_row(self, server: str, volume: str | None, **values: Any) -> Row:
        names = {r.device_name for r in self.rows_of(server)}
        values.setdefault('device_name', next(
            f'/dev/vd{c}' for c in 'bcdefghij' if f'/dev/vd{c}' not in names))
        self.changes(f'rows of {server}')
        values.setdefault('created_at', self.tick())
        row = Row(f'row-{self.serial()}', server, volume, **values)
        self.rows[row.uuid] = row
        return row

    def rows_where(self, holds: Callable[[Row], bool]) -> list[Row]:
        """Return matching rows, deleted ones included."""
        self.reads(*(f'rows of {uuid}' for uuid in self.servers))
        return [r for r in self.rows.values() if holds(r)]

    def change_row(self, row: Row, **values: Any) -> None:
        self.changes(f'rows of {row.instance_uuid}')
        for name, value in values.items():
            setattr(row, name, value)
        row.updated_at = self.tick()

    def delete_row(self, row: Row) -> None:
        self.changes(f'rows of {row.instance_uuid}')
        row.deleted, row.deleted_at = True, self.tick()

    # Instance actions

    def begin_action(self, server: str, kind: str) -> ServerAction:
        action = ServerAction(self.serial(), server, kind, self.true_time())
        self.changes('actions')
        self.actions.append(action)
        return action

    def end_action(self, action: ServerAction, result: str) -> None:
        self.changes('actions')
        action.result, action.finish_time = result, self.true_time()

    @contextlib.contextmanager
    def operation_on(self, *volumes: str) -> Iterator[None]:
        """Mark volumes as in an operation; they stay marked after a kill."""
        self.in_operation.update(volumes)
        yield
        self.in_operation.difference_update(volumes)

    @contextlib.contextmanager
    def part_of(self, volume: str) -> Iterator[None]:
        """Note where Nova's part of an operation fails."""
        try:
            yield
        except Exception:
            self.failed_at = volume
            raise

    def end_operations(self, server: str) -> None:
        """Mark the volumes of a server as not in an operation."""
        self.in_operation.difference_update(
            r.volume_id for r in self.volumes_of(server))

    def delete_server(self, uuid: str) -> None:
        """Delete a server and its mappings."""
        self.end_operations(uuid)
        for row in self.rows_of(uuid):
            self.delete_row(row)
        self.changes(f'server {uuid}')
        del self.servers[uuid]
        for consumer in [c for c in self.allocations if c.endswith(uuid)]:
            self.allocate(consumer)
        self.migrations.pop(uuid, None)

    # Locks of nova-compute

    @contextlib.contextmanager
    def lock(self, name: str, waits_forever: bool = True,
             host: str | None = None) -> Iterator[bool]:
        """Hold a lock of a host; yield whether it was acquired in time."""
        holder = object()
        if (host or self.this_host) == THERE:
            name += _OTHER_HOST_SUFFIX
        self.changes(f'lock {name}')
        got = self.scheduler.wait(
            f'for the lock {name}', lambda: name not in self.locks,
            waits_forever)
        if got:
            self.locks[name] = holder
        try:
            yield got
        finally:
            # A killed process has lost the lock already.
            self.changes(f'lock {name}')
            if self.locks.get(name) is holder:
                del self.locks[name]

    def lose_memory(self) -> None:
        """Lose the memory of this host's nova-compute."""
        self.locks = {name: holder for name, holder in self.locks.items()
                      if name.endswith(_OTHER_HOST_SUFFIX)}
        self.at_power_off[HERE].clear()
        self.forgotten_answers.update(
            (a.given.server, int(unit)) for a in self.answers[HERE].values()
            for _, unit in a.given.addresses
            if not self._is_shown(a.given.server, int(unit)))
        self.answers[HERE].clear()
        for announced in (self.disconnects, self.requests, self.starts):
            announced[HERE].clear()
        self.is_up = False
        for action in self.actions:
            if action.has_begun and action.finish_time is None:
                # That of another host is over, too.
                action.host = 'that was killed'
        self.unchecked_volumes |= self.in_operation
        self.in_operation.clear()

    def _is_shown(self, server: str, number: int) -> bool:
        """Return whether a guest or a row of this host has an address."""
        record = self.servers.get(server)
        return server in self.users(HERE, number) or (
            record is not None and record.host == HERE and any(
                (row.number, row.host_of_address) == (number, HERE)
                for row in self.rows_of(server)))

    # Setup

    def add_server(self, uuid: str, **values: Any) -> Server:
        server = self.servers[uuid] = Server(uuid, **values)
        self.allocations[uuid] = frozenset((server.host,))
        self.hosts[server.host].guests[uuid] = Guest(
            is_running=server.vm_state == vm_states.ACTIVE)
        if server.vm_state != vm_states.ACTIVE:
            server.power_state = power_state.SHUTDOWN
        self.add_row(uuid, None, device_name='/dev/vda', boot_index=0,
                     source_type='image', destination_type='local',
                     created_at=self.ago(24))
        return server

    def add_disk(self, server: str, volume: str,
                 project: str | None = None, hours: float = 24.0,
                 **values: Any) -> Row:
        """Add a volume that was attached some hours ago."""
        record = self.servers[server]
        if volume not in self.cinder.volumes:
            self.cinder.create_volume(volume, project or record.project_id)
        attachment = self.cinder.reserve(volume, server)
        number = self.cinder.connect(attachment, record.host)
        self.cinder.complete(attachment)
        self.cinder.volumes[volume].updated_at = self.ago(hours)
        self.cinder.attachments[attachment].attached_at = self.ago(hours)
        row = self.add_row(
            server, volume, attachment_id=attachment,
            connection_info=connection(volume, number, record.host),
            created_at=self.ago(hours), **values)
        host = self.hosts[record.host]
        guest = host.guests[server]
        if guest.is_running:
            host.devices.setdefault(number, set()).add(server)
        guest.disks[row.device_name] = Disk(volume, number)
        return row

    def swap_disk(self, server: str, old: str, new: str) -> None:
        """Swap a volume just now."""
        row = self.row_of(server, old)
        assert row is not None
        host = self.hosts[self.servers[server].host]
        former, number = row.attachment_id, row.number
        self.cinder.begin_detaching(old)
        made = self.cinder.reserve(new, server)
        self._reconnect_disk(row, new, made)
        self.cinder.delete(former)
        host.devices.pop(number, None)

    def move_disk(self, server: str, volume: str) -> None:
        """Give a volume another attachment just now, as after a move."""
        row = self.row_of(server, volume)
        assert row is not None
        former, number = row.attachment_id, row.number
        made = self.cinder.reserve(volume, server)
        self.cinder.delete(former)
        self.hosts[self.servers[server].host].devices.pop(number, None)
        self._reconnect_disk(row, volume, made)

    def _reconnect_disk(self, row: Row, volume: str, attachment: str) -> None:
        server = self.servers[row.instance_uuid]
        host = self.hosts[server.host]
        number = self.cinder.connect(attachment, server.host)
        self.cinder.complete(attachment)
        self.change_row(
            row, volume_id=volume, attachment_id=attachment,
            connection_info=connection(volume, number, server.host))
        host.devices.setdefault(number, set()).add(server.uuid)
        host.guests[server.uuid].disks[row.device_name].number = number

    def advance_time(self, hours: float = 24.0) -> None:
        self.now += datetime.timedelta(hours=hours)
        self.hour_is_used_up = False
