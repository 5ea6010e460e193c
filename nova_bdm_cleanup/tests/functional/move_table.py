# SPDX-License-Identifier: Apache-2.0
"""Each operation that moves or ends a server, beside Nova alone.

A cell of the table is one operation in one row: a kind of dangling disk, or
circumstances of the plugin.  The whole end of each step is compared with that
of Nova alone, which is played in the same run.  A step ends right if

* everything is as with Nova alone; or
* the dangling disk is gone, and everything else is as with Nova alone for a
  server without that disk; or
* a disk that another guest of a host has, or may be getting, is left out of
  the guest or left connected, and everything else is as with Nova alone.

The servers have no ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import re
import time
from typing import Any, Optional, TypeVar
import uuid

from nova_bdm_cleanup.tests.cloud import fixture, identity, proxy, recorder
from nova_bdm_cleanup.tests.functional import moving, scenario
from nova_bdm_cleanup.tests.functional.moving import HERE, THERE

HOSTS = {HERE: 'the old host', THERE: 'the new host'}

_UUID = re.compile(r'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}')
_DOMAIN = re.compile(r'instance-[0-9a-f]{8}')
#: Longest time for what Nova does after the last message of an operation.
_LAST_WORK = 10.0


# -- the ends of operations ------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk of a server, in all records."""

    #: What Nova's row names; None without a row.
    row: str | None
    #: The server's attachments in Cinder.
    attachments: tuple[str, ...]
    volume: str | None
    #: The hosts whose guest of this server has it: one that runs, or that of
    #: the server's host.
    guests: tuple[str, ...]
    #: How often os-brick has connected it, for any server: old host, new one.
    connected: tuple[int, int]

    @property
    def is_removed(self) -> bool:
        return not (self.row or self.attachments)


