# SPDX-License-Identifier: Apache-2.0
"""Compute hosts that servers can move between, on one machine.

Each host has its own mount, UTS and PID namespaces, its own address, and in
them its own libvirtd, sshd (for cold migrations) and nova-compute.  The
network is the machine's, since the services of the cloud listen on loopback
addresses only.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
import contextlib
import pathlib
import shutil
from typing import Any

from e2e import (
    api,
    client,
    cloud,
    config,
    lab as lab_mod,
    logs as logs_mod,
    plugin as plugin_mod,
    processes,
    stack as stack_mod,
)

#: The first process of a host: it mounts, and reaps orphaned processes.
#: When it is killed, the kernel kills all others, as a power failure does.
_INIT = """\
hostname "$0"
for pair; do mount --bind "${pair%%:*}" "${pair#*:}"; done
: >/run/ready
while :; do sleep 3600 & wait $!; done
"""

#: The paths that each host has below its own directory.
_MOUNTS = {
    'run': '/run', 'libvirt': '/etc/libvirt', 'lib': '/var/lib/libvirt',
    'cache': '/var/cache/libvirt', 'log': '/var/log/libvirt'}

_SSHD = """\
Port 2022
HostKey /etc/ssh/key
AuthorizedKeysFile /etc/ssh/key.pub
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
"""

_SSH = """\
Host *
  Port 2022
  IdentityFile /etc/ssh/key
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""


class Host:
    """One compute host: ``cmp1`` has the address 127.0.0.11."""

    def __init__(self, stack: stack_mod.Stack, name: str) -> None:
        self.stack = stack
        self.lab = stack.lab
        self.procs = stack.procs
        self.name = name
        self.number = int(name[-1])
        self.address = f'127.0.0.1{self.number}'
        self.home = self.lab.directory / 'hosts' / name
        self.instances = self.home / 'instances'
        self.compute = f'nova-compute-{name}'
        self.uri = f'qemu+tcp://{self.address}/system'

    def virsh(self, *arguments: str) -> str | None:
        return stack_mod.virsh(*arguments, uri=self.uri)

    def boot(self) -> None:
        """Start everything on the host but nova-compute."""
        if self.procs.is_running(self.name):
            return
        self._configure()
        mounts = [f'{self.home / name}:{target}'
                  for name, target in _MOUNTS.items()]
        mounts += [
            f'{self.home}/hosts:/etc/hosts', f'{self.home}/shadow:/etc/shadow',
            f'{self.home.parent}/ssh:/etc/ssh',
            f'{self.instances}:{self.lab.nova_state}/instances']
        self.procs.start(self.name, [
            'unshare', '--mount', '--uts', '--pid', '--fork', '--kill-child',
            '--mount-proc', 'sh', '-c', _INIT, self.name, *mounts])
        processes.wait_until((self.home / 'run' / 'ready').exists, self.name)
        for daemon, command in (
            ('virtlogd', ['virtlogd']),
            ('libvirtd', ['libvirtd', '--listen']),
            ('sshd', ['/usr/sbin/sshd', '-D', '-e',
                      '-o', f'ListenAddress={self.address}']),
        ):
            self._start(f'{daemon}-{self.name}', command)
        processes.wait_until(lambda: self.virsh('list') is not None,
                             f'libvirtd of {self.name}')
        if self.lab.is_rbd():
            self.stack.ceph.define_libvirt_secret(self.uri)

    def crash(self) -> None:
        """Simulate a power failure."""
        self.procs.kill(self.name)

    def _start(self, name: str, command: list[str],
               env: dict[str, str] | None = None) -> None:
        self.procs.start(name, [*self._enter(), *command], env=env)

    def _enter(self) -> list[str]:
        """Return the words that run a command on the host."""
        outer = self.procs.pid(self.name)
        first, = pathlib.Path(
            f'/proc/{outer}/task/{outer}/children').read_text().split()
        return ['nsenter', '-t', first, '-m', '-u', '-p', '--']

    def run(self, *command: str) -> client.Answer:
        """Run a command that reads the configuration of nova-compute."""
        return client.answer_of(
            *self._enter(), *command, *self._configurations())

    def _configurations(self) -> list[str]:
        return ['--config-file', str(self.lab.nova_conf),
                '--config-file', str(self.home / 'nova.conf')]

    def start_compute(self, env: dict[str, str] | None = None) -> None:
        if self.procs.is_running(self.compute):
            return
        logs = logs_mod.Logs(self.lab)
        self.launch_compute(env)
        processes.wait_until(
            lambda: logs.lines(self.compute, 'Join ServiceGroup'),
            self.compute, 90)

    def launch_compute(self, env: dict[str, str] | None = None) -> None:
        """Start nova-compute, and do not wait until it serves."""
        self._start(self.compute, [
            lab_mod.PYTHON, '/usr/bin/nova-compute',
            *self._configurations()], env)

    def _configure(self) -> None:
        shutil.rmtree(self.home / 'run', ignore_errors=True)
        for path in (*_MOUNTS, 'run/sshd', 'run/lock', 'log/qemu',
                     'lib/qemu', 'libvirt/qemu', 'state', 'instances'):
            (self.home / path).mkdir(parents=True, exist_ok=True)
        (self.home / 'hosts').write_text('127.0.0.1 localhost\n' + ''.join(
            f'127.0.0.1{name[-1]} {name}\n' for name in lab_mod.HOSTS))
        # Without PAM, sshd refuses logins to a locked account.
        shadow = pathlib.Path('/etc/shadow').read_text()
        (self.home / 'shadow').touch(0o600)
        (self.home / 'shadow').write_text(
            shadow.replace('root:!', 'root:*', 1))
        config.write_host(self.lab, self.home, {
            'name': self.name, 'address': self.address,
            'number': str(self.number), 'home': str(self.home)})


