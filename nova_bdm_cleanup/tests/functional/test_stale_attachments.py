# SPDX-License-Identifier: Apache-2.0
"""Attachments in Cinder that Nova knows nothing about."""

from __future__ import annotations

from nova_bdm_cleanup.tests.cloud import fixture, recorder
from nova_bdm_cleanup.tests.functional import scenario

INVENTED = 'iqn.2026-01.test:invented'


class _StaleTestCase(scenario.TwoDisks):

    def setUp(self):
        super().setUp()
        #: Attached to no server.
        self.free = self.cloud.volume()

    def check_deleted(self, view, volume, *attachments):
        for attachment in attachments:
            self.assert_deleted(view, attachment, volume)
        self.assertEqual('available', self.volume_status(volume))
        self.assert_healthy(view, self.kept)

    def check_left_on_host(self, volume, attachment):
        """Nothing that Nova has connected says how to disconnect it."""
        self.assertEqual([], self.on_host(volume))
        left, = self.audit(self.made, 'left')
        self.assertEqual((volume, attachment), (left.volume, left.attachment))


class StaleAttachmentTest(_StaleTestCase):

    def test_reserved(self):
        attachment = self.cloud.leave_attachment(self.made, self.free,
                                                 connected=False)
        view = self.reboot(self.made)
        self.check_deleted(view, self.free, attachment)
        self.assertNotIn('terminate_connection',
                         [call for call, _ in self.back_end(self.free)])

    def test_connected(self):
        """Nova has lost the row of a volume that is still connected."""
        attachment, = self.cloud.attachments(self.lost)
        self.cloud.row(self.made, self.lost).destroy()
        view = self.reboot(self.made)
        self.check_deleted(view, self.lost, attachment.id)
        self.assert_gone(view, self.lost)
        self.assertEqual([('terminate_connection', self.made.host),
                          ('remove_export', None)], self.back_end(self.lost))
        self.assert_order(
            self.cloud.timeline(self.made.id, self.lost),
            (recorder.GUEST, 'power off'), (recorder.HOST, 'disconnect'),
            (recorder.CINDER, 'DELETE'),
            (recorder.BACK_END, 'terminate_connection'),
            (recorder.GUEST, 'power on'))

    def test_connected_after_it_was_detached_once(self):
        """The row of an earlier attachment is no warrant for this one."""
        self.cloud.detach(self.made, self.lost)
        attachment = self.cloud.leave_attachment(self.made, self.lost)
        view = self.reboot(self.made)
        self.check_deleted(view, self.lost, attachment)
        self.check_left_on_host(self.lost, attachment)

    def test_connected_as_another_volume(self):
        """A row is no warrant either when it says so of another volume."""
        attachment, = self.cloud.attachments(self.lost)
        self.cloud.change_row(self.made, self.lost,
                              volume_id=self.free).destroy()
        view = self.reboot(self.made)
        self.check_deleted(view, self.lost, attachment.id)
        self.check_left_on_host(self.lost, attachment.id)

    def test_several_of_one_volume(self):
        attachments = [
            self.cloud.leave_attachment(self.made, self.free),
            self.cloud.leave_attachment(self.made, self.free,
                                        connected=False),
            self.cloud.leave_attachment(self.made, self.free,
                                        host='compute9')]
        view = self.reboot(self.made)
        self.check_deleted(view, self.free, *attachments)
        self.assertEqual(
            {self.made.host, 'compute9'},
            {host for call, host in self.back_end(self.free)
             if call == 'terminate_connection'})

    def test_legacy(self):
        """To delete it would leave the volume mapped to the host."""
        attachment = self.cloud.leave_legacy_attachment(self.made, self.free)
        view = self.reboot(self.made)
        self.assert_nothing_done(view)
        self.assertEqual([attachment],
                         [a.id for a in view.attachments_of(self.free)])
        self.assertEqual([], self.back_end(self.free))
        self.assert_finding(self.made, self.free,
                            ('WARNING', 'kept', 'legacy-attachment'))

    def test_duplicate_on_this_host(self):
        """Deleting it could disconnect the healthy one."""
        self.cloud.leave_attachment(self.made, self.kept)
        before = self.cloud.attachments(self.kept)
        view = self.reboot(self.made)
        self.assert_nothing_done(view)
        self.assertEqual(before, view.volumes[self.kept].attachments)
        self.assert_finding(self.made, self.kept,
                            ('WARNING', 'kept', 'duplicate-attachment'))
        self.assertTrue(view.has_disk(self.kept))
        self.assertIn(self.kept, view.connected)

    def test_duplicate_of_another_host(self):
        """What a live migration left; the mapping is this host's."""
        attachment = self.cloud.leave_attachment(self.made, self.kept,
                                                 host='compute9')
        view = self.reboot(self.made)
        self.assert_deleted(view, attachment, self.kept)
        self.assert_healthy(view, self.kept)
        self.assertEqual([('terminate_connection', 'compute9')],
                         [call for call in self.back_end(self.kept)
                          if call[0] == 'terminate_connection'])
        # Only Nova's own reboot reconnects the disk.
        self.assertEqual(['disconnect', 'connect'], self.on_host(self.kept))

    def test_of_a_dangling_volume(self):
        """They go together with the mapping that they belong to."""
        own, = self.cloud.attachments(self.lost)
        another = self.cloud.leave_attachment(self.made, self.lost,
                                              connected=False)
        self.cloud.reset_status(self.lost)
        view = self.reboot(self.made)
        self.assert_removed(view, self.lost, 'volume-available',
                            (own.id, another))
        self.assertEqual('available', self.volume_status(self.lost))

    def test_left_alone_when_the_operator_says_so(self):
        self.set_options(remove=['available'])
        self.cloud.leave_attachment(self.made, self.free)
        self.cloud.lose_attachment(self.made, self.lost)
        view = self.reboot(self.made)
        line, = self.assert_finding(self.made, self.free, (
            'INFO', 'withheld', 'stale-attachment'))
        self.assertIn('(not-selected)', line.text)
        self.assertEqual(1, len(view.attachments_of(self.free)))
        self.assert_removed(view, self.lost, 'volume-available')


