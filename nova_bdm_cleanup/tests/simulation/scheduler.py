# SPDX-License-Identifier: Apache-2.0
"""Actors that take turns at every step, in an order that can be repeated.

An actor is a function that runs in a greenlet of its own.  Before each thing
that others can notice it says what it is about to do, and the scheduler
decides who goes on: the actor itself, another one, or nobody because the
process is killed; or that the step goes wrong.  A schedule is the list of
these decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Any

import greenlet  # noqa: TID251 - no nova-compute runs here

#: What a decision costs, of which a search bounds each.
PREEMPTION, MISCHIEF = 'preemption', 'mischief'

#: More steps than any run of a scenario has that ends.
_ENDLESS = 4000


class Killed(BaseException):
    """The process of the actor is gone."""


class Broken(BaseException):
    """A property does not hold.

    :param situation: how it came to that, if it is one that is known
    """

    def __init__(self, name: str, text: str, situation: str = '') -> None:
        super().__init__(f'{name}: {text}')
        self.name = name
        self.situation = situation


class Equivalent(BaseException):
    """Another schedule, which costs as much, does the same."""


class Footprint:
    """What was looked at and what was changed."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.changed: set[str] = set()

    def add(self, other: Footprint) -> bool:
        """Add another one; whether there was anything new in it."""
        if other.seen <= self.seen and other.changed <= self.changed:
            return False
        self.seen |= other.seen
        self.changed |= other.changed
        return True

    def meets(self, other: Footprint) -> bool:
        """Whether the order of the two matters."""
        return not (self.changed.isdisjoint(other.changed)
                    and self.changed.isdisjoint(other.seen)
                    and self.seen.isdisjoint(other.changed))


@dataclasses.dataclass
class Slice:
    """What one actor did without anybody coming between."""

    actor: Actor
    #: Who could have gone on instead.
    instead: Sequence[Actor]
    footprint: Footprint = dataclasses.field(default_factory=Footprint)


@dataclasses.dataclass
class Decision:
    """A decision that was taken."""

    costs: tuple[str | None, ...]
    chosen: int
    #: Who went on, and what with, if nobody came between.
    actor: str = ''
    done: Footprint | None = None


class Actor:
    """Something that goes on by itself.

    :param name: for the story
    :param process: what dies together
    :param func: what it does
    :param hub: where to go on when it waits or ends
    """

    def __init__(self, name: str, process: str, func: Callable[[], object],
                 hub: greenlet.greenlet) -> None:
        self.name = name
        self.process = process
        self._func = func
        self._greenlet = greenlet.greenlet(self._run, hub)
        #: Of its own: what Nova and the plugin keep for each thread.
        self.local: dict[str, Any] = {}
        #: It waits until this holds.
        self.waiting: Callable[[], bool] | None = None
        #: It is told when it has waited for too long.
        self.is_patient = True
        self.is_over = False
        #: It is inside the cleanup, whose calls can go wrong.
        self.is_cleaning = False
        self.failure: BaseException | None = None

    def _run(self, _: object) -> None:
        try:
            self._func()
        except Killed:
            pass
        except BaseException as exc:
            self.failure = exc
        finally:
            self.is_over = True

    @property
    def can_run(self) -> bool:
        return not self.is_over and (self.waiting is None or self.waiting())

    @property
    def is_under_way(self) -> bool:
        """It has begun, and is not over."""
        return bool(self._greenlet)

    def resume(self, what: object) -> Any:
        return self._greenlet.switch(what)

    def kill(self) -> None:
        """Have it end at once, wherever it is."""
        self.is_over = True
        if self.is_under_way:
            self._greenlet.throw(Killed())


@dataclasses.dataclass
class Point:
    """Where an actor stands, and what it is about to do."""

    words: str
    faults: Sequence[str] = ()
    #: A question: as long as nothing changes, it does not matter which one of
    #: its kind is not answered.
    question: str = ''


