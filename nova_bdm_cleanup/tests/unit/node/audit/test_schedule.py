# SPDX-License-Identifier: Apache-2.0
"""When rounds come: spread over the hosts."""

from __future__ import annotations

import collections
import random

import hypothesis
from hypothesis import strategies as st

from nova_bdm_cleanup.node.audit.schedule import is_far, next_round
from nova_bdm_cleanup.tests.unit import base

hosts = st.text(max_size=40)
intervals = st.integers(60, 86400)
#: Up to the year 2100.
moments = st.floats(0, 4.1e9)

NOON = 1_800_014_400.0


class ScheduleTest(base.TestCase):

    @hypothesis.given(hosts, intervals, moments)
    def test_the_next_round_is_always_to_come(self, host, interval, now):
        then = next_round(host, interval, now)
        self.assertLess(now + 1, then)
        self.assertLessEqual(then - now, interval + 1)

    @hypothesis.given(hosts, intervals, moments, st.floats(0, 1))
    def test_a_round_that_came_a_little_early_is_not_repeated(
            self, host, interval, now, early):
        then = next_round(host, interval, now)
        self.assertEqual(then + interval,
                         next_round(host, interval, then - early))

    @hypothesis.given(hosts, intervals, moments, moments)
    def test_a_restart_keeps_the_moments(self, host, interval, now, later):
        self.assertEqual(0, (next_round(host, interval, now)
                             - next_round(host, interval, later)) % interval)

    @hypothesis.given(hosts, intervals, moments, st.floats(0, 4.1e9))
    def test_a_clock_that_was_set_back(self, host, interval, now, back):
        then = next_round(host, interval, now)
        # As long as it goes right, no round is too far away.
        self.assertFalse(is_far(then - now, interval))
        self.assertEqual(then - (now - back) > interval + 1,
                         is_far(then - (now - back), interval))


class SpreadTest(base.TestCase):
    """A thousand hosts whose power came back in the same second."""

    names = ['compute-%03d.region-1.example.org' % n for n in range(1000)]

    def test_no_second_has_many_more_than_chance_gives(self):
        for interval in (60, 300, 600, 3600, 21600, 86400):
            # How many begin their first round in each second.
            crowds = collections.Counter(
                int(next_round(name, interval, NOON) - NOON) % interval
                for name in self.names)
            # The fullest second of a thousand drawings by lot.
            draw = random.Random(interval)
            chance = sorted(
                max(collections.Counter(
                    draw.randrange(interval) for _ in self.names).values())
                for _ in range(100))
            # A minute: 26 here, 23 to 35 by lot.  An hour: 3, 3 to 4 by lot.
            self.assertLessEqual(max(crowds.values()), chance[-1], interval)
