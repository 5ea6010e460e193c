# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""What nova-compute does by the clock: rounds of the audit, and metrics.

Nova runs its periodic tasks one after the other and waits for each.  So ours
only looks at the clock; a round runs in a thread of its own, which is a green
one where Nova uses these.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, MutableMapping, Optional, Sequence
import weakref

from nova import context as nova_context
import nova.conf
from oslo_log import log as logging
from oslo_service import periodic_task

from nova_bdm_cleanup import options
from nova_bdm_cleanup.cleanup import loglines
from nova_bdm_cleanup.cleanup import triggers
from nova_bdm_cleanup.cleanup.tally import SINCE_START
from nova_bdm_cleanup.plugin.node import NovaNode
from nova_bdm_cleanup.plugin.presence import Presence
from nova_bdm_cleanup.watch.round import Audit
from nova_bdm_cleanup.watch.schedule import Schedule

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

#: Seconds from one look at the clock to the next.
_TICK = 60

#: By manager: a process has one, which a reload starts again.
_watchers: MutableMapping[Any, Watcher] = weakref.WeakKeyDictionary()


class Watcher:
    """The rounds and the metrics of one nova-compute.

    :param manager: the ComputeManager
    :param presence: says that it is there
    :param can_sweep: whether starts wait for the sweep
    :param clock: the time since the epoch
    """

    def __init__(self, manager: Any, presence: Presence, can_sweep: bool,
                 clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._can_sweep = can_sweep
        self._manager = manager
        self._presence = presence
        self._waiting: Optional[threading.Thread] = None
        self._failed = presence.failed_rounds()
        self._next: Optional[float] = None

    def tick(self) -> None:
        """Another minute has gone by."""
        self._look_at_the_clock()
        self._presence.write_metrics()

    def _look_at_the_clock(self) -> None:
        if not options.audit_interval(CONF) or (
                self._waiting is not None and self._waiting.is_alive()):
            return
        now, schedule = self._clock(), self._schedule()
        if self._next is None or schedule.is_far(self._next - now):
            self._next = schedule.next(now)
        if self._next - now <= _TICK:
            self._waiting = threading.Timer(
                max(0.0, self._next - now), self.round)
            self._waiting.daemon = True
            self._waiting.start()

    def round(self) -> None:
        """Audit all servers of this host."""
        context = nova_context.get_admin_context()

        def lines(server: Optional[str]) -> loglines.LogLines:
            return loglines.LogLines(
                {'uuid': server} if server else None, context.request_id,
                triggers.AUDIT, SINCE_START)

        try:
            self._failed = Audit(
                NovaNode(self._manager, context), self._presence.watch,
                options.policy(CONF), options.audit_interval(CONF),
                self._can_sweep and options.sweep_stopped(CONF), lines,
                SINCE_START, self._clock).round(self._failed, self._plan)
        except Exception:
            # Nobody waits for this thread who could tell.
            LOG.exception('bdm-cleanup failed in a round of the audit')
            self._failed += 1
            self._plan(self._failed)
        self._presence.write_metrics()

    def _plan(self, failed: int) -> float:
        """Fix when the next round comes, after so many that failed."""
        self._next = self._schedule().next(self._clock(), failed)
        return self._next

    def _schedule(self) -> Schedule:
        return Schedule(self._manager.host, options.audit_interval(CONF))


def begin(manager: Any, names: Sequence[str], can_sweep: bool) -> None:
    """nova-compute is about to start.  Raises nothing.

    Nova runs no periodic task before it has started; but it may bring many
    servers back first, and somebody may ask for its status meanwhile.

    :param manager: the ComputeManager
    :param names: of the triggers that are installed
    :param can_sweep: whether starts wait for the sweep
    """
    try:
        presence = Presence(CONF, names)
        presence.record()
        if not (options.audit_interval(CONF) or options.metrics_file(CONF)):
            return
        presence.write_metrics()
        known = manager in _watchers
        _watchers[manager] = Watcher(manager, presence, can_sweep)
        if not known:
            manager.add_periodic_task(_PERIODIC_TASK)
    except Exception:
        LOG.exception('bdm-cleanup does nothing by the clock')


def _tick(manager: Any, _context: Any) -> None:
    watcher = _watchers.get(manager)
    if watcher is not None:
        watcher.tick()


_PERIODIC_TASK = periodic_task.periodic_task(
    spacing=_TICK, run_immediately=True, name='bdm_cleanup')(_tick)
