# SPDX-License-Identifier: Apache-2.0
"""Scenarios of half attached disks: what failed operations of Nova leave.

The server has a healthy disk and a half attached one.  It is rebooted or
started, and afterwards has both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import functools
import json

from nova.compute import instance_actions, power_state

from nova_bdm_cleanup.tests.simulation import scenarios
from nova_bdm_cleanup.tests.simulation.move_operations import Cloud
from nova_bdm_cleanup.tests.simulation.scenarios import (
    FREE,
    HEALTHY,
    NEIGHBOUR,
    NEIGHBOURS_VOLUME,
    REMOTE,
    Scenario,
    SERVER,
    SERVER_OPERATIONS,
    Setup,
)
from nova_bdm_cleanup.tests.simulation.world import (
    COMPUTE,
    connection,
    Disk,
    Guest,
    HERE,
    Row,
    THERE,
)

#: The half attached volume, and volumes of the server on the other host.
HALF, REMOTES_VOLUMES = 'X', ('R', 'S')


def _row(cloud: Cloud, volume: str = HALF) -> Row:
    row = cloud.world.row_of(SERVER, volume)
    assert row is not None
    return row


def _reserve(cloud: Cloud, volume: str = HALF) -> str:
    return cloud.world.cinder.reserve(volume, SERVER)


def _connect_there(cloud: Cloud, volume: str = HALF, *,
                   completes: bool = True) -> None:
    """Give a row another attachment, which connects the other host.

    The number of the half attached volume there is that of the neighbour's
    volume here.
    """
    world, row = cloud.world, _row(cloud, volume)
    while len(world.cinder.back_end.exports.get(THERE, ())) < 2 and (
            volume == HALF):
        world.add_disk(REMOTE, REMOTES_VOLUMES[
            len(world.volumes_of(REMOTE))])
    row.attachment_id = world.cinder.create(volume, SERVER, THERE)
    own = world.cinder.attachments[row.attachment_id]
    row.connection_info = connection(volume, own.number, THERE)
    if completes:
        world.cinder.complete(row.attachment_id)


def _delete(cloud: Cloud, attachment: str | None) -> None:
    assert attachment is not None
    cloud.world.cinder.delete(attachment)


def _forget_devices(cloud: Cloud) -> None:
    """The guest may still have the disks by former addresses."""
    cloud.world.forgotten_devices.update(cloud.world.hosts[HERE].devices)


# What is left of a move


def _reserved(cloud: Cloud, volume: str = HALF) -> None:
    """Its attachment only reserves the volume."""
    row = _row(cloud, volume)
    former, row.attachment_id = row.attachment_id, _reserve(cloud, volume)
    _delete(cloud, former)


def _unsaved(cloud: Cloud, volume: str = HALF) -> None:
    """It names the deleted attachment, and another one reserves the volume."""
    _reserve(cloud, volume)
    _delete(cloud, _row(cloud, volume).attachment_id)


def _not_deleted(cloud: Cloud) -> None:
    """It names a reservation, and the former attachment is still there."""
    _row(cloud).attachment_id = _reserve(cloud)


def _unknown(cloud: Cloud) -> None:
    """It names an unknown attachment."""
    _row(cloud).attachment_id = 'unknown'


def _elsewhere(cloud: Cloud, volume: str = HALF) -> None:
    """It is attached to the other host."""
    former = _row(cloud, volume).attachment_id
    _connect_there(cloud, volume)
    _delete(cloud, former)
    _forget_devices(cloud)


def _on_both_hosts(cloud: Cloud) -> None:
    """It is attached to both hosts, and the mapping names the other one."""
    _connect_there(cloud)


def _attaching_there(cloud: Cloud) -> None:
    """It was being attached to the other host."""
    former = _row(cloud).attachment_id
    _connect_there(cloud, completes=False)
    _delete(cloud, former)


def _attaching(cloud: Cloud) -> None:
    """It was being attached to this host; the address was not saved."""
    _reserved(cloud)
    cloud.world.cinder.connect(_row(cloud).attachment_id, HERE)
    _row(cloud).connection_info = connection(HALF, _neighbours(cloud), HERE)
    _forget_devices(cloud)


def _attached_incompletely(cloud: Cloud) -> None:
    """It was attached to this host, and this was not completed."""
    _reserved(cloud)
    own = cloud.world.cinder.connect(_row(cloud).attachment_id, HERE)
    _row(cloud).connection_info = connection(HALF, own, HERE)


def _neighbours(cloud: Cloud) -> int:
    """Return the number of the neighbour's disk."""
    row = cloud.world.row_of(NEIGHBOUR, NEIGHBOURS_VOLUME)
    assert row is not None and row.number is not None
    return row.number


