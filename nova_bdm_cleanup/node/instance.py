# SPDX-License-Identifier: Apache-2.0
"""Nova and the hypervisor, as the cleaner sees them.

Nova's database is only reached through Nova's objects.  Only public methods of
the virt driver are used, except for libvirt's driver: the private methods that
are called here are compared at start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import contextlib
import json
import threading
from typing import Any

from cinderclient import exceptions as cinder_exceptions
from nova import exception, objects, utils, version as nova_version
from nova.compute import power_state, task_states, vm_states
import nova.conf
from nova.objects import fields
from nova.virt import block_device
from os_brick import encryptors
from os_brick.initiator import utils as brick_utils
from oslo_concurrency import lockutils
from oslo_log import log as logging

from nova_bdm_cleanup import VERSION
from nova_bdm_cleanup.node import (
    connections,
    credentials,
    devices,
    domains,
    operations,
    options,
    shutdown,
)
from nova_bdm_cleanup.node.cleanup import log_lines, triggers
from nova_bdm_cleanup.node.cleanup.ports import (
    AttachmentGone,
    RebootLost,
    Undecided,
)
from nova_bdm_cleanup.node.cleanup.triggers import Mode, Trigger
from nova_bdm_cleanup.node.neighbours import Neighbours
from nova_bdm_cleanup.node.store import disconnects
from nova_bdm_cleanup.openstack.connection_info import (
    addresses_in,
    name_in,
    parse_connection_info,
    path_in,
)
from nova_bdm_cleanup.openstack.deadline import Deadline
from nova_bdm_cleanup.rules import action_events, facts, spelling
from nova_bdm_cleanup.rules.reasons import Reason

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)


#: What Nova writes for a disk that was never connected.
_NEVER_CONNECTED = (None, '', '{}', 'null')


#: The task state of an operation that nova-compute resumes, by trigger, and
#: the states from which it is set.  At its start Nova gives up a live
#: migration that is not there; then the disks are adopted.
_PENDING: Mapping[str, tuple[str, Sequence[str | None]]] = {
    triggers.ROLLBACK.name: (task_states.MIGRATING, (None,)),
    triggers.REPAIR.name: (task_states.MIGRATING, (None,)),
    triggers.HARD_REBOOT.name: (
        task_states.REBOOT_PENDING_HARD, task_states.hard_reboot_states),
    triggers.SOFT_REBOOT.name: (
        task_states.REBOOT_PENDING, task_states.soft_reboot_states),
}


#: The operations of Nova that take a running guest to another host.
_LEAVES_RUNNING = (fields.MigrationType.LIVE_MIGRATION,
                   fields.MigrationType.EVACUATION)

#: States of a domain, reasons for them, and kinds of jobs, as libvirt numbers
#: them; Nova loads its module later.
_RUNNING, _PAUSED, _SHUTOFF = 1, 3, 5
_PAUSED_BY_USER, _PAUSED_BY_ERROR, _MIGRATED = 1, 5, 4
_JOBS_UNDER_WAY = (1, 2)


class StillConnected(Exception):
    """A disk is still there after it was disconnected."""


class NovaInstance:
    """One instance on this compute node, as ``cleanup.ports`` describes it.

    :param context: the elevated context of the reboot or start
    :param deadline: limits the requests to Cinder
    """

    def __init__(self, manager: Any, context: Any, instance: Any,
                 deadline: Deadline, trigger: Trigger) -> None:
        self._manager = manager
        self._context = context
        self._instance = instance
        self._deadline = deadline
        self._trigger = trigger
        self._neighbours = Neighbours(
            context, instance.uuid, manager.host, manager.driver)
        self._rows: dict[str, Any] = {}
        #: The task state that :meth:`claim` has set.
        self._pending: str | None = None
        #: The connections of attachments that no row names.
        self._unnamed: dict[str, dict[str, Any]] = {}

    def in_trigger(self, trigger: Trigger) -> NovaInstance:
        """Return the same instance in another operation on it."""
        return NovaInstance(self._manager, self._context, self._instance,
                            self._deadline, trigger)

    def known_server(self) -> facts.Server:
        """Return the server as the request has it."""
        return self._server_of(self._instance)

    @property
    def name(self) -> str:
        """Return the name of this compute host."""
        name: str = self._manager.host
        return name

    @property
    def _host(self) -> str:
        """Return the host on which the disks are; empty: not on this one."""
        return '' if self._trigger.mode is Mode.ARRIVE else self.name

    def register(self, bdms: Any) -> tuple[facts.Bdm, ...]:
        """Take over a list of Nova's block device mappings."""
        # A look that fails is followed by one at the rows before it.
        self._rows.update((bdm.uuid, bdm) for bdm in bdms)
        return tuple(mapping_of(bdm) for bdm in bdms)

    # State

    def server(self) -> facts.Server | None:
        try:
            instance = objects.Instance.get_by_uuid(
                self._context, self._instance.uuid, expected_attrs=[])
        except exception.InstanceNotFound:
            return None
        if (not self._is_here(instance)
                or instance.task_state not in self._states):
            return None
        return self._server_of(instance)

    @property
    def _states(self) -> frozenset[str | None]:
        """Return the task states of the instance in this operation."""
        if self._pending is None:
            return self._trigger.states
        return self._trigger.states - {None} | {self._pending}

    def _server_of(self, instance: Any) -> facts.Server:
        """Return a Nova instance in the form that the rules take."""
        return facts.Server(
            uuid=spelling.identifier(instance.uuid),
            project=instance.project_id,
            host=self._host,
            is_offloaded=instance.vm_state == vm_states.SHELVED_OFFLOADED,
            former_host=self._former_host(instance),
            is_locked=(self._trigger.heeds_lock
                       and instance.locked_by == 'admin'))

    def _former_host(self, instance: Any) -> str:
        """Return the host that it comes from; Nova has checked that it is
        down.
        """
        return (instance.host or '' if self._trigger.mode is Mode.ARRIVE
                else '')

    def _is_here(self, instance: Any) -> bool:
        """Return whether it is on this host, or comes to it."""
        return (self._trigger.mode is Mode.ARRIVE
                or spelling.host(instance.host)
                == spelling.host(self._manager.host))

    def bdms(self) -> tuple[facts.Bdm, ...]:
        return self.register(self._read_bdms())

    def _read_bdms(self) -> Any:
        return objects.BlockDeviceMappingList.get_by_instance_uuid(
            self._context, self._instance.uuid)

    def former(self, attachment: facts.Attachment) -> facts.Bdm | None:
        # Only Nova writes the ids of attachments into its rows, and as long
        # as Cinder has the attachment, the back end keeps its address.
        rows = [row for row in
                objects.BlockDeviceMappingList.get_by_instance_uuid(
                    self._context.elevated(read_deleted='yes'),
                    self._instance.uuid)
                if row.deleted
                and spelling.optional(row.attachment_id) == attachment.id
                and spelling.optional(row.volume_id) == attachment.volume_id
                and parse_connection_info(row.connection_info)]
        if not rows:
            return None
        newest = max(rows, key=lambda row: row.deleted_at or row.created_at)
        self._rows[newest.uuid] = newest
        return mapping_of(newest)

    def witnesses(self) -> Iterable[str]:
        return self._neighbours.volumes()

    def swaps(self) -> facts.Ending:
        return operations.swaps(
            self._context, self._instance.uuid, self.name)

    def last_swap(self) -> float:
        return operations.last_swap(self._context, self._instance.uuid)

    def attaches(self, bdms: Sequence[facts.Bdm]
                 ) -> Mapping[str, facts.Attach]:
        in_guest = domains.serials(self._manager.driver, self._instance)
        if in_guest is None:
            return {}
        return {bdm.uuid: self._attach_of(bdm, in_guest) for bdm in bdms}

    def _attach_of(self, bdm: facts.Bdm,
                   in_guest: frozenset[str]) -> facts.Attach:
        has_failed = bdm.created_at and bdm.volume_id not in in_guest \
            and operations.attaches(
                self._context, self._instance.uuid, self.name, bdm.created_at
            ) == {facts.Ending.FAILURE}
        return facts.Attach.FAILED if has_failed else facts.Attach.UNKNOWN

    def absent(self, attachments: Sequence[facts.Attachment]
               ) -> frozenset[str]:
        return frozenset(attachment.id for attachment in attachments
                         if devices.are_absent(attachment.addresses))

    def claims(self, disks: Sequence[facts.Bdm]) -> facts.Claims:
        return self._neighbours.claims(disks)

    def is_off(self) -> bool:
        # A crashed guest, or one that is just shutting down, still has its
        # disks open: Nova's power states do not tell these apart.
        driver = self._manager.driver
        try:
            if domains.is_libvirt(driver):
                guest = driver._host.get_guest(self._instance)
                return not guest.is_active()
            state = driver.get_info(
                self._instance, use_cache=False).state
            return bool(state == power_state.SHUTDOWN)
        except exception.InstanceNotFound:
            return True

    def guest_is_here(self) -> bool:
        if self._trigger.mode is Mode.ARRIVE:
            former = self._instance.host
            return not former or not self._may_have_left(former)
        driver = self._manager.driver
        if not domains.is_libvirt(driver):
            return False
        try:
            guest = driver._host.get_guest(self._instance)
        except exception.InstanceNotFound:
            return False
        state, reason = guest._domain.state()
        if state == _SHUTOFF:
            return reason != _MIGRATED and not self._may_have_left(self.name)
        return _runs(guest) and not is_migrating(guest)

    def on_host(self, bdm: facts.Bdm, attachment: facts.Attachment | None
                ) -> facts.OnHost:
        found = devices.devices_at(attachment.addresses) \
            if attachment else frozenset()
        return facts.OnHost(
            ', '.join(sorted(found)) or (
                attachment and attachment.back_end_name or ''),
            self._look_into_guest(bdm, attachment)[0],
            self._operation_in_progress())

    def _look_into_guest(self, bdm: facts.Bdm,
                         attachment: facts.Attachment | None
                         ) -> tuple[facts.InGuest, str]:
        """Return what the guest has of a disk, and its path on this host."""
        driver = self._manager.driver
        if not domains.is_libvirt(driver):
            return facts.InGuest.UNKNOWN, ''
        try:
            guest = driver._host.get_guest(self._instance)
        except exception.InstanceNotFound:
            return facts.InGuest.NOT_RUNNING, ''
        if not _runs(guest):
            return facts.InGuest.NOT_RUNNING, ''
        if is_migrating(guest):
            return facts.InGuest.MIGRATING, ''
        serial = _serial_of(self._rows[bdm.uuid])
        disks = [disk for disk in devices.disks_in_domain(
            guest._domain.XMLDesc(0)) if disk.serial == serial]
        if len(disks) != 1:
            return facts.InGuest.NO_DISK, ''
        disk, = disks
        if disk.is_copied:
            return facts.InGuest.COPIED, ''
        if attachment is None:
            return facts.InGuest.NOT_COMPARED, ''
        return (facts.InGuest.DISK
                if disk.source.is_same(attachment.source)
                else facts.InGuest.OTHER_DISK), disk.source.path or ''

    def _operation_in_progress(self) -> str:
        """Return another operation of Nova on the server, in words."""
        instance = objects.Instance.get_by_uuid(
            self._context, self._instance.uuid, expected_attrs=[])
        if not self._is_here(instance):
            return 'the server is on host %s' % instance.host
        if instance.task_state not in self._states:
            return 'the server is %s' % instance.task_state
        for migration in operations.open_migrations(
                self._context, self._instance.uuid, self.name):
            return 'migration %s is %s' % (migration.uuid, migration.status)
        return ''

    def sources(self) -> Mapping[str, facts.Source]:
        found = domains.sources(self._manager.driver, self._instance)
        disks = {uuid: found.get((row.device_name or '').rpartition('/')[2])
                 for uuid, row in self._rows.items()}
        # The name of a device alone tells no other volume.
        return {uuid: source for uuid, source in disks.items() if source and (
            source.addresses or source.name or source.path
            and source.is_same(mapping_of(self._rows[uuid]).source))}

    def left_out(self, proved: Mapping[str, float]) -> frozenset[str]:
        if self._trigger.mode is Mode.ARRIVE:
            # The former host has all that the guest has.
            return frozenset()
        in_guest = domains.serials(
            self._manager.driver, self._instance) or ()
        newest = self._newest_move(self.name)
        since = newest.created_at.timestamp() if newest else 0.0
        return frozenset(
            uuid for uuid, row in self._rows.items()
            if _serial_of(row) not in in_guest
            and proved.get(uuid, 0.0) <= since)

    def _may_have_left(self, host: str) -> bool:
        """Return whether Nova has begun to take the guest to a third host
        since the server last came to a host.

        No record tells where the guest is if nova-compute dies in that, and
        the mappings are written while it goes.
        """
        newest = self._newest_move(host)
        return newest is not None and spelling.host(
            newest.dest_compute) != spelling.host(host)

    def _newest_move(self, host: str) -> Any:
        """Return the newest record of a move of the guest to a host, or from
        it to a third one, if any.

        Of a guest that is not on this host, this host knows that.
        """
        return max((
            migration for migration in objects.MigrationList.get_by_filters(
                self._context, {'instance_uuid': self._instance.uuid})
            if migration.migration_type in _LEAVES_RUNNING
            and spelling.host(migration.dest_compute)
            != spelling.host(self.name)
            or spelling.host(migration.dest_compute)
            == spelling.host(host)),
            key=lambda m: m.created_at, default=None)

    def is_shutting_down(self) -> bool:
        return shutdown.has_begun(self._manager)

    # Actions

    def awaited(self) -> contextlib.AbstractContextManager[None]:
        return shutdown.recorded_task(
            self._manager, self._instance, self._context.request_id)

    def lock(self) -> contextlib.AbstractContextManager[None]:
        return hold_lock(self._instance.uuid, self._deadline)

    def prepare(self) -> None:
        # The first request to another service in Nova's own reboot.  If
        # Neutron does not answer, the reboot ends there, and the guest must
        # still be on.
        self._manager.network_api.get_instance_nw_info(
            self._context, self._instance)

    def claim(self) -> None:
        pending, states = _PENDING.get(self._trigger.name, (None, ()))
        if (not pending or self._pending
                or self._instance.vm_state == vm_states.ERROR):
            # nova-compute resumes an interrupted start in its current state,
            # and looks for the guests to resume at every boot of the host.  It
            # never resumes an operation of a server in ERROR, and Nova's API
            # refuses another one while it is pending.
            if self.server() is None:
                raise RebootLost(
                    'the server now has another task')
            return
        # At its start nova-compute resumes a pending reboot, but not one that
        # was only requested, which is the state that the API sets.  Without
        # this, a crash from here on leaves the server off for good.  In an
        # adoption it keeps Nova's API from beginning anything else: a live
        # migration takes no lock.
        self._instance.task_state = pending
        try:
            self._instance.save(expected_task_state=states)
        except (exception.InstanceNotFound,
                exception.UnexpectedTaskStateError) as exc:
            raise RebootLost(str(exc)) from exc
        except Exception:
            # Perhaps only the answer is lost.
            self._pending = pending
            raise
        self._pending = pending
        if None in states and self.server() is None:
            # Nova may have moved it since the last look.
            raise RebootLost('the server is no longer on this host')

    def release(self) -> None:
        if self._pending and not any(operations.open_migrations(
                self._context, self._instance.uuid, self.name)):
            self._instance.task_state = None
            # An administrator may have reset it.
            with contextlib.suppress(exception.InstanceNotFound,
                                     exception.UnexpectedTaskStateError):
                self._instance.save(expected_task_state=[self._pending])

    def power_off(self) -> None:
        self._manager.driver.power_off(self._instance)

    def volume_lock(self, volume_id: str
                    ) -> contextlib.AbstractContextManager[None]:
        return hold_volume_lock(volume_id, self._deadline)

    @contextlib.contextmanager
    def guard(self, volume_id: str) -> Iterator[None]:
        with brick_utils.guard_connection(self._sharing(volume_id)):
            yield

    def disconnecting(self, bdm: facts.Bdm
                      ) -> contextlib.AbstractContextManager[None]:
        return connections.disconnecting(bdm.addresses)

    def hold_up(self) -> None:
        connections.hold_up()

    def note(self, bdm: facts.Bdm) -> None:
        self.note_connection(self._connection_info(bdm), bdm.volume_id)

    def note_connection(self, connection_info: Mapping[str, Any],
                        volume_id: str | None) -> None:
        """Note that a disk stays connected; see :meth:`note`."""
        if not domains.is_libvirt(self._manager.driver):
            # Other drivers' volumes are not among this host's devices.
            return
        disconnects.SuppressedDisconnects(
            options.settings(CONF).store, self.name).note(
                self._instance.uuid, volume_id, connection_info)

    def disconnect(self, bdm: facts.Bdm) -> bool:
        connection_info = self._connection_info(bdm)
        if not connection_info:
            raise ValueError('the connection information of mapping %s cannot '
                             'be read' % bdm.uuid)
        # The driver would ask Cinder how many servers of this host have a
        # multiattach volume, and count wrongly or fail where Cinder no longer
        # attaches it to this one.  Nova's own rows are already checked.
        connection_info.pop('multiattach', None)
        before = devices.volume_devices(connection_info)
        here: dict[str, Any] | None = connection_info
        if domains.is_libvirt(self._manager.driver):
            # Other drivers' volumes are not among this host's devices.
            here = devices.narrow_connection_info(
                connection_info, before.keys())
        if here is not None:
            self._disconnect_all(bdm, here, before)
        return here is not None

    def _disconnect_all(self, bdm: facts.Bdm, connection_info: dict[str, Any],
                        before: Mapping[str, str]) -> None:
        error: Exception | None = None
        try:
            self._disconnect(bdm, connection_info)
        except Exception as exc:
            error = exc
        left = devices.remaining(before)
        if left:
            raise StillConnected('%s (%s)' % (
                devices.removal_advice(left, before),
                error or 'no error was reported')) from error
        if error and not before:
            raise error
        if error:
            LOG.info('bdm-cleanup: %s is gone, although disconnecting it '
                     'failed: %s',
                     ', '.join('/dev/' + name for name in sorted(before)),
                     log_lines.masked(error), instance=self._instance)

    def forget(self, attachment: facts.Attachment) -> None:
        connections.forget(attachment.id)

    def name_attachment(self, bdm: facts.Bdm, attachment_id: str) -> facts.Bdm:
        row = self._rows[bdm.uuid]
        row.attachment_id = attachment_id
        row.save()
        return mapping_of(row)

    def connect(self, bdm: facts.Bdm, is_multiattach: bool,
                attachment: facts.Attachment | None = None) -> facts.Bdm:
        row = self._rows[bdm.uuid]
        connection_info = self._connected(
            attachment.id if attachment else row.attachment_id,
            row.device_name)
        return self._take(bdm, connection_info, is_multiattach, attachment)

    def take_over(self, bdm: facts.Bdm, attachment: facts.Attachment,
                  is_multiattach: bool) -> facts.Bdm:
        answer = self._deadline.call(
            'reading attachment %s' % attachment.id,
            lambda: self._manager.volume_api.attachment_get(
                self._asking(), attachment.id))
        connection_info = answer['connection_info']
        in_guest, path = self._look_into_guest(bdm, attachment)
        if in_guest is not facts.InGuest.DISK:
            raise Undecided('the guest: %s' % in_guest.value)
        if (connection_info.get('status') != 'attached'
                or addresses_in(connection_info) != attachment.addresses
                or name_in(connection_info) != attachment.back_end_name):
            raise Undecided('attachment %s has just been changed'
                            % attachment.id)
        if path:
            # Nova saves by which device this host has it.
            connection_info['data']['device_path'] = path
        self._rows[bdm.uuid].attachment_id = attachment.id
        return self._take(bdm, connection_info, is_multiattach)

    def _take(self, bdm: facts.Bdm, connection_info: dict[str, Any],
              is_multiattach: bool,
              swapped_to: facts.Attachment | None = None) -> facts.Bdm:
        """Save connection information of Cinder in a mapping.

        :param swapped_to: the mapping takes this attachment and its volume
        """
        row = self._rows[bdm.uuid]
        # Only Nova's row knows these.
        former = {} if swapped_to else self._connection_info(bdm)
        connection_info['serial'] = former.get('serial') or (
            swapped_to or bdm).volume_id
        if former.get('multiattach') or is_multiattach:
            connection_info['multiattach'] = True
        map_id = former.get('data', {}).get('multipath_id')
        if map_id:
            connection_info['data']['multipath_id'] = map_id
        if swapped_to is not None:
            # As at the end of Nova's own swap.
            row.volume_id, row.attachment_id = (
                swapped_to.volume_id, swapped_to.id)
            row.source_type, row.snapshot_id = 'volume', None
        row.connection_info = json.dumps(connection_info)
        row.save()
        return mapping_of(row)

    def connect_unnamed(self, attachment: facts.Attachment) -> facts.Bdm:
        connection_info = self._connected(attachment.id, None)
        self._unnamed[attachment.id] = connection_info
        return facts.Bdm(
            uuid=attachment.id, volume_id=attachment.volume_id,
            attachment_id=attachment.id, has_connection_info=True,
            addresses=addresses_in(connection_info))

    def _connected(self, attachment_id: str,
                   device_name: str | None) -> dict[str, Any]:
        """Have Cinder connect an attachment here; return its answer."""
        connector = self._manager.driver.get_volume_connector(self._instance)
        try:
            # By Nova's own API, so that the answer is remembered.
            answer = self._deadline.call(
                'connecting attachment %s' % attachment_id,
                lambda: self._manager.volume_api.attachment_update(
                    self._asking(), attachment_id, connector, device_name))
        except exception.VolumeAttachmentNotFound as exc:
            raise AttachmentGone(str(exc)) from exc
        connection_info: dict[str, Any] = answer['connection_info']
        if not connection_info.get('data'):
            raise ValueError('Cinder gives no connection information of '
                             'attachment %s' % attachment_id)
        return connection_info

    def renew(self, bdms: Any) -> None:
        """Bring a list that Nova goes on with up to date.

        :param bdms: a BlockDeviceMappingList
        """
        renew(bdms, self._rows)

    def destroy(self, bdm: facts.Bdm) -> None:
        try:
            self._rows[bdm.uuid].destroy()
        except Exception:
            # If only the answer is lost, Nova must not go on with the row.
            if any(row.uuid == bdm.uuid for row in self._read_bdms()):
                raise

    def tidy(self, bdm: facts.Bdm) -> None:
        row = self._rows[bdm.uuid]
        try:
            self.delete_secret(self._connection_info(bdm), bdm.volume_id)
        finally:
            if row.tag:
                self._remove_device_metadata(bdm.volume_id)

    # Records

    def row(self, bdm: facts.Bdm) -> Mapping[str, Any]:
        row = self._rows[bdm.uuid]
        return {name: _plain(getattr(row, name)) for name in row.fields
                if name not in ('connection_info', 'instance')
                and row.obj_attr_is_set(name)}

    def describe(self) -> Mapping[str, Any]:
        return {'server': self._instance.uuid,
                'project': self._instance.project_id,
                'host': self._manager.host,
                'request_id': self._context.request_id,
                'plugin': VERSION,
                'nova': nova_version.version_string()}

    def report(self, kind: action_events.Kind, finding: facts.Finding | None,
               reason: Reason) -> None:
        event = action_events.name_of(kind, finding, reason)
        objects.InstanceActionEvent.event_start(
            self._context, self._instance.uuid, event, want_result=False,
            host=self._manager.host)
        objects.InstanceActionEvent.event_finish(
            self._context, self._instance.uuid, event, want_result=False)

    def _connection_info(self, bdm: facts.Bdm) -> dict[str, Any]:
        if bdm.uuid in self._unnamed:
            return dict(self._unnamed[bdm.uuid])
        return parse_connection_info(
            self._rows[bdm.uuid].connection_info)

    def _disconnect(self, bdm: facts.Bdm,
                    connection_info: dict[str, Any]) -> None:
        driver = self._manager.driver
        encryption = self._encryption(connection_info, bdm.volume_id)
        if domains.is_libvirt(driver):
            # As in libvirt's own hard reboot.  Its detach_volume would delete
            # the secret of an encrypted disk first, and after a later failure
            # Nova would depend on the key manager.
            driver._disconnect_volume(
                self._context, connection_info, self._instance,
                encryption=encryption, destroy_secrets=False, force=True)
        else:
            driver.detach_volume(
                self._context, connection_info, self._instance,
                bdm.device_name or '', encryption=encryption)

    def _asking(self) -> Any:
        return credentials.service_context(self._context)

    def _sharing(self, volume_id: str) -> Mapping[str, Any]:
        """Return the volume as os-brick needs it to decide on its lock."""
        try:
            volume: Mapping[str, Any] = self._deadline.call(
                'asking Cinder how the volume is shared',
                lambda: block_device.DriverVolumeBlockDevice._get_volume(
                    self._asking(), self._manager.volume_api, volume_id))
        except exception.VolumeNotFound:
            # Nothing of it is left in the back end that a scan for another
            # volume could bring back, and the lock's name is unknown.
            return {'shared_targets': False}
        return volume

    def delete_secret(self, connection_info: Mapping[str, Any],
                      volume_id: str | None) -> None:
        """Delete libvirt's secret of a disk, unless another server has it."""
        driver = self._manager.driver
        usage_id = block_device.get_volume_id(connection_info)
        if usage_id and domains.is_libvirt(driver) and (
                not self._neighbours.have_volume(volume_id or '')):
            driver._host.delete_secret('volume', usage_id)

    def _remove_device_metadata(self, volume_id: str | None) -> None:
        # Not the instance of the reboot: saving it would also save changes
        # that Nova is not ready to save.
        instance = objects.Instance.get_by_uuid(
            self._context, self._instance.uuid,
            expected_attrs=['device_metadata'])
        if instance.device_metadata is None:
            return
        tagged = instance.device_metadata.devices
        kept = [device for device in tagged
                if spelling.optional(getattr(device, 'serial', None))
                != volume_id]
        if len(kept) < len(tagged):
            instance.device_metadata = objects.InstanceDeviceMetadata(
                devices=kept)
            instance.save()

    def _encryption(self, connection_info: Mapping[str, Any],
                    volume_id: str | None) -> Mapping[str, Any]:
        if not connection_info.get('data', {}).get('encrypted'):
            return {}
        try:
            metadata: Mapping[str, Any] = self._deadline.call(
                'asking Cinder how the volume is encrypted',
                lambda: encryptors.get_encryption_metadata(
                    self._asking(), self._manager.volume_api, volume_id,
                    connection_info))
        except (exception.VolumeNotFound, cinder_exceptions.NotFound):
            # Only the volume's type would tell, and it is gone with the
            # volume.  Nova uses LUKS since Queens; closing is idempotent.
            return {'provider': 'luks'}
        return metadata


