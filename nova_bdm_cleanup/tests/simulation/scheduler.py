# SPDX-License-Identifier: Apache-2.0
"""Scheduler that interleaves actors step by step, reproducibly.

An actor is a function that runs in a greenlet of its own.  Before each step
that others can notice, it names the step, and the scheduler decides: the
actor continues, another actor continues, the process is killed, or the step
fails.  A schedule is the list of these decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Any

import greenlet  # noqa: TID251 - no nova-compute runs here

#: Costs of a decision; a search bounds the number of each.
PREEMPTION, FAILURE = 'preemption', 'failure'

#: More steps than any run that ends.
_MAX_STEPS = 4000


class Killed(BaseException):
    """The process of the actor was killed."""


class Violation(BaseException):
    """A violation of a property.

    :param situation: the known circumstance that caused it, if there is one
    """

    def __init__(self, name: str, text: str, situation: str = '') -> None:
        super().__init__(f'{name}: {text}')
        self.name = name
        self.situation = situation


class Equivalent(BaseException):
    """Another schedule with the same cost is equivalent."""


class Footprint:
    """The records that were read and changed."""

    __slots__ = ('changed_keys', 'read_keys')

    def __init__(self) -> None:
        self.read_keys: set[str] = set()
        self.changed_keys: set[str] = set()

    def add(self, other: Footprint) -> bool:
        """Add another footprint; return whether it had new records."""
        if (other.read_keys <= self.read_keys
                and other.changed_keys <= self.changed_keys):
            return False
        self.read_keys |= other.read_keys
        self.changed_keys |= other.changed_keys
        return True

    def conflicts_with(self, other: Footprint) -> bool:
        """Return whether the order of the two matters."""
        return not (self.changed_keys.isdisjoint(other.changed_keys)
                    and self.changed_keys.isdisjoint(other.read_keys)
                    and self.read_keys.isdisjoint(other.changed_keys))


@dataclasses.dataclass
class Slice:
    """Steps of one actor without an interruption."""

    actor: Actor
    #: The actors that could have continued instead.
    alternatives: Sequence[Actor]
    footprint: Footprint = dataclasses.field(default_factory=Footprint)


@dataclasses.dataclass
class Decision:
    """A decision that was taken."""

    costs: tuple[str | None, ...]
    chosen: int
    #: The actor before whose step it was taken, and those that could interrupt
    #: it, by their numbers; and the number of the step.
    subject: int | None = None
    others: tuple[int, ...] = ()
    step: int = 0
    #: The last option is a kill that leads to the state after another one.
    is_kill_known: bool = False
    #: The actor that continued and its step, if it was not interrupted.
    actor: str = ''
    done: Footprint | None = None
    #: What others did until the interrupted actor continued, and the number
    #: of the decision that came next.
    since: Footprint | None = None
    end: int = 0
    #: What others would do if it chose another option, where that is known.
    interrupted: dict[int, Footprint] = dataclasses.field(
        default_factory=dict)

    def follows(self, other: Decision) -> bool:
        """Return whether the same actors had this choice one step later."""
        return (self.subject, self.step - 1, self.others) == (
            other.subject, other.step, other.others)


class Actor:
    """A concurrent operation.

    :param number: the number of actors before it
    :param name: its name in traces
    :param process: the process that it dies with
    :param func: the operation
    :param hub: the greenlet to switch to when it waits or ends
    """

    def __init__(self, number: int, name: str, process: str,
                 func: Callable[[], object], hub: greenlet.greenlet) -> None:
        self.number = number
        self.name = name
        self.process = process
        self._func = func
        self._greenlet = greenlet.greenlet(self._run, hub)
        #: Thread-local data of Nova and the plugin.
        self.local: dict[str, Any] = {}
        #: The condition that it waits for.
        self.waiting: Callable[[], bool] | None = None
        #: It waits without a timeout.
        self.waits_forever = True
        self.is_over = False
        #: It is inside the cleanup, whose calls can fail.
        self.is_cleaning = False
        self.error: BaseException | None = None

    def _run(self, _: object) -> None:
        try:
            self._func()
        except Killed:
            pass
        except BaseException as exc:
            self.error = exc
        finally:
            self.is_over = True

    @property
    def can_run(self) -> bool:
        return not self.is_over and (self.waiting is None or self.waiting())

    @property
    def is_under_way(self) -> bool:
        """Return whether it has begun and not ended."""
        return bool(self._greenlet)

    def resume(self, what: object) -> Any:
        return self._greenlet.switch(what)

    def kill(self) -> None:
        """End it at once, wherever it is."""
        self.is_over = True
        if self.is_under_way:
            self._greenlet.throw(Killed())


@dataclasses.dataclass
class Point:
    """The next step of an actor."""

    description: str
    failures: Sequence[str] = ()
    #: Kind of a read: as long as nothing changes, it does not matter which
    #: read of a kind fails.
    question: str = ''


class Scheduler:
    """The run of one schedule.

    :param choices: options by the number of the decision; by default the
        first one
    :param tell: is called with each actor and step, for a trace
    """

    def __init__(self, choices: Mapping[int, int],
                 on_step: Callable[[str, str], None]) -> None:
        self._choices = choices
        self._on_step = on_step
        self._hub = greenlet.getcurrent()
        self.actors: list[Actor] = []
        self.decisions: list[Decision] = []
        self.current: Actor | None = None
        self._steps = 0
        self._points: dict[Actor, Point] = {}
        self._failure: str | None = None
        #: The process that can be killed, and the callback for that.
        self.killable_process = ''
        self.on_kill: Callable[[], None] = lambda: None
        self._footprint = Footprint()
        #: What each actor has read and changed so far, by its name.
        self.footprints: dict[str, Footprint] = {}
        #: The decision to continue, until the footprint of its step is known.
        self._open_decision: Decision | None = None
        #: What other actors have done since an actor was interrupted.
        self._done_since_interruption: dict[Actor, Footprint] = {}
        #: The decision to interrupt an actor.
        self._interruptions: dict[Actor, Decision] = {}
        #: The last two slices that ended without an interruption.
        self._last_slice: Slice | None = None
        self._previous_slice: Slice | None = None
        #: The failures that were possible since the last change.
        self._offered_failures: set[object] = set()
        #: Returns the state, without local variables of actors.
        self.fingerprint: Callable[[], object] = object
        #: States that earlier schedules have reached; None: equivalent
        #: schedules are not skipped.
        self.visited: set[object] | None = None
        #: Returns whether the bound allows one more cost.
        self.may_add: Callable[[Sequence[str | None], str], bool] = (
            lambda costs, cost: True)
        #: The process was killed inside the cleanup.
        self.was_cleaning = False
        #: No more failures and preemptions.
        self.is_undisturbed = False

    def spawn(self, name: str, process: str,
              func: Callable[[], object]) -> None:
        """Start another actor."""
        self.actors.append(Actor(
            len(self.actors), name, process, func, self._hub))

    def choose(self, options: Sequence[str]) -> str:
        """Choose a part of the initial state; the search tries each."""
        chosen = options[self._decide([None] * len(options))]
        if chosen:
            self._on_step('scenario', chosen)
        return chosen

    # What actors call

    def step(self, description: str, failures: Sequence[str] = (),
             question: str = '') -> str | None:
        """Let other actors continue before something is done.

        :param description: the step
        :param failures: how it may fail
        :param question: its kind, if it is a read
        :returns: one of the failures, if it fails
        """
        actor = self.current
        if actor is None:
            return None  # The scenario is being set up or checked.
        if actor.is_over:
            raise Killed
        failure: str | None = self._hub.switch(
            Point(description, failures, question))
        return failure

    def wait(self, description: str, until: Callable[[], bool],
             waits_forever: bool = True) -> bool:
        """Wait for a condition.

        :param is_patient: wait without a timeout
        :returns: whether the condition holds
        """
        actor = self.current
        if actor.is_over:
            raise Killed
        if until():
            return True
        self._on_step(actor.name, 'waits: ' + description)
        actor.waiting, actor.waits_forever = until, waits_forever
        self._hub.switch(None)
        actor.waiting = None
        return until()

    def reads(self, *keys: str) -> None:
        """Record that the current step reads something."""
        self._footprint.read_keys.update(keys)

    def changes(self, *keys: str) -> None:
        """Record that the current step changes something."""
        self._footprint.changed_keys.update(keys)
        self._offered_failures.clear()

    # The run

    def run(self) -> None:
        """Run all actors to their end.

        :raises Broken: when an actor waits forever, or fails unexpectedly
        :raises Equivalent: when another schedule is equivalent
        """
        other: Actor | None = None
        while True:
            if other is None:
                actor = self._choose_actor()
            else:
                actor = other
                self._last_slice = self._previous_slice = None
            other = self._run_actor(actor)
            if other is None:
                self._end_slice()
                if all(a.is_over for a in self.actors):
                    return

    def _choose_actor(self) -> Actor:
        """Choose the next actor when the last one cannot continue."""
        self._skip_reached_state()
        ready = [a for a in self.actors if a.can_run]
        if ready:
            chosen = self._decide([None] * len(ready))
            self._last_slice = Slice(ready[chosen], ready[:chosen])
            return ready[chosen]
        self._last_slice = None
        waiting = [a for a in self.actors if not a.is_over]
        impatient = [a for a in waiting if not a.waits_forever]
        if not impatient:
            raise Violation('every-operation-ends', ', '.join(
                f'{a.name} waits' for a in waiting))
        # Those that wait with a timeout reach it.
        return impatient[0]

    def _skip_reached_state(self) -> None:
        """Skip the schedule if an earlier one has reached the same state.

        This holds only where no actor is in the middle of an operation: then
        the state alone decides what follows.
        """
        alive = [a for a in self.actors if not a.is_over]
        if (self.visited is None or self.is_undisturbed or not alive
                or any(a.is_under_way for a in alive)
                or len(self.decisions) <= max(self._choices, default=-1)):
            return
        spent = [d.costs[d.chosen] for d in self.decisions]
        state = (self.fingerprint(), tuple(a.name for a in alive),
                 spent.count(PREEMPTION), spent.count(FAILURE))
        if state in self.visited:
            self._skip()
        self.visited.add(state)

    def _end_slice(self) -> None:
        """Skip one of the two orders of independent slices."""
        former, last = self._previous_slice, self._last_slice
        if (former is not None and last is not None
                and last.actor in former.alternatives
                and not former.footprint.conflicts_with(last.footprint)):
            self._skip()
        self._previous_slice = last

    def _skip(self) -> None:
        if self.visited is not None and not self.is_undisturbed:
            raise Equivalent

    def _run_actor(self, actor: Actor) -> Actor | None:
        """Run an actor until it ends, waits or is interrupted.

        :returns: the actor that interrupts it, if any
        """
        point = self._points.pop(actor, None)
        if point is None:
            point = self._resume(actor, None)
        elif self._decide_step(actor, point, ()) is not None:
            return None
        else:
            point = self._take_step(actor, point)
        while point is not None:
            others = [a for a in self.actors if not a.is_over
                      and a is not actor and a.can_run]
            other = self._decide_step(actor, point, others)
            if other is actor:
                return None
            if other is not None:
                self._points[actor] = point
                self._done_since_interruption[actor] = Footprint()
                self._interruptions[actor] = self.decisions[-1]
                return other
            point = self._take_step(actor, point)
        return None

    def _decide_step(self, actor: Actor, point: Point,
                     others: Sequence[Actor]) -> Actor | None:
        """Decide at a point what happens next.

        :returns: the actor that interrupts; the actor itself if it was killed
        """
        self._failure = None
        if self.is_undisturbed:
            return None
        # As long as nothing changes, each kill is equivalent.
        is_killable = (actor.process == self.killable_process
                       and self._is_new('killed'))
        failures = point.failures if not point.question or self._is_new(
            actor, point.question) else ()
        costs = [None, *[PREEMPTION] * len(others),
                 *[FAILURE] * (len(failures) + is_killable)]
        chosen = self._decide(costs)
        if len(costs) > 1:
            made = self.decisions[-1]
            made.subject, made.step = actor.number, self._steps
            made.others = tuple(other.number for other in others)
            made.is_kill_known = is_killable and self._is_kill_known()
        if not chosen:
            self._open_decision = made if len(costs) > 1 else None
            return None
        if chosen <= len(others):
            return others[chosen - 1]
        chosen -= 1 + len(others)
        if chosen < len(failures):
            self._failure = failures[chosen]
            return None
        self._on_step(self.killable_process,
                      f'is killed (next step of {actor.name}: '
                      f'{point.description})')
        self._kill()
        return actor

    def _is_kill_known(self) -> bool:
        """Return whether another schedule is killed in the same state.

        This holds only where no actor of another process is in the middle of
        an operation: then the state alone decides what follows.
        """
        costs = [d.costs[d.chosen] for d in self.decisions]
        if (self.visited is None
                or len(self.decisions) <= max(self._choices, default=-1) + 1
                or not self.may_add(costs, FAILURE)):
            return False
        left = [a for a in self.actors if not a.is_over and not (
            a.is_under_way and a.process == self.killable_process)]
        if any(a.is_under_way for a in left):
            return False
        state = ('killed', self.fingerprint(), tuple(a.name for a in left),
                 any(a.is_cleaning for a in self.actors),
                 costs.count(PREEMPTION), costs.count(FAILURE))
        is_known = state in self.visited
        self.visited.add(state)
        return is_known

    def _is_new(self, *what: object) -> bool:
        if what in self._offered_failures:
            return False
        self._offered_failures.add(what)
        return True

    def _take_step(self, actor: Actor, point: Point) -> Point | None:
        """Run an actor's current step, and return its next one."""
        self._on_step(actor.name, point.description + (
            f' -- {self._failure}' if self._failure else ''))
        return self._resume(actor, self._failure)

    def _resume(self, actor: Actor, what: object) -> Point | None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise Violation('every-operation-ends', 'it does not end')
        if not actor.is_under_way:
            self._offered_failures.clear()
        self.current = actor
        number = len(self.decisions)
        done = self._footprint = Footprint()
        point: Point | None = actor.resume(what)
        self.current = None
        self.footprints.setdefault(actor.name, Footprint()).add(done)
        if self._open_decision is not None:
            self._open_decision.actor = actor.name
            self._open_decision.done = done
            self._open_decision = None
        if self._last_slice is not None:
            self._last_slice.footprint.add(done)
        since = self._done_since_interruption.pop(actor, None)
        if since is not None:
            interruption = self._interruptions.pop(actor)
            interruption.since, interruption.end = since, number
        for others in self._done_since_interruption.values():
            others.add(done)
        if isinstance(actor.error, Exception):
            # For example, an attach needs a row that was deleted.
            raise Violation('no-unexpected-exception',
                            f'{actor.name}: {actor.error!r}') from actor.error
        if actor.error is not None:
            raise actor.error
        if since is not None and not since.conflicts_with(done):
            # An interruption one step later is equivalent.
            self._skip()
        return None if actor.is_over or actor.waiting else point

    def _decide(self, costs: Sequence[str | None]) -> int:
        """Return the number of the chosen option.

        :param costs: the cost of each option
        """
        if self.is_undisturbed or len(costs) == 1:
            return 0
        chosen = self._choices.get(len(self.decisions), 0)
        if chosen >= len(costs):
            raise ValueError(f'decision {len(self.decisions)} has only '
                             f'{len(costs)} options')
        self.decisions.append(Decision(tuple(costs), chosen))
        return chosen

    def _kill(self) -> None:
        """End all actors of the process where they are.

        Operations that have not begun are still in the queue, and begin when
        the process runs again.
        """
        self.was_cleaning = any(a.is_cleaning for a in self.actors)
        for actor in self.actors:
            if actor.process == self.killable_process and actor.is_under_way:
                self._end(actor)
        # The position of each actor at the kill matters.
        self._done_since_interruption.clear()
        self._interruptions.clear()
        self._last_slice = self._previous_slice = None
        self.on_kill()

    def close(self) -> None:
        """End all actors, however the run ended."""
        for actor in self.actors:
            self._end(actor)

    def _end(self, actor: Actor) -> None:
        if not actor.is_over:
            self.current = actor
            actor.kill()
            self.current = None
            self._points.pop(actor, None)
