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

from collections.abc import Callable
from concurrent import futures
import functools
import pathlib
import random
import time
import traceback

from e2e import stack as stack_mod
from e2e.trial import Failed, Scenario, Trial

SERVERS = 3
VOLUMES = ('A', 'B', 'C', 'D')

#: So many removals in one hour are what this is about.  The node looks after
#: itself meanwhile, which must make no difference.
OPTIONS = {'bdm_cleanup': {
    'max_removals_per_hour': '100000',
    'audit_interval': '60', 'sweep_stopped': 'true'}}

#: What has become of a volume.  In the states of BROKEN the guest still has
#: the disk and Nova its row; a hard reboot must remove both.
FREE, ATTACHED, RESERVED, STALE = 'free', 'attached', 'reserved', 'stale'
LOST, DELETED, RESET = 'lost', 'deleted', 'reset'
BROKEN = (LOST, DELETED, RESET)

#: The attachment that Cinder has of a volume in such a state.
ATTACHMENTS = {ATTACHED: 'attached', RESERVED: 'reserved', STALE: 'attached',
               RESET: 'attached'}

#: How often a step with a volume is chosen, where one is in the state that
#: the step needs, the state that it is in afterwards, and what is done.
OF_A_VOLUME: dict[str, tuple[int, str, str,
                             Callable[[Trial, str, str], object]]] = {
    'attach': (6, FREE, ATTACHED,
               lambda t, server, name: t.attach(server, t.volumes[name])),
    'detach': (2, ATTACHED, FREE,
               lambda t, server, name: t.detach(server, t.volumes[name])),
    'lose': (3, ATTACHED, LOST, Trial.lose_attachment),
    'delete': (2, LOST, DELETED,
               lambda t, _, name: t.delete_volume(t.volumes[name])),
    'reset': (2, ATTACHED, RESET, lambda t, _, name: t.reset_status(name)),
    'reserve': (1, FREE, RESERVED, lambda t, server, name:
                t.leave_attachment(server, name, connected=False)),
    'connect': (1, FREE, STALE, Trial.leave_attachment)}

#: How often one with the server is chosen.
OF_THE_SERVER = {'hard_reboot': 4, 'soft_reboot': 1, 'stop_and_reboot': 1}


class Worker:
    """One server and its volumes."""

    def __init__(self, number: int, seed: int, stack: stack_mod.Stack,
                 record: pathlib.Path) -> None:
        self.number = number
        self.random = random.Random(f'{seed}-{number}')
        self.record = record
        self.steps = 0
        self.failure: str | None = None
        self.trial = Trial(stack, plugin=True)
        self.server = self.trial.server()
        self.state = dict.fromkeys(VOLUMES, FREE)
        for name in VOLUMES:
            self.trial.volume(name)
        #: What no new guest can be given.
        self._unopenable = ((DELETED,) if stack.lab.is_rbd()
                            else (LOST, DELETED))

    def run(self, until: float) -> None:
        try:
            while time.monotonic() < until and self.failure is None:
                self.step()
            self.hard_reboot()
            self.check()
        except Exception:
            self.failure = traceback.format_exc()
            self._say(f'FAILED {self.state}\n{self.failure}')

    def step(self) -> None:
        weights = {name: weight for name, (weight, needed, *_)
                   in OF_A_VOLUME.items() if self._in_state(needed)}
        weights.update(OF_THE_SERVER)
        if self._in_state(*self._unopenable):
            # It would fail as on stock Nova, by design.
            del weights['soft_reboot']
        [name] = self.random.choices([*weights], [*weights.values()])
        self.steps += 1
        if name in OF_THE_SERVER:
            self._say(f'{name} of {self.state}')
            getattr(self, name)()
        else:
            _, needed, then, do = OF_A_VOLUME[name]
            volume = self.random.choice(self._in_state(needed))
            self._say(f'{name} {volume} of {self.state}')
            do(self.trial, self.server, volume)
            self.state[volume] = then
        self.check()

    def _in_state(self, *states: str) -> list[str]:
        return [name for name in VOLUMES if self.state[name] in states]

    def _say(self, text: str) -> None:
        line = (f'{time.strftime("%H:%M:%S")} server {self.number} '
                f'step {self.steps}: {text}')
        with self.record.open('a') as stream:
            print(line, file=stream)

    # -- steps -------------------------------------------------------------

    def hard_reboot(self) -> None:
        self.trial.reboot(self.server)
        for name in self._in_state(*BROKEN, STALE, RESERVED):
            if self.state[name] == DELETED:
                self.trial.volume(name)
            self.state[name] = FREE

    def soft_reboot(self) -> None:
        self.trial.reboot(self.server, 'SOFT')

    def stop_and_reboot(self) -> None:
        self.trial.stop(self.server)
        self.hard_reboot()

    def check(self) -> None:
        """The invariants."""
        disks = self._in_state(ATTACHED, *BROKEN)
        self.trial.expect(
            self.server, 'ACTIVE', ' '.join(['root', *disks]),
            attachments=' '.join(['root:attached', *(
                f'{name}:{ATTACHMENTS[state]}'
                for name, state in self.state.items()
                if state in ATTACHMENTS)]))
        for name in self._in_state(FREE):
            self.trial.expect_volume(name, 'available', on_host=False)


def scenario(seed: int, minutes: float) -> Scenario:
    return Scenario('soak', 'Random damage and repair',
                    functools.partial(_soak, seed, minutes))


def _soak(seed: int, minutes: float, t: Trial) -> str:
    t.restart(**OPTIONS)
    stack = t.stack
    record = stack.lab.results / f'soak-{stack.lab.backend}-{seed}.log'
    record.unlink(missing_ok=True)
    print(f'soak: seed {seed}, {minutes:g} minutes, steps in {record}',
          flush=True)
    workers = [Worker(number, seed, stack, record)
               for number in range(SERVERS)]
    until = time.monotonic() + minutes * 60
    with futures.ThreadPoolExecutor(SERVERS) as pool:
        list(pool.map(lambda one: one.run(until), workers))
    failed = [one for one in workers if one.failure]
    if failed:
        raise Failed(f'seed {seed}: server {failed[0].number} step '
                     f'{failed[0].steps}: {failed[0].failure}')
    total = sum(one.steps for one in workers)
    return (f'{total} steps on {SERVERS} servers in {minutes:g} minutes, '
            f'seed {seed}: every invariant held after each')
