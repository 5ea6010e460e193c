# SPDX-License-Identifier: Apache-2.0
"""nova-compute dies in a cleanup, and the next one finishes.

A few moments at which Nova finds something else each time.  Every moment,
whatever the server was before, is met in ``tests/simulation``; what stock
Nova makes of it is in ``test_order``.
"""

from __future__ import annotations

from unittest import mock

from nova_bdm_cleanup.node import instance
from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.functional import scenario


class _CrashTestCase(scenario.TwoDisks):

    #: Whether the stale attachment is looked for.
    FINDS_STALE = True

    def setUp(self):
        super().setUp()
        self.cloud.reset_status(self.lost)
        self.stale = self.cloud.volume()
        if self.FINDS_STALE:
            self.cloud.leave_attachment(self.made, self.stale,
                                        connected=False)
        self.row = self.cloud.row(self.made, self.lost)

    def set_state(self, state: str) -> None:
        self.cloud.act(self.made, {'os-resetState': {'state': state}},
                       by=self.cloud.admin)

    def die(self, party: str = recorder.ASK, what: str = 'DELETE') -> None:
        """Have nova-compute die before a step of a cleanup."""
        self.crash(self.made, party, what)
        self.assertEqual('interrupted', self.journal()[-1].outcome)
        # What is gone at the crash: host first, then Nova, then Cinder.
        view = self.cloud.look(self.made)
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
        """The same end as if nothing had gone wrong."""
        view = self.look(self.made)
        self.check_removed(view)
        self.assertEqual('available', view.volume_status(self.lost))
        self.assertEqual((), self.cloud.attachments(self.lost))
        self.assertEqual((), self.cloud.attachments(self.stale))
        self.assertEqual(
            1, [row.uuid for row in view.removed_block_devices]
            .count(self.row.uuid))
        # What was removed is in the journal, whole.
        self.assertIn(self.row.uuid, [
            action['bdm']['uuid'] for entry in self.journal()
            for action in entry.record['actions'] if 'bdm' in action])


class CrashTest(_CrashTestCase):
    """Of a server that runs."""

    def test_before_the_reboot_is_claimed(self):
        """Nova had not begun it; later releases also clear the state."""
        with mock.patch.object(instance.NovaInstance, 'claim', autospec=True,
                               side_effect=recorder.Crash):
            self.die()
        self.cloud.restart_compute()
        self.cloud.reboot(self.made)
        self.assert_finished()

    def test_before_disconnect(self):
        """Somebody resets the state of the server and reboots it again."""
        self.die(recorder.HOST, 'disconnect')
        self.set_state('active')
        self.cloud.reboot(self.made)
        self.assert_finished()

    def test_before_cinder_is_told(self):
        """nova-compute starts anew and finishes the reboot by itself."""
        self.die()
        self.cloud.restart_compute()
        self.assert_finished()


class ErrorCrashTest(_CrashTestCase):
    """Of a server in ERROR, which nova-compute does not take up again.

    Its owner may reboot it again, without an administrator's help.
    """

    def test_before_disconnect(self):
        self.set_state('error')
        self.die(recorder.HOST, 'disconnect')
        self.cloud.reboot(self.made)
        self.assert_finished()

    def test_before_cinder_is_told(self):
        self.set_state('error')
        self.die()
        self.cloud.restart_compute()
        self.cloud.reboot(self.made)
        self.assert_finished()


class StartedCrashTest(scenario.Started, _CrashTestCase):
    """Of a server that is started, which nova-compute takes up by itself."""

    def test_before_cinder_is_told(self):
        self.die()
        self.cloud.restart_compute()
        self.assert_finished()


class ResumedCrashTest(scenario.Resumed, _CrashTestCase):
    """Of a server that is resumed, after which the host boots once more."""

    FINDS_STALE = False

    def test_before_cinder_is_told(self):
        self.die()
        self.cloud.restart_compute()
        view = self.look(self.made)
        self.assertFalse(view.has_disk(self.lost))
        self.assertIsNone(view.block_device(self.lost))
        # What Cinder was not told is stale now, and can wait.
        self.cloud.reboot(self.made)
        self.assert_finished()
