# SPDX-License-Identifier: Apache-2.0
"""Whether the plugin works in the nova-compute that runs here now."""

from __future__ import annotations

import collections
import dataclasses
import enum

from nova_bdm_cleanup.store.journal import Journal, REMOVALS
from nova_bdm_cleanup.store.processes import Process, Processes
from nova_bdm_cleanup.store.watch import Round, Watch

#: So many intervals without a good round are too many.
_STALE = 3


class State(str, enum.Enum):
    """What can be said of it.  The values are an interface."""

    ACTIVE = 'active'
    STALE = 'stale'
    REFUSED = 'refused'
    NOT_ACTIVE = 'not-active'
    CANNOT_TELL = 'cannot-tell'

    def __str__(self) -> str:
        return self.value


@dataclasses.dataclass(frozen=True)
class Status:
    """The plugin in one nova-compute."""

    state: State
    #: Why it is that; empty when all is well.
    why: str
    process: Process | None
    last: Round
    #: By reason, how many findings were told and are still there.
    findings: dict[str, int]
    removals_last_hour: int


def status_of(host: str, path: str, now: float) -> Status:
    """What the store and the kernel say.

    :param host: the name of the nova-compute
    :param path: of the store
    :param now: seconds since the epoch
    :raises StoreError: when the store cannot be read
    """
    # The size limits only who writes.
    processes, watch = Processes(path, 0, host), Watch(path, 0, host)
    process, last = processes.last(), watch.last()
    state, why = _judge(process, last, processes, host, now)
    findings = collections.Counter(
        k.sighting.reason for k in watch.known() if k.announced)
    return Status(state, why, process, last, dict(sorted(findings.items())),
                  Journal(path, 0, lambda: now).spent(REMOVALS))


def _judge(process: Process | None, last: Round, processes: Processes,
           host: str, now: float) -> tuple[State, str]:
    if process is None:
        others = [name for name in processes.hosts() if name != host]
        return State.NOT_ACTIVE, (
            'the plugin was never started in the nova-compute of host %s%s' % (
                host, ', but in that of %s (--config-file)' % ', '.join(others)
                if others else ''))
    if not processes.is_running():
        return State.NOT_ACTIVE, (
            'the nova-compute that had it (process %s) has ended; one that '
            'runs by now runs without the plugin' % process.pid)
    if process.problem:
        return State.REFUSED, process.problem
    interval = process.facts.get('audit_interval', 0)
    age = now - max(last.succeeded or 0.0, process.since)
    if interval and age > _STALE * interval:
        return State.STALE, (
            'no round of the audit has succeeded for %d s%s'
            % (age, last.problem and ': ' + last.problem))
    return State.ACTIVE, ''
