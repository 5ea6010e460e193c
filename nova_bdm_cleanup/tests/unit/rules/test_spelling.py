# SPDX-License-Identifier: Apache-2.0
"""One form for ids, names of hosts and names of devices."""

from __future__ import annotations

import hypothesis
from hypothesis import strategies as st
from oslo_utils import uuidutils

from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.tests.unit import base, worlds

UUID = '6f1c7d2e-9b3a-4c58-a0de-5b7f1e2c3d4a'


@st.composite
def spellings(draw, canonical=UUID):
    """Draw an id as a client may write it."""
    text = draw(st.sampled_from((canonical, canonical.replace('-', ''))))
    text = draw(st.sampled_from((str, str.upper, str.title)))(text)
    return draw(st.sampled_from(
        ('%s', '{%s}', 'urn:uuid:%s', '{urn:uuid:%s}', 'uuid:%s'))) % text


class IdentifierTest(base.TestCase):

    @worlds.profile()
    @hypothesis.given(spellings())
    def test_every_spelling_is_the_same_id(self, text):
        # Values that Cinder's schema of an attachment accepts.
        self.assertTrue(uuidutils.is_uuid_like(text))
        self.assertEqual(UUID, spelling.identifier(text))

    @worlds.profile()
    @hypothesis.given(st.one_of(st.text(), st.text('{}-_ 0123456789abcdefAF:'),
                                st.text('0123456789abcdef-', min_size=31,
                                        max_size=37)))
    def test_text_that_is_no_uuid_stays(self, text):
        if not uuidutils.is_uuid_like(text):
            self.assertEqual(text, spelling.identifier(text))

    def test_more_than_python_takes_is_not_taken(self):
        for text in ('', 'server-1', UUID + ' ', ' ' + UUID, 'ghost',
                     UUID.replace('6f', '6\uff46'), '0x' + '1' * 30,
                     '1_' * 16, UUID + '\n', UUID[:-1], UUID + '0'):
            self.assertEqual(text, spelling.identifier(text))

    def test_canonical_id_is_returned_itself(self):
        self.assertIs(UUID, spelling.identifier(UUID))

    def test_the_id_of_a_project_has_no_dashes(self):
        self.assertEqual(spelling.identifier(UUID),
                         spelling.identifier(UUID.replace('-', '')))

    def test_ids_are_compared_in_any_spelling(self):
        for one, other in ((UUID, UUID), (UUID.upper(), UUID),
                           (UUID, UUID.replace('-', '')),
                           ('project', 'project')):
            self.assertTrue(spelling.is_same(one, other))
        for one, other in ((UUID, UUID[:-1] + 'b'), ('project', 'Project'),
                           (UUID, ''), ('', 'project')):
            self.assertFalse(spelling.is_same(one, other))

    def test_none_stays_none(self):
        self.assertIsNone(spelling.optional(None))
        self.assertEqual(UUID, spelling.optional(UUID.upper()))


class NamesTest(base.TestCase):

    def test_ids_equal_in_a_collation_fold_alike(self):
        for text in (UUID + '  ', UUID.upper(), UUID.replace('a', '\xe1'),
                     UUID.replace('6f', '6\uff46')):
            self.assertEqual(spelling.folded(UUID), spelling.folded(text))
        self.assertNotEqual(spelling.folded(UUID),
                            spelling.folded(UUID[:-1] + 'b'))

    def test_host_name_is_lower_case(self):
        self.assertEqual('compute-1.example', spelling.host(
            'Compute-1.EXAMPLE'))
        self.assertIsNone(spelling.host(None))

    def test_host_is_found_among_others(self):
        self.assertTrue(spelling.is_among('Compute-1', ['', 'compute-1']))
        for hosts in ([], ['compute-2', 'compute-3']):
            self.assertFalse(spelling.is_among('compute-1', hosts))

    def test_a_host_is_the_same_with_and_without_its_domain(self):
        for one, other, is_same in (
                ('compute-1', 'Compute-1', True),
                ('compute-1', 'compute-1.example.org', True),
                ('compute-1.example.org', 'COMPUTE-1', True),
                ('compute-1.example.org', 'compute-1.Example.org', True),
                ('compute-1', 'compute-10', False),
                ('compute-1', 'compute-2.example.org', False),
                # Two domains.
                ('compute-1.example', 'compute-1.example.org', False),
                ('', 'compute-1', False)):
            self.assertIs(is_same, spelling.is_same_host(one, other))

    def test_device_name_has_no_path(self):
        for name in ('/dev/vdb', 'vdb', '/dev/VDB'):
            self.assertEqual('vdb', spelling.device(name))
        self.assertEqual('', spelling.device(None))
