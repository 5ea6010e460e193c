# SPDX-License-Identifier: Apache-2.0
"""Look, plan, act, look again: whole cleanups of a world in memory.

The search (``tests/simulation``) plays every crash, fault and concurrent
change.  These tests check what it does not see: the number of requests, the
log lines, counters and records, and the order of the steps.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import json
import os
from unittest import mock

import hypothesis
from hypothesis import strategies as st
import testscenarios

from nova_bdm_cleanup.node.cleanup import cleaner, log_lines, triggers
from nova_bdm_cleanup.node.cleanup.ports import RebootLost
from nova_bdm_cleanup.node.store.journal import ATTACHMENTS, Journal, MAPPINGS
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.deadline import Deadline, TimedOut
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.action_events import Kind
from nova_bdm_cleanup.rules.facts import Policy
from nova_bdm_cleanup.tests.unit import base, make, worlds
from nova_bdm_cleanup.tests.unit.node.cleanup import fakes

load_tests = testscenarios.load_tests_apply_scenarios

RESERVED = {'status': 'reserved', 'connected': False}


def disk(number, **values):
    """Return the mapping of the volume with that number."""
    return make.bdm(**{
        'uuid': 'bdm-%d' % number, 'volume_id': 'volume-%d' % number,
        'attachment_id': 'attachment-%d' % number, **values})


def record(number, **values):
    """Return the attachment of the volume with that number."""
    return make.attachment(**{
        'id': 'attachment-%d' % number, 'volume_id': 'volume-%d' % number,
        **values})


def volume(number, **values):
    return make.volume(id='volume-%d' % number, **values)


def free(number):
    return volume(number, status='available')


def world_of(mappings=(), volumes=(), attachments=(), neighbours=(),
             hosts=None, **others):
    """Return a world of a server with its root disk and these records."""
    world = fakes.World([make.root(), *mappings], volumes, attachments,
                        neighbours, hosts)
    for name, value in others.items():
        getattr(world, name)  # A misspelt name would change nothing.
        setattr(world, name, value)
    return world


#: The dangling mappings in the world below.
DANGLING = frozenset(('bdm-2', 'bdm-3', 'bdm-4', 'bdm-5', 'bdm-6', 'bdm-9'))


def broken(**others):
    """Return a world of one server with everything that can be cleaned up."""
    return world_of(
        [disk(1), disk(2), disk(3), disk(4), disk(5),
         disk(6, attachment_id=None), disk(9)],
        [volume(1), free(3), free(4), volume(5), free(6), volume(7),
         volume(8, status='reserved'), free(9)],
        [record(1),                                     # healthy
         # 2: the volume does not exist
         # 3: available
         record(4),                                     # left over
         record(5, id='attachment-55',                  # attached elsewhere
                server_id=make.OTHER_SERVER),
         record(6),                                     # left over
         record(7),                                     # stale
         record(8, **RESERVED),
         # 9: available, and shared on this host
         ],
        neighbours=['volume-9'], **others)


def stopped(**others):
    return broken(running=False, **others)


def reset(**others):
    """Return a world of one disk whose volume was reset to available."""
    return world_of([disk(4)], [free(4)], [record(4)], **others)


def missing(*numbers, **others):
    """Return a world of disks whose volumes do not exist."""
    return world_of(map(disk, numbers), **others)


def stale(*numbers, **others):
    return world_of([], map(volume, numbers), map(record, numbers), **others)


class CleanerTestCase(base.TestCase):

    TRIGGER = triggers.HARD_REBOOT

    def setUp(self):
        super().setUp()
        self.useFixture(base.NoSyncing())
        self.time = 0.0
        #: The seconds that a cleanup may wait.
        self.patience = 3600.0
        #: The seconds of each wait for records to settle.
        self.waited = []
        #: The store of the last cleanup, and the start of its part of the log.
        self.path = ''
        self.begin = 0

    def cleaner_of(self, world, trigger=None, store=None, service_token=True,
                   project=make.PROJECT, **options):
        self.path = store or os.path.join(self.tempdir(), 'journal', 'store')
        self.begin = len(self.log.output)
        policy = Policy(**options)
        trigger = trigger or self.TRIGGER
        return cleaner.Cleaner(
            fakes.Host(world), fakes.Cinder(world, service_token),
            world.journal(self.path),
            log_lines.LogLines(None, 'req-1', trigger), policy, trigger,
            Deadline(policy.timeout, lambda: self.time), self.patience,
            make.server(project=project), lambda: make.ago(-self.time),
            lambda seconds: self.wait(world, seconds))

    def wait(self, world, seconds):
        with world.call('wait'):
            self.waited.append(seconds)
            self.time += seconds

    def clean(self, world, trigger=None, **arguments):
        """Run the cleanup of one reboot, or of another trigger.

        :returns: the mappings that Nova starts the guest without
        """
        self.cleaning = self.cleaner_of(world, trigger, **arguments)
        try:
            return self.cleaning.clean(tuple(world.rows.values())).taken_out
        finally:
            self.assertEqual([], world.violations)

    def entries(self):
        return list(Journal(self.path).entries())

    @property
    def told(self):
        return self.log.output[self.begin:]

    def withheld(self, why):
        """Return the number of findings withheld for a reason."""
        return self.told.count('(%s)' % why)

    def lines(self, **fields):
        """Return the log lines that have these fields."""
        wanted = {'%s=%s' % item for item in fields.items()}
        return [line for line in self.told.splitlines()
                if wanted <= set(line.replace(': ', ' ').split())]

    def unusable(self):
        """Return the path of a store that can be neither read nor written."""
        path = os.path.join(self.tempdir(), 'store')
        os.mkdir(path)
        return path

    def assert_untouched(self, world):
        self.assertEqual([], world.changes)
        self.assertFalse(os.path.exists(self.path))


def deeds(world):
    """Return the changes after the guest was powered off."""
    return [' '.join(what) for what in world.changes
            if what != ('power-off',)]


class LookTest(CleanerTestCase):
    """The requests of a look, and the looks without a change."""

    def test_healthy_server_costs_one_look(self):
        """Check also that it does not wait for a lock."""
        for trigger in (triggers.HARD_REBOOT, triggers.SOFT_REBOOT,
                        triggers.START):
            world = world_of([disk(1), disk(2)], [volume(1), volume(2)],
                             [record(1), record(2)],
                             running=trigger.mode.may_run)
            self.assertEqual(frozenset(), self.clean(world, trigger))
            self.assertEqual(
                [('look',), ('claims', 'volume-1', 'volume-2')],
                world.timeline)
            self.assert_untouched(world)
        self.assertEqual('', self.log.output)

    def test_no_answer_changes_nothing(self):
        for call, error, trigger, reason in (
                ('look', errors.Unreachable('no route'),
                 triggers.HARD_REBOOT, 'cinder-unknown'),
                ('look', TimedOut('too late'), triggers.START, 'timed-out')):
            world = broken(running=trigger.mode.may_run,
                           failing={call: error})
            # A neighbour has its volume.
            self.assertEqual({'bdm-9'}, self.clean(world, trigger))
            self.assert_untouched(world)
            line, = self.lines(event='skipped', reason=reason)
            self.assertIn('%s; nothing is changed, %s' % (
                error, trigger.goes_on), line)

    def test_no_answer_of_nova_removes_nothing(self):
        """Check that what Cinder shows of the disks counts all the same."""
        for call, trigger in itertools.product(
                ('server', 'swaps', 'is-off'),
                (triggers.HARD_REBOOT, triggers.SOFT_REBOOT, triggers.START)):
            if call == 'is-off' and trigger is not triggers.START:
                continue  # Only a guest that must be off is asked for.
            world = broken(running=trigger.mode.may_run,
                           failing={call: RuntimeError('it is away')})
            self.assertEqual(DANGLING, self.clean(world, trigger))
            self.assert_untouched(world)
            self.assertEqual(8, self.told.count(
                'not acted on (step-failed): it is away'))

    def test_no_answer_is_remembered(self):
        world = stopped(failing={'look': errors.Unreachable('no route')})
        self.clean(world, triggers.HOST_BOOT)
        self.assertEqual('no route', str(self.cleaning.unanswered))
        self.clean(stopped(), triggers.HOST_BOOT)
        self.assertIsNone(self.cleaning.unanswered)

    def test_too_many_attachments_are_said_once(self):
        world = broken(is_cut=True)
        self.clean(world)
        self.assertEqual(2, world.timeline.count(('look',)))
        self.assertEqual(1, len(self.lines(
            event='unread', reason='over-limit')))
        # The attachments that were shown are acted on.
        self.assertNotEqual([], world.changes)

    def test_observe_mode_reports_only(self):
        """Check also that it takes no lock."""
        for trigger in (triggers.HARD_REBOOT, triggers.SOFT_REBOOT,
                        triggers.START):
            world = broken(running=trigger.mode.may_run)
            self.assertEqual(frozenset(), self.clean(
                world, trigger, observe=True))
            self.assertEqual([('look',), ('server',), ('swaps',)],
                             world.timeline)
            self.assertEqual(8, self.withheld('observe-mode'))
            self.assert_untouched(world)

    def test_observe_mode_shows_what_enforcing_would_refuse(self):
        for world, policy, reason in (
                (broken(server=make.server(is_locked=True)), {},
                 'server-locked'),
                (broken(), {'max_removals': 1}, 'over-limit'),
                (missing(2, 3), {}, 'cinder-suspect')):
            self.clean(world, observe=True, **policy)
            self.assertNotEqual(0, self.withheld(reason))

    def test_a_reboot_that_lost_the_race_changes_nothing(self):
        for trigger in (triggers.HARD_REBOOT, triggers.START):
            world = broken(rebooting=False, running=trigger.mode.may_run)
            self.assertEqual(DANGLING, self.clean(world, trigger))
            self.assert_untouched(world)
            self.assertEqual(8 if trigger.finds_stale else 6,
                             self.withheld(trigger.lost))

    def test_nothing_goes_while_a_swap_is_unfinished(self):
        world = broken(swaps=facts.Ending.NONE)
        self.assertEqual(DANGLING, self.clean(world))
        self.assert_untouched(world)
        self.assertEqual(8, self.withheld('swap-interrupted'))
        # Nova is not asked for the swaps of a healthy server.
        world = world_of([disk(1)], [volume(1)], [record(1)],
                         swaps=facts.Ending.NONE)
        self.clean(world)
        self.assertNotIn('swaps', world.calls)


class SoftRebootTest(CleanerTestCase):
    """Soft reboots, which remove nothing but do not connect dangling disks."""

    TRIGGER = triggers.SOFT_REBOOT

    def test_dangling_disks_are_not_connected(self):
        world = broken()
        self.assertEqual(DANGLING, self.clean(world))
        look = ['look', 'server', 'swaps', 'claims']
        self.assertEqual(
            [*look, 'server', 'bdms', *look, 'server'],
            world.calls)
        self.assertEqual(8, self.withheld('soft-reboot'))
        self.assert_untouched(world)
        self.assertEqual(DANGLING, self.clean(world, triggers.HARD_REBOOT))

    def test_disks_that_a_cleanup_leaves_are_connected(self):
        for world, reason, count in (
                # Attachments have a limit of their own.
                (broken(), 'over-limit', 6),
                (missing(1, 2), 'cinder-suspect', 2)):
            # Others have volumes of the first server, and one is missing.
            self.assertEqual(
                world.neighbours and {'bdm-2', 'bdm-5', 'bdm-9'},
                self.clean(world, max_removals=2))
            self.assertEqual(count, self.withheld(reason))

    def test_failed_second_look_still_connects_none(self):
        world = broken(failing={'bdms': RuntimeError('conductor is away')})
        # The first look was answered, and not connecting does no harm.
        self.assertEqual(DANGLING, self.clean(world))


class StartTest(CleanerTestCase):
    """Starts: the guest is off already, and Nova does not hold its lock."""

    TRIGGER = triggers.START

    def test_everything_is_read_again_under_the_lock(self):
        world = reset(running=False)
        self.clean(world)
        look = [('look',), ('server',), ('swaps',), ('claims', 'volume-4')]
        self.assertEqual(
            [*look, ('server',), ('is-off',), ('lock',),
             ('bdms',), *look, ('server',), ('is-off',),
             ('journal-begin',), ('claim',),
             ('volume-lock', 'volume-4'), ('guard', 'volume-4'),
             ('announce', 'volume-4'), ('claims', 'volume-4'),
             ('disconnect', 'bdm-4'),
             ('destroy', 'bdm-4'), ('tidy', 'bdm-4'), ('report removed',),
             ('delete-attachment', 'attachment-4')],
            [w for w in world.timeline if w != ('journal-append',)])
        self.assertFalse(world.locked)

    def test_somebody_works_on_the_server_for_too_long(self):
        for trigger, told in ((triggers.START, 8), (triggers.HOST_BOOT, 6)):
            world = stopped(
                failing={'lock': TimedOut('the lock: too long')})
            self.assertEqual(DANGLING, self.clean(world, trigger))
            self.assert_untouched(world)
            self.assertEqual(told, self.told.count(
                'not acted on (timed-out): the lock: too long'))

    def test_a_guest_that_runs_is_left_alone(self):
        """Check that Nova, if it starts the guest, does not connect these."""
        for trigger, begins in itertools.product(
                (triggers.START, triggers.HOST_BOOT),
                ('before', 'lock', 'bdms')):
            world = broken(running=begins == 'before')
            world.meanwhile[begins] = lambda w=world: setattr(
                w, 'running', True)
            self.assertEqual(DANGLING, self.clean(world, trigger))
            self.assert_untouched(world)
            self.assertNotEqual(0, self.withheld('guest-running'))

    def test_a_boot_of_the_host_leaves_stale_attachments(self):
        world = stopped()
        self.assertEqual(DANGLING, self.clean(world, triggers.HOST_BOOT))
        self.assertLess({'attachment-7', 'attachment-8'},
                        set(world.attachments))
        self.assertNotIn('volume-7', self.told)
        self.assertEqual(['host_boot'], [
            entry.record['trigger'] for entry in self.entries()])

    def test_time_of_all_requests_is_added_up(self):
        world = stopped()
        self.assertEqual(0, self.cleaner_of(world).asking)
        now = itertools.count()
        with mock.patch('time.monotonic', lambda: float(next(now))):
            self.clean(world)
        # Two looks, each with the questions about the rows of neighbours.
        self.assertEqual(4, self.cleaning.asking)

    def test_a_start_that_is_no_longer_wanted(self):
        world = stopped(failing={'claim': RebootLost('too late')})
        self.clean(world)
        self.assertEqual([], world.changes)
        line, = self.lines(event='failed', reason='start-lost')
        self.assertTrue(line.endswith('the next start tries again'))


class MoveTest(CleanerTestCase):
    """Moves: the server leaves its host, or arrives at one."""

    TRIGGER = triggers.MOVE

    def test_an_arrival_disconnects_nothing(self):
        """Leave the addresses alone: they are those of another host."""
        for trigger in (triggers.UNSHELVE, triggers.EVACUATE):
            world = stopped()
            world.connected.clear()
            self.assertEqual(DANGLING, self.clean(world, trigger))
            self.assertEqual(set(), DANGLING & set(world.rows))
            self.assertEqual([], [call for call in world.timeline if call[0]
                                  in ('complete-claims', 'disconnect')])

    def preview(self, world, trigger=None, **options):
        cleaning = self.cleaner_of(world, trigger, **options)
        plan = cleaning.preview(tuple(world.rows.values()))
        self.assert_untouched(world)
        self.assertEqual('', self.log.output)
        self.assertEqual(set(), cleaning.removed)
        return plan

    def test_a_preview_of_an_audit_shows_what_a_reboot_would_remove(self):
        world = broken(running=True)
        self.assertEqual(6, self.preview(world, triggers.AUDIT).removals)

    def test_a_preview_without_an_answer_raises(self):
        world = broken(failing={'look': errors.Unreachable('no route')})
        self.assertRaises(errors.Unreachable, self.preview, world)
        self.assertEqual('', self.log.output)

    def test_preview_shows_why_removals_are_withheld(self):
        for options, reason in (
                ({'observe': True}, 'observe-mode'),
                ({'max_removals': 1}, 'over-limit')):
            self.assertEqual({reason}, {
                str(f.withheld)
                for f in self.preview(broken(), **options).findings
                if f.is_removal})


#: id, the world, the mappings that are removed, and how often Cinder is asked
#: whether it knows any volume that must exist: not again once it does.
WITNESSES = (
    ('a volume of the server is witness enough',
     world_of([disk(1), disk(2)], [volume(1)], [record(1)]), {'bdm-2'}, 0),
    ('a volume of another server is witness',
     world_of([disk(1), disk(2)], [volume(8)],
              witnesses=('volume-7', 'volume-8')), {'bdm-1', 'bdm-2'}, 1),
    ('a cinder that knows none is suspect',
     missing(1, 2, witnesses=('volume-7', 'volume-8')), set(), 1),
    # No other server can provide a witness, and every volume of this one would
    # have to be gone.
    ('volumes of a server bear witness for each other', missing(1, 2), set(),
     0),
    ('a missing root bears witness against cinder',
     fakes.World([disk(1, boot_index=0), disk(2)]), set(), 0),
    ('the only volume far and wide', missing(1), {'bdm-1'}, 0),
    ('a witness that cannot be asked',
     missing(1, 2, witnesses=('volume-7',),
             failing={'ask-for-witness': errors.Unreachable('no route')}),
     set(), 0),
)


class WitnessTest(CleanerTestCase):
    """Witnesses, which a Cinder needs to report all volumes as missing."""

    scenarios = base.scenarios(WITNESSES, 'world', 'removed', 'asked')

    def test_missing_volumes_go_only_with_a_witness(self):
        world = copy.deepcopy(self.world)
        self.assertEqual(self.removed, self.clean(world))
        self.assertEqual(self.removed, self.world.rows.keys() - world.rows)
        self.assertEqual(self.asked, [
            w for w in world.timeline if w[-1] != 'failed'
        ].count(('ask-for-witness',)))
        if not self.removed and not world.failing:
            self.assertNotEqual(0, self.withheld('cinder-suspect'))


#: id, the world, the steps after the guest is off, and why nothing (more) is
#: disconnected, according to the journal.
ACTS = (
    ('a mapping too many goes alone', world_of(
        [disk(4), disk(4, uuid='bdm-5', has_connection_info=False)],
        [volume(4)], [record(4)]),
     ['destroy bdm-5'], 'another mapping has the disk'),
    ('nothing connected, nothing disconnected', world_of(
        [disk(1, has_connection_info=False)], [volume(8, status='reserved')],
        [record(8, **RESERVED)]),
     ['destroy bdm-1', 'tidy bdm-1', 'delete-attachment attachment-8'],
     'it is not connected'),
    ('what is not on this host', reset(connected=set()),
     ['disconnect bdm-4', 'destroy bdm-4', 'tidy bdm-4',
      'delete-attachment attachment-4'], 'nothing of it is on this host'),
    ('an address that another volume has is left alone', world_of(
        [disk(4)], [free(4), volume(7)], [record(4), record(7)],
        reused={'volume-4', 'volume-7'}, deleted=[disk(7)], connected=set()),
     ['destroy bdm-4', 'tidy bdm-4', 'delete-attachment attachment-4',
      'tidy bdm-7', 'delete-attachment attachment-7'],
     'has volume volume-2 there'),
    ('a mapping that dangles itself has no address', reset(
        reused={'volume-4'}, is_denied=True),
     ['disconnect bdm-4', 'destroy bdm-4', 'tidy bdm-4',
      'delete-attachment attachment-4'], ''),
    ('a volume of a neighbour stays connected', world_of(
        [disk(1)], [volume(1)],
        [record(1, server_id=make.OTHER_SERVER, id='attachment-2')],
        neighbours=['volume-1']),
     ['destroy bdm-1', 'tidy bdm-1'], 'the guest of server server-2 has it'),
    ('a stale attachment of a neighbour stays connected', world_of(
        [], [volume(1, multiattach=True)], [record(1)],
        neighbours=['volume-1'], deleted=[disk(1)]),
     ['tidy bdm-1', 'delete-attachment attachment-1'],
     'the guest of server server-2 has it'),
    ('a stale attachment of a deleted mapping',
     # The row was deleted in the database, or a cleanup died.
     stale(7, deleted=[disk(7)], connected={'volume-7'}),
     ['disconnect bdm-7', 'tidy bdm-7', 'delete-attachment attachment-7'],
     ''),
    # A user who may create attachments can make them name any device.
    *(('nothing is disconnected on the word of cinder, ' + name,
       stale(7, deleted=deleted), ['delete-attachment attachment-7'],
       'not even a deleted one')
      for name, deleted in (
          ('without a row', []),
          ('by another row', [disk(7, attachment_id='attachment-8')]),
          ('by a row without an address',
           [disk(7, has_connection_info=False)]))),
    *(('a stale attachment of another host, ' + name, world_of(
        mappings, [volume(1)],
        [*map(record, [1] * len(mappings)), record(1, id='attachment-9')],
        hosts={'attachment-9': make.OTHER_HOST}),
       ['delete-attachment attachment-9'], '')
      for name, mappings in (('no mapping', []),
                             ('beside a healthy disk', [disk(1)]))),
    # Cinder would not call the back end for a reserved attachment.
    ('a reserved attachment that lets a host in', world_of(
        [], [volume(6, status='reserved')], [record(6, status='reserved')]),
     ['delete-attachment attachment-6'], ''),
    ('two mappings of one volume', world_of(
        [disk(4, uuid='bdm-5', attachment_id=None, has_connection_info=False),
         disk(4)], [free(4)], [record(4)]),
     ['disconnect bdm-4', 'destroy bdm-4', 'tidy bdm-4', 'destroy bdm-5',
      'tidy bdm-5', 'delete-attachment attachment-4'],
     'it is not connected'),
    # Cinder computes the status from the remaining attachments; if the chain
    # stops early, the volume must still not become available.
    ('of several left over the one that the mapping names goes last', world_of(
        [disk(4)], [free(4)],
        [record(4), record(4, id='attachment-0'),
         record(4, id='attachment-9', **RESERVED)]),
     ['disconnect bdm-4', 'destroy bdm-4', 'tidy bdm-4',
      *('delete-attachment attachment-%d' % n for n in (9, 0, 4))], ''),
)


class ActTest(CleanerTestCase):
    """The steps of a cleanup, and their order."""

    scenarios = base.scenarios(ACTS, 'world', 'expected', 'why')

    def test_steps_are_done_in_their_order(self):
        world = copy.deepcopy(self.world)
        returned = self.clean(world)
        self.assertEqual(self.expected, [
            ' '.join(w) for w in world.timeline
            if w[0] == 'tidy' or w in world.changes and w != ('power-off',)])
        # Nova's driver gets the remaining mappings.
        self.assertEqual(self.world.rows.keys() - world.rows, returned)
        self.assertEqual({a.id for a in world.attachments.values()
                          if a.connected}, world.mapped)
        [entry] = self.entries()
        self.assertEqual('done', entry.outcome)
        skipped = [s for s in entry.steps if s.outcome == 'skipped']
        self.assertEqual(bool(self.why), bool(skipped))
        for step in skipped:
            self.assertEqual('disconnect', step.name)
            self.assertIn(self.why, step.subject['detail'])
            self.assertTrue({'bdm', 'attachment'} & step.subject.keys())
        # Only if an operator may want to check the device.
        self.assertEqual(self.why in ('has volume volume-2 there',
                                      'the guest of server server-2 has it',
                                      'not even a deleted one'),
                         bool(self.lines(event='still-connected')))


class WholeTest(CleanerTestCase):
    """A server with everything that can be cleaned up, and all its calls."""

    def test_everything_that_is_broken_is_cleaned_up(self):
        for service_token in (True, False):
            # Cinder requires a service token only if Nova has a mapping, and
            # the mapping is deleted before the attachment.
            world = broken()
            self.assertEqual(DANGLING, self.clean(
                world, service_token=service_token))
            self.assertEqual({'bdm-root', 'bdm-1'}, set(world.rows))
            self.assertEqual({'attachment-1', 'attachment-55'},
                             set(world.attachments))
            self.assertEqual({'attachment-1', 'attachment-55'}, world.mapped)
            self.assertEqual({'volume-1', 'volume-9'}, world.connected)
            self.assertEqual(
                {'volume-1', 'volume-5'},
                {v.id for v in world.volumes.values()
                 if v.status != 'available'})
            self.assertEqual(8, len(world.reported[Kind.REMOVED]))
        world.reboot()
        world.timeline.clear()
        self.assertEqual(frozenset(), self.clean(world))
        self.assertEqual(['look', 'claims'], world.calls)

    def test_steps_of_one_disk_are_in_order(self):
        world = reset()
        self.clean(world)
        look = [('look',), ('server',), ('swaps',), ('claims', 'volume-4')]
        self.assertEqual(
            [*look, ('server',), ('journal-begin',),
             ('prepare',), ('claim',), ('power-off',), ('bdms',), *look,
             ('server',),
             ('volume-lock', 'volume-4'), ('guard', 'volume-4'),
             ('announce', 'volume-4'), ('claims', 'volume-4'),
             ('disconnect', 'bdm-4'),
             ('destroy', 'bdm-4'), ('tidy', 'bdm-4'), ('report removed',),
             ('delete-attachment', 'attachment-4')],
            [w for w in world.timeline if w != ('journal-append',)])

    def test_a_finding_tells_what_where_and_how_to_undo(self):
        world = reset()
        self.clean(world)
        [entry] = self.entries()
        subject = {'reason': 'volume-available', 'volume': 'volume-4',
                   'attachment': 'attachment-4', 'device': '/dev/vdb',
                   'request_id': 'req-1'}
        [removing] = self.lines(event='removing', **subject)
        self.assertIn("Removing stale volume attachment 'attachment-4' from "
                      "instance for volume 'volume-4'", removing)
        [removed] = self.lines(event='removed', **subject)
        self.assertIn('journal undo %s' % entry.id, removed)
        [finished] = self.lines(event='finished')
        self.assertRegex(finished, r'1 of 1 actions complete in \d\.\d s')
        self.assertIn(entry.id, finished)


#: id, the change during the power-off, the mappings that are not connected,
#: those that are removed, the number of findings withheld, and the reason.
CHANGES = (
    ('nothing', lambda world: None, '45', '45', 0, 'second-look-differs'),
    ('a volume is attached again',
     lambda world: world.set_status('volume-4', 'in-use'),
     '5', '5', 1, 'second-look-differs'),
    ('another mapping dangles',
     lambda world: world.rows.update({'bdm-2': disk(2)}),
     '45', '45', 0, 'second-look-differs'),
    ('the reboot is over',
     lambda world: setattr(world, 'rebooting', False),
     '45', '', 3, 'reboot-lost'),
    ('an administrator locks the server',
     lambda world: setattr(world, 'server', make.server(is_locked=True)),
     '45', '', 3, 'server-locked'),
    ('Cinder does not answer',
     lambda world: world.failing.update(look=errors.Unreachable('no route')),
     '45', '', 3, 'cinder-unknown'),
    ('Nova does not answer',
     lambda world: world.failing.update(bdms=RuntimeError('no conductor')),
     '45', '', 3, 'step-failed'),
)


class SecondLookTest(CleanerTestCase):
    """Records that change during the power-off, which are left alone."""

    scenarios = base.scenarios(
        CHANGES, 'change', 'returned', 'removed', 'number', 'why')

    def test_changed_records_are_left_alone(self):
        world = world_of([disk(4), disk(5), disk(8)],
                         [free(4), free(5), volume(7), volume(8)],
                         [record(4), record(7),
                          record(8, id='attachment-88'),
                          record(8, id='attachment-89')])
        before = set(world.rows)
        world.meanwhile['bdms'] = lambda: self.change(world)
        self.assertEqual({'bdm-' + n for n in self.returned},
                         self.clean(world))
        self.assertEqual({'bdm-' + n for n in self.removed},
                         before - world.rows.keys())
        if not self.removed:
            self.assertEqual([], deeds(world))
        self.assertEqual(self.number, len(self.lines(event='withheld')))
        self.assertEqual(self.number, self.withheld(self.why))
        self.assertEqual(
            [{'agreed': len(self.lines(event='removing'))}]
            if self.removed else [],
            [s.subject for entry in self.entries() for s in entry.steps
             if s.name == 'second-look'])
        # The findings of the first look are not logged again.
        self.assertEqual(1, len(self.lines(event='kept', volume='volume-8')))


#: The call that fails, the last step done for the disk, and the event that is
#: logged.  The disk is that of :func:`reset`, beside another one.
FAILURES = (
    # Neutron does not answer: the guest must stay as stock Nova leaves it.
    (('prepare',), '', 'failed'),
    (('volume-lock', 'volume-4'), '', 'failed'),
    # Nova's own reboot would disconnect it without this check.
    (('claims', 'volume-4'), '', 'failed'),
    (('announce', 'volume-4'), '', 'failed'),
    (('disconnect', 'bdm-4'), '', 'failed'),
    (('destroy', 'bdm-4'), 'disconnect', 'failed'),
    (('delete-attachment', 'attachment-4'), 'destroy', 'failed'),
    (('tidy', 'bdm-4'), 'delete-attachment', 'untidy'),
    (('report removed',), 'delete-attachment', 'unreported'),
)


class FailingStepTest(CleanerTestCase):
    """Failures, which stop the chain of one disk and never the reboot."""

    scenarios = [(call[0], {'call': call, 'last': last, 'event': event})
                 for call, last, event in FAILURES]

    def test_failing_step_stops_the_chain_of_its_disk(self):
        world = world_of([disk(4), disk(2)], [free(4)], [record(4)],
                         failing={self.call: RuntimeError('no luck')})
        # The driver does not connect it again, whichever step failed.
        self.assertEqual({'bdm-2', 'bdm-4'}, self.clean(world))
        steps = ['disconnect', 'destroy', 'delete-attachment']
        self.assertEqual(
            steps[:steps.index(self.last) + 1] if self.last else [],
            [w[0] for w in world.timeline
             if w[0] in steps and w[1].endswith('4') and len(w) == 2])
        # The other disk is still cleaned up.
        is_general = self.call[0] == 'prepare'
        self.assertEqual(is_general, 'bdm-2' in world.rows)
        self.assertEqual(is_general, 'power-off' not in world.calls)
        self.assertIn('no luck', self.told)
        line = self.lines(event=self.event)[0]
        if self.event == 'failed':
            self.assertIn(': %s: ' % self.call[0], line)
        self.assertEqual(
            [] if is_general else
            ['partly' if self.event == 'failed' else 'done'],
            [entry.outcome for entry in self.entries()])
        # The next cleanup does the rest.
        world.restart()
        self.clean(world)
        self.assertEqual({'bdm-root'}, set(world.rows))
        self.assertEqual(({}, set()), (world.attachments, world.connected))


class FailureTest(CleanerTestCase):
    """Steps that a cleanup leaves undone, and the next one completes."""

    def test_attachment_stays_while_a_sibling_stays(self):
        def siblings(**others):
            return world_of([disk(4), disk(4, uuid='bdm-5')], [free(4)],
                            [record(4)], **others)

        world = siblings(failing={
            ('disconnect', 'bdm-4'): RuntimeError('no luck')})
        self.assertEqual({'bdm-4', 'bdm-5'}, self.clean(world))
        self.assertEqual(['disconnect bdm-4 failed'], deeds(world))
        # With another attachment it is still the first of the two.
        for changed in ({'has_connection_info': False},
                        {'attachment_id': 'other'}):
            world = siblings()
            world.meanwhile['bdms'] = lambda w=world, c=changed: (
                w.rows.update({'bdm-4': disk(4, **c)}))
            self.assertEqual({'bdm-4', 'bdm-5'}, self.clean(world))
            self.assertEqual([], deeds(world))

    def test_undecided_neighbour_leaves_the_disk_connected(self):
        """Check that nothing is disconnected, and Cinder is not told, yet."""
        for world in (
                reset(undecided={'volume-4'}),
                stale(4, deleted=[disk(4)], undecided={'volume-4'})):
            self.assertEqual({'bdm-4'} & set(world.rows), self.clean(world))
            self.assertEqual([], deeds(world))
            # The mapping is withheld by the second look already.
            self.assertEqual(1, self.told.count(
                'the hypervisor does not tell which guest has it; '))
            world.undecided = set()
            world.restart()
            self.clean(world)
            self.assertEqual({'bdm-root'}, set(world.rows))
            self.assertEqual({}, world.attachments)

    def test_attachment_from_before_queens_stays_in_cinder(self):
        world = world_of([disk(6, attachment_id=None)], [free(6)],
                         [record(6, connected=False)])
        self.assertEqual({'bdm-6'}, self.clean(world))
        self.assertEqual(['disconnect bdm-6', 'destroy bdm-6'], deeds(world))
        self.assertIn('attachment-6', world.attachments)
        self.clean(world)
        line, = self.lines(event='kept', reason='legacy-attachment')


class PropertiesTest(CleanerTestCase):
    """Properties of every world, sound or not.

    Each reboot retries the steps that failed.  Nothing fails by itself here.
    """

    @worlds.profile(share=0.5)
    @hypothesis.given(worlds.worlds(), worlds.policies)
    def test_nothing_forbidden_happens(self, world, policy):
        roots = {b.volume_id for b in world.rows.values() if b.is_root}
        strangers = {a.id for a in world.attachments.values()
                     if a.server_id != world.server.uuid}
        without = self.clean(world, **vars(policy))
        self.assertLessEqual(roots, {
            b.volume_id for b in world.rows.values() if b.is_root})
        self.assertLessEqual(strangers, set(world.attachments))
        # A second reboot has nothing to do, but to reconnect a disk whose
        # other mappings are gone now.
        for is_last in (False, True):
            world.reboot(without)
            world.timeline.clear()
            without = self.clean(world, **vars(policy))
            self.assertNotIn('destroy', world.calls)
            # Another server has the volume, which Cinder does not show yet.
            failed = self.lines(event='failed')
            for line in failed:
                self.assertIn('is connected already', line)
            if is_last and not failed:
                self.assertEqual([], world.changes)

    @worlds.profile(share=0.5)
    @hypothesis.given(worlds.worlds(), st.sampled_from([
        triggers.HARD_REBOOT, triggers.SOFT_REBOOT, triggers.START]),
        st.data())
    def test_no_address_that_others_claim_is_given_or_taken(
            self, world, trigger, data):
        # The fakes tell when such an address is disconnected.
        some = st.sets(st.sampled_from(worlds.VOLUMES))
        world.reused, world.undecided = data.draw(some), data.draw(some)
        world.is_denied = data.draw(st.sampled_from([True, False, None]))
        world.running = trigger.mode.may_run
        if data.draw(st.booleans()):
            world.failing['look'] = errors.Unreachable('no route')
        is_open = world.connected if world.running else set()
        claimed = world.reused - is_open if not world.is_denied or (
            world.failing) else set()
        without = self.clean(world, trigger)
        # A reconnect gives others than these.
        given = {b.volume_id for b in world.rows.values()
                 if b.is_in_cinder and b.uuid not in without
                 and b.addresses & make.addresses(b.volume_id)}
        self.assertEqual(
            set(), given & (world.neighbours | world.undecided | claimed))


@dataclasses.dataclass(frozen=True)
class Healthy:
    """A healthy disk, and what else there is on its host."""

    #: What another server of this host has, or claims.
    neighbour: str
    was_running: bool
    is_young: bool
    is_silent: bool

    def world(self):
        when = make.ago(1 if self.is_young else 86400)
        is_shared = self.neighbour == 'shares the volume'
        world = world_of(
            [disk(1, created_at=when, updated_at=when)],
            [volume(1, updated_at=when, multiattach=is_shared)],
            [record(1, attached_at=when)], running=self.was_running)
        if is_shared:
            # Two rows of one multiattach volume are not rivals.
            world.attachments['attachment-2'] = record(
                1, id='attachment-2', server_id=make.OTHER_SERVER)
        if self.neighbour.startswith('row'):
            world.reused.add('volume-1')
            world.is_denied = {'row, Cinder denies it': True,
                               'row, Cinder confirms it': False}.get(
                                   self.neighbour)
        if self.neighbour == 'guest':
            world.neighbours.add('volume-1')
        if self.neighbour == 'unknown':
            world.undecided.add('volume-1')
        if self.is_silent:
            world.failing['look'] = errors.Unreachable('no route')
        return world


#: What another server of the host has; and the worlds in which a healthy disk
#: is left out, as whether its guest ran before and Cinder is silent.
NEIGHBOURS = {
    'none': (),
    'shares the volume': (),
    'row, Cinder confirms it': ((False, False), (False, True)),
    # While Cinder is silent it is not asked.
    'row, Cinder denies it': ((False, True),),
    'row, Cinder is silent about it': ((False, False), (False, True)),
    'guest': tuple(itertools.product((False, True), repeat=2)),
    # The hypervisor does not answer.
    'unknown': tuple(itertools.product((False, True), repeat=2)),
}


class HealthyTest(CleanerTestCase):
    """Every world of a healthy disk, and those in which it is left out."""

    def test_it_is_left_out_in_the_worlds_above_only(self):
        for neighbour, (was_running, is_silent), is_young in (
                itertools.product(
                    NEIGHBOURS,
                    itertools.product((False, True), repeat=2),
                    (False, True))):
            case = Healthy(neighbour, was_running, is_young, is_silent)
            world = case.world()
            without = self.clean(
                world, triggers.HARD_REBOOT if was_running
                else triggers.START)
            self.assertEqual(
                (was_running, is_silent) in NEIGHBOURS[neighbour],
                bool(without), case)
            self.assertEqual(([], []), (world.changes, self.waited), case)


class AddressTest(CleanerTestCase):
    """Disks that the driver is not given, by the rule of addresses."""

    def test_unread_claims_connect_nothing(self):
        world = broken(failing={'claims': RuntimeError('libvirt is away')})
        self.assertEqual(DANGLING | {'bdm-1'},
                         self.clean(world, max_removals=1))
        line = self.lines(event='not-connected', volume='volume-3')[0]
        self.assertIn('the hypervisor does not tell', line)
        self.assertIn('libvirt is away', self.told)

    def test_open_disk_is_found_when_the_hypervisor_answers_again(self):
        world = Healthy('row, Cinder confirms it', was_running=True,
                        is_young=False, is_silent=False).world()
        world.failing['claims'] = RuntimeError('libvirt restarts')
        world.meanwhile['bdms'] = world.failing.clear
        self.assertEqual(frozenset(), self.clean(world))

    def test_no_answer_and_unread_claims_connect_nothing(self):
        world = broken(failing={
            'look': errors.Unreachable('no route'),
            'claims': RuntimeError('conductor is away')})
        self.assertEqual(DANGLING | {'bdm-1'}, self.clean(world))
        self.assert_untouched(world)

    def test_a_healthy_server_asks_only_for_addresses(self):
        for values, asked in (({}, ['look', 'claims']),
                              ({'addresses': frozenset()}, ['look'])):
            world = world_of([disk(1, **values)], [volume(1)],
                             [record(1, **values)], neighbours=['volume-1'])
            self.assertEqual({'bdm-1'} if asked[1:] else frozenset(),
                             self.clean(world))
            # A disk that would be left out is looked at once more.
            again = ['bdms', 'look', 'claims'] if asked[1:] else []
            self.assertEqual([*asked, *again], [
                call for call in world.calls if 'report' not in call])

    def test_disk_that_others_claim_after_the_last_look_is_not_given(self):
        for values, limit in (({'boot_index': 0}, {'reconnect': False}),
                              ({}, {'max_removals_per_hour': 0})):
            world = world_of([disk(1, **values)], [free(1)])
            self.assertEqual(frozenset(), self.clean(world, **limit))
            self.assertEqual(
                ['hold-up', 'claims'],
                [call for call in world.calls if 'report' not in call][-2:])
            world.meanwhile['hold-up'] = (
                lambda world=world: world.neighbours.add('volume-1'))
            self.assertEqual({'bdm-1'}, self.clean(world, **limit))
            self.assertEqual([], world.changes)

    def test_without_an_answer_cinder_gives_nothing_meanwhile(self):
        world = world_of([disk(1)], [volume(1)], [record(1)], failing={
            'look': errors.Unreachable('no route')})
        world.meanwhile['hold-up'] = lambda: world.neighbours.add('volume-1')
        self.assertEqual({'bdm-1'}, self.clean(world))

    def test_nobody_is_held_up_without_such_a_disk(self):
        for world in (world_of([disk(1)], [volume(1)], [record(1)]),
                      world_of([disk(1, addresses=frozenset(), boot_index=0)],
                               [free(1)]),
                      world_of([disk(1)], [free(1)])):
            self.clean(world)
            self.assertNotIn('hold-up', world.calls)

    def test_disk_not_connected_has_an_event(self):
        world = broken(failing={'look': errors.Unreachable('no route')})
        self.clean(world)
        self.assertEqual(['bdm-9'], [
            f.bdm.uuid for f, _ in world.reported[Kind.NOT_CONNECTED]])

    def test_unwritten_event_is_logged_once(self):
        world = broken(failing={
            'look': errors.Unreachable('no route'),
            'report did not connect': RuntimeError('no action')})
        self.assertEqual({'bdm-9'}, self.clean(world))
        self.assertEqual(1, len(self.lines(event='unreported')))


class LeftEventTest(CleanerTestCase):
    """The events about what was to be removed, and was not."""

    def left(self, world, *arguments, **policy):
        """Return the volume and the reason of each."""
        self.clean(world, *arguments, **policy)
        return [(finding and finding.volume_id, str(reason))
                for finding, reason in world.reported[Kind.WITHHELD]]

    def test_complete_cleanup_has_no_event(self):
        self.assertEqual([], self.left(broken()))

    def test_withheld_removal_has_an_event(self):
        for limit in ({'max_removals': 1}, {'max_removals_per_hour': 1}):
            self.assertEqual(
                {('volume-4', 'over-limit'), ('volume-2', 'over-limit')},
                set(self.left(world_of([disk(4), disk(2)], [free(4)]),
                              **limit)))

    def test_failed_step_has_an_event(self):
        for step, reason in (('disconnect', RuntimeError('no luck')),
                             ('power-off', RuntimeError('no luck'))):
            self.assertEqual(
                [('volume-4', 'step-failed')],
                self.left(world_of([disk(4)], [free(4)],
                                   failing={step: reason})))

    def test_attachment_that_is_left_has_an_event(self):
        """Record both: the mapping is removed, the attachment is left."""
        world = world_of([disk(4)], [free(4)], [record(4)], failing={
            'delete-attachment': errors.ServiceTokenRequired('no token')})
        self.assertEqual([('volume-4', 'service-token-required')],
                         self.left(world))
        self.assertEqual(1, len(world.reported[Kind.REMOVED]))

    def test_missing_answer_has_an_event(self):
        world = broken(failing={'look': errors.Unreachable('no route')})
        self.assertEqual([(None, 'cinder-unknown')], self.left(world))

    def test_the_store_cannot_be_written(self):
        self.assertEqual(
            [('volume-4', 'journal-unwritable')],
            self.left(world_of([disk(4)], [free(4)]), store=self.unusable()))

    def test_observe_mode_writes_no_event(self):
        for failing in ({}, {'look': errors.Unreachable('no route')}):
            world = broken(failing=failing)
            self.assertEqual([], self.left(world, observe=True))

    def test_soft_reboot_writes_no_event(self):
        self.assertEqual([], self.left(broken(), triggers.SOFT_REBOOT))


class LimitTest(CleanerTestCase):
    """Limits: all removals or none."""

    def test_more_than_one_reboot_or_one_hour_may_have(self):
        for limit in ({'max_removals': 5}, {'max_removals_per_hour': 3}):
            world = broken()
            # A neighbour has its volume; one volume is missing, and another
            # server has one.
            self.assertEqual({'bdm-2', 'bdm-5', 'bdm-9'},
                             self.clean(world, **limit))
            self.assertEqual(6, self.withheld('over-limit'))
            # Attachments are still deleted.
            self.assertEqual(
                ['delete-attachment attachment-7',
                 'delete-attachment attachment-8'], deeds(world))

    def test_attachments_over_limit_stay_and_few_are_logged(self):
        world = broken()
        for number in range(300):
            one = record(7, id='many-%03d' % number, **RESERVED)
            world.attachments[one.id] = one
        self.clean(world)
        # The left-over attachments of two mappings are deleted.
        self.assertEqual(
            ['attachment-4', 'attachment-6'],
            sorted(c[1] for c in world.changes
                   if c[0] == 'delete-attachment'))
        self.assertEqual(5, self.withheld('over-limit'))
        self.assertIn('298 more attachments', self.told)
        [entry] = self.entries()
        self.assertEqual(6, len(entry.record['actions']))
        self.assertEqual(12, len(entry.record['findings']))

    def test_more_than_an_hour_may_have(self):
        def dangling(*numbers):
            return world_of(map(disk, numbers), map(free, numbers))

        for kind, gone in ((dangling, lambda w: len(w.rows) == 1),
                           (stale, lambda w: not w.attachments)):
            store = os.path.join(self.tempdir(), 'store')
            for numbers, is_done in (((1, 2), True), ((3, 4), False),
                                     ((5,), True)):
                world = kind(*numbers)
                returned = self.clean(world, store=store,
                                      max_removals_per_hour=3)
                self.assertEqual((is_done, 0 if is_done else 2), (
                    gone(world), self.withheld('over-limit')))
                self.assertEqual(
                    {'bdm-%d' % n for n in numbers}
                    if is_done and kind is dangling else set(), returned)
                if not is_done:
                    self.assertEqual([], world.changes)

    def test_removals_are_charged_to_project_or_host(self):
        """Check what is left of the hour after another cleanup."""
        for first, then, project, is_done in (
                (triggers.HARD_REBOOT, triggers.HARD_REBOOT, 'another', True),
                (triggers.HARD_REBOOT, triggers.START, 'another', True),
                (triggers.HARD_REBOOT, triggers.START, make.PROJECT, False),
                (triggers.START, triggers.MOVE, make.PROJECT, False),
                (triggers.SHELVE, triggers.UNSHELVE, make.PROJECT, False),
                # The host's removals are counted apart.
                (triggers.HARD_REBOOT, triggers.HOST_BOOT, make.PROJECT,
                 True),
                (triggers.HOST_BOOT, triggers.HARD_REBOOT, make.PROJECT,
                 True),
                (triggers.HOST_BOOT, triggers.HOST_BOOT, 'another', False)):
            limited = {'store': os.path.join(self.tempdir(), 'store'),
                       'max_removals_per_hour': 2}
            self.clean(world_of([disk(1), disk(2)], [free(1), free(2)],
                                running=first.mode.may_run), first, **limited)
            world = world_of([disk(3)], [free(3)], running=then.mode.may_run)
            self.clean(world, then, project=project, **limited)
            self.assertEqual(
                (is_done, 0 if is_done else 1),
                ('bdm-3' not in world.rows, self.withheld('over-limit')))

    def test_the_time_is_over_before_the_first_disk(self):
        world = broken()
        world.meanwhile['power-off'] = lambda: setattr(self, 'time', 60.0)
        self.assertEqual(DANGLING, self.clean(world))
        self.assertEqual([], deeds(world))
        self.assertEqual(
            8, len(self.lines(event='failed', reason='timed-out')))

    def test_the_time_is_over_after_the_first_disk(self):
        # A disk in progress is finished; the others wait for the next cleanup.
        world = world_of([disk(2), disk(3)], [free(2), free(3)])
        world.meanwhile['destroy'] = lambda: setattr(self, 'time', 60.0)
        self.assertEqual({'bdm-2', 'bdm-3'}, self.clean(world))
        self.assertEqual({'bdm-root', 'bdm-3'}, set(world.rows))
        self.time = 0.0
        world.reboot()
        self.assertEqual({'bdm-3'}, self.clean(world))


class ShutdownTest(CleanerTestCase):
    """A nova-compute that shuts down; the fakes check that it waits."""

    def test_no_removal_is_begun(self):
        for trigger in (triggers.HARD_REBOOT, triggers.START,
                        triggers.HOST_BOOT):
            world = broken(running=trigger.mode.may_run, shutting_down=True)
            self.assertEqual(DANGLING, self.clean(world, trigger))
            self.assert_untouched(world)
            self.assertEqual(8 if trigger.finds_stale else 6,
                             self.withheld('shutting-down'))

    def test_shutdown_before_second_look_removes_nothing(self):
        for trigger, call in ((triggers.HARD_REBOOT, 'power-off'),
                              (triggers.START, 'bdms')):
            world = broken(running=trigger.mode.may_run)
            world.meanwhile[call] = functools.partial(
                setattr, world, 'shutting_down', True)
            self.assertEqual(DANGLING, self.clean(world, trigger))
            self.assertEqual([], deeds(world))
            self.assertEqual(8, self.withheld('shutting-down'))

    def test_shutdown_after_the_first_disk_keeps_the_others(self):
        world = world_of([disk(2), disk(3)], [free(2), free(3)], [record(2)])
        world.meanwhile['destroy'] = functools.partial(
            setattr, world, 'shutting_down', True)
        self.assertEqual({'bdm-2', 'bdm-3'}, self.clean(world))
        self.assertEqual({'bdm-root', 'bdm-3'}, set(world.rows))
        self.assertNotIn('attachment-2', world.attachments)
        self.assertEqual(1, len(self.lines(
            event='failed', reason='shutting-down')))


def half_moved(*further, running=True, **others):
    """Return a world with a disk that a move has left reserved."""
    mappings, volumes, attachments = zip(*further) if further else ((),) * 3
    return world_of(
        [disk(1), *mappings],
        [volume(1, status='reserved'), *volumes],
        [record(1, **RESERVED), *filter(None, attachments)],
        running=running, **others)


def moved_away(**others):
    """Return a world with a disk that Cinder connects to another host."""
    return world_of([disk(1)], [volume(1)], [record(1)],
                    hosts={'attachment-1': make.OTHER_HOST}, **others)


class ReconnectTest(CleanerTestCase):
    """Disks that are given one attachment to this host."""

    def assert_reconnected(self, world):
        only, = world.ours('volume-1')
        self.assertEqual(('attached', True), (only.status, only.connected))
        row = world.rows['bdm-1']
        self.assertEqual((only.id, only.addresses),
                         (row.attachment_id, row.addresses))

    def test_hard_reboots_starts_and_boots_of_the_host_reconnect(self):
        for trigger in (triggers.HARD_REBOOT, triggers.START,
                        triggers.HOST_BOOT):
            world = half_moved(running=trigger.mode.may_run)
            self.assertEqual(frozenset(), self.clean(world, trigger))
            self.assert_reconnected(world)
            world.reboot()
            world.timeline.clear()
            self.clean(world)
            self.assertEqual(['look', 'claims'], world.calls)
            self.assertEqual([], world.violations)

    def test_steps_are_in_order(self):
        world = half_moved()
        self.clean(world)
        look = [('look',), ('server',), ('swaps',), ('claims', 'volume-1')]
        read = ('volume', 'volume-1')
        self.assertEqual([
            *look, ('server',), ('journal-begin',),
            ('prepare',), ('claim',), ('power-off',), ('bdms',), *look,
            ('server',),
            ('volume-lock', 'volume-1'), ('guard', 'volume-1'), read,
            ('announce', 'volume-1'), ('claims', 'volume-1'),
            ('disconnect', 'bdm-1'),
            read, ('name-attachment', 'bdm-1', 'attachment-1'),
            read, ('connect-attachment', 'attachment-1'),
            ('own-attachments', 'volume-1'),
            read, ('complete-attachment', 'attachment-1'),
            # What has the new address here would be taken for the disk.
            ('announce', 'volume-1'), ('claims', 'volume-1'),
            ('disconnect', 'bdm-1'), ('report reconnected',)],
            [w for w in world.timeline if w != ('journal-append',)])

    def test_volumes_are_told_to_who_gives_them_to_the_driver(self):
        world = half_moved((disk(2), free(2), None))
        cleaning = self.cleaner_of(world)
        outcome = cleaning.clean(tuple(world.rows.values()))
        self.assertEqual({'volume-1'}, outcome.reconnected)
        self.assertEqual({'bdm-2'}, outcome.taken_out)

    def test_reconnect_that_failed_is_told_to_nobody(self):
        world = half_moved(failing={
            'connect-attachment': errors.Unreachable('no route')})
        cleaning = self.cleaner_of(world)
        outcome = cleaning.clean(tuple(world.rows.values()))
        self.assertEqual((set(), {'bdm-1'}),
                         (outcome.reconnected, outcome.taken_out))
        line, = self.lines(event='not-connected', volume='volume-1')
        self.assertIn('its reconnect has not ended', line)
        self.assertEqual(
            [('volume-1', 'cinder-unknown')],
            [(f.volume_id, str(reason))
             for f, reason in world.reported[Kind.WITHHELD]])

    def test_removals_come_before_reconnects(self):
        world = half_moved((disk(2), free(2), record(2)),
                           (disk(3), volume(3, status='reserved'),
                            record(3, **RESERVED)))
        world.attachments['attachment-9'] = record(9, **RESERVED)
        world.volumes['volume-9'] = volume(9, status='reserved')
        self.clean(world)
        self.assertEqual(
            ['destroy bdm-2', 'delete-attachment attachment-2',
             'delete-attachment attachment-9',
             'name-attachment bdm-1 attachment-1',
             'connect-attachment attachment-1',
             'complete-attachment attachment-1',
             'name-attachment bdm-3 attachment-3',
             'connect-attachment attachment-3',
             'complete-attachment attachment-3'],
            [deed for deed in deeds(world)
             if not deed.startswith('disconnect')])

    def test_soft_reboot_withholds_it(self):
        world = half_moved()
        self.assertEqual(frozenset(),
                         self.clean(world, triggers.SOFT_REBOOT))
        self.assert_untouched(world)
        self.assertEqual(1, self.withheld('soft-reboot'))

    def test_observe_mode_only_says_so(self):
        for trigger in (triggers.HARD_REBOOT, triggers.START):
            world = half_moved(running=trigger.mode.may_run)
            self.clean(world, trigger, observe=True)
            self.assert_untouched(world)
            self.assertEqual(1, self.withheld('observe-mode'))

    def test_option_switches_it_off(self):
        world = half_moved()
        self.clean(world, reconnect=False)
        self.assert_untouched(world)
        self.assertEqual(1, self.withheld('not-selected'))
        self.assertIn('[bdm_cleanup] reconnect is false', self.told)

    def test_a_server_that_leaves_its_host_is_not_reconnected(self):
        for trigger in (triggers.MOVE, triggers.SHELVE):
            world = moved_away(running=False, is_here=True)
            self.clean(world, trigger)
            self.assert_untouched(world)
            self.assertNotIn('guest-is-here', world.calls)
            self.assertEqual([], self.lines(event='withheld'))

    def test_a_server_that_arrives_is_connected_by_nova(self):
        for trigger in (triggers.UNSHELVE, triggers.EVACUATE):
            world = half_moved(running=False, is_here=True)
            world.attachments['attachment-9'] = make.attachment(
                id='attachment-9', **RESERVED)
            world.connected.clear()
            cleaning = self.cleaner_of(world, trigger)
            outcome = cleaning.clean(tuple(world.rows.values()))
            self.assertEqual([], world.violations)
            self.assertEqual(['name-attachment bdm-1 attachment-1',
                              'delete-attachment attachment-9'], deeds(world))
            self.assertEqual(frozenset(), outcome.taken_out)

    def test_an_audit_shows_what_a_reboot_would_do(self):
        world = half_moved()
        plan = self.cleaner_of(world, triggers.AUDIT).preview(
            tuple(world.rows.values()))
        self.assertEqual([True], [f.is_reconnect for f in plan.due])
        self.assert_untouched(world)

    def test_limits_of_removals_do_not_stop_it(self):
        for limit in ({'max_removals': 0}, {'max_removals_per_hour': 0}):
            world = half_moved((disk(2), free(2), record(2)))
            world.attachments['attachment-9'] = record(9, **RESERVED)
            world.volumes['volume-9'] = volume(9, status='reserved')
            self.clean(world, **limit)
            self.assert_reconnected(world)
            self.assertEqual(2, self.withheld('over-limit'))
            self.assertIn('bdm-2', world.rows)

    def test_it_uses_nothing_of_an_hourly_limit(self):
        store = os.path.join(self.tempdir(), 'store')
        for _ in range(3):
            # Also what it deletes does not count.
            world = world_of(
                [disk(1)], [volume(1)],
                [record(1, **RESERVED), record(1, id='attachment-2')])
            self.clean(world, store=store, max_removals_per_hour=1)
            self.assert_reconnected(world)
        journal = Journal(store)
        for kind in (MAPPINGS, ATTACHMENTS):
            self.assertEqual(('', 0), journal.most_charged(kind))

    def test_lock_of_an_administrator_withholds_it(self):
        world = half_moved(server=make.server(is_locked=True))
        self.clean(world)
        self.assert_untouched(world)
        self.assertEqual(1, self.withheld('server-locked'))

    def test_no_answer_about_locks_or_swaps_withholds_it(self):
        for call in ('server', 'swaps'):
            world = half_moved(failing={call: RuntimeError('it is away')})
            self.clean(world)
            self.assert_untouched(world)

    def test_disk_that_a_second_look_does_not_confirm_is_left(self):
        changes = (
            lambda world: world.change('attachment-1', status='attaching'),
            lambda world: world.set_status('volume-1', 'detaching'),
            lambda world: world.rows.update({'bdm-1': disk(
                1, attachment_id='attachment-2')}))
        for change in changes:
            world = half_moved()
            world.meanwhile['power-off'] = lambda w=world, c=change: c(w)
            self.clean(world)
            self.assertEqual([], deeds(world))
            self.assertEqual(1, self.withheld('second-look-differs'))

    def test_nothing_is_recorded_and_nothing_is_done(self):
        world = half_moved()
        self.clean(world, store=self.unusable())
        self.assertEqual([], world.changes)
        self.assertEqual(1, self.withheld('journal-unwritable'))

    def test_record_says_what_was_done(self):
        world = half_moved()
        self.clean(world)
        entry, = self.entries()
        self.assertEqual(('done', (), 0, 0), (
            entry.outcome, entry.removed, entry.removals,
            entry.carried_out))
        action, = entry.record['actions']
        self.assertEqual(('reconnect', 'reserved-only', 'bdm-1'), (
            action['kind'], action['reason'], action['bdm']['uuid']))
        self.assertEqual([
            ('power-off', 'done'), ('second-look', 'done'),
            ('disconnect', 'done'), ('create-attachment', 'skipped'),
            ('name-attachment', 'done'), ('connect-attachment', 'done'),
            ('complete-attachment', 'done'), ('disconnect', 'skipped')],
            [(s.name, s.outcome) for s in entry.steps])

    def test_event_counter_and_lines_are_those_of_a_reconnect(self):
        world = half_moved()
        counters = fakes.Counters()
        cleaning = self.cleaner_of(world)
        cleaning.log.counters = counters
        cleaning.clean(tuple(world.rows.values()))
        self.assertEqual(({('reserved-only', 'hard_reboot'): 1}, {}, {}), (
            counters.reconnects, counters.removals, counters.refusals))
        self.assertEqual(
            [('volume-1', 'reserved-only')],
            [(f.volume_id, str(reason))
             for f, reason in world.reported[Kind.RECONNECTED]])
        self.assertEqual([], world.reported[Kind.REMOVED])
        for event in ('reconnecting', 'reconnected'):
            self.assertEqual(1, len(self.lines(
                event=event, reason='reserved-only', volume='volume-1')))


class PlaceTest(CleanerTestCase):
    """Proofs that the guest is here, and on no other host."""

    def test_it_is_asked_once_while_the_guest_is_on(self):
        world = moved_away(is_here=True)
        self.clean(world)
        asked = [call for call in world.calls
                 if call in ('guest-is-here', 'power-off')]
        self.assertEqual(['guest-is-here', 'power-off'], asked)
        self.assertEqual(['new-1'], [*world.attachments])

    def test_a_guest_that_may_be_elsewhere_keeps_its_attachment(self):
        world = moved_away()
        # The address is that of the other host.
        self.assertEqual({'bdm-1'}, self.clean(world))
        self.assert_untouched(world)
        self.assertEqual(1, world.calls.count('guest-is-here'))

    def test_a_guest_without_the_disk_keeps_its_attachment(self):
        world = moved_away(is_here=True, left_out={'bdm-1'})
        self.assertEqual({'bdm-1'}, self.clean(world))
        self.assert_untouched(world)

    def test_journal_tells_that_the_guest_had_a_disk_that_was_left_out(self):
        store = os.path.join(self.tempdir(), 'journal', 'store')
        world = moved_away(is_here=True, failing={
            'server': RuntimeError('no conductor')})
        self.clean(world, store=store)
        self.assertEqual(['attachment-1'], [*world.attachments])
        # The guest comes back without it.
        world.failing = {}
        world.left_out = {'bdm-1'}
        self.clean(world, store=store)
        self.assertEqual(['new-1'], [*world.attachments])

    def test_journal_keeps_the_proof_once_and_only_where_it_is_needed(self):
        store = os.path.join(self.tempdir(), 'journal', 'store')
        world = moved_away(is_here=True)
        for _ in range(2):
            self.clean(world, store=store, reconnect=False)
            world.left_out = {'bdm-1'}
            self.assertEqual(1, len(self.entries()))
        # A disk that the guest comes back with needs none.
        given = world_of([disk(1)], [volume(1)], [
            record(1, status='reserved', connected=False)], is_here=True)
        self.assertEqual(frozenset(), self.clean(given, reconnect=False))
        self.assertEqual([], list(self.entries()))

    def test_no_answer_of_the_hypervisor_proves_nothing(self):
        world = moved_away(is_here=True, failing={
            'guest-is-here': RuntimeError('libvirt is away')})
        self.clean(world)
        self.assert_untouched(world)
        line, = self.lines(event='unplaced')
        self.assertIn('libvirt is away', line)

    def test_completed_attachment_is_judged_by_what_was_seen_before(self):
        """Power off undefines what the hypervisor could tell."""
        for is_here, left in ((True, ['new-1']), (False, ['attachment-1'])):
            world = world_of(
                [disk(1)], [volume(1, status='attaching')],
                [record(1, status='attaching')],
                hosts={'attachment-1': make.OTHER_HOST}, is_here=is_here)
            world.meanwhile['power-off'] = lambda w=world: setattr(
                w, 'is_here', not w.is_here)
            cleaning = self.cleaner_of(world)
            cleaning.clean(tuple(world.rows.values()))
            self.assertEqual(left, [*world.attachments])

    def test_it_is_not_asked_where_it_decides_nothing(self):
        for world in (half_moved(), broken(), world_of(
                [disk(1)], [volume(1)], [record(1)])):
            self.clean(world)
            self.assertNotIn('guest-is-here', world.calls)


def swapped(had='volume-2', **others):
    """Return a world in which nova-compute died in the swap of a disk.

    :param had: the volume that the guest has; None: it is not known
    """
    world = world_of(
        [disk(1)], [volume(1, status='detaching'), volume(2)],
        [record(1), record(2)], is_here=True, swaps=facts.Ending.FAILURE,
        **others)
    world.connected = {had or 'volume-2'}
    if had:
        world.sources = {'bdm-1': facts.Source(make.addresses(had))}
        # Nova defines its domain again only when the swap is over.
        world.meanwhile['power-off'] = world.sources.clear
    return world


class SwapTest(CleanerTestCase):
    """The end of a swap in which nova-compute died."""

    def setUp(self):
        super().setUp()
        self.store = os.path.join(self.tempdir(), 'journal', 'store')

    def clean(self, world, *arguments, **named):
        return super().clean(world, *arguments, **{
            'store': self.store, **named})

    def assert_new(self, world):
        """Check that the server has the new volume, and not the old one."""
        row, = (b for b in world.rows.values() if b.uuid == 'bdm-1')
        self.assertEqual(
            ('volume-2', 'attachment-2', make.addresses('again volume-2')),
            (row.volume_id, row.attachment_id, row.addresses))
        self.assertEqual(['attachment-2'], [*world.attachments])
        self.assertEqual(
            ('available', 'in-use'), tuple(
                world.volumes[v].status for v in ('volume-1', 'volume-2')))

    def assert_old(self, world):
        """Check that the server has the old volume, and not the new one."""
        row, = (b for b in world.rows.values() if b.uuid == 'bdm-1')
        self.assertEqual(('volume-1', 'attachment-1'),
                         (row.volume_id, row.attachment_id))
        self.assertEqual(['attachment-1'], [*world.attachments])
        self.assertEqual(
            ('in-use', 'available'), tuple(
                world.volumes[v].status for v in ('volume-1', 'volume-2')))

    def test_mapping_takes_the_disk_that_the_guest_has(self):
        world = swapped()
        self.assertEqual(frozenset(), self.clean(world))
        self.assertEqual([
            'disconnect bdm-1', 'connect-attachment attachment-2',
            'complete-attachment attachment-2', 'disconnect bdm-1',
            'delete-attachment attachment-1'], deeds(world))
        self.assert_new(world)
        self.assertEqual(
            [('volume-2', 'swap-interrupted')],
            [(f.volume_id, str(reason))
             for f, reason in world.reported[Kind.RECONNECTED]])
        self.assertEqual(1, len(self.lines(
            event='reconnecting', reason='swap-interrupted',
            volume='volume-1')))

    def test_swap_that_the_guest_has_not_made_is_undone(self):
        world = swapped('volume-1')
        self.assertEqual(frozenset(), self.clean(world))
        self.assertEqual([
            'connect-attachment attachment-2', 'disconnect attachment-2',
            'delete-attachment attachment-2', 'roll-detaching-back volume-1'],
            deeds(world))
        self.assert_old(world)

    def test_attachment_that_only_reserves_is_deleted(self):
        for had in ('volume-1', None):
            world = swapped(had)
            world.connected = {'volume-1'}
            world.change('attachment-2', **RESERVED)
            world.set_status('volume-2', 'reserved')
            self.clean(world)
            self.assertEqual(['delete-attachment attachment-2',
                              'roll-detaching-back volume-1'], deeds(world))
            self.assert_old(world)

    def test_disk_that_is_not_known_is_not_connected(self):
        world = swapped(None)
        self.assertEqual({'bdm-1'}, self.clean(world))
        self.assertEqual([], world.changes)
        self.assertEqual(1, len(self.lines(
            event='kept', reason='swap-interrupted', volume='volume-1')))

    def test_a_failure_at_each_step_is_ended_by_the_next_reboot(self):
        for had, check in (('volume-2', self.assert_new),
                           ('volume-1', self.assert_old)):
            world = swapped(had)
            self.clean(world)
            # Without the last one, nothing tells later what the guest had.
            steps = [what for what in world.timeline if what[0] not in (
                'look', 'server', 'swaps', 'last-swap', 'journal-begin')]
            begun = steps.index(('bdms',))
            for number, step in enumerate(steps):
                self.fail_and_reboot(had, step, check, has_domain=True)
                if number > begun:
                    self.fail_and_reboot(had, step, check, has_domain=False)

    def fail_and_reboot(self, had, step, check, has_domain):
        """Fail at one step, and reboot twice more.

        :param has_domain: Nova goes on, and starts the guest; otherwise
            nova-compute dies
        """
        self.store = os.path.join(self.tempdir(), 'journal', 'store')
        world = swapped(had)
        world.failing = {step: RuntimeError('injected')}
        left_out = self.clean(world)
        if had == 'volume-2' and world.rows['bdm-1'].volume_id == 'volume-1':
            # The old one is never started again.
            self.assertEqual({'bdm-1'}, left_out, step)
        world.failing = {}
        for _ in range(2):
            world.running = True
            # What a start has left out is not in the guest.
            world.left_out = set(left_out)
            world.sources = {'bdm-1': facts.Source(
                world.rows['bdm-1'].addresses)} if (
                    has_domain and not left_out) else {}
            left_out = self.clean(world)
        self.assertEqual(frozenset(), left_out, step)
        check(world)

    def test_disk_that_was_connected_after_the_swap_is_given(self):
        """``nova-manage volume_attachment refresh`` of a server that is off.

        Its domain, which Nova defines again at the start, has the former
        address.
        """
        for trigger, silent in itertools.product(
                (triggers.HARD_REBOOT, triggers.START), (False, True)):
            world = world_of(
                [disk(1, updated_at=make.ago(60))], [volume(1)], [record(1)],
                is_here=True, swaps=facts.Ending.FAILURE)
            if silent:
                world.failing = {'look': errors.Unreachable('silent')}
            world.running = False
            world.last_swap = make.ago(100 * 86400).timestamp()
            world.sources = {'bdm-1': facts.Source(
                make.addresses('former'), path='/dev/disk/by-path/x')}
            self.assertEqual(frozenset(), self.clean(world, trigger))
            self.assertEqual([], self.lines(reason='swap-interrupted'))

    def test_journal_does_not_count_after_another_swap(self):
        world = swapped(failing={'disconnect': RuntimeError('injected')})
        self.assertEqual({'bdm-1'}, self.clean(world))
        world.failing = {}
        world.last_swap = make.NOW.timestamp() + 10 ** 9
        self.assertEqual({'bdm-1'}, self.clean(world))
        self.assertIn('attachment-1', world.attachments)
        # Nor if the mapping was given another attachment by hand.
        world.last_swap = 0.0
        world.rows['bdm-1'] = disk(1, attachment_id='attachment-9')
        self.assertEqual({'bdm-1'}, self.clean(world))
        self.assertIn('attachment-1', world.attachments)

    def test_third_disk_is_remembered_once(self):
        """Nova has rolled the swap back, and the guest has made it."""
        world = swapped('volume-9')
        del world.attachments['attachment-2']
        world.set_status('volume-1', 'in-use')
        for _ in range(3):
            self.assertEqual({'bdm-1'}, self.clean(world))
            self.assertEqual(1, len(self.entries()))
            # The guest has come back without any.
            world.sources = {}
        self.assertEqual([], world.changes)
        # An operator has chosen.
        world.rows['bdm-1'] = disk(1, attachment_id='attachment-7')
        world.attachments = {'attachment-7': record(1, id='attachment-7')}
        self.assertEqual(frozenset(), self.clean(world))

    def test_healthy_disk_stays_after_a_swap_that_failed(self):
        world = swapped('volume-1')
        del world.attachments['attachment-2']
        world.set_status('volume-1', 'in-use')
        self.assertEqual(frozenset(), self.clean(world))
        self.assertEqual([], world.changes)
        self.assertEqual([], self.lines(reason='swap-interrupted'))

    def test_swap_that_may_be_under_way_is_left(self):
        world = swapped('volume-1')
        world.swaps = facts.Ending.NONE
        world.change('attachment-2', **RESERVED)
        world.set_status('volume-2', 'reserved')
        self.assertEqual(frozenset(), self.clean(world))
        self.assertEqual([], world.changes)

    def test_a_start_ends_it_too(self):
        for had, check in (('volume-2', self.assert_new),
                           ('volume-1', self.assert_old)):
            world = swapped(had, running=False)
            world.meanwhile = {}
            self.assertEqual(frozenset(), self.clean(world, triggers.START))
            check(world)

    def test_interrupted_swap_is_withheld_like_a_reconnect(self):
        for arguments in ({'observe': True}, {'reconnect': False},
                          {'trigger': triggers.SOFT_REBOOT}):
            world = swapped()
            left_out = self.clean(world, **arguments)
            self.assertEqual([], world.changes)
            # The old disk is not started, and an observer filters nothing.
            self.assertEqual(
                set() if arguments.get('observe') else {'bdm-1'}, left_out)

    def test_guest_that_may_be_elsewhere_ends_nothing(self):
        for failing in ({}, {'guest-is-here': RuntimeError('no libvirt')}):
            self.store = os.path.join(self.tempdir(), 'journal', 'store')
            world = swapped(failing=failing)
            world.is_here = bool(failing)
            for _ in range(2):
                self.assertEqual({'bdm-1'}, self.clean(world))
                self.assertEqual([], world.changes)
                # The guest comes back, without the disk.
                world.sources = {}
            # Now it is certainly here.
            world.failing, world.is_here = {}, True
            self.assertEqual(frozenset(), self.clean(world))
            self.assert_new(world)

    def test_silence_of_cinder_does_not_bring_the_old_disk_back(self):
        for ending in (facts.Ending.FAILURE, facts.Ending.NONE):
            self.store = os.path.join(self.tempdir(), 'journal', 'store')
            world = swapped(failing={'look': errors.Unreachable('no route')})
            world.swaps = ending
            for _ in range(2):
                self.assertEqual({'bdm-1'}, self.clean(world))
                world.sources = {}
            world.failing, world.swaps = {}, facts.Ending.FAILURE
            self.assertEqual(frozenset(), self.clean(world))
            self.assert_new(world)

    def test_silence_of_cinder_takes_no_other_disk(self):
        for values in ({'swaps': facts.Ending.SUCCESS}, {'sources': {}},
                       {'sources': {'bdm-1': facts.Source(
                           make.addresses('volume-1'))}}):
            world = swapped(failing={'look': errors.Unreachable('no route')})
            for name, value in values.items():
                setattr(world, name, value)
            self.assertEqual(frozenset(), self.clean(world))

    def test_silent_hypervisor_withholds_it(self):
        world = swapped(failing={'sources': RuntimeError('libvirt is away')})
        self.assertEqual({'bdm-1'}, self.clean(world))
        self.assertEqual([], world.changes)


class JournalTest(CleanerTestCase):
    """Steps that cannot be recorded, which are not done."""

    def test_an_unwritable_journal_and_nothing_is_done(self):
        world, store = broken(), self.unusable()
        self.assertEqual(DANGLING, self.clean(world, store=store))
        self.assertEqual([], world.changes)
        self.assertEqual(8, self.withheld('journal-unwritable'))
        [line] = self.lines(event='unrecorded', reason='journal-unwritable')
        self.assertIn(store, line)

    def test_a_row_that_cannot_be_recorded_and_nothing_is_done(self):
        world = broken()
        world.meanwhile['server'] = lambda: world.rows.pop('bdm-2')
        self.assertEqual(DANGLING, self.clean(world))
        self.assert_untouched(world)

    def test_a_journal_that_fails_half_way_leaves_no_disk_half_way(self):
        world = broken(failing={'journal-append': OSError('No space left')})
        self.clean(world)
        self.assertEqual({'bdm-root', 'bdm-1'}, set(world.rows))
        # One line is enough.
        self.assertEqual(1, len(self.lines(event='unrecorded')))
        [entry] = self.entries()
        self.assertEqual('interrupted', entry.outcome)

    def test_the_plan_holds_all_that_undoing_needs(self):
        world = broken()
        row = world.rows['bdm-4']
        dependent = world.attachments['attachment-4']
        self.clean(world)
        [entry] = self.entries()
        self.assertEqual(7, entry.removals)
        self.assertEqual(make.SERVER, entry.record['server'])
        [action] = [a for a in entry.record['actions']
                    if a.get('bdm', {}).get('uuid') == 'bdm-4']
        self.assertEqual('remove-bdm', action['kind'])
        self.assertEqual('volume-available', action['reason'])
        self.assertTrue(action['explanation'])
        self.assertEqual(row.device_name, action['bdm']['device_name'])
        self.assertEqual(make.SERVER, action['bdm']['instance_uuid'])
        self.assertEqual([{
            'id': dependent.id, 'volume_id': 'volume-4',
            'server_id': make.SERVER, 'status': 'attached',
            'connected': True}], action['attachments'])
        self.assertEqual(
            {'attachment-7', 'attachment-8'},
            {a['attachment']['id'] for a in entry.record['actions']
             if a['kind'] == 'delete-attachment'})
        self.assertEqual(
            {'reason': 'healthy', 'withheld': None, 'volume': 'volume-1',
             'attachment': 'attachment-1', 'device': '/dev/vdb',
             'explanation': 'attached to this server'},
            [f for f in entry.record['findings']
             if f['volume'] == 'volume-1'][0])

    def test_every_step_is_recorded(self):
        world = world_of([disk(4), disk(9)], [free(4), free(9)], [record(4)],
                         neighbours=['volume-9'])
        self.clean(world)
        [entry] = self.entries()
        self.assertEqual('done', entry.outcome)
        self.assertEqual(('bdm-4', 'bdm-9'), entry.removed)
        self.assertEqual(
            [('power-off', 'done'), ('second-look', 'done'),
             ('disconnect', 'done'), ('destroy', 'done'),
             ('delete-attachment', 'done'),
             ('disconnect', 'skipped'), ('destroy', 'done')],
            [(s.name, s.outcome) for s in entry.steps])

    def test_no_other_step_is_recorded(self):
        self.clean(broken())
        [entry] = self.entries()
        self.assertEqual(
            {'power-off', 'second-look', 'disconnect', 'destroy',
             'delete-attachment'}, {s.name for s in entry.steps})

    def test_entry_of_a_part_has_the_outcome_partly(self):
        """Check plans of mappings and plans of attachments."""
        for world, removed in (
                (reset(failing={'delete-attachment': RuntimeError('hung')}),
                 ('bdm-4',)),
                (world_of([], [volume(7), volume(8)],
                          [record(7, **RESERVED), record(8)],
                          failing={'former': RuntimeError('no conductor')}),
                 ())):
            self.clean(world)
            [entry] = self.entries()
            self.assertEqual(('partly', removed),
                             (entry.outcome, entry.removed))

    def test_a_failed_step_is_recorded_with_its_error(self):
        world = world_of(
            [disk(4), disk(5)], [free(4), free(5)], failing={
                ('disconnect', 'bdm-4'): RuntimeError(
                    "flush failed, {'auth_password': 'hush'}")})
        self.clean(world)
        [entry] = self.entries()
        [step] = [s for s in entry.steps if s.outcome == 'failed']
        self.assertEqual('disconnect', step.name)
        self.assertIn('flush failed', step.subject['detail'])
        self.assertNotIn('hush', json.dumps(step.subject))
        self.assertNotIn('hush', self.told)