def _serial_of(row: Any) -> str | None:
    """Return the serial of a disk in the guest: the volume that it was."""
    return spelling.optional(parse_connection_info(
        row.connection_info).get('serial') or row.volume_id)


def renew(bdms: Any, rows: Mapping[str, Any]) -> None:
    """Give the objects of a list the attachments that other objects of the
    same rows have.

    :param bdms: a BlockDeviceMappingList
    :param rows: by uuid
    """
    for bdm in bdms:
        row = rows.get(bdm.uuid, bdm)
        for name in ('volume_id', 'attachment_id', 'connection_info'):
            if getattr(bdm, name) != getattr(row, name):
                setattr(bdm, name, getattr(row, name))
                bdm.obj_reset_changes([name])


def _runs(guest: Any) -> bool:
    """Return whether a guest of libvirt runs, or will go on here."""
    state, reason = guest._domain.state()
    return state == _RUNNING or state == _PAUSED and reason in (
        _PAUSED_BY_USER, _PAUSED_BY_ERROR)


def is_migrating(guest: Any) -> bool:
    """Return whether a guest of libvirt has a job, such as a migration."""
    return guest.get_job_info().type in _JOBS_UNDER_WAY


@contextlib.contextmanager
def hold_lock(name: str, deadline: Deadline) -> Iterator[None]:
    """Hold the lock that ``nova.utils.synchronized(name)`` takes.

    :raises TimedOut: when another thread holds it until the deadline
    """
    what = "waiting for Nova's lock of the server"
    deadline.check(what)
    lock = lockutils.internal_lock(name)
    if not lock.acquire(timeout=deadline.remaining):
        raise deadline.exceeded(what)
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def hold_volume_lock(volume_id: str, deadline: Deadline) -> Iterator[None]:
    """Hold the lock that Nova takes to delete a server with the volume.

    Nova 33 and later take it for multiattach volumes: of two servers of a host
    that give up a volume at the same time, one must see that it is the last.
    Nova asks the row; here the row may be gone, so it is held for any volume.

    One cannot wait for such a lock for a limited time, and the thread that
    gets it has to release it.  Hence a thread that is left behind; it releases
    the lock at once if it gets it too late.

    :raises TimedOut: when Nova holds it until the deadline
    """
    if not hasattr(utils, 'FairLockGuard'):
        yield
        return
    what = "waiting for Nova's lock of the volume"
    deadline.check(what)
    is_held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with utils.FairLockGuard(['multi_attach_volume_%s' % volume_id]):
            is_held.set()
            is_over.wait()

    thread = threading.Thread(target=hold, name='bdm-cleanup', daemon=True)
    thread.start()
    try:
        if not is_held.wait(deadline.remaining):
            raise deadline.exceeded(what)
        yield
    finally:
        is_over.set()


def mapping_of(row: Any) -> facts.Bdm:
    """Return a row of Nova's block device mappings as the rules take it."""
    connection_info = parse_connection_info(row.connection_info)
    return facts.Bdm(
        uuid=row.uuid,
        source_type=row.source_type,
        destination_type=row.destination_type,
        # The row of a boot volume has the id as the user wrote it.
        volume_id=spelling.optional(row.volume_id),
        attachment_id=spelling.optional(row.attachment_id),
        boot_index=row.boot_index,
        device_name=row.device_name,
        has_connection_info=row.connection_info not in _NEVER_CONNECTED,
        created_at=row.created_at,
        updated_at=row.updated_at,
        addresses=addresses_in(connection_info),
        back_end_name=name_in(connection_info),
        path=path_in(connection_info),
        is_multiattach=bool(connection_info.get('multiattach')))


def _plain(value: Any) -> Any:
    """Return a field's value in a type of JSON."""
    return value if isinstance(
        value, (str, int, float, bool, type(None))) else str(value)
