# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm audit``."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
import functools
import itertools
import os
from typing import Any, Callable

import prometheus_client

from nova_bdm_cleanup import files
from nova_bdm_cleanup.client import output
from nova_bdm_cleanup.client.cloud import nights, page
from nova_bdm_cleanup.client.cloud.audit import CloudAudit, Scope
from nova_bdm_cleanup.client.cloud.causes import cause_of
from nova_bdm_cleanup.client.cloud.findings import (
    CloudFinding,
    Instruction,
    total,
    Verb,
)
from nova_bdm_cleanup.client.cloud.metrics import AuditResult, mark_incomplete
from nova_bdm_cleanup.client.cloud.plan_file import MOMENT
from nova_bdm_cleanup.client.owners import Claim
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules.reasons import DANGLING, Reason, Remedy
from nova_bdm_cleanup.terminal import ExitCode

#: The columns of a plan are the first ones and the remedy.
COLUMNS = ('Server', 'Host', 'Volume', 'Attachment', 'Device', 'Reason',
           'Since', 'Action', 'Remedy', 'Explanation', 'Breaks',
           'Server Name', 'Project', 'Volume Name', 'Size', 'Project Name',
           'User Name', 'Cluster', 'Namespace', 'Claim', 'Cause')

#: When a volume was changed, for people.
_FOR_PEOPLE = '%Y-%m-%d %H:%M:%S UTC'

#: What Nova alone does not do with such a disk, or only half, or by attaching
#: the disk again: each was tried.
_BREAKS: dict[Reason, str] = dict.fromkeys(
    (*DANGLING, Reason.ROOT_VOLUME_DANGLING),
    'move, shelve, unshelve, evacuate, live migration')

#: Up to this many findings of one kind at one server have a row each.
_EACH = 4

_REPORTED_REASONS = sorted(str(r) for r in Reason if r.remedy)
_QUIET = sorted(str(r) for r in Reason if r.passes)

#: The outputs that may be written into files, and how.
_FILES = {'report': files.REPORT_FILE, 'metrics file': files.METRICS_FILE}


