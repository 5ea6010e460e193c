# SPDX-License-Identifier: Apache-2.0
"""Tests that a run counts right and fails: all gates rely on it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import fixtures
import testtools

TOOLS = pathlib.Path(__file__).resolve().parents[3] / 'tools'


class CountsTest(testtools.TestCase):
    """Runs of a real stestr, in a directory of its own."""

    def follow(self, module: str) -> tuple[int, dict[str, int]]:
        """Run a test module; return the exit code and the counts."""
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (directory / '.stestr.conf').write_text(
            '[DEFAULT]\ntest_path=.\ntop_dir=.\n')
        (directory / 'test_it.py').write_text(textwrap.dedent(module))
        done = subprocess.run(
            [sys.executable, str(TOOLS / 'follow_tests.py'), 'it', 'run',
             '--subunit', '--concurrency', '1'], cwd=directory, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, 'PYTHON': f'{sys.executable} '
                 f'{TOOLS / "test_workers.py"} 2'})
        *_, counts = done.stdout.splitlines()
        return done.returncode, json.loads(counts)

    def test_each_test_is_run_by_one_of_the_workers(self):
        self.assertEqual(
            (1, {'passed': 40, 'failed': 1, 'skipped': 1}), self.follow("""
                import unittest
                class Test(unittest.TestCase):
                    def test_that_fails(self): self.fail('x' * 100000)
                    def test_that_is_skipped(self): self.skipTest('')
                for number in range(40):
                    setattr(Test, f'test_{number}', lambda self: None)
                """))

    def test_worker_that_exits_with_0_fails_the_run(self):
        self.assertEqual(
            (1, {'passed': 1, 'failed': 1, 'skipped': 0}), self.follow("""
                import os, unittest
                class Test(unittest.TestCase):
                    def test_a(self): pass
                    def test_b(self): os._exit(0)
                    def test_c(self): pass
                """))

    def test_module_that_cannot_be_imported_fails_the_run(self):
        code, counts = self.follow('import nonsense')
        self.assertNotEqual(0, code)
        self.assertEqual(0, counts['passed'])
