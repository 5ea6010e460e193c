# SPDX-License-Identifier: Apache-2.0
"""What is said of the plugin in the nova-compute that runs."""

from __future__ import annotations

import dataclasses
import os

from nova_bdm_cleanup.cli.status_command import State, status_of
from nova_bdm_cleanup.store.journal import Charge, Journal, REMOVALS
from nova_bdm_cleanup.store.watch import Round, Sighting, Watch
from nova_bdm_cleanup.tests.unit import base, running

HOUR = 3600
NOON = 1_800_014_400.0
MIB = 1024 * 1024


class StatusTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(base.NoSyncing())
        self.path = os.path.join(self.tempdir(), 'a', 'store')
        self.now = NOON

    def start(self, host='compute1', problem='', audit_interval=HOUR):
        running.start(self.path, host, self.now, problem,
                      audit_interval=audit_interval)

    def end(self, host='compute1'):
        running.end(self.path, host)

    def status(self, host='compute1'):
        return status_of(host, self.path, self.now)

    def assertState(self, state, *words, host='compute1'):
        found = self.status(host)
        self.assertEqual(state, found.state)
        self.assertEqual(bool(words), bool(found.why), found.why)
        for word in words:
            self.assertIn(word, found.why)
        return found

    def test_nothing_was_ever_started(self):
        found = self.assertState(
            State.NOT_ACTIVE, 'not running in any nova-compute named '
            'compute1; it needs [bdm_cleanup] enabled = true and a restart')
        self.assertEqual((None, Round(), {}, 0, ()), (
            found.process, found.last, found.findings,
            found.removals_last_hour, found.others))
        self.assertFalse(os.path.exists(os.path.dirname(self.path)))

    def test_two_nova_computes(self):
        self.start('compute1')
        self.start('compute2')
        self.end('compute2')
        self.assertState(State.ACTIVE)
        self.assertState(State.NOT_ACTIVE, 'ended', host='compute2')
        found = self.assertState(
            State.NOT_ACTIVE, 'not running in any nova-compute named '
            'compute3; for compute1 or compute2 give its --config-file',
            host='compute3')
        self.assertEqual(('compute1', 'compute2'), found.others)

    # The audit

    def remember(self, failed=0, problem='', succeeded=NOON):
        Watch(self.path, 4 * MIB, 'compute1').failed(Round(
            succeeded=succeeded, failed=failed, problem=problem))

    def test_stale(self):
        self.start()
        self.remember()
        self.now += 3 * HOUR
        self.assertState(State.ACTIVE)
        self.now += 1
        self.assertState(State.STALE, '10801 s')
        self.remember(failed=3, problem='Cinder does not answer')
        self.assertState(State.STALE, '10801 s', 'Cinder does not answer')

    def test_there_was_no_round_yet(self):
        self.start()
        self.now += 2 * HOUR
        self.assertState(State.ACTIVE)
        self.now += 2 * HOUR
        self.assertState(State.STALE, '14400 s')

    def test_an_old_round_of_a_process_that_is_new(self):
        self.remember()
        self.now += 100 * HOUR
        self.start()
        self.assertState(State.ACTIVE)

    def test_without_an_audit_nothing_is_stale(self):
        self.start(audit_interval=0)
        self.remember()
        self.now += 1000 * HOUR
        self.assertState(State.ACTIVE)

    def test_a_clock_that_was_set_back(self):
        self.start()
        self.now -= 1000 * HOUR
        self.assertState(State.ACTIVE)

    def test_what_was_told_is_open(self):
        self.start()
        watch = Watch(self.path, 4 * MIB, 'compute1')
        seen = [Sighting('s', str(n), reason, None, None, None, '')
                for n, reason in enumerate((
                    'stuck', 'volume-missing', 'opted-out',
                    'root-volume-dangling'))]
        self.assertFalse(self.status().is_audited)
        done = Round(succeeded=NOON)
        watch.succeeded(NOON, HOUR, done, seen, (), 8)
        self.assertEqual((True, {}, ()), self.audited())
        watch.succeeded(NOON + HOUR, HOUR, done, [
            *seen, dataclasses.replace(seen[0], subject='new')], (), 8)
        _, findings, found = self.audited()
        self.assertEqual(
            [('opted-out', 1), ('root-volume-dangling', 1), ('stuck', 1),
             ('volume-missing', 1)], list(findings.items()))
        # Of what somebody wants to be kept, nothing is to be done.
        self.assertEqual((seen[3], seen[0], seen[1]), found)
        self.start('compute2')
        self.assertEqual((False, {}, ()), self.audited('compute2'))
        # What was known then may be over.
        self.end()
        self.start(audit_interval=0)
        self.assertEqual((False, {}, ()), self.audited())

    def audited(self, host='compute1'):
        found = self.status(host)
        return found.is_audited, found.findings, found.open

    def test_removals_of_the_last_hour(self):
        journal = Journal(self.path, 4 * MIB, lambda: self.now)
        for removed in (2, 3):
            journal.begin({}, [Charge(REMOVALS, removed, 32),
                               Charge('others', 1, 32)],
                          server='s').finish('done', {REMOVALS: removed})
            self.now += 1800
        self.start()
        self.assertEqual(5, self.status().removals_last_hour)
        self.now += 1
        self.assertEqual(3, self.status().removals_last_hour)