@dataclasses.dataclass(frozen=True)
class End:
    """All that an operation leaves, with roles instead of ids."""

    #: The status of the answer of Nova's API, if it refused the request.
    answer: int | None
    vm_state: str
    task_state: str | None
    host: str | None
    #: The hosts that have a guest, and whether it runs.
    guests: tuple[tuple[str, bool], ...]
    disks: Mapping[str, Disk]
    #: Consumer and host.
    allocations: tuple[tuple[str, str], ...]
    #: Type, status, source and destination.
    migrations: tuple[tuple[str | None, ...], ...]
    #: The images that were made: name and status.
    images: tuple[tuple[str, str], ...]
    #: Name, message, and results of events other than the plugin's.
    actions: tuple[tuple[str, str | None, tuple[tuple[str, str], ...]], ...]
    faults: tuple[str, ...]
    #: Whether another guest has its disk; None: there is no such guest.
    neighbour: bool | None
    #: Whether the old host is down.
    is_down: bool

    def differences_from(self, other: End) -> list[str]:
        """Return what is not as in another end, one line each."""
        lines = []
        for field in dataclasses.fields(self):
            ours, theirs = (getattr(end, field.name) for end in (self, other))
            if field.name == 'disks':
                lines += [
                    f'{name}: {ours.get(name)} instead of {theirs.get(name)}'
                    for name in {**ours, **theirs}
                    if ours.get(name) != theirs.get(name)]
            elif ours != theirs:
                lines.append(f'{field.name}: {ours} instead of {theirs}')
        return lines

    def lost(self) -> dict[str, Disk]:
        """Return the disks that dangle."""
        return {name: disk for name, disk in self.disks.items()
                if name.startswith('lost')}

    def without_lost(self) -> End:
        """Return this end without the disks that dangle."""
        return dataclasses.replace(self, neighbour=None, disks={
            name: disk for name, disk in self.disks.items()
            if not name.startswith('lost')})

    def unconnected(self) -> End:
        """Return this end without what hosts and guests have of the disks
        that dangle.
        """
        return dataclasses.replace(self, neighbour=None, disks={
            **self.disks, **{
                name: dataclasses.replace(disk, guests=(), connected=(0, 0))
                for name, disk in self.lost().items()}})

    def words(self) -> Iterator[str]:
        """Yield this end in words for the page; the first is the status."""
        yield from self._words_of_server()
        lost = list(self.lost().values())
        if lost and self.vm_state != 'deleted':
            yield self._words_of_lost(lost)
        healthy = [disk for name, disk in self.disks.items()
                   if not name.startswith('lost')]
        statuses = {each.split(' ')[0] for disk in healthy
                    for each in disk.attachments or ('detached',)}
        wanted = {'deleted': 'detached', 'shelved_offloaded': 'reserved'}.get(
            self.vm_state, 'attached')
        if statuses != {wanted}:
            yield 'healthy disks are ' + ' or '.join(sorted(statuses))
        if self.vm_state == 'deleted' and any(
                disk.attachments for disk in lost):
            yield 'an attachment is left'
        needed = {self.host}
        if self.vm_state == 'resized' or self.is_down:
            needed = set(HOSTS.values())
        for host in sorted({host for _, host in self.allocations}
                           - {each for each in needed if each}):
            yield 'allocations are left on ' + host
        if self.neighbour is False:
            yield 'another guest has lost its disk'

    def _words_of_server(self) -> Iterator[str]:
        if self.answer:
            yield 'refused by the API'
        if self.vm_state == 'deleted':
            yield 'deleted'
            return
        status = {'resized': 'VERIFY_RESIZE'}.get(
            self.vm_state, self.vm_state.upper())
        yield f'{status} on {self.host or "no host"}'
        if self.host and self.vm_state not in ('shelved', 'stopped') and (
                self.host, True) not in self.guests:
            yield 'no guest'

    def _words_of_lost(self, disks: Sequence[Disk]) -> str:
        what = 'the disk is' if len(disks) == 1 else 'the disks are'
        if all(disk.is_removed for disk in disks):
            return what + ' removed'
        named = {disk.row for disk in disks}
        if named <= {'attached', 'reserved'}:
            return '%s %s' % (what, ' or '.join(sorted(map(str, named))))
        if (self.host, True) in self.guests and not any(
                self.host in disk.guests for disk in disks):
            return what + ' not connected'
        return what.split(' is')[0].split(' are')[0] + ' as before'


# -- operations ------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation; its steps are methods of :class:`MoveTableTestCase`.

    :ivar before: what is done before the disk dangles
    """

    title: str
    steps: tuple[str, ...]
    before: str | None = None
    root: str = 'volume'


#: In the order of the page.
OPERATIONS = {
    'cold_migration': Operation(
        'Cold migration, and confirm', ('migrate', 'confirm')),
    'resize': Operation('Resize, and revert', ('resize', 'revert')),
    'revert': Operation(
        'Revert a cold migration, dangling since', ('revert',), 'migrate'),
    'live_migration': Operation('Live migration', ('migrate_live',)),
    'evacuation': Operation(
        'Evacuation, and the old host returns', ('evacuate', 'come_back')),
    'shelve': Operation(
        'Shelve a server whose root disk is a volume, and unshelve',
        ('shelve', 'unshelve_there')),
    'shelve_with_image': Operation(
        'Shelve a server whose root disk is a file, and unshelve',
        ('shelve', 'unshelve_there'), root='image'),
    'unshelve': Operation(
        'Unshelve, dangling since the shelve', ('unshelve_there',), 'shelve'),
    'delete': Operation('Delete', ('delete',))}


# -- rows ------------------------------------------------------------------

AVAILABLE = 'attachment-deleted'
MISSING = 'volume-deleted'
ELSEWHERE = 'attached-elsewhere'
TRANSFERRED = 'transferred'
RESET = 'status-reset'
_ADDRESS_HERE = 'address-on-the-old-host'
_ADDRESS_THERE = 'address-on-the-new-host'
_HALF_MOVED = 'half-moved'
_MULTIATTACH_HERE = 'multiattach-on-the-old-host'
_MULTIATTACH_THERE = 'multiattach-on-the-new-host'
_SNAPSHOT = 'from-a-snapshot'
_ROOT = 'root'
_NINE = 'nine'
_SHARED = 'shared'
_MULTIATTACH = (_MULTIATTACH_HERE, _MULTIATTACH_THERE, _SHARED)


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table.

    :ivar words: for the page
    :ivar kind: how the disk dangles
    :ivar circumstances: a method of :class:`MoveTableTestCase`, called with
        the server before the operation; Nova alone does without them
    :ivar silence: play it again and again, with Cinder silent for the plugin
        from its first request on, its second, and so on
    """

    words: str
    kind: str = AVAILABLE
    circumstances: str | None = None
    silence: bool = False

    def fits(self, operation: Operation) -> bool:
        # When a host returns, Nova itself asks with the plugin's credentials.
        if 'come_back' in operation.steps and (
                self.circumstances == 'be_silent'):
            return False
        return self.kind != _ROOT or operation.root == 'volume'


