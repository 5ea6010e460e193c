# SPDX-License-Identifier: Apache-2.0
"""The state of one server in all services at one moment."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class BlockDevice:
    """A row of Nova's ``block_device_mapping`` table."""

    uuid: str
    source_type: str
    destination_type: str
    boot_index: int | None
    device_name: str | None
    volume_id: str | None
    attachment_id: str | None
    connection_info: dict[str, Any] | None
    tag: str | None
    delete_on_termination: bool
    deleted: bool

    @property
    def device(self) -> str:
        """Return the device's short name, as in the domain XML."""
        return (self.device_name or '').rpartition('/')[2]


@dataclasses.dataclass(frozen=True)
class Attachment:
    """An attachment as Cinder's API shows it to an administrator."""

    id: str
    volume_id: str
    server_id: str
    status: str
    #: Whether there is a connection; a reserved attachment has none.
    is_connected: bool


@dataclasses.dataclass(frozen=True)
class Volume:
    """A volume as Cinder's API shows it to an administrator."""

    id: str
    name: str
    status: str
    is_multiattach: bool
    metadata: dict[str, str]
    #: Every attachment of the volume, also those of other servers.
    attachments: tuple[Attachment, ...]


@dataclasses.dataclass(frozen=True)
class GuestDisk:
    """A disk in the domain XML of the guest."""

    device: str
    source: str | None
    #: The volume behind it; None for an image-backed disk.
    volume_id: str | None


@dataclasses.dataclass(frozen=True)
class ActionEvent:
    """An event of an instance action, as in ``server event show``."""

    action: str
    event: str
    result: str | None
    request_id: str


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """Nova's, Cinder's, libvirt's and the host's view of one server."""

    server_id: str
    host: str
    status: str
    task_state: str | None
    fault: str | None
    is_running: bool
    #: Nova's rows, oldest first.
    block_devices: tuple[BlockDevice, ...]
    #: The rows that Nova has soft-deleted.
    removed_block_devices: tuple[BlockDevice, ...]
    #: Every volume that a row, deleted or not, or an attachment names;
    #: None for those Cinder does not know.
    volumes: dict[str, Volume | None]
    #: Cinder's attachments that name this server.
    attachments: tuple[Attachment, ...]
    disks: tuple[GuestDisk, ...]
    #: The volumes that os-brick has connected to the host, for any server.
    connected: tuple[str, ...]
    #: The volumes that are disks of other guests of the host.
    used_by_others: tuple[str, ...]
    actions: tuple[ActionEvent, ...]

    def block_device(self, volume_id: str) -> BlockDevice | None:
        """Return the row that names a volume, or None."""
        return next((row for row in self.block_devices
                     if row.volume_id == volume_id), None)

    def removed_block_device(self, volume_id: str) -> BlockDevice | None:
        """Return the newest soft-deleted row that named a volume."""
        return next((row for row in reversed(self.removed_block_devices)
                     if row.volume_id == volume_id), None)

    def attachments_of(self, volume_id: str) -> tuple[Attachment, ...]:
        """Return the server's attachments of one volume."""
        return tuple(attachment for attachment in self.attachments
                     if attachment.volume_id == volume_id)

    def has_disk(self, volume_id: str) -> bool:
        return any(disk.volume_id == volume_id for disk in self.disks)

    def volume_status(self, volume_id: str) -> str | None:
        """Return a volume's status; None if Cinder does not know it."""
        volume = self.volumes[volume_id]
        return volume.status if volume else None
