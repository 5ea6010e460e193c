# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""What is known before a volume is released, and what may follow."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from typing import Any, FrozenSet, Mapping, Optional, Tuple, Union

from nova_bdm_cleanup.fleet.compute import ComputeServer
from nova_bdm_cleanup.fleet.compute import Disk
from nova_bdm_cleanup.model import Attachment
from nova_bdm_cleanup.model import Volume


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

    #: The same where Cinder has no record of it (before Queens).
    ATTACH = 'os-attach'

    #: The detach is over, and was not done: the volume is in use again.
    ROLL_DETACHING = 'os-roll_detaching'

    #: Nothing was ever mapped.
    UNRESERVE = 'os-unreserve'
    DETACH = 'os-detach'


class NeverConnected(enum.Enum):
    """The operator knows that no host was ever let in."""

    YES = 'none'


#: What ``nova-manage volume_attachment get_connector`` prints, or that there
#: is none.
Connector = Union[Mapping[str, Any], NeverConnected, None]


@dataclasses.dataclass(frozen=True)
class ReleaseFacts:
    """All that is known about one volume."""

    volume: Volume
    attachments: Tuple[Attachment, ...]
    #: The servers that attachments name; None: Nova does not know it.
    servers: Mapping[str, Optional[ComputeServer]]
    #: The servers that have a mapping of the volume.
    claimed_by: FrozenSet[str]
    #: The compute hosts of this Nova.
    hosts: FrozenSet[str]
    #: Attachments of existing servers that the rules call stale.
    stale: FrozenSet[str] = frozenset()
    #: What the API shows of the mappings of the volume, by server, where an
    #: attach may hang.
    disks: Mapping[str, Disk] = dataclasses.field(default_factory=dict)
    #: The devices of the guests of these servers, where Nova tells them.
    guests: Mapping[str, FrozenSet[str]] = dataclasses.field(
        default_factory=dict)

    def guest_has_it(self, server_id: Optional[str]) -> Optional[bool]:
        """Whether a guest has the disk; None: it is not known."""
        devices = self.guests.get(server_id or '')
        if not devices:
            # One that is off has none.
            return None if devices is None else False
        disk = self.disks.get(server_id or '')
        if disk is None or not disk.device:
            return None
        return disk.device.rpartition('/')[2] in devices


@dataclasses.dataclass(frozen=True)
class ReleaseStep:
    """What happens to one attachment, or to a volume without any."""

    volume: str
    explanation: str
    attachment: Optional[Attachment] = None
    host: Optional[str] = None
    since: Optional[datetime.datetime] = None
    #: None: nothing may be done, and the explanation says why.
    call: Optional[Call] = None
    connector: Optional[Mapping[str, Any]] = None
    #: Whom the volume is attached to, where Cinder has no record of it.
    attached: Optional[Mapping[str, str]] = None
    #: The state of the volume afterwards.
    expected: str = ''
    #: Another Nova may have the server.
    is_elsewhere: bool = False

    @property
    def attachment_id(self) -> Optional[str]:
        return self.attachment.id if self.attachment else None

    @property
    def server(self) -> Optional[str]:
        return self.attachment.server_id if self.attachment else None

    @property
    def key(self) -> Tuple[Optional[str], ...]:
        """What makes it the same step after another look."""
        return (self.volume, self.attachment_id,
                str(self.call) if self.call else None)


@dataclasses.dataclass(frozen=True)
class Make:
    """The call is made."""

    call: Call

    def __str__(self) -> str:
        return '``%s``' % self.call if self.call.value.startswith('os-') \
            else str(self.call)


@dataclasses.dataclass(frozen=True)
class Refuse:
    """No call is made, and the words say why."""

    def __str__(self) -> str:
        return 'refused'


def host_of(connector: Connector) -> Optional[str]:
    return connector.get('host') if isinstance(connector, Mapping) else None


def wanted(host: Optional[str]) -> str:
    return ('Cinder kept no connector: give --connector with the output of '
            '"nova-manage volume_attachment get_connector --json" on %s'
            % ('host ' + host if host else 'the host that had the volume, or '
               '--connector none if no host ever had it'))
