# SPDX-License-Identifier: Apache-2.0
"""The table of hooks, compared with the triggers and the handlers."""

from __future__ import annotations

import ast
import inspect
import pathlib

from nova_bdm_cleanup.node import hooks
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.hooks import table, wrapping
from nova_bdm_cleanup.node.hooks.table import HOOKS, NovaRelease, Wraps
from nova_bdm_cleanup.tests.unit import base

FOLDER = pathlib.Path(hooks.__path__[0])


class TableTest(base.TestCase):

    def test_every_trigger_has_a_hook_in_every_release(self) -> None:
        for has_builtin in (False, True):
            for trigger in triggers.TRIGGERS:
                self.assertNotEqual([], [
                    hook for hook in table.hooks_for([trigger], has_builtin)
                    if hook.trigger is trigger], trigger.name)

    def test_one_row_for_each_trigger_method_and_release(self) -> None:
        rows = [(hook.trigger, hook.method, hook.release) for hook in HOOKS]
        self.assertEqual(len(rows), len(set(rows)))

    def test_every_handler_exists(self) -> None:
        for hook in HOOKS:
            module, _, name = hook.handler.partition('.')
            tree = ast.parse((FOLDER / (module + '.py')).read_text('utf-8'))
            function, = [node for node in tree.body
                         if isinstance(node, ast.FunctionDef)
                         and node.name == name]
            self.assertEqual(
                ['call'], [argument.arg for argument in function.args.args])
            self.assertEqual(
                hook.wraps is Wraps.AROUND,
                'contextlib.contextmanager' in map(
                    ast.unparse, function.decorator_list), hook.handler)

    def test_releases_have_no_row_in_common(self) -> None:
        with_builtin = table.hooks_for(triggers.TRIGGERS, True)
        without = table.hooks_for(triggers.TRIGGERS, False)
        self.assertIn(table.BUILTIN_CLEANUP,
                      [hook.method for hook in with_builtin])
        self.assertNotIn(table.BUILTIN_CLEANUP,
                         [hook.method for hook in without])
        self.assertEqual(
            {NovaRelease.ANY},
            {hook.release for hook in with_builtin if hook in without})

    def test_the_documentation_has_a_line_for_each_row(self) -> None:
        lines = list(table.TABLE.lines())
        self.assertEqual(len(HOOKS), len(lines))
        for line in lines:
            self.assertEqual(len(table.TABLE.header), len(line))
            self.assertTrue(all(line), line)

    def test_table_needs_no_nova(self) -> None:
        for module in (table, wrapping):
            self.assertNotIn('from nova.', inspect.getsource(module))
