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

# First, for it may monkey patch the standard library.
from nova_bdm_cleanup.tests.functional import base  # isort: skip

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.cloud import recorder


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

    def test_perhaps_on_its_way_here(self):
        instance = self.cloud.nova.instance(self.neighbour.id)
        instance.task_state = 'migrating'
        instance.save()
        self.assertEqual([], self.disconnects())
