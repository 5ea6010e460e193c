# SPDX-License-Identifier: Apache-2.0
"""The facts of Nova and Cinder about one server, as plain immutable data.

Adapters fill these classes from Nova objects and Cinder answers; the rules
read nothing else.  Nothing here imports Nova, Cinder or any client.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
import dataclasses
import datetime
import enum
import math
from typing import NamedTuple

from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.reasons import Reason, REMOVED

#: A target and a logical unit number behind it.  A back end gives a number
#: that is free again to another volume.
Address = tuple[str, str]


#: Seconds by which the clocks of Nova's services may differ.
_CLOCKS_DIFFER = 3600.0


@dataclasses.dataclass(frozen=True)
class Source:
    """Where the data of a disk is: by its connection information, by the
    hypervisor, or by the journal.

    Two of them are compared by what both tell.
    """

    addresses: frozenset[Address] = frozenset()
    #: The name by which the back end knows the volume.
    name: str | None = None
    #: The device or the file on this host.  Its name is another one's as soon
    #: as nothing has it open.
    path: str | None = None
    #: Empty: the guest had another one, which is not known.
    attachment_id: str | None = None
    #: The journal tells that the guest was here, and on no other host.
    was_here: bool = False

    def is_same(self, other: Source) -> bool:
        """Return whether both are certainly the same."""
        return bool(self.addresses & other.addresses) or any(
            one is not None and one == another
            for one, another in self._pairs(other)) or (
                self.path is not None and self.path == other.path)

    def is_other(self, other: Source) -> bool:
        """Return whether both are certainly not the same.

        One device may have several paths.
        """
        return not self.is_same(other) and (
            bool(self.addresses and other.addresses) or any(
                None not in pair for pair in self._pairs(other)))

    def _pairs(self, other: Source
               ) -> tuple[tuple[str | None, str | None], ...]:
        return ((self.name, other.name),
                (self.attachment_id, other.attachment_id))

    def __str__(self) -> str:
        return self.name or self.path or ', '.join(
            '%s unit %s' % each for each in sorted(self.addresses)
        ) or 'another disk'


@dataclasses.dataclass(frozen=True)
class Server:
    """The server whose disks are looked at."""

    uuid: str
    project: str | None = None
    #: The compute host, spelt as Cinder's connectors spell it.
    host: str = ''
    #: It is on no host, and its volumes are reserved for it.
    is_offloaded: bool = False
    #: The host that it is evacuated from, which is down; empty: it is not.
    former_host: str = ''
    #: An administrator has locked it, as ``nova-manage volume_attachment
    #: refresh`` does while it exchanges attachments.  For the commands
    #: every lock counts, unless an operator says otherwise.
    is_locked: bool = False
    #: Nova carries out another operation on it than the one that is looked
    #: at.
    is_busy: bool = False


@dataclasses.dataclass(frozen=True)
class Bdm:
    """One block device mapping of the server."""

    uuid: str
    source_type: str | None = None
    destination_type: str | None = None
    volume_id: str | None = None
    attachment_id: str | None = None
    boot_index: int | None = None
    #: The API does not show which disk of the server is the root.  Of a row
    #: of Nova, the boot index tells it.
    may_be_root: bool = False
    device_name: str | None = None
    #: The connection_info itself holds secrets and stays with the adapter.
    has_connection_info: bool = False
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None
    #: The addresses in its connection information; none if a back end names
    #: the volume by a name of its own.
    addresses: frozenset[Address] = frozenset()
    #: The name of the volume in the back end, if it has no addresses, and the
    #: device or the file on the host, in its connection information.
    back_end_name: str | None = None
    path: str | None = None
    #: By its connection information, several servers may have the volume.
    is_multiattach: bool = False

    @property
    def source(self) -> Source:
        return Source(self.addresses, self.back_end_name, self.path,
                      self.attachment_id)

    def is_newer_than_swaps(self, last: float) -> bool:
        """Tell whether the disk was connected after all swaps had begun.

        A swap writes the row only at its end, if it succeeds.

        :param last: when the last one was requested, in seconds since the
            epoch
        """
        return self.updated_at is not None and (
            self.updated_at.timestamp() > last + _CLOCKS_DIFFER)

    def has_attachment_of(self, other: Bdm | Claim) -> bool:
        """Tell whether another row has the same volume and attachment."""
        return ((self.volume_id, self.attachment_id)
                == (other.volume_id, other.attachment_id))

    @property
    def is_volume(self) -> bool:
        """Tell whether source and destination are ``volume``.

        Of other kinds only the operator can have removed what is missing.
        """
        return self.source_type == self.destination_type == 'volume'

    @property
    def is_in_cinder(self) -> bool:
        """Tell whether its disk is a volume, existing or created by Nova."""
        return self.destination_type == 'volume'

    @property
    def is_root(self) -> bool:
        return self.boot_index == 0


@dataclasses.dataclass(frozen=True)
class Attachment:
    """One attachment record of Cinder."""

    id: str
    volume_id: str
    server_id: str | None
    status: str
    #: Cinder stores connection information, so a host was given access.  It
    #: holds secrets, is large, and stays with the adapter, too.
    connected: bool = False
    #: The addresses in it.  Anyone who may change the attachment writes them.
    addresses: frozenset[Address] = frozenset()
    #: The name of the volume in the back end, if it has no addresses.
    back_end_name: str | None = None
    #: The initiators of that host; most back ends do not tell them.
    initiators: frozenset[str] = frozenset()
    #: When it was connected.  Cinder does not tell when it was created.
    attached_at: datetime.datetime | None = None

    @property
    def is_legacy(self) -> bool:
        """Tell whether it was made by ``os-attach``.

        The back end was never told through such a record: a plain delete
        drops the row and leaves the volume mapped to the host.
        """
        return self.status == 'attached' and not self.connected

    @property
    def is_half_connected(self) -> bool:
        """Tell whether Cinder died between exporting the volume to a host and
        recording that.

        A plain delete of such a record leaves the volume mapped, too: Cinder
        treats a reserved attachment as never connected.
        """
        return self.status == 'reserved' and self.connected

    @property
    def only_reserves(self) -> bool:
        return self.status == 'reserved' and not self.connected

    @property
    def source(self) -> Source:
        return Source(self.addresses, self.back_end_name,
                      attachment_id=self.id)


@dataclasses.dataclass(frozen=True)
class AttachedServer:
    """One entry of a volume's own list of attached servers."""

    server_id: str | None
    attachment_id: str | None = None
    host: str | None = None
    attached_at: datetime.datetime | None = None


