# SPDX-License-Identifier: Apache-2.0
"""The requests of a reboot go wrong: those of the plugin, and of Nova for it.

One at a time with what a careless reader takes for an answer.  That every way
to go wrong comes to the same is shown for each request of the plugin in
``unit/openstack/test_cinder.py``, and what follows when any of them fails in
the search.
"""

from __future__ import annotations

import threading
from typing import Any

import fixtures
from nova import exception

from nova_bdm_cleanup.tests.cloud import fixture, identity, proxy, recorder
from nova_bdm_cleanup.tests.functional import scenario

_PLUGIN = f'^/v3/{identity.NOVA_PROJECT}/'


class FaultMatrixTestCase(scenario.ScenarioTestCase):
    """One server is broken, rebooted under a fault, and mended again.

    It has a healthy volume, a dangling one whose attachment is left over, and
    a stale attachment: a reboot then makes all kinds of requests.  A
    neighbour on the same host has a volume too.
    """

    #: Whether the stale attachment is looked for.
    FINDS_STALE = True

    def setUp(self):
        super().setUp()
        # An hour has many reboots here.
        self.set_options(timeout=60, max_removals_per_hour=1000000)
        self.ignore_actions()
        self.made = self.server(*[scenario.BOOT_DISK] * 2)
        self.kept, self.lost = self.made.volumes
        self.stale = self.cloud.volume()
        self.neighbour = self.server(scenario.BOOT_DISK, name='neighbour')
        self._break()
        self.requested = self._enumerate()
        self._break()

    def _break(self):
        if not self.cloud.attachments(self.lost):
            self.cloud.attach(self.made, self.lost)
        self.cloud.reset_status(self.lost)
        if self.FINDS_STALE and not self.cloud.attachments(self.stale):
            self.cloud.leave_attachment(self.made, self.stale,
                                        connected=False)

    def _enumerate(self) -> list[str]:
        """The requests of an undisturbed reboot, by method."""
        self._check_finished(self.reboot(self.made))
        methods = [request.method for request in self.plugin_requests()]
        # Otherwise the test would prove less than it says.
        deletes = 1 + self.FINDS_STALE
        self.assertEqual(['DELETE'] * deletes, methods[-deletes:])
        self.assertEqual({'GET'}, set(methods[:-deletes]))
        self.assertGreaterEqual(len(methods), 5 + deletes)
        return methods

    def _is_about_one_disk(self, request: proxy.Request) -> bool:
        """Whether a question was the one for os-brick's lock, which is asked
        for each disk: the work on the others goes on without its answer.
        Before it Nova's own code asks for the versions of the API.
        """
        path = request.path.partition('?')[0]
        return path in ('', '/') or path.endswith('/volumes/' + self.lost)

    def _check_finished(self, view):
        self.assertIsNone(view.block_device(self.lost))
        self.assertNotIn(self.lost, view.connected)
        self.assertEqual((), self.cloud.attachments(self.lost))
        self.assertEqual((), self.cloud.attachments(self.stale))
        self.assert_healthy(view, self.kept)

    def _is_untouched(self, view) -> bool:
        return (view.block_device(self.lost) is not None
                and len(self.cloud.attachments(self.lost)) == 1
                and len(self.cloud.attachments(self.stale))
                == self.FINDS_STALE)

    def _disturb(self, fault: proxy.Action, number: int,
                 conclusive: bool) -> None:
        """One reboot with one fault, and what must be true after it.

        :param conclusive: the answer may nevertheless lead to the truth: the
            request is repeated, or what a list lacks is asked for by its id
        """
        self.begin()
        rule = self.cloud.proxy.on('*', _PLUGIN, fault, nth=number)
        self.bring_back(self.made)
        requests = self.plugin_requests()
        self.cloud.proxy.clear()
        if rule.matched < number:
            # A look that finds all on one page asks once less than the first.
            self.assertEqual(number, len(self.requested))
            number = rule.matched
        request = requests[number - 1]
        view = self.look(self.made)
        self.assert_healthy(view, self.kept)
        if (request.method == 'GET' and not conclusive
                and not self._is_about_one_disk(request)):
            self.assertTrue(self._is_untouched(view))
            reasons = {line.reason for line in self.audit(self.made)}
            self.assertTrue(
                reasons & {'cinder-unknown', 'timed-out'}, reasons)
        if view.block_device(self.lost) is None:
            self.assertFalse(view.has_disk(self.lost))
            self.assertNotIn(self.lost, view.connected)
        else:
            # Cinder is the last to be told.
            self.assertEqual(1, len(self.cloud.attachments(self.lost)))
        if not self._is_untouched(view) or not view.has_disk(self.lost):
            # A second look without an answer leaves the disk out.
            self._finish()
            self._break()

    def _check_all(self, fault: proxy.Action) -> None:
        """One reboot in which no request succeeds."""
        self.begin()
        self.cloud.proxy.on('*', _PLUGIN, fault)
        self.bring_back(self.made)
        self.cloud.proxy.clear()
        view = self.look(self.made)
        self.assert_healthy(view, self.kept)
        self.assertTrue(self._is_untouched(view))
        self.assertTrue(view.has_disk(self.lost))
        skipped, = self.audit(self.made)
        self.assertEqual(('WARNING', 'skipped'),
                         (skipped.level, skipped.event))

    def _finish(self) -> None:
        """The next reboot, with nothing in its way."""
        self._check_finished(self.reboot(self.made))

    def _run(self, *faults: proxy.Action, conclusive: bool = False) -> None:
        """One reboot for each request, with one of the faults in turn."""
        for number, requested in enumerate(self.requested, 1):
            turn = number % len(faults)
            try:
                self._disturb(faults[turn], number, conclusive)
            except Exception:
                self.addDetail('where', scenario.content.text_content(
                    f'request {number}: {requested}, fault {turn}'))
                raise
        self._finish()
        self.assert_healthy(self.look(self.neighbour),
                            self.neighbour.volumes[0])


