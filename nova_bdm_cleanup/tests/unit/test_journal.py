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
"""The journal on real files, with real processes and a really full disk."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from unittest import mock

import fixtures
import hypothesis
from hypothesis import stateful
from hypothesis import strategies
from testtools import matchers

import nova_bdm_cleanup
from nova_bdm_cleanup import journal as journals
from nova_bdm_cleanup.tests.unit import base

SOMEBODY = 65534
MIB = 1024 * 1024
RECORD = {'server': 'a-server', 'actions': [], 'findings': []}


class Clock:
    """Stands still until it is told to go."""

    def __init__(self, now=1_800_000_000.25):
        self.now = now

    def __call__(self):
        return self.now


@contextlib.contextmanager
def full_disk(size):
    """No file of this process can become larger than that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def sync_failing(path, error):
    """An fsync that fails for one file."""
    fsync = os.fsync

    def sync(fd):
        if os.readlink('/proc/self/fd/%d' % fd) == path:
            raise error
        fsync(fd)

    return sync


def count(journal):
    """What the journal counts for the hour; writes nothing."""
    try:
        journal.begin(RECORD, 1, 0)
    except journals.LimitReached as reached:
        return reached.done
    raise AssertionError('the limit was not seen')


class JournalTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = os.path.join(self.tempdir(), 'bdm-cleanup')
        self.path = os.path.join(self.directory, 'journal.jsonl')
        self.clock = Clock()

    def journal(self, max_bytes=MIB, backups=5):
        return journals.Journal(self.path, max_bytes, backups, self.clock)

    def contents(self):
        with open(self.path, 'rb') as file:
            return file.read()

    def write(self, data, path=None):
        os.makedirs(self.directory, 0o700, exist_ok=True)
        fd = os.open(path or self.path,
                     os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(fd, 'wb') as file:
            file.write(data)

    def refusal(self, journal=None):
        """What begin() says when it refuses."""
        error = self.assertRaises(journals.JournalError,
                                  (journal or self.journal()).begin,
                                  RECORD, 1, 9)
        self.assertIn(self.directory, str(error))
        return str(error)

    def assertMode(self, mode, path):
        self.assertEqual(oct(mode), oct(stat.S_IMODE(os.stat(path).st_mode)))


class TestFormat(JournalTest):

    def test_entry_comes_back_as_written(self):
        entry = self.journal().begin(dict(RECORD, note='é\n'), 2, 9)
        self.clock.now += 1
        entry.step('power-off', 'done')
        entry.step('destroy', 'done', bdm='b1', volume='v1')
        entry.step('destroy', 'failed', bdm='b2', detail='no')
        entry.finish('partly')

        [found] = self.journal().entries()
        self.assertEqual(entry.id, found.id)
        self.assertEqual(self.clock.now - 1, found.time)
        self.assertEqual(dict(RECORD, note='é\n'), found.record)
        self.assertEqual(2, found.removals)
        self.assertEqual('partly', found.outcome)
        self.assertEqual(('b1',), found.removed)
        self.assertEqual(
            [('power-off', 'done', {}),
             ('destroy', 'done', {'bdm': 'b1', 'volume': 'v1'}),
             ('destroy', 'failed', {'bdm': 'b2', 'detail': 'no'})],
            [(s.name, s.outcome, s.subject) for s in found.steps])

    def test_lines_are_stable(self):
        """What is on disk must stay readable: change it with a version."""
        entry = self.journal().begin(RECORD, 1, 9)
        entry.step('destroy', 'done', bdm='b1')
        entry.finish('done')
        head = {'version': 1, 'entry': entry.id, 'time': self.clock.now}
        self.assertEqual(
            [dict(head, event='plan', removals=1, record=RECORD),
             dict(head, event='step', name='destroy', outcome='done',
                  subject={'bdm': 'b1'}),
             dict(head, event='end', outcome='done')],
            [json.loads(line) for line in self.contents().splitlines()])

    def test_without_end_is_interrupted(self):
        self.journal().begin(RECORD, 1, 9)
        [found] = self.journal().entries()
        self.assertEqual(journals.INTERRUPTED, found.outcome)

    def test_finishing_twice_writes_once(self):
        entry = self.journal().begin(RECORD, 1, 9)
        entry.finish('done')
        before = self.contents()
        entry.finish('partly')
        self.assertEqual(before, self.contents())

    def test_ids_are_short_and_in_order(self):
        journal = self.journal()
        ids = [journal.begin(RECORD, 0, 9).id for _ in range(50)]
        self.clock.now += 1
        ids.append(journal.begin(RECORD, 0, 9).id)
        self.assertEqual(sorted(set(ids)), ids)
        self.assertEqual({8}, set(map(len, ids)))

    def test_ids_stay_unique_when_the_clock_is_set_back(self):
        journal = self.journal(max_bytes=400)
        ids = []
        for hours in (0, -2, 3, -3, 0, -1):
            self.clock.now += hours * 3600
            ids.append(journal.begin(RECORD, 0, 9).id)
        self.assertEqual(sorted(set(ids)), ids)

    def test_ids_follow_those_of_older_files(self):
        journal = self.journal(max_bytes=1)
        entry = journal.begin(RECORD, 0, 9)
        latest = journal.begin(RECORD, 0, 9)
        self.clock.now -= 7200
        # Now the newest file holds no plan and is from before the hour.
        entry.step('power-off', 'done')
        self.clock.now += 3601
        self.assertThat(journal.begin(RECORD, 0, 9).id,
                        matchers.GreaterThan(latest.id))

    def test_what_json_does_not_know_is_written_as_text(self):
        self.journal().begin({'at': self}, 0, 9)
        [found] = self.journal().entries()
        self.assertEqual(str(self), found.record['at'])

    def test_nothing_there(self):
        self.assertEqual([], list(self.journal().entries()))
        self.assertFalse(os.path.exists(self.directory))
        self.assertEqual(((), 0, ()), (
            *[getattr(journals.read(self.path), name)
              for name in ('entries', 'skipped', 'files')],))


class TestDamage(JournalTest):

    def test_torn_line_is_skipped_and_the_next_starts_afresh(self):
        journal = self.journal()
        first = journal.begin(RECORD, 1, 9)
        first.finish('done')
        intact = self.contents()
        journal.begin(RECORD, 1, 9)
        os.truncate(self.path, len(self.contents()) - 5)

        third = journal.begin(RECORD, 1, 9)
        third.step('destroy', 'done', bdm='b')
        third.finish('done')
        self.assertTrue(self.contents().startswith(intact))
        found = journals.read(self.path)
        self.assertEqual(1, found.skipped)
        self.assertEqual([(first.id, 'done'), (third.id, 'done')],
                         [(e.id, e.outcome) for e in found.entries])
        list(journal.entries())
        self.assertIn('1 lines of the journal', self.log.output)

    def test_every_way_to_tear_the_last_line(self):
        journal = self.journal()
        kept = journal.begin(RECORD, 1, 9).id
        start = len(self.contents())
        journal.begin(RECORD, 1, 9)
        whole = self.contents()
        for size in range(start, len(whole)):
            os.truncate(self.path, size)
            found = [e.id for e in journals.read(self.path).entries]
            # Only the newline missing: the line is whole.
            complete = size >= len(whole) - 1
            self.assertEqual(1 + complete, len(found), size)
            self.assertEqual(kept, found[0])
            os.truncate(self.path, 0)
            self.write(whole)

    def test_garbage_is_skipped_and_counted(self):
        entry = self.journal().begin(RECORD, 1, 9)
        head = b'{"version": 1, "entry": "x", "time": 1, '
        garbage = [
            b'\0' * 100, b'\xff\xfe', b'null', b'[]', b'"text"', b'{}', b'7',
            b'{' * 100000, b'{"a":' * 100000, b'1' * 5000,
            b'{"version": "2", "event": "end"}',
            b'{"version": true, "event": "end"}',
            head + b'"event": "other"}', head + b'"event": ["end"]}',
            head + b'"event": "end"}', head + b'"event": "end", "outcome": 1}',
            head + b'"event": "plan", "removals": "1", "record": {}}',
            head + b'"event": "plan", "removals": 1, "record": []}',
            head + b'"event": "step", "name": "a", "outcome": "b"}',
            b'{"version": 1, "entry": 5, "time": 1, "event": "end", '
            b'"outcome": "done"}',
        ] + [b'{"version": 1, "entry": "x", "time": %s, "event": "end", '
             b'"outcome": "done"}' % moment for moment in (
                 b'"1"', b'true', b'null', b'NaN', b'Infinity', b'-1', b'1e99',
                 b'1' * 400)]
        self.write(b'\n'.join(garbage) + b'\n')
        entry.step('destroy', 'done', bdm='b')
        entry.finish('done')
        found = journals.read(self.path)
        self.assertEqual(len(garbage), found.skipped)
        self.assertEqual([(entry.id, 'done')],
                         [(e.id, e.outcome) for e in found.entries])
        self.assertEqual(1, count(self.journal()))

    @hypothesis.settings(database=None, deadline=None)
    @hypothesis.given(strategies.lists(strategies.one_of(
        strategies.binary(max_size=60),
        strategies.fixed_dictionaries(
            {'version': strategies.sampled_from([1, 0, None, '1']),
             'event': strategies.sampled_from(['plan', 'step', 'end', 1])},
            optional={
                'entry': strategies.sampled_from(['a', 'b', '', 7]),
                'time': strategies.one_of(
                    strategies.floats(), strategies.integers()),
                'removals': strategies.integers(),
                'record': strategies.just({}),
                'name': strategies.just('destroy'),
                'outcome': strategies.sampled_from(['done', {}]),
                'subject': strategies.sampled_from(
                    [{}, {'bdm': []}, {'bdm': 'b'}]),
            }).map(lambda d: json.dumps(d).encode()))))
    def test_no_content_stops_readers_or_writers(self, lines):
        lines = [line for line in lines if b'\n' not in line]
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, 'journal')
            self.write(b'\n'.join(lines), path)
            journal = journals.Journal(path, MIB, 5, self.clock)
            before = journals.read(path)
            entry = journal.begin(RECORD, 1, MIB)
            after = journals.read(path)
            self.assertEqual(before.entries, after.entries[:-1])
            self.assertEqual(before.skipped, after.skipped)
            self.assertEqual(entry.id, after.entries[-1].id)
            self.assertNotIn(entry.id, [e.id for e in before.entries])


