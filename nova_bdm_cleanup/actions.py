# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""Carrying out what a plan asks for, in the one safe order.

Guest off, host disconnected, Cinder told, Nova's row gone.  In any other order
one tenant's data can come to be read through another's device
(CVE-2023-2088).  Hence also the step between the second and the third: once
Cinder may have let go of a disk, Nova must not connect it again, neither in
this reboot nor in one after a crash.

Whatever fails stops the chain of that one disk where it is: what is left is
dangling again at the next look, and that is also how a crash at any point is
finished later.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional, Set, TypeVar, Union

from nova_bdm_cleanup import audit as audits
from nova_bdm_cleanup import cinder as cinders
from nova_bdm_cleanup import deadline as deadlines
from nova_bdm_cleanup import journal as journals
from nova_bdm_cleanup.model import Attachment
from nova_bdm_cleanup.model import Bdm
from nova_bdm_cleanup.model import Finding
from nova_bdm_cleanup.model import Reason
from nova_bdm_cleanup.model import RemoveBdm
from nova_bdm_cleanup import ports

T = TypeVar('T')

Disk = Union[Bdm, Attachment]


class StepFailed(Exception):
    """A step failed, which is in the log and the journal already."""


class NotAsked(Exception):
    """Cinder could not even be told what to do."""


class SiblingStopped(Exception):
    """The chain of another mapping of the volume ended early."""


#: With these Cinder did certainly nothing.  After any other failure it may
#: have done what it was told, or may yet do it.
_REFUSALS = (cinders.ServiceTokenRequired, cinders.Refused,
             deadlines.NotBegun, NotAsked)


