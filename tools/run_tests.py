#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run the tests; their requirements are installed first, in .environments.

Without options: the unit tests with this interpreter, then the search, then
the functional tests with Nova 34.  What stands after ``--`` goes to ``stestr
run``, or with ``--search`` to the search::

    python3 tools/run_tests.py
    python3 tools/run_tests.py --unit -- unit.rules
    python3 tools/run_tests.py --functional 26 --workers 1
    python3 tools/run_tests.py --functional latest
    python3 tools/run_tests.py --combinations 34
    python3 tools/run_tests.py --moves 34
    python3 tools/run_tests.py --aftermath 34
    python3 tools/run_tests.py --rig

Only the standard library is used: this runs before anything is installed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import environments
import freeze

ROOT = pathlib.Path(__file__).resolve().parent.parent
UNIT = 'nova_bdm_cleanup/tests/unit'
FUNCTIONAL = 'nova_bdm_cleanup/tests/functional'
#: Many combinations; the functional tests have one of each kind.
COMBINATIONS = 'nova_bdm_cleanup/tests/combinations'
#: Each operation that moves a server, in each row of the table.
MOVES = 'nova_bdm_cleanup/tests/moves'
#: Each operation on volumes, with a fault at each of its points.
AFTERMATH = 'nova_bdm_cleanup/tests/aftermath'
#: What the tests stand on; nothing of it is in the plugin.
RIG = 'nova_bdm_cleanup/tests/rig'
SEARCH = 'nova_bdm_cleanup.tests.simulation'
REQUIREMENTS = ('requirements.txt', 'test-requirements.txt')
CINDER = 'cinder-29'
NEWEST_NOVA = '34'
#: Also its release candidates, but none of other packages.  A Nova that is
#: older than the frozen ones would show nothing.
LATEST_NOVA = f'nova>={NEWEST_NOVA}.0.0.0rc1'
#: What stands for it on the command line.
LATEST = 'latest'
FOLLOWER = ROOT / 'tools' / 'follow_tests.py'
WORKERS = ROOT / 'tools' / 'test_workers.py'
#: How long tests that are interrupted may take, in seconds.
GRACE = 15.0


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of one suite."""

    title: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    #: The exit code.
    code: int = 0

    @property
    def is_good(self) -> bool:
        return not self.code and not self.failed and self.passed > 0


def unit(python: str, workers: int | None, arguments: list[str]) -> Result:
    """Run the unit tests in a virtual environment of some interpreter."""
    return _stestr('unit', unit_environment(python), UNIT,
                   workers or os.cpu_count() or 1, arguments, {})


def functional(nova: str, threads: bool, workers: int | None,
               arguments: list[str], tests: str = FUNCTIONAL) -> Result:
    """Run the functional tests with one Nova.

    :param nova: its major version; ``latest``: the newest on the index, with
        the newest of all else that pip finds for it
    :param threads: have Nova use native threads and not eventlet; only
        Nova 34 and later can
    :param workers: how many processes run tests; by default as is best
    :param arguments: more arguments for ``stestr run``
    :param tests: others that need a Nova, instead of these
    """
    # The tests would build it themselves, several at a time and silently.
    environments.interpreter(CINDER)
    if nova == LATEST:
        python = environments.latest(
            [LATEST_NOVA, 'openstack-placement', *freeze.NOVA_TESTS])
        nova = _show_versions(python)
    else:
        python = environments.interpreter(f'nova-{nova}')
    return _stestr(
        f'{pathlib.Path(tests).name} with Nova {nova}', python, tests,
        # Each worker has a Nova and a Cinder of its own in its memory, and
        # one of them waits for the other.
        workers or min(4, 1 + (os.cpu_count() or 1)), arguments,
        {'OS_NOVA_DISABLE_EVENTLET_PATCHING': 'true' if threads else 'false',
         # Nova's own deprecations are not ours to mend.
         'PYTHONWARNINGS': 'ignore'})


def _show_versions(python: pathlib.Path) -> str:
    """Print what an environment has other than that of the newest release.

    :returns: the version of Nova
    """
    reference = environments.LISTS / f'nova-{NEWEST_NOVA}.txt'
    frozen = _versions(reference.read_text(encoding='utf-8'))
    found = _versions(_run([
        str(python), '-m', 'pip', 'list', '--format=freeze',
        '--disable-pip-version-check']))
    print(f'Nova {found["nova"]}; what else differs from {reference.name}:')
    for name, version in found.items():
        if version != frozen.get(name):
            print(f'  {name} {version} ({frozen.get(name, "not there")})')
    sys.stdout.flush()
    return found['nova']


def _versions(text: str) -> dict[str, str]:
    """Return the versions in a list of requirements, by package."""
    return {freeze.normalized(name): version for name, version in re.findall(
        r'^([\w.-]+)==([^\s;]+)', text, re.M)}


def search(arguments: list[str]) -> Result:
    """Search all schedules of the model.

    :param arguments: more arguments for the search
    """
    python = environments.interpreter(f'nova-{NEWEST_NOVA}')
    code, output = _child([str(python), '-m', SEARCH, *arguments], {})
    told, _, counts = output.rstrip().rpartition('\n')
    print(told, flush=True)
    found = re.fullmatch(r'(\d+) passed, (\d+) failed', counts)
    passed, failed = map(int, found.groups()) if found else (0, 0)
    return Result('search', passed, failed, code=code)


def unit_environment(python: str) -> pathlib.Path:
    """Return the Python of an environment with the test requirements."""
    version = subprocess.run(
        [python, '-c', 'import sys; print("%d.%d" % sys.version_info[:2])'],
        stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if version.returncode:
        raise environments.EnvironmentFailure(
            f'{python} does not run: {version.stderr.strip()}')
    return environments.of_requirements(
        f'unit-{version.stdout.strip()}', python,
        [ROOT / name for name in REQUIREMENTS])


def _run(command: list[str]) -> str:
    """Run a command and return its output."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, cwd=ROOT,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    if done.returncode:
        raise environments.EnvironmentFailure(
            f'{" ".join(command)} failed with exit code {done.returncode}:\n'
            + done.stdout)
    return done.stdout


