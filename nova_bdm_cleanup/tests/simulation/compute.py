# SPDX-License-Identifier: Apache-2.0
"""Nova's own part: the virt driver, and what brings servers back.

As in Nova 34, and as in Nova 26 where that differs.  The hook is installed on
these classes as it is on Nova's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import json
from typing import Any
from xml.sax import saxutils

from nova import exception
from nova.compute import power_state, task_states, vm_states
from nova.virt.libvirt.driver import LibvirtDriver

from nova_bdm_cleanup.tests.simulation import cinder as model, properties
from nova_bdm_cleanup.tests.simulation.nova import Context, Instance, Mappings
from nova_bdm_cleanup.tests.simulation.world import Disk, Guest, Host, World

#: How a call can go wrong: before it has an effect, or after that.
BEFORE, AFTER = 'fails', 'fails, although it is done'

#: What the driver is given: the name of a disk, and its connection.
Disks = Sequence[tuple[str, Mapping[str, Any]]]


class HostFailure(Exception):
    """A call of the hypervisor or the kernel failed."""


class _Libvirt:
    """What ``plugin.guests`` asks of libvirt."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name

    def get_guest(self, instance: Any) -> _Domain:
        if self._world.step('asks libvirt for the guest', BEFORE,
                            question='libvirt'):
            raise HostFailure('libvirt does not answer')
        self._world.scheduler.changes(f'guest of {instance.uuid}')
        guest = self._world.hosts[self._name].guests.get(instance.uuid)
        if guest is None:
            raise exception.InstanceNotFound(instance_id=instance.uuid)
        return _Domain(self._world, instance.uuid, guest)

    def delete_secret(self, usage_type: str, usage_id: str) -> None:
        pass


class _Domain:

    def __init__(self, world: World, server: str, guest: Guest) -> None:
        self._world = world
        self._server = server
        self._guest = guest

    def is_active(self) -> bool:
        return self._guest.is_running

    def get_xml_desc(self, dump_inactive: bool = False) -> str:
        disks = ''.join(
            '<disk type="block" device="disk"><driver name="qemu" type="raw"/>'
            f'<source dev="{saxutils.escape(path_of(disk.number))}"/>'
            f'<target dev="{name[5:]}" bus="virtio"/>'
            f'<serial>{saxutils.escape(disk.serial)}</serial></disk>'
            for name, disk in self._guest.disks.items())
        return f'<domain type="kvm"><devices>{disks}</devices></domain>'

    def detach_device(self, conf: Any, persistent: bool = False) -> None:
        fault = self._world.step(
            f'takes {conf.target_dev} out of the definition', BEFORE, AFTER)
        if fault != BEFORE:
            self._guest.disks.pop(f'/dev/{conf.target_dev}', None)
        if fault:
            raise HostFailure(fault)


def path_of(number: int) -> str:
    return f'/dev/unit-{number}'


def number_of(connection_info: Mapping[str, Any]) -> int:
    return int(connection_info['data']['target_lun'])


