# SPDX-License-Identifier: Apache-2.0
"""A real Nova in this process, on Nova's own functional test harness.

API, conductor, scheduler and nova-compute with the libvirt driver are the
installed release; libvirt itself, os-brick, Neutron and Glance are the
harness's fakes.  Its fake of Cinder is not used: requests go out over HTTP.
Importing this module selects the concurrency of the whole process, as the
import of Nova's tests does.
"""

from __future__ import annotations

# First of all: it may monkey patch the standard library.
from nova.tests.functional.libvirt import base  # isort: skip

import collections
from collections.abc import Callable, Iterator, Mapping
import contextlib
import gc
import logging
import pathlib
import sqlite3
import sys
import threading
from typing import Any
from unittest import mock
from xml.etree import ElementTree

from cinderclient import client as cinderclient
import fixtures
from keystoneauth1 import loading as ks_loading
from nova import context as nova_context, objects, service_auth
from nova.api import wsgi
import nova.api.auth
import nova.api.openstack.compute  # noqa: F401 (before workers are forked)
import nova.config
from nova.db.api import api as api_db
from nova.tests.fixtures import libvirt as fake_libvirt
from nova.virt import block_device
from nova.virt.libvirt import event as libvirt_event, utils as libvirt_utils
from nova.virt.libvirt.volume import iscsi as libvirt_iscsi
from nova.volume import cinder as nova_cinder
from os_brick.initiator.connectors import iscsi
from oslo_concurrency import processutils
from oslo_log import formatters
from placement import db_api as placement_db, deploy as placement_deploy

from nova_bdm_cleanup.tests.cloud import identity, kernel, messages, web
from nova_bdm_cleanup.tests.cloud.recorder import (
    GUEST,
    HOST,
    NOVA,
    Recorder,
    REQUEST,
)

CONF = nova.conf.CONF
#: The tests' requests; Nova 25 knows it.
MICROVERSION = '2.89'
DATABASES = ('api', 'cell0', 'cell1', 'placement')

messages.deliver_at_once()
# Existing objects stay: exempt them from garbage collections, and look for
# cycles among the new ones rarely.
gc.collect()
gc.freeze()
gc.set_threshold(50_000, 20, 20)

# The harness replaces it by a function that makes up contexts.
_create_context = nova.api.auth.NovaKeystoneContext.__dict__['_create_context']

_CONFIGURATION = """\
[DEFAULT]
state_path = {state}
# Nova polls a new volume every few seconds; this Cinder is faster.
block_device_allocate_retries_interval = 0
block_device_allocate_retries = 1000
# A test may stop the reports of a nova-compute.  It must stay up for the next
# test of the class.
service_down_time = 2000000000
# The API waits until a reboot is over.
rpc_response_timeout = 600
# Guests of the fake libvirt do not shut down by themselves.
shutdown_timeout = 0
[libvirt]
# The fake libvirt does not find the device by the name of old releases.
device_detach_timeout = 1
# The response schema of Nova 33 does not allow a mapping without an
# attachment, and to validate a response takes longer than to make it.
[api]
response_validation = ignore
# Many servers of one project.
[quota]
instances = -1
cores = -1
ram = -1
"""

_CINDER_CREDENTIALS = """\
[cinder]
auth_type = admin_token
endpoint = {url}/v3/{caller.project}
token = {caller.token}
"""

_SERVICE_USER = """\
[service_user]
send_service_user_token = true
auth_type = admin_token
endpoint = {url}
token = {caller.token}
"""


