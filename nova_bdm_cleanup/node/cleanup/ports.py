# SPDX-License-Identifier: Apache-2.0
"""The interface of the cleaner to Nova and the hypervisor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import contextlib
from typing import Any, Protocol

from nova_bdm_cleanup.rules.action_events import Kind
from nova_bdm_cleanup.rules.facts import (
    Attach,
    Attachment,
    Bdm,
    Claims,
    Ending,
    Finding,
    OnHost,
    Server,
    Source,
)
from nova_bdm_cleanup.rules.reasons import Reason


class RebootLost(Exception):
    """The server is not, or no longer, in this operation on this host."""


class ShuttingDown(Exception):
    """nova-compute is shutting down."""


class Undecided(Exception):
    """It is not known whether another server needs a disk."""


class AttachmentGone(Exception):
    """Cinder does not know an attachment that was made a moment ago."""


class InstancePort(Protocol):
    """One instance in Nova and in the hypervisor.

    Every call may raise any exception.
    """

    # State

    def server(self) -> Server | None:
        """Read the server again; None if this host must not clean it up."""

    def bdms(self) -> tuple[Bdm, ...]:
        """Read all block device mappings of the server again."""

    def former(self, attachment: Attachment) -> Bdm | None:
        """Return the deleted mapping that named an attachment, if any."""

    def witnesses(self) -> Iterable[str]:
        """Yield the volumes of all other servers that Nova knows.

        Those of this host come first.  The right Cinder knows most of them.
        """

    def swaps(self) -> Ending:
        """Return the worst ending of the swaps of the server's volumes."""

    def last_swap(self) -> float:
        """Return when the last swap of the server's volumes was requested; 0
        if there was none.
        """

    def claims(self, disks: Sequence[Bdm]) -> Claims:
        """Return the claims on the addresses of some disks, and which of them
        the guest has open.
        """

    def attaches(self, bdms: Sequence[Bdm]) -> Mapping[str, Attach]:
        """Return the attaches that made some mappings, by uuid."""

    def absent(self, attachments: Sequence[Attachment]) -> frozenset[str]:
        """Return the attachments, by id, at whose address this host certainly
        has no device.
        """

    def guest_is_here(self) -> bool:
        """Return whether the guest is certainly on this host, and on no other
        one.
        """

    def sources(self) -> Mapping[str, Source]:
        """Return the disks of the guest, by the uuid of the mapping whose
        device each is.
        """

    def left_out(self, proved: Mapping[str, float]) -> frozenset[str]:
        """Return the mappings, by uuid, whose disks the guest does not have.

        :param proved: when it had disks that an earlier cleanup was to
            reconnect
        """

    def on_host(self, bdm: Bdm, attachment: Attachment | None) -> OnHost:
        """Return what this host and Nova have of a disk of a running guest.

        :param attachment: may serve the guest; None: there is none
        """

    def is_off(self) -> bool:
        """Return whether the hypervisor says that the guest does not run."""

    def is_shutting_down(self) -> bool:
        """Return whether nova-compute is shutting down, as far as it says."""

    # Actions

    def awaited(self) -> contextlib.AbstractContextManager[None]:
        """Have a shutdown of nova-compute wait for what is done meanwhile."""

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Keep Nova from working on the server meanwhile.

        Used only where Nova does not hold this lock itself.

        :raises TimedOut: when Nova works on it until the deadline
        """

    def prepare(self) -> None:
        """Do what may fail in Nova's own reboot, while the guest is on."""

    def claim(self) -> None:
        """Have Nova resume the operation if nova-compute dies from here on.

        :raises RebootLost: when the server is no longer in the operation
        """

    def release(self) -> None:
        """Give the server back to Nova, where Nova does not go on with it."""

    def power_off(self) -> None:
        """Stop the guest and keep its definition."""

    def volume_lock(self, volume_id: str
                    ) -> contextlib.AbstractContextManager[None]:
        """Keep Nova from deleting another server with the volume meanwhile.

        As in Nova, it is taken after the lock of the server and before
        os-brick's.

        :raises TimedOut: when Nova holds it until the deadline
        """

    def guard(self, volume_id: str) -> contextlib.AbstractContextManager[None]:
        """Keep Nova from connecting or disconnecting the volume's siblings.

        It holds the lock that Nova takes in a detach for the same reason.
        """

    def disconnecting(self, bdm: Bdm
                      ) -> contextlib.AbstractContextManager[None]:
        """Keep Nova from connecting the addresses of a disk meanwhile.

        What others claim is asked inside it, so that no claim can follow.
        """

    def hold_up(self) -> None:
        """Have Cinder give no other server an address until the guest has its
        disks.
        """

    def note(self, bdm: Bdm) -> None:
        """Note that a disk stays connected, for a later start of Nova."""

    def disconnect(self, bdm: Bdm) -> bool:
        """Flush and remove the devices of a mapping from this host.

        :returns: whether this host had anything of the volume
        """

    def forget(self, attachment: Attachment) -> None:
        """Forget what Cinder gave by an attachment, which is deleted."""

    def name_attachment(self, bdm: Bdm, attachment_id: str) -> Bdm:
        """Have a mapping name another attachment; return it as it is now."""

    def connect(self, bdm: Bdm, is_multiattach: bool,
                attachment: Attachment | None = None) -> Bdm:
        """Have Cinder connect the attachment of a mapping to this host, and
        take its answer into the mapping; return it as it is now.

        :param attachment: another one, which it takes with its volume
        :raises AttachmentGone: when there is no such attachment
        """

    def connect_unnamed(self, attachment: Attachment) -> Bdm:
        """Have Cinder connect an attachment that no mapping names to this
        host; return the disk that it is.

        :raises AttachmentGone: when there is no such attachment
        """

    def take_over(self, bdm: Bdm, attachment: Attachment,
                  is_multiattach: bool) -> Bdm:
        """Have a mapping take over an attachment, by which the guest has the
        disk, with its connection information; return it as it is now.

        :raises Undecided: when the guest has not that disk, or the attachment
            is another one now
        """

    def destroy(self, bdm: Bdm) -> None:
        """Soft-delete a mapping in Nova; one already gone is no error."""

    def tidy(self, bdm: Bdm) -> None:
        """Remove what Nova keeps only as long as the mapping exists."""

    # Records

    def row(self, bdm: Bdm) -> Mapping[str, Any]:
        """Return every column of a mapping but the connection information."""

    def describe(self) -> Mapping[str, Any]:
        """Return how the journal names the server, request and software."""

    def report(self, kind: Kind, finding: Finding | None,
               reason: Reason) -> None:
        """Record an event of the current instance action.

        :param finding: what it is about; None: the whole server
        """
