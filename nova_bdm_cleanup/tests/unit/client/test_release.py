# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm release``."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

from nova_bdm_cleanup.openstack.cinder import Cinder
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import loopback
from nova_bdm_cleanup.tests.unit.client import commandcase


class ReleaseBdmTest(commandcase.CommandCase):

    def test_dry_run_changes_nothing(self) -> None:
        volume = self.orphan()
        code, (row,) = self.bdm('release', volume, '--dry-run')
        self.assertEqual(
            (ExitCode.FINDINGS, 'attachment delete', 'planned', 'compute1'),
            (code, row['Call'], row['Result'], row['Host']))
        self.assertEqual([], self.cloud.driver)
        self.assertEqual(0, self.cloud.asked('^(DELETE|POST)'))

    def test_commands_are_on_lines_of_their_own(self) -> None:
        volume = self.cloud.volume('data', 'in-use')
        lines = self.table('release', volume, '--dry-run',
                           width=60).splitlines()
        self.assertEqual([
            '   on the host that had it: nova-manage volume_attachment '
            'get_connector --json > FILE',
            '   openstack bdm release --connector FILE ' + volume,
            '   if no host ever had it: openstack bdm release --connector '
            'none ' + volume], lines[-3:])
        self.assertTrue(lines[-4].endswith('host:'), lines)
        self.assertTrue(all(len(line) <= 60 for line in lines[-6:-3]), lines)
        row, = self.bdm('release', volume, '--dry-run')[1]
        self.assertIn('host: on the host that had it: nova-manage',
                      row['Explanation'])

    def test_only_yes_to_the_question_releases(self) -> None:
        volume = self.orphan()
        for answer, code in (('n', ExitCode.REFUSED), ('y', ExitCode.OK)):
            self.assertEqual([], self.cloud.driver)
            found, _ = self.bdm('release', volume,
                                stdin=commandcase.Terminal(answer))
            self.assertEqual(code, found)
            self.assertRegex(
                self.stderr.getvalue(),
                'Volume %s\n  %s  attachment delete\n'
                '    Nova has deleted server .*\n'
                r'Release 1 attachment\? \[y/N\] ' % (
                    volume, loopback.uid('attachment of orphan')))
        self.assertIn('1 released', self.log.output)
        self.assertEqual([('terminate_connection', volume)],
                         self.cloud.driver)

    def test_orphans_of_another_nova_are_skipped(self) -> None:
        self.break_volume()
        mine, theirs = self.orphan('one'), self.orphan('two')
        attachment = loopback.uid('attachment of two')
        self.cloud.attachments[attachment]['host'] = 'elsewhere'
        del self.cloud.deleted[self.cloud.attachments[attachment]['instance']]
        code, (row,) = self.bdm('release', '--orphans', '--yes')
        self.assertEqual((ExitCode.OK, mine), (code, row['Volume']))
        self.assertIn('1 attachment was skipped', self.stderr.getvalue())
        self.assertEqual((ExitCode.OK, []),
                         self.bdm('release', '--orphans', '--yes'))
        # A release by ID says why.
        code, (row,) = self.bdm('release', theirs, '--yes')
        self.assertEqual((ExitCode.REFUSED, 'refused'), (code, row['Result']))
        self.assertIn('elsewhere', row['Explanation'])
        code, (row,) = self.bdm('release', theirs, '--yes', '--gone-host',
                                'elsewhere')
        self.assertEqual(ExitCode.OK, code, row)

    def test_orphans_unknown_to_nova_are_skipped(self) -> None:
        """Take them for gone only if they are named."""
        volume = self.orphan()
        path = self.plan()
        self.cloud.deleted.clear()
        self.assertEqual((ExitCode.OK, []),
                         self.bdm('release', '--orphans', '--yes'))
        self.assertIn('1 attachment was skipped', self.stderr.getvalue())
        code, (row,) = self.bdm('release', '--plan', path, '--yes')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertIn('refused: another Nova may have the server',
                      row['Result'])
        self.assertEqual([], self.cloud.driver)
        code, (row,) = self.bdm('release', volume, '--yes')
        self.assertEqual((ExitCode.OK, [('terminate_connection', volume)]),
                         (code, self.cloud.driver))
        self.assertIn('Nova never knew server', row['Explanation'])

    def test_stuck_detach_of_two_servers_is_one_call(self) -> None:
        self.cloud.volumes[self.disk].update(multiattach=True,
                                             status='detaching')
        self.cloud.mapping(self.beta, self.disk, self.cloud.attachment(
            'second', self.beta, self.disk))
        self.assert_results(
            ExitCode.OK, ['released: the volume is in-use',
                          'done: the volume is in-use'],
            'release', '--orphans', '--yes')
        self.assertEqual([('os-roll_detaching', self.disk)],
                         self.cloud.driver)

    def test_stuck_detach_is_rolled_back_by_the_volume(self) -> None:
        """The attachment that the mapping names does not exist."""
        self.cloud.mappings[self.alpha][0]['attachment_id'] = loopback.uid(
            'lost')
        for with_plan in (False, True):
            self.cloud.volumes[self.disk].update(
                status='detaching', updated_at='2026-01-01T00:00:00.000000')
            _, (row,) = self.bdm('audit', '--thorough')
            self.assertEqual('openstack bdm release ' + self.disk,
                             row['Action'])
            self.assert_results(
                ExitCode.OK, ['released: the volume is in-use'], 'release',
                '--yes', *(['--plan', self.plan('--thorough')] if with_plan
                           else row['Action'].split()[3:]))

    def test_orphans_of_an_incomplete_audit_are_refused(self) -> None:
        volume = self.orphan()
        other = self.cloud.volume('other volume', 'in-use')
        self.cloud.on('GET .*/volumes/' + other, lambda: (500, None))
        code, rows = self.bdm('release', '--orphans', '--yes')
        self.assertEqual((ExitCode.REFUSED, None), (code, rows))
        self.assertIn('INCOMPLETE: volume ' + other, self.stderr.getvalue())
        self.assertIn('the audit is incomplete', self.stderr.getvalue())
        self.assertEqual(0, self.cloud.asked('^(DELETE|POST)'))
        code, _ = self.bdm('release', volume, '--yes')
        self.assertEqual(ExitCode.OK, code)

    def test_refused_volume_does_not_stop_the_others(self) -> None:
        row, = self.assert_results(ExitCode.REFUSED, ['refused'],
                                   'release', self.disk, '--yes')
        self.assertIsNone(row['Call'])
        self.assertIn('nothing to release', row['Explanation'])
        self.assert_results(
            ExitCode.PARTLY, ['refused', 'released: the volume is available'],
            'release', self.disk, self.orphan(), '--yes')

    def test_interrupt_skips_the_rest(self) -> None:
        volumes = [self.orphan(name) for name in ('one', 'two', 'three')]
        count = []
        call = Cinder.delete_attachment

        def interrupt(cinder: Any, attachment_id: str,
                      **options: Any) -> bool:
            count.append(1)
            if len(count) == 2:
                raise KeyboardInterrupt
            return call(cinder, attachment_id, **options)

        with mock.patch.object(Cinder, 'delete_attachment',
                               interrupt):
            self.assert_results(ExitCode.INTERRUPTED, [
                'released: the volume is available',
                'unknown: interrupted; see openstack bdm release --dry-run '
                + loopback.uid('attachment of two'), 'skipped: not begun'],
                'release', *volumes, '--yes')
        self.assertIn('interrupted: 1 released, 1 unknown, 1 skipped',
                      self.log.output)

    def test_connector_of_a_file_is_used(self) -> None:
        volume = self.orphan()
        for attachment in self.cloud.attachments.values():
            if attachment['volume_id'] == volume:
                attachment['connection_info'] = {}
        code, (row,) = self.bdm('release', volume, '--yes')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertIn('get_connector', row['Explanation'])
        path = self.path('connector.json')
        with open(path, 'w') as file:
            json.dump({'host': 'compute1', 'ip': '127.0.0.1'}, file)
        code, _ = self.bdm('release', volume, '--connector', path, '--yes')
        self.assertEqual(ExitCode.OK, code)
        self.assertEqual([('os-force_detach', volume)], self.cloud.driver)

    def test_same_cloud_releases_in_an_empty_cloud(self) -> None:
        """Release what the last server has left."""
        known = self.orphan()
        for server in (self.alpha, self.beta):
            self.cloud.lose_server(server)
        for volume in (self.disk, self.other):
            self.cloud.lose_volume(volume)
        self.assert_results(
            ExitCode.OK, ['released: the volume is available'], 'release',
            known, '--yes', '--same-cloud')
        lonely = self.cloud.volume('lonely', 'in-use')
        code, (row,) = self.bdm('audit', '--all-projects')
        self.assertEqual(
            (ExitCode.FINDINGS, lonely, 'look: openstack bdm release '
             + lonely), (code, row['Volume'], row['Action']))
        self.assertNotIn('INCOMPLETE', self.stderr.getvalue())
        arguments = ('release', lonely, '--connector', 'none', '--yes')
        code, rows = self.bdm(*arguments)
        self.assertEqual((ExitCode.REFUSED, None), (code, rows))
        self.assertIn('--same-cloud', self.stderr.getvalue())
        self.assert_results(
            ExitCode.OK, ['released: the volume is available'], *arguments,
            '--same-cloud')

    def test_a_word_for_what_is_named_only(self) -> None:
        self.orphan()
        for arguments in (('--orphans',), ('--server', self.alpha),
                          ('--plan', self.plan())):
            asked = len(self.cloud.requests)
            code, _ = self.bdm('release', *arguments, '--connector', 'none',
                               '--yes')
            self.assertEqual(ExitCode.BAD_INPUT, code)
            self.assertIn('confirms that no host', self.stderr.getvalue())
            self.assertEqual(asked, len(self.cloud.requests))