#: An attach or a detach of some server is under way.
IN_FLIGHT = ('reserved', 'attaching', 'detaching')

#: A server has the volume, or is about to have it; in other states none does.
TAKEN = ('in-use', *IN_FLIGHT)

#: No server has the volume: Cinder begins a transfer of no other volume.
FREE = ('available', 'awaiting-transfer')

#: No migration of the volume is under way.
_SETTLED = frozenset((None, '', 'none', 'success', 'error'))


@dataclasses.dataclass(frozen=True)
class Label:
    """The name of a volume and more for people; no rule reads it."""

    name: str = ''
    #: In GiB; None: not known.
    size: int | None = None
    #: The cinder-volume of its back end.
    back_end: str = ''
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Volume:
    """One volume as Cinder describes it."""

    id: str
    status: str
    project: str | None = None
    multiattach: bool = False
    migration_status: str | None = None
    attached_to: tuple[AttachedServer, ...] = ()
    updated_at: datetime.datetime | None = None
    label: Label = dataclasses.field(default=Label(), compare=False)

    @property
    def state(self) -> str:
        """Return the status in words."""
        return self.status or 'in no state'

    @property
    def is_migrating(self) -> bool:
        """Tell whether a migration of the volume is, or may be, under way.

        An unknown status may mean one.
        """
        return self.migration_status not in _SETTLED

    @property
    def is_out_of_order(self) -> bool:
        """Tell whether Cinder never ends its state by itself."""
        return self.status.startswith('error') or self.status == 'maintenance'

    def is_foreign_to(self, project: str | None) -> bool:
        """Tell whether it certainly belongs to another project."""
        return (self.project is not None and project is not None
                and not spelling.is_same(self.project, project))

    def host_of(self, attachment_id: str | None) -> str | None:
        """Return the host that an attachment connects, if Cinder tells it."""
        for entry in self.attached_to:
            if entry.attachment_id == attachment_id:
                return entry.host
        return None


