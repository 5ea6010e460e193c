# SPDX-License-Identifier: Apache-2.0
"""An audit round: what a cleanup of each server of this host would find.

The cleaner looks and judges; a round only decides when.  Each server has its
own moment of the interval, by its id.  So Cinder is asked steadily, hosts do
not ask together, and a restart of nova-compute moves nothing.  The findings of
a server are recorded at once, so a restart goes on with the round: the servers
whose moment has passed are left to the next one.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable
import dataclasses
import time
from typing import Callable, Protocol
import zlib

from nova_bdm_cleanup.node.cleanup import actions
from nova_bdm_cleanup.node.cleanup.log_lines import Counters, LogLines, masked
from nova_bdm_cleanup.node.cleanup.triggers import AUDIT
from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.node.store.findings import (
    FindingStore,
    RecordedFinding,
    Round,
)
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Plan, WitnessAnswer
from nova_bdm_cleanup.rules.reasons import Reason

#: A finding that a later release recorded may have a reason that this release
#: does not know.
_KNOWN_REASONS = frozenset(map(str, Reason))


class SuspectCinder(errors.ApiError):
    """Cinder answers, but knows none of the volumes that must exist."""


class ServerLook(Protocol):
    """A server of this host, as Nova has it now.

    Every call may raise any exception.
    """

    @property
    def volumes(self) -> Collection[str]:
        """Return the volumes that its BDMs name."""

    def preview(self) -> Plan:
        """Return what a cleanup would find."""

    def witness(self) -> WitnessAnswer:
        """Return whether Cinder knows a volume, of this server or another.

        If Nova has no more than one volume, none is a witness: it may have
        been deleted.
        """

    def prove_it_answers(self) -> None:
        """Ask Cinder what it can answer without reading any volume."""


class NodePort(Protocol):
    """Nova on this host; every call may raise any exception."""

    def servers(self) -> Iterable[str]:
        """Return the ids of all servers of this host."""

    def look(self, server: str) -> ServerLook | None:
        """Return a server; None: it is no longer here, has a task state, or is
        being built or deleted, so its records are changing.
        """


@dataclasses.dataclass
class Audit:
    """A round of the periodic audit of one host."""

    node: NodePort
    store: FindingStore
    #: Seconds from one round to the next.
    interval: int
    #: The request id for the log lines.
    request_id: str
    counters: Counters
    #: Waits for some seconds; returns whether the round goes on.
    wait: Callable[[float], bool]
    #: Gives the time since the epoch.
    now: Callable[[], float] = time.time
    #: Gives the time of a clock that is never set.
    uptime: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        #: Cinder has proved that it is the right one.
        self._is_proved = False
        #: The servers that Cinder was asked about, and those for which it did
        #: not answer; the findings that were logged.
        self._numbers: collections.Counter[str] = collections.Counter()
        self._volumes: set[str] = set()
        self._seconds = 0.0

    def round(self, begun: float, failed: int, is_resumed: bool) -> int:
        """Look at all servers, each at its moment.  Raises nothing.

        :param begun: when the round begins or has begun, by the uptime
        :param failed: how many rounds before this one have failed in a row
        :param is_resumed: leave out the servers whose moment has passed
        :returns: how many rounds have failed in a row; 0: this one succeeded
        """
        try:
            return 0 if self._succeeds(begun, failed, is_resumed) else failed
        except Exception as exc:
            self._fail(exc, failed + 1, begun + self.interval)
            return failed + 1

    def _succeeds(self, begun: float, failed: int, is_resumed: bool) -> bool:
        """Look at all servers; return False if nova-compute shuts down."""
        start = self.uptime()
        if not self._wait_until(begun):
            return False
        then = self._clock_at(begun + self.interval)
        self.store.record(
            dataclasses.replace(self.store.last_round(), next=then))
        here = sorted(self.node.servers(), key=share_of)
        for server in here:
            moment = begun + share_of(server) * self.interval
            if is_resumed and moment < start:
                continue
            if not self._wait_until(moment):
                return False
            self._look_at(server)
        done = Round(
            succeeded=self.now(), servers=self._numbers['servers'],
            volumes=len(self._volumes), seconds=self._seconds, next=then)
        self._log_gone(self.store.record_success(done, here))
        self._log(done, failed)
        return True

    def _wait_until(self, moment: float) -> bool:
        return self.wait(max(0.0, moment - self.uptime()))

    def _clock_at(self, moment: float) -> float:
        """Return what the clock will show at a moment of the uptime."""
        return self.now() + moment - self.uptime()

    def _look_at(self, server: str) -> None:
        """Look at a server, record its findings, and log the new ones.

        A server for which Cinder does not answer is a finding itself.
        """
        look = self.node.look(server)
        if look is None:
            return
        begun = self.uptime()
        is_judged = True
        try:
            plan = look.preview()
            # The server has another task now, or has left this host.
            if any(f.withheld is AUDIT.lost for f in plan.findings):
                return
            found = [_recorded(server, finding) for finding
                     # It carries nothing out: many attachments are summed up.
                     in plan.withhold(Reason.OBSERVE_MODE).summed_up().findings
                     if finding.reason.is_in_round]
        except errors.Refused:
            # It concerns all servers.
            raise
        except Exception as exc:
            # Cinder may answer for all servers like this.
            look.prove_it_answers()
            is_judged = False
            self._numbers['not looked at'] += 1
            found = [_recorded(server, facts.Finding(
                Reason.NOT_LOOKED_AT,
                'the server was not looked at: %s' % masked(exc)))]
        else:
            self._numbers['servers'] += 1
            self._volumes.update(look.volumes)
            if found and not self._is_proved:
                self._prove_cinder(look)
        finally:
            self._seconds += self.uptime() - begun
        # It is recorded before it is logged: a crash loses one line at most.
        changes = self.store.record_server(
            server, self.now(), self.uptime(), self.interval, found,
            is_judged)
        for recorded in changes.new:
            self._lines(server).found(_finding(recorded))
        self._numbers['new'] += len(changes.new)
        self._log_gone(changes.gone)

    def _prove_cinder(self, look: ServerLook) -> None:
        """Prove that this is the right Cinder, before a finding counts.

        In a wrong region, or a restored database, all disks look lost.

        :raises SuspectCinder: when there is no proof
        """
        if look.witness() is WitnessAnswer.UNKNOWN:
            raise SuspectCinder(
                'Cinder knows no volume of this server, and none of the '
                'requested ones of other servers: is it the wrong region, or '
                'a restored database?')
        self._is_proved = True

    def _fail(self, exc: Exception, failed: int, then: float) -> None:
        self._lines().not_audited(
            _reason_of(exc), exc, 'the round ends here; the next one is in '
            '%d s, and further failures are logged at DEBUG'
            % max(0, then - self.uptime()), is_new=failed == 1)
        try:
            self.store.record(dataclasses.replace(
                self.store.last_round(), failed=failed,
                next=self._clock_at(then), problem=masked(exc)))
        except StoreError:
            # A store that cannot be written makes the round fail, too, and
            # that is logged.
            pass

    def _lines(self, server: str | None = None) -> LogLines:
        """Return the log lines of a server, or those of the round."""
        return LogLines({'uuid': server} if server else None,
                        self.request_id, AUDIT, self.counters)

    def _log_gone(self, gone: Iterable[RecordedFinding]) -> None:
        for recorded in gone:
            self._numbers['gone'] += 1
            if recorded.reason in _KNOWN_REASONS:
                self._lines(recorded.server).gone(_finding(recorded))

    def _log(self, done: Round, failed: int) -> None:
        present = self.store.findings()
        announced = collections.Counter(
            f.reason for f in present if f.announced)
        not_looked_at = self._numbers['not looked at']
        self._lines().audited(
            'servers: %d, volumes: %d, seconds: %.1f, open: %s, new: %d, '
            'gone: %d, seen once: %d%s%s' % (
                done.servers, done.volumes, done.seconds,
                ' '.join('%s=%d' % each for each in sorted(announced.items()))
                or '0', self._numbers['new'], self._numbers['gone'],
                sum(not f.announced for f in present),
                ', servers not looked at: %d' % not_looked_at
                if not_looked_at else '',
                ', failed rounds before: %d' % failed if failed else ''))


def _reason_of(exc: Exception) -> Reason:
    if isinstance(exc, SuspectCinder):
        return Reason.CINDER_SUSPECT
    if isinstance(exc, StoreError):
        return Reason.JOURNAL_UNWRITABLE
    return actions.reason_of(exc, AUDIT)


def _recorded(server: str, finding: facts.Finding) -> RecordedFinding:
    return RecordedFinding(
        server=server, subject=finding.bdm.uuid if finding.bdm
        else finding.attachment_id or '',
        reason=str(finding.reason), volume=finding.volume_id,
        attachment=finding.attachment_id, device=finding.device,
        explanation=finding.explanation)


def _finding(recorded: RecordedFinding) -> facts.Finding:
    """Return a recorded finding in the form that log lines take."""
    bdm = facts.Bdm(uuid=recorded.subject, volume_id=recorded.volume,
                    attachment_id=recorded.attachment,
                    device_name=recorded.device)
    return facts.Finding(Reason(recorded.reason), recorded.explanation, bdm)


def round_begun(host: str, interval: int, now: float) -> float:
    """Return when the current round of a host has begun.

    It depends on the clock and the host's name alone: a restart of
    nova-compute does not move it, and not all hosts list their servers in the
    same second.

    :param interval: seconds from one round to the next
    """
    offset = zlib.crc32(host.encode()) % interval
    return (now - offset) // interval * interval + offset


def share_of(server: str) -> float:
    """Return the share of an interval after which a server is looked at."""
    return zlib.crc32(server.encode()) / 2 ** 32
