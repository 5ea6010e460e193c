# SPDX-License-Identifier: Apache-2.0
"""The whole cloud: started in order, and removed without a trace."""

from __future__ import annotations

from concurrent import futures
import pathlib
import shutil
import time

from e2e import (
    api,
    ceph,
    config,
    database,
    identity,
    lab as lab_mod,
    machine,
    processes,
)

DRIVERS = pathlib.Path(__file__).parent / 'cinder_driver'
QEMU_CONF = pathlib.Path('/etc/libvirt/qemu.conf')

#: The processes that are stopped last, in the reverse order of their start.
STOPPED_LAST = ('mariadb', 'epmd', 'rabbitmq', 'virtlogd', 'libvirtd',
                'ceph-mon', 'ceph-mgr', 'ceph-osd')


def _log(text: str) -> None:
    print(time.strftime('%H:%M:%S'), text, flush=True)


def answers_http(port: int) -> bool:
    done = lab_mod.run('curl', '-s', '-o', '/dev/null', '--max-time', '20',
                       f'http://127.0.0.1:{port}/', check=False)
    return done.returncode == 0


class Stack:
    """The services of one lab."""

    def __init__(self, lab: lab_mod.Lab) -> None:
        self.lab = lab
        self.procs = processes.Processes(lab)
        self.ceph = ceph.Ceph(lab, self.procs)
        self._filled = lab.directory / 'filled'

    # -- up ----------------------------------------------------------------

    def up(self) -> None:
        """Start the services that do not run; safe to call again."""
        began = time.monotonic()
        if self.lab.directory.exists() and not self._filled.exists():
            # An earlier start failed half way: delete what it has left.
            self.down(wipe=True)
        self.lab.make_directories()
        machine.check_ports(self.lab)
        config.write_all(self.lab)
        new = not self._filled.exists()
        database.start(self.lab, self.procs)
        self._rabbitmq()
        if new:
            database.create(self.lab)
            _log('the databases are created')
        self._libvirt()
        if self.lab.is_rbd():
            self.ceph.up()
            _log('Ceph is running')
        self.start('keystone')
        self._wait_for_port('keystone')
        if new:
            identity.fill_keystone()
            api.drop_sessions()  # their catalog has no endpoints
        for name in ('placement', 'nova-api', 'cinder-api', 'glance',
                     'neutron', 'cinder-scheduler', 'cinder-volume',
                     'nova-conductor', 'nova-scheduler'):
            self.start(name)
        self._wait_for_port('placement')
        self.start('nova-compute')
        for name in ('nova-api', 'cinder-api', 'neutron', 'glance'):
            self._wait_for_port(name)
        identity.wait_for_services()
        if new:
            identity.fill_cloud()
            self._filled.touch()
        _log(f'the cloud ({self.lab.backend}) started in '
             f'{time.monotonic() - began:.0f} s')

    @staticmethod
    def _wait_for_port(name: str) -> None:
        processes.wait_until(
            lambda: answers_http(lab_mod.PORTS[name]), name, 90)

    def _rabbitmq(self) -> None:
        home = self.lab.directory / 'rabbitmq'
        etc = self.lab.etc / 'rabbitmq'
        loopback = {'ERL_EPMD_ADDRESS': '127.0.0.1'}
        self.procs.start('epmd', ['epmd'], env=loopback)
        self.procs.start(
            'rabbitmq', ['/usr/lib/rabbitmq/bin/rabbitmq-server'],
            env={
                **loopback,
                'HOME': str(home),
                'ERL_CRASH_DUMP': str(self.lab.log / 'erl_crash.dump'),
                'RABBITMQ_NODENAME': 'rabbit@localhost',
                'RABBITMQ_MNESIA_BASE': str(home),
                'RABBITMQ_LOG_BASE': str(self.lab.log),
                'RABBITMQ_PID_FILE': str(self.lab.run / 'rabbitmq.pid'),
                'RABBITMQ_CONFIG_FILE': str(etc / 'rabbitmq'),
                'RABBITMQ_ENABLED_PLUGINS_FILE': str(etc / 'enabled_plugins'),
                'RABBITMQ_CONF_ENV_FILE': '/dev/null',
                'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS':
                    '-kernel inet_dist_use_interface {127,0,0,1}',
            })

    def restart_rabbitmq(self) -> None:
        self.procs.stop('rabbitmq')
        self._rabbitmq()
        processes.wait_until(
            lambda: processes.is_listening(lab_mod.PORTS['rabbitmq']),
            'RabbitMQ')

    def _libvirt(self) -> None:
        for path in ('/run/libvirt', '/var/log/libvirt/qemu',
                     '/var/lib/libvirt/qemu'):
            pathlib.Path(path).mkdir(parents=True, exist_ok=True)
        before = self.lab.etc / 'libvirt' / 'qemu.conf.before'
        if QEMU_CONF.exists() and not before.exists():
            shutil.copy2(QEMU_CONF, before)
        shutil.copy(self.lab.etc / 'libvirt' / 'qemu.conf', QEMU_CONF)
        for name in ('virtlogd', 'libvirtd'):
            conf = self.lab.etc / 'libvirt' / f'{name}.conf'
            self.procs.start(name, [name, '--config', str(conf)])
        processes.wait_until(lambda: virsh('list') is not None, 'libvirtd')

    def start(self, name: str, env: dict[str, str] | None = None) -> None:
        """Start one OpenStack service."""
        etc = self.lab.etc
        cinder = f'{etc}/cinder/cinder.conf'
        nova_db = f'{etc}/nova/nova-db.conf'
        wsgi: dict[str, tuple[str, int, dict[str, str], str]] = {
            'keystone': ('keystone-wsgi-public', 2, {
                'OS_KEYSTONE_CONFIG_DIR': f'{etc}/keystone'}, ''),
            'placement': ('placement-api', 1, {
                'OS_PLACEMENT_CONFIG_DIR': f'{etc}/placement'}, ''),
            # Two workers each: Nova and Cinder call one another.
            'nova-api': ('nova-api-wsgi', 2, {
                'OS_NOVA_CONFIG_DIR': f'{etc}/nova',
                'OS_NOVA_CONFIG_FILES':
                    'api-paste.ini;nova.conf;nova-db.conf'}, ''),
            'cinder-api': ('cinder-wsgi', 2, {}, cinder),
            'cinder-empty': ('cinder-wsgi', 1, {},
                             str(self.lab.empty_cinder_conf)),
            'cinder-replica': ('cinder-wsgi', 1, {},
                               str(self.lab.replica_cinder_conf)),
        }
        daemons = {
            'glance': ('glance-api', [f'{etc}/glance/glance-api.conf']),
            'neutron': ('neutron-server', [f'{etc}/neutron/neutron.conf']),
            'cinder-volume': ('cinder-volume', [cinder]),
            'cinder-scheduler': ('cinder-scheduler', [cinder]),
            'nova-conductor': ('nova-conductor',
                               [str(self.lab.nova_conf), nova_db]),
            'nova-scheduler': ('nova-scheduler',
                               [str(self.lab.nova_conf), nova_db]),
            'nova-compute': ('nova-compute', [str(self.lab.nova_conf)]),
        }
        if name in wsgi:
            self._wsgi(name, *wsgi[name])
            return
        program, configurations = daemons[name]
        if name == 'cinder-volume':
            env = {'PYTHONPATH': str(DRIVERS)}
        self.procs.start(name, [lab_mod.PYTHON, f'/usr/bin/{program}', *(
            f'--config-file={path}' for path in configurations)], env=env)

    def _wsgi(self, name: str, script: str, workers: int,
              env: dict[str, str], configuration: str) -> None:
        command = [
            'uwsgi', '--plugin', 'python3', '--need-app',
            '--http-socket', f'127.0.0.1:{lab_mod.PORTS[name]}',
            '--wsgi-file', f'/usr/bin/{script}', '--master', '--lazy-apps',
            '--processes', str(workers), '--threads', '1',
            '--enable-threads', '--thunder-lock', '--die-on-term',
            '--no-orphans', '--buffer-size', '65535',
            # As in the packages' own uwsgi files.
            '--rem-header', 'Content-Length',
            '--add-header', 'Connection: close',
        ]
        if configuration:
            command += ['--pyargv', f'--config-file {configuration}']
        self.procs.start(name, command, env=env)

    # -- down --------------------------------------------------------------

    def down(self, wipe: bool = False) -> None:
        """Stop the started services and release their resources."""
        if not self.lab.pids.exists():
            return
        if self.procs.is_running('libvirtd'):
            for domain in (virsh('list', '--all', '--name') or '').split():
                virsh('destroy', domain)
                virsh('undefine', domain)
            if self.lab.is_rbd():
                virsh('secret-undefine', lab_mod.CEPH_SECRET)
        services = [name for name in self.procs.names()
                    if name not in STOPPED_LAST]
        with futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(self.procs.stop, services))
        for name in self.procs.names():
            self.procs.stop(name)
        for device in loop_devices(self.lab):
            lab_mod.run('losetup', '-d', device, check=False)
        before = self.lab.etc / 'libvirt' / 'qemu.conf.before'
        if before.exists():
            shutil.move(str(before), QEMU_CONF)
        if wipe:
            shutil.rmtree(self.lab.directory)
        _log('the cloud is stopped')


def virsh(*arguments: str, uri: str = ceph.LIBVIRT) -> str | None:
    """Return the output of virsh, or None when it fails."""
    done = lab_mod.run('virsh', '-q', '-c', uri, *arguments, check=False,
                       timeout=60)
    return None if done.returncode else done.stdout


def loop_devices(lab: lab_mod.Lab) -> dict[str, str]:
    """Return the loop devices over files of this lab, with their files."""
    shown = lab_mod.run('losetup', '-n', '--raw', '-O', 'NAME,BACK-FILE',
                        check=False).stdout
    pairs = (line.split(maxsplit=1) for line in shown.splitlines())
    return {pair[0]: pair[1] for pair in pairs
            if len(pair) == 2 and pair[1].startswith(f'{lab.directory}/')}
