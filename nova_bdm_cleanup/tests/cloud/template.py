# SPDX-License-Identifier: Apache-2.0
"""Servers and volumes that are created once and then copied.

Nova and Cinder need about a second for a server with two volumes, and the
tests need more than a thousand servers.  A copy has all that the API created
for the original, under other names: Nova's and Cinder's rows, the guest, its
files and the connections of its host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import dataclasses
import datetime
import sqlite3
from typing import Any, TYPE_CHECKING
import uuid

from nova_bdm_cleanup.tests.cloud.server import Server

if TYPE_CHECKING:
    from nova_bdm_cleanup.tests.cloud import fixture

#: The tables and columns that name a server, by database.
_SERVER_COLUMNS = {
    'cell1': (('instances', 'uuid'), ('instance_extra', 'instance_uuid'),
              ('instance_info_caches', 'instance_uuid'),
              ('instance_system_metadata', 'instance_uuid'),
              ('instance_metadata', 'instance_uuid'),
              ('instance_id_mappings', 'uuid'),
              ('instance_actions', 'instance_uuid'),
              ('block_device_mapping', 'instance_uuid')),
    'api': (('instance_mappings', 'instance_uuid'),
            ('request_specs', 'instance_uuid'))}
#: The same for a volume, in Cinder.
VOLUME_COLUMNS = (('volumes', 'id'), ('volume_attachment', 'volume_id'),
                  ('volume_admin_metadata', 'volume_id'),
                  ('volume_glance_metadata', 'volume_id'))


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table."""

    table: str
    values: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class VolumeTemplate:
    """All records of one volume.

    :ivar project: its project
    :ivar rows: Cinder's rows
    """

    id: str
    project: str
    rows: tuple[Row, ...]

    def make(self, cloud: fixture.Cloud, name: str) -> str:
        """Make a copy; return its id."""
        copy = str(uuid.uuid4())
        names = {self.id: copy, self.project: cloud.owner.project}
        with cloud.cinder.database() as database:
            _insert(database, self.rows, names, display_name=name)
        return copy


@dataclasses.dataclass(frozen=True)
class ServerTemplate:
    """All records and files of one server.

    :ivar project: its project
    :ivar guest: the definition of the guest
    :ivar guest_name: its name in libvirt
    :ivar files: the files in the directory of the guest
    :ivar connected: the volumes that its host was connected to for it
    :ivar nova: Nova's rows, by database
    :ivar cinder: Cinder's rows
    """

    server: Server
    project: str
    guest: str
    guest_name: str
    files: tuple[str, ...]
    connected: tuple[str, ...]
    nova: Mapping[str, tuple[Row, ...]]
    cinder: tuple[Row, ...]

    def make(self, cloud: fixture.Cloud, name: str,
             volume_names: Iterable[str], in_order: bool = False) -> Server:
        """Make a copy.

        :param volume_names: the names of its volumes, in their order
        :param in_order: whether the ids of its volumes have that order, too
        """
        names = {self.project: cloud.owner.project}
        for row in (*self.nova['cell1'], *self.cinder):
            if row.table in ('instances', 'block_device_mapping'):
                names[row.values['uuid']] = str(uuid.uuid4())
            elif row.table in ('volumes', 'volume_attachment'):
                names[row.values['id']] = str(uuid.uuid4())
        if in_order:
            volumes = [volume for volume in (
                self.server.root, *self.server.volumes) if volume]
            names.update(zip(volumes, sorted(
                names[volume] for volume in volumes)))
        copy = dataclasses.replace(
            self.server, id=names[self.server.id], name=name,
            root=names.get(self.server.root or ''),
            volumes=tuple(names[volume] for volume in self.server.volumes))
        titles = {copy.root: f'{name}-root',
                  **dict(zip(copy.volumes, volume_names))}

        for key, rows in self.nova.items():
            with cloud.nova.database(key) as database:
                _insert(database, rows, names, display_name=name)
        with cloud.cinder.database() as database:
            _insert(database, self.cinder, names, titles=titles)

        names[self.guest_name] = cloud.nova.instance(copy.id).name
        guest = cloud.nova.connection(copy.host).defineXML(
            _replace_names(self.guest, names))
        guest.create()
        directory = cloud.nova.directory(copy.id)
        for file in self.files:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / file).touch()
        for volume in self.connected:
            cloud.nova.connected[copy.host][names[volume]] += 1
        return copy


