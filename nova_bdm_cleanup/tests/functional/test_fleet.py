# SPDX-License-Identifier: Apache-2.0
"""The operators' commands against a real Nova and a real Cinder.

Cinder is shared with other tests, whose servers this Nova does not know, so
nothing here looks at all projects without naming what it wants.
"""

from __future__ import annotations

import pathlib
from typing import Any

import fixtures
from prometheus_client import parser

from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import commands


class FleetTest(commands.Commands):

    CLOUD = {'plugin': True, 'plugin_options': {'grace_period': 0}}

    def setUp(self) -> None:
        super().setUp()
        #: What shows that this Nova and this Cinder belong together.
        self.witness = self.cloud.server(fixture.Disk(), name='witness')


class AuditTest(FleetTest):

    def setUp(self) -> None:
        super().setUp()
        self.metrics = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path) / 'bdm-audit.prom'

    def counted(self) -> dict[tuple[str, str], float]:
        """What Prometheus reads, by host and reason."""
        return {(sample.labels['host'], sample.labels['reason']): sample.value
                for family in parser.text_string_to_metric_families(
                    self.metrics.read_text())
                for sample in family.samples
                if sample.name == 'nova_bdm_audit_findings' and sample.value}

    def audit(self, *arguments: str, **options: Any) -> dict[str, str]:
        """The reasons by volume, in the owner's project."""
        code, rows = self.bdm('audit', '--project', self.cloud.owner.project,
                              *arguments, **options)
        self.assertEqual(ExitCode.FINDINGS if rows else ExitCode.OK, code,
                         self.stderr.getvalue())
        return {row['Volume']: row['Reason'] for row in rows}

    def test_healthy(self):
        self.cloud.server(
            fixture.Disk(), fixture.Disk(multiattach=True),
            fixture.Disk(source='blank'), root='volume')
        self.assertEqual({}, self.audit())
        self.assertEqual({}, self.audit('--thorough'))

    def test_everything(self):
        server = self.cloud.server(
            *[fixture.Disk() for _ in range(6)], root='volume')
        lost, gone, reset, given, moving, fine = server.volumes
        self.cloud.lose_attachment(server, lost)
        self.cloud.lose_volume(server, gone)
        self.cloud.reset_status(reset)
        self.cloud.give_away(server, given)
        self.cloud._cinder_nova.volumes.begin_detaching(moving)
        ghosts = self.cloud.volume()
        self.cloud.leave_attachment(self.ghost(), ghosts)
        self.assertEqual({
            lost: 'volume-available', gone: 'volume-missing',
            reset: 'volume-available', given: 'attached-elsewhere',
            ghosts: 'server-gone'}, self.audit(
                '--prometheus', str(self.metrics)))
        self.assertEqual({
            ('compute1', 'volume-available'): 2,
            ('compute1', 'volume-missing'): 1,
            ('compute1', 'attached-elsewhere'): 1,
            ('compute1', 'server-gone'): 1}, self.counted())
        self.assertEqual({moving: 'operation-in-flight'}, self.audit(
            '--reason', 'operation-in-flight'))
        self.assertEqual('stuck', self.audit('--stuck-after', '0')[moving])

    def test_stale_attachments(self):
        server = self.cloud.server(fixture.Disk())
        connected, reserved, twin = (
            self.cloud.volume(), self.cloud.volume(), server.volumes[0])
        self.cloud.leave_attachment(server, connected)
        self.cloud.leave_attachment(server, reserved, connected=False)
        self.cloud.leave_attachment(server, twin)
        self.assertEqual({
            connected: 'stale-attachment', reserved: 'stale-attachment',
            twin: 'duplicate-attachment'}, self.audit())

    def test_one_host(self):
        self.cloud.lose_attachment(self.witness, self.witness.volumes[0])
        code, rows = self.bdm('audit', '--host', 'compute1')
        self.assertEqual((ExitCode.FINDINGS, ['volume-available']),
                         (code, [row['Reason'] for row in rows]))


