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

#: A volume in such a state may have a second attachment for good reason.
_STATES_OF_A_SECOND_ATTACHMENT = ('detaching', 'retyping', 'maintenance')


class World:
    """All that the tables can know, found by volume or by attachment."""

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
        #: By volume and by attachment, what names them.
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
                        if self.is_written_by_others(a.volume_id)}
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

    def is_foreign(self, volume_id: str) -> bool:
        """Return whether the volume certainly is of another project than the
        server.
        """
        its, own = self.volume(volume_id).project, self.server.project
        return (its is not None and own is not None
                and not spelling.is_same(its, own))

    def is_written_by_others(self, volume_id: str) -> bool:
        """Return whether of a volume's attachments only those count that a
        mapping names.

        The owner of a volume can make attachments of it that name any
        server.  A mapping from before Queens names none: it has to go by
        those that there are.
        """
        return self.is_foreign(volume_id) and all(
            b.attachment_id for b in self.bdms_of.get(volume_id, ()))

    # Asked for each attachment that no mapping names: as a rule there is none
    # and, if there are any, there may be many.

    @functools.cached_property
    def has_root(self) -> bool:
        return any(b.is_root for b in self.bdms)

    @functools.cached_property
    def is_moving(self) -> bool:
        """Tell whether a volume is being detached, migrated or swapped."""
        return any(v is not None
                   and (v.status in _STATES_OF_A_SECOND_ATTACHMENT
                        or v.is_migrating)
                   for i, v in self.volumes.items()
                   if i in self.bdms_of or not self.is_foreign(i))

    @property
    def has_open_swap(self) -> bool:
        """Tell whether a swap of the server's volumes is open.

        It has not ended, or has failed and may have left an attachment.
        """
        swaps = self.snapshot.swaps
        return swaps is facts.Ending.NONE or (
            swaps is facts.Ending.FAILURE
            and any(a.id not in self.foreign for a in self.unaccounted))


def _order_of_acting(bdm: facts.Bdm) -> tuple[bool, str, str]:
    """Sort what is connected first, and then by device."""
    return not bdm.has_connection_info, bdm.device_name or '', bdm.uuid


_by_id = operator.attrgetter('id')
