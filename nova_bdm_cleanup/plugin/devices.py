# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""The block devices of a volume on this host, as the kernel shows them.

os-brick's word is not enough to tell that a disk is disconnected: forced, it
complains of what is gone and is silent about what is left.  Names such as
``/dev/sdb`` are reused, so a device is one of the volume's only when the
address that it answers under is.  NVMe devices are not looked at: of a shared
subsystem they stay until Cinder is told.
"""

from __future__ import annotations

import os
import re
from typing import (
    AbstractSet,
    Any,
    Dict,
    FrozenSet,
    Iterator,
    List,
    Mapping,
    Optional,
    Set,
)

from nova_bdm_cleanup.plugin import addresses

#: Where the kernel shows its devices.
SYS = '/sys'

_ISCSI = re.compile(r'/(session\d+)/')
_FIBRE_CHANNEL = re.compile(r'/(rport-[^/]+)/')

#: How the identity of a multipath device begins.
_MULTIPATH = 'mpath-'

#: Added to the number of a unit that is addressed in "flat space".
_FLAT = 0x4000


def of(connection_info: Mapping[str, Any]) -> Dict[str, str]:
    """The block devices that are certainly a volume's.

    :param connection_info: as Nova keeps it
    :returns: by name what they can be recognised by; empty when there are
        none, or none can be told from another volume's
    """
    data = connection_info.get('data')
    if not isinstance(data, dict):
        return {}
    found: Set[str] = set()
    path = data.get('device_path')
    if path:
        name = os.path.basename(os.path.realpath(path))
        found.update(_related(name, 'slaves'), _related(name, 'holders'))
        ours = addresses.of(connection_info)
        if not (any(_addresses(name) & ours for name in found)
                or any(map(_is_dead_map, found))):
            found = set()
    if data.get('multipath_id'):
        found.update(name for name in _listed(_path('block'))
                     if _uuid(name)
                     == '%s%s' % (_MULTIPATH, data['multipath_id']))
    return {name: identity for name in found
            for identity in [_identity(name)] if identity}


def left(before: Mapping[str, str]) -> FrozenSet[str]:
    """Which of some devices are still there."""
    return frozenset(name for name, identity in before.items()
                     if _identity(name) == identity)


def advice(names: AbstractSet[str], identities: Mapping[str, str]) -> str:
    """How to remove by hand what is left of a volume.

    :param names: the devices, as :func:`left` tells them
    :param identities: what each can be recognised by
    """
    commands: List[str] = []
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
    if os.path.exists(_path('class/block', name)):
        yield name
        for other in _listed(_path('class/block', name, direction)):
            yield from _related(other, direction)


def _identity(name: str) -> Optional[str]:
    """What tells a device from a later one of the same name."""
    return _uuid(name) or ' '.join(
        ':'.join(address) for address in sorted(_addresses(name))) or None


def _uuid(name: str) -> Optional[str]:
    return _read('class/block', name, 'dm/uuid')


def _is_dead_map(name: str) -> bool:
    """Whether it is a multipath device that has lost its last path.

    Whosever it was, it is nobody's now, and what reads it hangs.
    """
    return ((_uuid(name) or '').startswith(_MULTIPATH)
            and not _listed(_path('class/block', name, 'slaves')))


def _addresses(name: str) -> FrozenSet[addresses.Address]:
    """Where a SCSI disk answers, in each way of writing its unit."""
    device = os.path.realpath(_path('class/block', name, 'device'))
    unit = device.rpartition(':')[2]
    iscsi, fibre_channel = _ISCSI.search(device), _FIBRE_CHANNEL.search(device)
    target: Optional[str] = None
    if iscsi:
        target = _read('class/iscsi_session', iscsi.group(1), 'targetname')
    elif fibre_channel:
        target = (_read('class/fc_remote_ports', fibre_channel.group(1),
                        'port_name') or '').replace('0x', '')
    if not target or not unit.isdigit():
        return frozenset()
    return frozenset((target.lower(), str(number))
                     for number in {int(unit), int(unit) & ~_FLAT})


def _path(*parts: str) -> str:
    return os.path.join(SYS, *parts)


def _listed(path: str) -> FrozenSet[str]:
    try:
        return frozenset(os.listdir(path))
    except OSError:
        return frozenset()


def _read(*parts: str) -> Optional[str]:
    try:
        with open(_path(*parts), encoding='utf-8') as file:
            return file.read().strip() or None
    except OSError:
        return None
