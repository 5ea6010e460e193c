# SPDX-License-Identifier: Apache-2.0
"""The model of the search behaves as Cinder and Nova do.

The same calls are made on both sides, and the states are compared after each.
"""

from __future__ import annotations

from collections.abc import Sequence
import random

from nova_bdm_cleanup.tests.cloud import cinder
from nova_bdm_cleanup.tests.functional import base
from nova_bdm_cleanup.tests.rig import cinder_sequences, nova_sequences

#: Number of random sequences, and of the calls in each.
_SEQUENCE_COUNT, _CALL_COUNT = 8, 30


class CinderTest(base.FunctionalTestCase):

    CLOUD = None

    def compare(self, name: str, calls: Sequence[cinder_sequences.Call]
                ) -> list[str]:
        """Run a sequence on both sides.

        :returns: the calls up to the first difference, and the difference
        """
        model = cinder_sequences.Model()
        real = cinder_sequences.Real(cinder.shared().cinder())
        done = [f'sequence "{name}":']
        for call in calls:
            refusals = model.call(*call), real.call(*call)
            done.append(f'  {" ".join(call)}: {refusals[1] or "done"}')
            volumes = ([v for v in cinder_sequences.VOLUMES if v in call]
                       or cinder_sequences.VOLUMES)
            states = [[(v, side.state(v)) for v in volumes]
                      for side in (model, real)]
            if refusals[0] != refusals[1] or states[0] != states[1]:
                return [*done, f'    model: {refusals[0]} {states[0]}',
                        f'    real:  {refusals[1]} {states[1]}']
        return []

    def test_model_agrees_in_written_sequences(self):
        self.assertEqual('', '\n'.join(
            line for name, calls in cinder_sequences.SEQUENCES.items()
            for line in self.compare(name, calls)))

    def test_model_agrees_in_random_sequences(self):
        rng = random.Random(20261122)
        self.assertEqual('', '\n'.join(
            line for number in range(_SEQUENCE_COUNT)
            for line in self.compare(
                f'random {number}',
                cinder_sequences.random_sequence(rng, _CALL_COUNT))))


class NovaTest(base.FunctionalTestCase):

    CLOUD = {
        'hosts': ('compute1', 'compute2'),
        'nova_options': {'DEFAULT': {
            'shelved_offload_time': 0,
            'resume_guests_state_on_host_boot': True}}}

    def compare(self, name: str, calls: Sequence[nova_sequences.Call]
                ) -> list[str]:
        """Run a sequence on both sides.

        :returns: the calls up to the first difference, and the difference
        """
        model = nova_sequences.Model()
        real = nova_sequences.Real(self.cloud)
        done = [f'sequence "{name}":', '  begins']
        for call in (None, *calls):
            if call is not None:
                done.append('  ' + ' '.join(call))
                model.call(*call)
                real.call(*call)
            here, there = model.state().parts(), real.state().parts()
            if here != there:
                return [*done,
                        *(f'    model: {part}' for part in here
                          if part not in there),
                        *(f'    real:  {part}' for part in there
                          if part not in here)]
        return []

    def test_model_agrees_in_written_sequences(self):
        self.assertEqual('', '\n'.join(
            line for name, calls in nova_sequences.SEQUENCES.items()
            for line in self.compare(name, calls)))