class Driver(LibvirtDriver):
    """A libvirt driver on the model of a host."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._host = _Libvirt(world, name)

    @property
    def _there(self) -> Host:
        self._world.scheduler.changes(f'units of {self._name}')
        return self._world.hosts[self._name]

    def _guest(self, instance: Any) -> Guest:
        self._world.scheduler.changes(f'guest of {instance.uuid}')
        return self._world.hosts[self._name].guests.setdefault(
            instance.uuid, Guest())

    def get_volume_connector(self, instance: Any) -> dict[str, Any]:
        return {'host': self._name}

    def is_running(self, instance: Any) -> bool:
        return self._guest(instance).is_running

    def power_off(self, instance: Any, timeout: int = 0,
                  retry_interval: int = 0) -> None:
        fault = self._world.step('powers the guest off', BEFORE, AFTER)
        if fault != BEFORE:
            self._guest(instance).is_running = False
            properties.switched_off(self._world, instance.uuid)
        if fault:
            raise HostFailure(fault)

    # Devices

    def _connect(self, instance: Any,
                 connection_info: Mapping[str, Any]) -> None:
        number = number_of(connection_info)
        self._world.step(f'connects unit {number}')
        if (number not in self._there.devices and
                self._world.cinder.back_end.read(self._name, number) is None):
            raise HostFailure(f'there is no unit {number}')
        self._there.devices.setdefault(number, set()).add(instance.uuid)

    def _disconnect_volume(
            self, context: Any, connection_info: Mapping[str, Any],
            instance: Any, encryption: Any = None,
            destroy_secrets: bool = True, force: bool = False) -> None:
        number = number_of(connection_info)
        fault = self._world.step(f'disconnects unit {number}', BEFORE, AFTER)
        if fault != BEFORE:
            properties.disconnecting(self._world, self._name, instance.uuid,
                                     connection_info)
            self._there.devices.pop(number, None)
        if fault:
            raise HostFailure(fault)

    def attach_volume(self, context: Any, connection_info: Mapping[str, Any],
                      instance: Any, mountpoint: str, **_: Any) -> None:
        self._world.scheduler.sees(f'guest of {instance.uuid}')
        if instance.uuid not in self._world.hosts[self._name].guests:
            raise HostFailure(f'{instance.uuid} is not on this host')
        self._connect(instance, connection_info)
        self._world.step(f'plugs {mountpoint} into the guest')
        self._guest(instance).disks[mountpoint] = Disk(
            connection_info['serial'], number_of(connection_info))
        properties.opened(self._world, self._name, instance.uuid, mountpoint)

    def detach_volume(self, context: Any, connection_info: Mapping[str, Any],
                      instance: Any, mountpoint: str, **_: Any) -> None:
        self._world.step(f'unplugs {mountpoint} from the guest')
        self._world.scheduler.changes(f'guest of {instance.uuid}')
        guest = self._world.hosts[self._name].guests.get(instance.uuid)
        if guest is not None:
            guest.disks.pop(mountpoint, None)
        self._disconnect_volume(context, connection_info, instance)

    def swap_volume(self, context: Any, old: Mapping[str, Any],
                    new: Mapping[str, Any], instance: Any,
                    mountpoint: str) -> None:
        self._connect(instance, new)
        self._world.step(f'copies {mountpoint} to another unit')
        disk = self._guest(instance).disks.get(mountpoint)
        if disk is None or not self.is_running(instance):
            raise HostFailure(f'the guest has no {mountpoint} to copy')
        # The definition keeps the serial of the first one.
        self._guest(instance).disks[mountpoint] = Disk(
            disk.serial, number_of(new))
        self._disconnect_volume(context, old, instance)

    # Guests

    def reboot(self, instance: Any, reboot_type: str, disks: Disks) -> None:
        if reboot_type == 'SOFT' and self.is_running(instance) and (
                instance.uuid not in self._world.hanging):
            self._world.step('restarts the guest with the disks that it has')
            return
        self._hard_reboot(instance, disks)

    def power_on(self, instance: Any, disks: Disks) -> None:
        self._hard_reboot(instance, disks)

    def resume_state_on_host_boot(self, instance: Any, disks: Disks) -> None:
        if not self.is_running(instance):
            self._hard_reboot(instance, disks)

    def _hard_reboot(self, instance: Any, disks: Disks) -> None:
        guest = self._guest(instance)
        self._world.step('destroys the guest')
        guest.is_running = False
        for _, connection_info in disks:
            self._disconnect_volume(None, connection_info, instance,
                                    force=True)
        guest.disks = {}
        self.spawn(instance, disks)

    def spawn(self, instance: Any, disks: Disks) -> None:
        """Connect the disks, and start the guest with them."""
        for _, connection_info in disks:
            self._connect(instance, connection_info)
        guest = self._guest(instance)
        self._world.step('starts the guest')
        self._world.scheduler.changes(f'guest of {instance.uuid}')
        if guest is not self._world.hosts[self._name].guests.get(
                instance.uuid):
            raise HostFailure('the guest is gone')
        guest.disks = {
            name: Disk(connection_info['serial'], number_of(connection_info))
            for name, connection_info in disks}
        guest.is_running = True
        self._world.hanging.discard(instance.uuid)
        for name in guest.disks:
            properties.opened(self._world, self._name, instance.uuid, name)


    # Moves

    def migrate_disk_and_power_off(self, instance: Any, disks: Disks) -> None:
        self.power_off(instance)
        for _, connection_info in disks:
            self._disconnect_volume(None, connection_info, instance)

    def finish_revert_migration(self, instance: Any, disks: Disks) -> None:
        if not self.is_running(instance):
            self.spawn(instance, disks)
            return
        # libvirt refuses, and the disks are taken from the guest.
        for _, connection_info in disks:
            self._connect(instance, connection_info)
        for _, connection_info in disks:
            self._disconnect_volume(None, connection_info, instance,
                                    force=True)
        raise HostFailure('the guest runs already')

    def destroy(self, instance: Any, disks: Disks) -> None:
        self._world.step('destroys the guest')
        guest = self._guest(instance)
        guest.is_running = False
        for _, connection_info in disks:
            self._disconnect_volume(None, connection_info, instance,
                                    force=True)
        self.undefine(instance)

    def undefine(self, instance: Any) -> None:
        self._world.scheduler.changes(f'guest of {instance.uuid}', 'guests')
        self._world.hosts[self._name].guests.pop(instance.uuid, None)


class _Network:

    def __init__(self, world: World) -> None:
        self._world = world

    def get_instance_nw_info(self, context: Any, instance: Any) -> None:
        if self._world.step('asks Neutron', BEFORE):
            raise HostFailure('Neutron does not answer')


class _Volumes:
    """Nova's client of Cinder, as far as the plugin uses it."""

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


