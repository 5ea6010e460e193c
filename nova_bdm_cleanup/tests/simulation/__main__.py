# SPDX-License-Identifier: Apache-2.0
"""Command that runs all schedules within a bound, or random ones.

It needs Nova's exceptions, states and field names::

    python3 tools/run_tests.py --search
    python -m nova_bdm_cleanup.tests.simulation --preemptions 2
    python -m nova_bdm_cleanup.tests.simulation --seed 7 --minutes 10
    python -m nova_bdm_cleanup.tests.simulation --replay reboot-missing 12:1
    python -m nova_bdm_cleanup.tests.simulation --fault cinder-before-row
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

# Nova's warnings are not ours, and nothing here runs in green threads.
warnings.simplefilter('ignore')
os.environ.setdefault('OS_NOVA_DISABLE_EVENTLET_PATCHING', 'true')

import nova.conf

from nova_bdm_cleanup.node import options
from nova_bdm_cleanup.tests.simulation import (
    faults,
    known_violations,
    ports,
    search,
    trace,
)
from nova_bdm_cleanup.tests.simulation.reconnects import SCENARIOS
from nova_bdm_cleanup.tests.simulation.scenarios import Scenario

#: Number of schedules between two collections of young objects: a scheduler
#: leaves reference cycles, and what survives is not collected again.
_SCHEDULES_PER_COLLECTION = 20


@dataclasses.dataclass
class SearchResult:
    """Result of the search of one scenario."""

    schedules: int = 0
    #: Schedules that are equivalent to another one.
    skipped: int = 0
    #: Number of times that each known violation was found.
    expected: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter)
    #: Trace of the first violation that is not known.
    trace: str = ''


def _check_runs(scenario: Scenario, runs: Iterator[search.Run],
                harness: ports.Harness) -> SearchResult:
    result = SearchResult()
    for run in runs:
        if run.is_skipped:
            result.skipped += 1
        else:
            result.schedules += 1
        if not (result.schedules + result.skipped) % _SCHEDULES_PER_COLLECTION:
            gc.collect(0)
        if run.violation is None:
            continue
        finding = known_violations.name_of(run.violation)
        if finding is None:
            result.trace = trace.render(harness, scenario, run.choices)
            break
        result.expected[finding] += 1
    return result


_arguments: argparse.Namespace


def _search_all(name: str) -> SearchResult:
    """Search one scenario, in a process of its own."""
    scenario = SCENARIOS[name]
    with ports.installed_plugin() as harness:
        return _check_runs(scenario, search.schedules(
            harness, scenario, _bounds(scenario),
            search.ReachedStates()), harness)


def _bounds(scenario: Scenario) -> search.Bounds:
    """Return the bounds of a scenario.

    By default, failures are combined with at most one preemption.
    """
    preemptions = _value_or_default(
        _arguments.preemptions, scenario.preemptions)
    failures = _value_or_default(_arguments.failures, scenario.failures)
    return (search.Bound(min(1, preemptions), failures),
            search.Bound(preemptions,
                         failures if _arguments.together else 0))


def _value_or_default(argument: int | None, default: int) -> int:
    return default if argument is None else argument


def _search_fault(name: str) -> faults.FaultSearch:
    """Search for one fault, in a process of its own."""
    return faults.search_for(faults.FAULTS[name], _bounds)


def _search_randomly(name: str) -> SearchResult:
    """Run random schedules of one scenario, until the time is over."""
    scenario = SCENARIOS[name]
    rng = random.Random(f'{_arguments.seed} {name}')
    bounds = (search.Bound(_value_or_default(_arguments.preemptions, 4),
                           _value_or_default(_arguments.failures, 1)),)
    until = time.monotonic() + (
        60 * _arguments.minutes * _arguments.processes
        / len(_arguments.scenarios))

    def runs() -> Iterator[search.Run]:
        while time.monotonic() < until:
            yield search.random_schedule(harness, scenario, bounds, rng)

    with ports.installed_plugin() as harness:
        return _check_runs(scenario, runs(), harness)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='python -m nova_bdm_cleanup.tests.simulation',
        description='Search all interleavings of a small model for one that '
        'violates a property.')
    parser.add_argument('scenarios', nargs='*', metavar='SCENARIO',
                        help='only these; --list names them')
    parser.add_argument('--list', action='store_true',
                        help='list the scenarios and the faults, and exit')
    parser.add_argument('--preemptions', type=_count, metavar='N',
                        help='number of preemptions (1, or 2 where only one '
                        'actor takes part)')
    parser.add_argument('--failures', type=_count, metavar='N',
                        help='number of kills and failed calls (1)')
    parser.add_argument('--together', action='store_true',
                        help='combine failures with all preemptions, not '
                        'only with one')
    parser.add_argument('--seed', type=int, metavar='N',
                        help='run random schedules instead')
    parser.add_argument('--minutes', type=float, metavar='N', default=1.0,
                        help='how long random schedules are run (1)')
    parser.add_argument('--processes', type=int, metavar='N',
                        default=min(2, os.cpu_count() or 1),
                        help='number of worker processes (2)')
    parser.add_argument('--first', action='store_true',
                        help='stop at the first violation')
    parser.add_argument('--replay', nargs=2, metavar=('SCENARIO', 'CHOICES'),
                        help='print the trace of one schedule, which a trace '
                        'names in its last line')
    parser.add_argument('--fault', metavar='FAULT', choices=faults.FAULTS,
                        help='print how the search finds one fault; --list '
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
        raise argparse.ArgumentTypeError(f'{text}: must be 0 or more')
    return int(text)


def _replay(name: str, choices: str) -> int:
    try:
        with ports.installed_plugin() as harness:
            print(trace.render(harness, SCENARIOS[name],
                               trace.parse_choices(choices)))
    except ValueError as exc:
        print(f'{choices} is not a schedule of {name}: {exc}', file=sys.stderr)
        return 2
    return 0


def _print_fault_search(fault_search: faults.FaultSearch) -> int:
    print('\n\n'.join(filter(None, (
        fault_search.trace, fault_search.problem))))
    return 1 if fault_search.problem else 0


def main(arguments: Sequence[str] | None = None) -> int:
    global _arguments
    _arguments = _parse(arguments)
    if _arguments.list:
        for scenario in SCENARIOS.values():
            print(f'{scenario.name:40} {scenario.description}')
        for fault in faults.FAULTS.values():
            print(f'--fault {fault.name:32} {fault.harm}')
        return 0
    nova.conf.CONF([], project='nova', default_config_files=[])
    options.register_opts(nova.conf.CONF)
    logging.disable(logging.CRITICAL)
    if _arguments.replay:
        return _replay(*_arguments.replay)
    if _arguments.fault:
        return _print_fault_search(_search_fault(_arguments.fault))
    # The objects that exist already stay: exempt them from collections.
    gc.collect()
    gc.freeze()
    gc.disable()
    return _run()


def _run() -> int:
    started = time.monotonic()
    work = _search_all if _arguments.seed is None else _search_randomly
    done: list[SearchResult] = []
    with multiprocessing.get_context('fork').Pool(
            _arguments.processes, maxtasksperchild=1) as pool:
        for result in pool.imap_unordered(work, _arguments.scenarios):
            done.append(result)
            _print_progress(done, len(_arguments.scenarios), started)
            if result.trace:
                print(result.trace)
                if _arguments.first:
                    break
        fault_searches = (pool.map(_search_fault, faults.FAULTS)
                          if _is_complete() else [])
    return _print_summary(done, fault_searches, time.monotonic() - started)


def _is_complete() -> bool:
    """Return whether everything is searched, as by default."""
    return (_arguments.seed is None and not _arguments.first
            and _arguments.preemptions is None
            and _arguments.failures is None
            and len(_arguments.scenarios) == len(SCENARIOS))


def _print_progress(done: Sequence[SearchResult], number: int,
                    started: float) -> None:
    if sys.stderr.isatty():
        end = '\n' if len(done) == number else ''
        sys.stderr.write(
            f'\r\033[K{len(done)} of {number} scenarios, '
            f'{sum(o.schedules for o in done)} schedules, '
            f'{time.monotonic() - started:.0f} s{end}')
        sys.stderr.flush()


def _print_summary(done: Sequence[SearchResult],
                   fault_searches: Sequence[faults.FaultSearch],
                   seconds: float) -> int:
    schedules = sum(o.schedules for o in done)
    skipped = sum(o.skipped for o in done)
    violation = [o for o in done if o.trace]
    expected: collections.Counter[str] = collections.Counter()
    for result in done:
        expected.update(result.expected)
    for name, finding in known_violations.KNOWN_VIOLATIONS.items():
        if expected[name]:
            print(f'expected: {name}, {expected[name]} times: '
                  f'{finding.description}')
    missing = known_violations.KNOWN_VIOLATIONS.keys() - expected.keys()
    kind = ('all schedules' if _arguments.seed is None
            else f'random schedules of seed {_arguments.seed}')
    print(f'{len(done)} scenarios, {schedules} schedules in {seconds:.0f} s: '
          f'{kind} within the bound; {skipped} more are equivalent to one '
          'of these')
    problems = [h.problem for h in fault_searches if h.problem]
    if fault_searches:
        print(f'{len(fault_searches) - len(problems)} of '
              f'{len(fault_searches)} faults are found by their property',
              *problems, sep='\n')
    # Some violations need a kill, so only a complete search finds them all.
    if _is_complete() and missing and not violation:
        print('no longer found, remove from known_violations.py: '
              + ', '.join(sorted(missing)))
        return 1
    failed = len(violation) + len(problems)
    print(f'{len(done) + len(fault_searches) - failed} passed, '
          f'{failed} failed')
    return 1 if failed or not schedules else 0


if __name__ == '__main__':
    sys.exit(main())
