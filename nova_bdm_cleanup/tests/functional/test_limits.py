# SPDX-License-Identifier: Apache-2.0
"""What one reboot does is bounded, and nobody can use up another's bound."""

from __future__ import annotations

import json

from nova_bdm_cleanup.tests.functional import scenario

#: Whatever the defaults are: far more than one reboot can be meant to do.
BOUND = 100


class ManyReservationsTest(scenario.TwoDisks):
    """A tenant's script has reserved a volume 300 times for his server."""

    COUNT = 300

    def setUp(self):
        super().setUp()
        self.useFixture(scenario.TimeLimit())
        self.volume = self.cloud.volume()
        self.cloud.cinder.reserve_many(self.volume, self.made.id, self.COUNT)

    def check_bounded(self):
        self.assertLess(len(self.requests('DELETE')), BOUND)
        lines = self.audit(self.made)
        self.assertLess(len(lines), 2 * BOUND)
        self.assertLessEqual(
            len([line for line in lines if line.level != 'INFO']), 12)
        self.assertEqual(
            [], [line for line in lines if line.reason == 'timed-out'])
        for entry in self.journal():
            self.assertLess(len(entry.record['actions']), BOUND)
            self.assertLess(len(json.dumps(entry.record)), 100_000)

    def test_mapping_beside_them(self):
        self.cloud.reset_status(self.lost)
        view = self.reboot(self.made)
        self.check_bounded()
        self.assert_gone(view, self.lost)
        self.assert_healthy(view, self.kept)


class AttachmentsAndMappingsTest(scenario.TwoDisks):
    """Too many attachments withhold themselves and no mapping."""

    def setUp(self):
        super().setUp()
        self.volume = self.cloud.volume(multiattach=True)

    def test_too_many_attached(self):
        for _ in range(20):
            self.cloud.leave_attachment(self.made, self.volume,
                                        by=self.cloud.owner)
        self.cloud.lose_attachment(self.made, self.lost)
        view = self.reboot(self.made)
        self.assert_gone(view, self.lost)
        self.assert_healthy(view, self.kept)

    def test_too_many_mappings_do_not_withhold_attachments(self):
        self.set_options(max_removals=1)
        made = self.server(*[scenario.BOOT_DISK] * 2)
        for volume in made.volumes:
            self.cloud.lose_attachment(made, volume)
        attachment = self.cloud.leave_attachment(
            made, self.volume, connected=False)
        view = self.reboot(made)
        for volume in made.volumes:
            self.assertIsNotNone(view.block_device(volume))
        self.assertNotIn(attachment, [each.id for each in view.attachments])


class HourOfOthersTest(scenario.ScenarioTestCase):
    """A tenant's own attachments do not use up the hour of the host."""

    def setUp(self):
        super().setUp()
        self.set_options(max_removals_per_hour=4)
        self.own = self.server()
        self.victim = self.server(
            scenario.BOOT_DISK, owner=self.cloud.stranger, name='victim')
        self.lost, = self.victim.volumes
        self.cloud.lose_attachment(self.victim, self.lost)
        self.volume = self.cloud.volume(multiattach=True)

    def check_victim_is_cleaned(self):
        self.begin()
        self.cloud.reboot(self.victim, by=self.cloud.stranger)
        self.assert_gone(self.look(self.victim), self.lost)

    def test_attached(self):
        for _ in range(2):
            for _ in range(4):
                self.cloud.leave_attachment(self.own, self.volume,
                                            by=self.cloud.owner)
            self.cloud.reboot(self.own)
        self.check_victim_is_cleaned()
