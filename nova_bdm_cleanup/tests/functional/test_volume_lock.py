# SPDX-License-Identifier: Apache-2.0
"""Nova's lock of a multiattach volume while it deletes a server."""

from __future__ import annotations

import threading
import time

from nova import objects, utils
from nova.compute import manager as nova_manager
from oslo_utils.fixture import uuidsentinel
import testtools

from nova_bdm_cleanup.node import instance
from nova_bdm_cleanup.openstack.deadline import Deadline, TimedOut

VOLUME = uuidsentinel.volume


@testtools.skipUnless(hasattr(utils, 'FairLockGuard'), 'Nova has no such lock')
class VolumeLockTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        bdms = objects.BlockDeviceMappingList(objects=[
            objects.BlockDeviceMapping(
                volume_id=VOLUME, destination_type='volume',
                connection_info='{"multiattach": true}')])
        get_names = (nova_manager.ComputeManager
                     ._get_multiattach_volume_lock_names_bdms)
        self.names = get_names(None, bdms)
        self.assertEqual(1, len(self.names))

    def delete(self, during: threading.Event | None = None
               ) -> tuple[threading.Event, threading.Thread]:
        """Delete a server with the volume, as far as the lock matters.

        :param during: when the delete ends
        :returns: whether it has begun, and its thread
        """
        def hold():
            with utils.FairLockGuard(self.names):
                begun.set()
                if during is not None:
                    during.wait(30)

        begun = threading.Event()
        thread = threading.Thread(target=hold)
        thread.start()
        return begun, thread

    def test_delete_waits(self):
        def fail():
            with instance.hold_volume_lock(VOLUME, Deadline(30)):
                deletes.append(self.delete())
                self.assertFalse(deletes[0][0].wait(0.2))
                raise KeyError('a bug')

        deletes: list[tuple[threading.Event, threading.Thread]] = []
        self.assertRaises(KeyError, fail)
        begun, thread = deletes[0]
        self.assertTrue(begun.wait(30))
        thread.join(30)

    def test_delete_of_another_volume_does_not_wait(self):
        with instance.hold_volume_lock(uuidsentinel.another, Deadline(30)):
            begun, thread = self.delete()
            self.assertTrue(begun.wait(30))
        thread.join(30)

    def test_wait_ends_with_the_time_limit(self):
        enough = threading.Event()
        begun, thread = self.delete(enough)
        self.addCleanup(enough.set)
        begun.wait(30)
        started = time.monotonic()
        with testtools.ExpectedException(TimedOut, '.*0.2 s of .* timeout'):
            with instance.hold_volume_lock(VOLUME, Deadline(0.2)):
                self.fail('the lock was acquired')
        self.assertLess(time.monotonic() - started, 20)
        enough.set()
        thread.join(30)
        # The thread that was left behind does not keep it.
        begun, thread = self.delete()
        self.assertTrue(begun.wait(30))
        thread.join(30)
