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
"""Nova's lock of a server, where Nova does not hold it itself."""

from __future__ import annotations

import contextlib
import sys
import types
from typing import Iterator, Optional

from oslo_concurrency import lockutils

from nova_bdm_cleanup.deadline import Deadline


@contextlib.contextmanager
def hold(name: str, deadline: Deadline) -> Iterator[None]:
    """Hold the lock that ``nova.utils.synchronized(name)`` takes.

    Whoever holds it already is not made to wait for itself: the lock does not
    know whose it is.

    :raises TimedOut: when somebody else holds it for longer than there is
        time
    """
    if is_ours(name):
        yield
        return
    what = "waiting for Nova's lock of the server"
    deadline.check(what)
    lock = lockutils.internal_lock(name)
    if not lock.acquire(timeout=deadline.remaining):
        raise deadline.exceeded(what)
    try:
        yield
    finally:
        lock.release()


def is_ours(name: str) -> bool:
    """Whether a function below this one is synchronized by that name.

    Neither the lock nor oslo.concurrency keeps who has it.  The stack, which
    is a thread's or a greenlet's own, shows it.
    """
    frame: Optional[types.FrameType] = sys._getframe()
    while frame is not None:
        if (frame.f_globals is vars(lockutils)
                and frame.f_locals.get('name') == name):
            return True
        frame = frame.f_back
    return False