class ConnectionFaultTest(FaultMatrixTestCase):
    """No answer, or none that arrives."""

    def setUp(self):
        super().setUp()
        self.limit = self.useFixture(scenario.TimeLimit())

    def _hang(self, request: proxy.Request, forward: proxy.Forward
              ) -> proxy.Answer:
        self.limit.run_out()
        return self.cloud.proxy.hang(request, forward)

    def test_all_requests_at_once(self):
        for fault in (proxy.reset(), proxy.status(401), proxy.status(503),
                      self._hang):
            self._check_all(fault)
        self._finish()


class AnswerFaultTest(FaultMatrixTestCase):
    """An answer that is none of Cinder's, to each request in turn."""

    def test_not_the_words_of_cinder(self):
        # The page of a proxy, and no JSON.
        self._run(proxy.html(404), proxy.html(200), proxy.garbage())

    def test_part_of_an_answer(self):
        # Cut short, or half a list, or none.
        self._run(proxy.truncate(), proxy.keep_first(1), proxy.keep_first(0),
                  conclusive=True)


class _ComingBackTests:
    """Each request going wrong by itself is in the search."""

    cloud: Any
    _check_all: Any

    def test_all_requests_at_once(self):
        for fault in (proxy.reset(), proxy.html(404)):
            self._check_all(fault)


class StartedFaultTest(_ComingBackTests, scenario.Started,
                       FaultMatrixTestCase):
    """The same, by stop and start."""


class ResumedFaultTest(_ComingBackTests, scenario.Resumed,
                       FaultMatrixTestCase):
    """The same, when the host boots."""

    FINDS_STALE = False


