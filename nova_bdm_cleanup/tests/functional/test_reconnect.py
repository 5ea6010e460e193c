# SPDX-License-Identifier: Apache-2.0
"""Disks that a failed operation of Nova leaves half attached come back."""

from __future__ import annotations

import shutil
import uuid

import fixtures
from nova import objects
from oslo_utils import timeutils

from nova_bdm_cleanup.node import devices
from nova_bdm_cleanup.tests.cloud import fixture, recorder
from nova_bdm_cleanup.tests.functional import scenario

#: A host that does not exist any more.
ELSEWHERE = 'compute9'


class ReconnectTestCase(scenario.TwoDisks):
    """A server with a half attached disk, and a healthy one."""

    def setUp(self):
        super().setUp()
        self.half = self.lost
        self.attachment, = self.cloud.attachments(self.half)

    def reserve(self):
        """Return a new attachment that reserves the volume, as in a move."""
        return self.cloud.create_attachment(
            self.server, self.half, connected=False)

    def delete(self, attachment):
        self.cinder.attachments.delete(attachment)

    def check_reconnected(self, view, reason, *deleted, volume=None):
        volume = volume or self.half
        self.assert_healthy(view, volume, self.kept)
        new, = view.attachments_of(volume)
        self.assertNotIn(new.id, deleted)
        shown = {each.id for each in self.cloud.attachments(volume)}
        self.assertEqual({new.id}, shown)
        self.assert_event(view, 'bdm_cleanup reconnected volume %s (%s)'
                          % (volume, reason))
        events = [line.event for line in self.log_lines(self.server)
                  if line.volume == volume]
        self.assertEqual(['reconnecting', 'reconnected'],
                         [e for e in events if e.startswith('reconnect')])
        self.assertEqual([], self.log_lines(self.server, 'failed'))
        entry, = self.journal()
        self.assertEqual('done', entry.outcome)
        self.assertEqual('reconnect', entry.record['actions'][0]['kind'])
        # By Cinder's answer, and nothing that the row had before.
        row = view.block_device(volume)
        data = self.cinder.attachments.show(new.id).connection_info
        self.assertEqual(
            {key: data[key] for key in ('target_iqn', 'target_lun')},
            {key: row.connection_info['data'][key]
             for key in ('target_iqn', 'target_lun')})
        self.assertEqual(volume, row.connection_info['serial'])


    def check_adopted(self, view):
        """Check that the guest keeps the attachment by which it ran.

        One that is off has none.
        """
        if self.TRIGGER != 'hard_reboot':
            self.check_reconnected(view, 'attachment-mismatch',
                                   self.attachment.id)
            return
        self.assert_healthy(view, self.half, self.kept)
        self.assertEqual([self.attachment.id], [
            each.id for each in self.cloud.attachments(self.half)])
        self.assert_event(view, 'bdm_cleanup adopted volume %s '
                          '(attachment-mismatch)' % self.half)
        self.assertEqual([], self.log_lines(self.server, 'reconnected'))


