# SPDX-License-Identifier: Apache-2.0
"""What a guest is told of its devices leaves with a disk that is removed."""

from __future__ import annotations

from nova import objects

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import scenario


class DeviceMetadataTest(scenario.ScenarioTestCase):

    THROUGH_API = True

    def tags(self, server):
        """The tags that the metadata service shows to the guest."""
        instance = objects.Instance.get_by_uuid(
            self.cloud.nova.context(), server.id,
            expected_attrs=['device_metadata'])
        devices = (instance.device_metadata.devices
                   if instance.device_metadata else [])
        return sorted(tag for device in devices for tag in device.tags
                      if 'tags' in device)

    def check(self, *disks):
        made = self.server(*disks)
        lost, kept = made.volumes
        self.assertEqual(['kept', 'lost'], self.tags(made))
        self.cloud.lose_attachment(made, lost)
        view = self.reboot(made)
        self.assert_gone(view, lost)
        self.assert_healthy(view, kept)
        self.assertEqual(['kept'], self.tags(made))

    def test_attached_later(self):
        self.check(fixture.Disk(tag='lost'), fixture.Disk(tag='kept'))

    def test_had_at_boot(self):
        self.check(fixture.Disk(tag='lost', at_boot=True),
                   fixture.Disk(tag='kept', at_boot=True))
