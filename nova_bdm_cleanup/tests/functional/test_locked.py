# SPDX-License-Identifier: Apache-2.0
"""Nothing is removed from a server that an administrator has locked."""

from __future__ import annotations

from nova_bdm_cleanup.terminal import ExitCode
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

    def test_locked_by_administrator(self):
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
        view = self.reboot(self.server)
        self.assert_gone(view, self.lost)
        self.assert_gone(view, self.stale)

    def test_locked_by_owner(self):
        """Remove it: an owner cannot keep a disk that others may have."""
        self.lock(self.cloud.owner)
        view = self.reboot(self.server, by=self.cloud.admin)
        self.assert_gone(view, self.lost)
        self.assert_healthy(view, self.kept)

    def test_commands_refuse(self):
        self.lock(self.cloud.admin)
        found = self.run_audit(server=self.server)
        self.assertEqual({(
            reason, 'look: openstack server unlock %s; openstack bdm clean %s'
            % (self.server.id, self.server.id))
            for reason in ('volume-available', 'stale-attachment')},
            set(found.values()))
        attachment, = self.cloud.attachments(self.stale)
        code, rows = self.bdm('release', attachment.id, '--yes')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertIn('is locked', rows[0]['Explanation'])
        self.assertIn('openstack server unlock ' + self.server.id,
                      rows[0]['Explanation'])
        self.start_recording()
        self.assertEqual(ExitCode.REFUSED,
                         self.bdm('clean', self.server.id, '--yes')[0])
        self.assertEqual([], self.log_lines(self.server))
        # The commands of the audit.
        self.cloud.act(self.server, {'unlock': None}, by=self.cloud.admin)
        self.assertEqual(ExitCode.OK,
                         self.bdm('clean', self.server.id, '--yes')[0])
