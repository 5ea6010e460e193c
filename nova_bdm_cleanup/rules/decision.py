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
"""The tables put to a snapshot, and two looks compared."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Tuple

from nova_bdm_cleanup.model import Attachment
from nova_bdm_cleanup.model import Finding
from nova_bdm_cleanup.model import Plan
from nova_bdm_cleanup.model import Policy
from nova_bdm_cleanup.model import Reason
from nova_bdm_cleanup.model import RemoveBdm
from nova_bdm_cleanup.model import Snapshot
from nova_bdm_cleanup.rules import attachments
from nova_bdm_cleanup.rules import guards
from nova_bdm_cleanup.rules import mappings
from nova_bdm_cleanup.rules.world import World


def decide(snapshot: Snapshot, policy: Policy,
           now: datetime.datetime) -> Plan:
    """What is found at one server and what follows from it.

    :param snapshot: one complete look at Nova and Cinder
    :param policy: what the operator allows
    :param now: the time of the look, with its time zone
    :returns: the findings; those with a due action are to be acted on
    """
    world = World(snapshot, policy, now)
    found = {b.uuid: mappings.judge(b, world) for b in world.bdms}
    findings = [mappings.conclude(m, found, world)
                for m in found.values() if m.bdm.is_in_cinder]
    for attachment in world.unaccounted:
        finding = attachments.judge(attachment, found, world)
        if finding is not None:
            findings.append(finding)
    return guards.withhold(findings, world)


def confirm(first: Plan, second: Plan) -> Plan:
    """The first plan, less every action that a second look does not repeat.

    :param first: the plan that was made before the guest was powered off
    :param second: the plan that the facts give now
    :returns: the first plan's findings; actions only where both agree
    """
    again = {_identity(f): (f.withheld, f.obstacle) for f in second.findings
             if f.action is not None}

    def agreed(finding: Finding) -> Finding:
        withheld, obstacle = again.get(
            _identity(finding), (Reason.SECOND_LOOK_DIFFERS, ''))
        return dataclasses.replace(
            finding, withheld=withheld, obstacle=obstacle)

    return Plan(tuple(agreed(f) if f.is_due else f for f in first.findings))


def needs_witness(snapshot: Snapshot) -> bool:
    """Whether Cinder has yet to prove that it is the right Cinder.

    A volume of this server that it does know is proof enough.  One of another
    project is not, unless a mapping names it.
    """
    mapped = {b.volume_id for b in snapshot.bdms if b.volume_id}
    project = snapshot.server.project
    return any(snapshot.volumes[v] is None
               for v in mapped.intersection(snapshot.volumes)) and not any(
        v is not None and (
            v.id in mapped or project is not None and v.project == project)
        for v in snapshot.volumes.values())


def needs_swaps(snapshot: Snapshot) -> bool:
    """Whether an interrupted swap of volumes would change the plan.

    It leaves an attachment that no mapping names, and that lets a host in.
    """
    carried = {b.attachment_id for b in snapshot.bdms}
    return any((a.connected or a.is_legacy) and a.id not in carried
               for a in snapshot.attachments)


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
