# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm release``."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

from nova_bdm_cleanup.openstack.cinder import Cinder
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import loopback
from nova_bdm_cleanup.tests.unit.osc import commandcase


class ReleaseBdmTest(commandcase.CommandCase):

    def test_plan_first(self) -> None:
        volume = self.orphan()
        code, (row,) = self.bdm('release', volume)
        self.assertEqual(
            (ExitCode.FINDINGS, 'attachment delete', 'planned', 'compute1'),
            (code, row['Call'], row['Result'], row['Host']))
        self.assertEqual([], self.cloud.driver)
        self.assertEqual(0, self.cloud.asked('^(DELETE|POST)'))

    def test_yes(self) -> None:
        volume = self.orphan()
        code, (row,) = self.bdm('release', volume, '--yes')
        self.assertEqual((ExitCode.REPAIRED,
                          'released: the volume is available'),
                         (code, row['Result']))
        self.assertEqual([('terminate_connection', volume)],
                         self.cloud.driver)

    def test_of_a_server_whose_id_is_written_in_another_form(self) -> None:
        volume = self.cloud.volume('written', 'reserved')
        attachment = self.cloud.attachment(
            'written', self.alpha.replace('-', ''), volume, 'reserved', False)
        code, (row,) = self.bdm('release', attachment, '--yes')
        self.assertEqual((ExitCode.REPAIRED, self.alpha),
                         (code, row['Server']))
        self.assertNotIn(attachment, self.cloud.attachments)

    def test_orphans_of_another_nova(self) -> None:
        mine, theirs = self.orphan('one'), self.orphan('two')
        self.cloud.attachments[loopback.uid('attachment of two')][
            'host'] = 'elsewhere'
        code, (row,) = self.bdm('release', '--orphans', '--yes')
        self.assertEqual((ExitCode.REPAIRED, mine), (code, row['Volume']))
        self.assertIn('1 attachments were left', self.stderr.getvalue())
        self.assertEqual((ExitCode.OK, []), self.bdm('release', '--orphans'))
        # Who names it is told why.
        code, (row,) = self.bdm('release', theirs, '--yes')
        self.assertEqual((ExitCode.REFUSED, 'refused'), (code, row['Result']))
        self.assertIn('elsewhere', row['Explanation'])

    def test_orphans(self) -> None:
        volumes = {self.orphan('one'), self.orphan('two')}
        self.break_volume()
        code, rows = self.bdm('release', '--orphans', '--yes')
        self.assertEqual(ExitCode.REPAIRED, code)
        self.assertEqual(volumes, {r['Volume'] for r in rows})
        self.assertEqual((ExitCode.OK, []), self.bdm('release', '--orphans'))

    def test_stuck_detach_of_a_multiattach_volume(self) -> None:
        self.cloud.volumes[self.disk].update(multiattach=True,
                                             status='detaching')
        self.cloud.mapping(self.beta, self.disk, self.cloud.attachment(
            'second', self.beta, self.disk))
        code, rows = self.bdm('release', '--orphans', '--yes')
        self.assertEqual(ExitCode.REPAIRED, code)
        self.assertEqual(['released: the volume is in-use',
                          'done: the volume is in-use'],
                         [r['Result'] for r in rows])
        self.assertEqual([('os-roll_detaching', self.disk)],
                         self.cloud.driver)

    def test_orphans_of_an_incomplete_audit(self) -> None:
        volume = self.orphan()
        other = self.cloud.volume('other volume', 'in-use')
        self.cloud.on('GET .*/volumes/' + other, lambda: (500, None))
        code, rows = self.bdm('release', '--orphans', '--yes')
        self.assertEqual((ExitCode.REFUSED, None), (code, rows))
        self.assertIn('INCOMPLETE: volume ' + other, self.stderr.getvalue())
        self.assertIn('the audit is incomplete', self.stderr.getvalue())
        self.assertEqual(0, self.cloud.asked('^(DELETE|POST)'))
        code, _ = self.bdm('release', volume, '--yes')
        self.assertEqual(ExitCode.REPAIRED, code)

    def test_max_is_all_or_nothing(self) -> None:
        self.orphan('one'), self.orphan('two')
        code, rows = self.bdm('release', '--orphans', '--yes', '--max', '1')
        self.assertEqual((ExitCode.REFUSED, None), (code, rows))
        self.assertEqual([], self.cloud.driver)
        code, rows = self.bdm('release', '--orphans', '--yes', '--max', '2')
        self.assertEqual((ExitCode.REPAIRED, 2), (code, len(rows)))

    def test_refused(self) -> None:
        code, (row,) = self.bdm('release', self.disk, '--yes')
        self.assertEqual((ExitCode.REFUSED, 'refused', None),
                         (code, row['Result'], row['Call']))
        self.assertIn('nothing to release', row['Explanation'])

    def test_some_refused(self) -> None:
        code, rows = self.bdm('release', self.disk, self.orphan(), '--yes')
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertEqual(['refused', 'released: the volume is available'],
                         [r['Result'] for r in rows])

    def test_refused_by_cinder(self) -> None:
        self.cloud.on('DELETE', lambda: (409, {
            'conflictingRequest': {'message': 'ConflictNovaUsing'}}))
        code, (row,) = self.bdm('release', self.orphan(), '--yes')
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertIn('409 (ConflictNovaUsing)', row['Result'])

    def test_interrupted(self) -> None:
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
            code, rows = self.bdm('release', *volumes, '--yes')
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertEqual(
            ['released: the volume is available', 'unknown: interrupted',
             'not begun'], [r['Result'] for r in rows])

    def test_connector(self) -> None:
        volume = self.orphan()
        for attachment in self.cloud.attachments.values():
            if attachment['volume_id'] == volume:
                attachment['connection_info'] = {}
        code, (row,) = self.bdm('release', volume)
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertIn('get_connector', row['Explanation'])
        path = self.path('connector.json')
        with open(path, 'w') as file:
            json.dump({'host': 'compute1', 'ip': '127.0.0.1'}, file)
        code, _ = self.bdm('release', volume, '--connector', path, '--yes')
        self.assertEqual(ExitCode.REPAIRED, code)
        self.assertEqual([('os-force_detach', volume)], self.cloud.driver)

    def test_a_word_for_what_is_named_only(self) -> None:
        self.orphan()
        for arguments in (('--orphans',), ('--server', self.alpha),
                          ('--plan', self.plan())):
            asked = len(self.cloud.requests)
            code, _ = self.bdm('release', *arguments, '--connector', 'none',
                               '--yes')
            self.assertEqual(ExitCode.BAD_INPUT, code)
            self.assertIn('your word', self.stderr.getvalue())
            self.assertEqual(asked, len(self.cloud.requests))

    def test_never_connected(self) -> None:
        volume = self.cloud.volume('reserved for nothing', 'attaching')
        code, _ = self.bdm('release', volume, '--connector', 'none', '--yes')
        self.assertEqual(ExitCode.REPAIRED, code)
        self.assertEqual([('os-unreserve', volume)], self.cloud.driver)

    def test_bad_input(self) -> None:
        for arguments in ((), ('--orphans', self.disk), ('nothing',),
                          ('--plan', 'no/such/file'),
                          (self.disk, '--connector', 'no/such/file')):
            self.assertEqual(ExitCode.BAD_INPUT,
                             self.bdm('release', *arguments)[0], arguments)


