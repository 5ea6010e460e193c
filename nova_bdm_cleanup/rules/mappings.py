# SPDX-License-Identifier: Apache-2.0
"""The decision tables for the block device mappings of a server.

"Own" is the attachment that the mapping names; "ours" are all attachments of
its volume that name this server.  The volume may belong to another project: it
was transferred, or an administrator attached it.  Then only the mapping's own
attachment is ours.  That project wrote the others: they neither keep the
mapping nor are deleted with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import operator

from nova_bdm_cleanup.rules import facts, spelling
from nova_bdm_cleanup.rules.facts import (
    Action,
    Attach,
    Guest,
    InCinder,
    InGuest,
)
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.rules.table import (
    enumerated,
    first,
    first_in_sections,
    Outcome,
    ReasonOf,
    Row,
    Section,
    Table,
)
from nova_bdm_cleanup.rules.world import KNOWN_STATES, World

#: A shelve or a move reserves each volume by a new attachment, deletes the old
#: one, and saves the new one in the mapping.  It may fail, or nova-compute may
#: die, after each of these steps.
_ENDED_HALF_WAY: tuple[Row[MappingFacts, Outcome], ...] = (
    Row('its own only reserves the volume, and Nova has connected the disk',
        lambda m: m.only_reserves,
        Outcome(Reason.RESERVED_ONLY, Action.RECONNECT),
        'Nova has connected the disk, and attachment {it.own.id} only '
        'reserves the volume: a shelve or a move of the server ended half '
        'way'),

    Row('its own does not exist, Nova has connected the disk, and another '
        'one, which no mapping names, only reserves the volume',
        lambda m: m.unsaved,
        Outcome(Reason.HALF_MOVED, Action.RECONNECT),
        'Nova has connected the disk by attachment {it.bdm.attachment_id}, '
        'which does not exist, and attachment {it.unsaved.id}, which no '
        'mapping names, reserves the volume: nova-compute ended in a shelve '
        'or a move of the server'),
)

#: nova-compute died in an attach, or Cinder's answer to it was lost.
_NEVER_ATTACHED: tuple[Row[MappingFacts, Outcome], ...] = (
    Row('the attach that made the mapping is over and did not succeed, the '
        'guest does not have the disk, none is ``attached``, and this host '
        'has no device at the address of one that has a connection; the '
        'volume is not ``detaching``',
        lambda m: m.was_never_attached and not m.left_on_host,
        Outcome(Reason.NEVER_ATTACHED, Action.REMOVE),
        'the attach of the volume has ended without success, and the guest '
        'does not have the disk'),

    # Nova has not recorded by what it connected it: what is there may be
    # another server's.
    Row('the same, but this host has, or may have, a device at that address',
        lambda m: m.was_never_attached,
        Outcome(Reason.STUCK),
        'the attach of the volume has ended without success, but this host '
        'has, or may have, a device at the address of attachment '
        '{it.left_on_host[0].id}'),
)

#: A section for each state of the volume.  The first row that holds decides,
#: among the sections that hold.
MAPPINGS: Table[Section[MappingFacts, Outcome]] = Table(
    ('Volume in Cinder',
     'Mapping, and attachments of the volume to this server',
     'Outcome'), (

    Section('anything', lambda m: True, (
        Row('the mapping names no volume yet',
            lambda m: not m.names_a_volume,
            Outcome(Reason.OPERATION_IN_FLIGHT),
            'the mapping names no volume yet'),

        Row('the mapping names an attachment of another server or volume',
            lambda m: m.is_cross_wired,
            Outcome(Reason.CROSS_WIRED),
            'attachment {it.own.id} of the mapping belongs to volume '
            '{it.own.volume_id} of server {it.own.server_id}'),

        # The guest has one of two volumes, and Nova may not know which.
        Row('a swap of the server is over and did not succeed; the guest had '
            'another disk in its place, or had the disk and the volume is '
            '``detaching``, or the volume is ``detaching`` or migrated and '
            'the server has an attachment of a volume that no mapping names',
            lambda m: m.is_half_swapped,
            Outcome(Reason.SWAP_INTERRUPTED, Action.RECONNECT),
            'a swap of the volume{it.swapped_for} ended half way'),

        # The attach API writes the mapping before it reserves the volume,
        # so Cinder's answer may be older than the mapping.
        Row('the mapping is newer than ``grace_period`` and was never '
            'connected, and its attach is not known to be over',
            lambda m: not m.bdm.has_connection_info and m.is_young
            and m.attach is Attach.UNKNOWN,
            Outcome(Reason.ATTACH_IN_FLIGHT),
            'the mapping is new and was never connected: an attach may be '
            'in progress'),
    )),

    Section('it does not exist', lambda m: m.volume is facts.ABSENT, (
        Row('some',
            lambda m: m.ours,
            Outcome(Reason.STATUS_CONTRADICTION),
            'Cinder does not know the volume, but lists attachment '
            '{it.ours[0].id} of it'),

        Row('none; asked with credentials that see one project only',
            lambda m: not m.world.snapshot.sees_all,
            Outcome(Reason.CANNOT_SEE_PROJECT),
            'your credentials do not show the volume: it is missing, or '
            'belongs to another project'),

        Row('none',
            lambda m: True,
            Outcome(Reason.VOLUME_MISSING, Action.REMOVE),
            'the volume does not exist'),
    )),

    Section('it is being migrated', lambda m: m.volume.is_migrating, (
        Row('any',
            lambda m: True,
            Outcome(Reason.VOLUME_BUSY),
            'the volume is being migrated ({it.volume.migration_status})'),
    )),

    Section('``available``; ``awaiting-transfer`` without an attachment of '
            'this server', lambda m: m.is_free, (
        Row('the volume names one that Cinder does not list',
            lambda m: m.lists_what_is_not_shown,
            Outcome(Reason.STATUS_CONTRADICTION),
            'Cinder says that the volume is available, but it names an '
            'attachment to this server that Cinder does not list'),

        # Also of a half moved disk: the state was reset by hand, and Cinder
        # offers the volume to every server.
        Row('some, which are deleted with the mapping',
            lambda m: m.ours,
            Outcome(Reason.VOLUME_AVAILABLE, Action.REMOVE),
            'Cinder says that the volume is available, but still lists '
            'attachment {it.ids_of_ours} of it'),

        Row('none',
            lambda m: True,
            Outcome(Reason.VOLUME_AVAILABLE, Action.REMOVE),
            'Cinder says that the volume is {it.volume.status} '
            'and has no attachment of this server'),
    )),

    Section('another state than those above and below',
            lambda m: m.volume.status not in KNOWN_STATES, (
        Row('any',
            lambda m: True,
            Outcome(Reason.VOLUME_BUSY),
            'the volume is neither available nor in use: it is '
            '{it.volume.state}'),
    )),

    Section('``reserved``, ``attaching``, ``detaching``',
            lambda m: m.volume.status in facts.IN_FLIGHT, (
        # All servers of a multiattach volume share its status: if this
        # attachment is healthy, another server is attaching or detaching.
        Row('its own is ``attached`` here, and the volume is multiattach',
            lambda m: m.volume.multiattach and m.is_healthy,
            Outcome(Reason.HEALTHY),
            'attached, while another server attaches or detaches the volume'),

        Row('its own, and all others, only reserve the volume, and the server '
            'is shelved and on no host',
            lambda m: m.only_reserves and m.world.server.is_offloaded
            and all(a.only_reserves for a in m.ours),
            Outcome(Reason.HEALTHY),
            'reserved while the server is shelved'),

        *_ENDED_HALF_WAY,

        *_NEVER_ATTACHED,

        # What is left of an attach or of a move keeps the volume in that
        # state; the table of reconnects decides about it.
        Row('its own is ``attached``, to this host and by the address in the '
            'mapping, and others are ``attached`` or only reserve the volume; '
            'the volume is not ``detaching``, and Nova does nothing else with '
            'the server',
            lambda m: m.is_interrupted and m.is_healthy
            and m.others_are_complete,
            Outcome(Reason.HEALTHY),
            'attached by its own attachment, while the volume is '
            '{it.volume.status} by another one'),

        Row('some, and Nova has connected the disk; the volume is not '
            '``detaching``, and Nova does nothing else with the server',
            lambda m: m.is_interrupted and m.ours,
            Outcome(Reason.HALF_MOVED, Action.RECONNECT),
            'the volume is {it.volume.status}, although Nova has connected '
            'the disk, and attachment {it.ours[0].id} is '
            '{it.ours[0].status}: a move of the server ended half way'),

        Row('any, and the volume has been in that state for an hour',
            lambda m: m.is_stuck,
            Outcome(Reason.STUCK),
            'the volume has been {it.volume.status} since '
            '{it.volume.updated_at:%Y-%m-%d %H:%M:%S UTC}'),

        Row('any',
            lambda m: True,
            Outcome(Reason.OPERATION_IN_FLIGHT),
            'an operation on the volume is in progress: it is '
            '{it.volume.status}'),
    )),

    # No other state is left.
    Section('``in-use``', lambda m: True, (
        # Left by an attach that was retried because its response was lost.
        Row('another mapping, which Nova has connected, names its only one, '
            'and Nova has never connected this mapping; not multiattach, not '
            'the root disk',
            lambda m: m.is_spare,
            Outcome(Reason.DUPLICATE_MAPPING, Action.REMOVE_ROW),
            'the mapping was never connected, and another mapping of the '
            'volume ({it.serving.uuid}, device {it.serving.device_name}) '
            'names its attachment {it.only.id}'),

        Row('another mapping names its only one, and the guest may use either',
            lambda m: m.serving,
            Outcome(Reason.DUPLICATE_MAPPING),
            'another mapping of the volume ({it.serving.uuid}, device '
            '{it.serving.device_name}) names its attachment {it.only.id}, and '
            'the guest may use either'),

        *_NEVER_ATTACHED,

        Row('its own is ``attached``, but Nova has no connection information '
            'of it',
            lambda m: not m.bdm.has_connection_info and m.is_attached,
            Outcome(Reason.STATUS_CONTRADICTION),
            'Cinder attaches the volume, but Nova has no connection '
            'information of it and does not connect it'),

        Row('its own is ``attached``, to this host and by the address in the '
            'mapping; or, before Queens, the volume lists this server',
            lambda m: m.is_healthy,
            Outcome(Reason.HEALTHY),
            'attached to this server'),

        # A move failed, or an attachment was updated behind Nova's back.
        Row('its own is ``attached``, but to another host, or by another '
            'address',
            lambda m: m.is_attached,
            Outcome(Reason.HALF_MOVED, Action.RECONNECT),
            '{it.elsewhere}: a move of the server ended half way, or its '
            'attachment was changed'),

        # A move or a swap failed: the other attachment may serve the disk.
        Row('another one than its own is ``attached``',
            lambda m: m.others_attached,
            Outcome(Reason.ATTACHMENT_MISMATCH, Action.RECONNECT),
            'the mapping names {it.name_of_own}, but Cinder attaches the '
            'volume by {it.ids_of_others}'),

        *_ENDED_HALF_WAY,

        Row('some, but none is ``attached``; Nova has connected the disk, and '
            'does nothing else with the server',
            lambda m: m.ours and m.is_interrupted,
            Outcome(Reason.HALF_MOVED, Action.RECONNECT),
            'Nova has connected the disk, but Cinder has not: attachment '
            '{it.ours[0].id} is {it.ours[0].status}, so a move of the server '
            'ended half way'),

        Row('some, but none is ``attached`` yet',
            lambda m: m.ours,
            Outcome(Reason.OPERATION_IN_FLIGHT),
            'the attach of the volume is not complete: attachment '
            '{it.ours[0].id} is {it.ours[0].status}'),

        # No attachment that the mapping names could prove it.
        Row('the mapping names no attachment (before Queens), and the volume '
            'is of another project',
            lambda m: not m.bdm.attachment_id and m.is_foreign,
            Outcome(Reason.STATUS_CONTRADICTION),
            'the mapping is from before Queens, and only attachments that '
            'another project can make say that the volume is attached'),

        Row('none; Cinder attaches it to other servers',
            lambda m: m.other_servers,
            Outcome(Reason.ATTACHED_ELSEWHERE, Action.REMOVE),
            'Cinder attaches the volume to server {it.ids_of_other_servers} '
            'and not to this one'),

        Row('none that counts; attachments of another project name this '
            'server',
            lambda m: m.is_claimed_by_owner,
            Outcome(Reason.ATTACHED_ELSEWHERE, Action.REMOVE),
            'the volume belongs to another project, and only attachments that '
            'the mapping does not name are of this server'),

        Row('none; Cinder attaches it to no server',
            lambda m: True,
            Outcome(Reason.STATUS_CONTRADICTION),
            'Cinder says that the volume is in-use, but names no server'),
    )),
))


class MappingFacts:
    """The facts about one mapping that the tables ask for.

    :param found: the facts about all mappings of the server, by uuid
    """

    def __init__(self, bdm: facts.Bdm, world: World,
                 found: Mapping[str, MappingFacts]) -> None:
        self.bdm: facts.Bdm = bdm
        self.world: World = world
        self._found = found
        volume_id = bdm.volume_id or ''
        self.names_a_volume: bool = volume_id in world.volumes
        self.volume: facts.Volume = world.volume(volume_id)
        #: The attachment that the mapping names, if Cinder knows it.
        own = world.attachments.get(bdm.attachment_id or '')
        self.own: facts.Attachment | None = own
        self.is_cross_wired: bool = own is not None and (
            own.server_id != world.server.uuid or own.volume_id != volume_id)
        #: All attachments of the volume to this server.
        self.ours: Sequence[facts.Attachment] = world.ours_of.get(
            volume_id, ())
        #: All mappings of the volume, including this one.
        self.siblings: Sequence[facts.Bdm] = world.bdms_of.get(volume_id, ())

    @property
    def starts(self) -> bool:
        """Tell whether Nova starts the guest by its rows."""
        return self.world.snapshot.guest is Guest.STARTS

    @property
    def arrives(self) -> bool:
        """Tell whether the guest comes to this host."""
        return self.world.snapshot.guest is Guest.ARRIVES

    @property
    def goes_on(self) -> bool:
        """Tell whether the guest stays on."""
        return self.world.snapshot.guest is Guest.GOES_ON

    @property
    def is_young(self) -> bool:
        return self.world.policy.is_young(self.bdm.created_at, self.world.now)

    @property
    def is_stuck(self) -> bool:
        """Tell whether the volume is in its state for too long."""
        return self.world.policy.is_stuck(
            self.volume.updated_at, self.world.now)

    @property
    def is_attached(self) -> bool:
        """Tell whether Cinder confirms that the volume is attached here."""
        if self.bdm.attachment_id:
            return self.own is not None and self.own.status == 'attached'
        # Before Queens a mapping carried no attachment id; only the volume's
        # own list of attached servers can confirm it.
        return self.bdm.has_connection_info and bool(self._listed)

    @property
    def is_free(self) -> bool:
        """Tell whether Cinder has the volume for no server."""
        return self.volume.status in facts.FREE and (
            self.volume.status == 'available'
            or not self.ours and not self._listed)

    @property
    def is_healthy(self) -> bool:
        """Tell whether Cinder attaches it by its own attachment, to this host
        and by the address in the mapping.
        """
        return self.is_attached and not self.elsewhere

    @functools.cached_property
    def elsewhere(self) -> str:
        """Return where else Cinder shows its attachment, in words.

        Empty: Cinder shows nothing else than the mapping.
        """
        found = ''
        for host, addresses in self._places:
            here = self.world.server.host
            if self.world.server.is_offloaded and self.bdm.attachment_id:
                found = ('Cinder connects the volume, although the server is '
                         'shelved, and on no host')
            elif here and host and not spelling.is_same_host(host, here):
                found = 'Cinder attaches the volume to host %s' % host
            elif (addresses and self.bdm.addresses
                    and not addresses & self.bdm.addresses):
                # Some paths of a disk may have changed, but not all.
                found = 'Cinder connects the volume by another address'
            else:
                return ''
        return found

    @property
    def is_connected(self) -> bool:
        """Tell whether Cinder connects the volume for the server, or knows
        nothing of it and may be the wrong one.
        """
        return bool(self._places) or (
            self.volume is facts.ABSENT and not self.world.is_proven)

    @property
    def _places(self) -> Sequence[
            tuple[str | None, frozenset[facts.Address]]]:
        """Return where Cinder connects the volume for the server."""
        if not self.bdm.attachment_id:
            return [(e.host, frozenset()) for e in self._entries]
        shown = self.ours if self.own is None else [self.own]
        return [(self.volume.host_of(a.id), a.addresses) for a in shown
                if not self.is_cross_wired
                and (a.connected or a.status == 'attached')]

    @property
    def guest_disk(self) -> facts.Source | None:
        """Return the disk that the guest had in its place, if known."""
        return (self.world.snapshot.sources or {}).get(self.bdm.uuid)

    @functools.cached_property
    def sources(self) -> Sequence[facts.Source]:
        """Return where this host may have the disk itself."""
        return [self.bdm.source, *(a.source for a in self.attached_here)]

    @property
    def had_own_disk(self) -> bool:
        """Tell whether the guest certainly had the disk itself."""
        disk = self.guest_disk
        return (disk is not None and any(map(disk.is_same, self.sources))
                and not any(disk.is_same(a.source)
                            for a in self.world.of_swaps))

    @property
    def had_other_disk(self) -> bool:
        """Tell whether the guest certainly had another disk."""
        disk = self.guest_disk
        return self.new_disk is not None or (
            disk is not None and all(map(disk.is_other, self.sources)))

    @functools.cached_property
    def new_disk(self) -> facts.Attachment | None:
        """Return the attachment of a swap by which the guest had a disk."""
        disk = self.guest_disk
        if disk is None or any(map(disk.is_same, self.sources)):
            return None
        # Each host has its own numbers of units.
        found = [a for a in self.world.of_swaps if disk.is_same(a.source)
                 and not self.world.is_elsewhere(a)]
        return found[0] if len(found) == 1 else None

    @property
    def may_be_half_swapped(self) -> bool:
        """Tell whether a swap may have ended half way."""
        is_detaching = self.volume.status == 'detaching'
        return self.bdm.has_connection_info and (
            self.had_other_disk or self.had_own_disk and is_detaching
            or bool(self.world.of_swaps) and (
                is_detaching or self.volume.is_migrating))

    @property
    def is_half_swapped(self) -> bool:
        """Tell whether a swap has ended half way.

        One that waits for Nova's lock only reserves the volume.  The commands
        do not know what the guest has, and which swaps are over.
        """
        seen = self.world.snapshot
        return self.may_be_half_swapped and not (
            self.bdm.is_newer_than_swaps(seen.last_swap)) and (
            seen.swaps in (facts.Ending.FAILURE, facts.Ending.UNKNOWN)
            and (seen.holds_lock or seen.sources is not None)
            or seen.swaps is facts.Ending.NONE and seen.holds_lock and (
                self.had_other_disk or self.may_have_been_swapped))

    @property
    def may_have_been_swapped(self) -> bool:
        """Tell whether the guest may have a disk of a swap."""
        return any(not a.only_reserves for a in self.world.of_swaps)

    @property
    def swapped_for(self) -> str:
        found = [self.new_disk] if self.new_disk else self.world.of_swaps
        return ' for volume ' + enumerated(
            {a.volume_id for a in found}) if found else ''

    @property
    def is_placed(self) -> bool:
        """Tell whether the guest was certainly here, on no other host."""
        return self.world.snapshot.guest_is_here or (
            self.guest_disk is not None and self.guest_disk.was_here)

    @property
    def guest_had(self) -> facts.Source | None:
        """Return the disk that the guest had, as it is known later, too."""
        disk = self.guest_disk
        if disk is None or not (self.had_own_disk or self.had_other_disk):
            return None
        return dataclasses.replace(
            disk, path=None, was_here=self.is_placed,
            attachment_id=self.bdm.attachment_id if self.had_own_disk
            else self.new_disk.id if self.new_disk else '')

    @property
    def ends_swap(self) -> bool:
        """Tell whether a half done swap of it will be ended."""
        return (self.row.outcome.reason is Reason.SWAP_INTERRUPTED
                and first(HALF_SWAPPED.rows, self).outcome.action
                is Action.RECONNECT)

    @property
    def is_decided(self) -> bool:
        """Tell whether it is known which disk the guest keeps."""
        return self.ends_swap or self.had_own_disk or (
            not self.bdm.has_connection_info or not self.bdm.is_in_cinder)

    @property
    def left_by_swap(self) -> tuple[facts.Attachment, ...]:
        """Return the attachments that a swap of the disk has left.

        Those that the guest does not have belong to the first mapping that
        keeps its disk, and only if it is known what all guests' disks are.
        """
        if self.new_disk is not None:
            return tuple(self.ours)
        swapped = [m for m in self._found.values()
                   if m.row.outcome.reason is Reason.SWAP_INTERRUPTED]
        kept = [m for m in swapped if m.new_disk is None]
        if not all(m.ends_swap for m in swapped) or kept[0] is not self:
            return ()
        taken = [m.new_disk for m in swapped]
        return tuple(
            a for a in self.world.of_swaps if a not in taken
            and not a.is_legacy and not a.is_half_connected
            and self._is_changeable(self.world.volume(a.volume_id)))

    @property
    def new_volume(self) -> facts.Volume:
        return self.world.volume(
            self.new_disk.volume_id if self.new_disk else None)

    @property
    def is_swappable(self) -> bool:
        """Tell whether its mapping may take the new disk."""
        new, volume = self.new_disk, self.new_volume
        return (new is not None and self._is_changeable(volume)
                and self.world.ours_of.get(volume.id) == [new]
                and all(a.server_id == self.world.server.uuid
                        for a in volume.attached_to)
                and not any(a.is_legacy or a.is_half_connected
                            for a in (new, *self.ours)))

    def _is_changeable(self, volume: facts.Volume) -> bool:
        """Tell whether an attachment of a volume may be changed."""
        project = self.world.server.project
        return (volume.status in KNOWN_STATES and not volume.is_migrating
                and None not in (volume.project, project)
                and not volume.is_foreign_to(project))

    @property
    def attach(self) -> Attach:
        """Return the attach that made a mapping that was never connected."""
        return self.world.snapshot.attaches.get(
            self.bdm.uuid, Attach.UNKNOWN)

    @property
    def depends_on_attach(self) -> bool:
        """Tell whether it matters how the attach of the mapping ended."""
        return (self.bdm.is_in_cinder and not self.bdm.has_connection_info
                and self.volume.status in ('available', 'in-use', 'reserved',
                                           'attaching'))

    @property
    def was_never_attached(self) -> bool:
        return (self.attach is Attach.FAILED and not self.is_attached
                and not self.others_attached
                and not self.bdm.has_connection_info
                and self.volume.status != 'detaching')

    @property
    def left_on_host(self) -> Sequence[facts.Attachment]:
        """Return the attachments whose device this host may have.

        nova-compute may have died when it had connected it.
        """
        return [a for a in self.ours if a.connected
                and a.id not in self.world.snapshot.absent]

    @property
    def is_interrupted(self) -> bool:
        """Tell whether no operation can explain an unfinished attachment.

        Nova has connected the disk, so it is not being attached.
        """
        return (self.bdm.has_connection_info
                and self.volume.status != 'detaching'
                and not self.world.server.is_busy)

    @property
    def others_are_complete(self) -> bool:
        """Tell whether no other attachment is between two states."""
        return all(a.status == 'attached' or a.only_reserves
                   for a in self.ours if a is not self.own)

    @property
    def only_reserves(self) -> bool:
        """Tell whether Nova has connection information and Cinder has none."""
        return (self.bdm.has_connection_info and self.own is not None
                and self.own.only_reserves)

    @property
    def unsaved(self) -> facts.Attachment | None:
        """Return the attachment that a move made and did not save.

        The one that the mapping names is deleted, and nothing attaches the
        volume to this server.
        """
        if (not self.bdm.has_connection_info or not self.bdm.attachment_id
                or self.own is not None or self.others_attached):
            return None
        return next((a for a in self.ours if a.only_reserves
                     and a.id not in self.world.carriers_of), None)

    @property
    def lists_what_is_not_shown(self) -> bool:
        """Tell whether the volume's own list names an attachment of ours that
        Cinder's list of attachments lacks.
        """
        return bool(self._listed - {a.id for a in self.ours})

    @property
    def only(self) -> facts.Attachment | None:
        """Return the volume's attachment to this server, if it is the only
        one and healthy.
        """
        if len(self.ours) != 1 or self.lists_what_is_not_shown:
            return None
        only = self.ours[0]
        return only if only.status == 'attached' and only.connected else None

    @property
    def serving(self) -> facts.Bdm | None:
        """Return another mapping by which the guest may have the volume."""
        only = self.only
        return next((
            b for b in self.siblings if only is not None
            and b is not self.bdm and b.attachment_id == only.id
            and b.has_connection_info), None)

    @property
    def is_spare(self) -> bool:
        """Tell whether the guest certainly has the disk by another mapping."""
        return (not self.bdm.has_connection_info
                and not self.volume.multiattach
                and self.is_data and self.serving is not None)

    @property
    def has_root_disk(self) -> bool:
        """Tell whether a mapping of the volume is the root disk."""
        return any(b.is_root for b in self.siblings)

    @property
    def may_have_root_disk(self) -> bool:
        """Tell whether a mapping of the volume may be the root disk."""
        return any(b.may_be_root for b in self.siblings)

    @property
    def is_data(self) -> bool:
        """Tell whether no mapping of the volume is the root disk, or of a
        volume that Nova created.
        """
        return not self.may_have_root_disk and all(
            b.is_volume and not b.is_root for b in self.siblings)

    @property
    def others_attached(self) -> frozenset[str]:
        """Return the ids of the other attachments that attach the volume to
        this server.
        """
        return self._listed.union(
            a.id for a in self.ours
            if a is not self.own and a.status == 'attached')

    @property
    def in_cinder(self) -> InCinder:
        """Return what Cinder shows of its attachment."""
        if self.ours or self._listed:
            return InCinder.ATTACHED
        if self.own is not None and (
                self.own.server_id == self.world.server.uuid):
            # The server is attached, but to another volume.
            return InCinder.ATTACHED
        if self.volume is facts.ABSENT:
            return (InCinder.MISSING if self.names_a_volume
                    and self.world.is_proven else InCinder.ATTACHED)
        if self.is_foreign and not self.bdm.attachment_id:
            # Only attachments that do not count could tell.
            return InCinder.ATTACHED
        return (InCinder.ELSEWHERE
                if self.other_servers and not self.volume.multiattach
                else InCinder.UNATTACHED)

    @property
    def is_foreign(self) -> bool:
        """Tell whether the volume certainly belongs to another project."""
        return self.volume.is_foreign_to(self.world.server.project)

    @property
    def is_claimed_by_owner(self) -> bool:
        """Tell whether another project, the volume's own, has attached it to
        this server without a mapping.
        """
        return self.is_foreign and bool(self._entries)

    @property
    def other_servers(self) -> frozenset[str]:
        """Return the other servers in the volume's own list."""
        return frozenset(a.server_id for a in self.volume.attached_to
                         if a.server_id
                         and a.server_id != self.world.server.uuid)

    @property
    def _listed(self) -> frozenset[str]:
        """Return the attachments to this server in the volume's own list."""
        listed = frozenset(a.attachment_id or '' for a in self._entries)
        return (listed.intersection(self.world.carriers_of)
                if self.is_foreign else listed)

    @property
    def _entries(self) -> Sequence[facts.AttachedServer]:
        return [a for a in self.volume.attached_to
                if a.server_id == self.world.server.uuid]

    # Answers of the first table

    @functools.cached_property
    def row(self) -> Row[MappingFacts, Outcome]:
        return first_in_sections(MAPPINGS.rows, self)

    @property
    def reason(self) -> Reason:
        return self.row.outcome.reason_for(self)

    @property
    def words(self) -> str:
        return self.row.explain(self)

    @property
    def is_dangling(self) -> bool:
        return self.row.outcome.action is Action.REMOVE

    @property
    def depends_on_place(self) -> bool:
        """Tell whether it matters if the guest is certainly on this host."""
        return (self.starts or self.arrives) and (
            self.may_be_half_swapped or (
                self.row.outcome.action is Action.RECONNECT
                or self.bdm.is_root and self.is_dangling) and (
                bool(self.may_serve_elsewhere)
                # Only when it is completed, Cinder shows its host.
                or self.first is not None and not self.first.only_reserves))

    # Facts for the second table, about a dangling mapping

    @property
    def kept(self) -> Sequence[MappingFacts]:
        """Return the mappings of its volume that do not dangle."""
        siblings = (self._found[b.uuid] for b in self.siblings)
        return [m for m in siblings if not m.is_dangling]

    @property
    def carried_elsewhere(self) -> Sequence[facts.Attachment]:
        """Return the attachments that a mapping of another volume names."""
        return [a for a in self.ours
                if any(b.volume_id != self.bdm.volume_id
                       for b in self.world.carriers_of.get(a.id, ()))]

    @property
    def dependent(self) -> tuple[facts.Attachment, ...]:
        """Return the attachments that are deleted with the mapping.

        Cinder is told after the last mapping of the volume is removed.  The
        mappings' own attachments go last: if this is interrupted, Cinder sets
        the volume "in-use" by one of them, and offers it to no server.
        """
        if self.bdm is not self.siblings[-1]:
            return ()
        return tuple(sorted(
            (a for a in self.ours if not a.is_legacy),
            key=lambda a: (bool(self.world.carriers_of.get(a.id, ())),
                           a.status != 'reserved')))

    # Facts for the third table, about a disk that may be reconnected

    @property
    def first(self) -> facts.Attachment | None:
        """Return the attachment with which a reconnect begins.

        One that reserves the volume is used.  Where none is, and Cinder makes
        no other one while the volume is ``attaching``, one is completed:
        deleted as the only one, it would leave the volume to every server.
        """
        if self.goes_on:
            return self.adoptable
        # Its own first, then in the order of their ids.
        ours = sorted(self.ours, key=lambda a: a is not self.own)
        reserved = [a for a in ours if a.only_reserves]
        if self.arrives:
            # Nova deletes what connects another host, or has it connect this
            # one.
            return next(iter((*self.may_connect, *reserved)), None)
        if reserved:
            return reserved[0]
        if self.volume.status == 'attaching' and not any(
                a.status == 'attached' for a in ours):
            return ours[0] if ours else None
        return None

    @property
    def replaced(self) -> tuple[facts.Attachment, ...]:
        """Return the attachments that a reconnect deletes, in this order.

        Those that are not complete go first: they keep Cinder from making
        another one.
        """
        return tuple(sorted(
            (a for a in self.ours if a is not self.first),
            key=lambda a: (a.status == 'attached', a is self.own)))

    @property
    def attached_here(self) -> Sequence[facts.Attachment]:
        """Return the attachments that connect the volume to this host."""
        here = spelling.host(self.world.server.host)
        return [a for a in self.ours if a.status == 'attached' and here
                and spelling.host(self.volume.host_of(a.id)) == here]

    @property
    def may_serve_elsewhere(self) -> Sequence[facts.Attachment]:
        """Return the attachments to delete that may serve a guest elsewhere.

        Cinder does not show the host of one that is not complete.
        """
        seen = self.world.snapshot
        if seen.guest_is_here and self.bdm.uuid not in seen.left_out or (
                self.on_host.in_guest is InGuest.DISK):
            return []
        here = self.attached_here
        return [a for a in self.replaced if not a.only_reserves
                and a.status != 'error_attaching' and a not in here]

    @property
    def may_connect(self) -> Sequence[facts.Attachment]:
        """Return the attachments that connect the volume to a host, or may;
        its own comes first.
        """
        return sorted(
            (a for a in self.ours if not a.only_reserves
             and a.status != 'error_attaching'),
            key=lambda a: a is not self.own)

    @property
    def competing(self) -> Sequence[facts.Attachment]:
        """Return the attachments that exclude each other."""
        return (self.may_connect if self.arrives
                else self.attached_here)

    @property
    def may_serve_third_host(self) -> bool:
        """Tell whether the attachment that is left may serve the guest on a
        host that is neither this one nor the former one.
        """
        first, seen = self.first, self.world.snapshot
        return (first is not None and not first.only_reserves
                and not seen.guest_is_here
                and spelling.host(self.volume.host_of(first.id))
                != spelling.host(seen.server.former_host))

    @property
    def awaits_arrival(self) -> bool:
        """Tell whether Nova can go on with the attachments as they are."""
        return (self.arrives and self.own is not None
                and self.ours == [self.own]
                and (self.own.only_reserves or self.own.status == 'attached'))

    # Facts about a disk that may be adopted

    @property
    def depends_on_host(self) -> bool:
        """Tell whether it matters what this host has of the disk."""
        return (self.goes_on and self.bdm.is_in_cinder
                and (self.row.outcome.action is Action.RECONNECT
                     or self.is_dangling and self.bdm.is_root
                     or self.is_healthy and len(self.ours) > 1))

    @property
    def adoptable(self) -> facts.Attachment | None:
        """Return the attachment that may serve the guest on this host."""
        here = self.attached_here
        return here[0] if len(here) == 1 and (
            here[0].addresses or here[0].back_end_name) else None

    @property
    def on_host(self) -> facts.OnHost:
        return self.world.snapshot.on_host.get(
            self.bdm.uuid, facts.OnHost())

    @property
    def parties(self) -> tuple[facts.PartyAnswer, ...]:
        """Return who agrees that an attachment serves the guest."""
        if not self.depends_on_host:
            return ()
        return tuple(
            facts.PartyAnswer(party, not differs,
                              row.explain(self) if differs else '')
            for party, row in PARTIES.items()
            for differs in [bool(row.holds(self))])

    # Words

    @property
    def ids_attached_here(self) -> str:
        return enumerated(a.id for a in self.attached_here) or 'none'

    @property
    def source(self) -> str:
        return ('Nova does' if self.world.snapshot.sees_all
                else 'your credentials do')

    @property
    def ids_of_ours(self) -> str:
        return enumerated(a.id for a in self.ours)

    @property
    def name_of_own(self) -> str:
        return ('attachment %s' % self.bdm.attachment_id
                if self.bdm.attachment_id else 'no attachment')

    @property
    def ids_of_others(self) -> str:
        return (enumerated(self.others_attached - {''})
                or 'a record without an id')

    @property
    def ids_of_other_servers(self) -> str:
        return enumerated(self.other_servers)


