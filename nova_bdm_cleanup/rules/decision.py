# SPDX-License-Identifier: Apache-2.0
"""The tables put to a snapshot, and two looks compared."""

from __future__ import annotations

import dataclasses
import datetime

from nova_bdm_cleanup.rules import attachments, guards, mappings, spelling
from nova_bdm_cleanup.rules.facts import (
    Attachment,
    Finding,
    Plan,
    Policy,
    Reason,
    RemoveBdm,
    Snapshot,
)
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
    found = mappings.judge(world)
    findings = [mappings.conclude(m)
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
            v.id in mapped or project is not None
            and v.project is not None and spelling.is_same(v.project, project))
        for v in snapshot.volumes.values())


def needs_swaps(snapshot: Snapshot) -> bool:
    """Whether an interrupted swap of volumes would change the plan.

    It leaves an attachment that no mapping names, and that lets a host in.
    """
    carried = {b.attachment_id for b in snapshot.bdms}
    return any((a.connected or a.is_legacy) and a.id not in carried
               for a in snapshot.attachments)


def _identity(finding: Finding) -> tuple[object, ...]:
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


def _attachment_identity(attachment: Attachment) -> tuple[object, ...]:
    return (attachment.id, attachment.volume_id, attachment.server_id,
            attachment.status, attachment.connected)
