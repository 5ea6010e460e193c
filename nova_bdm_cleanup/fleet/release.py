# SPDX-License-Identifier: Apache-2.0
"""Releases volumes: facts, plan, act, read back."""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import datetime
import json
from typing import Callable

from nova_bdm_cleanup.fleet import inspection, release_rules
from nova_bdm_cleanup.fleet.release_facts import (
    Call,
    Connector,
    ReleaseFacts,
    ReleaseStep,
)
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.cinder import Cinder
from nova_bdm_cleanup.openstack.nova import ComputeServer, Disk, Nova
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Attachment, Policy, Reason

#: By what back ends know a host.
_IDENTITIES = ('initiator', 'wwpns', 'nqn', 'ip')


@dataclasses.dataclass(frozen=True)
class Target:
    """A volume, or one attachment of it."""

    volume: str
    attachment: str | None = None


@dataclasses.dataclass(frozen=True)
class ReleaseResult:
    """What became of a step."""

    step: ReleaseStep
    done: bool
    text: str


class Releaser:
    """One release.

    :param nova: the compute API
    :param cinder: Cinder
    :param policy: what is young and what is stuck
    :param connector: for what Cinder kept no connector of
    :param progress: told what is being done, and how far it is
    :param now: gives the time, with its time zone
    """

    def __init__(self, nova: Nova, cinder: Cinder,
                 policy: Policy, connector: Connector,
                 progress: Callable[[str, int], None],
                 now: Callable[[], datetime.datetime]) -> None:
        self._nova = nova
        self._cinder = cinder
        self._policy = policy
        self._connector = connector
        self._progress = progress
        self._now = now
        self._witness = inspection.Witness(nova, cinder)
        self._inspector = inspection.Inspector(
            nova, cinder, policy, self._witness, now, None)
        #: The servers that claim a volume, as the last scan found them.
        self._claims: dict[str, set[str]] = {}
        #: The compute hosts of this Nova.
        self._hosts: frozenset[str] = frozenset()

    def check(self) -> None:
        """Make sure that "Nova does not know it" can be believed at all.

        :raises Refused: when it cannot
        """
        if not self._cinder.prove_admin():
            raise errors.Refused('Cinder does not show all projects to these '
                                 'credentials; this needs the admin role')
        hosts = self._nova.hosts()
        if hosts.silent:
            raise errors.Refused(
                'the cells of these compute hosts do not answer, so no '
                'server is known to be gone: %s' % ', '.join(hosts.silent))
        self._hosts = hosts.known
        if self._witness() is not True:
            raise errors.Refused(
                'Cinder knows no volume that Nova names: nothing shows that '
                'this Nova and this Cinder belong to the same region')

    def resolve(self, name: str) -> Target:
        """What an operator means: an attachment's or a volume's ID.

        :raises BadInput: when it is neither
        """
        wanted = spelling.identifier(name)
        attachment = self._cinder.attachment(wanted)
        if attachment is not None:
            return Target(attachment.volume_id, attachment.id)
        if self._cinder.volume(wanted) is None:
            raise errors.BadInput('neither an attachment nor a volume has the '
                                  'ID %s' % name)
        return Target(wanted)

    def plan(self, targets: Iterable[Target]) -> tuple[ReleaseStep, ...]:
        """What is to be done, and what may not be done and why."""
        wanted: dict[str, list[str | None]] = {}
        for target in targets:
            wanted.setdefault(target.volume, []).append(target.attachment)
        self._scan(frozenset(wanted))
        steps: list[ReleaseStep] = []
        for number, (volume_id, attachments) in enumerate(wanted.items(), 1):
            self._progress('volumes', number)
            found = self._steps(volume_id)
            for attachment in dict.fromkeys(attachments):
                chosen = release_rules.selected(found, attachment) or (
                    ReleaseStep(volume_id, 'attachment %s does not exist'
                                % attachment),)
                steps += [s for s in chosen if s not in steps]
        return tuple(steps)

    def act(self, steps: Iterable[ReleaseStep]) -> Iterable[ReleaseResult]:
        """Do it, one by one, and read each back."""
        for step in steps:
            if step.call is None:
                yield ReleaseResult(step, False, 'refused')
                continue
            try:
                yield self._act(step, step.call)
            except errors.ApiError as exc:
                yield ReleaseResult(step, False, 'failed: %s' % exc)

    def _act(self, step: ReleaseStep, call: Call) -> ReleaseResult:
        # The state to expect may be another after the steps before this one.
        again = [s for s in self._steps(step.volume) if s.key == step.key]
        if not again:
            volume = self._cinder.volume(step.volume)
            if call is Call.ROLL_DETACHING and volume \
                    and volume.status == step.expected:
                # With another attachment of the same volume, for example.
                return ReleaseResult(step, True, 'done: the volume is %s'
                                     % step.expected)
            return ReleaseResult(step, False,
                                 'skipped: it has changed meanwhile')
        [step] = again
        neighbours = self._neighbours(step)
        _MAKE[call](self._cinder, step)
        return self._read_back(step, neighbours)

    def _read_back(self, step: ReleaseStep,
                   neighbours: tuple[Attachment, ...]) -> ReleaseResult:
        volume = self._cinder.volume(step.volume)
        if volume is None:
            return ReleaseResult(step, False, 'the volume is gone')
        left = step.attachment_id and self._cinder.attachment(
            step.attachment_id)
        if step.call is Call.COMPLETE:
            if not left or left.status != 'attached':
                return ReleaseResult(step, False,
                                     'the attachment is not attached')
        elif left and step.call is not Call.ROLL_DETACHING:
            return ReleaseResult(step, False, 'the attachment is still there')
        if self._neighbours(step) != neighbours:
            return ReleaseResult(
                step, False,
                'another attachment of the volume has changed: look at it')
        if volume.status != step.expected:
            return ReleaseResult(step, False, 'the volume is %s, not %s' % (
                volume.status, step.expected))
        return ReleaseResult(step, True, '%s: the volume is %s' % (
            'done' if step.call is Call.COMPLETE else 'released',
            volume.status))

    def _neighbours(self, step: ReleaseStep) -> tuple[Attachment, ...]:
        return tuple(sorted(
            (a for a in self._cinder.attachments_of(step.volume)
             if a.id != step.attachment_id), key=lambda a: a.id))

    # The facts

    def _scan(self, volume_ids: frozenset[str]) -> None:
        """Find the servers, of all projects and cells, that claim volumes.

        Servers that wait for their reclaim are not on the list; they are
        found by the attachments that name them.
        """
        self._claims = {v: set() for v in volume_ids}
        count = 0
        for page in self._nova.servers(all_projects=True):
            for server in page:
                if server.is_unknown:
                    raise errors.Refused(
                        'the cell of server %s does not answer, so no server '
                        'is known to be gone' % server.id)
                for volume_id in volume_ids.intersection(server.volumes):
                    self._claims[volume_id].add(server.id)
            count += len(page)
            self._progress('servers', count)

    def _steps(self, volume_id: str) -> tuple[ReleaseStep, ...]:
        volume = self._cinder.volume(volume_id)
        if volume is None:
            return (ReleaseStep(volume_id, 'the volume does not exist'),)
        attachments = self._cinder.attachments_of(volume_id)
        servers = {s: self._nova.server(s) for s in sorted({
            a.server_id for a in attachments if a.server_id})}
        claims = set(self._claims[volume_id])
        stale: set[str] = set()
        disks: dict[str, Disk] = {}
        guests: dict[str, frozenset[str]] = {}
        for server in filter(None, servers.values()):
            claims.discard(server.id)
            if volume_id not in server.volumes:
                stale |= self._stale(server.id, [
                    a.id for a in attachments if a.server_id == server.id])
                continue
            claims.add(server.id)
            if volume.status in ('attaching', 'reserved'):
                self._see_guest(server, volume_id, disks, guests)
        return release_rules.decide(ReleaseFacts(
            volume, attachments, servers, frozenset(claims), self._hosts,
            frozenset(stale), disks, guests, self._connector, self._policy,
            self._now()))

    def _see_guest(self, server: ComputeServer, volume_id: str,
                   disks: dict[str, Disk],
                   guests: dict[str, frozenset[str]]) -> None:
        """How far an attach got."""
        found = [d for d in self._nova.disks(server) or ()
                 if d.volume_id == volume_id]
        if len(found) == 1:
            disks[server.id] = found[0]
        devices = (frozenset() if server.status == 'SHUTOFF'
                   else self._nova.guest_disks(server.id))
        if devices is not None:
            guests[server.id] = devices

    def _stale(self, server_id: str, named: list[str]) -> set[str]:
        """What the rules call stale at a server that exists."""
        seen = self._inspector.inspect(server_id, named)
        return {f.attachment.id for f in seen.plan.findings
                if f.reason is Reason.STALE_ATTACHMENT and f.attachment
                # How many a reboot may delete is no matter here.
                and f.withheld in (None, Reason.OVER_LIMIT)} \
            if seen else set()


