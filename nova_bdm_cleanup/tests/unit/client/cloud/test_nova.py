# SPDX-License-Identifier: Apache-2.0
"""Parsing of the compute API's answers."""

from __future__ import annotations

import dataclasses
import datetime
import functools
from typing import Any, Callable

from nova_bdm_cleanup.client.cloud.nova import ComputeServer, Disk, mappings_of
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules.facts import Bdm, Ending
from nova_bdm_cleanup.tests.unit import wire
from nova_bdm_cleanup.tests.unit.client.cloud import base


class ServersTest(base.CloudCase):

    def test_server_is_read_with_all_fields(self) -> None:
        self.cloud.servers[self.alpha].update({
            'locked': True,
            'OS-EXT-STS:task_state': 'rebooting'})
        self.assertEqual(ComputeServer(
            id=self.alpha, name='alpha', status='ACTIVE', project='own',
            user='someone', host='compute1', node='compute1',
            task_state='rebooting',
            locked=True, root_device='/dev/vda', volumes=(self.disk,)),
            self.nova().server(self.alpha))

    def test_deleted_server_has_no_record_and_no_disks(self) -> None:
        self.assertIsNone(self.nova().server('gone'))
        self.assertIsNone(self.nova().disks(
            ComputeServer('gone', 'gone', 'ACTIVE')))

    def test_swaps_have_the_worst_of_their_endings(self) -> None:
        self.assertIs(Ending.SUCCESS, self.nova().swaps(self.alpha))
        ended, failed = (
            [{'result': result, 'finish_time': '2026-03-14T02:30:00'}]
            for result in ('Success', 'Error'))
        known: list[tuple[list[list[dict[str, Any]]], Ending]] = [
            ([ended], Ending.SUCCESS), ([ended, failed], Ending.FAILURE),
            ([failed, ended, []], Ending.NONE),
            ([[{'result': None}], ended], Ending.NONE)]
        for swaps, worst in known:
            self.cloud.swaps[self.alpha] = swaps
            self.cloud.requests.clear()
            self.assertIs(worst, self.nova().swaps(self.alpha))
            # Since 2.58 Nova returns the actions in pages.
            self.assertEqual(
                ['compute 2.1'], [r.headers['OpenStack-API-Version']
                                  for r in self.cloud.requests
                                  if r.path.endswith('/os-instance-actions')])

    def test_failed_detach_is_one_that_nova_can_repeat(self) -> None:
        minute = datetime.timedelta(minutes=1)
        now = datetime.datetime.now(datetime.timezone.utc)
        self.cloud.fail_detach(self.alpha, self.disk, 90 * minute)

        def has_failed(age: datetime.timedelta) -> bool:
            nova = self.nova()
            return bool(nova.has_failed_detach(
                nova.server(self.alpha), self.disk, now - age))

        self.assertTrue(has_failed(90 * minute))
        # The detach of another volume.
        self.assertFalse(has_failed(60 * minute))
        server = self.cloud.servers[self.alpha]
        for fields in ({'status': 'ERROR'}, {
                'OS-EXT-SRV-ATTR:root_device_name': '/dev/vdb'}):
            before = dict(server)
            server.update(fields)
            self.assertFalse(has_failed(90 * minute), fields)
            server.update(before)
        self.cloud.swaps[self.alpha] = [[]]
        self.assertFalse(has_failed(90 * minute))
        self.cloud.swaps.clear()
        self.cloud.on('os-instance-actions/req-detach', lambda: (200, {
            'instanceAction': {'events': [{'result': 'Success'}]}}))
        self.assertFalse(has_failed(90 * minute))

    def test_migration_is_over_in_known_states_only(self) -> None:
        for states, expected in (
                ([], False), (['completed', 'error'], False),
                (['completed', 'running'], True), (['post-migrating'], True),
                (['unheard-of'], True)):
            self.cloud.migrations[self.alpha] = states
            self.assertEqual(
                expected, self.nova().is_migrated(self.alpha), states)
        self.assertRaises(errors.Forbidden,
                          self.nova('member').is_migrated, self.alpha)

    def test_last_operations_of_server_that_lacks_its_root(self) -> None:
        server = ComputeServer(self.alpha, 'alpha', 'ERROR', host='compute1')
        for names, expected in (
                (['reboot', 'rebuild', 'create'], True),
                (['reboot', 'lock', 'reboot', 'rebuild'], True),
                (['rebuild', 'create'], False),
                (['reboot', 'migrate', 'rebuild'], False),
                (['reboot'], False), ([], False)):
            self.cloud.calm()
            answer = {'instanceActions': [
                {'action': name, 'request_id': 'req'} for name in names]}
            self.cloud.on('os-instance-actions',
                          functools.partial(tuple, (200, answer)))
            self.assertEqual(expected, self.nova().lacks_root(server), names)
        for change in ({'status': 'ACTIVE'}, {'volume_backed': True},
                       {'is_nowhere': True}, {'task_state': 'rebuilding'}):
            self.assertFalse(self.nova().lacks_root(
                dataclasses.replace(server, **change)))

    def test_any_other_404_is_no_answer(self) -> None:
        self.cloud.on('GET .*/servers/', lambda: wire.page(404))
        server = ComputeServer(self.alpha, 'alpha', 'ACTIVE')
        self.assertRaises(errors.BadAnswer, self.nova().server, self.alpha)
        self.assertRaises(errors.BadAnswer, self.nova().disks, server)

    def test_answer_about_another_server_is_refused(self) -> None:
        self.cloud.on('GET .*/servers/' + self.alpha, lambda: (
            200, {'server': self.cloud._server(
                self.cloud.servers[self.beta])}))
        self.assertRaises(errors.BadAnswer, self.nova().server, self.alpha)

    def test_server_of_a_silent_cell_is_unanswered(self) -> None:
        self.cloud.silent_servers = [self.alpha]
        self.assertRaises(errors.Unanswered, self.nova().server, self.alpha)
        [page] = self.nova().servers(all_projects=True)
        self.assertEqual([False, True], [s.is_unknown for s in page])

    def test_fields_of_wrong_type_are_refused(self) -> None:
        volumes = 'os-extended-volumes:volumes_attached'
        for key, value in (('status', None), ('id', 5), ('tenant_id', 5),
                           ('OS-EXT-SRV-ATTR:host', ['compute1']),
                           ('OS-EXT-STS:task_state', 5),
                           (volumes, None), (volumes, ['volume']),
                           (volumes, [{}])):
            server = self.cloud._server(self.cloud.servers[self.alpha])
            server[key] = value
            self.cloud.calm()
            self.cloud.on('GET .*/servers/', lambda s=server: (
                200, {'server': s}))
            self.assertRaises(errors.BadAnswer, self.nova().server,
                              self.alpha)

    def test_ids_as_somebody_else_writes_them(self) -> None:
        """Accept IDs as Nova keeps them: as the user wrote the volume ID
        to boot from it.
        """
        mapping, = self.cloud.mappings[self.alpha]
        expected = self.nova().disks(self.nova().server(self.alpha))
        for key in ('volumeId', 'attachment_id'):
            mapping[key] = mapping[key].upper()
        server = self.nova().server(self.alpha)
        self.assertEqual((self.disk,), server.volumes)
        self.assertEqual(expected, self.nova().disks(server))

    def test_silent_hosts_are_listed_for_administrators(self) -> None:
        self.cloud.silent_hosts = ['compute8', 'compute7']
        hosts = self.nova().hosts()
        self.assertEqual({'compute1', 'compute2', 'compute7', 'compute8'},
                         hosts.known)
        self.assertEqual(('compute7', 'compute8'), hosts.silent)
        self.assertRaises(errors.Forbidden, self.nova('member').hosts)


