# SPDX-License-Identifier: Apache-2.0
"""The promises of the plugin, checked at the end of the story."""

from __future__ import annotations

from collections.abc import Iterable

from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.cloud.damage import Damage
from nova_bdm_cleanup.tests.cloud.snapshot import Snapshot


def find_broken(volumes: Iterable[str], damaged: dict[str, Damage],
                before: Snapshot, after: Snapshot,
                timeline: list[recorder.Event],
                log_lines: list[str]) -> list[str]:
    """Return the promises of the plugin that the story's end breaks.

    :param volumes: all volumes of the story
    :param damaged: the damage to the damaged ones, by id
    :param before: the cloud before the hard reboot
    :param after: the cloud after it
    :param timeline: the steps in between
    :param log_lines: the plugin's lines in Nova's log
    :returns: a sentence for each broken promise
    """
    problems = []
    if after.status != 'ACTIVE' or not after.is_running:
        problems.append(f'the server is {after.status} ({after.fault})')
    for volume in volumes:
        if volume in damaged:
            problems += [f'{damaged[volume].name}: {problem}'
                         for problem in _check_damaged(
                             damaged[volume], volume, before, after, timeline,
                             log_lines)]
        else:
            problems += [f'healthy volume {volume}: {problem}'
                         for problem in _check_healthy(volume, before, after)]
    return problems


def _check_damaged(damage: Damage, volume: str, before: Snapshot,
                   after: Snapshot, timeline: list[recorder.Event],
                   log_lines: list[str]) -> list[str]:
    """Return the broken promises about a damaged volume."""
    is_logged = damage.reason is None or any(
        f'reason={damage.reason} ' in line for line in log_lines
        if f'volume={volume}' in line)
    promises: list[tuple[object, str]] = [
        (is_logged, f'no log line has the reason {damage.reason}')]
    if damage.status is None:
        promises += [
            (after.block_device(volume), 'its BDM is missing'),
            (after.has_disk(volume), 'the guest has lost the disk')]
    else:
        promises += [
            ((after.volume_status(volume) or 'gone') == damage.status,
             f'the volume is not {damage.status}'),
            (not after.block_device(volume), 'its BDM still exists'),
            (not after.attachments_of(volume),
             'Cinder still attaches the volume to the server'),
            (not after.has_disk(volume), 'the guest still has the disk'),
            # A connection that a neighbour needs has to stay.
            ((volume in after.connected) == (volume in after.used_by_others),
             'the host is still connected, or is not although a neighbour '
             'uses the volume'),
            (not before.block_device(volume)
             or after.removed_block_device(volume),
             'its BDM was not soft-deleted'),
            (_in_order(volume, before, timeline),
             'the order was not: stop the guest, disconnect the host, remove '
             'the BDM, delete the attachment')]
    return [problem for is_kept, problem in promises if not is_kept]


def _check_healthy(volume: str, before: Snapshot, after: Snapshot
                   ) -> list[str]:
    """Return the broken promises about a healthy volume."""
    rows = [view.block_device(volume) for view in (before, after)]
    promises = [
        (len({row and (row.uuid, row.attachment_id, row.device_name)
              for row in rows}) == 1, 'its BDM has changed'),
        (before.attachments_of(volume) == after.attachments_of(volume),
         'an attachment has changed'),
        (after.has_disk(volume) and volume in after.connected,
         'its disk or connection is missing')]
    return [problem for is_kept, problem in promises if not is_kept]


def _in_order(volume: str, before: Snapshot,
              timeline: list[recorder.Event]) -> bool:
    """Return whether each step came after the one that makes it safe.

    Any other order leaves this guest or host connected to a volume that
    Cinder already lets another server attach.
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
