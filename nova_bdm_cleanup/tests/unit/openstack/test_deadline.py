# SPDX-License-Identifier: Apache-2.0
"""The limit on the time that Nova waits."""

from __future__ import annotations

import threading
from unittest import mock

from nova_bdm_cleanup.openstack.deadline import Deadline, TimedOut
from nova_bdm_cleanup.tests.unit import base


class DeadlineTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.time = 100.0
        self.deadline = Deadline(60, lambda: self.time)

    def test_remaining_time_ends_at_nothing(self):
        self.assertEqual(60.0, self.deadline.remaining)
        self.time = 159.0
        self.assertEqual(1.0, self.deadline.remaining)
        self.time = 500.0
        self.assertEqual(0.0, self.deadline.remaining)

    def test_check_raises_only_after_the_last_moment(self):
        self.time = 159.9
        self.deadline.check('it')
        self.time = 160.0
        error = self.assertRaises(
            TimedOut, self.deadline.check, 'the cleanup')
        self.assertEqual('the cleanup was not begun: the 60 s of '
                         '[bdm_cleanup] timeout are over', str(error))

    def test_a_call_gives_what_the_function_gives(self):
        for result in ('a result', None, False, ()):
            self.assertIs(result, self.deadline.call(
                'it', iter([result]).__next__))

    def test_a_call_raises_what_the_function_raises(self):
        for exc in (KeyError('a bug'), SystemExit(3)):
            self.assertIs(exc, self.assertRaises(
                type(exc), self.deadline.call, 'it',
                mock.Mock(side_effect=exc)))

    def test_nothing_is_called_when_the_time_is_over(self):
        self.time = 160.0
        self.assertRaises(TimedOut, self.deadline.call, 'it', self.fail)

    def test_a_call_that_takes_too_long_is_left_behind(self):
        free = threading.Event()
        self.addCleanup(free.set)
        waits = []
        deadline = Deadline(60, lambda: self.time,
                            lambda thread, seconds: waits.append(seconds))
        # The time of earlier calls is deducted.
        for now, left in ((100.0, 60.0), (130.0, 30.0), (159.5, 0.5)):
            self.time = now
            error = self.assertRaises(
                TimedOut, deadline.call, 'asking Cinder', free.wait)
            self.assertEqual('asking Cinder took longer than the 60 s of '
                             '[bdm_cleanup] timeout', str(error))
            self.assertEqual(left, waits[-1])

    def test_call_left_behind_runs_in_a_daemon_thread(self):
        daemon = []
        self.deadline.call('it', lambda: daemon.append(
            threading.current_thread().daemon))
        self.assertEqual([True], daemon)
