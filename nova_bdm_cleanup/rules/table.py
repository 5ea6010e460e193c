# SPDX-License-Identifier: Apache-2.0
"""What a decision table is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
import dataclasses
from typing import Any, Callable, ClassVar, Generic, TypeVar

from nova_bdm_cleanup.rules.facts import Reason

Facts = TypeVar('Facts')
Result = TypeVar('Result')


@dataclasses.dataclass(frozen=True)
class Row(Generic[Facts, Result]):
    """One row of a table: a question, and what follows if it holds."""

    #: What the documentation says of it.
    cell: str
    #: The question.  It may take for granted that no row above holds.
    holds: Callable[[Facts], Any]
    #: What follows; as text, what the documentation says of that.
    outcome: Result
    #: What was found, in plain words for the log, with "it" for the facts.
    words: str

    def explain(self, facts: Facts) -> str:
        """Say in plain words what was found."""
        return (self.words.format(it=facts) if '{' in self.words
                else self.words)


@dataclasses.dataclass(frozen=True)
class Section(Generic[Facts, Result]):
    """The rows of a table that have a question in common."""

    cell: str
    holds: Callable[[Facts], object]
    rows: tuple[Row[Facts, Result], ...]


def first(rows: Iterable[Row[Facts, Result]],
          facts: Facts) -> Row[Facts, Result]:
    """The row that decides; the last row of a table always holds."""
    for row in rows:
        if row.holds(facts):
            return row
    raise LookupError('no row holds')


def first_in_sections(sections: Iterable[Section[Facts, Result]],
                      facts: Facts) -> Row[Facts, Result]:
    """The same for a table with sections."""
    return first((row for section in sections if section.holds(facts)
                  for row in section.rows), facts)


AnyRow = TypeVar('AnyRow')


@dataclasses.dataclass(frozen=True)
class Table(Generic[AnyRow]):
    """The rows, and what the documentation writes above their columns."""

    header: tuple[str, ...]
    rows: tuple[AnyRow, ...]

    def lines(self) -> Iterator[tuple[str, ...]]:
        """What the documentation says, row by row and cell by cell."""
        for row in self.rows:
            if isinstance(row, Section):
                for part in row.rows:
                    yield row.cell, part.cell, str(part.outcome)
            elif isinstance(row, Row):
                yield row.cell, str(row.outcome)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What follows, and for which reason."""

    reason: Reason
    #: What the documentation says of it.
    words: ClassVar[str] = '``%s``'

    def __str__(self) -> str:
        return self.words % self.reason


class Keep(Outcome):
    """Nothing is done about it."""

    words = 'kept: ``%s``'


#: More ids make a line of the log that nobody reads.
_MOST = 5


def enumerated(ids: Iterable[str]) -> str:
    """Some ids in words, in order; of many only the first."""
    names = sorted(ids)
    rest = len(names) - _MOST
    return ', '.join(names[:_MOST]) + (
        ' and %d more' % rest if rest > 0 else '')
