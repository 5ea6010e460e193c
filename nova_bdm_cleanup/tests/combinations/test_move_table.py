# SPDX-License-Identifier: Apache-2.0
r"""Each operation that replaces attachments, with each kind of disk.

The page shows the result of Nova alone beside the result with the plugin.  All
of it was seen.  Each run compares each operation with two kinds of disk, so
each kind is met at least once; the search (``tests/simulation``) has all
combinations, as has a run that rewrites the page::

    NOVA_BDM_CLEANUP_WRITE_PAGES=1 python3 tools/run_tests.py \
        --combinations 34 -- --concurrency 1 test_move_table
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import os
import pathlib
import re
import time
from typing import Optional

import testtools

from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import moving
from nova_bdm_cleanup.tests.functional.moving import HERE, THERE

PAGE = (pathlib.Path(__file__).resolve().parents[3]
        / 'doc' / 'source' / 'reports' / 'moves.rst')

_HEAD = """\
.. Written by nova_bdm_cleanup/tests/combinations/test_move_table.py.

==================================
Moves, with the plugin and without
==================================

A server has a root disk, two healthy disks and one that dangles. Each
operation was run on a real Nova 34 and a real Cinder 29, with each kind of
dangling disk, with Nova alone and with ``triggers = all``. libvirt, os-brick
and the copying of files are fakes there; :doc:`end-to-end` has real ones. Each
run of the tests compares a sixth of the plugin's column again.

*The old host* is where the server was at first. A line names everything that
is wrong: no guest, healthy disks that are only reserved, allocations that are
left on a host where the server is not. A hard reboot of such a server runs its
guest on disks that are not attached. The end of the :doc:`runbook
</guide/runbook>` says how to repair it.

In no line does the plugin end worse than Nova alone; a test compares them. Of
the ends, the worst is the first of these that a line names:

%s

