# SPDX-License-Identifier: Apache-2.0
"""Model of Cinder, and of a back end that reuses its LUNs.

Each method is atomic in Cinder.  Results and refusals were measured on a real
Cinder; ``rig.test_model`` compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import copy
import dataclasses
import datetime
import functools
from typing import Any, TypeVar

#: The array has one target for all hosts, and numbers units for each host.
TARGET = 'iqn.2026-11.example:array'

#: The time when a model begins.
START = datetime.datetime(2026, 11, 25, tzinfo=datetime.timezone.utc)

#: Statuses of operations that the end of an attachment does not change.
_KEPT_STATUSES = ('uploading',)


class CinderError(Exception):
    """An error response of Cinder, with its status."""

    status = 400


class NotFound(CinderError):
    status = 404


class Conflict(CinderError):
    status = 409


class Refused(CinderError):
    """Cinder has failed before it changed anything."""

    status = 500


@dataclasses.dataclass
class Volume:
    id: str
    project: str
    status: str = 'available'
    multiattach: bool = False
    #: Cinder's ``attach_status``; a reset of the status leaves it.
    is_attached: bool = False
    migration_status: str | None = None
    updated_at: datetime.datetime = START


@dataclasses.dataclass
class Attachment:
    id: str
    volume: str
    server: str | None
    #: reserved, attaching, attached.
    status: str = 'reserved'
    #: The host that it is exported to, and the number (LUN).
    host: str | None = None
    number: int | None = None
    #: The time of its last connection.
    attached_at: datetime.datetime | None = None


@dataclasses.dataclass
class Past:
    """The records before a write."""

    #: The time of the write.
    time: datetime.datetime
    volumes: dict[str, Volume]
    attachments: dict[str, Attachment]


class BackEnd:
    """An array that exports volumes to hosts by numbers.

    :param reads: is called with the keys of what is read
    :param changes: is called with the keys of what is changed
    """

    def __init__(self, reads: Callable[..., None],
                 changes: Callable[..., None]) -> None:
        self.exports: dict[str, dict[int, str]] = {}
        self._reads = reads
        self._changes = changes

    def export(self, volume: str, host: str) -> int:
        """Export a volume to a host by the lowest free number."""
        self._changes(f'units of {host}')
        units = self.exports.setdefault(host, {})
        for number, other in units.items():
            if other == volume:
                return number
        number = next(n for n in range(1, 99) if n not in units)
        units[number] = volume
        return number

    def withdraw(self, volume: str, host: str) -> None:
        self._changes(f'units of {host}')
        units = self.exports.get(host, {})
        for number in [n for n, v in units.items() if v == volume]:
            del units[number]

    def forget(self, volume: str) -> None:
        """Delete a volume."""
        for host in self.exports:
            self.withdraw(volume, host)

    def read(self, host: str, number: int) -> str | None:
        """Return the volume that a host reads by a number."""
        self._reads(f'units of {host}')
        return self.exports.get(host, {}).get(number)


def _ignore(*keys: str) -> None:
    pass


def _start() -> datetime.datetime:
    return START


Write = TypeVar('Write', bound=Callable[..., Any])


def _write(method: Write) -> Write:
    """Keep the records as they were before a method changed them."""
    @functools.wraps(method)
    def write(self: Cinder, *arguments: Any) -> Any:
        with self.keeping_past():
            return method(self, *arguments)

    return write  # type: ignore[return-value]


class Cinder:
    """Volumes and attachments.

    :param reads: is called with the keys of what is read
    :param changes: is called with the keys of what is changed
    :param now: returns the time
    """

    def __init__(self, reads: Callable[..., None] = _ignore,
                 changes: Callable[..., None] = _ignore,
                 now: Callable[[], datetime.datetime] = _start) -> None:
        self.volumes: dict[str, Volume] = {}
        self.attachments: dict[str, Attachment] = {}
        self.back_end = BackEnd(reads, changes)
        self._reads = reads
        self._changes = changes
        self._now = now
        self._serial = 0
        #: The records before each write; None: they are not kept.
        self.past: list[Past] | None = None

    # What reads that lag show

    @contextlib.contextmanager
    def keeping_past(self) -> Iterator[None]:
        """Keep the records as they are now, if the context changes them."""
        kept, self.past = self.past, None
        if kept is None:
            yield
            return
        before = Past(self._now(), copy.deepcopy(self.volumes),
                      copy.deepcopy(self.attachments))
        try:
            yield
        finally:
            self.past = kept
            if (before.volumes, before.attachments) != (
                    self.volumes, self.attachments):
                self._changes('past of Cinder')
                kept.append(before)

    def before(self, past: Past) -> Cinder:
        """Return the records as they were."""
        found = Cinder(self._reads)
        found.volumes, found.attachments = past.volumes, past.attachments
        return found

    # Reads

    def volume(self, volume: str) -> Volume:
        self._reads(f'volume {volume}')
        if volume not in self.volumes:
            raise NotFound(f'volume {volume}')
        return self.volumes[volume]

    def attachment(self, attachment: str) -> Attachment:
        if attachment not in self.attachments:
            # Its volume is not known.
            self._reads(*(f'volume {v}' for v in self.volumes))
            raise NotFound(f'attachment {attachment}')
        found = self.attachments[attachment]
        self._reads(f'volume {found.volume}')
        return found

    def of_volume(self, volume: str) -> list[Attachment]:
        self._reads(f'volume {volume}')
        return [a for a in self.attachments.values() if a.volume == volume]

    def of_server(self, server: str) -> list[Attachment]:
        found = [a for a in self.attachments.values() if a.server == server]
        self._reads(f'attachments of {server}',
                    *(f'volume {a.volume}' for a in found))
        return found

    def attached_to(self, volume: str | None, server: str
               ) -> Iterator[Attachment]:
        """Yield the attachments by which a volume is attached to a server."""
        return (a for a in self.of_volume(volume)
                if a.server == server and a.status == 'attached')

    # Attachments

    @_write
    def create_volume(self, volume: str, project: str,
                      multiattach: bool = False) -> Volume:
        self._changes(f'volume {volume}')
        made = Volume(volume, project, multiattach=multiattach,
                      updated_at=self._now())
        self.volumes[volume] = made
        return made

    @_write
    def reserve(self, volume: str, server: str | None) -> str:
        """Create an attachment without a connector."""
        record = self.volume(volume)
        if record.status == 'available' or (
                record.status == 'in-use' and record.multiattach):
            self._set(record, 'reserved')
        elif record.status not in ('in-use', 'reserved') or not any(
                a.server == server for a in self.of_volume(volume)):
            # Only the same server can have another one, for a move.
            raise CinderError(f'volume {volume} is {record.status}')
        self._serial += 1
        made = Attachment(f'attachment-{self._serial}', volume, server)
        self._changes(f'volume {volume}', f'attachments of {server}')
        self.attachments[made.id] = made
        return made.id

    @_write
    def create(self, volume: str, server: str | None, host: str) -> str:
        """Create an attachment with a connector, as for a move."""
        made = self.reserve(volume, server)
        self._export(self.attachments[made], host)
        return made

    @_write
    def connect(self, attachment: str, host: str) -> int:
        """Update an attachment with a connector, and export the volume."""
        record = self.attachment(attachment)
        volume, others = self.volume(record.volume), self.of_volume(
            record.volume)
        if 'error' in volume.status:
            raise Conflict(f'volume {volume.id} is {volume.status}')
        if (len(others) > 1 and any(a.host for a in others)
                and not volume.multiattach):
            raise Conflict(f'volume {volume.id} is connected already')
        return self._export(record, host)

    def _export(self, record: Attachment, host: str) -> int:
        record.number = self.back_end.export(record.volume, host)
        record.host, record.status = host, 'attaching'
        record.attached_at = self._now()
        self._set(self.volume(record.volume), 'attaching', False)
        return record.number

    @_write
    def complete(self, attachment: str) -> None:
        record = self.attachment(attachment)
        self._changes(f'volume {record.volume}')
        record.status = 'attached'
        self._set(self.volume(record.volume), 'in-use', True)

    @_write
    def delete(self, attachment: str) -> None:
        """Delete an attachment: the export first, the status last."""
        record = self.attachment(attachment)
        # Without a connector, the back end is not called.
        if record.host is not None:
            self._end_export(record.volume, record.host)
        self._remove(record)
        self._update_status(record.volume)

    def _end_export(self, volume: str, host: str) -> None:
        """End the export to a host, as the LVM driver does.

        With multiattach it stays as long as the host has other attachments.
        """
        if not self.volume(volume).multiattach or sum(
                a.host == host for a in self.of_volume(volume)) <= 1:
            self.back_end.withdraw(volume, host)

    def _update_status(self, volume: str) -> None:
        record = self.volume(volume)
        statuses = [a.status for a in self.of_volume(volume)]
        status = next(
            (status for found, status in (
                ('attached', 'in-use'), ('attaching', 'attaching'),
                ('reserved', 'reserved')) if found in statuses), 'available')
        if not statuses and (record.status in _KEPT_STATUSES
                             or record.migration_status):
            status = record.status
        self._set(record, status, 'attached' in statuses)

    @_write
    def begin_detaching(self, volume: str) -> None:
        record = self.volume(volume)
        if record.migration_status:
            return
        if record.status != 'in-use' or not record.is_attached:
            raise CinderError(f'volume {volume} is {record.status}')
        self._set(record, 'detaching')

    @_write
    def roll_detaching(self, volume: str) -> None:
        record = self.volume(volume)
        if record.status == 'detaching':
            self._set(record, 'in-use')

    @_write
    def force_detach(self, volume: str, attachment: str, host: str) -> None:
        """End the export to a host, regardless of the records."""
        record = self.volume(volume)
        self._end_export(volume, host)
        if attachment in self.attachments:
            self._remove(self.attachments[attachment])
        self._update_status(record.id)

    # Volumes

    @_write
    def begin_deleting(self, volume: str) -> None:
        record = self.volume(volume)
        if record.status not in ('available', 'error') or record.is_attached:
            raise CinderError(f'volume {volume} is {record.status}')
        self._set(record, 'deleting')

    @_write
    def delete_volume(self, volume: str) -> None:
        self._changes(f'volume {volume}')
        self.volumes.pop(volume, None)
        for attachment in self.of_volume(volume):
            self._remove(attachment)
        self.back_end.forget(volume)

    @_write
    def reset_status(self, volume: str, status: str) -> None:
        """Reset the status of a volume, and nothing else."""
        record = self.volume(volume)
        if status == 'deleting' or (
                status == 'in-use' and not self.of_volume(volume)):
            raise CinderError(f'volume {volume} cannot be {status}')
        self._set(record, status)

    @_write
    def reset_attached(self, volume: str) -> None:
        """Reset ``attach_status``: the records go, the export stays."""
        record = self.volume(volume)
        for attachment in self.of_volume(volume):
            self._remove(attachment)
        self._set(record, 'available', False)

    @_write
    def transfer(self, volume: str, project: str) -> None:
        record = self.volume(volume)
        if record.status != 'available':
            raise CinderError(f'volume {volume} is {record.status}')
        self._changes(f'volume {volume}')
        record.project = project

    def _remove(self, attachment: Attachment) -> None:
        self._changes(f'volume {attachment.volume}',
                      f'attachments of {attachment.server}')
        del self.attachments[attachment.id]

    def _set(self, volume: Volume, status: str,
             is_attached: bool | None = None) -> None:
        self._changes(f'volume {volume.id}')
        volume.status, volume.updated_at = status, self._now()
        if is_attached is not None:
            volume.is_attached = is_attached
