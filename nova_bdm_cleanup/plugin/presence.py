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
"""Says in the store, and to Prometheus, that the plugin is in this process."""

from __future__ import annotations

import time
from typing import Any, Dict, Sequence

from nova import version as nova_version
from oslo_config import cfg
from oslo_log import log as logging

from nova_bdm_cleanup import exposition
from nova_bdm_cleanup import options
from nova_bdm_cleanup import textfile
from nova_bdm_cleanup import version
from nova_bdm_cleanup.cleanup.tally import SINCE_START
from nova_bdm_cleanup.store.database import StoreError
from nova_bdm_cleanup.store.journal import Journal
from nova_bdm_cleanup.store.journal import REMOVALS
from nova_bdm_cleanup.store.watch import Known
from nova_bdm_cleanup.store.watch import Process
from nova_bdm_cleanup.store.watch import Round
from nova_bdm_cleanup.store.watch import Watch
from nova_bdm_cleanup.watch import metrics
from nova_bdm_cleanup.watch import process

LOG = logging.getLogger(__name__)


class Presence:
    """The plugin in this nova-compute.

    :param conf: nova.conf, parsed
    :param triggers: the names of those that are installed
    :param problem: why nothing is installed; empty: it is
    """

    def __init__(self, conf: cfg.ConfigOpts, triggers: Sequence[str],
                 problem: str = '') -> None:
        self._conf = conf
        facts: Dict[str, Any] = {
            'version': version.VERSION,
            'nova_version': nova_version.version_string_with_package(),
            'triggers': ','.join(triggers)}
        if not problem:
            # Else they may be what is wrong.
            policy = options.policy(conf)
            facts.update(
                mode='observe' if policy.observe else 'enforce',
                max_removals_per_hour=policy.max_removals_per_hour,
                audit_interval=options.audit_interval(conf),
                sweep_stopped=options.sweep_stopped(conf))
        self._process = Process(
            host=conf.host, since=time.time(), identity=process.identity(),
            problem=problem, facts=facts)
        self._is_written = True

    @property
    def watch(self) -> Watch:
        """What is kept of this nova-compute."""
        return Watch(*options.store(self._conf), self._conf.host)

    def record(self) -> None:
        """For ``nova-bdm-cleanup status``."""
        try:
            self.watch.started(self._process)
        except StoreError as exc:
            LOG.warning('bdm-cleanup: "nova-bdm-cleanup status" will not know '
                        'of this nova-compute: %s', exc)

    def failed_rounds(self) -> int:
        """How many rounds had failed when the last nova-compute ended."""
        try:
            return self.watch.last().failed
        except StoreError:
            # The next round fails for that, and says so.
            return 0

    def write_metrics(self) -> None:
        """For Prometheus.  A problem is told once, until it is over."""
        path = options.metrics_file(self._conf)
        if not path:
            return
        try:
            textfile.write(path, exposition.text(self._state()))
        except textfile.TextfileError as exc:
            if self._is_written:
                LOG.error('bdm-cleanup: [bdm_cleanup] metrics_file: %s', exc)
            self._is_written = False
        else:
            self._is_written = True

    def _state(self) -> metrics.State:
        known: Sequence[Known] = ()
        last, removals = Round(), 0
        try:
            known, last = self.watch.known(), self.watch.last()
            removals = Journal(*options.store(self._conf)).spent(REMOVALS)
        except StoreError:
            # The start, the rounds and the cleanups say it.
            pass
        return metrics.State(
            moment=time.time(),
            process=self._process, known=known, last=last,
            removals_last_hour=removals, counted=SINCE_START)
