# SPDX-License-Identifier: Apache-2.0
"""Who has servers moved, shelved and deleted, and how it ends.

Nova's API and conductor do their part at once and leave the rest to the
nova-computes, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable

from nova.compute import power_state, task_states, vm_states

from nova_bdm_cleanup.tests.simulation import (
    actors,
    cinder as model,
    properties,
)
from nova_bdm_cleanup.tests.simulation.moving import migration_of
from nova_bdm_cleanup.tests.simulation.nova import Context, Mappings
from nova_bdm_cleanup.tests.simulation.world import (
    COMPUTE,
    Guest,
    HERE,
    hours_ago,
    OTHER_COMPUTE,
    Server,
    THERE,
)

_NONE = model.Volume('', '')


class Cloud(actors.Users):
    """All of them: also those who have servers moved between two hosts."""

    def _asked(self, server: str, state: str | None, *states: str
               ) -> Server | None:
        """A server in one of some states, of which something is asked."""
        there = self.world.servers.get(server)
        self.world.sees(f'server {server}')
        if there is None or not actors.takes(there, *states):
            return None
        self.world.in_hand.update(
            row.volume_id for row in self.world.volumes_of(server)
            if row.created_at > hours_ago(1) or self.world.cinder.volumes.get(
                row.volume_id, _NONE).status == 'detaching')
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
        world.changes('migrations')
        world.migrations[server] = source, target
        instance = self._instance(server)
        self._cast(f'resize of {server}', source, 'resize_instance', instance,
                   target, lambda: self._cast(
                       f'arrival of {server}', target, 'finish_resize',
                       instance))

    def confirm(self, server: str) -> None:
        """``openstack server migration confirm``."""
        self.world.step(f'confirms the migration of {server}')
        if self._asked(server, None, vm_states.RESIZED) is None:
            return
        source, _ = self.world.migrations[server]
        self._cast(f'confirmation of {server}', source, 'confirm_resize',
                   self._instance(server))

    def revert(self, server: str) -> None:
        """``openstack server migration revert``."""
        self.world.step(f'asks to take back the migration of {server}')
        if self._asked(server, task_states.RESIZE_REVERTING,
                       vm_states.RESIZED) is None:
            return
        source, target = self.world.migrations[server]
        instance = self._instance(server)
        self._cast(f'way back of {server}', target, 'revert_resize', instance,
                   lambda: self._cast(f'return of {server}', source,
                                      'finish_revert_resize', instance))

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
            self._cast(f'shelving of {server}', there.host,
                       'shelve_instance', self._instance(server))

    def unshelve(self, server: str, host: str = HERE) -> None:
        """``openstack server unshelve``.

        :param host: where the scheduler has it come back
        """
        self.world.step(f'asks to unshelve {server}')
        if self._asked(server, task_states.UNSHELVING,
                       vm_states.SHELVED_OFFLOADED) is not None:
            self.world.allocate(server, host)
            self._cast(f'unshelving of {server}', host, 'unshelve_instance',
                       self._instance(server))

    # Evacuation

    def evacuate(self, server: str) -> None:
        """``openstack server evacuate``, from the other host to this one."""
        world = self.world
        world.step(f'asks to evacuate {server}')
        there = self._asked(server, task_states.REBUILDING, vm_states.ACTIVE,
                            vm_states.STOPPED, vm_states.ERROR)
        if there is not None:
            world.allocate(server, HERE, there.host)
            world.changes('evacuations')
            world.evacuated[server] = there.host
            self._cast(f'evacuation of {server}', HERE, 'rebuild_instance',
                       self._instance(server))

    def start_other_compute(self) -> None:
        """The other host is back, whose power was lost."""
        self.world.step('the other nova-compute starts')
        self.hosts[THERE].init_host()

    # Live migration

    def live_migrate(self, server: str) -> None:
        """``openstack server migrate --live-migration``, away from here."""
        world = self.world
        world.step(f'asks to migrate {server} alive')
        if self._asked(server, task_states.MIGRATING,
                       vm_states.ACTIVE) is not None:
            self._cast(
                f'live migration of {server}', HERE, 'live_migration',
                self._instance(server), lambda: self.begin(
                    f'live migration of {server}, then', self._move_alive,
                    server, process='conductor'))

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
                    world.hosts[THERE].devices.pop(row.number, None)
                    world.cinder.delete(row.attachment_id)
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
        self._cast(f'deletion of {server}', there.host, 'terminate_instance',
                   self._instance(server), bdms)

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
            former = row.attachment_id
            row.attachment_id = world.cinder.reserve(
                row.volume_id, server)
            world.cinder.delete(former)
            del world.hosts[there.host].devices[row.number]
        there.vm_state = vm_states.SHELVED_OFFLOADED
        there.power_state = power_state.SHUTDOWN
        there.host = ''
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
