# SPDX-License-Identifier: Apache-2.0
"""The metrics of this nova-compute, and their file for Prometheus.

Their names are an interface: alerts and dashboards use them.  All have the
host's name in Nova as a label, since one machine may run two nova-computes.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging
import prometheus_client

from nova_bdm_cleanup import files
from nova_bdm_cleanup.node.cleanup import log_lines
from nova_bdm_cleanup.node.option_group import GROUP
from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.node.store.findings import (
    FindingStore,
    RecordedFinding,
    Round,
)
from nova_bdm_cleanup.node.store.journal import Journal, MAPPINGS
from nova_bdm_cleanup.node.store.processes import Process

LOG = logging.getLogger(__name__)


def _gauge(name: str, text: str, *labels: str) -> Any:
    return prometheus_client.Gauge(
        name, text, ('host', *labels), registry=None)


def _counter(name: str, text: str, *labels: str) -> Any:
    return prometheus_client.Counter(
        name, text, ('host', *labels), registry=None)


_PROCESS_FACTS = ('version', 'nova_version', 'mode', 'triggers')

_INFO = _gauge(
    'nova_bdm_cleanup_info',
    'The plugin in the nova-compute of this host; always 1.', *_PROCESS_FACTS)
_ACTIVE = _gauge(
    'nova_bdm_cleanup_active',
    'Whether it is installed there (1) or was refused (0).')
_START_TIME = _gauge(
    'nova_bdm_cleanup_start_timestamp_seconds', 'When it was started.')
_HEARTBEAT = _gauge(
    'nova_bdm_cleanup_heartbeat_timestamp_seconds',
    'When these metrics were written, which is every minute.')
_FINDINGS_BY_REASON = _gauge(
    'nova_bdm_cleanup_findings',
    'Open findings of the audit at servers of this host.',
    'reason')
_OLDEST_FINDING = _gauge(
    'nova_bdm_cleanup_findings_oldest_timestamp_seconds',
    'When the oldest of these findings was first seen.', 'reason')
_REMOVALS_SINCE_START = _counter(
    'nova_bdm_cleanup_removals_total',
    'Mappings and attachments that were removed since the start.',
    'reason', 'trigger')
_RECONNECTS_SINCE_START = _counter(
    'nova_bdm_cleanup_reconnects_total',
    'Disks that were reconnected since the start.', 'reason', 'trigger')
_ADOPTIONS_SINCE_START = _counter(
    'nova_bdm_cleanup_adoptions_total',
    'Mappings that have taken over the attachments of running guests since '
    'the start.', 'reason', 'trigger')
_REFUSALS_SINCE_START = _counter(
    'nova_bdm_cleanup_refusals_total',
    'Removals and reconnects that were withheld, and cleanups and rounds that '
    'were skipped or failed, since the start, by reason.', 'reason', 'trigger')
_INTERRUPTED_SINCE_START = _counter(
    'nova_bdm_cleanup_interrupted_total',
    'Servers whose operation had ended with an earlier nova-compute, at the '
    'start.', 'task_state')
_CINDER_SECONDS = prometheus_client.Summary(
    'nova_bdm_cleanup_look_duration_seconds',
    'Time of the requests to Cinder, for each cleanup, and for each server in '
    'an audit round.',
    ('host', 'trigger'), registry=None)
_REMOVALS_LAST_HOUR = _gauge(
    'nova_bdm_cleanup_removals_last_hour',
    'Mappings that were removed on this host within the last hour, for the '
    'project (or for the host itself) with the most of them.')
_REMOVALS_LIMIT = _gauge(
    'nova_bdm_cleanup_removals_per_hour_limit',
    'The limit of these removals: max_removals_per_hour.')
_AUDIT_INTERVAL = _gauge(
    'nova_bdm_cleanup_audit_interval_seconds',
    'Time from one audit round to the next; 0: no audit.')
_LAST_ROUND_TIME = _gauge(
    'nova_bdm_cleanup_audit_last_success_timestamp_seconds',
    'When the last successful round ended.')
_LAST_ROUND_SECONDS = _gauge(
    'nova_bdm_cleanup_audit_duration_seconds',
    'How long that round took to look at its servers, without the waits.')
_LAST_ROUND_SERVERS = _gauge(
    'nova_bdm_cleanup_audit_servers', 'How many servers it looked at.')

#: All metrics of a nova-compute, for the documentation.
NODE_METRICS = (
    _INFO, _ACTIVE, _START_TIME, _HEARTBEAT, _FINDINGS_BY_REASON,
    _OLDEST_FINDING, _REMOVALS_SINCE_START, _RECONNECTS_SINCE_START,
    _ADOPTIONS_SINCE_START, _REFUSALS_SINCE_START, _INTERRUPTED_SINCE_START,
    _CINDER_SECONDS,
    _REMOVALS_LAST_HOUR, _REMOVALS_LIMIT, _AUDIT_INTERVAL,
    _LAST_ROUND_TIME, _LAST_ROUND_SECONDS, _LAST_ROUND_SERVERS)

#: Held while the gauges are set and written: the periodic task and an audit
#: round write at the same time.
_gauges_lock = threading.Lock()


class Registry(prometheus_client.CollectorRegistry):
    """A registry without the creation time of each counter.

    prometheus_client can omit these ``_created`` series only for the whole
    process, which is not ours.
    """

    def collect(self) -> Iterator[Any]:
        """Yield the metrics."""
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples
                              if not sample.name.endswith('_created')]
            yield metric


class HostCounters(log_lines.Counters):
    """The counters of the nova-compute of one host."""

    def __init__(self, host: str) -> None:
        self._host = host

    def count_removal(self, reason: str, trigger: str) -> None:
        _REMOVALS_SINCE_START.labels(self._host, reason, trigger).inc()

    def count_reconnect(self, reason: str, trigger: str) -> None:
        _RECONNECTS_SINCE_START.labels(self._host, reason, trigger).inc()

    def count_adoption(self, reason: str, trigger: str) -> None:
        _ADOPTIONS_SINCE_START.labels(self._host, reason, trigger).inc()

    def count_interrupted(self, task_state: str) -> None:
        _INTERRUPTED_SINCE_START.labels(self._host, task_state).inc()

    def count_refusals(self, reason: str, trigger: str,
                       number: int = 1) -> None:
        _REFUSALS_SINCE_START.labels(self._host, reason, trigger).inc(number)

    def add_cinder_seconds(self, trigger: str, seconds: float) -> None:
        _CINDER_SECONDS.labels(self._host, trigger).observe(seconds)


class MetricsFile:
    """The file ``[bdm_cleanup] metrics_file``.

    :param process: the record of this nova-compute
    """

    def __init__(self, conf: cfg.ConfigOpts, process: Process) -> None:
        self._conf = conf
        self._process = process
        self._problem = ''

    def write(self) -> None:
        """Write the metrics.  A problem is logged once, until it is solved."""
        path: str = self._conf[GROUP].metrics_file
        problem = ''
        try:
            with _gauges_lock:
                files.METRICS_FILE.replace(
                    path, prometheus_client.generate_latest(self._registry()))
        except files.FileError as exc:
            problem = str(exc)
        if problem and not self._problem:
            LOG.error('bdm-cleanup: [bdm_cleanup] metrics_file: %s', problem)
        self._problem = problem

    def _registry(self) -> Registry:
        findings: Sequence[RecordedFinding] = ()
        last_round, removals = Round(), 0
        path = self._conf[GROUP].store
        store = FindingStore(path, self._conf.host)
        try:
            findings, last_round = store.findings(), store.last_round()
            journal = Journal(path)
            journal.correct_dates()
            _, removals = journal.most_charged(MAPPINGS)
        except StoreError:
            # The start, the rounds and the cleanups log it.
            pass
        return registry_of(self._process, findings, last_round, removals,
                           time.time())


def registry_of(process: Process, findings: Sequence[RecordedFinding],
                last_round: Round, removals: int, now: float) -> Registry:
    """Set the gauges.

    :param removals: the most removals within the last hour that one project,
        or the host, was charged for
    :returns: a registry of the metrics that apply: without those that count
        if the plugin was refused, and without those of a round before the
        first one
    """
    registry = Registry()

    def add(metric: Any, value: float) -> None:
        metric.labels(process.host).set(value)
        registry.register(metric)

    _INFO.clear()
    _INFO.labels(process.host, *(process.facts.get(name, '')
                                 for name in _PROCESS_FACTS)).set(1)
    registry.register(_INFO)
    add(_ACTIVE, not process.problem)
    add(_START_TIME, process.since)
    add(_HEARTBEAT, now)
    if process.problem:
        return registry
    by_reason: dict[str, list[float]] = collections.defaultdict(list)
    for finding in findings:
        if finding.announced:
            by_reason[finding.reason].append(finding.first)
    for gauge, value_of in ((_FINDINGS_BY_REASON, len),
                            (_OLDEST_FINDING, min)):
        gauge.clear()
        for reason, times in sorted(by_reason.items()):
            gauge.labels(process.host, reason).set(value_of(times))
        registry.register(gauge)
    for counter in (_REMOVALS_SINCE_START, _RECONNECTS_SINCE_START,
                    _ADOPTIONS_SINCE_START, _REFUSALS_SINCE_START,
                    _INTERRUPTED_SINCE_START, _CINDER_SECONDS):
        registry.register(counter)
    add(_REMOVALS_LAST_HOUR, removals)
    add(_REMOVALS_LIMIT, process.facts['max_removals_per_hour'])
    add(_AUDIT_INTERVAL, process.facts['audit_interval'])
    if last_round.succeeded is not None:
        add(_LAST_ROUND_TIME, last_round.succeeded)
        add(_LAST_ROUND_SECONDS, last_round.seconds)
        add(_LAST_ROUND_SERVERS, last_round.servers)
    return registry
