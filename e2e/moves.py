# SPDX-License-Identifier: Apache-2.0
"""Moves of servers to another host, each with a dangling disk.

Each operation is run with each kind of damage to disk B, beside healthy disks
that the guest writes to all the time.  Afterwards one line describes the
state of the server from all sides.  It is compared with the known outcome of
stock Nova, or with the documented one of the plugin: it ends no operation, so
every one either succeeds without B, or ends as on stock Nova.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import contextlib
import functools
import pathlib
from typing import Any

from e2e import (
    api,
    hosts as hosts_mod,
    identity,
    lab as lab_mod,
    plugin as plugin_mod,
    processes,
    stack as stack_mod,
    trial as trial_mod,
)
from nova_bdm_cleanup.tests.cloud import damage

SOURCE, DESTINATION = lab_mod.HOSTS
#: The names of the hosts in a description; a shelved server has none.
PLACES = {SOURCE: ' here', DESTINATION: ' there', None: ''}

#: The damage to B before the server moves: one of the list of damage, or
#: attached on another host (elsewhere) or on the same (samehost).
KINDS = ('healthy', 'volume-deleted', 'attachment-deleted', 'transferred',
         'elsewhere', 'samehost')


def host_of(server: dict[str, Any]) -> str | None:
    """Return the host of a server that the API has shown."""
    name: str | None = server['OS-EXT-SRV-ATTR:host']
    return name


def _consumers() -> dict[str, frozenset[str]]:
    """Return the consumers that have an allocation, by host."""
    return {one['name']: frozenset(api.call(
        'placement', 'GET', f'/resource_providers/{one["uuid"]}/allocations',
        who=api.ADMIN)['allocations'])
        for one in api.call('placement', 'GET', '/resource_providers',
                            who=api.ADMIN)['resource_providers']}


class Moves(trial_mod.Trial):
    """A trial on two hosts; its server begins on the first of them."""

    hosts = lab_mod.HOSTS
    writes_counters = True

    def __init__(self, stack: stack_mod.Stack, plugin: bool) -> None:
        super().__init__(stack, plugin)
        self.compute_hosts = hosts_mod.Hosts(stack)
        self.compute = hosts_mod.Computes(stack, self.compute_hosts)
        #: The expected lines that are left, and the lines so far.
        self.expected_lines: list[str] = []
        self.lines_seen: list[str] = []
        #: Consumers with an allocation in the empty cloud: leaks stay.
        self.known_leaks = frozenset().union(*_consumers().values())
        #: The last counters that the guest wrote to its disks.
        self.last_counters: list[int] = []
        #: Whether allocations are compared.
        self.compares_allocations = True
        self.servers: set[str] = set()
        #: The user who confirms and reverts.
        self.owner = api.MEMBER
        #: Whether the plugin is on at both hosts.
        self.is_everywhere = plugin

    def location_of(self, server: str) -> tuple[pathlib.Path, str]:
        # A shelved server has no host, so it is found on none of them.
        host = self.compute_hosts[host_of(self.show_server(server)) or SOURCE]
        return host.instances, host.uri

    def plugin_files(self, pattern: str = '*') -> list[pathlib.Path]:
        return [path for host in self.compute_hosts.values()
                for path in host.home.glob(f'state/bdm-cleanup/{pattern}')
                if path.is_file()]

    def log_lines(self) -> list[str]:
        return [line for host in self.compute_hosts.values()
                for line in self.logs.lines(host.compute, 'bdm-cleanup:')]

    def server(self, *disks: str, root: str = 'root', on: str = SOURCE) -> str:
        """Boot a server whose guest writes to its first two disks."""
        self.compute_hosts.enable_only(on)
        server = super().server(*disks, root=root)
        self.servers.add(server)
        self.compute_hosts.enable_only(*self.hosts)
        return server

    def break_volume(self, server: str, kind: str, host: str = SOURCE,
                     volume: str = 'B') -> None:
        """Let B dangle.

        :param host: where its disks are disconnected or connected next
        """
        if kind in ('elsewhere', 'samehost'):
            if kind == 'elsewhere':
                host = DESTINATION if host == SOURCE else SOURCE
            self.attach_elsewhere(server, volume, host)
        else:
            damage.DAMAGE[kind].inflict(self, server, volume)
        self.logs.mark()

    def run_action(self, server: str, action: str, **words: str) -> str:
        """Act as an administrator and wait; return the status."""
        self.request(server, action, **words)
        return self.wait_server(server)

    def request(self, server: str, action: str, **words: str) -> None:
        """Act as an administrator."""
        self.action(server, {action: words or None}, api.ADMIN)

    def end_move(self, server: str, end: str) -> None:
        """Confirm or revert a resize or a migration, as the owner does."""
        self.finish_resize(server, end, self.owner)

    # -- one host ----------------------------------------------------------

    def crash_source(self) -> None:
        """Cut the power of the host that the server is on."""
        self.compute_hosts[SOURCE].crash()
        self.compute_hosts.force_down(SOURCE)

    def restart_one(self, name: str, env: dict[str, str] | None = None
                    ) -> None:
        """Restart the nova-compute of one host."""
        host = self.compute_hosts[name]
        self.stack.procs.stop(host.compute)
        host.start_compute(env)

    @contextlib.contextmanager
    def switched_off(self, name: str) -> Iterator[None]:
        """Switch the plugin off on one host."""
        conf = self.compute_hosts[name].home / 'nova.conf'
        before = conf.read_text()
        conf.write_text(f'{before}[{plugin_mod.GROUP}]\nmode = off\n')
        self.restart_one(name)
        self.is_everywhere = False
        try:
            yield
        finally:
            conf.write_text(before)
            self.restart_one(name)

    @contextlib.contextmanager
    def locked(self, server: str, name: str) -> Iterator[None]:
        """Have an administrator lock the server, and do everything."""
        self.request(server, 'lock')
        self.owner = api.ADMIN
        try:
            yield
        finally:
            self.request(server, 'unlock')

    @contextlib.contextmanager
    def unwritable_store(self, server: str, name: str) -> Iterator[None]:
        """Have a file in the place of the store's directory on one host."""
        directory = self.compute_hosts[name].home / 'state/bdm-cleanup'
        aside = directory.with_name('aside')
        directory.mkdir(exist_ok=True)
        directory.rename(aside)
        directory.touch()
        try:
            yield
        finally:
            directory.unlink()
            aside.rename(directory)

    @contextlib.contextmanager
    def used_up_limit(self, server: str, name: str) -> Iterator[None]:
        """Use up the hourly limit of the project on one host."""
        self.restart(bdm_cleanup={'max_removals_per_hour': '1'})
        spender = self.server('C', root='other-root', on=name)
        self.lose_attachment(spender, 'C')
        self.reboot(spender)
        self.expect_log_line('event=removed', self.volumes['C'])
        self.delete_server(spender)
        self.logs.mark()
        try:
            yield
        finally:
            self.restart()

    # -- reading the state -------------------------------------------------

    def short_name(self, volume: Any) -> str:
        # Where there are many servers, the number of its server follows.
        return super().short_name(volume).partition(':')[0]

    def describe(self, server: str) -> str:
        """Describe a server in one line that omits the expected state."""
        state = self.state_of(server)
        host = host_of(self.show_server(server))
        words = [f'{state.status}{PLACES[host]}']
        has = state.guest or ()
        words.append(f'guest has {" ".join(has)}' if has else 'no guest')
        if has and state.domain != has:
            words.append(f'domain has {state.domain}')
        if state.bdms != has:
            words.append(f'mappings {" ".join(state.bdms)}')
        if state.attachments != tuple(f'{name}:attached' for name in has):
            words.append(f'attachments {" ".join(state.attachments)}')
        words += [f'guest also{PLACES[name]}'
                  for name, other in self.compute_hosts.items()
                  if name != host and 'running' in (
                      other.virsh('domstate', server) or '')]
        if self.compares_allocations:
            words += self._allocations(server, host, state.status)
        return ', '.join(words)

    def _allocations(self, server: str, host: str | None,
                     status: str) -> list[str]:
        """Return the surplus and missing allocations in Placement."""
        words = []
        for name, consumers in _consumers().items():
            held = server in consumers
            if held != (name == host):
                words.append(('allocation left' if held else 'no allocation')
                             + PLACES[name])
            if status != 'VERIFY_RESIZE' and (
                    consumers - self.known_leaks - self.servers):
                words.append(f"migration's allocation{PLACES[name]}")
        return words

    def expect_next(self, server: str) -> None:
        """Compare the server with the next expected line.

        A guest must continue its counters.
        """
        seen = self.expect_line(server, self.expected_lines.pop(0))
        self.lines_seen.append(seen)
        if 'guest has' in seen:
            self.last_counters = self.expect_writes(
                'root', 'A', since=self.last_counters)

    def expect_line(self, server: str, wanted: str) -> str:
        """Compare the server with a line.

        Wait for it: Nova cleans up after its answers, and a guest reports
        from time to time.
        """
        seen = ''

        def is_as_expected() -> bool:
            nonlocal seen
            seen = self.describe(server)
            return seen == wanted
        try:
            processes.wait_until(is_as_expected, '', 60, 1)
        except processes.TimedOut:
            raise trial_mod.Failed(
                f'{seen!r}\n  expected {wanted!r}\n  fault: '
                f'{self.show_server(server).get("fault")}') from None
        return seen

    def counters(self, *names: str) -> list[int]:
        return [self.counter(self.volumes[name]) for name in names]

    def expect_writes(self, *names: str, since: list[int] | None = None
                      ) -> list[int]:
        """Check that the guest continues its counters."""
        before = self.counters(*names)
        if since and any(now < then for now, then in zip(before, since)):
            raise trial_mod.Failed(f'counters on {names}: {since}, then '
                                   f'{before}')
        processes.wait_until(
            lambda: all(now > then for now, then in zip(
                self.counters(*names), before)),
            f'writes of the guest to {names}', 60, 1)
        return before

    def expect_volume_b(self, kind: str) -> None:
        """Check that B is used by its new server, and by no other."""
        line = self.lines_seen[-1]
        is_connected = 'has A B root' in line
        is_attached = line.endswith(ALL) or 'B:attached' in line
        self.expect_volume('B', {'volume-deleted': 'gone'}.get(kind, (
            'in-use' if is_attached or self.other else 'available')))
        if kind == 'transferred':
            owner = (self.show_volume(self.volumes['B']) or {}).get(
                'os-vol-tenant-attr:tenant_id')
            self.equal('project of B', owner,
                       api.login(api.ADMIN).get_project_id())
        if kind != 'volume-deleted':  # a remaining image is renamed
            self.equal('guests that have B open',
                       self.guests_with('B'), is_connected + bool(self.other))
        if self.other:
            self.expect(self.other, 'ACTIVE', 'B other-root')
            self.expect_writes('B', 'other-root')


