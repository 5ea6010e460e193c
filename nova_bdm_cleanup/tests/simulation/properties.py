# SPDX-License-Identifier: Apache-2.0
"""What must never happen, and how it must end.

The model asks at the moment at which something happens; what must hold at the
end is asked when all is over and the owner has rebooted twice more.
"""

from __future__ import annotations

from collections.abc import Iterator

from nova.compute import instance_actions, task_states, vm_states

from nova_bdm_cleanup.node.cleanup import actions
from nova_bdm_cleanup.tests.simulation.world import (
    hours_ago,
    Row,
    Server,
    World,
)

#: A situation in which nothing in Nova's records says that a device is that of
#: another server: what it is connected for began when they had been asked.
BEGAN_LATER = 'began later'
#: The same, and it is Nova's driver that disconnects.
WHILE_MOVING = 'while moving'
#: nova-compute died, and left disks without a connection.
HALF_MOVED = 'half moved'
#: Nova does not give room back when a server cannot be taken back.
WAY_BACK = 'way back'
#: Nova lets a move begin while a disk is being attached or detached.
IN_HAND = 'in hand'
#: Nova goes by what it read before another operation.
DELETED = 'deleted meanwhile'
#: Somebody took it when the migration was let pass.
AFTER_CHECK = 'after the check'

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
    'nothing-goes-unasked':
        'no mapping goes in a soft reboot',
    'nothing-attached-is-lost':
        'what was attached or swapped in meanwhile is there in the end',
    'all-in-order-in-the-end':
        'after two quiet reboots the server runs, the host has the devices '
        'of its mappings and no others, each mapping is healthy in Cinder, '
        'and each attachment has a mapping',
    'no-strangers-disk':
        'no move attaches a disk that Cinder does not attach to the server '
        'any more, and no live migration one that is another\'s',
    'moves-end-well':
        'no move breaks off half done whose mappings the plugin has looked '
        'at: it succeeds, or it is refused',
    'refused-in-time':
        'where the plugin refuses a move, Cinder attaches all other disks as '
        'before',
    'refused-for-a-reason':
        'the plugin refuses no move where what dangles can be removed',
    'one-host-only':
        'in the end the server runs on one host, the other one has nothing '
        'of it and is let in to none of its volumes, and Placement keeps no '
        'room for it there',
    'comes-back-by-itself':
        'when nova-compute was killed in a reboot, the server runs again '
        'once nova-compute does, without anybody',
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


def disconnecting(world: World, host: str, server: str, number: int) -> None:
    """A device is about to go from a host."""
    is_cleaning = _is_cleaning(world)
    if world.is_blind and not is_cleaning:
        return
    there = world.hosts[host]
    read = world.cinder.back_end.read(host, number)
    for other in there.devices.get(number, set()) - {server}:
        if any(a.volume == read for a in world.cinder.of_server(other)
               if a.host == host and a.number == number):
            world.broken(
                'healthy-disks-stay', f'unit {number} of {host}, by which '
                f'{other} has volume {read}, is disconnected',
                _situation(world, other, read))
    if is_cleaning and number not in there.devices:
        world.broken('only-what-is-here-goes',
                     f'unit {number} is disconnected, which is not on {host}')
    if is_cleaning and server in world.users(host, number):
        world.broken('no-row-before-its-device',
                     f'unit {number} goes while the guest of {server} runs')


def _situation(world: World, server: str, volume: str | None) -> str:
    """Why nobody could know that the device is that of another server."""
    actor = world.scheduler.current
    is_cleaning = _is_cleaning(world)
    told = actor.local.get('told' if is_cleaning else 'asked') if (
        actor is not None) else None
    if told is not None and told.isdisjoint(
            ((server, volume), (server, None))):
        return BEGAN_LATER if is_cleaning else WHILE_MOVING
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
                     f'{row.volume_id} (unit {number})',
                     HALF_MOVED if world.died_in_move
                     and row.volume_id in world.disturbed else
                     IN_HAND if row.volume_id in world.in_hand else '')
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
    if (world.server(row.instance_uuid).task_state
            in task_states.soft_reboot_states):
        world.broken('nothing-goes-unasked',
                     f'{name} goes in a soft reboot')
    if row.number is None or _has_twin(world, row):
        return
    if row.instance_uuid in world.evacuated:
        world.broken('no-row-before-its-device', f'{name} goes, and the dead '
                     'host may still have the device')
    host = world.server(row.instance_uuid).host
    if not host:
        return  # It is shelved.
    there = world.hosts[host]
    if (row.instance_uuid in there.devices.get(row.number, ())
            and not _is_left(world, row)):
        world.broken('no-row-before-its-device',
                     f'{name} goes while unit {row.number} is on the host')
    if row.instance_uuid in world.users(host, row.number):
        world.broken('no-row-before-its-device',
                     f'{name} goes while the guest runs with it')


