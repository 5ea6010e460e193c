# SPDX-License-Identifier: Apache-2.0
"""What has to find a mutant: the search, the unit tests of its part, and for
what speaks to Nova the functional tests.

Who takes least time looks first.  Most are found by one kill or fault while
nobody comes between, in a tenth of the time of the whole search.

Each runs in a process of its own, from the top of a copy of the package.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import threading
from typing import Callable

_TESTS = 'nova_bdm_cleanup.tests.'

#: The unit tests of each part of the package, those first that take no time:
#: of a module that takes long also some of its classes alone, which cannot be
#: those with scenarios.
_UNITS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ('rules.test_mappings', ('rules',)),
    ('rules.test_attachments', ('rules',)),
    ('rules.test_guards', ('rules',)),
    ('rules.test_decision', ('rules',)),
    ('cleanup.test_actions', ('cleanup',)),
    ('plugin.test_sweeping', ('plugin',)),
    ('plugin.test_addresses', ('plugin',)),
    ('plugin.test_sessions', ('plugin',)),
    ('openstack.test_cinder', ('openstack',)),
    ('cleanup.test_cleaner.WholeTest', ('cleanup',)),
    ('cleanup.test_cleaner.JournalTest', ('cleanup',)),
    ('cleanup.test_cleaner.LimitTest', ('cleanup',)),
    ('cleanup.test_cleaner.LookTest', ('cleanup', 'rules')),
    ('cleanup.test_cleaner.SweepTest', ('cleanup',)),
    ('cleanup.test_cleaner.StartTest', ('cleanup',)),
    ('cleanup.test_cleaner', ('cleanup', 'rules')),
    ('rules.test_properties', ('rules',)),
)

#: The functional tests of what speaks to Nova and the host.
_FUNCTIONAL = ('test_disconnect', 'test_stale_attachments', 'test_neighbours',
               'test_in_flight', 'test_start', 'test_refusals',
               'test_watching')


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What one finder says of one mutant."""

    #: What it found, in words; empty: nothing.
    found: str = ''
    #: Why it says nothing; empty: it does.
    trouble: str = ''


@dataclasses.dataclass(frozen=True)
class Finder:
    """One of those that look for mutants."""

    name: str
    #: So many seconds it may take; more is no verdict.
    limit: float
    #: What Python is to run for a mutant in some module; empty: nothing.
    arguments: Callable[[str], list[str]]
    #: What a failed run has found, by what it printed; None: no verdict.
    read: Callable[[str], str | None]

    def look(self, python: str, top: pathlib.Path, path: str) -> Verdict:
        """Look for what is planted.

        :param python: an interpreter that has all that the tests need
        :param top: of a copy of the package, with the mutant in it
        :param path: the module that it is in; empty: the whole package
        """
        arguments = self.arguments(path)
        if not arguments:
            return Verdict()
        code, output = _run([python, *arguments], top, self.limit)
        if code is None:
            return Verdict(trouble='took longer than %g s' % self.limit)
        if not code:
            return Verdict()
        found = self.read(output)
        if found is None:
            return Verdict(trouble='ended with exit code %d: %s' % (
                code, (output.strip().splitlines() or ['no output'])[-1]))
        return Verdict(found)


def _whole_search(_path: str) -> list[str]:
    return ['-m', _TESTS + 'simulation', '--first']


def _search(path: str) -> list[str]:
    return [*_whole_search(path), '--preemptions', '0']


def _read_search(output: str) -> str | None:
    broken = re.search(r'^broken: (.+)$', output, re.M)
    scenario = re.search(r'^scenario: (.+)$', output, re.M)
    if not broken:
        return None
    return broken.group(1) + (
        ' (%s)' % scenario.group(1) if scenario else '')


def _units(path: str) -> list[str]:
    part = path.partition('/')[0]
    modules = [_TESTS + 'unit.' + module for module, parts in _UNITS
               if part in ('', *parts)]
    return ['-m', 'unittest', '--failfast', *modules] if modules else []


def _functional(path: str) -> list[str]:
    if path and not path.startswith('plugin/'):
        return []
    return ['-m', 'unittest', '--failfast', *(
        _TESTS + 'functional.' + module for module in _FUNCTIONAL)]


def _read_tests(output: str) -> str | None:
    # A module that cannot even be loaded shows nothing.
    failed = re.search(
        r'^(?:FAIL|ERROR): (?!.*_FailedTest).*\b%s(?:unit|functional)\.'
        r'([^\s()]+)' % re.escape(_TESTS), output, re.M)
    return failed.group(1) if failed else None


#: In the order in which they look: the first that finds it is enough.
FINDERS: dict[str, Finder] = {finder.name: finder for finder in (
    Finder('search', 600.0, _search, _read_search),
    Finder('unit', 600.0, _units, _read_tests),
    Finder('functional', 1800.0, _functional, _read_tests),
    Finder('whole-search', 900.0, _whole_search, _read_search))}


_lock = threading.Lock()
_running: set[subprocess.Popen[str]] = set()
_stopped = threading.Event()


def _run(command: list[str], top: pathlib.Path,
         limit: float) -> tuple[int | None, str]:
    """The exit code, None when the time was over, and what was printed."""
    variables = {name: value for name, value in os.environ.items()
                 if name != 'PYTHONPATH'}
    with _lock:
        if _stopped.is_set():
            return None, ''
        process = subprocess.Popen(
            command, cwd=top,
            env={**variables, 'PYTHONDONTWRITEBYTECODE': '1'},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors='replace',
            start_new_session=True)
        _running.add(process)
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        _kill(process)
        process.communicate()
        return None, ''
    finally:
        with _lock:
            _running.discard(process)
    return process.returncode, output


def stop() -> None:
    """End whatever looks for something, and let nothing begin."""
    with _lock:
        _stopped.set()
        for process in _running:
            _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    # With what it has started itself.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
