# SPDX-License-Identifier: Apache-2.0
"""Operations of users and administrators, in the steps of Nova's API.

The API does its part in a process of its own and casts the rest to the
nova-compute of the server's host, which does it under the server's lock.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import dataclasses
import datetime
from typing import Any

from nova.compute import instance_actions, task_states, vm_states

from nova_bdm_cleanup.tests.simulation import cinder as model
from nova_bdm_cleanup.tests.simulation.compute import HostFailure
from nova_bdm_cleanup.tests.simulation.compute_moves import Manager26
from nova_bdm_cleanup.tests.simulation.nova import (
    Context,
    Instance,
    Mappings,
    RowObject,
)
from nova_bdm_cleanup.tests.simulation.world import (
    COMPUTE,
    COMPUTES,
    connection,
    Disk,
    HERE,
    number_of,
    Server,
    THERE,
    World,
)

#: Task states in which Nova's API accepts a hard reboot.
REBOOTABLE = (None, task_states.REBOOTING, task_states.REBOOT_PENDING,
              task_states.REBOOT_STARTED, task_states.REBOOTING_HARD)
#: And its states of the server.
_REBOOTABLE_STATES = vm_states.ALLOW_HARD_REBOOT
#: States in which it attaches and detaches, of those in the model.
_ATTACHABLE_STATES = (vm_states.ACTIVE, vm_states.STOPPED)

#: Other processes.
API, CINDER = 'nova-api', 'cinder'


#: Task states of moves that Nova does not resume when nova-compute starts.
NOT_RESUMED = (
    task_states.SHELVING, task_states.SHELVING_OFFLOADING,
    task_states.UNSHELVING, task_states.SPAWNING, task_states.REBUILDING,
    task_states.REBUILD_BLOCK_DEVICE_MAPPING, task_states.REBUILD_SPAWNING,
    task_states.RESIZE_REVERTING, task_states.DELETING)
_MOVE_TASK_STATES = (
    *NOT_RESUMED, task_states.RESIZE_PREP, task_states.RESIZE_MIGRATING,
    task_states.RESIZE_MIGRATED, task_states.RESIZE_FINISH)


class Operations:
    """Operations on servers and volumes, without moves.

    :param world: the model
    :param manager: the class of Nova's ComputeManager
    """

    def __init__(self, world: World, manager: type[Manager26]) -> None:
        self.world = world
        self.hosts = {host: manager(world, host) for host in COMPUTES}
        world.scheduler.on_kill = self._on_kill

    def accepts(self, server: Server, *states: str) -> bool:
        """Return whether Nova's API accepts an operation on a server."""
        return (not self.is_locked(server) and server.task_state is None
                and server.vm_state in states)

    def _known(self, server: str) -> Server | None:
        """Return a server, unless it was deleted."""
        self.world.reads(f'server {server}')
        return self.world.servers.get(server)

    def is_locked(self, server: Server) -> bool:
        """Return whether a server is locked for the one who asks."""
        return server.locked_by is not None and not self.world.asked_by_admin

    def begin(self, name: str, func: Callable[..., object], *arguments: Any,
              process: str = API) -> None:
        """Start an actor."""
        self.world.scheduler.spawn(name, process, lambda: func(*arguments))

    def _cast(self, name: str, host: str, method: str,
              *arguments: Any) -> None:
        """Cast an operation to a nova-compute, which may be starting.

        :param host: empty for a server that was just shelved
        """
        world, host = self.world, host or THERE

        def carry_out() -> None:
            world.reads('up')
            if host == HERE and not world.is_up:
                world.scheduler.wait('for nova-compute', lambda: world.is_up)
            getattr(self.hosts[host], method)(*arguments)

        world.scheduler.spawn(name, COMPUTES[host], carry_out)

    def _instance(self, server: str) -> Instance:
        return Instance(self.world, self.world.server(server))

    # nova-compute

    def _on_kill(self) -> None:
        """Restart nova-compute; guests stay, its memory does not."""
        if not self.world.scheduler.was_cleaning:
            self.world.killed_in_nova = True
        if any(s.task_state in _MOVE_TASK_STATES
               for s in self.world.servers.values()):
            self.world.killed_in_move = self.world.may_keep = True
        self.world.lose_memory()
        self.begin('nova-compute, restarted', self.start_compute,
                   process=COMPUTE)

    def start_compute(self) -> None:
        self.hosts[HERE].init_host()
        self.world.changes('up')
        self.world.is_up = True

    def lose_power(self, host: str = HERE) -> None:
        """Power a host off: it loses its guests and devices."""
        host_state = self.world.hosts[host]
        host_state.devices.clear()
        self.world.notes[host].clear()
        for guest in host_state.guests.values():
            guest.is_running = False
        if host == HERE:
            self.world.lose_memory()

    # Reboot and start

    def reboot(self, server: str, how: str = 'HARD') -> None:
        world = self.world
        world.step(f'asks for a {how.lower()} reboot of {server}')
        record = self._known(server)
        if (record is None
                or record.task_state not in REBOOTABLE
                or record.vm_state not in _REBOOTABLE_STATES
                or self.is_locked(record)):
            return
        if how == 'SOFT' and (record.vm_state != vm_states.ACTIVE
                              or record.task_state is not None):
            return
        world.change_server(server, task_state=(
            task_states.REBOOTING if how == 'SOFT'
            else task_states.REBOOTING_HARD))
        self._cast(f'{how.lower()} reboot of {server}', record.host,
                   'reboot_instance', self._instance(server), how)

    def start(self, server: str) -> None:
        world = self.world
        world.step(f'asks to start {server}')
        record = self._known(server)
        if record is None or not self.accepts(record, vm_states.STOPPED):
            return
        world.change_server(server, task_state=task_states.POWERING_ON)
        self._cast(f'start of {server}', record.host, 'start_instance',
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
        world, record = self.world, self.world.server(server)
        world.step(f'asks to attach {volume} to {server}')
        if (not self.accepts(record, *_ATTACHABLE_STATES)
                or self._has_rows(server, volume)):
            return
        # nova-compute finds the device name while the API waits.
        with world.lock(server, host=record.host):
            world.step(f'creates a row of {volume} for {server}')
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
        self._cast(f'attach of {volume} to {server}', record.host,
                   'attach_volume', server, row, world.begin_action(
                       server, instance_actions.ATTACH_VOLUME))

    def _has_rows(self, server: str, volume: str) -> bool:
        """Return whether a mapping keeps Nova from attaching a volume."""
        found = self.world.rows_where(
            lambda row: row.volume_id == volume and not row.deleted)
        record = self.world.cinder.volumes.get(volume)
        return any(record is None or not record.multiattach
                   or row.instance_uuid == server for row in found)

    def make_server(self, server: str, volume: str, host: str) -> None:
        """``openstack server create`` with an existing volume.

        Here Nova does not check whether another server lists the volume.
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
        world, record = self.world, self.world.server(server)
        world.step(f'asks to detach {volume} from {server}')
        row = world.row_of(server, volume)
        if row is None or not self.accepts(record, *_ATTACHABLE_STATES):
            return
        try:
            world.cinder.begin_detaching(volume)
        except model.CinderError:
            return
        self._cast(f'detach of {volume} from {server}', record.host,
                   'detach_volume', server, volume)

    def swap(self, server: str, old: str, new: str) -> None:
        """``PUT /servers/X/os-volume_attachments/OLD``."""
        world, record = self.world, self.world.server(server)
        world.step(f'asks to swap {old} of {server} for {new}')
        row = world.row_of(server, old)
        # Only an administrator or Cinder does this: no lock matters.
        if (row is None or record.task_state is not None
                or record.vm_state != vm_states.ACTIVE
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
        self._cast(f'swap of {old} for {new}', record.host, 'swap_volume',
                   server, old, new, attachment, world.begin_action(
                       server, instance_actions.SWAP_VOLUME))

    # Moves of a neighbour

    def move_in(self, server: str) -> None:
        self._move(server, THERE, HERE)

    def move_out(self, server: str) -> None:
        self._move(server, HERE, THERE)

    def _move(self, server: str, source: str, target: str) -> None:
        """Run a live migration, without Nova's checks."""
        world, record = self.world, self.world.server(server)
        world.step(f'asks to migrate {server} to {target}')
        if record.task_state is not None:
            return
        world.change_server(server, task_state=task_states.MIGRATING)
        self.move_guest(server, source, target)

    def move_guest(self, server: str, source: str, target: str) -> None:
        """Move a running guest and its volumes to another host."""
        world = self.world
        world.begin_migration(server, source, target, 'live-migration',
                              'running')
        former = Mappings.get_by_instance_uuid(Context(world), server)
        for row in world.volumes_of(server):
            volume = row.volume_id
            world.step(f'connects {volume} on {target}')
            with world.acting_on(target):
                answer = self.hosts[target].volume_api.attachment_create(
                    Context(world), volume, server, {'host': target})
            attachment = answer['id']
            number = number_of(answer['connection_info'])
            world.changes(f'units of {target}')
            world.hosts[target].devices.setdefault(number, set()).add(server)
            RowObject(world, row).save(
                attachment_id=attachment,
                connection_info=connection(volume, number, target))
            world.cinder.complete(attachment)
        world.step(f'the guest of {server} comes to {target}')
        world.changes('guests', f'guest of {server}')
        guest = world.hosts[source].guests[server]
        if not guest.is_running:
            raise HostFailure('the guest is off')
        guest.is_leaving = True
        world.hosts[target].guests[server] = dataclasses.replace(
            guest, is_leaving=False, disks={
                row.device_name: Disk(row.volume_id, row.number)
                for row in world.volumes_of(server)})
        world.step(f'the guest of {server} continues on {target}')
        world.changes('guests', f'guest of {server}')
        del world.hosts[source].guests[server]
        with world.acting_on(source):
            self.hosts[source]._post_live_migration(
                Context(world), self._instance(server), former)
        world.step(f'{server} is on {target} now')
        world.change_server(server, host=target, task_state=None)
        world.allocate(server, target)
        world.change_migration(server, 'completed')
        del world.migrations[server]

    # Changes in Cinder without Nova

    def delete_volume(self, volume: str) -> None:
        world = self.world
        world.step(f'deletes volume {volume}')
        with contextlib.suppress(model.CinderError):
            world.cinder.begin_deleting(volume)
            world.step(f'volume {volume} is deleted')
            world.cinder.delete_volume(volume)

    def give_away(self, volume: str, project: str) -> None:
        self.world.step(f'gives volume {volume} to {project}')
        with contextlib.suppress(model.CinderError):
            self.world.cinder.transfer(volume, project)

    def reset_to_in_use(self, volume: str) -> None:
        """Reset the status of a volume to in-use."""
        self.world.step(f'resets {volume} to in-use')
        with contextlib.suppress(model.CinderError):
            self.world.cinder.reset_status(volume, 'in-use')

    def reset_attached(self, volume: str) -> None:
        """Reset the attach status of a volume to detached."""
        self.world.step(f'resets {volume} to detached')
        with contextlib.suppress(model.CinderError):
            self.world.cinder.reset_attached(volume)

    def set_clock(self, hours: float) -> None:
        """Have the clock of this host step by some hours."""
        self.world.step(f'the clock of {HERE} steps by {hours:g} hours')
        self.world.changes(f'clock of {HERE}')
        self.world.clock_errors[HERE] = datetime.timedelta(hours=hours)

    def force_detach(self, volume: str, attachment: str) -> None:
        self.world.step(f'force-detaches {attachment}')
        with contextlib.suppress(model.CinderError):
            self.world.cinder.force_detach(volume, attachment, HERE)

    def write_attachment(self, volume: str, server: str,
                         host: str | None = None) -> None:
        """Create an attachment for any server, as any member may."""
        world = self.world
        world.step(f'creates an attachment of {volume} for {server}')
        world.unchecked_volumes.add(volume)
        with contextlib.suppress(model.CinderError):
            attachment = world.cinder.reserve(volume, server)
            if host:
                world.step(f'gives it a connector of {host}')
                world.cinder.connect(attachment, host)
                world.step('says that it is complete')
                world.cinder.complete(attachment)

    def delete_reservations(self, volume: str) -> None:
        """Delete what only reserves a volume, as any member may."""
        world = self.world
        world.step(f'deletes what reserves {volume}')
        for attachment in world.cinder.of_volume(volume):
            if attachment.host is None:
                world.cinder.delete(attachment.id)

    def update_attachment(self, volume: str, attachment: str, host: str
                          ) -> None:
        """Give an attachment another connector, as any member may."""
        world = self.world
        world.step(f'gives {attachment} a connector of {host}')
        world.unchecked_volumes.add(volume)
        with contextlib.suppress(model.CinderError):
            world.cinder.connect(attachment, host)
            world.step('says that it is complete')
            world.cinder.complete(attachment)

    # The end

    def reboot_at_end(self, server: str) -> None:
        """Reboot the server once more, without interruptions."""
        record = self.world.server(server)
        if self.world.killed_in_nova and record.vm_state == vm_states.ERROR:
            # Nova resumes nothing in ERROR: an administrator resets it.
            self.world.change_server(server, task_state=None)
        if record.vm_state == vm_states.SHELVED_OFFLOADED and (
                self.world.unchecked_volumes):
            return  # A person has to repair its root disk.
        if (record.task_state not in REBOOTABLE
                or record.vm_state not in _REBOOTABLE_STATES):
            self.world.violated('can-be-rebooted-again', f'{server} is '
                                f'{record.vm_state}, {record.task_state}')
            return
        self.world.change_server(
            server, task_state=task_states.REBOOTING_HARD)
        self.hosts[record.host].reboot_instance(
            self._instance(server), 'HARD')
