# SPDX-License-Identifier: Apache-2.0
"""Model of ``ComputeManager`` and its virt driver, without moves.

It follows Nova 34, and Nova 26 where that differs.  The hooks are installed on
these classes as they are on Nova's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
import contextlib
import json
import types
from typing import Any

from nova import exception
from nova.compute import power_state, task_states, vm_states
from nova.virt.libvirt.driver import LibvirtDriver

from nova_bdm_cleanup.tests.simulation import cinder as model, properties
from nova_bdm_cleanup.tests.simulation.nova import (
    Context,
    Instance,
    Mappings,
    RowObject,
)
from nova_bdm_cleanup.tests.simulation.world import (
    BEFORE,
    connection,
    Disk,
    Guest,
    Host,
    number_of,
    Row,
    Server,
    ServerAction,
    World,
)

#: Block device info of the driver: device name and connection info of each.
Disks = Sequence[tuple[str, Mapping[str, Any]]]


class HostFailure(Exception):
    """A call of the hypervisor or the kernel failed."""


class _Libvirt:
    """The calls to libvirt that the plugin makes."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name

    def get_guest(self, instance: Any) -> _Guest:
        self._world.ask('asks libvirt for the guest', HostFailure, 'libvirt')
        self._world.changes(f'guest of {instance.uuid}')
        guest = self._world.hosts[self._name].guests.get(instance.uuid)
        if guest is None or not guest.is_defined:
            raise exception.InstanceNotFound(instance_id=instance.uuid)
        return _Guest(guest)

    def delete_secret(self, usage_type: str, usage_id: str) -> None:
        pass


#: States of a domain, reasons for one that is off, and kinds of jobs, as
#: libvirt numbers them.
_RUNNING, _SHUTOFF = 1, 5
_DESTROYED, _MIGRATED = 2, 4
_NO_JOB, _UNBOUNDED_JOB = 0, 2


