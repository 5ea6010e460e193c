# SPDX-License-Identifier: Apache-2.0
"""Moves in which nothing may be removed, or that are interrupted.

Each has a table of plays, which are run like those of :mod:`e2e.moves`.  An
operation in which nothing may be removed, or on a host without the plugin,
ends as on stock Nova.  Where nova-compute was killed, a hard reboot brings the
guest back with its healthy disks, and with no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import contextlib
import dataclasses
import functools

from e2e import identity, moves, processes, trial as trial_mod
from e2e.moves import DESTINATION, Moves, Operation, SOURCE, WITHOUT


@dataclasses.dataclass(frozen=True)
class Play:
    """An operation on a server whose disk B dangles, and its lines.

    :ivar kind: the damage to B
    """

    title: str
    operate: Operation
    lines: Sequence[str]
    kind: str = 'attachment-deleted'


PLAYS: dict[str, Play] = {}

#: The records after an evacuation that failed: the attachments are the new
#: host's.
_FAILED = 'mappings A root, attachments A:attached root:attached'


def _begin(t: Moves, server: str, operation: str) -> None:
    """Do what comes before an operation."""
    before = {'revert': 'migrate', 'unshelve': 'shelve'}.get(operation)
    if before is not None:
        t.run_action(server, before, **_words(before))


def _request(t: Moves, server: str, operation: str) -> None:
    """Request an operation; a host without power is down before."""
    if operation == 'evacuate':
        t.crash_source()
    t.request(server, {'revert': 'revertResize'}.get(operation, operation),
              **_words(operation))


def _words(operation: str) -> dict[str, str]:
    return {} if operation in ('revert', 'shelve') else {'host': DESTINATION}


def _acting_host(operation: str) -> str:
    """Return the host that looks first."""
    return (SOURCE if operation in ('migrate', 'resize', 'shelve')
            else DESTINATION)


def _stop_at(t: Moves, host: str, action: str, point: str) -> None:
    """Restart a host's nova-compute so that it stops at a point."""
    if ':' not in point.removesuffix(':after').removesuffix(':before'):
        point = f'nova.virt.libvirt.driver:{point}'
    t.restart_one(host, t.environment_to_stop(point, action))


# -- nothing may be removed ------------------------------------------------

_Obstacle = Callable[[Moves, str, str],
                     contextlib.AbstractContextManager[None]]

#: In words, with the damage to B, and the reason in the log.
_OBSTACLES: dict[str, tuple[str, _Obstacle, str, str]] = {
    'limit': ('the hourly limit of the project is used up',
              Moves.used_up_limit, 'attachment-deleted', 'over-limit'),
    'store': ('the store cannot be written', Moves.unwritable_store,
              'volume-deleted', 'journal-unwritable'),
    'lock': ('an administrator has locked the server', Moves.locked,
             'attachment-deleted', 'server-locked')}


def _withhold(operation: str, obstacle: str, t: Moves, server: str,
              kind: str) -> None:
    """Carry an operation out while nothing may be removed."""
    _, begin, _, reason = _OBSTACLES[obstacle]
    with begin(t, server, _acting_host(operation)):
        moves.OPERATIONS[operation][1](t, server, kind)
        t.expect_log_line(reason)
        t.expect_no_removal()


def _add_obstacles() -> None:
    for operation, obstacle in (
            *((one, obstacle) for obstacle in ('limit', 'lock')
              for one in ('migrate', 'resize', 'revert', 'shelve',
                          'unshelve')),
            *((one, 'store') for one in moves.OPERATIONS if one != 'live')):
        words, _, kind, _ = _OBSTACLES[obstacle]
        PLAYS[f'{operation}-{obstacle}'] = Play(
            f'{moves.OPERATIONS[operation][0]}: {words}',
            functools.partial(_withhold, operation, obstacle),
            moves.stock(operation, kind), kind)


_add_obstacles()


def _evacuate_within(obstacle: str, t: Moves, server: str,
                     kind: str) -> None:
    """Evacuate beside an obstacle that is none to an evacuation."""
    with _OBSTACLES[obstacle][1](t, server, DESTINATION):
        moves.OPERATIONS['evacuate'][1](t, server, kind)


