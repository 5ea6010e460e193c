# SPDX-License-Identifier: Apache-2.0
"""Audit rounds over a host and a Cinder in memory, with a real store."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import itertools
import logging
import operator
import os
import random
import re
from typing import Any

import fixtures
import hypothesis
from hypothesis import strategies as st
import testscenarios

from nova_bdm_cleanup.node.audit.rounds import (
    Audit,
    HostServer,
    is_far,
    next_round,
)
from nova_bdm_cleanup.node.cleanup import log_lines
from nova_bdm_cleanup.node.store.findings import FindingStore
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.deadline import TimedOut
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Policy
from nova_bdm_cleanup.tests.unit import base, make, worlds
from nova_bdm_cleanup.tests.unit.node.cleanup import fakes

load_tests = testscenarios.load_tests_apply_scenarios

HOUR = 3600
MIB = 1024 * 1024
LINE = re.compile(
    r'^bdm-cleanup: event=(?P<event>\S+) reason=(?P<reason>\S+) '
    r'volume=(?P<volume>\S+) attachment=(?P<attachment>\S+) '
    r'device=(?P<device>\S+) request_id=req-1: (?P<text>.+)$')


FIELDS = operator.itemgetter('level', 'event', 'reason', 'server', 'volume',
                             'attachment', 'device')


class Lines(logging.Handler):
    """The log lines, with their servers."""

    def __init__(self):
        super().__init__()
        self.found = []

    def emit(self, record):
        line = LINE.match(record.getMessage()).groupdict()
        instance = getattr(record, 'instance', None) or {}
        self.found.append(dict(line, level=record.levelname,
                               server=instance.get('uuid', '')))


class Node:
    """A host and its Cinder.  Both can be made to fail at any call."""

    def __init__(self) -> None:
        self.host_servers: list[HostServer] = []
        self.volumes: dict[str, facts.Volume] = {}
        self.attachments: dict[str, facts.Attachment] = {}
        #: Volumes of other servers.
        self.others: Sequence[str] = ()
        #: The moves of each server between hosts.
        self.moved: dict[str, Sequence[facts.Move]] = {}
        self.failing: dict[str, Exception] = {}
        #: Volumes for which Cinder answers too late.
        self.slow: set[str] = set()
        #: The timeout of each request for volumes, and the number of
        #: volumes in it.
        self.asked: list[tuple[int, float]] = []
        self.question_timeout = 0.0
        self.calls: list[str] = []
        self.sent = 0

    def call(self, name: str, requests: int = 0) -> None:
        self.calls.append(name)
        self.sent += requests
        if name in self.failing:
            raise self.failing[name]

    # NodePort

    def servers(self) -> Iterable[HostServer]:
        self.call('servers')
        return iter(self.host_servers)

    def cinder(self, seconds: float) -> Any:
        self.call('cinder')
        self.question_timeout = seconds
        return self

    def witnesses(self, server: str) -> Iterable[str]:
        self.call('witnesses')
        return self.others

    def moves(self, server: str) -> Sequence[facts.Move]:
        self.call('moves')
        return self.moved.get(server, ())

    def requests(self) -> int:
        return self.sent

    # AuditCinder

    def volumes_by_id(self, volume_ids: Sequence[str]
                      ) -> dict[str, facts.Volume]:
        self.call('volumes', 1)
        assert 0 < len(volume_ids) <= 60
        self.asked.append((len(volume_ids), self.question_timeout))
        if not self.slow.isdisjoint(volume_ids):
            raise TimedOut('asking took long')
        return {v: self.volumes[v] for v in volume_ids if v in self.volumes}

    def answers_for(self, server_id: str, bdms: Sequence[facts.Bdm],
                       known: Mapping[str, facts.Volume],
                       project: str | None = None) -> facts.Answers:
        self.call('look')
        return facts.Answers(
            {b.volume_id: known.get(b.volume_id) for b in bdms
             if b.volume_id},
            tuple(a for a in self.attachments.values()
                  if a.server_id == server_id))

    def prove_it_answers(self) -> None:
        self.call('answers', 1)

    def witness(self, volumes: Iterable[str]) -> facts.WitnessAnswer:
        if not volumes:
            return facts.WitnessAnswer.NONE_EXISTS
        self.call('knows-any', 1)
        return (facts.WitnessAnswer.UNKNOWN
                if set(self.volumes).isdisjoint(volumes)
                else facts.WitnessAnswer.KNOWN)

    # Creating records

    def server(self, number: int, disks: int = 1, is_busy: bool = False,
               **about_server: Any) -> str:
        """Add a server with healthy disks."""
        uuid = 'server-%d' % number
        names = ['%d-%d' % (number, disk) for disk in range(disks)]
        bdms = [make.root(uuid='root-%d' % number)]
        for name in names:
            bdms.append(make.bdm(
                uuid='bdm-' + name, volume_id='volume-' + name,
                attachment_id='attachment-' + name))
            self.attach(name, uuid)
        self.host_servers.append(HostServer(
            make.server(uuid=uuid, **about_server), tuple(bdms),
            is_busy=is_busy))
        return uuid

    def attach(self, name: str, uuid: str) -> None:
        self.volumes['volume-' + name] = make.volume(
            id='volume-' + name,
            attached_to=(make.attached_to(uuid, 'attachment-' + name),))
        self.attachments['attachment-' + name] = make.attachment(
            id='attachment-' + name, volume_id='volume-' + name,
            server_id=uuid)

    def lose_volume(self, name: str) -> None:
        """Delete a volume behind Nova's back."""
        del self.volumes['volume-' + name]
        del self.attachments['attachment-' + name]

    def set(self, name: str, **values: Any) -> None:
        """Change a volume."""
        self.volumes['volume-' + name] = dataclasses.replace(
            self.volumes['volume-' + name], **values)

    def disk(self, **values: Any) -> None:
        """Change the first disk on a volume of the first server."""
        first = self.host_servers[0]
        root, disk, *others = first.bdms
        if 'boot_index' in values:
            root = dataclasses.replace(root, boot_index=None)
        self.change(first.server.uuid, bdms=(
            root, dataclasses.replace(disk, **values), *others))

    def about(self, **values: Any) -> None:
        """Change the first server."""
        server = self.host_servers[0].server
        self.change(server.uuid, server=dataclasses.replace(server, **values))

    def change(self, uuid: str, **values: Any) -> None:
        self.host_servers = [
            dataclasses.replace(i, **values) if i.server.uuid == uuid else i
            for i in self.host_servers]


