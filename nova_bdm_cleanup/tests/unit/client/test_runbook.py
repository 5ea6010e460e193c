# SPDX-License-Identifier: Apache-2.0
"""The runbook on a terminal."""

from __future__ import annotations

from nova_bdm_cleanup.client import runbook
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import base


class RunbookTest(base.TestCase):

    def test_every_reason(self) -> None:
        self.assertEqual(sorted(map(str, Reason)),
                         runbook.reasons())
        for reason in runbook.reasons():
            text = runbook.section(reason)
            self.assertEqual(reason, text.split('\n')[0])
            self.assertIn('\nYou: ', text)
            self.assertNotRegex(text, r'(?m)`|::$|^\.\. |:(ref|doc|term):')
            self.assertRegex(runbook.meaning(reason), r'^[^`\n]+[.]$')

    def test_a_section_that_is_sent_to(self) -> None:
        text = runbook.section('root-volume-dangling')
        self.assertIn('"Give a mapping a new attachment".', text)
        self.assertIn('1. Stop the server.', text)
        self.assertNotIn('1. Stop the server.', runbook.section('healthy'))
