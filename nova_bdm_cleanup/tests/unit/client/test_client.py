# SPDX-License-Identifier: Apache-2.0
"""Requests of the ``openstack bdm`` commands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import fixtures

from nova_bdm_cleanup.client.extension import Client
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.api import Budget
from nova_bdm_cleanup.tests.unit.client.cloud import base


class ClientCase(base.CloudCase):

    def configured(self, **values: Any) -> Client:
        """Return a client with these command line options."""
        return Client(self.session('admin'), SimpleNamespace(
            config=SimpleNamespace(
                get_interface=lambda service: values.get('interface'),
                get_region_name=lambda service: values.get('region_name'),
                get_endpoint=lambda service: values.get('endpoint'))))

    def headers(self) -> list[str]:
        return [r.headers['OpenStack-API-Version']
                for r in self.cloud.requests]


class RequestsTest(ClientCase):

    def test_endpoints_of_the_catalogue_are_used(self) -> None:
        configured = self.configured(interface='public',
                                     region_name='RegionOne')
        configured.nova(Budget()).server(self.alpha)
        configured.cinder(Budget()).volume(self.disk)
        self.assertEqual(
            ['GET /compute/v2.1/servers/' + self.alpha,
             'GET /volume/v3/own/volumes/' + self.disk],
            [str(r) for r in self.cloud.requests])
        self.assertEqual(['compute 2.89', 'volume 3.44'], self.headers())

    def test_missing_endpoint_names_the_region_option(self) -> None:
        for values in ({'interface': 'internal'}, {'region_name': 'Moon'}):
            configured = self.configured(**values)
            for ask in (lambda c=configured: c.nova(Budget()).server('x'),
                        lambda c=configured: c.cinder(Budget()).volume('x'),
                        lambda c=configured: c.placement(Budget()).get('/')):
                error = self.assertRaises(errors.Refused, ask)
                self.assertIn('--os-region-name', str(error))
        self.assertEqual([], self.cloud.requests)

    def test_endpoint_of_the_command_line_is_used(self) -> None:
        configured = self.configured(
            interface='internal', endpoint=self.server.url + '/volume/v3/own')
        self.assertIsNotNone(configured.cinder(Budget()).volume(self.disk))
        self.assertEqual(['volume 3.44'], self.headers())


class RateTest(ClientCase):

    def slept(self, rate: Any) -> float:
        """Return the delay of the last of five requests."""
        slept: list[float] = []
        with fixtures.MockPatch('time.sleep', slept.append):
            cinder = self.client().cinder(Budget(), rate)
            for _ in range(5):
                cinder.volume(self.disk)
        return max(slept, default=0.0)

    def test_rate_delays_requests(self) -> None:
        self.assertGreater(self.slept(0.001), 4000)
        self.assertEqual(0, self.slept(0))
