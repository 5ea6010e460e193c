# SPDX-License-Identifier: Apache-2.0
"""Servers that leave their host, with a disk that dangles.

The result of each operation with each kind of disk is in test_move_table.
"""

from __future__ import annotations

import time

import fixtures
from nova import objects
from nova.cmd import manage
from nova.virt.libvirt import driver as libvirt_driver

from nova_bdm_cleanup.node.instance import NovaInstance
from nova_bdm_cleanup.tests.cloud import identity, proxy
from nova_bdm_cleanup.tests.functional import commands, moving
from nova_bdm_cleanup.tests.functional.moving import HERE, THERE


class ColdMigrationTest(moving.MoveTestCase):

    def test_recorded(self):
        made, lost = self.broken('attachment-deleted')
        self.migrate(made)
        view = self.check_moved(made, lost)
        self.assertEqual('VERIFY_RESIZE', view.status)
        self.assertIsNone(view.block_device(lost))
        entry, = self.journal()
        self.assertEqual(('move', 'done'),
                         (entry.record['trigger'], entry.outcome))

    def test_another_guest_has_it(self):
        """Refuse: the driver would take it from that guest."""
        made, lost = self.broken(moving.SAME_HOST)
        self.migrate(made)
        self.check_untouched(made, lost)
        self.assertEqual(2, self.cloud.nova.connected[HERE][lost])
        self.assertEqual([(lost, 'attached-elsewhere')], self.refusals(made))
        self.assertEqual([], self.requests('DELETE') + self.requests('POST'))
        # Reboot it hard, as the text says.
        self.cloud.reboot(made)
        self.assertIsNone(self.look(made).block_device(lost))
        self.migrate(made)
        self.check_moved(made, lost)

    def test_a_step_fails(self):
        """Refuse before anything of the neighbours is given up.

        The runbook has the way out, where the root disk is a file.
        """
        made, lost = self.broken('attachment-deleted', root='image')

        def fail(*args):
            raise OSError('no')

        with fixtures.MockPatchObject(NovaInstance, 'destroy', fail):
            self.migrate(made)
        self.assertEqual([(lost, 'volume-available')], self.refusals(made))
        view = self.cloud.look(made)
        self.assertEqual(('ERROR', HERE), (view.status, self.host_of(made)))
        self.assertIn(lost, view.fault)
        self.check_attached(view, self.neighbours(made, lost))
        directory = self.cloud.nova.directory(made.id)
        directory.with_name(made.id + '_resize').rename(directory)
        self.cloud.reboot(made)
        self.assertIsNone(self.check_moved(made, lost, HERE)
                          .block_device(lost))
        self.assertEqual({HERE}, self.holders(made))

    def test_nova_compute_dies_in_it(self):
        """Revert the move at the next start of nova-compute, which starts
        the guest by the stored addresses.
        """
        made, lost = self.broken('attachment-deleted', root='image')
        self.cloud.stop(made)
        self.cloud.change(made, task_state='resize_migrating')
        given = []

        def finish_revert_migration(driver, context, instance, network_info,
                                    migration, block_device_info, power_on):
            given.extend(disk['connection_info']['serial'] for disk in
                         block_device_info['block_device_mapping'])

        self.useFixture(fixtures.MockPatchObject(
            libvirt_driver.LibvirtDriver, 'finish_revert_migration',
            finish_revert_migration))
        self.useFixture(fixtures.MockPatchObject(
            objects.Migration, 'get_by_id_and_instance',
            lambda *args: objects.Migration()))
        self.useFixture(fixtures.MockPatchObject(
            objects.Instance, 'migration_context',
            objects.MigrationContext(migration_id=1)))
        self.begin()
        self.cloud.restart_compute(HERE)
        self.assertEqual(sorted(self.neighbours(made, lost)), sorted(given))
        self.assertIsNone(self.cloud.look(made).block_device(lost))
        self.assertNotIn(lost, self.cloud.nova.connected[HERE])

    def check_as_without(self, made, *lost):
        """Check that Nova has attached the disks again."""
        view = self.look_there(made)
        self.assertEqual('VERIFY_RESIZE', view.status)
        self.check_attached(view, lost)
        self.assertEqual([], self.refusals(made))
        self.assertEqual([], self.journal())

    def test_what_the_operator_wants_to_keep(self):
        """Leave dangling disks to Nova in mode observe, even a root disk."""
        self.set_options(mode='observe')
        made, lost = self.broken('attachment-deleted')
        self.cloud.lose_attachment(made, made.root)
        self.migrate(made)
        self.check_as_without(made, lost, made.root)

    def test_cinder_does_not_answer_us(self):
        """Act as stock Nova, which Cinder answers with the user's token."""
        made, lost = self.broken('attachment-deleted')

        def refuse(request, forward):
            if request.caller == identity.NOVA:
                return proxy.status(503)(request, forward)
            return forward()

        self.cloud.proxy.on('*', '', refuse)
        self.migrate(made)
        self.check_as_without(made, lost)
        self.assertEqual({('skipped', 'cinder-unknown')}, {
            (line.event, line.reason) for line in self.audit(made)})

    def test_healthy(self):
        """Send one request before the driver and one after it, each time."""
        made = self.healthy()
        for act, where in ((self.migrate, THERE), (self.revert, HERE)):
            act(made)
            self.check_moved(made, None, where)
            self.assertEqual(
                [('GET', 'volumes/detail')] * 2,
                [(request.method, request.path.split('?')[0].split('/', 3)[3])
                 for request in self.plugin_requests()])
        self.assertEqual([], self.journal())
        self.assertEqual([], self.audit(made))


