# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""The command ``openstack bdm audit``."""

from __future__ import annotations

import os

from nova_bdm_cleanup.exitcodes import ExitCode
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
            'Action': 'openstack bdm clean ' + self.alpha}], rows)

    def test_long(self) -> None:
        self.break_volume()
        _, (row,) = self.bdm('audit', '--long')
        self.assertEqual(('alpha', 'own'), (row['Server Name'],
                                            row['Project']))
        self.assertIn('available', row['Explanation'])

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

    def test_refused(self) -> None:
        code, rows = self.bdm('audit', '--all-projects', user='member')
        self.assertEqual((ExitCode.REFUSED, None), (code, rows))
        self.assertIn('admin role', self.stderr.getvalue())

    def test_bad_input(self) -> None:
        code, rows = self.bdm('audit', '--server', 'nobody')
        self.assertEqual((ExitCode.BAD_INPUT, None), (code, rows))

    def test_sorted_table(self) -> None:
        self.break_volume()
        self.cloud.lose_volume(self.other)
        _, rows = self.bdm('audit', '--sort-column', 'Reason', '-c',
                           'Reason')
        self.assertEqual([{'Reason': 'volume-available'},
                          {'Reason': 'volume-missing'}], rows)

    def test_a_plan_is_never_overwritten(self) -> None:
        path = self.plan()
        code, _ = self.bdm('audit', '--plan', path)
        self.assertEqual(ExitCode.BAD_INPUT, code)
        self.assertIn('File exists', self.stderr.getvalue())

    def test_no_plan_is_left_behind_by_an_audit_that_is_refused(self) -> None:
        path = self.path()
        code, _ = self.bdm('audit', '--all-projects', '--plan', path,
                           user='member')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertFalse(os.path.exists(path))
