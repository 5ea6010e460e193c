# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm clean``."""

from __future__ import annotations

from collections.abc import Sequence
import datetime
import json
from typing import Any, Callable
from unittest import mock

import testscenarios

from nova_bdm_cleanup.client.cloud import changes, reboot
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import base, loopback
from nova_bdm_cleanup.tests.unit.client import commandcase

load_tests = testscenarios.load_tests_apply_scenarios


class CleanCase(commandcase.CommandCase):

    def reboot(self, *, heals: bool = True, status: str = 'ACTIVE') -> None:
        """Have a hard reboot do what the plugin would do."""
        def reboot() -> None:
            if 'os-resetState' in self.cloud.requests[-1].body:
                return
            server = self.cloud.requests[-1].path.split('/')[2]
            self.cloud.servers[server]['status'] = status
            if heals:
                self.cloud.clean_up(server)

        self.cloud.on('POST .*/action', reboot)

    def mend(self) -> None:
        self.cloud.volumes[self.disk]['status'] = 'in-use'
        self.cloud.attachment('attachment of disk', self.alpha, self.disk)

    def alter(self, **fields: Any) -> None:
        """Change fields of the server; host and task are short names."""
        self.cloud.servers[self.alpha].update({
            {'host': 'OS-EXT-SRV-ATTR:host',
             'task': 'OS-EXT-STS:task_state'}.get(name, name): value
            for name, value in fields.items()})


