# SPDX-License-Identifier: Apache-2.0
"""nova-compute looks after its servers by itself, by the clock."""

from __future__ import annotations

from collections.abc import Callable
import pathlib
import threading
import time
from typing import Any, ClassVar, NamedTuple
from unittest import mock

import fixtures
from nova import context as nova_context
from nova.tests.fixtures import libvirt as fake_libvirt

from nova_bdm_cleanup.plugin import startup, watching
from nova_bdm_cleanup.store.findings import Watch
from nova_bdm_cleanup.store.presence import Processes
from nova_bdm_cleanup.tests.cloud import fixture, proxy, recorder
from nova_bdm_cleanup.tests.cloud.damage import DAMAGE
from nova_bdm_cleanup.tests.functional import scenario

INTERVAL = 3600


class Told(NamedTuple):
    """What an audit line says."""

    event: str
    reason: str
    server: str | None
    volume: str


class _WatchingTestCase(scenario.ScenarioTestCase):
    """Rounds that come when the test says so."""

    def setUp(self):
        super().setUp()
        self.metrics = pathlib.Path(self.store_path).parent / 'bdm.prom'
        self.set_options(audit_interval=INTERVAL,
                         metrics_file=str(self.metrics))
        self._clock = self._began
        self.restart()

    def restart(self, host: str = 'compute1') -> None:
        """Begin to watch, as nova-compute does when it has started."""
        self.manager = self.cloud.nova.computes[host].manager
        self.watcher = watching.Watcher(
            self.manager, startup.record(scenario.CONF, ['hard_reboot']),
            True, lambda: self._clock)

    def round(self, during: Callable[[], Any] | None = None) -> list[Told]:
        """One round, an interval later.

        :param during: arranges for what happens meanwhile
        :returns: what it tells, without the sum of it
        """
        self._clock += INTERVAL
        self.begin()
        if during is not None:
            during()
        self.watcher.round()
        lines = [line for line in self.lines() if line.level != 'DEBUG']
        sums = [line for line in lines
                if line.event in ('audited', 'not-audited')]
        self.sums = [line.text for line in sums]
        return [Told(line.event, line.reason, line.server, line.volume)
                for line in lines if line not in sums]

    def see_twice(self) -> list[Told]:
        """Two rounds, the first of which tells nothing."""
        self.assertEqual([], self.round())
        return self.round()

    @property
    def watch(self) -> Watch:
        return Watch(str(self.store_path), 1 << 24, self.manager.host)

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric of this host with these labels."""
        series = 'nova_bdm_cleanup_%s{%s}' % (name, ','.join(
            '%s="%s"' % label for label in (
                ('host', self.manager.host), *labels.items())))
        value, = [line.rpartition(' ')[2]
                  for line in self.metrics.read_text().splitlines()
                  if line.rpartition(' ')[0] == series]
        return float(value)

    def begin_to_watch(self) -> watching.Watcher:
        """What nova-compute itself calls."""
        self.begin()
        watching.begin(self.manager, startup.record(
            scenario.CONF, ['hard_reboot']), False)
        return watching._watchers[self.manager]


class RoundTest(_WatchingTestCase):

    def test_each_finding_is_told_once_and_so_is_its_end(self):
        server = self.server(*[scenario.BOOT_DISK] * 3)
        lost = server.volumes[1]
        self.assertEqual([], self.round())
        self.cloud.lose_attachment(server, lost)
        self.assertEqual([], self.round())
        self.assertIn('seen once: 1', self.sums[0])
        self.restart()
        self.assertEqual([('found', 'volume-available', server.id, lost)],
                         self.round())
        self.assertEqual(1, self.metric('findings', reason='volume-available'))
        self.restart()
        self.assertEqual([], self.round())
        self.assertIn('open: volume-available=1, new: 0', self.sums[0])
        # It changes nothing.
        view = self.look(server)
        self.assert_dangling(view, lost)
        self.assertEqual([], self.requests('DELETE') + self.requests('POST'))

        self.reboot(server)
        self.restart()
        self.assertEqual([('gone', 'volume-available', server.id, lost)],
                         self.round())
        self.assertEqual([], self.round())
        self.assertIn('open: 0,', self.sums[0])

    def test_a_volume_that_takes_long(self):
        """Somebody made thousands of attachments of it."""
        self.set_options(timeout=8)
        slow, *others = [self.server(scenario.BOOT_DISK) for _ in range(3)]
        lost = others[0]
        self.cloud.lose_attachment(lost, *lost.volumes)
        self.cloud.proxy.on(
            'GET', '', self.cloud.proxy.hang_about(slow.volumes[0]))
        told = self.see_twice()
        self.assertEqual(
            {('found', 'not-looked-at', slow.id, '-'),
             ('found', 'volume-available', lost.id, lost.volumes[0])},
            set(told))
        self.assertIn('servers not looked at: 1', self.sums[0])
        self.assertEqual(0, self.watch.last().failed)
        self.assertEqual(1, self.metric('findings', reason='not-looked-at'))
        self.cloud.proxy.clear()
        self.assertEqual([('gone', 'not-looked-at', slow.id, '-')],
                         self.round())

    def test_metrics_that_cannot_be_written(self):
        complaint = r'ERROR .* \[bdm_cleanup\] metrics_file: .*symbolic link'
        self.metrics.symlink_to(self.store_path)
        watcher = self.begin_to_watch()
        for _ in range(3):
            self.assertEqual(1, len(self.cloud.log(complaint)))
            watcher.tick()
        self.metrics.unlink()
        watcher.tick()
        self.assertEqual(1, self.metric('active'))
        self.assertEqual(1, len(self.cloud.log(complaint)))

    def test_an_option_that_has_become_wrong(self):
        """nova-compute reads its files again, and starts all the same."""
        conf = self.cloud.nova._conf
        before = conf.read_text()
        self.addCleanup(scenario.CONF.reload_config_files)
        self.addCleanup(conf.write_text, before)
        conf.write_text(before + '[bdm_cleanup]\ngrace_period = soon\n')
        scenario.CONF.reload_config_files()
        self.server(scenario.BOOT_DISK)
        self.cloud.restart_compute()
        self.assertEqual(1, len(self.cloud.log(
            'ERROR .* bdm-cleanup does nothing by the clock')))

    def test_it_is_known_before_the_servers_come_back(self):
        """That may take minutes, and somebody asks."""
        seen = []
        compute = type(self.manager)
        resume = compute._init_instance

        def look(*args: Any) -> None:
            seen.append(Processes(
                str(self.store_path), self.manager.host).last())
            resume(*args)

        self.server(scenario.BOOT_DISK)
        began = time.time()
        with mock.patch.object(compute, '_init_instance', look):
            self.cloud.restart_compute()
        self.assertGreater(seen[0].since, began)

    def test_nobody_waits_for_a_round(self):
        self.server(scenario.BOOT_DISK)
        is_over = threading.Event()
        self.addCleanup(is_over.set)
        self.cloud.proxy.on('*', '', proxy.before(is_over.wait))
        watcher = self.begin_to_watch()
        # It is due now.
        watcher._next = time.time()
        task = dict(self.manager._periodic_tasks)['bdm_cleanup']
        for _ in range(3):
            task(self.manager, nova_context.get_admin_context())
        self.wait_until(lambda: bool(self.requests()))
        self.assertEqual(1, len(self.requests()))
        self.assertEqual(1, self.metric('active'))
        self.cloud.proxy.clear()
        is_over.set()
        assert watcher._waiting is not None
        watcher._waiting.join(fixture.TIMEOUT)


class HundredServersTest(_WatchingTestCase):

    def test_what_a_round_costs(self):
        servers = [self.server(*[scenario.BOOT_DISK] * 3)
                   for _ in range(100)]
        self.assertEqual([], self.round())
        self.assertEqual(['GET /volumes/detail'] * 5, [
            each.partition('?')[0] for each in self.requests()])
        self.assertIn('servers: 100, volumes: 300, ', self.sums[0])
        self.assertIn('requests: 5,', self.sums[0])

        expected = set()
        for server, name in zip(servers[3:], (
                'attachment-deleted', 'volume-deleted', 'given-away')):
            volume = server.volumes[1]
            DAMAGE[name].break_it(self.cloud, server, volume)
            expected.add(('found', DAMAGE[name].reason, server.id, volume))
        self.assertEqual([], self.round())
        self.assertEqual(5 + 3, len(self.requests()))
        self.assertEqual(expected, set(self.round()))
        self.assertEqual(5 + 3, len(self.requests()))


class _SweepTestCase(_WatchingTestCase, scenario.TwoDisks):
    """With a server of which a disk may dangle."""

    ARGUMENTS: ClassVar[dict[str, Any]] = {
        'plugin_options': {'sweep_stopped': 'true'}}

    def setUp(self):
        super().setUp()
        self.found = ('found', 'volume-available', self.made.id, self.lost)

    def press(self, act: Callable[[], Any], state: str) -> None:
        """Somebody else wants something of the server just now.

        :param act: asks Nova for it, and may have to wait
        :param state: Nova's task state when it was asked
        """
        self.pressed = threading.Thread(target=act)
        self.addCleanup(self.pressed.join)
        self.pressed.start()
        self.wait_until(lambda: self.cloud.nova.instance(
            self.made.id).task_state == state)

    def dangle(self, *volumes: str) -> None:
        """Have disks of the server dangle, which is off; seen once."""
        self.cloud.stop(self.made)
        for volume in volumes:
            self.cloud.lose_attachment(self.made, volume)
        self.assertEqual([], self.round())


class SweepTest(_SweepTestCase):
    """Servers that are off are cleaned up, and stay off."""

    def swept(self) -> bool:
        return self.cloud.look(self.made).block_device(self.lost) is None

    def test_the_next_start_just_works(self):
        server = self.server(*[scenario.BOOT_DISK] * 4)
        available, missing, elsewhere, kept = server.volumes
        self.cloud.stop(server)
        self.cloud.lose_attachment(server, available)
        self.cloud.lose_volume(server, missing)
        self.cloud.give_away(server, elsewhere)
        told = self.see_twice()
        self.assertEqual(3, len([t for t in told if t.event == 'found']))
        self.assertEqual(3, len([t for t in told if t.event == 'removed']))
        view = self.cloud.look(server)
        self.assertEqual('SHUTOFF', view.status)
        for volume in (available, missing, elsewhere):
            self.assertIsNone(view.block_device(volume))
        # The other server of this host goes on using its own.
        self.assertEqual({elsewhere, kept}, set(view.connected) & set(
            server.volumes))
        entry, = self.journal()
        self.assertEqual('sweep', entry.record['trigger'])
        self.assertEqual(1, self.metric(
            'removals_total', reason='volume-missing', trigger='sweep'))
        self.assertEqual(3, self.metric('removals_last_hour'))
        self.assertEqual(3, len(self.round()))
        self.cloud.switch_plugin_off()
        self.cloud.start(server)
        self.cloud.switch_plugin_on()
        self.assert_healthy(self.look(server), kept)

    def test_nothing_of_it_is_left_in_the_definition(self):
        """Else Nova could not give its name to another disk, or resize."""
        self.dangle(self.lost)
        self.assertEqual([self.found], self.round()[:1])
        view = self.cloud.look(self.made)
        self.assertEqual('SHUTOFF', view.status)
        self.assertFalse(view.has_disk(self.lost))
        self.assertTrue(view.has_disk(self.kept))
        added = self.cloud.volume()
        self.cloud.attach(self.made, added)
        self.cloud.start(self.made)
        view = self.look(self.made)
        self.assert_healthy(view, added, self.kept)

    def test_one_that_takes_longer_than_it_may(self):
        self.dangle(self.lost)
        clock = mock.Mock(monotonic=mock.Mock(side_effect=[0.0, 26.0]))
        self.useFixture(fixtures.MockPatch(
            'nova_bdm_cleanup.plugin.node.time', clock))
        self.round()
        self.assertTrue(self.swept())
        self.assertEqual(1, len(self.cloud.log(
            'WARNING .*the sweep took 26.0 s, .*had to wait')))

    def test_a_definition_with_another_serial(self):
        """As a swap of volumes leaves it."""
        self.dangle(self.lost)
        describe = fake_libvirt.Domain.XMLDesc
        with mock.patch.object(
                fake_libvirt.Domain, 'XMLDesc',
                lambda domain, flags: describe(domain, flags).replace(
                    f'<serial>{self.lost}<', '<serial>another<')):
            self.round()
        self.assertTrue(self.swept())
        view = self.cloud.look(self.made)
        self.assertFalse(view.has_disk(self.lost))
        self.assertTrue(view.has_disk(self.kept))

    def test_what_was_seen_once_is_left(self):
        """Another disk dangles only since the round has looked."""
        self.dangle(self.lost)
        # It is looked at once in the round, and now by the sweep.
        told = self.round(lambda: self.cloud.proxy.on(
            'GET', '/volumes/detail', proxy.before(
                lambda: self.cloud.lose_attachment(self.made, self.kept)),
            nth=2))
        self.assertEqual({self.lost}, {t.volume for t in told
                                       if t.event in ('found', 'removed')})
        self.assertTrue(self.swept())
        self.assertIsNotNone(
            self.cloud.look(self.made).block_device(self.kept))

    def test_a_restored_database(self):
        """Cinder does not know what was attached since the backup."""
        self.set_options(max_removals=2)
        servers = [self.made, *(self.server(scenario.BOOT_DISK)
                                for _ in range(2))]
        for server in servers:
            self.cloud.stop(server)
            self.cloud.lose_attachment(server, server.volumes[0])
        self.assertEqual([], self.round())
        self.assertIn(('not-swept', 'over-limit', None, '-'), self.round())
        self.assertEqual([], self.round())
        for server in servers:
            self.assertIsNotNone(self.cloud.look(server).block_device(
                server.volumes[0]))
        self.assertEqual([], self.journal())

    def test_the_limits_are_those_of_the_reboots(self):
        self.set_options(max_removals_per_hour=1)
        other = self.server(scenario.BOOT_DISK)
        self.cloud.lose_attachment(other, *other.volumes)
        self.reboot(other)
        self.dangle(self.lost)
        self.assertEqual(
            ['found', 'withheld'], [t.event for t in self.round()])
        self.assertFalse(self.swept())
        self.assertEqual(1, self.metric(
            'refusals_total', reason='over-limit', trigger='sweep'))

    def press_start(self) -> None:
        self.press(lambda: self.cloud.start(self.made), 'powering-on')

    def test_a_start_that_comes_while_libvirt_hangs(self):
        """It waits no longer than ten seconds, and then has the disk."""
        self.dangle(self.lost)

        def hang() -> None:
            self.press_start()
            self.wait_until(lambda: self.cloud.nova.instance(
                self.made.id).vm_state == 'active')

        self.round(lambda: self.cloud.recorder.before(
            recorder.GUEST, 'detach device', hang))
        self.pressed.join(fixture.TIMEOUT)
        view = self.cloud.look(self.made)
        self.assertTrue(view.is_running)
        self.assertTrue(view.has_disk(self.lost))
        self.assertIsNotNone(
            view.block_device(self.lost),
            'the running guest has a disk that Nova does not know')

    def test_a_start_that_comes_while_a_row_goes(self):
        """It waits for that one disk, and no other is begun with."""
        self.dangle(*self.made.volumes)
        # The sweep has all the time, however busy this machine is.
        self.useFixture(scenario.TimeLimit())
        told = self.round(lambda: self.cloud.recorder.before(
            recorder.NOVA, 'remove bdm', self.press_start))
        self.pressed.join(fixture.TIMEOUT)
        self.assertEqual(1, [t.event for t in told].count('removed'))
        self.assertEqual({'sweep-lost'}, {
            t.reason for t in told if t.event == 'failed'})
        self.look(self.made)


class SweepDuringMigrationTest(_SweepTestCase):

    ARGUMENTS: ClassVar[dict[str, Any]] = {
        'hosts': ('compute1', 'compute2'), **_SweepTestCase.ARGUMENTS}

    def press_migrate(self) -> None:
        """As a resize does, without another size."""
        self.press(lambda: self.cloud.act(
            self.made, {'migrate': None}, by=self.cloud.admin), 'resize_prep')

    def migrate_during_a_sweep(self, begin: Callable[[], Any]) -> None:
        """What Nova takes along it attaches anew where it arrives.

        :param begin: arranges for the moment
        """
        # Its root is on no host: to copy that, qemu-img is needed.
        self.made = self.server(*[scenario.BOOT_DISK] * 2, root='volume')
        self.restart(self.made.host)
        self.dangle(*self.made.volumes)
        told = self.round(begin)
        self.pressed.join(fixture.TIMEOUT)
        self.assertNotIn('removed', [t.event for t in told])
        self.wait_until(lambda: self.cloud.look(
            self.made).status == 'VERIFY_RESIZE')
        rows = [row for row in self.cloud.nova.block_devices(self.made.id)
                if row.volume_id in self.made.volumes and not row.deleted]
        self.assertEqual(len(self.made.volumes), len(rows))
        for row in rows:
            attachment, = self.cloud.attachments(row.volume_id)
            self.assertEqual((row.attachment_id, 'attached'),
                             (attachment.id, attachment.status))

    def test_a_migration_that_comes_while_a_disk_is_disconnected(self):
        self.migrate_during_a_sweep(lambda: self.cloud.recorder.before(
            recorder.HOST, 'disconnect', self.press_migrate))

    def test_a_migration_that_comes_while_libvirt_is_slow(self):
        def slow() -> None:
            self.press_migrate()
            self.wait_until(lambda: self.cloud.nova.instance(
                self.made.id).vm_state == 'resized')

        self.migrate_during_a_sweep(lambda: self.cloud.recorder.before(
            recorder.GUEST, 'detach device', slow))
