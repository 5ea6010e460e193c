# SPDX-License-Identifier: Apache-2.0
"""Copies of all that the services and hosts of a cloud know."""

from __future__ import annotations

import collections
import copy
import dataclasses
import sqlite3
from typing import Any

from nova_bdm_cleanup.tests.cloud import cinder, fixture


@dataclasses.dataclass(frozen=True)
class _Domain:
    """A guest, and what its libvirt knows of it."""

    domain: Any
    state: int
    is_transient: bool
    definition: dict[str, Any]


class SavedCloud:
    """The state of a cloud, which is restored as often as is wanted.

    The memory of the nova-computes is not restored: restart them.
    """

    def __init__(self, cloud: fixture.Cloud) -> None:
        self._cloud = cloud
        self._databases = cloud.nova.copy_databases()
        self._volumes: dict[str, tuple[str, list[Any]]] = {}
        with cloud.cinder.database() as database:
            for table in cinder._VOLUME_TABLES:
                self._volumes[table] = _rows(database, table)
        self._domains = {host: [
            _Domain(domain, domain._state, domain._transient,
                    copy.deepcopy(domain._def))
            for domain in cloud.nova.domains(host)] for host in cloud.hosts}
        self._connected = copy.deepcopy(cloud.nova.connected)
        self._addresses = dict(cloud.nova.kernel._properties)
        self._files = [path for path in cloud.nova.directory().glob('*-*-*/*')
                       if path.is_file()]

    def restore(self) -> None:
        cloud = self._cloud
        cloud.nova.restore_databases(self._databases)
        with cloud.cinder.database() as database:
            for table, (columns, rows) in self._volumes.items():
                database.execute(f'DELETE FROM {table}')  # noqa: S608
                database.executemany(
                    f'INSERT INTO {table} ({columns}) VALUES '  # noqa: S608
                    f'({", ".join("?" * (columns.count(",") + 1))})', rows)
        for host, domains in self._domains.items():
            connection = cloud.nova.connection(host)
            connection._vms.clear()
            connection._running_vms.clear()
            for number, each in enumerate(domains):
                domain = each.domain
                domain._state, domain._transient = (
                    each.state, each.is_transient)
                domain._def = copy.deepcopy(each.definition)
                connection._vms[domain.name()] = domain
                if domain.isActive():
                    # Higher than that of any guest that starts later.
                    connection._running_vms[1_000_000 + number] = domain
        cloud.nova.connected.clear()
        cloud.nova.connected.update({
            host: collections.Counter(volumes)
            for host, volumes in self._connected.items()})
        cloud.nova.kernel._properties.clear()
        cloud.nova.kernel._properties.update(self._addresses)
        for path in self._files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


def _rows(database: sqlite3.Connection, table: str) -> tuple[str, list[Any]]:
    found = database.execute(f'SELECT * FROM {table}')  # noqa: S608
    return (', '.join(each[0] for each in found.description),
            found.fetchall())
