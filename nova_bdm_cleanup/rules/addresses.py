# SPDX-License-Identifier: Apache-2.0
"""The rule of addresses: which disks the driver is given.

The driver connects and disconnects a disk by the address in its row.  A back
end reuses addresses, so an old row may name the disk of another guest.  One
rule decides for every disk that the driver would be given, to connect or to
disconnect; no option, limit, state or missing answer overrides it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import datetime
import enum
from typing import Callable, NamedTuple

from nova_bdm_cleanup.rules import facts, spelling
from nova_bdm_cleanup.rules.facts import Claim, Finding, Move, Progress
from nova_bdm_cleanup.rules.mappings import MappingFacts, mappings_of
from nova_bdm_cleanup.rules.reasons import NOT_REATTACHED, Reason
from nova_bdm_cleanup.rules.table import first, Row, Table
from nova_bdm_cleanup.rules.world import World


class Verdict(enum.Enum):
    """The verdict of the rule on one disk.

    The value is the text in the documentation.
    """

    GIVEN = 'given to the driver'
    #: Another server certainly has the address, so no device of this disk is
    #: left there.
    TAKEN = '**left out**: another server has it'
    #: Another server may have it.
    UNDECIDED = '**left out**: another server may have it'
    #: The address is not one of this host, so that a removal does not
    #: disconnect it.
    ELSEWHERE = '**left out**: ``other-hosts-address``'
    #: A removal disconnects it like any other disk.
    PERHAPS_ELSEWHERE = '**left out**, perhaps: ``other-hosts-address``'

    def __str__(self) -> str:
        return self.value


#: The first row that holds decides.
ADDRESSES: Table[Row[AddressFacts, Verdict]] = Table(
    ('The address in the row of the disk', 'The disk is'), (

    Row('is that of another host: Cinder attaches the disk to a host from '
        'which Nova has moved the server; or the last move to this host is '
        'complete and has not written the row',
        lambda a: a.host and a.host.is_certain,
        Verdict.ELSEWHERE,
        'its address is that of host {it.host.name}, from which the server '
        'was moved'),

    Row('may be that of another host: the last move to this host failed, or '
        'has not ended, after it wrote the row, and Cinder has not connected '
        'its attachment',
        lambda a: a.host,
        Verdict.PERHAPS_ELSEWHERE,
        'its address may be that of host {it.host.name}: the move from there '
        'failed, or has not ended'),

    Row('is attached in Cinder: the attachment of the row is ``attached``, '
        'for this server and this host',
        lambda a: a.is_confirmed,
        Verdict.GIVEN,
        'Cinder attaches it to this server'),

    Row('is in rows that Nova does not answer for',
        lambda a: a.failure,
        Verdict.UNDECIDED,
        'Nova does not tell which rows of this host name its address '
        '({it.failure})'),

    Row('is named by no other row of this host, and its volume by no row of '
        'another server of this host',
        lambda a: not a.claims,
        Verdict.GIVEN,
        'no other row of this host names its address'),

    Row('is named by another row, and Cinder attaches the volume of that row '
        'to its server; or both rows are of one volume, and the other one '
        'counts by the next line, and its guest may run or it is new',
        lambda a: a.certain,
        Verdict.TAKEN,
        'its address on this host belongs to server {it.certain.server}, '
        'by volume {it.certain.volume_id}'),

    Row('is named by another row that counts. If Cinder denies the attachment '
        'of that row: its guest runs or may run, or it was written in the '
        'last five minutes. If Cinder does not answer: its guest runs, or '
        'the guest of this server does not',
        lambda a: a.possible,
        Verdict.UNDECIDED,
        'its address on this host may be in use by the guest of server '
        '{it.possible.server}, by volume {it.possible.volume_id}'),

    Row('is named only by other rows that do not count',
        lambda a: True,
        Verdict.GIVEN,
        'no guest that runs has its address'),
))


class OtherHost(NamedTuple):
    """A host that the server has left."""

    name: str
    #: The address is certainly one of that host.
    is_certain: bool


@dataclasses.dataclass(frozen=True)
class AddressFacts:
    """The facts about the address of one disk that the table asks for."""

    #: The other rows of this host with the address.
    claims: Sequence[Claim]
    volume_id: str | None = None
    #: Cinder attaches the disk to this server and this host.
    is_confirmed: bool = False
    #: The other host whose address it is, by Nova's records.
    host: OtherHost | None = None
    #: The guest of this server runs, or may run.
    guest_runs: bool = False
    #: Why Nova's rows could not be read.
    failure: str = ''

    @property
    def certain(self) -> Claim | None:
        """Return a row whose server certainly has the address."""
        return next((c for c in self.claims if c.is_attached
                     or c.volume_id == self.volume_id and self._counts(c)
                     and (c.may_run or c.is_young)), None)

    @property
    def possible(self) -> Claim | None:
        """Return a row whose server may have the address."""
        return next(filter(self._counts, self.claims), None)

    def _counts(self, claim: Claim) -> bool:
        if claim.is_attached is None:
            # Of two guests, the one that runs keeps the disk.
            return claim.runs or not self.guest_runs
        return claim.is_attached or claim.may_run or claim.is_young


def verdict_on(asked: AddressFacts) -> tuple[Verdict, str]:
    """Return whether the driver is given a disk, and why."""
    row = first(ADDRESSES.rows, asked)
    return row.outcome, row.explain(asked)


@dataclasses.dataclass(frozen=True)
class Records:
    """Nova's records about the addresses of a server's disks."""

    #: The other rows of this host with the address of a disk, by the uuid of
    #: its mapping.
    claims: Mapping[str, Sequence[Claim]] = dataclasses.field(
        default_factory=dict)
    #: The moves of the server between hosts, the last one first.
    moves: Sequence[Move] = ()
    #: The guest of this server runs, or may run.
    guest_runs: bool = False
    #: Why they could not be read.
    failure: str = ''


def unconfirmed(snapshot: facts.Snapshot, policy: facts.Policy,
                now: datetime.datetime) -> tuple[facts.Bdm, ...]:
    """Return the connected disks that Cinder does not show attached here.

    Only for these are Nova's records read.
    """
    return tuple(m.bdm for m in _disks(snapshot, policy, now)
                 if not _is_confirmed(m))


def apply(plan: facts.Plan, snapshot: facts.Snapshot, policy: facts.Policy,
          now: datetime.datetime, records: Records) -> facts.Plan:
    """Return the plan with the rule applied to each disk.

    :param records: Nova's records about the unconfirmed disks
    """
    verdicts: dict[str, tuple[Verdict, str]] = {}
    for mapping in _disks(snapshot, policy, now):
        uuid = mapping.bdm.uuid
        verdicts[uuid] = verdict_on(AddressFacts(
            records.claims.get(uuid, ()), mapping.bdm.volume_id,
            _is_confirmed(mapping), _other_host(mapping, records.moves),
            records.guest_runs, records.failure))

    def ruled(finding: Finding) -> Finding:
        uuid = finding.bdm.uuid if finding.bdm else ''
        verdict, words = verdicts.get(uuid, (Verdict.GIVEN, ''))
        return (finding if verdict is Verdict.GIVEN
                else _left_out(finding, verdict, words))

    return facts.Plan(tuple(map(ruled, plan.findings)))


def apply_moves(plan: facts.Plan, snapshot: facts.Snapshot,
                policy: facts.Policy, now: datetime.datetime,
                moves: Callable[[], Sequence[Move]]) -> facts.Plan:
    """Return the plan with the addresses of other hosts shown.

    An audit gives the driver no disk, and reads no other rows.

    :param moves: reads Nova's moves of the server, if a row may have the
        address of another host
    """
    # Without the age of a row, only the host of its attachment tells.
    if any(m.bdm.created_at is not None and not _is_confirmed(m)
           or m.is_attached and _named_host(m) is not None
           for m in _disks(snapshot, policy, now)):
        return apply(plan, snapshot, policy, now, Records(moves=moves()))
    return plan


def without_cinder(bdms: Sequence[facts.Bdm], server: facts.Server,
                   records: Records, reason: Reason) -> tuple[Finding, ...]:
    """Return the disks that are left out where Nova's rows alone decide.

    :param reason: why there is no answer of Cinder
    """
    found = []
    for bdm in bdms:
        if bdm.is_in_cinder and bdm.has_connection_info:
            # Servers that share a multiattach volume are no rivals for it.
            claims = [claim for claim in records.claims.get(bdm.uuid, ())
                      if not (bdm.is_multiattach
                              and claim.volume_id == bdm.volume_id)]
            verdict, words = verdict_on(AddressFacts(
                claims, bdm.volume_id,
                host=_host_of_last_move(bdm, server, records.moves),
                guest_runs=records.guest_runs, failure=records.failure))
            if verdict is not Verdict.GIVEN:
                found.append(_left_out(Finding(
                    reason, 'there is no answer of Cinder', bdm=bdm),
                    verdict, words))
    return tuple(found)


def _left_out(finding: Finding, verdict: Verdict, words: str) -> Finding:
    finding = dataclasses.replace(
        finding, address=words,
        decision=dataclasses.replace(
            finding.decision,
            has_address_here=verdict is not Verdict.ELSEWHERE))
    # A dangling disk keeps its reason.
    return dataclasses.replace(
        finding, reason=Reason.OTHER_HOSTS_ADDRESS, explanation=words) \
        if verdict in (Verdict.ELSEWHERE, Verdict.PERHAPS_ELSEWHERE) \
        and not finding.is_removal \
        and finding.reason not in NOT_REATTACHED else finding


def _disks(snapshot: facts.Snapshot, policy: facts.Policy,
           now: datetime.datetime) -> Iterator[MappingFacts]:
    """Yield the disks that have an address."""
    for mapping in mappings_of(World(snapshot, policy, now)).values():
        if mapping.bdm.is_in_cinder and mapping.bdm.has_connection_info:
            yield mapping


def _is_confirmed(mapping: MappingFacts) -> bool:
    """Return whether Cinder attaches a disk to its server and this host."""
    return (mapping.is_attached and not mapping.is_cross_wired
            and not _named_host(mapping))


def _named_host(mapping: MappingFacts) -> str | None:
    """Return the other host that the attachment of a disk connects.

    A host may have been renamed: the name alone proves nothing.
    """
    host = mapping.attached_host
    return host if host and not spelling.is_same_host(
        host, mapping.world.server.host) else None


def _other_host(mapping: MappingFacts,
                moves: Sequence[Move]) -> OtherHost | None:
    """Return the host whose address a row has, if it is not this host."""
    if not mapping.bdm.has_address or _is_confirmed(mapping):
        return None
    named = _named_host(mapping)
    if mapping.is_attached and named:
        # A host that was renamed is the target of a move that is complete.
        move = next((m for m in moves if any(
            spelling.is_same_host(named, host)
            for host in (m.origin, m.target))), None)
        return OtherHost(named, True) if move is not None and (
            spelling.is_same_host(named, move.origin)
            or move.progress is not Progress.COMPLETE) else None
    own = mapping.own
    return _host_of_last_move(
        mapping.bdm, mapping.world.server, moves,
        is_connected=own is not None and not own.only_reserves)


def _host_of_last_move(bdm: facts.Bdm, server: facts.Server,
                       moves: Sequence[Move],
                       is_connected: bool | None = None
                       ) -> OtherHost | None:
    """Return the host that the server has left, if the last move to this host
    has not written a row.

    Every move that completes writes the rows of the server.

    :param is_connected: Cinder has connected the attachment of the row since
        its move began; None: unknown
    """
    move = next((m for m in moves if spelling.host(m.target)
                 == spelling.host(server.host)), None)
    written = bdm.updated_at or bdm.created_at
    if (move is None or not bdm.has_address
            or bdm.created_at is None or written is None
            or bdm.created_at >= move.began):
        return None
    if move.progress is Progress.COMPLETE:
        is_unwritten = written < move.began
    else:
        # Each row is written once on the host that the server leaves, and
        # again on the other one.
        is_unwritten = is_connected is False and (
            move.progress is Progress.OPEN or move.changed is None
            or written <= move.changed)
    return OtherHost(
        move.origin, move.progress is Progress.COMPLETE) if is_unwritten \
        else None
