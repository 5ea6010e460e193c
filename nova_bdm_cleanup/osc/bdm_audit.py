# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm audit``."""

from __future__ import annotations

import argparse
import collections
from collections import Counter
from collections.abc import Iterable, Sequence
import dataclasses
import time
from typing import Any, Callable

from osc_lib.command import command

from nova_bdm_cleanup import files, prometheus
from nova_bdm_cleanup.files import FileError
from nova_bdm_cleanup.fleet import page
from nova_bdm_cleanup.fleet.audit import FleetAudit, Scope
from nova_bdm_cleanup.fleet.audit_metrics import AuditMetrics
from nova_bdm_cleanup.fleet.issues import (
    FleetReason,
    Issue,
    QUIET,
    REMEDIES,
    Remedy,
)
from nova_bdm_cleanup.fleet.plan_file import MOMENT
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.osc import base
from nova_bdm_cleanup.terminal import ExitCode

_COLUMNS = ('Server', 'Host', 'Volume', 'Attachment', 'Device', 'Reason',
            'Since', 'Action')
_LONG_COLUMNS = (*_COLUMNS, 'Server Name', 'Project', 'Explanation')

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
    and the exit code say so. With "-f json" it prints a plan for "bdm clean"
    and "bdm release".

    Exit codes: 0 nothing was found, 5 something was found, 4 incomplete,
    3 refused, 2 bad input, 255 the command itself failed.
    """

    short: tuple[str, ...] = ('Server', 'Host', 'Volume', 'Reason')
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
            '--report', metavar='<file>',
            help='Write what was found into this file, as a page for a '
                 'browser that needs no network. It is replaced if it exists')
        parser.add_argument(
            '--prometheus', metavar='<file>',
            help='Write how much was found into this file, for the textfile '
                 'collector of node_exporter. It is replaced if it exists, '
                 'and stays as it is when the audit fails or is incomplete')
        return parser

    def take_action(self, args: argparse.Namespace
                    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        for kind, path, check in (
                ('report', args.report, files.check),
                ('metrics file', args.prometheus, prometheus.check)):
            try:
                if path is not None:
                    check(path)
            except FileError as exc:
                raise errors.BadInput('%s %s' % (kind, exc)) from exc
        scope = Scope(
            servers=tuple(args.server), host=args.host, project=args.project,
            all_projects=args.all_projects, thorough=args.thorough,
            legacy=str(FleetReason.LEGACY_RECORD) in args.reason)
        begun = time.monotonic()
        self.connect(args)
        auditor = FleetAudit(
            self.nova, self.cinder, base.policy(args), scope, self.progress,
            base.now, self.project_of_token())
        found = list(auditor.issues())
        shown = [i for i in found if self._is_shown(i, args.reason)]
        self._report(auditor, scope, len(found) - len(shown))
        if auditor.gaps:
            self.exit_code = ExitCode.PARTLY
        elif any(not args.fail_on or str(i.reason) in args.fail_on
                 for i in shown):
            self.exit_code = ExitCode.FINDINGS
        if args.report is not None:
            self._keep('report', lambda: files.write(args.report, page.render(
                shown, self._scope(scope), auditor.gaps, base.now()
            ).encode(), 0o600))
        if args.prometheus is not None:
            self._write_metrics(args, auditor, shown,
                                time.monotonic() - begun)
        if not self.is_for_people(args):
            # Its last column makes it a plan for the other commands.
            columns = (*(_LONG_COLUMNS if args.long else _COLUMNS), 'Remedy')
            return columns, [_row(i, columns) for i in shown]
        if args.long:
            self.short = tuple(c for c in _LONG_COLUMNS
                               if c not in self.below)
            return _LONG_COLUMNS, [_row(i, _LONG_COLUMNS) for i in shown]
        releases = collections.Counter(
            i.server for i in found if i.remedy is Remedy.RELEASE)
        return _LONG_COLUMNS, _summed_up(
            shown, releases, bool(args.all_projects or args.project))

    def _keep(self, kind: str, write: Callable[[], None]) -> None:
        """Write a file; what was found is shown in any case."""
        try:
            write()
        except FileError as exc:
            self.say('%s %s' % (kind, exc))
            self.exit_code = ExitCode.PARTLY

    def _write_metrics(self, args: argparse.Namespace, auditor: FleetAudit,
                       shown: Sequence[Issue], seconds: float) -> None:
        if auditor.gaps:
            # Less would be found than there is, and an alert would end.
            self.note('%s is left as it was: the audit is incomplete',
                      args.prometheus)
            return
        reasons = args.reason or [r for r in _REASONS if r not in _QUIET]
        self._keep('metrics file', lambda: prometheus.write(
            args.prometheus, prometheus.text(AuditMetrics(
                shown, reasons, auditor.hosts, auditor.size,
                self.budget.made, base.now(), seconds))))

    @staticmethod
    def _is_shown(issue: Issue, reasons: Sequence[str]) -> bool:
        if reasons:
            return str(issue.reason) in reasons
        return issue.reason not in QUIET

    def _scope(self, scope: Scope) -> str:
        if scope.servers:
            return '%d servers' % len(scope.servers)
        if scope.host:
            return 'host %s' % scope.host
        if scope.all_projects and not scope.project:
            return 'all projects'
        return 'project %s only (--all-projects audits all of them)' % (
            scope.project or self.project_of_token())

    def _report(self, auditor: FleetAudit, scope: Scope,
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


def _summed_up(issues: Sequence[Issue], releases: Counter[str | None],
               needs_admin: bool) -> list[tuple[Any, ...]]:
    """The rows, and one only for many of one kind at one server.

    :param releases: how much there is to release, by server
    :param needs_admin: more than the project of the credentials was audited
    """
    kinds: dict[Any, list[Issue]] = {}
    for issue in issues:
        kinds.setdefault((
            issue.server, issue.host, issue.reason, issue.remedy,
            issue.needs_look,
            issue.remedy is Remedy.PERSON and issue.withheld),
            []).append(issue)
    rows: list[tuple[Any, ...]] = []
    for alike in kinds.values():
        if len(alike) <= _EACH or not alike[0].server:
            rows += [_row(i, _LONG_COLUMNS) for i in alike]
            continue
        first = min(alike, key=lambda i: (i.since is None, i.since))
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
        rows.append(_row(dataclasses.replace(
            first, device=None, attachment='%d attachments' % len(alike),
            volume='%d volumes' % len(volumes) if len(volumes) > 1
            else first.volume,
            explanation='%d findings; --long shows each. The oldest: %s' % (
                len(alike), first.explanation)), _LONG_COLUMNS, action))
    return rows


def _row(issue: Issue, columns: Iterable[str],
         action: str | None = None) -> tuple[Any, ...]:
    """A finding as a row.

    :param action: instead of that of the finding
    """
    cells = {
        'Server': issue.server, 'Host': issue.host, 'Volume': issue.volume,
        'Attachment': issue.attachment, 'Device': issue.device,
        'Reason': str(issue.reason),
        'Since': issue.since and issue.since.strftime(MOMENT),
        'Action': action or issue.what_to_do,
        'Server Name': issue.server_name, 'Project': issue.project,
        'Explanation': issue.explanation, 'Remedy': str(issue.remedy)}
    return tuple(cells[name] for name in columns)