def of_volume(cloud: fixture.Cloud, volume: str) -> VolumeTemplate:
    """Return the template of a volume."""
    with cloud.cinder.database() as database:
        return VolumeTemplate(volume, cloud.owner.project,
                              tuple(_of_volume(database, volume)))


def of_server(cloud: fixture.Cloud, server: Server) -> ServerTemplate:
    """Return the template of a server that the API has just created."""
    nova = {}
    for key, columns in _SERVER_COLUMNS.items():
        with cloud.nova.database(key) as database:
            nova[key] = tuple(
                row for table, column in columns
                for row in _rows(database, table, column, server.id))
    volumes = [volume for volume in (server.root, *server.volumes) if volume]
    with cloud.cinder.database() as database:
        cinder = tuple(row for volume in volumes
                       for row in _of_volume(database, volume))
    with cloud.nova.database('cell1') as database:
        nova['cell1'] += tuple(
            event for action in nova['cell1']
            if action.table == 'instance_actions'
            for event in _rows(database, 'instance_actions_events',
                               'action_id', action.values['id']))
    guest = cloud.domain(server)
    connected = cloud.nova.connected[server.host]
    directory = cloud.nova.directory(server.id)
    return ServerTemplate(
        server, cloud.owner.project, guest.XMLDesc(0), guest.name(),
        tuple(path.name for path in directory.glob('*')),
        tuple(volume for volume in volumes if volume in connected),
        nova, cinder)


def _of_volume(database: sqlite3.Connection, volume: str) -> list[Row]:
    return [row for table, column in VOLUME_COLUMNS
            for row in _rows(database, table, column, volume)]


def _rows(database: sqlite3.Connection, table: str, column: str, value: str
          ) -> list[Row]:
    found = database.execute(
        f'SELECT * FROM {table} WHERE {column} = ?',  # noqa: S608
        (value,))
    columns = [each[0] for each in found.description]
    return [Row(table, dict(zip(columns, values))) for values in found]


def _insert(database: sqlite3.Connection, rows: Iterable[Row],
            names: Mapping[str, str], display_name: str | None = None,
            titles: Mapping[str | None, str] | None = None) -> None:
    """Insert rows with the current time as their creation time.

    :param names: the replacements in all of their texts
    :param display_name: the name of the server or volume
    :param titles: the names of several volumes, by id
    """
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    actions: dict[int, int | None] = {}
    for number, row in enumerate(rows):
        # Each has another time, because Cinder sorts by it.
        moment = (now + datetime.timedelta(microseconds=number)).strftime(
            '%Y-%m-%d %H:%M:%S.%f')
        values: dict[str, Any] = {
            name: moment if _is_time(name) and value
            else _replace_names(value, names) if isinstance(value, str)
            else value
            for name, value in row.values.items()}
        # The database assigns the numbers.
        old = values.pop('id') if isinstance(values.get('id'), int) else None
        if 'action_id' in values:
            values['action_id'] = actions[values['action_id']]
        if 'display_name' in values:
            values['display_name'] = \
                titles[values['id']] if titles else display_name
        inserted = database.execute(
            f'INSERT INTO {row.table} ({", ".join(values)}) '  # noqa: S608
            f'VALUES ({", ".join("?" * len(values))})',
            tuple(values.values()))
        if row.table == 'instance_actions' and old is not None:
            actions[old] = inserted.lastrowid


def _is_time(column: str) -> bool:
    return column.endswith('_at') or column == 'attach_time'


def _replace_names(text: str, names: Mapping[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text
