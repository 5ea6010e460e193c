# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""The ``openstack bdm`` commands, run by cliff, against a cloud over HTTP."""

from __future__ import annotations

import io
import json
import os
import pathlib
import sys
from types import SimpleNamespace
from typing import Any, List, Tuple
import unittest
from unittest import mock

from nova_bdm_cleanup.cli.exitcodes import ExitCode
from nova_bdm_cleanup.fleet import cinder as cinders
from nova_bdm_cleanup.fleet import nova as novas
from nova_bdm_cleanup.osc import progress
from nova_bdm_cleanup.tests.unit import fleet_base
from nova_bdm_cleanup.tests.unit import fleet_cloud

try:
    from nova_bdm_cleanup.osc import audit
    from nova_bdm_cleanup.osc import clean
    from nova_bdm_cleanup.osc import plugin
    from nova_bdm_cleanup.osc import release
    from nova_bdm_cleanup.osc import show
except ImportError as exc:
    raise unittest.SkipTest('osc-lib is not installed') from exc

COMMANDS = {'audit': audit.AuditBdm, 'clean': clean.CleanBdm,
            'release': release.ReleaseBdm, 'show': show.ShowBdm}


class CommandCase(fleet_base.FleetCase):

    def bdm(self, name: str, *arguments: str, user: str = 'admin',
            stdin: Any = None) -> Tuple[int, Any]:
        """Run a command as ``openstack`` does.

        :returns: the exit code, and the rows by column
        """
        manager = SimpleNamespace(
            session=self.session(user), bdm_cleanup=self.client(user))
        self.stdout, self.stderr = io.StringIO(), io.StringIO()
        app = SimpleNamespace(
            client_manager=manager, stdout=self.stdout, stderr=self.stderr,
            options=SimpleNamespace(), NAME='openstack')
        command = COMMANDS[name](app, app.options)
        arguments += ('-f', 'json', '--rate', '0')
        args = command.get_parser('openstack bdm ' + name).parse_args(
            arguments)
        with mock.patch.object(sys, 'stdin', stdin or io.StringIO()):
            code = command.run(args)
        output = self.stdout.getvalue()
        return code, json.loads(output) if output else None

    def break_volume(self) -> None:
        self.cloud.lose_attachment(self.disk)

    def orphan(self, name: str = 'orphan') -> str:
        """A volume in use by a server that is gone."""
        server = self.cloud.server('server of ' + name)
        volume = self.cloud.attach(server, name)
        self.cloud.lose_server(server)
        return volume

    def path(self, name: str = 'plan.json') -> str:
        return os.path.join(self.tempdir(), name)


class TestPlugin(fleet_base.base.TestCase):

    def test_help_of_every_command(self) -> None:
        app = SimpleNamespace(options=None)
        for command in COMMANDS.values():
            text = command(app, None).get_parser('bdm').format_help()
            self.assertIn('Exit codes: ', ' '.join(text.split()))

    def test_every_column_and_exit_code_is_documented(self) -> None:
        page = pathlib.Path(__file__).resolve().parents[3].joinpath(
            'doc', 'source', 'cli', 'osc.rst')
        if not page.exists():
            self.skipTest('the sources are not at hand')
        text = page.read_text(encoding='utf-8')
        columns = audit._COLUMNS + audit._MORE_COLUMNS + \
            clean._COLUMNS + release._COLUMNS + show._COLUMNS
        for column in columns:
            self.assertIn('``%s``' % column, text)
        for code in ExitCode:
            self.assertIn('\n   * - %d\n' % code, text)

    def test_module(self) -> None:
        instance = mock.Mock()
        made = plugin.make_client(instance)
        self.assertEqual('client.Client', '%s.%s' % (
            type(made).__module__.rpartition('.')[2], type(made).__name__))
        self.assertIn(plugin.DEFAULT_API_VERSION, plugin.API_VERSIONS)
        self.assertIs(instance, plugin.build_option_parser(instance))


