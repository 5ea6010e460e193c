# SPDX-License-Identifier: Apache-2.0
"""Properties that every schedule of the search must have.

The model checks most properties when an event happens.  The others are checked
at the end, after the owner has rebooted the server once or twice more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nova.compute import instance_actions, task_states, vm_states

from nova_bdm_cleanup.node.cleanup import actions
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.simulation.cinder import Attachment
from nova_bdm_cleanup.tests.simulation.world import Guest, Row, Server, World

#: Situations of known violations.  nova-compute was killed, and left disks
#: without a connection.
HALF_MOVED = 'half moved'
#: Nova begins a move while a disk is being attached or detached.
OPERATION_AT_MOVE = 'operation when the move begins'
#: Nova uses mappings that it read before the server was deleted.
DELETED = 'deleted meanwhile'
#: nova-compute was killed after Cinder had given an address, before a row or
#: a guest had it.
FORGOTTEN = 'forgotten when nova-compute was killed'
#: Cinder does not answer, and the guest of the server had the disk itself.
OPEN = 'open when the operation began'
#: The array exports a volume to this host that neither Nova nor Cinder has
#: there.
LEFT_EXPORT = 'export without a record'
#: The guest came back without a disk, and nothing tells any more that it was
#: here with it, or which one it had.
UNPROVED = 'not proved to be here'
#: Reads of Cinder lag, and the clock of the host is ahead.
AHEAD = 'ahead while reads lag'

#: The description of each property, by its name.
PROPERTIES = {
    'healthy-disks-stay':
        'no healthy disk is removed: no device that another guest uses, and '
        'no mapping or attachment that was healthy when the guest was '
        'powered off',
    'only-present-devices':
        'the plugin disconnects only devices that are on the host',
    'own-volumes-only':
        'no guest is started with the data of another volume at the address '
        'of its own, or with a volume that is attached only to other servers',
    'last-disk-only':
        'no guest is started with the old disk of a swap that it had made',
    'attachment-last':
        'an attachment is deleted only when neither the guest nor the host '
        'has the volume, and no mapping names the attachment',
    'volume-stays-taken':
        'from the begin to the end of a reconnect, the volume has an '
        'attachment to the server, so that no other server gets it',
    'serving-attachments-stay':
        'a reconnect and an adoption delete no attachment by which a guest '
        'has the volume, on this host or on another one',
    'device-before-row':
        'no mapping is deleted while its guest runs or its device is on the '
        'host, unless a log line says that the device stays',
    'soft-reboot-removes-nothing':
        'no mapping is deleted in a soft reboot',
    'no-attached-volume-lost':
        'a volume that was attached or swapped in meanwhile is attached at '
        'the end',
    'in-order-at-the-end':
        'after the last reboot the server runs, the host has exactly the '
        'devices of its mappings, each mapping is healthy in Cinder, and '
        'each attachment has a mapping',
    'no-address-of-a-running-guest':
        'no guest is handed an address that another running guest has, unless '
        'Cinder attaches the volume there to it',
    'devices-of-running-guests-stay':
        'no device of another running guest is disconnected, unless Cinder '
        'attaches the volume there to the server',
    'no-address-of-another-host':
        'when no operation is in progress, no mapping of a server on a host '
        'has the address of another host',
    'kept-for-a-reason':
        'in a move, the plugin keeps no dangling mapping that it could remove',
    'no-foreign-disk':
        'no move, except a live migration, reserves or connects a disk that '
        'is no longer attached to the server, unless its mapping was kept',
    'no-half-done-move':
        'a move fails only at a disk that dangles and whose mapping was kept, '
        'where it fails without the plugin, too',
    'ends-as-without-the-plugin':
        'a move or delete in which a limit or a lock withholds the removal '
        'ends as without the plugin; one in which Cinder stops answering the '
        'plugin at any step ends so, or as it ends with all answers. A lock '
        'withholds nothing in an evacuation',
    'one-host-only':
        'at the end the server runs on one host; the other host has no '
        'device, no export and no allocation of it',
    'starts-after-a-kill':
        'after a kill in a reboot, the server runs again once nova-compute '
        'does, without an operator',
    'can-be-rebooted-again':
        'no task state is left that prevents a reboot',
    'every-operation-ends':
        'every operation ends',
    'no-unexpected-exception':
        'neither the plugin nor the model raises an unexpected exception',
    'journal-is-true':
        'everything that is removed was in the journal before, and '
        'everything that the journal reports as done is done',
}


#: Whether a move succeeds.  Nova's own part fails with some disks.
OF_MOVES = frozenset((
    'can-be-rebooted-again', 'no-foreign-disk', 'no-half-done-move',
    'one-host-only', 'kept-for-a-reason'))


def check_disconnect(world: World, host: str, server: str,
                     number: int) -> None:
    """Check a device before it is disconnected from a host."""
    is_cleaning = _is_cleaning(world)
    host_state = world.hosts[host]
    read = world.cinder.back_end.read(host, number)
    for other in host_state.devices.get(number, set()) - {server}:
        if any(a.volume == read for a in world.cinder.of_server(other)
               if a.host == host and a.number == number):
            world.violated(
                'healthy-disks-stay', f'unit {number} of {host} is '
                f'disconnected, by which {other} has volume {read}',
                _situation(world, other, number))
    check_users(world, host, server, number, 'devices-of-running-guests-stay',
                'is disconnected')
    if is_cleaning and number not in host_state.devices:
        world.violated('only-present-devices',
                       f'unit {number} is disconnected, but is not on {host}')
    if is_cleaning and server in world.users(host, number):
        world.violated('device-before-row',
                       f'unit {number} is disconnected while the guest of '
                       f'{server} runs')


def check_users(world: World, host: str, server: str, number: int,
                name: str, event: str) -> None:
    """Check that no other running guest has the address of a disk.

    The guests decide, not Cinder: it may deny an attachment that a guest uses.
    But it may attach the volume at the address to this server.

    :param name: the property
    :param event: what happens to the disk
    """
    others = [s for s in world.users(host, number) if s != server]
    if others and not any(
            (a.host, a.number) == (host, number)
            for a in world.cinder.of_server(server)):
        world.violated(
            name, f'unit {number} of {host} {event} for {server}, while the '
            f'guest of {others[0]} has it',
            _situation(world, others[0], number))


def _situation(world: World, other: str, number: int) -> str:
    """Return the situation if the plugin cannot know about another server."""
    actor = world.scheduler.current
    if (other, number) in world.forgotten_answers:
        return FORGOTTEN
    if actor is None or actor.is_cleaning:
        return ''
    return OPEN if (
        world.first_look_failed and number in actor.local.get(OPEN, ())
        and other not in world.users(world.this_host, number)) else ''


def check_opened_disk(world: World, host: str, server: str,
                      device: str) -> None:
    """Check a disk that a guest has opened."""
    number = world.hosts[host].guests[server].disks[device].number
    row = next((r for r in world.rows_of(server) if r.device_name == device),
               None)
    read = world.cinder.back_end.read(host, number)
    last = world.swapped.get((server, device))
    if last is not None and read not in (None, last):
        world.violated('last-disk-only', f'{server} reads volume {read} as '
                       f'{device}, where it has written to {last}',
                       UNPROVED if _nothing_tells(world, server, last) else '')
    if world.first_look_failed:
        return
    if row is None or read is None:
        return
    if read != row.volume_id:
        world.violated('own-volumes-only',
                       f'{server} reads volume {read} by the address of '
                       f'{row.volume_id} (unit {number})',
                       HALF_MOVED if world.killed_in_move
                       and row.volume_id in world.unchecked_volumes else
                       OPERATION_AT_MOVE
                       if row.volume_id in world.in_operation_at_move else
                       LEFT_EXPORT if not any(
                           a.host == host for a in world.cinder.of_volume(
                               read)) else '')
    if not any(a.volume == read for a in world.cinder.of_server(server)):
        others = {a.server for a in world.cinder.of_volume(read)}
        if others:
            world.violated('own-volumes-only',
                           f'{server} reads volume {read}, which is attached '
                           f'to {", ".join(others)}')


def _nothing_tells(world: World, server: str, volume: str) -> bool:
    """Return whether nothing but the guest tells that it has a volume."""
    # No domain tells what a guest had that is off.
    return (world.first_look_failed
            and world.server(server).vm_state == vm_states.STOPPED
            ) or world.proof_is_lost and not any(
        a.volume == volume for a in world.cinder.of_server(server))


def record_power_off(world: World, server: str) -> None:
    """Record the healthy mappings when the plugin powers a guest off.

    A change after this look, even a repair, comes too late for the plugin.
    """
    actor = world.scheduler.current
    if actor is not None and actor.is_cleaning:
        actor.local['healthy at power off'] = frozenset(
            row.uuid for row in world.rows_of(server)
            if is_healthy(world, row))


def check_row_deletion(world: World, row: Row) -> None:
    """Check a mapping before its row is deleted."""
    if not _is_cleaning(world):
        return
    name = f'the mapping of volume {row.volume_id} ({row.uuid})'
    if row.boot_index == 0 or row.source_type != 'volume':
        world.violated('healthy-disks-stay',
                       f'{name}, the root disk, is deleted')
    assert world.scheduler.current is not None
    before = world.scheduler.current.local.get('healthy at power off')
    if (is_healthy(world, row) and not _has_duplicate(world, row)
            and (before is None or row.uuid in before)):
        world.violated('healthy-disks-stay', f'{name} is deleted, but the '
                       'volume is attached to the server', AHEAD
                       if world.seen_until is not None
                       and world.clock_is_ahead else '')
    world.removed.add(row.uuid)
    _check_recorded(world, name, 'bdm', row.uuid)
    if (world.server(row.instance_uuid).task_state
            in task_states.soft_reboot_states):
        world.violated('soft-reboot-removes-nothing',
                       f'{name} is deleted in a soft reboot')
    if row.number is None or _has_duplicate(world, row):
        return
    host = world.server(row.instance_uuid).host
    if not host or row.instance_uuid in world.evacuated:
        return  # The server is shelved, or its host comes back later.
    host_state = world.hosts[host]
    if (row.instance_uuid in host_state.devices.get(row.number, ())
            and not _is_logged_as_left(world, row)):
        world.violated('device-before-row',
                       f'{name} is deleted while unit {row.number} is on the '
                       'host')
    if row.instance_uuid in world.users(host, row.number):
        world.violated('device-before-row',
                       f'{name} is deleted while the guest runs with it')


def check_attachment_deletion(world: World, attachment: str) -> None:
    """Check an attachment before the plugin deletes it."""
    record = world.cinder.attachments.get(attachment)
    if record is None:
        return
    _check_recorded(world, f'attachment {attachment}', 'attachment',
                    attachment)
    server = record.server
    reconnect = _reconnect_of(world, server, record.volume)
    if reconnect is not None:
        _check_replacement(world, record, reconnect)
        return
    rows = [r for r in world.rows_of(server)
            if r.attachment_id == attachment]
    if rows:
        world.violated('attachment-last', f'attachment {attachment} is '
                       'deleted while the mapping of '
                       f'{rows[0].volume_id} names it')
    if (record.host is None or record.number is None
            # As Nova does with all other disks of the server.
            or server in world.evacuated):
        return
    if world.cinder.back_end.read(record.host, record.number) != record.volume:
        return
    if world.cinder.volumes[record.volume].multiattach and any(
            a.host == record.host and a.id != attachment
            for a in world.cinder.of_volume(record.volume)):
        return  # The export stays for the other attachment.
    host = world.hosts[record.host]
    if server in host.devices.get(record.number, ()):
        world.violated('attachment-last', f'the export of {record.volume} '
                       f'ends while the host has it as unit {record.number}')
    if server in world.users(record.host, record.number):
        world.violated('attachment-last', f'the export of {record.volume} '
                       'ends while the guest has it')


def _reconnect_of(world: World, server: str, volume: str
                  ) -> Mapping[str, Any] | None:
    """Return the reconnect or adoption of a volume in the plugin's last plan,
    if any.
    """
    row = world.row_of(server, volume)
    return next((action for action in (
        world.entries[-1].record['actions'] if world.entries else ())
        if row is not None and action['kind'] in ('reconnect', 'adopt')
        and action['bdm']['uuid'] == row.uuid), None)


def _check_replacement(world: World, record: Attachment,
                       reconnect: Mapping[str, Any]) -> None:
    """Check an attachment before a reconnect deletes it."""
    volume, server = record.volume, record.server
    if (not any(a.server == server and a is not record
                for a in world.cinder.of_volume(volume))
            # It was free before.
            and reconnect['reason'] != Reason.ROOT_VOLUME_DANGLING):
        world.violated('volume-stays-taken', f'{record.id} is deleted, the '
                       f'last attachment of {volume} to {server}')
    if record.host is None or record.number is None or (
            world.cinder.volumes[volume].multiattach
            and any(a.host == record.host and a is not record
                    for a in world.cinder.of_volume(volume))):
        return
    if world.cinder.back_end.read(record.host, record.number) != volume:
        return
    if server in world.users(record.host, record.number):
        world.violated('serving-attachments-stay', f'{record.id} is deleted, '
                       f'by which the guest of {server} on {record.host} has '
                       f'{volume}')
    if record.host == world.this_host and server in world.hosts[
            record.host].devices.get(record.number, ()) and (
                world.row_of(server, volume).number == record.number):
        world.violated('attachment-last', f'the export of {volume} ends '
                       f'while the host has it as unit {record.number}')


# Moves


def _is_being_deleted(world: World, server: str) -> bool:
    """Return whether a server is deleted or being deleted."""
    record = world.servers.get(server)
    return record is None or record.task_state == task_states.DELETING


def check_reservation(world: World, row: Row) -> None:
    """Check a disk before a move reserves it once more."""
    server, volume = row.instance_uuid, row.volume_id
    if (world.killed_in_nova or row.uuid in world.kept
            or _is_being_deleted(world, server)):
        return
    if row.uuid not in world.removed and (
            row.deleted or volume in world.in_operation_at_move):
        if not any(world.cinder.attached_to(volume, server)):
            world.violated('no-half-done-move',
                           f'volume {volume} is reserved for {server}, but '
                           'was just detached', OPERATION_AT_MOVE)
        return
    found = world.cinder.volumes.get(volume)
    if found is not None and (found.status == 'available' or not any(
            a.server == server for a in world.cinder.of_volume(volume))):
        world.violated('no-foreign-disk', f'volume {volume} is reserved for '
                       f'{server}, to which Cinder does not attach it')


def check_connection(world: World, row: Row) -> None:
    """Check a disk before a move connects it on another host."""
    server, volume = row.instance_uuid, row.volume_id
    if (world.killed_in_nova or row.uuid in world.kept
            or _is_being_deleted(world, server)):
        return
    found = world.cinder.volumes.get(volume)
    # Without an attachment, Cinder refuses.
    if found is not None and found.status == 'available' and any(
            a.server == server for a in world.cinder.of_volume(volume)):
        world.violated('no-foreign-disk', f'volume {volume} is connected for '
                       f'{server}, and Cinder calls it available')


def check_kept(world: World, server: str) -> None:
    """Check the dangling mappings that the plugin keeps in a move."""
    for row in world.rows_of(server):
        if row.uuid in world.kept and not world.may_keep:
            world.violated('kept-for-a-reason', 'the mapping of '
                           f'{row.volume_id} of {server} could be removed')


def check_failed_move(world: World, server: str, error: Exception) -> None:
    """Check the state when Nova's own part of a move has failed."""
    if _is_being_deleted(world, server):
        return
    row = world.row_of(server, world.failed_at)
    if not world.killed_in_nova and (
            row is None or row.uuid not in world.kept
            or row.volume_id in world.healthy_at_move):
        world.violated('no-half-done-move',
                       f'the move of {server} fails at volume '
                       f'{world.failed_at}: {error}',
                       OPERATION_AT_MOVE if world.in_operation_at_move or any(
                           a.instance_uuid == server for a in world.actions)
                       or _is_detached(world, server, world.failed_at)
                       else '')
    # Nova leaves disks without a connection, or connected to the other host;
    # an operator has to attach them.
    host = world.servers[server].host
    for row in world.volumes_of(server):
        own = world.cinder.attachments.get(row.attachment_id)
        if own is not None and (own.status, own.host) != ('attached', host):
            world.unchecked_volumes.add(row.volume_id)
    world.end_operations(server)


