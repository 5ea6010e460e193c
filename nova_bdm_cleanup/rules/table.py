# SPDX-License-Identifier: Apache-2.0
"""The parts of a decision table."""

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
    """One row of a table: a question, and the outcome if it holds."""

    #: The question in the documentation.
    cell: str
    #: The question.  It may assume that no row above holds.
    holds: Callable[[Facts], Any]
    #: The outcome; its string is the text in the documentation.
    outcome: Result
    #: The finding in plain words for the log, with "it" for the facts.
    words: str

    def explain(self, facts: Facts) -> str:
        """Return the finding in plain words."""
        return (self.words.format(it=facts) if '{' in self.words
                else self.words)


@dataclasses.dataclass(frozen=True)
class Section(Generic[Facts, Result]):
    """The rows of a table that share a question."""

    cell: str
    holds: Callable[[Facts], object]
    rows: tuple[Row[Facts, Result], ...]


@dataclasses.dataclass(frozen=True)
class Text(Generic[Result]):
    """A line of a table without a question, for the documentation."""

    cell: str
    outcome: Result


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
    """The rows, and the headings of their columns in the documentation."""

    header: tuple[str, ...]
    rows: tuple[AnyRow, ...]

    def lines(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells of each row, for the documentation."""
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
    #: The text in the documentation.
    words: str

    def __str__(self) -> str:
        return self.words


#: The text of an action and its reason in the documentation.
_WORDS_OF_ACTIONS = {
    Action.KEEP: 'kept: %s',
    Action.REMOVE: '**removed**: %s',
    Action.REMOVE_ROW: '**removed**, the row only: %s',
    Action.DELETE: '**deleted**: %s',
    Action.RECONNECT: '**reconnected**: %s',
    Action.ADOPT: '**adopted**: %s',
    Action.WITHHOLD: '%s',
    Action.LEAVE_TO_MAPPING: 'removed or kept with that mapping',
    Action.IGNORE: 'ignored',
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """An action and its reason."""

    #: None: there is no finding.
    reason: Reason | ReasonOf | None
    action: Action = Action.KEEP

    def reason_for(self, facts: object) -> Reason:
        """Return the reason for the facts that the table was asked about."""
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


#: A log line lists at most this many ids.
_MAX_LISTED_IDS = 5


def enumerated(ids: Iterable[str]) -> str:
    """Return some ids as sorted text; of many only the first."""
    names = sorted(ids)
    rest = len(names) - _MAX_LISTED_IDS
    return ', '.join(names[:_MAX_LISTED_IDS]) + (
        ' and %d more' % rest if rest > 0 else '')
