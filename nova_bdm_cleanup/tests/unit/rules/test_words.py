# SPDX-License-Identifier: Apache-2.0
"""The words of a log line, which lead to the rule by one search."""

from __future__ import annotations

import ast
from collections.abc import Iterator
import pathlib
import re
from typing import NamedTuple

from nova_bdm_cleanup import node, rules
from nova_bdm_cleanup.tests.unit import base

#: The parts of the package whose texts can be in a log line.
PARTS = [pathlib.Path(part.__path__[0]) for part in (rules, node)]

#: A search for fewer words would find too much.
MIN_WORDS = 3


class Rule(NamedTuple):
    """A row of a table of the rules, and its place."""

    path: pathlib.Path
    first: int
    last: int
    #: The lines with the words of the log.
    words: range


def found_rules() -> Iterator[Rule]:
    """Yield the rows of the tables whose words are in log lines."""
    for path in sorted(PARTS[0].glob('*.py')):
        for call in ast.walk(ast.parse(path.read_text('utf-8'))):
            if not (isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Name)
                    and call.func.id == 'Row'):
                continue
            words = call.args[-1]
            if isinstance(words, ast.Constant) and re.sub(
                    '{.*?}', '', str(words.value)).strip():
                yield Rule(
                    path, call.lineno, call.end_lineno or 0,
                    range(words.lineno, (words.end_lineno or 0) + 1))


def searchable(line: str) -> Iterator[str]:
    """Yield the words in a line of source code, up to each placeholder."""
    for text in re.findall(r"'((?:[^'\\]|\\.)*)'", line):
        for words in re.split('{.*?}', text):
            if len(words.split()) >= MIN_WORDS:
                yield words.strip()


class WordsTest(base.TestCase):

    def test_words_of_a_log_line_lead_to_one_rule(self) -> None:
        lines = {path: path.read_text('utf-8').splitlines()
                 for part in PARTS for path in part.rglob('*.py')}
        numbered = [(path, number, line) for path, content in lines.items()
                    for number, line in enumerate(content, 1)]
        found = list(found_rules())
        self.assertGreater(len(found), 50)
        for rule in found:
            self.assertTrue(any(
                all(path == rule.path and rule.first <= number <= rule.last
                    for path, number, line in numbered if words in line)
                for number in rule.words
                for words in searchable(lines[rule.path][number - 1])),
                'no search finds only this rule: %s:%d' % (
                    rule.path, rule.first))
