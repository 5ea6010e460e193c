# SPDX-License-Identifier: Apache-2.0
"""The suite as one command: the machine, the cases in it, the results."""

from __future__ import annotations

import argparse
from concurrent import futures
import json
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Any

from e2e.devices import boot, prepare
from e2e.machine import Unsuitable
from e2e.results import list_table

#: Seconds, with a margin for a busy host.
_TIMEOUT = 3600

#: Each has one virtual processor, which uses at most one of this host.
_MACHINES = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--only', action='append', default=[],
                        help='shell pattern of the cases to run; may be '
                             'repeated')
    parser.add_argument(
        '--without-disconnect', action='store_true',
        help='disable the disconnect in the cleanup: each case about a '
             'disconnect must fail then, and the suite passes if all of them '
             'do')
    parser.add_argument('--timeout', type=float, default=_TIMEOUT,
                        help='seconds after which the machine is switched '
                             'off (default: %(default)s)')


def run(args: argparse.Namespace) -> int:
    """Run the suite and return the exit code.

    :raises Unsuitable: something is missing
    """
    prepare.check()
    machine = prepare.Machine(pathlib.Path(args.dir).absolute() / 'devices')
    machine.prepare()
    python = _environment()
    machine.copy_sources(python)
    results = machine.directory / (
        'results-without-disconnect' if args.without_disconnect
        else 'results')
    shutil.rmtree(results, ignore_errors=True)
    began = time.monotonic()
    try:
        statuses = _run(args, machine, python, results)
    except boot.Broken as exc:
        print(f'e2e: devices: {exc}', file=sys.stderr)
        return 1
    failed = sum(statuses)
    # The suite itself writes them, with the log of each case beside.
    ran = len(list(results.glob('*.json')))
    expected = ' (without the disconnect, all must fail)' \
        if args.without_disconnect else ''
    print(f'devices: {ran} cases{expected}, {failed} with the wrong result, '
          f'{time.monotonic() - began:.0f} s; results in {results}',
          flush=True)
    return 1 if failed or not ran else 0


def _run(args: argparse.Namespace, machine: prepare.Machine,
         python: pathlib.Path, results: pathlib.Path) -> list[int]:
    """Run the cases in two machines, each with one processor."""

    def run(number: int) -> int:
        arguments = ['-m', 'e2e.devices.suite', '--part', str(number),
                     '--parts', str(_MACHINES)]
        for pattern in args.only:
            arguments += ['--only', pattern]
        if args.without_disconnect:
            arguments.append('--without-disconnect')
        return boot.run(
            machine, python, str(number), arguments, args.timeout, results,
            lambda line: print(f'{number} {line}', flush=True))

    with futures.ThreadPoolExecutor() as pool:
        return list(pool.map(run, range(1, _MACHINES + 1)))


def table(directory: pathlib.Path) -> str:
    """Return the results as the tables of the documentation."""
    results = sorted(
        (json.loads(path.read_text()) for path in directory.glob('*.json')),
        key=lambda result: int(result['number']))
    # A table of the CVE, with a column for each fact.
    cve = [one for one in results if one['name'].startswith('cve-')]
    headings = [heading for heading, _ in cve[0]['facts']] if cve else []
    rows = [[_sentence(one['title'].partition(', ')[2]),
             *(dict(one['facts'])[heading] for heading in headings)]
            for one in cve]
    return (list_table(['Cleanup', *(
        {'before': 'Connected before', 'after': 'Connected after'}.get(
            heading, _sentence(heading)) for heading in headings)], rows)
        + '\n' + list_table(
            ['Case', 'Connected before', 'Connected after', 'Other facts',
             'Events in the log', 'The next reboot', 'Seconds'],
            [_row(one) for one in results if one not in cve]))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _row(result: Any) -> list[str]:
    facts: dict[str, str] = {}
    for heading, text in result['facts']:
        facts[heading] = f'{facts[heading]}; then {text}' \
            if heading in facts else text
    before, after, next_reboot = (
        facts.pop(heading, '') for heading in ('before', 'after',
                                               'next reboot'))
    more = '; '.join(f'{heading}: {text}' for heading, text in facts.items())
    problems = [*result['untested'], *result['problems']]
    if problems:
        more = 'FAILED: ' + ' '.join(problems[0].split())
    seconds = '' if result['reboot'] is None else f'{result["reboot"]:.0f}'
    return [result['title'], before, after, _sentence(more),
            result['events'], next_reboot, seconds]


def _environment() -> pathlib.Path:
    """Return the environment of Nova and os-brick; build it if needed."""
    built = subprocess.run(
        [sys.executable, prepare.ROOT / 'tools/environments.py',
         prepare.ENVIRONMENT], stdout=subprocess.PIPE, text=True)
    if built.returncode:
        raise Unsuitable(
            f'the environment {prepare.ENVIRONMENT} could not be built')
    return pathlib.Path(built.stdout.split()[-1])
