# SPDX-License-Identifier: Apache-2.0
"""What the commands that change something have in common."""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterable, Sequence
import sys
from typing import Any

from nova_bdm_cleanup import terminal
from nova_bdm_cleanup.client import output
from nova_bdm_cleanup.client.cloud import acts
from nova_bdm_cleanup.client.cloud.acts import Act, Result
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.terminal import ExitCode


class ActingCommand(output.BdmCommand):
    """Shows what is to be done, asks, does it, and tells what came of it."""

    #: What it does with what.
    verb = ''
    thing = ''

    #: Of what came of it, and of the question.
    columns: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()

    def row(self, result: Result) -> tuple[Any, ...]:
        """The cells of these columns."""
        raise NotImplementedError

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--plan', metavar='<file>',
            help='What "bdm audit -f json" printed into this file; what is '
                 'done or has changed since is skipped; -: standard input')
        group = parser.add_mutually_exclusive_group()
        group.add_argument('--dry-run', action='store_true',
                           help='Only show what is to be done')
        group.add_argument('--yes', action='store_true', help='Do not ask')
        parser.add_argument(
            '--max', metavar='<number>', type=output.number, default=10,
            help='Do nothing if there are more %ss than this (default: 10)'
                 % self.thing)
        parser.add_argument(
            '--keep-going', action='store_true',
            help='Do not stop at the first that fails')
        return parser

    def need_terminal(self, args: argparse.Namespace) -> None:
        """Make sure that somebody can be asked, before anything is."""
        if not (args.yes or args.dry_run) and (
                args.plan == '-' or not sys.stdin.isatty()):
            raise errors.BadInput(
                'No terminal to ask on: give --yes, or --dry-run')

    def carry_out(self, args: argparse.Namespace, todo: Sequence[Act],
                  known: Iterable[Result]) -> output.Rows:
        """Show, ask, and do it; the columns and the rows of what came of it.

        :param known: results of what is not to be done
        """
        results = list(known)
        planned = [r for act in todo for r in act.all('planned')]
        interrupted = False
        count = output.several(len(todo), self.thing)
        if args.dry_run:
            results += planned
            if len(todo) > args.max:
                self.note('It takes --max %d', len(todo))
        elif len(todo) > args.max:
            raise errors.Refused('%s to do, and --max allows %d; nothing was '
                                 'changed' % (count, args.max))
        elif todo:
            self.progress.clear()
            asked = [self.columns.index(name) for name in self.asked]
            self.app.stderr.write('%s\n' % terminal.table(
                self.asked, [[self.row(r)[i] for i in asked]
                             for r in planned]))
            if not args.yes:
                self._ask('%s %s? [y/N] ' % (self.verb, count))
            done, interrupted = acts.carry_out(
                todo, args.keep_going, self.progress)
            results += done
        self._sum_up(results, interrupted)
        self.exit_code = (
            ExitCode.INTERRUPTED if interrupted
            else ExitCode.FINDINGS if args.dry_run and todo
            else ExitCode.OK if all(r.is_well for r in results)
            else ExitCode.REFUSED if all(r.word == 'refused' for r in results)
            else ExitCode.PARTLY)
        return self.columns, [self.row(r) for r in results]

    def _ask(self, question: str) -> None:
        self.app.stderr.write(question)
        self.app.stderr.flush()
        try:
            answer = sys.stdin.readline()
        except KeyboardInterrupt:
            self.app.stderr.write('\n')
            raise
        if answer.strip().lower() not in ('y', 'yes'):
            raise errors.Refused('nothing was changed')

    def _sum_up(self, results: Sequence[Result], interrupted: bool) -> None:
        words = collections.Counter(r.word for r in results)
        totals = ', '.join('%d %s' % (words[w], w) for w in words)
        if not set(words) - {'planned', 'refused', 'skipped'}:
            totals += '; nothing was changed'
        elif interrupted:
            totals = 'interrupted: ' + totals
        elif any(r.text == acts.NOT_BEGUN for r in results):
            totals += '; stopped where it failed (--keep-going goes on)'
        if results:
            self.interrupted = self.last_line = totals
