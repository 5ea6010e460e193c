# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""What the periodic audit knows, and which nova-compute is the one here.

Several nova-computes may share one store, each of them under the name that
Nova knows it by: ``[DEFAULT] host``.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from typing import (
    Any,
    Collection,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
)

from nova_bdm_cleanup.store import journal
from nova_bdm_cleanup.store.database import Database
from nova_bdm_cleanup.store.database import Tables

_TABLES = Tables('watch', ((
    """CREATE TABLE finding (
        host TEXT, server TEXT, subject TEXT, reason TEXT,
        first REAL NOT NULL, announced INTEGER NOT NULL,
        volume TEXT, attachment TEXT, device TEXT,
        explanation TEXT NOT NULL,
        PRIMARY KEY (host, server, subject, reason)) WITHOUT ROWID""",
    """CREATE TABLE round (
        host TEXT PRIMARY KEY, succeeded REAL, servers INTEGER,
        volumes INTEGER, requests INTEGER, seconds REAL,
        failed INTEGER NOT NULL, problem TEXT, next REAL NOT NULL)
    WITHOUT ROWID""",
    """CREATE TABLE process (
        host TEXT PRIMARY KEY, since REAL NOT NULL, identity TEXT NOT NULL,
        problem TEXT NOT NULL, facts TEXT NOT NULL) WITHOUT ROWID""",
),))

#: A round need not come to the second.
_EARLY = 0.95


@dataclasses.dataclass(frozen=True)
class Sighting:
    """Something that is found at a server of a host."""

    server: str
    #: The uuid of the mapping.
    subject: str
    reason: str
    volume: Optional[str]
    attachment: Optional[str]
    device: Optional[str]
    explanation: str

    @property
    def key(self) -> Tuple[str, str, str]:
        return self.server, self.subject, self.reason


@dataclasses.dataclass(frozen=True)
class Known:
    """A sighting, and since when it is one."""

    sighting: Sighting
    first: float
    #: It was seen often enough to be told.
    announced: bool


@dataclasses.dataclass(frozen=True)
class Changes:
    """What one round changes in what is known."""

    #: To be told now.
    new: Tuple[Sighting, ...] = ()
    #: Told before, and no longer so.
    gone: Tuple[Sighting, ...] = ()
    #: All that is there now.
    known: Tuple[Known, ...] = ()


@dataclasses.dataclass(frozen=True)
class Round:
    """What is known of the rounds of a host."""

    #: When the last good one was; None: there was none yet.
    succeeded: Optional[float] = None
    servers: int = 0
    volumes: int = 0
    requests: int = 0
    seconds: float = 0.0
    #: How many have failed since then, and why the last one did.
    failed: int = 0
    problem: str = ''
    #: When the next one is to come.
    next: float = 0.0


@dataclasses.dataclass(frozen=True)
class Process:
    """A nova-compute that has, or was to have, the plugin in it."""

    host: str
    #: When the plugin was started in it.
    since: float
    #: What tells the process from every other.
    identity: Mapping[str, Any]
    #: Why the plugin was not installed; empty: it was.
    problem: str
    #: Versions and options, for people.
    facts: Mapping[str, Any]


