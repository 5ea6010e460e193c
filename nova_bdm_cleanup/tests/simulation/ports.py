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
import sys
import traceback
import types
from typing import Any, TypeVar
from unittest import mock
import urllib.parse

from nova.compute import manager as nova_manager
from nova.virt.libvirt import driver as libvirt_driver

from nova_bdm_cleanup.node import (
    credentials,
    devices,
    instance,
    instance_cleanup,
    neighbours,
    operations,
    options,
    process_record,
)
from nova_bdm_cleanup.node.cleanup import cleaner, log_lines
from nova_bdm_cleanup.node.cleanup.triggers import Mode
from nova_bdm_cleanup.node.hooks import (
    evacuation,
    init_host,
    installation,
    operation,
    wrapping,
)
from nova_bdm_cleanup.node.hooks.operation import Operation
from nova_bdm_cleanup.node.store.journal import LimitReached
from nova_bdm_cleanup.openstack import api, cinder, errors
from nova_bdm_cleanup.openstack.deadline import TimedOut
from nova_bdm_cleanup.rules.facts import Plan
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.simulation import (
    cinder as model,
    compute,
    compute_moves,
    properties,
)
from nova_bdm_cleanup.tests.simulation.nova import DatabaseFailure, Objects
from nova_bdm_cleanup.tests.simulation.scheduler import Violation
from nova_bdm_cleanup.tests.simulation.world import (
    BEFORE,
    Entry,
    number_of,
    World,
)

T = TypeVar('T')

_Cleaner = cleaner.Cleaner

#: Failures of a request: Cinder refuses it; Cinder carries it out and the
#: answer is lost; Cinder carries it out after the plugin's timeout.
REFUSED, LOST, LATE = 'is refused', 'loses its answer', 'is answered too late'


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
            'connection_info': {'target_lun': attachment.number}
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
        subject = path.split('/')[2]
        self._change(f'tells Cinder that {subject} is complete',
                     lambda: self._world.cinder.complete(subject))

    def _change(self, description: str, change: Callable[[], None]) -> None:
        failure = self._world.step(description, REFUSED, LOST, LATE)
        if failure == REFUSED:
            raise errors.BadAnswer('Cinder answered 500', 500)
        if not self._world.hears_cinder():
            raise errors.Unreachable('Cinder does not answer')
        if failure == LATE:
            self._world.scheduler.spawn(
                'Cinder, late', 'cinder',
                lambda: self._do_late(description, change))
            raise self._deadline.exceeded(description)
        try:
            change()
        except model.NotFound as exc:
            raise errors.NotFound(str(exc), 404) from None
        if failure:
            raise errors.Unreachable('the answer was lost')

    def _do_late(self, description: str, change: Callable[[], None]) -> None:
        self._world.step(description)
        with contextlib.suppress(model.CinderError):
            change()


class Journal:
    """The plugin's journal, in memory."""

    def __init__(self, world: World) -> None:
        self._world = world

    def begin(self, record: Mapping[str, Any], charges: Sequence[Any], *,
              server: str) -> Entry:
        if self._world.step('writes its plan to the journal', BEFORE):
            raise OSError('no space left on device')
        for charge in charges:
            if charge.amount and self._world.hour_is_used_up:
                raise LimitReached(charge.account, charge.limit, charge.limit)
        self._world.changes('journal')
        self._world.entries.append(Entry(record))
        return self._world.entries[-1]


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
            self._manager = _copy(compute_moves.MANAGERS[release])
            self._manager.driver_class = libvirt_driver.LibvirtDriver
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

    def cleaner(self, *arguments: Any) -> cleaner.Cleaner:
        """Return a cleaner by the clock of its host.

        The third time that it waits is the last one.
        """
        found: cleaner.Cleaner = functools.partial(
            _Cleaner, now=self.world.host_now)(*arguments)
        deadline: Any = found.deadline

        def wait(seconds: float) -> None:
            self.world.wait(seconds)
            deadline.remaining -= deadline.seconds / 3
            if deadline.remaining < 1:
                current: Any = self.world.scheduler.current
                current.local[properties.WAITED_IN_VAIN] = True

        found.wait = wait
        return found

    def utcnow(self, with_timezone: bool = False) -> datetime.datetime:
        """Stand in for that of ``oslo_utils.timeutils``."""
        return self.world.host_now()

    # Cinder, and the cleanup

    def cinder_for(self, context: Any, limit: Any,
                   finds_stale: bool = True) -> cinder.Cinder:
        fake_api: Any = Api(self.world, limit)
        return cinder.Cinder(fake_api, finds_stale)

    def with_failures(self, act: Callable[..., Any],
                      looks_again: Callable[..., bool] = lambda *_: False
                      ) -> Callable[..., Any]:
        """Wrap a function of the plugin whose calls can fail.

        :param looks_again: takes the same arguments, and returns whether the
            operation has looked before
        """
        def with_failures(*arguments: Any) -> Any:
            world, actor = self.world, self.world.scheduler.current
            actor.local['recorded at the start'] = world.recorded_disks(
                world.this_host)
            actor.local.pop(properties.WAITED_IN_VAIN, None)
            is_next = looks_again(*arguments)
            has_first_look = is_next and not world.first_look_failed
            world.first_look_failed = world.first_look_failed and not is_next
            with self._cleaning(has_first_look):
                return act(*arguments)

        return with_failures

    @contextlib.contextmanager
    def _cleaning(self, has_first_look: bool) -> Iterator[None]:
        world, actor = self.world, self.world.scheduler.current
        former = actor.is_cleaning, world.has_first_look
        actor.is_cleaning, world.has_first_look = True, has_first_look
        try:
            yield
        finally:
            actor.is_cleaning, world.has_first_look = former

    def keeping_connected(self, keeps: Callable[..., bool]
                          ) -> Callable[..., bool]:
        """Wrap the question before each disconnect of the driver."""
        def keeps_connected(*arguments: Any) -> bool:
            with self._cleaning(not self.world.first_look_failed):
                return keeps(*arguments)

        return keeps_connected

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
                self.world.devices_left.add(finding.bdm.uuid)
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
        _raise_programming_error(error)
        return original(error)

    return masked


