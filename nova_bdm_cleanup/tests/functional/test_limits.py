# SPDX-License-Identifier: Apache-2.0
"""What one reboot does is bounded, and nobody can use up another's bound."""

from __future__ import annotations

import json

from nova_bdm_cleanup.tests.functional import scenario

#: Whatever the defaults are: far more than one reboot can be meant to do.
BOUND = 100


class AttachmentsAndMappingsTest(scenario.TwoDisks):
    """Too many attachments withhold themselves and no mapping."""

    def test_a_script_has_reserved_a_volume_300_times(self):
        self.useFixture(scenario.TimeLimit())
        self.cloud.cinder.reserve_many(
            self.cloud.volume(), self.made.id, 300)
        self.cloud.reset_status(self.lost)
        self.check_removed(self.reboot(self.made))
        self.assertLess(len(self.requests('DELETE')), BOUND)
        lines = self.audit(self.made)
        self.assertLess(len(lines), 2 * BOUND)
        self.assertLessEqual(
            len([line for line in lines if line.level != 'INFO']), 12)
        self.assertNotIn('timed-out', [line.reason for line in lines])
        for entry in self.journal():
            self.assertLess(len(entry.record['actions']), BOUND)
            self.assertLess(len(json.dumps(entry.record)), 100_000)

class HourOfOthersTest(scenario.ScenarioTestCase):
    """A tenant's own attachments do not use up the hour of the host."""

    def test_attached(self):
        self.set_options(max_removals_per_hour=4)
        own, volume = self.server(), self.cloud.volume(multiattach=True)
        victim = self.server(
            scenario.BOOT_DISK, owner=self.cloud.stranger, name='victim')
        lost, = victim.volumes
        self.cloud.lose_attachment(victim, lost)
        for _ in range(2):
            for _ in range(4):
                self.cloud.leave_attachment(own, volume, by=self.cloud.owner)
            self.cloud.reboot(own)
        self.assert_gone(
            self.reboot(victim, by=self.cloud.stranger), lost)
