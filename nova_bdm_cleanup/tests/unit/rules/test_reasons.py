# SPDX-License-Identifier: Apache-2.0
"""The use of each reason by the node and the commands."""

from __future__ import annotations

import logging

from nova_bdm_cleanup.rules.reasons import (
    DANGLING,
    ENDED_HALF_WAY,
    ONLY_IN_CLOUD,
    Reason,
    RECONNECTED,
    Remedy,
    REMOVED,
)
from nova_bdm_cleanup.tests.unit import base


class ReasonTest(base.TestCase):

    def test_every_reason_has_code_level_and_remedy(self) -> None:
        for reason in Reason:
            self.assertIs(reason, Reason(reason.value))
            self.assertEqual(reason.value, str(reason))
            self.assertRegex(reason, '^[a-z]+(-[a-z]+)*$')
            self.assertIn(reason.level, (
                logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR))
            self.assertIn(reason.remedy, (None, *Remedy))
            self.assertIsInstance(reason.is_in_round, bool)

    def test_the_words_do_not_repeat_the_code(self) -> None:
        found = [reason for reason in Reason if reason.words]
        self.assertEqual(len(found), len({r.words for r in found}))
        for reason in found:
            self.assertGreater(len(reason.words.split()), 3)

    def test_over_limit_names_the_hourly_limit(self) -> None:
        self.assertIn('max_removals_per_hour', Reason.OVER_LIMIT.words)

    def test_a_round_leaves_out_what_passes_or_needs_nothing(self) -> None:
        self.assertEqual(
            {Reason.HEALTHY, Reason.ATTACH_IN_FLIGHT,
             Reason.OPERATION_IN_FLIGHT, Reason.ADDRESS_CLAIMED},
            {r for r in Reason if not r.is_in_round})

    def test_a_round_leaves_out_only_what_needs_no_attention(self) -> None:
        for reason in Reason:
            # A round asks for no addresses.
            if not reason.is_in_round and reason != Reason.ADDRESS_CLAIMED:
                self.assertLess(reason.level, logging.WARNING, reason)
                self.assertIn(reason.remedy, (None, Remedy.WAIT), reason)

    def test_in_flight_and_busy_pass_by_themselves(self) -> None:
        self.assertEqual(
            {Reason.ATTACH_IN_FLIGHT, Reason.OPERATION_IN_FLIGHT,
             Reason.VOLUME_BUSY},
            {r for r in Reason if r.passes})

    def test_reason_that_a_reboot_ends_has_the_remedy_clean(self) -> None:
        self.assertEqual(
            {*REMOVED, *RECONNECTED, Reason.STALE_ATTACHMENT,
             Reason.SERVER_IN_ERROR},
            {r for r in Reason if r.remedy is Remedy.CLEAN})
        self.assertLess(DANGLING, REMOVED)
        self.assertLess(ENDED_HALF_WAY, RECONNECTED)

    def test_every_reason_of_the_cloud_has_a_remedy(self) -> None:
        for reason in ONLY_IN_CLOUD:
            self.assertIn(reason.remedy, (
                Remedy.CLEAN, Remedy.RELEASE, Remedy.PERSON))
