# SPDX-License-Identifier: Apache-2.0
"""Nova's rows and the hypervisor in a reconnect, question by question."""

from __future__ import annotations

import contextlib
import datetime
import json
from typing import Any
from unittest import mock

import fixtures
from nova import exception, objects
from nova.virt.driver import ComputeDriver
from nova.virt.libvirt.driver import LibvirtDriver
from oslo_utils import timeutils
from oslo_utils.fixture import uuidsentinel as uuids

from nova_bdm_cleanup.node import credentials, instance_cleanup
from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.cleanup.cleaner import CleanupOutcome
from nova_bdm_cleanup.node.cleanup.ports import AttachmentGone
from nova_bdm_cleanup.node.hooks import operation, start
from nova_bdm_cleanup.node.instance import NovaInstance
from nova_bdm_cleanup.openstack.deadline import Deadline
from nova_bdm_cleanup.tests.functional import base

#: States of a domain, as libvirt numbers them.
RUNNING, BLOCKED, PAUSED, SHUTDOWN, SHUTOFF, CRASHED = range(1, 7)

#: What Cinder answers.
ANSWER: dict[str, Any] = {
    'driver_volume_type': 'iscsi',
    'data': {'target_iqn': 'iqn.new', 'target_lun': 7}}

FORMER = {'driver_volume_type': 'iscsi', 'serial': 'the-serial',
          'multiattach': True, 'device_path': '/dev/old',
          'data': {'target_iqn': 'iqn.old', 'target_lun': 1,
                   'device_path': '/dev/old', 'multipath_id': 'a-map',
                   'auth_password': 'old'}}


def row_of(**values: Any) -> Any:
    """Return a row of Nova without changes."""
    row = objects.BlockDeviceMapping(**{
        'uuid': uuids.bdm, 'source_type': 'volume',
        'destination_type': 'volume', 'volume_id': uuids.volume,
        'attachment_id': uuids.old, 'boot_index': None,
        'device_name': '/dev/vdb', 'tag': None, 'created_at': None,
        'updated_at': None, 'connection_info': json.dumps(FORMER), **values})
    row.obj_reset_changes()
    return row


class InstanceTestCase(base.FunctionalTestCase):

    CLOUD = None

    def setUp(self):
        super().setUp()
        self.saved: list[dict[str, Any]] = []
        self.useFixture(fixtures.MockPatchObject(
            objects.BlockDeviceMapping, 'save', self._save))
        self.useFixture(fixtures.MockPatchObject(
            credentials, 'service_context', lambda context: context))

    @property
    def _save(self) -> Any:
        saved = self.saved

        def save(row: Any) -> None:
            saved.append(row.obj_get_changes())
            row.obj_reset_changes()

        return save

    def instance(self, driver: type = LibvirtDriver,
                 **values: Any) -> NovaInstance:
        self.manager = mock.Mock(host='host', driver=mock.Mock(driver))
        self.manager.driver._host = mock.Mock()
        there = NovaInstance(self.manager, mock.sentinel.context,
                             mock.Mock(uuid=uuids.server), Deadline(60.0),
                             triggers.HARD_REBOOT)
        self.row = row_of(**values)
        self.bdm, = there.register([self.row])
        return there


