# SPDX-License-Identifier: Apache-2.0
"""An audit as Prometheus reads it."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator, Sequence
import dataclasses
import datetime
from types import SimpleNamespace
from typing import Any

from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.prometheus import Metric, Metrics, text
from nova_bdm_cleanup.rules import spelling

_FINDINGS = Metric(
    'nova_bdm_audit_findings', 'gauge',
    'What the last complete audit found, by compute host; empty: none that '
    'Nova knows.', ('reason', 'host'))
_LAST_SUCCESS = Metric(
    'nova_bdm_audit_last_success_timestamp_seconds', 'gauge',
    'When the last complete audit ended.')
_COMPLETE = Metric(
    'nova_bdm_audit_complete', 'gauge',
    '1: the last audit was complete; 0: it was not, and all else is of the '
    'last one that was.')
_SIZES = (
    Metric('nova_bdm_audit_servers', 'gauge',
           'Servers that the last complete audit of whole lists read.'),
    Metric('nova_bdm_audit_volumes', 'gauge',
           'Volumes that these servers claim.'),
    Metric('nova_bdm_audit_attachments', 'gauge',
           'Attachments of Cinder that it read.'))

TABLE = Metrics((_FINDINGS, _COMPLETE, _LAST_SUCCESS, *_SIZES))


def incomplete(before: bytes) -> bytes:
    """What was written before, but of an audit that was not complete.

    Less would be found than there is, and an alert would end.

    :param before: empty where there is nothing
    """
    name = _COMPLETE.name.encode()
    return b''.join(line for line in before.splitlines(keepends=True)
                    if name not in line) + text(
        SimpleNamespace(collect=lambda: [_COMPLETE.plain(0)]))


@dataclasses.dataclass(frozen=True)
class AuditMetrics:
    """One complete audit; a collector."""

    #: What was found and is shown.
    findings: Sequence[CloudFinding]
    #: What would have been shown.
    reasons: Collection[str]
    #: The compute hosts of this Nova.  Only these become labels: what Cinder
    #: calls a host is free text, which a tenant may choose, and every new one
    #: would be a series that Prometheus keeps for ever.
    hosts: frozenset[str]
    #: Servers, volumes and attachments; of no use where it is 0.
    size: tuple[int, int, int]
    ended: datetime.datetime

    def collect(self) -> Iterator[Any]:
        # A query finds nothing about what was never there: so 0 for what
        # could have been found.
        counts = collections.Counter({(reason, ''): 0
                                      for reason in self.reasons})
        # As Nova spells them, whatever wrote the name elsewhere.
        hosts = {spelling.host(host): host for host in self.hosts}
        for finding in self.findings:
            counts[str(finding.reason), hosts.get(
                spelling.host(finding.host), '')] += finding.count
        yield _FINDINGS.labelled(counts)
        yield _COMPLETE.plain(1)
        yield _LAST_SUCCESS.plain(self.ended.timestamp())
        if any(self.size):
            yield from map(Metric.plain, _SIZES, self.size)
