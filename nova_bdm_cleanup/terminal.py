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
"""Plain text for people: aligned tables, times, nothing that blinks."""

from __future__ import annotations

import datetime
from typing import Any, Iterable, List, Sequence


def printable(text: str) -> str:
    """A text on one line that cannot control the terminal it is shown on."""
    return ''.join(
        c if c.isprintable() else c.encode('unicode_escape').decode()
        for c in text)


def clean(value: Any) -> str:
    """Any value as such a text; a dash where there is nothing."""
    return '-' if value is None or value == '' else printable(str(value))


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]],
          indent: str = '') -> str:
    """Columns as wide as what is in them."""
    lines = [list(headings)] + [[clean(cell) for cell in row] for row in rows]
    return columns(lines, indent)


def columns(lines: Sequence[Sequence[str]], indent: str = '') -> str:
    """The same without headings."""
    widths: List[int] = [max(map(len, column)) for column in zip(*lines)]
    return '\n'.join(
        indent + '  '.join(cell.ljust(width) for cell, width
                           in zip(line, widths)).rstrip()
        for line in lines)


def moment(seconds: float) -> str:
    """A time since the epoch, in UTC as in the APIs of OpenStack."""
    return datetime.datetime.fromtimestamp(
        seconds, datetime.timezone.utc).strftime('%Y-%m-%d %H:%M:%S')
