# SPDX-License-Identifier: Apache-2.0
"""The hard reboot that cleans a server, and the check of its result."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
import dataclasses
import time

from nova_bdm_cleanup.client.cloud import inspection
from nova_bdm_cleanup.client.cloud.changes import Change, Result, Status, Steps
from nova_bdm_cleanup.client.cloud.findings import (
    CloudFinding,
    findings_of,
    WITHOUT_PLUGIN,
)
from nova_bdm_cleanup.client.cloud.nova import ComputeServer
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.action_events import ActionEvent, Kind
from nova_bdm_cleanup.rules.reasons import ENDED_HALF_WAY, Reason, Remedy

#: The states in which Nova accepts a hard reboot.
_REBOOTABLE = ('ACTIVE', 'SHUTOFF', 'PAUSED', 'SUSPENDED', 'ERROR')

#: What a reboot does with a server, besides its disks.
_OF_SERVER = {Reason.INTERRUPTED: 'reset the state of the server',
              Reason.SERVER_IN_ERROR: 'start the server'}


@dataclasses.dataclass(frozen=True)
class Consent:
    """The options by which an operator allows what is otherwise refused."""

    #: Also servers that their owners have locked.
    locked_too: bool = False
    #: The state of an interrupted server is reset before.
    resets_state: bool = False
    #: Also on hosts that are known to be without the plugin.
    without_plugin: bool = False


class RebootPreview:
    """The changes that a hard reboot would make, and the objections.

    :param findings: all findings at the server
    :param has_plugin: whether its host has the plugin; None: not known
    """

    def __init__(self, seen: inspection.Inspection,
                 findings: Sequence[CloudFinding],
                 consent: Consent = Consent(),
                 has_plugin: bool | None = None) -> None:
        self.server = server = seen.server
        self.has_plugin = has_plugin
        #: The state of the server is reset before.
        self.resets_state = seen.is_interrupted
        #: The findings that it ends, by a removal or a reconnect.
        self.findings = [i for i in findings if i.is_for_reboot]
        #: The findings that it leaves to another remedy.
        self.others = [i for i in findings if not i.is_for_reboot and (
            i.remedy is Remedy.RELEASE or i.reason in ENDED_HALF_WAY
            or i.is_attachment_over_limit)]
        #: The disks that it does not connect, with their mappings kept.
        self.not_connected = seen.not_connected
        #: The verdict on each volume and attachment.  Where two share a key,
        #: the one that is not healthy counts.
        self._verdicts = {
            (f.volume_id, f.attachment_id): f.reason for f in sorted(
                seen.plan.findings,
                key=lambda f: f.reason is not Reason.HEALTHY)}
        #: Why it must not be done; empty: it may.
        self.refusals: list[str] = []
        if seen.is_interrupted and not consent.resets_state:
            self.refusals.append(
                'an operation on it was interrupted (%s); give --reset-state '
                'to set its state to error and reboot it' % server.task)
        elif server.is_busy and not seen.is_interrupted:
            self.refusals.append(
                'an operation on it is in progress (%s)' % server.task)
        elif server.is_lost:
            self.refusals.append(
                'no host has it, or it never ran, and only its delete ends '
                'that (%s)' % server.status)
        elif server.status not in _REBOOTABLE and not seen.is_interrupted:
            self.refusals.append(
                'a server that is %s cannot be hard-rebooted%s' % (
                    server.status,
                    '; no host has it, so "openstack bdm release" may '
                    'release its stale attachments' if server.is_shelved
                    else ''))
        elif findings and server.is_host_down:
            self.refusals.append(
                'nova-compute of its host %s is %s, and would reboot it only '
                'when it is back' % (server.host, server.host_status))
        if (self.findings and has_plugin is False
                and not consent.without_plugin):
            self.refusals.append(
                WITHOUT_PLUGIN % server.host + '; enable it there first, or '
                'give --without-plugin to reboot the server nevertheless')
        if seen.lock and any(
                i.withheld is Reason.SERVER_LOCKED for i in findings):
            self.refusals.append(seen.lock.words + (
                '; give --locked to reboot it' if seen.lock.is_owners else
                '; the plugin leaves it as it is before an administrator '
                'has unlocked it'))
        # Attachments of one volume have the same text.
        self.refusals += dict.fromkeys(
            '%s of volume %s: %s; an operator must look at it first' % (
                i.withheld or i.reason, i.volume, i.explanation)
            for i in findings if i.withheld is not Reason.SERVER_LOCKED
            and (i.stops_a_reboot
                 # A reboot that changes nothing would not resolve it.
                 or i.remedy is Remedy.PERSON and not self.findings))

    @property
    def loses_memory(self) -> bool:
        """Return whether the guest would lose its memory: it has not ended."""
        return self.server.status in ('PAUSED', 'SUSPENDED')

    def verdict(self, finding: CloudFinding) -> Reason | None:
        """Return the current verdict on a finding's disk; None: gone."""
        return self._verdicts.get((finding.volume, finding.attachment))

    def settled(self, finding: CloudFinding) -> str:
        """Say why a finding needs no action any more; empty: it does."""
        verdict = self.verdict(finding)
        if verdict is None:
            return 'it no longer exists'
        return 'it is healthy now' if verdict is Reason.HEALTHY else ''

    def over(self, findings: Iterable[CloudFinding]) -> list[Result]:
        """Return the results of findings that need no action any more."""
        return [Result(i, Status.SKIPPED, self.settled(i), True)
                for i in findings if self.settled(i)]

    def objection(self, findings: Iterable[CloudFinding],
                  known: Iterable[CloudFinding]) -> str:
        """Say how a server has changed; empty: it has not.

        :param findings: the findings to end
        :param known: all findings known before
        """
        today = {i.key: i for i in self.findings}
        for finding in findings:
            if self.settled(finding):
                continue
            found = today.get(finding.key)
            if found is None:
                return 'volume %s is %s now' % (
                    finding.volume, self.verdict(finding))
            if spelling.host(found.host) != spelling.host(finding.host):
                return 'the server is on host %s now' % found.host
        keys = {i.key for i in known}
        for key, found in today.items():
            if key not in keys:
                return 'a reboot would also %s (%s)' % (
                    _OF_SERVER.get(found.reason) or '%s volume %s' % (
                        'reconnect' if found.is_reconnect else 'remove',
                        found.volume), found.reason)
        return ''


