# SPDX-License-Identifier: Apache-2.0
"""What the plugin costs a healthy reboot: time, and requests to Cinder.

One server with eight volumes is rebooted hard, with and without the plugin in
turns, so that whatever else the machine does falls on both alike.  The time
is how long nova-compute held the server's lock, which is the whole of the
reboot, as oslo.concurrency logs it to the millisecond.  Most of it is how
long QEMU takes to end, which varies by more than the plugin costs; so the
time until Nova's own reboot begins, in which the plugin does all its looking,
is taken as well.
"""

from __future__ import annotations

import datetime
import re
import statistics

from e2e import logs as logs_mod, processes, trial as trial_mod

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
    before: dict[bool, list[float]] = {False: [], True: []}
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
                before[plugin].append(_before(trial.logs))
                requests[plugin].append(trial.logs.cinder_requests())
                trial.equal('disks of the guest',
                            cloud.wait_guest(server, disks), disks)
    return {plugin: _words(seconds[plugin], before[plugin],
                           requests[plugin])
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


def _before(logs: logs_mod.Logs) -> float:
    """Seconds from the lock to where Nova's own reboot begins."""
    begin = logs.first('nova-compute', 'acquired by', 'do_reboot_instance')
    nova = logs.first('nova-compute', 'Rebooting instance')
    if begin is None or nova is None:
        raise trial_mod.Failed('the reboot is not in the log')
    return (nova - begin) / datetime.timedelta(seconds=1)


def _words(seconds: list[float], before: list[float],
           requests: list[int]) -> str:
    count = ' or '.join(map(str, sorted(set(requests))))
    return (f'{len(seconds)} reboots, {_spread(seconds)}; until Nova begins '
            f'{_spread(before)}; requests to Cinder in each: {count}')


def _spread(seconds: list[float]) -> str:
    return (f'median {statistics.median(seconds):.3f} s '
            f'({min(seconds):.3f} to {max(seconds):.3f}, mean '
            f'{statistics.mean(seconds):.3f})')
