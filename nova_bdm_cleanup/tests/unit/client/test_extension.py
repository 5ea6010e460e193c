# SPDX-License-Identifier: Apache-2.0
"""Every exit code, and invalid input, through the real ``openstack``.

The tests of each command show when it has which exit code.

A child imports OpenStackClient and forks for each command, because a new
start takes a second.  The entry points are those of ``setup.cfg``.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any, Callable, ClassVar
from unittest import mock

from nova_bdm_cleanup.client import extension
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import loopback
from nova_bdm_cleanup.tests.unit.client import commandcase
from nova_bdm_cleanup.tests.unit.client.cloud import base

#: OpenStackClient failed before the command began.
NO_LOGIN = 1

PROGRAM = """
import contextlib, gc, io, json, os, sys
from cinderclient.v3 import client
from openstackclient import shell
from nova_bdm_cleanup.client import output
with contextlib.redirect_stderr(io.StringIO()), \\
        contextlib.redirect_stdout(io.StringIO()):
    # Fails, but has every plugin loaded.
    shell.main(['--os-auth-type=password', '--os-username=x',
                '--os-password=x', '--os-auth-url=http://127.0.0.1:9',
                'bdm', 'audit'])
    # Reads the metadata of every package that is installed.
    shell.main(['help', 'bdm', 'audit'])
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
            output.Budget = None
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


class EntryCase(base.CloudCase):

    directory: ClassVar[pathlib.Path]
    child: ClassVar[Any]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.directory = pathlib.Path(directory.name)
        commandcase.install(cls.directory)
        environment = {
            name: value for name, value in os.environ.items()
            if not name.startswith('OS_')}
        environment.update(
            HOME=directory.name, XDG_CACHE_HOME=directory.name,
            PYTHONPATH=os.pathsep.join((
                directory.name, str(commandcase.ROOT))))
        cls.child = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-c', PROGRAM],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment, cwd=directory.name)
        cls.addClassCleanup(cls.child.communicate)

    def openstack(self, *arguments: str, user: str = 'admin',
                  url: str = '', broken: bool = False) -> int:
        """Run ``openstack bdm``; return the exit code."""
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
        """Return the output of the last command."""
        return (self.directory / name).read_text()

    def assert_code(self, code: int, words: str, *arguments: str,
                    **options: Any) -> None:
        self.assertEqual(code, self.openstack(*arguments, **options),
                         self.output('stderr'))
        self.assertIn(words, self.output('stderr'), arguments)

    def path(self, name: str, content: str) -> str:
        path = pathlib.Path(self.tempdir(), name)
        path.write_text(content)
        return str(path)


class ExtensionTest(base.base.TestCase):
    """The interface of an OpenStackClient plugin."""

    def test_module_has_the_interface_of_a_plugin(self) -> None:
        instance = mock.Mock()
        made = extension.make_client(instance)
        self.assertEqual('extension.Client', '%s.%s' % (
            type(made).__module__.rpartition('.')[2], type(made).__name__))
        self.assertIn(extension.DEFAULT_API_VERSION, extension.API_VERSIONS)
        self.assertIs(instance, extension.build_option_parser(instance))


