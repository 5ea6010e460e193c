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
"""When the rounds of the periodic audit come."""

from __future__ import annotations

import hashlib

#: A round comes no later than after so many intervals, however many failed.
LONGEST_PAUSE = 16

#: Hosts begin at moments of this grid, which floating point takes exactly:
#: else the next moment after one could be the same one again.
_GRID = 1024

#: So many seconds too early a round is on time: while it is waited for, the
#: clock may be slowed down.
_EARLY = 1.0


class Schedule:
    """The moments at which a host begins its rounds.

    They are spread over the interval by the names of the hosts, so that not
    all of them ask Cinder in the same second, and stay the same when
    nova-compute is restarted.

    :param host: the name of the nova-compute
    :param interval: seconds from one round to the next
    """

    def __init__(self, host: str, interval: int) -> None:
        self._interval = interval
        digest = hashlib.sha256(host.encode()).digest()
        steps = int.from_bytes(digest, 'big') * interval * _GRID >> 256
        self._offset = steps / _GRID

    def next(self, now: float, failed: int = 0) -> float:
        """When the next round comes.

        :param now: seconds since the epoch
        :param failed: how many rounds in a row have failed
        """
        pause = min(1 << min(failed, LONGEST_PAUSE), LONGEST_PAUSE)
        begun = (now + _EARLY - self._offset) // self._interval
        return (begun + pause) * self._interval + self._offset

    def is_far(self, seconds: float) -> bool:
        """Whether no round can be so far away: the clock was set back."""
        return seconds > LONGEST_PAUSE * self._interval + _EARLY
