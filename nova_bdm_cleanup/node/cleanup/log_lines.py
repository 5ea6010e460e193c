# SPDX-License-Identifier: Apache-2.0
"""The log lines: one per finding and per action, in a form for grep.

Every line reads ``bdm-cleanup: event=... reason=... volume=... attachment=...
device=... request_id=...: plain words``.  INFO says what was done or is under
way, WARNING what was withheld or needs a person, ERROR a dangling root disk,
CRITICAL, once, that the credentials do not see every project.
No line carries connection information.

Nothing is logged in an ``except`` block: to a WARNING there, oslo.log adds the
error in its own words, which are not masked.
"""

from __future__ import annotations

from collections.abc import Collection
import dataclasses
import itertools
import logging as levels
import re
from typing import Any

from oslo_log import log as logging
from oslo_utils import strutils

from nova_bdm_cleanup import terminal
from nova_bdm_cleanup.node.cleanup.triggers import Mode, Trigger
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules import disks, facts
from nova_bdm_cleanup.rules.reasons import Reason

#: Operators' log filters use this name, which stays if the module is moved.
LOG = logging.getLogger('nova_bdm_cleanup.audit')

#: Ceph's connection information contains the key of the client.
_CEPH_KEY = re.compile(r'\bAQ[A-Za-z0-9+/]{30,}={0,2}')

#: A traceback up to the line that names the error.
_TRACEBACK = re.compile(r'^([ \t]*)Traceback \(most recent call last\):\n'
                        r'(?:\1 .*\n)*', re.MULTILINE)

#: Counts the errors that say that the credentials do not see every project.
_hidden = itertools.count()


class Counters:
    """The base class of the counters for Prometheus; it counts nothing.

    Counters that count are used only if ``metrics_file`` is set.
    """

    def count_removal(self, reason: str, trigger: str) -> None:
        """Count a mapping or an attachment that was removed."""

    def count_reconnect(self, reason: str, trigger: str) -> None:
        """Count a disk that was reconnected."""

    def count_adoption(self, reason: str, trigger: str) -> None:
        """Count a mapping that has taken over an attachment."""

    def count_interrupted(self, task_state: str) -> None:
        """Count a server whose operation does not go on."""

    def count_refusals(self, reason: str, trigger: str,
                       number: int = 1) -> None:
        """Count what was withheld, was skipped, or failed."""

    def add_cinder_seconds(self, trigger: str, seconds: float) -> None:
        """Add the time in which a cleanup, or a look of an audit round, asked
        Cinder.
        """