def mappings_of(world: World) -> dict[str, MappingFacts]:
    """Return the facts of all mappings of the server, by their uuid."""
    found: dict[str, MappingFacts] = {}
    found.update((b.uuid, MappingFacts(b, world, found)) for b in world.bdms)
    return found


#: The reason of the first table.
_ITS_OWN = ReasonOf(operator.attrgetter('reason'),
                    'the reason of the table above')

# A volume may have several mappings, and other mappings may name its
# attachments.  So a second table judges a dangling mapping together with
# these.
DANGLING_MAPPINGS: Table[Row[MappingFacts, Outcome]] = Table(
    ('A dangling mapping by the table above', 'Outcome'), (

    Row('is the root disk (boot index 0), and its volume is ``available``',
        lambda m: m.bdm.is_root and m.volume.status == 'available',
        Outcome(Reason.ROOT_VOLUME_DANGLING, Action.RECONNECT),
        'it is the root disk, and {it.words}'),

    Row('is the root disk (boot index 0), or has the same volume',
        lambda m: m.has_root_disk,
        Outcome(Reason.ROOT_VOLUME_DANGLING),
        'the root disk is never removed, although {it.words}'),

    # Only the commands have such mappings.
    Row('may be the root disk: the API does not show which disk is',
        lambda m: m.may_have_root_disk,
        Outcome(_ITS_OWN),
        '{it.words}; {it.source} not show whether it is the root disk'),

    Row('has another source than a volume (image, snapshot, blank), or has '
        'the same volume as such a mapping, and the volume exists',
        lambda m: m.volume is not facts.ABSENT and m.world.is_created(
            m.bdm.volume_id),
        Outcome(_ITS_OWN),
        '{it.words}; kept, since not all mappings of the volume have "volume" '
        'as source and destination'),

    Row('has the same volume as another mapping, which is kept',
        lambda m: m.kept,
        Outcome(ReasonOf(lambda m: m.kept[0].reason,
                         'the reason of that mapping')),
        'another mapping of the volume is kept: {it.kept[0].words}'),

    Row('has a volume with an attachment that a mapping of another volume '
         'names',
        lambda m: m.carried_elsewhere,
        Outcome(Reason.CROSS_WIRED),
        'attachment {it.carried_elsewhere[0].id} of the volume is named by '
        'a mapping of another volume'),

    Row('is none of these',
        lambda m: True,
        Outcome(_ITS_OWN, Action.REMOVE),
        '{it.words}'),
))


