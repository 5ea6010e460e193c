# SPDX-License-Identifier: Apache-2.0
"""The effect of a typo, or of a removed option.

The functional tests cover the effect in a real nova-compute.
"""

from __future__ import annotations

import json
import os
import re

import fixtures
from oslo_upgradecheck.upgradecheck import Code
import testscenarios

from nova_bdm_cleanup.admin import check
from nova_bdm_cleanup.node import options, startup
from nova_bdm_cleanup.tests.unit import running
from nova_bdm_cleanup.tests.unit.admin import base
from nova_bdm_cleanup.tests.unit.node.test_options import ConfTestCase

load_tests = testscenarios.load_tests_apply_scenarios


class BadInputTest(base.CommandTest, ConfTestCase):
    """The same sentence in every place that shows it."""

    #: The line in the file, and the sentence about it.
    scenarios = [(line, {'line': line, 'said': said}) for line, said in (
        ('mode = obsrve', 'mode = obsrve in {}: it must be one of off, '
         'observe, enforce; did you mean observe?'),
        ('modes = observe', 'modes in {}: there is no such option; did you '
         'mean mode?'),
        ('trigers = start', 'trigers in {}: there is no such option; did you '
         'mean triggers?'),
        ('colour = green', 'colour in {}: there is no such option; there are '
         + ', '.join(option.name for option in options.OPTS)),
        ('triggers = strat', 'triggers = strat in {}: strat is none of start, '
         'host_boot, move, delete, all; did you mean start?'),
        ('remove = all', 'remove = all in {}: all is none of missing, '
         'available, attached-elsewhere, never-attached, duplicate, stale, '
         'created'),
        ('max_removals = -1', 'max_removals = -1 in {}: it must be a whole '
         'number of 1 or more'))]

    def setUp(self) -> None:
        super().setUp()
        lines = ['store = ' + self.path, self.line]
        if not self.line.startswith('mode ='):
            lines.append('mode = enforce')
        store = self.path
        self.configured = self.conf(*lines)
        self.config, self.path = self.path, store
        self.problem = '[bdm_cleanup] ' + self.said.format(self.config)

    def test_start_logs_the_problem(self) -> None:
        startup.start(self.configured)
        self.assertEqual(
            ['bdm-cleanup is off; Nova is left as it is: ' + self.problem],
            self.log.output.splitlines())

    def test_required_start_raises_the_problem(self) -> None:
        self.configured.set_override('required', True, group='bdm_cleanup')
        error = self.assertRaises(
            startup.StartRefused, startup.start, self.configured)
        self.assertIn(self.problem, str(error))

    def test_check_prints_the_problem(self) -> None:
        result = check._guarded(check.Checks.options)(
            check.Checks(self.configured))
        self.assertEqual((Code.FAILURE, self.problem),
                         (result.code, result.details))

    def status(self, state: str) -> dict[str, str]:
        """Return the output of the command, by title."""
        self.useFixture(fixtures.EnvironmentVariable('COLUMNS', '900'))
        arguments = 'status', '--config-file', self.config
        found = json.loads(self.call(*arguments, '--json')[1])
        self.assertEqual((state, [self.problem]),
                         (found['state'], found['option_problems']))
        return dict(re.split('  +', line, maxsplit=1)
                    for line in self.call(*arguments)[1].splitlines())

    def test_status_prints_the_problem(self) -> None:
        """Check that the state of the process makes no difference."""
        table = self.status('not-active')
        self.assertEqual(self.problem, table['Options'])
        self.assertEqual(
            'not-active: not running yet in a nova-compute named %s; it stays '
            'off because of its options' % table['Host'], table['State'])
        host = table['Host']
        running.start(self.path, host)
        self.assertEqual(self.problem, self.status('active')['Options'])
        running.end(self.path, host)
        self.assertIn('it stays off because of its options',
                      self.status('not-active')['State'])


class CommandTest(base.CommandTest):

    def test_status_does_not_read_a_wrong_store(self) -> None:
        """Check that the command does not read the store."""
        config = self.write('[DEFAULT]\nstate_path = %s\n[bdm_cleanup]\n'
                            'store = $nowhere/x\n' % self.home)
        code, out, err = self.call('status', '--config-file', config)
        self.assertEqual((1, ''), (code, err))
        self.assertIn('store = $nowhere/x in ' + config, out)
        self.assertFalse(os.path.exists(self.path))
