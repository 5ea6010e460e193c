# SPDX-License-Identifier: Apache-2.0
"""Findings that the plugin does not touch."""

from __future__ import annotations

import shutil

import fixtures

from nova_bdm_cleanup.node import instance
from nova_bdm_cleanup.tests.cloud import fixture, proxy, recorder
from nova_bdm_cleanup.tests.functional import scenario


class RefusalTest(scenario.ThreeDisks):

    def setUp(self):
        super().setUp()
        self.break_both()

    def check_withheld(self, view, why, level='WARNING', entries=0,
                       is_left_out=False, has_disk=True):
        """Check that nothing is removed.

        :param is_left_out: the disk is nevertheless not connected
        :param has_disk: the guest has it
        """
        told = [(level, 'withheld', 'volume-available')]
        if is_left_out:
            told.append(('WARNING', 'not-connected', 'volume-available'))
        for volume in (self.lost, self.reset):
            line = self.assert_finding(self.made, volume, *told)[0]
            self.assertIn(f'not acted on ({why})', line.text)
            self.assertEqual(has_disk, view.has_disk(volume))
        self.check_untouched(view)
        self.assertEqual([], self.changes())
        self.assertEqual(entries, len(self.journal()))

    def check_untouched(self, view, *volumes):
        """Check that Nova and Cinder have the same records as before.

        :param volumes: the dangling ones to check; default: both
        """
        for volume in volumes or (self.lost, self.reset):
            self.assertIsNotNone(view.block_device(volume))
        self.assertEqual((self.attachment,), view.attachments_of(self.reset))
        self.assertEqual([], self.back_end(self.reset))
        self.assert_healthy(view, self.kept)

    def test_situation_not_selected(self):
        self.set_options(remove=['missing', 'attached-elsewhere'])
        self.check_withheld(self.reboot(self.made), 'not-selected', 'INFO')

    def test_too_many_for_one_reboot(self):
        self.set_options(max_removals=1)
        self.check_withheld(self.reboot(self.made), 'over-limit')
        self.set_options(max_removals=2)
        self.check_removed(self.reboot(self.made))

    def test_too_many_within_an_hour(self):
        other = self.server(fixture.Disk(), name='other')
        self.cloud.lose_attachment(other, other.volumes[0])
        self.set_options(max_removals_per_hour=2)
        self.assert_removed(self.reboot(other), other.volumes[0],
                            'volume-available')
        self.check_withheld(self.reboot(self.made), 'over-limit', entries=1)
        self.set_options(max_removals_per_hour=3)
        self.check_removed(self.reboot(self.made))

    def test_store_that_cannot_be_written(self):
        blocked = self.store_path.parent / 'blocked'
        blocked.touch()
        self.set_options(store=str(blocked / 'store.sqlite'))
        self.check_withheld(self.reboot(self.made), 'journal-unwritable',
                            is_left_out=True, has_disk=False)
        unrecorded, = self.audit(self.made, 'unrecorded')
        self.assertIn(str(blocked), unrecorded.text)
        # Only Nova's own reboot powers it off.
        self.assertEqual(1, self.steps_of(self.made.id).count(
            (recorder.GUEST, 'power off')))
        self.set_options(store=str(self.store_path))
        self.check_removed(self.reboot(self.made))

    def test_second_look_differs(self):
        """Keep a volume that is reserved while the guest is powered off."""
        view = self.reboot(self.made, (
            recorder.GUEST, 'power off',
            lambda: self.cinder.attachments.create(
                self.lost, None, self.made.id)))
        line, = self.assert_finding(
            self.made, self.lost,
            ('WARNING', 'withheld', 'volume-available'))
        self.assertIn('(second-look-differs)', line.text)
        self.assertIsNotNone(view.block_device(self.lost))
        self.assertEqual(1, len(view.attachments_of(self.lost)))
        self.assert_removed(view, self.reset, 'volume-available',
                            (self.attachment.id,))
        entry, = self.journal()
        self.assertEqual('partly', entry.outcome)

    def change_meanwhile(self, **values):
        """Change the server while the plugin asks Cinder."""
        self.begin()
        self.cloud.proxy.on('GET', '/attachments', proxy.after(
            lambda: self.cloud.change(self.made, **values)), nth=1)

    def test_reboot_that_lost_a_race(self):
        """Withhold it: the server is no longer in this reboot."""
        self.change_meanwhile(task_state=None)
        # Nova detects it by itself a little later.
        self.assertRaises(fixture.APIError, self.cloud.reboot, self.made)
        self.check_withheld(self.cloud.look(self.made), 'reboot-lost',
                            is_left_out=True)

    def test_reboot_that_loses_a_race(self):
        """Leave the guest on if the reboot is lost after the plan."""
        prepare = instance.NovaInstance.prepare

        def lose(asked):
            prepare(asked)
            self.cloud.change(self.made, task_state=None)

        self.begin()
        with fixtures.MockPatchObject(instance.NovaInstance, 'prepare', lose):
            self.assertRaises(fixture.APIError, self.cloud.reboot, self.made)
        view = self.cloud.look(self.made)
        self.assertNotIn((recorder.GUEST, 'power off'),
                         self.steps_of(self.made.id))
        failed, = self.audit(self.made, 'failed')
        self.assertEqual('reboot-lost', failed.reason)
        self.check_untouched(view)
        for volume in (self.lost, self.reset):
            self.assertTrue(view.has_disk(volume))

    def test_time_is_over(self):
        limit = self.useFixture(scenario.TimeLimit())
        view = self.reboot(self.made, (
            recorder.GUEST, 'power off', limit.run_out))
        self.check_withheld(view, 'timed-out', entries=1, is_left_out=True,
                            has_disk=False)
        entry, = self.journal()
        self.assertEqual('nothing', entry.outcome)
        self.check_removed(self.reboot(self.made))

    def check_failed(self, volume, words):
        """Check that a step failed with these words; ``-``: for no volume."""
        failed, = self.audit(self.made, 'failed')
        self.assertEqual(('WARNING', 'step-failed', volume),
                         (failed.level, failed.reason, failed.volume))
        self.assertIn(words, failed.text)

    def test_guest_that_does_not_power_off(self):
        view = self.reboot(self.made, (
            recorder.GUEST, 'power off', recorder.fail(OSError('no'))))
        self.check_failed('-', 'no')
        self.check_untouched(view)
        self.check_removed(self.reboot(self.made))

    def test_device_that_does_not_disconnect(self):
        """Tell Cinder nothing then, and keep Nova's row."""
        view = self.reboot(self.made, (
            recorder.HOST, 'disconnect', recorder.fail(OSError('busy')),
            self.reset))
        self.check_failed(self.reset, 'busy')
        self.check_untouched(view, self.reset)
        self.assert_removed(view, self.lost, 'volume-available')
        self.assert_removed(self.reboot(self.made), self.reset,
                            'volume-available', (self.attachment.id,))

    def test_device_that_is_still_there(self):
        """Fail it: a forced os-brick is silent on a map that hangs readers."""
        self.cloud.change_connection_data(self.made, self.reset,
                               device_path='/dev/dm-7')
        kernel = self.cloud.state / 'sys' / 'class' / 'block'
        for path in ('dm-7/dm', 'dm-7/slaves'):
            (kernel / path).mkdir(parents=True)
        (kernel / 'dm-7' / 'dm' / 'uuid').write_text('mpath-3600\n')
        view = self.reboot(self.made)
        self.check_failed(self.reset, 'multipath -f /dev/dm-7')
        self.check_untouched(view, self.reset)
        self.assert_removed(view, self.lost, 'volume-available')
        # An operator has removed it.
        shutil.rmtree(kernel)
        self.assert_removed(self.reboot(self.made), self.reset,
                            'volume-available', (self.attachment.id,),
                            connected=False)


