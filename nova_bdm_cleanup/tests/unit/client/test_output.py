# SPDX-License-Identifier: Apache-2.0
"""Output that the ``openstack bdm`` commands share."""

from __future__ import annotations

import io
import os
import pathlib
import re
from types import SimpleNamespace
from unittest import mock

from nova_bdm_cleanup.client import output
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import base as unit_base, loopback
from nova_bdm_cleanup.tests.unit.client import commandcase


class ControlTest(commandcase.CommandCase):
    """Text of tenants, which must not control the operator's terminal."""

    ODD = '\x1b[2Jodd\r\n\x9b\u202e'
    SHOWN = '\\x1b[2Jodd\\r\\n\\x9b\\u202e'

    def setUp(self) -> None:
        super().setUp()
        # The connector of an attachment and names are free text.
        for server in self.cloud.servers.values():
            server['name'] = self.ODD
        self.gone = self.orphan()
        self.break_volume()
        self.cloud.hosts.append(self.ODD)
        self.cloud.attachment(
            'odd', self.alpha, self.cloud.volume('odd', 'in-use'),
            host=self.ODD)
        self.cloud.attachments[loopback.uid('attachment of orphan')][
            'host'] = self.ODD

    def assert_clean(self, *arguments: str) -> None:
        for form in ('table', 'value'):
            _, text = self.bdm(*arguments, form=form)
            for line in (text + self.stderr.getvalue()
                         + self.log.output).split('\n'):
                self.assertTrue(line.isprintable(), repr(line))
            self.assertIn(self.SHOWN, ' '.join(
                (text, self.stderr.getvalue(), self.log.output)))

    def test_commands_print_no_control_characters(self) -> None:
        for arguments in (('show', self.alpha),
                          ('audit', '--long'),
                          ('release', self.gone),
                          ('release', self.gone, '--yes'),
                          ('clean', self.alpha, '--dry-run'),
                          ('audit', '--server', self.ODD)):
            self.assert_clean(*arguments)

    def test_errors_print_no_control_characters(self) -> None:
        self.cloud.on('GET .*/servers', lambda: (
            500, {'fault': {'message': self.ODD}}))
        self.assert_clean('audit')


class HelpTest(commandcase.CommandCase):

    def test_help_of_every_command_has_the_exit_codes(self) -> None:
        app = SimpleNamespace(options=None)
        for each in commandcase.EVERY.values():
            text = each(app, None).get_parser('bdm').format_help()
            self.assertIn('\n\nExit codes: ', text)

    def test_every_exit_code_is_documented(self) -> None:
        page = pathlib.Path(__file__).resolve().parents[4].joinpath(
            'doc', 'source', 'guide', 'cli', 'exit-codes.rst')
        self.assertEqual({str(int(code)) for code in ExitCode}, set(re.findall(
            r'(?m)^(\d+) ', page.read_text(encoding='utf-8'))))


class FitTest(commandcase.CommandCase):
    """A terminal of 80 columns."""

    def assert_fits(self, *arguments: str) -> str:
        text = self.table(*arguments, width=80)
        for line in text.splitlines():
            # A command is not broken.
            if 'openstack ' not in line and 'nova-manage ' not in line:
                self.assertLessEqual(len(line), 80, line)
        return text

    def test_refused_server_fits_the_terminal(self) -> None:
        self.break_volume()
        self.cloud.attachment('twin', self.alpha, self.cloud.attach(
            self.alpha, 'second disk'))
        text = self.assert_fits('clean', 'alpha', '--yes')
        self.assertIn('| refused |', text)
        self.assertIn('an operator must look at it first', ' '.join(
            text.split()))

    def test_text_is_shown_once_for_its_rows(self) -> None:
        """Show a text once for all rows that have it."""
        others = [self.cloud.attach(self.alpha, 'disk %d' % n)
                  for n in range(3)]
        for volume in (self.disk, *others):
            self.cloud.lose_attachment(volume)
        path = self.plan()
        for volume in (self.disk, *others):
            self.cloud.volumes[volume]['updated_at'] = (
                '2026-01-02T00:00:00.000000')
        text = self.assert_fits('clean', '--plan', path, '--yes')
        self.assertEqual(4, text.count('| skipped |'))
        self.assertEqual(1, text.count(
            'volume %s has changed since the audit' % others[0]))
        self.assertIn('\n1-4. ' + self.alpha, text)

    def test_tables_fit_the_terminal(self) -> None:
        self.break_volume()
        held = self.orphan()
        for arguments in (('audit',), ('audit', '--thorough'),
                          ('show', 'alpha'), ('release', held, '--dry-run'),
                          ('clean', 'alpha', '--dry-run')):
            self.assert_fits(*arguments)

    def test_questions_fit_the_terminal(self) -> None:
        self.break_volume()
        for arguments in (('clean', 'alpha'), ('release', self.orphan())):
            with mock.patch('shutil.get_terminal_size',
                            lambda: os.terminal_size((80, 24))):
                self.bdm(*arguments, stdin=commandcase.Terminal('n'))
            for line in self.stderr.getvalue().splitlines():
                self.assertLessEqual(len(line), 80)

    def test_consecutive_numbers_become_a_range(self) -> None:
        for numbers, text in (([1], '1'), ([1, 2], '1-2'),
                              ([1, 2, 3, 7, 9, 10], '1-3, 7, 9-10')):
            self.assertEqual(text, output._ranges(numbers))


class ProgressTest(unit_base.TestCase):
    """The progress of a long command."""

    def show(self, *times: float, what: str = 'servers',
             terminal: bool = True) -> list[str]:
        """Return what is written for progress at these times."""
        stream = io.StringIO()
        stream.isatty = lambda: terminal
        clock = [0.0]
        shown = output.Progress(stream, lambda: clock[0])
        for number, clock[0] in enumerate(times):
            shown(what, number)
        shown.clear()
        return stream.getvalue().split('\r')

    def test_progress_names_an_api_that_does_not_answer(self) -> None:
        stream = commandcase.Terminal()
        clock = [0.0]
        shown = output.Progress(stream, lambda: clock[0])
        shown.asking('Cinder')
        for clock[0] in (4.0, 5.0, 42.0):
            shown.show_wait()
        shown.clear()
        # The operator is asked, and not an API.
        clock[0] = 99.0
        shown.show_wait()
        self.assertEqual(['', 'waiting for Cinder, seconds: 5',
                          'waiting for Cinder, seconds: 42', ' ' * 31, ''],
                         stream.getvalue().split('\r'))

    def test_a_name_does_not_control_the_terminal(self) -> None:
        self.assertEqual('a\\x1b[2J\\r: 0',
                         self.show(1.0, what='a\x1b[2J\r')[1])
