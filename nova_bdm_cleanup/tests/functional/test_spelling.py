# SPDX-License-Identifier: Apache-2.0
"""Other spellings of ids, which make no difference for a dangling disk.

Cinder takes the id of a server in any form that Python takes for a UUID, from
any member of a project.  This Cinder compares it without case, as MariaDB
does, so its list has records whose ids are written in capital letters.
"""

from __future__ import annotations

import dataclasses

from cinderclient import exceptions

from nova_bdm_cleanup.tests.functional import commands, scenario


class SpellingTest(scenario.TwoDisks, commands.CommandTestCase):

    def create_attachment(self, text, volume, by=None, connected=False):
        """Make an attachment as a member of a project."""
        return self.cloud.create_attachment(
            dataclasses.replace(self.server, id=text), volume, connected,
            by=by or self.cloud.owner)

    def test_ids_that_cinder_accepts(self):
        for text in (self.server.id.upper(), self.server.id.replace('-', ''),
                     '{%s}' % self.server.id, 'urn:uuid:' + self.server.id):
            self.create_attachment(text, self.cloud.volume())
        for text in (self.server.id + ' ', self.server.id[:-1],
                     self.server.id.replace(self.server.id[0], '\xe1')):
            self.assertRaises(exceptions.BadRequest, self.create_attachment,
                              text, self.cloud.volume())

    def test_attachment_in_capitals(self):
        """Delete it as stale, as with the id in Nova's spelling."""
        other = self.cloud.volume()
        self.create_attachment(self.server.id.upper(), other)
        self.cloud.lose_attachment(self.server, self.lost)
        found = {self.lost: 'volume-available', other: 'stale-attachment'}
        _, rows = self.bdm('show', self.server.id)
        self.assertEqual({**found, self.kept: 'healthy'},
                         {row['Volume']: row['Verdict'] for row in rows})
        _, rows = self.bdm('audit', '--project', self.cloud.owner.project)
        self.assertEqual(found, {row['Volume']: row['Reason']
                                 for row in rows})
        self.check_removed(self.reboot(self.server))
        self.assertEqual((), self.cloud.attachments(other))
        self.assertEqual('available', self.volume_status(other))

    def test_mapping_in_capitals(self):
        """Remove it: Nova keeps the id in the user's spelling at boot."""
        with self.cloud.nova.database('cell1') as database:
            database.execute(
                'UPDATE block_device_mapping SET volume_id = upper(volume_id) '
                'WHERE instance_uuid = ?', (self.server.id,))
        self.cloud.lose_attachment(self.server, self.lost)
        self.reboot(self.server)
        self.assertEqual(
            [('removing', 'volume-available', self.lost),
             ('removed', 'volume-available', self.lost)],
            [(line.event, line.reason, line.volume)
             for line in self.log_lines(self.server)
             if line.event != 'finished'])
