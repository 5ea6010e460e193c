# SPDX-License-Identifier: Apache-2.0
"""Every exit code, and what is wrong input, through the real ``openstack``.

Which command has which exit code when, the tests of the commands show.

A child has imported OpenStackClient and forks for each command, because to
start it anew takes a second.  The entry points are those of ``setup.cfg``.
"""

from __future__ import annotations

import configparser
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any, ClassVar
from unittest import mock

from nova_bdm_cleanup.osc import extension
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import loopback
from nova_bdm_cleanup.tests.unit.fleet import base

ROOT = pathlib.Path(__file__).resolve().parents[4]

#: OpenStackClient failed before the command began.
NO_LOGIN = 1

PROGRAM = """
import contextlib, gc, io, json, os, sys
from cinderclient.v3 import client
from openstackclient import shell
from nova_bdm_cleanup.osc import base
with contextlib.redirect_stderr(io.StringIO()):
    # Fails, but has every plugin loaded.
    shell.main(['--os-auth-type=password', '--os-username=x',
                '--os-password=x', '--os-auth-url=http://127.0.0.1:9',
                'bdm', 'audit'])
gc.freeze()
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if not child:
        for name, number in (('stdout', 1), ('stderr', 2)):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
                    number)
        os.environ.update(order['environment'])
        if order['broken']:
            base.Budget = None
        try:
            code = shell.main(order['arguments'])
        except SystemExit as exc:
            code = exc.code
        sys.stdout.flush()
        sys.stderr.flush()
        # To take everything down takes longer than most commands do.
        os._exit(code)
    print(os.WEXITSTATUS(os.waitpid(child, 0)[1]), flush=True)
"""


class EntryCase(base.FleetCase):

    directory: ClassVar[pathlib.Path]
    child: ClassVar[Any]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        setup = configparser.ConfigParser(delimiters=('=',),
                                          interpolation=None)
        setup.read(ROOT / 'setup.cfg')
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.directory = pathlib.Path(directory.name)
        # As pip leaves it behind.
        info = cls.directory / 'nova_bdm_cleanup-0.dist-info'
        info.mkdir()
        (info / 'METADATA').write_text(
            'Metadata-Version: 2.1\nName: nova-bdm-cleanup\nVersion: 0\n')
        (info / 'entry_points.txt').write_text('\n'.join(
            '[%s]%s' % point for point in setup.items('options.entry_points')))
        environment = {
            name: value for name, value in os.environ.items()
            if not name.startswith('OS_')}
        environment.update(
            HOME=directory.name, XDG_CACHE_HOME=directory.name,
            PYTHONPATH=os.pathsep.join((directory.name, str(ROOT))))
        cls.child = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-c', PROGRAM],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment, cwd=directory.name)
        cls.addClassCleanup(cls.child.communicate)

    def openstack(self, *arguments: str, user: str = 'admin',
                  url: str = '', broken: bool = False) -> int:
        """Run ``openstack bdm``; returns the exit code."""
        return self.order({
            'arguments': ['bdm', *arguments, '--rate', '0'],
            'environment': {
                'OS_AUTH_TYPE': 'password', 'OS_USERNAME': user,
                'OS_AUTH_URL': (url or self.server.url) + '/identity/v3',
                'OS_PASSWORD': 'x', 'OS_PROJECT_NAME': 'own',
                'OS_USER_DOMAIN_ID': 'default',
                'OS_PROJECT_DOMAIN_ID': 'default'},
            'broken': broken})

    def order(self, order: dict[str, Any]) -> int:
        self.child.stdin.write(json.dumps(order) + '\n')
        self.child.stdin.flush()
        return int(self.child.stdout.readline())

    def output(self, name: str = 'stdout') -> str:
        """What the last command wrote."""
        return (self.directory / name).read_text()

    def assert_bad(self, words: str, *arguments: str) -> None:
        """Check that an argument is refused, and named."""
        self.assertEqual(ExitCode.BAD_INPUT, self.openstack(*arguments),
                         self.output('stderr'))
        self.assertIn(words, self.output('stderr'))
        self.assertEqual('', self.output())

    def assert_code(self, code: int, *arguments: str,
                    **options: Any) -> None:
        self.assertEqual(code, self.openstack(*arguments, **options),
                         self.output('stderr'))

    def path(self, name: str, content: str = '') -> str:
        path = pathlib.Path(self.tempdir(), name)
        if content:
            path.write_text(content)
        return str(path)

    def break_server(self, **fields: Any) -> None:
        """Detach a volume behind the back of a server."""
        self.cloud.lose_attachment(self.disk)
        self.cloud.servers[self.alpha].update(fields)

    def answer(self, pattern: str, status: int) -> None:
        """Let requests fail."""
        self.cloud.on(pattern, lambda: (status, {
            'fault': {'message': 'on purpose'}}))


class ExtensionTest(base.base.TestCase):
    """What OpenStackClient asks of a plugin."""

    def test_module(self) -> None:
        instance = mock.Mock()
        made = extension.make_client(instance)
        self.assertEqual('extension.Client', '%s.%s' % (
            type(made).__module__.rpartition('.')[2], type(made).__name__))
        self.assertIn(extension.DEFAULT_API_VERSION, extension.API_VERSIONS)
        self.assertIs(instance, extension.build_option_parser(instance))


