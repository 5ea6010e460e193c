# SPDX-License-Identifier: Apache-2.0
"""Faults in the middle of an operation of Nova.

Each request of Nova to Cinder, each save of a row and each step of a guest or
of os-brick is a point, in the order in which Nova reaches them.  A fault
happens at one of them.

A nova-compute that has died sends nothing, saves nothing and touches no guest
any more, although its ``finally`` blocks still run in this process.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import re
import sys
import threading
import types
from typing import Any

from cinderclient import client as cinderclient, exceptions
import fixtures
from nova import objects
from nova.compute import manager
from oslo_messaging._drivers import impl_fake
from sqlalchemy import event
from sqlalchemy.engine import Engine

from nova_bdm_cleanup.tests.cloud.recorder import (
    Crash,
    GUEST,
    HOST,
    Recorder,
    REQUEST,
)

#: Cinder answers an error, and does nothing.
REFUSED = 'refused'
#: Cinder does it, and the answer is lost.
LOST = 'lost'
#: The nova-compute that is about to do it dies.
DEAD_BEFORE = 'dead-before'
#: Cinder does it, and the nova-compute that has asked for it dies.
DEAD_AFTER = 'dead-after'

#: The kinds of points.
SAVE, CALL = 'save', 'call'

_UUID = re.compile(r'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}')


@dataclasses.dataclass(frozen=True)
class Point:
    """A moment in which something can fail.

    :ivar kind: ``REQUEST``, ``SAVE`` or ``CALL``
    :ivar what: the request, the change of a row, or the step of the host
    :ivar host: the host of the nova-compute that does it, if one does
    """

    kind: str
    what: str
    host: str | None


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault at one of the points.

    :ivar kind: one of this module's
    :ivar nth: the number of the point among those that fit, from 1
    :ivar what: a regular expression to find in the point
    :ivar point: the kind of the point
    :ivar host: the host that does it, if that matters
    """

    kind: str
    nth: int = 1
    what: str = ''
    point: str = REQUEST
    host: str | None = None

    def fits(self, point: Point) -> bool:
        return (point.kind == self.point
                and self.host in (None, point.host)
                and bool(re.search(self.what, point.what)))

    def __str__(self) -> str:
        point = '' if self.point == REQUEST else self.point + '-'
        return f'{point}{self.kind}/{self.nth}'


