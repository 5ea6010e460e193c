# SPDX-License-Identifier: Apache-2.0
"""Moves that are refused at their first moment, and work later.

A refusal comes before the guest is off, and before anything is changed.
"""

from __future__ import annotations

from nova import exception, objects

from nova_bdm_cleanup.tests.cloud import fixture, recorder
from nova_bdm_cleanup.tests.functional import moving, scenario
from nova_bdm_cleanup.tests.functional.moving import HERE, THERE

ALL = ['missing', 'available', 'attached-elsewhere']


class ShelveTest(moving.MoveTestCase):
    """The root disk is a file, which an offload deletes."""

    def check_shelve_refused(self, server, lost):
        images = set(self.cloud.nova.glance.images)
        self.shelve(server)
        self.check_refused(server, lost)
        self.assertTrue(
            (self.cloud.nova.directory(server.id) / 'disk').exists())
        self.assertEqual(images, set(self.cloud.nova.glance.images))

    def check_shelved(self, server, lost):
        self.shelve(server)
        self.assertEqual('SHELVED_OFFLOADED', self.cloud.look(server).status)
        self.unshelve(server)
        self.check_moved(server, lost, self.host_of(server))

    def test_neighbour_that_moves(self):
        server, lost = self.damaged_server('attachment-deleted', root='image')
        neighbour = self.create_server(scenario.BOOT_DISK, host=HERE)
        self.cloud.change(neighbour, task_state='migrating')
        self.check_shelve_refused(server, lost)
        self.cloud.change(neighbour, task_state=None)
        self.check_shelved(server, lost)

    def test_neighbour_that_begins_to_move(self):
        """Offload nothing if it moves when the guest is off: as Nova does
        where the offload comes later.
        """
        server, lost = self.damaged_server('attachment-deleted', root='image')
        neighbour = self.create_server(scenario.BOOT_DISK, host=HERE)
        self.start_recording()
        self.cloud.recorder.before(
            recorder.GUEST, 'power off',
            lambda: self.cloud.change(neighbour, task_state='migrating'),
            server.id)
        self.begin(server, {'shelve': None})
        self.cloud.wait_until_idle(server)
        view = self.cloud.look(server)
        self.assertEqual(('SHELVED', None), (view.status, view.task_state))
        self.check_attached(view, self.other_volumes(server, lost))
        self.assertTrue(
            (self.cloud.nova.directory(server.id) / 'disk').exists())
        self.assertEqual([lost], [
            volume for volume, _ in self.refusals(server)])
        self.cloud.change(neighbour, task_state=None)
        self.act(server, {'shelveOffload': None})
        self.unshelve(server)
        self.check_moved(server, lost, self.host_of(server))

    def test_shelve_over_the_limit_is_refused(self):
        self.set_options(max_removals_per_hour=1)
        first, lost = self.damaged_server('attachment-deleted', root='image')
        self.check_shelved(first, lost)
        second, lost = self.damaged_server('attachment-deleted', root='image')
        self.check_shelve_refused(second, lost)
        self.set_options(max_removals_per_hour=2)
        self.check_shelved(second, lost)

    def test_shelve_without_journal_is_refused(self):
        server, lost = self.damaged_server('attachment-deleted', root='image')
        self.block_store()
        self.check_shelve_refused(server, lost)
        self.free_store()
        self.check_shelved(server, lost)

    def test_disk_that_nova_created(self):
        """Refuse, and let its guest go on: such a disk is never removed."""
        server = self.create_server(
            fixture.Disk(source='snapshot', at_boot=True), scenario.BOOT_DISK,
            host=HERE)
        lost = server.volumes[0]
        self.cloud.lose_attachment(server, lost)
        self.check_shelve_refused(server, lost)
        # Detach it by other means: the server is as free as before.
        self.cloud.row(server, lost).destroy()
        self.check_shelved(server, lost)

    def test_dangling_root_disk_refuses_the_shelve(self):
        server = self.healthy_server()
        self.cloud.lose_attachment(server, server.root)
        self.shelve(server)
        self.check_refused(server, server.root)


