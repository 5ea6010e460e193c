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
"""The command ``openstack bdm audit``."""

from __future__ import annotations

import argparse
import collections
import contextlib
import time
from typing import (
    Any,
    Counter,
    Dict,
    Iterable,
    List,
    Optional,
    Sequence,
    Tuple,
)

from osc_lib.command import command

from nova_bdm_cleanup import errors
from nova_bdm_cleanup import exposition
from nova_bdm_cleanup import textfile
from nova_bdm_cleanup.exitcodes import ExitCode
from nova_bdm_cleanup.fleet import audit
from nova_bdm_cleanup.fleet import metrics
from nova_bdm_cleanup.fleet.issues import FleetReason
from nova_bdm_cleanup.fleet.issues import Issue
from nova_bdm_cleanup.fleet.issues import QUIET
from nova_bdm_cleanup.fleet.issues import REMEDIES
from nova_bdm_cleanup.fleet.issues import Remedy
from nova_bdm_cleanup.fleet.page import PageWriter
from nova_bdm_cleanup.fleet.plan_file import PlanWriter
from nova_bdm_cleanup.osc import base

_COLUMNS = ('Server', 'Host', 'Volume', 'Attachment', 'Device', 'Reason',
            'Since', 'Action')
_MORE_COLUMNS = ('Server Name', 'Project', 'Explanation')

#: As many findings of one kind at one server have a row each in a table.
_EACH = 4

_REASONS = sorted(str(r) for r in REMEDIES)
_QUIET = sorted(str(r) for r in QUIET)


class AuditBdm(base.BdmCommand, command.Lister):
    """Find where Nova's and Cinder's records of attached volumes disagree.

    One row for each inconsistency: block device mappings whose volume is
    missing, available or attached elsewhere, attachments that no mapping or
    no server accounts for, volumes that are in use by nobody, mismatches,
    duplicates, and what is stuck. Nothing is changed.

    By default the project of the credentials is audited. Both APIs are read
    page by page; whatever looks wrong is read once more before it is shown.
    If something does not answer, the result is incomplete: standard error
    and the exit code say so.

    Exit codes: 0 nothing was found, 5 something was found, 4 incomplete,
    3 refused, 2 bad input, 255 the command itself failed.
    """

    short: Tuple[str, ...] = ('Server', 'Host', 'Volume', 'Reason')
    below = ('Action', 'Explanation')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        scope = parser.add_mutually_exclusive_group()
        scope.add_argument(
            '--server', metavar='<server>', action='append', default=[],
            help='Audit this server (name or ID); may be repeated. With '
                 '--all-projects, servers of other projects are found too')
        scope.add_argument(
            '--host', metavar='<host>',
            help='Audit the servers of this compute host (administrators)')
        scope.add_argument(
            '--project', metavar='<project-id>',
            help='Audit the project with this ID (administrators)')
        parser.add_argument(
            '--all-projects', action='store_true',
            help='Audit all projects (administrators)')
        parser.add_argument(
            '--thorough', action='store_true',
            help='Look at every server with a volume one by one, instead of '
                 'only at those where the lists disagree. It costs several '
                 'requests per server, and also finds mappings that name '
                 'another attachment of the same volume and server, or none')
        parser.add_argument(
            '--reason', metavar='<reason>', action='append', default=[],
            choices=_REASONS,
            help='Show this reason only; may be repeated. Without it, all '
                 'are shown but %s. Reasons: %s' % (
                     ', '.join(_QUIET), ', '.join(_REASONS)))
        parser.add_argument(
            '--fail-on', metavar='<reason>', action='append', default=[],
            choices=_REASONS + ['none'],
            help='Exit with 5 only if this reason is shown; may be repeated; '
                 'none: never (default: any)')
        parser.add_argument(
            '--long', action='store_true',
            help='Show names, projects and explanations as well, and in a '
                 'table every finding in a row of its own')
        parser.add_argument(
            '--plan', metavar='<file>',
            help='Write what was found into this new file, for bdm release '
                 'and bdm clean')
        parser.add_argument(
            '--report', metavar='<file>',
            help='Write what was found into this new file, as a page for a '
                 'browser that needs no network')
        parser.add_argument(
            '--prometheus', metavar='<file>',
            help='Write how much was found into this file, for the textfile '
                 'collector of node_exporter. It is replaced if it exists, '
                 'and stays as it is when the audit fails or is incomplete')
        return parser

    def take_action(self, args: argparse.Namespace
                    ) -> Tuple[Sequence[str], Iterable[Sequence[Any]]]:
        if args.prometheus is not None:
            try:
                textfile.check(args.prometheus)
            except textfile.TextfileError as exc:
                raise errors.BadInput('metrics file %s' % exc) from exc
        with contextlib.ExitStack() as stack:
            plan = (stack.enter_context(PlanWriter(args.plan))
                    if args.plan else None)
            page = (stack.enter_context(PageWriter(args.report))
                    if args.report else None)
            shown, releases = self._audit(args, plan, page)
        if self.is_for_people(args):
            if args.long:
                self.short = (*_COLUMNS[:-1], *_MORE_COLUMNS[:-1])
                return _COLUMNS + _MORE_COLUMNS, [
                    _row(i, True) for i in shown]
            return _COLUMNS + _MORE_COLUMNS, _summed_up(
                shown, releases, bool(args.all_projects or args.project))
        columns = _COLUMNS + (_MORE_COLUMNS if args.long else ())
        return columns, [_row(i, args.long) for i in shown]

    def _audit(self, args: argparse.Namespace,
               plan: Optional[PlanWriter],
               page: Optional[PageWriter]
               ) -> Tuple[List[Issue], Counter[Optional[str]]]:
        """What is shown, and how much there is to release, by server."""
        scope = audit.Scope(
            servers=tuple(args.server), host=args.host, project=args.project,
            all_projects=args.all_projects, thorough=args.thorough,
            legacy=str(FleetReason.LEGACY_RECORD) in args.reason)
        begun = time.monotonic()
        self.connect(args)
        auditor = audit.Audit(self.nova, self.cinder, base.policy(args),
                              scope, self.progress, base.now,
                              self.project_of_token())
        shown: List[Issue] = []
        hidden = 0
        releases: Counter[Optional[str]] = collections.Counter()
        for issue in auditor.issues():
            releases[issue.server] += issue.remedy is Remedy.RELEASE
            if self._is_shown(issue, args.reason):
                shown.append(issue)
            else:
                hidden += 1
        self._report(auditor, scope, hidden)
        if plan is not None:
            plan.write(shown, bool(auditor.gaps), base.now())
        if page is not None:
            page.write(shown, self._scope(scope), auditor.gaps, base.now())
        failing = [i for i in shown
                   if not args.fail_on or str(i.reason) in args.fail_on]
        if auditor.gaps:
            self.exit_code = ExitCode.PARTLY
        elif failing:
            self.exit_code = ExitCode.FINDINGS
        if args.prometheus is not None:
            self._write_metrics(args, auditor, shown,
                                time.monotonic() - begun)
        return shown, releases

    def _write_metrics(self, args: argparse.Namespace, auditor: audit.Audit,
                       shown: Sequence[Issue], seconds: float) -> None:
        if auditor.gaps:
            # Less would be found than there is, and an alert would end.
            self.note('%s is left as it was: the audit is incomplete',
                      args.prometheus)
            return
        reasons = args.reason or [r for r in _REASONS if r not in _QUIET]
        try:
            textfile.write(args.prometheus, exposition.text(
                metrics.AuditMetrics(
                    shown, reasons, auditor.hosts, auditor.size,
                    self.budget.made, base.now(), seconds)))
        except textfile.TextfileError as exc:
            # What was found is shown all the same.
            self.say('metrics file %s' % exc)
            self.exit_code = ExitCode.PARTLY

    @staticmethod
    def _is_shown(issue: Issue, reasons: Sequence[str]) -> bool:
        if reasons:
            return str(issue.reason) in reasons
        return issue.reason not in QUIET

    def _scope(self, scope: audit.Scope) -> str:
        if scope.servers:
            return '%d servers' % len(scope.servers)
        if scope.host:
            return 'host %s' % scope.host
        if scope.all_projects and not scope.project:
            return 'all projects'
        return 'project %s only (--all-projects audits all of them)' % (
            scope.project or self.project_of_token())

    def _report(self, auditor: audit.Audit, scope: audit.Scope,
                hidden: int) -> None:
        """What the table does not say."""
        for gap in auditor.gaps:
            self.say('INCOMPLETE: %s' % gap)
        notes = [self._scope(scope)]
        if any(auditor.size):
            notes.append('%d servers, %d volumes claimed by them, %d '
                         'attachments' % auditor.size)
            if not scope.thorough:
                notes.append('attachment ids of servers that look right are '
                             'not compared (--thorough does)')
        if auditor.legacy and not scope.legacy:
            notes.append('%d of the attachments are from before Queens '
                         '(--reason %s shows those that are in order)' % (
                             auditor.legacy,
                             FleetReason.LEGACY_RECORD))
        if hidden:
            notes.append('%d findings are not shown (--reason shows them)'
                         % hidden)
        notes.append('%d requests to Nova and %d to Cinder' % (
            self.budget.made['Nova'], self.budget.made['Cinder']))
        self.note('Audited: %s', '; '.join(notes))


