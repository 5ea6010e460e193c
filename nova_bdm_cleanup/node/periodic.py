# SPDX-License-Identifier: Apache-2.0
"""What nova-compute does by the clock: rounds of the audit, and metrics.

Nova runs its periodic tasks one after the other and waits for each.  So ours
only looks at the clock; a round runs in a thread of its own, which is a green
one where Nova uses these.
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

from nova_bdm_cleanup.node import options
from nova_bdm_cleanup.node.audit.rounds import Audit, is_far, next_round
from nova_bdm_cleanup.node.compute_node import NovaNode
from nova_bdm_cleanup.node.option_group import GROUP
from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.node.store.findings import Watch
from nova_bdm_cleanup.node.store.processes import Process

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

#: Seconds from one look at the clock to the next.
_TICK = 60

#: By manager: a process has one, which a reload starts again.
_watchers: MutableMapping[Any, Watcher] = weakref.WeakKeyDictionary()


class Watcher:
    """The rounds and the metrics of one nova-compute.

    :param process: what was recorded of it
    """

    def __init__(self, manager: Any, process: Process,
                 clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._manager = manager
        self._metrics: metrics.MetricsFile | None = None
        if CONF[GROUP].metrics_file:
            from nova_bdm_cleanup.node.audit import metrics

            self._metrics = metrics.MetricsFile(CONF, process)
        self._watch = Watch(options.settings(CONF).store, CONF.host)
        self._waiting: threading.Thread | None = None
        self._failed = self._failed_before()
        self._next: float | None = None

    def tick(self) -> None:
        """Another minute has gone by."""
        self._look_at_the_clock()
        self.write_metrics()

    def write_metrics(self) -> None:
        """Write ``metrics_file``, if it is set."""
        if self._metrics is not None:
            self._metrics.write()

    def _failed_before(self) -> int:
        """How many rounds had failed when the last nova-compute ended."""
        try:
            return self._watch.last().failed
        except StoreError:
            # The next round fails for that, and says so.
            return 0

    def _look_at_the_clock(self) -> None:
        interval = options.settings(CONF).audit_interval
        if not interval or (
                self._waiting is not None and self._waiting.is_alive()):
            return
        now = self._clock()
        planned = self._next
        if planned is None or is_far(planned - now, interval):
            planned = self._plan()
        if planned - now <= _TICK:
            self._waiting = threading.Timer(
                max(0.0, planned - now), self.round)
            self._waiting.daemon = True
            self._waiting.start()

    def round(self) -> None:
        """Audit all servers of this host."""
        context = nova_context.get_admin_context()
        settings = options.settings(CONF)
        try:
            self._failed = Audit(
                NovaNode(self._manager, context), self._watch,
                settings.policy, settings.audit_interval, context.request_id,
                options.counters(CONF), self._clock,
            ).round(self._failed, self._plan)
        except Exception:
            # Nobody waits for this thread who could tell.
            LOG.exception('bdm-cleanup failed in a round of the audit')
            self._failed += 1
            self._plan()
        self.write_metrics()

    def _plan(self) -> float:
        """Fix when the next round comes."""
        self._next = next_round(
            self._manager.host, options.settings(CONF).audit_interval,
            self._clock())
        return self._next


def begin(manager: Any, process: Process) -> None:
    """nova-compute is about to start.

    Nova runs no periodic task before it has started; but it may bring many
    servers back first, and somebody may look at the metrics meanwhile.

    :param process: what was recorded of this nova-compute
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
    spacing=_TICK, run_immediately=True, name='bdm_cleanup')(_tick)