class RoundTestCase(base.TestCase):

    policy = Policy()

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
        self.now, self.uptime = make.NOW.timestamp(), 50.0
        self.node = Node()
        self.counters = fakes.Counters()
        self.failed = 0

    def store(self):
        return FindingStore(self.path, make.HOST)

    def plan(self):
        return self.now + HOUR

    def round(self, later=HOUR, store=None):
        """Run a round.

        :param store: that of a nova-compute that runs; None: of one that has
            just started
        """
        self.now, self.uptime = self.now + later, self.uptime + later
        self.node.calls = []
        self.node.sent = 0
        self.logged.found = []
        self.failed = Audit(
            self.node, store or self.store(), self.policy, HOUR, 'req-1',
            self.counters, lambda: self.now, lambda: self.uptime,
        ).round(self.failed, self.plan)
        return self.logged.found

    def events(self, later=HOUR):
        """Return event, reason and server of each line but the sum."""
        *lines, last = self.round(later)
        self.assertEqual(('INFO', 'audited', '-', ''), FIELDS(last)[:4])
        return [(line['event'], line['reason'], line['server'])
                for line in lines]


class HealthyTest(RoundTestCase):
    """Servers with healthy disks only."""

    def test_healthy_round_logs_one_line(self):
        for number in range(100):
            self.node.server(number, disks=3)
        for _ in range(2):
            [line] = self.round()
            self.assertRegex(
                line['text'], r'^servers: 100, volumes: 300, '
                r'seconds: [0-9.]+, requests: 5, open: 0, new: 0, gone: 0, '
                r'seen once: 0$')
        last = self.store().last_round()
        self.assertEqual(
            (self.now, 100, 300, 5, 0, '', self.now + HOUR),
            (last.succeeded, last.servers, last.volumes, last.requests,
             last.failed, last.problem, last.next))
        self.assertEqual(2, len(self.counters.cinder_seconds['audit']))
        self.assertEqual(({}, {}), (self.counters.removals,
                                    self.counters.refusals))

    def test_a_volume_of_two_servers_is_asked_for_once(self):
        self.node.server(1)
        [_, bdm] = self.node.host_servers[0].bdms
        self.node.host_servers.append(HostServer(
            make.server(uuid='server-2'), (bdm,)))
        self.assertIn('volumes: 1, ', self.round()[-1]['text'])
        self.assertEqual(1, self.node.calls.count('volumes'))

    def test_without_volumes_cinder_is_not_asked(self):
        """Check that Cinder is not asked for busy servers either."""
        self.node.server(1, disks=0)
        self.node.server(2, is_busy=True)
        for _ in range(2):
            self.round()
            self.assertEqual(0, self.store().last_round().requests)
            self.node.host_servers = []

    def test_other_green_threads_get_their_turn(self):
        turns = []
        self.useFixture(fixtures.MonkeyPatch(
            'nova_bdm_cleanup.node.audit.rounds._yield_to_green_threads',
            lambda: turns.append(None)))
        for number in range(70):
            self.node.server(number)
        self.round()
        self.assertEqual(2 + 70, len(turns))


