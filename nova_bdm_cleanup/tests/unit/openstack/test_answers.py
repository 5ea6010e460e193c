# SPDX-License-Identifier: Apache-2.0
"""Answers that do not match the API, which are no answers."""

from __future__ import annotations

import datetime

from nova_bdm_cleanup.openstack import answers
from nova_bdm_cleanup.openstack.errors import BadAnswer
from nova_bdm_cleanup.tests.unit import base


class RecordsTest(base.TestCase):

    def test_record_of_wrong_type_is_refused(self):
        self.assertEqual({'id': 'a'}, answers.record(
            {'volume': {'id': 'a'}}, 'volume'))
        for body in (None, [], 'volume', {}, {'volume': None},
                     {'volume': []}, {'volume': 'a'}):
            self.assertRaises(BadAnswer, answers.record, body, 'volume')

    def test_list_of_wrong_type_is_refused(self):
        self.assertEqual([], answers.records({'volumes': []}, 'volumes'))
        self.assertEqual([{}], answers.records({'volumes': [{}]}, 'volumes'))
        for body in (None, [], 'volumes', {}, {'volumes': None},
                     {'volumes': {}}, {'volumes': ['a']},
                     {'volumes': [{}, None]}):
            self.assertRaises(BadAnswer, answers.records, body, 'volumes')


class FieldsTest(base.TestCase):

    def test_empty_or_missing_text_is_refused(self):
        self.assertEqual('a', answers.text({'id': 'a'}, 'id'))
        for value in (None, '', 5, ['a'], True):
            self.assertRaises(BadAnswer, answers.text, {'id': value}, 'id')
        self.assertRaises(BadAnswer, answers.text, {}, 'id')

    def test_empty_optional_text_is_none(self):
        for record, value in (({'host': 'a'}, 'a'), ({'host': ''}, None),
                              ({'host': None}, None), ({}, None)):
            self.assertEqual(value, answers.optional_text(record, 'host'))
        for odd in (5, ['a'], {}, False):
            self.assertRaises(
                BadAnswer, answers.optional_text, {'host': odd}, 'host')

    def test_missing_mapping_is_empty(self):
        for record, value in (({'metadata': {'a': 'b'}}, {'a': 'b'}),
                              ({'metadata': {}}, {}),
                              ({'metadata': None}, {}), ({}, {})):
            self.assertEqual(value, answers.mapping(record, 'metadata'))
        for odd in (['a', 'b'], 'a', 5):
            self.assertRaises(
                BadAnswer, answers.mapping, {'metadata': odd}, 'metadata')

    def test_moment_has_a_time_zone_or_is_none(self):
        noon = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.timezone.utc)
        for value, moment in (
                ('2026-03-01T12:00:00.000000', noon),
                ('2026-03-01T13:00:00+01:00', noon),
                ('2026-03-01T12:00:00Z', noon),
                ('yesterday', None), ('', None), (None, None)):
            found = answers.moment({'updated_at': value}, 'updated_at')
            self.assertEqual(moment, found)
            self.assertIsNotNone((found or noon).tzinfo)
        self.assertRaises(BadAnswer, answers.moment, {'updated_at': 5},
                          'updated_at')


class ErrorsTest(base.TestCase):

    def test_only_the_apis_own_404_is_not_found(self):
        self.assertTrue(answers.is_not_found(
            {'itemNotFound': {'code': 404, 'message': 'gone'}}))
        for body in (None, '', [], {}, {'itemNotFound': 'gone'},
                     {'error': {'code': 404}}, '<html>404</html>'):
            self.assertFalse(answers.is_not_found(body))

    def test_error_message_is_found_and_cut(self):
        self.assertEqual('no', answers.error_words(
            {'badRequest': {'code': 400, 'message': 'no'}}))
        self.assertEqual(200, len(answers.error_words(
            {'computeFault': {'message': 'x' * 9999}})))
        for body in (None, '<html>503</html>', [], {}, {'fault': 'no'},
                     {'fault': {'message': 5}}):
            self.assertEqual('', answers.error_words(body))


class QuotedTest(base.TestCase):

    def test_nothing_in_an_id_is_taken_for_more(self):
        for odd in ('../volumes/a', 'a?b=c', 'a#b', 'ä/b', 'a b', "a'b"):
            self.assertNotIn('/', answers.quoted(odd))
            self.assertNotIn('?', answers.quoted(odd))
            self.assertNotIn("'", answers.quoted(odd))
        self.assertEqual('0-a_b', answers.quoted('0-a_b'))