def preview(cloud: inspection.Cloud, server_id: str,
            consent: Consent = Consent(), closely: bool = False
            ) -> RebootPreview:
    """Return the preview of a hard reboot of a server.

    :param closely: an earlier inspection found something
    :raises BadInput: when there is no such server
    :raises ApiError: when the server cannot be inspected
    """
    seen = cloud.inspect(server_id, closely=closely,
                         heeds_owners_lock=not consent.locked_too)
    if seen is None:
        raise errors.BadInput('server %s does not exist' % server_id)
    return RebootPreview(
        seen, findings_of(seen, cloud, heeds_plugin=False), consent,
        cloud.has_plugin(seen.server.node) if seen.findings else None)


@dataclasses.dataclass(frozen=True)
class RebootRecord:
    """The events that the plugin added to the hard reboot of a server."""

    host: str | None
    #: The request IDs of the reboot.
    requests: tuple[str, ...]
    events: tuple[ActionEvent, ...]

    def of(self, kind: Kind, finding: CloudFinding) -> ActionEvent | None:
        """Return the event about what a finding is about."""
        subject = (finding.attachment
                   if finding.reason is Reason.STALE_ATTACHMENT
                   else finding.volume)
        return next((e for e in self.events
                     if e.kind is kind and e.subject in (subject, None)), None)

    def result(self, finding: CloudFinding, left: Reason | None,
               status: str) -> Result:
        """Return the result of a finding after the reboot.

        :param left: the verdict on what is still there; None: it is gone
        :param status: the state of the server, if it is not as expected
        """
        if (finding.reason in (*_OF_SERVER, Reason.SWAP_INTERRUPTED)
                and left in (None, Reason.HEALTHY)):
            return Result(finding, Status.DONE, status
                          and 'the server is %s now' % status,
                          is_well=not status, joint=', but ')
        if (self.of(Kind.RECONNECTED, finding)
                or self.of(Kind.ADOPTED, finding)):
            return Result(finding, Status.RECONNECTED, status
                          and 'the server is %s now' % status,
                          is_well=not status, joint=', but ')
        is_removed = not left and self.of(Kind.REMOVED, finding)
        withheld = self.of(Kind.WITHHELD, finding)
        words = []
        if left:
            words.append('it is still there (%s)' % left)
        elif not is_removed:
            words.append('but not by the plugin: the host may still have the '
                         'device (CVE-2023-2088)')
        if withheld:
            words.append('%sthe plugin did not complete it (%s)' % (
                'but ' if is_removed else '', withheld.reason))
        elif not self.events:
            words.append('the plugin recorded nothing: it is not installed on '
                         'the host, is off, is in mode observe, or its rules '
                         'keep the disk')
        if left and self.of(Kind.NOT_CONNECTED, finding):
            words.append('the guest came back without the disk')
        if status:
            words.append('%sthe server is %s now' % (
                '' if words else 'but ', status))
        if not words:
            return Result(finding, Status.REMOVED, is_well=True)
        words.append('host %s, request %s' % (
            self.host or '-', ', '.join(self.requests) or '-'))
        return Result(
            finding, Status.FAILED if left else Status.REMOVED if is_removed
            else Status.GONE, '; '.join(words), joint=': ' if left else ', ')