class TestAudit(CommandCase):

    def test_clean(self) -> None:
        self.assertEqual((ExitCode.OK, []),
                         self.bdm('audit', '--all-projects'))
        self.assertIn('2 servers, 2 volumes claimed by them, 2 attachments',
                      self.log.output)
        self.assertIn('2 requests to Nova and 7 to Cinder', self.log.output)

    def test_findings(self) -> None:
        self.break_volume()
        code, rows = self.bdm('audit')
        self.assertEqual(ExitCode.FINDINGS, code)
        since = self.cloud.volumes[self.disk]['updated_at'][:19] + 'Z'
        self.assertEqual([{
            'Server': self.alpha, 'Host': 'compute1', 'Volume': self.disk,
            'Attachment': fleet_cloud.uid('attachment of disk'),
            'Device': '/dev/vdb', 'Reason': 'volume-available',
            'Since': since,
            'Action': 'openstack bdm clean ' + self.alpha}], rows)

    def test_long(self) -> None:
        self.break_volume()
        _, (row,) = self.bdm('audit', '--long')
        self.assertEqual(('alpha', 'own'), (row['Server Name'],
                                            row['Project']))
        self.assertIn('available', row['Explanation'])

    def test_reason_and_fail_on(self) -> None:
        self.break_volume()
        for arguments, code, count in (
                (('--reason', 'stuck'), ExitCode.OK, 0),
                (('--reason', 'volume-available'), ExitCode.FINDINGS, 1),
                (('--fail-on', 'stuck'), ExitCode.OK, 1),
                (('--fail-on', 'volume-available'), ExitCode.FINDINGS, 1),
                (('--fail-on', 'none'), ExitCode.OK, 1)):
            found, rows = self.bdm('audit', *arguments)
            self.assertEqual((code, count), (found, len(rows)))

    def test_what_passes_is_not_shown(self) -> None:
        self.break_volume()
        self.cloud.servers[self.alpha]['OS-EXT-STS:task_state'] = 'resizing'
        self.assertEqual((ExitCode.OK, []), self.bdm('audit'))
        self.assertIn('1 findings are not shown', self.log.output)
        code, rows = self.bdm('audit', '--reason', 'operation-in-flight')
        self.assertEqual((ExitCode.FINDINGS, 1), (code, len(rows)))

    def test_legacy_records(self) -> None:
        self.cloud.mappings[self.alpha][0]['attachment_id'] = None
        self.cloud.attachments[fleet_cloud.uid('attachment of disk')].update(
            connection_info={})
        self.assertEqual((ExitCode.OK, []), self.bdm('audit'))
        self.assertIn('1 of the attachments are from before Queens',
                      self.log.output)
        code, (row,) = self.bdm('audit', '--reason', 'legacy-record')
        self.assertEqual((ExitCode.FINDINGS, self.disk, 'none'),
                         (code, row['Volume'], row['Action']))

    def test_incomplete(self) -> None:
        self.break_volume()
        self.cloud.silent_hosts = ['compute7']
        code, rows = self.bdm('audit', '--all-projects')
        self.assertEqual((ExitCode.PARTLY, 1), (code, len(rows)))
        self.assertIn('INCOMPLETE: ', self.stderr.getvalue())
        self.assertIn('compute7', self.stderr.getvalue())

    def test_refused(self) -> None:
        code, rows = self.bdm('audit', '--all-projects', user='member')
        self.assertEqual((ExitCode.REFUSED, None), (code, rows))
        self.assertIn('admin role', self.stderr.getvalue())

    def test_expired_token(self) -> None:
        self.cloud.token_is_valid = False
        code, rows = self.bdm('audit')
        self.assertEqual((ExitCode.REFUSED, None), (code, rows))
        self.assertIn('has it expired?', self.stderr.getvalue())

    def test_bad_input(self) -> None:
        code, rows = self.bdm('audit', '--server', 'nobody')
        self.assertEqual((ExitCode.BAD_INPUT, None), (code, rows))

    def test_tool_failure(self) -> None:
        with mock.patch('nova_bdm_cleanup.fleet.ledger.Ledger',
                        autospec=True, side_effect=ValueError('odd')):
            code, _ = self.bdm('audit')
        self.assertEqual(ExitCode.BROKEN, code)
        self.assertIn('ValueError: odd', self.stderr.getvalue())

    def test_sorted_table(self) -> None:
        self.break_volume()
        self.cloud.lose_volume(self.other)
        _, rows = self.bdm('audit', '--sort-column', 'Reason', '-c',
                           'Reason')
        self.assertEqual([{'Reason': 'volume-available'},
                          {'Reason': 'volume-missing'}], rows)