class InventedConnectorTest(_StaleTestCase):
    """The host disconnects only what Nova itself has connected.

    A member of a project may make attachments in Cinder for any server, with
    any connector: host and initiator are free text.  The back end numbers its
    units for that initiator, and on this host the same number is somebody
    else's disk.
    """

    def invent(self, volume):
        """Make an attachment that names the host, as a member."""
        return self.cloud.leave_attachment(
            self.made, volume, by=self.cloud.owner, initiator=INVENTED)

    def test_beside_a_disk_that_dangles(self):
        """The one that Nova connected is disconnected all the same."""
        self.cloud.lose_attachment(self.made, self.lost)
        attachment = self.invent(self.free)
        view = self.reboot(self.made)
        self.check_deleted(view, self.free, attachment)
        self.assertEqual(('terminate_connection', self.made.host),
                         self.back_end(self.free)[0])
        self.check_left_on_host(self.free, attachment)
        self.assertEqual(['disconnect'], self.on_host(self.lost))
        self.assert_gone(view, self.lost)

    def test_second_attachment_of_a_disk_that_dangles(self):
        """It goes with the mapping, which says where the disk is."""
        self.cloud.set_address(
            self.made, self.lost, target_lun=7,
            target_iqn='iqn.2010-10.org.openstack:array')
        self.cloud.lose_attachment(self.made, self.lost)
        self.invent(self.lost)
        self.cloud.reset_status(self.lost)
        del self.cloud.nova.disconnects[:]
        self.assert_gone(self.reboot(self.made), self.lost)
        self.assertEqual([7], [
            told['target_lun'] for told, _ in self.cloud.nova.disconnects
            if told['volume_id'] == self.lost])

    def test_row_of_another_server(self):
        """What one server has connected is no reason for another's."""
        volume = self.cloud.volume(multiattach=True)
        neighbour = self.server(
            fixture.Disk(volume=volume, at_boot=True), name='neighbour')
        self.invent(volume)
        view = self.reboot(self.made)
        self.assertEqual([], self.on_host(volume))
        self.assert_healthy(self.look(neighbour), volume)
        self.assert_healthy(view, *self.made.volumes)
