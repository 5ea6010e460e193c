# SPDX-License-Identifier: Apache-2.0
"""Who meets whom.

Each scenario sets up the same small cloud: a server with two healthy disks, of
which one is to stay, and with one that dangles; and a neighbour with a disk of
its own.  Then something brings the server back, while others do something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import functools
import itertools

from nova.compute import power_state, vm_states

from nova_bdm_cleanup.tests.simulation.actors import API, CINDER
from nova_bdm_cleanup.tests.simulation.movers import Cloud
from nova_bdm_cleanup.tests.simulation.world import COMPUTE, HERE, OWNER, THERE

#: The server that comes back, one beside it, and one on another host.
SERVER, NEIGHBOUR, STRANGER = 'server', 'neighbour', 'stranger'
#: One that is made meanwhile.
NEWCOMER = 'newcomer'
#: Its healthy disk, the one that dangles, and the neighbour's.
HEALTHY, DANGLING, THEIRS = 'H', 'X', 'N'
#: A volume that nobody has, and another project.
FREE, OTHERS = 'F', 'other-project'

Setup = Callable[[Cloud], None]


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A scene, and those who play in it."""

    name: str
    words: str
    setup: Setup
    #: The words of ``[bdm_cleanup] triggers``.
    triggers: Sequence[str] = ()
    release: int = 34
    #: How often somebody comes between, by default.
    preemptions: int = 1
    #: How many kills and faults there are with one of them.
    mischiefs: int = 1


SCENARIOS: dict[str, Scenario] = {}


# The scene


def _scene(cloud: Cloud, is_running: bool = True, host: str = HERE) -> None:
    world = cloud.world
    state = vm_states.ACTIVE if is_running else vm_states.STOPPED
    world.add_server(SERVER, vm_state=state, host=host)
    world.add_server(NEIGHBOUR)
    world.add_server(STRANGER, host=THERE)
    world.add_disk(SERVER, HEALTHY)
    world.add_disk(SERVER, DANGLING)
    world.add_disk(NEIGHBOUR, THEIRS)
    world.cinder.create_volume(FREE, OWNER)


def _missing(cloud: Cloud) -> None:
    """The volume was deleted behind Nova's back."""
    cloud.world.cinder.delete_volume(DANGLING)


def _available(cloud: Cloud) -> None:
    """It was detached behind Nova's back."""
    row = cloud.world.row_of(SERVER, DANGLING)
    cloud.world.cinder.delete(row.attachment_id)


def _elsewhere(cloud: Cloud) -> None:
    """And it was given to a server on another host."""
    _available(cloud)
    cloud.world.add_disk(STRANGER, DANGLING)


def _beside(cloud: Cloud) -> None:
    """And it was given to the neighbour."""
    _available(cloud)
    cloud.world.add_disk(NEIGHBOUR, DANGLING)


def _reset(cloud: Cloud) -> None:
    """Somebody set its state to available, and left its attachment."""
    cloud.world.cinder.reset_status(DANGLING, 'available')


def _foreign(cloud: Cloud) -> None:
    """It was detached behind Nova's back, and given to another project."""
    _available(cloud)
    cloud.world.cinder.transfer(DANGLING, OTHERS)


def _root(cloud: Cloud) -> None:
    """The root disk was detached; somebody has to attach it again."""
    image = cloud.world.rows_of(SERVER)[0]
    row = cloud.world.row_of(SERVER, DANGLING)
    image.boot_index, row.boot_index = None, 0
    _available(cloud)
    cloud.world.disturbed.add(DANGLING)


def _stale(cloud: Cloud) -> None:
    """Nova's row is gone, and Cinder's attachment is not."""
    cloud.world.delete_row(cloud.world.row_of(SERVER, DANGLING))


KINDS: dict[str, Setup] = {
    'missing': _missing, 'available': _available, 'elsewhere': _elsewhere,
    'beside': _beside, 'reset': _reset, 'stale': _stale,
    'foreign': _foreign, 'root': _root}
#: Those in which moves, and live ones, may be refused.
_REFUSED = (('beside', 'root'), ('beside', 'elsewhere', 'foreign'))

# What brings the server back


def _act(words: str, who: str, what: Callable[..., object], *arguments: str,
         process: str = API) -> Callable[..., None]:
    """Somebody who does one thing.

    :param words: what that is
    :param what: a method of the cloud
    """
    def begin(cloud: Cloud, kind: str = '') -> None:
        cloud.begin(who, what, cloud, *arguments, process=process)

    begin.__doc__ = words
    return begin


_hard = _act('', 'owner', Cloud.reboot, SERVER)
_soft = _act('', 'owner', Cloud.reboot, SERVER, 'SOFT')


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


@dataclasses.dataclass(frozen=True)
class Way:
    """What brings the server back, or takes it away."""

    begin: Callable[..., None]
    #: The words of ``[bdm_cleanup] triggers``; by default those that a move
    #: can meet.
    triggers: Sequence[str] = ('start', 'move', 'delete')
    #: Where the server is, and whether it runs there.
    host: str = HERE
    is_running: bool = True
    #: What was before.
    before: Callable[[Cloud], None] = lambda cloud: None
    #: Where others take part, there are no kills and faults by default: it
    #: meets them alone, and other ways meet others.
    is_calm: bool = True


