# SPDX-License-Identifier: Apache-2.0
"""The common base of the ``openstack bdm`` commands."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
import contextlib
import datetime
import itertools
import logging
import shutil
import sys
import textwrap
import threading
import time
from typing import Any, Callable

from osc_lib.command import command

from nova_bdm_cleanup import terminal
from nova_bdm_cleanup.client.cloud.changes import Result
from nova_bdm_cleanup.client.cloud.findings import (
    Advice,
    CommandLine,
    Instruction,
)
from nova_bdm_cleanup.client.cloud.inspection import Cloud
from nova_bdm_cleanup.client.cloud.placement import PluginHosts
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.api import Budget
from nova_bdm_cleanup.rules.facts import Policy
from nova_bdm_cleanup.terminal import ExitCode

LOG = logging.getLogger(__name__)

#: A terminal needs no more than this many lines a second.
_INTERVAL = 0.1

#: A step that ends earlier needs no line.
_PATIENCE = 1.0

#: An API that answers within these seconds is not slow.
_SILENCE = 5.0

#: How far the lines below a table are indented at most.
_MAX_INDENT = 4

#: The columns with free text, and the least to which they are cut.
_NAMES = ('Server Name', 'Volume Name')
_LEAST_NAME = 8

#: The width from which a terminal counts as wide.
_WIDE = 110

#: The cells whose parts are shown in several places.
_PARTED = (Instruction, Advice, Result)

#: The output of a command: its columns, and the cells of each row.
Rows = tuple[Sequence[str], Iterable[Sequence[Any]]]


class Progress:
    """The progress of a long command, on a terminal only.

    One line on standard error that is overwritten.
    """

    def __init__(self, stream: Any = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._shown = self._stream.isatty()
        self._next = clock() + _PATIENCE
        self._width = 0
        #: The API that was asked last, and when; None: it is not waited for.
        self._asked: tuple[str, float] | None = None
        # A thread shows a wait.
        self._lock = threading.Lock()

    def __call__(self, what: str, count: int) -> None:
        """Show the current step and its count."""
        if not self._shown or self._clock() < self._next:
            return
        self._next = self._clock() + _INTERVAL
        self._show('%s: %d' % (terminal.printable(what), count))

    def asking(self, api: str) -> None:
        """Note that an API is asked."""
        self._asked = api, self._clock()

    def show_wait(self) -> None:
        """Show how long an API has not answered."""
        asked = self._asked
        if asked and self._clock() - asked[1] >= _SILENCE:
            self._show('waiting for %s, seconds: %d' % (
                asked[0], self._clock() - asked[1]))

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Show waits meanwhile."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(1.0):
                self.show_wait()

        if self._shown:
            threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    def clear(self) -> None:
        """Clear the line for other output."""
        self._asked = None
        with self._lock:
            if self._width:
                self._stream.write('\r' + ' ' * self._width + '\r')
                self._stream.flush()
                self._width = 0

    def _show(self, line: str) -> None:
        with self._lock:
            self._stream.write('\r' + line.ljust(self._width))
            self._stream.flush()
            self._width = len(line)


class Paragraphs(argparse.HelpFormatter):
    """The help formatter that keeps the paragraphs of a description."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return '\n\n'.join(fill(paragraph, width, indent)
                           for paragraph in text.split('\n\n'))


