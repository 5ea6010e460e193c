# SPDX-License-Identifier: Apache-2.0
"""What another project has written about a server changes nothing.

Whoever knows the id of a server can make attachments that name it, on volumes
of his own project and as many as he likes.
"""

from __future__ import annotations

import uuid

from nova_bdm_cleanup.tests.cloud import fixture, identity, proxy
from nova_bdm_cleanup.tests.functional import scenario

ADMINISTRATOR = identity.Caller('admin', 'admin', identity.ADMIN)


class ForeignAttachmentsTestCase(scenario.TwoDisks):

    def setUp(self):
        super().setUp()
        self.foreign = self.cloud.volume(owner=self.cloud.stranger,
                                         multiattach=True)

    def attach_foreign(self, count=1, connected=True):
        """Have the stranger attach his volume to a server that is not his."""
        return [self.cloud.leave_attachment(
            self.made, self.foreign, connected=connected,
            by=self.cloud.stranger) for _ in range(count)]

    def check_foreign_untouched(self, attachments):
        self.assertEqual(sorted(attachments), sorted(
            each.id for each in self.cloud.attachments(self.foreign)))
        self.assertNotIn('terminate_connection', [
            call for call, _ in self.back_end(self.foreign)])
        self.assertEqual([], self.on_host(self.foreign))


class ForeignAttachmentsTest(ForeignAttachmentsTestCase):

    def test_as_many_as_one_reboot_may_remove(self):
        attachments = self.attach_foreign(8)
        self.cloud.lose_attachment(self.made, self.lost)
        self.check_removed(self.reboot(self.made))
        self.check_foreign_untouched(attachments)

    def test_own_stale_attachment_beside_it(self):
        """A foreign volume that is on the move does not protect it."""
        attachments = self.attach_foreign()
        self.cloud.cinder.client(self.cloud.stranger).volumes \
            .begin_detaching(self.foreign)
        own = self.cloud.volume()
        self.cloud.leave_attachment(self.made, own, connected=False)
        self.reboot(self.made)
        self.assertEqual((), self.cloud.attachments(own))
        self.assertEqual('available', self.volume_status(own))
        self.check_foreign_untouched(attachments)


class ForeignVolumeTest(ForeignAttachmentsTestCase):
    """An administrator attached a multiattach volume of another project."""

    def setUp(self):
        super().setUp()
        self.cloud.attach(self.made, self.foreign, by=ADMINISTRATOR)
        self.other = self.server(
            fixture.Disk(volume=self.foreign, at_boot=True), name='other',
            owner=self.cloud.stranger)
        self.row = self.cloud.row(self.made, self.foreign)

    def test_what_serves_the_disk_is_named_by_no_mapping(self):
        """A migration of the server failed, and left the old attachment."""
        self.row.attachment_id = str(uuid.uuid4())
        self.row.save()
        # Nova asks for the volume as whoever reboots, and its owner sees none.
        view = self.reboot(self.made, by=ADMINISTRATOR)
        self.assertTrue(view.has_disk(self.foreign))
        self.assertIsNotNone(view.block_device(self.foreign))
        self.assertEqual(
            [('kept', 'attachment-mismatch')],
            [(line.event, line.reason) for line in self.audit(self.made)
             if line.volume == self.foreign])

    def test_nothing_lets_this_server_in(self):
        self.cloud.lose_attachment(self.made, self.foreign)
        view = self.reboot(self.made)
        self.assertIsNone(view.block_device(self.foreign))
        self.assert_healthy(self.look(self.other), self.foreign)


class FloodTest(ForeignAttachmentsTestCase):
    """So many records that reading them all takes far too long.

    The pages of this Cinder are small, so that fewer records do.
    """

    RECORDS, PAGE = 600, 20
    #: Of both looks together.
    FEW = 12

    def setUp(self):
        super().setUp()
        self.set_options(timeout=30)

    def _flood(self, volume):
        self.cloud.cinder.reserve_many(volume, self.made.id, self.RECORDS)
        self.cloud.proxy.on('GET', '/attachments(/detail)?[?]',
                            proxy.limit_pages(self.PAGE))

    def _check_few_pages(self):
        pages = [each for each in self.requests('GET')
                 if each.startswith(('GET /attachments?',
                                     'GET /attachments/detail?'))]
        self.assertLess(len(pages), self.FEW)

    def test_foreign_records_and_a_left_over_attachment(self):
        self._flood(self.foreign)
        self.cloud.reset_status(self.lost)
        view = self.reboot(self.made)
        self._check_few_pages()
        self.check_removed(view)
