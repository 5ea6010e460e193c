# SPDX-License-Identifier: Apache-2.0
"""A proxy between Nova and Cinder that records requests and injects faults.

It records every request, and rules apply actions to selected ones::

    proxy.on('DELETE', '/attachments/', proxy_module.status(503))
    proxy.on('GET', '/volumes/', proxy_module.reset(), nth=1)

A rule applies to the requests with the given method and with a path and query
that match the regular expression; with ``nth`` only to one of them.  The
newest rule that applies wins.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import http.client
import json
import re
import select
import socket
import struct
import threading
import time
from typing import Any
from urllib import parse

from nova_bdm_cleanup.tests.cloud import identity, web

# These describe one connection, and there are two of them.
_HOP_BY_HOP = ('connection', 'keep-alive', 'transfer-encoding', 'host',
               'content-length', 'date', 'server')


@dataclasses.dataclass
class Request:
    """One request as it arrived, and its result."""

    time: float
    method: str
    path: str
    microversion: str | None
    caller: identity.Caller | None
    has_service_token: bool
    body: bytes
    #: The status the client received; None without an answer.
    status: int | None = None
    #: Another Cinder to forward it to, instead of the proxy's.
    target: str | None = None


@dataclasses.dataclass
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    #: How much of the body is sent before the connection is cut.
    cut_at: int | None = None


class Reset(Exception):
    """A cut of the connection instead of an answer."""


Forward = Callable[[], Answer]
#: Handles a request; its second argument forwards it to the real Cinder.
Action = Callable[[Request, Forward], Answer]


def forward_unchanged(request: Request, forward: Forward) -> Answer:
    return forward()


def before(callback: Callable[[], Any]) -> Action:
    """Run a callback just before the request reaches Cinder."""
    def action(request: Request, forward: Forward) -> Answer:
        callback()
        return forward()
    return action


def after(callback: Callable[[], Any]) -> Action:
    """Run a callback after Cinder's answer, before the client gets it."""
    def action(request: Request, forward: Forward) -> Answer:
        answer = forward()
        callback()
        return answer
    return action


def _cut() -> None:
    raise Reset()


def reset() -> Action:
    """Cut the connection before the request reaches Cinder."""
    return before(_cut)


def lose_answer() -> Action:
    """Forward the request to Cinder, then cut the connection."""
    return after(_cut)


def status(code: int, body: Any = None,
           content_type: str = 'application/json') -> Action:
    """Answer a status with a body like Cinder's, without asking Cinder."""
    if body is None:
        body = {'injected': {'code': code, 'message': f'injected {code}'}}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def action(request: Request, forward: Forward) -> Answer:
        return Answer(code, [('Content-Type', content_type)], content)
    return action


def html(code: int = 404) -> Action:
    """Answer like a load balancer without a back end."""
    return status(code, b'<html><body><h1>Not here</h1></body></html>',
                  content_type='text/html')


def garbage() -> Action:
    """Answer 200 with a body that is not JSON."""
    return status(200, b'{"volumes": [{"id": "\xff\xfe')


def truncate() -> Action:
    """Send the true answer, but close in the middle of the body."""
    def action(request: Request, forward: Forward) -> Answer:
        answer = forward()
        answer.cut_at = len(answer.body) // 2
        return answer
    return action


def rewrite(function: Callable[[Any], Any]) -> Action:
    """Change the JSON of the true answer.

    :param function: takes the decoded body and returns its replacement
    """
    def action(request: Request, forward: Forward) -> Answer:
        answer = forward()
        answer.body = json.dumps(function(json.loads(answer.body))).encode()
        return answer
    return action


def shorten_lists(count: int) -> Action:
    """Cut every list in the answer to its first items."""
    def cut(body: dict[str, Any]) -> dict[str, Any]:
        return {key: value[:count] if isinstance(value, list) else value
                for key, value in body.items()}
    return rewrite(cut)


def limit_pages(size: int) -> Action:
    """Limit Cinder's pages, as a small osapi_max_limit does."""
    def action(request: Request, forward: Forward) -> Answer:
        request.path = re.sub(
            r'\blimit=(\d+)',
            lambda match: f'limit={min(int(match[1]), size)}', request.path)
        return forward()
    return action


def forward_to(target: str) -> Action:
    """Forward to another Cinder, such as one that reads from a replica."""
    def action(request: Request, forward: Forward) -> Answer:
        request.target = target
        return forward()
    return action


def _is_stale(connection: http.client.HTTPConnection) -> bool:
    """Return whether Cinder has closed an idle connection."""
    return connection.sock is None or bool(
        select.select([connection.sock], [], [], 0)[0])


