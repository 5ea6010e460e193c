# SPDX-License-Identifier: Apache-2.0
"""Who has servers moved, shelved and deleted, and how it ends.

Nova's API and conductor do their part at once and leave the rest to the
nova-computes, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable

from nova import exception
from nova.compute import power_state, task_states, vm_states

from nova_bdm_cleanup.tests.simulation import (
    actors,
    cinder as model,
    properties,
)
from nova_bdm_cleanup.tests.simulation.moving import migration_of, Moving
from nova_bdm_cleanup.tests.simulation.nova import Context, Instance, Mappings
from nova_bdm_cleanup.tests.simulation.world import (
    COMPUTE,
    Guest,
    HERE,
    hours_ago,
    OTHER_COMPUTE,
    Server,
    THERE,
    World,
)

_NONE = model.Volume('', '')


class Cloud(actors.Cloud):
    """The same, with what moves servers between two hosts.

    :param world: the model
    :param here: Nova on this host
    :param there: Nova on the other one
    """

    def __init__(self, world: World, here: Moving, there: Moving) -> None:
        super().__init__(world, here, there)
        self._hosts = {HERE: here, THERE: there}

    def _asked(self, server: str, state: str | None, *states: str,
               task: str | None = None) -> Server | None:
        """A server in one of some states, of which something is asked."""
        there = self.world.servers.get(server)
        self.world.scheduler.sees(f'server {server}')
        if there is None or there.locked_by or (
                there.task_state is not None or there.vm_state not in states):
            return None
        self.world.in_hand.update(
            row.volume_id for row in self.world.volumes_of(server)
            if row.created_at > hours_ago(1) or self.world.cinder.volumes.get(
                row.volume_id or '', _NONE).status == 'detaching')
        if state is not None:
            self.world.change_server(server, task_state=state)
        return there

    # Resize and cold migration

    def migrate(self, server: str) -> None:
        """``openstack server migrate``, to the other host."""
        world = self.world
        world.step(f'asks to migrate {server}')
        there = self._asked(server, task_states.RESIZE_PREP,
                            vm_states.ACTIVE, vm_states.STOPPED)
        if there is None:
            return
        source = there.host
        target = THERE if source == HERE else HERE
        world.allocate(migration_of(server), source)
        world.allocate(server, target)
        world.scheduler.changes('migrations')
        world.migrations[server] = source, target
        instance = self._instance(server)
        self._cast(f'resize of {server}', source,
                   lambda: self._resize(instance, source, target))

    def _resize(self, instance: Instance, source: str, target: str) -> None:
        self._hosts[source].resize_instance(
            Context(self.world), instance, target, lambda: self._cast(
                f'arrival of {instance.uuid}', target, lambda: self._hosts[
                    target].finish_resize(Context(self.world), instance)))

    def confirm(self, server: str) -> None:
        """``openstack server migration confirm``."""
        self.world.step(f'confirms the migration of {server}')
        if self._asked(server, None, vm_states.RESIZED) is None:
            return
        source, _ = self.world.migrations[server]
        instance = self._instance(server)
        self._cast(f'confirmation of {server}', source,
                   lambda: self._hosts[source].confirm_resize(instance))

    def revert(self, server: str) -> None:
        """``openstack server migration revert``."""
        self.world.step(f'asks to take back the migration of {server}')
        if self._asked(server, task_states.RESIZE_REVERTING,
                       vm_states.RESIZED) is None:
            return
        source, target = self.world.migrations[server]
        instance = self._instance(server)
        self._cast(f'way back of {server}', target,
                   lambda: self._revert(instance, source, target))

    def _revert(self, instance: Instance, source: str, target: str) -> None:
        self._hosts[target].revert_resize(
            Context(self.world), instance, lambda: self._cast(
                f'return of {instance.uuid}', source, lambda: self._hosts[
                    source].finish_revert_resize(
                        Context(self.world), instance)))

    def there_and_back(self, server: str) -> None:
        """Whoever has migrated a server takes it back when it is there."""
        self.migrate(server)
        there = self.world.servers[server]
        self.world.scheduler.wait(
            'for the migration', lambda: there.task_state is None)
        self.revert(server)

    # Shelve and unshelve

    def shelve(self, server: str) -> None:
        """``openstack server shelve``, which offloads it, too."""
        self.world.step(f'asks to shelve {server}')
        there = self._asked(server, task_states.SHELVING, vm_states.ACTIVE,
                            vm_states.STOPPED, vm_states.SHELVED)
        if there is not None:
            instance = self._instance(server)
            self._cast(f'shelving of {server}', there.host, lambda:
                       self._hosts[there.host].shelve_instance(
                           Context(self.world), instance))

    def unshelve(self, server: str, host: str = HERE) -> None:
        """``openstack server unshelve``.

        :param host: where the scheduler has it come back
        """
        self.world.step(f'asks to unshelve {server}')
        if self._asked(server, task_states.UNSHELVING,
                       vm_states.SHELVED_OFFLOADED) is not None:
            self.world.allocate(server, host)
            instance = self._instance(server)
            self._cast(f'unshelving of {server}', host, lambda:
                       self._hosts[host].unshelve_instance(
                           Context(self.world), instance))

    # Evacuation

    def evacuate(self, server: str) -> None:
        """``openstack server evacuate``, from the other host to this one."""
        world = self.world
        world.step(f'asks to evacuate {server}')
        there = self._asked(server, task_states.REBUILDING, vm_states.ACTIVE,
                            vm_states.STOPPED, vm_states.ERROR)
        if there is not None:
            world.allocate(server, HERE, there.host)
            world.scheduler.changes('evacuations')
            world.evacuated[server] = there.host
            instance = self._instance(server)
            self._cast(f'evacuation of {server}', HERE, lambda:
                       self._hosts[HERE].rebuild_instance(
                           Context(world), instance))

    def lose_other_host(self) -> None:
        """The other host goes down for good, as far as anybody knows."""
        there = self.world.hosts[THERE]
        there.devices.clear()
        for guest in there.guests.values():
            guest.is_running = False

    def start_other_compute(self) -> None:
        """It is back."""
        self.world.step('the other nova-compute starts')
        self._hosts[THERE].init_host()

    # Live migration

    def live_migrate(self, server: str) -> None:
        """``openstack server migrate --live-migration``, away from here."""
        world = self.world
        world.step(f'asks to migrate {server} alive')
        if self._asked(server, task_states.MIGRATING,
                       vm_states.ACTIVE) is not None:
            instance = self._instance(server)
            self._cast(f'live migration of {server}', HERE,
                       lambda: self._check_and_move(instance))

    def _check_and_move(self, instance: Instance) -> None:
        world, server = self.world, instance.uuid
        world.anothers = {
            row.volume_id for row in world.volumes_of(server)
            if properties.is_anothers(world, server, row.volume_id)}
        try:
            self._hosts[HERE].check_can_live_migrate_source(
                Context(world), instance, None)
        except exception.MigrationPreCheckError:
            properties.refused(world, server)
            world.change_server(server, task_state=None)
        else:
            self.begin(f'live migration of {server}, then',
                       self._move_alive, server, process='conductor')

    def _move_alive(self, server: str) -> None:
        world = self.world
        former = {row.uuid: (row.attachment_id, row.connection_info)
                  for row in world.volumes_of(server)}
        try:
            self.carry_over(server, HERE, THERE)
        except model.CinderError:
            # Whatever was connected there for it goes again.
            for row in world.volumes_of(server):
                attachment, connection_info = former[row.uuid]
                if row.attachment_id != attachment:
                    world.hosts[THERE].devices.pop(row.number or 0, None)
                    world.cinder.delete(row.attachment_id or '')
                    world.change_row(row, attachment_id=attachment,
                                     connection_info=connection_info)
            world.change_server(server, task_state=None)
            world.migrations.pop(server, None)

    # Delete

    def delete(self, server: str) -> None:
        """``openstack server delete``, whatever goes on with it."""
        world = self.world
        world.step(f'asks to delete {server}')
        there = world.servers.get(server)
        if there is None or there.locked_by or not there.host:
            return
        world.deleted_meanwhile = there.task_state is not None
        world.change_server(server, task_state=task_states.DELETING)
        bdms = Mappings.get_by_instance_uuid(Context(world), server)
        instance, host = self._instance(server), there.host
        self._cast(f'deletion of {server}', host,
                   lambda: self._hosts[host].terminate_instance(
                       Context(world), instance, bdms))

    # What was before

    def have_moved(self, server: str, source: str) -> None:
        """A server has come from another host, and may go back."""
        world, there = self.world, self.world.servers[server]
        there.vm_state = vm_states.RESIZED
        world.allocate(migration_of(server), source)
        world.migrations[server] = source, there.host
        # Its files are still there.
        world.hosts[source].guests[server] = Guest()

    def have_shelved(self, server: str) -> None:
        """It has left its host, with what its mappings tell of that."""
        world, there = self.world, self.world.servers[server]
        del world.hosts[there.host].guests[server]
        for row in world.volumes_of(server):
            former = row.attachment_id or ''
            row.attachment_id = world.cinder.reserve(
                row.volume_id or '', server)
            world.cinder.delete(former)
            del world.hosts[there.host].devices[row.number or 0]
        there.vm_state = vm_states.SHELVED_OFFLOADED
        there.power_state = power_state.SHUTDOWN
        there.host = there.node = ''
        world.allocate(server)

    # How it ends

    def quiet(self, server: str) -> None:
        """Nothing else happens, and whoever may brings the server back."""
        world = self.world
        if world.evacuated:
            self._peacefully(THERE, self.start_other_compute)
        there = world.servers.get(server)
        if there is None:
            return
        properties.came_back(world, there)
        if world.died_in_move and there.task_state in actors.LEFT_ALONE:
            # An administrator resets its state; of one without a host, in
            # the database.
            world.change_server(server, task_state=None, **(
                {'vm_state': vm_states.ACTIVE} if there.host else {}))
        if there.vm_state == vm_states.RESIZED:
            self._peacefully(HERE, lambda: self.confirm(server))
        if there.vm_state == vm_states.SHELVED:
            self._peacefully(HERE, lambda: self.shelve(server))
        if there.vm_state == vm_states.SHELVED_OFFLOADED:
            self._peacefully(HERE, lambda: self.unshelve(server))
        for _ in range(2):
            world.pass_time()
            self._peacefully(there.host, lambda: self.quiet_reboot(server))

    def _peacefully(self, host: str, func: Callable[[], object]) -> None:
        self.begin('owner, in peace', func, process=(
            OTHER_COMPUTE if host == THERE else COMPUTE))
        self.world.scheduler.run()
