# SPDX-License-Identifier: Apache-2.0
"""What is known before a volume is released, and what may follow."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import datetime
from typing import Any

from nova_bdm_cleanup.client.cloud.nova import ComputeServer, Disk
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Attachment, Code, Policy, Volume


class Call(Code):
    """The calls that keep the back end and Cinder's database in step."""

    #: Unmaps the volume with the connector that Cinder stored.  Of a record
    #: without one it tells the back end nothing.
    DELETE = 'attachment delete'

    #: The same where Cinder died before it said that the host is let in: it
    #: would not unmap what is only reserved.
    COMPLETE_AND_DELETE = 'os-complete, attachment delete'

    #: Unmaps the volume with a connector that the operator gives.
    FORCE_DETACH = 'os-force_detach'

    #: The same for a volume of which Cinder has no record.
    TERMINATE = 'os-terminate_connection'

    #: The attach is over, and was done.  The back end is not told.
    COMPLETE = 'os-complete'

    #: The detach is over, and was not done: the volume is in use again.
    ROLL_DETACHING = 'os-roll_detaching'

    #: Nothing was ever mapped.
    UNRESERVE = 'os-unreserve'
    DETACH = 'os-detach'


@dataclasses.dataclass(frozen=True)
class Ruling:
    """What follows from a row of a table: a call, or none."""

    #: None: nothing may be done, and the words of the row say why.
    call: Call | None = None
    #: Nothing is wrong: there is nothing to release.
    is_settled: bool = False

    def __str__(self) -> str:
        if self.call is None:
            return 'refused'
        return ('``%s``' if self.call.startswith('os-') else '%s') % self.call


@dataclasses.dataclass(frozen=True)
class Connector:
    """The operator's word for what Cinder kept no connector of, if any."""

    #: What ``nova-manage volume_attachment get_connector`` prints.
    data: Mapping[str, Any] | None = None
    #: No host was ever let in.
    is_none: bool = False

    @property
    def host(self) -> str | None:
        return self.data.get('host') if self.data else None


@dataclasses.dataclass(frozen=True)
class Holder:
    """A server that attachments of a volume name."""

    #: None: Nova does not know it.
    server: ComputeServer | None = None
    #: This Nova says that it has deleted it.
    is_deleted: bool = False
    #: A host that has a volume of it, and is no compute host of this Nova,
    #: which does not know the server.
    elsewhere: str | None = None
    #: Its attachments that the rules of a reboot call stale.
    stale: frozenset[str] = frozenset()
    #: What the API shows of its mapping, where an attach may hang.
    disk: Disk | None = None
    #: The devices of its guest then; None: Nova does not tell.
    guest: frozenset[str] | None = None

    @property
    def guest_has_it(self) -> bool | None:
        """Whether its guest has the disk; None: it is not known."""
        if not self.guest:
            # One that is off has none.
            return None if self.guest is None else False
        if self.disk is None or not self.disk.device:
            return None
        return spelling.device(self.disk.device) in self.guest


@dataclasses.dataclass(frozen=True)
class HeldVolume:
    """All that is known about one volume."""

    volume: Volume
    attachments: tuple[Attachment, ...]
    #: The servers that attachments name, by id.
    holders: Mapping[str, Holder]
    #: The servers that have a mapping of the volume, in order.
    claimed_by: tuple[str, ...]
    connector: Connector
    #: What is young and what is stuck.
    policy: Policy
    #: The time of all this.
    now: datetime.datetime
    attachment: Attachment | None = None

    @property
    def needs_look(self) -> bool:
        """Another Nova may have the server."""
        return False

    @property
    def host(self) -> str | None:
        """The host that is connected, where Cinder tells it."""
        return (self.volume.host_of(self.attachment.id) if self.attachment
                else None)

    @property
    def neighbours(self) -> list[Attachment]:
        """The other attachments of the volume."""
        return [a for a in self.attachments if a != self.attachment]

    # Words

    @property
    def wait(self) -> str:
        """When it will be old enough for its state; empty: it is."""
        return (self.wait_for_grace
                if self.volume.status in ('in-use', 'available')
                else self.wait_for_stuck)

    @property
    def wait_for_grace(self) -> str:
        """When it will not be young any more; empty: it is not."""
        return self._wait(self.policy.grace_period, '--grace-period')

    @property
    def wait_for_stuck(self) -> str:
        """When it will be stuck; empty: it is."""
        return self._wait(self.policy.stuck_after, '--stuck-after')

    def _wait(self, period: datetime.timedelta, option: str) -> str:
        since = self.volume.updated_at
        if since is None:
            return 'Cinder does not say since when'
        if self.now - since >= period:
            return ''
        # Up to the next whole second.
        end = since + period + datetime.timedelta(seconds=1)
        return 'wait until %s UTC (%s)' % (
            end.astimezone(datetime.timezone.utc).strftime(
                '%Y-%m-%d %H:%M:%S'), option)

    @property
    def why_unused(self) -> str:
        return ('the volume is %s, and neither Nova nor an attachment says '
                'by whom' % self.volume.status)

    @property
    def wanted(self) -> str:
        return ('Cinder kept no connector: give --connector with the output '
                'of "nova-manage volume_attachment get_connector --json" on '
                + ('host ' + self.host if self.host else
                   'the host that had the volume, or --connector none if no '
                   'host ever had it'))


