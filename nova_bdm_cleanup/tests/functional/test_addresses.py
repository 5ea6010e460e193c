# SPDX-License-Identifier: Apache-2.0
"""Whose is the address: what the driver is given.

Rows of two servers name one address.  The guest of one of them runs, and
writes to its disk there.
"""

from __future__ import annotations

from nova_bdm_cleanup.tests.cloud import fixture, proxy
from nova_bdm_cleanup.tests.functional import scenario, sharing

CONNECTOR = {'host': 'compute1', 'ip': '127.0.0.1',
             'initiator': 'iqn.2026-01.test:initiator'}


class AddressTestCase(sharing.SharingTestCase):

    def setUp(self):
        super().setUp()
        for server in (self.server, self.neighbour):
            self.set_unit(server, 5)

    def check_given(self, server):
        """Check that a reboot gives a server its disk, without Cinder."""
        self.silence()
        self.cloud.reboot(server)
        self.cloud.proxy.clear()
        self.assertTrue(self.look(server).has_disk(*server.volumes))


class OldRowTest(AddressTestCase):
    """Cinder denies the disk, and its mapping stays."""

    def setUp(self):
        super().setUp()
        self.deny(self.server, self.volume)

    def test_disk_over_a_limit_is_not_given(self):
        self.set_options(max_removals_per_hour=1)
        other = self.cloud.volume()
        self.cloud.attach(self.server, other)
        self.cloud.lose_attachment(self.server, other)
        line, = self.check_not_given()
        self.assertIn(self.neighbour.id, line.text)

    def test_disk_of_a_reason_not_selected_is_not_given(self):
        self.set_options(remove=['missing'])
        self.check_not_given()
        self.assert_event(
            self.cloud.look(self.server), 'bdm_cleanup did not connect volume '
            f'{self.volume} (volume-available)')

    def test_disk_is_not_given_if_cinder_does_not_answer(self):
        self.silence()
        line, = self.check_not_given()
        self.assertEqual('cinder-unknown', line.reason)
        self.cloud.proxy.clear()

    def test_a_neighbour_that_cinder_denies_keeps_its_device(self):
        self.deny(self.neighbour, self.theirs)
        view = self.reboot(self.server)
        self.assertIsNone(view.block_device(self.volume))
        self.assertEqual([], self.host_steps(self.volume))
        self.assertEqual([], self.host_steps(self.theirs))

    def test_start_without_answer_does_not_give_the_disk(self):
        self.cloud.stop(self.server)
        self.silence()
        self.start_recording()
        self.cloud.start(self.server)
        self.cloud.proxy.clear()
        self.assertEqual([], self.host_steps(self.volume))
        self.assertFalse(self.cloud.look(self.server).has_disk(self.volume))

    def test_delete_without_answer_does_not_disconnect(self):
        self.silence()
        self.start_recording()
        self.cloud.delete(self.server)
        self.cloud.proxy.clear()
        self.assertEqual([], self.host_steps(self.volume))


class AttachedTwiceTest(AddressTestCase):
    """Cinder attaches both disks, by one address."""

    def test_an_array_gave_a_unit_twice(self):
        """The guest that had it keeps it, and the other does not get it."""
        self.cloud.stop(self.server)
        self.assert_healthy(self.reboot(self.neighbour), self.theirs)
        line, = self.check_not_given()
        self.assertIn('the guest of server %s' % self.neighbour.id, line.text)
        self.check_given(self.neighbour)

    def test_a_disk_that_its_guest_had_is_given(self):
        """The guest of the neighbour is off, and only its row names it."""
        self.cloud.stop(self.neighbour)
        self.assert_healthy(self.reboot(self.server), self.volume)
        self.check_given(self.server)

    def suspend_neighbour(self):
        self.cloud.act(self.neighbour, {'suspend': None}, by=self.cloud.admin)

    def test_a_disk_of_a_suspended_guest_is_not_given(self):
        self.suspend_neighbour()
        self.cloud.stop(self.server)
        line, = self.check_not_given()
        self.assertIn('server %s has volume' % self.neighbour.id, line.text)

    def test_a_disk_that_a_suspended_guest_seems_to_name_is_given(self):
        """Since a boot of the host it names another device."""
        self.suspend_neighbour()
        sharing.write_row(
            self.cloud, self.neighbour, self.theirs, target_lun=6)
        self.cloud.stop(self.server)
        self.check_given(self.server)

    def test_a_disk_of_a_neighbour_that_moves_away_is_not_given(self):
        """Its row has the address on the other host already."""
        sharing.write_row(
            self.cloud, self.neighbour, self.theirs, target_lun=6)
        self.cloud.stop(self.server)
        line, = self.check_not_given()
        self.assertIn('the guest of server %s' % self.neighbour.id, line.text)

    def test_an_old_row_of_a_neighbour_costs_no_disk(self):
        self.deny(self.neighbour, self.theirs)
        self.cloud.stop(self.neighbour)
        self.cloud.stop(self.server)
        self.assert_healthy(self.reboot(self.server), self.volume)

    def test_a_forged_attachment_takes_no_disk_of_a_neighbour(self):
        """A member completes an attachment, and connects it to this host.

        His server was resized, and its row has the address of the old host.
        """
        self.set_options(reconnect=False)
        attachments = self.cloud.cinder.client(self.cloud.owner).attachments
        forged = attachments.create(
            self.volume, None, self.server.id)['id']
        row = self.cloud.row(self.server, self.volume)
        self.cinder.attachments.delete(row.attachment_id)
        self.cloud.change_row(
            self.server, self.volume, attachment_id=forged)
        self.cloud.stop(self.server)
        self.check_not_given()
        attachments.complete(forged)
        self.check_not_given()
        attachments.update(forged, CONNECTOR)
        attachments.complete(forged)
        self.check_not_given()
        # A connector of his choice may be mapped to this address.
        self.cloud.cinder.change_connection(forged, {
            'target_iqn': sharing.TARGET, 'target_lun': 5})
        line, = self.check_not_given()
        self.assertEqual('address-claimed', line.reason)


