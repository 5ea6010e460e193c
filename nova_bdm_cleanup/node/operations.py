# SPDX-License-Identifier: Apache-2.0
"""The operations that Nova has begun on a server, by its records.

A swap takes hours, and an attach waits for other operations on the server.
Both connect a disk first, and record its address last.  A move between hosts
writes the addresses of all disks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import datetime
from typing import Any

from nova import objects
from nova.compute import instance_actions

from nova_bdm_cleanup.rules.facts import Ending, Move


def swaps(context: Any, server: str) -> Ending:
    """Return the worst ending of the swaps of a server's volumes."""
    return max((ending for _, ending in _endings(
        context, instance_actions.SWAP_VOLUME, _actions(context, server))),
        default=Ending.SUCCESS)


def may_hide(context: Any, kind: str, server: str) -> bool:
    """Return whether a guest may have a new disk that no row names.

    Nova never records the end of an operation that died; but the guest has
    lost the disk if the server was stopped since then.

    :param kind: the action of Nova that connected it, a swap or an attach
    """
    actions = _actions(context, server)
    stops = [action.start_time for action in actions
             if action.action == instance_actions.STOP]
    return any(ending is Ending.NONE and all(began > stop for stop in stops)
               for began, ending in _endings(context, kind, actions))


def moves(context: Any, server: str) -> Sequence[Move]:
    """Return the moves of a server between hosts, the last one first."""
    found = [migration for migration in objects.MigrationList.get_by_filters(
                 context, {'instance_uuid': server})
             if migration.source_compute and migration.dest_compute
             and migration.created_at
             and migration.source_compute != migration.dest_compute]
    found.sort(key=lambda migration: (migration.created_at, migration.id),
               reverse=True)
    return [Move.recorded(
        migration.source_compute, migration.dest_compute, migration.status,
        migration.created_at, migration.updated_at) for migration in found]


def _actions(context: Any, server: str) -> list[Any]:
    return list(objects.InstanceActionList.get_by_instance_uuid(
        context, server))


def _endings(context: Any, kind: str, actions: list[Any]
             ) -> Iterator[tuple[datetime.datetime, Ending]]:
    """Yield when each action of one kind began, and how it ended."""
    for action in actions:
        if action.action == kind:
            events = objects.InstanceActionEventList.get_by_action(
                context, action.id)
            yield action.start_time, Ending.of(e.result for e in events)
