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
"""How far a long command is, on a terminal and nowhere else."""

from __future__ import annotations

import sys
import time
from typing import Any, Callable

from nova_bdm_cleanup import terminal

#: A terminal needs no more than this many lines a second.
_INTERVAL = 0.1

#: What is over by then needs no line.
_PATIENCE = 1.0


class Progress:
    """One line on standard error that is written over and over.

    :param stream: where to
    :param clock: a monotonic clock
    """

    def __init__(self, stream: Any = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._shown = self._stream.isatty()
        self._next = clock() + _PATIENCE
        self._width = 0

    def __call__(self, what: str, count: int) -> None:
        """Show what is being done, and how far it is."""
        if not self._shown or self._clock() < self._next:
            return
        self._next = self._clock() + _INTERVAL
        line = '%s: %d' % (terminal.printable(what), count)
        self._stream.write('\r' + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)

    def clear(self) -> None:
        """Leave an empty line, for what comes next."""
        if self._width:
            self._stream.write('\r' + ' ' * self._width + '\r')
            self._stream.flush()
            self._width = 0
