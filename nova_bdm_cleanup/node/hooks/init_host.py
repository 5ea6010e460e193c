# SPDX-License-Identifier: Apache-2.0
"""The hook on the start of nova-compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import contextlib
import functools
from typing import Any

import nova.conf
from oslo_log import log as logging

from nova_bdm_cleanup.node import boot, options, periodic, process_record
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.hooks.wrapping import Call
from nova_bdm_cleanup.rules.facts import Policy

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def begin(call: Call) -> Iterator[None]:
    """Have all instances that Nova brings back share one time limit."""
    with boot.going_on(_begin(call.manager, call.triggers),
                       functools.partial(options.counters, CONF)):
        yield


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
