# SPDX-License-Identifier: Apache-2.0
"""An attachment that is to be released: its facts, and the call to Cinder.

The volume's own facts and rows are in :mod:`volumes`.
"""

from __future__ import annotations

import dataclasses

from nova_bdm_cleanup.client.cloud import commands
from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.client.cloud.nova import ComputeServer
from nova_bdm_cleanup.client.cloud.release.volumes import (
    Call,
    HeldVolume,
    Holder,
    row,
    Ruling,
    VOLUME_ROWS,
)
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Attachment
from nova_bdm_cleanup.rules.reasons import Reason, Remedy
from nova_bdm_cleanup.rules.table import Row, Table


@dataclasses.dataclass(frozen=True)
class HeldAttachment(HeldVolume):
    """All facts about one attachment of a volume."""

    attachment: Attachment

    @property
    def holder(self) -> Holder:
        """Return the server that it names."""
        return self.holders.get(self.attachment.server_id or '', Holder())

    @property
    def server(self) -> ComputeServer | None:
        """Return the server that it names, if Nova knows it."""
        return self.holder.server

    @property
    def finding(self) -> CloudFinding | None:
        """Return what an audit finds about it; None: nothing.

        It may be about the mapping of the volume, which names no attachment
        that exists.
        """
        return self._finding_of(self.attachment)

    def _finding_of(self, attachment: Attachment) -> CloudFinding | None:
        found = self.holders.get(attachment.server_id or '', Holder()).findings
        known = {a.id for a in self.attachments}
        return next((f for f in found if f.attachment == attachment.id), None
                    ) or next((
                        f for f in found if f.volume == self.volume.id
                        and f.attachment not in known), None)

    @property
    def operator_says_unconnected(self) -> bool:
        """Return whether the operator says that no host was given access.

        Never if a record in Cinder shows that a host was.
        """
        return self.connector.is_none and self.attachment.is_legacy

    @property
    def needs_look(self) -> bool:
        return (self.attachment.server_id is not None and self.server is None
                and not self.holder.is_deleted)

    @property
    def server_has_mapping(self) -> bool:
        return self.server is not None and self.server.id in self.claimed_by

    @property
    def is_for_release(self) -> bool:
        """Return whether an audit of its server advises to release it.

        What is found about a mapping only ends a detach, of what is attached.
        """
        return self._is_for_release(self.attachment) or (
            self.is_being_detached and _is_to_release(self.finding))

    def _is_for_release(self, attachment: Attachment) -> bool:
        finding = self._finding_of(attachment)
        return (finding is not None and finding.attachment == attachment.id
                and finding.reason is not Reason.STUCK
                and _is_to_release(finding))

    @property
    def is_being_detached(self) -> bool:
        return (self.volume.status == 'detaching'
                and self.attachment.status == 'attached')

    @property
    def unfinished_neighbours(self) -> list[Attachment]:
        """Return other attachments whose operation the call would disturb.

        Cinder would compute the volume's state while they are in progress.
        Those to release, and those to servers that Nova does not know, do not
        count.
        """
        gone = {s for s, h in self.holders.items() if h.server is None}
        return [a for a in self.neighbours
                if a.status != 'attached' and a.server_id not in gone
                and not self._is_for_release(a)]

    @property
    def other_claims(self) -> list[str]:
        """Return other servers whose mapping of the volume is in the way.

        For a multiattach volume, not those with their own attachment.
        """
        attached = [a.server_id for a in self.neighbours] \
            if self.volume.multiattach else []
        return [s for s in self.claimed_by
                if s != self.attachment.server_id and s not in attached]

    @property
    def may_never_have_been_connected(self) -> bool:
        return (self.host is None and not self.neighbours
                and not self.volume.multiattach)

    # Words

    @property
    def wait_suffix(self) -> str:
        """Say until when to wait, if the finding passes by itself."""
        if self.finding is None or self.finding.remedy is not Remedy.WAIT:
            return ''
        wait = self.wait_for_grace if self.finding.wait else self.wait
        return wait and ': ' + wait

    @property
    def why_unused(self) -> str:
        if self.server is None:
            return ('Nova has deleted server %s' if self.holder.is_deleted
                    else 'Nova never knew server %s, or has purged it'
                    ) % self.attachment.server_id
        if self.server_has_mapping:
            return ('server %s uses the volume through another attachment, '
                    'and no mapping names this one' % self.server.id)
        return 'server %s has no mapping of the volume' % self.server.id

    # Commands

    @property
    def advice(self) -> tuple[str, ...]:
        """Return what an audit of its server advises."""
        if self.finding is None or _is_to_release(self.finding):
            return self.show
        return self.finding.action.commands

    @property
    def show(self) -> tuple[str, ...]:
        return (commands.show(self.attachment.server_id)
                + commands.bounds(self.policy),)


