# SPDX-License-Identifier: Apache-2.0
"""The runbook on a terminal."""

from __future__ import annotations

import re

from nova_bdm_cleanup.client import runbook
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import base


class RunbookTest(base.TestCase):

    def test_every_reason_has_a_section_of_plain_text(self) -> None:
        self.assertEqual(sorted(map(str, Reason)),
                         runbook.reasons())
        for reason in runbook.reasons():
            text = runbook.section(reason)
            self.assertEqual(reason, text.split('\n')[0])
            self.assertIn('\nDanger: ', text)
            self.assertRegex(text, r'\nYou:[ \n]')
            self.assertNotRegex(text, r'(?m)`|::$|^ *\.\. |:(ref|doc|term):')
            self.assertRegex(runbook.meaning(reason), r'^[^`\n]+[.]$')

    def test_sections_fit_a_terminal(self) -> None:
        """Check that only log lines are wider than a terminal."""
        for reason in runbook.reasons():
            for line in runbook.section(reason).split('\n'):
                if not re.match('   [A-Z]+ bdm-cleanup: event=', line):
                    self.assertLess(len(line), 80, line)

    def test_linked_sections_are_printed_too(self) -> None:
        """Check one that is linked to, and one to which that links."""
        text = runbook.section('root-volume-dangling')
        self.assertIn('"A disk that is not reconnected".', text)
        for title in ('A disk that is not reconnected',
                      'Give a mapping a new attachment'):
            self.assertEqual(1, text.count('\n%s\n==' % title))
        self.assertNotIn('\n==', runbook.section('healthy'))

    def test_two_linked_sections_are_printed_too(self) -> None:
        self.assertRegex(
            runbook.section('status-contradiction'),
            r'(?s)\n\nGive a mapping a new attachment\n==.*'
            r'\n\nEnd an attach that died\n==')

    def test_every_reason_is_in_one_group(self) -> None:
        groups = runbook.groups()
        self.assertEqual(['healthy'], groups['In order'])
        self.assertIn('stuck', groups['Kept, an operator has to look'])
        self.assertEqual(runbook.reasons(), sorted(
            reason for reasons in groups.values() for reason in reasons))

    def test_nothing_to_do(self) -> None:
        for reason, expected in (('healthy', True), ('evacuated', True),
                                 ('volume-missing', False), ('stuck', False)):
            self.assertEqual(expected, runbook.needs_nothing(reason))