def _summed_up(issues: Sequence[Issue], releases: Counter[Optional[str]],
               needs_admin: bool) -> List[Tuple[Any, ...]]:
    """The rows, and one only for many of one kind at one server.

    :param releases: how much there is to release, by server
    :param needs_admin: more than the project of the credentials was audited
    """
    kinds: Dict[Any, List[Issue]] = {}
    for issue in issues:
        kinds.setdefault((
            issue.server, issue.host, issue.reason, issue.remedy,
            issue.needs_look,
            issue.remedy is Remedy.PERSON and issue.withheld),
            []).append(issue)
    rows: List[Tuple[Any, ...]] = []
    for alike in kinds.values():
        if len(alike) <= _EACH or not alike[0].server:
            rows += [_row(i, True) for i in alike]
            continue
        first = min(alike, key=lambda i: (i.since is None, i.since))
        count = len(alike)
        action = first.what_to_do
        if first.remedy is Remedy.RELEASE and not first.needs_look:
            # Of every kind: the command does not tell them apart, and does
            # nothing where there is more.
            action = 'openstack bdm release --server %s --max %d' % (
                first.server, releases[first.server])
        elif first.remedy is Remedy.RELEASE:
            action = 'look: openstack bdm audit --long --reason %s%s' % (
                first.reason, ' --all-projects' if needs_admin else '')
        volumes = {i.volume for i in alike}
        row = list(_row(first, True))
        row[2:5] = ['%d volumes' % len(volumes) if len(volumes) > 1
                    else first.volume, '%d attachments' % count, None]
        row[7] = action
        row[10] = '%d findings; --long shows each. The oldest: %s' % (
            count, first.explanation)
        rows.append(tuple(row))
    return rows


def _row(issue: Issue, more: bool) -> Tuple[Any, ...]:
    row: Tuple[Any, ...] = (
        issue.server, issue.host, issue.volume, issue.attachment,
        issue.device, str(issue.reason),
        issue.since and issue.since.strftime('%Y-%m-%dT%H:%M:%SZ'),
        issue.what_to_do)
    if more:
        row += (issue.server_name, issue.project, issue.explanation)
    return row
