# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for Cinder's API, the kernel, the journal, time and threads."""

from __future__ import annotations

import ast
from collections.abc import (
    Callable,
    Iterator,
    Mapping,
    Sequence,
    Set as AbstractSet,
)
import contextlib
import datetime
import functools
import traceback
import types
from typing import Any, TypeVar
from unittest import mock
import urllib.parse

from nova.compute import manager as nova_manager
from nova.virt.libvirt import driver as libvirt_driver
from nova.volume import cinder as nova_cinder

from nova_bdm_cleanup.node import (
    adoption,
    connections,
    credentials,
    devices,
    domains,
    instance,
    instance_cleanup,
    interrupted,
    late_disconnects,
    neighbours,
    operations,
    options,
    process_record,
    repairs,
)
from nova_bdm_cleanup.node.cleanup import actions, cleaner, log_lines
from nova_bdm_cleanup.node.cleanup.triggers import Mode, ROLLBACK
from nova_bdm_cleanup.node.hooks import (
    delete,
    evacuation,
    init_host,
    installation,
    operation,
    wrapping,
)
from nova_bdm_cleanup.node.hooks.operation import Operation
from nova_bdm_cleanup.node.store import disconnects
from nova_bdm_cleanup.node.store.journal import LimitReached
from nova_bdm_cleanup.openstack import api, cinder, errors
from nova_bdm_cleanup.openstack.deadline import TimedOut
from nova_bdm_cleanup.rules.facts import Address, Plan, Source
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.simulation import (
    cinder as model,
    compute,
    compute_moves,
    properties,
)
from nova_bdm_cleanup.tests.simulation.nova import (
    Context,
    DatabaseFailure,
    Objects,
)
from nova_bdm_cleanup.tests.simulation.scheduler import Violation
from nova_bdm_cleanup.tests.simulation.world import (
    BEFORE,
    COMPUTES,
    Entry,
    Guest,
    number_of,
    REFUSED,
    Silence,
    World,
)

T = TypeVar('T')

_Cleaner = cleaner.Cleaner

#: The errors of the plugin's client for Cinder, by the status of the answer.
_ERRORS = {400: errors.BadRequest, 404: errors.NotFound, 409: errors.Conflict,
           500: errors.BadAnswer}


@functools.lru_cache(maxsize=None)
def _read(value: str) -> Sequence[str]:
    found: Sequence[str] = ast.literal_eval(value)
    return found


def _time(value: datetime.datetime | None) -> str | None:
    return None if value is None else value.isoformat()


class Deadline:
    """A deadline that passes only when :meth:`exceeded` is called."""

    def __init__(self, seconds: float, option: str = 'timeout') -> None:
        self.seconds = self.remaining = seconds

    def check(self, what: str) -> None:
        if not self.remaining:
            raise TimedOut(what)

    def extend(self, seconds: float) -> None:
        pass

    def exceeded(self, what: str) -> TimedOut:
        self.remaining = 0.0
        return TimedOut(what)

    def call(self, what: str, func: Callable[[], T]) -> T:
        self.check(what)
        return func()


