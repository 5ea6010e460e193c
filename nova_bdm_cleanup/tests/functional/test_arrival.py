# SPDX-License-Identifier: Apache-2.0
"""A repeated unshelve or evacuation ends what the failed one has left."""

from __future__ import annotations

import uuid

import fixtures
from nova import objects

from nova_bdm_cleanup.node import devices
from nova_bdm_cleanup.tests.cloud import identity, proxy, recorder
from nova_bdm_cleanup.tests.cloud.faults import DEAD_BEFORE, Fault, SAVE
from nova_bdm_cleanup.tests.functional import aftermath, moving
from nova_bdm_cleanup.tests.functional.moving import HERE, THERE

#: A host that does not exist.
ELSEWHERE = 'compute9'


class ArrivalTestCase(moving.MoveTestCase):
    """A server with a root disk and a data disk."""

    ACTION = None

    def setUp(self):
        super().setUp()
        self.server = self.healthy_server(disks=1)
        self.data, = self.server.volumes

    def ids(self, volume):
        return [each.id for each in self.cloud.attachments(volume)]

    def name(self, volume, attachment):
        self.cloud.change_row(self.server, volume, attachment_id=attachment)

    def reserve(self, volume):
        return self.cloud.create_attachment(
            self.server, volume, connected=False)

    def connect(self, volume, attachment, host, completes=True):
        """Have Cinder connect an attachment to a host."""
        attachments = self.cloud._cinder_nova.attachments
        attachments.update(attachment, {
            'host': host, 'ip': '127.0.0.1', 'mountpoint': '/dev/vdb',
            'initiator': 'iqn.2026-01.test:' + host})
        if completes:
            attachments.complete(attachment)

    def check_arrived(self, host, connected_before=False):
        """Check that the guest runs with both disks, and nothing is left."""
        view = self.check_moved(
            self.server, None, host, connected_before=connected_before)
        for volume in (self.server.root, self.data):
            only, = view.attachments_of(volume)
            self.assertEqual(
                ('attached', only.id),
                (only.status, view.block_device(volume).attachment_id))
        return view

    def check_reconnected(self, view, volume, reason):
        self.assert_event(view, f'bdm_cleanup reconnected volume {volume} '
                          f'({reason})')
        line, = [line for line in self.log_lines(self.server, 'reconnected')
                 if line.volume == volume]
        self.assertIn('and Nova connects the disk to this host', line.text)
        entry = self.journal()[-1]
        self.assertEqual(('done', {'reconnect'}), (
            entry.outcome, {each['kind'] for each in entry.record['actions']
                            if each.get('bdm')}))


class UnshelveTest(ArrivalTestCase):

    def setUp(self):
        super().setUp()
        self.shelve(self.server)

    def unshelve_well(self):
        self.unshelve(self.server)
        return self.check_arrived(self.host_of(self.server))

    def assert_not_unshelved(self):
        self.unshelve(self.server)
        view = self.cloud.look(self.server)
        self.assertEqual('SHELVED_OFFLOADED', view.status)
        self.assertEqual([], self.journal())
        return view

    def test_root_disk_without_attachment(self):
        """Nova has deleted it, since Cinder did not complete it."""
        self.cloud.lose_attachment(self.server, self.server.root)
        view = self.unshelve_well()
        self.check_reconnected(
            view, self.server.root, 'root-volume-dangling')

    def test_attachment_that_no_mapping_names_is_used(self):
        former, = self.ids(self.data)
        new = self.reserve(self.data)
        self.cloud._cinder_nova.attachments.delete(former)
        view = self.unshelve_well()
        self.assertEqual([new], self.ids(self.data))
        self.check_reconnected(view, self.data, 'half-moved')

    def test_second_attachment_that_only_reserves_goes(self):
        former, = self.ids(self.data)
        second = self.reserve(self.data)
        view = self.unshelve_well()
        self.assertEqual([former], self.ids(self.data))
        self.assert_event(view, f'bdm_cleanup removed attachment {second} '
                          '(stale-attachment)')

    def test_disk_that_is_attached_to_a_host_is_left_to_nova(self):
        """Where the guest has not started."""
        former, = self.ids(self.data)
        self.connect(self.data, former, HERE)
        self.unshelve_well()
        self.assertEqual([former], self.ids(self.data))
        self.assertEqual([], self.journal())

    def test_disk_that_is_attached_to_a_host_and_reserved(self):
        """Cinder would not connect it: it has two attachments."""
        former, = self.ids(self.data)
        self.connect(self.data, former, HERE)
        self.reserve(self.data)
        view = self.unshelve_well()
        self.assertEqual([former], self.ids(self.data))
        self.check_reconnected(view, self.data, 'half-moved')

    def test_disk_that_is_reserved_and_attached_to_a_host(self):
        """Cinder would not connect it: it has two attachments."""
        former, = self.ids(self.data)
        self.connect(self.data, former, HERE)
        self.name(self.data, self.reserve(self.data))
        view = self.unshelve_well()
        self.assertEqual([former], self.ids(self.data))
        self.check_reconnected(view, self.data, 'attachment-mismatch')

    def test_disk_that_is_attached_to_two_hosts_is_left_to_nova(self):
        former, = self.ids(self.data)
        self.connect(self.data, former, HERE)
        second = self.cloud.create_attachment(
            self.server, self.data, host=ELSEWHERE)
        self.assert_not_unshelved()
        self.assertEqual({former, second}, set(self.ids(self.data)))

    def test_host_disconnects_nothing(self):
        former, = self.ids(self.data)
        self.connect(self.data, former, HERE)
        self.reserve(self.data)
        self.unshelve_well()
        self.assertEqual(['connect'], self.host_steps(self.data))

    def test_disk_that_is_being_detached_is_left_to_nova(self):
        former, = self.ids(self.data)
        self.connect(self.data, former, HERE)
        second = self.reserve(self.data)
        self.cloud._cinder_nova.volumes.begin_detaching(self.data)
        self.unshelve(self.server)
        self.assertEqual([], self.journal())
        self.assertEqual({former, second}, set(self.ids(self.data)))

    def test_volume_of_another_project_is_left_to_nova(self):
        self.cloud.lose_attachment(self.server, self.server.root)
        self.cloud.transfer_volume(self.server.root, self.cloud.other_user)
        self.assert_not_unshelved()
        self.assertEqual([], self.ids(self.server.root))

    def test_lock_of_an_administrator_is_heeded(self):
        self.cloud.lose_attachment(self.server, self.server.root)
        self.cloud.act(self.server, {'lock': None}, by=self.cloud.admin)
        self.assert_not_unshelved()
        self.assertEqual([], self.ids(self.server.root))

    def test_option_switches_it_off(self):
        self.set_options(reconnect=False)
        self.cloud.lose_attachment(self.server, self.server.root)
        self.assert_not_unshelved()

    def test_observe_mode_leaves_the_disks_to_nova(self):
        self.set_options(mode='observe')
        self.cloud.lose_attachment(self.server, self.server.root)
        self.assert_not_unshelved()

    def test_cinder_refuses_the_plugin(self):
        def refuse(request, forward):
            if request.caller == identity.NOVA:
                return proxy.status(503)(request, forward)
            return forward()

        self.cloud.lose_attachment(self.server, self.server.root)
        self.cloud.proxy.on('*', '', refuse)
        self.assert_not_unshelved()
        self.cloud.proxy.clear()
        self.unshelve_well()

    def test_member_who_deletes_the_new_attachment_is_no_end(self):
        self.cloud.lose_attachment(self.server, self.server.root)
        self.start_recording()
        self.cloud.recorder.before(
            recorder.REQUEST, 'PUT', lambda: self.cloud.lose_attachment(
                self.server, self.server.root))
        self.cloud.act(self.server, {'unshelve': None}, by=self.cloud.admin)
        self.assertEqual('SHELVED_OFFLOADED',
                         self.cloud.look(self.server).status)
        self.unshelve_well()


