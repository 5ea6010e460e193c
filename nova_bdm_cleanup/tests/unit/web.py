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
"""A Cinder on loopback: real HTTP, answers as wrong as a test wants them."""

from __future__ import annotations

import ast
import http.server
import json
import socket
import struct
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple
import urllib.parse

from cinderclient import client as cinderclient
import fixtures
from keystoneauth1 import service_token
from keystoneauth1 import session as ksa_session
from keystoneauth1 import token_endpoint

PROJECT = '0123456789abcdef0123456789abcdef'

#: What answers in place of Cinder: gets the handler, writes what it likes.
Trouble = Callable[['_Handler'], None]


class CinderServer(fixtures.Fixture):
    """The part of Cinder's API that is used, over HTTP.

    Volumes and attachments are records as Cinder's API shows them.
    """

    def __init__(self) -> None:
        #: What Cinder holds, by id.
        self.volumes: Dict[str, Dict[str, Any]] = {}
        self.attachments: Dict[str, Dict[str, Any]] = {}
        #: The server's osapi_max_limit.
        self.page = 1000
        #: Whether the token is an administrator's.
        self.admin = True
        #: What was asked: method, path without the project, query, headers.
        self.requests: List[Tuple[
            str, str, Dict[str, str], Mapping[str, str]]] = []
        self.bodies: List[Any] = []
        self._troubles: List[Tuple[str, str, Trouble]] = []

    def _setUp(self) -> None:
        server = _Server(self)
        self.port = server.server_address[1]
        #: Set when the test is over: what hangs may stop.
        self.over = threading.Event()
        thread = threading.Thread(
            target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.addCleanup(self.over.set)

    @property
    def url(self) -> str:
        return 'http://127.0.0.1:%d' % self.port

    def client(self, service: bool = False, url: Optional[str] = None,
               **values: Any) -> Any:
        """A python-cinderclient as Nova makes it.

        :param service: send a service token along
        """
        endpoint = '%s/v3/%s' % (url or self.url, PROJECT)
        auth = token_endpoint.Token(endpoint, 'a-token')
        if service:
            auth = service_token.ServiceTokenAuthWrapper(
                user_auth=auth,
                service_auth=token_endpoint.Token(endpoint, 'a-service'))
        return cinderclient.Client(
            '3.44', session=ksa_session.Session(auth=auth), **values)

    def trouble(self, method: str, path: str, what: Trouble) -> None:
        """Answer requests in another way.

        :param path: of the request; with a star at its end, all that begin so
        """
        self._troubles.insert(0, (method, path, what))

    def trouble_for(self, method: str, path: str) -> Optional[Trouble]:
        return next((t for m, p, t in self._troubles
                     if m == method and (path == p or (
                         p.endswith('*') and path.startswith(p[:-1])))), None)

    @property
    def asked(self) -> List[str]:
        """Method and path of each request."""
        return ['%s %s' % request[:2] for request in self.requests]

    # What Cinder holds

    def volume(self, volume_id: str, **values: Any) -> None:
        self.volumes[volume_id] = {
            'id': volume_id, 'status': 'in-use', 'multiattach': False,
            'migration_status': None, 'attachments': [], 'metadata': {},
            'created_at': '2026-03-01T00:00:00.000000',
            'updated_at': '2026-03-02T00:00:00.000000', **values}

    def attachment(self, attachment_id: str, volume_id: str,
                   instance: Optional[str], **values: Any) -> None:
        self.attachments[attachment_id] = {
            'id': attachment_id, 'volume_id': volume_id,
            'instance': instance, 'status': 'attached',
            'connection_info': {'driver_volume_type': 'rbd',
                                'auth_password': 'hush'}, **values}

    # What Cinder answers

    def answer(self, method: str, path: str, query: Mapping[str, str],
               body: Any) -> Tuple[int, Any]:
        kind, _, rest = path.strip('/').partition('/')
        if method == 'GET' and path == '/attachments':
            return 200, {'attachments': [
                {k: a[k] for k in ('id', 'status', 'instance', 'volume_id')}
                for a in self._listed(query)]}
        if method == 'GET' and path == '/attachments/detail':
            return 200, {'attachments': self._listed(query)}
        if method == 'GET' and path == '/volumes/detail':
            if not self.admin:
                return 400, {'badRequest': {
                    'code': 400, 'message': 'Invalid filters id are found'}}
            wanted = ast.literal_eval(query['id'])
            found = [v for v in self.volumes.values() if v['id'] in wanted]
            return 200, {'volumes': found[:self.page]}
        if method == 'POST' and rest.endswith('/action'):
            detach = body['os-force_detach']
            if rest[:-len('/action')] not in self.volumes:
                return _not_found('Volume')
            self.attachments.pop(detach['attachment_id'], None)
            return 202, None
        store = self.volumes if kind == 'volumes' else self.attachments
        if rest not in store:
            return _not_found(kind)
        if method == 'DELETE':
            gone = store.pop(rest)
            return 200, {'attachments': [
                a for a in store.values()
                if a['volume_id'] == gone['volume_id']]}
        return 200, {kind[:-1]: store[rest]}

    def _listed(self, query: Mapping[str, str]) -> List[Dict[str, Any]]:
        found = [a for a in self.attachments.values()
                 if a['instance'] == query['instance_id']]
        if not (self.admin and query.get('all_tenants')):
            found = [a for a in found if not a.get('foreign')]
        if query.get('marker'):
            ids = [a['id'] for a in found]
            found = found[ids.index(query['marker']) + 1:]
        found = found[int(query.get('offset', 0)):]
        return found[:min(self.page, int(query.get('limit', 1000)))]


def _not_found(kind: str) -> Tuple[int, Any]:
    return 404, {'itemNotFound': {
        'code': 404, 'message': '%s could not be found.' % kind}}


class _Server(http.server.ThreadingHTTPServer):

    daemon_threads = True

    def __init__(self, cinder: CinderServer) -> None:
        super().__init__(('127.0.0.1', 0), _Handler)
        self.cinder = cinder


class _Handler(http.server.BaseHTTPRequestHandler):

    protocol_version = 'HTTP/1.1'
    server: _Server

    def do(self) -> None:
        cinder = self.server.cinder
        parts = urllib.parse.urlsplit(self.path)
        path = parts.path.replace('/v3/%s' % PROJECT, '', 1)
        query = dict(urllib.parse.parse_qsl(parts.query))
        length = int(self.headers.get('Content-Length') or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        cinder.requests.append((
            self.command, path, query, dict(self.headers)))
        cinder.bodies.append(body)
        trouble = cinder.trouble_for(self.command, path)
        if trouble:
            trouble(self)
        else:
            self.send_json(*cinder.answer(self.command, path, query, body))

    do_GET = do_POST = do_DELETE = do

    def send_json(self, status: int, body: Any) -> None:
        self.send_body(status, b'' if body is None
                       else json.dumps(body).encode(), 'application/json')

    def send_body(self, status: int, body: bytes, kind: str,
                  length: Optional[int] = None) -> None:
        self.send_response(status)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(
            len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Tests look at what was asked, not at a log of it."""


# Trouble


def json_answer(status: int, body: Any) -> Trouble:
    return lambda handler: handler.send_json(status, body)


def fault(status: int, kind: str, message: str = 'No.') -> Trouble:
    """An error in the form that the API promises."""
    return json_answer(status, {kind: {'code': status, 'message': message}})


def page(status: int) -> Trouble:
    """What a proxy says when it is in trouble."""
    return lambda handler: handler.send_body(
        status, b'<html><h1>%d</h1></html>' % status, 'text/html')


def raw(status: int, body: bytes, length: Optional[int] = None) -> Trouble:
    """Any bytes, as JSON; the length may be another one than announced."""
    def send(handler: _Handler) -> None:
        handler.send_body(status, body, 'application/json', length)
        handler.close_connection = True
    return send


def edit(change: Callable[[Any], Any]) -> Trouble:
    """Cinder's own answer, with something changed in it."""
    def send(handler: _Handler) -> None:
        cinder = handler.server.cinder
        method, path, query, _ = cinder.requests[-1]
        status, body = cinder.answer(
            method, path, query, cinder.bodies[-1])
        changed = change(body)
        handler.send_json(status, body if changed is None else changed)
    return send


def reset(handler: _Handler) -> None:
    """The connection breaks."""
    handler.connection.setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    handler.close_connection = True
    handler.connection.close()


def hang(handler: _Handler) -> None:
    """No answer, ever."""
    handler.server.cinder.over.wait(30)
    handler.close_connection = True


def slowly(handler: _Handler) -> None:
    """An empty list after half a second, each part of it in time."""
    body = b' ' * 25 + b'{"attachments": []}'
    handler.send_response(200)
    handler.send_header('Content-Type', 'application/json')
    handler.send_header('Content-Length', str(len(body)))
    handler.end_headers()
    for start in range(25):
        time.sleep(0.02)
        handler.wfile.write(body[start:start + 1])
        handler.wfile.flush()
    handler.wfile.write(body[25:])


def trickle(handler: _Handler) -> None:
    """An answer that never ends, each part of it in time."""
    handler.send_response(200)
    handler.send_header('Content-Type', 'application/json')
    handler.send_header('Content-Length', '1000000')
    handler.end_headers()
    over = handler.server.cinder.over
    end = time.monotonic() + 30
    try:
        while not over.wait(0.02) and time.monotonic() < end:
            handler.wfile.write(b' ')
            handler.wfile.flush()
    except OSError:
        pass
    handler.close_connection = True
