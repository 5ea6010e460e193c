# SPDX-License-Identifier: Apache-2.0
"""The domains of a host, as Nova's own libvirt driver has them."""

from __future__ import annotations

from typing import Any
from unittest import mock

import fixtures
from nova.tests.fixtures import libvirt as fake_libvirt
from nova.virt import fake
from nova.virt.libvirt import host
from os_brick.initiator.connectors import fibre_channel
import testtools

from nova_bdm_cleanup.node import domains
from nova_bdm_cleanup.openstack.connection_info import addresses_in
from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import moving, scenario


class DomainsTestCase(scenario.ScenarioTestCase):

    def domains_of(self, host):
        return domains.domains(self.cloud.nova.computes[host].driver)

    def expected(self, server, *volumes):
        return domains.Domain(server.id, frozenset(
            (f'iqn.2026-01.test:{volume}', '1') for volume in volumes))


class DomainsTest(DomainsTestCase):

    def setUp(self):
        super().setUp()
        self.server = self.create_server(scenario.BOOT_DISK)
        self.volume, = self.server.volumes

    def domains(self):
        return self.domains_of(self.server.host)

    def test_a_running_guest_has_its_disks(self):
        other = self.create_server(fixture.Disk(), name='other')
        without = self.create_server(name='without')
        self.assertEqual(
            {self.expected(self.server, self.volume),
             self.expected(other, *other.volumes), self.expected(without)},
            set(self.domains()))
        self.cloud.detach(other, other.volumes[0])
        self.assertIn(self.expected(other), self.domains())

    def test_a_guest_that_is_off_has_none(self):
        self.cloud.stop(self.server)
        self.assertEqual((), self.domains())
        self.cloud.start(self.server)
        self.assertEqual((self.expected(self.server, self.volume),),
                         self.domains())

    def test_a_paused_guest_has_its_disks(self):
        self.cloud.act(self.server, {'pause': None})
        self.assertEqual((self.expected(self.server, self.volume),),
                         self.domains())

    def test_a_suspended_guest_has_none(self):
        self.cloud.act(self.server, {'suspend': None})
        self.assertEqual((), self.domains())

    def test_a_guest_that_ends_meanwhile_has_none(self):
        self.useFixture(fixtures.MockPatchObject(
            self.cloud.domain(self.server), 'XMLDesc', self.fail_with(
                fake_libvirt.VIR_ERR_NO_DOMAIN)))
        self.assertEqual((), self.domains())

    def test_no_answer_is_not_no_guest(self):
        for owner, name in (
                (self.cloud.domain(self.server), 'XMLDesc'),
                (self.cloud.nova.computes[self.server.host].driver._host,
                 'get_connection')):
            with mock.patch.object(owner, name, self.fail_with(
                    fake_libvirt.VIR_ERR_INTERNAL_ERROR)):
                self.assertRaises(host.libvirt.libvirtError, self.domains)

    def test_a_restart_of_libvirt_is_no_failure(self):
        domain = self.cloud.domain(self.server)
        self.useFixture(fixtures.MockPatchObject(
            domain, 'XMLDesc', mock.Mock(side_effect=[
                self.error(fake_libvirt.VIR_ERR_INTERNAL_ERROR),
                domain.XMLDesc(0)])))
        self.assertEqual((self.expected(self.server, self.volume),),
                         self.domains())

    @staticmethod
    def error(code):
        return fake_libvirt.make_libvirtError(
            fake_libvirt.libvirtError, 'injected', error_code=code)

    def fail_with(self, code):
        return mock.Mock(side_effect=self.error(code))

    def test_other_drivers_have_no_domains(self):
        self.assertEqual((), domains.domains(fake.FakeDriver(None)))


class MoveTest(DomainsTestCase):

    ARGUMENTS = {'hosts': (moving.HERE, moving.THERE), 'casts': True}

    def test_a_guest_is_on_the_host_that_runs_it(self):
        server = self.create_server(scenario.BOOT_DISK, host=moving.HERE)
        volume, = server.volumes
        self.cloud.act(server, moving.live_migration(moving.THERE),
                       by=self.cloud.admin)
        self.assertEqual((), self.domains_of(moving.HERE))
        self.assertEqual((self.expected(server, volume),),
                         self.domains_of(moving.THERE))


class FibreChannelTest(testtools.TestCase):
    """os-brick rewrites what the driver of Cinder gave, and Nova saves it."""

    def test_addresses_are_the_same_before_and_after_a_connection(self):
        connections: list[dict[str, Any]] = [
            {'target_wwn': '500A098280FEEBA5', 'target_lun': 1},
            {'target_wwn': ['500A098280FEEBA5', '500A098280FEEBA6'],
             'target_lun': 1},
            {'target_wwn': ['A', 'B'], 'target_lun': 1,
             'target_luns': [1, 2]},
            {'target_wwns': ['A', 'B'], 'target_luns': [1, 2]},
            {'target_wwns': ['A', 'B'], 'target_lun': 3,
             'initiator_target_map': {'C': ['A', 'B', 'D']}},
            {'target_wwn': 'A', 'target_luns': [4]}]
        for data in connections:
            before = addresses_in({'data': data})
            connector = fibre_channel.FibreChannelConnector(None)
            connector._add_targets_to_connection_properties(data)
            self.assertEqual(
                {(target, str(unit)) for target, unit in data['targets']},
                before)
            self.assertEqual(before, addresses_in({'data': data}))
