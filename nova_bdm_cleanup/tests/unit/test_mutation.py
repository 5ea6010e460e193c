# SPDX-License-Identifier: Apache-2.0
"""The tests that ``tox -e mutation`` runs after each change."""

from __future__ import annotations

import pathlib
import re

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.tests.unit import base, rules as tests_of_rules

ROOT = pathlib.Path(__file__).resolve().parents[3]

#: Their many random worlds would take longer than all other tests together.
SLOW = frozenset(('test_promises', 'test_properties'))


def names(package: pathlib.Path, prefix: str = '[!_]') -> set[str]:
    """Return the names of the modules of a package."""
    return {path.stem for path in package.glob(prefix + '*.py')}


class MutationTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        text = pathlib.Path(ROOT, 'tools', 'mutation.toml').read_text('utf-8')
        self.listed = set(re.findall(r'\.unit\.rules\.(\w+)', text))

    def test_each_module_of_the_rules_has_a_test_in_the_list(self) -> None:
        modules = names(pathlib.Path(rules.__path__[0]))
        self.assertIn('mappings', modules)
        self.assertEqual(
            set(), {'test_' + name for name in modules} - self.listed)

    def test_all_tests_of_the_rules_are_listed_but_the_slow_ones(
            self) -> None:
        self.assertEqual(
            names(pathlib.Path(tests_of_rules.__path__[0]), 'test_') - SLOW,
            self.listed)
