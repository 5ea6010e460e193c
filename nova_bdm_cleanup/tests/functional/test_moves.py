# SPDX-License-Identifier: Apache-2.0
"""Servers that leave their host, with a disk that dangles.

The end of each operation in each row of the table is in tests/moves.
"""

from __future__ import annotations

import time

import fixtures
from nova import objects
from nova.virt.libvirt import driver as libvirt_driver

from nova_bdm_cleanup.node.cleanup import log_lines
from nova_bdm_cleanup.tests.cloud import identity, proxy, recorder
from nova_bdm_cleanup.tests.functional import moving, scenario
from nova_bdm_cleanup.tests.functional.moving import HERE, THERE


class ColdMigrationTest(moving.MoveTestCase):

    def test_cold_migration_is_recorded_in_the_journal(self):
        server, lost = self.damaged_server('attachment-deleted')
        self.migrate(server)
        view = self.check_moved(server, lost)
        self.assertEqual('VERIFY_RESIZE', view.status)
        self.assertIsNone(view.block_device(lost))
        entry, = self.journal()
        self.assertEqual(('move', 'done'),
                         (entry.record['trigger'], entry.outcome))

    def test_disk_of_another_guest_stays_connected(self):
        server, lost = self.damaged_server(moving.SAME_HOST)
        self.migrate(server)
        self.assertIsNone(self.check_moved(server, lost).block_device(lost))
        self.assertEqual(2, self.cloud.nova.connected[HERE][lost])
        self.assertEqual({lost}, {
            line.volume for line in self.log_lines(server, 'still-connected')})

    def test_mapping_that_cannot_be_removed_is_left_to_nova(self):
        """End as stock Nova, which attaches the disk again."""
        server, lost = self.damaged_server('attachment-deleted', root='image')
        self.useFixture(fixtures.MockPatchObject(
            objects.BlockDeviceMapping, 'destroy', side_effect=OSError('no')))
        self.migrate(server)
        view = self.look_on_current_host(server)
        self.assertEqual('VERIFY_RESIZE', view.status)
        self.check_attached(view, server.volumes)
        entry, = self.journal()
        self.assertEqual(('move', 'partly'),
                         (entry.record['trigger'], entry.outcome))

    def test_lost_answer_of_a_removal_does_not_end_the_move(self):
        server, lost = self.damaged_server('attachment-deleted')
        destroy = objects.BlockDeviceMapping.destroy

        def lose_answer(row):
            destroy(row)
            raise OSError('the answer was lost')

        self.useFixture(fixtures.MockPatchObject(
            objects.BlockDeviceMapping, 'destroy', lose_answer))
        self.migrate(server)
        view = self.check_moved(server, lost)
        self.assertEqual('VERIFY_RESIZE', view.status)
        self.assertIsNone(view.block_device(lost))

    def test_error_after_a_removal_does_not_end_the_move(self):
        server, lost = self.damaged_server('attachment-deleted')
        self.useFixture(fixtures.MockPatchObject(
            log_lines.LogLines, 'finished', side_effect=ZeroDivisionError))
        self.migrate(server)
        view = self.check_moved(server, lost)
        self.assertEqual('VERIFY_RESIZE', view.status)
        self.assertIsNone(view.block_device(lost))

    def test_nova_compute_crashes(self):
        """Give the driver no lost disk when it restores the guest.

        Nova fails to restore it: the server is active without a guest.
        """
        server, lost = self.damaged_server('attachment-deleted', root='image')
        given = []
        finish = libvirt_driver.LibvirtDriver.finish_revert_migration

        def finish_and_note(driver, context, instance, network_info,
                            migration, block_device_info, power_on):
            given.extend(disk['connection_info']['serial'] for disk in
                         block_device_info['block_device_mapping'])
            finish(driver, context, instance, network_info, migration,
                   block_device_info, power_on)

        self.useFixture(fixtures.MockPatchObject(
            libvirt_driver.LibvirtDriver, 'finish_revert_migration',
            finish_and_note))
        self.start_recording()
        self.cloud.recorder.before(
            recorder.HOST, 'disconnect', recorder.crash,
            max(self.other_volumes(server, lost)))
        self.begin(server, {'migrate': {'host': THERE}})
        self.wait_until(lambda: self.is_left(server, 'resize_migrating'))
        self.cloud.restart_compute(HERE)
        self.assertEqual(sorted(self.other_volumes(server, lost)),
                         sorted(given))
        view = self.cloud.look(server)
        self.assertIsNone(view.block_device(lost))
        self.assertEqual(('ACTIVE', None, False), (
            view.status, view.task_state, view.is_running))
        self.assertNotEqual([], self.cloud.log(
            "AttributeError: 'NoneType' object has no attribute"))
        # Reboot it hard, as the runbook says.
        self.cloud.reboot(server)
        self.check_moved(server, lost, HERE)

    def check_stock_result(self, server, *lost):
        """Check that Nova has attached the disks again."""
        view = self.look_on_current_host(server)
        self.assertEqual('VERIFY_RESIZE', view.status)
        self.check_attached(view, lost)
        self.assertEqual([], self.journal())

    def test_observe_mode_leaves_the_disks_to_nova(self):
        """Leave dangling disks to Nova in mode observe, even a root disk."""
        self.set_options(mode='observe')
        server, lost = self.damaged_server('attachment-deleted')
        self.cloud.lose_attachment(server, server.root)
        self.migrate(server)
        self.check_stock_result(server, lost, server.root)

    def test_cinder_refuses_the_plugin(self):
        """Act as stock Nova, which Cinder answers with the user's token."""
        server, lost = self.damaged_server('attachment-deleted')

        def refuse(request, forward):
            if request.caller == identity.NOVA:
                return proxy.status(503)(request, forward)
            return forward()

        self.cloud.proxy.on('*', '', refuse)
        self.migrate(server)
        self.check_stock_result(server, lost)
        self.assertEqual({('skipped', 'cinder-unknown')}, {
            (line.event, line.reason) for line in self.log_lines(server)})

    def test_healthy_move_costs_two_requests(self):
        server = self.healthy_server()
        for act, where in ((self.migrate, THERE), (self.revert, HERE)):
            act(server)
            self.check_moved(server, None, where)
            self.assertEqual(
                [('GET', 'attachments/detail'), ('GET', 'volumes/detail')],
                [(request.method, request.path.split('?')[0].split('/', 3)[3])
                 for request in self.plugin_requests()])
        self.assertEqual([], self.journal())
        self.assertEqual([], self.log_lines(server))


