# SPDX-License-Identifier: Apache-2.0
"""Model of ``nova.objects`` over the rows of the world.

An object is a copy, as from a database: it does not change with the row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
import copy
from typing import Any

from nova import exception

from nova_bdm_cleanup.tests.simulation import properties
from nova_bdm_cleanup.tests.simulation.world import (
    Migration,
    Row,
    Server,
    ServerAction,
    World,
)


class DatabaseFailure(Exception):
    """Nova's database, or the conductor before it, did not answer."""


class Context:
    """A request's context."""

    request_id = 'request'
    auth_token = None
    global_id = None

    def __init__(self, world: World, read_deleted: str = 'no') -> None:
        self.world = world
        self.read_deleted = read_deleted

    def elevated(self, read_deleted: str | None = None) -> Context:
        return Context(self.world, read_deleted or self.read_deleted)

    def read(self, description: str) -> World:
        """Let other actors continue before the database is read."""
        self.world.ask(description, DatabaseFailure)
        return self.world


class Instance:
    """An instance object."""

    uuid: str
    host: str | None
    vm_state: str
    task_state: str | None
    power_state: int

    def __init__(self, world: World, server: Server) -> None:
        values = {**vars(server), 'host': server.host or None}
        self.__dict__.update(values, _world=world, _saved=dict(values))

    @property
    def node(self) -> str | None:
        return self.host

    @staticmethod
    def get_by_uuid(context: Context, uuid: str,
                    expected_attrs: Sequence[str] = ()) -> Instance:
        world = context.read(f'reads server {uuid}')
        if uuid not in world.servers:
            raise exception.InstanceNotFound(instance_id=uuid)
        return Instance(world, world.server(uuid))

    def save(self, expected_task_state: Any = (), **given: Any) -> None:
        """Write changed attributes, and the given ones."""
        values: dict[str, Any] = self.__dict__
        values.update(given)
        changed = {name: values[name] for name, old in values['_saved'].items()
                   if values[name] != old}
        world: World = values['_world']
        changes = ', '.join(
            f'{name}={value}' for name, value in changed.items())
        with world.attempt(f'writes {changes or "nothing new"} to server '
                           f'{self.uuid}', DatabaseFailure):
            if self.uuid not in world.servers:
                raise exception.InstanceNotFound(instance_id=self.uuid)
            server = world.server(self.uuid)
            expected = ([expected_task_state] if isinstance(
                expected_task_state, (str, type(None)))
                else list(expected_task_state))
            if expected and server.task_state not in expected:
                raise exception.UnexpectedTaskStateError(
                    instance_uuid=server.uuid,
                    expected={'task_state': expected},
                    actual={'task_state': server.task_state})
            world.change_server(server.uuid, **{
                name: value or '' if name == 'host' else value
                for name, value in changed.items()})
            values['_saved'].update(changed)


class RowObject:
    """A block device mapping object."""

    volume_id: str
    attachment_id: str
    device_name: str
    boot_index: int | None

    #: The fields that the journal keeps.
    fields = ('uuid', 'instance_uuid', 'volume_id', 'attachment_id',
              'device_name', 'boot_index', 'created_at')

    #: The fields that Nova and the plugin change.
    _CHANGED = ('volume_id', 'attachment_id', 'connection_info')

    def __init__(self, world: World, row: Row) -> None:
        self._world = world
        self._row = row
        self._refresh()

    def _refresh(self) -> None:
        self.__dict__.update(self._row.__dict__)
        self._saved = {name: self.__dict__[name] for name in self._CHANGED}

    @property
    def is_volume(self) -> bool:
        return bool(self._row.destination_type == 'volume')

    def obj_attr_is_set(self, name: str) -> bool:
        return True

    def destroy(self) -> None:
        row = self._row
        with self._world.attempt(f'deletes the row of {row.volume_id}',
                                 DatabaseFailure):
            if not row.deleted:
                properties.check_row_deletion(self._world, row)
                self._world.delete_row(row)

    def obj_reset_changes(self, names: Iterable[str]) -> None:
        self._saved.update({name: self.__dict__[name] for name in names})

    def save(self, **given: Any) -> None:
        """Write changed attributes, and the given ones.

        The row may have been deleted.
        """
        with self._world.attempt(f'writes the row of {self._row.volume_id}',
                                 DatabaseFailure):
            if self._row.deleted:
                raise exception.BDMNotFound(id=self._row.uuid)
            self._world.change_row(self._row, **{
                **{name: self.__dict__[name] for name in self._CHANGED
                   if self.__dict__[name] != self._saved[name]}, **given})
            self._refresh()


