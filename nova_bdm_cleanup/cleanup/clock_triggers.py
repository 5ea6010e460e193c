# SPDX-License-Identifier: Apache-2.0
"""The triggers of what nova-compute does by the clock."""

from __future__ import annotations

from nova_bdm_cleanup.cleanup.triggers import Trigger
from nova_bdm_cleanup.rules.facts import Reason

#: A server that is off, in the background.  Whoever starts it meanwhile must
#: not wait, so that little time is spent on it and each disk asks anew.
SWEEP = Trigger(
    name='sweep',
    states=frozenset((None,)),
    lost=Reason.SWEEP_LOST,
    goes_on='the server stays off',
    next_try='the next round tries again',
    longest=10.0,
    gives_way=True)

#: Nothing is ever changed in one.
AUDIT = Trigger(
    name='audit',
    states=frozenset((None,)),
    lost=Reason.SWEEP_LOST,
    goes_on='nothing was to be changed',
    next_try='the next round looks again')
