# SPDX-License-Identifier: Apache-2.0
"""What thousands of reservations of one volume cost everybody else.

Any user can make them of a volume of his own, and Cinder reads all of them
whenever it shows the volume.  Here it is older than the volumes of all other
servers, which is the worst for those that look for a witness.
"""

from __future__ import annotations

# First: its import of Nova decides whether this process may use eventlet.
from benchmarks import cloud as clouds  # isort: skip

from collections.abc import Callable
import itertools
import time
from typing import Any

from oslo_config import cfg

from benchmarks import report
from nova_bdm_cleanup.plugin import startup
from nova_bdm_cleanup.plugin.watching import Watcher
from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.cloud.server import Disk, Server

QUESTION = 'what do thousands of reservations of one volume cost the others?'

_INTERVAL = 3600
_NOVA: dict[str, dict[str, Any]] = {
    'quota': {'instances': -1, 'cores': -1, 'ram': -1},
    'DEFAULT': {'resume_guests_state_on_host_boot': True}}


class Host:
    """A host whose first server has the volume.

    :param cloud: the cloud
    :param servers: how many there are
    """

    def __init__(self, cloud: fixture.Cloud, servers: int) -> None:
        self._cloud = cloud
        self._crowded, *self._others = [
            self._server() for _ in range(servers)]
        self._volume, = self._crowded.volumes
        with cloud.cinder.database() as database:
            database.execute(
                'UPDATE volumes SET created_at = ? WHERE id = ?',
                ('2001-01-01 00:00:00.000000', self._volume))
        moments = itertools.count(time.time(), _INTERVAL)
        self._watcher = Watcher(
            cloud.nova.computes['compute1'].manager,
            startup.record(cfg.CONF, []),
            lambda: next(moments))

    def _server(self) -> Server:
        return self._cloud.server(Disk(at_boot=True))

    def crowd(self, reservations: int) -> None:
        """Have the volume reserved so many times."""
        self._cloud.cinder.reserve_many(
            self._volume, self._crowded.id, reservations)

    def show(self) -> float:
        """Seconds until Cinder has shown the volume."""
        cinder = self._cloud.cinder.client(self._cloud.admin)
        return _clock(lambda: cinder.volumes.get(self._volume))

    def reboot(self) -> float:
        """Seconds of a hard reboot that finds a volume missing."""
        server = self._server()
        self._cloud.lose_volume(server, server.volumes[0])
        seconds = _clock(lambda: self._cloud.reboot(server))
        assert not self._dangles(server)
        self._cloud.request('DELETE', '/servers/' + server.id)
        return seconds

    def round(self) -> tuple[float, str]:
        """Seconds of a round of the audit, and its sum."""
        seconds = _clock(self._watcher.round)
        return seconds, self._cloud.log('event=(not-)?audited')[-1].split(
            'request_id=')[1].partition(': ')[2]

    def boot(self) -> tuple[float, int]:
        """Seconds until nova-compute serves requests, and how many of the
        other servers, all of which dangle, were cleaned up.
        """
        for server in self._others:
            self._cloud.lose_attachment(server, server.volumes[0])
        for server in (self._crowded, *self._others):
            self._cloud.lose_power(server)
        seconds = _clock(self._cloud.restart_compute)
        return seconds, sum(not self._dangles(s) for s in self._others)

    def _dangles(self, server: Server) -> bool:
        return any(row.volume_id in server.volumes and not row.deleted
                   for row in self._cloud.nova.block_devices(server.id))


def _clock(func: Callable[[], object]) -> float:
    begun = time.perf_counter()
    func()
    return time.perf_counter() - begun


def main() -> None:
    parser = report.arguments(QUESTION)
    parser.add_argument('--reservations', type=int, default=5000, metavar='N',
                        help='how many there are')
    parser.add_argument('--servers', type=int, default=20, metavar='N',
                        help='how many servers the host has')
    parser.add_argument('--rounds', type=int, default=3,
                        help='how often reboots and rounds are measured')
    options = parser.parse_args()
    with clouds.running(_NOVA, triggers='hard_reboot,start,host_boot',
                        audit_interval=_INTERVAL,
                        max_removals_per_hour=1000) as cloud:
        result = report.Report('crowded', QUESTION, options.json,
                               cinder=cloud.cinder.version)
        report.progress('making servers')
        host = Host(cloud, options.servers)
        # What is done for the first time takes longer.
        host.reboot()
        host.round()
        rows, reboots = [], []
        for number in (0, options.reservations):
            report.progress(f'{number} reservations')
            host.crowd(number)
            shown = host.show()
            reboots.append(report.milliseconds(
                host.reboot() for _ in range(options.rounds)))
            rounds = [host.round() for _ in range(options.rounds)]
            rows.append([number, report.milliseconds([shown]), reboots[-1],
                         report.milliseconds(r[0] for r in rounds)])
        report.progress('boot')
        seconds, cleaned = host.boot()
        result.table('Milliseconds', [
            'reservations', 'Cinder shows the volume', 'another\'s reboot',
            'a round of the audit'], rows)
        print(f'\nthe last round: {rounds[-1][1]}')
        print(f'the boot: {seconds:.1f} s')
        usual, crowded = (sample.median for sample in reboots)
        result.goal('a stranger\'s reboot, at most twice as long',
                    f'{crowded / usual:.2f} times', crowded <= 2 * usual)
        result.goal('the round does without one server',
                    rounds[-1][1], rounds[-1][1].startswith('servers: '))
        result.goal('the boot cleans up all but one',
                    f'{cleaned} of {options.servers}',
                    cleaned == options.servers - 1)
        result.end()


if __name__ == '__main__':
    report.run(main)
