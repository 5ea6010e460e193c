# SPDX-License-Identifier: Apache-2.0
"""The callers of a reboot, with each nova.conf."""

from __future__ import annotations

from nova_bdm_cleanup.tests.cloud import fixture, identity
from nova_bdm_cleanup.tests.functional import scenario


class _CallersTest(scenario.ThreeDisks):

    def check_healthy(self, **arguments):
        view = self.reboot(self.made, **arguments)
        self.assert_nothing_done(view)
        self.assertEqual([], self.audit(self.made))

    def check_cannot_see(self, view):
        skipped, = self.audit(self.made)
        self.assertEqual(('WARNING', 'skipped', 'cannot-see-project'),
                         (skipped.level, skipped.event, skipped.reason))
        self.assertIn('[cinder] auth_type', skipped.text)
        self.assert_nothing_done(view)
        for volume in self.made.volumes:
            self.assertTrue(view.has_disk(volume))
        self.assertEqual(1, len(view.attachments_of(self.reset)))

    def resume(self):
        """Restart a nova-compute that was killed in a reboot."""
        self.cloud.change(self.made, task_state='reboot_pending_hard')
        self.begin()
        self.cloud.restart_compute()
        return self.look(self.made)


class CallersTest(_CallersTest):
    """``[cinder]`` credentials and a service token, as recommended."""

    def test_owner(self):
        self.break_both()
        self.check_removed(self.reboot(self.made))
        self.assertEqual(('terminate_connection', self.made.host),
                         self.back_end(self.reset)[0])
        for request in self.cloud.proxy.requests:
            self.assertEqual(identity.NOVA, request.caller)
            self.assertTrue(request.has_service_token)

    def test_administrator_of_another_project(self):
        self.check_healthy(by=self.cloud.admin)
        self.break_both()
        self.check_removed(self.reboot(self.made, by=self.cloud.admin))

    def test_user_of_another_project(self):
        self.break_both()
        error = self.assertRaises(fixture.APIError, self.reboot, self.made,
                                  by=self.cloud.other_user)
        self.assertEqual(404, error.status)
        self.assert_nothing_done(self.look(self.made))
        self.assertEqual([], self.requests())

    def test_nova_compute(self):
        self.break_both()
        self.check_removed(self.resume(), by_api=False)
        self.assertEqual({identity.NOVA},
                         {each.caller for each in self.plugin_requests()})


class WithoutCredentialsTest(_CallersTest):
    """No credentials for Cinder in nova.conf: the user's token decides."""

    ARGUMENTS = {'cinder_credentials': False}

    def test_owner(self):
        self.check_healthy()
        self.break_both()
        self.check_removed(self.reboot(self.made))
        for request in self.cloud.proxy.requests:
            self.assertEqual(self.cloud.owner, request.caller)
            self.assertTrue(request.has_service_token)

    def test_owner_of_a_deleted_volume(self):
        """Keep it: to the owner, another project's volume looks deleted."""
        self.cloud.lose_volume(self.made, self.lost)
        self.cloud.reset_status(self.reset)
        view = self.reboot(self.made)
        self.assert_finding(self.made, self.lost,
                            ('WARNING', 'kept', 'cannot-see-project'))
        self.assert_dangling(view, self.lost)
        self.assert_removed(view, self.reset, 'volume-available',
                            (self.attachment.id,))

    def test_nobody_who_sees_the_project(self):
        self.break_both()
        self.check_cannot_see(self.reboot(self.made, by=self.cloud.admin))
        self.assertEqual([], self.plugin_requests())
        self.check_cannot_see(self.resume())
        self.assertEqual([], self.requests())


class WithoutServiceTokenTest(_CallersTest):
    """A Cinder that deletes only attachments that Nova does not know."""

    ARGUMENTS = {'service_token': False}

    def test_attachment_whose_mapping_is_gone(self):
        """Delete it: Cinder asks Nova, which no longer has the mapping."""
        self.break_both()
        stale = self.cloud.volume()
        attachment = self.cloud.create_attachment(self.made, stale)
        view = self.reboot(self.made)
        self.check_removed(view)
        self.assert_deleted(view, attachment, stale)
        for request in self.cloud.proxy.requests:
            self.assertFalse(request.has_service_token)
