# SPDX-License-Identifier: Apache-2.0
"""A small threaded HTTP server on the loopback, for this package."""

from __future__ import annotations

import http.server
import socket
import socketserver
import threading
from typing import Any
from wsgiref import simple_server


class _Quiet:
    """Mixin that prints no request lines and no closed connections."""

    def log_message(self, *arguments: Any) -> None:
        pass

    def address_string(self) -> str:
        return '127.0.0.1'


class Handler(_Quiet, http.server.BaseHTTPRequestHandler):
    """Base class of request handlers; connections are kept alive."""

    protocol_version = 'HTTP/1.1'
    # Headers and body of an answer are two writes: with Nagle's algorithm the
    # second would wait 40 ms for the client's delayed acknowledgement of the
    # first.
    disable_nagle_algorithm = True

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get('Content-Length') or 0))

    def answer(self, status: int, body: bytes,
               content_type: str = 'application/json',
               **headers: str) -> None:
        self.send_response(status)
        self.send_header('Content-Type', content_type)
        self.send_header('Content-Length', str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace('_', '-'), value)
        self.end_headers()
        self.wfile.write(body)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """HTTP server on a free port of the loopback, until it is closed."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler: Any) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__(('127.0.0.1', 0), handler)
        self.url = f'http://127.0.0.1:{self.server_address[1]}'
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def server_bind(self) -> None:
        # The inherited method looks up its own address in the DNS.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = '127.0.0.1', \
            self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass

    def _serve(self) -> None:
        # Not serve_forever(): it waits in a selector, which eventlet patches
        # in time only in some releases of Nova.
        while True:
            try:
                request, address = self.get_request()
            except OSError:
                return  # closed
            self.process_request(request, address)

    def close(self) -> None:
        """Stop listening and close all connections."""
        self.socket.shutdown(socket.SHUT_RDWR)
        for connection in list(self._connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._thread.join()
        self.server_close()


class _WSGIHandler(_Quiet, simple_server.WSGIRequestHandler):
    pass


class WSGIServer(Server, simple_server.WSGIServer):
    """HTTP server for a WSGI application; one request per connection."""

    def __init__(self, application: Any) -> None:
        super().__init__(_WSGIHandler)
        self.set_app(application)

    def server_bind(self) -> None:
        super().server_bind()
        self.setup_environ()
