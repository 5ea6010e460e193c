# SPDX-License-Identifier: Apache-2.0
"""All schedules of a scenario within a bound, each of them once.

A schedule is run again from its start with other decisions: for each decision
that was taken by default, every other option that the bound allows.  So every
schedule is run, and none twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import random

from nova_bdm_cleanup.tests.simulation import ends, properties
from nova_bdm_cleanup.tests.simulation.move_operations import Cloud
from nova_bdm_cleanup.tests.simulation.ports import Harness
from nova_bdm_cleanup.tests.simulation.scenarios import Scenario, SERVER
from nova_bdm_cleanup.tests.simulation.scheduler import (
    Decision,
    Equivalent,
    FAILURE,
    Footprint,
    PREEMPTION,
    Scheduler,
    Violation,
)
from nova_bdm_cleanup.tests.simulation.world import COMPUTE, World

#: Options that differ from the default, by the number of the decision.
Choices = Mapping[int, int]


@dataclasses.dataclass(frozen=True)
class Bound:
    """Limits of one schedule."""

    #: Number of preemptions.
    preemptions: int = 1
    #: Number of kills and failed calls.
    failures: int = 1

    def allows(self, costs: Sequence[str | None]) -> bool:
        return (costs.count(PREEMPTION) <= self.preemptions
                and costs.count(FAILURE) <= self.failures)


#: Alternative bounds: a schedule must be within one of them.
Bounds = Sequence[Bound]


@dataclasses.dataclass(frozen=True)
class Run:
    """Result of one schedule."""

    choices: Choices
    decisions: Sequence[Decision]
    violation: Violation | None = None
    #: It was skipped: another schedule is equivalent.
    is_skipped: bool = False
    #: What each actor read and changed, by its name.
    footprints: Mapping[str, Footprint] = dataclasses.field(
        default_factory=dict)

    @property
    def spent(self) -> list[str | None]:
        return [d.costs[d.chosen] for d in self.decisions]


@dataclasses.dataclass
class ReachedStates:
    """States that earlier schedules of a scenario have reached."""

    #: States in which no actor was in the middle of an operation.
    visited: set[object] = dataclasses.field(default_factory=set)
    #: Violation found by the final checks, by the final state.
    ends: dict[object, Violation | None] = dataclasses.field(
        default_factory=dict)


def _ignore_step(actor: str, step: str) -> None:
    pass


def run_schedule(harness: Harness, scenario: Scenario, choices: Choices,
                 on_step: Callable[[str, str], None] = _ignore_step,
                 reached: ReachedStates | None = None,
                 bounds: Bounds = ()) -> Run:
    """Run one schedule, from the start to the end.

    :param reached: to skip it if another schedule is equivalent
    :param bounds: the bounds of the other schedules
    """
    scheduler = Scheduler(choices, on_step)
    if reached is not None:
        scheduler.visited = reached.visited
        scheduler.may_add = lambda costs, cost: _allow(bounds, [*costs, cost])
    scheduler.killable_process = COMPUTE
    world = harness.world = World(scheduler)
    cloud = Cloud(world, harness.manager(scenario.release, scenario.triggers))
    violation, is_skipped = None, False
    try:
        scenario.setup(cloud)
        world.initial_choices = tuple(d.chosen for d in scheduler.decisions)
        scheduler.run()
        if world.is_compared:
            ends.check(harness, scenario, world)
        end = world.fingerprint()
        if reached is None or end not in reached.ends:
            violation = _run_final_checks(cloud, scheduler)
            if reached is not None:
                reached.ends[end] = violation
        else:
            violation = reached.ends[end]
    except Violation as exc:
        violation = exc
    except Equivalent:
        is_skipped = True
    finally:
        scheduler.close()
    return Run(choices, scheduler.decisions, violation, is_skipped,
               scheduler.footprints)


def _run_final_checks(cloud: Cloud, scheduler: Scheduler) -> Violation | None:
    """Run the final checks, after more reboots a day apart each."""
    scheduler.is_undisturbed = True
    try:
        cloud.finish_all(SERVER)
        properties.check_end(cloud.world, SERVER)
    except Violation as exc:
        return exc
    return None


class _Footprints:
    """Footprints of the actors in all schedules so far."""

    def __init__(self) -> None:
        self._by_actor: dict[str, Footprint] = {}
        self._others: dict[str, Footprint] = {}

    def add(self, run: Run) -> None:
        for name, footprint in run.footprints.items():
            known = self._by_actor.setdefault(name, Footprint())
            if known.add(footprint):
                self._others.clear()

    def by_others(self, actor: str) -> Footprint:
        if actor not in self._others:
            others = self._others[actor] = Footprint()
            for name, footprint in self._by_actor.items():
                if name != actor:
                    others.add(footprint)
        return self._others[actor]


@dataclasses.dataclass(frozen=True)
class _Alternative:
    """Choices that change one decision of a run."""

    run: Run
    #: The decision by its number, and its new option.
    number: int
    option: int

    @property
    def choices(self) -> Choices:
        return {**self.run.choices, self.number: self.option}

    @property
    def decision(self) -> Decision:
        return self.run.decisions[self.number]

    @property
    def cost(self) -> str | None:
        return self.decision.costs[self.option]

    @property
    def is_known_kill(self) -> bool:
        return (self.decision.is_kill_known
                and self.option == len(self.decision.costs) - 1)

    def is_one_step_earlier(self, bounds: Bounds) -> bool:
        """Return whether the same interruption one step later is equivalent.

        It is if the others did nothing then that conflicts with this step:
        they would do the same one step earlier.  It was run before, since
        later alternatives are run first.
        """
        done, later = self.decision.done, self.number + 1
        if (self.cost != PREEMPTION or done is None
                or later == len(self.run.decisions)
                # Then this step may fail after the interruption.
                or _allow(bounds, [*self.run.spent[:self.number],
                                   PREEMPTION, FAILURE])
                or not self.run.decisions[later].follows(self.decision)):
            return False
        since = self.run.decisions[later].interrupted.get(self.option)
        if since is None or since.conflicts_with(done):
            return False
        self.decision.interrupted[self.option] = since
        return True

    def record(self, run: Run, bounds: Bounds) -> None:
        """Record what others did, after the run of the alternative."""
        last = run.decisions[self.number]
        if (last.since is not None
                # Nothing else can be chosen before the actor continues.
                and all(a.number >= last.end
                        for a in _alternatives(run, bounds))):
            self.decision.interrupted[self.option] = last.since


def _allow(bounds: Bounds, costs: Sequence[str | None]) -> bool:
    return any(bound.allows(costs) for bound in bounds)


def schedules(harness: Harness, scenario: Scenario, bounds: Bounds,
              reached: ReachedStates | None) -> Iterator[Run]:
    """Run all schedules within a bound, each of them once.

    A preemption is not needed before a step that touches nothing that another
    actor touches in any schedule: the order makes no difference.
    """
    footprints = _Footprints()
    waiting: list[_Alternative] = []
    needless: list[_Alternative] = []
    run = run_schedule(harness, scenario, {}, reached=reached, bounds=bounds)
    while True:
        yield run
        footprints.add(run)
        for other in _alternatives(run, bounds):
            if reached is not None and _is_needless(other, footprints):
                needless.append(other)
            else:
                waiting.append(other)
        if not waiting:
            # Later schedules may have touched more.
            waiting = [n for n in needless if not _is_needless(n, footprints)]
            needless = [n for n in needless if _is_needless(n, footprints)]
        if not waiting:
            return
        alternative = waiting.pop()
        if reached is not None and (
                alternative.is_known_kill
                or alternative.is_one_step_earlier(bounds)):
            run = Run(alternative.choices, (), is_skipped=True)
        else:
            run = run_schedule(harness, scenario, alternative.choices,
                               reached=reached, bounds=bounds)
            alternative.record(run, bounds)


def _is_needless(alternative: _Alternative, footprints: _Footprints) -> bool:
    decision = alternative.decision
    return (alternative.cost == PREEMPTION and decision.done is not None
            and not footprints.by_others(decision.actor).conflicts_with(
                decision.done))


def _alternatives(run: Run, bounds: Bounds) -> Iterator[_Alternative]:
    """Yield the choices that change one decision after the last choice."""
    begin = max(run.choices, default=-1) + 1
    spent = run.spent
    for number in range(begin, len(run.decisions)):
        for option, cost in enumerate(run.decisions[number].costs[1:], 1):
            if _allow(bounds, [*spent[:number], cost]):
                yield _Alternative(run, number, option)


def random_schedule(harness: Harness, scenario: Scenario, bounds: Bounds,
                    rng: random.Random) -> Run:
    """Run one schedule with random decisions."""
    choices: Choices = {}
    run = run_schedule(harness, scenario, choices)
    while True:
        others = [a.choices for a in _alternatives(run, bounds)]
        if not others or run.violation is not None:
            return run
        run = run_schedule(harness, scenario, rng.choice(others))
