# SPDX-License-Identifier: Apache-2.0
"""The states that stock Nova leaves when an operation on volumes fails.

An operation is played by Nova alone, with a fault at one point.  What it
leaves is then given to the plugin and the commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import json
import re
import time
from typing import Any

import fixtures
from nova.tests.fixtures import libvirt as fake_libvirt
from nova.virt.libvirt import driver as libvirt_driver
from oslo_config import cfg

from nova_bdm_cleanup.tests.cloud import fixture, kernel, messages, recorder
from nova_bdm_cleanup.tests.cloud.faults import Fault, Faults
from nova_bdm_cleanup.tests.functional import commands, moving
from nova_bdm_cleanup.tests.functional.moving import HERE, THERE

CONF = cfg.CONF

HOSTS = {HERE: 'here', THERE: 'there'}
UUID = re.compile(r'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}')
#: How often Nova must be seen idle before an operation counts as ended.
_LOOKS = 8
#: How long an operation may take.
_LIMIT = 20.0


@dataclasses.dataclass(frozen=True)
class DiskState:
    """A disk of a server, in all records.

    :ivar row: what Nova's row names: the status of its attachment and its
        host; ``unknown`` if Cinder has no such attachment; None without a row
    :ivar information: the host whose connection is stored in the row;
        ``none`` without any
    :ivar others: the server's attachments that the row does not name
    :ivar volume: the status of the volume; None if it does not exist
    :ivar guests: the hosts whose guest of this server has the disk
    :ivar connected: the hosts that are connected
    """

    row: str | None
    information: str | None
    others: tuple[str, ...]
    volume: str | None
    guests: tuple[str, ...]
    connected: tuple[str, ...]

    def is_healthy(self, host: str | None) -> bool:
        """Return whether all records agree that the guest of a host has it."""
        return self.agrees(host) and self.guests == (host,)

    def agrees(self, host: str | None) -> bool:
        """Return whether Nova and Cinder agree that a host has it."""
        return (self.row == f'attached {host}' and not self.others
                and self.information in (host, 'there or here')
                and self.volume == 'in-use')

    def is_reserved(self) -> bool:
        """Return whether all agree that it waits for an unshelve."""
        return (self.row == 'reserved' and not self.others
                and self.volume == 'reserved' and not self.guests)

    def is_free(self) -> bool:
        """Return whether no record and no guest has it."""
        return (self.row is None and not self.others and not self.guests
                and self.volume in ('available', None))

    def __str__(self) -> str:
        words = ['no row' if self.row is None
                 else f'row names {self.row}, information {self.information}']
        words += [f'also {each}' for each in self.others]
        words.append(f'volume {self.volume}')
        words.append('in no guest' if not self.guests
                     else 'in the guest ' + ' and '.join(self.guests))
        if set(self.connected) - set(self.guests):
            words.append('connected ' + ' and '.join(self.connected))
        return ', '.join(words)


@dataclasses.dataclass(frozen=True)
class State:
    """A server in all records, without ids: equal ones are one state.

    :ivar host: where Nova has the server
    :ivar guests: the hosts that have a guest, and whether it runs
    """

    status: str
    task_state: str | None
    host: str | None
    guests: tuple[tuple[str, bool], ...]
    disks: Mapping[str, DiskState]

    @property
    def key(self) -> str:
        return str(self)

    def runs(self) -> bool:
        return (self.host, True) in self.guests

    def problems(self) -> list[str]:
        """Return what is not healthy, one word each."""
        found = []
        if self.task_state:
            found.append(f'task state {self.task_state}')
        if self.status == 'error':
            found.append('ERROR')
        for name, disk in self.disks.items():
            if self.status == 'deleted':
                good = disk.is_free()
            elif self.status == 'shelved_offloaded':
                good = disk.is_reserved() or disk.is_free()
            elif self.runs():
                good = disk.is_healthy(self.host) or disk.is_free()
            else:
                good = disk.agrees(self.host) or disk.is_free()
            if not good:
                found.append(name)
        return found

    def __str__(self) -> str:
        where = HOSTS.get(self.host or '', self.host)
        guests = ' and '.join(
            f'{"runs" if active else "is off"} {host}'
            for host, active in self.guests) or 'is nowhere'
        return '; '.join([
            self.status.upper() + (
                f'/{self.task_state}' if self.task_state else '')
            + (f' {where}' if where else ' without a host'),
            'guest ' + guests,
            *[f'{name}: {disk}' for name, disk in self.disks.items()]])


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation of Nova.

    :ivar act: a method of :class:`AftermathTestCase`
    :ivar before: what is done before, without a fault
    :ivar failing: a method that makes a part of it fail
    :ivar root: ``volume`` or ``image``
    """

    act: str
    before: tuple[str, ...] = ()
    failing: str | None = None
    root: str = 'volume'


