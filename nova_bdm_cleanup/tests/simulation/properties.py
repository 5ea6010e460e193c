# SPDX-License-Identifier: Apache-2.0
"""What must never happen, and how it must end.

The model asks at the moment at which something happens; what must hold at the
end is asked when all is over and the owner has rebooted twice more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nova.compute import instance_actions, vm_states

from nova_bdm_cleanup.cleanup import actions
from nova_bdm_cleanup.tests.simulation.world import HERE, Row, World

#: A situation in which nothing in Nova's records says that a device is that of
#: another server: what it is connected for began when they had been asked.
BEGAN_LATER = 'began later'

#: Each property: its name, and what it says.
PROPERTIES = {
    'healthy-disks-stay':
        "nobody's healthy disk is taken: no device that another guest uses, "
        'no mapping and no attachment of a disk that is in order when the '
        'guest is off',
    'only-what-is-here-goes':
        'the host is asked to disconnect nothing that it does not have',
    'own-volumes-only':
        'no guest that is started reads another volume by the address of its '
        'own, or a volume that Cinder attaches only to others',
    'cinder-is-told-last':
        'Cinder is told to take a volume away only when neither the guest nor '
        'the host has it, and no mapping names it',
    'no-row-before-its-device':
        'no mapping goes while its guest runs or its device is on the host, '
        'unless it is said that the device stays',
    'nothing-attached-is-lost':
        'what was attached or swapped in meanwhile is there in the end',
    'all-in-order-in-the-end':
        'after two quiet reboots the server runs, the host has the devices '
        'of its mappings and no others, each mapping is healthy in Cinder, '
        'and each attachment has a mapping',
    'can-be-rebooted-again':
        'no task state is left that keeps the server from being rebooted',
    'nothing-waits-for-ever':
        'everybody comes to an end',
    'nothing-is-wrong-with-the-code':
        'neither the plugin nor the model raises what nobody expects',
    'recorded-is-done':
        'what is removed was in the journal before, and what the journal '
        'calls done is done',
}


def disconnecting(world: World, host: str, server: str,
                  connection_info: Mapping[str, Any]) -> None:
    """A device is about to go from a host."""
    if world.is_blind and not _is_cleaning(world):
        return
    number = int(connection_info['data']['target_lun'])
    there = world.hosts[host]
    read = world.cinder.back_end.read(host, number)
    for other in there.devices.get(number, set()) - {server}:
        if any(a.volume == read for a in world.cinder.of_server(other)
               if a.host == host and a.number == number):
            world.broken(
                'healthy-disks-stay', f'unit {number} of {host}, by which '
                f'{other} has volume {read}, is disconnected',
                _situation(world, other, read))
    if _is_cleaning(world) and number not in there.devices:
        world.broken('only-what-is-here-goes',
                     f'unit {number} is disconnected, which is not on {host}')
    if _is_cleaning(world) and server in there.users(number):
        world.broken('no-row-before-its-device',
                     f'unit {number} goes while the guest of {server} runs')


def _situation(world: World, server: str, volume: str | None) -> str:
    """Why nobody could know that the device is that of another server."""
    actor = world.scheduler.current
    told = actor.local.get('told') if actor is not None else None
    if told is not None and told.isdisjoint(
            ((server, volume), (server, None))):
        return BEGAN_LATER
    return ''


def opened(world: World, host: str, server: str, device: str) -> None:
    """A guest has a disk open from now on."""
    if world.is_blind:
        return
    number = world.hosts[host].guests[server].disks[device].number
    row = next((r for r in world.rows_of(server) if r.device_name == device),
               None)
    read = world.cinder.back_end.read(host, number)
    if row is None or read is None:
        return
    if read != row.volume_id:
        world.broken('own-volumes-only',
                     f'{server} reads volume {read} by the address of '
                     f'{row.volume_id} (unit {number})')
    if not any(a.volume == read for a in world.cinder.of_server(server)):
        others = {a.server for a in world.cinder.of_volume(read)}
        if others:
            world.broken('own-volumes-only', f'{server} reads volume {read}, '
                         f'which Cinder attaches to {", ".join(others)}')


def switched_off(world: World, server: str) -> None:
    """The plugin has switched a guest off, and looks again after that.

    Who mends a disk only when that look is over comes too late.
    """
    actor = world.scheduler.current
    if actor is not None and actor.is_cleaning:
        actor.local['in order'] = frozenset(
            row.uuid for row in world.rows_of(server)
            if _is_in_order(world, row))


def destroying(world: World, row: Row) -> None:
    """The row of a mapping is about to go."""
    if not _is_cleaning(world):
        return
    name = f'the mapping of volume {row.volume_id} ({row.uuid})'
    if row.boot_index == 0 or row.source_type != 'volume':
        world.broken('healthy-disks-stay', f'{name}, the root disk, goes')
    assert world.scheduler.current is not None
    before = world.scheduler.current.local.get('in order')
    if (_is_in_order(world, row) and not _has_twin(world, row)
            and (before is None or row.uuid in before)):
        world.broken('healthy-disks-stay', f'{name} goes, which Cinder '
                     'attaches to the server')
    _check_recorded(world, name, 'bdm', row.uuid)
    if row.number is None or _has_twin(world, row):
        return
    host = world.server(row.instance_uuid).host
    there = world.hosts[host]
    if (row.instance_uuid in there.devices.get(row.number, ())
            and not _is_left(world, row)):
        world.broken('no-row-before-its-device',
                     f'{name} goes while unit {row.number} is on the host')
    if row.instance_uuid in there.users(row.number):
        world.broken('no-row-before-its-device',
                     f'{name} goes while the guest runs with it')


def telling(world: World, attachment: str) -> None:
    """Cinder is about to delete an attachment, and to shut a host out."""
    there = world.cinder.attachments.get(attachment)
    if there is None:
        return
    _check_recorded(world, f'attachment {attachment}', 'attachment',
                    attachment)
    server = there.server or ''
    rows = [r for r in world.rows_of(server)
            if r.attachment_id == attachment]
    if rows:
        world.broken('cinder-is-told-last', f'attachment {attachment} goes '
                     f'while the mapping of {rows[0].volume_id} names it')
    if there.host != HERE or there.number is None:
        return
    if world.cinder.back_end.read(HERE, there.number) != there.volume:
        return
    if world.cinder.volumes[there.volume].multiattach and any(
            a.host == HERE and a.id != attachment
            for a in world.cinder.of_volume(there.volume)):
        return  # The back end keeps the host in for the other one.
    if server in world.here.devices.get(there.number, ()):
        world.broken('cinder-is-told-last', f'volume {there.volume} is taken '
                     f'away while the host has it by unit {there.number}')
    if server in world.here.users(there.number):
        world.broken('cinder-is-told-last', f'volume {there.volume} is taken '
                     'away while the guest has it')


def ended(world: World, server: str) -> None:
    """All is over, and the server was rebooted twice in peace."""
    there = world.servers[server]
    if there.task_state is not None:
        world.broken('can-be-rebooted-again', f'{server} is still '
                     f'{there.task_state}')
    for problem in _disorder(world, server):
        world.broken('all-in-order-in-the-end', problem)
    for (owner, volume), is_kept in world.attached.items():
        if is_kept and world.row_of(owner, volume) is None:
            world.broken('nothing-attached-is-lost',
                         f'volume {volume} of {owner} has no mapping')
    for entry in world.entries:
        for name, outcome, subject in entry['steps']:
            if name == 'destroy' and outcome == 'done' and not (
                    world.rows[subject['bdm']].deleted):
                world.broken('recorded-is-done', 'the journal says that '
                             f'{subject["bdm"]} is gone, and it is not')


def _disorder(world: World, server: str) -> Iterator[str]:
    there = world.servers[server]
    if any(a.finish_time is None and (
            a.action == instance_actions.SWAP_VOLUME
            or a.instance_uuid != server) for a in world.actions):
        return  # Nobody knows which disk is where; a person has to look.
    guest = world.hosts[there.host].guests[server]
    rows = [r for r in world.rows_of(server)
            if r.destination_type == 'volume']
    if (there.vm_state != vm_states.ACTIVE or not guest.is_running) and not (
            {r.volume_id for r in rows} & world.disturbed):
        yield f'{server} is {there.vm_state} and does not run'
    rows = [r for r in rows if r.volume_id not in world.disturbed]
    for row in rows:
        own = world.cinder.attachments.get(row.attachment_id or '')
        if own is None or own.status != 'attached' or (
                world.cinder.volumes[own.volume].status != 'in-use'):
            yield (f'the mapping of volume {row.volume_id} is there, and '
                   'Cinder does not attach it')
        elif row.number not in world.hosts[there.host].devices:
            yield f'the host has no unit {row.number} of {row.volume_id}'
    wanted = {r.number for r in world.rows_of(server)}
    for number, users in world.hosts[there.host].devices.items():
        if (server in users and number not in wanted
                and world.cinder.back_end.read(there.host, number)
                not in world.disturbed
                and not any(r.number == number and _is_left(world, r)
                            for r in world.rows.values()
                            if r.instance_uuid == server)):
            yield f'unit {number} of {server} is left on {there.host}'
    carried = {r.attachment_id for r in world.rows_of(server)}
    for attachment in world.cinder.of_server(server):
        volume = world.cinder.volumes[attachment.volume]
        if (attachment.id not in carried
                and volume.id not in world.disturbed
                and volume.project == there.project_id):
            yield f'{attachment.id} of volume {volume.id} has no mapping'


def _check_recorded(world: World, name: str, kind: str,
                    subject: str) -> None:
    """It stands in the plan that the plugin wrote last."""
    planned: set[str | None] = set()
    for entry in world.entries:
        for action in entry['plan']['actions']:
            if kind == 'bdm':
                planned.add(action.get('bdm', {}).get('uuid'))
            else:
                planned.add(action.get('attachment', {}).get('id'))
                planned.update(a['id'] for a in action.get('attachments', ()))
    if subject not in planned:
        world.broken('recorded-is-done', f'{name} goes and is in no plan')


def _is_in_order(world: World, row: Row) -> bool:
    """Cinder attaches the disk of a mapping to the server."""
    world.scheduler.sees(f'volume {row.volume_id}')
    volume = world.cinder.volumes.get(row.volume_id or '')
    return (volume is not None and volume.status != 'available'
            and any(world.cinder.serves(row.volume_id, row.instance_uuid)))


def _has_twin(world: World, row: Row) -> bool:
    """Another mapping of the server has the same disk."""
    return any(r.volume_id == row.volume_id and r is not row and r.is_connected
               for r in world.rows_of(row.instance_uuid))


def _is_left(world: World, row: Row) -> bool:
    """The plugin has said that the device stays, and why."""
    return any(name == 'disconnect' and outcome == 'skipped'
               and subject.get('bdm') == row.uuid
               and subject.get('detail') != actions.NOT_HERE
               for entry in world.entries
               for name, outcome, subject in entry['steps'])


def _is_cleaning(world: World) -> bool:
    actor = world.scheduler.current
    return actor is not None and actor.is_cleaning
