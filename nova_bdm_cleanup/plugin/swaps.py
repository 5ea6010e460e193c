# SPDX-License-Identifier: Apache-2.0
"""Swaps of volumes that Nova has begun, as its own records tell them."""

from __future__ import annotations

from typing import Any, Tuple

from nova import objects
from nova.compute import instance_actions

from nova_bdm_cleanup.model import Swap


def unfinished(context: Any, server: str) -> Tuple[Swap, ...]:
    """The swaps of volumes of a server that did not end well, or not yet."""
    found = (
        Swap.of(action.start_time, (
            (event.result, event.finish_time) for event in
            objects.InstanceActionEventList.get_by_action(
                context, action.id)))
        for action in objects.InstanceActionList.get_by_instance_uuid(
            context, server)
        if action.action == instance_actions.SWAP_VOLUME)
    return tuple(swap for swap in found if swap is not None)
