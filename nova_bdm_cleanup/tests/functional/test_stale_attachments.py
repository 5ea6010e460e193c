# SPDX-License-Identifier: Apache-2.0
"""Attachments in Cinder that Nova knows nothing about."""

from __future__ import annotations

from nova_bdm_cleanup.tests.cloud import fixture, recorder
from nova_bdm_cleanup.tests.functional import scenario

FORGED_INITIATOR = 'iqn.2026-01.test:invented'


class _StaleTestCase(scenario.TwoDisks):

    def setUp(self):
        super().setUp()
        #: A volume attached to no server.
        self.free = self.cloud.volume()

    def check_deleted(self, view, volume, *attachments):
        for attachment in attachments:
            self.assert_deleted(view, attachment, volume)
        self.assertEqual('available', self.volume_status(volume))
        self.assert_healthy(view, self.kept)

    def check_left_on_host(self, volume, attachment):
        """Check that it is left: no row of Nova says how to disconnect it."""
        self.assertEqual([], self.host_steps(volume))
        left, = self.log_lines(self.server, 'still-connected')
        self.assertEqual((volume, attachment), (left.volume, left.attachment))


class StaleAttachmentTest(_StaleTestCase):

    def test_reserved_attachment_is_deleted(self):
        attachment = self.cloud.create_attachment(self.server, self.free,
                                                 connected=False)
        view = self.reboot(self.server)
        self.check_deleted(view, self.free, attachment)
        self.assertNotIn('terminate_connection',
                         [call for call, _ in self.back_end(self.free)])

    def test_connected_attachment_without_row_is_deleted(self):
        """Disconnect a volume whose row Nova has lost."""
        attachment, = self.cloud.attachments(self.lost)
        self.cloud.row(self.server, self.lost).destroy()
        view = self.reboot(self.server)
        self.check_deleted(view, self.lost, attachment.id)
        self.assert_gone(view, self.lost)
        self.assertEqual([('terminate_connection', self.server.host),
                          ('remove_export', None)], self.back_end(self.lost))
        self.assert_order(
            self.cloud.timeline(self.server.id, self.lost),
            (recorder.GUEST, 'power off'), (recorder.HOST, 'disconnect'),
            (recorder.CINDER, 'DELETE'),
            (recorder.BACK_END, 'terminate_connection'),
            (recorder.GUEST, 'power on'))

    def test_attachment_from_before_queens_stays(self):
        """Keep it: a deletion would leave the volume mapped to the host."""
        attachment = self.cloud.create_legacy_attachment(
            self.server, self.free)
        view = self.reboot(self.server)
        self.assert_nothing_done(view)
        self.assertEqual([attachment],
                         [a.id for a in view.attachments_of(self.free)])
        self.assertEqual([], self.back_end(self.free))
        self.assert_finding(self.server, self.free,
                            ('WARNING', 'kept', 'legacy-attachment'))

    def test_duplicate_of_another_host(self):
        """Delete a live migration's leftover; the mapping is this host's."""
        attachment = self.cloud.create_attachment(self.server, self.kept,
                                                 host='compute9')
        view = self.reboot(self.server)
        self.assert_deleted(view, attachment, self.kept)
        self.assert_healthy(view, self.kept)
        self.assertEqual([('terminate_connection', 'compute9')],
                         [call for call in self.back_end(self.kept)
                          if call[0] == 'terminate_connection'])
        # Only Nova's own reboot reconnects the disk.
        self.assertEqual(['disconnect', 'connect'], self.host_steps(self.kept))


class ForgedConnectorTest(_StaleTestCase):
    """Invented connectors: the host disconnects only what Nova connected.

    A member of a project may make attachments in Cinder for any server, with
    any connector: host and initiator are free text.  The back end numbers its
    units for that initiator, and on this host the same number is another
    user's disk.
    """

    def forge_attachment(self, volume):
        """Make an attachment that names the host, as a member."""
        return self.cloud.create_attachment(
            self.server, volume, by=self.cloud.owner,
            initiator=FORGED_INITIATOR)

    def test_with_dangling_disk(self):
        """Disconnect only the disk that Nova connected."""
        self.cloud.lose_attachment(self.server, self.lost)
        attachment = self.forge_attachment(self.free)
        view = self.reboot(self.server)
        self.check_deleted(view, self.free, attachment)
        self.assertEqual(('terminate_connection', self.server.host),
                         self.back_end(self.free)[0])
        self.check_left_on_host(self.free, attachment)
        self.assertEqual(['disconnect'], self.host_steps(self.lost))
        self.assert_gone(view, self.lost)

    def test_volume_of_another_server(self):
        """Leave it: another server's connection is no reason to disconnect."""
        volume = self.cloud.volume(multiattach=True)
        neighbour = self.create_server(
            fixture.Disk(volume=volume, at_boot=True), name='neighbour')
        self.forge_attachment(volume)
        view = self.reboot(self.server)
        self.assertEqual([], self.host_steps(volume))
        self.assert_healthy(self.look(neighbour), volume)
        self.assert_healthy(view, *self.server.volumes)
