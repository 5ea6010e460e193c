# SPDX-License-Identifier: Apache-2.0
"""Deaths of nova-compute in a cleanup, which the next one finishes.

These are a few moments, and Nova finds a different state after each.
``tests/simulation`` has every moment with every state of the server, and
``test_order`` has the result with stock Nova.
"""

from __future__ import annotations

from unittest import mock

from nova_bdm_cleanup.node import instance
from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.functional import scenario


class _CrashTestCase(scenario.TwoDisks):

    #: Whether the plugin looks for the stale attachment.
    FINDS_STALE = True

    def setUp(self):
        super().setUp()
        self.cloud.reset_status(self.lost)
        self.stale = self.cloud.volume()
        if self.FINDS_STALE:
            self.cloud.create_attachment(self.server, self.stale,
                                        connected=False)
        self.row = self.cloud.row(self.server, self.lost)

    def set_state(self, state: str) -> None:
        self.cloud.act(self.server, {'os-resetState': {'state': state}},
                       by=self.cloud.admin)

    def crash_cleanup(self, party: str = recorder.REQUEST,
                      what: str = 'DELETE') -> None:
        """Have nova-compute die before a step of a cleanup."""
        self.crash(self.server, party, what)
        self.assertEqual('interrupted', self.journal()[-1].outcome)
        # At the crash these are gone in order: host, Nova, Cinder.
        view = self.cloud.look(self.server)
        on_host = self.lost in view.connected
        self.assertIn(
            (on_host, view.block_device(self.lost) is not None,
             bool(view.attachments_of(self.lost))),
            [(True, True, True), (False, True, True), (False, False, True),
             (False, False, False)])
        if not on_host:
            self.assertFalse(view.is_running)
        # The healthy volume is as it was; the guest may be off.
        row = view.block_device(self.kept)
        self.assertEqual([(row.attachment_id, 'attached')],
                         [(each.id, each.status)
                          for each in view.attachments_of(self.kept)])

    def assert_finished(self) -> None:
        """Check that the end is the same as without a crash."""
        view = self.look(self.server)
        self.check_removed(view)
        self.assertEqual('available', view.volume_status(self.lost))
        self.assertEqual((), self.cloud.attachments(self.lost))
        self.assertEqual((), self.cloud.attachments(self.stale))
        self.assertEqual(
            1, [row.uuid for row in view.removed_block_devices]
            .count(self.row.uuid))
        # The journal has the whole row that was removed.
        self.assertIn(self.row.uuid, [
            action['bdm']['uuid'] for entry in self.journal()
            for action in entry.record['actions'] if 'bdm' in action])


class CrashTest(_CrashTestCase):
    """Crashes with a server that runs."""

    def test_crash_before_claim_is_recovered(self):
        """Crash before Nova begins it; later releases clear the state too."""
        with mock.patch.object(instance.NovaInstance, 'claim', autospec=True,
                               side_effect=recorder.Crash):
            self.crash_cleanup()
        self.cloud.restart_compute()
        self.cloud.reboot(self.server)
        self.assert_finished()

    def test_crash_before_disconnect_is_recovered(self):
        """Crash, reset the state of the server, and reboot it again."""
        self.crash_cleanup(recorder.HOST, 'disconnect')
        self.set_state('active')
        self.cloud.reboot(self.server)
        self.assert_finished()

    def test_crash_before_attachment_delete_is_recovered(self):
        """Restart nova-compute, which finishes the reboot by itself."""
        self.crash_cleanup()
        self.cloud.restart_compute()
        self.assert_finished()


class ErrorCrashTest(_CrashTestCase):
    """Crashes with a server in ERROR, which nova-compute does not resume.

    Its owner may reboot it again, without an administrator's help.
    """

    def test_crash_before_disconnect_is_recovered(self):
        self.set_state('error')
        self.crash_cleanup(recorder.HOST, 'disconnect')
        self.cloud.reboot(self.server)
        self.assert_finished()

    def test_crash_before_attachment_delete_is_recovered(self):
        self.set_state('error')
        self.crash_cleanup()
        self.cloud.restart_compute()
        self.cloud.reboot(self.server)
        self.assert_finished()


class StartedCrashTest(scenario.Started, _CrashTestCase):
    """Crashes in a start, which nova-compute resumes by itself."""

    def test_crash_before_attachment_delete_is_recovered(self):
        self.crash_cleanup()
        self.cloud.restart_compute()
        self.assert_finished()


class ResumedCrashTest(scenario.Resumed, _CrashTestCase):
    """Crashes in a resume, after which the host boots once more."""

    FINDS_STALE = False

    def test_crash_before_attachment_delete_is_recovered(self):
        self.crash_cleanup()
        self.cloud.restart_compute()
        view = self.look(self.server)
        self.assertFalse(view.has_disk(self.lost))
        self.assertIsNone(view.block_device(self.lost))
        # The attachment left in Cinder is stale now, and can wait.
        self.cloud.reboot(self.server)
        self.assert_finished()
