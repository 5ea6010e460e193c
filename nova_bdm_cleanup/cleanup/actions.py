# SPDX-License-Identifier: Apache-2.0
"""Carrying out what a plan asks for, in the one safe order.

Guest off, host disconnected, Nova's row gone, Cinder told.  Cinder may give a
volume to somebody else as soon as it is told, so by then neither this host nor
Nova's database may know the disk any more: whoever dies at whatever moment,
nothing connects it again (CVE-2023-2088).

Whatever fails stops the chain of that one disk where it is.  Before Nova's row
is gone, the disk is dangling at the next look; after that, what is left in
Cinder is a stale attachment then.  That is also how a crash at any point is
finished later.
"""

from __future__ import annotations

from collections.abc import Mapping
import contextlib
import functools
from typing import Any, Callable, TypeVar

from nova_bdm_cleanup.cleanup import loglines
from nova_bdm_cleanup.cleanup.ports import (
    Claim,
    HostPort,
    RebootLost,
    Undecided,
)
from nova_bdm_cleanup.cleanup.triggers import Trigger
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.cinder import Cinder
from nova_bdm_cleanup.openstack.deadline import Deadline, TimedOut
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Reason
from nova_bdm_cleanup.store.journal import Entry

T = TypeVar('T')

#: Why nothing had to be disconnected, in the journal.
NOT_HERE = 'nothing of it is on this host'


class StepFailed(Exception):
    """A step failed, which is in the log and the journal already."""


class NotBegun(Exception):
    """What comes before a step does not allow it."""