#: Stands for a volume that does not exist.
ABSENT = Volume(id='', status='')


class Ending(enum.IntEnum):
    """The result of an operation in Nova's records; the greatest is worst.

    Only Nova writes these records; a user cannot forge one.
    """

    SUCCESS = 0
    FAILURE = 1
    #: No end was recorded: it is under way, or nova-compute died.
    NONE = 2
    #: Nova does not tell.  Then nothing is changed.
    UNKNOWN = 3

    @classmethod
    def of(cls, results: Iterable[str | None]) -> Ending:
        """Return how one operation ended.

        :param results: the results of its events; None: no end yet
        """
        found = tuple(results)
        if not found or None in found:
            return cls.NONE
        return cls.SUCCESS if set(found) == {'Success'} else cls.FAILURE


class Attach(enum.Enum):
    """The attach that made a mapping without connection information."""

    #: It may be under way, or the guest may have the disk.
    UNKNOWN = 'unknown'
    #: It is over, and did not succeed; the guest does not have the disk.
    FAILED = 'failed'


class Claimant(enum.Enum):
    """The claimant of an address of this host.

    The value is the text in the log.
    """

    #: A running guest has the device, or may get it.
    GUEST = 'the guest of server {0.server} has it'
    #: Cinder gave it to this host in an operation that is under way.
    OPERATION = ('Cinder has just given it to server {0.server}, for volume '
                 '{0.volume_id}')
    ROW = 'server {0.server} has volume {0.volume_id} there'
    #: Another row of the same server.
    OWN_ROW = 'the mapping of volume {0.volume_id} names it, too'
    #: The hypervisor does not tell the disks of the guests.
    ANY_GUEST = 'the hypervisor does not tell which guest has it'
    #: Nova does not tell the rows of this host.
    ANY_ROW = 'Nova does not tell which mappings name it'


