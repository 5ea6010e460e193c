# SPDX-License-Identifier: Apache-2.0
"""Nova on this host, as a round of the audit sees it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import itertools
from typing import Any

from nova import exception, objects
from nova.compute import vm_states

from nova_bdm_cleanup.node.audit.rounds import ServerLook
from nova_bdm_cleanup.node.cleanup.triggers import AUDIT
from nova_bdm_cleanup.node.instance_cleanup import InstanceCleanup
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Plan, WitnessAnswer

#: The disks of a server that is being built are not known yet, and those of a
#: deleted server are about to go.
_PASSING = (vm_states.BUILDING, vm_states.DELETED, vm_states.SOFT_DELETED)


class NovaNode:
    """Nova on this host, for an audit round.

    :param manager: the ComputeManager
    :param context: an administrator's context
    """

    def __init__(self, manager: Any, context: Any) -> None:
        self._manager = manager
        self._context = context

    def servers(self) -> Iterable[str]:
        uuids: Iterable[str] = objects.InstanceList.get_uuids_by_host(
            self._context, self._manager.host)
        return uuids

    def look(self, server: str) -> ServerLook | None:
        try:
            instance = objects.Instance.get_by_uuid(
                self._context, server, expected_attrs=[])
        except exception.InstanceNotFound:
            return None
        if (spelling.host(instance.host) != spelling.host(self._manager.host)
                or instance.task_state is not None
                or instance.vm_state in _PASSING):
            return None
        return NovaServer(self._manager, self._context, instance)


class NovaServer:
    """A server of this host, for an audit round."""

    def __init__(self, manager: Any, context: Any, instance: Any) -> None:
        self._manager = manager
        self._context = context
        self._instance = instance
        self._rows = objects.BlockDeviceMappingList.get_by_instance_uuid(
            context, instance.uuid)
        self.volumes: Sequence[str] = sorted(filter(None, {
            spelling.optional(row.volume_id) for row in self._rows}))

    def preview(self) -> Plan:
        cleanup = self._cleanup()
        with cleanup.counted():
            return cleanup.cleaner.preview(cleanup.host.register(self._rows))

    def witness(self) -> WitnessAnswer:
        cleanup = self._cleanup()
        volumes = itertools.chain(self.volumes, cleanup.host.witnesses())
        first = list(itertools.islice(volumes, 2))
        if len(first) < 2:
            return WitnessAnswer.NONE_EXISTS
        return cleanup.cinder.witness(itertools.chain(first, volumes))

    def prove_it_answers(self) -> None:
        self._cleanup().cinder.prove_it_answers()

    def _cleanup(self) -> InstanceCleanup:
        """Return a cleanup, with a time limit that begins now."""
        return InstanceCleanup(
            self._manager, self._context, self._instance, AUDIT)