class RootTest(AddressTestCase):

    ROOT = 'volume'

    def test_root_disk_is_not_given(self):
        self.set_options(reconnect=False)
        self.deny(self.server, self.volume)
        line, = self.check_not_given()
        self.assertEqual(('ERROR', 'root-volume-dangling'),
                         (line.level, line.reason))


class MultiattachTest(scenario.ScenarioTestCase):
    """Servers that share a multiattach volume are no rivals for it."""

    ARGUMENTS = sharing.SharingTestCase.ARGUMENTS

    def test_servers_keep_a_shared_volume_if_cinder_does_not_answer(self):
        volume = self.cloud.volume(multiattach=True)
        servers = [self.create_server(fixture.Disk(
            volume=volume, at_boot=True)) for _ in range(2)]
        # Nova itself asks for such a volume, but never for lists.
        self.cloud.proxy.on('GET', '/detail', proxy.status(503))
        self.cloud.reboot(servers[0])
        self.assertTrue(self.look(servers[0]).has_disk(volume))
        self.assertEqual(1, len(self.log_lines(servers[0], 'skipped')))
        # Its host boots.
        for server in servers:
            self.cloud.lose_power(server)
        self.cloud.nova.connected[servers[0].host].clear()
        self.cloud.restart_compute()
        for server in servers:
            self.assertTrue(self.look(server).has_disk(volume))
        self.cloud.proxy.clear()

    def test_a_shared_volume_stays_connected_for_the_other_server(self):
        volume = self.cloud.volume(multiattach=True)
        server, other = (self.create_server(fixture.Disk(
            volume=volume, at_boot=True)) for _ in range(2))
        self.cloud.lose_attachment(server, volume)
        self.start_recording()
        view = self.reboot(server)
        self.assert_removed(view, volume, 'attached-elsewhere', shared=True)
        self.assertEqual([], self.host_steps(volume))
        left, = self.log_lines(server, 'still-connected')
        self.assertIn(other.id, left.text)

    def test_other_disks_of_a_server_that_shares_a_volume_are_rivals(self):
        volume = self.cloud.volume(multiattach=True)
        server, other = (self.create_server(fixture.Disk(
            volume=volume, at_boot=True)) for _ in range(2))
        theirs = self.cloud.volume()
        self.cloud.attach(other, theirs)
        # From here on its row shows the address, and not the attach.
        self.assert_healthy(self.reboot(other), theirs)
        sharing.write_row(self.cloud, server, volume, target_lun=1,
                          target_iqn=f'iqn.2026-01.test:{theirs}')
        self.cloud.stop(server)
        self.cloud.proxy.on('GET', '/detail', proxy.status(503))
        self.start_recording()
        self.cloud.reboot(server)
        self.cloud.proxy.clear()
        self.assertEqual([], self.host_steps(volume))
        self.assertFalse(self.look(server).has_disk(volume))


class TransferTest(scenario.ScenarioTestCase):
    """The new owner of a volume, and its former server."""

    ARGUMENTS = sharing.SharingTestCase.ARGUMENTS

    def test_an_attachment_by_the_new_owner_counts_for_nothing(self):
        server = self.create_server(scenario.BOOT_DISK)
        volume, = server.volumes
        self.cloud.lose_attachment(server, volume)
        self.cloud.transfer_volume(volume, to=self.cloud.other_user)
        self.cloud.create_attachment(
            server, volume, by=self.cloud.other_user)
        view = self.reboot(server)
        self.assertFalse(view.has_disk(volume))
        self.assertIsNone(view.block_device(volume))
