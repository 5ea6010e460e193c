# SPDX-License-Identifier: Apache-2.0
"""The model of Nova's database and of the hosts, and all of it together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import datetime
import json
from typing import Any

from nova.compute import instance_actions, power_state, vm_states

from nova_bdm_cleanup.rules.facts import Policy
from nova_bdm_cleanup.tests.simulation import cinder as model
from nova_bdm_cleanup.tests.simulation.scheduler import Broken, Scheduler

#: The host that the plugin is on, and another one.
HERE, THERE = 'here', 'there'

#: Their nova-computes, which can be killed.
COMPUTE, OTHER_COMPUTE = 'nova-compute', 'other nova-compute'
COMPUTES = {HERE: COMPUTE, THERE: OTHER_COMPUTE}

#: Whose servers these are.
OWNER = 'project'


#: What the locks of the other host end with.
_ELSEWHERE = ' elsewhere'

#: How a call can go wrong: before it has an effect, or after that.
BEFORE, AFTER = 'fails', 'fails, although it is done'

#: What two worlds of the same scenario have alike, and what they are told to
#: hold in another way.
_UNTOLD = ('scheduler', 'sees', 'changes', 'cinder', 'rows', 'actions',
           'entries', 'locks')


def hours_ago(hours: float) -> datetime.datetime:
    return (datetime.datetime.now(datetime.timezone.utc)
            - datetime.timedelta(hours=hours))


def now() -> datetime.datetime:
    return hours_ago(0)


@dataclasses.dataclass
class Server:
    """A row of Nova's instances.  One that is shelved is on no host."""

    uuid: str
    host: str = HERE
    project_id: str = OWNER
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
    created_at: datetime.datetime = dataclasses.field(default_factory=now)
    deleted_at: datetime.datetime | None = None

    @property
    def is_connected(self) -> bool:
        return self.connection_info is not None

    @property
    def number(self) -> int | None:
        if self.connection_info is None:
            return None
        return number_of(json.loads(self.connection_info))


def number_of(connection_info: Mapping[str, Any]) -> int:
    return int(connection_info['data']['target_lun'])


def connection(volume: str, number: int) -> str:
    """What Nova writes down of a disk that it has connected."""
    return json.dumps({
        'driver_volume_type': 'iscsi', 'serial': volume,
        'data': {'target_iqn': model.TARGET, 'target_lun': number,
                 'target_portal': '192.0.2.1:3260', 'volume_id': volume}})


@dataclasses.dataclass
class Disk:
    """A disk in the definition of a guest."""

    serial: str
    number: int


@dataclasses.dataclass
class Guest:
    """What libvirt knows of a server.  One that runs has all disks open."""

    is_running: bool = False
    #: By the name of the device in the guest.
    disks: dict[str, Disk] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Host:
    """The kernel and libvirt of a host."""

    #: The devices that are there by their number, and the servers that they
    #: were connected for.
    devices: dict[int, set[str]] = dataclasses.field(default_factory=dict)
    guests: dict[str, Guest] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class ServerAction:
    """An attach or a swap of volumes, as Nova's instance actions show it."""

    id: int
    instance_uuid: str
    action: str
    start_time: datetime.datetime
    #: Result and end of its event, once it is over.
    result: str | None = None
    finish_time: datetime.datetime | None = None


@dataclasses.dataclass
class Entry:
    """An entry of the plugin's journal."""

    plan: Mapping[str, Any]
    #: Name, outcome and subject of each.
    steps: list[tuple[str, str, Mapping[str, Any]]] = dataclasses.field(
        default_factory=list)
    id = 'entry'

    def step(self, name: str, outcome: str, **subject: Any) -> None:
        self.steps.append((name, outcome, subject))

    def finish(self, outcome: str, spent: Mapping[str, int]) -> None:
        pass


