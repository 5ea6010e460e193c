# SPDX-License-Identifier: Apache-2.0
"""The hook on the start of nova-compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import contextlib
from typing import Any

from nova import context as nova_context, objects
import nova.conf

from nova_bdm_cleanup.node import (
    adoption,
    interrupted,
    late_disconnects,
    options,
    periodic,
    process_record,
    repairs,
)
from nova_bdm_cleanup.node.boot import Boot
from nova_bdm_cleanup.node.cleanup import actions
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.hooks import operation
from nova_bdm_cleanup.node.hooks.wrapping import log_failure, NovaCall
from nova_bdm_cleanup.node.neighbours import Neighbours
from nova_bdm_cleanup.node.store.disconnects import (
    Suppressed,
    SuppressedDisconnects,
)
from nova_bdm_cleanup.rules.facts import Address, Bdm, Policy

CONF = nova.conf.CONF


@contextlib.contextmanager
def begin(call: NovaCall) -> Iterator[None]:
    """Have all instances that Nova resumes share one time limit.

    After it, disconnect what had to stay connected before, report what an
    earlier nova-compute has not ended, and begin to adopt the disks of guests
    whose live migration Nova has given up.
    """
    boot = Boot(_begin(call.manager, call.triggers))
    try:
        with operation.booting(boot):
            yield
        with log_failure(None):
            _disconnect_late(call, boot)
        with log_failure(None):
            interrupted.report(nova_context.get_admin_context(),
                               call.manager.host, options.counters(CONF))
        with log_failure(None):
            adoption.follow(call.manager, boot.given_up)
        with log_failure(None):
            repairs.begin(call.manager)
    finally:
        # Otherwise an error would keep nova-compute from starting.
        with log_failure(None):
            boot.sum_up(options.counters(CONF))


def _disconnect_late(call: NovaCall, boot: Boot) -> None:
    """Disconnect what was kept connected before, if it is still there.

    The guests that Nova has resumed have their disks.  nova-compute does not
    serve requests yet, so this ends when the time of this start is over.
    """
    manager, context = call.manager, nova_context.get_admin_context()
    settings = options.settings(CONF)
    if settings.policy.observe:
        return
    neighbours = Neighbours(context, '', manager.host, manager.driver)

    def is_claimed(addresses: frozenset[Address]) -> bool:
        # Also what Cinder would deny: no guest waits for a late disconnect.
        claims = neighbours.claims([Bdm(uuid='', addresses=addresses)])
        actions.check_read(claims)
        return bool(claims.others[''])

    def disconnect(note: Suppressed,
                   connection_info: Mapping[str, Any]) -> None:
        with boot.spend():
            manager.driver._disconnect_volume(
                context, connection_info, objects.Instance(uuid=note.server),
                encryption={}, destroy_secrets=False, force=True)

    late_disconnects.carry_out(
        SuppressedDisconnects(settings.store, manager.host), is_claimed,
        disconnect, lambda: bool(boot.left))


def _begin(manager: Any, triggers: Sequence[Trigger]) -> float:
    """Record this nova-compute, and begin the periodic task if wanted.

    :param triggers: the triggers whose hooks are installed
    :returns: how many seconds the cleanups of this start have
    """
    seconds = Policy.timeout
    with log_failure(None, 'bdm-cleanup runs no periodic task'):
        # A nova-compute that reloads its configuration comes here again, and
        # the options may be wrong now.
        settings = options.settings(CONF)
        seconds = settings.policy.timeout
        process = process_record.record(CONF, triggers)
        if settings.watches:
            periodic.begin(manager, process)
    return seconds
