# SPDX-License-Identifier: Apache-2.0
"""The operations that an earlier nova-compute of this host has not ended.

A task state outlives the nova-compute that has set it, for ever: when it
starts, Nova ends only some operations, and refuses every other one until an
administrator resets the state.  So those that are left are reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nova import objects
from oslo_log import log as logging

from nova_bdm_cleanup.node import operations
from nova_bdm_cleanup.node.cleanup import log_lines, triggers
from nova_bdm_cleanup.node.cleanup.log_lines import Counters
from nova_bdm_cleanup.rules import action_events

LOG = logging.getLogger(__name__)


def report(context: Any, host: str, counters: Counters) -> None:
    """Report the servers of this host whose operation does not go on.

    Called when Nova has ended what it ends, and serves no requests yet.
    Nothing is changed.

    :param context: an administrator's context
    """
    for instance in _interrupted(context, host):
        log_lines.LogLines(
            instance, None, triggers.AUDIT, counters).interrupted(
                instance.task_state)
        name = action_events.interrupted(instance.task_state)
        try:
            objects.InstanceActionEvent.event_start(
                context, instance.uuid, name, want_result=False, host=host)
            objects.InstanceActionEvent.event_finish(
                context, instance.uuid, name, want_result=False)
            continue
        except Exception as exc:
            failure = log_lines.masked(exc)
        # The log has it.
        LOG.debug('The event %s is not written: %s', name, failure)


def _interrupted(context: Any, host: str) -> Iterator[Any]:
    for instance in objects.InstanceList.get_by_host(
            context, host, expected_attrs=[]):
        # One that only waits in the queue is begun now.
        if instance.task_state and operations.has_died(
                context, instance.uuid, host):
            yield instance
