# SPDX-License-Identifier: Apache-2.0
"""What a healthy cold migration costs, and taking it back.

Nova alone and with the plugin take turns, with the same server.  A request is
over when Nova's services have all done their part.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks import cloud as clouds, report
from nova_bdm_cleanup.tests.cloud import fixture, identity
from nova_bdm_cleanup.tests.cloud.server import Server

QUESTION = 'what does a healthy cold migration cost?'

STOCK, PLUGIN = 'stock', 'plugin'
MIGRATION, BACK = 'cold migration', 'taking it back'
HOSTS = ('compute1', 'compute2')
_ACTIONS: dict[str, dict[str, Any]] = {
    MIGRATION: {'migrate': {'host': HOSTS[1]}},
    BACK: {'revertResize': None}}
CLOCKS = {'From the request to the end': time.perf_counter,
          'The processor, for Nova': time.process_time}


class Case(report.Turns):
    """One server.

    :param cloud: the cloud
    :param size: how many volumes it has
    """

    def __init__(self, cloud: fixture.Cloud, size: int) -> None:
        super().__init__()
        self._cloud = cloud
        self._server: Server = cloud.server(
            *[fixture.Disk()] * size, host=HOSTS[0])

    def measure(self, number: int) -> None:
        # Elapsed, and of the processor: by Nova's services, without Cinder.
        for name in (STOCK, PLUGIN)[::-1 if number % 2 else 1]:
            if name == STOCK:
                self._cloud.switch_plugin_off()
                self._restart()
            for what, action in _ACTIONS.items():
                self._cloud.start_timeline()
                begun = [clock() for clock in CLOCKS.values()]
                self._cloud.act(self._server, action, by=self._cloud.admin)
                for (title, clock), before in zip(CLOCKS.items(), begun):
                    self._seconds[name, what, title].append(clock() - before)
                if name == PLUGIN:
                    self.requests[what].add(sum(
                        request.caller == identity.NOVA
                        for request in self._cloud.proxy.requests))
            if name == STOCK:
                self._cloud.switch_plugin_on()
                self._restart()

    def _restart(self) -> None:
        """Restart the hosts: Nova 34 caches the methods for RPC messages."""
        for host in HOSTS:
            self._cloud.restart_compute(host)

    def close(self) -> None:
        view = self._cloud.look(self._server)
        assert (view.status, view.is_running) == ('ACTIVE', True), view.fault
        assert not view.removed_block_devices

    def row(self, what: str, clock: str) -> list[report.Cell]:
        stock, plugin = (self.sample((name, what, clock))
                         for name in (STOCK, PLUGIN))
        return [what, stock, plugin, plugin.minus(stock),
                plugin.against(stock)]


def main() -> None:
    parser = report.arguments(QUESTION)
    parser.add_argument('--volumes', type=int, nargs='+', default=[1, 4],
                        metavar='N', help='how many volumes the servers have')
    parser.add_argument('--rounds', type=int, default=15,
                        help='how often everything is measured')
    options = parser.parse_args()
    with clouds.running({'DEFAULT': {'shutdown_timeout': 0}}, HOSTS,
                        triggers='all') as cloud:
        result = report.Report('move', QUESTION, options.json,
                               cinder=cloud.cinder.version)
        for size in options.volumes:
            case = Case(cloud, size)
            case.rounds(options.rounds)
            case.close()
            for title in CLOCKS:
                result.table(
                    f'{title}, ms; {size} volumes',
                    ['what', STOCK, PLUGIN, 'added', 'ratio'],
                    [case.row(what, title) for what in _ACTIONS])
            result.table(f"The plugin's requests; {size} volumes",
                         ['what', 'requests'],
                         [[what, case.count(what)] for what in _ACTIONS])
        result.end()


if __name__ == '__main__':
    report.run(main)
