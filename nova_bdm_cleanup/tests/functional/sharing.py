# SPDX-License-Identifier: Apache-2.0
"""Base class of the tests of two servers with one address.

The address of a disk is in Nova's row, in Cinder's attachment, and in the
kernel, where the guest has it open: a test gives it to each of them or not.
"""

from __future__ import annotations

import datetime
import json

from nova_bdm_cleanup.tests.cloud import fixture, proxy
from nova_bdm_cleanup.tests.functional import scenario

TARGET = 'iqn.2010-10.org.openstack:array'


def write_row(cloud: fixture.Cloud, server: fixture.Server, volume: str,
              **data: str | int) -> None:
    """Write another address into Nova's row, and nowhere else."""
    info = json.loads(cloud.row(server, volume).connection_info)
    info['data'].update(data)
    cloud.change_row(server, volume, connection_info=json.dumps(info))


def give(cloud: fixture.Cloud, server: fixture.Server, volume: str,
         theirs: str) -> None:
    """Have Nova and Cinder show the address of another volume for a volume.

    The guest does not have that open.
    """
    address: dict[str, str | int] = {
        'target_iqn': f'iqn.2026-01.test:{theirs}', 'target_lun': 1}
    write_row(cloud, server, volume, **address)
    cloud.cinder.change_connection(
        cloud.row(server, volume).attachment_id, address)


class SharingTestCase(scenario.ScenarioTestCase):
    """Base class: a server, and a neighbour on the same host."""

    ARGUMENTS = {
        'nova_options': scenario.RESUME_GUESTS,
        'plugin_options': {
            'triggers': 'all', 'grace_period': '0', 'settle_time': '0'}}
    ROOT = 'image'

    def setUp(self):
        super().setUp()
        disks = [scenario.BOOT_DISK] if self.ROOT == 'image' else []
        self.server = self.create_server(*disks, root=self.ROOT)
        self.neighbour = self.create_server(
            scenario.BOOT_DISK, name='neighbour')
        self.volume = (self.server.volumes or [self.server.root])[0]
        self.theirs, = self.neighbour.volumes

    def set_unit(self, server: fixture.Server, unit: int) -> None:
        """Have the back end have the disk of a server at a unit, everywhere.

        :param unit: its number behind the target
        """
        volume = self.volume if server is self.server else self.theirs
        self.cloud.change_connection_data(
            server, volume, target_iqn=TARGET, target_lun=unit)

    def silence(self) -> None:
        """Have Cinder answer nothing."""
        self.cloud.proxy.on('*', '^/v3/', proxy.status(503))

    def deny(self, server: fixture.Server, volume: str) -> None:
        """Have Cinder deny an attachment, and Nova's row be an old one."""
        self.cloud.lose_attachment(server, volume)
        row = self.cloud.row(server, volume)
        self.age_mapping(row, datetime.timedelta(minutes=6))

    def check_not_given(self) -> list[scenario.Line]:
        """Check that the driver gets the disk neither to connect it nor to
        disconnect it, and that the neighbour's stays as it is.
        """
        self.start_recording()
        self.cloud.reboot(self.server)
        self.assertEqual([], self.host_steps(self.volume))
        self.assertEqual([], self.host_steps(self.theirs))
        self.assertFalse(self.cloud.look(self.server).has_disk(self.volume))
        return self.log_lines(self.server, 'not-connected')
