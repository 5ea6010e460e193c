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
"""A host with so many servers, for one number of them after the other."""

from __future__ import annotations

# First: its import of Nova decides whether this process may use eventlet.
from benchmarks import cloud as clouds  # isort: skip

import argparse
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from benchmarks import report
from nova_bdm_cleanup.tests.cloud import fixture

_QUOTA = {'quota': {'instances': -1, 'cores': -1, 'ram': -1}}


class Case(Protocol):
    """A host, and what was measured on it so far."""

    def measure(self, number: int) -> None:
        """Each way once, in turns."""

    def forget(self) -> None:
        """Measured for nothing so far."""


AnyCase = TypeVar('AnyCase', bound=Case)


def arguments(question: str, rounds: int) -> argparse.ArgumentParser:
    """The command line of such a benchmark."""
    parser = report.arguments(question)
    parser.add_argument('--servers', type=int, nargs='+', default=[10, 100],
                        metavar='N', help='how many servers the host has')
    parser.add_argument('--volumes', type=int, default=3,
                        help='how many volumes each of them has')
    parser.add_argument('--rounds', type=int, default=rounds,
                        help='how often everything is measured')
    return parser


def measured(name: str, question: str, options: argparse.Namespace,
             make: Callable[[fixture.Cloud, int, int], AnyCase],
             nova: dict[str, dict[str, Any]], **plugin: Any
             ) -> Iterator[tuple[int, report.Report, AnyCase]]:
    """Measure all numbers, each on a cloud of its own, which is there as long
    as its case is.

    :param make: makes a case of a cloud, with servers and their volumes
    :param nova: options of Nova
    :param plugin: options of the plugin
    """
    result = None
    for servers in options.servers:
        with clouds.running({**_QUOTA, **nova}, **plugin) as cloud:
            result = result or report.Report(
                name, question, options.json, cinder=cloud.cinder.version)
            report.progress(f'making {servers} servers with '
                            f'{options.volumes} volumes')
            case = make(cloud, servers, options.volumes)
            for number in range(options.rounds + 1):
                report.progress(f'{servers} servers, round {number} of '
                                f'{options.rounds}')
                case.measure(number)
                if not number:
                    # What is done for the first time takes longer.
                    case.forget()
            report.progress('')
            yield servers, result, case


def expect_requests(result: report.Report, servers: int, volumes: int,
                    seen: set[int]) -> None:
    """A request for 60 volumes each, and two besides."""
    most = 2 + -(-servers * volumes // 60)
    result.goal(f'requests for {servers} servers, at most {most}',
                str(max(seen)), max(seen) <= most)
