# SPDX-License-Identifier: Apache-2.0
"""The command ``nova-bdm-cleanup check``: what it prints, how it ends."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from unittest import mock

from oslo_upgradecheck.upgradecheck import Code, Result

from nova_bdm_cleanup.cli import checks, main, novaconf
from nova_bdm_cleanup.tests.unit import base


class CheckCommandTest(base.TestCase):

    def check(self, *results: Result, arguments: tuple[str, ...] = ()
              ) -> tuple[int, str]:
        found = tuple(('Check %d' % number, lambda self, r=result: r)
                      for number, result in enumerate(results))
        output = io.StringIO()
        with mock.patch.object(novaconf, 'load_nova', autospec=True), \
                mock.patch.object(checks.Checks, '_upgrade_checks', found), \
                contextlib.redirect_stdout(output):
            code = main.main(['check', *arguments])
        return code, output.getvalue()

    def test_exit_codes_are_those_of_nova_status(self) -> None:
        for codes, exit_code in (
                ((Code.SUCCESS, Code.SUCCESS), 0),
                ((Code.SUCCESS, Code.WARNING), 1),
                ((Code.FAILURE, Code.WARNING), 2)):
            self.assertEqual(exit_code, self.check(
                *(Result(c, 'details') for c in codes))[0])

    def test_table(self) -> None:
        _, output = self.check(Result(Code.SUCCESS),
                               Result(Code.WARNING, 'set this'))
        for words in ('bdm-cleanup Check Results', 'Check: Check 0',
                      'Result: Success', 'Details: None', 'Result: Warning',
                      'Details: set this'):
            self.assertIn(words, output)

    def test_json(self) -> None:
        _, output = self.check(
            Result(Code.FAILURE, 'set this'), Result(Code.SUCCESS),
            arguments=('--json',))
        self.assertEqual({'name': 'bdm-cleanup Check Results', 'checks': [
            {'check': 'Check 0', 'result': 2, 'details': 'set this'},
            {'check': 'Check 1', 'result': 0, 'details': None},
        ]}, json.loads(output))

    def test_without_nova(self) -> None:
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), \
                mock.patch.dict(sys.modules, {'nova': None}):
            self.assertEqual(2, main.main(['check']))
        self.assertIn('the Python of nova-compute', errors.getvalue())
