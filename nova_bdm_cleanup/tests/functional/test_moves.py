# SPDX-License-Identifier: Apache-2.0
"""Servers that leave their host, with a disk that dangles."""

from __future__ import annotations

import contextlib
import dataclasses

import fixtures
from nova import exception, objects
from nova.compute import rpcapi
from nova.virt.libvirt import driver as libvirt_driver

from nova_bdm_cleanup.plugin import host
from nova_bdm_cleanup.tests.cloud import fixture, recorder
from nova_bdm_cleanup.tests.functional import scenario

HERE, THERE = 'compute1', 'compute2'


class _MoveTestCase(scenario.ScenarioTestCase):
    """Two healthy disks and, between them, one that dangles."""

    THROUGH_API = True
    ARGUMENTS = {
        'hosts': (HERE, THERE),
        'plugin_options': {'triggers': 'all'},
        'nova_options': {**scenario.NO_QUOTAS, 'DEFAULT': {
            'shutdown_timeout': 0, 'shelved_offload_time': 0}}}
    KINDS = ('missing', 'available', 'elsewhere', 'foreign', 'samehost')

    def setUp(self):
        super().setUp()
        # The harness keeps no files to copy.
        self.useFixture(fixtures.MockPatchObject(
            libvirt_driver.LibvirtDriver, '_get_instance_disk_info',
            lambda *args, **kwargs: []))

    def broken(self, kind, root='image'):
        """A server, and the volume of it that dangles."""
        made = self.server(*[scenario.BOOT_DISK] * 3, host=HERE, root=root)
        lost = made.volumes[1]
        self.break_(made, lost, kind)
        return made, lost

    def break_(self, made, lost, kind):
        if kind == 'missing':
            self.cloud.lose_volume(made, lost)
        elif kind == 'available':
            self.cloud.lose_attachment(made, lost)
        elif kind == 'foreign':
            self.cloud.lose_attachment(made, lost)
            self.cloud.give_to_project(lost, self.cloud.stranger)
        else:
            self.cloud.give_away(
                made, lost, host=HERE if kind == 'samehost' else THERE)

    def act(self, made, action):
        """Have Nova do something, which it may refuse: casts are calls."""
        self.begin()
        try:
            self.cloud.request('POST', f'/servers/{made.id}/action', action,
                               by=self.cloud.admin)
        except fixture.APIError as error:
            return error
        return None

    def at(self, made, host):
        """A server that is on another host by now."""
        return dataclasses.replace(made, host=host)

    def neighbours(self, made, lost):
        return [v for v in made.volumes if v != lost]

    def check_moved(self, made, lost, where=THERE):
        """The server runs elsewhere, with all its disks but one."""
        self.assertEqual(where, self.cloud.nova.instance(made.id).host)
        view = self.cloud.look(self.at(made, where))
        for volume in self.neighbours(made, lost):
            self.assert_healthy(view, volume)
            self.assertEqual(1, self.cloud.nova.connected[where][volume])
            self.assertEqual(0, self.cloud.nova.connected[
                HERE if where == THERE else THERE][volume])
        self.assertEqual((), view.attachments_of(lost))
        return view

    def check_untouched(self, made, lost):
        """The server runs where it did, and no record has changed."""
        self.assertEqual(HERE, self.cloud.nova.instance(made.id).host)
        view = self.look(made)
        for volume in self.neighbours(made, lost):
            self.assert_healthy(view, volume)
        self.assertIsNotNone(view.block_device(lost))

    def refusals(self, made):
        return [(line.volume, line.reason)
                for line in self.audit(made, 'refused')]


