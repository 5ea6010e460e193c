# SPDX-License-Identifier: Apache-2.0
"""Installing the plugin into nova-compute, and uninstalling it."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import fixtures
from nova.compute import manager
import testtools
from testtools import content

from nova_bdm_cleanup import VERSION
from nova_bdm_cleanup.node import loader
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.hooks import installation, requirements, table
from nova_bdm_cleanup.node.options import triggers_of
from nova_bdm_cleanup.node.store.database import Database
from nova_bdm_cleanup.tests.cloud import cinder, fixture, identity, standin
from nova_bdm_cleanup.tests.functional import base
from nova_bdm_cleanup.tests.unit import base as unit

_GET_STARTED = base.CHECKOUT / 'doc' / 'source' / 'guide' / 'get-started.rst'

#: The words of ``triggers``.
WORDS = [choice.word for choice in triggers.CHOICES]

#: The method that is wrapped for a reboot in this Nova.
CLEANUP_METHOD = ('_delete_dangling_bdms' if requirements.has_builtin()
            else '_reboot_instance')

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
                 # stevedore caches the entry points there.
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
        :param change: the difference of this Nova: ``name``, ``signature``
            or ``start``
        :returns: its exit code, its output, and the plugin's lines of its log
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
        report = json.loads(output) if output else None
        return code, report, [
            line for line in log.splitlines() if 'bdm-cleanup' in line
            and 'Traceback' not in line]

    def _check_untouched(self, report):
        self.assertEqual([], report['wrapped'])

    def check_active(self, options, *expected, change=''):
        """Check that nova-compute starts with the plugin.

        :param expected: words of each of the lines
        :returns: its output, and the lines
        """
        code, report, log = self._start('mode = enforce\n' + options, change)
        self.assertEqual((0, len(expected)), (code, len(log)), log)
        self.assertIn(CLEANUP_METHOD, report['wrapped'])
        for words, line in zip(expected, log):
            for word in words:
                self.assertIn(word, line)
        return report, log

    def check_refused(self, options, *expected, change=''):
        """Check that it starts without the plugin, or not at all if required.

        :param expected: words of the last line
        """
        if 'mode' not in options:
            options += 'mode = enforce\n'
        code, report, log = self._start(options, change)
        self.assertEqual(0, code)
        for word in (' CRITICAL ', *expected):
            self.assertIn(word, log[-1])
        self._check_untouched(report)
        code, report, _ = self._start(options + 'required = true\n', change)
        self.assertEqual((1, None), (code, report))

    def test_enforce_mode_is_logged_as_documented(self):
        _, (line,) = self.check_active('', (
            'mode=enforce', 'timeout=60', 'required=false',
            'remove=missing,available,attached-elsewhere,never-attached,'
            'duplicate,stale'))
        self.assertRegex(
            line, r' INFO .*bdm-cleanup %s is active in Nova \d\d\.'
            % re.escape(VERSION))
        # As "Get started" shows it.
        sample, = re.findall('is active in Nova [^:]*: (.*)',
                             _GET_STARTED.read_text(encoding='utf-8'))
        self.assertEqual(re.findall(r'(\w+)=', sample),
                         re.findall(r'(\w+)=', line))

    def test_disabled_parts_are_not_imported(self):
        _, report, _ = self._start('mode = enforce\n')
        self.assertIn('nova_bdm_cleanup.node.instance_cleanup',
                      report['modules'])
        for name in ('node.hooks.moves', 'client', 'admin'):
            self.assertNotIn('nova_bdm_cleanup.' + name, report['modules'])

    def test_off_mode_imports_no_hooks(self):
        """Import no hooks when off, and only the loader if not configured."""
        for options in (None, '', 'mode = off\nrequired = true\n'):
            code, report, log = self._start(options)
            self.assertEqual((0, []), (code, log))
            self._check_untouched(report)
            modules = {name for name in report['modules']
                    if not name.startswith('nova_bdm_cleanup.tests')}
            self.assertNotIn('nova_bdm_cleanup.node.hooks.installation',
                             modules)
            if options is None:
                # Importing a module imports its packages.
                self.assertEqual(
                    {'nova_bdm_cleanup', 'nova_bdm_cleanup.node',
                     'nova_bdm_cleanup.node.loader',
                     'nova_bdm_cleanup.node.option_group'}, modules)

    def test_all_triggers_wrap_their_methods(self):
        report, _ = self.check_active(
            'triggers = all\n'
            '[DEFAULT]\nresume_guests_state_on_host_boot = true\n',
            ('triggers=%s ' % ','.join(WORDS),))
        self.assertLessEqual(
            {hook.method.name for hook in table.hooks_for(
                triggers.TRIGGERS, requirements.has_builtin())
             if hook.method.owner == table.MANAGER},
            set(report['wrapped']))

    def test_host_boot_without_resume_option(self):
        self.check_active(
            'triggers = host_boot\n',
            (' WARNING ',
             '"host_boot" of [bdm_cleanup] triggers has no effect'),
            ('is active',))

    def test_unknown_signature_of_start(self):
        """Refuse that trigger alone, by name."""
        report, _ = self.check_active(
            'triggers = start, delete\n',
            (' CRITICAL ', '"start" of [bdm_cleanup] triggers', '_power_on',
             'new_parameter'), ('triggers=delete ',), change='start')
        self.assertNotIn('_power_on', report['wrapped'])

    def test_unknown_signature_of_reboot(self):
        self.check_refused('', '_reboot_instance', 'new_parameter',
                           change='signature')

    def test_wrong_value_turns_the_plugin_off(self):
        """Refuse wrong values; the unit tests have all of them."""
        for options, said in (
                ('triggers = moves\n',
                 'triggers = moves in %%s: moves is none '
                 'of %s, all; did you mean move?' % ', '.join(WORDS)),
                ('mode = obsrve\n', 'mode = obsrve in %s: it must be one of '
                 'off, observe, enforce; did you mean observe?'),
                ('modes = enforce\n', 'modes in %s: there is no such option; '
                 'did you mean mode?')):
            self.check_refused(
                options, 'bdm-cleanup is off; Nova is left as it is: '
                '[bdm_cleanup] ' + said % (self.directory / 'nova.conf'))

    def test_invalid_value_of_required(self):
        code, report, log = self._start('required = ture\n')
        self.assertEqual((1, None), (code, report))
        self.assertIn('required = ture in ', log[-1])

    def test_missing_credentials_turn_the_plugin_off(self):
        self.check_refused(
            '[cinder]\nauth_section = nowhere\n[bdm_cleanup]\n',
            'bdm-cleanup is off; Nova is left as it is: [nowhere] auth_type '
            'is not set')

    def test_missing_option_of_the_credentials_turns_the_plugin_off(self):
        self.check_refused(
            '[cinder]\nauth_type = password\n[bdm_cleanup]\n',
            'bdm-cleanup is off; Nova is left as it is: [cinder] auth_url is '
            'not set')

    def test_name_missing_in_nova(self):
        self.check_refused('', 'reboot_pending', change='name')

    def test_unwritable_store_prevents_a_required_start(self):
        blocked = self.directory / 'blocked'
        blocked.touch()
        self.check_store(blocked / 'store.sqlite', str(blocked))

    def test_newer_store_prevents_a_required_start(self):
        """Name the store, its version and what to do."""
        path = self.directory / 'store' / 'store.sqlite'
        path.parent.mkdir(0o700)
        Database(str(path)).check()
        unit.sql(str(path), 'PRAGMA user_version = 2')
        self.check_store(
            path, ' ERROR ', 'change nothing', f'store {path}',
            'of version 2, this release knows version 1',
            'install the release that wrote it, or move the file away and '
            'restart nova-compute')

    def check_store(self, path, *words):
        """Check that it starts, with an error, and not if required."""
        options = f'store = {path}\n'
        self.check_active(options, words, ('is active',))
        code, report, _ = self._start(
            'mode = enforce\n' + options + 'required = true\n')
        self.assertEqual((1, None), (code, report))


class LoadingTestCase(base.FunctionalTestCase):
    """The entry point in the process that has the cloud."""

    def load(self) -> None:
        """Load the plugin as nova-compute does, and start nova-compute."""
        self.addCleanup(installation.uninstall)
        with fixtures.MonkeyPatch('sys.modules', {
                **sys.modules, 'nova.cmd.compute': sys}):
            loader.Loader.load('bdm_cleanup')
        self.cloud.restart_compute()

    def check_off(self, *words: str) -> None:
        """Load the plugin, and check that it stays off."""
        before = dict(vars(manager.ComputeManager))
        self.load()
        self.assertEqual(before, dict(vars(manager.ComputeManager)))
        line, = self.cloud.log('CRITICAL .*bdm-cleanup')
        for word in words:
            self.assertIn(word, line)


class MistypedOptionTest(LoadingTestCase):
    """Stock Nova, since a mistyped option turns the plugin off."""

    CLOUD = {'nova_options': {'bdm_cleanup': {'modes': 'enforce'}}}

    def test_mistyped_option_leaves_the_reboot_to_nova(self):
        self.check_off('modes in ')
        server = self.cloud.server(fixture.Disk())
        volume, = server.volumes
        # Stock Nova removes only mappings without an attachment.
        self.cloud.reset_status(volume)
        self.cloud.reboot(server)
        self.assertIsNotNone(self.cloud.look(server).block_device(volume))
        self.assertEqual([], self.cloud.log('bdm-cleanup: event='))


class WithoutCredentialsTest(LoadingTestCase):
    """Stock Nova, since nothing shows every project of Cinder."""

    CLOUD = {'cinder_credentials': False,
             'nova_options': {'bdm_cleanup': {'mode': 'enforce'}}}

    def test_healthy_disk_stays_in_the_reboot_of_an_administrator(self):
        """Leave it to Nova: the token of the administrator shows no disk, and
        a neighbour has an old row with the same address.
        """
        server, neighbour = (
            self.cloud.server(fixture.Disk(at_boot=True), name=name)
            for name in ('server', 'neighbour'))
        volume, = server.volumes
        for each in (server, neighbour):
            self.cloud.change_connection_data(
                each, *each.volumes, target_lun=5,
                target_iqn='iqn.2010-10.org.openstack:array')
        self.cloud.lose_attachment(neighbour, *neighbour.volumes)
        self.check_off('[cinder] auth_type is not set')
        self.cloud.reboot(server, by=self.cloud.admin)
        self.assertEqual([], self.cloud.log('bdm-cleanup: event='))
        self.assertTrue(self.cloud.look(server).has_disk(volume))


class KeystoneDownTest(LoadingTestCase):
    """Credentials that cannot be tried when nova-compute starts."""

    @classmethod
    def cloud_arguments(cls) -> dict[str, Any]:
        keystone = cinder.shared().stand_in
        keystone.users[identity.NOVA.user] = identity.NOVA
        return {'cinder_credentials': False, 'nova_options': {
            'bdm_cleanup': {'mode': 'enforce', 'settle_time': 0},
            'cinder': {
                'auth_type': 'password', 'auth_url': keystone.identity_url,
                'username': identity.NOVA.user,
                'password': standin.PASSWORD, 'user_domain_id': 'default',
                'project_id': identity.NOVA.project}}}

    @classmethod
    def cloud_name(cls) -> str:
        return cls.__name__

    def test_reboot_cleans_up_once_keystone_answers(self):
        server = self.cloud.server(fixture.Disk())
        volume, = server.volumes
        self.cloud.lose_attachment(server, volume)
        keystone_is_down = fixtures.MockPatchObject(
            cinder.shared().stand_in, 'authenticate',
            side_effect=ConnectionError)
        with keystone_is_down:
            self.load()
            self.assertEqual([], self.cloud.log('CRITICAL .*bdm-cleanup'))
            self.cloud.reboot(server)
            line, = self.cloud.log('bdm-cleanup: event=skipped')
            self.assertIn(' WARNING ', line)
            self.assertIn('reason=cinder-unknown', line)
            self.assertIsNotNone(self.cloud.look(server).block_device(volume))
        self.cloud.reboot(server)
        self.assert_gone(self.cloud.look(server), volume)


class InstallationTest(testtools.TestCase):

    METHODS = {'': [],
             'start': ['_power_on', '_get_instance_block_device_info'],
             'host_boot': ['_resume_guests_state',
                           '_get_instance_block_device_info'],
             'delete': []}

    def setUp(self):
        super().setUp()
        self.addCleanup(installation.uninstall)

    def _methods(self):
        return dict(vars(manager.ComputeManager))

    def test_install_and_uninstall(self):
        before = self._methods()
        for word, methods in self.METHODS.items():
            self._check_no_differences()
            installation.install(triggers_of([word] if word else []))
            once = self._methods()
            changed = {name for name in once
                       if once[name] is not before.get(name)}
            expected = {CLEANUP_METHOD, '_reboot_instance', 'init_host',
                        '_update_available_resource_for_node', 'cleanup_host',
                        '_shutdown_instance', '_rollback_live_migration',
                        '_reset_live_migration', *methods}
            if CLEANUP_METHOD == '_reboot_instance':
                expected.add('_get_instance_block_device_info')
            # Only the wanted methods are wrapped.
            self.assertEqual(expected, changed)
            installation.install(triggers.TRIGGERS)
            self.assertEqual(once, self._methods())
            self._check_no_differences()
            installation.uninstall()
            self.assertEqual(before, self._methods())
            installation.uninstall()
            self.assertEqual(before, self._methods())
        self._check_no_differences()

    def _check_no_differences(self):
        self.assertEqual([], requirements.differences())
        self.assertEqual(
            {word: [] for word in WORDS},
            requirements.differences_by_word(WORDS))
