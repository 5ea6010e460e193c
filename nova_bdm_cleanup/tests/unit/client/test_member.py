# SPDX-License-Identifier: Apache-2.0
"""A member of a project, whose server boots from a volume.

The compute API shows only administrators which disk is the root.
"""

from __future__ import annotations

import pathlib

from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit.client import commandcase

HIDDEN = 'your credentials do not show whether it is the root disk'


class HiddenRootTest(commandcase.CommandCase):
    """Three data disks dangle; the root is fine."""

    def setUp(self) -> None:
        super().setUp()
        self.guest = self.cloud.server('from a volume', image='', **{
            'OS-EXT-SRV-ATTR:root_device_name': '/dev/vdb'})
        self.root = self.cloud.attach(self.guest, 'root')
        self.data = [self.cloud.attach(self.guest, 'data-%d' % n)
                     for n in range(3)]
        for volume in self.data:
            self.cloud.lose_attachment(volume)
        self.ask = ('ask an administrator: openstack bdm audit '
                    '--all-projects --server ' + self.guest)

    def test_audit_asks_for_an_administrator(self) -> None:
        report, metrics = self.path('report.html'), self.path('bdm.prom')
        code, rows = self.bdm('audit', '--long', '--report', report,
                              '--prometheus', metrics, user='member')
        self.assertEqual(ExitCode.FINDINGS, code)
        self.assertEqual(
            {(v, 'volume-available', self.ask, 'look') for v in self.data},
            {(r['Volume'], r['Reason'], r['Action'], r['Remedy'])
             for r in rows})
        for row in rows:
            self.assertIn(HIDDEN, row['Explanation'])
        self.assertIn('3 findings: 3 to look at.', self.log.output)
        self.assertIn(HIDDEN, pathlib.Path(report).read_text())
        text = pathlib.Path(metrics).read_text()
        for reason, count in (('root-volume-dangling', 0),
                              ('volume-available', 3)):
            self.assertIn('nova_bdm_audit_findings{host="",reason="%s"} %d.0'
                          % (reason, count), text)
        # The administrator gets a command.
        code, rows = self.bdm('audit', '--all-projects', '--server',
                              self.guest)
        self.assertEqual(
            {('volume-available', 'openstack bdm clean ' + self.guest)},
            {(r['Reason'], r['Action']) for r in rows})

    def test_show_leaves_open_which_disk_is_the_root(self) -> None:
        code, rows = self.bdm('show', self.guest, user='member')
        self.assertEqual(ExitCode.FINDINGS, code)
        self.assertEqual([('healthy', 'keeps it', True, 'none')] + [(
            'volume-available',
            'keeps it if it is the root disk, which is not shown', None,
            self.ask)] * 3,
            [(r['Verdict'], r['Hard Reboot'], r['Connects'], r['Action'])
             for r in rows])
        self.assertIn('A hard reboot keeps it if it is the root disk, which '
                      'is not shown.', ' '.join(self.table(
                          'show', self.guest, user='member').split()))

    def test_show_of_a_busy_volume(self) -> None:
        """Do not say whether the guest comes back with the disk."""
        for volume in self.data:
            self.cloud.volumes[volume]['status'] = 'error'
        code, rows = self.bdm('show', self.guest, user='member')
        self.assertEqual(
            {('volume-busy', 'keeps it if it is the root disk, which is not '
              'shown', None)},
            {(r['Verdict'], r['Hard Reboot'], r['Connects'])
             for r in rows[1:]})

    def test_clean_refuses_a_hidden_root(self) -> None:
        self.bdm('audit', user='member')
        plan = self.path()
        pathlib.Path(plan).write_text(self.stdout.getvalue())
        self.assertEqual((ExitCode.OK, []), self.bdm(
            'clean', '--plan', plan, '--yes', user='member'))
        self.assertIn('The plan has nothing to clean', self.log.output)
        # Also by a plan of somebody who is shown the root.
        for arguments in ((self.guest,), ('--plan', self.plan())):
            code, rows = self.bdm('clean', *arguments, '--yes',
                                  user='member')
            self.assertEqual(ExitCode.REFUSED, code)
            for row in rows:
                self.assertTrue(row['Result'].startswith('refused: '), row)
                self.assertIn(HIDDEN, row['Result'])
        self.assertEqual(0, self.cloud.asked('POST'))
