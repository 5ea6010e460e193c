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

from nova_bdm_cleanup.rules import facts, spelling
from nova_bdm_cleanup.rules.facts import Claim, Finding, Move, Progress
from nova_bdm_cleanup.rules.mappings import MappingFacts, mappings_of
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.rules.table import first, Row, Table
from nova_bdm_cleanup.rules.world import World


class Verdict(enum.Enum):
    """Whether the driver is given a disk.

    The value is the text in the documentation.
    """

    GIVEN = 'given to the driver'
    #: Another server certainly has the address, so no device of this disk is
    #: left there.
    TAKEN = '**left out**: another server has it'
    #: Another server may have it.
    UNDECIDED = '**left out**: another server may have it'
    #: The address is not one of this host.
    ELSEWHERE = '**left out**: ``other-hosts-address``'

    def __str__(self) -> str:
        return self.value


#: The first row that holds decides.
ADDRESSES: Table[Row[AddressFacts, Verdict]] = Table(
    ('The address in the row of the disk', 'The disk is'), (

    Row('is that of another host: Cinder attaches the disk to another host '
        'from which Nova has moved the server; or Nova\'s last move of the '
        'server to this host has not written the row',
        lambda a: a.is_of_another_host,
        Verdict.ELSEWHERE,
        'its address is that of host {it.other_host}, from which the server '
        'was moved'),

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
        'to its server; or both rows are of one volume, and the guest of the '
        'other server runs or may run',
        lambda a: a.certain,
        Verdict.TAKEN,
        'its address on this host belongs to server {it.certain.server}, '
        'by volume {it.certain.volume_id}'),

    Row('is named by another row, and Cinder denies that attachment or does '
        'not answer, and the guest of the other server runs or may run, or '
        'its row was written in the last five minutes',
        lambda a: a.possible,
        Verdict.UNDECIDED,
        'its address on this host may be in use by the guest of server '
        '{it.possible.server}, by volume {it.possible.volume_id}'),

    Row('is named by another row, Cinder does not answer, and the guest of '
        'this server does not run',
        lambda a: a.unanswered and not a.guest_runs,
        Verdict.UNDECIDED,
        'Cinder does not tell whether its address on this host belongs to '
        'server {it.unanswered.server}, by volume {it.unanswered.volume_id}'),

    Row('is named by other rows whose guests are off: Cinder denies their '
        'attachments; or it does not answer, and the guest of this server '
        'runs',
        lambda a: True,
        Verdict.GIVEN,
        'no guest that runs has its address'),
))


@dataclasses.dataclass(frozen=True)
class AddressFacts:
    """The facts about the address of one disk that the table asks for."""

    #: The other rows of this host with the address.
    claims: Sequence[Claim]
    volume_id: str | None = None
    #: Cinder attaches the disk to this server and this host.
    is_confirmed: bool = False
    #: The host whose address it is, if Nova's records name another one.
    other_host: str | None = None
    #: The guest of this server runs, or may run.
    guest_runs: bool = False
    #: Why Nova's rows could not be read.
    failure: str = ''

    @property
    def is_of_another_host(self) -> bool:
        return self.other_host is not None

    @property
    def certain(self) -> Claim | None:
        """Return a row whose server certainly has the address."""
        return next((c for c in self.claims if c.is_attached
                     or c.volume_id == self.volume_id and (
                         c.may_run or c.is_young)), None)

    @property
    def possible(self) -> Claim | None:
        """Return a row whose server may have the address."""
        return next((c for c in self.claims if c.may_run or c.is_young), None)

    @property
    def unanswered(self) -> Claim | None:
        """Return a row of which Cinder does not tell."""
        return next((c for c in self.claims if c.is_attached is None), None)


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


def may_be_elsewhere(snapshot: facts.Snapshot, policy: facts.Policy,
                     now: datetime.datetime) -> bool:
    """Return whether a row may have the address of another host.

    Only then does an audit read Nova's moves of the server.  It gives the
    driver no disk, and reads no other rows.
    """
    # Without the age of a row, only the host of its attachment tells.
    return any(m.bdm.created_at is not None and not _is_confirmed(m)
               or m.is_attached and _named_host(m) is not None
               for m in _disks(snapshot, policy, now))


def without_cinder(bdms: Sequence[facts.Bdm], server: facts.Server,
                   records: Records, reason: Reason) -> tuple[Finding, ...]:
    """Return the disks that are left out where Nova's rows alone decide.

    :param reason: why there is no answer of Cinder
    """
    found = []
    for bdm in bdms:
        if bdm.is_in_cinder and bdm.has_connection_info:
            verdict, words = verdict_on(AddressFacts(
                records.claims.get(bdm.uuid, ()), bdm.volume_id,
                other_host=_host_of_last_move(bdm, server, records.moves),
                guest_runs=records.guest_runs, failure=records.failure))
            if verdict is not Verdict.GIVEN:
                found.append(_left_out(Finding(
                    reason, 'there is no answer of Cinder', bdm=bdm),
                    verdict, words))
    return tuple(found)


def _left_out(finding: Finding, verdict: Verdict, words: str) -> Finding:
    is_elsewhere = verdict is Verdict.ELSEWHERE
    finding = dataclasses.replace(
        finding, address=words,
        decision=dataclasses.replace(
            finding.decision, is_given=False,
            has_address_here=not is_elsewhere))
    # A row that the rules remove keeps its reason.
    return dataclasses.replace(
        finding, reason=Reason.OTHER_HOSTS_ADDRESS, explanation=words) \
        if is_elsewhere and not finding.is_removal else finding


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
    host = mapping.volume.host_of(mapping.bdm.attachment_id)
    return host if host and not spelling.is_same_host(
        host, mapping.world.server.host) else None


def _other_host(mapping: MappingFacts, moves: Sequence[Move]) -> str | None:
    """Return the host whose address a row has, if it is not this host."""
    named = _named_host(mapping)
    if mapping.is_attached and named and any(
            spelling.is_same_host(named, host) for move in moves
            for host in (move.origin, move.target)):
        return named
    own = mapping.own
    return _host_of_last_move(
        mapping.bdm, mapping.world.server, moves,
        is_connected=own is not None and not own.only_reserves)


def _host_of_last_move(bdm: facts.Bdm, server: facts.Server,
                       moves: Sequence[Move],
                       is_connected: bool = False) -> str | None:
    """Return the host that the last move left, if that has not written a row.

    Every move that completes writes the rows of the server.

    :param is_connected: Cinder has connected the attachment of the row since
        its move began
    """
    if not moves or spelling.host(moves[0].target) != spelling.host(
            server.host):
        return None
    move = moves[0]
    written = bdm.updated_at or bdm.created_at
    if (bdm.created_at is None or written is None
            or bdm.created_at >= move.began):
        return None
    is_unwritten = written < move.began
    if move.progress is not Progress.COMPLETE:
        # Each row is written once on the host that the server leaves, and
        # again on the other one.
        is_unwritten = not is_connected and (
            move.progress is Progress.OPEN or move.changed is None
            or written <= move.changed)
    return move.origin if is_unwritten else None
