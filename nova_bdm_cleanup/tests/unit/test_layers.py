# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""Who may import whom.  Only the edges know Nova and the command line."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import testscenarios

from nova_bdm_cleanup.tests.unit import base

load_tests = testscenarios.load_tests_apply_scenarios

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

#: Imports at the moment of use, each with its reason.
EXCEPTIONS = {
    # The one way from the entry point into the plugin, when it is enabled.
    ('loader', 'nova_bdm_cleanup.plugin'),
    # os-vif itself calls for it.
    ('loader', 'os_vif.objects.host_info'),
}

#: What each module of the core may import of the others: the arrows point one
#: way, adapter -> facts -> rules -> plan -> cleaner -> adapter.
MAY_IMPORT = {
    'version': set(),
    'addresses': set(),
    'model': set(),
    'deadline': set(),
    'loader': set(),
    'journal': set(),
    'audit': {'model'},
    'conf': {'loader', 'model'},
    'ports': {'model'},
    'rules': {'conf', 'model'},
    'cinder': {'deadline', 'model', 'ports'},
    'actions': {'audit', 'cinder', 'deadline', 'journal', 'model', 'ports'},
    'cleaner': {'actions', 'audit', 'conf', 'deadline', 'journal', 'model',
                'ports', 'rules'},
}


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


def imports(path):
    """Every module that a file names in an import, wherever it stands."""
    with open(path, encoding='utf-8') as file:
        tree = ast.parse(file.read(), path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            yield '.' * node.level + (node.module or '')
            if node.module == NAME:
                for alias in node.names:
                    yield '%s.%s' % (NAME, alias.name)


class ImportTest(base.TestCase):
    """Of each module of the core."""

    scenarios = [(name, {'name': name, 'path': path})
                 for name, path in modules()]

    def named(self):
        return [i for i in imports(self.path)
                if (self.name, i) not in EXCEPTIONS]

    def test_nothing_foreign_is_named(self):
        self.assertEqual([], [i for i in self.named()
                              if i.split('.')[0] in FOREIGN])

    def test_no_edge_is_named(self):
        edges = tuple('%s.%s' % (NAME, edge) for edge in EDGES)
        self.assertEqual([], [i for i in self.named()
                              if i.startswith(edges)])

    def test_imports_are_absolute(self):
        self.assertEqual([], [i for i in self.named() if i.startswith('.')])

    def test_arrows_point_one_way(self):
        if self.name not in MAY_IMPORT:
            self.assertTrue(self.name == '__init__' or '.' in self.name
                            or self.name == 'fleet', 'a new module')
            return
        ours = {i.split('.')[1] for i in self.named()
                if i.startswith(NAME + '.')}
        self.assertLessEqual(ours, MAY_IMPORT[self.name])


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