# The operations; B dangles before each, or in the middle

Operation = Callable[[Moves, str, str], None]


def _migrate(t: Moves, server: str, kind: str) -> None:
    t.break_volume(server, kind)
    _move_and_end(t, server, 'confirmResize', 'migrate', host=DESTINATION)


def _resize(t: Moves, server: str, kind: str) -> None:
    t.break_volume(server, kind)
    t.compute_hosts.enable_only(DESTINATION)
    _move_and_end(t, server, 'revertResize', 'resize',
                  flavorRef=identity.LARGER_FLAVOR)
    t.compute_hosts.enable_only(*t.hosts)


def _move_and_end(t: Moves, server: str, end: str, action: str,
                  **words: str) -> None:
    status = t.run_action(server, action, **words)
    t.expect_next(server)
    if status == 'VERIFY_RESIZE':
        t.end_move(server, end)
        t.expect_next(server)


def _revert(t: Moves, server: str, kind: str) -> None:
    t.run_action(server, 'migrate', host=DESTINATION)
    t.break_volume(server, kind, DESTINATION)
    t.end_move(server, 'revertResize')
    t.expect_next(server)


def _live_migrate(t: Moves, server: str, kind: str) -> None:
    t.break_volume(server, kind)
    t.run_action(server, 'os-migrateLive', host=DESTINATION,
                 block_migration='auto')
    t.expect_next(server)


