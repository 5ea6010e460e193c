# SPDX-License-Identifier: Apache-2.0
"""The runbook for a terminal and for a page.

``runbook.rst`` of the package is the only source: the documentation includes
it as it is.
"""

from __future__ import annotations

import functools
import importlib.resources
import re

import nova_bdm_cleanup

#: The start of a section; a reason code is the title of its section.
_TITLE = re.compile(r'^(?:\.\. _[a-z-]+:\n\n)?(\S.*)\n([-=])\2+\n',
                    re.MULTILINE)

#: The markup that only a browser needs, in the order of its removal.
_MARKS: tuple[tuple[str, str], ...] = (
    (r'\.\. _[a-z-]+:\n\n', ''),
    (r'\.\. code-block:: \w+\n\n', ''),
    (r':\w+:`([^`<]+?)\s+<[^>]+>`', r'\1'),
    (r':\w+:`([^`]+)`', r'\1'),
    (r'``([^`]+)``', r'\1'),
    (r'`([^`]+)`_', r'"\1"'),
    (r'(?m)^::\n', ''),
    (r'(?m) +::$', ''),
    (r'(?m)::$', ':'),
)


def reasons() -> list[str]:
    """Return every reason code that has a section."""
    return sorted(t for t in _sections() if re.fullmatch('[a-z-]+', t))


def section(reason: str) -> str:
    """Return a reason code's section, and those that it refers to."""
    sections = _sections()
    text = sections[reason]
    for title in dict.fromkeys(re.findall(r'`([^`<]+)`_', text)):
        text += '\n' + sections[' '.join(title.split())]
    return _plain(text).strip() + '\n'


def meaning(reason: str) -> str:
    """Return the meaning of a reason code, in one sentence."""
    body = _plain(_sections()[reason]).partition('\n\n')[2]
    first = ' '.join(body.partition('\n\n')[0].split())
    return re.split(r'(?<=\.) |:$', first)[0]


@functools.lru_cache(maxsize=None)
def _sections() -> dict[str, str]:
    """Return each section by its title."""
    text = importlib.resources.files(nova_bdm_cleanup).joinpath(
        'runbook.rst').read_text(encoding='utf-8')
    found = list(_TITLE.finditer(text))
    ends = [*(each.start() for each in found[1:]), len(text)]
    return {each.group(1): text[each.start():end]
            for each, end in zip(found, ends)}


def _plain(text: str) -> str:
    for pattern, replacement in _MARKS:
        text = re.sub(pattern, replacement, text)
    return text
