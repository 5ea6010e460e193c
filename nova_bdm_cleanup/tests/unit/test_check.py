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
from typing import Any, Tuple
from unittest import mock

from oslo_config import cfg

from nova_bdm_cleanup.cli import check
from nova_bdm_cleanup.cli.exitcodes import ExitCode
from nova_bdm_cleanup.cli import main
from nova_bdm_cleanup import conf as our_conf
from nova_bdm_cleanup.tests.unit import base


class TestCheck(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.conf = cfg.ConfigOpts()
        our_conf.register_opts(self.conf)
        self.conf([], default_config_files=[])
        self.directory = self.tempdir()
        self.set(journal=os.path.join(self.directory, 'state', 'journal'))

    def set(self, **options: Any) -> None:
        for name, value in options.items():
            self.conf.set_override(name, value, our_conf.GROUP)

    def test_plugin_is_not_installed(self) -> None:
        with mock.patch('importlib.metadata.distributions',
                        autospec=True, return_value=()):
            result, details = check._check_plugin(self.conf)
        self.assertEqual('Failure', result)
        self.assertIn('pip install', details)

    def installed(self) -> Tuple[str, str]:
        point = mock.Mock(group='os_vif')
        point.name = 'bdm_cleanup'
        with mock.patch(
                'importlib.metadata.distributions', autospec=True,
                return_value=[mock.Mock(entry_points=[point])]):
            return check._check_plugin(self.conf)

    def test_plugin_is_not_enabled(self) -> None:
        self.assertEqual('Warning', self.installed()[0])
        self.set(enabled=True)
        self.assertEqual(('Success', ''), self.installed())

    def test_options(self) -> None:
        self.assertEqual(('Success', ''), check._check_options(self.conf))
        path = os.path.join(self.directory, 'nova.conf')
        with open(path, 'w') as file:
            file.write('[bdm_cleanup]\ntimeout = 0\n')
        conf = cfg.ConfigOpts()
        our_conf.register_opts(conf)
        conf([], default_config_files=[path])
        result, details = check._check_options(conf)
        self.assertEqual('Failure', result)
        self.assertIn('[bdm_cleanup] timeout', details)

    def test_journal(self) -> None:
        self.assertEqual(('Success', ''), check._check_journal(self.conf))
        blocked = os.path.join(self.directory, 'blocked')
        with open(blocked, 'w'):
            pass
        self.set(journal=os.path.join(blocked, 'journal'))
        result, details = check._check_journal(self.conf)
        self.assertEqual('Failure', result)
        self.assertIn(blocked, details)

    def test_journal_is_never_made_for_root(self) -> None:
        with mock.patch('os.geteuid', autospec=True,
                        return_value=0), \
                mock.patch.object(check, '_owner', autospec=True,
                                  return_value=42436):
            result, details = check._check_journal(self.conf)
        self.assertEqual('Warning', result)
        self.assertIn('belongs to user 42436', details)
        self.assertEqual([], os.listdir(self.directory))

    def test_credentials(self) -> None:
        for auth_type, result in ((None, 'Failure'),
                                  ('password', 'Success')):
            conf: Any = SimpleNamespace(
                cinder=SimpleNamespace(auth_type=auth_type),
                service_user=SimpleNamespace(auth_type=auth_type,
                                             send_service_user_token=True))
            self.assertEqual(result, check._check_credentials(conf)[0])
            self.assertEqual(result, check._check_service_user(conf)[0])


class TestCommand(base.TestCase):

    def check(self, *results: str, arguments: Tuple[str, ...] = ()
              ) -> Tuple[int, str]:
        checks = tuple(
            ('Check %d' % number, lambda conf, r=result: (r, 'details'))
            for number, result in enumerate(results))
        output = io.StringIO()
        with mock.patch.object(check, '_load', autospec=True), \
                mock.patch.object(check, '_CHECKS', checks), \
                contextlib.redirect_stdout(output):
            code = main.main(['check', *arguments])
        return code, output.getvalue()

    def test_exit_code(self) -> None:
        for results, code in (
                (('Success', 'Success'), ExitCode.OK),
                (('Success', 'Warning'), ExitCode.FINDINGS),
                (('Failure', 'Success'), ExitCode.FINDINGS)):
            self.assertEqual(code, self.check(*results)[0])

    def test_json(self) -> None:
        _, output = self.check('Failure', arguments=('--json',))
        self.assertEqual({'name': 'bdm-cleanup', 'checks': [
            {'check': 'Check 0', 'result': 'Failure', 'details': 'details'},
        ]}, json.loads(output))

    def test_check_that_breaks(self) -> None:
        broken = mock.Mock(side_effect=ValueError('odd'))
        self.assertEqual(
            ('Odd', 'Failure', 'ValueError: odd'),
            check._guarded('Odd', broken, cfg.ConfigOpts()))

    def test_without_nova(self) -> None:
        if importlib.util.find_spec('nova'):
            self.skipTest('Nova is installed')
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            self.assertEqual(ExitCode.REFUSED, main.main(['check']))
        self.assertIn('the Python of nova-compute', errors.getvalue())
