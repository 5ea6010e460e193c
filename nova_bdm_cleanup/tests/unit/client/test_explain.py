# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm explain``."""

from __future__ import annotations

import io
import os
from types import SimpleNamespace
from unittest import mock

from nova_bdm_cleanup.client import explain, runbook
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import base


class ExplainTest(base.TestCase):

    def explain(self, *arguments: str, width: int = 80) -> tuple[int, str]:
        """Return the exit code and what is printed on a terminal."""
        screen = io.StringIO()
        command = explain.ExplainBdm(SimpleNamespace(
            stdout=screen, stderr=screen, options=None, NAME='openstack'),
            None)
        args = command.get_parser('openstack bdm explain').parse_args(
            arguments)
        with mock.patch('shutil.get_terminal_size',
                        lambda: os.terminal_size((width, 24))):
            return command.run(args), screen.getvalue()

    def listed(self, width: int = 80) -> str:
        code, text = self.explain('--list', width=width)
        self.assertEqual(ExitCode.OK, code)
        return text

    def test_list_has_every_reason_once(self) -> None:
        found = [line.split()[0] for line in self.listed().splitlines()
                 if line[:3].strip() and line.startswith('  ')]
        self.assertEqual(
            [code for codes in runbook.groups().values() for code in codes],
            found)
        self.assertEqual(sorted(map(str, Reason)), sorted(found))

    def test_list_has_the_remedies(self) -> None:
        text = self.listed()
        for reason, remedy in (
                ('volume-missing', 'clean'), ('server-gone', 'release'),
                ('cross-wired', 'look'), ('volume-busy', 'wait'),
                # These have no remedy of the commands.
                ('over-limit', 'look'), ('move-lost', 'none'),
                ('healthy', 'none')):
            self.assertRegex(text, r'(?m)^  %s +%s  +\S' % (reason, remedy))

    def test_list_fits_the_terminal(self) -> None:
        for width in (80, 132):
            text = self.listed(width)
            self.assertLessEqual(max(map(len, text.splitlines())), width)
            for reason in runbook.reasons():
                self.assertIn(runbook.meaning(reason),
                              ' '.join(text.split()))
        # A narrower one breaks the lines.
        self.assertIn('The root disk of a server', self.listed(20))

    def test_list_has_the_groups_of_the_runbook(self) -> None:
        text = '\n' + self.listed()
        places = [text.index('\n%s\n  %s ' % (group, codes[0]))
                  for group, codes in runbook.groups().items()]
        self.assertEqual(sorted(places), places)
        self.assertNotIn('Before maintenance', text)

    def test_mistyped_reason_suggests_the_nearest(self) -> None:
        for typed, meant in (
                ('volume-mising', 'volume-missing'),
                ('VOLUME_BUSY', 'volume-busy'), ('server-gon', 'server-gone'),
                ('root-dangling', 'root-volume-dangling')):
            self.assertEqual(
                (ExitCode.BAD_INPUT,
                 'there is no reason code %s; did you mean "openstack bdm '
                 'explain %s"? The words after "event=" are in the page "Log '
                 'lines"\n' % (typed, meant)), self.explain(typed))

    def test_neither_or_both_arguments_are_bad_input(self) -> None:
        for arguments in ((), ('stuck', '--list')):
            self.assertEqual(
                (ExitCode.BAD_INPUT,
                 'give either a reason code or --list; openstack bdm explain '
                 '--list shows the codes\n'), self.explain(*arguments))

    def test_unknown_reason_is_printed_without_escapes(self) -> None:
        self.assertNotIn('\x1b', self.explain('\x1b[2J')[1])
