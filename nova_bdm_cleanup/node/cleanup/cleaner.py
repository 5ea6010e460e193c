# SPDX-License-Identifier: Apache-2.0
"""One cleanup of one server: look, settle, look again, act.

:meth:`Cleaner.clean` reads from top to bottom.  The first look, or the one
after the wait for young records, finds what may be changed.  Each later step
only withholds changes, so that each error leaves a mapping as it was.  The
last look decides which disks the driver is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import datetime
import math
import time
from typing import Any, Callable, TypeVar

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.node.cleanup import actions, log_lines
from nova_bdm_cleanup.node.cleanup.ports import InstancePort, RebootLost
from nova_bdm_cleanup.node.cleanup.triggers import Mode, Trigger
from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.node.store.journal import (
    account_of,
    ADOPT,
    ATTACHMENTS,
    Charge,
    DELETE,
    Journal,
    LimitReached,
    MAPPINGS,
    objects,
    RECONNECT,
    REMOVE,
)
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.cinder import Cinder
from nova_bdm_cleanup.openstack.deadline import Deadline, TimedOut
from nova_bdm_cleanup.rules import addresses, facts
from nova_bdm_cleanup.rules.action_events import Kind
from nova_bdm_cleanup.rules.facts import Bdm, Finding, Plan, WitnessAnswer
from nova_bdm_cleanup.rules.reasons import Reason

T = TypeVar('T')

_NOT_SETTLED = ('its records are younger than [bdm_cleanup] settle_time, and '
                'there is no time to wait longer')


def _utcnow() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


@dataclasses.dataclass(frozen=True)
class CleanupOutcome:
    """The result of a cleanup."""

    plan: Plan = Plan()
    #: The uuids of the mappings that were removed.
    removed: frozenset[str] = frozenset()
    #: The findings about the disks that the driver must not be given, by the
    #: uuid of the mapping.
    not_given: Mapping[str, Finding] = dataclasses.field(default_factory=dict)

    @property
    def reconnected(self) -> frozenset[str | None]:
        """Return the volumes that Cinder has just connected to this host."""
        return frozenset(
            f.volume_id for f in self.plan.due if f.gets_connection)

    @property
    def taken_out(self) -> frozenset[str]:
        """Return the mappings that Nova must not start the guest with."""
        return self.removed.union(self.not_given)


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
    #: Bounds the whole cleanup, but for one wait.
    deadline: Deadline
    #: The seconds that it may wait until records are settled.
    patience: float
    #: The server as it is known without a request.
    server: facts.Server
    #: Gives the time, with its time zone.
    now: Callable[[], datetime.datetime] = _utcnow
    #: Waits for some seconds.
    wait: Callable[[float], None] = time.sleep
    #: Adopts the disks that the guest has, while it is on; returns whether
    #: there is anything to look at once more.
    adopt: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        #: The mappings that were removed, also if an error follows.
        self.removed: set[str] = set()
        #: The last error of a request to Cinder.
        self.unanswered: Exception | None = None
        #: Seconds spent on requests to Cinder.
        self.asking = 0.0
        #: The mappings whose disks the guest had open; None: not asked yet.
        self._open: frozenset[str] | None = None
        #: The guest was here when the operation began; None: not asked yet.
        self._guest_was_here: bool | None = None
        #: The disks that it had, by mapping; None: not asked yet.
        self._sources: Mapping[str, facts.Source] | None = None
        #: The mappings whose disks it did not have; None: not asked yet.
        self._left_out: frozenset[str] | None = None
        # The log says once that Cinder has too many attachments.
        self._said_cut = False
        #: No event of the instance action has failed.
        self._can_report = True

    def clean(self, bdms: Sequence[Bdm]) -> CleanupOutcome:
        """Find the inconsistencies of a server, and remove those that it may.

        Never raises because of Cinder, the host, Nova or the journal.

        :param bdms: all block device mappings of the server
        """
        try:
            plan = self._look(bdms)
        except Exception as exc:
            failure = exc
        else:
            return self._acted(plan)
        return self._without_answer(bdms, failure)

    def _acted(self, plan: Plan) -> CleanupOutcome:
        plan = self._adopted(self._settled(plan))
        begun: frozenset[Finding] = frozenset()
        with contextlib.ExitStack() as locks:
            plan = self._looked_again(plan, locks)
            if plan.due:
                with self.instance.awaited():
                    plan, begun = self._act(plan)
        plan = self._claimed_since(plan)
        self._keep_proof(plan)
        # Of a removal that has begun, a line of its own says how it ended.
        self.log.plan(plan, begun)
        return self._reported(plan)

    def without_cinder(self, bdms: Sequence[Bdm],
                       reason: Reason) -> CleanupOutcome:
        """Return the outcome where Cinder is not asked: only claims decide.

        :param reason: why it is not
        """
        plan = self._unanswered_plan(bdms, reason)
        self._keep_proof(plan)
        return self._reported(plan)

    def preview(self, bdms: Sequence[Bdm]) -> Plan:
        """Return what a cleanup finds, and do nothing else.

        :raises Exception: why Nova or Cinder did not answer
        """
        return self._judge(bdms, self._ask_cinder(bdms))

    # The steps

    def _look(self, bdms: Sequence[Bdm], closely: bool = False,
              is_last: bool = False) -> Plan:
        answers = self._ask_cinder(bdms, closely)
        if answers.is_cut and not self._said_cut:
            self._said_cut = True
            self.log.unread(len(answers.attachments))
        return self._judge(bdms, answers, is_last)

    def _without_answer(self, bdms: Sequence[Bdm],
                        error: Exception) -> CleanupOutcome:
        """Return the outcome if the first look failed: nothing is removed."""
        reason = self._reason_of(error)
        self.log.skipped(reason, error)
        mode = self.trigger.mode
        if mode.removes and mode.is_operation and not self.policy.observe:
            self._report(Kind.WITHHELD, None, reason)
        return self.without_cinder(bdms, reason)

    def _unanswered_plan(self, bdms: Sequence[Bdm], reason: Reason) -> Plan:
        if not self._filters:
            return Plan()
        swapped = tuple(self._swapped_away(bdms))
        disks = addresses.disks_of(
            bdm for bdm in bdms if bdm not in [f.bdm for f in swapped])
        if not disks:
            return Plan(swapped)
        self.instance.hold_up()
        plan = addresses.without_cinder(
            disks, self._claims(disks, is_silent=True), reason)
        return Plan((*swapped, *plan.findings))

    def _swapped_away(self, bdms: Sequence[Bdm]) -> Iterator[Finding]:
        """Yield the disks that the guest has left in a swap.

        Cinder is not asked: it is not known for which one.
        """
        connected = [bdm for bdm in bdms if bdm.has_connection_info]
        had: Mapping[str, facts.Source] = {}
        with contextlib.suppress(Exception):
            had = self._ask_sources(connected)
        left = [bdm for bdm in connected
                if bdm.uuid in had and had[bdm.uuid].is_other(bdm.source)]
        with contextlib.suppress(Exception):
            if left and self.instance.swaps() is facts.Ending.SUCCESS:
                return
            since = self.instance.last_swap() if left else 0.0
            left = [bdm for bdm in left if not bdm.is_newer_than_swaps(since)]
        for bdm in left:
            source = had[bdm.uuid]
            yield Finding(
                Reason.SWAP_INTERRUPTED, 'the guest had another disk in its '
                'place (%s), and Cinder has not answered' % source, bdm=bdm,
                guest_had=dataclasses.replace(
                    source, path=None, was_here=self._is_guest_here(),
                    attachment_id=source.attachment_id or ''))

    def _settled(self, plan: Plan) -> Plan:
        """Wait once, if a record is so young that reads may not show it.

        The guest is still on, and nothing has been changed.  The answer of the
        next look decides, by the clock of this host: what two looks that are
        ``settle_time`` apart have found is settled, also if a record is young.
        """
        seconds = self.policy.settle_time.total_seconds()
        # Otherwise it decides about nothing.
        decides = plan.due or self._filters
        if self.policy.observe or not decides or not plan.settles_in:
            return plan
        if seconds > self.patience:
            return self._unsettled(plan)
        failure: Exception | None = None
        try:
            # From here on a crash must not leave the reboot pending for good.
            if self.trigger.mode.is_operation:
                self.instance.claim()
        except RebootLost as exc:
            return plan.withhold(self.trigger.lost, log_lines.masked(exc))
        except Exception as exc:
            failure = exc
        if failure:
            self.log.unsaved(failure)
        self.log.waiting(next(
            f for f in plan.findings if f.settles_in), seconds)
        self.wait(seconds)
        self.deadline.extend(seconds)
        return self._looked_closely(plan)

    def _looked_closely(self, plan: Plan) -> Plan:
        """Return what a look that needs not wait finds."""
        try:
            plan = self._unsettled(rules.agreed(
                plan, self._look(self.instance.bdms(), closely=True)))
        except Exception as exc:
            failure = exc
        else:
            # Nothing is given because it is young: this look decides.
            return Plan(tuple(
                dataclasses.replace(finding, settles_in=datetime.timedelta(0))
                for finding in plan.findings))
        return self._withheld(plan, failure)

    def _unsettled(self, plan: Plan) -> Plan:
        """Withhold what is not settled, and cannot be waited for."""
        return plan.withhold(Reason.TIMED_OUT, _NOT_SETTLED, of_volumes={
            f.volume_id for f in plan.findings if f.settles_in})

    def _adopted(self, plan: Plan) -> Plan:
        """Return the plan for what is left once disks are adopted.

        What the guest has by an attachment to this host, the host connects by
        the address of that attachment: a reconnect would give it another one,
        and leave the device behind.
        """
        if self.trigger.mode is not Mode.REBOOT or not any(
                finding.is_reconnect for finding in plan.due):
            return plan
        try:
            return self._looked_closely(plan) if self.adopt() else plan
        except Exception as exc:
            failure = exc
        return self._withheld(plan, failure)

    def _looked_again(self, plan: Plan, locks: contextlib.ExitStack) -> Plan:
        """Return the plan as a second look confirms it.

        In a reboot that removes anything, the second look follows when the
        guest is off.

        :param locks: holds Nova's lock of the server, if Nova does not
        """
        if self.trigger.mode is Mode.REBOOT and plan.due or not (
                plan.due or self._filters and rules.not_given(plan)):
            return plan
        try:
            if plan.due and not self.trigger.nova_holds_lock:
                # Nova's earlier operation on the server is over.
                locks.enter_context(self.instance.lock())
        except Exception as exc:
            return plan.withhold(self._reason_of(exc), log_lines.masked(exc))
        plan = self._confirmed(plan)
        return plan if self.trigger.mode.removes \
            else plan.withhold(Reason.SOFT_REBOOT)

    def _confirmed(self, plan: Plan) -> Plan:
        try:
            return rules.confirm(plan, self._look(
                self.instance.bdms(), closely=True, is_last=True))
        except Exception as exc:
            failure = exc
        return self._withheld(plan, failure)

    def _withheld(self, plan: Plan, error: Exception) -> Plan:
        """Return the plan if the next look failed; the first one holds.

        The next reboot can connect a disk that was not given, but does not
        undo a connection.
        """
        reason = self._reason_of(error)
        self.log.skipped(reason, error)
        return plan.withhold(reason)

    def _keep_proof(self, plan: Plan) -> None:
        """Keep in the journal which disks the guest had, if it comes back
        without them: later nothing else tells that it was here with them.

        An entry with a step of theirs, or an earlier one, tells that already.
        """
        if not self._filters:
            return
        try:
            not_given = rules.not_given(plan)
            lost = Plan(tuple(
                dataclasses.replace(finding, action=facts.Action.RECONNECT,
                                    withheld=None)
                for finding in plan.findings
                if finding.bdm and finding.bdm.uuid in not_given
                and self._needs_proof(finding, finding.bdm)))
            if lost.due:
                self.journal.begin(
                    self._record(lost), (), server=self.server.uuid).finish(
                        'partly', {})
            return
        except Exception as exc:
            failure = exc
        self.log.unrecorded(failure)

    def _needs_proof(self, finding: Finding, bdm: Bdm) -> bool:
        if finding.reason is Reason.SWAP_INTERRUPTED:
            return (finding.guest_had is not None
                    and bdm.uuid not in self._journal_sources([bdm]))
        return bool(self._guest_was_here) and finding.is_reconnect and (
            bdm.uuid not in self._read_proofs() and self._had_disk(bdm))

    def _claimed_since(self, plan: Plan) -> Plan:
        """Return the plan with a last verdict on the addresses of the disks
        that are given, and that Cinder does not connect.

        Until the guest has them, Cinder gives this host no address.  All locks
        of the cleanup are given back: who waits for that may have one.
        """
        disks = rules.unconnected(plan) if self._filters else ()
        if not disks:
            return plan
        self.instance.hold_up()
        return addresses.claimed_since(plan, self._claims(disks))

    def _act(self, plan: Plan) -> tuple[Plan, frozenset[Finding]]:
        """Carry a plan out.

        :returns: the plan without what was withheld, and the findings whose
            removal has begun
        """
        begun = time.monotonic()
        acting = None
        while plan.due and acting is None:
            plan, acting = self._recorded(plan)
        if acting is None:
            return plan, frozenset()
        try:
            return self._carry_out(plan, acting, begun)
        finally:
            if not self.trigger.mode.is_operation:
                acting.release()

    def _carry_out(self, plan: Plan, acting: actions.Actions, begun: float
                   ) -> tuple[Plan, frozenset[Finding]]:
        try:
            acting.power_off()
        except actions.StepFailed as exc:
            plan = plan.withhold(exc.reason)
        if self.trigger.mode is Mode.REBOOT and plan.due:
            plan = self._confirmed(plan)
            acting.record('second-look', 'done', agreed=len(plan.due))
        for finding in plan.findings:
            if finding.bdm and finding.is_change and not finding.is_due:
                acting.stop(finding)
        # What takes away comes first.
        ended = {f: acting.carry_out(f) for f in sorted(
            plan.due, key=lambda f: f.is_reconnect)}
        acting.finish(time.monotonic() - begun)
        return (Plan(tuple(ended.get(f, f) for f in plan.findings)),
                frozenset(ended.values()))

    def _recorded(self, plan: Plan) -> tuple[Plan, actions.Actions | None]:
        """Write a plan to the journal: what is not recorded is not done.

        :returns: the plan, and what carries it out; None: something was
            withheld, so another plan is to be recorded
        """
        removals, deletions = map(self._account, (MAPPINGS, ATTACHMENTS))
        limit = self.policy.max_removals_per_hour
        try:
            entry = self.journal.begin(
                self._record(plan),
                [Charge(removals, plan.removals, limit),
                 Charge(deletions, plan.deletions, limit)],
                server=self.server.uuid)
        except LimitReached as exc:
            # One kind of removals over its limit must not stop the other kind.
            return plan.withhold(
                Reason.OVER_LIMIT, of_mappings=exc.account == removals), None
        except Exception as exc:
            failure = exc
        else:
            return plan, actions.Actions(
                self.instance, self.cinder, entry, self.log, self.trigger,
                self.deadline, self.server, self._had_disk, len(plan.due),
                (removals, deletions), self.removed)
        self.log.unrecorded(failure)
        return plan.withhold(Reason.JOURNAL_UNWRITABLE), None

    def _account(self, kind: str) -> str:
        """Return the account that a kind of removals is charged to."""
        return account_of(kind, self.trigger.payer.of(self.server))

    # The rules, and what they ask

    def _judge(self, bdms: Sequence[Bdm], answers: facts.Answers,
               is_last: bool = False) -> Plan:
        """Apply the rules to what one look has found.

        :param is_last: an earlier look holds if claims cannot be read
        """
        snapshot = facts.Snapshot(
            self.server, tuple(bdms), answers.volumes, answers.attachments,
            holds_lock=self.trigger.nova_holds_lock,
            guest=self.trigger.mode.guest)
        sources = _LookSources(self, snapshot, is_last)
        plan = rules.judge(snapshot, sources, self.policy, self.now(),
                           self.trigger.finds_stale)
        if self.policy.observe:
            return plan.withhold(Reason.OBSERVE_MODE)
        if not plan.due:
            return plan
        try:
            why, obstacle = self._obstacle(), ''
        except Exception as exc:
            sources.failure = exc
        if sources.failure is not None:
            # What Cinder shows of the disks counts all the same.
            why = self._reason_of(sources.failure)
            obstacle = log_lines.masked(sources.failure)
        return plan.withhold(why, obstacle) if why else plan

    def _obstacle(self) -> Reason | None:
        """Return why nothing may be removed now; None: it may."""
        # Nova may bring the server back in these cases, too.
        if self.instance.server() is None:
            return self.trigger.lost
        mode = self.trigger.mode
        if mode.removes and not mode.may_run and not self.instance.is_off():
            return Reason.GUEST_RUNNING
        if self.instance.is_shutting_down():
            return Reason.SHUTTING_DOWN
        return None

    @property
    def _filters(self) -> bool:
        """Tell whether Nova will give the driver the addresses of the rows."""
        return not self.policy.observe and self.trigger.mode.starts_guest

    def _claims(self, disks: Sequence[Bdm], is_silent: bool = False,
                is_last: bool = False) -> facts.Claims:
        """Return the claims on the addresses of some disks that count.

        :param is_silent: Cinder does not answer
        :param is_last: raise if they cannot be read, instead of a claim
        """
        if not self._filters:
            return facts.Claims()
        claims = actions.claims_on(self.instance, disks)
        if self._open is None and claims.shows_guests:
            # When this is asked first, the guest is still on.
            self._open = claims.open
        if is_last:
            actions.check_read(claims)
        if not is_silent:
            claims = self._timed(lambda: actions.counting(
                self.cinder, self.server.host, disks, claims))
        return dataclasses.replace(claims, open=self._open or frozenset())

    def _is_guest_here(self) -> bool:
        """Return whether the guest was certainly here and nowhere else.

        When this is asked first, the guest is still on.
        """
        if self._guest_was_here is None:
            failure: Exception | None = None
            try:
                self._guest_was_here = self.instance.guest_is_here()
            except Exception as exc:
                failure = exc
            if failure:
                self.log.unplaced(failure)
                self._guest_was_here = False
        return bool(self._guest_was_here)

    def _ask_sources(self, bdms: Sequence[Bdm]) -> Mapping[str, facts.Source]:
        """Return the disks that the guest had, by mapping.

        When this is asked first, the guest is still on.

        :raises Exception: when it is not known
        """
        if self._sources is None:
            found = dict(self.instance.sources())
            with contextlib.suppress(StoreError):
                # Otherwise nothing is changed either: it is not recorded.
                found.update(self._journal_sources(
                    [bdm for bdm in bdms if bdm.uuid not in found]))
            self._sources = found
        return self._sources

    def _journal_sources(self, bdms: Sequence[Bdm]
                         ) -> Mapping[str, facts.Source]:
        """Return the disks of a guest that is gone, or that came back without
        them, after a swap that ended half way.

        It counts until the mapping names a third attachment, or another swap
        is requested.

        :raises Exception: when it is not known
        """
        if not bdms:
            return {}
        own = {bdm.uuid: bdm.attachment_id for bdm in bdms}
        had = {str(bdm.get('uuid')): (entry.time, _source_of(source))
               for entry in self.journal.entries(self.server.uuid)
               for action in objects(entry.record, 'actions')
               for source in objects(action, 'guest_had')
               for bdm in objects(action, 'bdm')
               if own.get(str(bdm.get('uuid'))) in (
                   bdm.get('attachment_id'), source.get('attachment'))}
        since = self.instance.last_swap() if had else 0.0
        return {uuid: source for uuid, (time, source) in had.items()
                if time > since}

    def _ask_left_out(self) -> frozenset[str]:
        """Return the mappings whose disks the guest did not have.

        :raises Exception: when it is not known
        """
        if self._left_out is None:
            self._left_out = self.instance.left_out(self._read_proofs())
        return self._left_out

    def _read_proofs(self) -> Mapping[str, float]:
        """Return when the guest had disks that were to be reconnected, by the
        uuid of the mapping.

        :raises StoreError: when the journal cannot be read
        """
        return {str(bdm.get('uuid')): entry.time
                for entry in self.journal.entries(self.server.uuid)
                for action in objects(entry.record, 'actions')
                if action.get('guest_had_disk')
                for bdm in objects(action, 'bdm')}

    def _had_disk(self, bdm: Bdm) -> bool:
        """Return whether the guest was certainly here, with a disk."""
        return self._is_guest_here() and bdm.uuid not in self._ask_left_out()

    def _ask_cinder(self, bdms: Sequence[Bdm],
                    closely: bool = False) -> facts.Answers:
        return self._timed(lambda: self.cinder.look(
            self.server.uuid, bdms, self.server.project, closely=closely))

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

    # Reports in Nova

    def _reported(self, plan: Plan) -> CleanupOutcome:
        """Show in Nova what was not removed, or is not given."""
        not_given = {} if not self._filters else {
            uuid: finding for uuid, finding in rules.not_given(plan).items()
            if uuid not in self.removed}
        mode = self.trigger.mode
        if mode.is_operation and mode is not Mode.REPORT:
            self._report_left(plan)
            for finding in not_given.values():
                self.log.not_connected(finding)
                self._report(Kind.NOT_CONNECTED, finding, finding.reason)
        return CleanupOutcome(plan, frozenset(self.removed), not_given)

    def _report_left(self, plan: Plan) -> None:
        # In mode observe nothing of Nova's is changed, not even this.
        if not self.policy.observe:
            for finding in plan.summed_up().findings:
                if finding.withheld and (finding.bdm or finding.attachment):
                    self._report(Kind.WITHHELD, finding, finding.withheld)

    def _report(self, kind: Kind, finding: Finding | None,
                reason: Reason) -> None:
        if not self._can_report:
            return
        try:
            self.instance.report(kind, finding, reason)
            return
        except Exception as exc:
            failure = exc
        # Each try may take as long as an RPC, with the guest off.
        self._can_report = False
        self.log.unreported(finding, failure)

    # Records in the journal

    def _record(self, plan: Plan) -> dict[str, Any]:
        """Return the plan's record in the journal, to explain and undo it."""
        return dict(
            self.instance.describe(), trigger=self.trigger.name,
            actions=[self._action_record(f) for f in plan.due],
            findings=[_finding_record(f) for f in plan.summed_up().findings])

    def _action_record(self, finding: Finding) -> dict[str, Any]:
        record: dict[str, Any] = {'reason': str(finding.reason),
                                  'explanation': finding.explanation}
        if finding.bdm is not None:
            record.update(
                kind=RECONNECT if finding.is_reconnect
                else ADOPT if finding.is_adoption else REMOVE,
                bdm=dict(self.instance.row(finding.bdm)),
                attachments=list(map(_attachment_record, finding.deleted)))
            if finding.guest_had is not None:
                # After the power-off, nothing else tells it.
                record['guest_had'] = _source_record(finding.guest_had)
            elif (finding.is_reconnect and self._filters
                    and self._guest_was_here):
                # The next start leaves it out, if this does not end.
                record['guest_had_disk'] = self._had_disk(finding.bdm)
            if finding.swapped_to is not None:
                record['swapped_to'] = _attachment_record(finding.swapped_to)
        elif finding.attachment is not None:
            record.update(kind=DELETE,
                          attachment=_attachment_record(finding.attachment))
        return record


