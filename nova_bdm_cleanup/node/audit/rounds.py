# SPDX-License-Identifier: Apache-2.0
"""One round of the periodic audit: all servers of this host, cheaply.

What it finds is decided by the same rules as in a reboot.  Less is asked for:
the volumes of all servers together, and then once for each disk that looks
wrong.  What no mapping names is left to the cleanups.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
import dataclasses
import datetime
import time
from typing import Callable, Protocol, TypeVar
import zlib

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.node.audit.cinder import SparingCinder
from nova_bdm_cleanup.node.cleanup import actions
from nova_bdm_cleanup.node.cleanup.log_lines import Counters, LogLines, masked
from nova_bdm_cleanup.node.cleanup.triggers import AUDIT
from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.node.store.findings import (
    Changes,
    Round,
    Sighting,
    Watch,
)
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.cinder import BATCH
from nova_bdm_cleanup.openstack.deadline import TimedOut
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Plan, Reason, WitnessAnswer

T = TypeVar('T')

#: One question may take this share of ``timeout``.
_SHARE = 1 / 4

#: And no less than so many seconds, however slow Cinder was before.
_LEAST = 2.0

#: A round that begins this much too early, in seconds, is on time: the clock
#: may be slowed down while the round is waited for.
_MAX_EARLY_SECONDS = 1

#: A later release, which was taken back, may have seen what has others.
_REASONS = frozenset(map(str, Reason))


class SuspectCinder(errors.ApiError):
    """Cinder answers, and knows none of the volumes that must exist."""


class _Slow(TimedOut):
    """Cinder answers, but not this question in time."""


@dataclasses.dataclass(frozen=True)
class Inhabitant:
    """A server of this host."""

    server: facts.Server
    bdms: tuple[facts.Bdm, ...]
    #: Nova is doing something with it, so that nothing about it is certain.
    is_busy: bool = False


class NodePort(Protocol):
    """Nova on this host; every call may raise anything."""

    def servers(self) -> Iterable[Inhabitant]:
        """All servers of this host."""

    def cinder(self, seconds: float) -> SparingCinder:
        """Cinder, for so many seconds from now on."""

    def witnesses(self, server: str) -> Iterable[str]:
        """The volumes of all servers that Nova knows but one."""

    def requests(self) -> int:
        """How many Cinder was sent in this round."""


@dataclasses.dataclass
class Audit:
    """The periodic audit of one host."""

    node: NodePort
    #: What is kept from round to round.
    known: Watch
    policy: facts.Policy
    #: Seconds from one round to the next.
    interval: int
    #: Of what brought the round about.
    request_id: str
    counters: Counters
    #: Gives the time since the epoch.
    now: Callable[[], float] = time.time
    #: Of each round: how many seconds the next question may take.
    patience: float = dataclasses.field(init=False)
    #: And the moment after which nothing is asked for in halves.
    until: float = dataclasses.field(init=False)

    def round(self, failed: int, next_one: Callable[[], float]) -> int:
        """Look at all servers once.  Raises nothing.

        :param failed: how many rounds have failed before this one
        :param next_one: when the next comes
        :returns: how many have failed by now; 0: this one did not
        """
        begun, moment = time.monotonic(), self.now()
        self.patience = self.policy.timeout * _SHARE
        self.until = begun + self.interval / 2
        try:
            servers = list(self.node.servers())
            looked_at, seen = self._look([s for s in servers if not s.is_busy])
            seconds = time.monotonic() - begun
            done = Round(
                succeeded=moment, servers=len(servers),
                volumes=len({b.volume_id for s in servers for b in s.bdms
                             if b.volume_id}),
                requests=self.node.requests(), seconds=seconds,
                next=next_one())
            changes = self.known.succeeded(
                moment, self.interval, done, seen,
                {s.server.uuid for s in servers
                 if s.server.uuid not in looked_at})
        except Exception as exc:
            self._fail(exc, failed + 1, next_one())
            return failed + 1
        finally:
            self.counters.add_cinder_seconds(
                AUDIT.name, time.monotonic() - begun)
        self._tell(changes, done, failed,
                   sum(s.reason == Reason.NOT_LOOKED_AT for s in seen))
        return 0

    def _look(self, idle: Sequence[Inhabitant]
              ) -> tuple[set[str], list[Sighting]]:
        """The servers that could be looked at, and all that is found.

        One for which Cinder takes too long is a finding itself.
        """
        wanted = list(dict.fromkeys(
            b.volume_id for s in idle for b in s.bdms if b.volume_id))
        known, slow = self._read(wanted)
        if wanted and not known:
            self._prove_cinder(
                next(s.server.uuid for s in idle
                     if any(b.volume_id for b in s.bdms)), len(wanted))
        looked_at: set[str] = set()
        seen: list[Sighting] = []
        for inhabitant in idle:
            uuid = inhabitant.server.uuid
            try:
                for bdm in inhabitant.bdms:
                    if bdm.volume_id in slow:
                        raise slow[bdm.volume_id]
                found = self._judge(inhabitant, known).findings
                seen += [_sighting(uuid, finding) for finding in found
                         if finding.reason.is_in_round]
                looked_at.add(uuid)
            except (_Slow, errors.BadAnswer, errors.BadRequest) as exc:
                if not isinstance(exc, _Slow):
                    # Unless that is what Cinder has for everybody.
                    self._prove_it_answers()
                seen.append(_sighting(uuid, facts.Finding(
                    Reason.NOT_LOOKED_AT, 'the server was not looked at: %s'
                    % masked(exc))))
            _let_others()
        return looked_at, seen

    def _read(self, volume_ids: Sequence[str]
              ) -> tuple[dict[str, facts.Volume], dict[str | None, _Slow]]:
        """The volumes that Cinder shows, and those for which it is too slow.

        It reads all attachments of a volume with it, and anybody can make
        thousands of his own.  So what takes long is asked for in halves, when
        all else has been asked for.

        :raises TimedOut: when it is too slow for all of them
        """
        known: dict[str, facts.Volume] = {}
        slow: dict[str | None, _Slow] = {}
        waiting = [volume_ids[start:start + BATCH]
                   for start in range(0, len(volume_ids), BATCH)]
        answers = delays = 0
        while waiting:
            batch = waiting.pop(0)
            try:
                known.update(self._shown(batch))
                answers += 1
            except _Slow as exc:
                delays += 1
                half = len(batch) // 2
                if not half or time.monotonic() > self.until:
                    slow.update(dict.fromkeys(batch, exc))
                else:
                    waiting += [batch[:half], batch[half:]]
                if not answers and (delays >= BATCH or not waiting):
                    raise
            _let_others()
        return known, slow

    def _shown(self, batch: Sequence[str]) -> dict[str, facts.Volume]:
        return self._ask(lambda cinder: cinder.known(batch))

    def _ask(self, question: Callable[[SparingCinder], T]) -> T:
        """Ask Cinder, for no longer than one question may take.

        :raises _Slow: when it takes longer, and Cinder answers others.  The
            next ones have less, so that many of them do not take for ever.
        """
        try:
            return question(self.node.cinder(self.patience))
        except TimedOut as exc:
            self._prove_it_answers()
            self.patience = max(_LEAST, self.patience * (1 - _SHARE))
            raise _Slow(*exc.args) from exc

    def _prove_it_answers(self) -> None:
        self.node.cinder(self.patience).prove_it_answers()

    def _judge(self, inhabitant: Inhabitant,
               known: dict[str, facts.Volume]) -> Plan:
        server, bdms = inhabitant.server, inhabitant.bdms
        volumes, attachments, _ = self._ask(
            lambda cinder: cinder.look_sparingly(
                server.uuid, bdms, known, server.project))
        # A volume of some server here is known, or another one is.
        return rules.decide(
            facts.Snapshot(server, bdms, volumes, attachments,
                           WitnessAnswer.KNOWN),
            self.policy, datetime.datetime.fromtimestamp(
                self.now(), datetime.timezone.utc)).of_mappings()

    def _prove_cinder(self, server: str, volumes: int) -> None:
        """No volume of this host exists: only another one can prove that
        this is the right Cinder.

        :param server: one that has some of them
        :param volumes: how many there are
        :raises SuspectCinder: when none does
        """
        found = self.node.cinder(self.policy.timeout).witness(
            self.node.witnesses(server))
        # One alone may well be deleted, where there is no other to ask for.
        if found is not WitnessAnswer.KNOWN and not (
                found is WitnessAnswer.NONE_EXISTS and volumes == 1):
            raise SuspectCinder(
                'Cinder knows no volume of any server of this host, and none '
                'of those of other hosts that it was asked for: a wrong '
                'region, or a restored database?')

    def _fail(self, exc: Exception, failed: int, then: float) -> None:
        self._lines().not_audited(
            _reason_of(exc), exc, 'the servers of this host were not audited; '
            'the next round comes in %d s, and no more is said until one '
            'succeeds' % max(0, then - self.now()), is_new=failed == 1)
        try:
            self.known.failed(dataclasses.replace(
                self.known.last(), failed=failed, next=then,
                problem=masked(exc)))
        except StoreError:
            # Which also keeps a round from succeeding: one of the two is told.
            pass

    def _lines(self, server: str | None = None) -> LogLines:
        """Return the log lines of a server, or those of the round."""
        return LogLines({'uuid': server} if server else None,
                        self.request_id, AUDIT, self.counters)

    def _tell(self, changes: Changes, done: Round, failed: int,
              unread: int) -> None:
        for sighting in changes.new:
            self._lines(sighting.server).found(_finding(sighting))
        for sighting in changes.gone:
            if sighting.reason in _REASONS:
                self._lines(sighting.server).gone(_finding(sighting))
        told = collections.Counter(
            s.reason for s in changes.known if s.announced)
        once = sum(not s.announced for s in changes.known)
        self._lines().audited(
            'servers: %d, volumes: %d, seconds: %.1f, requests: %d, open: %s, '
            'new: %d, gone: %d, seen once: %d%s%s' % (
                done.servers, done.volumes, done.seconds, done.requests,
                ' '.join('%s=%d' % each for each in sorted(told.items()))
                or '0', len(changes.new), len(changes.gone), once,
                ', servers not looked at: %d' % unread if unread else '',
                ', failed rounds before: %d' % failed if failed else ''))


def _reason_of(exc: Exception) -> Reason:
    if isinstance(exc, SuspectCinder):
        return Reason.CINDER_SUSPECT
    if isinstance(exc, StoreError):
        return Reason.JOURNAL_UNWRITABLE
    return actions.reason_of(exc, AUDIT)


def _let_others() -> None:
    """Green threads take turns only here and where something is waited for."""
    time.sleep(0)


def _sighting(server: str, finding: facts.Finding) -> Sighting:
    return Sighting(
        server=server, subject=finding.bdm.uuid if finding.bdm else '',
        reason=str(finding.reason), volume=finding.volume_id,
        attachment=finding.attachment_id, device=finding.device,
        explanation=finding.explanation)


def _finding(sighting: Sighting) -> facts.Finding:
    """As the log lines take it."""
    bdm = facts.Bdm(uuid=sighting.subject, volume_id=sighting.volume,
                    attachment_id=sighting.attachment,
                    device_name=sighting.device)
    return facts.Finding(Reason(sighting.reason), sighting.explanation, bdm)


def next_round(host: str, interval: int, now: float) -> float:
    """Return when the next round of a host comes.

    Rounds are spread over the interval by the names of the hosts, so that not
    all hosts ask Cinder in the same second, and a restart of nova-compute does
    not move them.

    :param interval: seconds from one round to the next
    """
    offset = zlib.crc32(host.encode()) % interval
    begun = (now + _MAX_EARLY_SECONDS - offset) // interval
    return (begun + 1) * interval + offset


def is_far(seconds: float, interval: int) -> bool:
    """Return whether no round can be so far away: the clock was set back."""
    return seconds > interval + _MAX_EARLY_SECONDS
