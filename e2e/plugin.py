# SPDX-License-Identifier: Apache-2.0
"""The plugin under test.

It is installed as documented, and switched on only in nova.conf.
"""

from __future__ import annotations

from collections.abc import Mapping
import pathlib
import shutil

from e2e import (
    config,
    lab as lab_mod,
    logs as logs_mod,
    processes,
    stack as stack_mod,
)

PROJECT = pathlib.Path(__file__).resolve().parents[1]
NAME = 'nova-bdm-cleanup'
GROUP = 'bdm_cleanup'

PIP = [lab_mod.PYTHON, '-m', 'pip', '--disable-pip-version-check',
       '--no-input', '-q']


def install(lab: lab_mod.Lab) -> None:
    """Install this project for Debian's Python.

    No package of Debian is replaced: Nova already brings the requirements of
    the wheel.
    """
    built = wheel(lab)
    uninstall()
    lab_mod.run(*PIP, 'install', '--break-system-packages', '--no-deps',
                '--root-user-action=ignore', str(built))


def wheel(lab: lab_mod.Lab) -> pathlib.Path:
    """Build a wheel of this project as it is now."""
    source = lab.directory / 'build'
    shutil.rmtree(source, ignore_errors=True)
    # Leftovers of a build; environments may take several GiB.
    shutil.copytree(PROJECT, source, ignore=shutil.ignore_patterns(
        '.*', 'build', 'dist', '__pycache__', '*.egg-info'))
    wheels = source / 'dist'
    lab_mod.run(*PIP, 'wheel', '--no-deps', '--no-build-isolation',
                '-w', str(wheels), str(source))
    built, = wheels.glob('*.whl')
    return built


def uninstall() -> None:
    # pip may not be installed yet.
    lab_mod.run(*PIP, 'uninstall', '--break-system-packages', '-y',
                '--root-user-action=ignore', NAME, check=False)


class Compute:
    """nova-compute with or without the plugin."""

    #: The options of the plugin.  While nova-compute starts, a cleanup has a
    #: quarter of the timeout, and a busy machine is slow.  All services have
    #: one database server, so no read lags.
    options: Mapping[str, str] = {
        'mode': 'enforce', 'timeout': '240', 'settle_time': '0'}

    def __init__(self, stack: stack_mod.Stack) -> None:
        self.stack = stack
        self.lab = stack.lab
        #: The setting in nova.conf, once it is changed from here.
        self.plugin: bool | None = None
        self.extra: Mapping[str, Mapping[str, str]] = {}

    def restart(self, plugin: bool,
                extra: Mapping[str, Mapping[str, str]] = {},
                env: dict[str, str] | None = None) -> None:
        """Stop it, change nova.conf, start it and wait until it serves."""
        self.stop()
        self.configure(plugin, extra)
        self.start(env)

    def stop(self) -> None:
        self.stack.procs.stop('nova-compute')

    def configure(self, plugin: bool,
                  extra: Mapping[str, Mapping[str, str]] = {}) -> None:
        self.plugin, self.extra = plugin, extra
        if plugin:
            extra = {**extra, GROUP: {**self.options, **extra.get(GROUP, {})}}
        config.write_nova(self.lab, extra)

    def start(self, env: dict[str, str] | None = None) -> None:
        logs = logs_mod.Logs(self.lab)
        self.stack.start('nova-compute', env)
        processes.wait_until(
            lambda: logs.lines('nova-compute', 'Join ServiceGroup'),
            'nova-compute', 60)

    def is_running(self) -> bool:
        return self.stack.procs.is_running('nova-compute')