class ShelveTest(moving.MoveTestCase):

    def test_dangling_since_shelve(self):
        """Disconnect nothing: its last host is no longer known."""
        server = self.healthy_server()
        lost = server.volumes[1]
        self.shelve(server)
        self.damage(server, lost, 'attached-elsewhere')
        self.unshelve(server)
        self.check_moved(server, lost, self.host_of(server))
        self.assertEqual([], self.host_steps(lost))
        self.assertEqual([], self.log_lines(server, 'kept'))


class EvacuationTest(moving.MoveTestCase):

    def test_row_goes_on_the_new_host_and_device_on_the_old(self):
        """Remove the row on the new host, and the device on the old one."""
        server, lost = self.damaged_server('attachment-deleted')
        before = self.cloud.row(server, lost)
        self.evacuate(server)
        view = self.check_moved(server, lost, connected_before=True)
        self.assertIsNone(view.block_device(lost))
        row, = [each for each in self.cloud.nova.block_devices(server.id)
                if each.uuid == before.uuid]
        self.assertTrue(row.deleted)
        # It was not written before it was deleted.
        self.assertEqual((before.updated_at, before.connection_info),
                         (row.updated_at, row.connection_info))
        entry, = self.journal()
        self.assertEqual(('evacuate', 'done'),
                         (entry.record['trigger'], entry.outcome))
        self.assertEqual((1, 0), tuple(
            self.cloud.nova.connected[host][lost] for host in (HERE, THERE)))
        self.start_recording()
        self.come_back()
        self.assertEqual(['disconnect'], self.host_steps(lost))
        self.assertEqual(0, self.cloud.nova.connected[HERE][lost])
        self.assertEqual([('disconnected', 'evacuated')], [
            (line.event, line.reason) for line in self.log_lines(server)])
        self.assertEqual({THERE}, self.allocated_hosts(server))
        self.check_moved(server, lost)

    def test_disk_of_another_guest(self):
        """Leave it: that guest still runs on the host, which was cut off."""
        server, lost = self.damaged_server(moving.SAME_HOST)
        self.evacuate(server)
        self.come_back()
        self.assertEqual(2, self.cloud.nova.connected[HERE][lost])
        self.assertEqual([(lost, 'still-connected')], [
            (line.volume, line.event)
            for line in self.log_lines(server, 'still-connected')])

    def test_the_host_returns_during_a_resize(self):
        """Start nova-compute."""
        server, _ = self.damaged_server('attachment-deleted')
        self.evacuate(server)
        self.cloud.change(server, task_state='resize_migrating')
        self.come_back()

    def test_cinder_hangs_when_the_host_returns(self):
        """Start nova-compute, and do as stock Nova does."""
        self.set_options(timeout=4)
        server, lost = self.damaged_server('attachment-deleted')
        self.evacuate(server)
        self.cloud.proxy.on('GET', '/volumes/detail', self.cloud.proxy.hang)
        begun = time.monotonic()
        self.come_back()
        self.assertLess(time.monotonic() - begun, 60)
        self.assertEqual(0, self.cloud.nova.connected[HERE][lost])


