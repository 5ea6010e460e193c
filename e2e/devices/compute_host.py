# SPDX-License-Identifier: Apache-2.0
"""nova-compute of the machine: Nova's own manager, driver and objects.

The rest is small: libvirt is Nova's fake, Cinder is that of
:mod:`e2e.devices.volumes`, the database is SQLite without a conductor.
os-brick is the real one; its commands run in this process, as root, and not
in a privsep daemon.
"""

from __future__ import annotations

# First: it decides how threads are made.
from nova.cmd import compute  # noqa: F401 isort: skip

import contextlib
import gc
import json
import logging as std_logging
import os
import pathlib
import shutil
from typing import Any
from unittest import mock
import uuid

from keystoneauth1 import loading as ks_loading
from nova import (
    config,
    context as nova_context,
    exception,
    objects,
    service_auth,
)
from nova.compute import (
    manager as nova_manager,
    power_state,
    task_states,
    vm_states,
)
import nova.conf
from nova.db.main import api as db, models
from nova.network import model as network_model
import nova.privsep
import os_brick
from os_brick import privileged as brick_privileged
from os_brick.initiator.connectors import iscsi
from oslo_log import formatters, log as logging
from oslo_privsep import priv_context
import sqlalchemy

from e2e import processes
from e2e.devices import fakes, guests, hooks, storage, volumes
from nova_bdm_cleanup.node import boot, options, repairs
from nova_bdm_cleanup.node.hooks import init_host, installation, wrapping
from nova_bdm_cleanup.node.store import spool

CONF = nova.conf.CONF
HOST = 'compute1'
_TEMPLATE = pathlib.Path('/run/nova.sqlite')

_CONFIGURATION = """\
[DEFAULT]
host = compute1
my_ip = 127.0.0.1
transport_url = fake:/
compute_driver = libvirt.LibvirtDriver
use_stderr = false
# Each case works in a directory of its own; SQLAlchemy would make a relative
# path absolute, once and for all.
[database]
connection = sqlite:////proc/self/cwd/nova.sqlite
sqlite_synchronous = false
[api_database]
connection = sqlite:////proc/self/cwd/nova.sqlite
[libvirt]
virt_type = qemu
images_type = raw
[cinder]
auth_type = admin_token
endpoint = http://127.0.0.1/
token = nova
[filter_scheduler]
track_instance_changes = false
[service_user]
send_service_user_token = true
auth_type = admin_token
endpoint = http://127.0.0.1/
token = nova-service
[key_manager]
backend = nova.keymgr.conf_key_mgr.ConfKeyManager
fixed_key = 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
[bdm_cleanup]
mode = enforce
triggers = start, host_boot, move, delete
# The machine is slow, and os-brick waits a minute for what does not answer.
timeout = 600
settle_time = 0
"""


def prepare() -> Any:
    """Prepare once what all cases share: options, privileges, tables.

    :returns: Nova's manager, still without a hypervisor
    """
    path = pathlib.Path('/run/nova.conf')
    path.write_text(_CONFIGURATION)
    options.register_opts(CONF)
    nova.conf.neutron.register_dynamic_opts(CONF)
    config.parse_args(['nova-compute', '--config-file', str(path)])
    logging.setup(CONF, 'nova')
    # They would log to the console, which is slow here.
    std_logging.getLogger().handlers.clear()
    for module in (brick_privileged, nova.privsep):
        for context in vars(module).values():
            if isinstance(context, priv_context.PrivContext):
                context.set_client_mode(False)
    objects.register_all()
    os_brick.setup(CONF)
    # Each case sets the endpoint; only the auth plugin registers that option.
    ks_loading.load_auth_from_conf_options(CONF, 'cinder')
    _TEMPLATE.unlink(missing_ok=True)
    engine = sqlalchemy.create_engine(f'sqlite:///{_TEMPLATE}')
    models.BASE.metadata.create_all(engine)
    engine.dispose()
    for module_name in ('driver', 'host', 'guest', 'migration'):
        _set(f'nova.virt.libvirt.{module_name}.libvirt', fakes.libvirt)
    # Replace the calls of a hypervisor or a service that is not here.
    for name, value in (
            ('nova.scheduler.client.report.SchedulerReportClient'
             '._create_client', lambda *_: None),
            ('nova.virt.libvirt.host.Host._log_host_capabilities',
             lambda *_: None),
            ('nova.virt.libvirt.driver.LibvirtDriver'
             '._get_host_sysinfo_serial_os', lambda *_: HOST),
            # There is no image: the root disk is not created.
            ('nova.virt.libvirt.driver.LibvirtDriver'
             '._create_and_inject_local_root', lambda *_: False),
            ('nova.image.glance.API.generate_image_url', lambda *_: ''),
            ('nova.network.neutron.API.get_instance_nw_info',
             lambda *_, **__: network_model.NetworkInfo()),
            ('nova.network.neutron.API.setup_networks_on_host',
             lambda *_: None),
            ('nova.network.neutron.API.setup_instance_network_on_host',
             lambda *_, **__: None),
            ('nova.compute.utils.notify_usage_exists',
             lambda *_, **__: None),
            ('nova.compute.utils.notify_about_instance_rebuild',
             lambda *_, **__: None),
            ('nova.compute.utils.notify_about_instance_action',
             lambda *_, **__: None),
            ('nova.compute.manager.ComputeManager'
             '._notify_about_instance_usage', lambda *_, **__: None)):
        _set(name, value)
    manager = nova_manager.ComputeManager()
    manager.driver._supported_perf_events = []
    return manager


