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
"""Releases volumes: facts, plan, act, read back."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    List,
    Optional,
    Set,
    Tuple,
)

from nova_bdm_cleanup import errors
from nova_bdm_cleanup.cinder import Cinder
from nova_bdm_cleanup.fleet import compute
from nova_bdm_cleanup.fleet import inspection
from nova_bdm_cleanup.fleet import release_rules
from nova_bdm_cleanup.fleet.release_facts import Call
from nova_bdm_cleanup.fleet.release_facts import Connector
from nova_bdm_cleanup.fleet.release_facts import NeverConnected
from nova_bdm_cleanup.fleet.release_facts import ReleaseFacts
from nova_bdm_cleanup.fleet.release_facts import ReleaseStep
from nova_bdm_cleanup.model import Attachment
from nova_bdm_cleanup.model import Policy
from nova_bdm_cleanup.model import Reason

#: By what back ends know a host.
_IDENTITIES = ('initiator', 'wwpns', 'nqn', 'ip')


@dataclasses.dataclass(frozen=True)
class Target:
    """A volume, or one attachment of it."""

    volume: str
    attachment: Optional[str] = None


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

    def __init__(self, nova: compute.Compute, cinder: Cinder,
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
        self._claims: Dict[str, Set[str]] = {}
        #: The compute hosts of this Nova.
        self._hosts: FrozenSet[str] = frozenset()

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
        attachment = self._cinder.attachment(name)
        if attachment is not None:
            return Target(attachment.volume_id, attachment.id)
        if self._cinder.volume(name) is None:
            raise errors.BadInput('neither an attachment nor a volume has the '
                                  'ID %s' % name)
        return Target(name)

    def plan(self, targets: Iterable[Target]) -> Tuple[ReleaseStep, ...]:
        """What is to be done, and what may not be done and why."""
        wanted: Dict[str, List[Optional[str]]] = {}
        for target in targets:
            wanted.setdefault(target.volume, []).append(target.attachment)
        self._scan(frozenset(wanted))
        steps: List[ReleaseStep] = []
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
                yield self._act(step)
            except errors.ApiError as exc:
                yield ReleaseResult(step, False, 'failed: %s' % exc)

    def _act(self, step: ReleaseStep) -> ReleaseResult:
        # The state to expect may be another after the steps before this one.
        again = [s for s in self._steps(step.volume) if s.key == step.key]
        if not again and step.call is Call.ROLL_DETACHING and \
                self._status(step.volume) == step.expected:
            # With another attachment of the same volume, for example.
            return ReleaseResult(step, True, 'done: the volume is %s'
                           % step.expected)
        if not again:
            return ReleaseResult(step, False,
                                 'skipped: it has changed meanwhile')
        step = again[0]
        neighbours = self._neighbours(step)
        self._call(step)
        return self._read_back(step, neighbours)

    def _call(self, step: ReleaseStep) -> None:
        if step.attachment_id and step.call in (
                Call.DELETE, Call.COMPLETE_AND_DELETE):
            if not self._cinder.delete_attachment(
                    step.attachment_id,
                    complete=step.call is Call.COMPLETE_AND_DELETE):
                raise errors.NotFound('the attachment is gone already')
        elif step.call is Call.FORCE_DETACH:
            self._cinder.act(step.volume, str(step.call), {
                'attachment_id': step.attachment_id,
                'connector': dict(step.connector or {})})
        elif step.call is Call.COMPLETE and step.attachment_id:
            self._cinder.complete_attachment(step.attachment_id)
        elif step.call is Call.TERMINATE:
            self._terminate(step)
        elif step.call is Call.ATTACH:
            self._cinder.act(step.volume, str(step.call),
                             dict(step.attached or {}))
        elif step.call is not None:
            self._cinder.act(step.volume, str(step.call),
                             {} if step.call is Call.DETACH else None)

    def _terminate(self, step: ReleaseStep) -> None:
        """Have the back end unmap what Cinder has no record of.

        Nobody else may have the volume before it is known to be done: the
        back end could take it from him.
        """
        self._cinder.act(step.volume, 'os-reserve')
        attachments = self._cinder.attachments_of(step.volume)
        if attachments:
            self._cinder.act(step.volume, 'os-unreserve')
            raise errors.Refused('attachment %s of the volume is new'
                                 % attachments[0].id)
        try:
            # Cinder ends the reservation when the back end has done it.
            self._cinder.act(step.volume, str(step.call),
                             {'connector': dict(step.connector or {})})
        except (errors.BadRequest, errors.Refused, errors.Conflict):
            self._cinder.act(step.volume, 'os-unreserve')
            raise
        except errors.ApiError as exc:
            raise errors.Unanswered(
                '%s; the volume is left attaching, so that nobody gets it '
                'while a host may have it: do it again with --stuck-after 0'
                % exc, exc.status) from exc

    def _read_back(self, step: ReleaseStep,
                   neighbours: Tuple[Attachment, ...]) -> ReleaseResult:
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
        if step.call is Call.ATTACH:
            wanted = step.attached and step.attached['instance_uuid']
            if [(a.server_id, a.status) for a in self._neighbours(step)] != [
                    (wanted, 'attached')]:
                return ReleaseResult(step, False, 'the volume is not '
                                     'attached to server %s' % wanted)
        elif self._neighbours(step) != neighbours:
            return ReleaseResult(
                step, False,
                'another attachment of the volume has changed: look at it')
        if volume.status != step.expected:
            return ReleaseResult(step, False, 'the volume is %s, not %s' % (
                volume.status, step.expected))
        return ReleaseResult(step, True, '%s: the volume is %s' % (
            'done' if step.call in (Call.COMPLETE, Call.ATTACH)
            else 'released',
            volume.status))

    def _neighbours(self, step: ReleaseStep) -> Tuple[Attachment, ...]:
        return tuple(sorted(
            (a for a in self._cinder.attachments_of(step.volume)
             if a.id != step.attachment_id), key=lambda a: a.id))

    # ReleaseFacts

    def _status(self, volume_id: str) -> Optional[str]:
        volume = self._cinder.volume(volume_id)
        return volume.status if volume else None

    def _scan(self, volume_ids: FrozenSet[str]) -> None:
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

    def _steps(self, volume_id: str) -> Tuple[ReleaseStep, ...]:
        volume = self._cinder.volume(volume_id)
        if volume is None:
            return (ReleaseStep(volume_id, 'the volume does not exist'),)
        attachments = self._cinder.attachments_of(volume_id)
        claims = set(self._claims[volume_id])
        named = {a.server_id for a in attachments if a.server_id}
        if volume.status == 'attaching' and not attachments:
            named |= claims
        servers = {s: self._nova.server(s) for s in sorted(named)}
        stale: Set[str] = set()
        disks: Dict[str, compute.Disk] = {}
        guests: Dict[str, FrozenSet[str]] = {}
        for server in servers.values():
            if server is None:
                continue
            claims.discard(server.id)
            if volume_id not in server.volumes:
                stale |= self._stale(server.id)
                continue
            claims.add(server.id)
            if volume.status in ('attaching', 'reserved'):
                self._see_guest(server, volume_id, disks, guests)
        return release_rules.decide(
            ReleaseFacts(volume, attachments, servers, frozenset(claims),
                         self._hosts, frozenset(stale), disks, guests),
            self._connector, self._policy, self._now())

    def _see_guest(self, server: compute.ComputeServer, volume_id: str,
                   disks: Dict[str, compute.Disk],
                   guests: Dict[str, FrozenSet[str]]) -> None:
        """How far an attach got."""
        found = [d for d in self._nova.disks(server) or ()
                 if d.volume_id == volume_id]
        if len(found) == 1:
            disks[server.id] = found[0]
        devices = (frozenset() if server.status == 'SHUTOFF'
                   else self._nova.guest_disks(server.id))
        if devices is not None:
            guests[server.id] = devices

    def _stale(self, server_id: str) -> Set[str]:
        """What the rules call stale at a server that exists."""
        seen = self._inspector.inspect(server_id)
        return {f.attachment.id for f in seen.plan.findings
                if f.reason is Reason.STALE_ATTACHMENT and f.attachment
                # How many a reboot may delete is no matter here.
                and f.withheld in (None, Reason.OVER_LIMIT)} \
            if seen else set()


def read_connector(path: str) -> Connector:
    """A file with the connector of a host, or the word ``none``.

    :raises BadInput: when it is neither
    """
    if path == NeverConnected.YES.value:
        return NeverConnected.YES
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
    found: Dict[str, Any] = connector
    return found