class TestNewerVersion(JournalTest):

    LINE = (b'{"version": 2, "entry": "x", "time": 1, "event": "novel"}\n')

    def test_is_refused_and_not_touched(self):
        self.journal().begin(RECORD, 1, 9)
        self.write(self.LINE)
        before = self.contents()
        for journal in (self.journal(), self.journal(max_bytes=1)):
            error = self.refusal(journal)
            self.assertIn('version 2', error)
            self.assertIn('install the release that wrote it', error)
            self.assertRaises(journals.NewerVersion, journal.check)
        self.assertRaises(journals.NewerVersion, journals.read, self.path)
        self.assertEqual(before, self.contents())
        self.assertEqual(['journal.jsonl', 'journal.jsonl.lock'],
                         sorted(os.listdir(self.directory)))

    def test_in_a_rotated_file(self):
        self.write(self.LINE, self._make(self.path + '.3'))
        self.assertRaises(journals.NewerVersion, journals.read, self.path)
        self.assertRaises(journals.NewerVersion, self.journal().check)

    def _make(self, path):
        os.makedirs(self.directory, 0o700)
        return path


class TestFiles(JournalTest):

    def test_private_from_the_start(self):
        old = os.umask(0)
        self.addCleanup(os.umask, old)
        self.journal().check()
        self.assertMode(0o700, self.directory)
        self.assertMode(0o600, self.path)
        self.assertMode(0o600, self.path + '.lock')

    def test_check_is_harmless(self):
        self.journal().begin(RECORD, 1, 9)
        before = self.contents()
        self.journal().check()
        self.assertEqual(before, self.contents())

    def test_symbolic_link(self):
        self.journal().check()
        target = os.path.join(self.directory, 'target')
        self.write(b'', target)
        os.unlink(self.path)
        os.symlink(target, self.path)
        self.assertIn('symbolic link', self.refusal())
        self.assertRaises(journals.JournalError, journals.read, self.path)
        self.assertEqual(0, os.path.getsize(target))

    def test_dangling_symbolic_link(self):
        self.journal().check()
        os.unlink(self.path)
        os.symlink(self.path + '-target', self.path)
        self.assertIn('symbolic link', self.refusal())
        self.assertFalse(os.path.exists(self.path + '-target'))

    def test_lock_is_a_symbolic_link(self):
        os.makedirs(self.directory, 0o700)
        os.symlink(self.path + '-target', self.path + '.lock')
        self.assertIn(self.path + '.lock', self.refusal())

    def test_writable_by_others(self):
        self.journal().check()
        for name in (self.path, self.path + '.lock'):
            for mode in (0o620, 0o602):
                os.chmod(name, mode)
                self.assertThat(self.refusal(), matchers.MatchesAll(
                    matchers.Contains(name + ':'),
                    matchers.Contains('%04o' % mode),
                    matchers.Contains('chmod 0600')))
                os.chmod(name, 0o600)

    def test_of_another_user(self):
        self.journal().check()
        status = os.stat(self.directory)
        theirs = os.stat_result([*status[:4], 4321, *status[5:]])
        with mock.patch.object(os, 'stat', autospec=True,
                               return_value=theirs):
            self.assertIn('owner 4321', self.refusal())
            with mock.patch.object(os, 'geteuid', autospec=True,
                                   return_value=4321):
                self.assertThat(self.refusal(), matchers.MatchesAll(
                    matchers.Contains('belongs to user'),
                    matchers.Contains('chown')))

    def test_directory_that_others_can_change(self):
        os.makedirs(self.directory)
        for mode in (0o770, 0o707, 0o777):
            os.chmod(self.directory, mode)
            self.assertIn('chmod 0700', self.refusal())
        os.chmod(self.directory, 0o1777)  # noqa: S103
        self.journal().check()

    def test_not_a_file(self):
        os.makedirs(self.directory)
        os.mkfifo(self.path)
        self.assertIn('not a regular file', self.refusal())
        self.assertRaises(journals.JournalError, journals.read, self.path)
        os.unlink(self.path)
        os.mkdir(self.path)
        self.assertIn('not a regular file', self.refusal())

    def test_no_parent_directory(self):
        os.rmdir(os.path.dirname(self.directory))
        self.assertThat(self.refusal(), matchers.MatchesAll(
            matchers.Contains(os.strerror(errno.ENOENT)),
            matchers.Contains('make the directory')))

    def test_directory_is_a_file(self):
        with open(self.directory, 'w'):
            pass
        self.assertIn(os.strerror(errno.ENOTDIR), self.refusal())

    def test_no_permission(self):
        os.mkdir(self.directory, 0o500)
        if os.geteuid() == 0:
            self._let_others_in()
            os.chown(self.directory, SOMEBODY, SOMEBODY)
            os.seteuid(SOMEBODY)
            self.addCleanup(os.seteuid, 0)
        self.assertThat(self.refusal(), matchers.MatchesAll(
            matchers.Contains(os.strerror(errno.EACCES)),
            matchers.Contains('user that nova-compute runs as')))

    def test_nobody_else_may_read(self):
        self.journal().begin(RECORD, 1, 9)
        if os.geteuid() != 0:
            self.skipTest('needs a second user')
        self._let_others_in()
        os.seteuid(SOMEBODY)
        self.addCleanup(os.seteuid, 0)
        error = self.assertRaises(journals.JournalError, journals.read,
                                  self.path)
        self.assertIn('become that user or root', str(error))

    def _let_others_in(self):
        os.chmod(os.path.dirname(self.directory), 0o711)  # noqa: S103

    def test_read_only_file_system(self):
        self.journal().check()
        with mock.patch.object(os, 'open', autospec=True, side_effect=OSError(
                errno.EROFS, os.strerror(errno.EROFS), self.path)):
            self.assertIn('make the file system writable', self.refusal())

    def test_reading_makes_no_file(self):
        self.journal().begin(RECORD, 1, 9)
        os.unlink(self.path + '.lock')
        self.assertEqual(1, len(journals.read(self.path).entries))
        self.assertEqual(['journal.jsonl'], os.listdir(self.directory))

    def test_relative_path(self):
        os.makedirs(self.directory, 0o700)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.directory)
        journal = journals.Journal('journal.jsonl', MIB, 5, self.clock)
        os.chdir('/')
        journal.begin(RECORD, 1, 9)
        self.assertEqual(1, len(journals.read(self.path).entries))

    def test_plan_and_end_survive_a_crash_of_the_host(self):
        """It is synced; a power cut itself is beyond a unit test."""
        synced = []
        fsync = os.fsync

        def note(fd):
            synced.append(os.readlink('/proc/self/fd/%d' % fd))
            fsync(fd)

        with mock.patch.object(os, 'fsync', note):
            entry = self.journal().begin(RECORD, 1, 9)
            self.assertEqual(
                [os.path.dirname(self.directory), self.directory, self.path],
                synced)
            del synced[:]
            entry.step('power-off', 'done')
            self.assertEqual([], synced)
            entry.finish('done')
            self.assertEqual([self.path], synced)
            del synced[:]
            self.journal(max_bytes=1).begin(RECORD, 1, 9)
            self.assertEqual([self.path, self.directory, self.path], synced)

    def test_no_descriptor_is_left_open(self):
        journal = self.journal(max_bytes=300)
        journal.begin(RECORD, 1, 99)
        before = os.listdir('/proc/self/fd')
        for _ in range(5):
            journal.begin(RECORD, 1, 99).finish('done')
            list(journal.entries())
        with full_disk(10):
            self.refusal(self.journal())
        os.chmod(self.path, 0o622)  # noqa: S103
        self.refusal()
        self.assertEqual(before, os.listdir('/proc/self/fd'))


