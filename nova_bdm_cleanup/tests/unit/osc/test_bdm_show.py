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
"""The command ``openstack bdm show``."""

from __future__ import annotations

from nova_bdm_cleanup.exitcodes import ExitCode
from nova_bdm_cleanup.tests.unit import loopback
from nova_bdm_cleanup.tests.unit.osc import commandcase


class ShowBdmTest(commandcase.CommandCase):

    def test_healthy(self) -> None:
        code, rows = self.bdm('show', 'alpha')
        self.assertEqual(ExitCode.OK, code)
        attachment = loopback.uid('attachment of disk')
        self.assertEqual([{
            'Device': '/dev/vdb', 'Volume': self.disk,
            'Volume Status': 'in-use', 'Attachment in Nova': attachment,
            'Attachment in Cinder': attachment + ' (attached)',
            'Host': 'compute1', 'Verdict': 'healthy',
            'Hard Reboot': 'keeps it', 'Explanation': 'attached'}], rows)

    def test_dangling_and_stale(self) -> None:
        self.break_volume()
        volume = self.cloud.volume('stale', 'in-use')
        self.cloud.attachment('stale', self.alpha, volume)
        code, rows = self.bdm('show', self.alpha)
        self.assertEqual(ExitCode.FINDINGS, code)
        self.assertEqual(
            [('volume-available', 'none', 'removes the mapping'),
             ('stale-attachment', loopback.uid('stale') + ' (attached)',
              'deletes the attachment')],
            [(r['Verdict'], r['Attachment in Cinder'], r['Hard Reboot'])
             for r in rows])

    def test_of_another_project(self) -> None:
        foreign = self.cloud.server('foreign', 'other')
        self.cloud.attach(foreign, 'foreign')
        self.assertEqual(ExitCode.OK, self.bdm('show', foreign)[0])
        self.assertEqual(ExitCode.BAD_INPUT, self.bdm('show', 'foreign')[0])
        self.assertEqual(ExitCode.OK, self.bdm(
            'show', 'foreign', '--all-projects')[0])
        self.assertEqual(ExitCode.BAD_INPUT, self.bdm(
            'show', foreign, user='member')[0])