class _Guest:
    """A guest, and its domain in libvirt."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._domain = self

    def is_active(self) -> bool:
        return self._guest.is_running

    def state(self) -> tuple[int, int]:
        if self._guest.is_running:
            return _RUNNING, 1
        return _SHUTOFF, (_MIGRATED if self._guest.has_left else _DESTROYED)

    def XMLDesc(self, flags: int) -> Guest:
        # See ``ports.Harness.disks_in_domain``.
        return self._guest

    def get_job_info(self) -> types.SimpleNamespace:
        return types.SimpleNamespace(type=(
            _UNBOUNDED_JOB if self._guest.is_leaving else _NO_JOB))


def path_of(number: int) -> str:
    return f'/dev/unit-{number}'


class Driver(LibvirtDriver):
    """A libvirt driver on the model of a host."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.host = name
        self._host = _Libvirt(world, name)

    @property
    def _model_host(self) -> Host:
        self._world.changes(f'units of {self.host}')
        return self._world.hosts[self.host]

    def _guest(self, instance: Any) -> Guest:
        guests = self._world.hosts[self.host].guests
        self._world.changes(f'guest of {instance.uuid}')
        if instance.uuid not in guests:
            self._world.changes('guests')
            guests[instance.uuid] = Guest(is_defined=False)
        return guests[instance.uuid]

    def get_volume_connector(self, instance: Any) -> dict[str, str]:
        return {'host': self.host}

    def is_running(self, instance: Any) -> bool:
        return self._guest(instance).is_running

    def power_off(self, instance: Any, timeout: int = 0,
                  retry_interval: int = 0) -> None:
        self._destroy(instance)

    def _destroy(self, instance: Any) -> None:
        with self._world.attempt('powers the guest off', HostFailure):
            self._guest(instance).is_running = False
            properties.record_power_off(self._world, instance.uuid)

    # Devices

    def _connect(self, instance: Any,
                 connection_info: Mapping[str, Any]) -> None:
        number = number_of(connection_info)
        self._world.step(f'connects unit {number}')
        properties.check_users(self._world, self.host, instance.uuid, number,
                               'no-address-of-a-running-guest', 'is connected')
        with self._world.part_of(connection_info['serial']):
            if (number not in self._model_host.devices
                    and self._world.cinder.back_end.read(
                        self.host, number) is None):
                raise HostFailure(f'there is no unit {number}')
        self._model_host.devices.setdefault(number, set()).add(instance.uuid)

    def _disconnect_volume(
            self, context: Any, connection_info: Mapping[str, Any],
            instance: Any, encryption: Any = None,
            destroy_secrets: bool = True, force: bool = False) -> None:
        number = number_of(connection_info)
        if connection_info.get('multiattach') and self._is_shared(
                connection_info['serial'], instance):
            return
        with self._world.attempt(f'disconnects unit {number}', HostFailure):
            # Of a disconnect that was noted the server is not known.
            properties.check_disconnect(
                self._world, self.host, instance.uuid if instance else '',
                number)
            self._model_host.devices.pop(number, None)

    def _is_shared(self, volume: str, instance: Any) -> bool:
        """Return whether another server of the host has a volume."""
        return any(a.host == self.host and a.server != instance.uuid
                   for a in self._world.cinder.of_volume(volume))

    def disconnect_all(self, instance: Any, disks: Disks) -> None:
        for _, connection_info in disks:
            self._disconnect_volume(None, connection_info, instance)

    def attach_volume(self, context: Any, connection_info: Mapping[str, Any],
                      instance: Any, mountpoint: str, **_: Any) -> None:
        self._world.reads(f'guest of {instance.uuid}')
        if instance.uuid not in self._world.hosts[self.host].guests:
            raise HostFailure(f'{instance.uuid} is not on this host')
        self._connect(instance, connection_info)
        self._world.step(f'plugs {mountpoint} into the guest')
        self._world.swapped.pop((instance.uuid, mountpoint), None)
        self._guest(instance).disks[mountpoint] = Disk(
            connection_info['serial'], number_of(connection_info))
        properties.check_opened_disk(
            self._world, self.host, instance.uuid, mountpoint)

    def detach_volume(self, context: Any, connection_info: Mapping[str, Any],
                      instance: Any, mountpoint: str, **_: Any) -> None:
        self._world.step(f'unplugs {mountpoint} from the guest')
        self._world.changes(f'guest of {instance.uuid}')
        guest = self._world.hosts[self.host].guests.get(instance.uuid)
        if guest is not None:
            guest.disks.pop(mountpoint, None)
        self._disconnect_volume(context, connection_info, instance)

    def swap_volume(self, context: Any, old: Mapping[str, Any],
                    new: Mapping[str, Any], instance: Any,
                    mountpoint: str) -> None:
        self._connect(instance, new)
        self._world.step(f'copies {mountpoint} to another unit')
        disk = self._guest(instance).disks.get(mountpoint)
        if disk is None:
            # Nova leaves the new device.
            self._world.forgotten_devices.add(number_of(new))
            raise HostFailure(f'the guest has no {mountpoint} to copy')
        if not self.is_running(instance):
            self._disconnect_volume(context, new, instance)
            raise HostFailure('the guest is off')
        # The definition keeps the serial of the first volume.
        self._guest(instance).disks[mountpoint] = Disk(
            disk.serial, number_of(new))
        self._world.swapped[instance.uuid, mountpoint] = (
            self._world.cinder.back_end.read(self.host, number_of(new)))
        self._disconnect_volume(context, old, instance)

    # Guests

    def reboot(self, instance: Any, reboot_type: str, disks: Disks) -> None:
        if reboot_type == 'SOFT' and self.is_running(instance) and (
                instance.uuid not in self._world.hanging):
            self._world.step('restarts the guest with the disks that it has')
            return
        self.power_on(instance, disks)

    def power_on(self, instance: Any, disks: Disks) -> None:
        self._destroy(instance)
        self._guest(instance).is_defined = False
        self.disconnect_all(instance, disks)
        self._guest(instance).disks = {}
        self.spawn(instance, disks)

    def spawn(self, instance: Any, disks: Disks) -> None:
        """Connect the disks, and start the guest with them."""
        for _, connection_info in disks:
            self._connect(instance, connection_info)
        guest = self._guest(instance)
        self._world.step('starts the guest')
        self._world.changes(f'guest of {instance.uuid}')
        if guest is not self._world.hosts[self.host].guests.get(
                instance.uuid):
            raise HostFailure('the guest is gone')
        guest.disks = {
            name: Disk(connection_info['serial'], number_of(connection_info))
            for name, connection_info in disks}
        guest.is_running = guest.is_defined = True
        guest.has_left = False
        self._world.hanging.discard(instance.uuid)
        for name in guest.disks:
            properties.check_opened_disk(
                self._world, self.host, instance.uuid, name)

    # Moves

    def migrate_disk_and_power_off(self, instance: Any, disks: Disks) -> None:
        self.power_off(instance)
        self.disconnect_all(instance, disks)

    def finish_revert_migration(self, instance: Any, disks: Disks) -> None:
        if not self.is_running(instance):
            self.spawn(instance, disks)
            return
        # libvirt refuses, and the disks of the running guest are disconnected.
        for _, connection_info in disks:
            self._connect(instance, connection_info)
        self.disconnect_all(instance, disks)
        raise HostFailure('the guest runs already')

    def destroy(self, instance: Any, disks: Disks) -> None:
        self._destroy(instance)
        self.disconnect_all(instance, disks)
        self.undefine(instance)

    def undefine(self, instance: Any) -> None:
        self._world.changes(f'guest of {instance.uuid}', 'guests')
        self._world.hosts[self.host].guests.pop(instance.uuid, None)