class CleanBdmTest(CleanCase):

    def test_yes_cleans_without_a_question(self) -> None:
        self.break_volume()
        self.reboot()
        self.alter(status='SHUTOFF')
        self.assert_results(ExitCode.OK, ['removed'], 'clean', 'alpha',
                            '--yes')
        self.assertRegex(self.stderr.getvalue(), (
            'Plugin +Servers +Disks +Memory Lost +Stopped, Then Running\n'
            'compute1 +enforce +1 +1 +- +alpha\n'))

    def test_failed_stop_is_reported_as_unknown(self) -> None:
        """Report "unknown": the reboot itself was done."""
        self.alter(status='SHUTOFF')
        self.break_volume()

        def act() -> Any:
            if 'os-stop' in self.cloud.requests[-1].body:
                return 409, {'conflictingRequest': {'message': 'locked'}}
            self.cloud.clean_up(self.alpha)
            self.alter(status='ACTIVE')
            return None

        self.cloud.on('POST', act)
        code, (row,) = self.bdm('clean', 'alpha', '--yes', '--stop-again')
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertIn('Stopped, Then Stopped Again', self.stderr.getvalue())
        self.assertRegex(row['Result'], '^unknown: .*locked.*; see openstack '
                                        'bdm show ' + self.alpha)

    def test_a_server_that_runs_is_not_stopped(self) -> None:
        self.break_volume()
        self.reboot()
        code, _ = self.bdm('clean', 'alpha', '--yes', '--stop-again')
        self.assertEqual(ExitCode.OK, code)
        self.assertEqual([{'reboot': {'type': 'HARD'}}], [
            r.body for r in self.cloud.requests
            if r.method == 'POST' and r.path.endswith('action')])

    def test_interrupted_server_is_shown_and_reset(self) -> None:
        self.break_volume()
        self.cloud.interrupt(self.alpha)
        self.assert_results(
            ExitCode.REFUSED, ['refused: an operation on it was interrupted '
                               '(shelving); give --reset-state to set its '
                               'state to error and reboot it'] * 2,
            'clean', 'alpha', '--yes')
        code, _ = self.bdm('clean', 'alpha', '--reset-state', '--dry-run')
        self.assertEqual(ExitCode.FINDINGS, code)
        self.assertIn('its operation (shelving) is given up: its state is '
                      'set to error first, which cannot be undone',
                      self.log.output)
        self.assertIn('interrupted', self.stderr.getvalue())
        self.assertEqual(0, self.cloud.asked('POST .*/action'))
        self.reboot()
        self.assert_results(ExitCode.OK, ['done', 'removed'], 'clean',
                            'alpha', '--reset-state', '--yes')

    def test_plan_of_an_interrupted_server_is_carried_out(self) -> None:
        self.break_volume()
        self.cloud.interrupt(self.alpha)
        plan = self.plan()
        self.reboot()
        self.assert_results(ExitCode.OK, ['done', 'removed'], 'clean',
                            '--plan', plan, '--reset-state', '--yes')

    def test_only_yes_means_yes(self) -> None:
        self.break_volume()
        self.reboot()
        for code, answers in (
                (ExitCode.REFUSED, ('n\n', 'no\n', '\n', ' \n', '',
                                    'maybe\n', 'yn\n', 'alpha\n', '1\n')),
                (ExitCode.OK, ('y\n', 'Y\n', 'yes\n', 'YES', ' yes \n'))):
            for answer in answers:
                self.cloud.requests.clear()
                found, _ = self.bdm('clean', 'alpha',
                                    stdin=commandcase.Terminal(answer))
                self.assertEqual(code, found, repr(answer))
                self.assertIn('[y/N]', self.stderr.getvalue())
                if self.cloud.asked('POST'):
                    self.cloud.mapping(self.alpha, self.disk,
                                       loopback.uid('attachment of disk'))
                self.assertEqual(code is ExitCode.OK,
                                 bool(self.cloud.asked('POST')))

    def test_missing_terminal_needs_yes_or_dry_run(self) -> None:
        code, _ = self.bdm('clean', 'alpha')
        self.assertEqual(ExitCode.BAD_INPUT, code)
        self.assertEqual('No terminal to ask on: give --yes, or --dry-run\n',
                         self.stderr.getvalue())
        self.assertEqual([], self.cloud.requests)

    def test_question_shows_disks_and_warnings(self) -> None:
        self.break_volume()
        self.cloud.servers[self.alpha]['status'] = 'SUSPENDED'
        self.bdm('clean', 'alpha', stdin=commandcase.Terminal('n\n'))
        shown, _, _ = self.stderr.getvalue().partition(
            'Hard-reboot 1 server? [y/N] ')
        for words in ('Server %s\n  %s  volume-available\n' % (
                          self.alpha, self.disk),
                      'WARNING: server %s is SUSPENDED: a hard reboot loses '
                      'the memory of its guest' % self.alpha):
            self.assertIn(words, shown)

    def test_conflict_in_nova_skips_only_that_server(self) -> None:
        self.break_volume()
        for status, words in ((403, 'failed: '), (409, 'skipped: ')):
            self.cloud.calm()
            self.cloud.on('POST .*/action', lambda s=status: (s, {
                'conflictingRequest': {'message': 'on purpose'}}))
            code, (row,) = self.bdm('clean', 'alpha', '--yes')
            self.assertEqual(ExitCode.PARTLY, code)
            self.assertIn(words, row['Result'])

    def interrupt(self) -> None:
        raise KeyboardInterrupt

    def test_interrupt_at_the_question_changes_nothing(self) -> None:
        self.break_volume()
        code, _ = self.bdm('clean', 'alpha', stdin=commandcase.Terminal(
            'y\n', self.interrupt))
        self.assertEqual(ExitCode.INTERRUPTED, code)
        self.assertTrue(self.stderr.getvalue().endswith(
            '\ninterrupted; nothing was changed\n'))
        self.assertEqual(0, self.cloud.asked('POST'))

    def test_interrupt_in_second_look_changes_nothing(self) -> None:
        self.break_volume()
        look, looks = reboot.preview, [1]

        def interrupt(*args: Any, **values: Any) -> reboot.RebootPreview:
            if not looks:
                raise KeyboardInterrupt
            looks.clear()
            return look(*args, **values)

        with mock.patch.object(reboot, 'preview', interrupt):
            self.assert_results(
                ExitCode.INTERRUPTED, ['skipped: not begun'],
                'clean', 'alpha', '--yes')
        self.assertIn('1 skipped; nothing was changed', self.log.output)

    def test_healthy_disk_afterwards_is_not_reported_removed(self) -> None:
        self.break_volume()
        self.cloud.on('POST .*/action', self.mend)
        code, (row,) = self.bdm('clean', 'alpha', '--yes')
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertIn('failed: it is still there (healthy); ', row['Result'])

    def test_server_in_error_afterwards_ends_the_command(self) -> None:
        """Stop: the next server could end like this one."""
        self.cloud.lose_attachment(self.other)
        self.break_volume()
        self.reboot(status='ERROR')
        self.assert_results(
            ExitCode.PARTLY, [
                'removed, but the server is ERROR now; host compute1, request '
                'req-reboot-1', 'skipped: not begun'],
            'clean', 'alpha', 'beta', '--yes')
        self.assertEqual(1, self.cloud.asked('POST'))
        self.assertIn('1 removed, 1 skipped; stopped at the failure '
                      '(--keep-going continues)', self.log.output)

    def test_keep_going_reboots_the_next_server(self) -> None:
        self.cloud.lose_attachment(self.other)
        self.break_volume()
        self.reboot(heals=False)
        self.assert_results(
            ExitCode.PARTLY,
            ['failed: it is still there (volume-available); the plugin '
             'recorded nothing: it is not installed on the host, is off, is '
             'in mode observe, or its rules keep the disk; host compute1, '
             'request req-reboot-1'] * 2,
            'clean', 'alpha', 'beta', '--yes', '--keep-going')
        self.assertEqual(2, self.cloud.asked('POST'))

    def test_more_servers_than_max_are_refused(self) -> None:
        self.cloud.lose_attachment(self.other)
        self.break_volume()
        code, rows = self.bdm('clean', 'alpha', 'beta', '--yes', '--max', '1')
        self.assertEqual((ExitCode.REFUSED, None), (code, rows))
        self.assertEqual('2 servers to do, and --max allows 1; nothing was '
                         'changed\n', self.stderr.getvalue())
        code, rows = self.bdm('clean', 'alpha', 'beta', '--dry-run', '--max',
                              '1')
        self.assertEqual((ExitCode.FINDINGS, 2), (code, len(rows)))
        self.assertIn('--max 2', self.log.output)
        self.assertEqual(0, self.cloud.asked('POST'))

    def leave_too_many(self) -> None:
        """Create more stale attachments of a volume than the limit."""
        volume = self.cloud.volume('stale', 'in-use')
        for number in range(9):
            self.cloud.attachment('stale-%d' % number, self.alpha, volume)

    def test_stale_attachments_over_the_limit_are_kept(self) -> None:
        """Keep them, and remove the mapping."""
        self.leave_too_many()
        self.break_volume()
        self.reboot()
        self.assert_results(
            ExitCode.OK, ['removed'], 'clean', 'alpha', '--yes')
        self.assertEqual(1, self.log.output.count(
            'does not end stale-attachment of volume %s:'
            % loopback.uid('stale')))
        self.assertIn('\n  look: openstack bdm explain over-limit\n',
                      self.log.output)

    def test_server_with_only_those_attachments_is_refused(self) -> None:
        """Refuse: a reboot would not fix it."""
        self.leave_too_many()
        code, (row,) = self.bdm('clean', 'alpha', '--yes')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertEqual(1, row['Result'].count('over-limit of volume'))
        self.assertEqual(0, self.cloud.asked('POST'))

    def test_a_person_must_look(self) -> None:
        self.break_volume()
        self.cloud.attachment('twin', self.alpha, self.cloud.attach(
            self.alpha, 'second disk'))
        _, rows = self.bdm('audit', '--server', 'alpha')
        self.assertEqual({'look: openstack bdm show ' + self.alpha},
                         {r['Action'] for r in rows})
        code, (row,) = self.bdm('clean', 'alpha', 'beta', '--yes')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertIn('refused: duplicate-attachment', row['Result'])
        self.assertIn('1 refused; nothing was changed', self.log.output)
        self.assertEqual(0, self.cloud.asked('POST'))

    def test_one_server_is_refused(self) -> None:
        """Clean the other server all the same."""
        self.cloud.servers[self.beta]['OS-EXT-STS:task_state'] = 'stopping'
        self.break_volume()
        self.reboot()
        rows = self.assert_results(
            ExitCode.PARTLY, [
                'refused: an operation on it is in progress (stopping)',
                'removed'],
            'clean', 'alpha', 'beta', '--yes')
        self.assertEqual([(self.beta, None), (self.alpha, self.disk)],
                         [(r['Server'], r['Volume']) for r in rows])

    def test_stuck_volume_is_left_to_release(self) -> None:
        self.cloud.volumes[self.disk]['status'] = 'detaching'
        self.assertEqual((ExitCode.OK, []),
                         self.bdm('clean', 'alpha', '--yes'))
        self.assertIn('openstack bdm release', self.log.output)
        self.assertEqual(0, self.cloud.asked('POST'))