class EvacuationTest(ArrivalTestCase):

    def evacuate_well(self):
        self.evacuate(self.server)
        return self.check_arrived(THERE, connected_before=True)

    def test_attachment_to_this_host_that_is_not_complete(self):
        """nova-compute died when it evacuated the server to this host.

        Cinder makes no other one before it is complete.
        """
        former, = self.ids(self.data)
        self.cloud._cinder_nova.attachments.delete(former)
        new = self.reserve(self.data)
        self.name(self.data, new)
        self.connect(self.data, new, THERE, completes=False)
        view = self.evacuate_well()
        self.check_reconnected(view, self.data, 'half-moved')

    def test_attachment_that_may_serve_the_guest_is_not_completed(self):
        """Nova has begun a live migration, and would delete it."""
        objects.Migration(
            self.cloud.nova.context(), instance_uuid=self.server.id,
            source_compute=HERE, dest_compute=ELSEWHERE,
            migration_type='live-migration', status='error').create()
        former, = self.ids(self.data)
        self.cloud._cinder_nova.attachments.delete(former)
        new = self.reserve(self.data)
        self.name(self.data, new)
        self.connect(self.data, new, ELSEWHERE, completes=False)
        self.evacuate(self.server)
        self.assertEqual([], self.journal())
        self.assertEqual([(new, 'attaching')], [
            (each.id, each.status)
            for each in self.cloud.attachments(self.data)])

    def test_attachment_to_the_former_host_that_no_mapping_names(self):
        """The mapping names an unknown one: Nova deletes only that."""
        self.name(self.data, str(uuid.uuid4()))
        view = self.evacuate_well()
        self.check_reconnected(view, self.data, 'attachment-mismatch')

    def test_second_attachment_that_only_reserves_goes(self):
        self.reserve(self.data)
        self.evacuate_well()

    def test_second_attachment_to_the_former_host_goes(self):
        """A live migration has failed, and its roll back, too."""
        here, = self.ids(self.data)
        there = self.cloud.create_attachment(
            self.server, self.data, host=ELSEWHERE)
        self.name(self.data, there)
        view = self.evacuate_well()
        self.assert_event(view, f'bdm_cleanup removed attachment {here} '
                          '(stale-attachment)')

    def test_second_attachment_to_another_host_stays(self):
        there = self.cloud.create_attachment(
            self.server, self.data, host=ELSEWHERE)
        self.evacuate(self.server)
        self.assertIn(there, self.ids(self.data))


class DiedInAttachTest(aftermath.AftermathTestCase):
    """Only the former host knows what its guest has."""

    def test_volume_of_the_guest_of_the_former_host_stays(self):
        self.leave_damaged('attach', Fault(DEAD_BEFORE, 2, '', SAVE))
        self.assertEqual(('here',), self.damaged.disks['other'].guests)
        # The tests have one kernel for all hosts; the new host has its own.
        at = devices.devices_at
        self.useFixture(fixtures.MockPatchObject(
            devices, 'devices_at', lambda addresses: frozenset(
                name for name in at(addresses)
                if not name.endswith('@' + HERE))))
        self.evacuate(self.server)
        other = self.state().disks['other']
        # The former host may be alive, and only its network be down.
        self.assertIn('here', other.guests)
        self.assertNotEqual('available', other.volume, other)
        self.assertIsNotNone(other.row, other)
