# SPDX-License-Identifier: Apache-2.0
"""Verdicts about a volume, by the state of Nova, Cinder, guest and host."""

from __future__ import annotations

import dataclasses

from nova_bdm_cleanup.tests.cloud import snapshot


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A verdict about a volume.

    :ivar text: the verdict
    :ivar style: how to print it
    :ivar consequence: a sentence, unless all is well
    """

    text: str
    style: str
    consequence: str = ''

    @property
    def is_fine(self) -> bool:
        """Return whether all is well."""
        return self.style == 'green'


def judge(view: snapshot.Snapshot, volume: str) -> Verdict:
    """Return the verdict about a volume.

    :param view: the server in Nova, Cinder, the guest and the host
    :param volume: the volume
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
                'The server cannot start without the volume, which is gone, '
                'and no API call removes it from the server.')
        if ours and status == 'in-use':
            return Verdict('healthy', 'green')
        if ours:
            return Verdict(
                f'DANGLING: {status}, but still attached', 'red',
                'Cinder lets any other server attach the volume while this '
                'guest writes to it.')
        if others:
            return Verdict(
                'DANGLING: attached to another server', 'red',
                'Two guests have the volume open and write to it.')
        return Verdict(
            f'DANGLING: {status}, no attachment', 'red',
            'Cinder lets users delete the volume, or attach it to another '
            'server, while this guest writes to it.')
    if view.has_disk(volume):
        return Verdict(
            'DAMAGE: the guest still has the disk', 'red',
            'The guest uses a disk that Nova has no record of.')
    if volume in view.connected and volume not in view.used_by_others:
        return Verdict(
            'DAMAGE: the host is still connected', 'red',
            'The host keeps the device of a volume that may be deleted, or '
            "attached to another server: this is how one tenant's data "
            'reaches another (CVE-2023-2088).')
    if ours:
        return Verdict(
            'STALE: an attachment unknown to Nova', 'yellow',
            'The volume can be neither used nor deleted.')
    return Verdict('clean: not attached to the server', 'green')


HEADER = ('volume', 'Nova: BDM', 'Cinder: volume', 'attachments', 'guest',
          'host', 'verdict')


def table_row(name: str, view: snapshot.Snapshot, volume: str
              ) -> list[tuple[str, str]]:
    """Return the row of a volume in the table of all volumes."""
    device = view.block_device(volume)
    record = view.volumes[volume]
    ours = view.attachments_of(volume)
    others = len(record.attachments) - len(ours) if record else 0
    attachments = [attachment.status for attachment in ours]
    if others:
        attachments.append(f'{others} elsewhere')
    disk = next((disk.device for disk in view.disks
                 if disk.volume_id == volume), '-')
    verdict = judge(view, volume)
    return [
        (name, 'bold'),
        (device.device if device else '-', ''),
        (record.status if record else 'not found', ''),
        (', '.join(attachments) or '-', ''),
        (disk, ''),
        ('connected' if volume in view.connected else '-', ''),
        (verdict.text, verdict.style)]
