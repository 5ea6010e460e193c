# SPDX-License-Identifier: Apache-2.0
"""The tool that makes the frozen lists, without its calls of pip."""

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
