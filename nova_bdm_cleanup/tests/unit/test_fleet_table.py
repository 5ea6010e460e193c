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
"""The release table: each case, each precondition."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, Optional, Tuple

from nova_bdm_cleanup import conf
from nova_bdm_cleanup.fleet import nova as novas
from nova_bdm_cleanup.fleet import table
from nova_bdm_cleanup.fleet.table import Call
from nova_bdm_cleanup.model import AttachedServer
from nova_bdm_cleanup.model import Attachment
from nova_bdm_cleanup.model import Volume
from nova_bdm_cleanup.tests.unit import base

NOW = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.timezone.utc)
DAY = datetime.timedelta(days=1)
MINUTE = datetime.timedelta(minutes=1)

CONNECTOR = {'host': 'compute1', 'initiator': 'iqn'}
NEVER = table.NeverConnected.YES

ALIVE = novas.Server('alive', 'alive', 'ACTIVE', host='compute1')
SHELVED = novas.Server('alive', 'alive', 'SHELVED_OFFLOADED')


def attachment(status: str = 'attached', connected: bool = True,
               server: Optional[str] = 'gone', name: str = 'record',
               volume: str = 'volume') -> Attachment:
    return Attachment(id=name, volume_id=volume, server_id=server,
                      status=status, connected=connected)


class TableCase(base.TestCase):

    def decide(self, *attachments: Attachment, status: str = 'in-use',
               connector: table.Connector = None, alive: Any = ALIVE,
               claimed_by: Tuple[str, ...] = (),
               stale: Tuple[str, ...] = (), age: datetime.timedelta = DAY,
               **fields: Any) -> Tuple[table.Step, ...]:
        volume = Volume(id='volume', status=status, updated_at=NOW - age,
                        **fields)
        servers = {a.server_id: alive if a.server_id == 'alive' else None
                   for a in attachments if a.server_id}
        return table.decide(
            table.Facts(volume, attachments, servers, frozenset(claimed_by),
                        frozenset(stale)), connector, conf.Policy(), NOW)

    def one(self, *attachments: Attachment, **world: Any) -> table.Step:
        return self.decide(*attachments, **world)[0]

    def assert_refused(self, words: str, *attachments: Attachment,
                       **world: Any) -> None:
        step = self.one(*attachments, **world)
        self.assertIsNone(step.call)
        self.assertIn(words, step.explanation)


class TestCases(TableCase):
    """The five cases of Cinder's force_detach specification, and in-use."""

    def test_1_legacy_reserve(self) -> None:
        step = self.one(status='attaching', connector=NEVER)
        self.assertEqual((Call.UNRESERVE, 'available'),
                         (step.call, step.expected))

    def test_1_reserved(self) -> None:
        step = self.one(attachment('reserved', False), status='reserved')
        self.assertEqual((Call.DELETE, 'available'),
                         (step.call, step.expected))

    def test_2_legacy_connected_and_never_attached(self) -> None:
        step = self.one(status='attaching', connector=CONNECTOR)
        self.assertEqual((Call.FORCE_DETACH, CONNECTOR, None),
                         (step.call, step.connector, step.attachment_id))

    def test_2_connected_and_never_attached(self) -> None:
        step = self.one(attachment('attaching'), status='attaching')
        self.assertEqual(Call.DELETE, step.call)

    def test_3_detaching(self) -> None:
        step = self.one(attachment(), status='detaching')
        self.assertEqual(Call.DELETE, step.call)

    def test_3_legacy_detaching(self) -> None:
        step = self.one(attachment(connected=False), status='detaching',
                        connector=CONNECTOR)
        self.assertEqual((Call.FORCE_DETACH, 'record'),
                         (step.call, step.attachment_id))

    def test_4_detach_failed_in_nova(self) -> None:
        step = self.one(attachment(server='alive'), status='detaching',
                        claimed_by=('alive',))
        self.assertEqual((Call.ROLL_DETACHING, 'in-use'),
                         (step.call, step.expected))

    def test_3_detaching_from_a_server_that_exists(self) -> None:
        for host, words in ((ALIVE, 'openstack bdm clean alive'),
                            (SHELVED, 'can be released')):
            for connected in (True, False):
                step = self.one(attachment('attached', connected, 'alive'),
                                status='detaching', alive=host)
                self.assertEqual((Call.ROLL_DETACHING, 'in-use'),
                                 (step.call, step.expected))
                self.assertIn(words, step.explanation)

    def test_5_detached_in_nova(self) -> None:
        step = self.one(attachment('detaching'), status='detaching')
        self.assertEqual(Call.DELETE, step.call)

    def test_in_use_by_a_server_that_is_gone(self) -> None:
        step = self.one(attachment())
        self.assertEqual((Call.DELETE, 'available'),
                         (step.call, step.expected))

    def test_in_use_by_nobody(self) -> None:
        self.assertEqual(Call.FORCE_DETACH,
                         self.one(connector=CONNECTOR).call)
        self.assertEqual(Call.DETACH, self.one(connector=NEVER).call)

    def test_status_was_reset(self) -> None:
        self.assertEqual(Call.DELETE,
                         self.one(attachment(), status='available').call)

    def test_stale_reservation_of_a_server_that_exists(self) -> None:
        step = self.one(attachment('reserved', False, 'alive'),
                        status='reserved', stale=('record',))
        self.assertEqual(Call.DELETE, step.call)

    def test_stale_connection_of_a_server_without_a_host(self) -> None:
        step = self.one(attachment(server='alive'), stale=('record',),
                        alive=SHELVED)
        self.assertEqual(Call.DELETE, step.call)


