# SPDX-License-Identifier: Apache-2.0
"""The age of what a removal rests on.

A read of Cinder's or of Nova's database may be answered by a replica, or by
another Galera node, that does not have the last changes yet.  Such an answer
looks like any other.  But a disk that a read may wrongly show as detached was
attached, moved or swapped a moment ago, and some record of it tells that.
"""

from __future__ import annotations

from collections.abc import Iterator
import datetime

from nova_bdm_cleanup.rules import facts


def unsettled_for(plan: facts.Plan, snapshot: facts.Snapshot,
                  policy: facts.Policy, now: datetime.datetime
                  ) -> dict[str, datetime.timedelta]:
    """Return how long until all that the due removals rest on is settled.

    :param snapshot: what the plan was made from
    :returns: the times by volume; only of those that are not settled
    """
    found = {}
    for volume_id in {f.volume_id for f in plan.due if f.volume_id}:
        left = max(policy.settles_in(changed, now)
                   for changed in _changes(volume_id, snapshot))
        if left:
            found[volume_id] = left
    return found


def _changes(volume_id: str, snapshot: facts.Snapshot
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
    volume = snapshot.volumes.get(volume_id) or facts.ABSENT
    yield volume.updated_at
    for entry in volume.attached_to:
        if entry.server_id == server:
            yield entry.attached_at
