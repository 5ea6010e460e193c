# SPDX-License-Identifier: Apache-2.0
"""An administrator's lock keeps what a server has; its owner's does not."""

from __future__ import annotations

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import commands


class LockedTest(commands.CommandWithWitnessTestCase):

    def setUp(self):
        super().setUp()
        self.server = self.create_server(*[fixture.Disk()] * 2)
        self.lost, self.kept = self.server.volumes
        self.stale = self.cloud.volume()
        self.cloud.create_attachment(self.server, self.stale)
        self.cloud.lose_attachment(self.server, self.lost)

    def lock(self, by):
        self.cloud.act(self.server, {'lock': None}, by=by)

    def test_administrator_and_owner(self):
        self.lock(self.cloud.admin)
        view = self.reboot(self.server, by=self.cloud.admin)
        self.assertIsNotNone(view.block_device(self.lost))
        self.assertFalse(view.has_disk(self.lost))
        self.assertEqual(1, len(self.cloud.attachments(self.stale)))
        self.assert_healthy(view, self.kept)
        self.assertEqual([], self.journal())
        withheld, _ = self.assert_finding(
            self.server, self.lost, ('INFO', 'withheld', 'volume-available'),
            ('WARNING', 'not-connected', 'volume-available'))
        self.assertIn('(server-locked): an administrator has locked the '
                      'server; only an administrator can unlock it',
                      withheld.text)
        self.cloud.act(self.server, {'unlock': None}, by=self.cloud.admin)
        # Otherwise an owner could keep a disk that others may have.
        self.lock(self.cloud.owner)
        view = self.reboot(self.server, by=self.cloud.admin)
        self.assert_gone(view, self.lost)
        self.assert_gone(view, self.stale)
