# SPDX-License-Identifier: Apache-2.0
"""The use of each reason by the node and the commands."""

from __future__ import annotations

import logging

from nova_bdm_cleanup.rules.reasons import (
    DANGLING,
    ONLY_IN_CLOUD,
    Reason,
    Remedy,
    REMOVED,
)
from nova_bdm_cleanup.tests.unit import base


class ReasonTest(base.TestCase):

    def test_every_reason_has_all(self) -> None:
        for reason in Reason:
            self.assertIs(reason, Reason(reason.value))
            self.assertEqual(reason.value, str(reason))
            self.assertRegex(reason, '^[a-z]+(-[a-z]+)*$')
            self.assertIn(reason.level, (
                logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR))
            self.assertIn(reason.remedy, (None, *Remedy))
            self.assertIsInstance(reason.is_in_round, bool)

    def test_levels(self) -> None:
        """Check that reasons that need no attention are no warnings."""
        by_level: dict[int, set[str]] = {}
        for reason in Reason:
            by_level.setdefault(reason.level, set()).add(str(reason))
        del by_level[logging.WARNING]
        self.assertEqual({
            logging.DEBUG: {'healthy'},
            logging.INFO: {'attach-in-flight', 'operation-in-flight',
                           'server-locked', 'not-selected'},
            logging.ERROR: {'root-volume-dangling', 'swap-interrupted'},
        }, by_level)

    def test_a_round_reports_all_but_what_is_well(self) -> None:
        self.assertEqual(
            {Reason.HEALTHY, Reason.ATTACH_IN_FLIGHT,
             Reason.OPERATION_IN_FLIGHT},
            {r for r in Reason if not r.is_in_round})

    def test_what_passes(self) -> None:
        self.assertEqual(
            {Reason.VOLUME_BUSY, Reason.ATTACH_IN_FLIGHT,
             Reason.OPERATION_IN_FLIGHT},
            {r for r in Reason if r.passes})

    def test_what_is_removed_can_be_cleaned(self) -> None:
        self.assertEqual(
            {*REMOVED, Reason.STALE_ATTACHMENT},
            {r for r in Reason if r.remedy is Remedy.CLEAN})
        self.assertLess(DANGLING, REMOVED)

    def test_every_reason_of_the_cloud_has_a_remedy(self) -> None:
        for reason in ONLY_IN_CLOUD:
            self.assertIs(Remedy.RELEASE, reason.remedy)
