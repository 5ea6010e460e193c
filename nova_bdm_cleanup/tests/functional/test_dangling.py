# SPDX-License-Identifier: Apache-2.0
"""Removal of dangling block device mappings, and of nothing else."""

from __future__ import annotations

from nova import objects

from nova_bdm_cleanup.tests.cloud import fixture, recorder
from nova_bdm_cleanup.tests.functional import scenario


class DanglingTest(scenario.TwoDisks):
    """Cases that are the same for each way to bring the server back."""

    #: The requests for a healthy server.
    GLANCE = ['/attachments/detail', '/volumes/detail']

    def test_healthy_disks_are_kept(self):
        server = self.create_server(
            fixture.Disk(), fixture.Disk(multiattach=True, tag='data'),
            fixture.Disk(at_boot=True), root='volume')
        view = self.reboot(server)
        self.assert_healthy(view, server.root, *server.volumes)
        self.assert_nothing_done(view)
        self.assertEqual([], self.log_lines(server))
        self.assertEqual(
            self.GLANCE,
            [path for path in (
                each.path.partition('?')[0].rpartition('/service')[2]
                for each in self.plugin_requests())
             # Without a user's token Nova itself requests one of them.
             if not path.startswith('/volumes/') or path in self.GLANCE])

    def test_disk_without_attachment_is_removed(self):
        server, lost, kept = self.server, self.lost, self.kept
        self.cloud.lose_attachment(server, lost)
        view = self.reboot(server)
        self.assert_removed(view, lost, 'volume-available')
        self.assertEqual('available', view.volume_status(lost))
        # Cinder had told the back end when the attachment was deleted.
        self.assertEqual([], self.back_end(lost))
        self.assert_healthy(view, kept)
        self.assertEqual([], self.log_lines(server, reason='healthy'))
        finished, = self.log_lines(server, 'finished')
        entry, = self.journal()
        self.assertIn('1 of 1 actions complete', finished.text)
        self.assertIn(entry.id, finished.text)
        self.assertEqual(('done', 1), (entry.outcome, entry.removals))
        self.assertEqual(
            {'server': server.id, 'host': server.host,
             'project': self.cloud.owner.project,
             'request_id': finished.request_id, 'trigger': self.TRIGGER},
            {key: entry.record[key] for key in
             ('server', 'host', 'project', 'request_id', 'trigger')})

        # The next reboot finds nothing left to do.
        view = self.reboot(server)
        self.assert_healthy(view, kept)
        self.assertEqual(1, len(self.journal()))
        self.assertEqual([], self.log_lines(server))

    def test_disk_of_deleted_volume_is_removed(self):
        self.cloud.lose_volume(self.server, self.lost)
        view = self.reboot(self.server)
        self.assert_removed(view, self.lost, 'volume-missing')
        self.assert_order(
            self.cloud.timeline(self.server.id, self.lost),
            *self.POWER_OFF_STEPS, (recorder.HOST, 'disconnect'),
            (recorder.NOVA, 'remove bdm'), (recorder.GUEST, 'power on'))
        self.assert_healthy(view, self.kept)

    def test_disk_of_volume_reset_to_available_is_removed(self):
        attachment, = self.cloud.attachments(self.lost)
        self.cloud.reset_status(self.lost)
        view = self.reboot(self.server)
        self.assert_removed(view, self.lost, 'volume-available',
                            (attachment.id,))
        self.assertEqual('available', view.volume_status(self.lost))
        self.assertEqual([('terminate_connection', self.server.host),
                          ('remove_export', None)], self.back_end(self.lost))
        self.assert_healthy(view, self.kept)


    def test_disk_of_volume_that_awaits_a_transfer_is_removed(self):
        """Remove it, although its owner never ends the transfer."""
        self.cloud.lose_attachment(self.server, self.lost)
        self.cloud.begin_transfer(self.lost)
        view = self.reboot(self.server)
        self.assert_removed(view, self.lost, 'volume-available')
        self.assertEqual('awaiting-transfer', view.volume_status(self.lost))
        self.assert_healthy(view, self.kept)


class StartedDanglingTest(scenario.Started, DanglingTest):
    """The same, by stop and start."""


class ResumedDanglingTest(scenario.Resumed, DanglingTest):
    """The same, when the host boots."""


