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
"""Nova on this host, as a round of the audit sees it."""

from __future__ import annotations

from typing import Any, Collection, Dict, Iterable, List, Sequence, Tuple

from nova import objects
from nova.compute import vm_states
import nova.conf
from oslo_log import log as logging

from nova_bdm_cleanup import options
from nova_bdm_cleanup.api import Budget
from nova_bdm_cleanup.cinder import BATCH
from nova_bdm_cleanup.cinder import Cinder
from nova_bdm_cleanup.cleanup import triggers
from nova_bdm_cleanup.deadline import Deadline
from nova_bdm_cleanup.plugin import access
from nova_bdm_cleanup.plugin import cleaning
from nova_bdm_cleanup.plugin import host
from nova_bdm_cleanup.plugin import sweeping
from nova_bdm_cleanup.plugin.neighbours import Neighbours
from nova_bdm_cleanup.watch.ports import Inhabitant

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

#: The mappings of so many servers are read at a time.
_PAGE = 200

#: Nothing is known of the disks of a server that is just being made, and
#: those of one that is deleted are about to go.
_PASSING = (vm_states.BUILDING, vm_states.DELETED, vm_states.SOFT_DELETED)


class NovaNode:
    """What ``watch.ports`` asks for.

    :param manager: the ComputeManager
    :param context: an administrator's context
    """

    def __init__(self, manager: Any, context: Any) -> None:
        self._manager = manager
        self._context = context
        self._instances: Dict[str, Any] = {}
        self._budget = Budget()

    def servers(self) -> Iterable[Inhabitant]:
        instances = list(objects.InstanceList.get_by_host(
            self._context, self._manager.host, expected_attrs=['metadata']))
        self._instances = {i.uuid: i for i in instances}
        for start in range(0, len(instances), _PAGE):
            portion = instances[start:start + _PAGE]
            rows: Dict[str, List[Any]] = {i.uuid: [] for i in portion}
            for row in objects.BlockDeviceMappingList.get_by_instance_uuids(
                    self._context, list(rows)):
                rows[row.instance_uuid].append(row)
            for instance in portion:
                is_busy = (instance.task_state is not None
                           or instance.vm_state in _PASSING)
                yield Inhabitant(
                    host.server_of(instance, self._manager.host),
                    tuple(map(host.mapping_of, rows[instance.uuid])),
                    is_busy=is_busy,
                    is_stopped=(not is_busy and
                                instance.vm_state == vm_states.STOPPED))

    def cinder(self) -> Cinder:
        return access.cinder_for_host(
            self._context, Deadline(options.policy(CONF).timeout),
            self._budget)

    def witnesses(self, server: str) -> Iterable[Sequence[str]]:
        return Neighbours(self._context, self._instances[server],
                          self._manager.host).volumes(BATCH)

    def requests(self) -> int:
        return sum(self._budget.made.values())

    def sweep(self, server: str,
              seen: Collection[Tuple[str, str]]) -> None:
        instance = self._instances[server]
        try:
            with sweeping.of(server):
                cleaning.clean(
                    self._manager, self._context, instance,
                    objects.BlockDeviceMappingList.get_by_instance_uuid(
                        self._context, server), triggers.SWEEP, seen)
        except Exception:
            # Others are waiting for their turn.
            LOG.exception('bdm-cleanup failed; %s', triggers.SWEEP.goes_on,
                          instance=instance)