class PlanTest(commandcase.CommandCase):
    """A plan that an audit has written to a file."""

    def test_facts_have_changed(self) -> None:
        self.orphan()
        path = self.plan()
        attachment = self.cloud.attachments[
            loopback.uid('attachment of orphan')]
        volume = self.cloud.volumes[attachment['volume_id']]
        for change in (
                lambda: volume.update(
                    updated_at='2026-01-02T00:00:00.000000'),
                lambda: attachment.update(
                    instance=loopback.uid('another that is gone'))):
            change()
            self.assert_results(
                ExitCode.PARTLY, ['skipped: it has changed since the audit'],
                'release', '--plan', path, '--yes')
        self.assertEqual(0, self.cloud.asked('^(DELETE|POST)'))

    def test_rest_of_the_plan_is_released_later(self) -> None:
        """Go on also if the first part changed the volume."""
        volume = self.orphan(multiattach=True)
        second = self.cloud.server('second')
        self.cloud.attachment('second', second, volume)
        self.cloud.lose_server(second)
        path = self.plan()
        self.bdm('release', loopback.uid('second'), '--yes')
        self.assert_results(
            ExitCode.OK, ['skipped: nothing remains to be done',
                          'released: the volume is available'],
            'release', '--plan', path, '--yes')
        code, rows = self.bdm('release', '--plan', path, '--yes')
        self.assertEqual((ExitCode.OK, {'skipped'}), (
            code, {r['Result'].partition(':')[0] for r in rows}))
        self.assertIn('2 skipped; nothing was changed', self.log.output)

    def test_released_volume_is_skipped(self) -> None:
        """Skip a stuck detach that was rolled back."""
        self.cloud.volumes[self.disk]['status'] = 'detaching'
        path = self.plan()
        for result in ('released: the volume is in-use',
                       'skipped: nothing remains to be done'):
            self.assert_results(ExitCode.OK, [result],
                                'release', '--plan', path, '--yes')

    def test_plan_without_releases_changes_nothing(self) -> None:
        self.break_volume()
        self.assertEqual((ExitCode.OK, []),
                         self.bdm('release', '--plan', self.plan(), '--yes'))
        self.assertIn('The plan has nothing to release', self.log.output)
