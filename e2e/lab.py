# SPDX-License-Identifier: Apache-2.0
"""Location and names of the cloud of the tests.

Everything the tests write lies under one directory.  The exceptions are two
paths that libvirt fixes: its run-time directories and
``/etc/libvirt/qemu.conf``, which is restored when the cloud is taken down.
"""

from __future__ import annotations

from collections.abc import Mapping
import os
import pathlib
import subprocess
from typing import Any

BACKENDS = ('loop', 'rbd')
DEFAULT_DIR = '/var/lib/nova-bdm-e2e'

#: Debian's interpreter: the one that its OpenStack packages are built for.
PYTHON = '/usr/bin/python3'
PASSWORD = 'e2e'
REGION = 'RegionOne'
#: The name under which Nova and Cinder know this machine.
HOST = 'e2e1'
#: Hosts that servers move between, in namespaces of their own.
HOSTS = ('cmp1', 'cmp2')

#: Fixed ports: only one such cloud fits on a machine at a time.
PORTS = {
    'mariadb': 3306,
    'rabbitmq': 5672,
    'keystone': 5000,
    'glance': 9292,
    'placement': 8778,
    'nova-api': 8774,
    'cinder-api': 8776,
    'neutron': 9696,
    # A second one, which has never seen a volume.
    'cinder-empty': 8786,
    # A third one, which reads from a replica of the database.
    'cinder-replica': 8796,
    'mariadb-replica': 3307,
}

CEPH_POOL = 'volumes'
CEPH_FSID = '2b6a1f0c-9d53-4b4e-8f0e-6a1d1b7f3c01'
CEPH_SECRET = '0c4e8f5a-57a1-4f43-a8a5-1f7a6f9b2d02'


class Lab:
    """One cloud: its directory and its storage back end."""

    def __init__(self, directory: pathlib.Path, backend: str) -> None:
        self.directory = directory
        self.backend = backend
        self.etc = directory / 'etc'
        self.log = directory / 'log'
        self.run = directory / 'run'
        self.tmp = directory / 'tmp'
        self.pids = directory / 'pid'
        #: Files and links of the loop back end.
        self.volumes = directory / 'cinder' / 'volumes'
        self.nova_state = directory / 'nova'
        self.nova_conf = self.etc / 'nova' / 'nova.conf'
        self.empty_cinder_conf = self.etc / 'cinder' / 'cinder-empty.conf'
        self.replica_cinder_conf = self.etc / 'cinder' / 'cinder-replica.conf'
        self.ceph_conf = self.etc / 'ceph' / 'ceph.conf'
        self.results = directory / 'results'

    def log_of(self, service: str) -> pathlib.Path:
        return self.log / f'{service}.log'

    def is_rbd(self) -> bool:
        return self.backend == 'rbd'

    def make_directories(self) -> None:
        for path in (
            self.etc, self.log, self.run, self.pids, self.results,
            self.volumes, self.nova_state / 'instances',
            self.directory / 'mysql', self.directory / 'rabbitmq',
            self.directory / 'glance', self.directory / 'neutron',
            self.tmp,
        ):
            path.mkdir(parents=True, exist_ok=True)
        # MariaDB runs as its own user and must reach its directories.
        self.directory.chmod(0o755)
        for path in (self.run, self.tmp):
            path.chmod(0o1777)


def environment(**extra: str) -> dict[str, str]:
    """Return the environment of every process of the cloud.

    Built up instead of inherited: a proxy or a PYTHONPATH of the caller
    would change the tests.
    """
    env = {
        'PATH': '/usr/sbin:/usr/bin:/sbin:/bin',
        'LC_ALL': 'C.UTF-8',
        'HOME': os.environ.get('HOME', '/root'),
        'PYTHONDONTWRITEBYTECODE': '1',
    }
    env.update(extra)
    return env


def package_index_env() -> dict[str, str]:
    """Return the variables for package access that installs inherit."""
    return {key: value for key, value in os.environ.items()
            if key.lower().endswith('_proxy') or key.startswith('PIP_')}


def run(*command: str, check: bool = True, env: Mapping[str, str] = {},
        **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command of the cloud to its end.

    :param check: whether it must succeed
    :raises RuntimeError: it has failed; with its output
    """
    done = subprocess.run(command, text=True, capture_output=True, cwd='/',
                          env=environment(**env), **options)
    if check and done.returncode:
        raise RuntimeError(f'{command}: {done.stdout}{done.stderr}')
    return done