class Actions:
    """The actions of one plan.

    :param entry: the plan's entry in the journal
    :param audit: the log
    :param deadline: no action is begun when it is over
    """

    def __init__(self, host: HostPort, cinder: Cinder,
                 entry: Entry, audit: loglines.LogLines,
                 trigger: Trigger, deadline: Deadline) -> None:
        self._host = host
        self._cinder = cinder
        self._entry = entry
        self._audit = audit
        self._trigger = trigger
        self._deadline = deadline
        self._recording = True
        # Volumes whose chain ended early: another mapping of such a volume
        # must not go on where the first one stopped.
        self._stopped: set[str | None] = set()
        #: How many actions are complete.
        self.completed = 0
        #: The mappings that are gone, by their uuid.
        self.removed: set[str] = set()
        #: What counts towards the hourly limits: rather one too many.
        self.removals = 0
        self.deletions = 0

    def power_off(self) -> None:
        """Nothing may write to a disk that is about to go.

        Where the guest was off already, both looks have asked for that.

        :raises StepFailed: and then nothing else may be done
        """
        if self._trigger.switches_off:
            self._step(None, 'prepare', self._host.prepare, quiet=True)
        self._step(None, 'claim', self._host.claim, quiet=True)
        if self._trigger.switches_off:
            self._step(None, 'power-off', self._host.power_off)

    def leave(self, finding: facts.Finding) -> None:
        """Something of a finding's volume stays, so it is not let go of."""
        self._stopped.add(finding.volume_id)

    def carry_out(self, finding: facts.Finding) -> None:
        """Do what one finding asks for.

        :raises StepFailed: the chain of this disk ended early
        """
        action = finding.action
        try:
            self._step(finding, 'begin', functools.partial(
                self._may_begin, finding.volume_id), quiet=True)
            self._audit.removing(finding)
            with contextlib.ExitStack() as guards:
                if isinstance(action, facts.DeleteAttachment):
                    self._release(finding, action, guards)
                elif action is not None and action.disconnect:
                    self._guard(finding, guards)
                    self._remove(finding, action)
                elif action is not None:
                    self._drop(finding, action.bdm)
        except StepFailed:
            self.leave(finding)
            raise
        self.completed += 1

    def _may_begin(self, volume_id: str | None) -> None:
        self._deadline.check('the cleanup of this disk')
        if self._trigger.gives_way:
            self._host.claim()
        if volume_id in self._stopped:
            raise NotBegun('another mapping of the same volume could not be '
                           'removed')

    def record(self, name: str, outcome: str, **subject: Any) -> None:
        """Write a step to the journal."""
        self._write(functools.partial(
            self._entry.step, name, outcome, **subject))

    def finish(self, outcome: str, spent: Mapping[str, int]) -> None:
        """Close the entry in the journal."""
        self._write(functools.partial(self._entry.finish, outcome, spent))

    def _write(self, write: Callable[[], None]) -> None:
        """The plan, which holds all that undoing needs, is in the journal
        already: a failure now must not leave a disk half way.
        """
        try:
            write()
        except Exception as exc:
            if self._recording:
                self._audit.unrecorded(exc)
            self._recording = False

    def _guard(self, finding: facts.Finding,
               guards: contextlib.ExitStack) -> None:
        self._step(
            finding, 'guard',
            lambda: guards.enter_context(
                self._host.guard(finding.volume_id or '')), quiet=True)

    def _remove(self, finding: facts.Finding, action: facts.RemoveBdm) -> None:
        """Remove a mapping, and then what is left of it in Cinder."""
        bdm = action.bdm
        if self._trigger.gives_way:
            # What no definition names any more nothing misses: whoever comes
            # next finds the disk whole, or its row only.
            self._step(finding, 'undefine',
                       functools.partial(self._host.undefine, bdm),
                       bdm=bdm.uuid, volume=bdm.volume_id)
            # libvirt may have hung, longer than a start waits.
            self._step(finding, 'claim', self._host.claim, quiet=True)
        if bdm.has_connection_info and not self._trigger.is_hostless:
            self._disconnect(finding, bdm, bdm=bdm.uuid)
        else:
            # The address of a server on no host is one of its last host.
            self.record('disconnect', 'skipped', bdm=bdm.uuid,
                        detail='it is not connected')
        if self._trigger.gives_way:
            # Disconnecting may have taken a while.
            self._step(finding, 'claim', self._host.claim, quiet=True)
        self._destroy(finding, bdm)
        self._tidy(finding, bdm)
        self._tell(finding)
        for attachment in action.attachments:
            self._delete(finding, attachment)

    def _drop(self, finding: facts.Finding, bdm: facts.Bdm) -> None:
        """Remove a mapping of a disk that the server keeps by another."""
        self.record('disconnect', 'skipped', bdm=bdm.uuid,
                    detail='another mapping has the disk')
        self._destroy(finding, bdm)
        self._tell(finding)

    def _destroy(self, finding: facts.Finding, bdm: facts.Bdm) -> None:
        # Also should it fail: perhaps only its answer is lost.
        self.removals += 1
        self._step(finding, 'destroy',
                   functools.partial(self._host.destroy, bdm),
                   bdm=bdm.uuid, volume=bdm.volume_id)
        self.removed.add(bdm.uuid)

    def _release(self, finding: facts.Finding, action: facts.DeleteAttachment,
                 guards: contextlib.ExitStack) -> None:
        """Delete an attachment that has no mapping any more."""
        attachment = action.attachment
        if action.disconnect:
            self._guard(finding, guards)
            # Cinder's connection information is not enough to disconnect by:
            # whoever may make attachments can have it name any device.
            former = self._step(finding, 'former-mapping', functools.partial(
                self._host.former, attachment), quiet=True)
            if former is None:
                self._skip(finding, 'Nova has no mapping, not even a deleted '
                           'one, that tells what was connected through it',
                           attachment=attachment.id)
            else:
                self._disconnect(finding, former, attachment=attachment.id)
                self._tidy(finding, former)
        self.deletions += 1
        self._delete(finding, attachment)
        self._tell(finding)

    def _tidy(self, finding: facts.Finding, bdm: facts.Bdm) -> None:
        try:
            self._host.tidy(bdm)
        except Exception as exc:
            # Nothing is wrong with the disk; Cinder must be told all the same.
            self._audit.untidy(finding, exc)

    def _tell(self, finding: facts.Finding) -> None:
        self._audit.removed(finding, self._entry.id)
        try:
            self._host.report(finding)
        except Exception as exc:
            # An event more or less; the removal itself is complete.
            self._audit.unreported(finding, exc)

    def _disconnect(self, finding: facts.Finding, disk: facts.Bdm,
                    **subject: Any) -> None:
        obstacle = self._step(finding, 'neighbours', functools.partial(
            obstacle_to_disconnect, self._host, self._cinder, disk),
            quiet=True)
        if obstacle:
            self._skip(finding, obstacle, **subject)
        elif self._step(finding, 'disconnect',
                        functools.partial(self._host.disconnect, disk),
                        quiet=True, volume=disk.volume_id, **subject):
            self.record('disconnect', 'done', volume=disk.volume_id, **subject)
        else:
            # After a boot of the host, or where it was disconnected already.
            self.record('disconnect', 'skipped', volume=disk.volume_id,
                        detail=NOT_HERE, **subject)

    def _skip(self, finding: facts.Finding, why: str, **subject: Any) -> None:
        self._audit.left(finding, why)
        self.record('disconnect', 'skipped', detail=why, **subject)

    def _delete(self, finding: facts.Finding,
                attachment: facts.Attachment) -> None:
        if attachment.is_legacy:
            delete = functools.partial(self._force_detach, attachment)
        else:
            delete = functools.partial(
                self._cinder.delete_attachment, attachment.id,
                complete=attachment.is_half_connected)
        self._step(finding, 'delete-attachment', delete,
                   attachment=attachment.id, volume=attachment.volume_id)

    def _force_detach(self, attachment: facts.Attachment) -> bool:
        if self._host.used_by_others(attachment.volume_id):
            # The back end would take the volume from the whole host.
            raise NotBegun(
                'another server on this host uses the volume; detach the '
                'legacy attachment %s by hand' % attachment.id)
        try:
            connector = self._host.connector()
        except Exception as exc:
            raise NotBegun('no connector of this host: %s' % exc) from exc
        return self._cinder.force_detach(attachment, connector)

    def _step(self, finding: facts.Finding | None, name: str,
              func: Callable[[], T], quiet: bool = False,
              **subject: Any) -> T:
        """Do one step; record it, and audit it when it fails."""
        try:
            result = func()
        except Exception as exc:
            failure = exc
        else:
            if not quiet:
                self.record(name, 'done', **subject)
            return result
        # oslo.log adds the error that is being handled to a warning, in its
        # own words: here all has been said, and masked.
        self._audit.failed(finding, reason_of(failure, self._trigger), name,
                           failure)
        self.record(name, 'failed', detail=loglines.masked(failure), **subject)
        raise StepFailed(name) from failure


