# SPDX-License-Identifier: Apache-2.0
"""What Nova and Cinder say about one server, as plain immutable data.

Adapters fill these classes from Nova objects and Cinder answers; the rules
read nothing else.  Nothing here imports Nova, Cinder or any client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import dataclasses
import datetime
import enum
from typing import NamedTuple

from nova_bdm_cleanup.rules.reasons import (
    Code as Code,
    DANGLING as DANGLING,
    Reason as Reason,
    REMOVED as REMOVED,
)


@dataclasses.dataclass(frozen=True)
class Server:
    """The server whose disks are looked at."""

    uuid: str
    project: str | None = None
    #: The compute host, spelt as Cinder's connectors spell it.
    host: str = ''
    #: It is on no host, and its volumes are reserved for it.
    is_offloaded: bool = False
    #: An administrator has locked it, as ``nova-manage volume_attachment
    #: refresh`` does while it exchanges attachments.  The API does not tell
    #: who did: to the commands every lock counts.
    is_locked: bool = False


@dataclasses.dataclass(frozen=True)
class Bdm:
    """One block device mapping of the server."""

    uuid: str
    source_type: str | None = None
    destination_type: str | None = None
    volume_id: str | None = None
    attachment_id: str | None = None
    boot_index: int | None = None
    device_name: str | None = None
    #: The connection_info itself holds secrets and stays with the adapter.
    has_connection_info: bool = False
    created_at: datetime.datetime | None = None

    @property
    def is_volume(self) -> bool:
        """Source and destination are ``volume``: the only kind removed."""
        return self.source_type == self.destination_type == 'volume'

    @property
    def is_in_cinder(self) -> bool:
        """Its disk is a volume, made from whatever source."""
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
    #: Cinder stores connection information, so a host was let in.  It holds
    #: secrets, is large, and stays with the adapter, too.
    connected: bool = False
    #: By what the back end knows that host; most back ends do not tell.
    initiators: frozenset[str] = frozenset()

    @property
    def is_legacy(self) -> bool:
        """Made by ``os-attach``: the back end was never told through it.

        A plain delete of such a record drops the row and leaves the volume
        mapped to the host.
        """
        return self.status == 'attached' and not self.connected

    @property
    def is_half_connected(self) -> bool:
        """A host was let in, and Cinder died before it said so.

        A plain delete of such a record leaves the volume mapped, too: Cinder
        takes what is only reserved for never connected.
        """
        return self.status == 'reserved' and self.connected

    @property
    def only_reserves(self) -> bool:
        return self.status == 'reserved' and not self.connected


@dataclasses.dataclass(frozen=True)
class AttachedServer:
    """One entry of a volume's own list of attached servers."""

    server_id: str | None
    attachment_id: str | None = None
    host: str | None = None


#: An attach or a detach of some server is under way.
IN_FLIGHT = ('reserved', 'attaching', 'detaching')

#: Somebody has the volume, or is about to; in other states nobody does.
TAKEN = ('in-use', *IN_FLIGHT)

#: No migration of the volume is under way.
_SETTLED = frozenset((None, '', 'none', 'success', 'error'))


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

    @property
    def state(self) -> str:
        """The status in words."""
        return self.status or 'in no state'

    @property
    def is_migrating(self) -> bool:
        """Also where Cinder says it in a word that is not known here."""
        return self.migration_status not in _SETTLED

    def host_of(self, attachment_id: str | None) -> str | None:
        """The host that an attachment connects, where Cinder tells it."""
        for entry in self.attached_to:
            if entry.attachment_id == attachment_id:
                return entry.host
        return None


#: Stands for one that does not exist.
ABSENT = Volume(id='', status='')


class Ending(enum.IntEnum):
    """Result of an operation, by Nova's record of it; the greatest is worst.

    Only Nova writes these records; a user cannot forge one.
    """

    SUCCESS = 0
    FAILURE = 1
    #: No end was recorded: it is under way, or nova-compute died.
    NONE = 2

    @classmethod
    def of(cls, results: Iterable[str | None]) -> Ending:
        """Return how one operation ended.

        :param results: of the events of its action; None: no end yet
        """
        found = tuple(results)
        if not found or None in found:
            return cls.NONE
        return cls.SUCCESS if set(found) == {'Success'} else cls.FAILURE


class Answers(NamedTuple):
    """What Cinder said about one server."""

    #: By id; None for one that does not exist.
    volumes: dict[str, Volume | None]
    attachments: tuple[Attachment, ...]
    #: There are more attachments than anybody could wait for.
    is_cut: bool = False


class WitnessAnswer(enum.Enum):
    """Whether Cinder knows a volume that must exist.

    A wrong region or a restored database politely says that everything is
    gone.
    """

    #: Cinder knows one.
    KNOWN = 'known'
    #: There are some, and Cinder knows none of those that it was asked for.
    UNKNOWN = 'unknown'
    #: The cell has no volume but those in question.
    NONE_EXISTS = 'none exists'


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """All that one look at Nova and Cinder gave.

    A snapshot is complete or it does not exist: when any question went
    unanswered there is none, and nothing is decided.
    """

    server: Server
    bdms: tuple[Bdm, ...]
    #: One key for each volume asked for; None: proved not to exist.
    volumes: Mapping[str, Volume | None]
    attachments: tuple[Attachment, ...]
    witness: WitnessAnswer = WitnessAnswer.UNKNOWN
    #: Asked with credentials that see every project.  With others a volume
    #: of another project looks like one that does not exist, and a migration
    #: is not shown.
    sees_all: bool = True
    #: How the swaps of volumes of the server ended.  Nova is asked only where
    #: something would be removed.
    swaps: Ending = Ending.SUCCESS


