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
        self.damage_both()

    def check_withheld(self, view, why, level='WARNING', entries=0,
                       is_not_connected=False, has_disk=True):
        """Check that nothing is removed.

        :param is_not_connected: the disk is nevertheless not connected
        :param has_disk: the guest has it
        """
        expected = [(level, 'withheld', 'volume-available')]
        if is_not_connected:
            expected.append(('WARNING', 'not-connected', 'volume-available'))
        for volume in (self.lost, self.reset):
            line = self.assert_finding(self.server, volume, *expected)[0]
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

    def test_reason_not_selected_withholds_the_removal(self):
        self.set_options(remove=['missing', 'attached-elsewhere'])
        self.check_withheld(self.reboot(self.server), 'not-selected', 'INFO',
                            is_not_connected=True, has_disk=False)

    def test_more_removals_than_max_are_withheld(self):
        self.set_options(max_removals=1)
        self.check_withheld(self.reboot(self.server), 'over-limit')
        self.set_options(max_removals=2)
        self.check_removed(self.reboot(self.server))

    def test_more_removals_than_max_per_hour_are_withheld(self):
        other = self.create_server(fixture.Disk(), name='other')
        self.cloud.lose_attachment(other, other.volumes[0])
        self.set_options(max_removals_per_hour=2)
        self.assert_removed(self.reboot(other), other.volumes[0],
                            'volume-available')
        self.check_withheld(self.reboot(self.server), 'over-limit', entries=1)
        self.set_options(max_removals_per_hour=3)
        self.check_removed(self.reboot(self.server))

    def test_unwritable_store_withholds_the_removals(self):
        blocked = self.store_path.parent / 'blocked'
        blocked.touch()
        self.set_options(store=str(blocked / 'store.sqlite'))
        self.check_withheld(self.reboot(self.server), 'journal-unwritable',
                            is_not_connected=True, has_disk=False)
        unrecorded, = self.log_lines(self.server, 'unrecorded')
        self.assertIn(str(blocked), unrecorded.text)
        # Only Nova's own reboot powers it off.
        self.assertEqual(1, self.steps_of(self.server.id).count(
            (recorder.GUEST, 'power off')))
        self.set_options(store=str(self.store_path))
        self.check_removed(self.reboot(self.server))

    def test_second_look_differs(self):
        """Keep a volume that is reserved while the guest is powered off."""
        view = self.reboot(self.server, (
            recorder.GUEST, 'power off',
            lambda: self.cinder.attachments.create(
                self.lost, None, self.server.id)))
        line, = self.assert_finding(
            self.server, self.lost,
            ('WARNING', 'withheld', 'volume-available'))
        self.assertIn('(second-look-differs)', line.text)
        self.assertIsNotNone(view.block_device(self.lost))
        self.assertEqual(1, len(view.attachments_of(self.lost)))
        self.assert_removed(view, self.reset, 'volume-available',
                            (self.attachment.id,))
        entry, = self.journal()
        self.assertEqual('partly', entry.outcome)

    def change_during_requests(self, **values):
        """Change the server while the plugin asks Cinder."""
        self.start_recording()
        self.cloud.proxy.on('GET', '/attachments', proxy.after(
            lambda: self.cloud.change(self.server, **values)), nth=1)

    def test_reboot_lost_before_plan(self):
        """Withhold it: the server is no longer in this reboot."""
        self.change_during_requests(task_state=None)
        # Nova detects it by itself a little later.
        self.assertRaises(fixture.APIError, self.cloud.reboot, self.server)
        self.check_withheld(self.cloud.look(self.server), 'reboot-lost',
                            is_not_connected=True)

    def test_reboot_lost_after_plan(self):
        """Leave the guest on if the reboot is lost after the plan."""
        prepare = instance.NovaInstance.prepare

        def lose(asked):
            prepare(asked)
            self.cloud.change(self.server, task_state=None)

        self.start_recording()
        with fixtures.MockPatchObject(instance.NovaInstance, 'prepare', lose):
            self.assertRaises(fixture.APIError, self.cloud.reboot, self.server)
        view = self.cloud.look(self.server)
        self.assertNotIn((recorder.GUEST, 'power off'),
                         self.steps_of(self.server.id))
        failed, = self.log_lines(self.server, 'failed')
        self.assertEqual('reboot-lost', failed.reason)
        self.check_untouched(view)
        for volume in (self.lost, self.reset):
            self.assertTrue(view.has_disk(volume))

    def test_expired_time_withholds_the_removals(self):
        limit = self.useFixture(scenario.TimeLimit())
        view = self.reboot(self.server, (
            recorder.GUEST, 'power off', limit.expire))
        self.check_withheld(view, 'timed-out', is_not_connected=True,
                            has_disk=False)
        self.check_removed(self.reboot(self.server))

    def check_failed(self, volume, words):
        """Check that a step failed with these words; ``-``: for no volume."""
        failed, = self.log_lines(self.server, 'failed')
        self.assertEqual(('WARNING', 'step-failed', volume),
                         (failed.level, failed.reason, failed.volume))
        self.assertIn(words, failed.text)

    def test_nothing_is_removed_if_power_off_fails(self):
        view = self.reboot(self.server, (
            recorder.GUEST, 'power off', recorder.fail(OSError('no'))))
        self.check_failed('-', 'no')
        self.check_untouched(view)
        self.check_removed(self.reboot(self.server))

    def test_row_and_attachment_stay_if_disconnect_fails(self):
        """Send Cinder no request, and keep Nova's row."""
        view = self.reboot(self.server, (
            recorder.HOST, 'disconnect', recorder.fail(OSError('busy')),
            self.reset))
        self.check_failed(self.reset, 'busy')
        self.check_untouched(view, self.reset)
        self.assert_removed(view, self.lost, 'volume-available')
        self.assert_removed(self.reboot(self.server), self.reset,
                            'volume-available', (self.attachment.id,))

    def test_row_and_attachment_stay_if_a_device_remains(self):
        """Fail it: a forced os-brick is silent on a map that hangs readers."""
        self.cloud.change_connection_data(self.server, self.reset,
                               device_path='/dev/dm-7')
        kernel = self.cloud.state / 'sys' / 'class' / 'block'
        for path in ('dm-7/dm', 'dm-7/slaves'):
            (kernel / path).mkdir(parents=True)
        (kernel / 'dm-7' / 'dm' / 'uuid').write_text('mpath-3600\n')
        view = self.reboot(self.server)
        self.check_failed(self.reset, 'multipath -f /dev/dm-7')
        self.check_untouched(view, self.reset)
        self.assert_removed(view, self.lost, 'volume-available')
        # An operator has removed it.
        shutil.rmtree(kernel)
        self.assert_removed(self.reboot(self.server), self.reset,
                            'volume-available', (self.attachment.id,),
                            connected=False)


