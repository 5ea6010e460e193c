# SPDX-License-Identifier: Apache-2.0
"""The disks of other servers on the host, and of those on their way to it."""

from __future__ import annotations

import datetime

from nova import objects

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import scenario

HERE, THERE = 'compute1', 'compute2'
#: Of such an age nothing can be under way with a mapping.
OLD = datetime.timedelta(minutes=6)


class NeighbourTestCase(scenario.ScenarioTestCase):
    """A disk of one server dangles, and another server has to do with it."""

    made: fixture.Server
    neighbour: fixture.Server

    def _reboot(self, row_stays: bool) -> list[str]:
        volume = self.made.volumes[0]
        view = self.reboot(self.made)
        self.assertEqual(row_stays, view.block_device(volume) is not None)
        # Also without what is kept until it can be decided.
        self.assertFalse(view.has_disk(volume))
        return self.on_host(volume)

    def check_disconnected(self) -> None:
        self.assertEqual(['disconnect'], self._reboot(row_stays=False))

    def check_left(self) -> None:
        """It is the neighbour's."""
        self.assertEqual([], self._reboot(row_stays=False))
        self.assertEqual(1, len(self.audit(self.made, 'left')))

    def check_undecided(self, words: str) -> None:
        """Nothing is done, and tried again later."""
        self.assertEqual([], self._reboot(row_stays=True))
        failed, = self.audit(self.made, 'failed')
        self.assertIn(words, failed.text)

    def forget_connection(self) -> objects.BlockDeviceMapping:
        """Nova has a row of the neighbour's disk, and no more."""
        return self.cloud.change_row(
            self.neighbour, self.neighbour.volumes[0], connection_info=None)


class ReusedAddressTest(NeighbourTestCase):
    """The array gave the number of a lost volume to the next one."""

    def setUp(self):
        super().setUp()
        self.made = self.server(fixture.Disk())
        self.neighbour = self.server(fixture.Disk(), name='neighbour')
        self.cloud.lose_attachment(self.made, *self.made.volumes)
        self.set_unit(self.made, 5)

    def set_unit(self, server, unit):
        """Have a server's disk behind a target with many units."""
        self.cloud.set_address(
            server, server.volumes[0], target_lun=unit,
            target_iqn='iqn.2010-10.org.openstack:array')

    def move(self, unit, source, target, task_state='migrating'):
        """The neighbour is being migrated, and Nova has not yet finished."""
        self.set_unit(self.neighbour, unit)
        self.migration = objects.Migration(
            self.cloud.nova.context(), instance_uuid=self.neighbour.id,
            migration_type='live-migration', status='running',
            source_compute=source, source_node=source, dest_compute=target,
            dest_node=target)
        if 'dest_compute_id' in self.migration.fields:
            # Recent releases want it, whatever it is.
            self.migration.dest_compute_id = 1
        self.migration.create()
        self.cloud.change(self.neighbour, host=source, task_state=task_state)

    def end(self, host):
        """The migration has ended there."""
        self.migration.status = 'completed'
        self.migration.save()
        self.cloud.change(self.neighbour, host=host, task_state=None)

    def test_another_number(self):
        self.set_unit(self.neighbour, 6)
        self.check_disconnected()

    def test_the_same_number(self):
        self.set_unit(self.neighbour, 5)
        self.check_left()

    def test_the_same_number_in_a_mapping_that_dangles_itself(self):
        """Its address is nobody's, and the disk would be left for good."""
        self.set_unit(self.neighbour, 5)
        self.cloud.lose_attachment(self.neighbour, *self.neighbour.volumes)
        self.check_disconnected()

    def test_the_same_number_where_cinder_does_not_tell_whose_it_is(self):
        volume, = self.neighbour.volumes
        self.set_unit(self.neighbour, 5)
        self.cloud.lose_attachment(self.neighbour, volume)
        self.cloud.reset_status(volume, 'error')
        self.check_undecided('same address')

    def test_on_its_way_between_others(self):
        self.move(6, 'elsewhere', 'nowhere')
        self.check_disconnected()

    def test_leaving_by_a_cold_migration(self):
        """Until its disks are disconnected, its rows say where they are."""
        self.move(5, HERE, 'elsewhere', 'resize_migrating')
        self.check_left()

    def test_left_by_a_cold_migration(self):
        """The same address is another disk's, on the other host."""
        self.move(5, HERE, 'elsewhere', 'resize_migrated')
        self.cloud.change(self.neighbour, host='elsewhere')
        self.check_disconnected()

    def test_coming_by_a_live_migration(self):
        """Its disks are here before it is, and no row tells by what."""
        self.move(6, 'elsewhere', HERE)
        self.check_undecided('is moving')
        self.end(HERE)
        self.check_disconnected()

    def test_leaving_by_a_live_migration(self):
        """Its rows say how it is connected there, already."""
        self.move(6, HERE, 'elsewhere')
        self.check_undecided('is moving')
        self.end('elsewhere')
        self.check_disconnected()

    def test_coming_by_a_cold_migration(self):
        self.move(6, 'elsewhere', HERE, 'resize_prep')
        self.check_undecided('is moving')

    def begin_action(self, action):
        """Nova begins something with the neighbour."""
        objects.InstanceAction.action_start(
            self.cloud.nova.context(), self.neighbour.id, action)

    def test_being_attached(self):
        """Nova connects first and writes down the address after that."""
        row = self.forget_connection()
        self.check_undecided('attached to')
        self.age_mapping(row, OLD)
        # It may have waited for whatever else went on with the server.
        self.begin_action('attach_volume')
        self.check_undecided('attached to')
        context = self.cloud.nova.context()
        for tell in (objects.InstanceActionEvent.event_start,
                     objects.InstanceActionEvent.event_finish):
            tell(context, self.neighbour.id, 'compute_attach_volume')
        self.check_disconnected()

    def test_an_attach_that_died(self):
        """Until the guest has lost the disk when the server is stopped."""
        self.age_mapping(self.forget_connection(), OLD)
        self.begin_action('attach_volume')
        self.check_undecided('attached to')
        self.begin_action('stop')
        self.check_disconnected()


class MigratingNeighbourTest(NeighbourTestCase):
    """A live migration connects its volumes before the server moves."""

    ARGUMENTS = {'hosts': (HERE, THERE)}

    def setUp(self):
        super().setUp()
        self.made = self.server(fixture.Disk(), root='volume', host=HERE)
        self.neighbour = self.cloud.give_away(
            self.made, self.made.volumes[0], host=THERE)

    def test_at_rest_elsewhere(self):
        self.check_disconnected()

    def test_busy_elsewhere(self):
        self.cloud.change(self.neighbour, task_state='image_uploading')
        self.check_disconnected()

    def test_perhaps_on_its_way_here(self):
        self.cloud.change(self.neighbour, task_state='migrating')
        self.check_undecided('migrating')
        self.cloud.change(self.neighbour, task_state=None)
        self.check_disconnected()

    def test_never_connected_on_this_host(self):
        """A row alone keeps no disk: nobody would disconnect it later."""
        self.cloud.change(self.neighbour, host=HERE)
        row = self.forget_connection()
        self.check_undecided('attached to')
        self.age_mapping(row, OLD)
        self.check_disconnected()

    # Lists of servers leave these out; they are connected all the same.

    def test_soft_deleted_on_this_host(self):
        self.cloud.change(self.neighbour, host=HERE, vm_state='soft-delete')
        self.check_left()

    def test_hidden_on_this_host(self):
        self.cloud.change(self.neighbour, host=HERE, hidden=True)
        self.check_left()
