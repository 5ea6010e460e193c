# SPDX-License-Identifier: Apache-2.0
"""A Keystone that hangs, for which the reboot does not wait.

A request that is not sent when the time is over is not sent at all: its result
would be unknown.
"""

from __future__ import annotations

import threading

import fixtures

from nova_bdm_cleanup.tests.cloud import cinder, identity, recorder, standin
from nova_bdm_cleanup.tests.functional import scenario


class _ExpiringEvent(threading.Event):
    """An event; once cleared, callers get no token and their time ends."""

    def __init__(self, limit: scenario.TimeLimit) -> None:
        super().__init__()
        self._limit = limit
        self.set()

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            self._limit.expire()
        return super().wait(timeout)


class HangingKeystoneTest(scenario.TwoDisks):
    """A Nova that logs in with a password and has short-lived tokens."""

    @classmethod
    def setUpClass(cls) -> None:
        keystone = cinder.shared().stand_in
        keystone.users[identity.NOVA.user] = identity.NOVA
        cls.ARGUMENTS = {
            'cinder_credentials': False,
            'nova_options': {'cinder': {
                'auth_type': 'password', 'auth_url': keystone.identity_url,
                'username': identity.NOVA.user,
                'password': standin.PASSWORD, 'user_domain_id': 'default',
                'project_id': identity.NOVA.project}}}
        super().setUpClass()

    def setUp(self):
        super().setUp()
        self.keystone = cinder.shared().stand_in
        self.useFixture(fixtures.MockPatchObject(
            self.keystone, 'answering',
            _ExpiringEvent(self.useFixture(scenario.TimeLimit()))))
        self.addCleanup(self.keystone.answering.set)
        self.useFixture(fixtures.MockPatchObject(
            self.keystone, 'expires_at', self.keystone.EXPIRED))
        self._others = threading.enumerate()
        self.cloud.reset_status(self.lost)

    def _abandoned_threads(self) -> list[threading.Thread]:
        """Return the abandoned threads that still wait for an answer."""
        return [thread for thread in threading.enumerate()
                if thread.name == 'bdm-cleanup'
                and thread not in self._others]

    def test_token_for_attachment_delete(self):
        view = self.reboot(self.server, (
            recorder.HOST, 'disconnect', self.keystone.answering.clear,
            self.lost))
        self.assertFalse(self.keystone.answering.is_set())
        self.assertEqual([], self.requests('DELETE'))
        self.keystone.answering.set()
        # A thread may have waited all the time.
        self.wait_until(lambda: not self._abandoned_threads())
        self.assertEqual([], self.requests('DELETE'))
        self.assertEqual(1, len(view.attachments_of(self.lost)))
        self.assert_healthy(view, self.kept)
        self.assert_gone(self.reboot(self.server), self.lost)

    def test_token_for_first_request(self):
        self.keystone.answering.clear()
        view = self.reboot(self.server)
        self.keystone.answering.set()
        skipped, = self.log_lines(self.server)
        self.assertEqual(('WARNING', 'skipped', 'timed-out'),
                         (skipped.level, skipped.event, skipped.reason))
        self.assertIsNotNone(view.block_device(self.lost))
        self.assert_healthy(view, self.kept)
