# SPDX-License-Identifier: Apache-2.0
"""Differences of the triggers other than a reboot."""

from __future__ import annotations

from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.tests.unit import base


class MaxSecondsTest(base.TestCase):
    """The maximum duration of a cleanup, which no option can exceed."""

    def test_as_the_documentation_says(self) -> None:
        self.assertEqual(
            {'soft_reboot': 5.0, 'live_migration': 10.0},
            {each.name: each.max_seconds for each in triggers.TRIGGERS
             if each.max_seconds is not None})


class TriggersTest(base.TestCase):

    def test_every_trigger_is_in_the_tuple(self) -> None:
        self.assertEqual(
            {each.name for each in vars(triggers).values()
             if isinstance(each, triggers.Trigger)},
            {each.name for each in (
                *triggers.TRIGGERS, triggers.AUDIT, triggers.REPAIR,
                triggers.BEFORE_REBOOT)})

    def test_every_choice_selects_something(self) -> None:
        for choice in triggers.CHOICES:
            self.assertTrue(triggers.selected_by(choice), choice)

    def test_reboots_and_rollbacks_need_no_word(self) -> None:
        self.assertEqual((triggers.HARD_REBOOT, triggers.SOFT_REBOOT,
                          triggers.ROLLBACK), triggers.ALWAYS_ON)

    def test_host_is_charged_for_what_no_member_requests(self) -> None:
        """Check that a project pays for what its members can ask for."""
        self.assertEqual(
            {'host_boot', 'interrupted_move', 'return', 'live_migration',
             'rollback', 'audit'},
            {each.name for each in (*triggers.TRIGGERS, triggers.AUDIT)
             if each.payer is triggers.Payer.HOST})

    def test_evacuation_is_charged_to_the_server(self) -> None:
        self.assertEqual(
            [triggers.EVACUATE],
            [each for each in triggers.TRIGGERS
             if each.payer is triggers.Payer.SERVER])
        self.assertEqual(
            'server server-1', triggers.Payer.SERVER.of(facts.Server(
                'server-1', 'project-1')))
