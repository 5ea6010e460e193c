# SPDX-License-Identifier: Apache-2.0
"""Audit rounds over plans that a test gives, with a real store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
import dataclasses
import itertools
import logging
import os
import re
from typing import Any

import fixtures
import hypothesis
from hypothesis import strategies as st
import testscenarios

from nova_bdm_cleanup.node.audit.rounds import (
    Audit,
    round_begun,
    ServerLook,
    share_of,
)
from nova_bdm_cleanup.node.cleanup import log_lines
from nova_bdm_cleanup.node.cleanup.triggers import AUDIT
from nova_bdm_cleanup.node.store.findings import FindingStore
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.deadline import TimedOut
from nova_bdm_cleanup.rules.facts import Action, Finding, Plan, WitnessAnswer
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import base, make
from nova_bdm_cleanup.tests.unit.node.cleanup import fakes

load_tests = testscenarios.load_tests_apply_scenarios

HOUR = 3600
LINE = re.compile(
    r'^bdm-cleanup: event=(?P<event>\S+) reason=(?P<reason>\S+) '
    r'volume=(?P<volume>\S+) attachment=(?P<attachment>\S+) '
    r'device=(?P<device>\S+) request_id=req-1: (?P<text>.+)$')


class Lines(logging.Handler):
    """The log lines, with their servers."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = LINE.match(record.getMessage())
        assert line is not None
        instance = getattr(record, 'instance', None) or {}
        self.found.append(dict(line.groupdict(), level=record.levelname,
                               server=instance.get('uuid', '')))


@dataclasses.dataclass
class Server(ServerLook):
    """A server whose cleanup would find what the test says."""

    plan: Plan = Plan()
    error: Exception | None = None
    #: What Cinder says to the question that needs no volume.
    no_answer: Exception | None = None
    known: WitnessAnswer = WitnessAnswer.KNOWN
    is_busy: bool = False
    #: How often it was the one that proves the right Cinder.
    proofs: int = 0

    @property
    def volumes(self) -> list[str]:
        return ['volume-%d' % id(self), 'volume-shared']

    def preview(self) -> Plan:
        if self.error is not None:
            raise self.error
        return self.plan

    def witness(self) -> WitnessAnswer:
        self.proofs += 1
        return self.known

    def prove_it_answers(self) -> None:
        if self.no_answer is not None:
            raise self.no_answer


