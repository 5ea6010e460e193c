# SPDX-License-Identifier: Apache-2.0
"""The bounds of one reboot, which one tenant cannot use up for another."""

from __future__ import annotations

from nova_bdm_cleanup.tests.functional import scenario


class HourlyLimitTest(scenario.ScenarioTestCase):
    """The host's hourly limit, which a tenant's own attachments do not use."""

    def test_attachments_of_another_project(self):
        self.set_options(max_removals_per_hour=4)
        own, volume = self.create_server(), self.cloud.volume(multiattach=True)
        victim = self.create_server(
            scenario.BOOT_DISK, owner=self.cloud.other_user, name='victim')
        lost, = victim.volumes
        self.cloud.lose_attachment(victim, lost)
        for _ in range(2):
            for _ in range(4):
                self.cloud.create_attachment(own, volume, by=self.cloud.owner)
            self.cloud.reboot(own)
        self.assert_gone(
            self.reboot(victim, by=self.cloud.other_user), lost)
