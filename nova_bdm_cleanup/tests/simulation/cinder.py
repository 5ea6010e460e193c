# SPDX-License-Identifier: Apache-2.0
"""The model of Cinder, and of a back end that gives its numbers out again.

Each method is one thing that Cinder does at once.  What it does, and what it
refuses, was measured on a real one; ``functional.test_model`` compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import dataclasses

#: The array has one name for all hosts, and counts units for each.
TARGET = 'iqn.2026-11.example:array'

#: Somebody's hands are on the volume.
_KEPT = ('uploading',)


class CinderError(Exception):
    """Cinder refuses; the status of its answer."""

    status = 400


class NotFound(CinderError):
    status = 404


class Conflict(CinderError):
    status = 409


@dataclasses.dataclass
class Volume:
    id: str
    project: str
    status: str = 'available'
    multiattach: bool = False
    #: Cinder keeps this beside the status; resetting the latter leaves it.
    is_attached: bool = False
    migration_status: str | None = None
    #: Hours ago that it last changed.
    age: float = 0.0


@dataclasses.dataclass
class Attachment:
    id: str
    volume: str
    server: str | None
    #: reserved, attaching, attached.
    status: str = 'reserved'
    #: Which host was let in, and by what number.
    host: str | None = None
    number: int | None = None


class BackEnd:
    """An array: what each host reads by each number.

    :param sees: is told what is looked at
    :param changes: is told what is changed
    """

    def __init__(self, sees: Callable[..., None],
                 changes: Callable[..., None]) -> None:
        self.exports: dict[str, dict[int, str]] = {}
        self._sees = sees
        self._changes = changes

    def export(self, volume: str, host: str) -> int:
        """Let a host in; the lowest number that is free is taken."""
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
        """The volume is deleted."""
        for host in self.exports:
            self.withdraw(volume, host)

    def read(self, host: str, number: int) -> str | None:
        """Which volume a host reads by a number."""
        self._sees(f'units of {host}')
        return self.exports.get(host, {}).get(number)


def _nobody(*keys: str) -> None:
    pass


class Cinder:
    """Volumes, attachments, and what follows from them.

    :param sees: is told what is looked at
    :param changes: is told what is changed
    """

    def __init__(self, sees: Callable[..., None] = _nobody,
                 changes: Callable[..., None] = _nobody) -> None:
        self.volumes: dict[str, Volume] = {}
        self.attachments: dict[str, Attachment] = {}
        self.back_end = BackEnd(sees, changes)
        self._sees = sees
        self._changes = changes
        self._serial = 0

    # What can be asked

    def volume(self, volume: str) -> Volume:
        self._sees(f'volume {volume}')
        if volume not in self.volumes:
            raise NotFound(f'volume {volume}')
        return self.volumes[volume]

    def attachment(self, attachment: str) -> Attachment:
        if attachment not in self.attachments:
            # Of whichever volume it was, or may be.
            self._sees(*(f'volume {v}' for v in self.volumes))
            raise NotFound(f'attachment {attachment}')
        found = self.attachments[attachment]
        self._sees(f'volume {found.volume}')
        return found

    def of_volume(self, volume: str) -> list[Attachment]:
        self._sees(f'volume {volume}')
        return [a for a in self.attachments.values() if a.volume == volume]

    def of_server(self, server: str) -> list[Attachment]:
        found = [a for a in self.attachments.values() if a.server == server]
        self._sees(f'attachments of {server}',
                   *(f'volume {a.volume}' for a in found))
        return found

    def serves(self, volume: str | None, server: str
               ) -> Iterator[Attachment]:
        """The attachments by which Cinder attaches a volume to a server."""
        return (a for a in self.of_volume(volume)
                if a.server == server and a.status == 'attached')

    # Attachments

    def create_volume(self, volume: str, project: str,
                      multiattach: bool = False) -> Volume:
        self._changes(f'volume {volume}')
        made = Volume(volume, project, multiattach=multiattach)
        self.volumes[volume] = made
        return made

    def reserve(self, volume: str, server: str | None) -> str:
        """Make an attachment without a connector."""
        there = self.volume(volume)
        if there.status == 'available' or (
                there.status == 'in-use' and there.multiattach):
            self._set(there, 'reserved')
        elif there.status not in ('in-use', 'reserved') or not any(
                a.server == server for a in self.of_volume(volume)):
            # Only the same server gets another one, to move with.
            raise CinderError(f'volume {volume} is {there.status}')
        self._serial += 1
        made = Attachment(f'attachment-{self._serial}', volume, server)
        self._changes(f'volume {volume}', f'attachments of {server}')
        self.attachments[made.id] = made
        return made.id

    def create(self, volume: str, server: str | None, host: str) -> str:
        """Make one with a connector, as for a server that moves."""
        made = self.reserve(volume, server)
        self._let_in(self.attachments[made], host)
        return made

    def connect(self, attachment: str, host: str) -> int:
        """Give it a connector: the back end lets the host in."""
        there = self.attachment(attachment)
        others = self.of_volume(there.volume)
        if (len(others) > 1 and any(a.host for a in others)
                and not self.volume(there.volume).multiattach):
            raise Conflict(f'volume {there.volume} is connected already')
        return self._let_in(there, host)

    def _let_in(self, there: Attachment, host: str) -> int:
        there.number = self.back_end.export(there.volume, host)
        there.host, there.status = host, 'attaching'
        self._set(self.volume(there.volume), 'attaching', False)
        return there.number

    def complete(self, attachment: str) -> None:
        there = self.attachment(attachment)
        self._changes(f'volume {there.volume}')
        there.status = 'attached'
        self._set(self.volume(there.volume), 'in-use', True)

    def delete(self, attachment: str) -> None:
        """The back end is told first, and the volume's state follows."""
        there = self.attachment(attachment)
        # A record without a connector says nothing to the back end.
        if there.host is not None:
            self._shut_out(there.volume, there.host)
        self._drop(there)
        self._settle(there.volume)

    def _shut_out(self, volume: str, host: str) -> None:
        """As the driver for LVM does it: if several attachments of one host
        are allowed, the host stays in for the others.
        """
        if not self.volume(volume).multiattach or sum(
                a.host == host for a in self.of_volume(volume)) <= 1:
            self.back_end.withdraw(volume, host)

    def _settle(self, volume: str) -> None:
        there = self.volume(volume)
        left = [a.status for a in self.of_volume(volume)]
        status = next(
            (status for record, status in (
                ('attached', 'in-use'), ('attaching', 'attaching'),
                ('reserved', 'reserved')) if record in left), 'available')
        if not left and (there.status in _KEPT or there.migration_status):
            status = there.status
        self._set(there, status, 'attached' in left)

    def begin_detaching(self, volume: str) -> None:
        there = self.volume(volume)
        if there.migration_status:
            return
        if there.status != 'in-use' or not there.is_attached:
            raise CinderError(f'volume {volume} is {there.status}')
        self._set(there, 'detaching')

    def roll_detaching(self, volume: str) -> None:
        there = self.volume(volume)
        if there.status == 'detaching':
            self._set(there, 'in-use')

    def force_detach(self, volume: str, attachment: str, host: str) -> None:
        """Have the back end shut a host out, whatever the records say."""
        there = self.volume(volume)
        self._shut_out(volume, host)
        if attachment in self.attachments:
            self._drop(self.attachments[attachment])
        self._settle(there.id)

    # Volumes

    def begin_deleting(self, volume: str) -> None:
        there = self.volume(volume)
        if there.status not in ('available', 'error') or there.is_attached:
            raise CinderError(f'volume {volume} is {there.status}')
        self._set(there, 'deleting')

    def delete_volume(self, volume: str) -> None:
        self._changes(f'volume {volume}')
        self.volumes.pop(volume, None)
        for attachment in self.of_volume(volume):
            self._drop(attachment)
        self.back_end.forget(volume)

    def reset_status(self, volume: str, status: str) -> None:
        """An administrator writes another state, and nothing else."""
        there = self.volume(volume)
        if status == 'deleting' or (
                status == 'in-use' and not self.of_volume(volume)):
            raise CinderError(f'volume {volume} cannot be {status}')
        self._set(there, status)

    def reset_attached(self, volume: str) -> None:
        """The records go, too; the back end is not told."""
        there = self.volume(volume)
        for attachment in self.of_volume(volume):
            self._drop(attachment)
        self._set(there, 'available', False)

    def transfer(self, volume: str, project: str) -> None:
        there = self.volume(volume)
        if there.status != 'available':
            raise CinderError(f'volume {volume} is {there.status}')
        self._changes(f'volume {volume}')
        there.project = project

    def _drop(self, attachment: Attachment) -> None:
        self._changes(f'volume {attachment.volume}',
                      f'attachments of {attachment.server}')
        del self.attachments[attachment.id]

    def _set(self, volume: Volume, status: str,
             is_attached: bool | None = None) -> None:
        self._changes(f'volume {volume.id}')
        volume.status, volume.age = status, 0.0
        if is_attached is not None:
            volume.is_attached = is_attached
