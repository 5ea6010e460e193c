# SPDX-License-Identifier: Apache-2.0
"""The search finds what there is to find, and leaves out nothing else.

No cloud is needed, but Nova's modules are.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from unittest import mock

# Nova's harness first, for it may monkey patch what the others import.
from nova_bdm_cleanup.tests.functional import base  # isort: skip

from oslo_config import cfg

from nova_bdm_cleanup.node import options
from nova_bdm_cleanup.tests.simulation import (
    faults,
    movers,
    ports,
    scenarios,
    search,
    story,
)
from nova_bdm_cleanup.tests.simulation.scheduler import Scheduler

#: What there is at the ends of schedules, and the properties that are broken.
Found = tuple[set[object], set[str]]


def _two_count(cloud: movers.Cloud) -> None:
    """Both read, and both write what they have read and one more."""
    world = cloud.world
    world.add_server(scenarios.SERVER)
    done: list[str] = []

    def count(name: str) -> None:
        world.step('reads')
        number = int(world.server(scenarios.SERVER).locked_by or 0)
        world.step('writes')
        world.change_server(scenarios.SERVER, locked_by=str(number + 1))
        done.append(name)
        if len(done) == 2 and not number:
            world.broken('nothing-attached-is-lost', 'one was not counted')

    cloud.begin('one', count, 'one')
    cloud.begin('another', count, 'another')


PLANTED = scenarios.Scenario('planted', 'Two count.', _two_count)


class SearchTest(base.FunctionalTestCase):

    CLOUD = None

    def setUp(self) -> None:
        super().setUp()
        options.register_opts(cfg.CONF)
        # A story switches the logs of the search off again, and they would
        # stay off for the tests that follow.
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

    def find(self, scenario: scenarios.Scenario, bound: search.Bound,
             seen: search.Seen | None) -> Found:
        ends: set[object] = set()
        finish = search._end

        def end(cloud: movers.Cloud, scheduler: Scheduler) -> object:
            ends.add(cloud.world.fingerprint())
            return finish(cloud, scheduler)

        with ports.plugged_in() as stage, \
                mock.patch.object(search, '_end', end):
            broken = {run.broken.name for run in search.schedules(
                stage, scenario, (bound,), seen)
                if run.broken}
        return ends, broken

    def test_planted(self):
        """It takes somebody who comes between."""
        for preemptions, expected in ((0, set()),
                                      (1, {'nothing-attached-is-lost'})):
            _, broken = self.find(PLANTED, search.Bound(preemptions, 0),
                                  search.Seen())
            self.assertEqual(expected, broken)

    def test_nothing_else_is_left_out(self):
        for name in ('reboot-missing', 'start-available',
                     'reboot-available-stranger-takes'):
            scenario = scenarios.SCENARIOS[name]
            for bound in (search.Bound(1, 0), search.Bound(0, 1),
                          search.Bound(2, 0)):
                with self.subTest(scenario=name, bound=bound):
                    self.assertEqual(
                        self.find(scenario, bound, None),
                        self.find(scenario, bound, search.Seen()))

    def test_story_again(self):
        """What a story says to type tells the same story."""
        with ports.plugged_in() as stage:
            run = next(run for run in search.schedules(
                stage, PLANTED, (search.Bound(1, 0),), None)
                if run.broken)
            told = story.tell(stage, PLANTED, run.choices)
            self.assertIn('broken: nothing-attached-is-lost', told)
            name, choices = re.search(
                r'--replay (\S+) (\S+)$', told).groups()
            self.assertEqual('planted', name)
            self.assertEqual(told, story.tell(stage, PLANTED,
                                              story.read(choices)))

    def test_faults(self):
        """What is found otherwise, or not at all, is not found."""
        fault = faults.FAULTS['row-before-disconnect']
        (actions, name, replacement), = fault.replaced

        def fail(*_, **__):
            raise TypeError('a fault that is wrong itself')

        for change, problem in (
                ({}, r'$'),
                ({'property': 'healthy-disks-stay'},
                 'row-before-disconnect: expected healthy-disks-stay, found '
                 'no-row-before-its-device: '),
                ({'replaced': [(actions, name, fail)]},
                 '.* found nothing-is-wrong-with-the-code: '),
                ({'replaced': [(actions, name, lambda original, *args, **named:
                                original(*args, **named))]},
                 '.* no-row-before-its-device holds all the same'),
                ({'replaced': [(actions, '_gone', replacement)]},
                 '.* there is no _gone any more')):
            with self.subTest(problem):
                found = faults.hunt(dataclasses.replace(fault, **change),
                                    lambda _: (search.Bound(0, 0),))
                self.assertRegex(found.problem, '^' + problem)
