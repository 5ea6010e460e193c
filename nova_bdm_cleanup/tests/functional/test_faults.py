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


"""Every request of a reboot goes wrong, in every way, one at a time."""

from __future__ import annotations

from nova_bdm_cleanup.tests.functional import scenario  # isort: skip

import threading
import time
from typing import Any

import fixtures
from nova import exception
from oslo_config import cfg

from nova_bdm_cleanup.tests.cloud import identity
from nova_bdm_cleanup.tests.cloud import proxy
from nova_bdm_cleanup.tests.cloud import recorder

CONF = cfg.CONF
_PLUGIN = f'^/v3/{identity.NOVA_PROJECT}/'


class FaultMatrixTestCase(scenario.ScenarioTestCase):
    """One server is broken, rebooted under a fault, and mended again.

    It has a healthy volume, a dangling one whose attachment is left over, and
    a stale attachment: a reboot then makes all kinds of requests.  A
    neighbour on the same host has a volume too.
    """

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
        if not self.cloud.attachments(self.stale):
            self.cloud.leave_attachment(self.made, self.stale,
                                        connected=False)

    def _enumerate(self) -> list[str]:
        """The requests of an undisturbed reboot, by method."""
        self._check_finished(self.reboot(self.made))
        methods = [request.method for request in self.plugin_requests()]
        # Otherwise the test would prove less than it says.
        self.assertEqual(['DELETE', 'DELETE'], methods[-2:])
        self.assertEqual({'GET'}, set(methods[:-2]))
        self.assertGreaterEqual(len(methods), 6)
        return methods

    def _check_finished(self, view):
        self.assertIsNone(view.block_device(self.lost))
        self.assertNotIn(self.lost, view.connected)
        self.assertEqual((), self.cloud.attachments(self.lost))
        self.assertEqual((), self.cloud.attachments(self.stale))
        self.assert_healthy(view, self.kept)

    def _is_untouched(self, view) -> bool:
        return (view.block_device(self.lost) is not None
                and len(self.cloud.attachments(self.lost)) == 1
                and len(self.cloud.attachments(self.stale)) == 1
                and view.has_disk(self.lost))

    def _disturb(self, fault: proxy.Action, number: int, method: str,
                 conclusive: bool) -> None:
        """One reboot with one fault, and what must be true after it.

        :param conclusive: the answer may nevertheless lead to the truth: the
            request is repeated, or what a list lacks is asked for by its id
        """
        self.begin()
        rule = self.cloud.proxy.on('*', _PLUGIN, fault, nth=number)
        self.cloud.reboot(self.made)
        self.cloud.proxy.clear()
        if CONF.bdm_cleanup.timeout > 10:
            self.assertGreaterEqual(rule.matched, number)
        view = self.look(self.made)
        self.assert_healthy(view, self.kept)
        if method == 'GET' and not conclusive:
            self.assertTrue(self._is_untouched(view))
            reasons = {line.reason for line in self.audit(self.made)}
            self.assertTrue(
                reasons & {'cinder-unknown', 'timed-out'}, reasons)
        if view.block_device(self.lost) is None:
            # Nova's row is the last to go.
            self.assertEqual((), self.cloud.attachments(self.lost))
            self.assertFalse(view.has_disk(self.lost))
        if not self._is_untouched(view):
            self._finish()
            self._break()

    def _finish(self) -> None:
        """The next reboot, with nothing in its way."""
        timeout = CONF.bdm_cleanup.timeout
        CONF.set_override('timeout', 60, group='bdm_cleanup')
        self._check_finished(self.reboot(self.made))
        CONF.set_override('timeout', timeout, group='bdm_cleanup')

    def _run(self, fault: proxy.Action, conclusive: bool = False,
             name: str = '') -> None:
        self._break()
        for number, method in enumerate(self.requested, 1):
            try:
                self._disturb(fault, number, method, conclusive)
            except Exception:
                self.addDetail('where', scenario.content.text_content(
                    f'request {number}: {method} {name}'))
                raise
        self._finish()
        self.assert_healthy(self.look(self.neighbour),
                            self.neighbour.volumes[0])