class TestRefusals(TableCase):

    def test_states(self) -> None:
        for status in ('error', 'maintenance', 'retyping', 'uploading',
                       'deleting', 'error_deleting', 'creating', 'odd'):
            self.assert_refused('the volume is ' + status, attachment(),
                                status=status)
        self.assert_refused('the volume is available', status='available')

    def test_migration(self) -> None:
        self.assert_refused('migrated', attachment(),
                            migration_status='migrating')
        self.assertIsNotNone(self.one(attachment(),
                                      migration_status='success').call)

    def test_opted_out(self) -> None:
        self.assert_refused('keep', attachment(), keep=True)
        self.assert_refused(
            'server alive is marked', attachment(server='alive'),
            alive=dataclasses.replace(ALIVE, keep=True), status='detaching',
            claimed_by=('alive',))

    def test_another_volumes_attachment(self) -> None:
        self.assert_refused('of volume other', attachment(volume='other'))

    def test_not_novas(self) -> None:
        self.assert_refused('something else', attachment(server=None))

    def test_server_may_be_being_created(self) -> None:
        self.assert_refused('being created',
                            attachment('reserved', False),
                            status='reserved', age=MINUTE)

    def test_server_exists_and_has_it(self) -> None:
        self.assert_refused('nothing hangs', attachment(server='alive'),
                            claimed_by=('alive',))

    def test_detach_may_be_under_way(self) -> None:
        self.assert_refused('being detached', attachment(server='alive'),
                            status='detaching', claimed_by=('alive',),
                            age=MINUTE)

    def test_detach_without_a_mapping_may_be_under_way(self) -> None:
        self.assert_refused('being detached', attachment(server='alive'),
                            status='detaching', age=MINUTE)
        self.assert_refused(
            'administrator may be at work', attachment(server='alive'),
            status='detaching', alive=dataclasses.replace(ALIVE, locked=True))

    def test_attach_ended_half_way(self) -> None:
        for status, connected in (('reserved', False), ('attaching', True)):
            world: Any = dict(status=status, claimed_by=('alive',))
            record = attachment(status, connected, 'alive')
            self.assert_refused('volume_attachment refresh', record, **world)
            self.assert_refused('being attached', record, age=MINUTE, **world)
            self.assert_refused(
                'by another attachment', record,
                attachment(server='alive', name='good'), **world)
            self.assert_refused('nothing hangs', record, alive=SHELVED,
                                **world)

    def test_server_exists_and_is_changing(self) -> None:
        self.assert_refused(
            'migrating', attachment(server='alive'), stale=('record',),
            alive=dataclasses.replace(ALIVE, task_state='migrating'))

    def test_server_exists_and_it_is_not_stale(self) -> None:
        self.assert_refused('not certain', attachment(server='alive'))

    def test_host_may_have_it_open(self) -> None:
        self.assert_refused('bdm clean alive', attachment(server='alive'),
                            stale=('record',))

    def test_legacy_without_a_connector(self) -> None:
        self.assert_refused(
            'on host compute1', attachment(connected=False),
            attached_to=(AttachedServer('gone', 'record', 'compute1'),))
        self.assert_refused('get_connector', attachment(connected=False),
                            connector=NEVER)

    def test_connector_of_another_host(self) -> None:
        self.assert_refused(
            'of host compute1 and the attachment of host compute2',
            attachment(connected=False), connector=CONNECTOR,
            attached_to=(AttachedServer('gone', 'record', 'compute2'),))

    def test_legacy_with_neighbours(self) -> None:
        self.assert_refused(
            'other attachments', attachment(connected=False),
            attachment(server='alive', name='neighbour'),
            connector=CONNECTOR, multiattach=True, claimed_by=('alive',))

    def test_unknown_kind_of_attachment(self) -> None:
        self.assert_refused('not known', attachment('attaching', False))

    def test_claimed_by_another_server(self) -> None:
        self.assert_refused('server other has a mapping', attachment(),
                            claimed_by=('other',))
        self.assert_refused('server other has a mapping', attachment(),
                            claimed_by=('other',), multiattach=True)
        self.assert_refused('server other has a mapping', connector=NEVER,
                            claimed_by=('other',))

    def test_nobody_for_a_minute(self) -> None:
        for status in ('in-use', 'attaching', 'detaching', 'reserved'):
            self.assert_refused('not for long', status=status, age=MINUTE,
                                connector=NEVER)

    def test_nobody_without_a_connector(self) -> None:
        self.assert_refused('--connector none', status='attaching')


class TestNeighbours(TableCase):

    def test_healthy_neighbour_stays(self) -> None:
        gone, healthy = self.decide(
            attachment(), attachment(server='alive', name='neighbour'),
            multiattach=True, claimed_by=('alive',))
        self.assertEqual((Call.DELETE, 'in-use'), (gone.call, gone.expected))
        self.assertIsNone(healthy.call)
        self.assertEqual((gone,), table.selected((gone, healthy), None))
        self.assertEqual((healthy,),
                         table.selected((gone, healthy), 'neighbour'))

    def test_neighbour_in_an_operation(self) -> None:
        self.assert_refused(
            'neighbour of the volume is reserved', attachment(),
            attachment('reserved', False, 'alive', 'neighbour'),
            multiattach=True, claimed_by=('alive',))

    def test_two_gone_servers(self) -> None:
        steps = self.decide(attachment(), attachment(
            server='also gone', name='second'), multiattach=True)
        self.assertEqual([Call.DELETE] * 2, [s.call for s in steps])
