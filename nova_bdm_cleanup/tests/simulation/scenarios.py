# SPDX-License-Identifier: Apache-2.0
"""Scenarios: an operation on a server, its disks, and a concurrent operation.

Each scenario sets up the same small cloud: a server with a healthy and a
dangling disk, a neighbour with a disk of its own, and a server on another
host.  Then the operation begins, and the concurrent one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import datetime
import functools
import itertools

from nova.compute import power_state, vm_states

from nova_bdm_cleanup.tests.simulation import properties
from nova_bdm_cleanup.tests.simulation.move_operations import Cloud
from nova_bdm_cleanup.tests.simulation.operations import API, CINDER
from nova_bdm_cleanup.tests.simulation.world import (
    ALL,
    COMPUTE,
    connection,
    HERE,
    OTHER_COMPUTE,
    OWN_PROJECT,
    THERE,
)

#: The server, its neighbour on the host, and a server on the other host.
SERVER, NEIGHBOUR, REMOTE = 'server', 'neighbour', 'remote'
#: A server that is built in the scenario.
NEW_SERVER = 'new-server'
#: The server's healthy and dangling volume, and the neighbour's volume.
HEALTHY, DANGLING, NEIGHBOURS_VOLUME = 'H', 'X', 'N'
#: An available volume, and another project.
FREE, OTHER_PROJECT = 'F', 'other-project'

Setup = Callable[[Cloud], None]


@dataclasses.dataclass(frozen=True)
class Scenario:
    """An initial state, and the actors."""

    name: str
    description: str
    setup: Setup
    #: The words of ``[bdm_cleanup] triggers``.
    triggers: Sequence[str] = ()
    release: int = 34
    #: Default number of preemptions.
    preemptions: int = 1
    #: Default number of kills and failed calls, with one preemption.
    failures: int = 1


SCENARIOS: dict[str, Scenario] = {}


# The initial state


def _set_up(cloud: Cloud, is_running: bool = True, host: str = HERE) -> None:
    world = cloud.world
    state = vm_states.ACTIVE if is_running else vm_states.STOPPED
    world.add_server(SERVER, vm_state=state, host=host)
    world.add_server(NEIGHBOUR)
    world.add_server(REMOTE, host=THERE)
    world.add_disk(SERVER, HEALTHY)
    world.add_disk(SERVER, DANGLING)
    world.add_disk(NEIGHBOUR, NEIGHBOURS_VOLUME)
    world.cinder.create_volume(FREE, OWN_PROJECT)


def _missing(cloud: Cloud) -> None:
    """The volume was deleted behind Nova's back."""
    cloud.world.cinder.delete_volume(DANGLING)


def _available(cloud: Cloud) -> None:
    """The volume was detached behind Nova's back."""
    row = cloud.world.row_of(SERVER, DANGLING)
    cloud.world.cinder.delete(row.attachment_id)


def _elsewhere(cloud: Cloud) -> None:
    """The volume is now attached to a server on another host."""
    _available(cloud)
    cloud.world.add_disk(REMOTE, DANGLING)


def _beside(cloud: Cloud) -> None:
    """The volume is now attached to the neighbour."""
    _available(cloud)
    cloud.world.add_disk(NEIGHBOUR, DANGLING)


def _reset(cloud: Cloud) -> None:
    """The volume's status was reset to available, without its attachment."""
    cloud.world.cinder.reset_status(DANGLING, 'available')


def _foreign(cloud: Cloud) -> None:
    """The volume was detached and transferred to another project."""
    _available(cloud)
    cloud.world.cinder.transfer(DANGLING, OTHER_PROJECT)


def _root(cloud: Cloud) -> None:
    """The root volume was detached behind Nova's back."""
    image = cloud.world.rows_of(SERVER)[0]
    row = cloud.world.row_of(SERVER, DANGLING)
    image.boot_index, row.boot_index = None, 0
    _available(cloud)
    cloud.world.unchecked_volumes.add(DANGLING)


def _stale(cloud: Cloud) -> None:
    """The row was deleted, and the attachment in Cinder was left."""
    cloud.world.delete_row(cloud.world.row_of(SERVER, DANGLING))


def _reused(cloud: Cloud) -> None:
    """The volume was deleted, and the neighbour has its address."""
    _missing(cloud)
    cloud.world.add_disk(NEIGHBOUR, FREE)


