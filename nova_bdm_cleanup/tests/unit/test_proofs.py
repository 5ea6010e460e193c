# SPDX-License-Identifier: Apache-2.0
"""Each proof on the page of proofs is there, and each promise has one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
import pathlib
import re

from e2e import coming_back, commands, faults, monitoring, scenarios
from nova_bdm_cleanup.tests.unit import base

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / 'doc' / 'source' / 'contributor' / 'proof.rst'
TESTS = ROOT / 'nova_bdm_cleanup' / 'tests'
SEARCH = TESTS / 'simulation'

COLUMNS = ['Promise', 'Page', 'Search', 'Unit', 'Functional', 'Devices',
           'End to end']


def rows() -> list[dict[str, str]]:
    """The rows of the table, by the name of the column."""
    text = PAGE.read_text(encoding='utf-8').partition('.. list-table::')[2]
    header, *found = [
        [' '.join(cell.split()) for cell in re.split(r'\n     -', row)]
        for row in text.split('\n   * - ')[1:]]
    assert header == COLUMNS, header
    return [dict(zip(COLUMNS, cells)) for cells in found
            if len(cells) == len(COLUMNS)]


def named(column: str) -> set[str]:
    return {name for row in rows()
            for name in re.findall('``([^`]+)``', row[column])}


def parsed(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding='utf-8'))


def of_search() -> Iterator[str]:
    """The properties, and the scenarios in which somebody else acts.

    What they are in needs Nova, which is not there.
    """
    for node in parsed(SEARCH / 'properties.py').body:
        if (isinstance(node, ast.Assign)
                and ast.unparse(node.targets[0]) == 'PROPERTIES'):
            yield from ast.literal_eval(node.value)
    for meeting in ast.walk(parsed(SEARCH / 'scenarios.py')):
        if isinstance(meeting, ast.Tuple) and len(meeting.elts) == 4:
            words = [each.value for each in meeting.elts
                     if isinstance(each, ast.Constant)
                     and isinstance(each.value, str)]
            if len(words) == 3:
                yield '-'.join(words)


def of_tests(paths: Iterator[pathlib.Path]) -> Iterator[str]:
    """Test modules with their classes, and with their tests."""
    for path in paths:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef) or (
                    isinstance(node, ast.FunctionDef)
                    and node.name.startswith('test_')):
                yield f'{path.stem}.{node.name}'


def of_devices() -> Iterator[str]:
    """The cases, whose module needs Nova."""
    for node in parsed(ROOT / 'e2e' / 'devices' / 'cases.py').body:
        if isinstance(node, ast.FunctionDef) and any(
                ast.unparse(each).startswith('_case(')
                for each in node.decorator_list):
            yield node.name.replace('_', '-')


class ProofsTest(base.TestCase):

    def check(self, column: str, existing: set[str]) -> None:
        names = named(column)
        self.assertGreater(len(names), 10)
        self.assertEqual(set(), names - existing)

    def test_every_promise_has_a_page_and_a_proof(self) -> None:
        found = rows()
        text = PAGE.read_text(encoding='utf-8')
        # And the header.
        self.assertEqual(text.count('\n   * - '), len(found) + 1)
        for row in found:
            pages = set(row['Page'].split(', '))
            self.assertLessEqual(pages, {'README', 'behaviour', 'risks'})
            self.assertTrue(any(row[name] for name in COLUMNS[2:]),
                            row['Promise'])
            self.assertLessEqual(len(row['Promise'].split()), 15)

    def test_search(self) -> None:
        self.check('Search', set(of_search()))

    def test_unit(self) -> None:
        self.check('Unit', set(of_tests((TESTS / 'unit').rglob('test_*.py'))))

    def test_functional(self) -> None:
        self.check('Functional', set(of_tests(
            path for path in TESTS.rglob('test_*.py')
            if 'unit' not in path.parts)))

    def test_devices(self) -> None:
        self.check('Devices', set(of_devices()))

    def test_end_to_end(self) -> None:
        self.check('End to end', {one.name for one in (
            *scenarios.SCENARIOS, *coming_back.SCENARIOS, *faults.FAULTS,
            *commands.COMMANDS, *monitoring.MONITORING)})
