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
"""What an audit of a whole cloud costs, against asking for each volume.

The cloud is synthetic: both APIs over HTTP with their paging, so that its
size is free.  A real one takes longer for each answer; the number of requests,
the memory and the processor time of the audit itself are what they are.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
import contextlib
import json
import math
import subprocess
import sys
from typing import Any

from benchmarks import report

QUESTION = 'what does an audit of a whole cloud cost?'

AUDIT, NAIVE = 'audit', 'naive'
_PAGE = 1000
#: Requests for one suspect: both sides, and Nova's again.
_SECOND_LOOK = 12

Runs = dict[tuple[int, str], list[dict[str, Any]]]


@contextlib.contextmanager
def cloud(servers: int, volumes_each: int, broken: int) -> Iterator[str]:
    """Serve a cloud; gives its URL."""
    with subprocess.Popen(
            _role('serve', servers, volumes_each, broken),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        # Leaving the block closes its standard input, and that ends it.
        yield child.stdout.readline().strip()


def run(role: str, url: str) -> dict[str, Any]:
    """Run an audit, or the loop, in a process of its own."""
    found: dict[str, Any] = json.loads(subprocess.run(
        _role(role, url), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        text=True, check=True).stdout)
    return found


def _role(*arguments: object) -> list[str]:
    return [sys.executable, '-W', 'ignore', '-m', 'benchmarks.fleet_roles',
            *map(str, arguments)]


def main() -> None:
    parser = report.arguments(QUESTION)
    parser.add_argument('--attachments', type=int, nargs='+', metavar='N',
                        default=[1000, 10000, 100000],
                        help='how many the clouds have')
    parser.add_argument('--volumes', type=int, default=5, metavar='N',
                        help='how many volumes a server has')
    parser.add_argument('--broken', type=int, default=10, metavar='N',
                        help='how many attachments are lost')
    parser.add_argument('--naive-up-to', type=int, default=10000,
                        metavar='N', help='no loop in clouds that are larger: '
                        'it takes as long as it has volumes')
    parser.add_argument('--rounds', type=int, default=5,
                        help='how often everything is measured')
    options = parser.parse_args()
    result = report.Report('fleet', QUESTION, options.json)
    runs: Runs = collections.defaultdict(list)
    for size in options.attachments:
        report.progress(f'making a cloud with {size} attachments')
        with cloud(size // options.volumes, options.volumes,
                   options.broken) as url:
            for number in range(options.rounds):
                for role in (AUDIT, NAIVE):
                    if role == NAIVE and size > options.naive_up_to:
                        continue
                    report.progress(f'{size} attachments, {role}, round '
                                    f'{number + 1} of {options.rounds}')
                    found = run(role, url)
                    assert found['found'] == options.broken, found
                    runs[size, role].append(found)
    report.progress('')
    _show(result, runs, options.volumes)
    _judge(result, runs, options.attachments, options.volumes,
           options.broken)
    result.end()


def _sample(runs: Runs, size: int, role: str, key: str,
            unit: str = 's') -> report.Sample:
    return report.Sample(tuple(each[key] for each in runs[size, role]), unit)


def _show(result: report.Report, runs: Runs, volumes_each: int) -> None:
    rows: list[list[report.Cell]] = []
    for size, role in runs:
        seconds = _sample(runs, size, role, 'seconds')
        rows.append([
            f'{size:,}', role, size // volumes_each, seconds,
            _sample(runs, size, role, 'cpu'),
            round(size / seconds.median),
            round(size / volumes_each / seconds.median),
            runs[size, role][0]['requests'],
            _sample(runs, size, role, 'peak', 'MiB'),
            _sample(runs, size, role, 'grown', 'MiB')])
    result.table(
        'A whole cloud, seconds and MiB',
        ['attachments', 'by', 'servers', 'time', 'of the processor',
         'attachments/s', 'servers/s', 'requests', 'peak memory',
         'since its start'], rows)
    result.table(
        'The naive loop against the audit',
        ['attachments', 'requests', 'time', 'time of the processor'],
        [[f'{size:,}',
          f'{runs[size, NAIVE][0]["requests"] / runs[size, AUDIT][0]["requests"]:.1f}',  # noqa: E501
          _sample(runs, size, NAIVE, 'seconds').against(
              _sample(runs, size, AUDIT, 'seconds')),
          _sample(runs, size, NAIVE, 'cpu').against(
              _sample(runs, size, AUDIT, 'cpu'))]
         for size, role in runs if role == NAIVE])


def _judge(result: report.Report, runs: Runs, sizes: Sequence[int],
           volumes_each: int, broken: int) -> None:
    smallest, largest = min(sizes), max(sizes)
    peaks = {size: _sample(runs, size, AUDIT, 'peak', 'MiB').median
             for size in (smallest, largest)}
    result.goal(
        f'memory is flat: peak with {largest:,} at most 1.25 times that with '
        f'{smallest:,}', f'{peaks[largest]:.0f} and {peaks[smallest]:.0f} MiB',
        peaks[largest] <= 1.25 * peaks[smallest])
    for size in sizes:
        # Servers, attachments, and volumes in each of four states: a page
        # for each thousand, and one that says that there is no more.
        pages = (math.ceil(size / volumes_each / _PAGE)
                 + 2 * math.ceil(size / _PAGE) + 6)
        made = runs[size, AUDIT][0]['requests']
        allowed = pages + broken * _SECOND_LOOK + 5
        result.goal(
            f'requests are linear in pages: with {size:,} attachments at '
            f'most {allowed} for {pages} pages and {broken} suspects',
            str(made), made <= allowed)


if __name__ == '__main__':
    report.run(main)