KINDS: dict[str, Setup] = {
    'missing': _missing, 'available': _available, 'elsewhere': _elsewhere,
    'beside': _beside, 'reset': _reset, 'stale': _stale,
    'foreign': _foreign, 'root': _root, 'reused': _reused}
# The operation on the server


def _starter(description: str, actor: str, operation: Callable[..., object],
             *arguments: str, process: str = API) -> Callable[..., None]:
    """Return a function that starts an actor with one operation.

    :param description: its docstring
    :param operation: a method of the cloud
    """
    def begin(cloud: Cloud, kind: str = '') -> None:
        cloud.begin(actor, operation, cloud, *arguments, process=process)

    begin.__doc__ = description
    return begin


_hard = _starter('', 'owner', Cloud.reboot, SERVER)
_soft = _starter('', 'owner', Cloud.reboot, SERVER, 'SOFT')


def _hanging(cloud: Cloud, kind: str) -> None:
    cloud.world.hanging.add(SERVER)
    _soft(cloud)


def _in_error(cloud: Cloud, kind: str) -> None:
    cloud.world.servers[SERVER].vm_state = vm_states.ERROR
    _hard(cloud)


def _boot(cloud: Cloud, kind: str) -> None:
    cloud.world.resumes_guests = True
    cloud.lose_power()
    cloud.begin('nova-compute', cloud.start_compute, process=COMPUTE)


def _evacuate(cloud: Cloud, kind: str) -> None:
    cloud.lose_power(THERE)
    cloud.begin('admin', cloud.evacuate, SERVER)


def _evacuate_isolated(cloud: Cloud, kind: str) -> None:
    """Evacuate from a host that only the network has lost.

    The neighbour has the addresses of its disks on the new host.
    """
    cloud.world.add_disk(NEIGHBOUR, 'M')
    cloud.begin('admin', cloud.evacuate, SERVER)


@dataclasses.dataclass(frozen=True)
class ServerOperation:
    """An operation on the server."""

    begin: Callable[..., None]
    #: The words of ``[bdm_cleanup] triggers``; by default those that a move
    #: can meet.
    triggers: Sequence[str] = ('start', 'move', 'delete')
    #: The host of the server, and whether the server runs.
    host: str = HERE
    is_running: bool = True
    #: Changes the initial state.
    before: Callable[[Cloud], None] = lambda cloud: None
    #: No failures by default if there is a concurrent operation: the search
    #: without one has them, and so do other ways.
    has_few_failures: bool = True


SERVER_OPERATIONS: dict[str, ServerOperation] = {
    'reboot': ServerOperation(_hard, (), has_few_failures=False),
    'soft': ServerOperation(_soft, (), has_few_failures=False),
    'hanging': ServerOperation(
        _hanging, (), has_few_failures=False),
    'error': ServerOperation(_in_error, ()),
    'start': ServerOperation(_starter('', 'owner', Cloud.start, SERVER),
                             ('start',), is_running=False,
                             has_few_failures=False),
    'boot': ServerOperation(_boot, ('start', 'host_boot')),
    'evacuate': ServerOperation(_evacuate, host=THERE),
    'evacuate-isolated': ServerOperation(_evacuate_isolated, host=THERE),
    'migrate': ServerOperation(_starter('', 'owner', Cloud.migrate, SERVER)),
    'migrate-and-revert': ServerOperation(
        _starter('', 'owner', Cloud.migrate_and_revert, SERVER)),
    'revert': ServerOperation(_starter('', 'owner', Cloud.revert, SERVER),
                              before=lambda cloud: cloud.set_up_resized(
                                  SERVER, THERE)),
    'shelve': ServerOperation(_starter('', 'owner', Cloud.shelve, SERVER)),
    'unshelve': ServerOperation(_starter('', 'owner', Cloud.unshelve, SERVER),
                                before=lambda cloud: cloud.set_up_shelved(
                                    SERVER)),
    'live': ServerOperation(_starter('', 'admin', Cloud.live_migrate, SERVER)),
    'remove': ServerOperation(_starter('', 'owner', Cloud.delete, SERVER))}


# The concurrent operation


def _delete_and_reuse(cloud: Cloud) -> None:
    """The volume is deleted, and its number is reused for the neighbour."""
    _CONCURRENT['delete'](cloud)
    _CONCURRENT['neighbour-attaches'](cloud)


