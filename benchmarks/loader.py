# SPDX-License-Identifier: Apache-2.0
"""What an installed package adds to the start of nova-compute.

The package is installed into a directory of its own, so that the same Nova
can be started without it, with it, and with it switched on, in turns.  Times
are CPU times: how busy the machine is otherwise does not matter to them.
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
from typing import Any

from benchmarks import report

QUESTION = 'what does the package add to the start of nova-compute?'

WITHOUT, OFF, ON = 'not installed', 'off', 'on'
_VARIANTS = (WITHOUT, OFF, ON)
#: What the installation is made from.
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
#: Besides, where it is on.
_OPTIONS = """\
[bdm_cleanup]
mode = enforce
required = true
"""


class Starts:
    """A place to start nova-compute from, in each of the variants.

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
        """Start one and return what it printed."""
        path = self._directory / (
            'empty' if variant == WITHOUT else 'installed')
        child = subprocess.run(
            # -P: what lies beside the program must not be imported.
            [sys.executable, '-P', '-W', 'ignore',
             str(report.ROOT / 'benchmarks' / 'start.py'),
             '--config-file', str(self._configuration(variant == ON))],
            cwd=self._state, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True, check=True,
            env={**os.environ, 'PYTHONPATH': str(path)})
        result: dict[str, Any] = json.loads(child.stdout)
        # A plugin that had not loaded would cost nothing.
        assert result['is_active'] == (variant == ON)
        assert bool(result['ours']) == (variant != WITHOUT)
        return result


def main() -> None:
    parser = report.arguments(QUESTION)
    parser.add_argument('--rounds', type=int, default=21,
                        help='how often nova-compute is started each way')
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    result = report.Report('loader', QUESTION, options.json)
    with tempfile.TemporaryDirectory(prefix='bdm-cleanup-') as directory:
        report.progress('installing the package')
        starts = Starts(pathlib.Path(directory))
        for variant in _VARIANTS:
            # Writes the byte code, and the cache of the entry points.
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
    def sample(variant: str, key: str, unit: str) -> report.Sample:
        factor = 1000 if unit == 'ms' else 1
        return report.Sample(
            tuple(each[key] * factor for each in found[variant]), unit)

    rows: list[list[report.Cell]] = []
    for variant in _VARIANTS:
        seconds = sample(variant, 'seconds', 'ms')
        memory = sample(variant, 'mebibytes', 'MiB')
        first = found[variant][0]
        rows.append([
            variant, seconds,
            seconds.minus(sample(WITHOUT, 'seconds', 'ms')),
            sample(variant, 'alone', 'ms'), first['modules'],
            len(first['ours']), memory,
            memory.minus(sample(WITHOUT, 'mebibytes', 'MiB'))])
    result.table(
        'The start of nova-compute up to its manager and driver, ms of CPU '
        'time',
        ['package', 'start', 'added', 'measured alone', 'modules', 'ours',
         'memory, MiB', 'added'], rows)
    for variant in (OFF, ON):
        ours = found[variant][0]['ours']
        print(f'\n{variant}: {", ".join(ours)}')
    result.goal('modules of ours when it is off: the package and its loader',
                ', '.join(found[OFF][0]['ours']),
                found[OFF][0]['ours'] == [
                    'nova_bdm_cleanup', 'nova_bdm_cleanup.node',
                    'nova_bdm_cleanup.node.loader'])


if __name__ == '__main__':
    report.run(main)
