# SPDX-License-Identifier: Apache-2.0
"""The operation of Nova that a thread carries out, and the hooks in it.

Many operations share the methods in which Nova makes new attachments and
gives the driver its disks.  A hook around the operation begins an
:class:`Operation`; the others act by it:

* before Nova makes new attachments, what dangles is removed, and leaves Nova's
  list.  Nothing else leaves it where a server moves.  Where it comes to this
  host, each disk then has one attachment, which its mapping names;
* where Nova starts the guest, the driver is not given the disks that it must
  not connect;
* where the driver disconnects the disks, it keeps connected what another
  server of this host claims.  Nova's list stays whole: libvirt takes a disk
  that is not in it for a local one.

Nothing is raised, and no operation is ended: where something fails, or may not
be removed, Nova goes on as without the plugin.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
import contextlib
import threading
from typing import Any

from nova import objects
from nova.virt import block_device
from oslo_log import log as logging

from nova_bdm_cleanup.node import connections, instance_cleanup
from nova_bdm_cleanup.node.boot import Boot
from nova_bdm_cleanup.node.cleanup import actions
from nova_bdm_cleanup.node.cleanup.log_lines import masked
from nova_bdm_cleanup.node.cleanup.ports import Undecided
from nova_bdm_cleanup.node.cleanup.triggers import Trigger
from nova_bdm_cleanup.node.hooks.wrapping import log_failure, NovaCall
from nova_bdm_cleanup.node.instance_cleanup import InstanceCleanup
from nova_bdm_cleanup.openstack.connection_info import addresses_in
from nova_bdm_cleanup.rules.facts import Bdm, Finding
from nova_bdm_cleanup.rules.reasons import Reason

LOG = logging.getLogger(__name__)

#: The operation and the start of nova-compute that this thread carries out.
_this_thread = threading.local()


class Operation:
    """An operation of Nova, with what the plugin has found in it.

    :param call: a call inside it
    :param trigger: what the operation is
    """

    def __init__(self, call: NovaCall, trigger: Trigger) -> None:
        self._manager = call.manager
        # A reap has set that deleted records are read, too.
        self._context = call.context.elevated(read_deleted='no')
        self._trigger = trigger
        #: The cleanup of each server whose time the questions before each
        #: disconnect share.
        self._questions: dict[str, InstanceCleanup] = {}
        #: The mappings that Nova must not start the guest with.
        self.taken_out: frozenset[str] = frozenset()
        #: The volumes that Cinder has connected to this host in the cleanup.
        self.reconnected: frozenset[str | None] = frozenset()

    @contextlib.contextmanager
    def begun(self) -> Iterator[None]:
        """Have the hooks of this thread serve the operation."""
        outer = current()
        _this_thread.operation = self
        try:
            yield
        finally:
            _this_thread.operation = outer
            # The guest has its disks.
            connections.let_go()

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
            outcome = cleanup.run(bdms)
            self.taken_out = outcome.taken_out
            self.reconnected = outcome.reconnected
        except Exception:
            self.taken_out = frozenset(cleanup.cleaner.removed)
            raise

    def remove(self, instance: Any, bdms: Any) -> None:
        """Remove what dangles before Nova makes new attachments.

        :param bdms: the BlockDeviceMappingList that Nova goes on with
        """
        cleanup = self.cleanup(instance)
        try:
            cleanup.run(bdms)
        finally:
            # Nova fails if it goes on with a row that is gone.
            instance_cleanup.take_out(bdms, cleanup.cleaner.removed)

    def give(self, call: NovaCall) -> None:
        """Take out what the driver must not be given.

        :param call: the call that returns the disks
        """
        if not self.taken_out:
            return
        if call.bdms is None:
            call.arguments['bdms'] = self.read_bdms(call.instance)
        # The cleanup was given another list.
        instance_cleanup.take_out(call.bdms, self.taken_out)

    @contextlib.contextmanager
    def disconnecting(self, instance: Any, connection_info: Any,
                      destroys_secret: bool) -> Iterator[bool]:
        """Keep a disk as it is while the driver disconnects it.

        Yields whether the driver must not do that.  Where it starts the guest,
        it first disconnects what it then connects: of a disk that was just
        reconnected nothing is here, and os-brick would look for it among the
        disks of others.

        :param destroys_secret: the driver would delete libvirt's secret of the
            disk, too
        """
        disk = Bdm(uuid='', volume_id=block_device.get_volume_id(
            connection_info), addresses=addresses_in(connection_info))
        if self._trigger.mode.starts_guest:
            yield bool(disk.addresses) and disk.volume_id in self.reconnected
            return
        cleanup = self._questions.get(instance.uuid)
        if cleanup is None:
            cleanup = self._questions[instance.uuid] = self.cleanup(instance)
        if not disk.addresses or cleanup.observes:
            yield False
            return
        with cleanup.host.disconnecting(disk):
            claim = self._claim_on(cleanup, disk)
            if claim:
                cleanup.lines.still_connected(Finding(
                    Reason.ADDRESS_CLAIMED, claim, bdm=disk), claim)
                with log_failure(instance):
                    cleanup.host.note_connection(
                        connection_info, disk.volume_id)
                    if destroys_secret:
                        cleanup.host.delete_secret(
                            connection_info, disk.volume_id)
            yield bool(claim)

    @staticmethod
    def _claim_on(cleanup: InstanceCleanup, disk: Bdm) -> str:
        """Return the claim on a disk in words; empty if there is none.

        What cannot be read counts as a claim.
        """
        try:
            claim = actions.claim_on(
                cleanup.host, cleanup.cinder, cleanup.host.name, disk)
        except Undecided as exc:
            return str(exc)
        except Exception as exc:
            return 'what claims its address cannot be read: %s' % masked(exc)
        return str(claim) if claim else ''


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
def leave(call: NovaCall) -> Iterator[None]:
    """Begin an operation in which a server leaves this host."""
    with Operation(call, call.triggers[0]).begun():
        yield


def give(call: NovaCall) -> None:
    """Take out what the driver must not be given."""
    operation = current()
    if operation is not None and operation.is_for(call.triggers):
        operation.give(call)


@contextlib.contextmanager
def disconnect(call: NovaCall) -> Iterator[bool]:
    """Keep a disk connected that another server of this host claims, and
    leave out one that was just reconnected.
    """
    operation = current()
    if operation is None:
        yield False
        return
    with operation.disconnecting(
            call.instance, call.arguments['connection_info'],
            call.arguments.get('destroy_secrets', True)) as is_kept:
        yield is_kept


def remove(call: NovaCall) -> None:
    """Remove what dangles before Nova gives up its attachments."""
    operation = current()
    # Nova also calls the method after an operation that has failed.
    if operation is not None and operation.is_for(call.triggers):
        operation.remove(call.instance, call.bdms)


def arrive(call: NovaCall) -> None:
    """Remove what dangles before Nova attaches the disks to this host, and
    have each mapping name the only attachment of its disk.
    """
    operation, bdms = Operation(call, call.triggers[0]), call.bdms
    operation.remove(
        call.instance,
        operation.read_bdms(call.instance) if bdms is None else bdms)
