# SPDX-License-Identifier: Apache-2.0
"""Results of the runs: kept as JSON lines, shown as a table of the docs."""

from __future__ import annotations

import dataclasses
import json
import pathlib


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of one trial."""

    suite: str
    name: str
    title: str
    backend: str
    plugin: bool
    passed: bool
    outcome: str
    seconds: float

    def line(self) -> str:
        status = 'ok  ' if self.passed else 'FAIL'
        nova = 'with plugin' if self.plugin else 'stock'
        return (f'{status} {self.backend:4} {nova:11} {self.name}'
                f' ({self.seconds:.0f} s): {self.outcome}')


def append(path: pathlib.Path, result: Result) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open('a') as stream:
        print(json.dumps(dataclasses.asdict(result)), file=stream)


def load(paths: list[pathlib.Path]) -> list[Result]:
    return [Result(**json.loads(line)) for path in paths
            for line in path.read_text().splitlines()]


def table(results: list[Result], suite: str) -> str:
    """Return the rows of one suite.

    A trial that was repeated shows its last outcome.
    """
    cells: dict[str, dict[tuple[str, bool], str]] = {}
    titles: dict[str, str] = {}
    for one in results:
        if one.suite != suite:
            continue
        titles[one.name] = one.title
        text = one.outcome if one.passed else f'FAILED: {one.outcome}'
        # The message of a failure may have several lines; a cell has one.
        cells.setdefault(one.name, {})[one.backend, one.plugin] = (
            ' '.join(text.split()))
    # A suite that is not run on stock Nova has no column for it.
    variants = sorted({plugin for row in cells.values() for _, plugin in row})
    headings = {False: 'Stock Nova', True: 'With the plugin'}
    rows = [[titles[name], backend, *(row.get((backend, plugin), '--')
                                      for plugin in variants)]
            for name, row in cells.items()
            for backend in sorted({backend for backend, _ in row})]
    return list_table(
        ['Scenario', 'Back end',
         *(headings[plugin] for plugin in variants)], rows)


def list_table(headings: list[str], rows: list[list[str]]) -> str:
    """Return a table of the documentation."""
    lines = ['.. list-table::', '   :header-rows: 1', '']
    for row in [headings, *rows]:
        for number, text in enumerate(row):
            lines.append(f'   {" " if number else "*"} - {text}'.rstrip())
    return '\n'.join(lines) + '\n'
