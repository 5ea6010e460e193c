# SPDX-License-Identifier: Apache-2.0
"""What Nova has begun with the volumes of a server, as its own records tell.

A swap takes hours and an attach waits for whatever else goes on with the
server.  Both connect a disk, and write down last of all where it is.
"""

from __future__ import annotations

from typing import Any

from nova import objects
from nova.compute import instance_actions

from nova_bdm_cleanup.rules.facts import Swap


def swaps(context: Any, server: str) -> tuple[Swap, ...]:
    """The swaps of volumes of a server that did not end well, or not yet."""
    return _unfinished(context, instance_actions.SWAP_VOLUME,
                       _actions(context, server))


def may_hide(context: Any, kind: str, server: str) -> bool:
    """Whether the guest of a server may have a new disk that no row names.

    Of what died nobody ever writes the end; but the guest has lost the disk
    when the server was stopped since then.

    :param kind: the action of Nova that brought it, a swap or an attach
    """
    actions = _actions(context, server)
    stops = [action.start_time for action in actions
             if action.action == instance_actions.STOP]
    return any(each.ended is None and all(each.began > stop for stop in stops)
               for each in _unfinished(context, kind, actions))


def _actions(context: Any, server: str) -> list[Any]:
    return list(objects.InstanceActionList.get_by_instance_uuid(
        context, server))


def _unfinished(context: Any, kind: str,
                actions: list[Any]) -> tuple[Swap, ...]:
    """An attach is recorded in the same way as a swap."""
    found = (
        Swap.unless_it_ended_well(action.start_time, (
            (event.result, event.finish_time) for event in
            objects.InstanceActionEventList.get_by_action(
                context, action.id)))
        for action in actions if action.action == kind)
    return tuple(swap for swap in found if swap is not None)