class SeveralTest(CleanCase):
    """Servers 1a and 1b on one host, 2a and 2b on another."""

    NAMES = ('1a', '1b', '2a', '2b')

    def setUp(self) -> None:
        super().setUp()
        self.use_clock(changes, reboot)
        for name in self.NAMES:
            self.cloud.lose_attachment(self.cloud.attach(self.cloud.server(
                name, **{'OS-EXT-SRV-ATTR:host': 'compute' + name[0]}),
                'disk of ' + name))
        #: The seconds that reboots take; 3 by default.
        self.takes: dict[str, int] = {}
        #: The reboots under way, with their ends.
        self.ends: dict[str, float] = {}
        self.failing: tuple[str, ...] = ()
        #: Begins and ends, and when.
        self.timeline: list[tuple[float, str]] = []
        self.interrupted_at: float | None = None
        self.cloud.on('POST .*/action', self.begin)

    def begin(self) -> None:
        server = self.cloud.servers[
            self.cloud.requests[-1].path.split('/')[2]]
        name = server['name']
        server['OS-EXT-STS:task_state'] = 'reboot_started_hard'
        self.ends[name] = self.time + self.takes.get(name, 3)
        self.timeline.append((self.time, 'begin ' + name))

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.time == self.interrupted_at:
            raise KeyboardInterrupt
        for name in [n for n in self.ends if self.ends[n] <= self.time]:
            server = loopback.uid(name)
            del self.ends[name]
            self.cloud.servers[server]['OS-EXT-STS:task_state'] = None
            if name not in self.failing:
                self.cloud.clean_up(server)
            self.timeline.append((self.time, 'end ' + name))

    def assert_cleaned(self, code: int, *results: str,
                       options: Sequence[str] = ()) -> None:
        """Clean the servers; compare the first words of the results."""
        found, rows = self.bdm('clean', *self.NAMES, '--yes', *options)
        self.assertEqual((code, list(zip(self.NAMES, results))), (
            found, [(r['Server Name'], r['Result'].partition(';')[0])
                    for r in rows]))

    def test_one_server_at_a_time_on_each_host(self) -> None:
        self.takes = {'2a': 1}
        self.assert_cleaned(ExitCode.OK, *['removed'] * 4)
        self.assertEqual([
            (0, 'begin 1a'), (0, 'begin 2a'), (2, 'end 2a'),
            (2, 'begin 2b'), (4, 'end 1a'), (4, 'begin 1b'),
            (6, 'end 2b'), (8, 'end 1b')], self.timeline)

    def test_at_once_bounds_them_in_all(self) -> None:
        for number, seconds in (('1', 16), ('0', 8)):
            self.assert_cleaned(ExitCode.OK, *['removed'] * 4,
                                options=('--at-once', number))
            self.assertEqual(seconds, self.time)
            for name in self.NAMES:
                self.cloud.lose_attachment(self.cloud.attach(
                    loopback.uid(name), 'disk of ' + name))
            self.time = 0.0

    def test_time_limit_is_that_of_each_server(self) -> None:
        self.assert_cleaned(ExitCode.OK, *['removed'] * 4,
                            options=('--timeout', '4'))

    def test_failure_lets_the_others_end(self) -> None:
        self.failing, self.takes = ('1a',), {'1a': 1, '2a': 9}
        self.assert_cleaned(
            ExitCode.PARTLY, 'failed: it is still there (volume-available)',
            'skipped: not begun', 'removed', 'skipped: not begun')
        self.assertEqual(2, self.cloud.asked('POST'))
        self.assertIn('1 failed, 2 skipped, 1 removed; stopped at the '
                      'failure', self.log.output)

    def test_interrupt_with_two_under_way(self) -> None:
        self.takes, self.interrupted_at = {'1a': 1, '2a': 9}, 4
        self.assert_cleaned(
            ExitCode.INTERRUPTED, 'removed', 'unknown: interrupted',
            'unknown: interrupted', 'skipped: not begun')
        self.assertEqual(3, self.cloud.asked('POST'))
        self.assertIn('interrupted: 1 removed, 2 unknown, 1 skipped',
                      self.log.output)

    def test_interrupt_in_the_look_at_the_second(self) -> None:
        look = reboot.preview

        def interrupt(*args: Any, **values: Any) -> reboot.RebootPreview:
            if self.timeline:
                raise KeyboardInterrupt
            return look(*args, **values)

        with mock.patch.object(reboot, 'preview', interrupt):
            self.assert_cleaned(
                ExitCode.INTERRUPTED, 'unknown: interrupted',
                *['skipped: not begun'] * 3)

    def test_server_that_changes_before_its_own_reboot(self) -> None:
        end = self.cloud.clean_up

        def change(server: str) -> None:
            end(server)
            if server == loopback.uid('1a'):
                self.cloud.servers[loopback.uid('1b')]['status'] = 'PAUSED'

        with mock.patch.object(self.cloud, 'clean_up', change):
            self.assert_cleaned(
                ExitCode.PARTLY, 'removed', 'skipped: the server is PAUSED '
                'now, and its memory would be lost', 'removed', 'removed')

    def test_member_is_not_shown_the_hosts(self) -> None:
        code, _ = self.bdm('clean', *self.NAMES, '--yes', user='member')
        self.assertEqual(ExitCode.OK, code)
        self.assertEqual(16, self.time)


