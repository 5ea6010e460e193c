# SPDX-License-Identifier: Apache-2.0
"""An audit round: all servers of this host, with few requests to Cinder.

The same rules decide as in a reboot.  A round asks for the volumes of all
servers together, and then once for each disk that looks wrong.  Attachments
that no BDM names are left to the cleanups.
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
from nova_bdm_cleanup.node.audit.cinder import AuditCinder
from nova_bdm_cleanup.node.cleanup import actions
from nova_bdm_cleanup.node.cleanup.log_lines import Counters, LogLines, masked
from nova_bdm_cleanup.node.cleanup.triggers import AUDIT
from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.node.store.findings import (
    Changes,
    FindingStore,
    RecordedFinding,
    Round,
)
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.cinder import BATCH
from nova_bdm_cleanup.openstack.deadline import TimedOut
from nova_bdm_cleanup.rules import addresses, facts
from nova_bdm_cleanup.rules.facts import Plan, WitnessAnswer
from nova_bdm_cleanup.rules.reasons import Reason

T = TypeVar('T')

#: The share of ``timeout`` that one question to Cinder may take.
_QUESTION_SHARE_OF_TIMEOUT = 1 / 4

#: Each question that takes too long shortens the time for the next one by this
#: share, so that many slow volumes do not fill the interval.
_QUESTION_SHORTENED_BY = 1 / 4

#: The time for a question is never less than this many seconds.
_MIN_QUESTION_SECONDS = 2.0

#: A round may begin this many seconds early: the clock may be slowed down
#: while the task waits for the round.
_MAX_EARLY_SECONDS = 1

#: A finding that a later release recorded may have a reason that this release
#: does not know.
_KNOWN_REASONS = frozenset(map(str, Reason))


class SuspectCinder(errors.ApiError):
    """Cinder answers, but knows none of the volumes that must exist."""


class _QuestionTimedOut(TimedOut):
    """Cinder answers, but not this question in time."""


@dataclasses.dataclass(frozen=True)
class HostServer:
    """A server of this host, with its BDMs."""

    server: facts.Server
    bdms: tuple[facts.Bdm, ...]
    #: It has a task state, or is being built or deleted: its records are
    #: changing.
    is_busy: bool = False


class NodePort(Protocol):
    """Nova on this host; every call may raise any exception."""

    def servers(self) -> Iterable[HostServer]:
        """Return all servers of this host."""

    def cinder(self, seconds: float) -> AuditCinder:
        """Return Cinder, which may be asked for this many seconds."""

    def witnesses(self, server: str) -> Iterable[str]:
        """Return the volumes of all servers of Nova except one."""

    def moves(self, server: str) -> Sequence[facts.Move]:
        """Return the moves of a server between hosts, the last one first."""

    def requests(self) -> int:
        """Return how many requests this round has sent to Cinder."""


@dataclasses.dataclass
class Audit:
    """The periodic audit of one host."""

    node: NodePort
    store: FindingStore
    policy: facts.Policy
    #: Seconds from one round to the next.
    interval: int
    #: The request id for the log lines.
    request_id: str
    counters: Counters
    #: Gives the time since the epoch.
    now: Callable[[], float] = time.time
    #: Gives the time of a clock that is never set.
    uptime: Callable[[], float] = time.monotonic
    #: Seconds that the next question of this round may take.
    question_timeout: float = dataclasses.field(init=False)
    #: After this moment of the round, no batch is split.
    split_until: float = dataclasses.field(init=False)

    def round(self, failed: int, next_one: Callable[[], float]) -> int:
        """Audit all servers once.  Raises nothing.

        :param failed: how many rounds before this one have failed in a row
        :param next_one: gives the time of the next round
        :returns: how many rounds have failed in a row; 0: this one succeeded
        """
        begun, moment, uptime = time.monotonic(), self.now(), self.uptime()
        self.question_timeout = (
            self.policy.timeout * _QUESTION_SHARE_OF_TIMEOUT)
        self.split_until = begun + self.interval / 2
        try:
            servers = list(self.node.servers())
            audited, found = self._audit(
                [s for s in servers if not s.is_busy])
            seconds = time.monotonic() - begun
            done = Round(
                succeeded=moment, servers=len(servers),
                volumes=len({b.volume_id for s in servers for b in s.bdms
                             if b.volume_id}),
                requests=self.node.requests(), seconds=seconds,
                next=next_one())
            changes = self.store.record_success(
                moment, uptime, self.interval, done, found,
                {s.server.uuid for s in servers
                 if s.server.uuid not in audited})
        except Exception as exc:
            self._fail(exc, failed + 1, next_one())
            return failed + 1
        finally:
            self.counters.add_cinder_seconds(
                AUDIT.name, time.monotonic() - begun)
        self._log(changes, done, failed,
                  sum(f.reason == Reason.NOT_LOOKED_AT for f in found))
        return 0

    def _audit(self, idle: Sequence[HostServer]
               ) -> tuple[set[str], list[RecordedFinding]]:
        """Return the servers that could be audited, and all findings.

        A server for which Cinder takes too long is a finding itself.
        """
        volume_ids = list(dict.fromkeys(
            b.volume_id for s in idle for b in s.bdms if b.volume_id))
        listed, slow = self._list_volumes(volume_ids)
        if volume_ids and not listed:
            self._prove_cinder(
                next(s.server.uuid for s in idle
                     if any(b.volume_id for b in s.bdms)), len(volume_ids))
        audited: set[str] = set()
        recorded: list[RecordedFinding] = []
        for host_server in idle:
            uuid = host_server.server.uuid
            try:
                for bdm in host_server.bdms:
                    if bdm.volume_id in slow:
                        raise slow[bdm.volume_id]
                recorded += [
                    _recorded(uuid, finding)
                    for finding in self._judge(host_server, listed).findings
                    if finding.reason.is_in_round]
                audited.add(uuid)
            except (_QuestionTimedOut, errors.BadAnswer,
                    errors.BadRequest) as exc:
                if not isinstance(exc, _QuestionTimedOut):
                    # Cinder may answer all questions like this.
                    self._prove_it_answers()
                recorded.append(_recorded(uuid, facts.Finding(
                    Reason.NOT_LOOKED_AT, 'the server was not looked at: %s'
                    % masked(exc))))
            _yield_to_green_threads()
        return audited, recorded

    def _list_volumes(self, volume_ids: Sequence[str]) -> tuple[
            dict[str, facts.Volume], dict[str | None, _QuestionTimedOut]]:
        """Return the volumes that exist, and those for which Cinder is slow.

        Cinder reads all attachments of a volume with it, and a tenant can make
        thousands of them.  So a slow batch is split in halves, which are
        requested after all others.

        :raises TimedOut: when it is too slow for all of them
        """
        listed: dict[str, facts.Volume] = {}
        slow: dict[str | None, _QuestionTimedOut] = {}
        waiting = [volume_ids[start:start + BATCH]
                   for start in range(0, len(volume_ids), BATCH)]
        answers = delays = 0
        while waiting:
            batch = waiting.pop(0)
            try:
                listed.update(self._list_batch(batch))
                answers += 1
            except _QuestionTimedOut as exc:
                delays += 1
                half = len(batch) // 2
                if not half or time.monotonic() > self.split_until:
                    slow.update(dict.fromkeys(batch, exc))
                else:
                    waiting += [batch[:half], batch[half:]]
                if not answers and (delays >= BATCH or not waiting):
                    raise
            _yield_to_green_threads()
        return listed, slow

    def _list_batch(self, batch: Sequence[str]) -> dict[str, facts.Volume]:
        return self._ask(lambda cinder: cinder.volumes_by_id(batch))

    def _ask(self, question: Callable[[AuditCinder], T]) -> T:
        """Ask Cinder a question, which may take ``question_timeout``.

        :raises _QuestionTimedOut: when it takes longer, and Cinder answers
            other questions; the next one may take less time
        """
        try:
            return question(self.node.cinder(self.question_timeout))
        except TimedOut as exc:
            self._prove_it_answers()
            self.question_timeout = max(
                _MIN_QUESTION_SECONDS,
                self.question_timeout * (1 - _QUESTION_SHORTENED_BY))
            raise _QuestionTimedOut(*exc.args) from exc

    def _prove_it_answers(self) -> None:
        self.node.cinder(self.question_timeout).prove_it_answers()

    def _judge(self, host_server: HostServer,
               listed: dict[str, facts.Volume]) -> Plan:
        server, bdms = host_server.server, host_server.bdms
        volumes, attachments, _ = self._ask(
            lambda cinder: cinder.answers_for(
                server.uuid, bdms, listed, server.project))
        # This Cinder is proven, by a listed volume or by the witness.
        snapshot = facts.Snapshot(server, bdms, volumes, attachments,
                                  WitnessAnswer.KNOWN)
        now = datetime.datetime.fromtimestamp(
            self.now(), datetime.timezone.utc)
        return addresses.apply_moves(
            rules.decide(snapshot, self.policy, now), snapshot, self.policy,
            now, lambda: self.node.moves(server.uuid)).of_mappings()

    def _prove_cinder(self, server: str, volumes: int) -> None:
        """Prove that this is the right Cinder, though no volume exists.

        A volume of another host is the proof.

        :param server: a server of this host with volumes
        :param volumes: how many volumes the servers of this host have
        :raises SuspectCinder: when there is no proof
        """
        found = self.node.cinder(self.policy.timeout).witness(
            self.node.witnesses(server))
        # A single volume may have been deleted, if Nova has no other volume
        # to ask for.
        if found is not WitnessAnswer.KNOWN and not (
                found is WitnessAnswer.NONE_EXISTS and volumes == 1):
            raise SuspectCinder(
                'Cinder knows no volume of the servers of this host, and none '
                'of the requested ones of other hosts: is it the wrong '
                'region, or a restored database?')

    def _fail(self, exc: Exception, failed: int, then: float) -> None:
        self._lines().not_audited(
            _reason_of(exc), exc, 'the servers of this host were not audited; '
            'the next round is in %d s, and further failures are logged at '
            'DEBUG' % max(0, then - self.now()), is_new=failed == 1)
        try:
            self.store.record_failure(dataclasses.replace(
                self.store.last_round(), failed=failed, next=then,
                problem=masked(exc)))
        except StoreError:
            # A store that cannot be written makes the round fail, too, and
            # that is logged.
            pass

    def _lines(self, server: str | None = None) -> LogLines:
        """Return the log lines of a server, or those of the round."""
        return LogLines({'uuid': server} if server else None,
                        self.request_id, AUDIT, self.counters)

    def _log(self, changes: Changes, done: Round, failed: int,
             skipped: int) -> None:
        for recorded in changes.new:
            self._lines(recorded.server).found(_finding(recorded))
        for recorded in changes.gone:
            if recorded.reason in _KNOWN_REASONS:
                self._lines(recorded.server).gone(_finding(recorded))
        announced = collections.Counter(
            f.reason for f in changes.present if f.announced)
        seen_once = sum(not f.announced for f in changes.present)
        self._lines().audited(
            'servers: %d, volumes: %d, seconds: %.1f, requests: %d, open: %s, '
            'new: %d, gone: %d, seen once: %d%s%s' % (
                done.servers, done.volumes, done.seconds, done.requests,
                ' '.join('%s=%d' % each for each in sorted(announced.items()))
                or '0', len(changes.new), len(changes.gone), seen_once,
                ', servers not looked at: %d' % skipped if skipped else '',
                ', failed rounds before: %d' % failed if failed else ''))


def _reason_of(exc: Exception) -> Reason:
    if isinstance(exc, SuspectCinder):
        return Reason.CINDER_SUSPECT
    if isinstance(exc, StoreError):
        return Reason.JOURNAL_UNWRITABLE
    return actions.reason_of(exc, AUDIT)


def _yield_to_green_threads() -> None:
    """Let other green threads run, which otherwise happens only in I/O."""
    time.sleep(0)


def _recorded(server: str, finding: facts.Finding) -> RecordedFinding:
    return RecordedFinding(
        server=server, subject=finding.bdm.uuid if finding.bdm else '',
        reason=str(finding.reason), volume=finding.volume_id,
        attachment=finding.attachment_id, device=finding.device,
        explanation=finding.explanation)


def _finding(recorded: RecordedFinding) -> facts.Finding:
    """Return a recorded finding in the form that log lines take."""
    bdm = facts.Bdm(uuid=recorded.subject, volume_id=recorded.volume,
                    attachment_id=recorded.attachment,
                    device_name=recorded.device)
    return facts.Finding(Reason(recorded.reason), recorded.explanation, bdm)


def next_round(host: str, interval: int, now: float) -> float:
    """Return the time of the next round of a host.

    Rounds are spread over the interval by the names of the hosts, so that not
    all hosts ask Cinder in the same second, and a restart of nova-compute does
    not move them.

    :param interval: seconds from one round to the next
    """
    offset = zlib.crc32(host.encode()) % interval
    begun = (now + _MAX_EARLY_SECONDS - offset) // interval
    return (begun + 1) * interval + offset


def is_far(seconds: float, interval: int) -> bool:
    """Return whether a round is too far away: the clock was set back."""
    return seconds > interval + _MAX_EARLY_SECONDS
