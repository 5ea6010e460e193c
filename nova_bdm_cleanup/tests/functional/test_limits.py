# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""What one reboot does is bounded, and nobody can use up another's bound."""

from __future__ import annotations

import json

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import scenario

#: Whatever the defaults are: far more than one reboot can be meant to do.
BOUND = 100


class ManyReservationsTest(scenario.ScenarioTestCase):
    """A tenant's script has reserved a volume 300 times for his server."""

    COUNT = 300

    def setUp(self):
        super().setUp()
        # Nova's API waits for no more than a minute in here.
        self.set_options(timeout=30)
        self.made = self.server(*[scenario.BOOT_DISK] * 2)
        self.lost, self.kept = self.made.volumes
        self.volume = self.cloud.volume()
        self.cloud.cinder.reserve_many(self.volume, self.made.id, self.COUNT)

    def check_bounded(self, hard=True):
        self.assertLess(len(self.requests('DELETE')), BOUND)
        lines = self.audit(self.made)
        self.assertLess(len(lines), 2 * BOUND)
        self.assertLessEqual(
            len([line for line in lines if line.level != 'INFO']), 12)
        if hard:
            self.assertEqual(
                [], [line for line in lines if line.reason == 'timed-out'])
        for entry in self.journal():
            self.assertLess(len(entry.record['actions']), BOUND)
            self.assertLess(len(json.dumps(entry.record)), 100_000)

    def test_one_reboot(self):
        view = self.reboot(self.made)
        self.check_bounded()
        for volume in self.made.volumes:
            self.assert_healthy(view, volume)

    def test_mapping_beside_them(self):
        self.cloud.reset_status(self.lost)
        view = self.reboot(self.made)
        self.check_bounded()
        self.assert_gone(view, self.lost)
        self.assert_healthy(view, self.kept)

    def test_soft_reboot(self):
        """It does nothing about them, and does not say so 300 times."""
        view = self.reboot(self.made, hard=False)
        self.assert_nothing_done(view)
        # Its few seconds may be over on a machine that has much to do.
        self.check_bounded(hard=False)

    def test_observe_mode(self):
        self.set_options(mode='observe')
        view = self.reboot(self.made)
        self.assert_nothing_done(view)
        self.check_bounded()

    def test_store_after_some_reboots(self):
        for _ in range(2):
            self.cloud.reboot(self.made)
        self.assertLess(sum(
            path.stat().st_size
            for path in self.store_path.parent.iterdir()), 1_000_000)
        self.assertLess(sum(len(json.dumps(entry.record))
                            for entry in self.journal()), 100_000)


class AttachmentsAndMappingsTest(scenario.ScenarioTestCase):
    """Too many attachments withhold themselves and no mapping."""

    def setUp(self):
        super().setUp()
        self.made = self.server(*[scenario.BOOT_DISK] * 2)
        self.lost, self.kept = self.made.volumes
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

    def test_reserved(self):
        for _ in range(2):
            self.cloud.cinder.reserve_many(self.volume, self.own.id, 20)
            self.cloud.reboot(self.own)
        self.check_victim_is_cleaned()

    def test_mappings_count_as_before(self):
        """The bound itself is there for whoever presses the button."""
        self.set_options(max_removals_per_hour=1)
        made = self.server(fixture.Disk())
        self.cloud.lose_attachment(made, made.volumes[0])
        self.assert_gone(self.reboot(made), made.volumes[0])
        self.begin()
        self.cloud.reboot(self.victim, by=self.cloud.stranger)
        self.assertIsNotNone(
            self.look(self.victim).block_device(self.lost))