# Masakari locks a server before it evacuates it.
for _obstacle in ('limit', 'lock'):
    PLAYS[f'evacuate-{_obstacle}'] = Play(
        f'Evacuation: {_OBSTACLES[_obstacle][0]}',
        functools.partial(_evacuate_within, _obstacle),
        moves.success('evacuate', WITHOUT, ''), 'volume-deleted')


# -- an evacuation fails ---------------------------------------------------

def _fail(t: Moves, server: str, kind: str) -> None:
    """Evacuate from a host without power; the new host fails to start it."""
    t.break_volume(server, kind)
    _stop_at(t, DESTINATION, 'fail', 'LibvirtDriver.spawn:before')
    _request(t, server, 'evacuate')
    t.wait_server(server)
    t.expect_next(server)
    t.compute.start()
    t.expect_next(server)
    t.expect_log_line('event=disconnected', 'reason=evacuated', server)
    t.restart_one(DESTINATION)


def _fail_beside_guest(t: Moves, server: str, kind: str) -> None:
    """Evacuate from a host on which only nova-compute is down."""
    t.break_volume(server, kind)
    _stop_at(t, DESTINATION, 'fail', 'LibvirtDriver.spawn:before')
    t.stack.procs.kill(t.compute_hosts[SOURCE].compute)
    t.compute_hosts.force_down(SOURCE)
    t.request(server, 'evacuate', **_words('evacuate'))
    t.wait_server(server)
    t.compute.start()
    t.expect_next(server)
    t.equal('lines of a disconnect', [
        one for one in t.log_lines()
        if 'event=disconnected' in one and server in one], [])
    t.run_action(server, 'reboot', type='HARD')
    t.expect_next(server)
    t.expect_log_line('event=disconnected', 'reason=evacuated', server)
    t.restart_one(DESTINATION)


PLAYS['evacuate-fails'] = Play(
    'Evacuation: the new host removes the mapping, and cannot start the guest',
    _fail, [f'ERROR here, no guest, {_FAILED}'] * 2
    + [f'ACTIVE here, {WITHOUT}'], 'transferred')
PLAYS['evacuate-fails-guest-on'] = Play(
    'Evacuation while the guest runs: the same; at its next power-off',
    _fail_beside_guest,
    [f'ERROR here, {moves.ALL}, {_FAILED}',
     f'ACTIVE here, {WITHOUT}'], 'transferred')


# -- the old host returns in the middle ------------------------------------

def _return_in_spawn(t: Moves, server: str, kind: str) -> None:
    """Boot the old host while the new one starts the guest."""
    t.break_volume(server, kind)
    _stop_at(t, DESTINATION, 'pause', 'LibvirtDriver.spawn:before')
    _request(t, server, 'evacuate')
    t.wait_paused()
    t.compute.start()
    t.let_continue()
    t.wait_server(server)
    t.expect_next(server)
    t.restart_one(DESTINATION)


def _return_in_resize(t: Moves, server: str, kind: str) -> None:
    """Boot the old host while the new one resizes the guest."""
    t.break_volume(server, kind)
    _request(t, server, 'evacuate')
    t.wait_server(server)
    t.expect_next(server)
    _stop_at(t, DESTINATION, 'pause',
             'LibvirtDriver.migrate_disk_and_power_off:before')
    t.compute_hosts.enable_only(DESTINATION)
    t.request(server, 'resize', flavorRef=identity.LARGER_FLAVOR)
    t.wait_paused()
    t.compute.start()
    t.let_continue()
    t.wait_server(server)
    t.expect_next(server)
    t.end_move(server, 'revertResize')
    t.expect_next(server)
    t.restart_one(DESTINATION)


PLAYS['return-in-spawn'] = Play(
    'The old host returns while the new one starts the guest',
    _return_in_spawn, [f'ACTIVE there, {WITHOUT}'], 'transferred')
# The old host does not find its allocation, which the migration has meanwhile.
PLAYS['return-in-resize'] = Play(
    'The old host returns while the evacuated server is resized',
    _return_in_resize,
    [f'ACTIVE there, {WITHOUT}, allocation left here',
     f'VERIFY_RESIZE there, {WITHOUT}',
     f'ACTIVE there, {WITHOUT}, allocation left here'],
    'transferred')