class ConnectionFaultTest(FaultMatrixTestCase):
    """No answer, or none that arrives, to each request in turn."""

    def test_connection_cut(self):
        self._run(proxy.reset(), conclusive=True)

    def test_answer_lost(self):
        self._run(proxy.lose_answer(), conclusive=True)

    def test_hang(self):
        self.set_options(timeout=2)
        self._run(self.cloud.proxy.hang)

    def test_all_requests_at_once(self):
        for fault in (proxy.reset(), proxy.status(503), proxy.html(404),
                      self.cloud.proxy.hang):
            if fault == self.cloud.proxy.hang:
                self.set_options(timeout=2)
            self.begin()
            self.cloud.proxy.on('*', _PLUGIN, fault)
            begun = time.monotonic()
            self.cloud.reboot(self.made)
            self.assertLess(time.monotonic() - begun, 15)
            self.cloud.proxy.clear()
            view = self.look(self.made)
            self.assert_healthy(view, self.kept)
            self.assertTrue(self._is_untouched(view))
            skipped, = self.audit(self.made)
            self.assertEqual(('WARNING', 'skipped'),
                             (skipped.level, skipped.event))
        self._finish()


class AnswerFaultTest(FaultMatrixTestCase):
    """An answer that is none of Cinder's, to each request in turn."""

    def test_refused(self):
        for code in (401, 413, 429):
            self._run(proxy.status(code), name=str(code))

    def test_in_trouble(self):
        for code in (500, 503):
            self._run(proxy.status(code), name=str(code))

    def test_not_the_words_of_cinder(self):
        for name, fault in {'page of a proxy, 404': proxy.html(404),
                            'page of a proxy, 200': proxy.html(200),
                            'no JSON': proxy.garbage()}.items():
            self._run(fault, name=name)

    def test_answer_cut_short(self):
        self._run(proxy.truncate(), conclusive=True)

    def test_half_a_list(self):
        self._run(proxy.keep_first(1), conclusive=True)
        self._run(proxy.keep_first(0), conclusive=True)


class BackEndTest(scenario.ScenarioTestCase):
    """Cinder is well; its back end or somebody else is in the way."""

    def setUp(self):
        super().setUp()
        self.made = self.server(*[scenario.BOOT_DISK] * 2)
        self.kept, self.lost = self.made.volumes
        self.attachment, = self.cloud.attachments(self.lost)
        self.cloud.reset_status(self.lost)

    def _check_removed(self, view):
        self.assert_removed(view, self.lost, 'volume-available',
                            (self.attachment.id,))
        self.assert_healthy(view, self.kept)

    def _delete_behind_our_back(self):
        self.cinder.attachments.delete(self.attachment.id)

    def test_back_end_fails(self):
        self.cloud.cinder.break_driver('terminate_connection', self.lost)
        view = self.reboot(self.made)
        failed, = self.audit(self.made, 'failed')
        self.assertEqual(('cinder-unknown', self.lost),
                         (failed.reason, failed.volume))
        self.assertIsNotNone(view.block_device(self.lost))
        self.assertEqual(1, len(view.attachments_of(self.lost)))
        self.cloud.cinder.mend_driver()
        self._check_removed(self.reboot(self.made))

    def test_back_end_is_slower_than_our_patience(self):
        """Cinder finishes the deletion after the reboot has gone on."""
        self.set_options(timeout=1)
        self.cloud.cinder.break_driver('terminate_connection', self.lost,
                                       delay=2, error=None)
        view = self.reboot(self.made)
        self.assertEqual({'timed-out'}, {
            line.reason for line in self.audit(self.made, 'failed')})
        self.assertIsNotNone(view.block_device(self.lost))
        # By the time the guest runs, its disk may be somebody else's.
        self.assertFalse(view.has_disk(self.lost))
        self.assertNotIn(self.lost, view.connected)
        self.cloud.cinder.mend_driver()
        deadline = time.monotonic() + 20
        while self.cloud.attachments(self.lost):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
        self.set_options(timeout=60)
        view = self.reboot(self.made)
        self.assert_removed(view, self.lost, 'volume-available')

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
        self.cloud.cinder.break_driver('terminate_connection', self.lost,
                                       delay=0.5, error=None)
        other = threading.Thread(target=self._delete_behind_our_back)

        def begin():
            other.start()
            time.sleep(0.2)

        self.begin()
        self.cloud.recorder.before(recorder.ASK, 'DELETE', begin)
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
            self.cloud.cinder.wait_deleted(self.cinder, self.lost)

        self.begin()
        self.cloud.proxy.on('DELETE', '/attachments/', proxy.before(delete))
        self.cloud.reboot(self.made)
        self._check_removed(self.look(self.made))

    def test_row_removed_by_somebody_else(self):
        def remove():
            row, = [row for row in self.cloud.nova.block_devices(self.made.id)
                    if row.volume_id == self.lost]
            row.destroy()

        self.begin()
        self.cloud.recorder.before(recorder.NOVA, 'remove bdm', remove)
        self.cloud.reboot(self.made)
        view = self.look(self.made)
        self.assertIsNone(view.block_device(self.lost))
        self.assert_healthy(view, self.kept)

    def test_nova_does_not_remove_the_row(self):
        """The guest must not get the disk again, row or not."""
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
        self.assertEqual((), view.attachments_of(self.lost))
        self.assertFalse(view.has_disk(self.lost))
        self.assertNotIn(self.lost, view.connected)
        view = self.reboot(self.made)
        self.assert_removed(view, self.lost, 'volume-available')