# How each call is made


def _delete(cinder: Cinder, step: ReleaseStep) -> None:
    if not cinder.delete_attachment(
            step.attachment_id or '',
            complete=step.call is Call.COMPLETE_AND_DELETE):
        raise errors.NotFound('the attachment is gone already')


def _complete(cinder: Cinder, step: ReleaseStep) -> None:
    cinder.complete_attachment(step.attachment_id or '')


def _force_detach(cinder: Cinder, step: ReleaseStep) -> None:
    cinder.act(step.volume, Call.FORCE_DETACH.value, {
        'attachment_id': step.attachment_id,
        'connector': dict(step.connector or {})})


def _terminate(cinder: Cinder, step: ReleaseStep) -> None:
    """Have the back end unmap what Cinder has no record of.

    Nobody else may have the volume before it is known to be done: the back
    end could take it from him.
    """
    cinder.act(step.volume, 'os-reserve')
    attachments = cinder.attachments_of(step.volume)
    if attachments:
        cinder.act(step.volume, 'os-unreserve')
        raise errors.Refused('attachment %s of the volume is new'
                             % attachments[0].id)
    try:
        # Cinder ends the reservation when the back end has done it.
        cinder.act(step.volume, Call.TERMINATE.value,
                   {'connector': dict(step.connector or {})})
    except (errors.BadRequest, errors.Refused, errors.Conflict):
        cinder.act(step.volume, 'os-unreserve')
        raise
    except errors.ApiError as exc:
        raise errors.Unanswered(
            '%s; the volume is left attaching, so that nobody gets it while '
            'a host may have it: do it again with --stuck-after 0' % exc,
            exc.status) from exc


