# SPDX-License-Identifier: Apache-2.0
"""Evacuated servers: the addresses of their old host, and its return."""

from __future__ import annotations

import fixtures
from nova.compute import resource_tracker
from nova.virt.libvirt import driver as libvirt_driver

from nova_bdm_cleanup.node.instance import NovaInstance
from nova_bdm_cleanup.tests.cloud import fixture, proxy
from nova_bdm_cleanup.tests.functional import moving
from nova_bdm_cleanup.tests.functional.moving import HERE, THERE


class ReusedAddressTest(moving.MoveTestCase):
    """Another guest of the new host has the address of the lost disk."""

    def setUp(self):
        super().setUp()
        self.server, self.lost = self.damaged_server('attachment-deleted')
        _, self.theirs = self.add_neighbour(self.server, self.lost, THERE)

    def evacuate_and_check(self):
        self.evacuate(self.server)
        self.check_moved(self.server, self.lost, connected_before=True)
        self.check_kept()

    def check_kept(self):
        """Check that nothing was connected or disconnected by the address."""
        self.assertEqual([], self.host_steps(self.lost))
        self.assertEqual(1, self.cloud.nova.connected[THERE][self.theirs])

    def test_reboot_in_silence(self):
        self.evacuate_and_check()
        self.cloud.proxy.on('*', '^/v3/', proxy.status(503))
        self.start_recording()
        self.cloud.reboot(self.server)
        self.cloud.proxy.clear()
        self.check_kept()
        self.assertFalse(
            self.look_on_current_host(self.server).has_disk(self.lost))

    def test_detach_keeps_the_disk_of_another_guest(self):
        self.evacuate_and_check()
        error = self.assertRaises(fixture.APIError, self.cloud.detach,
                                  self.server, self.lost)
        self.assertEqual(404, error.status)
        self.check_kept()

    def test_live_migration_keeps_the_disk_of_another_guest(self):
        self.evacuate_and_check()
        self.come_back()
        self.migrate_live(self.server, HERE)
        self.check_moved(self.server, self.lost, HERE)
        self.check_kept()

    def test_nova_alone_connects_the_lost_disk(self):
        """Give the disk that was lost back to the server."""
        self.switch_plugin_off()
        self.evacuate(self.server)
        self.assert_healthy(
            self.look_on_current_host(self.server), self.lost)


class ManyTest(moving.MoveTestCase):

    def test_evacuations_are_not_stopped_by_the_limit(self):
        """Evacuate more servers of a host than the limit allows removals."""
        self.set_options(max_removals_per_hour=1)
        servers = [self.damaged_server('attachment-deleted')
                   for _ in range(3)]
        for server, lost in servers:
            self.evacuate(server)
            self.check_moved(server, lost, connected_before=True)


class ReturnTest(moving.MoveTestCase):
    """The old host returns before the evacuation ends."""

    def return_while(self, owner, method, status, server):
        """Have the old host return while a method of the new one runs."""
        held = self.hold(owner, method)
        self.go_down()
        self.begin(server, moving.EVACUATION)
        held.wait_until_reached()
        with self.cloud.nova.database('cell1') as database:
            self.assertEqual([(status,)], database.execute(
                'SELECT status FROM migrations').fetchall())
        self.come_back()
        kept = dict(self.cloud.nova.connected[HERE])
        held.end()
        self.cloud.wait_until_idle(server)
        return kept

    def return_during_spawn(self, server):
        return self.return_while(
            libvirt_driver.LibvirtDriver, 'spawn', 'pre-migrating', server)

    def test_during_the_spawn(self):
        server, lost = self.damaged_server('attachment-deleted')
        self.assertEqual({}, self.return_during_spawn(server))
        self.check_moved(server, lost)

    def test_before_the_claim(self):
        server, lost = self.damaged_server('attachment-deleted')
        self.assertEqual({}, self.return_while(
            resource_tracker.ResourceTracker, 'rebuild_claim', 'accepted',
            server))
        self.check_moved(server, lost)

    def test_disk_of_another_guest(self):
        server, lost = self.damaged_server(moving.SAME_HOST)
        self.assertEqual({lost: 2}, self.return_during_spawn(server))
        self.check_moved(server, lost)

    def test_address_of_another_guest(self):
        server, lost = self.damaged_server('attachment-deleted')
        _, theirs = self.add_neighbour(server, lost, HERE)
        self.assertIn(theirs, self.return_during_spawn(server))
        self.assertEqual([], self.host_steps(lost))
        self.check_moved(server, lost)


    def test_server_is_back(self):
        """Do not touch the guest of a server that came back by a migration.

        Some releases leave an evacuation "done" if its guest was gone.
        """
        server, lost = self.damaged_server('attachment-deleted')
        self.evacuate(server)
        self.come_back()
        self.act(server, {'migrate': {'host': HERE}})
        self.confirm(server)
        with self.cloud.nova.database('cell1') as database:
            database.execute("UPDATE migrations SET status = 'done' "
                             "WHERE migration_type = 'evacuation'")
            database.commit()
        self.start_recording()
        off = self.useFixture(fixtures.MockPatchObject(
            NovaInstance, 'power_off')).mock
        self.cloud.restart_compute(HERE, reports_resources=True)
        self.assertFalse(off.called)
        self.assertEqual([], self.log_lines(server, 'disconnected'))


