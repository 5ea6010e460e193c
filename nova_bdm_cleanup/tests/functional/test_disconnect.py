# SPDX-License-Identifier: Apache-2.0
"""Disconnecting a disk from the host, as Nova's own hard reboot does."""

from __future__ import annotations

import functools
import types
from typing import Any
from unittest import mock
import uuid

import fixtures
from nova import exception, objects
from nova.virt.driver import ComputeDriver
from nova.virt.libvirt.driver import LibvirtDriver
from oslo_concurrency import lockutils
from oslo_utils.fixture import uuidsentinel as uuids

from nova_bdm_cleanup.node.cleanup import triggers
from nova_bdm_cleanup.node.instance import NovaInstance
from nova_bdm_cleanup.openstack.deadline import Deadline
from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.functional import base, scenario


class DisconnectTestCase(scenario.TwoDisks):

    def setUp(self):
        super().setUp()
        self.cloud.reset_status(self.lost)
        del self.cloud.nova.disconnects[:]
        #: A failure of the host to disconnect the disk.
        self.busy = (recorder.HOST, 'disconnect',
                     recorder.fail(OSError('busy')), self.lost)

    def told(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the arguments to os-brick about the disk."""
        return [(told, how) for told, how in self.cloud.nova.disconnects
                if told['volume_id'] == self.lost]


class ForceTest(DisconnectTestCase):

    def test_what_cannot_be_flushed_goes_too(self):
        self.assert_gone(self.reboot(self.made), self.lost)
        (told, how), = self.told()
        self.assertTrue(how['force'])
        # Only its own targets are to be disconnected.
        self.assertEqual(
            (['127.0.0.1:3260'], [told['target_iqn']], [1]),
            tuple(told[name] for name in (
                'target_portals', 'target_iqns', 'target_luns')))


class NotHereTest(DisconnectTestCase):
    """A disk that is not on the host, and so not disconnected."""

    def test_after_a_boot_of_the_host(self):
        for found in self.cloud.nova.connected.values():
            found.clear()
        row = self.cloud.row(self.made, self.lost)
        view = self.reboot(self.made)
        self.assert_removed(view, self.lost, 'volume-available',
                            (row.attachment_id,), connected=False)
        self.assertEqual([], self.told())

    def test_disconnected_already(self):
        self.reboot(self.made, (recorder.REQUEST, 'DELETE', recorder.fail(
            OSError('no answer'))))
        self.assertEqual(1, len(self.told()))
        view = self.reboot(self.made)
        self.assertEqual(1, len(self.told()))
        self.assertEqual((), view.attachments_of(self.lost))


class SecretTest(DisconnectTestCase):
    """The key of an encrypted disk, kept until the row is gone.

    Without it Nova could connect the disk again only by requesting the key
    with the token of the user who asked for the reboot.
    """

    def setUp(self):
        super().setUp()
        # The fake libvirt of some releases knows no secrets of volumes.
        secret = types.SimpleNamespace(UUIDString=lambda: str(uuid.uuid4()))
        self.secrets = {('volume', self.lost): secret}
        host = self.cloud.nova.computes[self.made.host].driver._host
        self.useFixture(fixtures.MockPatchObject(
            host, 'find_secret', lambda *usage: self.secrets.get(usage)))
        self.useFixture(fixtures.MockPatchObject(
            host, 'delete_secret',
            lambda *usage: self.secrets.pop(usage, None)))

    def test_removed(self):
        seen = []
        view = self.reboot(self.made, (
            recorder.NOVA, 'remove bdm',
            lambda: seen.append(len(self.secrets))))
        self.assertEqual([1], seen)
        self.assertEqual({}, self.secrets)
        self.assert_gone(view, self.lost)

    def test_row_cannot_be_removed(self):
        self.reboot(self.made, (
            recorder.NOVA, 'remove bdm',
            recorder.fail(exception.NovaException('conductor is away'))))
        self.assertEqual(1, len(self.secrets))

    def test_device_does_not_disconnect(self):
        self.reboot(self.made, self.busy)
        self.assertEqual(1, len(self.secrets))


class SecretOfOthersTest(base.FunctionalTestCase):
    """A secret that is deleted if no other server of the host needs it."""

    CLOUD = None

    def is_deleted(self, connection_info: str = '{"serial": "volume-1"}',
                   driver: type = LibvirtDriver, is_disconnected: bool = False,
                   is_used: bool = False) -> bool:
        row = objects.BlockDeviceMapping(
            uuid=uuids.bdm, source_type='volume', destination_type='volume',
            volume_id='volume-1', attachment_id=None, boot_index=None,
            device_name='/dev/vdb', tag=None, created_at=None,
            connection_info=connection_info)
        manager = mock.Mock(host='host', driver=mock.Mock(driver))
        manager.driver._host = mock.Mock()
        there = NovaInstance(manager, None, None, Deadline(60.0),
                              triggers.HARD_REBOOT)
        bdm, = there.adopt([row])
        if is_disconnected:
            there._disconnected.add(bdm.uuid)
        with mock.patch.object(there, 'used_by_others', lambda _: is_used):
            there.tidy(bdm)
        return manager.driver._host.delete_secret.called

    def test_no_other_server_has_the_volume(self):
        self.assertTrue(self.is_deleted())

    def test_another_server_has_the_volume(self):
        self.assertFalse(self.is_deleted(is_used=True))

    def test_another_server_has_got_it_since_it_was_disconnected(self):
        self.assertTrue(self.is_deleted(is_used=True, is_disconnected=True))

    def test_it_was_never_connected(self):
        self.assertFalse(self.is_deleted(connection_info='{}'))

    def test_another_driver_has_no_secrets(self):
        self.assertFalse(self.is_deleted(driver=ComputeDriver))


class EncryptedTest(DisconnectTestCase):
    """An encrypted volume, which the driver is told how to close."""

    def setUp(self):
        super().setUp()
        info = self.cloud.row(self.made, self.lost).connection_info
        self.assertIn('"encrypted": false', info)
        self.cloud.change_row(
            self.made, self.lost, connection_info=info.replace(
                '"encrypted": false', '"encrypted": true'))
        self.closed: list[Any] = []
        # There is no such device to open or to close.
        driver = self.cloud.nova.computes[self.made.host].driver
        self.useFixture(fixtures.MockPatchObject(
            driver, '_attach_encryptor'))
        self.useFixture(fixtures.MockPatchObject(
            driver, '_detach_encryptor', self._close))

    def _close(self, context: Any, connection_info: Any,
               encryption: Any = None, destroy_secrets: bool = True) -> None:
        if connection_info['data']['volume_id'] == self.lost:
            self.closed.append(encryption)
            self.assertFalse(destroy_secrets)

    def test_volume_is_there(self):
        self.cloud.lose_attachment(self.made, self.lost)
        view = self.reboot(self.made)
        self.assert_removed(view, self.lost, 'volume-available')
        self.assertEqual(1, len(self.closed))
        self.assertIn(f'GET /volumes/{self.lost}/encryption',
                      self.requests())

    def test_volume_is_gone(self):
        self.cloud.lose_volume(self.made, self.lost)
        view = self.reboot(self.made)
        self.assert_removed(view, self.lost, 'volume-missing')
        self.assertEqual([{'provider': 'luks'}], self.closed)

    def test_cinder_hangs(self):
        self.cloud.lose_attachment(self.made, self.lost)
        self.cloud.proxy.on('GET', '/encryption',
                            self.hang_until_time_is_over())
        view = self.reboot(self.made)
        failed, = self.audit(self.made, 'failed')
        self.assertEqual(('timed-out', self.lost),
                         (failed.reason, failed.volume))
        self.assertIsNotNone(view.block_device(self.lost))
        self.cloud.proxy.clear()
        self.assert_removed(self.reboot(self.made), self.lost,
                            'volume-available')


class LockTest(DisconnectTestCase):
    """os-brick's lock, held from the disconnect until Cinder is told.

    Otherwise an attach of another disk behind the same target could scan in
    between, and find the disk again.
    """

    def setUp(self):
        super().setUp()
        # Whether this machine's iscsiadm spares the lock does not matter.
        self.useFixture(fixtures.MonkeyPatch(
            'os_brick.initiator.utils.ISCSI_SUPPORTS_MANUAL_SCAN', False))
        volume = self.cinder.volumes.get(self.lost)
        self.assertTrue(volume.shared_targets)
        self.lock = lockutils.internal_lock(volume.service_uuid)

    def is_held(self):
        if self.lock.acquire(blocking=False):
            self.lock.release()
            return False
        return True

    def test_held_over_the_whole_of_it(self):
        held = {}

        def look(what):
            held[what] = self.is_held()

        view = self.reboot(self.made, *(
            (party, what, functools.partial(look, what)) for party, what in (
                (recorder.HOST, 'disconnect'), (recorder.NOVA, 'remove bdm'),
                (recorder.REQUEST, 'DELETE'))))
        self.assertEqual({'disconnect': True, 'remove bdm': True,
                          'DELETE': True}, held)
        self.assertFalse(self.is_held())
        self.assert_gone(view, self.lost)

    def test_given_back_after_a_failure(self):
        self.reboot(self.made, self.busy)
        self.assertFalse(self.is_held())