def _raise_programming_error(error: object) -> None:
    if isinstance(error, (ArithmeticError, AssertionError, AttributeError,
                          ImportError, LookupError, NameError, TypeError,
                          ValueError)):
        raise _unexpected(error)


def _unexpected(error: BaseException) -> Violation:
    return Violation('no-unexpected-exception', ''.join(
        traceback.format_exception(type(error), error, error.__traceback__)))


def _raise_unexpected(*_: Any, **__: Any) -> None:
    error = sys.exc_info()[1]
    if not isinstance(error, (DatabaseFailure, compute.HostFailure)):
        raise _unexpected(error)


def _looks_again(moving: Operation, instance: Any, bdms: Any) -> bool:
    """Return whether an operation has looked before it removes."""
    return instance.uuid in moving._looks


@contextlib.contextmanager
def installed_plugin() -> Iterator[Harness]:
    """Install the plugin on the model, until the context ends."""
    harness = Harness()
    seen: Sequence[tuple[Any, str, Any]] = (
        *((module, 'objects', Objects) for module in (
            evacuation, instance, neighbours, operation, operations)),
        (operation, '_this_thread', Local(harness)),
        (evacuation, '_at_power_off', AtPowerOff(harness)),
        (nova_manager, 'ComputeManager', compute_moves.Manager26),
        (libvirt_driver, 'LibvirtDriver', compute.Driver),
        (process_record, 'record', lambda *_: None),
        (log_lines, 'masked', _raising_errors(log_lines.masked)),
        (operation.LOG, 'debug', lambda *_, **__: _raise_programming_error(
            sys.exc_info()[1])),
        (init_host.LOG, 'exception', _raise_unexpected),
        (wrapping.LOG, 'exception', _raise_unexpected),
        *((owner, name, harness.with_failures(getattr(owner, name)))
          for owner, name in (
              (Operation, 'clean'), (Operation, '_look'),
              (evacuation, '_disconnect_removed'),
              (evacuation, '_disconnect_rows'))),
        (Operation, 'remove', harness.with_failures(
            Operation.remove, _looks_again)),
        (Operation, 'keeps_connected', harness.keeping_connected(
            Operation.keeps_connected)),
        (_Cleaner, '_report_left',
         harness.record_kept(_Cleaner._report_left)),
        (log_lines.LogLines, 'left',
         harness.record_left(log_lines.LogLines.left)),
        (instance_cleanup, 'Deadline', Deadline),
        (cleaner, 'Cleaner', harness.cleaner),
        (neighbours, 'timeutils', harness),
        (instance_cleanup, 'Journal', lambda *_: Journal(harness.world)),
        (credentials, 'cinder_for', harness.cinder_for),
        (credentials, 'service_context', lambda context: context),
        # A mock would take a tenth of the run time.
        (options, 'settings', lambda conf: types.SimpleNamespace(
            policy=harness.world.policy, store='', watches=False)),
        (instance, 'brick_utils', harness),
        *((devices, name, getattr(harness, name)) for name in (
            'volume_devices', 'remaining', 'removal_advice',
            'narrow_connection_info')),
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
