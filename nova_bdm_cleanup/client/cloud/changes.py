# SPDX-License-Identifier: Apache-2.0
"""Several changes, one after the other, and the result of each."""

from __future__ import annotations

import abc
from collections.abc import Sequence
import dataclasses
from typing import Any, Callable, NamedTuple

from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules.reasons import Code


class Status(Code):
    """Status of a change; printed as it is."""

    #: It is still to be made.
    PLANNED = 'planned'

    #: It was made, and this was read back.
    DONE = 'done'
    RELEASED = 'released'
    REMOVED = 'removed'
    RECONNECTED = 'reconnected'
    #: It is gone, and nothing shows that the plugin removed it.
    GONE = 'gone'

    #: It was tried, and was not made.
    FAILED = 'failed'
    #: It was tried, and whether it was made is not known.
    UNKNOWN = 'unknown'

    #: It was not tried: it is not allowed.
    REFUSED = 'refused'
    #: It was not tried: nothing is left to do, something has changed, or the
    #: command ended before.
    SKIPPED = 'skipped'

    @property
    def is_untried(self) -> bool:
        """Return whether nothing was changed for certain."""
        return self in (Status.PLANNED, Status.REFUSED, Status.SKIPPED)


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a change for one thing that it is about."""

    subject: Any
    status: Status
    why: str = ''
    #: Nothing is left to do.
    is_well: bool = False
    #: What is between the status and why.
    joint: str = ': '

    def __str__(self) -> str:
        return '%s%s%s' % (self.status, self.joint, self.why) \
            if self.why else str(self.status)

    @property
    def lines(self) -> list[str]:
        """Return what is shown below a table that has the status."""
        return [self.why] if self.why else []

    @property
    def stops(self) -> bool:
        """Return whether something was tried and went wrong."""
        return not self.is_well and self.status not in (
            Status.REFUSED, Status.SKIPPED)


class Results(NamedTuple):
    """The results of some changes."""

    each: list[Result]
    #: The operator interrupted the command.
    is_interrupted: bool = False
    #: Some changes were not begun because one before them failed.
    is_stopped: bool = False


class Change(abc.ABC):
    """One change."""

    #: What it is about; each has a result of its own.
    subjects: Sequence[Any] = ()
    #: Says how to go on where the result is not known.
    advice = ''

    @abc.abstractmethod
    def check(self) -> list[Result]:
        """Look again, right before; return results if it must not be made."""

    @abc.abstractmethod
    def make(self) -> list[Result]:
        """Make the change, and read back what came of it.

        :raises ApiError: after Refused, Conflict and NotFound it is
            certainly not done; after the others this is not known
        """

    def for_all(self, status: Status, why: str = '') -> list[Result]:
        """Return the same result for each of its findings or steps."""
        return [Result(subject, status, why) for subject in self.subjects]

    def not_begun(self) -> list[Result]:
        return self.for_all(Status.SKIPPED, 'not begun')

    def run(self) -> Results:
        """Check, and make the change."""
        begun = False
        try:
            results = self.check()
            if not results:
                begun = True
                results = self.make()
            return Results(results)
        except (errors.Refused, errors.Conflict, errors.NotFound) as exc:
            return Results(self.for_all(Status.FAILED, str(exc)))
        except errors.ApiError as exc:
            return Results(
                self.for_all(Status.UNKNOWN, str(exc) + self.advice) if begun
                else self.for_all(Status.FAILED, str(exc)))
        except KeyboardInterrupt:
            # The operator must still be told its result.
            return Results(
                self.for_all(Status.UNKNOWN, 'interrupted' + self.advice)
                if begun else self.not_begun(), is_interrupted=True)


def make_all(changes: Sequence[Change], keep_going: bool,
             progress: Callable[[str, int], None]) -> Results:
    """Make one change after the other; stop at the first that fails."""
    results: list[Result] = []
    for number, change in enumerate(changes):
        progress('done', number)
        found, is_interrupted, _ = change.run()
        results += found
        if is_interrupted or not keep_going and any(r.stops for r in found):
            others = changes[number + 1:]
            for other in others:
                results += other.not_begun()
            return Results(results, is_interrupted, is_stopped=bool(others))
    return Results(results)