def _root(cloud: Cloud) -> None:
    """It is the root disk, and has no attachment."""
    cloud.world.rows_of(SERVER)[0].boot_index = None
    _row(cloud).boot_index = 0
    _delete(cloud, _row(cloud).attachment_id)


def _two(cloud: Cloud) -> None:
    """Two disks are reserved, and of one the mapping does not name that."""
    _unsaved(cloud)
    _reserved(cloud, HEALTHY)


def _two_elsewhere(cloud: Cloud) -> None:
    """Two disks are attached to the other host."""
    _elsewhere(cloud)
    _elsewhere(cloud, HEALTHY)


def _share(cloud: Cloud, server: str | None) -> None:
    """Make the volume multiattach; another server has it, too."""
    world, row = cloud.world, _row(cloud)
    world.cinder.volumes[HALF].multiattach = True
    shared = [row]
    if server is not None:
        shared.append(world.add_disk(server, HALF))
    for each in shared:
        each.connection_info = json.dumps({
            **json.loads(each.connection_info or ''), 'multiattach': True})


def _shared(cloud: Cloud) -> None:
    """A server on the other host shares it; the mapping names the deleted
    attachment.
    """
    _share(cloud, REMOTE)
    _unsaved(cloud)


def _shared_here(cloud: Cloud) -> None:
    """The neighbour shares it; the mapping names an unknown attachment."""
    _share(cloud, NEIGHBOUR)
    _unknown(cloud)


def _shared_by_none(cloud: Cloud) -> None:
    """It could be shared; the mapping names an unknown attachment."""
    _share(cloud, None)
    _unknown(cloud)


KINDS: Mapping[str, Setup] = {
    'reserved': _reserved, 'unsaved': _unsaved, 'not-deleted': _not_deleted,
    'unknown': _unknown, 'elsewhere': _elsewhere, 'both': _on_both_hosts,
    'attaching-there': _attaching_there, 'attaching': _attaching,
    'incomplete': _attached_incompletely, 'root': _root, 'two': _two,
    'two-elsewhere': _two_elsewhere, 'shared': _shared,
    'shared-here': _shared_here, 'shared-by-none': _shared_by_none}


# What is left of an unshelve or an evacuation to this host


def _connected(cloud: Cloud) -> None:
    """Its attachment connects this host, where the guest never started.

    If it connects another host, the array exports the volume there for good,
    as with Nova alone.
    """
    row = _row(cloud)
    own = cloud.world.cinder.connect(row.attachment_id, HERE)
    row.connection_info = connection(HALF, own, HERE)
    cloud.world.cinder.complete(row.attachment_id)


def _connected_and_reserved(cloud: Cloud) -> None:
    """Its attachment connects this host, and another one reserves it."""
    _connected(cloud)
    _reserve(cloud)


def _reserved_and_connected(cloud: Cloud) -> None:
    """Its attachment reserves it, and another one connects this host."""
    _connected(cloud)
    _row(cloud).attachment_id = _reserve(cloud)


def _reserved_twice(cloud: Cloud) -> None:
    """Another attachment reserves the volume, too."""
    _reserve(cloud)


def _attaching_here(cloud: Cloud) -> None:
    """Its attachment connects this host, and is not complete."""
    _reserved(cloud)
    cloud.world.cinder.connect(_row(cloud).attachment_id, HERE)


UNSHELVED: Mapping[str, Setup] = {
    'root': _root, 'unsaved': _unsaved, 'connected': _connected,
    'connected-and-reserved': _connected_and_reserved,
    'reserved-and-connected': _reserved_and_connected,
    'reserved-twice': _reserved_twice}

EVACUATED: Mapping[str, Setup] = {
    'reserved': _reserved, 'unsaved': _unsaved, 'not-deleted': _not_deleted,
    'unknown': _unknown, 'reserved-twice': _reserved_twice,
    'attaching': _attaching_here}

_ARRIVALS: Mapping[str, Mapping[str, Setup]] = {
    'unshelve': UNSHELVED, 'evacuate': EVACUATED}


# The guest runs on the other host: nova-compute died at the end of a live
# migration