def write_configuration(
        state: pathlib.Path, cinder_url: str, cinder_credentials: bool,
        service_token: bool, options: dict[str, dict[str, Any]]
        ) -> pathlib.Path:
    """Write nova.conf as an operator would.

    :param state: the directory for it and for Nova's ``state_path``
    :param cinder_url: URL of Cinder for Nova
    :param cinder_credentials: whether ``[cinder]`` has credentials for
        Nova's own requests
    :param service_token: whether Nova sends service tokens
    :param options: other options, by section and name
    :returns: the path of nova.conf
    """
    etc = state / 'etc' / 'nova'
    etc.mkdir(parents=True)
    # The path in a wheel.  The default of the option is below the state path
    # in the harness, so no option is needed.
    shipped = pathlib.Path(sys.prefix) / 'etc' / 'nova' / 'api-paste.ini'
    (etc / 'api-paste.ini').write_text(
        identity.with_text_tokens(shipped.read_text()))
    text = _CONFIGURATION.format(state=state)
    if cinder_credentials:
        text += _CINDER_CREDENTIALS.format(
            url=cinder_url, caller=identity.NOVA)
    if service_token:
        text += _SERVICE_USER.format(
            url=cinder_url, caller=identity.NOVA_SERVICE)
    for section, values in options.items():
        # oslo.config merges the sections of one name.
        text += f'[{section}]\n' + ''.join(
            f'{name} = {value}\n' for name, value in values.items())
    path = etc / 'nova.conf'
    path.write_text(text)
    return path


def _create_image(driver: Any, context: Any, instance: Any, *args: Any,
                  **kwargs: Any) -> tuple[bool, bool]:
    """Create an image-backed root disk where libvirt's driver expects it.

    The harness creates none, but a reboot with a token reads its size.
    """
    path = pathlib.Path(libvirt_utils.get_instance_path(instance), 'disk')
    path.parent.mkdir(exist_ok=True)
    path.touch()
    return False, False


#: Why a guest of libvirt is in its state.
_BY_REQUEST, _MIGRATED = 1, 4