class FindTest(base.CloudCase):

    def test_server_is_found_by_id_or_exact_name(self) -> None:
        # Nova treats a name as a regular expression.
        self.cloud.server('alphabet')
        for name in ('alpha', self.alpha, self.alpha.upper(),
                     '{%s}' % self.alpha, self.alpha.replace('-', '')):
            self.assertEqual(self.alpha, self.nova().find(name, False).id)

    def test_unknown_and_ambiguous_names_are_bad_input(self) -> None:
        self.cloud.servers['twin'] = dict(
            self.cloud.servers[self.alpha], id='twin')
        self.cloud.mappings['twin'] = []
        for name, words in (('nobody', '--all-projects'),
                            ('alpha', '2 servers')):
            error = self.assertRaises(errors.BadInput, self.nova().find,
                                      name, False)
            self.assertIn(words, str(error))


class PastTest(base.CloudCase):
    """The last requests to a server."""

    def test_events_name_the_disks_that_were_not_connected(self) -> None:
        self.cloud.reboot_events[self.alpha] = [
            'compute_reboot_instance',
            'bdm_cleanup removed volume %s (volume-available)' % self.other,
            'bdm_cleanup did not connect volume %s (half-moved)' % self.disk]
        past, = self.nova().past(self.alpha)
        self.assertEqual(
            ('reboot', Ending.SUCCESS, ('compute1',),
             {self.disk: 'half-moved'}),
            (past.action.name, past.ending, past.hosts, past.not_connected))
        self.assertEqual(2, len(self.cloud.requests))

    def test_only_the_newest_are_read_and_none_of_a_lock(self) -> None:
        for _ in range(9):
            self.cloud.record(self.alpha, 'stop')
            self.cloud.record(self.alpha, 'lock')
        self.assertEqual(['stop'] * 8, [
            each.action.name for each in self.nova().past(self.alpha)])

    def test_last_unsuccessful_costs_two_requests(self) -> None:
        self.assertIsNone(self.nova().last_unsuccessful(self.alpha))
        for _ in range(3):
            self.cloud.record(self.alpha, 'stop')
        self.cloud.actions[self.alpha][2]['message'] = 'Error'
        for ending, name in ((Ending.NONE, 'req-stop-3'),
                             (Ending.FAILURE, 'req-stop-1')):
            del self.cloud.requests[:]
            last = self.nova().last_unsuccessful(self.alpha)
            self.assertEqual((ending, name, 2), (
                last.ending, last.action.request_id,
                len(self.cloud.requests)))
            # A later one has succeeded.
            self.cloud.actions[self.alpha].insert(0, {
                'action': 'reboot', 'request_id': 'req-reboot'})