class AuditBdm(output.BdmCommand):
    """Find where Nova's and Cinder's records of attached volumes disagree.

    One row for each inconsistency: block device mappings of volumes that are
    missing, available or attached elsewhere, attachments without a mapping or
    a server, volumes in use without a server, mismatches, duplicates, and
    stuck operations. Nothing is changed.

    By default the project of the credentials is audited. Both APIs are read
    page by page; each suspect is read once more before it is shown.
    If a request is not answered, the result is incomplete: standard error
    and the exit code say so. With "-f json" it prints a plan for "bdm clean"
    and "bdm release".

    Exit codes: 0 nothing was found, 5 something was found, 4 incomplete,
    3 refused, 2 bad input, 255 the command itself failed.
    """

    short: tuple[str, ...] = ('Server Name', 'Volume', 'Reason')
    wide: tuple[str, ...] = ('Server Name', 'Volume', 'Volume Name', 'Size',
                             'Reason')
    below: tuple[str, ...] = ('Action', 'Explanation')
    #: The keys of the findings that an earlier audit did not have.
    new: Collection[tuple[str | None, ...]] = ()
    #: The findings of the last earlier audit that have ended.
    ended: Sequence[CloudFinding] = ()

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
            '--project', metavar='<project>',
            help='Audit this project (name or ID; administrators)')
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
            choices=_REPORTED_REASONS,
            help='Show this reason only; may be repeated. Without it, all but '
                 '%s are shown. Reasons: %s' % (
                     ', '.join(_QUIET), ', '.join(_REPORTED_REASONS)))
        parser.add_argument(
            '--since', metavar='<path>',
            help='Mark the findings that an earlier audit did not have, and '
                 'list those that have ended: a file with the output of its '
                 '"-f json", or a directory of such files with the suffix '
                 '.json; the file that was written last is compared')
        parser.add_argument(
            '--fail-on', metavar='<reason>', action='append', default=[],
            choices=_REPORTED_REASONS + ['none'],
            help='Exit with 5 only if this reason is shown; may be repeated; '
                 'none: never (default: any)')
        parser.add_argument(
            '--long', action='store_true',
            help='In a table, give each finding its own row, and show its '
                 'owner and what may have caused it; other formats always '
                 'do')
        parser.add_argument(
            '--report', metavar='<file>',
            help='Write the findings into this file, as an HTML page that '
                 'loads no other files; with --since, it has a bar for each '
                 'audit. It is replaced if it exists')
        parser.add_argument(
            '--prometheus', metavar='<file>',
            help='Write the number of findings into this file, for the '
                 'textfile collector of node_exporter. It is replaced if it '
                 'exists. If an audit fails or is incomplete, the file keeps '
                 'the earlier numbers, and says so')
        return parser

    def take_action(self, args: argparse.Namespace) -> output.Rows:
        self._check('report', args.report)
        self._check('metrics file', args.prometheus)
        earlier = nights.read_nights(args.since) if args.since else None
        self.cloud = self.connect(args)
        self.scope = Scope(
            servers=tuple(args.server), host=args.host,
            project=args.project
            and self.app.client_manager.bdm_cleanup.owners.id_of_project(
                args.project),
            all_projects=args.all_projects, thorough=args.thorough)
        self.auditor = auditor = CloudAudit(self.cloud, self.scope)
        found = self._find(args)
        # In a table and in a plan, a finding has the same number.
        shown = list(itertools.chain(*_alike(
            i for i in found if _is_shown(i, args.reason))))
        hidden = Counter(str(i.reason) for i in found
                         if not _is_shown(i, args.reason))
        self._report()
        self.last_line = self._last_line(shown, hidden)
        if earlier is not None:
            self._compare(earlier, found, shown)
        if auditor.gaps:
            self.exit_code = ExitCode.PARTLY
        elif any(not args.fail_on or str(i.reason) in args.fail_on
                 for i in shown):
            self.exit_code = ExitCode.FINDINGS
        self._write('report', args.report, lambda: page.render(
            shown, self.last_line, self.app.client_manager.bdm_cleanup.place,
            self._scope(), auditor.gaps, self.cloud.now(), earlier,
            self.ended).encode())
        if auditor.gaps:
            self._note_incomplete(args.prometheus)
        else:
            reasons = args.reason or [
                r for r in _REPORTED_REASONS if r not in _QUIET]
            self._write('metrics file', args.prometheus, lambda: (
                prometheus_client.generate_latest(AuditResult(
                    shown, reasons, auditor.hosts, auditor.size,
                    self.cloud.now()).registry())))
        return self._rows(args, found, shown)

    def _find(self, args: argparse.Namespace) -> list[CloudFinding]:
        try:
            return list(self.auditor.findings())
        except errors.BadInput:
            raise
        except errors.ApiError:
            self._note_incomplete(args.prometheus)
            raise

    def _rows(self, args: argparse.Namespace, found: Sequence[CloudFinding],
              shown: Sequence[CloudFinding]) -> output.Rows:
        extra = ('New',) if args.since else ()
        columns = (*COLUMNS, *extra)
        self.short, self.wide = (*self.short, *extra), (*self.wide, *extra)
        if self.is_for_people(args) and not args.long:
            rows = _summed_up(
                shown, found, bool(args.all_projects or args.project))
            self.counts = [each['Count'] for each in rows]
        else:
            self.below = (*self.below, 'Breaks', 'Owner', 'Cause')
            moment = _FOR_PEOPLE if self.is_for_people(args) else MOMENT
            rows = [{**_row(i, moment), **why}
                    for i, why in zip(shown, self._why(shown))]
        for each in rows:
            each['New'] = each['Key'] in self.new
        return columns, [[r[name] for name in columns] for r in rows]

    def _why(self, shown: Iterable[CloudFinding]
             ) -> Iterator[dict[str, str | None]]:
        """Yield the names of the owners of each finding, and its cause."""
        owners = self.app.client_manager.bdm_cleanup.owners
        last = functools.lru_cache(maxsize=None)(
            self.cloud.nova.last_unsuccessful)
        for number, found in enumerate(shown, 1):
            self.cloud.progress('causes', number)
            try:
                cause = cause_of(found, self.auditor.services, last(
                    found.server) if found.server else None)
            except errors.ApiError as exc:
                # It only says why.
                cause = 'not known: %s' % exc
            yield {'Project Name': owners.project(found.project),
                   'User Name': owners.user(found.user),
                   'Cause': cause or None}

    def sentences(self, row: Mapping[str, Any]) -> Iterator[str]:
        yield from super().sentences({
            **row, 'Owner': _owner(row), **{
                name: row[name] and words + row[name] for name, words in (
                    ('Breaks', 'Breaks without the plugin: '),
                    ('Cause', 'Perhaps the cause: '))}})

    def _compare(self, audits: Sequence[nights.Night],
                 found: Sequence[CloudFinding],
                 shown: Sequence[CloudFinding]) -> None:
        """Note the new and the ended findings since the last audit."""
        before = audits[-1].findings if audits else ()
        earlier = {i.key for i in before}
        self.new = {i.key for i in shown} - earlier
        words = '%d new, %d as before' % (
            len(self.new), len({i.key for i in shown} & earlier))
        if self.auditor.gaps:
            # It may only not have been seen.
            words += '; those that have ended are not known'
        else:
            left = {i.key for i in found}
            self.ended = [i for i in before if i.key not in left]
            words += ', %d ended' % len(self.ended)
            self.appendix = ['ended: %s, server %s, volume %s' % (
                i.reason, i.server or '-', i.volume or '-')
                for i in self.ended]
        self.last_line += ' Since the earlier audit: %s.' % words

    def _check(self, kind: str, path: str | None) -> None:
        """Refuse a file that cannot be written before any request."""
        try:
            if path is not None:
                _FILES[kind].check(path)
        except files.FileError as exc:
            raise errors.BadInput('%s %s' % (kind, exc)) from exc

    def _write(self, kind: str, path: str | None,
               content: Callable[[], bytes]) -> None:
        """Replace a file if it is wanted; the rows are shown in any case."""
        try:
            if path is not None:
                _FILES[kind].replace(path, content())
        except files.FileError as exc:
            self.say('%s %s; it %s' % (
                kind, exc, 'is unchanged' if os.path.exists(path or '')
                else 'was not written'))
            self.exit_code = ExitCode.PARTLY

    def _note_incomplete(self, path: str | None) -> None:
        """Have the metrics say that the last audit was not complete."""
        self._write('metrics file', path, lambda: mark_incomplete(
            files.METRICS_FILE.read(path or '')))

    def _scope(self) -> str:
        scope = self.scope
        if scope.servers:
            return output.several(len(scope.servers), 'server')
        if scope.host:
            return 'host %s' % scope.host
        if scope.all_projects and not scope.project:
            return 'all projects'
        return 'project %s' % (scope.project or self.cloud.project)

    def _report(self) -> None:
        """Report what is down, what was audited, and what was not."""
        down = sorted(name for name, is_down in self.auditor.services.items()
                      if is_down)
        if down:
            self.say('DOWN, which may be the cause of findings: %s'
                     % ', '.join(down))
        for gap in self.auditor.gaps:
            self.say('INCOMPLETE: %s' % gap)
        notes = [self._scope()]
        if any(self.auditor.size):
            notes.append('%s with %s, %s' % tuple(map(
                output.several, self.auditor.size,
                ('server', 'volume', 'attachment'))))
            if not self.scope.thorough:
                notes.append('the attachment IDs of servers without a '
                             'difference were not compared (--thorough '
                             'compares them)')
        notes.append('%s to Nova and %d to Cinder' % (
            output.several(self.budget.made['Nova'], 'request'),
            self.budget.made['Cinder']))
        self.note('Audited: %s', '; '.join(notes))

    def _last_line(self, shown: Sequence[CloudFinding],
                   hidden: Counter[str]) -> str:
        """Return the summary of the findings in one line."""
        words = [total(shown)]
        if not shown and self.auditor.gaps:
            words = ['Nothing was found, and the audit is incomplete']
        elif not shown and self.cloud.cinder.sees_all and not (
                self.scope.needs_admin or self.scope.servers):
            words = ['Nothing in %s; --all-projects audits all'
                     % self._scope()]
        if hidden:
            words.append('not shown: ' + ', '.join(
                '%s %d' % each for each in sorted(hidden.items())))
        return '; '.join(words) + '.'


