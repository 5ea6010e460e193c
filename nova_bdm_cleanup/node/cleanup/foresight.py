# SPDX-License-Identifier: Apache-2.0
"""What a cleanup is going to find, for what has to know it beforehand."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses

from nova_bdm_cleanup.node.cleanup import log_lines
from nova_bdm_cleanup.node.cleanup.cleaner import Cleaner
from nova_bdm_cleanup.node.store.journal import REMOVALS
from nova_bdm_cleanup.rules.facts import Bdm, Plan, Reason


def foresee(cleaner: Cleaner, bdms: Sequence[Bdm]) -> Plan:
    """What is going to be found when the guest is off.

    Nothing of it is logged, and nothing is changed.
    """
    # The guest is on, and is going to be off.
    cleaner.trigger = dataclasses.replace(cleaner.trigger, guest_is_on=True)
    plan = cleaner.look(bdms)
    try:
        spent = cleaner.journal.spent(REMOVALS) if plan.removals else 0
    except Exception as exc:
        return plan.withhold(Reason.JOURNAL_UNWRITABLE, log_lines.masked(exc))
    if spent + plan.removals > cleaner.policy.max_removals_per_hour:
        return plan.withhold(Reason.OVER_LIMIT)
    return plan