class PlaceTest(InstanceTestCase):
    """Proofs that the guest is on this host, and on no other one."""

    def is_here(self, state: int, reason: int, job: int = 0,
                migrations: Any = (), written: Any = None) -> bool:
        there = self.instance(updated_at=written)
        guest = self.manager.driver._host.get_guest.return_value
        guest._domain.state.return_value = [state, reason]
        guest.get_job_info.return_value.type = job
        with mock.patch.object(
                objects.MigrationList, 'get_by_filters', autospec=True,
                return_value=list(migrations)) as asked:
            found = there.guest_is_here()
        for call in asked.call_args_list:
            self.assertEqual({'instance_uuid': uuids.server}, call.args[1])
        return found

    def test_a_running_guest_is_here(self):
        for reason in range(12):
            self.assertTrue(self.is_here(RUNNING, reason))

    def test_a_guest_is_here_if_a_user_or_an_error_has_paused_it(self):
        # Migration, save, dump, ..., post-copy that failed.
        for reason in range(14):
            self.assertEqual(reason in (1, 5), self.is_here(PAUSED, reason))

    def test_a_migration_may_take_it_away(self):
        for state, reason in ((RUNNING, 1), (PAUSED, 1)):
            # None, bounded, unbounded, completed, failed, cancelled.
            self.assertEqual(
                [True, False, False, True, True, True],
                [self.is_here(state, reason, job) for job in range(6)])

    def test_other_states_prove_nothing(self):
        for state in (0, BLOCKED, SHUTDOWN, CRASHED, 7):
            self.assertFalse(self.is_here(state, 1))

    def test_a_guest_that_is_off_was_here_unless_it_was_migrated(self):
        for reason in range(8):
            self.assertEqual(reason != 4, self.is_here(SHUTOFF, reason))

    def test_nova_may_have_taken_it_away_since_it_came(self):
        now = timeutils.utcnow(with_timezone=True)

        def move(kind, dest, seconds):
            return mock.Mock(
                migration_type=kind, dest_compute=dest,
                created_at=now + datetime.timedelta(seconds=seconds))

        for kind, leaves in (('live-migration', True), ('evacuation', True),
                             ('migration', False), ('resize', False)):
            left, came = move(kind, 'there', 0), move(kind, 'host', 1)
            for moves, expected in (([left], leaves), ([came], False),
                                    ([came, left], False),
                                    ([left, move('resize', 'host', -1)],
                                     leaves)):
                self.assertEqual(not expected, self.is_here(
                    SHUTOFF, 1, migrations=moves), (kind, expected))

    def left_out(self, serial, proved=0.0, moved=None):
        """Return whether this guest lacks the disk."""
        there = self.instance()
        guest = self.manager.driver._host.get_guest.return_value
        guest._domain.XMLDesc.return_value = (
            '<domain><devices><disk><serial>%s</serial></disk></devices>'
            '</domain>' % serial)
        moves = [] if moved is None else [mock.Mock(
            migration_type='live-migration', dest_compute='there',
            created_at=datetime.datetime.fromtimestamp(
                moved, datetime.timezone.utc))]
        with mock.patch.object(objects.MigrationList, 'get_by_filters',
                               autospec=True, return_value=moves):
            return there.left_out({self.bdm.uuid: proved} if proved else {})

    def test_guest_with_the_serial_has_the_disk(self):
        self.instance()
        serial = (json.loads(self.row.connection_info).get('serial')
                  or self.row.volume_id)
        self.assertEqual(frozenset(), self.left_out(serial))

    def test_guest_of_a_later_start_may_lack_a_disk(self):
        found = self.left_out(uuids.other)
        self.assertEqual({self.bdm.uuid}, found)

    def test_an_earlier_cleanup_has_proved_that_it_had_the_disk(self):
        self.assertFalse(self.left_out(uuids.other, proved=10.0))
        self.assertFalse(self.left_out(uuids.other, proved=10.0, moved=9.0))
        self.assertTrue(self.left_out(uuids.other, proved=10.0, moved=11.0))

    def test_migrations_say_nothing_of_a_guest_that_runs(self):
        """They fail, and the guest stays."""
        now = timeutils.utcnow(with_timezone=True)
        self.assertTrue(self.is_here(RUNNING, 1, migrations=[mock.Mock(
            migration_type='live-migration', created_at=now)]))

    def test_a_guest_without_a_domain_may_be_anywhere(self):
        there = self.instance()
        self.manager.driver._host.get_guest.side_effect = (
            exception.InstanceNotFound(instance_id='x'))
        self.assertFalse(there.guest_is_here())

    def test_other_drivers_prove_nothing(self):
        self.assertFalse(self.instance(driver=ComputeDriver).guest_is_here())

    def test_no_answer_is_raised(self):
        there = self.instance()
        self.manager.driver._host.get_guest.side_effect = OSError('away')
        self.assertRaises(OSError, there.guest_is_here)


