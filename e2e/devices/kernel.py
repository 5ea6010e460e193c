# SPDX-License-Identifier: Apache-2.0
"""What the machine's kernel has connected, read from /sys."""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import functools
import pathlib

from e2e import lab

_BLOCK = pathlib.Path('/sys/block')

#: Runs a command to its end; what touches a lost device may never have one.
#: On a busy machine udevadm takes the two minutes that it gives itself.
run = functools.partial(lab.run, timeout=180)


@dataclasses.dataclass(frozen=True)
class Connected:
    """All that this host has of one volume, or of one target.

    :ivar disks: the plain disks
    :ivar maps: the multipath and dm-crypt devices on them
    :ivar sessions: how many sessions or controllers of the target
    :ivar tables: what the maps are, as the device mapper says
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
    """What there is of a volume and of its target.

    :param volume: its id, which is also the disk's serial number; the kernel
        goes on telling the one that it saw when it connected the disk
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
    """How many sessions, or NVMe controllers, a target has here."""
    return sum(
        _text(path) == target
        for pattern in ('iscsi_session/*/targetname', 'nvme/*/subsysnqn')
        for path in pathlib.Path('/sys/class').glob(pattern))


def disks_of(target: str) -> list[str]:
    """The disks of all the sessions of an iSCSI target, whatever the host
    takes them for.
    """
    return sorted(
        '/dev/' + disk.name
        for path in pathlib.Path('/sys/class/iscsi_session').glob('*')
        if _text(path / 'targetname') == target
        for disk in path.glob('device/target*/*/block/*'))


def fail_queued(maps: Iterable[str]) -> None:
    """Have multipath devices without a path fail what waits for one."""
    for name in maps:
        if _text(_BLOCK / name / 'dm/uuid').startswith('mpath-'):
            run('dmsetup', 'message', _text(_BLOCK / name / 'dm/name'), '0',
                'fail_if_no_path', check=False)


def wait_no_longer(maps: Iterable[str]) -> None:
    """Have multipathd do at once what it does when it has waited for a path.

    It would have the kernel wait again, were only the kernel told not to.
    """
    for name in maps:
        run('multipathd', 'disablequeueing', 'map',
            _text(_BLOCK / name / 'dm/name'))


def give_up(target: str) -> str:
    """Have the kernel no longer try to reach an NVMe subsystem.

    :returns: how many seconds it would have tried, or "off" for ever
    """
    seconds = next(
        _text(path.parent / 'ctrl_loss_tmo')
        for path in pathlib.Path('/sys/class/nvme').glob('*/subsysnqn')
        if _text(path) == target)
    run('nvme', 'disconnect', '-n', target)
    return seconds


def _table(name: str) -> str:
    """What a map is, in few words."""
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
    """Maps are found also when they have lost the disks below them."""
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