@dataclasses.dataclass
class _LookSources:
    """The sources of the rules in one look."""

    cleaner: Cleaner
    snapshot: facts.Snapshot
    is_last: bool
    #: Why Nova did not answer; nothing is removed then.
    failure: Exception | None = None

    def current(self) -> facts.Server:
        try:
            return self.cleaner.instance.server() or self.snapshot.server
        except Exception as exc:
            self.failure = exc
            return self.snapshot.server

    def attaches(self, bdms: Sequence[Bdm]) -> Mapping[str, facts.Attach]:
        try:
            return self.cleaner.instance.attaches(bdms)
        except Exception as exc:
            self.failure = exc
            return {}

    def absent(self, attachments: Sequence[facts.Attachment]
               ) -> frozenset[str]:
        try:
            return self.cleaner.instance.absent(attachments)
        except Exception as exc:
            self.failure = exc
            return frozenset()

    def guest_is_here(self) -> bool:
        return self.cleaner._is_guest_here()

    def sources(self, bdms: Sequence[Bdm]) -> Mapping[str, facts.Source]:
        try:
            return self.cleaner._ask_sources(bdms)
        except Exception as exc:
            self.failure = exc
            return {}

    def left_out(self) -> frozenset[str]:
        try:
            return self.cleaner._ask_left_out()
        except Exception as exc:
            self.failure = exc
            return frozenset(bdm.uuid for bdm in self.snapshot.bdms)

    def on_host(self, disks: Sequence[tuple[Bdm, facts.Attachment | None]]
                ) -> Mapping[str, facts.OnHost]:
        try:
            return {bdm.uuid: self.cleaner.instance.on_host(bdm, attachment)
                    for bdm, attachment in disks}
        except Exception as exc:
            self.failure = exc
            return {}

    def swaps(self) -> facts.Ending:
        try:
            return self.cleaner.instance.swaps()
        except Exception as exc:
            self.failure = exc
            return facts.Ending.UNKNOWN

    def last_swap(self) -> float:
        try:
            return self.cleaner.instance.last_swap()
        except Exception as exc:
            self.failure = exc
            return math.inf

    def witness(self) -> WitnessAnswer:
        return self.cleaner._timed(lambda: self.cleaner.cinder.witness(
            self.cleaner.instance.witnesses()))

    def claims(self, disks: Sequence[Bdm]) -> facts.Claims:
        return self.cleaner._claims(disks, is_last=self.is_last)


def _attachment_record(attachment: facts.Attachment) -> dict[str, Any]:
    """Describe an attachment, without its connection information, which may
    hold secrets.
    """
    return {'id': attachment.id, 'volume_id': attachment.volume_id,
            'server_id': attachment.server_id, 'status': attachment.status,
            'connected': attachment.connected}


def _source_record(source: facts.Source) -> dict[str, Any]:
    return {'attachment': source.attachment_id, 'was_here': source.was_here,
            'addresses': sorted(source.addresses), 'name': source.name}


def _source_of(record: Mapping[str, Any]) -> facts.Source:
    return facts.Source(
        frozenset((str(target), str(unit))
                  for target, unit in record.get('addresses', ())),
        record.get('name'), attachment_id=record.get('attachment'),
        was_here=bool(record.get('was_here')))


def _finding_record(finding: Finding) -> dict[str, Any]:
    return {'reason': str(finding.reason),
            'withheld': str(finding.withheld) if finding.withheld else None,
            'volume': finding.volume_id,
            'attachment': finding.attachment_id,
            'device': finding.device,
            'explanation': finding.explanation}
