# SPDX-License-Identifier: Apache-2.0
"""Attachments in Cinder that Nova knows nothing about."""

from __future__ import annotations

from nova_bdm_cleanup.tests.cloud import fixture, recorder
from nova_bdm_cleanup.tests.functional import scenario


class StaleAttachmentTest(scenario.ScenarioTestCase):

    def test_reserved(self):
        server = self.server(fixture.Disk())
        kept, = server.volumes
        volume = self.cloud.volume()
        attachment = self.cloud.leave_attachment(server, volume,
                                                 connected=False)
        view = self.reboot(server)
        self.assert_deleted(view, attachment, volume)
        self.assertEqual('available', self.volume_status(volume))
        self.assertNotIn('terminate_connection',
                         [call for call, host in self.back_end(volume)])
        self.assert_healthy(view, kept)

    def test_connected(self):
        """Nova has lost the row of a volume that is still connected."""
        server = self.server(fixture.Disk(), fixture.Disk())
        volume, kept = server.volumes
        attachment, = self.cloud.attachments(volume)
        row = self.cloud.row(server, volume)
        row.destroy()
        view = self.reboot(server)
        self.assert_deleted(view, attachment.id, volume)
        self.assert_gone(view, volume)
        self.assertEqual('available', self.volume_status(volume))
        self.assertEqual([('terminate_connection', server.host),
                          ('remove_export', None)], self.back_end(volume))
        self.assert_order(
            self.cloud.timeline(server.id, volume),
            (recorder.GUEST, 'power off'), (recorder.HOST, 'disconnect'),
            (recorder.CINDER, 'DELETE'),
            (recorder.BACK_END, 'terminate_connection'),
            (recorder.GUEST, 'power on'))
        self.assert_healthy(view, kept)

    def test_connected_by_nobody_knows_whom(self):
        """Nova never had a row of it: nothing is disconnected by Cinder's."""
        server = self.server(fixture.Disk())
        kept, = server.volumes
        volume = self.cloud.volume()
        attachment = self.cloud.leave_attachment(server, volume)
        view = self.reboot(server)
        self.assert_deleted(view, attachment, volume)
        self.assertEqual([], self.on_host(volume))
        left, = self.audit(server, 'left')
        self.assertEqual((volume, attachment), (left.volume, left.attachment))
        self.assertEqual(('terminate_connection', server.host),
                         self.back_end(volume)[0])
        self.assert_healthy(view, kept)

    def test_connected_after_it_was_detached_once(self):
        """The row of an earlier attachment is no warrant for this one."""
        server = self.server(fixture.Disk(), fixture.Disk())
        volume, kept = server.volumes
        self.cloud.detach(server, volume)
        attachment = self.cloud.leave_attachment(server, volume)
        view = self.reboot(server)
        self.assert_deleted(view, attachment, volume)
        self.assertEqual([], self.on_host(volume))
        self.assert_healthy(view, kept)

    def test_connected_as_another_volume(self):
        """A row is no warrant either when it says so of another volume."""
        server = self.server(fixture.Disk(), fixture.Disk())
        volume, kept = server.volumes
        attachment, = self.cloud.attachments(volume)
        row = self.cloud.row(server, volume)
        row.volume_id = self.cloud.volume()
        row.save()
        row.destroy()
        view = self.reboot(server)
        self.assert_deleted(view, attachment.id, volume)
        left, = self.audit(server, 'left')
        self.assertEqual((volume, attachment.id),
                         (left.volume, left.attachment))
        self.assert_healthy(view, kept)

    def test_several_of_one_volume(self):
        server = self.server(fixture.Disk())
        kept, = server.volumes
        volume = self.cloud.volume()
        attachments = [
            self.cloud.leave_attachment(server, volume),
            self.cloud.leave_attachment(server, volume, connected=False),
            self.cloud.leave_attachment(server, volume, host='compute9')]
        view = self.reboot(server)
        for attachment in attachments:
            self.assert_deleted(view, attachment, volume)
        self.assertEqual('available', self.volume_status(volume))
        self.assertEqual(
            {server.host, 'compute9'},
            {host for call, host in self.back_end(volume)
             if call == 'terminate_connection'})
        self.assert_healthy(view, kept)

    def test_legacy(self):
        """A plain delete would leave the volume mapped to the host."""
        server = self.server(fixture.Disk())
        kept, = server.volumes
        volume = self.cloud.volume()
        attachment = self.cloud.leave_legacy_attachment(server, volume)
        view = self.reboot(server)
        self.assert_deleted(view, attachment, volume)
        self.assertEqual('available', self.volume_status(volume))
        self.assertEqual([f'POST /volumes/{volume}/action'],
                         self.requests('POST'))
        self.assertEqual([], self.requests('DELETE'))
        self.assertEqual(('terminate_connection', server.host),
                         self.back_end(volume)[0])
        self.assertNotIn(('terminate_connection', None),
                         self.back_end(volume))
        self.assert_healthy(view, kept)

    def test_legacy_that_a_neighbour_shares(self):
        """The back end would take the volume from the neighbour as well."""
        neighbour = self.server(fixture.Disk(multiattach=True),
                                name='neighbour')
        server = self.server()
        volume, = neighbour.volumes
        attachment = self.cloud.leave_legacy_attachment(server, volume)
        view = self.reboot(server)
        self.assertEqual([attachment],
                         [each.id for each in view.attachments_of(volume)])
        self.assertEqual([], self.back_end(volume))
        self.assertIn(volume, view.connected)
        failed, = self.audit(server, 'failed')
        self.assertEqual(('WARNING', 'step-failed', attachment),
                         (failed.level, failed.reason, failed.attachment))
        self.assert_healthy(self.look(neighbour), volume)
        entry, = self.journal()
        self.assertEqual('nothing', entry.outcome)

    def test_duplicate_on_this_host(self):
        """Deleting it could disconnect the healthy one."""
        server = self.server(fixture.Disk())
        volume, = server.volumes
        self.cloud.leave_attachment(server, volume)
        before = self.cloud.attachments(volume)
        view = self.reboot(server)
        self.assert_nothing_done(view)
        self.assertEqual(before, view.volumes[volume].attachments)
        self.assert_finding(
            server, volume, ('WARNING', 'kept', 'duplicate-attachment'))
        self.assertTrue(view.has_disk(volume))
        self.assertIn(volume, view.connected)

    def test_duplicate_of_another_host(self):
        """What a live migration left; the mapping is this host's."""
        server = self.server(fixture.Disk())
        volume, = server.volumes
        attachment = self.cloud.leave_attachment(server, volume,
                                                 host='compute9')
        view = self.reboot(server)
        self.assert_deleted(view, attachment, volume)
        self.assert_healthy(view, volume)
        self.assertEqual([('terminate_connection', 'compute9')],
                         [call for call in self.back_end(volume)
                          if call[0] == 'terminate_connection'])
        # Only Nova's own reboot reconnects the disk.
        self.assertEqual(['disconnect', 'connect'], self.on_host(volume))

    def test_of_a_dangling_volume(self):
        """They go together with the mapping that they belong to."""
        server = self.server(fixture.Disk())
        volume, = server.volumes
        attachments = [each.id for each in self.cloud.attachments(volume)]
        attachments.append(self.cloud.leave_attachment(
            server, volume, connected=False))
        self.cloud.reset_status(volume)
        view = self.reboot(server)
        self.assert_removed(view, volume, 'volume-available',
                            tuple(attachments))
        self.assertEqual('available', self.volume_status(volume))

    def test_left_alone_when_the_operator_says_so(self):
        self.set_options(stale_attachments=False)
        server = self.server(fixture.Disk())
        volume = self.cloud.volume()
        self.cloud.leave_attachment(server, volume)
        self.cloud.lose_attachment(server, server.volumes[0])
        view = self.reboot(server)
        self.assert_finding(server, volume,
                            ('INFO', 'withheld', 'stale-attachment'))
        self.assertIn('(not-selected)', self.audit(server, 'withheld')[0].text)
        self.assertEqual(1, len(view.attachments_of(volume)))
        self.assert_removed(view, server.volumes[0], 'volume-available')
