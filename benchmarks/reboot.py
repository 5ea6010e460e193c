# SPDX-License-Identifier: Apache-2.0
"""What a healthy hard reboot costs.

The plugin, the function that Nova has built in since 28, and no cleanup at
all take turns in the same nova-compute, on the same server, with the same
Cinder.  The requests that the plugin made are then repeated alone over a
plain connection: less than that it cannot take.
"""

from __future__ import annotations

from collections.abc import Sequence
import concurrent.futures
import contextlib
import http.client
import statistics
import time
from typing import Callable
from urllib import parse

from benchmarks import cloud as clouds, report
from nova_bdm_cleanup.tests.cloud import fixture, identity
from nova_bdm_cleanup.tests.cloud.proxy import Proxy, Request
from nova_bdm_cleanup.tests.cloud.server import Server

QUESTION = 'what does a healthy hard reboot cost?'

PLUGIN, BUILT_IN, NEITHER = 'plugin', 'built-in', 'neither'
ALONE, CROWDED = 'alone', 'beside others'

#: How many other servers a crowded host has, and volumes each of them.
NEIGHBOURS, VOLUMES_OF_EACH = 200, 2


class Bare:
    """The plugin's requests, without a client library around them.

    :param proxy: where to send them
    """

    def __init__(self, proxy: Proxy) -> None:
        address = parse.urlsplit(proxy.url)
        self._connections = [
            http.client.HTTPConnection(address.hostname or '', address.port)
            for _ in range(2)]
        self._pool = concurrent.futures.ThreadPoolExecutor(2)

    def one(self, request: Request, connection: int = 0) -> None:
        """Send one request and read the whole answer."""
        self._connections[connection].request('GET', request.path, headers={
            'X-Auth-Token': identity.NOVA.token,
            'X-Service-Token': identity.NOVA_SERVICE.token,
            'OpenStack-API-Version': request.microversion or '',
            'Accept': 'application/json'})
        self._connections[connection].getresponse().read()

    def in_turn(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self.one(request)

    def at_once(self, requests: Sequence[Request]) -> None:
        for each in [self._pool.submit(self.one, request, number)
                     for number, request in enumerate(requests)]:
            each.result()

    def close(self) -> None:
        self._pool.shutdown()
        for connection in self._connections:
            connection.close()


class Case(report.Turns):
    """One server at one latency: everything that is measured of it.

    :param cloud: the cloud
    :param server: a server of it
    :param latency: seconds that are added to each request
    """

    def __init__(self, cloud: fixture.Cloud, server: Server,
                 latency: float) -> None:
        super().__init__()
        self._cloud = cloud
        self._server = server
        self._latency = latency
        self._cleanups = {PLUGIN: clouds.current(), BUILT_IN: clouds.BUILT_IN,
                          NEITHER: clouds.nothing}
        self._bare = Bare(cloud.proxy)

    def measure(self, number: int) -> None:
        self._cloud.proxy.latency = self._latency
        names = list(self._cleanups)
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            self._reboot(name)
            if name == PLUGIN:
                self._repeat(list(self._cloud.proxy.requests))

    def close(self) -> None:
        self._bare.close()
        view = self._cloud.look(self._server)
        # What was measured has to have been healthy reboots.
        assert view.status == 'ACTIVE', view.fault
        assert len(view.attachments) == len(self._server.volumes)
        assert not view.removed_block_devices

    def call(self, name: str) -> report.Sample:
        return self.sample(f'{name} call')

    def cinder(self, name: str) -> report.Sample:
        return self.sample(f'{name} cinder')

    def _reboot(self, name: str) -> None:
        with clouds.cleanup(self._cloud, self._cleanups[name]) as taken:
            self._cloud.start_timeline()
            begun = time.perf_counter()
            self._cloud.reboot(self._server)
            self._seconds[name].append(time.perf_counter() - begun)
            self._seconds[f'{name} call'] += [each.time for each in taken]
            self._seconds[f'{name} cinder'] += [
                each.cinder for each in taken]
            self.requests[name].add(len(self._cloud.proxy.requests))
            self.statements[name].update(each.statements for each in taken)

    def _repeat(self, requests: Sequence[Request]) -> None:
        """Measure the plugin's requests alone."""
        self._clock('list', lambda: self._bare.one(requests[0]))
        if len(requests) > 1:
            self._clock('volumes', lambda: self._bare.one(requests[1]))
        self._clock('in turn', lambda: self._bare.in_turn(requests))
        self._clock('at once', lambda: self._bare.at_once(requests))

    def _clock(self, name: str, call: Callable[[], None]) -> None:
        begun = time.perf_counter()
        call()
        self._seconds[name].append(time.perf_counter() - begun)


class Crowded(report.Turns):
    """A healthy server, alone on its host and beside many others.

    Of the others there are only the rows of Nova, which are read because the
    volumes have addresses.

    :param cloud: the cloud
    :param size: how many volumes the server has
    """

    def __init__(self, cloud: fixture.Cloud, size: int) -> None:
        super().__init__()
        self._cloud = cloud
        self._server = clouds.server(cloud, size)

    def measure(self, number: int) -> None:
        self._cloud.proxy.latency = 0
        for name in (ALONE, CROWDED)[::-1 if number % 2 else 1]:
            with (clouds.neighbours(self._cloud, self._server, NEIGHBOURS,
                                    VOLUMES_OF_EACH)
                    if name == CROWDED else contextlib.nullcontext()), \
                    clouds.cleanup(self._cloud, clouds.current()) as taken:
                self._cloud.start_timeline()
                self._cloud.reboot(self._server)
                self.requests[name].add(len(self._cloud.proxy.requests))
            self._seconds[name] += [each.time for each in taken]
            self.statements[name].update(each.statements for each in taken)

    def close(self) -> None:
        view = self._cloud.look(self._server)
        assert view.status == 'ACTIVE', view.fault
        assert not view.removed_block_devices


Cases = dict[tuple[float, int], Case]


def measure(cloud: fixture.Cloud, size: int, latencies: Sequence[float],
            rounds: int) -> Cases:
    """Measure one server at every latency."""
    cloud.proxy.latency = 0
    server = clouds.server(cloud, size)
    cases = {(latency, size): Case(cloud, server, latency / 1000)
             for latency in latencies}
    for number in range(rounds + 1):
        report.progress(f'{size} volumes, round {number} of {rounds}')
        for case in cases.values():
            case.measure(number)
            if not number:
                # What is done for the first time takes longer.
                case.forget()
    for case in cases.values():
        case.close()
    return cases


def show(result: report.Report, cases: Cases, latency: float,
         sizes: Sequence[int]) -> None:
    """Print the tables of one latency."""
    where = f'{latency:g} ms added to each request'
    mine = [(size, cases[latency, size]) for size in sizes]
    result.table(
        f'The cleanup alone, ms; {where}',
        ['volumes', PLUGIN, 'requests', 'SQL', BUILT_IN, 'requests', 'SQL',
         'ratio'],
        [[size, case.call(PLUGIN), case.count(PLUGIN),
          case.count_statements(PLUGIN), case.call(BUILT_IN),
          case.count(BUILT_IN), case.count_statements(BUILT_IN),
          case.call(BUILT_IN).against(case.call(PLUGIN))]
         for size, case in mine])
    if latency == min(each for each, _ in cases):
        # Cinder does the same whenever a request arrives.
        result.table(
            'Time of the processor that Cinder spends on the cleanup, ms',
            ['volumes', PLUGIN, BUILT_IN, 'ratio'],
            [[size, case.cinder(PLUGIN), case.cinder(BUILT_IN),
              case.cinder(BUILT_IN).against(case.cinder(PLUGIN))]
             for size, case in mine])
    result.table(
        f'The whole hard reboot, ms; {where}',
        ['volumes', NEITHER, f'added by {PLUGIN}', f'added by {BUILT_IN}'],
        [[size, case.sample(NEITHER),
          case.sample(PLUGIN).minus(case.sample(NEITHER)),
          case.sample(BUILT_IN).minus(case.sample(NEITHER))]
         for size, case in mine])
    result.table(
        f'The plugin\'s requests alone, ms; {where}',
        ['volumes', 'attachments', 'volumes', 'one after the other',
         'both at once', 'plugin - one after the other'],
        [[size, case.sample('list'),
          case.sample('volumes') if size else '-', case.sample('in turn'),
          case.sample('at once'),
          case.call(PLUGIN).minus(case.sample('in turn'))]
         for size, case in mine])


def measure_crowded(cloud: fixture.Cloud, result: report.Report,
                    sizes: Sequence[int], rounds: int) -> None:
    """Measure and print what the other servers of a host cost."""
    rows: list[list[report.Cell]] = []
    for size in sizes:
        case = Crowded(cloud, size)
        case.rounds(rounds, f'{size} volumes beside {NEIGHBOURS} servers, ')
        case.close()
        alone, crowded = case.sample(ALONE), case.sample(CROWDED)
        rows.append([
            size, alone, case.count(ALONE), case.count_statements(ALONE),
            crowded.minus(alone), case.count(CROWDED),
            case.count_statements(CROWDED), crowded.against(alone)])
    result.table(
        f'The cleanup alone, ms; and added by {NEIGHBOURS} other servers of '
        f'the host with {VOLUMES_OF_EACH} volumes each',
        ['volumes', ALONE, 'requests', 'SQL', 'added', 'requests', 'SQL',
         'ratio'], rows)


def judge(result: report.Report, cases: Cases) -> None:
    """Report which of the measured goals were reached."""
    most = max(max(case.requests[PLUGIN]) for case in cases.values())
    result.goal('requests of the plugin, at most 2', str(most), most <= 2)
    latencies = {latency for latency, _ in cases}
    if len(latencies) > 1:
        _judge_latency(result, cases, min(latencies), max(latencies))
    for latency, size, goal in ((0, 1, 1), (0, 26, 5), (20, 26, 8)):
        case = cases.get((latency, size))
        if case is None:
            continue
        ratio = case.call(BUILT_IN).against(case.call(PLUGIN))
        limit = case.call(BUILT_IN).against(case.sample('in turn'))
        result.goal(
            f'times as fast as the built-in with {size} volumes at '
            f'{latency} ms, at least {goal}',
            f'{ratio}; the bare requests alone: {limit}',
            ratio.median >= goal)


def _judge_latency(result: report.Report, cases: Cases, low: float,
                   high: float) -> None:
    """Check how many times a cleanup waits for the added latency."""
    trips = {
        size: statistics.median(
            cases[high, size].call(PLUGIN).minus(
                cases[low, size].call(PLUGIN)).values) / (high - low)
        for latency, size in cases if latency == low}
    result.goal(
        'latencies that the plugin waits for, at most 2',
        ', '.join(f'{trip:.1f} with {size}' for size, trip in trips.items()),
        # A clock does not give whole numbers.
        max(trips.values()) < 2.5)


def main() -> None:
    parser = report.arguments(QUESTION)
    parser.add_argument('--volumes', type=int, nargs='+',
                        default=[0, 1, 4, 8, 26, 60], metavar='N',
                        help='how many volumes the servers have')
    parser.add_argument('--latency', type=float, nargs='+',
                        default=[0, 5, 20], metavar='MS',
                        help='milliseconds added to each request')
    parser.add_argument('--rounds', type=int, default=15,
                        help='how often everything is measured')
    options = parser.parse_args()
    with clouds.running() as cloud:
        result = report.Report('reboot', QUESTION, options.json,
                               cinder=cloud.cinder.version)
        cases: Cases = {}
        try:
            for size in options.volumes:
                cases.update(measure(cloud, size, options.latency,
                                     options.rounds))
        finally:
            # Hours may have gone into it.
            report.progress('')
            sizes = sorted({size for _, size in cases})
            for latency in options.latency if cases else ():
                show(result, cases, latency, sizes)
        measure_crowded(cloud, result, [size for size in sizes if size],
                        options.rounds)
        judge(result, cases)
        result.end()


if __name__ == '__main__':
    report.run(main)