class Watch:
    """What the audit of one host keeps from round to round.

    :param path: the file of the store
    :param max_bytes: the size that it may have
    :param host: the name of the nova-compute
    """

    def __init__(self, path: str, max_bytes: int, host: str) -> None:
        self._database = Database(path, max_bytes, _TABLES)
        self._host = host

    def succeeded(self, moment: float, interval: float, done: Round,
                  seen: Sequence[Sighting], busy: Collection[str]) -> Changes:
        """A round is over.

        :param moment: when it began
        :param interval: how far apart a finding has to be seen twice
        :param done: what to remember of it
        :param seen: everything that was found
        :param busy: the servers that were not looked at, of which nothing
            has changed
        :returns: what is to be told
        :raises StoreError: and then nothing is told, nor remembered
        """
        def change(connection: sqlite3.Connection) -> Changes:
            changes = _compare(self._known(connection), seen, busy, moment,
                               interval)
            connection.execute('DELETE FROM finding WHERE host = ?',
                               (self._host,))
            connection.executemany(
                'INSERT INTO finding VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
                [(self._host, *k.sighting.key, k.first, k.announced,
                  k.sighting.volume, k.sighting.attachment,
                  k.sighting.device, k.sighting.explanation)
                 for k in changes.known])
            self._remember(connection, done)
            return changes

        return self._database.write(
            change, sum(len(s.explanation) + 300 for s in seen),
            journal.discard_oldest)

    def failed(self, done: Round) -> None:
        """A round failed, and what is known stays as it is.

        :raises StoreError: when that cannot be written
        """
        self._database.write(
            lambda connection: self._remember(connection, done),
            discard=journal.discard_oldest)

    def _remember(self, connection: sqlite3.Connection, done: Round) -> None:
        connection.execute(
            'INSERT OR REPLACE INTO round VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
            (self._host, *dataclasses.astuple(done)))

    def started(self, process: Process) -> None:
        """A nova-compute of this name has started.

        :raises StoreError: when that cannot be written
        """
        self._database.write(
            lambda connection: connection.execute(
                'INSERT OR REPLACE INTO process VALUES (?, ?, ?, ?, ?)',
                (process.host, process.since, json.dumps(process.identity),
                 process.problem, json.dumps(process.facts))),
            discard=journal.discard_oldest)

    # What is known

    def known(self) -> Tuple[Known, ...]:
        """Everything that the last good round found.

        :raises StoreError: when it cannot be read
        """
        return self._database.read(self._known) or ()

    def last(self) -> Round:
        """The last rounds.

        :raises StoreError: when they cannot be read
        """
        def select(connection: sqlite3.Connection) -> Sequence[Any]:
            row: Sequence[Any] = connection.execute(
                'SELECT succeeded, servers, volumes, requests, seconds, '
                'failed, problem, next FROM round WHERE host = ?',
                (self._host,)).fetchone()
            return row

        row = self._database.read(select)
        return Round(*row) if row else Round()

    def process(self) -> Optional[Process]:
        """The last nova-compute of this name that was to have the plugin.

        :raises StoreError: when it cannot be read
        """
        def select(connection: sqlite3.Connection) -> Sequence[Any]:
            row: Sequence[Any] = connection.execute(
                'SELECT host, since, identity, problem, facts FROM process '
                'WHERE host = ?', (self._host,)).fetchone()
            return row

        row = self._database.read(select)
        if not row:
            return None
        host, since, identity, problem, facts = row
        try:
            return Process(host, since, dict(json.loads(identity)), problem,
                           dict(json.loads(facts)))
        except (ValueError, TypeError) as exc:
            raise self._database.damaged(
                'process of host %s: %s' % (host, exc)) from exc

    def hosts(self) -> Tuple[str, ...]:
        """The names of all nova-computes that were to have the plugin.

        :raises StoreError: when they cannot be read
        """
        return self._database.read(lambda connection: tuple(
            row[0] for row in connection.execute(
                'SELECT host FROM process ORDER BY host').fetchall())) or ()

    def _known(self, connection: sqlite3.Connection) -> Tuple[Known, ...]:
        rows = connection.execute(
            'SELECT server, subject, reason, volume, attachment, device, '
            'explanation, first, announced FROM finding WHERE host = ? '
            'ORDER BY server, subject, reason', (self._host,)).fetchall()
        return tuple(Known(Sighting(*row[:7]), row[7], bool(row[8]))
                     for row in rows)


def _compare(known: Sequence[Known], seen: Sequence[Sighting],
             busy: Collection[str], moment: float,
             interval: float) -> Changes:
    before: Dict[Tuple[str, str, str], Known] = {
        k.sighting.key: k for k in known}
    now: Dict[Tuple[str, str, str], Known] = {
        key: k for key, k in before.items() if k.sighting.server in busy}
    new: List[Sighting] = []
    for sighting in seen:
        old = before.get(sighting.key)
        # A clock that was set back makes nothing new again.
        first = moment if old is None else min(old.first, moment)
        told = old is not None and old.announced
        if not told and moment - first >= interval * _EARLY:
            new.append(sighting)
            told = True
        now[sighting.key] = Known(sighting, first, told)
    return Changes(
        tuple(new),
        tuple(k.sighting for key, k in before.items()
              if k.announced and key not in now),
        tuple(now[key] for key in sorted(now)))
