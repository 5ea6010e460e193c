# SPDX-License-Identifier: Apache-2.0
"""Tells Prometheus of this nova-compute, in ``[bdm_cleanup] metrics_file``."""

from __future__ import annotations

from collections.abc import Sequence
import time

from oslo_config import cfg
from oslo_log import log as logging

from nova_bdm_cleanup import prometheus
from nova_bdm_cleanup.node.audit import metrics
from nova_bdm_cleanup.node.cleanup.tally import SINCE_START
from nova_bdm_cleanup.node.option_group import GROUP
from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.node.store.findings import Round, Sighting, Watch
from nova_bdm_cleanup.node.store.journal import Journal, REMOVALS
from nova_bdm_cleanup.node.store.processes import Process

LOG = logging.getLogger(__name__)


class MetricsFile:
    """The file, if there is to be one."""

    def __init__(self, conf: cfg.ConfigOpts, process: Process) -> None:
        self._conf = conf
        self._process = process
        self._is_written = True

    def write(self) -> None:
        """Write it anew.  A problem is told once, until it is over."""
        path: str = self._conf[GROUP].metrics_file
        if not path:
            return
        try:
            prometheus.FILE.write(path, prometheus.text(self._told()))
        except OSError as exc:
            if self._is_written:
                LOG.error('bdm-cleanup: [bdm_cleanup] metrics_file: %s', exc)
            self._is_written = False
        else:
            self._is_written = True

    def _told(self) -> metrics.Told:
        known: Sequence[Sighting] = ()
        last, removals = Round(), 0
        store = self._conf[GROUP].store
        watch = Watch(store, self._conf.host)
        try:
            known, last = watch.known(), watch.last()
            removals = Journal(store).spent(REMOVALS)
        except StoreError:
            # The start, the rounds and the cleanups say it.
            pass
        return metrics.Told(
            moment=time.time(),
            process=self._process, known=known, last=last,
            removals_last_hour=removals, counted=SINCE_START)