class World:
    """Everything there is.

    :param scheduler: lets actors take turns
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        scheduler.fingerprint = self.fingerprint
        self.sees, self.changes = scheduler.sees, scheduler.changes
        self.cinder = model.Cinder(self.sees, self.changes)
        self.hosts = {name: Host() for name in (HERE, THERE)}
        self.servers: dict[str, Server] = {}
        self.rows: dict[str, Row] = {}
        self.actions: list[ServerAction] = []
        #: By server, between which hosts it moves.
        self.migrations: dict[str, tuple[str, str]] = {}
        #: By server or migration, the hosts on which Placement keeps room.
        self.allocations: dict[str, frozenset[str]] = {}
        #: By server, the dead host that it was evacuated from.
        self.evacuated: dict[str, str] = {}
        #: In the memory of the nova-compute of a host.
        self.locks: dict[str, object] = {}
        self.is_up = True
        #: nova-compute was killed in Nova's own part of something.
        self.died_in_nova = False
        #: It was killed while a server moved, of which Nova takes up little.
        self.died_in_move = False
        #: ``resume_guests_state_on_host_boot``.
        self.resumes_guests = False
        #: A first look was not answered.  Then Nova does what it would do
        #: without the plugin, as it is promised.
        self.is_blind = False
        #: Something is in the way of a move, or went wrong, or others are at
        #: work: the plugin may refuse it.
        self.may_refuse = False
        #: An earlier look of the same move was.
        self.has_looked = False
        #: The mappings of which the plugin has said that the device stays.
        self.left: set[str] = set()
        #: It has refused to let a migration be taken back.
        self.refused_way_back = False
        #: What was being attached or detached when a move was asked for.
        self.in_hand: set[str | None] = set()
        #: The volumes that were another's when a live migration was checked.
        self.anothers: set[str | None] = set()
        #: The server was deleted while something else was going on with it.
        self.deleted_meanwhile = False
        self.policy = Policy()
        #: What the plugin wrote to its journal, by entry.
        self.entries: list[Entry] = []
        #: Guests that do not answer to a soft reboot.
        self.hanging: set[str] = set()
        #: Volumes on which Nova is working for somebody else, and those of
        #: which such an operation died half way.
        self.busy: set[str] = set()
        self.disturbed: set[str] = set()
        #: By server and volume: what was attached while the scenario ran, and
        #: whether it still is.
        self.attached: dict[tuple[str, str], bool] = {}
        self._serial = 0

    def serial(self) -> int:
        self._serial += 1
        return self._serial

    @property
    def this_host(self) -> str:
        """The host of whoever goes on."""
        actor = self.scheduler.current
        return (THERE if actor is not None and actor.process == OTHER_COMPUTE
                else HERE)

    def step(self, words: str, *faults: str,
             question: str = '') -> str | None:
        """Let others go on before something happens."""
        actor = self.scheduler.current
        fault = self.scheduler.step(
            words, faults if actor is not None and actor.is_cleaning else (),
            question)
        if fault:
            self.may_refuse = True
        if fault and question and not (self.entries or self.has_looked):
            self.is_blind = True
        return fault

    def ask(self, words: str, failure: type[Exception],
            question: str = '') -> None:
        """Let others go on before something is looked at.

        :raises failure: when there is no answer
        """
        if self.step(words, BEFORE, question=question or words):
            raise failure(words)

    @contextlib.contextmanager
    def attempt(self, words: str, failure: type[Exception]
                ) -> Iterator[None]:
        """Let others go on before something is done that can go wrong.

        :raises failure: before it is done, or after that
        """
        fault = self.step(words, BEFORE, AFTER)
        if fault == BEFORE:
            raise failure(fault)
        yield
        if fault:
            raise failure(fault)

    def fingerprint(self) -> object:
        """What there is, and nobody's memory."""
        young = hours_ago(1)
        return repr((
            self.cinder.volumes, self.cinder.attachments,
            self.cinder.back_end.exports,
            [(r.uuid, r.volume_id, r.attachment_id, r.connection_info,
              r.device_name, r.deleted, r.created_at > young)
             for r in self.rows.values()],
            [(s.instance_uuid, s.result, s.start_time > young)
             for s in self.actions],
            # A mapping in a plan says when it was made, to the microsecond.
            [(e.steps, [{**a, 'bdm': a.get('bdm', {}).get('uuid')}
                        for a in e.plan['actions']])
             for e in self.entries],
            sorted(self.locks),
            [sorted(map(str, value)) if isinstance(value, set) else value
             for name, value in vars(self).items() if name not in _UNTOLD]))

    def broken(self, name: str, text: str, situation: str = '') -> None:
        raise Broken(name, text, situation)

    def server(self, uuid: str) -> Server:
        self.sees(f'server {uuid}')
        return self.servers[uuid]

    def change_server(self, uuid: str, **values: Any) -> None:
        self.changes(f'server {uuid}')
        for name, value in values.items():
            setattr(self.servers[uuid], name, value)

    def of_host(self, host: str) -> list[Server]:
        self.sees(*(f'server {uuid}' for uuid in self.servers))
        if self.scheduler.current is not None:
            self.scheduler.current.local['told'] = self.told(host)
        return [s for s in self.servers.values() if s.host == host]

    def users(self, host: str, number: int) -> list[str]:
        """The servers whose guests have a device of a host open."""
        guests = self.hosts[host].guests
        self.sees('guests', *(f'guest of {s}' for s in guests))
        return [server for server, guest in guests.items()
                if guest.is_running and any(
                    d.number == number for d in guest.disks.values())]

    def told(self, host: str) -> frozenset[tuple[str, str | None]]:
        """The disks of a host that Nova's records tell of, by their server
        and volume; no volume stands for all of a server.
        """
        return frozenset([
            *((r.instance_uuid, r.volume_id) for r in self.rows.values()
              if not r.deleted and r.attachment_id
              and self.servers[r.instance_uuid].host == host),
            *((a.instance_uuid, None) for a in self.actions
              if a.action == instance_actions.SWAP_VOLUME
              and a.finish_time is None),
            *((server, None) for server, ends in self.migrations.items()
              if host in ends)])

    def allocate(self, consumer: str, *hosts: str) -> None:
        """Have Placement keep room on just these hosts."""
        self.changes('allocations')
        self.allocations.pop(consumer, None)
        if hosts:
            self.allocations[consumer] = frozenset(hosts)

    # Nova's rows

    def rows_of(self, server: str) -> list[Row]:
        self.sees(f'rows of {server}')
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
        row = Row(f'row-{self.serial()}', server, volume, **values)
        self.rows[row.uuid] = row
        return row

    def rows_where(self, holds: Callable[[Row], bool]) -> list[Row]:
        """Also those that are deleted."""
        self.sees(*(f'rows of {uuid}' for uuid in self.servers))
        return [r for r in self.rows.values() if holds(r)]

    def change_row(self, row: Row, **values: Any) -> None:
        self.changes(f'rows of {row.instance_uuid}')
        for name, value in values.items():
            setattr(row, name, value)

    def delete_row(self, row: Row) -> None:
        self.change_row(row, deleted=True, deleted_at=now())

    # What Nova has begun

    def begin_action(self, server: str, kind: str) -> ServerAction:
        action = ServerAction(self.serial(), server, kind, now())
        self.changes('actions')
        self.actions.append(action)
        return action

    def end_action(self, action: ServerAction, result: str) -> None:
        self.changes('actions')
        action.result, action.finish_time = result, now()

    @contextlib.contextmanager
    def hands_on(self, *volumes: str) -> Iterator[None]:
        """Nova works on volumes; who is killed there leaves them so."""
        self.busy.update(volumes)
        yield
        self.busy.difference_update(volumes)

    def settled(self, server: str) -> None:
        """Nova is not in the middle of its disks any more."""
        self.busy.difference_update(
            r.volume_id for r in self.volumes_of(server))

    def forget_server(self, uuid: str) -> None:
        """It is deleted, and its mappings with it."""
        self.settled(uuid)
        for row in self.rows_of(uuid):
            self.delete_row(row)
        self.changes(f'server {uuid}')
        del self.servers[uuid]
        for consumer in [c for c in self.allocations if c.endswith(uuid)]:
            self.allocate(consumer)
        self.migrations.pop(uuid, None)

    # Locks of nova-compute

    @contextlib.contextmanager
    def lock(self, name: str, is_patient: bool = True,
             host: str | None = None) -> Iterator[bool]:
        """Hold a lock of a host; yields whether it could be had in time."""
        holder = object()
        if (host or self.this_host) == THERE:
            name += _ELSEWHERE
        self.changes(f'lock {name}')
        got = self.scheduler.wait(
            f'for the lock {name}', lambda: name not in self.locks,
            is_patient)
        if got:
            self.locks[name] = holder
        try:
            yield got
        finally:
            # The lock of a process that was killed is gone already.
            self.changes(f'lock {name}')
            if self.locks.get(name) is holder:
                del self.locks[name]

    def forget_memory(self) -> None:
        """nova-compute of this host is killed."""
        self.locks = {name: holder for name, holder in self.locks.items()
                      if name.endswith(_ELSEWHERE)}
        self.is_up = False
        self.disturbed |= self.busy
        self.busy.clear()

    # The scene

    def add_server(self, uuid: str, **values: Any) -> Server:
        server = self.servers[uuid] = Server(uuid, **values)
        self.allocations[uuid] = frozenset((server.host,))
        self.hosts[server.host].guests[uuid] = Guest(
            is_running=server.vm_state == vm_states.ACTIVE)
        if server.vm_state != vm_states.ACTIVE:
            server.power_state = power_state.SHUTDOWN
        self.add_row(uuid, None, device_name='/dev/vda', boot_index=0,
                     source_type='image', destination_type='local',
                     created_at=hours_ago(24))
        return server

    def add_disk(self, server: str, volume: str,
                 project: str | None = None, **values: Any) -> Row:
        """A volume that was attached a day ago."""
        there = self.servers[server]
        if volume not in self.cinder.volumes:
            self.cinder.create_volume(volume, project or there.project_id)
        attachment = self.cinder.reserve(volume, server)
        number = self.cinder.connect(attachment, there.host)
        self.cinder.complete(attachment)
        self.cinder.volumes[volume].age = 24.0
        row = self.add_row(
            server, volume, attachment_id=attachment,
            connection_info=connection(volume, number),
            created_at=hours_ago(24), **values)
        host = self.hosts[there.host]
        guest = host.guests[server]
        if guest.is_running:
            host.devices.setdefault(number, set()).add(server)
        guest.disks[row.device_name] = Disk(volume, number)
        return row

    def pass_time(self, hours: float = 24.0) -> None:
        """Nothing that happened so far is new any more."""
        earlier = datetime.timedelta(hours=hours)
        for row in self.rows.values():
            row.created_at -= earlier
            if row.deleted_at is not None:
                row.deleted_at -= earlier
        for volume in self.cinder.volumes.values():
            volume.age += hours
        for swap in self.actions:
            swap.start_time -= earlier
            if swap.finish_time is not None:
                swap.finish_time -= earlier
