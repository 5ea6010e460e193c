# SPDX-License-Identifier: Apache-2.0
"""The iSCSI sessions of the hosts, as the plugin reads them."""

from __future__ import annotations

from collections.abc import Mapping
import pathlib
from typing import Any

import fixtures

from nova_bdm_cleanup.node import devices

#: Target prefix of Cinder's driver, whose module needs a Cinder.
_TARGET = 'iqn.2026-01.test:'


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
        #: The targets of each volume with others than Cinder's driver's.
        self._targets_by_volume: dict[str, list[str]] = {}

    def _setUp(self) -> None:
        # Nova's tests must not read the devices of the machine.
        self.useFixture(fixtures.MockPatchObject(
            devices, 'SYSFS', str(self._root)))
        for function in (self.list_sysfs, self.read_sysfs):
            self.useFixture(fixtures.MockPatchObject(
                devices, function.__name__, function))

    def set_targets(self, data: Mapping[str, Any]) -> None:
        """Set the targets by which a volume is connected from now on.

        :param data: the connection properties that os-brick gets
        """
        self._targets_by_volume[data['volume_id']] = (
            data.get('target_iqns') or [data['target_iqn']])

    def list_sysfs(self, *parts: str) -> frozenset[str]:
        """Return a directory's entries, as :func:`devices.list_sysfs` does."""
        if parts == ('class', 'block'):
            return self._original_list(*parts) | {'vda'}
        return self._original_list(*parts).union(
            f'session-{volume}-{number}'
            for found in self._connected.values() for volume in found
            for number, _ in enumerate(self._targets(volume))
            if parts == ('class', 'iscsi_session'))

    def read_sysfs(self, *parts: str) -> str | None:
        """Return a file's content: the target of a session, and no portal."""
        if parts[-1] != 'targetname':
            return self._original_read(*parts)
        volume, _, number = parts[2].partition('-')[2].rpartition('-')
        return self._targets(volume)[int(number)]

    def _targets(self, volume: str) -> list[str]:
        return self._targets_by_volume.get(volume) or [_TARGET + volume]
