# SPDX-License-Identifier: Apache-2.0
"""The actions of a plan, in the only safe order.

A removal: power the guest off, disconnect the host, delete Nova's row, tell
Cinder.  Once Cinder is told, it may give the volume to another server, so
neither this host nor Nova's database may still know the disk: if any process
dies at any moment, nothing connects the disk again (CVE-2023-2088).

A failed step ends the actions on that disk.  Until Nova's row is deleted, the
next look finds a dangling disk; after that, it finds a stale attachment in
Cinder.  The same way completes a cleanup that a crash has interrupted.

An adoption leaves guest and host as they are: the mapping takes over the
attachment by which the guest has the disk, and then the others are deleted.
It is the only one that copies what Cinder has stored, so
:data:`~nova_bdm_cleanup.rules.mappings.PARTIES` must agree.

A reconnect follows all removals: disconnect the host, name a new attachment in
Nova's row, delete the others, have Cinder connect the new one to this host,
take its answer into the row, complete it.  The volume is never without an
attachment of the server, so no other server can get it.  What the row had
before is never copied: the back end may have given its address away.

Where the server comes to this host, Nova itself connects each disk by what its
row names; the actions only see to it that this is the only attachment.

The end of a half done swap is a reconnect, too: to the new volume, whose
attachment exists already, before the old one is deleted; or what the swap has
left is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from nova_bdm_cleanup.rules import facts, spelling
from nova_bdm_cleanup.rules.action_events import Kind
from nova_bdm_cleanup.rules.reasons import Reason

LOG = logging.getLogger(__name__)

T = TypeVar('T')

#: The journal's reason why nothing had to be disconnected.
NOT_HERE = 'nothing of it is on this host'
#: The address is another host's.
NEVER_HERE = 'it is not connected on this host'

#: The states of a volume in which Cinder changes its attachments rightly.  In
#: others it overwrites what it is doing with the volume.
_CHANGEABLE = ('available', 'in-use', 'reserved', 'attaching')

#: Why the driver must not be given the disk of a reconnect that has not ended.
_NOT_ENDED = ('its reconnect has not ended, so the back end may have given '
              'its address to another disk')


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
    server: facts.Server
    #: Returns whether the guest was certainly on this host, and on no other
    #: one, with the disk of a mapping.
    had_disk: Callable[[facts.Bdm], bool]
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
        #: The mappings whose connection Cinder was asked to change.
        self._asked: set[str] = set()
        #: The attachments that Cinder was asked to delete, and may have.
        self._may_be_gone: set[str] = set()
        #: The number of completed actions.
        self.completed = 0
        #: The counts for the hourly limits: rather one too many.
        self.removals = 0
        self.deletions = 0
        #: The number of reconnects and adoptions that have begun.
        self.reconnects = 0

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

    def release(self) -> None:
        """Give the server back to Nova.

        If that fails twice, the next start of nova-compute does it.
        """
        with contextlib.suppress(Exception):
            self.instance.release()
            return
        with contextlib.suppress(StepFailed):
            self._step(None, 'release', self.instance.release, quiet=True)

    def stop(self, finding: facts.Finding) -> None:
        """Begin no other action on the volume of a finding."""
        self._stopped.add(finding.volume_id)

    def carry_out(self, finding: facts.Finding) -> facts.Finding:
        """Carry out the change of one finding, up to the first failure.

        :returns: the finding, withheld if its change was not completed
        """
        try:
            self._step(finding, 'begin',
                       lambda: self._may_begin(finding.volume_id), quiet=True)
            if finding.is_reconnect:
                self.log.reconnecting(finding)
            elif not finding.is_adoption:
                self.log.removing(finding)
            finding = self._change(finding)
        except StepFailed as exc:
            self.stop(finding)
            finding = finding.withhold(exc.reason)
            if finding.bdm is not None and finding.bdm.addresses and (
                    finding.bdm.uuid in self._asked):
                finding = dataclasses.replace(finding, address=_NOT_ENDED)
            return finding
        self.completed += 1
        return finding

    def _change(self, finding: facts.Finding) -> facts.Finding:
        bdm, attachment = finding.bdm, finding.attachment
        if bdm is not None and finding.swapped_to is not None:
            return self._complete_swap(finding, bdm, finding.swapped_to)
        if bdm is not None and finding.rolls_back:
            return self._roll_back(finding, bdm)
        with self._locked(finding, finding.volume_id,
                          guards=self._disconnects(finding)):
            if attachment is not None:
                self._release(finding, attachment)
            elif bdm is None:
                pass
            elif finding.is_reconnect and self.trigger.mode is Mode.ARRIVE:
                return self._leave_to_nova(finding, bdm)
            elif finding.is_reconnect:
                return self._reconnect(finding, bdm)
            elif finding.is_adoption and finding.first is not None:
                return self._adopt(finding, bdm, finding.first)
            elif finding.disconnect:
                self._remove(finding, bdm)
            elif finding.is_removal:
                self._drop(finding, bdm)
        return finding

    @contextlib.contextmanager
    def _locked(self, finding: facts.Finding, volume_id: str | None,
                guards: bool = True) -> Iterator[None]:
        """Hold the locks of a volume.

        :param guards: it is disconnected
        """
        with contextlib.ExitStack() as held:
            self._step(finding, 'volume-lock', lambda: held.enter_context(
                self.instance.volume_lock(volume_id or '')), quiet=True)
            if guards:
                self._step(finding, 'guard', lambda: held.enter_context(
                    self.instance.guard(volume_id or '')), quiet=True)
            yield

    def _disconnects(self, finding: facts.Finding) -> bool:
        return finding.disconnect and self.trigger.mode is not Mode.ARRIVE

    def _may_begin(self, volume_id: str | None) -> None:
        self.deadline.check('the cleanup of this disk')
        if self.instance.is_shutting_down():
            raise ports.ShuttingDown(
                'the cleanup of this disk was not begun: nova-compute stops')
        if volume_id in self._stopped:
            raise NotBegun('an earlier action on the same volume has failed')

    def record(self, name: str, outcome: str, **subject: Any) -> None:
        """Write a step to the journal."""
        self._write(lambda: self.entry.step(name, outcome, **subject))

    def finish(self, seconds: float) -> None:
        """Close the entry in the journal, and log the totals.

        :param seconds: how long all actions took
        """
        left = self.planned - self.completed
        outcome = ('done' if not left else 'partly' if self.completed
                   or self.removals or self.deletions or self.reconnects
                   else NOTHING)
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
            return
        except Exception as exc:
            failure = exc
        if self._recording:
            self.log.unrecorded(failure)
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
        if self._disconnects(finding):
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

    def _reconnect(self, finding: facts.Finding,
                   bdm: facts.Bdm) -> facts.Finding:
        """Give a disk one attachment to this host.

        :returns: the finding about the disk as it is now
        """
        volume = self._changeable(finding)
        self._disconnect(finding, bdm, bdm=bdm.uuid)
        self.reconnects += 1
        early = finding.replaced_early
        for attachment in early:
            self._replace(finding, bdm, attachment)
        late = [a for a in finding.dependent if a not in early]
        first = finding.first
        if first is not None and not first.only_reserves:
            named = self._completed(finding, bdm, first)
            if named is not None:
                # Its address is no newer than the verdict on it.
                return self._ended(finding, named, finding.address)
            late, first = [first], None
        new = self._reserved(finding, first)
        try:
            named = self._named(finding, bdm, new)
            for attachment in late:
                self._replace(finding, bdm, attachment)
            try:
                connected = self._connected(finding, named)
            except StepFailed as exc:
                if not isinstance(exc.__cause__, ports.AttachmentGone):
                    raise
                # A member of the project has deleted it.
                new = self._reserved(finding, None)
                named = self._named(finding, bdm, new)
                connected = self._connected(finding, named)
            self._complete(finding, connected.attachment_id or '')
        except StepFailed:
            # The servers that share the volume can neither attach nor detach
            # it meanwhile.  But without any attachment of this server its
            # mapping would dangle, unless it is gone itself.
            is_shared = volume.multiattach or bdm.is_multiattach
            if self._is_gone(bdm) or is_shared and any(
                    a.id not in self._may_be_gone for a in late):
                self._give_back(finding, new)
            raise
        if connected.addresses:
            # Nothing of the disk is here, and what else has its address must
            # not be connected in its place.
            self._disconnect(finding, connected, is_given=True, bdm=bdm.uuid)
        return self._ended(finding, connected, address='')

    def _leave_to_nova(self, finding: facts.Finding,
                       bdm: facts.Bdm) -> facts.Finding:
        """Give a disk one attachment, by which Nova connects it to this host.

        Nothing of it is here yet.  What connects another host is left to Nova,
        too.

        :returns: the finding about the disk as it is now
        """
        self.reconnects += 1
        first = finding.first
        connected = first if first and not first.only_reserves else None
        only = connected.id if connected else self._reserved(finding, first)
        try:
            named = self._named(finding, bdm, only)
            for attachment in finding.dependent:
                self._replace(finding, bdm, attachment)
            if connected and connected.status != 'attached':
                # Before that, Cinder makes no other one for Nova.
                self._complete(finding, only)
        except StepFailed:
            if not connected and self._is_gone(bdm):
                self._give_back(finding, only)
            raise
        return self._ended(finding, named, address='')

    def _adopt(self, finding: facts.Finding, bdm: facts.Bdm,
               serving: facts.Attachment) -> facts.Finding:
        """Have a mapping take over the attachment that serves the guest.

        :returns: the finding about the disk as it is now
        """
        # An administrator may reset the task state.
        self._step(finding, 'claim', self.instance.claim, quiet=True)
        volume = self._changeable(finding)
        self.reconnects += 1
        bdm = self._step(
            finding, 'adopt-attachment', lambda: self.instance.take_over(
                bdm, serving, volume.multiattach),
            bdm=bdm.uuid, attachment=serving.id, volume=bdm.volume_id)
        self.log.adopted(finding, serving.id)
        self._report(Kind.ADOPTED, finding)
        for attachment in finding.dependent:
            self._changeable(finding)
            self._delete(finding, attachment)
        return dataclasses.replace(finding, bdm=bdm)

    def _complete_swap(self, finding: facts.Finding, bdm: facts.Bdm,
                       new: facts.Attachment) -> facts.Finding:
        """Give a mapping the volume that its guest has since a swap.

        :returns: the finding about the disk as it is now
        """
        with self._locked(finding, bdm.volume_id):
            volume = self._changeable(finding, new.volume_id)
            self._disconnect(finding, bdm, bdm=bdm.uuid)
        self.reconnects += 1
        self._asked.add(bdm.uuid)
        with self._locked(finding, new.volume_id):
            # From here on nothing connects the old one.
            connected = self._step(
                finding, 'connect-attachment',
                lambda: self.instance.connect(bdm, volume.multiattach, new),
                bdm=bdm.uuid, attachment=new.id, volume=new.volume_id)
            finding = dataclasses.replace(finding, bdm=connected)
            self._complete(finding, new.id)
            if connected.addresses:
                # The driver connects it once more.
                self._disconnect(finding, connected, is_given=True,
                                 bdm=bdm.uuid)
        for attachment in finding.dependent:
            with self._locked(finding, attachment.volume_id, guards=False):
                self._delete(finding, attachment)
        return self._ended(finding, connected, address='')

    def _roll_back(self, finding: facts.Finding,
                   bdm: facts.Bdm) -> facts.Finding:
        """Have Cinder and this host give up what the guest has not swapped.

        :returns: the finding about the disk as it is now
        """
        self.reconnects += 1
        for attachment in finding.dependent:
            connects = not attachment.only_reserves
            with self._locked(finding, attachment.volume_id, guards=connects):
                if connects:
                    self._disconnect_unnamed(finding, attachment)
                self._delete(finding, attachment)
        # Until then the next look finds the rest.
        self._step(
            finding, 'roll-detaching-back',
            lambda: self.cinder.roll_detaching_back(bdm.volume_id or ''),
            bdm=bdm.uuid, volume=bdm.volume_id)
        return self._ended(finding, bdm, finding.address)

    def _disconnect_unnamed(self, finding: facts.Finding,
                            attachment: facts.Attachment) -> None:
        """Disconnect what this host has of an attachment without a mapping.

        A member of the project can write what Cinder has stored, so Cinder is
        asked for this host.
        """
        self._changeable(finding, attachment.volume_id)
        disk = self._step(
            finding, 'connect-attachment',
            lambda: self.instance.connect_unnamed(attachment),
            attachment=attachment.id, volume=attachment.volume_id)
        self._disconnect(finding, disk, attachment=attachment.id)

    def _replace(self, finding: facts.Finding, bdm: facts.Bdm,
                 attachment: facts.Attachment) -> None:
        """Delete an attachment of a disk that gets, or has, another one."""
        self._changeable(finding)
        if not attachment.only_reserves:
            # Even if Cinder refuses, its address may be another disk's now.
            self._asked.add(bdm.uuid)
        self._may_be_gone.add(attachment.id)
        try:
            self._delete(finding, attachment)
        except StepFailed as exc:
            if isinstance(exc.__cause__, (errors.Refused, errors.Conflict)):
                self._may_be_gone.discard(attachment.id)
            raise

    def _is_gone(self, bdm: facts.Bdm) -> bool:
        try:
            return all(b.uuid != bdm.uuid for b in self.instance.bdms())
        except Exception:
            # The next look finds the attachment.
            return False

    def _completed(self, finding: facts.Finding, bdm: facts.Bdm,
                   first: facts.Attachment) -> facts.Bdm | None:
        """Complete an attachment, which shows the host that it connects.

        :returns: the mapping, if it is healthy now
        :raises StepFailed: when the attachment may serve a guest elsewhere
        """
        self._complete(finding, first.id)
        shown, volume = self._step(finding, 'look', lambda: (
            self.cinder.attachment(first.id),
            self.cinder.volume(first.volume_id)), quiet=True)
        host = volume.host_of(first.id) if volume else None
        is_here = spelling.host(host) == spelling.host(self.server.host)
        # The delete of another one may have ended its connection.
        is_whole = bdm.uuid not in self._asked
        if shown is not None and is_here and shown.connected and is_whole and (
                shown.addresses & bdm.addresses
                or not shown.addresses and not bdm.addresses):
            return self._named(finding, bdm, first.id)
        self._step(finding, 'place', lambda: self._check_place(
            bdm, first, host, is_here), quiet=True)
        return None

    def _check_place(self, bdm: facts.Bdm, attachment: facts.Attachment,
                     host: str | None, is_here: bool) -> None:
        """Check that an attachment serves no guest on another host.

        :raises Undecided: when it may
        """
        if not is_here and not self.had_disk(bdm):
            raise ports.Undecided(
                'attachment %s connects host %s, and the guest may be there'
                % (attachment.id, host))

    def _reserved(self, finding: facts.Finding,
                  first: facts.Attachment | None) -> str:
        """Return an attachment that reserves the volume; make one if there is
        none.

        :param first: there is one already
        """
        self._changeable(finding)
        new = first.id if first else self._step(
            finding, 'create-attachment',
            lambda: self.cinder.create_attachment(
                self.server.uuid, finding.volume_id or ''), quiet=True)
        self.record('create-attachment', 'skipped' if first else 'done',
                    attachment=new, volume=finding.volume_id)
        return new

    def _named(self, finding: facts.Finding, bdm: facts.Bdm,
               attachment_id: str) -> facts.Bdm:
        """Have the mapping name an attachment."""
        def name() -> facts.Bdm:
            named = self.instance.name_attachment(bdm, attachment_id)
            if named.attachment_id != attachment_id:
                raise NotBegun('the mapping names attachment %s now'
                               % named.attachment_id)
            return named

        return self._step(finding, 'name-attachment', name,
                          bdm=bdm.uuid, attachment=attachment_id)

    def _connected(self, finding: facts.Finding,
                   bdm: facts.Bdm) -> facts.Bdm:
        """Connect the attachment of a mapping to this host."""
        volume = self._changeable(finding)
        self._asked.add(bdm.uuid)
        bdm = self._step(
            finding, 'connect-attachment',
            lambda: self.instance.connect(bdm, volume.multiattach),
            bdm=bdm.uuid, attachment=bdm.attachment_id)
        self._step(finding, 'only-attachment', lambda: self._check_only(
            finding, bdm.attachment_id or ''), quiet=True)
        return bdm

    def _complete(self, finding: facts.Finding, attachment_id: str) -> None:
        self._changeable(finding)
        self._step(finding, 'complete-attachment',
                   lambda: self.cinder.complete_attachment(attachment_id),
                   attachment=attachment_id, volume=finding.volume_id)

    def _changeable(self, finding: facts.Finding,
                    volume_id: str | None = None) -> facts.Volume:
        """Read a volume whose attachments are about to be changed."""
        def read() -> facts.Volume:
            volume = self.cinder.volume(volume_id or finding.volume_id or '')
            if volume is None or volume.is_migrating or (
                    volume.status not in _CHANGEABLE):
                raise NotBegun('the volume is %s' % (
                    'gone' if volume is None else 'being migrated'
                    if volume.is_migrating else volume.state))
            return volume

        return self._step(finding, 'look', read, quiet=True)

    def _check_only(self, finding: facts.Finding, attachment_id: str) -> None:
        """Check that nothing else has attached the volume to the server.

        Two hosts that connect it at once both pass Cinder's own check.
        """
        # A list may still show what was deleted.
        known = {attachment_id, finding.first and finding.first.id,
                 *(a.id for a in finding.dependent)}
        for other in self.cinder.own_attachments(
                self.server.uuid, finding.volume_id or ''):
            if other.id not in known:
                raise NotBegun('attachment %s of the volume was made meanwhile'
                               % other.id)

    def _give_back(self, finding: facts.Finding, attachment_id: str) -> None:
        """Delete a new attachment that nothing will use."""
        try:
            self.cinder.delete_attachment(attachment_id)
            return
        except Exception as exc:
            failure = log_lines.masked(exc)
        # The next look finds it.
        self.record('delete-attachment', 'failed', detail=failure,
                    attachment=attachment_id, volume=finding.volume_id)

    def _ended(self, finding: facts.Finding, bdm: facts.Bdm,
               address: str) -> facts.Finding:
        """Return the finding about a disk that was reconnected.

        :param address: why the driver must not connect its address
        """
        self.log.reconnected(finding, bdm.attachment_id or '')
        self._report(Kind.RECONNECTED, finding)
        return dataclasses.replace(
            finding, bdm=bdm, address=address, is_out_of_date=False,
            is_connected=not address, in_cinder=facts.InCinder.ATTACHED)

    def _tidy(self, finding: facts.Finding, bdm: facts.Bdm) -> None:
        try:
            self.instance.tidy(bdm)
            return
        except Exception as exc:
            failure = exc
        # The disk is not affected; Cinder must still be told.
        self.log.untidy(finding, failure)

    def _announce(self, finding: facts.Finding) -> None:
        self.log.removed(finding, self.entry.id)
        self._report(Kind.REMOVED, finding)

    def _report(self, kind: Kind, finding: facts.Finding) -> None:
        try:
            self.instance.report(kind, finding, finding.reason)
            return
        except Exception as exc:
            failure = exc
        # Only the event is missing; the change itself is complete.
        self.log.unreported(finding, failure)

    def _disconnect(self, finding: facts.Finding, disk: facts.Bdm,
                    is_given: bool = False, **subject: Any) -> None:
        """Disconnect what this host has of a disk, or at its address.

        :param is_given: Cinder has just given this host the address
        """
        with contextlib.ExitStack() as announced:
            # From here on Cinder's answers with this address wait.
            self._step(finding, 'announce', lambda: announced.enter_context(
                self.instance.disconnecting(disk)), quiet=True)
            claim = self._step(
                finding, 'claims', lambda: claim_on(
                    self.instance, self.cinder, self.server.host, disk),
                quiet=True)
            if claim is not None and is_given:
                self.log.opened_elsewhere(finding, claim)
                self.record('disconnect', 'skipped', detail=str(claim),
                            **subject)
            elif claim is not None:
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
        failure = log_lines.masked(exc)
    LOG.warning('bdm-cleanup: it cannot be read what other servers of this '
                'host have: %s', failure)
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
