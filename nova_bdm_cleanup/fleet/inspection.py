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
"""One server, looked at from both sides, and judged by the rules.

What one API created between two questions must not look orphaned to the
other.  So Nova is asked before Cinder and once more after it: a mapping that
Nova showed first and Cinder does not know afterwards is dangling; an
attachment that Cinder showed and Nova does not know afterwards is stale.
When Nova's answers differ, the server is looked at again.
"""

from __future__ import annotations

import dataclasses
import datetime
from typing import Callable, List, Mapping, Optional, Tuple

from nova_bdm_cleanup import errors
from nova_bdm_cleanup import model
from nova_bdm_cleanup import rules
from nova_bdm_cleanup.cinder import Cinder
from nova_bdm_cleanup.fleet import compute
from nova_bdm_cleanup.model import Bdm
from nova_bdm_cleanup.model import Finding
from nova_bdm_cleanup.model import Plan
from nova_bdm_cleanup.model import Policy
from nova_bdm_cleanup.model import Reason
from nova_bdm_cleanup.model import Volume
from nova_bdm_cleanup.model import WitnessAnswer

#: How often a server is looked at that changes meanwhile.
_LOOKS = 3


#: Volumes that are asked for to see whether Nova and Cinder belong together.
WITNESSES = 60


class Witness:
    """Whether this Cinder knows a volume that this Nova names.

    A Cinder of another region, or one restored from an old database, politely
    answers that everything is gone.  Asked for once, and only when needed.

    :param nova: the compute API
    :param cinder: Cinder
    """

    def __init__(self, nova: compute.Compute, cinder: Cinder) -> None:
        self._nova = nova
        self._cinder = cinder
        self._answer: Optional[Tuple[Optional[bool]]] = None

    def known(self, answer: Optional[bool]) -> None:
        """It is known already."""
        self._answer = (answer,)

    def __call__(self) -> Optional[bool]:
        """None: Nova names no volume to ask for."""
        if self._answer is None:
            claims: List[str] = []
            for page in self._nova.servers(self._cinder.sees_all):
                claims += [v for s in page for v in s.volumes]
                if len(claims) >= WITNESSES:
                    break
            self.known(self._cinder.knows_any(claims[:WITNESSES])
                       if claims else None)
        return self._answer[0] if self._answer else None


@dataclasses.dataclass(frozen=True)
class Inspection:
    """One server as it is."""

    server: compute.ComputeServer
    plan: Plan
    volumes: Mapping[str, Optional[Volume]]
    attachments: Mapping[str, model.Attachment]

    @property
    def findings(self) -> Tuple[Finding, ...]:
        """What is not as it should be."""
        return tuple(f for f in self.plan.findings
                     if f.reason is not Reason.HEALTHY)