class UnfinishedTest(scenario.ScenarioTestCase):
    """Disconnected by a cleanup, and then Cinder says "attached" again."""

    def test_what_the_runbook_says(self):
        made = self.server(*[scenario.BOOT_DISK] * 2)
        kept, lost = made.volumes
        attachment, = self.cloud.attachments(lost)
        self.cloud.reset_status(lost)
        self.cloud.proxy.on('DELETE', '/attachments/', proxy.status(500))
        self.reboot(made)
        self.cloud.proxy.clear()
        self.cloud.reset_status(lost, 'in-use')
        view = self.reboot(made)
        self.assertFalse(view.has_disk(lost))
        self.assertIsNotNone(view.block_device(lost))
        self.assertEqual(['status-contradiction'],
                         [line.reason for line in self.audit(made)])
        self.cloud.reset_status(lost)
        view = self.reboot(made)
        self.assert_removed(view, lost, 'volume-available', (attachment.id,))
        self.assert_healthy(view, kept)
        self.cloud.attach(made, lost)
        self.assert_healthy(self.look(made), lost)


class EncryptedTest(scenario.ScenarioTestCase):
    """For an encrypted volume the driver is told how to close it."""

    def setUp(self):
        super().setUp()
        self.made = self.server(*[scenario.BOOT_DISK] * 2)
        self.kept, self.lost = self.made.volumes
        row, = [row for row in self.cloud.nova.block_devices(self.made.id)
                if row.volume_id == self.lost]
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

    def _close(self, context: Any, connection_info: Any,
               encryption: Any = None, **kwargs: Any) -> None:
        if connection_info['data']['volume_id'] == self.lost:
            self.told.append(encryption)

    def test_volume_is_there(self):
        self.cloud.lose_attachment(self.made, self.lost)
        view = self.reboot(self.made)
        self.assert_removed(view, self.lost, 'volume-available')
        self.assertEqual(1, len(self.told))
        self.assertIn(f'GET /volumes/{self.lost}/encryption',
                      self.requests())

    def test_volume_is_gone(self):
        self.cloud.lose_volume(self.made, self.lost)
        view = self.reboot(self.made)
        self.assert_removed(view, self.lost, 'volume-missing')
        self.assertEqual([{'provider': 'luks'}], self.told)

    def test_cinder_hangs(self):
        self.set_options(timeout=2)
        self.cloud.lose_attachment(self.made, self.lost)
        self.cloud.proxy.on('GET', '/encryption', self.cloud.proxy.hang)
        view = self.reboot(self.made)
        failed, = self.audit(self.made, 'failed')
        self.assertEqual(('timed-out', self.lost),
                         (failed.reason, failed.volume))
        self.assertIsNotNone(view.block_device(self.lost))
        self.cloud.proxy.clear()
        self.set_options(timeout=60)
        self.assert_removed(self.reboot(self.made), self.lost,
                            'volume-available')
