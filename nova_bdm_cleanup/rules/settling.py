# SPDX-License-Identifier: Apache-2.0
"""The age of what a verdict rests on.

A read of Cinder's or of Nova's database may be answered by a replica, or by
another Galera node, that does not have the last changes yet.  Such an answer
looks like any other.  But a disk that a read may wrongly show as detached was
attached, moved or swapped a moment ago, and some record of it tells that.

So a verdict against a disk counts only if all its records are older than
``settle_time``, or if two looks that are so long apart give it.  The owner of
a volume can renew the times of its records, so there is one wait and never a
second one.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import datetime

from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Finding, InCinder, Plan

_NOW = datetime.timedelta(0)


def dated(plan: Plan, snapshot: facts.Snapshot, policy: facts.Policy,
          now: datetime.datetime) -> Plan:
    """Return the plan with the time after which each verdict counts."""
    return Plan(tuple(
        dataclasses.replace(finding, settles_in=max(
            policy.settles_in(changed, now)
            for volume_id in _volumes(finding)
            for changed in _changes(volume_id, snapshot)))
        if _is_against_disk(finding) else finding
        for finding in plan.findings))


def agreed(before: Plan, after: Plan) -> Plan:
    """Return the later plan; what both looks found is settled.

    :param before: the plan of ``settle_time`` ago
    """
    known = {_verdict(finding) for finding in before.findings}
    return Plan(tuple(
        dataclasses.replace(finding, settles_in=_NOW)
        if _verdict(finding) in known else finding
        for finding in after.findings))


def _is_against_disk(finding: Finding) -> bool:
    return (finding.is_due or finding.is_out_of_date
            or finding.in_cinder is not InCinder.ATTACHED)


def _verdict(finding: Finding) -> tuple[object, ...]:
    return (finding.bdm and finding.bdm.uuid, finding.attachment_id,
            finding.reason, finding.action, finding.in_cinder,
            finding.is_out_of_date)


def _volumes(finding: Finding) -> Iterator[str | None]:
    yield finding.volume_id
    if finding.swapped_to is not None:
        yield finding.swapped_to.volume_id


def _changes(volume_id: str | None, snapshot: facts.Snapshot
             ) -> Iterator[datetime.datetime | None]:
    """Yield when the records of a volume were changed."""
    server = snapshot.server.uuid
    for bdm in snapshot.bdms:
        if bdm.volume_id == volume_id:
            yield bdm.created_at
            yield bdm.updated_at
    for attachment in snapshot.attachments:
        if (attachment.volume_id == volume_id
                and attachment.server_id == server):
            yield attachment.attached_at
    volume = snapshot.volumes.get(volume_id or '') or facts.ABSENT
    yield volume.updated_at
    for entry in volume.attached_to:
        if entry.server_id == server:
            yield entry.attached_at
