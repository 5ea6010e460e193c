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

#: A reason code, and no title of a group.
_REASON = re.compile('[a-z-]+')

#: The markup that only a browser needs, in the order of its removal.
_MARKS: tuple[tuple[str, str], ...] = (
    (r'\.\. _[a-z-]+:\n\n', ''),
    (r'(?m)^ *\.\. code-block:: \w+\n\n', ''),
    (r'\.\. warning::\n\n', 'Warning:\n\n'),
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
    return sorted(filter(_REASON.fullmatch, _sections()))


def groups() -> dict[str, list[str]]:
    """Return the reason codes of each group, in the order of the runbook."""
    found: dict[str, list[str]] = {}
    group: list[str] = []
    for title in _sections():
        if _REASON.fullmatch(title):
            group.append(title)
        else:
            group = found[title] = []
    return {title: codes for title, codes in found.items() if codes}


def section(reason: str) -> str:
    """Return a reason code's section, and all that it leads to."""
    sections = _sections()
    titles = [reason]
    # It grows meanwhile.
    for title in titles:
        linked = dict.fromkeys(
            ' '.join(found.split())
            for found in re.findall(r'`([^`<]+)`_', sections[title]))
        titles += [each for each in linked if each not in titles]
    return '\n'.join(_plain(sections[title]).strip() + '\n'
                     for title in titles)


def meaning(reason: str) -> str:
    """Return the meaning of a reason code, in one sentence."""
    first = ' '.join(_paragraphs(reason)[1].split())
    return re.split(r'(?<=\.) |:$', first)[0]


def needs_nothing(reason: str) -> bool:
    """Return whether nothing is to be done, with any log line."""
    return any(re.match(r'You: nothing\b(?! after)', paragraph)
               for paragraph in _paragraphs(reason))


def _paragraphs(reason: str) -> list[str]:
    """Return the paragraphs of a section; the title is the first."""
    return _plain(_sections()[reason]).split('\n\n')


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