_MAKE: dict[Call, Callable[[Cinder, ReleaseStep], None]] = {
    Call.DELETE: _delete,
    Call.COMPLETE_AND_DELETE: _delete,
    Call.FORCE_DETACH: _force_detach,
    Call.TERMINATE: _terminate,
    Call.COMPLETE: _complete,
    Call.ROLL_DETACHING: lambda cinder, step: cinder.act(
        step.volume, Call.ROLL_DETACHING.value),
    Call.UNRESERVE: lambda cinder, step: cinder.act(
        step.volume, Call.UNRESERVE.value),
    Call.DETACH: lambda cinder, step: cinder.act(
        step.volume, Call.DETACH.value, {}),
}


def read_connector(path: str) -> Connector:
    """A file with the connector of a host, or the word ``none``.

    :raises BadInput: when it is neither
    """
    if path == 'none':
        return Connector(is_none=True)
    try:
        with open(path, encoding='utf-8') as file:
            text = file.read()
        if not text.strip():
            raise ValueError('the file is empty')
        connector = json.loads(text)
    except OSError as exc:
        raise errors.BadInput(
            'connector %s: %s' % (path, exc.strerror)) from exc
    except ValueError as exc:
        raise errors.BadInput('connector %s: %s' % (path, exc)) from exc
    host = connector.get('host') if isinstance(connector, dict) else None
    if not host or not isinstance(host, str):
        raise errors.BadInput('connector %s: it names no host; use the output '
                              'of "nova-manage volume_attachment '
                              'get_connector --json"' % path)
    if not any(connector.get(key) for key in _IDENTITIES):
        # What it leaves out, some back ends take for "any".
        raise errors.BadInput(
            'connector %s: it has nothing that a back end could know host %s '
            'by (%s)' % (path, host, ', '.join(_IDENTITIES)))
    return Connector(connector)
