# SPDX-License-Identifier: Apache-2.0
"""Boots of a host: many guests wait, and Cinder may be down."""

from __future__ import annotations

from typing import Any

import fixtures
from nova.virt.libvirt.driver import LibvirtDriver

from nova_bdm_cleanup.tests.cloud import proxy
from nova_bdm_cleanup.tests.functional import scenario


class _HostBootTestCase(scenario.Resumed):

    def boot(self) -> None:
        """Start nova-compute on a host on which nothing runs."""
        self.start_recording()
        self.cloud.restart_compute()

    def skipped_servers(self) -> tuple[str, int]:
        """Return why servers were skipped, and how many."""
        line, = self.all_log_lines('left-out')
        self.assertEqual('WARNING', line.level)
        return line.reason, int(
            line.text.partition(' more servers')[0].split()[-1])

    def requested_paths(self) -> list[str]:
        """Return the requests without their queries."""
        return [each.partition('?')[0] for each in self.requests()]


class ManyServersTest(_HostBootTestCase):
    """The cost of a boot; how Nova starts the guests is not tested."""

    COUNT = 30

    def setUp(self):
        super().setUp()
        self.set_options(max_removals_per_hour=1000)
        self.resumed: list[str] = []
        self.useFixture(fixtures.MockPatchObject(
            LibvirtDriver, 'resume_state_on_host_boot', self._resume))
        self.servers = [self.create_server(*[scenario.BOOT_DISK] * 3)
                        for _ in range(self.COUNT)]
        for server in self.servers:
            self.cloud.lose_power(server)

    def _resume(self, context: Any, instance: Any, *args: Any,
                **kwargs: Any) -> None:
        self.resumed.append(instance.uuid)

    def boot(self) -> None:
        super().boot()
        self.assertEqual(sorted(server.id for server in self.servers),
                         sorted(self.resumed))
        self.resumed.clear()

    def test_requests_of_a_boot(self):
        self.boot()
        self.assertEqual(['GET /volumes/detail'] * self.COUNT,
                         self.requested_paths())
        self.assertEqual([], self.cloud.log(r'bdm-cleanup: event='))

        self.check_only_damaged_servers_cost_more()
        self.check_cinder_hangs()
        self.check_cinder_fails_during_boot()

    def check_only_damaged_servers_cost_more(self):
        broken = self.servers[7], self.servers[25]
        for server in broken:
            self.cloud.lose_attachment(server, server.volumes[1])
        self.boot()
        self.assertEqual(
            {(server.id, server.volumes[1]) for server in broken},
            {(line.server, line.volume)
             for line in self.all_log_lines('removed')})
        self.assertEqual(2, len(self.all_log_lines('removed')))
        self.assertLess(len(self.requests()), self.COUNT - 2 + 2 * 16)

    def check_cinder_hangs(self):
        self.cloud.proxy.on('GET', '', self.hang_until_timeout())
        self.boot()
        # One for the first server, and one to see if Cinder answers at all.
        self.assertEqual(['GET /volumes/detail', 'GET /volumes'],
                         self.requested_paths())
        skipped, = self.all_log_lines('skipped')
        self.assertEqual('timed-out', skipped.reason)
        for words in (' s of [bdm_cleanup] timeout for one server while '
                      'nova-compute starts',
                      'nothing is changed, the server is resumed'):
            self.assertIn(words, skipped.text)
        self.assertEqual(('timed-out', self.COUNT - 1), self.skipped_servers())
        self.cloud.proxy.clear()

    def check_cinder_fails_during_boot(self):
        """Check that from then on no server is looked at."""
        first = self.cloud.proxy.on('GET', '', proxy.status(503))
        for number in (1, 2):
            self.cloud.proxy.on('GET', '', proxy.forward_unchanged, nth=number)
        self.boot()
        self.assertEqual(2, first.matched)
        self.assertEqual(4, len(self.requests()))
        self.assertEqual(('cinder-unknown', self.COUNT - 3),
                         self.skipped_servers())


