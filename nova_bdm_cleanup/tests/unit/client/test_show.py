# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm show``."""

from __future__ import annotations

import datetime

from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import loopback
from nova_bdm_cleanup.tests.unit.client import commandcase


class ShowBdmTest(commandcase.CommandCase):

    def test_healthy_disk_has_the_documented_columns(self) -> None:
        code, rows = self.bdm('show', 'alpha')
        self.assertEqual(ExitCode.OK, code)
        attachment = loopback.uid('attachment of disk')
        self.assertEqual([{
            'Device': '/dev/vdb', 'Volume': self.disk,
            'Volume Status': 'in-use', 'Attachment in Nova': attachment,
            'Attachment in Cinder': attachment + ' (attached)',
            'Host': 'compute1', 'Verdict': 'healthy',
            'Hard Reboot': 'keeps it',
            'Explanation': 'attached to this server',
            'Connects': True, 'Action': 'none'}], rows)
        table = self.bdm('show', 'alpha', form='table')[1]
        self.assertEqual('+', table.splitlines()[-1][-1])

    def test_past_tells_the_cause(self) -> None:
        self.cloud.reboot_events[self.alpha] = ['compute_reboot_instance']
        self.bdm('show', 'alpha')
        self.assertNotIn('operations', self.log.output)
        self.break_volume()
        self.bdm('show', 'alpha')
        self.assertRegex(self.log.output, (
            'The last operations, the newest first:\n'
            r'  2\d{3}-\d\d-\d\d \d\d:\d\d:\d\d  reboot  succeeded  '
            'compute1  req-reboot\n$'))
        self.assertNotIn('Perhaps', self.log.output)
        self.cloud.record(self.alpha, 'live-migration',
                          events=['conductor_live_migrate_instance'])
        self.cloud.record(self.alpha, 'lock')
        self.cloud.tell(self.disk, 'Cannot detach.')
        self.bdm('show', 'alpha')
        self.assertRegex(self.log.output, (
            r'Perhaps the cause: the live-migration of [-\d]+ [:\d]+ UTC has '
            r'not ended [(]req-live-migration-1[)][.] The last operations, '
            'the newest first:\n'
            '  .*  volume ' + self.disk + '  Cannot detach[.] .*  req-message'
            '\n  .*  live-migration .*  has not ended  .*  '
            'req-live-migration-1\n  .*  reboot .*  succeeded '))

    def test_operations_of_one_second_are_in_the_order_of_nova(self) -> None:
        self.break_volume()
        names = ['detach_volume', 'attach_volume', 'stop']
        for name in names:
            self.cloud.record(self.alpha, name)
        for action in self.cloud.actions[self.alpha]:
            action['start_time'] = '2026-11-29T10:00:00.000000'
        self.bdm('show', 'alpha')
        self.assertRegex(self.log.output, '(?s)' + '.*'.join(
            '10:00:00  ' + name for name in reversed(names)))

    def test_service_that_is_down_is_the_cause(self) -> None:
        self.break_volume()
        self.cloud.volumes[self.disk]['os-vol-host-attr:host'] = 'san@a#pool'
        self.cloud.services['cinder'] = [
            {'binary': 'cinder-volume', 'host': host, 'state': 'down',
             'status': 'enabled'} for host in ('san@a', 'san@b')]
        self.bdm('show', 'alpha')
        self.assertIn('Perhaps the cause: cinder-volume on san@a is down. ',
                      self.log.output)
        # Its back end has another name now.
        del self.cloud.services['cinder'][0]
        self.bdm('show', 'alpha')
        self.assertIn('cause: there is no cinder-volume on san@a. ',
                      self.log.output)

    def test_without_permission_nothing_tells_the_cause(self) -> None:
        self.break_volume()
        for place in ('/os-services', '/messages', '/req-reboot'):
            self.cloud.on(place, lambda: (
                403, {'forbidden': {'message': 'Policy'}}))
        code, _ = self.bdm('show', 'alpha')
        self.assertEqual(ExitCode.FINDINGS, code)
        self.assertNotIn('operations', self.log.output)

    def test_dangling_and_stale_records_are_shown(self) -> None:
        """Show a server whose name only looks like a pattern."""
        self.cloud.servers[self.alpha]['name'] = 'db+1 (x)'
        self.break_volume()
        volume = self.cloud.volume('stale', 'in-use')
        self.cloud.attachment('stale', self.alpha, volume)
        code, rows = self.bdm('show', 'db+1 (x)')
        self.assertEqual(ExitCode.FINDINGS, code)
        self.assertEqual(
            [('volume-available', 'none', 'removes the mapping', False),
             ('stale-attachment', loopback.uid('stale') + ' (attached)',
              'deletes the attachment', None)],
            [(r['Verdict'], r['Attachment in Cinder'], r['Hard Reboot'],
              r['Connects']) for r in rows])

    def test_duplicate_mapping_is_removed_if_never_connected(self) -> None:
        """Show that only a reboot tells whether Nova ever connected it."""
        self.cloud.mapping(self.alpha, self.disk, loopback.uid('lost'))
        self.assertIn('removes it if Nova never connected it', [
            row['Hard Reboot'] for row in self.bdm('show', 'alpha')[1]])

    #: Why a disk that a reboot keeps is not connected.
    LEFT_OUT = ('the guest comes back without the disk: while Cinder shows no '
                'attachment of this server, another server may have the disk')

    def reserve_elsewhere(self) -> None:
        """Reserve the volume for another server, just now."""
        self.break_volume()
        self.cloud.volumes[self.disk].update(
            status='reserved',
            updated_at=loopback._stamp(datetime.timedelta()))
        self.cloud.attachment('of another', self.cloud.server('another'),
                              self.disk, 'reserved', False)

    def test_audit_and_clean_name_disks_left_out(self) -> None:
        """Check that "audit" and "clean" say it, too."""
        self.reserve_elsewhere()
        _, (row,) = self.bdm('audit', '--server', 'alpha', '--long',
                             '--reason', 'operation-in-flight')
        self.assertIn(self.LEFT_OUT, row['Explanation'])
        stale = self.cloud.volume('stale', 'in-use')
        self.cloud.attachment('stale', self.alpha, stale)
        self.bdm('clean', self.alpha, '--yes')
        self.assertIn('volume %s (operation-in-flight) stays, and %s'
                      % (self.disk, self.LEFT_OUT), self.log.output)

    def test_disk_of_locked_server_is_kept_and_left_out(self) -> None:
        self.break_volume()
        self.cloud.servers[self.alpha]['locked'] = True
        _, (row,) = self.bdm('show', self.alpha)
        self.assertEqual(
            ('keeps it (server-locked), and ' + self.LEFT_OUT, False),
            (row['Hard Reboot'], row['Connects']))

    def test_disk_not_connected_by_last_reboot_is_named(self) -> None:
        event = 'bdm_cleanup did not connect volume %s (stuck)' % self.disk
        self.cloud.reboot_events[self.alpha] = [event]
        _, (row,) = self.bdm('show', self.alpha)
        # Nova is not asked while all is healthy.
        self.assertEqual('attached to this server', row['Explanation'])
        self.assertEqual(0, self.cloud.asked('os-instance-actions'))
        self.cloud.half_move(self.disk)
        said = '; the last reboot did not connect it (stuck)'
        _, (row,) = self.bdm('show', self.alpha)
        self.assertTrue(row['Explanation'].endswith(said))
        # A reboot would reconnect it, so the plugin is looked for, too.
        self.assertEqual(3, self.cloud.asked('os-instance-actions'))
        self.cloud.reboot_events.clear()
        _, (row,) = self.bdm('show', self.alpha)
        self.assertNotIn('the last reboot', row['Explanation'])

    def test_the_host_that_cinder_names_is_shown(self) -> None:
        self.cloud.evacuate(self.alpha)
        _, (row,) = self.bdm('show', self.alpha)
        self.assertEqual(
            ('half-moved', 'compute1', 'reconnects it', True,
             ['openstack bdm clean ' + self.alpha]),
            (row['Verdict'], row['Host'], row['Hard Reboot'],
             row['Connects'], row['Action'].split('; ')))
        self.cloud.migrations[self.alpha] = ['error']
        _, (row,) = self.bdm('show', self.alpha)
        self.assertEqual(
            ('reconnects it, unless the guest is on another host', None,
             'on host compute2: nova-bdm-cleanup repair ' + self.alpha),
            (row['Hard Reboot'], row['Connects'], row['Action']))
        # The guest may be there.
        self.cloud.servers[self.alpha]['status'] = 'SHUTOFF'
        _, (row,) = self.bdm('show', self.alpha)
        self.assertEqual(
            ('keeps it, and its host decides whether it is connected', None,
             'look: openstack bdm explain half-moved'),
            (row['Hard Reboot'], row['Connects'], row['Action']))

    def test_disk_of_busy_server_is_shown_as_connected(self) -> None:
        self.reserve_elsewhere()
        self.cloud.servers[self.alpha]['OS-EXT-STS:task_state'] = 'rebooting'
        code, (row,) = self.bdm('show', self.alpha)
        self.assertEqual((ExitCode.OK, 'keeps it', True),
                         (code, row['Hard Reboot'], row['Connects']))

    def test_interrupted_operation_has_a_row(self) -> None:
        self.cloud.interrupt(self.alpha)
        code, rows = self.bdm('show', 'alpha')
        self.assertEqual(ExitCode.FINDINGS, code)
        row = rows[0]
        self.assertEqual(
            ('interrupted', 'is refused', None, None, None,
             'openstack bdm clean --reset-state ' + self.alpha),
            (row['Verdict'], row['Hard Reboot'], row['Volume'],
             row['Volume Status'], row['Attachment in Cinder'],
             row['Action']))
        self.assertEqual('healthy', rows[1]['Verdict'])
        self.assertIn('A hard reboot is refused.', self.table('show', 'alpha'))

    def test_server_of_another_project_needs_its_id(self) -> None:
        foreign = self.cloud.server('foreign', 'other')
        self.cloud.attach(foreign, 'foreign')
        self.assertEqual(ExitCode.OK, self.bdm('show', foreign)[0])
        self.assertEqual(ExitCode.BAD_INPUT, self.bdm('show', 'foreign')[0])
        self.assertEqual(ExitCode.OK, self.bdm(
            'show', 'foreign', '--all-projects')[0])
        self.assertEqual(ExitCode.BAD_INPUT, self.bdm(
            'show', foreign, user='member')[0])
