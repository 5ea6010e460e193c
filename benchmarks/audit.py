# SPDX-License-Identifier: Apache-2.0
"""The cost of ``openstack bdm audit``, beside a request for each volume.

The cloud is synthetic: both APIs over HTTP with their paging, so that it can
have any size.  A real one takes longer for each answer; the number of
requests, and the memory and processor time of the command, are the same.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import IO

from benchmarks import report
from nova_bdm_cleanup.tests.unit.client import commandcase
from nova_bdm_cleanup.tests.unit.loopback import uid

QUESTION = 'what does an audit of a whole cloud cost?'

AUDIT, UNLIMITED = 'audit', 'audit --rate 0'
#: One process with a request for each volume, and one command, which a shell
#: would run for each volume.
LOOP, SHOW = 'loop', 'volume show'

#: What was measured, by the number of lost attachments and by whom.
Runs = dict[tuple[int, str], dict[str, list[float]]]


class Cloud:
    """A cloud in a process.

    :param directory: has the entry points of the package
    """

    def __init__(self, child: subprocess.Popen[str],
                 directory: pathlib.Path) -> None:
        self._child = child
        self._url = url = _stream(child.stdout).readline().strip()
        self._environment = {
            **os.environ, 'HOME': str(directory), 'NO_PROXY': '127.0.0.1',
            'PYTHONPATH': os.pathsep.join((str(directory), str(report.ROOT))),
            'OS_AUTH_TYPE': 'password', 'OS_USERNAME': 'admin',
            'OS_PASSWORD': 'x', 'OS_AUTH_URL': url + '/identity/v3',
            'OS_PROJECT_NAME': 'own', 'OS_USER_DOMAIN_ID': 'default',
            'OS_PROJECT_DOMAIN_ID': 'default'}
        self.commands = {
            AUDIT: _openstack('bdm', 'audit', '--all-projects'),
            UNLIMITED: _openstack('bdm', 'audit', '--all-projects',
                                  '--rate', '0'),
            LOOP: _python('benchmarks.audit_roles', 'ask', url),
            SHOW: _openstack('volume', 'show', uid('volume-0-1'),
                             '-c', 'attachments')}

    def measure(self, by: str, lost: int) -> dict[str, float]:
        """Return what a command costs, or the loop."""
        begun = time.perf_counter()
        child = subprocess.Popen(
            self.commands[by], env=self._environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)
        found = json.loads(_stream(child.stdout).read())
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        assert len(found) == (1 if by == SHOW else lost), found
        return {'seconds': seconds, 'cpu': usage.ru_utime + usage.ru_stime,
                'peak': usage.ru_maxrss / 1024, 'requests': self._requests()}

    def _requests(self) -> int:
        """Return the number of requests since the last time."""
        _stream(self._child.stdin).write('\n')
        _stream(self._child.stdin).flush()
        return int(_stream(self._child.stdout).readline())


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _python(*arguments: object) -> list[str]:
    return [sys.executable, '-W', 'ignore', '-m', *map(str, arguments)]


def _openstack(*arguments: str) -> list[str]:
    return _python('openstackclient.shell', *arguments, '-f', 'json')


def _measure_all(options: argparse.Namespace) -> Runs:
    runs: Runs = collections.defaultdict(
        lambda: collections.defaultdict(list))
    with tempfile.TemporaryDirectory(prefix='bdm-cleanup-') as name:
        directory = pathlib.Path(name)
        commandcase.install(directory)
        for lost in options.lost:
            report.progress(f'making a cloud with {lost} lost attachments')
            with subprocess.Popen(
                    _python('benchmarks.audit_roles', 'serve',
                            options.servers, options.volumes, lost),
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    text=True) as child:
                # Leaving the block closes its standard input, which ends it.
                cloud = Cloud(child, directory)
                for number in range(options.rounds):
                    for by in cloud.commands:
                        report.progress(f'{lost} lost, {by}, round '
                                        f'{number + 1} of {options.rounds}')
                        for key, value in cloud.measure(by, lost).items():
                            runs[lost, by][key].append(value)
    report.progress('')
    return runs


def main() -> None:
    parser = report.arguments(QUESTION)
    parser.add_argument('--servers', type=int, default=20000, metavar='N',
                        help='how many servers the cloud has')
    parser.add_argument('--volumes', type=int, default=2, metavar='N',
                        help='how many volumes a server has')
    parser.add_argument('--lost', type=int, nargs='+', default=[0, 100],
                        metavar='N', help='how many attachments are lost')
    parser.add_argument('--rounds', type=int, default=3,
                        help='how often everything is measured')
    options = parser.parse_args()
    result = report.Report('audit', QUESTION, options.json)
    runs = _measure_all(options)
    samples = {which: {
        key: report.Sample(tuple(values), 'MiB' if key == 'peak' else 's')
        for key, values in found.items()} for which, found in runs.items()}
    result.table(
        f'{options.servers:,} servers with {options.volumes} volumes each, '
        'seconds and MiB',
        ['lost', 'by', 'requests', 'time', 'own CPU', 'peak memory'],
        [[lost, by, int(found['requests'].median), found['seconds'],
          found['cpu'], found['peak']]
         for (lost, by), found in samples.items()])
    result.table(
        'The loop against the audit',
        ['lost', 'by', 'time', 'own CPU'],
        [[lost, by, *(samples[lost, LOOP][key].against(found[key])
                      for key in ('seconds', 'cpu'))]
         for (lost, by), found in samples.items()
         if by in (AUDIT, UNLIMITED)])
    result.end()


if __name__ == '__main__':
    report.run(main)