@dataclasses.dataclass
class LogLines:
    """The log lines about one server in one request."""

    #: What oslo.log takes as ``instance``.
    instance: Any
    #: The request that caused the cleanup.
    request_id: str | None
    #: The operation that the request is for.
    trigger: Trigger
    #: The counters of the log lines.
    counters: Counters = dataclasses.field(default_factory=Counters)

    def plan(self, plan: facts.Plan,
             begun: Collection[facts.Finding] = ()) -> None:
        """Log every finding that was not acted on; healthy disks at DEBUG.

        Of many attachments only the first are listed one by one.

        :param begun: those whose change has begun
        """
        plan = facts.Plan(tuple(f for f in plan.findings if f not in begun))
        for finding in plan.findings:
            if finding.withheld is not None:
                self._count(finding.withheld)
        for finding in plan.summed_up().findings:
            why = finding.withheld
            if why is not None:
                self._line(
                    why.level, 'withheld', finding.reason,
                    '%s; not acted on (%s): %s' % (
                        finding.explanation, why,
                        finding.obstacle or why.words),
                    finding)
            elif not finding.is_due:
                self._line(finding.reason.level, 'kept', finding.reason,
                           finding.explanation, finding)

    def waiting(self, finding: facts.Finding, seconds: float) -> None:
        """Log that a cleanup waits, and for what."""
        self._line(levels.INFO, 'waiting', finding.reason,
                   '%s; the cleanup looks again in %.1f s: a record of this '
                   'disk is younger than [bdm_cleanup] settle_time, so reads '
                   'of the databases may not show it yet' % (
                       finding.explanation, seconds), finding)

    def unsaved(self, error: object) -> None:
        """Log that Nova does not have the reboot as pending."""
        self._line(levels.INFO, 'unsaved', None,
                   'if nova-compute dies while the cleanup waits, the reboot '
                   'is not resumed: %s' % masked(error))

    def interrupted(self, task_state: str) -> None:
        """Log that an operation of the server does not go on."""
        self.counters.count_interrupted(task_state)
        self._line(levels.WARNING, 'interrupted', None,
                   'nova-compute ended in an operation of the server (%s), '
                   'which does not go on, and Nova refuses others: reset it '
                   '(openstack server set --state error), and then reboot it '
                   'hard' % task_state)

    def unplaced(self, error: object) -> None:
        """Log that it is not known whether the guest is on this host."""
        self._line(levels.INFO, 'unplaced', None,
                   'it cannot be read whether the guest is on this host: %s'
                   % masked(error))

    def removing(self, finding: facts.Finding) -> None:
        """Log that an action begins: what is removed, and why."""
        if finding.bdm is not None and not finding.disconnect:
            text = ("Removing block device mapping %s of volume '%s' from "
                    "Nova, and nothing else: %s" % (
                        finding.bdm.uuid, finding.volume_id,
                        finding.explanation))
        elif finding.bdm is not None:
            # The words of Nova's own cleanup, for which operators have
            # searched their logs since 2023.2.
            text = ("Removing stale volume attachment %s from instance for "
                    "volume '%s': %s" % (
                        "'%s'" % finding.attachment_id
                        if finding.attachment_id else '(none recorded)',
                        finding.volume_id, finding.explanation))
        else:
            text = ("Removing stale volume attachment '%s' of volume '%s' "
                    "from Cinder: %s" % (finding.attachment_id,
                                         finding.volume_id,
                                         finding.explanation))
        self._line(levels.INFO, 'removing', finding.reason, text, finding)

    def removed(self, finding: facts.Finding, entry: str) -> None:
        """Log that an action is complete, and how to undo it."""
        if finding.bdm is None:
            text = 'the attachment is gone from Cinder'
        elif not finding.disconnect:
            text = ('the block device mapping is gone; the server has the '
                    'disk through another one, so there is nothing to undo')
        elif finding.reason is Reason.ATTACHED_ELSEWHERE:
            text = ('the block device mapping is gone; the volume is attached '
                    'to another server, so there is nothing to undo')
        else:
            text = ('the block device mapping is gone; to undo: '
                    'nova-bdm-cleanup journal undo %s' % entry)
        self.counters.count_removal(finding.reason, self.trigger.name)
        self._line(levels.INFO, 'removed', finding.reason, text, finding)

    def reconnecting(self, finding: facts.Finding) -> None:
        """Log that a reconnect begins, and why."""
        self._line(levels.INFO, 'reconnecting', finding.reason, (
            "Ending a swap of volume '%s': %s"
            if finding.reason is Reason.SWAP_INTERRUPTED else
            "Connecting volume '%s' to this host by one attachment: %s")
            % (finding.volume_id, finding.explanation), finding)

    def reconnected(self, finding: facts.Finding, attachment: str) -> None:
        """Log that a reconnect is complete."""
        self.counters.count_reconnect(finding.reason, self.trigger.name)
        text = ('attachment %s connects the disk to this host, and the guest '
                'comes back with it')
        if self.trigger.mode is Mode.ARRIVE:
            text = ('the mapping names attachment %s, the only one, and Nova '
                    'connects the disk to this host')
        self._line(levels.INFO, 'reconnected', finding.reason,
                   text % attachment, finding)

    def adopted(self, finding: facts.Finding, attachment: str) -> None:
        """Log that a mapping has taken over an attachment."""
        self.counters.count_adoption(finding.reason, self.trigger.name)
        self._line(levels.INFO, 'adopted', finding.reason,
                   'the mapping now names attachment %s, by which the guest '
                   'has the disk: %s' % (attachment, finding.explanation),
                   finding)

    def opened_elsewhere(self, finding: facts.Finding,
                         claim: facts.Claim) -> None:
        """Log that another server claims the address that Cinder has given."""
        self._line(levels.ERROR if claim.claimant is facts.Claimant.GUEST
                   else levels.WARNING, 'opened-elsewhere', finding.reason,
                   'Cinder has connected the disk to this host, but: %s'
                   % claim, finding)

    def not_connected(self, finding: facts.Finding) -> None:
        """Log a kept mapping whose disk is not connected."""
        self._line(levels.ERROR if finding.is_root or finding.bdm
                   and finding.bdm.is_root else levels.WARNING,
                   'not-connected', finding.reason,
                   '%s; the mapping still exists, and %s' % (
                       finding.explanation, disks.effect_of(finding)),
                   finding)

    def failed(self, finding: facts.Finding | None, reason: Reason,
               step: str, error: object) -> None:
        """Log that a step failed; the next cleanup tries again."""
        self._count(reason)
        self._line(_level_of(error), 'failed', reason,
                   '%s: %s; left as it is, %s'
                   % (step, masked(error), self.trigger.next_try), finding)

    def skipped(self, reason: Reason, error: object, then: str = '') -> None:
        """Log that nothing could be decided, so nothing changes.

        :param then: what follows, if it is not that Nova goes on
        """
        self._count(reason)
        self._line(_level_of(error), 'skipped', reason,
                   '%s; nothing is changed, %s'
                   % (masked(error), then or self.trigger.goes_on))

    def not_cleaned(self, reason: Reason, why: str, number: int) -> None:
        """Log how many servers of a host come back without a cleanup."""
        self._count(reason, number)
        self._line(levels.WARNING, 'not-cleaned', reason,
                   '%s; %d more servers of this host were brought back '
                   'without a cleanup' % (why, number))

    def unread(self, read: int) -> None:
        """Log that Cinder has more attachments than a cleanup can wait for."""
        self._line(levels.WARNING, 'unread', Reason.OVER_LIMIT,
                   'Cinder has more attachments of the server than a cleanup '
                   'can wait for; all but the first %d are left as they are'
                   % read)

    def still_connected(self, finding: facts.Finding, why: str) -> None:
        """Log that a disk is not disconnected from this host."""
        self._line(levels.INFO, 'still-connected', finding.reason,
                   '%s; nothing is disconnected from this host' % why,
                   finding)

    def disconnected(self, finding: facts.Finding) -> None:
        """Log that a former host has disconnected a disk."""
        self._line(levels.INFO, 'disconnected', finding.reason,
                   '%s; the disk is now disconnected from this host'
                   % finding.explanation, finding)

    def untidy(self, finding: facts.Finding, error: object) -> None:
        """Log that something of a removed mapping is left."""
        self._line(levels.WARNING, 'untidy', finding.reason,
                   'the mapping is gone, but its encryption secret or device '
                   'tag could not be removed: %s' % masked(error),
                   finding)

    def unrecorded(self, error: object) -> None:
        """Log that the outcome of a step is not in the journal."""
        self._line(levels.WARNING, 'unrecorded', Reason.JOURNAL_UNWRITABLE,
                   masked(error))

    def unreported(self, finding: facts.Finding | None,
                   error: object) -> None:
        """Log that an instance action event is missing."""
        self._line(levels.INFO, 'unreported',
                   finding.reason if finding else None,
                   'the instance action event could not be written: %s'
                   % masked(error), finding)

    def finished(self, completed: int, left: int, seconds: float,
                 entry: str) -> None:
        """Log the totals, once per cleanup that had actions.

        :param entry: of the journal; empty: nothing was changed
        """
        self._line(levels.INFO, 'finished', None,
                   '%d of %d actions complete in %.1f s%s' % (
                       completed, completed + left, seconds,
                       entry and '; journal entry ' + entry))

    def found(self, finding: facts.Finding) -> None:
        """Log a finding of the periodic audit that two rounds have seen."""
        self._line(finding.reason.level, 'found', finding.reason,
                   finding.explanation, finding)

    def gone(self, finding: facts.Finding) -> None:
        """Log that a finding of the periodic audit is no longer there."""
        self._line(levels.INFO, 'gone', finding.reason, finding.explanation,
                   finding)

    def audited(self, summary: str) -> None:
        """Log the summary of an audit round."""
        self._line(levels.INFO, 'audited', None, summary)

    def not_audited(self, reason: Reason, error: object, then: str,
                    is_new: bool) -> None:
        """Log that an audit round failed.

        :param then: when the next round comes
        :param is_new: the round before did not fail
        """
        self._count(reason)
        self._line(_level_of(error, levels.WARNING if is_new
                             else levels.DEBUG),
                   'not-audited', reason, '%s; %s' % (masked(error), then))

    def _count(self, reason: Reason, number: int = 1) -> None:
        self.counters.count_refusals(reason, self.trigger.name, number)

    def _line(self, level: int, event: str, reason: Reason | None,
              text: str, finding: facts.Finding | None = None) -> None:
        LOG.log(
            level,
            'bdm-cleanup: event=%(event)s reason=%(reason)s '
            'volume=%(volume)s attachment=%(attachment)s device=%(device)s '
            'request_id=%(request_id)s: %(text)s',
            {'event': event,
             'reason': reason or '-',
             'volume': (finding and finding.volume_id) or '-',
             'attachment': (finding and finding.attachment_id) or '-',
             'device': (finding and finding.device) or '-',
             'request_id': self.request_id or '-',
             'text': terminal.printable(text)},
            instance=self.instance)


def _level_of(error: object, otherwise: int = levels.WARNING) -> int:
    """Return the level of a line about an error.

    Without credentials that see every project the plugin does nothing at all,
    as if it were off: that is critical, once in this nova-compute.
    """
    return (levels.CRITICAL if isinstance(error, errors.ProjectHidden)
            and not next(_hidden) else otherwise)


def masked(error: object) -> str:
    """Return an error as one line of text, without secrets that a back end
    may put there, without the tracebacks that os-brick adds, and without
    control characters.
    """
    text: str = strutils.mask_password(str(error) or type(error).__name__)
    text = _TRACEBACK.sub('', text)
    return terminal.printable(' '.join(_CEPH_KEY.sub('***', text).split()))


def with_traceback(error: Exception) -> Exception:
    """Return an error to log with its traceback, but masked.

    Its causes are left out: they have not been masked.
    """
    return RuntimeError('%s: %s' % (
        type(error).__name__, masked(error))).with_traceback(
            error.__traceback__)
