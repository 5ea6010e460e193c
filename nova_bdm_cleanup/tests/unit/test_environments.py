# SPDX-License-Identifier: Apache-2.0
"""Environments: when they are built again, and with what."""

from __future__ import annotations

import functools
import importlib
import os
import pathlib
import re
import sys
from typing import Any
from unittest import mock

import fixtures

from nova_bdm_cleanup.tests.unit import base

TOOLS = pathlib.Path(__file__).resolve().parents[3] / 'tools'


class EnvironmentCase(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        with mock.patch.object(sys, 'path', [str(TOOLS), *sys.path]):
            self.environments: Any = importlib.import_module('environments')
        self.directory = pathlib.Path(self.tempdir())
        self.useFixture(fixtures.EnvironmentVariable(
            'NOVA_BDM_CLEANUP_ENVIRONMENTS', str(self.directory)))
        self.commands = self.useFixture(fixtures.MockPatchObject(
            self.environments._Environment, '_run', autospec=True,
            side_effect=self._make)).mock

    def _make(self, environment: Any, *args: object,
              **kwargs: object) -> None:
        """Leave what the commands leave that the build checks."""
        environment.python.parent.mkdir(parents=True, exist_ok=True)
        environment.python.touch()
        environment._log.touch()


class OfRequirementsTest(EnvironmentCase):

    def get(self) -> list[str]:
        """Ask for an environment; return the programs that were run."""
        self.commands.reset_mock()
        path = self.directory / 'name' / 'bin' / 'python'
        self.assertEqual(path, self.environments.of_requirements(
            'name', '/usr/bin/python3', [self.file], mock.Mock()))
        return [' '.join(command) for (_, command), _
                in self.commands.call_args_list]

    def setUp(self) -> None:
        super().setUp()
        self.file = self.directory / 'requirements.txt'
        self.file.write_text('# None\nnova\n', encoding='utf-8')

    def test_changed_file_is_installed_again(self) -> None:
        _, _, pip, uv = self.get()
        self.assertIn('-m pip install ', pip)
        self.assertTrue(pip.endswith(' uv'))
        self.assertIn('/uv/bin/uv pip install ', uv)
        self.assertTrue(uv.endswith(f' --requirement={self.file}'))
        self.assertEqual([], self.get())
        self.file.write_text('cinder\n', encoding='utf-8')
        self.assertEqual(2, len(self.get()))

    def test_pip_installs_where_uv_does_not(self) -> None:
        """It may not be on the index, or not know it."""
        for refused in ('pip install .* uv$', '/uv pip install'):
            self.commands.side_effect = functools.partial(
                self._refuse, refused)
            self.file.write_text(refused, encoding='utf-8')
            self.assertIn('/name/bin/python -m pip install',
                          self.get()[-1])

    def _refuse(self, refused: str, environment: Any, command: list[str],
                **kwargs: object) -> None:
        self._make(environment)
        if re.search(refused, ' '.join(command)):
            raise self.environments.EnvironmentFailure

    def test_uv_asks_the_index_of_pip(self) -> None:
        self.useFixture(fixtures.EnvironmentVariable(
            'PIP_INDEX_URL', 'http://127.0.0.1:9/simple'))
        self.get()
        self.assertEqual(
            'http://127.0.0.1:9/simple',
            self.commands.call_args.kwargs['variables']['UV_DEFAULT_INDEX'])


class LatestTest(EnvironmentCase):

    def setUp(self) -> None:
        super().setUp()
        self.stamp = (self.directory / self.environments.LATEST
                      / self.environments.STAMP)

    def get(self, *packages: str) -> int:
        """Ask for the environment; return how many commands were run."""
        self.commands.reset_mock()
        path = self.environments.latest(packages, mock.Mock())
        self.assertEqual(self.stamp.parent / 'bin' / 'python', path)
        return self.commands.call_count

    def test_old_environment_is_built_again(self) -> None:
        self.assertEqual(2, self.get('nova'))
        (_, command), options = self.commands.call_args
        self.assertEqual('nova', command[-1])
        self.assertNotIn('--no-deps', command)
        self.assertEqual({'expected': 1}, options)
        self.assertEqual(0, self.get('nova'))
        self.assertEqual(2, self.get('nova', 'another'))
        built = self.stamp.stat().st_mtime
        os.utime(self.stamp, (built, built - self.environments.LATEST_SECONDS))
        self.assertEqual(2, self.get('nova', 'another'))
