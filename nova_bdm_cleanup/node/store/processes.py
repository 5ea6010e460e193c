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

from nova_bdm_cleanup.node.store.database import Database, PATIENCE, StoreError

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


def started(process: Process, path: str) -> None:
    """From now on the nova-compute of that name is this process.

    :param path: of the store
    :raises StoreError: when the store, or the file beside it, cannot be used
    """
    database = Database(path)
    database.write(
        lambda connection: connection.execute(
            'INSERT OR REPLACE INTO process VALUES (?, ?, ?, ?, ?)',
            (process.host, process.since, json.dumps({'pid': process.pid}),
             process.problem, json.dumps(process.facts))))
    lock = lock_of(database, process.host)
    if lock not in _held:
        _held[lock] = _hold(lock)


def lock_of(database: Database, host: str) -> str:
    """The path of the file that the nova-compute of one name locks."""
    return '%s-%s.lock' % (database.path, urllib.parse.quote(host, safe=''))


def _hold(path: str) -> int:
    end = time.monotonic() + PATIENCE
    while True:
        # Shared: the one before may still be about to end.
        lock = locked(path, os.O_RDWR | os.O_CREAT, fcntl.LOCK_SH)
        if lock is not None:
            return lock
        if time.monotonic() >= end:
            raise StoreError(
                'lock %s: another process holds it for too long; find out '
                'which (fuser) and why' % path)
        # Somebody just looks whether it is held.
        time.sleep(_PAUSE)


def locked(path: str, flags: int, operation: int) -> int | None:
    """The file, open and locked; None: others keep it from being so."""
    try:
        lock = os.open(path, flags | os.O_NOFOLLOW, 0o600)
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
            % (path, exc.strerror)) from exc
