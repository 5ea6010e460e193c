# SPDX-License-Identifier: Apache-2.0
"""Swaps of volumes that Nova has begun, as its own records tell them."""

from __future__ import annotations

from typing import Any, List, Tuple

from nova import objects
from nova.compute import instance_actions

from nova_bdm_cleanup.model import Swap


def unfinished(context: Any, server: str) -> Tuple[Swap, ...]:
    """The swaps of volumes of a server that did not end well, or not yet."""
    return _unfinished(context, _actions(context, server))


def may_hide_a_disk(context: Any, server: str) -> bool:
    """Whether the guest of a server may have a disk that no row names yet.

    A swap takes hours, and Nova writes down last of all where the new disk
    is.  Of one that died it never does; but the guest has lost it when the
    server was stopped since then.
    """
    actions = _actions(context, server)
    stops = [action.start_time for action in actions
             if action.action == instance_actions.STOP]
    return any(swap.ended is None and all(swap.began > stop for stop in stops)
               for swap in _unfinished(context, actions))


def _actions(context: Any, server: str) -> List[Any]:
    return list(objects.InstanceActionList.get_by_instance_uuid(
        context, server))


def _unfinished(context: Any, actions: List[Any]) -> Tuple[Swap, ...]:
    found = (
        Swap.of(action.start_time, (
            (event.result, event.finish_time) for event in
            objects.InstanceActionEventList.get_by_action(
                context, action.id)))
        for action in actions
        if action.action == instance_actions.SWAP_VOLUME)
    return tuple(swap for swap in found if swap is not None)
