# SPDX-License-Identifier: Apache-2.0
"""The other servers of a host, and what they claim.

Three sources show an address: the domains of the hypervisor, the rows of Nova,
and Cinder's answers in operations under way.  Every attach, swap and arrival
is in the last one until a domain or a row of this host shows it: so no actions
or migrations are read, which other projects can make in any number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nova import exception, objects
from oslo_log import log as logging

from nova_bdm_cleanup.node import connections, domains
from nova_bdm_cleanup.node.cleanup.log_lines import masked
from nova_bdm_cleanup.openstack import connection_info
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Address, Bdm, Claim, Claimant, Claims

LOG = logging.getLogger(__name__)

#: The number of servers that are searched for volumes at a time.
_SERVERS_PER_PAGE = 200


class _Row(NamedTuple):
    """A volume of a server of this host, by a row of Nova."""

    server: str
    uuid: str
    volume_id: str
    attachment_id: str | None
    addresses: frozenset[Address]
    is_multiattach: bool

    def has_it(self, disk: Bdm) -> bool:
        """Return whether it names the address of a disk.

        Without an address the volume itself is what the host has.
        """
        return bool(self.addresses & disk.addresses) if disk.addresses \
            else self.volume_id == disk.volume_id


class Neighbours:
    """The other servers, as far as they matter to one of them.

    :param context: an administrator's context
    :param server: the id of the server whose neighbours these are; empty: all
        servers are
    :param host: the compute host
    :param driver: Nova's virt driver
    """

    def __init__(self, context: Any, server: str, host: str,
                 driver: Any) -> None:
        self._context = context
        self._uuid = spelling.identifier(server or '-')
        self._host = host
        self._driver = driver

    def claims(self, disks: Sequence[Bdm]) -> Claims:
        """Return the claims of others on the addresses of some disks, and
        which of them the guest itself has open.
        """
        everyone: list[Claim] = []
        unread: list[str] = []
        # Before the rows: what they show then may be forgotten meanwhile.
        given = connections.given()
        rows: Sequence[_Row] = ()
        try:
            rows = self._rows()
        except Exception as exc:
            unread.append(masked(exc))
            everyone.append(Claim(Claimant.ANY_ROW))
        found: Sequence[domains.Domain] = ()
        try:
            found = domains.domains(self._driver)
        except Exception as exc:
            unread.append(masked(exc))
            everyone.append(Claim(Claimant.ANY_GUEST))
        else:
            shown = {(row.server, address) for row in rows
                     for address in row.addresses}
            shown.update((domain.server, address) for domain in found
                         for address in domain.addresses)
            # A guest that is not known is not gone.
            connections.forget_shown(
                shown, {domain.server for domain in found})
        for failure in unread:
            LOG.debug('What others claim is not all known: %s', failure)
        own = {address for domain in found for address in domain.addresses
               if domain.server == self._uuid}
        return Claims(
            {disk.uuid: (*everyone, *self._claims(disk, rows, found, given))
             for disk in disks},
            frozenset(disk.uuid for disk in disks if disk.addresses & own))

    def _claims(self, disk: Bdm, rows: Iterable[_Row],
                found: Iterable[domains.Domain],
                given: Iterable[connections.Given]) -> Iterator[Claim]:
        # Servers that share a multiattach volume are no rivals for it; the
        # rows of their other disks are.
        shared = {row.uuid: row.server for row in rows if disk.is_multiattach
                  and row.is_multiattach and row.volume_id == disk.volume_id}
        for domain in found:
            if domain.addresses & disk.addresses and domain.server not in (
                    self._uuid, *shared.values()):
                yield Claim(Claimant.GUEST, domain.server)
        for each in given:
            if each.addresses & disk.addresses and each.server != self._uuid \
                    and not (disk.is_multiattach
                             and each.volume_id == disk.volume_id):
                yield Claim(Claimant.OPERATION, each.server, each.volume_id,
                            each.attachment_id)
        for row in rows:
            if row.has_it(disk) and row.uuid != disk.uuid \
                    and row.uuid not in shared:
                yield Claim(
                    Claimant.OWN_ROW if row.server == self._uuid
                    else Claimant.ROW,
                    row.server, row.volume_id, row.attachment_id)

    def _rows(self) -> Sequence[_Row]:
        """Return the connected volumes of all servers of this host."""
        servers = objects.InstanceList.get_uuids_by_host(
            self._context, self._host)
        return [_row(row, found) for row in
                objects.BlockDeviceMappingList.get_by_instance_uuids(
                    self._context, sorted(servers)) if row.is_volume
                for found in [connection_info.parse_connection_info(
                    row.connection_info)] if found]

    def have_volume(self, volume_id: str) -> bool:
        """Return whether another server of this host has a volume, or gets it.

        A row that was never connected does not count.
        """
        if any(each.volume_id == volume_id and each.server != self._uuid
               for each in connections.given()):
            return True
        try:
            rows = objects.BlockDeviceMappingList.get_by_volume(
                self._context, volume_id)
        except exception.VolumeBDMNotFound:
            return False
        # One by one, since lists leave out soft-deleted and hidden servers,
        # which are still connected.
        return any(self._is_here(uuid) for uuid in {
            row.instance_uuid for row in rows
            if connection_info.parse_connection_info(row.connection_info)
            and spelling.identifier(row.instance_uuid) != self._uuid})

    def _is_here(self, uuid: str) -> bool:
        try:
            server = objects.Instance.get_by_uuid(
                self._context, uuid, expected_attrs=[])
        except exception.InstanceNotFound:
            return False
        return spelling.host(server.host) == spelling.host(self._host)

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
            self._context, self._host)) - {self._uuid}
        if here:
            yield sorted(here)
        marker = None
        while True:
            page = objects.InstanceList.get_by_filters(
                self._context, {'deleted': False, 'soft_deleted': True},
                limit=_SERVERS_PER_PAGE, marker=marker, expected_attrs=[])
            others = [server.uuid for server in page
                      if server.uuid not in here | {self._uuid}]
            if others:
                yield others
            if len(page) < _SERVERS_PER_PAGE:
                return
            marker = page[-1].uuid


def _row(row: Any, found: Mapping[str, Any]) -> _Row:
    return _Row(
        spelling.identifier(row.instance_uuid), row.uuid,
        spelling.optional(row.volume_id) or '',
        spelling.optional(row.attachment_id),
        connection_info.addresses_in(found), bool(found.get('multiattach')))
