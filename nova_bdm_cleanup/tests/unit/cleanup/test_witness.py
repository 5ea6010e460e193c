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
"""Whether it is the right Cinder."""

from __future__ import annotations

from nova_bdm_cleanup import errors
from nova_bdm_cleanup.cleanup import witness
from nova_bdm_cleanup.model import WitnessAnswer
from nova_bdm_cleanup.tests.unit import base


class WitnessTest(base.TestCase):

    def ask(self, portions, known=()):
        """The answer, and how many portions were asked for."""
        asked = []

        def knows_any(portion):
            asked.append(portion)
            return not set(known).isdisjoint(portion)

        return witness.ask(iter(portions), knows_any), len(asked)

    def test_none_to_ask_for(self):
        self.assertEqual((WitnessAnswer.NONE_EXISTS, 0), self.ask([]))

    def test_the_first_that_is_known_is_enough(self):
        portions = [['a'], ['b', 'c'], ['d']]
        for known, asked in (('a', 1), ('c', 2), ('d', 3)):
            self.assertEqual((WitnessAnswer.KNOWN, asked),
                             self.ask(portions, known))

    def test_none_is_known(self):
        for number in (1, 2, 3):
            self.assertEqual((WitnessAnswer.REFUTED, number),
                             self.ask([['a']] * number))

    def test_no_more_than_three_are_asked_for(self):
        self.assertEqual((WitnessAnswer.UNPROVED, 3),
                         self.ask([['a']] * 3 + [['b']], 'b'))

    def test_no_answer(self):
        def knows_any(portion):
            raise errors.Unreachable('no')

        self.assertRaises(errors.Unreachable, witness.ask, [['a']],
                          knows_any)