#: In the order of the page; the key ends the name of a test.
ROWS = {
    'missing': Row('does not exist', MISSING),
    'available': Row('available'),
    'attached_elsewhere': Row(
        'attached to a server of the new host', ELSEWHERE),
    'transferred': Row("available, and another project's", TRANSFERRED),
    'attached_on_same_host': Row(
        'attached to a server of the old host', moving.SAME_HOST),
    'status_reset': Row('available, with its attachment left over', RESET),
    'address_on_new_host': Row(
        'available; another guest of the new host has its address',
        _ADDRESS_THERE),
    'address_on_old_host': Row(
        'available; another guest of the old host has its address',
        _ADDRESS_HERE),
    'half_moved': Row('half moved: reserved for the server', _HALF_MOVED),
    'multiattach_on_old_host': Row(
        'multiattach, attached to a server of the old host only',
        _MULTIATTACH_HERE),
    'multiattach_on_new_host': Row(
        'multiattach, attached to a server of the new host only',
        _MULTIATTACH_THERE),
    'from_snapshot': Row('available; Nova created it from a snapshot',
                         _SNAPSHOT),
    'root': Row('the root disk, available', _ROOT),
    'nine_disks': Row(
        'nine of them, available: over ``max_removals``', _NINE),
    'over_hourly_limit': Row(
        'available; over ``max_removals_per_hour``',
        circumstances='use_up_limit'),
    'over_limit_of_another_project': Row(
        'available; over ``max_removals_per_hour`` for another project',
        circumstances='use_up_limit_of_another_project'),
    'not_selected': Row('available, which ``remove`` does not name',
                        circumstances='select_missing_only'),
    'locked_by_administrator': Row(
        'available; an administrator has locked the server',
        circumstances='lock_as_administrator'),
    'locked_by_owner': Row('available; its owner has locked the server',
                           circumstances='lock_as_owner'),
    'observe': Row('available; mode ``observe``', circumstances='observe'),
    'store_not_writable': Row('available; the store cannot be written',
                              circumstances='do_not_record'),
    'silence': Row(
        'available; Cinder is silent for the plugin from any request on',
        silence=True),
    'missing_and_silence': Row(
        'does not exist; Cinder is silent for the plugin from any request on',
        MISSING, silence=True),
    'same_host_and_silence': Row(
        'attached to a server of the old host; Cinder is silent for the '
        'plugin from any request on', moving.SAME_HOST, silence=True),
    'plugin_on_old_host': Row('available; only the old host has the plugin',
                              circumstances='plugin_on_old_host'),
    'plugin_on_new_host': Row('available; only the new host has the plugin',
                              circumstances='plugin_on_new_host'),
    'plugin_on_no_host': Row('available; no host has the plugin',
                             circumstances='plugin_on_no_host'),
    'graceful_stop': Row(
        'available; nova-compute stops gracefully in the middle',
        circumstances='stop_gracefully'),
    'graceful_stop_of_only_plugin': Row(
        'available; only the old host has the plugin, and its nova-compute '
        'stops gracefully in the middle',
        circumstances='stop_gracefully_on_old_host'),
    'shared': Row(
        'no disk dangles; two servers of the host share a multiattach volume',
        _SHARED),
    'shared_and_silence': Row(
        'no disk dangles; two servers of the host share a multiattach volume, '
        'and Cinder is silent for the plugin', _SHARED, 'be_silent')}

