# SPDX-License-Identifier: Apache-2.0
"""Call sequences for Nova, run by the model and by a real Nova.

The model uses the operations of the search.  The plugin is on neither side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import json
import time
from typing import Any
from unittest import mock

from cinderclient import exceptions as cinder_exceptions
from nova.compute import power_state, task_states, vm_states
from nova.virt.libvirt import driver

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.simulation import (
    compute_moves,
    move_operations,
    properties,
    world as worlds,
)
from nova_bdm_cleanup.tests.simulation.scheduler import Scheduler

#: Two servers of one host with their volumes, and an available volume.
SERVER, NEIGHBOUR = 'server', 'neighbour'
SERVERS: Mapping[str, str] = {SERVER: 'S', NEIGHBOUR: 'N'}
FREE = 'F'

#: Names of the hosts in the model, by their real names.
HOSTS: Mapping[str, str] = {
    'compute1': worlds.HERE, 'compute2': worlds.THERE}

Call = tuple[str, ...]

#: nova-compute was killed in a reboot, after it began and before.
_CRASH_IN_REBOOT: Call = ('crash', SERVER, task_states.REBOOT_PENDING_HARD)
_CRASH_BEFORE_REBOOT: Call = ('crash', SERVER, task_states.REBOOTING_HARD)


@dataclasses.dataclass(frozen=True)
class Server:
    """State of a server."""

    host: str
    vm_state: str
    task_state: str | None
    power_state: int
    locked_by: str | None
    is_running: bool
    #: By volume: the device, the attachment's status in Cinder, and whether
    #: the mapping has connection info.
    rows: Mapping[str | None, tuple[str, str | None, bool]]
    #: Volumes by device.
    disks: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class State:
    """State of all servers, volumes and hosts."""

    servers: Mapping[str, Server]
    #: Status and attachments (server, status and host) of each volume.
    volumes: Mapping[str, tuple[str, Sequence[tuple[str, ...]]]]
    #: The volumes that each host has a device of.
    devices: Mapping[str, frozenset[str]]

    def parts(self) -> list[tuple[str, object]]:
        """Return the state of each server, volume and host, sorted by name."""
        parts: Sequence[Mapping[str, object]] = (
            self.servers, self.volumes, self.devices)
        return [item for part in parts for item in sorted(
            part.items(), key=lambda item: item[0])]


#: Call sequences by their subject.
SEQUENCES: Mapping[str, Sequence[Call]] = {
    'nova-compute restarts': [
        _CRASH_IN_REBOOT, ('attach', SERVER, 'F'), ('soft_reboot', SERVER),
        ('restart',), ('attach', SERVER, 'F'), ('lose_power',), ('restart',),
        _CRASH_IN_REBOOT, ('reboot', SERVER),
        ('reset_task_state', SERVER), ('reboot', SERVER),
        ('stop', NEIGHBOUR), ('lose_power',), _CRASH_IN_REBOOT, ('restart',),
        _CRASH_BEFORE_REBOOT, ('restart',),
        _CRASH_BEFORE_REBOOT, ('lose_power',), ('restart',)],
    'attach, detach, swap and refusals': [
        ('attach', SERVER, 'F'), ('attach', SERVER, 'F'),
        ('attach', NEIGHBOUR, 'F'), ('reboot', SERVER),
        ('soft_reboot', SERVER), ('detach', NEIGHBOUR, 'F'),
        ('detach', SERVER, 'S'), ('detach', SERVER, 'S'),
        ('attach', SERVER, 'S'),
        ('detach', SERVER, 'F'), ('swap', SERVER, 'S', 'N'),
        ('swap', SERVER, 'S', 'F'), ('reboot', SERVER),
        ('swap', SERVER, 'S', 'F'), ('attach', NEIGHBOUR, 'S')],
    'operations on stopped and locked servers': [
        ('start', SERVER), ('stop', SERVER), ('soft_reboot', SERVER),
        ('swap', SERVER, 'S', 'F'), ('attach', SERVER, 'F'),
        ('detach', SERVER, 'F'), ('start', SERVER), ('stop', SERVER),
        ('reboot', SERVER), ('stop', SERVER), ('reset_task_state', SERVER),
        ('reboot', SERVER), ('lock', SERVER), ('reboot', SERVER),
        ('soft_reboot', SERVER), ('attach', SERVER, 'F'),
        ('detach', SERVER, 'S'),
        ('swap', SERVER, 'S', 'F'), ('stop', SERVER), ('unlock', SERVER),
        ('stop', SERVER), ('lock', SERVER), ('start', SERVER),
        ('unlock', SERVER), ('start', SERVER)],
    'changes in Cinder without Nova': [
        ('delete_attachments', 'S'), ('detach', SERVER, 'S'),
        ('attach', NEIGHBOUR, 'S'), ('attach', SERVER, 'S'),
        ('swap', SERVER, 'S', 'F'),
        ('swap', NEIGHBOUR, 'N', 'S'), ('transfer', 'S'),
        ('delete_volume', 'S'), ('detach', SERVER, 'S'),
        ('attach', NEIGHBOUR, 'S'), ('swap', SERVER, 'S', 'F')],
    'set to available by hand': [
        ('reset_status', 'S', 'available'), ('attach', NEIGHBOUR, 'S'),
        ('detach', SERVER, 'S'), ('delete_volume', 'S'), ('reboot', SERVER),
        ('reset_status', 'S', 'in-use'), ('detach', SERVER, 'S'),
        ('attach', NEIGHBOUR, 'S')],
    'moves, one of them reverted': [
        ('migrate', SERVER), ('reboot', SERVER), ('migrate', SERVER),
        ('confirm', SERVER), ('reboot', SERVER), ('migrate', SERVER),
        ('revert', SERVER), ('migrate', SERVER), ('confirm', SERVER),
        ('detach', SERVER, 'S')],
    'shelve and unshelve': [
        ('shelve', SERVER), ('start', SERVER), ('reboot', SERVER),
        ('migrate', SERVER), ('unshelve', SERVER), ('shelve', NEIGHBOUR),
        ('delete_attachments', 'N'), ('unshelve', NEIGHBOUR)],
    'moves with dangling mappings': [
        ('delete_attachments', 'S'), ('shelve', SERVER),
        ('delete_attachments', 'N'), ('delete_volume', 'N'),
        ('migrate', NEIGHBOUR)],
    'a live migration': [
        ('move_out', SERVER), ('attach', SERVER, 'F'), ('reboot', SERVER),
        ('move_in', SERVER), ('detach', SERVER, 'S')],
}


#: Names of server actions in the API.
_ACTIONS: Mapping[str, str] = {
    'confirm': 'confirmResize', 'revert': 'revertResize', 'shelve': 'shelve',
    'unshelve': 'unshelve', 'lock': 'lock', 'unlock': 'unlock'}
#: Calls that answer with nova-compute's failure, since casts are synchronous.
_SYNCHRONOUS = ('migrate', 'unshelve')


def _ignore_step(actor: str, step: str) -> None:
    pass


class Model:
    """Call sequences on the model of the search."""

    def __init__(self) -> None:
        self._scheduler = Scheduler({}, _ignore_step)
        self._world = worlds.World(self._scheduler)
        self._world.resumes_guests = True
        # The plugin is not installed.
        self._world.unchecked_properties = frozenset(properties.PROPERTIES)
        self._cloud = move_operations.Cloud(
            self._world, compute_moves.Manager34)
        for server, volume in SERVERS.items():
            self._world.add_server(server)
            self._world.add_disk(server, volume)
        self._world.cinder.create_volume(FREE, worlds.OWN_PROJECT)

    def call(self, name: str, *arguments: str) -> None:
        function = (getattr(self, f'_{name}', None)
                    or getattr(self._cloud, name))
        self._cloud.begin(name, function, *arguments)
        self._scheduler.run()

    def _soft_reboot(self, server: str) -> None:
        self._cloud.reboot(server, 'SOFT')

    def _stop(self, server: str) -> None:
        """Stop a server, without the steps of a stop."""
        record = self._world.server(server)
        if record.vm_state == vm_states.ACTIVE and record.locked_by is None:
            self._world.change_server(
                server, vm_state=vm_states.STOPPED,
                power_state=power_state.SHUTDOWN)
            self._world.hosts[record.host].guests[server].is_running = False

    def _unshelve(self, server: str) -> None:
        # The other host has more room.
        self._cloud.unshelve(server, worlds.THERE)

    def _reset_status(self, volume: str, status: str) -> None:
        self._world.cinder.reset_status(volume, status)

    def _delete_attachments(self, volume: str) -> None:
        for attachment in self._world.cinder.of_volume(volume):
            self._world.cinder.delete(attachment.id)

    def _transfer(self, volume: str) -> None:
        self._cloud.give_away(volume, 'other')

    def _crash(self, server: str, task_state: str) -> None:
        self._world.change_server(server, task_state=task_state)

    def _restart(self) -> None:
        self._world.lose_memory()
        self._cloud.start_compute()

    def state(self) -> State:
        record = self._world.cinder
        return State(
            {uuid: self._server(server)
             for uuid, server in self._world.servers.items()},
            {volume.id: (volume.status, sorted(
                (a.server or '', a.status, a.host or '')
                for a in record.of_volume(volume.id)))
             for volume in record.volumes.values()},
            {name: frozenset(self._volume(name, number)
                             for number in host.devices)
             for name, host in self._world.hosts.items()})

    def _volume(self, host: str, number: int) -> str:
        """Return the volume that a host reads, or has read, by a number."""
        return self._world.cinder.back_end.read(host, number) or next(
            (row.volume_id or '' for row in self._world.rows.values()
             if row.number == number), f'unit {number}')

    def _server(self, server: worlds.Server) -> Server:
        guest = self._world.hosts[server.host].guests.get(
            server.uuid, worlds.Guest()) if server.host else worlds.Guest()
        known = self._world.cinder.attachments
        return Server(
            server.host, server.vm_state, server.task_state,
            server.power_state, server.locked_by, guest.is_running,
            {row.volume_id: (
                row.device_name,
                known[row.attachment_id].status
                if row.attachment_id in known else None, row.is_connected)
             for row in self._world.volumes_of(server.uuid)},
            {name: self._volume(server.host, disk.number)
             for name, disk in guest.disks.items()})


def _copy(record: driver.LibvirtDriver, guest: Any, disk: str, conf: Any,
          resize_to: int) -> None:
    """Replace a disk; the fake libvirt cannot copy, and ends the guest."""
    guest.detach_device(guest.get_disk(disk), persistent=True)
    guest.attach_device(conf, persistent=True, live=True)


class Real:
    """Call sequences on a real Nova."""

    def __init__(self, cloud: fixture.Cloud) -> None:
        self._cloud = cloud
        self._servers = {
            name: cloud.server(fixture.Disk(at_boot=True), name=name,
                               host='compute1') for name in SERVERS}
        self._volumes = {FREE: cloud.volume()}
        for name, volume in SERVERS.items():
            self._volumes[volume], = self._servers[name].volumes
        self._names = {value: name for name, value in self._volumes.items()}
        self._uuids = {s.id: name for name, s in self._servers.items()}

    def call(self, name: str, *arguments: str) -> None:
        """Make a call; a refusal shows in the unchanged state."""
        given: list[Any] = [self._servers.get(a) or self._volumes.get(a, a)
                            for a in arguments]
        try:
            if name in _ACTIONS:
                self._act(given[0], _ACTIONS[name])
            else:
                (getattr(self, f'_{name}', None)
                 or getattr(self._cloud, name))(*given)
        except fixture.APIError as exc:
            # nova-compute has finished before the API answers.
            assert exc.status < 500 or name in _SYNCHRONOUS, exc
        except cinder_exceptions.ClientException as exc:
            assert exc.code < 500, exc

    def _act(self, server: fixture.Server, action: str,
             **values: Any) -> None:
        self._cloud.request(
            'POST', f'/servers/{server.id}/action', {action: values or None},
            by=self._cloud.admin if values or 'lock' in action else None)

    def _swap(self, server: fixture.Server, old: str, new: str) -> None:
        with mock.patch.object(driver.LibvirtDriver, '_swap_volume', _copy):
            self._cloud.swap(server, old, new)

    def _soft_reboot(self, server: fixture.Server) -> None:
        self._cloud.reboot(server, hard=False)

    def _migrate(self, server: fixture.Server) -> None:
        here = self._cloud.nova.instance(server.id).host
        self._act(server, 'migrate', host=next(
            host for host in HOSTS if host != here))

    def _reset_task_state(self, server: fixture.Server) -> None:
        self._act(server, 'os-resetState', state='active')

    def _delete_attachments(self, volume: str) -> None:
        for server in self._servers.values():
            self._cloud.lose_attachment(server, volume)

    def _transfer(self, volume: str) -> None:
        self._cloud.transfer_volume(volume, self._cloud.other_user)

    def _crash(self, server: fixture.Server, task_state: str) -> None:
        self._cloud.change(server, task_state=task_state)

    def _lose_power(self) -> None:
        for server in self._servers.values():
            self._cloud.lose_power(server)
        self._cloud.nova.connected['compute1'].clear()

    def _restart(self) -> None:
        self._cloud.restart_compute()

    def _move_out(self, server: fixture.Server) -> None:
        self._move(server, 'compute2')

    def _move_in(self, server: fixture.Server) -> None:
        self._move(server, 'compute1')

    def _move(self, server: fixture.Server, host: str) -> None:
        """Live-migrate a server, and wait for the end."""
        self._act(server, 'os-migrateLive', host=host,
                  block_migration='auto')
        until = time.monotonic() + fixture.TIMEOUT
        while self._cloud.nova.instance(server.id).task_state:
            assert time.monotonic() < until
            time.sleep(0.1)

    def state(self) -> State:
        # The API would need several requests of 50 ms each.
        with self._cloud.cinder.database() as database:
            record = dict(database.execute(
                'SELECT id, status FROM volumes WHERE NOT deleted'))
            attachments = database.execute(
                'SELECT id, volume_id, attach_status, instance_uuid, connector'
                ' FROM volume_attachment WHERE NOT deleted').fetchall()
        known = {attachment: status
                 for attachment, _, status, _, _ in attachments}
        return State(
            {name: self._server(server, known)
             for name, server in self._servers.items()},
            {name: (record[volume], sorted(
                (self._uuids[server], status,
                 HOSTS[json.loads(connector)['host']] if connector else '')
                for _, attached, status, server, connector in attachments
                if attached == volume))
             for name, volume in self._volumes.items() if volume in record},
            {name: frozenset(
                self._names[volume]
                for volume in self._cloud.nova.connected[host]
                if volume in self._names)
             for host, name in HOSTS.items()})

    def _server(self, server: fixture.Server, known: Mapping[str, str]
                ) -> Server:
        """Return the state of a server.

        :param known: status of each attachment in Cinder
        """
        instance = self._cloud.nova.instance(server.id)
        guest = instance.host and self._cloud.domain(
            dataclasses.replace(server, host=instance.host))
        return Server(
            HOSTS.get(instance.host, ''), instance.vm_state,
            instance.task_state, instance.power_state, instance.locked_by,
            bool(guest and guest.isActive()),
            {self._names[row.volume_id]: (
                row.device_name, known.get(row.attachment_id),
                row.connection_info is not None)
             for row in self._cloud.nova.block_devices(server.id)
             if row.volume_id and not row.deleted},
            {f'/dev/{disk.device}': self._names[disk.volume_id]
             for disk in fixture._disks(guest.XMLDesc(0)) if disk.volume_id}
            if guest else {})
