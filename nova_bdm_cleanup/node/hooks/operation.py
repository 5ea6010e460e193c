# SPDX-License-Identifier: Apache-2.0
"""The operation of Nova that a thread carries out, and the hooks in it.

Many operations share the methods in which Nova makes new attachments and
gives the driver its disks.  A hook around the operation begins an
:class:`Operation`; the others act by it:

* before Nova makes new attachments, what dangles is removed, and leaves Nova's
  list.  Nothing else leaves it where a server moves;
* where Nova starts the guest, the driver is not given the disks that it must
  not connect;
* where the driver disconnects the disks, it keeps connected what another guest
  of this host has.  Nova's list stays whole: libvirt takes a disk that is not
  in it for a local one.

Nothing is raised, and no operation is ended: where something fails, or may not
be removed, Nova goes on as without the plugin.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
import contextlib
import dataclasses
import threading
from typing import Any

from nova import objects
from nova.virt import block_device
from oslo_log import log as logging

from nova_bdm_cleanup.node import devices, instance_cleanup
from nova_bdm_cleanup.node.boot import Boot
from nova_bdm_cleanup.node.cleanup import actions
from nova_bdm_cleanup.node.cleanup.cleaner import Assessment
from nova_bdm_cleanup.node.cleanup.ports import Undecided
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.hooks.wrapping import Call, log_failure
from nova_bdm_cleanup.node.instance_cleanup import InstanceCleanup
from nova_bdm_cleanup.rules.facts import Bdm, Finding

LOG = logging.getLogger(__name__)

#: The operation and the start of nova-compute that this thread carries out.
_this_thread = threading.local()

#: Seconds after which to ask again whether a neighbour uses a disk.
_PAUSE = 1.0


@dataclasses.dataclass(frozen=True)
class FirstLook:
    """The first look, before the driver disconnects the disks of a server."""

    #: The BlockDeviceMappingList that the driver is given.
    bdms: Any
    found: Assessment

    @property
    def is_clear(self) -> bool:
        """Tell whether every disk is attached to this host."""
        return self.found.unconfirmed == frozenset() and not any(
            finding.is_removal for finding in self.found.plan.findings)

    @property
    def settled(self) -> frozenset[str | None]:
        """Return the volumes for whose records nothing waits again."""
        return frozenset(finding.volume_id for finding in self.found.plan.due)

    def finding_of(self, connection_info: Any) -> Finding | None:
        """Return the finding about the disk that the driver disconnects.

        :param connection_info: what the driver was given
        """
        disk = _disk(connection_info)
        uuids = {bdm.uuid for bdm in self.bdms if disk == _disk(
            devices.parse_connection_info(bdm.connection_info))}
        return next((
            finding for finding in (*self.found.left_out.values(),
                                    *self.found.plan.findings)
            if finding.bdm and finding.bdm.uuid in uuids), None)


def _disk(connection_info: Any) -> tuple[Any, frozenset[devices.Address]]:
    """Return what distinguishes a disk from the others of its server."""
    return (block_device.get_volume_id(connection_info),
            devices.addresses_in(connection_info))


class Operation:
    """An operation of Nova, with what the plugin has found in it.

    :param call: a call inside it
    :param trigger: what the operation is
    """

    def __init__(self, call: Call, trigger: Trigger) -> None:
        self._manager = call.manager
        # A reap has set that deleted records are read, too.
        self._context = call.context.elevated(read_deleted='no')
        self._trigger = trigger
        #: The first look at each server that leaves this host, by its uuid.
        self._looks: dict[str, FirstLook] = {}
        #: The cleanup whose time the questions before each disconnect share.
        self._questions: dict[str, InstanceCleanup] = {}
        #: The mappings that were removed, or that the driver must not connect.
        self.not_connected: frozenset[str] = frozenset()

    @contextlib.contextmanager
    def begun(self) -> Iterator[None]:
        """Have the hooks of this thread serve the operation."""
        outer = current()
        _this_thread.operation = self
        try:
            yield
        finally:
            _this_thread.operation = outer

    @property
    def host(self) -> str:
        """Return the compute host."""
        host: str = self._manager.host
        return host

    def is_for(self, triggers: Collection[Trigger]) -> bool:
        """Return whether the operation is one of some triggers."""
        return self._trigger in triggers

    def cleanup(self, instance: Any) -> InstanceCleanup:
        """Return a cleanup of an instance, whose time begins now."""
        return InstanceCleanup(self._manager, self._context, instance,
                               self._trigger, boot_of_this_thread())

    def read_bdms(self, instance: Any) -> Any:
        """Read the BlockDeviceMappingList of an instance."""
        return objects.BlockDeviceMappingList.get_by_instance_uuid(
            self._context, instance.uuid)

    def clean(self, instance: Any, bdms: Any) -> None:
        """Clean up before Nova starts the guest.

        :param bdms: its BlockDeviceMappingList
        """
        cleanup = self.cleanup(instance)
        try:
            self.not_connected = cleanup.run(bdms)
        except Exception:
            self.not_connected = frozenset(cleanup.cleaner.removed)
            raise

    def remove(self, instance: Any, bdms: Any) -> None:
        """Remove what dangles before Nova makes new attachments.

        :param bdms: the BlockDeviceMappingList that Nova goes on with
        """
        first = self._looks.pop(instance.uuid, None)
        if first is not None and first.is_clear:
            return
        cleanup = self.cleanup(instance)
        if first is not None:
            # The guest is off: nothing waits for the same records again.
            cleanup.cleaner.settled = first.settled
        try:
            cleanup.run(bdms)
        finally:
            # Nova fails if it goes on with a row that is gone.
            instance_cleanup.take_out(bdms, cleanup.cleaner.removed)

    def give(self, call: Call) -> None:
        """Decide which disks the driver is given.

        :param call: the call that returns the disks
        """
        starts_guest = self._trigger.mode.starts_guest
        if starts_guest and not self.not_connected:
            return
        bdms = call.bdms
        if bdms is None:
            bdms = call.arguments['bdms'] = self.read_bdms(call.instance)
        if starts_guest:
            # The cleanup was given another list.
            instance_cleanup.take_out(bdms, self.not_connected)
        else:
            self._look(call.instance, bdms)

    def _look(self, instance: Any, bdms: Any) -> None:
        """Look before the driver disconnects the disks of a server."""
        cleanup = self.cleanup(instance)
        if not cleanup.observes:
            self._looks[instance.uuid] = FirstLook(
                bdms, cleanup.preview(bdms))

    def keeps_connected(self, instance: Any, connection_info: Any,
                        destroys_secret: bool) -> bool:
        """Return whether the driver must not disconnect a disk.

        Asked as late as possible, and only of a disk that Cinder does not show
        attached to this host: the address of the others is their own.

        :param destroys_secret: the driver would delete libvirt's secret of the
            disk, too
        """
        first = self._looks.get(instance.uuid)
        finding = first.finding_of(connection_info) if first else None
        if first is None or finding is None or finding.bdm is None:
            return False
        cleanup = self._questions.get(instance.uuid)
        if cleanup is None:
            cleanup = self._questions[instance.uuid] = self.cleanup(instance)
            cleanup.host.adopt(first.bdms)
        obstacle = finding.address
        if not obstacle and finding.bdm.uuid in (
                first.found.unconfirmed or ()):
            obstacle = self._obstacle(cleanup, finding.bdm)
        if not obstacle:
            return False
        cleanup.lines.left(finding, obstacle)
        if destroys_secret:
            # Another server that has the volume may be moving.
            with log_failure(instance), contextlib.suppress(Undecided):
                cleanup.host.delete_secret(finding.bdm)
        return True

    @staticmethod
    def _obstacle(cleanup: InstanceCleanup, bdm: Bdm) -> str:
        """Return why a disk must not be disconnected; empty if it may be.

        What is not known by the end of the time is left to Nova.
        """
        while True:
            try:
                return actions.obstacle_to_disconnect(
                    cleanup.host, cleanup.cinder, bdm)
            except Exception:
                LOG.debug('It is not known whether another guest has a disk',
                          exc_info=True)
                # All servers of one start of nova-compute share its time.
                if boot_of_this_thread() or not cleanup.cleaner.pause(_PAUSE):
                    return ''


def current() -> Operation | None:
    """Return the operation that this thread carries out, if any."""
    return getattr(_this_thread, 'operation', None)


def boot_of_this_thread() -> Boot | None:
    """Return the start of nova-compute that this thread carries out."""
    return getattr(_this_thread, 'boot', None)


@contextlib.contextmanager
def booting(boot: Boot) -> Iterator[None]:
    """Mark this thread as the one that starts nova-compute."""
    _this_thread.boot = boot
    try:
        yield
    finally:
        _this_thread.boot = None


# The hooks


@contextlib.contextmanager
def leave(call: Call) -> Iterator[None]:
    """Begin an operation in which a server leaves this host."""
    with Operation(call, call.triggers[0]).begun():
        yield


def give(call: Call) -> None:
    """Decide which disks the driver is given."""
    operation = current()
    if operation is not None and operation.is_for(call.triggers):
        operation.give(call)


def keeps_connected(call: Call) -> bool:
    """Return whether another guest of this host has a disk."""
    operation = current()
    return operation is not None and operation.keeps_connected(
        call.instance, call.arguments['connection_info'],
        call.arguments.get('destroy_secrets', True))


def remove(call: Call) -> None:
    """Remove what dangles before Nova gives up its attachments."""
    operation = current()
    # Nova also calls the method after an operation that has failed.
    if operation is not None and operation.is_for(call.triggers):
        operation.remove(call.instance, call.bdms)


def arrive(call: Call) -> None:
    """Remove what dangles before Nova attaches the disks to this host."""
    operation, bdms = Operation(call, call.triggers[0]), call.bdms
    operation.remove(
        call.instance,
        operation.read_bdms(call.instance) if bdms is None else bdms)
