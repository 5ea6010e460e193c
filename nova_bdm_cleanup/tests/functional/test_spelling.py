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


class SpellingTest(scenario.TwoDisks, commands.Commands):

    def write(self, text, volume, by=None, connected=False):
        """Make an attachment as a member of a project."""
        return self.cloud.create_attachment(
            dataclasses.replace(self.made, id=text), volume, connected,
            by=by or self.cloud.owner)

    def test_what_cinder_takes(self):
        for text in (self.made.id.upper(), self.made.id.replace('-', ''),
                     '{%s}' % self.made.id, 'urn:uuid:' + self.made.id):
            self.write(text, self.cloud.volume())
        for text in (self.made.id + ' ', self.made.id[:-1],
                     self.made.id.replace(self.made.id[0], '\xe1')):
            self.assertRaises(exceptions.BadRequest, self.write, text,
                              self.cloud.volume())

    def test_a_record_of_the_own_project(self):
        """Delete it as stale, as with the id in Nova's spelling."""
        other = self.cloud.volume()
        self.write(self.made.id.upper(), other)
        self.cloud.lose_attachment(self.made, self.lost)
        found = {self.lost: 'volume-available', other: 'stale-attachment'}
        _, rows = self.bdm('show', self.made.id)
        self.assertEqual({**found, self.kept: 'healthy'},
                         {row['Volume']: row['Verdict'] for row in rows})
        _, rows = self.bdm('audit', '--project', self.cloud.owner.project)
        self.assertEqual(found, {row['Volume']: row['Reason']
                                 for row in rows})
        self.check_removed(self.reboot(self.made))
        self.assertEqual((), self.cloud.attachments(other))
        self.assertEqual('available', self.volume_status(other))

    def test_the_row_of_a_server_that_was_booted_from_the_volume(self):
        """Remove it: Nova keeps the id in the user's spelling at boot."""
        with self.cloud.nova.database('cell1') as database:
            database.execute(
                'UPDATE block_device_mapping SET volume_id = upper(volume_id) '
                'WHERE instance_uuid = ?', (self.made.id,))
        self.cloud.lose_attachment(self.made, self.lost)
        self.reboot(self.made)
        self.assertEqual(
            [('removing', 'volume-available', self.lost),
             ('removed', 'volume-available', self.lost)],
            [(line.event, line.reason, line.volume)
             for line in self.audit(self.made) if line.event != 'finished'])
