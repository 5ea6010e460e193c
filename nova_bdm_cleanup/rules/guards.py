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
"""Why an action that the other tables ask for is not carried out."""

from __future__ import annotations

import dataclasses
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

from nova_bdm_cleanup.model import Attachment
from nova_bdm_cleanup.model import Finding
from nova_bdm_cleanup.model import Plan
from nova_bdm_cleanup.model import Reason
from nova_bdm_cleanup.model import RemoveBdm
from nova_bdm_cleanup.model import WitnessAnswer
from nova_bdm_cleanup.rules.table import Row
from nova_bdm_cleanup.rules.table import Table
from nova_bdm_cleanup.rules.world import World


@dataclasses.dataclass(frozen=True)
class Withhold:
    """The action is not carried out."""

    reason: Reason

    def __str__(self) -> str:
        return '``%s``' % self.reason


def elsewhere(_action: ActionFacts) -> bool:
    """The cleaner asks this itself: no look at Nova and Cinder can tell."""
    return False


GUARDS: Table[Row[ActionFacts, Withhold]] = Table(
    ('Nothing is done where', 'reason'), (

    # While it looks
    Row('Cinder has not answered. Only its own, typed "not found" counts as '
        'gone; a time-out, an error, a proxy\'s page, an answer that does '
        'not parse and a list that was cut say nothing',
        elsewhere,
        Withhold(Reason.CINDER_UNKNOWN),
        'Cinder gave no usable answer to a second look'),

    Row('no credentials show the server\'s volumes: ``[cinder]`` has none, '
        'and the user\'s token is of another project than the server; or '
        'those in ``[cinder]`` do not see all projects',
        elsewhere,
        Withhold(Reason.CANNOT_SEE_PROJECT),
        'a second look was not possible'),

    # When it decides
    # Neither may keep what would harm somebody else.
    Row('the volume, of the server\'s project, is marked '
        '``bdm_cleanup=keep``, or the server is and the reason is not '
        '``attached-elsewhere``',
        lambda a: a.volume_is_kept or a.server_is_kept,
        Withhold(Reason.OPTED_OUT),
        'the server or the volume is marked bdm_cleanup=keep'),

    Row('``remove_when`` or ``stale_attachments`` leaves it out',
        lambda a: not a.is_selected,
        Withhold(Reason.NOT_SELECTED),
        '[bdm_cleanup] remove_when or stale_attachments leaves it out'),

    # It may be the wrong Cinder, or a restored database.
    Row('a volume is missing, and there are witnesses (other volumes of the '
        'server, of this host or of this cell) of which Cinder knows none. '
        'Then nothing at all is done',
        lambda a: (a.plan.witness is WitnessAnswer.REFUTED
                   and a.plan.misses_a_volume),
        Withhold(Reason.CINDER_SUSPECT),
        'this Cinder knows none of the volumes that must exist: a wrong '
        'region, or a restored database?'),

    Row('a volume is missing, Cinder knows no witness among those that it '
        'was asked for, and there are more. Then nothing at all is done',
        lambda a: (a.plan.witness is WitnessAnswer.UNPROVED
                   and a.plan.misses_a_volume),
        Withhold(Reason.CINDER_SUSPECT),
        'no volume that this Cinder must know was found among those asked '
        'for, and there are more: a wrong region, or a restored database?'),

    Row('several volumes are missing, and the cell has no other. Then '
        'nothing at all is done',
        lambda a: (a.plan.witness is WitnessAnswer.NONE_EXISTS
                   and a.plan.misses_several_volumes),
        Withhold(Reason.CINDER_SUSPECT),
        'this Cinder knows no volume of this cell: a wrong region, or a '
        'restored database?'),

    Row('it is a mapping, and more of them than ``max_removals`` would be '
        'removed. Then none of them is',
        lambda a: a.is_mapping and a.plan.has_too_many_mappings,
        Withhold(Reason.OVER_LIMIT),
        'more mappings than [bdm_cleanup] max_removals would be removed; none '
        'is'),

    # With those that are left over on the volume of a mapping that goes.
    Row('it is an attachment, and ``max_attachments`` others go first: those '
        'that connect a host, then in the order of their ids',
        lambda a: not a.is_mapping and not a.plan.has_room_for(a.finding),
        Withhold(Reason.OVER_LIMIT),
        'more attachments than [bdm_cleanup] max_attachments would be '
        'deleted; the rest is left to later reboots'),

    # Before it acts
    Row('the reboot is a soft one',
        elsewhere,
        Withhold(Reason.SOFT_REBOOT),
        'a soft reboot keeps the old disks; reboot the server hard to clean '
        'it up'),

    Row('the server is no longer in a hard reboot on this host',
        elsewhere,
        Withhold(Reason.REBOOT_LOST),
        'the server is no longer in a hard reboot on this host'),

    Row('the server is no longer being started, or has something else '
        'going on when the host boots',
        elsewhere,
        Withhold(Reason.START_LOST),
        'the server is not, or no longer, being started on this host'),

    Row('a server that is off is being swept, and is no longer only that: '
        'somebody starts, moves or deletes it',
        elsewhere,
        Withhold(Reason.SWEEP_LOST),
        'the server is not, or no longer, stopped on this host with nothing '
        'going on'),

    Row('it is not a reboot, and the guest runs. Only a reboot switches it '
        'off',
        elsewhere,
        Withhold(Reason.GUEST_RUNNING),
        'the guest is not off; a hard reboot switches it off and cleans up'),

    Row('the mode is ``observe``',
        elsewhere,
        Withhold(Reason.OBSERVE_MODE),
        '[bdm_cleanup] mode is observe'),

    # The mappings of the host and the attachments of a project are counted
    # apart from each other.
    Row('more mappings on this host, or more stale attachments of servers of '
        'this project, would be removed within an hour than '
        '``max_removals_per_hour``. Then nothing of that kind is done',
        elsewhere,
        Withhold(Reason.OVER_LIMIT),
        'it would exceed [bdm_cleanup] max_removals_per_hour; nothing of '
        'this kind is removed'),

    Row('the plan cannot be written to the journal',
        elsewhere,
        Withhold(Reason.JOURNAL_UNWRITABLE),
        'it cannot be recorded in the journal'),

    # When the guest is off
    Row('a second look does not find the same as the first',
        elsewhere,
        Withhold(Reason.SECOND_LOOK_DIFFERS),
        'a second look found something else'),

    Row('``timeout`` is over, or ``host_boot_timeout`` while nova-compute '
        'starts',
        elsewhere,
        Withhold(Reason.TIMED_OUT),
        'the time that [bdm_cleanup] allows is over; the next cleanup of the '
        'server tries again'),

    Row('Cinder wants a service token',
        elsewhere,
        Withhold(Reason.SERVICE_TOKEN_REQUIRED),
        'Cinder wants a service token'),

    Row('an earlier step of the same disk failed',
        elsewhere,
        Withhold(Reason.STEP_FAILED),
        'a second look was not possible'),
))

