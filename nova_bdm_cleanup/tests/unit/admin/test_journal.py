# SPDX-License-Identifier: Apache-2.0
"""Listing, showing and exporting the entries of a store."""

from __future__ import annotations

import json
import os
from unittest import mock

from nova_bdm_cleanup.node.store.journal import Journal
from nova_bdm_cleanup.tests.unit.admin import base
from nova_bdm_cleanup.tests.unit.base import sql


class ListTest(base.CommandTest):

    def test_table_shows_each_entry(self):
        first = self.record(base.removal(1), base.removal(2), done=[1],
                            end='partly', trigger='start')
        self.now += 60
        second = self.record(base.stale(3), server=base.OTHER, end=None)
        code, out, err = self.journal('list')
        self.assertEqual((0, ''), (code, err))
        self.assertEqual([
            'Entry     Time (UTC)           Server' + ' ' * 32
            + 'Trigger      Removed  Outcome',
            '%s  2027-01-15 12:00:00  %s  start        1 of 2   partly'
            % (first, base.SERVER),
            '%s  2027-01-15 12:01:00  %s  hard_reboot  0 of 0   interrupted'
            % (second, base.OTHER)], out.splitlines())

    def test_reconnects_are_no_removals(self):
        self.record(base.removal(1), base.reconnect(2), done=[1])
        self.record(base.reconnect(2))
        out = self.journal('list')[1]
        self.assertIn('1 of 1   done', out.splitlines()[1])
        self.assertIn('0 of 0   done', out.splitlines()[2])

    def test_filters_select_by_server_and_time(self):
        first = self.record(base.removal(1))
        self.now += 3600
        second = self.record(base.removal(2), server=base.OTHER)
        for words, expected in (
                (('--server', base.SERVER), [first]),
                (('--server', base.OTHER), [second]),
                (('--server', '{%s}' % base.OTHER.upper()), [second]),
                (('--since', '2027-01-15T12:30'), [second]),
                (('--since', '2027-01-15T12:30:00Z'), [second]),
                (('--since', '2027-01-15T13:30+02:00'), [first, second]),
                (('--since', '2027-01-15'), [first, second]),
                (('--since', '2027-01-15', '--server', base.OTHER), [second]),
                (('--since', '2027-01-16'), []),
                (('--server', 'nobody'), [])):
            code, out, err = self.journal('list', '--json', *words)
            self.assertEqual(expected,
                             [e['entry'] for e in json.loads(out)], words)
            self.assertEqual(0 if expected else 1, code)

    def test_since_accepts_an_age(self):
        entry = self.record(base.removal(1))
        with mock.patch('time.time', autospec=True,
                        return_value=base.NOON + 7200):
            for age, code in (('3h', 0), ('1d', 0), ('1w', 0), ('1h', 1),
                              ('119m', 1), ('7201s', 0)):
                self.assertEqual(
                    code, self.journal('list', '--since', age)[0], age)
        self.assertIn(entry, self.journal('list')[1])

    def test_missing_journal_is_not_created(self):
        code, out, err = self.journal('list')
        self.assertEqual((1, ''), (code, out))
        self.assertIn(self.path, err)
        self.assertFalse(os.path.exists(self.path))

    def test_newer_store_is_refused(self):
        self.record(base.removal(1))
        sql(self.path, 'UPDATE feature SET version = 7')
        code, out, err = self.journal('list')
        self.assertEqual((3, ''), (code, out))
        self.assertIn('version 7', err)


class ShowTest(base.CommandTest):

    def test_text_shows_actions_without_control_characters(self):
        entry = self.record(base.removal(1, tag='db\x1b[2J'), base.stale(3),
                            done=[1], trigger='host_boot')
        code, out, err = self.journal('show', entry)
        self.assertEqual((0, ''), (code, err))
        for words in (entry, '2027-01-15 12:00:00 UTC', base.SERVER,
                      'a-project', 'req-1', 'host_boot',
                      'remove-bdm (volume-available): because',
                      'delete-attachment (stale-attachment): unused',
                      'bdm device_name', '/dev/vdb', 'attachment id',
                      'destroy', 'bdm bdm-1, volume %s' % base.volume(1)):
            self.assertIn(words, out)
        # A tag of a tenant does not clear the operator's screen.
        self.assertNotIn('\x1b', out)
        self.assertIn('db\\x1b[2J', out)

    def test_text_shows_what_a_reconnect_has_replaced(self):
        entry = self.record(base.reconnect(1))
        out = self.journal('show', entry)[1]
        for words in ('reconnect (half-moved): because', 'bdm device_name',
                      'attachment id', 'att-1'):
            self.assertIn(words, out)

    def test_json_shows_the_whole_record(self):
        entry = self.record(base.removal(1), done=[1])
        code, out, err = self.journal('show', '--json', entry)
        shown = json.loads(out)
        self.assertEqual(['entry', 'time', 'outcome', 'removed', 'steps',
                          'record'], list(shown))
        self.assertEqual('2027-01-15T12:00:00Z', shown['time'])
        self.assertEqual(['bdm-1'], shown['removed'])
        self.assertEqual(base.removal(1), shown['record']['actions'][0])

    def test_unknown_entry_is_named(self):
        self.record(base.removal(1))
        code, out, err = self.journal('show', 'nonsense')
        self.assertEqual((1, ''), (code, out))
        self.assertIn('no entry nonsense', err)

    def test_records_of_any_form_are_shown(self):
        """Accept records that the cleaner itself never writes."""
        journal = Journal(self.path, base.MIB4, lambda: self.now)
        for record in ({}, {'actions': 5, 'findings': 'x', 'server': []},
                       {'actions': [None, {}, {'kind': 'remove-bdm'},
                                    {'kind': 'remove-bdm', 'bdm': {},
                                     'attachments': [{}]},
                                    {'kind': 'delete-attachment',
                                     'attachment': []}]}):
            entry = journal.begin(record, [], server='s')
            for words in (('show', entry.id), ('show', entry.id, '--json'),
                          ('list',)):
                self.assertEqual(0, self.journal(*words)[0])
            self.assertEqual(1, self.journal('undo', entry.id)[0])
