# SPDX-License-Identifier: Apache-2.0
"""The plugin under test.

It is installed as Debian's package of it, and switched on only in nova.conf.
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
GROUP = 'bdm_cleanup'

#: The package of Debian, with both commands.
PACKAGE = 'python3-nova-bdm-cleanup'

_APT = ['apt-get', '-q', '-y', '--no-install-recommends',
       '-o', 'Dpkg::Use-Pty=0', '-o', 'DPkg::Lock::Timeout=300']


def install(lab: lab_mod.Lab) -> None:
    """Build the package and install it beside Debian's nova-compute."""
    install_package(build(lab))


def install_package(package: pathlib.Path) -> None:
    """Install a package of the plugin, whichever version is installed."""
    lab_mod.run(*_APT, '--reinstall', '--allow-downgrades', 'install',
                str(package),
                env={'DEBIAN_FRONTEND': 'noninteractive',
                     **lab_mod.package_index_env()})
    # What pip once installed comes first, and would be tested instead.
    found = lab_mod.run(lab_mod.PYTHON, '-c', 'import nova_bdm_cleanup\n'
                        'print(nova_bdm_cleanup.__file__)').stdout
    if not found.startswith('/usr/lib/python3/dist-packages/'):
        raise RuntimeError(f'another plugin hides the package: {found}')


def build(lab: lab_mod.Lab, version: str | None = None) -> pathlib.Path:
    """Build the Debian package of this project as it is now.

    :param version: that it gets, if not its own
    """
    packages = lab.directory / 'packages' / (version or 'own')
    shutil.rmtree(packages, ignore_errors=True)
    lab_mod.run(str(PROJECT / 'packaging' / 'build-deb'), str(packages),
                *([version] if version else []),
                env=dict.fromkeys(('DEB_BUILD_OPTIONS', 'DEB_BUILD_PROFILES'),
                                  'nocheck'))
    built, = packages.glob('*.deb')
    return built


def uninstall() -> None:
    """Purge the package, if it is installed."""
    lab_mod.run('dpkg', '--purge', PACKAGE)


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
