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
"""Look, plan, look again, and act on what both looks agree on."""

from __future__ import annotations

import datetime
import time
from typing import (Any, Callable, Dict, FrozenSet, Mapping, Optional,
                    Sequence)

from nova_bdm_cleanup import actions
from nova_bdm_cleanup import audit as audits
from nova_bdm_cleanup import conf
from nova_bdm_cleanup import deadline as deadlines
from nova_bdm_cleanup import journal as journals
from nova_bdm_cleanup.model import Attachment
from nova_bdm_cleanup.model import Bdm
from nova_bdm_cleanup.model import Finding
from nova_bdm_cleanup.model import Plan
from nova_bdm_cleanup.model import Reason
from nova_bdm_cleanup.model import RemoveBdm
from nova_bdm_cleanup.model import Server
from nova_bdm_cleanup.model import Snapshot
from nova_bdm_cleanup.model import Volume
from nova_bdm_cleanup import ports
from nova_bdm_cleanup import rules


def _utcnow() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


class Cleaner:
    """One cleanup of one server.

    :param host: Nova and the hypervisor
    :param cinder: Cinder, as this request sees it
    :param journal: where plans and steps are recorded
    :param audit: where they are logged
    :param policy: what the operator allows
    :param deadline: bounds the whole
    :param now: gives the time, with its time zone
    """

    def __init__(self, host: ports.Host, cinder: ports.Cinder,
                 journal: journals.Journal, audit: audits.Audit,
                 policy: conf.Policy, deadline: deadlines.Deadline,
                 now: Callable[[], datetime.datetime] = _utcnow) -> None:
        self._host = host
        self._cinder = cinder
        self._journal = journal
        self._audit = audit
        self._policy = policy
        self._deadline = deadline
        self._now = now

    def clean(self, server: Server, bdms: Sequence[Bdm],
              report_only: Optional[Reason] = None) -> FrozenSet[str]:
        """Find what is inconsistent at a server and remove what may be.

        Never raises because of Cinder, the host, Nova or the journal.

        :param server: the server as known without asking anybody
        :param bdms: all its block device mappings
        :param report_only: why nothing may be changed this time, if so
        :returns: the uuids of the mappings that Nova must not connect any
            more: those that are gone, and those of which only Nova's own row
            could not be deleted
        """
        try:
            plan = self._plan(server, bdms, report_only)
            if self._policy.observe:
                plan = plan.withhold(Reason.OBSERVE_MODE)
        except Exception as exc:
            self._audit.unknown(actions.reason_of(exc), exc)
            return frozenset()
        self._audit.plan(plan)
        return self._act(plan, server) if plan.due else frozenset()

    def _plan(self, server: Server, bdms: Sequence[Bdm],
              report_only: Optional[Reason] = None) -> Plan:
        """One look.  What only a plan with something to do is worth asking
        Nova for is asked for only then.
        """
        volumes, attachments = self._cinder.look(server.uuid, bdms)

        def decide(server: Server, witness: Optional[bool]) -> Plan:
            return rules.decide(
                Snapshot(server, tuple(bdms), volumes, attachments, witness,
                         self._cinder.sees_all),
                self._policy, self._now())

        plan = decide(server, None)
        if not plan.due:
            return plan
        if report_only is not None:
            return plan.withhold(report_only)
        current = self._host.server()
        if current is None:
            return plan.withhold(Reason.REBOOT_LOST)
        return decide(current, self._witness(volumes))

    def _witness(self, volumes: Mapping[str, Optional[Volume]]
                 ) -> Optional[bool]:
        """Whether Cinder knows a volume that must exist; None: there is none
        but the one in question.
        """
        if not rules.needs_witness(volumes):
            return True
        known = self._host.witnesses()
        if known:
            return self._cinder.knows_any(known)
        # The volumes of this server bear witness for each other.
        return None if len(volumes) == 1 else False

    def _look_again(self, first: Plan, server: Server) -> Plan:
        """The first plan, less every action that is no longer called for."""
        try:
            second = self._plan(server, self._host.bdms())
        except Exception as exc:
            self._audit.unknown(actions.reason_of(exc), exc)
            return first.withhold(actions.reason_of(exc))
        return rules.confirm(first, second)

    def _act(self, plan: Plan, server: Server) -> FrozenSet[str]:
        begun = time.monotonic()
        try:
            entry = self._journal.begin(
                self._record(plan), plan.removals,
                self._policy.max_removals_per_hour)
        except journals.LimitReached:
            self._audit.plan(Plan(plan.due).withhold(Reason.OVER_LIMIT))
            return frozenset()
        except Exception as exc:
            self._audit.unrecorded(exc)
            self._audit.plan(
                Plan(plan.due).withhold(Reason.JOURNAL_UNWRITABLE))
            return frozenset()

        acting = actions.Actions(self._host, self._cinder, entry,
                                 self._audit, self._deadline)
        self._act_in_order(acting, plan, server)
        left = len(plan.due) - acting.completed
        acting.finish('done' if not left else
                      'partly' if acting.completed else 'nothing')
        self._audit.finished(acting.completed, left,
                             time.monotonic() - begun, entry.id)
        return frozenset(acting.released)

    def _act_in_order(self, acting: actions.Actions, plan: Plan,
                      server: Server) -> None:
        try:
            acting.power_off()
        except actions.StepFailed:
            return
        again = self._look_again(plan, server)
        acting.record('second-look', 'done', agreed=len(again.due))
        self._audit.plan(Plan(tuple(
            f for f, before in zip(again.findings, plan.findings)
            if before.is_due and not f.is_due)))
        for finding in again.due:
            try:
                acting.carry_out(finding)
            except actions.StepFailed:
                continue

    def _record(self, plan: Plan) -> Dict[str, Any]:
        """What the journal keeps: all that explaining and undoing needs."""
        return dict(
            self._host.describe(),
            actions=[self._action_record(f) for f in plan.due],
            findings=[_finding_record(f) for f in plan.findings])

    def _action_record(self, finding: Finding) -> Dict[str, Any]:
        record: Dict[str, Any] = {'reason': str(finding.reason),
                                  'explanation': finding.explanation}
        action = finding.action
        if isinstance(action, RemoveBdm):
            record.update(kind='remove-bdm',
                          bdm=dict(self._host.row(action.bdm)),
                          attachments=[_attachment_record(a)
                                       for a in action.attachments])
        elif action is not None:
            record.update(kind='delete-attachment',
                          attachment=_attachment_record(action.attachment))
        return record


def _attachment_record(attachment: Attachment) -> Dict[str, Any]:
    """Without the connection information, which may hold secrets."""
    return {'id': attachment.id, 'volume_id': attachment.volume_id,
            'server_id': attachment.server_id, 'status': attachment.status,
            'connected': attachment.connected}


def _finding_record(finding: Finding) -> Dict[str, Any]:
    return {'reason': str(finding.reason),
            'withheld': str(finding.withheld) if finding.withheld else None,
            'volume': finding.volume_id,
            'attachment': finding.attachment_id,
            'device': finding.device,
            'explanation': finding.explanation}
