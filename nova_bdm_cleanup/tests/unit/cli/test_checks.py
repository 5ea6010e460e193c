# SPDX-License-Identifier: Apache-2.0
"""The checks of ``nova-bdm-cleanup check`` that need no Nova.

Those that do run in the functional tests.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any
from unittest import mock

from keystoneauth1 import loading as ks_loading
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code

from nova_bdm_cleanup.cli import checks
from nova_bdm_cleanup.plugin import options
from nova_bdm_cleanup.plugin.loader import GROUP
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
        # As Nova has it.
        self.conf.register_opt(cfg.StrOpt('host', default='compute1'))
        self.conf([], default_config_files=[])
        self.directory = self.tempdir()
        self.set(store=os.path.join(self.directory, 'state', 'journal'))

    def set(self, group: str | None = GROUP, **options: Any) -> None:
        for name, value in options.items():
            self.conf.set_override(name, value, group)

    def check(self, name: str) -> tuple[Code, str]:
        """The result of one check."""
        result = checks._guarded(getattr(checks.Checks, name))(
            checks.Checks(self.conf))
        return result.code, result.details or ''


class HostTest(CheckCase):
    """What is checked on the host itself."""

    def test_plugin_is_not_installed(self) -> None:
        with mock.patch('importlib.metadata.distributions',
                        autospec=True, return_value=()):
            code, details = self.check('plugin')
        self.assertEqual(Code.FAILURE, code)
        self.assertIn('pip install', details)

    def installed(self) -> tuple[Code, str]:
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
        options.register_opts(self.conf)
        self.conf([], default_config_files=[path])
        code, details = self.check('options')
        self.assertEqual(Code.FAILURE, code)
        self.assertIn('[bdm_cleanup] timeout', details)

    def test_option_without_effect(self) -> None:
        self.conf.register_opt(cfg.BoolOpt(
            'resume_guests_state_on_host_boot', default=False))
        self.set(triggers=['start', 'host_boot'])
        code, details = self.check('options')
        self.assertEqual(Code.WARNING, code)
        self.assertIn('resume_guests_state_on_host_boot', details)
        self.set(sweep_stopped=True)
        code, details = self.check('options')
        self.assertEqual(Code.WARNING, code)
        self.assertIn('resume_guests_state_on_host_boot', details)
        self.assertIn('; [bdm_cleanup] sweep_stopped has no effect', details)

    def test_journal(self) -> None:
        self.assertEqual((Code.SUCCESS, ''), self.check('journal'))
        blocked = os.path.join(self.directory, 'blocked')
        with open(blocked, 'w'):
            pass
        self.set(store=os.path.join(blocked, 'journal'))
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
        self.assertIn('[cinder] auth_type', details)
        self.set('cinder', auth_type='password')
        self.assertEqual((Code.SUCCESS, ''), self.check('credentials'))


class RunningTest(CheckCase):
    """The nova-compute that runs by now; this process takes its part."""

    def start(self, problem: str = '', since: float | None = None) -> None:
        running.start(options.store(self.conf)[0], since=since,
                      problem=problem, audit_interval=3600)

    def test_active(self) -> None:
        self.start()
        self.assertEqual((Code.SUCCESS, ''), self.check('running'))

    def test_refused(self) -> None:
        self.start('no such method')
        self.assertEqual((Code.FAILURE, 'no such method'),
                         self.check('running'))

    def test_stale(self) -> None:
        self.start(since=0)
        code, details = self.check('running')
        self.assertEqual(Code.WARNING, code)
        self.assertIn('no round of the audit', details)

    def test_not_yet(self) -> None:
        # Whoever checks before the restart has done nothing wrong.
        code, details = self.check('running')
        self.assertEqual(Code.SUCCESS, code)
        self.assertIn('[bdm_cleanup] enabled = true', details)
        self.assertEqual([], os.listdir(self.directory))
        self.start()
        running.end(options.store(self.conf)[0])
        code, details = self.check('running')
        self.assertEqual(Code.SUCCESS, code)
        self.assertIn('has ended', details)

    def test_the_configuration_of_another_one(self) -> None:
        self.start()
        self.set(None, host='vm')
        self.assertEqual(
            (Code.WARNING, 'not running in any nova-compute named vm; for '
             'compute1 give its --config-file'), self.check('running'))

    def test_the_store_cannot_be_read(self) -> None:
        self.start()
        path, _ = options.store(self.conf)
        with open(path, 'wb') as file:
            file.write(b'no store at all ' * 256)
        code, details = self.check('running')
        self.assertEqual(Code.FAILURE, code)
        self.assertIn(path, details)


class MetricsFileTest(CheckCase):

    def metrics(self, path: str) -> tuple[Code, str]:
        self.set(metrics_file=path)
        return self.check('metrics_file')

    def test_none(self) -> None:
        self.assertEqual((Code.SUCCESS, ''), self.check('metrics_file'))

    def test_it_can_be_written(self) -> None:
        path = os.path.join(self.directory, 'bdm.prom')
        self.assertEqual((Code.SUCCESS, ''), self.metrics(path))
        self.assertEqual([], os.listdir(self.directory))

    def test_it_cannot(self) -> None:
        path = os.path.join(self.directory, 'none', 'bdm.prom')
        code, details = self.metrics(path)
        self.assertEqual(Code.FAILURE, code)
        self.assertTrue(details.startswith(path), details)
        self.assertIn('make the directory', details)


class ServiceTokenTest(CheckCase):
    """Keystone is asked whose token it would be."""

    def service_user(self, name: str) -> tuple[Code, str]:
        """A user whose only role has the same name."""
        server = self.useFixture(
            wire.LoopbackServer(loopback.LoopbackCloud()))
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
        self.assertEqual((Code.FAILURE, 'set [service_user] auth_type'),
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


class CinderVersionTest(CheckCase):

    def version(self, body: Any, status: int = 200) -> tuple[Code, str]:
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


class GuardTest(base.TestCase):
    """A check that breaks has failed, and does not stop the others."""

    def test_check_that_breaks(self) -> None:
        def broken(self: Any) -> None:
            raise ValueError('odd\x1b')

        result = checks._guarded(broken)(mock.Mock())
        self.assertEqual((Code.FAILURE, 'ValueError: odd\\x1b'),
                         (result.code, result.details))
