# SPDX-License-Identifier: Apache-2.0
"""A Ceph of one monitor, one manager and one OSD on a sparse file."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import json
import pathlib
from typing import Any

from e2e import lab as lab_mod, processes

#: The libvirt of this machine.
LIBVIRT = 'qemu:///system'
OSD_UUID = '5c8a2b1e-3f77-4a5e-9d0a-7b6f4e1c9d03'


class Ceph:
    """The cluster of one lab, with the queries of the tests."""

    def __init__(self, lab: lab_mod.Lab, procs: processes.Processes) -> None:
        self.lab = lab
        self.procs = procs
        self.home = lab.directory / 'ceph'

    def _keyring(self, name: str) -> pathlib.Path:
        return self.home / f'keyring.{name}'

    def _env(self) -> dict[str, str]:
        return {'CEPH_CONF': str(self.lab.ceph_conf)}

    def _run(self, *command: str, stdin: str = '') -> str:
        return lab_mod.run(*command, input=stdin, timeout=90,
                           env=self._env()).stdout

    def ceph(self, *arguments: str, stdin: str = '') -> str:
        return self._run('ceph', '--connect-timeout', '20', *arguments,
                         stdin=stdin)

    def up(self) -> None:
        for name in ('mon', 'mgr', 'osd'):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        if not (self.home / 'mon' / 'keyring').exists():
            self._make_monitor()
        self._start('mon', 'a')
        processes.wait_until(lambda: self.ceph('-s'), 'ceph-mon', 60)
        if not (self.home / 'osd' / 'keyring').exists():
            self._make_osd()
        self._start('mgr', 'x')
        self._start('osd', '0')
        processes.wait_until(
            lambda: json.loads(self.ceph('osd', 'stat', '-f', 'json'))
            .get('num_up_osds'), 'ceph-osd', 90)
        if not self._keyring('client.cinder').exists():
            self._make_pool()
        self.define_libvirt_secret()

    def _start(self, kind: str, name: str) -> None:
        self.procs.start(f'ceph-{kind}', [f'ceph-{kind}', '-f', '-i', name],
                         env=self._env())

    def _make_monitor(self) -> None:
        first = self.home / 'first'
        admin = self._keyring('client.admin')
        everything = ('--cap', 'mon', 'allow *', '--cap', 'osd', 'allow *',
                      '--cap', 'mgr', 'allow *')
        self._run('ceph-authtool', '-C', str(first), '--gen-key',
                  '-n', 'mon.', '--cap', 'mon', 'allow *')
        self._run('ceph-authtool', '-C', str(admin), '--gen-key',
                  '-n', 'client.admin', *everything)
        self._run('ceph-authtool', str(first), '--import-keyring', str(admin))
        self._run('monmaptool', '--create', '--clobber',
                  '--fsid', lab_mod.CEPH_FSID, '--addv', 'a',
                  '[v2:127.0.0.1:3300,v1:127.0.0.1:6789]',
                  str(self.home / 'monmap'))
        self._run('ceph-mon', '--mkfs', '-i', 'a',
                  '--monmap', str(self.home / 'monmap'),
                  '--keyring', str(first))

    def _make_osd(self) -> None:
        self.ceph('auth', 'get-or-create', 'mgr.x', 'mon',
                  'allow profile mgr', 'osd', 'allow *', 'mds', 'allow *',
                  '-o', str(self.home / 'mgr' / 'keyring'))
        keyring = str(self.home / 'osd' / 'keyring')
        self._run('ceph-authtool', '-C', keyring, '--gen-key', '-n', 'osd.0')
        secret = self._run('ceph-authtool', '-p', '-n', 'osd.0', keyring)
        self.ceph('osd', 'new', OSD_UUID, '-i', '-',
                  stdin=json.dumps({'cephx_secret': secret.strip()}))
        self._run('ceph-osd', '--mkfs', '-i', '0', '--osd-uuid', OSD_UUID)

    def _make_pool(self) -> None:
        self.ceph('osd', 'pool', 'create', lab_mod.CEPH_POOL, '8')
        self.ceph('osd', 'pool', 'application', 'enable', lab_mod.CEPH_POOL,
                  'rbd')
        self.ceph('auth', 'get-or-create', 'client.cinder',
                  'mon', 'profile rbd', 'mgr', 'profile rbd',
                  'osd', 'profile rbd',
                  '-o', str(self._keyring('client.cinder')))

    def define_libvirt_secret(self, uri: str = LIBVIRT) -> None:
        virsh = ('virsh', '-q', '-c', uri)
        self._run(*virsh, 'secret-define', '/dev/stdin', stdin=(
            "<secret ephemeral='no' private='no'>"
            f'<uuid>{lab_mod.CEPH_SECRET}</uuid><usage type="ceph">'
            '<name>client.cinder secret</name></usage></secret>'))
        key = self._run('ceph-authtool', '-p', '-n', 'client.cinder',
                        str(self._keyring('client.cinder')))
        self._run(*virsh, 'secret-set-value', lab_mod.CEPH_SECRET,
                  '--file', '/dev/stdin', stdin=key.strip())

    def watchers(self, volume: str) -> int:
        """Return the number of clients that have the volume's image open."""
        done = lab_mod.run(
            'rbd', '--id', 'cinder', 'status', '--format', 'json',
            f'{lab_mod.CEPH_POOL}/volume-{volume}', check=False, timeout=60,
            env=self._env())
        if done.returncode:  # the image is gone
            return 0
        answer: dict[str, Any] = json.loads(done.stdout)
        return len(answer['watchers'])

    @contextlib.contextmanager
    def _image(self, volume: str, read_only: bool) -> Iterator[Any]:
        import rados
        import rbd
        with rados.Rados(conffile=str(self.lab.ceph_conf),
                         rados_id='cinder') as cluster, \
                cluster.open_ioctx(lab_mod.CEPH_POOL) as pool, \
                rbd.Image(pool, f'volume-{volume}',
                          read_only=read_only) as image:
            yield image

    def write(self, volume: str, data: bytes) -> None:
        """Write to the beginning of a volume."""
        with self._image(volume, read_only=False) as image:
            image.write(data, 0)

    def read(self, volume: str, offset: int, length: int) -> bytes:
        """Read from a volume."""
        with self._image(volume, read_only=True) as image:
            return bytes(image.read(offset, length))
