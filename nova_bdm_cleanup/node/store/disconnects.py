# SPDX-License-Identifier: Apache-2.0
"""The disks that were not disconnected, since another guest had the address.

Nova never tries again, so their devices would stay until the host boots.  Each
is noted with what distinguishes its device from a later one of its address; a
boot of the host ends all notes.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import json
import sqlite3
import time
from typing import Any

from nova_bdm_cleanup.node import devices
from nova_bdm_cleanup.node.store.database import Database, MAX_BYTES

#: Where the kernel tells which boot of the host this is.
BOOT_ID = '/proc/sys/kernel/random/boot_id'

#: The notes of one host.  Older ones go: there is one for each disk that
#: another guest had when a server was stopped, moved or deleted.
_MAX_NOTES = 1000

#: What os-brick needs to disconnect a volume: nothing of it is secret.
_PROPERTIES = frozenset((
    'target_portal', 'target_portals', 'target_iqn', 'target_iqns',
    'target_lun', 'target_luns', 'target_wwn', 'target_wwns',
    'target_discovered', 'addressing_mode', 'device_path', 'multipath_id',
    'volume_id'))


@dataclasses.dataclass(frozen=True)
class Suppressed:
    """A disk that was not disconnected."""

    server: str
    volume: str | None
    #: As the driver takes it.
    connection_info: Mapping[str, Any]
    #: The identity of each of its devices, by name.
    identities: Mapping[str, str]


class SuppressedDisconnects:
    """The notes of one host, in the store.

    Each method raises StoreError when the store cannot be used.
    """

    def __init__(self, path: str, host: str,
                 max_bytes: int = MAX_BYTES) -> None:
        self._database = Database(path, max_bytes)
        self._host = host

    def note(self, server: str, volume: str | None,
             connection_info: Mapping[str, Any]) -> None:
        """Note a disk that is not disconnected, if it has devices here."""
        identities = devices.unique_devices(connection_info)
        if not identities:
            return
        data = connection_info['data']
        connection = json.dumps({
            'driver_volume_type': connection_info.get('driver_volume_type'),
            'data': {name: data[name] for name in sorted(data)
                     if name in _PROPERTIES}})
        row = (self._host, server, volume or '', _boot(), time.time(),
               connection, json.dumps(identities, sort_keys=True))

        def write(connection: sqlite3.Connection) -> None:
            self._drop_others(connection)
            connection.execute(
                'INSERT OR REPLACE INTO suppressed VALUES '
                '(?, ?, ?, ?, ?, ?, ?)', row)
            connection.execute(
                'DELETE FROM suppressed WHERE host = ? AND time < (SELECT '
                'min(time) FROM (SELECT time FROM suppressed WHERE host = ? '
                'ORDER BY time DESC LIMIT ?))',
                (self._host, self._host, _MAX_NOTES))

        self._database.write(write, sum(map(len, row[5:])) + 300)

    def pending(self) -> tuple[Suppressed, ...]:
        """Return the notes of this boot, and drop those of earlier ones."""
        rows = self._database.read(lambda connection: connection.execute(
            'SELECT server, volume, connection, identities, boot FROM '
            'suppressed WHERE host = ? ORDER BY time',
            (self._host,)).fetchall()) or ()
        boot = _boot()
        if any(row[4] != boot for row in rows):
            self._database.write(self._drop_others)
        try:
            return tuple(
                Suppressed(server, volume or None, dict(json.loads(found)),
                           dict(json.loads(identities)))
                for server, volume, found, identities, noted in rows
                if noted == boot)
        except (ValueError, TypeError) as exc:
            raise self._database.damaged(
                'disconnect of host %s: %s' % (self._host, exc)) from exc

    def done(self, note: Suppressed) -> None:
        """Drop a note."""
        self._database.write(lambda connection: connection.execute(
            'DELETE FROM suppressed WHERE host = ? AND server = ? '
            'AND volume = ?', (self._host, note.server, note.volume or '')))

    def _drop_others(self, connection: sqlite3.Connection) -> None:
        """Drop the notes of earlier boots: their devices are gone."""
        connection.execute(
            'DELETE FROM suppressed WHERE host = ? AND boot <> ?',
            (self._host, _boot()))


def _boot() -> str:
    with open(BOOT_ID, encoding='ascii') as file:
        return file.read().strip()
