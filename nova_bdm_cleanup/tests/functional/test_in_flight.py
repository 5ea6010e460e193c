# SPDX-License-Identifier: Apache-2.0
"""Hard reboots during a legitimate operation, which they do not touch.

Attach, detach and swap set no task state, so a reboot can come between their
steps.  The operation must be left alone, and must still complete.
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
        self.server = self.create_server(scenario.BOOT_DISK)
        self.seen = None

    def reboot_before(self, owner, name, condition=lambda *args: True):
        """Reboot once, just before a function of Nova is called.

        The findings of the reboot are in ``self.seen``.
        """
        original = getattr(owner, name)

        def rebooting_first(*args, **kwargs):
            if self.seen is None and condition(*args):
                self.start_recording()
                self.cloud.reboot(self.server)
                self.seen = self.log_lines(self.server)
                self.assertEqual([], self.changes())
            return original(*args, **kwargs)

        self.useFixture(fixtures.MockPatchObject(
            owner, name, rebooting_first))

    def check_left_alone(self, reason):
        self.assertIsNotNone(self.seen, 'there was no reboot')
        self.assertEqual([('kept', reason)], [
            (line.event, line.reason) for line in self.seen])
        self.assertEqual([], self.journal())
        view = self.look(self.server)
        self.assert_healthy(view, *self.server.volumes)
        return view

    def test_attach_before_attachment_id_is_saved(self):
        volume = self.cloud.volume()
        self.reboot_before(
            objects.BlockDeviceMapping, 'save',
            lambda bdm: 'attachment_id' in bdm.obj_what_changed())
        self.cloud.attach(self.server, volume)
        view = self.check_left_alone('attach-in-flight')
        self.assert_healthy(view, volume)

    def test_detach_waiting_for_the_lock(self):
        volume = self.cloud.volume()
        self.cloud.attach(self.server, volume)
        self.reboot_before(rpcapi.ComputeAPI, 'detach_volume')
        self.cloud.detach(self.server, volume)
        view = self.check_left_alone('operation-in-flight')
        self.assert_gone(view, volume)
        self.assertEqual('available', view.volume_status(volume))


class LeftoverTest(scenario.TwoDisks):
    """Leftovers of an operation that failed half way."""

    def test_second_row_of_a_retried_attach_is_removed(self):
        """Remove the second row of an attach whose first answer was lost."""
        day = datetime.timedelta(days=1)
        own = self.cloud.row(self.server, self.lost)
        for attachment in (None, str(uuid.uuid4()), own.attachment_id):
            spare = self.create_mapping(self.server, self.lost, day,
                                       attachment_id=attachment)
            before = self.cloud.attachments(self.lost)
            if attachment == own.attachment_id:
                self.crash(self.server, recorder.NOVA, 'remove bdm')
                self.assertEqual(before, self.cloud.attachments(self.lost))
                self.start_recording()
                self.cloud.restart_compute()
                view = self.look(self.server)
            else:
                view = self.reboot(self.server)
            lines = self.assert_finding(
                self.server, self.lost,
                ('INFO', 'removing', 'duplicate-mapping'),
                ('INFO', 'removed', 'duplicate-mapping'))
            self.assertIn(own.uuid, lines[0].text)
            entry = self.journal()[-1]
            self.assertEqual(['duplicate-mapping'], [
                action['reason'] for action in entry.record['actions']])
            self.assertEqual(
                [('power-off', 'done'), ('second-look', 'done'),
                 ('disconnect', 'skipped'), ('destroy', 'done')],
                [(s.name, s.outcome) for s in entry.steps])
            self.assertEqual([], self.requests('DELETE'))
            self.assertNotIn('terminate_connection', [
                call for call, _ in self.back_end(self.lost)])
            self.assertEqual(before, self.cloud.attachments(self.lost))
            self.assertEqual([own.uuid], [
                row.uuid for row in view.block_devices
                if row.volume_id == self.lost])
            self.assertIn(spare.uuid, [
                row.uuid for row in view.removed_block_devices])
            self.assertEqual(1, [disk.volume_id for disk in view.disks].count(
                self.lost))
            self.assert_healthy(view, self.lost)

    def test_two_connected_mappings(self):
        own = self.cloud.row(self.server, self.lost)
        self.create_mapping(self.server, self.lost,
                           attachment_id=str(uuid.uuid4()),
                           connection_info=own.connection_info)
        self.reboot(self.server)
        # The guest gets it once, by the mapping that Cinder knows.
        self.assert_finding(
            self.server, self.lost, ('WARNING', 'kept', 'duplicate-mapping'),
            ('WARNING', 'not-connected', 'duplicate-mapping'))
        self.assertEqual([], self.journal())
        # The steps of the runbook.
        self.cloud.detach(self.server, self.lost)
        self.wait_until(
            lambda: self.volume_status(self.lost) == 'available')
        self.assert_gone(self.reboot(self.server), self.lost)
        self.cloud.attach(self.server, self.lost)
        self.assert_healthy(self.look(self.server), self.lost)
