# SPDX-License-Identifier: Apache-2.0
"""Callers, their tokens and the catalogue that they see.

A token is readable text, ``user:project:role,role``, and describes its caller
completely.  It is not verified, which is acceptable on the loopback of a test;
everything behind it is real.  The filter below replaces keystonemiddleware's
``auth_token`` in the paste pipelines of Nova and Cinder, sets the same
headers, and leaves the rest (request contexts, policies, the check of service
tokens) to the services.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
import dataclasses
import json
from typing import Any

# Keystone adds the roles that a role implies; readable tokens name them all.
MEMBER = ('member', 'reader')
ADMIN = ('admin', 'member', 'reader')


@dataclasses.dataclass(frozen=True)
class Caller:
    """A user, the project of its token, and its roles there."""

    user: str
    project: str
    roles: tuple[str, ...] = MEMBER

    @property
    def token(self) -> str:
        return ':'.join((self.user, self.project, ','.join(self.roles)))

    @classmethod
    def from_token(cls, token: str) -> Caller:
        """Read a token.

        :raises ValueError: when it is not a token
        """
        user, project, roles = token.split(':')
        if not user or not project:
            raise ValueError('a token names a user and a project')
        return cls(user, project, tuple(roles.split(',')))


NOVA_PROJECT = 'service'
#: Nova itself, as nova.conf's ``[cinder]`` credentials name it.
NOVA = Caller('nova', NOVA_PROJECT, ('service',) + ADMIN)
#: Nova again, as nova.conf's ``[service_user]`` for service tokens.
NOVA_SERVICE = Caller('nova', NOVA_PROJECT, ('service',))


#: The names of services that are not their type, as in a real catalogue.
_NAMES = {'block-storage': 'cinder', 'volumev3': 'cinderv3'}


class Catalogue:
    """The URLs of the services; ``%(project_id)s`` is filled in."""

    def __init__(self) -> None:
        self._urls: dict[str, str] = {}

    def set(self, service_type: str, url: str) -> None:
        self._urls[service_type] = url

    def header(self, project: str) -> str:
        """Return the catalogue as keystonemiddleware passes it on."""
        return json.dumps([
            {'type': service_type,
             'name': _NAMES.get(service_type, service_type),
             'endpoints': [{'region': 'RegionOne',
                            'publicURL': url % {'project_id': project}}]}
            for service_type, url in self._urls.items()])

    def token_body(self, project: str) -> list[dict[str, Any]]:
        """Return the catalogue as in a version 3 token of Keystone."""
        return [
            {'id': service_type, 'type': service_type,
             'name': _NAMES.get(service_type, service_type),
             'endpoints': [
                 {'id': f'{service_type}-{interface}', 'region': 'RegionOne',
                  'region_id': 'RegionOne', 'interface': interface,
                  'url': url % {'project_id': project}}
                 for interface in ('public', 'internal', 'admin')]}
            for service_type, url in self._urls.items()]


#: The catalogue of the cloud that runs in this process.
catalogue = Catalogue()

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


class TextTokenAuth:
    """Filter that turns tokens into the headers the services read."""

    _FORGEABLE = (
        'HTTP_X_USER_ID', 'HTTP_X_PROJECT_ID', 'HTTP_X_ROLES',
        'HTTP_X_SERVICE_USER_ID', 'HTTP_X_SERVICE_PROJECT_ID',
        'HTTP_X_SERVICE_ROLES', 'HTTP_X_SERVICE_CATALOG',
        'HTTP_X_IDENTITY_STATUS')

    def __init__(self, application: Application) -> None:
        self._application = application

    def __call__(self, environ: Environ,
                 start_response: StartResponse) -> Iterable[bytes]:
        for header in self._FORGEABLE:
            environ.pop(header, None)
        service_token = environ.get('HTTP_X_SERVICE_TOKEN')
        try:
            caller = Caller.from_token(environ.get('HTTP_X_AUTH_TOKEN', ''))
            service = Caller.from_token(service_token) if service_token \
                else None
            # keystonemiddleware refuses the request of a service without the
            # role if service_token_roles_required is set, as recommended.
            if service and 'service' not in service.roles:
                raise ValueError('a service needs the role "service"')
        except ValueError:
            start_response('401 Unauthorized',
                           [('Content-Type', 'text/plain'),
                            ('Content-Length', '0')])
            return [b'']
        environ.update({
            'HTTP_X_IDENTITY_STATUS': 'Confirmed',
            'HTTP_X_USER_ID': caller.user,
            'HTTP_X_PROJECT_ID': caller.project,
            'HTTP_X_ROLES': ','.join(caller.roles),
            'HTTP_X_SERVICE_CATALOG': catalogue.header(caller.project)})
        if service:
            environ.update({
                'HTTP_X_SERVICE_USER_ID': service.user,
                'HTTP_X_SERVICE_PROJECT_ID': service.project,
                'HTTP_X_SERVICE_ROLES': ','.join(service.roles)})
        return self._application(environ, start_response)


def filter_factory(
        global_conf: dict[str, str],
        **local_conf: str) -> Callable[[Application], TextTokenAuth]:
    """Return the filter, as the entry point of the paste pipelines."""
    return TextTokenAuth


def with_text_tokens(paste: str) -> str:
    """Put the filter into a service's own api-paste.ini.

    :param paste: the file that the service ships
    :returns: the file with keystonemiddleware's filter replaced
    """
    return paste.replace('keystonemiddleware.auth_token:filter_factory',
                         f'{__name__}:filter_factory')
