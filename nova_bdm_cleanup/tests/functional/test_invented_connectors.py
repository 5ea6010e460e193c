# SPDX-License-Identifier: Apache-2.0
"""The host disconnects only what Nova itself has connected.

A member of a project may make attachments in Cinder for any server, with any
connector: host and initiator are free text.  The back end numbers its units
for that initiator, and on this host the same number is somebody else's disk.
"""

from __future__ import annotations

from nova_bdm_cleanup.tests.cloud import fixture, recorder
from nova_bdm_cleanup.tests.functional import scenario

INVENTED = 'iqn.2026-01.test:invented'
ARRAY = 'iqn.2010-10.org.openstack:array'


class InventedConnectorTest(scenario.ScenarioTestCase):

    def setUp(self):
        super().setUp()
        self.made = self.server(scenario.BOOT_DISK)
        self.kept, = self.made.volumes

    def invent(self, volume, host=None, by=None):
        """Make an attachment that names a host, as a member."""
        return self.cloud.leave_attachment(
            self.made, volume, by=by or self.cloud.owner,
            host=host or self.made.host, initiator=INVENTED)

    def disconnected(self, *volumes):
        return [event.subject for event in self.cloud.timeline(*volumes)
                if (event.party, event.what)
                == (recorder.HOST, 'disconnect')]

    def test_beside_a_disk_that_dangles(self):
        """The one that Nova connected is disconnected all the same."""
        made = self.server(*[scenario.BOOT_DISK] * 2)
        lost, kept = made.volumes
        self.cloud.lose_attachment(made, lost)
        volume = self.cloud.volume()
        self.cloud.leave_attachment(made, volume, by=self.cloud.owner,
                                    initiator=INVENTED)
        view = self.reboot(made)
        self.assertEqual([lost], self.disconnected(lost, volume))
        self.assert_gone(view, lost)
        self.assert_healthy(view, kept)

    def test_second_attachment_of_a_disk_that_dangles(self):
        """It goes with the mapping, which says where the disk is."""
        made = self.server(scenario.BOOT_DISK)
        lost, = made.volumes
        self.cloud.set_address(made, lost, target_iqn=ARRAY, target_lun=7)
        self.cloud.lose_attachment(made, lost)
        self.cloud.leave_attachment(made, lost, by=self.cloud.owner,
                                    initiator=INVENTED)
        self.cloud.reset_status(lost)
        del self.cloud.nova.disconnects[:]
        view = self.reboot(made)
        self.assert_gone(view, lost)
        self.assertEqual([7], self.units(lost))

    def units(self, volume):
        """The units that os-brick was told to take away for a volume."""
        return [told['target_lun'] for told, _ in self.cloud.nova.disconnects
                if told['volume_id'] == volume]

    def test_row_of_another_server(self):
        """What one server has connected is no reason for another's."""
        volume = self.cloud.volume(multiattach=True)
        neighbour = self.server(
            fixture.Disk(volume=volume, at_boot=True), name='neighbour')
        self.invent(volume)
        view = self.reboot(self.made)
        self.assertEqual([], self.disconnected(volume))
        self.assert_healthy(self.look(neighbour), volume)
        self.assert_healthy(view, self.kept)