#: What must agree before a mapping takes over connection information that
#: Cinder has stored: anyone who may change an attachment has it written, so
#: Cinder's word alone proves nothing.  Each row holds if one does not agree.
PARTIES: Mapping[str, Row[MappingFacts, Outcome]] = {
    'Cinder': Row(
        'is adopted, and Cinder shows not exactly one attachment to this '
        'host, or no address in it and no name of the volume',
        lambda m: m.goes_on and m.adoptable is None,
        Outcome(_ITS_OWN),
        'Cinder shows {it.ids_attached_here} as attachment to this host, and '
        'exactly one, with an address or a name of the volume, could serve '
        'it'),

    'kernel': Row(
        'is adopted, and the kernel of this host has no device at that '
        'address',
        lambda m: m.goes_on and not m.on_host.device,
        Outcome(_ITS_OWN),
        'the kernel of this host has no device at the address of an '
        'attachment to this host'),

    'guest': Row(
        'is adopted, and the guest does not run on this host without a '
        'migration, or has not that very device as a disk with the serial of '
        'the volume',
        lambda m: m.goes_on
        and m.on_host.in_guest is not InGuest.DISK,
        Outcome(_ITS_OWN),
        'the hypervisor says of the guest: {it.on_host.in_guest.value}'),

    'Nova': Row(
        'is adopted, and Nova has another operation on the server in '
        'progress',
        lambda m: m.goes_on and m.on_host.operation,
        Outcome(_ITS_OWN),
        'an operation of Nova may be in progress: {it.on_host.operation}'),
}