def _serve(cloud: Cloud, *, deletes: bool = False, completes: bool = False
           ) -> None:
    world = cloud.world
    guest = Guest(is_running=True)
    for volume in (HALF, HEALTHY):
        row = _row(cloud, volume)
        former = row.attachment_id
        _connect_there(cloud, volume, completes=completes)
        if deletes:
            _delete(cloud, former)
        assert row.number is not None
        guest.disks[row.device_name] = Disk(volume, row.number)
        world.hosts[THERE].devices.setdefault(row.number, set()).add(SERVER)
    world.hosts[THERE].guests[SERVER] = guest
    world.hosts[HERE].guests[SERVER].is_running = False


_SERVED: Mapping[str, Setup] = {
    'nothing else has happened': _serve,
    'the former attachments are deleted': functools.partial(
        _serve, deletes=True),
    'the attachments are complete': functools.partial(_serve, completes=True),
    'the former attachments are deleted, and the others are complete':
        functools.partial(_serve, deletes=True, completes=True)}


def _undefine(cloud: Cloud) -> None:
    del cloud.world.hosts[HERE].guests[SERVER]


def _migrate_domain(cloud: Cloud) -> None:
    cloud.world.hosts[HERE].guests[SERVER].has_left = True


def _record_evacuation(cloud: Cloud) -> None:
    """The rows were written after it began."""
    world = cloud.world
    world.record_migration(SERVER, HERE, THERE, 'evacuation', 'pre-migrating')
    for row in world.volumes_of(SERVER):
        world.change_row(row)
    world.advance_time(2)


_DOMAINS: Mapping[str, Setup] = {
    'libvirt does not know the domain here': _undefine,
    'the domain here is off, since it was migrated': _migrate_domain,
    'the domain here is off, and Nova has evacuated the server':
        _record_evacuation}


# Other operations at the same time


def _sharer_detaches(cloud: Cloud) -> None:
    """The other server detaches the volume."""
    cloud.begin('sharer', cloud.detach, REMOTE, HALF)


def _remote_takes(cloud: Cloud) -> None:
    """A server is built on another host, with the volume."""
    cloud.begin('user', cloud.make_server, scenarios.NEW_SERVER, HALF, THERE)
    if _row(cloud).boot_index == 0:
        # Its volume is free.
        cloud.world.unchecked_volumes.add(HALF)


def _member_deletes(cloud: Cloud) -> None:
    """A member deletes each attachment that only reserves the volume."""
    cloud.begin('member', cloud.delete_reservations, HALF)
    # If it was the only one, the disk is removed rightly.
    cloud.world.attached.clear()
    # The member may delete the new one before the plugin deletes the other,
    # or before Nova connects it.
    cloud.world.unchecked_properties = frozenset((
        'volume-stays-taken', 'no-half-done-move'))


def _half_detach(cloud: Cloud) -> None:
    """The half attached disk is detached: Nova deletes what its row names."""
    cloud.begin('user', cloud.detach, SERVER, HALF)
    del cloud.world.attached[SERVER, HALF]
    cloud.world.unchecked_volumes.add(HALF)


def _half_swap(cloud: Cloud) -> None:
    """The half attached disk is swapped for another one."""
    cloud.begin('Cinder', cloud.swap, SERVER, HALF, FREE)
    del cloud.world.attached[SERVER, HALF]
    cloud.world.unchecked_volumes.add(HALF)


def _detach(cloud: Cloud) -> None:
    """The healthy disk is detached."""
    cloud.begin('user', cloud.detach, SERVER, HEALTHY)
    del cloud.world.attached[SERVER, HEALTHY]


def _swap(cloud: Cloud) -> None:
    """The healthy disk is swapped for another one."""
    cloud.begin('Cinder', cloud.swap, SERVER, HEALTHY, FREE)
    del cloud.world.attached[SERVER, HEALTHY]


def _delete_server(cloud: Cloud) -> None:
    """The owner deletes the server."""
    cloud.begin('owner again', cloud.delete, SERVER)
    cloud.world.attached.clear()
    _forget_devices(cloud)


def _reset_and_migrate(cloud: Cloud) -> None:
    """An administrator resets the server's state, and live-migrates it."""
    cloud.begin('admin', cloud.reset_and_migrate, SERVER)
    # See _set_up.
    cloud.world.reboots_at_end = 2


# What is left of a swap