Step = Callable[[fixture.Server], Optional[fixture.APIError]]


@dataclasses.dataclass
class Scene:
    """The servers of one cell.

    :ivar servers: one, or two that share a volume
    :ivar lost: its volumes that dangle
    :ivar theirs: the disk of another guest, and the host that has it
    """

    servers: list[fixture.Server]
    lost: Sequence[str] = ()
    theirs: tuple[str, str] | None = None
    #: What was there before the operation.
    images: frozenset[str] = frozenset()
    last_action: int = 0

    def roles(self, server: fixture.Server) -> dict[str, str]:
        """Return the names of the volumes of a server, by id."""
        roles = {}
        for name, volumes in (
                ('lost', self.lost if server is self.servers[0] else ()),
                ('root', [server.root]),
                ('disk', server.volumes)):
            rest = [each for each in volumes if each and each not in roles]
            for number, volume in enumerate(rest, 1):
                roles[volume] = (
                    name if len(rest) == 1 else f'{name} {number}')
        return roles


# -- the test case ---------------------------------------------------------


class MoveTableTestCase(moving.MoveTestCase):
    """Base class of tests of cells; :func:`cells` adds the tests."""

    #: What Nova alone leaves, by operation, kind and whether the server has
    #: no disk that dangles.
    _alone: dict[tuple[str, str, bool], list[End]] = {}

    def check_cell(self, operation: str, row: str) -> list[list[End]]:
        """Check a cell.

        :returns: the ends of the steps, each time that it was played
        """
        played = []
        while True:
            silent_from = len(played) + 1
            found = self.play(operation, ROWS[row], silent_from=silent_from)
            was_silent = self._is_silent
            problems = self.problems(operation, ROWS[row], found)
            if problems:
                self.fail('\n'.join([
                    *[f'Cinder is silent from request {silent_from} on']
                    * ROWS[row].silence, *problems]))
            played.append(found)
            if not ROWS[row].silence or not was_silent:
                return played

    def problems(self, operation: str, row: Row, found: Sequence[End]
                 ) -> list[str]:
        """Return what is wrong with the first step that ended wrong."""
        is_removed = False
        for number, end in enumerate(found):
            differences = []
            if self.can_be_removed(row, end):
                without = self.alone(operation, row.kind, True)[number]
                if end.without_lost() == without.without_lost():
                    is_removed = True
                    continue
                differences = [
                    'and from Nova alone without the disk:',
                    *end.without_lost().differences_from(
                        without.without_lost())]
            alone = self.alone(operation, row.kind)[number]
            if is_removed or not (end == alone or (
                    self._theirs and end.neighbour
                    and end.unconnected() == alone.unconnected())):
                return [f'end {number + 1} differs from Nova alone:',
                        *end.differences_from(alone), *differences]
        return []

    def can_be_removed(self, row: Row, end: End) -> bool:
        """Return whether the disks that dangle are gone, and nothing is left
        that is no other guest's.
        """
        # The guest of a host that is down still has its disks.
        down = {HERE} if end.is_down else set()
        kept = down | ({self._theirs[0]} if self._theirs else set())
        # A host without the plugin disconnects nothing that was removed on
        # another one.
        if row.circumstances == 'plugin_on_new_host':
            kept.add(HERE)
        return (row.kind != _ROOT and bool(end.lost())
                and end.neighbour is not False and all(
                    disk.is_removed
                    and {HOSTS[host] for host in down} >= set(disk.guests)
                    and not any(
                        count for host, count in zip(HOSTS, disk.connected)
                        if host not in kept)
                    for disk in end.lost().values()))

    def alone(self, operation: str, kind: str, without: bool = False
              ) -> list[End]:
        """Return the ends of Nova alone.

        :param without: without the disk that dangles
        """
        if without and kind not in _MULTIATTACH:
            # All of them leave the same disks.
            kind = AVAILABLE
        key = operation, kind, without
        if key not in self._alone:
            self._alone[key] = self.play(
                operation, Row('', kind), plugin=False, without=without)
        return self._alone[key]

    # -- playing -----------------------------------------------------------

    def play(self, operation: str, row: Row, plugin: bool = True,
             without: bool = False, silent_from: int = 1) -> list[End]:
        """Play an operation; return the end of each of its steps.

        :param plugin: whether the plugin is there, with the circumstances
        :param without: without the disk that dangles
        :param silent_from: the first request that Cinder does not answer
        """
        self.begin_anew(plugin)
        played = OPERATIONS[operation]
        before: Step | None = (
            getattr(self, played.before) if played.before else None)
        scene = self.scene(row.kind, before, played.root, without)
        if plugin and row.circumstances:
            getattr(self, row.circumstances)(scene.servers[0])
        if plugin and row.silence:
            self.be_silent(scene.servers[0], silent_from)
        scene.images = frozenset(self.cloud.nova.glance.images)
        with self.cloud.nova.database('cell1') as database:
            scene.last_action, = database.execute(
                'SELECT coalesce(max(id), 0) FROM instance_actions'
                ).fetchone()
        ends = []
        for name in played.steps:
            for server in scene.servers:
                error = getattr(self, name)(server)
                ends.append(self.settled_end(scene, server, error))
        self.come_back()
        if plugin:
            self._theirs = scene.theirs
        return ends

    def begin_anew(self, plugin: bool) -> None:
        """Begin with an empty cloud, with or without the plugin."""
        self.come_back()
        self.cloud.reset()
        if not plugin:
            self.cloud.switch_plugin_off()
        self.restart()
        self._is_silent, self._stop_with_guest = False, None
        self.store_path = self.store_path.parents[1] / uuid.uuid4().hex / \
            'store.sqlite'
        self.store_path.parent.mkdir(parents=True, mode=0o700)
        self.set_options(store=str(self.store_path))
        self.start_recording()

    _is_silent = False
    _theirs: tuple[str, str] | None = None

    def scene(self, kind: str, before: Step | None, root: str, without: bool
              ) -> Scene:
        """Return the servers, with a disk that dangles."""
        server, lost = self.server_with_lost(kind, root, without)
        if before:
            before(server)
        scene = Scene([server], lost)
        for volume in lost:
            scene.theirs = self.lose(server, volume, kind)
        if kind == _SHARED:
            scene.servers.append(self.create_server(
                fixture.Disk(volume=server.volumes[-1], at_boot=True,
                             multiattach=True), name='sharer', host=HERE))
        return scene

    def server_with_lost(self, kind: str, root: str, without: bool
                         ) -> tuple[fixture.Server, Sequence[str]]:
        """Return a server, and its volumes that are to dangle."""
        disk = fixture.Disk(at_boot=True, multiattach=kind in _MULTIATTACH)
        healthy = [disk] * 2
        if without or kind == _ROOT:
            dangling = []
        elif kind == _SNAPSHOT:
            dangling = [dataclasses.replace(disk, source='snapshot')]
        else:
            dangling = [disk] * (9 if kind == _NINE else 1)
        while True:
            server = self.create_server(
                *healthy, *dangling, host=HERE, root=root, in_order=True)
            if len(dangling) != 1 or kind in (_SNAPSHOT, _SHARED):
                break
            # Nova handles the disks in the order of their ids, or of their
            # rows.  This one is last in both, so that what happens to the
            # others is always the same.
            if server.volumes[-1] == max(*server.volumes, server.root or ''):
                break
            self.cloud.delete(server)
        if not any(consumer == server.id
                   for consumer, _ in self.cloud.allocations()):
            self.cloud.allocate(server)
        if without or kind == _SHARED:
            return server, ()
        if kind == _ROOT:
            assert server.root
            return server, [server.root]
        if kind in (_SNAPSHOT, _NINE):
            return server, server.volumes[2:]
        return server, [server.volumes[-1]]

    def lose(self, server: fixture.Server, volume: str, kind: str
             ) -> tuple[str, str] | None:
        """Have a disk dangle.

        :returns: the disk of another guest, and the host that has it
        """
        if kind in (_ADDRESS_HERE, _ADDRESS_THERE):
            self.damage(server, volume, AVAILABLE)
            host = HERE if kind == _ADDRESS_HERE else THERE
            return host, self.add_neighbour(server, volume, host)[1]
        if kind in (_MULTIATTACH_HERE, _MULTIATTACH_THERE):
            self.damage(server, volume, AVAILABLE)
            host = HERE if kind == _MULTIATTACH_HERE else THERE
            self.cloud.attach(self.create_server(host=host), volume)
            return host, volume
        if kind in (_HALF_MOVED, _SNAPSHOT, _ROOT, _NINE):
            self.damage(server, volume, AVAILABLE)
            if kind == _HALF_MOVED:
                self.cloud.create_attachment(server, volume, connected=False)
            return None
        self.damage(server, volume, kind)
        where = {moving.SAME_HOST: HERE, ELSEWHERE: THERE}.get(kind)
        return (where, volume) if where else None

    # -- steps -------------------------------------------------------------

    def delete(self, server: fixture.Server) -> fixture.APIError | None:
        self.start_recording()
        try:
            self.cloud.request(
                'DELETE', f'/servers/{server.id}', by=self.cloud.admin)
        except fixture.APIError as error:
            return error
        self.cloud.wait_until_idle(server)
        return None

    def unshelve_there(self, server: fixture.Server
                       ) -> fixture.APIError | None:
        """Unshelve a server to the new host."""
        with self._disabled(HERE):
            return self.unshelve(server)

    @contextlib.contextmanager
    def _disabled(self, host: str) -> Iterator[None]:
        """Have the scheduler choose another host."""
        service = self.cloud.request(
            'GET', '/os-services?binary=nova-compute&host=' + host,
            by=self.cloud.admin)['services'][0]['id']
        for status in ('disabled', 'enabled'):
            self.cloud.request('PUT', f'/os-services/{service}',
                               {'status': status}, by=self.cloud.admin)
            if status == 'disabled':
                yield

    # -- circumstances -----------------------------------------------------

    def be_silent(self, server: fixture.Server, first: int = 1) -> None:
        """Have Cinder answer no request of the plugin.

        The plugin asks with the credentials of the service, and Nova itself
        with the token of the administrator who asks for the operation.

        :param first: the number of the first request without an answer
        """
        requests = 0

        def answer(request: proxy.Request, forward: proxy.Forward
                   ) -> proxy.Answer:
            nonlocal requests
            if request.caller == identity.NOVA:
                requests += 1
                if requests >= first:
                    self._is_silent = True
                    return proxy.reset()(request, forward)
            return forward()

        self.cloud.proxy.on('*', '', answer)

    def use_up_limit(self, server: fixture.Server,
                     owner: identity.Caller | None = None) -> None:
        """Have a removal of a neighbour reach the limit of its project."""
        self.set_options(max_removals_per_hour=1)
        other = self.create_server(
            scenario.BOOT_DISK, name='other', host=HERE, owner=owner)
        self.cloud.lose_attachment(other, other.volumes[0])
        self.cloud.reboot(other, by=self.cloud.admin)
        self.assertEqual(1, len(self.journal()))

    def use_up_limit_of_another_project(self, server: fixture.Server) -> None:
        self.use_up_limit(server, self.cloud.other_user)

    def select_missing_only(self, server: fixture.Server) -> None:
        self.set_options(remove=['missing'])

    def lock_as_administrator(self, server: fixture.Server) -> None:
        self.cloud.act(server, {'lock': None}, by=self.cloud.admin)

    def lock_as_owner(self, server: fixture.Server) -> None:
        self.cloud.act(server, {'lock': None})

    def observe(self, server: fixture.Server) -> None:
        self.set_options(mode='observe')

    def do_not_record(self, server: fixture.Server) -> None:
        self.block_store()

    def plugin_on_old_host(self, server: fixture.Server) -> None:
        self.cloud.switch_plugin_off_on(THERE)

    def plugin_on_new_host(self, server: fixture.Server) -> None:
        self.cloud.switch_plugin_off_on(HERE)

    def plugin_on_no_host(self, server: fixture.Server) -> None:
        self.switch_plugin_off()

    def stop_gracefully(self, server: fixture.Server) -> None:
        """Have nova-compute stop gracefully from the middle on.

        It begins to stop when it switches the guest off, or before an
        operation that does not.
        """
        for host in (HERE, THERE):
            manager = self.cloud.nova.computes[host].manager
            if not hasattr(manager, 'set_shutdown_in_progress'):
                self.skipTest('Nova does not say that it stops')
            if host == self.host_of(server):
                self._stop_with_guest = (
                    manager.set_shutdown_in_progress, server.id)
            else:
                manager.set_shutdown_in_progress()

    #: Stops the nova-compute of a server; the id of that server.
    _stop_with_guest: tuple[Callable[[], None], str] | None = None

    def start_recording(self) -> None:
        super().start_recording()
        if self._stop_with_guest:
            self.cloud.recorder.before(
                recorder.GUEST, 'power off', *self._stop_with_guest)

    def stop_gracefully_on_old_host(self, server: fixture.Server) -> None:
        self.stop_gracefully(server)
        self.plugin_on_old_host(server)

    # -- looking -----------------------------------------------------------

    def settled_end(self, scene: Scene, server: fixture.Server,
                    error: fixture.APIError | None) -> End:
        """Return the end of an operation when Nova has done all of it.

        Nova deletes allocations last, after it has changed the server.
        """
        deadline = time.monotonic() + _LAST_WORK
        found = self.end(scene, server, error)
        while time.monotonic() < deadline:
            time.sleep(0.15)
            last, found = found, self.end(scene, server, error)
            if last == found:
                break
        return found

    def end(self, scene: Scene, server: fixture.Server,
            error: fixture.APIError | None) -> End:
        """Return the end of an operation as it is now."""
        roles = scene.roles(server)
        with self.cloud.nova.database('cell1') as database:
            def select(query: str, *values: object) -> list[Any]:
                return database.execute(query, values).fetchall()

            (vm_state, task_state, host, is_deleted), = select(
                'SELECT vm_state, task_state, host, deleted FROM instances '
                'WHERE uuid = ?', server.id)
            migrations = select(
                'SELECT migration_type, status, source_compute, dest_compute, '
                'uuid FROM migrations WHERE instance_uuid = ? ORDER BY id',
                server.id)
            actions = tuple(
                (action, message, tuple(sorted(
                    (event, str(result)) for event, result in select(
                        'SELECT event, result FROM instance_actions_events '
                        'WHERE action_id = ?', number)
                    if not event.startswith('bdm_cleanup'))))
                for number, action, message in select(
                    'SELECT id, action, message FROM instance_actions WHERE '
                    'instance_uuid = ? AND id > ? ORDER BY id', server.id,
                    scene.last_action))
            faults = select(
                'SELECT message FROM instance_faults WHERE instance_uuid = ? '
                'ORDER BY id', server.id)
        consumers = {server.id: 'server', **{
            each[4]: 'migration' for each in migrations}}
        guests = self._guests(server)
        return End(
            answer=error.status if error else None,
            vm_state='deleted' if is_deleted else vm_state,
            task_state=task_state, host=HOSTS.get(host),
            guests=tuple((where, bool(domain.isActive()))
                         for where, domain in guests.items()),
            disks=self._disks(server, roles, {
                where: domain for where, domain in guests.items()
                if domain.isActive() or where == HOSTS.get(host)}),
            allocations=tuple(sorted(
                (consumers[consumer], HOSTS[where])
                for consumer, where in self.cloud.allocations()
                if consumer in consumers)),
            migrations=tuple(
                (kind, status, HOSTS.get(source), HOSTS.get(there))
                for kind, status, source, there, _ in migrations),
            images=tuple(sorted(
                (image['name'], image['status']) for key, image
                in self.cloud.nova.glance.images.items()
                if key not in scene.images)),
            actions=actions,
            faults=tuple(_with_roles(text, roles) for text, in faults),
            neighbour=None if scene.theirs is None else bool(
                self.cloud.nova.connected[scene.theirs[0]][scene.theirs[1]]),
            is_down=bool(self._dead))

    def _guests(self, server: fixture.Server) -> dict[str, Any]:
        """Return the guests of a server, by host."""
        found = {name: self.cloud.domain(dataclasses.replace(
            server, host=host)) for host, name in HOSTS.items()}
        return {host: domain for host, domain in found.items() if domain}

    def _disks(self, server: fixture.Server, roles: Mapping[str, str],
               guests: Mapping[str, Any]) -> dict[str, Disk]:
        """Return the disks of a server, by role."""
        rows = {row.volume_id: row.attachment_id
                for row in self.cloud.nova.block_devices(server.id)
                if not row.deleted}
        described = {host: domain.XMLDesc(0)
                     for host, domain in guests.items()}
        found = {}
        with self.cloud.cinder.database() as database:
            for volume, role in roles.items():
                attachments = {
                    name: (status, HOSTS.get(host)) for name, status, host
                    in database.execute(
                        'SELECT id, attach_status, attached_host FROM '
                        'volume_attachment WHERE volume_id = ? AND '
                        'instance_uuid = ? AND NOT deleted',
                        (volume, server.id))}
                status = database.execute(
                    'SELECT status FROM volumes WHERE id = ? AND NOT deleted',
                    (volume,)).fetchone()
                found[role] = Disk(
                    row=None if volume not in rows else attachments.get(
                        rows[volume], ('no attachment',))[0],
                    attachments=tuple(sorted(
                        f'{status} on {host}' if host else status
                        for status, host in attachments.values())),
                    volume=status and status[0],
                    guests=tuple(host for host, xml in described.items()
                                 if f'<serial>{volume}</serial>' in xml),
                    connected=(self.cloud.nova.connected[HERE][volume],
                               self.cloud.nova.connected[THERE][volume]))
        return found