class FindingTest(RoundTestCase):
    """The log lines of findings: content, level, and each of them once."""

    scenarios = base.scenarios((
        ('missing', lambda node: node.lose_volume('1-0'),
         ('WARNING', 'volume-missing')),
        ('root', lambda node: (node.disk(boot_index=0),
                               node.lose_volume('1-0')),
         ('ERROR', 'root-volume-dangling')),
        ('stuck', lambda node: node.set(
            '1-0', status='detaching', updated_at=make.ago(7200)),
         ('WARNING', 'stuck')),
        ('locked', lambda node: (node.about(is_locked=True),
                                 node.lose_volume('1-0')),
         ('WARNING', 'volume-missing'))), 'change', 'expected')

    def test_finding_is_logged_once_and_so_is_its_end(self):
        uuid = self.node.server(1)
        self.node.server(2)
        level, reason = self.expected
        before = dict(self.node.volumes), dict(self.node.attachments), list(
            self.node.host_servers)
        self.assertEqual([], self.events())
        self.change(self.node)
        lines = self.round()
        self.assertIn('open: 0, new: 0, gone: 0, seen once: 1',
                      lines[-1]['text'])
        self.assertEqual(1, len(lines))

        found, last = self.round()
        disk = reason, uuid, 'volume-1-0', 'attachment-1-0', '/dev/vdb'
        self.assertEqual((level, 'found', *disk), FIELDS(found))
        self.assertIn('open: %s=1, new: 1, gone: 0, seen once: 0' % reason,
                      last['text'])
        [last] = self.round()
        self.assertIn('open: %s=1, new: 0, ' % reason, last['text'])

        (self.node.volumes, self.node.attachments,
         self.node.host_servers) = before
        gone, last = self.round()
        self.assertEqual(('INFO', 'gone', *disk), FIELDS(gone))
        self.assertEqual(found['text'], gone['text'])
        self.assertIn('open: 0, new: 0, gone: 1, ', last['text'])
        self.assertEqual([], self.events())
        # Nothing was removed or withheld.
        self.assertEqual(({}, {}), (self.counters.removals,
                                    self.counters.refusals))


class ClockTest(RoundTestCase):

    def test_clock_set_forward_does_not_add_a_round(self):
        """Check that two rounds a minute apart do not count as two."""
        self.node.server(1)
        self.node.lose_volume('1-0')
        store = self.store()
        self.round(store=store)
        self.now += HOUR
        [last] = self.round(60, store)
        self.assertIn('new: 0, gone: 0, seen once: 1', last['text'])
        found, last = self.round(store=store)
        self.assertIn('new: 1, gone: 0, seen once: 0', last['text'])


