# SPDX-License-Identifier: Apache-2.0
"""Paging: lists are read to their end, or not at all."""

from __future__ import annotations

from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.tests.unit import wire
from nova_bdm_cleanup.tests.unit.openstack import test_api

LIST = '/attachments/detail'


class PagesTest(test_api.ApiCase):

    def setUp(self):
        super().setUp()
        self.cloud.attachments.clear()
        for number in range(1, 8):
            self.cloud.put_attachment('a%d' % number, 'server', 'volume-1')

    def pages(self, **query):
        return self.api().pages(
            LIST, 'attachments', {
                'all_tenants': '1', 'limit': '1000', **query},
            follow_links=False)

    def ids(self, **values):
        return [r['id'] for page in self.pages(**values) for r in page]

    def test_pages_without_a_link_are_complete(self):
        for size in (1, 2, 3, 6, 7, 8, 1000):
            self.cloud.page = size
            self.assertEqual(['a%d' % n for n in range(1, 8)], self.ids())

    def test_the_end_is_an_empty_page(self):
        """Check also that each request has the filter."""
        self.cloud.page = 3
        self.ids(instance_id='server')
        self.assertEqual(
            [(marker, '1000', 'server') for marker in (
                None, 'a3', 'a6', 'a7')],
            [(r.query.get('marker'), r.query['limit'],
              r.query['instance_id']) for r in self.cloud.requests])

    def test_empty_list_takes_one_request(self):
        self.cloud.attachments.clear()
        self.assertEqual([], list(self.pages()))
        self.assertEqual(1, len(self.cloud.requests))

    def test_no_page_is_requested_that_is_not_read(self):
        self.cloud.page = 3
        self.assertEqual(3, len(next(self.pages())))
        self.assertEqual(1, len(self.cloud.requests))

    def test_pages_follow_the_links(self):
        for number in range(5):
            self.cloud.put_volume('v%d' % number, 'reserved')
        for size, asked in ((2, 3), (5, 1)):
            self.cloud.requests.clear()
            self.cloud.page = size
            pages = list(self.api().pages(
                '/volumes', 'volumes', {'status': 'reserved'},
                follow_links=True))
            self.assertEqual(5, sum(map(len, pages)))
            self.assertEqual(asked, len(self.cloud.requests))
            self.assertNotIn('limit', self.cloud.requests[0].query)

    def test_deleted_marker_does_not_end_the_list(self):
        self.cloud.page = 3
        found = []
        for page in self.pages():
            found += [r['id'] for r in page]
            if len(found) == 3:
                del self.cloud.attachments['a3']
                del self.cloud.attachments['a2']
        self.assertEqual(['a%d' % n for n in range(1, 8)], found)

    def test_list_without_a_first_page_is_refused(self):
        for trouble in (wire.fault(404, 'itemNotFound'),
                        wire.fault(400, 'badRequest', 'marker')):
            self.cloud.trouble('GET', LIST, trouble)
            self.assertRaises(errors.BadAnswer, self.ids)

    def test_repeated_page_is_refused(self):
        page = {'attachments': [self.cloud.attachments['a1']]}
        self.cloud.trouble('GET', LIST, wire.json_answer(200, page))
        error = self.assertRaises(errors.BadAnswer, self.ids)
        self.assertIn('twice', str(error))
        self.assertEqual(2, len(self.cloud.requests))

    def test_unanswered_page_is_refused(self):
        """Raise BadAnswer, also if no marker is ever accepted."""
        self.cloud.page = 3
        for trouble in (wire.fault(404, 'itemNotFound'), wire.page(404),
                        wire.page(200),
                        wire.fault(500, 'computeFault'),
                        wire.json_answer(200, {}),
                        wire.json_answer(200, {'attachments': [{}]})):
            def broken(handler, trouble=trouble):
                if 'marker' in handler.request_made.query:
                    trouble(handler)
                else:
                    wire.edit(lambda body: None)(handler)

            self.cloud.trouble('GET', LIST, broken)
            self.assertRaises(errors.BadAnswer, self.ids)
