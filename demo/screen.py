# SPDX-License-Identifier: Apache-2.0
"""Text, tables and progress on the screen; without colours when piped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import contextlib
import os
import shutil
import sys
import textwrap
import time

_STYLES = {'bold': '1', 'red': '31', 'green': '32', 'yellow': '33',
           'dim': '2'}


class Screen:
    """Standard output."""

    def __init__(self) -> None:
        self._coloured = sys.stdout.isatty() and not os.environ.get(
            'NO_COLOR')
        self._width = min(shutil.get_terminal_size((120, 40)).columns, 140)
        self._chapters = 0

    def style(self, text: str, *styles: str) -> str:
        """Return the text in these styles, or plain when piped."""
        if not self._coloured or not styles:
            return text
        codes = ';'.join(_STYLES[style] for style in styles)
        return f'\033[{codes}m{text}\033[0m'

    def line(self, text: str = '') -> None:
        """Print a line."""
        print(text, flush=True)

    def heading(self, text: str) -> None:
        """Begin a chapter."""
        self._chapters += 1
        self.line()
        self.line(self.style(f'{self._chapters}. {text}', 'bold'))
        self.line()

    def paragraph(self, text: str) -> None:
        """Print a paragraph."""
        self.line(textwrap.fill(text, self._width - 6,
                                initial_indent='   ',
                                subsequent_indent='   '))

    def item(self, name: str, text: str) -> None:
        """Print an item of a list."""
        indent = ' ' * 14
        # A path must stay in one piece, for copying.
        body = textwrap.fill(text, self._width - 6, initial_indent=indent,
                             subsequent_indent=indent, break_long_words=False,
                             break_on_hyphens=False)
        self.line('   ' + self.style(f'{name:<11}', 'bold') + body[14:])

    def command(self, command: str, output: str = '',
                hanging: bool = False) -> None:
        """Print a command as it would be typed, and its output.

        :param hanging: fold long lines so that their beginnings stand out
        """
        self.line('   ' + self.style(f'$ {command}', 'bold'))
        for line in output.splitlines():
            folded = textwrap.fill(
                line, self._width - 6, subsequent_indent='       ',
                break_on_hyphens=False) if hanging else line
            self.line(f'   {folded}'.rstrip())

    @contextlib.contextmanager
    def progress(self, what: str) -> Iterator[None]:
        """Print what is being done, and then how long it took."""
        started = time.monotonic()
        print(f'   {what} ... ', end='', flush=True)
        try:
            yield
        except BaseException:
            self.line()
            raise
        self.line(self.style(f'{time.monotonic() - started:.1f} s', 'dim'))

    def table(self, header: Sequence[str],
              rows: Sequence[Sequence[tuple[str, str]]]) -> None:
        """Print a table.

        :param header: the titles of the columns
        :param rows: cells of text and style; an empty style is plain
        """
        widths = [max(len(header[column]),
                      *(len(row[column][0]) for row in rows))
                  for column in range(len(header))]
        self.line('   ' + self.style('  '.join(
            title.ljust(width) for title, width in zip(header, widths)
        ).rstrip(), 'bold'))
        self.line('   ' + '  '.join('-' * width for width in widths))
        for row in rows:
            self.line('   ' + '  '.join(
                self.style(text.ljust(width), *filter(None, [style]))
                for (text, style), width in zip(row, widths)).rstrip())