class Api:
    """A replacement for ``openstack.api.Api`` that asks the model."""

    advice = cinder.NOVA_CONF
    name = 'Cinder'
    is_bounded = True
    one, pages, _page = api.Api.one, api.Api.pages, api.Api._page

    def __init__(self, world: World, limit: Deadline) -> None:
        self._world = world
        self._deadline = limit

    def in_time(self, what: str, func: Callable[[], T]) -> T:
        return self._deadline.call(what, func)

    def get(self, path: str, query: Mapping[str, str] | None = None,
            microversion: str | None = None) -> Any:
        failure = self._world.step(f'asks Cinder for {path}', REFUSED,
                                   question='Cinder')
        if failure or not self._world.hears_cinder():
            raise errors.Unreachable('Cinder does not answer')
        parts = [urllib.parse.unquote(p) for p in path.split('/')[1:]]
        try:
            if parts[0] == 'volumes':
                return self._volumes(parts[1:], query or {})
            return self._attachments(parts[1:], query or {})
        except model.NotFound as exc:
            raise errors.NotFound(str(exc), 404) from None

    def _volumes(self, parts: Sequence[str],
                 query: Mapping[str, str]) -> Mapping[str, Any]:
        records = self._world.cinder_for('volume')
        if parts and parts[0] != 'detail':
            return {'volume': self._volume(records, parts[0])}
        wanted = _read(query['id'])
        self._world.reads(*(f'volume {v}' for v in wanted))
        return {'volumes': [self._volume(records, v) for v in wanted
                            if v in records.volumes]}

    def _volume(self, records: model.Cinder, name: str) -> Mapping[str, Any]:
        volume = records.volume(name)
        return {
            'id': volume.id, 'status': volume.status,
            'os-vol-tenant-attr:tenant_id': volume.project,
            'multiattach': volume.multiattach,
            'migration_status': volume.migration_status,
            'updated_at': _time(volume.updated_at),
            'attachments': [
                {'server_id': a.server, 'attachment_id': a.id,
                 'host_name': a.host, 'attached_at': _time(a.attached_at)}
                for a in records.of_volume(volume.id)
                if a.status == 'attached']}

    def _attachments(self, parts: Sequence[str],
                     query: Mapping[str, str]) -> Mapping[str, Any]:
        if parts and parts[0] != 'detail':
            return {'attachment': self._attachment(
                self._world.cinder_for('attachment').attachment(parts[0]))}
        records = self._world.cinder_for('list')
        found = (records.of_server(query['instance_id'])
                 if 'instance_id' in query
                 else records.of_volume(query['volume_id']))
        if 'project_id' in query:
            found = [a for a in found if records.volumes[a.volume].project
                     == query['project_id']]
        if 'volume_id' in query:
            found = [a for a in found if a.volume == query['volume_id']]
        if 'marker' in query:
            ids = [a.id for a in found]
            found = found[ids.index(query['marker']) + 1:] \
                if query['marker'] in ids else []
        found = found[int(query.get('offset', 0)):]
        return {'attachments': [self._attachment(a) for a in found
                                ][:int(query.get('limit', 1000))]}

    def _attachment(self, attachment: model.Attachment) -> Mapping[str, Any]:
        return {
            'id': attachment.id, 'volume_id': attachment.volume,
            'instance': attachment.server, 'status': attachment.status,
            'attached_at': _time(attachment.attached_at),
            'connection_info': {'target_iqn': model.TARGET,
                                'target_lun': attachment.number}
            if attachment.host else {}}

    def delete(self, path: str) -> Any:
        attachment = urllib.parse.unquote(path.rpartition('/')[2])

        def delete() -> None:
            properties.check_attachment_deletion(self._world, attachment)
            self._world.cinder.delete(attachment)

        self._change(f'tells Cinder to delete {attachment}', delete)
        return {'attachments': []}

    def post(self, path: str, body: Mapping[str, Any],
             success: int = 202) -> Any:
        wanted, cinder = body.get('attachment'), self._world.cinder
        if wanted is not None:
            volume = wanted['volume_uuid']
            return {'attachment': {'id': self._change(
                f'has Cinder reserve {volume}', lambda: cinder.reserve(
                    volume, wanted['instance_uuid']))}}
        subject = path.split('/')[2]
        if 'os-roll_detaching' in body:
            self._change(f'has Cinder roll the detach of {subject} back',
                         lambda: cinder.roll_detaching(subject))
            return None
        self._change(f'tells Cinder that {subject} is complete',
                     lambda: cinder.complete(subject))
        return None

    def _change(self, description: str, change: Callable[[], T]) -> T:
        try:
            return self._world.change_cinder(description, change)
        except model.CinderError as exc:
            raise _ERRORS[exc.status](str(exc), exc.status) from None
        except Silence as exc:
            raise errors.Unreachable(str(exc)) from None
        except TimedOut:
            raise self._deadline.exceeded(description) from None


class Journal:
    """The plugin's journal, in memory."""

    def __init__(self, world: World) -> None:
        self._world = world

    def begin(self, record: Mapping[str, Any], charges: Sequence[Any], *,
              server: str) -> Entry:
        if self._world.step('writes its plan to the journal', BEFORE):
            self._world.proof_is_lost = True
            raise OSError('no space left on device')
        for charge in charges:
            if charge.amount and self._world.hour_is_used_up:
                raise LimitReached(charge.account, charge.limit, charge.limit)
        self._world.changes('journal')
        self._world.entries.append(Entry(record, self._world.tick()))
        return self._world.entries[-1]

    def entries(self, server: str) -> Sequence[Entry]:
        self._world.reads('journal')
        return [entry for entry in self._world.entries
                if entry.record.get('server') == server]


