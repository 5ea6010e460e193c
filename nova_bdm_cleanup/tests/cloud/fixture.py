# SPDX-License-Identifier: Apache-2.0
"""The cloud: one fixture that starts all services and controls them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import datetime
import inspect
import json
import os
import pathlib
import re
import shutil
import tempfile
import time
import types
from typing import Any
import uuid
from xml.etree import ElementTree

# Nova's harness first: it may monkey patch what the others import.
from nova_bdm_cleanup.tests.cloud import nova  # isort: skip

import fixtures
from nova import objects
from oslo_config import cfg
import requests

from nova_bdm_cleanup.tests.cloud import (
    cinder as cinder_module,
    identity,
    messages,
    standin,
    template,
)
from nova_bdm_cleanup.tests.cloud.proxy import Proxy, rewrite
from nova_bdm_cleanup.tests.cloud.recorder import (
    BACK_END,
    CINDER,
    Crash,
    Event,
    Recorder,
)
from nova_bdm_cleanup.tests.cloud.server import Disk, Server
from nova_bdm_cleanup.tests.cloud.snapshot import (
    ActionEvent,
    Attachment,
    BlockDevice,
    GuestDisk,
    Snapshot,
    Volume,
)

IMAGE = standin.IMAGE
TIMEOUT = 60
#: Servers with more disks are rare: a template for each would not pay.
_MAX_DISKS_OF_TEMPLATE = 3
_volume_templates: dict[Any, template.VolumeTemplate] = {}
_server_templates: dict[Any, template.ServerTemplate] = {}


class APIError(Exception):
    """Nova's API refused a request."""

    def __init__(self, response: requests.Response) -> None:
        super().__init__(f'{response.request.method} {response.url}: '
                         f'{response.status_code} {response.text}')
        self.status = response.status_code