#: Claims that are stronger than that of a guest that had the disk a moment
#: ago.
_STRONG_CLAIMANTS = frozenset((
    Claimant.GUEST, Claimant.OPERATION, Claimant.OWN_ROW, Claimant.ANY_GUEST))


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of another server, or of another mapping of the same server, on
    the address of a disk.
    """

    claimant: Claimant
    #: Its server; empty: it is not one of Nova's.
    server: str = ''
    volume_id: str | None = None
    attachment_id: str | None = None

    @property
    def is_strong(self) -> bool:
        """Tell whether it counts more than that the guest had the disk."""
        return self.claimant in _STRONG_CLAIMANTS

    def __str__(self) -> str:
        return self.claimant.value.format(self)


@dataclasses.dataclass(frozen=True)
class Claims:
    """The claims on the addresses of the disks of one server."""

    #: Those that count, by the uuid of the mapping.
    others: Mapping[str, tuple[Claim, ...]] = dataclasses.field(
        default_factory=dict)
    #: The mappings whose disks the guest of the server had open when the
    #: operation began.
    open: frozenset[str] = frozenset()

    @property
    def shows_guests(self) -> bool:
        """Return whether the hypervisor has told its domains."""
        return not any(claim.claimant is Claimant.ANY_GUEST
                       for found in self.others.values() for claim in found)


class InCinder(enum.Enum):
    """The attachment of a disk to its server, as Cinder shows it."""

    #: It shows one, or it is not known.
    ATTACHED = 'attached'
    #: It shows none.
    UNATTACHED = 'unattached'
    #: It shows none, and attaches the volume, which is not multiattach, to
    #: another server.
    ELSEWHERE = 'attached elsewhere'
    #: The volume certainly does not exist.
    MISSING = 'missing'


#: The states in which a migration of Nova is over for the guest.
ENDED_MIGRATIONS = ('completed', 'done', 'confirmed', 'reverted', 'error',
                    'failed', 'cancelled')


class Guest(enum.Enum):
    """The guest in the operation of Nova on its server."""

    #: Nova starts it by its rows, so that a disk may be reconnected.
    STARTS = 'starts'
    #: Nova connects each disk to this host, by the attachment that the mapping
    #: names, and starts it.
    ARRIVES = 'arrives'
    #: It goes on, so that its disks may only be adopted.
    GOES_ON = 'goes on'
    #: It does none of these.
    OTHER = 'other'


class InGuest(enum.Enum):
    """A disk in the domain of a server on this host, or why it has none.

    The value is the text in the log.
    """

    DISK = 'it runs on this host, and has that disk'
    NOT_RUNNING = 'it does not run on this host'
    MIGRATING = 'it is being migrated'
    NO_DISK = 'it has no disk with the serial of the volume'
    COPIED = 'its disk is being copied to another one'
    OTHER_DISK = 'its disk with the serial of the volume is another one'
    #: Cinder shows no attachment to compare it with.
    NOT_COMPARED = 'there is no attachment to compare its disk with'
    UNKNOWN = 'the hypervisor does not tell'


@dataclasses.dataclass(frozen=True)
class OnHost:
    """The device of a disk that may be adopted, its guest, and Nova."""

    #: What the kernel has at the address of the attachment, or the name that
    #: the back end gives the volume; empty: nothing.
    device: str = ''
    in_guest: InGuest = InGuest.UNKNOWN
    #: The operation of Nova on the server that may be in progress; empty: none
    #: is.
    operation: str = 'it is not known what Nova does'


class PartyAnswer(NamedTuple):
    """The answer of one party: does an attachment serve the guest?"""

    party: str
    agrees: bool
    words: str


class Answers(NamedTuple):
    """Cinder's answers about one server."""

    #: The volumes by id; None: it does not exist.
    volumes: dict[str, Volume | None]
    attachments: tuple[Attachment, ...]
    #: There are more attachments than a cleanup can wait for.
    is_cut: bool = False