def _is_detached(world: World, server: str, volume: str) -> bool:
    """Return whether Nova has deleted the mapping of a volume."""
    return any(row.deleted and row.uuid not in world.removed
               and (row.instance_uuid, row.volume_id) == (server, volume)
               for row in world.rows.values())


# The end


def check_restart(world: World, server: Server) -> None:
    """Check that a server runs again without an operator."""
    if (server.task_state in task_states.hard_reboot_states
            and server.vm_state == vm_states.ACTIVE and not
            world.hosts[server.host].guests[server.uuid].is_running):
        world.violated('starts-after-a-kill', f'{server.uuid} is off, still '
                       f'{server.task_state}, and does not start')


def check_addresses(world: World) -> None:
    """Check the addresses of the servers that are in no operation."""
    for row in world.rows.values():
        server = world.servers.get(row.instance_uuid)
        if (row.deleted or server is None or not server.host
                or server.task_state is not None or not row.is_connected
                # A move failed half way.
                or server.vm_state == vm_states.ERROR
                or row.volume_id in world.unchecked_volumes):
            continue
        if row.host_of_address != server.host:
            world.violated(
                'no-address-of-another-host', f'the mapping of {row.volume_id}'
                f' of {server.uuid} on {server.host} has the address of '
                f'{row.host_of_address}', HALF_MOVED
                if world.killed_in_move else '')


