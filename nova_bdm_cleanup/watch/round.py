# SPDX-License-Identifier: Apache-2.0
"""One round of the periodic audit: all servers of this host, cheaply.

What it finds is decided by the same rules as in a reboot.  Less is asked for:
the volumes of all servers together, and then once for each disk that looks
wrong.  What no mapping names is left to the cleanups.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
import dataclasses
import datetime
import time
from typing import Callable, TypeVar

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.cleanup import (
    actions,
    loglines,
    tally,
    triggers,
    witness,
)
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.cinder import BATCH
from nova_bdm_cleanup.openstack.deadline import TimedOut
from nova_bdm_cleanup.openstack.sparing import SparingCinder
from nova_bdm_cleanup.rules.facts import (
    Bdm,
    Finding,
    Plan,
    Policy,
    Reason,
    Snapshot,
    Volume,
    WitnessAnswer,
)
from nova_bdm_cleanup.store.database import StoreError
from nova_bdm_cleanup.store.watch import Changes, Round, Sighting, Watch
from nova_bdm_cleanup.watch.ports import Inhabitant, NodePort

T = TypeVar('T')

#: As it should be, or soon to be.
_WELL = frozenset((
    Reason.HEALTHY, Reason.ATTACH_IN_FLIGHT, Reason.OPERATION_IN_FLIGHT))

#: One question may take this share of ``timeout``.
_SHARE = 1 / 4

#: And no less than so many seconds, however slow Cinder was before.
_LEAST = 2.0

#: A later release, which was taken back, may have seen what has others.
_REASONS = frozenset(map(str, Reason))


class SuspectCinder(errors.ApiError):
    """Cinder answers, and knows none of the volumes that must exist."""


class _Slow(TimedOut):
    """Cinder answers, but not this question in time."""


class Audit:
    """The periodic audit of one host.

    :param known: what is kept from round to round
    :param interval: seconds from one round to the next
    :param sweeps: whether servers that are stopped are cleaned up
    :param lines: gives the log lines of a server, or of the round
    :param counted: where it is counted
    :param now: the time since the epoch
    """

    def __init__(self, node: NodePort, known: Watch, policy: Policy,
                 interval: int, sweeps: bool,
                 lines: Callable[[str | None], loglines.LogLines],
                 counted: tally.Tally,
                 now: Callable[[], float] = time.time) -> None:
        self._node = node
        self._known = known
        self._policy = policy
        self._interval = interval
        self._sweeps = sweeps
        self._lines = lines
        self._counted = counted
        self._now = now
        # Of each round: how many seconds the next question may take, and the
        # moment after which nothing is asked for in halves.
        self._patience = self._until = 0.0

    def round(self, failed: int, next_one: Callable[[], float]) -> int:
        """Look at all servers once.  Raises nothing.

        :param failed: how many rounds have failed before this one
        :param next_one: when the next comes
        :returns: how many have failed by now; 0: this one did not
        """
        begun, moment = time.monotonic(), self._now()
        asked = self._node.requests()
        self._patience = self._policy.timeout * _SHARE
        self._until = begun + self._interval / 2
        try:
            servers = list(self._node.servers())
            plans, seen = self._look([s for s in servers if not s.is_busy])
            seconds = time.monotonic() - begun
            done = Round(
                succeeded=moment, servers=len(servers),
                volumes=len({b.volume_id for s in servers for b in s.bdms
                             if b.volume_id}),
                requests=self._node.requests() - asked, seconds=seconds,
                next=next_one())
            changes = self._known.succeeded(
                moment, self._interval, done, seen,
                {s.server.uuid for s in servers if s.server.uuid not in plans},
                self._policy.max_removals)
        except Exception as exc:
            self._fail(exc, failed + 1, next_one())
            return failed + 1
        finally:
            self._counted.looked(
                triggers.AUDIT.name, time.monotonic() - begun)
        self._tell(changes, done, failed,
                   sum(s.reason == Reason.NOT_LOOKED_AT for s in seen))
        if self._sweeps and not self._policy.observe:
            self._sweep(servers, plans, changes)
        return 0

    def _look(self, idle: Sequence[Inhabitant]
              ) -> tuple[dict[str, Plan], list[Sighting]]:
        """What is to be done, and all that is found, by server.

        One for which Cinder takes too long has no plan, and is found.
        """
        wanted = list(dict.fromkeys(
            b.volume_id for s in idle for b in s.bdms if b.volume_id))
        known, slow = self._read(wanted)
        if wanted and not known:
            self._prove_cinder(
                next(s.server.uuid for s in idle
                     if any(b.volume_id for b in s.bdms)), len(wanted))
        plans: dict[str, Plan] = {}
        seen: list[Sighting] = []
        for inhabitant in idle:
            uuid = inhabitant.server.uuid
            try:
                for bdm in inhabitant.bdms:
                    if bdm.volume_id in slow:
                        raise slow[bdm.volume_id]
                plan = plans[uuid] = self._judge(inhabitant, known)
                seen += [_sighting(uuid, finding) for finding in plan.findings
                         if finding.reason not in _WELL]
            except (_Slow, errors.BadAnswer, errors.BadRequest) as exc:
                if not isinstance(exc, _Slow):
                    # Unless that is what Cinder has for everybody.
                    self._prove_it_answers()
                seen.append(_sighting(uuid, Finding(
                    Reason.NOT_LOOKED_AT, 'the server was not looked at: %s'
                    % loglines.masked(exc))))
            _let_others()
        return plans, seen

    def _read(self, volume_ids: Sequence[str]
              ) -> tuple[dict[str, Volume], dict[str | None, _Slow]]:
        """The volumes that Cinder shows, and those for which it is too slow.

        It reads all attachments of a volume with it, and anybody can make
        thousands of his own.  So what takes long is asked for in halves, when
        all else has been asked for.

        :raises TimedOut: when it is too slow for all of them
        """
        known: dict[str, Volume] = {}
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
                if not half or time.monotonic() > self._until:
                    slow.update(dict.fromkeys(batch, exc))
                else:
                    waiting += [batch[:half], batch[half:]]
                if not answers and (delays >= BATCH or not waiting):
                    raise
            _let_others()
        return known, slow

    def _shown(self, batch: Sequence[str]) -> dict[str, Volume]:
        return self._ask(lambda cinder: cinder.known(batch))

    def _ask(self, question: Callable[[SparingCinder], T]) -> T:
        """Ask Cinder, for no longer than one question may take.

        :raises _Slow: when it takes longer, and Cinder answers others.  The
            next ones have less, so that many of them do not take for ever.
        """
        try:
            return question(self._node.cinder(self._patience))
        except TimedOut as exc:
            self._prove_it_answers()
            self._patience = max(_LEAST, self._patience * (1 - _SHARE))
            raise _Slow(*exc.args) from exc

    def _prove_it_answers(self) -> None:
        self._node.cinder(self._patience).prove_it_answers()

    def _judge(self, inhabitant: Inhabitant,
               known: dict[str, Volume]) -> Plan:
        server, bdms = inhabitant.server, inhabitant.bdms
        volumes, attachments, _ = self._ask(
            lambda cinder: cinder.look_sparingly(
                server.uuid, bdms, known, server.project))
        # A volume of some server here is known, or another one is.
        return rules.decide(
            Snapshot(server, bdms, volumes, attachments, WitnessAnswer.KNOWN),
            self._policy, datetime.datetime.fromtimestamp(
                self._now(), datetime.timezone.utc)).of_mappings()

    def _prove_cinder(self, server: str, volumes: int) -> None:
        """No volume of this host exists: only another one can prove that
        this is the right Cinder.

        :param server: one that has some of them
        :param volumes: how many there are
        :raises SuspectCinder: when none does
        """
        found = witness.ask(
            self._node.witnesses(server),
            self._node.cinder(self._policy.timeout).knows_any)
        # One alone may well be deleted, where there is no other to ask for.
        if found is not WitnessAnswer.KNOWN and not (
                found is WitnessAnswer.NONE_EXISTS and volumes == 1):
            raise SuspectCinder(
                'Cinder knows no volume of any server of this host, and none '
                'of those of other hosts that it was asked for: a wrong '
                'region, or a restored database?')

    def _fail(self, exc: Exception, failed: int, then: float) -> None:
        self._lines(None).not_audited(
            _reason_of(exc), exc, 'the servers of this host were not audited; '
            'the next round comes in %d s, and no more is said until one '
            'succeeds' % max(0, then - self._now()), is_new=failed == 1)
        try:
            self._known.failed(dataclasses.replace(
                self._known.last(), failed=failed, next=then,
                problem=loglines.masked(exc)))
        except StoreError:
            # Which also keeps a round from succeeding: one of the two is told.
            pass

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
        self._lines(None).audited(
            'servers: %d, volumes: %d, seconds: %.1f, requests: %d, open: %s, '
            'new: %d, gone: %d, seen once: %d%s%s' % (
                done.servers, done.volumes, done.seconds, done.requests,
                ' '.join('%s=%d' % each for each in sorted(told.items()))
                or '0', len(changes.new), len(changes.gone), once,
                ', servers not looked at: %d' % unread if unread else '',
                ', failed rounds before: %d' % failed if failed else ''))

    def _sweep(self, servers: Sequence[Inhabitant], plans: dict[str, Plan],
               changes: Changes) -> None:
        """Clean up where nothing but what was told before is to be done."""
        told = {s.key for s in changes.known if s.announced and not s.held}
        new = [s for s in changes.new if s.held]
        if new:
            self._lines(None).not_swept(
                '%d mappings were found by one round, more than the %d of '
                '[bdm_cleanup] max_removals' % (
                    len(new), self._policy.max_removals))
        waiting = []
        for inhabitant in servers:
            uuid = inhabitant.server.uuid
            plan = plans.get(uuid)
            due = plan.due if plan and inhabitant.is_stopped else ()
            keys = {_sighting(uuid, finding).key for finding in due}
            if keys and keys <= told:
                waiting.append((uuid, {key[1:] for key in keys}))
        # Each time another one is the first: those that take all the time
        # must not keep it from the others for ever.
        first = int(self._now() // self._interval) % max(1, len(waiting))
        until = time.monotonic() + self._policy.timeout
        for uuid, seen in waiting[first:] + waiting[:first]:
            if time.monotonic() > until:
                # Cinder is slow, or hangs: the next round goes on.
                return
            self._node.sweep(uuid, seen)


def _reason_of(exc: Exception) -> Reason:
    if isinstance(exc, SuspectCinder):
        return Reason.CINDER_SUSPECT
    if isinstance(exc, StoreError):
        return Reason.JOURNAL_UNWRITABLE
    return actions.reason_of(exc, triggers.AUDIT)


def _let_others() -> None:
    """Green threads take turns only here and where something is waited for."""
    time.sleep(0)


def _sighting(server: str, finding: Finding) -> Sighting:
    # What its owner wants to be kept is no damage, whatever else it is.
    reason = (Reason.OPTED_OUT if finding.withheld is Reason.OPTED_OUT
              else finding.reason)
    return Sighting(
        server=server, subject=finding.bdm.uuid if finding.bdm else '',
        reason=str(reason), volume=finding.volume_id,
        attachment=finding.attachment_id, device=finding.device,
        explanation=finding.explanation)


def _finding(sighting: Sighting) -> Finding:
    """As the log lines take it."""
    return Finding(Reason(sighting.reason), sighting.explanation, Bdm(
        uuid=sighting.subject, volume_id=sighting.volume,
        attachment_id=sighting.attachment, device_name=sighting.device))
