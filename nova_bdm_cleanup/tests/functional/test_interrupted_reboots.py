# SPDX-License-Identifier: Apache-2.0
"""A reboot that fails before Nova has touched the guest."""

from __future__ import annotations

from typing import Any

import fixtures
from keystoneauth1 import exceptions as ksa_exceptions

from nova_bdm_cleanup.tests.cloud import fixture, recorder
from nova_bdm_cleanup.tests.functional import scenario


class NeutronFailsTest(scenario.ScenarioTestCase):
    """Nova's reboot ends before it has touched the guest; so do we."""

    def fail_neutron(self):
        """Have Neutron refuse every list of ports."""
        def list_ports(*args: Any, **kwargs: Any) -> Any:
            self.asked.append(kwargs)
            raise ksa_exceptions.ConnectFailure('no Neutron')

        self.asked: list[Any] = []
        return fixtures.MockPatchObject(
            self.cloud.nova.neutron, 'list_ports', list_ports)

    def test_guest_goes_on_running_and_the_next_reboot_cleans(self):
        made = self.server(*[scenario.BOOT_DISK] * 2)
        lost, kept = made.volumes
        self.cloud.reset_status(lost)
        self.begin()
        with self.fail_neutron():
            self.assertRaises(fixture.APIError, self.cloud.reboot, made)
        self.assertNotEqual([], self.asked)
        view = self.look(made)
        self.assertNotIn((recorder.GUEST, 'power off'), self.steps_of(made.id))
        self.assertIsNotNone(view.block_device(lost))
        self.assertEqual(1, len(view.attachments_of(lost)))
        self.assertTrue(view.has_disk(lost))
        self.assert_healthy(view, kept)
        failed, = self.audit(made, 'failed')
        self.assertIn('prepare: no Neutron', failed.text)

        view = self.reboot(made)
        self.assert_gone(view, lost)
        self.assert_healthy(view, kept)
