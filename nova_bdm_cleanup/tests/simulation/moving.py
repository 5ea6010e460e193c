# SPDX-License-Identifier: Apache-2.0
"""Nova's own part of what takes a server from its host, or to another one.

As in Nova 34; in Nova 26 it is the same, as far as disks matter.  Placement
keeps room for a server under its own name and, while it moves, under that of
the migration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import contextlib
from typing import Any

from nova import exception
from nova.compute import power_state, task_states, vm_states

from nova_bdm_cleanup.tests.simulation import cinder as model, properties
from nova_bdm_cleanup.tests.simulation.compute import (
    Disks,
    HostFailure,
    Manager26,
    Manager34,
)
from nova_bdm_cleanup.tests.simulation.nova import Context, Instance, Mappings
from nova_bdm_cleanup.tests.simulation.world import connection, HERE

#: What breaks Nova's own part off.
_FAILURES = (HostFailure, model.CinderError, exception.BDMNotFound)

#: What the plugin refuses by.
_REFUSALS = (exception.InstanceFaultRollback, exception.InstanceUnacceptable,
             exception.MigrationPreCheckError)

#: Somebody else has taken the server.
_TAKEN = (exception.UnexpectedTaskStateError, exception.InstanceNotFound)


def migration_of(server: str) -> str:
    """Under whose name there is room on the host that a server leaves."""
    return f'migration of {server}'


class Moving(Manager26):
    """What moves need."""

    @contextlib.contextmanager
    def _breaking_off(self, instance: Instance, vm_state: str | None,
                      undo: Callable[[], None] = lambda: None
                      ) -> Iterator[None]:
        """What Nova makes of a part of a move that fails.

        :param vm_state: the server's state then; None: as it is
        :param undo: what it does with Placement
        """
        world, uuid = self._world, instance.uuid
        try:
            yield
        except (*_FAILURES, *_REFUSALS, *_TAKEN) as exc:
            undo()
            if isinstance(exc, _TAKEN):
                return
            if isinstance(exc, _REFUSALS):
                properties.refused(world, uuid)
            else:
                properties.broken_off(world, uuid, exc)
            world.step('gives up')
            if uuid in world.servers:
                if isinstance(exc, exception.InstanceFaultRollback):
                    vm_state = None
                world.change_server(uuid, task_state=None, **(
                    {'vm_state': vm_state} if vm_state else {}))

    def _take_back_room(self, server: str) -> None:
        """What the migration keeps is the server's again."""
        kept = self._world.allocations.get(migration_of(server))
        if kept:
            self._world.allocate(migration_of(server))
            self._world.allocate(server, *kept)

    # Resize and cold migration

    def resize_instance(self, context: Context, instance: Instance,
                        target: str, then: Callable[[], None]) -> None:
        """On the source.

        :param then: has the destination go on
        """
        with self._breaking_off(
                instance, vm_states.ERROR, lambda: self._end_migration(
                    instance.uuid, self._take_back_room)):
            instance.task_state = task_states.RESIZE_MIGRATING
            instance.save(expected_task_state=task_states.RESIZE_PREP)
            bdms = self._mappings(context, instance)
            disks = self._get_instance_block_device_info(
                context, instance, bdms=bdms)
            self.driver.migrate_disk_and_power_off(instance, disks)
            self._terminate_volume_connections(context, instance, bdms)
            instance.host = instance.node = target
            instance.task_state = task_states.RESIZE_MIGRATED
            instance.save(expected_task_state=task_states.RESIZE_MIGRATING)
            self._world.settled(instance.uuid)
            then()

    def _end_migration(self, server: str,
                       undo: Callable[[str], None]) -> None:
        self._world.scheduler.changes('migrations')
        self._world.migrations.pop(server, None)
        undo(server)

    def finish_resize(self, context: Context, instance: Instance) -> None:
        """On the destination."""
        uuid = instance.uuid
        with self._breaking_off(
                instance, vm_states.ERROR, lambda: self._end_migration(
                    uuid, lambda s: self._world.allocate(migration_of(s)))):
            self._hold(uuid)
            bdms = self._mappings(context, instance)
            instance.task_state = task_states.RESIZE_FINISH
            instance.save(expected_task_state=task_states.RESIZE_MIGRATED)
            self._arrive(context, instance, bdms)
            instance.vm_state = vm_states.RESIZED
            instance.task_state = None
            instance.save(expected_task_state=task_states.RESIZE_FINISH)
            self._world.settled(uuid)

    def _arrive(self, context: Any, instance: Any, bdms: Any) -> None:
        """Connect all disks by their new attachments, and start the guest."""
        for row in bdms:
            if row.is_volume and row.attachment_id:
                self._let_in(instance, row)
        disks = self._get_instance_block_device_info(
            context, instance, refresh_conn_info=True, bdms=bdms)
        self.driver.spawn(instance, disks)
        for row in bdms:
            if row.is_volume and row.attachment_id:
                self._complete(row)

    def _let_in(self, instance: Any, row: Any) -> None:
        self._world.step(
            f'has Cinder let {self.host} in to {row.volume_id}')
        properties.moving_in(self._world, instance.uuid, row.volume_id)
        self._hold(instance.uuid)
        number = self._world.cinder.connect(row.attachment_id, self.host)
        row.save(connection_info=connection(row.volume_id, number))

    def _complete(self, row: Any) -> None:
        self._world.step(f'tells Cinder that {row.volume_id} is attached')
        self._world.cinder.complete(row.attachment_id)

    def _reserve(self, instance: Any, row: Any) -> str:
        self._world.step(f'reserves {row.volume_id} once more')
        properties.moving_out(self._world, instance.uuid, row.volume_id)
        self._hold(instance.uuid)
        return self._world.cinder.reserve(row.volume_id, instance.uuid)

    def _hold(self, server: str) -> None:
        """Should nova-compute die, its disks have no connection."""
        if self.host == HERE:
            self._world.busy.update(
                r.volume_id or '' for r in self._world.volumes_of(server))

    def _terminate_volume_connections(self, context: Any, instance: Any,
                                      bdms: Any) -> None:
        for row in bdms:
            if row.is_volume and row.attachment_id:
                self._renew(instance, row)

    def _renew(self, instance: Any, row: Any) -> None:
        """Reserve the volume by another attachment, and delete the former."""
        made = self._reserve(instance, row)
        self._world.step(f'has Cinder delete {row.attachment_id}')
        # One that is gone is no error.
        with contextlib.suppress(model.NotFound):
            self._world.cinder.delete(row.attachment_id)
        row.save(attachment_id=made)

    def confirm_resize(self, instance: Instance) -> None:
        """On the source."""
        self._world.step('lets the source go')
        self.driver.undefine(instance)
        self._end_migration(instance.uuid, lambda s: self._world.allocate(
            migration_of(s)))
        instance.vm_state = vm_states.ACTIVE
        instance.save(expected_task_state=(None, task_states.DELETING))

    def revert_resize(self, context: Context, instance: Instance,
                      then: Callable[[], None]) -> None:
        """On the destination.

        :param then: has the source go on
        """
        with self._breaking_off(instance, vm_states.ERROR):
            bdms = self._mappings(context, instance)
            disks = self._get_instance_block_device_info(
                context, instance, bdms=bdms)
            self.driver.destroy(instance, disks)
            self._terminate_volume_connections(context, instance, bdms)
            self._world.settled(instance.uuid)
            then()

    def finish_revert_resize(self, context: Context,
                             instance: Instance) -> None:
        """On the source."""
        with self._breaking_off(instance, vm_states.ERROR):
            self._hold(instance.uuid)
            bdms = self._mappings(context, instance)
            instance.host = instance.node = self.host
            instance.save(expected_task_state=task_states.RESIZE_REVERTING)
            self._end_migration(instance.uuid, self._take_back_room)
            self._arrive(context, instance, bdms)
            instance.vm_state = vm_states.ACTIVE
            instance.task_state = None
            instance.save(expected_task_state=task_states.RESIZE_REVERTING)
            self._world.settled(instance.uuid)

    # Shelve and unshelve

    def shelve_instance(self, context: Context, instance: Instance) -> None:
        """One that has no volume for its root is copied to an image first."""
        with self._world.lock(instance.uuid), self._breaking_off(
                instance, None):
            bdms = self._mappings(context, instance)
            self.driver.power_off(instance)
            if instance.vm_state != vm_states.SHELVED and not any(
                    r.is_volume and r.boot_index == 0 for r in bdms):
                instance.vm_state = vm_states.SHELVED
                instance.task_state = task_states.SHELVING_OFFLOADING
                instance.save(expected_task_state=task_states.SHELVING)
            self._shelve_offload_instance(context, instance, bdms)

    def _shelve_offload_instance(self, context: Any, instance: Any,
                                 bdms: Any) -> None:
        disks = self._get_instance_block_device_info(
            context, instance, bdms=bdms)
        self.driver.destroy(instance, disks)
        self._terminate_volume_connections(context, instance, bdms)
        self._world.allocate(instance.uuid)
        instance.vm_state = vm_states.SHELVED_OFFLOADED
        instance.power_state = power_state.SHUTDOWN
        instance.task_state = None
        # Nova does this right after that.
        instance.host = instance.node = None
        instance.save(expected_task_state=(
            task_states.SHELVING, task_states.SHELVING_OFFLOADING))
        self._world.settled(instance.uuid)

    def unshelve_instance(self, context: Context, instance: Instance) -> None:
        """Where it comes back."""
        with self._world.lock(instance.uuid), self._breaking_off(
                instance, None):
            bdms = self._mappings(context, instance)
            instance.task_state = task_states.SPAWNING
            instance.save()
            disks = self._prep_block_device(context, instance, bdms)
            instance.host = instance.node = self.host
            instance.save()
            self.driver.spawn(instance, disks)
            instance.vm_state = vm_states.ACTIVE
            instance.power_state = power_state.RUNNING
            instance.task_state = None
            instance.save()
            self._world.settled(instance.uuid)

    def _prep_block_device(self, context: Any, instance: Any,
                           bdms: Any) -> Disks:
        for row in bdms:
            if row.is_volume:
                self._let_in(instance, row)
                self._complete(row)
        return self._get_instance_block_device_info(
            context, instance, bdms=bdms)

    # Evacuation

    def rebuild_instance(self, context: Context, instance: Instance) -> None:
        """Where a server is made anew whose host is dead."""
        world, uuid = self._world, instance.uuid

        def undo() -> None:
            world.allocate(uuid, *world.allocations[uuid] - {self.host})
            world.evacuated.pop(uuid, None)

        with self._breaking_off(instance, vm_states.ERROR, undo):
            bdms = self._mappings(context, instance)
            self._rebuild_default_impl(
                context=context, instance=instance, bdms=bdms,
                detach_block_devices=self._detach_remotely, evacuate=True,
                attach_block_devices=self._prep_block_device)
            instance.vm_state = vm_states.ACTIVE
            instance.task_state = None
            instance.host = instance.node = self.host
            instance.save(expected_task_state=task_states.REBUILD_SPAWNING)
            world.settled(uuid)

    def _rebuild_default_impl(
            self, context: Any, instance: Any, bdms: Any,
            detach_block_devices: Callable[[Any, Any, Any], None],
            attach_block_devices: Callable[[Any, Any, Any], Disks],
            evacuate: bool = False) -> None:
        detach_block_devices(context, instance, bdms)
        instance.task_state = task_states.REBUILD_BLOCK_DEVICE_MAPPING
        instance.save(expected_task_state=task_states.REBUILDING)
        disks = attach_block_devices(context, instance, bdms)
        instance.task_state = task_states.REBUILD_SPAWNING
        instance.save(
            expected_task_state=task_states.REBUILD_BLOCK_DEVICE_MAPPING)
        self.driver.spawn(instance, disks)

    def _detach_remotely(self, context: Any, instance: Any,
                         bdms: Any) -> None:
        """The dead host cannot disconnect anything."""
        for row in bdms:
            if row.is_volume:
                self._renew(instance, row)

    # Live migration

    def check_can_live_migrate_source(self, ctxt: Any, instance: Any,
                                      dest_check_data: Any) -> None:
        self._world.step('checks whether the guest can move')

    # Delete

    def terminate_instance(self, context: Context, instance: Instance,
                           bdms: Mappings) -> None:
        world = self._world
        with world.lock(instance.uuid):
            disks = self._get_instance_block_device_info(
                context, instance, bdms=bdms)
            self.driver.destroy(instance, disks)
            for row in bdms:
                if row.is_volume and row.attachment_id:
                    world.step(f'has Cinder delete {row.attachment_id}')
                    with contextlib.suppress(model.CinderError):
                        world.cinder.delete(row.attachment_id)
            world.step(f'{instance.uuid} is gone')
            world.forget_server(instance.uuid)

    # The start of nova-compute

    def init_host(self) -> None:
        context = Context(self._world)
        for uuid, source in list(self._world.evacuated.items()):
            if source == self.host:
                instance = Instance(self._world, self._world.server(uuid))
                self.driver.destroy(
                    instance, self._get_instance_block_device_info(
                        context, instance))
                self._world.allocate(
                    uuid, *self._world.allocations[uuid] - {self.host})
                del self._world.evacuated[uuid]
        super().init_host()

    def _init_instance(self, context: Any, instance: Any) -> None:
        task = instance.task_state
        if task == task_states.RESIZE_MIGRATING:
            self._take_back(context, instance)
        elif instance.vm_state != vm_states.ERROR and task in (
                task_states.SPAWNING, task_states.REBUILDING,
                task_states.REBUILD_BLOCK_DEVICE_MAPPING,
                task_states.REBUILD_SPAWNING):
            instance.vm_state, instance.task_state = vm_states.ERROR, None
            instance.save()
        elif task in (task_states.RESIZE_PREP, task_states.MIGRATING):
            instance.task_state = None
            instance.save()
        super()._init_instance(context, instance)

    def _take_back(self, context: Any, instance: Any) -> None:
        """nova-compute died in the source's part of a move."""
        try:
            disks = self._get_instance_block_device_info(context, instance)
            self.driver.finish_revert_migration(instance, disks)
        except HostFailure:
            pass  # Nova has logged it.
        instance.task_state = None
        instance.save()


class Manager(Moving, Manager34):
    """All of it, as it is now."""


#: By release.
MANAGERS: Mapping[int, type[Moving]] = {34: Manager, 26: Moving}