class FailedTest(moving.MoveTestCase):
    """An evacuation that fails, and the old host returns."""

    def fail_evacuation(self, owner, method, **behaviour):
        """Return a server whose evacuation failed, and its lost disk.

        :param method: a method of Nova that fails
        """
        server, lost = self.damaged_server('attachment-deleted')
        with fixtures.MockPatchObject(owner, method, **behaviour):
            self.evacuate(server)
        self.assertEqual(HERE, self.host_of(server))
        return server, lost

    def fail_after_removal(self):
        server, lost = self.fail_evacuation(
            libvirt_driver.LibvirtDriver, 'spawn', side_effect=OSError('no'))
        entry, = self.journal()
        self.assertEqual('done', entry.outcome)
        return server, lost

    def test_check_of_nova_fails_before_the_removal(self):
        """Remove nothing if Nova itself ends the evacuation first."""
        server, lost = self.fail_evacuation(
            libvirt_driver.LibvirtDriver, 'instance_exists',
            return_value=True)
        self.assertEqual([], self.journal())
        self.assertIsNotNone(self.cloud.look(server).block_device(lost))
        self.assertEqual([], self.changes())

    def test_running_guest_keeps_its_device_until_it_is_off(self):
        server, lost = self.fail_after_removal()
        self.come_back()
        view = self.cloud.look(server)
        self.assertTrue(view.is_running)
        self.assertTrue(view.has_disk(lost))
        self.assertIn(lost, view.connected)
        self.cloud.reboot(server)
        view = self.look(server)
        self.assert_gone(view, lost)
        self.check_attached(view, self.other_volumes(server, lost))

    def test_disk_attached_again_stays_connected(self):
        server, lost = self.fail_after_removal()
        self.come_back()
        self.cloud.change(server, vm_state='active', task_state=None)
        healthy = server.volumes[0]
        self.cloud.detach(server, healthy)
        self.wait_until(lambda: not self.cloud.attachments(healthy))
        for volume in (lost, healthy):
            self.cloud.attach(server, volume)
        self.wait_until(lambda: ['attached'] * 2 == [
            each.status for volume in (lost, healthy)
            for each in self.cloud.attachments(volume)])
        self.cloud.stop(server)
        self.cloud.restart_compute(HERE, reports_resources=True)
        view = self.cloud.look(server)
        for volume in (lost, healthy):
            self.assertIn(volume, view.connected)

    def test_device_of_a_guest_that_is_off_is_disconnected(self):
        server, lost = self.fail_after_removal()
        self.cloud.lose_power(server)
        self.come_back()
        self.assertEqual(0, self.cloud.nova.connected[HERE][lost])


class StartTest(moving.MoveTestCase):
    """Nothing that dangles keeps nova-compute from starting."""

    ARGUMENTS = {**moving.MoveTestCase.ARGUMENTS, 'nova_options': {
        'DEFAULT': {'resume_guests_state_on_host_boot': True}}}

    def setUp(self):
        super().setUp()
        self.server, self.lost = self.damaged_server(moving.SAME_HOST)
        neighbour = self.create_server(name='neighbour', host=HERE)
        self.cloud.change(neighbour, task_state='migrating')
        self.block_store()
        self.cloud.lose_power(self.server)

    def check_start(self):
        self.cloud.restart_compute(HERE, reports_resources=True)
        view = self.look(self.server)
        self.assertFalse(view.has_disk(self.lost))
        self.assertEqual(2, self.cloud.nova.connected[HERE][self.lost])

    def test_resumed_reboot_does_not_prevent_the_start(self):
        self.cloud.change(self.server, task_state='reboot_pending_hard')
        self.check_start()

    def test_resumed_guest_does_not_prevent_the_start(self):
        self.check_start()
