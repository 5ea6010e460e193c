# SPDX-License-Identifier: Apache-2.0
"""The tables applied to a snapshot, and two looks compared."""

from __future__ import annotations

import datetime

from nova_bdm_cleanup.rules import (
    attachments,
    facts,
    guards,
    mappings,
    spelling,
)
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.rules.world import World


def decide(snapshot: facts.Snapshot, policy: facts.Policy,
           now: datetime.datetime) -> facts.Plan:
    """Return the findings about one server, with their decisions.

    :param snapshot: one complete look at Nova and Cinder
    :param policy: what the operator allows
    :param now: the time of the look, with its time zone
    :returns: the findings; the due ones are to be carried out
    """
    world = World(snapshot, policy, now)
    by_uuid = mappings.mappings_of(world)
    findings = [mappings.finding_of(m)
                for m in by_uuid.values() if m.bdm.is_in_cinder]
    for attachment in world.unaccounted:
        finding = attachments.finding_of(attachment, by_uuid, world)
        if finding is not None:
            findings.append(finding)
    return guards.withhold(findings, world)


def confirm(first: facts.Plan, second: facts.Plan) -> facts.Plan:
    """Withhold every removal that a second look does not repeat.

    :param first: the plan that was made before the guest was powered off
    :param second: the plan that the facts give now
    :returns: the first plan's findings; due only where both agree
    """
    again = {_identity(f): (f.withheld, f.obstacle)
             for f in second.findings if f.is_removal}

    def agreed(finding: facts.Finding) -> facts.Finding:
        withheld, obstacle = again.get(
            _identity(finding), (Reason.SECOND_LOOK_DIFFERS, ''))
        return finding.withhold(withheld, obstacle) if withheld else finding

    return facts.Plan(tuple(
        agreed(f) if f.is_due else f for f in first.findings))


def needs_witness(snapshot: facts.Snapshot) -> bool:
    """Return whether Cinder has yet to prove that it is the right Cinder.

    A volume of this server that Cinder knows is enough.  A volume of another
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


def _identity(finding: facts.Finding) -> tuple[object, ...]:
    """Return the key by which both looks find the same removal."""
    bdm = finding.bdm
    return (
        finding.reason,
        finding.volume_id,
        bdm and (bdm.uuid, bdm.attachment_id, bdm.has_connection_info),
        finding.attachment,
        finding.disconnect,
        frozenset((a.id, a.volume_id, a.server_id, a.status, a.connected)
                  for a in finding.left_over),
    )