def warm_up(manager: Any, directory: pathlib.Path) -> None:
    """Do once what is slow the first time in each process, such as SQLAlchemy
    compiling Nova's statements.

    Nothing is connected, and no thread and no open file is left.

    :param manager: from :func:`prepare`
    :param directory: an empty working directory
    """
    directory.mkdir(parents=True)
    os.chdir(directory)
    cinder = volumes.Volumes()
    host = ComputeHost(directory, cinder, manager)
    volume = storage.Volume('w')
    cinder.add(volume)
    attached = cinder.attach(volume, str(uuid.uuid4()), {
        'driver_volume_type': 'iscsi', 'target_portal': '127.0.0.1:3260',
        'target_iqn': 'iqn.2010-10.org.openstack:none', 'target_lun': 1,
        'volume_id': volume.id}, lambda: None)
    with mock.patch.multiple(
            iscsi.ISCSIConnector, disconnect_volume=lambda *_, **__: None,
            connect_volume=lambda *_: {'type': 'block', 'path': '/dev/null'}):
        server = host.server(attached)
        host.start()
        host.reboot(server)
        cinder.delete(attached)
        host.reboot(server)
    assert not host.mappings(volume), 'the cleanup does not work:\n' + (
        '\n'.join(host.log()))
    installation.uninstall()
    host.libvirt.stop(server)
    std_logging.getLogger().handlers.clear()
    cinder.stop()
    volume.remove()
    db.context_manager.dispose_pool()
    # The globals hold the address of the Cinder that is gone.
    service_auth.reset_globals()
    gc.freeze()