def _swapped(cloud: Cloud, *, connects: bool = True, is_here: bool = True,
             pivots: bool = False, completes: bool = False,
             deletes: bool = False) -> None:
    """nova-compute has died in a swap, and was started again."""
    world, row = cloud.world, _row(cloud)
    world.end_action(world.begin_action(
        SERVER, instance_actions.SWAP_VOLUME), 'Error')
    del world.attached[SERVER, HALF]
    world.cinder.begin_detaching(HALF)
    new = world.cinder.reserve(FREE, SERVER)
    if connects:
        number = world.cinder.connect(new, HERE)
        host = world.hosts[HERE]
        guest = host.guests[SERVER]
        if is_here and guest.is_running:
            host.devices.setdefault(number, set()).add(SERVER)
        if pivots:
            host.devices.pop(row.number or 0, None)
            guest.disks[row.device_name].number = number
            world.swapped[SERVER, row.device_name] = FREE
    if completes:
        world.cinder.complete(new)
    if deletes:
        _delete(cloud, row.attachment_id)
    world.cinder.volumes[FREE].updated_at = world.ago(2)
    if world.cinder.attachments[new].attached_at is not None:
        world.cinder.attachments[new].attached_at = world.ago(2)


def _rolled_back(cloud: Cloud) -> None:
    """Nova has rolled back a swap that the guest has made."""
    _swapped(cloud, pivots=True)
    new, = cloud.world.cinder.of_volume(FREE)
    cloud.world.cinder.roll_detaching(HALF)
    _delete(cloud, new.id)
    _forget_devices(cloud)
    # The guest comes back without it.
    cloud.world.unchecked_volumes.add(HALF)


SWAPS: Mapping[str, Setup] = {
    'reserved': functools.partial(_swapped, connects=False),
    'attaching': functools.partial(_swapped, is_here=False),
    'connected': _swapped,
    'pivoted': functools.partial(_swapped, pivots=True),
    'completed': functools.partial(_swapped, pivots=True, completes=True),
    'unsaved': functools.partial(
        _swapped, pivots=True, completes=True, deletes=True),
    'rolled-back': _rolled_back}


_concurrent = scenarios._CONCURRENT

OTHERS: Mapping[str, Setup] = {
    **{name: _concurrent[name] for name in (
        'attach', 'neighbour-attaches', 'reboots-again', 'resets-task',
        'remote-arrives')},
    'live-migrates': _reset_and_migrate,
    'remote-takes': _remote_takes, 'member-deletes': _member_deletes,
    'detach': _detach, 'swap': _swap, 'half-detach': _half_detach,
    'half-swap': _half_swap, 'is-deleted': _delete_server,
    'sharer-detaches': _sharer_detaches}


# The scenarios


def _set_up(cloud: Cloud, operation: str, kinds: Mapping[str, Setup]) -> None:
    world, chosen = cloud.world, SERVER_OPERATIONS[operation]
    scenarios._set_up(cloud, chosen.is_running, chosen.host)
    chosen.before(cloud)
    world.attached[SERVER, HALF] = world.attached[SERVER, HEALTHY] = True
    world.may_keep = True
    world.reboots_at_end = 1
    scenarios._choose(cloud, dict(kinds))
    if any(a.host == THERE for a in world.cinder.of_server(SERVER)):
        # A failed start of Nova leaves no domain, which proves that the guest
        # is here: then the first reboot goes without the disk.
        world.reboots_at_end = 2
    for volume in (HALF, HEALTHY):
        world.cinder.volumes[volume].updated_at = world.ago(2)
        for attachment in world.cinder.of_volume(volume):
            if attachment.attached_at is not None:
                attachment.attached_at = world.ago(2)


def _begin(cloud: Cloud, operation: str) -> None:
    SERVER_OPERATIONS[operation].begin(cloud, '')
    if operation == 'boot':
        cloud.world.servers[SERVER].power_state = power_state.RUNNING


def _compose(operation: str, kinds: Sequence[str], other: str, cloud: Cloud
             ) -> None:
    known = _ARRIVALS.get(operation, KINDS)
    _set_up(cloud, operation, {
        known[kind].__doc__ or '': known[kind] for kind in kinds})
    _begin(cloud, operation)
    if other:
        OTHERS[other](cloud)


def _compose_silence(operation: str, cloud: Cloud) -> None:
    _set_up(cloud, operation, {
        kind.__doc__ or '': kind for kind in KINDS.values()})
    cloud.world.may_fall_silent = True
    cloud.world.reboots_at_end = 2
    _begin(cloud, operation)