class EveryCommandTest(EntryCase):
    """What does not depend on the command."""

    commands = (('audit',), ('show', 'alpha'), ('clean', 'alpha', '--yes'),
                ('release', '--orphans', '--yes'))

    def test_refused(self) -> None:
        self.cloud.token_is_valid = False
        for command in self.commands:
            self.assert_code(ExitCode.REFUSED, *command)
            self.assertIn('has it expired?', self.output('stderr'))

    def test_unanswered(self) -> None:
        self.answer('GET .*/servers', 500)
        for command in self.commands:
            self.assert_code(ExitCode.PARTLY, *command)
            self.assertIn('500 (on purpose)', self.output('stderr'))

    def test_tool_failure(self) -> None:
        for command in self.commands:
            self.assert_code(ExitCode.BROKEN, *command, broken=True)
            self.assertIn('this is a bug', self.output('stderr'))

    def test_bad_number(self) -> None:
        for command in self.commands:
            for number in ('-1', 'x'):
                self.assert_bad('--max-requests', *command,
                                '--max-requests=' + number)

    def test_login_fails(self) -> None:
        for command in self.commands:
            self.assert_code(NO_LOGIN, *command, url='http://127.0.0.1:9')

    def test_too_many_requests(self) -> None:
        for command in self.commands:
            self.assert_code(ExitCode.PARTLY, *command, '--max-requests', '1')
            self.assertIn('--max-requests', self.output('stderr'))


class AuditTest(EntryCase):

    def test_findings(self) -> None:
        self.break_server()
        self.assert_code(ExitCode.FINDINGS, 'audit', '-f', 'value', '-c',
                         'Reason')
        self.assertEqual('volume-available\n', self.output())

    def test_bad_input(self) -> None:
        there = self.tempdir()
        for words, arguments in (
                ('nobody', ('--server', 'nobody')),
                ('nowhere', ('--host', 'nowhere')),
                ('nonsense', ('--reason', 'nonsense')),
                ('nonsense', ('--fail-on', 'nonsense')),
                ('--host', ('--server', 'alpha', '--host', 'compute1')),
                (there, ('--report', there)),
                ('--nothing', ('--nothing',))):
            self.assert_bad(words, 'audit', *arguments)


class ExplainTest(EntryCase):
    """It needs no cloud, and no credentials."""

    def explain(self, reason: str) -> int:
        return self.order({'arguments': ['bdm', 'explain', reason],
                           'environment': {}, 'broken': False})

    def test_reason(self) -> None:
        self.assertEqual(ExitCode.OK, self.explain('server-gone'))
        self.assertIn('openstack bdm release ATTACHMENT', self.output())
        self.assertEqual([], self.cloud.requests)

    def test_unknown_reason(self) -> None:
        self.assertEqual(ExitCode.BAD_INPUT, self.explain('nonsense'))
        [line] = self.output('stderr').splitlines()
        self.assertRegex(line, 'no reason code nonsense; there are: .*stuck')


class ShowTest(EntryCase):

    def test_bad_input(self) -> None:
        twin = self.cloud.server('twin')
        self.cloud.servers['again'] = dict(self.cloud.servers[twin],
                                           id='again')
        self.cloud.mappings['again'] = []
        self.assert_bad('no server has the name or ID nobody',
                        'show', 'nobody')
        self.assert_bad('2 servers are named twin', 'show', 'twin')
        self.assert_bad('<server>', 'show')


class CleanTest(EntryCase):

    def reboot(self) -> None:
        """Have a hard reboot do what the plugin does."""
        def reboot() -> None:
            self.cloud.servers[self.alpha]['status'] = 'ACTIVE'
            self.cloud.mappings[self.alpha] = [
                m for m in self.cloud.mappings[self.alpha]
                if m['volumeId'] != self.disk]

        self.cloud.on('POST .*/action', reboot)

    def test_repaired_by_plan(self) -> None:
        self.break_server()
        self.reboot()
        self.assert_code(ExitCode.FINDINGS, 'audit', '-f', 'json')
        plan = self.path('plan.json', self.output())
        self.assert_code(ExitCode.OK, 'clean', '--plan', plan, '--yes')
        self.assert_code(ExitCode.OK, 'clean', '--plan', plan, '--yes')
        self.assertIn('1 skipped; nothing was changed', self.output('stderr'))

    def test_bad_input(self) -> None:
        plan = self.path('plan.json', '{}')
        for words, arguments in (
                ('give servers or --plan', ()),
                ('give servers or --plan', ('alpha', '--plan', plan)),
                ('No terminal to ask on', ('alpha',)),
                (plan, ('--plan', plan, '--yes')),
                ('/no/such/plan', ('--plan', '/no/such/plan', '--yes')),
                ('nobody', ('alpha', 'nobody', '--yes')),
                ('--timeout', ('alpha', '--timeout', '-1')),
                ('--dry-run', ('alpha', '--yes', '--dry-run'))):
            self.assert_bad(words, 'clean', *arguments)


class ReleaseTest(EntryCase):

    def test_bad_input(self) -> None:
        empty = self.path('connector.json', '{}')
        plan = self.path('plan.json', '{}')
        for words, arguments in (
                ('--orphans', ()),
                ('--orphans', ('--orphans', self.disk)),
                ('No terminal to ask on', (self.disk,)),
                (loopback.uid('nothing'), (loopback.uid('nothing'), '--yes')),
                ('/no/such/file', (self.disk, '--yes', '--connector',
                                   '/no/such/file')),
                (empty, (self.disk, '--yes', '--connector', empty)),
                (plan, ('--plan', plan, '--yes')),
                ('--max', (self.disk, '--max', '-1'))):
            self.assert_bad(words, 'release', *arguments)
