# SPDX-License-Identifier: Apache-2.0
"""All schedules of a scenario within a bound, each of them once.

A run is repeated from its start with other decisions.  After it, each decision
that it took by itself is taken otherwise, as far as the bound allows: so all
schedules are run, and none twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import random

from nova_bdm_cleanup.tests.simulation import properties
from nova_bdm_cleanup.tests.simulation.movers import Cloud
from nova_bdm_cleanup.tests.simulation.ports import Stage
from nova_bdm_cleanup.tests.simulation.scenarios import Scenario, SERVER
from nova_bdm_cleanup.tests.simulation.scheduler import (
    Broken,
    Decision,
    Equivalent,
    Footprint,
    MISCHIEF,
    PREEMPTION,
    Scheduler,
)
from nova_bdm_cleanup.tests.simulation.world import COMPUTE, World

#: What is decided otherwise than by itself, by the number of the decision.
Choices = Mapping[int, int]


@dataclasses.dataclass(frozen=True)
class Bound:
    """How much may happen in one schedule."""

    #: So often somebody comes between who need not.
    preemptions: int = 1
    #: So many kills and faults.
    mischiefs: int = 1

    def allows(self, costs: Sequence[str | None]) -> bool:
        return (costs.count(PREEMPTION) <= self.preemptions
                and costs.count(MISCHIEF) <= self.mischiefs)


#: Several, of which one must allow it.
Bounds = Sequence[Bound]


@dataclasses.dataclass(frozen=True)
class Run:
    """How one schedule ended."""

    choices: Choices
    decisions: Sequence[Decision]
    broken: Broken | None = None
    #: It was left out: another one does the same.
    is_left_out: bool = False
    #: What each actor looked at and changed, by its name.
    footprints: Mapping[str, Footprint] = dataclasses.field(
        default_factory=dict)

    @property
    def spent(self) -> list[str | None]:
        return [d.costs[d.chosen] for d in self.decisions]


@dataclasses.dataclass
class Seen:
    """What schedules of a scenario have come to before."""

    #: From where they have gone on, where nobody was in the middle of
    #: something.
    visited: set[object] = dataclasses.field(default_factory=set)
    #: How it ends, from what there is when all is over.
    ends: dict[object, Broken | None] = dataclasses.field(
        default_factory=dict)


def _silent(who: str, what: str) -> None:
    pass


def play(stage: Stage, scenario: Scenario, choices: Choices,
         tell: Callable[[str, str], None] = _silent,
         seen: Seen | None = None) -> Run:
    """One schedule, from the start to the end.

    :param seen: it is left out if another one has done the same
    """
    scheduler = Scheduler(choices, tell)
    if seen is not None:
        scheduler.visited = seen.visited
    scheduler.mortal = COMPUTE
    world = stage.world = World(scheduler)
    cloud = Cloud(world, stage.manager(scenario.release, scenario.triggers))
    broken, is_left_out = None, False
    try:
        scenario.setup(cloud)
        scheduler.run()
        end = world.fingerprint()
        if seen is None or end not in seen.ends:
            broken = _end(cloud, scheduler)
            if seen is not None:
                seen.ends[end] = broken
        else:
            broken = seen.ends[end]
    except Broken as exc:
        broken = exc
    except Equivalent:
        is_left_out = True
    finally:
        scheduler.close()
    return Run(choices, scheduler.decisions, broken, is_left_out,
               scheduler.footprints)


def _end(cloud: Cloud, scheduler: Scheduler) -> Broken | None:
    """All is over; the owner reboots twice more, a day later each time."""
    scheduler.is_quiet = True
    try:
        cloud.quiet(SERVER)
        properties.ended(cloud.world, SERVER)
    except Broken as exc:
        return exc
    return None


class _Touched:
    """What the actors of a scenario have touched in any schedule so far."""

    def __init__(self) -> None:
        self._by: dict[str, Footprint] = {}
        self._others: dict[str, Footprint] = {}

    def add(self, run: Run) -> None:
        for name, footprint in run.footprints.items():
            known = self._by.setdefault(name, Footprint())
            if known.add(footprint):
                self._others.clear()

    def by_others(self, actor: str) -> Footprint:
        if actor not in self._others:
            others = self._others[actor] = Footprint()
            for name, footprint in self._by.items():
                if name != actor:
                    others.add(footprint)
        return self._others[actor]


def schedules(stage: Stage, scenario: Scenario, bounds: Bounds,
              seen: Seen | None) -> Iterator[Run]:
    """All schedules within a bound, each of them once.

    Nobody need come between before a step that has nothing to do with
    anything that anybody else touches in any schedule: it makes no difference
    whether that is before or after it.
    """
    waiting: list[Choices] = [{}]
    touched = _Touched()
    needless: list[tuple[Choices, Decision]] = []
    while waiting:
        run = play(stage, scenario, waiting.pop(), seen=seen)
        yield run
        touched.add(run)
        for choices, decision in _otherwise(run, bounds):
            if seen is not None and _is_needless(choices, decision, touched):
                needless.append((choices, decision))
            else:
                waiting.append(choices)
        if not waiting:
            # Somebody may have touched more by now.
            again = [n for n in needless if not _is_needless(*n, touched)]
            needless = [n for n in needless if n not in again]
            waiting += [choices for choices, _ in again]


def _is_needless(choices: Choices, decision: Decision,
                 touched: _Touched) -> bool:
    cost = decision.costs[choices[max(choices)]]
    return (cost == PREEMPTION and decision.done is not None
            and not touched.by_others(decision.actor).meets(decision.done))


def _otherwise(run: Run, bounds: Bounds) -> Iterator[tuple[Choices, Decision]]:
    """What follows when one of the decisions after the last choice is taken
    in another way.
    """
    begin = max(run.choices, default=-1) + 1
    spent = run.spent
    for number in range(begin, len(run.decisions)):
        decision = run.decisions[number]
        for option, cost in enumerate(decision.costs[1:], 1):
            if any(b.allows([*spent[:number], cost]) for b in bounds):
                yield {**run.choices, number: option}, decision


def random_schedule(stage: Stage, scenario: Scenario, bounds: Bounds,
                    dice: random.Random) -> Run:
    """One schedule with decisions that are drawn."""
    choices: dict[int, int] = {}
    run = play(stage, scenario, choices)
    while True:
        others = [choices for choices, _ in _otherwise(run, bounds)]
        if not others or run.broken is not None:
            return run
        run = play(stage, scenario, dice.choice(others))
