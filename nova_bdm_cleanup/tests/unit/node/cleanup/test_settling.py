# SPDX-License-Identifier: Apache-2.0
"""Waits until what speaks against a disk is old enough to be read."""

from __future__ import annotations

import datetime

from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.cleanup.ports import RebootLost
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import make
from nova_bdm_cleanup.tests.unit.node.cleanup.test_cleaner import (
    CleanerTestCase,
    deeds,
    disk,
    record,
    volume,
    world_of,
)


def lagging(age=3.0, **others):
    """Return a world of a disk that was attached a moment ago.

    Cinder answers as before, until the first wait.
    """
    world = world_of([disk(1, updated_at=make.ago(age))],
                     [volume(1, status='available')], [], **others)

    def catch_up():
        world.volumes['volume-1'] = volume(1, updated_at=make.ago(age))
        world.attachments['attachment-1'] = record(
            1, attached_at=make.ago(age))

    world.meanwhile['wait'] = catch_up
    return world


def detached(age=3.0, **others):
    """Return a world of a disk that was detached behind Nova a moment ago."""
    return world_of(
        [disk(1)], [volume(1, status='available', updated_at=make.ago(age))],
        [], **others)


def unattached(age=3.0, **others):
    """Return a world of a disk that stays, and that Cinder shows detached."""
    return world_of(
        [disk(1)], [volume(1, status='error', updated_at=make.ago(age))],
        [], **others)


