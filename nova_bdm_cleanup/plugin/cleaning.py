# SPDX-License-Identifier: Apache-2.0
"""One cleanup of one server: everything that it needs put together."""

from __future__ import annotations

from collections.abc import Collection
import contextlib
from typing import Any

import nova.conf

from nova_bdm_cleanup.cleanup import cleaner, loglines, triggers
from nova_bdm_cleanup.cleanup.tally import SINCE_START
from nova_bdm_cleanup.cleanup.triggers import Trigger
from nova_bdm_cleanup.openstack.api import Budget
from nova_bdm_cleanup.openstack.deadline import Deadline
from nova_bdm_cleanup.plugin import access, boot, options
from nova_bdm_cleanup.plugin.host import NovaHost
from nova_bdm_cleanup.store.journal import Journal

CONF = nova.conf.CONF


def clean(manager: Any, context: Any, instance: Any, bdms: Any,
          trigger: Trigger,
          seen: Collection[tuple[str, str]] | None = None
          ) -> frozenset[str]:
    """Clean up.

    :param manager: the ComputeManager
    :param context: an elevated context
    :param instance: the Nova instance
    :param bdms: its BlockDeviceMappingList
    :param trigger: what brings it about
    :param seen: nothing but these mappings, for these reasons, may go
    :returns: the uuids of the mappings that the driver must not connect
    """
    settings = options.settings(CONF)
    policy = settings.policy
    booting = boot.current()
    limits = [(policy.timeout, 'timeout')]
    if trigger.longest is not None:
        limits.append((trigger.longest, 'timeout'))
    if booting is not None:
        if not booting.allows():
            return frozenset()
        limits.append((booting.share, boot.SHARE))
    seconds, option = min(limits)
    deadline = Deadline(seconds, option=option)
    budget = Budget()
    host = NovaHost(manager, context, instance, deadline, trigger)
    cleaning = cleaner.Cleaner(
        host,
        access.cinder_for(context, instance, deadline, budget,
                          trigger.finds_stale),
        Journal(*settings.store),
        loglines.LogLines(instance, context.request_id, trigger, SINCE_START),
        policy, trigger, deadline, seen=seen)
    act = (cleaning.report if trigger is triggers.SOFT_REBOOT
           else cleaning.clean)
    with booting.spend() if booting else contextlib.nullcontext():
        withheld = act(host.known_server(), host.adopt(bdms))
    if booting is not None and cleaning.unanswered is not None:
        booting.asked_in_vain(
            cleaning.unanswered, lambda seconds: access.cinder_for(
                context, instance, Deadline(seconds, option=boot.SHARE),
                budget))
    SINCE_START.looked(trigger.name, cleaning.asking,
                       sum(budget.made.values()))
    return withheld
