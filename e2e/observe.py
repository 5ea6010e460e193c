# SPDX-License-Identifier: Apache-2.0
"""What everybody says about one server.

That is Nova, Cinder, libvirt, the guest itself and the host.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import os
import re
from typing import Any

from e2e import cloud as cloud_mod, database, stack as stack_mod


@dataclasses.dataclass(frozen=True)
class View:
    """One server as seen from five sides; volumes by their short names."""

    status: str
    #: Live block device mappings in Nova's database.
    bdms: tuple[str, ...]
    #: Cinder attachments that name the server, as ``name:status``.
    attachments: tuple[str, ...]
    #: Disks of the libvirt domain; None where there is no running domain.
    domain: tuple[str, ...] | None
    #: Disks that the guest reports itself; None where it is off.
    guest: tuple[str, ...] | None


class Observer:
    """Looks at a cloud without changing anything.

    :param names: volume id to the short name that the test gave it
    :param sizes: size in GiB to that name; sizes differ, so that a guest's
        report tells which disks it has
    """

    def __init__(self, cloud: cloud_mod.Cloud, names: Mapping[str, str],
                 sizes: Mapping[int, str]) -> None:
        self.cloud = cloud
        self.names = names
        self.sizes = sizes

    def _name(self, volume: Any) -> str:
        return self.names.get(volume, str(volume))

    def view(self, server: str) -> View:
        shown = self.cloud.server(server)
        running = self.domain(server)
        return View(
            status=shown['status'],
            bdms=tuple(sorted(self._name(row['volume_id'])
                              for row in database.bdm_rows(server))),
            attachments=tuple(sorted(
                f'{self._name(one["volume_id"])}:{one["status"]}'
                for one in self.cloud.attachments(server))),
            domain=running,
            guest=self.guest(server) if running is not None else None,
        )

    def domain(self, server: str) -> tuple[str, ...] | None:
        _, uri = self.cloud.where(server)
        state = stack_mod.virsh('domstate', server, uri=uri)
        if state is None or state.strip() != 'running':
            return None
        xml = stack_mod.virsh('dumpxml', server, uri=uri) or ''
        return tuple(sorted(self._name(serial) for serial in re.findall(
            r'<serial>([0-9a-f-]{36})</serial>', xml)))

    def guest(self, server: str) -> tuple[str, ...] | None:
        disks = self.cloud.guest_disks(server)
        if disks is None:
            return None
        return tuple(sorted(self.sizes.get(size, f'{size} GiB')
                            for size in disks))

    def volume(self, volume: str) -> str:
        """Cinder's word for the volume, ``gone`` where it has none."""
        seen = self.cloud.volume(volume)
        return seen['status'] if seen else 'gone'

    def on_host(self, volume: str) -> tuple[str, ...]:
        """What of the volume is left on this machine."""
        lab = self.cloud.lab
        if lab.is_rbd():
            count = self.cloud.stack.ceph.watchers(volume)
            return tuple(['watcher'] * count)
        left = [device for device, path
                in stack_mod.loop_devices(lab).items() if volume in path]
        if os.path.lexists(lab.volumes / f'dev-{volume}'):
            left.append('link')
        return tuple(left)
