# SPDX-License-Identifier: Apache-2.0
"""Servers that leave their host, each with a disk that dangles.

Every operation is run with every kind of a dangling disk B, beside healthy
disks that the guest writes to all the time.  Afterwards one line describes
the server from all sides, and is compared with the known outcome of stock
Nova and the promised one of the plugin.
"""

from __future__ import annotations

import functools
import pathlib
from typing import Any

from e2e import (
    api,
    hosts as hosts_mod,
    identity,
    lab as lab_mod,
    processes,
    stack as stack_mod,
    trial as trial_mod,
)

HERE, THERE = lab_mod.HOSTS
_PLACES = {HERE: ' here', THERE: ' there', None: ''}

#: The damage to B before the server moves: one of the list of damage, or
#: attached on another host (elsewhere) or on the same (samehost).
KINDS = ('healthy', 'volume-deleted', 'attachment-deleted', 'transferred',
         'elsewhere', 'samehost')


def _host(server: dict[str, Any]) -> str | None:
    name: str | None = server['OS-EXT-SRV-ATTR:host']
    return name


def _holders() -> dict[str, frozenset[str]]:
    """Return the consumers that have an allocation, by host."""
    return {one['name']: frozenset(api.call(
        'placement', 'GET', f'/resource_providers/{one["uuid"]}/allocations',
        who=api.ADMIN)['allocations'])
        for one in api.call('placement', 'GET', '/resource_providers',
                            who=api.ADMIN)['resource_providers']}


