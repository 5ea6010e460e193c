# SPDX-License-Identifier: Apache-2.0
"""What people, Nova, Cinder and neighbours do, in the steps of the real ones.

Nova's API does its part in a process of its own and leaves the rest to the
nova-compute of the server's host, which does it under the server's lock.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
from typing import Any

from nova.compute import instance_actions, task_states, vm_states

from nova_bdm_cleanup.tests.simulation import cinder as model, properties
from nova_bdm_cleanup.tests.simulation.moving import Manager26
from nova_bdm_cleanup.tests.simulation.nova import Instance, RowObject
from nova_bdm_cleanup.tests.simulation.world import (
    COMPUTE,
    COMPUTES,
    connection,
    HERE,
    Server,
    THERE,
    World,
)

#: From which task states Nova's API takes a hard reboot.
REBOOTABLE = (None, task_states.REBOOTING, task_states.REBOOT_PENDING,
              task_states.REBOOT_STARTED, task_states.REBOOTING_HARD)
#: And from which states of the server.
_HARD = vm_states.ALLOW_HARD_REBOOT
#: From which it attaches and detaches, of those that there are here.
_ATTACHING = (vm_states.ACTIVE, vm_states.STOPPED)

#: The other processes.
API, CINDER = 'nova-api', 'cinder'


#: A server is on its way from a host, or to one.  Most of these Nova does not
#: take up when nova-compute starts again.
LEFT_ALONE = (
    task_states.SHELVING, task_states.SHELVING_OFFLOADING,
    task_states.UNSHELVING, task_states.SPAWNING, task_states.REBUILDING,
    task_states.REBUILD_BLOCK_DEVICE_MAPPING, task_states.REBUILD_SPAWNING,
    task_states.RESIZE_REVERTING, task_states.DELETING)
_MOVING = (*LEFT_ALONE, task_states.RESIZE_PREP, task_states.RESIZE_MIGRATING,
           task_states.RESIZE_MIGRATED, task_states.RESIZE_FINISH)


def takes(server: Server, *states: str) -> bool:
    """Whether Nova's API does what the owner of a server asks for."""
    return (server.locked_by is None and server.task_state is None
            and server.vm_state in states)


