# SPDX-License-Identifier: Apache-2.0
"""How the host disconnects a disk: as Nova's own hard reboot does it."""

from __future__ import annotations

import functools
import types
import uuid

import fixtures
from nova import exception
from oslo_concurrency import lockutils

from nova_bdm_cleanup.tests.cloud import recorder
from nova_bdm_cleanup.tests.functional import scenario


class DisconnectTestCase(scenario.TwoDisks):

    def setUp(self):
        super().setUp()
        self.cloud.reset_status(self.lost)
        del self.cloud.nova.disconnects[:]


class ForceTest(DisconnectTestCase):

    def test_what_cannot_be_flushed_goes_too(self):
        view = self.reboot(self.made)
        self.assert_gone(view, self.lost)
        self.assertEqual([True], [
            how.get('force') for told, how in self.cloud.nova.disconnects
            if told['volume_id'] == self.lost])


class NotHereTest(DisconnectTestCase):
    """A disk that is not on the host is not disconnected."""

    def lose_power(self):
        for found in self.cloud.nova.connected.values():
            found.clear()

    def disconnected(self):
        return [told['volume_id'] for told, _ in self.cloud.nova.disconnects]

    def test_after_a_boot_of_the_host(self):
        self.lose_power()
        row = self.cloud.row(self.made, self.lost)
        view = self.reboot(self.made)
        self.assert_removed(view, self.lost, 'volume-available',
                            (row.attachment_id,), connected=False)
        self.assertNotIn(self.lost, self.disconnected())

    def test_disconnected_already(self):
        self.begin()
        self.cloud.recorder.before(
            recorder.ASK, 'DELETE', recorder.fail(OSError('no answer')))
        self.cloud.reboot(self.made)
        self.assertEqual(1, self.disconnected().count(self.lost))
        self.cloud.reboot(self.made)
        self.assertEqual(1, self.disconnected().count(self.lost))
        self.assertEqual((), self.look(self.made).attachments_of(self.lost))


class TargetsTest(DisconnectTestCase):
    """os-brick is told which targets are to be disconnected."""

    def test_its_own(self):
        view = self.reboot(self.made)
        self.assert_gone(view, self.lost)
        [told] = [told for told, _ in self.cloud.nova.disconnects
                  if told['volume_id'] == self.lost]
        self.assertEqual(
            (['127.0.0.1:3260'], [told['target_iqn']], [1]),
            tuple(told[name] for name in (
                'target_portals', 'target_iqns', 'target_luns')))


class SecretTest(DisconnectTestCase):
    """The key of an encrypted disk is kept until the row is gone.

    Without it Nova could not connect the disk again, but by asking for the
    key with the token of whoever pressed the button.
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

    def has_secret(self):
        return ('volume', self.lost) in self.secrets

    def test_removed(self):
        seen = []
        self.begin()
        self.cloud.recorder.before(recorder.NOVA, 'remove bdm',
                                   lambda: seen.append(self.has_secret()))
        self.cloud.reboot(self.made)
        self.assertEqual([True], seen)
        self.assertFalse(self.has_secret())
        self.assert_gone(self.look(self.made), self.lost)

    def test_row_cannot_be_removed(self):
        self.begin()
        self.cloud.recorder.before(
            recorder.NOVA, 'remove bdm',
            recorder.fail(exception.NovaException('conductor is away')))
        self.cloud.reboot(self.made)
        self.assertTrue(self.has_secret())

    def test_device_does_not_disconnect(self):
        self.begin()
        self.cloud.recorder.before(recorder.HOST, 'disconnect',
                                   recorder.fail(OSError('busy')),
                                   subject=self.lost)
        self.cloud.reboot(self.made)
        self.assertTrue(self.has_secret())


class LockTest(DisconnectTestCase):
    """os-brick's lock is held from the disconnect until Cinder is told.

    Otherwise an attach of another disk behind the same target could scan in
    between, and find the disk again.
    """

    def setUp(self):
        super().setUp()
        # Whether this machine's iscsiadm spares the lock does not matter.
        self.useFixture(fixtures.MonkeyPatch(
            'os_brick.initiator.utils.ISCSI_SUPPORTS_MANUAL_SCAN', False))
        volume = self.cloud.cinder.client(
            self.cloud.admin).volumes.get(self.lost)
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

        self.begin()
        for party, what in ((recorder.HOST, 'disconnect'),
                            (recorder.NOVA, 'remove bdm'),
                            (recorder.ASK, 'DELETE')):
            self.cloud.recorder.before(
                party, what, functools.partial(look, what))
        self.cloud.reboot(self.made)
        self.assertEqual({'disconnect': True, 'remove bdm': True,
                          'DELETE': True}, held)
        self.assertFalse(self.is_held())
        self.assert_gone(self.look(self.made), self.lost)

    def test_given_back_after_a_failure(self):
        self.begin()
        self.cloud.recorder.before(recorder.HOST, 'disconnect',
                                   recorder.fail(OSError('busy')),
                                   subject=self.lost)
        self.cloud.reboot(self.made)
        self.assertFalse(self.is_held())
