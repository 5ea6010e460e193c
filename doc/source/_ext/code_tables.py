# SPDX-License-Identifier: Apache-2.0
"""Sphinx directives for tables of the code.

``.. decision-table:: module.NAME`` shows a table of the rules,
``.. hook-table:: module.NAME`` the table of hooks, and
``.. metric-table:: module.NAME`` one of metrics of prometheus_client.
``.. property-table:: FILE`` shows the properties of the search, of a file that
only Nova's own environment could import.

The rows come from the code itself, so that the documentation has its order and
its words.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
import importlib
import pathlib
from typing import Any

from docutils.parsers.rst.directives.tables import ListTable
from docutils.statemachine import StringList

#: The widths of the columns, by their number.
_WIDTHS = {2: [64, 36], 3: [26, 44, 30], 4: [14, 36, 16, 34]}

_ROOT = pathlib.Path(__file__).resolve().parents[3]


class _Table(ListTable):
    """A base of directives that make a list-table of rows."""

    required_arguments = 1
    optional_arguments = 0
    has_content = False

    def show(self, source: str, widths: Sequence[int],
             rows: Iterable[Sequence[str]]) -> list[Any]:
        """Make the table.

        :param source: the origin of the rows, for error messages
        :param rows: the first one is the header
        """
        self.content = StringList(
            ['%s - %s' % (' ' if number else '*', cell)
             for row in rows for number, cell in enumerate(row)],
            source=source)
        self.options['header-rows'] = 1
        self.options.setdefault('widths', list(widths))
        self.arguments = []
        return super().run()


class CodeTable(_Table):
    """The directive for a table in the code."""

    def run(self) -> list[Any]:
        [name] = self.arguments
        module, _, variable = name.rpartition('.')
        table = getattr(importlib.import_module(module), variable)
        return self.show(name, _WIDTHS[len(table.header)],
                         (table.header, *table.lines()))


class MetricTable(_Table):
    """The directive for metrics that the code declares."""

    def run(self) -> list[Any]:
        [name] = self.arguments
        module, _, variable = name.rpartition('.')
        rows = [('Metric', 'Type', 'What it says')]
        for metric in getattr(importlib.import_module(module), variable):
            [family] = metric.describe()
            # The labels are words of their own, so that the cell can break.
            labels = ', '.join(metric._labelnames)
            rows.append((
                '``%s%s``%s' % (
                    family.name, '_total' * (family.type == 'counter'),
                    labels and ' ``{%s}``' % labels),
                family.type, family.documentation))
        return self.show(name, [48, 10, 42], rows)


class PropertyTable(_Table):
    """The directive for ``PROPERTIES``, parsed and not imported."""

    def run(self) -> list[Any]:
        [name] = self.arguments
        tree = ast.parse((_ROOT / name).read_text(encoding='utf-8'))
        [value] = [node.value for node in tree.body
                   if isinstance(node, ast.Assign)
                   and ast.unparse(node.targets[0]) == 'PROPERTIES']
        self.state.document.settings.record_dependencies.add(
            str(_ROOT / name))
        return self.show(name, (32, 68), [
            ('Property', 'What it says'),
            *((f'``{key}``', words)
              for key, words in ast.literal_eval(value).items())])


def setup(app: Any) -> dict[str, Any]:
    for name in ('decision-table', 'hook-table'):
        app.add_directive(name, CodeTable)
    app.add_directive('metric-table', MetricTable)
    app.add_directive('property-table', PropertyTable)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
