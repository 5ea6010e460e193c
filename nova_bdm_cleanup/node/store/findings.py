# SPDX-License-Identifier: Apache-2.0
"""The findings and rounds of the periodic audit of a host."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
import dataclasses
import math
import sqlite3
from typing import Any, NamedTuple

from nova_bdm_cleanup.node.store.database import (
    Database,
    MAX_BYTES,
    text,
    timestamp,
)

#: Share of the interval after which a finding has been seen in two rounds: a
#: round may come a little early.
_SEEN_TWICE_SHARE_OF_INTERVAL = 0.95


@dataclasses.dataclass(frozen=True)
class RecordedFinding:
    """A finding of the periodic audit, as it is kept from round to round."""

    server: str
    #: The uuid of the BDM, or the id of the attachment.
    subject: str
    reason: str
    volume: str | None
    attachment: str | None
    device: str | None
    explanation: str
    #: When it was first seen.  A comparison of findings ignores this field and
    #: the next one.
    first: float = dataclasses.field(default=0.0, compare=False)
    #: Two rounds have seen it, so it was logged.
    announced: bool = dataclasses.field(default=False, compare=False)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.server, self.subject, self.reason


class Changes(NamedTuple):
    """The changes that a look at a server makes to its findings."""

    #: To be logged now.
    new: tuple[RecordedFinding, ...]
    #: Logged before, and no longer there.
    gone: tuple[RecordedFinding, ...]
    #: All that are there now.
    present: tuple[RecordedFinding, ...]


@dataclasses.dataclass(frozen=True)
class Round:
    """The last rounds of a host."""

    #: When the last successful one ended; None: there was none yet.
    succeeded: float | None = None
    #: What it has looked at, and how long that took.
    servers: int = 0
    volumes: int = 0
    seconds: float = 0.0
    #: How many have failed since then, and why the last one did.
    failed: int = 0
    problem: str = ''
    #: The time of the next one.
    next: float = 0.0


class FindingStore:
    """The findings and rounds of one host, in the store.

    Each method raises StoreError when the store cannot be used.
    """

    def __init__(self, path: str, host: str,
                 max_bytes: int = MAX_BYTES) -> None:
        self._database = Database(path, max_bytes)
        self._host = host
        #: When this process has first seen each finding that is there, on a
        #: clock that is never set.  Another process has another such clock, so
        #: the store does not keep these times.
        self._seen: dict[tuple[str, str, str], float] = {}

    def record_server(self, server: str, moment: float, uptime: float,
                      interval: float, found: Sequence[RecordedFinding],
                      is_judged: bool = True) -> Changes:
        """Record a look at a server.

        A finding is new when it was first seen an interval ago: by the clock,
        and by the uptime if this process has seen it.  So a clock that is set
        forward makes no finding new, unless nova-compute was restarted.

        :param moment: when it was looked at
        :param uptime: the same on a clock that is never set, which starts with
            this process or before
        :param interval: seconds from one round to the next
        :param found: all its findings
        :param is_judged: False: it could not be judged; its other findings
            stay
        :returns: the changes
        :raises StoreError: when it cannot be recorded; nothing has changed
        """
        def change(connection: sqlite3.Connection) -> Changes:
            changes = _compare(
                self._findings(connection, server), found, is_judged, moment,
                interval * _SEEN_TWICE_SHARE_OF_INTERVAL,
                {key: uptime - seen for key, seen in self._seen.items()})
            self._forget(connection, server)
            connection.executemany(
                'INSERT INTO finding VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
                [(self._host, *s.key, s.first, s.announced, s.volume,
                  s.attachment, s.device, s.explanation)
                 for s in changes.present])
            return changes

        changes = self._database.write(
            change, sum(len(s.explanation) + 300 for s in found))
        present = {finding.key for finding in changes.present}
        self._seen = {
            **{finding.key: uptime for finding in found},
            **{key: seen for key, seen in self._seen.items()
               if key[0] != server or key in present}}
        return changes

    def record_success(self, done: Round, here: Collection[str]
                       ) -> tuple[RecordedFinding, ...]:
        """Record a round that succeeded.

        :param here: the servers of this host; the findings of others go
        :returns: the findings that were logged before and are gone
        """
        def change(connection: sqlite3.Connection
                   ) -> tuple[RecordedFinding, ...]:
            left = [finding for finding in self._findings(connection)
                    if finding.server not in here]
            for server in {finding.server for finding in left}:
                self._forget(connection, server)
            self._record(connection, done)
            return tuple(finding for finding in left if finding.announced)

        gone = self._database.write(change)
        self._seen = {key: seen for key, seen in self._seen.items()
                      if key[0] in here}
        return gone

    def record(self, done: Round) -> None:
        """Record a round that began or failed; the findings stay."""
        self._database.write(
            lambda connection: self._record(connection, done))

    def _forget(self, connection: sqlite3.Connection, server: str) -> None:
        connection.execute('DELETE FROM finding WHERE host = ? AND server = ?',
                           (self._host, server))

    def _record(self, connection: sqlite3.Connection, done: Round) -> None:
        connection.execute(
            'INSERT OR REPLACE INTO round (host, succeeded, servers, volumes, '
            'seconds, failed, problem, next) VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
            (self._host, *dataclasses.astuple(done)))

    def findings(self) -> tuple[RecordedFinding, ...]:
        """Return all findings, each as its server was last looked at."""
        return self._database.read(self._findings) or ()

    def last_round(self) -> Round:
        """Return what is recorded of the last rounds."""
        def select(connection: sqlite3.Connection) -> Round | None:
            row = connection.execute(
                'SELECT succeeded, servers, volumes, seconds, failed, '
                'problem, next FROM round WHERE host = ?',
                (self._host,)).fetchone()
            if row is None:
                return None
            succeeded, servers, volumes, seconds, failed, problem, then = row
            return Round(
                None if succeeded is None else timestamp(succeeded),
                int(servers), int(volumes), float(seconds), int(failed),
                text(problem), timestamp(then))

        return self._database.read(select) or Round()

    def _findings(self, connection: sqlite3.Connection,
                  server: str | None = None) -> tuple[RecordedFinding, ...]:
        """Return the findings of one server, or of all."""
        rows: Iterable[Sequence[Any]] = connection.execute(
            'SELECT server, subject, reason, volume, attachment, device, '
            'explanation, first, announced FROM finding WHERE host = ? '
            'AND server = ifnull(?, server) '
            'ORDER BY server, subject, reason', (self._host, server))
        return tuple(RecordedFinding(
            text(server), text(subject), text(reason), volume and text(volume),
            attachment and text(attachment), device and text(device),
            text(explanation), timestamp(first), bool(announced))
            for server, subject, reason, volume, attachment, device,
            explanation, first, announced in rows)


def _compare(recorded: Sequence[RecordedFinding],
             found: Sequence[RecordedFinding], is_judged: bool,
             moment: float, apart: float,
             ages: Mapping[tuple[str, str, str], float]) -> Changes:
    """Return the changes that a look at a server makes.

    :param apart: the seconds between two looks that have seen a finding
    :param ages: the seconds since this process has first seen each finding, by
        key
    """
    before = {finding.key: finding for finding in recorded}
    present = {} if is_judged else dict(before)
    new = []
    for finding in found:
        old = before.get(finding.key)
        # A clock that was set back must not make an old finding new.
        first = moment if old is None else min(old.first, moment)
        announced = old is not None and old.announced
        if not announced and apart <= min(
                moment - first, ages.get(finding.key, math.inf)):
            new.append(finding.key)
            announced = True
        present[finding.key] = dataclasses.replace(
            finding, first=first, announced=announced)
    return Changes(
        tuple(present[key] for key in new),
        tuple(finding for finding in recorded
              if finding.announced and finding.key not in present),
        tuple(present.values()))
