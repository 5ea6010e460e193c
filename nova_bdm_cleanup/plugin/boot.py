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
"""The start of nova-compute, during which it brings many servers back.

It does so one after the other, and before it does anything else.  So they
share one time limit, and when Cinder does not answer for the first of them,
nobody asks for the others.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator, List, Optional

from nova import objects
from nova.compute import power_state
from nova.compute import vm_states
from oslo_log import log as logging

from nova_bdm_cleanup.cinder import AskedAhead
from nova_bdm_cleanup.cleanup import actions
from nova_bdm_cleanup.cleanup import loglines
from nova_bdm_cleanup.cleanup import triggers
from nova_bdm_cleanup.cleanup.tally import SINCE_START
from nova_bdm_cleanup.deadline import Allowance
from nova_bdm_cleanup.model import Reason
from nova_bdm_cleanup.plugin import guests

LOG = logging.getLogger(__name__)

#: The mappings of so many servers are read at a time.
_PAGE = 200

#: Nova resumes no server in one of these.
_NOT_RESUMED = (vm_states.ERROR, vm_states.SOFT_DELETED, vm_states.DELETED,
                vm_states.BUILDING)

_this_thread = threading.local()


class Boot:
    """What the cleanups of one start of nova-compute share.

    :param manager: the ComputeManager
    :param seconds: how long they may take together
    """

    def __init__(self, manager: Any, seconds: float) -> None:
        self._manager = manager
        self._seconds = seconds
        self.allowance = Allowance(seconds)
        self._ahead: Optional[AskedAhead] = None
        self._obstacle: Optional[Exception] = None
        self._left_out = 0

    def allows(self) -> bool:
        """Whether there is any use in looking at one more server."""
        if self._obstacle is None and self.allowance.left:
            return True
        self._left_out += 1
        return False

    def stop(self, obstacle: Exception) -> None:
        """Cinder was asked in vain: do not ask for the other servers."""
        self._obstacle = self._obstacle or obstacle

    def volumes(self, context: Any) -> AskedAhead:
        """The volumes of all servers that are about to be resumed."""
        if self._ahead is None:
            # Should this fail, each server is asked for by itself.
            self._ahead = AskedAhead(())
            self._ahead = AskedAhead(self._volume_ids(context))
        return self._ahead

    def _volume_ids(self, context: Any) -> List[str]:
        host = self._manager.host
        servers = [
            server.uuid for server in objects.InstanceList.get_by_host(
                context, host, expected_attrs=[])
            if server.power_state == power_state.RUNNING
            and server.task_state is None
            and server.vm_state not in _NOT_RESUMED
            and guests.is_off(self._manager.driver, server)]
        found = []
        for start in range(0, len(servers), _PAGE):
            rows = objects.BlockDeviceMappingList.get_by_instance_uuids(
                context, servers[start:start + _PAGE])
            found += [row.volume_id for row in rows
                      if row.is_volume and row.volume_id]
        return found

    def sum_up(self) -> None:
        """Say how many servers were not looked at, if any."""
        if not self._left_out:
            return
        reason = Reason.TIMED_OUT
        why = 'the %g s of [bdm_cleanup] host_boot_timeout are over' % (
            self._seconds)
        if self._obstacle is not None:
            reason = actions.reason_of(self._obstacle, triggers.HOST_BOOT)
            why = loglines.masked(self._obstacle)
        loglines.LogLines(
            None, None, triggers.HOST_BOOT, SINCE_START).left_out(
            reason, why, self._left_out)


@contextlib.contextmanager
def of(manager: Any, seconds: float) -> Iterator[None]:
    """nova-compute starts, in this thread."""
    boot = _this_thread.boot = Boot(manager, seconds)
    try:
        yield
    finally:
        _this_thread.boot = None
        boot.sum_up()


def current() -> Optional[Boot]:
    """The start of nova-compute that this thread carries out, if any."""
    return getattr(_this_thread, 'boot', None)
