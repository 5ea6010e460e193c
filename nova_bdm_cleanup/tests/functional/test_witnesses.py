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
MANY = 30


class WitnessTestCase(scenario.ScenarioTestCase):

    ARGUMENTS = {'hosts': ('compute1', 'compute2')}

    def bare_servers(self, host):
        """Create servers without volumes; a record in Nova is enough."""
        for number in range(MANY):
            objects.Instance(
                self.cloud.nova.context(), host=host,
                project_id=self.cloud.owner.project, user_id='owner',
                display_name=f'bare-{number}', vm_state='active',
                image_ref='').create()

    def volume_server(self, host='compute1'):
        return self.server(scenario.BOOT_DISK, host=host)


class WrongRegionTest(WitnessTestCase):

    def check_kept(self, made):
        self.cloud.use_wrong_cinder()
        view = self.reboot(made)
        asked = self.requests()
        volume, = made.volumes
        self.assertIsNotNone(view.block_device(volume), 'the row is gone')
        self.assertTrue(view.has_disk(volume))
        self.assertNotIn((recorder.NOVA, 'remove bdm'), self.steps_of())
        line, = self.assert_finding(
            made, volume, ('WARNING', 'withheld', 'volume-missing'))
        self.assertIn('(cinder-suspect)', line.text)
        self.cloud.use_right_cinder()
        self.assert_healthy(self.reboot(made), volume)
        return asked

    def test_witness_behind_many_servers_of_the_cell(self):
        """Find it on another host, behind its newest servers."""
        made = self.volume_server()
        self.volume_server('compute2')
        self.bare_servers('compute2')
        self.check_kept(made)


class RightRegionTest(WitnessTestCase):

    def test_a_witness_that_takes_long(self):
        """Skip a volume with thousands of attachments by another user, which
        is older than all others.
        """
        slow, made, _ = (self.volume_server() for _ in range(3))
        volume, = made.volumes
        self.cloud.lose_volume(made, volume)
        # For an attachment Cinder reads only that one.
        self.cloud.proxy.on(
            'GET', '/volumes',
            self.cloud.proxy.hang_if_answer_has(slow.volumes[0]))
        view = self.reboot(made)
        self.assert_gone(view, volume)
        self.assertEqual([], self.audit(made, 'skipped'))
