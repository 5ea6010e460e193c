# SPDX-License-Identifier: Apache-2.0
"""nova-compute dies between any two steps; the next reboot finishes.

Whatever the server was before, and also when the plugin is switched off in
between: stock Nova reboots, stops and starts the server at any moment.  Here
every moment is met by a server that runs, and every way to go on by some of
them; what was before, the moments and the ways to go on are combined in full
where nothing is real, in ``tests/simulation``.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

from nova_bdm_cleanup.plugin import host
from nova_bdm_cleanup.store.journal import Entry, Journal
from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.functional import scenario


class _CrashTestCase(scenario.ScenarioTestCase):

    #: Whether the stale attachment is looked for.
    FINDS_STALE = True

    def setUp(self):
        super().setUp()
        self.set_options(max_removals_per_hour=1000000)
        self.ignore_actions()
        self.made = self.server(*[scenario.BOOT_DISK] * 2)
        self.kept, self.lost = self.made.volumes
        self.stale = self.cloud.volume()

    def _break(self):
        if not self.cloud.attachments(self.lost):
            self.cloud.attach(self.made, self.lost)
        self.attachment, = self.cloud.attachments(self.lost)
        self.cloud.reset_status(self.lost)
        if self.FINDS_STALE:
            self.cloud.leave_attachment(self.made, self.stale,
                                        connected=False)
        self.row = self.cloud.row(self.made, self.lost)

    def _resume(self):
        """nova-compute starts anew and finishes the reboot by itself."""
        begun = self.cloud.look(self.made).task_state != 'rebooting_hard'
        self.cloud.restart_compute()
        if not begun:
            # Nova had not begun it, and leaves it at that; later releases also
            # clear the state.  Either way a hard reboot may be asked for.
            self.cloud.reboot(self.made)

    def _by_itself(self):
        """nova-compute starts anew, and nobody does anything else."""
        self.cloud.restart_compute()

    def _again(self):
        """Somebody resets the state of the server and reboots it again."""
        self._set_state()
        self.cloud.reboot(self.made)

    def _without_the_plugin(self):
        """The plugin is switched off before nova-compute starts anew."""
        self.cloud.switch_plugin_off()
        try:
            self._resume()
            self.look(self.made)
            for act, status in ((self.cloud.stop, 'SHUTOFF'),
                                (self.cloud.start, 'ACTIVE')):
                act(self.made)
                self.assertEqual(status, self.cloud.look(self.made).status)
        finally:
            self.cloud.switch_plugin_on()
        self.cloud.reboot(self.made)

    def _set_state(self, state: str = 'active') -> None:
        self.cloud.request('POST', f'/servers/{self.made.id}/action',
                           {'os-resetState': {'state': state}},
                           by=self.cloud.admin)

    def _crash(self, crash_at: Any, plan: bool = True) -> None:
        """Break the server, and have nova-compute die while it cleans up.

        :param crash_at: is called to arm the crash
        :param plan: whether the crash comes after the plan was recorded
        """
        entries = len(self.journal())
        self.take_down(self.made)
        self.begin()
        disarm = crash_at()
        self.bring_back_until_crash(self.made)
        if disarm:
            disarm()
        self.assertEqual(plan, len(self.journal()) > entries)
        if plan:
            self.assertEqual('interrupted', self.journal()[-1].outcome)
        self.assert_order_of_disappearance()

    def assert_order_of_disappearance(self) -> None:
        """What is gone at the crash: host first, then Nova, then Cinder."""
        view = self.cloud.look(self.made)
        in_nova = view.block_device(self.lost) is not None
        in_cinder = bool(view.attachments_of(self.lost))
        on_host = self.lost in view.connected
        self.assertIn(
            (on_host, in_nova, in_cinder),
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
        self.assert_gone(view, self.lost)
        self.assertEqual('available', view.volume_status(self.lost))
        self.assertEqual((), self.cloud.attachments(self.lost))
        self.assertEqual((), self.cloud.attachments(self.stale))
        self.assert_healthy(view, self.kept)
        self.assertEqual(
            1, [row.uuid for row in view.removed_block_devices]
            .count(self.row.uuid))
        # What was removed is in the journal, whole.
        self.assertIn(self.row.uuid, [
            action['bdm']['uuid'] for entry in self.journal()
            for action in entry.record['actions'] if 'bdm' in action])

    def _before(self, party: str, what: str, subject: str | None = None,
                nth: int = 1) -> Any:
        def arm() -> None:
            self.cloud.recorder.before(party, what, recorder.crash,
                                       subject=subject, nth=nth)
        return arm

    def _before_call(self, owner: Any, name: str) -> Any:
        """Crash before a function of our own that nobody else records."""
        def arm() -> Any:
            patch = mock.patch.object(owner, name, autospec=True,
                                      side_effect=recorder.Crash)
            patch.start()
            self.addCleanup(patch.stop)
            return patch.stop
        return arm


class CrashTest(_CrashTestCase):
    """Of a server that runs, between any two steps."""

    #: How it goes on.  Every way follows a crash with everything in place,
    #: one in the middle and one with nothing but Cinder left.
    FINISHES = {
        'test_before_the_first_look': '_again',
        'test_before_the_plan_is_recorded': '_resume',
        'test_before_the_reboot_is_claimed': '_without_the_plugin',
        'test_before_power_off': '_by_itself',
        'test_before_the_second_look': '_again',
        'test_before_disconnect': '_without_the_plugin',
        'test_before_the_row_is_removed': '_by_itself',
        'test_before_the_removal_is_reported': '_again',
        'test_before_cinder_is_told': '_without_the_plugin',
        'test_between_two_actions': '_resume',
        'test_before_the_entry_is_finished': '_again'}

    def _check(self, crash_at: Any, plan: bool = True) -> None:
        self._break()
        self._crash(crash_at, plan)
        getattr(self, self.FINISHES[self._testMethodName])()
        self.assert_finished()

    def test_before_the_first_look(self):
        self._check(self._before(recorder.ASK, 'GET'), plan=False)

    def test_before_the_plan_is_recorded(self):
        self._check(self._before_call(Journal, 'begin'), plan=False)

    def test_before_the_reboot_is_claimed(self):
        self._check(self._before_call(host.NovaHost, 'claim'))

    def test_before_power_off(self):
        self._check(self._before(recorder.GUEST, 'power off'))

    def test_before_the_second_look(self):
        self._check(self._before_call(host.NovaHost, 'bdms'))

    def test_before_disconnect(self):
        self._check(self._before(recorder.HOST, 'disconnect', self.lost))

    def test_before_the_row_is_removed(self):
        self._check(self._before(recorder.NOVA, 'remove bdm'))

    def test_before_the_removal_is_reported(self):
        self._check(self._before_call(host.NovaHost, 'report'))

    def test_before_cinder_is_told(self):
        self._check(self._before(recorder.ASK, 'DELETE'))

    def test_between_two_actions(self):
        self._check(self._before(recorder.ASK, 'DELETE', nth=2))

    def test_before_the_entry_is_finished(self):
        self._check(self._before_call(Entry, 'finish'))

    def test_in_novas_own_reboot(self):
        # By then the entry is complete.
        self._break()
        self.begin()
        self._before(recorder.GUEST, 'undefine')()
        self.cloud.reboot_until_crash(self.made)
        self.assertEqual(['done'],
                         [entry.outcome for entry in self.journal()])
        self._resume()
        view = self.look(self.made)
        self.assert_gone(view, self.lost)
        self.assert_healthy(view, self.kept)
        self.assertEqual(1, len(self.journal()))


class ErrorCrashTest(_CrashTestCase):
    """Of a server in ERROR, which nova-compute does not take up again."""

    def _check(self, crash_at: Any, restart: bool, plan: bool = True) -> None:
        self._break()
        self._set_state('error')
        self._crash(crash_at, plan)
        if restart:
            self.cloud.restart_compute()
        # Its owner may reboot it again, without an administrator's help.
        self.cloud.reboot(self.made)
        self.assert_finished()

    def test_before_the_plan_is_recorded(self):
        self._check(self._before_call(Journal, 'begin'), restart=True,
                    plan=False)

    def test_before_disconnect(self):
        self._check(self._before(recorder.HOST, 'disconnect', self.lost),
                    restart=False)

    def test_before_cinder_is_told(self):
        self._check(self._before(recorder.ASK, 'DELETE'), restart=True)


class StartedCrashTest(scenario.Started, _CrashTestCase):
    """Of a server that is started.

    nova-compute takes the start up again by itself.
    """

    def _check(self, crash_at: Any) -> None:
        self._break()
        self._crash(crash_at)
        self.cloud.restart_compute()
        self.assert_finished()

    def test_before_disconnect(self):
        self._check(self._before(recorder.HOST, 'disconnect', self.lost))

    def test_before_cinder_is_told(self):
        self._check(self._before(recorder.ASK, 'DELETE'))


class ResumedCrashTest(scenario.Resumed, _CrashTestCase):
    """Of a server that is resumed, after which the host boots once more."""

    FINDS_STALE = False

    def _check(self, crash_at: Any) -> None:
        self._break()
        self._crash(crash_at)
        self.cloud.restart_compute()
        view = self.look(self.made)
        self.assertFalse(view.has_disk(self.lost))
        self.assertIsNone(view.block_device(self.lost))
        if self.cloud.attachments(self.lost):
            # What Cinder was not told is stale now, and can wait.
            self.cloud.reboot(self.made)
        self.assert_finished()

    def test_before_disconnect(self):
        self._check(self._before(recorder.HOST, 'disconnect', self.lost))

    def test_before_cinder_is_told(self):
        self._check(self._before(recorder.ASK, 'DELETE'))
