# SPDX-License-Identifier: Apache-2.0
"""How the plugin gets into nova-compute, and out of it again."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import fixtures
from nova.compute import manager
import testtools
from testtools import content

from nova_bdm_cleanup import VERSION
from nova_bdm_cleanup.node import loader
from nova_bdm_cleanup.node.hooks import fit, hook
from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import base

_GET_STARTED = base.CHECKOUT / 'doc' / 'source' / 'guide' / 'get-started.rst'

_CONFIGURATION = """\
[DEFAULT]
state_path = {directory}
log_file = {directory}/nova-compute.log
transport_url = fake:/
compute_driver = fake.FakeDriver
[oslo_concurrency]
lock_path = {directory}/locks
[cinder]
auth_type = admin_token
endpoint = http://127.0.0.1:9/
token = x
[service_user]
send_service_user_token = true
auth_type = admin_token
endpoint = http://127.0.0.1:9/
token = x
"""


class ProcessTest(testtools.TestCase):
    """The real entry point in the real ``main()`` of nova-compute."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        directory = fixtures.TempDir()
        directory.setUp()
        cls.addClassCleanup(directory.cleanUp)
        cls.starter = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-m',
             'nova_bdm_cleanup.tests.cloud.nova_compute'],
            env={**base.install_into(pathlib.Path(directory.path, 'site')),
                 # stevedore keeps what it found there.
                 'XDG_CACHE_HOME': directory.path + '/cache'},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.starter.communicate)

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)

    def _start(self, options=None, change=''):
        """Start nova-compute.

        :param options: of ``[bdm_cleanup]``; None: there is no such section
        :param change: what is different in this Nova: ``name`` or
            ``signature``
        :returns: its exit code, what it told, and the lines of its log that
            are ours
        """
        conf = self.directory / 'nova.conf'
        conf.write_text(_CONFIGURATION.format(directory=self.directory)
                        + ('' if options is None
                           else '[bdm_cleanup]\n' + options))
        print(json.dumps([str(self.directory), change]),
              file=self.starter.stdin, flush=True)
        code = int(self.starter.stdout.readline())
        output, errors, log = (
            (self.directory / name).read_text()
            for name in ('stdout', 'stderr', 'nova-compute.log'))
        for name, text in (('stderr', errors), ('log', log)):
            self.addDetail(name, content.text_content(text))
        told = json.loads(output) if output else None
        return code, told, [
            line for line in log.splitlines() if 'bdm-cleanup' in line
            and 'Traceback' not in line]

    def _check_untouched(self, told):
        self.assertNotIn(
            'nova_bdm_cleanup',
            ''.join(map(str, told['methods'].values())))

    def check_active(self, options, *expected, change=''):
        """It starts with the plugin.

        :param expected: words of each of the lines
        :returns: what it told, and the lines
        """
        code, told, log = self._start('mode = enforce\n' + options, change)
        self.assertEqual((0, len(expected)), (code, len(log)), log)
        self.assertEqual('nova_bdm_cleanup.node.hooks.hook',
                         told['methods']['_delete_dangling_bdms'])
        for words, line in zip(expected, log):
            for word in words:
                self.assertIn(word, line)
        return told, log

    def check_refused(self, options, *expected, change=''):
        """It starts without, or not at all where the plugin is required.

        :param expected: words of the last line
        """
        if 'mode' not in options:
            options += 'mode = enforce\n'
        code, told, log = self._start(options, change)
        self.assertEqual(0, code)
        for word in (' CRITICAL ', *expected):
            self.assertIn(word, log[-1])
        self._check_untouched(told)
        code, told, _ = self._start(options + 'required = true\n', change)
        self.assertEqual((1, None), (code, told))

    def test_on(self):
        _, (line,) = self.check_active('', (
            'mode=enforce', 'timeout=60', 'required=false',
            'remove=missing,available,attached-elsewhere,duplicate,stale'))
        self.assertRegex(
            line, r' INFO .*bdm-cleanup %s is active in Nova \d\d\.'
            % re.escape(VERSION))
        # As "Get started" shows it.
        sample, = re.findall('is active in Nova [^:]*: (.*)',
                             _GET_STARTED.read_text(encoding='utf-8'))
        self.assertEqual(re.findall(r'(\w+)=', sample),
                         re.findall(r'(\w+)=', line))

    def test_what_is_not_switched_on_is_not_imported(self):
        _, told, _ = self._start('mode = enforce\n')
        self.assertIn('nova_bdm_cleanup.node.cleaning', told['modules'])
        for name in ('node.audit', 'node.periodic', 'node.store.findings',
                     'client', 'admin'):
            self.assertNotIn('nova_bdm_cleanup.' + name, told['modules'])

    def test_off(self):
        """Nothing of it is imported unless something is written of it."""
        for options in (None, '', 'mode = off\nrequired = true\n'):
            code, told, log = self._start(options)
            self.assertEqual((0, []), (code, log))
            self._check_untouched(told)
            ours = {name for name in told['modules']
                    if not name.startswith('nova_bdm_cleanup.tests')}
            self.assertNotIn('nova_bdm_cleanup.node.hooks.hook', ours)
            if options is None:
                # A package brings its namespace along.
                self.assertEqual(
                    {'nova_bdm_cleanup', 'nova_bdm_cleanup.node',
                     'nova_bdm_cleanup.node.loader',
                     'nova_bdm_cleanup.node.option_group'}, ours)

    def test_every_trigger(self):
        told, _ = self.check_active(
            'triggers = all\n'
            '[DEFAULT]\nresume_guests_state_on_host_boot = true\n',
            ('triggers=start,host_boot,move,delete ',))
        self.assertLessEqual(
            {'_power_on', '_resume_guests_state', 'init_host',
             '_get_instance_block_device_info',
             '_terminate_volume_connections', '_prep_block_device',
             '_rebuild_default_impl', 'check_can_live_migrate_source'},
            set(told['wrapped']))

    def test_host_boot_where_nova_resumes_nothing(self):
        self.check_active(
            'triggers = host_boot\n',
            (' WARNING ',
             '"host_boot" of [bdm_cleanup] triggers has no effect'),
            ('is active',))

    def test_start_that_is_not_understood(self):
        """That trigger alone is refused, by name."""
        told, _ = self.check_active(
            'triggers = start, delete\n',
            (' CRITICAL ', '"start" of [bdm_cleanup] triggers', '_power_on',
             'novelty'), ('triggers=delete ',), change='start')
        self.assertNotIn('_power_on', told['wrapped'])

    def test_unknown_nova(self):
        self.check_refused('', '_reboot_instance', 'novelty',
                           change='signature')

    def test_wrong_value(self):
        """One of many; which are wrong is in the unit tests."""
        for options, said in (
                ('triggers = moves\n', 'triggers = moves in %s: moves is none '
                 'of start, host_boot, move, delete, all; did you mean move?'),
                ('mode = obsrve\n', 'mode = obsrve in %s: it must be one of '
                 'off, observe, enforce; did you mean observe?'),
                ('modes = enforce\n', 'modes in %s: there is no such option; '
                 'did you mean mode?')):
            self.check_refused(
                options, 'bdm-cleanup is off; Nova is left as it is: '
                '[bdm_cleanup] ' + said % (self.directory / 'nova.conf'))

    def test_required_is_not_understood(self):
        code, told, log = self._start('required = ture\n')
        self.assertEqual((1, None), (code, told))
        self.assertIn('required = ture in ', log[-1])

    def test_what_nobody_foresaw(self):
        self.check_refused('', 'UNSHELVING', change='name')

    def test_store_that_cannot_be_written(self):
        blocked = self.directory / 'blocked'
        blocked.touch()
        options = f'store = {blocked}/store.sqlite\n'
        self.check_active(options, (str(blocked),), ('is active',))
        code, told, _ = self._start(
            'mode = enforce\n' + options + 'required = true\n')
        self.assertEqual((1, None), (code, told))