class TestShow(CommandCase):

    def test_healthy(self) -> None:
        code, rows = self.bdm('show', 'alpha')
        self.assertEqual(ExitCode.OK, code)
        attachment = fleet_cloud.uid('attachment of disk')
        self.assertEqual([{
            'Device': '/dev/vdb', 'Volume': self.disk,
            'Volume Status': 'in-use', 'Attachment in Nova': attachment,
            'Attachment in Cinder': attachment + ' (attached)',
            'Host': 'compute1', 'Verdict': 'healthy',
            'Hard Reboot': 'keeps it', 'Explanation': 'attached'}], rows)

    def test_dangling_and_stale(self) -> None:
        self.break_volume()
        volume = self.cloud.volume('stale', 'in-use')
        self.cloud.attachment('stale', self.alpha, volume)
        code, rows = self.bdm('show', self.alpha)
        self.assertEqual(ExitCode.FINDINGS, code)
        self.assertEqual(
            [('volume-available', 'none', 'removes the mapping'),
             ('stale-attachment', fleet_cloud.uid('stale') + ' (attached)',
              'deletes the attachment')],
            [(r['Verdict'], r['Attachment in Cinder'], r['Hard Reboot'])
             for r in rows])

    def test_of_another_project(self) -> None:
        foreign = self.cloud.server('foreign', 'other')
        self.cloud.attach(foreign, 'foreign')
        self.assertEqual(ExitCode.OK, self.bdm('show', foreign)[0])
        self.assertEqual(ExitCode.BAD_INPUT, self.bdm('show', 'foreign')[0])
        self.assertEqual(ExitCode.OK, self.bdm(
            'show', 'foreign', '--all-projects')[0])
        self.assertEqual(ExitCode.BAD_INPUT, self.bdm(
            'show', foreign, user='member')[0])


class TestRelease(CommandCase):

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

    def test_one_attachment_of_many(self) -> None:
        volume = self.orphan()
        self.cloud.volumes[volume]['multiattach'] = True
        self.cloud.mapping(self.alpha, volume, self.cloud.attachment(
            'neighbour', self.alpha, volume))
        code, (row,) = self.bdm(
            'release', fleet_cloud.uid('attachment of orphan'), '--yes')
        self.assertEqual((ExitCode.REPAIRED,
                          'released: the volume is in-use'),
                         (code, row['Result']))
        self.assertIn(fleet_cloud.uid('neighbour'), self.cloud.attachments)

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

    def test_max_is_all_or_nothing(self) -> None:
        self.orphan('one'), self.orphan('two')
        code, rows = self.bdm('release', '--orphans', '--yes', '--max', '1')
        self.assertEqual((ExitCode.REFUSED, None), (code, rows))
        self.assertEqual([], self.cloud.driver)

    def test_refused(self) -> None:
        code, (row,) = self.bdm('release', self.disk, '--yes')
        self.assertEqual((ExitCode.REFUSED, 'refused', None),
                         (code, row['Result'], row['Call']))
        self.assertIn('nothing hangs', row['Explanation'])

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
        call = cinders.Cinder.delete_attachment

        def interrupt(cinder: Any, attachment_id: str) -> None:
            count.append(1)
            if len(count) == 2:
                raise KeyboardInterrupt
            call(cinder, attachment_id)

        with mock.patch.object(cinders.Cinder, 'delete_attachment',
                               interrupt):
            code, rows = self.bdm('release', *volumes, '--yes')
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertEqual(
            ['released: the volume is available', 'unknown: interrupted',
             'not begun'], [r['Result'] for r in rows])

    def test_changed_meanwhile(self) -> None:
        volume = self.orphan()
        count = []

        def give_back() -> None:
            # Read once to plan; before it acts it is somebody else's.
            count.append(1)
            if len(count) == 2:
                self.cloud.volumes[volume]['status'] = 'maintenance'

        self.cloud.on('GET .*/volumes/%s$' % volume, give_back)
        code, (row,) = self.bdm(
            'release', fleet_cloud.uid('attachment of orphan'), '--yes')
        self.assertEqual((ExitCode.PARTLY,
                          'skipped: it has changed meanwhile'),
                         (code, row['Result']))
        self.assertEqual([], self.cloud.driver)

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

    def test_never_connected(self) -> None:
        volume = self.cloud.volume('reserved for nothing', 'attaching')
        code, _ = self.bdm('release', volume, '--connector', 'none', '--yes')
        self.assertEqual(ExitCode.REPAIRED, code)
        self.assertEqual([('os-unreserve', volume)], self.cloud.driver)

    def test_silent_cell(self) -> None:
        volume = self.orphan()
        self.cloud.silent_hosts = ['compute7']
        code, rows = self.bdm('release', volume, '--yes')
        self.assertEqual((ExitCode.REFUSED, None), (code, rows))
        self.cloud.silent_hosts = []
        self.cloud.silent_servers = [self.alpha]
        code, rows = self.bdm('release', volume, '--yes')
        self.assertEqual((ExitCode.REFUSED, None), (code, rows))
        self.assertEqual([], self.cloud.driver)

    def test_wrong_region(self) -> None:
        volume = self.orphan()
        for server in (self.alpha, self.beta):
            self.cloud.lose_server(server)
        code, _ = self.bdm('release', volume, '--yes')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertIn('same region', self.stderr.getvalue())

    def test_bad_input(self) -> None:
        for arguments in ((), ('--orphans', self.disk), ('nothing',),
                          ('--plan', 'no/such/file'),
                          (self.disk, '--connector', 'no/such/file')):
            self.assertEqual(ExitCode.BAD_INPUT,
                             self.bdm('release', *arguments)[0], arguments)

    def test_member(self) -> None:
        code, _ = self.bdm('release', self.orphan(), '--yes', user='member')
        self.assertEqual(ExitCode.REFUSED, code)


