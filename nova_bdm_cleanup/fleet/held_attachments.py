# SPDX-License-Identifier: Apache-2.0
"""Which call releases an attachment of a volume, and when none may."""

from __future__ import annotations

from collections.abc import Sequence

from nova_bdm_cleanup.fleet.held_volumes import HeldVolume, VOLUME_ROWS
from nova_bdm_cleanup.fleet.release_facts import (
    Call,
    Outcome,
    REFUSED,
    ReleaseFacts,
    SETTLED,
)
from nova_bdm_cleanup.openstack.nova import ComputeServer, Disk
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Attachment
from nova_bdm_cleanup.rules.table import Row, Table

HELD_ATTACHMENTS: Table[Row[HeldAttachment, Outcome]] = Table(
    ('The attachment', 'call'), (

    *VOLUME_ROWS,

    Row('is, read again, of another volume',
        lambda a: a.attachment.volume_id != a.volume.id,
        REFUSED,
        'the attachment is of volume {it.attachment.volume_id}'),

    Row('names no server: an image store\'s or a backup\'s',
        lambda a: not a.attachment.server_id,
        REFUSED,
        'the attachment names no server: something else than Nova uses the '
        'volume'),

    # Where several regions share a Cinder, each has a Nova of its own.
    Row('names a server that does not exist, of which this or another '
        'attachment is ``attached`` on a host that is none of this Nova\'s '
        'compute hosts',
        lambda a: a.elsewhere,
        REFUSED,
        'host {it.elsewhere} is no compute host of this Nova, and has a '
        'volume of server {it.attachment.server_id}: another Nova that uses '
        'the same Cinder may have the server'),

    # Nova reserves the volumes of a server before the server exists.
    Row('names a server that does not exist, is not ``attached``, and its '
        'volume changed within ``--grace-period``',
        lambda a: not a.server and not a.is_attached and a.is_young,
        REFUSED,
        'the attachment is too new; its server may still be building: '
        '{it.wait_for_grace}'),

    # A server that exists
    Row('names a server that Nova is changing',
        lambda a: a.server and a.server.is_busy,
        REFUSED,
        'server {it.server.id} is changing ({it.task})'),

    Row('names a server marked ``bdm_cleanup=keep``',
        lambda a: a.server and a.server.keep,
        REFUSED,
        'server {it.server.id} is marked bdm_cleanup=keep'),

    # A mapping that was never connected, or is no more.  An attach leaves
    # that behind, which nobody misses, and so does a failed move of the
    # server, which must get its disk back.
    Row('is not ``attached``, its server has a mapping of the volume, and '
        'another attachment serves it',
        lambda a: a.is_half_attached and a.server_is_served,
        REFUSED,
        'server {it.server.id} has the volume by another attachment: '
        'openstack bdm show {it.server.id}'),

    Row('is not ``attached``, its server has a mapping of the volume, which '
        'changed within ``--stuck-after``',
        lambda a: a.is_half_attached and not a.is_stuck,
        REFUSED,
        'the volume is being attached: {it.wait_for_stuck}'),

    # Nova saves what it knows of a disk before the guest gets it, and tells
    # Cinder after that.  Which of the two was not done, the guest shows.
    Row('is connected and not ``attached``, its server has a mapping that '
        'names it, and the guest has the disk',
        lambda a: a.is_unfinished and a.guest_has_it,
        Outcome(Call.COMPLETE),
        'server {it.server.id} runs with the disk as {it.disk.device}, and '
        'its mapping names this attachment: only the last word to Cinder is '
        'missing'),

    Row('is connected and not ``attached``, its server has a mapping that '
        'names it, and the server is stopped or its guest does not have the '
        'disk. Once the volume is ``in-use``, Nova can take it back',
        lambda a: a.is_unfinished and a.guest_has_it is False,
        Outcome(Call.COMPLETE),
        'the mapping of server {it.server.id} names this attachment, but no '
        'guest has the disk. Once the volume is in use, Nova can take it '
        'back: openstack server remove volume {it.server.id} '
        '{it.volume.id}. Where that fails, Nova has saved no connection of '
        'it: see "stuck" in the runbook'),

    Row('is connected and not ``attached``, its server has a mapping that '
        'names it, and Nova does not tell what the guest has',
        lambda a: a.is_unfinished,
        REFUSED,
        'the mapping of server {it.server.id} names this attachment, and '
        'whether its guest has the disk is not known: look with "virsh '
        'domblklist {it.server.id}" on host {it.server.host}. Then complete '
        'the attachment (openstack --os-volume-api-version 3.44 volume '
        'attachment complete {it.attachment.id}) and, if the guest does not '
        'have it, take it back (openstack server remove volume '
        '{it.server.id} {it.volume.id})'),

    Row('is not ``attached``, and its server has a mapping of the volume: an '
        'attach or a move of the server ended half way, and only a person '
        'knows which. Stop the server, have Nova attach the volume anew with '
        '``nova-manage volume_attachment refresh``, and detach it then if '
        'the server is not to have it',
        lambda a: a.is_half_attached,
        REFUSED,
        'server {it.server.id} has a mapping of the volume, and the '
        'attachment is only {it.attachment.status}: an attach or a move of '
        'the server ended half way. Stop the server and have Nova attach '
        'the volume anew with "nova-manage volume_attachment refresh"; then '
        'detach it, if the server is not to have it'),

    Row('is ``attached``, its server has a mapping of the volume, which is '
        '``attaching`` or ``reserved`` for less than ``--stuck-after``, or '
        'another attachment of it is not ``attached``',
        lambda a: a.is_out_of_step and (
            not a.is_stuck or a.unfinished_neighbours),
        REFUSED,
        'the volume is being attached{it.wait_or_not}'),

    Row('is ``attached``, its server has a mapping that names it or none, '
        'and the volume is ``attaching`` or ``reserved``: only its state is '
        'put right',
        lambda a: a.is_out_of_step and a.is_named_by_mapping,
        Outcome(Call.COMPLETE),
        'server {it.server.id} has the volume, and nothing is under way, but '
        'the volume is {it.volume.status}'),

    Row('is of a server that has a mapping of the volume, which is not '
        '``detaching``',
        lambda a: a.server_has_mapping and not a.is_being_detached,
        SETTLED,
        'server {it.server.id} uses the volume; nothing to release'),

    # To a reboot a volume that is detaching is none of its business, and
    # one that is in use without a mapping is stale.
    Row('is ``attached``, its server exists, and the volume is ``detaching`` '
        'for less than ``--stuck-after``',
        lambda a: a.server and a.is_being_detached and not a.is_stuck,
        REFUSED,
        'the volume is being detached: {it.wait_for_stuck}'),

    Row('is ``attached``, its server has a mapping of the volume, which is '
        '``detaching``',
        lambda a: a.server_has_mapping,
        Outcome(Call.ROLL_DETACHING),
        'the detach failed in Nova, and server {it.server.id} still has the '
        'disk'),

    Row('is ``attached``, its server is locked and has no mapping of the '
        'volume, which is ``detaching``',
        lambda a: a.server and a.is_being_detached and a.server.locked,
        REFUSED,
        'server {it.server.id} is locked: an administrator may be at work'),

    Row('is ``attached``, its server has no mapping of the volume, which is '
        '``detaching``; the attachment is stale then',
        lambda a: a.server and a.is_being_detached,
        Outcome(Call.ROLL_DETACHING),
        'the detach ended half way, and server {it.server.id} has no mapping '
        'of the volume; once the volume is in use again, the attachment is '
        'stale, and {it.way_out}'),

    Row('names a server that exists, and it is not certain that it is stale',
        lambda a: a.server and not a.is_stale,
        REFUSED,
        'server {it.server.id} exists, and it is not certain that the '
        'attachment is stale: openstack bdm show {it.server.id}'),

    # Taking a disk away below a guest hands its data to the next server
    # that gets the same device.
    Row('is stale, but its server is on a host that may have the volume '
        'open: ``openstack bdm clean`` removes it in the safe order. Whether '
        'a host was let in is not asked where Cinder kept neither connector '
        'nor host, and ``--connector none`` says that none was',
        lambda a: a.server and a.server.host and a.was_connected,
        REFUSED,
        'host {it.server.host} may have the volume open; a hard reboot '
        'removes it in the safe order: openstack bdm clean {it.server.id}'
        '{it.or_never}'),

    Row('is stale and was never connected, and its volume changed within '
        '``--grace-period``',
        lambda a: a.server and not a.was_connected and a.is_young,
        REFUSED,
        'the attachment is too new: {it.wait_for_grace}'),

    # Nobody uses it
    Row('is used by nobody, but another attachment of the volume, of a '
        'server that exists or of none, is not ``attached``',
        lambda a: a.unfinished_neighbours,
        REFUSED,
        '{it.why_unused}, but attachment {it.unfinished_neighbours[0].id} of '
        'the volume is {it.unfinished_neighbours[0].status}'),

    Row('is used by nobody, but another server has a mapping of the volume '
        'and (multiattach) no attachment of its own',
        lambda a: a.other_claims,
        REFUSED,
        '{it.why_unused}, but server {it.other_claims[0]} has a mapping of '
        'the volume'),

    # Who is wrong about one thing may be wrong about what is released, too.
    Row('is used by nobody, and ``--connector FILE`` is of another host than '
        'Cinder names',
        lambda a: (a.connector.host and a.host and spelling.host(a.host)
                   != spelling.host(a.connector.host)),
        REFUSED,
        '{it.why_unused}, but the connector is of host {it.connector.host} '
        'and the attachment of host {it.host}'),

    Row('is used by nobody, ``--connector none`` is given, and the '
        'attachment is connected',
        lambda a: a.connector.is_none and a.attachment.connected,
        REFUSED,
        '{it.why_unused}, but Cinder kept the connection of the attachment, '
        'so --connector none is not believed; leave it out'),

    Row('is used by nobody, and is connected with a connector that Cinder '
        'kept: the back end unmaps the volume',
        lambda a: (a.attachment.connected
                   and not a.attachment.is_half_connected),
        Outcome(Call.DELETE),
        '{it.why_unused}'),

    Row('is used by nobody, and is connected, but only ``reserved``: Cinder '
        'is told that it is attached, and the back end unmaps the volume',
        lambda a: a.attachment.is_half_connected,
        Outcome(Call.COMPLETE_AND_DELETE),
        '{it.why_unused}, and a host was let in, although the attachment is '
        'only reserved'),

    # Nothing shows whether a host was let in by a call that left no trace.
    Row('is used by nobody, only reserves the volume, and ``--connector '
        'FILE`` is not given: the back end is told nothing',
        lambda a: (a.attachment.status == 'reserved'
                   and not a.connector.host),
        Outcome(Call.DELETE),
        '{it.why_unused}, and the attachment only reserves the volume; if a '
        'host has it mapped all the same, which Cinder would not show, give '
        'the connector of that host with --connector'),

    Row('is used by nobody, and neither ``reserved`` nor ``attached`` nor '
        'connected',
        lambda a: not (a.attachment.is_legacy
                       or a.attachment.status == 'reserved'),
        REFUSED,
        '{it.why_unused}, but the attachment is {it.attachment.status} '
        'without a connection: what that means is not known'),

    # Attached before Queens, or reserved and connected without a trace: a
    # plain delete would leave the volume mapped.
    Row('is used by nobody, Cinder kept no connector of it, and the volume '
        'has other attachments',
        lambda a: a.neighbours,
        REFUSED,
        '{it.why_unused}, but Cinder kept no connector of it, and the volume '
        'has other attachments'),

    # Made by a call to Cinder that was not Nova's, which lets no host in.
    Row('is used by nobody, ``--connector none`` is given, and Cinder names '
        'a host that had it',
        lambda a: a.is_said_unconnected and a.host,
        REFUSED,
        '{it.why_unused}, but Cinder says that host {it.host} had the '
        'volume, so --connector none is not believed; {it.wanted}'),

    Row('is used by nobody, ``--connector none`` is given, and the volume is '
        'multiattach: a host of another server may have it without a record',
        lambda a: a.is_said_unconnected and a.volume.multiattach,
        REFUSED,
        '{it.why_unused}, but the volume is multiattach, so --connector none '
        'is not believed; give the connector of a host'),

    Row('is used by nobody, Cinder kept neither connector nor host, and '
        '``--connector none`` says that no host ever had it: the record '
        'goes, and the back end is told nothing',
        lambda a: a.is_said_unconnected,
        Outcome(Call.DELETE),
        '{it.why_unused}, and no host ever had the volume, says --connector '
        'none'),

    Row('is used by nobody, Cinder kept no connector of it, and '
        '``--connector FILE`` is not given',
        lambda a: not a.connector.host,
        REFUSED,
        '{it.why_unused}, but {it.wanted}'),

    Row('is used by nobody, and Cinder kept no connector of it (before '
        'Queens, or a connection without a trace)',
        lambda a: True,
        Outcome(Call.FORCE_DETACH),
        '{it.why_unused}'),
))


