# SPDX-License-Identifier: Apache-2.0
"""The verdict on one server: all rules in their order, and looks compared.

1. The tables decide about each mapping and attachment, with the disks that
   the guest had, if Nova starts it.
2. If a mapping was never connected: is its attach over, and how did it end?
   If without success: may this host have the device?
   If a disk would be reconnected, and an attachment may serve the guest on
   another host, or a swap may have ended half way: is the guest certainly
   here?
   If the guest goes on, and a disk may be adopted: which device of it is on
   this host?
3. If something would be changed, a volume does not exist, or a swap may have
   ended half way: does this Cinder know other volumes, is a swap unfinished,
   has an administrator locked the server?  The tables decide once more, and
   the guards withhold changes accordingly.
4. Which addresses may be connected?
5. How long until all that the verdicts rest on is settled?

What an answer costs is asked only where it matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import datetime
import math
from typing import Protocol

from nova_bdm_cleanup.rules import (
    addresses,
    attachments,
    facts,
    guards,
    mappings,
    settling,
    spelling,
)
from nova_bdm_cleanup.rules.facts import InCinder, Plan, WitnessAnswer
from nova_bdm_cleanup.rules.mappings import MappingFacts
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.rules.world import World


class Sources(Protocol):
    """The questions that the rules ask of Nova and Cinder only sometimes."""

    def current(self) -> facts.Server:
        """Read the server again."""

    def attaches(self, bdms: Sequence[facts.Bdm]
                 ) -> Mapping[str, facts.Attach]:
        """Return the attaches that made some mappings, by uuid."""

    def absent(self, attachments: Sequence[facts.Attachment]
               ) -> frozenset[str]:
        """Return the attachments, by id, at whose address this host certainly
        has no device.
        """

    def guest_is_here(self) -> bool:
        """Return whether the guest is certainly on this host, and on no
        other one.
        """

    def sources(self, bdms: Sequence[facts.Bdm]
                ) -> Mapping[str, facts.Source] | None:
        """Return the disks that the guest had, by the uuid of the mapping
        whose device each is; None: the host is not asked.
        """

    def left_out(self) -> frozenset[str]:
        """Return the mappings, by uuid, whose disks this guest lacks."""

    def on_host(self, disks: Sequence[tuple[facts.Bdm,
                                            facts.Attachment | None]]
                ) -> Mapping[str, facts.OnHost]:
        """Return what this host has of some disks, by the uuid of the mapping.

        :param disks: each with the attachment that may serve the guest
        """

    def swaps(self) -> facts.Ending:
        """Return the worst ending of the swaps of the server's volumes."""

    def last_swap(self) -> float:
        """Return when the last of them was requested, in seconds since the
        epoch.
        """

    def witness(self) -> WitnessAnswer:
        """Return whether Cinder knows volumes that must exist."""

    def claims(self, disks: tuple[facts.Bdm, ...]) -> facts.Claims:
        """Return the claims on the addresses of some disks."""


