# SPDX-License-Identifier: Apache-2.0
"""One snapshot, indexed by what the tables ask for."""

from __future__ import annotations

from collections.abc import Mapping
import datetime
import functools
import operator

from nova_bdm_cleanup.rules import facts, spelling

#: In any other state (deleting, retyping, backing-up, an unknown word, ...)
#: Cinder is busy with the volume or lost control of it: hands off.
KNOWN_STATES = ('available', *facts.TAKEN)

#: A volume in one of these states may rightly have a second attachment.
_STATES_OF_A_SECOND_ATTACHMENT = ('detaching', 'retyping', 'maintenance')


class World:
    """The records of a snapshot, by volume and by attachment."""

    def __init__(self, snapshot: facts.Snapshot, policy: facts.Policy,
                 now: datetime.datetime) -> None:
        self.snapshot = snapshot
        self.server = snapshot.server
        self.volumes = snapshot.volumes
        self.policy = policy
        self.now = now
        #: The attachments by their id.
        self.attachments: Mapping[str, facts.Attachment] = {
            a.id: a for a in snapshot.attachments}
        #: The mappings by volume, and by the attachment that they name.
        self.bdms_of: dict[str, list[facts.Bdm]] = {}
        self.carriers_of: dict[str, list[facts.Bdm]] = {}
        #: The mappings, in the order of acting.
        self.bdms = sorted(snapshot.bdms, key=_order_of_acting)
        for bdm in self.bdms:
            if bdm.volume_id:
                self.bdms_of.setdefault(bdm.volume_id, []).append(bdm)
            if bdm.attachment_id:
                self.carriers_of.setdefault(bdm.attachment_id, []).append(bdm)
        #: The attachments that no mapping names.
        self.unaccounted = [a for a in snapshot.attachments
                            if a.id not in self.carriers_of]
        #: Those of them that another project wrote.
        self.foreign = {a.id for a in self.unaccounted
                        if self.volume(a.volume_id).is_foreign_to(
                            self.server.project)}
        #: By volume, its attachments to this server; without foreign ones.
        self.ours_of: dict[str, list[facts.Attachment]] = {}
        uuid = self.server.uuid
        for attachment in snapshot.attachments:
            if (attachment.server_id == uuid
                    and attachment.id not in self.foreign):
                self.ours_of.setdefault(
                    attachment.volume_id, []).append(attachment)
        for ours in self.ours_of.values():
            ours.sort(key=_by_id)

    def volume(self, volume_id: str | None) -> facts.Volume:
        return self.volumes.get(volume_id or '') or facts.ABSENT

    def is_created(self, volume_id: str | None) -> bool:
        """Tell whether a mapping of the volume is of a disk that Nova created
        from an image, a snapshot or blank.
        """
        return any(not b.is_volume for b in self.bdms_of.get(
            volume_id or '', ()))

    # Cached, since these are asked for each attachment that no mapping names:
    # usually there are none, but there may be many.

    @functools.cached_property
    def has_root(self) -> bool:
        return any(b.is_root or b.may_be_root for b in self.bdms)

    @functools.cached_property
    def moving(self) -> frozenset[str]:
        """Return the volumes that are being detached, migrated or swapped.

        Under Nova's lock, none is being detached whose mapping is gone.
        """
        return frozenset(
            i for i, v in self.volumes.items() if v is not None
            and (v.status in _STATES_OF_A_SECOND_ATTACHMENT
                 or v.is_migrating)
            and (i in self.bdms_of or not v.is_foreign_to(self.server.project)
                 and (v.status != 'detaching' or v.is_migrating
                      or not self.snapshot.holds_lock)))

    @property
    def is_proven(self) -> bool:
        """Tell whether a volume that this Cinder does not know is gone.

        A single volume may be the only one of the cell.  Credentials that see
        one project prove nothing.
        """
        witness = self.snapshot.witness
        return self.snapshot.sees_all and (
            witness is facts.WitnessAnswer.KNOWN
            or witness is facts.WitnessAnswer.NONE_EXISTS
            and len(self.bdms_of) == 1)

    @functools.cached_property
    def of_swaps(self) -> tuple[facts.Attachment, ...]:
        """Return the attachments that a swap may have made.

        Nova writes the new volume into the row when the guest has it.
        """
        return tuple(a for a in self.unaccounted
                     if a.volume_id not in self.bdms_of
                     and a.id not in self.foreign
                     and a.server_id == self.server.uuid)

    def is_elsewhere(self, attachment: facts.Attachment) -> bool:
        """Tell whether Cinder says that it connects another host.

        Of one that is not ``attached`` it says nothing.
        """
        host = self.volume(attachment.volume_id).host_of(attachment.id)
        return host is not None and not spelling.is_same_host(
            host, self.server.host)

    @property
    def may_have_swapped(self) -> bool:
        """Tell whether a swap that failed may have left an attachment."""
        return (self.snapshot.swaps is facts.Ending.FAILURE
                and bool(self.of_swaps))


def _order_of_acting(bdm: facts.Bdm) -> tuple[bool, str, str]:
    """Return a sort key: connected mappings first, then by device."""
    return not bdm.has_connection_info, bdm.device_name or '', bdm.uuid


_by_id = operator.attrgetter('id')