class HowLongTest(CleanCase):
    """The duration that is printed before the question."""

    def setUp(self) -> None:
        super().setUp()
        self.cloud.plugin_hosts.append('compute3')
        self.names: list[str] = []

    def broken(self, host: str, *took: float | None) -> str:
        """Create a server to clean.

        :param took: the seconds of its reboots, the last first; None: failed
        """
        name = 'server-%d' % len(self.names)
        self.names.append(name)
        server = self.cloud.server(name, **{'OS-EXT-SRV-ATTR:host': host})
        self.cloud.lose_attachment(self.cloud.attach(server, 'of ' + name))
        for seconds in reversed(took):
            self.cloud.record(server, 'reboot')
            self.cloud.actions[server][0].update({
                'message': 'Error' if seconds is None else None,
                'updated_at': loopback._stamp(
                    -datetime.timedelta(seconds=seconds or 900))})
        return server

    def said(self, *options: str, user: str = 'admin') -> list[str]:
        """Return the lines that say how long the reboots take."""
        self.cloud.requests.clear()
        code, _ = self.bdm('clean', *self.names, '--dry-run', *options,
                           user=user)
        self.assertEqual(ExitCode.FINDINGS, code)
        return [line for line in self.stderr.getvalue().splitlines()
                if 'took' in line]

    def test_ten_servers_on_two_hosts(self) -> None:
        for number in range(10):
            self.broken('compute%d' % (1 + number % 2), *(
                (), (4.2, 900), (None, 3.1), (90,))[number % 4])
        self.assertEqual(
            ['10 servers on 2 hosts, one at a time on each; recent reboots '
             'took 4 s: about 20 s in all'], self.said())
        self.assertEqual(10, sum(
            r.path.endswith('/os-instance-actions')
            and r.headers['OpenStack-API-Version'] == 'compute 2.89'
            for r in self.cloud.requests))

    def test_bound_in_all(self) -> None:
        for number in range(1, 4):
            self.broken('compute%d' % number, 0.2)
        self.assertEqual(
            ['3 servers on 3 hosts, one at a time on each and 2 in all; '
             'recent reboots took 1 s: about 2 s in all'],
            self.said('--at-once', '2'))
        self.assertEqual(
            ['3 servers, one at a time; recent reboots took 1 s: about 3 s in '
             'all'], self.said('--at-once', '1'))
        for bound in ('3', '0'):
            self.assertEqual(
                ['3 servers on 3 hosts, one at a time on each; recent reboots '
                 'took 1 s: about 1 s in all'], self.said('--at-once', bound))

    def test_member_is_not_shown_the_hosts(self) -> None:
        for host in ('compute1', 'compute2'):
            self.broken(host, 7)
        self.assertEqual(
            ['2 servers, one at a time; recent reboots took 7 s: about 14 s '
             'in all'], self.said(user='member'))

    def test_nothing_is_said_where_it_is_not_known(self) -> None:
        self.broken('compute1')
        self.broken('compute1', None)
        self.assertEqual([], self.said())

    def test_interrupted_reboot_does_not_count(self) -> None:
        for _ in range(2):
            server = self.broken('compute1', 1)
            self.cloud.servers[server]['OS-EXT-STS:task_state'] = 'rebooting'
            self.cloud.reboot_events[server] = [
                'bdm_cleanup interrupted rebooting']
        self.assertEqual([], self.said('--reset-state'))

    def test_nothing_is_said_of_one_server(self) -> None:
        self.broken('compute1', 5)
        self.assertEqual([], self.said())