class Notes:
    """The notes of suppressed disconnects of one host."""

    def __init__(self, world: World, host: str) -> None:
        self._world = world
        self._notes = world.notes[host]

    def note(self, server: str, volume: str | None,
             connection_info: Mapping[str, Any]) -> None:
        identities = devices.unique_devices(connection_info)
        found = disconnects.Suppressed(
            server, volume, connection_info, identities)
        if identities and found not in self._notes:
            self._world.changes('notes')
            self._notes.append(found)

    def pending(self) -> Sequence[disconnects.Suppressed]:
        self._world.reads('notes')
        return tuple(self._notes)

    def done(self, note: disconnects.Suppressed) -> None:
        self._world.changes('notes')
        self._notes.remove(note)


class Harness:
    """The world of the current run, with the plugin installed on it."""

    def __init__(self) -> None:
        self.world: World = None
        self._installed: tuple[int, Sequence[str]] | None = None
        #: The ends of operations that others are compared with.
        self.permitted_ends: dict[object, Any] = {}
        #: Nova's ComputeManager, with the hooks on it.
        self._manager: Any = compute_moves.Manager26

    def manager(self, release: int, triggers: Sequence[str]
                ) -> type[compute_moves.Manager26]:
        """Return Nova's ComputeManager with the plugin installed.

        :param release: the release of Nova
        :param triggers: the words of ``[bdm_cleanup] triggers``
        """
        if self._installed != (release, triggers):
            installation.uninstall()
            libvirt_driver.LibvirtDriver = _copy(compute.Driver)
            nova_cinder.API = _copy(compute.Volumes)
            self._manager = _copy(compute_moves.MANAGERS[release])
            self._manager.driver_class = libvirt_driver.LibvirtDriver
            self._manager.volumes_class = nova_cinder.API
            nova_manager.ComputeManager = self._manager
            installation.install(options.triggers_of(triggers))
            self._installed = release, triggers
        return self._manager

    # The kernel's devices, in place of ``node.devices``

    def volume_devices(self, connection_info: Mapping[str, Any]
                       ) -> dict[str, str]:
        number = number_of(connection_info)
        return ({compute.path_of(number): str(number)}
                if number in self._devices() else {})

    def unique_devices(self, connection_info: Mapping[str, Any]
                       ) -> dict[str, str]:
        number = number_of(connection_info)
        volume = self.world.cinder.back_end.read(self.world.this_host, number)
        return ({compute.path_of(number): volume}
                if volume and number in self._devices() else {})

    def are_absent(self, addresses: AbstractSet[Address]) -> bool:
        return not any(int(unit) in self._devices() for _, unit in addresses)

    def are_held(self, names: AbstractSet[str]) -> bool:
        return False

    def device_addresses(self, name: str) -> frozenset[Address]:
        return frozenset()

    def remaining(self, before: Mapping[str, str]) -> frozenset[str]:
        devices = self._devices()
        return frozenset(name for name, number in before.items()
                         if int(number) in devices)

    def _devices(self) -> AbstractSet[int]:
        self.world.reads(f'units of {self.world.this_host}')
        return self.world.hosts[self.world.this_host].devices.keys()

    def removal_advice(self, names: Any, identities: Any) -> str:
        return 'still there: ' + ', '.join(names)

    def narrow_connection_info(
            self, connection_info: Mapping[str, Any],
            found: AbstractSet[str]) -> Mapping[str, Any] | None:
        return connection_info if found else None

    def devices_at(self, addresses: AbstractSet[Address]) -> frozenset[str]:
        return frozenset(
            compute.path_of(number) for number in self._devices()
            if _address_of(number) in addresses)

    def disks_in_domain(self, guest: Guest) -> Iterator[devices.GuestDisk]:
        for disk in guest.disks.values():
            yield devices.GuestDisk(
                disk.serial, Source(
                    frozenset([_address_of(disk.number)]),
                    path=compute.path_of(disk.number)), False)

    # The guests of a host, in place of ``node.domains``

    def domains(self, driver: Any) -> tuple[domains.Domain, ...]:
        world = self.world
        world.ask('asks libvirt for the domains', compute.HostFailure)
        guests = world.hosts[driver.host].guests
        world.reads('guests', *(f'guest of {server}' for server in guests))
        return tuple(
            domains.Domain(server, frozenset(
                _address_of(disk.number) for disk in guest.disks.values()))
            for server, guest in guests.items() if guest.is_running)

    def serials(self, driver: Any, server: Any) -> frozenset[str]:
        world = self.world
        world.ask('asks libvirt for the disks of the guest',
                  compute.HostFailure)
        guest = world.hosts[driver.host].guests.get(server.uuid)
        world.reads(f'guest of {server.uuid}')
        return frozenset(disk.serial for disk in guest.disks.values()) \
            if guest is not None and guest.is_defined else frozenset()

    # Adoptions

    def follow(self, manager: Any, servers: Sequence[str]) -> None:
        """Stand in for the thread of ``adoption.follow``."""
        for server in servers:
            self.world.scheduler.spawn(
                f'adoption of {server}', COMPUTES[manager.host],
                functools.partial(self._adopt, manager, server))

    @staticmethod
    def _adopt(manager: Any, server: str) -> None:
        with contextlib.suppress(adoption.Busy, adoption.NotHere,
                                 DatabaseFailure):
            adoption._adopt(manager, server, ROLLBACK)

    def sources(self, driver: Any, server: Any
                ) -> Mapping[str, Source]:
        world = self.world
        try:
            world.ask('asks libvirt for the sources of the disks',
                      compute.HostFailure)
        except compute.HostFailure:
            world.proof_is_lost = True
            raise
        guest = world.hosts[driver.host].guests.get(server.uuid)
        world.reads(f'guest of {server.uuid}')
        if guest is None or not guest.is_defined:
            return {}
        # The devices of a guest that is off may be others' now.
        return {device.rpartition('/')[2]: Source(frozenset(
            [_address_of(disk.number)] if guest.is_running else []))
            for device, disk in guest.disks.items()}

    # Locks

    def guard_connection(self, volume: Mapping[str, Any]) -> Any:
        """Acquire os-brick's lock for volumes with shared targets."""
        return (self.world.lock('os-brick') if volume['shared_targets']
                else contextlib.nullcontext())

    @contextlib.contextmanager
    def hold_lock(self, name: str, limit: Deadline) -> Iterator[None]:
        """Acquire a lock of Nova in time."""
        with self.world.lock(name, waits_forever=False) as got:
            if not got:
                raise limit.exceeded(f'waiting for the lock {name}')
            yield

    # Time

    def cleaner(self, *arguments: Any, adopt: Callable[[], bool]
                ) -> cleaner.Cleaner:
        """Return a cleaner by the clock of its host."""
        return functools.partial(
            _Cleaner, now=self.world.host_now, wait=self.world.wait,
            adopt=adopt)(*arguments)

    def monotonic(self) -> float:
        """Stand in for that of ``time``."""
        return self.world.now.timestamp()

    def ref(self, operation: object,
            end: Callable[[object], None]) -> Callable[[], object]:
        """Stand in for that of ``weakref``: an actor is an operation.

        Its end is noticed by the first question after it.
        """
        actor = self.world.scheduler.current
        return lambda: None if actor.is_over else actor

    # Cinder, and the cleanup

    def cinder_for(self, context: Any, limit: Any) -> cinder.Cinder:
        fake_api: Any = Api(self.world, limit)
        return cinder.Cinder(fake_api)

    def with_failures(self, act: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function of the plugin whose calls can fail."""
        def with_failures(*arguments: Any) -> Any:
            actor = self.world.scheduler.current
            former, actor.is_cleaning = actor.is_cleaning, True
            try:
                return act(*arguments)
            finally:
                actor.is_cleaning = former

        return with_failures

    def looking(self, act: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function of the plugin that begins with the first look."""
        def looking(*arguments: Any) -> Any:
            world, found = self.world, arguments[1]
            world.first_look_failed = False
            local = world.scheduler.current.local
            local[properties.OPEN] = frozenset(
                number for guest in [world.hosts[world.this_host].guests.get(
                    getattr(found, 'uuid', ''))]
                if guest is not None and guest.is_running
                for number in [d.number for d in guest.disks.values()])
            return act(*arguments)

        return self.with_failures(looking)

    def record_kept(self, report: Callable[..., None]) -> Callable[..., None]:
        """Wrap the report about what a cleanup has not removed."""
        def record_kept(cleaning: cleaner.Cleaner, plan: Plan) -> None:
            world, server = self.world, cleaning.server.uuid
            rows = {row.uuid for row in world.rows_of(server)}
            # Without an answer there are no findings.
            kept = {f.bdm.uuid for f in plan.findings
                    if f.bdm and not f.is_due
                    and f.reason is not Reason.HEALTHY} or (
                        set() if plan.findings else rows)
            world.kept = world.kept - rows | kept
            if cleaning.trigger.mode in (Mode.LEAVE, Mode.ARRIVE):
                properties.check_kept(world, server)
            report(cleaning, plan)

        return record_kept

    def record_left(self, left: Callable[..., None]) -> Callable[..., None]:
        """Wrap the log line of a device that stays."""
        def record_left(lines: Any, finding: Any, why: str) -> None:
            if finding.bdm:
                self.world.devices_left.update(
                    (self.world.this_host, lines.instance.uuid, int(unit))
                    for _, unit in finding.bdm.addresses)
            left(lines, finding, why)

        return record_left


def _copy(base: type) -> type:
    """Return a class with the methods of a model, to put the hooks on."""
    return type(base.__name__, (base,), {
        name: value for cls in reversed(base.__mro__)
        if cls.__module__ in (compute.__name__, compute_moves.__name__)
        for name, value in vars(cls).items() if not name.startswith('__')})


class AtPowerOff:
    """A stand-in for the dictionary of an evacuation, by host."""

    def __init__(self, harness: Harness) -> None:
        self._stage = harness

    def _own(self) -> dict[str, Callable[[], None]]:
        world = self._stage.world
        return world.at_power_off[world.this_host]

    def __setitem__(self, server: str, disconnect: Callable[[], None]) -> None:
        self._own()[server] = disconnect

    def pop(self, server: str, default: None) -> Callable[[], None] | None:
        return self._own().pop(server, default)


class Answers:
    """A stand-in for the answers that ``connections`` remembers, by host."""

    def __init__(self, harness: Harness) -> None:
        self._stage = harness

    def _read(self) -> dict[str, Any]:
        world = self._stage.world
        world.reads(f'answers of {world.this_host}')
        return world.answers[world.this_host]

    def _changed(self) -> dict[str, Any]:
        world = self._stage.world
        world.changes(f'answers of {world.this_host}')
        return world.answers[world.this_host]

    def pop(self, key: str, default: None) -> Any:
        return self._changed().pop(key) if key in self._read() else default

    def __setitem__(self, key: str, answer: Any) -> None:
        self._changed()[key] = answer

    def __delitem__(self, key: str) -> None:
        del self._changed()[key]

    def items(self) -> Any:
        return self._read().items()

    def values(self) -> Any:
        return self._read().values()


class Announced:
    """A stand-in for a list that ``connections`` has, by host.

    :param name: the name of the lists in the world
    """

    def __init__(self, harness: Harness, name: str) -> None:
        self._stage = harness
        self._name = name

    def _changed(self) -> list[Any]:
        world = self._stage.world
        world.changes(f'{self._name} of {world.this_host}')
        return self._own()

    def _own(self) -> list[Any]:
        world = self._stage.world
        found: list[Any] = getattr(world, self._name)[world.this_host]
        return found

    def append(self, announced: Any) -> None:
        self._changed().append(announced)

    def remove(self, announced: Any) -> None:
        # An actor of another process may act here; a kill ends its call, too.
        if announced in self._own():
            self._changed().remove(announced)

    def __iter__(self) -> Iterator[Any]:
        world = self._stage.world
        world.reads(f'{self._name} of {world.this_host}')
        return iter(self._own())


class Condition:
    """A stand-in for a condition: actors switch only at their steps."""

    def __init__(self, harness: Harness) -> None:
        self._stage = harness

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass

    def notify_all(self) -> None:
        pass

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> bool:
        scheduler = self._stage.world.scheduler
        actor = scheduler.current

        def until() -> bool:
            former, scheduler.current = scheduler.current, actor
            try:
                return predicate()
            finally:
                scheduler.current = former

        return scheduler.wait('for another thread', until, waits_forever=False)


class Local:
    """A stand-in for ``threading.local``, by actor."""

    def __init__(self, harness: Harness) -> None:
        self.__dict__['_stage'] = harness

    def _own(self) -> object:
        actor = self.__dict__['_stage'].world.scheduler.current
        return actor.local.setdefault(id(self), types.SimpleNamespace())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._own(), name, value)


