# SPDX-License-Identifier: Apache-2.0
"""What a decision table is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
import dataclasses
from typing import Any, Callable, Generic, TypeVar

from nova_bdm_cleanup.rules.facts import Action
from nova_bdm_cleanup.rules.reasons import Reason

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


@dataclasses.dataclass(frozen=True)
class Text(Generic[Result]):
    """A line of a table that no question leads to, for the documentation."""

    cell: str
    outcome: Result
    words: str


def first(rows: Iterable[Row[Facts, Result]],
          facts: Facts) -> Row[Facts, Result]:
    """Return the row that decides; the last row of a table always holds."""
    for row in rows:
        if row.holds(facts):
            return row
    raise LookupError('no row holds')


def first_in_sections(sections: Iterable[Section[Facts, Result]],
                      facts: Facts) -> Row[Facts, Result]:
    """Return the row that decides in a table with sections."""
    return first((row for section in sections if section.holds(facts)
                  for row in section.rows), facts)


AnyRow = TypeVar('AnyRow')


@dataclasses.dataclass(frozen=True)
class Table(Generic[AnyRow]):
    """The rows, and what the documentation writes above their columns."""

    header: tuple[str, ...]
    rows: tuple[AnyRow, ...]

    def lines(self) -> Iterator[tuple[str, ...]]:
        """Yield what the documentation says, row by row and cell by cell."""
        for row in self.rows:
            if isinstance(row, Section):
                for part in row.rows:
                    yield row.cell, part.cell, str(part.outcome)
            elif isinstance(row, (Row, Text)):
                yield row.cell, str(row.outcome)


@dataclasses.dataclass(frozen=True)
class ReasonOf:
    """The reason that another table gives, for this mapping or another."""

    find: Callable[[Any], Reason]
    #: What the documentation says of it.
    words: str

    def __str__(self) -> str:
        return self.words


#: What the documentation says of an action, and of the reason for it.
_WORDS_OF_ACTIONS = {
    Action.KEEP: 'kept: %s',
    Action.REMOVE: '**removed**: %s',
    Action.REMOVE_ROW: '**removed**, the row only: %s',
    Action.DELETE: '**deleted**: %s',
    Action.WITHHOLD: '%s',
    Action.LEAVE_TO_MAPPING: 'goes or stays with that mapping',
    Action.IGNORE: 'left alone, and counts for nothing',
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What follows, and for which reason."""

    #: None: there is no finding.
    reason: Reason | ReasonOf | None
    action: Action = Action.KEEP

    def reason_for(self, facts: object) -> Reason:
        """Return the reason, for the facts that the table was asked about."""
        if isinstance(self.reason, ReasonOf):
            return self.reason.find(facts)
        if self.reason is None:
            raise LookupError('%s has no reason' % self.action)
        return self.reason

    def __str__(self) -> str:
        words = _WORDS_OF_ACTIONS[self.action]
        if self.reason is None:
            return words
        return words % (('``%s``' if isinstance(self.reason, Reason)
                         else '%s') % self.reason)


#: A line of the log lists so many ids.
_MAX_LISTED_IDS = 5


def enumerated(ids: Iterable[str]) -> str:
    """Return some ids in words, in order; of many only the first."""
    names = sorted(ids)
    rest = len(names) - _MAX_LISTED_IDS
    return ', '.join(names[:_MAX_LISTED_IDS]) + (
        ' and %d more' % rest if rest > 0 else '')
