# SPDX-License-Identifier: Apache-2.0
"""``bdm_cleanup=keep`` speaks for its own project, and for its own disk."""

from __future__ import annotations

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import scenario


class OptOutTestCase(scenario.TwoDisks):

    def check_removed(self, view):
        self.assertIsNone(view.block_device(self.lost))
        self.assertEqual((), view.attachments_of(self.lost))
        self.assertFalse(view.has_disk(self.lost))
        self.assert_healthy(view, self.kept)

    def check_opted_out(self, view):
        self.assertIsNotNone(view.block_device(self.lost))
        line, = [line for line in self.audit(self.made)
                 if line.volume == self.lost]
        self.assertEqual(('INFO', 'withheld'), (line.level, line.event))
        self.assertIn('(opted-out)', line.text)
        self.assert_healthy(view, self.kept)


class VolumeOptOutTest(OptOutTestCase):

    def test_own_project(self):
        self.cloud.lose_attachment(self.made, self.lost)
        self.cloud.set_metadata(self.lost, bdm_cleanup='keep')
        self.check_opted_out(self.reboot(self.made))

    def test_volume_that_another_project_uses_now(self):
        self.cloud.lose_attachment(self.made, self.lost)
        self.cloud.give_to_project(self.lost, self.cloud.stranger)
        self.cloud.set_metadata(self.lost, bdm_cleanup='keep')
        other = self.server(
            fixture.Disk(volume=self.lost, at_boot=True), name='other',
            owner=self.cloud.stranger)
        self.check_removed(self.reboot(self.made))
        self.assert_healthy(self.look(other), self.lost)


class ServerOptOutTest(OptOutTestCase):

    def setUp(self):
        super().setUp()
        self.cloud.request(
            'POST', f'/servers/{self.made.id}/metadata',
            {'metadata': {'bdm_cleanup': 'keep'}})

    def test_volume_is_available(self):
        self.cloud.lose_attachment(self.made, self.lost)
        self.check_opted_out(self.reboot(self.made))

    def test_volume_is_attached_to_somebody_else(self):
        """Otherwise two guests write to it, whatever its owner wants."""
        other = self.cloud.give_away(self.made, self.lost)
        self.check_removed(self.reboot(self.made))
        self.assert_healthy(self.look(other), self.lost)
