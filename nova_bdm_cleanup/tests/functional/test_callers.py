# SPDX-License-Identifier: Apache-2.0
"""The callers of a reboot, with each nova.conf."""

from __future__ import annotations

import dataclasses
import itertools

import fixtures
from keystoneauth1 import loading as ks_loading
from oslo_config import cfg

from nova_bdm_cleanup.node.cleanup import log_lines
from nova_bdm_cleanup.tests.cloud import cinder, fixture, identity, standin
from nova_bdm_cleanup.tests.functional import scenario


class CallersTest(scenario.ThreeDisks):
    """``[cinder]`` credentials and a service token, as recommended."""

    def test_reboot_by_owner_uses_the_service_credentials(self):
        self.damage_both()
        self.check_removed(self.reboot(self.server))
        self.assertEqual(('terminate_connection', self.server.host),
                         self.back_end(self.reset)[0])
        for request in self.cloud.proxy.requests:
            self.assertEqual(identity.NOVA, request.caller)
            self.assertTrue(request.has_service_token)

    def test_administrator_of_another_project(self):
        view = self.reboot(self.server, by=self.cloud.admin)
        self.assert_nothing_done(view)
        self.assertEqual([], self.log_lines(self.server))
        self.damage_both()
        self.check_removed(self.reboot(self.server, by=self.cloud.admin))

    def test_user_of_another_project(self):
        self.damage_both()
        error = self.assertRaises(fixture.APIError, self.reboot, self.server,
                                  by=self.cloud.other_user)
        self.assertEqual(404, error.status)
        self.assert_nothing_done(self.look(self.server))
        self.assertEqual([], self.requests())

    def test_reboot_resumed_by_nova_compute(self):
        self.damage_both()
        # That of a nova-compute that was killed.
        self.cloud.change(self.server, task_state='reboot_pending_hard')
        self.start_recording()
        self.cloud.restart_compute()
        self.check_removed(self.look(self.server), by_api=False)
        self.assertEqual({identity.NOVA},
                         {each.caller for each in self.plugin_requests()})


class AuthSectionTest(scenario.ThreeDisks):
    """Credentials in another section, as openstack-ansible writes them."""

    @classmethod
    def setUpClass(cls) -> None:
        keystone = cinder.shared().stand_in
        keystone.users[identity.NOVA.user] = identity.NOVA
        cls.ARGUMENTS = {
            'cinder_credentials': False,
            'nova_options': {
                'cinder': {'auth_section': 'keystone_authtoken'},
                'keystone_authtoken': {
                    'auth_type': 'password',
                    'auth_url': keystone.identity_url,
                    'username': identity.NOVA.user,
                    'password': standin.PASSWORD, 'user_domain_id': 'default',
                    'project_id': identity.NOVA.project}}}
        super().setUpClass()
        # Some are required, and other tests do not set them.
        cls.addClassCleanup(
            cfg.CONF.unregister_opts,
            ks_loading.get_auth_plugin_conf_options('password'),
            'keystone_authtoken')
        cls.addClassCleanup(cfg.CONF.reset)

    def test_administrator_of_another_project(self):
        self.damage_both()
        self.check_removed(self.reboot(self.server, by=self.cloud.admin))
        self.assertEqual({identity.NOVA},
                         {each.caller for each in self.plugin_requests()})


class CredentialsOfOneProjectTest(scenario.ThreeDisks):
    """A user in ``[cinder]`` to whom other projects' disks look gone."""

    ARGUMENTS = {'nova_options': {
        'cinder': {'token': dataclasses.replace(
            identity.NOVA, roles=('service', *identity.MEMBER)).token}}}

    def test_every_reboot_is_skipped_and_the_first_is_critical(self):
        self.useFixture(fixtures.MockPatchObject(
            log_lines, '_hidden', itertools.count()))
        self.damage_both()
        for level in ('CRITICAL', 'WARNING'):
            view = self.reboot(self.server)
            skipped, = self.log_lines(self.server)
            self.assertEqual((level, 'skipped', 'cinder-unknown'),
                             (skipped.level, skipped.event, skipped.reason))
            self.assertIn('[cinder] need the admin role', skipped.text)
            self.assert_nothing_done(view)
            for volume in self.server.volumes:
                self.assertTrue(view.has_disk(volume))
            self.assertEqual(1, len(view.attachments_of(self.reset)))


class WithoutServiceTokenTest(scenario.ThreeDisks):
    """A Cinder that deletes only attachments that Nova does not know."""

    ARGUMENTS = {'service_token': False}

    def test_stale_attachment_is_deleted_without_the_token(self):
        """Delete it: Cinder asks Nova, which no longer has the mapping."""
        self.damage_both()
        stale = self.cloud.volume()
        attachment = self.cloud.create_attachment(self.server, stale)
        view = self.reboot(self.server)
        self.check_removed(view)
        self.assert_deleted(view, attachment, stale)
        for request in self.cloud.proxy.requests:
            self.assertFalse(request.has_service_token)