def _is_shown(finding: CloudFinding, reasons: Sequence[str]) -> bool:
    if reasons:
        return str(finding.reason) in reasons
    return not finding.passes


def _alike(findings: Iterable[CloudFinding]) -> list[list[CloudFinding]]:
    """Return the findings of each kind at each server."""
    kinds: dict[Any, list[CloudFinding]] = {}
    for finding in findings:
        kinds.setdefault((
            finding.server, finding.host, finding.reason, finding.remedy,
            finding.needs_look, finding.is_for_member,
            finding.remedy is Remedy.PERSON and finding.withheld),
            []).append(finding)
    return list(kinds.values())


def _summed_up(findings: Sequence[CloudFinding], found: Iterable[CloudFinding],
               needs_admin: bool) -> list[dict[str, Any]]:
    """Return a row for each finding, but one for many of a kind at a server.

    :param found: all findings, also those not shown
    :param needs_admin: more than the project of the credentials was audited
    """
    releases = Counter(i.server for i in found if i.remedy is Remedy.RELEASE)
    rows: list[dict[str, Any]] = []
    for alike in _alike(findings):
        if len(alike) <= _EACH or not alike[0].server:
            rows += [_row(i, _FOR_PEOPLE) for i in alike]
            continue
        first = min(alike, key=lambda i: (i.since is None, i.since))
        action = first.action
        if first.remedy is Remedy.RELEASE and not first.needs_look:
            # Count every kind: the command does not tell them apart, and does
            # nothing where there are more.
            action = first.action_on('--server %s --max %d' % (
                first.server, releases[first.server]))
        elif first.remedy is Remedy.RELEASE:
            action = Instruction(Verb.LOOK, (
                'openstack bdm audit --long --reason %s%s' % (
                    first.reason, ' --all-projects' if needs_admin else ''),))
        volumes = {i.volume for i in alike}
        rows.append({
            **_row(first, _FOR_PEOPLE), 'Device': None, 'Action': action,
            'Count': len(alike),
            'Attachment': '%d attachments' % len(alike),
            'Volume': '%d volumes' % len(volumes) if len(volumes) > 1
            else first.volume,
            'Explanation': '%d findings; --long shows each. The oldest: %s' % (
                len(alike), first.explanation)})
    return rows


