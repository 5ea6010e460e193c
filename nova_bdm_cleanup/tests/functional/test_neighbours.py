# SPDX-License-Identifier: Apache-2.0
"""The disks of other servers on the host, and of servers that move to it."""

from __future__ import annotations

import datetime

from nova import objects

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import scenario

HERE, THERE = 'compute1', 'compute2'
#: The age of a mapping at which no operation on it can be running.
OLDER_THAN_OPERATIONS = datetime.timedelta(minutes=6)


class NeighbourTestCase(scenario.ScenarioTestCase):
    """A dangling disk; another server has its address or its volume."""

    server: fixture.Server
    neighbour: fixture.Server

    def _reboot(self, row_stays: bool) -> list[str]:
        volume = self.server.volumes[0]
        view = self.reboot(self.server)
        self.assertEqual(row_stays, view.block_device(volume) is not None)
        # The guest is without the disk even when nothing is decided.
        self.assertFalse(view.has_disk(volume))
        return self.host_steps(volume)

    def check_disconnected(self) -> None:
        self.assertEqual(['disconnect'], self._reboot(row_stays=False))

    def check_left(self) -> None:
        """Check that the disk is left: it is the neighbour's."""
        self.assertEqual([], self._reboot(row_stays=False))
        self.assertEqual(1, len(self.log_lines(self.server, 'left')))

    def check_undecided(self, words: str) -> None:
        """Check that nothing is done, for a later reboot to retry."""
        self.assertEqual([], self._reboot(row_stays=True))
        failed, = self.log_lines(self.server, 'failed')
        self.assertIn(words, failed.text)

    def remove_connection_info(self) -> objects.BlockDeviceMapping:
        """Remove the connection info from the row of the neighbour's disk."""
        return self.cloud.change_row(
            self.neighbour, self.neighbour.volumes[0], connection_info=None)


