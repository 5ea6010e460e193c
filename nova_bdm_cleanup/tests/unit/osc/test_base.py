# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""What the ``openstack bdm`` commands have in common."""

from __future__ import annotations

import pathlib
from types import SimpleNamespace
from unittest import mock

from nova_bdm_cleanup.exitcodes import ExitCode
from nova_bdm_cleanup.osc import bdm_audit
from nova_bdm_cleanup.osc import bdm_clean
from nova_bdm_cleanup.osc import bdm_release
from nova_bdm_cleanup.osc import bdm_show
from nova_bdm_cleanup.tests.unit import loopback
from nova_bdm_cleanup.tests.unit.osc import commandcase


class BdmCommandTest(commandcase.CommandCase):

    def test_expired_token(self) -> None:
        self.cloud.token_is_valid = False
        code, rows = self.bdm('audit')
        self.assertEqual((ExitCode.REFUSED, None), (code, rows))
        self.assertIn('has it expired?', self.stderr.getvalue())

    def test_tool_failure(self) -> None:
        with mock.patch('nova_bdm_cleanup.fleet.crosscheck.CrossCheck',
                        autospec=True, side_effect=ValueError('odd')):
            code, _ = self.bdm('audit')
        self.assertEqual(ExitCode.BROKEN, code)
        self.assertIn('ValueError: odd', self.stderr.getvalue())


class ControlTest(commandcase.CommandCase):
    """What tenants wrote does not control the operator's terminal."""

    ODD = '\x1b[2Jodd\r\n\x9b\u202e'
    SHOWN = '\\x1b[2Jodd\\r\\n\\x9b\\u202e'

    def setUp(self) -> None:
        super().setUp()
        # The connector of an attachment is free text, and so are names.
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
        _, rows = self.bdm(*arguments)
        cells = [cell for row in rows or () for cell in row.values()]
        for line in (*cells, *self.stderr.getvalue().splitlines(),
                     *self.log.output.splitlines()):
            self.assertTrue(line is None or line.isprintable(), repr(line))
        self.assertIn(self.SHOWN, ' '.join(
            (*map(str, cells), self.stderr.getvalue(), self.log.output)))

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

    def test_nothing_stays_nothing(self) -> None:
        _, rows = self.bdm('audit', '--long')
        self.assertIn(None, [cell for row in rows for cell in row.values()])


class HelpTest(commandcase.CommandCase):

    def test_help_of_every_command(self) -> None:
        app = SimpleNamespace(options=None)
        for command in commandcase.COMMANDS.values():
            text = command(app, None).get_parser('bdm').format_help()
            self.assertIn('Exit codes: ', ' '.join(text.split()))

    def test_every_column_and_exit_code_is_documented(self) -> None:
        page = pathlib.Path(__file__).resolve().parents[4].joinpath(
            'doc', 'source', 'guide', 'cli', 'osc.rst')
        text = page.read_text(encoding='utf-8')
        columns = bdm_audit._COLUMNS + bdm_audit._MORE_COLUMNS + \
            bdm_clean._COLUMNS + bdm_release._COLUMNS + bdm_show._COLUMNS
        for column in columns:
            self.assertIn('``%s``' % column, text)
        for code in ExitCode:
            self.assertIn('\n   * - %d\n' % code, text)
