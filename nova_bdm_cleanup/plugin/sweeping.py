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
"""Which servers are being swept, for those that want one of them.

Nova starts a server without its lock of it.  So a start waits for the sweep of
that server by itself.  It need not wait for long: a sweep that finds Nova's
task state of a start ends before its next step.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Dict, Iterator

from nova_bdm_cleanup.cleanup import triggers

_going_on: Dict[str, threading.Event] = {}


@contextlib.contextmanager
def of(server: str) -> Iterator[None]:
    """A server is swept meanwhile.  What is going on with it is looked at
    only then, so that whoever comes later waits, or is seen.
    """
    over = _going_on[server] = threading.Event()
    try:
        yield
    finally:
        del _going_on[server]
        over.set()


def wait_for(server: str) -> None:
    """Wait for the end of the sweep of a server, if there is one."""
    over = _going_on.get(server)
    if over is not None:
        over.wait(triggers.SWEEP.longest)
