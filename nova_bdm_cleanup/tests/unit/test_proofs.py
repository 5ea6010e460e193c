# SPDX-License-Identifier: Apache-2.0
"""The page of proofs: each proof exists, and each promise has one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
import functools
import pathlib
import re

from e2e import cli
from nova_bdm_cleanup.tests.unit import base

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / 'doc' / 'source' / 'contributor' / 'proof.rst'
TESTS = ROOT / 'nova_bdm_cleanup' / 'tests'
SEARCH = TESTS / 'simulation'

#: A promise, the pages that make it, and its proofs.
ENTRY = re.compile(r'^(\S.*) \((.*)\)\n((?:   .*\n)+)', re.M)


def entries() -> list[tuple[str, str, dict[str, str]]]:
    """Return each promise with its pages, and its proofs by level."""
    return [
        (promise, pages, dict(level.split(': ') for level in
                              ' '.join(body.split())[:-1].split('. ')))
        for promise, pages, body in ENTRY.findall(
            PAGE.read_text(encoding='utf-8'))]


def named(level: str) -> set[str]:
    return {name for _, _, proofs in entries()
            for name in re.findall('``([^`]+)``', proofs.get(level, ''))}


def parsed(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding='utf-8'))


def of_search() -> Iterator[str]:
    """Yield the properties, and the scenarios with concurrent changes.

    Parse their modules, which need Nova and so cannot be imported here.
    """
    for node in parsed(SEARCH / 'properties.py').body:
        if (isinstance(node, ast.Assign)
                and ast.unparse(node.targets[0]) == 'PROPERTIES'):
            yield from ast.literal_eval(node.value)
    for node in parsed(SEARCH / 'scenarios.py').body:
        if (isinstance(node, ast.AnnAssign)
                and ast.unparse(node.target) == '_COMBINATIONS'):
            for ways, kind, others in ast.literal_eval(node.value):
                yield from (f'{way}-{kind}-{other}'
                            for way in ways for other in others)


def of_tests(paths: Iterator[pathlib.Path]) -> Iterator[str]:
    """Yield test modules with their classes, and with their tests."""
    for path in paths:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef) or (
                    isinstance(node, ast.FunctionDef)
                    and node.name.startswith('test_')):
                yield f'{path.stem}.{node.name}'


def of_devices() -> Iterator[str]:
    """Yield the cases; parse their module, which needs Nova."""
    for node in parsed(ROOT / 'e2e' / 'devices' / 'cases.py').body:
        if isinstance(node, ast.FunctionDef) and any(
                ast.unparse(each).startswith('_case(')
                for each in node.decorator_list):
            yield node.name.replace('_', '-')


@functools.lru_cache(maxsize=None)
def existing() -> dict[str, set[str]]:
    """Return the names of all possible proofs, by level."""
    return {
        'Search': set(of_search()),
        'Unit': set(of_tests((TESTS / 'unit').rglob('test_*.py'))),
        'Functional': set(of_tests(
            path for path in TESTS.rglob('test_*.py')
            if 'unit' not in path.parts)),
        'Devices': set(of_devices()),
        'End to end': {
            one.name for suite in cli.trials().values() for one in suite}}


class ProofsTest(base.TestCase):

    def test_every_promise_has_a_page_and_a_proof(self) -> None:
        found = entries()
        self.assertEqual(len(found), len(re.findall(
            r'\n\S.*\n   ', PAGE.read_text(encoding='utf-8'))))
        for promise, pages, proofs in found:
            self.assertLessEqual(set(pages.split(', ')),
                                 {'README', 'behaviour', 'risks', 'faults',
                                  'hooks', 'decisions'})
            self.assertLessEqual(set(proofs), existing().keys())
            self.assertLessEqual(len(promise.split()), 15)
            self.assertLessEqual(len(proofs), 2, promise)

    def test_every_proof_is_there(self) -> None:
        for level, names in existing().items():
            self.assertGreater(len(named(level)), 10, level)
            self.assertEqual(set(), named(level) - names, level)