class WitnessAnswer(enum.Enum):
    """Cinder's answer about volumes that must exist.

    A wrong region or a restored database answers that everything is gone.
    """

    #: Cinder knows one.
    KNOWN = 'known'
    #: Some must exist, but Cinder knows none of those that it was asked for.
    UNKNOWN = 'unknown'
    #: No other server of the cell has a volume.
    NONE_EXISTS = 'none exists'


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The result of one look at Nova and Cinder.

    The mappings and Cinder's answers in it are complete: without them there is
    no snapshot.  :func:`rules.judge` adds the witness and the swaps.
    """

    server: Server
    bdms: tuple[Bdm, ...]
    #: One key for each requested volume; None: it certainly does not exist.
    volumes: Mapping[str, Volume | None]
    attachments: tuple[Attachment, ...]
    witness: WitnessAnswer = WitnessAnswer.UNKNOWN
    #: The credentials see every project.  Otherwise a volume of another
    #: project looks like one that does not exist, and migrations are not
    #: shown.
    sees_all: bool = True
    #: The worst ending of the server's volume swaps.  Nova is asked only if
    #: something would be removed.
    swaps: Ending = Ending.SUCCESS
    #: When the last of them was requested, in seconds since the epoch.
    last_swap: float = math.inf
    #: Nova's lock of the server is held, so that no operation on its disks is
    #: under way.
    holds_lock: bool = False
    guest: Guest = Guest.STARTS
    #: What this host has of disks that may be adopted, by the uuid of the
    #: mapping.  The node is asked only where disks are adopted.
    on_host: Mapping[str, OnHost] = dataclasses.field(default_factory=dict)
    #: The attaches of mappings without connection information, by uuid.  The
    #: node is asked only if there are such mappings.
    attaches: Mapping[str, Attach] = dataclasses.field(default_factory=dict)
    #: Attachments, by id, at whose address this host certainly has no device.
    #: The node is asked only if the attach of their mapping is over, and did
    #: not succeed.
    absent: frozenset[str] = frozenset()
    #: The guest was certainly on the host of the server, and on no other one,
    #: when the operation began.  The node is asked only if a reconnect depends
    #: on it.  Where the server comes to this host, it is on no host, or at
    #: most on the former one, which is down.
    guest_is_here: bool = False
    #: The disks that the guest had when the operation began, by the uuid of
    #: the mapping whose device each is; None: the host was not asked.
    sources: Mapping[str, Source] | None = None
    #: The mappings, by uuid, whose disks this guest does not have: a start
    #: has left them out, and another guest of the server may have them.
    left_out: frozenset[str] = frozenset()


class Action(enum.Enum):
    """An action on a mapping of the server, or on an attachment."""

    KEEP = 'keep'
    #: Disconnect the disk from this host, remove the mapping's row, and delete
    #: its attachments in Cinder.
    REMOVE = 'remove'
    #: Another mapping has the disk: remove only the row.
    REMOVE_ROW = 'remove the row only'
    #: Delete an attachment that no mapping accounts for.
    DELETE = 'delete'
    #: Disconnect it from this host first.  Only if Cinder says that it
    #: connects this host, and only by the data of a deleted mapping: another
    #: disk may have the same address here.  Never if a mapping has the same
    #: volume, whose device it could remove.
    DISCONNECT_AND_DELETE = 'disconnect and delete'
    #: An attachment goes or stays with the mapping of its volume.
    LEAVE_TO_MAPPING = 'leave it to its mapping'
    #: An attachment that another project wrote is ignored.
    IGNORE = 'ignore'
    #: Give the disk one attachment to this host: delete the others, and take
    #: Cinder's answer into the mapping.
    RECONNECT = 'reconnect'
    #: Have the mapping take over the attachment by which the guest, which goes
    #: on, has the disk; delete the others.
    ADOPT = 'adopt'
    #: A guard: what another table asks for is not carried out.
    WITHHOLD = 'withhold'


#: The actions that remove something.
_REMOVING_ACTIONS = frozenset((
    Action.REMOVE, Action.REMOVE_ROW, Action.DELETE,
    Action.DISCONNECT_AND_DELETE))


@dataclasses.dataclass(frozen=True)
class Finding:
    """A finding about a mapping, or about an attachment that no mapping
    accounts for.
    """

    reason: Reason
    #: Plain words for the log and the journal.
    explanation: str
    bdm: Bdm | None = None
    attachment: Attachment | None = None
    #: What the rules ask for its row, or for the attachment.
    action: Action = Action.KEEP
    #: What Cinder shows of the attachment of the disk.
    in_cinder: InCinder = InCinder.ATTACHED
    #: It is the root disk, or has the same volume.
    is_root: bool = False
    #: Whether it is removed or connected depends on whether it is the root
    #: disk, which is not shown.
    depends_on_root: bool = False
    #: The attachments to delete in Cinder after the mapping, or in a
    #: reconnect or an adoption, in this order; never those from before Queens.
    dependent: tuple[Attachment, ...] = ()
    #: A reconnect begins with this attachment: one that only reserves the
    #: volume is used, any other one is completed.  None: with a new one.  An
    #: adoption has the mapping take it over.
    first: Attachment | None = None
    #: Who agrees that it serves the guest, where disks are adopted.
    parties: tuple[PartyAnswer, ...] = ()
    #: The mapping takes this attachment and its volume: the guest has it since
    #: a swap that Nova has not completed.
    swapped_to: Attachment | None = None
    #: The disk that the guest had in its place, if that was asked and is
    #: known.
    guest_had: Source | None = None
    #: Why the removal is withheld; None: it is not.
    withheld: Reason | None = None
    #: The same in plain words, where the reason alone does not say it.
    obstacle: str = ''
    #: Why the driver must not connect its address.
    address: str = ''
    #: That is only because Cinder connects it elsewhere: it is not claimed.
    is_out_of_date: bool = False
    #: Cinder connects its volume for the server, so that it gives the address
    #: to no other one, or it does not tell.
    is_connected: bool = True
    #: The guest had it open when the operation began.
    was_open: bool = False
    #: How long until every read shows the last changes of its records.
    settles_in: datetime.timedelta = datetime.timedelta(0)

    @property
    def volume_id(self) -> str | None:
        if self.bdm is not None:
            return self.bdm.volume_id
        return self.attachment.volume_id if self.attachment else None

    @property
    def attachment_id(self) -> str | None:
        if self.attachment is not None:
            return self.attachment.id
        return self.bdm.attachment_id if self.bdm else None

    @property
    def device(self) -> str | None:
        return self.bdm.device_name if self.bdm else None

    @property
    def is_of_server(self) -> bool:
        """Tell whether it is about the server itself, and no disk of it."""
        return self.bdm is None and self.attachment is None

    @property
    def is_removal(self) -> bool:
        """Tell whether the rules ask for its removal, withheld or not."""
        return self.action in _REMOVING_ACTIONS

    @property
    def is_reconnect(self) -> bool:
        """Tell whether the rules ask for a reconnect, withheld or not."""
        return self.action is Action.RECONNECT

    @property
    def is_adoption(self) -> bool:
        """Tell whether the rules ask for an adoption, withheld or not."""
        return self.action is Action.ADOPT

    @property
    def is_agreed(self) -> bool:
        """Tell whether the guest certainly has the disk, by an attachment
        that all parties name.
        """
        return bool(self.parties) and all(p.agrees for p in self.parties)

    @property
    def guest_had_disk(self) -> bool:
        """Tell whether the guest certainly had the disk itself."""
        return (self.guest_had is not None
                and self.guest_had.attachment_id == self.attachment_id)

    @property
    def rolls_back(self) -> bool:
        """Tell whether only the swap of the disk is undone in Cinder."""
        return (self.is_reconnect and self.swapped_to is None
                and self.reason is Reason.SWAP_INTERRUPTED)

    @property
    def gets_connection(self) -> bool:
        """Tell whether Cinder connects its disk to this host once more."""
        return self.is_reconnect and not self.rolls_back

    @property
    def is_change(self) -> bool:
        """Tell whether the rules ask for anything, withheld or not."""
        return self.is_removal or self.is_reconnect or self.is_adoption

    @property
    def disconnect(self) -> bool:
        """Tell whether the disk is disconnected from this host first."""
        return self.action in (Action.REMOVE, Action.DISCONNECT_AND_DELETE,
                               Action.RECONNECT)

    @property
    def deleted(self) -> tuple[Attachment, ...]:
        """Return the attachments that its change may delete.

        A reconnect also deletes one that it has completed, unless it turns
        out to connect this host by the address in the mapping.
        """
        if (self.first is None or self.first.only_reserves
                or self.is_adoption):
            return self.dependent
        return (*self.dependent, self.first)

    @property
    def is_due(self) -> bool:
        """Tell whether what the rules ask for will be carried out."""
        return self.is_change and self.withheld is None

    @property
    def replaced_early(self) -> tuple[Attachment, ...]:
        """Return the attachments that a reconnect deletes before it makes one.

        Those that are not complete may keep Cinder from making another one.
        One is always left: otherwise any server could take the volume.
        """
        early = tuple(a for a in self.dependent if a.status != 'attached')
        return early if self.first or len(early) < len(self.dependent) else ()

    @property
    def lacks_attachment(self) -> bool:
        """Tell whether Cinder certainly shows no attachment of the server."""
        return not self.settles_in and self.in_cinder in (
            InCinder.UNATTACHED, InCinder.ELSEWHERE)

    def withhold(self, why: Reason, obstacle: str = '') -> Finding:
        """Return the finding with its change withheld.

        :param obstacle: the same as the reason, in plain words
        """
        return dataclasses.replace(self, withheld=why, obstacle=obstacle)


#: The log and the journal list this many attachments of a kind one by one.
_MAX_LISTED_OF_A_KIND = 4


@dataclasses.dataclass(frozen=True)
class Plan:
    """The findings of one server, in the order in which they are acted on."""

    findings: tuple[Finding, ...] = ()

    @property
    def due(self) -> tuple[Finding, ...]:
        """Return the findings whose change will be carried out."""
        return tuple(f for f in self.findings if f.is_due)

    @property
    def removals(self) -> int:
        """Count the mappings that will be removed."""
        return sum(f.is_removal and f.bdm is not None for f in self.due)

    @property
    def deletions(self) -> int:
        """Count the stale attachments that will be deleted."""
        return sum(f.bdm is None for f in self.due)

    @property
    def settles_in(self) -> datetime.timedelta:
        """Return how long until all that it rests on is settled."""
        return max((f.settles_in for f in self.findings),
                   default=datetime.timedelta(0))

    def withhold(self, why: Reason, obstacle: str = '',
                 of_mappings: bool | None = None,
                 of_volumes: Container[str | None] | None = None) -> Plan:
        """Return the plan with every due change withheld.

        :param obstacle: the same as the reason, in plain words
        :param of_mappings: only removals of mappings, or of attachments
        :param of_volumes: only changes of these volumes
        """
        return Plan(tuple(
            f.withhold(why, obstacle)
            if f.is_due and (of_mappings is None or f.is_removal
                             and of_mappings == (f.bdm is not None))
            and (of_volumes is None or f.volume_id in of_volumes) else f
            for f in self.findings))

    def of_mappings(self) -> Plan:
        """Return the findings about mappings only."""
        return Plan(tuple(f for f in self.findings if f.bdm is not None))

    def summed_up(self) -> Plan:
        """Return the plan as the log and the journal list it.

        Every project can make many attachments.  Of those that are kept, or
        whose deletion is withheld, for the same reason, only the first few
        are listed one by one.
        """
        listed: list[Finding] = []
        kinds: dict[tuple[object, ...], list[Finding]] = {}
        for finding in self.findings:
            if finding.bdm is None and not finding.is_due:
                alike = kinds.setdefault(
                    (finding.reason, finding.withheld, finding.obstacle), [])
                alike.append(finding)
                if len(alike) > _MAX_LISTED_OF_A_KIND:
                    continue
            listed.append(finding)
        listed += [dataclasses.replace(
            alike[0], attachment=None, action=Action.KEEP,
            explanation='%d more attachments like these' % (
                len(alike) - _MAX_LISTED_OF_A_KIND))
            for alike in kinds.values()
            if len(alike) > _MAX_LISTED_OF_A_KIND]
        return Plan(tuple(listed))


@dataclasses.dataclass(frozen=True)
class Policy:
    """The operator's policy for the rules and the cleaner."""

    observe: bool = False
    #: The reasons for which anything is removed; the rest is reported.
    remove: frozenset[Reason] = REMOVED | {Reason.STALE_ATTACHMENT}
    #: A missing volume may also be one that Nova created.
    remove_created: bool = False
    grace_period: datetime.timedelta = datetime.timedelta(seconds=300)
    #: How long the reads of a database may lag behind its writes.
    settle_time: datetime.timedelta = datetime.timedelta(seconds=10)
    stuck_after: datetime.timedelta = datetime.timedelta(seconds=3600)
    max_removals: int = 8
    max_removals_per_hour: int = 32
    timeout: float = 60.0
    #: Disks are reconnected.
    reconnect: bool = True

    def is_young(self, since: datetime.datetime | None,
                 now: datetime.datetime) -> bool:
        """Return whether something is too new to be judged.

        Something of unknown age is.
        """
        return since is None or now - since < self.grace_period

    def settles_in(self, since: datetime.datetime | None,
                   now: datetime.datetime) -> datetime.timedelta:
        """Return how long until every read certainly shows a change.

        What is dated in the future, by a clock that is ahead, counts as now.
        Something of unknown age is old.
        """
        if since is None:
            return datetime.timedelta(0)
        return max(self.settle_time - (now - min(since, now)),
                   datetime.timedelta(0))

    def is_stuck(self, since: datetime.datetime | None,
                 now: datetime.datetime) -> bool:
        """Return whether something is too old to be under way.

        Something of unknown age never is.
        """
        return since is not None and now - since >= self.stuck_after
