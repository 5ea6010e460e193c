# SPDX-License-Identifier: Apache-2.0
"""Whether it is the right Cinder."""

from __future__ import annotations

from nova_bdm_cleanup.cleanup import witness
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules.facts import WitnessAnswer
from nova_bdm_cleanup.tests.unit import base


class WitnessTest(base.TestCase):

    def ask(self, volumes, known=()):
        """The answer, and how many volumes were asked for."""
        asked = []

        def knows_any(volume_ids):
            asked.extend(volume_ids)
            return not set(known).isdisjoint(volume_ids)

        return witness.ask(iter(volumes), knows_any), len(asked)

    def test_none_to_ask_for(self):
        self.assertEqual((WitnessAnswer.NONE_EXISTS, 0), self.ask([]))

    def test_one_is_known(self):
        self.assertEqual((WitnessAnswer.KNOWN, 3), self.ask('abc', 'c'))

    def test_none_is_known(self):
        self.assertEqual((WitnessAnswer.UNKNOWN, 3), self.ask('abc', 'd'))

    def test_so_many_are_asked_for_at_most(self):
        self.assertEqual((WitnessAnswer.UNKNOWN, 180),
                         self.ask(['a'] * 180 + ['b'], 'b'))

    def test_no_answer(self):
        def knows_any(volume_ids):
            raise errors.Unreachable('no')

        self.assertRaises(errors.Unreachable, witness.ask, ['a'], knows_any)