class NoFindingTest(RoundTestCase):

    def setUp(self):
        super().setUp()
        self.uuid = self.node.server(1, disks=2)
        self.assertEqual([], self.events())

    def test_operation_in_flight_is_no_finding(self):
        """Check operations in flight, and a mapping that was just created."""
        for status, disk in (
                *((status, {}) for status in (
                    'reserved', 'attaching', 'detaching')),
                ('available', {'has_connection_info': False,
                               'attachment_id': None})):
            for _ in range(3):
                then = make.ago(make.NOW.timestamp() - self.now - HOUR + 5)
                self.node.disk(**disk, created_at=then)
                self.node.set('1-0', status=status, updated_at=then)
                self.assertEqual([], self.events(), status)

    def test_a_stale_attachment_is_left_to_the_cleanups(self):
        self.node.attachments['attachment-s'] = make.attachment(
            id='attachment-s', volume_id='volume-s', server_id=self.uuid)
        self.node.volumes['volume-s'] = make.volume(id='volume-s')
        for _ in range(3):
            self.assertEqual([], self.events())


class OtherHostTest(RoundTestCase):
    """A row that may have the address of another host."""

    def setUp(self):
        super().setUp()
        self.uuid = self.node.server(1)
        self.node.server(2)
        self.move = facts.Move(
            make.OTHER_HOST, make.HOST, facts.Progress.COMPLETE,
            make.ago(500), make.ago(400))

    def found(self):
        """Return what two rounds find."""
        return self.events() + self.events()

    def attach_to(self, host):
        self.node.set('1-0', attached_to=(
            make.attached_to(self.uuid, 'attachment-1-0', host),))

    def test_disk_of_a_former_host_is_found(self):
        self.node.moved[self.uuid] = [self.move]
        self.attach_to(make.OTHER_HOST)
        self.assertEqual([('found', 'other-hosts-address', self.uuid)],
                         self.found())
        # Only that server is asked for.
        self.assertEqual(1, self.node.calls.count('moves'))
        self.attach_to(make.HOST + '.example.org')
        self.assertEqual([('gone', 'other-hosts-address', self.uuid)],
                         self.events())
        self.assertNotIn('moves', self.node.calls)

    def test_a_host_with_another_name(self):
        self.attach_to(make.OTHER_HOST)
        self.assertEqual([], self.found())

    def test_row_not_written_by_an_evacuation_is_found(self):
        self.node.moved[self.uuid] = [self.move]
        self.node.set('1-0', status='reserved', attached_to=())
        del self.node.attachments['attachment-1-0']
        self.assertEqual([('found', 'other-hosts-address', self.uuid)],
                         self.found())

    def test_a_mapping_that_the_rules_remove_keeps_its_reason(self):
        self.node.moved[self.uuid] = [self.move]
        self.node.lose_volume('1-0')
        self.assertEqual([('found', 'volume-missing', self.uuid)],
                         self.found())

    def test_nova_does_not_answer(self):
        self.attach_to(make.OTHER_HOST)
        self.node.failing['moves'] = RuntimeError('the database is gone')
        [line] = self.round()
        self.assertEqual('not-audited', line['event'])


class BusyTest(RoundTestCase):

    def setUp(self):
        super().setUp()
        self.uuid = self.node.server(1, disks=2)
        self.node.server(2)

    def test_nothing_is_found_at_a_busy_server(self):
        self.node.lose_volume('1-0')
        self.node.change(self.uuid, is_busy=True)
        for _ in range(3):
            self.assertEqual([], self.events())
        # Cinder is not asked for it either.
        self.assertEqual(1, self.node.calls.count('look'))
        self.node.change(self.uuid, is_busy=False)
        self.assertEqual([], self.events())
        self.assertEqual([('found', 'volume-missing', self.uuid)],
                         self.events())

    def test_finding_of_a_deleted_server_is_gone(self):
        self.node.lose_volume('1-0')
        self.events()
        self.events()
        del self.node.host_servers[0]
        self.assertEqual([('gone', 'volume-missing', self.uuid)],
                         self.events())
        self.assertEqual([], self.events())


