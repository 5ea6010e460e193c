# SPDX-License-Identifier: Apache-2.0
"""The bounds of one reboot, which one tenant cannot use up for another."""

from __future__ import annotations

from nova_bdm_cleanup.tests.functional import scenario


class HourlyLimitTest(scenario.ScenarioTestCase):
    """The hourly limit, which no project uses up for another."""

    def test_mappings_of_another_project(self):
        """Use up an hour, then reboot the server of another project."""
        self.set_options(max_removals_per_hour=2)
        own = self.create_server(*[scenario.BOOT_DISK] * 3)
        victim = self.create_server(
            scenario.BOOT_DISK, owner=self.cloud.other_user, name='victim')
        *used, over = own.volumes
        for volume in used:
            self.cloud.lose_attachment(own, volume)
        view = self.reboot(own)
        for volume in used:
            self.assert_gone(view, volume)
        self.cloud.lose_attachment(own, over)
        self.assert_dangling(self.reboot(own), over)
        self.assertIn('(over-limit)', self.log_lines(own, 'withheld')[0].text)

        lost, = victim.volumes
        self.cloud.lose_attachment(victim, lost)
        self.assert_gone(
            self.reboot(victim, by=self.cloud.other_user), lost)
