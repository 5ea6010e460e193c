# SPDX-License-Identifier: Apache-2.0
"""The entry point as nova-compute loads it, in a process of its own.

The functional tests cover a real nova-compute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from nova_bdm_cleanup.tests.unit import base

ROOT = os.path.abspath(os.path.join(
    os.path.dirname(__file__), *[os.pardir] * 4))

#: The steps of os-vif, in a process that looks like nova-compute or not.
PROGRAM = """
import json, sys, types

def module(name, **values):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(values)

started = []
path = {path!r}
if path:
    from oslo_config import cfg
    cfg.CONF(['--config-file', path], project='nova')
    module('nova.cmd.compute')
from nova_bdm_cleanup import node as package
module('nova_bdm_cleanup.node.startup', start=started.append)
package.startup = sys.modules['nova_bdm_cleanup.node.startup']

before = set(sys.modules)
from nova_bdm_cleanup.node import loader
imported = set(sys.modules) - before
loader.Loader.load('bdm_cleanup')
loaded = set(sys.modules) - before

for name in ('os_vif', 'os_vif.objects', 'os_vif.objects.host_info'):
    module(name, HostPluginInfo=dict)
sys.modules['os_vif'].objects = sys.modules['os_vif.objects']
sys.modules['os_vif.objects'].host_info = sys.modules[
    'os_vif.objects.host_info']
print(json.dumps({{
    'started': len(started), 'imported': sorted(imported),
    'loaded': sorted(loaded), 'described': loader.Loader().describe()}}))
"""


class LoaderTest(base.TestCase):

    def load(self, text=None, **environment):
        """Return what a process did with the entry point.

        :param text: the nova.conf of a nova-compute; None: another service
        """
        path = ''
        if text is not None:
            path = os.path.join(self.tempdir(), 'nova.conf')
            with open(path, 'w', encoding='utf-8') as file:
                file.write(text)
        result = subprocess.run(
            [sys.executable, '-c', PROGRAM.format(path=path)],
            env={**os.environ, **environment, 'PYTHONPATH': ROOT,
                 'PYTHONDONTWRITEBYTECODE': '1'},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(0, result.returncode, result.stderr)
        return json.loads(result.stdout)

    def test_other_service_imports_only_the_standard_library(self):
        seen = self.load()
        # An import error here would be swallowed by os-vif.
        for name in seen['imported']:
            self.assertIn(name.split('.')[0], {
                'nova_bdm_cleanup', '__future__', 'typing', 'sys',
                'collections', 'contextlib', 'functools', 're', 'types',
                'operator', 'warnings', 'abc', '_typing', 'keyword',
                'itertools', 'reprlib', 'sre_compile', 'sre_parse',
                'sre_constants', 'enum', 'copyreg', 'heapq', '_heapq',
                '_collections', '_functools', '_operator', '_sre'})
        self.assertEqual(0, seen['started'])
        self.assertNotIn('oslo_config.cfg', seen['loaded'])
        # os-vif requests this from each plugin.
        self.assertEqual({'plugin_name': 'bdm_cleanup', 'vif_info': []},
                         seen['described'])

    def test_only_the_loader_is_imported_if_not_configured(self):
        seen = self.load('[DEFAULT]\nmode = enforce\n')
        self.assertEqual(0, seen['started'])
        self.assertEqual(
            [], [name for name in seen['loaded'] if name not in (
                'nova_bdm_cleanup.node.loader',
                'nova_bdm_cleanup.node.option_group')
                and name.startswith('nova_bdm_cleanup')])

    def test_any_text_of_the_section_starts_the_plugin(self):
        """Check that any text counts: no typo of the mode may be missed."""
        for text in ('[bdm_cleanup]\n', '[bdm_cleanup]\nmode = off\n',
                     '[bdm_cleanup]\nmodes = observe\n',
                     '[BDM_cleanup]\nmode = obsrve\n',
                     '[bdm_cleanup]\nmode =\n'):
            self.assertEqual(1, self.load(text)['started'], text)
        self.assertEqual(1, self.load(
            '', OS_BDM_CLEANUP__MODES='observe')['started'])
