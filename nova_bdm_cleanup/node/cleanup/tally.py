# SPDX-License-Identifier: Apache-2.0
"""What happened since nova-compute started, counted for those who watch."""

from __future__ import annotations

from collections import Counter
import threading

#: A reason code and the name of a trigger.
Key = tuple[str, str]


class Tally:
    """Counters that only ever grow.  Threads may share one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._removals: Counter[Key] = Counter()
        self._refusals: Counter[Key] = Counter()
        self._looks: dict[str, tuple[int, float]] = {}

    def removed(self, reason: str, trigger: str) -> None:
        """A mapping or an attachment is gone."""
        with self._lock:
            self._removals[str(reason), trigger] += 1

    def refused(self, reason: str, trigger: str, number: int = 1) -> None:
        """Something was withheld, was skipped, or failed."""
        with self._lock:
            self._refusals[str(reason), trigger] += number

    def looked(self, trigger: str, seconds: float) -> None:
        """Cinder was asked about a server, or about all of a host."""
        with self._lock:
            number, spent = self._looks.get(trigger, (0, 0.0))
            self._looks[trigger] = number + 1, spent + seconds

    # Copies, which do not change while they are read.

    @property
    def removals(self) -> dict[Key, int]:
        with self._lock:
            return dict(self._removals)

    @property
    def refusals(self) -> dict[Key, int]:
        with self._lock:
            return dict(self._refusals)

    @property
    def looks(self) -> dict[str, tuple[int, float]]:
        """By trigger, how many there were and how long they took."""
        with self._lock:
            return dict(self._looks)


#: Of this process.
SINCE_START = Tally()