class ColdMigrationTest(_MoveTestCase):

    def setUp(self):
        super().setUp()
        # The destination has done its part by then, and waits for nothing.
        ask = rpcapi.ComputeAPI.resize_instance

        def resize_instance(*args, **kwargs):
            with contextlib.suppress(exception.InstanceUnacceptable):
                ask(*args, **kwargs)

        self.useFixture(fixtures.MockPatchObject(
            rpcapi.ComputeAPI, 'resize_instance', resize_instance))

    def migrate(self, made):
        self.act(made, {'migrate': {'host': THERE}})

    def check_removed(self, made, lost):
        view = self.check_moved(made, lost)
        self.assertEqual('VERIFY_RESIZE', view.status)
        self.assertIsNone(view.block_device(lost))
        entry, = self.journal()[-1:]
        self.assertEqual(('move', 'done'),
                         (entry.record['trigger'], entry.outcome))

    def test_confirmed(self):
        for kind in ('missing', 'available', 'elsewhere', 'foreign'):
            with self.subTest(kind):
                made, lost = self.broken(kind)
                self.migrate(made)
                self.check_removed(made, lost)
                self.act(made, {'confirmResize': None})
                self.check_moved(made, lost)

    def test_reverted(self):
        made, lost = self.broken('available')
        self.migrate(made)
        self.act(made, {'revertResize': None})
        self.check_moved(made, lost, HERE)

    def test_dangling_since_the_move(self):
        for kind in ('missing', 'available', 'elsewhere', 'foreign'):
            with self.subTest(kind):
                made = self.server(*[scenario.BOOT_DISK] * 3, host=HERE)
                lost = made.volumes[1]
                self.migrate(made)
                self.break_(made, lost, kind)
                self.begin()
                self.act(made, {'revertResize': None})
                view = self.check_moved(made, lost, HERE)
                self.assertEqual('ACTIVE', view.status)
                self.assertIsNone(view.block_device(lost))

    def test_another_guest_has_it(self):
        """The driver would take it from that guest."""
        made, lost = self.broken('samehost')
        self.migrate(made)
        self.check_untouched(made, lost)
        self.assertEqual(2, self.cloud.nova.connected[HERE][lost])
        self.assertEqual([(lost, 'attached-elsewhere')], self.refusals(made))
        self.assertEqual([], self.requests('DELETE') + self.requests('POST'))
        # As the text says.
        self.cloud.reboot(made)
        self.assertIsNone(self.look(made).block_device(lost))
        self.migrate(made)
        self.check_moved(made, lost)

    def test_another_guest_has_it_on_the_way_back(self):
        made = self.server(*[scenario.BOOT_DISK] * 3, host=HERE)
        lost = made.volumes[1]
        self.migrate(made)
        self.cloud.lose_attachment(made, lost)
        other = self.cloud.server(
            fixture.Disk(volume=lost, at_boot=True), name='other', host=THERE)
        self.act(made, {'revertResize': None})
        view = self.check_moved(made, lost, HERE)
        self.assertIsNone(view.block_device(lost))
        self.assertIn(lost, self.cloud.look(other).connected)

    def test_root(self):
        made = self.server(*[scenario.BOOT_DISK] * 2, host=HERE,
                           root='volume')
        self.cloud.lose_attachment(made, made.root)
        self.migrate(made)
        self.check_untouched(made, made.root)
        self.assertEqual([(made.root, 'root-volume-dangling')],
                         self.refusals(made))

    def test_too_many(self):
        self.set_options(max_removals=1)
        made, lost = self.broken('available')
        self.cloud.lose_attachment(made, made.volumes[0])
        self.migrate(made)
        self.assertEqual(2, len(self.refusals(made)))
        self.assertEqual(HERE, self.cloud.nova.instance(made.id).host)
        self.assert_healthy(self.look(made), made.volumes[2])

    def test_too_many_in_an_hour(self):
        self.set_options(max_removals_per_hour=1)
        other = self.server(scenario.BOOT_DISK, host=HERE)
        self.cloud.lose_attachment(other, other.volumes[0])
        self.cloud.reboot(other)
        made, lost = self.broken('available')
        self.migrate(made)
        self.check_untouched(made, lost)
        self.assertEqual([(lost, 'volume-available')], self.refusals(made))

    def test_a_step_fails(self):
        """Before anything of the neighbours is given up."""
        made, lost = self.broken('available', root='volume')

        def fail(*args):
            raise OSError('no')

        self.useFixture(fixtures.MockPatchObject(
            host.NovaHost, 'destroy', fail))
        self.migrate(made)
        self.assertEqual([(lost, 'volume-available')], self.refusals(made))
        view = self.cloud.look(made)
        self.assertEqual(('ERROR', HERE), (
            view.status, self.cloud.nova.instance(made.id).host))
        self.assertIn(lost, view.fault)
        for volume in self.neighbours(made, lost):
            self.assertEqual(
                ['attached'],
                [a.status for a in view.attachments_of(volume)])

    def test_nova_compute_dies_in_it(self):
        """Nova takes the move back at its next start, and starts the guest
        by the addresses that are stored.
        """
        made, lost = self.broken('available')
        self.cloud.stop(made)
        instance = self.cloud.nova.instance(made.id)
        instance.task_state = 'resize_migrating'
        instance.save()
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

    def test_what_the_operator_wants_to_keep(self):
        """Then Nova does as it always did."""
        self.set_options(mode='observe')
        made, lost = self.broken('available')
        self.migrate(made)
        view = self.cloud.look(made)
        self.assertEqual('VERIFY_RESIZE', view.status)
        self.assertEqual(['attached'], [
            a.status for a in view.attachments_of(lost)])
        self.assertEqual([], self.refusals(made))

    def test_a_root_that_is_only_observed(self):
        self.set_options(mode='observe')
        made = self.server(*[scenario.BOOT_DISK] * 2, host=HERE,
                           root='volume')
        self.cloud.lose_attachment(made, made.root)
        self.migrate(made)
        self.assertEqual(THERE, self.cloud.nova.instance(made.id).host)
        self.assertEqual([], self.refusals(made))

    def test_healthy(self):
        made = self.server(*[scenario.BOOT_DISK] * 2, host=HERE)
        self.migrate(made)
        self.check_moved(made, None)
        ours = [r for r in self.plugin_requests() if 'all_tenants' in r.path]
        self.assertEqual([], self.journal())
        self.assertLessEqual(len(ours), 4)

    def test_cinder_does_not_answer_us(self):
        made, lost = self.broken('elsewhere')
        self.cloud.lose_cinder()
        self.migrate(made)
        self.assertEqual([], self.journal())