class WrongCinderTest(scenario.TwoDisks):
    """A Cinder with too few records, which reports the rest as missing."""

    def test_partly_restored_database(self):
        """Rely on the cap alone if the newest volumes are missing."""
        self.set_options(max_removals=1)
        # This server's volume is the witness.
        self.server(scenario.BOOT_DISK)
        lost = self.made.volumes

        def without_the_newest(body):
            return {key: [each for each in value if each.get(
                'volume_id', each['id']) not in lost]
                for key, value in body.items()}

        self.cloud.proxy.on(
            'GET', '/(attachments|(attachments|volumes)/detail)[?]',
            proxy.rewrite(without_the_newest))
        for volume in lost:
            attachment, = self.cloud.attachments(volume)
            self.cloud.proxy.on(
                'GET', f'/(attachments/{attachment.id}|volumes/{volume})',
                proxy.status(404, {'itemNotFound': {
                    'code': 404, 'message': 'not found'}}))
        view = self.reboot(self.made)
        for volume in lost:
            line, = self.assert_finding(
                self.made, volume, ('WARNING', 'withheld', 'volume-missing'))
            self.assertIn('(over-limit)', line.text)
        self.assert_nothing_done(view)
        self.cloud.proxy.clear()
        view = self.reboot(self.made)
        for volume in lost:
            self.assert_healthy(view, volume)
