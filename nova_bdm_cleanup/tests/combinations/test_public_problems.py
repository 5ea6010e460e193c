# SPDX-License-Identifier: Apache-2.0
r"""Problems that operators have reported in public.

Each is built in one cloud; then what the audit prints is typed.  The table of
the report is what this test saw; when it changes, rewrite the page::

    NOVA_BDM_CLEANUP_WRITE_PAGES=1 python3 tools/run_tests.py \
        --combinations 34 -- test_public_problems
"""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import os
import pathlib
import re
from typing import Callable

from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import commands
from nova_bdm_cleanup.tests.functional.commands import NO_WAITING

PAGE = (pathlib.Path(__file__).resolve().parents[3] / 'doc' / 'source'
        / 'reports' / 'public-problems.inc')

_UUID = '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'

#: More commands than this do not end a problem.
_MOST = 3


@dataclasses.dataclass(frozen=True)
class Problem:
    """A symptom, and where it was reported."""

    symptom: str
    reported: str
    #: Builds it; returns its volume.
    build: Callable[[PublicProblemsTest], str]
    #: Only the runbook ends it.
    is_open: bool = False


def _bug(number: int) -> str:
    return f'`bug {number} <https://bugs.launchpad.net/nova/+bug/{number}>`__'


def _github(repository: str, number: int) -> str:
    return (f'`{repository}#{number} <https://github.com/{repository}/issues/'
            f'{number}>`__')


_CSI = 'kubernetes/cloud-provider-openstack'

PROBLEMS = (
    Problem('A volume is ``in-use`` by a server that was deleted',
            f'{_github(_CSI, 1003)}, '
            f'{_github("gophercloud/gophercloud", 3034)}',
            lambda test: test.held_by(test.deleted)),
    Problem('The same, of a host that has been taken down since', 'runbooks',
            lambda test: test.held_by(test.deleted, host='compute-old-17')),
    Problem('The same, ``detaching``: the delete of the server ended half way',
            'a runbook of OVHcloud',
            lambda test: test.detaching(test.held_by(test.deleted))),
    Problem('The same, of a multiattach volume that another server has',
            'tools that delete all attachments of a volume',
            lambda test: test.shared_with(test.deleted)),
    Problem('``current status is reserved (HTTP 400)``: an attach ended half '
            'way', _github(_CSI, 2553),
            lambda test: test.held_by(test.create_server(), connected=False)),
    Problem('A volume is ``reserved`` for a server that failed to build',
            _bug(2088066),
            lambda test: test.held_by(test.unknown, connected=False)),
    Problem('A server has a volume twice, once ``reserved``',
            'documentation of Jetstream',
            lambda test: test.attached_twice(connected=False)),
    Problem('A failed live migration: another host has the volume, too',
            'a runbook of Platform9',
            lambda test: test.attached_twice(host='compute2')),
    Problem('A volume stays ``detaching``; the server has it',
            _github('SovereignCloudStack/standards', 556),
            lambda test: test.detaching(test.disk())),
    Problem('A volume stays ``detaching``, and has no attachment',
            'a runbook of OVHcloud',
            lambda test: test.in_state('detaching')),
    Problem('A volume stays ``attaching``, and has no attachment',
            'a runbook of OVHcloud',
            lambda test: test.in_state('attaching')),
    Problem('The volume was deleted; the server does not boot',
            _github(_CSI, 1645),
            lambda test: test.damaged(test.cloud.lose_volume)),
    Problem('The volume was detached in Cinder only, by ``volume set '
            '--detached`` or an attachment delete',
            'scripts that loop over ``openstack volume list``',
            lambda test: test.damaged(test.cloud.lose_attachment)),
    Problem('The state of a volume was reset to ``available`` while a guest '
            'has it', 'scripts, and advice in forums',
            lambda test: test.disk_in_state('available')),
    Problem('The state of a volume was set to ``error`` to get rid of a lock',
            'a training of the Sovereign Cloud Stack',
            lambda test: test.disk_in_state('error')),
    Problem('A volume is ``in-use``, Cinder has no attachment of it, and the '
            'guest has it', 'a tool of SAP',
            lambda test: test.without_record(), is_open=True),
)


