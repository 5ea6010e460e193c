# SPDX-License-Identifier: Apache-2.0
"""The storage that the machine connects to: targets of its own kernel.

LIO for iSCSI and nvmet for NVMe/TCP, both set up through configfs, so that no
program is needed.  A volume is a file in memory.
"""

from __future__ import annotations

import mmap
import os
import pathlib
from typing import Any
import uuid

_TARGETS = pathlib.Path('/sys/kernel/config/target')
_NVMET = pathlib.Path('/sys/kernel/config/nvmet')
_FILES = pathlib.Path('/run/volumes')
#: Both belong to this machine: two paths to one target.
ADDRESSES = ('127.0.0.1', '127.0.0.2')
_NVME_PORT = 4420
#: Small, since a volume is read whole to compare it bit for bit.
MEGABYTES = 4
#: The size of one write of a guest.
BLOCK = 4096


class Volume:
    """A file that targets serve.

    :param letter: the letter that fills it
    :param megabytes: its size
    """

    def __init__(self, letter: str, megabytes: int = MEGABYTES) -> None:
        self.id = str(uuid.uuid4())
        self.letter = letter
        self.path = _FILES / self.id
        self.size = megabytes << 20
        _FILES.mkdir(exist_ok=True)
        self.path.write_bytes(letter.encode() * self.size)

    @property
    def store(self) -> pathlib.Path:
        """Return the backstore for an iSCSI target; make it on first use."""
        path = _TARGETS / 'core/fileio_0' / self.id
        if not path.exists():
            path.mkdir(parents=True)
            (path / 'control').write_text(
                f'fd_dev_name={self.path},fd_dev_size={self.size}')
            (path / 'enable').write_text('1')
            # The host identifies a disk by this, multipathd its paths.
            (path / 'wwn/vpd_unit_serial').write_text(self.id)
        return path

    def read(self, offset: int = 0) -> str:
        """Return the first letters of a block, as the back end has them."""
        with open(self.path, 'rb') as file:
            file.seek(offset)
            return file.read(8).decode(errors='replace')

    def is_untouched(self, but: tuple[int, str] | None = None) -> bool:
        """Return whether every bit is as it was made.

        :param but: the offset and the word that its own guest writes
        """
        data = self.path.read_bytes()
        if but is not None:
            offset, word = but
            if data[offset:offset + len(word)] == word.encode():
                data = data[:offset] + data[offset + BLOCK:]
        return data.count(self.letter.encode()) == len(data)

    def remove(self) -> None:
        """Free the memory of the volume; no target may still map it."""
        store = _TARGETS / 'core/fileio_0' / self.id
        if store.exists():
            store.rmdir()
        self.path.unlink(missing_ok=True)