def _remote_arrives(cloud: Cloud) -> None:
    """A server is live-migrated here from the other host, with a disk."""
    cloud.world.add_disk(REMOTE, FREE)
    cloud.begin('admin', cloud.move_in, REMOTE, process='conductor')


def _remote_migrates(cloud: Cloud) -> None:
    """A server is migrated here from the other host, with a disk."""
    cloud.world.add_disk(REMOTE, FREE)
    cloud.begin('remote', cloud.migrate, REMOTE)


def _force_detaches(cloud: Cloud) -> None:
    """An administrator force-detaches the volume in Cinder."""
    row = cloud.world.row_of(SERVER, DANGLING)
    cloud.begin('admin', cloud.force_detach, DANGLING, row.attachment_id)


def _foreign_writes(cloud: Cloud) -> None:
    """Another project creates an attachment of its volume, with our host."""
    cloud.world.cinder.create_volume('O', OTHER_PROJECT)
    cloud.begin('tenant', cloud.write_attachment, 'O', SERVER, 'here')


def _member_updates(cloud: Cloud) -> None:
    """A member connects the attachment of the healthy disk to another host."""
    row = cloud.world.row_of(SERVER, HEALTHY)
    cloud.begin('member', cloud.update_attachment, HEALTHY, row.attachment_id,
                THERE)


def _clock_steps(cloud: Cloud) -> None:
    """The clock of the host steps by an hour, forward or back."""
    hours = {'the clock steps forward': 1.0, 'the clock steps back': -1.0}
    cloud.begin('NTP', cloud.set_clock, hours[
        cloud.world.scheduler.choose(list(hours))])


def _resets_neighbour(cloud: Cloud) -> None:
    """An administrator resets the neighbour's volume to detached."""
    # While Cinder denies the neighbour's attachment, the mapping stays.
    cloud.world.unchecked_volumes.add(DANGLING)
    cloud.begin('admin', cloud.reset_attached, FREE)


_CONCURRENT: dict[str, Setup] = {
    'attach': _starter('Another volume is attached to the server.',
                       'user', Cloud.attach, SERVER, FREE),
    'attach-again': _starter(
        'The dangling volume is attached to the server again.',
        'user', Cloud.attach, SERVER, DANGLING),
    'detach': _starter('The healthy disk is detached.',
                       'user', Cloud.detach, SERVER, HEALTHY),
    'detach-dangling': _starter('The dangling disk is detached.',
                                'user', Cloud.detach, SERVER, DANGLING),
    'swap': _starter('The healthy disk is swapped for another one.',
                     'Cinder', Cloud.swap, SERVER, HEALTHY, FREE),
    'delete': _starter('The dangling volume is deleted.', 'user',
                       Cloud.delete_volume, DANGLING, process=CINDER),
    'delete-and-reuse': _delete_and_reuse,
    'neighbour-attaches': _starter(
        'Another volume is attached to the neighbour, by the lowest number.',
        'neighbour', Cloud.attach, NEIGHBOUR, FREE),
    'neighbour-takes': _starter(
        'A server is built on the same host, with the dangling volume.',
        'user', Cloud.make_server, NEW_SERVER, DANGLING, HERE),
    'remote-takes': _starter(
        'A server is built on another host, with the dangling volume.',
        'user', Cloud.make_server, NEW_SERVER, DANGLING, THERE),
    'neighbour-swaps': _starter(
        "The neighbour's volume is swapped, to the lowest free number.",
        'Cinder', Cloud.swap, NEIGHBOUR, NEIGHBOURS_VOLUME, FREE),
    'neighbour-leaves': _starter(
        'The neighbour is live-migrated to the other host.',
        'admin', Cloud.move_out, NEIGHBOUR, process='conductor'),
    'remote-arrives': _remote_arrives,
    'gives-away': _starter(
        'The dangling volume is transferred to another project.',
        'user', Cloud.give_away, DANGLING, OTHER_PROJECT),
    'resets-status': _starter("An administrator resets the volume's status.",
                              'admin', Cloud.reset_to_in_use, DANGLING),
    'force-detaches': _force_detaches,
    'reboots-again': _starter('The owner requests another reboot.',
                              'owner again', Cloud.reboot, SERVER),
    'starts': _starter('The owner starts the server.',
                       'owner', Cloud.start, SERVER),
    'locks': _starter('An administrator locks and unlocks the server.',
                      'admin', Cloud.lock_and_unlock, SERVER),
    'clock-steps': _clock_steps,
    'resets-neighbour': _resets_neighbour,
    'neighbour-reboots': _starter('The neighbour is rebooted hard.',
                                  'neighbour', Cloud.reboot, NEIGHBOUR),
    'resets-task': _starter('An administrator resets the state of the server.',
                            'admin', Cloud.reset_task_state, SERVER),
    'member-writes': _starter(
        'A member creates an attachment of the volume for the server, with a '
        'connector of this host.',
        'member', Cloud.write_attachment, DANGLING, SERVER, HERE),
    'member-updates': _member_updates,
    'foreign-writes': _foreign_writes,
    'neighbour-migrates': _starter(
        'The neighbour is migrated, too, and confirmed at the end.',
        'neighbour', Cloud.migrate, NEIGHBOUR),
    'remote-migrates': _remote_migrates,
    'is-deleted': _starter('The owner deletes the server.',
                           'owner again', Cloud.delete, SERVER),
    'old-host-returns': _starter('The host that was down is back.',
                                 'old host', Cloud.start_other_compute,
                                 process=OTHER_COMPUTE)}


