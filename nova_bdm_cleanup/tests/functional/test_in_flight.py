# SPDX-License-Identifier: Apache-2.0
"""A hard reboot in the middle of something legitimate touches nothing.

Attach, detach and swap set no task state, so a reboot can come between their
steps.  What they had begun must be left alone, and must still complete.
"""

from __future__ import annotations

import datetime
import uuid

import fixtures
from nova import objects
from nova.compute import rpcapi

from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.functional import scenario


class InterruptedOperationTest(scenario.ScenarioTestCase):

    def setUp(self):
        super().setUp()
        self.made = self.server(scenario.BOOT_DISK)
        self.kept, = self.made.volumes
        self.seen = None

    def _reboot_now(self):
        """Reboot; what the reboot found is in ``self.seen``."""
        self.cloud.proxy.clear()
        self._log_begins = len(self.cloud.log())
        self.cloud.reboot(self.made)
        self.seen = self.audit(self.made)
        self.asked = self.requests()

    def _reboot_before(self, owner, name, condition=lambda *args: True):
        """Reboot once, just before a function of Nova is called."""
        original = getattr(owner, name)

        def rebooting_first(*args, **kwargs):
            if self.seen is None and condition(*args):
                self._reboot_now()
            return original(*args, **kwargs)

        self.useFixture(fixtures.MockPatchObject(
            owner, name, rebooting_first))

    def _check_left_alone(self, *reasons):
        self.assertIsNotNone(self.seen, 'there was no reboot')
        self.assertEqual(
            sorted(reasons), sorted(line.reason for line in self.seen))
        self.assertEqual({'kept'} if reasons else set(),
                         {line.event for line in self.seen})
        self.assertEqual([], self.journal())
        self.assertEqual([], [each for each in self.asked
                              if not each.startswith('GET ')])
        view = self.cloud.look(self.made)
        self.assertEqual(('ACTIVE', None), (view.status, view.task_state))
        self.assert_healthy(view, self.kept)
        return view

    def test_attach_between_attachment_create_and_save(self):
        volume = self.cloud.volume()
        self._reboot_before(
            objects.BlockDeviceMapping, 'save',
            lambda bdm: 'attachment_id' in bdm.obj_what_changed())
        self.cloud.attach(self.made, volume)
        view = self._check_left_alone('attach-in-flight')
        self.assert_healthy(view, volume)

    def test_detach_waiting_for_the_lock(self):
        volume = self.cloud.volume()
        self.cloud.attach(self.made, volume)
        self._reboot_before(rpcapi.ComputeAPI, 'detach_volume')
        self.cloud.detach(self.made, volume)
        view = self._check_left_alone('operation-in-flight')
        self.assert_gone(view, volume)
        self.assertEqual('available', view.volume_status(volume))