class TestFullDisk(JournalTest):

    def test_half_a_plan_is_taken_back(self):
        journal = self.journal()
        journal.begin(RECORD, 1, 9)
        before = self.contents()
        for spare in (0, 1, 20, 100):
            with full_disk(len(before) + spare):
                error = self.refusal(journal)
            self.assertIn(os.strerror(errno.EFBIG), error)
            self.assertIn('file size limit', error)
            self.assertEqual(before, self.contents())
        journal.begin(RECORD, 1, 9)
        self.assertEqual(2, len(journals.read(self.path).entries))

    def test_every_errno_has_words(self):
        journal = self.journal()
        journal.check()
        for number in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            with mock.patch.object(os, 'write', autospec=True,
                                   side_effect=OSError(
                                       number, os.strerror(number))):
                self.assertIn(os.strerror(number) + ';', self.refusal(journal))
        self.assertEqual(b'', self.contents())

    def test_plan_that_did_not_reach_the_disk_is_taken_back(self):
        journal = self.journal()
        journal.check()
        sync = sync_failing(self.path, OSError(errno.EIO, 'no'))
        with mock.patch.object(os, 'fsync', sync):
            self.assertIn(os.strerror(errno.EIO), self.refusal(journal))
        self.assertEqual(b'', self.contents())

    def test_when_it_cannot_be_taken_back_the_next_line_is_a_fresh_one(self):
        journal = self.journal()
        journal.check()
        with full_disk(30), mock.patch.object(
                os, 'ftruncate', autospec=True,
                side_effect=OSError(errno.EIO, 'no')):
            self.assertIn(os.strerror(errno.EFBIG), self.refusal(journal))
        self.assertEqual(30, len(self.contents()))
        entry = journal.begin(RECORD, 1, 9)
        [found] = journal.entries()
        self.assertEqual(entry.id, found.id)

    def test_steps_are_kept_until_they_can_be_written(self):
        entry = self.journal().begin(RECORD, 2, 9)
        with full_disk(len(self.contents())):
            for bdm in ('b1', 'b2'):
                self.assertRaises(journals.JournalError, entry.step,
                                  'destroy', 'done', bdm=bdm)
        self.assertEqual(2, count(self.journal()))
        entry.finish('done')
        [found] = self.journal().entries()
        self.assertEqual(('b1', 'b2'), found.removed)
        self.assertEqual(2, count(self.journal()))

    def test_end_is_kept_until_it_can_be_written(self):
        entry = self.journal().begin(RECORD, 2, 9)
        with full_disk(len(self.contents())):
            self.assertRaises(journals.JournalError, entry.finish, 'done')
        [found] = self.journal().entries()
        self.assertEqual(journals.INTERRUPTED, found.outcome)
        entry.finish('done')
        [found] = self.journal().entries()
        self.assertEqual('done', found.outcome)


