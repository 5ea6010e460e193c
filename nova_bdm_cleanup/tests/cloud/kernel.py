# SPDX-License-Identifier: Apache-2.0
"""The devices and iSCSI sessions of the hosts, as the plugin reads them."""

from __future__ import annotations

from collections.abc import Mapping
import pathlib
import re
from typing import Any

import fixtures

from nova_bdm_cleanup.node import devices
from nova_bdm_cleanup.openstack.connection_info import addresses_in
from nova_bdm_cleanup.rules.facts import Address

#: Target prefix of Cinder's driver, whose module needs a Cinder.
_TARGET = 'iqn.2026-01.test:'

#: The paths of devices; a real one does not tell the host.
DEVICE_PATH = re.compile(r'/dev/disk/by-id/volume-(?P<volume>.+)@(?P<host>.+)')


def device_path(host: str, volume: str) -> str:
    """Return the path of the device of a volume on a host."""
    return f'/dev/disk/by-id/volume-{volume}@{host}'


class Kernel(fixtures.Fixture):
    """One kernel for all hosts, which run in one process.

    :param root: replaces ``/sys``; files of a test there are shown, too
    :param connected: the connected volumes, by host
    """

    def __init__(self, root: pathlib.Path,
                 connected: Mapping[str, Mapping[str, int]]) -> None:
        super().__init__()
        self._root = root
        self._connected = connected
        self._original_list = devices.list_sysfs
        self._original_read = devices.read_sysfs
        self._original_devices = devices.devices_at
        #: The connection properties of the volumes whose address is not that
        #: of Cinder's driver, by host and volume.
        self._properties: dict[tuple[str, str], Mapping[str, Any]] = {}

    def _setUp(self) -> None:
        # Nova's tests must not read the devices of the machine.
        self.useFixture(fixtures.MockPatchObject(
            devices, 'SYSFS', str(self._root)))
        for function in (self.list_sysfs, self.read_sysfs,
                         self.devices_at, self.path_addresses):
            self.useFixture(fixtures.MockPatchObject(
                devices, function.__name__, function))

    def set_address(self, host: str, data: Mapping[str, Any]) -> None:
        """Set the address by which a host has a volume from now on.

        :param data: the connection properties that os-brick gets
        """
        self._properties[host, data['volume_id']] = dict(data)

    def volumes_at(self, host: str, data: Mapping[str, Any]) -> list[str]:
        """Return the volumes that a host has at an address.

        :param data: the connection properties that os-brick gets
        """
        wanted = addresses_in({'data': data})
        return [volume for volume in self._connected[host]
                if wanted & addresses_in(
                    {'data': self._properties_of(host, volume)})]

    def list_sysfs(self, *parts: str) -> frozenset[str]:
        """Return a directory's entries, as :func:`devices.list_sysfs` does."""
        if parts == ('class', 'block'):
            return self._original_list(*parts) | {'vda'}
        return self._original_list(*parts).union(
            f'session-{host}-{volume}-{number}'
            for host, found in list(self._connected.items())
            for volume in list(found)
            for number, _ in enumerate(self._targets(host, volume))
            if parts == ('class', 'iscsi_session'))

    def read_sysfs(self, *parts: str) -> str | None:
        """Return a file's content: the target of a session, and no portal."""
        if parts[-1] != 'targetname':
            return self._original_read(*parts)
        _, host, name = parts[2].split('-', 2)
        volume, _, number = name.rpartition('-')
        return self._targets(host, volume)[int(number)]

    def devices_at(self, addresses: frozenset[Address]) -> frozenset[str]:
        """Return the devices of all hosts at some addresses."""
        return self._original_devices(addresses).union(
            f'{volume}@{host}' for host, found in self._connected.items()
            for volume in found if addresses & addresses_in(
                {'data': self._properties_of(host, volume)}))

    def path_addresses(self, path: str) -> frozenset[Address]:
        """Return the addresses of a device that is there."""
        found = DEVICE_PATH.fullmatch(path)
        if not found or found['volume'] not in self._connected[found['host']]:
            return frozenset()
        return addresses_in({'data': self._properties_of(
            found['host'], found['volume'])})

    def _targets(self, host: str, volume: str) -> list[str]:
        data = self._properties_of(host, volume)
        return data.get('target_iqns') or [data['target_iqn']]

    def _properties_of(self, host: str, volume: str) -> Mapping[str, Any]:
        return self._properties.get((host, volume)) or {
            'target_iqn': _TARGET + volume, 'target_lun': 1}
