# SPDX-License-Identifier: Apache-2.0
"""What people, Nova, Cinder and neighbours do, in the steps of the real ones.

Nova's API does its part in a process of its own and leaves the rest to the
nova-compute of the server's host, which does it under the server's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
import contextlib
import json
from typing import Any

from nova import exception
from nova.compute import instance_actions, task_states, vm_states

from nova_bdm_cleanup.plugin import sweeping
from nova_bdm_cleanup.plugin.node import NovaNode
from nova_bdm_cleanup.tests.simulation import cinder as model, properties
from nova_bdm_cleanup.tests.simulation.compute import HostFailure, Manager26
from nova_bdm_cleanup.tests.simulation.nova import Context, Instance, RowObject
from nova_bdm_cleanup.tests.simulation.world import (
    COMPUTE,
    connection,
    HERE,
    hours_ago,
    OTHER_COMPUTE,
    Row,
    Server,
    ServerAction,
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


def _takes(server: Server, *states: str) -> bool:
    """Whether Nova's API does what the owner of a server asks for."""
    return (server.locked_by is None and server.task_state is None
            and server.vm_state in states)


class Cloud:
    """Nova, Cinder and those who use them.

    :param world: the model
    :param here: Nova on this host
    :param there: Nova on the other one
    """

    def __init__(self, world: World, here: Manager26,
                 there: Manager26) -> None:
        self.world = world
        self.manager = here
        self._other = there
        world.scheduler.on_kill = self._on_kill

    def begin(self, name: str, func: Callable[..., object], *arguments: Any,
              process: str = API) -> None:
        """Somebody begins with something."""
        self.world.scheduler.spawn(name, process, lambda: func(*arguments))

    def _cast(self, name: str, host: str,
              func: Callable[[], object]) -> None:
        """Leave something to a nova-compute; it may be starting just now."""
        world = self.world

        def carry_out() -> None:
            world.scheduler.sees('up')
            if host == HERE and not world.is_up:
                world.scheduler.wait('for nova-compute', lambda: world.is_up)
            func()

        world.scheduler.spawn(
            name, COMPUTE if host == HERE else OTHER_COMPUTE, carry_out)

    def _manager(self, host: str) -> Manager26:
        return self.manager if host == HERE else self._other

    def _instance(self, server: str) -> Instance:
        return Instance(self.world, self.world.server(server))

    # nova-compute

    def _on_kill(self, process: str) -> None:
        """Guests live on; what the process had in memory is gone."""
        if not self.world.scheduler.was_cleaning:
            self.world.died_in_nova = True
        if any(s.task_state in _MOVING for s in self.world.servers.values()):
            self.world.died_in_move = self.world.may_refuse = True
        self.world.forget_memory()
        sweeping._sweeps.clear()
        self.begin('nova-compute, again', self.start_compute, process=COMPUTE)

    def start_compute(self) -> None:
        self.manager.init_host()
        self.world.scheduler.changes('up')
        self.world.is_up = True

    def lose_power(self) -> None:
        """The host goes down, and comes up without guests and devices."""
        here = self.world.hosts[HERE]
        here.devices.clear()
        for guest in here.guests.values():
            guest.is_running = False
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
        instance = self._instance(server)
        self._cast(f'{how.lower()} reboot of {server}', there.host, lambda:
                   self._manager(there.host).reboot_instance(
                       Context(world), instance, how))

    def start(self, server: str) -> None:
        world = self.world
        world.step(f'asks to start {server}')
        there = world.server(server)
        if not _takes(there, vm_states.STOPPED):
            return
        world.change_server(server, task_state=task_states.POWERING_ON)
        instance = self._instance(server)
        self._cast(f'start of {server}', there.host, lambda: self._manager(
            there.host).start_instance(Context(world), instance))

    def sweep(self, server: str, seen: Iterable[tuple[str, str]]) -> None:
        """What the periodic task does for one server."""
        node = NovaNode(self.manager, Context(self.world))
        list(node.servers())
        told = set(seen)
        actor = self.world.scheduler.current
        assert actor is not None
        actor.local['swept'] = {uuid for uuid, _ in told}
        node.sweep(server, told)

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
        if not _takes(there, *_ATTACHING) or self._has_rows(server, volume):
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
        action = self._begins(server, instance_actions.ATTACH_VOLUME)
        self._cast(f'attach of {volume} to {server}', there.host,
                   lambda: self._attach(server, row, action))

    def _begins(self, server: str, kind: str) -> ServerAction:
        world = self.world
        action = ServerAction(world.serial(), server, kind, hours_ago(0))
        world.scheduler.changes('actions')
        world.actions.append(action)
        return action

    def _ends(self, action: ServerAction) -> None:
        self.world.scheduler.changes('actions')
        action.finish_time = hours_ago(0)

    def _has_rows(self, server: str, volume: str) -> bool:
        """Whether a mapping keeps Nova from attaching a volume."""
        found = self.world.rows_where(
            lambda row: row.volume_id == volume and not row.deleted)
        there = self.world.cinder.volumes.get(volume)
        return any(there is None or not there.multiattach
                   or row.instance_uuid == server for row in found)

    def _attach(self, server: str, row: RowObject,
                action: ServerAction) -> None:
        world, there = self.world, self.world.server(server)
        volume, host = row.volume_id, self.world.this_host
        manager = self._manager(host)
        world.busy.add(volume)
        with world.lock(server), world.lock('os-brick'):
            attachment = row.attachment_id
            world.step(f'has Cinder let {host} in to {volume}')
            try:
                number = world.cinder.connect(attachment, host)
                info = json.loads(connection(volume, number))
                manager.driver.attach_volume(None, info, there,
                                             row.device_name)
                row.save(connection_info=json.dumps(info))
                world.step(f'tells Cinder that {volume} is attached')
                world.cinder.complete(attachment)
            except (HostFailure, model.CinderError, exception.BDMNotFound):
                with contextlib.suppress(model.CinderError):
                    world.cinder.delete(attachment)
                row.destroy()
                action.result = 'Error'
            else:
                world.attached[server, volume] = True
                action.result = 'Success'
            self._ends(action)
        world.busy.discard(volume)

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
        world.scheduler.changes(f'server {server}')
        world.servers[server] = Server(
            server, host='', vm_state=vm_states.BUILDING,
            task_state=task_states.SCHEDULING)
        row = RowObject(world, world.add_row(
            server, volume, attachment_id=attachment))
        self._cast(f'build of {server}', host,
                   lambda: self._build(server, row, host))

    def _build(self, server: str, row: RowObject, host: str) -> None:
        world, volume = self.world, row.volume_id
        world.busy.add(volume)
        with world.lock(server):
            world.step(f'begins to build {server}')
            world.change_server(server, host=host, node=host,
                                task_state=task_states.BLOCK_DEVICE_MAPPING)
            with world.lock('os-brick'):
                world.step(f'has Cinder let {host} in to {volume}')
                info = json.loads(connection(volume, world.cinder.connect(
                    row.attachment_id, host)))
                row.save(connection_info=json.dumps(info))
                world.step(f'tells Cinder that {volume} is attached')
                world.cinder.complete(row.attachment_id)
            self._manager(host).driver.power_on(
                self._instance(server), [(row.device_name, info)])
            world.step(f'{server} is made')
            world.change_server(server, vm_state=vm_states.ACTIVE,
                                task_state=None)
        world.busy.discard(volume)

    def detach(self, server: str, volume: str) -> None:
        """``openstack server remove volume``."""
        world, there = self.world, self.world.server(server)
        world.step(f'asks to detach {volume} from {server}')
        row = world.row_of(server, volume)
        if row is None or not _takes(there, *_ATTACHING):
            return
        try:
            world.cinder.begin_detaching(volume)
        except model.CinderError:
            return
        self._cast(f'detach of {volume} from {server}', there.host,
                   lambda: self._detach(server, volume))

    def _detach(self, server: str, volume: str) -> None:
        world, there = self.world, self.world.server(server)
        world.busy.add(volume)
        with world.lock(server), world.lock('os-brick'):
            world.step(f'reads the row of {volume}')
            row = world.row_of(server, volume)
            if row is not None and row.connection_info is not None:
                self._manager(world.this_host).driver.detach_volume(
                    None, json.loads(row.connection_info), there,
                    row.device_name)
                world.step(f'has Cinder delete {row.attachment_id}')
                with contextlib.suppress(model.CinderError):
                    world.cinder.delete(row.attachment_id or '')
                world.attached[server, volume] = False
                RowObject(world, row).destroy()
        world.busy.discard(volume)

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
        action = self._begins(server, instance_actions.SWAP_VOLUME)
        self._cast(f'swap of {old} for {new}', there.host,
                   lambda: self._swap(server, old, new, attachment, action))

    def _swap(self, server: str, old: str, new: str, attachment: str,
              action: ServerAction) -> None:
        world, there = self.world, self.world.server(server)
        world.busy |= {old, new}
        with world.lock(server):
            world.step(f'reads the row of {old}')
            row = world.row_of(server, old)
            action.result = 'Error'
            if row is not None and row.connection_info is not None:
                self._swap_disk(there, row, new, attachment)
                action.result = 'Success'
            self._ends(action)
        world.busy -= {old, new}

    def _swap_disk(self, there: Server, row: Row, new: str,
                   attachment: str) -> None:
        world, server = self.world, there.uuid
        world.step(f'has Cinder let {there.host} in to {new}')
        number = world.cinder.connect(attachment, there.host)
        info = json.loads(connection(new, number))
        former = row.attachment_id or ''
        try:
            self._manager(there.host).driver.swap_volume(
                None, json.loads(row.connection_info or ''), info, there,
                row.device_name)
        except HostFailure:
            # The guest has just been switched off, or never had the disk.
            world.step(f'gives up the swap for {new}')
            world.cinder.roll_detaching(row.volume_id or '')
            world.cinder.delete(attachment)
            return
        world.step(f'tells Cinder that {new} is attached')
        world.cinder.complete(attachment)
        world.step(f'has Cinder delete {former}')
        world.cinder.delete(former)
        RowObject(world, row).save(
            volume_id=new, attachment_id=attachment,
            connection_info=json.dumps(info))
        world.attached[server, new] = True

    # Moves of a neighbour

    def move_in(self, server: str) -> None:
        """A live migration to this host, as far as disks matter."""
        self._move(server, THERE, HERE)

    def move_out(self, server: str) -> None:
        self._move(server, HERE, THERE)

    def _move(self, server: str, source: str, target: str) -> None:
        world, there = self.world, self.world.server(server)
        world.step(f'asks to migrate {server} to {target}')
        if there.task_state is not None:
            return
        world.change_server(server, task_state=task_states.MIGRATING)
        self.carry_over(server, source, target)

    def carry_over(self, server: str, source: str, target: str) -> None:
        """Have a guest go on on another host."""
        world = self.world
        world.scheduler.changes('migrations')
        world.migrations[server] = source, target
        former = {}
        for row in world.volumes_of(server):
            volume = row.volume_id or ''
            world.step(f'connects {volume} on {target}')
            properties.moving_alive(world, server, volume)
            attachment = world.cinder.create(volume, server, target)
            number = world.cinder.attachments[attachment].number or 0
            world.scheduler.changes(f'units of {target}')
            world.hosts[target].devices.setdefault(number, set()).add(server)
            former[row.uuid] = row.attachment_id, row.number
            RowObject(world, row).save(
                attachment_id=attachment,
                connection_info=connection(volume, number))
            world.cinder.complete(attachment)
        world.step(f'the guest of {server} goes on on {target}')
        world.scheduler.changes('guests', f'guest of {server}')
        guest = world.hosts[source].guests.pop(server)
        for row in world.volumes_of(server):
            guest.disks[row.device_name].number = row.number or 0
        world.hosts[target].guests[server] = guest
        for row in world.volumes_of(server):
            attachment, number = former[row.uuid]
            world.step(f'disconnects {row.volume_id} on {source}')
            world.scheduler.changes(f'units of {source}')
            world.hosts[source].devices.pop(number, None)
            with contextlib.suppress(model.NotFound):
                world.cinder.delete(attachment or '')
        world.step(f'{server} is on {target} now')
        world.change_server(server, host=target, node=target, task_state=None)
        world.allocate(server, target)
        world.scheduler.changes('migrations')
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
        self._manager(there.host).reboot_instance(
            Context(self.world), self._instance(server), 'HARD')

