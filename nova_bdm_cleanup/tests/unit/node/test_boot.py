# SPDX-License-Identifier: Apache-2.0
"""The time that the servers of one start of nova-compute share."""

from __future__ import annotations

from unittest import mock

from nova_bdm_cleanup.node import boot
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.deadline import TimedOut
from nova_bdm_cleanup.tests.unit import base


class BootTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        #: The timeout of each request that checks whether Cinder answers.
        self.asked: list[float] = []

    def is_left_out(self, why: Exception,
                    then: Exception | None = None) -> bool:
        """Return whether the next server is left out.

        :param why: the error of the request for one server
        :param then: the error of the request that only checks for an answer
        """
        self.asked = []
        cinder = mock.Mock()
        cinder.prove_it_answers.side_effect = then

        def ask(seconds: float) -> mock.Mock:
            self.asked.append(seconds)
            return cinder

        shared = boot.Boot(60)
        shared.asked_in_vain(why, ask)
        return not shared.allows()

    def test_failure_of_one_server_does_not_skip_the_next(self) -> None:
        for why in (TimedOut(), errors.BadAnswer(), errors.Unanswered()):
            self.assertFalse(self.is_left_out(why))
            self.assertEqual([15], self.asked)

    def test_cinder_does_not_answer_at_all(self) -> None:
        for then in (TimedOut(), errors.BadAnswer(), errors.Unreachable()):
            self.assertTrue(self.is_left_out(TimedOut(), then))

    def test_failure_that_all_share_skips_the_next(self) -> None:
        for why in (errors.Unreachable(), errors.ProjectHidden(),
                    errors.Refused()):
            self.assertTrue(self.is_left_out(why))
            self.assertEqual([], self.asked)


class TimeTest(base.TestCase):
    """The time budget of a start, which one server after another uses."""

    def setUp(self) -> None:
        super().setUp()
        self.time = 0.0
        self.boot = boot.Boot(10, lambda: self.time)

    def test_only_spent_time_reduces_the_budget(self) -> None:
        for seconds, left in ((3, 7), (4, 3), (30, 0)):
            self.time += 100
            with self.boot.spend():
                self.time += seconds
            self.assertEqual(left, self.boot.left)

    def test_servers_never_use_up_the_whole_budget(self) -> None:
        shares = []
        for _ in range(5):
            shares.append(self.boot.share)
            with self.boot.spend():
                self.time += self.boot.share
        self.assertEqual(2.5, shares[0])
        self.assertEqual(sorted(shares, reverse=True), shares)
        self.assertLess(2, self.boot.left)

    def test_failed_work_reduces_the_budget(self) -> None:
        def fail() -> None:
            with self.boot.spend():
                self.time += 3
                raise RuntimeError('a bug')

        self.assertRaises(RuntimeError, fail)
        self.assertEqual(7, self.boot.left)
