# SPDX-License-Identifier: Apache-2.0
"""Attachments that another project makes for a server change nothing.

A user who knows the id of a server can make any number of attachments that
name it, on volumes of their own project.
"""

from __future__ import annotations

from nova_bdm_cleanup.tests.cloud import proxy
from nova_bdm_cleanup.tests.functional import scenario


class ForeignAttachmentsTestCase(scenario.TwoDisks):

    def setUp(self):
        super().setUp()
        self.foreign = self.cloud.volume(owner=self.cloud.other_user,
                                         multiattach=True)


class ForeignAttachmentsTest(ForeignAttachmentsTestCase):

    def test_foreign_and_own_attachments(self):
        """Ignore as many foreign attachments as one reboot may delete.

        Their volume is detaching, but they neither hide an attachment of
        the own project nor protect the lost disk from removal.
        """
        for _ in range(8):
            self.cloud.create_attachment(self.server, self.foreign,
                                        by=self.cloud.other_user)
        self.cloud.cinder.client(self.cloud.other_user).volumes \
            .begin_detaching(self.foreign)
        before = self.cloud.attachments(self.foreign)
        own = self.cloud.volume()
        self.cloud.create_attachment(self.server, own, connected=False)
        self.cloud.lose_attachment(self.server, self.lost)
        self.check_removed(self.reboot(self.server))
        self.assertEqual((), self.cloud.attachments(own))
        self.assertEqual('available', self.volume_status(own))
        self.assertEqual(before, self.cloud.attachments(self.foreign))
        self.assertEqual([], self.back_end(self.foreign))
        self.assertEqual([], self.host_steps(self.foreign))


class FloodTest(ForeignAttachmentsTestCase):
    """More attachments than can be read in time.

    The pages of this Cinder are small, so that fewer attachments suffice.
    """

    ATTACHMENT_COUNT, PAGE_SIZE = 600, 20
    #: The limit of list requests, for both looks together.
    MAX_LIST_REQUESTS = 12

    def test_flood_of_attachments_does_not_stop_the_cleanup(self):
        self.set_options(timeout=30)
        self.cloud.cinder.reserve_many(self.foreign, self.server.id,
                                       self.ATTACHMENT_COUNT)
        self.cloud.proxy.on('GET', '/attachments(/detail)?[?]',
                            proxy.limit_pages(self.PAGE_SIZE))
        self.cloud.reset_status(self.lost)
        view = self.reboot(self.server)
        self.assertLess(len([
            each for each in self.requests('GET') if each.startswith(
                ('GET /attachments?', 'GET /attachments/detail?'))]),
            self.MAX_LIST_REQUESTS)
        self.check_removed(view)