class FailureTest(RoundTestCase):
    """Rounds without an answer, which change nothing."""

    scenarios = testscenarios.multiply_scenarios(
        [(name, {'name': name}) for name in (
            'servers', 'cinder', 'volumes', 'look')],
        [(type(error).__name__, {
            'error': error, 'reason': reason, 'level': level})
         for error, reason, level in (
             (errors.Unreachable("auth_password='hush-hush'"),
              'cinder-unknown', 'WARNING'),
             (errors.ProjectHidden('no admin'), 'cinder-unknown', 'CRITICAL'),
             (TimedOut('too late'), 'timed-out', 'WARNING'),
             (KeyError('odd'), 'step-failed', 'WARNING'))])

    def test_failed_rounds_keep_the_findings(self):
        self.useFixture(fixtures.MockPatchObject(
            log_lines, '_hidden', itertools.count()))
        uuid = self.node.server(1, disks=2)
        self.node.lose_volume('1-0')
        self.events()
        # Each request fails with the same error.
        self.node.failing = {self.name: self.error, 'answers': self.error}
        for number in (1, 2, 3):
            [line] = self.round()
            self.assertEqual(
                (self.level if number == 1 else 'DEBUG', 'not-audited',
                 self.reason, ''),
                FIELDS(line)[:4])
            self.assertIn('the next round is in %d s' % HOUR,
                          line['text'])
            self.assertNotIn('hush-hush', line['text'])
            self.assertEqual(number, self.failed)
            last = self.store().last_round()
            self.assertEqual(
                (number, self.now + HOUR,
                 make.NOW.timestamp() + HOUR),
                (last.failed, last.next, last.succeeded))
            self.assertNotEqual('', last.problem)
            self.assertNotIn('hush-hush', last.problem)
            self.assertEqual(1, len(self.store().findings()))
        self.assertEqual({(self.reason, 'audit'): 3}, self.counters.refusals)
        self.assertEqual(4, len(self.counters.cinder_seconds['audit']))

        self.node.failing.clear()
        found, last = self.round()
        self.assertEqual(('found', uuid), (found['event'], found['server']))
        self.assertIn('failed rounds before: 3', last['text'])
        self.assertEqual(0, self.failed)
        last = self.store().last_round()
        self.assertEqual((0, '', self.now),
                         (last.failed, last.problem, last.succeeded))
        self.assertEqual([], self.events())
        # The next failure is logged again.
        self.node.failing = {self.name: self.error, 'answers': self.error}
        self.assertEqual('WARNING', self.round()[0]['level'])


