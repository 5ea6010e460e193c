# SPDX-License-Identifier: Apache-2.0
"""What a hard reboot with k dangling of n volumes costs, by phase.

Each phase is measured twice: at the plugin's own interface, and inside it the
calls into Nova, libvirt's driver, Cinder and the disk.  The difference is what
the plugin itself adds.
"""

from __future__ import annotations

# First: its import of Nova decides whether this process may use eventlet.
from benchmarks import cloud as clouds  # isort: skip

import collections
from collections.abc import Iterator, Sequence
import contextlib
import time
from typing import Any

from nova import objects
import requests

from benchmarks import report
from nova_bdm_cleanup.node import instance
from nova_bdm_cleanup.node.store import database
from nova_bdm_cleanup.node.store.journal import Entry, Journal
from nova_bdm_cleanup.openstack import cinder
from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.cloud.server import Server

QUESTION = 'what does a hard reboot cost that finds k of n volumes dangling?'

LOOK, SECOND_LOOK = 'look', 'second look'
PHASES = (LOOK, 'journal', 'power-off', SECOND_LOOK, 'lock', 'disconnect',
          'destroy', 'delete', 'report')

#: Which phase a method of the plugin belongs to.
_INSIDE: tuple[tuple[Any, str, str], ...] = (
    (cinder.Cinder, 'look', LOOK),
    (cinder.Cinder, 'knows_any', LOOK),
    (instance.NovaInstance, 'server', LOOK),
    (instance.NovaInstance, 'witnesses', LOOK),
    (Journal, 'begin', 'journal'),
    (Entry, 'step', 'journal'),
    (Entry, 'finish', 'journal'),
    (instance.NovaInstance, 'prepare', 'power-off'),
    (instance.NovaInstance, 'claim', 'power-off'),
    (instance.NovaInstance, 'power_off', 'power-off'),
    (instance.NovaInstance, 'bdms', SECOND_LOOK),
    (instance.NovaInstance, '_sharing', 'lock'),
    (instance.NovaInstance, 'used_by_others', 'disconnect'),
    (instance.NovaInstance, 'is_reused', 'disconnect'),
    (instance.NovaInstance, 'disconnect', 'disconnect'),
    (instance.NovaInstance, 'destroy', 'destroy'),
    (instance.NovaInstance, 'tidy', 'destroy'),
    (cinder.Cinder, 'delete_attachment', 'delete'),
    (instance.NovaInstance, 'report', 'report'),
)

#: What the phases cannot do without.
_OUTSIDE: tuple[tuple[Any, str], ...] = (
    (requests.Session, 'request'),
    (objects.Instance, 'get_by_uuid'),
    (objects.Instance, 'save'),
    (objects.InstanceList, 'get_uuids_by_host'),
    (objects.BlockDeviceMappingList, 'get_by_instance_uuid'),
    (objects.BlockDeviceMappingList, 'get_by_instance_uuids'),
    (objects.BlockDeviceMappingList, 'get_by_volume'),
    (objects.BlockDeviceMapping, 'save'),
    (objects.BlockDeviceMapping, 'destroy'),
    (objects.InstanceActionEvent, 'event_start'),
    (objects.InstanceActionEvent, 'event_finish'),
    # SQLite takes and gives up its locks in it, and waits for the disk.
    (database, '_run'),
)
_DRIVER = ('power_off', '_disconnect_volume')


class Clocks:
    """Seconds of one cleanup by phase, in all and outside the plugin.

    A cleanup does one thing at a time, though not in one thread; so it is
    enough to know what is being done.
    """

    def __init__(self) -> None:
        self.phases: dict[str, float] = collections.defaultdict(float)
        self.outside: dict[str, float] = collections.defaultdict(float)
        self._phase: str | None = None
        self._is_outside = False
        self._is_second = False

    def inside(self, function: Any, phase: str) -> Any:
        def measured(*args: Any, **kwargs: Any) -> Any:
            if phase == SECOND_LOOK:
                self._is_second = True
            name = SECOND_LOOK if phase == LOOK and self._is_second else phase
            self._phase = name
            begun = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.phases[name] += time.perf_counter() - begun
                self._phase = None
        return measured

    def beyond(self, function: Any) -> Any:
        def measured(*args: Any, **kwargs: Any) -> Any:
            phase = self._phase
            if phase is None or self._is_outside:
                return function(*args, **kwargs)
            self._is_outside = True
            begun = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.outside[phase] += time.perf_counter() - begun
                self._is_outside = False
        return measured


@contextlib.contextmanager
def clocks(driver: Any) -> Iterator[Clocks]:
    """Measure the cleanups that run meanwhile.

    :param driver: of the nova-compute they run in
    """
    result = Clocks()
    with contextlib.ExitStack() as stack:
        for owner, name, phase in _INSIDE:
            _replace(stack, owner, name,
                     result.inside(getattr(owner, name), phase))
        for owner, name in _OUTSIDE:
            _replace(stack, owner, name, result.beyond(getattr(owner, name)))
        for name in _DRIVER:
            _replace(stack, driver, name,
                     result.beyond(getattr(driver, name)))
        yield result


