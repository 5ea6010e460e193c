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
"""Nova and the hypervisor, as the cleaner sees them.

Only public methods of the virt driver and of Nova's objects are used; Nova's
database is never touched.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, Union

from cinderclient import exceptions as cinder_exceptions
from nova.compute import task_states
from nova import exception
from nova import objects
from nova import version as nova_version
from os_brick import encryptors

from nova_bdm_cleanup import addresses
from nova_bdm_cleanup import cinder
from nova_bdm_cleanup import deadline as deadlines
from nova_bdm_cleanup.model import Attachment
from nova_bdm_cleanup.model import Bdm
from nova_bdm_cleanup.model import Finding
from nova_bdm_cleanup.model import Server
from nova_bdm_cleanup import ports
from nova_bdm_cleanup import version

#: In these a server may be on its way to this host, and its volumes are
#: connected before the server itself is here.
_ARRIVING = frozenset((
    task_states.MIGRATING, task_states.RESIZE_PREP,
    task_states.RESIZE_MIGRATING, task_states.RESIZE_MIGRATED,
    task_states.RESIZE_FINISH, task_states.RESIZE_REVERTING,
    task_states.REBUILDING, task_states.REBUILD_BLOCK_DEVICE_MAPPING,
    task_states.REBUILD_SPAWNING, task_states.UNSHELVING,
    task_states.SCHEDULING, task_states.BLOCK_DEVICE_MAPPING,
    task_states.NETWORKING, task_states.SPAWNING))

#: The connection information of what a cleanup disconnected.  Nova reads an
#: empty object, like in a mapping that was never connected, and leaves the
#: disk out of the guest.  Only the blank, which Nova never writes, tells that
#: it is no attach that has just begun.
_DISCONNECTED = '{ }'

#: So many servers are searched for volumes that Cinder must know.
_WITNESS_SERVERS = 20


class NovaHost:
    """One instance on this compute node: a :class:`ports.Host`.

    :param manager: the ComputeManager
    :param context: the elevated context of the reboot
    :param instance: the Nova instance
    :param deadline: bounds what is asked of Cinder
    """

    def __init__(self, manager: Any, context: Any, instance: Any,
                 deadline: deadlines.Deadline) -> None:
        self._manager = manager
        self._context = context
        self._instance = instance
        self._deadline = deadline
        self._rows: Dict[str, Any] = {}
        self._forgotten: Dict[str, str] = {}

    def known_server(self) -> Server:
        """The server as the reboot request brought it along."""
        return Server(uuid=self._instance.uuid, host=self._manager.host)

    def adopt(self, bdms: Any) -> Tuple[Bdm, ...]:
        """Take over a list of Nova's block device mappings."""
        self._rows = {bdm.uuid: bdm for bdm in bdms}
        return tuple(_bdm(bdm) for bdm in bdms)

    # What the cleaner asks

    def server(self) -> Optional[Server]:
        try:
            instance = objects.Instance.get_by_uuid(
                self._context, self._instance.uuid,
                expected_attrs=['metadata'])
        except exception.InstanceNotFound:
            return None
        if (instance.host != self._manager.host
                or instance.task_state not in task_states.hard_reboot_states):
            return None
        return Server(
            uuid=instance.uuid,
            host=self._manager.host,
            keep=(instance.metadata.get(cinder.KEEP_KEY)
                  == cinder.KEEP_VALUE),
            locked_by_admin=instance.locked_by == 'admin')

    def bdms(self) -> Tuple[Bdm, ...]:
        return self.adopt(objects.BlockDeviceMappingList.get_by_instance_uuid(
            self._context, self._instance.uuid))

    def witnesses(self) -> Sequence[str]:
        return (self._volumes_of(self._servers_here())
                or self._volumes_of(self._servers_anywhere()))

    def used_by_others(self, volume_id: str) -> bool:
        try:
            bdms = objects.BlockDeviceMappingList.get_by_volume(
                self._context, volume_id)
        except exception.VolumeBDMNotFound:
            return False
        users = {bdm.instance_uuid for bdm in bdms}
        users.discard(self._instance.uuid)
        if not users:
            return False
        instances = objects.InstanceList.get_by_filters(
            self._context, {'uuid': list(users), 'deleted': False},
            expected_attrs=[])
        return any(instance.host == self._manager.host
                   or instance.task_state in _ARRIVING
                   for instance in instances)

    def is_reused(self, disk: Union[Bdm, Attachment]) -> bool:
        ours = addresses.of(
            self._connection_info(disk) if isinstance(disk, Bdm)
            else _connection_info_of(disk) or {})
        if not ours:
            return False
        rows = objects.BlockDeviceMappingList.get_by_instance_uuids(
            self._context, list(self._servers_here()))
        return any(ours & addresses.of(json.loads(row.connection_info))
                   for row in rows
                   if row.connection_info and row.volume_id
                   and row.volume_id != disk.volume_id)

    # What the cleaner does

    def claim(self) -> None:
        # At its start nova-compute resumes a reboot that is pending, but not
        # one that was only asked for, and the API left it at that.  Without
        # this a crash from here on leaves the server off for good.
        self._instance.task_state = task_states.REBOOT_PENDING_HARD
        try:
            self._instance.save(
                expected_task_state=task_states.hard_reboot_states)
        except (exception.InstanceNotFound,
                exception.UnexpectedTaskStateError) as exc:
            raise ports.RebootLost(str(exc)) from exc

    def power_off(self) -> None:
        self._manager.driver.power_off(self._instance)

    def disconnect(self, bdm: Bdm) -> None:
        self._detach(self._connection_info(bdm), bdm.volume_id,
                     bdm.device_name)

    def disconnect_attachment(self, attachment: Attachment) -> None:
        connection_info = _connection_info_of(attachment)
        if connection_info is not None:
            self._detach(connection_info, attachment.volume_id, None)

    def forget(self, bdm: Bdm) -> None:
        row = self._rows[bdm.uuid]
        self._forgotten[bdm.uuid] = row.connection_info
        row.connection_info = _DISCONNECTED
        row.save()

    def remember(self, bdm: Bdm) -> None:
        row = self._rows[bdm.uuid]
        row.connection_info = self._forgotten[bdm.uuid]
        row.save()

    def connector(self) -> Mapping[str, Any]:
        connector: Mapping[str, Any] = self._manager.driver \
            .get_volume_connector(self._instance)
        return connector

    def destroy(self, bdm: Bdm) -> None:
        self._rows[bdm.uuid].destroy()

    # What the cleaner tells

    def row(self, bdm: Bdm) -> Mapping[str, Any]:
        row = self._rows[bdm.uuid]
        return {name: _plain(getattr(row, name)) for name in row.fields
                if name not in ('connection_info', 'instance')
                and row.obj_attr_is_set(name)}

    def describe(self) -> Mapping[str, Any]:
        return {'server': self._instance.uuid,
                'project': self._instance.project_id,
                'host': self._manager.host,
                'request_id': self._context.request_id,
                'plugin': version.version(),
                'nova': nova_version.version_string()}

    def report(self, finding: Finding) -> None:
        # The name is the only part of an event that every microversion and
        # every user is shown.
        event = 'bdm_cleanup removed %s (%s)' % (
            'volume %s' % finding.volume_id if finding.bdm
            else 'attachment %s' % finding.attachment_id, finding.reason)
        objects.InstanceActionEvent.event_start(
            self._context, self._instance.uuid, event, want_result=False,
            host=self._manager.host)
        objects.InstanceActionEvent.event_finish(
            self._context, self._instance.uuid, event, want_result=False)

    def _volumes_of(self, uuids: Sequence[str]) -> Sequence[str]:
        """Volumes that other servers have been connected to."""
        others = [uuid for uuid in uuids
                  if uuid != self._instance.uuid][:_WITNESS_SERVERS]
        if not others:
            return ()
        bdms = objects.BlockDeviceMappingList.get_by_instance_uuids(
            self._context, others)
        return tuple(bdm.volume_id for bdm in bdms
                     if bdm.is_volume and bdm.volume_id
                     and bdm.connection_info)

    def _servers_anywhere(self) -> Sequence[str]:
        """The newest servers of the cell, for a host that has no other."""
        instances = objects.InstanceList.get_by_filters(
            self._context, {'deleted': False}, limit=_WITNESS_SERVERS + 1,
            expected_attrs=[])
        return [instance.uuid for instance in instances]

    def _servers_here(self) -> Sequence[str]:
        uuids: Sequence[str] = objects.InstanceList.get_uuids_by_host(
            self._context, self._manager.host)
        return uuids

    def _connection_info(self, bdm: Bdm) -> Dict[str, Any]:
        connection_info: Dict[str, Any] = json.loads(
            self._rows[bdm.uuid].connection_info)
        return connection_info

    def _detach(self, connection_info: Dict[str, Any],
                volume_id: Optional[str], device: Optional[str]) -> None:
        # The driver would ask Cinder how many servers of this host have a
        # multiattach volume, and count wrongly or fail where Cinder no longer
        # attaches it to this one.  Nova's own rows have been asked already.
        connection_info.pop('multiattach', None)
        self._manager.driver.detach_volume(
            self._context, connection_info, self._instance, device or '',
            encryption=self._encryption(connection_info, volume_id))

    def _encryption(self, connection_info: Mapping[str, Any],
                    volume_id: Optional[str]) -> Mapping[str, Any]:
        if not connection_info.get('data', {}).get('encrypted'):
            return {}
        try:
            metadata: Mapping[str, Any] = self._deadline.call(
                'asking Cinder how the volume is encrypted',
                lambda: encryptors.get_encryption_metadata(
                    self._context, self._manager.volume_api, volume_id,
                    connection_info))
        except (exception.VolumeNotFound, cinder_exceptions.NotFound):
            # Only the volume's type would tell, and it is gone with it.  LUKS
            # is what Nova makes since Queens; closing is idempotent.
            return {'provider': 'luks'}
        return metadata


def _bdm(row: Any) -> Bdm:
    return Bdm(
        uuid=row.uuid,
        source_type=row.source_type,
        destination_type=row.destination_type,
        volume_id=row.volume_id,
        attachment_id=row.attachment_id,
        boot_index=row.boot_index,
        device_name=row.device_name,
        has_connection_info=row.connection_info not in (
            None, '', '{}', _DISCONNECTED),
        is_disconnected=row.connection_info == _DISCONNECTED,
        created_at=row.created_at)


def _connection_info_of(attachment: Attachment) -> Optional[Dict[str, Any]]:
    """In Nova's form; None: nothing that a host could act on.

    Cinder stores the driver's data and the type of it side by side; drivers
    and os-brick want them apart.
    """
    data = dict(attachment.connection_info)
    kind = data.pop('driver_volume_type', None)
    if kind is None:
        return None
    return {'driver_volume_type': kind, 'data': data,
            'serial': attachment.volume_id}


def _plain(value: Any) -> Any:
    """A field's value as JSON has it."""
    return value if isinstance(
        value, (str, int, float, bool, type(None))) else str(value)
