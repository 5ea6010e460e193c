# SPDX-License-Identifier: Apache-2.0
"""Messages within one process that arrive as soon as they are sent.

oslo.messaging's driver for tests polls for them every 50 ms, and a server
needs half a dozen of them, one after the other.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from oslo_messaging._drivers import impl_fake
from oslo_messaging.rpc import dispatcher

from nova_bdm_cleanup.tests.cloud.recorder import Crash

#: Methods of the messages that are being processed.
_in_progress: list[str] = []


class _Clock:
    """Clock of the driver's listeners: they sleep until a message is sent."""

    time = staticmethod(time.time)

    def __init__(self) -> None:
        self._sent = threading.Condition()

    def sleep(self, seconds: float) -> None:
        with self._sent:
            self._sent.wait(seconds)

    def wake(self) -> None:
        with self._sent:
            self._sent.notify_all()


def deliver_at_once() -> None:
    """Wake the listeners of this process when a message is sent."""
    clock = _Clock()
    deliver = impl_fake.FakeExchange.deliver_message

    def deliver_and_wake(*args: Any, **kwargs: Any) -> None:
        deliver(*args, **kwargs)
        clock.wake()

    dispatch = dispatcher.RPCDispatcher.dispatch

    def dispatch_and_note(self: Any, incoming: Any) -> Any:
        method = incoming.message['method']
        _in_progress.append(method)
        try:
            return dispatch(self, incoming)
        except Crash as crash:
            # The caller would wait for the answer until its timeout.
            raise AssertionError(f'nova-compute died in {method}') from crash
        finally:
            _in_progress.remove(method)

    dispatcher.RPCDispatcher.dispatch = dispatch_and_note
    impl_fake.FakeExchange.deliver_message = deliver_and_wake
    impl_fake.time = clock


def methods_in_progress() -> list[str]:
    """Return the methods of the messages that are being processed."""
    return list(_in_progress)
