# SPDX-License-Identifier: Apache-2.0
"""Deletes of servers with a disk that dangles."""

from __future__ import annotations

import datetime

import fixtures
from oslo_config import cfg

from nova_bdm_cleanup.openstack import cinder
from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.functional import moving
from nova_bdm_cleanup.tests.functional.moving import HERE

CONF = cfg.CONF


class DeleteTest(moving.MoveTestCase):

    def test_disk_of_another_guest(self):
        server, lost = self.damaged_server(moving.SAME_HOST)
        self.start_recording()
        self.cloud.delete(server)
        self.assertEqual([], self.host_steps(lost))
        self.assertEqual(2, self.cloud.nova.connected[HERE][lost])

    def test_host_is_disconnected_before_the_attachment(self):
        """Disconnect the host before Cinder is told."""
        server, lost = self.damaged_server('status-reset')
        self.start_recording()
        self.cloud.delete(server)
        self.assert_order(
            self.cloud.timeline(lost), (recorder.HOST, 'disconnect'),
            (recorder.BACK_END, 'terminate_connection'))
        self.assertEqual(0, self.cloud.nova.connected[HERE][lost])

    def test_secret_of_a_disk_that_stays_connected_is_deleted(self):
        server, lost = self.damaged_server('attachment-deleted')
        _, theirs = self.add_neighbour(server, lost, HERE)
        deleted = []
        self.useFixture(fixtures.MockPatchObject(
            self.cloud.nova.computes[HERE].manager.driver._host,
            'delete_secret', lambda *usage: deleted.append(usage)))
        self.cloud.delete(server)
        self.assertEqual(1, self.cloud.nova.connected[HERE][theirs])
        self.assertIn(('volume', lost), deleted)


class LateDeleteTestCase(moving.MoveTestCase):
    """Guests that a periodic task of nova-compute destroys."""

    def set_nova_option(self, name, value):
        CONF.set_override(name, value)
        self.addCleanup(CONF.clear_override, name)

    def destroy_late(self, server, task):
        """Have a periodic task of nova-compute destroy a guest."""
        self.start_recording()
        getattr(self.cloud.nova.computes[HERE].manager, task)(
            self.cloud.nova.context())
        self.assertIsNone(self.cloud.domain(server))

    def reclaim(self, server):
        """Delete a server, and have its time be over."""
        self.set_nova_option('reclaim_instance_interval', 3600)
        self.cloud.delete(server)
        self.assertEqual('soft-delete', self.cloud.nova.instance(
            server.id).vm_state)
        self.cloud.change(server, deleted_at=datetime.datetime(
            2020, 1, 1, tzinfo=datetime.timezone.utc))
        self.destroy_late(server, '_reclaim_queued_deletes')

    def reap(self, server, delay=0):
        """Delete a server whose host is down.

        :param delay: how many seconds Cinder takes for the disks
        """
        self.go_down()
        self.cloud.delete(server)
        self.age_deletion(delay, 'instance_uuid', server.id)
        self.come_back()
        self.destroy_late(server, '_cleanup_running_deleted_instances')

    def age_deletion(self, seconds, column, value):
        """Have mappings be deleted earlier than they were."""
        with self.cloud.nova.database('cell1') as database:
            database.execute(
                f"UPDATE block_device_mapping SET deleted_at = "  # noqa: S608
                f"datetime(deleted_at, '-{seconds} seconds') "
                f"WHERE {column} = ?", (value,))
            database.commit()


class SlowCinderTest(LateDeleteTestCase):

    def test_reap_leaves_no_device(self):
        """Disconnect all disks, however early their mappings were deleted.

        The API deletes each mapping after Cinder's answer, and the server
        last.  The plugin has removed none of them.
        """
        server, _ = self.damaged_server('attachment-deleted')
        self.reap(server, delay=120)
        self.assertEqual({}, dict(self.cloud.nova.connected[HERE]))


class AddressTest(LateDeleteTestCase):
    """Another guest has the address of a disk that dangles."""

    def check(self, delete, is_kept):
        server, lost = self.damaged_server('attachment-deleted')
        _, theirs = self.add_neighbour(server, lost, HERE)
        delete(server)
        self.assertEqual(not is_kept, 'disconnect' in self.host_steps(lost))
        self.assertEqual(
            int(is_kept), self.cloud.nova.connected[HERE][theirs])
        for volume in self.other_volumes(server, lost):
            self.assertEqual(0, self.cloud.nova.connected[HERE][volume])

    def test_delete_keeps_the_disk_of_another_guest(self):
        self.check(self.cloud.delete, is_kept=True)

    def test_delete_keeps_the_disk_if_the_claims_cannot_be_read(self):
        self.useFixture(fixtures.MockPatchObject(
            cinder.Cinder, 'denies', side_effect=ValueError('odd answer')))
        self.check(self.cloud.delete, is_kept=True)
        line, = self.all_log_lines('still-connected')
        self.assertIn('what claims its address cannot be read: odd answer',
                      line.text)

    def test_reclaim_keeps_the_disk_of_another_guest(self):
        self.check(self.reclaim, is_kept=True)

    def test_reap_keeps_the_disk_of_another_guest(self):
        self.check(self.reap, is_kept=True)

    def test_nova_alone_disconnects_another_guest(self):
        self.switch_plugin_off()
        self.check(self.cloud.delete, is_kept=False)


class RemovedVolumeTest(LateDeleteTestCase):
    """A volume whose mapping was removed before its server is deleted.

    Nova was to delete it with the server.
    """

    def reap_after_removal(self):
        """Return the volume, which the server had lost."""
        server = self.healthy_server()
        lost = server.volumes[1]
        row = self.cloud.change_row(server, lost, delete_on_termination=True)
        self.damage(server, lost, 'attachment-deleted')
        self.cloud.reboot(server)
        self.age_deletion(120, 'uuid', row.uuid)
        self.reap(server)
        return lost

    def test_removed_volume_stays(self):
        lost = self.reap_after_removal()
        self.assertEqual('available', self.volume_status(lost))
        self.assertEqual([], self.host_steps(lost))

    def test_nova_alone_deletes_the_removed_volume(self):
        """Delete it: Nova reads the mappings that are deleted, too."""
        self.switch_plugin_off()
        lost = self.reap_after_removal()
        self.assertEqual(['disconnect'], self.host_steps(lost))
        self.cloud.cinder.wait(lost, None)


class WithoutTriggersTest(RemovedVolumeTest):

    ARGUMENTS = {**moving.MoveTestCase.ARGUMENTS,
                 'plugin_options': {'triggers': ''}}
