# SPDX-License-Identifier: Apache-2.0
"""Whether the plugin works in the nova-compute that runs here now."""

from __future__ import annotations

import collections
import dataclasses
import enum

from nova_bdm_cleanup.rules.facts import Reason
from nova_bdm_cleanup.store.journal import Journal, REMOVALS
from nova_bdm_cleanup.store.processes import Process, Processes
from nova_bdm_cleanup.store.watch import Round, Sighting, Watch

#: So many intervals without a good round are too many.
_STALE = 3

_REMEDY = '[bdm_cleanup] enabled = true and a restart of nova-compute'


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
    process: Process | None = None
    last: Round = Round()
    #: What the last good round of the audit found.
    known: tuple[Sighting, ...] = ()
    removals_last_hour: int = 0
    #: The nova-computes of other names, if this one was never started.
    others: tuple[str, ...] = ()

    @property
    def is_audited(self) -> bool:
        """Whether anybody knows what is open."""
        return bool(self.process and self.process.facts.get('audit_interval')
                    and self.last.succeeded)

    @property
    def findings(self) -> dict[str, int]:
        """By reason, how many were told and are still there."""
        return dict(sorted(collections.Counter(
            s.reason for s in self.known if s.announced).items()))

    @property
    def open(self) -> tuple[Sighting, ...]:
        """Those for which something is to be done, the worst first."""
        return tuple(sorted(
            (s for s in self.known if s.announced
             and s.reason != Reason.OPTED_OUT),
            key=lambda s: s.reason != Reason.ROOT_VOLUME_DANGLING))


def status_of(host: str, path: str, now: float) -> Status:
    """What the store and the kernel say.

    :raises StoreError: when the store cannot be read
    """
    # The size limits only who writes.
    processes, watch = Processes(path, 0, host), Watch(path, 0, host)
    process = processes.last()
    if process is None:
        others = processes.hosts()
        return Status(
            State.NOT_ACTIVE, 'not running in any nova-compute named %s; %s'
            % (host, 'for %s give its --config-file' % ' or '.join(others)
               if others else 'it needs ' + _REMEDY), others=others)
    last = watch.last()
    interval = process.facts.get('audit_interval', 0)
    age = now - max(last.succeeded or 0.0, process.since)
    state, why = State.ACTIVE, ''
    if not processes.is_running():
        state, why = State.NOT_ACTIVE, (
            'the nova-compute that had it (process %s) has ended; one that '
            'runs by now runs without the plugin, and needs %s' % (
                process.pid, _REMEDY))
    elif process.problem:
        state, why = State.REFUSED, process.problem
    elif interval and age > _STALE * interval:
        state, why = State.STALE, (
            'no round of the audit has succeeded for %d s%s'
            % (age, last.problem and ': ' + last.problem))
    return Status(
        state, why, process, last,
        # What was known when there was an audit is old by now.
        watch.known() if interval else (),
        Journal(path, 0, lambda: now).spent(REMOVALS))