class Manager26:
    """Nova's ComputeManager before 2023.2, as far as it matters."""

    #: A reboot that it takes up at its start, where the guest is off.
    _TAKEN_UP: Sequence[str] = (
        task_states.REBOOT_STARTED, task_states.REBOOT_STARTED_HARD)

    def __init__(self, world: World, host: str) -> None:
        self._world = world
        self.host = host
        self.driver: Any = Driver(world, host)
        self.network_api = _Network(world)
        self.volume_api = _Volumes(world)

    # A reboot

    def reboot_instance(self, context: Context, instance: Instance,
                        reboot_type: str) -> None:
        try:
            with self._world.lock(instance.uuid):
                self._reboot_instance(context, instance, None, reboot_type)
        except (HostFailure, exception.UnexpectedTaskStateError) as exc:
            self._revert_task_state(instance, exc)

    def _revert_task_state(self, instance: Instance, error: Exception) -> None:
        """What a failed operation leaves: no task, and its error."""
        self._world.step('gives up')
        if not isinstance(error, exception.UnexpectedTaskStateError):
            self._world.change_server(instance.uuid, task_state=None)

    def _reboot_instance(self, context: Any, instance: Any,
                         block_device_info: Any, reboot_type: str) -> None:
        self._acknowledge(instance, reboot_type)
        disks = self._get_instance_block_device_info(context, instance)
        self._carry_out_reboot(context, instance, reboot_type, disks)

    def _acknowledge(self, instance: Any, reboot_type: str) -> None:
        instance.task_state = (
            task_states.REBOOT_PENDING if reboot_type == 'SOFT'
            else task_states.REBOOT_PENDING_HARD)

    def _mappings(self, context: Any, instance: Any) -> Mappings:
        return Mappings.get_by_instance_uuid(context, instance.uuid)

    def _carry_out_reboot(self, context: Any, instance: Any,
                          reboot_type: str, disks: Disks) -> None:
        is_soft = reboot_type == 'SOFT'
        self.network_api.get_instance_nw_info(context, instance)
        instance.save(expected_task_state=(
            task_states.soft_reboot_states if is_soft
            else task_states.hard_reboot_states))
        instance.task_state = (task_states.REBOOT_STARTED if is_soft
                               else task_states.REBOOT_STARTED_HARD)
        instance.save(expected_task_state=(
            task_states.REBOOT_PENDING if is_soft
            else task_states.REBOOT_PENDING_HARD))
        try:
            self.driver.reboot(instance, reboot_type, disks)
        except HostFailure:
            if not self.driver.is_running(instance):
                instance.vm_state = vm_states.ERROR
                instance.task_state = None
                instance.save()
                raise
        instance.power_state = (
            power_state.RUNNING if self.driver.is_running(instance)
            else power_state.SHUTDOWN)
        instance.vm_state = vm_states.ACTIVE
        instance.task_state = None
        instance.save()

    def _get_instance_block_device_info(
            self, context: Any, instance: Any,
            refresh_conn_info: bool = False, bdms: Any = None) -> Disks:
        if bdms is None:
            bdms = self._mappings(context, instance)
        return [(row.device_name, json.loads(row.connection_info))
                for row in bdms if row.connection_info is not None]

    # A start

    def start_instance(self, context: Context, instance: Instance) -> None:
        try:
            self._power_on(context, instance)
        except HostFailure as exc:
            self._revert_task_state(instance, exc)
            return
        instance.power_state = power_state.RUNNING
        instance.vm_state = vm_states.ACTIVE
        instance.task_state = None
        try:
            instance.save(expected_task_state=task_states.POWERING_ON)
        except exception.UnexpectedTaskStateError:
            pass

    def _power_on(self, context: Any, instance: Any) -> None:
        disks = self._get_instance_block_device_info(context, instance)
        self.driver.power_on(instance, disks)

    # The start of nova-compute

    def init_host(self) -> None:
        """Nova takes up what was broken off, then brings guests back."""
        context = Context(self._world)
        for uuid in sorted(self._world.servers):
            server = self._world.server(uuid)
            if server.host == self.host:
                self._init_instance(context, Instance(self._world, server))

    def _init_instance(self, context: Any, instance: Any) -> None:
        if instance.vm_state == vm_states.ERROR:
            return
        if instance.vm_state == vm_states.BUILDING:
            instance.vm_state, instance.task_state = vm_states.ERROR, None
            instance.save()
            return
        is_running = self.driver.is_running(instance)
        task = instance.task_state
        is_soft = task in task_states.soft_reboot_states
        if task in (task_states.REBOOT_PENDING,
                    task_states.REBOOT_PENDING_HARD) or (
                        task in self._TAKEN_UP and not is_running):
            if is_soft and not is_running:
                instance.task_state = task_states.REBOOT_PENDING_HARD
                instance.save()
            self.reboot_instance(
                context, instance,
                'SOFT' if is_soft and is_running else 'HARD')
        elif task in self._TAKEN_UP:
            instance.task_state = None
            instance.vm_state = vm_states.ACTIVE
            instance.save()
        elif task == task_states.POWERING_ON:
            self.start_instance(context, instance)
        elif (instance.power_state == power_state.RUNNING and not is_running
              and self._world.resumes_guests):
            self._resume_guests_state(context, instance, None)

    def _resume_guests_state(self, context: Any, instance: Any,
                             net_info: Any) -> None:
        disks = self._get_instance_block_device_info(context, instance)
        try:
            self.driver.resume_state_on_host_boot(instance, disks)
        except HostFailure:
            instance.vm_state = vm_states.ERROR
            instance.save()


class Manager34(Manager26):
    """The same since then: it has a cleanup of its own."""

    _TAKEN_UP = (*Manager26._TAKEN_UP, task_states.REBOOTING,
                 task_states.REBOOTING_HARD)

    def _delete_dangling_bdms(self, context: Any, instance: Any,
                              bdms: Any) -> None:
        """Nova's own cleanup, which is replaced."""

    def _reboot_instance(self, context: Any, instance: Any,
                         block_device_info: Any, reboot_type: str) -> None:
        self._acknowledge(instance, reboot_type)
        bdms = self._mappings(context, instance)
        self._delete_dangling_bdms(context.elevated(), instance, bdms)
        disks = self._get_instance_block_device_info(
            context.elevated(), instance, bdms=bdms)
        self._carry_out_reboot(context, instance, reboot_type, disks)