class BackEndTest(scenario.ScenarioTestCase):
    """Cinder is well; its back end or somebody else is in the way."""

    def setUp(self):
        super().setUp()
        self.made = self.server(*[scenario.BOOT_DISK] * 2)
        self.kept, self.lost = self.made.volumes
        self.attachment, = self.cloud.attachments(self.lost)
        self.cloud.reset_status(self.lost)

    def _check_removed(self, view, connected=True):
        self.assert_removed(view, self.lost, 'volume-available',
                            (self.attachment.id,), connected=connected)
        self.assert_healthy(view, self.kept)

    def _check_only_cinder_is_left(self, view):
        """Nothing can connect the disk, whatever Cinder does and when."""
        self.assertIsNone(view.block_device(self.lost))
        self.assertEqual([self.attachment],
                         list(view.attachments_of(self.lost)))
        self.assertFalse(view.has_disk(self.lost))
        self.assertNotIn(self.lost, view.connected)
        self.assert_healthy(view, self.kept)

    def _check_finished(self, view):
        """The next reboot has deleted what was left."""
        self.assert_deleted(view, self.attachment.id, self.lost)
        self.assert_gone(view, self.lost)
        self.assertEqual('available', self.volume_status(self.lost))
        self.assert_healthy(view, self.kept)

    def _delete_behind_our_back(self):
        self.cinder.attachments.delete(self.attachment.id)

    def test_back_end_fails(self):
        self.cloud.cinder.break_driver('terminate_connection', self.lost)
        view = self.reboot(self.made)
        failed, = self.audit(self.made, 'failed')
        self.assertEqual(('cinder-unknown', self.lost),
                         (failed.reason, failed.volume))
        self._check_only_cinder_is_left(view)
        entry, = self.journal()
        self.assertEqual('partly', entry.outcome)
        self.cloud.cinder.mend_driver()
        self._check_finished(self.reboot(self.made))

    def test_attached_again_before_cinder_is_done(self):
        """Cinder does not connect a volume twice, so nothing is taken away."""
        self.cloud.proxy.on('DELETE', '/attachments/', proxy.reset())
        self._check_only_cinder_is_left(self.reboot(self.made))
        self.cloud.proxy.clear()
        self.assertRaises(fixture.APIError, self.cloud.attach, self.made,
                          self.lost)
        self._check_finished(self.reboot(self.made))
        self.cloud.attach(self.made, self.lost)
        self.assert_healthy(self.look(self.made), self.lost)

    def test_given_away_before_cinder_is_done(self):
        """What is left is deleted although another server reserves it."""
        other = self.server(name='other')
        self.cloud.proxy.on('DELETE', '/attachments/', proxy.reset())
        self._check_only_cinder_is_left(self.reboot(self.made))
        self.cloud.proxy.clear()
        theirs = self.cloud.leave_attachment(other, self.lost,
                                             connected=False)
        view = self.reboot(self.made)
        self.assert_deleted(view, self.attachment.id, self.lost)
        self.assertEqual([theirs], [
            each.id for each in self.cloud.attachments(self.lost)])

    def test_somebody_was_faster(self):
        """Bug 1937084: Cinder answers 404, and that is as good as done."""
        self.begin()
        self.cloud.proxy.on('DELETE', '/attachments/',
                            proxy.before(self._delete_behind_our_back))
        self.cloud.reboot(self.made)
        self.assertEqual([404], [request.status for request
                                 in self.cloud.proxy.requests
                                 if request.method == 'DELETE'])
        self._check_removed(self.look(self.made))

    def test_two_deletes_at_once(self):
        self.cloud.cinder.hold_driver('terminate_connection', self.lost,
                                      together=2)
        other = threading.Thread(target=self._delete_behind_our_back)
        self.begin()
        self.cloud.recorder.before(recorder.ASK, 'DELETE', other.start)
        self.cloud.reboot(self.made)
        other.join()
        self.assertEqual(2, self.back_end(self.lost).count(
            ('terminate_connection', self.made.host)))
        self._check_removed(self.look(self.made))

    def test_volume_deleted_during_the_cleanup(self):
        """The attachment goes with the volume."""
        def delete():
            self._delete_behind_our_back()
            self.cinder.volumes.delete(self.lost)
            self.cloud.cinder.wait_deleted(self.lost)

        self.begin()
        self.cloud.proxy.on('DELETE', '/attachments/', proxy.before(delete))
        self.cloud.reboot(self.made)
        self._check_removed(self.look(self.made))

    def test_nova_does_not_remove_the_row(self):
        """Whether it is gone is not known; so the driver is not given it."""
        self.begin()
        self.cloud.recorder.before(
            recorder.NOVA, 'remove bdm',
            recorder.fail(exception.NovaException('conductor is away')))
        self.cloud.reboot(self.made)
        view = self.look(self.made)
        failed, = self.audit(self.made, 'failed')
        self.assertEqual(('step-failed', self.lost),
                         (failed.reason, failed.volume))
        self.assertIsNotNone(view.block_device(self.lost))
        self.assertEqual([self.attachment],
                         list(view.attachments_of(self.lost)))
        self.assertEqual([], self.back_end(self.lost))
        self.assertFalse(view.has_disk(self.lost))
        self.assertNotIn(self.lost, view.connected)
        self._check_removed(self.reboot(self.made), connected=False)

    def test_answer_of_nova_is_lost(self):
        """The row is gone, and Nova must not trip over it in the reboot."""
        def lose_answer():
            row = self.cloud.row(self.made, self.lost)
            row.destroy()
            raise exception.NovaException('no answer')

        self.begin()
        self.cloud.recorder.before(recorder.NOVA, 'remove bdm', lose_answer)
        self.cloud.reboot(self.made)
        self._check_only_cinder_is_left(self.look(self.made))
        self._check_finished(self.reboot(self.made))