def _raising_errors(original: Callable[[object], str]
                    ) -> Callable[[object], str]:
    """Wrap ``masked``, so that it raises programming errors.

    The plugin catches every exception, so it would hide a bug in the model
    or in itself.
    """

    def masked(error: object) -> str:
        if isinstance(error, (ArithmeticError, AssertionError, AttributeError,
                              ImportError, LookupError, NameError, TypeError,
                              ValueError)):
            raise _unexpected(error)
        return original(error)

    return masked


def _unexpected(error: BaseException) -> Violation:
    return Violation('no-unexpected-exception', ''.join(
        traceback.format_exception(type(error), error, error.__traceback__)))


def _raise_unexpected(error: Exception) -> Exception:
    """Replace ``with_traceback``, so that it raises the bugs of the plugin."""
    if not isinstance(error, (DatabaseFailure, compute.HostFailure)):
        raise _unexpected(error)
    return error


def _address_of(number: int) -> Address:
    return model.TARGET, str(number)


@contextlib.contextmanager
def installed_plugin() -> Iterator[Harness]:
    """Install the plugin on the model, until the context ends."""
    harness = Harness()
    seen: Sequence[tuple[Any, str, Any]] = (
        *((module, 'objects', Objects) for module in (
            adoption, delete, evacuation, instance, interrupted, neighbours,
            operation, operations)),
        (operation, '_this_thread', Local(harness)),
        (evacuation, '_at_power_off', AtPowerOff(harness)),
        (connections, '_answers', Answers(harness)),
        *((connections, '_' + name, Announced(harness, name))
          for name in ('disconnects', 'requests', 'starts')),
        (connections, '_state', Condition(harness)),
        (connections, 'threading', types.SimpleNamespace(
            get_ident=lambda: harness.world.scheduler.current)),
        (connections, 'weakref', harness),
        (connections, 'time', harness),
        # Of an operation that a kill has ended, the record says so.
        (operations, 'PROCESS_BEGAN', datetime.datetime.min.replace(
            tzinfo=datetime.timezone.utc)),
        (domains, 'domains', harness.domains),
        (domains, 'serials', harness.serials),
        (domains, 'sources', harness.sources),
        (nova_manager, 'ComputeManager', compute_moves.Manager26),
        (nova_cinder, 'API', compute.Volumes),
        (libvirt_driver, 'LibvirtDriver', compute.Driver),
        (process_record, 'record', lambda *_: None),
        (repairs, 'begin', lambda *_: None),
        (adoption, 'follow', harness.follow),
        (adoption, '_adopt', harness.with_failures(adoption._adopt)),
        (adoption, 'Deadline', Deadline),
        (adoption, 'nova_context', types.SimpleNamespace(
            get_admin_context=lambda: Context(harness.world))),
        *((module, 'masked', _raising_errors(log_lines.masked))
          for module in (adoption, domains, late_disconnects, log_lines,
                         neighbours)),
        *((module, 'with_traceback', _raise_unexpected)
          for module in (adoption, wrapping)),
        *((owner, name, harness.looking(getattr(owner, name)))
          for owner, name in (
              (Operation, 'clean'), (Operation, 'remove'),
              (evacuation, '_disconnect_removed'),
              (evacuation, '_disconnect_rows'))),
        (actions, 'claim_on', harness.with_failures(actions.claim_on)),
        (_Cleaner, '_report_left',
         harness.record_kept(_Cleaner._report_left)),
        (log_lines.LogLines, 'still_connected',
         harness.record_left(
             log_lines.LogLines.still_connected)),
        (instance_cleanup, 'Deadline', Deadline),
        (cleaner, 'Cleaner', harness.cleaner),
        (instance_cleanup, 'Journal', lambda *_: Journal(harness.world)),
        (credentials, 'cinder_for', harness.cinder_for),
        (credentials, 'service_context', lambda context: context),
        # A mock would take a tenth of the run time.
        (options, 'settings', lambda conf: types.SimpleNamespace(
            policy=harness.world.policy, store='', watches=False)),
        (instance, 'brick_utils', harness),
        *((devices, name, getattr(harness, name)) for name in (
            'volume_devices', 'unique_devices', 'are_absent', 'are_held',
            'devices_at', 'disks_in_domain',
            'device_addresses', 'remaining', 'removal_advice',
            'narrow_connection_info')),
        *((module, 'SuppressedDisconnects',
           lambda _, host: Notes(harness.world, host))
          for module in (disconnects, init_host)),
        (init_host, 'nova_context', types.SimpleNamespace(
            get_admin_context=lambda: Context(harness.world))),
        (init_host, '_disconnect_late', harness.with_failures(
            init_host._disconnect_late)),
        (instance, 'hold_lock', harness.hold_lock),
        # The model has no delete of a server.
        (instance, 'hold_volume_lock',
         lambda *_: contextlib.nullcontext()))
    with contextlib.ExitStack() as stack:
        for module, name, value in seen:
            stack.enter_context(mock.patch.object(module, name, value))
        try:
            yield harness
        finally:
            installation.uninstall()