def _compose(name: str, kind: str, other: Setup | None, cloud: Cloud) -> None:
    operation = SERVER_OPERATIONS[name]
    _set_up(cloud, operation.is_running, operation.host)
    operation.before(cloud)
    KINDS[kind](cloud)
    operation.begin(cloud, kind)
    cloud.world.may_keep = other is not None or kind == 'root'
    if other is not None:
        other(cloud)
    if name == 'boot':
        cloud.world.servers[SERVER].power_state = power_state.RUNNING


# Two servers with one address, and reads that lag: the search chooses a part
# of the initial state, and tries each.


def _free_address(cloud: Cloud) -> None:
    """Detach the dangling volume; the neighbour gets its address."""
    _available(cloud)
    cloud.world.add_disk(NEIGHBOUR, FREE)
    cloud.world.unchecked_volumes.add(DANGLING)


def _root_address(cloud: Cloud) -> None:
    _free_address(cloud)
    image = cloud.world.rows_of(SERVER)[0]
    row = cloud.world.row_of(SERVER, DANGLING)
    image.boot_index, row.boot_index = None, 0


def _elsewhere_address(cloud: Cloud) -> None:
    _free_address(cloud)
    cloud.world.add_disk(REMOTE, DANGLING)


def _address_in_use(cloud: Cloud) -> None:
    _free_address(cloud)
    cloud.world.cinder.volumes[DANGLING].status = 'in-use'


def _busy_address(cloud: Cloud) -> None:
    _free_address(cloud)
    cloud.world.cinder.volumes[DANGLING].status = 'maintenance'


def _claimed_address(cloud: Cloud) -> None:
    cinder = cloud.world.cinder
    _free_address(cloud)
    cinder.transfer(DANGLING, OTHER_PROJECT)
    forged = cinder.reserve(DANGLING, SERVER)
    cinder.connect(forged, HERE)
    cinder.complete(forged)


def _written_address(host: str, cloud: Cloud) -> None:
    """A member writes an attachment, with a connector of his choice."""
    cinder = cloud.world.cinder
    _free_address(cloud)
    written = cinder.reserve(DANGLING, SERVER)
    cinder.connect(written, host)
    cinder.complete(written)


def _updated_address(cloud: Cloud) -> None:
    """A member updates the attachment of the mapping."""
    row = cloud.world.row_of(SERVER, DANGLING)
    cloud.world.add_disk(NEIGHBOUR, FREE)
    cloud.world.cinder.connect(row.attachment_id, THERE)
    cloud.world.cinder.complete(row.attachment_id)
    cloud.world.unchecked_volumes.add(DANGLING)


def _wrong_address(cloud: Cloud) -> None:
    world = cloud.world
    row = world.row_of(SERVER, DANGLING)
    other = world.add_disk(NEIGHBOUR, FREE)
    world.change_row(row, connection_info=connection(
        DANGLING, other.number, HERE))
    world.unchecked_volumes.add(DANGLING)


def _reserved_address(cloud: Cloud) -> None:
    _free_address(cloud)
    cloud.world.cinder.reserve(DANGLING, SERVER)


