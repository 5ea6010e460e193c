# SPDX-License-Identifier: Apache-2.0
"""A nova-compute that dies while it swaps two volumes of a server.

The next hard reboot ends the swap: the server keeps the disk that the guest
had.  The old one is never started after the guest has left it.
"""

from __future__ import annotations

import contextlib
from typing import Any

import fixtures
from nova import objects
from nova.compute import rpcapi
from nova.virt.libvirt import driver

from nova_bdm_cleanup.tests.cloud import fixture, proxy, recorder
from nova_bdm_cleanup.tests.functional import commands, scenario

#: The functions before which nova-compute dies, or else the number of the
#: request that changes something in Cinder.  The guest has the old disk ...
BEFORE_PIVOT: tuple[tuple[tuple[Any, ...], int], ...] = (
    # Before Cinder connects the host, before os-brick does, and after that.
    ((), 1), ((driver.LibvirtDriver, 'swap_volume'), 0),
    ((driver.LibvirtDriver, '_swap_volume'), 0))
#: ... or the new one: before the swap is reported to Cinder, before the old
#: attachment is deleted, before Nova's row is saved.
AFTER_PIVOT: tuple[tuple[tuple[Any, ...], int], ...] = (
    ((), 2), ((), 3), ((objects.BlockDeviceMapping, 'save'), 0))


class SwapTestCase(commands.CommandTestCase):

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

    def interrupted(self, point: tuple[tuple[Any, ...], int]
                    ) -> tuple[fixture.Server, str, str]:
        """Return a server whose swap was interrupted, the old and the new
        volume.
        """
        before, nth = point
        server = self.create_server(scenario.BOOT_DISK)
        old, new = server.volumes[0], self.cloud.volume()
        self.swap(server, old, new, *before, nth=nth)
        self.cloud.restart_compute(server.host)
        return server, old, new

    def records(self, *volumes: str) -> list[object]:
        return [(self.volume_status(volume), self.cloud.attachments(volume))
                for volume in volumes]

    def check_ended(self, server: fixture.Server, kept: str, gone: str
                    ) -> None:
        """Check that a server has only one of two volumes."""
        view = self.look(server)
        self.assert_healthy(view, kept)
        self.assert_gone(view, gone)
        self.assertEqual('available', self.volume_status(gone))
        row = view.block_device(kept)
        self.assertEqual(kept, row.connection_info['serial'])
        self.assertEqual({}, self.run_audit(server=server))

    def assert_not_connected(self, server: fixture.Server, *volumes: str
                             ) -> None:
        """Check that the guest has come back without some disks."""
        view = self.look(server)
        for volume in volumes:
            self.assertFalse(view.has_disk(volume), volume)
            self.assertNotIn('connect', self.host_steps(volume))


