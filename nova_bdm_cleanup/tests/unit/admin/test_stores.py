# SPDX-License-Identifier: Apache-2.0
"""The stores of other releases: read, continued, and left to them again."""

from __future__ import annotations

import json
import os

from nova_bdm_cleanup.admin import status
from nova_bdm_cleanup.node.store import database
from nova_bdm_cleanup.node.store.database import Database, StoreError
from nova_bdm_cleanup.node.store.findings import FindingStore, Round
from nova_bdm_cleanup.node.store.journal import (
    account_of,
    Charge,
    Journal,
    LimitReached,
    MAPPINGS,
)
from nova_bdm_cleanup.node.store.processes import Processes
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests import stores
from nova_bdm_cleanup.tests.unit import base as unit
from nova_bdm_cleanup.tests.unit.admin import base

#: Tables that a later release adds, for a feature that this one does not know.
LATER = (
    'CREATE TABLE lease (entry INTEGER PRIMARY KEY, until REAL)',
    'INSERT INTO lease SELECT serial, time FROM entry',
    "INSERT INTO feature VALUES ('leases', 1)")


class _StoreTest(base.CommandTest):

    def journal_at(self, moment=stores.BEGUN + 240):
        return Journal(self.path, clock=lambda: moment)

    def outcomes(self):
        return [entry.outcome for entry in self.journal_at().entries()]

    def add(self):
        """Add an entry with a step and an end, as a reboot does."""
        last = self.journal_at().entries()[-1]
        entry = self.journal_at().begin(last.record, [], server='a-server')
        entry.step('destroy', 'done', bdm='a-bdm')
        entry.finish('done', {})


class ReleaseTest(_StoreTest):
    """A store that the release before wrote."""

    def setUp(self):
        super().setUp()
        self.useFixture(unit.NoSyncing())
        self.version = stores.VERSIONS[-1]
        stores.make(self.version, self.path)

    def test_journal_of_earlier_release_is_read(self):
        code, out, _ = self.journal('list', '--json')
        entries = json.loads(out)
        self.assertEqual(
            (0, stores.OUTCOMES),
            (code, [entry['outcome'] for entry in entries]))
        for entry in entries:
            code, out, _ = self.journal('show', entry['entry'])
            self.assertEqual(0, code)
            for words in ('volume-available', self.version):
                self.assertIn(words, out)

    def test_removal_by_earlier_release_is_undone(self):
        """Undo what was removed; the others removed nothing."""
        removed, *others = self.journal_at().entries()
        code, out, _ = self.journal('undo', removed.id)
        self.assertEqual(0, code)
        self.assertIn('server add volume --device=/dev/vdc ' + stores.SERVER,
                      out)
        for entry in others:
            self.assertNotIn('server add volume',
                             self.journal('undo', entry.id)[1])

    def test_removals_by_earlier_release_count_for_limits(self):
        """Count what was removed within the last hour, and no longer."""
        account = account_of(MAPPINGS, 'project ' + stores.PROJECT)
        charge = Charge(account, 1, 2)
        journal = self.journal_at()
        self.assertEqual(2, unit.spent_of(journal, account))
        reached = self.assertRaises(
            LimitReached, journal.begin, {}, [charge], server='a-server')
        self.assertEqual((2, 2), (reached.done, reached.limit))
        later = self.journal_at(stores.BEGUN + 3700)
        self.assertEqual(1, unit.spent_of(later, account))
        later.begin({}, [charge], server='a-server').finish(
            'done', {account: 1})
        self.assertEqual(2, unit.spent_of(later, account))

    def test_status_of_earlier_release_is_shown(self):
        found = status.status_of(stores.HOST, self.path,
                                 stores.BEGUN + 3600)
        self.assertIs(status.State.NOT_ACTIVE, found.state)
        self.assertIn('has ended', found.why)
        self.assertEqual({'volume-available': 1}, found.findings)
        self.assertEqual(('project ' + stores.PROJECT, 2), found.charged)
        self.assertEqual((2, 3, 1), (found.last.servers, found.last.volumes,
                                     found.last.failed))
        self.assertEqual(self.version, Processes(
            self.path, stores.HOST).last().facts['version'])

    def test_store_of_earlier_release_is_continued(self):
        Database(self.path).check()
        self.add()
        findings = FindingStore(self.path, stores.HOST)
        known = findings.findings()
        changes = findings.record_success(
            stores.BEGUN + 7200, 0.0, 3600, Round(stores.BEGUN + 7200), known,
            ())
        self.assertEqual(['root-volume-dangling'],
                         [finding.reason for finding in changes.new])
        self.assertEqual([*stores.OUTCOMES, 'done'], self.outcomes())


class SchemaTest(_StoreTest):
    """A release writes what the release before can read."""

    def test_released_tables_are_not_changed(self):
        """Make the same tables for the features of each release."""
        for version in stores.VERSIONS:
            released = os.path.join(self.home, version)
            stores.make(version, released)
            features = {row[0] for row in unit.sql(
                released, 'SELECT name FROM feature')}
            self.assertLessEqual(features, set(database.SCHEMA))
            path = os.path.join(self.home, 'new-' + version)
            Database(path).check()
            for pragma in ('application_id', 'user_version'):
                self.assertEqual(unit.sql(released, 'PRAGMA ' + pragma),
                                 unit.sql(path, 'PRAGMA ' + pragma))
            self.assertLessEqual(set(unit.sql(
                released, 'SELECT name, version FROM feature')), set(
                unit.sql(path, 'SELECT name, version FROM feature')))
            self.assertLessEqual(set(stores.schema(released)),
                                 set(stores.schema(path)))

    def test_unchanged_by_a_change(self):
        stores.make('0.1.0', self.path)
        before = stores.schema(self.path)
        self.add()
        self.assertEqual(before, stores.schema(self.path))


class LaterTest(_StoreTest):
    """A store that a later release wrote, before the way back."""

    def setUp(self):
        super().setUp()
        stores.make(stores.VERSIONS[-1], self.path)

    def test_a_new_feature_is_ignored(self):
        for statement in LATER:
            unit.sql(self.path, statement)
        before = stores.schema(self.path)
        Database(self.path).check()
        self.add()
        self.assertEqual([*stores.OUTCOMES, 'done'], self.outcomes())
        self.assertEqual(0, self.journal('list')[0])
        # The later release finds its table as it was.
        self.assertEqual(before, stores.schema(self.path))
        self.assertEqual(4, len(unit.sql(self.path, 'SELECT * FROM lease')))

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
            for action in (self.journal_at().entries, self.add,
                           Database(self.path).check):
                self.assertEqual(said, str(
                    self.assertRaises(StoreError, action)))
            unit.sql(self.path, 'PRAGMA user_version = 1')
