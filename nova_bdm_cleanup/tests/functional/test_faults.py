# SPDX-License-Identifier: Apache-2.0
"""Failed requests of a reboot: those of the plugin, and of Nova for it.

They fail all at once here.  ``unit/openstack/test_cinder.py`` shows for each
request of the plugin that every failure has the same result, and the search
shows what follows when any of them fails.
"""

from __future__ import annotations

from nova import exception

from nova_bdm_cleanup.tests.cloud import identity, proxy, recorder
from nova_bdm_cleanup.tests.functional import scenario

_PLUGIN_PATH = f'^/v3/{identity.NOVA_PROJECT}/'


class _FaultTestCase(scenario.TwoDisks):
    """A dangling disk with its attachment, and a stale attachment.

    A reboot then makes all kinds of requests.
    """

    def setUp(self):
        super().setUp()
        self.set_options(timeout=60)
        self.stale = self.cloud.volume()
        self.cloud.reset_status(self.lost)
        self.cloud.create_attachment(self.server, self.stale, connected=False)

    def check(self, *faults: proxy.Action) -> None:
        """Check that a reboot whose requests all fail changes nothing."""
        for fault in faults:
            view = self.reboot_with(fault)
            self.assert_healthy(view, self.kept)
            self.assertIsNotNone(view.block_device(self.lost))
            self.assertTrue(view.has_disk(self.lost))
            for volume in (self.lost, self.stale):
                self.assertEqual(1, len(self.cloud.attachments(volume)))
            skipped, = self.log_lines(self.server)
            self.assertEqual(('WARNING', 'skipped'),
                             (skipped.level, skipped.event))

    def reboot_with(self, fault: proxy.Action) -> scenario.snapshot.Snapshot:
        self.cloud.proxy.on('*', _PLUGIN_PATH, fault)
        view = self.reboot(self.server)
        self.cloud.proxy.clear()
        return view


class ConnectionFaultTest(_FaultTestCase):
    """Requests without an answer, or whose answer does not arrive."""

    def test_nothing_is_removed_without_an_answer(self):
        self.check(proxy.reset(), proxy.status(401), proxy.status(503),
                   self.hang_until_timeout())
        self.check_removed(self.reboot(self.server))
        self.assertEqual((), self.cloud.attachments(self.stale))


class AnswerFaultTest(_FaultTestCase):
    """Answers that are not Cinder's, or only a part of one."""

    def test_nothing_is_removed_after_invalid_answers(self):
        # The page of a proxy, no JSON, or a truncated answer.
        self.check(proxy.html(404), proxy.html(200), proxy.garbage(),
                   proxy.truncate())
        self.check_removed(self.reboot(self.server))

    def test_missing_items_of_a_list_are_requested(self):
        """Request by id the items that a list lacks."""
        for count in (1, 0):
            self.check_removed(self.reboot_with(proxy.shorten_lists(count)))
            self.cloud.attach(self.server, self.lost)
            self.cloud.reset_status(self.lost)


class BackEndTest(scenario.TwoDisks):
    """A healthy Cinder, with a failure of its back end or of Nova."""

    def setUp(self):
        super().setUp()
        self.attachment, = self.cloud.attachments(self.lost)
        self.cloud.reset_status(self.lost)

    def check_failed(self, view, reason):
        """Check that the cleanup failed, and nothing can connect the disk,
        independent of what Cinder does and when.
        """
        failed, = self.log_lines(self.server, 'failed')
        self.assertEqual((reason, self.lost), (failed.reason, failed.volume))
        self.assertEqual((self.attachment,), view.attachments_of(self.lost))
        self.assertFalse(view.has_disk(self.lost))
        self.assertNotIn(self.lost, view.connected)
        self.assert_healthy(view, self.kept)

    def test_attachment_stays_if_the_back_end_fails(self):
        self.cloud.cinder.break_driver('terminate_connection', self.lost)
        view = self.reboot(self.server)
        self.check_failed(view, 'cinder-unknown')
        self.assertIsNone(view.block_device(self.lost))
        entry, = self.journal()
        self.assertEqual('partly', entry.outcome)
        self.cloud.cinder.repair_driver()
        view = self.reboot(self.server)
        self.assert_deleted(view, self.attachment.id, self.lost)
        self.check_removed(view)
        self.assertEqual('available', self.volume_status(self.lost))

    def test_row_and_attachment_stay_if_destroy_fails(self):
        """Withhold it from the driver: its removal is not certain."""
        view = self.reboot(self.server, (
            recorder.NOVA, 'remove bdm',
            recorder.fail(exception.NovaException('conductor is away'))))
        self.check_failed(view, 'step-failed')
        self.assertIsNotNone(view.block_device(self.lost))
        self.assertEqual([], self.back_end(self.lost))
        view = self.reboot(self.server)
        self.assert_removed(view, self.lost, 'volume-available',
                            (self.attachment.id,), connected=False)
        self.assert_healthy(view, self.kept)
