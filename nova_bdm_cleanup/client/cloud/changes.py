# SPDX-License-Identifier: Apache-2.0
"""Several changes, some at a time, and the result of each."""

from __future__ import annotations

import abc
from collections.abc import Generator, Sequence
import dataclasses
import time
from typing import Any, Callable, NamedTuple

from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules.reasons import Code

#: The seconds between two looks at what is under way.
_POLL = 2.0


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


#: A change that is made step by step, so that several can be under way without
#: threads: it yields while it waits, and returns its results.
Steps = Generator[None, None, list[Result]]


class Change(abc.ABC):
    """One change."""

    #: What it is about; each has a result of its own.
    subjects: Sequence[Any] = ()
    #: Says how to go on where the result is not known.
    advice = ''
    #: Only one change is made at a time in each place.
    place: str | None = None
    #: It may have changed something.
    is_begun = False

    @abc.abstractmethod
    def check(self) -> list[Result]:
        """Look again, right before; return results if it must not be made."""

    @abc.abstractmethod
    def make(self) -> Steps:
        """Make the change, and read back what came of it.

        :raises ApiError: after Refused, Conflict and NotFound it is
            certainly not done; after the others this is not known
        """

    def for_all(self, status: Status, why: str = '') -> list[Result]:
        """Return the same result for each of its findings or steps."""
        return [Result(subject, status, why) for subject in self.subjects]

    def without_end(self) -> list[Result]:
        """Return the results of a change that has not ended."""
        return (self.for_all(Status.UNKNOWN, 'interrupted' + self.advice)
                if self.is_begun else
                self.for_all(Status.SKIPPED, 'not begun'))

    def run(self) -> Steps:
        """Check, and make the change."""
        try:
            results = self.check()
            if not results:
                self.is_begun = True
                results = yield from self.make()
            return results
        except (errors.Refused, errors.Conflict, errors.NotFound) as exc:
            return self.for_all(Status.FAILED, str(exc))
        except errors.ApiError as exc:
            return (self.for_all(Status.UNKNOWN, str(exc) + self.advice)
                    if self.is_begun else
                    self.for_all(Status.FAILED, str(exc)))


def make_all(changes: Sequence[Change], keep_going: bool,
             progress: Callable[[str, int], None],
             at_once: int = 0) -> Results:
    """Make changes, one at a time in each place.

    After a failure no other is begun, and those under way are ended.

    :param at_once: how many at a time in all; 0: any number
    """
    left = list(changes)
    under_way: dict[Change, Steps] = {}
    ended: dict[Change, list[Result]] = {}
    is_interrupted = is_stopped = False
    begin = time.monotonic()
    try:
        while True:
            places = {change.place for change in under_way}
            is_full = is_stopped or at_once and len(under_way) >= at_once
            new = None if is_full else next(
                (c for c in left if c.place not in places), None)
            if new:
                left.remove(new)
                under_way[new] = new.run()
            elif not under_way:
                break
            progress('done %d, under way %d, seconds' % (
                len(ended), len(under_way)), int(time.monotonic() - begin))
            if not new:
                time.sleep(_POLL)
            for change in [new] if new else list(under_way):
                try:
                    next(under_way[change])
                except StopIteration as end:
                    ended[change] = end.value
                    del under_way[change]
                    is_stopped |= not keep_going and any(
                        r.stops for r in end.value)
    except KeyboardInterrupt:
        # The operator must still be told the results.
        is_interrupted = True
    return Results(
        [r for c in changes
         for r in (ended[c] if c in ended else c.without_end())],
        is_interrupted, is_stopped=bool(left))
