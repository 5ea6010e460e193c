# SPDX-License-Identifier: Apache-2.0
"""The journal in a real store, with real processes that get killed."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from typing import Any
from unittest import mock

import hypothesis
from hypothesis import stateful, strategies as st

import nova_bdm_cleanup
from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.node.store.journal import (
    Charge,
    INTERRUPTED,
    Journal,
    LimitReached,
)
from nova_bdm_cleanup.tests.unit import base, worlds

MIB = 1024 * 1024
RECORD = {'server': 'a-server', 'actions': [], 'findings': []}


def removals(amount, limit=10 ** 6):
    return [Charge('removals', amount, limit)]


def begin(journal, *charges, record=RECORD, server='a-server'):
    return journal.begin(record, charges or removals(1), server=server)


@contextlib.contextmanager
def commits_end_with(error, after=False):
    """Make each commit fail, before or after its effect."""
    connect = sqlite3.connect

    def doomed(*args, **kwargs):
        connection = mock.Mock(wraps=connect(*args, **kwargs))
        execute = connection.execute

        def commit(statement, *values):
            if statement != 'COMMIT':
                return execute(statement, *values)
            if after:
                execute(statement)
            raise error

        connection.execute = commit
        return connection

    with mock.patch.object(sqlite3, 'connect', doomed):
        yield


class JournalTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(base.NoSyncing())
        self.path = os.path.join(self.tempdir(), 'a', 'store')
        self.now = 1_800_000_000.25
        self.journal = Journal(self.path, 4 * MIB, lambda: self.now)
        self.records = Journal(self.path)
        self.sql = functools.partial(base.sql, self.path)


class EntriesTest(JournalTest):

    def test_comes_back_as_written(self):
        entry = begin(self.journal, record=dict(RECORD, note='é\n\udc80'))
        self.now += 1
        entry.step('power-off', 'done')
        entry.step('destroy', 'done', bdm='b1', at=self)
        entry.step('destroy', 'failed', bdm='b2', detail='no')
        entry.finish('partly', {})
        entry.finish('done', {})

        [found] = self.records.entries()
        self.assertEqual(found, self.records.find(entry.id))
        self.assertEqual(
            (entry.id, self.now - 1, dict(RECORD, note='é\n\udc80'),
             'partly', ('b1',)),
            (found.id, found.time, found.record, found.outcome,
             found.removed))
        self.assertEqual(
            [('power-off', 'done', {}),
             ('destroy', 'done', {'bdm': 'b1', 'at': str(self)}),
             ('destroy', 'failed', {'bdm': 'b2', 'detail': 'no'})],
            [(s.name, s.outcome, s.subject) for s in found.steps])

    def test_an_entry_that_changed_nothing_is_not_kept(self):
        before = begin(self.journal)
        before.finish('done', {})
        entry = begin(self.journal)
        entry.step('destroy', 'failed', bdm='b1')
        entry.finish('nothing', {})
        entry.finish('nothing', {})
        self.assertEqual([before.id],
                         [found.id for found in self.records.entries()])
        self.assertEqual([(1, 1, 0)], self.sql(
            'SELECT (SELECT count(*) FROM entry), '
            '(SELECT count(*) FROM plan), (SELECT count(*) FROM step)'))
        self.assertGreater(begin(self.journal).id, entry.id)

    def test_entries_of_no_change_push_out_no_entry(self):
        first = begin(self.journal)
        first.finish('done', {})
        for _ in range(40):
            begin(self.journal, record=dict(RECORD, note='x' * 256 * 1024)
                  ).finish('nothing', {})
        self.assertIsNotNone(self.records.find(first.id))

    def test_only_attached_stale_attachments_are_removals(self):
        """Count attached stale attachments that are deleted on their own."""
        entry = begin(self.journal, record={'actions': [
            {'kind': 'delete-attachment',
             'attachment': {'id': 'a1', 'status': 'attached'}},
            {'kind': 'delete-attachment',
             'attachment': {'id': 'a2', 'status': 'reserved'}},
            {'kind': 'remove-bdm', 'bdm': {'uuid': 'b1'},
             'attachments': [{'id': 'a3', 'status': 'attached'}]},
            {'kind': 'remove-bdm', 'bdm': {'uuid': 'b2'}}]})
        for attachment in ('a1', 'a2', 'a3'):
            entry.step('delete-attachment', 'done', attachment=attachment)
        entry.step('destroy', 'done', bdm='b1')
        [found] = self.records.entries()
        self.assertEqual((3, 2), (found.removals, found.carried_out))
        self.assertEqual(INTERRUPTED, found.outcome)

    def test_ids_are_short_unique_and_in_order(self):
        ids = []
        for seconds in (0, 0, 1, -7200, 10800, -10800, 0):
            self.now += seconds
            ids.append(begin(self.journal).id)
        # Also after the last entry is gone.
        self.sql('DELETE FROM entry')
        ids.append(begin(self.journal).id)
        self.assertEqual(sorted(set(ids)), ids)
        self.assertEqual({8}, set(map(len, ids)))

    def test_find_what_is_not_there(self):
        self.assertIsNone(self.records.find('00000000'))
        begin(self.journal)
        for identifier in ('0', '', 'é', '-1', '٣', 'z' * 11, 'z' * 99, '*'):
            self.assertIsNone(self.records.find(identifier))

    def test_entries_are_found_by_server_and_time(self):
        ids = []
        for server in ('one', 'two', 'one'):
            ids.append(begin(self.journal, server=server).id)
            self.now += 60
        for (server, since), expected in (
                (('one', 0), [0, 2]), (('two', 0), [1]), (('x', 0), []),
                ((None, self.now - 120), [1, 2]),
                (('one', self.now - 120), [2])):
            self.assertEqual([ids[n] for n in expected], [
                e.id for e in self.records.entries(server, since)])

    def test_step_is_not_written_twice(self):
        """Check that a step that was written is not written twice."""
        entry = begin(self.journal)
        with commits_end_with(sqlite3.OperationalError('disk I/O error'),
                              after=True):
            self.assertRaises(StoreError, entry.step, 'a', 'done')
            self.assertRaises(StoreError, entry.finish, 'done',
                              {'removals': 1})
        entry.finish('done', {})
        [found] = self.records.entries()
        self.assertEqual(['a'], [s.name for s in found.steps])
        self.assertEqual(1, base.spent_of(self.journal, 'removals'))

    def test_a_reboot_waits_once_for_a_lock(self):
        entry = begin(self.journal)
        waited = []
        clock = mock.Mock(monotonic=lambda: sum(waited), sleep=waited.append)
        with contextlib.closing(sqlite3.connect(self.path)) as holder, \
                mock.patch('nova_bdm_cleanup.node.store.database.time', clock):
            holder.execute('BEGIN IMMEDIATE')
            for _ in range(5):
                self.assertRaises(StoreError, entry.step, 'a', 'done')
        self.assertLess(sum(waited), 6)
        entry.finish('done', {})
        self.assertEqual(5, len(self.records.entries()[0].steps))

    def test_invalid_rows_are_refused(self):
        begin(self.journal).step('a', 'done')
        wrong = ('{', '[]', b'\xff', '9' * 5000, '[' * 10 ** 5)
        intact = self.path + '-intact'
        shutil.copy(self.path, intact)
        for statement, values in (
                ('UPDATE plan SET record = ?', [*wrong, -1]),
                ('UPDATE entry SET time = ?', wrong),
                ('UPDATE step SET subject = ?', [*wrong, -1]),
                ('UPDATE step SET time = ?', wrong)):
            for value in values:
                self.sql(statement, value)
                error = self.assertRaises(StoreError, self.records.entries)
                self.assertIn('move it away', str(error))
                shutil.copy(intact, self.path)
        self.assertEqual(1, len(self.records.entries()))
        self.sql('UPDATE entry SET serial = -1')
        self.sql('UPDATE plan SET entry = -1')
        self.assertRaises(StoreError, self.records.entries)


class LimitsTest(JournalTest):

    def test_reading_creates_no_store(self):
        self.assertEqual(0, base.spent_of(self.journal, 'removals'))
        self.assertFalse(self.records.exists())

    def test_an_hour_is_an_hour(self):
        begin(self.journal, *removals(3))
        for later, spent in ((3600, 3), (0.001, 0)):
            self.now += later
            self.assertEqual(spent, base.spent_of(self.journal, 'removals'))
        # Reading changes nothing.
        self.assertEqual([(1,)], self.sql('SELECT count(*) FROM charge'))
        begin(self.journal, *removals(1))
        self.assertEqual([(1,)], self.sql('SELECT count(*) FROM charge'))

    def test_accounts_are_counted_apart(self):
        begin(self.journal, Charge('one', 2, 9), Charge('two', 3, 9)).finish(
            'done', {'two': 1})
        self.assertRaises(LimitReached, begin, self.journal,
                          Charge('one', 1, 9), Charge('two', 9, 9))
        self.assertEqual([0, 1, 0], [base.spent_of(self.journal, account)
                                     for account in ('one', 'two', 'three')])

    def test_charges_of_a_clock_ahead_count_for_an_hour(self):
        """Check that its charges count for an hour, and not until then."""
        def exceed():
            self.assertRaises(LimitReached, begin, self.journal,
                              *removals(1, 3))

        for read in (exceed, lambda: base.spent_of(self.journal, 'removals'),
                     self.journal.correct_dates):
            self.now += 10 ** 6
            entry = begin(self.journal, *removals(3))
            self.now -= 10 ** 5
            # Readers of the status change nothing.
            self.records.most_charged('removals')
            read()
            entry.finish('done', {'removals': 3})
            for later, spent in ((3600, 3), (0.001, 0)):
                self.now += later
                self.assertEqual(
                    spent, base.spent_of(self.journal, 'removals'))

    def test_large_plans_keep_to_the_size(self):
        """Check that the size is bounded, and limits count deleted entries."""
        first = begin(self.journal, *removals(7))
        for _ in range(20):
            entry = begin(self.journal, record={'padding': 'x' * (MIB // 2)})
            entry.step('destroy', 'done', detail='x' * 1000)
            entry.finish('done', {'removals': 1})
            self.assertLessEqual(os.path.getsize(self.path), 4 * MIB)
        kept = self.records.entries()
        self.assertEqual([1] * len(kept), [len(e.steps) for e in kept])
        self.assertGreater(len(kept), 4)
        self.assertIsNone(self.records.find(first.id))
        self.assertEqual(27, base.spent_of(self.journal, 'removals'))
        first.step('destroy', 'done')
        first.finish('done', {'removals': 2})
        self.assertEqual(22, base.spent_of(self.journal, 'removals'))
        self.assertEqual([(0,)], self.sql(
            'SELECT count(*) FROM step WHERE entry NOT IN '
            '(SELECT serial FROM entry)'))

    def test_plan_over_the_size_is_refused(self):
        entry = begin(self.journal)
        error = str(self.assertRaises(StoreError, begin, self.journal,
                                      record={'padding': 'x' * 4 * MIB}))
        self.assertIn('its maximum size is 4194304', error)
        self.assertIsNotNone(self.records.find(entry.id))
        # An entry that just fits is not deleted by its own end or steps.
        entry = begin(self.journal, record={'padding': 'x' * (3 * MIB)})
        for _ in range(100):
            entry.step('destroy', 'done', detail='x' * 4000)
        entry.finish('done', {})
        found = self.records.find(entry.id)
        self.assertEqual((100, 'done'), (len(found.steps), found.outcome))

    def test_every_query_uses_an_index(self):
        """Check that a query is as fast with ten thousand entries."""
        statements, connect = [], sqlite3.connect

        def traced(*args, **kwargs):
            connection = connect(*args, **kwargs)
            connection.set_trace_callback(statements.append)
            return connection

        begin(self.journal).finish('done', {'removals': 1})
        with mock.patch.object(sqlite3, 'connect', traced):
            entry = begin(self.journal)
            entry.step('a', 'done')
            entry.finish('done', {'removals': 1})
            self.records.entries('a-server', 5.0)
            self.records.entries(since=5.0)
            self.records.find(entry.id)
            # Two of these do not fit: the first one is deleted.
            begin(self.journal, record={'padding': 'x' * 3 * MIB})
        ours = [s for s in statements if any(
            word in s for word in ('entry', 'plan', 'step', 'charge'))]
        self.assertGreater(len(set(ours)), 12)
        for statement in ours:
            for *_, plan in self.sql('EXPLAIN QUERY PLAN ' + statement):
                self.assertNotRegex(plan, '^SCAN (TABLE )?(?!sqlite_sequence)',
                                    statement)


WRITER = """
import sys, time
if sys.argv[2].startswith('green'):
    import eventlet
    eventlet.monkey_patch()
