# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm audit``."""

from __future__ import annotations

import os
import re
from unittest import mock

from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import loopback
from nova_bdm_cleanup.tests.unit.osc import commandcase


class AuditBdmTest(commandcase.CommandCase):

    def test_clean(self) -> None:
        self.assertEqual((ExitCode.OK, []),
                         self.bdm('audit', '--all-projects'))
        self.assertIn('2 servers, 2 volumes claimed by them, 2 attachments',
                      self.log.output)
        self.assertIn('2 requests to Nova and 7 to Cinder', self.log.output)

    def test_findings(self) -> None:
        self.break_volume()
        code, rows = self.bdm('audit')
        self.assertEqual(ExitCode.FINDINGS, code)
        since = self.cloud.volumes[self.disk]['updated_at'][:19] + 'Z'
        self.assertEqual([{
            'Server': self.alpha, 'Host': 'compute1', 'Volume': self.disk,
            'Attachment': loopback.uid('attachment of disk'),
            'Device': '/dev/vdb', 'Reason': 'volume-available',
            'Since': since,
            'Action': 'openstack bdm clean ' + self.alpha,
            'Remedy': 'clean'}], rows)

    def test_long(self) -> None:
        self.break_volume()
        _, (row,) = self.bdm('audit', '--long')
        self.assertEqual(('alpha', 'own'), (row['Server Name'],
                                            row['Project']))
        self.assertIn('available', row['Explanation'])

    def table(self, *arguments: str) -> str:
        with mock.patch('shutil.get_terminal_size',
                        lambda: os.terminal_size((100, 24))):
            _, text = self.bdm('audit', *arguments, form='table')
        return str(text)

    def test_table(self) -> None:
        """What is long stands below, and a command on one line."""
        self.break_volume()
        text = self.table()
        self.assertIn('| # | Server ', text)
        self.assertNotIn('Attachment', text.split('\n')[1])
        below = text[text.rindex('+\n') + 2:].split('\n')
        self.assertEqual('1. openstack bdm clean ' + self.alpha, below[0])
        self.assertEqual('   Cinder says that the volume is available and has '
                         'no attachment of this server', below[1])
        self.assertIn('| Since ', self.table('--sort-column', 'Since'))
        self.assertIn('| Attachment ', self.table('--long'))
        self.assertNotIn('# |', self.table('-c', 'Volume'))
        self.assertEqual('\n', self.table('--reason', 'stuck'))

    def reserve_many(self, server: str, count: int) -> None:
        for number in range(count):
            volume = self.cloud.volume('stale-%d' % number, 'reserved')
            self.cloud.attachment('stale-%d' % number, server, volume,
                                  'reserved', connected=False)

    def test_many_of_one_kind(self) -> None:
        self.reserve_many(self.alpha, 20)
        self.break_volume()
        text = self.table()
        self.assertEqual(2, text.count('| ' + self.alpha))
        self.assertIn('| 20 volumes', text)
        action = 'openstack bdm release --server %s --max 20' % self.alpha
        self.assertIn('. %s\n' % action, text)
        self.assertIn('20 findings; --long shows each', text)
        self.assertEqual(21, self.table('--long').count('| ' + self.alpha))
        _, rows = self.bdm('audit')
        self.assertEqual(21, len(rows))
        code, rows = self.bdm('release', *action.split()[3:], '--yes')
        self.assertEqual((ExitCode.OK, 20), (code, len(rows)))

    def test_many_of_a_server_that_is_gone(self) -> None:
        ghost = loopback.uid('ghost')
        self.reserve_many(ghost, 5)
        action = 'openstack bdm release --server %s --max 5' % ghost
        self.assertIn(action, self.table('--all-projects'))
        code, rows = self.bdm('release', *action.split()[3:], '--yes')
        self.assertEqual((ExitCode.OK, 5), (code, len(rows)))
        code, _ = self.bdm('release', '--server', ghost)
        self.assertEqual(ExitCode.BAD_INPUT, code)

    def carry_out(self, action: str, *arguments: str) -> int:
        """Type an action of a table; returns the exit code."""
        command, *words = action.partition('openstack bdm ')[2].split()
        return self.bdm(command, *words, *arguments)[0]

    def actions(self, *arguments: str) -> list[str]:
        return re.findall(r'^\d+[.] (.*openstack bdm .*)$',
                          self.table(*arguments), re.MULTILINE)

    def test_many_of_several_kinds(self) -> None:
        """Connected records have a host, and reserved ones have none."""
        ghost = self.cloud.server('ghost')
        for number in range(5):
            self.cloud.attach(ghost, 'data-%d' % number)
        self.cloud.lose_server(ghost)
        self.reserve_many(ghost, 5)
        action = 'openstack bdm release --server %s --max 10' % ghost
        self.assertEqual([action] * 2, self.actions('--all-projects'))
        self.assertEqual(ExitCode.OK, self.carry_out(action, '--yes'))

    def test_many_for_more_than_one_reason(self) -> None:
        self.reserve_many(self.alpha, 5)
        stuck = self.cloud.attach(self.alpha, 'attaching one')
        self.cloud.volumes[stuck]['status'] = 'attaching'
        action = 'openstack bdm release --server %s --max 6' % self.alpha
        for arguments in ((), ('--reason', 'stale-attachment')):
            self.assertIn(action, self.actions(*arguments))
        self.assertEqual(ExitCode.OK, self.carry_out(action, '--yes'))

    def test_many_to_look_at(self) -> None:
        """The printed look finds them, whatever was audited."""
        for project in ('own', 'another'):
            ghost = loopback.uid('ghost of ' + project)
            for number in range(5):
                volume = self.cloud.volume(
                    '%s-%d' % (project, number), 'in-use', project)
                self.cloud.attachment(volume, ghost, volume, connected=False)
        self.cloud.attachment('released', ghost, self.cloud.volume(
            'to release', 'in-use', 'another'))
        for arguments, count in (((), 1), (('--project', 'another'), 2),
                                 (('--all-projects',), 3)):
            actions = self.actions(*arguments)
            self.assertEqual(count, len(actions))
            looks = [a for a in actions if a.startswith('look: ')]
            self.assertNotEqual([], looks)
            for look in looks:
                self.assertEqual(ExitCode.FINDINGS, self.carry_out(look))

    def test_what_was_audited_is_said(self) -> None:
        for arguments, words in (
                ((), 'Audited: project own only (--all-projects audits all'),
                (('--all-projects',), 'Audited: all projects;'),
                (('--host', 'compute1'), 'Audited: host compute1;'),
                (('--server', self.alpha), 'Audited: 1 servers;')):
            self.bdm('audit', *arguments)
            self.assertIn(words, self.log.output)

    def test_reason_and_fail_on(self) -> None:
        self.break_volume()
        for arguments, code, count in (
                (('--reason', 'stuck'), ExitCode.OK, 0),
                (('--reason', 'volume-available'), ExitCode.FINDINGS, 1),
                (('--fail-on', 'stuck'), ExitCode.OK, 1),
                (('--fail-on', 'volume-available'), ExitCode.FINDINGS, 1),
                (('--fail-on', 'none'), ExitCode.OK, 1)):
            found, rows = self.bdm('audit', *arguments)
            self.assertEqual((code, count), (found, len(rows)))

    def test_what_passes_is_not_shown(self) -> None:
        self.break_volume()
        self.cloud.servers[self.alpha]['OS-EXT-STS:task_state'] = 'resizing'
        self.assertEqual((ExitCode.OK, []), self.bdm('audit'))
        self.assertIn('1 findings are not shown', self.log.output)
        code, rows = self.bdm('audit', '--reason', 'operation-in-flight')
        self.assertEqual((ExitCode.FINDINGS, 1), (code, len(rows)))

    def test_legacy_records(self) -> None:
        self.cloud.mappings[self.alpha][0]['attachment_id'] = None
        self.cloud.attachments[loopback.uid('attachment of disk')].update(
            connection_info={})
        self.assertEqual((ExitCode.OK, []), self.bdm('audit'))
        self.assertIn('1 of the attachments are from before Queens',
                      self.log.output)
        code, (row,) = self.bdm('audit', '--reason', 'legacy-record')
        self.assertEqual((ExitCode.FINDINGS, self.disk, 'none'),
                         (code, row['Volume'], row['Action']))

    def test_incomplete(self) -> None:
        self.break_volume()
        self.cloud.silent_hosts = ['compute7']
        code, rows = self.bdm('audit', '--all-projects')
        self.assertEqual((ExitCode.PARTLY, 1), (code, len(rows)))
        self.assertIn('INCOMPLETE: ', self.stderr.getvalue())
        self.assertIn('compute7', self.stderr.getvalue())

    def test_sorted_table(self) -> None:
        self.break_volume()
        self.cloud.lose_volume(self.other)
        _, rows = self.bdm('audit', '--sort-column', 'Reason', '-c',
                           'Reason')
        self.assertEqual([{'Reason': 'volume-available'},
                          {'Reason': 'volume-missing'}], rows)
