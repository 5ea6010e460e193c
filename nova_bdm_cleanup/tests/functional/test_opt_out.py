# SPDX-License-Identifier: Apache-2.0
"""``bdm_cleanup=keep`` speaks for its own project, and for its own disk."""

from __future__ import annotations

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import scenario


class OptOutTestCase(scenario.TwoDisks):

    def check_given_away(self, other):
        """Otherwise two guests write to it, whatever its owner wants."""
        view = self.reboot(self.made)
        self.assert_gone(view, self.lost, shared=True)
        self.assert_healthy(view, self.kept)
        self.assert_healthy(self.look(other), self.lost)

    def check_opted_out(self):
        self.cloud.lose_attachment(self.made, self.lost)
        view = self.reboot(self.made)
        self.assertIsNotNone(view.block_device(self.lost))
        line, = self.assert_finding(
            self.made, self.lost, ('INFO', 'withheld', 'volume-available'))
        self.assertIn('(opted-out)', line.text)
        self.assert_healthy(view, self.kept)


class VolumeOptOutTest(OptOutTestCase):

    def test_own_project(self):
        self.cloud.set_metadata(self.lost, bdm_cleanup='keep')
        self.check_opted_out()

    def test_volume_that_another_project_uses_now(self):
        self.cloud.lose_attachment(self.made, self.lost)
        self.cloud.give_to_project(self.lost, self.cloud.stranger)
        self.cloud.set_metadata(self.lost, bdm_cleanup='keep')
        self.check_given_away(self.server(
            fixture.Disk(volume=self.lost, at_boot=True), name='other',
            owner=self.cloud.stranger))


class ServerOptOutTest(OptOutTestCase):

    def setUp(self):
        super().setUp()
        self.cloud.request(
            'POST', f'/servers/{self.made.id}/metadata',
            {'metadata': {'bdm_cleanup': 'keep'}})

    def test_volume_is_available(self):
        self.check_opted_out()

    def test_volume_is_attached_to_somebody_else(self):
        self.check_given_away(self.cloud.give_away(self.made, self.lost))