class Target:
    """An iSCSI target open to every initiator, as a shared one is.

    Each portal is in its own group, so that one can be lost.

    :param name: the end of its address, an IQN
    :param paths: the number of its portals
    :param returns_portals: whether Cinder returns all portals, as some drivers
        do; the others leave that to a discovery
    """

    def __init__(self, name: str, paths: int = 1,
                 returns_portals: bool = True) -> None:
        self.address = f'iqn.2010-10.org.openstack:{name}'
        self.paths = paths
        self.portals = [f'{address}:3260' for address in ADDRESSES[:paths]]
        self._returns_portals = returns_portals
        self._path = _TARGETS / 'iscsi' / self.address
        self._groups: list[pathlib.Path] = []
        self._luns: dict[int, Volume] = {}
        for number, portal in enumerate(self.portals, 1):
            group = self._path / f'tpgt_{number}'
            group.mkdir(parents=True)
            for attribute, value in (
                    ('authentication', 0), ('demo_mode_write_protect', 0),
                    ('generate_node_acls', 1), ('cache_dynamic_acls', 1)):
                (group / 'attrib' / attribute).write_text(str(value))
            (group / 'np' / portal).mkdir()
            (group / 'enable').write_text('1')
            self._groups.append(group)

    def map(self, lun: int, volume: Volume) -> None:
        """Map a volume for all initiators, logged in now or later."""
        for group in self._groups:
            unit = group / 'lun' / f'lun_{lun}'
            unit.mkdir()
            (unit / volume.id).symlink_to(volume.store)
        self._luns[lun] = volume

    def unmap(self, lun: int) -> None:
        """Unmap a volume; harmless when it is not mapped."""
        volume = self._luns.pop(lun, None)
        if volume is not None:
            for group in self._groups:
                unit = group / 'lun' / f'lun_{lun}'
                (unit / volume.id).unlink()
                unit.rmdir()

    def lose_path(self) -> None:
        """Disable one portal and break off its sessions."""
        (self._groups[-1] / 'enable').write_text('0')

    def remove(self) -> None:
        """Remove the target and break off all its sessions."""
        for group in self._groups:
            (group / 'enable').write_text('0')
        for lun in list(self._luns):
            self.unmap(lun)
        for group in self._groups:
            for portal in (group / 'np').iterdir():
                portal.rmdir()
            group.rmdir()
        if self._groups:
            self._path.rmdir()
        self._groups.clear()

    def connection(self, lun: int, volume: Volume) -> dict[str, Any]:
        """Return Cinder's connection information for a volume."""
        data: dict[str, Any] = {
            'driver_volume_type': 'iscsi', 'target_discovered': False,
            'target_portal': self.portals[0], 'target_iqn': self.address,
            'target_lun': lun, 'volume_id': volume.id, 'discard': False,
            'access_mode': 'rw', 'encrypted': False}
        if self.paths > 1 and self._returns_portals:
            data.update(
                target_portals=self.portals,
                target_iqns=[self.address] * len(self.portals),
                target_luns=[lun] * len(self.portals))
        return data


class Subsystem:
    """An NVMe/TCP subsystem; its namespace is one volume."""

    paths = 1

    def __init__(self, name: str, volume: Volume) -> None:
        self.address = f'nqn.2010-10.org.openstack:{name}'
        self._volume = volume
        self._path = _NVMET / 'subsystems' / self.address
        self._path.mkdir()
        (self._path / 'attr_allow_any_host').write_text('1')
        namespace = self._path / 'namespaces/1'
        namespace.mkdir()
        for name, value in (
                ('device_path', volume.path), ('device_uuid', volume.id),
                # The file system in memory has no direct I/O.
                ('buffered_io', 1), ('enable', 1)):
            (namespace / name).write_text(str(value))
        (self._port() / 'subsystems' / self.address).symlink_to(self._path)

    @staticmethod
    def _port() -> pathlib.Path:
        port = _NVMET / f'ports/{_NVME_PORT}'
        if not port.exists():
            port.mkdir()
            for name, value in (
                    ('trtype', 'tcp'), ('adrfam', 'ipv4'),
                    ('traddr', ADDRESSES[0]), ('trsvcid', _NVME_PORT)):
                (port / f'addr_{name}').write_text(str(value))
        return port

    def unmap(self) -> None:
        """Refuse new connections and break off the existing ones."""
        link = self._port() / 'subsystems' / self.address
        if link.is_symlink():
            link.unlink()

    def remove(self) -> None:
        """Remove the subsystem and break off its connections."""
        if self._path.exists():
            self.unmap()
            (self._path / 'namespaces/1/enable').write_text('0')
            (self._path / 'namespaces/1').rmdir()
            self._path.rmdir()

    def connection(self) -> dict[str, Any]:
        """Return Cinder's connection information for the volume."""
        return {'driver_volume_type': 'nvmeof', 'target_nqn': self.address,
                'vol_uuid': self._volume.id,
                'portals': [[ADDRESSES[0], str(_NVME_PORT), 'tcp']],
                'volume_id': self._volume.id, 'discard': False,
                'access_mode': 'rw', 'encrypted': False}


def read_device(path: str, offset: int = 0) -> str:
    """Read a block of the device itself, past this host's cache of it.

    :returns: the first letters, or the error
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError as exc:
        return exc.strerror or str(exc)
    try:
        # Direct I/O needs aligned memory, and a mapping is aligned.
        with mmap.mmap(-1, BLOCK) as buffer:
            count = os.preadv(descriptor, [buffer], offset)
            return buffer[:min(count, 8)].decode(errors='replace') or 'nothing'
    except OSError as exc:
        return exc.strerror or str(exc)
    finally:
        os.close(descriptor)