def _evacuate(t: Moves, server: str, kind: str) -> None:
    t.break_volume(server, kind)
    t.crash_source()
    t.run_action(server, 'evacuate', host=DESTINATION)
    t.expect_next(server)
    t.compute.start()
    t.expect_next(server)
    if t.is_everywhere and WITHOUT in t.lines_seen[-1]:
        t.expect_log_line('event=still-connected' if kind == 'samehost' else
                          'event=disconnected', 'reason=evacuated', server)
    if kind == 'samehost' and t.other:  # it stopped with the host
        t.run_action(t.other, 'reboot', type='HARD')


def _shelve(t: Moves, server: str, kind: str) -> None:
    t.break_volume(server, kind)
    t.run_action(server, 'shelve')
    t.expect_next(server)
    _unshelve_there(t, server)


def _unshelve(t: Moves, server: str, kind: str) -> None:
    t.run_action(server, 'shelve')
    t.break_volume(server, kind, DESTINATION)
    _unshelve_there(t, server)


def _unshelve_there(t: Moves, server: str) -> None:
    if t.show_server(server)['status'] == 'SHELVED_OFFLOADED':
        t.run_action(server, 'unshelve', host=DESTINATION)
        t.expect_next(server)


OPERATIONS = {
    'migrate': ('Cold migration, confirmed', _migrate),
    'resize': ('Resize, reverted', _resize),
    'revert': ('Cold migration, damaged, reverted', _revert),
    'live': ('Live migration', _live_migrate),
    'evacuate': ('Evacuation', _evacuate),
    'shelve': ('Shelve and unshelve', _shelve),
    'unshelve': ('Shelve, damaged, unshelve', _unshelve),
}