class ProofTest(CleanCase):
    """Only an event of the plugin shows that it has removed something."""

    GONE = ('gone, but not by the plugin: the host may still have the device '
            '(CVE-2023-2088)')
    NOTHING = ('the plugin recorded nothing: it is not installed on the host, '
               'is off, is in mode observe, or its rules keep the disk')
    WHERE = 'host compute1, request req-reboot-1'

    def setUp(self) -> None:
        super().setUp()
        self.break_volume()

    def assert_proof(self, *words: str, events: Sequence[str]) -> None:
        """Clean a server; compare the result where the mapping goes."""
        def reboot() -> None:
            self.cloud.reboot_events[self.alpha] = list(events)
            self.cloud.mappings[self.alpha].clear()

        self.cloud.on('POST .*/action', reboot)
        self.assert_results(ExitCode.PARTLY, ['; '.join(words)], 'clean',
                            'alpha', '--yes')

    def test_the_next_server_is_not_rebooted(self) -> None:
        self.cloud.lose_attachment(self.other)
        self.cloud.on('POST .*/action',
                      self.cloud.mappings[self.alpha].clear)
        code, rows = self.bdm('clean', 'alpha', 'beta', '--yes')
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertEqual('skipped: not begun', rows[1]['Result'])
        self.assertEqual(1, self.cloud.asked('POST'))

    def test_event_of_an_earlier_reboot_is_no_proof(self) -> None:
        self.cloud.record(self.alpha, 'reboot')
        self.cloud.on('req-reboot-2', lambda: (200, {
            'instanceAction': {'events': []}}))
        self.assert_proof(
            self.GONE, self.NOTHING,
            'host compute1, request req-reboot-2', events=[
                'bdm_cleanup removed volume %s (volume-available)'
                % self.disk])

    def test_event_of_another_volume_is_no_proof(self) -> None:
        self.assert_proof(
            self.GONE, self.WHERE, events=[
                'bdm_cleanup removed volume %s (volume-available)'
                % self.other])

    def test_incomplete_removal_is_reported(self) -> None:
        """Do not report as done what the plugin has not completed."""
        self.assert_proof(
            'removed, but the plugin did not complete it '
            '(service-token-required)', self.WHERE, events=[
                'bdm_cleanup removed volume %s (volume-available)' % self.disk,
                'bdm_cleanup did not clean up volume %s '
                '(service-token-required)' % self.disk])

    def test_server_is_not_rebooted_without_its_actions(self) -> None:
        def lose_the_actions() -> None:
            self.cloud.on('os-instance-actions$', lambda: (500, {}))

        code, (row,) = self.bdm('clean', 'alpha', stdin=commandcase.Terminal(
            'y\n', lose_the_actions))
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertIn('failed: ', row['Result'])
        self.assertEqual(0, self.cloud.asked('POST'))

    def test_event_of_the_volume_is_no_proof_for_attachment(self) -> None:
        """Do not take the event of the volume for that of an attachment."""
        self.cloud.mappings[self.alpha].clear()
        name = self.cloud.attachment(
            'stale', self.alpha, self.cloud.volume('held', 'in-use'))
        for subject, code, words in (
                ('volume ' + loopback.uid('held'), ExitCode.PARTLY,
                 [self.GONE, self.WHERE]),
                ('attachment ' + name, ExitCode.OK, ['removed'])):
            self.cloud.attachment('stale', self.alpha, loopback.uid('held'))
            self.cloud.actions.clear()
            self.cloud.calm()
            self.cloud.on('POST .*/action', lambda: self.cloud._delete(name)
                          and None)
            self.cloud.reboot_events[self.alpha] = [
                'bdm_cleanup removed %s (stale-attachment)' % subject]
            self.assert_results(code, ['; '.join(words)], 'clean', 'alpha',
                                '--yes')

    def test_the_host_is_down(self) -> None:
        for status in ('DOWN', 'UNKNOWN'):
            self.alter(host_status=status)
            self.assert_results(
                ExitCode.REFUSED, [
                    'refused: nova-compute of its host compute1 is %s, and '
                    'would reboot it only when it is back' % status],
                'clean', 'alpha', '--yes')
        self.alter(host_status='MAINTENANCE')
        self.assertEqual(ExitCode.FINDINGS,
                         self.bdm('clean', 'alpha', '--dry-run')[0])