def _replace(stack: contextlib.ExitStack, owner: Any, name: str,
             value: Any) -> None:
    own = vars(owner).get(name)
    # What getattr() gave of a class method is bound already.
    setattr(owner, name,
            staticmethod(value) if isinstance(own, classmethod) else value)
    if own is None:
        stack.callback(delattr, owner, name)
    else:
        stack.callback(setattr, owner, name, own)


class Case(report.Turns):
    """A server whose volumes are, in part, made to dangle.

    :param cloud: the cloud
    :param server: the server
    :param count: how many of its volumes dangle
    :param is_reset: they do since their status was reset and not since their
        attachment was deleted: then there is one to delete
    """

    def __init__(self, cloud: fixture.Cloud, server: Server,
                 count: int, is_reset: bool) -> None:
        super().__init__()
        self._cloud = cloud
        self._server = server
        self._victims = server.volumes[:count]
        self._is_reset = is_reset
        self._driver = cloud.nova.computes[server.host].driver
        self.clocks: list[Clocks] = []

    def forget(self) -> None:
        super().forget()
        self.clocks.clear()

    def measure(self, number: int) -> None:
        plugin = clouds.current()
        for volume in self._victims:
            if self._is_reset:
                self._cloud.reset_status(volume)
            else:
                self._cloud.lose_attachment(self._server, volume)
        self._cloud.start_timeline()
        with clouds.cleanup(self._cloud, plugin) as taken, \
                clocks(self._driver) as clock:
            self._cloud.reboot(self._server)
        self._seconds['all'] += [each.time for each in taken]
        self.clocks.append(clock)
        # Nova's reboot itself asks for nothing here.
        self.requests['all'].add(len(self._cloud.proxy.requests))
        left = {row.volume_id for row in
                self._cloud.nova.block_devices(self._server.id)
                if not row.deleted}
        assert not left.intersection(self._victims), 'not cleaned'
        for volume in self._victims:
            self._cloud.attach(self._server, volume)

    def rows(self) -> Iterator[list[report.Cell]]:
        """Return the rows of its table."""
        total = self.sample('all')
        all_inside = [0.0] * len(self.clocks)
        all_outside = [0.0] * len(self.clocks)
        for phase in PHASES:
            inside = [clock.phases[phase] for clock in self.clocks]
            outside = [clock.outside[phase] for clock in self.clocks]
            all_inside = [a + b for a, b in zip(all_inside, inside)]
            all_outside = [a + b for a, b in zip(all_outside, outside)]
            yield self._row(phase, report.milliseconds(inside),
                            report.milliseconds(outside))
        rest = total.minus(report.milliseconds(all_inside))
        yield ['the rest', rest, 0, rest]
        yield self._row('all', total, report.milliseconds(all_outside))

    @staticmethod
    def _row(name: str, inside: report.Sample,
             outside: report.Sample) -> list[report.Cell]:
        return [name, inside, outside, inside.minus(outside)]


def main() -> None:
    parser = report.arguments(QUESTION)
    parser.add_argument('--cases', nargs='+', metavar='K/N',
                        default=['1/1', '1/8', '8/8', '8/26', '8/60'],
                        help='how many of how many volumes dangle')
    parser.add_argument('--latency', type=float, default=0, metavar='MS',
                        help='milliseconds added to each request')
    parser.add_argument('--rounds', type=int, default=11,
                        help='how often everything is measured')
    options = parser.parse_args()
    wanted = [tuple(map(int, case.split('/'))) for case in options.cases]
    with clouds.running(max_removals=1000,
                        max_removals_per_hour=1000000) as cloud:
        result = report.Report('dangling', QUESTION, options.json,
                               cinder=cloud.cinder.version)
        cloud.proxy.latency = options.latency / 1000
        _measure(cloud, result, wanted, options.rounds)
        result.end()


def _measure(cloud: fixture.Cloud, result: report.Report,
             wanted: Sequence[tuple[int, ...]], rounds: int) -> None:
    for size in sorted({size for _, size in wanted}):
        server = clouds.server(cloud, size)
        for count in [count for count, n in wanted if n == size]:
            for is_reset in (False, True):
                case = Case(cloud, server, count, is_reset)
                case.rounds(rounds, f'{count} of {size}, ')
                what = 'status reset, attachment left' if is_reset \
                    else 'attachment deleted'
                result.table(
                    f'{count} of {size}, {what}, '
                    f'{case.count("all")} requests; ms',
                    ['phase', 'takes', 'of it outside the plugin',
                     'inside the plugin'], list(case.rows()))


if __name__ == '__main__':
    report.run(main)
