# SPDX-License-Identifier: Apache-2.0
"""The start of nova-compute, during which it brings many servers back.

It does so one after the other, before anything else.  So they share one time
limit.  If Cinder does not answer at all, the other servers are not looked at.
One server without an answer is no reason to skip the others: any user can make
a volume that Cinder takes minutes to describe.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import time
from typing import Callable

from nova_bdm_cleanup.node.cleanup import actions, log_lines, triggers
from nova_bdm_cleanup.node.cleanup.log_lines import Counters
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.cinder import Cinder
from nova_bdm_cleanup.openstack.deadline import TimedOut
from nova_bdm_cleanup.rules.reasons import Reason

#: The name of the time limit of one server, for exceptions.
SHARE = 'timeout for one server while nova-compute starts'


class Boot:
    """The time limit that the cleanups of one start of nova-compute share.

    :param seconds: how long they may take together
    """

    def __init__(self, seconds: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        #: The seconds that are left.
        self.left = seconds
        #: The servers whose live migration Nova has given up in it.
        self.given_up: list[str] = []
        self._obstacle: Exception | None = None
        self._not_cleaned = 0

    @property
    def share(self) -> float:
        """Return the seconds for the next server: a quarter of those left.

        A server that uses its whole share leaves the rest to the others, so
        no number of servers uses up all of it.
        """
        return self.left / 4

    @contextlib.contextmanager
    def spend(self) -> Iterator[None]:
        """Subtract the duration of the body from the time left."""
        begun = self._clock()
        try:
            yield
        finally:
            self.left = max(0.0, self.left - (self._clock() - begun))

    def allows(self) -> bool:
        """Return whether to look at one more server; if not, count it."""
        if self._obstacle is None and self.left:
            return True
        self._not_cleaned += 1
        return False

    def asked_in_vain(self, why: Exception,
                      cinder: Callable[[float], Cinder]) -> None:
        """Skip the other servers, if Cinder answers no question at all.

        Called when Cinder did not answer for one server.  The question that
        decides is about no volume.

        :param why: the exception for that server
        :param cinder: returns Cinder, with a limit in seconds
        """
        if not isinstance(why, (errors.Unreachable, errors.Refused)):
            try:
                with self.spend():
                    cinder(self.share).prove_it_answers()
                return
            except (errors.ApiError, TimedOut):
                # Cinder fails for all servers; the first error explains it.
                pass
        self._obstacle = why

    def sum_up(self, counters: Counters) -> None:
        """Log and count the servers that were not looked at, if any."""
        if not self._not_cleaned:
            return
        reason = Reason.TIMED_OUT
        why = ('the %g s of [bdm_cleanup] timeout, which all servers share, '
               'are over' % self._seconds)
        if self._obstacle is not None:
            reason = actions.reason_of(self._obstacle, triggers.HOST_BOOT)
            why = log_lines.masked(self._obstacle)
        log_lines.LogLines(
            None, None, triggers.HOST_BOOT, counters).not_cleaned(
            reason, why, self._not_cleaned)
