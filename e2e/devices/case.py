# SPDX-License-Identifier: Apache-2.0
"""One case: its volumes, targets, servers and result."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import dataclasses
import faulthandler
import os
import pathlib
import signal
import time
import traceback
from typing import Any
from unittest import mock
import uuid

from nova.compute import manager as nova_manager
from nova.db.main import api as db
from os_brick.initiator.connectors import iscsi, nvmeof

from e2e import processes
from e2e.devices import (
    compute_host,
    hooks,
    kernel,
    records,
    steps,
    storage,
    volumes,
)
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.cleanup.triggers import Trigger


@dataclasses.dataclass
class Result:
    """The result of one case."""

    name: str
    title: str
    #: Its position in the list of cases.
    number: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)
    #: Why it does not test the plugin.  No case may end so, not even one that
    #: has to fail.
    untested: list[str] = dataclasses.field(default_factory=list)
    #: The facts of the table: (heading, text).
    facts: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    #: The plugin's log lines: event, reason and text.
    logged: list[str] = dataclasses.field(default_factory=list)
    #: The same in short.
    events: str = ''
    seconds: float = 0.0
    #: The seconds of the reboot alone.
    reboot: float | None = None


@dataclasses.dataclass
class Disk:
    """An attached volume and its target."""

    volume: storage.Volume
    attached: volumes.Attached
    #: A ``storage.Target``, or a ``storage.Subsystem``.
    target: Any

    @property
    def server(self) -> str:
        return self.attached.server

    def connected(self) -> kernel.Connected:
        """Return the devices of the disk on the host."""
        return kernel.connected(self.volume.id, self.target.address)

    def device(self) -> str:
        """Return the device that its guest would have."""
        found = self.connected()
        return '/dev/' + (found.maps or found.disks)[0]


class Case:
    """The volumes, targets and servers of one case, and its checks.

    :param result: the result that it fills in
    :param directory: its own working directory
    :param manager: from :func:`e2e.devices.compute_host.prepare`
    :param multipath: whether Nova uses multipath
    :param disconnects: whether a cleanup disconnects; if not, each case that
        needs the disconnect must fail
    """

    def __init__(self, result: Result, directory: pathlib.Path, manager: Any,
                 multipath: bool, disconnects: bool) -> None:
        self.result = result
        self.directory = directory
        self._disconnects = disconnects
        self.cinder = volumes.Volumes()
        self.host = compute_host.ComputeHost(
            directory, self.cinder, manager, multipath)
        self._volumes: list[storage.Volume] = []
        self._targets: list[storage.Target | storage.Subsystem] = []
        self._runs = 0

    # -- creating ----------------------------------------------------------

    def volume(self, letter: str, project: str = 'project',
               megabytes: int = storage.MEGABYTES,
               encryption: dict[str, Any] | None = None) -> storage.Volume:
        """Create a volume that Cinder knows."""
        volume = storage.Volume(letter, megabytes)
        self._volumes.append(volume)
        self.cinder.add(volume, project, encryption)
        return volume

    def target(self, paths: int = 1,
               returns_portals: bool = True) -> storage.Target:
        """Create an iSCSI target; see :class:`e2e.devices.storage.Target`."""
        target = storage.Target(uuid.uuid4().hex[:8], paths, returns_portals)
        self._targets.append(target)
        return target

    def disk(self, letter: str = 'a', paths: int = 1, lun: int = 1,
             target: storage.Target | None = None,
             volume: storage.Volume | None = None, project: str = 'project',
             host: str = compute_host.HOST) -> Disk:
        """Attach a volume; create it and its target unless given."""
        target = target or self.target(paths)
        volume = volume or self.volume(letter, project)
        target.map(lun, volume)
        attached = self.cinder.attach(
            volume, str(uuid.uuid4()), target.connection(lun, volume),
            lambda: target.unmap(lun), host, project)
        return Disk(volume, attached, target)

    def subsystem(self, letter: str = 'a') -> Disk:
        """Attach a volume over NVMe/TCP."""
        volume = self.volume(letter)
        subsystem = storage.Subsystem(uuid.uuid4().hex[:8], volume)
        self._targets.append(subsystem)
        attached = self.cinder.attach(
            volume, str(uuid.uuid4()), subsystem.connection(),
            subsystem.unmap)
        return Disk(volume, attached, subsystem)

    def server(self, *disks: Disk, **more: Any) -> str:
        """Create a server with disks and start its guest.

        :param more: see :meth:`e2e.devices.compute_host.ComputeHost.server`
        """
        server = self.host.server(*(disk.attached for disk in disks), **more)
        self.reboot(server, 'none', is_setup=True)
        assert self.host.libvirt.is_running(server), \
            'the server did not start:\n' + self._tail()
        for disk in disks:
            self.expect(bool(disk.connected().maps) or disk.target.paths == 1,
                        'there is no multipath device')
        return server

    def running(self, letter: str = 'a', paths: int = 1) -> Disk:
        """Attach a disk to a new server and start its guest."""
        disk = self.disk(letter, paths)
        self.server(disk)
        return disk

    def connect(self, disk: Disk) -> None:
        """Connect a disk that belongs to no server."""
        status = self.nova(lambda: self.host.connect(disk.attached),
                           disk.server, None, 'none')
        assert not status, 'the disk was not connected:\n' + self._tail()

    def discover(self) -> None:
        """Discover the targets, as an operator may."""
        with records.changing():
            kernel.run('iscsiadm', '-m', 'discovery', '-t', 'sendtargets',
                       '-p', f'{storage.ADDRESSES[0]}:3260')

    def lose_power(self) -> None:
        """Drop all state in memory, but not open-iscsi's records.

        Afterwards no guest runs and nothing of the case is connected.
        """
        self.host.libvirt.stop_all()
        for volume in self._volumes:
            _remove_maps(volume)
        iqns = [target.address for target in self._targets]
        for iqn in iqns:
            kernel.run('iscsiadm', '-m', 'node', '-T', iqn, '-u', check=False)
        processes.wait_until(lambda: not any(map(kernel.sessions, iqns)),
                             'the end of all sessions', 20)

    # -- changes without Nova ----------------------------------------------

    def lose_attachment(self, disk: Disk) -> None:
        self.cinder.delete(disk.attached)

    def reset_status(self, disk: Disk) -> None:
        self.cinder.volumes[disk.volume.id]['status'] = 'available'

    # -- nova-compute ------------------------------------------------------

    def nova(self, function: Callable[[], None], server: str,
             trigger: Trigger | None, cleanup: str = 'plugin',
             kill_before: int | None = None) -> int:
        """Run an operation in a nova-compute that has just started.

        With the plugin, each hook of the trigger must run.

        :param server: the server that the function is about
        :param trigger: the trigger of the operation; None: it has none
        :param cleanup: the cleanup that it does
        :param kill_before: kill it before this step of its cleanup
        :returns: its exit status
        """
        called = len(self.host.hooks.calls())
        status = self._nova(function, cleanup, kill_before)
        if cleanup == 'plugin' and trigger is not None:
            self.result.untested += [
                f'{trigger.name}: the hook {call} was not called, so this '
                'case does not test the plugin'
                for call in hooks.missing(
                    trigger, server, self.host.hooks.calls()[called:])]
        return status

    def _nova(self, function: Callable[[], None], cleanup: str,
              kill_before: int | None) -> int:
        self._runs += 1
        path = self.directory / f'steps-{self._runs}'
        path.touch()
        # Processes must not share a connection of SQLite.
        db.context_manager.dispose_pool()
        pid = os.fork()
        if pid:
            try:
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            except TimeoutError:
                # SIGABRT makes it log its stack.
                os.kill(pid, signal.SIGABRT)
                time.sleep(2)
                os.kill(pid, signal.SIGKILL)
                raise
        status = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.alarm(0)
            faulthandler.enable(open(self.directory / 'nova.log', 'a'))
            self.host.start(cleanup)
            if not self._disconnects:
                _disable_disconnect()
            steps.Steps(path, kill_before).watch()
            function()
            status = 0
        except BaseException:
            with open(self.directory / 'nova.log', 'a') as log:
                traceback.print_exc(file=log)
        finally:
            os._exit(status)

    def reboot(self, server: str, cleanup: str = 'plugin',
               kill_before: int | None = None, is_setup: bool = False,
               given: Disk | None = None) -> int:
        """Reboot a server hard, in a process of its own.

        :param given: a disk whose attach is under way in this process
        """
        def reboot() -> None:
            if given is not None:
                self.host.give(given.attached)
            self.host.reboot(server)

        began = time.monotonic()
        lines = len(self.host.log())
        status = self.nova(reboot, server, triggers.HARD_REBOOT, cleanup,
                           kill_before)
        if not is_setup:
            self.result.reboot = time.monotonic() - began
            self.result.logged += self._plugin_lines(lines)
        return status

    def start(self, server: str) -> int:
        """Start a stopped server, in a process of its own."""
        return self._run(lambda: self.host.start_server(server), server,
                         triggers.START, 'plugin')

    def start_again(self) -> int:
        """Do what a start of nova-compute does with suppressed disconnects,
        in a process of its own.
        """
        return self._run(self.host.disconnect_late, '', None, 'plugin')

    def delete(self, server: str, cleanup: str = 'plugin') -> int:
        """Delete a server, in a process of its own."""
        return self._run(lambda: self.host.delete(server), server,
                         triggers.DELETE, cleanup)

    def evacuate(self, server: str) -> int:
        """Take a server over from another host, in a process of its own."""
        return self._run(lambda: self.host.evacuate(server), server,
                         triggers.EVACUATE, 'plugin')

    def resume(self, server: str, cleanup: str = 'plugin') -> int:
        """Start a guest as when the host boots, in a process of its own."""
        return self._run(lambda: self.host.resume(server), server,
                         triggers.HOST_BOOT, cleanup)

    def detach(self, server: str, volume: str,
               cleanup: str = 'plugin') -> int:
        """Detach a volume, in a process of its own."""
        return self._run(lambda: self.host.detach(server, volume), server,
                         None, cleanup)

    def repair(self, server: str) -> int:
        """Repair a server whose guest goes on, in a process of its own."""
        return self._run(lambda: self.host.repair(server), server, None,
                         'plugin')

    def _run(self, operation: Callable[[], None], server: str,
             trigger: Trigger | None, cleanup: str) -> int:
        lines = len(self.host.log())
        status = self.nova(operation, server, trigger, cleanup)
        self.result.logged += self._plugin_lines(lines)
        return status

    def _plugin_lines(self, lines: int) -> list[str]:
        """Return the plugin's log lines after the first ``lines`` lines."""
        return [line.partition('bdm-cleanup: ')[2]
                for line in self.host.log()[lines:] if 'bdm-cleanup: ' in line]

    def steps(self) -> list[str]:
        """Return the steps of the cleanup of the last nova-compute."""
        return (self.directory / f'steps-{self._runs}'
                ).read_text().splitlines()

    # -- results and checks ------------------------------------------------

    def reboot_and_record(self, disk: Disk) -> int:
        """Reboot the server of a disk; the table shows the disk before and
        after.
        """
        self.record('before', disk)
        status = self.reboot(disk.server)
        self.record('after', disk)
        return status

    def record(self, when: str, disk: Disk) -> None:
        """Add the devices of a disk on this host to the table."""
        text = str(disk.connected())
        if disk.volume.id in self.host.libvirt.secrets():
            text += ', a secret of libvirt'
        self.fact(when, text)

    def fact(self, heading: str, text: object) -> None:
        """Add a fact to the table."""
        self.result.facts.append((heading, str(text)))

    def expect(self, condition: object, problem: str) -> None:
        """Check that a condition holds, or fail the case."""
        if not condition:
            # One problem is enough for a case that must fail.
            assert self._disconnects, problem
            self.result.problems.append(problem)

    def expect_gone(self, disk: Disk) -> None:
        """Check that a disk is gone everywhere, and the guest runs."""
        found = disk.connected()
        self.expect(not found, f'still connected: {found}')
        self.expect(not self.host.mappings(disk.volume),
                    'the mapping is not deleted')
        self.expect(disk.server not in [
            one.server for one in self.cinder.attachments_of(disk.volume.id)],
            'the attachment is not deleted')
        self.expect(disk.volume.id not in self.host.libvirt.secrets(),
                    'the secret in libvirt is not deleted')
        self.expect_running(disk.server, 0)

    def expect_running(self, server: str, disks: int) -> None:
        """Check that a guest runs with this number of disks."""
        self.expect(self.host.libvirt.is_running(server),
                    'the guest does not run')
        found = self.host.libvirt.disks(server)
        self.expect(len(found) == disks,
                    f'the guest has {found}, expected {disks} disks')
        instance = self.host.instance(server)
        self.expect((instance.vm_state, instance.task_state)
                    == ('active', None),
                    f'the server is {instance.vm_state}, '
                    f'{instance.task_state}')

    def expect_nothing_to_do(self, server: str, disks: int = 0) -> None:
        """Check that the next reboot finds nothing to do."""
        before = len(self.cinder.changes)
        lines_logged = self.reboot_next(server)
        self.expect(not lines_logged,
                    f'the next reboot logs {lines_logged[:1]}')
        self.expect(len(self.cinder.changes) == before,
                    'the next reboot changes something in Cinder')
        self.expect_running(server, disks)

    def reboot_next(self, server: str) -> list[str]:
        """Reboot the server once more.

        :returns: the lines that the plugin logged
        """
        lines = len(self.host.log())
        status = self.reboot(server, is_setup=True)
        self.expect(status == 0, f'the next reboot ended with {status}')
        lines_logged = self._plugin_lines(lines)
        self.fact('next reboot', events(lines_logged) or 'nothing to do')
        return lines_logged

    def expect_log(self, *words: str) -> None:
        """Check that one line of the plugin contains all these words."""
        self.expect(
            any(all(word in line for word in words)
                for line in self.result.logged),
            f'no log line of the plugin contains {words}')

    def _tail(self) -> str:
        return '\n'.join(self.host.log()[-30:])

    # -- the end -----------------------------------------------------------

    def expect_plugin(self, is_used: bool) -> None:
        """Check that the plugin ran at all, or never."""
        if is_used != bool(self.host.hooks.calls()):
            self.result.untested.append(
                'no hook of the plugin was called' if is_used else
                'the plugin was called in a case without it')

    def clean_up(self) -> None:
        """Remove everything that could affect the next case."""
        for volume in self._volumes:
            kernel.fail_queued(kernel.connected(volume.id, '').maps)
        self.host.libvirt.stop_all()
        for target in self._targets:
            _log_out(target)
            target.remove()
        for volume in self._volumes:
            _remove_maps(volume)
            with contextlib.suppress(OSError):
                volume.remove()
        records.forget_discoveries()


