# SPDX-License-Identifier: Apache-2.0
"""One timeline of the steps of all parties, with a hook before each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import threading
import time
from typing import Any

#: The parties whose steps are recorded.
GUEST = 'guest'        # libvirt: define, power on, power off, undefine
HOST = 'host'          # os-brick: connect, disconnect
NOVA = 'nova'          # database: remove bdm
CINDER = 'cinder'      # API requests as the proxy saw them
BACK_END = 'back end'  # calls of Cinder's volume driver
#: Nova before it sends a request to Cinder.  Not recorded, because the proxy
#: records it better; but unlike the proxy's rules, a hook here runs in
#: nova-compute.
REQUEST = 'request'


@dataclasses.dataclass(frozen=True, order=True)
class Event:
    """A step of a party on a volume or a server."""

    time: float
    party: str
    what: str
    #: The volume; for steps of the guest, the server.
    subject: str

    def __str__(self) -> str:
        return f'{self.party}: {self.what} {self.subject}'


@dataclasses.dataclass(eq=False)
class _Hook:
    party: str
    what: str
    subject: str
    callback: Callable[[], Any]

    def applies(self, party: str, what: str, subject: str) -> bool:
        return ((party, what) == (self.party, self.what)
                and self.subject in subject)


class Recorder:
    """A thread-safe collection of events."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._hooks: list[_Hook] = []
        self._lock = threading.Lock()

    def before(self, party: str, what: str, callback: Callable[[], Any],
               subject: str = '') -> None:
        """Run a callback once just before a step, in its thread.

        An exception of the callback propagates to the caller of the step: an
        :class:`Exception` is a failure of that step, a :class:`Crash` is the
        end of nova-compute.

        :param party: one of this module's parties
        :param what: the step, as it is recorded
        :param callback: the callback
        :param subject: only for this volume or server
        """
        with self._lock:
            self._hooks.append(_Hook(party, what, subject, callback))

    def run_hooks(self, party: str, what: str, subject: str) -> None:
        """Run the hooks of a step without recording it."""
        with self._lock:
            due = [hook for hook in self._hooks
                   if hook.applies(party, what, subject)]
            self._hooks = [hook for hook in self._hooks if hook not in due]
        for hook in due:
            hook.callback()

    @contextlib.contextmanager
    def step(self, party: str, what: str, subject: str) -> Iterator[None]:
        """Record a step if it succeeds."""
        self.run_hooks(party, what, subject)
        yield
        with self._lock:
            self.events.append(Event(time.time(), party, what, subject))

    def remove_hooks(self) -> None:
        """Forget the hooks that were not reached."""
        with self._lock:
            self._hooks.clear()

    def clear(self) -> None:
        """Forget the events, and the hooks that were not reached."""
        self.remove_hooks()
        with self._lock:
            self.events.clear()


class Crash(BaseException):
    """The death of nova-compute.

    Not an :class:`Exception`, so it is not handled and nothing is cleaned up:
    a restart finds the records as they were when it was raised.
    """


def fail(error: Exception) -> Callable[[], None]:
    """Make a callback for :meth:`Recorder.before` that raises."""
    def callback() -> None:
        raise error
    return callback


def crash() -> None:
    """Kill nova-compute; this is a callback for :meth:`Recorder.before`."""
    raise Crash()
