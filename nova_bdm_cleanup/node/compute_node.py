# SPDX-License-Identifier: Apache-2.0
"""Nova on this host, as a round of the audit sees it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nova import objects
from nova.compute import vm_states

from nova_bdm_cleanup.node import credentials, operations
from nova_bdm_cleanup.node.audit.cinder import AuditCinder
from nova_bdm_cleanup.node.audit.rounds import HostServer
from nova_bdm_cleanup.node.instance import mapping_of, server_of
from nova_bdm_cleanup.node.neighbours import Neighbours
from nova_bdm_cleanup.openstack.api import Api, Budget
from nova_bdm_cleanup.openstack.cinder import NOVA_CONF, VOLUME_MICROVERSION
from nova_bdm_cleanup.openstack.deadline import Deadline
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Move

#: The BDMs of this many servers are read in one query.
_SERVERS_PER_QUERY = 200

#: The disks of a server that is being built are not known yet, and those of a
#: deleted server are about to go.
_PASSING = (vm_states.BUILDING, vm_states.DELETED, vm_states.SOFT_DELETED)


class NovaNode:
    """Nova on this host, for an audit round."""

    def __init__(self, manager: Any, context: Any) -> None:
        self._manager = manager
        self._context = context
        self._instances: dict[str, Any] = {}
        self._budget = Budget()

    def servers(self) -> Iterable[HostServer]:
        instances = list(objects.InstanceList.get_by_host(
            self._context, self._manager.host, expected_attrs=[]))
        self._instances = {spelling.identifier(i.uuid): i for i in instances}
        for start in range(0, len(instances), _SERVERS_PER_QUERY):
            portion = instances[start:start + _SERVERS_PER_QUERY]
            rows: dict[str, list[Any]] = {i.uuid: [] for i in portion}
            for row in objects.BlockDeviceMappingList.get_by_instance_uuids(
                    self._context, list(rows)):
                rows[row.instance_uuid].append(row)
            for instance in portion:
                yield HostServer(
                    server_of(instance, self._manager.host),
                    tuple(map(mapping_of, rows[instance.uuid])),
                    is_busy=(instance.task_state is not None
                             or instance.vm_state in _PASSING))

    def cinder(self, seconds: float) -> AuditCinder:
        return AuditCinder(Api(
            'Cinder', VOLUME_MICROVERSION, lambda: credentials.client(
                credentials.service_context(self._context)).request,
            NOVA_CONF, Deadline(seconds, option='timeout for one request'),
            self._budget))

    def witnesses(self, server: str) -> Iterable[str]:
        return Neighbours(self._context, self._instances[server],
                          self._manager.host).volumes()

    def moves(self, server: str) -> Sequence[Move]:
        return operations.moves(self._context, server)

    def requests(self) -> int:
        return sum(self._budget.made.values())