def _with_roles(text: str, roles: Mapping[str, str]) -> str:
    """Replace the ids in a message."""
    for volume, role in roles.items():
        text = text.replace(volume, f'<{role}>')
    return _DOMAIN.sub('<guest>', _UUID.sub('<id>', text))


def in_words(ends: Iterable[End]) -> str:
    """Return the ends of the steps of an operation, in words."""
    said: set[str] = set()
    steps = []
    for end in ends:
        words = list(end.words())
        steps.append(', '.join(
            word for word in words if word not in said or word == words[0]))
        said.update(words[1:])
    return '; then '.join(steps)


def table() -> Iterator[tuple[str, str]]:
    """Yield the operation and the row of each cell."""
    for name, operation in OPERATIONS.items():
        for key, row in ROWS.items():
            if row.fits(operation):
                yield name, key


_Class = TypeVar('_Class', bound=type)


def cells(*chosen: tuple[str, str]) -> Callable[[_Class], _Class]:
    """Add a test for each of some cells to a class."""
    def add(owner: _Class) -> _Class:
        for operation, row in chosen:
            def test(self: Any, operation: str = operation, row: str = row
                     ) -> None:
                self.check_cell(operation, row)

            test.__doc__ = '%s: %s.' % (
                OPERATIONS[operation].title, ROWS[row].words)
            test.__name__ = f'test_{operation}_is_no_worse_if_{row}'
            setattr(owner, test.__name__, test)
        return owner
    return add