class Cloud(fixtures.Fixture):
    """One Nova, the Cinder of this process and the proxy between them.

    :param plugin: whether the plugin is hooked into nova-compute
    :param plugin_options: values for nova.conf's ``[bdm_cleanup]``
    :param cinder_credentials: whether nova.conf's ``[cinder]`` has any
    :param service_token: whether Nova sends service tokens to Cinder
    :param hosts: the nova-computes to start
    :param nova_options: more of nova.conf, by section
    :param casts: whether casts are asynchronous, as in a real cloud;
        otherwise an API request is finished when it is answered
    """

    def __init__(self, plugin: bool = False,
                 plugin_options: Mapping[str, Any] | None = None,
                 cinder_credentials: bool = True,
                 service_token: bool = True,
                 hosts: Sequence[str] = ('compute1',),
                 nova_options: Mapping[str, Mapping[str, Any]] | None = None,
                 casts: bool = False) -> None:
        super().__init__()
        self._plugin = plugin
        self._plugin_options = dict(plugin_options or {})
        self._cinder_credentials = cinder_credentials
        self._service_token = service_token
        #: The hosts with a nova-compute.
        self.hosts = tuple(hosts)
        self._nova_options = {
            section: dict(values)
            for section, values in (nova_options or {}).items()}
        self._casts = casts
        self._hosts_without_plugin: set[str] = set()
        #: Whether Nova's and Cinder's APIs create every server and volume;
        #: otherwise most are copies of the first ones.
        self.through_api = True

    def _create_users(self) -> None:
        """Create new users, unknown to all services."""
        unique = uuid.uuid4().hex[:12]
        #: The user whose servers these are.
        self.owner = identity.Caller('owner', f'project-{unique}')
        #: A user without access to them.
        self.other_user = identity.Caller('other-user', f'other-{unique}')
        #: An administrator of another project.
        self.admin = identity.Caller('admin', f'admin-{unique}',
                                     identity.ADMIN)
        self._cinder_admin = self.cinder.client(self.admin)

    def _setUp(self) -> None:
        self.cinder = cinder_module.shared().cinder()
        self.addCleanup(self.cinder.repair_driver)
        self._create_users()
        self.recorder = Recorder()
        self.proxy = Proxy(self.cinder.url)
        self.addCleanup(self.proxy.close)
        self.state = pathlib.Path(tempfile.mkdtemp(
            prefix='nova-', dir=cinder_module.shared().root))
        self.addCleanup(shutil.rmtree, self.state)
        stand_in = cinder_module.shared().stand_in
        identity.catalogue.set('identity', stand_in.identity_url)
        identity.catalogue.set('image', stand_in.image_url)
        for service_type in ('volumev3', 'block-storage'):
            identity.catalogue.set(service_type,
                                   self.proxy.url + '/v3/%(project_id)s')
        if self._plugin or self._plugin_options:
            # Not installed in the environment, so nothing else registers the
            # options in Nova.
            from nova_bdm_cleanup.node import options as plugin_options
            plugin_options.register_opts(cfg.CONF)
        options = dict(self._nova_options)
        if self._plugin:
            # Each database is one file, so no read lags.
            options['bdm_cleanup'] = {'mode': 'enforce', 'settle_time': 0,
                                      **self._plugin_options}
        self.nova = nova.Harness(
            nova.write_configuration(
                self.state, self.proxy.url, self._cinder_credentials,
                self._service_token, options),
            self.recorder, self._casts)
        self.addCleanup(self.nova.tear_down)
        self.nova.setUp()
        identity.catalogue.set('compute', self.nova.url)
        identity.catalogue.set('placement', self.nova.placement_url)
        if self._plugin:
            self.switch_plugin_on()
            self.addCleanup(self.switch_plugin_off)
        for host in self.hosts:
            self.nova.start_compute(host)
        # With the service token, Cinder allows operations of Nova only.
        self._cinder_nova = self.cinder.client(identity.NOVA, service=True)

    # -- reset -------------------------------------------------------------

    def save(self) -> None:
        """Save the state of the cloud, which :meth:`reset` restores."""
        self._saved = self.nova.copy_databases()

    def reset(self, restart: bool = False) -> None:
        """Restore the state of the cloud that :meth:`save` saved.

        Nova's databases are restored.  There is no server on a host, no
        volume in any Cinder, nothing in the logs, no rule in the proxy and
        no hook in the recorder; the users are new and the plugin is as it was
        configured.  The memory of a nova-compute stays, unless it is
        restarted.

        :param restart: restart every nova-compute
        """
        if self._plugin:
            self.switch_plugin_off()
        self._hosts_without_plugin.clear()
        self.nova.remove_domains()
        self.nova.restore_databases(self._saved)
        for each in cinder_module.shared().cinders.values():
            each.purge()
        self.use_right_cinder()
        self.proxy.clear()
        self.proxy.latency = 0.0
        for directory in (*self.nova.directory().glob('*-*-*'),
                          self.state / 'stores'):
            shutil.rmtree(directory, ignore_errors=True)
        self._create_users()
        if self._plugin:
            self.switch_plugin_on()
        if restart:
            for host in self.hosts:
                self.restart_compute(host)
        os.truncate(self.state / 'nova.log', 0)
        self.start_timeline()
        self._assert_empty()

    def _assert_empty(self) -> None:
        """Check that no created resource is left."""
        for host in self.hosts:
            assert not self.nova.domains(host), host
        with self.nova.database('cell1') as database:
            servers = database.execute('SELECT uuid FROM instances')
            assert not servers.fetchall()
        with self.cinder.database() as cinder:
            assert not cinder.execute('SELECT id FROM volumes').fetchall()
        assert not any(self.nova.connected.values())

    # -- creating resources ------------------------------------------------

    def volume(self, name: str = '', owner: identity.Caller | None = None,
               multiattach: bool = False) -> str:
        """Create a volume and wait until it is available.

        :param name: a name for it
        :param owner: its owner, if another user
        :param multiattach: whether several servers can attach it
        :returns: its id
        """
        if self.through_api or owner:
            return self._make_volume(name, owner or self.owner, multiattach)
        key = self.cinder.url, multiattach
        if key not in _volume_templates:
            volume = self._make_volume('template', self.owner, multiattach)
            _volume_templates[key] = template.of_volume(self, volume)
            self.cinder.purge_volume(volume)
        return _volume_templates[key].make(self, name)

    def _make_volume(self, name: str, owner: identity.Caller,
                     multiattach: bool = False, image: bool = False) -> str:
        """Create a volume through the API, optionally a bootable one."""
        volume = self.cinder.client(owner).volumes.create(
            1, name=name, imageRef=IMAGE if image else None,
            volume_type=cinder_module.MULTIATTACH_TYPE if multiattach
            else None).id
        self.cinder.wait(volume, 'available')
        return volume

    def snapshot_of_volume(self) -> str:
        """Create a volume and a snapshot of it; return the snapshot's id."""
        client = self.cinder.client(self.owner)
        snapshot = client.volume_snapshots.create(self.volume())
        deadline = time.monotonic() + TIMEOUT
        while client.volume_snapshots.get(snapshot.id).status != 'available':
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return snapshot.id

    def server(self, *disks: Disk, root: str = 'image', name: str = 'server',
               host: str | None = None,
               owner: identity.Caller | None = None,
               in_order: bool = False) -> Server:
        """Create a server and wait until it runs.

        :param disks: its volumes
        :param root: ``image``, or ``volume`` to boot from one
        :param name: its name
        :param host: where to run it, if it matters
        :param owner: its owner, if another user
        :param in_order: have the ids of its volumes be in their order, where
            it is a copy
        """
        if (self.through_api or owner or len(disks) > _MAX_DISKS_OF_TEMPLATE
                or any(disk.volume or disk.source != 'volume'
                       for disk in disks)):
            return self._make_server(disks, root, name, host,
                                     owner or self.owner)
        wanted = (tuple(dataclasses.replace(disk, name='') for disk in disks),
                  root, host or self.hosts[0])
        # Volumes name their type, whose id is different in every Cinder.
        key = self.cinder.url, wanted
        if key not in _server_templates:
            _server_templates[key] = self._make_template(*wanted)
        return _server_templates[key].make(
            self, name, [disk.name or f'{name}-{number}'
                         for number, disk in enumerate(disks, 1)], in_order)

    def _make_template(self, disks: Sequence[Disk], root: str, host: str
                       ) -> template.ServerTemplate:
        """Create a server, make a template of it and remove it."""
        before = self.nova.copy_databases()
        server = self._make_server(disks, root, 'template', host, self.owner)
        made = template.of_server(self, server)
        self.nova.restore_databases(before)
        self.nova.remove_domain(host, server.id)
        shutil.rmtree(self.nova.directory(server.id), ignore_errors=True)
        for volume in (server.root, *server.volumes):
            if volume:
                self.nova.connected[host].pop(volume, None)
                self.cinder.purge_volume(volume)
        return made

    def _make_server(self, disks: Sequence[Disk], root: str, name: str,
                     host: str | None, owner: identity.Caller) -> Server:
        """Create a server through the API."""
        root_volume = self._make_volume(
            f'{name}-root', owner, image=True) if root == 'volume' else None
        volumes = [
            disk.volume or self._make_volume(
                disk.name or f'{name}-{number}', owner, disk.multiattach)
            if disk.source == 'volume' else None
            for number, disk in enumerate(disks, 1)]
        mappings = [{
            'boot_index': 0, 'uuid': root_volume or IMAGE,
            'source_type': 'volume' if root_volume else 'image',
            'destination_type': 'volume' if root_volume else 'local',
            'delete_on_termination': not root_volume}]
        for disk, volume in zip(disks, volumes):
            if disk.at_boot or volume is None:
                mappings.append(self._mapping(disk, volume))
        request: dict[str, Any] = {
            'name': name, 'networks': 'none', 'flavorRef': '1',
            'block_device_mapping_v2': mappings}
        if not root_volume:
            request['imageRef'] = IMAGE
        if host:
            request['availability_zone'] = f'nova:{host}'
        created = self.request(
            'POST', '/servers', {'server': request},
            # Only administrators choose hosts.
            by=dataclasses.replace(self.admin, project=owner.project)
            if host else owner)['server']['id']
        self.wait_for_status(created, 'ACTIVE')
        made = self._made_volumes(created, volumes)
        server = Server(created, name, self.nova.instance(created).host,
                        root_volume, tuple(made))
        for disk, volume in zip(disks, made):
            if not disk.at_boot and disk.source == 'volume':
                self.attach(server, volume, tag=disk.tag, by=owner)
        return server

    def _mapping(self, disk: Disk, volume: str | None) -> dict[str, Any]:
        """Return the entry of a disk in the request for a server."""
        mapping = {
            'boot_index': -1, 'source_type': disk.source,
            'destination_type': 'volume', 'volume_size': 1,
            'delete_on_termination': False}
        if disk.source != 'blank':
            mapping['uuid'] = {
                'volume': lambda: volume, 'image': lambda: IMAGE,
                'snapshot': self.snapshot_of_volume}[disk.source]()
        if disk.tag:
            mapping['tag'] = disk.tag
        return mapping

    def _made_volumes(self, server_id: str, volumes: Sequence[str | None]
                      ) -> list[str]:
        """Fill in the volumes that Nova has created."""
        made = (row.volume_id for row in self.nova.block_devices(server_id)
                if row.destination_type == 'volume' and row.boot_index != 0
                and row.source_type != 'volume')
        return [volume or next(made) for volume in volumes]

    def attach(self, server: Server, volume: str, tag: str | None = None,
               by: identity.Caller | None = None) -> None:
        """Attach a volume through Nova's API and wait until it is in use."""
        request = {'volumeId': volume, **({'tag': tag} if tag else {})}
        self.request('POST', f'/servers/{server.id}/os-volume_attachments',
                     {'volumeAttachment': request}, by=by)
        self.cinder.wait(volume, 'in-use')

    def detach(self, server: Server, volume: str) -> None:
        """Detach a volume through Nova's API."""
        self.request('DELETE', f'/servers/{server.id}'
                     f'/os-volume_attachments/{volume}')

    def swap(self, server: Server, old: str, new: str) -> None:
        """Swap a volume through Nova's API, as a migration in Cinder does."""
        # Later releases of Nova swap volumes for Cinder only.
        self.proxy.on('GET', f'/volumes/{old}', rewrite(
            lambda body: {'volume': {**body['volume'],
                                     'migration_status': 'migrating'}}),
            nth=1)
        try:
            self.request(
                'PUT', f'/servers/{server.id}/os-volume_attachments/{old}',
                {'volumeAttachment': {'volumeId': new}},
                by=dataclasses.replace(self.admin,
                                       project=self.owner.project))
        finally:
            self.proxy.clear()

    # -- causing damage ----------------------------------------------------

    def lose_attachment(self, server: Server, volume: str) -> None:
        """Delete a volume's attachment behind Nova's back.

        The volume becomes available; Nova's row, the guest's disk and the
        host's connection stay.
        """
        for attachment in self.attachments(volume):
            if attachment.server_id == server.id:
                self._cinder_nova.attachments.delete(attachment.id)

    def lose_volume(self, server: Server, volume: str) -> None:
        """Delete a volume behind Nova's back, its attachment first."""
        self.lose_attachment(server, volume)
        self.delete_volume(volume)

    def delete_volume(self, volume: str) -> None:
        """Delete a volume, and wait until it is deleted."""
        self._cinder_admin.volumes.delete(volume)
        self.cinder.wait(volume, None)

    def reset_status(self, volume: str, status: str = 'available') -> None:
        """Reset the status of a volume; its attachments stay."""
        self._cinder_admin.volumes.reset_state(volume, status)

    def attach_elsewhere(self, server: Server, volume: str,
                  host: str | None = None) -> Server:
        """Detach a volume behind Nova's back and give it to a new server.

        The new one boots with it: Nova refuses to attach a volume to a
        running server while a row of another one names it, but does not
        check this when a server is created.

        :param server: the server that loses the volume
        :param volume: a volume, optionally multiattach
        :param host: where to run the new server, if it matters
        :returns: the new server, which has the volume
        """
        self.lose_attachment(server, volume)
        successor = self.server(Disk(volume=volume, at_boot=True),
                                name=f'{server.name}-successor', host=host)
        if successor.host != server.host:
            # The process of a host does not know what another host got.
            self._lose_memory()
        return successor

    def create_attachment(self, server: Server, volume: str,
                         connected: bool = True, host: str | None = None,
                         by: identity.Caller | None = None,
                         initiator: str = 'iqn.2026-01.test:initiator'
                         ) -> str:
        """Leave an attachment of a server that Nova knows nothing about.

        :param server: the server it names
        :param volume: the volume it attaches
        :param connected: whether it has a connection; without one, it is
            only reserved
        :param host: the host it is connected to, if not the server's; free
            text, which Cinder does not check
        :param by: its creator, if not Nova: any member of the volume's
            project can create it, for any server
        :param initiator: the host's name on the storage network
        :returns: the attachment's id
        """
        connector = {'host': host or server.host, 'ip': '127.0.0.1',
                     'initiator': initiator}
        attachments = (self.cinder.client(by) if by
                       else self._cinder_nova).attachments
        attachment = attachments.create(
            volume, connector if connected else None, server.id)['id']
        if connected:
            attachments.complete(attachment)
        return attachment

    def create_legacy_attachment(self, server: Server, volume: str) -> str:
        """Leave an attachment as Nova created them before Queens.

        The back end is connected, but the record does not show how.

        :returns: the attachment's id
        """
        volumes = self._cinder_nova.volumes
        volumes.reserve(volume)
        volumes.initialize_connection(volume, {
            'host': server.host, 'ip': '127.0.0.1',
            'initiator': 'iqn.2026-01.test:initiator'})
        volumes.attach(volume, server.id, '/dev/vdz', mode='rw',
                       host_name=server.host)
        return next(attachment.id for attachment in self.attachments(volume)
                    if attachment.server_id == server.id)

    def begin_transfer(self, volume: str) -> Any:
        """Begin a transfer of a volume, which must be available."""
        return self.cinder.client(self.owner).transfers.create(volume)

    def transfer_volume(self, volume: str, to: identity.Caller) -> None:
        """Transfer a volume, which must be available, to another project."""
        transfer = self.begin_transfer(volume)
        self.cinder.client(to).transfers.accept(
            transfer.id, transfer.auth_key)

    def change(self, server: Server, **values: Any) -> None:
        """Change Nova's record of a server, as only Nova can."""
        instance = self.nova.instance(server.id)
        for name, value in values.items():
            setattr(instance, name, value)
        instance.save()

    def change_row(self, server: Server, volume: str, **values: Any) -> Any:
        """Change Nova's row that names a volume; return the row."""
        row = self.row(server, volume)
        for name, value in values.items():
            setattr(row, name, value)
        row.save()
        return row

    def change_connection_data(self, server: Server, volume: str,
                               **data: Any) -> None:
        """Change the connection info of a volume, as if Cinder had given it.

        :param data: fields of its ``data``, for example ``target_lun``
        """
        row = self.row(server, volume)
        info = json.loads(row.connection_info)
        info['data'].update(data)
        self.change_row(server, volume, connection_info=json.dumps(info))
        self.cinder.change_connection(row.attachment_id, data)
        self.nova.kernel.set_address(server.host, info['data'])

    def use_wrong_cinder(self) -> None:
        """Redirect Nova to another, empty Cinder."""
        self.proxy.target = cinder_module.shared().cinder('another-region').url

    def use_right_cinder(self) -> None:
        """Undo :meth:`use_wrong_cinder`."""
        self.proxy.target = self.cinder.url

    def switch_plugin_off(self) -> None:
        """Restore nova-compute's own methods, as a restart without the
        plugin in nova.conf does.
        """
        from nova_bdm_cleanup.node.hooks import installation
        installation.uninstall()

    def switch_plugin_on(self) -> None:
        """Undo :meth:`switch_plugin_off`."""
        from nova_bdm_cleanup.node import options
        from nova_bdm_cleanup.node.hooks import installation
        settings = options.settings(cfg.CONF)
        self._lose_memory()
        installation.install(settings.triggers)

    def _lose_memory(self) -> None:
        """Have the plugin forget what it remembers, as a new process does.

        All nova-computes of this process share it.
        """
        from nova_bdm_cleanup.node import connections, operations
        connections._answers.clear()
        operations.PROCESS_BEGAN = datetime.datetime.now(
            datetime.timezone.utc)

    def switch_plugin_off_on(self, host: str) -> None:
        """Restore the own methods of one nova-compute, until :meth:`reset`.

        The hooks are on the class, for all hosts of this process.
        """
        self._hosts_without_plugin.add(host)
        self.restart_compute(host)

    # -- actions -----------------------------------------------------------

    def reboot(self, server: Server, hard: bool = True,
               by: identity.Caller | None = None) -> None:
        """Reboot a server through Nova's API.

        It has ended when this returns; check the server's status.
        """
        self.act(server, {'reboot': {'type': 'HARD' if hard else 'SOFT'}},
                 by=by)

    def act(self, server: Server, action: Mapping[str, Any],
            by: identity.Caller | None = None) -> None:
        """Request an action on a server from Nova's API, and wait for its end.

        :param action: the body of the request
        """
        self.request('POST', f'/servers/{server.id}/action', action, by=by)
        self.wait_until_idle(server)

    def wait_until_idle(self, server: Server) -> None:
        """Wait until Nova's operation on a server succeeds or fails."""
        # Dozens of messages, on a possibly busy machine.
        deadline = time.monotonic() + 5 * TIMEOUT
        looks = 2 if self._casts else 0
        while looks:
            assert time.monotonic() < deadline, messages.methods_in_progress()
            # Between two messages no service is active.
            time.sleep(0.02)
            with self.nova.database('cell1') as database:
                is_busy = database.execute(
                    "SELECT 1 FROM instances WHERE uuid = ? AND task_state "
                    "IS NOT NULL UNION SELECT 1 FROM migrations WHERE "
                    "instance_uuid = ? AND migration_type = 'live-migration' "
                    "AND status IN ('accepted', 'queued', 'preparing', "
                    "'running')", (server.id, server.id)).fetchall()
            if is_busy or messages.methods_in_progress():
                looks = 2
            else:
                looks -= 1

    def delete(self, server: Server) -> None:
        """Delete a server through Nova's API."""
        self.request('DELETE', f'/servers/{server.id}')
        self.wait_until_idle(server)

    def stop(self, server: Server) -> None:
        """Stop a server through Nova's API, which powers its guest off."""
        self.act(server, {'os-stop': None})

    def start(self, server: Server, by: identity.Caller | None = None
              ) -> None:
        """Start a server through Nova's API.

        It has ended when this returns; check the server's status.
        """
        self.act(server, {'os-start': None}, by=by)

    def lose_power(self, server: Server) -> None:
        """Stop a guest as a power loss of its host does.

        Nova is not notified: :meth:`restart_compute` then resumes it if
        nova.conf says so.
        """
        domain = self.domain(server)
        if domain.isActive():
            domain.destroy()

    def run_until_crash(self, server: Server, trigger: str) -> None:
        """Bring a server back inside a nova-compute that dies.

        Set the step with :meth:`Recorder.before` and ``recorder.crash``.
        The method of nova-compute is called directly, because a messaging
        server cannot be killed; and ``init_host`` is called on the running
        one, because one that has not started cannot be restarted.

        :param trigger: the word of the plugin's option ``triggers``
        :raises AssertionError: when nova-compute survived
        """
        service = self.nova.computes[server.host]
        try:
            if trigger == 'hard_reboot':
                service.manager.reboot_instance(
                    *self._start_action(server, 'reboot', 'rebooting_hard'),
                    None, 'HARD')
            elif trigger == 'start':
                service.manager.start_instance(
                    *self._start_action(server, 'start', 'powering-on'))
            else:
                # Nova 27 and later pass it.
                service.manager.init_host(*[
                    service.service_ref for name in
                    inspect.signature(service.manager.init_host).parameters
                    if name == 'service_ref'])
        except Crash:
            # It may have died for another reason; the next one must not.
            self.recorder.remove_hooks()
            return
        raise AssertionError(f'nova-compute survived the {trigger}')

    def _start_action(self, server: Server, action: str, task_state: str
                      ) -> tuple[Any, Any]:
        """Start an action of the owner; return its context and instance."""
        self.change(server, task_state=task_state)
        caller = self.owner
        context = self.nova.context(
            user_id=caller.user, project_id=caller.project,
            roles=list(caller.roles), auth_token=caller.token,
            service_catalog=json.loads(
                identity.catalogue.header(caller.project)), is_admin=False)
        objects.InstanceAction.action_start(context, server.id, action)
        return context, self.nova.instance(server.id)

    def restart_compute(self, host: str = 'compute1',
                        reports_resources: bool = False) -> None:
        """Restart nova-compute, which resumes interrupted operations.

        :param reports_resources: whether it tells Placement of the resources
            and of the plugin again; see
            :meth:`nova.Harness.restart_compute_service`
        """
        if host not in self._hosts_without_plugin:
            if self._plugin:
                self._lose_memory()
            self.nova.restart_compute_service(
                host, reports_resources=reports_resources)
            return
        from nova_bdm_cleanup.node.hooks import installation
        self.restart_compute_without_plugin(host)
        self.switch_plugin_on()
        manager = self.nova.computes[host].manager
        for (owner, name), original in installation._originals.items():
            hooked = next(
                each for each in (manager, manager.driver, manager.volume_api)
                if isinstance(each, owner))
            setattr(hooked, name, types.MethodType(original, hooked))

    def restart_compute_without_plugin(self, host: str = 'compute1') -> None:
        """Restart nova-compute with the plugin off, until it is switched on.

        All nova-computes of this process are without it then.
        """
        # The one that stops has the plugin.
        self.nova.computes[host].stop()
        self.switch_plugin_off()
        self.nova.restart_compute_service(host)

    # -- queries -----------------------------------------------------------

    def domain(self, server: Server) -> Any:
        """Return the guest of a server in its hypervisor, or None."""
        return next((domain for domain in self.nova.domains(server.host)
                     if domain.UUIDString() == server.id), None)

    def row(self, server: Server, volume: str) -> Any:
        """Return Nova's row that names a volume, as a mutable object."""
        return next(row for row in self.nova.block_devices(server.id)
                    if row.volume_id == volume and not row.deleted)

    def request(self, method: str, path: str, body: Any = None,
                by: identity.Caller | None = None) -> Any:
        """Send a request to Nova's API.

        :param by: its sender, if not the owner
        :returns: the decoded body of the answer
        :raises APIError: when it is refused
        """
        response = requests.request(
            method, self.nova.url + path, json=body, headers={
                'X-Auth-Token': (by or self.owner).token,
                'OpenStack-API-Version': f'compute {nova.MICROVERSION}'})
        if not response.ok:
            raise APIError(response)
        return response.json() if response.content else None

    def wait_for_status(self, server_id: str, status: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while True:
            server = self._show(server_id)
            if server['status'] == status and \
                    not server['OS-EXT-STS:task_state']:
                return
            assert server['status'] != 'ERROR', server.get('fault')
            assert time.monotonic() < deadline, server['status']
            time.sleep(0.05)

    def _show(self, server_id: str) -> dict[str, Any]:
        return self.request('GET', f'/servers/{server_id}',
                            by=self.admin)['server']

    def allocate(self, server: Server) -> None:
        """Allocate for a copied server what its original had allocated."""
        flavor = self.nova.instance(server.id).flavor
        assert self.nova.placement.put(
            f'/allocations/{server.id}', {
                'allocations': {self.nova.compute_rp_uuids[server.host]: {
                    'resources': {'VCPU': flavor.vcpus,
                                  'MEMORY_MB': flavor.memory_mb}}},
                'project_id': self.owner.project,
                'user_id': self.owner.user, 'consumer_generation': None},
            version='1.28').status == 204

    def allocations(self) -> list[tuple[str, str]]:
        """Return all allocations, as pairs of consumer uuid and host."""
        with self.nova.database('placement') as database:
            return database.execute(
                'SELECT DISTINCT consumer_id, name FROM allocations JOIN '
                'resource_providers ON resource_provider_id = '
                'resource_providers.id').fetchall()

    def attachments(self, volume: str) -> tuple[
            Attachment, ...]:
        """Return all attachments of a volume."""
        return self._attachments(volume_id=volume)

    def _attachments(self, **filters: str) -> tuple[
            Attachment, ...]:
        found = self._cinder_admin.attachments.list(
            detailed=True, search_opts={'all_tenants': 1, **filters})
        return tuple(Attachment(
            id=each.id, volume_id=each.volume_id, server_id=each.instance,
            status=each.status, is_connected=bool(each.connection_info))
            for each in found)

    def _volumes(self) -> dict[str, Volume]:
        """Return all volumes, by id."""
        attachments = self._attachments()
        return {found.id: Volume(
            id=found.id, name=found.name, status=found.status,
            is_multiattach=found.multiattach, metadata=found.metadata,
            attachments=tuple(
                attachment for attachment in attachments
                if attachment.volume_id == found.id))
            for found in self._cinder_admin.volumes.list(
                search_opts={'all_tenants': 1})}

    def look(self, server: Server, *volumes: str) -> Snapshot:
        """Return the view of a server in all services.

        :param volumes: volumes to include even if no record names them
        """
        shown = self._show(server.id)
        rows = [self._block_device(row)
                for row in self.nova.block_devices(server.id)]
        every = self._volumes()
        attachments = tuple(
            attachment for volume in every.values()
            for attachment in volume.attachments
            if attachment.server_id == server.id)
        domain = self.domain(server)
        named = dict.fromkeys(
            [row.volume_id for row in rows if row.volume_id]
            + [attachment.volume_id for attachment in attachments]
            + [*server.volumes, *volumes])
        return Snapshot(
            server_id=server.id, host=server.host, status=shown['status'],
            task_state=shown['OS-EXT-STS:task_state'],
            fault=shown.get('fault', {}).get('message'),
            is_running=bool(domain and domain.isActive()),
            block_devices=tuple(row for row in rows if not row.deleted),
            removed_block_devices=tuple(row for row in rows if row.deleted),
            volumes={volume: every.get(volume) for volume in named},
            attachments=attachments,
            disks=_disks(domain.XMLDesc(0)) if domain else (),
            connected=tuple(self.nova.connected[server.host]),
            used_by_others=tuple(
                disk.volume_id for other in self.nova.domains(server.host)
                if other.UUIDString() != server.id
                for disk in _disks(other.XMLDesc(0)) if disk.volume_id),
            actions=tuple(self._actions(server)))

    @staticmethod
    def _block_device(row: Any) -> BlockDevice:
        return BlockDevice(
            uuid=row.uuid, source_type=row.source_type,
            destination_type=row.destination_type, boot_index=row.boot_index,
            device_name=row.device_name, volume_id=row.volume_id,
            attachment_id=row.attachment_id,
            connection_info=json.loads(row.connection_info)
            if row.connection_info else None,
            tag=row.tag, delete_on_termination=row.delete_on_termination,
            deleted=bool(row.deleted))

    def _actions(self, server: Server) -> Iterable[ActionEvent]:
        """Yield the events that the API shows, from its database: cheaper."""
        context = self.nova.context()
        actions = objects.InstanceActionList.get_by_instance_uuid(
            context, server.id)
        for action in reversed(actions):
            events = objects.InstanceActionEventList.get_by_action(
                context, action.id)
            for event in reversed(events):
                yield ActionEvent(action.action, event.event, event.result,
                                  action.request_id)

    def timeline(self, *subjects: str) -> list[Event]:
        """Return all steps since :meth:`start_timeline`, in order of time.

        :param subjects: only steps on these servers and volumes; requests to
            Cinder also count when they name an attachment of a volume only
            by its id, because those do not name the volume
        """
        events = list(self.recorder.events)
        events.extend(Event(
            call['time'], BACK_END, call['call'],
            call['volume'])
            for call in self.cinder.driver_calls()
            if call['time'] >= self._epoch and not call['failed'])
        events.extend(Event(
            request.time, CINDER, request.method,
            request.path) for request in self.proxy.requests)
        return sorted(
            event for event in events
            if not subjects or event.party == CINDER
            or any(subject in event.subject for subject in subjects))

    _epoch = 0.0

    def start_timeline(self) -> None:
        """Start a new timeline: the steps so far were preparation."""
        self._epoch = time.time()
        self.recorder.clear()
        self.proxy.requests.clear()

    def log(self, pattern: str = '') -> list[str]:
        """Return the lines of Nova's log that match, like grep."""
        lines = (self.state / 'nova.log').read_text().splitlines()
        return [line for line in lines if re.search(pattern, line)]


def _disks(xml: str) -> tuple[GuestDisk, ...]:
    """Return the disks of a guest."""
    disks = []
    for disk in ElementTree.fromstring(xml).iterfind('./devices/disk'):
        source, target = disk.find('source'), disk.find('target')
        path = None if source is None else (
            source.get('file') or source.get('dev'))
        disks.append(GuestDisk(
            '' if target is None else target.get('dev', ''), path,
            disk.findtext('serial')))
    return tuple(disks)