def obstacle_to_disconnect(host: HostPort, cinder: Cinder,
                           bdm: facts.Bdm) -> str:
    """Why a disk must not be disconnected from this host; empty: it may.

    Asked anew before each disconnect, as late as can be.  Only what is proved
    is an obstacle: what is undecided stops the chain, and the next look tries
    again.

    :raises Undecided: when nobody can tell
    """
    def is_attached(claim: Claim) -> bool:
        attached = cinder.attaches(*claim)
        if attached is None:
            raise Undecided(
                'Cinder does not tell whether volume %s, which has the same '
                'address, is attached to server %s'
                % (claim.volume_id, claim.server))
        return attached

    if host.used_by_others(bdm.volume_id or ''):
        return 'another server on this host uses the volume'
    if host.is_reused(bdm, is_attached):
        return ('another volume has its address on this host by now, so '
                'nothing of it can be left here')
    return ''


def reason_of(error: Exception, trigger: Trigger) -> Reason:
    """The reason code of what a look or a step raised."""
    for kind, reason in (
            (TimedOut, Reason.TIMED_OUT),
            (RebootLost, trigger.lost),
            (errors.ProjectHidden, Reason.CANNOT_SEE_PROJECT),
            (errors.ServiceTokenRequired, Reason.SERVICE_TOKEN_REQUIRED),
            (errors.ApiError, Reason.CINDER_UNKNOWN)):
        if isinstance(error, kind):
            return reason
    return Reason.STEP_FAILED
