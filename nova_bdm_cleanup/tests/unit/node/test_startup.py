# SPDX-License-Identifier: Apache-2.0
"""The start of nova-compute: missing credentials, and ``required``."""

from __future__ import annotations

from keystoneauth1 import loading as ks_loading
from oslo_config import cfg

from nova_bdm_cleanup.node import auth_section, startup
from nova_bdm_cleanup.tests.unit import base
from nova_bdm_cleanup.tests.unit.node import test_options


class CredentialsTest(base.TestCase):
    """A nova-compute without service credentials, which limits cleanups."""

    def warnings(self, auth_type: str | None, sends: bool) -> str:
        conf = cfg.ConfigOpts()
        ks_loading.register_auth_conf_options(conf, 'cinder')
        conf.register_opt(
            cfg.BoolOpt('send_service_user_token'), 'service_user')
        conf([])
        conf.set_override('auth_type', auth_type, 'cinder')
        conf.set_override('send_service_user_token', sends, 'service_user')
        startup._warn_of_credentials(conf)
        return self.log.output

    def test_both_are_there(self) -> None:
        self.assertEqual('', self.warnings('password', True))

    def test_missing_cinder_credentials_are_logged(self) -> None:
        self.assertIn('[cinder] auth_type is not set',
                      self.warnings(None, True))

    def test_credentials_of_auth_section_count(self) -> None:
        conf = cfg.ConfigOpts()
        ks_loading.register_auth_conf_options(conf, 'cinder')
        conf([])
        conf.set_override('auth_section', 'keystone_authtoken', 'cinder')
        self.assertFalse(auth_section.has_credentials(conf, 'cinder'))
        # keystonemiddleware may register them as well.
        ks_loading.register_auth_conf_options(conf, 'keystone_authtoken')
        conf.set_override('auth_type', 'password', 'keystone_authtoken')
        self.assertTrue(auth_section.has_credentials(conf, 'cinder'))

    def test_missing_service_token_is_logged(self) -> None:
        self.assertIn('send_service_user_token is not true',
                      self.warnings('password', False))


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