class TestClean(CommandCase):

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
                               fleet_cloud.uid('attachment of disk'))
        self.assertIn('runs afterwards', self.log.output)

    def test_asks(self) -> None:
        self.break_volume()
        self.reboot()

        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        code, _ = self.bdm('clean', 'alpha', stdin=Terminal('n\n'))
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertEqual(0, self.cloud.asked('POST'))
        code, _ = self.bdm('clean', 'alpha', stdin=Terminal('y\n'))
        self.assertEqual(ExitCode.REPAIRED, code)

    def test_nobody_to_ask(self) -> None:
        self.break_volume()
        code, _ = self.bdm('clean', 'alpha')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertEqual(0, self.cloud.asked('POST'))

    def test_refused_by_nova(self) -> None:
        self.break_volume()
        for status in (403, 409):
            self.cloud._rules[:] = []
            self.cloud.on('POST .*/action', lambda s=status: (s, {
                'conflictingRequest': {'message': 'on purpose'}}))
            code, (row,) = self.bdm('clean', 'alpha', '--yes')
            self.assertEqual(ExitCode.REFUSED, code)
            self.assertIn('refused: ', row['Result'])

    def test_deleted_before_the_reboot(self) -> None:
        self.break_volume()
        self.cloud.on('POST .*/action', lambda: (404, {
            'itemNotFound': {'message': 'Instance'}}))
        code, (row,) = self.bdm('clean', 'alpha', '--yes')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertIn('is gone', row['Result'])

    def test_interrupted(self) -> None:
        self.break_volume()
        self.cloud.lose_attachment(self.other)
        with mock.patch.object(novas.Nova, 'reboot_hard', autospec=True,
                               side_effect=KeyboardInterrupt):
            code, rows = self.bdm('clean', 'alpha', 'beta', '--yes')
        self.assertEqual(
            (ExitCode.PARTLY, ['unknown: interrupted', 'not begun']),
            (code, [r['Result'] for r in rows]))

    def test_not_seen_to_end(self) -> None:
        self.break_volume()

        def reboot() -> None:
            self.cloud.on('GET .*/servers/', lambda: (403, {
                'forbidden': {'message': 'Policy'}}))

        self.cloud.on('POST .*/action', reboot)
        code, (row,) = self.bdm('clean', 'alpha', '--yes')
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertIn('unknown: ', row['Result'])

    def test_without_the_plugin(self) -> None:
        self.break_volume()
        self.reboot(heals=False, status='ERROR')
        code, (row,) = self.bdm('clean', 'alpha', '--yes')
        self.assertEqual((ExitCode.PARTLY, 'still there'),
                         (code, row['Result']))
        self.assertIn('is ERROR after the reboot', self.stderr.getvalue())

    def test_nothing_to_do(self) -> None:
        self.assertEqual((ExitCode.OK, []), self.bdm('clean', 'alpha',
                                                     '--yes'))
        self.assertEqual(0, self.cloud.asked('POST'))

    def test_a_person_must_look(self) -> None:
        self.break_volume()
        self.cloud.attachment('twin', self.alpha, self.cloud.attach(
            self.alpha, 'second disk'))
        code, _ = self.bdm('clean', 'alpha', 'beta', '--yes')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertIn('duplicate-attachment', self.stderr.getvalue())
        self.assertEqual(0, self.cloud.asked('POST'))

    def test_what_a_reboot_does_not_free(self) -> None:
        self.cloud.volumes[self.disk]['status'] = 'detaching'
        self.assertEqual((ExitCode.OK, []), self.bdm('clean', 'alpha'))
        self.assertIn('openstack bdm release', self.log.output)

    def test_shelved(self) -> None:
        self.break_volume()
        self.cloud.servers[self.alpha].update(
            {'status': 'SHELVED_OFFLOADED', 'OS-EXT-SRV-ATTR:host': None})
        code, _ = self.bdm('clean', 'alpha', '--yes')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertIn('openstack bdm release', self.stderr.getvalue())

    def test_cannot_be_rebooted(self) -> None:
        self.break_volume()
        for fields, words in (
                ({'status': 'RESCUE'}, 'cannot be hard-rebooted'),
                ({'OS-EXT-STS:task_state': 'migrating'}, 'migrating')):
            self.cloud.servers[self.alpha].update(fields)
            code, _ = self.bdm('clean', 'alpha', '--yes')
            self.assertEqual(ExitCode.REFUSED, code)
            self.assertIn(words, self.stderr.getvalue())