class AnyTriggerTest(scenario.TwoDisks):
    """Decisions by code that all triggers share."""

    def test_server_without_volumes_costs_one_request(self):
        server = self.create_server()
        view = self.reboot(server)
        self.assert_nothing_done(view)
        self.assertEqual(1, len(self.plugin_requests()), self.requests())

    def test_no_secret_in_store_or_log(self):
        self.cloud.reset_status(self.lost)
        secret = f'secret-of-{self.lost}'
        self.assertIn(secret, str(self.look(self.server).block_devices))
        self.reboot(self.server)
        self.assertNotIn(secret.encode(), self.store_path.read_bytes())
        self.assertEqual([], self.cloud.log(secret))
        self.assertEqual(0o600, self.store_path.stat().st_mode & 0o777)


class DeviceMetadataTest(scenario.ScenarioTestCase):
    """Device metadata, which the guest loses along with a disk."""

    THROUGH_API = True

    def tags(self, server):
        """Return the tags that the metadata service shows to the guest."""
        instance = objects.Instance.get_by_uuid(
            self.cloud.nova.context(), server.id,
            expected_attrs=['device_metadata'])
        return sorted(tag for device in instance.device_metadata.devices
                      if 'tags' in device for tag in device.tags)

    def test_tag_of_removed_disk(self):
        server = self.create_server(fixture.Disk(tag='at-boot', at_boot=True),
                           fixture.Disk(tag='later'), fixture.Disk(tag='kept'))
        self.assertEqual(['at-boot', 'kept', 'later'], self.tags(server))
        *lost, kept = server.volumes
        for volume in lost:
            self.cloud.lose_attachment(server, volume)
        view = self.reboot(server)
        for volume in lost:
            self.assert_gone(view, volume)
        self.assert_healthy(view, kept)
        self.assertEqual(['kept'], self.tags(server))


class AttachedElsewhereTest(scenario.ScenarioTestCase):
    """A volume that belongs to another server now."""

    THROUGH_API = True
    ARGUMENTS = {'hosts': ('compute1', 'compute2')}

    def check(self, server: fixture.Server, other: fixture.Server) -> None:
        volume, kept = server.volumes
        shared = server.host == other.host
        before = self.cloud.attachments(volume)
        view = self.reboot(server)
        self.assert_removed(view, volume, 'attached-elsewhere',
                            shared=shared)
        self.assert_healthy(view, kept)
        self.assertEqual(before, self.cloud.attachments(volume))
        self.assertEqual([], self.back_end(volume))
        self.assert_healthy(self.look(other), volume)
        line, = self.log_lines(server, 'removing')
        self.assertIn(other.id, line.text)
        self.assertEqual([] if shared else ['disconnect'],
                         self.host_steps(volume))

    def test_volume_of_a_server_on_the_same_host_is_kept(self):
        server = self.create_server(*[fixture.Disk()] * 2, host='compute1')
        self.check(server, self.cloud.attach_elsewhere(
            server, server.volumes[0], host='compute1'))


class CreatedDiskTest(scenario.ScenarioTestCase):
    """Disks that Nova created, and whose volumes were deleted in Cinder."""

    def test_row_goes_only_if_it_is_selected(self):
        """Start the server without the disk in either case."""
        sources = 'blank', 'image'
        server = self.create_server(
            *[fixture.Disk(source=source, at_boot=True)
              for source in sources], scenario.BOOT_DISK)
        *lost, kept = server.volumes
        self.assertEqual(list(sources), [
            self.cloud.row(server, volume).source_type for volume in lost])
        for volume in lost:
            self.cloud.lose_volume(server, volume)
        view = self.reboot(server)
        self.assert_healthy(view, kept)
        for volume in lost:
            self.assert_dangling(view, volume)
            self.assertFalse(view.has_disk(volume))
            withheld, _ = self.assert_finding(
                server, volume,
                ('INFO', 'withheld', 'volume-missing'),
                ('WARNING', 'not-connected', 'volume-missing'))
            self.assertIn('(not-selected)', withheld.text)
            self.assertIn('has no word created', withheld.text)

        self.set_options(remove=['missing', 'created'])
        view = self.reboot(server)
        self.assert_healthy(view, kept)
        for volume in lost:
            self.assert_removed(view, volume, 'volume-missing')
