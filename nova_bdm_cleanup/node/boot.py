# SPDX-License-Identifier: Apache-2.0
"""The start of nova-compute, during which it brings many servers back.

It does so one after the other, and before it does anything else.  So they
share one time limit.  When Cinder does not answer at all, nobody asks for the
other servers.  That it does not answer for one is no reason: anybody can make
a volume that Cinder takes minutes to tell about.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import threading
import time
from typing import Callable

from oslo_log import log as logging

from nova_bdm_cleanup.node.cleanup import actions, log_lines, triggers
from nova_bdm_cleanup.node.cleanup.log_lines import Counters
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.cinder import Cinder
from nova_bdm_cleanup.openstack.deadline import TimedOut
from nova_bdm_cleanup.rules.facts import Reason

LOG = logging.getLogger(__name__)

#: What sets the time of one server, to be named in exceptions.
SHARE = 'timeout that one server has while nova-compute starts'

_this_thread = threading.local()


class Boot:
    """What the cleanups of one start of nova-compute share.

    :param seconds: how long they may take together
    """

    def __init__(self, seconds: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        #: How many are left.
        self.left = seconds
        self._obstacle: Exception | None = None
        self._left_out = 0

    @property
    def share(self) -> float:
        """How many the next server may take: a quarter of what is left.

        Whatever takes all that it may, the others have the rest, so that no
        number of servers uses all of it up.
        """
        return self.left / 4

    @contextlib.contextmanager
    def spend(self) -> Iterator[None]:
        """What is done meanwhile takes its time from it."""
        begun = self._clock()
        try:
            yield
        finally:
            self.left = max(0.0, self.left - (self._clock() - begun))

    def allows(self) -> bool:
        """Whether there is any use in looking at one more server."""
        if self._obstacle is None and self.left:
            return True
        self._left_out += 1
        return False

    def asked_in_vain(self, why: Exception,
                      cinder: Callable[[float], Cinder]) -> None:
        """Cinder did not answer for a server.  Unless it answers a question
        that is about no volume, do not ask for the other servers.

        :param why: what came of it
        :param cinder: gives Cinder, for so many seconds
        """
        if not isinstance(why, (errors.Unreachable, errors.Refused)):
            try:
                with self.spend():
                    cinder(self.share).prove_it_answers()
                return
            except (errors.ApiError, TimedOut):
                # That it is so for all servers is what matters.
                pass
        self._obstacle = why

    def sum_up(self, counters: Counters) -> None:
        """Log and count the servers that were not looked at, if any."""
        if not self._left_out:
            return
        reason = Reason.TIMED_OUT
        why = ('the %g s of [bdm_cleanup] timeout, which all servers share, '
               'are over' % self._seconds)
        if self._obstacle is not None:
            reason = actions.reason_of(self._obstacle, triggers.HOST_BOOT)
            why = log_lines.masked(self._obstacle)
        log_lines.LogLines(
            None, None, triggers.HOST_BOOT, counters).left_out(
            reason, why, self._left_out)


@contextlib.contextmanager
def going_on(seconds: float, counters: Callable[[], Counters] = Counters
             ) -> Iterator[None]:
    """Have this thread carry out the start of nova-compute.

    :param seconds: how many all cleanups of this start have together
    :param counters: gives what counts the servers that are left out
    """
    boot = _this_thread.boot = Boot(seconds)
    try:
        yield
    finally:
        _this_thread.boot = None
        try:
            boot.sum_up(counters())
        except Exception:
            # Else nova-compute would not start.
            LOG.exception('bdm-cleanup cannot say how many servers were '
                          'brought back without a cleanup')


def current() -> Boot | None:
    """The start of nova-compute that this thread carries out, if any."""
    return getattr(_this_thread, 'boot', None)