def _row(finding: CloudFinding, since: str) -> dict[str, Any]:
    """Return the cells of a finding by column.

    :param since: how to write when the volume was changed
    """
    label = finding.label
    claim = Claim.of(label.metadata)
    return {
        'Server': finding.server, 'Host': finding.host,
        'Volume': finding.volume, 'Attachment': finding.attachment,
        'Device': finding.device, 'Reason': str(finding.reason),
        'Since': finding.since and finding.since.strftime(since),
        'Action': finding.action, 'Server Name': finding.server_name,
        'Project': finding.project, 'Breaks': _BREAKS.get(finding.reason),
        'Volume Name': label.name or None, 'Size': label.size,
        'Project Name': None, 'User Name': None, 'Cause': None,
        'Cluster': claim.cluster, 'Namespace': claim.namespace,
        'Claim': claim.name,
        'Explanation': finding.explanation, 'Remedy': str(finding.remedy),
        'Key': finding.key, 'Count': 1}


def _owner(row: Mapping[str, Any]) -> str:
    """Return in words whose server and volume a row is about."""
    return ', '.join('%s %s' % (what, value) for what, value in (
        ('server', row['Server']),
        ('project', row['Project Name'] or row['Project']),
        ('user', row['User Name']),
        ('volume', row['Volume Name'] and '%s (%s GiB)' % (
            row['Volume Name'], row['Size'])),
        ('claim', row['Claim'] and '%s/%s' % (
            row['Namespace'], row['Claim'])),
        ('cluster', row['Cluster'])) if value)
