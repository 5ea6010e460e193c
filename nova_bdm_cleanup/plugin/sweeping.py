# SPDX-License-Identifier: Apache-2.0
"""Which servers are being swept, for those that want one of them.

Nova starts a server without its lock of it.  So a start waits for the sweep of
that server by itself.  It need not wait for long: a sweep that finds Nova's
task state of a start ends before its next step.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import functools
import threading
from typing import Any, Callable

from nova_bdm_cleanup.cleanup.clock_triggers import SWEEP

_sweeps: dict[str, threading.Event] = {}


@contextlib.contextmanager
def going_on(server: str) -> Iterator[None]:
    """A server is swept meanwhile.  What is going on with it is looked at
    only then, so that whoever comes later waits, or is seen.
    """
    over = _sweeps[server] = threading.Event()
    try:
        yield
    finally:
        del _sweeps[server]
        over.set()


def waiting(original: Callable[..., Any]) -> Callable[..., Any]:
    """What starts a server then waits for the end of its sweep."""

    @functools.wraps(original)
    def _power_on(self: Any, context: Any, instance: Any) -> Any:
        over = _sweeps.get(instance.uuid)
        if over is not None:
            over.wait(SWEEP.longest)
        return original(self, context, instance)

    return _power_on
