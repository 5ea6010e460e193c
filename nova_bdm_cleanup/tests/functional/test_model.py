# SPDX-License-Identifier: Apache-2.0
"""The model that the search works on does what Cinder and Nova do.

The same calls are made on both sides, and what there is is compared after
each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
import random

from nova_bdm_cleanup.tests.cloud import cinder
from nova_bdm_cleanup.tests.functional import (
    base,
    scripts_of_cinder,
    scripts_of_nova,
)

#: So many scripts are drawn, of so many calls.
_DRAWN, _LENGTH = 8, 30


class CinderTest(base.FunctionalTestCase):

    CLOUD = None

    def compare(self, name: str, calls: Sequence[scripts_of_cinder.Call]
                ) -> list[str]:
        """Play a script on both sides.

        :returns: the first difference, and what led to it
        """
        model = scripts_of_cinder.Model()
        real = scripts_of_cinder.Real(cinder.shared().cinder())
        done = [f'script "{name}":']
        for call in calls:
            refusals = model.call(*call), real.call(*call)
            done.append(f'  {" ".join(call)}: {refusals[1] or "done"}')
            volumes = ([v for v in scripts_of_cinder.VOLUMES if v in call]
                       or scripts_of_cinder.VOLUMES)
            states = [[(v, side.state(v)) for v in volumes]
                      for side in (model, real)]
            if refusals[0] != refusals[1] or states[0] != states[1]:
                return [*done, f'    model: {refusals[0]} {states[0]}',
                        f'    real:  {refusals[1]} {states[1]}']
        return []

    def test_scripts(self):
        self.assertEqual('', '\n'.join(
            line for name, calls in scripts_of_cinder.SCRIPTS.items()
            for line in self.compare(name, calls)))

    def test_drawn(self):
        dice = random.Random(20261122)
        self.assertEqual('', '\n'.join(
            line for number in range(_DRAWN)
            for line in self.compare(f'drawn {number}',
                                     scripts_of_cinder.drawn(dice, _LENGTH))))


class NovaTest(base.FunctionalTestCase):

    CLOUD = {
        'hosts': ('compute1', 'compute2'),
        'nova_options': {'DEFAULT': {
            'shelved_offload_time': 0,
            'resume_guests_state_on_host_boot': True}}}

    def compare(self, name: str, calls: Sequence[scripts_of_nova.Call]
                ) -> list[str]:
        """Play a script on both sides.

        :returns: the first difference, and what led to it
        """
        model = scripts_of_nova.Model()
        real = scripts_of_nova.Real(self.cloud)
        done = [f'script "{name}":', '  begins']
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

    def test_scripts(self):
        self.assertEqual('', '\n'.join(
            line for name, calls in scripts_of_nova.SCRIPTS.items()
            for line in self.compare(name, calls)))
