# SPDX-License-Identifier: Apache-2.0
"""The operators' commands against a real Nova and a real Cinder.

The findings of the audit are in ``test_stuck``, and the use cases of a release
in ``test_use_cases``.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import fixtures

from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import commands

OTHER_HOST = 'compute-of-region-two'
WITHOUT_DISK = (
    'the guest comes back without the disk: while Cinder shows no attachment '
    'of this server, another server may have the disk')


class AuditTest(commands.CommandWithWitnessTestCase):

    def reasons(self, *arguments: str) -> dict[str, str]:
        return {volume: reason for volume, (reason, _) in self.run_audit(
            *arguments).items()}

    def test_healthy_server_has_no_findings(self):
        self.create_server(
            fixture.Disk(), fixture.Disk(multiattach=True),
            fixture.Disk(source='blank'), root='volume')
        self.assertEqual({}, self.reasons())
        self.assertEqual({}, self.reasons('--thorough'))

    def test_stale_attachments_are_found(self):
        server = self.create_server(fixture.Disk())
        connected, reserved, twin = (
            self.cloud.volume(), self.cloud.volume(), server.volumes[0])
        self.cloud.create_attachment(server, connected)
        self.cloud.create_attachment(server, reserved, connected=False)
        self.cloud.create_attachment(server, twin)
        self.assertEqual({
            connected: 'stale-attachment', reserved: 'stale-attachment',
            twin: 'duplicate-attachment'}, self.reasons())

    def test_host_option_limits_the_audit(self):
        self.cloud.lose_attachment(self.witness, *self.witness.volumes)
        code, rows = self.bdm('audit', '--host', 'compute1')
        self.assertEqual((ExitCode.FINDINGS, ['volume-available']),
                         (code, [row['Reason'] for row in rows]))


    def test_cause_and_owner_are_those_of_nova_and_cinder(self):
        server = self.create_server(fixture.Disk())
        volume = server.volumes[0]
        self.cinder.volumes.set_metadata(volume, {
            'csi.storage.k8s.io/pvc/name': 'db-0'})
        self.cloud.cinder.break_driver('extend_volume', volume)
        self.cinder.volumes.extend(volume, 2)
        self.wait_until(
            lambda: self.volume_status(volume) == 'error_extending')
        code, (row,) = self.bdm('audit', '--project',
                                self.cloud.owner.project)
        self.assertEqual(
            (volume, self.cloud.owner.project, self.cloud.admin.user, 'db-0',
             None),
            tuple(row[name] for name in (
                'Volume', 'Project Name', 'User Name', 'Claim', 'Cause')))
        with fixtures.FakeLogger() as log:
            self.bdm('show', server.id)
        self.assertIn(
            'volume %s  extend volume:Volume Driver failed to extend volume.'
            % volume, log.output)


class ShowAndCleanTest(commands.CommandWithWitnessTestCase):

    def test_clean_removes_what_show_announces(self):
        server = self.create_server(*[fixture.Disk()] * 3)
        lost, gone, fine = server.volumes
        self.cloud.lose_attachment(server, lost)
        self.cloud.lose_volume(server, gone)
        stale = self.cloud.volume()
        self.cloud.create_attachment(server, stale)
        code, rows = self.bdm('show', server.id)
        self.assertEqual(ExitCode.FINDINGS, code)
        self.assertEqual({
            lost: 'removes the mapping', gone: 'removes the mapping',
            fine: 'keeps it', stale: 'deletes the attachment'},
            {row['Volume']: row['Hard Reboot'] for row in rows})

        code, rows = self.bdm('clean', server.id, '--dry-run')
        self.assertEqual((ExitCode.FINDINGS, 3), (code, len(rows)))
        code, rows = self.bdm('clean', server.id, '--yes')
        self.assertEqual((ExitCode.OK, ['removed'] * 3),
                         (code, [row['Result'] for row in rows]))
        view = self.look(server)
        self.assert_healthy(view, fine)
        for volume in (lost, gone, stale):
            self.assert_gone(view, volume)
        self.assertEqual(ExitCode.OK,
                         self.bdm('clean', server.id, '--yes')[0])

    def test_disk_that_is_not_connected(self):
        """Show before the reboot that it leaves the disk out."""
        server = self.create_server(*[fixture.Disk()] * 2)
        taken, fine = server.volumes
        self.cloud.lose_attachment(server, taken)
        self.cloud.create_attachment(self.unknown_server(), taken,
                                     connected=False)
        code, rows = self.bdm('show', server.id)
        self.assertEqual(ExitCode.FINDINGS, code)
        self.assertEqual(
            {taken: ('operation-in-flight', False,
                     'keeps it, and ' + WITHOUT_DISK),
             fine: ('healthy', True, 'keeps it')},
            {row['Volume']: (row['Verdict'], row['Connects'],
                             row['Hard Reboot']) for row in rows})
        view = self.reboot(server)
        self.assertIsNotNone(view.block_device(taken))
        self.assertFalse(view.has_disk(taken))
        self.assert_healthy(view, fine)
        line, = self.log_lines(server, 'not-connected')
        self.assertIn(WITHOUT_DISK, line.text)

    def test_disk_attached_to_another_host(self):
        """Tell that a reboot reconnects it, and clean it."""
        server = self.create_server(fixture.Disk())
        moved, = server.volumes
        self.attach_to_host(server, OTHER_HOST)
        self.assertEqual(
            {moved: ('half-moved', 'openstack bdm clean ' + server.id)},
            self.run_audit())
        code, (row,) = self.bdm('show', server.id)
        self.assertEqual(
            (ExitCode.FINDINGS, OTHER_HOST, 'reconnects it', True),
            (code, row['Host'], row['Hard Reboot'], row['Connects']))
        code, (row,) = self.bdm('clean', server.id, '--yes')
        self.assertEqual((ExitCode.OK, 'reconnected'), (code, row['Result']))
        self.assertEqual({}, self.run_audit())

    def test_plan_of_an_audit_is_carried_out(self):
        """Release and clean by the plan that the audit prints."""
        server = self.create_server(*[fixture.Disk()] * 2)
        lost, fine = server.volumes
        self.cloud.lose_attachment(server, lost)
        held = self.cloud.volume()
        self.cloud.create_attachment(self.deleted_server(), held)
        self.run_audit()
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
        view = self.look(server)
        self.assert_gone(view, lost)
        self.assert_healthy(view, fine)
        page = plan.with_name('report.html')
        code, _ = self.bdm('audit', '--all-projects', '--since',
                           str(plan.parent), '--report', str(page))
        self.assertEqual(ExitCode.OK, code)
        for words in ('0 new, 0 as before, 2 ended', lost, held):
            self.assertIn(words, page.read_text(encoding='utf-8'))

    def clean_in_state(self, status: str, action: dict[str, Any],
                       *arguments: str, after: str = 'ACTIVE') -> None:
        """Clean a server that is not running."""
        server = self.create_server(*[fixture.Disk()] * 2)
        lost, fine = server.volumes
        self.cloud.act(server, action, by=self.cloud.admin)
        self.cloud.lose_attachment(server, lost)
        self.assertEqual(status, self.cloud.look(server).status)
        code, rows = self.bdm('clean', server.id, '--yes', *arguments)
        self.assertEqual(
            (ExitCode.OK, ['done'] * (status == 'ERROR') + ['removed']),
            (code, [row['Result'] for row in rows]))
        view = self.cloud.look(server)
        self.assertEqual((after, after == 'ACTIVE'),
                         (view.status, view.is_running))
        self.assert_gone(view, lost)
        if view.is_running:
            self.assert_healthy(view, fine)

    def test_stopped_server_is_cleaned(self):
        self.clean_in_state('SHUTOFF', {'os-stop': None})

    def test_cleaned_server_is_stopped_again(self):
        self.clean_in_state('SHUTOFF', {'os-stop': None}, '--stop-again',
                            after='SHUTOFF')

    def test_server_in_error_is_cleaned(self):
        self.clean_in_state('ERROR', {'os-resetState': {'state': 'error'}})


class MemberTest(commands.CommandWithWitnessTestCase):
    """A server that boots from a volume; Nova shows a member no root."""

    def setUp(self) -> None:
        super().setUp()
        self.server = self.create_server(*[fixture.Disk()] * 3, root='volume')
        for volume in self.server.volumes:
            self.cloud.lose_attachment(self.server, volume)

    def test_member_is_sent_to_an_administrator(self):
        """Raise no alarm, and ask an administrator."""
        metrics = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path) / 'bdm.prom'
        code, rows = self.bdm('audit', '--long', '--prometheus', str(metrics),
                              by=self.cloud.owner)
        self.assertEqual(ExitCode.FINDINGS, code)
        self.assertEqual({(
            volume, 'volume-available', 'ask an administrator: openstack bdm '
            'audit --all-projects --server ' + self.server.id, 'look')
            for volume in self.server.volumes}, {
            (row['Volume'], row['Reason'], row['Action'], row['Remedy'])
            for row in rows})
        for row in rows:
            self.assertIn('your credentials do not show whether it is the '
                          'root disk', row['Explanation'])
        self.assertIn('{host="",reason="root-volume-dangling"} 0.0',
                      metrics.read_text())

        code, rows = self.bdm('show', self.server.id, by=self.cloud.owner)
        self.assertEqual(ExitCode.FINDINGS, code)
        self.assertEqual(
            {self.server.root: ('healthy', True),
             **dict.fromkeys(self.server.volumes,
                             ('volume-available', None))},
            {row['Volume']: (row['Verdict'], row['Connects'])
             for row in rows})

        code, rows = self.bdm('clean', self.server.id, '--yes',
                              by=self.cloud.owner)
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertEqual([], self.cloud.log(
            'Rebooting instance.*' + self.server.id))

    def test_administrator_can_clean_for_the_member(self):
        """Follow the command that the member is to ask for."""
        code, rows = self.bdm('audit', '--all-projects', '--server',
                              self.server.id)
        self.assertEqual((ExitCode.FINDINGS, {
            ('volume-available', 'openstack bdm clean ' + self.server.id)}), (
            code, {(row['Reason'], row['Action']) for row in rows}))
        code, rows = self.bdm('clean', self.server.id, '--yes')
        self.assertEqual((ExitCode.OK, ['removed'] * 3),
                         (code, [row['Result'] for row in rows]))
        self.assert_healthy(self.look(self.server), self.server.root)

    def test_only_an_administrator_gets_the_root_alarm(self):
        """Show the alarm to an administrator only."""
        root = self.server.root
        self.cloud.lose_attachment(self.server, root)
        for caller, reason in ((self.cloud.owner, 'volume-available'),
                               (self.cloud.admin, 'root-volume-dangling')):
            _, rows = self.bdm(
                'audit', *(('--project', self.cloud.owner.project)
                           if caller is self.cloud.admin else ()), by=caller)
            self.assertEqual([reason], [
                row['Reason'] for row in rows if row['Volume'] == root])


class ReleaseTest(commands.CommandWithWitnessTestCase):
    """Releases besides the use cases of ``test_use_cases``."""

    def test_in_use_without_attachment(self):
        volume = self.cloud.volume()
        self.cinder.volumes.initialize_connection(volume, self.connector())
        self.set_in_use(volume)
        (reason, _), = self.run_audit().values()
        self.assertEqual('volume-unreferenced', reason)
        code, rows = self.bdm('release', volume, '--connector',
                              self.connector_file(), *commands.NO_WAITING,
                              '--yes')
        self.assertEqual(ExitCode.OK, code, rows)
        self.assert_released(volume, 'terminate_connection')


class SecondNovaTest(commands.CommandWithWitnessTestCase):
    """``bdm release`` with a second Nova that uses the same Cinder.

    To this Nova every healthy attachment of the other one names a server that
    does not exist.  Its host distinguishes it from an orphan.
    """

    def setUp(self) -> None:
        super().setUp()
        #: The volume of a healthy server of the other Nova.
        self.volume = self.cloud.volume()
        self.attachment = self.cloud.create_attachment(
            dataclasses.replace(self.unknown_server(), host=OTHER_HOST),
            self.volume)

    def check_untouched(self) -> None:
        self.assertEqual([self.attachment], [
            each.id for each in self.cloud.attachments(self.volume)])
        self.assertEqual('in-use', self.volume_status(self.volume))
        self.assertEqual([], self.terminate_calls(self.volume))

    def test_volume_and_attachment(self):
        for target in (self.volume, self.attachment):
            code, (row,) = self.bdm('release', target, '--yes',
                                    '--stuck-after', '0')
            self.assertEqual(ExitCode.REFUSED, code)
            self.assertIn(OTHER_HOST, row['Explanation'])
            self.check_untouched()

    def test_orphans_option_releases_only_deleted_servers(self):
        """Release only what was for a server that this Nova has deleted."""
        deleted, unknown = self.cloud.volume(), self.cloud.volume()
        self.cloud.create_attachment(self.deleted_server(), deleted)
        self.cloud.create_attachment(self.unknown_server(), unknown)
        code, (row,) = self.bdm('release', '--orphans', '--yes')
        self.assertEqual((ExitCode.OK, deleted), (code, row['Volume']), row)
        self.assertIn('Nova has deleted server', row['Explanation'])
        self.assertRegex(self.stderr.getvalue(),
                         r'2 attachments were skipped: another Nova may have '
                         r'the servers')
        self.assertEqual('available', self.volume_status(deleted))
        self.check_untouched()

    def test_host_with_nova_compute_down(self):
        """Release it: the host still belongs to this Nova."""
        service = self.cloud.nova.computes['compute1']
        service.stop()
        self.addCleanup(service.start)
        volume = self.cloud.volume()
        self.cloud.create_attachment(self.unknown_server(), volume)
        code, (row,) = self.bdm('release', volume, '--yes')
        self.assertEqual(ExitCode.OK, code, row)
