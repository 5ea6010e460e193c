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
"""Where the time of one healthy look goes.

The plugin asks Cinder from a thread of its own, so that it can stop waiting;
a profiler sees one thread.  Here the look runs in nova-compute's, which is
the one difference to what an operator has.
"""

from __future__ import annotations

import cProfile
import pstats
from typing import Any, Callable, TypeVar
from unittest import mock

from benchmarks import cloud as clouds
from benchmarks import report
from nova_bdm_cleanup import deadline

QUESTION = 'where does the time of one healthy look go?'

T = TypeVar('T')


def _here(self: deadline.Deadline, what: str, func: Callable[[], T]) -> T:
    return func()


def main() -> None:
    parser = report.arguments(QUESTION)
    parser.add_argument('--volumes', type=int, default=26, metavar='N',
                        help='how many the server has')
    parser.add_argument('--rounds', type=int, default=20,
                        help='how many reboots to look at')
    parser.add_argument('--lines', type=int, default=40,
                        help='how many functions to show')
    options = parser.parse_args()
    profiler = cProfile.Profile()
    with clouds.running() as cloud:
        plugin = clouds.current()

        def profiled(*arguments: Any) -> None:
            profiler.runcall(plugin, *arguments)

        server = clouds.server(cloud, options.volumes)
        result = report.Report('hotspots', QUESTION, options.json,
                               cinder=cloud.cinder.version)
        # Imports and connections are paid for once.
        cloud.reboot(server)
        with mock.patch.object(deadline.Deadline, 'call', _here), \
                clouds.cleanup(cloud, profiled) as taken:
            for _ in range(options.rounds):
                cloud.reboot(server)
        statistics = pstats.Stats(profiler)
        statistics.sort_stats('cumulative').print_stats(options.lines)
        result.table(
            'One call, profiled, ms', ['volumes', 'call'],
            [[options.volumes,
              report.milliseconds(each.time for each in taken)]])
        result.end()


if __name__ == '__main__':
    report.run(main)
