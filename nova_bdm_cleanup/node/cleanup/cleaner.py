# SPDX-License-Identifier: Apache-2.0
"""Look, plan, look again, and act on what both looks agree on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
import contextlib
import dataclasses
import datetime
import time
from typing import Any, Callable, TypeVar

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.node.cleanup import actions, log_lines
from nova_bdm_cleanup.node.cleanup.ports import HostPort
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.store.journal import (
    Charge,
    Journal,
    LimitReached,
    REMOVALS,
)
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.cinder import Cinder
from nova_bdm_cleanup.openstack.deadline import Deadline, TimedOut
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Plan, Reason, WitnessAnswer

T = TypeVar('T')

#: The other account of ``max_removals_per_hour``: stale attachments are
#: counted for each project, since its members make as many of these as they
#: like.
_DELETIONS = 'attachments of project %s'


def _utcnow() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


@dataclasses.dataclass
class Cleaner:
    """One cleanup of one server."""

    host: HostPort
    cinder: Cinder
    #: Where plans and steps are recorded.
    journal: Journal
    #: Where they are logged.
    audit: log_lines.LogLines
    policy: facts.Policy
    trigger: Trigger
    #: Bounds the whole.
    deadline: Deadline
    #: As it is known without asking anybody.
    server: facts.Server
    #: Gives the time, with its time zone.
    now: Callable[[], datetime.datetime] = _utcnow

    def __post_init__(self) -> None:
        #: What must not be connected, by the last look that was answered.
        self._left_out: dict[str, facts.Finding] = {}
        #: The mappings of which an hour has had enough.
        self._over_limit: Collection[str] = ()
        #: Whether it was said that Cinder has too many attachments.
        self._is_cut = False
        #: What was found, as far as it was acted on.
        self.plan = Plan()
        #: What Cinder last told of the volumes, by their id.
        self.volumes: Mapping[str, facts.Volume | None] = {}
        #: The uuids of the mappings that were removed.
        self.removed: frozenset[str] = frozenset()
        #: What kept Cinder from being asked, the last time that it was tried.
        self.unanswered: Exception | None = None
        #: Seconds spent on asking it.
        self.asking = 0.0

    def clean(self, bdms: Sequence[facts.Bdm]) -> frozenset[str]:
        """Find what is inconsistent at a server and remove what may be.

        Never raises because of Cinder, the host, Nova or the journal.

        :param bdms: all block device mappings of the server
        :returns: the uuids of the mappings that Nova must not connect, whether
            they are removed by now or not
        """
        plan = self.look(bdms)
        with contextlib.ExitStack() as locks:
            if plan.due and not self.trigger.guest_is_on:
                try:
                    if not self.trigger.nova_holds_lock:
                        locks.enter_context(self.host.lock())
                except Exception as exc:
                    plan = plan.withhold(self._reason_of(exc),
                                         log_lines.masked(exc))
                else:
                    # Whatever was going on then is over now.
                    plan = self._look_again(plan)
            self.audit.plan(plan)
            self.plan = plan
            if plan.due:
                self.removed = self._act(plan)
        self.audit.left_out_of_guest(
            f for uuid, f in self._left_out.items()
            if uuid not in self.removed)
        return self.removed.union(self._left_out)

    def report(self, bdms: Sequence[facts.Bdm]) -> frozenset[str]:
        """Find the same where nothing may be changed.

        The virt driver turns the soft reboot of a guest that hangs into a hard
        one, and would connect again what a cleanup would have removed.

        :returns: the uuids of the mappings that the driver must not connect
        """
        plan = self.look(bdms)
        again = self._look_again(plan) if plan.due else plan
        self.audit.plan(again.withhold(
            self.trigger.withheld_for or Reason.OBSERVE_MODE))
        if not self.trigger.guest_is_on:
            self.audit.left_out_of_guest(self._left_out.values())
        return frozenset(self._left_out)

    def look(self, bdms: Sequence[facts.Bdm]) -> Plan:
        """What is to be done for all that is known; nothing when unknown."""
        try:
            plan = self._plan(bdms)
        except Exception as exc:
            self.audit.unknown(self._reason_of(exc), exc)
            return Plan()
        if self.policy.observe:
            return plan.withhold(Reason.OBSERVE_MODE)
        return plan

    def _plan(self, bdms: Sequence[facts.Bdm]) -> Plan:
        """One look.  What only a plan with something to do is worth asking
        Nova for is asked for only then.
        """
        server = self.server
        volumes, attachments, is_cut = self._ask(
            lambda: self.cinder.look(server.uuid, bdms, server.project))
        self.volumes = volumes
        if is_cut and not self._is_cut:
            self._is_cut = True
            self.audit.unread(len(attachments))

        # As if Cinder were the right one, which is asked for when it matters.
        snapshot = facts.Snapshot(server, tuple(bdms), volumes, attachments,
                            WitnessAnswer.KNOWN, self.cinder.sees_all)
        plan = self._decide(snapshot)
        if not plan.due:
            return self._whole(plan)
        current = self.host.server()
        is_off = (self.trigger.guest_is_on or self.trigger.withheld_for
                  or self.host.is_off())
        plan = self._decide(dataclasses.replace(
            snapshot, server=current or server,
            witness=self._ask(lambda: self._witness(snapshot)),
            swaps=self.host.swaps()))
        # Nova may bring the server back in these cases, too.
        if current is None:
            plan = plan.withhold(self.trigger.lost)
        elif not is_off:
            plan = plan.withhold(Reason.GUEST_RUNNING)
        return self._whole(plan)

    def _whole(self, plan: Plan) -> Plan:
        """A look that was answered in all says what is not connected.

        Not connecting is taken back by the next reboot, and connecting is
        not: if a later look is not answered, this one holds.
        """
        if not self.policy.observe:
            self._left_out = {uuid: f for uuid, f in plan.not_connected.items()
                              if uuid not in self._over_limit}
        return plan

    def _decide(self, snapshot: facts.Snapshot) -> Plan:
        plan = rules.decide(snapshot, self.policy, self.now())
        return plan if self.trigger.finds_stale else plan.of_mappings()

    def _ask(self, question: Callable[[], T]) -> T:
        begun = time.monotonic()
        try:
            return question()
        except (errors.ApiError, TimedOut) as exc:
            self.unanswered = exc
            raise
        finally:
            self.asking += time.monotonic() - begun

    def _reason_of(self, error: Exception) -> Reason:
        return actions.reason_of(error, self.trigger)

    def _witness(self, snapshot: facts.Snapshot) -> WitnessAnswer:
        if not rules.needs_witness(snapshot):
            return WitnessAnswer.KNOWN
        return self.cinder.witness(self.host.witnesses())

    def _look_again(self, first: Plan) -> Plan:
        """The first plan, less every action that is no longer called for."""
        try:
            second = self._plan(self.host.bdms())
        except Exception as exc:
            self.audit.unknown(self._reason_of(exc), exc)
            return first.withhold(self._reason_of(exc))
        return rules.confirm(first, second)

    def _act(self, plan: Plan) -> frozenset[str]:
        """Carry a plan out.

        :returns: the uuids of the mappings that are gone
        """
        begun = time.monotonic()
        deletions = _DELETIONS % self.server.project
        limit = self.policy.max_removals_per_hour
        try:
            entry = self.journal.begin(
                self._record(plan),
                [Charge(REMOVALS, plan.removals, limit),
                 Charge(deletions, len(plan.due) - plan.removals, limit)],
                server=self.server.uuid)
        except LimitReached as exc:
            # What is over one limit must not keep the rest from being done.
            return self._act_on_the_rest(plan, plan.withhold(
                Reason.OVER_LIMIT, of_mappings=exc.account == REMOVALS))
        except Exception as exc:
            self.audit.unrecorded(exc)
            self.audit.plan(
                Plan(plan.due).withhold(Reason.JOURNAL_UNWRITABLE))
            return frozenset()

        acting = actions.Actions(self.host, self.cinder, entry,
                                 self.audit, self.trigger, self.deadline)
        self._act_in_order(acting, plan)
        left = len(plan.due) - acting.completed
        acting.finish('done' if not left else
                      'partly' if acting.completed or acting.removals else
                      'nothing', {REMOVALS: acting.removals,
                                  deletions: acting.deletions})
        self.audit.finished(
            acting.completed, left, time.monotonic() - begun, entry.id)
        return frozenset(acting.removed)

    def _act_on_the_rest(self, plan: Plan, rest: Plan) -> frozenset[str]:
        """Act, but on nothing of a kind of which an hour has had enough."""
        stopped = plan.stopped_in(rest)
        self._over_limit = [f.bdm.uuid for f in stopped.findings if f.bdm]
        self._whole(rest)
        self.audit.plan(stopped)
        return self._act(rest) if rest.due else frozenset()

    def _act_in_order(self, acting: actions.Actions, plan: Plan) -> None:
        try:
            acting.power_off()
        except actions.StepFailed:
            return
        # Where the guest was off, both looks have been taken.
        again = self._look_again(plan) if self.trigger.guest_is_on else plan
        acting.record('second-look', 'done', agreed=len(again.due))
        self.audit.plan(plan.stopped_in(again))
        for finding in again.findings:
            if finding.bdm and finding.is_removal and not finding.is_due:
                acting.leave(finding)
        for finding in again.due:
            acting.carry_out(finding)

    def _record(self, plan: Plan) -> dict[str, Any]:
        """What the journal keeps: all that explaining and undoing needs."""
        return dict(
            self.host.describe(), trigger=self.trigger.name,
            actions=[self._action_record(f) for f in plan.due],
            findings=[_finding_record(f) for f in plan.summed_up().findings])

    def _action_record(self, finding: facts.Finding) -> dict[str, Any]:
        record: dict[str, Any] = {'reason': str(finding.reason),
                                  'explanation': finding.explanation}
        if finding.bdm is not None:
            record.update(
                kind='remove-bdm', bdm=dict(self.host.row(finding.bdm)),
                attachments=list(map(_attachment_record, finding.left_over)))
        elif finding.attachment is not None:
            record.update(kind='delete-attachment',
                          attachment=_attachment_record(finding.attachment))
        return record


def _attachment_record(attachment: facts.Attachment) -> dict[str, Any]:
    """Without the connection information, which may hold secrets."""
    return {'id': attachment.id, 'volume_id': attachment.volume_id,
            'server_id': attachment.server_id, 'status': attachment.status,
            'connected': attachment.connected}


def _finding_record(finding: facts.Finding) -> dict[str, Any]:
    return {'reason': str(finding.reason),
            'withheld': str(finding.withheld) if finding.withheld else None,
            'volume': finding.volume_id,
            'attachment': finding.attachment_id,
            'device': finding.device,
            'explanation': finding.explanation}
