# SPDX-License-Identifier: Apache-2.0
"""What this nova-compute tells Prometheus.

The names are an interface: alerts and dashboards use them.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
from typing import Any

from nova_bdm_cleanup.node.cleanup.tally import Tally
from nova_bdm_cleanup.node.store.findings import Round, Sighting
from nova_bdm_cleanup.node.store.processes import Process
from nova_bdm_cleanup.prometheus import Metric, Metrics, Value


def _metric(name: str, kind: str, text: str, *labels: str) -> Metric:
    """All have Nova's name of the host, of which a machine may have two."""
    return Metric(name, kind, text, ('host', *labels))


_INFO = _metric(
    'nova_bdm_cleanup_info', 'gauge',
    'The plugin in the nova-compute of this host; always 1.',
    'version', 'nova_version', 'mode', 'triggers')
_ACTIVE = _metric(
    'nova_bdm_cleanup_active', 'gauge',
    'Whether it is installed there (1), or was refused (0).')
_START = _metric(
    'nova_bdm_cleanup_start_timestamp_seconds', 'gauge',
    'When it was started.')
_HEARTBEAT = _metric(
    'nova_bdm_cleanup_heartbeat_timestamp_seconds', 'gauge',
    'When these metrics were written, which is every minute.')
_FINDINGS = _metric(
    'nova_bdm_cleanup_findings', 'gauge',
    'What the audit has found at servers of this host and is still so.',
    'reason')
_OLDEST = _metric(
    'nova_bdm_cleanup_findings_oldest_timestamp_seconds', 'gauge',
    'When the oldest of these findings was first seen.', 'reason')
_REMOVALS = _metric(
    'nova_bdm_cleanup_removals_total', 'counter',
    'Mappings and attachments that were removed since the start.',
    'reason', 'trigger')
_REFUSALS = _metric(
    'nova_bdm_cleanup_refusals_total', 'counter',
    'What was withheld, was skipped or failed since the start, by the reason '
    'for that.', 'reason', 'trigger')
_LOOKS = _metric(
    'nova_bdm_cleanup_look_duration_seconds', 'summary',
    'Time spent on asking Cinder, for each cleanup and each round of the '
    'audit.', 'trigger')
_LAST_HOUR = _metric(
    'nova_bdm_cleanup_removals_last_hour', 'gauge',
    'Mappings that were removed on this host within the last hour.')
_LIMIT = _metric(
    'nova_bdm_cleanup_removals_per_hour_limit', 'gauge',
    'How many of them there may be: max_removals_per_hour.')
_INTERVAL = _metric(
    'nova_bdm_cleanup_audit_interval_seconds', 'gauge',
    'Time from one round of the audit to the next; 0: there is none.')
_LAST_SUCCESS = _metric(
    'nova_bdm_cleanup_audit_last_success_timestamp_seconds', 'gauge',
    'When the last round began that succeeded.')
_DURATION = _metric(
    'nova_bdm_cleanup_audit_duration_seconds', 'gauge',
    'How long that round took.')
_SERVERS = _metric(
    'nova_bdm_cleanup_audit_servers', 'gauge',
    'How many servers this host had in it.')

TABLE = Metrics((
    _INFO, _ACTIVE, _START, _HEARTBEAT, _FINDINGS, _OLDEST, _REMOVALS,
    _REFUSALS, _LOOKS, _LAST_HOUR, _LIMIT, _INTERVAL, _LAST_SUCCESS, _DURATION,
    _SERVERS))


@dataclasses.dataclass(frozen=True)
class Told:
    """All that is told, as it is at one moment; a collector."""

    #: When that is.
    moment: float
    process: Process
    known: Sequence[Sighting]
    last: Round
    removals_last_hour: int
    counted: Tally

    def collect(self) -> Iterator[Any]:
        process, last, counted = self.process, self.last, self.counted
        yield self._by(_INFO, {tuple(str(process.facts.get(name, ''))
                                     for name in _INFO.labels[1:]): 1})
        yield self._one(_ACTIVE, not process.problem)
        yield self._one(_START, process.since)
        yield self._one(_HEARTBEAT, self.moment)
        if process.problem:
            return
        number: dict[tuple[str], int] = collections.Counter()
        oldest: dict[tuple[str], float] = {}
        for known in self.known:
            if known.announced:
                reason = (known.reason,)
                number[reason] += 1
                oldest[reason] = min(known.first,
                                     oldest.get(reason, known.first))
        yield self._by(_FINDINGS, number)
        yield self._by(_OLDEST, oldest)
        yield self._by(_REMOVALS, counted.removals)
        yield self._by(_REFUSALS, counted.refusals)
        yield self._by(_LOOKS, {
            (trigger,): look for trigger, look in counted.looks.items()})
        yield self._one(_LAST_HOUR, self.removals_last_hour)
        yield self._one(_LIMIT, process.facts['max_removals_per_hour'])
        yield self._one(_INTERVAL, process.facts['audit_interval'])
        if last.succeeded is not None:
            yield self._one(_LAST_SUCCESS, last.succeeded)
            yield self._one(_DURATION, last.seconds)
            yield self._one(_SERVERS, last.servers)

    def _by(self, metric: Metric, values: Mapping[Any, Value]) -> Any:
        return metric.labelled({(self.process.host, *labels): value
                          for labels, value in values.items()})

    def _one(self, metric: Metric, value: Value) -> Any:
        return self._by(metric, {(): value})