def _stestr(title: str, python: pathlib.Path, tests: str, workers: int,
            arguments: list[str], variables: dict[str, str]) -> Result:
    # stestr's only worker is what PYTHON names, with as many below it.
    code, counts = _child(
        [str(python), str(FOLLOWER), title, '--test-path', tests, 'run',
         '--subunit', '--concurrency=1', *arguments],
        {**variables, 'PYTHON': f'{python} {WORKERS} {workers}'})
    return Result(title, **json.loads(counts or '{}'), code=code)


def _child(command: list[str], variables: dict[str, str]) -> tuple[int, str]:
    """Run a command whose stderr is for people.

    It gets a process group of its own: its children have to end with it.

    :returns: its exit code, and what it wrote to its stdout
    """
    environment = {**os.environ, **variables}
    # To compile Nova takes longer than to import it, and tests start dozens
    # of processes that do.
    environment.pop('PYTHONDONTWRITEBYTECODE', None)
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=sys.stdout, cwd=ROOT, env=environment, text=True,
        start_new_session=True)
    try:
        output, _ = child.communicate()
    except KeyboardInterrupt:
        # Tests remove what they made; they have as long as Cinder has.
        os.killpg(child.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=GRACE)
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    return child.returncode, output


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='Run the unit tests, the search, and the functional '
        'tests.',
        epilog='What stands after -- goes to "stestr run", or with --search '
        'to the search.')
    parser.add_argument('--unit', action='store_true',
                        help='only the unit tests')
    parser.add_argument('--search', action='store_true',
                        help='only the search')
    parser.add_argument('--functional', metavar='NN',
                        help='only the functional tests, with Nova NN; one '
                        'of: ' + ', '.join((*(
                            name.partition('-')[2]
                            for name in environments.names()
                            if name.startswith('nova-')), LATEST)))
    parser.add_argument('--combinations', metavar='NN',
                        help='only the tests of many combinations, with Nova '
                        'NN')
    parser.add_argument('--moves', metavar='NN',
                        help='only the whole table of moves, with Nova NN')
    parser.add_argument('--aftermath', metavar='NN',
                        help='only what failed operations leave, with Nova '
                        'NN')
    parser.add_argument('--rig', action='store_true',
                        help='only the tests of what the other tests stand '
                        'on, and of the demonstration')
    parser.add_argument('--threads', action='store_true',
                        help='have Nova use native threads, not eventlet')
    parser.add_argument('--python', default=sys.executable,
                        help='the interpreter for the unit tests (this one)')
    parser.add_argument('--workers', metavar='N', type=int,
                        help='how many processes run tests at a time; the '
                        'search has --processes')
    parser.add_argument('stestr', nargs='*', metavar='-- ARGUMENT',
                        help='more arguments for "stestr run"')
    return parser.parse_args()


def _suites(arguments: argparse.Namespace) -> Iterator[
        Callable[[], Result]]:
    """Yield the suites that are asked for, or those of the main command."""
    rest, workers = arguments.stestr, arguments.workers
    whole = _is_whole(arguments)
    if arguments.unit or whole:
        yield lambda: unit(arguments.python, workers, rest)
    if arguments.search or whole:
        yield lambda: search(rest if arguments.search else [])
    if arguments.functional is not None or whole:
        yield lambda: functional(
            arguments.functional or NEWEST_NOVA, arguments.threads, workers,
            rest)
    if arguments.combinations is not None:
        yield lambda: functional(
            arguments.combinations, arguments.threads, workers, rest,
            COMBINATIONS)
    if arguments.moves is not None:
        yield lambda: functional(
            arguments.moves, arguments.threads, workers, rest, MOVES)
    if arguments.aftermath is not None:
        yield lambda: functional(
            arguments.aftermath, arguments.threads, workers, rest,
            AFTERMATH)
    if arguments.rig:
        yield lambda: functional(
            NEWEST_NOVA, arguments.threads, workers, rest, RIG)


def _is_whole(arguments: argparse.Namespace) -> bool:
    return not (arguments.unit or arguments.search or arguments.rig
                or arguments.functional is not None
                or arguments.combinations is not None
                or arguments.moves is not None
                or arguments.aftermath is not None)


def main() -> int:
    arguments = _arguments()
    results = []
    # A polite kill has to clean up just like Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        if _is_whole(arguments):
            environments.build_side_by_side(f'nova-{NEWEST_NOVA}', CINDER)
        for suite in _suites(arguments):
            begun = time.monotonic()
            result = suite()
            results.append(result)
            print(f'{result.title}: {result.passed} passed, '
                  f'{result.failed} failed, {result.skipped} skipped '
                  f'in {time.monotonic() - begun:.0f} s', flush=True)
    except environments.EnvironmentFailure as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        return 130

    passed = sum(result.passed for result in results)
    failed = sum(result.failed for result in results)
    if not passed + failed:
        print('No test ran.', file=sys.stderr)
    print(f'{passed} passed, {failed} failed')
    return 0 if all(result.is_good for result in results) else 1


if __name__ == '__main__':
    sys.exit(main())
