# SPDX-License-Identifier: Apache-2.0
"""Missing volumes, believed only of a Cinder that knows another one.

A wrong region reports every volume as missing.  The plugin believes it without
a witness only where the cell has no other volume to ask for.
"""

from __future__ import annotations

from nova import objects

from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.functional import scenario

#: More than the plugin would ask for one by one.
SERVER_COUNT = 30


class WitnessTestCase(scenario.ScenarioTestCase):

    ARGUMENTS = {'hosts': ('compute1', 'compute2')}

    def create_bare_servers(self, host):
        """Create servers without volumes; a record in Nova is enough."""
        for number in range(SERVER_COUNT):
            objects.Instance(
                self.cloud.nova.context(), host=host,
                project_id=self.cloud.owner.project, user_id='owner',
                display_name=f'bare-{number}', vm_state='active',
                image_ref='').create()

    def create_volume_server(self, host='compute1'):
        return self.create_server(scenario.BOOT_DISK, host=host)


class WrongRegionTest(WitnessTestCase):

    def check_kept(self, server):
        self.cloud.use_wrong_cinder()
        view = self.reboot(server)
        asked = self.requests()
        volume, = server.volumes
        self.assertIsNotNone(view.block_device(volume), 'the row is gone')
        self.assertTrue(view.has_disk(volume))
        self.assertNotIn((recorder.NOVA, 'remove bdm'), self.steps_of())
        line, = self.assert_finding(
            server, volume, ('WARNING', 'withheld', 'volume-missing'))
        self.assertIn('(cinder-suspect)', line.text)
        self.cloud.use_right_cinder()
        self.assert_healthy(self.reboot(server), volume)
        return asked

    def test_witness_on_another_host(self):
        """Find it on another host, behind its newest servers."""
        server = self.create_volume_server()
        self.create_volume_server('compute2')
        self.create_bare_servers('compute2')
        self.check_kept(server)


class RightRegionTest(WitnessTestCase):

    def test_slow_witness_is_skipped(self):
        """Skip a volume with thousands of attachments by another user, which
        is older than all others.
        """
        slow, server, _ = (self.create_volume_server() for _ in range(3))
        volume, = server.volumes
        self.cloud.lose_volume(server, volume)
        # For an attachment Cinder reads only that one.
        self.cloud.proxy.on(
            'GET', '/volumes',
            self.cloud.proxy.hang_if_answer_has(slow.volumes[0]))
        view = self.reboot(server)
        self.assert_gone(view, volume)
        self.assertEqual([], self.log_lines(server, 'skipped'))
