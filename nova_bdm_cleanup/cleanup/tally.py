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
"""What happened since nova-compute started, counted for those who watch."""

from __future__ import annotations

import collections
import threading
from typing import Counter, Dict, Tuple

#: A reason code and the name of a trigger.
Key = Tuple[str, str]


class Tally:
    """Counters that only ever grow.  Threads may share one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._removals: Counter[Key] = collections.Counter()
        self._refusals: Counter[Key] = collections.Counter()
        self._looks: Counter[str] = collections.Counter()
        self._seconds: Dict[str, float] = collections.defaultdict(float)
        self._requests: Counter[str] = collections.Counter()

    def removed(self, reason: str, trigger: str) -> None:
        """A mapping or an attachment is gone."""
        with self._lock:
            self._removals[str(reason), trigger] += 1

    def refused(self, reason: str, trigger: str, number: int = 1) -> None:
        """Something was withheld, was skipped, or failed.

        :param reason: why
        :param trigger: in what
        :param number: how many times
        """
        with self._lock:
            self._refusals[str(reason), trigger] += number

    def looked(self, trigger: str, seconds: float, requests: int) -> None:
        """Cinder was asked about a server, or about all of a host.

        :param trigger: for what
        :param seconds: how long it took
        :param requests: how many it took
        """
        with self._lock:
            self._looks[trigger] += 1
            self._seconds[trigger] += seconds
            self._requests[trigger] += requests

    # Copies, which do not change while they are read.

    @property
    def removals(self) -> Dict[Key, int]:
        with self._lock:
            return dict(self._removals)

    @property
    def refusals(self) -> Dict[Key, int]:
        with self._lock:
            return dict(self._refusals)

    @property
    def requests(self) -> Dict[str, int]:
        with self._lock:
            return dict(self._requests)

    @property
    def looks(self) -> Dict[str, Tuple[int, float]]:
        """By trigger, how many there were and how long they took."""
        with self._lock:
            return {trigger: (number, self._seconds[trigger])
                    for trigger, number in self._looks.items()}


#: Of this process.
SINCE_START = Tally()