class Scheduler:
    """One run.

    :param choices: what is chosen, by the number of the decision; otherwise
        the first option
    :param tell: takes what happens, for the story
    """

    def __init__(self, choices: Mapping[int, int],
                 tell: Callable[[str, str], None]) -> None:
        self._choices = choices
        self._tell = tell
        self._hub = greenlet.getcurrent()
        self.actors: list[Actor] = []
        self.decisions: list[Decision] = []
        self.current: Actor | None = None
        self._steps = 0
        self._points: dict[Actor, Point] = {}
        self._fault: str | None = None
        #: The process that can be killed, and what is called then.
        self.mortal = ''
        self.on_kill: Callable[[], None] = lambda: None
        self._footprint = Footprint()
        #: What each actor has looked at and changed so far, by its name.
        self.footprints: dict[str, Footprint] = {}
        #: The decision to go on, until it is known what with.
        self._open: Decision | None = None
        #: What others have done since an actor was interrupted.
        self._since: dict[Actor, Footprint] = {}
        #: The last two that ended with nobody coming between.
        self._slice: Slice | None = None
        self._former: Slice | None = None
        #: What could have gone wrong since something was changed.
        self._offered: set[object] = set()
        #: Gives what there is, except in what actors hold in their hands.
        self.fingerprint: Callable[[], object] = object
        #: From where others have gone on already; None: no schedule is left
        #: out, although it does the same as another one.
        self.visited: set[object] | None = None
        #: What was killed was inside the cleanup.
        self.was_cleaning = False
        #: Nothing may go wrong, and nobody comes between, any more.
        self.is_quiet = False

    def spawn(self, name: str, process: str,
              func: Callable[[], object]) -> None:
        """Begin something else."""
        self.actors.append(Actor(name, process, func, self._hub))

    # What actors call

    def step(self, words: str, faults: Sequence[str] = (),
             question: str = '') -> str | None:
        """Let others go on before something is done.

        :param words: what is about to be done
        :param faults: how it may go wrong
        :param question: its kind, if it changes nothing
        :returns: one of these, if it does
        """
        actor = self.current
        if actor is None:
            return None  # The scenario is being set up, or looked at.
        if actor.is_over:
            raise Killed
        fault: str | None = self._hub.switch(Point(words, faults, question))
        return fault

    def wait(self, words: str, until: Callable[[], bool],
             is_patient: bool = True) -> bool:
        """Wait for something.

        :param is_patient: it waits for ever, and not only so long
        :returns: whether it has come about
        """
        actor = self.current
        if actor.is_over:
            raise Killed
        if until():
            return True
        self._tell(actor.name, 'waits: ' + words)
        actor.waiting, actor.is_patient = until, is_patient
        self._hub.switch(None)
        actor.waiting = None
        return until()

    def sees(self, *keys: str) -> None:
        """The step that goes on looks at something."""
        self._footprint.seen.update(keys)

    def changes(self, *keys: str) -> None:
        """The step that goes on changes something."""
        self._footprint.changed.update(keys)
        self._offered.clear()

    # The run

    def run(self) -> None:
        """Until all is over.

        :raises Broken: when somebody waits for ever, or fails as nobody may
        :raises Equivalent: when another schedule does the same
        """
        other: Actor | None = None
        while True:
            if other is None:
                actor = self._pick()
            else:
                actor = other
                self._slice = self._former = None
            other = self._go_on(actor)
            if other is None:
                self._end_slice()
                if all(a.is_over for a in self.actors):
                    return

    def _pick(self) -> Actor:
        """Who goes on when the last one cannot: anybody."""
        self._stop_where_others_were()
        ready = [a for a in self.actors if a.can_run]
        if ready:
            chosen = self._decide([None] * len(ready))
            self._slice = Slice(ready[chosen], ready[:chosen])
            return ready[chosen]
        self._slice = None
        waiting = [a for a in self.actors if not a.is_over]
        impatient = [a for a in waiting if not a.is_patient]
        if not impatient:
            raise Broken('nothing-waits-for-ever', ', '.join(
                f'{a.name} waits' for a in waiting))
        # The time is over for whoever does not wait for ever.
        return impatient[0]

    def _stop_where_others_were(self) -> None:
        """If nobody is in the middle of something, what there is decides how
        it goes on.
        """
        alive = [a for a in self.actors if not a.is_over]
        if (self.visited is None or self.is_quiet or not alive
                or any(a.is_under_way for a in alive)
                or len(self.decisions) <= max(self._choices, default=-1)):
            return
        spent = [d.costs[d.chosen] for d in self.decisions]
        state = (self.fingerprint(), tuple(a.name for a in alive),
                 spent.count(PREEMPTION), spent.count(MISCHIEF))
        if state in self.visited:
            self._leave_out()
        self.visited.add(state)

    def _end_slice(self) -> None:
        """Of two that have nothing to do with each other, and could have been
        in either order, one order is enough.
        """
        former, last = self._former, self._slice
        if (former is not None and last is not None
                and last.actor in former.instead
                and not former.footprint.meets(last.footprint)):
            self._leave_out()
        self._former = last

    def _leave_out(self) -> None:
        if self.visited is not None and not self.is_quiet:
            raise Equivalent

    def _go_on(self, actor: Actor) -> Actor | None:
        """Have an actor go on until it ends, waits or is interrupted.

        :returns: who comes between, if somebody does
        """
        point = self._points.pop(actor, None)
        if point is None:
            point = self._resume(actor, None)
        elif self._may_interrupt(actor, point, ()) is not None:
            return None
        else:
            point = self._proceed(actor, point)
        while point is not None:
            others = [a for a in self.actors if a is not actor and a.can_run]
            other = self._may_interrupt(actor, point, others)
            if other is actor:
                return None
            if other is not None:
                self._points[actor] = point
                self._since[actor] = Footprint()
                return other
            point = self._proceed(actor, point)
        return None

    def _may_interrupt(self, actor: Actor, point: Point,
                       others: Sequence[Actor]) -> Actor | None:
        """Decide at a point what happens next.

        :returns: who comes between; the actor itself: it is dead
        """
        self._fault = None
        if self.is_quiet:
            return None
        # As long as nothing changes, it dies in the same place.
        is_mortal = actor.process == self.mortal and self._is_new('killed')
        faults = point.faults if not point.question or self._is_new(
            actor, point.question) else ()
        costs = [None, *[PREEMPTION] * len(others),
                 *[MISCHIEF] * (len(faults) + is_mortal)]
        chosen = self._decide(costs)
        if not chosen:
            self._open = self.decisions[-1] if len(costs) > 1 else None
            return None
        if chosen <= len(others):
            return others[chosen - 1]
        chosen -= 1 + len(others)
        if chosen < len(faults):
            self._fault = faults[chosen]
            return None
        self._tell(self.mortal, f'is killed ({actor.name} was about to: '
                   f'{point.words})')
        self._kill()
        return actor

    def _is_new(self, *what: object) -> bool:
        if what in self._offered:
            return False
        self._offered.add(what)
        return True

    def _proceed(self, actor: Actor, point: Point) -> Point | None:
        """Have an actor do what it was about to do, and come to the next."""
        self._tell(actor.name, point.words + (
            f' -- {self._fault}' if self._fault else ''))
        return self._resume(actor, self._fault)

    def _resume(self, actor: Actor, what: object) -> Point | None:
        self._steps += 1
        if self._steps > _ENDLESS:
            raise Broken('nothing-waits-for-ever', 'it goes on and on')
        if not actor.is_under_way:
            self._offered.clear()
        self.current = actor
        done = self._footprint = Footprint()
        point: Point | None = actor.resume(what)
        self.current = None
        self.footprints.setdefault(actor.name, Footprint()).add(done)
        if self._open is not None:
            self._open.actor, self._open.done = actor.name, done
            self._open = None
        if self._slice is not None:
            self._slice.footprint.add(done)
        since = self._since.pop(actor, None)
        for others in self._since.values():
            others.add(done)
        if isinstance(actor.failure, Exception):
            # A row that is gone, for example, while an attach needs it.
            raise Broken('nothing-is-wrong-with-the-code',
                         f'{actor.name}: {actor.failure!r}') from actor.failure
        if actor.failure is not None:
            raise actor.failure
        if since is not None and not since.meets(done):
            # They could as well have come between one step later.
            self._leave_out()
        return None if actor.is_over or actor.waiting else point

    def _decide(self, costs: Sequence[str | None]) -> int:
        """The number of the option that is chosen.

        :param costs: of each option
        """
        if self.is_quiet or len(costs) == 1:
            return 0
        chosen = self._choices.get(len(self.decisions), 0)
        if chosen >= len(costs):
            raise ValueError(f'decision {len(self.decisions)} has only '
                             f'{len(costs)} options')
        self.decisions.append(Decision(tuple(costs), chosen))
        return chosen

    def _kill(self) -> None:
        """Have all actors of the process end where they are.

        What it has not begun with is still in the queue, and is begun with
        when it is there again.
        """
        self.was_cleaning = any(a.is_cleaning for a in self.actors)
        for actor in self.actors:
            if actor.process == self.mortal and actor.is_under_way:
                self._end(actor)
        # Where everybody stood when it was killed matters.
        self._since.clear()
        self._slice = self._former = None
        self.on_kill()

    def close(self) -> None:
        """Leave nothing behind, however it ended."""
        for actor in self.actors:
            self._end(actor)

    def _end(self, actor: Actor) -> None:
        if not actor.is_over:
            self.current = actor
            actor.kill()
            self.current = None
            self._points.pop(actor, None)
