# SPDX-License-Identifier: Apache-2.0
"""Other spellings of ids, which make no difference for a dangling disk.

Cinder takes the id of a server in any form that Python takes for a UUID, from
any member of a project.  This Cinder compares it without case, as MariaDB
does, so its list has records whose ids are written in capital letters.
"""

from __future__ import annotations

import dataclasses

from nova_bdm_cleanup.tests.functional import commands, scenario


class SpellingTest(scenario.TwoDisks, commands.CommandTestCase):

    def create_attachment(self, text, volume, by=None, connected=False):
        """Make an attachment as a member of a project."""
        return self.cloud.create_attachment(
            dataclasses.replace(self.server, id=text), volume, connected,
            by=by or self.cloud.owner)

    def test_mapping_and_attachment_in_capitals(self):
        """Remove both, as with the ids in Nova's spelling."""
        other = self.cloud.volume()
        self.create_attachment(self.server.id.upper(), other)
        # Nova keeps the id in the user's spelling at boot.
        with self.cloud.nova.database('cell1') as database:
            database.execute(
                'UPDATE block_device_mapping SET volume_id = upper(volume_id) '
                'WHERE volume_id = ?', (self.lost,))
        self.cloud.lose_attachment(self.server, self.lost)
        found = {self.lost: 'volume-available', other: 'stale-attachment'}
        _, rows = self.bdm('show', self.server.id)
        self.assertEqual({**found, self.kept: 'healthy'},
                         {row['Volume']: row['Verdict'] for row in rows})
        _, rows = self.bdm('audit', '--project', self.cloud.owner.project)
        self.assertEqual(found, {row['Volume']: row['Reason']
                                 for row in rows})
        view = self.reboot(self.server)
        self.check_removed(view)
        self.assertEqual([self.kept], [
            row.volume_id for row in view.block_devices if row.volume_id])
        self.assertEqual({(self.lost, 'volume-available'),
                          (other, 'stale-attachment')},
                         {(line.volume, line.reason) for line in
                          self.log_lines(self.server, 'removed')})
        self.assertEqual((), self.cloud.attachments(other))
        self.assertEqual('available', self.volume_status(other))
