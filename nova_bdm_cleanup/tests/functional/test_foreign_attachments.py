# SPDX-License-Identifier: Apache-2.0
"""What another project has written about a server changes nothing.

Whoever knows the id of a server can make attachments that name it, on volumes
of his own project and as many as he likes.
"""

from __future__ import annotations

from nova_bdm_cleanup.tests.cloud import proxy
from nova_bdm_cleanup.tests.functional import scenario


class ForeignAttachmentsTestCase(scenario.TwoDisks):

    def setUp(self):
        super().setUp()
        self.foreign = self.cloud.volume(owner=self.cloud.stranger,
                                         multiattach=True)


class ForeignAttachmentsTest(ForeignAttachmentsTestCase):

    def test_beside_what_is_the_servers_own(self):
        """As many as one reboot may remove, of a volume on the move, hide
        and protect nothing.
        """
        for _ in range(8):
            self.cloud.leave_attachment(self.made, self.foreign,
                                        by=self.cloud.stranger)
        self.cloud.cinder.client(self.cloud.stranger).volumes \
            .begin_detaching(self.foreign)
        before = self.cloud.attachments(self.foreign)
        own = self.cloud.volume()
        self.cloud.leave_attachment(self.made, own, connected=False)
        self.cloud.lose_attachment(self.made, self.lost)
        self.check_removed(self.reboot(self.made))
        self.assertEqual((), self.cloud.attachments(own))
        self.assertEqual('available', self.volume_status(own))
        self.assertEqual(before, self.cloud.attachments(self.foreign))
        self.assertEqual([], self.back_end(self.foreign))
        self.assertEqual([], self.on_host(self.foreign))


class FloodTest(ForeignAttachmentsTestCase):
    """So many records that reading them all takes far too long.

    The pages of this Cinder are small, so that fewer records do.
    """

    RECORDS, PAGE = 600, 20
    #: Of both looks together.
    FEW = 12

    def test_foreign_records_and_a_left_over_attachment(self):
        self.set_options(timeout=30)
        self.cloud.cinder.reserve_many(self.foreign, self.made.id,
                                       self.RECORDS)
        self.cloud.proxy.on('GET', '/attachments(/detail)?[?]',
                            proxy.limit_pages(self.PAGE))
        self.cloud.reset_status(self.lost)
        view = self.reboot(self.made)
        self.assertLess(len([
            each for each in self.requests('GET') if each.startswith(
                ('GET /attachments?', 'GET /attachments/detail?'))]),
            self.FEW)
        self.check_removed(view)
