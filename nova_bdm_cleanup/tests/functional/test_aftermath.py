# SPDX-License-Identifier: Apache-2.0
"""The states that stock Nova leaves, and what ends each of them.

One case of each kind.  ``tests/aftermath`` has all of them.
"""

from __future__ import annotations

from typing import Any

from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.cloud.faults import (
    CALL,
    DEAD_AFTER,
    DEAD_BEFORE,
    Fault,
    LOST,
    REFUSED,
)
from nova_bdm_cleanup.tests.functional import aftermath
from nova_bdm_cleanup.tests.functional.commands import NO_WAITING
from nova_bdm_cleanup.tests.functional.moving import HERE

_ATTACHMENT = 'DELETE /attachments/'
_CREATE = 'POST /attachments$'
_UPDATE = 'PUT /attachments/'
_COMPLETE = 'os-complete'


class AftermathTest(aftermath.AftermathTestCase):

    def check_reboot(self, free: tuple[str, ...] = ()) -> None:
        """Check that a hard reboot ends it.

        :param free: the disks that the server has no more
        """
        self.cloud.reboot(self.server, by=self.cloud.admin)
        self.check_healthy(free)

    def check_healthy(self, free: tuple[str, ...] = ()) -> None:
        state = self.assert_all_healthy()
        self.assertEqual(set(free), {
            name for name, disk in state.disks.items() if disk.is_free()},
            state)
        self.assertEqual({}, self.run_audit(*NO_WAITING, server=self.server))

    def audit(self) -> dict[str, tuple[str, str]]:
        return self.run_audit(*NO_WAITING, server=self.server)

    def set_error(self) -> None:
        """Run ``openstack server set --state error``."""
        self.cloud.request(
            'POST', f'/servers/{self.server.id}/action',
            {'os-resetState': {'state': 'error'}}, by=self.cloud.admin)

    # -- live migration ----------------------------------------------------

    def test_reboot_reconnects_after_interrupted_live_migration(self):
        """nova-compute sets the server free at its start, not its disks."""
        self.leave_damaged('live-hypervisor',
                           Fault(DEAD_BEFORE, 1, _ATTACHMENT))
        self.check_reboot()

    def test_nothing_is_removed_if_guest_runs_on_other_host(self):
        """nova-compute dies before the server is the other host's."""
        self.leave_damaged(
            'live', Fault(DEAD_BEFORE, 1, 'disconnect', CALL, HERE))
        self.assertIn(('there', True), self.damaged.guests)
        self.cloud.reboot(self.server, by=self.cloud.admin)
        state = self.state()
        for name in ('root', 'data'):
            disk = state.disks[name]
            self.assertEqual('attached there', disk.row)
            self.assertEqual(self.damaged.disks[name].others, disk.others)
            self.assertIn('there', disk.guests)

    def test_reboot_deletes_attachment_of_other_host(self):
        self.leave_damaged('live', Fault(REFUSED, 1, _ATTACHMENT))
        self.check_reboot()

    def test_release_deletes_attachment_of_other_host(self):
        self.leave_damaged('live', Fault(REFUSED, 1, _ATTACHMENT))
        self.release_printed()
        self.check_healthy()

    def test_reboot_deletes_attachment_of_failed_destination(self):
        self.leave_damaged('live', Fault(LOST, 1, _CREATE))
        self.check_reboot()

    # -- cold migration ----------------------------------------------------

    def test_reboot_reconnects_after_failed_cold_migration(self):
        self.leave_damaged('migrate', Fault(REFUSED, 2, _CREATE))
        self.check_reboot()

    def test_reboot_reconnects_after_migration_without_completion(self):
        self.leave_damaged('migrate', Fault(REFUSED, 1, _COMPLETE))
        self.check_reboot()

    def test_reboot_reconnects_after_failed_revert(self):
        self.leave_damaged('revert', Fault(REFUSED, 2, _CREATE))
        self.check_reboot()

    # -- evacuation, shelve, rebuild ---------------------------------------

    def test_second_evacuation_and_reboot_end_the_first(self):
        self.leave_damaged('evacuate', Fault(REFUSED, 2, _ATTACHMENT))
        self.evacuate(self.server)
        state = self.state()
        self.assertEqual(('active', 'there', True),
                         (state.status, state.host, state.runs()), state)
        self.come_back()
        self.check_reboot()

    def test_second_unshelve_ends_the_first(self):
        self.leave_damaged('unshelve', Fault(REFUSED, 1, _COMPLETE))
        self.unshelve(self.server)
        # Nova completes the disks in any order, and gives that one up.
        self.check_healthy(free=tuple(
            name for name in ('data',)
            if self.damaged.disks[name].volume == 'available'))

    def test_reboot_reconnects_after_failed_shelve(self):
        self.leave_damaged('shelve', Fault(REFUSED, 2, _CREATE))
        self.check_reboot()

    def test_reboot_reconnects_after_failed_rebuild(self):
        self.leave_damaged('rebuild', Fault(REFUSED, 2, _CREATE))
        self.check_reboot()

    def test_printed_commands_end_rebuild_that_deleted_the_root_disk(self):
        self.leave_damaged('rebuild-image', Fault(REFUSED, 5))
        self.clean_as_printed(ExitCode.PARTLY)
        self.assertEqual({None: (
            'server-in-error',
            f'look: openstack server rebuild {self.server.id}')},
            self.audit())
        self.rebuild(self.server)
        self.check_healthy()

    # -- create ------------------------------------------------------------

    def test_delete_that_audit_names_ends_failed_create(self):
        self.leave_damaged('create', Fault(REFUSED, 1, _UPDATE))
        self.delete_as_printed()

    def delete_as_printed(self) -> None:
        """Delete the server, which must end it and be what is printed."""
        actions = {action for _, action in self.audit().values()}
        self.delete(self.server)
        self.wait_until_quiet()
        state = self.state()
        if (state.status, state.problems()) != ('deleted', []):
            raise ValueError(f'the delete does not end it: {state}')
        self.assertTrue(actions)
        for action in actions:
            self.assertIn('openstack server delete', action)

    # -- interrupted -------------------------------------------------------

    def test_interrupted_migration_is_found_and_reconnected(self):
        self.leave_damaged('migrate', Fault(DEAD_AFTER, 1, _UPDATE))
        self.assertEqual('resize_finish', self.damaged.task_state)
        found = self.audit()
        self.assertEqual({None, self.server.root, self.data}, set(found))
        self.assertEqual({'done', 'reconnected'}, {
            row['Result'] for row in self.clean_as_printed(
                options='--reset-state ')})
        self.check_healthy()

    def test_printed_steps_end_what_may_be_interrupted(self):
        """Without the plugin, nothing says that the operation is over."""
        self.leave('migrate', Fault(DEAD_AFTER, 1, _UPDATE))
        found = self.audit()
        self.assertEqual({None, self.server.root, self.data}, set(found))
        (reason, action), = set(found.values())
        self.assertEqual(('interrupted', True),
                         (reason, action.startswith('look: ')))
        self.switch_plugin_on()
        self.start_recording()
        self.run_action(action)
        self.check_healthy()

    def test_reboot_reconnects_after_interrupted_revert(self):
        self.leave_damaged('revert', Fault(DEAD_AFTER, 1, _UPDATE))
        self.set_error()
        self.check_reboot()

    def test_reboot_reconnects_after_interrupted_shelve(self):
        self.leave_damaged('shelve', Fault(DEAD_AFTER, 1, _ATTACHMENT))
        self.set_error()
        self.check_reboot()

    def test_delete_that_audit_names_ends_interrupted_unshelve(self):
        self.leave_damaged('unshelve', Fault(DEAD_AFTER, 1, _UPDATE))
        self.assertEqual(('shelved_offloaded', 'spawning'),
                         (self.damaged.status, self.damaged.task_state))
        self.delete_as_printed()

    # -- attach, detach ----------------------------------------------------

    def test_reboot_removes_disk_that_was_never_attached(self):
        self.leave_damaged('attach', Fault(DEAD_AFTER, 1, _UPDATE))
        self.check_reboot(free=('other',))

    def test_reboot_removes_row_of_attach_that_ended(self):
        self.leave_damaged('attach-refused', Fault(DEAD_AFTER, 1, _ATTACHMENT))
        self.check_reboot(free=('other',))

    def test_printed_command_ends_failed_detach(self):
        self.leave_damaged('detach', Fault(REFUSED, 1, _ATTACHMENT))
        self.release_printed()
        self.check_healthy(free=('data',))

    def release_printed(self) -> None:
        """Run the releases that the audit prints."""
        actions = {action for _, action in self.audit().values()}
        self.assertTrue(actions)
        for action in actions:
            self.assertTrue(action.startswith('openstack bdm release '),
                            action)
            code, rows = self.bdm('release', *action.split()[3:], '--yes')
            self.assertEqual(ExitCode.OK, code, rows)

    # -- swap --------------------------------------------------------------

    def test_reboot_removes_attachment_of_swap_that_never_connected(self):
        self.leave_damaged('swap', Fault(DEAD_BEFORE, 1, _UPDATE))
        self.check_reboot(free=('other',))

    def test_printed_reboot_ends_swap_that_connected(self):
        self.leave_damaged('swap', Fault(DEAD_AFTER, 1, _UPDATE))
        self.clean_as_printed()
        self.check_healthy(free=('other',))

    def test_printed_reboot_ends_swap_in_which_guest_has_new_disk(self):
        self.leave_damaged('swap', Fault(DEAD_BEFORE, 1, _COMPLETE))
        self.assertEqual(('here',), self.damaged.disks['other'].guests)
        self.clean_as_printed()
        self.check_healthy(free=('data',))

    def clean_as_printed(self, expected: ExitCode = ExitCode.OK,
                         options: str = '') -> Any:
        """Run the reboot that the audit prints; return the results.

        :param options: of the command, before the server
        """
        action, = {action for _, action in self.audit().values()}
        self.assertTrue(action.startswith(
            f'openstack bdm clean {options}{self.server.id}'), action)
        code, rows = self.bdm('clean', *action.split()[3:], '--yes')
        self.assertEqual(expected, code, rows)
        return rows

    def test_printed_commands_end_swap_that_never_connected(self):
        self.leave_damaged('swap', Fault(LOST, 1, _CREATE))
        self.assertEqual({self.data, self.other}, set(self.audit()))
        self.release_printed()
        self.check_healthy(free=('other',))

    # -- what is not in this version ---------------------------------------

    def test_records_agree_if_device_is_left_on_a_host(self):
        state = self.leave('live', Fault(REFUSED, 1, _COMPLETE))
        self.assertIn('there', state.disks['root'].connected, state)
        self.switch_plugin_on()
        self.assertEqual({}, self.audit())
