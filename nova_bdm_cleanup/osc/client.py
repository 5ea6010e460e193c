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

from cinderclient import client as cinderclient
from keystoneauth1 import adapter

from nova_bdm_cleanup.fleet import cinder as cinders
from nova_bdm_cleanup.fleet import http
from nova_bdm_cleanup.fleet import nova as novas


class Client:
    """Makes the readers of both APIs.

    :param session: logs in and speaks HTTP
    :param config: what clouds.yaml and the command line say of the services
    """

    def __init__(self, session: Any, config: Any) -> None:
        self._session = session
        self._config = config

    def nova(self, gate: http.Gate) -> novas.Nova:
        """The compute API, through a gate."""
        session_client = adapter.LegacyJsonAdapter(
            self._session, service_type='compute',
            interface=self._config.get_interface('compute'),
            region_name=self._config.get_region_name('compute'),
            endpoint_override=self._config.get_endpoint('compute'),
            default_microversion=novas.MICROVERSION)
        return novas.Nova(http.Service(
            'Nova', _transport(session_client), gate))

    def cinder(self, gate: http.Gate) -> cinders.Cinder:
        """Cinder, through a gate."""
        session_client = cinderclient.Client(
            cinders.MICROVERSION, session=self._session,
            service_type='block-storage',
            endpoint_type=self._config.get_interface('block-storage'),
            region_name=self._config.get_region_name('block-storage'),
            os_endpoint=self._config.get_endpoint('block-storage')).client
        return cinders.Cinder(http.Service(
            'Cinder', _transport(session_client), gate))


def _transport(session_client: Any) -> http.Transport:
    def request(method: str, path: str, body: Any, **kwargs: Any) -> Any:
        if body is not None:
            kwargs['body'] = body
        return session_client.request(path, method, authenticated=True,
                                      **kwargs)

    return request
