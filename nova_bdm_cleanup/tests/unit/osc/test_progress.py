# SPDX-License-Identifier: Apache-2.0
"""How far a long command is."""

from __future__ import annotations

import io

from nova_bdm_cleanup.osc.base import Progress
from nova_bdm_cleanup.tests.unit import base


class ProgressTest(base.TestCase):

    def show(self, terminal: bool) -> list[str]:
        stream = io.StringIO()
        stream.isatty = lambda: terminal
        clock = [0.0]
        shown = Progress(stream, lambda: clock[0])
        for number in range(3):
            clock[0] += 1
            shown('servers', number)
        shown('servers', 3)  # Too soon.
        shown.clear()
        return stream.getvalue().split('\r')

    def test_terminal(self) -> None:
        self.assertEqual(
            ['', 'servers: 0', 'servers: 1', 'servers: 2', ' ' * 10, ''],
            self.show(True))

    def test_a_name_does_not_control_the_terminal(self) -> None:
        stream = io.StringIO()
        stream.isatty = lambda: True
        clock = iter((1.0, 2.0, 2.0))
        Progress(stream, lambda: next(clock))('a\x1b[2J\r', 1)
        self.assertEqual('\ra\\x1b[2J\\r: 1', stream.getvalue())

    def test_what_is_over_in_a_second_needs_none(self) -> None:
        stream = io.StringIO()
        stream.isatty = lambda: True
        clock = iter((1.0, 1.9))
        Progress(stream, lambda: next(clock))('servers', 1)
        self.assertEqual('', stream.getvalue())

    def test_file(self) -> None:
        self.assertEqual([''], self.show(False))