class RowTest(InstanceTestCase):
    """The changes of a reconnect to Nova's row."""

    def connect(self, former: Any = FORMER, is_multiattach: bool = False,
                answer: Any = None) -> dict[str, Any]:
        self.there = self.instance(connection_info=json.dumps(former))
        self.manager.volume_api.attachment_update.return_value = {
            'connection_info': json.loads(json.dumps(
                ANSWER if answer is None else answer))}
        self.bdm = self.there.connect(self.bdm, is_multiattach)
        found: dict[str, Any] = json.loads(self.row.connection_info)
        return found

    def test_named_attachment_is_saved(self):
        there = self.instance()
        bdm = there.name_attachment(self.bdm, uuids.new)
        self.assertEqual([{'attachment_id': uuids.new}], self.saved)
        self.assertEqual(uuids.new, bdm.attachment_id)
        # It is not connected yet.
        self.assertEqual(self.bdm.addresses, bdm.addresses)

    def test_row_takes_the_answer_and_what_only_nova_knows(self):
        self.assertEqual({
            **ANSWER, 'serial': 'the-serial', 'multiattach': True,
            'data': {**ANSWER['data'], 'multipath_id': 'a-map'}},
            self.connect())
        self.assertEqual([{'connection_info'}], [*map(set, self.saved)])
        self.assertEqual(frozenset([('iqn.new', '7')]), self.bdm.addresses)
        self.assertTrue(self.bdm.is_multiattach)

    def test_cinder_is_told_host_and_device(self):
        self.connect()
        driver = self.manager.driver
        self.manager.volume_api.attachment_update.assert_called_once_with(
            mock.sentinel.context, uuids.old,
            driver.get_volume_connector.return_value, '/dev/vdb')

    def test_values_that_the_row_lacks_are_those_of_the_volume(self):
        former = {'driver_volume_type': 'iscsi', 'data': {}}
        for is_multiattach in (False, True):
            self.assertEqual({
                **ANSWER, 'serial': uuids.volume,
                **({'multiattach': True} if is_multiattach else {})},
                self.connect(former, is_multiattach))

    def test_deleted_attachment_is_told_apart(self):
        there = self.instance()
        self.manager.volume_api.attachment_update.side_effect = (
            exception.VolumeAttachmentNotFound(attachment_id='x'))
        self.assertRaises(AttachmentGone, there.connect, self.bdm, False)
        self.assertEqual([], self.saved)

    def test_answer_without_an_address_is_not_saved(self):
        for answer in ({}, {'driver_volume_type': 'iscsi'},
                       {'driver_volume_type': 'iscsi', 'data': {}}):
            self.assertRaises(ValueError, self.connect, answer=answer)
            self.assertEqual(FORMER, json.loads(self.row.connection_info))
        self.assertEqual([], self.saved)

    def test_list_of_nova_goes_on_with_what_is_saved(self):
        self.connect()
        self.there.name_attachment(self.bdm, uuids.new)
        its, other = row_of(), row_of(uuid=uuids.other)
        self.there.renew([its, other])
        self.assertEqual(
            (uuids.new, self.row.connection_info),
            (its.attachment_id, its.connection_info))
        # Nova must not save it once more, over later changes.
        self.assertEqual(set(), its.obj_what_changed())
        self.assertEqual((uuids.old, set()), (
            other.attachment_id, other.obj_what_changed()))


class OperationTest(base.FunctionalTestCase):
    """The hooks in an operation after a reconnect."""

    CLOUD = None

    def call(self, trigger: triggers.Trigger = triggers.HARD_REBOOT) -> Any:
        call = mock.Mock(triggers=(trigger,), bdms=mock.Mock(objects=[]))
        call.trigger_of.return_value = trigger
        call.bdms.__iter__ = lambda bdms: iter(())
        return call

    def is_left(self, trigger: triggers.Trigger,
                **connection_info: Any) -> bool:
        """Return whether the driver leaves a disk alone."""
        begun = operation.Operation(self.call(trigger), trigger)
        begun.reconnected = frozenset([uuids.volume])
        call = mock.Mock(arguments={'connection_info': connection_info})
        with begun.begun(), mock.patch.object(
                begun, 'cleanup', autospec=True,
                side_effect=AssertionError('it is asked')):
            with operation.disconnect(call) as is_left:
                return bool(is_left)

    def test_only_a_reconnected_disk_is_not_disconnected(self):
        for trigger in (triggers.HARD_REBOOT, triggers.START,
                        triggers.HOST_BOOT):
            for volume, expected in ((uuids.volume, True),
                                     (uuids.other, False)):
                self.assertEqual(expected, self.is_left(
                    trigger, serial=volume, **ANSWER))

    def test_disk_by_name_is_disconnected(self):
        self.assertFalse(self.is_left(
            triggers.HARD_REBOOT, serial=uuids.volume,
            driver_volume_type='rbd', data={'name': 'pool/volume'}))

    def test_without_an_operation_the_driver_goes_on(self):
        with operation.disconnect(mock.Mock()) as is_left:
            self.assertFalse(is_left)

    def test_outcome_of_the_cleanup_is_kept(self):
        begun = operation.Operation(self.call(), triggers.HARD_REBOOT)
        outcome = mock.Mock(CleanupOutcome, taken_out=frozenset('a'),
                            reconnected=frozenset('b'))
        with mock.patch.object(begun, 'cleanup', autospec=True) as cleanup:
            cleanup.return_value.run.return_value = outcome
            begun.clean(mock.Mock(), mock.Mock())
        self.assertEqual((frozenset('a'), frozenset('b')),
                         (begun.taken_out, begun.reconnected))

    def test_reboot_and_its_cleanup_are_one_operation(self):
        self.useFixture(fixtures.MockPatchObject(
            instance_cleanup, 'observes', lambda: False))
        cleaned: list[operation.Operation] = []
        self.useFixture(fixtures.MockPatchObject(
            operation.Operation, 'clean',
            lambda one, instance, bdms: cleaned.append(one)))
        with start.begin_reboot(self.call()):
            begun = operation.current()
            with start.replace_builtin(self.call()) as is_replaced:
                self.assertTrue(is_replaced)
        self.assertEqual([begun], cleaned)
        self.assertIsNone(operation.current())
        # Nova calls its cleanup without a reboot only in other releases.
        with contextlib.ExitStack() as calls:
            calls.enter_context(start.replace_builtin(self.call()))
        self.assertEqual(2, len(cleaned))
        self.assertIsNot(begun, cleaned[1])