class SlowTest(RoundTestCase):
    """A Cinder that answers too late for the volumes of one server."""

    def setUp(self):
        super().setUp()
        for number in range(100):
            self.node.server(number)
        self.node.slow = {'volume-7-0'}
        self.uuid = 'server-7'
        self.found = ('found', 'not-looked-at', self.uuid)

    def test_other_servers_are_looked_at(self):
        self.node.lose_volume('8-0')
        line = self.round()[-1]
        self.assertEqual(0, self.failed)
        self.assertEqual(99, self.node.calls.count('look'))
        self.assertIn('seen once: 2, servers not looked at: 1', line['text'])
        # It is logged once, and so is its end.
        self.assertEqual({self.found, ('found', 'volume-missing', 'server-8')},
                         set(self.events()))
        self.assertEqual([], self.events())
        self.node.slow = set()
        self.assertEqual([('gone', 'not-looked-at', self.uuid)],
                         self.events())

    def test_list_is_halved_with_less_time_each(self):
        self.round()
        self.assertEqual(
            [60, 40, 30, 30, 15, 15, 7, 8, 4, 4, 2, 2, 1, 1],
            [number for number, _ in self.node.asked])
        seconds = [seconds for _, seconds in self.node.asked]
        self.assertEqual([15, 11.25], seconds[:2])
        self.assertEqual(sorted(seconds, reverse=True), seconds)
        self.node.slow = {'volume-%d-0' % number for number in range(20)}
        self.round()
        self.assertEqual(2, min(s for _, s in self.node.asked))
        self.assertEqual(0, self.failed)

    def test_known_findings_of_slow_server_stay(self):
        self.node.slow = set()
        self.node.lose_volume('7-0')
        self.events()
        self.events()
        self.node.slow = {'volume-7-0'}
        self.events()
        self.assertEqual([self.found], self.events())
        self.assertIn('open: not-looked-at=1 volume-missing=1',
                      self.round()[-1]['text'])

    def test_the_close_look_takes_long(self):
        self.node.slow = set()
        for error in (TimedOut('long'), errors.BadAnswer('500')):
            self.node.failing['look'] = error
            self.assertIn('servers not looked at: 100',
                          self.round()[-1]['text'])
            self.assertEqual(0, self.failed)

    def test_round_fails_if_all_volumes_are_slow(self):
        self.node.slow = set(self.node.volumes)
        self.assertEqual('timed-out', self.round()[-1]['reason'])
        self.assertEqual(60, self.node.calls.count('volumes'))
        self.assertEqual(1, self.failed)

    def test_there_is_no_time_for_halves(self):
        self.useFixture(fixtures.MonkeyPatch(
            'nova_bdm_cleanup.node.audit.rounds.time.monotonic',
            iter(range(0, HOUR * 100, HOUR)).__next__))
        self.assertIn('servers not looked at: 60', self.round()[-1]['text'])
        self.assertEqual(2, self.node.calls.count('volumes'))


class StoreTest(RoundTestCase):

    def test_the_store_cannot_be_written(self):
        uuid = self.node.server(1, disks=2)
        self.node.lose_volume('1-0')
        self.events()
        os.rename(self.path, self.path + '-away')
        os.mkdir(self.path)
        for level in ('WARNING', 'DEBUG'):
            [line] = self.round()
            self.assertEqual((level, 'not-audited', 'journal-unwritable'),
                             FIELDS(line)[:3])
            self.assertIn(self.path, line['text'])
        os.rmdir(self.path)
        os.rename(self.path + '-away', self.path)
        self.assertEqual([('found', 'volume-missing', uuid)], self.events())

    def test_finding_with_an_unknown_reason_is_found_again(self):
        # The state of the store after a rollback to an older release.
        uuid = self.node.server(1, disks=2)
        self.node.lose_volume('1-0')
        self.events()
        self.assertEqual(1, len(self.events()))
        base.sql(self.path, "UPDATE finding SET reason = 'unheard-of'")
        self.assertEqual([], self.events())
        self.assertEqual([('found', 'volume-missing', uuid)], self.events())


class SuspectCinderTest(RoundTestCase):
    """A Cinder that denies that any volume of this host exists."""

    def setUp(self):
        super().setUp()
        self.node.server(0, disks=0)
        self.node.server(1)
        self.node.server(2)
        self.node.lose_volume('1-0')
        self.node.lose_volume('2-0')

    def refused(self):
        [line] = self.round()
        self.assertEqual(('WARNING', 'not-audited', 'cinder-suspect'),
                         FIELDS(line)[:3])
        self.assertEqual((), self.store().findings())

    def test_known_volume_of_another_host_is_proof(self):
        self.node.volumes['volume-x'] = make.volume(id='volume-x')
        self.node.others = ['volume-y', 'volume-z', 'volume-x']
        self.events()
        self.assertEqual(2, len(self.events()))
        self.assertEqual(1, self.node.calls.count('knows-any'))

    def test_none_of_the_others_is_known(self):
        for others in ([], ['volume-y']):
            self.node.others = others
            self.failed = 0
            self.refused()

    def test_one_volume_and_there_are_no_others(self):
        # As in a reboot: a single volume may really be deleted.
        del self.node.host_servers[2]
        self.events()
        self.assertEqual([('found', 'volume-missing', 'server-1')],
                         self.events())

    def test_no_witness_can_be_asked(self):
        for name in ('witnesses', 'knows-any'):
            self.node.others = ['volume-y']
            self.node.failing = {name: errors.Unreachable('no')}
            self.failed = 0
            self.assertEqual('cinder-unknown', self.round()[0]['reason'])

    def test_no_witness_is_asked_for_if_a_volume_is_known(self):
        self.node.attach('1-0', 'server-1')
        self.node.failing['witnesses'] = AssertionError()
        self.events()


