# SPDX-License-Identifier: Apache-2.0
"""The block devices of a volume on this host, as the kernel shows them.

os-brick's word is not enough to tell that a disk is disconnected: forced, it
complains of what is gone and is silent about what is left.  Names such as
``/dev/sdb`` are reused, so a device is one of the volume's when the address
that it answers under is.  NVMe devices are not looked at: of a shared
subsystem they stay until Cinder is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
import os
import re
from typing import Any

from nova_bdm_cleanup.node import addresses

#: Where the kernel shows itself in files.
SYS = '/sys'

_ISCSI = re.compile(r'/(session\d+)/')
_FIBRE_CHANNEL = re.compile(r'/(rport-[^/]+)/')

#: How the identity of a multipath device begins, and of an encrypted one.
_MULTIPATH = 'mpath-'
_CRYPT = 'CRYPT-'

#: Added to the number of a unit that is addressed in "flat space".
_FLAT = 0x4000


def path_of(*parts: str) -> str:
    """The path of something in sysfs."""
    return os.path.join(SYS, *parts)


def listed(*parts: str) -> frozenset[str]:
    """What is in a directory of sysfs; nothing when there is none."""
    try:
        return frozenset(os.listdir(path_of(*parts)))
    except OSError:
        return frozenset()


def read(*parts: str) -> str | None:
    """What a file of it says; None when there is none, or it is empty."""
    try:
        with open(path_of(*parts), encoding='utf-8') as file:
            return file.read().strip() or None
    except OSError:
        return None


def found_for(connection_info: Mapping[str, Any]) -> dict[str, str]:
    """The block devices that are certainly a volume's.

    :param connection_info: as Nova keeps it
    :returns: by name what they can be recognised by; empty when there are
        none, or none can be told from another volume's
    """
    data = connection_info.get('data')
    if not isinstance(data, dict):
        return {}
    ours = addresses.named_by(connection_info)
    disks = listed('class', 'block')
    found = {name for name in disks if ours and addresses_of(name) & ours}
    path = data.get('device_path')
    if path:
        # Whosever a map was that has lost its last path, it is nobody's now,
        # and what reads it hangs.
        found.update(filter(_is_dead, _related(
            os.path.basename(os.path.realpath(path)), 'slaves')))
    if data.get('multipath_id'):
        found.update(name for name in disks if _uuid(name)
                     == '%s%s' % (_MULTIPATH, data['multipath_id']))
    found.update([other for name in found
                  for other in _related(name, 'holders')])
    # Where a driver names one path, a discovery has found the others.
    found.update([other for name in found if _is_multipath(name)
                  for other in _related(name, 'slaves')])
    return {name: identity for name in found
            for identity in [_identity(name)] if identity}


def left(before: Mapping[str, str]) -> frozenset[str]:
    """Which of some devices are still there."""
    return frozenset(name for name, identity in before.items()
                     if _identity(name) == identity)


def advice(names: Set[str], identities: Mapping[str, str]) -> str:
    """How to remove by hand what is left of a volume.

    :param names: the devices, as :func:`left` tells them
    :param identities: what each can be recognised by
    """
    commands: list[str] = []
    # What lies on other devices goes first.
    for name in sorted(names, key=lambda name: (
            not _is_map(name), identities[name].startswith(_MULTIPATH))):
        if identities[name].startswith(_MULTIPATH):
            commands.append(
                '`dmsetup message /dev/%s 0 fail_if_no_path` ends what waits '
                'for a path, and `multipath -f /dev/%s` removes it once '
                'nothing uses it' % (name, name))
        elif _is_map(name):
            commands.append('`dmsetup remove /dev/%s`' % name)
        else:
            commands.append('`echo 1 > /sys/block/%s/device/delete`' % name)
    return '%s still there after it was disconnected; by hand: %s' % (
        ', '.join('/dev/' + name for name in sorted(names))
        + (' is' if len(names) == 1 else ' are'), '; '.join(commands))


def _is_map(name: str) -> bool:
    return name.startswith('dm-')


def _related(name: str, direction: str) -> Iterator[str]:
    """A device and those that it is made of, or that are made of it."""
    if os.path.exists(path_of('class', 'block', name)):
        yield name
        for other in listed('class', 'block', name, direction):
            # A map is made of what is gone, too; its name may be another's.
            if os.path.exists(
                    path_of('class', 'block', name, direction, other)):
                yield from _related(other, direction)


def _identity(name: str) -> str | None:
    """What tells a device from a later one of the same name."""
    return _uuid(name) or ' '.join(
        ':'.join(address) for address in sorted(addresses_of(name))) or None


def _uuid(name: str) -> str | None:
    return read('class', 'block', name, 'dm', 'uuid')


def _is_multipath(name: str) -> bool:
    return (_uuid(name) or '').startswith(_MULTIPATH)


def _is_dead(name: str) -> bool:
    """Whether it is a multipath or dm-crypt device on nothing."""
    return (_uuid(name) or '').startswith((_MULTIPATH, _CRYPT)) and all(
        map(_is_dead, set(_related(name, 'slaves')) - {name}))


def addresses_of(name: str) -> frozenset[addresses.Address]:
    """Where a SCSI disk answers, in each way of writing its unit."""
    device = os.path.realpath(path_of('class', 'block', name, 'device'))
    unit = device.rpartition(':')[2]
    iscsi, fibre_channel = _ISCSI.search(device), _FIBRE_CHANNEL.search(device)
    target: str | None = None
    if iscsi:
        target = read('class', 'iscsi_session', iscsi.group(1),
                            'targetname')
    elif fibre_channel:
        target = (read('class', 'fc_remote_ports',
                             fibre_channel.group(1), 'port_name')
                  or '').replace('0x', '')
    if not target or not unit.isdigit():
        return frozenset()
    return frozenset((target.lower(), str(number))
                     for number in {int(unit), int(unit) & ~_FLAT})