# -- nova-compute is killed ------------------------------------------------

_NODE = 'nova_bdm_cleanup.node'
_DESTROY_ROW = 'nova.objects.block_device:BlockDeviceMapping.destroy:after'

#: When it is killed: in words, the operation, the host, the point.
KILLS = {
    'look': ('the first look is taken', 'migrate', SOURCE,
             f'{_NODE}.hooks.operation:Operation._look:after'),
    'off': ('the guest is off', 'migrate', SOURCE,
            'LibvirtDriver.power_off:after'),
    'disconnected': ('the host is disconnected', 'migrate', SOURCE,
                     'LibvirtDriver.migrate_disk_and_power_off:after'),
    'row-deleted': ('the mapping is deleted', 'migrate', SOURCE,
                    _DESTROY_ROW),
    'reserved': ('the other volumes are reserved', 'migrate', SOURCE,
                 'nova.compute.manager:ComputeManager.'
                 '_terminate_volume_connections:after'),
    'arriving': ('the new host starts the guest', 'migrate', DESTINATION,
                 'LibvirtDriver.finish_migration:before'),
    'arrived': ('the new host has started the guest', 'migrate', DESTINATION,
                'LibvirtDriver.finish_migration:after'),
    'reverting': ('the guest is destroyed', 'revert', DESTINATION,
                  'LibvirtDriver.destroy:after'),
    'back': ('the first host starts the guest', 'revert', SOURCE,
             'LibvirtDriver.finish_revert_migration:before'),
    'shelving': ('the guest is destroyed', 'shelve', SOURCE,
                 'LibvirtDriver.destroy:after'),
    'unshelving': ('the new host starts the guest', 'unshelve', DESTINATION,
                   'LibvirtDriver.spawn:before'),
    'evacuating': ('the mapping is deleted', 'evacuate', DESTINATION,
                   _DESTROY_ROW),
    'evacuated': ('the new host starts the guest', 'evacuate', DESTINATION,
                  'LibvirtDriver.spawn:before'),
}


def _kill(name: str, t: Moves, server: str, kind: str) -> None:
    """Kill nova-compute in an operation, and start it again.

    Nova itself leaves allocations then.
    """
    t.compares_allocations = False
    _, operation, host, point = KILLS[name]
    _begin(t, server, operation)
    t.break_volume(server, kind, _acting_host(operation))
    _stop_at(t, host, 'kill', point)
    _request(t, server, operation)
    t.wait_killed(t.compute_hosts[host].compute)
    t.compute.start()
    try:
        t.wait_server(server, 20)
    except processes.TimedOut:
        # Nova does not take every operation up again.
        t.request(server, 'os-resetState', state='error')


#: Where the server is after a hard reboot.
_BACK = {'arriving': 'there', 'arrived': 'there', 'reverting': 'there',
         'unshelving': 'there'}

#: The healthy attachments that Nova has not completed; the guest has the disks
#: all the same.
_HALF_ATTACHED = {
    'reserved': ', attachments A:reserved root:reserved',
    'arriving': ', attachments A:attaching root:attaching',
    'back': ', attachments A:attaching root:attaching'}

for _name, (_words_of_point, _operation, _, _) in KILLS.items():
    PLAYS[f'kill-{_name}'] = Play(
        f'{moves.OPERATIONS[_operation][0]}: SIGKILL when {_words_of_point}',
        functools.partial(_kill, _name),
        [f'ACTIVE {_BACK.get(_name, "here")}, {WITHOUT}'
         f'{_HALF_ATTACHED.get(_name, "")}'], 'transferred')


def _kill_in_return(t: Moves, server: str, kind: str) -> None:
    """Kill nova-compute of the old host when it has disconnected the disk."""
    t.break_volume(server, kind)
    _request(t, server, 'evacuate')
    t.wait_server(server)
    t.expect_next(server)
    host = t.compute_hosts[SOURCE]
    host.boot()
    host.launch_compute(t.environment_to_stop(
        f'{_NODE}.instance:NovaInstance.disconnect:after', 'kill'))
    t.wait_killed(host.compute)
    t.compute.start()
    t.expect_next(server)