class ReconnectTest(ReconnectTestCase):

    def test_disk_that_is_only_reserved(self):
        """A move has saved the new attachment and deleted the old one."""
        new = self.reserve()
        self.delete(self.attachment.id)
        self.cloud.change_row(self.server, self.half, attachment_id=new)
        view = self.reboot(self.server)
        self.check_reconnected(view, 'reserved-only')
        self.assertEqual(new, view.block_device(self.half).attachment_id)

    def test_disk_whose_new_attachment_was_not_saved(self):
        self.reserve()
        self.delete(self.attachment.id)
        view = self.reboot(self.server)
        self.check_reconnected(view, 'half-moved')

    def test_disk_whose_old_attachment_was_not_deleted(self):
        new = self.reserve()
        self.cloud.change_row(self.server, self.half, attachment_id=new)
        self.check_adopted(self.reboot(self.server))

    def test_disk_of_an_unknown_attachment(self):
        self.cloud.change_row(self.server, self.half,
                              attachment_id=str(uuid.uuid4()))
        self.check_adopted(self.reboot(self.server))

    def test_disk_that_cinder_connects_to_another_host(self):
        self.attach_to_host(self.server, ELSEWHERE)
        self.cloud.reboot(self.server)
        view = self.look(self.server)
        self.assert_healthy(view, self.half, self.kept)
        self.assertEqual({'bdm_cleanup reconnected volume %s (half-moved)' % v
                          for v in self.server.volumes},
                         {each.event for each in view.actions
                          if 'bdm_cleanup' in each.event})

    def test_disk_whose_attach_to_this_host_was_not_completed(self):
        new = self.reserve()
        self.delete(self.attachment.id)
        self.cloud.change_row(self.server, self.half, attachment_id=new)
        self.cinder.attachments.update(new, {
            'host': self.server.host, 'ip': '127.0.0.1',
            'initiator': 'iqn.2026-01.test:initiator',
            'mountpoint': '/dev/vdb'})
        view = self.reboot(self.server)
        self.check_reconnected(view, 'half-moved')

    def test_root_disk_without_attachment(self):
        server = self.create_server(fixture.Disk(), root='volume')
        self.cloud.lose_attachment(server, server.root)
        self.server, (self.kept,) = server, server.volumes
        view = self.reboot(server)
        self.check_reconnected(view, 'root-volume-dangling',
                               volume=server.root)

    def test_delete_that_was_asked_for_before_takes_it_with_it(self):
        """Nova's API sends the mappings with the request."""
        context = self.cloud.nova.context()
        before = objects.BlockDeviceMappingList.get_by_instance_uuid(
            context, self.server.id)
        new = self.reserve()
        self.cloud.change_row(self.server, self.half, attachment_id=new)
        self.delete(self.attachment.id)
        self.reboot(self.server)
        self.cloud.nova.computes[self.server.host].manager.terminate_instance(
            context, self.cloud.nova.instance(self.server.id), before)
        self.assertEqual((), self.cloud.attachments(self.half))
        self.assertEqual('available', self.volume_status(self.half))

    def test_second_guest_takes_no_disk_of_the_first(self):
        """A start has left the disks out: another guest may have them."""
        self.attach_to_host(self.server, ELSEWHERE)
        before = [self.cloud.attachments(v) for v in self.server.volumes]
        with fixtures.MockPatch(
                'nova_bdm_cleanup.node.domains.serials',
                lambda driver, instance: frozenset()):
            view = self.reboot(self.server)
        self.assertEqual(before, [
            self.cloud.attachments(v) for v in self.server.volumes])
        for volume in self.server.volumes:
            self.assertFalse(view.has_disk(volume))

    def test_steps_are_in_order(self):
        new = self.reserve()
        self.delete(self.attachment.id)
        self.start_recording()
        self.cloud.change_row(self.server, self.half, attachment_id=new)
        self.reboot(self.server)
        steps = [(event.party, event.what)
                 for event in self.cloud.timeline(self.server.id, self.half)
                 if event.party != recorder.CINDER or event.what != 'GET']
        self.assertEqual([
            (recorder.GUEST, 'power off'),
            (recorder.HOST, 'disconnect'),
            (recorder.CINDER, 'PUT'),
            (recorder.CINDER, 'POST'),
            # Nova's own reboot begins; it disconnects nothing of the disk.
            (recorder.GUEST, 'power off'),
            (recorder.HOST, 'connect'),
            (recorder.GUEST, 'power on'),
        ], [step for step in steps if step[1] not in (
            'undefine', 'terminate_connection', 'remove_export',
            'create_export', 'initialize_connection', 'attach_volume')])

    def test_healthy_disk_stays_as_it_is(self):
        view = self.reboot(self.server)
        self.assert_nothing_done(view)


