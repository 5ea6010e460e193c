# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""The disks of other servers on the host, and of those on their way to it."""

from __future__ import annotations

import json

# First, for it may monkey patch the standard library.
from nova_bdm_cleanup.tests.functional import base  # isort: skip

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.cloud import recorder


class ReusedAddressTest(base.FunctionalTestCase):
    """The array gave the number of a lost volume to the next one."""

    CLOUD = {'plugin': True}

    def setUp(self):
        super().setUp()
        self.server = self.cloud.server(fixture.Disk())
        self.neighbour = self.cloud.server(fixture.Disk(), name='neighbour')
        self.volume, = self.server.volumes
        self.cloud.lose_attachment(self.server, self.volume)
        self.address(self.server, 5)

    def address(self, server, unit):
        """Have a server's disk behind a target with many units."""
        row, = [row for row in self.cloud.nova.block_devices(server.id)
                if row.volume_id == server.volumes[0]]
        info = json.loads(row.connection_info)
        info['data'].update(target_iqn='iqn.2010-10.org.openstack:array',
                            target_lun=unit)
        row.connection_info = json.dumps(info)
        row.save()

    def disconnects(self):
        self.cloud.forget()
        self.cloud.reboot(self.server)
        view = self.cloud.look(self.server)
        self.assertIsNone(view.block_device(self.volume))
        self.assertFalse(view.has_disk(self.volume))
        return [event for event in self.cloud.timeline(self.volume)
                if (event.party, event.what) == (recorder.HOST, 'disconnect')]

    def test_another_number(self):
        self.address(self.neighbour, 6)
        self.assertEqual(1, len(self.disconnects()))

    def test_the_same_number(self):
        self.address(self.neighbour, 5)
        self.assertEqual([], self.disconnects())


class MigratingNeighbourTest(base.FunctionalTestCase):
    """A live migration connects its volumes before the server moves."""

    CLOUD = {'plugin': True, 'hosts': ('compute1', 'compute2')}

    def setUp(self):
        super().setUp()
        self.server = self.cloud.server(fixture.Disk(), root='volume',
                                        host='compute1')
        self.volume = self.server.volumes[0]
        self.neighbour = self.cloud.give_away(self.server, self.volume,
                                              host='compute2')

    def disconnects(self):
        self.cloud.forget()
        self.cloud.reboot(self.server)
        self.assertIsNone(
            self.cloud.look(self.server).block_device(self.volume))
        return [event for event in self.cloud.timeline(self.volume)
                if (event.party, event.what) == (recorder.HOST, 'disconnect')]

    def test_at_rest_elsewhere(self):
        self.assertEqual(1, len(self.disconnects()))

    def test_busy_elsewhere(self):
        instance = self.cloud.nova.instance(self.neighbour.id)
        instance.task_state = 'image_uploading'
        instance.save()
        self.assertEqual(1, len(self.disconnects()))

    def test_perhaps_on_its_way_here(self):
        instance = self.cloud.nova.instance(self.neighbour.id)
        instance.task_state = 'migrating'
        instance.save()
        self.assertEqual([], self.disconnects())
