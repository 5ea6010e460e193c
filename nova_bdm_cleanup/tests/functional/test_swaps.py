# SPDX-License-Identifier: Apache-2.0
"""A nova-compute that dies while it swaps two volumes of a server.

At no step may a disk be lost: neither the old one, which Nova names, nor the
new one, which the guest may use.
"""

from __future__ import annotations

import contextlib
from typing import Any

import fixtures
from nova import objects
from nova.cmd import manage
from nova.compute import rpcapi
from nova.virt.libvirt import driver

from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.cloud import fixture, recorder
from nova_bdm_cleanup.tests.functional import commands, scenario

#: Reasons of the old and the new disk if only Nova's row is missing.
REASONS = ('volume-available', 'stale-attachment')


class InterruptedSwapTest(commands.CommandTestCase):

    def swap(self, server: fixture.Server, old: str, new: str,
             *before: Any, nth: int = 0) -> None:
        """Swap two volumes in a nova-compute that dies.

        :param before: owner and name of the function before which it dies
        :param nth: else the number of the changing request to Cinder
        """
        self._dead = False
        self._changes = 0
        compute = self.cloud.nova.computes[server.host].manager
        run_hooks = self.cloud.recorder.run_hooks
        finish = objects.InstanceActionEvent.event_finish_with_failure

        def die(*args: object, **kwargs: object) -> None:
            self._dead = True
            recorder.crash()

        def hook(party: str, what: str, subject: str) -> None:
            # A dead process sends nothing, but "finally" still runs.
            if self._dead and party == recorder.REQUEST:
                recorder.crash()
            if party == recorder.REQUEST and what != 'GET':
                self._changes += 1
                if self._changes == nth:
                    die()
            run_hooks(party, what, subject)

        def swap_volume(api: object, context: object, instance: object,
                        **values: str) -> None:
            self._changes = 0
            with contextlib.ExitStack() as patches:
                for patch in ((self.cloud.recorder, 'run_hooks', hook),
                              *([(*before, die)] if before else [])):
                    patches.enter_context(fixtures.MockPatchObject(*patch))
                self.assertRaises(
                    recorder.Crash, compute.swap_volume, context,
                    instance=instance, **values)

        def finish_event(*args: object, **values: object) -> None:
            if not self._dead:
                finish(*args, **values)

        with fixtures.MockPatchObject(
                rpcapi.ComputeAPI, 'swap_volume', swap_volume), \
            fixtures.MockPatchObject(
                objects.InstanceActionEvent, 'event_finish_with_failure',
                finish_event):
            self.cloud.swap(server, old, new)

    def assert_kept(self, server: fixture.Server, old: str, new: str,
                    *expected: str) -> None:
        """Reboot, and check that neither side of either disk has changed.

        :param expected: the reasons, except those of healthy disks
        """
        def records() -> list[object]:
            return [self.cloud.attachments(volume) for volume in (old, new)]

        before, entries = records(), self.journal()
        self.start_recording()
        self.cloud.reboot(server)
        self.assertEqual(before, records())
        self.assertIsNotNone(self.cloud.row(server, old))
        self.assertEqual(entries, self.journal())
        self.assertEqual(sorted(expected), sorted(
            line.reason for line in self.log_lines(server)
            if line.reason != 'healthy' and line.event != 'not-connected'))
        for line in self.log_lines(server, 'withheld'):
            self.assertEqual('ERROR', line.level)
            self.assertIn('(swap-interrupted)', line.text)

    def test_crash_at_every_request(self):
        moving = 'operation-in-flight'
        for before, nth in (
                # Before Cinder connects the host, which deletes no record;
                # before the guest swaps the disks; before the swap is
                # reported to Cinder; before the old attachment is deleted.
                ((), 1), ((driver.LibvirtDriver, 'swap_volume'), 0), ((), 2),
                ((), 3)):
            server = self.create_server(scenario.BOOT_DISK)
            old, new = server.volumes[0], self.cloud.volume()
            self.swap(server, old, new, *before, nth=nth)
            self.assertEqual('detaching', self.volume_status(old))
            # Not yet connected, the new one is only reserved.
            self.assert_kept(server, old, new, moving, moving
                             if nth == 1 else 'swap-interrupted')
            if nth == 1:
                continue
            # Run the action of the audit for the state left behind.
            code, (row,) = self.bdm('release', old, '--yes',
                                    '--stuck-after', '0')
            self.assertEqual((ExitCode.OK, 'os-roll_detaching'),
                             (code, row['Call']), row)
            self.assert_kept(server, old, new, 'stale-attachment')
            self.delete_new_attachment(server, new)
            # Either direction, as the runbook has it.
            kept, gone = old, new
            if not before:
                self.cloud.detach(server, old)
                self.cloud.attach(server, new)
                kept, gone = new, old
            self.cloud.start(server)
            view = self.look(server)
            self.assert_healthy(view, kept)
            self.assert_gone(view, gone)

    def test_crash_before_mapping_is_saved(self):
        for end in (self.finish_by_hand, self.revert_by_hand):
            server = self.create_server(scenario.BOOT_DISK)
            old, new = server.volumes[0], self.cloud.volume()
            self.swap(server, old, new, objects.BlockDeviceMapping, 'save')
            self.assertEqual(
                ('available', 'in-use'),
                (self.volume_status(old), self.volume_status(new)))
            self.assert_kept(server, old, new, *REASONS)
            # The old one is no longer attached to the server.
            self.assert_finding(
                server, old, ('ERROR', 'withheld', 'volume-available'),
                ('WARNING', 'not-connected', 'volume-available'))
            self.assert_finding(
                server, new, ('ERROR', 'withheld', 'stale-attachment'))
            self.assert_commands_agree(server, new)
            self.delete_new_attachment(server, new)
            end(server, old, new)

    def delete_new_attachment(self, server: fixture.Server, new: str) -> None:
        """Take the runbook's first steps: the server off, and nothing left
        on the host, before the attachment is deleted.
        """
        self.cloud.stop(server)
        self.cloud.nova.connected[server.host].pop(new, None)
        attachment, = self.cloud.attachments(new)
        self.cloud.cinder.client(self.cloud.admin).attachments.delete(
            attachment.id)

    def test_interrupted_swap_is_kept_after_later_swaps(self):
        """Keep it after other swaps: if disks are retyped in turn, the other
        results tell nothing about this one.
        """
        server = self.create_server(*[scenario.BOOT_DISK] * 3)
        old, second, third = server.volumes
        new = self.cloud.volume()
        self.swap(server, old, new, objects.BlockDeviceMapping, 'save')
        with fixtures.MockPatchObject(driver.LibvirtDriver, 'swap_volume'):
            self.cloud.swap(server, second, self.cloud.volume())
            self.wait_until(
                lambda: self.volume_status(second) == 'available')
        self.assert_kept(server, old, new, *REASONS)
        self.assert_commands_agree(server, new)
        new_third = self.cloud.volume()
        self.swap(server, third, new_third,
                  objects.BlockDeviceMapping, 'save')
        for before, after in ((old, new), (third, new_third)):
            self.assert_kept(server, before, after, *REASONS * 2)

    def assert_commands_agree(self, server: fixture.Server, new: str) -> None:
        """Check that the commands say and do the same as the plugin."""
        found = self.run_audit(server=server)
        self.assertEqual(
            {(reason, 'look: openstack bdm explain swap-interrupted')
             for reason in REASONS}, set(found.values()))
        self.assertIn(new, found)
        attachment, = self.cloud.attachments(new)
        code, (row,) = self.bdm('release', attachment.id, '--yes',
                                '--grace-period', '0')
        self.assertEqual((ExitCode.REFUSED, None), (code, row['Call']))

    def refresh(self, server: fixture.Server, volume: str) -> None:
        self.assertEqual(0, manage.VolumeAttachmentCommands().refresh(
            instance_uuid=server.id, volume_id=volume,
            connector_path=self.connector_file(server.host)))

    def finish_by_hand(self, server: fixture.Server, old: str, new: str
                       ) -> None:
        """Take the runbook's way to the new disk."""
        self.refresh(server, old)
        self.cloud.detach(server, old)
        self.cloud.attach(server, new)
        self.cloud.start(server)
        view = self.look(server)
        self.assert_gone(view, old)
        self.assert_healthy(view, new)

    def revert_by_hand(self, server: fixture.Server, old: str, new: str
                       ) -> None:
        """Take the runbook's way to the old disk."""
        self.refresh(server, old)
        self.cloud.start(server)
        view = self.look(server)
        self.assert_healthy(view, old)
        self.assert_gone(view, new)
        self.assertEqual('available', self.volume_status(new))

    def test_failed_swap_keeps_nothing(self):
        """Keep nothing for a swap that failed and left nothing."""
        server = self.create_server(*[scenario.BOOT_DISK] * 2)
        lost, kept = server.volumes
        with fixtures.MockPatchObject(
                driver.LibvirtDriver, 'swap_volume',
                side_effect=RuntimeError('the guest has no such disk')):
            # Here the API waits for nova-compute, and returns its error.
            self.assertRaises(fixture.APIError, self.cloud.swap, server,
                              kept, self.cloud.volume())
        self.assertEqual('in-use', self.volume_status(kept))
        self.cloud.lose_attachment(server, lost)
        stray = self.cloud.volume()
        self.cloud.create_attachment(server, stray)
        self.assert_kept(server, lost, stray, *REASONS)
        attachment, = self.cloud.attachments(stray)
        self.cloud.cinder.client(self.cloud.admin).attachments.delete(
            attachment.id)
        view = self.reboot(server)
        self.assert_gone(view, lost)
        self.assert_healthy(view, kept)
