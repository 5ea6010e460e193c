# SPDX-License-Identifier: Apache-2.0
"""Several changes, one after the other, and what came of each."""

from __future__ import annotations

import abc
from collections.abc import Sequence
import dataclasses
from typing import Any, Callable

from nova_bdm_cleanup.openstack import errors

NOT_BEGUN = 'skipped: not begun'


@dataclasses.dataclass(frozen=True)
class Result:
    """What is so now."""

    #: What it is about.
    subject: Any
    #: A word and, after a colon, why.
    text: str
    #: Nothing is left to do.
    is_well: bool = False

    @property
    def word(self) -> str:
        return self.text.partition(':')[0]

    @property
    def stops(self) -> bool:
        """Something was tried and went wrong."""
        return not self.is_well and self.word not in ('refused', 'skipped')


class Act(abc.ABC):
    """One change."""

    #: What it is about; each has a result of its own.
    subjects: Sequence[Any] = ()
    #: Says how to go on when nobody knows what came of it.
    doubt = ''

    @abc.abstractmethod
    def look(self) -> list[Result]:
        """Look again, right before; the results if it is not to be done."""

    @abc.abstractmethod
    def do(self) -> list[Result]:
        """Do it, and look at what came of it.

        :raises ApiError: Refused, Conflict and NotFound say that it is
            certainly not done, the others say nothing
        """

    def all(self, text: str) -> list[Result]:
        """The same result for everything that it is about."""
        return [Result(subject, text) for subject in self.subjects]

    def run(self) -> tuple[list[Result], bool]:
        """Look and do; the results, and whether somebody interrupted it."""
        begun = False
        try:
            found = self.look()
            if not found:
                begun = True
                found = self.do()
            return found, False
        except (errors.Refused, errors.Conflict, errors.NotFound) as exc:
            return self.all('failed: %s' % exc), False
        except errors.ApiError as exc:
            return self.all('unknown: %s%s' % (exc, self.doubt) if begun
                            else 'failed: %s' % exc), False
        except KeyboardInterrupt:
            # What became of it must be told all the same.
            return self.all('unknown: interrupted' + self.doubt if begun
                            else NOT_BEGUN), True


def carry_out(acts: Sequence[Act], keep_going: bool,
              progress: Callable[[str, int], None]
              ) -> tuple[list[Result], bool]:
    """Do one after the other, and stop at the first that fails.

    :returns: the results of all, and whether somebody interrupted it
    """
    results: list[Result] = []
    for number, act in enumerate(acts):
        progress('done', number)
        found, interrupted = act.run()
        results += found
        if interrupted or not keep_going and any(r.stops for r in found):
            for other in acts[number + 1:]:
                results += other.all(NOT_BEGUN)
            return results, interrupted
    return results, False
