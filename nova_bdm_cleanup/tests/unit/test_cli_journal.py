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
"""``nova-bdm-cleanup journal`` as its user sees it.

Everything below the HTTP requests and above the files is the real thing.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import subprocess
import sys
from unittest import mock
import urllib.parse

import fixtures
from keystoneauth1 import fixture as ksa_fixture
import requests
import requests_mock
from requests_mock.contrib import fixture as rm_fixture
import testtools
from testtools import matchers

import nova_bdm_cleanup
from nova_bdm_cleanup.cli import exitcodes
from nova_bdm_cleanup.cli import main
from nova_bdm_cleanup.cli import reattach
from nova_bdm_cleanup import journal as journals
from nova_bdm_cleanup.tests.unit import base

try:
    import openstack
except ImportError:
    openstack = None

SERVER = '5e4b0dbb-5d3f-4b2c-8d3c-000000000001'
OTHER = '5e4b0dbb-5d3f-4b2c-8d3c-000000000002'
NOON = 1_800_014_400.0  # 2027-01-15 12:00:00 UTC

KEYSTONE = 'https://keystone.test'
NOVA = 'https://nova.test/v2.1'
CINDER = 'https://cinder.test/v3'

CLOUD = ('--os-auth-url', KEYSTONE, '--os-username', 'u', '--os-password',
         'p', '--os-project-name', 'p', '--os-user-domain-id', 'default',
         '--os-project-domain-id', 'default')


def volume(number):
    return '70100000-0000-4000-8000-%012d' % number


def removal(number, reason='volume-available', **bdm):
    return {
        'kind': 'remove-bdm', 'reason': reason, 'explanation': 'because',
        'attachments': [{'id': 'att-%d' % number, 'status': 'attached'}],
        'bdm': dict({
            'uuid': 'bdm-%d' % number, 'volume_id': volume(number),
            'device_name': '/dev/vd%c' % (97 + number), 'tag': None,
            'delete_on_termination': False, 'boot_index': None,
            'device_type': 'disk', 'disk_bus': 'virtio'}, **bdm)}


def stale(number):
    return {'kind': 'delete-attachment', 'reason': 'stale-attachment',
            'explanation': 'nobody uses it',
            'attachment': {'id': 'att-%d' % number,
                           'volume_id': volume(number)}}


class CommandTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.home = self.tempdir()
        self.path = os.path.join(self.home, 'journal.jsonl')
        for name in list(os.environ):
            if name.startswith('OS_'):
                self.useFixture(fixtures.EnvironmentVariable(name))
        self.useFixture(fixtures.EnvironmentVariable('HOME', self.home))
        self.now = NOON

    def record(self, *actions, server=SERVER, done=(), failed=(), end='done'):
        """One entry: the numbers of what was done, and how it ended."""
        journal = journals.Journal(self.path, 10 ** 6, 5, lambda: self.now)
        entry = journal.begin(
            {'server': server, 'host': 'compute-1', 'project': 'a-project',
             'request_id': 'req-1', 'plugin': '1.0', 'nova': '34.0.0',
             'actions': list(actions),
             'findings': [{'reason': a['reason'], 'withheld': None,
                           'volume': 'v', 'attachment': None, 'device': None,
                           'explanation': a['explanation']}
                          for a in actions]},
            sum(a['kind'] == 'remove-bdm' for a in actions), 1000)
        for number in done:
            entry.step('delete-attachment', 'done',
                       attachment='att-%d' % number, volume=volume(number))
            entry.step('destroy', 'done', bdm='bdm-%d' % number,
                       volume=volume(number))
        for number in failed:
            entry.step('destroy', 'failed', bdm='bdm-%d' % number,
                       volume=volume(number), detail='no answer')
        if end:
            entry.finish(end)
        return entry.id

    def call(self, *words):
        """Run the command; returns exit code, output, errors."""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch('sys.stdout', out), mock.patch('sys.stderr', err):
            try:
                code = main.main(words)
            except SystemExit as exc:
                code = int(exc.code or 0)
        self.assertNotIn('Traceback', err.getvalue())
        return code, out.getvalue(), err.getvalue()

    def journal(self, *words):
        return self.call('journal', words[0], '--journal', self.path,
                         *words[1:])


class TestMain(CommandTest):

    def test_exit_codes_are_documented_numbers(self):
        for name, code in (('OK', 0), ('NOTHING', 1), ('BAD_INPUT', 2),
                           ('REFUSED', 3), ('PARTLY', 4), ('BROKEN', 255)):
            self.assertEqual(code, exitcodes.ExitCode[name])

    def test_usage_errors(self):
        for words in ((), ('journal',), ('nonsense',), ('journal', 'show'),
                      ('journal', 'list', '--since', 'yesterday'),
                      ('journal', 'list', '--since', '99999999999d'),
                      ('journal', 'list', '--jour', 'x')):
            code, out, err = self.call(*words)
            self.assertEqual(2, code, words)
            self.assertIn('usage: nova-bdm-cleanup', err)

    def test_help_and_version(self):
        for words in (('--help',), ('--version',), ('journal', '--help'),
                      ('journal', 'undo', '--help')):
            code, out, err = self.call(*words)
            self.assertEqual((0, ''), (code, err))
            self.assertNotEqual('', out)

    def test_the_tool_breaks(self):
        with mock.patch.object(journals, 'read', autospec=True,
                               side_effect=KeyError('odd')):
            code, out, err = self.journal('list')
        self.assertEqual((255, ''), (code, out))
        self.assertIn("KeyError: 'odd'", err)
        with mock.patch.object(journals, 'read', autospec=True,
                               side_effect=KeyboardInterrupt):
            self.assertEqual(255, self.journal('list')[0])

    def test_debug_shows_where(self):
        err = io.StringIO()
        with mock.patch.object(journals, 'read', autospec=True,
                               side_effect=KeyError), \
                mock.patch('sys.stderr', err):
            main.main(['--debug', 'journal', 'list', '--journal', 'x'])
        self.assertIn('Traceback', err.getvalue())

    def test_as_a_process(self):
        entry = self.record(removal(1, tag='t\u00e4g\x1b\udc80'), done=[1])
        root = os.path.dirname(os.path.dirname(nova_bdm_cleanup.__file__))
        command = [sys.executable, '-m', 'nova_bdm_cleanup.cli.main',
                   'journal', 'undo', '--journal', self.path, entry]
        run = subprocess.run(
            command, capture_output=True, text=True, cwd=self.home,
            env=dict(os.environ, PYTHONPATH=root, LC_ALL='C', PYTHONUTF8='0',
                     PYTHONCOERCECLOCALE='0'))
        self.assertEqual((0, ''), (run.returncode, run.stderr))
        self.assertIn('\\x1b', run.stdout)
        # A reader that has seen enough.
        reader, writer = os.pipe()
        os.close(reader)
        run = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE,
                             text=True, env=dict(os.environ, PYTHONPATH=root))
        os.close(writer)
        self.assertEqual((0, ''), (run.returncode, run.stderr))

    def test_needs_neither_nova_nor_a_cloud_library(self):
        self.record(removal(1), done=[1])
        root = os.path.dirname(os.path.dirname(nova_bdm_cleanup.__file__))
        run = subprocess.run(
            [sys.executable, '-c',
             'import sys\n'
             'from nova_bdm_cleanup.cli import main\n'
             'main.main(sys.argv[1:])\n'
             'print(sorted({m.partition(".")[0] for m in sys.modules}\n'
             '      & {"nova", "openstack"}))',
             'journal', 'list', '--journal', self.path],
            capture_output=True, text=True, check=True,
            env=dict(os.environ, PYTHONPATH=root))
        self.assertEqual('[]', run.stdout.splitlines()[-1])


class TestConfiguration(CommandTest):

    def nova_conf(self, text, name='nova.conf'):
        path = os.path.join(self.home, name)
        with open(path, 'w') as file:
            file.write(text)
        return path

    def test_state_path_of_nova_conf(self):
        entry = self.record(removal(1))
        state = os.path.join(self.home, 'state')
        os.mkdir(state)
        os.mkdir(os.path.join(state, 'bdm-cleanup'), 0o700)
        os.rename(self.path, os.path.join(
            state, 'bdm-cleanup', 'journal.jsonl'))
        option = ('--config-file', self.nova_conf(
            '[DEFAULT]\nstate_path = %s\n' % state))
        for words in ((*option, 'journal', 'list'),
                      ('journal', 'list', *option)):
            code, out, err = self.call(*words)
            self.assertEqual((0, ''), (code, err))
            self.assertIn(entry, out)

    def test_later_file_and_directory_win(self):
        self.record(removal(1))
        wrong = self.nova_conf('[bdm_cleanup]\njournal = /nowhere/j\n')
        right = '[bdm_cleanup]\njournal = %s\n' % self.path
        self.assertEqual(1, self.call(
            'journal', 'list', '--config-file', wrong)[0])
        self.assertEqual(0, self.call(
            'journal', 'list', '--config-file', wrong, '--config-file',
            self.nova_conf(right, 'b.conf'))[0])
        os.mkdir(os.path.join(self.home, 'nova.conf.d'))
        self.nova_conf(right, 'nova.conf.d/b.conf')
        self.assertEqual(0, self.call(
            'journal', 'list', '--config-file', wrong, '--config-dir',
            os.path.join(self.home, 'nova.conf.d'))[0])

    def test_found_where_nova_compute_looks(self):
        self.record(removal(1))
        os.mkdir(os.path.join(self.home, '.nova'))
        self.nova_conf('[DEFAULT]\n', '.nova/nova.conf')
        self.nova_conf('[bdm_cleanup]\njournal = %s\n' % self.path,
                       '.nova/nova-compute.conf')
        self.assertEqual(0, self.call('journal', 'list')[0])

    def test_default_state_path(self):
        empty = self.nova_conf('')
        with mock.patch('importlib.util.find_spec', autospec=True,
                        return_value=None):
            code, out, err = self.call('--config-file', empty, 'journal',
                                       'list')
        self.assertEqual((1, ''), (code, out))
        self.assertIn('/var/lib/nova/bdm-cleanup/journal.jsonl', err)
        spec = argparse.Namespace(origin='/opt/python/nova/__init__.py')
        with mock.patch('importlib.util.find_spec', autospec=True,
                        return_value=spec):
            err = self.call('--config-file', empty, 'journal', 'list')[2]
        self.assertIn('/opt/python/bdm-cleanup/journal.jsonl', err)

    def test_bad_configuration(self):
        for words, hint in (
                (('--config-file', '/nowhere/nova.conf'), '/nowhere'),
                (('--config-dir', '/nowhere'), '/nowhere'),
                (('--config-file', self.nova_conf('nonsense\n', 'a.conf')),
                 'a.conf'),
                (('--config-file', self.nova_conf(
                    '[bdm_cleanup]\njournal = $nonsense/j\n', 'b.conf')),
                 'nonsense')):
            code, out, err = self.call('journal', 'list', *words)
            self.assertEqual((2, ''), (code, out), words)
            self.assertIn(hint, err)


class TestList(CommandTest):

    def test_table(self):
        first = self.record(removal(1), removal(2), done=[1], end='partly')
        self.now += 60
        second = self.record(stale(3), server=OTHER, end=None)
        code, out, err = self.journal('list')
        self.assertEqual((0, ''), (code, err))
        self.assertEqual([
            'Entry     Time (UTC)           Server' + ' ' * 32
            + 'Removed  Outcome',
            '%s  2027-01-15 12:00:00  %s  1 of 2   partly' % (first, SERVER),
            '%s  2027-01-15 12:01:00  %s  0 of 0   interrupted'
            % (second, OTHER)], out.splitlines())

    def test_filters(self):
        first = self.record(removal(1))
        self.now += 3600
        second = self.record(removal(2), server=OTHER)
        for words, expected in (
                (('--server', SERVER), [first]),
                (('--server', OTHER), [second]),
                (('--since', '2027-01-15T12:30'), [second]),
                (('--since', '2027-01-15T12:30:00Z'), [second]),
                (('--since', '2027-01-15T13:30+02:00'), [first, second]),
                (('--since', '2027-01-15'), [first, second]),
                (('--since', '2027-01-15', '--server', OTHER), [second]),
                (('--since', '2027-01-16'), []),
                (('--server', 'nobody'), [])):
            code, out, err = self.journal('list', '--json', *words)
            self.assertEqual(expected,
                             [e['entry'] for e in json.loads(out)], words)
            self.assertEqual(0 if expected else 1, code)

    def test_since_an_age(self):
        entry = self.record(removal(1))
        with mock.patch('time.time', autospec=True,
                        return_value=NOON + 7200):
            for age, code in (('3h', 0), ('1d', 0), ('1w', 0), ('1h', 1),
                              ('119m', 1), ('7201s', 0)):
                self.assertEqual(
                    code, self.journal('list', '--since', age)[0], age)
        self.assertIn(entry, self.journal('list')[1])

    def test_no_journal(self):
        code, out, err = self.journal('list')
        self.assertEqual((1, ''), (code, out))
        self.assertIn(self.path, err)
        self.assertFalse(os.path.exists(self.path))

    def test_torn_lines_are_mentioned(self):
        self.record(removal(1))
        with open(self.path, 'a') as file:
            file.write('{"vers')
        code, out, err = self.journal('list')
        self.assertEqual(0, code)
        self.assertIn('1 lines of %s' % self.path, err)

    def test_newer_version(self):
        with open(self.path, 'w') as file:
            file.write('{"version": 7}\n')
        code, out, err = self.journal('list')
        self.assertEqual((3, ''), (code, out))
        self.assertIn('version 7', err)


class TestShow(CommandTest):

    def test_text(self):
        entry = self.record(removal(1, tag='db\x1b[2J'), stale(3), done=[1])
        code, out, err = self.journal('show', entry)
        self.assertEqual((0, ''), (code, err))
        for words in (entry, '2027-01-15 12:00:00 UTC', SERVER, 'a-project',
                      'req-1', 'remove-bdm (volume-available): because',
                      'delete-attachment (stale-attachment): nobody uses it',
                      'bdm device_name', '/dev/vdb', 'attachment id',
                      'destroy', 'bdm bdm-1, volume %s' % volume(1)):
            self.assertIn(words, out)
        # A tenant's tag does not clear the operator's screen.
        self.assertNotIn('\x1b', out)
        self.assertIn('db\\x1b[2J', out)

    def test_json(self):
        entry = self.record(removal(1), done=[1])
        code, out, err = self.journal('show', '--json', entry)
        shown = json.loads(out)
        self.assertEqual(['entry', 'time', 'outcome', 'removed', 'steps',
                          'record'], list(shown))
        self.assertEqual('2027-01-15T12:00:00Z', shown['time'])
        self.assertEqual(['bdm-1'], shown['removed'])
        self.assertEqual(removal(1), shown['record']['actions'][0])

    def test_unknown_entry(self):
        self.record(removal(1))
        code, out, err = self.journal('show', 'nonsense')
        self.assertEqual((1, ''), (code, out))
        self.assertIn('no entry nonsense', err)

    def test_odd_records(self):
        """The format allows more than the cleaner ever writes."""
        journal = journals.Journal(self.path, 10 ** 6, 5, lambda: self.now)
        for record in ({}, {'actions': 5, 'findings': 'x', 'server': []},
                       {'actions': [None, {}, {'kind': 'remove-bdm'},
                                    {'kind': 'remove-bdm', 'bdm': {},
                                     'attachments': [{}]},
                                    {'kind': 'delete-attachment',
                                     'attachment': []}]}):
            entry = journal.begin(record, 0, 1)
            for words in (('show', entry.id), ('show', entry.id, '--json'),
                          ('list',)):
                self.assertEqual(0, self.journal(*words)[0])
            self.assertEqual(1, self.journal('undo', entry.id)[0])


def commands(out):
    return [shlex.split(line) for line in out.splitlines()
            if not line.startswith('#')]


class TestUndo(CommandTest):

    def test_plain(self):
        entry = self.record(removal(1), done=[1])
        code, out, err = self.journal('undo', entry)
        self.assertEqual((0, ''), (code, err))
        self.assertEqual(
            [['openstack', '--os-compute-api-version', '2.60', 'server', 'add',
              'volume', '--device=/dev/vdb', SERVER, volume(1)]],
            commands(out))
        self.assertIn('# volume-available: because', out)

    def test_all_that_the_mapping_had(self):
        entry = self.record(
            removal(1, tag='-a b\'$(x)', delete_on_termination=True), done=[1])
        code, out, err = self.journal('undo', entry)
        self.assertEqual(
            [['openstack', '--os-compute-api-version', '2.79', 'server', 'add',
              'volume', '--device=/dev/vdb', "--tag=-a b'$(x)",
              '--enable-delete-on-termination', SERVER, volume(1)]],
            commands(out))

    def test_a_shell_understands_every_tag(self):
        for tag in ('plain', "it's", '$HOME `id` "x"\\', '\x1b[2J\n\t\\\'',
                    'bl\u00e5\u00e5 \u2028', '\u0000'.replace('\0', '\x7f')):
            entry = self.record(removal(1, tag=tag), done=[1])
            out = self.journal('undo', entry)[1]
            run = subprocess.run(
                ['bash', '-c', 'openstack() { printf "%s\\0" "$@"; }\n' + out],
                capture_output=True, check=True)
            self.assertIn('--tag=' + tag,
                          run.stdout.decode().split('\0'))

    def test_in_the_order_of_the_devices(self):
        entry = self.record(
            removal(1, device_name='/dev/vdaa'), removal(2), removal(3),
            done=[3, 2, 1])
        self.assertEqual([volume(2), volume(3), volume(1)],
                         [c[-1] for c in commands(
                             self.journal('undo', entry)[1])])

    def test_what_cannot_be_asked_for(self):
        entry = self.record(removal(1, boot_index=1, device_type='lun'),
                            done=[1])
        out = self.journal('undo', entry)[1]
        self.assertIn('# It will not get back its place 1 in the boot order',
                      out)
        self.assertIn('# It will not get back its device type lun', out)

    def test_volume_that_did_not_exist(self):
        entry = self.record(removal(1, 'volume-missing'), removal(2),
                            done=[1, 2])
        code, out, err = self.journal('undo', entry)
        self.assertEqual(0, code)
        self.assertEqual([volume(2)], [c[-1] for c in commands(out)])
        self.assertIn('did not exist in Cinder', out)
        # Cinder may have been wrong: a name given is a name meant.
        out = self.journal('undo', entry, '--volume', volume(1))[1]
        self.assertEqual([volume(1)], [c[-1] for c in commands(out)])

    def test_stale_attachment(self):
        entry = self.record(stale(1), done=[1])
        code, out, err = self.journal('undo', entry)
        self.assertEqual((1, []), (code, commands(out)))
        self.assertIn('attachment att-1 of volume %s was deleted as stale'
                      % volume(1), out)

    def test_not_removed_in_the_end(self):
        entry = self.record(removal(1), stale(2), end='nothing')
        code, out, err = self.journal('undo', entry)
        self.assertEqual((1, []), (code, commands(out)))
        self.assertIn('Not removed, nothing to undo: volume %s' % volume(1),
                      out)
        self.assertNotIn('att-2', out)
        code, out, err = self.journal('undo', entry, '--volume', volume(1))
        self.assertEqual((2, ''), (code, out))

    def test_interrupted(self):
        entry = self.record(removal(1), removal(2), done=[1], end=None)
        code, out, err = self.journal('undo', entry)
        self.assertEqual([volume(1)], [c[-1] for c in commands(out)])
        self.assertIn('Not without --volume %s' % volume(2), out)
        out = self.journal('undo', entry, '--volume', volume(2))[1]
        self.assertEqual([volume(2)], [c[-1] for c in commands(out)])

    def test_deleted_perhaps(self):
        # Only the conductor's answer may have been lost.
        entry = self.record(removal(1), removal(2), removal(3), done=[1],
                            failed=[2], end='partly')
        code, out, err = self.journal('undo', entry)
        self.assertEqual([volume(1)], [c[-1] for c in commands(out)])
        self.assertIn('Not without --volume %s: deleting' % volume(2), out)
        self.assertIn('Not removed, nothing to undo: volume %s' % volume(3),
                      out)
        out = self.journal('undo', entry, '--volume', volume(2))[1]
        self.assertEqual([volume(2)], [c[-1] for c in commands(out)])

    def test_only_some(self):
        entry = self.record(removal(1), removal(2), removal(3),
                            done=[1, 2, 3])
        out = self.journal('undo', entry, '--volume', volume(3), '--volume',
                           volume(1))[1]
        self.assertEqual([volume(1), volume(3)],
                         [c[-1] for c in commands(out)])
        code, out, err = self.journal('undo', entry, '--volume', 'other')
        self.assertEqual((2, ''), (code, out))
        self.assertIn('no mapping of volume other', err)

    def test_the_openstack_command_knows_the_options(self):
        try:
            from openstackclient.compute.v2 import server
        except ImportError:
            self.skipTest('python-openstackclient is not installed')
        entry = self.record(
            removal(1, tag='-t', delete_on_termination=True), done=[1])
        [words] = commands(self.journal('undo', entry)[1])
        parser = server.AddServerVolume(
            mock.Mock(), argparse.Namespace()).get_parser('x')
        args = parser.parse_args(words[6:])
        self.assertEqual(
            (SERVER, volume(1), '/dev/vdb', '-t', True),
            (args.server, args.volume, args.device, args.tag,
             args.enable_delete_on_termination))


class FakeCloud(fixtures.Fixture):
    """Nova and Cinder at the HTTP edge: what undoing asks them."""

    def _setUp(self):
        self.servers = {SERVER}
        self.volumes = {}
        #: server -> volume -> what Nova says of it
        self.attached = {SERVER: {}}
        #: Looks at the volume until the attach is through; None: it fails.
        self.delay = 1
        self.posted = []
        self.sleeps = []
        self.requests = self.useFixture(rm_fixture.Fixture())
        token = ksa_fixture.V3Token(project_id='p')
        for kind, url in (('compute', NOVA), ('volumev3', CINDER)):
            token.add_service(kind).add_standard_endpoints(
                public=url, region='R')
        self.requests.post(KEYSTONE + '/v3/auth/tokens', json=token,
                           headers={'X-Subject-Token': 't'})
        keystone = ksa_fixture.DiscoveryList(href=KEYSTONE, v2=False)
        self.requests.get(KEYSTONE, json=keystone)
        for url, version in ((NOVA, 'v2.1'), (CINDER, 'v3.0')):
            doc = ksa_fixture.DiscoveryList(v2=False, v3=False)
            doc.add_nova_microversion(
                href=url, id=version, status='CURRENT', min_version='2.1',
                version='2.95')
            self.requests.get(url, json=doc)
            self.requests.get(url + '/', json=doc)
        self.requests.register_uri(
            requests_mock.ANY, requests_mock.ANY, json=self._answer,
            additional_matcher=lambda r: r.path.startswith(
                ('/v2.1/servers/', '/v3/volumes/')))
        self.useFixture(fixtures.MonkeyPatch(
            'nova_bdm_cleanup.cli.reattach.Server.__init__.__defaults__',
            (lambda: sum(self.sleeps), self.sleeps.append)))

    def add_volume(self, number, status='available', **kwargs):
        self.volumes[volume(number)] = dict(
            kwargs, id=volume(number), status=status,
            attachments=kwargs.get('attachments', []))

    def _answer(self, request, context):
        path = [urllib.parse.unquote(p) for p in request.path.split('/')[2:]]
        found = self._find(path, request, context)
        if found is None:
            context.status_code = 404
            return {'itemNotFound': {'code': 404, 'message': 'not here'}}
        return found

    def _find(self, path, request, context):
        if path[0] == 'volumes':
            found = self.volumes.get(path[1])
            if found is None:
                return None
            self._progress(found)
            return {'volume': found}
        if path[1] not in self.servers:
            return None
        if len(path) == 2:
            return {'server': {'id': path[1]}}
        if request.method == 'POST':
            return self._attach(path[1], request, context)
        found = self.attached[path[1]].get(path[3])
        return found and {'volumeAttachment': found}

    def _attach(self, server, request, context):
        body = request.json()['volumeAttachment']
        self.posted.append(
            (request.headers['OpenStack-API-Version'], body))
        record = dict({'tag': None, 'delete_on_termination': False}, **body,
                      id=body['volumeId'])
        # As the libvirt driver does.
        record['device'] = '/dev/vdz'
        self.attached[server][body['volumeId']] = record
        self.volumes[body['volumeId']].update(
            status='reserved', left=self.delay, server=server)
        return {'volumeAttachment': record}

    def _progress(self, found):
        """One look at a volume later."""
        if found['status'] != 'reserved' or 'left' not in found:
            return
        if found['left'] is None:
            found['status'] = 'available'
            del self.attached[found['server']][found['id']]
        elif found['left']:
            found['left'] -= 1
        else:
            found['status'] = 'in-use'
            found['attachments'] = [{'server_id': found['server']}]


@testtools.skipUnless(openstack, 'openstacksdk is not installed')
class TestExecute(CommandTest):

    def setUp(self):
        super().setUp()
        self.cloud = self.useFixture(FakeCloud())

    def undo(self, entry, *words, cloud=CLOUD):
        return self.journal('undo', entry, '--execute', *words, *cloud)

    def changes(self):
        """The requests that change something, but for logging in."""
        return [r for r in self.cloud.requests.request_history
                if r.method != 'GET' and 'keystone' not in r.url]

    def test_attaches_again(self):
        self.cloud.add_volume(1)
        self.cloud.add_volume(2)
        entry = self.record(
            removal(2, tag='db', delete_on_termination=True), removal(1),
            done=[1, 2])
        code, out, err = self.undo(entry)
        self.assertEqual((0, ''), (code, err))
        self.assertEqual(
            ['%s: attached: as /dev/vdz' % volume(n) for n in (1, 2)],
            out.splitlines())
        self.assertEqual(
            [('compute 2.60', {'volumeId': volume(1), 'device': '/dev/vdb'}),
             ('compute 2.79', {'volumeId': volume(2), 'device': '/dev/vdc',
                               'tag': 'db', 'delete_on_termination': True})],
            self.cloud.posted)
        self.assertEqual(2, len(self.changes()))

    def test_one_after_the_other(self):
        for number in (1, 2):
            self.cloud.add_volume(number)
        self.cloud.delay = 3
        self.undo(self.record(removal(1), removal(2), done=[1, 2]))
        urls = [r.url for r in self.cloud.requests.request_history
                if r.method == 'POST' or 'volumes/' in r.url]
        last_look = max(i for i, u in enumerate(urls) if volume(1) in u)
        posts = [i for i, u in enumerate(urls)
                 if u.endswith('os-volume_attachments')]
        self.assertThat(posts[1], matchers.GreaterThan(last_look))

    def test_again_changes_nothing(self):
        self.cloud.add_volume(1)
        entry = self.record(removal(1), done=[1])
        self.undo(entry)
        code, out, err = self.undo(entry)
        self.assertEqual((0, '%s: already attached: as /dev/vdz\n'
                          % volume(1)), (code, out))
        self.assertEqual(1, len(self.changes()))

    def test_not_free(self):
        self.cloud.add_volume(1, 'in-use',
                              attachments=[{'server_id': OTHER}])
        self.cloud.add_volume(2, 'error')
        entry = self.record(removal(1, 'attached-elsewhere'), removal(2),
                            removal(3), done=[1, 2, 3])
        code, out, err = self.undo(entry)
        self.assertEqual(3, code)
        self.assertEqual(
            ['%s: refused: the volume is in-use by server %s'
             % (volume(1), OTHER),
             '%s: refused: the volume is error' % volume(2),
             '%s: refused: the volume does not exist in Cinder' % volume(3)],
            out.splitlines())
        self.assertEqual([], self.changes())

    def test_some_done_some_not(self):
        self.cloud.add_volume(1)
        entry = self.record(removal(1), removal(2), done=[1, 2])
        code, out, err = self.undo(entry)
        self.assertEqual(4, code)
        self.assertIn('%s: attached' % volume(1), out)
        self.assertIn('%s: refused' % volume(2), out)

    def test_multiattach_volume_of_others(self):
        self.cloud.add_volume(1, 'in-use', multiattach=True,
                              attachments=[{'server_id': OTHER}])
        self.cloud.delay = 0
        code, out, err = self.undo(self.record(
            removal(1, 'attached-elsewhere'), done=[1]))
        self.assertEqual(0, code)
        self.assertEqual('compute 2.60', self.cloud.posted[0][0])

    def test_only_the_volumes_named(self):
        for number in (1, 2):
            self.cloud.add_volume(number)
        self.undo(self.record(removal(1), removal(2), done=[1, 2]),
                  '--volume', volume(2))
        self.assertEqual([volume(2)],
                         [b['volumeId'] for _, b in self.cloud.posted])

    def test_nothing_in_doubt_is_attached_unasked(self):
        for number in (1, 2):
            self.cloud.add_volume(number)
        entry = self.record(removal(1, 'volume-missing'), removal(2),
                            stale(3), done=[1], end=None)
        code, out, err = self.undo(entry)
        self.assertEqual(1, code)
        self.assertEqual([], self.cloud.requests.request_history)
        self.assertEqual(0, self.undo(entry, '--volume', volume(1))[0])

    def test_server_is_gone(self):
        self.cloud.add_volume(1)
        code, out, err = self.undo(self.record(
            removal(1), server=OTHER, done=[1]))
        self.assertEqual((3, ''), (code, out))
        self.assertIn('cannot see server %s' % OTHER, err)
        self.assertEqual([], self.changes())

    def test_nova_compute_cannot_attach(self):
        self.cloud.add_volume(1)
        self.cloud.delay = None
        code, out, err = self.undo(self.record(removal(1), done=[1]))
        self.assertEqual(4, code)
        self.assertIn('failed: nova-compute could not attach it', out)

    def test_takes_too_long(self):
        self.cloud.add_volume(1)
        self.cloud.delay = 1000
        code, out, err = self.undo(self.record(removal(1), done=[1]))
        self.assertEqual(4, code)
        self.assertIn('failed: requested, but not attached after 60 s', out)

    def test_reads_back_what_was_attached(self):
        self.cloud.add_volume(1)
        real = self.cloud._attach

        def forget(*args):
            answer = real(*args)
            self.cloud.attached[SERVER][volume(1)]['tag'] = None
            return answer

        self.cloud._attach = forget
        code, out, err = self.undo(self.record(
            removal(1, tag='db'), done=[1]))
        self.assertEqual(4, code)
        self.assertIn('attached, but tag is None', out)

    def answers(self, method, url, **kwargs):
        self.cloud.requests.register_uri(method, url, **kwargs)
        self.cloud.add_volume(1)
        code, out, err = self.undo(self.record(removal(1), done=[1]))
        return code, out + err

    def test_nova_refuses(self):
        code, words = self.answers(
            'POST', NOVA + '/servers/%s/os-volume_attachments' % SERVER,
            status_code=409, json={'conflictingRequest': {
                'code': 409, 'message': 'Instance is locked'}})
        self.assertEqual(3, code)
        self.assertIn('refused: Instance is locked (409)', words)

    def test_no_clear_answer(self):
        url = NOVA + '/servers/%s/os-volume_attachments' % SERVER
        for kwargs in ({'status_code': 504, 'text': '<html>'},
                       {'exc': requests.exceptions.ConnectTimeout}):
            code, words = self.answers('POST', url, **kwargs)
            self.assertEqual(4, code)
            self.assertIn('failed: ', words)

    def test_the_404_of_a_proxy_is_not_taken_for_absence(self):
        code, words = self.answers(
            'GET', NOVA + '/servers/%s/os-volume_attachments/%s'
            % (SERVER, volume(1)), status_code=404, text='<html>')
        self.assertEqual(3, code)
        self.assertIn('refused: no reason given (404)', words)
        self.assertEqual([], self.changes())

    def test_odd_answers(self):
        for kwargs in ({'text': 'x'}, {'json': []}, {'json': {'volume': 1}},
                       {'status_code': 503, 'json': {'x': 'y'}}):
            code, words = self.answers(
                'GET', CINDER + '/volumes/' + volume(1), **kwargs)
            self.assertEqual(3, code)
            self.assertEqual([], self.changes())

    def test_login_refused(self):
        code, words = self.answers(
            'POST', KEYSTONE + '/v3/auth/tokens', status_code=401,
            json={'error': {'code': 401, 'message': 'no'}})
        self.assertEqual(3, code)
        self.assertIn('cannot log in', words)

    def test_no_credentials(self):
        entry = self.record(removal(1), done=[1])
        for cloud in ((), ('--os-cloud', 'unknown')):
            code, out, err = self.undo(entry, cloud=cloud)
            self.assertEqual(3, code)
            self.assertIn('cannot log in', err)

    def test_credentials_of_the_environment_and_of_clouds_yaml(self):
        self.cloud.add_volume(1)
        entry = self.record(removal(1), done=[1])
        for name, value in (('AUTH_URL', KEYSTONE), ('USERNAME', 'u'),
                            ('PASSWORD', 'p'), ('PROJECT_NAME', 'p'),
                            ('USER_DOMAIN_ID', 'd'),
                            ('PROJECT_DOMAIN_ID', 'd')):
            self.useFixture(fixtures.EnvironmentVariable('OS_' + name, value))
        self.assertEqual(0, self.undo(entry, cloud=())[0])
        clouds = os.path.join(self.home, 'clouds.yaml')
        with open(clouds, 'w') as file:
            json.dump({'clouds': {'mine': {'auth': {
                'auth_url': KEYSTONE, 'username': 'u', 'password': 'p',
                'project_name': 'p', 'user_domain_id': 'd',
                'project_domain_id': 'd'}}}}, file)
        for name in list(os.environ):
            if name.startswith('OS_'):
                self.useFixture(fixtures.EnvironmentVariable(name))
        self.useFixture(fixtures.EnvironmentVariable(
            'OS_CLIENT_CONFIG_FILE', clouds))
        self.assertEqual(
            0, self.undo(entry, cloud=('--os-cloud', 'mine'))[0])

    def test_without_the_sdk(self):
        entry = self.record(removal(1), done=[1])
        with mock.patch.dict(sys.modules, {'openstack': None}):
            code, out, err = self.undo(entry)
        self.assertEqual((3, ''), (code, out))
        self.assertIn('pip install "nova-bdm-cleanup[cli]"', err)

    def test_outcomes(self):
        self.assertEqual(
            {'attached', 'already attached'},
            {o.value for o in reattach.Outcome if o.is_fine})
