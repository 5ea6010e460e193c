# SPDX-License-Identifier: Apache-2.0
"""A soak: servers that are broken, rebooted, attached to and detached from
at once, at random, for a while.

Each server is driven by a thread of its own with its own generator, seeded
from the one seed that is printed, and every choice depends on nothing but
that generator and what the thread did before.  The same seed therefore gives
the same steps again, server by server.

After each step everybody has to agree on what the steps so far add up to:
Nova's rows, Cinder, libvirt's domain, the guest, and the host.
"""

from __future__ import annotations

import dataclasses
import pathlib
import random
import threading
import time
import traceback

from e2e import cloud as cloud_mod, database, observe, stack as stack_mod

SERVERS = 3
SIZES = (2, 3, 4, 5)

#: So many removals in one hour are what this is about.  The node looks after
#: itself meanwhile, which must make no difference.
OPTIONS = {'bdm_cleanup': {
    'max_removals_per_hour': '100000',
    'audit_interval': '60', 'sweep_stopped': 'true'}}

#: What has become of a volume.  In the states of BROKEN the guest still has
#: the disk and Nova its row; a hard reboot must remove both.
FREE, ATTACHED, STALE = 'free', 'attached', 'stale'
LOST, DELETED, RESET = 'lost', 'deleted', 'reset'
BROKEN = (LOST, DELETED, RESET)

#: How often each step is chosen, where it is possible.
STEPS = {'attach': 6, 'detach': 2, 'lose': 3, 'delete': 2, 'reset': 2,
         'stale_reserved': 1, 'stale_connected': 1, 'hard_reboot': 4,
         'soft_reboot': 1, 'stop_and_reboot': 1}

#: The state that a volume must be in for a step that is about one volume.
NEEDS = {'attach': FREE, 'detach': ATTACHED, 'lose': ATTACHED,
         'delete': LOST, 'reset': ATTACHED, 'stale_reserved': FREE,
         'stale_connected': FREE}


class Broken(Exception):
    """An invariant does not hold."""


@dataclasses.dataclass
class Volume:
    """A volume of one worker and what has become of it."""

    size: int
    id: str
    state: str = FREE


