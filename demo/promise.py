# SPDX-License-Identifier: Apache-2.0
"""The promises of the plugin, checked at the end of the story."""

from __future__ import annotations

from collections.abc import Iterable

from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.cloud.damage import Damage
from nova_bdm_cleanup.tests.cloud.snapshot import Snapshot


def broken(volumes: Iterable[str], damage: dict[str, Damage],
           before: Snapshot, after: Snapshot,
           timeline: list[recorder.Event], audit: list[str]) -> list[str]:
    """Compare the end of the story with what the plugin promises.

    :param volumes: all volumes that the story is about
    :param damage: what has happened to some of them
    :param before: everybody's view before the hard reboot
    :param after: and after it
    :param timeline: everybody's steps in between
    :param audit: the plugin's lines in Nova's log
    :returns: a sentence for everything that is not as it should be
    """
    problems = []
    if after.status != 'ACTIVE' or not after.is_running:
        problems.append(f'the server is {after.status} ({after.fault})')
    for volume in volumes:
        if volume in damage:
            problems += [f'{damage[volume].name}: {problem}'
                         for problem in _mended(damage[volume], volume, before,
                                                after, timeline, audit)]
        else:
            problems += [f'healthy volume {volume}: {problem}'
                         for problem in _untouched(volume, before, after)]
    return problems


def _mended(damage: Damage, volume: str, before: Snapshot, after: Snapshot,
            timeline: list[recorder.Event], audit: list[str]) -> list[str]:
    is_said = damage.reason is None or any(
        f'reason={damage.reason} ' in line for line in audit
        if f'volume={volume}' in line)
    must: list[tuple[object, str]] = [
        (is_said, f'no audit line says {damage.reason}')]
    if damage.status is None:
        must += [
            (after.block_device(volume), 'Nova has lost its row'),
            (after.has_disk(volume), 'the guest has lost its disk')]
    else:
        must += [
            ((after.volume_status(volume) or 'gone') == damage.status,
             f'the volume is not {damage.status}'),
            (not after.block_device(volume), 'Nova still has its row'),
            (not after.attachments_of(volume),
             'Cinder still attaches the volume to the server'),
            (not after.has_disk(volume), 'the guest still has the disk'),
            # A connection that another guest of the host needs has to stay.
            ((volume in after.connected) == (volume in after.used_by_others),
             'the host is connected for nobody, or not for another guest'),
            (not before.block_device(volume)
             or after.removed_block_device(volume),
             'the row was not kept as a deleted one'),
            (_in_order(volume, before, timeline),
             'the order was not: guest off, host disconnected, row removed, '
             'Cinder told')]
    return [problem for is_so, problem in must if not is_so]


def _untouched(volume: str, before: Snapshot, after: Snapshot) -> list[str]:
    """Return what a reboot has changed about a healthy volume."""
    rows = [view.block_device(volume) for view in (before, after)]
    must = [
        (len({row and (row.uuid, row.attachment_id, row.device_name)
              for row in rows}) == 1, 'its row has changed'),
        (before.attachments_of(volume) == after.attachments_of(volume),
         'an attachment has changed'),
        (after.has_disk(volume) and volume in after.connected,
         'it has lost its disk')]
    return [problem for is_so, problem in must if not is_so]


def _in_order(volume: str, before: Snapshot,
              timeline: list[recorder.Event]) -> bool:
    """Return whether each step came after the one that makes it safe.

    Any other order gives a guest, or this host, access to a volume that
    Cinder may already give to another server.
    """
    expected = [(recorder.GUEST, 'power off')]
    if volume in before.connected and volume not in before.used_by_others:
        expected.append((recorder.HOST, 'disconnect'))
    if before.block_device(volume):
        expected.append((recorder.NOVA, 'remove bdm'))
    if any(attachment.status != 'reserved'
           for attachment in before.attachments_of(volume)):
        expected.append((recorder.BACK_END, 'terminate_connection'))
    steps = iter([(event.party, event.what) for event in timeline
                  if event.subject in (volume, before.server_id)])
    return all(step in steps for step in expected)
