# SPDX-License-Identifier: Apache-2.0
"""Output that the ``openstack bdm`` commands share."""

from __future__ import annotations

import io
import pathlib
import re
from types import SimpleNamespace

from nova_bdm_cleanup.client import audit, clean, output, release, show
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

    def test_every_command(self) -> None:
        for arguments in (('show', self.alpha),
                          ('audit', '--long'),
                          ('release', self.gone),
                          ('release', self.gone, '--yes'),
                          ('clean', self.alpha, '--dry-run'),
                          ('audit', '--server', self.ODD)):
            self.assert_clean(*arguments)

    def test_words_of_an_api(self) -> None:
        self.cloud.on('GET .*/servers', lambda: (
            500, {'fault': {'message': self.ODD}}))
        self.assert_clean('audit')


class HelpTest(commandcase.CommandCase):

    def test_help_of_every_command(self) -> None:
        app = SimpleNamespace(options=None)
        for each in commandcase.EVERY.values():
            text = each(app, None).get_parser('bdm').format_help()
            self.assertIn('\n\nExit codes: ', text)

    def test_every_column_and_exit_code_is_documented(self) -> None:
        page = pathlib.Path(__file__).resolve().parents[4].joinpath(
            'doc', 'source', 'guide', 'cli', 'osc.rst')
        text = page.read_text(encoding='utf-8')
        columns = audit.LONG_COLUMNS + ('Remedy',) + \
            clean.CleanBdm.columns + \
            release.ReleaseBdm.columns + show.SHOW_COLUMNS
        for column in columns:
            self.assertIn('``%s``' % column, text)
        codes = page.with_name('exit-codes.rst').read_text(encoding='utf-8')
        self.assertEqual({str(int(code)) for code in ExitCode},
                         set(re.findall(r'(?m)^(\d+) ', codes)))


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

    def test_a_name_does_not_control_the_terminal(self) -> None:
        self.assertEqual('a\\x1b[2J\\r: 0',
                         self.show(1.0, what='a\x1b[2J\r')[1])
