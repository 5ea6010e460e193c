# SPDX-License-Identifier: Apache-2.0
"""What the periodic audit of a host knows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
import dataclasses
import sqlite3
from typing import NamedTuple

from nova_bdm_cleanup.node.store.database import Database, MAX_BYTES

#: A round need not come to the second.
_EARLY = 0.95


@dataclasses.dataclass(frozen=True)
class Sighting:
    """Something that is found at a server of a host."""

    server: str
    #: The uuid of the mapping.
    subject: str
    reason: str
    volume: str | None
    attachment: str | None
    device: str | None
    explanation: str
    #: Since when it is one.  This and what follows tell no two apart.
    first: float = dataclasses.field(default=0.0, compare=False)
    #: It was seen often enough to be told.
    announced: bool = dataclasses.field(default=False, compare=False)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.server, self.subject, self.reason


class Changes(NamedTuple):
    """What one round changes in what is known."""

    #: To be told now.
    new: tuple[Sighting, ...]
    #: Told before, and no longer so.
    gone: tuple[Sighting, ...]
    #: All that is there now.
    known: tuple[Sighting, ...]


@dataclasses.dataclass(frozen=True)
class Round:
    """What is known of the rounds of a host."""

    #: When the last good one was; None: there was none yet.
    succeeded: float | None = None
    servers: int = 0
    volumes: int = 0
    requests: int = 0
    seconds: float = 0.0
    #: How many have failed since then, and why the last one did.
    failed: int = 0
    problem: str = ''
    #: When the next one is to come.
    next: float = 0.0


class Watch:
    """What the audit of one host keeps from round to round.

    Each method raises StoreError when the store cannot be used.
    """

    def __init__(self, path: str, host: str,
                 max_bytes: int = MAX_BYTES) -> None:
        self._database = Database(path, max_bytes)
        self._host = host

    def succeeded(self, moment: float, interval: float, done: Round,
                  seen: Sequence[Sighting],
                  busy: Collection[str]) -> Changes:
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
                [(self._host, *s.key, s.first, s.announced, s.volume,
                  s.attachment, s.device, s.explanation)
                 for s in changes.known])
            self._remember(connection, done)
            return changes

        return self._database.write(
            change, sum(len(s.explanation) + 300 for s in seen))

    def failed(self, done: Round) -> None:
        """A round failed, and what is known stays as it is."""
        self._database.write(
            lambda connection: self._remember(connection, done))

    def _remember(self, connection: sqlite3.Connection, done: Round) -> None:
        connection.execute(
            'INSERT OR REPLACE INTO round VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
            (self._host, *dataclasses.astuple(done)))

    def known(self) -> tuple[Sighting, ...]:
        """Everything that the last good round found."""
        return self._database.read(self._known) or ()

    def last(self) -> Round:
        """The last rounds."""
        row = self._database.read(lambda connection: connection.execute(
            'SELECT succeeded, servers, volumes, requests, seconds, failed, '
            'problem, next FROM round WHERE host = ?',
            (self._host,)).fetchone())
        return Round(*row) if row else Round()

    def _known(self, connection: sqlite3.Connection
               ) -> tuple[Sighting, ...]:
        rows = connection.execute(
            'SELECT server, subject, reason, volume, attachment, device, '
            'explanation, first, announced FROM finding WHERE host = ? '
            'ORDER BY server, subject, reason', (self._host,)).fetchall()
        # SQLite has numbers for truth values, which serve as well.
        return tuple(Sighting(*row) for row in rows)


def _compare(known: Sequence[Sighting], seen: Sequence[Sighting],
             busy: Collection[str], moment: float,
             interval: float) -> Changes:
    before = {s.key: s for s in known}
    now = {key: s for key, s in before.items() if s.server in busy}
    new = []
    for sighting in seen:
        old = before.get(sighting.key)
        # A clock that was set back makes nothing new again.
        first = moment if old is None else min(old.first, moment)
        told = old is not None and old.announced
        if not told and moment - first >= interval * _EARLY:
            new.append(sighting.key)
            told = True
        now[sighting.key] = dataclasses.replace(
            sighting, first=first, announced=told)
    return Changes(
        tuple(now[key] for key in new),
        tuple(s for s in known if s.announced and s.key not in now),
        tuple(now[key] for key in sorted(now)))
