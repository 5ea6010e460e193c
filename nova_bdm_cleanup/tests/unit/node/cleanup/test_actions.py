# SPDX-License-Identifier: Apache-2.0
"""The steps of one plan, one by one.

Whole plans, and the state after failures and crashes, are in test_cleaner.
"""

from __future__ import annotations

import os
import sys

import fixtures
import testscenarios

from nova_bdm_cleanup.node.cleanup import actions, log_lines, triggers
from nova_bdm_cleanup.node.cleanup.ports import RebootLost, ShuttingDown
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.deadline import Deadline, TimedOut
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Action, Claimant
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import base, make
from nova_bdm_cleanup.tests.unit.node.cleanup import fakes

load_tests = testscenarios.load_tests_apply_scenarios


class ReasonTest(base.TestCase):
    """The reason code that is logged for each kind of failure."""

    scenarios = [(type(error).__name__, {'error': error, 'reason': reason})
                 for error, reason in (
        (TimedOut(), Reason.TIMED_OUT),
        (RebootLost(), Reason.REBOOT_LOST),
        (ShuttingDown(), Reason.SHUTTING_DOWN),
        (errors.ProjectHidden(), Reason.CINDER_UNKNOWN),
        (errors.ServiceTokenRequired(), Reason.SERVICE_TOKEN_REQUIRED),
        (errors.Unreachable(), Reason.CINDER_UNKNOWN),
        (errors.Refused(), Reason.CINDER_UNKNOWN),
        (errors.BadAnswer(), Reason.CINDER_UNKNOWN),
        (actions.NotBegun(), Reason.STEP_FAILED),
        (KeyError('a bug'), Reason.STEP_FAILED))]

    def test_error_has_its_reason_code(self):
        self.assertIs(self.reason, actions.reason_of(
            self.error, triggers.HARD_REBOOT))


class CountingTest(base.TestCase):
    """The claims of rows that Cinder is asked about."""

    def counted(self, claimant, attachment_id):
        """Return whether a row claims a disk, although Cinder denies it."""
        world = fakes.World([], [], [])
        world.is_denied = True
        disk = make.bdm()
        claims = actions.counting(
            fakes.Cinder(world), make.HOST, [disk],
            facts.Claims({disk.uuid: (make.claim(
                claimant, volume_id='volume-1',
                attachment_id=attachment_id),)}))
        return bool(claims.others[disk.uuid])

    def test_row_that_cinder_denies_claims_nothing(self):
        for claimant in (Claimant.ROW, Claimant.OWN_ROW):
            self.assertFalse(self.counted(claimant, 'attachment-2'))

    def test_rows_of_one_attachment_are_denied_alike(self):
        """Otherwise the driver would be given the disk by both."""
        self.assertTrue(self.counted(Claimant.OWN_ROW, 'attachment-1'))


class ActionsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(base.NoSyncing())
        self.world = fakes.World(
            [make.root(), make.bdm()], [make.volume(status='available')],
            [make.attachment()])
        journal = self.world.journal(os.path.join(self.tempdir(), 'journal'))
        self.actions = actions.Actions(
            fakes.Host(self.world), fakes.Cinder(self.world),
            journal.begin({}, [], server=make.SERVER),
            log_lines.LogLines(None, 'req-1', triggers.HARD_REBOOT),
            triggers.HARD_REBOOT, Deadline(60), make.HOST, 1, ('a', 'b'))
        self.world.timeline.clear()
        self.finding = facts.Finding(
            Reason.VOLUME_AVAILABLE, 'a sentence', bdm=make.bdm(),
            action=Action.REMOVE, dependent=(make.attachment(),))

    def test_a_failure_is_logged_without_its_exception(self):
        # While an exception is handled, oslo.log appends it to a warning.
        handled = []
        self.useFixture(fixtures.MockPatchObject(
            log_lines.LogLines, 'failed',
            lambda *_: handled.append(sys.exc_info()[0])))
        self.world.failing['power-off'] = RuntimeError('no libvirt')
        self.assertRaises(actions.StepFailed, self.actions.power_off)
        self.assertEqual([None], handled)

    def test_removal_is_logged_before_its_first_step(self):
        was_logged = []
        self.world.meanwhile['claims'] = (
            lambda: was_logged.append('event=removing' in self.log.output))
        self.actions.power_off()
        self.actions.carry_out(self.finding)
        self.assertEqual([True], was_logged)

    def test_a_crash_is_not_a_failure(self):
        self.actions.power_off()
        self.world.meanwhile['disconnect'] = sys.exit
        self.assertRaises(
            SystemExit, self.actions.carry_out, self.finding)
        self.assertNotIn('event=failed', self.log.output)
