# SPDX-License-Identifier: Apache-2.0
"""Moves that stop half way, and what ends them."""

from __future__ import annotations

import fixtures
from nova import objects
from nova.cmd import manage

from nova_bdm_cleanup.tests.functional import commands, moving
from nova_bdm_cleanup.tests.functional.moving import HERE, THERE


class IncompleteMoveTest(moving.MoveTestCase, commands.CommandTestCase):
    """Operations that Nova alone leaves half done, ended by the runbook."""

    def act_without_plugin(self, act, server, status):
        """Lose a volume, and have Nova do something without the plugin."""
        lost = max(server.volumes)
        self.damage(server, lost, 'volume-deleted')
        self.cloud.switch_plugin_off()
        act(server)
        self.cloud.switch_plugin_on()
        self.assertEqual(status, self.look_on_current_host(server).status)
        return lost

    def run_printed_actions(self, server, lost, where):
        """Run the actions that the audit prints: one hard reboot."""
        found = self.run_audit(*commands.NO_WAITING, server=server)
        self.assertEqual(1, len({action for _, action in found.values()}))
        self.assertEqual('openstack bdm clean ' + server.id,
                         found.pop(lost)[1].split(' --')[0])
        self.assertNotEqual({}, found)
        self.run_all_actions(server, where)
        self.check_moved(server, lost, where)

    def test_printed_actions_end_a_cold_migration(self):
        server = self.healthy_server()
        lost = self.act_without_plugin(self.migrate, server, 'ERROR')
        self.run_printed_actions(server, lost, HERE)
        self.assertEqual({HERE}, self.allocated_hosts(server))

    def test_printed_actions_end_a_revert(self):
        """Repair it on the new host, and free the allocations on the old."""
        server = self.healthy_server()
        self.migrate(server)
        lost = self.act_without_plugin(self.revert, server, 'ERROR')
        self.run_printed_actions(server, lost, THERE)
        self.assertEqual({HERE, THERE}, self.allocated_hosts(server))
        self.delete_orphaned_allocations()
        self.assertEqual({THERE}, self.allocated_hosts(server))

    def test_unshelve_succeeds_after_the_runbook(self):
        server = self.healthy_server()
        self.shelve(server)
        lost = self.act_without_plugin(self.unshelve, server,
                                       'SHELVED_OFFLOADED')
        self.assertNotEqual(set(), self.allocated_hosts(server))
        self.delete_orphaned_allocations()
        self.assertEqual(set(), self.allocated_hosts(server))
        self.unshelve(server)
        self.check_moved(server, lost, self.host_of(server))
        self.assertEqual({self.host_of(server)}, self.allocated_hosts(server))

    def delete_orphaned_allocations(self):
        """Run ``nova-manage placement audit --delete``."""
        self.assertEqual(4, manage.PlacementCommands().audit(
            verbose=True, delete=True))


class HalfMovedTest(moving.MoveTestCase, commands.CommandTestCase):
    """Operations that die before they save the new attachment of a disk."""

    def die_in(self, act, server):
        """Have an operation die; return the disk that is half moved."""
        volume = server.volumes[1]
        save = objects.BlockDeviceMapping.save

        def fail(row):
            if row.volume_id == volume:
                raise OSError('nova-compute died')
            save(row)

        with fixtures.MockPatchObject(objects.BlockDeviceMapping, 'save',
                                      fail):
            act(server)
        self.assertEqual('ERROR', self.look_on_current_host(server).status)
        found = self.run_audit(*commands.NO_WAITING, server=server)
        self.assertEqual('half-moved', found[volume][0])
        return volume

    def test_printed_actions_repair_a_cold_migration(self):
        server = self.healthy_server()
        self.die_in(self.migrate, server)
        self.run_all_actions(server, HERE)
        self.check_moved(server, None, HERE)

    def test_second_evacuation_repairs_the_first(self):
        """Evacuate the server again, as the runbook says."""
        server = self.healthy_server()
        volume = self.die_in(self.evacuate, server)
        self.evacuate(server)
        self.assertEqual(THERE, self.host_of(server))
        self.assertTrue(self.look_on_current_host(server).has_disk(volume))
        # The next hard reboot deletes the attachment that the first one left.
        self.come_back()
        self.cloud.reboot(server)
        self.assert_healthy(self.look_on_current_host(server), server.root,
                            *server.volumes)
        self.assertEqual({}, self.run_audit(*commands.NO_WAITING,
                                            server=server))
