# SPDX-License-Identifier: Apache-2.0
"""One cleanup of one instance, with all that it needs from nova-compute."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
import contextlib
from typing import Any, Callable, TypeVar

from nova import objects
import nova.conf
from oslo_log import log as logging

from nova_bdm_cleanup.node import boot, credentials, options
from nova_bdm_cleanup.node.cleanup import actions, cleaner, log_lines
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.instance import NovaInstance
from nova_bdm_cleanup.node.store.journal import Journal
from nova_bdm_cleanup.openstack.deadline import Deadline
from nova_bdm_cleanup.rules.facts import Bdm, Finding
from nova_bdm_cleanup.rules.reasons import Reason

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

T = TypeVar('T')

#: What follows where Cinder does not answer the first look.
_ROWS_ALONE = "and Nova's records alone decide which disks the driver gets"

#: The name of a trigger's own time limit, for exceptions.
_OF_TRIGGER = 'timeout that a %s may take'


@contextlib.contextmanager
def log_failure(trigger: Trigger, instance: Any) -> Iterator[None]:
    """Log an error of a cleanup, and have Nova go on."""
    try:
        yield
    except Exception:
        LOG.exception('bdm-cleanup failed; %s', trigger.goes_on,
                      instance=instance)


def clean_list(manager: Any, context: Any, instance: Any, bdms: Any,
               trigger: Trigger) -> None:
    """Clean up, and drop from a list what the driver must not connect.

    Never fails.  The parameters are those of :func:`clean`.
    """
    with log_failure(trigger, instance):
        take_out(bdms, clean(manager, context, instance, bdms, trigger))


def clean(manager: Any, context: Any, instance: Any, bdms: Any,
          trigger: Trigger) -> frozenset[str]:
    """Clean up.

    :param manager: the ComputeManager
    :param context: an elevated context
    :param instance: the Nova instance
    :param bdms: its BlockDeviceMappingList
    :param trigger: the operation of Nova that this is for
    :returns: the uuids of the mappings that the driver must not connect
    """
    booting = boot.current()
    cleanup = InstanceCleanup(manager, context, instance, trigger)
    if booting is not None and not booting.allows():
        left_out = cleanup.rows_alone(bdms, Reason.TIMED_OUT)
        cleanup.cleaner.report_not_connected(left_out.values())
        return frozenset(left_out)
    not_connected = cleanup.run(bdms)
    if booting is not None and cleanup.cleaner.unanswered is not None:
        booting.asked_in_vain(
            cleanup.cleaner.unanswered,
            lambda seconds: credentials.cinder_for(
                context, instance, Deadline(seconds, option=boot.SHARE)))
    return not_connected


def read_bdms(context: Any, instance: Any) -> Any:
    """Read the BlockDeviceMappingList of an instance."""
    return objects.BlockDeviceMappingList.get_by_instance_uuid(
        context, instance.uuid)


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

    The parameters are those of :func:`clean`.  All instances that are brought
    back at the start of nova-compute share one time limit.
    """

    def __init__(self, manager: Any, context: Any, instance: Any,
                 trigger: Trigger) -> None:
        settings = options.settings(CONF)
        limits = [(settings.policy.timeout, 'timeout')]
        if trigger.max_seconds is not None:
            limits.append((trigger.max_seconds, _OF_TRIGGER % trigger.name))
        self._boot = boot.current()
        if self._boot is not None:
            limits.append((self._boot.share, boot.SHARE))
        seconds, option = min(limits)
        deadline = Deadline(seconds, option=option)
        self._trigger = trigger
        #: Whether nothing is changed, as in the mode "observe".
        self.observes = settings.policy.observe
        self.host = NovaInstance(manager, context, instance, deadline, trigger)
        self.cinder = credentials.cinder_for(
            context, instance, deadline, trigger.finds_stale)
        self._counters = options.counters(CONF)
        self.lines = log_lines.LogLines(
            instance, context.request_id, trigger, self._counters)
        self.cleaner = cleaner.Cleaner(
            self.host, self.cinder, Journal(settings.store), self.lines,
            settings.policy, trigger, deadline, self.host.known_server())

    def run(self, bdms: Any) -> frozenset[str]:
        """Clean up; remove nothing if every removal is withheld.

        :returns: the uuids of the mappings that the driver must not connect
        """
        return self._ask(
            self.cleaner.withhold_all if self._trigger.withheld_for
            else self.cleaner.clean, bdms)

    def rows_alone(self, bdms: Any, reason: Reason) -> Mapping[str, Finding]:
        """Return the disks that the driver must not be given.

        Nova's rows alone decide.

        :param reason: why Cinder is not asked
        """
        return self.cleaner.rows_alone(self.host.adopt(bdms), reason)

    def preview(self, bdms: Any) -> cleaner.Assessment:
        """Return what a cleanup will find, or log why that is not known."""
        if self._boot is not None and not self._boot.allows():
            return cleaner.Assessment(
                left_out=self.rows_alone(bdms, Reason.TIMED_OUT))
        return self._ask(self._preview, bdms)

    def _preview(self, bdms: Sequence[Bdm]) -> cleaner.Assessment:
        try:
            found = self.cleaner.preview(bdms)
        except Exception as exc:
            reason = actions.reason_of(exc, self._trigger)
            self.lines.skipped(
                reason, exc,
                _ROWS_ALONE if self._trigger.uses_rows_addresses else '')
            return cleaner.Assessment(
                left_out=self.cleaner.rows_alone(bdms, reason))
        if found.cut_after is not None:
            self.lines.unread(found.cut_after)
        return found

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
            return act(self.host.adopt(bdms))