class ExitCodeTest(EntryCase):

    def test_commands_share_their_exit_codes(self) -> None:
        """Check the exit codes that all commands share."""
        def fail() -> None:
            self.cloud.on('GET .*/servers', lambda: (
                500, {'fault': {'message': 'on purpose'}}))

        def expire() -> None:
            self.cloud.token_is_valid = False

        def nothing() -> None:
            pass

        cases: tuple[tuple[Callable[[], None], int, str, tuple[str, ...],
                           dict[str, Any]], ...] = (
            (nothing, ExitCode.BROKEN, 'this is a bug', (),
             {'broken': True}),
            (nothing, NO_LOGIN, '', (), {'url': 'http://127.0.0.1:9'}),
            (nothing, ExitCode.PARTLY, '--max-requests',
             ('--max-requests', '1'), {}),
            *((nothing, ExitCode.BAD_INPUT, '--max-requests',
               ('--max-requests=' + number,), {}) for number in ('-1', 'x')),
            (fail, ExitCode.PARTLY, '500 (on purpose)', (), {}),
            (expire, ExitCode.REFUSED, 'has it expired?', (), {}))
        for prepare, code, words, arguments, options in cases:
            prepare()
            for command in (('audit',), ('show', 'alpha')):
                self.assert_code(code, words, *command, *arguments, **options)
            for change in (('clean', 'alpha', '--yes'),
                           ('release', '--orphans', '--yes')):
                self.assert_code(
                    ExitCode.REFUSED if code is ExitCode.PARTLY else code,
                    words, *change, *arguments, **options)
                if code is ExitCode.PARTLY:
                    self.assertTrue(self.output('stderr').endswith(
                        '; nothing was changed\n'))

    def test_invalid_argument_is_named(self) -> None:
        """Name the invalid argument."""
        twin = self.cloud.server('twin')
        self.cloud.servers['again'] = dict(self.cloud.servers[twin],
                                           id='again')
        self.cloud.mappings['again'] = []
        there = self.tempdir()
        empty = self.path('empty.json', '{}')
        for words, arguments in (
                ('nobody', 'audit --server nobody'),
                ('nowhere', 'audit --host nowhere'),
                ('nonsense', 'audit --reason nonsense'),
                ('nonsense', 'audit --fail-on nonsense'),
                ('--host', 'audit --server alpha --host compute1'),
                (there, 'audit --report ' + there),
                ('--nothing', 'audit --nothing'),
                ('no server has the name or ID nobody', 'show nobody'),
                ('2 servers are named twin', 'show twin'),
                ('<server>', 'show'),
                ('give servers or --plan', 'clean'),
                ('give servers or --plan', 'clean alpha --plan ' + empty),
                ('No terminal to ask on', 'clean alpha'),
                (empty, 'clean --yes --plan ' + empty),
                ('/no/such/plan', 'clean --yes --plan /no/such/plan'),
                ('nobody', 'clean alpha nobody --yes'),
                ('--timeout', 'clean alpha --timeout -1'),
                ('--dry-run', 'clean alpha --yes --dry-run'),
                ('--orphans', 'release'),
                ('--orphans', 'release --orphans ' + self.disk),
                ('No terminal to ask on', 'release ' + self.disk),
                (loopback.uid('nothing'),
                 'release --yes ' + loopback.uid('nothing')),
                ('/no/such/file', 'release --yes --connector /no/such/file '
                 + self.disk),
                (empty, 'release --yes --connector %s %s' % (
                    empty, self.disk)),
                (empty, 'release --yes --plan ' + empty),
                ('--max', 'release --max -1 ' + self.disk)):
            self.assert_code(ExitCode.BAD_INPUT, words, *arguments.split())
            self.assertEqual('', self.output())

    def test_plan_of_audit_is_accepted_by_clean(self) -> None:
        self.cloud.lose_attachment(self.disk)
        self.cloud.on('POST .*/action',
                      lambda: self.cloud.clean_up(self.alpha))
        self.assert_code(ExitCode.FINDINGS, '', 'audit', '-f', 'json')
        plan = self.path('plan.json', self.output())
        for words in ('1 removed', '1 skipped; nothing was changed'):
            self.assert_code(ExitCode.OK, words, 'clean', '--plan', plan,
                             '--yes')


class WithoutCloudTest(EntryCase):
    """Commands that need no cloud and no credentials."""

    def explain(self, *arguments: str) -> int:
        return self.order({'arguments': ['bdm', 'explain', *arguments],
                           'environment': {}, 'broken': False})

    def test_reason_is_explained_without_a_request(self) -> None:
        self.assertEqual(ExitCode.OK, self.explain('server-gone'))
        self.assertIn('openstack bdm release ATTACHMENT', self.output())
        self.assertEqual([], self.cloud.requests)

    def test_unknown_reason_is_bad_input(self) -> None:
        self.assertEqual(ExitCode.BAD_INPUT, self.explain('nonsense'))
        self.assertEqual(
            'there is no reason code nonsense; openstack bdm explain --list '
            'shows the codes\n', self.output('stderr'))

    def test_list_needs_no_request(self) -> None:
        self.assertEqual(ExitCode.OK, self.explain('--list'))
        self.assertIn('\n  server-gone ', self.output())
        self.assertEqual([], self.cloud.requests)

    def test_missing_reason_is_bad_input(self) -> None:
        self.assertEqual(ExitCode.BAD_INPUT, self.explain())
        self.assertIn('give either a reason code or --list',
                      self.output('stderr'))

    def test_complete_has_every_command_and_option(self) -> None:
        self.assertEqual(ExitCode.OK, self.order({
            'arguments': ['complete'], 'environment': {}, 'broken': False}))
        words = {name: found.split() for name, found in re.findall(
            "^  cmds_(bdm.*)='(.*)'$", self.output(), re.MULTILINE)}
        self.assertEqual(sorted(commandcase.EVERY), words.pop('bdm'))
        self.assertEqual({
            'bdm_' + name: [
                option for action in command(
                    mock.Mock(), None).get_parser(name)._actions
                for option in action.option_strings]
            for name, command in commandcase.EVERY.items()}, words)
