# SPDX-License-Identifier: Apache-2.0
"""The layers: only the edges know Nova and the command line.

pyproject.toml declares the allowed imports, and import-linter checks the
source text; here a running process is checked.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
import graphlib
import os
import pathlib
import subprocess
import sys

from nova_bdm_cleanup.node.hooks import table
from nova_bdm_cleanup.tests.unit import base

PACKAGE = pathlib.Path(__file__).resolve().parents[2]

#: Modules that may import neither Nova nor a library of commands.
CORE = ('client.cloud', 'node.audit', 'node.cleanup', 'node.store',
        'openstack', 'rules')

#: Nova and its libraries, Cinder's server, the command line, and modules that
#: some Nova release forbids.
FOREIGN = ('nova', 'os_brick', 'os_vif', 'cinder', 'cliff', 'osc_lib',
           'openstackclient', 'openstack', 'oslo_upgradecheck', 'eventlet',
           'greenlet', 'sqlalchemy')

#: Libraries that access Nova's database without Nova's objects.
DATABASES = ('nova.db.', 'oslo_db.', 'sqlalchemy.', 'pymysql.', 'MySQLdb.')


def modules(*packages: str) -> Iterator[tuple[str, pathlib.Path]]:
    """Yield name and path of every module of these packages."""
    for package in packages:
        for path in sorted(PACKAGE.joinpath(*package.split('.')).rglob(
                '*.py')):
            parts = path.relative_to(PACKAGE.parent).with_suffix('').parts
            yield '.'.join(p for p in parts if p != '__init__'), path


class BlockedTest(base.TestCase):
    """Imports that only a process shows, not the source text."""

    def test_the_core_works_where_nothing_foreign_can_be_imported(self):
        names = [name for name, _ in modules(*CORE)]
        self.assertGreater(len(names), 10)
        program = '\n'.join([
            'import importlib, sys',
            'class Block:',
            '    def find_spec(self, name, path=None, target=None):',
            '        if name.split(".")[0] in %r:' % (FOREIGN,),
            '            raise ImportError("blocked: " + name)',
            'sys.meta_path.insert(0, Block())',
            *('importlib.import_module(%r)' % name for name in names)])
        result = subprocess.run(
            [sys.executable, '-c', program],
            env={**os.environ, 'PYTHONPATH': str(PACKAGE.parent),
                 'PYTHONDONTWRITEBYTECODE': '1'},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(0, result.returncode, result.stderr)


class DatabaseTest(base.TestCase):
    """Access to Nova's database through Nova's objects only."""

    def test_no_module_imports_the_database_api_of_nova(self):
        for module, path in modules(
                'admin', 'client', 'node', 'openstack', 'rules'):
            for node in ast.walk(ast.parse(path.read_text('utf-8'))):
                imported = []
                if isinstance(node, ast.Import):
                    imported = [each.name for each in node.names]
                elif isinstance(node, ast.ImportFrom):
                    imported = ['%s.%s' % (node.module, each.name)
                                for each in node.names]
                for name in imported:
                    self.assertFalse(
                        (name + '.').startswith(DATABASES), (module, name))


class LateImportTest(base.TestCase):
    """After its start, nova-compute imports nothing of the package.

    The package may have been upgraded on the disk since.
    """

    #: The functions that run while nova-compute starts.
    AT_START = {('loader', 'load'), ('startup', '_start')}

    def test_functions_import_nothing_of_the_package(self) -> None:
        found = set()
        for module, path in modules('node', 'openstack', 'rules'):
            for function in ast.walk(ast.parse(path.read_text('utf-8'))):
                if not isinstance(function, ast.FunctionDef):
                    continue
                for node in ast.walk(function):
                    names = ([alias.name for alias in node.names]
                             if isinstance(node, ast.Import)
                             else [str(node.module)]
                             if isinstance(node, ast.ImportFrom) else [])
                    if any(name.split('.')[0] == PACKAGE.name
                           for name in names):
                        found.add((module.rpartition('.')[2], function.name))
        self.assertEqual(self.AT_START, found)


class CircleTest(base.TestCase):
    """Import cycles, also indirect ones and those within functions."""

    def test_there_is_no_circle_of_modules(self) -> None:
        graph = self._graph()
        self.assertGreater(len(graph), 60)
        self.assertIn('nova_bdm_cleanup.node.hooks.start',
                      graph['nova_bdm_cleanup.node.hooks.installation'])
        # The error names the cycle.
        graphlib.TopologicalSorter(graph).prepare()

    def _graph(self) -> dict[str, set[str]]:
        """Return the imports of each module, also those within functions."""
        names = dict(modules('admin', 'client', 'node', 'openstack', 'rules'))
        names.update((f'{PACKAGE.name}.{path.stem}', path)
                     for path in PACKAGE.glob('*.py')
                     if path.stem != '__init__')
        graph = {name: self._imported(path, names) - {name}
                 for name, path in names.items()}
        # The table names the handlers, which are imported with it.
        graph[f'{PACKAGE.name}.node.hooks.installation'] |= {
            '%s.node.hooks.%s' % (PACKAGE.name, hook.handler.split('.')[0])
            for hook in table.HOOKS}
        return graph

    @staticmethod
    def _imported(path: pathlib.Path,
                  known: dict[str, pathlib.Path]) -> set[str]:
        found = set()
        for node in ast.walk(ast.parse(path.read_text('utf-8'))):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    name = '%s.%s' % (node.module, alias.name)
                    # A name in a module, or a module in a package.
                    found.add(name if name in known else str(node.module))
        return found & known.keys()
