# SPDX-License-Identifier: Apache-2.0
"""What is known before a volume is released, and what may follow."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import datetime
import enum
from typing import Any

from nova_bdm_cleanup.openstack.nova import ComputeServer, Disk
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Attachment, Policy, Volume


class Call(str, enum.Enum):
    """The calls that keep the back end and Cinder's database in step."""

    def __str__(self) -> str:
        return self.value

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
class Outcome:
    """What follows from a row of a table: a call, or none."""

    #: None: nothing may be done, and the words of the row say why.
    call: Call | None = None
    #: Nothing is wrong.
    is_settled: bool = False

    def __str__(self) -> str:
        if self.call is None:
            return 'refused'
        return ('``%s``' if self.call.startswith('os-') else '%s') % self.call


REFUSED = Outcome()

#: There is nothing to release.
SETTLED = Outcome(is_settled=True)


@dataclasses.dataclass(frozen=True)
class Connector:
    """The operator's word for what Cinder kept no connector of."""

    #: What ``nova-manage volume_attachment get_connector`` prints.
    data: Mapping[str, Any] | None = None
    #: No host was ever let in.
    is_none: bool = False

    @property
    def host(self) -> str | None:
        return self.data.get('host') if self.data else None


#: The operator gives none.
NO_CONNECTOR = Connector()


@dataclasses.dataclass(frozen=True)
class ReleaseFacts:
    """All that is known about one volume."""

    volume: Volume
    attachments: tuple[Attachment, ...]
    #: The servers that attachments name; None: Nova does not know it.
    servers: Mapping[str, ComputeServer | None]
    #: The servers that have a mapping of the volume.
    claimed_by: frozenset[str]
    #: Those of them that this Nova says it has deleted.
    deleted: frozenset[str]
    #: Where servers that Nova does not know have a volume attached: a host
    #: that is no compute host of this Nova.
    elsewhere: Mapping[str, str]
    #: Attachments of existing servers that the rules call stale.
    stale: frozenset[str]
    #: What the API shows of the mappings of the volume, by server, where an
    #: attach may hang.
    disks: Mapping[str, Disk]
    #: The devices of the guests of these servers, where Nova tells them.
    guests: Mapping[str, frozenset[str]]
    connector: Connector
    #: What is young and what is stuck.
    policy: Policy
    #: The time of all this.
    now: datetime.datetime

    def guest_has_it(self, server_id: str | None) -> bool | None:
        """Whether a guest has the disk; None: it is not known."""
        devices = self.guests.get(server_id or '')
        if not devices:
            # One that is off has none.
            return None if devices is None else False
        disk = self.disks.get(server_id or '')
        if disk is None or not disk.device:
            return None
        return spelling.device(disk.device) in devices


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

    @property
    def key(self) -> tuple[str | None, ...]:
        """What makes it the same step after another look."""
        return (self.volume, self.attachment_id,
                str(self.call) if self.call else None)
