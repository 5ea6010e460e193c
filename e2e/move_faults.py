# SPDX-License-Identifier: Apache-2.0
"""Moves that are refused or interrupted, and hosts without the plugin.

Each has a table of plays, which are run like those of :mod:`e2e.moves`.  The
server has to be as before where an operation is refused.  Where nova-compute
was killed, a hard reboot brings the guest back with its healthy disks, and
with no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import contextlib
import dataclasses
import functools

from e2e import identity, moves, processes, trial as trial_mod
from e2e.moves import (
    DANGLING,
    DESTINATION,
    HALF_DONE,
    Moves,
    Operation,
    SOURCE,
    WITHOUT,
)


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
    return SOURCE if operation in ('migrate', 'shelve') else DESTINATION


# -- refused at the first look ---------------------------------------------

_OBSTACLES: dict[str, tuple[str, Callable[
    [Moves, str], contextlib.AbstractContextManager[None]]]] = {
    'limit': ('the hourly limit is used up', Moves.used_up_limit),
    'store': ('the store cannot be written', Moves.unwritable_store)}

#: The server that is as it was, by the operation that is refused.
_REFUSED = {
    'migrate': f'ACTIVE here, {DANGLING}',
    'revert': f'VERIFY_RESIZE there, {DANGLING}',
    'shelve': f'ACTIVE here, {DANGLING}',
    'unshelve': 'SHELVED_OFFLOADED, no guest, mappings A B root, '
                'attachments A:reserved root:reserved',
    'evacuate': 'ACTIVE here, no guest, mappings A B root, '
                'attachments A:attached root:attached'}


def _refuse(operation: str, obstacle: str, t: Moves, server: str,
            kind: str) -> None:
    """Request an operation beside an obstacle, and once more without."""
    host = _acting_host(operation)
    _begin(t, server, operation)
    t.break_volume(server, kind, host)
    with _OBSTACLES[obstacle][1](t, host):
        _request(t, server, operation)
        t.wait_server(server)
        t.expect_next(server)
        t.expect_log_line('event=refused', t.volumes['B'])
        t.expect_no_removal()
    _request(t, server, operation)
    t.wait_server(server)
    t.expect_next(server)
    if operation == 'migrate':
        t.finish_resize(server, 'confirmResize')
    if operation == 'evacuate':
        t.compute.start()
    if t.expected_lines:
        t.expect_next(server)


def _add_refusals() -> None:
    for operation, obstacle in (
            *((one, 'limit') for one in ('migrate', 'revert', 'shelve',
                                         'unshelve')),
            *((one, 'store') for one in _REFUSED)):
        lines = moves.success(operation, WITHOUT, '')
        PLAYS[f'{operation}-refused-{obstacle}'] = Play(
            f'{moves.OPERATIONS[operation][0]}: refused while '
            f'{_OBSTACLES[obstacle][0]}, then carried out',
            functools.partial(_refuse, operation, obstacle),
            [_REFUSED[operation],
             *([moves.SHELVED.format('A ', '')] if operation == 'shelve'
               else lines)])


_add_refusals()


def _evacuate_beyond_limit(t: Moves, server: str, kind: str) -> None:
    """Evacuate while the project has used up the limit of the new host."""
    t.break_volume(server, kind)
    with t.used_up_limit(DESTINATION):
        _request(t, server, 'evacuate')
        t.wait_server(server)
        t.expect_next(server)
        t.compute.start()
        t.expect_next(server)


PLAYS['evacuate-limit'] = Play(
    'Evacuation while the hourly limit of the project is used up',
    _evacuate_beyond_limit, moves.success('evacuate', WITHOUT, ''))


# -- what cannot be removed any more after the first look ------------------

#: The point between the first look and the removal, on the host that looks.
_AFTER_LOOK = {
    'migrate': 'LibvirtDriver.migrate_disk_and_power_off:after',
    'revert': 'LibvirtDriver.destroy:after',
    'shelve': 'LibvirtDriver.destroy:after'}


def _remove_late(operation: str, t: Moves, server: str, kind: str) -> None:
    """Have the other host remove what the first one could not."""
    host = _acting_host(operation)
    _begin(t, server, operation)
    t.break_volume(server, kind, host)
    _stop_at(t, host, 'pause', _AFTER_LOOK[operation])
    _request(t, server, operation)
    t.wait_paused()
    with t.unwritable_store(host):
        t.let_continue()
        t.wait_server(server)
    t.expect_next(server)
    if operation == 'shelve':
        t.run_action(server, 'unshelve', host=DESTINATION)
        t.expect_next(server)
    t.expect_log_line('event=removed', t.volumes['B'])
    t.restart_one(host)


def _stop_at(t: Moves, host: str, action: str, point: str) -> None:
    """Restart a host's nova-compute so that it stops at a point."""
    if ':' not in point.removesuffix(':after').removesuffix(':before'):
        point = f'nova.virt.libvirt.driver:{point}'
    t.restart_one(host, t.environment_to_stop(point, action))


for _operation, _lines in {
        'migrate': [f'VERIFY_RESIZE there, {WITHOUT}'],
        'revert': [f'ACTIVE here, {WITHOUT}'],
        'shelve': [_REFUSED['unshelve'], f'ACTIVE there, {WITHOUT}']}.items():
    PLAYS[f'{_operation}-late'] = Play(
        f'{moves.OPERATIONS[_operation][0]}: the store of the first host '
        'cannot be written after its first look',
        functools.partial(_remove_late, _operation), _lines)


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
    t.finish_resize(server, 'revertResize')
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
             f'{_NODE}.hooks.departure:Departure.refusal:after'),
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

def _migrate_mixed(without: str, t: Moves, server: str, kind: str) -> None:
    """Migrate while one of the hosts is without the plugin."""
    with t.switched_off(without):
        moves.OPERATIONS['migrate'][1](t, server, kind)


PLAYS['mixed-source'] = Play(
    'Cold migration, the plugin on the source only',
    functools.partial(_migrate_mixed, DESTINATION),
    moves.success('migrate', WITHOUT, ''), 'volume-deleted')
PLAYS['mixed-destination'] = Play(
    'Cold migration, the plugin on the destination only',
    functools.partial(_migrate_mixed, SOURCE),
    [f'ERROR here, {HALF_DONE}'], 'volume-deleted')


def _run(play: Play, trial: trial_mod.Trial) -> str:
    return moves.play(play.operate, play.kind, play.lines, trial)


MOVE_FAULTS = [
    trial_mod.Scenario(name, play.title, functools.partial(_run, play))
    for name, play in PLAYS.items()]
