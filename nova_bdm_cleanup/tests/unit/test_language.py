# SPDX-License-Identifier: Apache-2.0
"""The form of docstrings and the names of constants."""

from __future__ import annotations

import ast
import collections
from collections.abc import Iterator
import pathlib

from nova_bdm_cleanup.tests.unit import base, test_docs

#: The folders of the repository that have Python.
FOLDERS = ('benchmarks', 'demo', 'doc/source/_ext', 'e2e', 'nova_bdm_cleanup',
           'tools')

#: The package without its tests.
PARTS = ('admin', 'client', 'node', 'openstack', 'rules')

#: First words of docstrings that describe a thing and not what a function
#: does.
NO_VERBS = frozenset("""
    a all also an and another as at both by each every for has how if in is it
    its many more no not nothing of one only other so some something such that
    the their there this those to two what when where whether which who why
    with
    """.split())

#: Files whose docstrings are printed, as the titles of what a function makes.
TITLES = ('e2e/devices/cases.py', 'nova_bdm_cleanup/tests/cloud/damage.py',
          'nova_bdm_cleanup/tests/simulation/scenarios.py')

#: Names that mean the same in every module.
COMMON_NAMES = frozenset(('CONF', 'LOG'))


def files(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield the path and the tree of each Python file of some folders."""
    for folder in folders:
        for path in sorted(pathlib.Path(test_docs.ROOT, folder).rglob(
                '*.py')):
            yield (str(path.relative_to(test_docs.ROOT)),
                   ast.parse(path.read_text('utf-8')))


class LanguageTest(base.TestCase):

    def test_docstrings_of_functions_begin_with_a_verb(self) -> None:
        wrong = []
        for path, tree in files(*FOLDERS):
            if path in TITLES:
                continue
            for node in ast.walk(tree):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    text = ast.get_docstring(node)
                    if text and text.split()[0].lower().strip(
                            '.,;:') in NO_VERBS:
                        wrong.append('%s:%d: %s' % (
                            path, node.lineno, text.splitlines()[0]))
        self.assertEqual([], wrong)

    def test_no_constant_has_two_meanings(self) -> None:
        modules = collections.defaultdict(list)
        for path, tree in files(*('nova_bdm_cleanup/' + p for p in PARTS)):
            for node in tree.body:
                targets = (node.targets if isinstance(node, ast.Assign)
                           else [node.target]
                           if isinstance(node, ast.AnnAssign) else [])
                for target in targets:
                    if (isinstance(target, ast.Name) and len(target.id) > 1
                            and target.id.isupper()):
                        modules[target.id].append(path)
        self.assertEqual({}, {
            name: paths for name, paths in modules.items()
            if len(paths) > 1 and name not in COMMON_NAMES})
