# SPDX-License-Identifier: Apache-2.0
"""The periodic task of nova-compute: audit rounds and metrics."""

from __future__ import annotations

import pathlib
import threading
import time
from typing import Any, NamedTuple
from unittest import mock

from nova import context as nova_context
from nova.compute import manager as nova_manager
from oslo_config import cfg
from oslo_service import periodic_task
import testtools

from nova_bdm_cleanup.node import periodic, process_record
from nova_bdm_cleanup.node.audit.rounds import round_begun
from nova_bdm_cleanup.node.cleanup.triggers import ALWAYS_ON
from nova_bdm_cleanup.node.store.findings import FindingStore
from nova_bdm_cleanup.node.store.processes import Processes
from nova_bdm_cleanup.tests.cloud import fixture, proxy
from nova_bdm_cleanup.tests.functional import base, scenario

INTERVAL_SECONDS = 3600


class LoggedFinding(NamedTuple):
    """The fields of a log line."""

    event: str
    reason: str
    server: str | None
    volume: str


class AuditRoundTestCase(scenario.ScenarioTestCase):
    """Rounds that the test starts, with a clock that only their waits move."""

    def setUp(self):
        super().setUp()
        self.metrics = pathlib.Path(self.store_path).parent / 'bdm.prom'
        self.set_options(audit_interval=INTERVAL_SECONDS,
                         metrics_file=str(self.metrics))
        self._clock = self._began
        self.restart()

    def restart(self, host: str = 'compute1') -> None:
        """Start the rounds, as nova-compute does when it has started."""
        self.manager = self.cloud.nova.computes[host].manager
        # A round begins now.
        self._clock = INTERVAL_SECONDS + round_begun(
            host, INTERVAL_SECONDS, self._clock)
        self.watcher = periodic.Watcher(
            self.manager, process_record.record(scenario.CONF, ALWAYS_ON),
            lambda: self._clock, lambda: self._clock, self._wait)

    def _wait(self, seconds: float) -> None:
        self._clock += seconds

    def run_round(self) -> list[LoggedFinding]:
        """Run the next round.

        :returns: the findings that it logs, without its summary
        """
        self.start_recording()
        self.watcher.round()
        lines = [line for line in self.all_log_lines()
                 if line.level != 'DEBUG']
        sums = [line for line in lines
                if line.event in ('audited', 'not-audited')]
        self.sums = [line.text for line in sums]
        return [LoggedFinding(
            line.event, line.reason, line.server, line.volume)
            for line in lines if line not in sums]

    def run_two_rounds(self) -> list[LoggedFinding]:
        """Run two rounds; the first logs no finding."""
        self.assertEqual([], self.run_round())
        return self.run_round()

    @property
    def store(self) -> FindingStore:
        return FindingStore(str(self.store_path), self.manager.host)

    def metric(self, name: str, **labels: str) -> float:
        """Return the value of a metric of this host with these labels."""
        series = 'nova_bdm_cleanup_%s{%s}' % (name, ','.join(
            '%s="%s"' % label for label in (
                ('host', self.manager.host), *labels.items())))
        value, = [line.rpartition(' ')[2]
                  for line in self.metrics.read_text().splitlines()
                  if line.rpartition(' ')[0] == series]
        return float(value)

    def start_periodic_task(self) -> periodic.Watcher:
        """Start the periodic task as nova-compute does."""
        self.start_recording()
        periodic.begin(self.manager, process_record.record(
            scenario.CONF, ALWAYS_ON))
        watcher = periodic._watchers[self.manager]
        self.addCleanup(watcher.stop)
        return watcher


