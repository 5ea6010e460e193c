# SPDX-License-Identifier: Apache-2.0
"""The actions of a plan, in the only safe order.

Power the guest off, disconnect the host, delete Nova's row, tell Cinder.  Once
Cinder is told, it may give the volume to another server, so neither this host
nor Nova's database may still know the disk: if any process dies at any moment,
nothing connects the disk again (CVE-2023-2088).

A failed step ends the actions on that disk.  Until Nova's row is deleted, the
next look finds a dangling disk; after that, it finds a stale attachment in
Cinder.  The same way completes a cleanup that a crash has interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
import contextlib
import dataclasses
from typing import Any, Callable, TypeVar

from oslo_log import log as logging

from nova_bdm_cleanup.node.cleanup import log_lines, ports
from nova_bdm_cleanup.node.cleanup.ports import InstancePort
from nova_bdm_cleanup.node.cleanup.triggers import Mode, Trigger
from nova_bdm_cleanup.node.store.journal import Entry, NOTHING
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.cinder import Cinder
from nova_bdm_cleanup.openstack.deadline import Deadline, TimedOut
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.action_events import Kind
from nova_bdm_cleanup.rules.reasons import Reason

LOG = logging.getLogger(__name__)

T = TypeVar('T')

#: The journal's reason why nothing had to be disconnected.
NOT_HERE = 'nothing of it is on this host'
#: The address is another host's.
NEVER_HERE = 'it is not connected on this host'


class StepFailed(Exception):
    """A step failed; the log and the journal have it already."""

    def __init__(self, step: str, reason: Reason) -> None:
        super().__init__(step)
        self.reason = reason


class NotBegun(Exception):
    """A step must not begin, because of an earlier failure."""


@dataclasses.dataclass
class Actions:
    """The actions of one plan."""

    instance: InstancePort
    cinder: Cinder
    #: The plan's entry in the journal.
    entry: Entry
    log: log_lines.LogLines
    trigger: Trigger
    #: No action begins after it.
    deadline: Deadline
    #: The compute host.
    host: str
    #: How many actions are planned.
    planned: int
    #: The accounts that removals of mappings and of attachments count towards.
    accounts: tuple[str, str]
    #: The uuids of the removed mappings; each is added when it is gone.
    removed: set[str] = dataclasses.field(default_factory=set)

    def __post_init__(self) -> None:
        self._recording = True
        # Volumes with a failed action: the actions of another mapping of such
        # a volume must not continue where the first ones stopped.
        self._stopped: set[str | None] = set()
        #: The number of completed actions.
        self.completed = 0
        #: The counts for the hourly limits: rather one too many.
        self.removals = 0
        self.deletions = 0

    def power_off(self) -> None:
        """Switch the guest off: nothing may write to a disk that is removed.

        If the guest was already off, both looks have checked that.

        :raises StepFailed: when nothing else may be done
        """
        if self.trigger.mode is Mode.REBOOT:
            self._step(None, 'prepare', self.instance.prepare, quiet=True)
        self._step(None, 'claim', self.instance.claim, quiet=True)
        if self.trigger.mode is Mode.REBOOT:
            self._step(None, 'power-off', self.instance.power_off)

    def stop(self, finding: facts.Finding) -> None:
        """Begin no other action on the volume of a finding."""
        self._stopped.add(finding.volume_id)

    def carry_out(self, finding: facts.Finding) -> facts.Finding:
        """Carry out the removal of one finding, up to the first failure.

        :returns: the finding, withheld if its removal was not completed
        """
        try:
            self._step(finding, 'begin',
                       lambda: self._may_begin(finding.volume_id), quiet=True)
            self.log.removing(finding)
            with contextlib.ExitStack() as guards:
                self._step(
                    finding, 'volume-lock', lambda: guards.enter_context(
                        self.instance.volume_lock(finding.volume_id or '')),
                    quiet=True)
                if self._disconnects(finding):
                    self._step(
                        finding, 'guard', lambda: guards.enter_context(
                            self.instance.guard(finding.volume_id or '')),
                        quiet=True)
                if finding.attachment is not None:
                    self._release(finding, finding.attachment)
                elif finding.bdm is not None and finding.disconnect:
                    self._remove(finding, finding.bdm)
                elif finding.bdm is not None:
                    self._drop(finding, finding.bdm)
        except StepFailed as exc:
            self.stop(finding)
            return finding.withhold(exc.reason)
        self.completed += 1
        return finding

    def _disconnects(self, finding: facts.Finding) -> bool:
        return finding.disconnect and self.trigger.mode is not Mode.ARRIVE

    def _may_begin(self, volume_id: str | None) -> None:
        self.deadline.check('the cleanup of this disk')
        if self.instance.is_shutting_down():
            raise ports.ShuttingDown(
                'the cleanup of this disk was not begun: nova-compute stops')
        if volume_id in self._stopped:
            raise NotBegun('another mapping of the same volume could not be '
                           'removed')

    def record(self, name: str, outcome: str, **subject: Any) -> None:
        """Write a step to the journal."""
        self._write(lambda: self.entry.step(name, outcome, **subject))

    def finish(self, seconds: float) -> None:
        """Close the entry in the journal, and log the totals.

        :param seconds: how long all actions took
        """
        left = self.planned - self.completed
        outcome = ('done' if not left else 'partly' if self.completed
                   or self.removals or self.deletions else NOTHING)
        spent = dict(zip(self.accounts, (self.removals, self.deletions)))
        self._write(lambda: self.entry.finish(outcome, spent))
        self.log.finished(self.completed, left, seconds,
                          '' if outcome == NOTHING else self.entry.id)

    def _write(self, write: Callable[[], None]) -> None:
        """Write to the journal, and go on if that fails.

        The plan is in the journal already and is enough to undo it: a failure
        now must not leave a disk half removed.
        """
        try:
            write()
        except Exception as exc:
            if self._recording:
                self.log.unrecorded(exc)
            self._recording = False

    def _remove(self, finding: facts.Finding, bdm: facts.Bdm) -> None:
        """Remove a mapping, and then its attachments in Cinder."""
        if bdm.has_connection_info and self._disconnects(finding):
            self._disconnect(finding, bdm, bdm=bdm.uuid)
        else:
            self.record('disconnect', 'skipped', bdm=bdm.uuid,
                        detail=NEVER_HERE)
        self._destroy(finding, bdm)
        self._tidy(finding, bdm)
        self._announce(finding)
        for attachment in finding.dependent:
            self._delete(finding, attachment)

    def _drop(self, finding: facts.Finding, bdm: facts.Bdm) -> None:
        """Remove a mapping whose disk the server keeps by another one."""
        self.record('disconnect', 'skipped', bdm=bdm.uuid,
                    detail='another mapping has the disk')
        self._destroy(finding, bdm)
        self._announce(finding)

    def _destroy(self, finding: facts.Finding, bdm: facts.Bdm) -> None:
        # Counted even if it fails: perhaps only the response is lost.
        self.removals += 1
        self._step(finding, 'destroy', lambda: self.instance.destroy(bdm),
                   bdm=bdm.uuid, volume=bdm.volume_id)
        self.removed.add(bdm.uuid)

    def _release(self, finding: facts.Finding,
                 attachment: facts.Attachment) -> None:
        """Delete an attachment that has no mapping any more."""
        if finding.disconnect:
            # Cinder's connection information is not safe to disconnect by: a
            # user who may make attachments can make it name any device.
            former = self._step(
                finding, 'former-mapping',
                lambda: self.instance.former(attachment), quiet=True)
            if former is None:
                self._skip(finding, 'Nova has no mapping, not even a deleted '
                           'one, that says what the attachment connected',
                           attachment=attachment.id)
            else:
                self._disconnect(finding, former, attachment=attachment.id)
                self._tidy(finding, former)
        self.deletions += 1
        self._delete(finding, attachment)
        self._announce(finding)

    def _tidy(self, finding: facts.Finding, bdm: facts.Bdm) -> None:
        try:
            self.instance.tidy(bdm)
        except Exception as exc:
            # The disk is not affected; Cinder must still be told.
            self.log.untidy(finding, exc)

    def _announce(self, finding: facts.Finding) -> None:
        self.log.removed(finding, self.entry.id)
        try:
            self.instance.report(Kind.REMOVED, finding, finding.reason)
        except Exception as exc:
            # Only the event is missing; the removal itself is complete.
            self.log.unreported(finding, exc)

    def _disconnect(self, finding: facts.Finding, disk: facts.Bdm,
                    **subject: Any) -> None:
        with contextlib.ExitStack() as announced:
            # From here on Cinder's answers with this address wait.
            self._step(finding, 'announce', lambda: announced.enter_context(
                self.instance.disconnecting(disk)), quiet=True)
            claim = self._step(finding, 'claims', lambda: claim_on(
                self.instance, self.cinder, self.host, disk), quiet=True)
            if claim is not None:
                self._skip(finding, str(claim), **subject)
                self._step(finding, 'note',
                           lambda: self.instance.note(disk), quiet=True)
            elif self._step(
                    finding, 'disconnect',
                    lambda: self.instance.disconnect(disk),
                    quiet=True, volume=disk.volume_id, **subject):
                self.record('disconnect', 'done', volume=disk.volume_id,
                            **subject)
            else:
                # After a boot of the host, or if it was disconnected already.
                self.record('disconnect', 'skipped', volume=disk.volume_id,
                            detail=NOT_HERE, **subject)

    def _skip(self, finding: facts.Finding, why: str, **subject: Any) -> None:
        self.log.still_connected(finding, why)
        self.record('disconnect', 'skipped', detail=why, **subject)

    def _delete(self, finding: facts.Finding,
                attachment: facts.Attachment) -> None:
        self._step(finding, 'delete-attachment',
                   lambda: self.cinder.delete_attachment(
                       attachment.id, complete=attachment.is_half_connected),
                   attachment=attachment.id, volume=attachment.volume_id)
        self.instance.forget(attachment)

    def _step(self, finding: facts.Finding | None, name: str,
              func: Callable[[], T], quiet: bool = False,
              **subject: Any) -> T:
        """Do one step; record it, and log it when it fails."""
        try:
            result = func()
        except Exception as exc:
            failure = exc
        else:
            if not quiet:
                self.record(name, 'done', **subject)
            return result
        # Not in the except block, where oslo.log would add the error to the
        # warning in its own words: here it is complete and masked.
        reason = reason_of(failure, self.trigger)
        self.log.failed(finding, reason, name, failure)
        self.record(name, 'failed', detail=log_lines.masked(failure),
                    **subject)
        raise StepFailed(name, reason) from failure


def claims_on(instance: InstancePort,
              disks: Sequence[facts.Bdm]) -> facts.Claims:
    """Return the claims on some disks; what cannot be read is one."""
    try:
        return instance.claims(disks)
    except Exception as exc:
        LOG.warning('bdm-cleanup: it cannot be read what other servers of '
                    'this host have: %s', log_lines.masked(exc))
        return facts.Claims({
            disk.uuid: (facts.Claim(facts.Claimant.ANY_GUEST),)
            for disk in disks})


def check_read(claims: facts.Claims) -> None:
    """Check that all claims could be read.

    :raises Undecided: when they could not
    """
    for claim in (claim for found in claims.others.values()
                  for claim in found):
        if claim.claimant in (
                facts.Claimant.ANY_GUEST, facts.Claimant.ANY_ROW):
            raise ports.Undecided(str(claim))


def counting(cinder: Cinder, host: str, disks: Sequence[facts.Bdm],
             claims: facts.Claims) -> facts.Claims:
    """Return the claims without those of rows that Cinder denies.

    Such a row must neither cost a healthy disk nor leave a device behind.
    """
    def counts(claim: facts.Claim, disk: facts.Bdm) -> bool:
        if claim.claimant not in (facts.Claimant.ROW, facts.Claimant.OWN_ROW):
            return True
        if claim.claimant is facts.Claimant.OWN_ROW \
                and disk.has_attachment_of(claim):
            # Cinder would deny both rows, and the driver would be given both.
            return True
        try:
            return not cinder.denies(claim, host, disk.addresses)
        except (errors.ApiError, TimedOut):
            return True

    return dataclasses.replace(claims, others={
        disk.uuid: tuple(claim for claim in claims.others.get(disk.uuid, ())
                         if counts(claim, disk)) for disk in disks})


def claim_on(instance: InstancePort, cinder: Cinder, host: str,
             disk: facts.Bdm) -> facts.Claim | None:
    """Return a claim for which a disk must not be disconnected, if any.

    Asked before each disconnect, as late as possible, and also for a disk that
    Cinder shows attached.  Another mapping of the server is no obstacle: its
    guest is off, and Nova connects it again.  Servers that share a volume are
    no rivals for it, but the first one must not disconnect it from the others.

    :raises Undecided: when it cannot be known
    """
    disk = dataclasses.replace(disk, is_multiattach=False)
    claims = claims_on(instance, [disk])
    check_read(claims)
    of_others = {uuid: tuple(
        claim for claim in found
        if claim.claimant is not facts.Claimant.OWN_ROW)
        for uuid, found in claims.others.items()}
    counted = counting(cinder, host, [disk], facts.Claims(of_others))
    return next(iter(counted.others[disk.uuid]), None)


def reason_of(error: Exception, trigger: Trigger) -> Reason:
    """Return the reason code for the error of a look or a step."""
    for kind, reason in (
            (TimedOut, Reason.TIMED_OUT),
            (ports.RebootLost, trigger.lost),
            (ports.ShuttingDown, Reason.SHUTTING_DOWN),
            (errors.ServiceTokenRequired, Reason.SERVICE_TOKEN_REQUIRED),
            (errors.ApiError, Reason.CINDER_UNKNOWN)):
        if isinstance(error, kind):
            return reason
    return Reason.STEP_FAILED
