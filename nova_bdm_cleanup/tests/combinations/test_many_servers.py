# SPDX-License-Identifier: Apache-2.0
"""A host with many servers: its boot and its audit rounds."""

from __future__ import annotations

from typing import Any

import fixtures
from nova.virt.libvirt.driver import LibvirtDriver

from nova_bdm_cleanup.tests.cloud import proxy
from nova_bdm_cleanup.tests.cloud.damage import DAMAGE
from nova_bdm_cleanup.tests.functional import scenario
from nova_bdm_cleanup.tests.functional.test_audit_rounds import (
    AuditRoundTestCase,
)
from nova_bdm_cleanup.tests.functional.test_host_boot import HostBootTestCase

#: What a server costs whose disks are all in order.
HEALTHY = ['GET /attachments/detail', 'GET /volumes/detail']


class ManyServersTest(HostBootTestCase):
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
        self.assertEqual(HEALTHY * self.COUNT, self.requested_paths())
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
        self.assertLess(len(self.requests()), 2 * (self.COUNT - 2) + 2 * 16)

    def check_cinder_hangs(self):
        self.cloud.proxy.on('GET', '', self.hang_until_timeout())
        self.boot()
        # One for the first server, and one to see if Cinder answers at all.
        self.assertEqual([HEALTHY[0], 'GET /volumes'], self.requested_paths())
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
        for number in (1, 2, 3, 4):
            self.cloud.proxy.on('GET', '', proxy.forward_unchanged, nth=number)
        self.boot()
        self.assertEqual(2, first.matched)
        self.assertEqual(6, len(self.requests()))
        self.assertEqual(('cinder-unknown', self.COUNT - 3),
                         self.skipped_servers())


class SlowVolumesTest(HostBootTestCase):
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
        self.assertEqual([], self.all_log_lines('not-cleaned'))
        self.assertEqual(3, len(self.all_log_lines('skipped')))
        for server in servers:
            view = self.look(server)
            volume, = server.volumes
            if server in slow:
                self.assertTrue(view.has_disk(volume))
            else:
                self.assert_removed(view, volume, 'volume-available')


class HundredServersTest(AuditRoundTestCase):

    def test_requests_of_a_round(self):
        servers = [self.create_server(*[scenario.BOOT_DISK] * 3)
                   for _ in range(100)]
        self.assertEqual([], self.run_round())
        self.assertEqual(
            HEALTHY * 100,
            [each.partition('?')[0] for each in self.requests()])
        self.assertIn('servers: 100, volumes: 300, ', self.sums[0])

        expected = set()
        for server, name in zip(servers[3:], (
                'attachment-deleted', 'volume-deleted', 'attached-elsewhere')):
            volume = server.volumes[1]
            DAMAGE[name].inflict(self.cloud, server, volume)
            expected.add(('found', DAMAGE[name].reason, server.id, volume))
        self.assertEqual([], self.run_round())
        # Each of them costs more, and the first proves the right Cinder.
        extra = len(self.requests()) - 2 * 100
        self.assertLess(extra, 3 * 6)
        self.assertEqual(expected, set(self.run_round()))
        self.assertEqual(extra, len(self.requests()) - 2 * 100)