A refusal changes nothing: the server is as it was, and has its disks. It
counts as better than all of these. A disk that Nova created and a root disk
are never removed, so what takes them elsewhere is refused, except a live
migration; a half moved disk is the server's own, and is rightly attached
again. Another guest has the address of a disk where the back end has given it
to another volume since.
"""

_ADDRESS_THERE = 'address-on-the-new-host'
_ADDRESS_HERE = 'address-on-the-old-host'
_HALF_MOVED = 'half-moved'
_MULTIATTACH = 'multiattach'
_SNAPSHOT = 'from-a-snapshot'
_ROOT = 'root'

_KINDS = {
    'volume-deleted': 'does not exist',
    'attachment-deleted': 'available',
    'attached-elsewhere': 'attached to a server of another host',
    'transferred': "available, and another project's",
    moving.SAME_HOST: 'attached to a server of the old host',
    'status-reset': 'available, with its attachment left over',
    _ADDRESS_THERE:
        'available; another guest of the new host has its address',
    _ADDRESS_HERE: 'available; another guest of the old host has its address',
    _HALF_MOVED: 'half moved: reserved for the server',
    _MULTIATTACH: 'multiattach, attached to a server of the old host only',
    _SNAPSHOT: 'available; Nova created it from a snapshot',
    _ROOT: 'the root disk, available'}
_HOSTS = {HERE: 'the old host', THERE: 'the new host', None: 'no host'}

#: In the order of the page.
_TITLES = (
    'Cold migration, and confirm', 'Resize, and revert',
    'Revert a cold migration, dangling since', 'Live migration',
    'Evacuation, and the old host returns',
    'Shelve a server whose root disk is a volume, and unshelve',
    'Shelve a server whose root disk is a file, and unshelve',
    'Unshelve, dangling since the shelve', 'Delete')

#: The words for what is wrong, the worst first.
_WRONG = (
    'another guest has lost its disk', 'no guest', 'ERROR', 'healthy disks',
    'attached again', 'reserved again', 'allocations are left',
    'attachments are left')

Step = Callable[[fixture.Server], Optional[fixture.APIError]]


class MoveTableTest(moving.MoveTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.ignore_actions()

    def test_cold_migration_ends_as_the_page_says(self):
        self.check_operation(0, None, self.migrate, self.confirm)

    def test_resize_ends_as_the_page_says(self):
        self.check_operation(1, None, self.resize, self.revert)

    def test_revert_ends_as_the_page_says(self):
        self.check_operation(2, self.migrate, self.revert)

    def test_live_migration_ends_as_the_page_says(self):
        self.check_operation(3, None, self.migrate_live)

    def test_evacuation_ends_as_the_page_says(self):
        self.check_operation(4, None, self.evacuate, self.come_back)

    def test_shelve_ends_as_the_page_says(self):
        self.check_operation(5, None, self.shelve, self.unshelve)

    def test_shelve_with_a_file_ends_as_the_page_says(self):
        self.check_operation(6, None, self.shelve, self.unshelve, root='image')

    def test_unshelve_ends_as_the_page_says(self):
        self.check_operation(7, self.shelve, self.unshelve)

    def test_delete_ends_as_the_page_says(self):
        self.check_operation(8, None, self.delete)

    # -- operations --------------------------------------------------------

    def delete(self, server: fixture.Server) -> None:
        self.start_recording()
        self.cloud.delete(server)

    def check_operation(self, number: int, before: Step | None, *steps: Step,
                        root: str = 'volume') -> None:
        """Play an operation with every kind of disk.

        :param before: the operation on the server before it was broken
        """
        title = _TITLES[number]
        self.steps = steps
        written = _sections(PAGE.read_text()) if PAGE.exists() else {}
        stock = {kind: end for kind, end, _ in
                 _ROW.findall(written.get(title, ''))}
        writes = bool(os.environ.get('NOVA_BDM_CLEANUP_WRITE_PAGES'))
        if writes:
            self.cloud.switch_plugin_off()
            self.restart()
            for kind in self.kinds(root):
                stock[_KINDS[kind]] = self.outcome(kind, before, steps, root)
            self.cloud.switch_plugin_on()
            self.restart()
        kinds = self.kinds(root)
        rows = []
        for kind in kinds if writes else kinds[number % 6::6]:
            name = _KINDS[kind]
            result = self.outcome(kind, before, steps, root)
            rows.append((name, stock.get(name, ''), result))
        if writes:
            written = _sections(PAGE.read_text())
            written[title] = _section(title, rows)
            PAGE.write_text('\n'.join([_head(), *[
                written[each] for each in _TITLES if each in written]]))
        self.assertTrue(PAGE.read_text().startswith(_head()))
        for row in rows:
            self.assertIn(_row(row), written[title])

    @staticmethod
    def kinds(root: str) -> list[str]:
        """Return the kinds of disks that a server can have.

        :param root: the kind of its root disk
        """
        return [kind for kind in _KINDS if root == 'volume' or kind != _ROOT]

    def broken_server(self, kind: str, before: Step | None, root: str
                      ) -> tuple[fixture.Server, str]:
        """Return a server, and its disk that dangles."""
        disk = fixture.Disk(at_boot=True, multiattach=kind == _MULTIATTACH)
        last = (dataclasses.replace(disk, source='snapshot')
                if kind == _SNAPSHOT else disk)
        server = self.create_server(disk, disk, last, host=HERE, root=root)
        if kind != _SNAPSHOT:
            self.cloud.allocate(server)
        lost = (server.root if kind == _ROOT
                else server.volumes[-1] if kind == _SNAPSHOT
                # Nova handles this disk last, or the root disk.
                else max(server.volumes))
        if before:
            before(server)
        #: The disk of another guest, and the host that has it.
        self.theirs: tuple[str, str] | None = None
        if kind in (_ADDRESS_HERE, _ADDRESS_THERE):
            self.damage(server, lost, 'attachment-deleted')
            host = HERE if kind == _ADDRESS_HERE else THERE
            self.theirs = host, self.add_neighbour(server, lost, host)[1]
        elif kind == _HALF_MOVED:
            self.damage(server, lost, 'attachment-deleted')
            self.cloud.create_attachment(server, lost, connected=False)
        elif kind == _MULTIATTACH:
            self.damage(server, lost, 'attachment-deleted')
            self.cloud.attach(self.create_server(host=HERE), lost)
            self.theirs = HERE, lost
        elif kind in (_SNAPSHOT, _ROOT):
            self.damage(server, lost, 'attachment-deleted')
        else:
            self.damage(server, lost, kind)
            if kind == moving.SAME_HOST:
                self.theirs = HERE, lost
        return server, lost

    def outcome(self, kind: str, before: Step | None, steps: Sequence[Step],
                root: str) -> str:
        """Return the state of a server after each step, in words."""
        server, lost = self.broken_server(kind, before, root)
        known = {each.id for each in self.cloud.attachments(lost)}
        ends: list[str] = []
        said: set[str] = set()
        for step in steps:
            error = step(server)
            if error:
                ends.append('refused by the API')
                break
            words = list(self.state(server, lost, known))
            ends.append(', '.join(w for w in words if w not in said))
            said.update(words[1:])
            if self.refusals(server) or 'ERROR' in ends[-1]:
                break
        self.come_back(server)
        return '; then '.join(ends)

    # -- state -------------------------------------------------------------

    def state(self, server: fixture.Server, lost: str, known: set[str]
              ) -> Iterator[str]:
        """Yield the state of a server, in words.

        :param known: the earlier attachments of the volume
        """
        with self.cloud.nova.database('cell1') as database:
            is_deleted, = database.execute(
                'SELECT deleted FROM instances WHERE uuid = ?',
                (server.id,)).fetchone()
        if is_deleted:
            yield 'deleted'
            if any(each.server_id == server.id
                   for volume in (*self.other_volumes(server, None),)
                   for each in self.cloud.attachments(volume)):
                yield 'attachments are left'
        else:
            yield from self.state_of_existing(server, lost, known)
        if self.theirs is not None:
            where, volume = self.theirs
            if not self.cloud.nova.connected[where][volume]:
                yield 'another guest has lost its disk'

    def state_of_existing(self, server: fixture.Server, lost: str,
                        known: set[str]) -> Iterator[str]:
        view = self.look_on_current_host(server)
        host = self.host_of(server)
        refused = bool(self.refusals(server))
        yield '%s%s on %s' % ('refused: ' * refused, view.status,
                              self.host_name(host))
        if host and not view.is_running and view.status != 'SHELVED':
            yield 'no guest'
        ours = view.attachments_of(lost)
        new = [each for each in ours if each.id not in known]
        if view.block_device(lost) is None:
            yield 'the disk is removed'
        elif new:
            yield 'the disk is %s again' % new[0].status
        elif view.is_running and not view.has_disk(lost):
            yield 'the disk is not connected'
        else:
            yield 'the disk as before'
        found = {', '.join(each.status for each in view.attachments_of(v))
                 for v in self.other_volumes(server, lost) if v != lost}
        wrong = found - {'attached' if host else 'reserved'}
        if wrong:
            yield 'healthy disks are ' + ' or '.join(sorted(wrong))
        needed = {host}
        if view.status == 'VERIFY_RESIZE' or self._dead:
            # Nova itself needs both.
            needed = {HERE, THERE}
        for each in sorted(self.surplus_hosts(server, needed)):
            yield 'allocations are left on ' + self.host_name(each)

    def host_name(self, host: str | None) -> str:
        """Return the name of a host: after a shelve any will do."""
        if host and self.unshelve in self.steps:
            return 'a host'
        return _HOSTS[host]

    def surplus_hosts(self, server: fixture.Server, needed: set[str | None]
                ) -> set[str]:
        """Return the hosts with allocations that a server does not need.

        Nova deletes these last.
        """
        for _ in range(20):
            found = self.allocated_hosts(server) - needed
            if not found:
                break
            time.sleep(0.1)
        return found


class WrittenTableTest(testtools.TestCase):
    """The results on the page, compared with each other."""

    def test_plugin_ends_no_worse_than_nova(self):
        """Check that no line ends worse with the plugin than without it."""
        found = 0
        for title, section in _sections(PAGE.read_text()).items():
            for kind, stock, plugin in _ROW.findall(section)[1:]:
                found += 1
                self.assertLessEqual(
                    _wrongness(plugin), _wrongness(stock),
                    f'{title}: {kind}: "{plugin}" instead of "{stock}"')
        self.assertEqual(
            len(_TITLES) * len(_KINDS) - 1, found, 'the page is incomplete')


def _wrongness(end: str) -> int:
    """Return how bad an end is; 0: nothing is wrong."""
    return len(_WRONG) - next((
        number for number, words in enumerate(_WRONG) if words in end),
        len(_WRONG))


#: Kind, Nova's column and the plugin's column of a row.
_ROW = re.compile(r'(?m)^   \* - (.*)\n     - (.*)\n     - (.*)\n')


def _head() -> str:
    return _HEAD % '\n'.join(
        '%d. %s' % (number, words) for number, words in enumerate(_WRONG, 1))


def _section(title: str, rows: Sequence[tuple[str, str, str]]) -> str:
    lines = [title, '=' * len(title), '', '.. list-table::',
             '   :header-rows: 1', '   :widths: 20 42 38', '',
             '   * - The volume', '     - Nova alone',
             '     - With the plugin']
    return '\n'.join(lines) + '\n' + ''.join(map(_row, rows))


def _row(row: Sequence[str]) -> str:
    kind, *ends = row
    return f'   * - {kind}\n' + ''.join(f'     - {end}\n' for end in ends)


def _sections(page: str) -> dict[str, str]:
    """Return the page's sections, by title."""
    return {title: '\n'.join((title, '=' * len(title), body.rstrip())) + '\n'
            for title, body in re.findall(
                r'(?ms)^([^\n]+)\n=+\n(?=\n\.\. list-table)(.*?)'
                r'(?=^[^\n]+\n=+\n|\Z)', page)}
