# SPDX-License-Identifier: Apache-2.0
"""Nova's lock of a server, where Nova does not hold it itself."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib

from oslo_concurrency import lockutils

from nova_bdm_cleanup.openstack.deadline import Deadline


@contextlib.contextmanager
def hold(name: str, deadline: Deadline) -> Iterator[None]:
    """Hold the lock that ``nova.utils.synchronized(name)`` takes.

    :raises TimedOut: when somebody else holds it for longer than there is
        time
    """
    what = "waiting for Nova's lock of the server"
    deadline.check(what)
    lock = lockutils.internal_lock(name)
    if not lock.acquire(timeout=deadline.remaining):
        raise deadline.exceeded(what)
    try:
        yield
    finally:
        lock.release()
