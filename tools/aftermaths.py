#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make one table of what a run of ``--aftermath`` has seen.

The run writes one file for each operation into a directory::

    NOVA_BDM_CLEANUP_AFTERMATHS=seen python3 tools/run_tests.py --aftermath 34
    python3 tools/aftermaths.py seen aftermaths.rst

Only the standard library is used.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
import json
import pathlib
from typing import Any

ENDED, WORSE = 'ended', 'made worse'
COLUMNS = ('State', 'Cases', 'Found', 'True', 'Ended by', 'Beside stock',
           'Open for')
WIDTHS = (40, 16, 8, 6, 16, 7, 7)


def distinct(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the distinct states, with the cases of all operations."""
    states: dict[str, dict[str, Any]] = {}
    for result in results:
        for state in result['states']:
            known = states.setdefault(
                state['state'], {**state, 'cases': []})
            known['cases'] += state['cases']
    return list(states.values())


def ended_by(state: Mapping[str, Any]) -> str:
    """Return what ends a state, in words."""
    found = []
    if state['by_steps'] == ENDED:
        found.append(f'{len(state["steps"])} printed')
    if state['by_again'] == ENDED:
        found.append('the operation again')
    if state['by_reboot'] == ENDED:
        found.append('a hard reboot')
    if state['by_stock'] == ENDED:
        found.append("stock's hard reboot")
    if state['by_steps'] == WORSE:
        found.append('**printed steps make it worse**')
    return '; '.join(found) or 'nothing'


def summary(results: Sequence[Mapping[str, Any]],
            states: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the counts: what is counted, and how many."""
    def count(**values: Any) -> int:
        return sum(all(state[name] == value for name, value in values.items())
                   for state in states)

    by_one = sum(state['by_steps'] == ENDED and len(state['steps']) == 1
                 for state in states)
    return [
        ('operations / cases / damaged / distinct states', ' / '.join(map(
            str, (len(results), sum(each['cases'] for each in results),
                  sum(each['damaged'] for each in results), len(states))))),
        ('found by the audit: all of it / some / nothing', ' / '.join(
            str(count(found=each)) for each in ('all', 'some', 'nothing'))),
        ('ended by one printed command / by printed steps / not ended',
         f'{by_one} / {count(by_steps=ENDED) - by_one} / '
         f'{len(states) - count(by_steps=ENDED)}'),
        ('made worse by the printed steps', str(count(by_steps=WORSE))),
        ('ended by the operation again', str(count(by_again=ENDED))),
        ('ended by a hard reboot with the plugin / with stock',
         f'{count(by_reboot=ENDED)} / {count(by_stock=ENDED)}'),
        ("hard reboot beside stock's: better / worse",
         f'{count(beside_stock="better")} / {count(beside_stock="worse")}'),
        ('said of the hard reboot: true / false',
         f'{count(is_true=True)} / {count(is_true=False)}'),
        ('open', str(sum(bool(state['open']) for state in states)))]


def as_table(rows: Iterable[Sequence[str]], widths: Sequence[int]
             ) -> list[str]:
    lines = ['.. list-table::', '   :header-rows: 1',
             f'   :widths: {" ".join(map(str, widths))}', '']
    for row in rows:
        lines += [f'   {"* -" if not number else "  -"} {cell}'
                  for number, cell in enumerate(row)]
    return [*lines, '']


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or '').splitlines()[0])
    parser.add_argument('seen', type=pathlib.Path,
                        help='the directory that the run wrote')
    parser.add_argument('table', type=pathlib.Path,
                        help='the file to write')
    arguments = parser.parse_args()
    results = [json.loads(path.read_text(encoding='utf-8'))
               for path in sorted(arguments.seen.glob('*.json'))]
    states = distinct(results)
    counts = summary(results, states)
    arguments.table.write_text('\n'.join([
        *as_table([('', 'States'), *counts], (70, 30)),
        *as_table([COLUMNS, *(
            (state['state'], ', '.join(state['cases']), state['found'],
             {True: 'yes', False: 'no', None: '-'}[state['is_true']],
             ended_by(state), state['beside_stock'],
             ', '.join(state['open']) or '-') for state in states)],
            WIDTHS)]), encoding='utf-8')
    for result in results:
        print(f'{result["operation"]} ({", ".join(result["points"])}): '
              f'{result["cases"]} cases, {result["damaged"]} damaged, '
              f'{len(result["states"])} states')
    for what, number in counts:
        print(f'{what}: {number}')


if __name__ == '__main__':
    main()
