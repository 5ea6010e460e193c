# SPDX-License-Identifier: Apache-2.0
"""The tool that makes the frozen lists, as far as it goes without pip."""

from __future__ import annotations

import importlib
import pathlib
import sys
from typing import Any
from unittest import mock

from nova_bdm_cleanup.tests.unit import base

TOOLS = pathlib.Path(__file__).resolve().parents[3] / 'tools'


class FreezeTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        with mock.patch.object(sys, 'path', [str(TOOLS), *sys.path]):
            self.freeze: Any = importlib.import_module('freeze')

    def limits(self, text: str, **pins: str) -> set[str]:
        return set(self.freeze.constraints(text, '3.11', pins))

    def test_the_line_for_this_python_counts(self) -> None:
        self.assertEqual({'numpy===1.26', 'six===1.16'}, self.limits(
            "# words\n\nnumpy===1.24;python_version=='3.8'\n"
            "numpy===1.26;python_version>='3.9'\nsix===1.16\n"))

    def test_where_none_fits_that_of_the_newest_python_counts(self) -> None:
        self.assertEqual({'lxml===4.8'}, self.limits(
            "lxml===4.8;python_version=='3.9'\n"
            "lxml===4.9;python_version=='3.8'\n"))

    def test_a_pin_replaces_what_the_constraints_say(self) -> None:
        self.assertEqual({'Os_Vif===2'}, self.limits('os-vif===1', Os_Vif='2'))

    def test_a_file_of_something_else_is_refused(self) -> None:
        self.assertRaises(self.freeze.FreezeFailure, self.limits,
                          '<!DOCTYPE html>')

    def test_every_list_is_what_its_recipe_says(self) -> None:
        lists = {path.stem: path.read_text(encoding='utf-8').split('\n')
                 for path in (TOOLS / 'environments').glob('*.txt')}
        self.assertEqual(set(self.freeze.RECIPES), set(lists))
        for name, recipe in self.freeze.RECIPES.items():
            lines = lists[name]
            self.assertEqual('# python: ' + ' '.join(recipe.pythons),
                             lines[1])
            self.assertEqual(
                set(), {*recipe.services, *recipe.conditional} - set(lines))
            versions = dict(line.split('==') for line in lines if '==' in line)
            for package, version in recipe.pins.items():
                self.assertEqual(version, versions[package], name)