class SettlingTest(CleanerTestCase):

    def renewed(self, world, number=1):
        """Have the time of a volume change with each look."""
        call = world.call

        def change(*what):
            if what == ('look',):
                world.volumes['volume-%d' % number] = volume(
                    number, status='available',
                    updated_at=make.ago(-self.time))
            return call(*what)

        world.call = change
        return world

    def test_a_disk_that_was_just_attached_stays(self):
        world = lagging()
        self.assertEqual(frozenset(), self.clean(world))
        self.assertEqual([10.0], self.waited)
        self.assert_untouched(world)
        self.assertTrue(world.running)

    def test_detached_disk_goes_after_the_settle_time(self):
        world = detached()
        self.assertEqual({'bdm-1'}, self.clean(world))
        # The whole time: two looks that are so far apart must agree.
        self.assertEqual([10.0], self.waited)
        # The guest runs while the cleanup waits.
        self.assertLess(world.calls.index('wait'),
                        world.calls.index('power-off'))
        self.assertEqual(3, world.calls.count('look'))
        line, = self.lines(event='waiting', volume='volume-1')
        self.assertIn('10.0 s', line)

    def test_a_disk_that_stays_is_left_out_after_the_wait_only(self):
        """Check that it is not connected because it is young."""
        for age, waited in ((3.0, [10.0]), (10.0, []), (86400.0, [])):
            for trigger in (triggers.HARD_REBOOT, triggers.SOFT_REBOOT,
                            triggers.START):
                self.waited = []
                self.time = 0.0
                world = unattached(age, running=trigger.mode.may_run)
                self.assertEqual({'bdm-1'}, self.clean(world, trigger))
                self.assertEqual(waited, self.waited)
                self.assertEqual([], deeds(world))

    def test_a_disk_that_was_attached_meanwhile_is_given(self):
        for trigger in (triggers.HARD_REBOOT, triggers.SOFT_REBOOT):
            self.waited = []
            self.time = 0.0
            self.assertEqual(frozenset(), self.clean(lagging(), trigger))
            self.assertEqual([10.0], self.waited)

    def test_old_records_are_not_waited_for(self):
        for world in (detached(10), detached(86400),
                      # Only what speaks against a disk counts.
                      world_of([disk(1, updated_at=make.ago(1))],
                               [volume(1, updated_at=make.ago(1))],
                               [record(1, attached_at=make.ago(1))])):
            self.clean(world)
            self.assertEqual([], self.waited)

    def test_causal_reads_are_not_waited_for(self):
        for world in (detached(), unattached()):
            self.assertEqual({'bdm-1'}, self.clean(
                world, settle_time=datetime.timedelta(0)))
            self.assertEqual([], self.waited)

    def test_observe_neither_waits_nor_writes(self):
        for world in (detached(), unattached()):
            self.assertEqual(frozenset(), self.clean(world, observe=True))
            self.assertEqual([], self.waited)
            self.assertNotIn('claim', world.calls)

    def test_a_soft_reboot_waits_too(self):
        world = detached()
        self.assertEqual({'bdm-1'}, self.clean(world, triggers.SOFT_REBOOT))
        self.assertEqual([10.0], self.waited)
        self.assertEqual([], deeds(world))
        self.assertEqual(1, self.withheld(Reason.SOFT_REBOOT))

    def test_the_wait_is_no_part_of_the_time_limit(self):
        world = detached()
        self.assertEqual({'bdm-1'}, self.clean(world, timeout=5.0))
        self.assertEqual([10.0], self.waited)
        self.assertNotIn('bdm-1', world.rows)

    def test_a_start_waits_before_it_takes_the_lock(self):
        for trigger in (triggers.START, triggers.HOST_BOOT, triggers.MOVE):
            self.waited = []
            self.time = 0.0
            world = detached(running=False)
            self.assertEqual({'bdm-1'}, self.clean(world, trigger))
            self.assertEqual([10.0], self.waited)
            self.assertLess(world.calls.index('wait'),
                            world.calls.index('lock'))

    def test_a_preview_does_not_wait(self):
        for trigger in (triggers.AUDIT, triggers.MOVE):
            world = detached(running=False)
            plan = self.cleaner_of(world, trigger).preview(
                tuple(world.rows.values()))
            self.assertTrue(plan.settles_in)
            self.assertEqual([], self.waited)

    def test_no_time_is_left_to_wait(self):
        self.patience = 9.9
        world = detached()
        self.assertEqual(frozenset(), self.clean(world))
        self.assertEqual([], self.waited)
        self.assert_untouched(world)
        line, = self.lines(event='withheld', reason='volume-available')
        self.assertIn('(timed-out)', line)
        self.assertIn('[bdm_cleanup] settle_time', line)
        # Nor is one left out that would not be removed.
        self.assertEqual(frozenset(), self.clean(unattached()))

    def test_clock_ahead_causes_no_second_wait(self):
        for age in (-3, -7200):
            self.waited = []
            self.time = 0.0
            self.assertEqual({'bdm-1'}, self.clean(detached(age)))
            self.assertEqual([10.0], self.waited)

    def test_two_looks_that_agree_are_enough(self):
        """Check that no owner keeps a volume by renewing its time."""
        world = self.renewed(detached())
        self.assertEqual({'bdm-1'}, self.clean(world))
        self.assertEqual([10.0], self.waited)
        self.assertNotIn('bdm-1', world.rows)

    def test_looks_that_differ_withhold_that_disk_only(self):
        world = self.renewed(world_of([disk(1), disk(2)], [
            volume(n, status='available', updated_at=make.ago(60))
            for n in (1, 2)]))
        world.meanwhile['wait'] = lambda: world.rows.update({
            'bdm-1': disk(1, attachment_id='attachment-9')})
        # The later look decides about the disk.
        self.assertEqual({'bdm-1', 'bdm-2'}, self.clean(world))
        self.assertEqual([10.0], self.waited)
        self.assertEqual(['disconnect bdm-2', 'destroy bdm-2'], deeds(world))
        self.assertEqual(1, self.withheld(Reason.TIMED_OUT))

    def test_a_disk_that_was_detached_meanwhile_is_left_out(self):
        """Check that nothing is connected after the wait as too young."""
        world = detached()
        world.volumes['volume-2'] = volume(2)
        world.attachments['attachment-2'] = record(2)
        world.rows['bdm-2'] = disk(2)

        def detach():
            del world.attachments['attachment-2']
            world.volumes['volume-2'] = volume(
                2, status='error', updated_at=make.ago(-10))

        world.meanwhile['wait'] = detach
        self.assertEqual({'bdm-1', 'bdm-2'}, self.clean(world))
        self.assertEqual([10.0], self.waited)
        self.assertIn('bdm-2', world.rows)

    def test_no_answer_after_the_wait_removes_nothing(self):
        world = detached()
        world.meanwhile['wait'] = lambda: world.failing.update(
            look=errors.Unreachable('no route'))
        self.assertEqual(frozenset(), self.clean(world))
        self.assert_untouched(world)
        self.assertEqual(1, len(self.lines(event='skipped')))
        self.assertEqual(1, self.withheld(Reason.CINDER_UNKNOWN))

    def test_the_reboot_is_over_after_the_wait(self):
        world = detached()
        world.meanwhile['wait'] = lambda: setattr(world, 'rebooting', False)
        self.clean(world)
        self.assert_untouched(world)
        self.assertEqual(1, self.withheld(Reason.REBOOT_LOST))

    def test_volume_changed_after_power_off_stays(self):
        world = detached(60)
        world.meanwhile['power-off'] = lambda: world.set_status(
            'volume-1', 'error')
        self.assertEqual({'bdm-1'}, self.clean(world))
        self.assertEqual([], deeds(world))
        self.assertEqual([], self.waited)
        self.assertEqual(1, self.withheld(Reason.SECOND_LOOK_DIFFERS))


class PendingTest(CleanerTestCase):
    """The pending state of the reboot, which Nova resumes after a crash."""

    def test_it_is_written_before_the_wait(self):
        for trigger in (triggers.HARD_REBOOT, triggers.SOFT_REBOOT):
            self.time = 0.0
            world = detached()
            self.clean(world, trigger)
            self.assertLess(world.calls.index('claim'),
                            world.calls.index('wait'))

    def test_a_failure_to_write_it_is_no_failure_of_the_reboot(self):
        world = detached()
        world.failing['claim'] = RuntimeError('no conductor')
        world.meanwhile['wait'] = lambda: world.failing.pop('claim')
        self.assertEqual({'bdm-1'}, self.clean(world))
        self.assertEqual([10.0], self.waited)
        self.assertIn('no conductor', self.lines(event='unsaved')[0])
        self.assertNotIn('bdm-1', world.rows)

    def test_a_reboot_that_lost_the_race_does_not_wait(self):
        world = detached()
        world.failing['claim'] = RebootLost('not in a reboot any more')
        self.clean(world)
        self.assertEqual([], self.waited)
        self.assert_untouched(world)
        self.assertEqual(1, self.withheld(Reason.REBOOT_LOST))

    def test_it_is_not_written_where_nothing_is_waited_for(self):
        world = unattached(86400)
        self.clean(world)
        self.assertNotIn('claim', world.calls)