class PublicProblemsTest(commands.CommandWithWitnessTestCase):

    deleted: fixture.Server
    unknown: fixture.Server

    def setUp(self) -> None:
        super().setUp()
        self.deleted = self.deleted_server()
        self.unknown = self.unknown_server()

    # How they are built

    def disk(self) -> str:
        return str(self.create_server(fixture.Disk()).volumes[0])

    def held_by(self, server: fixture.Server, connected: bool = True,
                host: str | None = None) -> str:
        volume = self.cloud.volume()
        self.cloud.create_attachment(server, volume, connected, host)
        return volume

    def shared_with(self, server: fixture.Server) -> str:
        volume = self.cloud.volume(multiattach=True)
        self.create_server(fixture.Disk(volume=volume))
        self.cloud.create_attachment(server, volume)
        return volume

    def attached_twice(self, connected: bool = True,
                       host: str | None = None) -> str:
        server = self.create_server(fixture.Disk())
        self.cloud.create_attachment(server, server.volumes[0], connected,
                                     host)
        return str(server.volumes[0])

    def detaching(self, volume: str) -> str:
        self.cinder.volumes.begin_detaching(volume)
        return volume

    def in_state(self, status: str) -> str:
        volume = self.cloud.volume()
        self.cloud.reset_status(volume, status)
        return volume

    def disk_in_state(self, status: str) -> str:
        volume = self.disk()
        self.cloud.reset_status(volume, status)
        return volume

    def damaged(self, lose: Callable[[fixture.Server, str], None]) -> str:
        server = self.create_server(fixture.Disk())
        lose(server, server.volumes[0])
        return str(server.volumes[0])

    def without_record(self) -> str:
        volume = self.damaged(self.cloud.lose_attachment)
        self.set_in_use(volume)
        return volume

    # How they end

    def found(self, volume: str) -> list[dict[str, str]]:
        _, rows = self.bdm('audit', '--all-projects', '--thorough',
                           *NO_WAITING)
        self.assertNotIn('INCOMPLETE', self.stderr.getvalue())
        return [row for row in rows if row['Volume'] == volume]

    def end(self, problem: Problem, volume: str) -> tuple[str, list[str]]:
        """Type what is printed for a volume until nothing is found.

        :returns: the first reason, and the commands
        """
        rows, typed = self.found(volume), []
        reason = rows[0]['Reason']
        while rows and len(typed) < _MOST:
            action = rows[0]['Action'].replace('look: ', '')
            self.assertEqual(problem.is_open, 'bdm show' in action, reason)
            if problem.is_open:
                return reason, ['openstack bdm explain ' + reason]
            typed += self.type(action)
            rows = self.found(volume)
        self.assertEqual([], rows, typed)
        return reason, typed

    def type(self, action: str) -> list[str]:
        """Carry out an action; return the commands that did it."""
        if not action.startswith('openstack bdm release '):
            self.run_action(action)
            return action.split('; ')
        code, (row, *_) = self.bdm('release', *action.split()[3:], '--yes')
        without_host = re.search('openstack bdm release --connector none .*',
                                 row['Explanation'])
        if code is ExitCode.REFUSED and without_host:
            # It asks for what Cinder cannot know.
            return self.type(without_host.group())
        self.assertIs(ExitCode.OK, code, row)
        return [action]

    def test_printed_commands_end_each_problem(self) -> None:
        lines = ['.. Written by nova_bdm_cleanup/tests/combinations/'
                 'test_public_problems.py.', '', '.. list-table::',
                 '   :header-rows: 1', '   :widths: 35 20 15 30', '',
                 '   * - Symptom', '     - Reported', '     - Found',
                 '     - Ended by']
        for problem in PROBLEMS:
            volume = problem.build(self)
            reason, typed = self.end(problem, volume)
            lines += [f'   * - {problem.symptom}',
                      f'     - {problem.reported}', f'     - :ref:`{reason}`',
                      f'     - {_cell(typed, volume)}']
        page = '\n'.join(lines) + '\n'
        if os.environ.get('NOVA_BDM_CLEANUP_WRITE_PAGES'):
            PAGE.write_text(page)
        self.assertEqual(PAGE.read_text(), page)


def _cell(typed: Iterable[str], volume: str) -> str:
    """Return the commands without ids."""
    shown = (command.replace(' '.join(NO_WAITING), '').replace(
        volume, 'VOLUME').strip() for command in typed)
    return ', '.join('``%s``' % re.sub(
        _UUID, 'ATTACHMENT' if ' release ' in each else 'SERVER', each)
        for each in shown)
