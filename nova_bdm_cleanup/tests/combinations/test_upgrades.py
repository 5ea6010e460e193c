# SPDX-License-Identifier: Apache-2.0
"""Upgrades of the plugin and of Nova, and the way back."""

from __future__ import annotations

import pathlib
import re
import sys
from typing import Any

import fixtures
from nova import version
import testtools

from nova_bdm_cleanup import VERSION
from nova_bdm_cleanup.admin.status import status_of
from nova_bdm_cleanup.node.store.database import Database, StoreError
from nova_bdm_cleanup.tests.combinations import processes
from nova_bdm_cleanup.tests.functional import scenario
from nova_bdm_cleanup.tests.unit import base as unit

#: The Nova that was there before, by that of this run.
_NOVA_BEFORE = {'28': '26', '34': '31'}

_NOVA = version.version_string().split('.')[0]


class _ProcessTestCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path)
        self.directory.chmod(0o700)
        self.metrics = self.directory / 'bdm.prom'
        self.options = {
            'mode': 'enforce', 'settle_time': 0, 'triggers': 'all',
            'store': str(self.directory / 'store.sqlite')}

    def start(self, **arguments: Any) -> processes.HostProcess:
        return self.useFixture(
            processes.HostProcess(self.options, **arguments))

    def check_reboot(self, host: processes.HostProcess) -> None:
        """Check that a reboot removes what a new server has lost."""
        found = host.ask('reboot')
        self.assertEqual('ACTIVE', found['status'])
        self.assertEqual([found['kept']], found['mappings'])
        self.assertEqual([found['kept']], found['disks'])
        self.assertIn(found['kept'], found['connected'])
        self.assertNotIn(found['lost'], found['connected'])
        # nova-compute has recorded it, and logged nothing else.
        lines = [line for line in host.ask('log') if found['server'] in line
                 and 'nova_bdm_cleanup' in line]
        self.assertEqual(
            ['removing', 'removed', 'finished'],
            [re.findall(r'event=(\S+)', line)[0] for line in lines], lines)
        code, output = host.command('journal', 'list', tree=self.installed)
        self.assertEqual(0, code, output)
        self.assertIn(found['server'] + ' hard_reboot 1 of 1 done', output)

    #: What the commands are run from; None: from where the host runs it.
    installed: processes.Tree | None = None


class PluginTest(_ProcessTestCase):
    """The package is upgraded on the disk while nova-compute runs."""

    def setUp(self) -> None:
        super().setUp()
        self.tree = self.useFixture(processes.Tree('0.0.1'))
        self.installed = self.useFixture(processes.Tree())

    def check_everything(self, host: processes.HostProcess) -> None:
        """Check all that nova-compute does after its start."""
        self.check_reboot(host)
        self.metrics.unlink(missing_ok=True)
        host.ask('audit')
        self.assertIn('version="0.0.1"', self.metrics.read_text())
        self.assertIn('event=audited', host.ask('log')[-1])
        # The old code goes on, and the new commands say so.
        code, output = host.command('status', tree=self.installed)
        self.assertEqual(0, code, output)
        self.assertIn('Plugin 0.0.1; %s is installed: restart nova-compute'
                      % VERSION, output)

    def test_replaced_and_removed(self):
        host = self.start(tree=self.tree)
        loaded = host.ask('modules')
        self.tree.replace()
        # On SIGHUP nova-compute reads its options again.
        host.ask('reload', '[bdm_cleanup]\naudit_interval = 3600\n'
                           f'metrics_file = {self.metrics}\n')
        self.check_everything(host)
        code, output = host.command('check', tree=self.installed)
        self.assertEqual(0, code, output)
        self.assertIn('it runs 0.0.1; %s is installed: restart nova-compute'
                      % VERSION, output)
        self.tree.remove()
        self.check_everything(host)
        server = host.ask('server')
        for action, state in (('os-stop', 'SHUTOFF'), ('os-start', 'ACTIVE'),
                              ('shelve', 'SHELVED_OFFLOADED'),
                              ('unshelve', 'ACTIVE'), ('delete', 'DELETED')):
            self.assertEqual(state, host.ask('run', action, server))
        host.ask('stop')
        self.assertEqual(loaded, host.ask('modules'))
        self.assertEqual([], [
            line for line in host.ask('log') if 'nova_bdm_cleanup' in line
            and re.search('WARNING|ERROR|CRITICAL|Error', line)])
        host.end()


class NovaTest(_ProcessTestCase):
    """Nova is upgraded; store, options and plugin stay."""

    @testtools.skipUnless(_NOVA in _NOVA_BEFORE, 'no upgrade to this Nova')
    def test_store_and_plugin_survive_an_upgrade_of_nova(self):
        environment = 'nova-' + _NOVA_BEFORE[_NOVA]
        before = processes.interpreter(environment)
        if before is None:
            self.skipTest('run: python3 tools/environments.py ' + environment)
        for number, python in enumerate((before, sys.executable), 1):
            host = self.start(python=python)
            nova = host.about['nova']
            self.check_reboot(host)
            code, output = host.command('check')
            self.assertEqual(0, code, output)
            code, output = host.command('status')
            self.assertEqual(0, code, output)
            for words in ('State active', 'Nova ' + nova,
                          'Removals, last hour 1 of'):
                self.assertIn(words, output)
            # The entries that the other Nova left are still there.
            self.assertEqual(
                number, host.command('journal', 'list')[1].count('done'))
            host.end()
        self.assertEqual(_NOVA, nova.split('.')[0])


class NewStoreTest(scenario.ScenarioTestCase):
    """A store that this release does not know."""

    def test_nothing_is_removed_with_an_unknown_store(self):
        """Change nothing without a journal, and say why."""
        server = self.create_server(*[scenario.BOOT_DISK] * 2)
        lost, kept = server.volumes
        self.cloud.lose_attachment(server, lost)
        Database(str(self.store_path)).check()
        unit.sql(str(self.store_path), 'PRAGMA user_version = 2')
        before = self.store_path.read_bytes()
        view = self.reboot(server)
        self.assertIsNotNone(view.block_device(lost))
        self.assert_healthy(view, kept)
        self.assertEqual([], self.changes())
        line, = self.log_lines(server, 'unrecorded')
        self.assertEqual('journal-unwritable', line.reason)
        for words in (str(self.store_path), 'it is of version 2',
                      'install the release that wrote it', 'move the file'):
            self.assertIn(words, line.text)
        self.assertEqual(before, self.store_path.read_bytes())
        self.assertRaises(StoreError, self.journal)
        self.assertRaises(StoreError, status_of, 'compute1',
                          str(self.store_path), 0.0)