WAYS: dict[str, Way] = {
    'reboot': Way(_hard, (), is_calm=False),
    'soft': Way(_soft, (), is_calm=False),
    'hanging': Way(_hanging, (), is_calm=False),
    'error': Way(_in_error, ()),
    'start': Way(_act('', 'owner', Cloud.start, SERVER),
                 ('start',), is_running=False, is_calm=False),
    'boot': Way(_boot, ('start', 'host_boot')),
    'evacuate': Way(_evacuate, host=THERE),
    'migrate': Way(_act('', 'owner', Cloud.migrate, SERVER)),
    'there-and-back': Way(_act('', 'owner', Cloud.there_and_back, SERVER)),
    'revert': Way(_act('', 'owner', Cloud.revert, SERVER),
                  before=lambda cloud: cloud.have_moved(SERVER, THERE)),
    'shelve': Way(_act('', 'owner', Cloud.shelve, SERVER)),
    'unshelve': Way(_act('', 'owner', Cloud.unshelve, SERVER),
                    before=lambda cloud: cloud.have_shelved(SERVER)),
    'live': Way(_act('', 'admin', Cloud.live_migrate, SERVER)),
    'remove': Way(_act('', 'owner', Cloud.delete, SERVER))}


# Who comes between


def _delete_and_reuse(cloud: Cloud) -> None:
    """It is deleted, and the neighbour gets a volume at its number."""
    _OTHERS['delete'](cloud)
    _OTHERS['neighbour-attaches'](cloud)


def _somebody_comes(cloud: Cloud) -> None:
    """A server moves here from the other host, with a disk."""
    cloud.world.add_disk(STRANGER, FREE)
    cloud.begin('admin', cloud.move_in, STRANGER, process='conductor')


def _stranger_migrates(cloud: Cloud) -> None:
    """A server is migrated here from the other host, with a disk."""
    cloud.world.add_disk(STRANGER, FREE)
    cloud.begin('stranger', cloud.migrate, STRANGER)


def _forces(cloud: Cloud) -> None:
    """An administrator forces what is left of it off the host."""
    row = cloud.world.row_of(SERVER, DANGLING)
    cloud.begin('admin', cloud.force_detach, DANGLING, row.attachment_id)


def _foreign_writes(cloud: Cloud) -> None:
    """Another project writes one of its own volume, with our host in it."""
    cloud.world.cinder.create_volume('O', OTHERS)
    cloud.begin('tenant', cloud.write_attachment, 'O', SERVER, 'here')


_OTHERS: dict[str, Setup] = {
    'attach': _act('Another volume is attached to the server.',
                   'somebody', Cloud.attach, SERVER, FREE),
    'attach-again': _act(
        'The volume that dangles is attached to the server again.',
        'somebody', Cloud.attach, SERVER, DANGLING),
    'detach': _act('The healthy disk is detached.',
                   'somebody', Cloud.detach, SERVER, HEALTHY),
    'detach-dangling': _act('The disk that dangles is detached.',
                            'somebody', Cloud.detach, SERVER, DANGLING),
    'swap': _act('The healthy disk is swapped for another one.',
                 'Cinder', Cloud.swap, SERVER, HEALTHY, FREE),
    'delete': _act('The volume that dangles is deleted.', 'somebody',
                   Cloud.delete_volume, DANGLING, process=CINDER),
    'delete-and-reuse': _delete_and_reuse,
    'neighbour-attaches': _act(
        'The neighbour gets another volume, at the lowest free number.',
        'neighbour', Cloud.attach, NEIGHBOUR, FREE),
    'neighbour-takes': _act(
        'A server is made beside it, with the volume that dangles.',
        'somebody', Cloud.make_server, NEWCOMER, DANGLING, HERE),
    'stranger-takes': _act(
        'A server is made on another host, with the volume that dangles.',
        'somebody', Cloud.make_server, NEWCOMER, DANGLING, THERE),
    'neighbour-swaps': _act(
        'The neighbour swaps its volume, for one at the lowest free number.',
        'Cinder', Cloud.swap, NEIGHBOUR, THEIRS, FREE),
    'neighbour-leaves': _act(
        'The neighbour moves to the other host.',
        'admin', Cloud.move_out, NEIGHBOUR, process='conductor'),
    'somebody-comes': _somebody_comes,
    'gives-away': _act(
        'The volume that dangles is given to another project.',
        'somebody', Cloud.give_away, DANGLING, OTHERS),
    'mends': _act('An administrator puts its state right.',
                  'admin', Cloud.reset_to_in_use, DANGLING),
    'forces': _forces,
    'reboots-again': _act('The owner asks for another reboot.',
                          'owner again', Cloud.reboot, SERVER),
    'starts': _act('The owner starts the server.',
                   'owner', Cloud.start, SERVER),
    'locks': _act('An administrator locks the server, and unlocks it.',
                  'admin', Cloud.lock_and_unlock, SERVER),
    'resets-task': _act('An administrator resets the state of the server.',
                        'admin', Cloud.reset_task_state, SERVER),
    'tenant-writes': _act(
        'A tenant writes an attachment of the volume for the server.',
        'tenant', Cloud.write_attachment, DANGLING, SERVER),
    'foreign-writes': _foreign_writes,
    'neighbour-migrates': _act(
        'The neighbour is migrated, too, and confirmed in the end.',
        'neighbour', Cloud.migrate, NEIGHBOUR),
    'stranger-migrates': _stranger_migrates,
    'is-deleted': _act('The owner deletes the server.',
                       'owner again', Cloud.delete, SERVER)}