class UnshelveTest(moving.MoveTestCase):

    def check_unshelve_refused(self, server, lost):
        self.unshelve(server)
        self.assertEqual([lost], [
            volume for volume, _ in self.refusals(server)])
        self.assertEqual('SHELVED_OFFLOADED', self.cloud.look(server).status)
        self.assertEqual(set(), self.allocated_hosts(server))
        self.assertEqual([], self.changes())

    def shelved_server(self):
        server = self.healthy_server()
        self.shelve(server)
        lost = server.volumes[1]
        self.damage(server, lost, 'attachment-deleted')
        return server, lost

    def check_unshelved(self, server, lost):
        self.unshelve(server)
        self.check_moved(server, lost, self.host_of(server))
        self.assertEqual({self.host_of(server)}, self.allocated_hosts(server))

    def test_unshelve_without_journal_is_refused(self):
        server, lost = self.shelved_server()
        self.block_store()
        self.check_unshelve_refused(server, lost)
        self.free_store()
        self.check_unshelved(server, lost)

    def test_reason_not_selected_refuses_the_unshelve(self):
        server, lost = self.shelved_server()
        self.set_options(remove=['missing'])
        self.check_unshelve_refused(server, lost)
        self.set_options(remove=ALL)
        self.check_unshelved(server, lost)


class RevertTest(moving.MoveTestCase):

    def refuse_revert(self, act):
        """Return a server whose revert was refused, and its lost disk."""
        server = self.healthy_server(root='image')
        act(server)
        lost = server.volumes[1]
        self.damage(server, lost, 'attachment-deleted')
        self.set_options(remove=['missing'])
        self.revert(server)
        self.check_refused(server, lost, THERE, 'VERIFY_RESIZE')
        self.assertEqual({HERE, THERE}, self.allocated_hosts(server))
        return server, lost

    def test_refused_revert_succeeds_later(self):
        server, lost = self.refuse_revert(self.migrate)
        self.set_options(remove=ALL)
        self.revert(server)
        self.check_moved(server, lost, HERE)
        self.assertEqual({HERE}, self.allocated_hosts(server))

    def test_refused_revert_can_be_confirmed(self):
        server, lost = self.refuse_revert(self.resize)
        spec = objects.RequestSpec.get_by_instance_uuid(
            self.cloud.nova.context(), server.id)
        self.assertEqual('2', spec.flavor.flavorid)
        self.confirm(server)
        self.assertEqual({THERE}, self.allocated_hosts(server))
        self.set_options(remove=ALL)
        self.cloud.reboot(server)
        self.check_moved(server, lost)
        self.assertEqual('2', self.cloud.nova.instance(
            server.id).flavor.flavorid)


class MigrationTest(moving.MoveTestCase):

    def test_another_project_uses_up_its_limit(self):
        self.set_options(max_removals_per_hour=1)
        for refused in (False, True):
            server, lost = self.damaged_server('attachment-deleted')
            self.migrate(server)
            self.assertEqual(refused, bool(self.refusals(server)))
        victim = self.create_server(
            scenario.BOOT_DISK, owner=self.cloud.other_user, name='victim',
            host=HERE)
        lost, = victim.volumes
        self.cloud.lose_attachment(victim, lost)
        self.migrate(victim)
        self.assertIsNone(self.check_moved(victim, lost).block_device(lost))

    def test_fault_names_no_server_of_another_project(self):
        """Tell the owner nothing of a server of another project."""
        server, lost = self.damaged_server('attachment-deleted')
        neighbour, theirs = self.add_neighbour(
            server, lost, HERE, self.cloud.other_user)
        for act in (self.migrate, self.migrate_live):
            act(server)
            self.check_refused(server, lost)
            line, = self.log_lines(server, 'refused')
            self.assertIn(neighbour.id, line.text)
        with self.cloud.nova.database('cell1') as database:
            told = repr([database.execute(query).fetchall() for query in (
                'SELECT message, details FROM instance_faults',
                'SELECT message FROM instance_actions',
                'SELECT event, details FROM instance_actions_events')])
        self.assertIn(lost, told)
        for secret in (neighbour.id, theirs):
            self.assertNotIn(secret, told)

    def test_move_across_cells_is_refused_before_power_off(self):
        """Refuse before the guest is off."""
        server, lost = self.damaged_server('attachment-deleted')
        self.start_recording()
        manager = self.cloud.nova.computes[HERE].manager
        self.assertRaises(
            exception.InstanceUnacceptable,
            manager._prep_snapshot_based_resize_at_source,
            self.cloud.nova.context(), self.cloud.nova.instance(server.id),
            objects.Migration(), snapshot_id=None)
        self.check_refused(server, lost)
