# SPDX-License-Identifier: Apache-2.0
"""The output of tools/follow_tests.py while tests run."""

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

    def test_unexpected_success_and_missing_end_are_failures(self) -> None:
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
    """A real stestr in a directory of its own."""

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

    def test_a_worker_that_exits_with_0_fails_the_run(self) -> None:
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
