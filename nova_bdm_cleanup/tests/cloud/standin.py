# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for the services not under test: Keystone and Glance.

Cinder needs both: before it lets a user delete an attachment, it exchanges
the user's token for a catalogue with Nova's address, and before it creates a
volume from an image, it looks the image up.  The ``openstack`` command needs
the tokens, too, and looks projects up by name and by id.
"""

from __future__ import annotations

import json
import threading
from typing import Any
from urllib import parse
import uuid

from nova_bdm_cleanup.tests.cloud import identity, web

#: The password of all users.
PASSWORD = 'loopback'

#: The image that Nova's harness has too.
IMAGE = '155d900f-4e14-4e4c-a73d-069cbf4541e6'
_IMAGE = {
    'name': 'demo', 'status': 'active', 'visibility': 'public',
    'container_format': 'bare', 'disk_format': 'raw', 'size': 1 << 20,
    'min_disk': 0, 'min_ram': 0, 'protected': False, 'tags': [],
    'checksum': None, 'owner': None, 'virtual_size': None,
    'created_at': '2026-01-01T00:00:00Z',
    'updated_at': '2026-01-01T00:00:00Z'}
_DOMAIN = {'id': 'default', 'name': 'Default'}


class StandIn:
    """One HTTP server for both services."""

    NO_EXPIRY = '2099-01-01T00:00:00.000000Z'
    EXPIRED = '2000-01-01T00:00:00.000000Z'

    def __init__(self) -> None:
        #: The users that can log in with a password, by name.
        self.users: dict[str, identity.Caller] = {}
        #: The names of projects, by id; the name of any other is its id.
        self.projects: dict[str, str] = {}
        #: The expiry of tokens; an expired one is requested again with
        #: every request.
        self.expires_at = self.NO_EXPIRY
        #: Requests for tokens wait for this event, which is set by default.
        self.answering = threading.Event()
        self.answering.set()
        handler = type('StandInHandler', (_Handler,), {'stand_in': self})
        self._server = web.Server(handler)
        self.identity_url = f'{self._server.url}/identity/v3'
        self.image_url = f'{self._server.url}/image'
        # OpenStackClient needs an entry for each service that it logs in to.
        identity.catalogue.set('identity', self.identity_url)

    def close(self) -> None:
        self._server.close()

    def authenticate(self, request: dict[str, Any]) -> identity.Caller:
        """Return the caller that requests a token.

        :raises ValueError: when the caller is unknown
        """
        method = request['auth']['identity']
        if 'token' in method['methods']:
            return identity.Caller.from_token(method['token']['id'])
        user = method['password']['user']
        caller = self.users.get(user.get('name') or user.get('id', ''))
        if caller is None or user['password'] != PASSWORD:
            raise ValueError('no such user')
        return caller


class _Handler(web.Handler):

    stand_in: StandIn

    def do_GET(self) -> None:
        path = self.path.partition('?')[0].strip('/').split('/')
        if path[0] == 'identity' and path[-1] == 'tokens':
            self._token(self.headers.get('X-Subject-Token', ''))
        elif path[:3] == ['identity', 'v3', 'projects']:
            self._projects(*map(parse.unquote, path[3:4]))
        elif path[:3] == ['identity', 'v3', 'users']:
            self._json(200, {'user': {'id': path[3], 'name': path[3]}})
        elif path[0] == 'identity':
            self._json(200, {'version': {
                'id': 'v3.14', 'status': 'stable',
                'links': [{'rel': 'self',
                           'href': self.stand_in.identity_url}]}})
        elif path == ['image', 'v2', 'images']:
            self._json(200, {'images': [dict(_IMAGE, id=IMAGE)]})
        elif path[:3] == ['image', 'v2', 'images']:
            self._json(200, dict(_IMAGE, id=path[3], file='', schema=''))
        elif path == ['image', 'v2', 'schemas', 'image']:
            self._json(200, {'name': 'image', 'properties': dict.fromkeys(
                ('id', 'file', 'schema', *_IMAGE), {})})
        elif path in (['image'], ['image', 'versions']):
            self._json(200, {'versions': [
                {'id': 'v2.9', 'status': 'CURRENT',
                 'links': [{'rel': 'self',
                            'href': self.stand_in.image_url + '/v2/'}]}]})
        else:
            self._json(404, {'error': {'code': 404, 'message': self.path}})

    def do_POST(self) -> None:
        body = self.body()
        self.stand_in.answering.wait()
        try:
            caller = self.stand_in.authenticate(json.loads(body))
        except (ValueError, KeyError):
            self._json(401, {'error': {
                'code': 401, 'message': 'unknown user'}})
            return
        self._token(caller.token, status=201)

    def _projects(self, project: str | None = None) -> None:
        """Show one project, or list those that the query names.

        As in Keystone, a member sees only the project of its token, and
        cannot list.
        """
        try:
            caller = identity.Caller.from_token(
                self.headers.get('X-Auth-Token', ''))
        except ValueError:
            self._json(401, {'error': {
                'code': 401, 'message': 'unknown token'}})
            return
        if project != caller.project and 'admin' not in caller.roles:
            self._json(403, {'error': {
                'code': 403, 'message': 'You are not authorized to perform '
                                        'the requested action.'}})
            return
        every = {identifier: {
            'id': identifier, 'name': name, 'domain_id': _DOMAIN['id'],
            'enabled': True, 'is_domain': False, 'options': {}, 'tags': [],
            'parent_id': _DOMAIN['id'], 'description': '', 'links': {}}
            for identifier, name in self.stand_in.projects.items()}
        if project is None:
            names = parse.parse_qs(parse.urlsplit(self.path).query).get('name')
            self._json(200, {'links': {}, 'projects': [
                each for each in every.values()
                if not names or each['name'] in names]})
        elif project in every:
            self._json(200, {'project': every[project]})
        else:
            self._json(404, {'error': {
                'code': 404,
                'message': f'Could not find project: {project}.'}})

    def _token(self, token: str, status: int = 200) -> None:
        try:
            caller = identity.Caller.from_token(token)
        except ValueError:
            self._json(404, {'error': {
                'code': 404, 'message': 'unknown token'}})
            return
        self._json(status, {'token': {
            'methods': ['token'], 'audit_ids': [uuid.uuid4().hex],
            'issued_at': '2026-01-01T00:00:00.000000Z',
            'expires_at': self.stand_in.expires_at,
            'user': {'id': caller.user, 'name': caller.user,
                     'domain': _DOMAIN},
            'project': {'id': caller.project,
                        'name': self.stand_in.projects.get(
                            caller.project, caller.project),
                        'domain': _DOMAIN},
            'roles': [{'id': role, 'name': role} for role in caller.roles],
            'catalog': identity.catalogue.token_body(caller.project)}},
            X_Subject_Token=token)

    def _json(self, status: int, body: Any, **headers: str) -> None:
        self.answer(status, json.dumps(body).encode(), **headers)