@dataclasses.dataclass(frozen=True)
class HeldAttachment(HeldVolume):
    """The same about one of its attachments."""

    attachment: Attachment

    @property
    def holder(self) -> Holder:
        """The server that it names."""
        return self.holders.get(self.attachment.server_id or '', Holder())

    @property
    def server(self) -> ComputeServer | None:
        """The same, if Nova knows it."""
        return self.holder.server

    @property
    def is_attached(self) -> bool:
        return self.attachment.status == 'attached'

    @property
    def is_said_unconnected(self) -> bool:
        """The operator says that no host was let in, and nothing in Cinder
        shows that one was.
        """
        return self.connector.is_none and self.attachment.is_legacy

    @property
    def needs_look(self) -> bool:
        return (self.attachment.server_id is not None and self.server is None
                and (self.holder.elsewhere is not None
                     or not self.holder.is_deleted))

    @property
    def server_has_mapping(self) -> bool:
        return self.server is not None and self.server.id in self.claimed_by

    @property
    def host_has_mapping(self) -> bool:
        """The same of a server that some host runs, or ran."""
        return (self.server is not None and self.server_has_mapping
                and not self.server.is_shelved)

    @property
    def is_half_attached(self) -> bool:
        return self.host_has_mapping and not self.is_attached

    @property
    def is_out_of_step(self) -> bool:
        """It is as it should be, and only the volume's state is not."""
        return (self.host_has_mapping and self.is_attached
                and self.volume.status in ('attaching', 'reserved'))

    @property
    def is_unfinished(self) -> bool:
        """An attach that got as far as the host; the mapping names it."""
        disk = self.holder.disk
        return (self.is_half_attached and self.attachment.connected
                and disk is not None
                and disk.attachment_id == self.attachment.id
                and not self.unfinished_neighbours)

    @property
    def is_being_detached(self) -> bool:
        return self.volume.status == 'detaching' and self.is_attached

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
    def unfinished_neighbours(self) -> list[Attachment]:
        """Operations of others: Cinder would compute a state below them.

        What a server left that Nova does not know is none.
        """
        gone = {s for s, h in self.holders.items() if h.server is None}
        return [a for a in self.neighbours
                if a.status != 'attached' and a.server_id not in gone]

    @property
    def other_claims(self) -> list[str]:
        """Other servers with a mapping of the volume that stand in the way.

        Those of a multiattach volume do not, if they have an attachment of
        their own.
        """
        attached = [a.server_id for a in self.neighbours] \
            if self.volume.multiattach else []
        return [s for s in self.claimed_by
                if s != self.attachment.server_id and s not in attached]

    # Words

    @property
    def wait_or_not(self) -> str:
        return self.wait_for_stuck and ': ' + self.wait_for_stuck

    @property
    def way_out(self) -> str:
        if self.server and self.server.host and not self.attachment.is_legacy:
            return ('a hard reboot removes it in the safe order: openstack '
                    'bdm clean %s' % self.server.id)
        return 'can be released'

    @property
    def or_never(self) -> str:
        return ('; if no host ever had it: openstack bdm release --connector '
                'none %s' % self.attachment.id
                if self.host is None
                and not self.neighbours and not self.volume.multiattach
                else '')

    @property
    def why_unused(self) -> str:
        if self.server is None:
            return ('Nova has deleted server %s' if self.holder.is_deleted
                    else 'Nova never knew server %s, or has purged it'
                    ) % self.attachment.server_id
        return 'server %s has no mapping of the volume' % self.server.id


@dataclasses.dataclass(frozen=True)
class ReleaseStep:
    """What happens to one attachment, or to a volume without any."""

    volume: str
    explanation: str
    attachment: Attachment | None = None
    host: str | None = None
    since: datetime.datetime | None = None
    #: None: nothing may be done, and the explanation says why.
    call: Call | None = None
    connector: Mapping[str, Any] | None = None
    #: The state of the volume afterwards.
    expected: str = ''
    #: Another Nova may have the server.
    needs_look: bool = False
    #: Nothing is wrong, so there is nothing to release.
    is_settled: bool = False

    @property
    def attachment_id(self) -> str | None:
        return self.attachment.id if self.attachment else None

    @property
    def server(self) -> str | None:
        return self.attachment.server_id if self.attachment else None