class BdmCommand(command.Lister):
    """The base of the ``bdm`` commands.

    It has the options that limit the requests, and sets the exit code for
    every end of a command; cliff leaves it at 0 or 1.
    """

    exit_code = ExitCode.OK

    #: The columns of a table that must fit a terminal; empty: all.
    short: tuple[str, ...] = ()
    #: The same of a wide terminal; empty: no others.
    wide: tuple[str, ...] = ()
    #: The columns shown below the table, row by row.
    below: tuple[str, ...] = ()
    #: How many findings each row of a table stands for; empty: one.
    counts: Sequence[int] = ()
    #: The last line, on standard error; empty: none.
    last_line = ''
    #: Lines that follow it, and are never broken.
    appendix: Sequence[str] = ()

    #: The exit code where an API does not answer.
    without_answer = ExitCode.PARTLY

    #: The state after an interrupt, in words.
    interrupted = 'interrupted; nothing was changed'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.formatter_class = Paragraphs
        group = parser.add_argument_group('bounds')
        for name, unit, default, text in (
                ('--rate', 'requests', 20,
                 'Average requests per second to each API; more follow after '
                 'a slow answer; 0: no limit'),
                ('--max-requests', 'requests', 20000,
                 'Maximum number of requests; if it is reached, the result is '
                 'incomplete; 0: no limit'),
                ('--grace-period', 'seconds',
                 int(Policy.grace_period.total_seconds()),
                 'How long an unfinished operation counts as in progress'),
                ('--stuck-after', 'seconds',
                 int(Policy.stuck_after.total_seconds()),
                 'How long a volume may be reserved, attaching or detaching '
                 'before it is reported as stuck')):
            group.add_argument(
                name, type=number, metavar='<%s>' % unit, default=default,
                # Expanded here: the documentation shows it as it is.
                help='%s (default: %d)' % (text, default))
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        self.progress = Progress()
        terminal.escape_unknown(self.app.stdout)
        problem: object
        try:
            with self.progress.watched():
                failed: int = super().run(parsed_args)
            return failed or self.exit_code
        except errors.BadInput as exc:
            problem, code = exc, ExitCode.BAD_INPUT
        except (errors.Refused, errors.Conflict) as exc:
            problem, code = self.refusal(exc), ExitCode.REFUSED
        except errors.ApiError as exc:
            problem, code = self.refusal(exc), self.without_answer
        except KeyboardInterrupt:
            problem, code = self.interrupted, ExitCode.INTERRUPTED
        except BrokenPipeError:
            raise
        except OSError as exc:
            problem = terminal.NOT_WRITTEN % (exc.strerror or exc)
            code = ExitCode.PARTLY
        except Exception as exc:
            LOG.debug('where it happened:', exc_info=True)
            problem = '%s: %s (this is a bug; --debug shows where)' % (
                type(exc).__name__, exc)
            code = ExitCode.BROKEN
        self.say(problem)
        return code

    def produce_output(self, args: argparse.Namespace,
                       column_names: Sequence[str],
                       data: Iterable[Sequence[Any]]) -> int:
        """Print the rows.

        Names of servers, and of the hosts of attachments, are free text: they
        must not control a terminal or a spreadsheet.
        """
        shown_as = _AS_IT_IS.get(args.formatter, terminal.printable)
        rows = [list(row) for row in data]
        below: list[str] = []
        self.progress.clear()
        if self.is_for_people(args):
            below = list(self._below(column_names, rows))
            column_names, rows = self._shortened(args, column_names, rows)
        rows = [[shown_as(str(c)) if isinstance(c, (str, *_PARTED)) else c
                 for c in row] for row in rows]
        shown = 0
        if rows or not self.is_for_people(args):
            shown = super().produce_output(args, column_names, rows)
        self.app.stdout.writelines('%s\n' % line for line in below)
        # Flush now, or no error would report a full disk.
        self.app.stdout.flush()
        if self.last_line:
            self.note('%s', self.last_line)
        for line in self.appendix:
            self.note_command(line)
        return shown

    def refusal(self, error: Exception) -> str:
        """Return the last line of a command that has ended early."""
        return str(error)

    def is_for_people(self, args: argparse.Namespace) -> bool:
        """Return whether it is a table without chosen columns."""
        return bool(self.short and args.formatter == 'table'
                    and not args.columns)

    def _shortened(self, args: argparse.Namespace, columns: Sequence[str],
                   rows: list[list[Any]]
                   ) -> tuple[list[str], list[list[Any]]]:
        """Return the columns that fit a terminal, each row numbered."""
        shown = (self.wide if self.wide and _width() >= _WIDE else self.short)
        wanted = [*shown, *(c for c in args.sort_columns if c not in shown)]
        indexes = [columns.index(name) for name in wanted]
        headings = ['#']
        for name in wanted:
            brief = name.split()[-1]
            headings.append(name if name in args.sort_columns
                            or brief in headings else brief)
        lines = [[_ranges(numbers), *(_brief(row[i]) for i in indexes)]
                 for numbers, row in zip(self._numbers(rows), rows)]
        _fit(headings, lines, [wanted.index(name) + 1 for name in _NAMES
                               if name in wanted])
        return headings, lines

    def _numbers(self, rows: Sequence[Sequence[Any]]) -> Iterator[range]:
        """Yield the numbers of the findings of each row, as in a plan."""
        begin = 1
        for count in self.counts or [1] * len(rows):
            yield range(begin, begin + count)
            begin += count

    def _below(self, columns: Sequence[str],
               rows: Sequence[Sequence[Any]]) -> Iterator[str]:
        """Yield the texts too long for a column, each once.

        No command is broken.
        """
        groups: dict[str, dict[tuple[str, ...], list[int]]] = {}
        for numbers, row in zip(self._numbers(rows), rows):
            texts = tuple(self.sentences(dict(zip(columns, row))))
            if texts:
                groups.setdefault(texts[0], {}).setdefault(
                    texts[1:], []).extend(numbers)
        for first, parts in groups.items():
            lead = _ranges(sorted(itertools.chain(*parts.values()))) + '. '
            indent = ' ' * min(len(lead), _MAX_INDENT)
            yield from self.lines_of([first], lead, indent)
            for others, alike in parts.items():
                yield from self.lines_of(
                    others, indent + (
                        _ranges(alike) + ': ' if len(parts) > 1 else ''),
                    indent)

    @staticmethod
    def lines_of(texts: Iterable[str], lead: str,
                 indent: str) -> Iterator[str]:
        """Yield the lines of some texts.

        :param lead: the start of the first one
        """
        for text in texts:
            shown = terminal.printable(text)
            if isinstance(text, CommandLine):
                yield lead + shown
            else:
                yield from textwrap.wrap(
                    shown, _width(),
                    initial_indent=lead, subsequent_indent=indent,
                    break_long_words=False, break_on_hyphens=False)
            lead = indent

    def sentences(self, row: Mapping[str, Any]) -> Iterator[str]:
        """Yield the sentences on one row below the table."""
        for name in self.below:
            if row[name]:
                yield from row[name].lines if isinstance(
                    row[name], _PARTED) else (str(row[name]),)

    def say(self, text: object) -> None:
        """Print a line that the operator must see, also with --quiet."""
        self.progress.clear()
        self.app.stderr.write('%s\n' % self._for_terminal(str(text)))

    def note(self, text: str, *values: object) -> None:
        """Log a line for the operator that is not part of the output."""
        self.progress.clear()
        LOG.warning('%s', self._for_terminal(text % values))

    def note_command(self, line: str) -> None:
        """Log a command to copy after a note; it is never broken."""
        LOG.warning('  %s', terminal.printable(line))

    def _for_terminal(self, text: str) -> str:
        """Wrap a line for a terminal; a file has it on one line."""
        shown = terminal.printable(text)
        return textwrap.fill(
            shown, _width(), subsequent_indent='  ',
            break_long_words=False, break_on_hyphens=False
        ) if self.app.stderr.isatty() else shown

    def connect(self, args: argparse.Namespace) -> Cloud:
        """Create the clients of the APIs."""
        manager = self.app.client_manager
        self.budget = Budget(args.max_requests, self.progress.asking)
        return Cloud(
            manager.bdm_cleanup.nova(self.budget, args.rate),
            manager.bdm_cleanup.cinder(self.budget, args.rate), Policy(
                grace_period=datetime.timedelta(seconds=args.grace_period),
                # A reboot waits until it counts what is shown now.
                settle_time=datetime.timedelta(0),
                stuck_after=datetime.timedelta(seconds=args.stuck_after)),
            manager.session.get_project_id(), self.progress, PluginHosts(
                manager.bdm_cleanup.placement(self.budget, args.rate),
                lambda text: self.note('%s', text)).have)


