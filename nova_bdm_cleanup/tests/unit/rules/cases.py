# SPDX-License-Identifier: Apache-2.0
"""Looks at servers in any state, with what the rules decide about them."""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import functools
from typing import Any

from hypothesis import strategies as st

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.rules import addresses, facts
from nova_bdm_cleanup.rules.facts import Claim, Move
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import make, worlds
from nova_bdm_cleanup.tests.unit.node.cleanup import fakes

#: No limit of the policy is in the way.
GENEROUS = facts.Policy(max_removals=1000)

#: The ages of records, in seconds: on both sides of each time of the policy,
#: of unknown age, and written by clocks that are ahead.
_AGES = (86400, 7200, 3600, 3599, 300, 299, 60, 10, 9, 1, 0, -1, -60, -7200,
         None)

_TIMES = tuple(None if age is None else make.ago(age) for age in _AGES)

_times = st.sampled_from((*(_TIMES[:1] * 10), *_TIMES))


def _aged(draw: Any, seen: facts.Snapshot) -> facts.Snapshot:
    """Give the records of a look any age."""
    return dataclasses.replace(
        seen,
        bdms=tuple(dataclasses.replace(
            b, created_at=created, updated_at=draw(st.sampled_from(
                [None, *(t for t in _TIMES if t and created
                         and t >= created)])))
            for b, created in ((b, draw(_times)) for b in seen.bdms)),
        volumes={i: v and dataclasses.replace(
            v, updated_at=draw(_times)) for i, v in seen.volumes.items()},
        attachments=tuple(dataclasses.replace(
            a, attached_at=draw(_times)) for a in seen.attachments))


_CLAIMS = tuple(
    Claim(server, volume_id, attachment_id, runs, may_run, is_young,
          is_attached)
    for server in (make.OTHER_SERVER, 'server-3')
    for volume_id, attachment_id in (
        ('volume-1', 'attachment-1'), ('volume-2', None),
        ('volume-3', 'attachment-gone'), ('volume-9', 'attachment-9'))
    for runs, may_run in ((True, True), (False, True), (False, False))
    for is_young in (True, False)
    for is_attached in (True, False, None))

claims = st.sampled_from(_CLAIMS)

#: The claims on one disk: none, each alone, and pairs of different kinds.
_claims_of_a_disk = st.sampled_from((
    *(((),) * 40), *((claim,) for claim in _CLAIMS),
    *((one, other) for one in _CLAIMS[::5] for other in _CLAIMS[::7])))

_moves_of_the_server = st.sampled_from(((), (), *(
    (Move(origin, target, progress, make.ago(began), changed), *others)
    for origin, target in ((make.HOST, make.OTHER_HOST),
                           (make.OTHER_HOST, make.HOST))
    for progress in facts.Progress
    for began in (90000, 7200, 60, 5, -60)
    for changed in (None, make.ago(began - 5), make.NOW)
    for others in ((), (Move(make.OTHER_HOST, make.HOST,
                             facts.Progress.COMPLETE, make.ago(100000),
                             make.ago(99000)),)))))

_failures = st.sampled_from(['', '', '', '', 'no answer'])


def _records_of(draw: Any, bdms: Iterable[facts.Bdm]) -> addresses.Records:
    """Draw Nova's records about the disks of some mappings."""
    return addresses.Records(
        claims={b.uuid: draw(_claims_of_a_disk) for b in bdms},
        moves=draw(_moves_of_the_server), guest_runs=draw(st.booleans()),
        failure=draw(_failures))


@dataclasses.dataclass
class Case:
    """A world, a look at a server in it, a policy, and Nova's records."""

    world: fakes.World
    seen: facts.Snapshot
    policy: facts.Policy
    records: addresses.Records

    @functools.cached_property
    def plan(self) -> facts.Plan:
        return rules.decide(self.seen, self.policy, make.NOW)

    def applied(self, records: addresses.Records | None = None) -> facts.Plan:
        return addresses.apply(self.plan, self.seen, self.policy, make.NOW,
                               records or self.records)

    def under(self, **policy: Any) -> Case:
        """Return the case of the same look with another policy."""
        return dataclasses.replace(
            self, policy=dataclasses.replace(self.policy, **policy))

    def changed(self, **seen: Any) -> Case:
        """Return the case of another look with the same policy."""
        return dataclasses.replace(
            self, seen=dataclasses.replace(self.seen, **seen))

    @property
    def removals(self) -> list[facts.Finding]:
        """Return the findings about the mappings that go."""
        return [f for f in self.plan.due if f.bdm]

    @property
    def taken(self) -> list[facts.Finding]:
        """Return the removals after which no other mapping has the disk."""
        return [f for f in self.removals
                if f.reason is not Reason.DUPLICATE_MAPPING]

    @property
    def kept(self) -> list[facts.Bdm]:
        """Return the mappings that stay."""
        gone = [f.bdm for f in self.removals]
        return [b for b in self.seen.bdms if b not in gone]

    @property
    def deleted(self) -> set[str]:
        """Return the ids of the attachments that go."""
        return {a.id for f in self.plan.due for a in deleted(f)}


@st.composite
def _cases(draw: Any) -> Case:
    world, seen = draw(worlds.looks())
    if draw(st.booleans()):
        seen = _aged(draw, seen)
    return Case(world, seen, draw(worlds.policies),
                _records_of(draw, seen.bdms))


_shared = worlds.Shared(_cases(), share=4)

#: Run a test with many looks, policies and records.
of_any_look = _shared.each

#: The same, for tests that draw something else, too.
cases = _shared.strategy()

#: The same without a limit.
generous = cases.map(lambda case: dataclasses.replace(case, policy=GENEROUS))


def named(seen: facts.Snapshot) -> set[str | None]:
    """Return the attachments that mappings of the server name."""
    return {b.attachment_id for b in seen.bdms} - {None}


def is_foreign(seen: facts.Snapshot, attachment: facts.Attachment) -> bool:
    """Return whether another project created the record."""
    volume = seen.volumes.get(attachment.volume_id)
    return (volume is not None and volume.project == make.OTHER_PROJECT
            and attachment.id not in named(seen))


def ours(seen: facts.Snapshot, volume_id: str | None
         ) -> list[facts.Attachment]:
    """Return what counts of a volume's attachments to the server."""
    return [a for a in seen.attachments
            if a.volume_id == volume_id and a.server_id == seen.server.uuid
            and not is_foreign(seen, a)]


def shows_attached(seen: facts.Snapshot, volume_id: str | None) -> bool:
    """Return whether Cinder shows a volume in use by the server."""
    volume = seen.volumes.get(volume_id or '')
    return (volume is not None and volume.status == 'in-use' and any(
        a.status == 'attached' and a.connected
        for a in ours(seen, volume_id)))


def deleted(finding: facts.Finding) -> list[facts.Attachment]:
    """Return the attachments that a removal deletes in Cinder."""
    return [*finding.left_over, *filter(None, [finding.attachment])]


def roots(seen: facts.Snapshot) -> set[str | None]:
    """Return the volumes of root disks."""
    return {b.volume_id for b in seen.bdms if b.is_root} - {None}


def as_seen(plan: facts.Plan) -> set[tuple[object, ...]]:
    """Return the decisions of a plan about mappings and attachments."""
    return {(f.bdm and f.bdm.uuid, f.attachment and f.attachment.id,
             f.reason, f.decision, f.withheld,
             frozenset(a.id for a in f.left_over)) for f in plan.findings}


