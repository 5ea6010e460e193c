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
"""What the plugin costs a healthy reboot: time, and requests to Cinder.

One server with eight volumes is rebooted hard, with and without the plugin in
turns, so that whatever else the machine does falls on both alike.  The time
is how long nova-compute held the server's lock, which is the whole of the
reboot, as oslo.concurrency logs it to the millisecond.
"""

from __future__ import annotations

import re
import statistics

from e2e import processes
from e2e import trial as trial_mod

REBOOTS = 20
BLOCK = 5
VOLUMES = 8

_HELD = re.compile(r'released.*do_reboot_instance.*held ([\d.]+)s')


def measure(trial: trial_mod.Trial) -> dict[bool, str]:
    """Twenty reboots each; what to say of them, by with the plugin or not."""
    cloud = trial.cloud
    root = cloud.create_volume('root', 1, bootable=True)
    others = tuple(cloud.create_volume(f'volume-{size}', size)
                   for size in range(2, 2 + VOLUMES))
    server = cloud.boot('eight-volumes', root, others)
    disks = tuple(range(1, 2 + VOLUMES))
    seconds: dict[bool, list[float]] = {False: [], True: []}
    requests: dict[bool, list[int]] = {False: [], True: []}
    while len(seconds[True]) < REBOOTS:
        for plugin in (False, True):
            trial.compute.restart(plugin)
            # Not counted: the first one fetches tokens and fills caches.
            cloud.reboot(server)
            for _ in range(BLOCK):
                trial.logs.mark()
                status = cloud.reboot(server)
                trial.equal('status', status, 'ACTIVE')
                seconds[plugin].append(_held(trial))
                requests[plugin].append(trial.logs.cinder_requests())
                trial.equal('disks of the guest',
                            cloud.wait_guest(server, disks), disks)
    return {plugin: _words(seconds[plugin], requests[plugin])
            for plugin in (False, True)}


def _held(trial: trial_mod.Trial) -> float:
    found: list[str] = []

    def logged() -> bool:
        lines = trial.logs.lines('nova-compute', 'do_reboot_instance')
        found[:] = _HELD.findall('\n'.join(lines))
        return bool(found)
    # The task state is cleared a moment before the lock is released.
    processes.wait_until(logged, 'the end of the reboot', 20, 0.1)
    return float(found[-1])


def _words(seconds: list[float], requests: list[int]) -> str:
    count = sorted(set(requests))
    return (f'{len(seconds)} reboots, median {statistics.median(seconds):.2f}'
            f' s ({min(seconds):.2f} to {max(seconds):.2f}, mean '
            f'{statistics.mean(seconds):.2f}); requests to Cinder in each: '
            + ' or '.join(map(str, count)))
