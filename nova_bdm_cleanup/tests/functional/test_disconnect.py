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

    def disconnects(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the arguments to os-brick about the disk."""
        return [(properties, options)
                for properties, options in self.cloud.nova.disconnects
                if properties['volume_id'] == self.lost]


class ForceTest(DisconnectTestCase):

    def test_failed_flush_is_ignored(self):
        self.assert_gone(self.reboot(self.server), self.lost)
        (properties, options), = self.disconnects()
        self.assertTrue(options['force'])
        # Only its own targets are to be disconnected.
        self.assertEqual(
            (['127.0.0.1:3260'], [properties['target_iqn']], [1]),
            tuple(properties[name] for name in (
                'target_portals', 'target_iqns', 'target_luns')))


class NotConnectedTest(DisconnectTestCase):
    """A disk that is not on the host, and so not disconnected."""

    def test_after_host_boot(self):
        for found in self.cloud.nova.connected.values():
            found.clear()
        row = self.cloud.row(self.server, self.lost)
        view = self.reboot(self.server)
        self.assert_removed(view, self.lost, 'volume-available',
                            (row.attachment_id,), connected=False)
        self.assertEqual([], self.disconnects())

    def test_disk_is_disconnected_only_once(self):
        self.reboot(self.server, (recorder.REQUEST, 'DELETE', recorder.fail(
            OSError('no answer'))))
        self.assertEqual(1, len(self.disconnects()))
        view = self.reboot(self.server)
        self.assertEqual(1, len(self.disconnects()))
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
        host = self.cloud.nova.computes[self.server.host].driver._host
        self.useFixture(fixtures.MockPatchObject(
            host, 'find_secret', lambda *usage: self.secrets.get(usage)))
        self.useFixture(fixtures.MockPatchObject(
            host, 'delete_secret',
            lambda *usage: self.secrets.pop(usage, None)))

    def test_secret_is_deleted_after_the_row(self):
        seen = []
        view = self.reboot(self.server, (
            recorder.NOVA, 'remove bdm',
            lambda: seen.append(len(self.secrets))))
        self.assertEqual([1], seen)
        self.assertEqual({}, self.secrets)
        self.assert_gone(view, self.lost)

    def test_secret_stays_if_destroy_fails(self):
        self.reboot(self.server, (
            recorder.NOVA, 'remove bdm',
            recorder.fail(exception.NovaException('conductor is away'))))
        self.assertEqual(1, len(self.secrets))

    def test_secret_stays_if_disconnect_fails(self):
        self.reboot(self.server, self.busy)
        self.assertEqual(1, len(self.secrets))


class SharedSecretTest(base.FunctionalTestCase):
    """A secret that is deleted if no other server of the host needs it."""

    CLOUD = None

    def is_deleted(self, connection_info: str = '{"serial": "volume-1"}',
                   driver: type = LibvirtDriver,
                   is_used: bool = False) -> bool:
        row = objects.BlockDeviceMapping(
            uuid=uuids.bdm, source_type='volume', destination_type='volume',
            volume_id='volume-1', attachment_id=None, boot_index=None,
            device_name='/dev/vdb', tag=None, created_at=None,
            updated_at=None, connection_info=connection_info)
        manager = mock.Mock(host='host', driver=mock.Mock(driver))
        manager.driver._host = mock.Mock()
        there = NovaInstance(manager, None, mock.Mock(uuid=uuids.server),
                             Deadline(60.0), triggers.HARD_REBOOT)
        bdm, = there.register([row])
        with mock.patch.object(there._neighbours, 'have_volume',
                               lambda _: is_used):
            there.tidy(bdm)
        return manager.driver._host.delete_secret.called

    def test_volume_of_one_server(self):
        self.assertTrue(self.is_deleted())

    def test_volume_of_two_servers(self):
        self.assertFalse(self.is_deleted(is_used=True))

    def test_secret_of_an_unconnected_disk_stays(self):
        self.assertFalse(self.is_deleted(connection_info='{}'))

    def test_driver_without_secrets(self):
        self.assertFalse(self.is_deleted(driver=ComputeDriver))


class EncryptedTest(DisconnectTestCase):
    """An encrypted volume, and what the driver needs to close it."""

    def setUp(self):
        super().setUp()
        info = self.cloud.row(self.server, self.lost).connection_info
        self.assertIn('"encrypted": false', info)
        self.cloud.change_row(
            self.server, self.lost, connection_info=info.replace(
                '"encrypted": false', '"encrypted": true'))
        self.closed: list[Any] = []
        # There is no such device to open or to close.
        driver = self.cloud.nova.computes[self.server.host].driver
        self.useFixture(fixtures.MockPatchObject(
            driver, '_attach_encryptor'))
        self.useFixture(fixtures.MockPatchObject(
            driver, '_detach_encryptor', self._close))

    def _close(self, context: Any, connection_info: Any,
               encryption: Any = None, destroy_secrets: bool = True) -> None:
        if connection_info['data']['volume_id'] == self.lost:
            self.closed.append(encryption)
            self.assertFalse(destroy_secrets)

    def test_encrypted_disk_is_closed(self):
        self.cloud.lose_attachment(self.server, self.lost)
        view = self.reboot(self.server)
        self.assert_removed(view, self.lost, 'volume-available')
        self.assertEqual(1, len(self.closed))
        self.assertIn(f'GET /volumes/{self.lost}/encryption',
                      self.requests())

    def test_encrypted_disk_of_deleted_volume_is_closed(self):
        self.cloud.lose_volume(self.server, self.lost)
        view = self.reboot(self.server)
        self.assert_removed(view, self.lost, 'volume-missing')
        self.assertEqual([{'provider': 'luks'}], self.closed)

    def test_encrypted_disk_stays_if_cinder_hangs(self):
        self.cloud.lose_attachment(self.server, self.lost)
        self.cloud.proxy.on('GET', '/encryption',
                            self.hang_until_timeout())
        view = self.reboot(self.server)
        failed, = self.log_lines(self.server, 'failed')
        self.assertEqual(('timed-out', self.lost),
                         (failed.reason, failed.volume))
        self.assertIsNotNone(view.block_device(self.lost))
        self.cloud.proxy.clear()
        self.assert_removed(self.reboot(self.server), self.lost,
                            'volume-available')


class LockTest(DisconnectTestCase):
    """os-brick's lock, held from the disconnect until the deletion in Cinder.

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

    def test_held_until_attachment_delete(self):
        held = {}

        def look(what):
            held[what] = self.is_held()

        view = self.reboot(self.server, *(
            (party, what, functools.partial(look, what)) for party, what in (
                (recorder.HOST, 'disconnect'), (recorder.NOVA, 'remove bdm'),
                (recorder.REQUEST, 'DELETE'))))
        self.assertEqual({'disconnect': True, 'remove bdm': True,
                          'DELETE': True}, held)
        self.assertFalse(self.is_held())
        self.assert_gone(view, self.lost)

    def test_released_after_failure(self):
        self.reboot(self.server, self.busy)
        self.assertFalse(self.is_held())
