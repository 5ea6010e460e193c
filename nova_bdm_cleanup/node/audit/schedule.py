# SPDX-License-Identifier: Apache-2.0
"""When the rounds of the periodic audit come.

Their moments are spread over the interval by the names of the hosts, so that
not all of them ask Cinder in the same second, and stay the same when
nova-compute is restarted.
"""

from __future__ import annotations

import zlib

#: So many seconds too early a round is on time: while it is waited for, the
#: clock may be slowed down.
_EARLY = 1


def next_round(host: str, interval: int, now: float) -> float:
    """When the next round of a host comes.

    :param interval: seconds from one round to the next
    """
    offset = zlib.crc32(host.encode()) % interval
    begun = (now + _EARLY - offset) // interval
    return (begun + 1) * interval + offset


def is_far(seconds: float, interval: int) -> bool:
    """Whether no round can be so far away: the clock was set back."""
    return seconds > interval + _EARLY
