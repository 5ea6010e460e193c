# SPDX-License-Identifier: Apache-2.0
"""The search finds each violation within a bound.

It skips only equivalent schedules, and needs Nova's modules, but no cloud.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from unittest import mock

# Import Nova's harness first: it may monkey patch the others' imports.
from nova_bdm_cleanup.tests.functional import base  # isort: skip

from oslo_config import cfg

from nova_bdm_cleanup.node import options
from nova_bdm_cleanup.tests.simulation import (
    faults,
    move_operations,
    ports,
    scenarios,
    search,
    trace,
)
from nova_bdm_cleanup.tests.simulation.scheduler import Scheduler

#: Final states of schedules, and the violated properties.
Found = tuple[set[object], set[str]]


def _start_two_counters(cloud: move_operations.Cloud) -> None:
    """Start two actors that each increment a number, not atomically."""
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
            world.violated('no-attached-volume-lost', 'an update is lost')

    cloud.begin('one', count, 'one')
    cloud.begin('another', count, 'another')


LOST_UPDATE = scenarios.Scenario(
    'lost-update', 'Two actors increment a number.', _start_two_counters)


class SearchTest(base.FunctionalTestCase):

    CLOUD = None

    def setUp(self) -> None:
        super().setUp()
        options.register_opts(cfg.CONF)
        # A trace disables logging again at its end, which would affect the
        # tests that follow.
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

    def find(self, scenario: scenarios.Scenario, bound: search.Bound,
             reached: search.ReachedStates | None) -> Found:
        ends: set[object] = set()
        finish = search._run_final_checks

        def end(cloud: move_operations.Cloud, scheduler: Scheduler) -> object:
            ends.add(cloud.world.fingerprint())
            return finish(cloud, scheduler)

        with ports.installed_plugin() as harness, \
                mock.patch.object(search, '_run_final_checks', end):
            violation = {run.violation.name for run in search.schedules(
                harness, scenario, (bound,), reached)
                if run.violation}
        return ends, violation

    def test_lost_update_needs_a_preemption(self):
        for preemptions, expected in ((0, set()),
                                      (1, {'no-attached-volume-lost'})):
            _, violation = self.find(LOST_UPDATE, search.Bound(preemptions, 0),
                                     search.ReachedStates())
            self.assertEqual(expected, violation)

    def test_only_equivalent_schedules_are_skipped(self):
        one, two, kill = (search.Bound(1, 0), search.Bound(2, 0),
                          search.Bound(0, 1))
        for name, bounds in (
                ('reboot-missing', (one, kill, two)),
                ('start-available', (one, kill, two)),
                # Two preemptions take a minute here.
                ('reboot-available-remote-takes', (one, kill))):
            scenario = scenarios.SCENARIOS[name]
            for bound in bounds:
                with self.subTest(scenario=name, bound=bound):
                    self.assertEqual(
                        self.find(scenario, bound, None),
                        self.find(scenario, bound, search.ReachedStates()))

    def test_replay_prints_the_same_trace(self):
        with ports.installed_plugin() as harness:
            run = next(run for run in search.schedules(
                harness, LOST_UPDATE, (search.Bound(1, 0),), None)
                if run.violation)
            text = trace.render(harness, LOST_UPDATE, run.choices)
            self.assertIn('violated: no-attached-volume-lost', text)
            name, choices = re.search(
                r'--replay (\S+) (\S+)$', text).groups()
            self.assertEqual('lost-update', name)
            self.assertEqual(text, trace.render(harness, LOST_UPDATE,
                                                trace.parse_choices(choices)))

    def test_fault_must_violate_its_property(self):
        """Reject faults found by another property, an exception or not."""
        fault = faults.FAULTS['cinder-before-row']
        (actions, name, replacement), = fault.replaced

        def fail(*_, **__):
            raise TypeError('an error of the fault itself')

        for change, problem in (
                ({}, r'$'),
                ({'property': 'healthy-disks-stay'},
                 'cinder-before-row: expected healthy-disks-stay, found '
                 'attachment-last: '),
                ({'replaced': [(actions, name, fail)]},
                 '.* found no-unexpected-exception: '),
                ({'replaced': [(actions, name, lambda original, *args, **named:
                                original(*args, **named))]},
                 '.* attachment-last is not violated'),
                ({'replaced': [(actions, '_gone', replacement)]},
                 '.* _gone no longer exists')):
            with self.subTest(problem):
                found = faults.search_for(dataclasses.replace(fault, **change),
                                          lambda _: (search.Bound(0, 0),))
                self.assertRegex(found.problem, '^' + problem)