class _NoFixture(fixtures.Fixture):
    """A fixture that replaces one of the harness's and does nothing."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()


class Harness(base.ServersTestBase):
    """Nova's harness with a real configuration, API and Cinder.

    Its base class is a test case; here it is set up and torn down like a
    fixture and not run.

    :param conf: the nova.conf to use
    :param recorder: records the steps of the guest and of the host
    :param casts: whether the sender of a cast does not wait for its end
    """

    def __init__(self, conf: pathlib.Path,
                 recorder: Recorder, casts: bool = False) -> None:
        super().__init__('runTest')
        self._conf = conf
        self._casts = casts
        self._recorder = recorder
        #: Number of connections by os-brick, by host and volume id.
        self.connected: dict[str, collections.Counter[str]] = \
            collections.defaultdict(collections.Counter)
        #: Arguments of os-brick's disconnections: properties, and options.
        self.disconnects: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def runTest(self) -> None:
        raise NotImplementedError

    def setUp(self) -> None:
        # Nova caches credentials, and with them the address of the last
        # test's Cinder.  Releases cache them in different places.
        for module in (service_auth, nova_cinder):
            getattr(module, 'reset_globals', lambda: None)()
        # Their options are still registered, and some are required.
        CONF.reset()
        for group in ('cinder', 'service_user'):
            CONF.unregister_opts(
                ks_loading.get_auth_plugin_conf_options('password'), group)
        parse_args = nova.config.parse_args

        def parse_args_of_file(*args: Any, **kwargs: Any) -> None:
            kwargs['default_config_files'] = [str(self._conf)]
            parse_args(*args, **kwargs)

        # The harness's fixture makes errors of the warnings about what Nova
        # uses of newer libraries.
        # Loading the API takes half a second, and the harness has done it.
        loaded: list[Any] = []
        load_app = wsgi.Loader.load_app

        def load_and_keep(loader: Any, name: str) -> Any:
            loaded.append(load_app(loader, name))
            return loaded[-1]

        with mock.patch('nova.config.parse_args', parse_args_of_file), \
                mock.patch('nova.tests.fixtures.CinderFixture',
                           _NoFixture), \
                mock.patch('nova.tests.fixtures.WarningsFixture',
                           _NoFixture), \
                mock.patch.object(wsgi.Loader, 'load_app', load_and_keep), \
                contextlib.ExitStack() as stack:
            if self._casts:
                stack.enter_context(mock.patch(
                    'nova.tests.fixtures.CastAsCallFixture', _NoFixture))
            super().setUp()
        # The harness has every debug line of every library formatted, only to
        # see whether that fails.
        logging.getLogger().setLevel(logging.INFO)
        logging.getLogger('nova_bdm_cleanup').setLevel(logging.DEBUG)
        self._log_to_file(pathlib.Path(CONF.state_path) / 'nova.log')
        self.kernel = self.useFixture(kernel.Kernel(
            pathlib.Path(CONF.state_path) / 'sys', self.connected))
        self._record_steps()
        self.useFixture(fixtures.MonkeyPatch(
            'nova.api.auth.NovaKeystoneContext._create_context',
            _create_context))
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.libvirt.LibvirtDriver._create_image', _create_image))
        # It also has no files to copy when a server moves.
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.libvirt.LibvirtDriver._get_instance_disk_info',
            lambda *args, **kwargs: []))
        server = web.WSGIServer(loaded[-1])
        self.addCleanup(server.close)
        self.url = f'{server.url}/v2.1'
        server = web.WSGIServer(placement_deploy.loadapp(
            self.placement.fixture.conf_fixture.conf))
        self.addCleanup(server.close)
        self.placement_url = server.url

    def tear_down(self) -> None:
        """Undo everything, as a test runner does."""
        errors: list[BaseException] = []
        while self._cleanups:
            function, args, kwargs = self._cleanups.pop()
            try:
                function(*args, **kwargs)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _log_to_file(self, path: pathlib.Path) -> None:
        """Write Nova's log to a file, as for an operator."""
        handler = logging.FileHandler(path)
        handler.setLevel(logging.INFO)
        handler.setFormatter(formatters.ContextFormatter(
            project='nova', datefmt=CONF.log_date_format))
        self.useFixture(fixtures.LogHandler(handler, nuke_handlers=False))
        self.addCleanup(handler.close)

    # -- nova-compute ------------------------------------------------------

    def start_compute(self, hostname: str = 'compute1', *args: Any,
                      **kwargs: Any) -> str:
        super().start_compute(hostname, *args, **kwargs)
        driver = self.computes[hostname].driver
        original = driver.get_volume_connector

        # In the harness, all nova-computes share one configuration, and the
        # connector would name the last one started.
        def get_volume_connector(instance: Any) -> dict[str, Any]:
            return dict(original(instance), host=hostname)

        driver.get_volume_connector = get_volume_connector
        return hostname

    def restart_compute_service(self, hostname: str, *args: Any,
                                reports_resources: bool = True,
                                **kwargs: Any) -> Any:
        """Restart a nova-compute.

        :param reports_resources: whether it tells Placement of the resources
            of its host, which is most of the work of a start; otherwise it
            knows them from the former one
        """
        with contextlib.ExitStack() as stack:
            if not reports_resources:
                # By name: a host in a process of its own imports the manager
                # after the plugin.
                stack.enter_context(mock.patch(
                    'nova.compute.manager.ComputeManager.'
                    'update_available_resource',
                    _hand_over(self.computes[hostname].manager.rt)))
            return super().restart_compute_service(hostname, *args, **kwargs)

    # -- recording ---------------------------------------------------------

    def _record_steps(self) -> None:
        self._patch_swap()
        domain = fake_libvirt.Domain
        self._patch(domain, 'detachDeviceFlags',
                    self._with_event(domain.detachDeviceFlags))
        for name, what in (
                ('createWithFlags', 'power on'), ('destroy', 'power off'),
                ('undefine', 'undefine'), ('attachDevice', 'attach device'),
                ('detachDevice', 'detach device')):
            self._record(domain, name, GUEST, what, domain.UUIDString)
        self._record(objects.BlockDeviceMapping, 'destroy', NOVA,
                     'remove bdm', lambda row: row.volume_id or '')
        self._patch(domain, 'XMLDesc', _with_serials(domain.XMLDesc))
        self._patch(domain, 'migrateToURI3', self._migrate)
        # In the fake libvirt, a paused guest is off and a saved one is not.
        self._patch(domain, 'isActive', lambda guest: int(
            guest._state != fake_libvirt.VIR_DOMAIN_SHUTOFF))
        self._patch(domain, 'state', lambda guest: [
            guest._state, getattr(guest, 'reason', _BY_REQUEST)])
        # The one of Nova 26 is always migrated.
        self._patch(domain, 'jobStats', lambda guest, flags=0: {
            'type': fake_libvirt.VIR_DOMAIN_JOB_NONE})
        self._patch(domain, 'managedSave', _then_off(domain.managedSave))
        self._patch_detach()
        volume_driver = libvirt_iscsi.LibvirtISCSIVolumeDriver
        self._patch(volume_driver, '__init__',
                    _with_host(volume_driver.__init__))
        self._patch(iscsi.ISCSIConnector, 'connect_volume',
                    lambda connector, *args:
                    self._connect_volume(_host_of(connector), *args))
        self._patch(iscsi.ISCSIConnector, 'disconnect_volume',
                    lambda connector, *args, **kwargs:
                    self._disconnect_volume(_host_of(connector), *args,
                                            **kwargs))
        # Called by a periodic task, and for disks that do not exist.
        self.useFixture(fixtures.MonkeyPatch(
            'nova.privsep.fs.blockdev_size', _no_such_device))
        self._hook_requests()

    def _patch(self, owner: Any, name: str, value: Any) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            f'{owner.__module__}.{owner.__qualname__}.{name}', value))

    def _with_event(self, detach: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the fake libvirt's detach: send the event that libvirt sends.

        Otherwise Nova would wait for the event until its timeout.
        """
        def detach_and_notify(domain: Any, xml: str, flags: int) -> Any:
            result = detach(domain, xml, flags)
            for alias in ElementTree.fromstring(xml).iterfind('alias'):
                event = libvirt_event.DeviceRemovedEvent(
                    domain.UUIDString(), alias.get('name'))
                for service in self.computes.values():
                    service.driver._device_event_handler.notify_waiters(event)
            return result

        return detach_and_notify

    def _migrate(self, domain: Any, uri: str, params: dict[str, Any],
                 flags: int) -> None:
        """Move the guest from this host to the other one.

        The fake libvirt does not support migrations.
        """
        there = next(host for host in self.computes if host in uri)
        self.connection(there).createXML(params['destination_xml'], 0)
        domain.complete_job()
        domain._state = fake_libvirt.VIR_DOMAIN_SHUTOFF
        domain.reason = _MIGRATED

    def _patch_swap(self) -> None:
        """Have a guest go on with the new disk after a swap.

        The fake libvirt ends a guest that is undefined and defined again, and
        does not change its disk.
        """
        domain, connection = fake_libvirt.Domain, fake_libvirt.Connection
        undefine, define = domain.undefine, connection.defineXML

        def undefine_or_keep(guest: Any) -> None:
            if guest.isActive():
                guest._transient = True
            else:
                undefine(guest)

        def define_and_keep(libvirt: Any, xml: str) -> Any:
            former = dict(libvirt._vms)
            defined = define(libvirt, xml)
            running = former.get(defined.name())
            if running is not None and running.isActive():
                defined._state = running._state
                for number, guest in libvirt._running_vms.items():
                    if guest is running:
                        libvirt._running_vms[number] = defined
            return defined

        def copy(guest: Any, device: str, xml: str, *args: Any,
                 **kwargs: Any) -> None:
            guest.copy_of_disk = xml

        def end_job(guest: Any, device: str, flags: int = 0) -> None:
            if flags & fake_libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT:
                source = ElementTree.fromstring(
                    guest.copy_of_disk).find('source')
                for disk in guest._def['devices']['disks']:
                    if disk['target_dev'] == device and source is not None:
                        disk['source'] = source.get('dev')

        self._patch(domain, 'undefine', undefine_or_keep)
        self._patch(connection, 'defineXML', define_and_keep)
        self._patch(domain, 'blockCopy', copy)
        self._patch(domain, 'blockJobAbort', end_job)

    def _record(self, owner: Any, name: str, party: str, what: str,
                subject: Callable[[Any], str]) -> None:
        """Wrap a method, so that its calls are recorded as steps.

        :param subject: returns the subject of the step
        """
        original: Callable[..., Any] = getattr(owner, name)
        recorder = self._recorder

        def recording(self: Any, *args: Any, **kwargs: Any) -> Any:
            with recorder.step(party, what, subject(self)):
                return original(self, *args, **kwargs)

        self._patch(owner, name, recording)

    def _connect_volume(self, host: str,
                        connection_properties: dict[str, Any]
                        ) -> dict[str, str]:
        volume = connection_properties['volume_id']
        with self._recorder.step(HOST, 'connect', volume):
            self.kernel.set_address(host, connection_properties)
            self.connected[host][volume] += 1
        return {'type': 'block', 'path': kernel.device_path(host, volume)}

    def _disconnect_volume(self, host: str,
                           connection_properties: dict[str, Any],
                           *args: Any, **kwargs: Any) -> None:
        volume = connection_properties['volume_id']
        with self._recorder.step(HOST, 'disconnect', volume):
            self.disconnects.append((dict(connection_properties), kwargs))
            # It removes the device at the address, regardless of the number
            # of its connections, and of the volume that is there.
            for found in self.kernel.volumes_at(host, connection_properties):
                del self.connected[host][found]

    def _patch_detach(self) -> None:
        """Have a detach compare the host of the instance with the host that
        acts, and not with the last one that started.
        """
        owner = block_device.DriverVolumeBlockDevice
        detach = owner._do_detach
        conf = _ConfOfHost()

        def detach_on_host(disk: Any, context: Any, instance: Any,
                           volume_api: Any, virt_driver: Any,
                           *args: Any, **kwargs: Any) -> Any:
            conf.set_host(_host_of_driver(virt_driver))
            return detach(disk, context, instance, volume_api, virt_driver,
                          *args, **kwargs)

        self._patch(owner, '_do_detach', detach_on_host)
        self.useFixture(fixtures.MockPatchObject(block_device, 'CONF', conf))

    def _hook_requests(self) -> None:
        original = cinderclient.SessionClient.request
        recorder = self._recorder

        def request(self: Any, url: str, method: str, *args: Any,
                    **kwargs: Any) -> Any:
            # The tests' own handles are not recorded here: their sessions
            # have another authentication.
            if self.session.auth is None or self.auth is not None:
                recorder.run_hooks(REQUEST, method, url)
            return original(self, url, method, *args, **kwargs)

        self._patch(cinderclient.SessionClient, 'request', request)

    # -- the databases -----------------------------------------------------

    @contextlib.contextmanager
    def database(self, name: str) -> Iterator[sqlite3.Connection]:
        """Open one of Nova's databases: ``api``, ``cell0``, ``cell1`` or
        ``placement``.
        """
        if name == 'api':
            engine = api_db.get_engine()
        elif name == 'placement':
            engine = placement_db.get_placement_engine()
        else:
            with nova_context.target_cell(
                    nova_context.get_admin_context(),
                    self.cell_mappings[name]) as context:
                engine = context.db_connection.writer.get_engine()
        with contextlib.closing(engine.raw_connection()) as connection:
            yield connection.driver_connection

    def copy_databases(self) -> dict[str, sqlite3.Connection]:
        """Return copies of all databases."""
        copies = {}
        for name in DATABASES:
            copies[name] = sqlite3.connect(':memory:',
                                           check_same_thread=False)
            with self.database(name) as database:
                database.backup(copies[name])
        return copies

    def restore_databases(self, copies: Mapping[str, sqlite3.Connection]
                          ) -> None:
        """Restore all databases from their copies."""
        for name, copy in copies.items():
            with self.database(name) as database:
                copy.backup(database)

    def context(self, **options: Any) -> nova_context.RequestContext:
        """Return an administrator's context for the cell of the servers."""
        context = nova_context.RequestContext(
            **{'is_admin': True, **options})
        nova_context.set_target_cell(context, self.cell_mappings['cell1'])
        return context

    def block_devices(self, server_id: str) -> list[Any]:
        """Return all rows of a server, including soft-deleted ones."""
        return sorted(
            objects.BlockDeviceMappingList.get_by_instance_uuid(
                self.context(read_deleted='yes'), server_id),
            key=lambda row: row.id)

    def instance(self, server_id: str) -> objects.Instance:
        return objects.Instance.get_by_uuid(
            self.context(), server_id, expected_attrs=['metadata', 'flavor'])

    # -- libvirt -----------------------------------------------------------

    def directory(self, server_id: str = '') -> pathlib.Path:
        """Return the libvirt driver's directory of all guests, or of one."""
        return pathlib.Path(CONF.instances_path, server_id)

    def connection(self, host: str) -> Any:
        """Return a connection to the libvirt of a host."""
        return self.computes[host].driver._host.get_connection()

    def domains(self, host: str) -> list[Any]:
        """Return the domains that are defined on a host, running or not."""
        return list(self.connection(host)._vms.values())

    def remove_domain(self, host: str, server_id: str) -> None:
        """Remove a domain and all traces of it from a host."""
        connection = self.connection(host)
        domain = connection.lookupByUUIDString(server_id)
        connection._mark_not_running(domain)
        connection._undefine(domain)

    def remove_domains(self) -> None:
        """Remove all domains and volume connections from all hosts."""
        for host in self.computes:
            self.connection(host)._vms.clear()
            self.connection(host)._running_vms.clear()
        self.connected.clear()
        self.disconnects.clear()


def _hand_over(former: Any) -> Callable[..., None]:
    """Return a replacement for the update of resources at a start.

    :param former: the resource tracker of the nova-compute that stops
    """
    known = {name: value for name, value in vars(former).items()
             if name not in ('driver', 'service_ref')}
    # The plugin would remove its trait from them.
    former.compute_nodes = {}

    def take_over(this: Any, context: Any, startup: bool = False) -> None:
        vars(this.rt).update(known)

    return take_over


def _with_serials(describe: Callable[..., str]) -> Callable[..., str]:
    """Wrap the fake libvirt's XML: keep the serials of disks, like libvirt.

    In Nova the serial is the id of the volume.
    """
    def with_serials(self: Any, flags: int) -> str:
        root = ElementTree.fromstring(describe(self, flags))
        for disk in root.iterfind('./devices/disk'):
            source = disk.find('source')
            device = '' if source is None else source.get('dev', '')
            found = kernel.DEVICE_PATH.fullmatch(device)
            if found:
                ElementTree.SubElement(disk, 'serial').text = found['volume']
        return ElementTree.tostring(root, encoding='unicode')

    return with_serials


def _then_off(save: Callable[..., None]) -> Callable[..., None]:
    """Wrap a method of the fake libvirt that ends a guest."""
    def save_and_end(self: Any, flags: int) -> None:
        save(self, flags)
        self._state = fake_libvirt.VIR_DOMAIN_SHUTOFF

    return save_and_end


class _ConfOfHost:
    """Nova's configuration, where each thread acts for one host."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def set_host(self, host: str) -> None:
        self._thread.host = host

    def __getattr__(self, name: str) -> Any:
        if name == 'host':
            return self._thread.host
        return getattr(CONF, name)


def _with_host(initialize: Callable[..., None]) -> Callable[..., None]:
    """Wrap the constructor of a volume driver: os-brick knows the host."""
    def initialize_with_host(self: Any, host: Any) -> None:
        initialize(self, host)
        self.connector.host_that_acts = host

    return initialize_with_host


def _host_of(connector: Any) -> str:
    """Return the host that connects or disconnects a volume.

    All nova-computes run in this process, and connection properties may be
    those of another host.
    """
    return _name_of(connector.host_that_acts)


def _host_of_driver(driver: Any) -> str:
    return _name_of(driver._host)


def _name_of(host: Any) -> str:
    name: str = host.get_connection().getHostname()
    return name


def _no_such_device(path: str) -> Any:
    raise processutils.ProcessExecutionError(exit_code=1)