def _compose_swap(operation: str, kind: str, other: str, cloud: Cloud
                  ) -> None:
    _set_up(cloud, operation, {kind: SWAPS[kind]})
    cloud.world.reboots_at_end = 2
    if not SERVER_OPERATIONS[operation].is_running and kind != 'reserved':
        # No domain tells which disk the guest had.
        cloud.world.unchecked_volumes.update((HALF, FREE))
    _begin(cloud, operation)
    if other:
        OTHERS[other](cloud)


def _compose_served(operation: str, cloud: Cloud) -> None:
    _set_up(cloud, operation, _SERVED)
    scenarios._choose(cloud, dict(_DOMAINS))
    # Nova starts a second guest.
    cloud.world.unchecked_properties = frozenset((
        'one-host-only', 'in-order-at-the-end'))
    _begin(cloud, operation)


# The guest goes on: an administrator has the disks adopted


def _beside(cloud: Cloud, volume: str = HALF, *, completes: bool = True
            ) -> None:
    """It is attached here, and another attachment is of the other host."""
    row = _row(cloud, volume)
    own = row.attachment_id, row.connection_info
    _connect_there(cloud, volume, completes=completes)
    row.attachment_id, row.connection_info = own


def _attaching_beside(cloud: Cloud) -> None:
    """It is attached here, and is being attached to the other host."""
    _beside(cloud, completes=False)


def _both_on_both_hosts(cloud: Cloud) -> None:
    """Two disks are attached to both hosts."""
    _connect_there(cloud)
    _connect_there(cloud, HEALTHY)


def _forge(cloud: Cloud) -> None:
    """It is attached to both hosts, and a member writes another attachment
    to this one.
    """
    _connect_there(cloud)
    cloud.begin('member', cloud.write_attachment, HALF, SERVER, HERE)


ADOPTED: Mapping[str, Setup] = {
    'both': _on_both_hosts, 'not-deleted': _not_deleted,
    'unknown': _unknown, 'beside': _beside,
    'attaching-beside': _attaching_beside, 'two': _both_on_both_hosts}


def _migrate(cloud: Cloud) -> None:
    """An administrator live-migrates the server."""
    cloud.begin('admin', cloud.live_migrate, SERVER)
    # Where it goes, the other attachment is a second one.
    cloud.world.unchecked_volumes.add(HALF)


_OTHERS_OF_ADOPTIONS: Mapping[str, Setup] = {
    **OTHERS, 'live-migrates': _migrate}


def _compose_adoption(kind: Setup, other: str, cloud: Cloud) -> None:
    """Have no reboot at the end, unless another operation takes part."""
    _set_up(cloud, 'reboot', {kind.__doc__ or '': kind})
    world = cloud.world
    world.reboots_at_end = 2 if other else 0
    world.is_repaired_at_end = True
    cloud.begin('administrator', cloud.repair, SERVER, process=COMPUTE)
    if other:
        _OTHERS_OF_ADOPTIONS[other](cloud)


def _compose_served_adoption(cloud: Cloud) -> None:
    _set_up(cloud, 'reboot', _SERVED)
    scenarios._choose(cloud, dict(_DOMAINS))
    cloud.world.unchecked_properties = frozenset((
        'one-host-only', 'in-order-at-the-end'))
    cloud.world.reboots_at_end = 0
    cloud.begin('administrator', cloud.repair, SERVER, process=COMPUTE)


SCENARIOS: dict[str, Scenario] = dict(scenarios.SCENARIOS)


def _add(name: str, description: str, operation: str, setup: Setup,
         preemptions: int = 1, failures: int = 0) -> None:
    SCENARIOS[name] = Scenario(
        name, description, setup,
        # Else Nova itself disconnects a neighbour by an old address.
        (*SERVER_OPERATIONS[operation].triggers, 'delete'),
        preemptions=preemptions, failures=failures)


