# SPDX-License-Identifier: Apache-2.0
"""Operations in the mode ``observe``, which end as with stock Nova."""

from __future__ import annotations

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import moving, test_observe


class RebootTest(test_observe.ObserveTestCase):

    def test_stock_nova_cleans_up_nothing(self):
        self.compare(('status-reset', 'attached-elsewhere', 'root-detached',
                      'healthy'), self.cloud.reboot)


class StartTest(test_observe.ObserveTestCase):

    def test_start_and_host_boot(self):
        for acts in ([self.cloud.stop, self.cloud.start],
                     [self.boot_host]):
            _, end = self.compare(
                ['attached-elsewhere'], *acts)['attached-elsewhere']
            self.assertTrue(end['lost']['disk'])

    def boot_host(self, server: fixture.Server) -> None:
        self.cloud.lose_power(server)
        self.cloud.restart_compute()


class MoveTest(moving.MoveTestCase, test_observe.ObserveTestCase):
    """Moves in which nothing is refused or disconnected."""

    ARGUMENTS = {**moving.MoveTestCase.ARGUMENTS,
                 'plugin_options': {'mode': 'observe', 'triggers': 'all'}}

    def setUp(self) -> None:
        super().setUp()
        self.ignore_actions()

    def damaged(self, kind: str) -> test_observe.Damaged:
        return self.damaged_server(kind)

    def play(self, *acts: test_observe.Act) -> None:
        self.compare(('attachment-deleted', moving.SAME_HOST), *acts)
        self.assertLessEqual({line.event for line in self.all_log_lines()},
                             {'withheld', 'kept'})

    def test_migration_is_left_to_nova(self):
        self.play(self.migrate, self.confirm)

    def test_revert_is_left_to_nova(self):
        self.play(self.migrate, self.revert)

    def test_live_migration_is_left_to_nova(self):
        self.play(self.migrate_live)

    def test_shelve_is_left_to_nova(self):
        self.play(self.shelve, self.unshelve)

    def test_evacuation_is_left_to_nova(self):
        self.play(self.evacuate, self.come_back)

    def test_delete_is_left_to_nova(self):
        left = []
        for switch in (self.cloud.switch_plugin_off,
                       self.cloud.switch_plugin_on):
            switch()
            server, lost = self.damaged(moving.SAME_HOST)
            self.cloud.delete(server)
            left.append(self.cloud.nova.connected[moving.HERE][lost])
        self.assertEqual(left[0], left[1])