#: The server's volume whose address the neighbour has.
ADDRESSES: dict[str, Setup] = {
    'the volume is missing': _reused,
    'the volume is available': _free_address,
    'the volume is the root disk, and available': _root_address,
    'the volume is attached to a server on another host': _elsewhere_address,
    'the volume is in-use by no server': _address_in_use,
    'the volume is in maintenance': _busy_address,
    'the volume was transferred, and its owner wrote an attachment':
        _claimed_address,
    'the volume is reserved by an attachment that no mapping names':
        _reserved_address,
    'a member wrote an attachment to this host': functools.partial(
        _written_address, HERE),
    'a member wrote an attachment to another host': functools.partial(
        _written_address, THERE),
    'a member connected the attachment of the mapping to another host':
        _updated_address,
    'the mapping has the address of the neighbour, and the guest another one':
        _wrong_address}


def _deny(cloud: Cloud) -> None:
    cloud.world.cinder.reset_attached(FREE)
    cloud.world.unchecked_volumes.add(DANGLING)


def _stop_neighbour(cloud: Cloud) -> None:
    cloud.world.servers[NEIGHBOUR].vm_state = vm_states.STOPPED
    cloud.world.servers[NEIGHBOUR].power_state = power_state.SHUTDOWN
    cloud.world.hosts[HERE].guests[NEIGHBOUR].is_running = False


def _nothing(cloud: Cloud) -> None:
    pass


#: The neighbour's claim to the address.
CLAIMS: dict[str, Setup] = {
    'Cinder attaches the address to the neighbour': _nothing,
    "Cinder denies the neighbour's attachment": _deny,
    'the neighbour is off': _stop_neighbour}


def _use_up_hour(cloud: Cloud) -> None:
    cloud.world.hour_is_used_up = True


def _lock(cloud: Cloud) -> None:
    cloud.world.servers[SERVER].locked_by = 'admin'
    cloud.world.asked_by_admin = True


def _silence(cloud: Cloud) -> None:
    cloud.world.is_silent = True


def _boot_in_reverse(cloud: Cloud) -> None:
    cloud.world.boots_in_reverse = True


#: What else keeps the plugin from a removal.
CIRCUMSTANCES: dict[str, Setup] = {
    'the limits of the hour are not used up': _nothing,
    'the limits of the hour are used up': _use_up_hour,
    'an administrator has locked the server, and it is not evacuated': _lock,
    'Cinder does not answer': _silence}


def _choose(cloud: Cloud, setups: dict[str, Setup]) -> None:
    setups[cloud.world.scheduler.choose(list(setups))](cloud)


def _compose_address(name: str, cloud: Cloud) -> None:
    operation = SERVER_OPERATIONS[name]
    _set_up(cloud, operation.is_running, operation.host)
    operation.before(cloud)
    _choose(cloud, ADDRESSES)
    _choose(cloud, CLAIMS)
    _choose(cloud, CIRCUMSTANCES)
    if name == 'boot':
        _choose(cloud, {'the servers are resumed in order': _nothing,
                        'they are resumed in reverse': _boot_in_reverse})
    cloud.world.may_keep = True
    cloud.world.unchecked_properties = properties.OF_MOVES
    operation.begin(cloud, '')
    if name == 'boot':
        cloud.world.servers[SERVER].power_state = power_state.RUNNING


def _compose_circumstances(name: str, cloud: Cloud) -> None:
    operation = SERVER_OPERATIONS[name]
    _set_up(cloud, operation.is_running, operation.host)
    operation.before(cloud)
    _choose(cloud, {kind: KINDS[kind] for kind in (
        'missing', 'available', 'elsewhere', 'beside', 'reset')})
    _choose(cloud, {text: setup for text, setup in CIRCUMSTANCES.items()
                    if setup is not _silence})
    cloud.world.may_keep = cloud.world.withholds = (
        cloud.world.hour_is_used_up
        or cloud.world.asked_by_admin and not name.startswith('evacuate'))
    cloud.world.is_compared = cloud.world.may_fall_silent = True
    # What a limit or a lock keeps stays dangling.
    cloud.world.unchecked_volumes.add(DANGLING)
    operation.begin(cloud, '')


def _attached_now(cloud: Cloud) -> None:
    cloud.world.add_disk(SERVER, FREE, hours=0)
    cloud.world.attached[SERVER, FREE] = True


def _swapped_now(cloud: Cloud) -> None:
    cloud.world.swap_disk(SERVER, HEALTHY, FREE)
    cloud.world.attached[SERVER, FREE] = True