_NOT_STARTED: Row[MappingFacts, Outcome] = Row(
    'in an operation in which Nova does not start the guest',
    lambda m: not m.starts,
    Outcome(_ITS_OWN),
    'no guest starts in this operation')

_FOREIGN: Row[MappingFacts, Outcome] = Row(
    'is of a volume of another project, or of one that is not known',
    lambda m: m.is_foreign or None in (
        m.volume.project, m.world.server.project),
    Outcome(_ITS_OWN),
    'the volume is not known to belong to the project of the server')

_SHARED: Row[MappingFacts, Outcome] = Row(
    'has a volume, or an attachment of it, that another mapping names, too',
    lambda m: len(m.siblings) > 1 or m.carried_elsewhere,
    Outcome(_ITS_OWN),
    'another mapping names the volume or one of its attachments')

# A move takes the attachments of a disk apart and makes new ones, and may fail
# at any step.  With the guest off, one new attachment to this host ends each
# of these states.  Nothing is deleted that may serve the guest elsewhere.
RECONNECTS: Table[Row[MappingFacts, Outcome]] = Table(
    ('A disk to reconnect by the tables above', 'Outcome'), (

    Row('in an operation in which Nova does not start the guest, and its '
        'disks are not adopted',
        lambda m: m.world.snapshot.guest is Guest.OTHER,
        Outcome(_ITS_OWN),
        'the operation neither starts the guest nor adopts its disks'),

    # It is reconnected when it is unshelved.
    Row('is of a server that is shelved and on no host, and not unshelved now',
        lambda m: m.world.server.is_offloaded
        and not m.arrives,
        Outcome(_ITS_OWN),
        'the server is shelved, and on no host'),

    Row('in an unshelve or an evacuation: its own attachment is the only one, '
        'and is ``attached`` or only reserves the volume',
        lambda m: m.awaits_arrival,
        Outcome(_ITS_OWN),
        'Nova goes on with this attachment'),

    # Cinder would overwrite what it does with the volume.
    Row('has a volume that is ``detaching``',
        lambda m: m.volume.status == 'detaching',
        Outcome(_ITS_OWN),
        'its volume is detaching'),

    # Cinder makes no other attachment before that ends.
    Row('has a volume that is ``attaching`` by no attachment of this server',
        lambda m: m.volume.status == 'attaching' and all(
            a.status == 'attached' for a in m.ours),
        Outcome(_ITS_OWN),
        'its volume is attaching, and by no attachment of this server'),

    _FOREIGN,

    # Cinder connects it to no second server.
    Row('has a volume that Cinder attaches to another server, too; not '
        'multiattach',
        lambda m: m.other_servers and not m.volume.multiattach,
        Outcome(_ITS_OWN),
        'Cinder attaches its volume to server {it.ids_of_other_servers}, too'),

    _SHARED,

    # Nothing tells what this host has of it.
    Row('has no connection information in Nova; not in an unshelve or an '
        'evacuation',
        lambda m: not m.bdm.has_connection_info
        and not m.arrives,
        Outcome(_ITS_OWN),
        'Nova has no connection information of it'),

    Row('has two attachments to this host; in an unshelve or an evacuation, '
        'to any hosts',
        lambda m: len(m.competing) > 1,
        Outcome(_ITS_OWN),
        'attachments {it.competing[0].id} and {it.competing[1].id} '
        'both connect it to a host'),

    # A delete of it would not tell the back end.
    Row('has an attachment, and names none (before Queens), or has one from '
        'before Queens, or one whose connection Cinder has not recorded, or '
        'does not list',
        lambda m: m.lists_what_is_not_shown
        or m.ours and not m.bdm.attachment_id or any(
            a.is_legacy or a.is_half_connected for a in m.ours),
        Outcome(_ITS_OWN),
        'Cinder does not tell what one of its attachments connects'),

    Row('has an attachment that may serve the guest on another host',
        lambda m: m.may_serve_elsewhere,
        Outcome(_ITS_OWN),
        'the guest may be on another host, and have the disk by attachment '
        '{it.may_serve_elsewhere[0].id}'),

    # As they are now, Nova fails before it deletes it.
    Row('in an evacuation: has an attachment that is not known to be of the '
        'former host, and the guest may be on a third one',
        lambda m: m.arrives and m.may_serve_third_host,
        Outcome(_ITS_OWN),
        'Nova would delete attachment {it.first.id}, by which the guest may '
        'have the disk on a third host'),

    *PARTIES.values(),

    Row('is adopted, and all of them agree',
        lambda m: m.goes_on,
        Outcome(_ITS_OWN, Action.ADOPT),
        'the guest has it by attachment {it.adoptable.id}, which the mapping '
        'takes over'),

    Row('is none of these',
        lambda m: True,
        Outcome(_ITS_OWN, Action.RECONNECT),
        'one attachment will connect it to this host'),
))


