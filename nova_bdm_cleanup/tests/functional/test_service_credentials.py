# SPDX-License-Identifier: Apache-2.0
"""Whether Nova's credentials see every project is proved, not assumed.

To somebody who is no administrator, a volume of another project looks like
one that does not exist.
"""

from __future__ import annotations

import dataclasses

from nova_bdm_cleanup.tests.cloud import fixture, identity
from nova_bdm_cleanup.tests.functional import scenario

MEMBER = dataclasses.replace(
    identity.NOVA, roles=('service', *identity.MEMBER))


class NotAnAdministratorTest(scenario.ScenarioTestCase):
    """``[cinder]`` names a user without the role of an administrator.

    This Cinder lets everybody list volumes by id, as its operator may, so it
    does not give that away.
    """

    ARGUMENTS = {'cinder_credentials': MEMBER, 'volume_filters': ('id',)}

    def setUp(self):
        super().setUp()
        self.made = self.server(*[scenario.BOOT_DISK] * 2)

    def bear_false_witness(self):
        """Have a server on this host with a volume of Nova's own project.

        That one the credentials do see.
        """
        service = dataclasses.replace(
            identity.NOVA, user='service-owner', roles=identity.MEMBER)
        volume = self.cloud.volume(owner=service)
        self.server(fixture.Disk(volume=volume, at_boot=True),
                    name='of-the-service', owner=service)

    def check_untouched(self, view):
        for volume in self.made.volumes:
            self.assert_healthy(view, volume)
        self.assertEqual([], self.journal())
        self.assertEqual([], self.requests('DELETE'))
        self.assertEqual({'WARNING'},
                         {line.level for line in self.audit(self.made)})
        self.assertIn('admin', self.audit(self.made)[0].text)

    def test_volume_that_everybody_sees_is_a_witness(self):
        self.bear_false_witness()
        self.check_untouched(self.reboot(self.made))

    def test_dangling_disk(self):
        """It is not known to be one, and is kept."""
        self.bear_false_witness()
        lost, kept = self.made.volumes
        self.cloud.lose_volume(self.made, lost)
        view = self.reboot(self.made)
        self.assertIsNotNone(view.block_device(lost))
        self.assert_healthy(view, kept)
        self.assertEqual([], self.journal())