def check_end(world: World, server: str) -> None:
    """Check the final state, after the last reboot."""
    for problem in _other_host_problems(world, server):
        world.violated('one-host-only', problem,
                       DELETED if world.deleted_meanwhile else
                       HALF_MOVED if world.killed_in_move else
                       OPERATION_AT_MOVE
                       if any(s == server for s, _ in world.attached) else '')
    if server not in world.servers:
        return
    record = world.servers[server]
    if record.task_state is not None:
        world.violated('can-be-rebooted-again', f'{server} is still '
                       f'{record.task_state}')
    for problem in _problems(world, server):
        world.violated('in-order-at-the-end', problem, UNPROVED
                       if world.may_keep and (
                           _is_elsewhere(world, server)
                           or world.proof_is_lost and world.swapped) else '')
    for (owner, volume), is_kept in world.attached.items():
        if is_kept and world.row_of(owner, volume) is None:
            world.violated('no-attached-volume-lost',
                           f'volume {volume} of {owner} has no mapping')
    for entry in world.entries:
        for name, outcome, subject in entry.steps:
            if name == 'destroy' and outcome == 'done' and not (
                    world.rows[subject['bdm']].deleted):
                world.violated('journal-is-true', 'the journal says that '
                               f'{subject["bdm"]} is deleted, but it is not')