PLAYS['kill-return'] = Play(
    'Evacuation: SIGKILL when the old host has disconnected the disk',
    _kill_in_return, moves.success('evacuate', WITHOUT, ''), 'transferred')


# -- the plugin on one host only -------------------------------------------

def _operate_mixed(operation: str, without: str, t: Moves, server: str,
                   kind: str) -> None:
    """Operate while one of the hosts is without the plugin."""
    with t.switched_off(without):
        moves.OPERATIONS[operation][1](t, server, kind)


def _add_mixed() -> None:
    kind = 'volume-deleted'
    for operation in ('migrate', 'shelve', 'unshelve', 'evacuate'):
        for name, host, without in (('source', SOURCE, DESTINATION),
                                    ('destination', DESTINATION, SOURCE)):
            shelved = moves.SHELVED.format('A ', '')
            PLAYS[f'{operation}-mixed-{name}'] = Play(
                f'{moves.OPERATIONS[operation][0]}: the plugin only on the '
                f'{name}',
                functools.partial(_operate_mixed, operation, without),
                moves.success(operation, WITHOUT, shelved)
                if host == _acting_host(operation)
                else moves.stock(operation, kind), kind)


_add_mixed()


# -- a host is drained -----------------------------------------------------

#: How many servers are on the host, and the damage to the first of them.
_SERVERS = 10
_DRAINED = {
    'migrate': ('volume-deleted', 'attachment-deleted', 'elsewhere'),
    'os-migrateLive': ('attachment-deleted', 'transferred', 'volume-deleted')}


def _boot_many(t: Moves, kinds: Sequence[str]) -> dict[str, str]:
    """Boot the servers; return the damage to B of each."""
    servers = {}
    for number in range(_SERVERS):
        server = t.server(f'A:{number}', f'B:{number}', root=f'root:{number}')
        servers[server] = (kinds[number] if number < len(kinds)
                           else 'healthy')
    for number, (server, kind) in enumerate(servers.items()):
        if kind != 'healthy':
            t.break_volume(server, kind, volume=f'B:{number}')
    return servers


def _drain(action: str, trial: trial_mod.Trial) -> str:
    """Move all servers of a host to the other one at the same time."""
    assert isinstance(trial, Moves)
    t = trial
    servers = _boot_many(t, _DRAINED[action])
    is_live = action == 'os-migrateLive'
    before = {server: t.expect_writes(f'root:{number}', f'A:{number}')
              for number, server in enumerate(servers)}
    for server in servers:
        t.request(server, action, host=DESTINATION, **(
            {'block_migration': 'auto'} if is_live else {}))
    for server in servers:
        t.wait_server(server, 600)
    failed = []
    for number, (server, kind) in enumerate(servers.items()):
        lines = moves.with_plugin(
            'live' if is_live else 'migrate', kind, t.backend)
        t.expect_line(server, lines[0])
        t.expect_writes(f'root:{number}', f'A:{number}', since=before[server])
        if lines[0].startswith('ACTIVE here'):
            failed.append(server)
    for server in failed:
        t.run_action(server, 'migrate', host=DESTINATION)
        t.expect_line(server, f'VERIFY_RESIZE there, {WITHOUT}')
    left = [one for one in servers
            if moves.host_of(t.show_server(one)) != DESTINATION]
    t.equal('servers on the drained host', left, [])
    if t.other:
        t.expect(t.other, 'ACTIVE', 'B other-root')
    words = ('; the one whose live migration fails, cold' if is_live else '')
    return f'{_SERVERS} servers there, with every healthy disk{words}'


DRAINS = [trial_mod.Scenario(
    f'drain-{name}', f'{_SERVERS} servers, three with a dangling disk, '
    f'{title} at once', functools.partial(_drain, action))
    for name, title, action in (
        ('cold', 'cold-migrated', 'migrate'),
        ('live', 'live-migrated', 'os-migrateLive'))]


def _run(play: Play, trial: trial_mod.Trial) -> str:
    return moves.play(play.operate, play.kind, play.lines, trial)


MOVE_FAULTS = [
    trial_mod.Scenario(name, play.title, functools.partial(_run, play))
    for name, play in PLAYS.items()] + DRAINS
