# SPDX-License-Identifier: Apache-2.0
"""Verdicts on a volume, from the views of Nova, Cinder, guest and host."""

from __future__ import annotations

import dataclasses

from nova_bdm_cleanup.tests.cloud import snapshot


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A judgement and how to show it."""

    text: str
    style: str
    #: What follows from it, if it is not fine.
    meaning: str = ''

    @property
    def is_fine(self) -> bool:
        return self.style == 'green'


def of(view: snapshot.Snapshot, volume: str) -> Verdict:
    """Judge by what Nova, Cinder, the guest and the host say together.

    :param view: what everybody says about a server
    :param volume: the volume to judge
    """
    row = view.block_device(volume)
    ours = view.attachments_of(volume)
    record = view.volumes[volume]
    status = record.status if record else None
    others = [attachment for attachment in (record.attachments
                                            if record else ())
              if attachment.server_id != view.server_id]
    if row:
        if record is None:
            return Verdict(
                'DANGLING: the volume does not exist', 'red',
                'Every start of the server depends on a volume that is gone, '
                'and no API call removes it from the server.')
        if ours and status == 'in-use':
            return Verdict('healthy', 'green')
        if ours:
            return Verdict(
                f'DANGLING: {status} for everybody, and attached', 'red',
                'Cinder gives the volume to whoever asks next, while this '
                'guest writes to it.')
        if others:
            return Verdict(
                'DANGLING: another server has it', 'red',
                'Two guests have the volume open and write to it.')
        return Verdict(
            f'DANGLING: {status}, attached to nobody', 'red',
            'Cinder deletes the volume, or gives it to somebody else, while '
            'this guest writes to it.')
    if view.has_disk(volume):
        return Verdict(
            'DAMAGE: a disk that Nova has forgotten', 'red',
            'The guest goes on with a disk that nobody accounts for.')
    if volume in view.connected and volume not in view.used_by_others:
        return Verdict(
            'DAMAGE: the host is still connected', 'red',
            'The host keeps a device whose volume may be deleted or belong '
            "to somebody else: this is how one tenant's data reaches "
            'another (CVE-2023-2088).')
    if ours:
        return Verdict(
            'STALE: Nova knows nothing about it', 'yellow',
            'The volume can neither be used nor deleted.')
    return Verdict('clean: everybody agrees', 'green')


HEADER = ('volume', 'Nova', 'Cinder: volume', 'attachments', 'guest', 'host',
          'verdict')


def row(name: str, view: snapshot.Snapshot, volume: str
        ) -> list[tuple[str, str]]:
    """Return one row of the table of all views on a volume."""
    device = view.block_device(volume)
    record = view.volumes[volume]
    ours = view.attachments_of(volume)
    others = len(record.attachments) - len(ours) if record else 0
    attachments = [attachment.status for attachment in ours]
    if others:
        attachments.append(f'{others} elsewhere')
    disk = next((disk.device for disk in view.disks
                 if disk.volume_id == volume), '-')
    verdict = of(view, volume)
    return [
        (name, 'bold'),
        (device.device if device else '-', ''),
        (record.status if record else 'not found', ''),
        (', '.join(attachments) or '-', ''),
        (disk, ''),
        ('connected' if volume in view.connected else '-', ''),
        (verdict.text, verdict.style)]
