# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""A disk is not disconnected where another may be behind its address.

Only proof, which is a server on this host and the exact address, goes on
without disconnecting.  What is half way stops, and the next reboot goes on.
"""

from __future__ import annotations

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.functional import scenario

ARRAY = 'iqn.2010-10.org.openstack:array'
A, B = 'iqn.2010-10.org.openstack:a', 'iqn.2010-10.org.openstack:b'


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

    def on_host(self, volume):
        return [event.what for event in self.cloud.timeline(volume)
                if event.party == recorder.HOST]

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


class PairsTest(AddressesTestCase):
    """Several targets and several units belong together one by one."""

    def setUp(self):
        super().setUp()
        self.other = self.neighbour('compute1')
        self.set_paths(self.made, (A, B), (1, 2))

    def set_paths(self, server, targets, units):
        targets = [self.target(name) for name in targets]
        self.cloud.set_address(
            server, server.volumes[0], target_iqn=targets[0],
            target_lun=units[0], target_iqns=targets,
            target_luns=list(units))

    def test_other_pairs(self):
        self.set_paths(self.other, (A, B), (2, 1))
        self.assertEqual(1, self.reboot_and_disconnects())
        self.check_removed()

    def test_same_pairs(self):
        self.set_paths(self.other, (B, A), (2, 1))
        self.assertEqual(0, self.reboot_and_disconnects())
        self.check_removed()

    def test_one_pair_of_two(self):
        self.set_paths(self.other, (A, B), (1, 7))
        self.assertEqual(0, self.reboot_and_disconnects())
        self.check_removed()


class PerhapsTest(AddressesTestCase):
    """The volume's other server migrates; where to is not known here."""

    def setUp(self):
        super().setUp()
        self.other = self.server(
            fixture.Disk(volume=self.lost, at_boot=True),
            name='successor', host='compute2')
        self.set_unit(self.other, 6)

    def test_it_was_not_coming_here(self):
        self.move('migrating')
        self.reboot_and_disconnects()
        self.check_stopped()
        self.move(None)
        self.assertEqual(1, self.reboot_and_disconnects())
        self.check_removed()
        self.assertNotIn(self.lost, self.view.connected)

    def move(self, task_state):
        instance = self.cloud.nova.instance(self.other.id)
        instance.task_state = task_state
        instance.save()

    def test_it_came_here(self):
        migration = self.cloud.begin_live_migration(self.other, 'compute1')
        self.reboot_and_disconnects()
        self.check_stopped()
        self.cloud.end_live_migration(self.other, migration)
        self.assertEqual(0, self.reboot_and_disconnects())
        self.check_removed()
        self.assertIn(self.lost, self.view.connected)


class HiddenUserTest(scenario.ScenarioTestCase):
    """Servers that lists do not show use their volumes all the same."""

    ARGUMENTS = {'nova_options': {
        **scenario.NO_QUOTAS, 'DEFAULT': {'reclaim_instance_interval': 3600}}}

    def setUp(self):
        super().setUp()
        self.made = self.server(fixture.Disk(multiattach=True))
        self.lost, = self.made.volumes
        self.other = self.server(name='other')
        self.cloud.attach(self.other, self.lost)
        self.cloud.lose_attachment(self.made, self.lost)

    def check_still_connected(self):
        view = self.reboot(self.made)
        self.assertIsNone(view.block_device(self.lost))
        self.assertEqual([], [
            event for event in self.cloud.timeline(self.lost)
            if event.party == recorder.HOST])
        self.assertIn(self.lost, view.connected)

    def test_soft_deleted(self):
        self.cloud.request('DELETE', f'/servers/{self.other.id}')
        self.assertEqual(
            'soft-delete', self.cloud.nova.instance(self.other.id).vm_state)
        self.check_still_connected()

    def test_hidden(self):
        """As in a resize from one cell to another."""
        instance = self.cloud.nova.instance(self.other.id)
        instance.hidden = True
        instance.save()
        self.check_still_connected()