def _moved_now(cloud: Cloud) -> None:
    cloud.world.move_disk(SERVER, HEALTHY)
    cloud.world.move_disk(SERVER, DANGLING)


def _taken_now(cloud: Cloud) -> None:
    _available(cloud)
    cloud.world.add_disk(NEIGHBOUR, DANGLING, hours=0)
    # A shelve fails, and leaves its mapping.
    cloud.world.unchecked_volumes.add(DANGLING)


#: What was written to Cinder just now.
WRITES: dict[str, Setup] = {
    'a volume was just attached': _attached_now,
    'a volume was just swapped': _swapped_now,
    'the server was just moved': _moved_now,
    'a volume was just detached': _available,
    'a volume was just detached, and attached to the neighbour': _taken_now}


def _turn_back(cloud: Cloud) -> None:
    cloud.world.clock_errors[HERE] = datetime.timedelta(hours=-1)


def _advance(cloud: Cloud) -> None:
    cloud.world.clock_errors[HERE] = datetime.timedelta(hours=1)


CLOCKS: dict[str, Setup] = {
    'the clock of the host is right': _nothing,
    'the clock of the host is an hour back': _turn_back,
    'the clock of the host is an hour ahead': _advance}

#: The reads of Cinder that lag.
LAGS = ('volume', 'attachment', 'list', ALL)


def _compose_lag(name: str, cloud: Cloud) -> None:
    world, operation = cloud.world, SERVER_OPERATIONS[name]
    _set_up(cloud, operation.is_running, operation.host)
    operation.before(cloud)
    world.cinder.past = []
    _choose(cloud, WRITES)
    if name == 'reboot':
        _choose(cloud, CLOCKS)
    world.lagging = world.scheduler.choose(LAGS)
    world.scheduler.killable_process = ''
    world.unchecked_properties = properties.OF_MOVES
    operation.begin(cloud, '')
    if name == 'boot':
        world.servers[SERVER].power_state = power_state.RUNNING


#: The kinds of each way without a concurrent operation.
_REBOOT_KINDS = (
    'missing', 'available', 'elsewhere', 'beside', 'reset', 'stale')
_MOVE_KINDS = (
    'missing', 'available', 'elsewhere', 'beside', 'reset', 'foreign')
_KINDS_BY_OPERATION: dict[str, Sequence[str]] = {
    'reboot': (*_REBOOT_KINDS, 'reused'), 'error': _REBOOT_KINDS,
    'start': (*_REBOOT_KINDS, 'reused'), 'boot': _REBOOT_KINDS,
    'soft': ('available',), 'hanging': ('available',),
    'migrate': (*_MOVE_KINDS, 'root'), 'migrate-and-revert': ('available',),
    'revert': _MOVE_KINDS, 'shelve': (*_MOVE_KINDS, 'root'),
    'unshelve': _MOVE_KINDS,
    'evacuate': _MOVE_KINDS, 'evacuate-isolated': _MOVE_KINDS,
    'live': _MOVE_KINDS, 'remove': _MOVE_KINDS}

#: Ways, a kind, and the concurrent operations.
_COMBINATIONS: Sequence[tuple[Sequence[str], str, Sequence[str]]] = (
    (('hanging',), 'missing', ('neighbour-attaches',)),
    (('hanging',), 'available', ('delete',)),
    (('reboot',), 'missing', (
        'attach', 'swap', 'neighbour-attaches', 'neighbour-swaps',
        'neighbour-leaves', 'remote-arrives', 'foreign-writes',
        'member-updates')),
    (('reboot',), 'available', (
        'attach-again', 'detach', 'delete', 'delete-and-reuse',
        'neighbour-takes', 'remote-takes', 'gives-away', 'reboots-again',
        'locks', 'clock-steps', 'resets-task', 'member-writes')),
    (('reboot', 'start'), 'reused', ('resets-neighbour',)),
    (('reboot',), 'reused', ('neighbour-reboots',)),
    (('reboot',), 'reset', ('detach-dangling', 'resets-status',
                            'force-detaches')),
    (('reboot',), 'stale', ('attach', 'neighbour-attaches')),
    (('reboot',), 'root', ('neighbour-attaches',)),
    (('error',), 'available', ('reboots-again', 'resets-task')),
    (('start',), 'available', ('attach-again', 'remote-takes', 'delete')),
    (('start', 'boot'), 'missing', ('neighbour-attaches',)),
    (('boot',), 'available', ('remote-takes', 'delete')),
    (('migrate', 'revert', 'shelve'), 'available', (
        'attach', 'detach', 'delete', 'starts', 'neighbour-takes',
        'is-deleted')),
    (('migrate', 'revert', 'shelve'), 'missing', ('neighbour-attaches',)),
    (('migrate',), 'missing', ('neighbour-migrates',)),
    (('migrate', 'shelve'), 'missing', ('remote-migrates',)),
    (('unshelve',), 'available', ('neighbour-takes', 'attach')),
    (('unshelve', 'evacuate'), 'missing', (
        'neighbour-attaches', 'remote-migrates')),
    (('evacuate', 'remove'), 'available', ('neighbour-takes',)),
    (('evacuate', 'evacuate-isolated'), 'available', ('old-host-returns',)),
    (('unshelve',), 'available', ('is-deleted',)),
    (('live',), 'available', ('neighbour-attaches',)),
    (('remove',), 'missing', ('neighbour-attaches',)),
)

