# SPDX-License-Identifier: Apache-2.0
"""The wait until records are settled: it decides about each disk.

A disk that is not healthy, and young, is looked at once more.  After that none
is given to the driver because it is young.
"""

from __future__ import annotations

import functools

import fixtures
from oslo_config import cfg

from nova_bdm_cleanup.node.cleanup import cleaner
from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.functional import scenario

CONF = cfg.CONF


class SettledTest(scenario.TwoDisks):

    ARGUMENTS = {'plugin_options': {'settle_time': 10}}

    def setUp(self):
        super().setUp()
        self.waits: list[float] = []
        self.act_in_wait(lambda: None)
        self.cloud.lose_attachment(self.server, self.lost)

    def act_in_wait(self, act):
        """Have something happen instead of the wait."""
        def wait(seconds):
            self.waits.append(seconds)
            act()

        self.useFixture(fixtures.MockPatchObject(
            cleaner, 'Cleaner', functools.partial(
                self.Cleaner, wait=wait)))

    Cleaner = cleaner.Cleaner

    def check_not_given(self, reason, **arguments):
        view = self.reboot(self.server, **arguments)
        self.assertIsNotNone(view.block_device(self.lost))
        self.assertFalse(view.has_disk(self.lost))
        self.assertNotIn('connect', self.host_steps(self.lost))
        self.assert_healthy(view, self.kept)
        self.assertEqual([10], self.waits)
        self.assertEqual((self.lost, reason), [
            (line.volume, line.reason) for line in
            self.log_lines(self.server)][-1])

    def test_volume_that_is_deleted_during_the_wait_is_not_given(self):
        def delete():
            with self.cloud.cinder.database() as database:
                database.execute(
                    "UPDATE volumes SET status = 'deleting', updated_at = "
                    "strftime('%Y-%m-%d %H:%M:%f') WHERE id = ?",
                    (self.lost,))

        self.act_in_wait(delete)
        self.check_not_given('volume-busy')

    def test_volume_that_is_gone_after_the_wait_is_not_given(self):
        self.act_in_wait(lambda: self.cloud.delete_volume(self.lost))
        view = self.reboot(self.server)
        self.assertFalse(view.has_disk(self.lost))
        self.assert_healthy(view, self.kept)
        # Otherwise it was not in the middle.
        self.assertEqual([10], self.waits)

    def test_volume_that_is_reserved_for_another_server_is_not_given(self):
        self.cinder.attachments.create(
            self.lost, None, self.create_server().id)
        self.check_not_given('operation-in-flight')

    def test_disk_is_not_given_in_a_soft_reboot_that_becomes_hard(self):
        # The driver sleeps for this time.
        CONF.set_override('wait_soft_reboot_seconds', 0, group='libvirt')
        self.addCleanup(CONF.clear_override, 'wait_soft_reboot_seconds',
                        group='libvirt')
        self.cloud.domain(self.server).suspend()
        self.check_not_given('volume-available', hard=False)
        self.assertIn((recorder.GUEST, 'undefine'), self.steps_of())

    def kill_during_the_wait(self):
        self.act_in_wait(recorder.crash)
        self.cloud.run_until_crash(self.server, 'hard_reboot')
        self.act_in_wait(lambda: None)
        state: str = self.cloud.nova.instance(self.server.id).task_state
        return state

    def test_start_of_nova_compute_takes_up_the_reboot(self):
        self.assertEqual('reboot_pending_hard', self.kill_during_the_wait())
        self.cloud.restart_compute()
        self.check_removed(self.look(self.server))

    def test_server_in_error_can_be_rebooted_again(self):
        """Nova's start skips it, and its API refuses a pending reboot."""
        self.cloud.change(self.server, vm_state='error')
        self.assertEqual('rebooting_hard', self.kill_during_the_wait())
        self.cloud.restart_compute()
        self.check_removed(self.reboot(self.server))
