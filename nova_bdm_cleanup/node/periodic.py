# SPDX-License-Identifier: Apache-2.0
"""The periodic task of nova-compute: audit rounds and metrics.

Nova runs its periodic tasks one after the other and waits for each.  So ours
only starts a round that is due, in a thread of its own, which is a green
thread where Nova uses these.
"""

from __future__ import annotations

from collections.abc import MutableMapping
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
from nova_bdm_cleanup.node.audit.rounds import Audit, is_far, next_round
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
    """

    def __init__(self, manager: Any, process: Process,
                 clock: Callable[[], float] = time.time,
                 uptime: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._uptime = uptime
        self._manager = manager
        self._metrics: metrics.MetricsFile | None = None
        if CONF[GROUP].metrics_file:
            self._metrics = metrics.MetricsFile(CONF, process)
        self._store = FindingStore(options.settings(CONF).store, CONF.host)
        self._round_thread: threading.Thread | None = None
        self._failed = self._failed_before()
        self._next: float | None = None

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
        interval = options.settings(CONF).audit_interval
        thread = self._round_thread
        if not interval or (thread is not None and thread.is_alive()):
            return
        now = self._clock()
        planned = self._next
        if planned is None or is_far(planned - now, interval):
            planned = self._plan()
        if planned - now <= _TASK_SPACING:
            self._round_thread = threading.Timer(
                max(0.0, planned - now), self.round)
            self._round_thread.daemon = True
            self._round_thread.start()

    def round(self) -> None:
        """Audit all servers of this host.

        A shutdown does not wait for it: it changes nothing, and may take long.
        """
        if shutdown.has_begun(self._manager):
            return
        context = nova_context.get_admin_context()
        settings = options.settings(CONF)
        try:
            self._failed = Audit(
                NovaNode(self._manager, context), self._store,
                settings.policy, settings.audit_interval, context.request_id,
                options.counters(CONF), self._clock, self._uptime,
            ).round(self._failed, self._plan)
        except Exception:
            # The thread has no caller that could log it.
            LOG.exception('bdm-cleanup failed in a round of the audit')
            self._failed += 1
            self._plan()
        self.write_metrics()

    def _plan(self) -> float:
        """Set and return the time of the next round."""
        self._next = next_round(
            self._manager.host, options.settings(CONF).audit_interval,
            self._clock())
        return self._next


def begin(manager: Any, process: Process) -> None:
    """Add the periodic task to a nova-compute that is about to start.

    The metrics are written at once: Nova runs no periodic task before it has
    resumed all guests, which may take minutes.

    :param process: the record of this nova-compute
    """
    known = manager in _watchers
    watcher = _watchers[manager] = Watcher(manager, process)
    watcher.write_metrics()
    if not known:
        manager.add_periodic_task(_PERIODIC_TASK)


def _tick(manager: Any, _context: Any) -> None:
    watcher = _watchers.get(manager)
    if watcher is not None:
        watcher.tick()


_PERIODIC_TASK = periodic_task.periodic_task(
    spacing=_TASK_SPACING, run_immediately=True, name='bdm_cleanup')(_tick)