class InterruptedSwapTest(SwapTestCase):

    def test_reboot_keeps_the_disk_that_the_guest_had(self):
        for point in (*BEFORE_PIVOT, *AFTER_PIVOT):
            with self.subTest(point=point):
                server, old, new = self.interrupted(point)
                kept, gone = ((new, old) if point in AFTER_PIVOT
                              else (old, new))
                view = self.reboot(server)
                self.check_ended(server, kept, gone)
                self.assert_event(
                    view, 'bdm_cleanup reconnected volume %s '
                    '(swap-interrupted)' % kept)
                self.assertEqual([], self.log_lines(server, 'failed'))
                self.assertEqual([], self.log_lines(server, 'withheld'))
                entry = self.journal()[-1]
                self.assertEqual('done', entry.outcome)
                # The old one is not started again, not even for a moment.
                if point in AFTER_PIVOT:
                    self.assertNotIn('connect', self.host_steps(old))
                # And nothing is left to do.
                entries = self.journal()
                self.reboot(server)
                self.check_ended(server, kept, gone)
                self.assertEqual(entries, self.journal())

    def test_steps_of_the_plugin_are_in_order(self):
        server, old, new = self.interrupted(AFTER_PIVOT[0])
        self.reboot(server)
        steps = [(event.party, event.what)
                 for event in self.cloud.timeline(server.id, old, new)
                 if event.party != recorder.CINDER or event.what != 'GET']
        self.assertEqual([
            (recorder.GUEST, 'power off'),
            (recorder.CINDER, 'PUT'),
            (recorder.CINDER, 'POST'),
            (recorder.HOST, 'disconnect'),
            (recorder.CINDER, 'DELETE'),
            (recorder.GUEST, 'power off'),
            (recorder.HOST, 'connect'),
            (recorder.GUEST, 'power on'),
        ], [step for step in steps if step[1] not in (
            'undefine', 'terminate_connection', 'remove_export',
            'create_export', 'initialize_connection', 'attach_volume')])

    def test_crash_between_two_steps_is_recovered(self):
        """The domain of the guest is gone then; the journal tells."""
        for party, what in (
                (recorder.REQUEST, 'PUT'), (recorder.REQUEST, 'POST'),
                (recorder.HOST, 'disconnect'), (recorder.REQUEST, 'DELETE')):
            for point in (BEFORE_PIVOT[2], AFTER_PIVOT[0]):
                with self.subTest(what=what, point=point):
                    server, old, new = self.interrupted(point)
                    kept, gone = ((new, old) if point in AFTER_PIVOT
                                  else (old, new))
                    self.crash(server, party, what)
                    self.cloud.domain(server).undefine()
                    self.cloud.restart_compute(server.host)
                    self.cloud.recorder.remove_hooks()
                    self.cloud.reboot(server)
                    self.check_ended(server, kept, gone)

    def test_silence_of_cinder_in_the_middle_is_ended_later(self):
        for method, path in (('PUT', '/attachments/'),
                             ('POST', '/attachments/.*/action'),
                             ('DELETE', '/attachments/')):
            with self.subTest(method=method):
                server, old, new = self.interrupted(AFTER_PIVOT[0])
                self.cloud.proxy.on(method, path, proxy.status(503))
                self.reboot(server)
                self.cloud.proxy.clear()
                self.assertFalse(self.look(server).has_disk(old))
                self.assertNotIn('connect', self.host_steps(old))
                self.reboot(server)
                self.check_ended(server, new, old)

    def test_disk_that_nothing_tells_is_not_connected(self):
        """Neither the hypervisor nor the journal knows the guest."""
        server, old, new = self.interrupted(AFTER_PIVOT[0])
        before = self.records(old, new)
        domain = self.cloud.domain(server)
        domain.destroy()
        domain.undefine()
        self.reboot(server)
        self.assert_not_connected(server, old, new)
        self.assertEqual(before, self.records(old, new))
        self.assert_finding(
            server, old, ('ERROR', 'kept', 'swap-interrupted'),
            ('WARNING', 'not-connected', 'swap-interrupted'))

    def test_swap_that_nova_has_rolled_back_is_not_undone(self):
        """The guest has the new disk, whose attachment Nova has deleted."""
        server = self.create_server(scenario.BOOT_DISK)
        old, new = server.volumes[0], self.cloud.volume()
        self.cloud.proxy.on('POST', '/attachments/.*/action',
                            proxy.status(500))
        clear = self.cloud.proxy.clear
        with fixtures.MockPatchObject(self.cloud.proxy, 'clear'):
            try:
                self.cloud.swap(server, old, new)
            except fixture.APIError:
                # Some releases wait for nova-compute, and return its error.
                pass
            self.wait_until(lambda: self.volume_status(new) == 'available')
        clear()
        self.assertEqual('in-use', self.volume_status(old))
        before = self.records(old, new)
        for _ in range(2):
            # The second guest does not have it either: the journal tells.
            self.reboot(server)
            self.assert_not_connected(server, old)
            self.assertEqual(before, self.records(old, new))
            self.assert_finding(
                server, old, ('ERROR', 'kept', 'swap-interrupted'),
                ('WARNING', 'not-connected', 'swap-interrupted'))
        # As the runbook has it, for the new one.
        self.cloud.stop(server)
        self.cloud.detach(server, old)
        self.cloud.attach(server, new)
        self.cloud.start(server)
        self.check_ended(server, new, old)

    def test_swap_that_waits_for_the_reboot_is_kept(self):
        server = self.create_server(scenario.BOOT_DISK)
        old, new = server.volumes[0], self.cloud.volume()
        queued: dict[str, Any] = {}

        def swap_volume(api: object, context: object, **values: Any) -> None:
            queued.update(values, context=context)

        with fixtures.MockPatchObject(
                rpcapi.ComputeAPI, 'swap_volume', swap_volume):
            self.cloud.swap(server, old, new)
        before = self.records(old, new)
        view = self.reboot(server)
        self.assertTrue(view.has_disk(old))
        self.assertEqual(before, self.records(old, new))
        self.assertEqual([], self.journal())
        self.cloud.nova.computes[server.host].manager.swap_volume(**queued)
        self.check_ended(server, new, old)

    def test_later_swaps_do_not_hide_it(self):
        """If disks are retyped in turn, several may be interrupted."""
        server = self.create_server(*[scenario.BOOT_DISK] * 3)
        old, second, third = server.volumes
        new, new_second, new_third = (self.cloud.volume() for _ in range(3))
        before = objects.BlockDeviceMapping, 'save'
        self.swap(server, old, new, *before)
        self.cloud.swap(server, second, new_second)
        self.wait_until(lambda: self.volume_status(second) == 'available')
        self.swap(server, third, new_third, *before)
        self.cloud.restart_compute(server.host)
        view = self.reboot(server)
        self.assert_healthy(view, new, new_second, new_third)
        for volume in server.volumes:
            self.assert_gone(view, volume)

    def test_failed_swap_keeps_nothing(self):
        """Keep nothing for a swap that failed long ago."""
        server = self.create_server(*[scenario.BOOT_DISK] * 2)
        lost, kept = server.volumes
        with fixtures.MockPatchObject(
                driver.LibvirtDriver, 'swap_volume',
                side_effect=RuntimeError('the guest has no such disk')):
            # Here the API waits for nova-compute, and returns its error.
            self.assertRaises(fixture.APIError, self.cloud.swap, server,
                              kept, self.cloud.volume())
        self.assertEqual('in-use', self.volume_status(kept))
        view = self.reboot(server)
        self.assert_healthy(view, lost, kept)
        self.assertEqual([], self.journal())
        self.cloud.lose_attachment(server, lost)
        stray = self.cloud.volume()
        self.cloud.create_attachment(server, stray)
        view = self.reboot(server)
        self.assert_gone(view, lost)
        self.assert_gone(view, stray)
        self.assert_healthy(view, kept)