class TestPlanFiles(CommandCase):

    def plan(self) -> str:
        path = self.path()
        self.bdm('audit', '--all-projects', '--plan', path)
        return path

    def test_release(self) -> None:
        volume = self.orphan()
        self.break_volume()
        path = self.plan()
        self.assertEqual(0o600, os.stat(path).st_mode & 0o777)
        code, rows = self.bdm('release', '--plan', path, '--yes')
        self.assertEqual((ExitCode.REPAIRED, [volume]),
                         (code, [r['Volume'] for r in rows]))

    def test_clean(self) -> None:
        self.break_volume()
        path = self.plan()
        code, rows = self.bdm('clean', '--plan', path, '--dry-run')
        self.assertEqual((ExitCode.FINDINGS, [self.disk]),
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

    def test_gone_since(self) -> None:
        self.orphan()
        path = self.plan()
        self.bdm('release', '--orphans', '--yes')
        code, _ = self.bdm('release', '--plan', path, '--yes')
        self.assertEqual(ExitCode.REFUSED, code)

    def test_not_a_plan(self) -> None:
        path = self.path()
        for content in ('', '{}', '[]', '{"format": "other"}', json.dumps({
                'format': 'nova-bdm-cleanup plan', 'version': 2})):
            with open(path, 'w') as file:
                file.write(content)
            code, _ = self.bdm('clean', '--plan', path)
            self.assertEqual(ExitCode.BAD_INPUT, code)

    def test_not_left_behind_by_an_audit_that_is_refused(self) -> None:
        path = self.path()
        code, _ = self.bdm('audit', '--all-projects', '--plan', path,
                           user='member')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertFalse(os.path.exists(path))

    def test_damaged(self) -> None:
        self.break_volume()
        path = self.plan()
        with open(path) as file:
            plan = json.load(file)
        for field, value, words in (
                ('reason', 'odd', 'unknown reason odd'),
                ('server', 7, '"server" is no text'),
                ('since', 'yesterday', 'yesterday')):
            finding = dict(plan['findings'][0], **{field: value})
            with open(path, 'w') as file:
                json.dump(dict(plan, findings=[finding]), file)
            code, _ = self.bdm('clean', '--plan', path)
            self.assertEqual(ExitCode.BAD_INPUT, code)
            self.assertIn(words, self.stderr.getvalue())
            del finding[field]
            with open(path, 'w') as file:
                json.dump(dict(plan, findings=[finding]), file)
            self.bdm('clean', '--plan', path)
            self.assertIn("it has no '%s'" % field, self.stderr.getvalue())

    def test_never_overwritten(self) -> None:
        path = self.plan()
        code, _ = self.bdm('audit', '--plan', path)
        self.assertEqual(ExitCode.BAD_INPUT, code)
        self.assertIn('File exists', self.stderr.getvalue())


class TestProgress(fleet_base.base.TestCase):

    def show(self, terminal: bool) -> List[str]:
        stream = io.StringIO()
        stream.isatty = lambda: terminal
        clock = [0.0]
        shown = progress.Progress(stream, lambda: clock[0])
        for number in range(3):
            clock[0] += 1
            shown('servers', number)
        shown('servers', 3)  # Too soon.
        shown.clear()
        return stream.getvalue().split('\r')

    def test_terminal(self) -> None:
        self.assertEqual(
            ['', 'servers: 0', 'servers: 1', 'servers: 2', ' ' * 10, ''],
            self.show(True))

    def test_file(self) -> None:
        self.assertEqual([''], self.show(False))