class Faults(fixtures.Fixture):
    """Has faults happen while it is set up.

    :param recorder: that of the cloud
    :param faults: those to happen, each once
    """

    def __init__(self, recorder: Recorder, *faults: Fault) -> None:
        super().__init__()
        self._recorder = recorder
        self._pending = {fault: fault.nth for fault in faults}
        #: The points that were reached, without those of a dead nova-compute.
        self.points: list[Point] = []
        #: The nova-computes that have died.
        self.dead: list[manager.ComputeManager] = []
        #: The request that Cinder refuses, however often Nova repeats it,
        #: and the last one that failed.
        self._refused: tuple[str, str] | None = None
        self._failed: tuple[str, str] | None = None
        self._lock = threading.Lock()

    def _setUp(self) -> None:
        self._test = threading.get_ident()
        self._patch(cinderclient.SessionClient, 'request', self._request)
        for name in ('create', 'save', 'destroy'):
            self._patch(objects.BlockDeviceMapping, name, self._saver(name))
        self._patch(impl_fake.FakeExchange, 'deliver_message', self._guard)
        self._run_hooks = self._recorder.run_hooks
        self.useFixture(fixtures.MockPatchObject(
            self._recorder, 'run_hooks', self._step))
        event.listen(Engine, 'before_cursor_execute', self._execute)
        self.addCleanup(event.remove, Engine, 'before_cursor_execute',
                        self._execute)

    def _patch(self, owner: type, name: str,
               wrapper: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        def wrapped(this: Any, *args: Any, **kwargs: Any) -> Any:
            return wrapper(original, this, *args, **kwargs)

        self.useFixture(fixtures.MockPatchObject(owner, name, wrapped))

    @property
    def happened(self) -> bool:
        """Return whether all of the faults have happened."""
        return not self._pending

    # -- points ------------------------------------------------------------

    def _request(self, original: Callable[..., Any], client: Any, url: str,
                 method: str, *args: Any, **kwargs: Any) -> Any:
        # The sessions of the tests' own handles have an authentication.
        if self._is_of_test(client):
            return original(client, url, method, *args, **kwargs)
        acting = self._guarded()
        key = method, url
        if key == self._refused:
            raise exceptions.ClientException(500, 'injected')
        # Nova's client repeats a request that fails: it is the same point.
        fault = None if key == self._failed else self._reach(
            Point(REQUEST, self._named(method, url, kwargs), _host(acting)))
        self._refused = self._failed = None
        if fault == REFUSED:
            self._refused = key
            raise exceptions.ClientException(500, 'injected')
        if fault == DEAD_BEFORE:
            self._die(acting)
        try:
            answer = original(client, url, method, *args, **kwargs)
        except exceptions.ClientException:
            self._failed = key
            raise
        finally:
            if fault == DEAD_AFTER:
                self._die(acting)
        if fault == LOST:
            self._failed = key
            raise exceptions.ClientException(504, 'injected')
        return answer

    @staticmethod
    def _is_of_test(client: Any) -> bool:
        return client.session.auth is not None and client.auth is None

    @staticmethod
    def _named(method: str, url: str, kwargs: dict[str, Any]) -> str:
        """Return a request without its ids, with the action of a volume."""
        action = ''
        if url.endswith('/action'):
            action = ' ' + ','.join(kwargs.get('body') or ())
        return f'{method} {_UUID.sub("ID", url)}{action}'

    def _saver(self, name: str) -> Callable[..., Any]:
        def save(original: Callable[..., Any], row: Any, *args: Any,
                 **kwargs: Any) -> Any:
            acting = self._guarded()
            # The others do not die.
            if acting and self._reach(
                    Point(SAVE, name, _host(acting))) == DEAD_BEFORE:
                self._die(acting)
            return original(row, *args, **kwargs)
        return save

    def _step(self, party: str, what: str, subject: str) -> None:
        if party in (HOST, GUEST):
            acting = self._guarded()
            if acting and self._reach(
                    Point(CALL, what, _host(acting))) == DEAD_BEFORE:
                self._die(acting)
        self._run_hooks(party, what, subject)

    def _reach(self, point: Point) -> str | None:
        """Note a point; return the kind of the fault that happens there."""
        with self._lock:
            self.points.append(point)
            for fault in self._pending:
                if fault.fits(point):
                    self._pending[fault] -= 1
            due = [fault for fault, left in self._pending.items() if not left]
            for fault in due:
                del self._pending[fault]
        return due[0].kind if due else None

    # -- the dead ----------------------------------------------------------

    def _die(self, acting: manager.ComputeManager | None) -> None:
        """Kill the nova-compute that acts; nova-api does not die."""
        if acting:
            self.dead.append(acting)
            raise Crash()

    def _guarded(self) -> manager.ComputeManager | None:
        """Return the nova-compute that acts, if one does; it must live."""
        # The test itself ends the operation that has died.
        if threading.get_ident() == self._test:
            return None
        acting = _acting()
        if acting in self.dead:
            raise Crash()
        return acting

    def _guard(self, original: Callable[..., Any], *args: Any,
               **kwargs: Any) -> Any:
        if self.dead:
            self._guarded()
        return original(*args, **kwargs)

    def _execute(self, connection: Any, cursor: Any, statement: str,
                 *args: Any) -> None:
        if self.dead and not statement.startswith(('SELECT', 'PRAGMA')):
            self._guarded()


def _acting() -> manager.ComputeManager | None:
    """Return the nova-compute whose code this thread runs.

    All of them run in this process.
    """
    frame: types.FrameType | None = sys._getframe()
    found = None
    while frame:
        this = frame.f_locals.get('self')
        if isinstance(this, manager.ComputeManager):
            found = this
        frame = frame.f_back
    return found


def _host(acting: manager.ComputeManager | None) -> str | None:
    host: str | None = acting.host if acting else None
    return host
