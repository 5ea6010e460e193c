# SPDX-License-Identifier: Apache-2.0
"""The attaches and swaps that Nova has begun on a server, by its records.

Both connect a disk first, and record it last; a swap takes hours.
"""

from __future__ import annotations

from collections.abc import Iterator
import datetime
from typing import Any

from nova import objects
from nova.compute import instance_actions

from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import ENDED_MIGRATIONS, Ending

#: When this nova-compute began: what it has not begun itself is over.
PROCESS_BEGAN = datetime.datetime.now(datetime.timezone.utc)

#: The most time between a mapping and the action of its attach, in either
#: order: between them the API reserves the volume.
_RECORDED_WITHIN = datetime.timedelta(minutes=1)


def swaps(context: Any, server: str, host: str) -> Ending:
    """Return the worst ending of the swaps of a server's volumes.

    One that an earlier nova-compute has begun has failed.

    :param host: this compute host
    """
    return max((
        Ending.of(_result(event, host) for event in _events(context, action))
        for action in _swaps(context, server)), default=Ending.SUCCESS)


def last_swap(context: Any, server: str) -> float:
    """Return when the last swap of a server was requested; 0 for never."""
    return max((action.start_time.timestamp()
                for action in _swaps(context, server)), default=0.0)


def _swaps(context: Any, server: str) -> Iterator[Any]:
    return (action for action in _actions(context, server)
            if action.action == instance_actions.SWAP_VOLUME)


def attaches(context: Any, server: str, host: str,
             created_at: datetime.datetime) -> frozenset[Ending]:
    """Return how the attaches ended that may have made a mapping; none: it
    was made with the server.

    An action names no volume.

    :param host: this compute host
    :param created_at: when the mapping was made
    """
    def distance(action: Any) -> datetime.timedelta:
        between: datetime.timedelta = action.start_time - created_at
        return abs(between)

    near = sorted((
        action for action in _actions(context, server)
        if action.action in (instance_actions.ATTACH_VOLUME,
                             instance_actions.CREATE)
        and distance(action) <= _RECORDED_WITHIN), key=distance)
    if near and near[0].action == instance_actions.CREATE:
        return frozenset()
    return frozenset(
        Ending.of(_result(event, host) for event in _events(context, action))
        for action in near if action.action == instance_actions.ATTACH_VOLUME)


def has_died(context: Any, server: str, host: str) -> bool:
    """Return whether the last operation of a server was begun by an earlier
    nova-compute of this host, and has not ended.
    """
    last = max(_actions(context, server),
               key=lambda action: action.start_time, default=None)
    return last is not None and any(
        event.result is None and event.finish_time is None
        and event.start_time < PROCESS_BEGAN
        and event.host and spelling.host(event.host) == spelling.host(host)
        for event in _events(context, last))


#: The states of a migration after which Nova does no more of it by itself.
_ENDED_MIGRATIONS = (*ENDED_MIGRATIONS, 'finished')


def open_migrations(context: Any, server: str, host: str) -> Iterator[Any]:
    """Yield the migrations of a server that may go on.

    One that an earlier nova-compute of this host, its source, was the last to
    write does not.

    :param host: this compute host
    """
    for migration in objects.MigrationList.get_by_filters(
            context, {'instance_uuid': server}):
        written = migration.updated_at or migration.created_at
        has_died = (spelling.host(migration.source_compute)
                    == spelling.host(host)
                    and written and written < PROCESS_BEGAN)
        if migration.status not in _ENDED_MIGRATIONS and not has_died:
            yield migration


def _result(event: Any, host: str) -> str | None:
    """Return the result of an event; None: it may still be under way."""
    is_over = event.start_time < PROCESS_BEGAN or (
        event.host and spelling.host(event.host) != spelling.host(host))
    result: str | None = event.result
    return 'Error' if result is None and is_over else result


def _actions(context: Any, server: str) -> Iterator[Any]:
    yield from objects.InstanceActionList.get_by_instance_uuid(
        context, server)


def _events(context: Any, action: Any) -> Iterator[Any]:
    yield from objects.InstanceActionEventList.get_by_action(
        context, action.id)