class TestHourlyLimit(JournalTest):

    def test_finished_entries_count_what_was_removed(self):
        journal = self.journal()
        entry = journal.begin(RECORD, 5, 5)
        entry.step('destroy', 'done', bdm='b1')
        entry.step('destroy', 'failed', bdm='b2')
        entry.step('delete-attachment', 'done', attachment='a')
        self.assertEqual(5, count(journal))
        entry.finish('partly')
        # Of the failed one only the answer may have been lost; the other
        # attachment is not of the plan, or was not attached.
        self.assertEqual(2, count(journal))
        journal.begin(RECORD, 3, 5)
        reached = self.assertRaises(journals.LimitReached, journal.begin,
                                    RECORD, 1, 5)
        self.assertEqual((5, 5), (reached.done, reached.limit))

    def test_an_attached_attachment_counts_like_a_mapping(self):
        journal = self.journal()
        record = {'actions': [
            {'kind': 'delete-attachment',
             'attachment': {'id': 'a1', 'status': 'attached'}},
            {'kind': 'delete-attachment',
             'attachment': {'id': 'a2', 'status': 'reserved'}},
            {'kind': 'remove-bdm', 'bdm': {'uuid': 'b1'},
             'attachments': [{'id': 'a3', 'status': 'attached'}]}]}
        entry = journal.begin(record, 2, 5)
        for attachment in ('a1', 'a2', 'a3'):
            entry.step('delete-attachment', 'done', attachment=attachment)
        entry.step('destroy', 'done', bdm='b1')
        entry.finish('done')
        self.assertEqual(2, count(journal))
        [found] = journal.entries()
        self.assertEqual(2, found.carried_out)
        self.assertEqual(('b1',), found.removed)

    def test_a_plan_without_removals_has_no_limit(self):
        journal = self.journal()
        journal.begin(RECORD, 5, 5)
        journal.begin(RECORD, 0, 1)

    def test_nothing_is_written_over_the_limit(self):
        journal = self.journal()
        journal.begin(RECORD, 5, 5)
        before = self.contents()
        self.assertRaises(journals.LimitReached, journal.begin, RECORD, 1, 5)
        self.assertEqual(before, self.contents())

    def test_an_hour_is_an_hour(self):
        journal = self.journal()
        journal.begin(RECORD, 3, 9)
        self.clock.now += 3600
        self.assertEqual(3, count(journal))
        self.clock.now += 0.001
        self.assertEqual(0, count(journal))

    def test_across_a_restart(self):
        self.journal().begin(RECORD, 3, 9)
        self.assertEqual(3, count(self.journal()))

    def test_nothing_of_the_hour_is_rotated_away(self):
        journal = self.journal(max_bytes=1, backups=1)
        for _ in range(10):
            journal.begin(RECORD, 1, 99)
            self.clock.now += 300
        self.assertEqual(10, count(journal))
        self.clock.now += 3600
        journal.begin(RECORD, 1, 99)
        # All are old now; the next rotation makes up for it.
        self.assertEqual(['journal.jsonl', 'journal.jsonl.1'],
                         sorted(set(os.listdir(self.directory))
                                - {'journal.jsonl.lock'}))