class AnyWorldTest(RoundTestCase):

    def test_every_finding_is_told_once(self):
        @worlds.profile(share=0.3)
        @hypothesis.given(worlds.worlds())
        def rounds(world):
            self.node = Node()
            self.node.host_servers = [HostServer(
                world.server, tuple(world.rows.values()))]
            self.node.volumes = {
                v: world.volume(v) for v in world.volumes}
            self.node.volumes['volume-w'] = make.volume(id='volume-w')
            self.node.others = ['volume-w']
            self.node.attachments = dict(world.attachments)
            self.round()
            self.node.host_servers = [*self.node.host_servers]
            found = [line for line in self.round()
                     if line['event'] == 'found']
            known = self.store().findings()
            self.assertEqual(
                sorted(k.reason for k in known if k.announced),
                sorted(line['reason'] for line in found))
            self.assertEqual(0, self.failed)
            self.node.host_servers = []
            gone = [line for line in self.round() if line['event'] == 'gone']
            self.assertEqual(len(found), len(gone))

        rounds()


host_names = st.text(max_size=40)
intervals = st.integers(60, 86400)
#: Up to the year 2100.
moments = st.floats(0, 4.1e9)


class NextRoundTest(base.TestCase):

    @hypothesis.given(host_names, intervals, moments)
    def test_the_next_round_is_always_to_come(self, host, interval, now):
        then = next_round(host, interval, now)
        self.assertLess(now + 1, then)
        self.assertLessEqual(then - now, interval + 1)

    @hypothesis.given(host_names, intervals, moments, st.floats(0, 1))
    def test_a_round_that_came_a_little_early_is_not_repeated(
            self, host, interval, now, early):
        then = next_round(host, interval, now)
        self.assertEqual(then + interval,
                         next_round(host, interval, then - early))

    @hypothesis.given(host_names, intervals, moments, moments)
    def test_a_restart_keeps_the_moments(self, host, interval, now, later):
        self.assertEqual(0, (next_round(host, interval, now)
                             - next_round(host, interval, later)) % interval)

    @hypothesis.given(host_names, intervals, moments, st.floats(0, 4.1e9))
    def test_clock_set_back_is_detected(self, host, interval, now, back):
        then = next_round(host, interval, now)
        # While rounds succeed, the next one is never too far away.
        self.assertFalse(is_far(then - now, interval))
        self.assertEqual(then - (now - back) > interval + 1,
                         is_far(then - (now - back), interval))


class SpreadTest(base.TestCase):
    """A thousand hosts that start in the same second after a power loss."""

    noon = 1_800_014_400.0
    names = ['compute-%03d.region-1.example.org' % n for n in range(1000)]

    def test_no_second_has_many_more_than_chance_gives(self):
        for interval in (60, 300, 600, 3600, 21600, 86400):
            # The number of hosts that begin their first round in each second.
            crowds = collections.Counter(
                int(next_round(name, interval, self.noon)
                    - self.noon) % interval
                for name in self.names)
            # The fullest second of a thousand random draws.
            draw = random.Random(interval)
            chance = sorted(
                max(collections.Counter(
                    draw.randrange(interval) for _ in self.names).values())
                for _ in range(100))
            # A minute: 26 here, random 23 to 35.  An hour: 3, random 3 to 4.
            self.assertLessEqual(max(crowds.values()), chance[-1], interval)
