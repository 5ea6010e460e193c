# SPDX-License-Identifier: Apache-2.0
"""Starts of a server: the differences from a reboot."""

from __future__ import annotations

import contextlib
import threading
import time

import fixtures
from nova import utils
import testtools

from nova_bdm_cleanup.node import instance
from nova_bdm_cleanup.openstack.deadline import Deadline, TimedOut
from nova_bdm_cleanup.tests.cloud import fixture, recorder
from nova_bdm_cleanup.tests.functional import scenario


class LockTest(testtools.TestCase):
    """Nova's own lock, taken from outside."""

    def test_acquired_and_released(self):
        def fail():
            with instance.hold_lock('a-server', Deadline(1)):
                self.assertFalse(self._is_free('a-server'))
                self.assertTrue(self._is_free('another-server'))
                raise KeyError('a bug')

        self.assertRaises(KeyError, fail)
        self.assertTrue(self._is_free('a-server'))

    def test_wait_ends_with_the_time_limit(self):
        @utils.synchronized('a-server')
        def hold():
            held.set()
            enough.wait(30)

        held, enough = threading.Event(), threading.Event()
        thread = threading.Thread(target=hold)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(enough.set)
        held.wait(30)
        begun = time.monotonic()
        with testtools.ExpectedException(TimedOut, '.*0.2 s of .* timeout'):
            with instance.hold_lock('a-server', Deadline(0.2)):
                self.fail('the lock was acquired')
        self.assertLess(time.monotonic() - begun, 20)

    def _is_free(self, name: str) -> bool:
        """Return whether Nova would get the lock, in a thread of its own."""
        def try_it():
            with contextlib.suppress(Exception):
                utils.synchronized(name, blocking=False)(got.append)(name)

        got: list[str] = []
        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()
        return bool(got)


class _StartTestCase(scenario.Started, scenario.TwoDisks):

    def check_removed(self, view):
        self.assert_removed(view, self.lost, 'volume-available')
        self.assert_healthy(view, self.kept)


class StartTest(_StartTestCase):

    def test_by_an_administrator_of_another_project(self):
        """Start it as Masakari does."""
        self.cloud.lose_attachment(self.server, self.lost)
        self.check_removed(self.reboot(self.server, by=self.cloud.admin))

    def test_guest_already_running(self):
        """Withhold it: the guest was started without Nova."""
        self.cloud.lose_attachment(self.server, self.lost)
        self.cloud.stop(self.server)
        self.cloud.domain(self.server).create()
        self.start_recording()
        self.cloud.start(self.server)
        view = self.look(self.server)
        withheld, left_out = self.log_lines(self.server)
        self.assertEqual(('WARNING', 'withheld', 'volume-available'),
                         (withheld.level, withheld.event, withheld.reason))
        self.assertIn('(guest-running)', withheld.text)
        self.assertEqual('not-connected', left_out.event)
        self.assertIsNotNone(view.block_device(self.lost))
        # Nova created the guest again.
        self.assertFalse(view.has_disk(self.lost))
        self.assertEqual([], self.journal())
        # Reboot it hard, as the line says.
        self.cloud.reboot(self.server)
        self.assertIsNone(self.look(self.server).block_device(self.lost))

    def test_actions_are_refused_during_cleanup(self):
        self.cloud.lose_attachment(self.server, self.lost)
        refused = []

        def request_actions():
            for act in (self.cloud.reboot, self.cloud.start):
                refused.append(self.assertRaises(
                    fixture.APIError, act, self.server).status)

        view = self.reboot(self.server, (
            recorder.HOST, 'disconnect', request_actions, self.lost))
        self.assertEqual([409, 409], refused)
        self.check_removed(view)


class ConcurrentOperationTest(_StartTestCase):
    """A start with work to do while another operation holds Nova's lock."""

    def start_during(self, what, operation, volume):
        """Start the server while an operation is in the middle of it.

        Once the start asks for the lock, the operation continues.
        """
        held, self.enough = threading.Event(), threading.Event()

        def stay():
            held.set()
            self.enough.wait(fixture.TIMEOUT)

        take = instance.hold_lock

        def hold(*args, **kwargs):
            self.enough.set()
            return take(*args, **kwargs)

        self.cloud.stop(self.server)
        self.start_recording()
        self.cloud.recorder.before(recorder.HOST, what, stay, volume)
        thread = threading.Thread(target=operation, args=(self.server, volume))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.enough.set)
        self.assertTrue(held.wait(fixture.TIMEOUT))
        with fixtures.MockPatchObject(instance, 'hold_lock', hold):
            self.cloud.start(self.server)
        return thread

    def test_detach_during_a_start_succeeds(self):
        volume = self.cloud.volume()
        self.cloud.attach(self.server, volume)
        self.cloud.lose_attachment(self.server, self.lost)
        self.start_during('disconnect', self.cloud.detach, volume).join()
        view = self.look(self.server)
        self.check_removed(view)
        self.assert_gone(view, volume)

    def test_healthy_server_does_not_wait(self):
        self.start_during('connect', self.cloud.attach, self.cloud.volume())
        self.assertEqual('ACTIVE', self.cloud.look(self.server).status)
        self.assertFalse(self.enough.is_set())
        self.assertEqual([], self.journal())


class UndeleteTest(_StartTestCase):
    """A deleted server that is restored with the disks that are left."""

    ACTION = 'restore'
    ARGUMENTS = {'nova_options': {
        'DEFAULT': {'reclaim_instance_interval': 3600}}}

    def take_down(self, server):
        self.cloud.delete(server)

    def bring_back(self, server, **arguments):
        self.cloud.act(server, {'restore': None}, by=self.cloud.admin)

    def test_healthy_disks_are_kept(self):
        view = self.reboot(self.server)
        self.assert_healthy(view, *self.server.volumes)
        self.assert_nothing_done(view)

    def test_dangling_disk_is_removed(self):
        self.cloud.lose_attachment(self.server, self.lost)
        view = self.reboot(self.server)
        self.check_removed(view)
        self.assertEqual(['start'], [
            entry.record['trigger'] for entry in self.journal()])
