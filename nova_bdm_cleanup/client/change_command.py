# SPDX-License-Identifier: Apache-2.0
"""The base of the commands that change something."""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterable, Iterator, Sequence
import sys
from typing import Any

from nova_bdm_cleanup import terminal
from nova_bdm_cleanup.client import output
from nova_bdm_cleanup.client.cloud import changes, plan_file
from nova_bdm_cleanup.client.cloud.changes import (
    Change,
    Result,
    Results,
    Status,
)
from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.terminal import ExitCode

#: The end of the last line, where it is so.
_UNCHANGED = 'nothing was changed'


class ChangeCommand(output.BdmCommand):
    """A command that shows changes, asks, makes them and shows the results."""

    #: The verb and the object of the change.
    verb = ''
    thing = ''

    #: The columns of the results, and those of the question: the rows are
    #: grouped by the first one.
    columns: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()

    # It ends early only before it has changed anything.
    without_answer = ExitCode.REFUSED

    def row(self, result: Result) -> tuple[Any, ...]:
        """Return the cells of the columns."""
        raise NotImplementedError

    def explanation(self, result: Result) -> Iterable[str]:
        """Return why the change is to be made."""
        raise NotImplementedError

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--plan', metavar='<file>',
            help='A file with the output of "bdm audit -f json"; findings '
                 'that are resolved or have changed since are skipped; -: '
                 'standard input')
        parser.add_argument(
            '--finding', metavar='<number>', type=output.number,
            action='append', default=[],
            help='Only this finding of the plan, by its number in the '
                 'table of the audit or its place in the file; may be '
                 'repeated')
        parser.add_argument(
            '--host', metavar='<host>',
            help='Only the findings of the plan on this compute host')
        group = parser.add_mutually_exclusive_group()
        group.add_argument('--dry-run', action='store_true',
                           help='Only show the actions')
        group.add_argument('--yes', action='store_true', help='Do not ask')
        parser.add_argument(
            '--max', metavar='<number>', type=output.number, default=10,
            help='Do nothing if there are more %ss than this (default: 10)'
                 % self.thing)
        parser.add_argument(
            '--keep-going', action='store_true',
            help='Do not stop at the first failure')
        return parser

    def refusal(self, error: Exception) -> str:
        words = str(error)
        return words if _UNCHANGED in words else words + '; ' + _UNCHANGED

    def read_plan(self, args: argparse.Namespace
                  ) -> tuple[CloudFinding, ...]:
        """Return the chosen findings of the plan, if one is given."""
        if args.plan:
            return plan_file.read_plan(args.plan, args.finding, args.host)
        if args.finding or args.host:
            raise errors.BadInput('--finding and --host choose from a plan: '
                                  'give --plan')
        return ()

    def announce(self, args: argparse.Namespace,
                 todo: Sequence[Any]) -> None:
        """Print what the operator must know before the changes."""

    def need_terminal(self, args: argparse.Namespace) -> None:
        """Require a terminal to ask on, before anything else is done."""
        if not (args.yes or args.dry_run) and (
                args.plan == '-' or not sys.stdin.isatty()):
            raise errors.BadInput(
                'No terminal to ask on: give --yes, or --dry-run')

    def carry_out(self, args: argparse.Namespace, todo: Sequence[Change],
                  known: Iterable[Result], at_once: int = 0) -> output.Rows:
        """Show the changes, ask, and make them.

        :param known: results of the changes that are not to be made
        :param at_once: how many to make at a time; 0: any number
        :returns: the columns and the rows of the results
        """
        results = list(known)
        planned = [r for change in todo
                   for r in change.for_all(Status.PLANNED)]
        made = Results([])
        count = output.several(len(todo), self.thing)
        if len(todo) > args.max and not args.dry_run:
            raise errors.Refused('%s to do, and --max allows %d' % (
                count, args.max))
        self.progress.clear()
        self.announce(args, todo)
        self.app.stderr.writelines(self._preview(planned))
        if args.dry_run:
            results += planned
            if len(todo) > args.max:
                self.note('It needs --max %d', len(todo))
        elif todo:
            if not args.yes:
                self._ask('%s %s? [y/N] ' % (self.verb, count))
            made = changes.make_all(
                todo, args.keep_going, self.progress, at_once)
            results += made.each
        self._sum_up(results, made)
        self.exit_code = (
            ExitCode.INTERRUPTED if made.is_interrupted
            else ExitCode.FINDINGS if args.dry_run and todo
            else ExitCode.OK if all(r.is_well for r in results)
            else ExitCode.REFUSED if all(
                r.status is Status.REFUSED for r in results)
            else ExitCode.PARTLY)
        return self.columns, [self.row(r) for r in results]

    def _preview(self, planned: Iterable[Result]) -> Iterator[str]:
        """Yield the lines that show the changes before they are made."""
        indexes = [self.columns.index(name) for name in self.asked]
        last = None
        for result in planned:
            first, *cells = (self.row(result)[i] for i in indexes)
            if first != last:
                yield '%s %s\n' % (self.asked[0], first)
            last = first
            yield terminal.columns([cells], indent='  ') + '\n'
            for line in self.lines_of(self.explanation(result), '    ',
                                      '    '):
                yield line + '\n'

    def _ask(self, question: str) -> None:
        self.app.stderr.write(question)
        self.app.stderr.flush()
        try:
            answer = sys.stdin.readline()
        except KeyboardInterrupt:
            self.app.stderr.write('\n')
            raise
        if answer.strip().lower() not in ('y', 'yes'):
            raise errors.Refused(_UNCHANGED)

    def _sum_up(self, results: Sequence[Result], made: Results) -> None:
        counts = collections.Counter(r.status for r in results)
        totals = ', '.join('%d %s' % (counts[s], s) for s in counts)
        if all(status.is_untried for status in counts):
            totals += '; ' + _UNCHANGED
        elif made.is_interrupted:
            totals = 'interrupted: ' + totals
        elif made.is_stopped:
            totals += '; stopped at the failure (--keep-going continues)'
        if results:
            self.interrupted = self.last_line = totals