#: Scenarios that run with Nova 26, too.
_WITH_NOVA_26 = frozenset((
    *(f'reboot-{kind}' for kind in _REBOOT_KINDS), 'hanging-available',
    'migrate-available', 'evacuate-available', 'unshelve-available'))

#: Two reboots, three other actors, or many records that the rule of addresses
#: reads: failures would make too many schedules.
_WITHOUT_FAILURES: Sequence[str] = (
    'delete-and-reuse', 'neighbour-reboots', 'resets-neighbour',
    'neighbour-takes', 'neighbour-swaps', 'neighbour-leaves',
    'neighbour-migrates', 'remote-takes', 'remote-migrates', 'reboots-again',
    'member-updates')

#: A neighbour attaches a disk: kills and failed calls are searched only here,
#: where each of the plugin's questions is asked.
_FAILURES_WITH_NEIGHBOUR: Sequence[str] = (
    'reboot-missing-neighbour-attaches', 'reboot-stale-neighbour-attaches',
    'start-missing-neighbour-attaches')


def _add(operation: str, kind: str, other: str = '') -> None:
    setup = _CONCURRENT[other] if other else None
    name = '-'.join(filter(None, (operation, kind, other)))
    description = ' '.join(filter(None, (
        f'{operation}:', KINDS[kind].__doc__, setup and setup.__doc__)))
    has_few_failures = other in _WITHOUT_FAILURES or (
        other == 'neighbour-attaches'
        and name not in _FAILURES_WITH_NEIGHBOUR) or (
        setup is not None and SERVER_OPERATIONS[operation].has_few_failures)
    for release in (34, 26) if name in _WITH_NOVA_26 else (34,):
        full = name if release == 34 else f'{name}-nova{release}'
        SCENARIOS[full] = Scenario(
            full, description,
            functools.partial(_compose, operation, kind, setup),
            SERVER_OPERATIONS[operation].triggers, release,
            preemptions=1 if setup else 2,
            failures=0 if has_few_failures else 1)


# The longest scenarios come first.
for _operations, _kind, _names in _COMBINATIONS:
    for _operation, _name in itertools.product(_operations, _names):
        _add(_operation, _kind, _name)
for _operation, _kinds in _KINDS_BY_OPERATION.items():
    for _kind in _kinds:
        _add(_operation, _kind)


def _add_chosen(name: str, description: str, operation: str,
                compose: Callable[[str, Cloud], None], failures: int) -> None:
    SCENARIOS[name] = Scenario(
        name, f'{operation}: {description}',
        functools.partial(compose, operation),
        SERVER_OPERATIONS[operation].triggers, 34,
        preemptions=0, failures=failures)


for _operation in SERVER_OPERATIONS:
    if _operation != 'evacuate-isolated':
        _add_chosen(f'address-{_operation}', 'A neighbour has the address.',
                    _operation, _compose_address, 0)
for _operation in ('migrate', 'migrate-and-revert', 'revert', 'shelve',
                   'unshelve', 'evacuate', 'evacuate-isolated', 'live',
                   'remove'):
    _add_chosen(f'circumstances-{_operation}',
                'Something keeps the plugin from a removal.', _operation,
                _compose_circumstances, 0)
for _operation in ('reboot', 'start', 'migrate', 'shelve', 'evacuate', 'live',
                   'remove'):
    _add_chosen(f'lag-{_operation}', 'Reads of Cinder lag.', _operation,
                _compose_lag, 1)
