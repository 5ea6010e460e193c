# SPDX-License-Identifier: Apache-2.0
"""How far a long command is."""

from __future__ import annotations

import io

from nova_bdm_cleanup.osc.base import Progress
from nova_bdm_cleanup.tests.unit import base


class ProgressTest(base.TestCase):

    def show(self, *times: float, what: str = 'servers',
             terminal: bool = True) -> list[str]:
        """What is written when something is told at these times."""
        stream = io.StringIO()
        stream.isatty = lambda: terminal
        clock = [0.0]
        shown = Progress(stream, lambda: clock[0])
        for number, clock[0] in enumerate(times):
            shown(what, number)
        shown.clear()
        return stream.getvalue().split('\r')

    def test_terminal(self) -> None:
        """Not what is over in a second, and not too often."""
        self.assertEqual(
            ['', 'servers: 1', 'servers: 3', ' ' * 10, ''],
            self.show(0.9, 1.0, 1.05, 2.0))

    def test_a_name_does_not_control_the_terminal(self) -> None:
        self.assertEqual('a\\x1b[2J\\r: 0',
                         self.show(1.0, what='a\x1b[2J\r')[1])

    def test_file(self) -> None:
        self.assertEqual([''], self.show(2.0, terminal=False))
