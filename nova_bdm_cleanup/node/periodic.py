# SPDX-License-Identifier: Apache-2.0
"""The periodic task of nova-compute: audit rounds and metrics.

Nova runs its periodic tasks one after the other and waits for each.  So ours
only starts a round that is due, in a thread of its own, which is a green
thread where Nova uses these.  The thread lasts nearly as long as the interval.
"""

from __future__ import annotations

from collections.abc import MutableMapping
import functools
import threading
import time
from typing import Any, Callable
import weakref

from nova import context as nova_context
import nova.conf
from oslo_log import log as logging
from oslo_service import periodic_task

from nova_bdm_cleanup.node import options, shutdown
from nova_bdm_cleanup.node.audit import metrics
from nova_bdm_cleanup.node.audit.rounds import Audit, round_begun
from nova_bdm_cleanup.node.cleanup.log_lines import with_traceback
from nova_bdm_cleanup.node.compute_node import NovaNode
from nova_bdm_cleanup.node.option_group import GROUP
from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.node.store.findings import FindingStore
from nova_bdm_cleanup.node.store.processes import Process

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

#: Seconds from one run of the periodic task to the next.
_TASK_SPACING = 60

#: The watchers by manager.  A process has one manager, and a reload starts it
#: again.
_watchers: MutableMapping[Any, Watcher] = weakref.WeakKeyDictionary()


class Watcher:
    """The audit rounds and the metrics of one nova-compute.

    :param process: the record of it
    :param uptime: gives the time of a clock that is never set
    :param wait: waits for some seconds, or until nova-compute shuts down
    """

    def __init__(self, manager: Any, process: Process,
                 clock: Callable[[], float] = time.time,
                 uptime: Callable[[], float] = time.monotonic,
                 wait: Callable[[float], None] | None = None) -> None:
        self._clock = clock
        self._uptime = uptime
        self._wait = wait or functools.partial(shutdown.wait, manager)
        self._manager = manager
        self._metrics: metrics.MetricsFile | None = None
        if CONF[GROUP].metrics_file:
            self._metrics = metrics.MetricsFile(CONF, process)
        self._store = FindingStore(options.settings(CONF).store, CONF.host)
        self._round_thread: threading.Thread | None = None
        self._failed = self._failed_before()
        #: When the next round begins, by the uptime; None: the one goes on
        #: that the process before has begun.
        self._next: float | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """End the round before it looks at another server."""
        self._is_stopped = True

    def tick(self) -> None:
        """Start a round if one is due, and write the metrics."""
        self._start_due_round()
        self.write_metrics()

    def write_metrics(self) -> None:
        """Write ``metrics_file``, if it is set."""
        if self._metrics is not None:
            self._metrics.write()

    def _failed_before(self) -> int:
        """Return how many rounds failed before this start of nova-compute."""
        try:
            return self._store.last_round().failed
        except StoreError:
            # The next round fails for the same reason, and logs it.
            return 0

    def _start_due_round(self) -> None:
        thread = self._round_thread
        if (not options.settings(CONF).audit_interval
                or (thread is not None and thread.is_alive())):
            return
        if self._next is None or self._next - self._uptime() <= _TASK_SPACING:
            self._round_thread = threading.Thread(
                target=self.round, name='bdm-cleanup', daemon=True)
            self._round_thread.start()

    def round(self) -> None:
        """Audit all servers of this host.

        A shutdown does not wait for it: it changes nothing.
        """
        context = nova_context.get_admin_context()
        settings = options.settings(CONF)
        interval = settings.audit_interval
        begun, now = self._next, self._clock()
        is_resumed = begun is None
        if begun is None:
            begun = self._uptime() - now + round_begun(
                self._manager.host, interval, now)
        failure: Exception | None = None
        try:
            self._failed = Audit(
                NovaNode(self._manager, context), self._store, interval,
                context.request_id, options.counters(CONF), self._goes_on,
                self._clock, self._uptime,
            ).round(begun, self._failed, is_resumed)
        except Exception as exc:
            failure = exc
            self._failed += 1
        if failure:
            # The thread has no caller that could log it.
            LOG.error('bdm-cleanup failed in a round of the audit',
                      exc_info=with_traceback(failure))
        # After a round that took too long, the rounds that it missed are left
        # out.
        missed = max(0, (self._uptime() - begun) // interval - 1)
        self._next = begun + (missed + 1) * interval
        self.write_metrics()

    def _goes_on(self, seconds: float) -> bool:
        """Wait for some seconds; return whether the round goes on."""
        self._wait(seconds)
        return not (self._is_stopped or shutdown.has_begun(self._manager))


def begin(manager: Any, process: Process) -> None:
    """Add the periodic task to a nova-compute that is about to start.

    The metrics are written at once: Nova runs no periodic task before it has
    resumed all guests, which may take minutes.

    :param process: the record of this nova-compute
    """
    known = _watchers.get(manager)
    watcher = _watchers[manager] = Watcher(manager, process)
    watcher.write_metrics()
    if known is not None:
        known.stop()
    else:
        manager.add_periodic_task(_PERIODIC_TASK)


def _tick(manager: Any, _context: Any) -> None:
    watcher = _watchers.get(manager)
    if watcher is not None:
        watcher.tick()


_PERIODIC_TASK = periodic_task.periodic_task(
    spacing=_TASK_SPACING, run_immediately=True, name='bdm_cleanup')(_tick)