def _problems(world: World, server: str) -> Iterator[str]:
    record = world.servers[server]
    if any(a.finish_time is None and (
            a.action == instance_actions.SWAP_VOLUME
            or a.instance_uuid != server) for a in world.actions):
        return  # A swap was interrupted; an operator has to check the disks.
    if record.vm_state in (vm_states.SHELVED, vm_states.SHELVED_OFFLOADED):
        if not ({r.volume_id for r in world.rows_of(server)}
                & world.unchecked_volumes):
            yield f'{server} is still {record.vm_state}'
        return
    # A failed unshelve leaves no guest.
    guest = world.hosts[record.host].guests.get(server, Guest())
    rows = [r for r in world.rows_of(server)
            if r.destination_type == 'volume']
    if (record.vm_state != vm_states.ACTIVE or not guest.is_running) and not (
            {r.volume_id for r in rows} & world.unchecked_volumes):
        yield f'{server} is {record.vm_state} and does not run'
    rows = [r for r in rows if r.volume_id not in world.unchecked_volumes]
    for row in rows:
        yield from _disk_problems(world, record.host, guest, row)
    wanted = {r.number for r in world.rows_of(server)}
    for number in _devices_left(world, server, record.host):
        if number not in wanted:
            yield f'unit {number} of {server} is left on {record.host}'
    carried = {r.attachment_id for r in world.rows_of(server)}
    for attachment in world.cinder.of_server(server):
        volume = world.cinder.volumes[attachment.volume]
        if (attachment.id not in carried
                and volume.id not in world.unchecked_volumes
                and volume.project == record.project_id):
            yield f'{attachment.id} of volume {volume.id} has no mapping'