class LeftoverTest(scenario.ScenarioTestCase):
    """What an operation that failed half way has left."""

    def setUp(self):
        super().setUp()
        self.made = self.server(*[scenario.BOOT_DISK] * 2)
        self.volume, self.kept = self.made.volumes

    def _row(self):
        return self.cloud.row(self.made, self.volume)

    def _name_attachment(self, attachment):
        """Have Nova's row name another attachment."""
        row = self._row()
        row.attachment_id = attachment
        row.save()

    def _check_untouched(self, *expected):
        before = self.cloud.attachments(self.volume)
        view = self.reboot(self.made)
        self.assert_nothing_done(view)
        self.assertEqual(before, self.cloud.attachments(self.volume))
        self.assert_finding(self.made, self.volume, *expected)
        self.assertTrue(view.has_disk(self.volume))
        self.assertIn(self.volume, view.connected)
        self.assert_healthy(view, self.kept)
        return view

    def test_volume_that_cinder_migrates(self):
        """The target of the migration is attached, and Nova knows nothing."""
        target = self.cloud.volume()
        attachment = self.cloud.leave_attachment(self.made, target,
                                                 connected=False)
        self.cinder.volumes.reset_state(self.volume, 'in-use',
                                        migration_status='migrating')
        view = self._check_untouched(('WARNING', 'kept', 'volume-busy'))
        self.assert_finding(self.made, target,
                            ('INFO', 'kept', 'operation-in-flight'))
        self.assertEqual([attachment],
                         [each.id for each in view.attachments_of(target)])

    def test_server_that_an_administrator_locked(self):
        """As ``nova-manage volume_attachment refresh`` does."""
        self.cloud.request('POST', f'/servers/{self.made.id}/action',
                           {'lock': None}, by=self.cloud.admin)
        target = self.cloud.volume()
        self.cloud.leave_attachment(self.made, target, connected=False)
        self.begin()
        self.cloud.reboot(self.made, by=self.cloud.admin)
        view = self.look(self.made)
        self.assert_nothing_done(view)
        self.assert_finding(self.made, target,
                            ('INFO', 'kept', 'operation-in-flight'))
        self.assertEqual(1, len(view.attachments_of(target)))

    def test_row_from_before_queens(self):
        """It names no attachment; the volume's own list decides."""
        self._name_attachment(None)
        self._check_untouched()
        self.cloud.lose_attachment(self.made, self.volume)
        view = self.reboot(self.made)
        self.assert_removed(view, self.volume, 'volume-available')

    def test_attach_that_was_tried_again(self):
        """Nova wrote a row, its answer was lost, and now there are two."""
        day = datetime.timedelta(days=1)
        own = self._row()
        for attachment in (None, str(uuid.uuid4()), own.attachment_id):
            spare = self.leave_mapping(self.made, self.volume, day,
                                       attachment_id=attachment)
            before = self.cloud.attachments(self.volume)
            if attachment == own.attachment_id:
                self.cloud.recorder.before(recorder.NOVA, 'remove bdm',
                                           recorder.crash)
                self.cloud.reboot_until_crash(self.made)
                self.assertEqual(before, self.cloud.attachments(self.volume))
                self.begin()
                self.cloud.restart_compute()
                view = self.look(self.made)
            else:
                view = self.reboot(self.made)
            lines = self.assert_finding(
                self.made, self.volume,
                ('INFO', 'removing', 'duplicate-mapping'),
                ('INFO', 'removed', 'duplicate-mapping'))
            self.assertIn(own.uuid, lines[0].text)
            self.assertEqual(['duplicate-mapping'], [
                action['reason']
                for action in self.journal()[-1].record['actions']])
            self.assertEqual(
                [('power-off', 'done'), ('second-look', 'done'),
                 ('disconnect', 'skipped'), ('destroy', 'done')],
                [(s.name, s.outcome) for s in self.journal()[-1].steps])
            self.assertEqual([], self.requests('DELETE'))
            self.assertEqual([], [e for e in self.cloud.timeline(self.volume)
                                  if e.what == 'terminate_connection'])
            self.assertEqual(before, self.cloud.attachments(self.volume))
            self.assertEqual([own.uuid], [
                row.uuid for row in view.block_devices
                if row.volume_id == self.volume])
            self.assertIn(spare.uuid, [
                row.uuid for row in view.removed_block_devices])
            self.assertEqual(1, [disk.volume_id for disk in view.disks].count(
                self.volume))
            self.assert_healthy(view, self.volume)

    def test_two_rows_that_the_guest_may_use(self):
        own = self._row()
        self.leave_mapping(self.made, self.volume,
                           attachment_id=str(uuid.uuid4()),
                           connection_info=own.connection_info)
        self.begin()
        self.cloud.reboot(self.made)
        self.assert_finding(self.made, self.volume,
                            ('WARNING', 'kept', 'duplicate-mapping'))
        self.assertEqual([], self.journal())
        # The runbook's way out.
        self.cloud.detach(self.made, self.volume)
        self.wait_until(
            lambda: self.volume_status(self.volume) == 'available')
        self.cloud.reboot(self.made)
        self.assert_gone(self.look(self.made), self.volume)
        self.cloud.attach(self.made, self.volume)
        self.assert_healthy(self.look(self.made), self.volume)

    def test_row_of_an_attach_that_just_died(self):
        """Nothing but its age tells it from one that is under way."""
        volume = self.cloud.volume()
        mapping = self.leave_mapping(self.made, volume)
        view = self.reboot(self.made)
        self.assert_nothing_done(view)
        self.assert_finding(self.made, volume,
                            ('INFO', 'kept', 'attach-in-flight'))
        self.age_mapping(mapping, datetime.timedelta(minutes=6))
        view = self.reboot(self.made)
        self.assert_removed(view, volume, 'volume-available',
                            connected=False)
