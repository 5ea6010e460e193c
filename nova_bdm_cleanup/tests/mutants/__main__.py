# SPDX-License-Identifier: Apache-2.0
"""Plant every mutant in a copy of the package, and have it found.

Prints what found each.  The exit code is 0 only if every mutant was found, and
nothing where none is planted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
import concurrent.futures
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from typing import Any

from nova_bdm_cleanup.tests.mutants import finders, MUTANTS
from nova_bdm_cleanup.tests.mutants.finders import Finder
from nova_bdm_cleanup.tests.mutants.mutant import Misplaced, Mutant

TOP = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = 'nova_bdm_cleanup'

#: It has what the search needs, and what the unit tests need.
ENVIRONMENT = 'nova-34'

#: So many mutants are looked for at a time.
WORKERS = 2

_HEAD = """\
.. Written by nova_bdm_cleanup/tests/mutants.

==============
Planted faults
==============

Errors that a programmer could make, what an operator would lose by each, and
who found it first. :ref:`planted-faults` says how. The table is of commit
%s; two of them were looked for at a time.
"""

#: What finds something here finds it everywhere, and proves nothing.
ORIGINAL = Mutant('nothing-planted', '', '', ())


@dataclasses.dataclass(frozen=True)
class Result:
    """What became of one mutant."""

    mutant: Mutant
    seconds: float
    #: Who found it, and what they say; both empty: nobody did.
    finder: str = ''
    found: str = ''
    #: Why others say nothing.
    troubles: Sequence[str] = ()

    @property
    def is_good(self) -> bool:
        """The mutant was found, or nothing where there is none."""
        if self.mutant is ORIGINAL:
            return not (self.found or self.troubles)
        return bool(self.found)

    def __str__(self) -> str:
        return '; '.join([
            '%s: %s' % (self.finder, self.found) if self.found
            else 'nobody finds it', *self.troubles])


def hunt(mutant: Mutant, python: str, by: Sequence[Finder]) -> Result:
    """Plant a mutant, and have it looked for until somebody finds it."""
    begun = time.monotonic()
    troubles: list[str] = []
    with tempfile.TemporaryDirectory(prefix='mutant-') as directory:
        top = pathlib.Path(directory)
        for folder in (PACKAGE, 'tools'):
            shutil.copytree(TOP / folder, top / folder,
                            ignore=shutil.ignore_patterns('__pycache__'))
        if mutant is not ORIGINAL:
            mutant.plant(top / PACKAGE)
        for finder in by:
            verdict = finder.look(python, top, mutant.path)
            if verdict.found:
                return Result(mutant, time.monotonic() - begun, finder.name,
                              verdict.found, troubles)
            if verdict.trouble:
                troubles.append('%s %s' % (finder.name, verdict.trouble))
    return Result(mutant, time.monotonic() - begun, troubles=troubles)


def hunt_all(mutants: Sequence[Mutant], python: str,
             by: Sequence[Finder]) -> list[Result]:
    """The same for several, two at a time; in the order of the list.

    :raises Misplaced: before anything is begun
    """
    for mutant in mutants:
        if mutant is not ORIGINAL:
            mutant.changed(TOP / PACKAGE)
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        futures = [pool.submit(hunt, mutant, python, by)
                   for mutant in mutants]
        try:
            for number, future in enumerate(
                    concurrent.futures.as_completed(futures), 1):
                result = future.result()
                print('%d of %d, %.0f s: %s: %s' % (
                    number, len(futures), result.seconds, result.mutant.name,
                    result), flush=True)
        except BaseException:
            for future in futures:
                future.cancel()
            finders.stop()
            raise
    return [future.result() for future in futures]


def rst(results: Sequence[Result], commit: str) -> Iterator[str]:
    """A page of the documentation, with what each would do."""
    yield _HEAD % commit
    yield '.. list-table::'
    yield '   :header-rows: 1'
    yield '   :widths: 50 35 15'
    for name, harm, module, found, seconds in [
            ('Mutant', '', '', 'Found by', 'Seconds'), *(
                ('**%s**' % r.mutant.name, r.mutant.harm,
                 '``%s``' % r.mutant.path, str(r), '%.0f' % r.seconds)
                for r in results)]:
        yield ''
        yield from _cell('   * - ', ' '.join(filter(
            None, (name, harm, module))))
        yield from _cell('     - ', found)
        yield from _cell('     - ', seconds)


def _cell(bullet: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, 79, initial_indent=bullet, subsequent_indent=' ' * len(bullet),
        break_long_words=False, break_on_hyphens=False)


def interpreter() -> str:
    """The Python of the environment, which is built if need be."""
    sys.path.insert(0, str(TOP / 'tools'))
    try:
        import environments
    finally:
        sys.path.pop(0)
    # The copies of the package have none.
    os.environ.setdefault('NOVA_BDM_CLEANUP_ENVIRONMENTS',
                          str(environments.directory()))
    return str(environments.interpreter(ENVIRONMENT))


def _arguments() -> argparse.Namespace:
    known = {mutant.name: mutant for mutant in MUTANTS}
    parser = argparse.ArgumentParser(
        prog='python3 -m nova_bdm_cleanup.tests.mutants',
        description='Plant every mutant in a copy of the package, and have '
                    'it found.')
    parser.add_argument(
        '--by', default=','.join(finders.FINDERS), metavar='FINDER,...',
        help='who looks for them, one after the other until it is found '
             '(%(default)s)')
    parser.add_argument(
        '--only', nargs='+', default=[], metavar='NAME',
        help='only these mutants, and not that nothing is found where none '
             'is planted')
    parser.add_argument(
        '--rst', type=pathlib.Path, metavar='FILE',
        help='write the table here, as the documentation has it')
    arguments = parser.parse_args()
    arguments.by = _named(parser, arguments.by.split(','), finders.FINDERS)
    arguments.mutants = _named(parser, arguments.only, known) or [
        ORIGINAL, *MUTANTS]
    return arguments


def _named(parser: argparse.ArgumentParser, names: Sequence[str],
           known: dict[str, Any]) -> list[Any]:
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.exit(2, 'There is no %s. There are: %s\n' % (
            ', '.join(unknown), ', '.join(known)))
    return [known[name] for name in names]


def main() -> int:
    """Hunt; the exit code says whether all were found."""
    arguments = _arguments()
    # A polite kill has to clean up just like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        results = hunt_all(arguments.mutants, interpreter(), arguments.by)
    except Misplaced as exc:
        print(exc, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        return 130
    of_mutants = [r for r in results if r.mutant is not ORIGINAL]
    if arguments.rst:
        commit = subprocess.check_output(
            ['git', '-C', str(TOP), 'log', '-1', '--format=%h'], text=True)
        arguments.rst.write_text(
            '\n'.join(rst(of_mutants, commit.strip())) + '\n',
            encoding='utf-8')
    print('%d mutants, %d found' % (
        len(of_mutants), sum(r.is_good for r in of_mutants)))
    return 0 if all(r.is_good for r in results) else 1


if __name__ == '__main__':
    sys.exit(main())
