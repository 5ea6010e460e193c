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
"""The two interfaces that the cleaner talks to: Cinder's and the host's."""

from __future__ import annotations

from typing import (Any, Dict, Mapping, Optional, Protocol, Sequence, Tuple,
                    Union)

from nova_bdm_cleanup.model import Attachment
from nova_bdm_cleanup.model import Bdm
from nova_bdm_cleanup.model import Finding
from nova_bdm_cleanup.model import Server
from nova_bdm_cleanup.model import Volume

#: The volumes by id, None for one that does not exist; the attachments.
Answers = Tuple[Dict[str, Optional[Volume]], Tuple[Attachment, ...]]


class Cinder(Protocol):
    """Implemented by :class:`nova_bdm_cleanup.cinder.Cinder`."""

    @property
    def sees_all(self) -> bool:
        """Whether the credentials see every project."""

    def look(self, server_id: str, bdms: Sequence[Bdm]) -> Answers:
        """All that Cinder knows of one server's disks."""

    def knows_any(self, volume_ids: Sequence[str]) -> bool:
        """Whether at least one of some volumes exists in this Cinder."""

    def delete_attachment(self, attachment_id: str) -> bool:
        """Delete an attachment; False: it was gone already."""

    def force_detach(self, attachment: Attachment,
                     connector: Mapping[str, Any]) -> bool:
        """Detach a legacy attachment; False: it was gone already."""


class RebootLost(Exception):
    """The server is not, or no longer, in a hard reboot on this host."""


class Host(Protocol):
    """Nova and the hypervisor; every call may raise anything."""

    def server(self) -> Optional[Server]:
        """The server read anew; None when it is not this host's to clean."""

    def bdms(self) -> Tuple[Bdm, ...]:
        """All block device mappings of the server, read anew."""

    def witnesses(self) -> Sequence[str]:
        """Volumes of other servers, which the right Cinder must know.

        Of this host where there are any, else of others.
        """

    def claim(self) -> None:
        """Have Nova take this up again should nova-compute die from here on.

        :raises RebootLost: when the server is no longer to be rebooted
        """

    def power_off(self) -> None:
        """Stop the guest and keep its definition."""

    def used_by_others(self, volume_id: str) -> bool:
        """Whether another server on this host, or on its way here, has it."""

    def is_reused(self, disk: Union[Bdm, Attachment]) -> bool:
        """Whether another volume of this host has the disk's address now."""

    def disconnect(self, bdm: Bdm) -> None:
        """Flush and remove from this host what a mapping connected."""

    def disconnect_attachment(self, attachment: Attachment) -> None:
        """The same for an attachment that has no mapping."""

    def forget(self, bdm: Bdm) -> None:
        """Have Nova not connect the disk of a mapping again, ever."""

    def remember(self, bdm: Bdm) -> None:
        """Take the last :meth:`forget` back."""

    def connector(self) -> Mapping[str, Any]:
        """How this host introduces itself to storage back ends."""

    def destroy(self, bdm: Bdm) -> None:
        """Soft-delete a mapping in Nova; one already gone is no error."""

    def row(self, bdm: Bdm) -> Mapping[str, Any]:
        """Every column of a mapping but the connection information."""

    def describe(self) -> Mapping[str, Any]:
        """What identifies server, request and software in the journal."""

    def report(self, finding: Finding) -> None:
        """Show a completed removal among the server's action events."""