class Mappings:
    """``BlockDeviceMappingList``."""

    def __init__(self, objects: Iterable[RowObject]) -> None:
        self.objects = list(objects)

    @classmethod
    def of(cls, world: World, rows: Iterable[Row]) -> Mappings:
        return cls(RowObject(world, row) for row in rows)

    def __iter__(self) -> Iterator[RowObject]:
        return iter(self.objects)

    @staticmethod
    def get_by_instance_uuid(context: Context, uuid: str) -> Mappings:
        world = context.read(f'reads the rows of {uuid}')
        if context.read_deleted == 'no':
            return Mappings.of(world, world.rows_of(uuid))
        is_deleted = (True, False)[:1 + (context.read_deleted == 'yes')]
        return Mappings.of(world, world.rows_where(
            lambda row: row.instance_uuid == uuid
            and row.deleted in is_deleted))

    @staticmethod
    def get_by_instance_uuids(context: Context,
                              uuids: Collection[str]) -> Mappings:
        world = context.read('reads the rows of ' + ', '.join(sorted(uuids)))
        return Mappings.of(world, (
            row for uuid in uuids for row in world.rows_of(uuid)))

    @staticmethod
    def get_by_volume(context: Context, volume: str) -> Mappings:
        world = context.read(f'reads all rows of volume {volume}')
        rows = world.rows_where(
            lambda row: row.volume_id == volume and not row.deleted)
        if not rows:
            raise exception.VolumeBDMNotFound(volume_id=volume)
        return Mappings.of(world, rows)


class Instances:
    """``InstanceList``."""

    @staticmethod
    def get_uuids_by_host(context: Context, host: str) -> list[str]:
        world = context.read('reads the servers of the host')
        return [server.uuid for server in world.servers_of(host)]

    @staticmethod
    def get_by_host(context: Context, host: str, **_: Any) -> list[Instance]:
        """Return none: what a start only reports is not in the model."""
        return []

    @staticmethod
    def get_by_filters(context: Context, filters: Mapping[str, Any],
                       **_: Any) -> list[Instance]:
        world = context.read('reads all servers')
        return [Instance(world, world.server(s)) for s in world.servers]


class Migrations:
    """``MigrationList``."""

    @staticmethod
    def get_by_filters(context: Context,
                       filters: Mapping[str, Any]) -> list[Migration]:
        world = context.read('reads the migrations of the server')
        world.reads('migrations')
        return [copy.copy(record) for record in world.migration_records
                if all(getattr(record, name) in (
                    value if isinstance(value, list) else [value])
                       for name, value in filters.items())]


class Actions:
    """``InstanceActionList``."""

    @staticmethod
    def get_by_instance_uuid(context: Context,
                             uuid: str) -> list[ServerAction]:
        world = context.read('reads the actions of the server')
        world.reads('actions')
        return [s for s in world.actions if s.instance_uuid == uuid]


class Events:
    """``InstanceActionEventList``."""

    @staticmethod
    def get_by_action(context: Context, number: int) -> list[ServerAction]:
        return [s for s in context.world.actions if s.id == number]


class Event:
    """``InstanceActionEvent``; the model does not use its events."""

    @staticmethod
    def event_start(*_: Any, **__: Any) -> None:
        pass

    event_finish = event_start


class Objects:
    """Stand-in for the module ``nova.objects``."""

    Instance = Instance
    InstanceList = Instances
    BlockDeviceMappingList = Mappings
    MigrationList = Migrations
    InstanceActionList = Actions
    InstanceActionEventList = Events
    InstanceActionEvent = Event
