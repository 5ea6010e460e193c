# SPDX-License-Identifier: Apache-2.0
"""Root disks, and volumes that Nova made: never removed."""

from __future__ import annotations

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import scenario


class RootTest(scenario.ScenarioTestCase):

    def test_root_and_data_disk_dangling(self):
        server = self.create_server(*[fixture.Disk()] * 2, root='volume')
        lost, kept = server.volumes
        for volume in (server.root, lost):
            self.cloud.lose_attachment(server, volume)
        view = self.reboot(server)
        self.assert_healthy(view, server.root)
        self.assert_removed(view, lost, 'volume-available')
        self.assert_healthy(view, kept)

    def test_root_without_attachment_is_given_if_it_is_not_reconnected(self):
        self.set_options(reconnect=False)
        server = self.create_server(root='volume')
        self.cloud.lose_attachment(server, server.root)
        view = self.reboot(server)
        self.assert_finding(
            server, server.root,
            ('INFO', 'withheld', 'root-volume-dangling'))
        self.assertTrue(view.has_disk(server.root))

    def test_missing_root_is_not_given(self):
        """The guest comes back without it, and is not repaired by that."""
        server = self.create_server(fixture.Disk(), root='volume')
        data, = server.volumes
        self.cloud.lose_volume(server, server.root)
        self.start_recording()
        self.cloud.reboot(server)
        view = self.cloud.look(server)
        self.assertNotIn('connect', self.host_steps(server.root))
        self.assertFalse(view.has_disk(server.root))
        self.assertIsNotNone(view.block_device(server.root))
        self.assert_finding(
            server, server.root, ('ERROR', 'kept', 'root-volume-dangling'),
            ('ERROR', 'not-connected', 'root-volume-dangling'))
        self.assert_healthy(view, data)