class Inspector:
    """Looks at servers.

    :param nova: the compute API
    :param cinder: Cinder
    :param policy: what the rules take for young, for stuck, and for too much
    :param witness: whether this Cinder knows any volume of the cloud; asked
        when it knows none of a server's
    :param now: gives the time, with its time zone
    :param project: whose credentials these are
    """

    def __init__(self, nova: compute.Compute, cinder: Cinder,
                 policy: Policy, witness: Callable[[], Optional[bool]],
                 now: Callable[[], datetime.datetime],
                 project: Optional[str]) -> None:
        self._nova = nova
        self._cinder = cinder
        self._policy = policy
        self._witness = witness
        self._now = now
        self._project = project

    def inspect(self, server_id: str) -> Optional[Inspection]:
        """One server; None: Nova does not know it.

        :raises ApiError: when any question went unanswered
        """
        server = self._nova.server(server_id)
        for _ in range(_LOOKS):
            if server is None:
                return None
            self._check_project(server)
            disks = self._nova.disks(server)
            if disks is None:
                return None
            bdms = compute.bdms(server, disks)
            volumes, attachments, _ = self._cinder.look(
                server.id, bdms, server.project)
            after = self._nova.server(server.id)
            settled = after == server and self._nova.disks(server) == disks
            if settled:
                break
            server = after
        if server is None:
            return None
        bdms = tuple(_with_legacy(b, server, volumes) for b in bdms)
        snapshot = model.Snapshot(
            server=model.Server(
                uuid=server.id, project=server.project,
                host=server.host or '', keep=server.keep,
                # The API does not say who locked it.
                locked_by_admin=server.locked),
            bdms=bdms, volumes=volumes, attachments=attachments,
            sees_all=self._cinder.sees_all)
        snapshot = dataclasses.replace(
            snapshot, witness=self._answer(snapshot))
        plan = rules.decide(snapshot, self._policy, self._now())
        if plan.due and rules.needs_swaps(snapshot):
            plan = rules.decide(
                dataclasses.replace(
                    snapshot, swaps=self._nova.swaps(server.id)),
                self._policy, self._now())
        by_id = {a.id: a for a in attachments}
        plan = Plan(tuple(
            self._in_context(f, server, settled, volumes, by_id)
            for f in plan.findings))
        return Inspection(server, plan, volumes, by_id)

    def _answer(self, snapshot: model.Snapshot) -> WitnessAnswer:
        if not rules.needs_witness(snapshot):
            return WitnessAnswer.KNOWN
        known = self._witness()
        if known is None:
            return WitnessAnswer.NONE_EXISTS
        return WitnessAnswer.KNOWN if known else WitnessAnswer.REFUTED

    def _in_context(self, finding: Finding, server: compute.ComputeServer,
                    settled: bool, volumes: Mapping[str, Optional[Volume]],
                    attachments: Mapping[str, model.Attachment]) -> Finding:
        """What the rules leave to others, or never see in a reboot."""
        volume = volumes.get(finding.volume_id or '')
        carried = attachments.get(finding.attachment_id or '')
        hangs = (volume is not None and volume.status == 'detaching'
                 and self._policy.is_stuck(volume.updated_at, self._now()))
        if finding.reason is Reason.HEALTHY and not hangs:
            return finding
        if server.is_busy or not settled:
            return dataclasses.replace(
                finding, reason=Reason.OPERATION_IN_FLIGHT, action=None,
                withheld=None,
                explanation='the server is changing (%s); %s' % (
                    server.task_state or server.status, finding.explanation))
        if volume and hangs and not server.locked and finding.reason in (
                Reason.HEALTHY, Reason.OPERATION_IN_FLIGHT):
            # To a reboot it is somebody's detach, however old.
            return dataclasses.replace(
                finding, reason=Reason.STUCK, explanation=(
                    'the volume is detaching since %s' % volume.updated_at))
        if finding.reason is Reason.ATTACH_IN_FLIGHT and volume and (
                volume.status == 'attaching' and not server.locked
                and self._policy.is_stuck(volume.updated_at, self._now())):
            # Of no mapping the API shows the age; but reserving a volume
            # for an attach changes it.
            return dataclasses.replace(
                finding, reason=Reason.STUCK, explanation=(
                    'the volume is attaching since %s' % volume.updated_at))
        if (server.is_shelved and finding.bdm and carried and volume
                and carried.status == volume.status == 'reserved'):
            return dataclasses.replace(
                finding, reason=Reason.HEALTHY,
                explanation='reserved for the time the server is shelved')
        if finding.reason is Reason.DUPLICATE_MAPPING and not finding.action:
            return dataclasses.replace(
                finding, explanation=finding.explanation + '; a hard reboot '
                'removes the one that Nova never connected, if there is one, '
                'which the API does not show')
        if finding.reason is Reason.RESERVED_ONLY and not (
                volume and self._policy.is_stuck(
                    volume.updated_at, self._now())):
            # The API does not show whether Nova has connected the disk.
            return dataclasses.replace(
                finding, reason=Reason.OPERATION_IN_FLIGHT,
                explanation='the attachment only reserves the volume, and '
                'not for long')
        return finding

    def _check_project(self, server: compute.ComputeServer) -> None:
        """To the wrong project Cinder shows no attachment, without a word."""
        if not self._cinder.sees_all and (
                not self._project or server.project != self._project):
            raise errors.Refused(
                'server %s belongs to another project; give --all-projects '
                'and the credentials of an administrator' % server.id)


def _with_legacy(bdm: Bdm, server: compute.ComputeServer,
                 volumes: Mapping[str, Optional[Volume]]) -> Bdm:
    """A mapping from before Queens, if Cinder says that it is one.

    Without an attachment id, and not known to Cinder either, it may be that
    of an attach which has just begun: the API does not tell.
    """
    volume = volumes.get(bdm.volume_id or '')
    if bdm.attachment_id or volume is None or not any(
            a.server_id == server.id for a in volume.attached_to):
        return bdm
    return dataclasses.replace(bdm, has_connection_info=True)