class TestRotation(JournalTest):

    def names(self):
        return sorted(set(os.listdir(self.directory))
                      - {'journal.jsonl.lock'})

    def test_by_size(self):
        journal = self.journal(max_bytes=500, backups=2)
        ids = []
        for _ in range(40):
            self.clock.now += 3601
            entry = journal.begin(RECORD, 1, 99)
            entry.finish('done')
            ids.append(entry.id)
            for name in self.names():
                self.assertThat(
                    os.path.getsize(os.path.join(self.directory, name)),
                    matchers.LessThan(501))
        self.assertEqual(['journal.jsonl', 'journal.jsonl.1',
                          'journal.jsonl.2'], self.names())
        found = [e.id for e in journal.entries()]
        self.assertEqual(ids[-len(found):], found)
        for name in self.names():
            self.assertMode(0o600, os.path.join(self.directory, name))

    def test_an_entry_may_span_files(self):
        journal = self.journal(max_bytes=250)
        entry = journal.begin(RECORD, 1, 9)
        for number in range(8):
            entry.step('destroy', 'done', bdm='b%d' % number)
        entry.finish('done')
        self.assertThat(len(self.names()), matchers.GreaterThan(3))
        [found] = journal.entries()
        self.assertEqual(tuple('b%d' % n for n in range(8)), found.removed)
        self.assertEqual('done', found.outcome)

    def test_steps_without_their_plan_are_left_out(self):
        entry = self.journal().begin(RECORD, 1, 9)
        self.clock.now += 3601
        for _ in range(3):
            self.journal(max_bytes=1, backups=1)
            journals.Entry(self.journal(1, 1), entry.id).step('a', 'done')
            self.clock.now += 3601
        self.assertEqual([], list(self.journal().entries()))

    def test_a_crash_at_any_point_loses_nothing(self):
        for survived in itertools.count():
            shutil.rmtree(self.directory, ignore_errors=True)
            journal = self.journal(max_bytes=1, backups=4)
            ids = [journal.begin(RECORD, 1, 99).id for _ in range(4)]
            with self.crash_after_renames(survived) as crashed:
                journal.begin(RECORD, 1, 99)
            if not crashed:
                break
            self.assertEqual(ids, [e.id for e in journal.entries()])
            self.assertEqual(4, count(journal))
            ids.append(journal.begin(RECORD, 1, 99).id)
            self.assertEqual(ids, [e.id for e in journal.entries()])
        self.assertEqual(4, survived)

    @contextlib.contextmanager
    def crash_after_renames(self, number):
        """Die at the next one; what is yielded says whether it came."""
        rename, left, crashed = os.rename, [None] * number, []

        def crash(*args):
            if not left:
                crashed.append(args)
                raise KeyboardInterrupt
            left.pop()
            rename(*args)

        with mock.patch.object(os, 'rename', crash):
            with contextlib.suppress(KeyboardInterrupt):
                yield crashed

    def test_fewer_backups_than_before(self):
        journal = self.journal(max_bytes=1, backups=9)
        for _ in range(8):
            journal.begin(RECORD, 1, 99)
        self.clock.now += 3601
        self.journal(max_bytes=1, backups=2).begin(RECORD, 1, 99)
        self.assertEqual(['journal.jsonl', 'journal.jsonl.1',
                          'journal.jsonl.2'], self.names())

    def test_other_names_are_none_of_its_business(self):
        self.journal().check()
        others = ['journal.jsonl.01', 'journal.jsonl.x', 'journal.jsonl.-1',
                  'journal.jsonl.1.gz', 'journal.jsonl.\u0661',
                  'journal.jsonl.', 'other.jsonl.1']
        for name in others:
            self.write(b'mine', os.path.join(self.directory, name))
        journal = self.journal(max_bytes=1, backups=1)
        for _ in range(4):
            self.clock.now += 3601
            journal.begin(RECORD, 1, 99)
        for name in others:
            with open(os.path.join(self.directory, name)) as file:
                self.assertEqual('mine', file.read())
        self.assertEqual(0, journals.read(self.path).skipped)