_ASKED_HERE = tuple(g for g in GUARDS.rows if g.holds is not elsewhere)

#: Why an action is withheld, in plain words, where no finding says it.
WORDS: Dict[Reason, str] = {
    g.outcome.reason: g.words
    for g in (*GUARDS.rows,
              # Of several rows with one reason, that which is asked there.
              *(g for g in GUARDS.rows if g.holds is elsewhere))}


class ActionFacts:
    """What a guard may ask about one action."""

    def __init__(self, finding: Finding, plan: PlanFacts,
                 world: World) -> None:
        self.finding: Finding = finding
        #: All that is to be done together with it.
        self.plan: PlanFacts = plan
        self._world = world
        self.is_mapping: bool = isinstance(finding.action, RemoveBdm)

    @property
    def server_is_kept(self) -> bool:
        """The mark holds, too: no other server has the disk."""
        return (self._world.server.keep
                and self.finding.reason is not Reason.ATTACHED_ELSEWHERE)

    @property
    def volume_is_kept(self) -> bool:
        """The mark is of the server's own project."""
        volume_id = self.finding.volume_id or ''
        volume = self._world.volumes.get(volume_id)
        return (volume is not None and volume.keep
                and not self._world.is_foreign(volume_id))

    @property
    def is_selected(self) -> bool:
        """The operator wants such a thing to be done."""
        policy = self._world.policy
        if self.is_mapping:
            return self.finding.reason in policy.remove_when
        return policy.stale_attachments


