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
"""The decision table: one pure function from a snapshot to a plan.

No input or output, no Nova, no Cinder, no clock.  The order of the questions
in each function is the order of the rows in the documentation; the first one
that answers decides.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
from typing import (Dict, FrozenSet, List, Mapping, NamedTuple, Optional,
                    Sequence, Tuple)

from nova_bdm_cleanup import conf
from nova_bdm_cleanup.model import Attachment
from nova_bdm_cleanup.model import Bdm
from nova_bdm_cleanup.model import DANGLING
from nova_bdm_cleanup.model import DeleteAttachment
from nova_bdm_cleanup.model import Finding
from nova_bdm_cleanup.model import Plan
from nova_bdm_cleanup.model import Reason
from nova_bdm_cleanup.model import RemoveBdm
from nova_bdm_cleanup.model import Snapshot
from nova_bdm_cleanup.model import Volume

#: An attach or detach of some server is under way.
IN_FLIGHT = frozenset(('reserved', 'attaching', 'detaching'))

#: Anything else (deleting, retyping, backing-up, an unknown word, ...) means
#: that Cinder is busy with the volume or lost control of it: hands off.
KNOWN = IN_FLIGHT | {'available', 'in-use'}

#: A volume in such a state may have a second attachment for good reason.
_MOVING = frozenset(('detaching', 'retyping', 'maintenance'))

SETTLED_MIGRATION = frozenset((None, '', 'none', 'success', 'error'))


class _Verdict(NamedTuple):
    """What becomes of a mapping, and why in plain words."""

    reason: Reason
    explanation: str


def decide(snapshot: Snapshot, policy: conf.Policy,
           now: datetime.datetime) -> Plan:
    """What is found at one server and what follows from it.

    :param snapshot: one complete look at Nova and Cinder
    :param policy: what the operator allows
    :param now: the time of the look, with its time zone
    :returns: the findings; those with a due action are to be acted on
    """
    world = _World(snapshot, policy, now)
    findings = [world.judge_bdm(b) for b in sorted(snapshot.bdms, key=_turn)
                if b.is_in_cinder]
    findings += [f for f in map(world.judge_attachment, world.unaccounted())
                 if f is not None]
    plan = Plan(tuple(_allow(f, snapshot, policy) for f in findings))

    if (snapshot.witness is False
            and any(f.reason is Reason.VOLUME_MISSING for f in findings)):
        return plan.withhold(Reason.CINDER_SUSPECT)
    if plan.removals > policy.max_removals:
        return plan.withhold(Reason.OVER_LIMIT)
    return plan


def confirm(first: Plan, second: Plan) -> Plan:
    """The first plan, less every action that a second look does not repeat.

    :param first: the plan that was made before the guest was powered off
    :param second: the plan that the facts give now
    :returns: the first plan's findings; actions only where both agree
    """
    again = {_identity(f): f.withheld for f in second.findings
             if f.action is not None}
    return Plan(tuple(
        dataclasses.replace(f, withheld=again.get(
            _identity(f), Reason.SECOND_LOOK_DIFFERS)) if f.is_due else f
        for f in first.findings))


def needs_witness(volumes: Mapping[str, Optional[Volume]]) -> bool:
    """Whether Cinder has yet to prove that it is the right Cinder.

    A wrong region or a restored database politely says that everything is
    gone.  A volume of this server that it does know is proof enough.
    """
    return bool(volumes) and not any(volumes.values())


def _identity(finding: Finding) -> Tuple[object, ...]:
    """What must be the same in both looks for an action to be the same."""
    bdm, attachment, action = finding.bdm, finding.attachment, finding.action
    return (
        finding.reason,
        finding.volume_id,
        bdm and (bdm.uuid, bdm.attachment_id, bdm.has_connection_info),
        attachment and _attachment_identity(attachment),
        frozenset(map(_attachment_identity, action.attachments))
        if isinstance(action, RemoveBdm) else action,
    )


def _attachment_identity(attachment: Attachment) -> Tuple[object, ...]:
    return (attachment.id, attachment.volume_id, attachment.server_id,
            attachment.status, attachment.connected)


def _allow(finding: Finding, snapshot: Snapshot,
           policy: conf.Policy) -> Finding:
    """Withhold an action that the operator does not want."""
    if finding.action is None:
        return finding
    volume = snapshot.volumes.get(finding.volume_id or '')
    why: Optional[Reason] = None
    if snapshot.server.keep or (volume is not None and volume.keep):
        why = Reason.OPTED_OUT
    elif isinstance(finding.action, RemoveBdm):
        if finding.reason not in policy.remove_when:
            why = Reason.NOT_SELECTED
    elif not policy.stale_attachments:
        why = Reason.NOT_SELECTED
    return dataclasses.replace(finding, withheld=why)


class _World:
    """One snapshot, indexed by volume, and the rules over it."""

    def __init__(self, snapshot: Snapshot, policy: conf.Policy,
                 now: datetime.datetime) -> None:
        self._server = snapshot.server
        self._snapshot = snapshot
        self._policy = policy
        self._now = now
        self._bdms: Dict[str, List[Bdm]] = collections.defaultdict(list)
        for bdm in snapshot.bdms:
            if bdm.volume_id:
                self._bdms[bdm.volume_id].append(bdm)
        self._carriers: Dict[str, List[Bdm]] = collections.defaultdict(list)
        for bdm in snapshot.bdms:
            if bdm.attachment_id:
                self._carriers[bdm.attachment_id].append(bdm)
        self._by_id = {a.id: a for a in snapshot.attachments}
        self._ours: Dict[str, List[Attachment]] = collections.defaultdict(list)
        for attachment in sorted(snapshot.attachments, key=lambda a: a.id):
            if attachment.server_id == self._server.uuid:
                self._ours[attachment.volume_id].append(attachment)
        self._moving = any(
            v is not None
            and (v.status in _MOVING
                 or v.migration_status not in SETTLED_MIGRATION)
            for v in snapshot.volumes.values())
        self._verdicts: Dict[str, _Verdict] = {}

    # Block device mappings

    def judge_bdm(self, bdm: Bdm) -> Finding:
        """One row of the first table."""
        reason, explanation = self._verdict(bdm)
        if reason not in DANGLING:
            return Finding(reason, explanation, bdm=bdm)
        siblings = sorted(self._bdms[bdm.volume_id or ''], key=_turn)
        if any(b.is_root for b in siblings):
            return Finding(
                Reason.ROOT_VOLUME_DANGLING,
                'the root disk is never removed, although %s' % explanation,
                bdm=bdm)
        if not all(b.is_volume for b in siblings):
            return Finding(
                reason, '%s; kept, since only mappings of which source and '
                'destination are "volume" are ever removed, and not every '
                'one of this volume is' % explanation, bdm=bdm)
        for sibling in siblings:
            if self._verdict(sibling).reason not in DANGLING:
                return Finding(
                    self._verdict(sibling).reason,
                    'another mapping of the volume is kept: %s'
                    % self._verdict(sibling).explanation, bdm=bdm)
        ours = self._ours[bdm.volume_id or '']
        for attachment in ours:
            carriers = self._carriers.get(attachment.id, ())
            if any(b.volume_id != bdm.volume_id for b in carriers):
                return Finding(
                    Reason.CROSS_WIRED,
                    'attachment %s of the volume is named by a mapping of '
                    'another volume' % attachment.id, bdm=bdm)
        # Cinder is told when the last mapping of the volume is disconnected.
        # The mappings' own attachments go last: should it end half way, Cinder
        # makes the volume "in-use" by one of them again, and offers it to
        # nobody.
        left_over = sorted(ours, key=lambda a: (
            a.id in self._carriers, a.status != 'reserved', a.id))
        return Finding(reason, explanation, bdm=bdm, action=RemoveBdm(
            bdm, tuple(left_over) if bdm == siblings[-1] else ()))

    def _verdict(self, bdm: Bdm) -> _Verdict:
        if bdm.uuid not in self._verdicts:
            self._verdicts[bdm.uuid] = self._judge(bdm)
        return self._verdicts[bdm.uuid]

    def _judge(self, bdm: Bdm) -> _Verdict:
        volume_id = bdm.volume_id or ''
        if volume_id not in self._snapshot.volumes:
            return _Verdict(
                Reason.OPERATION_IN_FLIGHT,
                'the mapping names no volume yet')
        volume = self._snapshot.volumes[volume_id]
        carried = self._by_id.get(bdm.attachment_id or '')
        if carried is not None and (carried.server_id != self._server.uuid
                                    or carried.volume_id != volume_id):
            return _Verdict(
                Reason.CROSS_WIRED,
                'attachment %s of the mapping belongs to volume %s of '
                'server %s' % (carried.id, carried.volume_id,
                               carried.server_id))
        # The attach API writes the mapping before it reserves the volume, so
        # whatever Cinder says now may be older than the mapping.
        if self._is_young(bdm):
            return _Verdict(
                Reason.ATTACH_IN_FLIGHT,
                'the mapping is new and was never connected: a volume '
                'may be being attached')
        ours = self._ours[volume_id]
        if volume is None:
            if ours:
                return _Verdict(
                    Reason.STATUS_CONTRADICTION,
                    'Cinder does not know the volume, yet lists '
                    'attachment %s of it' % ours[0].id)
            if not self._snapshot.sees_all:
                return _Verdict(
                    Reason.CANNOT_SEE_PROJECT,
                    'the volume does not exist, or belongs to a project that '
                    'the token of this reboot cannot see; only the '
                    'credentials in [cinder] can tell')
            return _Verdict(Reason.VOLUME_MISSING, 'the volume does not exist')
        if volume.migration_status not in SETTLED_MIGRATION:
            return _Verdict(
                Reason.VOLUME_BUSY,
                'the volume is being migrated (%s)'
                % volume.migration_status)
        if volume.status not in KNOWN:
            return _Verdict(
                Reason.VOLUME_BUSY,
                'the volume is %s' % (volume.status or 'in no state'))
        if volume.status in IN_FLIGHT:
            return self._judge_in_flight(bdm, volume, carried)
        if volume.status == 'available':
            return self._judge_available(volume, ours)
        return self._judge_in_use(bdm, volume, carried, ours)

    def _judge_in_flight(self, bdm: Bdm, volume: Volume,
                         carried: Optional[Attachment]) -> _Verdict:
        # Every server of a multiattach volume shares its status: with the
        # attachment in order, another server's attach or detach is seen.
        if volume.multiattach and self._is_attached(bdm, volume, carried):
            return _Verdict(Reason.HEALTHY,
                            'attached, while another server is changing')
        if volume.updated_at is not None and (
                self._now - volume.updated_at >= self._policy.stuck_after):
            return _Verdict(
                Reason.STUCK,
                'the volume is %s since %s' % (
                    volume.status,
                    volume.updated_at.isoformat(' ', 'seconds')))
        return _Verdict(
            Reason.OPERATION_IN_FLIGHT,
            'the volume is %s' % volume.status)

    def _judge_available(self, volume: Volume,
                         ours: Sequence[Attachment]) -> _Verdict:
        listed = self._listed(volume)
        if listed - {a.id for a in ours}:
            return _Verdict(
                Reason.STATUS_CONTRADICTION,
                'Cinder says that the volume is available and attached '
                'to this server by a record that it does not show')
        if ours:
            return _Verdict(
                Reason.VOLUME_AVAILABLE,
                'Cinder says that the volume is available, with '
                'attachment %s left over' % ', '.join(
                    sorted(a.id for a in ours)))
        return _Verdict(
            Reason.VOLUME_AVAILABLE,
            'Cinder says that the volume is available and has no '
            'attachment of this server')

    def _judge_in_use(self, bdm: Bdm, volume: Volume,
                      carried: Optional[Attachment],
                      ours: Sequence[Attachment]) -> _Verdict:
        if self._is_attached(bdm, volume, carried):
            if not bdm.has_connection_info:
                return _Verdict(
                    Reason.STATUS_CONTRADICTION,
                    'Cinder attaches the volume, but Nova has no connection '
                    'information for it and leaves it out of the guest')
            return _Verdict(Reason.HEALTHY, 'attached')
        others = [a for a in ours if a is not carried]
        serving = {a.id for a in others if a.status == 'attached'}
        serving |= self._listed(volume)
        if serving:
            return _Verdict(
                Reason.ATTACHMENT_MISMATCH,
                'the mapping names %s, but what is attached is %s' % (
                    'attachment %s' % bdm.attachment_id
                    if bdm.attachment_id else 'no attachment',
                    ', '.join(sorted(serving - {''}))
                    or 'a record without an id'))
        if ours:
            return _Verdict(
                Reason.OPERATION_IN_FLIGHT,
                'attachment %s is %s' % (ours[0].id, ours[0].status))
        elsewhere = sorted({a.server_id for a in volume.attached_to
                            if a.server_id
                            and a.server_id != self._server.uuid})
        if elsewhere:
            return _Verdict(
                Reason.ATTACHED_ELSEWHERE,
                'Cinder attaches the volume to server %s and not to this '
                'one' % ', '.join(elsewhere))
        return _Verdict(
            Reason.STATUS_CONTRADICTION,
            'Cinder says that the volume is in-use, but by nobody')

    def _is_attached(self, bdm: Bdm, volume: Volume,
                     carried: Optional[Attachment]) -> bool:
        """Whether Cinder attaches the volume to this server as Nova says."""
        if bdm.attachment_id:
            return carried is not None and carried.status == 'attached'
        # Before Queens a mapping carried no attachment id; the volume's own
        # list of attached servers is all there is to compare with.
        return bdm.has_connection_info and any(
            a.server_id == self._server.uuid for a in volume.attached_to)

    def _listed(self, volume: Volume) -> FrozenSet[str]:
        """Attachments to this server in the volume's own list."""
        return frozenset(a.attachment_id or '' for a in volume.attached_to
                         if a.server_id == self._server.uuid)

    def _is_young(self, bdm: Bdm) -> bool:
        if bdm.has_connection_info or bdm.is_disconnected:
            return False
        return (bdm.created_at is None
                or self._now - bdm.created_at < self._policy.grace_period)

    # Attachments that no mapping accounts for

    def unaccounted(self) -> List[Attachment]:
        """The attachments whose id no mapping of any kind carries."""
        return [a for a in self._snapshot.attachments
                if a.id not in self._carriers]

    def judge_attachment(self, attachment: Attachment) -> Optional[Finding]:
        """One row of the second table; None: it belongs to a mapping's."""

        def keep(reason: Reason, explanation: str) -> Finding:
            return Finding(reason, explanation, attachment=attachment)

        if attachment.server_id != self._server.uuid:
            return keep(Reason.CROSS_WIRED,
                        'the attachment belongs to server %s'
                        % attachment.server_id)
        bdms = self._bdms[attachment.volume_id]
        if any(self._verdict(b).reason is not Reason.HEALTHY for b in bdms):
            return None
        if any(not b.attachment_id for b in bdms):
            return None  # The record of a mapping from before Queens.
        if not self._snapshot.sees_all:
            return keep(Reason.CANNOT_SEE_PROJECT,
                        'no mapping accounts for it, but only the credentials '
                        'in [cinder] can tell whether a volume is migrating')
        if not any(b.is_root for b in self._snapshot.bdms):
            return keep(Reason.STATUS_CONTRADICTION,
                        'Nova lists no root disk of the server: its list of '
                        'mappings cannot be whole')
        if self._server.locked_by_admin:
            return keep(Reason.OPERATION_IN_FLIGHT,
                        'an administrator locked the server')
        if self._moving:
            return keep(Reason.OPERATION_IN_FLIGHT,
                        'a volume of the server is being moved')
        volume = self._snapshot.volumes.get(attachment.volume_id)
        if volume is None:
            return keep(Reason.STATUS_CONTRADICTION,
                        'Cinder does not know the volume of the attachment')
        if volume.status not in KNOWN:
            return keep(Reason.VOLUME_BUSY,
                        'the volume is %s' % (volume.status or 'in no state'))
        return self._judge_unaccounted(attachment, volume, bdms)

    def _judge_unaccounted(self, attachment: Attachment, volume: Volume,
                           bdms: Sequence[Bdm]) -> Finding:
        theirs = _host_of(attachment, volume)
        action: Optional[DeleteAttachment] = DeleteAttachment(
            attachment, disconnect=(attachment.connected and not bdms
                                    and theirs == self._server.host))
        reason = Reason.STALE_ATTACHMENT
        if attachment.status == 'reserved' and not attachment.connected:
            explanation = ('it only reserves the volume, and no mapping of '
                           'the server accounts for it')
        elif not attachment.connected and not attachment.is_legacy:
            action = None
            reason = Reason.OPERATION_IN_FLIGHT
            explanation = 'the attachment is %s' % attachment.status
        elif not bdms:
            explanation = 'no mapping of the server has its volume'
        elif all(self._is_of_another_host(attachment, volume, b)
                 for b in bdms):
            explanation = ('it connects another host, while the mapping on '
                           'this host is in order')
        else:
            action = None
            reason = Reason.DUPLICATE_ATTACHMENT
            explanation = ('a second attachment of a volume that is in order; '
                           'deleting it could disconnect the first')
        return Finding(reason, explanation, attachment=attachment,
                       action=action)

    def _is_of_another_host(self, attachment: Attachment, volume: Volume,
                            bdm: Bdm) -> bool:
        """Certain only when Cinder names both hosts and ours is the good."""
        own = self._by_id.get(bdm.attachment_id or '')
        theirs = _host_of(attachment, volume)
        return (theirs not in (None, self._server.host) and own is not None
                and _host_of(own, volume) == self._server.host)


def _turn(bdm: Bdm) -> Tuple[bool, str, str]:
    """The order of acting: what is connected first, then by device."""
    return not bdm.has_connection_info, bdm.device_name or '', bdm.uuid


def _host_of(attachment: Attachment, volume: Volume) -> Optional[str]:
    """The host that an attachment connects, where Cinder tells it."""
    for entry in volume.attached_to:
        if entry.attachment_id == attachment.id:
            return entry.host
    return None
