# SPDX-License-Identifier: Apache-2.0
"""That a volume is gone is believed of a Cinder that knows another one.

A wrong region politely says that every volume is gone.  Only where the cell
has no other volume to ask for is it believed as it is.
"""

from __future__ import annotations

from nova import objects

from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.functional import scenario

#: More than anybody would ask for one by one.
MANY = 30


class WitnessTestCase(scenario.ScenarioTestCase):

    ARGUMENTS = {'hosts': ('compute1', 'compute2')}

    def bare_servers(self, count=MANY, host='compute1'):
        """Servers without volumes; for these Nova's record is enough."""
        for number in range(count):
            instance = objects.Instance(
                self.cloud.nova.context(), host=host,
                project_id=self.cloud.owner.project, user_id='owner',
                display_name=f'bare-{number}', vm_state='active',
                image_ref='')
            instance.create()
            # The servers of one test bear no witness in another.
            self.addCleanup(instance.destroy)

    def volume_server(self, host='compute1'):
        """A server with a volume, for this test only."""
        made = self.server(scenario.BOOT_DISK, host=host, name='other')
        self.addCleanup(self.forget_server, made)
        return made

    def forget_server(self, made):
        self.cloud.find_cinder()
        self.cloud.request('DELETE', f'/servers/{made.id}')

    def in_the_wrong_region(self, made):
        self.begin()
        self.cloud.lose_cinder()
        self.cloud.reboot(made)
        self.asked = self.requests()
        self.cloud.find_cinder()
        return self.look(made)

    def check_kept(self, made, view):
        volume, = made.volumes
        self.assertIsNotNone(view.block_device(volume), 'the row is gone')
        self.assertTrue(view.has_disk(volume))
        self.assertNotIn((recorder.NOVA, 'remove bdm'), self.steps_of())
        line, = self.assert_finding(
            made, volume, ('WARNING', 'withheld', 'volume-missing'))
        self.assertIn('(cinder-suspect)', line.text)

    def check_healthy_in_the_right_region(self, made):
        self.assert_healthy(self.reboot(made), made.volumes[0])


class WrongRegionTest(WitnessTestCase):

    def test_witness_behind_many_servers_of_the_cell(self):
        """Another host has it, and not in its newest servers."""
        made = self.volume_server()
        self.volume_server('compute2')
        self.bare_servers(host='compute2')
        self.check_kept(made, self.in_the_wrong_region(made))
        self.check_healthy_in_the_right_region(made)

    def test_so_many_volumes_are_not_all_asked_for(self):
        """What is limited is the number of volumes, not that of servers."""
        made = self.volume_server()
        others = [self.volume_server() for _ in range(2)]
        self.bare_servers()
        context = self.cloud.nova.context()
        for number in range(100):
            row = objects.BlockDeviceMapping(
                context, instance_uuid=others[number % 2].id,
                volume_id=f'00000000-0000-4000-8000-{number:012d}',
                source_type='volume', destination_type='volume',
                device_name='/dev/vdy', connection_info='{"data": {}}')
            row.create()
            self.addCleanup(row.destroy)
        self.check_kept(made, self.in_the_wrong_region(made))
        self.assertLess(len(self.asked), 20)


class RightRegionTest(WitnessTestCase):

    def test_a_witness_that_takes_long(self):
        """Somebody else made thousands of attachments of his volume, which
        is older than all others.
        """
        slow = self.volume_server()
        made, _ = (self.volume_server() for _ in range(2))
        volume, = made.volumes
        self.cloud.lose_volume(made, volume)
        # Of an attachment Cinder reads only that one.
        self.cloud.proxy.on(
            'GET', '/volumes', self.cloud.proxy.hang_about(slow.volumes[0]))
        view = self.reboot(made)
        self.assert_gone(view, volume)
        self.assertEqual([], self.audit(made, 'skipped'))