#: What follows for the guest where a mapping is kept and its disk is not
#: connected; said before a reboot and after it.
WITHOUT_DISK = ('the guest comes back without the disk: as long as Cinder '
                'shows no attachment of this server, the disk may be somebody '
                'else\'s')


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing noticed about a mapping, or about an attachment that no
    mapping accounts for; acted on or not.
    """

    reason: Reason
    #: Plain words for the log and the journal.
    explanation: str
    bdm: Bdm | None = None
    attachment: Attachment | None = None
    #: The rules ask for its removal.
    goes: bool = False
    #: First it is disconnected from this host.  Not a mapping of a disk that
    #: another one has: only its row goes.  An attachment only where Cinder
    #: says that it connects this host, and by what a deleted mapping tells:
    #: the same address may be another disk's here.  And never where a mapping
    #: has the same volume: that could take the device from it.
    disconnect: bool = False
    #: What is deleted in Cinder when the mapping is gone, in this order.  What
    #: was attached before Queens is not.
    left_over: tuple[Attachment, ...] = ()
    #: Why it is not removed all the same; None: it is.
    withheld: Reason | None = None
    #: The same in plain words, where the reason alone does not say it.
    obstacle: str = ''
    #: The disk is connected when the guest comes back, as far as its mapping
    #: is still there: another decision than what becomes of the mapping.
    connects: bool = True

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
    def is_due(self) -> bool:
        """The removal will be carried out."""
        return self.goes and self.withheld is None


#: What doubts Cinder, and what the options say: the disk is connected as if
#: the plugin had not looked.
_CONNECTS = frozenset((
    Reason.OBSERVE_MODE,
    Reason.NOT_SELECTED,
    Reason.CINDER_SUSPECT,
    Reason.OVER_LIMIT,
))

#: How many attachments of one kind are told one by one.
_TOLD = 4


@dataclasses.dataclass(frozen=True)
class Plan:
    """The findings of one server, in the order in which they are acted on."""

    findings: tuple[Finding, ...] = ()

    @property
    def due(self) -> tuple[Finding, ...]:
        """What is to be removed."""
        return tuple(f for f in self.findings if f.is_due)

    @property
    def removals(self) -> int:
        """How many mappings are to be removed."""
        return sum(f.bdm is not None for f in self.due)

    @property
    def left_out(self) -> Mapping[str, Finding]:
        """What must not be connected when the guest comes back, by the uuid
        of the mapping.
        """
        return {f.bdm.uuid: f for f in self.findings
                if f.bdm is not None and not f.connects
                and f.withheld not in _CONNECTS}

    def withhold(self, why: Reason, obstacle: str = '',
                 of_mappings: bool | None = None) -> Plan:
        """The same findings, with every due removal withheld.

        :param obstacle: the same as the reason, in plain words
        :param of_mappings: only those of mappings, or only the others
        """
        return Plan(tuple(
            dataclasses.replace(f, withheld=why, obstacle=obstacle)
            if f.is_due and of_mappings in (None, f.bdm is not None) else f
            for f in self.findings))

    def stopped_in(self, later: Plan) -> Plan:
        """What was to be done, and is withheld in a later form of the plan."""
        return Plan(tuple(
            after for before, after in zip(self.findings, later.findings)
            if before.is_due and not after.is_due))

    def of_mappings(self) -> Plan:
        """Only what was found about mappings."""
        return Plan(tuple(f for f in self.findings if f.bdm is not None))

    def summed_up(self) -> Plan:
        """The same as it is told: anybody can make many attachments.

        Of the attachments that are kept, or whose deletion is withheld, for
        the same reason, the first few are told one by one.
        """
        told: list[Finding] = []
        kinds: dict[tuple[object, ...], list[Finding]] = {}
        for finding in self.findings:
            if finding.bdm is None and not finding.is_due:
                alike = kinds.setdefault(
                    (finding.reason, finding.withheld, finding.obstacle), [])
                alike.append(finding)
                if len(alike) > _TOLD:
                    continue
            told.append(finding)
        told += [dataclasses.replace(
            alike[0], attachment=None, goes=False,
            explanation='%d more attachments like these' % (
                len(alike) - _TOLD))
            for alike in kinds.values() if len(alike) > _TOLD]
        return Plan(tuple(told))


@dataclasses.dataclass(frozen=True)
class Policy:
    """What the operator allows, as the rules and the cleaner take it."""

    observe: bool = False
    #: Of which reasons anything is removed; the rest is reported.
    remove: frozenset[Reason] = REMOVED | {Reason.STALE_ATTACHMENT}
    grace_period: datetime.timedelta = datetime.timedelta(seconds=300)
    stuck_after: datetime.timedelta = datetime.timedelta(seconds=3600)
    max_removals: int = 8
    max_removals_per_hour: int = 32
    timeout: float = 60.0

    def is_young(self, since: datetime.datetime | None,
                 now: datetime.datetime) -> bool:
        """Too new to be judged; so is what nobody knows the age of."""
        return since is None or now - since < self.grace_period

    def is_stuck(self, since: datetime.datetime | None,
                 now: datetime.datetime) -> bool:
        """Too old to be under way; never what nobody knows the age of."""
        return since is not None and now - since >= self.stuck_after