#: The operation, the kinds, and the operations at the same time.
_COMBINATIONS: Sequence[tuple[str, Sequence[str], Sequence[str]]] = (
    ('reboot', ('reserved', 'elsewhere'), (
        'attach', 'detach', 'swap', 'neighbour-attaches', 'reboots-again',
        'resets-task', 'remote-arrives')),
    ('reboot', ('unsaved', 'attaching', 'incomplete', 'two'), (
        'neighbour-attaches', 'remote-takes')),
    ('reboot', ('reserved', 'unsaved', 'unknown'), ('member-deletes',)),
    # By an address of the other host, Nova itself would disconnect the
    # neighbour.
    ('reboot', ('unknown', 'not-deleted'), ('half-detach', 'half-swap')),
    # Of others Nova itself leaves an attachment.
    ('reboot', ('reserved', 'elsewhere', 'attaching'), ('is-deleted',)),
    ('reboot', ('root',), ('remote-takes', 'neighbour-attaches')),
    ('reboot', ('shared',), ('sharer-detaches',)),
    ('start', ('reserved', 'elsewhere'), (
        'neighbour-attaches', 'is-deleted')),
    ('reboot', ('reserved', 'unsaved', 'unknown'), ('live-migrates',)),
    ('boot', ('reserved', 'elsewhere'), ('neighbour-attaches',)),
    ('boot', ('not-deleted',), ('half-detach',)),
    ('unshelve', ('root', 'connected'), (
        'remote-takes', 'member-deletes', 'is-deleted')),
    ('unshelve', ('connected-and-reserved',), ('neighbour-attaches',)),
    ('evacuate', ('unknown', 'attaching'), (
        'remote-takes', 'member-deletes', 'neighbour-attaches')),
)

for _operation, _kinds, _names in _COMBINATIONS:
    for _name in _names:
        _add(f'reconnect-{_operation}-{_kinds[0]}-{_name}',
             f'{_operation}: A disk is half attached. {OTHERS[_name].__doc__}',
             _operation, functools.partial(
                 _compose, _operation, _kinds, _name))
for _name, _kind in ADOPTED.items():
    _add(f'adopt-{_name}', f'repair: {_kind.__doc__}', 'reboot',
         functools.partial(_compose_adoption, _kind, ''), failures=1)
for _name, _others in {
        'both': ('attach', 'detach', 'swap', 'neighbour-attaches',
                 'remote-arrives', 'reboots-again'),
        # By an address of the other host, Nova itself would disconnect the
        # neighbour.
        'beside': ('live-migrates',),
        'unknown': ('half-detach', 'half-swap')}.items():
    for _other in _others:
        _add(f'adopt-{_name}-{_other}',
             f'repair: {ADOPTED[_name].__doc__} '
             f'{_OTHERS_OF_ADOPTIONS[_other].__doc__}', 'reboot',
             functools.partial(_compose_adoption, ADOPTED[_name], _other))
_add('adopt-both-forged', f'repair: {_forge.__doc__}', 'reboot',
     functools.partial(_compose_adoption, _forge, ''))
_add('adopt-served', 'repair: The guest runs on the other host.', 'reboot',
     _compose_served_adoption, failures=1)
#: The kinds without another operation at the same time.
_ALONE: Mapping[str, Sequence[Sequence[str]]] = {
    'reboot': [[kind] for kind in KINDS],
    'start': [['unsaved', 'elsewhere', 'attaching', 'root', 'two']],
    'boot': [['unsaved', 'elsewhere', 'attaching', 'root', 'shared-here']],
    'unshelve': [[kind] for kind in UNSHELVED],
    'evacuate': [[kind] for kind in EVACUATED]}

for _operation, _groups in _ALONE.items():
    for _kinds in _groups:
        _add('-'.join(('reconnect', _operation, *_kinds[:1])),
             f'{_operation}: A disk is half attached.', _operation,
             functools.partial(_compose, _operation, _kinds, ''),
             failures=1)

for _operation in ('reboot', 'start', 'boot'):
    _add(f'reconnect-{_operation}-silence',
         f'{_operation}: A disk is half attached, and Cinder falls silent.',
         _operation, functools.partial(_compose_silence, _operation),
         preemptions=0)
    _add(f'reconnect-{_operation}-served',
         f'{_operation}: The guest runs on the other host.', _operation,
         functools.partial(_compose_served, _operation),
         preemptions=0, failures=1)

for _operation, _kinds in (('reboot', [*SWAPS]),
                           ('start', ['reserved', 'connected', 'pivoted'])):
    for _left in _kinds:
        _add(f'swap-{_operation}-{_left}',
             f'{_operation}: nova-compute has died in a swap.', _operation,
             functools.partial(_compose_swap, _operation, _left, ''),
             failures=1)
for _left in ('connected', 'completed'):
    _add(f'swap-reboot-{_left}-neighbour-attaches',
         'reboot: nova-compute has died in a swap, and a neighbour attaches a '
         'volume.', 'reboot', functools.partial(
             _compose_swap, 'reboot', _left, 'neighbour-attaches'))