# The expected lines

ALL = 'guest has A B root'
WITHOUT = 'guest has A root'
DANGLING = f'{ALL}, attachments A:attached root:attached'
SHELVED = ('SHELVED_OFFLOADED, no guest, mappings {0}root, '
           'attachments A:reserved {1}root:reserved')
HALF_DONE = ('no guest, mappings A B root, '
             'attachments A:reserved root:reserved')


def success(operation: str, guest: str, shelved: str) -> list[str]:
    """Return the lines of an operation that succeeds with these disks."""
    return {
        'migrate': [f'VERIFY_RESIZE there, {guest}', f'ACTIVE there, {guest}'],
        'resize': [f'VERIFY_RESIZE there, {guest}', f'ACTIVE here, {guest}'],
        'revert': [f'ACTIVE here, {guest}'],
        'shelve': [shelved, f'ACTIVE there, {guest}'],
        # Nova cleans the old host up when it returns.
        'evacuate': [f'ACTIVE there, {guest}, allocation left here',
                     f'ACTIVE there, {guest}'],
    }.get(operation, [f'ACTIVE there, {guest}'])


def _success_with_all(operation: str) -> list[str]:
    return success(operation, ALL, SHELVED.format('A B ', 'B:reserved '))


def stock(operation: str, kind: str, backend: str = 'rbd') -> list[str]:
    """Return the lines of an operation on stock Nova.

    The back end makes a difference in a live migration: QEMU opens a device
    once more at its end, and the path of a loop device is gone then.
    """
    allocation = "migration's allocation here"
    if (operation, kind) == ('resize', 'transferred'):
        # The owner reverts, and has no access to this volume.
        half_done = HALF_DONE.replace('root:', 'B:attached root:')
        return [f'VERIFY_RESIZE there, {ALL}',
                f'ERROR there, {half_done}, {allocation}']
    is_lost = operation == 'unshelve' or (operation, backend) == (
        'live', 'loop')
    if kind == 'healthy' or not is_lost and (
            kind == 'attachment-deleted' or (
                kind == 'transferred' and operation != 'revert')):
        return _success_with_all(operation)
    return {
        'revert': [f'ERROR there, {HALF_DONE}, {allocation}'],
        'live': [f'ACTIVE here, {DANGLING}'],
        'shelve': [f'ACTIVE here, {HALF_DONE}'],
        'unshelve': ['SHELVED_OFFLOADED, no guest, mappings A B root, '
                     'attachments A:attached root:attached, '
                     'allocation left there'],
        'evacuate': [f'ERROR here, {HALF_DONE}'] * 2,
    }.get(operation, [f'ERROR here, {HALF_DONE}'])


def with_plugin(operation: str, kind: str, backend: str) -> list[str]:
    """Return the lines; an extra last one follows a hard reboot."""
    if kind == 'healthy':
        return _success_with_all(operation)
    if operation != 'live':
        return success(operation, WITHOUT, SHELVED.format('A ', ''))
    # Nothing is removed while a guest keeps its disks.
    *_, last = lines = stock(operation, kind, backend)
    return lines if last.endswith(ALL) else [
        *lines, f'ACTIVE here, {WITHOUT}']


def _run(operation: str, kind: str, trial: trial_mod.Trial) -> str:
    if kind == 'samehost' and trial.backend == 'loop':
        # QEMU's lock on the device keeps the other server from starting.
        return 'not run'
    lines = (with_plugin if trial.plugin else stock)(
        operation, kind, trial.backend)
    return play(OPERATIONS[operation][1], kind, lines, trial)


def play(operate: Operation, kind: str, lines: Sequence[str],
         trial: trial_mod.Trial) -> str:
    """Operate on a server with a dangling disk, and compare its lines."""
    assert isinstance(trial, Moves)
    t = trial
    t.expected_lines = [*lines]
    server = t.server('A', 'B')
    t.last_counters = t.expect_writes('root', 'A')
    operate(t, server, kind)
    if t.expected_lines:
        t.run_action(server, 'reboot', type='HARD')
        t.expect_next(server)
    t.expect_volume_b(kind)
    if kind == 'healthy':
        t.expect_no_removal()
    return '; then '.join(t.lines_seen)


MOVES = [
    trial_mod.Scenario(
        f'{operation}-{kind}', f'{title}: {kind}',
        functools.partial(_run, operation, kind), stock=kind != 'healthy')
    for operation, (title, _) in OPERATIONS.items() for kind in KINDS]