class Worker:
    """One server and its volumes."""

    def __init__(self, number: int, seed: int, cloud: cloud_mod.Cloud,
                 record: pathlib.Path) -> None:
        self.number = number
        self.random = random.Random(f'{seed}-{number}')
        self.cloud = cloud
        self.record = record
        self.steps = 0
        self.failure: str | None = None
        self.root = cloud.create_volume(f'root-{number}', 1, bootable=True)
        self.volumes = [
            Volume(size, cloud.create_volume(f'{number}-{size}', size))
            for size in SIZES]
        self.server = cloud.boot(f'soak-{number}', self.root)
        self.observer = observe.Observer(cloud, {}, {})
        #: What no new guest can be given.
        self._unopenable = ((DELETED,) if cloud.lab.is_rbd()
                            else (LOST, DELETED))

    def run(self, until: float) -> None:
        try:
            while time.monotonic() < until and self.failure is None:
                self.step()
            self.hard_reboot()
            self.check()
        except Exception:
            self.failure = traceback.format_exc()
            self._say(f'FAILED\n{self.failure}')

    def step(self) -> None:
        possible = [name for name in STEPS if self._candidates(name)]
        name = self.random.choices(
            possible, [STEPS[one] for one in possible])[0]
        volume = self.random.choice(self._candidates(name))
        self.steps += 1
        self._say(f'{name} {volume.size if volume else ""} of '
                  + ' '.join(f'{v.size}:{v.state}' for v in self.volumes))
        if volume is None:
            getattr(self, name)()
        else:
            getattr(self, name)(volume)
        self.check()

    def _candidates(self, name: str) -> list[Volume | None]:
        if name in NEEDS:
            return [v for v in self.volumes if v.state == NEEDS[name]]
        if name == 'soft_reboot' and any(
                v.state in self._unopenable for v in self.volumes):
            return []  # it would fail as on stock Nova, by design
        return [None]

    def _say(self, text: str) -> None:
        line = (f'{time.strftime("%H:%M:%S")} server {self.number} '
                f'step {self.steps}: {text}')
        with self.record.open('a') as stream:
            print(line, file=stream)

    # -- steps -------------------------------------------------------------

    def attach(self, volume: Volume) -> None:
        self.cloud.attach(self.server, volume.id)
        volume.state = ATTACHED

    def detach(self, volume: Volume) -> None:
        self.cloud.detach(self.server, volume.id)
        volume.state = FREE

    def lose(self, volume: Volume) -> None:
        self.cloud.lose_attachment(self.server, volume.id)
        volume.state = LOST

    def delete(self, volume: Volume) -> None:
        self.cloud.delete_volume(volume.id)
        volume.state = DELETED

    def reset(self, volume: Volume) -> None:
        self.cloud.reset_volume(volume.id, 'available')
        volume.state = RESET

    def stale_reserved(self, volume: Volume) -> None:
        self.cloud.add_attachment(self.server, volume.id, connected=False)
        volume.state = STALE

    def stale_connected(self, volume: Volume) -> None:
        self.cloud.add_attachment(self.server, volume.id, connected=True)
        volume.state = STALE

    def hard_reboot(self) -> None:
        self.cloud.reboot(self.server)
        for volume in self.volumes:
            if volume.state == DELETED:
                volume.id = self.cloud.create_volume(
                    f'{self.number}-{volume.size}', volume.size)
            if volume.state in (*BROKEN, STALE):
                volume.state = FREE

    def soft_reboot(self) -> None:
        self.cloud.reboot(self.server, 'SOFT')

    def stop_and_reboot(self) -> None:
        self.cloud.action(self.server, {'os-stop': None})
        self.cloud.wait_server(self.server)
        self.hard_reboot()

    # -- invariants --------------------------------------------------------

    def check(self) -> None:
        inside = [v for v in self.volumes if v.state in (ATTACHED, *BROKEN)]
        sizes = tuple(sorted([1] + [v.size for v in inside]))
        ids = sorted([self.root] + [v.id for v in inside])
        attached = sorted([self.root] + [
            v.id for v in self.volumes
            if v.state in (ATTACHED, RESET, STALE)])
        self._equal('status', self.cloud.server(self.server)['status'],
                    'ACTIVE')
        self._equal('guest', self.cloud.wait_guest(self.server, sizes), sizes)
        self._equal('rows', sorted(
            row['volume_id'] for row in database.bdm_rows(self.server)), ids)
        self._equal('attachments', sorted(
            one['volume_id']
            for one in self.cloud.attachments(self.server)), attached)
        self._equal('domain', sorted(
            self.observer.domain(self.server) or ()), ids)
        for volume in self.volumes:
            if volume.state == FREE:
                self._equal(f'{volume.size} in Cinder',
                            self.observer.volume(volume.id), 'available')
                self._equal(f'{volume.size} on the host',
                            self.observer.on_host(volume.id), ())

    def _equal(self, what: str, seen: object, wanted: object) -> None:
        if seen != wanted:
            states = [(v.size, v.state, v.id) for v in self.volumes]
            raise Broken(f'{what}: {seen} instead of {wanted}; {states}')


def soak(stack: stack_mod.Stack, seed: int, minutes: float) -> str:
    """Run it; the words for the result.

    :raises Broken: with the first failure
    """
    cloud = cloud_mod.Cloud(stack)
    record = stack.lab.results / f'soak-{stack.lab.backend}-{seed}.log'
    record.unlink(missing_ok=True)
    print(f'soak: seed {seed}, {minutes:g} minutes, steps in {record}',
          flush=True)
    workers = [Worker(number, seed, cloud, record)
               for number in range(SERVERS)]
    until = time.monotonic() + minutes * 60
    threads = [threading.Thread(target=one.run, args=(until,))
               for one in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = [one for one in workers if one.failure]
    if failed:
        raise Broken(f'seed {seed}: server {failed[0].number} step '
                     f'{failed[0].steps}: {failed[0].failure}')
    total = sum(one.steps for one in workers)
    return (f'{total} steps on {SERVERS} servers in {minutes:g} minutes, '
            f'seed {seed}: every invariant held after each')