class Node:
    """A host with servers."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.here: dict[str, Server] = {}
        self.error: Exception | None = None
        #: The servers that were looked at, and when.
        self.looks: dict[str, float] = {}

    def servers(self) -> Iterable[str]:
        if self.error is not None:
            raise self.error
        return list(self.here)

    def look(self, server: str) -> Server | None:
        found = self.here.get(server)
        if found is None or found.is_busy:
            return None
        self.looks[server] = self._now()
        return found


def finding(reason: Reason = Reason.VOLUME_MISSING, **values: Any) -> Finding:
    return Finding(reason, 'because', **{'bdm': make.bdm(), **values})


class RoundTestCase(base.TestCase):
    """A host with twenty servers."""

    def setUp(self):
        super().setUp()
        self.useFixture(base.NoSyncing())
        self.logged = Lines()
        logger = logging.getLogger('nova_bdm_cleanup.audit')
        logger.addHandler(self.logged)
        self.addCleanup(logger.removeHandler, self.logged)
        self.addCleanup(logger.setLevel, logger.level)
        logger.setLevel(logging.DEBUG)
        self.path = os.path.join(self.tempdir(), 'a', 'store')
        #: What the clock shows ahead of the uptime.
        self.step = make.NOW.timestamp()
        self.uptime = 0.0
        #: nova-compute shuts down at this moment.
        self.shutdown: float | None = None
        self.node = Node(lambda: self.uptime)
        for number in range(20):
            self.node.here['server-%d' % number] = Server()
        self.counters = fakes.Counters()
        self.failed = 0
        self.begins = 0.0
        self.running = self.store()

    def store(self):
        return FindingStore(self.path, make.HOST)

    def wait(self, seconds: float) -> bool:
        self.uptime += seconds
        return self.shutdown is None or self.uptime < self.shutdown

    def round(self, is_resumed: bool = False) -> list[dict[str, str]]:
        """Run the next round, and return its log lines."""
        self.logged.found = []
        self.node.looks = {}
        if not is_resumed:
            self.begins += HOUR
            self.uptime = max(self.uptime, self.begins - 20)
        self.failed = Audit(
            self.node, self.running, HOUR, 'req-1', self.counters, self.wait,
            lambda: self.step + self.uptime, lambda: self.uptime,
        ).round(self.begins, self.failed, is_resumed)
        return self.logged.found

    def events(self):
        """Return event, reason and server of each line but the sum."""
        *lines, last = self.round()
        self.assertEqual(('INFO', 'audited', ''), tuple(
            last[key] for key in ('level', 'event', 'server')))
        return [(line['event'], line['reason'], line['server'])
                for line in lines]


class PaceTest(RoundTestCase):

    def test_each_server_has_its_moment_of_the_interval(self):
        for _ in range(2):
            [line] = self.round()
            self.assertEqual(
                {server: self.begins + share_of(server) * HOUR
                 for server in self.node.here}, self.node.looks)
        self.assertRegex(
            line['text'], r'^servers: 20, volumes: 21, seconds: [0-9.]+, '
            'open: 0, new: 0, gone: 0, seen once: 0$')
        last = self.store().last_round()
        self.assertEqual(
            (self.step + self.uptime, 20, 21, 0, ''),
            (last.succeeded, last.servers, last.volumes, last.failed,
             last.problem))
        self.assertAlmostEqual(self.step + self.begins + HOUR, last.next, 3)

    def test_restarts_in_each_round_leave_no_server_out(self):
        """Restart nova-compute after each half interval."""
        looks: set[str] = set()
        self.begins = self.uptime = float(HOUR)
        for half in (1, 2):
            self.shutdown = self.begins + half * HOUR / 2
            self.running = self.store()
            self.round(is_resumed=True)
            self.assertFalse(looks.intersection(self.node.looks))
            looks.update(self.node.looks)
            self.uptime = self.shutdown
        self.assertEqual(set(self.node.here), looks)
        self.assertIsNotNone(self.store().last_round().succeeded)

    def test_late_round_looks_at_all_servers(self):
        self.uptime = 2.5 * HOUR
        self.begins = float(HOUR)
        self.round()
        self.assertEqual(20, len(self.node.looks))

    def test_clock_that_is_set_does_not_move_the_looks(self):
        look = self.node.look

        def set_clock(server):
            self.step -= 86400
            return look(server)

        self.node.look = set_clock
        self.round()
        self.assertEqual(
            {self.begins + share_of(server) * HOUR
             for server in self.node.here}, set(self.node.looks.values()))

    def test_shutdown_ends_the_round_without_a_word(self):
        self.shutdown = self.begins + 1.5 * HOUR
        self.assertEqual([], self.round())
        self.assertTrue(0 < len(self.node.looks) < 20)
        self.assertEqual(0, self.failed)
        self.assertIsNone(self.store().last_round().succeeded)


class FindingTest(RoundTestCase):

    def setUp(self):
        super().setUp()
        self.server = self.node.here['server-7']

    def find(self, *findings):
        self.server.plan = Plan(findings)

    def test_finding_is_logged_once_and_so_is_its_end(self):
        for reason, level in ((Reason.VOLUME_MISSING, 'WARNING'),
                              (Reason.ROOT_VOLUME_DANGLING, 'ERROR')):
            self.find(finding(reason))
            [last] = self.round()
            self.assertIn('open: 0, new: 0, gone: 0, seen once: 1',
                          last['text'])
            found, last = self.round()
            disk = {'reason': reason, 'server': 'server-7',
                    'volume': 'volume-1', 'attachment': 'attachment-1',
                    'device': '/dev/vdb', 'text': 'because'}
            self.assertEqual(
                {'event': 'found', 'level': level, **disk}, found)
            self.assertIn('open: %s=1, new: 1, gone: 0, ' % reason,
                          last['text'])
            # Another process knows it.
            self.running = self.store()
            self.assertEqual([], self.events())
            self.find()
            gone, last = self.round()
            self.assertEqual(
                {'event': 'gone', 'level': 'INFO', **disk}, gone)
            self.assertIn('open: 0, new: 0, gone: 1, ', last['text'])
        self.assertEqual(({}, {}), (self.counters.removals,
                                    self.counters.refusals))

    def test_state_that_passes_by_itself_is_no_finding(self):
        self.find(finding(Reason.HEALTHY), finding(Reason.ATTACH_IN_FLIGHT),
                  finding(Reason.OPERATION_IN_FLIGHT))
        self.round()
        self.assertEqual((), self.store().findings())

    def test_stale_attachments_are_told_apart_and_summed_up(self):
        stale = [finding(
            Reason.STALE_ATTACHMENT, bdm=None, action=Action.DELETE,
            attachment=make.attachment(id='attachment-%d' % number))
            for number in range(30)]
        self.find(*stale)
        self.assertEqual([], self.events())
        self.assertEqual(
            [('found', 'stale-attachment', 'server-7')] * 5, self.events())
        self.assertEqual(
            ['-', *('attachment-%d' % number for number in range(4))],
            sorted(line['attachment'] for line in self.logged.found[:-1]))

    def test_server_that_got_a_task_keeps_its_findings(self):
        self.find(finding())
        self.events()
        self.events()
        for plan in (Plan(), Plan((finding(
                action=Action.REMOVE, withheld=AUDIT.lost),))):
            self.server.plan = plan
            self.server.is_busy = not plan.findings
            self.assertEqual([], self.events())
            self.assertEqual(1, len(self.store().findings()))
            self.assertEqual(19, self.store().last_round().servers)

    def test_findings_of_a_server_that_left_are_gone(self):
        self.find(finding())
        self.events()
        self.events()
        del self.node.here['server-7']
        self.assertEqual([('gone', 'volume-missing', 'server-7')],
                         self.events())
        self.assertEqual([], self.events())

    def test_finding_with_an_unknown_reason_is_found_again(self):
        # The state of the store after a rollback to an older release.
        self.find(finding())
        self.events()
        self.assertEqual(1, len(self.events()))
        base.sql(self.path, "UPDATE finding SET reason = 'unheard-of'")
        self.assertEqual([], self.events())
        self.assertEqual([('found', 'volume-missing', 'server-7')],
                         self.events())


class NotLookedAtTest(RoundTestCase):
    """Servers for which Cinder does not answer, though it does for others."""

    scenarios = base.scenarios(
        [(type(error).__name__, error) for error in (
            TimedOut('too late'), errors.BadAnswer("auth_password='hush'"),
            errors.Unreachable('reset'), KeyError('odd'))], 'error')

    def test_round_goes_on_and_earlier_findings_stay(self):
        server = self.node.here['server-7']
        server.plan = Plan((finding(),))
        self.events()
        self.events()
        server.error = self.error
        self.assertEqual([], self.events())
        self.assertIn(', servers not looked at: 1',
                      self.logged.found[-1]['text'])
        self.assertEqual(20, len(self.node.looks))
        self.assertEqual(0, self.failed)
        self.assertEqual([('found', 'not-looked-at', 'server-7')],
                         self.events())
        self.assertNotIn('hush', str(self.logged.found))
        self.assertIn('open: not-looked-at=1 volume-missing=1',
                      self.round()[-1]['text'])
        server.error = None
        self.assertEqual([('gone', 'not-looked-at', 'server-7')],
                         self.events())


class FailureTest(RoundTestCase):
    """Rounds that end early, and change nothing."""

    scenarios = base.scenarios((
        ('nova', None, KeyError('odd'), 'WARNING', 'step-failed'),
        ('cinder', errors.Unreachable("auth_password='hush'"),
         errors.Unreachable("auth_password='hush'"), 'WARNING',
         'cinder-unknown'),
        ('slow cinder', TimedOut('too late'), TimedOut('too late'),
         'WARNING', 'timed-out'),
        ('credentials', errors.ProjectHidden('no admin'), None, 'CRITICAL',
         'cinder-unknown')), 'error', 'other', 'level', 'reason')

    def setUp(self):
        super().setUp()
        # The first such line of a process is the one.
        self.useFixture(fixtures.MockPatchObject(
            log_lines, '_hidden', itertools.count()))

    def break_it(self):
        if self.error is None:
            self.node.error = self.other
        for server in self.node.here.values():
            server.error, server.no_answer = self.error, self.other

    def test_failed_rounds_are_logged_once_and_keep_the_findings(self):
        self.node.here['server-7'].plan = Plan((finding(),))
        self.events()
        ended = self.store().last_round().succeeded
        self.break_it()
        for number in (1, 2, 3):
            [line] = self.round()
            self.assertEqual(
                (self.level if number == 1 else 'DEBUG', 'not-audited',
                 self.reason),
                (line['level'], line['event'], line['reason']))
            self.assertRegex(line['text'], r'the next one is in \d+ s')
            # Not one time-out for each server.
            self.assertLessEqual(len(self.node.looks), 1)
            self.assertNotIn('hush', line['text'])
            last = self.store().last_round()
            self.assertEqual((number, ended), (last.failed, last.succeeded))
            self.assertNotEqual('', last.problem)
            self.assertNotIn('hush', last.problem)
            self.assertAlmostEqual(
                self.step + self.begins + HOUR, last.next, 3)
        self.assertEqual({(self.reason, 'audit'): 3}, self.counters.refusals)
        self.node.error = None
        for server in self.node.here.values():
            server.error = None
        found, last = self.round()
        self.assertEqual(('found', 'server-7'),
                         (found['event'], found['server']))
        self.assertIn('failed rounds before: 3', last['text'])
        last = self.store().last_round()
        self.assertEqual((0, ''), (last.failed, last.problem))
        # The next failure is logged again.
        self.break_it()
        self.assertEqual('WARNING', self.round()[0]['level'])


class StoreTest(RoundTestCase):

    def test_the_store_cannot_be_written(self):
        self.node.here['server-7'].plan = Plan((finding(),))
        self.events()
        os.rename(self.path, self.path + '-away')
        os.mkdir(self.path)
        for level in ('WARNING', 'DEBUG'):
            [line] = self.round()
            self.assertEqual(
                (level, 'not-audited', 'journal-unwritable'),
                (line['level'], line['event'], line['reason']))
            self.assertIn(self.path, line['text'])
        os.rmdir(self.path)
        os.rename(self.path + '-away', self.path)
        self.assertEqual([('found', 'volume-missing', 'server-7')],
                         self.events())


class SuspectCinderTest(RoundTestCase):

    def lose(self, known):
        """Lose all disks in the eyes of Cinder."""
        for server in self.node.here.values():
            server.plan = Plan((finding(Reason.ROOT_VOLUME_DANGLING),))
            server.known = known

    @property
    def proofs(self):
        return sum(server.proofs for server in self.node.here.values())

    def test_wrong_cinder_fails_the_round_at_the_first_finding(self):
        self.lose(WitnessAnswer.UNKNOWN)
        for _ in range(3):
            [line] = self.round()
            self.assertEqual(('not-audited', 'cinder-suspect'),
                             (line['event'], line['reason']))
            self.assertEqual((), self.store().findings())
            self.assertEqual(1, len(self.node.looks))

    def test_cinder_is_proved_once_in_a_round(self):
        for known in (WitnessAnswer.KNOWN, WitnessAnswer.NONE_EXISTS):
            self.lose(known)
            self.events()
            self.assertEqual(20, len(self.store().findings()))
            self.assertEqual(1, self.proofs)
            for server in self.node.here.values():
                server.proofs = 0

    def test_healthy_round_needs_no_proof(self):
        self.round()
        self.assertEqual(0, self.proofs)


host_names = st.text(max_size=40)
intervals = st.integers(60, 86400)
#: Up to the year 2100.
moments = st.floats(0, 4.1e9)


class MomentTest(base.TestCase):

    @hypothesis.given(host_names, intervals, moments)
    def test_the_current_round_has_begun(self, host, interval, now):
        begun = round_begun(host, interval, now)
        self.assertLessEqual(begun, now)
        self.assertLess(now - begun, interval + 1)

    @hypothesis.given(host_names, intervals, moments, moments)
    def test_a_restart_keeps_the_moments(self, host, interval, now, later):
        self.assertEqual(0, (round_begun(host, interval, now)
                             - round_begun(host, interval, later)) % interval)

    def test_servers_are_spread_over_the_interval(self):
        shares = sorted(share_of('%08d-server' % n) for n in range(1000))
        # With a thousand servers in an hour, no minute has many more than 17.
        for start, end in zip(shares, shares[40:]):
            self.assertGreater(end - start, 1 / 60)
        self.assertLessEqual(0.0, shares[0])
        self.assertLess(shares[-1], 1.0)