class ObservedSwapTest(SwapTestCase):

    ARGUMENTS = {'plugin_options': {'mode': 'observe'}}

    def test_nothing_is_done(self):
        for point in (BEFORE_PIVOT[0], AFTER_PIVOT[0]):
            server, old, new = self.interrupted(point)
            self.reboot(server)
            # As with Nova alone, which removes attachments, too.
            self.assertTrue(self.look(server).has_disk(old))
            self.assertEqual('detaching', self.volume_status(old))
            self.assertEqual([], self.journal())
            line, = (line for line in self.log_lines(server, 'withheld')
                     if line.volume == old)
            self.assertEqual('swap-interrupted', line.reason)
            self.assertIn('(observe-mode)', line.text)


class StartedSwapTest(scenario.Started, SwapTestCase):

    def test_start_keeps_the_disk_that_the_guest_had(self):
        server, old, new = self.interrupted(BEFORE_PIVOT[2])
        self.reboot(server)
        self.check_ended(server, old, new)

    def test_device_of_a_guest_that_is_off_is_not_known(self):
        """Its path may be another one's since the host was booted."""
        server, old, new = self.interrupted(AFTER_PIVOT[1])
        before = self.records(old, new)
        self.reboot(server)
        self.assert_not_connected(server, old, new)
        self.assertEqual(before, self.records(old, new))
        self.assert_finding(
            server, old, ('ERROR', 'kept', 'swap-interrupted'),
            ('WARNING', 'not-connected', 'swap-interrupted'))
