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
"""The checks of ``nova-bdm-cleanup check`` that need no Nova.

Those that do run in the functional tests.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
from types import SimpleNamespace
from typing import Any, Optional, Tuple
from unittest import mock

from keystoneauth1 import loading as ks_loading
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code
from oslo_upgradecheck.upgradecheck import Result

from nova_bdm_cleanup.cli import check
from nova_bdm_cleanup.cli import checks
from nova_bdm_cleanup.cli.exitcodes import CommandError
from nova_bdm_cleanup.cli.exitcodes import ExitCode
from nova_bdm_cleanup.cli import main
from nova_bdm_cleanup import conf as our_conf
from nova_bdm_cleanup.tests.unit import base
from nova_bdm_cleanup.tests.unit import fleet_cloud
from nova_bdm_cleanup.tests.unit import test_layers


class CheckCase(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.conf = cfg.ConfigOpts()
        our_conf.register_opts(self.conf)
        for group in ('cinder', 'service_user'):
            ks_loading.register_session_conf_options(self.conf, group)
            ks_loading.register_auth_conf_options(self.conf, group)
        self.conf.register_opt(cfg.BoolOpt(
            'send_service_user_token', default=False), 'service_user')
        self.conf([], default_config_files=[])
        self.directory = self.tempdir()
        self.set(journal=os.path.join(self.directory, 'state', 'journal'))

    def set(self, group: str = our_conf.GROUP, **options: Any) -> None:
        for name, value in options.items():
            self.conf.set_override(name, value, group)

    def check(self, name: str) -> Tuple[Code, str]:
        """The result of one check."""
        result = getattr(checks.Checks(self.conf), name)()
        return result.code, result.details or ''


class TestHost(CheckCase):
    """What is checked on the host itself."""

    def test_plugin_is_not_installed(self) -> None:
        with mock.patch('importlib.metadata.distributions',
                        autospec=True, return_value=()):
            code, details = self.check('plugin')
        self.assertEqual(Code.FAILURE, code)
        self.assertIn('pip install', details)

    def installed(self) -> Tuple[Code, str]:
        point = mock.Mock(group='os_vif')
        point.name = 'bdm_cleanup'
        with mock.patch(
                'importlib.metadata.distributions', autospec=True,
                return_value=[mock.Mock(entry_points=[point])]):
            return self.check('plugin')

    def test_plugin_is_not_enabled(self) -> None:
        self.assertEqual(Code.WARNING, self.installed()[0])
        self.set(enabled=True)
        self.assertEqual((Code.SUCCESS, ''), self.installed())

    def test_options(self) -> None:
        self.assertEqual((Code.SUCCESS, ''), self.check('options'))
        path = os.path.join(self.directory, 'nova.conf')
        with open(path, 'w') as file:
            file.write('[bdm_cleanup]\ntimeout = 0\n')
        self.conf = cfg.ConfigOpts()
        our_conf.register_opts(self.conf)
        self.conf([], default_config_files=[path])
        code, details = self.check('options')
        self.assertEqual(Code.FAILURE, code)
        self.assertIn('[bdm_cleanup] timeout', details)

    def test_journal(self) -> None:
        self.assertEqual((Code.SUCCESS, ''), self.check('journal'))
        blocked = os.path.join(self.directory, 'blocked')
        with open(blocked, 'w'):
            pass
        self.set(journal=os.path.join(blocked, 'journal'))
        code, details = self.check('journal')
        self.assertEqual(Code.FAILURE, code)
        self.assertIn(blocked, details)

    def test_journal_is_never_made_for_root(self) -> None:
        with mock.patch('os.geteuid', autospec=True,
                        return_value=0), \
                mock.patch.object(checks, '_owner', autospec=True,
                                  return_value=42436):
            code, details = self.check('journal')
        self.assertEqual(Code.WARNING, code)
        self.assertIn('belongs to user 42436', details)
        self.assertEqual([], os.listdir(self.directory))

    def test_credentials(self) -> None:
        code, details = self.check('credentials')
        self.assertEqual(Code.FAILURE, code)
        self.assertIn('auth_type in [cinder]', details)
        self.set('cinder', auth_type='password')
        self.assertEqual((Code.SUCCESS, ''), self.check('credentials'))


class TestServiceToken(CheckCase):
    """Keystone is asked whose token it would be."""

    def service_user(self, name: str) -> Tuple[Code, str]:
        """A user whose only role has the same name."""
        server = fleet_cloud.FleetServer(fleet_cloud.FleetCloud())
        server.start()
        self.addCleanup(server.close)
        path = os.path.join(self.directory, 'nova.conf')
        with open(path, 'w') as file:
            file.write('\n'.join((
                '[service_user]', 'send_service_user_token = true',
                'auth_type = password', 'username = ' + name,
                'auth_url = %s/identity/v3' % server.url, 'password = x',
                'project_name = own', 'user_domain_id = default',
                'project_domain_id = default')))
        self.conf([], default_config_files=[path])
        return self.check('service_token')

    def test_not_sent(self) -> None:
        code, details = self.check('service_token')
        self.assertEqual(Code.FAILURE, code)
        self.assertIn('send_service_user_token', details)

    def test_without_credentials(self) -> None:
        self.set('service_user', send_service_user_token=True)
        self.assertEqual((Code.FAILURE, 'set auth_type in [service_user]'),
                         self.check('service_token'))

    def test_role(self) -> None:
        self.assertEqual((Code.SUCCESS, ''), self.service_user('service'))

    def test_another_role(self) -> None:
        code, details = self.service_user('member')
        self.assertEqual(Code.WARNING, code)
        self.assertIn('no role "service" but member', details)
        self.assertIn('service_token_roles', details)

    def test_keystone_does_not_answer(self) -> None:
        self.service_user('service')
        self.set('service_user', auth_url='http://127.0.0.1:9/v3')
        code, details = self.check('service_token')
        self.assertEqual(Code.FAILURE, code)
        self.assertIn('the user in [service_user]', details)


class TestCinderVersion(CheckCase):

    def version(self, body: Any, status: int = 200) -> Tuple[Code, str]:
        """What is said of an answer of Cinder."""
        client = mock.Mock()
        client.get_with_base_url.return_value = (
            SimpleNamespace(status_code=status), body)
        self.set('cinder', auth_type='password')
        with mock.patch.object(checks.Checks, '_client', autospec=True,
                               return_value=client):
            return self.check('cinder_version')

    @staticmethod
    def body(version: str) -> Any:
        return {'versions': [{'id': 'v3.0', 'version': version}]}

    def test_recent_enough(self) -> None:
        for version in ('3.44', '3.71', '4.0'):
            self.assertEqual(
                (Code.SUCCESS, 'its API has version %s, and 3.44 is needed'
                 % version), self.version(self.body(version)))

    def test_too_old(self) -> None:
        for version in ('3.9', '3.43', '2.0'):
            code, details = self.version(self.body(version))
            self.assertEqual(Code.FAILURE, code)
            self.assertIn('has version %s' % version, details)
            self.assertIn('upgrade Cinder', details)

    def test_no_answer(self) -> None:
        for body, status in (({}, 200), ({'versions': []}, 200),
                             (self.body('x'), 200), ('', 503)):
            self.assertEqual(Code.FAILURE, self.version(body, status)[0])

    def test_without_credentials(self) -> None:
        for name in ('cinder_version', 'cinder'):
            code, details = self.check(name)
            self.assertEqual(Code.WARNING, code)
            self.assertIn('without credentials', details)


class TestCommand(base.TestCase):

    def check(self, *results: Result, arguments: Tuple[str, ...] = ()
              ) -> Tuple[int, str]:
        found = tuple(('Check %d' % number, lambda self, r=result: r)
                      for number, result in enumerate(results))
        output = io.StringIO()
        with mock.patch.object(check, '_load', autospec=True), \
                mock.patch.object(checks.Checks, '_upgrade_checks', found), \
                contextlib.redirect_stdout(output):
            code = main.main(['check', *arguments])
        return code, output.getvalue()

    def test_exit_code(self) -> None:
        for codes, exit_code in (
                ((Code.SUCCESS, Code.SUCCESS), ExitCode.OK),
                ((Code.SUCCESS, Code.WARNING), ExitCode.FINDINGS),
                ((Code.FAILURE, Code.SUCCESS), ExitCode.FINDINGS)):
            self.assertEqual(exit_code, self.check(
                *(Result(c, 'details') for c in codes))[0])

    def test_table(self) -> None:
        _, output = self.check(Result(Code.SUCCESS),
                               Result(Code.WARNING, 'set this'))
        for words in ('bdm-cleanup Check Results', 'Check: Check 0',
                      'Result: Success', 'Details: None', 'Result: Warning',
                      'Details: set this'):
            self.assertIn(words, output)

    def test_json(self) -> None:
        _, output = self.check(
            Result(Code.FAILURE, 'set this'), Result(Code.SUCCESS),
            arguments=('--json',))
        self.assertEqual({'name': 'bdm-cleanup Check Results', 'checks': [
            {'check': 'Check 0', 'result': 2, 'details': 'set this'},
            {'check': 'Check 1', 'result': 0, 'details': None},
        ]}, json.loads(output))

    def test_check_that_breaks(self) -> None:
        def broken(self: Any) -> Result:
            raise ValueError('odd\x1b')

        result = checks._guarded(broken)(None)
        self.assertEqual((Code.FAILURE, 'ValueError: odd\\x1b'),
                         (result.code, result.details))

    def refused(self, *arguments: str,
                error: Optional[CommandError] = None) -> Tuple[int, str]:
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), mock.patch.object(
                check, '_load', autospec=True, side_effect=error):
            return main.main(['check', *arguments]), errors.getvalue()

    def test_configuration_cannot_be_read(self) -> None:
        code, errors = self.refused(error=CommandError(
            ExitCode.BAD_INPUT, 'no such file: nova.conf'))
        self.assertEqual(ExitCode.BAD_INPUT, code)
        self.assertIn('no such file: nova.conf', errors)

    def test_tool_failure(self) -> None:
        with mock.patch.object(checks, 'Checks', autospec=True,
                               side_effect=ValueError('odd')):
            code, errors = self.refused()
        self.assertEqual(ExitCode.BROKEN, code)
        self.assertIn('ValueError: odd', errors)

    def test_bad_argument(self) -> None:
        with contextlib.redirect_stderr(io.StringIO()):
            exc = self.assertRaises(SystemExit, main.main,
                                    ['check', '--yaml'])
        self.assertEqual(ExitCode.BAD_INPUT, exc.code)

    def test_without_nova(self) -> None:
        if importlib.util.find_spec('nova'):
            self.skipTest('Nova is installed')
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            self.assertEqual(ExitCode.REFUSED, main.main(['check']))
        self.assertIn('the Python of nova-compute', errors.getvalue())


class TestLayer(base.TestCase):

    def test_the_plugin_does_not_import_the_command(self) -> None:
        plugin = os.path.join(test_layers.PACKAGE, 'plugin')
        foreign = ('oslo_upgradecheck', 'nova_bdm_cleanup.cli',
                   'nova_bdm_cleanup.osc', 'nova_bdm_cleanup.fleet')
        for name in os.listdir(plugin):
            if name.endswith('.py'):
                self.assertEqual([], [
                    i for i in test_layers.imports(os.path.join(plugin, name))
                    if i.startswith(foreign)])