def _disk_problems(world: World, host: str, guest: Guest, row: Row
                   ) -> Iterator[str]:
    """Yield what is wrong with a disk.

    :param host: the host of its server
    """
    own = world.cinder.attachments.get(row.attachment_id)
    if own is None or own.status != 'attached' or (
            world.cinder.volumes[own.volume].status != 'in-use'):
        yield (f'volume {row.volume_id} has a mapping, but is not attached in '
               'Cinder')
    elif row.number not in world.hosts[host].devices:
        yield f'the host has no unit {row.number} of {row.volume_id}'
    elif (own.host, own.number) != (host, row.number):
        yield (f'volume {row.volume_id} is attached to {own.host} by unit '
               f'{own.number}, and its mapping has {row.number}')
    elif guest.is_running and row.device_name not in guest.disks:
        yield f'the guest does not have {row.volume_id}'


def _devices_left(world: World, server: str, host: str) -> Iterator[int]:
    """Yield the devices of a server alone on a host, except logged ones."""
    for number, users in world.hosts[host].devices.items():
        if (users == {server} and number not in world.forgotten_devices
                and (host, server, number) not in world.devices_left
                and world.cinder.back_end.read(host, number)
                not in world.unchecked_volumes
                and not any(r.number == number and _is_logged_as_left(world, r)
                            for r in world.rows.values()
                            if r.instance_uuid == server)):
            yield number


