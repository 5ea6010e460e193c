# SPDX-License-Identifier: Apache-2.0
"""Operations that have ended with their nova-compute are reported."""

from __future__ import annotations

from nova import objects

from nova_bdm_cleanup.tests.functional import scenario


class InterruptedTest(scenario.ScenarioTestCase):

    def setUp(self):
        super().setUp()
        self.server = self.create_server()

    def begin(self, is_begun=True):
        """Begin a shelve, which Nova itself never ends."""
        context = self.cloud.nova.context()
        objects.InstanceAction.action_start(
            context, self.server.id, 'shelve')
        if is_begun:
            objects.InstanceActionEvent.event_start(
                context, self.server.id, 'compute_shelve_instance',
                want_result=False, host=self.server.host)
        self.cloud.change(self.server, task_state='shelving')

    def events(self):
        return [each.event for each in self.cloud.look(self.server).actions
                if 'interrupted' in each.event]

    def test_operation_that_has_begun_is_reported(self):
        self.begin()
        self.cloud.restart_compute()
        line, = self.log_lines(self.server, 'interrupted')
        self.assertEqual('WARNING', line.level)
        self.assertIn('shelving', line.text)
        self.assertEqual(['bdm_cleanup interrupted shelving'],
                         self.events())

    def test_operation_that_waits_in_the_queue_is_not_reported(self):
        self.begin(is_begun=False)
        self.cloud.restart_compute()
        self.assertEqual([], self.log_lines(self.server, 'interrupted'))
        self.assertEqual([], self.events())

    def test_idle_server_is_not_reported(self):
        self.cloud.restart_compute()
        self.assertEqual([], self.all_log_lines('interrupted'))
