# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""When rounds come: spread over the hosts, and later where they fail."""

from __future__ import annotations

import collections
import random

import hypothesis
from hypothesis import strategies as st

from nova_bdm_cleanup.tests.unit import base
from nova_bdm_cleanup.watch.schedule import LONGEST_PAUSE
from nova_bdm_cleanup.watch.schedule import Schedule

hosts = st.text(max_size=40)
intervals = st.integers(60, 86400)
#: Up to the year 2100.
moments = st.floats(0, 4.1e9)

NOON = 1_800_014_400.0


class ScheduleTest(base.TestCase):

    @hypothesis.given(hosts, intervals, moments)
    def test_the_next_round_is_always_to_come(self, host, interval, now):
        then = Schedule(host, interval).next(now)
        self.assertLess(now + 1, then)
        self.assertLessEqual(then - now, interval + 1)

    @hypothesis.given(hosts, intervals, moments, st.integers(0, 40))
    def test_rounds_on_the_second_are_an_interval_apart(
            self, host, interval, now, number):
        schedule = Schedule(host, interval)
        then = schedule.next(now)
        for _ in range(number % 5):
            following = schedule.next(then)
            self.assertEqual(then + interval, following)
            then = following

    @hypothesis.given(hosts, intervals, moments, st.floats(0, 1))
    def test_a_round_that_came_a_little_early_is_not_repeated(
            self, host, interval, now, early):
        schedule = Schedule(host, interval)
        then = schedule.next(now)
        self.assertEqual(then + interval, schedule.next(then - early))

    @hypothesis.given(hosts, intervals, moments, moments)
    def test_a_restart_keeps_the_moments(self, host, interval, now, later):
        first = Schedule(host, interval).next(now)
        second = Schedule(host, interval).next(later)
        self.assertEqual(0, (second - first) % interval)

    @hypothesis.given(hosts, intervals, moments, st.integers(0, 10 ** 6))
    def test_after_rounds_that_failed(self, host, interval, now, failed):
        schedule = Schedule(host, interval)
        pause = schedule.next(now, failed) - schedule.next(now)
        self.assertEqual(
            min(2 ** min(failed, 20), LONGEST_PAUSE) - 1, pause / interval)

    def test_pauses_double_and_are_capped(self):
        schedule = Schedule('compute1', 3600)
        self.assertEqual(
            [0, 1, 3, 7, 15, 15, 15],
            [(schedule.next(NOON, failed) - schedule.next(NOON)) / 3600
             for failed in (0, 1, 2, 3, 4, 5, 1000)])

    @hypothesis.given(hosts, intervals, moments, st.integers(0, 100),
                      st.floats(0, 4.1e9))
    def test_a_clock_that_was_set_back(self, host, interval, now, failed,
                                       back):
        schedule = Schedule(host, interval)
        then = schedule.next(now, failed)
        # As long as it goes right, no round is too far away.
        self.assertFalse(schedule.is_far(then - now))
        if schedule.is_far(then - (now - back)):
            now -= back
            self.assertLessEqual(schedule.next(now) - now, interval + 1)
        else:
            self.assertLessEqual(then - (now - back),
                                 LONGEST_PAUSE * interval + 1)


class SpreadTest(base.TestCase):
    """A thousand hosts whose power came back in the same second."""

    names = ['compute-%03d.region-1.example.org' % n for n in range(1000)]

    def crowds(self, interval):
        """How many begin their first round in each second."""
        return collections.Counter(
            int(Schedule(name, interval).next(NOON) - NOON) % interval
            for name in self.names)

    def test_no_second_has_many_more_than_chance_gives(self):
        for interval in (60, 300, 600, 3600, 21600, 86400):
            crowds = self.crowds(interval)
            self.assertEqual(1000, sum(crowds.values()))
            # The fullest second of a thousand drawings by lot.
            draw = random.Random(interval)
            chance = sorted(
                max(collections.Counter(
                    draw.randrange(interval) for _ in self.names).values())
                for _ in range(100))
            # A minute: 24 here, 23 to 35 by lot.  An hour: 3, 3 to 4 by lot.
            self.assertLessEqual(max(crowds.values()), chance[-1], interval)

    def test_the_whole_interval_is_used(self):
        for interval in (60, 3600, 86400):
            tenths = collections.Counter(
                (second * 10) // interval
                for second in self.crowds(interval).elements())
            self.assertEqual(10, len(tenths))
            self.assertLessEqual(max(tenths.values()), 140)

    def test_not_even_within_a_second(self):
        fractions = {Schedule(name, 60).next(NOON) % 1 for name in self.names}
        self.assertGreater(len(fractions), 500)

    def test_the_second_rounds_are_spread_as_the_first(self):
        for name in self.names[:50]:
            schedule = Schedule(name, 600)
            first = schedule.next(NOON)
            # A round takes its time.
            self.assertEqual(600, schedule.next(first + 7.25) - first)
