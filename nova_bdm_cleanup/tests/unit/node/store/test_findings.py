# SPDX-License-Identifier: Apache-2.0
"""The findings kept between rounds, in a real store."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile

import hypothesis
from hypothesis import stateful, strategies as st

from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.node.store.findings import (
    FindingStore,
    RecordedFinding,
    Round,
)
from nova_bdm_cleanup.node.store.journal import Charge, Journal
from nova_bdm_cleanup.tests.unit import base, worlds

MIB = 1024 * 1024
HOUR = 3600.0
NOON = 1_800_014_400.0


def sighting(number=1, server='server-1', reason='volume-missing', **values):
    return RecordedFinding(**{
        'server': server, 'subject': 'bdm-%d' % number, 'reason': reason,
        'volume': 'volume-%d' % number,
        'attachment': 'attachment-%d' % number,
        'device': '/dev/vd%c' % (97 + number),
        'explanation': 'because', **values})


class FindingStoreTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(base.NoSyncing())
        self.path = os.path.join(self.tempdir(), 'a', 'store')
        self.now = NOON

    def store(self, host='compute1', max_bytes=4 * MIB):
        """Return the store as a nova-compute opens it at its start."""
        return FindingStore(self.path, host, max_bytes)

    def round(self, *seen):
        """Record a look at the server; return the changes."""
        self.now += HOUR
        changes = self.store().record_server(
            'server-1', self.now, self.now, HOUR, seen)
        self.assertEqual(sorted(changes.present, key=lambda s: s.key),
                         list(self.store().findings()))
        return changes.new, changes.gone


class LifeCycleTest(FindingStoreTestCase):

    def test_other_words_are_not_a_new_finding(self):
        self.round(sighting(explanation='for an hour'))
        later = sighting(explanation='for two hours', device='/dev/sdx')
        self.assertEqual(((later,), ()), self.round(later))
        latest = sighting(explanation='for three hours')
        self.assertEqual(((), ()), self.round(latest))
        self.assertEqual(((), (latest,)), self.round())


class ClockTest(FindingStoreTestCase):
    """Rounds of one process whose clock is set meanwhile."""

    def setUp(self):
        super().setUp()
        self.uptime = 50.0
        self.process = self.store()

    def round_after(self, passed, step=0.0, seen=(1,), is_judged=True):
        """Record a look; return the numbers of the new findings."""
        self.now, self.uptime = self.now + passed + step, self.uptime + passed
        changes = self.process.record_server(
            'server-1', self.now, self.uptime, HOUR,
            tuple(map(sighting, seen)), is_judged)
        return [int(s.subject[-1]) for s in changes.new]

    def test_step_forward_does_not_confirm_a_finding(self):
        self.assertEqual([], self.round_after(0))
        self.assertEqual([], self.round_after(60, step=HOUR))
        self.assertEqual([], self.round_after(HOUR / 2))
        self.assertEqual([1], self.round_after(HOUR / 2))

    def test_a_step_back_only_delays(self):
        self.assertEqual([], self.round_after(0))
        self.assertEqual([], self.round_after(HOUR, step=-3 * HOUR))
        self.assertEqual([1], self.round_after(HOUR))

    def test_finding_that_was_gone_is_new_again(self):
        self.round_after(0)
        self.round_after(HOUR, seen=())
        self.assertEqual([], self.round_after(HOUR))
        self.assertEqual([], self.round_after(60, step=HOUR))

    def test_look_without_an_answer_confirms_no_finding(self):
        self.round_after(0)
        self.assertEqual([], self.round_after(
            60, step=HOUR, seen=(), is_judged=False))
        self.assertEqual([], self.round_after(60))
        self.assertEqual([1], self.round_after(HOUR))

    def test_a_restart_leaves_the_wall_clock_only(self):
        self.round_after(0)
        self.process, self.uptime = self.store(), 0.0
        self.assertEqual([1], self.round_after(60, step=HOUR))

    def test_step_after_a_restart_confirms_no_finding(self):
        self.round_after(0)
        self.process, self.uptime = self.store(), 0.0
        self.assertEqual([], self.round_after(60))
        # This process has seen it a minute ago.
        self.assertEqual([], self.round_after(60, step=HOUR))
        self.assertEqual([1], self.round_after(HOUR))

    def test_look_without_an_answer_keeps_the_finding(self):
        self.round_after(0)
        self.process, self.uptime = self.store(), 0.0
        self.round_after(HOUR, seen=(), is_judged=False)
        self.assertEqual([1], self.round_after(60))

    def test_look_not_recorded_still_counts_its_time(self):
        self.fail_to_record()
        self.assertEqual([], self.round_after(60))
        self.assertEqual([], self.round_after(0.95 * HOUR - 30, step=HOUR))
        self.assertEqual([1], self.round_after(30))

    def fail_to_record(self):
        """See a finding that the store cannot record."""
        many = [sighting(n, explanation='x' * 1000) for n in range(1, 5000)]
        self.assertRaises(StoreError, self.process.record_server, 'server-1',
                          self.now, self.uptime, HOUR, many)


class RoundTest(FindingStoreTestCase):

    done = Round(succeeded=NOON, servers=7, volumes=21, seconds=0.25,
                 next=NOON + HOUR)

    def test_nothing_is_known_at_first(self):
        store = self.store()
        self.assertEqual((Round(), ()), (store.last_round(), store.findings()))
        self.assertFalse(os.path.exists(os.path.dirname(self.path)))

    def test_rounds_and_findings_are_read_as_written(self):
        self.store().record_success(self.done, ())
        self.assertEqual(self.done, self.store().last_round())
        failed = dataclasses.replace(
            self.done, failed=3, problem='é\nno', next=NOON + 8 * HOUR)
        self.store().record(failed)
        self.assertEqual(failed, self.store().last_round())
        self.assertEqual(Round(), self.store('compute2').last_round())
        seen = (sighting(volume=None, attachment=None, device=None),
                sighting(2, explanation='é\n'))
        self.store().record_server('server-1', NOON, 0.0, HOUR, seen)
        self.assertEqual(seen, self.store().findings())


class StoreTest(FindingStoreTestCase):
    """A store that is full; it holds the journal and the findings."""

    def journal(self):
        return Journal(self.path, 4 * MIB, lambda: self.now)

    def fill(self):
        """Add entries until the oldest of them are removed."""
        for _ in range(60):
            self.journal().begin(
                {'padding': 'x' * 100000}, [Charge('removals', 1, 1000)],
                server='a-server').finish('done', {'removals': 1})
        return len(Journal(self.path).entries())

    def test_value_of_another_type_is_damage(self):
        store = self.store()
        look = 'server-1', NOON, 0.0, HOUR, [sighting()]
        store.record_server(*look)
        base.sql(self.path, "UPDATE finding SET first = 'once'")
        for act in (store.findings, lambda: store.record_server(*look)):
            self.assertIn('it is damaged', str(
                self.assertRaises(StoreError, act)))

    def test_the_oldest_entries_of_the_journal_make_room(self):
        before = self.fill()
        self.assertLess(before, 60)
        newest = Journal(self.path).entries()[-1].id
        # Half a megabyte of findings.
        many = [sighting(n, explanation='x' * 500) for n in range(1, 1001)]
        self.round(*many)
        new, _ = self.round(*many)
        self.assertEqual(1000, len(new))
        self.assertLessEqual(os.path.getsize(self.path), 4 * MIB)
        left = Journal(self.path).entries()
        self.assertTrue(0 < len(left) < before)
        self.assertEqual(newest, left[-1].id)
        # Removals within the hour still count.
        self.now = NOON
        self.assertEqual(60, base.spent_of(self.journal(), 'removals'))

    def test_a_full_journal_keeps_the_findings(self):
        self.round(sighting())
        self.fill()
        self.assertEqual(((sighting(),), ()), self.round(sighting()))

    def test_more_findings_than_fit(self):
        self.round(sighting())
        many = [sighting(n, explanation='x' * 1000) for n in range(1, 5000)]
        text = str(self.assertRaises(StoreError, self.round, *many))
        self.assertIn('its maximum size is 4194304', text)
        self.assertEqual(1, len(self.store().findings()))


class RoundsMachine(stateful.RuleBasedStateMachine):
    """Rounds of two hosts with one store, checked against a model."""

    servers = st.sampled_from(['server-1', 'server-2'])
    keys = st.sampled_from([
        (server, subject, reason)
        for server in ('server-1', 'server-2') for subject in ('a', 'b')
        for reason in ('volume-missing', 'stuck')])

    def __init__(self):
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.path = os.path.join(self.directory, 'store')
        self.now, self.uptime = NOON, 0.0
        #: By host and key: since when each look has found it, and whether
        #: it was logged.
        self.open = {'compute1': {}, 'compute2': {}}
        #: By host: its process, and since when that has found what.
        self.processes = {host: (self.store(host), {}) for host in self.open}

    def teardown(self):
        shutil.rmtree(self.directory)

    def store(self, host):
        return FindingStore(self.path, host, 4 * MIB)

    @stateful.rule(host=st.sampled_from(['compute1', 'compute2']))
    def restart(self, host):
        self.processes[host] = self.store(host), {}

    @stateful.rule(host=st.sampled_from(['compute1', 'compute2']),
                   server=servers, seen=st.sets(keys, max_size=5),
                   is_judged=st.booleans(),
                   later=st.sampled_from(
                       [60, 0.9 * HOUR, 0.96 * HOUR, 5 * HOUR]),
                   # The clock is set.
                   step=st.sampled_from([0, 0, HOUR, -10 * HOUR]))
    def look(self, host, server, seen, is_judged, later, step):
        self.now, self.uptime = self.now + later + step, self.uptime + later
        seen = {key for key in seen if key[0] == server}
        store, seen_here = self.processes[host]
        changes = store.record_server(
            server, self.now, self.uptime, HOUR,
            [sighting(server=server, subject=subject, reason=reason)
             for server, subject, reason in seen], is_judged)
        known = self.open[host]
        gone = {key for key in known if is_judged
                and key not in seen and key[0] == server}
        expected_gone = {key for key in gone if known.pop(key)[1]}
        expected_new = set()
        for key in seen:
            first, announced = known.get(key, (self.now, False))
            first = min(first, self.now)
            is_apart = (
                self.now - first >= 0.95 * HOUR
                and self.uptime - seen_here.get(key, -HOUR) >= 0.95 * HOUR)
            if not announced and is_apart:
                expected_new.add(key)
                announced = True
            known[key] = first, announced
            seen_here.setdefault(key, self.uptime)
        for key in gone:
            seen_here.pop(key, None)
        assert sorted(expected_new) == sorted(s.key for s in changes.new)
        assert sorted(expected_gone) == sorted(s.key for s in changes.gone)

    @stateful.rule(host=st.sampled_from(['compute1', 'compute2']),
                   here=st.sets(servers))
    def end_round(self, host, here):
        store, seen_here = self.processes[host]
        gone = store.record_success(Round(succeeded=self.now), here)
        known = self.open[host]
        left = {key for key in known if key[0] not in here}
        assert sorted(s.key for s in gone) == sorted(
            key for key in left if known[key][1])
        for key in left:
            del known[key]
            seen_here.pop(key, None)

    @stateful.rule(host=st.sampled_from(['compute1', 'compute2']))
    def fail_round(self, host):
        self.processes[host][0].record(Round(failed=1, problem='no'))

    @stateful.invariant()
    def store_has_the_known_findings(self):
        for host, known in self.open.items():
            assert known == {
                k.key: (k.first, k.announced)
                for k in self.store(host).findings()}


class ModelTest(base.TestCase):

    def test_rounds_agree_with_the_model(self):
        self.useFixture(base.NoSyncing())
        stateful.run_state_machine_as_test(
            RoundsMachine, settings=hypothesis.settings(
                worlds.profile(share=0.3), stateful_step_count=25))
