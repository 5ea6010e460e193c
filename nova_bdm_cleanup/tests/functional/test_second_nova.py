# SPDX-License-Identifier: Apache-2.0
"""``bdm release`` beside a second Nova that uses the same Cinder.

To this Nova every healthy attachment of the other one names a server that
does not exist.  The host that it is connected to tells them apart.
"""

from __future__ import annotations

import dataclasses

from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.functional import test_fleet

THEIRS = 'compute-of-region-two'


class SecondNovaTest(test_fleet.FleetTest):

    def setUp(self):
        super().setUp()
        #: A healthy server of the other Nova.
        self.theirs = dataclasses.replace(self.ghost(), host=THEIRS)
        self.volume = self.cloud.volume()
        self.attachment = self.cloud.leave_attachment(
            self.theirs, self.volume)

    def check_untouched(self):
        self.assertEqual([self.attachment], [
            each.id for each in self.cloud.attachments(self.volume)])
        self.assertEqual('in-use', self.status(self.volume))
        self.assertEqual([], self.calls(self.volume))

    def test_named(self):
        for target in (self.volume, self.attachment):
            code, (row,) = self.bdm('release', target, '--yes',
                                    '--stuck-after', '0')
            self.assertEqual(ExitCode.REFUSED, code)
            self.assertIn(THEIRS, row['Explanation'])
            self.check_untouched()

    def test_orphans(self):
        """Only what was for a server that this Nova says it has deleted."""
        ours, unknown = self.cloud.volume(), self.cloud.volume()
        self.cloud.leave_attachment(self.deleted(), ours)
        self.cloud.leave_attachment(self.ghost(), unknown)
        code, rows = self.bdm('release', '--orphans', '--dry-run',
                              '--max', '100000')
        found = [row['Volume'] for row in rows]
        self.assertIn(ours, found)
        for volume in (self.volume, unknown):
            self.assertNotIn(volume, found)
        self.assertRegex(self.stderr.getvalue(),
                         r'\d+ attachments were left, of servers that another '
                         r'Nova may have')
        # The others that are found belong to tests at the same time.
        self.release(ours)
        self.assertEqual('available', self.status(ours))
        self.check_untouched()

    def release(self, volume: str) -> None:
        code, (row,) = self.bdm('release', volume, '--yes')
        self.assertEqual(ExitCode.OK, code, row)
        self.assertIn('Nova has deleted server', row['Explanation'])

    def test_host_whose_nova_compute_is_down(self):
        """It is a host of this Nova all the same."""
        service = self.cloud.nova.computes['compute1']
        service.stop()
        self.addCleanup(service.start)
        volume = self.cloud.volume()
        self.cloud.leave_attachment(self.ghost(), volume)
        code, (row,) = self.bdm('release', volume, '--yes')
        self.assertEqual(ExitCode.OK, code, row)