class MistypedTest(base.FunctionalTestCase):
    """The plugin is off, whatever else is written: Nova is stock."""

    CLOUD = {'nova_options': {'bdm_cleanup': {'modes': 'enforce'}}}

    def test_reboot(self):
        before = dict(vars(manager.ComputeManager))
        with fixtures.MonkeyPatch('sys.modules', {
                **sys.modules, 'nova.cmd.compute': sys}):
            loader.Loader.load('bdm_cleanup')
        self.assertEqual(before, dict(vars(manager.ComputeManager)))
        line, = self.cloud.log('CRITICAL .*bdm-cleanup')
        self.assertIn('modes in ', line)
        server = self.cloud.server(fixture.Disk())
        volume, = server.volumes
        # Stock removes only what Cinder knows no attachment of.
        self.cloud.reset_status(volume)
        self.cloud.reboot(server)
        self.assertIsNotNone(self.cloud.look(server).block_device(volume))
        self.assertEqual([], self.cloud.log('bdm-cleanup: event='))


class HookTest(testtools.TestCase):

    NAMES = ('_delete_dangling_bdms', '_reboot_instance', 'reboot_instance',
             '_power_on', 'start_instance', '_resume_guests_state',
             '_get_instance_block_device_info', 'init_host')
    TRIGGERS = ('hard_reboot', 'start', 'host_boot')

    def _methods(self):
        return {name: vars(manager.ComputeManager).get(name)
                for name in self.NAMES}

    def test_install_and_uninstall(self):
        before = self._methods()
        self.addCleanup(hook.uninstall)
        reboot = ['_delete_dangling_bdms', '_reboot_instance']
        for triggers, left in (
                (['hard_reboot'], ['_power_on', '_resume_guests_state']),
                (['start'], [*reboot, '_resume_guests_state']),
                (['host_boot'], [*reboot, '_power_on']),
                (self.TRIGGERS, [])):
            self._check_understood()
            hook.install(triggers)
            once = self._methods()
            self.assertNotEqual(before, once)
            # Only what is wanted.
            self.assertEqual({name: before[name] for name in left},
                             {name: once[name] for name in left})
            hook.install(self.TRIGGERS)
            self.assertEqual(once, self._methods())
            hook.uninstall()
            self.assertEqual(before, self._methods())
            hook.uninstall()
            self.assertEqual(before, self._methods())
        self._check_understood()

    def _check_understood(self):
        self.assertEqual([], fit.differences())
        for name in self.TRIGGERS:
            self.assertEqual([], fit.differences_for(name))
