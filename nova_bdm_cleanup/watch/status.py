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
"""Whether the plugin works in the nova-compute that runs here now."""

from __future__ import annotations

import collections
import dataclasses
import enum
from typing import Dict, Optional

from nova_bdm_cleanup.store.journal import Journal
from nova_bdm_cleanup.store.journal import REMOVALS
from nova_bdm_cleanup.store.watch import Process
from nova_bdm_cleanup.store.watch import Round
from nova_bdm_cleanup.store.watch import Watch
from nova_bdm_cleanup.watch import process as processes

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
    process: Optional[Process]
    last: Round
    #: By reason, how many findings were told and are still there.
    findings: Dict[str, int]
    removals_last_hour: int


def of(watch: Watch, journal: Journal, host: str, now: float) -> Status:
    """What the store and the kernel say.

    :param host: the name of the nova-compute
    :param now: seconds since the epoch
    :raises StoreError: when the store cannot be read
    """
    process, last = watch.process(), watch.last()
    state, why = _judge(process, last, watch, host, now)
    findings = collections.Counter(
        k.sighting.reason for k in watch.known() if k.announced)
    return Status(state, why, process, last, dict(sorted(findings.items())),
                  journal.spent(REMOVALS))


def _judge(process: Optional[Process], last: Round, watch: Watch, host: str,
           now: float) -> tuple[State, str]:
    if process is None:
        others = [name for name in watch.hosts() if name != host]
        return State.NOT_ACTIVE, (
            'the plugin was never started in the nova-compute of host %s%s' % (
                host, ', but in that of %s (--config-file)' % ', '.join(others)
                if others else ''))
    runs = processes.runs(process.identity)
    if runs is None:
        return State.CANNOT_TELL, (
            'the nova-compute that had it was in another container: run this '
            'where nova-compute runs; if that is here, the container was '
            'started again since, and nova-compute has no plugin in it')
    if not runs:
        return State.NOT_ACTIVE, (
            'the nova-compute that had it (process %s) has ended; one that '
            'runs by now runs without the plugin' % process.identity['pid'])
    if process.problem:
        return State.REFUSED, process.problem
    interval = process.facts.get('audit_interval', 0)
    age = now - max(last.succeeded or 0.0, process.since)
    if interval and age > _STALE * interval:
        return State.STALE, (
            'no round of the audit has succeeded for %d s%s'
            % (age, last.problem and ': ' + last.problem))
    return State.ACTIVE, ''