class LockedTest(CleanCase):

    def setUp(self) -> None:
        super().setUp()
        self.break_volume()
        self.reboot()
        self.alter(locked=True)

    def test_lock_of_owner_is_refused_without_the_option(self) -> None:
        self.alter(locked_reason='do not touch')
        self.cloud.record(self.alpha, 'lock', user='joe')
        code, (row,) = self.bdm('clean', 'alpha', '--yes')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertRegex(
            row['Result'],
            r'^refused: locked by its owner \(user joe\) at .*, because: do '
            'not touch; give --locked to reboot it$')
        self.assertEqual(0, self.cloud.asked('POST'))
        self.assert_results(ExitCode.OK, ['removed'], 'clean', 'alpha',
                            '--yes', '--locked')

    def assert_refused(self, words: str) -> None:
        for arguments in ((), ('--locked',)):
            code, (row,) = self.bdm('clean', 'alpha', '--yes', *arguments)
            self.assertEqual(ExitCode.REFUSED, code)
            self.assertRegex(
                row['Result'], '^refused: %s; the plugin leaves it as '
                'it is before an administrator has unlocked it$' % words)
        self.assertEqual(0, self.cloud.asked('POST'))

    def test_lock_without_a_record_is_refused(self) -> None:
        self.assert_refused('Nova has no record of who locked it')
        self.cloud.on('os-instance-actions$', lambda: (403, {
            'forbidden': {'message': 'Policy'}}))
        self.assert_refused('Nova has no record of who locked it')

    def test_server_locked_meanwhile_is_skipped(self) -> None:
        self.alter(locked=False)

        def lock() -> None:
            self.alter(locked=True)
            self.cloud.record(self.alpha, 'lock')

        code, (row,) = self.bdm('clean', 'alpha', stdin=commandcase.Terminal(
            'y\n', lock))
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertIn('skipped: locked by its owner', row['Result'])


