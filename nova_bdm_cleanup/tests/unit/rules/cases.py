# SPDX-License-Identifier: Apache-2.0
"""Looks at servers in any state, with what the rules decide about them."""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import functools
from typing import Any

from hypothesis import strategies as st

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.rules import decision, facts
from nova_bdm_cleanup.rules.facts import Claimant
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


#: What another server, or another row of this server, can claim.  No mapping
#: of a case names the attachment: claims do not tell which of several
#: mappings of one attachment is given.
_CLAIMS = tuple(make.claim(claimant, volume_id=volume_id,
                           attachment_id='attachment-claimed')
                for claimant in Claimant
                for volume_id in ('volume-1', 'volume-9'))

claims_of_others = st.sampled_from(_CLAIMS)

#: The claims on one disk: none, each alone, and pairs of different kinds.
_claims_of_a_disk = st.sampled_from((
    *(((),) * 20), *((claim,) for claim in _CLAIMS),
    *((one, other) for one in _CLAIMS for other in _CLAIMS[::3])))


def _claims_on(draw: Any, bdms: Iterable[facts.Bdm]) -> facts.Claims:
    """Draw what is claimed of the disks of some mappings."""
    return facts.Claims(
        {b.uuid: draw(_claims_of_a_disk) for b in bdms},
        frozenset(b.uuid for b in bdms if draw(st.booleans())))


@dataclasses.dataclass
class Case:
    """A world, a look at a server in it, a policy, and claims of others."""

    world: fakes.World
    seen: facts.Snapshot
    policy: facts.Policy
    claims: facts.Claims

    @functools.cached_property
    def plan(self) -> facts.Plan:
        return decision.decide(self.seen, self.policy, make.NOW)

    @functools.cached_property
    def judged(self) -> facts.Plan:
        return make.judge(self.seen, self.claims, self.policy)

    @property
    def given(self) -> set[str]:
        """Return the mappings whose disks the driver is given."""
        return given(self.judged)

    def under(self, **policy: Any) -> Case:
        """Return the case of the same look with another policy."""
        return dataclasses.replace(
            self, policy=dataclasses.replace(self.policy, **policy))

    def claimed(self, **claims: Any) -> Case:
        """Return the case of the same look with other claims."""
        return dataclasses.replace(
            self, claims=dataclasses.replace(self.claims, **claims))

    def changed(self, **seen: Any) -> Case:
        """Return the case of another look with the same policy."""
        return dataclasses.replace(
            self, seen=dataclasses.replace(self.seen, **seen))

    @property
    def removals(self) -> list[facts.Finding]:
        """Return the findings about the mappings that go."""
        return [f for f in self.plan.due if f.bdm and f.is_removal]

    @property
    def reconnects(self) -> list[facts.Finding]:
        """Return the findings about the mappings that are reconnected."""
        return [f for f in self.plan.due if f.is_reconnect]

    @property
    def taken(self) -> list[facts.Finding]:
        """Return the removals after which no other mapping has the disk."""
        return [f for f in self.removals
                if f.reason is not Reason.DUPLICATE_MAPPING]

    @property
    def kept(self) -> list[facts.Bdm]:
        """Return the mappings that stay as they are."""
        changed = [f.bdm for f in (*self.removals, *self.reconnects)]
        return [b for b in self.seen.bdms if b not in changed]

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
                _claims_on(draw, seen.bdms))


_shared = worlds.Shared(_cases(), share=4)

#: Run a test with many looks, policies and claims.
of_any_look = _shared.each

#: The same, for tests that draw something else, too.
cases = _shared.strategy()

#: The same without a limit.
generous = cases.map(lambda case: dataclasses.replace(case, policy=GENEROUS))


def given(plan: facts.Plan) -> set[str]:
    """Return the mappings whose disks the driver is given."""
    return {f.bdm.uuid for f in plan.findings
            if f.bdm and not f.is_due} - {*rules.not_given(plan)}


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
    """Return the attachments that a change deletes in Cinder."""
    return [*finding.dependent, *filter(None, [finding.attachment])]


def roots(seen: facts.Snapshot) -> set[str | None]:
    """Return the volumes of root disks."""
    return {b.volume_id for b in seen.bdms if b.is_root} - {None}


def as_seen(plan: facts.Plan) -> set[tuple[object, ...]]:
    """Return the decisions of a plan about mappings and attachments.

    Whether an address is claimed decides over no record.
    """
    return {(f.bdm and f.bdm.uuid, f.attachment and f.attachment.id,
             Reason.HEALTHY if f.reason is Reason.ADDRESS_CLAIMED
             else f.reason, f.action, f.withheld,
             frozenset(a.id for a in f.dependent)) for f in plan.findings}


