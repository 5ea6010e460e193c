# SPDX-License-Identifier: Apache-2.0
"""What is counted since the start."""

from __future__ import annotations

import threading

from nova_bdm_cleanup.node.cleanup.tally import Tally
from nova_bdm_cleanup.rules.facts import Reason
from nova_bdm_cleanup.tests.unit import base


class TallyTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.tally = Tally()

    def test_by_reason_and_trigger(self):
        for trigger in ('start', 'start', 'delete'):
            self.tally.removed(Reason.STUCK, trigger)
            self.tally.refused(Reason.TIMED_OUT, trigger, 5)
        self.tally.refused('timed-out', 'delete')
        self.assertEqual({('stuck', 'start'): 2, ('stuck', 'delete'): 1},
                         self.tally.removals)
        self.assertEqual(
            {('timed-out', 'start'): 10, ('timed-out', 'delete'): 6},
            self.tally.refusals)
        self.tally.removals.clear()
        self.assertEqual(2, len(self.tally.removals))
        # As labels have them, whatever an enumeration prints.
        self.assertEqual({str}, {type(reason)
                                 for reason, _ in self.tally.removals})

    def test_looks(self):
        self.tally.looked('start', 0.5)
        self.tally.looked('start', 0.25)
        self.tally.looked('audit', 4.0)
        self.assertEqual({'start': (2, 0.75), 'audit': (1, 4.0)},
                         self.tally.looks)

    def test_threads(self):
        def count():
            for _ in range(2000):
                self.tally.removed(Reason.STUCK, 'start')
                self.tally.looked('start', 1.0)

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual({('stuck', 'start'): 8000}, self.tally.removals)
        self.assertEqual({'start': (8000, 8000.0)}, self.tally.looks)
