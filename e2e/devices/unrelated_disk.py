# SPDX-License-Identifier: Apache-2.0
"""A disk of this host that belongs to no case, and that no case may change."""

from __future__ import annotations

from e2e import processes
from e2e.devices import kernel, storage


class UnrelatedDisk:
    """A volume that is connected while the cases run.

    Its target is at all portals: a portal refuses at once a target that it
    does not have, but one without any target does not answer at all.
    """

    def __init__(self) -> None:
        self._volume = storage.Volume('z', megabytes=4)
        self._target = storage.Target('unrelated', len(storage.ADDRESSES))
        self._target.map(1, self._volume)
        node = ('iscsiadm', '-m', 'node', '-T', self._target.address,
                '-p', self._target.portals[0])
        kernel.run(*node, '-o', 'new')
        kernel.run(*node, '--login')
        processes.wait_until(
            lambda: self._connected().disks, 'the unrelated disk', 30)
        self._before = self._connected()
        problems = self.problems()
        assert not problems, problems

    def problems(self) -> list[str]:
        """Return the differences."""
        now = self._connected()
        if now != self._before or not now.disks:
            return [f'the unrelated disk had {self._before}, and has {now}']
        if not self._volume.is_untouched() or not storage.read_device(
                '/dev/' + now.disks[0]).startswith(self._volume.letter):
            return ['the data of the unrelated disk was changed']
        return []

    def _connected(self) -> kernel.Connected:
        return kernel.connected(self._volume.id, self._target.address)