#: Changes before the operator says yes, and the result.
MEANWHILE: tuple[tuple[str, Callable[[Any], object], str], ...] = (
    ('healthy', lambda t: t.mend(), 'it is healthy now'),
    ('another reason', lambda t: t.cloud.lose_volume(t.disk),
     'volume %(disk)s is volume-missing now'),
    ('paused', lambda t: t.alter(status='PAUSED'),
     'the server is PAUSED now, and its memory would be lost'),
    ('moved', lambda t: t.alter(host='compute2'),
     'the server is on host compute2 now'),
    ('changing', lambda t: t.alter(task='deleting'),
     'an operation on it is in progress (deleting)'),
    ('more to remove', lambda t: t.cloud.attachment(
        'stale', t.alpha, t.cloud.volume('more', 'in-use')),
     'a reboot would also remove volume %(more)s (stale-attachment)'),
    ('more to reconnect', lambda t: t.half_move('more'),
     'a reboot would also reconnect volume %(more)s (half-moved)'),
    ('gone', lambda t: t.cloud.lose_server(t.alpha),
     'server %(alpha)s does not exist'),
)


class MeanwhileTest(CleanCase):

    scenarios = base.scenarios(MEANWHILE, 'change', 'words')

    def half_move(self, name: str) -> None:
        volume = self.cloud.attach(self.alpha, name)
        self.cloud.half_move(volume)
        self.cloud.volumes[volume]['updated_at'] = loopback._stamp(
            datetime.timedelta(hours=2))

    def test_server_changed_meanwhile_is_skipped(self) -> None:
        self.break_volume()
        self.reboot()
        self.assert_results(
            ExitCode.OK if 'healthy' in self.words else ExitCode.PARTLY,
            ['skipped: ' + self.words % {'disk': self.disk,
                                         'alpha': self.alpha,
                                         'more': loopback.uid('more')}],
            'clean', 'alpha', stdin=commandcase.Terminal(
                'y\n', lambda: self.change(self)))
        self.assertEqual(0, self.cloud.asked('POST'))


