# SPDX-License-Identifier: Apache-2.0
"""Steps of the runbook that no command prints, typed as they are there."""

from __future__ import annotations

from nova.cmd import manage
from oslo_utils import uuidutils

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import commands, scenario


class RunbookTest(commands.CommandWithWitnessTestCase):

    def refresh(self, server: fixture.Server, volume: str) -> int:
        return int(manage.VolumeAttachmentCommands().refresh(
            instance_uuid=server.id, volume_id=volume,
            connector_path=self.connector_file(server.host)))

    def give_new_attachment(self, server: fixture.Server, volume: str) -> None:
        """Run "Give a mapping a new attachment", after its first step."""
        self.assertEqual(0, self.refresh(server, volume))
        self.cloud.start(server)
        self.assertEqual({}, self.run_audit('--thorough', server=server))
        view = self.reboot(server)
        self.assert_healthy(view, volume)

    def delete_attachment(self, server: fixture.Server, volume: str,
                          attachment: str) -> None:
        """Remove the device from the host before Cinder's attachment."""
        self.cloud.nova.connected[server.host].pop(volume, None)
        self.cloud.cinder.client(self.cloud.admin).attachments.delete(
            attachment)

    def other_attachment_of_the_host(self, server: fixture.Server,
                                     volume: str) -> str:
        """Have the mapping name another attachment than the connected one."""
        attachment, = self.cloud.attachments(volume)
        self.cloud.change_row(
            server, volume, attachment_id=self.cloud.create_attachment(
                server, volume, connected=False))
        return attachment.id

    def other_attachment_alone(self, server: fixture.Server, volume: str
                               ) -> str:
        attachment, = self.cloud.attachments(volume)
        self.cloud.change_row(server, volume,
                              attachment_id=uuidutils.generate_uuid())
        return attachment.id

    def other_attachment_of_another_host(self, server: fixture.Server,
                                         volume: str) -> str:
        own, = self.cloud.attachments(volume)
        attachment = self.cloud.create_attachment(
            server, volume, host='compute9', initiator='iqn.test:compute9')
        self.cloud.change_row(server, volume,
                              attachment_id=uuidutils.generate_uuid())
        self.cloud.cinder.client(self.cloud.admin).attachments.delete(own.id)
        return attachment

    def test_runbook_resolves_attachment_mismatch(self):
        for build in (self.other_attachment_of_the_host,
                      self.other_attachment_alone,
                      self.other_attachment_of_another_host):
            server = self.create_server(scenario.BOOT_DISK)
            volume, = server.volumes
            attachment = build(server, volume)
            self.assertEqual('attachment-mismatch',
                             self.run_audit(server=server)[volume][0])
            self.cloud.stop(server)
            self.delete_attachment(server, volume, attachment)
            self.give_new_attachment(server, volume)

    def test_refresh_beside_a_connected_attachment(self):
        """Show that this fails, and loses the connection information."""
        for build in (self.other_attachment_of_the_host,
                      self.other_attachment_of_another_host):
            server = self.create_server(scenario.BOOT_DISK)
            volume, = server.volumes
            build(server, volume)
            self.cloud.stop(server)
            self.assertNotEqual(0, self.refresh(server, volume))
            self.assertIsNone(self.cloud.row(server, volume).connection_info)

    def test_runbook_resolves_duplicate_attachment(self):
        server = self.create_server(scenario.BOOT_DISK)
        volume, = server.volumes
        attachment = self.cloud.create_attachment(server, volume)
        self.assertEqual('duplicate-attachment', self.run_audit(
            '--thorough', server=server)[volume][0])
        self.cloud.stop(server)
        self.delete_attachment(server, volume, attachment)
        self.give_new_attachment(server, volume)

    def test_runbook_resolves_in_use_without_attachment(self):
        for is_wanted in (False, True):
            server = self.create_server(scenario.BOOT_DISK)
            volume, = server.volumes
            self.cloud.lose_attachment(server, volume)
            self.set_in_use(volume)
            self.assertEqual('status-contradiction',
                             self.run_audit(server=server)[volume][0])
            self.cloud.reset_status(volume)
            if is_wanted:
                self.cloud.stop(server)
                self.give_new_attachment(server, volume)
            else:
                self.bdm('clean', server.id, '--yes')
                self.assert_gone(self.look(server), volume)
                self.assertEqual({}, self.run_audit(server=server))
