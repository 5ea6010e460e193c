# SPDX-License-Identifier: Apache-2.0
"""The five use cases of Cinder's force_detach specification.

Each with single and multiattach volumes, built by the calls of the attach
flow before Queens and of the one since, for a server that runs, one that is
stopped and one that is gone; in a cloud with other servers, and in one where
none has a volume.  At the end the back end and Cinder's database agree, and no
other server's connection was touched.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import commands, scenario

#: The back end's calls where a host had the volume.
DISCONNECT_CALLS = ('terminate_connection', 'remove_export')

SINCE_QUEENS, BEFORE_QUEENS = 'since Queens', 'before Queens'
RUNNING, STOPPED, DELETED = 'running', 'stopped', 'deleted'

#: By use case, attach flow and server: the call that the release makes, the
#: state of the volume at the end, and the back end's calls until then.
EXPECTED: dict[tuple[int, str, str], tuple[str, str, tuple[str, ...]]] = {
    **{(1, SINCE_QUEENS, server): ('attachment delete', 'available', ())
       for server in (RUNNING, STOPPED, DELETED)},
    # No record says which server it is reserved for.
    (1, BEFORE_QUEENS, DELETED): ('os-unreserve', 'available', ()),

    # For an existing server an operator ends it: see InterruptedAttachTest.
    (2, SINCE_QUEENS, DELETED): ('attachment delete', 'available',
                                 DISCONNECT_CALLS),
    # Cinder has no record, so there is no export of one to take back.
    (2, BEFORE_QUEENS, DELETED): ('os-force_detach', 'available',
                                  ('terminate_connection',)),

    # The attachment is stale then: a hard reboot deletes it; one from before
    # Queens needs another release, when the server is stopped.
    **{(3, flow, server): ('os-roll_detaching', 'available', DISCONNECT_CALLS)
       for flow in (SINCE_QUEENS, BEFORE_QUEENS)
       for server in (RUNNING, STOPPED)},
    (3, SINCE_QUEENS, DELETED): ('attachment delete', 'available',
                                 DISCONNECT_CALLS),
    (3, BEFORE_QUEENS, DELETED): ('os-force_detach', 'available',
                                  DISCONNECT_CALLS),

    # Without a server there is no mapping, which is the third case.
    **{(4, flow, server): ('os-roll_detaching', 'in-use', ())
       for flow in (SINCE_QUEENS, BEFORE_QUEENS)
       for server in (RUNNING, STOPPED)},

    # No record names a server; only the calls before Queens leave none.
    (5, BEFORE_QUEENS, DELETED): ('os-terminate_connection', 'available',
                                  ('terminate_connection',)),
}


@dataclasses.dataclass
class Case:
    """One cell of the table."""

    number: int
    flow: str
    server: str
    multiattach: bool
    volume: str
    #: The argument of the release.
    target: str = ''
    #: The attachment of another server that has the volume, too.
    neighbour: str | None = None

    @property
    def expected(self) -> tuple[str, str, tuple[str, ...]]:
        return EXPECTED[self.number, self.flow, self.server]


class _UseCasesTestCase(commands.CommandTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.servers: dict[str, fixture.Server] = {}
        self._devices = map('/dev/vd{}'.format, 'bcdefghijklmnopqrstu')

    def create_servers(self) -> None:
        """Create servers without volumes."""
        self.servers.update({RUNNING: self.create_server(),
                             STOPPED: self.create_server()})
        self.cloud.stop(self.servers[STOPPED])

    def cases(self, *numbers: int, servers: tuple[str, ...] = (
            RUNNING, STOPPED, DELETED)) -> list[Case]:
        """Build the use cases with these numbers, for these servers."""
        found = [Case(*key, multiattach, self.cloud.volume(
            multiattach=multiattach)) for key, multiattach in
            itertools.product(EXPECTED, (False, True))
            if key[0] in numbers and key[2] in servers]
        for case in found:
            self.build(case)
        return found

    def build(self, case: Case) -> None:
        """Make the calls that leave a volume stuck."""
        server, volume = self.servers[case.server], case.volume
        case.target, attachment, info = volume, None, {}
        if case.flow == SINCE_QUEENS:
            if case.multiattach:
                case.neighbour = self.cloud.create_attachment(
                    self.unknown_server(), volume, host='compute2')
            created = self.cinder.attachments.create(
                volume, self.connector() if case.number > 1 else None,
                server.id)
            case.target = attachment = created['id']
            info = created.get('connection_info')
            if case.number > 2:
                self.cinder.attachments.complete(attachment)
        else:
            if case.number < 5:
                self.cinder.volumes.reserve(volume)
            if case.number > 1:
                info = self.cinder.volumes.initialize_connection(
                    volume, self.connector())
            if case.number in (3, 4):
                self.cinder.volumes.attach(volume, server.id, '/dev/vdb',
                                           host_name='compute1')
                case.target = self.cloud.attachments(volume)[0].id
        if case.number in (3, 4):
            self.cinder.volumes.begin_detaching(volume)
        if case.number == 4 and case.server != DELETED:
            self.create_connected_mapping(server, volume, attachment, info)

    def create_connected_mapping(self, server: fixture.Server, volume: str,
            attachment: str | None, info: dict[str, Any]) -> None:
        """Give Nova a mapping with the connection of a volume."""
        kind = info.pop('driver_volume_type')
        row = self.create_mapping(
            server, volume, attachment_id=attachment,
            connection_info=json.dumps({
                'driver_volume_type': kind, 'serial': volume,
                'data': info.get('data', info)}))
        row.device_name = next(self._devices)
        row.save()

    def release_all(self, cases: list[Case], *arguments: str) -> None:
        """Release the volumes of some cases, and check the call for each."""
        _, rows = self.bdm(
            'release', *[case.target for case in cases], *arguments,
            *commands.NO_WAITING, '--yes', '--max', str(len(cases)))
        calls = {row['Attachment'] if row['Attachment'] in [
            case.target for case in cases] else row['Volume']:
            row['Call'] or row['Explanation'] for row in rows}
        for case in cases:
            call = calls[case.target]
            self.assertEqual(case.expected[0], call, case)

    def play(self, cases: list[Case], *options: str) -> None:
        """Release the volumes of all cases, and check the results.

        :param options: of every release
        """
        def release(some: list[Case], *arguments: str) -> None:
            if some:
                self.release_all(some, *arguments, *options)

        def select(*numbers: int, **wanted: str) -> list[Case]:
            return [case for case in cases if case.number in numbers and all(
                getattr(case, name) == value
                for name, value in wanted.items())]

        for_host = select(2, 3, 5, flow=BEFORE_QUEENS, server=DELETED)
        # While anything is detached, nothing is known to be stale.
        release([c for c in select(3, 4) if c not in for_host])
        release([c for c in (*select(1, flow=SINCE_QUEENS), *select(2))
                 if c not in for_host])
        release(select(1, flow=BEFORE_QUEENS), '--connector', 'none')
        release(for_host, '--connector', self.connector_file())
        legacy = [case.target for case in select(3, flow=BEFORE_QUEENS)
                  if case.server != DELETED]
        if legacy:
            self.release_legacy(legacy, *options)
        for case in cases:
            self.check_result(case)

    def release_legacy(self, attachments: list[str], *options: str) -> None:
        """Release attachments of servers, which must be stopped."""
        self.bdm('clean', self.servers[RUNNING].id, '--yes')
        self.bdm('clean', self.servers[STOPPED].id, '--yes', '--stop-again')
        self.cloud.stop(self.servers[RUNNING])
        code, rows = self.bdm('release', *attachments, '--connector',
                              self.connector_file(), *options,
                              *commands.NO_WAITING,
                              '--yes')
        self.assertEqual((0, {'os-force_detach'}),
                         (code, {row['Call'] for row in rows}), rows)

    def check_result(self, case: Case) -> None:
        _, status, calls = case.expected
        if case.neighbour:
            status = 'in-use'
        left = self.cloud.attachments(case.volume)
        self.assertEqual(
            (status, calls), (self.volume_status(case.volume),
                             tuple(self.terminate_calls(case.volume))), case)
        # Only this connection, and never those of all hosts.
        self.assertLessEqual({
            call['host'] for call in self.cloud.cinder.driver_calls(
                case.volume) if call['call'] == 'terminate_connection'},
            {'compute1'}, case)
        self.assertEqual(
            sorted([(case.neighbour, 'attached')] * bool(case.neighbour)
                   + [(a.id, 'attached') for a in left
                      if a.server_id == self.servers[case.server].id]),
            sorted((a.id, a.status) for a in left), case)
        self.assertEqual(case.expected[1] == 'in-use', any(
            a.server_id == self.servers[case.server].id for a in left), case)


class UseCasesTest(_UseCasesTestCase):
    """A cloud with another server that has a volume."""

    def test_use_cases_end_as_documented(self):
        self.create_server(scenario.BOOT_DISK, name='witness')
        self.create_servers()
        self.servers[DELETED] = self.unknown_server()
        self.play(self.cases(1, 2, 3, 4, 5))


class EmptyCloudTest(_UseCasesTestCase):
    """A cloud without any other server that has a volume."""

    def assert_needs_word(self, *arguments: str) -> None:
        """Check that nothing is released, and that the way out is named."""
        code, rows = self.bdm('release', *arguments, *commands.NO_WAITING,
                              '--yes')
        self.assertEqual((ExitCode.REFUSED, None), (code, rows))
        self.assertIn('add --same-cloud', self.stderr.getvalue())

    def test_server_that_nova_has_deleted(self):
        self.play_with_word(1, 2, 3, 5, of=self.deleted_server())

    def test_server_that_never_was(self):
        self.play_with_word(1, 2, 3, 5, of=self.unknown_server())

    def play_with_word(self, *numbers: int, of: fixture.Server) -> None:
        self.servers[DELETED] = of
        cases = self.cases(*numbers, servers=(DELETED,))
        for case in cases:
            self.assert_needs_word(case.target)
        self.play(cases, '--same-cloud')

    def test_servers_that_nova_does_not_attach(self):
        self.create_servers()
        self.play(self.cases(1, 3, servers=(RUNNING, STOPPED)),
                  '--same-cloud')

    def test_servers_with_a_mapping(self):
        self.create_servers()
        self.play(self.cases(4, servers=(RUNNING, STOPPED)))

    def test_audit_releases_what_the_last_server_left(self):
        """Find what the last server left, and print what releases it."""
        volume, lonely = self.cloud.volume(), self.cloud.volume()
        self.cloud.create_attachment(self.unknown_server(), volume)
        self.set_in_use(lonely)
        found = self.run_audit('--all-projects')
        self.assertEqual({volume: 'server-gone',
                          lonely: 'volume-unreferenced'},
                         {v: reason for v, (reason, _) in found.items()})
        self.assertNotIn('INCOMPLETE', self.stderr.getvalue())
        for held, arguments in ((volume, ()),
                                (lonely, ('--connector', 'none'))):
            command = found[held][1]
            self.assertTrue(command.startswith('look: openstack bdm release '))
            target = command.split()[-1]
            self.assert_needs_word(target, *arguments)
            code, rows = self.bdm(
                'release', target, *arguments, '--same-cloud',
                *commands.NO_WAITING, '--yes')
            self.assertEqual(ExitCode.OK, code, rows)
        self.assert_released(volume, 'terminate_connection', 'remove_export')
        self.assert_released(lonely)
        self.assertEqual({}, self.run_audit('--all-projects'))

    def test_same_cloud_is_refused_in_another_region(self):
        """Refuse the word where Cinder knows none of Nova's volumes."""
        server = self.create_server(scenario.BOOT_DISK)
        volume = self.cloud.volume()
        attachment = self.cloud.create_attachment(self.unknown_server(),
                                                  volume)
        self.cloud.lose_volume(server, *server.volumes)
        code, rows = self.bdm('release', volume, '--same-cloud', '--yes')
        self.assertEqual((ExitCode.REFUSED, None), (code, rows))
        self.assertIn('another region', self.stderr.getvalue())
        self.assertEqual([attachment], [
            a.id for a in self.cloud.attachments(volume)])