class HeldAttachment(HeldVolume):
    """What the table may ask about one attachment of a volume."""

    attachment: Attachment

    def __init__(self, facts: ReleaseFacts, attachment: Attachment) -> None:
        super().__init__(facts)
        self.attachment = attachment
        #: The server that it names, if Nova knows it.
        self.server: ComputeServer | None = facts.servers.get(
            attachment.server_id or '')
        self.host = facts.volume.host_of(attachment.id)
        #: The operator says that no host was let in, and nothing in Cinder
        #: shows that one was.
        self.is_said_unconnected: bool = (
            self.connector.is_none and attachment.is_legacy)
        self.is_attached: bool = attachment.status == 'attached'
        self.neighbours = [
            a for a in facts.attachments if a.id != attachment.id]
        #: A host with a volume of its server, and of no Nova that is known.
        self.elsewhere: str | None = facts.elsewhere.get(
            attachment.server_id or '')
        self.needs_look = (
            attachment.server_id is not None and self.server is None and (
                self.elsewhere is not None
                or attachment.server_id not in facts.deleted))

    @property
    def server_has_mapping(self) -> bool:
        return (self.server is not None
                and self.server.id in self._facts.claimed_by)

    @property
    def is_half_attached(self) -> bool:
        """A mapping of a running server, and an attachment that is none."""
        return (self.server is not None and self.server_has_mapping
                and not self.is_attached and not self.server.is_shelved)

    @property
    def disk(self) -> Disk | None:
        """The mapping of its server, as the API shows it."""
        return self._facts.disks.get(self.attachment.server_id or '')

    @property
    def is_unfinished(self) -> bool:
        """An attach that got as far as the host; the mapping names it."""
        return (self.is_half_attached and self.attachment.connected
                and self.disk is not None
                and self.disk.attachment_id == self.attachment.id
                and not self.unfinished_neighbours)

    @property
    def guest_has_it(self) -> bool | None:
        return self._facts.guest_has_it(self.attachment.server_id)

    @property
    def is_out_of_step(self) -> bool:
        """It is as it should be, and only the volume's state is not."""
        return (self.server is not None and self.server_has_mapping
                and self.is_attached and not self.server.is_shelved
                and self.volume.status in ('attaching', 'reserved'))

    @property
    def is_named_by_mapping(self) -> bool:
        return self.disk is not None and self.disk.attachment_id in (
            None, self.attachment.id)

    @property
    def server_is_served(self) -> bool:
        """Another attachment attaches the volume to the same server."""
        return any(a.server_id == self.attachment.server_id
                   and a.status == 'attached' for a in self.neighbours)

    @property
    def is_being_detached(self) -> bool:
        return self.volume.status == 'detaching' and self.is_attached

    @property
    def is_stale(self) -> bool:
        """The rules of a reboot call it stale."""
        return self.attachment.id in self._facts.stale

    @property
    def was_connected(self) -> bool:
        """Some host may have the volume open.

        Who gives a connector says that its host was let in.
        """
        return bool(
            self.connector.host or self.attachment.connected
            or self.attachment.is_legacy and (
                self.host is not None or not self.is_said_unconnected))

    @property
    def unfinished_neighbours(self) -> Sequence[Attachment]:
        """Operations of others: Cinder would compute a state below them."""
        return [a for a in self.neighbours if a.status != 'attached' and (
            not a.server_id or self._facts.servers[a.server_id] is not None)]

    @property
    def other_claims(self) -> Sequence[str]:
        """Other servers with a mapping of the volume that stand in the way.

        Those of a multiattach volume do not, if they have an attachment of
        their own.
        """
        attached = [a.server_id for a in self.neighbours] \
            if self.volume.multiattach else []
        return [s for s in sorted(self._facts.claimed_by)
                if s != self.attachment.server_id and s not in attached]

    # Words

    @property
    def wait_or_not(self) -> str:
        return '' if self.is_stuck else ': ' + self.wait_for_stuck

    @property
    def task(self) -> str:
        return (self.server.task_state or self.server.status
                if self.server else '')

    @property
    def way_out(self) -> str:
        if self.server and self.server.host:
            return ('a hard reboot removes it in the safe order: openstack '
                    'bdm clean %s' % self.server.id)
        return 'can be released'

    @property
    def or_never(self) -> str:
        return ('; if no host ever had it: openstack bdm release --connector '
                'none %s' % self.attachment.id
                if self.attachment.is_legacy and self.host is None
                and not self.neighbours and not self.volume.multiattach
                else '')

    @property
    def why_unused(self) -> str:
        if self.server is None:
            return ('Nova has deleted server %s' if self.attachment.server_id
                    in self._facts.deleted else
                    'Nova never knew server %s, or has purged it'
                    ) % self.attachment.server_id
        return 'server %s has no mapping of the volume' % self.server.id
