# SPDX-License-Identifier: Apache-2.0
"""A server is started: what is different from a reboot."""

from __future__ import annotations

import threading
import time

from nova import utils
import testtools

from nova_bdm_cleanup.openstack.deadline import Deadline, TimedOut
from nova_bdm_cleanup.plugin import host
from nova_bdm_cleanup.tests.cloud import fixture, recorder
from nova_bdm_cleanup.tests.functional import scenario


class LockTest(testtools.TestCase):
    """Nova's own lock, taken from outside."""

    def test_taken_and_given_back(self):
        for _ in range(2):
            with host.hold_lock('a-server', Deadline(1)):
                self.assertFalse(self._is_free('a-server'))
                self.assertTrue(self._is_free('another-server'))
        self.assertTrue(self._is_free('a-server'))

    def test_given_back_when_something_fails(self):
        def fail():
            with host.hold_lock('a-server', Deadline(1)):
                raise KeyError('a bug')

        self.assertRaises(KeyError, fail)
        self.assertTrue(self._is_free('a-server'))

    def test_nobody_waits_for_longer_than_there_is_time(self):
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
            with host.hold_lock('a-server', Deadline(0.2)):
                self.fail('it has got it')
        self.assertLess(time.monotonic() - begun, 20)

    def _is_free(self, name: str) -> bool:
        """Whether Nova would get the lock, asked in a thread of its own."""
        @utils.synchronized(name, blocking=False)
        def take():
            got.append(name)

        def try_it():
            try:
                take()
            except Exception:
                return

        got: list[str] = []
        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()
        return bool(got)


class _StartTestCase(scenario.Started, scenario.TwoDisks):

    def check_removed(self, view, connected=True):
        self.assert_removed(view, self.lost, 'volume-available',
                            connected=connected)
        self.assert_healthy(view, self.kept)


class StartTest(_StartTestCase):

    def test_by_an_administrator_of_another_project(self):
        """As Masakari does it."""
        self.cloud.lose_attachment(self.made, self.lost)
        self.check_removed(self.reboot(self.made, by=self.cloud.admin))

    def test_a_guest_that_runs_all_the_same(self):
        """Somebody started it without Nova."""
        self.cloud.lose_attachment(self.made, self.lost)
        self.cloud.stop(self.made)
        self.cloud.domain(self.made).create()
        self.begin()
        self.cloud.start(self.made)
        view = self.look(self.made)
        withheld, left_out = self.audit(self.made)
        self.assertEqual(('WARNING', 'withheld', 'volume-available'),
                         (withheld.level, withheld.event, withheld.reason))
        self.assertIn('(guest-running)', withheld.text)
        self.assertEqual('not-connected', left_out.event)
        self.assertIsNotNone(view.block_device(self.lost))
        # Nova made the guest anew.
        self.assertFalse(view.has_disk(self.lost))
        self.assertEqual([], self.journal())
        # As the line says.
        self.begin()
        self.cloud.reboot(self.made)
        self.assertIsNone(self.look(self.made).block_device(self.lost))

    def test_a_reboot_cannot_be_asked_for_while_a_start_cleans_up(self):
        self.cloud.lose_attachment(self.made, self.lost)
        self.cloud.stop(self.made)
        refused = []

        def press():
            for act in (self.cloud.reboot, self.cloud.start):
                refused.append(self.assertRaises(
                    fixture.APIError, act, self.made).status)

        self.begin()
        self.cloud.recorder.before(recorder.HOST, 'disconnect', press,
                                   subject=self.lost)
        self.cloud.start(self.made)
        self.assertEqual([409, 409], refused)
        self.check_removed(self.look(self.made))


class AtTheSameTimeTest(_StartTestCase):
    """Another operation holds Nova's lock when the start has work to do."""

    def setUp(self):
        super().setUp()
        self.held, self.enough = threading.Event(), threading.Event()

    def hold(self):
        self.held.set()
        self.enough.wait(fixture.TIMEOUT)

    def during(self, what, subject, operation, *arguments):
        """Begin an operation and stop in the middle of it."""
        self.cloud.stop(self.made)
        self.begin()
        self.cloud.recorder.before(recorder.HOST, what, self.hold,
                                   subject=subject)
        self.operation = threading.Thread(target=operation, args=arguments)
        self.operation.start()
        self.addCleanup(self.operation.join)
        self.addCleanup(self.enough.set)
        self.assertTrue(self.held.wait(fixture.TIMEOUT))

    def wait_for_the_lock(self):
        """Let go as soon as the start asks for the lock."""
        take = host.hold_lock

        def hold(*args, **kwargs):
            self.enough.set()
            return take(*args, **kwargs)

        self.useFixture(scenario.fixtures.MockPatchObject(
            host, 'hold_lock', hold))

    def test_detach(self):
        volume = self.cloud.volume()
        self.cloud.attach(self.made, volume)
        self.cloud.lose_attachment(self.made, self.lost)
        self.during('disconnect', volume, self.cloud.detach, self.made,
                    volume)
        self.wait_for_the_lock()
        self.cloud.start(self.made)
        self.operation.join()
        view = self.look(self.made)
        self.check_removed(view)
        self.assert_gone(view, volume)

    def test_a_healthy_server_does_not_wait(self):
        volume = self.cloud.volume()
        self.during('connect', volume, self.cloud.attach, self.made, volume)
        self.cloud.start(self.made)
        self.assertEqual('ACTIVE', self.cloud.look(self.made).status)
        self.assertFalse(self.enough.is_set())
        self.assertEqual([], self.journal())


class UndeleteTest(_StartTestCase):
    """A server that was deleted comes back with the disks that are left."""

    ACTION = 'restore'
    ARGUMENTS = {'nova_options': {
        **scenario.NO_QUOTAS,
        'DEFAULT': {'reclaim_instance_interval': 3600,
                    'shutdown_timeout': 0}}}

    def take_down(self, server):
        self.cloud.request('DELETE', f'/servers/{server.id}')

    def bring_back(self, server, **arguments):
        self.cloud.request('POST', f'/servers/{server.id}/action',
                           {'restore': None}, by=self.cloud.admin)

    def test_healthy(self):
        view = self.reboot(self.made)
        for volume in self.made.volumes:
            self.assert_healthy(view, volume)
        self.assert_nothing_done(view)

    def test_dangling(self):
        self.cloud.lose_attachment(self.made, self.lost)
        view = self.reboot(self.made)
        self.check_removed(view)
        self.assertEqual(['start'], [
            entry.record['trigger'] for entry in self.journal()])