class Hosts(dict[str, Host]):
    """The hosts of one lab, by name."""

    def __init__(self, stack: stack_mod.Stack) -> None:
        super().__init__(
            (name, Host(stack, name)) for name in lab_mod.HOSTS)
        self.stack = stack

    def boot(self) -> None:
        ssh = self.stack.lab.directory / 'hosts' / 'ssh'
        if not ssh.exists():
            ssh.mkdir(parents=True)
            (ssh / 'sshd_config').write_text(_SSHD)
            (ssh / 'ssh_config').write_text(_SSH)
            lab_mod.run('ssh-keygen', '-q', '-t', 'ed25519', '-N', '',
                        '-f', str(ssh / 'key'))
        with futures.ThreadPoolExecutor() as pool:
            list(pool.map(Host.boot, self.values()))

    def shut_down(self) -> None:
        """Stop the hosts; servers run on the machine itself again.

        An interrupted run leaves servers that only their host can delete.
        """
        if Computes(self.stack, self).is_running():
            cloud.Cloud(self.stack).delete_all()
        self.enable_only(lab_mod.HOST)
        for host in self.values():
            self.stack.procs.stop(host.compute)
            host.crash()

    def enable_only(self, *names: str) -> None:
        """Let the scheduler choose among these hosts only."""
        self._update_services('status', {
            name: 'enabled' if name in names else 'disabled'
            for name in (lab_mod.HOST, *self)})

    def force_down(self, *names: str) -> None:
        """Force down these hosts in Nova, and no others."""
        self._update_services(
            'forced_down', {name: name in names for name in self})

    @staticmethod
    def _update_services(key: str, wanted: dict[str, Any]) -> None:
        for one in api.call(
                'compute', 'GET', '/os-services?binary=nova-compute',
                who=api.ADMIN)['services']:
            value = wanted.get(one['host'], one[key])
            if one[key] != value:
                api.call('compute', 'PUT', f'/os-services/{one["id"]}',
                         {key: value}, api.ADMIN)


class Computes(plugin_mod.Compute):
    """Every host's nova-compute, with or without the plugin."""

    options = {**plugin_mod.Compute.options, 'triggers': 'all'}

    def __init__(self, stack: stack_mod.Stack, hosts: Hosts) -> None:
        super().__init__(stack)
        self.hosts = hosts

    def stop(self) -> None:
        with futures.ThreadPoolExecutor() as pool:
            list(pool.map(self.stack.procs.stop,
                          [host.compute for host in self.hosts.values()]))

    def start(self, env: dict[str, str] | None = None) -> None:
        self.hosts.boot()
        with futures.ThreadPoolExecutor() as pool:
            list(pool.map(lambda host: host.start_compute(env),
                          self.hosts.values()))

        def are_up() -> bool:
            up = [one for one in api.call(
                'compute', 'GET', '/os-hypervisors',
                who=api.ADMIN)['hypervisors'] if one['state'] == 'up'
                and one['hypervisor_hostname'] in self.hosts]
            return len(up) == len(self.hosts)
        # Only after nova-compute has cleaned up evacuated instances.
        self.hosts.force_down()
        processes.wait_until(are_up, 'the hosts', 90)
        self.hosts.enable_only(*self.hosts)

    def is_running(self) -> bool:
        return all(self.stack.procs.is_running(host.compute)
                   for host in self.hosts.values())


@contextlib.contextmanager
def two_hosts(stack: stack_mod.Stack) -> Iterator[None]:
    """Let servers run on these hosts instead of the machine itself."""
    hosts = Hosts(stack)
    stack.procs.stop('nova-compute')
    try:
        yield
    finally:
        hosts.shut_down()