def _is_to_release(finding: CloudFinding | None) -> bool:
    # Not before the state of the server is reset.
    return (finding is not None and finding.remedy is Remedy.RELEASE
            and finding.reset_by is None)


HELD_ATTACHMENTS: Table[Row[HeldAttachment, Ruling]] = Table(
    ('The attachment', 'Call'), (

    *VOLUME_ROWS,

    row('names no server: it is of an image store or of a backup',
        lambda a: not a.attachment.server_id,
        'the attachment names no server: another service than Nova uses the '
        'volume'),

    # Where several regions share a Cinder, each has its own Nova.
    row('names a server that Nova never knew, or has purged, and an '
        'attachment of that server is ``attached`` on a host that is no '
        'compute host of this Nova, and that ``--gone-host`` does not name',
        lambda a: a.holder.elsewhere,
        'host {it.holder.elsewhere} is no compute host of this Nova, and has '
        'a volume of server {it.attachment.server_id}: another Nova that uses '
        'the same Cinder may have the server',
        commands=lambda a: (commands.release_of_gone_host(
            a.attachment.id, a.holder.elsewhere or '', a.policy),)),

    # Nova reserves the volumes of a server before the server exists.
    row('names a server that does not exist, is not ``attached``, and its '
        'volume changed within ``--grace-period``',
        lambda a: (not a.server and a.attachment.status != 'attached'
                   and a.wait_for_grace),
        'the attachment is too new; its server may still be building: '
        '{it.wait_for_grace}'),

    # A server that exists
    row('names a server that is locked',
        lambda a: a.server and a.server.locked,
        'server {it.server.id} is locked; if an administrator locked it, only '
        'an administrator can unlock it',
        commands=lambda a: (
            commands.unlock(a.attachment.server_id or ''),)),

    row('names a server that exists, and an audit of it finds nothing about '
        'the attachment',
        lambda a: a.server and not a.finding,
        'server {it.server.id} uses the volume; nothing to release',
        is_settled=True),

    # The audit decides, with what it knows of the whole server.
    row('names a server that exists, and an audit of it advises anything else '
        'than a release',
        lambda a: a.server and not a.is_for_release,
        '{it.finding.explanation}{it.wait_suffix}',
        commands=lambda a: a.advice),

    # Only a detach ends what the guest has given up.  Nova goes on if the
    # guest does not have the disk.
    row('is ``attached``, its server has a mapping of the volume, which is '
        '``detaching`` since a detach that did not succeed; no swap of the '
        'server is open, and Nova accepts a detach',
        lambda a: (a.server_has_mapping and a.is_being_detached
                   and a.holder.has_failed_detach),
        'a detach of the volume from server {it.server.id} ended half way, '
        'and the guest may have given the disk up. Once the volume is in-use '
        'again, Nova detaches it',
        Call.DETACH_AGAIN),

    row('is ``attached``, its server has a mapping of the volume, which is '
        '``detaching``',
        lambda a: a.server_has_mapping and a.is_being_detached,
        'the detach ended half way, and server {it.server.id} still has a '
        'mapping of the volume',
        Call.ROLL_DETACHING),

    row('is ``attached``, its server has no mapping of the volume, which is '
        '``detaching``; the attachment is stale then',
        lambda a: a.server and a.is_being_detached,
        'the detach ended half way, and server {it.server.id} has no mapping '
        'of the volume; once the volume is in-use again, the attachment is '
        'stale',
        Call.ROLL_DETACHING,
        commands=lambda a: a.show),

    # Removing a disk under a running guest hands its data to the next server
    # that gets the same device.
    row('is stale, its server is on a host, and ``--connector FILE`` says '
        'that a host may have the volume open: only a hard reboot removes it '
        'in the safe order',
        lambda a: (a.server and a.server.host and a.connector.host
                   and not a.attachment.is_legacy),
        'host {it.server.host} may have the volume open; a hard reboot '
        'removes the attachment in the safe order',
        commands=lambda a: a.show),

    # A reboot does not delete an attachment from before Queens.
    row('is stale and from before Queens, and its server is on a host and not '
        'stopped, unless Cinder names no host and ``--connector none`` is '
        'given',
        lambda a: (a.server and a.server.host and a.attachment.is_legacy
                   and not (a.operator_says_unconnected and a.host is None)
                   and a.server.status != 'SHUTOFF'),
        'host {it.server.host} may have the volume open. Stop server '
        '{it.server.id}, remove the device from the host, and release the '
        'attachment with the connector of the host',
        commands=lambda a: a.with_connector),

    row('is stale and from before Queens, and its volume changed within '
        '``--grace-period``',
        lambda a: a.server and a.wait_for_grace,
        'the attachment is too new: {it.wait_for_grace}'),

    # No server uses it
    row('is unused, but another attachment of the volume is not ``attached``, '
        'and names a server that exists or none',
        lambda a: a.unfinished_neighbours,
        '{it.why_unused}, but attachment {it.unfinished_neighbours[0].id} of '
        'the volume is {it.unfinished_neighbours[0].status}'),

    row('is unused, but another server has a mapping of the volume and '
        '(multiattach) no attachment of its own',
        lambda a: a.other_claims,
        '{it.why_unused}, but server {it.other_claims[0]} has a mapping of '
        'the volume'),

    # An operator with one wrong value may also name the wrong target.
    row('is unused, and ``--connector FILE`` is of another host than Cinder '
        'names',
        lambda a: (a.connector.host and a.host and spelling.host(a.host)
                   != spelling.host(a.connector.host)),
        '{it.why_unused}, but the connector is of host {it.connector.host} '
        'and the attachment of host {it.host}'),

    row('is unused, ``--connector none`` is given, and the attachment is '
        'connected',
        lambda a: a.connector.is_none and a.attachment.connected,
        '{it.why_unused}, but Cinder has connection information of the '
        'attachment, so --connector none is refused; omit it'),

    row('is unused, and is connected, but only ``reserved``: the attachment '
        'is completed first, so that the back end unmaps the volume',
        lambda a: a.attachment.is_half_connected,
        '{it.why_unused}, and a host was given access, although the '
        'attachment is only reserved',
        Call.COMPLETE_AND_DELETE),

    row('is unused, and Cinder has its connector: the back end unmaps the '
        'volume',
        lambda a: a.attachment.connected,
        '{it.why_unused}',
        Call.DELETE),

    # A call that leaves no record may have given a host access.
    row('is unused, only reserves the volume, and ``--connector FILE`` is not '
        'given: the back end is not called',
        lambda a: (a.attachment.status == 'reserved'
                   and not a.connector.host),
        '{it.why_unused}, and the attachment only reserves the volume. If the '
        'back end shows that a host has it mapped, give the connector of that '
        'host with --connector',
        Call.DELETE),

    row('is unused, and neither ``reserved`` nor ``attached`` nor connected',
        lambda a: a.attachment.status not in ('reserved', 'attached'),
        '{it.why_unused}, but it is not known what an attachment means that '
        'is {it.attachment.status} and not connected'),

    # Attached before Queens, or reserved and connected without a record: a
    # plain delete would leave the volume mapped.
    row('is unused, Cinder has no connector of it, and the volume has other '
        'attachments',
        lambda a: a.neighbours,
        '{it.why_unused}, but Cinder has no connector of it, and the volume '
        'has other attachments'),

    # Created by a call to Cinder that is not Nova's and gives no host access.
    row('is unused, ``--connector none`` is given, and Cinder names a host '
        'that had it',
        lambda a: a.operator_says_unconnected and a.host,
        '{it.why_unused}, but Cinder says that host {it.host} had the '
        'volume, so --connector none is refused; give the connector of that '
        'host',
        commands=lambda a: a.with_connector),

    row('is unused, ``--connector none`` is given, and the volume is '
        'multiattach: a host of another server may have it without a record',
        lambda a: a.operator_says_unconnected and a.volume.multiattach,
        '{it.why_unused}, but the volume is multiattach, so --connector none '
        'is refused; give the connector of a host',
        commands=lambda a: a.with_connector),

    row('is unused, Cinder has neither its connector nor its host, and '
        '``--connector none`` confirms that no host ever had it: the back end '
        'is not called',
        lambda a: a.operator_says_unconnected,
        '{it.why_unused}, and --connector none confirms that no host ever had '
        'the volume',
        Call.DELETE),

    row('is unused, Cinder has no connector of it, and ``--connector FILE`` '
        'is not given',
        lambda a: not a.connector.host,
        '{it.why_unused}, but Cinder has no connector of the attachment; give '
        'that of its host',
        commands=lambda a: a.with_connector),

    row('is unused, and Cinder has no connector of it (before Queens, or '
        'connected without a record)',
        lambda a: True,
        '{it.why_unused}',
        Call.FORCE_DETACH),
))
