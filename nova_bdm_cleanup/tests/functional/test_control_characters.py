# SPDX-License-Identifier: Apache-2.0
"""What a tenant wrote does not reach the operator's terminal as it is.

The host of a connector is free text: escape sequences in it can hide lines
and change what is on the screen.
"""

from __future__ import annotations

import dataclasses

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import test_fleet

EVIL = 'evil\x1b[2J\x1b]0;title\x07\x9b31m\r\nroot\x08\x7f\x00end'
#: What may reach a terminal.
FORMATS = ('table', 'value', 'yaml')


def _controls(text: str, allowed: str = '') -> list[str]:
    return [character for character in text
            if (ord(character) < 32 or 127 <= ord(character) < 160)
            and character not in allowed]


class ControlCharactersTest(test_fleet.FleetTest):

    def setUp(self):
        super().setUp()
        self.evil = EVIL.replace('\x00', '')

    def check(self, name, *arguments, volume):
        """Look at what is printed, in every format that people read."""
        _, rows = self.bdm(name, *arguments)
        shown = [row for row in rows if row['Volume'] == volume]
        self.assertNotEqual([], shown)
        cells = [str(cell) for row in rows for cell in row.values()]
        # It is told all the same, so that the operator sees whose it is.
        self.assertIn('evil', ' '.join(cells))
        self.assertEqual([], _controls(self.stderr.getvalue(), '\n'))
        for form in FORMATS:
            _, text = self.bdm(name, *arguments, form=form)
            self.assertEqual([], _controls(text, '\n'))
            self.assertEqual([], _controls(self.stderr.getvalue(), '\n'))

    def test_show(self):
        server = self.cloud.server(fixture.Disk())
        volume = self.cloud.volume()
        self.cloud.leave_attachment(server, volume, host=self.evil,
                                    by=self.cloud.owner)
        self.check('show', server.id, volume=volume)

    def test_audit(self):
        """The server is gone, so only Cinder tells of a host."""
        volume = self.cloud.volume()
        self.cloud.leave_attachment(
            dataclasses.replace(self.ghost(), host=self.evil), volume,
            by=self.cloud.owner)
        self.check('audit', '--project', self.cloud.owner.project,
                   volume=volume)

    def test_release(self):
        volume = self.cloud.volume()
        self.cloud.leave_attachment(
            dataclasses.replace(self.ghost(), host=self.evil), volume,
            by=self.cloud.owner)
        self.check('release', volume, '--dry-run', volume=volume)

    def test_log_of_a_reboot(self):
        """One finding is one line, whatever somebody called his host."""
        server = self.cloud.server(fixture.Disk())
        volume = self.cloud.volume()
        self.cloud.leave_attachment(server, volume, host=self.evil,
                                    by=self.cloud.owner)
        self.cloud.reboot(server)
        lines = self.cloud.log('bdm-cleanup')
        self.assertEqual([], _controls(''.join(lines)))
