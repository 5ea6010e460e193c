# SPDX-License-Identifier: Apache-2.0
"""The requests of ``nova-bdm-cleanup repair``, carried out in nova-compute.

A thread takes them up, in every mode but ``off``: it asks Nova's lock of a
server for as long as a repair needs, which no periodic task may do.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
import os
import threading
import time
from typing import Any

from nova import context as nova_context, objects
import nova.conf
from oslo_log import log as logging

from nova_bdm_cleanup.node import adoption, options, shutdown
from nova_bdm_cleanup.node.cleanup.log_lines import masked, with_traceback
from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.node.store.spool import Request, Spool
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Finding, Plan
from nova_bdm_cleanup.rules.reasons import Reason

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

#: Seconds between two looks for requests.
_INTERVAL = 1.0

#: The threads by host: a nova-compute that reloads its configuration starts
#: again.
_repairers: MutableMapping[str, Repairer] = {}


def begin(manager: Any) -> None:
    """Begin to take up requests, at the end of the start of nova-compute.

    :param manager: the ComputeManager
    """
    known = _repairers.get(manager.host)
    if known is not None:
        known.stop()
    repairer = _repairers[manager.host] = Repairer(manager)
    threading.Thread(target=repairer.run, name='bdm-cleanup',
                     daemon=True).start()


class Repairer:
    """The repairs in one nova-compute."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._is_stopped = False
        self._spool: Spool | None = None
        #: The last problem of the spool, which is logged once.
        self._problem = ''

    def stop(self) -> None:
        """End the thread at its next look."""
        self._is_stopped = True

    def run(self) -> None:
        """Take up requests until nova-compute shuts down."""
        while not (self._is_stopped or shutdown.has_begun(self._manager)):
            problem = ''
            try:
                self.look()
            except StoreError as exc:
                problem = masked(exc)
            except Exception as exc:
                problem = '%s: %s' % (type(exc).__name__, masked(exc))
            # The thread has no caller that could log it.
            self._complain(problem)
            shutdown.wait(self._manager, _INTERVAL)

    def _complain(self, problem: str) -> None:
        if problem and problem != self._problem:
            LOG.warning('bdm-cleanup: "nova-bdm-cleanup repair" does not work '
                        'now: %s', problem)
        self._problem = problem

    def look(self) -> None:
        """Take up the requests that are there.

        :raises StoreError: when the spool cannot be used
        """
        spool = Spool(options.settings(CONF).store, self._manager.host)
        if (self._spool is None or spool.path != self._spool.path
                # Somebody has removed it.
                or not os.path.isdir(spool.path)):
            spool.make()
            self._spool = spool
        for request in spool.requests(time.time()):
            spool.answer(request, self._carry_out(request))

    def _carry_out(self, request: Request) -> Mapping[str, Any]:
        """Carry a request out; return the answer."""
        server = request.record.get('server')
        try:
            if server is None:
                return {'servers': sorted(
                    objects.InstanceList.get_uuids_by_host(
                        nova_context.get_admin_context(),
                        self._manager.host))}
            return self._repair(spelling.identifier(str(server)),
                                request.record.get('dry_run') is not False)
        except adoption.NotHere as exc:
            return {'problem': 'not here', 'why': str(exc)}
        except adoption.Busy as exc:
            return {'problem': 'busy', 'why': str(exc)}
        except Exception as exc:
            failure = exc
        LOG.warning('bdm-cleanup: a repair of server %s has failed', server,
                    exc_info=with_traceback(failure))
        return {'problem': 'failed', 'why': masked(failure)}

    def _repair(self, server: str, is_dry_run: bool) -> Mapping[str, Any]:
        if is_dry_run:
            plan = adoption.preview(self._manager, server)
            return _answer(plan, 'to adopt', 'to delete')
        if options.settings(CONF).policy.observe:
            return {'problem': 'refused', 'why': '[bdm_cleanup] mode is '
                    'observe, in which only --dry-run works'}
        return _answer(adoption.carry_out(self._manager, server),
                       'adopted', 'deleted')


def _answer(plan: Plan, adopted: str, deleted: str) -> Mapping[str, Any]:
    """Return the findings about a server in types of JSON."""
    def outcome(finding: Finding) -> str:
        if finding.is_due:
            return adopted if finding.is_adoption else deleted
        return str(finding.withheld or 'kept')

    return {'findings': [{
        'volume': finding.volume_id,
        'device': finding.device,
        'attachment': finding.attachment_id,
        'reason': str(finding.reason),
        'outcome': outcome(finding),
        'is_due': finding.is_due,
        'explanation': finding.explanation if not finding.withheld
        else '%s; %s' % (finding.explanation,
                         finding.obstacle or finding.withheld.words),
        'parties': [answer._asdict() for answer in finding.parties]}
        for finding in plan.summed_up().findings
        if finding.reason is not Reason.HEALTHY]}
