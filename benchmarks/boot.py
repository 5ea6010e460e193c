# SPDX-License-Identifier: Apache-2.0
"""The cost of the boot of a host with many guests.

All guests of a host have ended, as after a power failure, and nova-compute
starts: with the plugin and without it, in turns, on the same servers.  All of
them are healthy.  The plugin's share is also measured within a boot, since it
is smaller than the difference of two boots.
"""

from __future__ import annotations

# First: its import of Nova decides whether this process may use eventlet.
from benchmarks import cloud as clouds  # isort: skip

from collections.abc import Iterator
import contextlib
import time
from typing import Any
from unittest import mock

from nova.compute import manager

from benchmarks import report
from nova_bdm_cleanup.node.hooks import operation
from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.cloud.server import Disk

QUESTION = 'what does the boot of a host with many guests cost?'

PLUGIN, STOCK, SHARE = 'plugin', 'stock', 'share'
_TRIGGERS = 'start,host_boot'
_NOVA: dict[str, dict[str, Any]] = {
    'quota': {'instances': -1, 'cores': -1, 'ram': -1},
    'DEFAULT': {'resume_guests_state_on_host_boot': True}}


class Hosts(report.Turns):
    """Boots of one host with many guests.

    :param cloud: the cloud
    :param servers: how many servers the host has
    :param volumes: how many volumes each of them has
    """

    def __init__(self, cloud: fixture.Cloud, servers: int,
                 volumes: int) -> None:
        super().__init__()
        self._cloud = cloud
        self._servers = [cloud.server(*[Disk(at_boot=True)] * volumes)
                         for _ in range(servers)]

    def measure(self, number: int) -> None:
        """Boot once with the plugin and once without."""
        for name in (PLUGIN, STOCK)[::1 if number % 2 else -1]:
            for domain in self._cloud.nova.domains('compute1'):
                if domain.isActive():
                    domain.destroy()
            if name == STOCK:
                self._cloud.switch_plugin_off()
            else:
                self._cloud.switch_plugin_on()
            self._cloud.start_timeline()
            with self._clocks(name):
                self._cloud.restart_compute()
            self.requests[name].add(len(self._cloud.proxy.requests))
            running = sum(domain.isActive() for domain
                          in self._cloud.nova.domains('compute1'))
            # Only whole boots count.
            assert running == len(self._servers), running

    @contextlib.contextmanager
    def _clocks(self, name: str) -> Iterator[None]:
        """Measure the time until nova-compute serves requests."""
        init_host = vars(manager.ComputeManager)['init_host']
        clean = operation.Operation.clean
        share = []

        def booting(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            result = init_host(*args, **kwargs)
            self._seconds[name].append(time.perf_counter() - begun)
            return result

        def cleaning(*args: Any) -> None:
            begun = time.perf_counter()
            clean(*args)
            share.append(time.perf_counter() - begun)

        with mock.patch.object(manager.ComputeManager, 'init_host', booting), \
                mock.patch.object(operation.Operation, 'clean', cleaning):
            yield
        if name == PLUGIN:
            assert len(share) == len(self._servers), len(share)
            self._seconds[SHARE].append(sum(share))


def show(result: report.Report, cases: dict[int, Hosts]) -> None:
    result.table(
        'Until nova-compute serves requests, ms',
        ['servers', STOCK, PLUGIN, 'the plugin\'s share', 'requests'],
        [[servers, case.sample(STOCK), case.sample(PLUGIN),
          case.sample(SHARE), case.count(PLUGIN)]
         for servers, case in sorted(cases.items())])


def main() -> None:
    parser = report.arguments(QUESTION)
    parser.add_argument('--servers', type=int, nargs='+', default=[10, 100],
                        metavar='N', help='how many servers the host has')
    parser.add_argument('--volumes', type=int, default=3,
                        help='how many volumes each of them has')
    parser.add_argument('--rounds', type=int, default=5,
                        help='how often everything is measured')
    options = parser.parse_args()
    cases = {}
    result = None
    for servers in options.servers:
        with clouds.running(_NOVA, triggers=_TRIGGERS) as cloud:
            result = result or report.Report(
                'boot', QUESTION, options.json, cinder=cloud.cinder.version)
            report.progress(f'making {servers} servers with '
                            f'{options.volumes} volumes')
            cases[servers] = Hosts(cloud, servers, options.volumes)
            cases[servers].rounds(options.rounds, f'{servers} servers, ')
    assert result is not None
    show(result, cases)
    for servers, case in cases.items():
        # 60 volumes in a request, of one server each.
        most = servers * -(-options.volumes // 60)
        seen = max(case.requests[PLUGIN])
        result.goal(f'requests for {servers} servers, at most {most}',
                    str(seen), seen <= most)
    result.end()


if __name__ == '__main__':
    report.run(main)
