# SPDX-License-Identifier: Apache-2.0
"""The journal: every plan and every step, from which a removal is undone.

An action that cannot be recorded is not carried out, so a failed write is an
error, never a warning.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
import dataclasses
import json
import sqlite3
import time
from typing import Any, Callable

from nova_bdm_cleanup.node.store.database import (
    Database,
    deletion_of,
    LOCK_TIMEOUT,
    MAX_BYTES,
    text,
    timestamp,
)

#: The kinds of removals, which ``max_removals_per_hour`` counts apart: any
#: number of attachments can be made, and must not keep the mappings.
MAPPINGS, ATTACHMENTS = 'mappings', 'stale attachments'

#: The kinds of actions in a plan.
REMOVE, RECONNECT = 'remove-bdm', 'reconnect'
ADOPT, DELETE = 'adopt', 'delete-attachment'

#: The name of an account: the kind of the removals, and who is charged.
_ACCOUNT = '%s of %s'

#: How far back an hourly limit counts, in seconds.
_LIMIT_WINDOW_SECONDS = 3600.0

#: Digits of the identifier of an entry.
_ID_DIGITS = '0123456789abcdefghijklmnopqrstuvwxyz'

#: Outcome of an entry that changed nothing.  It is not kept: no project is
#: charged for it, and it would push out one that undoes something.
NOTHING = 'nothing'

#: Outcome of an unfinished entry: a crash, or still in progress.
INTERRUPTED = 'interrupted'

_SELECT_ENTRIES = ('SELECT serial, time, record, outcome '
            'FROM entry JOIN plan ON plan.entry = serial ')
_BY_TIME = _SELECT_ENTRIES + 'WHERE time >= ? ORDER BY time, serial'
_BY_SERVER = _SELECT_ENTRIES + ('WHERE time >= ? AND server = ? '
                                'ORDER BY time, serial')
_BY_SERIAL = _SELECT_ENTRIES + 'WHERE serial = ?'


class LimitReached(Exception):
    """The plan would exceed an hourly limit."""

    def __init__(self, account: str, done: int, limit: int) -> None:
        super().__init__('%d %s within the last hour, the limit is %d'
                         % (done, account, limit))
        self.account = account
        self.done = done
        self.limit = limit


@dataclasses.dataclass(frozen=True)
class Charge:
    """The part of an hourly limit that a plan uses."""

    #: Its name, from :func:`account_of`.
    account: str
    amount: int
    limit: int


class Entry:
    """An entry that is being written, made by :meth:`Journal.begin`."""

    def __init__(self, database: Database, serial: int,
                 clock: Callable[[], float]) -> None:
        self.id = _identifier_of(serial)
        self._database = database
        self._serial = serial
        self._now = clock
        self._steps = 0
        self._ended = False
        # A step that could not be written is written with the next one, so
        # that an entry with an end has all its steps.
        self._pending: list[tuple[str, Sequence[Any]]] = []

    def step(self, name: str, outcome: str, **subject: Any) -> None:
        """Record one step.

        :param outcome: ``done``, ``failed`` or ``skipped``
        :raises StoreError: when it could not be written; it is kept and
            written together with the next one
        """
        # If the store stays locked, only the first step waits for it.
        timeout = 0.0 if self._pending else LOCK_TIMEOUT
        self._steps += 1
        self._pending.append((
            # Writes nothing if the entry is gone, and no step twice if only
            # the result of the first attempt was lost.
            'INSERT OR IGNORE INTO step SELECT serial, ?, ?, ?, ?, ? '
            'FROM entry WHERE serial = ?',
            (self._steps, self._now(), name, outcome,
             json.dumps(subject, default=str), self._serial)))
        self._write(timeout)

    def finish(self, outcome: str, spent: Mapping[str, int]) -> None:
        """Record the end; a second call only writes what is pending.

        :param outcome: ``done``, ``partly`` or :data:`NOTHING`
        :param spent: what was used of each limit; it replaces the amounts
            that the plan was charged for
        :raises StoreError: when it could not be written
        """
        if not self._ended:
            self._ended = True
            if outcome == NOTHING:
                self._pending = deletion_of(self._serial)
            else:
                self._pending.append((
                    'UPDATE entry SET outcome = ? WHERE serial = ?',
                    (outcome, self._serial)))
            self._pending.append((
                'UPDATE charge SET amount = 0 WHERE entry = ?',
                (self._serial,)))
            # Not a new row: its time may have been corrected meanwhile.
            self._pending += [
                ('UPDATE charge SET amount = ? WHERE entry = ? '
                 'AND account = ?', (amount, self._serial, account))
                for account, amount in spent.items()]
        self._write(LOCK_TIMEOUT)

    def _write(self, timeout: float) -> None:
        def execute(connection: sqlite3.Connection) -> None:
            for statement, values in self._pending:
                connection.execute(statement, values)

        if self._pending:
            self._database.write(
                execute, sum(len(str(values)) for _, values in self._pending),
                self._serial, timeout)
            self._pending.clear()


@dataclasses.dataclass(frozen=True)
class RecordedStep:
    """A step as it was read: done, failed, or skipped."""

    time: float
    name: str
    outcome: str
    subject: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class RecordedEntry:
    """An entry as it was read."""

    id: str
    time: float
    #: The plan.
    record: Mapping[str, Any]
    steps: tuple[RecordedStep, ...]
    outcome: str

    @property
    def removed(self) -> tuple[str, ...]:
        """Return the uuids of the mappings that were removed."""
        return self._done('destroy', 'bdm')

    @property
    def removals(self) -> int:
        """Return how many mappings and attached attachments were planned."""
        return len(self._attached()) + len([
            action for action in objects(self.record, 'actions')
            if action.get('kind') == REMOVE])

    @property
    def carried_out(self) -> int:
        """Return how many of the removals are done."""
        return len(self.removed) + len(self._attached().intersection(
            self._done('delete-attachment', 'attachment')))

    def _done(self, name: str, key: str) -> tuple[str, ...]:
        return tuple(str(s.subject.get(key)) for s in self.steps
                     if s.name == name and s.outcome == 'done')

    def _attached(self) -> set[str]:
        """Return the ids of the planned attachments that count as removals."""
        return {str(attachment.get('id'))
                for action in objects(self.record, 'actions')
                if action.get('kind') == DELETE
                for attachment in objects(action, 'attachment')
                if attachment.get('status') == 'attached'}


class Journal:
    """The journal.  Threads may share one, and its methods raise StoreError.

    :param max_bytes: its maximum size; the oldest entries are deleted first
    """

    def __init__(self, path: str, max_bytes: int = MAX_BYTES,
                 clock: Callable[[], float] = time.time) -> None:
        self._database = Database(path, max_bytes)
        # Room for the steps of a new entry.
        self._reserve = max_bytes // 8
        self._now = clock
        #: Whether there is a store yet.
        self.exists = self._database.exists

    def begin(self, record: Mapping[str, Any], charges: Sequence[Charge], *,
              server: str) -> Entry:
        """Write a plan, unless it would exceed an hourly limit.

        When this returns, the plan survives a crash of the host.

        :param record: the plan, in types of JSON
        :param charges: what it uses of the hourly limits
        :returns: the entry, to record the steps and the end
        :raises StoreError: when it could not be written
        :raises LimitReached: when the plan would exceed an hourly limit
        """
        text = json.dumps(record, default=str)
        # In a transaction of its own, which a reached limit does not undo.
        self.correct_dates()

        def insert(connection: sqlite3.Connection) -> Entry:
            now = self._now()
            connection.execute('DELETE FROM charge WHERE time < ?',
                               (now - _LIMIT_WINDOW_SECONDS,))
            due = [c for c in charges if c.amount]
            for charge in due:
                done = _spent(connection, charge.account, now)
                if done + charge.amount > charge.limit:
                    raise LimitReached(charge.account, done, charge.limit)
            serial = max(int(now * 1000), 1 + connection.execute(
                'SELECT coalesce(max(seq), 0) FROM sqlite_sequence '
                "WHERE name = 'entry'").fetchone()[0])
            connection.execute(
                'INSERT INTO entry VALUES (?, ?, ?, NULL)',
                (serial, now, server))
            connection.execute('INSERT INTO plan VALUES (?, ?)',
                               (serial, text))
            connection.executemany(
                'INSERT INTO charge VALUES (?, ?, ?, ?)',
                [(serial, c.account, now, c.amount) for c in due])
            return Entry(self._database, serial, self._now)

        return self._database.write(insert, len(text) + self._reserve)

    def correct_dates(self) -> None:
        """Date the charges that are in the future now.

        The clock was ahead when they were made.  They would count until then,
        and no removal would be possible.

        :raises StoreError: when it cannot be written
        """
        now = self._now()
        wrong = self._database.read(lambda connection: connection.execute(
            'SELECT 1 FROM charge WHERE time > ? LIMIT 1', (now,)).fetchone())
        if wrong:
            self._database.write(lambda connection: connection.execute(
                'UPDATE charge SET time = ? WHERE time > ?', (now, now)))

    def most_charged(self, kind: str) -> tuple[str, int]:
        """Return who had the most removals of a kind in the last hour.

        Any user may ask, so nothing is written; charges in the future count.

        :returns: who was charged, and the number; the number is 0 if there was
            none
        """
        def select(connection: sqlite3.Connection
                   ) -> collections.Counter[str]:
            charged: collections.Counter[str] = collections.Counter()
            for account, amount in connection.execute(
                    'SELECT account, amount FROM charge WHERE time >= ?',
                    (self._now() - _LIMIT_WINDOW_SECONDS,)).fetchall():
                if text(account).startswith(begin):
                    charged[account[len(begin):]] += int(amount)
            return charged

        begin = account_of(kind, '')
        charged = self._database.read(select) or collections.Counter()
        return max(charged.items(), key=lambda item: item[1], default=('', 0))

    def entries(self, server: str | None = None,
                since: float = float('-inf')) -> tuple[RecordedEntry, ...]:
        """Return the entries that are still there, the oldest first."""
        if server is None:
            return self._read(_BY_TIME, since)
        return self._read(_BY_SERVER, since, server)

    def find(self, identifier: str) -> RecordedEntry | None:
        """Return one entry, if it is still there."""
        if not (identifier.isascii() and identifier.isalnum()
                and len(identifier) < 12):
            return None
        found = self._read(_BY_SERIAL, int(identifier, len(_ID_DIGITS)))
        return found[0] if found else None

    def _read(self, query: str, *values: Any) -> tuple[RecordedEntry, ...]:
        def select(connection: sqlite3.Connection
                   ) -> tuple[RecordedEntry, ...]:
            # An unfinished cursor would keep others from writing.
            return tuple(self._recorded(row, connection.execute(
                'SELECT time, name, outcome, subject FROM step '
                'WHERE entry = ? ORDER BY number', row[:1]).fetchall())
                for row in connection.execute(query, values).fetchall())

        return self._database.read(select) or ()

    def _recorded(self, row: Sequence[Any],
                  steps: Sequence[Sequence[Any]]) -> RecordedEntry:
        serial, begun, record, outcome = row
        try:
            return RecordedEntry(
                _identifier_of(serial), timestamp(begun), _object(record),
                tuple(RecordedStep(timestamp(at), str(name), str(outcome),
                                   _object(subject))
                      for at, name, outcome, subject in steps),
                str(outcome or INTERRUPTED))
        except (ValueError, TypeError, RecursionError) as exc:
            raise self._database.damaged(
                'entry %d: %s' % (serial, exc)) from exc


def account_of(kind: str, payer: str) -> str:
    """Return the name of the account of a kind of removals.

    :param payer: who is charged
    """
    return _ACCOUNT % (kind, payer)


def _spent(connection: sqlite3.Connection, account: str, now: float) -> int:
    return int(connection.execute(
        'SELECT total(amount) FROM charge WHERE account = ? AND time >= ?',
        (account, now - _LIMIT_WINDOW_SECONDS)).fetchone()[0])


def _identifier_of(serial: int) -> str:
    """Return a short text that sorts in the order of the entries."""
    if serial < 0:
        raise ValueError('no serial number')
    digits = ''
    while serial:
        serial, digit = divmod(serial, len(_ID_DIGITS))
        digits = _ID_DIGITS[digit] + digits
    return digits.rjust(8, '0')


def objects(record: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the JSON objects under a key, whether one or a list."""
    value = record.get(key)
    values = value if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, dict)]


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError('not an object')
    return value
