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
"""What the periodic audit of a host costs, round after round.

The alternative is what a loop over the servers does: one look for each, as a
reboot makes it.  Both look at the same healthy servers, in turns.  Nova's API,
conductor and database are in this process, so the processor's time is that of
all of them; Cinder is in another one.
"""

from __future__ import annotations

# First: its import of Nova decides whether this process may use eventlet.
from benchmarks import sizes  # isort: skip

import argparse
import collections
from collections.abc import Callable
import gc
import itertools
import pathlib
import time

from nova import context as nova_context
from nova import objects
from oslo_config import cfg

from benchmarks import report
from nova_bdm_cleanup.api import Budget
from nova_bdm_cleanup.deadline import Deadline
from nova_bdm_cleanup.plugin import access
from nova_bdm_cleanup.plugin import host
from nova_bdm_cleanup.plugin.presence import Presence
from nova_bdm_cleanup.plugin.watching import Watcher
from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.cloud.server import Disk

QUESTION = 'what does the periodic audit of a host cost?'

ROUND, LOOP = 'round', 'a look for each server'
_INTERVAL = 3600


class Node:
    """One host with so many servers.

    :param cloud: the cloud
    :param servers: how many
    :param volumes: how many each of them has
    """

    def __init__(self, cloud: fixture.Cloud, servers: int,
                 volumes: int) -> None:
        self._cloud = cloud
        first = cloud.server(*[Disk(at_boot=True)] * volumes)
        cloud.copies(first, servers - 1)
        self.servers = servers
        self._manager = cloud.nova.computes['compute1'].manager
        moments = itertools.count(time.time(), _INTERVAL)
        self._watcher = Watcher(self._manager, Presence(cfg.CONF, []),
                                False, lambda: next(moments))
        self.elapsed: dict[str, list[float]] = collections.defaultdict(list)
        self.processor: dict[str, list[float]] = collections.defaultdict(list)
        self.requests: dict[str, set[int]] = collections.defaultdict(set)

    def measure(self, number: int) -> None:
        """Each of both once, in turns."""
        ways: list[tuple[str, Callable[[], None]]] = [
            (ROUND, self.round), (LOOP, self._loop)]
        for name, way in ways[::1 if number % 2 else -1]:
            self._cloud.forget()
            begun, worked = time.perf_counter(), time.process_time()
            way()
            self.elapsed[name].append(time.perf_counter() - begun)
            self.processor[name].append(time.process_time() - worked)
            self.requests[name].add(len(self._cloud.proxy.requests))

    def forget(self) -> None:
        """Measured for nothing so far."""
        self.elapsed.clear()
        self.processor.clear()

    def round(self) -> None:
        self._watcher.round()
        assert self._watcher._failed == 0

    def _loop(self) -> None:
        context = nova_context.get_admin_context()
        for instance in objects.InstanceList.get_by_host(
                context, self._manager.host, expected_attrs=[]):
            rows = objects.BlockDeviceMappingList.get_by_instance_uuid(
                context, instance.uuid)
            access.cinder_for(
                context, instance, Deadline(60), Budget()).look(
                    instance.uuid, [host.mapping_of(row) for row in rows],
                    instance.project_id)


def resident() -> float:
    """The memory of this process, in MiB."""
    gc.collect()
    pages = int(pathlib.Path('/proc/self/statm').read_text().split()[1])
    return pages * 4096 / 2 ** 20


def show(result: report.Report, cases: list[Node]) -> None:
    rows: list[list[report.Cell]] = []
    for case in cases:
        for name in (ROUND, LOOP):
            rows.append([
                case.servers, name, *[str(n) for n in case.requests[name]],
                report.milliseconds(case.elapsed[name]),
                report.milliseconds(case.processor[name])])
    result.table('One audit of a host, ms', [
        'servers', '', 'requests', 'elapsed', 'processor'], rows)
    result.table('How many times longer the loop takes', [
        'servers', 'elapsed', 'processor'], [[
            case.servers, *[report.milliseconds(values[LOOP]).against(
                report.milliseconds(values[ROUND]))
                for values in (case.elapsed, case.processor)]]
            for case in cases])


def measure_memory(result: report.Report, case: Node, rounds: int) -> None:
    """Many rounds, one after the other, with nothing else."""
    sizes = []
    for number in range(rounds + 1):
        report.progress(f'memory, round {number} of {rounds}')
        case.round()
        sizes.append(resident())
    report.progress('')
    result.table('Memory of the process after a round, MiB', [
        'servers', 'first', f'after {rounds // 2}', f'after {rounds}'],
        [[case.servers, sizes[0], sizes[rounds // 2], sizes[-1]]])
    grown = sizes[-1] - sizes[rounds // 2]
    result.goal(f'growth in the second half of {rounds} rounds, under 1 MiB',
                f'{grown:.2f} MiB', grown < 1)


def main() -> None:
    parser = sizes.arguments(QUESTION, rounds=7)
    parser.add_argument('--memory', type=int, default=50,
                        help='how many rounds memory is watched for')
    _run(parser.parse_args())


def _run(options: argparse.Namespace) -> None:
    cases = []
    for servers, result, case in sizes.measured(
            'node', QUESTION, options, Node, {}, audit_interval=_INTERVAL):
        cases.append(case)
        if servers == max(options.servers):
            measure_memory(result, case, options.memory)
    show(result, cases)
    for case in cases:
        sizes.expect_requests(result, case.servers, options.volumes,
                              case.requests[ROUND])
    result.end()


if __name__ == '__main__':
    report.run(main)
