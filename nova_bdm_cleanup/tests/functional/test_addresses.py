# SPDX-License-Identifier: Apache-2.0
"""The rule of addresses: an old row names the disk of a neighbour.

The neighbour's guest runs, and writes to its disk by the address that the row
of the other server still has.
"""

from __future__ import annotations

import datetime

from nova_bdm_cleanup.tests.cloud import proxy
from nova_bdm_cleanup.tests.functional import scenario


class AddressTestCase(scenario.ScenarioTestCase):

    ARGUMENTS = {'plugin_options': {
        'triggers': 'all', 'grace_period': '0', 'settle_time': '0'}}
    ROOT = 'image'

    def setUp(self):
        super().setUp()
        disks = [scenario.BOOT_DISK] if self.ROOT == 'image' else []
        self.server = self.create_server(*disks, root=self.ROOT)
        self.neighbour = self.create_server(
            scenario.BOOT_DISK, name='neighbour')
        self.volume = (self.server.volumes or [self.server.root])[0]
        self.theirs, = self.neighbour.volumes
        for server, volume in ((self.server, self.volume),
                               (self.neighbour, self.theirs)):
            self.cloud.change_connection_data(
                server, volume, target_lun=5,
                target_iqn='iqn.2010-10.org.openstack:array')

    def silence(self):
        self.cloud.proxy.on('*', '^/v3/', proxy.status(503))

    def deny(self, server, volume):
        """Have Cinder deny an attachment, and Nova's row be an old one."""
        self.cloud.lose_attachment(server, volume)
        row = self.cloud.row(server, volume)
        self.age_mapping(row, datetime.timedelta(minutes=6))

    def check_left_out(self):
        """Check that the driver gets the disk neither to connect it nor to
        disconnect it.
        """
        self.start_recording()
        self.cloud.reboot(self.server)
        self.assertEqual([], self.host_steps(self.volume))
        self.assertEqual([], self.host_steps(self.theirs))
        self.assertFalse(self.cloud.look(self.server).has_disk(self.volume))
        return self.log_lines(self.server, 'not-connected')


class HardRebootTest(AddressTestCase):

    def test_disk_over_a_limit_is_left_out(self):
        self.set_options(max_removals_per_hour=1)
        self.deny(self.server, self.volume)
        other = self.cloud.volume()
        self.cloud.attach(self.server, other)
        self.cloud.lose_attachment(self.server, other)
        line, = self.check_left_out()
        self.assertIn(self.neighbour.id, line.text)

    def test_disk_of_a_reason_not_selected_is_left_out(self):
        self.set_options(remove=['missing'])
        self.deny(self.server, self.volume)
        self.check_left_out()

    def test_disk_is_left_out_if_cinder_does_not_answer(self):
        self.deny(self.server, self.volume)
        self.silence()
        line, = self.check_left_out()
        self.assertEqual('cinder-unknown', line.reason)
        self.cloud.proxy.clear()

    def test_disk_denied_on_both_sides_is_left_out(self):
        """Keep the device of a neighbour that Cinder denies, as it runs."""
        self.deny(self.server, self.volume)
        self.deny(self.neighbour, self.theirs)
        self.check_left_out()
        # Nothing was decided, so the row stays until the neighbour is off.
        self.assertIsNotNone(
            self.cloud.look(self.server).block_device(self.volume))
        self.cloud.stop(self.neighbour)
        self.age_mapping(self.cloud.row(self.neighbour, self.theirs),
                         datetime.timedelta(minutes=6))
        self.start_recording()
        self.cloud.reboot(self.server)
        self.assertEqual(['disconnect'], self.host_steps(self.volume))
        self.assertIsNone(
            self.cloud.look(self.server).block_device(self.volume))

    def test_a_healthy_disk_is_given_whatever_others_claim(self):
        self.deny(self.neighbour, self.theirs)
        self.assert_healthy(self.reboot(self.server), self.volume)

    def test_disk_left_out_has_an_event(self):
        self.set_options(remove=['missing'])
        self.deny(self.server, self.volume)
        self.check_left_out()
        self.assert_event(
            self.cloud.look(self.server), 'bdm_cleanup did not connect volume '
            f'{self.volume} (volume-available)')


class RootTest(AddressTestCase):

    ROOT = 'volume'

    def test_root_disk_is_left_out(self):
        self.deny(self.server, self.volume)
        line, = self.check_left_out()
        self.assertEqual(('ERROR', 'root-volume-dangling'),
                         (line.level, line.reason))


class OtherWaysTest(AddressTestCase):
    """The other operations that give the driver a disk."""

    def setUp(self):
        super().setUp()
        self.deny(self.server, self.volume)

    def check_start(self):
        self.cloud.stop(self.server)
        self.start_recording()
        self.cloud.start(self.server)
        self.assertEqual([], self.host_steps(self.volume))
        self.assertFalse(self.cloud.look(self.server).has_disk(self.volume))

    def test_start_leaves_the_disk_out(self):
        self.set_options(remove=['missing'])
        self.check_start()

    def test_start_without_answer_leaves_the_disk_out(self):
        self.cloud.stop(self.server)
        self.silence()
        self.start_recording()
        self.cloud.start(self.server)
        self.assertEqual([], self.host_steps(self.volume))
        self.cloud.proxy.clear()

    def test_delete_does_not_disconnect_the_neighbour(self):
        self.cloud.delete(self.server)
        self.assertEqual([], self.host_steps(self.volume))

    def test_delete_without_answer_does_not_disconnect(self):
        self.silence()
        self.start_recording()
        self.cloud.delete(self.server)
        self.cloud.proxy.clear()
        self.assertEqual([], self.host_steps(self.volume))


class TransferTest(scenario.ScenarioTestCase):
    """The new owner of a volume, and its former server."""

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
