# SPDX-License-Identifier: Apache-2.0
"""``nova-bdm-cleanup check`` with a real Nova and a real Cinder."""

from __future__ import annotations

import json
import pathlib
import shlex
import shutil
import subprocess
import sys
from typing import Any

import fixtures
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code
from testtools import content

from nova_bdm_cleanup.admin import check
from nova_bdm_cleanup.node import options
from nova_bdm_cleanup.tests.functional import base

_CHECK = [sys.executable, '-W', 'ignore', '-m', 'nova_bdm_cleanup.admin.main',
          'check']

_NAMES = ['Configuration files', 'Plugin', 'Nova', 'os-brick', 'Options',
          'Journal',
          'Running nova-compute', 'Metrics file', 'Credentials for Cinder',
          'Service token', 'Cinder version', 'Cinder']


class CheckTest(base.FunctionalTestCase):
    """Requests of ``nova-bdm-cleanup check`` to Cinder, as nova-compute."""

    CLOUD = None

    def check(self, *names: str, **cloud: Any) -> list[tuple[Code, str]]:
        """Return the results of some checks with some cloud."""
        self.start_cloud(**cloud)
        options.register_opts(cfg.CONF)
        results = [check._guarded(getattr(check.Checks, name))(
            check.Checks(cfg.CONF)) for name in names]
        return [(result.code, result.details or '') for result in results]

    def test_credentials_accepted(self):
        (cinder, _), (version, details), (nova, _), (service, _) = self.check(
            'cinder', 'cinder_version', 'nova', 'service_token')
        self.assertEqual({Code.SUCCESS}, {cinder, version, nova, service})
        self.assertRegex(details, r'version 3\.\d\d; 3\.44 is required')
        self.assertTrue(all(request.has_service_token
                            for request in self.cloud.proxy.requests))

    def test_credentials_without_the_admin_role(self):
        (code, details), = self.check('cinder', nova_options={
            'cinder': {'token': 'nova:service:member,reader'}})
        self.assertEqual(Code.FAILURE, code)
        self.assertIn('admin role', details)

    def test_credentials_refused(self):
        for code, details in self.check(
                'cinder', 'cinder_version',
                nova_options={'cinder': {'token': 'invalid'}}):
            self.assertEqual(Code.FAILURE, code)
            self.assertIn('401', details)

    def test_missing_credentials_are_named(self):
        (cinder, _), (_, credentials), (_, service) = self.check(
            'cinder', 'credentials', 'service_token',
            cinder_credentials=False, service_token=False)
        self.assertEqual(Code.WARNING, cinder)
        self.assertIn('auth_type', credentials)
        self.assertIn('send_service_user_token', service)


class CommandTest(base.FunctionalTestCase):
    """The command itself, with the configuration of nova-compute."""

    CLOUD = {'nova_options': {'bdm_cleanup': {'mode': 'enforce'}}}

    def setUp(self) -> None:
        super().setUp()
        self.site = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.environment = base.install_into(self.site)
        # All tests share the cloud and its configuration.
        self.conf = pathlib.Path(shutil.copy(
            self.cloud.state / 'etc' / 'nova' / 'nova.conf', self.site))
        self.command = shlex.join([*_CHECK, '--config-file', str(self.conf)])

    def run_shell(self, script: str) -> tuple[int, str]:
        """Run a script, and return the exit code and the output."""
        done = subprocess.run(
            ['bash', '-c', script], capture_output=True, text=True,
            cwd=self.site, timeout=120, env=self.environment)
        self.addDetail('stderr', content.text_content(done.stderr))
        self.addDetail('stdout', content.text_content(done.stdout))
        return done.returncode, done.stdout

    def configure(self, text: str) -> None:
        with self.conf.open('a') as file:
            file.write(text)

    def test_working_configuration_succeeds(self):
        code, output = self.run_shell(self.command + ' --json')
        self.assertEqual(Code.SUCCESS, code)
        self.assertEqual(
            [(name, Code.SUCCESS) for name in _NAMES],
            [(c['check'], c['result']) for c in json.loads(output)['checks']])

    def test_failed_checks_name_the_options(self):
        self.configure('[bdm_cleanup]\nmode = off\ntimeouts = 0\n'
                       '[cinder]\ntoken = nova:service:member\n')
        code, output = self.run_shell(self.command)
        self.assertEqual(Code.FAILURE, code)
        for words in ('bdm-cleanup Check Results', 'Check: Cinder version',
                      'Result: Failure', '[bdm_cleanup] timeouts in',
                      'did you mean timeout?', 'admin role'):
            # The table breaks lines where the path of the file is long.
            self.assertIn(words, ' '.join(output.replace('|', ' ').split()))