def telling(world: World, attachment: str) -> None:
    """Cinder is about to delete an attachment, and to shut a host out."""
    there = world.cinder.attachments.get(attachment)
    if there is None:
        return
    _check_recorded(world, f'attachment {attachment}', 'attachment',
                    attachment)
    server = there.server
    rows = [r for r in world.rows_of(server)
            if r.attachment_id == attachment]
    if rows:
        world.broken('cinder-is-told-last', f'attachment {attachment} goes '
                     f'while the mapping of {rows[0].volume_id} names it')
    if there.host is None or there.number is None:
        return
    if world.cinder.back_end.read(there.host, there.number) != there.volume:
        return
    if world.cinder.volumes[there.volume].multiattach and any(
            a.host == there.host and a.id != attachment
            for a in world.cinder.of_volume(there.volume)):
        return  # The back end keeps the host in for the other one.
    host = world.hosts[there.host]
    if server in host.devices.get(there.number, ()):
        world.broken('cinder-is-told-last', f'volume {there.volume} is taken '
                     f'away while the host has it by unit {there.number}')
    if server in world.users(there.host, there.number):
        world.broken('cinder-is-told-last', f'volume {there.volume} is taken '
                     'away while the guest has it')


# Moves


def _is_going(world: World, server: str) -> bool:
    """Whether a server is deleted, or about to be."""
    there = world.servers.get(server)
    return there is None or there.task_state == task_states.DELETING


def moving_out(world: World, server: str, volume: str) -> None:
    """A move makes another attachment of a disk."""
    if world.is_blind or world.died_in_nova or _is_going(world, server):
        return
    if volume in world.in_hand or world.row_of(server, volume) is None:
        if not any(world.cinder.serves(volume, server)):
            world.broken('moves-end-well', f'volume {volume} is reserved for '
                         f'{server}, and was just detached', IN_HAND)
        return
    found = world.cinder.volumes.get(volume)
    if found is not None and (found.status == 'available' or not any(
            a.server == server for a in world.cinder.of_volume(volume))):
        world.broken('no-strangers-disk', f'volume {volume} is reserved for '
                     f'{server}, to which Cinder does not attach it')


def moving_in(world: World, server: str, volume: str) -> None:
    """A move connects a disk on another host."""
    if world.is_blind or world.died_in_nova or _is_going(world, server):
        return
    found = world.cinder.volumes.get(volume)
    # Without an attachment Cinder refuses.
    if found is not None and found.status == 'available' and any(
            a.server == server for a in world.cinder.of_volume(volume)):
        world.broken('no-strangers-disk', f'volume {volume} is connected for '
                     f'{server}, and Cinder calls it available')


def moving_alive(world: World, server: str, volume: str) -> None:
    """A live migration connects a disk on another host."""
    if not world.is_blind and is_anothers(world, server, volume):
        world.broken('no-strangers-disk',
                     f'volume {volume} moves with {server}, whose it is not',
                     '' if volume in world.anothers else AFTER_CHECK)


def is_anothers(world: World, server: str, volume: str | None) -> bool:
    """Whether a volume is another project's, or attached to others only."""
    found = world.cinder.volumes.get(volume)
    return found is not None and not any(
        world.cinder.serves(volume, server)) and (
            found.status != 'available'
            or found.project != world.servers[server].project_id)


def refused(world: World, server: str) -> None:
    """The plugin has refused a move."""
    if not world.may_refuse:
        world.broken('refused-for-a-reason', f'nothing is wrong with {server} '
                     'that could not be mended')
    there = world.servers.get(server)
    if there and there.task_state == task_states.RESIZE_REVERTING:
        world.refused_way_back = True
    for row in world.volumes_of(server):
        own = world.cinder.attachments.get(row.attachment_id)
        if (own is not None and own.status != 'attached'
                and row.created_at < hours_ago(1)
                and row.volume_id not in world.disturbed):
            world.broken('refused-in-time', f'volume {row.volume_id} of '
                         f'{server} is only {own.status} by then')


def broken_off(world: World, server: str, error: Exception) -> None:
    """Nova's own part of a move has failed."""
    if _is_going(world, server):
        return
    if not world.is_blind and not world.died_in_nova:
        world.broken('moves-end-well', f'{server} ends half moved: {error}',
                     IN_HAND if world.in_hand or any(
                         a.instance_uuid == server for a in world.actions)
                     else '')
    # Nova leaves disks without a connection, which a person has to attach.
    world.disturbed.update(
        row.volume_id for row in world.volumes_of(server)
        if row.attachment_id in world.cinder.attachments
        and world.cinder.attachments[row.attachment_id].status != 'attached')
    world.settled(server)


# The end


def came_back(world: World, server: Server) -> None:
    """All is over, and nobody has done anything about it yet."""
    if (server.task_state in task_states.hard_reboot_states
            and server.vm_state == vm_states.ACTIVE and not
            world.hosts[server.host].guests[server.uuid].is_running):
        world.broken('comes-back-by-itself', f'{server.uuid} is off, still '
                     f'{server.task_state}, and nobody starts it')


