# SPDX-License-Identifier: Apache-2.0
"""Operations that move, shelve or delete a server, and the final steps.

Nova's API and conductor do their part in one step and cast the rest to the
nova-computes, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib

from nova.compute import power_state, task_states, vm_states

from nova_bdm_cleanup.node import adoption
from nova_bdm_cleanup.tests.simulation import (
    cinder as model,
    operations,
    properties,
)
from nova_bdm_cleanup.tests.simulation.compute import HostFailure
from nova_bdm_cleanup.tests.simulation.compute_moves import migration_of
from nova_bdm_cleanup.tests.simulation.nova import (
    Context,
    DatabaseFailure,
    Mappings,
)
from nova_bdm_cleanup.tests.simulation.world import (
    COMPUTE,
    Guest,
    HERE,
    OTHER_COMPUTE,
    Server,
    THERE,
)

_NONE = model.Volume('', '')


class Cloud(operations.Operations):
    """All operations, including those between two hosts."""

    def _begin_task(self, server: str, task_state: str | None, *states: str
                    ) -> Server | None:
        """Set the task state; return None if Nova refuses the operation."""
        record = self.world.servers.get(server)
        self.world.reads(f'server {server}')
        if record is None or not self.accepts(record, *states):
            return None
        an_hour_ago, volumes = self.world.ago(1), self.world.cinder.volumes
        self.world.in_operation_at_move.update(
            row.volume_id for row in self.world.volumes_of(server)
            if row.created_at > an_hour_ago or volumes.get(
                row.volume_id, _NONE).status == 'detaching')
        # Nova connects no disk of two attachments.
        self.world.healthy_at_move.update(
            row.volume_id for row in self.world.volumes_of(server)
            if properties.is_healthy(self.world, row)
            and all(a.id == row.attachment_id or a.server != server
                    for a in self.world.cinder.of_volume(row.volume_id)))
        if task_state is not None:
            self.world.change_server(server, task_state=task_state)
        return record

    # Resize and cold migration

    def migrate(self, server: str) -> None:
        """``openstack server migrate``, to the other host."""
        world = self.world
        world.step(f'asks to migrate {server}')
        record = self._begin_task(server, task_states.RESIZE_PREP,
                                  vm_states.ACTIVE, vm_states.STOPPED)
        if record is None:
            return
        source = record.host
        target = THERE if source == HERE else HERE
        world.allocate(migration_of(server), source)
        world.allocate(server, target)
        world.begin_migration(server, source, target, 'migration',
                              'pre-migrating')
        instance = self._instance(server)
        self._cast(f'resize of {server}', source, 'resize_instance', instance,
                   target, lambda: self._cast(
                       f'arrival of {server}', target, 'finish_resize',
                       instance))

    def confirm(self, server: str) -> None:
        """``openstack server migration confirm``."""
        self.world.step(f'confirms the migration of {server}')
        if self._begin_task(server, None, vm_states.RESIZED) is None:
            return
        source, _ = self.world.migrations[server]
        self._cast(f'confirmation of {server}', source, 'confirm_resize',
                   self._instance(server))

    def revert(self, server: str) -> None:
        """``openstack server migration revert``."""
        self.world.step(f'asks to revert the migration of {server}')
        if self._begin_task(server, task_states.RESIZE_REVERTING,
                            vm_states.RESIZED) is None:
            return
        source, target = self.world.migrations[server]
        self.world.change_migration(server, 'reverting')
        instance = self._instance(server)
        self._cast(f'way back of {server}', target, 'revert_resize',
                   Context(self.world), instance,
                   lambda: self._cast(f'return of {server}', source,
                                      'finish_revert_resize', instance))

    def migrate_and_revert(self, server: str) -> None:
        """Migrate a server, and revert the migration."""
        self.migrate(server)
        record = self.world.servers[server]
        self.world.scheduler.wait(
            'for the migration', lambda: record.task_state is None)
        self.revert(server)

    # Shelve and unshelve

    def shelve(self, server: str) -> None:
        """``openstack server shelve``, which offloads it, too."""
        self.world.step(f'asks to shelve {server}')
        record = self._begin_task(
            server, task_states.SHELVING, vm_states.ACTIVE, vm_states.STOPPED,
            vm_states.SHELVED)
        if record is not None:
            self._cast(f'shelving of {server}', record.host,
                       'shelve_instance', self._instance(server))

    def unshelve(self, server: str, host: str = HERE) -> None:
        """``openstack server unshelve``.

        :param host: the host that the scheduler chooses
        """
        self.world.step(f'asks to unshelve {server}')
        if self._begin_task(server, task_states.UNSHELVING,
                            vm_states.SHELVED_OFFLOADED) is not None:
            self.world.allocate(server, host)
            self._cast(f'unshelving of {server}', host, 'unshelve_instance',
                       self._instance(server))

    # Evacuation

    def evacuate(self, server: str) -> None:
        """``openstack server evacuate``, from the other host to this one."""
        world = self.world
        world.step(f'asks to evacuate {server}')
        record = self._begin_task(
            server, task_states.REBUILDING, vm_states.ACTIVE,
            vm_states.STOPPED, vm_states.ERROR)
        if record is not None:
            world.allocate(server, HERE, record.host)
            world.changes('evacuations')
            world.record_migration(server, record.host, HERE, 'evacuation',
                                   'accepted')
            world.evacuated[server] = record.host
            self._cast(f'evacuation of {server}', HERE, 'rebuild_instance',
                       self._instance(server))

    def start_other_compute(self) -> None:
        """Start the other nova-compute after a loss of power."""
        self.world.step('the other nova-compute starts')
        self.hosts[THERE].init_host()

    # Live migration

    def live_migrate(self, server: str) -> None:
        """``openstack server migrate --live-migration``, away from here."""
        world = self.world
        world.step(f'asks to live-migrate {server}')
        if self._begin_task(server, task_states.MIGRATING,
                            vm_states.ACTIVE) is not None:
            self.begin(f'live migration of {server}', self._move_live,
                       server, process='conductor')

    def reset_and_migrate(self, server: str) -> None:
        """Live-migrate a server in spite of another operation."""
        self.reset_task_state(server)
        self.live_migrate(server)

    def _move_live(self, server: str) -> None:
        world = self.world
        former = {row.uuid: (row.attachment_id, row.connection_info)
                  for row in world.volumes_of(server)}
        try:
            self.move_guest(server, HERE, THERE)
        except (model.CinderError, HostFailure):
            with world.acting_on(HERE):
                self.hosts[HERE]._rollback_live_migration(
                    Context(world), self._instance(server), former)

    # Repair

    def repair(self, server: str) -> None:
        """``nova-bdm-cleanup repair``, on the host of the server."""
        with contextlib.suppress(adoption.Busy, adoption.NotHere,
                                 DatabaseFailure):
            adoption.carry_out(
                self.hosts[self.world.server(server).host], server)

    # Delete

    def delete(self, server: str) -> None:
        """``openstack server delete``, in any task state."""
        world = self.world
        world.step(f'asks to delete {server}')
        record = world.servers.get(server)
        if record is None or self.is_locked(record) or not record.host:
            return
        world.deleted_meanwhile = record.task_state is not None
        world.change_server(server, task_state=task_states.DELETING)
        bdms = Mappings.get_by_instance_uuid(Context(world), server)
        self._cast(f'deletion of {server}', record.host, 'terminate_instance',
                   self._instance(server), bdms)

    # Initial states

    def set_up_resized(self, server: str, source: str) -> None:
        """Set a server up as resized, so that it can be reverted."""
        world, record = self.world, self.world.servers[server]
        record.vm_state = vm_states.RESIZED
        world.allocate(migration_of(server), source)
        world.begin_migration(server, source, record.host, 'migration',
                              'finished')
        # Its rows were written after it began.
        world.migration_records[-1].created_at = world.ago(25)
        # Its files are still on the source.
        world.hosts[source].guests[server] = Guest()

    def set_up_shelved(self, server: str) -> None:
        """Set a server up as shelved, with its reserved attachments."""
        world, record = self.world, self.world.servers[server]
        del world.hosts[record.host].guests[server]
        for row in world.volumes_of(server):
            former = row.attachment_id
            row.attachment_id = world.cinder.reserve(
                row.volume_id, server)
            world.cinder.delete(former)
            del world.hosts[record.host].devices[row.number]
        record.vm_state = vm_states.SHELVED_OFFLOADED
        record.power_state = power_state.SHUTDOWN
        record.host = ''
        world.allocate(server)

    # The end

    def finish_all(self, server: str) -> None:
        """Finish open operations, and reboot the server twice."""
        world = self.world
        # An operator has looked after what prevents a cleanup.
        world.is_silent = world.hour_is_used_up = False
        for each in world.servers.values():
            each.locked_by = None
        world.clock_errors.clear()
        if world.evacuated:
            self._run_undisturbed(THERE, self.start_other_compute)
        record = world.servers.get(server)
        if record is None:
            return
        properties.check_restart(world, record)
        if (world.killed_in_move
                and record.task_state in operations.NOT_RESUMED):
            # An administrator resets its state; without a host, in the
            # database.
            world.change_server(server, task_state=None, **(
                {'vm_state': vm_states.ACTIVE} if record.host else {}))
        if record.vm_state == vm_states.RESIZED:
            self._run_undisturbed(HERE, lambda: self.confirm(server))
        if record.vm_state == vm_states.SHELVED:
            self._run_undisturbed(HERE, lambda: self.shelve(server))
        if record.vm_state == vm_states.SHELVED_OFFLOADED:
            self._run_undisturbed(HERE, lambda: self.unshelve(server))
        if world.is_repaired_at_end:
            self._run_undisturbed(record.host, lambda: self.repair(server))
        for _ in range(world.reboots_at_end):
            world.advance_time()
            self._run_undisturbed(
                record.host, lambda: self.reboot_at_end(server))

    def _run_undisturbed(self, host: str, func: Callable[[], object]) -> None:
        self.begin('owner, at the end', func, process=(
            OTHER_COMPUTE if host == THERE else COMPUTE))
        self.world.scheduler.run()
