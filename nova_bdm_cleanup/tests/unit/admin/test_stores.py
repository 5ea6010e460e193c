# SPDX-License-Identifier: Apache-2.0
"""The stores of later releases, before the way back."""

from __future__ import annotations

import json

from nova_bdm_cleanup.node.store.database import Database, StoreError
from nova_bdm_cleanup.node.store.journal import Journal
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import base as unit
from nova_bdm_cleanup.tests.unit.admin import base

#: Tables that a later release adds, for a feature that this one does not know.
LATER = (
    'CREATE TABLE lease (entry INTEGER PRIMARY KEY, until REAL)',
    'INSERT INTO lease SELECT serial, time FROM entry',
    "INSERT INTO feature VALUES ('leases', 1)")


class LaterTest(base.CommandTest):

    def setUp(self):
        super().setUp()
        self.record(base.removal(1), done=[1])

    def outcomes(self):
        return [entry.outcome for entry in Journal(self.path).entries()]

    def schema(self):
        """Return name and statement of all tables and indexes."""
        return unit.sql(self.path, 'SELECT name, sql FROM sqlite_master '
                                   'WHERE sql IS NOT NULL ORDER BY name')

    def test_a_new_feature_is_ignored(self):
        for statement in LATER:
            unit.sql(self.path, statement)
        before = self.schema()
        Database(self.path).check()
        self.record(base.removal(2), done=[2])
        self.assertEqual(['done', 'done'], self.outcomes())
        self.assertEqual(0, self.journal('list')[0])
        # The later release finds its table as it was.
        self.assertEqual(before, self.schema())
        self.assertEqual(1, len(unit.sql(self.path, 'SELECT * FROM lease')))

    def test_a_new_version_is_refused_by_the_commands(self):
        said = ('store %s: it is of version 2, this release knows version 1; '
                'install the release that wrote it, or move the file away and '
                'restart nova-compute, which creates a new one' % self.path)
        conf = self.write('[DEFAULT]\nhost = compute1\n[bdm_cleanup]\n'
                          'store = %s\n' % self.path)
        for statement in ('PRAGMA user_version = 2',
                          "INSERT INTO feature VALUES ('leases', 2)"):
            unit.sql(self.path, statement)
            code, out, _ = self.call('status', '--config-file', conf, '--json')
            found = json.loads(out)
            self.assertEqual((ExitCode.PARTLY, 'cannot-tell', said),
                             (code, found['state'], found['why']))
            code, _, err = self.call('journal', 'list', '--config-file', conf)
            self.assertNotEqual(0, code)
            self.assertIn(said, err)
            for action in (self.outcomes,
                           lambda: self.record(base.removal(2), done=[2]),
                           Database(self.path).check):
                self.assertEqual(said, str(
                    self.assertRaises(StoreError, action)))
            unit.sql(self.path, 'PRAGMA user_version = 1')
