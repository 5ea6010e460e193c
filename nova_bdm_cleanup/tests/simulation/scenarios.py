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
    triggers: Sequence[str] = ('hard_reboot',)
    release: int = 34
    #: How often somebody comes between, by default.
    preemptions: int = 1
    #: How many kills and faults there are with one of them.
    mischiefs: int = 1
    #: How many work beside each other: the more, the longer it takes.
    weight: int = 1


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
    assert row is not None and row.attachment_id is not None
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
    assert row is not None
    image.boot_index, row.boot_index = None, 0
    _available(cloud)
    cloud.world.disturbed.add(DANGLING)


def _stale(cloud: Cloud) -> None:
    """Nova's row is gone, and Cinder's attachment is not."""
    row = cloud.world.row_of(SERVER, DANGLING)
    assert row is not None
    cloud.world.delete_row(row)


KINDS: dict[str, Setup] = {
    'missing': _missing, 'available': _available, 'elsewhere': _elsewhere,
    'beside': _beside, 'reset': _reset, 'stale': _stale,
    'foreign': _foreign, 'root': _root}
#: Those that every way meets.
_COMMON = ('missing', 'available', 'elsewhere', 'beside', 'reset', 'stale')
#: Those that every move meets.
_MOVED = ('missing', 'available', 'elsewhere', 'beside', 'reset', 'foreign')

#: Those in which moves, and live ones, may be refused.
_REFUSED = (('beside', 'root'), ('beside', 'elsewhere', 'foreign'))

#: What the sweep has seen of each before, and told.
_REASONS = {'missing': 'volume-missing', 'available': 'volume-available',
            'elsewhere': 'attached-elsewhere', 'beside': 'attached-elsewhere',
            'reset': 'volume-available'}


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


def _sweep(cloud: Cloud, kind: str) -> None:
    row = cloud.world.row_of(SERVER, DANGLING)
    assert row is not None
    cloud.begin('the audit', cloud.sweep, SERVER,
                [(row.uuid, _REASONS[kind])], process=COMPUTE)


def _early_sweep(cloud: Cloud, kind: str) -> None:
    # The round before has seen another one.
    cloud.begin('the audit', cloud.sweep, SERVER,
                [('another', _REASONS[kind])], process=COMPUTE)


def _evacuate(cloud: Cloud, kind: str) -> None:
    cloud.lose_other_host()
    cloud.begin('admin', cloud.evacuate, SERVER)


#: The triggers that a move can meet.
_ALL = ('hard_reboot', 'start', 'move', 'shelve', 'unshelve', 'evacuate',
        'live_migration', 'delete')

#: How each begins, whether the server runs before, and the plugin's triggers.
WAYS: dict[str, tuple[Callable[[Cloud, str], None], bool, Sequence[str]]] = {
    'reboot': (_hard, True, ('hard_reboot',)),
    'soft': (_soft, True, ('hard_reboot',)),
    'hanging': (_hanging, True, ('hard_reboot',)),
    'error': (_in_error, True, ('hard_reboot',)),
    'start': (_act('', 'owner', Cloud.start, SERVER), False,
              ('hard_reboot', 'start')),
    'boot': (_boot, True, ('hard_reboot', 'start', 'host_boot')),
    'sweep': (_sweep, False, ('hard_reboot', 'sweep')),
    'early-sweep': (_early_sweep, False, ('hard_reboot', 'sweep')),
    'evacuate': (_evacuate, True, _ALL),
    **{name: (_act('', who, what, SERVER), True, _ALL)
       for name, who, what in (
           ('migrate', 'owner', Cloud.migrate),
           ('there-and-back', 'owner', Cloud.there_and_back),
           ('revert', 'owner', Cloud.revert),
           ('shelve', 'owner', Cloud.shelve),
           ('unshelve', 'owner', Cloud.unshelve),
           ('live', 'admin', Cloud.live_migrate),
           ('remove', 'owner', Cloud.delete))}}

#: What was before.
_BEFORE: dict[str, Callable[[Cloud], None]] = {
    'revert': lambda cloud: cloud.have_moved(SERVER, THERE),
    'unshelve': lambda cloud: cloud.have_shelved(SERVER)}
#: Those of a server that was on the other host.
_FROM_THERE = ('evacuate',)


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
    assert row is not None and row.attachment_id is not None
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
    'neighbour-leaves': _act('The neighbour moves to the other host.', 'admin',
                             Cloud.move_out, NEIGHBOUR, process='conductor'),
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


def _compose(way: str, kind: str, other: Setup | None, cloud: Cloud) -> None:
    begin, is_running, _ = WAYS[way]
    _scene(cloud, is_running, THERE if way in _FROM_THERE else HERE)
    _BEFORE.get(way, lambda cloud: None)(cloud)
    KINDS[kind](cloud)
    begin(cloud, kind)
    cloud.world.may_refuse = (other is not None
                              or kind in _REFUSED[way == 'live'])
    if other is not None:
        other(cloud)
    if way == 'boot':
        cloud.world.servers[SERVER].power_state = power_state.RUNNING