class NeverAttachedTest(scenario.TwoDisks):
    """A disk whose attach ended before the guest got it."""

    def begin_attach(self, is_over=True):
        """Leave what nova-compute leaves that dies in an attach."""
        volume = self.cloud.volume()
        attachment = self.cloud.create_attachment(
            self.server, volume, connected=False)
        self.create_mapping(self.server, volume, attachment_id=attachment)
        self.record_attach(self.server)
        if is_over:
            self.cloud.restart_compute()
        return volume

    def test_mapping_and_attachment_go_together(self):
        volume = self.begin_attach()
        view = self.reboot(self.server)
        self.assert_gone(view, volume)
        self.assertEqual('available', view.volume_status(volume))
        self.assert_event(view, 'bdm_cleanup removed volume %s '
                          '(never-attached)' % volume)
        self.assert_healthy(view, *self.server.volumes)

    def test_without_a_domain_nothing_proves_that_the_guest_lacks_it(self):
        """The guest may be elsewhere, with the disk."""
        volume = self.begin_attach()
        self.cloud.domain(self.server).undefine()
        view = self.reboot(self.server)
        self.assertIsNotNone(view.block_device(volume))
        self.assertEqual([], self.log_lines(self.server, 'removed'))
        # Now it has one.
        view = self.reboot(self.server)
        self.assert_gone(view, volume)
        self.assert_healthy(view, *self.server.volumes)

    def test_attach_of_another_volume_does_not_count(self):
        """It failed in the first minute of a server with this disk."""
        create, = objects.InstanceActionList.get_by_instance_uuid(
            self.cloud.nova.context(), self.server.id)
        row = self.cloud.row(self.server, self.lost)
        self.age_mapping(row, timeutils.utcnow(True) - create.start_time)
        self.record_attach(self.server)
        self.cloud.restart_compute()
        # "nova-manage volume_attachment refresh" has ended half way.
        former, = self.cloud.attachments(self.lost)
        new = self.cloud.create_attachment(
            self.server, self.lost, connected=False)
        self.cloud.change_row(self.server, self.lost, attachment_id=new,
                              connection_info=None)
        self.cloud._cinder_nova.attachments.delete(former.id)
        self.cloud.nova.connected[self.server.host].pop(self.lost, None)
        # Nova starts the guest without it.
        self.reboot(self.server)
        view = self.reboot(self.server)
        self.assertIsNotNone(view.block_device(self.lost))
        self.assertEqual([], self.log_lines(self.server, 'removed'))

    def connect(self, volume):
        """Have Cinder connect it for the attach; its answer is lost."""
        attachment, = self.cloud.attachments(volume)
        self.cinder.attachments.update(attachment.id, {
            'host': self.server.host, 'ip': '127.0.0.1',
            'initiator': 'iqn.2026-01.test:initiator',
            'mountpoint': '/dev/vdd'})
        data = self.cinder.attachments.show(attachment.id).connection_info
        return data['target_iqn'], data['target_lun']

    def test_mapping_goes_if_this_host_has_no_device(self):
        """nova-compute died before it had Cinder's answer."""
        volume = self.begin_attach()
        self.connect(volume)
        view = self.reboot(self.server)
        self.assert_gone(view, volume)
        self.assertEqual('available', view.volume_status(volume))
        self.assertEqual([], self.host_steps(volume))
        self.assert_healthy(view, *self.server.volumes)

    def test_mapping_stays_if_this_host_has_a_device(self):
        """Nothing records by what nova-compute had connected it."""
        volume = self.begin_attach()
        target, unit = self.connect(volume)
        sys = self.cloud.state / 'sys'
        disk = sys / 'devices' / 'session9' / 'target9:0:0' / f'9:0:0:{unit}'
        disk.mkdir(parents=True)
        session = sys / 'class' / 'iscsi_session' / 'session9'
        session.mkdir(parents=True)
        (session / 'targetname').write_text(target)
        block = sys / 'class' / 'block' / 'sdz'
        block.mkdir(parents=True)
        (block / 'device').symlink_to(disk)
        self.addCleanup(shutil.rmtree, sys)
        self.useFixture(fixtures.MockPatchObject(
            devices, 'read_sysfs', self.cloud.nova.kernel._original_read))
        view = self.reboot(self.server)
        self.assert_dangling(view, volume)
        self.assertEqual('attaching', view.volume_status(volume))
        line, = self.assert_finding(
            self.server, volume, ('WARNING', 'kept', 'stuck'))
        self.assertIn('or may have, a device', line.text)

    def test_attach_that_waits_for_the_reboot_is_kept(self):
        volume = self.begin_attach(is_over=False)
        view = self.reboot(self.server)
        self.assert_dangling(view, volume)
        self.assertEqual('reserved', view.volume_status(volume))

    def test_attachment_of_a_disk_that_the_guest_has_is_kept(self):
        """nova-compute died after the guest got the disk."""
        self.cloud.change_row(self.server, self.lost, connection_info=None)
        attachments = self.cloud.attachments(self.lost)
        view = self.reboot(self.server)
        self.assert_dangling(view, self.lost)
        self.assertEqual(attachments, view.attachments_of(self.lost))


class StartedReconnectTest(scenario.Started, ReconnectTest):
    test_steps_are_in_order = None
    test_delete_that_was_asked_for_before_takes_it_with_it = None

    def test_guest_may_be_where_an_evacuation_has_begun_to_take_it(self):
        """nova-compute died there, after it had written the rows."""
        objects.Migration(
            self.cloud.nova.context(), instance_uuid=self.server.id,
            source_compute=self.server.host, dest_compute=ELSEWHERE,
            migration_type='evacuation', status='pre-migrating').create()
        self.attach_to_host(self.server, ELSEWHERE)
        for volume in self.server.volumes:
            self.cloud.change_row(self.server, volume, tag='written')
        self.reboot(self.server)
        self.assertEqual([], self.journal())
        self.assertIn(self.attachment.id, {
            each.id for each in self.cloud.attachments(self.half)})
        self.assertEqual([], self.all_log_lines('reconnecting'))


class ResumedReconnectTest(scenario.Resumed, ReconnectTest):
    test_steps_are_in_order = None
    test_delete_that_was_asked_for_before_takes_it_with_it = None
