# SPDX-License-Identifier: Apache-2.0
"""A cloud served over HTTP, with the wrong answers that a test wants."""

from __future__ import annotations

import http.server
import json
import socket
import struct
import threading
import time
from typing import Any, Callable
import urllib.parse

from cinderclient import client as cinderclient
import fixtures
from keystoneauth1 import service_token, session as ksa_session, token_endpoint
from keystoneauth1.identity import v3

from nova_bdm_cleanup.tests.unit.loopback import LoopbackCloud, Request

#: A function that gets the handler and writes any answer instead of an API.
Trouble = Callable[['_Handler'], None]


class LoopbackServer(fixtures.Fixture):
    """A server of a cloud: all APIs at one port.

    :param cloud: the cloud to serve
    """

    def __init__(self, cloud: LoopbackCloud) -> None:
        self.cloud = cloud
        #: Called before Keystone gives a token.
        self.before_token: Callable[[], object] = lambda: None
        #: The names of Keystone's projects, by id.
        self.projects = {'own': 'ours', 'other': 'theirs'}
        #: Those of its users.
        self.users = {'someone': 'alice'}
        #: The paths of the services in Keystone's catalogue.
        self.services = {
            'identity': '/identity/v3', 'compute': '/compute/v2.1',
            'placement': '/placement', 'block-storage': '/volume/v3/own'}

    def _setUp(self) -> None:
        # No proxy and no password of the machine is for this server.  requests
        # would look for them in the whole environment with each request.
        self.useFixture(fixtures.MockPatch(
            'requests.sessions.get_environ_proxies',
            lambda url, no_proxy=None: {}))
        self.useFixture(fixtures.MockPatch(
            'requests.sessions.get_netrc_auth', lambda url: None))
        #: Set when the test is over, so that hanging handlers stop.
        self.over = threading.Event()
        server = _Server(self)
        self.port = server.server_address[1]
        thread = threading.Thread(
            target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.addCleanup(self.over.set)

    @property
    def url(self) -> str:
        return 'http://127.0.0.1:%d' % self.port

    def cinderclient(self, user: str = 'admin', service: bool = False,
                     url: str | None = None) -> Any:
        """Return a python-cinderclient like that of Nova.

        :param service: also send a service token
        """
        endpoint = (url or self.url) + '/volume/v3/own'
        auth = token_endpoint.Token(endpoint, user)
        if service:
            auth = service_token.ServiceTokenAuthWrapper(
                user_auth=auth,
                service_auth=token_endpoint.Token(endpoint, 'service'))
        return cinderclient.Client(
            '3.44', session=ksa_session.Session(auth=auth))

    def password(self, user: str = 'admin') -> Any:
        """Return credentials for which Keystone gives a token."""
        return v3.Password(
            auth_url=self.url + '/identity/v3', username=user, password='x',
            project_name='own', user_domain_id='default',
            project_domain_id='default')


class _Server(http.server.ThreadingHTTPServer):

    daemon_threads = True

    def __init__(self, loopback: LoopbackServer) -> None:
        super().__init__(('127.0.0.1', 0), _Handler)
        self.loopback = loopback


class _Handler(http.server.BaseHTTPRequestHandler):

    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True
    server: _Server
    request_made: Request

    def do(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        length = int(self.headers.get('Content-Length') or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        if parts.path.startswith('/identity'):
            self._identity(body)
            return
        # After /compute/v2.1, /volume/v3/own, or /placement.
        start = {'/c': 3, '/v': 4, '/p': 2}[parts.path[:2]]
        self.request_made = Request(
            self.command, '/' + '/'.join(parts.path.split('/')[start:]),
            dict(urllib.parse.parse_qsl(parts.query)), dict(self.headers),
            body, urllib.parse.unquote(self.path))
        answer = self.server.loopback.cloud.answer(self.request_made)
        if callable(answer):
            answer(self)
        else:
            self.send_json(*answer)

    do_GET = do_POST = do_DELETE = do

    def send_json(self, status: int, body: Any, token: str = '') -> None:
        if not isinstance(body, bytes):
            body = b'' if body is None else json.dumps(body).encode()
        self.send_body(status, body, 'application/json', token=token)

    def send_body(self, status: int, body: bytes, kind: str,
                  length: int | None = None, token: str = '') -> None:
        self.send_response(status)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(
            len(body) if length is None else length))
        if token:
            self.send_header('X-Subject-Token', token)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Log nothing: tests look at the requests instead."""

    def _identity(self, body: Any) -> None:
        """Answer as Keystone: a user has the role of the same name."""
        base = 'http://' + self.headers['Host']
        path, _, query = self.path.partition('?')
        place = path.partition('/identity/v3/projects')[2]
        if self.command == 'GET' and '/users/' in path:
            name = self.server.loopback.users.get(path.rpartition('/')[2])
            self.send_json(*(
                (200, {'user': {'id': 'any', 'name': name}}) if name
                else (404, {'error': {'message': 'no such'}})))
            return
        if self.command == 'GET' and 'projects' in path:
            projects = [{'id': i, 'name': n} for i, n in
                        self.server.loopback.projects.items()]
            wanted = dict(urllib.parse.parse_qsl(query)).get('name')
            found = [p for p in projects if p['id'] == place[1:]]
            if self.headers.get('X-Auth-Token') != 'admin':
                self.send_json(403, {'error': {'message': 'Policy'}})
            elif not place:
                self.send_json(200, {'projects': [
                    p for p in projects if p['name'] == wanted]})
            elif found:
                self.send_json(200, {'project': found[0]})
            else:
                self.send_json(404, {'error': {'message': 'no such'}})
            return
        if self.command == 'GET':
            self.send_json(200, {'version': {
                'id': 'v3.14', 'status': 'stable', 'links': [
                    {'rel': 'self', 'href': base + '/identity/v3'}]}})
            return
        self.server.loopback.before_token()
        domain = {'id': 'default', 'name': 'Default'}
        user = body['auth']['identity']['password']['user']['name']
        self.send_json(201, {'token': {
            'methods': ['password'], 'audit_ids': ['x'],
            'issued_at': '2026-01-01T00:00:00.000000Z',
            'expires_at': '2099-01-01T00:00:00.000000Z',
            'user': {'id': user, 'name': user, 'domain': domain},
            'project': {'id': 'own', 'name': 'own', 'domain': domain},
            'roles': [{'id': user, 'name': user}],
            'catalog': [
                {'id': kind, 'type': kind, 'name': kind, 'endpoints': [
                    {'id': kind, 'interface': 'public', 'region': 'RegionOne',
                     'region_id': 'RegionOne', 'url': base + path}]}
                for kind, path in self.server.loopback.services.items()
            ]}}, token=user)


# Trouble


def json_answer(status: int, body: Any) -> Trouble:
    return lambda handler: handler.send_json(status, body)


def fault(status: int, kind: str, message: str = 'No.') -> Trouble:
    """Return an error in the form that the API promises."""
    return json_answer(status, {kind: {'code': status, 'message': message}})


def page(status: int) -> Trouble:
    """Return the error page of a proxy."""
    return lambda handler: handler.send_body(
        status, b'<html><h1>%d</h1></html>' % status, 'text/html')


def raw(status: int, body: bytes, length: int | None = None) -> Trouble:
    """Return any bytes as JSON; they may differ from the announced length."""
    def send(handler: _Handler) -> None:
        handler.send_body(status, body, 'application/json', length)
        handler.close_connection = True
    return send


def edit(change: Callable[[Any], Any]) -> Trouble:
    """Return the API's own answer with a change."""
    def send(handler: _Handler) -> None:
        status, body = handler.server.loopback.cloud.respond(
            handler.request_made)
        changed = change(body)
        handler.send_json(status, body if changed is None else changed)
    return send


def reset(handler: _Handler) -> None:
    """Break the connection."""
    handler.connection.setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    handler.close_connection = True
    handler.connection.close()


def hang(handler: _Handler) -> None:
    """Never answer."""
    handler.server.loopback.over.wait(30)
    handler.close_connection = True


def trickle(handler: _Handler) -> None:
    """Send an answer that never ends, each part of it in time."""
    handler.send_response(200)
    handler.send_header('Content-Type', 'application/json')
    handler.send_header('Content-Length', '1000000')
    handler.end_headers()
    over = handler.server.loopback.over
    end = time.monotonic() + 30
    try:
        while not over.wait(0.02) and time.monotonic() < end:
            handler.wfile.write(b' ')
            handler.wfile.flush()
    except OSError:
        pass
    handler.close_connection = True
