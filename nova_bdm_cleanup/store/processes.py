# SPDX-License-Identifier: Apache-2.0
"""Which nova-computes have, or were to have, the plugin in them.

Several may share one store, each of them under the name that Nova knows it
by: ``[DEFAULT] host``.  One that runs holds the lock of a file next to the
store, which the kernel frees when it ends, however that comes about.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import fcntl
import json
import os
import time
from typing import Any
import urllib.parse

from nova_bdm_cleanup.store.database import Database, PATIENCE, StoreError

#: Seconds between two attempts to take the lock.
_PAUSE = 0.01

#: The files of which this process holds the locks, to its end.
_held: dict[str, int] = {}


@dataclasses.dataclass(frozen=True)
class Process:
    """A nova-compute that has, or was to have, the plugin in it."""

    host: str
    pid: int
    #: When the plugin was started in it.
    since: float
    #: Why the plugin was not installed; empty: it was.
    problem: str
    #: Versions and options, for people.
    facts: Mapping[str, Any]


class Processes:
    """What is kept of the nova-compute of one name.

    Each method raises StoreError when the store cannot be used.
    """

    def __init__(self, path: str, max_bytes: int, host: str) -> None:
        self._database = Database(path, max_bytes)
        self._host = host
        self._lock = '%s-%s.lock' % (
            self._database.path, urllib.parse.quote(host, safe=''))

    def started(self, process: Process) -> None:
        """From now on that nova-compute is this process."""
        self._database.write(
            lambda connection: connection.execute(
                'INSERT OR REPLACE INTO process VALUES (?, ?, ?, ?, ?)',
                (process.host, process.since, json.dumps({'pid': process.pid}),
                 process.problem, json.dumps(process.facts))))
        if self._lock not in _held:
            _held[self._lock] = self._hold()

    def is_running(self) -> bool:
        """Whether the last one that was started still runs."""
        try:
            lock = self._locked(os.O_RDONLY, fcntl.LOCK_EX)
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

    def _hold(self) -> int:
        end = time.monotonic() + PATIENCE
        while True:
            # Shared: the one before may still be about to end.
            lock = self._locked(os.O_RDWR | os.O_CREAT, fcntl.LOCK_SH)
            if lock is not None:
                return lock
            if time.monotonic() >= end:
                raise StoreError(
                    'lock %s: another process holds it for too long; find out '
                    'which (fuser) and why' % self._lock)
            # Somebody just looks whether it is held.
            time.sleep(_PAUSE)

    def _locked(self, flags: int, operation: int) -> int | None:
        """The file, open and locked; None: others keep it from being so."""
        try:
            lock = os.open(self._lock, flags | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, operation | fcntl.LOCK_NB)
            except BaseException:
                os.close(lock)
                raise
            return lock
        except BlockingIOError:
            return None
        except FileNotFoundError:
            raise
        except OSError as exc:
            raise StoreError(
                'lock %s: %s; it must be accessible to the user that '
                'nova-compute runs as, on a file system that has locks'
                % (self._lock, exc.strerror)) from exc