def _in_a_spreadsheet(text: str) -> str:
    """Return the text so that no spreadsheet takes it for a formula."""
    shown = terminal.printable(text)
    return "'" + shown if text.startswith(
        ('=', '+', '-', '@', '\t', '\r')) else shown


#: The formats for other programs.  JSON and YAML escape control characters
#: themselves.  All others may be shown on a terminal.
_AS_IT_IS: dict[str, Callable[[str], str]] = {
    'csv': _in_a_spreadsheet, 'json': str, 'yaml': str}


def _brief(cell: Any) -> Any:
    """Return what fits a column of a cell."""
    if isinstance(cell, Result):
        return str(cell.status)
    return '-' if cell is None else cell


def _width() -> int:
    """Return the width of the terminal."""
    return shutil.get_terminal_size().columns


def _fit(headings: Sequence[str], lines: Sequence[list[Any]],
         indexes: Collection[int]) -> None:
    """Cut names where a table does not fit the terminal; IDs never are."""
    widths = [max(len(terminal.printable(str(cell))) for cell in column)
              for column in zip(headings, *lines)]
    free = _width() - 1 - 3 * len(widths) - sum(
        width for index, width in enumerate(widths) if index not in indexes)
    names = [widths[index] for index in indexes]
    room = next((room for room in range(max(names, default=0), _LEAST_NAME, -1)
                 if sum(min(room, width) for width in names) <= free),
                _LEAST_NAME)
    for line in lines:
        for index in indexes:
            name = terminal.printable(str(line[index]))
            line[index] = name if len(name) <= room else name[:room - 3] \
                + '...'


def _ranges(numbers: Iterable[int]) -> str:
    """Return ascending numbers such as "1-3, 5"."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ', '.join('-'.join(map(str, ends)) for ends in found)


def several(count: int, what: str) -> str:
    """Return a count of things in words."""
    return '%d %s%s' % (count, what, '' if count == 1 else 's')


def number(text: str) -> int:
    """Parse a whole number, as the type of an option."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError('"%s" is not a whole number' % text)
    return int(text)