class Actions:
    """The actions of one plan.

    :param host: Nova and the hypervisor
    :param cinder: Cinder
    :param entry: the plan's entry in the journal
    :param audit: the log
    :param deadline: no action is begun when it is over
    """

    def __init__(self, host: ports.Host, cinder: ports.Cinder,
                 entry: journals.Entry, audit: audits.Audit,
                 deadline: deadlines.Deadline) -> None:
        self._host = host
        self._cinder = cinder
        self._entry = entry
        self._audit = audit
        self._deadline = deadline
        self._recording = True
        # Volumes whose chain ended early: another mapping of such a volume
        # must not go on where the first one stopped.
        self._stopped: Set[Optional[str]] = set()
        #: The uuids of the mappings whose disk Nova must not connect again:
        #: Cinder may have let go of it, and somebody else may get it next.
        self.released: Set[str] = set()
        #: How many actions are complete.
        self.completed = 0

    def power_off(self) -> None:
        """Nothing may write to a disk that is about to go.

        :raises StepFailed: and then nothing else may be done
        """
        self._step(None, 'claim', self._host.claim, quiet=True)
        self._step(None, 'power-off', self._host.power_off)

    def carry_out(self, finding: Finding) -> None:
        """Do what one finding asks for.

        :raises StepFailed: the chain of this disk ended early
        """
        try:
            self._carry_out(finding)
        except StepFailed:
            self._stopped.add(finding.volume_id)
            raise

    def _carry_out(self, finding: Finding) -> None:
        self._step(finding, 'begin', functools.partial(
            self._may_begin, finding.volume_id), quiet=True)
        self._audit.removing(finding)
        action = finding.action
        if isinstance(action, RemoveBdm):
            self._let_go(finding, action.bdm)
            self._delete_all(finding, action)
            self._step(finding, 'destroy',
                       functools.partial(self._host.destroy, action.bdm),
                       bdm=action.bdm.uuid, volume=action.bdm.volume_id)
        elif action is not None:
            if action.disconnect:
                self._disconnect(
                    finding, action.attachment,
                    self._host.disconnect_attachment,
                    attachment=action.attachment.id)
            self._delete(finding, action.attachment)
        self.completed += 1
        self._audit.removed(finding, self._entry.id)
        try:
            self._host.report(finding)
        except Exception as exc:
            # An event more or less; the removal itself is complete.
            self._audit.unreported(finding, exc)

    def _may_begin(self, volume_id: Optional[str]) -> None:
        self._deadline.check('the cleanup of this disk')
        if volume_id in self._stopped:
            raise SiblingStopped('another mapping of the same volume could '
                                 'not be removed')

    def record(self, name: str, outcome: str, **subject: Any) -> None:
        """Write a step to the journal."""
        self._write(functools.partial(
            self._entry.step, name, outcome, **subject))

    def finish(self, outcome: str) -> None:
        """Close the entry in the journal."""
        self._write(functools.partial(self._entry.finish, outcome))

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

    def _let_go(self, finding: Finding, bdm: Bdm) -> None:
        """Have the host disconnect a disk, and Nova not connect it again."""
        if not bdm.has_connection_info:
            self.record('disconnect', 'skipped', bdm=bdm.uuid,
                        detail='it is not connected')
            self.released.add(bdm.uuid)
            return
        self._disconnect(finding, bdm, self._host.disconnect, bdm=bdm.uuid)
        # Also should the next step fail: perhaps only its answer is lost, and
        # then the next cleanup takes the disk for disconnected.
        self.released.add(bdm.uuid)
        self._step(finding, 'forget',
                   functools.partial(self._host.forget, bdm),
                   bdm=bdm.uuid, volume=bdm.volume_id)

    def _disconnect(self, finding: Finding, disk: Disk,
                    disconnect: Callable[[Any], None],
                    **subject: Any) -> None:
        obstacle = self._step(finding, 'neighbours', functools.partial(
            self._obstacle, disk), quiet=True)
        if obstacle:
            self.record('disconnect', 'skipped', detail=obstacle, **subject)
        else:
            self._step(finding, 'disconnect',
                       functools.partial(disconnect, disk),
                       volume=disk.volume_id, **subject)

    def _obstacle(self, disk: Disk) -> str:
        """Why a disk must not be disconnected from this host; empty: it may.

        Asked anew before each disconnect, as late as can be.
        """
        if self._host.used_by_others(disk.volume_id or ''):
            return ('another server on this host, or on its way to it, uses '
                    'the volume')
        if self._host.is_reused(disk):
            return ('another volume has its address on this host by now, so '
                    'nothing of it can be left here')
        return ''

    def _delete_all(self, finding: Finding, action: RemoveBdm) -> None:
        """Delete what is left in Cinder."""
        for number, attachment in enumerate(action.attachments):
            try:
                self._delete(finding, attachment)
            except StepFailed as failure:
                if not number and isinstance(failure.__cause__, _REFUSALS):
                    self._take_back(finding, action.bdm)
                raise

    def _take_back(self, finding: Finding, bdm: Bdm) -> None:
        """Cinder kept the disk: so does the guest."""
        if bdm.has_connection_info:
            self._step(finding, 'remember',
                       functools.partial(self._host.remember, bdm),
                       bdm=bdm.uuid, volume=bdm.volume_id)
            self.released.discard(bdm.uuid)

    def _delete(self, finding: Finding, attachment: Attachment) -> None:
        if attachment.is_legacy:
            delete = functools.partial(self._force_detach, attachment)
        else:
            delete = functools.partial(
                self._cinder.delete_attachment, attachment.id)
        self._step(finding, 'delete-attachment', delete,
                   attachment=attachment.id, volume=attachment.volume_id)

    def _force_detach(self, attachment: Attachment) -> bool:
        if self._host.used_by_others(attachment.volume_id):
            # The back end would take the volume from the whole host.
            raise NotAsked(
                'another server on this host, or on its way to it, uses the '
                'volume; detach the legacy attachment %s by hand'
                % attachment.id)
        try:
            connector = self._host.connector()
        except Exception as exc:
            raise NotAsked('no connector of this host: %s' % exc) from exc
        return self._cinder.force_detach(attachment, connector)

    def _step(self, finding: Optional[Finding], name: str,
              func: Callable[[], T], quiet: bool = False,
              **subject: Any) -> T:
        """Do one step; record it, and audit it when it fails."""
        try:
            result = func()
        except Exception as exc:
            self._audit.failed(finding, reason_of(exc), name, exc)
            self.record(name, 'failed', detail=audits.masked(exc), **subject)
            raise StepFailed(name) from exc
        if not quiet:
            self.record(name, 'done', **subject)
        return result


def reason_of(error: Exception) -> Reason:
    """The reason code of what a look or a step raised."""
    if isinstance(error, deadlines.TimedOut):
        return Reason.TIMED_OUT
    if isinstance(error, ports.RebootLost):
        return Reason.REBOOT_LOST
    if isinstance(error, cinders.ProjectHidden):
        return Reason.CANNOT_SEE_PROJECT
    if isinstance(error, cinders.ServiceTokenRequired):
        return Reason.SERVICE_TOKEN_REQUIRED
    if isinstance(error, cinders.CinderError):
        return Reason.CINDER_UNKNOWN
    return Reason.STEP_FAILED
