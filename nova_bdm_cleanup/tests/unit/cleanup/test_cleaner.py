# SPDX-License-Identifier: Apache-2.0
"""Look, plan, act, look again: whole cleanups of a world in memory."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import json
import os
import stat
from unittest import mock

import hypothesis
from hypothesis import strategies as st

from nova_bdm_cleanup.cleanup import cleaner, loglines, move_triggers, triggers
from nova_bdm_cleanup.cleanup.ports import RebootLost
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.deadline import Deadline, NotBegun, TimedOut
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Policy
from nova_bdm_cleanup.rules.world import KNOWN
from nova_bdm_cleanup.store.records import Records
from nova_bdm_cleanup.tests.unit import base, make, worlds
from nova_bdm_cleanup.tests.unit.cleanup import fakes


def disk(number, **values):
    """The mapping of the volume of that number."""
    return make.bdm(**{
        'uuid': 'bdm-%d' % number, 'volume_id': 'volume-%d' % number,
        'attachment_id': 'attachment-%d' % number, **values})


def record(number, **values):
    """The attachment of the volume of that number."""
    return make.attachment(**{
        'id': 'attachment-%d' % number, 'volume_id': 'volume-%d' % number,
        **values})


def volume(number, **values):
    return make.volume(id='volume-%d' % number, **values)


def healthy():
    return fakes.World(
        [make.root(), disk(1), disk(2)], [volume(1), volume(2)],
        [record(1), record(2)])


#: What dangles in the world below.
DANGLING = frozenset(('bdm-2', 'bdm-3', 'bdm-4', 'bdm-5', 'bdm-6', 'bdm-9'))


def broken():
    """One server with everything that can be cleaned up."""
    return fakes.World(
        [make.root(), disk(1), disk(2), disk(3), disk(4), disk(5),
         disk(6, attachment_id=None), disk(9)],
        [volume(1), volume(3, status='available'),
         volume(4, status='available'), volume(5),
         volume(6, status='available'),
         volume(7), volume(8, status='reserved'),
         volume(9, status='available')],
        [record(1),                                     # healthy
         # 2: the volume does not exist
         # 3: available
         record(4),                                     # left over
         record(5, id='attachment-55',                  # attached elsewhere
                server_id=make.OTHER_SERVER),
         record(6, connected=False),                    # left over, legacy
         record(7),                                     # stale
         record(8, status='reserved', connected=False),
         # 9: available, and shared on this host
         ],
        neighbours=['volume-9'])


def reset():
    """One disk whose volume somebody set to available, and nothing else."""
    return fakes.World([make.root(), disk(4)],
                       [volume(4, status='available')], [record(4)])


class CleanerTestCase(base.TestCase):

    TRIGGER = triggers.HARD_REBOOT

    def setUp(self):
        super().setUp()
        self.useFixture(base.NoSyncing())
        self.path = os.path.join(self.tempdir(), 'journal', 'store')
        self.time = 0.0

    def clean(self, world, soft=False, service_token=True,
              sees_all=True, path=None, trigger=None, **options):
        """The cleanup of one reboot, or of something else."""
        policy = Policy(**options)
        trigger = trigger or (
            triggers.SOFT_REBOOT if soft else self.TRIGGER)
        journal = world.journal(path or self.path)
        try:
            cleaning = cleaner.Cleaner(
                fakes.Host(world),
                fakes.Cinder(world, service_token, sees_all), journal,
                loglines.LogLines(None, 'req-1', trigger), policy, trigger,
                Deadline(policy.timeout, lambda: self.time),
                lambda: make.NOW)
            act = cleaning.report if soft else cleaning.clean
            return act(make.server(), tuple(world.rows.values()))
        finally:
            self.assertEqual([], world.violations)

    def entries(self):
        return list(Records(self.path).entries())

    def lines(self, **fields):
        """The audit lines that have these fields."""
        wanted = {'%s=%s' % item for item in fields.items()}
        return [line for line in self.log.output.splitlines()
                if wanted <= set(line.replace(': ', ' ').split())]


class LookTest(CleanerTestCase):
    """What is asked, and when nothing follows."""

    def test_healthy_server_costs_one_look(self):
        """And does not wait for a lock."""
        for trigger, soft in ((triggers.HARD_REBOOT, False),
                              (triggers.HARD_REBOOT, True),
                              (triggers.START, False)):
            world = healthy()
            world.running = trigger.switches_off
            self.assertEqual(frozenset(), self.clean(
                world, soft=soft, trigger=trigger))
            self.assertEqual([('look',)], world.timeline)
        self.assertEqual('', self.log.output)
        self.assertFalse(os.path.exists(self.path))

    def test_findings_without_an_action_are_told(self):
        world = fakes.World([make.root(), disk(1)], [volume(1)], [])
        self.clean(world)
        self.assertEqual([('look',)], world.timeline)
        self.assertEqual(1, len(self.lines(
            event='kept', reason='status-contradiction', volume='volume-1')))

    def test_no_answer_changes_nothing(self):
        for error, reason in (
                (errors.Unreachable('no route'), 'cinder-unknown'),
                (errors.BadAnswer('half a list'), 'cinder-unknown'),
                (errors.Refused('no role'), 'cinder-unknown'),
                (errors.Unusable('no catalogue'), 'cinder-unknown'),
                (errors.ProjectHidden('not ours'), 'cannot-see-project'),
                (TimedOut('too late'), 'timed-out'),
                (RuntimeError('a bug'), 'step-failed')):
            world = broken()
            world.failing['look'] = error
            self.assertEqual(frozenset(), self.clean(world))
            self.assertEqual([], world.changes)
            [line] = self.lines(event='skipped', reason=reason)[-1:]
            self.assertIn(str(error), line)
            self.assertFalse(os.path.exists(self.path))

    def test_too_many_attachments_are_said_once(self):
        world = broken()
        world.is_cut = True
        self.clean(world)
        self.assertEqual(2, world.timeline.count(('look',)))
        self.assertEqual(1, len(self.lines(
            event='unread', reason='over-limit')))
        # What was shown of them is acted on.
        self.assertNotEqual([], world.changes)

    def test_observe_mode_reports_only(self):
        world = broken()
        self.assertEqual(frozenset(), self.clean(world, observe=True))
        self.assertEqual([('look',), ('server',), ('swaps',)],
                         world.timeline)
        self.assertEqual(8, self.log.output.count('(observe-mode)'))
        self.assertFalse(os.path.exists(self.path))

    def test_observe_mode_shows_what_enforcing_would_refuse(self):
        for policy, server, reason in (
                ({}, make.server(keep=True), 'opted-out'),
                ({}, make.server(locked_by_admin=True), 'observe-mode'),
                ({'max_removals': 1}, make.server(), 'over-limit')):
            world = broken()
            world.server = server
            self.clean(world, observe=True, **policy)
            self.assertIn('(%s)' % reason, self.log.output)
        world = fakes.World([make.root(), disk(2), disk(3)])
        self.clean(world, observe=True)
        self.assertIn('(cinder-suspect)', self.log.output)

    def test_a_reboot_that_lost_the_race_changes_nothing(self):
        world = broken()
        world.rebooting = False
        self.assertEqual(DANGLING, self.clean(world))
        self.assertEqual(['look', 'server', 'swaps'], world.calls)
        self.assertEqual(8, self.log.output.count('(reboot-lost)'))

    def test_a_server_whose_state_nobody_knows(self):
        world = broken()
        world.failing['server'] = RuntimeError('conductor is away')
        self.assertEqual(frozenset(), self.clean(world))
        self.assertEqual([], world.changes)

    def test_the_metadata_of_the_server_is_read_anew(self):
        world = broken()
        world.server = make.server(keep=True)
        # It keeps no disk that Cinder attaches to somebody else.
        self.assertEqual({'bdm-5'}, self.clean(world))
        self.assertEqual([('power-off',), ('disconnect', 'bdm-5'),
                          ('destroy', 'bdm-5')], world.changes)
        self.assertEqual(7, self.log.output.count('(opted-out)'))

    def test_a_lock_by_an_administrator_is_read_anew(self):
        world = fakes.World([make.root()], [volume(1)], [record(1)])
        world.server = make.server(locked_by_admin=True)
        self.clean(world)
        self.assertEqual([], world.changes)

    def test_credentials_of_the_project_prove_less(self):
        world = broken()
        self.clean(world, sees_all=False)
        self.assertEqual({'bdm-3', 'bdm-4', 'bdm-5', 'bdm-6', 'bdm-9'},
                         {what[1] for what in world.changes
                          if what[0] == 'destroy'})
        self.assertIn('bdm-2', world.rows)
        self.assertIn('attachment-7', world.attachments)


class SoftRebootTest(CleanerTestCase):
    """Nothing is removed; what would be is not handed to the driver."""

    def test_what_a_cleanup_would_remove(self):
        world = broken()
        self.assertEqual(DANGLING, self.clean(world, soft=True))
        look = ['look', 'server', 'swaps']
        self.assertEqual([*look, 'bdms', *look],
                         world.calls)
        self.assertEqual(8, self.log.output.count('(soft-reboot)'))
        self.assertFalse(os.path.exists(self.path))
        self.assertEqual(DANGLING, self.clean(world))

    def test_what_a_cleanup_would_leave(self):
        for policy, server, reason, count in (
                ({'observe': True}, make.server(), 'observe-mode', 8),
                # Attachments have a limit of their own.
                ({'max_removals': 1}, make.server(), 'over-limit', 6)):
            world = broken()
            world.server = server
            self.assertEqual(frozenset(),
                             self.clean(world, soft=True, **policy))
            self.assertEqual(count, self.log.output.count('(%s)' % reason))
        world = fakes.World([make.root(), disk(1), disk(2)])
        self.assertEqual(frozenset(), self.clean(world, soft=True))
        self.assertEqual(2, self.log.output.count('(cinder-suspect)'))

    def test_what_a_second_look_would_leave(self):
        world = fakes.World([make.root(), disk(4), disk(5)],
                            [volume(4, status='available'),
                             volume(5, status='available')], [record(4)])
        world.meanwhile['bdms'] = (
            lambda: world.set_status('volume-4', 'in-use'))
        self.assertEqual({'bdm-5'}, self.clean(world, soft=True))

    def test_no_answer_at_all_and_nothing_is_withheld(self):
        world = broken()
        world.failing['look'] = errors.Unreachable('no route')
        self.assertEqual(frozenset(), self.clean(world, soft=True))
        world = broken()
        world.failing['bdms'] = RuntimeError('conductor is away')
        # The first look was answered, and not connecting harms nobody.
        self.assertEqual(DANGLING, self.clean(world, soft=True))


class StartTest(CleanerTestCase):
    """The guest is off already, and Nova does not hold its lock."""

    TRIGGER = triggers.START

    def stopped(self, world):
        world.running = False
        return world

    def test_the_same_is_removed_as_in_a_reboot(self):
        world, rebooted = self.stopped(broken()), broken()
        self.assertEqual(
            self.clean(rebooted, trigger=triggers.HARD_REBOOT,
                       path=os.path.join(self.tempdir(), 'j')),
            self.clean(world))
        self.assertEqual(rebooted.state(), world.state())
        self.assertNotIn('power-off', world.calls)
        self.assertNotIn('prepare', world.calls)
        self.assertEqual({'start'},
                         {entry.record['trigger'] for entry in self.entries()})

    def test_under_the_lock_everything_is_looked_at_anew(self):
        world = self.stopped(reset())
        self.clean(world)
        self.assertEqual(
            [('look',), ('server',), ('is-off',), ('lock',), ('bdms',),
             ('look',), ('server',), ('is-off',), ('journal-begin',),
             ('claim',), ('guard', 'volume-4'), ('used-by-others', 'volume-4'),
             ('is-reused', 'volume-4'), ('disconnect', 'bdm-4'),
             ('destroy', 'bdm-4'), ('tidy', 'bdm-4'), ('report',),
             ('delete-attachment', 'attachment-4')],
            [w for w in world.timeline if w != ('journal-append',)])
        self.assertFalse(world.locked)

    def test_what_was_going_on_is_over_under_the_lock(self):
        world = self.stopped(broken())
        world.meanwhile['lock'] = world.rows.clear
        world.attachments.clear()
        self.assertEqual(frozenset(), self.clean(world))
        self.assertEqual([], world.changes)
        self.assertFalse(os.path.exists(self.path))

    def test_somebody_works_on_the_server_for_too_long(self):
        for trigger, told in ((triggers.START, 8),
                              (triggers.HOST_BOOT, 8 + 6)):
            world = self.stopped(broken())
            world.failing['lock'] = TimedOut('the lock: too long')
            self.assertEqual(DANGLING, self.clean(world, trigger=trigger))
            self.assertEqual([], world.changes)
            self.assertEqual(told, self.log.output.count(
                'not acted on (timed-out): the lock: too long'))
        self.assertFalse(os.path.exists(self.path))

    def test_a_guest_that_runs_is_left_alone(self):
        for trigger in (triggers.START, triggers.HOST_BOOT, triggers.SWEEP):
            world = broken()
            # Should Nova start it all the same, then without these.
            self.assertEqual(DANGLING, self.clean(world, trigger=trigger))
            self.assertEqual([], world.changes)
            self.assertIn('(guest-running)', self.log.output)
            self.assertFalse(os.path.exists(self.path))

    def test_a_guest_that_somebody_starts_meanwhile(self):
        for call in ('lock', 'bdms'):
            world = self.stopped(broken())

            def run(world=world):
                world.running = True

            world.meanwhile[call] = run
            self.assertEqual(DANGLING, self.clean(
                world, path=os.path.join(self.tempdir(), 'j')))
            self.assertEqual([], world.changes)

    def test_a_guest_of_which_nobody_knows_whether_it_runs(self):
        world = self.stopped(broken())
        world.failing['is-off'] = RuntimeError('libvirt is away')
        self.assertEqual(frozenset(), self.clean(world))
        self.assertEqual([], world.changes)
        line, = self.lines(event='skipped', reason='step-failed')
        self.assertTrue(line.endswith('nothing is changed, the start goes on'))

    def test_a_start_that_is_no_longer_wanted(self):
        world = self.stopped(broken())
        world.rebooting = False
        self.assertEqual(DANGLING, self.clean(world))
        self.assertEqual(8, self.log.output.count('(start-lost)'))
        world = self.stopped(broken())
        world.failing['claim'] = RebootLost('too late')
        self.clean(world)
        self.assertEqual([], world.changes)
        line, = self.lines(event='failed', reason='start-lost')
        self.assertTrue(line.endswith('the next start tries again'))

    def test_observing_needs_no_lock(self):
        world = self.stopped(broken())
        self.assertEqual(frozenset(), self.clean(world, observe=True))
        self.assertEqual([('look',), ('server',), ('is-off',), ('swaps',)],
                         world.timeline)
        self.assertEqual(8, self.log.output.count('(observe-mode)'))

    def test_no_answer_is_remembered(self):
        world = self.stopped(broken())
        world.failing['look'] = errors.Unreachable('no route')
        cleaning = cleaner.Cleaner(
            fakes.Host(world), fakes.Cinder(world), world.journal(self.path),
            loglines.LogLines(None, 'req-1', triggers.HOST_BOOT), Policy(),
            triggers.HOST_BOOT, Deadline(60), lambda: make.NOW)
        self.assertIsNone(cleaning.unanswered)
        cleaning.clean(make.server(), tuple(world.rows.values()))
        self.assertEqual('no route', str(cleaning.unanswered))


class SweepTest(CleanerTestCase):
    """Nobody waits for the server, until somebody wants it."""

    TRIGGER = triggers.SWEEP

    def stopped(self):
        world = broken()
        world.running = False
        return world

    def test_the_mappings_go_that_a_start_would_remove(self):
        """Stale attachments can wait, as when the host boots."""
        for trigger in (triggers.HOST_BOOT, triggers.SWEEP):
            world = self.stopped()
            self.assertEqual(DANGLING, self.clean(world, trigger=trigger))
            self.assertLess({'attachment-7', 'attachment-8'},
                            set(world.attachments))
            self.assertNotIn('volume-7', self.log.output)
            self.assertFalse(world.running)
            self.assertEqual(trigger.name,
                             self.entries()[-1].record['trigger'])

    def test_each_disk_and_each_row_ask_anew(self):
        world = self.stopped()
        removed = self.clean(world)
        begun = [call for call in world.calls
                 if call in ('claim', 'destroy')]
        self.assertEqual(
            ['claim'] + ['claim', 'claim', 'claim', 'destroy'] * len(removed),
            begun)

    def test_the_definition_of_the_guest_has_it_no_longer(self):
        """Nova does not make it anew: the server stays off."""
        world = self.stopped()
        for mapping in self.clean(world):
            undefined = world.timeline.index(('undefine', mapping))
            self.assertLess(undefined,
                            world.timeline.index(('destroy', mapping)))
            if ('disconnect', mapping) in world.timeline:
                self.assertLess(undefined, world.timeline.index(
                    ('disconnect', mapping)))
        [entry] = self.entries()
        self.assertIn(('undefine', 'done'), [
            (step.name, step.outcome) for step in entry.steps])

    def test_a_definition_that_stays_keeps_the_mapping(self):
        world = self.stopped()
        world.failing['undefine', 'bdm-4'] = RuntimeError('libvirt is gone')
        self.clean(world)
        self.assertIn('bdm-4', world.rows)
        self.assertNotIn(('delete-attachment', 'attachment-4'), world.changes)
        line, = self.lines(event='failed', reason='step-failed')
        self.assertIn(': undefine: libvirt is gone; ', line)

    def test_elsewhere_nova_defines_the_guest_anew(self):
        for trigger in (triggers.HARD_REBOOT, triggers.START,
                        triggers.HOST_BOOT):
            world = broken()
            world.running = trigger.switches_off
            self.assertTrue(self.clean(
                world, path=os.path.join(self.tempdir(), 'j'),
                trigger=trigger))
            self.assertNotIn('undefine', world.calls)

    def test_somebody_wants_it_meanwhile(self):
        world = self.stopped()

        def start():
            world.rebooting = False

        world.meanwhile['destroy'] = start
        self.clean(world)
        # The disk that was begun with is done as a whole, and no other.
        [(_, removed)] = [change for change in world.changes
                          if change[0] == 'destroy']
        self.assertEqual(1, world.calls.count('disconnect'))
        self.assertNotIn(removed, world.rows)
        lines = self.lines(event='failed', reason='sweep-lost')
        self.assertEqual(5, len(lines))
        for line in lines:
            self.assertTrue(line.endswith('the next round tries again'))
        [entry] = self.entries()
        self.assertEqual('partly', entry.outcome)
        # What is over is what the limits of the hour count.
        self.assertEqual(1, world.journal(self.path).spent('removals'))

    def test_somebody_wanted_it_before(self):
        for call in ('server', 'lock', 'journal-begin', 'claim'):
            world = self.stopped()

            def start(world=world):
                world.rebooting = False

            world.meanwhile[call] = start
            self.clean(world, path=os.path.join(self.tempdir(), 'j'))
            self.assertEqual([], world.changes, call)
            self.assertIn('sweep-lost', self.log.output)

    def test_no_answer(self):
        world = self.stopped()
        world.failing['look'] = errors.Unreachable('no route')
        self.assertEqual(frozenset(), self.clean(world))
        line, = self.lines(event='skipped', reason='cinder-unknown')
        self.assertTrue(line.endswith('nothing is changed, the server stays '
                                      'off'))

    def test_time_spent_on_asking(self):
        world = self.stopped()
        now = iter(range(1000))
        cleaning = cleaner.Cleaner(
            fakes.Host(world), fakes.Cinder(world), world.journal(self.path),
            loglines.LogLines(None, 'req-1', triggers.SWEEP), Policy(),
            triggers.SWEEP, Deadline(60), lambda: make.NOW)
        self.assertEqual(0, cleaning.asking)
        with mock.patch('time.monotonic', lambda: float(next(now))):
            cleaning.clean(make.server(), tuple(world.rows.values()))
        self.assertEqual(2, world.calls.count('look'))
        self.assertGreaterEqual(cleaning.asking, 2)


class MoveTest(CleanerTestCase):
    """The server leaves its host, or comes to one."""

    def stopped(self):
        world = broken()
        world.running = False
        return world

    def test_the_mappings_go_that_a_start_would_remove(self):
        for trigger, locks in ((move_triggers.MOVE, 1),
                               (move_triggers.SHELVE, 0),
                               (move_triggers.UNSHELVE, 0)):
            world = self.stopped()
            if trigger.is_hostless:
                world.connected.clear()
            self.assertEqual(DANGLING, self.clean(world, trigger=trigger))
            self.assertEqual(locks, world.calls.count('lock'))
            # Both looks have been taken, with the lock or without.
            self.assertEqual(2, world.calls.count('look'))

    def test_a_server_on_no_host_has_nothing_to_disconnect(self):
        """The addresses are another host's, and somebody's here."""
        world = self.stopped()
        world.connected.clear()
        self.clean(world, trigger=move_triggers.UNSHELVE)
        self.assertNotIn('disconnect', world.calls)
        self.assertNotIn('is-reused', world.calls)

    def test_an_evacuation_removes_nothing(self):
        """The old host comes back, and has to disconnect by the rows."""
        world = broken()
        before = world.state()
        self.assertEqual(DANGLING, self.clean(
            world, soft=True, trigger=move_triggers.EVACUATE))
        self.assertEqual(before, world.state())
        self.assertEqual(6, self.log.output.count('(evacuated)'))
        self.assertEqual(6, len(self.lines(event='not-connected')))

    def foresee(self, world, **options):
        policy = Policy(**options)
        return cleaner.Cleaner(
            fakes.Host(world), fakes.Cinder(world, True, True),
            world.journal(self.path),
            loglines.LogLines(None, 'req-1', move_triggers.MOVE), policy,
            move_triggers.MOVE, Deadline(policy.timeout, lambda: self.time),
            lambda: make.NOW).foresee(
                make.server(), tuple(world.rows.values()))

    def test_what_is_going_to_be_removed_when_the_guest_is_off(self):
        world = broken()
        before = world.state()
        self.assertEqual(DANGLING, {
            f.bdm.uuid for f in self.foresee(world).due})
        self.assertEqual(before, world.state())
        self.assertEqual('', self.log.output)

    def test_what_is_not_going_to_be_removed(self):
        for options, reason in (
                ({'observe': True}, 'observe-mode'),
                ({'max_removals': 1}, 'over-limit'),
                ({'max_removals_per_hour': 1}, 'over-limit')):
            plan = self.foresee(broken(), **options)
            self.assertEqual(frozenset(), frozenset(plan.due))
            self.assertEqual({reason}, {
                str(f.withheld) for f in plan.findings if f.goes})

    def test_the_journal_cannot_be_read(self):
        os.mkdir(os.path.dirname(self.path))
        os.mkdir(self.path)
        self.assertEqual({'journal-unwritable'}, {
            str(f.withheld) for f in self.foresee(broken()).findings
            if f.goes})


class WitnessTest(CleanerTestCase):
    """A Cinder that says that everything is gone has to prove itself."""

    def setUp(self):
        super().setUp()
        self.world = fakes.World([make.root(), disk(1), disk(2)])

    def test_a_volume_of_the_server_is_witness_enough(self):
        world = fakes.World([make.root(), disk(1), disk(2)],
                            [volume(1)], [record(1)])
        self.assertEqual({'bdm-2'}, self.clean(world))
        self.assertNotIn('witnesses', world.calls)

    def test_a_volume_of_another_server_is_witness(self):
        self.world.witnesses = ('volume-7', 'volume-8')
        self.world.volumes['volume-8'] = volume(8)
        self.assertEqual({'bdm-1', 'bdm-2'}, self.clean(self.world))
        # Once for each look.
        self.assertEqual(2, self.world.calls.count('knows-any'))

    def test_a_cinder_that_knows_none_is_suspect(self):
        self.world.witnesses = ('volume-7', 'volume-8')
        self.assertEqual(frozenset(), self.clean(self.world))
        self.assertEqual([], self.world.changes)
        self.assertEqual(2, len(self.lines(
            event='withheld', reason='volume-missing')))
        self.assertIn('(cinder-suspect)', self.log.output)

    def test_the_volumes_of_a_server_bear_witness_for_each_other(self):
        # There is no other server to ask about, and every volume of this one
        # would have to be gone.
        self.assertEqual(frozenset(), self.clean(self.world))
        self.assertNotIn('knows-any', self.world.calls)
        self.assertEqual(2, self.log.output.count('(cinder-suspect)'))

    def test_a_missing_root_bears_witness_against_cinder(self):
        world = fakes.World([disk(1, boot_index=0), disk(2)])
        self.assertEqual(frozenset(), self.clean(world))
        self.assertEqual([], world.changes)

    def test_the_only_volume_far_and_wide(self):
        world = fakes.World([make.root(), disk(1)])
        self.assertEqual({'bdm-1'}, self.clean(world))

    def test_a_witness_that_cannot_be_asked(self):
        self.world.witnesses = ('volume-7',)
        self.world.failing['knows-any'] = errors.Unreachable('no route')
        self.assertEqual(frozenset(), self.clean(self.world))
        self.assertEqual([], self.world.changes)

    def test_a_cinder_that_becomes_suspect(self):
        # It is another one at the second look.
        self.world.witnesses = ('volume-8',)
        self.world.volumes['volume-8'] = volume(8)
        self.world.meanwhile['bdms'] = self.world.volumes.clear
        self.assertEqual(frozenset(), self.clean(self.world))
        self.assertEqual([('power-off',)], self.world.changes)
        self.assertEqual(2, self.log.output.count('(cinder-suspect)'))


class ActTest(CleanerTestCase):
    """What is done, and in which order."""

    def test_everything_that_is_broken_is_cleaned_up(self):
        world = broken()
        released = self.clean(world)

        self.assertEqual(DANGLING, released)
        self.assertEqual({'bdm-root', 'bdm-1'}, set(world.rows))
        self.assertEqual({'attachment-1', 'attachment-55'},
                         set(world.attachments))
        self.assertEqual({'attachment-1', 'attachment-55'}, world.mapped)
        self.assertEqual({'volume-1', 'volume-9'}, world.connected)
        self.assertEqual(
            {'volume-1': 'in-use', 'volume-3': 'available',
             'volume-4': 'available', 'volume-5': 'in-use',
             'volume-6': 'available', 'volume-7': 'available',
             'volume-8': 'available', 'volume-9': 'available'},
            {v.id: v.status for v in world.volumes.values()})
        self.assertEqual(8, len(world.reported))

    def test_the_second_time_there_is_nothing_to_do(self):
        world = broken()
        self.clean(world)
        world.reboot()
        world.timeline.clear()
        self.assertEqual(frozenset(), self.clean(world))
        self.assertEqual([('look',)], world.timeline)

    def test_guest_off_disconnected_row_gone_cinder_told(self):
        world = reset()
        self.clean(world)
        self.assertEqual(
            [('look',), ('server',), ('journal-begin',), ('prepare',),
             ('claim',), ('power-off',), ('bdms',), ('look',), ('server',),
             ('guard', 'volume-4'), ('used-by-others', 'volume-4'),
             ('is-reused', 'volume-4'), ('disconnect', 'bdm-4'),
             ('destroy', 'bdm-4'), ('tidy', 'bdm-4'), ('report',),
             ('delete-attachment', 'attachment-4')],
            [w for w in world.timeline if w != ('journal-append',)])

    def test_a_mapping_too_many_goes_alone(self):
        spare = dataclasses.replace(disk(4), uuid='bdm-5',
                                    has_connection_info=False)
        world = fakes.World([make.root(), disk(4), spare],
                            [volume(4)], [record(4)])
        # Nova's driver is given the other one.
        self.assertEqual({'bdm-5'}, self.clean(world))
        self.assertEqual([('power-off',), ('destroy', 'bdm-5')],
                         world.changes)
        self.assertNotIn('tidy', world.calls)
        self.assertSkipped('another mapping has the disk', bdm='bdm-5')
        self.assertEqual(['volume-4'], [*world.connected])
        removing, removed = self.lines(reason='duplicate-mapping')
        self.assertIn('Removing block device mapping bdm-5', removing)
        self.assertIn('nothing to undo', removed)

    def test_a_swap_is_asked_for_only_where_it_matters(self):
        for bdms, swaps, expected in (
                ([make.root(), disk(4)], (), ['power-off', 'destroy']),
                ([make.root(), disk(4)], (facts.Swap(make.ago(60)),), []),
                ([make.root()], (facts.Swap(make.ago(60)),), [])):
            world = fakes.World(bdms, [volume(4, status='available'),
                                       volume(7)], [record(7)])
            world.swaps = swaps
            path = os.path.join(self.tempdir(), 'j')
            self.clean(world, path=path)
            self.assertEqual(expected, [
                c for c in world.calls if c in expected], world.calls)
            self.assertIn('swaps', world.calls)
            self.assertEqual(bool(swaps), bool(self.lines(
                event='kept', reason='swap-interrupted')))
            if swaps:
                self.assertEqual([], world.changes)
        world = reset()
        self.clean(world)
        self.assertNotIn('swaps', world.calls)

    def test_stale_attachment_of_a_deleted_mapping(self):
        # Somebody deleted the row in the database, or a cleanup died.
        world = fakes.World([make.root()], [volume(7)], [record(7)])
        world.deleted = [disk(7)]
        world.connected = {'volume-7'}
        self.assertEqual(frozenset(), self.clean(world))
        self.assertEqual(
            [('power-off',), ('disconnect', 'bdm-7'),
             ('delete-attachment', 'attachment-7')], world.changes)
        self.assertIn(('tidy', 'bdm-7'), world.timeline)

    def test_nothing_is_disconnected_on_the_word_of_cinder(self):
        # Whoever may make attachments may have them name any device.
        for deleted in ([], [disk(7, attachment_id='attachment-8')],
                        [disk(7, has_connection_info=False)]):
            world = fakes.World([make.root()], [volume(7)], [record(7)])
            world.deleted = deleted
            path = os.path.join(self.tempdir(), 'j')
            self.clean(world, path=path)
            self.assertEqual(
                [('power-off',), ('delete-attachment', 'attachment-7')],
                world.changes)
        self.assertEqual(3, len(self.lines(
            event='left', reason='stale-attachment')))

    def test_nothing_connected_nothing_disconnected(self):
        world = fakes.World(
            [make.root(), disk(1, has_connection_info=False)], [],
            [])
        world.volumes['volume-8'] = volume(8, status='reserved')
        world.attachments['attachment-8'] = record(
            8, status='reserved', connected=False)
        self.clean(world)
        self.assertEqual(
            [('power-off',), ('destroy', 'bdm-1'),
             ('delete-attachment', 'attachment-8')], world.changes)
        self.assertSkipped('not connected', bdm='bdm-1')

    def test_what_is_not_on_this_host(self):
        world = reset()
        world.connected = set()
        self.assertEqual({'bdm-4'}, self.clean(world))
        self.assertEqual(
            ['destroy', 'delete-attachment'],
            [change[0] for change in world.changes
             if change[0] not in ('power-off', 'disconnect')])
        self.assertSkipped('nothing of it is on this host', bdm='bdm-4',
                           volume='volume-4')
        # Nobody has to look after that.
        self.assertEqual([], self.lines(event='left'))

    def test_an_address_that_another_volume_has_is_left_alone(self):
        world = fakes.World(
            [make.root(), disk(4)],
            [volume(4, status='available'), volume(7)],
            [record(4), record(7)])
        world.reused = {'volume-4', 'volume-7'}
        world.deleted = [disk(7)]
        world.connected = set()
        self.assertEqual({'bdm-4'}, self.clean(world))
        self.assertEqual(
            [('power-off',), ('destroy', 'bdm-4'),
             ('delete-attachment', 'attachment-4'),
             ('delete-attachment', 'attachment-7')],
            world.changes)
        [entry] = self.entries()
        self.assertEqual(['bdm-4', 'attachment-7'], [
            s.subject.get('bdm') or s.subject['attachment']
            for s in entry.steps if s.name == 'disconnect'
            and s.outcome == 'skipped'
            and 'another volume' in s.subject['detail']])

    def test_a_mapping_that_dangles_itself_has_no_address(self):
        world = fakes.World(
            [make.root(), disk(4)], [volume(4, status='available')])
        world.reused = {'volume-4'}
        world.neighbour_is_attached = False
        self.assertEqual({'bdm-4'}, self.clean(world))
        self.assertEqual([('power-off',), ('disconnect', 'bdm-4'),
                          ('destroy', 'bdm-4')], world.changes)

    def test_where_cinder_does_not_tell_whose_address_it_is(self):
        world = fakes.World(
            [make.root(), disk(4)], [volume(4, status='available')])
        world.reused = {'volume-4'}
        world.neighbour_is_attached = None
        self.assertEqual({'bdm-4'}, self.clean(world))
        self.assertEqual([('power-off',)], world.changes)
        [line] = self.lines(event='failed')
        self.assertIn('its volume', line)

    def test_stale_attachment_of_another_host_is_not_disconnected_here(self):
        for mappings in ([], [disk(1)]):
            world = fakes.World(
                [make.root(), *mappings], [volume(1)],
                [*([record(1)] if mappings else []),
                 record(1, id='attachment-9')],
                hosts={'attachment-9': make.OTHER_HOST})
            self.clean(world)
            self.assertEqual(
                [('power-off',), ('delete-attachment', 'attachment-9')],
                world.changes)

    def test_a_volume_of_a_neighbour_stays_connected(self):
        world = fakes.World([make.root(), disk(1)], [volume(1)],
                            [record(1, server_id=make.OTHER_SERVER,
                                    id='attachment-2')],
                            neighbours=['volume-1'])
        self.assertEqual({'bdm-1'}, self.clean(world))
        self.assertEqual([('power-off',), ('destroy', 'bdm-1')],
                         world.changes)

    def test_a_stale_attachment_of_a_neighbour_stays_connected(self):
        world = fakes.World([make.root()], [volume(1, multiattach=True)],
                            [record(1)], neighbours=['volume-1'])
        world.deleted = [disk(1)]
        self.clean(world)
        self.assertEqual(
            [('power-off',), ('delete-attachment', 'attachment-1')],
            world.changes)
        self.assertSkipped('another server', attachment='attachment-1')

    def assertSkipped(self, words, **subject):
        """The journal tells that nothing was disconnected, and why."""
        [entry] = self.entries()
        [step] = [s for s in entry.steps if s.name == 'disconnect']
        self.assertEqual('skipped', step.outcome)
        self.assertIn(words, step.subject['detail'])
        self.assertLessEqual(subject.items(), step.subject.items())

    def test_legacy_attachment_is_force_detached_from_this_host(self):
        world = fakes.World(
            [make.root(), disk(6, attachment_id=None)],
            [volume(6, status='available')], [record(6, connected=False)])
        self.clean(world)
        self.assertEqual(
            [('power-off',), ('disconnect', 'bdm-6'),
             ('destroy', 'bdm-6'), ('force-detach', 'attachment-6')],
            world.changes)
        self.assertEqual(set(), world.mapped)

    def test_reserved_attachment_that_lets_a_host_in(self):
        """Cinder would not tell the back end of what is only reserved."""
        world = fakes.World([make.root()], [volume(6, status='reserved')],
                            [record(6, status='reserved')])
        self.clean(world)
        self.assertEqual([('power-off',), (
            'delete-attachment', 'attachment-6')], world.changes)
        self.assertEqual(set(), world.mapped)

    def test_legacy_attachment_of_a_neighbour_is_left(self):
        # The back end would take the volume from the whole host.
        world = fakes.World(
            [make.root(), disk(6, attachment_id=None)],
            [volume(6, status='available')], [record(6, connected=False)],
            neighbours=['volume-6'])
        self.assertEqual({'bdm-6'}, self.clean(world))
        self.assertEqual([('power-off',), ('destroy', 'bdm-6')],
                         world.changes)
        self.assertIn('attachment-6', world.attachments)
        [line] = self.lines(event='failed', attachment='attachment-6') or (
            self.lines(event='failed', volume='volume-6'))
        self.assertIn('by hand', line)

    def test_two_mappings_of_one_volume(self):
        world = fakes.World(
            [make.root(), disk(4, uuid='bdm-5', attachment_id=None,
                               has_connection_info=False), disk(4)],
            [volume(4, status='available')], [record(4)])
        self.assertEqual({'bdm-4', 'bdm-5'}, self.clean(world))
        self.assertEqual({}, world.attachments)

    def test_an_attachment_that_somebody_deleted_meanwhile_is_done(self):
        # Bug 1937084: the detach that raced us was faster.
        world = reset()
        world.meanwhile['delete-attachment'] = (
            lambda: world.drop('attachment-4'))
        self.assertEqual({'bdm-4'}, self.clean(world))
        self.assertNotIn('bdm-4', world.rows)

    def test_a_mapping_that_somebody_deleted_meanwhile_is_done(self):
        world = fakes.World([make.root(), disk(2)])
        world.meanwhile['destroy'] = world.rows.clear
        self.assertEqual({'bdm-2'}, self.clean(world))

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
        self.assertIn('1 of 1 actions complete', finished)
        self.assertIn(entry.id, finished)


class SecondLookTest(CleanerTestCase):
    """What changed while the guest went down is left alone."""

    def setUp(self):
        super().setUp()
        self.world = fakes.World(
            [make.root(), disk(4), disk(5)],
            [volume(4, status='available'), volume(5, status='available'),
             volume(7)],
            [record(4), record(7)])

    def meanwhile(self, change):
        self.world.meanwhile['bdms'] = change

    def test_a_volume_that_is_attached_again(self):
        self.meanwhile(lambda: self.world.set_status('volume-4', 'in-use'))
        self.assertEqual({'bdm-5'}, self.clean(self.world))
        self.assertIn('bdm-4', self.world.rows)
        self.assertIn('attachment-4', self.world.attachments)
        [line] = self.lines(event='withheld', volume='volume-4')
        self.assertIn('(second-look-differs)', line)

    def test_a_mapping_that_is_gone(self):
        self.meanwhile(lambda: self.world.rows.pop('bdm-4'))
        self.assertEqual({'bdm-5'}, self.clean(self.world))
        self.assertNotIn(('disconnect', 'bdm-4'), self.world.changes)
        [entry] = self.entries()
        [step] = [s for s in entry.steps if s.name == 'second-look']
        self.assertEqual({'agreed': 2}, step.subject)
        self.assertEqual('partly', entry.outcome)

    def test_a_mapping_with_another_attachment(self):
        self.meanwhile(lambda: self.world.rows.update({
            'bdm-4': disk(4, attachment_id='attachment-new')}))
        # What it dangles for is another thing, but it does.
        self.assertEqual({'bdm-4', 'bdm-5'}, self.clean(self.world))

    def test_a_stale_attachment_that_a_mapping_claims(self):
        self.meanwhile(lambda: self.world.rows.update({'bdm-7': disk(7)}))
        self.clean(self.world)
        self.assertIn('attachment-7', self.world.attachments)

    def test_the_reboot_is_over(self):
        self.meanwhile(lambda: setattr(self.world, 'rebooting', False))
        self.assertEqual({'bdm-4', 'bdm-5'}, self.clean(self.world))
        self.assertEqual([('power-off',)], self.world.changes)
        self.assertEqual(3, self.log.output.count('(reboot-lost)'))

    def test_somebody_opted_out(self):
        self.meanwhile(lambda: setattr(
            self.world, 'server', make.server(keep=True)))
        self.assertEqual(frozenset(), self.clean(self.world))
        self.assertEqual(3, self.log.output.count('(opted-out)'))

    def test_cinder_gives_no_answer(self):
        for error, reason in (
                (errors.Unreachable('no route'), 'cinder-unknown'),
                (TimedOut('too late'), 'timed-out')):
            self.meanwhile(lambda e=error: self.world.failing.update(look=e))
            self.assertEqual({'bdm-4', 'bdm-5'}, self.clean(self.world))
            self.assertEqual([('power-off',)], self.world.changes)
            self.assertEqual(3, self.log.output.count('(%s)' % reason))
            [line] = self.lines(event='skipped', reason=reason)
            self.assertIn(str(error), line)
            self.world.restart()
            self.world.timeline.clear()

    def test_nova_gives_no_answer(self):
        self.world.failing['bdms'] = RuntimeError('conductor is away')
        self.assertEqual({'bdm-4', 'bdm-5'}, self.clean(self.world))
        self.assertEqual([('power-off',)], self.world.changes)

    def test_what_is_new_waits_for_the_next_time(self):
        self.meanwhile(lambda: self.world.rows.update({'bdm-2': disk(2)}))
        # It is not removed, and not connected either.
        self.assertEqual({'bdm-2', 'bdm-4', 'bdm-5'}, self.clean(self.world))
        self.assertIn('bdm-2', self.world.rows)

    def test_nothing_is_told_twice(self):
        self.world.rows['bdm-8'] = disk(8)
        self.world.volumes['volume-8'] = volume(8)
        self.meanwhile(lambda: self.world.set_status('volume-4', 'in-use'))
        self.clean(self.world)
        for number, event in ((4, 'withheld'), (8, 'kept')):
            self.assertEqual([event], [
                line.split('event=')[1].split()[0]
                for line in self.lines(volume='volume-%d' % number)])


class FailureTest(CleanerTestCase):
    """A failure stops the chain of one disk and never the reboot."""

    def test_power_off_fails_and_nothing_is_done(self):
        world = broken()
        world.failing['power-off'] = RuntimeError('libvirt is away')
        self.assertEqual(DANGLING, self.clean(world))
        self.assertEqual([('power-off', 'failed')], world.changes)
        [entry] = self.entries()
        self.assertEqual('nothing', entry.outcome)

    def test_the_chain_of_one_disk_stops_where_it_fails(self):
        for name, done in (
                ('disconnect', []),
                ('destroy', ['disconnect']),
                ('delete-attachment', ['disconnect', 'destroy'])):
            world = fakes.World(
                [make.root(), disk(4), disk(2)],
                [volume(4, status='available')], [record(4)])
            subject = ('attachment-4' if name == 'delete-attachment'
                       else 'bdm-4')
            world.failing[name, subject] = RuntimeError('no luck')
            # However far it came, the driver does not connect it again.
            self.assertEqual({'bdm-2', 'bdm-4'}, self.clean(world))
            self.assertEqual(
                [(n, 'bdm-4') for n in done] + [(name, subject, 'failed')],
                [w for w in world.changes if w[-1] != 'bdm-2'
                 and w != ('power-off',)])
            # The other disk is cleaned up all the same.
            self.assertNotIn('bdm-2', world.rows)
            self.assertEqual('destroy' in done, 'bdm-4' not in world.rows)
            self.assertIn('attachment-4', world.attachments)
            self.assertEqual('partly', self.entries()[-1].outcome)

    def test_stopped_among_several_left_over(self):
        # Cinder computes the status from what is left; that must be a state
        # in which the disk is offered to nobody.
        for other in ({}, {'status': 'reserved', 'connected': False}):
            world = fakes.World(
                [make.root(), disk(4)], [volume(4, status='available')],
                [record(4), record(4, id='attachment-0', **other),
                 record(4, id='attachment-9', **other)])
            world.failing['delete-attachment', 'attachment-4'] = (
                RuntimeError('no luck'))
            self.assertEqual({'bdm-4'}, self.clean(world))
            self.assertEqual({'attachment-4'}, set(world.attachments))
            self.assertEqual('in-use', world.volumes['volume-4'].status)
            world.restart()
            self.clean(world)
            self.assertEqual({}, world.attachments)
            self.assertEqual('available', world.volumes['volume-4'].status)

    def test_a_sibling_of_what_failed_is_left(self):
        world = fakes.World(
            [make.root(), disk(4), disk(4, uuid='bdm-5')],
            [volume(4, status='available')], [record(4)])
        world.failing['disconnect', 'bdm-4'] = RuntimeError('no luck')
        self.assertEqual({'bdm-4', 'bdm-5'}, self.clean(world))
        self.assertEqual([('power-off',), ('disconnect', 'bdm-4', 'failed')],
                         world.changes)

    def test_a_reboot_that_is_over_before_the_guest_goes_off(self):
        world = broken()
        world.meanwhile['claim'] = lambda: setattr(world, 'rebooting', False)
        self.assertEqual(DANGLING, self.clean(world))
        self.assertEqual([], world.changes)
        self.assertEqual(1, len(self.lines(reason='reboot-lost')))

    def test_neighbours_unknown_and_nothing_is_disconnected(self):
        world = fakes.World([make.root(), disk(2)])
        world.failing['used-by-others'] = RuntimeError('conductor is away')
        # Nova's own reboot would disconnect it without asking anybody.
        self.assertEqual({'bdm-2'}, self.clean(world))
        self.assertEqual([('power-off',)], world.changes)

    def test_a_sibling_that_changed_and_cinder_is_not_told(self):
        # With another attachment it is still the first of the two.
        for changed in ({'has_connection_info': False},
                        {'attachment_id': 'other'}):
            world = fakes.World(
                [make.root(), disk(4), disk(4, uuid='bdm-5')],
                [volume(4, status='available')], [record(4)])
            world.meanwhile['bdms'] = functools.partial(
                world.rows.update, {'bdm-4': disk(4, **changed)})
            self.assertEqual({'bdm-4', 'bdm-5'}, self.clean(world))
            self.assertEqual([('power-off',)], world.changes)

    def test_who_needs_the_disk_is_undecided(self):
        """Then nothing is disconnected, nor is anybody told; yet."""
        for world in (
                reset(),
                fakes.World([make.root()], [volume(4)], [record(4)])):
            if 'bdm-4' not in world.rows:
                world.deleted = [disk(4)]
            world.undecided = {'volume-4'}
            path = os.path.join(self.tempdir(), 'j')
            self.assertEqual({'bdm-4'} & set(world.rows),
                             self.clean(world, path=path))
            self.assertEqual([('power-off',)], world.changes)
            world.undecided = set()
            world.restart()
            self.clean(world, path=path)
            self.assertEqual({'bdm-root'}, set(world.rows))
            self.assertEqual({}, world.attachments)

    def test_a_legacy_attachment_of_which_nobody_knows_who_shares_it(self):
        world = fakes.World([make.root()], [volume(6)],
                            [record(6, connected=False)])
        world.undecided = {'volume-6'}
        self.clean(world)
        self.assertEqual([('power-off',)], world.changes)

    def test_nova_could_not_reboot_anyway(self):
        # Neutron does not answer: the guest must stay as stock leaves it.
        world = broken()
        world.failing['prepare'] = RuntimeError('no Neutron')
        self.assertEqual(DANGLING, self.clean(world))
        self.assertEqual([], world.changes)
        self.assertTrue(world.running)
        [line] = self.lines(event='failed', reason='step-failed')
        self.assertIn('no Neutron', line)

    def test_the_lock_cannot_be_taken(self):
        world = reset()
        world.failing['guard'] = RuntimeError('no lock_path')
        self.assertEqual({'bdm-4'}, self.clean(world))
        self.assertEqual([('power-off',)], world.changes)

    def test_what_belonged_to_a_mapping_cannot_be_removed(self):
        world = reset()
        world.failing['tidy'] = RuntimeError('no libvirt')
        self.assertEqual({'bdm-4'}, self.clean(world))
        self.assertEqual({}, world.attachments)
        [line] = self.lines(event='untidy', volume='volume-4')
        self.assertIn('no libvirt', line)

    def test_cinder_does_not_do_it_and_the_next_look_does(self):
        for error in (errors.BadAnswer('500'), errors.Unreachable('reset'),
                      TimedOut('slow'), RuntimeError('a bug'),
                      errors.ServiceTokenRequired('409'),
                      errors.Refused('401'), NotBegun('late')):
            world = reset()
            world.failing['delete-attachment'] = error
            self.assertEqual({'bdm-4'}, self.clean(world))
            self.assertEqual({'bdm-root'}, set(world.rows))
            world.restart()
            self.assertEqual(set(), world.connected)
            self.assertEqual(frozenset(), self.clean(world))
            self.assertEqual({}, world.attachments)
            self.assertEqual([], world.violations)

    def test_no_service_token(self):
        world = broken()
        released = self.clean(world, service_token=False)
        # By then Nova has no mapping that Cinder would want to protect.
        self.assertEqual(DANGLING, released)
        self.assertEqual({'attachment-1', 'attachment-55'},
                         set(world.attachments))

    def test_the_connector_is_unknown(self):
        world = fakes.World(
            [make.root(), disk(6, attachment_id=None)],
            [volume(6, status='available')], [record(6, connected=False)])
        world.failing['connector'] = RuntimeError('libvirt is away')
        self.assertEqual({'bdm-6'}, self.clean(world))
        self.assertIn('attachment-6', world.attachments)

    def test_an_event_that_cannot_be_shown(self):
        world = fakes.World([make.root(), disk(2)])
        world.failing['report'] = RuntimeError('conductor is away')
        self.assertEqual({'bdm-2'}, self.clean(world))
        self.assertEqual(1, len(self.lines(event='unreported')))
        self.assertEqual('done', self.entries()[0].outcome)

    def undisturbed(self):
        """How it ends, and the number of its moments."""
        world = broken()
        self.clean(world)
        moments = world.moments
        world.reboot()
        return world.state(), moments

    def test_a_crash_at_any_moment_is_made_good_next_time(self):
        """So is a failure: before a call has an effect, and after it."""
        wanted, moments = self.undisturbed()
        self.assertGreater(moments, 80)
        for moment, strike in itertools.product(
                range(1, moments + 1),
                (fakes.Crash(), RuntimeError('no luck'))):
            world = broken()
            world.strike_at, world.strike = moment, strike
            path = os.path.join(self.tempdir(), 'j')
            try:
                self.clean(world, path=path)
            except fakes.Crash:
                pass
            self.assertIn(('struck',), world.timeline)
            story = list(world.timeline)
            world.restart()
            self.clean(world, path=path)
            world.reboot()
            self.assertEqual(wanted, world.state(), (moment, story))


#: Which of two attachments is deleted first decides what the status is then,
#: and the neighbour's legacy attachment stays.
TWO_LEFT_OVER_AND_A_NEIGHBOUR = fakes.World(
    [disk(1), disk(2, attachment_id=None)],
    [volume(1, status='available'), volume(2, status='available')],
    [record(1), record(1, id='attachment-4'), record(2, connected=False)],
    neighbours=['volume-2'])


class PropertiesTest(CleanerTestCase):
    """In every world, however unsound.

    What failed is tried again at each reboot.  By itself nothing fails here
    but legacy attachments of volumes that a neighbour uses: a person has to
    detach them.
    """

    @worlds.profile(share=0.5)
    @hypothesis.given(worlds.worlds(), worlds.policies)
    def test_nothing_forbidden_happens(self, world, policy):
        roots = {b.volume_id: world.ours(b.volume_id)
                 for b in world.rows.values() if b.is_root}
        strangers = [a for a in world.attachments.values()
                     if a.server_id != world.server.uuid]
        self.clean(world, path=os.path.join(self.tempdir(), 'j'),
                   **vars(policy))
        self.assertLessEqual(set(roots), {
            b.volume_id for b in world.rows.values() if b.is_root})
        for attachment in strangers:
            self.assertIn(attachment.id, world.attachments)

    @worlds.profile(share=0.5)
    @hypothesis.given(worlds.worlds())
    def test_a_second_reboot_has_nothing_to_do(self, world):
        path = os.path.join(self.tempdir(), 'j')
        self.clean(world, path=path, max_removals_per_hour=99)
        world.reboot()
        world.timeline.clear()
        self.clean(world, path=path, max_removals_per_hour=99)
        if not world.neighbours:
            self.assertEqual([], world.changes)

    @worlds.profile(share=0.5)
    @hypothesis.given(worlds.worlds(), st.integers(1, 120), st.booleans())
    @hypothesis.example(TWO_LEFT_OVER_AND_A_NEIGHBOUR, 1, False)
    def test_crash_or_failure_and_again(self, world, moment, crash):
        untouched, world = copy.deepcopy(world), copy.deepcopy(world)
        path = os.path.join(self.tempdir(), 'j')
        policy = {'max_removals': 99, 'max_removals_per_hour': 999}
        self.clean(untouched, path=path + '1', **policy)
        hypothesis.assume(moment <= untouched.moments)
        world.strike_at = moment
        if not crash:
            world.strike = RuntimeError('no luck')
        try:
            self.clean(world, path=path + '2', **policy)
        except fakes.Crash:
            pass
        world.restart()
        self.clean(world, path=path + '2', **policy)
        # Nova connected again what a crash left; so it does here.
        world.reboot()
        untouched.reboot()
        rows, *_, connected = world.state()
        wanted, *_, still_connected = untouched.state()
        self.assertEqual((wanted, still_connected), (rows, connected))
        if self.may_delete_stale_attachments(world):
            self.assertEqual(untouched.state(), world.state())

    def may_delete_stale_attachments(self, world):
        """Otherwise what a failure left in Cinder waits for better times."""
        volumes = [world.volumes[a.volume_id]
                   for a in world.attachments.values()
                   if a.server_id == world.server.uuid]
        volumes += [world.volumes[b.volume_id] for b in world.rows.values()
                    if b.volume_id in world.volumes]
        return (any(b.is_root for b in world.rows.values())
                and not world.swaps
                and not world.server.locked_by_admin
                and all(not v.is_migrating and v.status in KNOWN
                        and v.status != 'detaching'
                        # What another project has by now is left alone.
                        and v.project in (None, world.server.project)
                        for v in volumes))


class LimitTest(CleanerTestCase):
    """All or nothing."""

    def test_more_than_one_reboot_may_remove(self):
        world = broken()
        del world.attachments['attachment-7']
        del world.attachments['attachment-8']
        self.assertEqual(frozenset(), self.clean(world, max_removals=5))
        self.assertEqual([], world.changes)
        self.assertEqual(6, self.log.output.count('(over-limit)'))
        self.assertFalse(os.path.exists(self.path))

    def test_attachments_go_all_the_same(self):
        world = broken()
        self.assertEqual(frozenset(), self.clean(world, max_removals=5))
        self.assertEqual(
            [('power-off',), ('delete-attachment', 'attachment-7'),
             ('delete-attachment', 'attachment-8')],
            [c for c in world.changes if c[0] != 'disconnect-attachment'])

    def test_of_many_attachments_some_go_and_few_are_told(self):
        world = broken()
        for number in range(300):
            one = record(7, id='many-%03d' % number, status='reserved',
                         connected=False)
            world.attachments[one.id] = one
        self.clean(world)
        # And the left-over ones of two mappings, of which one names its own.
        self.assertEqual(
            ['attachment-4', 'attachment-6', 'attachment-7',
             *('attachment-8 many-000 many-001 many-002 many-003 '
               'many-004'.split())],
            sorted(c[1] for c in world.changes
                   if c[0] in ('delete-attachment', 'force-detach')))
        self.assertEqual(5, self.log.output.count('(over-limit)'))
        self.assertIn('291 more attachments', self.log.output)
        [entry] = self.entries()
        self.assertEqual(13, len(entry.record['actions']))
        self.assertEqual(19, len(entry.record['findings']))

    def test_more_than_an_hour_may_have(self):
        def dangling(*numbers):
            return fakes.World(
                [make.root(), *map(disk, numbers)],
                [volume(n, status='available') for n in numbers])

        self.assertEqual({'bdm-1', 'bdm-2'}, self.clean(
            dangling(1, 2), max_removals_per_hour=3))
        world = dangling(1, 2)
        self.assertEqual(frozenset(), self.clean(
            world, max_removals_per_hour=3))
        self.assertEqual([], world.changes)
        self.assertEqual(2, self.log.output.count('(over-limit)'))
        self.assertEqual({'bdm-3'}, self.clean(
            dangling(3), max_removals_per_hour=3))

    def test_more_stale_attachments_than_an_hour_may_have(self):
        def stale(*numbers):
            return fakes.World([make.root()], [volume(n) for n in numbers],
                               [record(n) for n in numbers])

        self.clean(stale(1, 2), max_removals_per_hour=3)
        world = stale(3, 4)
        self.clean(world, max_removals_per_hour=3)
        self.assertEqual([], world.changes)
        self.assertEqual(2, self.log.output.count('(over-limit)'))
        world = stale(5)
        self.clean(world, max_removals_per_hour=3)
        self.assertEqual({}, world.attachments)

    def test_the_time_is_over_before_the_first_disk(self):
        world = broken()
        world.meanwhile['power-off'] = lambda: setattr(self, 'time', 60.0)
        self.assertEqual(DANGLING, self.clean(world))
        self.assertEqual([('power-off',)], world.changes)
        self.assertEqual(
            8, len(self.lines(event='failed', reason='timed-out')))

    def test_the_time_is_over_after_the_first_disk(self):
        # What has begun is finished; what has not waits for the next time.
        world = fakes.World(
            [make.root(), disk(2), disk(3)],
            [volume(2, status='available'), volume(3, status='available')])
        world.meanwhile['destroy'] = lambda: setattr(self, 'time', 60.0)
        self.assertEqual({'bdm-2', 'bdm-3'}, self.clean(world))
        self.assertEqual({'bdm-root', 'bdm-3'}, set(world.rows))
        self.time = 0.0
        world.reboot()
        self.assertEqual({'bdm-3'}, self.clean(world))


class JournalTest(CleanerTestCase):
    """What cannot be recorded is not done."""

    def test_an_unwritable_journal_and_nothing_is_done(self):
        os.mkdir(os.path.dirname(self.path))
        os.mkdir(self.path)
        world = broken()
        self.assertEqual(DANGLING, self.clean(world))
        self.assertEqual([], world.changes)
        self.assertEqual(8, self.log.output.count('(journal-unwritable)'))
        [line] = self.lines(event='unrecorded', reason='journal-unwritable')
        self.assertIn(self.path, line)

    def test_a_row_that_cannot_be_recorded_and_nothing_is_done(self):
        world = broken()
        world.meanwhile['server'] = lambda: world.rows.pop('bdm-2')
        self.assertEqual(DANGLING, self.clean(world))
        self.assertEqual([], world.changes)

    def test_a_journal_that_fails_half_way_leaves_no_disk_half_way(self):
        world = broken()
        world.failing['journal-append'] = OSError('No space left on device')
        self.clean(world)
        self.assertEqual({'bdm-root', 'bdm-1'}, set(world.rows))
        # One line is enough.
        self.assertEqual(1, len(self.lines(event='unrecorded')))
        [entry] = self.entries()
        self.assertEqual('interrupted', entry.outcome)

    def test_the_plan_holds_all_that_undoing_needs(self):
        world = broken()
        row = world.rows['bdm-4']
        left_over = world.attachments['attachment-4']
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
            'id': left_over.id, 'volume_id': 'volume-4',
            'server_id': make.SERVER, 'status': 'attached',
            'connected': True}], action['attachments'])
        self.assertEqual(
            {'attachment-7', 'attachment-8'},
            {a['attachment']['id'] for a in entry.record['actions']
             if a['kind'] == 'delete-attachment'})
        self.assertEqual(
            {'reason': 'healthy', 'withheld': None, 'volume': 'volume-1',
             'attachment': 'attachment-1', 'device': '/dev/vdb',
             'explanation': 'attached'},
            [f for f in entry.record['findings']
             if f['volume'] == 'volume-1'][0])

    def test_every_step_is_recorded(self):
        world = fakes.World(
            [make.root(), disk(4), disk(9)],
            [volume(4, status='available'), volume(9, status='available')],
            [record(4)], neighbours=['volume-9'])
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

    def test_a_failed_step_is_recorded_with_its_error(self):
        world = fakes.World([make.root(), disk(2)])
        world.failing['disconnect'] = RuntimeError(
            "flush failed, {'auth_password': 'hush'}")
        self.clean(world)
        [entry] = self.entries()
        [step] = [s for s in entry.steps if s.name == 'disconnect']
        self.assertEqual('failed', step.outcome)
        self.assertIn('flush failed', step.subject['detail'])
        self.assertNotIn('hush', json.dumps(step.subject))
        self.assertNotIn('hush', self.log.output)

    def test_no_connection_information_anywhere(self):
        secret = {'driver_volume_type': 'iscsi', 'auth_password': 'hush'}
        world = fakes.World(
            [make.root(), disk(4)], [volume(4, status='available'),
                                     volume(7)],
            [record(4, connection_info=secret),
             record(7, connection_info=secret)])
        self.clean(world)
        self.assertEqual(2, len(world.reported))
        with open(self.path, 'rb') as file:
            self.assertNotIn(b'hush', file.read())
        self.assertNotIn('hush', self.log.output)
        self.assertEqual(
            0o600, stat.S_IMODE(os.stat(self.path).st_mode))
