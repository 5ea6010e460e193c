# SPDX-License-Identifier: Apache-2.0
"""A soft reboot removes nothing, and connects nothing that dangles.

Libvirt's driver turns the soft reboot of a guest that does not listen into a
hard one, by itself and with the disks that it was handed.
"""

from __future__ import annotations

import threading

from oslo_config import cfg

from nova_bdm_cleanup.tests.cloud import proxy, recorder
from nova_bdm_cleanup.tests.functional import scenario

CONF = cfg.CONF


class SoftRebootTestCase(scenario.TwoDisks):

    def soft_reboot(self):
        return self.reboot(self.made, hard=False)

    def check_removed_by_a_hard_reboot(self, volume):
        view = self.reboot(self.made)
        self.assertIsNone(view.block_device(volume))
        self.assertEqual((), view.attachments_of(volume))
        self.assertFalse(view.has_disk(volume))
        self.assertNotIn('connect', self.on_host(volume))
        self.assert_healthy(view, self.kept)


class TurnedIntoHardTest(SoftRebootTestCase):
    """The guest is paused or hung, so the driver reboots it hard."""

    def setUp(self):
        super().setUp()
        # The driver sleeps for so long.
        CONF.set_override('wait_soft_reboot_seconds', 0, group='libvirt')
        self.addCleanup(CONF.clear_override, 'wait_soft_reboot_seconds',
                        group='libvirt')

    def check_left_out(self, volume):
        """The guest is without the disk; all records are as they were."""
        row = self.cloud.row(self.made, volume)
        attachments = self.cloud.attachments(volume)
        view = self.soft_reboot()
        # Else this would say nothing.
        self.assertIn((recorder.GUEST, 'undefine'), self.steps_of())
        self.assertNotIn('connect', self.on_host(volume))
        self.assertFalse(view.has_disk(volume), 'the guest has the disk')
        left = self.cloud.row(self.made, volume)
        self.assertEqual(
            (row.uuid, row.attachment_id, row.connection_info),
            (left.uuid, left.attachment_id, left.connection_info))
        self.assertEqual(attachments, self.cloud.attachments(volume))
        self.assertEqual([], self.back_end(volume))
        self.assert_nothing_done(view)
        line, = self.audit(self.made)
        self.assertEqual(('WARNING', volume), (line.level, line.volume))
        self.assertIn('reboot the server hard', line.text)
        self.assert_healthy(view, self.kept)

    def test_paused(self):
        self.cloud.lose_attachment(self.made, self.lost)
        self.cloud.pause_guest(self.made)
        self.check_left_out(self.lost)
        self.check_removed_by_a_hard_reboot(self.lost)

    def test_volume_was_given_away(self):
        """Otherwise two guests write to one volume."""
        other = self.cloud.give_away(self.made, self.lost)
        self.cloud.pause_guest(self.made)
        self.check_left_out(self.lost)
        self.assert_healthy(self.look(other), self.lost)
        view = self.reboot(self.made)
        self.assertIsNone(view.block_device(self.lost))
        self.assertFalse(view.has_disk(self.lost))
        self.assert_healthy(self.look(other), self.lost)


class SuccessfulTest(SoftRebootTestCase):
    """The guest listens and keeps its domain, and with it its disks."""

    def test_nothing_changes(self):
        self.cloud.lose_attachment(self.made, self.lost)
        before = self.look(self.made)
        view = self.soft_reboot()
        self.assertEqual(before.disks, view.disks)
        self.assertEqual(before.block_devices, view.block_devices)
        self.assertEqual(before.connected, view.connected)
        for volume in self.made.volumes:
            self.assertEqual([], self.on_host(volume))
        self.assertNotIn((recorder.GUEST, 'undefine'), self.steps_of())
        self.assert_nothing_done(view)
        self.assert_finding(self.made, self.lost,
                            ('WARNING', 'withheld', 'volume-available'))
        self.check_removed_by_a_hard_reboot(self.lost)


class HangingCinderTest(SoftRebootTestCase):

    def _soft_reboot_beside(self, told):
        """Reboot until it is over, or Cinder has been waited for too long.

        What is too long for a soft reboot is still well within the limit of
        a hard one.
        """
        self.set_options(timeout=600)
        self.cloud.proxy.on('*', '/(attachments|volumes)', proxy.when(told))
        self.begin()
        reboot = threading.Thread(target=self.cloud.reboot,
                                  args=(self.made,), kwargs={'hard': False})
        reboot.start()
        reboot.join(40)
        waits = reboot.is_alive()
        told.set()
        reboot.join()
        self.assertFalse(waits, 'the soft reboot waits for Cinder')

    def test_hang(self):
        self.cloud.lose_attachment(self.made, self.lost)
        told = threading.Event()
        self.addCleanup(told.set)
        self._soft_reboot_beside(told)
        self.cloud.proxy.clear()
        view = self.look(self.made)
        skipped, = self.audit(self.made)
        self.assertEqual(('WARNING', 'skipped', 'timed-out'),
                         (skipped.level, skipped.event, skipped.reason))
        self.assertIsNotNone(view.block_device(self.lost))
        self.assert_healthy(view, self.kept)
        self.check_removed_by_a_hard_reboot(self.lost)
