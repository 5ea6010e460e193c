# SPDX-License-Identifier: Apache-2.0
"""Base class of the ``openstack bdm`` command tests.

cliff runs the commands against a cloud over HTTP.
"""

from __future__ import annotations

import configparser
import io
import json
import os
import pathlib
import sys
from types import SimpleNamespace
from typing import Any, Callable
from unittest import mock

from nova_bdm_cleanup.client import audit, clean, explain, release, show
from nova_bdm_cleanup.tests.unit.client.cloud import base

ROOT = pathlib.Path(__file__).resolve().parents[4]

COMMANDS = {'audit': audit.AuditBdm, 'clean': clean.CleanBdm,
            'release': release.ReleaseBdm, 'show': show.ShowBdm}
EVERY: dict[str, Any] = {**COMMANDS, 'explain': explain.ExplainBdm}


def install(directory: pathlib.Path) -> None:
    """Write the entry points into a directory, as pip installs them."""
    setup = configparser.ConfigParser(delimiters=('=',), interpolation=None)
    setup.read(ROOT / 'setup.cfg')
    info = directory / 'nova_bdm_cleanup-0.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text(
        'Metadata-Version: 2.1\nName: nova-bdm-cleanup\nVersion: 0\n')
    (info / 'entry_points.txt').write_text('\n'.join(
        '[%s]%s' % point for point in setup.items('options.entry_points')))


class Terminal(io.StringIO):
    """A terminal at which an operator types this.

    :param meanwhile: called at the prompt
    """

    def __init__(self, typed: str = '',
                 meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(typed)
        self._meanwhile = meanwhile

    def isatty(self) -> bool:
        return True

    def readline(self, *limit: int) -> str:  # type: ignore[override]
        self._meanwhile()
        return super().readline(*limit)


class CommandCase(base.CloudCase):

    def bdm(self, name: str, *arguments: str, user: str = 'admin',
            stdin: Any = None, form: str = 'json',
            stdout: Any = None) -> tuple[int, Any]:
        """Run a command as ``openstack`` does.

        :returns: the exit code, and the rows by column, or the text if the
            format is not JSON
        """
        client = self.client(user)
        manager = SimpleNamespace(
            session=self.session(user), bdm_cleanup=client)
        self.stdout, self.stderr = stdout or io.StringIO(), io.StringIO()
        app = SimpleNamespace(
            client_manager=manager, stdout=self.stdout, stderr=self.stderr,
            options=SimpleNamespace(), NAME='openstack')
        command = COMMANDS[name](app, app.options)
        arguments += ('-f', form, '--rate', '0')
        args = command.get_parser('openstack bdm ' + name).parse_args(
            arguments)
        with mock.patch.object(sys, 'stdin', stdin or io.StringIO()):
            code = command.run(args)
        output = self.stdout.getvalue()
        if form != 'json':
            return code, output
        return code, json.loads(output) if output else None

    def table(self, *arguments: str, width: int = 100,
              user: str = 'admin') -> str:
        """Return what a command prints on a terminal of this width."""
        with mock.patch('shutil.get_terminal_size',
                        lambda: os.terminal_size((width, 24))):
            return str(self.bdm(*arguments, form='table', user=user)[1])

    def assert_results(self, code: int, results: list[str], name: str,
                       *arguments: str, **options: Any) -> Any:
        """Run a command; compare its exit code and the result of each row.

        :returns: the rows
        """
        found, rows = self.bdm(name, *arguments, **options)
        self.assertEqual((code, results), (
            found, [row['Result'] for row in rows]))
        return rows

    def break_volume(self) -> None:
        self.cloud.lose_attachment(self.disk)

    def path(self, name: str = 'plan.json') -> str:
        return os.path.join(self.tempdir(), name)

    def plan(self, *arguments: str) -> str:
        """Write the output of an audit of all projects to a file."""
        path = self.path()
        self.bdm('audit', '--all-projects', *arguments)
        with open(path, 'w') as file:
            file.write(self.stdout.getvalue())
        return path