def _compose(name: str, kind: str, other: Setup | None, cloud: Cloud) -> None:
    way = WAYS[name]
    _scene(cloud, way.is_running, way.host)
    way.before(cloud)
    KINDS[kind](cloud)
    way.begin(cloud, kind)
    cloud.world.may_refuse = (other is not None
                              or kind in _REFUSED[name == 'live'])
    if other is not None:
        other(cloud)
    if name == 'boot':
        cloud.world.servers[SERVER].power_state = power_state.RUNNING


#: What each way meets alone.
_COMMON = ('missing', 'available', 'elsewhere', 'beside', 'reset', 'stale')
_MOVED = ('missing', 'available', 'elsewhere', 'beside', 'reset', 'foreign')
_ALONE: dict[str, Sequence[str]] = {
    'reboot': _COMMON, 'error': _COMMON, 'start': _COMMON, 'boot': _COMMON,
    'soft': ('available',), 'hanging': ('available',),
    'migrate': (*_MOVED, 'root'), 'there-and-back': ('available',),
    'revert': _MOVED, 'shelve': (*_MOVED, 'root'), 'unshelve': _MOVED,
    'evacuate': _MOVED, 'live': _MOVED, 'remove': _MOVED}

#: And with others: the ways, the kind, and who comes between.
_MEETINGS: Sequence[tuple[Sequence[str], str, Sequence[str]]] = (
    (('hanging',), 'missing', ('neighbour-attaches',)),
    (('hanging',), 'available', ('delete',)),
    (('reboot',), 'missing', (
        'attach', 'swap', 'neighbour-attaches', 'neighbour-swaps',
        'neighbour-leaves', 'somebody-comes', 'foreign-writes')),
    (('reboot',), 'available', (
        'attach-again', 'detach', 'delete', 'delete-and-reuse',
        'neighbour-takes', 'stranger-takes', 'gives-away', 'reboots-again',
        'locks', 'resets-task', 'tenant-writes')),
    (('reboot',), 'reset', ('detach-dangling', 'mends', 'forces')),
    (('reboot',), 'stale', ('attach', 'neighbour-attaches')),
    (('error',), 'available', ('reboots-again', 'resets-task')),
    (('start',), 'available', ('attach-again', 'stranger-takes', 'delete')),
    (('start', 'boot'), 'missing', ('neighbour-attaches',)),
    (('boot',), 'available', ('stranger-takes', 'delete')),
    (('migrate', 'revert', 'shelve'), 'available', (
        'attach', 'detach', 'delete', 'starts', 'neighbour-takes',
        'is-deleted')),
    (('migrate', 'revert', 'shelve'), 'missing', (
        'neighbour-attaches', 'neighbour-migrates', 'stranger-migrates')),
    (('unshelve',), 'available', ('neighbour-takes', 'attach')),
    (('unshelve', 'evacuate'), 'missing', (
        'neighbour-attaches', 'stranger-migrates')),
    (('evacuate', 'remove'), 'available', ('neighbour-takes',)),
    (('live',), 'available', ('stranger-takes', 'gives-away')),
    (('remove',), 'missing', ('neighbour-attaches',)),
)

#: What Nova 26 meets, too.
_OLD = frozenset((
    *(f'reboot-{kind}' for kind in _COMMON), 'hanging-available',
    'reboot-available-attach-again', 'migrate-available',
    'evacuate-available', 'unshelve-available'))

#: With three others, kills and faults make too many schedules.
_LONG: Sequence[str] = ('delete-and-reuse',)


def _add(way: str, kind: str, other: str = '') -> None:
    setup = _OTHERS[other] if other else None
    name = '-'.join(filter(None, (way, kind, other)))
    words = ' '.join(filter(None, (
        f'{way}:', KINDS[kind].__doc__, setup and setup.__doc__)))
    is_calm = other in _LONG or setup is not None and WAYS[way].is_calm
    for release in (34, 26) if name in _OLD else (34,):
        full = name if release == 34 else f'{name}-nova{release}'
        SCENARIOS[full] = Scenario(
            full, words, functools.partial(_compose, way, kind, setup),
            WAYS[way].triggers, release, preemptions=1 if setup else 2,
            mischiefs=0 if is_calm else 1)


# Those that take longest come first.
for _ways, _kind, _names in _MEETINGS:
    for _way, _name in itertools.product(_ways, _names):
        _add(_way, _kind, _name)
for _way, _kinds in _ALONE.items():
    for _kind in _kinds:
        _add(_way, _kind)