OPERATIONS = {
    'attach': Operation('attach'),
    'attach-refused': Operation('attach', failing='hypervisor_refuses_disk'),
    'detach': Operation('detach'),
    'detach-refused': Operation('detach', failing='guest_keeps_disk'),
    'create': Operation('create', ('delete_first',)),
    'delete': Operation('delete'),
    'swap': Operation('swap'),
    'live': Operation('migrate_live'),
    'live-destination': Operation(
        'migrate_live', failing='destination_does_not_connect'),
    'live-hypervisor': Operation(
        'migrate_live', failing='hypervisor_does_not_migrate'),
    'live-post': Operation(
        'migrate_live', failing='destination_fails_in_post'),
    'migrate': Operation('migrate'),
    'migrate-finish': Operation('migrate', failing='guest_does_not_start'),
    'resize': Operation('resize'),
    'confirm': Operation('confirm', ('migrate',)),
    'revert': Operation('revert', ('migrate',)),
    'revert-finish': Operation(
        'revert', ('migrate',), 'guest_does_not_start'),
    'shelve': Operation('shelve'),
    'shelve-image': Operation('shelve', root='image'),
    'offload': Operation('offload', ('shelve_only',), root='image'),
    'unshelve': Operation('unshelve', ('shelve',)),
    'unshelve-spawn': Operation(
        'unshelve', ('shelve',), 'guest_does_not_start'),
    'evacuate': Operation('evacuate'),
    'evacuate-spawn': Operation('evacuate', failing='guest_does_not_start'),
    'return': Operation('come_back', ('evacuate',)),
    'rebuild': Operation('rebuild'),
    'rebuild-image': Operation('rebuild', root='image'),
    'rescue': Operation('rescue', root='image'),
    'unrescue': Operation('unrescue', ('rescue',), root='image'),
    'snapshot': Operation('snapshot')}


class NotReached(Exception):
    """An operation ended before the fault; the text has its points."""