# The guest goes on with the new volume before Nova and Cinder record it.  So
# the disk that it had is what it has written to last.
HALF_SWAPPED: Table[Row[MappingFacts, Outcome]] = Table(
    ('A disk whose swap ended half way', 'Outcome'), (

    _NOT_STARTED,

    # Only Cinder can end that, and it deletes one of the volumes.
    Row('is migrated by Cinder',
        lambda m: m.volume.is_migrating,
        Outcome(_ITS_OWN),
        'Cinder migrates the volume, and the guest may have written to either '
        'one since'),

    _FOREIGN,

    _SHARED,

    Row('is of a guest that had another disk, or may have had it, and may be '
        'on another host',
        lambda m: (m.guest_disk is not None or m.may_have_been_swapped)
        and not m.is_placed,
        Outcome(_ITS_OWN),
        'the guest may be on another host, and have either disk'),

    Row('is of a guest that had the disk of an attachment of the swap. The '
        'mapping takes that attachment and its volume, and the others are '
        'deleted',
        lambda m: m.is_swappable,
        Outcome(_ITS_OWN, Action.RECONNECT),
        'the guest has volume {it.new_volume.id} in its place'),

    Row('is of a guest that had another disk, which cannot be taken',
        lambda m: m.had_other_disk,
        Outcome(_ITS_OWN),
        'the guest had another disk in its place ({it.guest_disk}), and no '
        'attachment of it can be taken'),

    Row('is of a guest that had the disk, or the swap has only reserved the '
        'other volume. What the swap has left is deleted',
        lambda m: m.had_own_disk or not m.may_have_been_swapped,
        Outcome(_ITS_OWN, Action.RECONNECT),
        'the guest has not left the volume, so its detach is rolled back'),

    Row('is none of these',
        lambda m: True,
        Outcome(_ITS_OWN),
        'it is not known which disk the guest had last'),
))


