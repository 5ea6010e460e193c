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
"""OpenStackClient plugin: the ``openstack bdm`` commands.

They are built from the session of OpenStackClient, so that its options for
the cloud, the region, the interface and time-outs hold for them, too.
"""

from __future__ import annotations

import argparse
from typing import Any

from nova_bdm_cleanup.osc import client

API_NAME = 'bdm_cleanup'
API_VERSION_OPTION = 'os_bdm_cleanup_api_version'
API_VERSIONS = {'1': 'nova_bdm_cleanup.osc.client.Client'}
DEFAULT_API_VERSION = '1'


def make_client(instance: Any) -> client.Client:
    """The object that commands get as ``client_manager.bdm_cleanup``."""
    config = instance.sdk_connection.config
    return client.Client(instance.session, config)


def build_option_parser(
        parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """There are no global options."""
    return parser
