# SPDX-License-Identifier: Apache-2.0
"""Model of ``ComputeManager`` with resize, shelve and other moves.

It follows Nova 34; for disks, Nova 26 does the same.  Placement has
allocations of the server and, while it moves, of the migration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
import contextlib
import json
from typing import Any

from nova import exception
from nova.compute import power_state, task_states, vm_states

from nova_bdm_cleanup.tests.simulation import (
    cinder as model,
    compute,
    properties,
)
from nova_bdm_cleanup.tests.simulation.compute import Disks, HostFailure
from nova_bdm_cleanup.tests.simulation.nova import Instance, Mappings
from nova_bdm_cleanup.tests.simulation.world import HERE, number_of, THERE

#: Failures of Nova's own part of an operation.
_FAILURES = (HostFailure, model.CinderError, exception.BDMNotFound)

#: Another operation has taken the server.
_CONFLICTS = (exception.UnexpectedTaskStateError, exception.InstanceNotFound)


def migration_of(server: str) -> str:
    """Return the consumer of a migration's allocations."""
    return f'migration of {server}'


class Manager26(compute.Manager):
    """Nova's ComputeManager before 2023.2."""

    @contextlib.contextmanager
    def _handling_failures(self, instance: Instance, vm_state: str | None,
                           undo: Callable[[], None] = lambda: None
                      ) -> Iterator[None]:
        """Handle the failure of a part of a move as Nova does.

        :param vm_state: the new state of the server; None: unchanged
        :param undo: reverts the allocations
        """
        world, uuid = self._world, instance.uuid
        try:
            yield
        except _CONFLICTS:
            undo()
        except _FAILURES as exc:
            undo()
            properties.check_failed_move(world, uuid, exc)
            world.step('gives up')
            if uuid in world.servers:
                world.change_server(uuid, task_state=None, **(
                    {'vm_state': vm_state} if vm_state else {}))

    def _end_migration(self, server: str, status: str,
                       is_reverted: bool = False) -> None:
        """Delete the allocations of a migration.

        :param is_reverted: they become the server's again
        """
        world = self._world
        world.change_migration(server, status)
        world.changes('migrations')
        world.migrations.pop(server, None)
        kept = world.allocations.get(migration_of(server))
        if kept or not is_reverted:
            world.allocate(migration_of(server))
        if kept and is_reverted:
            world.allocate(server, *kept)

    # Resize and cold migration

    def resize_instance(self, instance: Instance, target: str,
                        then: Callable[[], None]) -> None:
        """Move the disks off the source.

        :param then: continues on the destination
        """
        with self._handling_failures(
                instance, vm_states.ERROR,
                lambda: self._end_migration(instance.uuid, 'error', True)):
            self._resize_instance(
                context=self._context, instance=instance, migration=None,
                target=target)
            then()

    def _resize_instance(self, context: Any, instance: Any, migration: Any,
                         target: str) -> None:
        instance.save(task_states.RESIZE_PREP,
                      task_state=task_states.RESIZE_MIGRATING)
        bdms, disks = self._disks(instance)
        self.driver.migrate_disk_and_power_off(instance, disks)
        self._terminate_volume_connections(context, instance, bdms)
        instance.save(task_states.RESIZE_MIGRATING, host=target,
                      task_state=task_states.RESIZE_MIGRATED)
        self._world.change_migration(instance.uuid, 'post-migrating')
        self._world.end_operations(instance.uuid)

    def _disks(self, instance: Any) -> tuple[Mappings, Disks]:
        """Return the mappings of a server, and its block device info."""
        bdms = self._mappings(instance)
        return bdms, self._get_instance_block_device_info(
            self._context, instance, bdms=bdms)

    def finish_resize(self, instance: Instance) -> None:
        """Start the guest on the destination."""
        with self._handling_failures(
                instance, vm_states.ERROR,
                lambda: self._end_migration(instance.uuid, 'error')):
            self._mark_in_operation(instance.uuid)
            bdms = self._mappings(instance)
            instance.save(task_states.RESIZE_MIGRATED,
                          task_state=task_states.RESIZE_FINISH)
            self._connect_and_start(instance, bdms)
            instance.save(task_states.RESIZE_FINISH, task_state=None,
                          vm_state=vm_states.RESIZED)
            self._world.change_migration(instance.uuid, 'finished')
            self._world.end_operations(instance.uuid)

    def _connect_and_start(self, instance: Any, bdms: Any) -> None:
        """Connect all disks by their new attachments, and start the guest."""
        self._update_volume_attachments(self._context, instance, bdms)
        disks = self._get_instance_block_device_info(
            self._context, instance, refresh_conn_info=True, bdms=bdms)
        self.driver.spawn(instance, disks)
        for row in _attached(bdms):
            with self._world.part_of(row.volume_id):
                self._complete(row.volume_id, row.attachment_id)

    def _update_volume_attachments(self, context: Any, instance: Any,
                                   bdms: Any) -> None:
        """Connect the new attachments; Nova saves the rows right after it."""
        for row in _attached(bdms):
            self._reconnect(instance, row)

    def _reconnect(self, instance: Any, row: Any) -> None:
        self._world.step(
            f'has Cinder export {row.volume_id} to {self.host}')
        properties.check_connection(self._world, self._world.rows[row.uuid])
        self._mark_in_operation(instance.uuid)
        with self._world.part_of(row.volume_id):
            row.save(connection_info=self._update_attachment(
                row.volume_id, row.attachment_id))

    def _mark_in_operation(self, server: str) -> None:
        """Mark its volumes: after a kill they have no connection."""
        if self.host == HERE:
            self._world.in_operation.update(
                r.volume_id for r in self._world.volumes_of(server))

    def _terminate_volume_connections(self, context: Any, instance: Any,
                                      bdms: Any) -> None:
        for row in _attached(bdms):
            self._renew_attachment(instance, row)

    def _renew_attachment(self, instance: Any, row: Any) -> None:
        """Reserve the volume by another attachment, and delete the former."""
        world = self._world
        world.step(f'reserves {row.volume_id} once more')
        properties.check_reservation(world, world.rows[row.uuid])
        self._mark_in_operation(instance.uuid)
        with world.part_of(row.volume_id):
            made = self.volume_api.attachment_create(
                self._context, row.volume_id, instance.uuid)['id']
            world.step(f'has Cinder delete {row.attachment_id}')
            self._delete_attachment(row.attachment_id)
            row.save(attachment_id=made)

    def confirm_resize(self, instance: Instance) -> None:
        """Remove the server from the source."""
        self._world.step('removes the guest from the source')
        self.driver.undefine(instance)
        self._end_migration(instance.uuid, 'confirmed')
        instance.save((None, task_states.DELETING), vm_state=vm_states.ACTIVE)

    def revert_resize(self, context: Any, instance: Any,
                      then: Callable[[], None]) -> None:
        """Remove the server from the destination.

        :param then: continues on the source
        """
        with self._handling_failures(instance, vm_states.ERROR):
            bdms, disks = self._disks(instance)
            self.driver.destroy(instance, disks)
            self._terminate_volume_connections(context, instance, bdms)
            self._world.end_operations(instance.uuid)
            then()

    def finish_revert_resize(self, instance: Instance) -> None:
        """Start the guest on the source again."""
        with self._handling_failures(instance, vm_states.ERROR):
            self._mark_in_operation(instance.uuid)
            bdms = self._mappings(instance)
            instance.save(task_states.RESIZE_REVERTING, host=self.host)
            self._end_migration(instance.uuid, 'reverted', is_reverted=True)
            self._connect_and_start(instance, bdms)
            instance.save(task_states.RESIZE_REVERTING, task_state=None,
                          vm_state=vm_states.ACTIVE)
            self._world.end_operations(instance.uuid)

    # Shelve and unshelve

    def shelve_instance(self, instance: Instance) -> None:
        """Shelve and offload; one without a root volume is imaged first."""
        with self._world.lock(instance.uuid), self._handling_failures(
                instance, None):
            bdms = self._mappings(instance)
            if instance.vm_state != vm_states.SHELVED and not any(
                    r.is_volume and r.boot_index == 0 for r in bdms):
                self._shelve_instance(self._context, instance)
            else:
                self._shelve_offload_instance(self._context, instance, bdms)

    def _shelve_instance(self, context: Any, instance: Any) -> None:
        bdms = self._mappings(instance)
        self.driver.power_off(instance)
        instance.save(task_states.SHELVING, vm_state=vm_states.SHELVED,
                      task_state=task_states.SHELVING_OFFLOADING)
        self._shelve_offload_instance(context, instance, bdms)

    def _shelve_offload_instance(self, context: Any, instance: Any,
                                 bdms: Any) -> None:
        self.driver.power_off(instance)
        disks = self._get_instance_block_device_info(
            context, instance, bdms=bdms)
        self.driver.destroy(instance, disks)
        self._terminate_volume_connections(context, instance, bdms)
        self._world.allocate(instance.uuid)
        # Nova writes the host right after the other attributes.
        instance.save(
            (task_states.SHELVING, task_states.SHELVING_OFFLOADING),
            vm_state=vm_states.SHELVED_OFFLOADED, task_state=None,
            power_state=power_state.SHUTDOWN, host=None)
        self._world.end_operations(instance.uuid)

    def unshelve_instance(self, instance: Instance) -> None:
        """Start the guest on the host that the scheduler chose."""
        with self._world.lock(instance.uuid), self._handling_failures(
                instance, None):
            self._unshelve_instance(self._context, instance)

    def _unshelve_instance(self, context: Any, instance: Any) -> None:
        bdms = self._mappings(instance)
        instance.save(task_state=task_states.SPAWNING)
        disks = self._prep_block_device(context, instance, bdms)
        instance.save(host=self.host)
        self.driver.spawn(instance, disks)
        instance.save(vm_state=vm_states.ACTIVE, task_state=None,
                      power_state=power_state.RUNNING)
        self._world.end_operations(instance.uuid)

    def _prep_block_device(self, context: Any, instance: Any,
                           bdms: Any) -> Disks:
        for row in bdms:
            if row.is_volume:
                self._reconnect(instance, row)
                with self._world.part_of(row.volume_id):
                    self._complete(row.volume_id, row.attachment_id)
        return self._get_instance_block_device_info(
            context, instance, bdms=bdms)

    # Evacuation

    def rebuild_instance(self, instance: Instance) -> None:
        """Rebuild an evacuated server on this host."""
        world, uuid = self._world, instance.uuid

        with self._handling_failures(instance, vm_states.ERROR,
                                     lambda: self._end_evacuation(
                                         uuid, 'failed')):
            self._world.change_migration(instance.uuid, 'pre-migrating')
            self._do_rebuild_instance(self._context, instance)
            instance.save(task_states.REBUILD_SPAWNING, task_state=None,
                          vm_state=vm_states.ACTIVE, host=self.host)
            world.change_migration(uuid, 'done')
            world.end_operations(uuid)

    def _end_evacuation(self, server: str, status: str) -> None:
        """Delete the allocations of an evacuated server on this host."""
        self._world.change_migration(server, status)
        self._world.allocate(
            server, *self._world.allocations[server] - {self.host})
        self._world.evacuated.pop(server, None)

    def _do_rebuild_instance(self, context: Any, instance: Any) -> None:
        bdms = self._mappings(instance)
        self._world.step('has checked whether the server can be rebuilt')
        self._rebuild_default_impl(
            context=context, instance=instance, bdms=bdms,
            detach_block_devices=self._detach_remotely,
            attach_block_devices=self._prep_block_device, evacuate=True)

    def _rebuild_default_impl(
            self, context: Any, instance: Any, bdms: Any,
            detach_block_devices: Callable[[Any, Any], None],
            attach_block_devices: Callable[[Any, Any, Any], Disks],
            evacuate: bool = False) -> None:
        detach_block_devices(instance, bdms)
        instance.save(task_states.REBUILDING,
                      task_state=task_states.REBUILD_BLOCK_DEVICE_MAPPING)
        disks = attach_block_devices(context, instance, bdms)
        instance.save(task_states.REBUILD_BLOCK_DEVICE_MAPPING,
                      task_state=task_states.REBUILD_SPAWNING)
        self.driver.spawn(instance, disks)

    def _detach_remotely(self, instance: Any, bdms: Any) -> None:
        """Renew the attachments: a dead host disconnects nothing."""
        for row in bdms:
            if row.is_volume:
                # Its row will have the address on this host.
                self._world.forgotten_devices.add(number_of(
                    json.loads(row.connection_info)))
                self._renew_attachment(instance, row)

    # Live migration

    def _post_live_migration(self, ctxt: Any, instance: Any,
                             source_bdms: Any) -> None:
        """Disconnect the volumes from the source."""
        disks = self._get_instance_block_device_info(
            ctxt, instance, bdms=source_bdms)
        self.driver.disconnect_all(instance, disks)
        for row in _attached(source_bdms):
            self._delete_attachment(row.attachment_id)

    def _rollback_live_migration(
            self, context: Any, instance: Any,
            former: Mapping[str, tuple[str | None, str | None]]) -> None:
        """Disconnect the volumes from the target.

        :param former: attachment and connection info of each row
        """
        world = self._world
        for row in world.volumes_of(instance.uuid):
            attachment, connection_info = former[row.uuid]
            if row.attachment_id != attachment:
                world.hosts[THERE].devices.pop(row.number, None)
                world.cinder.delete(row.attachment_id)
                world.change_row(row, attachment_id=attachment,
                                 connection_info=connection_info)
        world.change_server(instance.uuid, task_state=None)
        world.change_migration(instance.uuid, 'error')
        world.migrations.pop(instance.uuid, None)

    def _reset_live_migration(self, context: Any, instance: Any) -> None:
        instance.save(task_state=None)

    # Delete

    def terminate_instance(self, instance: Instance, bdms: Mappings) -> None:
        world = self._world
        with world.lock(instance.uuid):
            self._shutdown_instance(self._context, instance, bdms)
            world.step(f'{instance.uuid} is gone')
            world.delete_server(instance.uuid)

    def _shutdown_instance(self, context: Any, instance: Any, bdms: Any
                           ) -> None:
        disks = self._get_instance_block_device_info(
            context, instance, bdms=bdms)
        self.driver.destroy(instance, disks)
        for row in _attached(bdms):
            self._world.step(f'has Cinder delete {row.attachment_id}')
            with contextlib.suppress(model.CinderError):
                self._delete_attachment(row.attachment_id)

    # The start of nova-compute

    def init_host(self, evacuated: Collection[str] = ()) -> None:
        super().init_host(self._destroy_evacuated_instances(self._context, {}))

    def _destroy_evacuated_instances(self, context: Any, node_cache: Any
                                     ) -> Collection[str]:
        found = [uuid for uuid, source in self._world.evacuated.items()
                 if source == self.host]
        for uuid in found:
            instance = Instance(self._world, self._world.server(uuid))
            self.driver.destroy(
                instance, self._get_instance_block_device_info(
                    context, instance))
            self._end_evacuation(uuid, 'completed')
        return found

    def _init_instance(self, context: Any, instance: Any) -> None:
        task = instance.task_state
        if task == task_states.RESIZE_MIGRATING:
            self._restore_guest(instance)
        elif instance.vm_state != vm_states.ERROR and task in (
                task_states.SPAWNING, task_states.REBUILDING,
                task_states.REBUILD_BLOCK_DEVICE_MAPPING,
                task_states.REBUILD_SPAWNING):
            instance.save(vm_state=vm_states.ERROR, task_state=None)
        elif task == task_states.RESIZE_PREP:
            instance.save(task_state=None)
        elif task == task_states.MIGRATING:
            self._reset_live_migration(context, instance)
        super()._init_instance(context, instance)

    def _restore_guest(self, instance: Any) -> None:
        """Restore the guest after a kill in the source's part of a move."""
        # Nova only logs a failure.
        with contextlib.suppress(HostFailure):
            disks = self._get_instance_block_device_info(
                self._context, instance)
            self.driver.finish_revert_migration(instance, disks)
        instance.save(task_state=None)


def _attached(bdms: Mappings) -> Iterator[Any]:
    """Yield the mappings of volumes with an attachment."""
    return (row for row in bdms if row.is_volume and row.attachment_id)


class Manager34(Manager26):
    """Nova's ComputeManager since 2023.2, with a cleanup of its own."""

    _RESUMED_REBOOTS = (*Manager26._RESUMED_REBOOTS, task_states.REBOOTING,
                        task_states.REBOOTING_HARD)

    def _delete_dangling_bdms(self, context: Any, instance: Any,
                              bdms: Any) -> None:
        """Run Nova's own cleanup, which the plugin replaces."""

    def _reboot_instance(self, context: Any, instance: Any,
                         block_device_info: Any, reboot_type: str) -> None:
        self._acknowledge(instance, reboot_type)
        bdms = self._mappings(instance)
        self._delete_dangling_bdms(context.elevated(), instance, bdms)
        disks = self._get_instance_block_device_info(
            context.elevated(), instance, bdms=bdms)
        self._carry_out_reboot(instance, reboot_type, disks)


#: ComputeManager by release of Nova.
MANAGERS: Mapping[int, type[Manager26]] = {34: Manager34, 26: Manager26}
