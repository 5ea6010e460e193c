# SPDX-License-Identifier: Apache-2.0
"""The cost of the package at the start of nova-compute, beside stock.

The package is installed into a directory of its own, so that the same Nova
can be started without it, with it, and with it switched on, in turns.  CPU
times hardly depend on the load of the machine, wall times do.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks import report

QUESTION = ('what does the package add to the start of nova-compute, in ms '
            'and MiB?')

STOCK, OFF, ON = 'not installed', 'installed, off', 'on'
_VARIANTS = (STOCK, OFF, ON)
#: The files that the package is installed from.
_SOURCES = ('LICENSE', 'README.rst', 'pyproject.toml', 'requirements.txt',
            'setup.cfg', 'test-requirements.txt', 'nova_bdm_cleanup')
_CONFIGURATION = """\
[DEFAULT]
compute_driver = libvirt.LibvirtDriver
state_path = {state}
log_file = /dev/null
transport_url = fake:/
[cinder]
auth_type = none
"""
#: Added where the plugin is on.
_OPTIONS = """\
[bdm_cleanup]
mode = enforce
required = true
"""


class Starts:
    """Starts of nova-compute in each of the variants.

    :param directory: an empty directory
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._state = directory / 'state'
        for name in ('state', 'empty', 'installed'):
            (directory / name).mkdir()
        common = _CONFIGURATION.format(state=self._state)
        self._configuration(False).write_text(common)
        self._configuration(True).write_text(common + _OPTIONS)
        self._install()

    def _configuration(self, is_on: bool) -> pathlib.Path:
        return self._directory / f'nova-{is_on}.conf'

    def _install(self) -> None:
        """Install the package as pip does, without touching the checkout."""
        source = self._directory / 'source'
        source.mkdir()
        for name in _SOURCES:
            path = report.ROOT / name
            if path.is_dir():
                shutil.copytree(path, source / name)
            else:
                shutil.copy(path, source)
        subprocess.run(
            [sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps',
             '--no-build-isolation', '--disable-pip-version-check',
             '--root-user-action=ignore',
             f'--target={self._directory / "installed"}', str(source)],
            check=True)

    def start(self, variant: str) -> dict[str, Any]:
        """Start nova-compute once and return what it measured."""
        path = self._directory / (
            'empty' if variant == STOCK else 'installed')
        child = subprocess.run(
            # -P: modules beside the program must not be imported.
            [sys.executable, '-P', '-W', 'ignore',
             str(report.ROOT / 'benchmarks' / 'start.py'),
             '--config-file', str(self._configuration(variant == ON))],
            cwd=self._state, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True, check=True,
            env={**os.environ, 'PYTHONPATH': str(path),
                 'BDM_CLEANUP_BENCHMARK_BEGAN': str(time.monotonic())})
        result: dict[str, Any] = json.loads(child.stdout)
        # A plugin that is not loaded costs nothing.
        assert result['is_active'] == (variant == ON), result
        assert result['is_installed'] == (variant != STOCK), result
        return result


def main() -> None:
    parser = report.arguments(QUESTION)
    parser.add_argument('--rounds', type=int, default=21,
                        help='how often nova-compute is started in each '
                        'variant')
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    result = report.Report('loader', QUESTION, options.json)
    with tempfile.TemporaryDirectory(prefix='bdm-cleanup-') as directory:
        report.progress('installing the package')
        starts = Starts(pathlib.Path(directory))
        for variant in _VARIANTS:
            # Write the byte code, and the cache of the entry points.
            starts.start(variant)
        for number in range(options.rounds):
            report.progress(f'round {number + 1} of {options.rounds}')
            shift = number % len(_VARIANTS)
            for variant in _VARIANTS[shift:] + _VARIANTS[:shift]:
                found[variant].append(starts.start(variant))
    report.progress('')
    _show(result, found)
    result.end()


def _show(result: report.Report,
          found: dict[str, list[dict[str, Any]]]) -> None:
    def sample(variant: str, key: str, unit: str = 'ms') -> report.Sample:
        factor = 1000 if unit == 'ms' else 1
        return report.Sample(
            tuple(each[key] * factor for each in found[variant]), unit)

    def load(variant: str, key: str) -> report.Sample:
        return report.milliseconds(
            each['load'][key] for each in found[variant])

    rows: list[list[report.Cell]] = []
    for variant in _VARIANTS:
        row: list[report.Cell] = [variant]
        for key, unit in (('cpu', 'ms'), ('wall', 'ms'), ('mebibytes', 'MiB')):
            start = sample(variant, key, unit)
            row += [start, '-' if variant == STOCK
                    else start.minus(sample(STOCK, key, unit))]
        row += ['-', '-'] if variant == STOCK else [
            load(variant, 'cpu'), load(variant, 'wall')]
        rows.append(row)
    result.table(
        'The start of nova-compute until its manager and its virt driver are '
        'imported,\nwithout garbage collection; "plugin alone": loaded once '
        'more after that',
        ['package', 'CPU ms', 'added', 'wall ms', 'added', 'RSS MiB', 'added',
         'plugin alone: CPU ms', 'wall ms'], rows)


if __name__ == '__main__':
    report.run(main)