class AftermathTestCase(moving.MoveTestCase, commands.CommandTestCase):
    """A server with a root disk and a data disk, on the first of two hosts."""

    server: fixture.Server
    #: What the data disk is swapped for, or attached.
    other: str | None

    def leave_damaged(self, operation: str, *faults: Fault) -> None:
        """Play an operation that fails, and start the plugin."""
        self.damaged = self.leave(operation, *faults)
        if not self.damaged.problems():
            raise ValueError(f'{self.damaged} is healthy')
        self.switch_plugin_on()
        self.start_recording()

    def leave(self, operation: str, *faults: Fault) -> State:
        """Play an operation with Nova alone; return what it leaves.

        The nova-computes that died have been started again, and all of them
        have the plugin.
        """
        played = OPERATIONS[operation]
        self.other = self.faults = None
        self.server = self.healthy_server(root=played.root, disks=1)
        self.data = self.server.volumes[0]
        self.switch_plugin_off()
        for name in played.before:
            getattr(self, name)(self.server)
            self.wait_until_quiet()
        self.start_recording()
        with contextlib.ExitStack() as stack:
            if played.failing:
                stack.enter_context(getattr(self, played.failing)())
            self.faults = stack.enter_context(Faults(
                self.cloud.recorder, *faults))
            try:
                getattr(self, played.act)(self.server)
            except fixture.APIError:
                pass
            self.wait_until_quiet()
        self.cloud.recorder.remove_hooks()
        if not self.faults.happened:
            raise NotReached('\n'.join(map(str, self.faults.points)))
        #: What the operation went through.
        self.points = self.faults.points
        for host in {dead.host for dead in self.faults.dead}:
            self.cloud.restart_compute(host)
        self.faults = None
        return self.state()

    def switch_plugin_off(self) -> None:
        self.cloud.switch_plugin_off()
        self.restart()

    def switch_plugin_on(self) -> None:
        """Have both hosts start with the plugin."""
        self.cloud.switch_plugin_on()
        self.restart()

    def restart(self) -> None:
        for host in (HERE, THERE):
            # A host that is down stays so.
            if not (host == HERE and self._dead):
                self.cloud.restart_compute(host)

    def wait_until_quiet(self) -> None:
        """Wait until Nova does no more.

        A task state of before, or of a nova-compute that has died, may never
        end.
        """
        deadline = time.monotonic() + _LIMIT
        # Not a time: all of Nova runs in this process, which may be slow.
        looks = _LOOKS
        while looks:
            time.sleep(0.02)
            looks -= 1
            if self._is_busy() and time.monotonic() < deadline:
                looks = _LOOKS

    def _is_busy(self) -> bool:
        if messages.methods_in_progress():
            return True
        if self._ignores_task_state or self.faults and self.faults.dead:
            return False
        # The threads of a live migration and of a new server end after their
        # messages.
        with self.cloud.nova.database('cell1') as database:
            return bool(database.execute(
                "SELECT 1 FROM migrations WHERE instance_uuid = ? AND "
                "migration_type = 'live-migration' AND status IN "
                "('accepted', 'queued', 'preparing', 'running') UNION "
                "SELECT 1 FROM instances WHERE uuid = ? AND NOT deleted AND "
                "(vm_state = 'building' OR task_state IS NOT NULL)",
                (self.server.id,) * 2).fetchall())

    #: The faults of the operation that runs.
    faults: Faults | None = None
    #: Whether a task state, which nothing ends, was there before.
    _ignores_task_state = False

    # -- operations --------------------------------------------------------

    def act(self, server: fixture.Server, action: dict[str, Any]
            ) -> fixture.APIError | None:
        self.begin(server, action)
        self.wait_until_quiet()
        return None

    def attach(self, server: fixture.Server) -> None:
        self.other = self.other or self.cloud.volume()
        self.cloud.request(
            'POST', f'/servers/{server.id}/os-volume_attachments',
            {'volumeAttachment': {'volumeId': self.other}})

    def detach(self, server: fixture.Server) -> None:
        self.cloud.detach(server, self.data)

    def swap(self, server: fixture.Server) -> None:
        self.other = self.other or self.cloud.volume()
        self.cloud.swap(server, self.data, self.other)

    def delete(self, server: fixture.Server) -> None:
        self.cloud.request('DELETE', f'/servers/{server.id}')

    def offload(self, server: fixture.Server) -> fixture.APIError | None:
        return self.act(server, {'shelveOffload': None})

    def shelve_only(self, server: fixture.Server) -> fixture.APIError | None:
        CONF.set_override('shelved_offload_time', -1)
        self.addCleanup(CONF.clear_override, 'shelved_offload_time')
        return self.shelve(server)

    def rebuild(self, server: fixture.Server) -> fixture.APIError | None:
        return self.act(server, {'rebuild': {'imageRef': fixture.IMAGE}})

    def rescue(self, server: fixture.Server) -> fixture.APIError | None:
        return self.act(server, {'rescue': {}})

    def unrescue(self, server: fixture.Server) -> fixture.APIError | None:
        return self.act(server, {'unrescue': None})

    def snapshot(self, server: fixture.Server) -> fixture.APIError | None:
        return self.act(server, {'createImage': {'name': 'image'}})

    def delete_first(self, server: fixture.Server) -> None:
        """Make room for a server that is created with the same name."""
        self.delete(server)
        self.wait_until_quiet()
        root = self.cloud._make_volume('root', self.cloud.owner, image=True)
        self.data = self.cloud.volume()
        self.server = dataclasses.replace(
            server, root=root, volumes=(self.data,))

    def create(self, server: fixture.Server) -> None:
        server = self.server
        created = self.cloud.request('POST', '/servers', {'server': {
            'name': 'created', 'networks': 'none', 'flavorRef': '1',
            'availability_zone': f'nova:{HERE}',
            'block_device_mapping_v2': [
                {'boot_index': index, 'uuid': volume,
                 'source_type': 'volume', 'destination_type': 'volume'}
                for index, volume in ((0, server.root), (-1, self.data))]}},
            by=dataclasses.replace(self.cloud.admin,
                                   project=self.cloud.owner.project))
        self.server = dataclasses.replace(
            server, id=created['server']['id'])

    def run_server_command(self, verb: str, server: Any,
                           options: list[str]) -> None:
        if verb == 'evacuate':
            self.evacuate(self.server)
        else:
            super().run_server_command(verb, server, options)

    # -- what fails --------------------------------------------------------

    @contextlib.contextmanager
    def _failing_step(self, party: str, what: str) -> Iterator[None]:
        self.cloud.recorder.before(
            party, what, recorder.fail(RuntimeError('injected')))
        yield

    def hypervisor_refuses_disk(self) -> Any:
        return self._failing_step(recorder.GUEST, 'attach device')

    def guest_keeps_disk(self) -> Any:
        return fixtures.MockPatchObject(
            fake_libvirt.Domain, 'detachDeviceFlags',
            side_effect=fake_libvirt.make_libvirtError(
                fake_libvirt.libvirtError, 'injected',
                error_code=fake_libvirt.VIR_ERR_INTERNAL_ERROR))

    def guest_does_not_start(self) -> Any:
        return self._failing_step(recorder.GUEST, 'power on')

    def destination_does_not_connect(self) -> Any:
        return self._failing_step(recorder.HOST, 'connect')

    def hypervisor_does_not_migrate(self) -> Any:
        return fixtures.MockPatchObject(
            fake_libvirt.Domain, 'migrateToURI3',
            side_effect=fake_libvirt.make_libvirtError(
                fake_libvirt.libvirtError, 'injected',
                error_code=fake_libvirt.VIR_ERR_INTERNAL_ERROR))

    def destination_fails_in_post(self) -> Any:
        return fixtures.MockPatchObject(
            libvirt_driver.LibvirtDriver,
            'post_live_migration_at_destination',
            side_effect=RuntimeError('injected'))

    # -- looking -----------------------------------------------------------

    def state(self) -> State:
        """Return the state of the server as it is now."""
        server = self.server
        with self.cloud.nova.database('cell1') as database:
            found = database.execute(
                'SELECT vm_state, task_state, host, deleted FROM instances '
                'WHERE uuid = ?', (server.id,)).fetchone()
        vm_state, task_state, host, is_deleted = found or (
            'deleted', None, None, True)
        guests = {}
        for name in HOSTS:
            domain = self.cloud.domain(dataclasses.replace(server, host=name))
            if domain:
                guests[name] = domain
        roles = {server.root: 'root', self.data: 'data', self.other: 'other'}
        return State(
            status='deleted' if is_deleted else vm_state,
            task_state=task_state,
            host=None if is_deleted else HOSTS.get(host, host),
            guests=tuple((HOSTS[name], bool(domain.isActive()))
                         for name, domain in guests.items()
                         if domain.isActive() or name == host),
            disks={name: disk for name, disk in zip(
                (role for volume, role in roles.items() if volume),
                self._disks([volume for volume in roles if volume], {
                    HOSTS[name]: domain.XMLDesc(0)
                    for name, domain in guests.items()
                    if domain.isActive()}))})

    def _disks(self, volumes: list[str], guests: Mapping[str, str]
               ) -> Iterator[DiskState]:
        rows = {row.volume_id: row
                for row in self.cloud.nova.block_devices(self.server.id)
                if not row.deleted}
        with self.cloud.cinder.database() as database:
            for volume in volumes:
                attachments = {
                    name: ' '.join(filter(None, (
                        status, HOSTS.get(host, host))))
                    for name, status, host in database.execute(
                        'SELECT id, attach_status, attached_host FROM '
                        'volume_attachment WHERE volume_id = ? AND '
                        'NOT deleted', (volume,))}
                status = database.execute(
                    'SELECT status FROM volumes WHERE id = ? AND NOT deleted',
                    (volume,)).fetchone()
                row = rows.get(volume)
                named = row.attachment_id if row else None
                yield DiskState(
                    row=None if not row
                    else 'nothing' if not named
                    else attachments.get(named, 'unknown'),
                    information=row and _host_of(row.connection_info),
                    others=tuple(sorted(
                        words for name, words in attachments.items()
                        if name != named)),
                    volume=status and status[0],
                    guests=tuple(
                        host for host, xml in guests.items()
                        if f'<serial>{volume}</serial>' in xml),
                    connected=tuple(
                        name for host, name in HOSTS.items()
                        if self.cloud.nova.connected[host][volume]))

    # -- asserting ---------------------------------------------------------

    def assert_all_healthy(self) -> State:
        """Check that the guest runs with all disks that any record names."""
        state = self.state()
        self.assertEqual(
            ('active', None, True, []),
            (state.status, state.task_state, state.runs(), state.problems()),
            state)
        return state


def _host_of(connection_info: str | None) -> str:
    """Return the host whose connection a row has stored."""
    info: Any = json.loads(connection_info or '{}')
    if not info:
        return 'none'
    found = kernel.DEVICE_PATH.fullmatch(
        info.get('data', {}).get('device_path') or '')
    return HOSTS[found['host']] if found else 'not connected'

