# SPDX-License-Identifier: Apache-2.0
"""An instance that leaves this host, and the disks that the driver is given.

The driver disconnects a disk by the address in its BDM, and another guest of
this host may have got the volume or its address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import contextlib
import threading
from typing import Any

from nova import objects
from nova.compute import task_states

from nova_bdm_cleanup.node import boot, instance_cleanup
from nova_bdm_cleanup.node.cleanup import actions, log_lines, triggers
from nova_bdm_cleanup.node.cleanup.cleaner import Assessment
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.hooks import disks
from nova_bdm_cleanup.node.hooks.wrapping import Call
from nova_bdm_cleanup.node.instance_cleanup import InstanceCleanup
from nova_bdm_cleanup.rules.facts import Finding

#: The departure that this thread carries out, if any.
_this_thread = threading.local()

#: Seconds after which to ask again whether a neighbour uses a disk.
_PAUSE = 1.0


class Departure:
    """One operation that takes an instance from this host.

    :param trigger: what the operation is
    :param is_last: nothing disconnects later what the driver is not given
    :param is_copied: the driver must be given every disk: it copies the others
        as local ones
    """

    def __init__(self, manager: Any, context: Any, instance: Any,
                 trigger: Trigger, is_last: bool = False,
                 is_copied: bool = False) -> None:
        self._manager = manager
        # A reap has set that deleted records are read, too.
        self._context = context.elevated(read_deleted='no')
        self._instance = instance
        self._trigger = trigger
        self._is_last = is_last
        self._is_copied = is_copied
        self._dangling: Sequence[Finding] = ()
        # The first look has found every disk attached to this host.
        self._is_clear = False

    @classmethod
    def of(cls, call: Call, trigger: Trigger, is_last: bool = False,
           is_copied: bool = False) -> Departure:
        """Return the departure that a call of Nova carries out."""
        return cls(call.manager, call.context, call.instance, trigger,
                   is_last, is_copied)

    @contextlib.contextmanager
    def begun(self) -> Iterator[None]:
        """Have the hooks of this thread serve the departure."""
        former = current()
        _this_thread.departure = self
        try:
            yield
        finally:
            _this_thread.departure = former

    def refusal(self) -> str:
        """Take the first look; return why the operation is refused, or ''.

        Nothing has been changed yet, and the guest may still run.
        """
        with instance_cleanup.log_failure(self._trigger, self._instance):
            cleanup = self._cleanup()
            if cleanup.observes:
                return ''
            found = cleanup.preview(instance_cleanup.read_bdms(
                self._context, self._instance))
            self._dangling = disks.dangling(found.plan.findings)
            self._is_clear = not self._dangling and (
                found.unconfirmed == frozenset())
            obstacles = [(finding, finding.address)
                         for finding in found.left_out.values()
                         if self._is_copied]
            for finding in self._dangling:
                taken, unknown = self._obstacles(cleanup, found, finding)
                if (not finding.is_due or unknown
                        or self._is_copied and taken and not finding.address):
                    obstacles.append((finding, unknown or taken))
            if obstacles:
                return disks.refusal(cleanup, self._instance, obstacles)
        return ''

    def given(self, bdms: Any) -> Any:
        """Return the BDMs of the disks that the driver is given.

        :param bdms: a BlockDeviceMappingList
        """
        kept: set[str] = set()
        with instance_cleanup.log_failure(self._trigger, self._instance):
            if not (self._is_clear or self._is_copied):
                kept.update(self._kept(bdms))
        # Nova goes on with its own list.
        return objects.BlockDeviceMappingList(objects=[
            bdm for bdm in bdms if bdm.uuid not in kept]) if kept else bdms

    def _kept(self, bdms: Any) -> Iterator[str]:
        """Yield the BDMs of the disks that the driver is not given."""
        cleanup = self._cleanup()
        if cleanup.observes:
            return
        found = cleanup.preview(bdms)
        for uuid, finding in found.left_out.items():
            cleanup.lines.left(finding, finding.address)
            yield uuid
        self._dangling = disks.dangling(found.plan.findings)
        for finding in found.plan.findings:
            if finding.bdm is None or finding.bdm.uuid in found.left_out:
                continue
            taken, unknown = self._obstacles(cleanup, found, finding)
            while (self._is_last and unknown and boot.current() is None
                   and cleanup.cleaner.pause(_PAUSE)):
                taken, unknown = self._obstacles(cleanup, found, finding)
            # A removal disconnects it later.  A device too many for a while
            # does less harm than one too few.
            obstacle = taken or (
                unknown if finding.is_due and not self._is_last else '')
            if obstacle:
                cleanup.lines.left(finding, obstacle)
                yield finding.bdm.uuid

    def remove(self, bdms: Any) -> None:
        """Remove what dangles before Nova asks Cinder for new attachments.

        The guest is off, and its volumes are disconnected.
        """
        with instance_cleanup.log_failure(self._trigger, self._instance):
            disks.remove(self._cleanup(), bdms, self._dangling)

    @staticmethod
    def _obstacles(cleanup: InstanceCleanup, found: Assessment,
                   finding: Finding) -> tuple[str, str]:
        """Return why a disk must not be disconnected, and why it is unknown.

        Both are empty if it may be: if Cinder connects it to this host, the
        address is its own.
        """
        bdm = finding.bdm
        if (bdm is None or bdm.uuid not in (found.unconfirmed or ())
                or not finding.decision.has_address_here):
            return '', ''
        try:
            return actions.obstacle_to_disconnect(
                cleanup.host, cleanup.cinder, bdm), ''
        except Exception as exc:
            return '', log_lines.masked(exc)

    def _cleanup(self) -> InstanceCleanup:
        """Return a cleanup, whose time begins now."""
        return InstanceCleanup(self._manager, self._context, self._instance,
                               self._trigger)


def current() -> Departure | None:
    """Return the departure that this thread carries out, if any."""
    return getattr(_this_thread, 'departure', None)


# The hooks in it


def withhold(call: Call) -> None:
    """Keep the driver from disconnecting what it must not."""
    leaving = current()
    if leaving is None:
        if triggers.MOVE in call.triggers and call.bdms is None:
            _clean_interrupted(call)
    elif call.bdms is not None:
        call.arguments['bdms'] = leaving.given(call.bdms)


def _clean_interrupted(call: Call) -> None:
    """Clean up before Nova restores a guest whose move was interrupted.

    nova-compute died in the move, and now starts the guest by the addresses in
    the BDMs.
    """
    instance = call.instance
    if (instance.host == call.manager.host
            and instance.task_state == task_states.RESIZE_MIGRATING):
        context = call.context.elevated()
        with instance_cleanup.log_failure(triggers.MOVE, instance):
            bdms = instance_cleanup.read_bdms(context, instance)
            instance_cleanup.clean_list(
                call.manager, context, instance, bdms, triggers.MOVE)
            call.arguments['bdms'] = bdms


def remove(call: Call) -> None:
    """Remove what dangles before Nova asks Cinder for new attachments."""
    leaving = current()
    if leaving is not None:
        leaving.remove(call.bdms)
