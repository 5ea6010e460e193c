# SPDX-License-Identifier: Apache-2.0
"""What is shown of the tests while they run."""

from __future__ import annotations

import importlib
import io
import os
import pathlib
import subprocess
import sys
from typing import Any
from unittest import mock

import fixtures

from nova_bdm_cleanup.tests.unit import base

TOOLS = pathlib.Path(__file__).resolve().parents[3] / 'tools'


class Terminal(io.StringIO):

    def isatty(self) -> bool:
        return True


class FollowerTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        with mock.patch.object(sys, 'path', [str(TOOLS), *sys.path]):
            self.follow_tests: Any = importlib.import_module('follow_tests')
        self.clock = self.useFixture(fixtures.MockPatch(
            'follow_tests.time.monotonic', return_value=1000.0)).mock
        self.beside = io.BytesIO()
        self.begin(io.StringIO())

    def begin(self, screen: io.StringIO, **times: float) -> None:
        self.screen = screen
        self.follower = self.follow_tests.Follower(
            'unit', screen, self.beside, times)
        self.follower.begin()

    def list(self, *names: str) -> None:
        for name in names:
            self.follower.status(test_id=name, test_status='exists')

    def end(self, name: str, status: str, seconds: float = 0.0) -> None:
        self.follower.status(test_id=name, test_status='inprogress')
        self.clock.return_value += seconds
        self.follower.status(test_id=name, test_status=status)

    def say(self, name: str | None, title: str, text: str) -> None:
        self.follower.status(
            test_id=name, file_name=title, file_bytes=text.encode(),
            mime_type='text/plain;charset=utf8', eof=True)

    def test_of_tests_that_pass_a_log_says_nothing(self) -> None:
        self.list('a', 'b', 'c')
        self.say('a', 'stdout', 'noise')
        self.say(None, 'stdout', 'Nova has something to tell.')
        for name, status in (('a', 'success'), ('b', 'xfail'), ('c', 'skip')):
            self.end(name, status)
        self.follower.end()
        self.assertEqual('', self.screen.getvalue())
        self.assertEqual(b'Nova has something to tell.',
                         self.beside.getvalue())
        self.assertEqual({'passed': 2, 'failed': 0, 'skipped': 1},
                         self.follower.counts)

    def test_a_log_is_told_once_a_minute_how_far_it_is(self) -> None:
        self.list(*'abcdef')
        for name in 'abcd':
            self.end(name, 'success', seconds=40.0)
        self.assertEqual(
            'unit: 2 of 6 tests, 0 failed, about 3 min left\n'
            'unit: 4 of 6 tests, 0 failed, about 80 s left\n',
            self.screen.getvalue())

    def test_a_terminal_has_one_line_that_changes(self) -> None:
        self.begin(Terminal(), a=1.0, b=9.0)
        self.list('a', 'b')
        self.end('a', 'success', seconds=2.0)
        shown = self.screen.getvalue().split('\r\x1b[K')
        self.assertEqual('\x1b[?7lunit: starting\x1b[?7h', shown[1])
        self.assertEqual(
            '\x1b[?7lunit: 1 of 2 tests, 0 failed, about 18 s left\x1b[?7h',
            shown[-1])
        self.end('b', 'success')
        self.follower.end()
        self.assertEqual('', self.screen.getvalue().split('\r\x1b[K')[-1])
        self.assertNotIn('\n', self.screen.getvalue())

    def test_a_failure_is_shown_at_once_and_cut(self) -> None:
        self.say('a', 'nova.log', '\n'.join(f'line {n}' for n in range(1000)))
        self.say('a', 'traceback', 'x' * 1000)
        self.end('a', 'fail')
        lines = self.screen.getvalue().splitlines()
        self.assertEqual(
            ['FAILED a', '    nova.log:', '    (941 lines are left out)'],
            lines[:3])
        self.assertEqual('    line 999', lines[-3])
        self.assertEqual(['    traceback:', '    ' + 'x' * 300], lines[-2:])
        self.assertEqual(['a'], self.follower.failed)

    def test_what_must_not_happen_is_a_failure(self) -> None:
        self.list('a', 'b', 'c', 'd')
        self.end('a', 'uxsuccess')
        self.follower.status(test_id='b', test_status='inprogress')
        self.follower.end()
        self.assertEqual(
            'FAILED a\n    It passed, though it is expected to fail.\n'
            'FAILED b\n    It began and did not end.\n'
            '2 tests did not run.\n', self.screen.getvalue())
        self.assertEqual({'passed': 0, 'failed': 2, 'skipped': 0},
                         self.follower.counts)


class StestrTest(base.TestCase):
    """With a real stestr, in a directory of its own."""

    def follow(self, test: str) -> tuple[int, str, str]:
        directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        (directory / '.stestr.conf').write_text(
            '[DEFAULT]\ntest_path=.\ntop_dir=.\n'
            'group_regex=(.*)[.]\n')
        (directory / 'test_it.py').write_text(test)
        done = subprocess.run(
            [sys.executable, str(TOOLS / 'follow_tests.py'), 'it', 'run',
             '--subunit', '--concurrency', '2'],
            cwd=directory, env={**os.environ, 'PYTHON': sys.executable},
            capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def test_a_worker_that_dies_politely_fails_the_run(self) -> None:
        code, counts, screen = self.follow(
            'import os, unittest\n'
            'class Test(unittest.TestCase):\n'
            '    def test_a(self): pass\n'
            '    def test_b(self): print("mad", flush=True); os._exit(0)\n'
            '    def test_c(self): pass\n')
        self.assertEqual(
            (1, '{"passed": 1, "failed": 1, "skipped": 0}\n'), (code, counts))
        self.assertEqual(
            'FAILED test_it.Test.test_b\n    It began and did not end.\n'
            '1 tests did not run.\n    beside the results:\n    mad\n'
            'FAILED test_it.Test.test_b\n', screen)

    def test_a_module_that_cannot_be_imported_is_named(self) -> None:
        code, counts, screen = self.follow('import nonsense\n')
        self.assertNotEqual(0, code)
        self.assertEqual('{"passed": 0, "failed": 0, "skipped": 0}\n', counts)
        self.assertIn("No module named 'nonsense'", screen)
