# SPDX-License-Identifier: Apache-2.0
"""Plain text for human readers."""

from __future__ import annotations

import io
import os
from unittest import mock

from nova_bdm_cleanup import terminal
from nova_bdm_cleanup.tests.unit import base


class CleanTest(base.TestCase):

    def test_nothing_is_a_dash(self) -> None:
        for value, text in ((None, '-'), ('', '-'), (0, '0')):
            self.assertEqual(text, terminal.clean(value))

    def test_nothing_controls_the_terminal(self) -> None:
        for shown in (terminal.clean, terminal.printable):
            self.assertEqual(
                'a\\x1b[2Jb\\nc\\r\\x07\\x9b\\u202e',
                shown('a\x1b[2Jb\nc\r\x07\x9b\u202e'))
        self.assertEqual('', terminal.printable(''))

    def test_words_of_any_language_stay(self) -> None:
        for text in ('plain', 'größe', '磁盘'):
            self.assertEqual(text, terminal.clean(text))


class TableTest(base.TestCase):

    def test_columns_are_as_wide_as_their_values(self) -> None:
        self.assertEqual(
            '> Name    Count\n'
            '> volume  1\n'
            '> -       22',
            terminal.table(('Name', 'Count'), (('volume', 1), (None, 22)),
                           indent='> '))

    def test_table_without_rows_has_its_heading(self) -> None:
        self.assertEqual('Name  Count', terminal.table(('Name', 'Count'), ()))


class FieldsTest(base.TestCase):

    def fields(self, is_terminal: bool) -> str:
        stdout = io.StringIO()
        stdout.isatty = lambda: is_terminal
        with mock.patch('sys.__stdout__', stdout), mock.patch(
                'shutil.get_terminal_size',
                lambda: os.terminal_size((24, 80))):
            return terminal.fields([('Name', 'a'), (
                'State', 'as long as this text is')])

    def test_long_value_is_wrapped_on_a_terminal(self) -> None:
        self.assertEqual('Name   a\nState  as long as this\n       text is',
                         self.fields(is_terminal=True))

    def test_long_value_is_not_wrapped_in_a_pipe(self) -> None:
        self.assertEqual('Name   a\nState  as long as this text is',
                         self.fields(is_terminal=False))


class MomentTest(base.TestCase):

    def test_moment_is_in_utc(self) -> None:
        self.assertEqual('1970-01-02 00:00:00', terminal.moment(86400))
