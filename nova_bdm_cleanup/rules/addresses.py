# SPDX-License-Identifier: Apache-2.0
"""Whose is the address: which addresses the driver may connect.

A back end names a SCSI or NVMe volume by a target and the number of a unit
behind it, and gives a number that is free again to another volume.  So the
address in a row of Nova may be that of another guest's disk.  Neither Cinder's
word ``attached`` nor its connection information decides: a member of a project
can write both.

What another server of this host claims is not connected, unless the guest of
this server had it open a moment ago.  Domains, rows of Nova, and what Cinder
gave this host in operations under way are claims.  They are generous: Cinder
is asked about a row, and a disk that was not connected can be connected later.
A back end that names a volume by a name of its own (Ceph, NFS, files) has no
addresses, and no question is asked.

The same claims decide what is disconnected: nothing that another server
claims.  There, servers that share a volume claim it from each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import enum

from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import (
    Bdm,
    Claim,
    Claimant,
    Claims,
    Finding,
    Plan,
)
from nova_bdm_cleanup.rules.mappings import MappingFacts
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.rules.table import first, Row, Table


class Verdict(enum.Enum):
    """The verdict on one address.

    The value is the text in the documentation.
    """

    CONNECTED = 'connected'
    OUT_OF_DATE = '**not connected**'
    CLAIMED = '**not connected**: ``address-claimed``'

    def __str__(self) -> str:
        return self.value


@dataclasses.dataclass(frozen=True)
class AddressFacts:
    """The facts about the address of one disk that the table asks for."""

    #: The claims of others that count.
    claims: Sequence[Claim] = ()
    #: The guest of this server had the disk open when the operation began.
    was_open: bool = False
    #: Where else Cinder shows the attachment, in words; empty: nowhere.
    elsewhere: str = ''
    #: Cinder connects the volume for this server, or does not answer.
    may_be_connected: bool = True

    @property
    def strongest(self) -> Claim:
        return max(self.claims, key=lambda claim: claim.is_strong)


#: The first row that holds decides.
ADDRESSES: Table[Row[AddressFacts, Verdict]] = Table(
    ('The address in the mapping', 'The disk is'), (

    Row('is not the one by which Cinder connects the attachment of this '
        'server, or Cinder connects it to another host',
        lambda a: a.elsewhere,
        Verdict.OUT_OF_DATE,
        '{it.elsewhere}, so the address in its mapping is out of date'),

    Row('is not claimed',
        lambda a: not a.claims,
        Verdict.CONNECTED,
        'no other server of this host claims its address'),

    Row('is claimed, but the guest of this server had it open when the '
        'operation began, and Cinder connects the volume for this server or '
        'does not answer; libvirt shows it in no other running guest, no '
        'other mapping of the server names it, and Cinder has given it to no '
        'other server in an operation under way',
        lambda a: a.was_open and a.may_be_connected
        and not a.strongest.is_strong,
        Verdict.CONNECTED,
        'its guest had it open when the operation began'),

    Row('is claimed otherwise',
        lambda a: True,
        Verdict.CLAIMED,
        'its address on this host may be that of another disk: '
        '{it.strongest}'),
))


def disks_of(bdms: Iterable[Bdm]) -> tuple[Bdm, ...]:
    """Return the disks that Nova gives the driver by an address."""
    return tuple(bdm for bdm in bdms if bdm.is_in_cinder and bdm.addresses)


def judged(plan: Plan, mappings: Mapping[str, MappingFacts],
          claims: Claims) -> Plan:
    """Return the plan with the verdict on the address of each disk.

    :param mappings: the facts about the mappings; empty: Cinder is silent
    """
    disks = disks_of(f.bdm for f in plan.findings if f.bdm)
    # They are given another address, or none.
    renewed = [f.bdm for f in plan.due if f.gets_connection and f.bdm]

    def preference(bdm: Bdm) -> tuple[object, ...]:
        mapping = mappings.get(bdm.uuid)
        return (bool(mapping and mapping.elsewhere),
                bdm.uuid not in claims.open,
                bdm.created_at is None, bdm.created_at, bdm.uuid)

    def counted_claims(bdm: Bdm) -> tuple[Claim, ...]:
        others = tuple(
            claim for claim in claims.others.get(bdm.uuid, ())
            if claim.claimant is not Claimant.OWN_ROW or bdm in renewed
            or not any(b.has_attachment_of(claim) for b in renewed))
        # Else none of several mappings of one attachment would be given.
        preferred = min((b for b in disks if bdm.has_attachment_of(b)
                         and b.addresses & bdm.addresses), key=preference)
        return others if bdm is not preferred else tuple(
            claim for claim in others
            if claim.claimant is not Claimant.OWN_ROW
            or not bdm.has_attachment_of(claim))

    def with_verdict(finding: Finding) -> Finding:
        bdm = finding.bdm
        if bdm is None or not disks_of([bdm]):
            return finding
        mapping = mappings.get(bdm.uuid)
        asked = AddressFacts(
            counted_claims(bdm), bdm.uuid in claims.open,
            mapping.elsewhere if mapping else '',
            mapping is None or mapping.is_connected)
        words, reason = _words_of(asked), finding.reason
        if words and reason is Reason.HEALTHY:
            # What Cinder attaches has no other reason.
            reason = Reason.ADDRESS_CLAIMED
        return dataclasses.replace(
            finding, reason=reason, was_open=asked.was_open, address=words,
            is_out_of_date=bool(asked.elsewhere and not asked.claims),
            is_connected=asked.may_be_connected and not asked.elsewhere)

    return Plan(tuple(map(with_verdict, plan.findings)))


def claimed_since(plan: Plan, claims: Claims) -> Plan:
    """Return the plan with another verdict on some of its disks.

    :param claims: those on the addresses of these disks, which Cinder does not
        connect
    """
    return Plan(tuple(
        dataclasses.replace(finding, address=_words_of(AddressFacts(
            claims.others[finding.bdm.uuid])))
        if finding.bdm is not None and finding.bdm.uuid in claims.others
        else finding for finding in plan.findings))


def _words_of(asked: AddressFacts) -> str:
    """Return why an address must not be connected; empty if it may be."""
    row = first(ADDRESSES.rows, asked)
    return '' if row.outcome is Verdict.CONNECTED else row.explain(asked)


def without_cinder(bdms: Iterable[Bdm], claims: Claims,
                   reason: Reason) -> Plan:
    """Return the plan if Cinder does not answer: only claims decide.

    :param reason: why there is no answer
    """
    return judged(Plan(tuple(
        facts.Finding(reason, 'Cinder has not answered', bdm=bdm)
        for bdm in disks_of(bdms))), {}, claims)
