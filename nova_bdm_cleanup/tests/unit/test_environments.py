# SPDX-License-Identifier: Apache-2.0
"""The environment with the newest Nova, which grows old."""

from __future__ import annotations

import importlib
import os
import pathlib
import sys
from typing import Any
from unittest import mock

import fixtures

from nova_bdm_cleanup.tests.unit import base

TOOLS = pathlib.Path(__file__).resolve().parents[3] / 'tools'


class LatestTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        with mock.patch.object(sys, 'path', [str(TOOLS), *sys.path]):
            self.environments: Any = importlib.import_module('environments')
        directory = pathlib.Path(self.tempdir())
        self.useFixture(fixtures.EnvironmentVariable(
            'NOVA_BDM_CLEANUP_ENVIRONMENTS', str(directory)))
        self.stamp = (directory / self.environments.LATEST
                      / self.environments.STAMP)
        self.commands = self.useFixture(fixtures.MockPatchObject(
            self.environments._Environment, '_run', autospec=True,
            side_effect=self._make)).mock

    def _make(self, environment: Any, *args: object,
              **kwargs: object) -> None:
        """Leave what the commands leave that the build checks."""
        environment.python.parent.mkdir(parents=True, exist_ok=True)
        environment.python.touch()
        environment._log.touch()

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
