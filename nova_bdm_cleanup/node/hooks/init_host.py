# SPDX-License-Identifier: Apache-2.0
"""The hook on the start of nova-compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import contextlib
from typing import Any

import nova.conf
from oslo_log import log as logging

from nova_bdm_cleanup.node import options, periodic, process_record
from nova_bdm_cleanup.node.boot import Boot
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.hooks import operation
from nova_bdm_cleanup.node.hooks.wrapping import Call, log_failure
from nova_bdm_cleanup.rules.facts import Policy

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def begin(call: Call) -> Iterator[None]:
    """Have all instances that Nova brings back share one time limit."""
    boot = Boot(_begin(call.manager, call.triggers))
    try:
        with operation.booting(boot):
            yield
    finally:
        # Otherwise an error would keep nova-compute from starting.
        with log_failure(None):
            boot.sum_up(options.counters(CONF))


def _begin(manager: Any, triggers: Sequence[Trigger]) -> float:
    """Record this nova-compute, and begin the periodic task if wanted.

    :param triggers: the triggers whose hooks are installed
    :returns: how many seconds the cleanups of this start have
    """
    seconds = Policy.timeout
    try:
        # A nova-compute that reloads its configuration comes here again, and
        # the options may be wrong now.
        settings = options.settings(CONF)
        seconds = settings.policy.timeout
        process = process_record.record(CONF, triggers)
        if settings.watches:
            periodic.begin(manager, process)
    except Exception:
        LOG.exception('bdm-cleanup runs no periodic task')
    return seconds