def judge(snapshot: facts.Snapshot, sources: Sources, policy: facts.Policy,
          now: datetime.datetime, is_any_attachment: bool = True) -> Plan:
    """Return the findings about one server.

    :param snapshot: one complete look at Nova and Cinder
    :param policy: what the operator allows
    :param now: the time of the look, with its time zone
    :param is_any_attachment: attachments that no mapping names count, too
    :returns: the findings; the due ones are to be carried out
    """
    def decided() -> tuple[Plan, dict[str, MappingFacts]]:
        plan, by_uuid = _decide(World(snapshot, policy, now))
        return plan if is_any_attachment else plan.of_mappings(), by_uuid

    # Assume that it is the right Cinder, and that nothing else is under way.
    snapshot = dataclasses.replace(
        snapshot, witness=WitnessAnswer.KNOWN, swaps=facts.Ending.SUCCESS)
    connected = [b for b in snapshot.bdms
                 if b.is_in_cinder and b.has_connection_info]
    if connected and snapshot.guest is facts.Guest.STARTS:
        snapshot = dataclasses.replace(
            snapshot, sources=sources.sources(connected))
    plan, by_uuid = decided()
    unconnected = [m.bdm for m in by_uuid.values() if m.depends_on_attach]
    if unconnected:
        snapshot = dataclasses.replace(
            snapshot, attaches=sources.attaches(unconnected))
        plan, by_uuid = decided()
    left = [a for m in by_uuid.values() if m.was_never_attached
            for a in m.left_on_host]
    if left:
        snapshot = dataclasses.replace(snapshot, absent=sources.absent(left))
        plan, by_uuid = decided()
    if any(m.depends_on_place for m in by_uuid.values()):
        is_here = sources.guest_is_here()
        snapshot = dataclasses.replace(
            snapshot, guest_is_here=is_here,
            left_out=sources.left_out() if is_here else frozenset())
        plan, by_uuid = decided()
    adoptable = [(m.bdm, m.adoptable) for m in by_uuid.values()
                 if m.depends_on_host]
    if adoptable:
        snapshot = dataclasses.replace(
            snapshot, on_host=sources.on_host(adoptable))
        plan, by_uuid = decided()
    if any(f.is_change or f.in_cinder is InCinder.MISSING
           for f in plan.findings) or any(
            m.may_be_half_swapped for m in by_uuid.values()):
        server, swaps = sources.current(), sources.swaps()
        snapshot = dataclasses.replace(
            snapshot, server=server, swaps=swaps,
            last_swap=math.inf if swaps is facts.Ending.SUCCESS
            else sources.last_swap(),
            witness=sources.witness() if needs_witness(snapshot)
            else WitnessAnswer.KNOWN)
        plan, by_uuid = decided()
    disks = addresses.disks_of(snapshot.bdms)
    if disks:
        plan = addresses.judged(plan, by_uuid, sources.claims(disks))
    return settling.dated(plan, snapshot, policy, now)


def decide(snapshot: facts.Snapshot, policy: facts.Policy,
           now: datetime.datetime) -> Plan:
    """Return the findings of the tables and the guards alone."""
    return _decide(World(snapshot, policy, now))[0]


def _decide(world: World) -> tuple[Plan, dict[str, MappingFacts]]:
    by_uuid = mappings.mappings_of(world)
    findings = [mappings.finding_of(m)
                for m in by_uuid.values() if m.bdm.is_in_cinder]
    for attachment in world.unaccounted:
        finding = attachments.finding_of(attachment, by_uuid, world)
        if finding is not None:
            findings.append(finding)
    has_open_swap = world.snapshot.swaps is facts.Ending.NONE or (
        world.may_have_swapped
        and not all(m.is_decided for m in by_uuid.values()))
    return guards.withhold(findings, world, has_open_swap), by_uuid


def confirm(first: Plan, second: Plan) -> Plan:
    """Return the first plan without the changes that a second look does not
    repeat, and with what it says of the disks.

    The second look is made when nothing can wait any more, so nothing is
    changed that only it has found.

    :param first: the plan that was made before the guest was powered off
    :param second: the plan that the facts give now
    """
    again = {_identity(f): f for f in second.findings if f.is_change}
    disks = {f.bdm.uuid: f for f in second.findings if f.bdm}

    def confirmed(finding: facts.Finding) -> facts.Finding:
        if finding.is_due:
            same = again.get(_identity(finding))
            if same is None:
                finding = finding.withhold(Reason.SECOND_LOOK_DIFFERS)
            elif same.withheld:
                finding = finding.withhold(same.withheld, same.obstacle)
        disk = disks.get(finding.bdm.uuid if finding.bdm else '')
        if disk is None:
            return finding
        return dataclasses.replace(
            finding, address=disk.address, was_open=disk.was_open,
            is_out_of_date=disk.is_out_of_date, in_cinder=disk.in_cinder,
            is_connected=disk.is_connected, guest_had=disk.guest_had)

    return Plan(tuple(map(confirmed, first.findings)))


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
    """Return the key by which both looks find the same change."""
    bdm = finding.bdm
    return (
        finding.reason,
        finding.volume_id,
        bdm and (bdm.uuid, bdm.attachment_id, bdm.has_connection_info),
        finding.attachment,
        finding.first and finding.first.id,
        finding.swapped_to and finding.swapped_to.id,
        finding.action,
        frozenset((a.id, a.volume_id, a.server_id, a.status, a.connected)
                  for a in finding.dependent),
    )