class ReusedAddressTest(NeighbourTestCase):
    """The LUN of a dangling disk, which the back end has used again."""

    def setUp(self):
        super().setUp()
        self.server = self.create_server(fixture.Disk())
        self.neighbour = self.create_server(fixture.Disk(), name='neighbour')
        self.cloud.lose_attachment(self.server, *self.server.volumes)
        self.set_lun(self.server, 5)

    def set_lun(self, server, lun):
        """Put a server's disk behind a target with many LUNs."""
        self.cloud.change_connection_data(
            server, server.volumes[0], target_lun=lun,
            target_iqn='iqn.2010-10.org.openstack:array')

    def move(self, lun, source, target, task_state='migrating'):
        """Begin a migration of the neighbour, without its end."""
        self.set_lun(self.neighbour, lun)
        self.migration = objects.Migration(
            self.cloud.nova.context(), instance_uuid=self.neighbour.id,
            migration_type='live-migration', status='running',
            source_compute=source, source_node=source, dest_compute=target,
            dest_node=target)
        if 'dest_compute_id' in self.migration.fields:
            # Recent releases require it, with any value.
            self.migration.dest_compute_id = 1
        self.migration.create()
        self.cloud.change(self.neighbour, host=source, task_state=task_state)

    def end(self, host):
        """End the migration on a host."""
        self.migration.status = 'completed'
        self.migration.save()
        self.cloud.change(self.neighbour, host=host, task_state=None)

    def test_disk_is_disconnected_if_neighbour_has_another_lun(self):
        self.set_lun(self.neighbour, 6)
        self.check_disconnected()

    def test_disk_is_left_if_neighbour_has_the_same_lun(self):
        self.set_lun(self.neighbour, 5)
        self.check_left()

    def test_same_lun_in_dangling_mapping(self):
        """Leave it while the guest of the other mapping may use the device."""
        volume, = self.neighbour.volumes
        self.set_lun(self.neighbour, 5)
        self.cloud.lose_attachment(self.neighbour, volume)
        self.check_undecided('may be in use by the guest')
        self.cloud.stop(self.neighbour)
        self.age_mapping(self.cloud.row(self.neighbour, volume),
                         OLDER_THAN_OPERATIONS)
        self.check_disconnected()

    def test_same_lun_of_volume_in_error(self):
        volume, = self.neighbour.volumes
        self.set_lun(self.neighbour, 5)
        self.cloud.lose_attachment(self.neighbour, volume)
        self.cloud.reset_status(volume, 'error')
        self.check_undecided('may be in use by the guest')

    def test_migration_between_other_hosts(self):
        self.move(6, 'elsewhere', 'another')
        self.check_disconnected()

    def test_cold_migration_from_this_host(self):
        """Leave it: the neighbour's rows hold the address.

        They do so until the neighbour's disks are disconnected.
        """
        self.move(5, HERE, 'elsewhere', 'resize_migrating')
        self.check_left()

    def test_cold_migrated_from_this_host(self):
        """Disconnect it: on the other host the address is another disk's."""
        self.move(5, HERE, 'elsewhere', 'resize_migrated')
        self.cloud.change(self.neighbour, host='elsewhere')
        self.check_disconnected()

    def test_live_migration_to_this_host(self):
        """Wait: the neighbour's disks are here, but no row has the address."""
        self.move(6, 'elsewhere', HERE)
        self.check_undecided('is moving')
        self.end(HERE)
        self.check_disconnected()

    def test_live_migration_to_this_host_of_an_evacuated_server(self):
        """Ask for the migrations of this host, not of the server's node."""
        values: dict[str, object] = {'node': THERE}
        if 'compute_id' in objects.Instance.fields:
            # Recent releases require it, with any value.
            values['compute_id'] = 1
        self.cloud.change(self.server, **values)
        self.move(6, 'elsewhere', HERE)
        self.check_undecided('is moving')

    def test_live_migration_from_this_host(self):
        """Wait: the neighbour's rows already hold the other host's address."""
        self.move(6, HERE, 'elsewhere')
        self.check_undecided('is moving')
        self.end('elsewhere')
        self.check_disconnected()

    def test_cold_migration_to_this_host(self):
        self.move(6, 'elsewhere', HERE, 'resize_prep')
        self.check_undecided('is moving')

    def begin_action(self, action):
        """Begin an instance action of the neighbour."""
        objects.InstanceAction.action_start(
            self.cloud.nova.context(), self.neighbour.id, action)

    def test_attach_in_flight(self):
        """Wait: Nova connects first, and saves the address after that."""
        row = self.remove_connection_info()
        self.check_undecided('attached to')
        self.age_mapping(row, OLDER_THAN_OPERATIONS)
        # It may have waited for another operation on the neighbour.
        self.begin_action('attach_volume')
        self.check_undecided('attached to')
        context = self.cloud.nova.context()
        for record in (objects.InstanceActionEvent.event_start,
                       objects.InstanceActionEvent.event_finish):
            record(context, self.neighbour.id, 'compute_attach_volume')
        self.check_disconnected()

    def test_interrupted_attach_of_neighbour_is_undecided(self):
        """Wait until the neighbour is stopped: its guest loses the disk."""
        self.age_mapping(self.remove_connection_info(), OLDER_THAN_OPERATIONS)
        self.begin_action('attach_volume')
        self.check_undecided('attached to')
        self.begin_action('stop')
        self.check_disconnected()


class MigratingNeighbourTest(NeighbourTestCase):
    """A live migration, which connects volumes before the server moves."""

    ARGUMENTS = {'hosts': (HERE, THERE)}

    def setUp(self):
        super().setUp()
        self.server = self.create_server(fixture.Disk(), root='volume',
                                         host=HERE)
        self.neighbour = self.cloud.attach_elsewhere(
            self.server, self.server.volumes[0], host=THERE)

    def test_idle_on_another_host(self):
        self.check_disconnected()

    def test_busy_on_another_host(self):
        self.cloud.change(self.neighbour, task_state='image_uploading')
        self.check_disconnected()

    def test_migrating_neighbour_is_undecided(self):
        self.cloud.change(self.neighbour, task_state='migrating')
        self.check_undecided('migrating')
        self.cloud.change(self.neighbour, task_state=None)
        self.check_disconnected()

    def test_never_connected_on_this_host(self):
        """Disconnect it despite the neighbour's row: nothing else would."""
        self.cloud.change(self.neighbour, host=HERE)
        row = self.remove_connection_info()
        self.check_undecided('attached to')
        self.age_mapping(row, OLDER_THAN_OPERATIONS)
        self.check_disconnected()

    # Lists of servers omit such a server, but its disks are connected.

    def test_soft_deleted_on_this_host(self):
        self.cloud.change(self.neighbour, host=HERE, vm_state='soft-delete')
        self.check_left()

    def test_hidden_on_this_host(self):
        self.cloud.change(self.neighbour, host=HERE, hidden=True)
        self.check_left()
