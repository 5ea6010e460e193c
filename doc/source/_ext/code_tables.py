# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""``.. decision-table:: module.NAME`` shows a table of the rules, and
``.. metric-table:: module.NAME`` one of what Prometheus is told.

The rows come from the code that does it, so that the documentation says what
the code does, in its order and in its words.
"""

from __future__ import annotations

import importlib
from typing import Any

from docutils.parsers.rst.directives.tables import ListTable
from docutils.statemachine import StringList

#: Of the columns, by their number.
_WIDTHS = {2: [64, 36], 3: [26, 44, 30]}


class CodeTable(ListTable):
    """Has docutils make a list-table of the rows."""

    required_arguments = 1
    optional_arguments = 0
    has_content = False

    def run(self) -> list[Any]:
        [name] = self.arguments
        module, _, variable = name.rpartition('.')
        table = getattr(importlib.import_module(module), variable)
        self.content = StringList(
            ['%s - %s' % (' ' if number else '*', cell)
             for row in (table.header, *table.lines())
             for number, cell in enumerate(row)], source=name)
        self.options['header-rows'] = 1
        self.options.setdefault('widths', _WIDTHS[len(table.header)])
        self.arguments = []
        return super().run()


def setup(app: Any) -> dict[str, Any]:
    for name in ('decision-table', 'metric-table'):
        app.add_directive(name, CodeTable)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