class ShelveTest(moving.MoveTestCase):

    def test_dangling_since_then(self):
        """Disconnect nothing: its last host is no longer known."""
        made = self.healthy()
        lost = made.volumes[1]
        self.shelve(made)
        self.break_(made, lost, 'attached-elsewhere')
        self.unshelve(made)
        self.check_moved(made, lost, self.host_of(made))
        self.assertEqual([], self.on_host(lost))
        self.assertEqual([], self.audit(made, 'kept'))

    def test_root(self):
        made = self.healthy()
        self.cloud.lose_attachment(made, made.root)
        self.shelve(made)
        self.assertEqual([(made.root, 'root-volume-dangling')],
                         self.refusals(made))
        self.check_attached(self.cloud.look(made), made.volumes)


class EvacuationTest(moving.MoveTestCase):

    def test_withheld(self):
        made, lost = self.broken('attachment-deleted')
        self.evacuate(made)
        self.assertEqual(THERE, self.host_of(made))
        view = self.look_there(made)
        self.assertIsNotNone(view.block_device(lost))
        self.assertFalse(view.has_disk(lost))
        self.assertEqual((), view.attachments_of(lost))
        for volume in self.neighbours(made, lost):
            self.assertTrue(view.has_disk(volume))
        self.assertEqual(['withheld', 'not-connected'], [
            line.event for line in self.audit(made)])
        # Reboot it, as the line says.
        self.check_evacuated(made, lost)

    def test_another_guest_has_it(self):
        """Leave it: that guest still runs on the host, which was cut off."""
        made, lost = self.broken(moving.SAME_HOST)
        self.evacuate(made)
        self.come_back()
        self.assertEqual(2, self.cloud.nova.connected[HERE][lost])
        self.assertEqual([(lost, 'left')], [
            (line.volume, line.event) for line in self.audit(made, 'left')])

    def test_cinder_hangs_when_the_host_returns(self):
        """Start nova-compute, and do as stock Nova does."""
        self.set_options(timeout=4)
        made, lost = self.broken('attachment-deleted')
        self.evacuate(made)
        self.cloud.proxy.on('GET', '/volumes/detail', self.cloud.proxy.hang)
        begun = time.monotonic()
        self.come_back()
        self.assertLess(time.monotonic() - begun, 60)
        self.assertEqual(0, self.cloud.nova.connected[HERE][lost])


class LiveMigrationTest(moving.MoveTestCase):

    def check_refused(self, made, lost):
        self.migrate_live(made)
        self.check_untouched(made, lost)
        self.assertEqual([], self.requests('POST'))
        self.assertEqual([lost], [volume for volume, _ in self.refusals(made)])

    def test_refused(self):
        made, lost = self.broken('transferred')
        self.check_refused(made, lost)
        line, = self.audit(made, 'refused')
        self.assertIn('the volume belongs to another project', line.text)

    def test_only_observed(self):
        self.set_options(mode='observe')
        made, lost = self.broken('attached-elsewhere')
        self.migrate_live(made)
        self.assertEqual(['withheld'], [
            line.event for line in self.audit(made) if line.volume == lost])


class DeleteTest(moving.MoveTestCase):

    def test_another_guest_has_it(self):
        made, lost = self.broken(moving.SAME_HOST)
        self.begin()
        self.cloud.delete(made)
        self.assertEqual([], self.on_host(lost))
        self.assertEqual(2, self.cloud.nova.connected[HERE][lost])


class HalfDoneTest(moving.MoveTestCase, commands.Commands):
    """Operations that Nova alone leaves half done, ended by the runbook."""

    def break_and(self, act, made, status):
        """Lose a volume, and have Nova do something without the plugin."""
        lost = max(made.volumes)
        self.break_(made, lost, 'volume-deleted')
        self.cloud.switch_plugin_off()
        act(made)
        self.cloud.switch_plugin_on()
        self.assertEqual(status, self.look_there(made).status)
        return lost

    def mend(self, made, lost, where):
        """Run the actions that the audit prints."""
        actions = {volume: action for volume, (_, action) in self.audited(
            *commands.LONG_AGO, server=made).items()}
        self.assertEqual('openstack bdm clean ' + made.id, actions.pop(lost))
        self.assertNotEqual({}, actions)
        code, _ = self.bdm('clean', made.id, '--yes')
        self.assertEqual(0, code, self.stderr.getvalue())
        for action in actions.values():
            self.follow(action, where)
        self.check_moved(made, lost, where)

    def test_cold_migration(self):
        made = self.healthy()
        lost = self.break_and(self.migrate, made, 'ERROR')
        self.mend(made, lost, HERE)
        self.assertEqual({HERE}, self.holders(made))

    def test_on_the_way_back(self):
        """Mend it on the new host, and free the allocations on the old."""
        made = self.healthy()
        self.migrate(made)
        lost = self.break_and(self.revert, made, 'ERROR')
        self.mend(made, lost, THERE)
        self.assertEqual({HERE, THERE}, self.holders(made))
        self.give_back()
        self.assertEqual({THERE}, self.holders(made))

    def test_unshelve(self):
        made = self.healthy()
        self.shelve(made)
        lost = self.break_and(self.unshelve, made, 'SHELVED_OFFLOADED')
        self.assertNotEqual(set(), self.holders(made))
        self.give_back()
        self.assertEqual(set(), self.holders(made))
        self.unshelve(made)
        self.check_moved(made, lost, self.host_of(made))
        self.assertEqual({self.host_of(made)}, self.holders(made))

    def give_back(self):
        """Run ``nova-manage placement audit --delete``."""
        self.assertEqual(4, manage.PlacementCommands().audit(
            verbose=True, delete=True))
