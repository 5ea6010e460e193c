# SPDX-License-Identifier: Apache-2.0
r"""All cells of the table of moves, and the page that shows them.

A run rewrites the page::

    NOVA_BDM_CLEANUP_WRITE_PAGES=1 python3 tools/run_tests.py \
        --moves 34 --workers 1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import os
import pathlib
import re
from typing import TypeVar

from nova import version

from nova_bdm_cleanup.tests.functional import move_table
from nova_bdm_cleanup.tests.functional.move_table import End, OPERATIONS, ROWS

PAGE = (pathlib.Path(__file__).resolve().parents[3]
        / 'doc' / 'source' / 'reports' / 'moves.rst')
#: The release that the page shows.
_RELEASE = '34.'

_HEAD = """\
.. Written by nova_bdm_cleanup/tests/moves/test_table.py.

==================================
Moves, with the plugin and without
==================================

A server has a root disk, two healthy disks and one that dangles. Each
operation was run on a real Nova 34 and a real Cinder 29 in each row, with Nova
alone and with ``triggers = all``. libvirt, os-brick and the copying of files
are fakes there, and the servers have no ports; :doc:`end-to-end` has real
ones. ``tools/run_tests.py --moves 34`` compares all of it again, with a Nova
alone in the same run, and the functional tests compare one row of each
operation.

A row ends right if

* everything is as with Nova alone; or
* the dangling disk is gone from Nova, Cinder, the guest and the hosts, and
  everything else is as with Nova alone for a server without that disk; or
* a disk that another guest of a host has, or may be getting, is left out of
  the guest or left connected, and everything else is as with Nova alone.

Everything is: the server's state and task state, its host and its guests; of
each disk the row, the attachments, the guests and the connections of both
hosts; allocations, migrations, images, faults, and the action with its message
and the results of its events. The plugin refuses nothing. Each row ended
right. A row that is missing was not played with this version.

*The old host* is where the server was at first. A line names everything that
is wrong: no guest, healthy disks that are only reserved, allocations that are
left on a host where the server is not. A hard reboot of such a server runs its
guest on disks that are not attached. The end of the :doc:`runbook
</guide/runbook>` says how to repair it.

A disk that Nova created and a root disk are never removed. A half moved disk
is the server's own, and is rightly attached again. Another guest has the
address of a disk where the back end has given it to another volume since.
Where Cinder is silent, the row was played once for each request of the plugin
from which on it could be; "or" stands between the ends.
"""

#: Row, Nova's column and the plugin's column.
_ROW = re.compile(r'(?m)^   \* - (.*)\n     - (.*)\n     - (.*)\n')
_Rows = dict[str, tuple[str, str]]


class _PageTestCase(move_table.MoveTableTestCase):

    def check_cell(self, operation: str, row: str) -> list[list[End]]:
        played = super().check_cell(operation, row)
        if not version.version_string().startswith(_RELEASE):
            return played
        title, words = OPERATIONS[operation].title, ROWS[row].words
        alone = self.alone(operation, ROWS[row].kind)
        found = move_table.in_words(alone), ' or '.join(dict.fromkeys(
            'as Nova alone' if ends == alone else move_table.in_words(ends)
            for ends in played))
        sections = _read()
        if os.environ.get('NOVA_BDM_CLEANUP_WRITE_PAGES'):
            sections.setdefault(title, {})[words] = found
            PAGE.write_text(_written(sections))
        self.assertEqual(found, sections.get(title, {}).get(words))
        return played


def _read() -> dict[str, _Rows]:
    """Return the rows of the page, by title."""
    sections = re.findall(
        r'(?ms)^([^\n]+)\n=+\n(?=\n\.\. list-table)(.*?)(?=^[^\n]+\n=+\n|\Z)',
        PAGE.read_text())
    return {title: {words: (alone, plugin)
                    for words, alone, plugin in _ROW.findall(body)[1:]}
            for title, body in sections}


def _written(sections: Mapping[str, _Rows]) -> str:
    """Return the page, with titles and rows in their order."""
    lines = [_HEAD]
    for operation in OPERATIONS.values():
        rows = sections.get(operation.title)
        if not rows:
            continue
        lines += [operation.title, '=' * len(operation.title), '',
                  '.. list-table::', '   :header-rows: 1',
                  '   :widths: 20 42 38', '', '   * - The volume',
                  '     - Nova alone', '     - With the plugin']
        for row in ROWS.values():
            if row.words in rows:
                lines += [f'   * - {row.words}',
                          *(f'     - {end}' for end in rows[row.words])]
        lines.append('')
    return '\n'.join(lines).rstrip('\n') + '\n'


_Class = TypeVar('_Class', bound=type)


def _all_of(*operations: str) -> Callable[[_Class], _Class]:
    """Add all cells of some operations to a class."""
    return move_table.cells(*(
        cell for cell in move_table.table() if cell[0] in operations))


# A class runs in one process, which plays Nova alone once for all of its rows.


@_all_of('cold_migration')
class ColdMigrationTest(_PageTestCase):
    pass


@_all_of('resize')
class ResizeTest(_PageTestCase):
    pass


@_all_of('revert')
class RevertTest(_PageTestCase):
    pass


@_all_of('live_migration')
class LiveMigrationTest(_PageTestCase):
    pass


@_all_of('evacuation')
class EvacuationTest(_PageTestCase):
    pass


@_all_of('shelve')
class ShelveTest(_PageTestCase):
    pass


@_all_of('shelve_with_image')
class ShelveWithImageTest(_PageTestCase):
    pass


@_all_of('unshelve')
class UnshelveTest(_PageTestCase):
    pass


@_all_of('delete')
class DeleteTest(_PageTestCase):
    pass