def ended(world: World, server: str) -> None:
    """All is over, and the server was rebooted twice in peace."""
    for problem in _elsewhere(world, server):
        world.broken('one-host-only', problem,
                     WAY_BACK if world.refused_way_back else
                     DELETED if world.deleted_meanwhile else
                     HALF_MOVED if world.died_in_move else
                     IN_HAND if any(s == server for s, _ in world.attached)
                     else '')
    if server not in world.servers:
        return
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
        for name, outcome, subject in entry.steps:
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
    if not there.host:
        yield f'{server} is {there.vm_state}, and on no host'
        return
    guest = world.hosts[there.host].guests[server]
    rows = [r for r in world.rows_of(server)
            if r.destination_type == 'volume']
    if (there.vm_state != vm_states.ACTIVE or not guest.is_running) and not (
            {r.volume_id for r in rows} & world.disturbed):
        yield f'{server} is {there.vm_state} and does not run'
    rows = [r for r in rows if r.volume_id not in world.disturbed]
    for row in rows:
        own = world.cinder.attachments.get(row.attachment_id)
        if own is None or own.status != 'attached' or (
                world.cinder.volumes[own.volume].status != 'in-use'):
            yield (f'the mapping of volume {row.volume_id} is there, and '
                   'Cinder does not attach it')
        elif row.number not in world.hosts[there.host].devices:
            yield f'the host has no unit {row.number} of {row.volume_id}'
    wanted = {r.number for r in world.rows_of(server)}
    for number in _left(world, server, there.host):
        if number not in wanted:
            yield f'unit {number} of {server} is left on {there.host}'
    carried = {r.attachment_id for r in world.rows_of(server)}
    for attachment in world.cinder.of_server(server):
        volume = world.cinder.volumes[attachment.volume]
        if (attachment.id not in carried
                and volume.id not in world.disturbed
                and volume.project == there.project_id):
            yield f'{attachment.id} of volume {volume.id} has no mapping'


def _left(world: World, server: str, host: str) -> Iterator[int]:
    """The devices of a server on a host, but those that are said to stay."""
    for number, users in world.hosts[host].devices.items():
        if (server in users and world.cinder.back_end.read(host, number)
                not in world.disturbed
                and not any(r.number == number and _is_left(world, r)
                            for r in world.rows.values()
                            if r.instance_uuid == server)):
            yield number


def _elsewhere(world: World, server: str) -> Iterator[str]:
    there = world.servers.get(server)
    own = there.host if there is not None else None
    for name, host in world.hosts.items():
        if name == own:
            continue
        guest = host.guests.get(server)
        if guest is not None and guest.is_running:
            yield f'{server} is on {name}, too'
        for number in _left(world, server, name):
            if host.devices[number] == {server}:
                yield f'unit {number} of {server} is left on {name}'
        for volume in world.cinder.back_end.exports.get(name, {}).values():
            if (world.row_of(server, volume)
                    and volume not in world.disturbed and not any(
                        a.host == name for a in world.cinder.of_volume(
                            volume))):
                yield f'{name} is still let in to {volume}'
    yield from _kept(world, server, own)


def _kept(world: World, server: str, own: str | None) -> Iterator[str]:
    """What Cinder and Placement keep for a server."""
    if own is None:
        for attachment in world.cinder.of_server(server):
            if attachment.volume not in world.disturbed:
                yield f'{attachment.id} of {server}, which is deleted, is left'
    elif not world.died_in_move:
        kept = {consumer: set(hosts)
                for consumer, hosts in world.allocations.items()
                if consumer.endswith(server)}
        if kept != {server: {own}}:
            yield f'there is room for {server}: {kept}'


def _check_recorded(world: World, name: str, kind: str,
                    subject: str) -> None:
    """It stands in the plan that the plugin wrote last."""
    planned: set[str | None] = set()
    for entry in world.entries:
        for action in entry.plan['actions']:
            if kind == 'bdm':
                planned.add(action.get('bdm', {}).get('uuid'))
            else:
                planned.add(action.get('attachment', {}).get('id'))
                planned.update(a['id'] for a in action.get('attachments', ()))
    if subject not in planned:
        world.broken('recorded-is-done', f'{name} goes and is in no plan')


def _is_in_order(world: World, row: Row) -> bool:
    """Cinder attaches the disk of a mapping to the server."""
    world.sees(f'volume {row.volume_id}')
    volume = world.cinder.volumes.get(row.volume_id)
    return (volume is not None and volume.status != 'available'
            and any(world.cinder.serves(row.volume_id, row.instance_uuid)))


def _has_twin(world: World, row: Row) -> bool:
    """Another mapping of the server has the same disk."""
    return any(r.volume_id == row.volume_id and r is not row and r.is_connected
               for r in world.rows_of(row.instance_uuid))


def _is_left(world: World, row: Row) -> bool:
    """The plugin has said that the device stays, and why."""
    return row.uuid in world.left or any(
        name == 'disconnect' and outcome == 'skipped'
        and subject.get('bdm') == row.uuid
        and subject.get('detail') != actions.NOT_HERE
        for entry in world.entries
        for name, outcome, subject in entry.steps)


def _is_cleaning(world: World) -> bool:
    actor = world.scheduler.current
    return actor is not None and actor.is_cleaning