class Rule:
    """An action for some requests; made by :meth:`Proxy.on`."""

    def __init__(self, method: str, path: str, action: Action,
                 nth: int | None) -> None:
        self.action = action
        #: How many requests matched so far.
        self.matched = 0
        self._method, self._path, self._nth = method, re.compile(path), nth

    def applies(self, request: Request) -> bool:
        if self._method not in ('*', request.method):
            return False
        if not self._path.search(request.path):
            return False
        self.matched += 1
        return self._nth in (None, self.matched)


class Proxy:
    """HTTP proxy on the loopback that forwards to a Cinder.

    :param target: the URL of the Cinder to forward to; a change at any time
        looks like a wrong region
    """

    def __init__(self, target: str) -> None:
        self.target = target
        #: Seconds added to every request.
        self.latency = 0.0
        #: All requests seen.
        self.requests: list[Request] = []
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._upstream = threading.local()
        handler = type('ProxyHandler', (_Handler,), {'proxy': self})
        self._server = web.Server(handler)
        self.url = self._server.url

    def close(self) -> None:
        self._closing.set()
        self._server.close()

    def on(self, method: str, path: str, action: Action,
           nth: int | None = None) -> Rule:
        """Add a rule.

        :param method: an HTTP method, or ``*`` for all
        :param path: a regular expression to find in the path and query
        :param action: one of this module's, or a function like them
        :param nth: apply to this one of the matching requests only, from 1
        :returns: the rule; its ``matched`` counts the requests
        """
        rule = Rule(method, path, action, nth)
        with self._lock:
            self._rules.insert(0, rule)
        return rule

    def hang(self, request: Request, forward: Forward) -> Answer:
        """Send no answer as long as the cloud runs; this is an action."""
        self._closing.wait()
        raise Reset()

    def hang_if_answer_has(self, text: str) -> Action:
        """Return an action: hang if Cinder's answer contains a text."""
        def action(request: Request, forward: Forward) -> Answer:
            answer = forward()
            if text.encode() in answer.body:
                return self.hang(request, forward)
            return answer
        return action

    def clear(self) -> None:
        """Forget the rules and the requests seen."""
        with self._lock:
            self._rules.clear()
            self.requests.clear()

    def handle(self, request: Request, headers: list[tuple[str, str]]
               ) -> Answer:
        with self._lock:
            self.requests.append(request)
            action = next((rule.action for rule in self._rules
                           if rule.applies(request)), forward_unchanged)
        if self.latency:
            time.sleep(self.latency)
        return action(request, lambda: self._forward(request, headers))

    def _forward(self, request: Request, headers: list[tuple[str, str]]
                 ) -> Answer:
        """Forward to Cinder, over a connection kept for this client.

        Cinder's address in links is replaced by the proxy's.
        """
        url = request.target or self.target
        target = parse.urlsplit(url)
        known = getattr(self._upstream, 'connection', None)
        if known is None or known.port != target.port or _is_stale(known):
            known = http.client.HTTPConnection(
                target.hostname or '', target.port)
            known.connect()
            known.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._upstream.connection = known
        try:
            known.request(request.method, request.path, request.body or None,
                          dict(headers))
            response = known.getresponse()
            return Answer(
                response.status,
                [(name, value.replace(url, self.url))
                 for name, value in response.getheaders()
                 if name.lower() not in _HOP_BY_HOP],
                response.read().decode().replace(url, self.url).encode())
        except (OSError, http.client.HTTPException):
            self._upstream.connection = None
            raise Reset() from None


class _Handler(web.Handler):

    proxy: Proxy

    def _handle(self) -> None:
        headers = [(name, value) for name, value in self.headers.items()
                   if name.lower() not in _HOP_BY_HOP]
        try:
            caller = identity.Caller.from_token(
                self.headers.get('X-Auth-Token', ''))
        except ValueError:
            caller = None
        request = Request(
            time=time.time(), method=self.command, path=self.path,
            microversion=self.headers.get('OpenStack-API-Version'),
            caller=caller,
            has_service_token='X-Service-Token' in self.headers,
            body=self.body())
        try:
            answer = self.proxy.handle(request, headers)
        except Reset:
            self._hang_up(hard=True)
            return
        if answer.cut_at is None:
            request.status = answer.status
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body[:answer.cut_at])
        if answer.cut_at is not None:
            self._hang_up(hard=False)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _handle

    def _hang_up(self, hard: bool) -> None:
        if hard:
            # Without lingering, a close becomes a reset.
            self.connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER,
                struct.pack('ii', 1, 0))
        self.close_connection = True
