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
"""What the other servers of a host need, as Nova's rows tell it.

Where the rows prove something, the answer is yes or no.  Where they do not,
because a server is just moving and its rows may already be, or still be, those
of another host, there is no answer: :class:`Undecided` is raised, and nothing
is done that would need one.
"""

from __future__ import annotations

import datetime
from typing import (
    Any,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Set,
)

from nova import exception
from nova import objects
from nova.compute import task_states
from oslo_utils import timeutils

from nova_bdm_cleanup.cleanup.ports import Undecided
from nova_bdm_cleanup.plugin import addresses
from nova_bdm_cleanup.plugin import swaps

#: In these a server is on its way from one host to another, or its disks are
#: being connected anew.
_MOVING = frozenset((
    task_states.MIGRATING, task_states.RESIZE_PREP,
    task_states.RESIZE_MIGRATING, task_states.RESIZE_MIGRATED,
    task_states.RESIZE_FINISH, task_states.RESIZE_REVERTING,
    task_states.REBUILDING, task_states.REBUILD_BLOCK_DEVICE_MAPPING,
    task_states.REBUILD_SPAWNING, task_states.UNSHELVING,
    task_states.SCHEDULING, task_states.BLOCK_DEVICE_MAPPING,
    task_states.NETWORKING, task_states.SPAWNING))

#: Nova connects a volume within this time after it made the mapping, and
#: writes down only then where.
_CONNECTING = datetime.timedelta(minutes=5)

#: So many servers of a cell are searched for volumes at a time.
_PAGE = 200


class Neighbours:
    """The other servers, as far as they matter to one of them.

    :param context: an administrator's context
    :param instance: the server whose neighbours these are
    :param host: the compute host
    """

    def __init__(self, context: Any, instance: Any, host: str) -> None:
        self._context = context
        self._instance = instance
        self._host = host

    def have_volume(self, volume_id: str) -> bool:
        """Whether another server on this host has a volume.

        :raises Undecided: when one that is moving has it
        """
        try:
            rows = objects.BlockDeviceMappingList.get_by_volume(
                self._context, volume_id)
        except exception.VolumeBDMNotFound:
            return False
        # One by one, since lists leave out servers that are soft-deleted or
        # hidden, and these are connected all the same.
        users = [user for user in map(self._server, {
            row.instance_uuid for row in rows} - {self._instance.uuid})
            if user is not None]
        if any(user.host == self._host for user in users):
            return True
        for user in users:
            if user.task_state in _MOVING:
                raise Undecided(
                    'server %s has the volume, too, is %s and may be on its '
                    'way to this host' % (user.uuid, user.task_state))
        return False

    def have_address(self, volume_id: Optional[str],
                     ours: FrozenSet[addresses.Address]) -> bool:
        """Whether a volume other than this has one of some addresses here.

        :raises Undecided: when a server is moving to or from this host, or
            swaps a volume
        """
        if not ours:
            return False
        here = {server.uuid: server for server in
                objects.InstanceList.get_by_host(
                    self._context, self._host, expected_attrs=[])}
        moving = {uuid for uuid, server in here.items()
                  if server.task_state in _MOVING}
        moving |= set(self._migrating(here))
        moving |= set(self._swapping(here.keys() - moving))
        rows = [row for row in
                objects.BlockDeviceMappingList.get_by_instance_uuids(
                    self._context, sorted(moving | here.keys()))
                if row.is_volume and row.volume_id != volume_id]
        settled = [row for row in rows if row.instance_uuid not in moving]
        if any(ours & addresses.of(addresses.parse(row.connection_info))
               for row in settled):
            return True
        for row in rows:
            if row.instance_uuid in moving and _may_have_address(row):
                raise Undecided(
                    'server %s is moving, or swaps a volume, and nobody can '
                    'tell which addresses its disks have on this host'
                    % row.instance_uuid)
        for row in settled:
            if _is_being_connected(row):
                raise Undecided(
                    'volume %s is being attached to server %s on this host, '
                    'and has no address yet' % (row.volume_id,
                                                row.instance_uuid))
        return False

    def volumes(self, size: int) -> Iterator[Sequence[str]]:
        """The volumes of all other servers, so many at a time.

        Those of this host come first.
        """
        seen: Set[str] = set()
        waiting: List[str] = []
        for servers in self._servers():
            for row in objects.BlockDeviceMappingList.get_by_instance_uuids(
                    self._context, servers):
                if row.is_volume and row.volume_id not in seen | {None}:
                    seen.add(row.volume_id)
                    waiting.append(row.volume_id)
            while len(waiting) >= size:
                yield tuple(waiting[:size])
                del waiting[:size]
        if waiting:
            yield tuple(waiting)

    def _servers(self) -> Iterator[List[str]]:
        """All other servers of the cell, those of this host first."""
        here = set(objects.InstanceList.get_uuids_by_host(
            self._context, self._host)) - {self._instance.uuid}
        if here:
            yield sorted(here)
        marker = None
        while True:
            page = objects.InstanceList.get_by_filters(
                self._context, {'deleted': False, 'soft_deleted': True},
                limit=_PAGE, marker=marker, expected_attrs=[])
            others = [server.uuid for server in page
                      if server.uuid not in here | {self._instance.uuid}]
            if others:
                yield others
            if len(page) < _PAGE:
                return
            marker = page[-1].uuid

    def _swapping(self, servers: Iterable[str]) -> Iterator[str]:
        """Servers with a swap of volumes that has not ended."""
        for uuid in servers:
            if uuid != self._instance.uuid and swaps.may_hide_a_disk(
                    self._context, uuid):
                yield uuid

    def _migrating(self, here: Any) -> Iterator[str]:
        """Servers with a migration between this host and another one."""
        for migration in (
                objects.MigrationList.get_in_progress_by_host_and_node(
                    self._context, self._host, self._instance.node)):
            uuid = migration.instance_uuid
            server = here.get(uuid) or self._server(uuid)
            # Records of migrations that failed can stay for ever.
            if server is not None and server.task_state in _MOVING:
                yield uuid

    def _server(self, uuid: str) -> Optional[Any]:
        try:
            return objects.Instance.get_by_uuid(
                self._context, uuid, expected_attrs=[])
        except exception.InstanceNotFound:
            return None


def _may_have_address(row: Any) -> bool:
    """Unless its disk is known to be of a kind that has none."""
    connection_info = addresses.parse(row.connection_info)
    return not connection_info or bool(addresses.of(connection_info))


def _is_being_connected(row: Any) -> bool:
    return (bool(row.attachment_id) and row.connection_info is None
            and row.created_at is not None
            and timeutils.utcnow(with_timezone=True) - row.created_at
            < _CONNECTING)
