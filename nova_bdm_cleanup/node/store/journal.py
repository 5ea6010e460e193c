# SPDX-License-Identifier: Apache-2.0
"""The record of every plan and every step, from which a removal is undone.

What cannot be recorded is not done, so every failure to write is an error
here and never a warning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import json
import sqlite3
import time
from typing import Any, Callable

from nova_bdm_cleanup.node.store.database import Database, MAX_BYTES, PATIENCE

#: The account of ``max_removals_per_hour`` that counts the mappings of the
#: host.
REMOVALS = 'removals'

_HOUR = 3600.0

DIGITS = '0123456789abcdefghijklmnopqrstuvwxyz'


class LimitReached(Exception):
    """The last hour leaves no room for this plan."""

    def __init__(self, account: str, done: int, limit: int) -> None:
        super().__init__('%d %s within the last hour, the limit is %d'
                         % (done, account, limit))
        self.account = account
        self.done = done
        self.limit = limit


@dataclasses.dataclass(frozen=True)
class Charge:
    """What a plan takes out of an hourly limit."""

    #: The name of what is limited, such as ``removals``.
    account: str
    amount: int
    limit: int


class Entry:
    """One entry that is being written.  Made by :meth:`Journal.begin`."""

    def __init__(self, database: Database, serial: int, begun: float,
                 clock: Callable[[], float]) -> None:
        self.id = identifier_of(serial)
        self._database = database
        self._serial = serial
        self._begun = begun
        self._now = clock
        self._steps = 0
        self._ended = False
        # What could not be written goes out with what comes next, so that an
        # entry with an end always has all its steps.
        self._pending: list[tuple[str, Sequence[Any]]] = []

    def step(self, name: str, outcome: str, **subject: Any) -> None:
        """Record one step.

        :param outcome: ``done``, ``failed`` or ``skipped``
        :raises StoreError: when it could not be written; it is kept and
            written together with what comes next
        """
        # The steps of a reboot wait once for a store that stays locked.
        patience = 0.0 if self._pending else PATIENCE
        self._steps += 1
        self._pending.append((
            # Not once the entry is gone, nor a second time when only the
            # answer of the first was lost.
            'INSERT OR IGNORE INTO step SELECT serial, ?, ?, ?, ?, ? '
            'FROM entry WHERE serial = ?',
            (self._steps, self._now(), name, outcome,
             json.dumps(subject, default=str), self._serial)))
        self._write(patience)

    def finish(self, outcome: str, spent: Mapping[str, int]) -> None:
        """Record the end; doing it again only writes what is still pending.

        :param outcome: ``done``, ``partly`` or ``nothing``
        :param spent: what each account is charged instead of what the plan
            was
        :raises StoreError: when it could not be written
        """
        if not self._ended:
            self._ended = True
            self._pending += [
                ('UPDATE entry SET outcome = ? WHERE serial = ?',
                 (outcome, self._serial)),
                ('DELETE FROM charge WHERE entry = ?', (self._serial,))]
            self._pending += [
                ('INSERT INTO charge VALUES (?, ?, ?, ?)',
                 (self._serial, account, self._begun, amount))
                for account, amount in spent.items() if amount]
        self._write(PATIENCE)

    def _write(self, patience: float) -> None:
        def execute(connection: sqlite3.Connection) -> None:
            for statement, values in self._pending:
                connection.execute(statement, values)

        if self._pending:
            self._database.write(
                execute, sum(len(str(values)) for _, values in self._pending),
                self._serial, patience)
            self._pending.clear()


class Journal:
    """The journal.  Threads may share one.

    :param max_bytes: the size that it may have; the oldest entries go first
    """

    def __init__(self, path: str, max_bytes: int = MAX_BYTES,
                 clock: Callable[[], float] = time.time) -> None:
        self._database = Database(path, max_bytes)
        # For the steps of an entry that has just found room.
        self._reserve = max_bytes // 8
        self._now = clock

    def begin(self, record: Mapping[str, Any], charges: Sequence[Charge], *,
              server: str) -> Entry:
        """Write a plan, unless it would exceed an hourly limit.

        When this returns, the plan survives a crash of the host.

        :param record: the plan, of what JSON can express
        :param charges: what it takes out of the hourly limits
        :returns: the entry, to record the steps and the end
        :raises StoreError: when it could not be written
        :raises LimitReached: when the hour has had too much already
        """
        text = json.dumps(record, default=str)

        def insert(connection: sqlite3.Connection) -> Entry:
            now = self._now()
            connection.execute('DELETE FROM charge WHERE time < ?',
                               (now - _HOUR,))
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
            return Entry(self._database, serial, now, self._now)

        return self._database.write(insert, len(text) + self._reserve)

    def spent(self, account: str) -> int:
        """How much of an hourly limit the last hour had."""
        return self._database.read(lambda connection: _spent(
            connection, account, self._now())) or 0


def _spent(connection: sqlite3.Connection, account: str, now: float) -> int:
    return int(connection.execute(
        'SELECT total(amount) FROM charge WHERE account = ? AND time >= ?',
        (account, now - _HOUR)).fetchone()[0])


def identifier_of(serial: int) -> str:
    """Short, and as text in the order of the entries."""
    if serial < 0:
        raise ValueError('no serial number')
    digits = ''
    while serial:
        serial, digit = divmod(serial, len(DIGITS))
        digits = DIGITS[digit] + digits
    return digits.rjust(8, '0')