class RoundTest(AuditRoundTestCase):

    def test_finding_is_logged_once(self):
        server = self.create_server(*[scenario.BOOT_DISK] * 3)
        lost = server.volumes[1]
        self.assertEqual([], self.run_round())
        self.cloud.lose_attachment(server, lost)
        self.assertEqual([], self.run_round())
        self.assertIn('seen once: 1', self.sums[0])
        self.restart()
        self.assertEqual([('found', 'volume-available', server.id, lost)],
                         self.run_round())
        self.assertEqual(1, self.metric('findings', reason='volume-available'))
        self.restart()
        self.assertEqual([], self.run_round())
        self.assertIn('open: volume-available=1, new: 0', self.sums[0])
        # A round changes nothing.
        view = self.look(server)
        self.assert_dangling(view, lost)
        self.assertEqual([], self.requests('DELETE') + self.requests('POST'))

        self.reboot(server)
        self.restart()
        self.assertEqual([('gone', 'volume-available', server.id, lost)],
                         self.run_round())
        self.assertEqual([], self.run_round())
        self.assertIn('open: 0,', self.sums[0])

    def test_disk_attached_to_another_host(self):
        server = self.create_server(scenario.BOOT_DISK)
        moved, = server.volumes
        self.assertEqual([], self.run_two_rounds())
        self.attach_to_host(server, 'compute-that-died')
        self.assertEqual([('found', 'half-moved', server.id, moved)],
                         self.run_two_rounds())

    def test_stale_attachment_is_found_in_both_modes(self):
        server = self.create_server(scenario.BOOT_DISK)
        free = self.cloud.volume()
        self.cloud.create_attachment(server, free, connected=False)
        self.assertEqual([('found', 'stale-attachment', server.id, free)],
                         self.run_two_rounds())
        self.set_options(mode='observe')
        self.assertEqual([], self.run_round())
        self.assertEqual(1, self.metric('findings', reason='stale-attachment'))
        self.assertEqual(1, len(self.cloud.attachments(free)))

    def test_wrong_region_fails_the_round_at_the_first_server(self):
        """Do so where Cinder is asked for root disks only."""
        for _ in range(3):
            self.create_server(root='volume')
        self.assertEqual([], self.run_round())
        self.cloud.use_wrong_cinder()
        self.assertEqual([], self.run_two_rounds())
        self.assertIn('is it the wrong region',
                      self.store.last_round().problem)
        self.assertEqual((), self.store.findings())
        self.cloud.use_right_cinder()
        self.assertEqual([], self.run_round())
        self.assertIn('failed rounds before: 2', self.sums[0])

    def test_server_that_is_busy_is_left_out(self):
        busy, server = (self.create_server(scenario.BOOT_DISK)
                        for _ in range(2))
        self.cloud.lose_attachment(busy, *busy.volumes)
        self.cloud.change(busy, task_state='powering-off')
        self.assertEqual([], self.run_two_rounds())
        self.assertIn('servers: 1, volumes: 1, ', self.sums[0])

    def test_rounds_that_were_missed_are_left_out(self):
        self.create_server(scenario.BOOT_DISK)
        self.run_round()
        self._clock += 5 * INTERVAL_SECONDS
        self.run_round()
        self.assertIn('servers: 1, ', self.sums[0])
        late = self._clock - self.watcher._next
        self.assertTrue(0 <= late < INTERVAL_SECONDS, late)

    def test_reload_ends_the_round_that_goes_on(self):
        self.create_server(scenario.BOOT_DISK)
        watcher = self.start_periodic_task()
        watcher._wait = lambda seconds: None
        watcher._next = time.monotonic()
        self.start_periodic_task()
        watcher.round()
        self.assertEqual([], self.requests())

    def test_server_with_a_slow_volume_is_skipped(self):
        """Skip a server whose volume has thousands of attachments."""
        self.set_options(timeout=3)
        slow, *others = [self.create_server(scenario.BOOT_DISK)
                         for _ in range(3)]
        lost = others[0]
        self.cloud.lose_attachment(lost, *lost.volumes)
        self.cloud.proxy.on(
            'GET', '/volumes/detail',
            self.cloud.proxy.hang_if_answer_has(slow.volumes[0]))
        found = self.run_two_rounds()
        self.assertEqual(
            {('found', 'not-looked-at', slow.id, '-'),
             ('found', 'volume-available', lost.id, lost.volumes[0])},
            set(found))
        self.assertIn('servers not looked at: 1', self.sums[0])
        self.assertEqual(0, self.store.last_round().failed)
        self.assertEqual(1, self.metric('findings', reason='not-looked-at'))
        self.cloud.proxy.clear()
        self.assertEqual([('gone', 'not-looked-at', slow.id, '-')],
                         self.run_round())

    @testtools.skipUnless(
        hasattr(nova_manager.ComputeManager, 'set_shutdown_in_progress'),
        'Nova does not say that it stops')
    def test_shutdown_ends_the_wait_of_a_round(self):
        self.create_server(scenario.BOOT_DISK)
        self.start_recording()
        watcher = periodic.Watcher(
            self.manager, process_record.record(scenario.CONF, ALWAYS_ON))
        # The round begins in an hour, and waits for that.
        watcher._next = time.monotonic() + INTERVAL_SECONDS
        thread = threading.Thread(target=watcher.round, daemon=True)
        thread.start()
        self.manager.set_shutdown_in_progress()
        self.addCleanup(self.manager._shutdown_in_progress.clear)
        thread.join(fixture.TIMEOUT)
        self.assertFalse(thread.is_alive())
        self.assertEqual([], self.requests())

    def test_unwritable_metrics_are_logged_once(self):
        complaint = r'ERROR .* \[bdm_cleanup\] metrics_file: .*symbolic link'
        self.metrics.symlink_to(self.store_path)
        watcher = self.start_periodic_task()
        for _ in range(3):
            self.assertEqual(1, len(self.cloud.log(complaint)))
            watcher.tick()
        self.metrics.unlink()
        watcher.tick()
        self.assertEqual(1, self.metric('active'))
        self.assertEqual(1, len(self.cloud.log(complaint)))

    def test_option_becomes_invalid(self):
        """Start nova-compute, which reads the invalid option again."""
        conf = self.cloud.nova._conf
        before = conf.read_text()
        self.addCleanup(scenario.CONF.reload_config_files)
        self.addCleanup(conf.write_text, before)
        conf.write_text(before + '[bdm_cleanup]\ngrace_period = soon\n')
        scenario.CONF.reload_config_files()
        self.create_server(scenario.BOOT_DISK)
        self.cloud.restart_compute()
        self.assertEqual(1, len(self.cloud.log(
            'ERROR .* bdm-cleanup runs no periodic task')))

    def test_process_is_recorded_before_resume(self):
        """Record it first: resuming the guests may take minutes."""
        seen = []
        compute = type(self.manager)
        resume = compute._init_instance

        def look(*args: Any) -> None:
            seen.append(Processes(
                str(self.store_path), self.manager.host).last())
            resume(*args)

        self.create_server(scenario.BOOT_DISK)
        began = time.time()
        with mock.patch.object(compute, '_init_instance', look):
            self.cloud.restart_compute()
        self.assertGreater(seen[0].since, began)

    def test_task_does_not_wait_for_round(self):
        self.create_server(scenario.BOOT_DISK)
        is_over = threading.Event()
        self.addCleanup(is_over.set)
        self.cloud.proxy.on('*', '', proxy.before(is_over.wait))
        watcher = self.start_periodic_task()
        watcher._wait = lambda seconds: None
        # A round begins now.
        watcher._next = time.monotonic()
        task = dict(self.manager._periodic_tasks)['bdm_cleanup']
        for _ in range(3):
            task(self.manager, nova_context.get_admin_context())
        self.wait_until(lambda: bool(self.requests()))
        self.assertEqual(1, len(self.requests()))
        self.assertEqual(1, self.metric('active'))
        self.cloud.proxy.clear()
        is_over.set()
        assert watcher._round_thread is not None
        watcher._round_thread.join(fixture.TIMEOUT)


class PeriodicTaskTest(base.FunctionalTestCase):

    CLOUD = None

    def test_first_run_is_immediate(self):
        """Run at once, not a minute later: the metrics are old until then."""
        class Manager(periodic_task.PeriodicTasks):
            pass

        manager, watcher = Manager(cfg.CONF), mock.Mock()
        manager.add_periodic_task(periodic._PERIODIC_TASK)
        with mock.patch.dict(periodic._watchers, {manager: watcher}):
            manager.run_periodic_tasks(None)
            manager.run_periodic_tasks(None)
        watcher.tick.assert_called_once_with()