class Moves(trial_mod.Trial):
    """A trial on two hosts; its server begins on the first of them."""

    hosts = lab_mod.HOSTS
    counts = True

    def __init__(self, stack: stack_mod.Stack, plugin: bool) -> None:
        super().__init__(stack, plugin)
        self.machines = hosts_mod.Hosts(stack)
        self.compute = hosts_mod.Computes(stack, self.machines)
        #: The lines still to be seen, and those already seen.
        self.expected: list[str] = []
        self.seen: list[str] = []
        #: Consumers with an allocation in the empty cloud: leaks never end.
        self.leaked = frozenset().union(*_holders().values())
        #: How far the guest had counted on its disks.
        self.written: list[int] = []

    def where(self, server: str) -> tuple[pathlib.Path, str]:
        # A shelved server has no host, so it is found on none of them.
        host = self.machines[_host(self.show_server(server)) or HERE]
        return host.instances, host.uri

    def plugin_files(self, pattern: str = '*') -> list[pathlib.Path]:
        return [path for host in self.machines.values()
                for path in host.home.glob(f'state/bdm-cleanup/{pattern}')]

    def audit_lines(self) -> list[str]:
        return [line for host in self.machines.values()
                for line in self.logs.lines(host.compute, 'bdm-cleanup:')]

    def server(self, *disks: str, root: str = 'root', on: str = HERE) -> str:
        """Boot a server whose guest writes to its first two disks."""
        self.machines.use(on)
        server = super().server(*disks, root=root)
        self.machines.use(*self.hosts)
        return server

    def break_(self, server: str, kind: str, host: str = HERE) -> None:
        """Let B dangle.

        :param host: where its disks are disconnected or connected next
        """
        if kind in ('elsewhere', 'samehost'):
            if kind == 'elsewhere':
                host = THERE if host == HERE else HERE
            self.attach_elsewhere(server, 'B', host)
        else:
            self.damage(server, kind)
        self.logs.mark()

    def act(self, server: str, action: str, **words: str) -> str:
        """Act as an administrator and wait; return the status."""
        self.action(server, {action: words or None}, api.ADMIN)
        return self.wait_server(server)

    # -- looking -----------------------------------------------------------

    def describe(self, server: str) -> str:
        """Describe a server in one line that omits the expected state."""
        view = self.view(server)
        host = _host(self.show_server(server))
        words = [f'{view.status}{_PLACES[host]}']
        has = view.guest or ()
        words.append(f'guest has {" ".join(has)}' if has else 'no guest')
        if has and view.domain != has:
            words.append(f'domain has {view.domain}')
        if view.bdms != has:
            words.append(f'mappings {" ".join(view.bdms)}')
        if view.attachments != tuple(f'{name}:attached' for name in has):
            words.append(f'attachments {" ".join(view.attachments)}')
        words += [f'guest also {_PLACES[name]}'
                  for name, other in self.machines.items()
                  if name != host and 'running' in (
                      other.virsh('domstate', server) or '')]
        words += self._allocations(server, host, view.status)
        return ', '.join(words)

    def _allocations(self, server: str, host: str | None,
                     status: str) -> list[str]:
        """Return the surplus and missing allocations in Placement."""
        words = []
        for name, holders in _holders().items():
            held = server in holders
            if held != (name == host):
                words.append(('allocation left' if held else 'no allocation')
                             + _PLACES[name])
            if status != 'VERIFY_RESIZE' and (
                    holders - self.leaked - {server, self.other}):
                words.append(f"migration's allocation{_PLACES[name]}")
        return words

    def see(self, server: str) -> None:
        """Compare the server with the next line, and its disks with before.

        Nova cleans up behind its answers, and a guest reports now and then.
        """
        wanted = self.expected.pop(0)
        seen = ''

        def is_so() -> bool:
            nonlocal seen
            seen = self.describe(server)
            return seen == wanted
        try:
            processes.wait_until(is_so, '', 40, 1)
        except processes.NotUp:
            raise trial_mod.Failed(
                f'{seen!r}\n  instead of {wanted!r}\n  fault: '
                f'{self.show_server(server).get("fault")}') from None
        self.seen.append(seen)
        if 'guest has' in seen:
            self.written = self.expect_writes(
                'root', 'A', since=self.written)

    def counted(self, *names: str) -> list[int]:
        return [self.stack.ceph.count(self.volumes[name]) for name in names]

    def expect_writes(self, *names: str, since: list[int] | None = None
                      ) -> list[int]:
        """Check that the guest goes on writing from its last count."""
        before = self.counted(*names)
        if since and any(now < then for now, then in zip(before, since)):
            raise trial_mod.Failed(f'written to {names}: {since}, then '
                                   f'{before}')
        processes.wait_until(
            lambda: all(now > then for now, then in zip(
                self.counted(*names), before)),
            f'the guest writes to {names}', 30, 1)
        return before

    def expect_disk(self, kind: str) -> None:
        """Check that B still has its new holder, and no other."""
        has = 'has A B root' in self.seen[-1]
        its = self.seen[-1].endswith(_ALL) or 'B:attached' in self.seen[-1]
        self.expect_volume('B', {'volume-deleted': 'gone'}.get(kind, (
            'in-use' if its or self.other else 'available')))
        if kind == 'transferred':
            owner = (self.show_volume(self.volumes['B']) or {}).get(
                'os-vol-tenant-attr:tenant_id')
            self.equal('project of B', owner,
                       api.login(api.ADMIN).get_project_id())
        if kind != 'volume-deleted':  # a remaining image has another name
            self.equal('guests that have B open', len(self.on_host('B')),
                       has + bool(self.other))
        if self.other:
            self.expect(self.other, 'ACTIVE', 'B other-root')
            self.expect_writes('B', 'other-root')


# The operations on a server whose B dangles, or will


def _migrate(t: Moves, server: str, kind: str) -> None:
    t.break_(server, kind)
    _move(t, server, 'confirmResize', 'migrate', host=THERE)


def _resize(t: Moves, server: str, kind: str) -> None:
    t.break_(server, kind)
    t.machines.use(THERE)
    _move(t, server, 'revertResize', 'resize',
          flavorRef=identity.LARGER_FLAVOR)
    t.machines.use(*t.hosts)


def _move(t: Moves, server: str, end: str, action: str, **words: str) -> None:
    status = t.act(server, action, **words)
    t.see(server)
    if status == 'VERIFY_RESIZE':
        t.end_resize(server, end)
        t.see(server)


def _revert(t: Moves, server: str, kind: str) -> None:
    t.act(server, 'migrate', host=THERE)
    t.break_(server, kind, THERE)
    t.end_resize(server, 'revertResize')
    t.see(server)


def _live(t: Moves, server: str, kind: str) -> None:
    t.break_(server, kind)
    t.act(server, 'os-migrateLive', host=THERE, block_migration='auto')
    t.see(server)


def _evacuate(t: Moves, server: str, kind: str) -> None:
    t.break_(server, kind)
    t.machines[HERE].crash()
    t.machines.force_down(HERE)
    t.act(server, 'evacuate', host=THERE)
    t.see(server)
    t.compute.start()
    t.see(server)
    if kind == 'samehost' and t.other:  # it went down with the host
        t.act(t.other, 'reboot', type='HARD')