# Waiting for the lock is not fair, so all of them pause now and then.
WRITER = """
import sys, time
from nova_bdm_cleanup import journal as journals
path, name, entries, max_bytes = sys.argv[1:]
journal = journals.Journal(path, int(max_bytes), 3)
for number in range(int(entries)):
    record = {'server': name, 'number': number, 'padding': 'x' * 500}
    entry = journal.begin(record, 1, 10 ** 9)
    print(entry.id, flush=True)
    entry.step('destroy', 'done', bdm='%s-%d' % (name, number))
    entry.finish('done')
    time.sleep(0.005)
"""

HOLDER = """
import fcntl, sys
lock = open(sys.argv[1])
fcntl.flock(lock, fcntl.LOCK_EX)
print('held', flush=True)
sys.stdin.read()
"""

GREEN = """
import eventlet
eventlet.monkey_patch()
import os, sys, time
from nova_bdm_cleanup import journal as journals
path, count = sys.argv[1], int(sys.argv[2])
fsync = os.fsync
def slow(fd):
    time.sleep(0.002)   # others run while this one holds the lock
    fsync(fd)
os.fsync = slow
def write(name):
    for number in range(count):
        journal = journals.Journal(path, 3000, 3)
        entry = journal.begin({'server': name}, 1, 10 ** 9)
        entry.step('destroy', 'done', bdm='%s-%d' % (name, number))
        entry.finish('done')
        time.sleep(0.005)
threads = [eventlet.spawn(write, 'green%d' % n) for n in range(4)]
for thread in threads:
    thread.wait()
"""