class WrongCinderTest(scenario.TwoDisks):
    """A Cinder with too few records, which reports the rest as missing."""

    def test_partly_restored_database(self):
        """Rely on the cap alone if the newest volumes are missing."""
        self.set_options(max_removals=1)
        # This server's volume is the witness.
        self.create_server(scenario.BOOT_DISK)
        lost = self.server.volumes

        def without_lost_volumes(body):
            return {key: [each for each in value if each.get(
                'volume_id', each['id']) not in lost]
                for key, value in body.items()}

        self.cloud.proxy.on(
            'GET', '/(attachments|(attachments|volumes)/detail)[?]',
            proxy.rewrite(without_lost_volumes))
        for volume in lost:
            attachment, = self.cloud.attachments(volume)
            self.cloud.proxy.on(
                'GET', f'/(attachments/{attachment.id}|volumes/{volume})',
                proxy.status(404, {'itemNotFound': {
                    'code': 404, 'message': 'not found'}}))
        view = self.reboot(self.server)
        for volume in lost:
            line, _ = self.assert_finding(
                self.server, volume,
                ('WARNING', 'withheld', 'volume-missing'),
                ('WARNING', 'not-connected', 'volume-missing'))
            self.assertIn('(over-limit)', line.text)
        self.assert_nothing_done(view)
        self.cloud.proxy.clear()
        view = self.reboot(self.server)
        for volume in lost:
            self.assert_healthy(view, volume)
