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


"""A server in ERROR, and one whose reboot fails early, are not made worse.

Whatever happens to a cleanup, the owner can press hard reboot again, and a
guest that runs is not left powered off.
"""

from __future__ import annotations

from typing import Any

import fixtures
from keystoneauth1 import exceptions as ksa_exceptions

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.functional import scenario


class ServerInErrorTest(scenario.ScenarioTestCase):
    """A nova-compute that starts anew does not resume a server in ERROR."""

    def setUp(self):
        super().setUp()
        self.set_options(max_removals_per_hour=1000000)
        self.made = self.server(*[scenario.BOOT_DISK] * 2)
        self.lost, self.kept = self.made.volumes
        self.cloud.reset_status(self.lost)
        self.put_into_error()

    def put_into_error(self):
        self.cloud.request('POST', f'/servers/{self.made.id}/action',
                           {'os-resetState': {'state': 'error'}},
                           by=self.cloud.admin)

    def check_rebootable_after_crash(self, party: str, what: str,
                                     **arguments: Any) -> None:
        self.begin()
        crashed = []

        def crash():
            crashed.append(what)
            recorder.crash()

        self.cloud.recorder.before(party, what, crash, **arguments)
        self.cloud.reboot_until_crash(self.made)
        self.assertEqual([what], crashed)
        self.cloud.restart_compute()
        # The owner alone: no administrator has to reset anything.
        self.cloud.reboot(self.made)
        view = self.look(self.made)
        self.assert_gone(view, self.lost)
        self.assertEqual('available', view.volume_status(self.lost))
        self.assert_healthy(view, self.kept)

    def test_not_crashed(self):
        view = self.reboot(self.made)
        self.assert_gone(view, self.lost)
        self.assert_healthy(view, self.kept)

    def test_before_the_first_look(self):
        self.check_rebootable_after_crash(recorder.ASK, 'GET')

    def test_before_power_off(self):
        self.check_rebootable_after_crash(recorder.GUEST, 'power off')

    def test_before_disconnect(self):
        self.check_rebootable_after_crash(recorder.HOST, 'disconnect',
                                          subject=self.lost)

    def test_before_the_row_is_removed(self):
        self.check_rebootable_after_crash(recorder.NOVA, 'remove bdm')

    def test_before_cinder_is_told(self):
        self.check_rebootable_after_crash(recorder.ASK, 'DELETE')

    def test_between_two_disks(self):
        other = self.kept
        self.cloud.reset_status(other)
        self.begin()
        self.cloud.recorder.before(recorder.HOST, 'disconnect',
                                   recorder.crash, nth=2)
        self.cloud.reboot_until_crash(self.made)
        self.cloud.restart_compute()
        self.cloud.reboot(self.made)
        view = self.look(self.made)
        for volume in (self.lost, other):
            self.assert_gone(view, volume)


class NeutronFailsTest(scenario.ScenarioTestCase):
    """Nova's reboot ends before it has touched the guest; so do we."""

    def setUp(self):
        super().setUp()
        self.made = self.server(*[scenario.BOOT_DISK] * 2)
        self.lost, self.kept = self.made.volumes
        self.cloud.reset_status(self.lost)

    def fail_neutron(self):
        """Have Neutron refuse every list of ports."""
        def list_ports(*args: Any, **kwargs: Any) -> Any:
            self.asked.append(kwargs)
            raise ksa_exceptions.ConnectFailure('no Neutron')

        self.asked: list[Any] = []
        return fixtures.MockPatchObject(
            self.cloud.nova.neutron, 'list_ports', list_ports)

    def powered_off(self):
        return [event for event in self.cloud.timeline(self.made.id)
                if (event.party, event.what)
                == (recorder.GUEST, 'power off')]

    def test_guest_goes_on_running(self):
        self.begin()
        with self.fail_neutron():
            self.assertRaises(fixture.APIError, self.cloud.reboot, self.made)
        self.assertNotEqual([], self.asked)
        view = self.look(self.made)
        self.assertEqual([], self.powered_off())
        self.assertIsNotNone(view.block_device(self.lost))
        self.assertEqual(1, len(view.attachments_of(self.lost)))
        self.assertTrue(view.has_disk(self.lost))
        self.assert_healthy(view, self.kept)

    def test_next_reboot_cleans(self):
        with self.fail_neutron():
            self.assertRaises(fixture.APIError, self.cloud.reboot, self.made)
        view = self.reboot(self.made)
        self.assert_gone(view, self.lost)
        self.assert_healthy(view, self.kept)