class SharedTimeTest(_HostBootTestCase):
    """One time limit for all servers nova-compute brings back at its start."""

    def test_reboot_start_and_resume(self):
        servers = [self.create_server(scenario.BOOT_DISK) for _ in range(3)]
        for server in servers:
            self.cloud.lose_attachment(server, *server.volumes)
        rebooted, started, resumed = servers
        self.cloud.change(rebooted, task_state='reboot_pending_hard')
        self.cloud.stop(started)
        self.cloud.change(started, task_state='powering-on')
        self.cloud.lose_power(resumed)
        self.cloud.proxy.on('*', '/v3/', proxy.reset())
        self.boot()
        self.cloud.proxy.clear()
        for server in servers:
            self.assertTrue(self.look(server).has_disk(*server.volumes))
        self.assertEqual(('cinder-unknown', 2), self.skipped_servers())
        self.assertEqual(1, len(self.all_log_lines('skipped')))


class SlowVolumesTest(_HostBootTestCase):
    """Volumes of a tenant who made thousands of attachments of them."""

    def test_other_servers_are_cleaned_up(self):
        self.set_options(timeout=600)
        servers = [self.create_server(scenario.BOOT_DISK) for _ in range(20)]
        slow = [*servers[:2], servers[10]]
        for server in servers:
            self.cloud.lose_attachment(server, *server.volumes)
            self.cloud.lose_power(server)
        hang = self.hang_until_timeout()
        for server in slow:
            self.cloud.proxy.on('GET', server.volumes[0], hang)
        self.boot()
        self.cloud.proxy.clear()
        self.assertEqual([], self.all_log_lines('left-out'))
        self.assertEqual(3, len(self.all_log_lines('skipped')))
        for server in servers:
            view = self.look(server)
            volume, = server.volumes
            if server in slow:
                self.assertTrue(view.has_disk(volume))
            else:
                self.assert_removed(view, volume, 'volume-available')


class StateTest(_HostBootTestCase, scenario.TwoDisks):

    def setUp(self):
        super().setUp()
        self.cloud.lose_attachment(self.server, self.lost)

    def test_server_with_another_task_state(self):
        self.cloud.lose_power(self.server)
        self.cloud.change(self.server, task_state='suspending')
        self.boot()
        line, left_out = self.log_lines(self.server)
        self.assertEqual(('withheld', 'volume-available'),
                         (line.event, line.reason))
        self.assertIn('(start-lost)', line.text)
        self.assertEqual('not-connected', left_out.event)
        view = self.cloud.look(self.server)
        self.assertIsNotNone(view.block_device(self.lost))
        self.assertFalse(view.has_disk(self.lost))
        self.assertEqual([], self.journal())

    def test_stale_attachment_stays(self):
        stale = self.cloud.volume()
        self.cloud.create_attachment(self.server, stale, connected=False)
        view = self.reboot(self.server)
        self.assert_removed(view, self.lost, 'volume-available')
        self.assert_healthy(view, self.kept)
        self.assertEqual(1, len(self.cloud.attachments(stale)))
        self.assertEqual([], [line for line in self.log_lines(self.server)
                              if line.volume == stale])


class TriggerDisabledTest(scenario.TwoDisks):
    """Stock Nova, since ``host_boot`` is not among the triggers."""

    ARGUMENTS = {'nova_options': scenario.RESUME_GUESTS}

    def test_disabled_trigger_sends_no_requests(self):
        self.cloud.lose_attachment(self.server, self.lost)
        self.cloud.lose_power(self.server)
        self.start_recording()
        self.cloud.restart_compute()
        self.assertTrue(self.look(self.server).has_disk(self.lost))
        self.assertEqual([], self.plugin_requests())
        self.assertEqual([], self.cloud.log('bdm-cleanup: event='))
