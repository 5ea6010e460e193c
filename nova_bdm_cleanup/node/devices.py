# SPDX-License-Identifier: Apache-2.0
"""The devices of a volume on this host: addresses, block devices, sessions.

os-brick finds the device to remove by target and logical unit number.  A
number is reused: after the back end unmaps the volume from the host, the next
volume may get its number, and removing "the device of the old one" would
remove the volume of another guest.

The result of os-brick does not prove that a volume is disconnected: when
forced, it reports devices that are gone and no devices that are left.  Names
such as ``/dev/sdb`` are reused, so a device belongs to the volume if its
address does.  Whether an NVMe device is left is not checked: those of a shared
subsystem stay until Cinder is told.

Addresses are compared in one spelling.  os-brick rewrites those of Fibre
Channel in Nova's row, and a guest may name a disk by a path that has the
address in it.

os-brick gets only the iSCSI targets for which this host has sessions.  If a
Cinder driver names one portal of several, os-brick would otherwise look up the
targets in the discovery records of open-iscsi, which may be from before the
volume's target was made, or after it was deleted.  Other volumes do not need
this: for Fibre Channel and NVMe os-brick looks for the volume's own addresses
in the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
import itertools
import os
import re
from typing import Any, NamedTuple
from xml.etree import ElementTree

from nova_bdm_cleanup.openstack.connection_info import addresses_in, spelt
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Address, Source

#: A portal, the name of a target, and the number of a unit.
Target = tuple[str, str, Any]

#: The directory in which the kernel shows its devices.
SYSFS = '/sys'

_ISCSI_VOLUME_TYPES = ('iscsi', 'iser')

_ISCSI_SESSION = re.compile(r'/(session\d+)/')
_FIBRE_CHANNEL_PORT = re.compile(r'/(rport-[^/]+)/')

#: The prefixes of the identity of a multipath device and of an encrypted one.
_MULTIPATH_PREFIX = 'mpath-'
_CRYPT_PREFIX = 'CRYPT-'

#: Added to the number of a unit that is addressed in "flat space".
_FLAT_SPACE_FLAG = 0x4000

#: The target and the unit in a name below ``/dev/disk/by-path``.
_NAMES_BY_PATH = tuple(map(re.compile, (
    r'-iscsi-(.+)-lun-(\w+)$', r'\bfc-(0x\w+)-lun-(\w+)$',
    r'-zfcp-(0x\w+):(\w+)$')))


# Block devices


def sysfs_path(*parts: str) -> str:
    """Return a path in sysfs."""
    return os.path.join(SYSFS, *parts)


def list_sysfs(*parts: str) -> frozenset[str]:
    """Return the names in a directory of sysfs; empty if there is none."""
    try:
        return frozenset(os.listdir(sysfs_path(*parts)))
    except OSError:
        return frozenset()


def read_sysfs(*parts: str) -> str | None:
    """Return the text of a file of sysfs; None if it is missing or empty."""
    try:
        with open(sysfs_path(*parts), encoding='utf-8') as file:
            return file.read().strip() or None
    except OSError:
        return None


def volume_devices(connection_info: Mapping[str, Any]) -> dict[str, str]:
    """Return the block devices that certainly belong to a volume.

    :param connection_info: as Nova keeps it
    :returns: the identity of each by its name; empty if there are none, or
        they cannot be told from those of another volume
    """
    data = connection_info.get('data')
    if not isinstance(data, dict):
        return {}
    ours = addresses_in(connection_info)
    disks = list_sysfs('class', 'block')
    found = {name for name in disks if ours and _scsi_addresses(name) & ours}
    # Without paths a map has only its names.  With paths, the names may be
    # those of another volume now.
    found.update(filter(_is_orphaned, _named_maps(data, disks)))
    # If a driver names one path, a discovery has found the others.
    found.update([path for name in found for map_ in _related(name, 'holders')
                  if _is_multipath(map_) for path in _related(map_, 'slaves')])
    found.update([other for name in found
                  for other in _related(name, 'holders')
                  if _disks_below(other) <= found])
    return {name: identity for name in found
            for identity in [_identity(name)] if identity}


def _named_maps(data: Mapping[str, Any], disks: Set[str]) -> frozenset[str]:
    """Return the maps that connection information names, and what is below.

    :param disks: the block devices of this host
    """
    path = data.get('device_path')
    at_path = frozenset(_related(os.path.basename(os.path.realpath(path)),
                                 'slaves') if path else ())
    if not data.get('multipath_id'):
        return at_path
    uuid = '%s%s' % (_MULTIPATH_PREFIX, data['multipath_id'])
    named = frozenset(name for name in disks if _uuid(name) == uuid)
    is_of_another = any(_is_multipath(name) for name in at_path - named)
    return named if is_of_another else named | at_path


def unique_devices(connection_info: Mapping[str, Any]) -> dict[str, str]:
    """Return the block devices of a volume, with an identity of their own.

    The address alone also identifies the next volume that gets it.

    :returns: dm uuid or WWID of each by its name; empty if one has none
    """
    found = {name: _uuid(name) or read_sysfs(
                 'class', 'block', name, 'device', 'wwid')
             for name in volume_devices(connection_info)}
    identities = {name: identity for name, identity in found.items()
                  if identity}
    return identities if len(identities) == len(found) else {}


def are_held(names: Set[str]) -> bool:
    """Return whether anything but multipath is on top of some devices."""
    return any(not _is_multipath(holder) for name in names
               for holder in list_sysfs('class', 'block', name, 'holders'))


def remaining(before: Mapping[str, str]) -> frozenset[str]:
    """Return which devices are still there.

    :param before: as :func:`volume_devices` returned them
    """
    return frozenset(name for name, identity in before.items()
                     if _identity(name) == identity)


def removal_advice(names: Set[str], identities: Mapping[str, str]) -> str:
    """Return how to remove the remaining devices of a volume by hand.

    :param names: the devices that :func:`remaining` returned
    :param identities: the identity of each by its name
    """
    commands: list[str] = []
    # Devices on other devices go first.
    multipath = {name for name in names
                 if identities[name].startswith(_MULTIPATH_PREFIX)}
    for name in sorted(names, key=lambda name: (
            not _is_map(name), name in multipath)):
        if name in multipath:
            commands.append(
                '`dmsetup message /dev/%s 0 fail_if_no_path` ends the wait '
                'for a path, and `multipath -f /dev/%s` removes it once it is '
                'unused' % (name, name))
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
    """Yield a device and its slaves or its holders, recursively."""
    if os.path.exists(sysfs_path('class', 'block', name)):
        yield name
        for other in list_sysfs('class', 'block', name, direction):
            # A map may name a device that is gone, whose name another device
            # may have now.
            if os.path.exists(
                    sysfs_path('class', 'block', name, direction, other)):
                yield from _related(other, direction)


def _disks_below(name: str) -> frozenset[str]:
    """Return the devices below one that are on no other device."""
    return frozenset(other for other in _related(name, 'slaves')
                     if not list_sysfs('class', 'block', other, 'slaves'))


def _identity(name: str) -> str | None:
    """Return what distinguishes a device from a later one of its name."""
    return _uuid(name) or ' '.join(map(
        ':'.join, sorted(_scsi_addresses(name)))) or None


def _uuid(name: str) -> str | None:
    return read_sysfs('class', 'block', name, 'dm', 'uuid')


def _is_multipath(name: str) -> bool:
    return (_uuid(name) or '').startswith(_MULTIPATH_PREFIX)


def _is_orphaned(name: str) -> bool:
    """Return whether it is a multipath or dm-crypt device without paths."""
    return (_uuid(name) or '').startswith(
        (_MULTIPATH_PREFIX, _CRYPT_PREFIX)) and all(
        map(_is_orphaned, set(_related(name, 'slaves')) - {name}))


def device_addresses(name: str) -> frozenset[Address]:
    """Return the addresses of a block device itself, in each form."""
    target = read_sysfs('class', 'block', name, 'device', 'subsysnqn')
    namespace = read_sysfs('class', 'block', name, 'nsid')
    if target and namespace:
        return frozenset([(spelt(target), namespace)])
    return _scsi_addresses(name)


def devices_at(addresses: Set[Address]) -> frozenset[str]:
    """Return the block devices that the kernel has at some addresses."""
    return frozenset(
        name for name in list_sysfs('class', 'block')
        if device_addresses(name) & addresses)


def are_absent(addresses: Set[Address]) -> bool:
    """Return whether this host certainly has no device at some addresses.

    A volume without an address cannot be mistaken for another one.
    """
    return not addresses or bool(
        list_sysfs('class', 'block')) and not devices_at(addresses)


def _scsi_addresses(name: str) -> frozenset[Address]:
    """Return the addresses of a SCSI disk, with each form of its unit."""
    device = os.path.realpath(sysfs_path('class', 'block', name, 'device'))
    unit = device.rpartition(':')[2]
    iscsi = _ISCSI_SESSION.search(device)
    fibre_channel = _FIBRE_CHANNEL_PORT.search(device)
    target: str | None = None
    if iscsi:
        target = read_sysfs('class', 'iscsi_session', iscsi.group(1),
                            'targetname')
    elif fibre_channel:
        target = read_sysfs('class', 'fc_remote_ports',
                            fibre_channel.group(1), 'port_name')
    return _forms(target or '', unit)


def _forms(target: str, unit: str) -> frozenset[Address]:
    """Return an address with each form of its unit.

    :param unit: a number, or the hexadecimal form of large numbers
    """
    try:
        number = int(unit, 0)
    except ValueError:
        return frozenset()
    if unit.startswith('0x'):
        number = number >> 48 & 0xffff | (number >> 32 & 0xffff) << 16
    return frozenset((spelt(target), str(each)) for each in {
        number, number & ~_FLAT_SPACE_FLAG} if target)


# Guests


def addresses_in_domain(xml: str) -> frozenset[Address]:
    """Return the addresses of the disks that a domain of libvirt names.

    Each source counts, also that of a mirror or of a backing chain.
    """
    # It is libvirt's own.
    domain = ElementTree.fromstring(xml)  # noqa: S314
    return frozenset(address for disk in domain.iterfind('./devices/disk')
                     for source in disk.iter('source')
                     for address in _addresses_of_source(source))


class GuestDisk(NamedTuple):
    """A disk of a domain of libvirt that a guest has open."""

    #: Nova makes it from the ID of the volume.
    serial: str
    source: Source
    #: The hypervisor copies it to another one, as in a swap.
    is_copied: bool


def disks_in_domain(xml: str) -> Iterator[GuestDisk]:
    """Yield the disks of an active domain of libvirt that have a serial."""
    # It is libvirt's own.
    domain = ElementTree.fromstring(xml)  # noqa: S314
    for disk in domain.iterfind('./devices/disk'):
        source, serial = disk.find('source'), disk.findtext('serial')
        if source is not None and serial:
            yield GuestDisk(
                spelling.identifier(serial), _source_of(source, True),
                disk.find('mirror') is not None)


def sources_in_domain(xml: str, is_active: bool) -> dict[str, Source]:
    """Return the sources of the disks of a domain, by the name of the device
    in the guest.

    :param is_active: the guest has them open
    """
    # It is libvirt's own.
    domain = ElementTree.fromstring(xml)  # noqa: S314
    found = {}
    for disk in domain.iterfind('./devices/disk'):
        # Not the source of a mirror: the guest does not use it yet.
        target, source = disk.find('target'), disk.find('source')
        device = None if target is None else target.get('dev')
        if device and source is not None:
            found[device] = _source_of(source, is_active)
    return found


def _source_of(source: ElementTree.Element, is_active: bool) -> Source:
    file = source.get('file')
    path = file or source.get('dev')
    name = os.path.basename(file) if file else source.get('name')
    if is_active or not path:
        return Source(_addresses_of_source(source), name, path)
    # Its device may be another one's since the host was booted.
    return Source(_addresses_by_path(path), name, path)


def serials_in_domain(xml: str) -> frozenset[str]:
    """Return the serials of the disks of a domain of libvirt, which Nova
    makes from the IDs of volumes.
    """
    # It is libvirt's own.
    domain = ElementTree.fromstring(xml)  # noqa: S314
    return frozenset(
        spelling.identifier(serial.text or '')
        for serial in domain.iterfind('./devices/disk/serial'))


def _addresses_of_source(source: ElementTree.Element) -> frozenset[Address]:
    if source.get('protocol') == 'iscsi':
        target, _, unit = source.get('name', '').rpartition('/')
        return _forms(target, unit)
    path = source.get('dev') or source.get('file') or ''
    return path_addresses(path) if path.startswith('/dev/') else frozenset()


def path_addresses(path: str) -> frozenset[Address]:
    """Return the addresses of the device at a path, and of those below it.

    A guest may have a device that is gone: its name may still tell them.
    """
    found = frozenset(
        address for name in _related(
            os.path.basename(os.path.realpath(path)), 'slaves')
        for address in device_addresses(name))
    return found | _addresses_by_path(path)


def _addresses_by_path(path: str) -> frozenset[Address]:
    """Return the addresses in the name of a device."""
    found: frozenset[Address] = frozenset()
    for name_by_path in _NAMES_BY_PATH:
        match = name_by_path.search(path)
        if match:
            found |= _forms(*match.groups())
    return found


# iSCSI sessions


def narrow_connection_info(connection_info: Mapping[str, Any],
                           found: Set[str]) -> dict[str, Any] | None:
    """Return the connection information by which to disconnect a volume.

    :param connection_info: as Nova keeps it
    :param found: the devices that :func:`volume_devices` returned
    :returns: a copy with the volume's own targets that this host has; None
        when it has neither a session nor a device of the volume
    """
    data = connection_info.get('data')
    if (connection_info.get('driver_volume_type') not in _ISCSI_VOLUME_TYPES
            or not isinstance(data, dict)):
        return dict(connection_info)
    named = _named_targets(data)
    if not named or not list_sysfs('class', 'block'):
        # os-brick may still be able to use it.
        return dict(connection_info)
    connected = _session_targets(named, found)
    if not connected and not found:
        return None
    portals, names, units = zip(*(connected or named))
    own = dict(data, target_portals=list(portals), target_iqns=list(names),
               target_luns=list(units))
    if _is_of_another_volume(data.get('device_path'), found):
        # An encrypted disk is closed by this name.
        del own['device_path']
    return dict(connection_info, data=own)


def _named_targets(data: Mapping[str, Any]) -> list[Target]:
    """Return the targets that the connection information names."""
    portals, names = data.get('target_portals'), data.get('target_iqns')
    unit = data.get('target_lun', 0)
    if portals and names:
        return list(zip(portals, names,
                        data.get('target_luns') or itertools.repeat(unit)))
    if data.get('target_portal') and data.get('target_iqn'):
        return [(data['target_portal'], data['target_iqn'], unit)]
    return []


def _session_targets(named: list[Target], found: Set[str]) -> list[Target]:
    """Return the targets of a volume for which this host has sessions.

    They may be at other portals than the volume's, or be other paths of its
    multipath device: a discovery found them when it was connected.
    """
    paths = {address for device in found
             for address in _scsi_addresses(device)}
    targets: list[Target] = []
    for session in sorted(list_sysfs('class', 'iscsi_session')):
        name = read_sysfs('class', 'iscsi_session', session, 'targetname')
        if not name:
            continue
        own = [target for target in named
               if target[1].lower() == name.lower()]
        units = [unit for _, _, unit in own] or [
            unit for _, _, unit in named
            if (name.lower(), str(unit)) in paths]
        portals = _portals(session) or [portal for portal, _, _ in own]
        targets += [(portal, name, unit) for portal in portals
                    for unit in dict.fromkeys(units)]
    return targets


def _portals(session: str) -> list[str]:
    """Return the portals of a session, as iscsiadm writes them."""
    found = []
    for connection in sorted(list_sysfs('class', 'iscsi_connection')):
        if connection.partition(':')[0] == session.replace(
                'session', 'connection'):
            address, port = (
                read_sysfs('class', 'iscsi_connection', connection,
                           'persistent_' + part)
                for part in ('address', 'port'))
            if address and port:
                found.append('%s:%s' % (
                    address if '.' in address else '[%s]' % address, port))
    return found


def _is_of_another_volume(path: str | None, found: Set[str]) -> bool:
    """Return whether a path names a device that is not the volume's."""
    name = os.path.basename(os.path.realpath(path or ''))
    return bool(path) and name not in found and os.path.exists(
        sysfs_path('class', 'block', name))