class _Network:

    def __init__(self, world: World) -> None:
        self._world = world

    def get_instance_nw_info(self, context: Any, instance: Any) -> None:
        if self._world.step('asks Neutron', BEFORE):
            raise HostFailure('Neutron does not answer')


class _AttachmentNotFound(
        model.NotFound, exception.VolumeAttachmentNotFound):
    """An attachment does not exist, as both the model and Nova raise it."""

    def __init__(self, attachment: str) -> None:
        exception.VolumeAttachmentNotFound.__init__(
            self, attachment_id=attachment)


class Volumes:
    """Nova's client for Cinder, as nova-compute uses it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def get(self, context: Any, volume: str,
            microversion: str | None = None) -> dict[str, Any]:
        self._world.step(f'asks Cinder for volume {volume}')
        try:
            self._world.cinder.volume(volume)
        except model.NotFound:
            raise exception.VolumeNotFound(volume_id=volume) from None
        return {'id': volume, 'shared_targets': True, 'service_uuid': 'array'}

    def attachment_create(self, ctx: Any, volume_id: str, instance_id: str,
                          connector: Mapping[str, str] | None = None
                          ) -> dict[str, Any]:
        cinder = self._world.cinder
        return self._attachment(
            cinder.create(volume_id, instance_id, connector['host'])
            if connector else cinder.reserve(volume_id, instance_id))

    def attachment_update(self, ctx: Any, attachment_id: str,
                          connector: Mapping[str, str],
                          mountpoint: str | None = None) -> dict[str, Any]:
        def connect() -> None:
            self._world.cinder.connect(attachment_id, connector['host'])

        try:
            if self._world.is_cleaning:
                self._world.change_cinder(
                    f'has Cinder connect {attachment_id} to '
                    f'{connector["host"]}', connect)
            else:
                connect()
        except model.NotFound:
            raise _AttachmentNotFound(attachment_id) from None
        return self._attachment(attachment_id)

    def attachment_get(self, context: Any, attachment_id: str
                       ) -> dict[str, Any]:
        self._world.step(f'asks Cinder for {attachment_id}')
        try:
            self._world.cinder.attachment(attachment_id)
        except model.NotFound:
            raise _AttachmentNotFound(attachment_id) from None
        return self._attachment(attachment_id)

    def attachment_delete(self, ctx: Any, attachment_id: str) -> None:
        # Nova takes a missing one for deleted.
        with contextlib.suppress(model.NotFound):
            self._world.cinder.delete(attachment_id)

    def initialize_connection(self, ctx: Any, volume_id: str,
                              connector: Mapping[str, str]) -> dict[str, Any]:
        raise NotImplementedError('only before Queens')

    def _attachment(self, attachment: str) -> dict[str, Any]:
        """Return an attachment as Nova translates it."""
        found = self._world.cinder.attachments[attachment]
        return {
            'id': attachment, 'volume_id': found.volume,
            'connection_info': {} if found.host is None else dict(
                json.loads(connection(found.volume, found.number, found.host)),
                instance=found.server, status=found.status)}


class Manager:
    """Nova's ComputeManager before 2023.2, without moves."""

    #: The classes of its virt driver and of its client for Cinder.
    driver_class = Driver
    volumes_class = Volumes
    #: Task states of reboots that it resumes at its start if the guest is off.
    _RESUMED_REBOOTS: Sequence[str] = (
        task_states.REBOOT_STARTED, task_states.REBOOT_STARTED_HARD)

    def __init__(self, world: World, host: str) -> None:
        self._world = world
        self._context = Context(world)
        self.host = host
        self.driver: Any = self.driver_class(world, host)
        self.network_api = _Network(world)
        self.volume_api: Any = self.volumes_class(world)

    # A reboot

    def reboot_instance(self, instance: Instance, reboot_type: str) -> None:
        try:
            with self._world.lock(instance.uuid):
                self._reboot_instance(
                    self._context, instance, None, reboot_type)
        except (HostFailure, exception.UnexpectedTaskStateError,
                exception.InstanceNotFound) as exc:
            self._revert_task_state(instance, exc)

    def _revert_task_state(self, instance: Instance, error: Exception) -> None:
        """Reset the task state after a failed operation."""
        self._world.step('gives up')
        if (not isinstance(error, exception.UnexpectedTaskStateError)
                and instance.uuid in self._world.servers):
            self._world.change_server(instance.uuid, task_state=None)

    def _reboot_instance(self, context: Any, instance: Any,
                         block_device_info: Any, reboot_type: str) -> None:
        self._acknowledge(instance, reboot_type)
        disks = self._get_instance_block_device_info(context, instance)
        self._carry_out_reboot(instance, reboot_type, disks)

    def _acknowledge(self, instance: Any, reboot_type: str) -> None:
        instance.task_state = (
            task_states.REBOOT_PENDING if reboot_type == 'SOFT'
            else task_states.REBOOT_PENDING_HARD)

    def _mappings(self, instance: Any) -> Mappings:
        return Mappings.get_by_instance_uuid(self._context, instance.uuid)

    def _carry_out_reboot(self, instance: Any, reboot_type: str,
                          disks: Disks) -> None:
        is_soft = reboot_type == 'SOFT'
        self.network_api.get_instance_nw_info(self._context, instance)
        instance.save(expected_task_state=(
            task_states.soft_reboot_states if is_soft
            else task_states.hard_reboot_states))
        pending, started = (
            (task_states.REBOOT_PENDING, task_states.REBOOT_STARTED)
            if is_soft else (task_states.REBOOT_PENDING_HARD,
                             task_states.REBOOT_STARTED_HARD))
        instance.save(pending, task_state=started)
        try:
            self.driver.reboot(instance, reboot_type, disks)
        except HostFailure:
            if not self.driver.is_running(instance):
                instance.save(vm_state=vm_states.ERROR, task_state=None)
                raise
        instance.save(
            power_state=(power_state.RUNNING
                         if self.driver.is_running(instance)
                         else power_state.SHUTDOWN),
            vm_state=vm_states.ACTIVE, task_state=None)

    def _get_instance_block_device_info(
            self, context: Any, instance: Any,
            refresh_conn_info: bool = False, bdms: Any = None) -> Disks:
        if bdms is None:
            bdms = self._mappings(instance)
        return [(row.device_name, json.loads(row.connection_info))
                for row in bdms if row.connection_info is not None]

    # A start

    def start_instance(self, instance: Instance) -> None:
        try:
            self._power_on(self._context, instance)
        except HostFailure as exc:
            self._revert_task_state(instance, exc)
            return
        with contextlib.suppress(exception.UnexpectedTaskStateError,
                                 exception.InstanceNotFound):
            instance.save(
                task_states.POWERING_ON, power_state=power_state.RUNNING,
                vm_state=vm_states.ACTIVE, task_state=None)

    def _power_on(self, context: Any, instance: Any) -> None:
        disks = self._get_instance_block_device_info(context, instance)
        self.driver.power_on(instance, disks)

    # Disks

    def _export(self, volume: str, attachment: str) -> str:
        """Have Cinder export a volume to this host; return its connection
        info.
        """
        self._world.step(f'has Cinder export {volume} to {self.host}')
        return self._update_attachment(volume, attachment)

    def _update_attachment(self, volume: str, attachment: str) -> str:
        answer = self.volume_api.attachment_update(
            self._context, attachment, {'host': self.host})
        return connection(
            volume, number_of(answer['connection_info']), self.host)

    def _complete(self, volume: str, attachment: str) -> None:
        self._world.step(f'tells Cinder that {volume} is attached')
        self._world.cinder.complete(attachment)

    def _delete_attachment(self, attachment: str | None) -> None:
        self.volume_api.attachment_delete(self._context, attachment)

    def attach_volume(self, server: str, row: RowObject,
                      action: ServerAction) -> None:
        world, record = self._world, self._world.server(server)
        attachment = row.attachment_id
        action.has_begun = True
        with world.operation_on(row.volume_id):
            with world.lock(server), world.lock('os-brick'):
                try:
                    info = self._export(row.volume_id, attachment)
                    self.driver.attach_volume(None, json.loads(info), record,
                                              row.device_name)
                    row.save(connection_info=info)
                    self._complete(row.volume_id, attachment)
                except (HostFailure, model.CinderError,
                        exception.BDMNotFound):
                    with contextlib.suppress(model.CinderError):
                        self._delete_attachment(attachment)
                    row.destroy()
                    result = 'Error'
                else:
                    world.attached[server, row.volume_id] = True
                    result = 'Success'
                world.end_action(action, result)

    def detach_volume(self, server: str, volume: str) -> None:
        world, record = self._world, self._world.server(server)
        with world.operation_on(volume):
            with world.lock(server), world.lock('os-brick'):
                world.step(f'reads the row of {volume}')
                row = world.row_of(server, volume)
                if row is not None and row.is_connected:
                    self.driver.detach_volume(
                        None, json.loads(row.connection_info), record,
                        row.device_name)
                    world.step(f'has Cinder delete {row.attachment_id}')
                    with contextlib.suppress(model.CinderError):
                        self._delete_attachment(row.attachment_id)
                    world.attached[server, volume] = False
                    RowObject(world, row).destroy()

    def swap_volume(self, server: str, old: str, new: str, attachment: str,
                    action: ServerAction) -> None:
        world, record = self._world, self._world.server(server)
        with world.operation_on(old, new), world.lock(server):
            world.step(f'reads the row of {old}')
            row = world.row_of(server, old)
            is_done = row is not None and row.is_connected and (
                self._swap_disk(record, row, new, attachment))
            world.end_action(action, 'Success' if is_done else 'Error')

    def _swap_disk(self, record: Server, row: Row, new: str,
                   attachment: str) -> bool:
        """Swap a volume; return whether it succeeded."""
        world, former = self._world, row.attachment_id
        info = self._export(new, attachment)
        try:
            self.driver.swap_volume(None, json.loads(row.connection_info),
                                    json.loads(info), record, row.device_name)
        except HostFailure:
            # The guest was just powered off, or did not have the disk.
            world.step(f'gives up the swap for {new}')
            world.cinder.roll_detaching(row.volume_id)
            self._delete_attachment(attachment)
            return False
        self._complete(new, attachment)
        world.step(f'has Cinder delete {former}')
        self._delete_attachment(former)
        RowObject(world, row).save(
            volume_id=new, attachment_id=attachment, connection_info=info)
        world.attached[record.uuid, new] = True
        return True

    def build_instance(self, instance: Instance, row: RowObject) -> None:
        """Build a server with an existing volume."""
        world, server = self._world, instance.uuid
        with world.operation_on(row.volume_id), world.lock(server):
            world.step(f'begins to build {server}')
            world.change_server(server, host=self.host,
                                task_state=task_states.BLOCK_DEVICE_MAPPING)
            with world.lock('os-brick'):
                info = self._export(row.volume_id, row.attachment_id)
                row.save(connection_info=info)
                self._complete(row.volume_id, row.attachment_id)
            self.driver.power_on(
                instance, [(row.device_name, json.loads(info))])
            world.step(f'{server} is built')
            world.change_server(server, vm_state=vm_states.ACTIVE,
                                task_state=None)

    # The start of nova-compute

    def init_host(self, evacuated: Collection[str] = ()) -> None:
        """Resume interrupted operations, then guests.

        :param evacuated: servers to leave alone
        """
        for uuid in sorted(self._world.servers,
                           reverse=self._world.boots_in_reverse):
            server = self._world.server(uuid)
            if server.host == self.host and uuid not in evacuated:
                self._init_instance(
                    self._context, Instance(self._world, server))

    # Only Placement hears of these, which is not in the model.

    def _update_available_resource_for_node(
            self, context: Any, nodename: str, startup: bool = False) -> None:
        raise NotImplementedError

    def cleanup_host(self) -> None:
        raise NotImplementedError

    def _init_instance(self, context: Any, instance: Any) -> None:
        if instance.vm_state == vm_states.ERROR:
            return
        if instance.vm_state == vm_states.BUILDING:
            instance.save(vm_state=vm_states.ERROR, task_state=None)
            return
        is_running = self.driver.is_running(instance)
        task = instance.task_state
        is_soft = task in task_states.soft_reboot_states
        if task in (task_states.REBOOT_PENDING,
                    task_states.REBOOT_PENDING_HARD) or (
                        task in self._RESUMED_REBOOTS and not is_running):
            if is_soft and not is_running:
                instance.save(task_state=task_states.REBOOT_PENDING_HARD)
            self.reboot_instance(
                instance, 'SOFT' if is_soft and is_running else 'HARD')
        elif task in self._RESUMED_REBOOTS:
            instance.save(task_state=None, vm_state=vm_states.ACTIVE)
        elif task == task_states.POWERING_ON:
            self.start_instance(instance)
        elif (instance.power_state == power_state.RUNNING and not is_running
              and self._world.resumes_guests):
            self._resume_guests_state(context, instance, None)

    def _resume_guests_state(self, context: Any, instance: Any,
                             net_info: Any) -> None:
        disks = self._get_instance_block_device_info(context, instance)
        try:
            if not self.driver.is_running(instance):
                self.driver.power_on(instance, disks)
        except HostFailure:
            instance.save(vm_state=vm_states.ERROR)
