# SPDX-License-Identifier: Apache-2.0
"""The plain text of the commands, and their exit codes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import datetime
import enum
import io
import shutil
import sys
import textwrap
from typing import Any

NOT_WRITTEN = 'the output could not be written: %s'


def printable(text: str) -> str:
    """Return a text on one line that cannot control a terminal."""
    return ''.join(
        c if c.isprintable() else c.encode('unicode_escape').decode()
        for c in text)


def escape_unknown(stream: object) -> None:
    """Have a stream escape the letters that its encoding does not have."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors='backslashreplace')


def clean(value: Any) -> str:
    """Convert a value to such a text; a dash where there is none."""
    return '-' if value is None or value == '' else printable(str(value))


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]],
          indent: str = '') -> str:
    """Return a table with columns as wide as their cells."""
    return columns([headings, *rows], indent)


def columns(lines: Iterable[Sequence[Any]], indent: str = '') -> str:
    """Return the same without headings."""
    cells = [[clean(cell) for cell in line] for line in lines]
    widths: list[int] = [max(map(len, column)) for column in zip(*cells)]
    return '\n'.join(
        indent + '  '.join(cell.ljust(width) for cell, width
                           in zip(line, widths)).rstrip()
        for line in cells)


def fields(lines: Iterable[tuple[str, Any]]) -> str:
    """Return names and values; on a terminal, long values are wrapped."""
    shown = [(name, clean(value)) for name, value in lines]
    room = max(len(name) for name, _ in shown) + 2
    text = columns(shown)
    # The output of a command may be collected before it is printed.
    if sys.__stdout__ is None or not sys.__stdout__.isatty():
        return text
    return '\n'.join(textwrap.fill(
        line, shutil.get_terminal_size().columns,
        subsequent_indent=' ' * room, break_long_words=False,
        break_on_hyphens=False) for line in text.split('\n'))


def moment(seconds: float) -> str:
    """Format a time since the epoch, in UTC as the APIs of OpenStack."""
    return datetime.datetime.fromtimestamp(
        seconds, datetime.timezone.utc).strftime('%Y-%m-%d %H:%M:%S')


class ExitCode(enum.IntEnum):
    """The exit codes of every command."""

    #: Everything asked for was done.
    OK = 0

    #: No error: nothing matches, or the plugin is not active.
    NOTHING = 1

    #: An argument or the configuration is wrong.
    BAD_INPUT = 2

    #: The journal, the credentials or a check forbid it, or an API does not
    #: answer; nothing was changed.
    REFUSED = 3

    #: Some of it was not done or not read, or is not known to be done.
    PARTLY = 4

    #: Something is inconsistent (or would be done), and nothing was changed.
    FINDINGS = 5

    #: The operator interrupted it; 128 and the number of the signal.
    INTERRUPTED = 130

    #: The tool itself broke.
    BROKEN = 255


class CommandError(Exception):
    """Ends the command with one line for the user."""

    def __init__(self, code: ExitCode, text: str) -> None:
        super().__init__(text)
        self.code = code