class StartedMeanwhileTest(CleanCase):

    def test_started_server_is_not_stopped_again(self) -> None:
        self.alter(status='SHUTOFF')
        self.break_volume()
        self.reboot()
        self.assert_results(
            ExitCode.OK, ['removed'], 'clean', 'alpha', '--stop-again',
            stdin=commandcase.Terminal(
                'y\n', lambda: self.alter(status='ACTIVE')))
        self.assertEqual(1, self.cloud.asked('POST'))


class PlanTest(CleanCase):
    """A plan that an audit has written to a file."""

    def test_changed_volume_skips_its_server(self) -> None:
        """Skip this server and clean the other."""
        second = self.cloud.attach(self.alpha, 'second')
        for volume in (self.disk, second, self.other):
            self.cloud.lose_attachment(volume)
        path = self.plan()
        for volume in (self.disk, second):
            self.cloud.volumes[volume]['updated_at'] = (
                '2026-01-02T00:00:00.000000')
        self.reboot()
        self.assert_results(ExitCode.PARTLY, [*['skipped: ' + '; '.join(
            'volume %s has changed since the audit' % volume
            for volume in (self.disk, second))] * 2, 'removed'],
            'clean', '--plan', path, '--yes')

    def test_disk_missing_in_the_plan_skips_its_server(self) -> None:
        """Skip it: a reboot removes all, so all must be in the plan."""
        self.break_volume()
        path = self.plan()
        extra = self.cloud.attach(self.alpha, 'extra')
        self.cloud.lose_attachment(extra)
        self.assert_results(
            ExitCode.PARTLY, ['skipped: a reboot would also remove volume %s '
                              '(volume-available)' % extra],
            'clean', '--plan', path, '--yes')
        self.assertEqual(0, self.cloud.asked('POST'))

    def test_only_chosen_findings_are_cleaned(self) -> None:
        second = self.cloud.attach(self.alpha, 'second')
        for volume in (self.disk, second, self.other):
            self.cloud.lose_attachment(volume)
        path = self.plan()
        with open(path) as file:
            numbers = {row['Volume']: str(number) for number, row
                       in enumerate(json.load(file), 1)}
        self.reboot()
        # A reboot of a server ends all of its findings, so each is chosen.
        self.assert_results(
            ExitCode.PARTLY, ['skipped: a reboot would also remove volume %s '
                              '(volume-available)' % second],
            'clean', '--plan', path, '--yes', '--finding', numbers[self.disk])
        self.assert_results(
            ExitCode.OK, ['removed'], 'clean', '--plan', path, '--yes',
            '--finding', numbers[self.other])
        self.assert_results(
            ExitCode.OK, ['skipped: it no longer exists', 'removed',
                          'removed'],
            'clean', '--plan', path, '--yes', '--host', 'compute1')
        self.assertIn('1 removed; a removal is undone on its host:\n'
                      '  on host compute1: nova-bdm-cleanup journal list\n',
                      self.log.output)

    def test_choice_needs_a_plan(self) -> None:
        for choice in (('--finding', '1'), ('--host', 'compute1')):
            code, _ = self.bdm('clean', 'alpha', '--yes', *choice)
            self.assertEqual(ExitCode.BAD_INPUT, code)
            self.assertIn('--finding and --host choose from a plan',
                          self.stderr.getvalue())

    def test_number_of_servers_is_checked_before_anything_is_printed(
            self) -> None:
        for volume in (self.disk, self.other):
            self.cloud.lose_attachment(volume)
        code, _ = self.bdm('clean', '--plan', self.plan(), '--yes',
                           '--max', '1')
        self.assertEqual(
            (ExitCode.REFUSED, '2 servers to do, and --max allows 1; nothing '
             'was changed\n'), (code, self.stderr.getvalue()))

    def test_server_that_is_gone_or_busy_is_not_rebooted(self) -> None:
        self.break_volume()
        self.cloud.lose_attachment(self.other)
        path = self.plan()
        self.cloud.lose_server(self.alpha)
        self.cloud.servers[self.beta]['OS-EXT-STS:task_state'] = 'stopping'
        self.assert_results(ExitCode.PARTLY, [
            'skipped: server %s does not exist' % self.alpha,
            'refused: an operation on it is in progress (stopping)'],
            'clean', '--plan', path, '--yes')