class LiveMigrationTest(moving.MoveTestCase):

    def test_nothing_is_asked_before_the_guest_has_moved(self):
        server, lost = self.damaged_server('transferred')
        self.start_recording()
        asked = []
        self.cloud.recorder.before(
            recorder.HOST, 'connect',
            lambda: asked.append(self.plugin_requests()))
        self.begin(server, moving.live_migration(THERE))
        self.cloud.wait_until_idle(server)
        # Nova attaches the disk again.
        self.assertEqual(THERE, self.host_of(server))
        self.assertTrue(self.look_on_current_host(server).has_disk(lost))
        self.assertEqual([[]], asked)

    def test_disk_of_another_guest_stays_connected(self):
        server, lost = self.damaged_server('attachment-deleted')
        _, theirs = self.add_neighbour(server, lost, HERE)
        self.migrate_live(server)
        self.assertEqual(THERE, self.host_of(server))
        self.assertEqual(1, self.cloud.nova.connected[HERE][theirs])

    def test_another_guest_gets_the_address_meanwhile(self):
        server, lost = self.damaged_server('attachment-deleted')
        neighbour = self.create_server(
            scenario.BOOT_DISK, name='neighbour', host=HERE)
        theirs, = neighbour.volumes
        self.start_recording()
        self.cloud.recorder.before(
            recorder.REQUEST, 'POST',
            lambda: self.reuse_address(server, lost, neighbour, theirs))
        self.begin(server, moving.live_migration(THERE))
        self.cloud.wait_until_idle(server)
        # Nova attaches the disk again.
        self.assertEqual(THERE, self.host_of(server))
        self.assertTrue(self.look_on_current_host(server).has_disk(lost))
        self.assertEqual(1, self.cloud.nova.connected[HERE][theirs])
        self.assertEqual([0] * 3, [
            self.cloud.nova.connected[HERE][volume]
            for volume in self.other_volumes(server, lost)])
        self.assertEqual([(lost, 'still-connected')], [
            (line.volume, line.event)
            for line in self.log_lines(server, 'still-connected')])

    def test_observe_mode_leaves_the_disks_to_nova(self):
        self.set_options(mode='observe')
        server, lost = self.damaged_server('attachment-deleted')
        _, theirs = self.add_neighbour(server, lost, HERE)
        self.migrate_live(server)
        self.assertEqual(0, self.cloud.nova.connected[HERE][theirs])
        self.assertEqual([], self.plugin_requests())
