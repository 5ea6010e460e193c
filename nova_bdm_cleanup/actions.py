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
(CVE-2023-2088).  Whatever fails stops the chain of that one disk where it is:
what is left is dangling again at the next look, and that is also how a crash
at any point is finished later.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional, Set, TypeVar

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


class StepFailed(Exception):
    """A step failed, which is in the log and the journal already."""


class SharedOnHost(Exception):
    """A legacy attachment whose volume another local guest uses."""


class SiblingStopped(Exception):
    """The chain of another mapping of the volume ended early."""


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
        #: The uuids of the mappings whose disk host and Cinder have let go:
        #: connecting it again would share it with whoever gets it next.
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
            self._disconnect(finding, action.bdm)
            for attachment in action.attachments:
                self._delete(finding, attachment)
            self.released.add(action.bdm.uuid)
            self._step(finding, 'destroy',
                       functools.partial(self._host.destroy, action.bdm),
                       bdm=action.bdm.uuid, volume=action.bdm.volume_id)
        elif action is not None:
            if action.disconnect:
                self._disconnect_stale(finding, action.attachment)
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

    def _disconnect(self, finding: Finding, bdm: Bdm) -> None:
        if not bdm.has_connection_info:
            self.record('disconnect', 'skipped', bdm=bdm.uuid,
                        detail='it was never connected')
        elif self._is_shared(finding, bdm.volume_id):
            self.record('disconnect', 'skipped', bdm=bdm.uuid,
                        detail='another server on this host uses the volume')
        else:
            self._step(finding, 'disconnect',
                       functools.partial(self._host.disconnect, bdm),
                       bdm=bdm.uuid, volume=bdm.volume_id)

    def _disconnect_stale(self, finding: Finding,
                          attachment: Attachment) -> None:
        if self._is_shared(finding, attachment.volume_id):
            self.record('disconnect', 'skipped', attachment=attachment.id,
                        detail='another server on this host uses the volume')
            return
        self._step(finding, 'disconnect',
                   functools.partial(self._host.disconnect_attachment,
                                     attachment),
                   attachment=attachment.id, volume=attachment.volume_id)

    def _delete(self, finding: Finding, attachment: Attachment) -> None:
        if attachment.is_legacy:
            shared = self._is_shared(finding, attachment.volume_id)
            delete = functools.partial(self._force_detach, attachment, shared)
        else:
            delete = functools.partial(
                self._cinder.delete_attachment, attachment.id)
        self._step(finding, 'delete-attachment', delete,
                   attachment=attachment.id, volume=attachment.volume_id)

    def _force_detach(self, attachment: Attachment, shared: bool) -> bool:
        if shared:
            # The back end would take the volume from the whole host.
            raise SharedOnHost(
                'another server on this host uses the volume; detach the '
                'legacy attachment %s by hand' % attachment.id)
        return self._cinder.force_detach(attachment, self._host.connector())

    def _is_shared(self, finding: Finding, volume_id: Optional[str]) -> bool:
        """Asked anew before each disconnect, as late as can be."""
        return self._step(
            finding, 'neighbours',
            functools.partial(self._host.used_by_others, volume_id or ''),
            quiet=True)

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