from nova_bdm_cleanup.node.store import database
from nova_bdm_cleanup.node.store.journal import Charge, Journal, LimitReached
# Eight writers without a pause would make one wait too long for a slow disk.
database.SYNCHRONOUS = 'OFF'
path, name, entries, limit = sys.argv[1:]
def write(name):
    for number in range(int(entries)):
        journal = Journal(path, 4 << 20)
        try:
            entry = journal.begin({'padding': 'x' * 500},
                                  [Charge('removals', 1, int(limit))],
                                  server=name)
        except LimitReached:
            return
        print(entry.id, flush=True)
        entry.step('destroy', 'done', bdm='%s-%d' % (name, number))
        entry.finish('done', {'removals': 1})
        time.sleep(0.002)
if name.startswith('green'):
    threads = [eventlet.spawn(write, name + str(n)) for n in range(3)]
    for thread in threads:
        thread.wait()
else:
    write(name)
"""


class SeveralWritersTest(JournalTest):

    def start(self, name, entries, limit=90):
        root = os.path.dirname(os.path.dirname(nova_bdm_cleanup.__file__))
        process = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-c', WRITER, self.path, name,
             str(entries), str(limit)], stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, PYTHONPATH=root))
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_concurrent_writers_lose_no_entry(self):
        """Check that no entry is lost, and the limit is not exceeded."""
        journal, begun = Journal(self.path, 4 * MIB), []

        def write(name):
            for number in range(15):
                with contextlib.suppress(LimitReached):
                    entry = begin(journal, *removals(1, 90), server=name)
                    begun.append(entry.id)
                    entry.step('destroy', 'done', bdm='%s-%d' % (name, number))
                    entry.finish('done', {'removals': 1})

        processes = [self.start(name, 15) for name in ('one', 'two', 'green')]
        threads = [threading.Thread(target=write, args=('thread%d' % n,))
                   for n in range(2)]
        for thread in threads:
            thread.start()
        # A reader never sees a partial change.
        while any(p.poll() is None for p in processes):
            for entry in Journal(self.path).entries():
                self.assertEqual(500 if entry.record.get('padding') else 0,
                                 len(entry.record.get('padding', '')))
        for thread in threads:
            thread.join()
        for process in processes:
            begun += process.communicate()[0].split()
            self.assertEqual(0, process.returncode)
        found = Journal(self.path).entries()
        self.assertEqual(90, len(found))
        self.assertEqual(sorted(begun), [e.id for e in found])
        self.assertEqual({('done', 1)},
                         {(e.outcome, len(e.removed)) for e in found})

    def test_killed_writer_loses_no_plan(self):
        for _ in range(3):
            writer = self.start('one', 10 ** 6, 10 ** 6)
            begun = [writer.stdout.readline().strip() for _ in range(7)]
            writer.kill()
            begun += writer.communicate()[0].split()
            # A plan is never lost once begin() has returned, and a
            # dead writer does not block the others.
            begin(self.journal, *removals(1, 10 ** 6))
            self.assertLessEqual(
                set(begun), {e.id for e in self.records.entries()})

    def test_forked_process_can_write(self):
        entry = begin(self.journal)
        child = os.fork()
        if not child:
            status = 1
            with contextlib.suppress(Exception):
                begin(self.journal).finish('done', {})
                entry.step('child', 'done')
                status = 0
            os._exit(status)
        self.assertEqual(0, os.waitpid(child, 0)[1])
        entry.finish('done', {})
        self.assertEqual(['done', 'done'],
                         [e.outcome for e in self.records.entries()])


FATES: dict[str, Any] = {
    'well': contextlib.nullcontext,
    'crash': lambda: commits_end_with(KeyboardInterrupt()),
    'failure': lambda: commits_end_with(
        sqlite3.OperationalError('disk I/O error')),
}


#: Of the store that the model is compared with, in bytes.
LIMIT = MIB


class JournalMachine(stateful.RuleBasedStateMachine):
    """Any sequence of changes to a journal, checked against a model."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.path = os.path.join(self.directory, 'store')
        self.now = 1_800_000_000.25
        self.begun, self.live = {}, []

    def teardown(self):
        shutil.rmtree(self.directory)

    def journal(self):
        return Journal(self.path, LIMIT, lambda: self.now)

    def attempt(self, fate, func, *args):
        """Return whether the change was made; a crash ends open entries."""
        try:
            with FATES[fate]():
                func(*args)
        except StoreError:
            assert fate == 'failure'
        except KeyboardInterrupt:
            self.live = []
        return fate == 'well'

    fates = st.sampled_from(['well', 'well', 'well', 'failure', 'crash'])

    @stateful.rule(amount=st.integers(0, 4), limit=st.integers(0, 12),
                   size=st.sampled_from([10, LIMIT // 4]), fate=fates)
    def begin(self, amount, limit, size, fate):
        def write():
            entry = begin(self.journal(), *removals(amount, limit),
                          record={'padding': 'x' * size})
            assert not amount or self.counted() + amount <= limit
            assert all(entry.id > known for known in self.begun)
            known = {'time': self.now, 'counted': amount, 'steps': [],
                     'outcome': INTERRUPTED}
            self.begun[entry.id] = known
            self.live.append((entry, known, []))

        try:
            self.attempt(fate, write)
        except LimitReached as reached:
            # A charge of nothing is always allowed.
            assert amount and reached.done + amount > limit
            assert (reached.account, reached.done, reached.limit) == (
                'removals', self.counted(), limit)

    @stateful.precondition(lambda self: self.live)
    @stateful.rule(data=st.data(), fate=fates)
    def step(self, data, fate):
        entry, known, pending = data.draw(st.sampled_from(self.live))
        name = str(len(known['steps']) + len(pending))
        pending.append(name)
        if self.attempt(fate, entry.step, name, 'done'):
            self.flush(known, pending)

    @stateful.precondition(lambda self: self.live)
    @stateful.rule(data=st.data(), spent=st.integers(0, 4), fate=fates)
    def finish(self, data, spent, fate):
        entry, known, pending = data.draw(st.sampled_from(self.live))
        # Never more than was planned.
        known.setdefault('end', min(spent, known['counted']))
        spent = known['end']
        if self.attempt(fate, entry.finish, 'done', {'removals': spent}):
            self.flush(known, pending)
            self.live = [each for each in self.live if each[0] is not entry]

    def flush(self, known, pending):
        """Write the pending steps."""
        known['steps'] += pending
        del pending[:]
        if 'end' in known:
            known.update(outcome='done', counted=known['end'])

    @stateful.rule(seconds=st.integers(0, 2500))
    def wait(self, seconds):
        self.now += seconds

    def counted(self):
        return sum(known['counted'] for known in self.begun.values()
                   if known['time'] >= self.now - 3600)

    @stateful.invariant()
    def agrees_with_the_model(self):
        assert base.spent_of(self.journal(), 'removals') == self.counted()
        found = Journal(self.path).entries()
        # Only the oldest entries are deleted, and only to make room.
        assert [e.id for e in found] == list(self.begun)[-len(found):] or (
            not found and not self.begun)
        assert len(found) == len(self.begun) or len(found) > 2
        for entry in found:
            known = self.begun[entry.id]
            assert (entry.time, entry.outcome) == (
                known['time'], known['outcome'])
            assert [s.name for s in entry.steps] == known['steps']
        assert not found or os.path.getsize(self.path) <= LIMIT


class ClockTest(base.TestCase):

    LIMIT = 4

    @worlds.profile(share=0.5)
    @hypothesis.given(st.lists(st.tuples(
        st.sampled_from([0, 1, 600, 3600, 3601]),
        st.sampled_from([0, 0, 0, -600, 600, -3601, -10 ** 6, 10 ** 6]),
        st.sampled_from(['begin', 'finish', 'spent']),
        st.integers(0, 3)), max_size=12))
    def test_hour_is_kept_when_the_clock_is_set(self, deeds):
        """Check both bounds of the hour with any steps of the clock."""
        self.useFixture(base.NoSyncing())
        clock = 1_800_000_000
        journal = Journal(os.path.join(self.tempdir(), 'store'), 4 * MIB,
                          lambda: clock)
        # The seconds that have passed now, and when the clock was first read
        # after it was set.
        now, was_read = 0, 0
        #: All charges, and those since the clock was set.
        charges, steady, begun = [], [], []

        def amount_of(some, since=0):
            return sum(c['amount'] for c in some
                       if max(c['time'], since) >= now - 3600)

        for seconds, step, deed, amount in deeds:
            now, clock = now + seconds, clock + seconds + step
            if step:
                was_read, steady = None, []
            if deed == 'finish':
                if begun:
                    entry, charge = begun.pop()
                    charge['amount'] = min(charge['amount'], amount)
                    entry.finish('done', {'removals': charge['amount']})
                continue
            was_read = now if was_read is None else was_read
            if deed == 'begin':
                with contextlib.suppress(LimitReached):
                    charge = {'time': now, 'amount': amount}
                    begun.append((begin(
                        journal, *removals(amount, self.LIMIT)), charge))
                    charges.append(charge)
                    steady.append(charge)
                self.assertLessEqual(amount_of(steady), self.LIMIT)
                continue
            spent = base.spent_of(journal, 'removals')
            self.assertLessEqual(spent, amount_of(charges, was_read))
            self.assertGreaterEqual(spent, amount_of(steady))


class AnySequenceTest(base.TestCase):

    def test_the_store_agrees_with_the_model(self):
        self.useFixture(base.NoSyncing())
        stateful.run_state_machine_as_test(
            JournalMachine, settings=hypothesis.settings(
                worlds.profile(share=0.125), stateful_step_count=25))