class TestSeveralWriters(JournalTest):

    def start(self, script, *args, **kwargs):
        root = os.path.dirname(os.path.dirname(nova_bdm_cleanup.__file__))
        process = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-c', script, *args],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, PYTHONPATH=root), **kwargs)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def assertWhole(self, names, entries):
        found = journals.read(self.path)
        self.assertEqual(0, found.skipped)
        self.assertEqual(entries * len(names), len(found.entries))
        ids = [e.id for e in found.entries]
        self.assertEqual(sorted(set(ids)), ids)
        self.assertEqual({'done'}, {e.outcome for e in found.entries})
        self.assertEqual(
            {'%s-%d' % (name, number) for name in names
             for number in range(entries)},
            {bdm for e in found.entries for bdm in e.removed})

    def test_processes(self):
        names = ('one', 'two', 'three')
        writers = [self.start(WRITER, self.path, name, '40', '20000')
                   for name in names]
        # A reader must never see half of anything.
        while any(w.poll() is None for w in writers):
            self.assertEqual(0, journals.read(self.path).skipped)
        self.assertEqual([0, 0, 0], [w.wait() for w in writers])
        self.assertWhole(names, 40)
        self.assertTrue(os.path.exists(self.path + '.4'))

    def test_threads_with_one_journal_and_with_their_own(self):
        shared = journals.Journal(self.path, 5000, 3)

        def write(name, journal):
            for number in range(25):
                entry = journal.begin({'server': name}, 1, 10 ** 9)
                entry.step('destroy', 'done', bdm='%s-%d' % (name, number))
                entry.finish('done')
                time.sleep(0.005)

        names = ['shared0', 'shared1', 'own0', 'own1']
        threads = [
            threading.Thread(target=write, args=(
                name, shared if name.startswith('shared')
                else journals.Journal(self.path, 5000, 3)))
            for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertWhole(names, 25)

    def test_green_threads_and_another_process(self):
        os.mkdir(self.directory, 0o700)
        green = self.start(GREEN, self.path, '15')
        native = self.start(WRITER, self.path, 'native', '15', '3000')
        self.assertEqual([0, 0], [green.wait(60), native.wait(60)])
        self.assertWhole(['green0', 'green1', 'green2', 'green3', 'native'],
                         15)

    def test_killed_writer_holds_up_nobody(self):
        writer = self.start(WRITER, self.path, 'one', '100000', '20000')
        begun = [writer.stdout.readline().strip() for _ in range(20)]
        writer.kill()
        begun += writer.communicate()[0].split()
        journals.Journal(self.path, 20000, 3).begin(RECORD, 1, 10 ** 9)
        found = journals.read(self.path)
        self.assertThat(found.skipped, matchers.LessThan(2))
        # A plan that begin() returned from is never lost.
        self.assertThat({e.id for e in found.entries},
                        matchers.MatchesPredicate(
                            set(begun).issubset, 'plans are lost: %s'))

    def test_lock_that_does_not_come_free(self):
        entry = self.journal().begin(RECORD, 1, 9)
        holder = self.start(HOLDER, self.path + '.lock')
        self.assertEqual('held\n', holder.stdout.readline())
        waited = []
        self.useFixture(fixtures.MonkeyPatch(
            'nova_bdm_cleanup.journal.time',
            mock.Mock(monotonic=lambda: sum(waited), sleep=waited.append)))
        self.assertIn('another process holds', self.refusal())
        self.assertThat(sum(waited), matchers.LessThan(6))
        self.assertRaises(journals.JournalError, journals.read, self.path)

        # The steps of one reboot wait once and not each.
        del waited[:]
        for _ in range(5):
            self.assertRaises(journals.JournalError, entry.step, 'a', 'done')
        self.assertThat(sum(waited), matchers.LessThan(6))
        holder.communicate()
        entry.finish('done')
        [found] = self.journal().entries()
        self.assertEqual(5, len(found.steps))


class JournalMachine(stateful.RuleBasedStateMachine):
    """Anything that can happen to a journal, against a model in memory."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.path = os.path.join(self.directory, 'journal')
        self.clock = Clock()
        self.model = {}
        self.order = []
        self.live = []
        # What the last write put at the end of the file, until something
        # else does.
        self.last = None
        self.torn = 0

    def teardown(self):
        shutil.rmtree(self.directory)

    def journal(self):
        return journals.Journal(self.path, 700, 2, self.clock)

    @contextlib.contextmanager
    def disk(self, spare):
        if spare is None:
            yield
            return
        size = (os.path.getsize(self.path)
                if os.path.exists(self.path) else 0)
        with full_disk(size + spare):
            yield

    spares = strategies.one_of(strategies.none(), strategies.integers(0, 400))

    @stateful.rule(removals=strategies.integers(0, 4), spare=spares)
    def begin(self, removals, spare):
        try:
            with self.disk(spare):
                entry = self.journal().begin(RECORD, removals, 10 ** 6)
        except journals.JournalError:
            assert spare is not None
            return
        assert all(entry.id > known for known in self.order)
        self.order.append(entry.id)
        self.model[entry.id] = {
            'time': self.clock.now, 'removals': removals, 'steps': [],
            'ended': False}
        self.live.append((entry, []))
        self.last = [('plan', entry.id)]

    @stateful.precondition(lambda self: self.live)
    @stateful.rule(data=strategies.data(), spare=spares,
                   outcome=strategies.sampled_from(['done', 'failed']))
    def step(self, data, spare, outcome):
        entry, pending = data.draw(strategies.sampled_from(self.live))
        bdm = 'b%d' % len(self.model[entry.id]['steps'])
        pending.append(('destroy', outcome, bdm))
        try:
            with self.disk(spare):
                entry.step('destroy', outcome, bdm=bdm)
        except journals.JournalError:
            assert spare is not None
            return
        self._flush(entry, pending)

    @stateful.precondition(lambda self: self.live)
    @stateful.rule(data=strategies.data(), spare=spares)
    def finish(self, data, spare):
        entry, pending = data.draw(strategies.sampled_from(self.live))
        if 'end' not in pending:
            pending.append('end')
        try:
            with self.disk(spare):
                entry.finish('done')
        except journals.JournalError:
            assert spare is not None
            return
        self._flush(entry, pending)
        self.live.remove((entry, pending))

    def _flush(self, entry, pending):
        known = self.model[entry.id]
        self.last = []
        for line in pending:
            if line == 'end':
                known['ended'] = True
                self.last.append(('end', entry.id))
            else:
                known['steps'].append(line)
                self.last.append(('step', entry.id))
        del pending[:]

    @stateful.rule()
    def restart(self):
        """nova-compute dies between two lines."""
        self.live = []

    @stateful.precondition(lambda self: self.last)
    @stateful.rule(data=strategies.data())
    def crash(self, data):
        """nova-compute dies while the last line is being written."""
        with open(self.path, 'rb') as file:
            content = file.read()
        start = content.rstrip(b'\n').rfind(b'\n') + 1
        # All but the newline is a whole line already.
        size = data.draw(strategies.integers(start, len(content) - 2))
        os.truncate(self.path, size)
        self.torn += size > start
        kind, entry = self.last[-1]
        if kind == 'plan':
            del self.model[entry]
            self.order.remove(entry)
        elif kind == 'step':
            self.model[entry]['steps'].pop()
        else:
            self.model[entry]['ended'] = False
        self.live = []
        self.last = None

    @stateful.rule(seconds=strategies.integers(0, 2500))
    def wait(self, seconds):
        self.clock.now += seconds

    @stateful.invariant()
    def count_is_right(self):
        expected = 0
        for known in self.model.values():
            removed = sum(s[1] == 'done' for s in known['steps'])
            if known['time'] >= self.clock.now - 3600:
                expected += (
                    sum(s[1] in ('done', 'failed') for s in known['steps'])
                    if known['ended'] else max(removed, known['removals']))
        assert count(self.journal()) == expected

    @stateful.invariant()
    def readers_lose_only_what_is_old_or_torn(self):
        found = journals.read(self.path)
        ids = [e.id for e in found.entries]
        assert ids == self.order[len(self.order) - len(ids):]
        assert found.skipped <= self.torn
        for entry in found.entries:
            known = self.model[entry.id]
            assert entry.time == known['time']
            assert entry.removals == known['removals']
            assert (entry.outcome != journals.INTERRUPTED) == known['ended']
            assert known['steps'] == [
                (s.name, s.outcome, s.subject['bdm']) for s in entry.steps]
        lost = set(self.order) - set(ids)
        assert all(self.model[i]['time'] < self.clock.now - 3600
                   for i in lost)


class TestAnySequence(base.TestCase):

    def test_files_agree_with_the_model(self):
        stateful.run_state_machine_as_test(
            JournalMachine, settings=hypothesis.settings(
                database=None, deadline=None, max_examples=60,
                stateful_step_count=40))
