# SPDX-License-Identifier: Apache-2.0
"""The checks of ``nova-bdm-cleanup check`` that need no Nova.

Those that need Nova run in the functional tests.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from types import SimpleNamespace
from typing import Any
from unittest import mock

import fixtures
from keystoneauth1 import loading as ks_loading
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code, Result

from nova_bdm_cleanup import VERSION
from nova_bdm_cleanup.admin import check, configuration, main
from nova_bdm_cleanup.node import options
from nova_bdm_cleanup.node.option_group import GROUP
from nova_bdm_cleanup.tests.unit import base, loopback, running, wire


class CheckCase(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.conf = cfg.ConfigOpts()
        options.register_opts(self.conf)
        for group in ('cinder', 'service_user'):
            ks_loading.register_session_conf_options(self.conf, group)
            ks_loading.register_auth_conf_options(self.conf, group)
        self.conf.register_opt(cfg.BoolOpt(
            'send_service_user_token', default=False), 'service_user')
        # As Nova registers it.
        self.conf.register_opt(cfg.StrOpt('host', default='compute1'))
        self.conf([], default_config_files=[])
        self.directory = self.tempdir()
        self.set(store=os.path.join(self.directory, 'state', 'journal'))

    def set(self, group: str | None = GROUP, **options: Any) -> None:
        for name, value in options.items():
            self.conf.set_override(name, value, group)

    def expect(self, code: Code, name: str, *words: str) -> None:
        """Check the result; without words, it must have no details."""
        result = check._guarded(getattr(check.Checks, name))(
            check.Checks(self.conf))
        details = result.details or ''
        self.assertEqual((code, bool(words)), (result.code, bool(details)),
                         details)
        for word in words:
            self.assertIn(word, details)

    def configure(self, *lines: str) -> None:
        """Load these lines as nova.conf."""
        path = os.path.join(self.directory, 'nova.conf')
        with open(path, 'w') as file:
            file.write('\n'.join(lines))
        self.conf([], default_config_files=[path])


class HostTest(CheckCase):
    """Checks of the host itself."""

    def test_missing_plugin_is_a_failure_and_mode_off_a_warning(self) -> None:
        point = mock.Mock(group='os_vif')
        point.name = 'bdm_cleanup'
        found = mock.Mock(entry_points=[])
        with mock.patch('importlib.metadata.distributions', autospec=True,
                        return_value=[found]):
            self.expect(Code.FAILURE, 'plugin', 'pip install')
            found.entry_points.append(point)
            self.expect(Code.WARNING, 'plugin', 'mode = observe')
            self.set(mode='observe')
            self.expect(Code.SUCCESS, 'plugin')

    def test_wrong_options_fail_and_useless_ones_warn(self) -> None:
        self.expect(Code.SUCCESS, 'options')
        self.conf.register_opt(cfg.BoolOpt(
            'resume_guests_state_on_host_boot', default=False))
        self.set(triggers=['start', 'host_boot'])
        self.expect(Code.WARNING, 'options',
                    'resume_guests_state_on_host_boot')
        self.configure('[bdm_cleanup]', 'timeout = 0')
        self.expect(Code.FAILURE, 'options', '[bdm_cleanup] timeout')

    def test_limits_of_each_os_brick_release_are_named(self) -> None:
        powerflex = os.path.join(self.directory, 'scini')
        self.useFixture(fixtures.MockPatchObject(
            check, '_POWERFLEX_DEVICE', powerflex))
        version = self.useFixture(fixtures.MockPatch(
            'importlib.metadata.version', autospec=True)).mock
        for has_powerflex in (False, True):
            if has_powerflex:
                with open(powerflex, 'w'):
                    pass
            for version.return_value in (
                    '5.2.4', '6.11.0', '6.12.0', '6.14.0'):
                self.expect(Code.SUCCESS, 'os_brick', version.return_value,
                            'iSCSI', '6.11.1 and 7.0')
            self.expect_of('6.11.1', version)
            for number in ('7.0.0', '7.1.0.dev3', '10.0'):
                self.expect_of(number, version, *(
                    ('PowerFlex', number) if has_powerflex else ()))

    def expect_of(self, number: str, version: mock.Mock, *words: str) -> None:
        version.return_value = number
        self.expect(Code.SUCCESS, 'os_brick', *words)
        version.assert_called_with('os-brick')

    def test_unusable_store_is_a_failure(self) -> None:
        self.expect(Code.SUCCESS, 'journal')
        blocked = os.path.join(self.directory, 'blocked')
        with open(blocked, 'w'):
            pass
        self.set(store=os.path.join(blocked, 'journal'))
        self.expect(Code.FAILURE, 'journal', blocked)

    def test_journal_is_never_made_for_root(self) -> None:
        with mock.patch('os.geteuid', autospec=True, return_value=0), \
                mock.patch.object(check, '_owner', autospec=True,
                                  return_value=42436):
            self.expect(Code.WARNING, 'journal', 'belongs to user 42436')
        self.assertEqual([], os.listdir(self.directory))

    def test_root_makes_no_store(self) -> None:
        """The directory of the store is not there before nova-compute runs."""
        if os.geteuid() != 0:
            self.skipTest('only root can give a directory away')
        os.chown(self.directory, 65534, -1)
        self.set(store=os.path.join(self.directory, 'bdm-cleanup', 'store'))
        self.expect(Code.WARNING, 'journal', 'belongs to user 65534')
        self.assertEqual([], os.listdir(self.directory))

    def test_missing_cinder_credentials_are_a_failure(self) -> None:
        self.expect(Code.FAILURE, 'credentials', '[cinder] auth_type')
        for name in ('cinder_version', 'cinder'):
            self.expect(Code.WARNING, name, 'without credentials')
        self.set('cinder', auth_type='password')
        self.expect(Code.FAILURE, 'credentials', '[cinder] auth_url')
        self.set('cinder', auth_type='none')
        self.expect(Code.SUCCESS, 'credentials')

    def test_credentials_of_auth_section_count(self) -> None:
        """Follow ``auth_section``, which openstack-ansible sets."""
        section = ['[cinder]', 'auth_section = keystone_authtoken',
                   '[keystone_authtoken]']
        self.configure(*section, 'auth_url = http://keystone')
        self.expect(Code.FAILURE, 'credentials',
                    '[keystone_authtoken] auth_type is not set')
        self.configure(*section, 'auth_url = http://keystone',
                       'auth_type = password')
        self.expect(Code.SUCCESS, 'credentials')

    def test_metrics_file_without_directory_is_a_failure(self) -> None:
        self.expect(Code.SUCCESS, 'metrics_file')
        self.set(metrics_file=os.path.join(self.directory, 'bdm.prom'))
        self.expect(Code.SUCCESS, 'metrics_file')
        self.assertEqual([], os.listdir(self.directory))
        path = os.path.join(self.directory, 'none', 'bdm.prom')
        self.set(metrics_file=path)
        self.expect(Code.FAILURE, 'metrics_file', path, 'create its directory')

    def test_check_that_breaks_fails_alone(self) -> None:
        """Check that it fails and does not stop the other checks."""
        with mock.patch.object(check.Checks, 'nova', autospec=True,
                               side_effect=ValueError('odd\x1b')):
            self.expect(Code.FAILURE, 'nova', 'ValueError: odd\\x1b')


class RunningTest(CheckCase):
    """The running nova-compute; this process stands in for it."""

    def start(self, problem: str = '', since: float | None = None) -> None:
        running.start(self.conf[GROUP].store, since=since,
                      problem=problem, audit_interval=3600)

    def test_result_follows_the_state_of_nova_compute(self) -> None:
        # A check before the restart of nova-compute is no failure.
        self.expect(Code.SUCCESS, 'running', '[bdm_cleanup] mode = enforce')
        self.assertEqual([], os.listdir(self.directory))
        self.start()
        self.expect(Code.SUCCESS, 'running')
        self.start('no such method')
        self.expect(Code.FAILURE, 'running', 'no such method')
        self.start(since=0)
        self.expect(Code.WARNING, 'running', 'no round of the audit')
        running.end(self.conf[GROUP].store)
        self.expect(Code.SUCCESS, 'running', 'has ended')

    def test_other_version_asks_for_a_restart(self) -> None:
        running.start(self.conf[GROUP].store, version=VERSION)
        self.expect(Code.SUCCESS, 'running')
        running.start(self.conf[GROUP].store, version='0.0.1')
        self.expect(Code.SUCCESS, 'running', 'it runs 0.0.1; %s is installed: '
                    'restart nova-compute' % VERSION)

    def test_wrong_host_asks_for_another_config_file(self) -> None:
        self.start()
        self.set(None, host='vm')
        self.expect(Code.WARNING, 'running',
                    'for compute1, give its --config-file')

    def test_the_store_cannot_be_read(self) -> None:
        self.start()
        path = self.conf[GROUP].store
        with open(path, 'wb') as file:
            file.write(b'no store at all ' * 256)
        self.expect(Code.FAILURE, 'running', path)


class ServiceTokenTest(CheckCase):
    """The user and roles of the service token, asked of Keystone."""

    def become(self, name: str) -> None:
        """Configure a user whose only role has the same name."""
        server = self.useFixture(
            wire.LoopbackServer(loopback.LoopbackCloud()))
        self.configure(
            '[service_user]', 'send_service_user_token = true',
            'auth_type = password', 'username = ' + name,
            'auth_url = %s/identity/v3' % server.url, 'password = x',
            'project_name = own', 'user_domain_id = default',
            'project_domain_id = default')

    def test_missing_service_user_is_a_failure(self) -> None:
        self.expect(Code.FAILURE, 'service_token', 'send_service_user_token')
        self.set('service_user', send_service_user_token=True)
        self.expect(Code.FAILURE, 'service_token',
                    'set [service_user] auth_type')

    def test_service_role_succeeds_and_no_token_fails(self) -> None:
        self.become('service')
        self.expect(Code.SUCCESS, 'service_token')
        self.set('service_user', auth_url='http://127.0.0.1:9/v3')
        self.expect(Code.FAILURE, 'service_token',
                    'gives no token for the user in [service_user]')

    def test_user_without_service_role_is_a_warning(self) -> None:
        self.become('member')
        self.expect(Code.WARNING, 'service_token',
                    'does not have the role "service" (its roles: member)',
                    'service_token_roles')


class CinderVersionTest(CheckCase):

    def test_cinder_below_3_44_is_a_failure(self) -> None:
        self.set('cinder', auth_type='password')
        cases: list[tuple[Any, ...]] = [
            *((Code.SUCCESS, self.body(version),
               'its API has version %s; 3.44 is required' % version)
              for version in ('3.44', '3.71', '4.0')),
            *((Code.FAILURE, self.body(version),
               'has version %s' % version, 'upgrade Cinder')
              for version in ('3.9', '3.43', '2.0')),
            (Code.FAILURE, {}, 'no list of "versions"'),
            (Code.FAILURE, {'versions': []}, 'ValueError'),
            (Code.FAILURE, self.body('x'), 'ValueError')]
        for code, body, *words in cases:
            self.answer(body)
            self.expect(code, 'cinder_version', *words)
        self.answer('', 503)
        self.expect(Code.FAILURE, 'cinder_version', '503')

    @staticmethod
    def body(version: str) -> Any:
        return {'versions': [{'id': 'v3.0', 'version': version}]}

    def answer(self, body: Any, status: int = 200) -> None:
        """Have Cinder return this answer."""
        client = mock.Mock()
        client.get_with_base_url.return_value = (
            SimpleNamespace(status_code=status), body)
        self.useFixture(fixtures.MockPatchObject(
            check.Checks, '_client', return_value=client))


class CommandTest(base.TestCase):

    def test_exit_code_is_that_of_the_worst_check(self) -> None:
        for codes, expected in (
                ((Code.SUCCESS, Code.SUCCESS), 0),
                ((Code.SUCCESS, Code.WARNING), 1),
                ((Code.FAILURE, Code.WARNING), 2)):
            found = tuple(
                ('Check %d' % number, lambda _, c=code: Result(c, 'set this'))
                for number, code in enumerate(codes))
            output = io.StringIO()
            conf = cfg.ConfigOpts()
            options.register_opts(conf)
            conf([], default_config_files=[])
            with mock.patch.object(configuration, 'load_nova', autospec=True,
                                   return_value=conf), \
                    mock.patch.object(
                        check.Checks, '_upgrade_checks', found), \
                    contextlib.redirect_stdout(output):
                self.assertEqual(expected, main.main(['check', '--json']))
            self.assertEqual(
                {'name': 'bdm-cleanup Check Results', 'checks': [
                    {'check': 'Check %d' % number, 'result': code,
                     'details': 'set this'}
                    for number, code in enumerate(codes)]},
                json.loads(output.getvalue()))

    def test_missing_nova_is_explained(self) -> None:
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), \
                mock.patch.dict(sys.modules, {'nova': None}):
            self.assertEqual(2, main.main(['check']))
        self.assertIn('the Python of nova-compute', errors.getvalue())
