# SPDX-License-Identifier: Apache-2.0
"""One trial: a scenario on one back end, with or without the plugin."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
import contextlib
import dataclasses
import os
import pathlib
import re
from typing import Any

from e2e import (
    api,
    client,
    cloud as cloud_mod,
    database,
    guest,
    identity,
    lab as lab_mod,
    logs as logs_mod,
    plugin as plugin_mod,
    processes,
    stack as stack_mod,
)
from nova_bdm_cleanup.tests.cloud.damage import DAMAGE

#: Short name of a volume to its size in GiB.  Guests tell disks by size.  A
#: name may end with a colon and a number.
SIZES = {'root': 1, 'A': 2, 'B': 3, 'left-over': 4, 'other-root': 5, 'C': 6}
#: Volumes that a guest takes for the root, which is small and has its size:
#: QEMU copies only to a disk of the same size.
_LIKE = {'small': 'root', 'swapped': 'root'}

#: The attachments of a server that has lost the one of B.
HEALTHY = 'root:attached A:attached'

#: Where Python finds the hook that stops nova-compute at a point.
HOOKS = pathlib.Path(__file__).parent / 'hooks'


class Failed(AssertionError):
    """A difference between the actual and the expected state."""


Run = Callable[['Trial'], str]


@dataclasses.dataclass(frozen=True)
class Scenario:
    """The function of a trial, and its title in the table.

    A function builds its servers, breaks something and checks what must
    hold; it returns the words for its cell of the table.
    """

    name: str
    title: str
    run: Run
    #: Whether the outcome without the plugin is known and checked, too.
    stock: bool = False


class Suite(list[Scenario]):
    """Scenarios, in the order in which they run."""

    def add(self, title: str, stock: bool = False) -> Callable[[Run], Run]:
        """Add a function under its own name."""
        def register(function: Run) -> Run:
            self.append(Scenario(function.__name__.replace('_', '-'), title,
                                 function, stock))
            return function
        return register


@dataclasses.dataclass(frozen=True)
class ServerState:
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


class Trial(cloud_mod.Cloud):
    """The operations and checks of one scenario.

    It has the operations of :mod:`nova_bdm_cleanup.tests.cloud.damage`; a
    volume has a short name.

    :param plugin: whether the plugin is enabled in this trial
    """

    hosts: Sequence[str] = (lab_mod.HOST,)
    #: User and project that own none of the servers.
    other_user = api.ADMIN

    def __init__(self, stack: stack_mod.Stack, plugin: bool) -> None:
        super().__init__(stack)
        self.plugin = plugin
        self.backend = stack.lab.backend
        self.compute = plugin_mod.Compute(stack)
        self.client = client.Client(stack.lab)
        self.logs = logs_mod.Logs(stack.lab)
        self.volumes: dict[str, str] = {}
        #: The other server that now has B.
        self.other: str | None = None

    # -- creating ----------------------------------------------------------

    def volume(self, name: str, multiattach: bool = False) -> str:
        self.volumes[name] = self.create_volume(
            name, SIZES[_LIKE.get(name, name.partition(':')[0])],
            bootable='root' in name,
            multiattach=multiattach)
        return name

    def server(self, *disks: str, root: str = 'root',
               on: str = lab_mod.HOST) -> str:
        """Boot a server with these volumes, all visible in its guest.

        :param on: its host, where there are several
        """
        for name in (root, *disks):
            if name not in self.volumes:
                self.volume(name)
        server = self.boot(
            f'{root}-{"-".join(disks)}', self.volumes[root],
            tuple(self.volumes[name] for name in disks))
        self.logs.mark()
        return server

    def rescue_image(self) -> str:
        """Create an image that can rescue a volume-backed server."""
        made = api.call('image', 'POST', '/v2/images', {
            'name': 'rescue', 'disk_format': 'raw',
            'container_format': 'bare', 'visibility': 'public',
            'hw_rescue_bus': 'virtio', 'hw_rescue_device': 'disk',
        }, who=api.ADMIN)
        api.call('image', 'PUT', f'/v2/images/{made["id"]}/file',
                 data=guest.boot_sector(), who=api.ADMIN,
                 headers={'Content-Type': 'application/octet-stream'})
        return str(made['id'])

    def image_server(self) -> str:
        """Boot a server whose root disk is not a volume."""
        server = self.boot_from('image', identity.LOCAL_FLAVOR,
                                {'imageRef': self.rescue_image()})
        self.logs.mark()
        return server

    def stop(self, server: str) -> None:
        self.action(server, {'os-stop': None})
        self.equal('status', self.wait_server(server), 'SHUTOFF')

    def start(self, server: str) -> None:
        self.action(server, {'os-start': None})
        self.wait_server(server)

    def restart(self, **options: dict[str, str]) -> None:
        """Restart nova-compute with these additional options."""
        self.compute.restart(self.plugin, options)
        self.logs.mark()

    # -- changes without Nova ----------------------------------------------

    def damage(self, server: str, name: str) -> str:
        """Damage B, or the root; return the volume concerned."""
        damage = DAMAGE[name]
        volume = 'root' if damage.is_root else 'B'
        return damage.inflict(self, server, volume) or volume

    def damaged(self, *names: str) -> str:
        """Boot a server with disks A and B, and do this damage to it."""
        server = self.server('A', 'B')
        for name in names:
            self.damage(server, name)
        return server

    def damaged_in_error(self) -> str:
        """Delete the volume; let a reboot without the plugin fail."""
        server = self.damaged('volume-deleted')
        self.compute.restart(plugin=False)
        self.reboot(server)
        self.expect(server, 'ERROR', 'root A B', attachments=HEALTHY,
                    off=True)
        self.compute.restart(self.plugin)
        return server

    def lose_attachment(self, server: str, volume: str) -> None:
        self.delete_attachment(self.attachment_of(server, volume))

    def lose_volume(self, server: str, volume: str) -> None:
        self.lose_attachment(server, volume)
        self.delete_volume(self.volumes[volume])

    def reset_status(self, volume: str) -> None:
        self.reset_volume(self.volumes[volume], 'available')

    def attach_elsewhere(self, server: str, volume: str, host: str) -> str:
        self.lose_attachment(server, volume)
        shown = self.show_server(server)
        if (self.backend == 'loop' and shown['status'] != 'SHUTOFF'
                and shown['OS-EXT-SRV-ATTR:host'] == host):
            # QEMU's lock on the device keeps the other server from starting
            # while this one has the disk open: stop it for a moment.
            self.stop(server)
        self.other = self.server(volume, root='other-root', on=host)
        return self.other

    def transfer_volume(self, volume: str, to: tuple[str, str]) -> None:
        self.transfer(self.volumes[volume], to)

    def create_attachment(self, server: str, volume: str,
                          connected: bool = True) -> str:
        return self.add_attachment(server, self.volumes[volume], connected)

    # -- stopping nova-compute at a point ----------------------------------

    def stop_at(self, point: str, action: str,
                at_start: bool = False) -> None:
        """Restart nova-compute so that it stops where ``point`` says.

        :param point: ``module:Class.method:before`` or ``:after``
        :param action: ``kill`` or ``pause``
        :param at_start: it reaches the point before it serves requests
        """
        environment = self.environment_to_stop(point, action)
        self.compute.stop()
        self.compute.configure(self.plugin, self.compute.extra)
        self.logs.mark()
        if at_start:
            self.stack.start('nova-compute', environment)
        else:
            self.compute.start(environment)

    def environment_to_stop(self, point: str, action: str) -> dict[str, str]:
        """Return what has a nova-compute stop at a point."""
        for name in ('reached', 'go'):
            (self.lab.run / name).unlink(missing_ok=True)
        return {'PYTHONPATH': str(HOOKS), 'E2E_POINT': point,
                'E2E_ACTION': action, 'E2E_SIGNALS': str(self.lab.run)}

    def wait_killed(self, name: str = 'nova-compute') -> None:
        """Wait until nova-compute has killed itself at its point."""
        processes.wait_until(
            lambda: not self.stack.procs.is_running(name),
            'SIGKILL of nova-compute', pause=0.1)

    def wait_paused(self) -> None:
        """Wait until nova-compute pauses at its point."""
        processes.wait_until((self.lab.run / 'reached').exists,
                             'nova-compute to pause', pause=0.1)

    def kill_in_reboot(self, server: str, point: str) -> None:
        """Hard-reboot a server, and kill nova-compute at a point."""
        self.stop_at(point, 'kill')
        self.request_reboot(server)
        self.wait_killed()

    def pause_in_reboot(self, server: str, point: str) -> None:
        """Hard-reboot a server, and pause nova-compute at a point.

        It goes on after :meth:`let_continue`.
        """
        self.stop_at(point, 'pause')
        self.request_reboot(server)
        self.wait_paused()

    def let_continue(self) -> None:
        (self.lab.run / 'go').touch()

    @contextlib.contextmanager
    def without_cinder(self) -> Iterator[None]:
        """Kill cinder-api, and start it again at the end."""
        self.stack.procs.kill('cinder-api')
        try:
            yield
        finally:
            self.stack.start('cinder-api')
            processes.wait_until(
                lambda: self.show_volume(self.volumes['root']), 'cinder-api')

    # -- reading the state -------------------------------------------------

    def short_name(self, volume: Any) -> str:
        """Return the name of a volume by its id."""
        return next((name for name, known in self.volumes.items()
                     if known == volume), str(volume))

    def state_of(self, server: str) -> ServerState:
        shown = self.show_server(server)
        running = self.domain(server)
        return ServerState(
            status=shown['status'],
            bdms=tuple(sorted(map(
                self.short_name, database.mapped_volumes(server)))),
            attachments=tuple(sorted(
                f'{self.short_name(one["volume_id"])}:{one["status"]}'
                for one in self.attachments(server))),
            domain=running,
            guest=self.guest(server) if running is not None else None,
        )

    def domain(self, server: str) -> tuple[str, ...] | None:
        _, uri = self.location_of(server)
        state = stack_mod.virsh('domstate', server, uri=uri)
        if state is None or state.strip() != 'running':
            return None
        xml = stack_mod.virsh('dumpxml', server, uri=uri) or ''
        return tuple(sorted(self.short_name(serial) for serial in re.findall(
            r'<serial>([0-9a-f-]{36})</serial>', xml)))

    def guest(self, server: str) -> tuple[str, ...] | None:
        disks = self.guest_disks(server)
        if disks is None:
            return None
        names = {size: name for name, size in SIZES.items()}
        return tuple(sorted(names.get(size, f'{size} GiB') for size in disks))

    def traces_on_host(self, name: str) -> list[str]:
        """Return the traces of a volume on this machine."""
        volume = self.volumes[name]
        if self.lab.is_rbd():
            return ['watcher'] * self.stack.ceph.watchers(volume)
        left = self._loop_devices(volume)
        # A link to a device that is gone is one, too.
        left += [path.name for path in self.lab.volumes.iterdir()
                 if path.name.startswith(f'dev-{volume}-')]
        return left

    def _loop_devices(self, volume: str) -> list[str]:
        return [device for device, path
                in stack_mod.loop_devices(self.lab).items() if volume in path]

    def guests_with(self, name: str) -> int:
        """Return how many guests have a volume open."""
        volume = self.volumes[name]
        if self.lab.is_rbd():
            return self.stack.ceph.watchers(volume)
        devices = self._loop_devices(volume)
        return sum(_has_open(process, devices)
                   for process in pathlib.Path('/proc').glob('[0-9]*'))

    # -- expected state ----------------------------------------------------

    def expect(self, server: str, status: str, disks: str,
               inside: str | None = None,
               attachments: str | None = None,
               off: bool = False) -> None:
        """Check that the server looks like this from all sides.

        :param disks: names of the volumes of its block device mappings
        :param inside: disks of its domain and its guest, where they differ
            from the mappings
        :param attachments: Cinder's attachments as ``name:status``; unless
            given, each mapping has one that is attached
        :param off: no guest may run
        """
        names = tuple(sorted(disks.split()))
        running: tuple[str, ...] | None = names
        if inside is not None:
            running = tuple(sorted(inside.split()))
        if off:
            running = None
        inside_names = running and tuple(sorted(
            _LIKE.get(name, name) for name in running))
        if not off:
            self.wait_guest(server, tuple(sorted(
                SIZES[name] for name in inside_names or ())))
        attached = tuple(f'{name}:attached' for name in names)
        if attachments is not None:
            attached = tuple(sorted(attachments.split()))
        wanted = ServerState(status=status, bdms=names, attachments=attached,
                             domain=running, guest=inside_names)
        seen = self.state_of(server)
        if seen != wanted:
            fault = self.show_server(server).get('fault', {})
            raise Failed(f'server is {seen}\n  expected {wanted}\n  '
                         f'fault: {fault.get("message")}')

    def expect_volume(self, name: str, status: str,
                      on_host: bool | None = None) -> None:
        """Check Cinder's status, ``gone`` for no such volume, and whether
        traces are left on the host.
        """
        seen = self.show_volume(self.volumes[name])
        self.equal(f'status of {name}', seen['status'] if seen else 'gone',
                   status)
        if on_host is not None:
            left = self.traces_on_host(name)
            self.equal(f'whether {name} is on the host ({left})', bool(left),
                       on_host)

    def expect_clean(self, server: str) -> None:
        """Check that the cleanup is finished, and nothing is left."""
        self.expect(server, 'ACTIVE', 'root A')
        for name in {'B', 'left-over'}.intersection(self.volumes):
            self.expect_volume(name, 'available', on_host=False)

    @staticmethod
    def equal(what: str, seen: Any, wanted: Any) -> None:
        if seen != wanted:
            raise Failed(f'{what}: {seen!r}, expected {wanted!r}')

    def expect_log_line(self, *words: str) -> None:
        """Check that the plugin has logged a line with these words."""
        if not any(all(word in line for word in words)
                   for line in self.log_lines()):
            raise Failed(f'no log line with {words}; the log lines:\n  '
                         + '\n  '.join(self.log_lines()))

    def plugin_files(self, pattern: str = '*') -> list[pathlib.Path]:
        """Return the files that the plugin keeps."""
        return [path for path in self.lab.nova_state.glob(
            f'bdm-cleanup/{pattern}') if path.is_file()]

    def log_lines(self) -> list[str]:
        return self.logs.lines('nova-compute', 'bdm-cleanup:')

    def expect_no_removal(self) -> None:
        lines = [one for one in self.log_lines() if 'event=removed' in one]
        self.equal('removals in the log', lines, [])

    def expect_order(self, server: str, name: str,
                     attachment: str | None = None) -> None:
        """Check the order of the four steps of a cleanup.

        Read from Nova's libvirt driver, Nova's database and Cinder's API;
        only the plugin's own journal tells when the host was disconnected.
        An attachment that was gone before has no last step.
        """
        volume = self.volumes[name]
        steps = [
            ('guest off', self.logs.first_time(
                'nova-compute', server, 'Instance destroyed successfully')),
            ('row deleted', database.mapping_deleted_at(server, volume)),
        ]
        if attachment is not None:
            steps.append(('attachment deleted', self.logs.first_time(
                'cinder-api', 'DELETE', f'/attachments/{attachment}')))
        missing = [what for what, when in steps if when is None]
        if missing:
            raise Failed(f'not logged: {missing}; the log lines:\n  '
                         + '\n  '.join(self.log_lines()))
        times = [when for _, when in steps]
        if times != sorted(times):  # type: ignore[type-var]
            raise Failed(f'wrong order: {steps}')
        self._expect_recorded_order(server, volume)

    def _expect_recorded_order(self, server: str, volume: str) -> None:
        *_, entry = self.client.host(
            'journal', 'list', '--json', '--server', server).rows
        order = ('disconnect', 'destroy', 'delete-attachment')
        seen = [step['name'] for step in entry['steps']
                if step['name'] in order
                and step['subject'].get('volume') == volume]
        self.equal('recorded steps', seen,
                   sorted(seen, key=order.index))
        self.equal('first recorded step', seen[:2], ['disconnect', 'destroy'])

    def attachment_of(self, server: str, name: str) -> str:
        """Return the id of Cinder's attachment of the volume to the server."""
        ids = [one['id'] for one in self.attachments(server)
               if one['volume_id'] == self.volumes[name]]
        self.equal(f'attachments of {name}', len(ids), 1)
        return str(ids[0])


def _has_open(process: pathlib.Path, files: Collection[str]) -> bool:
    """Return whether a process, as /proc shows it, has a file open."""
    try:
        return any(os.path.realpath(descriptor) in files
                   for descriptor in (process / 'fd').iterdir())
    except OSError:  # it has ended
        return False
