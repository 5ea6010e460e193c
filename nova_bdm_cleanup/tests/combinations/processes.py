# SPDX-License-Identifier: Apache-2.0
"""Compute hosts in processes of their own, see :mod:`..cloud.compute_host`."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any

import fixtures

from nova_bdm_cleanup.tests.cloud import cinder
from nova_bdm_cleanup.tests.functional import base

_MODULE = 'nova_bdm_cleanup.tests.cloud.compute_host'
_COMMAND = ['-W', 'ignore', '-m', 'nova_bdm_cleanup.admin.main']


def interpreter(name: str) -> str | None:
    """Return the Python of another environment, if that was built."""
    environments = cinder.environments()
    return (str(environments.interpreter(name))
            if environments.is_built(name) else None)


class Tree(fixtures.Fixture):
    """A copy of the package, installed in a directory.

    :param version: its version, if another than that of the checkout
    """

    def __init__(self, version: str | None = None) -> None:
        super().__init__()
        self._version = version

    def _setUp(self) -> None:
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.package = self.path / 'nova_bdm_cleanup'
        shutil.copytree(base.CHECKOUT / 'nova_bdm_cleanup', self.package,
                        ignore=shutil.ignore_patterns('__pycache__'))
        (self.path / 'tools').symlink_to(base.CHECKOUT / 'tools')
        base.write_metadata(self.path)
        if self._version:
            with (self.package / '__init__.py').open('a') as file:
                file.write(f'VERSION = {self._version!r}\n')

    def replace(self) -> None:
        """Replace what is installed: no module can be imported any more."""
        for path in self._shipped():
            if path.suffix == '.py':
                path.write_text('raise ImportError("replaced")\n')

    def remove(self) -> None:
        """Remove all of the package but the tests, which run from here."""
        for path in self._shipped():
            path.unlink()
        shutil.rmtree(self.path / base.METADATA)

    def _shipped(self) -> list[pathlib.Path]:
        return [path for path in self.package.rglob('*') if path.is_file()
                and 'tests' not in path.relative_to(self.package).parts]


class HostProcess(fixtures.Fixture):
    """A nova-compute with the plugin, and all that it needs.

    :param options: ``[bdm_cleanup]`` in its nova.conf
    :param tree: where the package is; None: the checkout
    :param python: of an environment with Nova
    """

    def __init__(self, options: dict[str, Any], tree: Tree | None = None,
                 python: str = sys.executable) -> None:
        super().__init__()
        self._options = options
        self._tree = tree
        self._python = python

    def _setUp(self) -> None:
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        if self._tree is None:
            self._environment = base.install_into(directory / 'site')
        else:
            self._environment = {
                **os.environ, 'PYTHONPATH': str(self._tree.path)}
        self._environment.update(
            # stevedore caches the entry points there.
            XDG_CACHE_HOME=str(directory / 'cache'),
            PYTHONDONTWRITEBYTECODE='1')
        self._errors = tempfile.TemporaryFile('w+')
        self.addCleanup(self._errors.close)
        self._child = subprocess.Popen(
            [self._python, '-W', 'ignore', '-m', _MODULE],
            cwd=directory, env=self._environment, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._errors, text=True)
        self.addCleanup(self.end)
        self.about = self._ask({'bdm_cleanup': self._options})

    def end(self) -> None:
        """End the process."""
        self._child.communicate()

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the :class:`ComputeHost` in the process."""
        return self._ask([method, *arguments])

    def _ask(self, request: Any) -> Any:
        assert self._child.stdin and self._child.stdout
        print(json.dumps(request), file=self._child.stdin, flush=True)
        line = self._child.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise AssertionError(self._errors.read()[-5000:])
        return json.loads(line)

    def command(self, name: str, *arguments: str,
                tree: Tree | None = None) -> tuple[int, str]:
        """Run ``nova-bdm-cleanup`` on this host, with its Python.

        :param tree: another package than that of the process
        :returns: the exit code and the output
        """
        environment = dict(self._environment)
        if tree is not None:
            environment['PYTHONPATH'] = str(tree.path)
        done = subprocess.run(
            [self._python, *_COMMAND, name, *arguments, '--config-file',
             self.about['nova.conf']], env=environment,
            # With -m, Python first looks for modules in this directory.
            cwd=pathlib.Path(self.about['nova.conf']).parent,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=120)
        # A table breaks the lines.
        return done.returncode, ' '.join(
            done.stdout.replace('|', ' ').split())