class EncryptedTest(scenario.ScenarioTestCase):
    """For an encrypted volume the driver is told how to close it."""

    def setUp(self):
        super().setUp()
        self.made = self.server(*[scenario.BOOT_DISK] * 2)
        self.kept, self.lost = self.made.volumes
        row = self.cloud.row(self.made, self.lost)
        row.connection_info = row.connection_info.replace(
            '"encrypted": false', '"encrypted": true')
        self.assertIn('"encrypted": true', row.connection_info)
        row.save()
        self.told: list[Any] = []
        # There is no such device to open or to close.
        driver = self.cloud.nova.computes[self.made.host].driver
        self.useFixture(fixtures.MockPatchObject(
            driver, '_attach_encryptor'))
        self.useFixture(fixtures.MockPatchObject(
            driver, '_detach_encryptor', self._close))
        self.secrets: list[Any] = []
        self.useFixture(fixtures.MockPatchObject(
            driver._host, 'delete_secret', self._delete_secret))

    def _close(self, context: Any, connection_info: Any,
               encryption: Any = None, destroy_secrets: bool = True) -> None:
        if connection_info['data']['volume_id'] == self.lost:
            self.told.append(encryption)
            self.assertFalse(destroy_secrets)

    def _delete_secret(self, usage: str, volume: str) -> None:
        """Not before Nova's row is gone."""
        self.assertIsNone(self.cloud.look(self.made).block_device(volume))
        self.secrets.append((usage, volume))

    def test_volume_is_there(self):
        self.cloud.lose_attachment(self.made, self.lost)
        view = self.reboot(self.made)
        self.assert_removed(view, self.lost, 'volume-available')
        self.assertEqual(1, len(self.told))
        self.assertEqual([('volume', self.lost)], self.secrets)
        self.assertIn(f'GET /volumes/{self.lost}/encryption',
                      self.requests())

    def test_volume_is_gone(self):
        self.cloud.lose_volume(self.made, self.lost)
        view = self.reboot(self.made)
        self.assert_removed(view, self.lost, 'volume-missing')
        self.assertEqual([{'provider': 'luks'}], self.told)

    def test_cinder_hangs(self):
        limit = self.useFixture(scenario.TimeLimit())
        self.cloud.lose_attachment(self.made, self.lost)

        def hang(request: proxy.Request, forward: proxy.Forward
                 ) -> proxy.Answer:
            limit.run_out()
            return self.cloud.proxy.hang(request, forward)

        self.cloud.proxy.on('GET', '/encryption', hang)
        view = self.reboot(self.made)
        failed, = self.audit(self.made, 'failed')
        self.assertEqual(('timed-out', self.lost),
                         (failed.reason, failed.volume))
        self.assertIsNotNone(view.block_device(self.lost))
        self.cloud.proxy.clear()
        self.assert_removed(self.reboot(self.made), self.lost,
                            'volume-available')