class ShowAndCleanTest(FleetTest):

    def test_clean(self):
        server = self.cloud.server(fixture.Disk(), fixture.Disk(),
                                   fixture.Disk())
        lost, gone, fine = server.volumes
        self.cloud.lose_attachment(server, lost)
        self.cloud.lose_volume(server, gone)
        stale = self.cloud.volume()
        self.cloud.leave_attachment(server, stale)
        code, rows = self.bdm('show', server.id)
        self.assertEqual(ExitCode.FINDINGS, code)
        would = {row['Volume']: row['Hard Reboot'] for row in rows}
        self.assertEqual({
            lost: 'removes the mapping', gone: 'removes the mapping',
            fine: 'keeps it', stale: 'deletes the attachment'}, would)

        code, rows = self.bdm('clean', server.id, '--dry-run')
        self.assertEqual((ExitCode.FINDINGS, 3), (code, len(rows)))
        code, rows = self.bdm('clean', server.id, '--yes')
        self.assertEqual((ExitCode.OK, ['removed'] * 3),
                         (code, [row['Result'] for row in rows]))
        view = self.cloud.look(server)
        self.assert_healthy(view, fine)
        for volume in (lost, gone, stale):
            self.assert_gone(view, volume)
        self.assertEqual(ExitCode.OK,
                         self.bdm('clean', server.id, '--yes')[0])

    def test_a_disk_that_is_left_out(self):
        """It is said before the reboot, which does it."""
        server = self.cloud.server(fixture.Disk(), fixture.Disk())
        taken, fine = server.volumes
        self.cloud.lose_attachment(server, taken)
        self.cloud.leave_attachment(self.ghost(), taken, connected=False)
        code, rows = self.bdm('show', server.id)
        self.assertEqual(ExitCode.FINDINGS, code)
        self.assertEqual(
            {taken: ('operation-in-flight', False,
                     'keeps it, and ' + facts.WITHOUT_DISK),
             fine: ('healthy', True, 'keeps it')},
            {row['Volume']: (row['Verdict'], row['Connects'],
                             row['Hard Reboot']) for row in rows})
        self.cloud.reboot(server)
        view = self.cloud.look(server)
        self.assertIsNotNone(view.block_device(taken))
        self.assertFalse(view.has_disk(taken))
        self.assert_healthy(view, fine)
        self.assertEqual(1, sum(
            'event=not-connected' in line and facts.WITHOUT_DISK in line
            for line in self.cloud.log()))

    def test_plan(self):
        """What the audit prints is what the others do."""
        server = self.cloud.server(fixture.Disk(), fixture.Disk())
        lost, fine = server.volumes
        self.cloud.lose_attachment(server, lost)
        held = self.cloud.volume()
        self.cloud.leave_attachment(self.deleted(), held)
        self.bdm('audit', '--project', self.cloud.owner.project)
        plan = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path) / 'plan.json'
        plan.write_text(self.stdout.getvalue())
        for command, volume in (('release', held), ('clean', lost)):
            code, rows = self.bdm(command, '--plan', str(plan), '--yes')
            self.assertEqual((ExitCode.OK, [volume]),
                             (code, [row['Volume'] for row in rows]))
            code, (row,) = self.bdm(command, '--plan', str(plan), '--yes')
            self.assertEqual(ExitCode.OK, code)
            self.assertIn('skipped: ', row['Result'])
        self.assert_released(held, 'terminate_connection', 'remove_export')
        view = self.cloud.look(server)
        self.assert_gone(view, lost)
        self.assert_healthy(view, fine)

    def clean_in_state(self, status: str, action: dict[str, Any],
                       *arguments: str, after: str = 'ACTIVE') -> None:
        """Clean a server that is not running."""
        server = self.cloud.server(fixture.Disk(), fixture.Disk())
        lost, fine = server.volumes
        self.cloud.request('POST', '/servers/%s/action' % server.id, action,
                           by=self.cloud.admin)
        self.cloud.lose_attachment(server, lost)
        self.assertEqual(status, self.cloud.look(server).status)
        code, rows = self.bdm('clean', server.id, '--yes', *arguments)
        self.assertEqual((ExitCode.OK, ['removed']),
                         (code, [row['Result'] for row in rows]))
        view = self.cloud.look(server)
        self.assertEqual((after, after == 'ACTIVE'),
                         (view.status, view.is_running))
        self.assert_gone(view, lost)
        if view.is_running:
            self.assert_healthy(view, fine)

    def test_stopped_server(self):
        self.clean_in_state('SHUTOFF', {'os-stop': None})

    def test_stopped_server_that_is_to_stay_so(self):
        self.clean_in_state('SHUTOFF', {'os-stop': None}, '--stop-again',
                            after='SHUTOFF')

    def test_server_in_error(self):
        self.clean_in_state('ERROR', {'os-resetState': {'state': 'error'}})


class ReleaseTest(FleetTest):
    """What is not among the use cases: see ``test_use_cases``."""

    def test_in_use_by_nobody(self):
        server = self.ghost()
        volume = self.cloud.volume()
        self.cloud.leave_legacy_attachment(server, volume)
        volumes = self.cloud._cinder_nova.volumes
        volumes.begin_detaching(volume)
        for attachment in self.cloud.attachments(volume):
            self.cloud._cinder_nova.attachments.delete(attachment.id)
        volumes.reserve(volume)
        self.cloud.reset_status(volume, 'detaching')
        volumes.roll_detaching(volume)
        self.assertEqual('in-use', self.status(volume))
        code, rows = self.bdm('audit', '--project', self.cloud.owner.project)
        self.assertEqual([(volume, 'used-by-nobody')],
                         [(r['Volume'], r['Reason']) for r in rows])
        code, rows = self.bdm('release', volume, '--connector',
                              self.connector(), *commands.LONG_AGO, '--yes')
        self.assertEqual(ExitCode.OK, code, rows)
        self.assert_released(volume, 'terminate_connection')