def events(logged: list[str]) -> str:
    """Return the events and reasons of log lines, in short."""
    found = []
    for line in logged:
        words = dict(word.partition('=')[::2] for word in line.split()[:2])
        if 'event' in words:
            found.append(words['event'] + (
                f' ({words["reason"]})' if words.get('reason', '-') != '-'
                else ''))
        else:
            found.append(line.partition(':')[0])
    return ', '.join(found)


def _log_out(target: storage.Target | storage.Subsystem) -> None:
    if isinstance(target, storage.Subsystem):
        kernel.run('nvme', 'disconnect', '-n', target.address, check=False)
        return
    node = ('iscsiadm', '-m', 'node', '-T', target.address)
    kernel.run(*node, '-u', check=False)
    with records.changing():
        kernel.run(*node, '-o', 'delete', check=False)


def _remove_maps(volume: storage.Volume) -> None:
    for name in reversed(kernel.connected(volume.id, '').maps):
        kernel.run('dmsetup', 'remove', '--retry', f'/dev/{name}',
                   check=False)


def _disable_disconnect() -> None:
    """Disable the disconnect in the cleanup, and nowhere else."""
    cleanup = nova_manager.ComputeManager._delete_dangling_bdms

    def without_disconnect(*args: Any, **kwargs: Any) -> Any:
        with mock.patch.object(iscsi.ISCSIConnector, 'disconnect_volume',
                               lambda *_, **__: None), \
                mock.patch.object(nvmeof.NVMeOFConnector,
                                  'disconnect_volume',
                                  lambda *_, **__: None):
            return cleanup(*args, **kwargs)

    mock.patch.object(nova_manager.ComputeManager, '_delete_dangling_bdms',
                      without_disconnect).start()
