# SPDX-License-Identifier: Apache-2.0
"""The entries of the journal, as people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import json
import sqlite3
from typing import Any

from nova_bdm_cleanup.node.store.database import Database
from nova_bdm_cleanup.node.store.journal import DIGITS, identifier_of

#: The outcome of an entry without an end: a crash, or still under way.
INTERRUPTED = 'interrupted'

#: The first second of the year 10000, which Python cannot show as a date.
_END_OF_TIME = 253402300800

_ENTRIES = ('SELECT serial, time, record, outcome '
            'FROM entry JOIN plan ON plan.entry = serial ')
_BY_TIME = _ENTRIES + 'WHERE time >= ? ORDER BY time, serial'
_BY_SERVER = _ENTRIES + ('WHERE time >= ? AND server = ? '
                         'ORDER BY time, serial')
_BY_SERIAL = _ENTRIES + 'WHERE serial = ?'


@dataclasses.dataclass(frozen=True)
class RecordedStep:
    """One thing that was done, was tried, or was left out."""

    time: float
    name: str
    outcome: str
    subject: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Recorded:
    """One entry as it was read."""

    id: str
    time: float
    #: The plan.
    record: Mapping[str, Any]
    steps: tuple[RecordedStep, ...]
    outcome: str

    @property
    def removed(self) -> tuple[str, ...]:
        """The ids of the mappings that were removed."""
        return self._done('destroy', 'bdm')

    @property
    def removals(self) -> int:
        """How many mappings and attached attachments were to be removed."""
        return len(self._attached()) + len([
            action for action in objects(self.record, 'actions')
            if action.get('kind') == 'remove-bdm'])

    @property
    def carried_out(self) -> int:
        """How many of the removals are done."""
        return len(self.removed) + len(self._attached().intersection(
            self._done('delete-attachment', 'attachment')))

    def _done(self, name: str, key: str) -> tuple[str, ...]:
        return tuple(str(s.subject.get(key)) for s in self.steps
                     if s.name == name and s.outcome == 'done')

    def _attached(self) -> set[str]:
        """The stale attachments that are counted with the mappings."""
        return {str(attachment.get('id'))
                for action in objects(self.record, 'actions')
                if action.get('kind') == 'delete-attachment'
                for attachment in objects(action, 'attachment')
                if attachment.get('status') == 'attached'}


class Records:
    """What is still there of the journal.

    Each method raises StoreError when the store cannot be used.
    """

    def __init__(self, path: str) -> None:
        self._database = Database(path)
        #: Whether there is one yet.
        self.exists = self._database.exists

    def entries(self, server: str | None = None,
                since: float = float('-inf')) -> tuple[Recorded, ...]:
        """The entries that are still there, the oldest first."""
        if server is None:
            return self._read(_BY_TIME, since)
        return self._read(_BY_SERVER, since, server)

    def find(self, identifier: str) -> Recorded | None:
        """One entry, if it is still there."""
        if not (identifier.isascii() and identifier.isalnum()
                and len(identifier) < 12):
            return None
        found = self._read(_BY_SERIAL, int(identifier, len(DIGITS)))
        return found[0] if found else None

    def _read(self, query: str, *values: Any) -> tuple[Recorded, ...]:
        def select(connection: sqlite3.Connection) -> tuple[Recorded, ...]:
            # A cursor that is not at its end would keep others from writing.
            return tuple(self._recorded(row, connection.execute(
                'SELECT time, name, outcome, subject FROM step '
                'WHERE entry = ? ORDER BY number', row[:1]).fetchall())
                for row in connection.execute(query, values).fetchall())

        return self._database.read(select) or ()

    def _recorded(self, row: Sequence[Any],
                  steps: Sequence[Sequence[Any]]) -> Recorded:
        serial, begun, record, outcome = row
        try:
            return Recorded(
                identifier_of(serial), _moment(begun), _object(record),
                tuple(RecordedStep(_moment(at), str(name), str(outcome),
                                   _object(subject))
                      for at, name, outcome, subject in steps),
                str(outcome or INTERRUPTED))
        except (ValueError, TypeError, RecursionError) as exc:
            raise self._database.damaged(
                'entry %d: %s' % (serial, exc)) from exc


def objects(record: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The objects under a key, one or a list; nothing else that is there."""
    value = record.get(key)
    values = value if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, dict)]


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError('not an object')
    return value


def _moment(value: Any) -> float:
    moment = float(value)
    if not 0 <= moment < _END_OF_TIME:
        raise ValueError('no time')
    return moment
