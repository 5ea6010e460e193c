# SPDX-License-Identifier: Apache-2.0
"""The start of nova-compute: credentials, and ``required``."""

from __future__ import annotations

import os

from keystoneauth1 import loading as ks_loading
from oslo_config import cfg

from nova_bdm_cleanup.node import auth_section, startup
from nova_bdm_cleanup.tests.unit import base
from nova_bdm_cleanup.tests.unit.node import test_options


class CredentialsTest(base.TestCase):
    """The credentials in nova.conf, which are not tried at the start."""

    def setUp(self) -> None:
        super().setUp()
        self.conf = self.read()

    def read(self, *lines: str) -> cfg.ConfigOpts:
        """Return the configuration with some lines in ``[cinder]``."""
        path = os.path.join(self.tempdir(), 'nova.conf')
        with open(path, 'w', encoding='utf-8') as file:
            file.write('\n'.join(['[cinder]', *lines, '']))
        conf = cfg.ConfigOpts()
        ks_loading.register_auth_conf_options(conf, 'cinder')
        conf([], default_config_files=[path])
        return conf

    def test_missing_cinder_credentials_are_named(self) -> None:
        [problem] = auth_section.missing_credentials(self.conf)
        self.assertIn('[cinder] auth_type is not set', problem)
        self.conf.set_override('auth_type', 'none', 'cinder')
        self.assertEqual([], auth_section.missing_credentials(self.conf))

    def test_option_that_the_auth_type_requires_is_named(self) -> None:
        for lines, word in (
                (['auth_type = password'], 'auth_url'),
                (['auth_type = password', 'auth_url ='], 'auth_url'),
                (['auth_type = v3applicationcredential',
                  'auth_url = http://keystone'],
                 'application_credential_secret'),
                (['auth_type = password', 'auth_url = http://keystone'], '')):
            problems = auth_section.missing_credentials(self.read(*lines))
            self.assertEqual(bool(word), bool(problems), lines)
            self.assertIn('[cinder] %s is not set' % word if word else '',
                          ''.join(problems))

    def test_unknown_auth_type_is_named(self) -> None:
        [problem] = auth_section.missing_credentials(
            self.read('auth_type = pasword'))
        self.assertIn('[cinder] auth_type = pasword', problem)

    def test_credentials_of_auth_section_count(self) -> None:
        self.conf.set_override('auth_section', 'keystone_authtoken', 'cinder')
        [problem] = auth_section.missing_credentials(self.conf)
        self.assertIn('[keystone_authtoken] auth_type is not set', problem)
        # keystonemiddleware may register them as well.
        ks_loading.register_auth_conf_options(self.conf, 'keystone_authtoken')
        self.conf.set_override('auth_type', 'none', 'keystone_authtoken')
        self.assertEqual([], auth_section.missing_credentials(self.conf))

    def test_missing_service_token_is_logged(self) -> None:
        self.conf.register_opt(
            cfg.BoolOpt('send_service_user_token'), 'service_user')
        self.conf.set_override('send_service_user_token', True, 'service_user')
        startup._check_service_token(self.conf)
        self.assertEqual('', self.log.output)
        self.conf.clear_override('send_service_user_token', 'service_user')
        startup._check_service_token(self.conf)
        self.assertIn('send_service_user_token is not true', self.log.output)


class RequiredTest(test_options.ConfTestCase):
    """The start of nova-compute with a wrong value."""

    def start(self, *lines: str) -> None:
        startup.start(self.conf('mode = enforce', *lines))

    def test_wrong_value_turns_the_plugin_off(self) -> None:
        self.start('timeout = soon')
        self.assertIn('bdm-cleanup is off', self.log.output)

    def test_wrong_value_refuses_a_required_start(self) -> None:
        self.assertRaises(startup.StartRefused, self.start,
                          'timeout = soon', 'required = true')

    def test_invalid_required_refuses_the_start(self) -> None:
        """Refuse to start: the operator may have meant yes."""
        self.assertRaises(startup.StartRefused, self.start,
                          'required = perhaps')
