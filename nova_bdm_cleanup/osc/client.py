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
"""Nova and Cinder, by way of OpenStackClient's session."""

from __future__ import annotations

from typing import Any

from keystoneauth1 import adapter

from nova_bdm_cleanup import cinder
from nova_bdm_cleanup.api import Advice
from nova_bdm_cleanup.api import Api
from nova_bdm_cleanup.api import Budget
from nova_bdm_cleanup.fleet import compute

_ADVICE = Advice(
    credentials='check the credentials; if they are a token, has it expired?',
    catalogue='check --os-region-name and --os-interface',
    role='this needs the admin role')


class Client:
    """Makes the readers of both APIs.

    :param session: logs in and speaks HTTP
    :param config: what clouds.yaml and the command line say of the services
    """

    def __init__(self, session: Any, config: Any) -> None:
        self._session = session
        self._config = config

    def nova(self, budget: Budget, rate: int = 0) -> compute.Compute:
        """The compute API.

        :param budget: counts the requests
        :param rate: requests per second, on average; 0: as fast as possible
        """
        return compute.Compute(self._api(
            'Nova', 'compute', compute.MICROVERSION, budget, rate))

    def cinder(self, budget: Budget, rate: int = 0) -> cinder.Cinder:
        """Cinder; with the same parameters."""
        return cinder.Cinder(self._api(
            'Cinder', 'block-storage', cinder.MICROVERSION, budget, rate))

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
