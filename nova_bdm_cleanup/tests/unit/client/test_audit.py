# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm audit``."""

from __future__ import annotations

import errno
import io
import re
from typing import Any

from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import loopback
from nova_bdm_cleanup.tests.unit.client import commandcase


class AuditBdmTest(commandcase.CommandCase):

    def test_finding_has_the_documented_columns(self) -> None:
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
            'Remedy': 'clean',
            'Explanation': 'Cinder says that the volume is available and has '
                           'no attachment of this server',
            'Breaks': 'move, shelve, unshelve, evacuate, live migration',
            'Server Name': 'alpha', 'Project': 'own', 'Volume Name': 'disk',
            'Size': 1, 'Project Name': 'ours', 'User Name': 'alice',
            'Cluster': None, 'Namespace': None, 'Claim': None,
            'Cause': None}], rows)

    def test_owner_is_the_claim_of_kubernetes(self) -> None:
        volume = self.orphan(metadata={
            'cinder.csi.openstack.org/cluster': 'prod',
            'csi.storage.k8s.io/pvc/namespace': 'shop',
            'csi.storage.k8s.io/pvc/name': 'db-0', 'other': 'x'})
        _, (row,) = self.bdm('audit', '--all-projects')
        self.assertEqual(
            (volume, 'prod', 'shop', 'db-0', 'ours', None),
            tuple(row[name] for name in (
                'Volume', 'Cluster', 'Namespace', 'Claim', 'Project Name',
                'User Name')))
        # Nova has no operations of a server that it does not know.
        self.cloud.deleted.clear()
        _, (row,) = self.bdm('audit', '--all-projects')
        self.assertIsNone(row['Cause'])
        self.assertIn('project ours, volume orphan (1 GiB), claim shop/db-0, '
                      'cluster prod\n',
                      self.table('--all-projects', '--long', width=200))

    def test_cause_is_the_operation_that_did_not_succeed(self) -> None:
        self.break_volume()
        self.cloud.record(self.alpha, 'detach_volume')
        self.cloud.actions[self.alpha][0]['message'] = 'Error'
        self.cloud.record(self.alpha, 'rebuild', events=['rebuild'])
        _, (row,) = self.bdm('audit')
        self.assertRegex(row['Cause'], (
            r'^the rebuild of [-\d]+ [:\d]+ UTC has not ended '
            r'[(]req-rebuild-2[)]$'))
        self.assertIn('Perhaps the cause: the rebuild of ',
                      self.table('--long'))
        self.cloud.actions[self.alpha][0]['request_id'] = 'req-reboot'
        _, (row,) = self.bdm('audit')
        self.assertIn('the detach_volume of ', row['Cause'])
        self.assertIn(' failed (req-detach_volume-1)', row['Cause'])
        self.cloud.on('/req-reboot', lambda: (500, {}))
        code, (row,) = self.bdm('audit')
        self.assertEqual(ExitCode.FINDINGS, code)
        self.assertIn('not known: ', row['Cause'])
        # The usual table does not ask.
        asked = self.cloud.asked('/req-reboot')
        self.table()
        self.assertEqual(asked, self.cloud.asked('/req-reboot'))

    def test_wide_terminal_shows_the_name_of_the_volume(self) -> None:
        self.break_volume()
        self.assertNotIn('| disk ', self.table(width=109))
        self.cloud.servers[self.alpha]['name'] = 'x' * 60
        self.cloud.volumes[self.disk]['name'] = 'y' * 9
        lines = self.table(width=110).splitlines()
        self.assertEqual(110, len(lines[0]))
        self.assertIn('... | %s | yyyyyyyyy   |    1 |' % self.disk, lines[3])

    def table(self, *arguments: str, **options: Any) -> str:
        return super().table('audit', *arguments, **options)

    def reserve_many(self, server: str, count: int) -> None:
        for number in range(count):
            volume = self.cloud.volume('stale-%d' % number, 'reserved')
            self.cloud.attachment('stale-%d' % number, server, volume,
                                  'reserved', connected=False)

    def test_similar_findings_share_one_row_and_command(self) -> None:
        self.reserve_many(self.alpha, 20)
        self.break_volume()
        text = self.table()
        self.assertEqual(2, text.count('| alpha '))
        self.assertRegex(text, r'\| (1-20|2-21) +\| .*\| 20 volumes')
        action = 'openstack bdm release --server %s --max 20' % self.alpha
        self.assertIn('. %s\n' % action, text)
        self.assertIn('20 findings; --long shows each', text)
        self.assertEqual(21, self.table('--long').count('| alpha '))
        _, rows = self.bdm('audit')
        self.assertEqual(21, len(rows))
        code, rows = self.bdm('release', *action.split()[3:], '--yes')
        self.assertEqual((ExitCode.OK, 20), (code, len(rows)))

    def test_services_that_are_down_come_first(self) -> None:
        self.table('--all-projects')
        self.assertNotIn('DOWN', self.stderr.getvalue())
        for api, service in (('nova', 'nova-conductor'),
                             ('cinder', 'cinder-volume')):
            self.cloud.services[api] = [
                {'binary': service, 'host': host, 'state': state,
                 'status': status} for host, state, status in (
                    ('here', 'up', 'enabled'), ('there', 'down', 'enabled'),
                    ('apart', 'down', 'disabled'))]
        self.table('--all-projects')
        self.assertIn(
            'DOWN, which may be the cause of findings: cinder-volume on '
            'there, nova-conductor on there\n', self.stderr.getvalue())
        # It is only a hint.
        self.cloud.on('/os-services', lambda: (
            403, {'forbidden': {'message': 'Policy'}}))
        self.table()
        self.assertNotIn('DOWN', self.stderr.getvalue())

    def test_earlier_audit_tells_what_is_new_and_what_has_ended(self) -> None:
        self.break_volume()
        self.orphan()
        path = self.plan()
        second = self.cloud.attach(self.alpha, 'second')
        self.cloud.lose_attachment(second)
        self.cloud.volumes[self.disk]['status'] = 'in-use'
        self.cloud.attachment('attachment of disk', self.alpha, self.disk)
        _, rows = self.bdm('audit', '--all-projects', '--since', path)
        self.assertEqual(
            [('server-gone', False), ('volume-available', True)],
            sorted((row['Reason'], row['New']) for row in rows))
        ended = ('Since the earlier audit: 1 new, 1 as before, 1 ended.\n'
                 '  ended: volume-available, server %s, volume %s\n' % (
                     self.alpha, self.disk))
        self.assertIn(ended, self.log.output)
        text = self.table('--all-projects', '--since', path)
        self.assertRegex(text, r'\| New +\|\n')
        # It may only not have been seen.
        self.cloud.on('/attachments/detail[?]all', lambda: (500, {}))
        self.bdm('audit', '--all-projects', '--since', path)
        self.assertIn('those that have ended are not known',
                      self.log.output)
        code, _ = self.bdm('audit', '--since', path + '.missing')
        self.assertEqual(ExitCode.BAD_INPUT, code)

    def carry_out(self, action: str, *arguments: str) -> int:
        """Run an action of a table; return the exit code."""
        command, *words = action.partition('openstack bdm ')[2].split()
        return self.bdm(command, *words, *arguments)[0]

    def actions(self, *arguments: str, user: str = 'admin') -> list[str]:
        return re.findall(r'^[-\d, ]+[.] (.*openstack bdm .*)$',
                          self.table(*arguments, user=user), re.MULTILINE)

    def test_findings_of_several_kinds_share_one_command(self) -> None:
        """Mix connected attachments, with a host, and reserved ones."""
        ghost = self.cloud.server('ghost')
        for number in range(5):
            self.cloud.attach(ghost, 'data-%d' % number)
        self.cloud.lose_server(ghost)
        self.reserve_many(ghost, 5)
        action = 'openstack bdm release --server %s --max 10' % ghost
        self.assertEqual([action], self.actions('--all-projects'))
        self.assertEqual(ExitCode.OK, self.carry_out(action, '--yes'))
        self.assertEqual(ExitCode.BAD_INPUT, self.carry_out(action, '--yes'))

    def test_findings_to_look_at_share_one_command(self) -> None:
        """Check that the printed look finds them in every scope."""
        self.server.projects['another'] = 'another'
        for project in ('own', 'another'):
            ghost = loopback.uid('ghost of ' + project)
            for number in range(5):
                volume = self.cloud.volume(
                    '%s-%d' % (project, number), 'in-use', project)
                self.cloud.attachment(volume, ghost, volume, connected=False)
        self.cloud.remember('ghost of another')
        self.cloud.attachment('released', ghost, self.cloud.volume(
            'to release', 'in-use', 'another'))
        for arguments, count in (((), 1), (('--project', 'another'), 2),
                                 (('--all-projects',), 2)):
            actions = self.actions(*arguments)
            self.assertEqual(count, len(actions))
            looks = [a for a in actions if a.startswith('look: ')]
            self.assertNotEqual([], looks)
            for look in looks:
                self.assertEqual(ExitCode.FINDINGS, self.carry_out(look))

    def last_line(self) -> str:
        return self.log.output.splitlines()[-1]

    def test_last_line_sums_up_the_audit(self) -> None:
        for arguments, user, words in (
                ((), 'admin',
                 'Nothing in project own; --all-projects audits all.'),
                ((), 'member', 'Nothing is inconsistent.'),
                (('--all-projects',), 'admin', 'Nothing is inconsistent.')):
            self.bdm('audit', *arguments, user=user)
            self.assertEqual(words, self.last_line())
        self.break_volume()
        self.cloud.volume('nobodys', 'in-use')
        self.cloud.lose_volume(self.other)
        self.table()
        self.assertEqual('3 findings: 2 to clean, 1 to look at.',
                         self.last_line())
        self.cloud.silent_hosts = ['compute7']
        code, rows = self.bdm('audit', '--all-projects')
        self.assertEqual((ExitCode.PARTLY, 3), (code, len(rows)))
        self.assertRegex(self.stderr.getvalue(), 'INCOMPLETE: .*compute7')
        self.bdm('audit', '--all-projects', '--reason', 'cross-wired')
        self.assertEqual(
            'Nothing was found, and the audit is incomplete; not shown: '
            'volume-available 1, volume-missing 1, volume-unreferenced 1.',
            self.last_line())

    def test_projects_by_name(self) -> None:
        self.cloud.lose_attachment(self.cloud.attach(
            self.cloud.server('foreign', 'other'), 'foreign'))
        for name in ('theirs', 'other'):
            code, rows = self.bdm('audit', '--project', name)
            self.assertEqual((ExitCode.FINDINGS, 1), (code, len(rows)))
        self.server.projects.update(empty='nothing', twin='theirs')
        self.assertEqual((ExitCode.OK, []),
                         self.bdm('audit', '--project', 'nothing'))
        for name, user, code, words in (
                ('no such', 'admin', ExitCode.BAD_INPUT,
                 'no project has the name or ID no such'),
                ('theirs', 'admin', ExitCode.BAD_INPUT,
                 'more than one project is named theirs; give an ID'),
                ('theirs', 'member', ExitCode.REFUSED,
                 'Keystone does not show project theirs')):
            self.assertEqual((code, None), self.bdm(
                'audit', '--project', name, user=user))
            self.assertIn(words, self.stderr.getvalue())

    def test_values_are_unchanged_in_json_only(self) -> None:
        """A CSV cell is no formula and controls no terminal."""
        self.break_volume()
        for name, cell in (('=HYPERLINK("x")', '"\'=HYPERLINK(""x"")"'),
                           ('\t=1', '"\'\\t=1"'), ('a\x1b[2J', '"a\\x1b[2J"')):
            self.cloud.servers[self.alpha]['name'] = name
            _, (row,) = self.bdm('audit', '--long')
            self.assertEqual(name, row['Server Name'])
            _, text = self.bdm('audit', '--long', form='csv')
            # Newer releases of cliff double a backslash.
            self.assertIn(',%s,' % cell, text.replace('\\\\', '\\'))
        self.assertNotIn('\x1b', self.table())
        self.assertNotIn('\x1b', self.bdm('audit', form='value')[1])

    def test_terminal_without_a_letter_of_a_name(self) -> None:
        class Ascii(io.TextIOWrapper):
            def getvalue(self) -> str:
                self.seek(0)
                return self.read()

        self.break_volume()
        self.cloud.servers[self.alpha]['name'] = 't\u00e4g'
        for form in ('csv', 'table', 'value', 'yaml'):
            code, text = self.bdm(
                'audit', '--long', form=form,
                stdout=Ascii(io.BytesIO(), encoding='ascii'))
            self.assertEqual(ExitCode.FINDINGS, code, form)
            self.assertIn('t\\xe4g', text.replace('E4', 'e4'))

    def test_output_not_written_is_reported(self) -> None:
        class Full(io.StringIO):
            def flush(self) -> None:
                raise OSError(errno.ENOSPC, 'No space left on device')

        self.break_volume()
        code, _ = self.bdm('audit', stdout=Full())
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertIn('the output could not be written: No space left on '
                      'device', self.stderr.getvalue())

    def test_a_member_is_sent_to_an_administrator(self) -> None:
        self.reserve_many(self.alpha, 5)
        for index in range(5):
            self.cloud.volumes[loopback.uid('stale-%d' % index)][
                'status'] = 'in-use'
        self.assertEqual(
            ['ask an administrator: openstack bdm show ' + self.alpha],
            self.actions(user='member'))

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

    def test_operation_in_flight_is_only_counted(self) -> None:
        self.break_volume()
        self.cloud.servers[self.alpha]['OS-EXT-STS:task_state'] = 'resizing'
        self.assertEqual((ExitCode.OK, []), self.bdm('audit'))
        self.assertEqual(
            'Nothing in project own; --all-projects audits all; not shown: '
            'operation-in-flight 1.', self.last_line())
        code, rows = self.bdm('audit', '--reason', 'operation-in-flight')
        self.assertEqual((ExitCode.FINDINGS, 1), (code, len(rows)))
