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
"""The cloud, with the credentials of whoever runs the command."""

from __future__ import annotations

import argparse
from typing import Any

from nova_bdm_cleanup.cli.exitcodes import CommandError
from nova_bdm_cleanup.cli.exitcodes import ExitCode

#: The options of every OpenStack client that logging in may take.
_OPTIONS = (
    'cloud', 'auth-type', 'auth-url', 'username', 'user-id',
    'user-domain-name', 'user-domain-id', 'password', 'project-name',
    'project-id', 'project-domain-name', 'project-domain-id', 'token',
    'application-credential-id', 'application-credential-name',
    'application-credential-secret', 'region-name', 'interface', 'cacert',
    'cert', 'key',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The usual ``--os-*`` options; the ``OS_*`` variables work as well."""
    group = parser.add_argument_group('cloud')
    for name in _OPTIONS:
        group.add_argument('--os-%s' % name, metavar='VALUE',
                           help=argparse.SUPPRESS if name != 'cloud' else
                           'name of a cloud in clouds.yaml. The other --os-* '
                           'options of the openstack command that log in are '
                           'accepted too')


def connect(args: argparse.Namespace) -> Any:
    """Log in.

    :returns: a connection of openstacksdk
    :raises CommandError: when there is no openstacksdk or no login
    """
    try:
        from keystoneauth1 import exceptions as ksa_exceptions
        from openstack.config import loader
        from openstack import connection
        from openstack import exceptions
    except ImportError:
        raise CommandError(
            ExitCode.REFUSED, 'this needs openstacksdk: pip install '
            '"nova-bdm-cleanup[cli]". Without it, run the printed commands'
        ) from None
    options = argparse.Namespace(**{
        name: value for name, value in vars(args).items()
        if name.startswith('os_')})
    try:
        cloud = connection.Connection(
            config=loader.OpenStackConfig().get_one(argparse=options))
        cloud.authorize()
    except (exceptions.SDKException,
            ksa_exceptions.ClientException) as exc:
        raise CommandError(
            ExitCode.REFUSED, 'cannot log in: %s' % exc) from exc
    return cloud
