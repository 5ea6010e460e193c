# SPDX-License-Identifier: Apache-2.0
"""The devices that the machine's kernel has connected, read from /sys."""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import functools
import pathlib

from e2e import lab

_BLOCK = pathlib.Path('/sys/block')

#: Run a command with a timeout: one that touches a lost device may never end.
#: On a busy machine udevadm takes its own limit of two minutes.
run = functools.partial(lab.run, timeout=180)


@dataclasses.dataclass(frozen=True)
class Connected:
    """The devices and sessions that this host has of a volume or a target.

    :ivar disks: the plain disks
    :ivar maps: the multipath and dm-crypt devices on them
    :ivar sessions: the number of sessions or controllers of the target
    :ivar tables: the kinds of the maps, from the device mapper
    """

    disks: tuple[str, ...] = ()
    maps: tuple[str, ...] = ()
    sessions: int = 0
    tables: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [*self.disks, *(
            f'{name} ({table})'
            for name, table in zip(self.maps, self.tables))]
        if self.sessions:
            words.append(f'{self.sessions} session'
                         + 's' * (self.sessions > 1))
        return ' '.join(words) or 'nothing'

    def __bool__(self) -> bool:
        return bool(self.disks or self.maps or self.sessions)


def connected(volume: str, target: str) -> Connected:
    """Return what this host has of a volume and of its target.

    :param volume: its id, which is also the disk's serial number; the kernel
        keeps the number that it read when it connected the disk
    :param target: its IQN or NQN
    """
    disks = [disk.name for disk in sorted(_BLOCK.glob('sd*'))
             if volume in _text(disk / 'device/vpd_pg80')]
    disks += [disk.name for disk in sorted(_BLOCK.glob('nvme*n*'))
              if volume in (_text(disk / 'uuid'), _text(disk / 'wwid')
                            .removeprefix('uuid.'))]
    maps = _maps_of(volume, disks)
    return Connected(tuple(disks), tuple(maps), sessions(target),
                     tuple(map(_table, maps)))


def sessions(target: str) -> int:
    """Return the number of a target's sessions, or NVMe controllers, here."""
    return sum(
        _text(path) == target
        for pattern in ('iscsi_session/*/targetname', 'nvme/*/subsysnqn')
        for path in pathlib.Path('/sys/class').glob(pattern))


def disks_of(target: str) -> list[str]:
    """Return the disks of all the sessions of an iSCSI target, even if the
    host takes them for those of another volume.
    """
    return sorted(
        '/dev/' + disk.name
        for path in pathlib.Path('/sys/class/iscsi_session').glob('*')
        if _text(path / 'targetname') == target
        for disk in path.glob('device/target*/*/block/*'))


def fail_queued(maps: Iterable[str]) -> None:
    """Have multipath devices without a path fail their queued I/O."""
    for name in maps:
        if _text(_BLOCK / name / 'dm/uuid').startswith('mpath-'):
            run('dmsetup', 'message', _text(_BLOCK / name / 'dm/name'), '0',
                'fail_if_no_path', check=False)


def stop_queueing(maps: Iterable[str]) -> None:
    """Have multipathd stop queueing now, and not only after its timeout.

    If only the kernel stopped, multipathd would make it queue again.
    """
    for name in maps:
        run('multipathd', 'disablequeueing', 'map',
            _text(_BLOCK / name / 'dm/name'))


def stop_reconnecting(target: str) -> str:
    """Have the kernel stop reconnecting to an NVMe subsystem.

    :returns: the seconds that it would have tried, or "off" for no limit
    """
    seconds = next(
        _text(path.parent / 'ctrl_loss_tmo')
        for path in pathlib.Path('/sys/class/nvme').glob('*/subsysnqn')
        if _text(path) == target)
    run('nvme', 'disconnect', '-n', target)
    return seconds


def _table(name: str) -> str:
    """Return the kind of a map, in few words."""
    words = run('dmsetup', 'table', f'/dev/{name}',
                check=False).stdout.split()
    if not words[2:]:
        return 'gone'
    paths = len(list((_BLOCK / name / 'slaves').iterdir()))
    if words[2] != 'multipath':
        return words[2]
    queues = ', queues' * ('queue_if_no_path' in words)
    return f'multipath of {paths}{queues}'


def _maps_of(volume: str, disks: list[str]) -> list[str]:
    """Return the maps, also those that have lost the disks below them."""
    compact = volume.replace('-', '')[:25]
    found: list[str] = []
    for path in sorted(_BLOCK.glob('dm-*')):
        slaves = {slave.name for slave in (path / 'slaves').iterdir()}
        names = _text(path / 'dm/uuid') + _text(path / 'dm/name')
        if (slaves & {*disks, *found} or volume in names
                or compact in names):
            found.append(path.name)
    return found


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_bytes().decode(errors='replace').strip('\0 \n')
    except OSError:
        return ''