class DisksTest(base.CloudCase):

    def disks(self) -> Any:
        nova = self.nova()
        return nova.disks(nova.server(self.alpha))

    def test_disk_is_read_with_attachment_and_device(self) -> None:
        mapping, = self.cloud.mappings[self.alpha]
        self.assertEqual((Disk(
            self.disk, mapping['bdm_uuid'], mapping['attachment_id'],
            '/dev/vdb'),), self.disks())

    def test_disk_missing_in_the_list_is_shown(self) -> None:
        self.cloud.mappings[self.alpha][0]['attachment_id'] = None
        self.assertEqual((Disk(self.disk, device='/dev/vdb'),),
                         self.disks())

    def test_second_mapping_missing_in_the_list_is_shown(self) -> None:
        shown, = self.disks()
        self.assertEqual(1, self.cloud.asked('os-volume_attachments'))
        for _ in range(2):
            self.cloud.mapping(self.alpha, self.disk)
        self.assertEqual((
            shown, Disk(self.disk, device='/dev/vdc'),
            Disk(self.disk, device='/dev/vdd')), self.disks())

    def disks_while(self, change: Callable[[], object]) -> Any:
        """Return the disks, with a change before the second request."""
        self.cloud.mappings[self.alpha][0]['attachment_id'] = None
        asked = self.cloud.asked
        self.cloud.on('os-volume_attachments', lambda: change() if asked(
            'os-volume_attachments') == 2 else None)
        return self.disks()

    def test_disk_that_goes_meanwhile_has_only_a_volume(self) -> None:
        self.assertEqual((Disk(self.disk),), self.disks_while(
            self.cloud.mappings[self.alpha].clear))

    def test_server_that_goes_meanwhile_has_no_disks(self) -> None:
        self.assertIsNone(self.disks_while(lambda: (404, {
            'itemNotFound': {'message': 'gone'}})))

    def test_fields_of_wrong_type_are_refused(self) -> None:
        self.cloud.mappings[self.alpha][0]['device'] = 5
        self.assertRaises(errors.BadAnswer, self.disks)


class BdmsTest(base.base.TestCase):

    def bdms(self, *disks: Disk, volume_backed: bool = False,
             root_device: str | None = '/dev/vda') -> tuple[Bdm, ...]:
        return mappings_of(ComputeServer(
            'server', 'server', 'ACTIVE', volume_backed=volume_backed,
            root_device=root_device), disks)

    def test_server_from_an_image_has_an_image_root(self) -> None:
        root, bdm = self.bdms(Disk('v', 'b', 'a', '/dev/vdb'))
        self.assertEqual(('image', True), (root.source_type, root.is_root))
        self.assertEqual(Bdm(
            uuid='b', source_type='volume', destination_type='volume',
            volume_id='v', attachment_id='a', device_name='/dev/vdb',
            has_connection_info=True), bdm)

    def test_server_from_a_volume_has_one_root(self) -> None:
        for root in ('/dev/vda', 'vda'):
            found = self.bdms(Disk('v', device=root),
                              Disk('w', device='/dev/vdb'),
                              volume_backed=True)
            self.assertEqual([True, False], [b.is_root for b in found], root)
            self.assertEqual([False] * 2,
                             [b.has_connection_info for b in found])

    def test_mappings_without_uuid_get_different_names(self) -> None:
        found = self.bdms(*[Disk('v')] * 2, Disk('v', 'b'))
        self.assertEqual(['volume v', 'volume v (2)', 'b'],
                         [b.uuid for b in found[1:]])

    def test_any_disk_may_be_a_root_that_is_not_shown(self) -> None:
        for root, devices in ((None, ('/dev/vda', '/dev/vdb')),
                              ('/dev/vda', (None, '/dev/vdb')),
                              ('/dev/vda', ('/dev/vda', '/dev/vda'))):
            found = self.bdms(*map(Disk, 'vw', 'bc', 'tu', devices),
                              volume_backed=True, root_device=root)
            self.assertEqual([(False, True)] * 2, [
                (b.is_root, b.may_be_root) for b in found])

    def test_both_mappings_of_the_root_are_root(self) -> None:
        found = self.bdms(*[Disk('v', device='/dev/vda')] * 2, Disk('w'),
                          volume_backed=True)
        self.assertEqual(
            [(True, False)] * 2 + [(False, False)],
            [(b.is_root, b.may_be_root) for b in found])


class RebootTest(base.CloudCase):

    def test_reboot_request_is_hard(self) -> None:
        self.nova().reboot_hard(self.alpha)
        self.assertEqual({'reboot': {'type': 'HARD'}},
                         self.cloud.requests[-1].body)
        self.assertRaises(errors.NotFound, self.nova().reboot_hard, 'gone')
