# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm clean``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
import sys
from typing import Any

from osc_lib.command import command

from nova_bdm_cleanup.fleet import inspection, plan_file, reboot
from nova_bdm_cleanup.fleet.issues import Issue, Remedy
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.osc import base
from nova_bdm_cleanup.rules.facts import WITHOUT_DISK
from nova_bdm_cleanup.terminal import ExitCode

_COLUMNS = ('Server', 'Host', 'Volume', 'Attachment', 'Device', 'Reason',
            'Result')

Rows = list[tuple[Any, ...]]


class CleanBdm(base.BdmCommand, command.Lister):
    """Hard-reboot servers so that the plugin cleans them.

    Shows what is to be removed, asks, reboots one server after the other,
    waits, and shows what both APIs say afterwards. Servers in ERROR and
    stopped ones are cleaned, too; a stopped server runs afterwards, unless
    --stop-again is given.

    The compute host must have the plugin enabled: a hard reboot without it
    does not remove anything, and may leave the server in ERROR. Servers at
    which a person must look first are refused.

    Exit codes: 6 all was cleaned, 5 there is something to clean (with
    --dry-run), 0 there is nothing, 4 some of it was not cleaned, 3 refused,
    2 bad input, 255 the command itself failed.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('servers', metavar='<server>', nargs='*',
                            help='Server (name or ID)')
        parser.add_argument(
            '--plan', metavar='<file>',
            help='What "bdm audit -f json" printed into this file, if '
                 'nothing of it has changed; -: standard input')
        parser.add_argument(
            '--all-projects', action='store_true',
            help='Find servers by their name in all projects '
                 '(administrators)')
        group = parser.add_mutually_exclusive_group()
        group.add_argument('--dry-run', action='store_true',
                           help='Only show what is to be removed')
        group.add_argument('--yes', action='store_true',
                           help='Do not ask')
        parser.add_argument(
            '--stop-again', action='store_true',
            help='Stop a server again that was stopped before: its guest '
                 'runs for a moment only')
        parser.add_argument(
            '--timeout', metavar='<seconds>', type=base.number(0),
            default=600,
            help='How long to wait for one reboot (default: 600)')
        return parser

    def take_action(self, args: argparse.Namespace
                    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        if bool(args.servers) == bool(args.plan):
            raise errors.BadInput('give servers or --plan')
        self.connect(args)
        self.cinder.prove_admin()
        cleaner = reboot.Rebooter(
            self.nova, inspection.Inspector(
                self.nova, self.cinder, base.policy(args),
                inspection.Witness(self.nova, self.cinder), base.now,
                self.project_of_token()),
            self.progress, args.timeout)
        wanted = (plan_file.read_plan(args.plan, Remedy.CLEAN)
                  if args.plan else ())
        names = ([i.server for i in wanted if i.server] if args.plan else
                 [self.nova.find(name, args.all_projects).id
                  for name in args.servers])
        planned = [cleaner.look(s) for s in dict.fromkeys(names)]
        changed = plan_file.differences(
            wanted, [i for p in planned for i in p.issues])
        if changed:
            raise errors.Refused(
                'the facts have changed since the plan was made: %s; audit '
                'again' % '; '.join(changed))
        self._refuse(planned)
        todo = [p for p in planned if p.issues]
        for plan in planned:
            self._announce(plan, args.stop_again)
        if args.dry_run or not todo:
            if todo:
                self.exit_code = ExitCode.FINDINGS
            return _COLUMNS, [row for p in todo for row in _rows(
                p.issues, {}, 'would be removed')]
        self._ask(args, todo)
        rows: Rows = []
        codes = set()
        for number, plan in enumerate(todo):
            try:
                code, found = self._clean(cleaner, plan, args.stop_again)
            except KeyboardInterrupt:
                # What became of the others must be told all the same.
                codes.add(ExitCode.PARTLY)
                rows += _rows(plan.issues, {}, 'unknown: interrupted')
                rows += [row for p in todo[number + 1:]
                         for row in _rows(p.issues, {}, 'not begun')]
                break
            codes.add(code)
            rows += found
        self.exit_code = codes.pop() if len(codes) == 1 else ExitCode.PARTLY
        return _COLUMNS, rows

    def _refuse(self, planned: Sequence[reboot.RebootPlan]) -> None:
        """All or nothing: one that must not be rebooted stops all."""
        refused = [p for p in planned if p.refusals and (
            p.issues or len(planned) == 1)]
        for plan in refused:
            for why in plan.refusals:
                self.say('server %s: %s' % (plan.server.id, why))
        if refused:
            raise errors.Refused('nothing was changed')

    def _announce(self, plan: reboot.RebootPlan, stop_again: bool) -> None:
        server = plan.server
        for issue in plan.others:
            self.note('Server %s: a reboot does not release volume %s (%s): '
                      '%s', server.id, issue.volume, issue.reason,
                      issue.what_to_do)
        if plan.later:
            self.note('Server %s: %d more stale attachments are left to later '
                      'reboots (over-limit)', server.id, len(plan.later))
        if not plan.issues:
            self.note('Server %s: there is nothing to clean', server.id)
            return
        for issue in plan.issues:
            self.note('Server %s: volume %s, attachment %s, %s: %s', server.id,
                      issue.volume, issue.attachment or '-', issue.reason,
                      issue.explanation)
            if issue.remedy is Remedy.RELEASE:
                self.note('Server %s: no reboot is needed for that: %s',
                          server.id, issue.what_to_do)
        for finding in plan.left_out:
            self.note('Server %s: volume %s (%s) stays, and %s', server.id,
                      finding.volume_id, finding.reason, WITHOUT_DISK)
        self.note('Server %s is hard-rebooted on host %s, whose nova-compute '
                  'must have bdm-cleanup enabled%s', server.id,
                  server.host or '-',
                  '' if server.status != 'SHUTOFF' else
                  '; it is stopped now, and is stopped again when it has '
                  'started' if stop_again else
                  '; it is stopped now and runs afterwards (--stop-again '
                  'stops it again)')

    def _ask(self, args: argparse.Namespace,
             todo: Sequence[reboot.RebootPlan]) -> None:
        if args.yes:
            return
        if not sys.stdin.isatty():
            raise errors.Refused('give --yes where nobody can be asked; '
                                   'nothing was changed')
        self.app.stderr.write('Hard-reboot %d server(s)? [y/N] ' % len(todo))
        self.app.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ('y', 'yes'):
            raise errors.Refused('nothing was changed')

    def _clean(self, cleaner: reboot.Rebooter, plan: reboot.RebootPlan,
               stop_again: bool) -> tuple[ExitCode, Rows]:
        wanted = ('SHUTOFF' if stop_again and plan.server.status == 'SHUTOFF'
                  else 'ACTIVE')
        try:
            status, after = cleaner.run(plan, stop_again)
        except (errors.Refused, errors.Conflict) as exc:
            return ExitCode.REFUSED, _rows(plan.issues, {},
                                           'refused: %s' % exc)
        except errors.ApiError as exc:
            return ExitCode.PARTLY, _rows(plan.issues, {},
                                          'unknown: %s' % exc)
        left = {(i.volume, i.attachment): i for i in after.issues}
        if status != wanted:
            self.say('server %s is %s after the reboot' % (plan.server.id,
                                                           status))
        return (ExitCode.PARTLY if left or status != wanted
                else ExitCode.REPAIRED,
                _rows(plan.issues, left, 'removed'))


def _rows(issues: Iterable[Issue], left: dict[Any, Issue],
          result: str) -> Rows:
    return [(i.server, i.host, i.volume, i.attachment, i.device,
             str(i.reason),
             'still there' if (i.volume, i.attachment) in left else result)
            for i in issues]
