# SPDX-License-Identifier: Apache-2.0
"""A soft reboot removes nothing, and connects nothing that dangles.

Libvirt's driver turns the soft reboot of a guest that does not listen into a
hard one, by itself and with the disks that it was given.
"""

from __future__ import annotations

import threading

from oslo_config import cfg

from nova_bdm_cleanup.tests.cloud import proxy, recorder
from nova_bdm_cleanup.tests.functional import scenario

CONF = cfg.CONF


class SoftRebootTestCase(scenario.TwoDisks):

    def check_removed_by_a_hard_reboot(self):
        view = self.reboot(self.server)
        self.assertIsNone(view.block_device(self.lost))
        self.assertEqual((), view.attachments_of(self.lost))
        self.assertFalse(view.has_disk(self.lost))
        self.assertNotIn('connect', self.host_steps(self.lost))
        self.assert_healthy(view, self.kept)


class TurnedIntoHardTest(SoftRebootTestCase):
    """A paused or hung guest, which the driver reboots hard."""

    def reboot_paused(self):
        """Reboot a paused guest: it loses the disk, and no record changes."""
        # The driver sleeps for this time.
        CONF.set_override('wait_soft_reboot_seconds', 0, group='libvirt')
        self.addCleanup(CONF.clear_override, 'wait_soft_reboot_seconds',
                        group='libvirt')
        # A storage error does the same.
        self.cloud.domain(self.server).suspend()
        before = self.cloud.look(self.server)
        view = self.reboot(self.server, hard=False)
        # Otherwise the test would prove nothing.
        self.assertIn((recorder.GUEST, 'undefine'), self.steps_of())
        self.assertNotIn('connect', self.host_steps(self.lost))
        self.assertFalse(view.has_disk(self.lost), 'the guest has the disk')
        self.assertEqual(before.block_device(self.lost),
                         view.block_device(self.lost))
        self.assertEqual(before.volumes[self.lost].attachments,
                         view.volumes[self.lost].attachments)
        self.assertEqual([], self.back_end(self.lost))
        self.assert_nothing_done(view)
        line, = self.log_lines(self.server)
        self.assertEqual(('WARNING', self.lost), (line.level, line.volume))
        self.assertIn('a hard reboot would act on it', line.text)
        self.assert_healthy(view, self.kept)

    def test_reboot_of_paused_guest_does_not_connect_the_disk(self):
        self.cloud.lose_attachment(self.server, self.lost)
        self.reboot_paused()
        self.check_removed_by_a_hard_reboot()


class SuccessfulTest(SoftRebootTestCase):
    """A guest that listens, and keeps its domain and its disks."""

    def test_nothing_changes(self):
        self.cloud.lose_attachment(self.server, self.lost)
        before = self.look(self.server)
        view = self.reboot(self.server, hard=False)
        self.assertEqual(before.disks, view.disks)
        self.assertEqual(before.block_devices, view.block_devices)
        self.assertEqual(before.connected, view.connected)
        self.assertEqual([], self.host_steps(*self.server.volumes))
        self.assertNotIn((recorder.GUEST, 'undefine'), self.steps_of())
        self.assert_nothing_done(view)
        self.assert_finding(self.server, self.lost,
                            ('WARNING', 'withheld', 'volume-available'))
        self.check_removed_by_a_hard_reboot()


class HangingCinderTest(SoftRebootTestCase):

    def test_soft_reboot_does_not_wait_for_cinder(self):
        """Time out: a wait too long for a soft reboot is still well within
        the limit of a hard one.
        """
        self.cloud.lose_attachment(self.server, self.lost)
        self.set_options(timeout=600)
        is_answered = threading.Event()
        self.cloud.proxy.on('*', '/(attachments|volumes)',
                            proxy.before(is_answered.wait))
        self.start_recording()
        reboot = threading.Thread(target=self.cloud.reboot,
                                  args=(self.server,), kwargs={'hard': False})
        reboot.start()
        reboot.join(40)
        waits = reboot.is_alive()
        is_answered.set()
        reboot.join()
        self.assertFalse(waits, 'the soft reboot waits for Cinder')
        self.cloud.proxy.clear()
        view = self.look(self.server)
        skipped, = self.log_lines(self.server)
        self.assertEqual(('WARNING', 'skipped', 'timed-out'),
                         (skipped.level, skipped.event, skipped.reason))
        self.assertIsNotNone(view.block_device(self.lost))
        self.assert_healthy(view, self.kept)
        self.check_removed_by_a_hard_reboot()
