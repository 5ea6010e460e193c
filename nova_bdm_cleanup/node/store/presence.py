# SPDX-License-Identifier: Apache-2.0
"""Whether a nova-compute has the plugin in it, for who asks."""

from __future__ import annotations

import fcntl
import json
import os

from nova_bdm_cleanup.node.store.database import Database
from nova_bdm_cleanup.node.store.processes import lock_of, locked, Process


class Processes:
    """What is kept of the nova-compute of one name.

    Each method raises StoreError when the store cannot be used.
    """

    def __init__(self, path: str, host: str) -> None:
        self._database = Database(path)
        self._host = host
        self._lock = lock_of(self._database, host)

    def is_running(self) -> bool:
        """Whether the last one that was started still runs."""
        try:
            lock = locked(self._lock, os.O_RDONLY, fcntl.LOCK_EX)
        except FileNotFoundError:
            return False
        if lock is not None:
            os.close(lock)
        return lock is None

    def last(self) -> Process | None:
        """The last nova-compute of this name that was to have the plugin."""
        row = self._database.read(lambda connection: connection.execute(
            'SELECT host, since, identity, problem, facts FROM process '
            'WHERE host = ?', (self._host,)).fetchone())
        if not row:
            return None
        host, since, identity, problem, facts = row
        try:
            return Process(host, int(dict(json.loads(identity))['pid']),
                           since, problem, dict(json.loads(facts)))
        except (ValueError, TypeError, KeyError) as exc:
            raise self._database.damaged(
                'process of host %s: %s' % (host, exc)) from exc

    def hosts(self) -> tuple[str, ...]:
        """The names of all nova-computes that were to have the plugin."""
        return self._database.read(lambda connection: tuple(
            row[0] for row in connection.execute(
                'SELECT host FROM process ORDER BY host').fetchall())) or ()