class Reboot(Change):
    """One reboot.

    :param timeout: seconds to wait for it
    :param shown: the preview that the operator was shown
    :param stop_again: stop the server after it, as it was stopped before
    """

    def __init__(self, cloud: inspection.Cloud, timeout: float,
                 shown: RebootPreview, stop_again: bool,
                 consent: Consent = Consent()) -> None:
        self.subjects = shown.findings
        self.advice = '; see openstack bdm show %s' % shown.server.id
        self.place = shown.server.host
        self._cloud = cloud
        self._timeout = timeout
        self.shown = shown
        self._now = shown
        self._over: list[Result] = []
        #: The request IDs of the actions before the reboot.
        self._earlier: frozenset[str] = frozenset()
        self._stop_again = stop_again
        self._consent = consent

    def check(self) -> list[Result]:
        try:
            self._now = now = self._preview()
        except errors.BadInput as exc:
            return self.for_all(Status.SKIPPED, str(exc))
        self._over = now.over(self.subjects)
        if len(self._over) == len(self.subjects):
            return self._over
        why = '; '.join(now.refusals) or now.objection(
            self.subjects, self.subjects)
        if not why and now.loses_memory and not self.shown.loses_memory:
            why = ('the server is %s now, and its memory would be lost'
                   % now.server.status)
        if why:
            return self.for_all(Status.SKIPPED, why)
        self._earlier = frozenset(
            a.request_id
            for a in self._cloud.nova.actions(self.shown.server.id))
        return []

    def recently_took(self) -> float | None:
        """Return the seconds of the last reboot; None: they are not known."""
        # The last action of an interrupted server has not ended.
        return None if self.shown.resets_state else next((
            action.took for action
            in self._cloud.nova.actions(self.shown.server.id)
            if action.name == 'reboot' and action.took is not None), None)

    def make(self) -> Steps:
        server, nova = self._now.server, self._cloud.nova
        stops = self._stop_again and server.status == 'SHUTOFF'
        if self._now.resets_state:
            nova.set_error(server.id)
        try:
            nova.reboot_hard(server.id)
        except (errors.Refused, errors.Conflict, errors.NotFound) as exc:
            if self._now.resets_state:
                raise errors.Unanswered('the state of the server is error '
                                        'now, and %s' % exc) from exc
            if isinstance(exc, errors.Conflict):
                # Other servers can still be rebooted.
                return self.for_all(Status.SKIPPED, str(exc))
            raise
        try:
            status = yield from self._wait(server, 'hard reboot')
            if stops and status == 'ACTIVE':
                nova.stop(server.id)
                status = yield from self._wait(server, 'stop')
            after = self._preview()
            record = self._read_record()
        except (errors.Refused, errors.Conflict, errors.NotFound,
                errors.BadInput) as exc:
            # These errors would say that nothing was changed.
            raise errors.Unanswered(str(exc)) from exc
        if status == ('SHUTOFF' if stops else 'ACTIVE'):
            status = ''
        return self._over + [
            record.result(i, after.verdict(i), status)
            for i in self.subjects if not self._now.settled(i)]

    def _preview(self) -> RebootPreview:
        return preview(self._cloud, self.shown.server.id, self._consent,
                       closely=True)

    def _read_record(self) -> RebootRecord:
        """Read what the plugin has recorded."""
        server, nova = self._now.server, self._cloud.nova
        reboots = [a for a in nova.actions(server.id)
                   if a.name == 'reboot'
                   and a.request_id not in self._earlier]
        return RebootRecord(
            server.host, tuple(a.request_id for a in reboots), tuple(
                event for action in reboots
                for event in nova.plugin_events(server.id, action)))

    def _wait(self, server: ComputeServer, what: str
              ) -> Generator[None, None, str]:
        """Return the state of a server after its task has ended.

        :param what: the operation that ends
        """
        begin = time.monotonic()
        while True:
            now = self._cloud.nova.server(server.id)
            if now is None:
                raise errors.Unanswered('server %s is gone' % server.id)
            # The API sets the task before it answers the request.
            if not now.task_state:
                return now.status
            waited = time.monotonic() - begin
            if waited >= self._timeout:
                raise errors.Unanswered(
                    'the %s of server %s has not ended after %d s (%s)' % (
                        what, server.id, waited, now.task_state))
            yield
