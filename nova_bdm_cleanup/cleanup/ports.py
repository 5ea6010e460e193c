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

from typing import (
    Any,
    ContextManager,
    Iterable,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    Tuple,
)

from nova_bdm_cleanup.model import Answers
from nova_bdm_cleanup.model import Attachment
from nova_bdm_cleanup.model import Bdm
from nova_bdm_cleanup.model import Finding
from nova_bdm_cleanup.model import Server
from nova_bdm_cleanup.model import Swap


class CinderPort(Protocol):
    """Implemented by :class:`nova_bdm_cleanup.cinder.Cinder`."""

    @property
    def sees_all(self) -> bool:
        """Whether the credentials see every project."""

    def look(self, server_id: str, bdms: Sequence[Bdm],
             project: Optional[str] = None) -> Answers:
        """All that Cinder knows of one server's disks."""

    def knows_any(self, volume_ids: Sequence[str]) -> bool:
        """Whether at least one of some volumes exists in this CinderPort."""

    def delete_attachment(self, attachment_id: str,
                          complete: bool = False) -> bool:
        """Delete an attachment; False: it was gone already."""

    def force_detach(self, attachment: Attachment,
                     connector: Mapping[str, Any]) -> bool:
        """Detach a legacy attachment; False: it was gone already."""


class RebootLost(Exception):
    """The server is not, or no longer, in this reboot (or start) here."""


class Undecided(Exception):
    """Nova's rows do not tell whether another server needs something."""


class HostPort(Protocol):
    """Nova and the hypervisor; every call may raise anything."""

    # What is so

    def server(self) -> Optional[Server]:
        """The server read anew; None when it is not this host's to clean."""

    def bdms(self) -> Tuple[Bdm, ...]:
        """All block device mappings of the server, read anew."""

    def former(self, attachment: Attachment) -> Optional[Bdm]:
        """The deleted mapping that named an attachment, if there was one."""

    def witnesses(self) -> Iterable[Sequence[str]]:
        """The volumes of all other servers that Nova knows, in portions.

        Those of this host come first.  The right Cinder knows most of them.
        """

    def swaps(self) -> Tuple[Swap, ...]:
        """The swaps of volumes of the server that did not end well."""

    def used_by_others(self, volume_id: str) -> bool:
        """Whether another server on this host has the volume.

        :raises Undecided: when one has it that may be on its way
        """

    def is_reused(self, bdm: Bdm) -> bool:
        """Whether another volume has the disk's address on this host now.

        :raises Undecided: when nobody can tell while servers are moving
        """

    def is_off(self) -> bool:
        """Whether the hypervisor says that the guest does not run."""

    # What is done

    def lock(self) -> ContextManager[None]:
        """Keep Nova from working on the server meanwhile.

        Only asked for where Nova does not hold this lock itself.

        :raises TimedOut: when Nova works on it for longer than there is time
        """

    def prepare(self) -> None:
        """What may fail early in Nova's own reboot, while the guest is on."""

    def claim(self) -> None:
        """Have Nova take this up again should nova-compute die from here on.

        :raises RebootLost: when it is no longer wanted
        """

    def power_off(self) -> None:
        """Stop the guest and keep its definition."""

    def guard(self, volume_id: str) -> ContextManager[None]:
        """Keep Nova from connecting or disconnecting the volume's siblings.

        The lock that Nova takes for the same reason when it detaches.
        """

    def disconnect(self, bdm: Bdm) -> None:
        """Flush and remove from this host what a mapping connected."""

    def undefine(self, bdm: Bdm) -> None:
        """Take a mapping's disk out of the definition of a guest that is off.

        Nova defines a guest anew when it starts it, but not when it resizes
        the server, or attaches a volume to it.
        """

    def destroy(self, bdm: Bdm) -> None:
        """Soft-delete a mapping in Nova; one already gone is no error."""

    def tidy(self, bdm: Bdm) -> None:
        """Remove what was kept for as long as the mapping was there."""

    def connector(self) -> Mapping[str, Any]:
        """How this host introduces itself to storage back ends."""

    # What is told

    def row(self, bdm: Bdm) -> Mapping[str, Any]:
        """Every column of a mapping but the connection information."""

    def describe(self) -> Mapping[str, Any]:
        """What identifies server, request and software in the journal."""

    def report(self, finding: Finding) -> None:
        """Show a completed removal among the server's action events."""
