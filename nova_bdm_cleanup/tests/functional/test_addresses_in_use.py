# SPDX-License-Identifier: Apache-2.0
"""A disk is not disconnected where another may be behind its address.

Only proof, which is a server on this host and the exact address, goes on
without disconnecting.  What is half way stops, and the next reboot goes on.
"""

from __future__ import annotations

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import scenario

ARRAY = 'iqn.2010-10.org.openstack:array'


class AddressesTestCase(scenario.ScenarioTestCase):
    """A server on compute1 with a disk that dangles, at unit 5 there."""

    ARGUMENTS = {'hosts': ('compute1', 'compute2')}

    def setUp(self):
        super().setUp()
        self.made = self.server(scenario.BOOT_DISK, host='compute1')
        self.lost, = self.made.volumes
        self.set_unit(self.made, 5)
        self.cloud.lose_attachment(self.made, self.lost)

    def set_unit(self, server, unit):
        self.cloud.set_address(server, server.volumes[0],
                               target_iqn=self.target(ARRAY),
                               target_lun=unit)

    def target(self, name):
        """Of this test only: the servers of others stay on the host."""
        return '%s-%s' % (name, self.made.id)

    def neighbour(self, host):
        return self.server(scenario.BOOT_DISK, name='neighbour', host=host)

    def reboot_and_disconnects(self):
        """Reboot, and tell how often the disk was disconnected."""
        self.view = self.reboot(self.made)
        return self.on_host(self.lost).count('disconnect')

    def check_stopped(self):
        """Nothing was done about the disk, not by Nova's own reboot either.

        The guest is without it, and the next look tries again.
        """
        self.assertEqual([], self.on_host(self.lost))
        self.assertFalse(self.view.has_disk(self.lost))
        self.assertIn(self.lost, self.view.connected)
        self.assertIsNotNone(self.view.block_device(self.lost),
                             'no row is left to clean the device up by')
        self.assertEqual([], self.requests('DELETE'))
        self.assertEqual({'WARNING'}, {
            line.level for line in self.audit(self.made)
            if line.volume == self.lost and line.event != 'removing'})

    def check_removed(self):
        self.assertIsNone(self.view.block_device(self.lost))
        self.assertFalse(self.view.has_disk(self.lost))
        self.assertNotIn('connect', self.on_host(self.lost))


class ComingTest(AddressesTestCase):
    """A server migrates to this host: its disks are here before it is."""

    def setUp(self):
        super().setUp()
        self.coming = self.neighbour('compute2')
        self.migration = self.cloud.begin_live_migration(
            self.coming, 'compute1')
        self.set_unit(self.coming, 5)

    def test_same_unit(self):
        self.reboot_and_disconnects()
        self.check_stopped()
        self.cloud.end_live_migration(self.coming, self.migration)
        self.assertEqual(0, self.reboot_and_disconnects())
        self.check_removed()

    def test_migration_failed(self):
        """Then the unit is nobody's, and the disk is disconnected."""
        self.reboot_and_disconnects()
        self.check_stopped()
        self.migration.status = 'error'
        self.migration.save()
        instance = self.cloud.nova.instance(self.coming.id)
        instance.task_state = None
        instance.save()
        self.set_unit(self.coming, 9)
        self.reboot_and_disconnects()
        self.check_removed()


class LeavingTest(AddressesTestCase):
    """A server migrates away: its rows say how it is connected there."""

    def setUp(self):
        super().setUp()
        self.leaving = self.neighbour('compute1')
        self.set_unit(self.leaving, 5)
        self.migration = self.cloud.begin_live_migration(
            self.leaving, 'compute2')
        # Here it runs on unit 5 still.
        self.set_unit(self.leaving, 9)

    def test_unit_that_no_row_tells_of(self):
        self.reboot_and_disconnects()
        self.check_stopped()
        self.cloud.end_live_migration(self.leaving, self.migration)
        self.assertEqual(1, self.reboot_and_disconnects())
        self.check_removed()


class PerhapsTest(AddressesTestCase):
    """The volume's other server migrates; where to is not known here."""

    def setUp(self):
        super().setUp()
        self.other = self.server(
            fixture.Disk(volume=self.lost, at_boot=True),
            name='successor', host='compute2')
        self.set_unit(self.other, 6)

    def test_it_came_here(self):
        migration = self.cloud.begin_live_migration(self.other, 'compute1')
        self.reboot_and_disconnects()
        self.check_stopped()
        self.cloud.end_live_migration(self.other, migration)
        self.assertEqual(0, self.reboot_and_disconnects())
        self.check_removed()
        self.assertIn(self.lost, self.view.connected)
