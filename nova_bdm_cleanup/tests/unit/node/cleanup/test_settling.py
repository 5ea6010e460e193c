# SPDX-License-Identifier: Apache-2.0
"""Waits until what a removal rests on is old enough for reads to show it."""

from __future__ import annotations

import dataclasses
import datetime

from nova_bdm_cleanup.node.cleanup import triggers
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


class SettlingTest(CleanerTestCase):

    def test_a_disk_that_was_just_attached_stays(self):
        world = lagging()
        self.assertEqual(frozenset(), self.clean(world))
        self.assertEqual([7.0], self.waited)
        self.assert_untouched(world)
        self.assertTrue(world.running)

    def test_detached_disk_goes_after_the_settle_time(self):
        world = detached()
        self.assertEqual({'bdm-1'}, self.clean(world))
        self.assertEqual([7.0], self.waited)
        # The guest runs while the cleanup waits.
        self.assertLess(world.calls.index('wait'),
                        world.calls.index('power-off'))
        self.assertEqual(3, world.calls.count('look'))
        line, = self.lines(event='waiting', volume='volume-1')
        self.assertIn('7.0 s', line)

    def test_old_records_are_not_waited_for(self):
        for world in (detached(10), detached(86400),
                      # Only what would be removed counts.
                      world_of([disk(1, updated_at=make.ago(1))],
                               [volume(1, updated_at=make.ago(1))],
                               [record(1, attached_at=make.ago(1))])):
            self.clean(world)
            self.assertEqual([], self.waited)

    def test_causal_reads_are_not_waited_for(self):
        self.assertEqual({'bdm-1'}, self.clean(
            detached(), settle_time=datetime.timedelta(0)))
        self.assertEqual([], self.waited)

    def test_observe_does_not_wait(self):
        self.clean(detached(), observe=True)
        self.assertEqual([], self.waited)

    def test_a_start_waits_before_it_takes_the_lock(self):
        for trigger in (triggers.START, triggers.HOST_BOOT, triggers.MOVE):
            self.waited = []
            self.time = 0.0
            world = detached(running=False)
            self.assertEqual({'bdm-1'}, self.clean(world, trigger))
            self.assertEqual([7.0], self.waited)
            self.assertLess(world.calls.index('wait'),
                            world.calls.index('lock'))

    def test_nothing_waits_that_removes_nothing(self):
        self.clean(detached(running=True), triggers.SOFT_REBOOT)
        for trigger in (triggers.RETURN, triggers.LIVE_MIGRATION,
                        triggers.DELETE):
            self.cleaner_of(detached(), trigger).preview([disk(1)])
        self.assertEqual([], self.waited)

    def test_a_preview_waits(self):
        """Check that the guest is still on while a move waits."""
        world = lagging(running=False)
        for due in (False, True):
            self.waited = []
            self.time = 0.0
            found = self.cleaner_of(world, triggers.MOVE).preview(
                tuple(world.rows.values()))
            self.assertEqual([7.0], self.waited)
            self.assertEqual(due, bool(found.plan.due))
            world = detached(running=False)

    def test_no_time_is_left_to_wait(self):
        world = detached()
        self.clean(world, timeout=7.0)
        self.assertEqual([], self.waited)
        self.assert_untouched(world)
        line, = self.lines(event='withheld', reason='volume-available')
        self.assertIn('(timed-out)', line)
        self.assertIn('[bdm_cleanup] settle_time', line)

    def test_clock_ahead_causes_a_second_wait(self):
        world = detached(-3)
        self.assertEqual({'bdm-1'}, self.clean(world))
        self.assertEqual([10.0, 3.0], self.waited)

    def test_volume_that_keeps_changing_is_withheld(self):
        world = detached()
        act = world.call

        def change(*what):
            if what == ('look',):
                world.volumes['volume-1'] = volume(
                    1, status='available', updated_at=make.ago(-self.time))
            return act(*what)

        world.call = change
        self.clean(world)
        self.assertEqual([10.0, 10.0], self.waited)
        self.assert_untouched(world)
        self.assertEqual(1, self.withheld(Reason.TIMED_OUT))

    def test_a_volume_that_always_changes_keeps_no_other(self):
        world = world_of([disk(1), disk(2)], [
            volume(n, status='available', updated_at=make.ago(60))
            for n in (1, 2)])
        act = world.call

        def change(*what):
            if what == ('look',):
                world.volumes['volume-1'] = volume(
                    1, status='available', updated_at=make.ago(-self.time))
            return act(*what)

        world.call = change
        self.clean(world)
        self.assertIn('destroy bdm-2', deeds(world))
        self.assertNotIn('destroy bdm-1', deeds(world))

    def test_a_move_waits_only_before_the_guest_is_destroyed(self):
        world = detached(running=False)
        cleaner = self.cleaner_of(world, triggers.MOVE)
        cleaner.settled = frozenset(('volume-1',))
        cleaner.clean(tuple(world.rows.values()))
        self.assertEqual([], self.waited)
        self.assertEqual({'bdm-1'}, cleaner.removed)

    def test_no_answer_after_the_wait_removes_nothing(self):
        world = detached()
        world.meanwhile['wait'] = lambda: world.failing.update(
            look=errors.Unreachable('no route'))
        self.assertEqual({'bdm-1'}, self.clean(world))
        self.assert_untouched(world)
        self.assertEqual(1, len(self.lines(event='skipped')))
        self.assertEqual(1, self.withheld(Reason.CINDER_UNKNOWN))

    def test_the_reboot_is_over_after_the_wait(self):
        world = detached()
        world.meanwhile['wait'] = lambda: setattr(world, 'rebooting', False)
        self.clean(world)
        self.assert_untouched(world)
        self.assertEqual(1, self.withheld(Reason.REBOOT_LOST))

    def test_volume_changed_after_power_off_is_withheld(self):
        world = detached(60)
        world.meanwhile['power-off'] = lambda: world.volumes.update({
            'volume-1': dataclasses.replace(
                world.volumes['volume-1'], updated_at=make.NOW)})
        self.clean(world)
        self.assertEqual([], deeds(world))
        self.assertEqual(1, self.withheld(Reason.SECOND_LOOK_DIFFERS))
