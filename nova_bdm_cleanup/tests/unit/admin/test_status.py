# SPDX-License-Identifier: Apache-2.0
"""The command ``nova-bdm-cleanup status``."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket

import fixtures

from nova_bdm_cleanup import VERSION
from nova_bdm_cleanup.admin.status import State, status_of
from nova_bdm_cleanup.node.store.findings import (
    FindingStore,
    RecordedFinding,
    Round,
)
from nova_bdm_cleanup.node.store.journal import (
    account_of,
    ATTACHMENTS,
    Charge,
    Journal,
    MAPPINGS,
)
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import running
from nova_bdm_cleanup.tests.unit.admin import base

#: A start time in the future, so the process is never old.
LATER = 4_102_444_800.0  # 2100-01-01

FACTS = {'version': VERSION, 'nova_version': '34.0.0-1',
         'mode': 'enforce', 'triggers': 'start,move',
         'audit_interval': 3600,
         'max_removals_per_hour': 32}


HOUR = 3600


def finding(number=1, server=base.SERVER, reason='volume-available',
            explanation='because'):
    return RecordedFinding(server, 'bdm-%d' % number, reason,
                           base.volume(number), None,
                           '/dev/vd%c' % (97 + number), explanation)


class StateTest(base.CommandTest):
    """The state of a host, from the store, the kernel and the clock."""

    def test_audit_is_stale_after_three_intervals(self):
        for number, (since, succeeded, interval, now, words) in enumerate((
                # The audit.
                (0, 0, HOUR, 3 * HOUR, ()),
                (0, 0, HOUR, 3 * HOUR + 1, ('10801 s', 'no answer')),
                # No round yet.
                (0, None, HOUR, 2 * HOUR, ()),
                (0, None, HOUR, 4 * HOUR, ('14400 s', 'no answer')),
                # An old round, and a new process.
                (100 * HOUR, 0, HOUR, 100 * HOUR, ()),
                # No audit.
                (0, 0, 0, 1000 * HOUR, ()),
                # The clock was set back.
                (0, None, HOUR, -1000 * HOUR, ()))):
            path = os.path.join(self.home, str(number))
            running.start(path, since=base.NOON + since,
                          audit_interval=interval)
            FindingStore(path, 'compute1').record(Round(
                succeeded=None if succeeded is None else base.NOON,
                failed=3, problem='no answer'))
            found = status_of('compute1', path, base.NOON + now)
            row = since, succeeded, interval, now
            self.assertEqual(State.STALE if words else State.ACTIVE,
                             found.state, row)
            self.assertEqual(bool(words), bool(found.why), row)
            for word in words:
                self.assertIn(word, found.why, row)

    def test_state_is_that_of_the_configured_host(self):
        for host in ('compute1', 'compute2'):
            running.start(self.path, host)
        running.end(self.path, 'compute2')
        for host, state, why in (
                ('compute1', State.ACTIVE, ''),
                ('compute2', State.NOT_ACTIVE, 'ended'),
                ('compute3', State.NOT_ACTIVE,
                 'not running yet in a nova-compute named compute3; for '
                 'compute1 or compute2, give its --config-file')):
            found = status_of(host, self.path, base.NOON)
            self.assertEqual(state, found.state, host)
            self.assertIn(why, found.why)
        self.assertEqual(('compute1', 'compute2'), found.others)


class StatusCommandTest(base.CommandTest):

    def setUp(self):
        super().setUp()
        self.config = self.write('[DEFAULT]\nhost = compute1\n[bdm_cleanup]'
                                 '\nstore = %s\n' % self.path)

    def store(self, host='compute1'):
        return FindingStore(self.path, host)

    def start(self, problem='', since=LATER, host='compute1',
              facts=FACTS):
        running.start(self.path, host, since, problem, **facts)

    def status(self, *arguments, columns='400'):
        self.useFixture(fixtures.EnvironmentVariable('COLUMNS', columns))
        return self.call('status', '--config-file', self.config, *arguments)

    def json(self):
        code, out, err = self.status('--json')
        self.assertEqual('', err)
        return code, json.loads(out)

    def table(self):
        code, out, err = self.status()
        self.assertEqual('', err)
        return code, dict(
            re.split('  +', line, maxsplit=1)
            for line in out.partition('\n\n')[0].splitlines())

    def audited(self, *seen, rounds=2):
        """Record rounds, the last one at noon, and their findings."""
        for ago in reversed(range(rounds)):
            moment = base.NOON - ago * 3600
            for server in (base.SERVER, base.OTHER):
                self.store().record_server(
                    server, moment, moment, 3600,
                    [each for each in seen if each.server == server])
            self.store().record_success(Round(
                succeeded=base.NOON, servers=7, volumes=21, seconds=0.25,
                next=base.NOON + 3600), {base.SERVER, base.OTHER})
        journal = Journal(self.path, base.MIB4)
        for kind, payer, amount in (
                (MAPPINGS, 'project one', 1), (MAPPINGS, 'project two', 1),
                (MAPPINGS, 'project one', 1), (ATTACHMENTS, 'project two', 9)):
            journal.begin({}, [Charge(account_of(kind, payer), amount, 32)],
                          server='s')

    # Tables

    def test_table_shows_process_options_and_audit(self):
        self.start()
        self.audited()
        code, table = self.table()
        self.assertEqual((ExitCode.OK, ''), (code, self.status()[2]))
        self.assertEqual({
            'Host': 'compute1',
            'State': 'active',
            'Options': 'valid',
            'Process': str(os.getpid()),
            'Since': '2100-01-01 00:00:00 UTC',
            'Plugin': VERSION,
            'Nova': '34.0.0-1',
            'Mode': 'enforce',
            'Triggers': 'hard reboot, start, move',
            'Removals, last hour': '2 of 32 (project one)',
            'Audit': 'every 3600 s',
            'Last round': '2027-01-15 12:00:00 UTC: 7 servers with 21 '
                          'volumes',
            'Next round': '2027-01-15 13:00:00 UTC',
            'Open findings': 'none'}, table)

    def test_findings_are_unknown_without_an_audit(self):
        self.start(facts={**FACTS, 'audit_interval': 0})
        self.audited(finding())
        code, table = self.table()
        self.assertEqual(('off', 'not known: set [bdm_cleanup] audit_interval '
                          '= 3600 and restart nova-compute'),
                         (table['Audit'], table['Open findings']))
        self.assertNotIn('Last round', table)
        found = self.json()[1]
        # Findings from before the audit was disabled are outdated.
        self.assertEqual((None, {}), (found['open'], found['findings']))

    def test_findings_are_unknown_before_the_first_round(self):
        self.start()
        code, table = self.table()
        self.assertEqual(
            (ExitCode.OK, 'every 3600 s', 'none yet', '-',
             'not known before the first round'),
            (code, *(table[title] for title in (
                'Audit', 'Last round', 'Next round', 'Open findings'))))

    def test_round_that_goes_on_is_shown(self):
        self.start()
        self.audited()
        self.store().record(dataclasses.replace(
            self.store().last_round(), next=base.NOON + 4000))
        table = self.table()[1]
        self.assertEqual(
            ('2027-01-15 12:00:00 UTC: 7 servers with 21 volumes',
             'since 2027-01-15 12:06:40 UTC', '2027-01-15 13:06:40 UTC'),
            tuple(table[title] for title in (
                'Last round', 'This round', 'Next round')))

    def test_failed_rounds_are_shown_with_their_error(self):
        self.start()
        self.store().record(Round(
            failed=3, problem='no\x1b[31m answer', next=base.NOON))
        self.assertEqual(
            '3; the last error: no\\x1b[31m answer',
            self.table()[1]['Failed rounds'])

    def test_upgrade_asks_for_a_restart(self):
        self.start(facts={**FACTS, 'version': '0.9'})
        self.assertEqual(
            '0.9; %s is installed: restart nova-compute' % VERSION,
            self.table()[1]['Plugin'])

    # Open findings

    def open(self, columns='400'):
        """Return the table of open findings."""
        return self.status(columns=columns)[1].partition('\n\n')[2]

    def test_open_findings_have_a_next_step(self):
        self.start()
        self.audited(
            finding(1), finding(2, server=base.OTHER),
            finding(3, server=base.OTHER, reason='stuck'))
        shown = self.open()
        self.assertEqual([
            ['Server', 'Volume', 'Reason', 'Since (UTC)', 'What to do'],
            [base.SERVER, base.volume(1), 'volume-available',
             '2027-01-15 11:00:00', 'openstack bdm clean ' + base.SERVER],
            # A reboot of this server would not fix it.
            [base.OTHER, base.volume(2), 'volume-available',
             '2027-01-15 11:00:00', 'openstack bdm show ' + base.OTHER],
            [base.OTHER, base.volume(3), 'stuck', '2027-01-15 11:00:00',
             'openstack bdm explain stuck'],
        ], [re.split('  +', line) for line in shown.splitlines()])
        self.assertEqual('3', self.table()[1]['Open findings'])
        self.assertEqual(
            {'stuck': 1, 'volume-available': 2},
            self.json()[1]['findings'])
        # The table fits in 200 columns; in 80, each ID and command does.
        self.assertEqual(shown, self.open('200'))
        narrow = self.open('80')
        self.assertLessEqual(max(map(len, narrow.splitlines())), 80)
        self.assertEqual(
            ['Server       ' + base.SERVER, 'Volume       ' + base.volume(1),
             'Reason       volume-available',
             'Since (UTC)  2027-01-15 11:00:00',
             'What to do   openstack bdm clean ' + base.SERVER],
            narrow.partition('\n\n')[0].splitlines())

    def test_stale_attachment_is_cleaned_up(self):
        self.start()
        self.audited(finding(reason='stale-attachment'))
        self.assertIn('openstack bdm clean ' + base.SERVER, self.open())

    def test_finding_that_a_reboot_ends_has_its_command(self):
        kept = 'half way; not reconnected: its volume is detaching'
        expected = {
            (base.OTHER, 'half-moved', kept): 'bdm explain half-moved',
            # The API does not show it to "bdm clean".
            (base.SERVER, 'never-attached', 'it failed'):
                'server reboot --hard ' + base.SERVER,
            **{(base.SERVER, reason, 'half way'): 'bdm clean ' + base.SERVER
               for reason in ('attachment-mismatch', 'half-moved',
                              'reserved-only')}}
        self.start()
        self.audited(*(finding(number, *key)
                       for number, key in enumerate(expected)))
        self.assertEqual(
            {key: 'openstack ' + words for key, words in expected.items()},
            {(f['server'], f['reason'], f['explanation']): f['what_to_do']
             for f in self.json()[1]['open']})

    def test_the_worst_comes_first(self):
        self.start()
        self.audited(finding(1), finding(2, reason='root-volume-dangling'))
        self.assertEqual([base.volume(2), base.volume(1)], [
            line.split()[1] for line in self.open().splitlines()[1:]])

    def test_finding_seen_once_is_not_open(self):
        self.start()
        self.audited(finding(), rounds=1)
        self.assertEqual('none, 1 seen once so far',
                         self.table()[1]['Open findings'])
        self.assertEqual({}, self.json()[1]['findings'])

    def test_observe_mode_is_explained_for_its_findings(self):
        self.start(facts={**FACTS, 'mode': 'observe'})
        self.audited(finding())
        self.assertIn('openstack bdm explain observe-mode\n', self.open())

    # Exit codes

    def test_host_never_started_is_not_active(self):
        code, table = self.table()
        self.assertEqual((1, {'Host', 'State', 'Options'}), (code, set(table)))
        self.assertIn(
            'not-active: not running yet in a nova-compute named compute1; to '
            'activate it: set [bdm_cleanup] mode = enforce (or observe) and',
            table['State'])
        self.assertFalse(os.path.exists(self.path))

    def test_new_mode_asks_for_a_restart(self):
        self.assertEqual(
            'not running yet in a nova-compute named compute1; to activate '
            'it: restart nova-compute',
            status_of('compute1', self.path, base.NOON, mode='observe').why)

    def test_ended_process_is_not_active(self):
        self.start()
        running.end(self.path)
        code, found = self.json()
        self.assertEqual((1, 'not-active'), (code, found['state']))
        for words in ('process %d) has ended' % os.getpid(),
                      '[bdm_cleanup] mode = enforce'):
            self.assertIn(words, found['why'])
        self.assertEqual(os.getpid(), found['process']['pid'])

    def test_refused_start_shows_its_problem(self):
        # Invalid options may be the cause, so none are known.
        self.start(problem='no such method', facts={
            'version': VERSION, 'nova_version': '34.0.0-1',
            'triggers': ''})
        code, table = self.table()
        self.assertEqual((3, {
            'Host': 'compute1', 'State': 'refused: no such method',
            'Options': 'valid',
            'Process': str(os.getpid()), 'Since': '2100-01-01 00:00:00 UTC',
            'Plugin': VERSION, 'Nova': '34.0.0-1'}), (code, table))
        self.assertEqual(3, self.json()[0])

    def test_damaged_store_gives_cannot_tell(self):
        self.start()
        with open(self.path, 'wb') as file:
            file.write(b'no store at all ' * 256)
        code, table = self.table()
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertIn(self.path, table['State'])
        code, found = self.json()
        self.assertEqual((4, 'cannot-tell', None, None),
                         (code, found['state'], found['process'],
                          found['last_round']))

    def test_missing_config_file_is_bad_input(self):
        code, out, err = self.call(
            'status', '--config-file', os.path.join(self.home, 'none'))
        self.assertEqual((ExitCode.BAD_INPUT, ''), (code, out))
        self.assertIn('none', err)

    # JSON

    def test_json_shows_state_and_open_findings(self):
        self.start()
        self.audited(finding())
        code, found = self.json()
        self.assertEqual((0, {
            'state': 'active', 'why': '', 'option_problems': [],
            'process': {'host': 'compute1', 'pid': os.getpid(),
                        'since': LATER, **FACTS},
            'removals_last_hour': 2,
            'last_round': {'ended': base.NOON, 'servers': 7, 'volumes': 21,
                           'seconds': 0.25},
            'failed_rounds': 0, 'problem': '',
            'next_round': base.NOON + 3600,
            'findings': {'volume-available': 1},
            'open': [{
                'server': base.SERVER, 'subject': 'bdm-1',
                'reason': 'volume-available', 'volume': base.volume(1),
                'attachment': None, 'device': '/dev/vdb',
                'explanation': 'because', 'since': base.NOON - 3600,
                'what_to_do': 'openstack bdm clean ' + base.SERVER}]}),
            (code, found))

    def test_json_of_host_never_started_has_no_process(self):
        code, found = self.json()
        self.assertEqual(
            (None, None, None, {}, None, 0),
            tuple(found[name] for name in (
                'process', 'last_round', 'next_round', 'findings', 'open',
                'removals_last_hour')))

    def test_the_name_of_the_host_where_none_is_set(self):
        config = self.write('[bdm_cleanup]\nstore = %s\n' % self.path, 'a')
        self.assertEqual(
            ['Host', socket.gethostname()],
            self.call('status', '--config-file', config)[1].split()[:2])
