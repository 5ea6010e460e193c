# SPDX-License-Identifier: Apache-2.0
"""Only the edges know Nova and the command line.

Who may import whom is declared in pyproject.toml and checked by import-linter,
which reads the text; here a process shows it.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys

from nova_bdm_cleanup.tests.unit import base

PACKAGE = os.path.abspath(os.path.join(
    os.path.dirname(__file__), os.pardir, os.pardir))
NAME = os.path.basename(PACKAGE)

#: The packages that may import what the core may not.
EDGES = ('plugin', 'cli', 'osc', 'tests')

#: Nova and its libraries, Cinder's server, the command line, and what some
#: Nova forbids.
FOREIGN = ('nova', 'os_brick', 'os_vif', 'cinder', 'cliff', 'osc_lib',
           'openstackclient', 'openstack', 'oslo_upgradecheck', 'eventlet',
           'greenlet', 'sqlalchemy')

#: What speaks to Nova's database without Nova's objects.
DATABASES = ('nova.db.', 'oslo_db.', 'sqlalchemy.', 'pymysql.', 'MySQLdb.')


def modules():
    """Name and path of every module of the core."""
    found = []
    for directory, names, files in os.walk(PACKAGE):
        relative = os.path.relpath(directory, PACKAGE)
        names[:] = sorted(
            n for n in names if n != '__pycache__'
            and not (relative == '.' and n in EDGES))
        for file in sorted(files):
            if file.endswith('.py'):
                path = os.path.join(directory, file)
                name = os.path.relpath(path, PACKAGE)[:-3].replace(
                    os.sep, '.')
                found.append((name.replace('.__init__', ''), path))
    return found


class BlockedTest(base.TestCase):
    """What the text does not show, a process does."""

    def test_the_core_works_where_nothing_foreign_can_be_imported(self):
        names = ['.'.join(filter(None, (NAME, name.replace('__init__', ''))))
                 for name, _ in modules()]
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
            env={**os.environ, 'PYTHONPATH': os.path.dirname(PACKAGE),
                 'PYTHONDONTWRITEBYTECODE': '1'},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(0, result.returncode, result.stderr)


class DatabaseTest(base.TestCase):
    """Nova's database is touched through Nova's objects only."""

    def test_nobody_imports_what_speaks_to_a_database_of_novas(self):
        for directory, names, files in os.walk(PACKAGE):
            names[:] = [n for n in names if n not in ('__pycache__', 'tests')]
            for file in files:
                if file.endswith('.py'):
                    self.check(os.path.join(directory, file))

    def check(self, path):
        with open(path, encoding='utf-8') as source:
            tree = ast.parse(source.read())
        for node in ast.walk(tree):
            imported = []
            if isinstance(node, ast.Import):
                imported = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                imported = ['%s.%s' % (node.module, each.name)
                            for each in node.names]
            for name in imported:
                self.assertFalse(
                    (name + '.').startswith(DATABASES), (path, name))