#: What an explanation says between a reason and why the disk is kept as it is.
NOT_RECONNECTED = '; not reconnected: '
NOT_ADOPTED = '; not adopted: '


def finding_of(mapping: MappingFacts) -> facts.Finding:
    """Return the finding about one mapping."""
    bdm, in_cinder = mapping.bdm, mapping.in_cinder
    outcome, explanation = mapping.row.outcome, mapping.words
    reason = mapping.reason
    if mapping.is_dangling:
        row = first(DANGLING_MAPPINGS.rows, mapping)
        outcome, explanation = row.outcome, row.explain(mapping)
        reason = outcome.reason_for(mapping)
    action = outcome.action
    is_swap = reason is Reason.SWAP_INTERRUPTED
    if action is Action.RECONNECT:
        last = first((HALF_SWAPPED if is_swap else RECONNECTS).rows, mapping)
        action = last.outcome.action
        if action is Action.KEEP:
            explanation += (
                NOT_ADOPTED if mapping.goes_on
                else NOT_RECONNECTED) + last.explain(mapping)
        elif is_swap:
            explanation += ': ' + last.explain(mapping)
        elif action is Action.ADOPT:
            explanation += '; ' + last.explain(mapping)
    removes = action is Action.REMOVE
    keeps_disk = action in (Action.RECONNECT, Action.ADOPT)
    if (removes and in_cinder is InCinder.ATTACHED
            and mapping.volume is not facts.ABSENT):
        # Cinder offers an available volume to every server.
        in_cinder = InCinder.UNATTACHED
    elif not bdm.has_connection_info and not removes:
        # Nova does not give it to the driver.
        in_cinder = InCinder.ATTACHED
    return facts.Finding(
        reason, explanation, bdm=bdm, action=action,
        in_cinder=in_cinder,
        is_root=mapping.has_root_disk or mapping.may_have_root_disk,
        depends_on_root=mapping.may_have_root_disk and (
            mapping.is_dangling or in_cinder is not InCinder.ATTACHED),
        dependent=mapping.dependent if removes else () if not keeps_disk
        else mapping.left_by_swap if is_swap else mapping.replaced,
        first=mapping.first if keeps_disk and not is_swap else None,
        parties=mapping.parties,
        swapped_to=mapping.new_disk if keeps_disk and is_swap else None,
        guest_had=mapping.guest_had if is_swap else None)
