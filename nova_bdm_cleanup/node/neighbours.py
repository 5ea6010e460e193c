# SPDX-License-Identifier: Apache-2.0
"""The other servers of a host, and what Nova's rows say of their disks.

While a server is moving, its rows may already be, or still be, those of
another host, and while a volume is attached, its row has no address yet.
Before a removal these are checked, and the removal does not go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
import datetime
from typing import Any, Callable, NamedTuple

from nova import exception, objects
from nova.compute import instance_actions, task_states, vm_states
from oslo_log import log as logging
from oslo_utils import timeutils

from nova_bdm_cleanup.node import devices, operations
from nova_bdm_cleanup.node.cleanup.ports import Undecided
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Claim

LOG = logging.getLogger(__name__)

#: In these states a server moves between hosts, or its disks are being
#: connected again.
_MOVING = frozenset((
    task_states.MIGRATING, task_states.RESIZE_PREP,
    task_states.RESIZE_MIGRATING, task_states.RESIZE_MIGRATED,
    task_states.RESIZE_FINISH, task_states.RESIZE_REVERTING,
    task_states.REBUILDING, task_states.REBUILD_BLOCK_DEVICE_MAPPING,
    task_states.REBUILD_SPAWNING, task_states.UNSHELVING,
    task_states.SCHEDULING, task_states.BLOCK_DEVICE_MAPPING,
    task_states.NETWORKING, task_states.SPAWNING))

#: Until these states end, the disks are on the host that Nova names.  Nova
#: sets the new host together with the next states, when no disk is left on the
#: old host.
_LEAVING = frozenset((
    task_states.RESIZE_PREP, task_states.RESIZE_MIGRATING))
_LEFT = frozenset((
    task_states.RESIZE_MIGRATED, task_states.RESIZE_FINISH))

#: A volume of a new server is connected within this time after Nova made the
#: mapping.
_CONNECTING = datetime.timedelta(minutes=5)

#: The number of servers that are searched for volumes at a time.
_SERVERS_PER_PAGE = 200


class Disk(NamedTuple):
    """A disk of the server, and where this host has it."""

    volume_id: str | None
    #: Empty if its addresses are not reused.
    addresses: frozenset[devices.Address]


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

    def claims(self, disks: Mapping[str, Disk], is_off: Callable[[Any], bool]
               ) -> dict[str, tuple[Claim, ...]]:
        """Return the rows of this host that name the address of a disk.

        A row of another server also counts if it names the volume.

        :param disks: disks of the server, by the uuid of the row
        :param is_off: asks the hypervisor whether the guest of a server of
            this host is off
        :returns: the other rows, by the same uuid
        """
        servers = self._servers_here()
        return self._claims(disks, is_off, servers, self._rows(servers))

    def complete_claims(self, uuid: str, disk: Disk,
                        is_off: Callable[[Any], bool]
                        ) -> tuple[tuple[Claim, ...], str]:
        """Return the rows that name the address of a disk, and whether there
        may be others.

        Both are of one read: a move that begins between two reads is in
        neither.

        :param uuid: that of the row of the disk
        :returns: the other rows, and why a server may have the disk, or its
            address, without a row; empty: no server has
        """
        gap = ''
        if disk.volume_id:
            try:
                self.have_volume(disk.volume_id)
            except Undecided as exc:
                gap = str(exc)
        servers = self._servers_here()
        moving = self._moving(servers) if disk.addresses else set()
        rows = self._rows(servers)
        if disk.addresses:
            try:
                self._check_addresses(disk.volume_id, rows, moving)
            except Undecided as exc:
                gap = gap or str(exc)
        return self._claims({uuid: disk}, is_off, servers, rows).get(
            uuid, ()), gap

    def _claims(self, disks: Mapping[str, Disk],
                is_off: Callable[[Any], bool], servers: Mapping[str, Any],
                rows: Iterable[Any]) -> dict[str, tuple[Claim, ...]]:
        found: dict[str, list[Claim]] = {}
        for row in rows:
            connection_info = devices.parse_connection_info(
                row.connection_info)
            if not connection_info:
                continue
            addresses = devices.addresses_in(connection_info)
            is_own = row.instance_uuid == self._instance.uuid
            volume_id = spelling.optional(row.volume_id) or ''
            claim = None
            for uuid, disk in disks.items():
                if volume_id == disk.volume_id:
                    names_it = not is_own
                else:
                    names_it = bool(addresses & disk.addresses)
                if names_it and row.uuid != uuid:
                    claim = claim or Claim(
                        spelling.identifier(row.instance_uuid), volume_id,
                        spelling.optional(row.attachment_id),
                        *self._runs(servers[row.instance_uuid], is_off),
                        _is_young(row.updated_at or row.created_at))
                    found.setdefault(uuid, []).append(claim)
        return {uuid: tuple(claims) for uuid, claims in found.items()}

    def _rows(self, servers: Iterable[str]) -> list[Any]:
        """Return the rows of the volumes of some servers."""
        return [row for row in
                objects.BlockDeviceMappingList.get_by_instance_uuids(
                    self._context, sorted(servers)) if row.is_volume]

    def _runs(self, server: Any, is_off: Callable[[Any], bool]
              ) -> tuple[bool, bool]:
        """Return whether the guest of a server runs, and whether it may run.

        It runs unless it is certainly off.  When the host boots, Nova resumes
        what it has as active.
        """
        is_other = server.uuid != self._instance.uuid
        runs = not self._is_here(server) or (
            is_other and server.task_state is not None)
        if not runs:
            try:
                runs = not is_off(server)
            except Exception:
                LOG.debug('The state of the guest is unknown', exc_info=True,
                          instance=server)
                runs = True
        return runs, runs or (
            is_other and server.vm_state == vm_states.ACTIVE)

    def _is_here(self, server: Any) -> bool:
        return spelling.host(server.host) == spelling.host(self._host)

    def have_volume(self, volume_id: str) -> bool:
        """Return whether another server on this host has a volume.

        A mapping that was never connected does not count: a row alone keeps
        no disk here.

        :raises Undecided: when a server that has it is moving, or is just
            getting it
        """
        try:
            rows = objects.BlockDeviceMappingList.get_by_volume(
                self._context, volume_id)
        except exception.VolumeBDMNotFound:
            return False
        others = [row for row in rows
                  if row.instance_uuid != self._instance.uuid]
        # One by one, since lists leave out soft-deleted and hidden servers,
        # which are still connected.
        users = {user.uuid: user for user in map(self._server, {
            row.instance_uuid for row in others}) if user is not None}
        here = [row for row in others if row.instance_uuid in users
                and self._is_here(users[row.instance_uuid])]
        if any(devices.parse_connection_info(row.connection_info)
               for row in here):
            return True
        for user in users.values():
            if user.task_state in _MOVING:
                raise Undecided(
                    'server %s also has the volume, is %s and may be moving '
                    'to this host' % (user.uuid, user.task_state))
        self._check_attaches(here)
        return False

    def _moving(self, servers: Mapping[str, Any]) -> set[str]:
        """Return which other servers are moving or swapping a volume.

        The server itself does not count: its disks are here, or were.
        """
        # Records of failed migrations can stay for ever.
        return {uuid for uuid, server in servers.items()
                if uuid != self._instance.uuid and (
                    server.task_state in _MOVING - (
                        _LEAVING if self._is_here(server) else _LEFT)
                    or self._is_here(server) and operations.may_hide(
                        self._context, instance_actions.SWAP_VOLUME, uuid))}

    def _check_addresses(self, volume_id: str | None, rows: Iterable[Any],
                         moving: Collection[str]) -> None:
        """Check that no server gets an address without a row.

        :raises Undecided: when a server is moving to or from this host, or
            gets or swaps a volume
        """
        others = [row for row in rows
                  if spelling.optional(row.volume_id) != volume_id]
        for row in others:
            if row.instance_uuid in moving and _may_have_address(row):
                raise Undecided(
                    'server %s is moving or swapping a volume, so the '
                    'addresses of its disks on this host are not known'
                    % row.instance_uuid)
        self._check_attaches(
            [row for row in others if row.instance_uuid not in moving])

    def volumes(self) -> Iterator[str]:
        """Yield the volumes of all other servers, those of this host first."""
        seen: set[str] = set()
        for servers in self._servers():
            for row in objects.BlockDeviceMappingList.get_by_instance_uuids(
                    self._context, servers):
                volume_id = spelling.optional(row.volume_id)
                if row.is_volume and volume_id and volume_id not in seen:
                    seen.add(volume_id)
                    yield volume_id

    def _servers(self) -> Iterator[list[str]]:
        """Yield all other servers of the cell, those of this host first."""
        here = set(objects.InstanceList.get_uuids_by_host(
            self._context, self._host)) - {self._instance.uuid}
        if here:
            yield sorted(here)
        marker = None
        while True:
            page = objects.InstanceList.get_by_filters(
                self._context, {'deleted': False, 'soft_deleted': True},
                limit=_SERVERS_PER_PAGE, marker=marker, expected_attrs=[])
            others = [server.uuid for server in page
                      if server.uuid not in here | {self._instance.uuid}]
            if others:
                yield others
            if len(page) < _SERVERS_PER_PAGE:
                return
            marker = page[-1].uuid

    def _check_attaches(self, rows: Iterable[Any]) -> None:
        """Check that Nova is not attaching a volume.

        Nova connects a volume before it records the address.  With the server
        itself it does nothing else meanwhile.

        :raises Undecided: when it may be attaching one
        """
        for row in rows:
            if row.connection_info is None and row.attachment_id and (
                    _is_young(row.created_at)
                    or row.instance_uuid != self._instance.uuid
                    and operations.may_hide(
                        self._context, instance_actions.ATTACH_VOLUME,
                        row.instance_uuid)):
                raise Undecided(
                    'volume %s is being attached to server %s on this host, '
                    'and has no address yet' % (row.volume_id,
                                                row.instance_uuid))

    def _servers_here(self) -> dict[str, Any]:
        """Return the servers of this host, and those that are moving from or
        to it, by uuid.

        The migrations are read twice: one may end, and another begin, while
        the servers are read.
        """
        try:
            nodes = objects.ComputeNodeList.get_all_by_host(
                self._context, self._host)
        except exception.ComputeHostNotFound:
            # It has no node, and so no migration, before its first report.
            nodes = []
        migrating = self._migrating(nodes)
        servers = {server.uuid: server for server in
                   objects.InstanceList.get_by_host(
                       self._context, self._host, expected_attrs=[])}
        migrating |= self._migrating(nodes)
        for uuid in migrating - servers.keys():
            server = self._server(uuid)
            if server is not None and (
                    self._is_here(server)
                    or server.task_state in _MOVING - _LEFT):
                servers[uuid] = server
        return servers

    def _migrating(self, nodes: Iterable[Any]) -> set[str]:
        """Return the servers with a migration from or to this host.

        :param nodes: the compute nodes of this host.  The node of the server
            may be another host's: that of an evacuated one is, when its old
            host is back
        """
        return {migration.instance_uuid for node in nodes for migration in
                objects.MigrationList.get_in_progress_by_host_and_node(
                    self._context, self._host, node.hypervisor_hostname)}

    def _server(self, uuid: str) -> Any | None:
        try:
            return objects.Instance.get_by_uuid(
                self._context, uuid, expected_attrs=[])
        except exception.InstanceNotFound:
            return None


def _may_have_address(row: Any) -> bool:
    """Return False only for a disk of a kind that has no address."""
    connection_info = devices.parse_connection_info(row.connection_info)
    return not connection_info or bool(devices.addresses_in(connection_info))


def _is_young(since: datetime.datetime | None) -> bool:
    """Return whether a row, made or written at some time, is new.

    A server that is just being built has no record of an attach.
    """
    return (since is not None
            and timeutils.utcnow(with_timezone=True) - since < _CONNECTING)
