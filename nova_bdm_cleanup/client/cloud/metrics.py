# SPDX-License-Identifier: Apache-2.0
"""The metrics of ``openstack bdm audit --prometheus``."""

from __future__ import annotations

import collections
from collections.abc import Collection, Sequence
import dataclasses
import datetime
from typing import Any

import prometheus_client

from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.rules import spelling


def _gauge(name: str, text: str, *labels: str) -> Any:
    return prometheus_client.Gauge(name, text, labels, registry=None)


_FINDINGS_GAUGE = _gauge(
    'nova_bdm_audit_findings',
    'Findings of the last complete audit, by compute host; empty: no host '
    'that Nova knows.', 'reason', 'host')
_COMPLETE = _gauge(
    'nova_bdm_audit_complete',
    '1: the last audit was complete; 0: it was not, and the other metrics are '
    'of the last complete one.')
_LAST_COMPLETE_TIME = _gauge(
    'nova_bdm_audit_last_success_timestamp_seconds',
    'When the last complete audit ended.')
_SIZES = (
    _gauge('nova_bdm_audit_servers',
           'Servers that the last complete audit of whole lists read.'),
    _gauge('nova_bdm_audit_volumes', 'Volumes that the mappings of these '
                                     'servers name.'),
    _gauge('nova_bdm_audit_attachments',
           'Attachments in Cinder that it read.'))

#: All metrics of an audit, for the documentation.
AUDIT_METRICS = (_FINDINGS_GAUGE, _COMPLETE, _LAST_COMPLETE_TIME, *_SIZES)


def mark_incomplete(before: bytes) -> bytes:
    """Return the content of a metrics file after an incomplete audit.

    Its findings stay: an incomplete audit finds fewer, and an alert would
    end.

    :param before: the content that the file has; empty where there is none
    """
    registry = prometheus_client.CollectorRegistry()
    _COMPLETE.set(0)
    registry.register(_COMPLETE)
    text: bytes = prometheus_client.generate_latest(registry)
    return b''.join(line for line in before.splitlines(keepends=True)
                    if b'nova_bdm_audit_' in line
                    and b'nova_bdm_audit_complete' not in line) + text


@dataclasses.dataclass(frozen=True)
class AuditResult:
    """A complete audit."""

    #: The findings that are shown.
    findings: Sequence[CloudFinding]
    #: The reasons that would be shown if found.
    reasons: Collection[str]
    #: The compute hosts of this Nova.  Only these become labels: what Cinder
    #: calls a host is free text that a tenant may choose, and each new one
    #: would be a series that Prometheus keeps.
    hosts: frozenset[str]
    #: Servers, volumes and attachments; all 0 where no whole lists were read.
    size: tuple[int, int, int]
    ended: datetime.datetime

    def registry(self) -> Any:
        """Set the gauges and return the registry to write."""
        registry = prometheus_client.CollectorRegistry()
        # With 0 for a reason without findings: a query for a series that
        # does not exist has no result.
        counts = collections.Counter({(reason, ''): 0
                                      for reason in self.reasons})
        # Host labels are spelled as Nova spells them.
        hosts = {spelling.host(host): host for host in self.hosts}
        for finding in self.findings:
            counts[str(finding.reason), hosts.get(
                spelling.host(finding.host), '')] += finding.count
        _FINDINGS_GAUGE.clear()
        for labels, count in sorted(counts.items()):
            _FINDINGS_GAUGE.labels(*labels).set(count)
        _COMPLETE.set(1)
        _LAST_COMPLETE_TIME.set(self.ended.timestamp())
        for gauge in (_FINDINGS_GAUGE, _COMPLETE, _LAST_COMPLETE_TIME):
            registry.register(gauge)
        if any(self.size):
            for gauge, number in zip(_SIZES, self.size):
                gauge.set(number)
                registry.register(gauge)
        return registry
