# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm clean``."""

from __future__ import annotations

import io
from typing import Any
from unittest import mock

from nova_bdm_cleanup.openstack.nova import Nova
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import loopback
from nova_bdm_cleanup.tests.unit.osc import commandcase


class Terminal(io.StringIO):
    """Somebody sits there."""

    def isatty(self) -> bool:
        return True


class CleanBdmTest(commandcase.CommandCase):

    def reboot(self, *, heals: bool = True, status: str = 'ACTIVE') -> None:
        """Have a hard reboot do what the plugin does."""
        def reboot() -> None:
            self.cloud.servers[self.alpha]['status'] = status
            if heals:
                self.cloud.mappings[self.alpha] = []

        self.cloud.on('POST .*/action', reboot)

    def test_dry_run(self) -> None:
        self.break_volume()
        code, (row,) = self.bdm('clean', 'alpha', '--dry-run')
        self.assertEqual((ExitCode.FINDINGS, 'would be removed'),
                         (code, row['Result']))
        self.assertEqual(0, self.cloud.asked('POST'))

    def test_yes(self) -> None:
        self.break_volume()
        self.reboot()
        for status in ('ACTIVE', 'ERROR', 'SHUTOFF'):
            self.cloud.servers[self.alpha]['status'] = status
            code, (row,) = self.bdm('clean', 'alpha', '--yes')
            self.assertEqual((ExitCode.REPAIRED, 'removed'),
                             (code, row['Result']))
            self.cloud.mapping(self.alpha, self.disk,
                               loopback.uid('attachment of disk'))
        self.assertIn('runs afterwards', self.log.output)

    def stop_again(self, stop: Any) -> tuple[int, Any]:
        """Clean a stopped server that is to stay so."""
        server = self.cloud.servers[self.alpha]
        server['status'] = 'SHUTOFF'
        self.break_volume()

        def act() -> Any:
            if 'reboot' in self.cloud.requests[-1].body:
                self.cloud.mappings[self.alpha].clear()
                server['status'] = 'ACTIVE'
                return None
            return stop(server)

        self.cloud.on('POST', act)
        code, (row,) = self.bdm('clean', 'alpha', '--yes', '--stop-again')
        self.assertIn('is stopped again', self.log.output)
        return code, row['Result']

    def test_stop_again(self) -> None:
        self.assertEqual(
            (ExitCode.REPAIRED, 'removed'),
            self.stop_again(lambda s: s.update(status='SHUTOFF')))

    def test_not_stopped_again(self) -> None:
        code, result = self.stop_again(lambda s: (409, {
            'conflictingRequest': {'message': 'locked'}}))
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertIn('unknown: ', result)
        self.assertIn('locked', result)

    def test_a_server_that_runs_is_not_stopped(self) -> None:
        self.break_volume()
        self.reboot()
        code, _ = self.bdm('clean', 'alpha', '--yes', '--stop-again')
        self.assertEqual(ExitCode.REPAIRED, code)
        self.assertEqual([{'reboot': {'type': 'HARD'}}], [
            r.body for r in self.cloud.requests
            if r.method == 'POST' and r.path.endswith('action')])

    def test_only_yes_means_yes(self) -> None:
        self.break_volume()
        self.reboot()
        for answer in ('n\n', 'no\n', '\n', ' \n', '', 'maybe\n', 'yn\n',
                       'alpha\n', '1\n'):
            code, _ = self.bdm('clean', 'alpha', stdin=Terminal(answer))
            self.assertEqual(ExitCode.REFUSED, code, repr(answer))
            self.assertIn('[y/N]', self.stderr.getvalue())
        self.assertEqual(0, self.cloud.asked('POST'))

    def test_yes_to_the_question(self) -> None:
        self.reboot()
        for answer in ('y\n', 'Y\n', 'yes\n', 'YES', ' yes \n'):
            self.break_volume()
            self.cloud.mappings[self.alpha] = []
            self.cloud.mapping(self.alpha, self.disk,
                               loopback.uid('attachment of disk'))
            code, _ = self.bdm('clean', 'alpha', stdin=Terminal(answer))
            self.assertEqual(ExitCode.REPAIRED, code, repr(answer))

    def test_nobody_to_ask(self) -> None:
        self.break_volume()
        code, _ = self.bdm('clean', 'alpha')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertIn('give --yes', self.stderr.getvalue())
        self.assertEqual(0, self.cloud.asked('POST'))

    def test_refused_by_nova(self) -> None:
        self.break_volume()
        for status in (403, 409):
            self.cloud.calm()
            self.cloud.on('POST .*/action', lambda s=status: (s, {
                'conflictingRequest': {'message': 'on purpose'}}))
            code, (row,) = self.bdm('clean', 'alpha', '--yes')
            self.assertEqual(ExitCode.REFUSED, code)
            self.assertIn('refused: ', row['Result'])

    def test_interrupted(self) -> None:
        self.break_volume()
        self.cloud.lose_attachment(self.other)
        with mock.patch.object(Nova, 'reboot_hard', autospec=True,
                               side_effect=KeyboardInterrupt):
            code, rows = self.bdm('clean', 'alpha', 'beta', '--yes')
        self.assertEqual(
            (ExitCode.PARTLY, ['unknown: interrupted', 'not begun']),
            (code, [r['Result'] for r in rows]))

    def test_without_the_plugin(self) -> None:
        self.break_volume()
        self.reboot(heals=False, status='ERROR')
        code, (row,) = self.bdm('clean', 'alpha', '--yes')
        self.assertEqual((ExitCode.PARTLY, 'still there'),
                         (code, row['Result']))
        self.assertIn('is ERROR after the reboot', self.stderr.getvalue())

    def test_server_that_does_not_run_afterwards(self) -> None:
        self.break_volume()
        self.reboot(status='ERROR')
        code, (row,) = self.bdm('clean', 'alpha', '--yes')
        self.assertEqual((ExitCode.PARTLY, 'removed'), (code, row['Result']))
        self.assertIn('is ERROR after the reboot', self.stderr.getvalue())

    def test_nothing_to_do(self) -> None:
        self.assertEqual((ExitCode.OK, []), self.bdm('clean', 'alpha',
                                                     '--yes'))
        self.assertEqual(0, self.cloud.asked('POST'))

    def test_more_attachments_than_one_reboot_deletes(self) -> None:
        stale = sorted(self.cloud.attachment(
            'stale-%d' % n, self.alpha,
            self.cloud.volume('stale-%d' % n, 'in-use')) for n in range(10))

        def reboot() -> None:
            for attachment in stale[:8]:
                del self.cloud.attachments[attachment]
            del stale[:8]

        self.cloud.on('POST .*/action', reboot)
        code, rows = self.bdm('clean', 'alpha', '--yes')
        self.assertEqual((ExitCode.PARTLY, ['removed'] * 8),
                         (code, [r['Result'] for r in rows]))
        self.assertIn('2 more stale attachments are left', self.log.output)
        code, rows = self.bdm('clean', 'alpha', '--yes')
        self.assertEqual((ExitCode.REPAIRED, ['removed'] * 2),
                         (code, [r['Result'] for r in rows]))

    def test_a_mapping_too_many(self) -> None:
        """Only the reboot tells whether Nova has ever connected it."""
        self.cloud.mapping(self.alpha, self.disk, loopback.uid('lost'))
        _, (row,) = self.bdm('audit', '--server', 'alpha', '--thorough')
        self.assertEqual(
            ('duplicate-mapping', 'look: openstack bdm show ' + self.alpha),
            (row['Reason'], row['Action']))
        _, rows = self.bdm('show', 'alpha')
        self.assertIn('removes it if Nova never connected it',
                      [r['Hard Reboot'] for r in rows])
        for reboot, code, result in (
                (lambda: None, ExitCode.PARTLY, 'still there'),
                (lambda: self.cloud.mappings[self.alpha].pop() and None,
                 ExitCode.REPAIRED, 'removed')):
            self.cloud.on('POST .*/action', reboot)
            found, (row,) = self.bdm('clean', 'alpha', '--yes')
            self.assertEqual((code, result), (found, row['Result']))

    def test_a_person_must_look(self) -> None:
        self.break_volume()
        self.cloud.attachment('twin', self.alpha, self.cloud.attach(
            self.alpha, 'second disk'))
        _, rows = self.bdm('audit', '--server', 'alpha')
        self.assertEqual({'look: openstack bdm show ' + self.alpha},
                         {r['Action'] for r in rows})
        code, _ = self.bdm('clean', 'alpha', 'beta', '--yes')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertIn('duplicate-attachment', self.stderr.getvalue())
        self.assertEqual(0, self.cloud.asked('POST'))

    def test_what_a_reboot_does_not_free(self) -> None:
        self.cloud.volumes[self.disk]['status'] = 'detaching'
        self.assertEqual((ExitCode.OK, []), self.bdm('clean', 'alpha'))
        self.assertIn('openstack bdm release', self.log.output)


class PlanTest(commandcase.CommandCase):
    """What an audit has written into a file."""

    def test_as_planned(self) -> None:
        self.break_volume()
        path = self.plan()
        code, rows = self.bdm('clean', '--plan', path, '--dry-run')
        self.assertEqual((ExitCode.FINDINGS, [self.disk]),
                         (code, [r['Volume'] for r in rows]))

    def test_standard_input(self) -> None:
        self.break_volume()
        with open(self.plan()) as file:
            code, rows = self.bdm('clean', '--plan', '-', '--dry-run',
                                  stdin=file)
        self.assertEqual((ExitCode.FINDINGS, [self.disk]),
                         (code, [r['Volume'] for r in rows]))

    def test_nothing_of_it_is_for_a_reboot(self) -> None:
        self.orphan()
        self.assertEqual((ExitCode.OK, []),
                         self.bdm('clean', '--plan', self.plan()))