class PlanFacts:
    """What a guard may ask about all that no guard above withholds."""

    def __init__(self, findings: Sequence[Finding], world: World) -> None:
        self._world = world
        self._due: Sequence[Finding] = ()
        self._mappings = 0
        self._first: Optional[Set[int]] = None
        self.witness: WitnessAnswer = world.snapshot.witness
        self.misses_a_volume: bool = any(
            f.reason is Reason.VOLUME_MISSING for f in findings)

    def narrow(self, due: Sequence[Finding]) -> None:
        """Say what is left to be done."""
        self._due = due
        self._mappings = sum(isinstance(f.action, RemoveBdm) for f in due)
        self._first = None

    @property
    def misses_several_volumes(self) -> bool:
        """They bear witness for each other."""
        return self.misses_a_volume and len(self._world.bdms_of) > 1

    @property
    def has_too_many_mappings(self) -> bool:
        return self._mappings > self._world.policy.max_removals

    def has_room_for(self, finding: Finding) -> bool:
        """An attachment is among the first, which are deleted."""
        if self._first is None:
            room = self._world.policy.max_attachments
            attachments = []
            for each in self._due:
                if isinstance(each.action, RemoveBdm):
                    room -= len(_left_over(each.action, self._world))
                else:
                    attachments.append(each)
            attachments.sort(key=_turn_of_finding)
            self._first = {id(f) for f in attachments[:max(0, room)]}
        return id(finding) in self._first


def withhold(findings: Sequence[Finding], world: World) -> Plan:
    """Put every guard to every action that no guard above withholds."""
    plan = PlanFacts(findings, world)
    due = [ActionFacts(f, plan, world)
           for f in findings if f.action is not None]
    if not due:
        return Plan(tuple(findings))
    plan.narrow([a.finding for a in due])
    withheld: Dict[int, Row[ActionFacts, Withhold]] = {}
    for guard in _ASKED_HERE:
        stopped = [a for a in due if guard.holds(a)]
        if stopped:
            withheld.update((id(a.finding), guard) for a in stopped)
            due = [a for a in due if id(a.finding) not in withheld]
            plan.narrow([a.finding for a in due])
    if withheld:
        findings = [
            dataclasses.replace(f, withheld=withheld[id(f)].outcome.reason,
                                obstacle=withheld[id(f)].words)
            if id(f) in withheld else f for f in findings]
    return Plan(tuple(_within_limit(findings, world)))


def _within_limit(findings: Sequence[Finding],
                  world: World) -> Iterator[Finding]:
    """The same, with no more left-over attachments than may be deleted.

    A mapping goes all the same.  What is left of its volume is stale then,
    and is deleted in another reboot.
    """
    room = world.policy.max_attachments
    for finding in findings:
        action = finding.action
        if isinstance(action, RemoveBdm) and finding.is_due:
            left_over = _left_over(action, world)
            dropped = sorted(left_over, key=_turn)[max(0, room):]
            room -= len(left_over)
            if dropped:
                yield dataclasses.replace(
                    finding, action=dataclasses.replace(
                        action, attachments=tuple(
                            a for a in action.attachments
                            if a not in dropped)))
                continue
        yield finding


def _left_over(action: RemoveBdm, world: World) -> List[Attachment]:
    """The attachments that go with a mapping and that none names."""
    return [a for a in action.attachments if a.id not in world.carriers_of]


def _turn(attachment: Attachment) -> Tuple[bool, str]:
    """What connects a host goes first."""
    return attachment.status == 'reserved', attachment.id


def _turn_of_finding(finding: Finding) -> Tuple[bool, str]:
    return _turn(finding.attachment) if finding.attachment else (True, '')
