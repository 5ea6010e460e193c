# SPDX-License-Identifier: Apache-2.0
"""OpenStackClient plugin: the ``openstack bdm`` commands.

They use the session of OpenStackClient, so that its options for the cloud,
the region, the interface and timeouts apply to them, too.
"""

from __future__ import annotations

import argparse
from typing import Any
import urllib.parse

from keystoneauth1 import adapter

from nova_bdm_cleanup.client.cloud.cinder import CloudCinder
from nova_bdm_cleanup.client.cloud.nova import COMPUTE_MICROVERSION, Nova
from nova_bdm_cleanup.client.cloud.placement import PLACEMENT_MICROVERSION
from nova_bdm_cleanup.client.owners import Owners
from nova_bdm_cleanup.openstack import cinder
from nova_bdm_cleanup.openstack.api import Api, Budget, Hints

API_NAME = 'bdm_cleanup'
API_VERSION_OPTION = 'os_bdm_cleanup_api_version'
API_VERSIONS = {'1': 'nova_bdm_cleanup.client.extension.Client'}
DEFAULT_API_VERSION = '1'

_ADVICE = Hints(
    credentials='check the credentials; if they are a token, has it expired?',
    catalogue='check --os-region-name and --os-interface',
    role='this needs the admin role')


class Client:
    """The factory of the clients of the APIs.

    :param connection: that of the SDK, with the services' options in
        clouds.yaml and the command line
    """

    def __init__(self, session: Any, connection: Any) -> None:
        self._session = session
        self._config = connection.config
        self.owners = Owners(connection)

    def nova(self, budget: Budget, rate: int = 0) -> Nova:
        """Return the client of the compute API.

        :param rate: requests per second, on average; 0: as fast as possible
        """
        return Nova(self._api(
            'Nova', 'compute', COMPUTE_MICROVERSION, budget, rate))

    def cinder(self, budget: Budget, rate: int = 0) -> CloudCinder:
        """Return the client of Cinder; with the same parameters."""
        return CloudCinder(self._api(
            'Cinder', 'block-storage', cinder.VOLUME_MICROVERSION, budget,
            rate))

    def placement(self, budget: Budget, rate: int = 0) -> Api:
        """Return the placement API; with the same parameters."""
        return self._api('Placement', 'placement', PLACEMENT_MICROVERSION,
                         budget, rate)

    @property
    def place(self) -> str:
        """Return the names of the cloud and the region."""
        url = getattr(self._session.auth, 'auth_url', None)
        region = self._config.get_region_name('compute')
        return 'cloud %s%s' % (
            urllib.parse.urlsplit(url or '').netloc or 'unknown',
            ', region ' + region if region else '')

    def _api(self, name: str, service: str, microversion: str, budget: Budget,
             rate: int) -> Api:
        found = adapter.LegacyJsonAdapter(
            self._session, service_type=service,
            interface=self._config.get_interface(service),
            region_name=self._config.get_region_name(service),
            endpoint_override=self._config.get_endpoint(service),
            rate_limit=rate or None)
        return Api(name, microversion, lambda: found.request, _ADVICE,
                   budget=budget)


def make_client(instance: Any) -> Client:
    """Return the object for ``client_manager.bdm_cleanup``."""
    return Client(instance.session, instance.sdk_connection)


def build_option_parser(
        parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Return the parser unchanged: there are no global options."""
    return parser
