# SPDX-License-Identifier: Apache-2.0
"""The suite inside the machine, started by :mod:`e2e.devices.command`.

All modules are imported once.  Each case is a process forked from this one:
its changes to Nova end with it, and other cases can run while it waits.
"""

from __future__ import annotations

# First: it decides how threads are made.
from nova.cmd import compute  # noqa: F401 isort: skip

import argparse
from collections.abc import Collection, Iterable
import dataclasses
import fnmatch
import json
import os
import pathlib
import shutil
import signal
import sys
import time
import traceback
from typing import Any

from e2e.devices import (
    case as case_module,
    cases,
    compute_host,
    unrelated_disk,
)

#: The files for the host, outside the working directories of the cases.
RESULTS = pathlib.Path('/run/suite/results')
#: The number of concurrent cases: they also wait, but each needs memory.
WORKERS = 2
#: Seconds after which a case is aborted; on a busy host the longest takes 500.
_CASE_TIMEOUT = 900


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument('--without-disconnect', action='store_true')
    parser.add_argument('--only', action='append', default=[])
    parser.add_argument('--part', type=int, default=1)
    parser.add_argument('--parts', type=int, default=1)
    args = parser.parse_args()
    wanted = [one for one in cases.CASES if not args.only or any(
        fnmatch.fnmatch(one.name, pattern) for pattern in args.only)]
    if args.without_disconnect:
        wanted = [one for one in wanted if one.disconnects]
    wanted = _part(wanted, args.part, args.parts)
    _print(f'the machine is up {_uptime():.0f} s after its start')
    began = time.monotonic()
    manager = compute_host.prepare()
    compute_host.warm_up(manager, pathlib.Path('/run/cases/warm-up'))
    unrelated = unrelated_disk.UnrelatedDisk()
    _print(f'Nova and os-brick are loaded after '
           f'{time.monotonic() - began:.0f} s more; {len(wanted)} cases')
    failed = _run(wanted, manager, unrelated, not args.without_disconnect)
    _print(f'the machine ran for {_uptime():.0f} s')
    return failed


def _part(wanted: list[cases.CaseDefinition], number: int, parts: int
          ) -> list[cases.CaseDefinition]:
    """Return one of several parts that take about the same time.

    Cases with multipath come first, since only one of them runs at a time;
    the others fill the time that they leave.
    """
    loads = [0] * parts
    part = []
    for one in sorted(wanted, key=lambda one: (
            not one.multipath, -one.weight)):
        least = loads.index(min(loads))
        loads[least] += one.weight
        if least == number - 1:
            part.append(one)
    return part


def _run(wanted: list[cases.CaseDefinition], manager: Any,
         unrelated: unrelated_disk.UnrelatedDisk, disconnects: bool) -> int:
    """Run the cases, some at a time; return the number of failures."""
    waiting = list(wanted)
    running: dict[int, cases.CaseDefinition] = {}
    failed = 0
    while waiting or running:
        while len(running) < WORKERS:
            definition = _next(waiting, running.values())
            if definition is None:
                break
            waiting.remove(definition)
            pid = os.fork()
            if not pid:
                _run_case(definition, manager, unrelated, disconnects)
            running[pid] = definition
        pid, _ = os.wait()
        if pid in running:
            failed += not _report(running.pop(pid), disconnects)
    return failed


def _next(waiting: Iterable[cases.CaseDefinition],
          running: Collection[cases.CaseDefinition]
          ) -> cases.CaseDefinition | None:
    """Return a case that can begin.

    multipathd serves no request while it waits for a path of one map, and
    os-brick then does without multipath: only one such case runs at a time.
    A discovery affects all connections made meanwhile: some cases run alone.
    """
    has_multipath = any(one.multipath for one in running)
    return next((one for one in waiting
                 if not (has_multipath and one.multipath)
                 and not (running and one.alone)
                 and not any(other.alone for other in running)), None)


def _run_case(definition: cases.CaseDefinition, manager: Any,
              unrelated: unrelated_disk.UnrelatedDisk,
              disconnects: bool) -> None:
    """Run one case in its own process, and end that process."""
    directory = pathlib.Path('/run/cases', definition.name)
    directory.mkdir(parents=True)
    os.chdir(directory)
    result = case_module.Result(definition.name, definition.title,
                                cases.CASES.index(definition))
    began = time.monotonic()
    case = None
    signal.signal(signal.SIGALRM, _abort)
    signal.alarm(_CASE_TIMEOUT)
    try:
        case = case_module.Case(result, directory, manager,
                                definition.multipath, disconnects)
        definition.run(case)
    except BaseException:
        result.problems.append(traceback.format_exc())
    signal.alarm(0)
    if case is not None:
        case.expect_plugin(definition.plugin)
    result.problems += unrelated.problems()
    result.seconds = time.monotonic() - began
    result.events = case_module.events(result.logged)
    (RESULTS / f'{definition.name}.json').write_text(
        json.dumps(dataclasses.asdict(result), indent=1))
    if (directory / 'nova.log').exists():
        shutil.copy(directory / 'nova.log', RESULTS / f'{definition.name}.log')
    try:
        if case is not None:
            case.clean_up()
    except BaseException:
        traceback.print_exc()
    os.chdir('/')
    shutil.rmtree(directory, ignore_errors=True)
    sys.stdout.flush()
    os._exit(0)


def _abort(*_: Any) -> None:
    raise TimeoutError(f'the case did not end within {_CASE_TIMEOUT} s')


def _report(definition: cases.CaseDefinition, disconnects: bool) -> bool:
    """Print the result of a case; return whether it is the expected one."""
    path = RESULTS / f'{definition.name}.json'
    if not path.exists():
        _print(f'{definition.name}: ended without a result')
        return False
    result = json.loads(path.read_text())
    passed = not (result['problems'] or result['untested'])
    _print(f'{"passed" if passed else "FAILED"} {result["seconds"]:5.1f} s  '
           f'{definition.name}: {definition.title}')
    facts = [*result['facts'], ['events in the log', result['events']]]
    for heading, text in facts:
        _print(f'            {heading}: {text}')
    for problem in result['untested']:
        _print(f'          ! {problem}')
    for problem in result['problems']:
        # The last line of an expected failure says enough.
        lines = problem.rstrip().splitlines()[0 if disconnects else -1:]
        _print('          ! ' + ('\n' + ' ' * 12).join(lines))
    if not passed and disconnects:
        for line in result['logged']:
            _print(f'          > {line}')
    if not disconnects and passed:
        _print('          ! passed although nothing was disconnected')
    return passed == disconnects and not result['untested']


def _print(text: str) -> None:
    print(text, flush=True)


def _uptime() -> float:
    return float(pathlib.Path('/proc/uptime').read_text().split()[0])


if __name__ == '__main__':
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(min(main(), 100))