class ComputeHost:
    """One compute host, with a directory and a database of its own.

    :param directory: the directory of its state
    :param cinder: the volume service
    :param manager: from :func:`prepare`
    :param multipath: whether Nova connects volumes with multipath
    """

    def __init__(self, directory: pathlib.Path, cinder: volumes.Volumes,
                 manager: Any, multipath: bool = False) -> None:
        self._manager = manager
        self.directory = directory
        self.cinder = cinder
        self.libvirt = guests.Libvirt(directory / 'libvirt')
        self._log = directory / 'nova.log'
        #: The calls of the plugin's handlers.
        self.hooks = hooks.Record(directory / 'hooks')
        shutil.copy(_TEMPLATE, directory / 'nova.sqlite')
        (directory / 'instances').mkdir()
        (directory / 'lock').mkdir()
        # What nova-compute writes at its start.
        objects.ComputeNode(
            self.context(), host=HOST, hypervisor_hostname=HOST,
            uuid=str(uuid.uuid4()), hypervisor_type='QEMU',
            hypervisor_version=1, cpu_info='', vcpus=1, vcpus_used=0,
            memory_mb=1, memory_mb_used=0, local_gb=1,
            local_gb_used=0).create()
        for name, value, group in (
                ('state_path', directory, None),
                ('instances_path', directory / 'instances', None),
                ('lock_path', directory / 'lock', 'oslo_concurrency'),
                ('endpoint', cinder.url, 'cinder'),
                ('volume_use_multipath', multipath, 'libvirt')):
            CONF.set_override(name, str(value) if isinstance(
                value, pathlib.Path) else value, group=group)

    # -- the database ------------------------------------------------------

    @staticmethod
    def context(**more: Any) -> nova_context.RequestContext:
        """Return an admin context without a token: Nova uses its own."""
        return nova_context.RequestContext(
            user_id='user', project_id='project', is_admin=True, **more)

    def server(self, *disks: volumes.Attached, project: str = 'project',
               host: str = HOST) -> str:
        """Create a server and its disks in the database.

        :returns: the id of the server, from the first disk
        """
        context = self.context()
        instance = objects.Instance(
            context, uuid=disks[0].server, project_id=project,
            user_id='user', host=host, node=host, compute_id=1,
            vm_state=vm_states.ACTIVE,
            power_state=power_state.RUNNING, task_state=None,
            display_name='server', hostname='server', memory_mb=64, vcpus=1,
            root_gb=0, ephemeral_gb=0, image_ref=str(uuid.uuid4()),
            root_device_name='/dev/vda', flavor=_flavor(),
            system_metadata={'image_base_image_ref': '',
                             'image_disk_format': 'raw'},
            metadata={}, old_flavor=None, new_flavor=None)
        instance.create()
        objects.BlockDeviceMapping(
            context, instance_uuid=instance.uuid, source_type='image',
            destination_type='local', device_type='disk', boot_index=0,
            device_name='/dev/vda', image_id=instance.image_ref,
            delete_on_termination=True).create()
        for number, attached in enumerate(disks):
            objects.BlockDeviceMapping(
                context, instance_uuid=instance.uuid, source_type='volume',
                destination_type='volume', volume_id=attached.volume,
                attachment_id=attached.id, boot_index=-1,
                device_name=f'/dev/vd{"bcd"[number]}', disk_bus='virtio',
                device_type='disk', volume_size=1,
                connection_info=json.dumps(
                    connection_info(attached))).create()
        return str(instance.uuid)

    def mappings(self, volume: storage.Volume
                 ) -> list[objects.BlockDeviceMapping]:
        """Return Nova's BDMs of a volume."""
        try:
            return list(objects.BlockDeviceMappingList.get_by_volume(
                self.context(), volume.id))
        except exception.VolumeBDMNotFound:
            return []

    def instance(self, server: str) -> objects.Instance:
        return objects.Instance.get_by_uuid(
            self.context(), server, expected_attrs=['metadata', 'flavor'])

    # -- nova-compute ------------------------------------------------------

    def start(self, cleanup: str = 'plugin') -> None:
        """Become this host's nova-compute, just started.

        :param cleanup: ``none``, as before Nova 28; ``builtin``, as since
            Nova 28; ``plugin``
        """
        handler = std_logging.FileHandler(self._log)
        handler.setLevel(std_logging.INFO)
        handler.setFormatter(formatters.ContextFormatter(
            project='nova', datefmt=CONF.log_date_format))
        std_logging.getLogger().addHandler(handler)
        connection = guests.Connection(self.libvirt)
        driver = self._manager.driver
        driver._host.get_connection = lambda: connection
        # They are made on first use, with or without multipath.
        driver.volume_drivers.clear()
        if cleanup == 'plugin':
            self.hooks.install(options.settings(CONF).triggers)
        elif cleanup == 'none':
            _set('nova.compute.manager.ComputeManager._delete_dangling_bdms',
                 lambda *_: None)

    def connect(self, attached: volumes.Attached) -> None:
        """Connect a volume for a use other than a server."""
        info = connection_info(attached)
        self._manager.driver._get_volume_driver(info).connect_volume(
            info, None)

    def give(self, attached: volumes.Attached) -> None:
        """Have Cinder give this host a connection, as an attach begins."""
        self._manager.volume_api.attachment_update(
            self.context(), attached.id, {'host': HOST})

    def reboot(self, server: str) -> None:
        """Reboot a server hard, as Nova's API requests it."""
        context = self.context()
        instance = self.instance(server)
        instance.task_state = task_states.REBOOTING_HARD
        instance.save()
        objects.InstanceAction.action_start(context, server, 'reboot')
        self._manager.reboot_instance(context, instance, None, 'HARD')

    def start_server(self, server: str) -> None:
        """Start a server that is stopped, as Nova's API requests it."""
        context = self.context()
        instance = self.instance(server)
        instance.vm_state = vm_states.STOPPED
        instance.power_state = power_state.SHUTDOWN
        instance.task_state = task_states.POWERING_ON
        instance.save()
        objects.InstanceAction.action_start(context, server, 'start')
        self._manager.start_instance(context, instance)

    def disconnect_late(self) -> None:
        """Disconnect what was suppressed, as at the end of a start."""
        init_host._disconnect_late(
            wrapping.NovaCall({'self': self._manager}, ()), boot.Boot(60))

    def delete(self, server: str) -> None:
        """Delete a server, as far as this host has a part in it."""
        context = self.context()
        instance = self.instance(server)
        instance.task_state = task_states.DELETING
        instance.save()
        objects.InstanceAction.action_start(context, server, 'delete')
        self._manager._shutdown_instance(
            context, instance,
            objects.BlockDeviceMappingList.get_by_instance_uuid(
                context, server), notify=False, try_deallocate_networks=False)

    def evacuate(self, server: str) -> None:
        """Take a server over from a host that is down.

        Nova's claim of resources is left out, and with it the new host of the
        server, which is set afterwards.
        """
        context = self.context()
        instance = self.instance(server)
        instance.task_state = task_states.REBUILDING
        instance.save()
        objects.InstanceAction.action_start(context, server, 'evacuate')
        self._manager._do_rebuild_instance_with_claim(
            context, instance, orig_image_ref=None,
            image_meta=instance.image_meta, injected_files=[], new_pass=None,
            orig_sys_metadata={}, bdms=None, evacuate=True,
            on_shared_storage=False, preserve_ephemeral=False, migration=None,
            request_spec=None, allocations={}, scheduled_node=HOST, limits={},
            rebuild_claim=lambda *_, **__: contextlib.nullcontext(),
            accel_uuids=[], reimage_boot_volume=False, target_state=None)
        instance.host = instance.node = HOST
        instance.compute_id = 1
        instance.save()

    def resume(self, server: str) -> None:
        """Start the guest of a server, as when the host boots."""
        self._manager._resume_guests_state(
            self.context(), self.instance(server),
            network_model.NetworkInfo())

    def detach(self, server: str, volume: str) -> None:
        """Detach a volume, as its owner may; without one Nova's API does not
        ask this host.
        """
        context = self.context()
        try:
            row = objects.BlockDeviceMapping.get_by_volume_and_instance(
                context, volume, server)
        except exception.VolumeBDMNotFound:
            return
        objects.InstanceAction.action_start(context, server, 'detach_volume')
        self._manager.detach_volume(
            context, volume, self.instance(server), row.attachment_id)

    def repair(self, server: str) -> None:
        """Carry out what "nova-bdm-cleanup repair" requests."""
        store = options.settings(CONF).store
        # The start of nova-compute has made it.
        os.makedirs(os.path.dirname(store), mode=0o700, exist_ok=True)
        repairs.begin(self._manager)
        requests = spool.Spool(store, HOST)
        processes.wait_until(lambda: os.path.isdir(requests.path),
                             'the spool')
        answer = requests.ask({'server': server, 'dry_run': False})
        assert 'findings' in answer, answer

    def log(self) -> list[str]:
        """Return the lines of nova-compute's log."""
        return self._log.read_text().splitlines() if self._log.exists() \
            else []


def connection_info(attached: volumes.Attached) -> dict[str, Any]:
    """Return the connection information as Nova keeps it: type and data."""
    data = dict(attached.connection)
    kind = data.pop('driver_volume_type')
    return {'driver_volume_type': kind, 'data': data, 'status': 'attached',
            'instance': attached.server, 'serial': attached.volume}


def _flavor() -> objects.Flavor:
    return objects.Flavor(
        id=1, name='small', flavorid='1', memory_mb=64, vcpus=1, root_gb=0,
        ephemeral_gb=0, swap=0, rxtx_factor=1.0, vcpu_weight=0,
        disabled=False, is_public=True, extra_specs={}, description=None,
        projects=[])


def _set(name: str, value: Any) -> None:
    """Replace an attribute for the rest of this short process."""
    mock.patch(name, value).start()
