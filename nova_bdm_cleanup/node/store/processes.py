# SPDX-License-Identifier: Apache-2.0
"""The nova-computes in which the plugin was installed or refused.

Several may share one store, each under its name in Nova: ``[DEFAULT] host``.
A running one holds the lock of a file next to the store, which the kernel
releases when the process ends, even by a signal.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import fcntl
import json
import os
import sqlite3
import stat
import time
from typing import Any, Callable

from nova_bdm_cleanup.node.store.database import (
    Database,
    host_path,
    LOCK_TIMEOUT,
    StoreError,
    text,
    timestamp,
)

#: Seconds between two attempts to take the lock of a process.
_LOCK_RETRY_SECONDS = 0.01

#: The facts that the commands read, and what they are.
_KINDS: dict[str, Callable[[Any], Any]] = {
    'version': text, 'nova_version': text, 'triggers': text, 'mode': text,
    'max_removals_per_hour': int, 'audit_interval': int}

#: Locks that this process holds until it ends: descriptors by path.
_held_locks: dict[str, int] = {}


@dataclasses.dataclass(frozen=True)
class Process:
    """A nova-compute in which the plugin was installed or refused."""

    host: str
    pid: int
    #: When the plugin was started in it.
    since: float
    #: Why the plugin was not installed; empty: it was.
    problem: str
    #: Versions and options, for people.
    facts: Mapping[str, Any]


class Processes:
    """The records of the nova-compute of one host.

    Each method raises StoreError when the store cannot be used.
    """

    def __init__(self, path: str, host: str) -> None:
        self._database = Database(path)
        self._host = host
        self._lock = _lock_of(self._database, host)

    def is_running(self) -> bool:
        """Return whether the nova-compute of this host runs."""
        try:
            lock = _lock_file(self._lock, os.O_RDONLY, fcntl.LOCK_EX)
        except FileNotFoundError:
            return False
        if lock is not None:
            os.close(lock)
        return lock is None

    def last(self) -> Process | None:
        """Return the process that was recorded last for this host."""
        def select(connection: sqlite3.Connection) -> Process | None:
            row = connection.execute(
                'SELECT since, identity, problem, facts FROM process '
                'WHERE host = ?', (self._host,)).fetchone()
            if row is None:
                return None
            since, identity, problem, facts = row
            return Process(
                self._host, int(dict(json.loads(identity)).get('pid', '')),
                timestamp(since), text(problem), {
                    name: _KINDS.get(name, lambda value: value)(value)
                    for name, value in dict(json.loads(facts)).items()})

        return self._database.read(select)

    def hosts(self) -> tuple[str, ...]:
        """Return the names of all hosts for which a process was recorded."""
        return self._database.read(lambda connection: tuple(
            text(row[0]) for row in connection.execute(
                'SELECT host FROM process ORDER BY host').fetchall())) or ()


def record(process: Process, path: str) -> None:
    """Record that the nova-compute of a host is this process.

    :param path: the path of the store
    :raises StoreError: when the store, or the file beside it, cannot be used
    """
    database = Database(path)
    database.write(
        lambda connection: connection.execute(
            'INSERT OR REPLACE INTO process VALUES (?, ?, ?, ?, ?)',
            (process.host, process.since, json.dumps({'pid': process.pid}),
             process.problem, json.dumps(process.facts))))
    lock = _lock_of(database, process.host)
    if lock not in _held_locks:
        _held_locks[lock] = _hold(lock)


def _lock_of(database: Database, host: str) -> str:
    """Return the path of the file that the nova-compute of a host locks."""
    return host_path(database.path, host, 'lock')


def _hold(path: str) -> int:
    end = time.monotonic() + LOCK_TIMEOUT
    while True:
        # Shared: the previous nova-compute may still be about to end.
        lock = _lock_file(path, os.O_RDWR | os.O_CREAT, fcntl.LOCK_SH)
        if lock is not None:
            return lock
        if time.monotonic() >= end:
            raise StoreError(
                'lock %s: another process has held the lock for too long; '
                'find out which (fuser) and why' % path)
        # Perhaps ``status`` tests the lock at this moment.
        time.sleep(_LOCK_RETRY_SECONDS)


def _lock_file(path: str, flags: int, operation: int) -> int | None:
    """Open a file and lock it.

    :returns: its descriptor; None when another process holds the lock
    """
    try:
        # Otherwise a pipe would have this wait.
        lock = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(lock).st_mode):
                raise StoreError('lock %s: it is not a regular file; remove '
                                 'it, and restart nova-compute' % path)
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
            % (path, exc.strerror)) from exc