def _other_host_problems(world: World, server: str) -> Iterator[str]:
    record = world.servers.get(server)
    own = record.host if record is not None else None
    for name, host in world.hosts.items():
        if name == own:
            continue
        guest = host.guests.get(server)
        if guest is not None and guest.is_running:
            yield f'{server} is on {name}, too'
        for number in _devices_left(world, server, name):
            yield f'unit {number} of {server} is left on {name}'
        for volume in world.cinder.back_end.exports.get(name, {}).values():
            if (world.row_of(server, volume)
                    and volume not in world.unchecked_volumes and not any(
                        a.host == name for a in world.cinder.of_volume(
                            volume))):
                yield f'{volume} is still exported to {name}'
    yield from _leftovers(world, server, own)


def _leftovers(world: World, server: str, own: str | None) -> Iterator[str]:
    """Yield wrong allocations, and attachments of a deleted server."""
    if own is None:
        for attachment in world.cinder.of_server(server):
            if attachment.volume not in world.unchecked_volumes:
                yield f'{attachment.id} of the deleted {server} is left'
    elif not (world.killed_in_move or world.failed_at):
        kept = {consumer: set(hosts)
                for consumer, hosts in world.allocations.items()
                if consumer.endswith(server)}
        if kept != ({server: {own}} if own else {}):
            yield f'allocations of {server}: {kept}'


def _check_recorded(world: World, name: str, kind: str,
                    subject: str) -> None:
    """Check that the plugin's last plan has the subject."""
    # A reconnect may give back what it has made.
    planned: set[str | None] = {*_made_attachments(world)}
    for entry in world.entries:
        for action in entry.record['actions']:
            if kind == 'bdm':
                planned.add(action.get('bdm', {}).get('uuid'))
            else:
                planned.add(action.get('attachment', {}).get('id'))
                planned.update(a['id'] for a in action.get('attachments', ()))
    if subject not in planned:
        world.violated('journal-is-true',
                       f'{name} is deleted, but is in no plan')


def _is_elsewhere(world: World, server: str) -> bool:
    """Return whether Cinder attaches a disk of a server to another host."""
    return any(a.server == server and a.host not in (None, world.this_host)
               for a in world.cinder.attachments.values())


def _made_attachments(world: World) -> set[str]:
    """Return the attachments that reconnects have made."""
    return {subject['attachment'] for entry in world.entries
            for name, outcome, subject in entry.steps
            if name == 'create-attachment' and outcome == 'done'}


def is_healthy(world: World, row: Row) -> bool:
    """Return whether the disk of a mapping is attached to the server.

    Of a volume of another project, only the attachment of the mapping counts.
    """
    world.reads(f'volume {row.volume_id}')
    volume = world.cinder.volumes.get(row.volume_id)
    own_project = world.servers[row.instance_uuid].project_id
    return (volume is not None and volume.status != 'available'
            and any(volume.project == own_project
                    or a.id == row.attachment_id
                    for a in world.cinder.attached_to(
                        row.volume_id, row.instance_uuid)))


def _has_duplicate(world: World, row: Row) -> bool:
    """Return whether another mapping of the server has the same disk."""
    return any(r.volume_id == row.volume_id and r is not row and r.is_connected
               for r in world.rows_of(row.instance_uuid))


def _is_logged_as_left(world: World, row: Row) -> bool:
    """Return whether the plugin has logged that the device stays."""
    return (row.host_of_address, row.instance_uuid,
            row.number) in world.devices_left or any(
        name == 'disconnect' and outcome == 'skipped'
        and subject.get('bdm') == row.uuid
        and subject.get('detail') not in (
            actions.NOT_HERE, actions.NEVER_HERE)
        for entry in world.entries
        for name, outcome, subject in entry.steps)


def _is_cleaning(world: World) -> bool:
    actor = world.scheduler.current
    return actor is not None and actor.is_cleaning
