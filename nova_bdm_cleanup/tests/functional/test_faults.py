# SPDX-License-Identifier: Apache-2.0
"""The requests of a reboot go wrong: those of the plugin, and of Nova for it.

All at once.  That every way to go wrong comes to the same is shown for each
request of the plugin in ``unit/openstack/test_cinder.py``, and what follows
when any of them fails in the search.
"""

from __future__ import annotations

from typing import Any

import fixtures
from nova import exception

from nova_bdm_cleanup.tests.cloud import identity, proxy, recorder
from nova_bdm_cleanup.tests.functional import scenario

_PLUGIN = f'^/v3/{identity.NOVA_PROJECT}/'


class _FaultTestCase(scenario.TwoDisks):
    """One disk dangles and has its attachment, and a stale one is left over:
    a reboot then makes all kinds of requests.
    """

    def setUp(self):
        super().setUp()
        self.set_options(timeout=60)
        self.stale = self.cloud.volume()
        self.cloud.reset_status(self.lost)
        self.cloud.leave_attachment(self.made, self.stale, connected=False)

    def check(self, *faults: proxy.Action) -> None:
        """A reboot in which no request succeeds changes nothing."""
        for fault in faults:
            self.bring_back_with(fault)
            view = self.look(self.made)
            self.assert_healthy(view, self.kept)
            self.assertIsNotNone(view.block_device(self.lost))
            self.assertTrue(view.has_disk(self.lost))
            for volume in (self.lost, self.stale):
                self.assertEqual(1, len(self.cloud.attachments(volume)))
            skipped, = self.audit(self.made)
            self.assertEqual(('WARNING', 'skipped'),
                             (skipped.level, skipped.event))

    def bring_back_with(self, fault: proxy.Action) -> None:
        self.take_down(self.made)
        self.begin()
        self.cloud.proxy.on('*', _PLUGIN, fault)
        self.bring_back(self.made)
        self.cloud.proxy.clear()

    def check_finished(self) -> None:
        """The next reboot, with nothing in its way."""
        self.check_removed(self.reboot(self.made))


class ConnectionFaultTest(_FaultTestCase):
    """No answer, or none that arrives."""

    def test_all_requests_at_once(self):
        self.check(proxy.reset(), proxy.status(401), proxy.status(503),
                   self.hang_until_time_is_over())
        self.check_finished()
        self.assertEqual((), self.cloud.attachments(self.stale))


class AnswerFaultTest(_FaultTestCase):
    """An answer that is none of Cinder's, or a part of one."""

    def test_not_the_words_of_cinder(self):
        # The page of a proxy, no JSON, or cut short.
        self.check(proxy.html(404), proxy.html(200), proxy.garbage(),
                   proxy.truncate())
        self.check_finished()

    def test_half_a_list_or_none(self):
        """What a list lacks is asked for by its id."""
        for count in (1, 0):
            self.bring_back_with(proxy.keep_first(count))
            self.check_removed(self.look(self.made))
            self.cloud.attach(self.made, self.lost)
            self.cloud.reset_status(self.lost)


class _ComingBackTests:

    check: Any

    def test_all_requests_at_once(self):
        self.check(proxy.reset(), proxy.html(404))


class StartedFaultTest(_ComingBackTests, scenario.Started, _FaultTestCase):
    """The same, by stop and start."""


class ResumedFaultTest(_ComingBackTests, scenario.Resumed, _FaultTestCase):
    """The same, when the host boots."""


class BackEndTest(scenario.TwoDisks):
    """Cinder is well; its back end or somebody else is in the way."""

    def setUp(self):
        super().setUp()
        self.attachment, = self.cloud.attachments(self.lost)
        self.cloud.reset_status(self.lost)

    def test_back_end_fails(self):
        self.cloud.cinder.break_driver('terminate_connection', self.lost)
        view = self.reboot(self.made)
        failed, = self.audit(self.made, 'failed')
        self.assertEqual(('cinder-unknown', self.lost),
                         (failed.reason, failed.volume))
        # Nothing can connect the disk, whatever Cinder does and when.
        self.assertIsNone(view.block_device(self.lost))
        self.assertEqual([self.attachment],
                         list(view.attachments_of(self.lost)))
        self.assertFalse(view.has_disk(self.lost))
        self.assertNotIn(self.lost, view.connected)
        self.assert_healthy(view, self.kept)
        entry, = self.journal()
        self.assertEqual('partly', entry.outcome)
        self.cloud.cinder.mend_driver()
        view = self.reboot(self.made)
        self.assert_deleted(view, self.attachment.id, self.lost)
        self.check_removed(view)
        self.assertEqual('available', self.volume_status(self.lost))

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
        view = self.reboot(self.made)
        self.assert_removed(view, self.lost, 'volume-available',
                            (self.attachment.id,), connected=False)
        self.assert_healthy(view, self.kept)


class EncryptedTest(scenario.TwoDisks):
    """For an encrypted volume the driver is told how to close it."""

    def setUp(self):
        super().setUp()
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
