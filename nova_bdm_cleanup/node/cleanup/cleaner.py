# SPDX-License-Identifier: Apache-2.0
"""The cleaner: it looks, plans, looks again, and acts where both agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import contextlib
import dataclasses
import datetime
import functools
import time
from typing import Any, Callable, TypeVar

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.node.cleanup import actions, log_lines
from nova_bdm_cleanup.node.cleanup.ports import InstancePort
from nova_bdm_cleanup.node.cleanup.triggers import Mode, Trigger
from nova_bdm_cleanup.node.store.journal import (
    account_of,
    ATTACHMENTS,
    Charge,
    Journal,
    LimitReached,
    MAPPINGS,
    NOTHING,
)
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.cinder import Cinder
from nova_bdm_cleanup.openstack.deadline import Deadline, TimedOut
from nova_bdm_cleanup.rules import addresses, facts
from nova_bdm_cleanup.rules.action_events import Kind
from nova_bdm_cleanup.rules.facts import Plan, WitnessAnswer
from nova_bdm_cleanup.rules.reasons import Reason

T = TypeVar('T')

#: How often a cleanup waits for records to settle: a second time for a clock
#: that is ahead of this host's, or a change during the first wait.
_MAX_WAITS = 2

_NOT_SETTLED = ('its records are younger than [bdm_cleanup] settle_time, and '
                'there is no time to wait longer')


def _utcnow() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


@dataclasses.dataclass(frozen=True)
class Assessment:
    """The result of the rules for one look at Nova and Cinder."""

    plan: Plan = Plan()
    #: The findings about disks that must not be connected, by the uuid of the
    #: mapping.
    not_connected: Mapping[str, facts.Finding] = dataclasses.field(
        default_factory=dict)
    #: Those of them that the driver must not be given, not even to disconnect
    #: them.
    left_out: Mapping[str, facts.Finding] = dataclasses.field(
        default_factory=dict)
    #: The mappings of the disks that Cinder does not show attached to this
    #: host; None: it has not answered.
    unconfirmed: frozenset[str] | None = None
    #: The number of attachments read, if Cinder has too many of them.
    cut_after: int | None = None
    #: How long until all that the due removals rest on is settled.
    unsettled_for: Mapping[str, datetime.timedelta] = dataclasses.field(
        default_factory=dict)
    #: The mappings that the hourly limit keeps: their disks are connected.
    over_limit: frozenset[str] = frozenset()


@dataclasses.dataclass
class Cleaner:
    """One cleanup of one server."""

    instance: InstancePort
    cinder: Cinder
    #: Where plans and steps are recorded.
    journal: Journal
    #: Where they are logged.
    log: log_lines.LogLines
    policy: facts.Policy
    trigger: Trigger
    #: Bounds the whole cleanup.
    deadline: Deadline
    #: The server as it is known without a request.
    server: facts.Server
    #: Gives the time, with its time zone.
    now: Callable[[], datetime.datetime] = _utcnow
    #: Waits for some seconds.
    wait: Callable[[float], None] = time.sleep
    #: The volumes whose records an earlier look of the operation has found
    #: settled: after the guest was destroyed, nothing waits for them again.
    settled: frozenset[str | None] = frozenset()

    def __post_init__(self) -> None:
        #: The findings, as :meth:`clean` acted on them.
        self.plan = Plan()
        #: The uuids of the mappings that were removed.
        self.removed: set[str] = set()
        #: The last error of a request to Cinder.
        self.unanswered: Exception | None = None
        #: Seconds spent on requests to Cinder.
        self.asking = 0.0
        # The log says once that Cinder has too many attachments, and once
        # that a disk is not connected.
        self._said_cut = False
        self._not_connected: set[str] = set()
        #: No event of the instance action has failed.
        self._can_report = True

    def clean(self, bdms: Sequence[facts.Bdm]) -> frozenset[str]:
        """Find the inconsistencies of a server, and remove those that it may.

        Never raises because of Cinder, the host, Nova or the journal.

        :param bdms: all block device mappings of the server
        :returns: the uuids of the mappings that were removed, and, if Nova
            starts the guest by its rows, of those that it must not connect
        """
        found = self._look_first(bdms)
        try:
            found = self._settle(
                found, lambda now: self._look(now, closely=True))
        except Exception as exc:
            found = self._unanswered(found, exc)
        with contextlib.ExitStack() as locks:
            if found.plan.due and self.trigger.mode is not Mode.REBOOT:
                try:
                    if not self.trigger.nova_holds_lock:
                        locks.enter_context(self.instance.lock())
                except Exception as exc:
                    plan = found.plan.withhold(
                        self._reason_of(exc), log_lines.masked(exc))
                    found = dataclasses.replace(found, plan=plan)
                else:
                    # Nova's earlier operation on the server is over.
                    found = self._look_again(found)
            self.log.plan(found.plan)
            self.plan = found.plan
            if found.plan.due:
                with self.instance.awaited():
                    found = self._act(found)
        self._report_left(found.plan)
        if not self.trigger.mode.starts_guest:
            return frozenset(self.removed)
        self.report_not_connected(
            f for uuid, f in found.not_connected.items()
            if uuid not in self.removed)
        return frozenset(self.removed.union(found.not_connected))

    def report(self, bdms: Sequence[facts.Bdm]) -> frozenset[str]:
        """Find the inconsistencies of a server, and remove none.

        The virt driver turns the soft reboot of a guest that hangs into a hard
        one, and would connect the disks that a cleanup would have removed.

        :returns: the uuids of the mappings that the driver must not connect
        """
        found = self._look_first(bdms)
        if found.plan.due:
            found = self._look_again(found)
        self.log.plan(found.plan.withhold(Reason.SOFT_REBOOT))
        return frozenset(found.not_connected)

    def rows_alone(self, bdms: Sequence[facts.Bdm], reason: Reason
                   ) -> Mapping[str, facts.Finding]:
        """Return the disks that are left out if Cinder does not answer.

        :param reason: why it does not
        :returns: the findings by the uuid of the mapping
        """
        if self.policy.observe or self.trigger.mode is Mode.ARRIVE:
            return {}
        disks = [bdm for bdm in bdms
                 if bdm.is_in_cinder and bdm.has_connection_info]
        return {f.bdm.uuid: f for f in addresses.without_cinder(
            disks, self.server, self._records(disks, is_answered=False),
            reason) if f.bdm}

    def preview(self, bdms: Sequence[facts.Bdm]) -> Assessment:
        """Return what :meth:`clean` will find when the guest is off.

        Nothing is logged, and nothing is changed; only the requests to Cinder
        are timed.

        :raises Exception: why Nova or Cinder did not answer
        """
        found = self._assess(bdms, self._ask_cinder(bdms), may_run=True)
        if not self.trigger.mode.removes:
            return found
        return self._settle(found, lambda now: self._assess(
            now, self._ask_cinder(now, closely=True), may_run=True))

    def pause(self, seconds: float) -> bool:
        """Wait, unless the time is over; return whether it is not."""
        if self.deadline.remaining < seconds:
            return False
        self.wait(seconds)
        return True

    def _look_first(self, bdms: Sequence[facts.Bdm]) -> Assessment:
        """Return the first look's result; empty if there is no answer."""
        try:
            return self._look(bdms)
        except Exception as exc:
            reason = self._reason_of(exc)
            self.log.skipped(reason, exc)
            if self.trigger.mode.removes and not self.policy.observe:
                self._report(Kind.LEFT, None, reason)
            left_out = self.rows_alone(bdms, reason)
            return Assessment(not_connected=left_out, left_out=left_out)

    def _settle(self, found: Assessment,
                look: Callable[[Sequence[facts.Bdm]], Assessment]
                ) -> Assessment:
        """Wait until all that the due removals rest on is settled.

        A younger record may not be in every database yet.  The guest is still
        on, and nothing has been changed.

        :param look: takes the mappings, and looks closely
        :returns: the result of the last look
        """
        for _ in range(_MAX_WAITS):
            seconds = max((left.total_seconds() for left
                           in found.unsettled_for.values()), default=0.0)
            if not 0.0 < seconds < self.deadline.remaining:
                break
            self.log.waiting(found.plan.due[0], seconds)
            self.wait(seconds)
            found = look(self.instance.bdms())
        return dataclasses.replace(found, plan=found.plan.withhold(
            Reason.TIMED_OUT, _NOT_SETTLED, of_volumes=found.unsettled_for))

    def _look_again(self, first: Assessment) -> Assessment:
        """Return the first plan without the actions that are no longer due.

        The next reboot can connect a disk that was left out, but does not undo
        a connection: if this look is not answered, the first one holds.
        """
        try:
            second = self._look(self.instance.bdms(), closely=True)
        except Exception as exc:
            return self._unanswered(first, exc)
        plan = rules.confirm(first.plan, second.plan)
        if self.trigger.mode.removes:
            plan = plan.withhold(Reason.SECOND_LOOK_DIFFERS,
                                 of_volumes=second.unsettled_for)
        return dataclasses.replace(
            first, plan=plan,
            not_connected={
                uuid: finding for uuid, finding in second.not_connected.items()
                if uuid not in first.over_limit or uuid in second.left_out},
            left_out=second.left_out)

    def _unanswered(self, found: Assessment, error: Exception) -> Assessment:
        """Log that the next look failed; nothing is removed without it."""
        reason = self._reason_of(error)
        self.log.skipped(reason, error)
        return dataclasses.replace(found, plan=found.plan.withhold(reason))

    def _look(self, bdms: Sequence[facts.Bdm],
              closely: bool = False) -> Assessment:
        answers = self._ask_cinder(bdms, closely)
        if answers.is_cut and not self._said_cut:
            self._said_cut = True
            self.log.unread(len(answers.attachments))
        return self._assess(bdms, answers, self.trigger.mode.may_run)

    def _ask_cinder(self, bdms: Sequence[facts.Bdm],
                    closely: bool = False) -> facts.Answers:
        return self._timed(lambda: self.cinder.look(
            self.server.uuid, bdms, self.server.project, closely=closely))

    def _assess(self, bdms: Sequence[facts.Bdm], answers: facts.Answers,
                may_run: bool) -> Assessment:
        """Apply the rules to Cinder's answers.

        Nova is asked only if something would be removed.

        :param may_run: the guest may be on
        """
        # Assume that it is the right Cinder; that is checked before a removal.
        snapshot = facts.Snapshot(
            self.server, tuple(bdms), answers.volumes, answers.attachments,
            WitnessAnswer.KNOWN)
        plan = self._decide(snapshot)
        if self.trigger.mode is not Mode.DISCONNECT and any(
                finding.is_removal for finding in plan.findings):
            plan = self._decide_with_nova(snapshot, may_run)
        cut_after = len(answers.attachments) if answers.is_cut else None
        if self.policy.observe:
            return Assessment(
                plan.withhold(Reason.OBSERVE_MODE), cut_after=cut_after)
        disks = addresses.unconfirmed(snapshot, self.policy, self.now())
        plan = self._apply_rule_of_addresses(plan, snapshot, disks)
        return Assessment(
            plan, plan.not_connected, plan.left_out,
            frozenset(bdm.uuid for bdm in disks), cut_after,
            {volume: left for volume, left in rules.unsettled_for(
                plan, snapshot, self.policy, self.now()).items()
             if volume not in self.settled})

    def _apply_rule_of_addresses(self, plan: Plan, snapshot: facts.Snapshot,
                                 disks: Sequence[facts.Bdm]) -> Plan:
        """Return the plan without what the driver must not be given.

        :param disks: the disks that Cinder does not show attached.  Nova is
            asked only about them
        """
        if self.trigger.mode is Mode.ARRIVE or not disks:
            return plan
        return addresses.apply(
            plan, snapshot, self.policy, self.now(),
            self._records(disks, is_answered=True))

    def _records(self, disks: Sequence[facts.Bdm],
                 is_answered: bool) -> addresses.Records:
        """Return Nova's records about the addresses of some disks.

        :param is_answered: Cinder is asked about the rows of other servers
        """
        try:
            claims = self.instance.claims(disks)
            moves = self.instance.moves()
            guest_runs = bool(claims) and self._guest_runs
        except Exception as exc:
            return addresses.Records(failure=log_lines.masked(exc))
        if is_answered:
            claims = self._timed(lambda: {
                uuid: actions.asked_of(self.cinder, found)
                for uuid, found in claims.items()})
        return addresses.Records(claims, moves, guest_runs)

    @functools.cached_property
    def _guest_runs(self) -> bool:
        """Tell whether the guest may have run when this was first asked."""
        try:
            return not self.instance.is_off()
        except Exception:
            return True

    def _decide_with_nova(self, snapshot: facts.Snapshot,
                          may_run: bool) -> Plan:
        current = self.instance.server()
        is_off = may_run or self.instance.is_off()
        plan = self._decide(dataclasses.replace(
            snapshot, server=current or self.server,
            witness=self._timed(lambda: self._witness(snapshot)),
            swaps=self.instance.swaps()))
        # Nova may bring the server back in these cases, too.
        if current is None:
            return plan.withhold(self.trigger.lost)
        if not is_off:
            return plan.withhold(Reason.GUEST_RUNNING)
        if self.instance.is_shutting_down():
            return plan.withhold(Reason.SHUTTING_DOWN)
        return plan

    def _decide(self, snapshot: facts.Snapshot) -> Plan:
        plan = rules.decide(snapshot, self.policy, self.now())
        return plan if self.trigger.finds_stale else plan.of_mappings()

    def _timed(self, question: Callable[[], T]) -> T:
        """Ask Cinder, and add up the seconds."""
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
        return self.cinder.witness(self.instance.witnesses())

    def report_not_connected(self, findings: Iterable[facts.Finding]) -> None:
        """Log, and show in Nova, the disks that are not connected."""
        for finding in findings:
            uuid = finding.bdm.uuid if finding.bdm else ''
            if uuid in self._not_connected:
                continue
            self._not_connected.add(uuid)
            self.log.not_connected(finding)
            self._report(Kind.NOT_CONNECTED, finding, finding.reason)

    def _report_left(self, plan: Plan) -> None:
        """Show in Nova what was to be removed, and was not."""
        # In mode observe nothing of Nova's is changed, not even this.
        if not self.policy.observe:
            for finding in plan.summed_up().findings:
                if finding.withheld and (finding.bdm or finding.attachment):
                    self._report(Kind.LEFT, finding, finding.withheld)

    def _report(self, kind: Kind, finding: facts.Finding | None,
                reason: Reason) -> None:
        if not self._can_report:
            return
        try:
            self.instance.report(kind, finding, reason)
        except Exception as exc:
            # Each try may take as long as an RPC, with the guest off.
            self._can_report = False
            self.log.unreported(finding, exc)

    def _act(self, found: Assessment) -> Assessment:
        """Carry a plan out.

        :returns: the result of the last look that was answered
        """
        begun = time.monotonic()
        plan = found.plan
        removals, deletions = map(self._account, (MAPPINGS, ATTACHMENTS))
        limit = self.policy.max_removals_per_hour
        try:
            entry = self.journal.begin(
                self._record(plan),
                [Charge(removals, plan.removals, limit),
                 Charge(deletions, len(plan.due) - plan.removals, limit)],
                server=self.server.uuid)
        except LimitReached as exc:
            # One kind of removals over its limit must not stop the other kind.
            return self._act_on_rest(found, plan.withhold(
                Reason.OVER_LIMIT, of_mappings=exc.account == removals))
        except Exception as exc:
            self.log.unrecorded(exc)
            self.log.plan(
                Plan(plan.due).withhold(Reason.JOURNAL_UNWRITABLE))
            return dataclasses.replace(
                found, plan=plan.withhold(Reason.JOURNAL_UNWRITABLE))

        acting = actions.Actions(
            self.instance, self.cinder, entry, self.log, self.trigger,
            self.deadline, self.removed)
        found = self._act_in_order(acting, found)
        left = len(plan.due) - acting.completed
        outcome = ('done' if not left else
                   'partly' if acting.completed or acting.removals
                   or acting.deletions else NOTHING)
        acting.finish(outcome, {removals: acting.removals,
                                deletions: acting.deletions})
        self.log.finished(
            acting.completed, left, time.monotonic() - begun,
            '' if outcome == NOTHING else entry.id)
        return found

    def _account(self, kind: str) -> str:
        """Return the account that a kind of removals is charged to."""
        return account_of(kind, self.trigger.payer.of(self.server))

    def _act_on_rest(self, found: Assessment,
                     rest: Plan) -> Assessment:
        """Act on the kind of removals that is not over the hourly limit."""
        stopped = found.plan.stopped_in(rest)
        over_limit = found.over_limit.union(
            f.bdm.uuid for f in stopped.findings if f.bdm)
        found = dataclasses.replace(
            found, plan=rest, not_connected=rest.not_connected,
            over_limit=over_limit)
        self.log.plan(stopped)
        return self._act(found) if rest.due else found

    def _act_in_order(self, acting: actions.Actions,
                      found: Assessment) -> Assessment:
        """Power the guest off, look again, and act where both looks agree."""
        try:
            acting.power_off()
        except actions.StepFailed as exc:
            return dataclasses.replace(
                found, plan=found.plan.withhold(exc.reason))
        # If the guest was off, both looks are done.
        again = (self._look_again(found)
                 if self.trigger.mode is Mode.REBOOT else found)
        acting.record('second-look', 'done', agreed=len(again.plan.due))
        self.log.plan(found.plan.stopped_in(again.plan))
        for finding in again.plan.findings:
            if finding.bdm and finding.is_removal and not finding.is_due:
                acting.leave(finding)
        return dataclasses.replace(again, plan=Plan(tuple(
            acting.carry_out(f) if f.is_due else f
            for f in again.plan.findings)))

    def _record(self, plan: Plan) -> dict[str, Any]:
        """Return the plan's record in the journal, to explain and undo it."""
        return dict(
            self.instance.describe(), trigger=self.trigger.name,
            actions=[self._action_record(f) for f in plan.due],
            findings=[_finding_record(f) for f in plan.summed_up().findings])

    def _action_record(self, finding: facts.Finding) -> dict[str, Any]:
        record: dict[str, Any] = {'reason': str(finding.reason),
                                  'explanation': finding.explanation}
        if finding.bdm is not None:
            record.update(
                kind='remove-bdm', bdm=dict(self.instance.row(finding.bdm)),
                attachments=list(map(_attachment_record, finding.left_over)))
        elif finding.attachment is not None:
            record.update(kind='delete-attachment',
                          attachment=_attachment_record(finding.attachment))
        return record


def _attachment_record(attachment: facts.Attachment) -> dict[str, Any]:
    """Describe an attachment, without its connection information, which may
    hold secrets.
    """
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
