# SPDX-License-Identifier: Apache-2.0
"""Samples, tables and the environment they were measured in.

A report prints each table as it is complete and keeps everything for
``--json``, there with every single value.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Callable, Iterable, Sequence
import dataclasses
import datetime
from importlib import metadata
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import traceback
from typing import Any, Union

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: Their versions are shown where they are installed.
_PACKAGES = ('nova', 'python-cinderclient', 'python-openstackclient',
             'keystoneauth1')


@dataclasses.dataclass(frozen=True)
class Sample:
    """The values of repeated measurements of one thing.

    :ivar values: in the order in which they were measured
    :ivar unit: what is printed behind them
    """

    values: tuple[float, ...]
    unit: str = 'ms'

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.values) == 1:
            return self.values[0], self.values[0]
        low, _, high = statistics.quantiles(self.values, method='inclusive')
        return low, high

    def against(self, other: Sample) -> Sample:
        """Return the ratio to another sample, round by round.

        Two values of one round were measured within a second, so that a
        machine that gets busier or quieter changes both.
        """
        return Sample(tuple(mine / theirs for mine, theirs
                            in zip(self.values, other.values)), 'x')

    def minus(self, other: Sample) -> Sample:
        """Return the difference to another sample, round by round."""
        return Sample(tuple(mine - theirs for mine, theirs
                            in zip(self.values, other.values)), self.unit)

    def __str__(self) -> str:
        low, high = self.quartiles
        if low == high:
            return _number(self.median)
        return f'{_number(self.median)} ({_number(low)}-{_number(high)})'

    def as_json(self) -> dict[str, Any]:
        low, high = self.quartiles
        return {'unit': self.unit, 'median': self.median, 'low': low,
                'high': high, 'best': min(self.values),
                'values': list(self.values)}


#: A table's cell.
Cell = Union[Sample, str, int, float]


def milliseconds(seconds: Iterable[float]) -> Sample:
    """Make a sample of the seconds that a clock measured."""
    return Sample(tuple(each * 1000 for each in seconds))


class Turns:
    """Several ways to do one thing, measured round by round."""

    def __init__(self) -> None:
        #: By what was measured.
        self._seconds: dict[Any, list[float]] = collections.defaultdict(list)
        #: Requests to Cinder, by who made them.
        self.requests: dict[str, set[int]] = collections.defaultdict(set)
        #: SQL statements of a cleanup, by which one.
        self.statements: dict[str, set[int]] = collections.defaultdict(set)

    def measure(self, number: int) -> None:
        """Measure each way once; each first as often as the others."""
        raise NotImplementedError

    def rounds(self, count: int, what: str = '') -> None:
        for number in range(count + 1):
            progress(f'{what}round {number} of {count}')
            self.measure(number)
            if not number:
                # What is done for the first time takes longer.
                self.forget()
        progress('')

    def forget(self) -> None:
        """Forget the measurements so far."""
        self._seconds.clear()

    def sample(self, name: Any) -> Sample:
        return milliseconds(self._seconds[name])

    def count(self, name: str) -> str:
        return ', '.join(map(str, sorted(self.requests[name])))

    def count_statements(self, name: str) -> str:
        return ', '.join(map(str, sorted(self.statements[name])))


class Report:
    """The results of one benchmark.

    :param name: its name
    :param question: what it answers
    :param path: where to put everything as JSON, if anywhere
    :param versions: of what is measured besides this environment
    """

    def __init__(self, name: str, question: str, path: str | None,
                 **versions: str) -> None:
        self._path = path
        self._record: dict[str, Any] = {
            'benchmark': name, 'question': question,
            'environment': {**_environment(), **versions},
            'load_before': os.getloadavg(), 'tables': [], 'goals': []}
        print(f'{name}: {question}\n')
        for key, value in self._record['environment'].items():
            print(f'{key:20} {value}')
        print(f'{"load before":20} {_load(os.getloadavg())}')
        print('\nMedians, with the quartiles in brackets. Ratios and '
              'differences are of two\nvalues of one round, then the median '
              'and the quartiles of these.', flush=True)

    def table(self, title: str, columns: Sequence[str],
              rows: Sequence[Sequence[Cell]]) -> None:
        """Print a table and keep it.

        :param title: what it shows, with the unit
        :param columns: their headings
        :param rows: as many cells each
        """
        self._record['tables'].append({
            'title': title, 'columns': list(columns),
            'rows': [[cell.as_json() if isinstance(cell, Sample) else cell
                      for cell in row] for row in rows]})
        texts = [list(columns)] + [[_text(cell) for cell in row]
                                   for row in rows]
        widths = [max(map(len, column)) for column in zip(*texts)]
        print(f'\n{title}\n')
        for row in texts:
            print('  '.join(
                text.ljust(width) if number == 0 else text.rjust(width)
                for number, (text, width)
                in enumerate(zip(row, widths))).rstrip())
        sys.stdout.flush()

    def goal(self, text: str, measured: str, is_met: bool) -> None:
        """Print whether a goal was reached."""
        if not self._record['goals']:
            print()
        self._record['goals'].append(
            {'goal': text, 'measured': measured, 'met': is_met})
        print(f'{"met" if is_met else "NOT MET":8}{text}: {measured}',
              flush=True)

    def end(self) -> None:
        """Print under which load it ended, and write the JSON."""
        self._record['load_after'] = os.getloadavg()
        print(f'\n{"load after":20} {_load(os.getloadavg())}')
        if self._path:
            pathlib.Path(self._path).write_text(
                json.dumps(self._record, indent=1) + '\n', encoding='utf-8')


def arguments(question: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(
        description=question,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('--json', metavar='FILE',
                        help='write everything to this file, too')
    return parser


def run(main: Callable[[], None]) -> None:
    """Run a benchmark; an interrupted one reports nothing."""
    # Not SIGINT, which background processes of a shell ignore.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:
        # Nova's hook for such would only tell the log.
        traceback.print_exc()
        sys.exit(1)


def progress(text: str) -> None:
    """Show what is measured now, if standard error is a terminal."""
    if sys.stderr.isatty():
        print(f'\r\033[K{text}', end='', file=sys.stderr, flush=True)


def _number(value: float) -> str:
    """Return a number with three significant digits and no exponent."""
    magnitude = abs(value)
    if magnitude >= 100:
        return f'{value:.0f}'
    return f'{value:.1f}' if magnitude >= 10 else f'{value:.2f}'


def _text(cell: Cell) -> str:
    if isinstance(cell, int):
        return f'{cell:,}'
    return _number(cell) if isinstance(cell, float) else str(cell)


def _load(averages: Sequence[float]) -> str:
    return ' '.join(f'{average:.2f}' for average in averages)


def _environment() -> dict[str, str]:
    return {
        'date': datetime.datetime.now(datetime.timezone.utc)
        .strftime('%Y-%m-%d %H:%M UTC'),
        'cpu': f'{os.cpu_count()} x {_cpu()}',
        'system': f'{platform.system()} {platform.release()}',
        'python': platform.python_version(),
        **{name: each.version for name in _PACKAGES
           for each in metadata.distributions(name=name)},
        'nova-bdm-cleanup': _commit()}


def _cpu() -> str:
    try:
        lines = pathlib.Path('/proc/cpuinfo').read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(':')[2].strip() for line in lines
                 if line.startswith('model name')), platform.machine())


def _commit() -> str:
    described = subprocess.run(
        ['git', 'describe', '--always', '--dirty'], cwd=ROOT,
        capture_output=True, text=True)
    return described.stdout.strip() or 'not a commit'
