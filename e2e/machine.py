# SPDX-License-Identifier: Apache-2.0
"""Requirements of the tests: a suitable machine, and its packages."""

from __future__ import annotations

import os
import pathlib

from e2e import lab as lab_mod, processes

PACKAGES = pathlib.Path(__file__).parent / 'packages'


class Unsuitable(Exception):
    """A machine that cannot run the tests; the message says why."""


def check(backend: str) -> None:
    """Refuse an unsuitable machine before anything is changed.

    :raises Unsuitable: with one line for the operator.
    """
    if os.geteuid() != 0:
        raise Unsuitable('root is needed: libvirtd, loop devices and packages')
    release = _os_release()
    if (release.get('ID'), release.get('VERSION_ID')) != ('debian', '12'):
        raise Unsuitable(
            'Debian 12 is needed (OpenStack Zed comes from its packages); '
            f'this is {release.get("PRETTY_NAME", "another system")}')
    if backend == 'loop' and not os.path.exists('/dev/loop-control'):
        raise Unsuitable('the loop back end needs loop devices '
                         '(/dev/loop-control is missing)')


def _os_release() -> dict[str, str]:
    try:
        text = pathlib.Path('/etc/os-release').read_text()
    except OSError:
        return {}
    pairs = (line.partition('=') for line in text.splitlines())
    return {key: value.strip('"') for key, _, value in pairs}


def check_ports(lab: lab_mod.Lab) -> None:
    """Refuse ports of other programs: a second cloud, or a leftover."""
    for service, port in lab_mod.PORTS.items():
        if processes.Processes(lab).is_running(service):
            continue
        if processes.is_listening(port):
            raise Unsuitable(
                f'port {port} ({service}) is used by a process that was not '
                f'started from {lab.directory}')


def missing_packages(backend: str) -> list[str]:
    wanted = (PACKAGES / 'common.txt').read_text().split()
    if backend == 'rbd':
        wanted += (PACKAGES / 'rbd.txt').read_text().split()
    shown = lab_mod.run('dpkg-query', '-W', '-f',
                        '${Package} ${db:Status-Abbrev}\n').stdout
    installed = {line.split()[0] for line in shown.splitlines()
                 if line.endswith('ii ')}
    return [name for name in wanted if name not in installed]


def install(backend: str) -> None:
    """Install missing packages; no service may start by itself."""
    names = missing_packages(backend)
    if not names:
        return
    print(f'installing {len(names)} packages and their dependencies',
          flush=True)
    policy = pathlib.Path('/usr/sbin/policy-rc.d')
    is_new = not policy.exists()
    if is_new:
        policy.write_text('#!/bin/sh\nexit 101\n')
        policy.chmod(0o755)
    env = {'DEBIAN_FRONTEND': 'noninteractive', **lab_mod.package_index_env()}
    try:
        for command in (
            ['apt-get', 'update', '-q'],
            ['apt-get', 'install', '-q', '-y', '--no-install-recommends',
             '-o', 'Dpkg::Options::=--force-confold',
             '-o', 'DPkg::Lock::Timeout=300', *names],
        ):
            done = lab_mod.run(*command, check=False, env=env)
            if done.returncode:
                lines = (done.stdout + done.stderr).splitlines()
                raise Unsuitable(f'{" ".join(command[:2])} failed:\n'
                                 + '\n'.join(lines[-20:]))
    finally:
        if is_new:
            policy.unlink()