class PlanTest(commandcase.CommandCase):
    """What an audit has written into a file."""

    def test_as_planned(self) -> None:
        volume = self.orphan()
        self.break_volume()
        path = self.plan()
        code, rows = self.bdm('release', '--plan', path, '--yes')
        self.assertEqual((ExitCode.REPAIRED, [volume]),
                         (code, [r['Volume'] for r in rows]))

    def test_facts_have_changed(self) -> None:
        volume = self.orphan()
        self.break_volume()
        path = self.plan()
        for changed in (volume, self.disk):
            self.cloud.volumes[changed]['updated_at'] = (
                '2026-01-02T00:00:00.000000')
        for command, name in (('release', volume), ('clean', self.disk)):
            code, _ = self.bdm(command, '--plan', path, '--yes')
            self.assertEqual(ExitCode.REFUSED, code)
            self.assertIn('the facts have changed', self.stderr.getvalue())
            self.assertIn(name, self.stderr.getvalue())
        self.assertEqual(0, self.cloud.asked('^(DELETE|POST)'))

    def test_of_another_server_by_now(self) -> None:
        self.orphan()
        path = self.plan()
        attachment = self.cloud.attachments[
            loopback.uid('attachment of orphan')]
        attachment['instance'] = loopback.uid('another that is gone')
        code, rows = self.bdm('release', '--plan', path, '--yes')
        self.assertEqual((ExitCode.REFUSED, None), (code, rows))
        self.assertIn('the facts have changed', self.stderr.getvalue())
        self.assertEqual(0, self.cloud.asked('^(DELETE|POST)'))

    def test_gone_since(self) -> None:
        self.orphan()
        path = self.plan()
        self.bdm('release', '--orphans', '--yes')
        code, _ = self.bdm('release', '--plan', path, '--yes')
        self.assertEqual(ExitCode.REFUSED, code)
