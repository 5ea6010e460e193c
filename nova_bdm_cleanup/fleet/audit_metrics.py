# SPDX-License-Identifier: Apache-2.0
"""An audit as Prometheus reads it."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator, Mapping, Sequence
import datetime
from typing import Any

from nova_bdm_cleanup.fleet.issues import Issue
from nova_bdm_cleanup.prometheus import Metric, Metrics
from nova_bdm_cleanup.rules import spelling

_FINDINGS = Metric(
    'nova_bdm_audit_findings', 'gauge',
    'What the last complete audit found, by compute host; empty: none that '
    'Nova knows.', ('reason', 'host'))
_LAST_SUCCESS = Metric(
    'nova_bdm_audit_last_success_timestamp_seconds', 'gauge',
    'When the last complete audit ended.')
_DURATION = Metric(
    'nova_bdm_audit_duration_seconds', 'gauge',
    'How long the last complete audit took.')
_REQUESTS = Metric(
    'nova_bdm_audit_requests', 'gauge',
    'Requests of the last complete audit.', ('api',))
_SERVERS = Metric(
    'nova_bdm_audit_servers', 'gauge',
    'Servers that the last complete audit of whole lists read.')
_VOLUMES = Metric(
    'nova_bdm_audit_volumes', 'gauge',
    'Volumes that these servers claim.')
_ATTACHMENTS = Metric(
    'nova_bdm_audit_attachments', 'gauge',
    'Attachments of Cinder that it read.')

_SIZES = (_SERVERS, _VOLUMES, _ATTACHMENTS)

TABLE = Metrics((_FINDINGS, _LAST_SUCCESS, _DURATION, _REQUESTS, *_SIZES))


class AuditMetrics:
    """One complete audit; a collector.

    :param issues: what was found and is shown
    :param reasons: what would have been shown
    :param hosts: the compute hosts of this Nova.  Only these become labels:
        what Cinder calls a host is free text, which a tenant may choose, and
        every new one would be a series that Prometheus keeps for ever
    :param size: servers, volumes and attachments; of no use where it is 0
    :param requests: made, by API
    """

    def __init__(self, issues: Sequence[Issue],
                 reasons: Collection[str], hosts: frozenset[str],
                 size: tuple[int, int, int], requests: Mapping[str, int],
                 ended: datetime.datetime, seconds: float) -> None:
        self._issues = issues
        self._reasons = reasons
        #: As Nova spells them, whatever wrote the name elsewhere.
        self._hosts = {spelling.host(host): host for host in hosts}
        self._size = size
        self._requests = requests
        self._ended = ended
        self._seconds = seconds

    def collect(self) -> Iterator[Any]:
        yield self._findings()
        yield _LAST_SUCCESS.plain(self._ended.timestamp())
        yield _DURATION.plain(self._seconds)
        yield _REQUESTS.labelled({(api.lower(),): count
                            for api, count in self._requests.items()})
        if any(self._size):
            for metric, count in zip(_SIZES, self._size):
                yield metric.plain(count)

    def _findings(self) -> Any:
        # A query finds nothing about what was never there: so 0 for what
        # could have been found.
        counts = collections.Counter({(reason, ''): 0
                                      for reason in self._reasons})
        counts.update((str(issue.reason), self._host(issue))
                      for issue in self._issues)
        return _FINDINGS.labelled(counts)

    def _host(self, issue: Issue) -> str:
        return self._hosts.get(spelling.host(issue.host), '')
