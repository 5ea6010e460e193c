# SPDX-License-Identifier: Apache-2.0
"""A limit on the time that Nova waits for the cleanup."""

from __future__ import annotations

import threading
import time
from typing import Callable, TypeVar

T = TypeVar('T')


class TimedOut(Exception):
    """The time is over."""


class Deadline:
    """A number of seconds from now on.

    :param wait: waits for a thread, for a number of seconds at most
    :param option: what sets the time, to be named in exceptions
    """

    def __init__(self, seconds: float,
                 clock: Callable[[], float] = time.monotonic,
                 wait: Callable[[threading.Thread, float], None]
                 = threading.Thread.join, option: str = 'timeout') -> None:
        self._seconds = seconds
        self._option = option
        self._clock = clock
        self._wait = wait
        self._end = clock() + seconds

    @property
    def remaining(self) -> float:
        return max(0.0, self._end - self._clock())

    def extend(self, seconds: float) -> None:
        """Add seconds in which nothing was asked."""
        self._end += seconds

    def check(self, what: str) -> None:
        """Stop before something is begun too late.

        :raises TimedOut: when the time is over
        """
        if not self.remaining:
            raise TimedOut('%s was not begun: the %g s of [bdm_cleanup] '
                           '%s are over' % (what, self._seconds, self._option))

    def exceeded(self, what: str) -> TimedOut:
        """Return the error for a call that took too long."""
        return TimedOut('%s took longer than the %g s of [bdm_cleanup] %s'
                        % (what, self._seconds, self._option))

    def call(self, what: str, func: Callable[[], T]) -> T:
        """Call a function and wait for it no longer than the time left.

        The time-out of an HTTP library counts from one packet to the next, so
        an answer that trickles in can take forever.  Hence a thread that is
        left behind; what it calls must be harmless when it ends late.

        :param what: names the call in the exception
        :returns: what the function returns; what it raises is raised
        :raises TimedOut: when the time is over before or during the call
        """
        self.check(what)
        result: list[T] = []
        error: list[BaseException] = []

        def run() -> None:
            try:
                result.append(func())
            except BaseException as exc:
                error.append(exc)

        thread = threading.Thread(target=run, name='bdm-cleanup', daemon=True)
        thread.start()
        self._wait(thread, self.remaining)
        failure: BaseException | None = error[0] if error else None
        if failure is not None:
            raise failure
        if not result:
            raise self.exceeded(what)
        return result[0]
