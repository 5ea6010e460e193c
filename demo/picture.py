# SPDX-License-Identifier: Apache-2.0
"""The picture in the documentation, drawn from a real run.

The story is played on a pseudo terminal, and some of its chapters are written
as an SVG::

    python3 demo/picture.py doc/source/_static/demo.svg
"""

from __future__ import annotations

import html
import os
import pathlib
import pty
import re
import sys

COLUMNS = 118
#: The chapters in the picture.
CHAPTERS = ('What goes wrong', 'Before the hard reboot', 'The hard reboot',
            'After the hard reboot')
#: A longer chapter is cut.
MAX_LINES_OF_CHAPTER = 24
_COLOURS = {'31': '#ff6b68', '32': '#7ec46d', '33': '#e5c07b',
            '2': '#8a919e'}
_LINE_HEIGHT, _CHARACTER, _MARGIN = 17, 7.83, 16
_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" \
font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13">
<rect width="100%" height="100%" rx="8" fill="#1e2127"/>
{lines}
</svg>
"""


def record(command: list[str]) -> str:
    """Run a command on a terminal and return what it printed.

    :raises SystemExit: when it failed
    """
    output = bytearray()

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 1024)
        output.extend(data)
        return data

    os.environ.update(COLUMNS=str(COLUMNS), TERM='xterm')
    os.environ.pop('NO_COLOR', None)
    status = pty.spawn(command, read)
    if status:
        sys.exit('The story failed; no picture is drawn.')
    return output.decode().replace('\r\n', '\n')


def select(text: str) -> list[str]:
    """Return the lines for the picture, with their colour codes."""
    lines = ['\033[1m$ python3 demo\033[0m']
    for chapter in re.split(r'\n(?=\033\[1m\d+\. )', text)[1:]:
        if any(title in chapter.split('\n', 1)[0] for title in CHAPTERS):
            body = chapter.rstrip().split('\n')
            if len(body) > MAX_LINES_OF_CHAPTER:
                body[MAX_LINES_OF_CHAPTER:] = ['   ...']
            lines += ['', *body]
    return [*lines, '', text.rstrip().split('\n')[-1]]


def draw(line: str, number: int) -> str:
    """Return a line as SVG."""
    y = _MARGIN + (number + 1) * _LINE_HEIGHT
    column = 0
    pieces = []
    colour, weight = '#d7dae0', 'normal'
    for codes, text in re.findall(r'(?:\033\[([0-9;]*)m)?([^\033]*)', line):
        for code in codes.split(';') if codes else ():
            if code == '0':
                colour, weight = '#d7dae0', 'normal'
            elif code == '1':
                weight = 'bold'
            else:
                colour = _COLOURS[code]
        # Place each cell by its column: the width of a font is not known.
        for cell in re.finditer(r'\S+(?: \S+)*', text):
            x = _MARGIN + (column + cell.start()) * _CHARACTER
            pieces.append(
                f'<text x="{x:.1f}" y="{y}" fill="{colour}" '
                f'font-weight="{weight}" '
                f'textLength="{len(cell.group()) * _CHARACTER:.1f}">'
                f'{html.escape(cell.group())}</text>')
        column += len(text)
    return ''.join(pieces)


def main() -> None:
    """Play the story and write the picture."""
    demo = str(pathlib.Path(__file__).resolve().parent)
    lines = select(record([sys.executable, demo]))
    pathlib.Path(sys.argv[1]).write_text(_SVG.format(
        width=round(2 * _MARGIN + COLUMNS * _CHARACTER),
        height=2 * _MARGIN + len(lines) * _LINE_HEIGHT,
        lines='\n'.join(draw(line, number)
                        for number, line in enumerate(lines))))


if __name__ == '__main__':
    main()
