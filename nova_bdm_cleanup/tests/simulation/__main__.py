# SPDX-License-Identifier: Apache-2.0
"""Run the search: all schedules within a bound, or random ones for a while.

It needs Nova, for its exceptions, states and objects' names::

    python3 tools/run_tests.py --search
    python -m nova_bdm_cleanup.tests.simulation --preemptions 2
    python -m nova_bdm_cleanup.tests.simulation --seed 7 --minutes 10
    python -m nova_bdm_cleanup.tests.simulation --replay reboot-missing 12:1
    python -m nova_bdm_cleanup.tests.simulation --fault row-before-disconnect
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterator, Sequence
import dataclasses
import gc
import logging
import multiprocessing
import os
import random
import sys
import time
import warnings

# Nova's own are not ours to mend, and nothing here runs in green threads.
warnings.simplefilter('ignore')
os.environ.setdefault('OS_NOVA_DISABLE_EVENTLET_PATCHING', 'true')

import nova.conf

from nova_bdm_cleanup.node import options
from nova_bdm_cleanup.tests.simulation import (
    faults,
    known,
    ports,
    search,
    story,
)
from nova_bdm_cleanup.tests.simulation.scenarios import Scenario, SCENARIOS

#: Garbage is collected once in so many schedules; a scheduler leaves cycles.
_COLLECTED = 500


@dataclasses.dataclass
class Outcome:
    """What the search of one scenario gave."""

    schedules: int = 0
    #: Those that do the same as another one.
    left_out: int = 0
    #: By the expected finding: how often.
    expected: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter)
    #: Of the first that nobody expects.
    story: str = ''


def _search(scenario: Scenario, runs: Iterator[search.Run],
            stage: ports.Stage) -> Outcome:
    outcome = Outcome()
    for run in runs:
        if run.is_left_out:
            outcome.left_out += 1
        else:
            outcome.schedules += 1
        if not (outcome.schedules + outcome.left_out) % _COLLECTED:
            gc.collect()
        if run.broken is None:
            continue
        finding = known.finding_of(run.broken)
        if finding is None:
            outcome.story = story.tell(stage, scenario, run.choices)
            break
        outcome.expected[finding] += 1
    return outcome


_arguments: argparse.Namespace


def _exhaust(name: str) -> Outcome:
    """One scenario, in a process of its own."""
    scenario = SCENARIOS[name]
    with ports.plugged_in() as stage:
        return _search(scenario, search.schedules(
            stage, scenario, _bounds(scenario), search.Seen()), stage)


def _bounds(scenario: Scenario) -> search.Bounds:
    """One preemption with kills and faults, and more of them without; all of
    it together only if that is asked for.
    """
    preemptions = _asked(_arguments.preemptions, scenario.preemptions)
    mischiefs = _asked(_arguments.mischiefs, scenario.mischiefs)
    return (search.Bound(min(1, preemptions), mischiefs),
            search.Bound(preemptions,
                         mischiefs if _arguments.together else 0))


def _asked(argument: int | None, default: int) -> int:
    return default if argument is None else argument


def _hunt(name: str) -> faults.Hunt:
    """One fault, in a process of its own."""
    return faults.hunt(faults.FAULTS[name], _bounds)


def _draw(name: str) -> Outcome:
    """Random schedules of one scenario, until the time is over."""
    scenario = SCENARIOS[name]
    dice = random.Random(f'{_arguments.seed} {name}')
    bounds = (search.Bound(_asked(_arguments.preemptions, 4),
                           _asked(_arguments.mischiefs, 1)),)
    until = time.monotonic() + (
        60 * _arguments.minutes * _arguments.processes
        / len(_arguments.scenarios))

    def runs() -> Iterator[search.Run]:
        while time.monotonic() < until:
            yield search.random_schedule(stage, scenario, bounds, dice)

    with ports.plugged_in() as stage:
        return _search(scenario, runs(), stage)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='python -m nova_bdm_cleanup.tests.simulation',
        description='Search all interleavings of a small model for one that '
        'breaks a property.')
    parser.add_argument('scenarios', nargs='*', metavar='SCENARIO',
                        help='only these; --list names them')
    parser.add_argument('--list', action='store_true',
                        help='name the scenarios and the faults, and end')
    parser.add_argument('--preemptions', type=_count, metavar='N',
                        help='how often somebody comes between who need not '
                        '(1, or 2 where these are few)')
    parser.add_argument('--mischiefs', type=_count, metavar='N',
                        help='how many kills and faults there are (1)')
    parser.add_argument('--together', action='store_true',
                        help='have all preemptions and mischiefs in one '
                        'schedule, and not only one preemption with them')
    parser.add_argument('--seed', type=int, metavar='N',
                        help='draw random schedules instead')
    parser.add_argument('--minutes', type=float, metavar='N', default=1.0,
                        help='for how long they are drawn (1)')
    parser.add_argument('--processes', type=int, metavar='N',
                        default=min(2, os.cpu_count() or 1),
                        help='how many work at a time (2)')
    parser.add_argument('--first', action='store_true',
                        help='end with the first property that is broken')
    parser.add_argument('--replay', nargs=2, metavar=('SCENARIO', 'CHOICES'),
                        help='tell one schedule, as a story names it')
    parser.add_argument('--fault', metavar='FAULT', choices=faults.FAULTS,
                        help='tell how the search finds one fault; --list '
                        'names them')
    found = parser.parse_args(arguments)
    for name in (*found.scenarios, *(found.replay or ())[:1]):
        if name not in SCENARIOS:
            parser.error(f'there is no scenario {name}; there are: '
                         + ', '.join(SCENARIOS))
    if found.minutes <= 0 or found.processes < 1:
        parser.error('--minutes and --processes must be more than 0')
    found.scenarios = found.scenarios or list(SCENARIOS)
    return found


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f'{text}: a number from 0 on')
    return int(text)


def _replay(name: str, choices: str) -> int:
    try:
        with ports.plugged_in() as stage:
            print(story.tell(stage, SCENARIOS[name], story.read(choices)))
    except ValueError as exc:
        print(f'{choices} is no schedule of {name}: {exc}', file=sys.stderr)
        return 2
    return 0


def _tell_hunt(hunted: faults.Hunt) -> int:
    print('\n\n'.join(filter(None, (hunted.story, hunted.problem))))
    return 1 if hunted.problem else 0


def main(arguments: Sequence[str] | None = None) -> int:
    global _arguments
    _arguments = _parse(arguments)
    if _arguments.list:
        for scenario in SCENARIOS.values():
            print(f'{scenario.name:40} {scenario.words}')
        for fault in faults.FAULTS.values():
            print(f'--fault {fault.name:32} {fault.harm}')
        return 0
    nova.conf.CONF([], project='nova', default_config_files=[])
    options.register_opts(nova.conf.CONF)
    logging.disable(logging.CRITICAL)
    if _arguments.replay:
        return _replay(*_arguments.replay)
    if _arguments.fault:
        return _tell_hunt(_hunt(_arguments.fault))
    # What is there by now stays: it need not be looked at again and again.
    gc.collect()
    gc.freeze()
    gc.disable()
    return _run()


def _run() -> int:
    begun = time.monotonic()
    work = _exhaust if _arguments.seed is None else _draw
    done: list[Outcome] = []
    with multiprocessing.get_context('fork').Pool(
            _arguments.processes, maxtasksperchild=1) as pool:
        for outcome in pool.imap_unordered(work, _arguments.scenarios):
            done.append(outcome)
            _progress(done, len(_arguments.scenarios), begun)
            if outcome.story:
                print(outcome.story)
                if _arguments.first:
                    break
        hunted = pool.map(_hunt, faults.FAULTS) if _is_whole() else []
    return _sum_up(done, hunted, time.monotonic() - begun)


def _is_whole() -> bool:
    """Whether all is searched that is searched by default."""
    return (_arguments.seed is None and not _arguments.first
            and _arguments.preemptions is None
            and _arguments.mischiefs is None
            and len(_arguments.scenarios) == len(SCENARIOS))


def _progress(done: Sequence[Outcome], number: int, begun: float) -> None:
    if sys.stderr.isatty():
        end = '\n' if len(done) == number else ''
        sys.stderr.write(
            f'\r\033[K{len(done)} of {number} scenarios, '
            f'{sum(o.schedules for o in done)} schedules, '
            f'{time.monotonic() - begun:.0f} s{end}')
        sys.stderr.flush()


def _sum_up(done: Sequence[Outcome], hunted: Sequence[faults.Hunt],
            seconds: float) -> int:
    schedules = sum(o.schedules for o in done)
    left_out = sum(o.left_out for o in done)
    broken = [o for o in done if o.story]
    expected: collections.Counter[str] = collections.Counter()
    for outcome in done:
        expected.update(outcome.expected)
    for name, finding in known.FINDINGS.items():
        if expected[name]:
            print(f'expected: {name}, {expected[name]} times: '
                  f'{finding.words}')
    missing = known.FINDINGS.keys() - expected.keys()
    kind = ('all schedules' if _arguments.seed is None
            else f'random schedules of seed {_arguments.seed}')
    print(f'{len(done)} scenarios, {schedules} schedules in {seconds:.0f} s: '
          f'{kind} within the bound; {left_out} more begin and then do the '
          'same as one of these')
    problems = [h.problem for h in hunted if h.problem]
    if hunted:
        print(f'{len(hunted) - len(problems)} of {len(hunted)} faults are '
              'found as they must be', *problems, sep='\n')
    # What a kill brings about is not found where there is none.
    if _is_whole() and missing and not broken:
        print('found no more, take it out of known.py: '
              + ', '.join(sorted(missing)))
        return 1
    failed = len(broken) + len(problems)
    print(f'{len(done) + len(hunted) - failed} passed, {failed} failed')
    return 1 if failed or not schedules else 0


if __name__ == '__main__':
    sys.exit(main())
