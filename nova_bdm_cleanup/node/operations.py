# SPDX-License-Identifier: Apache-2.0
"""The swaps that Nova has begun on a server, by its records.

A swap takes hours.  It connects a disk first, and records it last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nova import objects
from nova.compute import instance_actions

from nova_bdm_cleanup.rules.facts import Ending


def swaps(context: Any, server: str) -> Ending:
    """Return the worst ending of the swaps of a server's volumes."""
    return max(_endings(context, server), default=Ending.SUCCESS)


def _endings(context: Any, server: str) -> Iterator[Ending]:
    for action in objects.InstanceActionList.get_by_instance_uuid(
            context, server):
        if action.action == instance_actions.SWAP_VOLUME:
            events = objects.InstanceActionEventList.get_by_action(
                context, action.id)
            yield Ending.of(event.result for event in events)