#: The ways, the kinds and the others that meet; 26: with that Nova, too.
_MEETINGS: Sequence[tuple[str, str, str | None, bool]] = (
    *((way, kind, None, True) for way in ('reboot',)
      for kind in _COMMON),
    *((way, kind, None, False) for way in ('error', 'start', 'boot')
      for kind in _COMMON),
    *(('sweep', kind, None, False) for kind in _COMMON if kind != 'stale'),
    ('early-sweep', 'available', None, False),
    ('soft', 'available', None, False),
    ('hanging', 'available', None, True),
    ('hanging', 'missing', 'neighbour-attaches', False),
    ('hanging', 'available', 'delete', False),
    ('reboot', 'missing', 'attach', False),
    ('reboot', 'available', 'attach-again', True),
    ('reboot', 'available', 'detach', False),
    ('reboot', 'reset', 'detach-dangling', False),
    ('reboot', 'missing', 'swap', False),
    ('reboot', 'available', 'delete', False),
    ('reboot', 'available', 'delete-and-reuse', False),
    ('reboot', 'missing', 'neighbour-attaches', False),
    ('reboot', 'available', 'neighbour-takes', False),
    ('reboot', 'available', 'stranger-takes', False),
    ('reboot', 'missing', 'neighbour-swaps', False),
    ('reboot', 'missing', 'neighbour-leaves', False),
    ('reboot', 'missing', 'somebody-comes', False),
    ('reboot', 'available', 'gives-away', False),
    ('reboot', 'reset', 'mends', False),
    ('reboot', 'reset', 'forces', False),
    ('reboot', 'available', 'reboots-again', False),
    ('reboot', 'available', 'locks', False),
    ('reboot', 'available', 'resets-task', False),
    ('reboot', 'available', 'tenant-writes', False),
    ('reboot', 'missing', 'foreign-writes', False),
    ('reboot', 'stale', 'attach', False),
    ('reboot', 'stale', 'neighbour-attaches', False),
    ('error', 'available', 'reboots-again', False),
    ('error', 'available', 'resets-task', False),
    ('start', 'available', 'attach-again', False),
    ('start', 'missing', 'neighbour-attaches', False),
    ('start', 'available', 'stranger-takes', False),
    ('start', 'available', 'delete', False),
    ('boot', 'missing', 'neighbour-attaches', False),
    ('boot', 'available', 'stranger-takes', False),
    ('boot', 'available', 'delete', False),
    ('sweep', 'available', 'starts', False),
    ('sweep', 'missing', 'starts', False),
    ('sweep', 'available', 'attach-again', False),
    ('sweep', 'missing', 'neighbour-attaches', False),
    ('sweep', 'available', 'stranger-takes', False),
    ('sweep', 'available', 'delete', False),
    ('sweep', 'available', 'reboots-again', False),
    ('sweep', 'missing', 'somebody-comes', False),
    *((way, kind, None, False) for way in (
        'migrate', 'revert', 'shelve', 'unshelve', 'evacuate', 'live',
        'remove') for kind in _MOVED if (way, kind) not in (
            ('migrate', 'available'), ('evacuate', 'available'),
            ('unshelve', 'available'))),
    *((way, 'root', None, False) for way in ('migrate', 'shelve')),
    *((way, 'available', None, True) for way in (
        'migrate', 'evacuate', 'unshelve')),
    ('there-and-back', 'available', None, False),
    *((way, kind, other, False) for way in ('migrate', 'revert', 'shelve')
      for kind, other in (
          ('available', 'attach'), ('available', 'detach'),
          ('available', 'delete'), ('available', 'starts'),
          ('missing', 'neighbour-attaches'),
          ('missing', 'neighbour-migrates'),
          ('missing', 'stranger-migrates'),
          ('available', 'neighbour-takes'), ('available', 'is-deleted'))),
    *((way, kind, other, False) for way in ('unshelve', 'evacuate')
      for kind, other in (
          ('available', 'neighbour-takes'), ('missing', 'neighbour-attaches'),
          ('missing', 'stranger-migrates'))),
    ('unshelve', 'available', 'attach', False),
    ('live', 'available', 'stranger-takes', False),
    ('live', 'available', 'gives-away', False),
    ('remove', 'missing', 'neighbour-attaches', False),
    ('remove', 'available', 'neighbour-takes', False),
)

#: With three others, kills and faults make too many schedules.
_LONG: Sequence[str] = ('delete-and-reuse',)
#: Where others take part in these, there are no kills and faults by default:
#: these ways meet them alone, and the others meet others.
_CALM: Sequence[str] = ('boot', 'error', 'migrate', 'there-and-back', 'revert',
                        'shelve', 'unshelve', 'evacuate', 'live', 'remove')


def _fill() -> None:
    for way, kind, other, has_old in _MEETINGS:
        setup = _OTHERS[other] if other else None
        name = '-'.join(filter(None, (way, kind, other)))
        words = ' '.join(filter(None, (
            f'{way}:', KINDS[kind].__doc__, setup and setup.__doc__)))
        for release in (34, 26) if has_old else (34,):
            full = name if release == 34 else f'{name}-nova{release}'
            SCENARIOS[full] = Scenario(
                full, words, functools.partial(_compose, way, kind, setup),
                tuple(WAYS[way][2]), release,
                preemptions=1 if setup else 2,
                mischiefs=0 if other in _LONG or (
                    setup and way in _CALM) else 1,
                weight=1 + (setup is not None) + (other in _LONG))


_fill()
