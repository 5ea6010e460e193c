# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""One cleanup of one server: everything that it needs put together."""

from __future__ import annotations

import contextlib
from typing import Any, Collection, FrozenSet, Optional, Tuple

import nova.conf

from nova_bdm_cleanup import options
from nova_bdm_cleanup.api import Budget
from nova_bdm_cleanup.cinder import AskedAhead
from nova_bdm_cleanup.cleanup import cleaner
from nova_bdm_cleanup.cleanup import loglines
from nova_bdm_cleanup.cleanup import triggers
from nova_bdm_cleanup.cleanup.tally import SINCE_START
from nova_bdm_cleanup.cleanup.triggers import Trigger
from nova_bdm_cleanup.deadline import Deadline
from nova_bdm_cleanup.plugin import access
from nova_bdm_cleanup.plugin import boot
from nova_bdm_cleanup.plugin.host import NovaHost
from nova_bdm_cleanup.store.journal import Journal

CONF = nova.conf.CONF


def clean(manager: Any, context: Any, instance: Any, bdms: Any,
          trigger: Trigger,
          seen: Optional[Collection[Tuple[str, str]]] = None
          ) -> FrozenSet[str]:
    """Clean up.

    :param manager: the ComputeManager
    :param context: an elevated context
    :param instance: the Nova instance
    :param bdms: its BlockDeviceMappingList
    :param trigger: what brings it about
    :param seen: nothing but these mappings, for these reasons, may go
    :returns: the uuids of the mappings that the driver must not connect
    """
    policy = options.policy(CONF)
    booting = boot.current()
    with contextlib.ExitStack() as stack:
        limits = [(policy.timeout, 'timeout')]
        if trigger.longest is not None:
            limits.append((trigger.longest, 'timeout'))
        ahead: Optional[AskedAhead] = None
        if booting is not None:
            if not booting.allows():
                return frozenset()
            stack.enter_context(booting.allowance.spend())
            limits.append((booting.allowance.left, 'host_boot_timeout'))
            if trigger is triggers.HOST_BOOT:
                ahead = booting.volumes(context)
        seconds, option = min(limits)
        deadline = Deadline(seconds, option=option)
        budget = Budget()
        host = NovaHost(manager, context, instance, deadline, trigger)
        cleaning = cleaner.Cleaner(
            host,
            access.cinder_for(context, instance, deadline, budget, ahead),
            Journal(*options.store(CONF)),
            loglines.LogLines(instance, context.request_id, trigger,
                              SINCE_START),
            policy, trigger, deadline, seen=seen)
        act = (cleaning.report if trigger is triggers.SOFT_REBOOT
               else cleaning.clean)
        withheld = act(host.known_server(), host.adopt(bdms))
        SINCE_START.looked(trigger.name, cleaning.asking,
                           sum(budget.made.values()))
        if booting is not None and cleaning.unanswered is not None:
            booting.stop(cleaning.unanswered)
        return withheld
