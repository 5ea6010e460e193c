# SPDX-License-Identifier: Apache-2.0
"""One cleanup of one instance, with all that it needs from nova-compute."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
import contextlib
import dataclasses
from typing import Any, Callable, TypeVar

import nova.conf

from nova_bdm_cleanup.node import credentials, options
from nova_bdm_cleanup.node.boot import Boot, SHARE
from nova_bdm_cleanup.node.cleanup import cleaner, log_lines, triggers
from nova_bdm_cleanup.node.cleanup.cleaner import CleanupOutcome
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.instance import NovaInstance
from nova_bdm_cleanup.node.store.journal import Journal
from nova_bdm_cleanup.openstack.deadline import Deadline
from nova_bdm_cleanup.rules.facts import Bdm, Policy
from nova_bdm_cleanup.rules.reasons import Reason

CONF = nova.conf.CONF

T = TypeVar('T')

#: The name of a trigger's own time limit, for exceptions.
_OF_TRIGGER = 'timeout in trigger %s'


def take_out(bdms: Any, uuids: Collection[str]) -> None:
    """Remove some BDMs from a list.

    :param bdms: a BlockDeviceMappingList
    """
    for bdm in [b for b in bdms if b.uuid in uuids]:
        bdms.objects.remove(bdm)


def removed_from(instance: Any) -> frozenset[str]:
    """Return the BDMs that were removed from an instance on this host.

    :raises StoreError: when the journal cannot be read
    """
    return frozenset(
        uuid for entry in Journal(options.settings(CONF).store).entries(
            instance.uuid) for uuid in entry.removed)


def observes() -> bool:
    """Return whether the plugin only observes."""
    try:
        return options.settings(CONF).policy.observe
    except Exception:
        # nova-compute has reloaded its configuration, and an option is wrong
        # now: a typo must never remove anything.
        return True


class InstanceCleanup:
    """A cleaner of one instance, with its time limit.

    :param manager: the ComputeManager
    :param context: an elevated context
    :param instance: the Nova instance
    :param trigger: the operation of Nova that this is for
    :param boot: the start of nova-compute that this belongs to, whose
        cleanups share one time limit
    :param policy: if it is not that of the options
    """

    def __init__(self, manager: Any, context: Any, instance: Any,
                 trigger: Trigger, boot: Boot | None = None,
                 policy: Policy | None = None) -> None:
        settings = options.settings(CONF)
        policy = policy or settings.policy
        limits = [(policy.timeout, 'timeout')]
        if trigger.max_seconds is not None:
            limits.append((trigger.max_seconds, _OF_TRIGGER % trigger.name))
        if boot is not None:
            limits.append((boot.share, SHARE))
        seconds, option = min(limits)
        # The wait for records to settle asks nothing.
        patience = min(limit for limit, name in limits
                       if name != _OF_TRIGGER % trigger.name)
        deadline = Deadline(seconds, option=option)
        self._context = context
        self._instance = instance
        self._trigger = trigger
        self._boot = boot
        #: Whether nothing is changed, as in the mode "observe".
        self.observes = policy.observe
        self.host = NovaInstance(manager, context, instance, deadline, trigger)
        self.cinder = credentials.cinder_for(context, deadline)
        self._counters = options.counters(CONF)
        self.lines = log_lines.LogLines(
            instance, context.request_id, trigger, self._counters)
        self.cleaner = cleaner.Cleaner(
            self.host, self.cinder, Journal(settings.store), self.lines,
            policy, trigger, deadline, patience,
            self.host.known_server(), adopt=self._adopt)

    def _adopt(self) -> bool:
        """Adopt the disks of a guest that is on, before it is powered off.

        :returns: whether anything was, or may have been, changed
        """
        trigger, first = triggers.BEFORE_REBOOT, self.cleaner
        host = self.host.in_trigger(trigger)
        adopting = dataclasses.replace(
            first, instance=host, trigger=trigger, patience=0.0,
            log=log_lines.LogLines(
                self._instance, self._context.request_id, trigger,
                self._counters))
        if not adopting.preview(host.bdms()).due:
            return False
        adopting.clean(host.bdms())
        return True

    def run(self, bdms: Any) -> CleanupOutcome:
        """Clean up; only report if the trigger removes nothing.

        :param bdms: the BlockDeviceMappingList of the instance
        """
        if not self._may_ask():
            return self.cleaner.without_cinder(
                self.host.register(bdms), Reason.TIMED_OUT)
        try:
            outcome = self._ask(self.cleaner.clean, bdms)
        finally:
            self.host.renew(bdms)
        if self._boot is not None and self.cleaner.unanswered is not None:
            self._boot.asked_in_vain(
                self.cleaner.unanswered,
                lambda seconds: credentials.cinder_for(
                    self._context, Deadline(seconds, option=SHARE)))
        return outcome

    def _may_ask(self) -> bool:
        """Return whether there is time for Cinder; if not, count it."""
        return self._boot is None or self._boot.allows()

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count the time of the body, and what of it Cinder took."""
        with self._boot.spend() if self._boot else contextlib.nullcontext():
            yield
        self._counters.add_cinder_seconds(self._trigger.name,
                                          self.cleaner.asking)

    def _ask(self, act: Callable[[Sequence[Bdm]], T], bdms: Any) -> T:
        """Have the cleaner act on BDMs, within the time limit."""
        with self.counted():
            return act(self.host.register(bdms))