class ShelveTest(_MoveTestCase):

    def shelve(self, made):
        self.act(made, {'shelve': None})

    def unshelve(self, made):
        self.act(made, {'unshelve': None})

    def check_back(self, made, lost):
        view = self.look(self.at(
            made, self.cloud.nova.instance(made.id).host))
        for volume in self.neighbours(made, lost):
            self.assert_healthy(view, volume)
        self.assertIsNone(view.block_device(lost))
        self.assertEqual((), view.attachments_of(lost))

    def test_there_and_back(self):
        for kind in self.KINDS:
            with self.subTest(kind):
                made, lost = self.broken(kind)
                self.shelve(made)
                view = self.cloud.look(made)
                self.assertEqual('SHELVED_OFFLOADED', view.status)
                self.assertIsNone(view.block_device(lost))
                if kind == 'samehost':
                    self.assertEqual(
                        2, self.cloud.nova.connected[HERE][lost])
                self.unshelve(made)
                self.check_back(made, lost)

    def test_dangling_since_then(self):
        """Stock Nova brings it back in no way, or with a stranger's disk."""
        for kind in self.KINDS:
            with self.subTest(kind):
                made = self.server(*[scenario.BOOT_DISK] * 3, host=HERE)
                lost = made.volumes[1]
                self.shelve(made)
                self.break_(made, lost, kind)
                self.unshelve(made)
                self.check_back(made, lost)
                self.assertEqual([], self.on_host(lost))
                self.assertEqual([], self.audit(made, 'kept'))

    def test_root(self):
        made = self.server(*[scenario.BOOT_DISK] * 2, host=HERE,
                           root='volume')
        self.cloud.lose_attachment(made, made.root)
        self.shelve(made)
        self.assertEqual([(made.root, 'root-volume-dangling')],
                         self.refusals(made))
        view = self.cloud.look(made)
        for volume in made.volumes:
            self.assertEqual(['attached'], [
                a.status for a in view.attachments_of(volume)])


class EvacuationTest(_MoveTestCase):

    def evacuate(self, made):
        service = self.cloud.nova.computes[HERE]
        service.stop()
        self.addCleanup(self.cloud.restart_compute, HERE)
        self.cloud.request(
            'PUT', '/os-services/' + self._service(), {'forced_down': True},
            by=self.cloud.admin)
        self.act(made, {'evacuate': {'host': THERE}})

    def _service(self):
        return next(s['id'] for s in self.cloud.request(
            'GET', '/os-services', by=self.cloud.admin)['services']
            if s['host'] == HERE)

    def test_withheld(self):
        made, lost = self.broken('available')
        self.evacuate(made)
        self.assertEqual(THERE, self.cloud.nova.instance(made.id).host)
        view = self.look(self.at(made, THERE))
        self.assertIsNotNone(view.block_device(lost))
        self.assertFalse(view.has_disk(lost))
        self.assertEqual((), view.attachments_of(lost))
        for volume in self.neighbours(made, lost):
            self.assertTrue(view.has_disk(volume))
        self.assertEqual(['withheld', 'not-connected'], [
            line.event for line in self.audit(made)])


class LiveMigrationTest(_MoveTestCase):

    def migrate(self, made):
        self.act(made, {'os-migrateLive': {
            'host': THERE, 'block_migration': 'auto'}})

    def is_refused(self, made, lost):
        self.migrate(made)
        self.check_untouched(made, lost)
        self.assertEqual([], self.requests('POST'))
        return bool(self.refusals(made))

    def test_refused(self):
        for kind in ('elsewhere', 'foreign', 'samehost'):
            with self.subTest(kind):
                self.assertTrue(self.is_refused(*self.broken(kind)))

    def test_only_observed(self):
        self.set_options(mode='observe')
        made, lost = self.broken('elsewhere')
        self.migrate(made)
        self.assertEqual(['withheld'], [
            line.event for line in self.audit(made) if line.volume == lost])

    def test_all_are_refused(self):
        self.set_options(live_migration_refuse='all')
        for kind in ('missing', 'available'):
            with self.subTest(kind):
                self.assertTrue(self.is_refused(*self.broken(kind)))


class DeleteTest(_MoveTestCase):

    def test_another_guest_has_it(self):
        made, lost = self.broken('samehost')
        self.begin()
        self.cloud.request('DELETE', f'/servers/{made.id}')
        self.assertEqual([], [
            event for event in self.cloud.timeline(lost)
            if event.party == recorder.HOST])
        self.assertEqual(2, self.cloud.nova.connected[HERE][lost])

    def test_nobody_has_it(self):
        made, lost = self.broken('available')
        self.begin()
        self.cloud.request('DELETE', f'/servers/{made.id}')
        self.assertEqual(0, self.cloud.nova.connected[HERE][lost])
