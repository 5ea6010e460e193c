# SPDX-License-Identifier: Apache-2.0
"""What nova-compute is told at its start of options that are not ours."""

from __future__ import annotations

from oslo_config import cfg

from nova_bdm_cleanup.plugin import startup
from nova_bdm_cleanup.tests.unit import base


class CredentialsTest(base.TestCase):
    """Without Nova's own credentials much cannot be done."""

    def told(self, auth_type: str | None, sends: bool) -> str:
        conf = cfg.ConfigOpts()
        conf.register_opt(cfg.StrOpt('auth_type'), 'cinder')
        conf.register_opt(
            cfg.BoolOpt('send_service_user_token'), 'service_user')
        conf([])
        conf.set_override('auth_type', auth_type, 'cinder')
        conf.set_override('send_service_user_token', sends, 'service_user')
        startup._warn_of_credentials(conf)
        return self.log.output

    def test_both_are_there(self) -> None:
        self.assertEqual('', self.told('password', True))

    def test_none_for_cinder(self) -> None:
        self.assertIn('[cinder] auth_type is not set', self.told(None, True))

    def test_no_service_token(self) -> None:
        self.assertIn('send_service_user_token is not true',
                      self.told('password', False))
