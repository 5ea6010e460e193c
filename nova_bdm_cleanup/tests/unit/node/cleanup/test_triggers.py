# SPDX-License-Identifier: Apache-2.0
"""What is different where something else than a reboot cleans up."""

from __future__ import annotations

from nova_bdm_cleanup.node.cleanup import move_triggers, triggers
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.tests.unit import base


class LongestTest(base.TestCase):
    """How long it takes at most, whatever the options allow."""

    def test_as_the_documentation_says(self) -> None:
        self.assertEqual(
            {'soft_reboot': 5.0, 'live_migration': 10.0},
            {each.name: each.longest for module in (triggers, move_triggers)
             for each in vars(module).values()
             if isinstance(each, Trigger) and each.longest is not None})