class Users:
    """Those who ask Nova and Cinder for something, and what these do.

    :param world: the model
    :param manager: Nova's ComputeManager, of which each host has one
    """

    def __init__(self, world: World, manager: type[Manager26]) -> None:
        self.world = world
        self.hosts = {host: manager(world, host) for host in COMPUTES}
        world.scheduler.on_kill = self._on_kill

    def begin(self, name: str, func: Callable[..., object], *arguments: Any,
              process: str = API) -> None:
        """Somebody begins with something."""
        self.world.scheduler.spawn(name, process, lambda: func(*arguments))

    def _cast(self, name: str, host: str, method: str,
              *arguments: Any) -> None:
        """Leave something to a nova-compute; it may be starting just now.

        :param host: none of a server that has just been shelved
        """
        world, host = self.world, host or THERE

        def carry_out() -> None:
            world.sees('up')
            if host == HERE and not world.is_up:
                world.scheduler.wait('for nova-compute', lambda: world.is_up)
            getattr(self.hosts[host], method)(*arguments)

        world.scheduler.spawn(name, COMPUTES[host], carry_out)

    def _instance(self, server: str) -> Instance:
        return Instance(self.world, self.world.server(server))

    # nova-compute

    def _on_kill(self) -> None:
        """Guests live on; what the process had in memory is gone."""
        if not self.world.scheduler.was_cleaning:
            self.world.died_in_nova = True
        if any(s.task_state in _MOVING for s in self.world.servers.values()):
            self.world.died_in_move = self.world.may_refuse = True
        self.world.forget_memory()
        self.begin('nova-compute, again', self.start_compute, process=COMPUTE)

    def start_compute(self) -> None:
        self.hosts[HERE].init_host()
        self.world.changes('up')
        self.world.is_up = True

    def lose_power(self, host: str = HERE) -> None:
        """A host goes down, and has no guests and devices when it is back."""
        there = self.world.hosts[host]
        there.devices.clear()
        for guest in there.guests.values():
            guest.is_running = False
        if host == HERE:
            self.world.forget_memory()

    # What users ask for

    def reboot(self, server: str, how: str = 'HARD') -> None:
        world = self.world
        world.step(f'asks for a {how.lower()} reboot of {server}')
        there = world.server(server)
        if (there.task_state not in REBOOTABLE or there.vm_state not in _HARD
                or there.locked_by is not None):
            return
        if how == 'SOFT' and (there.vm_state != vm_states.ACTIVE
                              or there.task_state is not None):
            return
        world.change_server(server, task_state=(
            task_states.REBOOTING if how == 'SOFT'
            else task_states.REBOOTING_HARD))
        self._cast(f'{how.lower()} reboot of {server}', there.host,
                   'reboot_instance', self._instance(server), how)

    def start(self, server: str) -> None:
        world = self.world
        world.step(f'asks to start {server}')
        there = world.server(server)
        if not takes(there, vm_states.STOPPED):
            return
        world.change_server(server, task_state=task_states.POWERING_ON)
        self._cast(f'start of {server}', there.host, 'start_instance',
                   self._instance(server))

    def reset_task_state(self, server: str) -> None:
        """``nova reset-state --active`` by an administrator."""
        self.world.step(f'resets the state of {server}')
        self.world.change_server(server, vm_state=vm_states.ACTIVE,
                                 task_state=None)

    def lock(self, server: str) -> None:
        self.world.step(f'locks {server} as an administrator')
        self.world.change_server(server, locked_by='admin')

    def unlock(self, server: str) -> None:
        self.world.step(f'unlocks {server}')
        self.world.change_server(server, locked_by=None)

    def lock_and_unlock(self, server: str) -> None:
        self.lock(server)
        self.unlock(server)

    # Attaching and detaching

    def attach(self, server: str, volume: str) -> None:
        """``openstack server add volume``."""
        world, there = self.world, self.world.server(server)
        world.step(f'asks to attach {volume} to {server}')
        if not takes(there, *_ATTACHING) or self._has_rows(server, volume):
            return
        # nova-compute finds the name, while the API waits for it.
        with world.lock(server, host=there.host):
            world.step(f'makes a row of {volume} for {server}')
            if world.row_of(server, volume):
                return
            made = world.add_row(server, volume)
        row = RowObject(world, made)
        world.step(f'reserves {volume} for {server}')
        try:
            attachment = world.cinder.reserve(volume, server)
        except model.CinderError:
            row.destroy()
            return
        row.save(attachment_id=attachment)
        self._cast(f'attach of {volume} to {server}', there.host,
                   'attach_volume', server, row, world.begin_action(
                       server, instance_actions.ATTACH_VOLUME))

    def _has_rows(self, server: str, volume: str) -> bool:
        """Whether a mapping keeps Nova from attaching a volume."""
        found = self.world.rows_where(
            lambda row: row.volume_id == volume and not row.deleted)
        there = self.world.cinder.volumes.get(volume)
        return any(there is None or not there.multiattach
                   or row.instance_uuid == server for row in found)

    def make_server(self, server: str, volume: str, host: str) -> None:
        """``openstack server create`` with a volume that is there.

        For this Nova does not ask whether another server lists the volume.
        """
        world = self.world
        world.step(f'asks for server {server} with {volume}')
        try:
            attachment = world.cinder.reserve(volume, server)
        except model.CinderError:
            return
        world.changes(f'server {server}')
        world.servers[server] = Server(
            server, host='', vm_state=vm_states.BUILDING,
            task_state=task_states.SCHEDULING)
        row = RowObject(world, world.add_row(
            server, volume, attachment_id=attachment))
        self._cast(f'build of {server}', host, 'build_instance',
                   self._instance(server), row)

    def detach(self, server: str, volume: str) -> None:
        """``openstack server remove volume``."""
        world, there = self.world, self.world.server(server)
        world.step(f'asks to detach {volume} from {server}')
        row = world.row_of(server, volume)
        if row is None or not takes(there, *_ATTACHING):
            return
        try:
            world.cinder.begin_detaching(volume)
        except model.CinderError:
            return
        self._cast(f'detach of {volume} from {server}', there.host,
                   'detach_volume', server, volume)

    def swap(self, server: str, old: str, new: str) -> None:
        """``PUT /servers/X/os-volume_attachments/OLD``."""
        world, there = self.world, self.world.server(server)
        world.step(f'asks to swap {old} of {server} for {new}')
        row = world.row_of(server, old)
        # An administrator asks for it, or Cinder as one: no lock matters.
        if (row is None or there.task_state is not None
                or there.vm_state != vm_states.ACTIVE
                or self._has_rows(server, new)):
            return
        try:
            world.cinder.begin_detaching(old)
        except model.CinderError:
            return
        world.step(f'reserves {new} for {server}')
        try:
            attachment = world.cinder.reserve(new, server)
        except model.CinderError:
            world.cinder.roll_detaching(old)
            return
        self._cast(f'swap of {old} for {new}', there.host, 'swap_volume',
                   server, old, new, attachment, world.begin_action(
                       server, instance_actions.SWAP_VOLUME))

    # Moves of a neighbour

    def move_in(self, server: str) -> None:
        self._move(server, THERE, HERE)

    def move_out(self, server: str) -> None:
        self._move(server, HERE, THERE)

    def _move(self, server: str, source: str, target: str) -> None:
        """A live migration, as far as disks matter."""
        world, there = self.world, self.world.server(server)
        world.step(f'asks to migrate {server} to {target}')
        if there.task_state is not None:
            return
        world.change_server(server, task_state=task_states.MIGRATING)
        self.carry_over(server, source, target)

    def carry_over(self, server: str, source: str, target: str) -> None:
        """Have a guest go on on another host."""
        world = self.world
        world.changes('migrations')
        world.migrations[server] = source, target
        former = {}
        for row in world.volumes_of(server):
            volume = row.volume_id
            world.step(f'connects {volume} on {target}')
            properties.moving_alive(world, server, volume)
            attachment = world.cinder.create(volume, server, target)
            number = world.cinder.attachments[attachment].number
            world.changes(f'units of {target}')
            world.hosts[target].devices.setdefault(number, set()).add(server)
            former[row.uuid] = row.attachment_id, row.number
            RowObject(world, row).save(
                attachment_id=attachment,
                connection_info=connection(volume, number))
            world.cinder.complete(attachment)
        world.step(f'the guest of {server} goes on on {target}')
        world.changes('guests', f'guest of {server}')
        guest = world.hosts[source].guests.pop(server)
        for row in world.volumes_of(server):
            guest.disks[row.device_name].number = row.number
        world.hosts[target].guests[server] = guest
        for row in world.volumes_of(server):
            attachment, number = former[row.uuid]
            world.step(f'disconnects {row.volume_id} on {source}')
            world.changes(f'units of {source}')
            world.hosts[source].devices.pop(number, None)
            with contextlib.suppress(model.NotFound):
                world.cinder.delete(attachment)
        world.step(f'{server} is on {target} now')
        world.change_server(server, host=target, task_state=None)
        world.allocate(server, target)
        world.changes('migrations')
        del world.migrations[server]

    # What happens to volumes without Nova

    def delete_volume(self, volume: str) -> None:
        world = self.world
        world.step(f'deletes volume {volume}')
        with contextlib.suppress(model.CinderError):
            world.cinder.begin_deleting(volume)
            world.step(f'volume {volume} is gone')
            world.cinder.delete_volume(volume)

    def give_away(self, volume: str, project: str) -> None:
        self.world.step(f'gives volume {volume} to {project}')
        with contextlib.suppress(model.CinderError):
            self.world.cinder.transfer(volume, project)

    def reset_to_in_use(self, volume: str) -> None:
        """An administrator mends the state of a volume."""
        self.world.step(f'resets {volume} to in-use')
        with contextlib.suppress(model.CinderError):
            self.world.cinder.reset_status(volume, 'in-use')

    def force_detach(self, volume: str, attachment: str) -> None:
        self.world.step(f'forces {attachment} off')
        with contextlib.suppress(model.CinderError):
            self.world.cinder.force_detach(volume, attachment, HERE)

    def write_attachment(self, volume: str, server: str,
                         host: str | None = None) -> None:
        """A tenant makes an attachment of his own volume for any server."""
        world = self.world
        world.step(f'writes an attachment of {volume} for {server}')
        world.disturbed.add(volume)
        with contextlib.suppress(model.CinderError):
            attachment = world.cinder.reserve(volume, server)
            if host:
                world.step(f'gives it a connector of {host}')
                world.cinder.connect(attachment, host)

    # How it ends

    def quiet_reboot(self, server: str) -> None:
        """Nothing else happens, and the owner reboots once more."""
        there = self.world.server(server)
        if self.world.died_in_nova and there.vm_state == vm_states.ERROR:
            # Nova takes up nothing of such a server: an administrator does.
            self.world.change_server(server, task_state=None)
        if there.task_state not in REBOOTABLE or there.vm_state not in _HARD:
            self.world.broken('can-be-rebooted-again', f'{server} is '
                              f'{there.vm_state}, {there.task_state}')
        self.world.change_server(
            server, task_state=task_states.REBOOTING_HARD)
        self.hosts[there.host].reboot_instance(
            self._instance(server), 'HARD')
