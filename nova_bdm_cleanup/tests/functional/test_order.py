# SPDX-License-Identifier: Apache-2.0
"""The order of acting, and what every way to end it half way leaves.

Guest off, host disconnected, Nova's row gone, Cinder told: in this order
nothing reconnects the disk, whoever dies when, with the plugin and without.
What Cinder keeps is a stale attachment, which the next look deletes, unless
the volume is of another project by then.
"""

from __future__ import annotations

import json

from nova_bdm_cleanup.tests.cloud import fixture, proxy, recorder
from nova_bdm_cleanup.tests.functional import scenario


class OrderTestCase(scenario.TwoDisks):

    def setUp(self):
        super().setUp()
        self.attachment, = self.cloud.attachments(self.lost)
        self.cloud.reset_status(self.lost)

    def steps(self):
        """What was done about the disk, in the order of time."""
        return [(event.party, event.what)
                for event in self.cloud.timeline(self.made.id, self.lost)
                if event.party != recorder.CINDER
                or event.what == 'DELETE'
                and self.attachment.id in event.subject]

    def check_row_gone(self, view):
        """Nova has let go of the disk for good, whatever Cinder says."""
        self.assertIsNone(view.block_device(self.lost), 'Nova has a row')
        self.assertFalse(view.has_disk(self.lost), 'the guest has the disk')
        self.assertNotIn(self.lost, view.connected)
        self.assertNotIn((recorder.HOST, 'connect'), self.steps())
        self.assert_healthy(view, self.kept)

    def check_finished(self, view):
        self.check_row_gone(view)
        self.assertEqual((), self.cloud.attachments(self.lost))
        self.assertEqual('available', view.volume_status(self.lost))

    def check_rows_are_novas(self):
        """No row is in a state that only the plugin knows how to read."""
        for row in self.cloud.nova.block_devices(self.made.id):
            if row.volume_id and not row.deleted:
                self.assertIn('data', json.loads(row.connection_info))


class OrderTest(OrderTestCase):

    def test_undisturbed(self):
        view = self.reboot(self.made)
        self.check_finished(view)
        # Whether the device leaves the powered-off domain makes no difference.
        steps = [step for step in self.steps()
                 if step != (recorder.GUEST, 'detach device')]
        self.assertEqual([
            (recorder.GUEST, 'power off'),
            (recorder.HOST, 'disconnect'),
            (recorder.NOVA, 'remove bdm'),
            (recorder.CINDER, 'DELETE'),
            (recorder.BACK_END, 'terminate_connection'),
            (recorder.BACK_END, 'remove_export'),
        ], steps[:6])
        self.assertEqual((recorder.GUEST, 'power on'), steps[-1])

    def test_removed_row_says_how_it_was_connected(self):
        before = json.loads(self.cloud.row(
            self.made, self.lost).connection_info)
        self.reboot(self.made)
        removed, = [row for row in
                    self.cloud.nova.block_devices(self.made.id)
                    if row.volume_id == self.lost and row.deleted]
        self.assertEqual(before, json.loads(removed.connection_info))

    def test_volume_can_be_attached_again_at_once(self):
        self.reboot(self.made)
        self.cloud.attach(self.made, self.lost)
        self.assert_healthy(self.look(self.made), self.lost)


class CinderKeepsTheAttachmentTest(OrderTestCase):
    """Nobody knows what it did; what it refuses is in ``test_faults``."""

    def test_answer_lost(self):
        self.cloud.proxy.on('DELETE', '/attachments/', proxy.lose_answer())
        view = self.reboot(self.made)
        self.assertEqual(1, len(self.requests('DELETE')))
        self.cloud.proxy.clear()
        self.check_row_gone(view)
        self.assertEqual((), view.attachments_of(self.lost))
        failed, = self.audit(self.made, 'failed')
        self.assertEqual(('WARNING', self.lost),
                         (failed.level, failed.volume))
        # There is nothing left to be done.
        self.check_finished(self.reboot(self.made))
        self.assertEqual([], self.requests('DELETE'))
        self.assertEqual([], self.audit(self.made))

    def test_somebody_else_gets_the_volume_meanwhile(self):
        """The answer is lost, the volume is free, and it is given away."""
        self.cloud.proxy.on('DELETE', '/attachments/', proxy.lose_answer())
        self.reboot(self.made)
        self.cloud.proxy.clear()
        other = self.server(
            fixture.Disk(volume=self.lost, at_boot=True), name='other')
        view = self.reboot(self.made)
        self.assertIsNone(view.block_device(self.lost))
        self.assertFalse(view.has_disk(self.lost))
        self.assert_healthy(self.look(other), self.lost)


class SwitchedOffTest(OrderTestCase):
    """nova-compute dies at a step and is started without the plugin.

    What stock Nova finds then is nothing that it would not find without us:
    it reboots, stops and starts the server.
    """

    # Guests of the fake libvirt do not shut down by themselves.
    ARGUMENTS = {'nova_options': {
        **scenario.NO_QUOTAS, 'DEFAULT': {'shutdown_timeout': 0}}}

    def setUp(self):
        super().setUp()
        self.row = self.cloud.row(self.made, self.lost)

    def check(self, party: str, what: str, row_gone: bool) -> None:
        self.begin()
        self.cloud.recorder.before(party, what, recorder.crash)
        self.cloud.reboot_until_crash(self.made)
        view = self.cloud.look(self.made)
        self.assertEqual(row_gone, view.block_device(self.lost) is None)
        self.check_rows_are_novas()

        self.cloud.switch_plugin_off()
        self.cloud.restart_compute()
        for act in (self.cloud.reboot, self._stop_and_start):
            act(self.made)
            view = self.look(self.made)
            self.assert_healthy(view, self.kept)
            self._check_agreement(view, row_gone)

        self.cloud.switch_plugin_on()
        self.check_finished(self.reboot(self.made))

    def _stop_and_start(self, server):
        self.cloud.stop(server)
        self.cloud.start(server)

    def _check_agreement(self, view, row_gone):
        """The guest has the disk exactly if Nova has the row."""
        self.assertEqual(not row_gone, view.has_disk(self.lost))
        self.assertEqual(not row_gone, self.lost in view.connected)
        self.assertEqual(row_gone, view.block_device(self.lost) is None)
        if not row_gone:
            # As stock has it: the disk and its attachment are both there.
            self.assertEqual([self.row.attachment_id], [
                each.id for each in view.attachments_of(self.lost)])

    def test_before_the_row_is_removed(self):
        self.check(recorder.NOVA, 'remove bdm', row_gone=False)

    def test_before_cinder_is_told(self):
        self.check(recorder.ASK, 'DELETE', row_gone=True)