def _shelve(t: Moves, server: str, kind: str) -> None:
    t.break_(server, kind)
    t.act(server, 'shelve')
    t.see(server)
    _unshelve_it(t, server)


def _unshelve(t: Moves, server: str, kind: str) -> None:
    t.act(server, 'shelve')
    t.break_(server, kind, THERE)
    _unshelve_it(t, server)


def _unshelve_it(t: Moves, server: str) -> None:
    if t.show_server(server)['status'] == 'SHELVED_OFFLOADED':
        t.act(server, 'unshelve', host=THERE)
        t.see(server)


OPERATIONS = {
    'migrate': ('Cold migration, confirmed', _migrate),
    'resize': ('Resize, taken back', _resize),
    'revert': ('Broken when migrated, then taken back', _revert),
    'live': ('Live migration', _live),
    'evacuate': ('Evacuation', _evacuate),
    'shelve': ('Shelved and unshelved', _shelve),
    'unshelve': ('Broken when shelved, then unshelved', _unshelve),
}


# The lines to be seen

_ALL = 'guest has A B root'
_WITHOUT = 'guest has A root'
_DANGLING = f'{_ALL}, attachments A:attached root:attached'
_SHELVED = ('SHELVED_OFFLOADED, no guest, mappings {0}root, '
            'attachments A:reserved {1}root:reserved')
_HALF = 'no guest, mappings A B root, attachments A:reserved root:reserved'


def _fine(operation: str, guest: str, shelved: str) -> list[str]:
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


def _all_fine(operation: str) -> list[str]:
    return _fine(operation, _ALL, _SHELVED.format('A B ', 'B:reserved '))


def _stock(operation: str, kind: str) -> list[str]:
    allocation = "migration's allocation here"
    if (operation, kind) == ('resize', 'transferred'):
        # The owner reverts, and may not have this volume.
        half = _HALF.replace('root:', 'B:attached root:')
        return [f'VERIFY_RESIZE there, {_ALL}',
                f'ERROR there, {half}, {allocation}']
    if operation != 'unshelve' and (kind == 'attachment-deleted' or (
            kind == 'transferred' and operation != 'revert')):
        return _all_fine(operation)
    return {
        'revert': [f'ERROR there, {_HALF}, {allocation}'],
        'live': [f'ACTIVE here, {_DANGLING}'],
        'shelve': [f'ACTIVE here, {_HALF}'],
        'unshelve': ['SHELVED_OFFLOADED, no guest, mappings A B root, '
                     'attachments A:attached root:attached, '
                     'allocation left there'],
        'evacuate': [f'ERROR here, {_HALF}'] * 2,
    }.get(operation, [f'ERROR here, {_HALF}'])


def _with_plugin(operation: str, kind: str) -> list[str]:
    """Return the lines; an extra last one follows a hard reboot."""
    refused = [f'ACTIVE here, {_DANGLING}', f'ACTIVE here, {_WITHOUT}']
    if kind == 'healthy' or (
            operation == 'live' and kind == 'attachment-deleted'):
        return _all_fine(operation)
    if operation == 'live' or (
            operation in ('migrate', 'resize') and kind == 'samehost'):
        return refused
    if operation == 'evacuate':
        kept = _fine(operation, f'{_WITHOUT}, mappings A B root', '')
        return [*kept, f'ACTIVE there, {_WITHOUT}']
    return _fine(operation, _WITHOUT, _SHELVED.format('A ', ''))


def _play(operation: str, kind: str, trial: trial_mod.Trial) -> str:
    assert isinstance(trial, Moves)
    t = trial
    t.expected = (_with_plugin if t.plugin else _stock)(operation, kind)
    server = t.server('A', 'B')
    t.written = t.expect_writes('root', 'A')
    OPERATIONS[operation][1](t, server, kind)
    if t.expected:
        t.act(server, 'reboot', type='HARD')
        t.see(server)
    t.expect_disk(kind)
    if kind == 'healthy':
        t.expect_no_removal()
    return '; then '.join(t.seen)


MOVES = [
    trial_mod.Scenario(
        f'{operation}-{kind}', f'{title}: {kind}',
        functools.partial(_play, operation, kind), stock=kind != 'healthy')
    for operation, (title, _) in OPERATIONS.items() for kind in KINDS]
