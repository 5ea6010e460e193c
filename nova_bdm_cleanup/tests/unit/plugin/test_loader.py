# SPDX-License-Identifier: Apache-2.0
"""The entry point, as nova-compute meets it: in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from nova_bdm_cleanup.tests.unit import base

ROOT = os.path.abspath(os.path.join(
    os.path.dirname(__file__), *[os.pardir] * 4))

#: What os-vif does, in a process that looks like nova-compute or not.
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
if {stub}:
    def start(conf):
        started.append(conf)
        if {fails}:
            raise RuntimeError('refused')
    from nova_bdm_cleanup import plugin as package
    module('nova_bdm_cleanup.plugin.startup', start=start)
    package.startup = sys.modules['nova_bdm_cleanup.plugin.startup']

before = set(sys.modules)
from nova_bdm_cleanup.plugin import loader
imported = set(sys.modules) - before
error = None
try:
    loader.Loader.load('bdm_cleanup')
except RuntimeError as exc:
    error = str(exc)
loaded = set(sys.modules) - before

for name in ('os_vif', 'os_vif.objects', 'os_vif.objects.host_info'):
    module(name, HostPluginInfo=dict)
sys.modules['os_vif'].objects = sys.modules['os_vif.objects']
sys.modules['os_vif.objects'].host_info = sys.modules[
    'os_vif.objects.host_info']
print(json.dumps({{
    'started': len(started), 'error': error, 'imported': sorted(imported),
    'loaded': sorted(loaded), 'described': loader.Loader().describe()}}))
"""


class LoaderTest(base.TestCase):

    def load(self, line='', compute=True, stub=False, fails=False):
        """What a process did with the entry point.

        :param compute: it is a nova-compute, with this line in nova.conf
        :param stub: replace what comes after the loader
        :param fails: let that refuse
        """
        path = ''
        if compute:
            path = os.path.join(self.tempdir(), 'nova.conf')
            with open(path, 'w', encoding='utf-8') as file:
                file.write('[bdm_cleanup]\n%s\n' % line)
        result = subprocess.run(
            [sys.executable, '-c',
             PROGRAM.format(path=path, stub=stub, fails=fails)],
            env={**os.environ, 'PYTHONPATH': ROOT,
                 'PYTHONDONTWRITEBYTECODE': '1'},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(0, result.returncode, result.stderr)
        return json.loads(result.stdout.splitlines()[-1])

    def test_disabled_imports_the_loader_and_nothing_else(self):
        for line in ('', 'enabled = false', 'mode = observe'):
            seen = self.load(line)
            self.assertEqual(
                ['nova_bdm_cleanup', 'nova_bdm_cleanup.plugin',
                 'nova_bdm_cleanup.plugin.loader'],
                [name for name in seen['loaded']
                 if name.startswith('nova_bdm_cleanup')], line)
            self.assertIsNone(seen['error'])

    def test_the_loader_itself_imports_the_standard_library_only(self):
        # An import error here would be swallowed by os-vif.
        seen = self.load(compute=False)
        for name in seen['imported']:
            self.assertIn(name.split('.')[0], {
                'nova_bdm_cleanup', '__future__', 'typing', 'sys',
                'collections', 'contextlib', 'functools', 're', 'types',
                'operator', 'warnings', 'abc', '_typing', 'keyword',
                'itertools', 'reprlib', 'sre_compile', 'sre_parse',
                'sre_constants', 'enum', 'copyreg', 'heapq', '_heapq',
                '_collections', '_functools', '_operator', '_sre'})

    def test_another_service_is_left_alone(self):
        seen = self.load(compute=False, stub=True)
        self.assertEqual(0, seen['started'])
        self.assertNotIn('oslo_config.cfg', seen['loaded'])

    def test_what_starts(self):
        for word, started in (
                ('true', 1), ('True', 1), ('1', 1), ('yes', 1),
                ('false', 0), ('0', 0), ('no', 0),
                # The start names the option.
                ('perhaps', 1), ('', 1), ('2', 1)):
            self.assertEqual(started, self.load(
                'enabled = ' + word, stub=True)['started'], word)

    def test_a_refusal_reaches_nova_compute(self):
        seen = self.load('enabled = true', stub=True, fails=True)
        self.assertEqual('refused', seen['error'])

    def test_what_os_vif_asks_of_each_plugin(self):
        self.assertEqual({'plugin_name': 'bdm_cleanup', 'vif_info': []},
                         self.load()['described'])
