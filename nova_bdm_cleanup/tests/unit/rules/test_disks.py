# SPDX-License-Identifier: Apache-2.0
"""The fate of a disk: the table, and every world of a healthy disk."""

from __future__ import annotations

import dataclasses
import datetime
import itertools

import testscenarios

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.rules import addresses, disks, facts, table
from nova_bdm_cleanup.rules.disks import Fate
from nova_bdm_cleanup.rules.facts import (
    Action,
    Claimant,
    Claims,
    Finding,
    InCinder,
    Source,
)
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import base, make

load_tests = testscenarios.load_tests_apply_scenarios

YOUNG = datetime.timedelta(seconds=3)


def finding(in_cinder=InCinder.ATTACHED, **values):
    return Finding(Reason.STATUS_CONTRADICTION, 'why', make.bdm(),
                   in_cinder=in_cinder, **values)


#: id, the finding, the fate of the disk.
FATES = (
    ('attached', finding(), Fate.GIVEN),
    *(('missing, %s' % values, finding(InCinder.MISSING, **values),
       Fate.NOT_CONNECTED)
      for values in ({}, {'is_root': True}, {'settles_in': YOUNG},
                     {'withheld': Reason.OVER_LIMIT}, {'address': 'taken'})),
    *(('half swapped, %s' % values, dataclasses.replace(
        finding(**values), reason=Reason.SWAP_INTERRUPTED), expected)
      for values, expected in (
          ({}, Fate.NOT_CONNECTED), ({'is_root': True}, Fate.NOT_CONNECTED),
          ({'was_open': True}, Fate.GIVEN),
          ({'was_open': True, 'address': 'taken'}, Fate.ANOTHERS),
          ({'guest_had': Source(attachment_id='attachment-1')}, Fate.GIVEN),
          ({'guest_had': Source(attachment_id='attachment-2')},
           Fate.NOT_CONNECTED),
          # What it had open at the address is not what it had in its place.
          ({'guest_had': Source(attachment_id=''), 'was_open': True},
           Fate.NOT_CONNECTED),
          ({'action': Action.RECONNECT}, Fate.GIVEN),
          ({'action': Action.RECONNECT, 'withheld': Reason.STEP_FAILED},
           Fate.NOT_CONNECTED))),
    *(('of an address that another has, %s %s' % (where, values),
       finding(where, address='taken', **values), Fate.ANOTHERS)
      for where in InCinder if where is not InCinder.MISSING
      for values in ({}, {'is_root': True}, {'settles_in': YOUNG},
                     {'withheld': Reason.OVER_LIMIT})),
    *(('attached to another server, %s' % values,
       finding(InCinder.ELSEWHERE, **values), expected)
      for values, expected in (
          ({}, Fate.NOT_CONNECTED), ({'is_root': True}, Fate.NOT_CONNECTED),
          ({'withheld': Reason.OVER_LIMIT}, Fate.NOT_CONNECTED),
          ({'settles_in': YOUNG}, Fate.GIVEN))),
    *(('not attached, %s' % values,
       finding(InCinder.UNATTACHED, **values), expected)
      for values, expected in (
          ({}, Fate.NOT_CONNECTED), ({'is_root': True}, Fate.GIVEN),
          ({'settles_in': YOUNG}, Fate.GIVEN))),
    *(('not attached, %s' % reason,
       finding(InCinder.UNATTACHED, withheld=reason, action=Action.REMOVE),
       Fate.GIVEN if reason is Reason.OVER_LIMIT else Fate.NOT_CONNECTED)
      for reason in Reason),
)


class FateTest(base.TestCase):

    scenarios = base.scenarios(FATES, 'finding', 'expected')

    def test_fate_of_the_row(self):
        self.assertIs(self.expected, disks.fate_of(self.finding))
        words = disks.effect_of(self.finding)
        self.assertIn('with the disk' if self.expected is Fate.GIVEN
                      else 'without ', words)
        self.assertEqual(
            {} if self.expected is Fate.GIVEN else {'bdm-1': self.finding},
            rules.not_given(facts.Plan((self.finding,))))


class CoverageTest(base.TestCase):

    def test_every_row_has_a_test_above(self):
        tested = {id(table.first(disks.DISKS.rows, each))
                  for _, each, _ in FATES}
        self.assertEqual([], [r.cell for r in disks.DISKS.rows
                              if id(r) not in tested])

    def test_an_attachment_is_no_disk(self):
        self.assertEqual({}, rules.not_given(facts.Plan((dataclasses.replace(
            finding(InCinder.MISSING), bdm=None,
            attachment=make.attachment()),))))


@dataclasses.dataclass(frozen=True)
class Healthy:
    """A healthy disk, and what else there is on its host."""

    #: What claims its address, and counts; None: nothing.
    claimant: Claimant | None
    #: The guest of the server had it open when the operation began.
    was_open: bool
    #: Its volume is multiattach, and another server of this host has it.
    is_shared: bool
    #: Its records are younger than ``settle_time``.
    is_young: bool
    #: Cinder does not answer.
    is_silent: bool

    @property
    def plan(self) -> facts.Plan:
        when = make.ago(1 if self.is_young else 86400)
        bdm = make.bdm(created_at=when, updated_at=when,
                       is_multiattach=self.is_shared)
        claims = Claims(
            {'bdm-1': (make.claim(self.claimant),)} if self.claimant else {},
            frozenset([bdm.uuid] if self.was_open else []))
        if self.is_silent:
            return addresses.without_cinder(
                [bdm], claims, Reason.CINDER_UNKNOWN)
        entries = [make.attached_to()] + [
            make.attached_to(make.OTHER_SERVER, 'attachment-2')
        ] * self.is_shared
        return make.judge(make.snapshot(
            [bdm], [make.volume(updated_at=when, attached_to=tuple(entries),
                                multiattach=self.is_shared)],
            [make.attachment(attached_at=when)]), claims)

    @property
    def is_given(self) -> bool:
        return not rules.not_given(self.plan)


def worlds():
    """Return every world of a healthy disk.

    The claims are those that count: a row that Cinder denies, and the row of
    another server that shares the volume, claim nothing.
    """
    return [Healthy(*each) for each in itertools.product(
        (None, *Claimant), *[(True, False)] * 4)]


class HealthyTest(base.TestCase):
    """Every world of a healthy disk, and those in which it is left out."""

    #: What claims the address, and whether the guest had it open.
    LEFT_OUT = frozenset((
        # Another guest has it, or may get it.
        (Claimant.GUEST, True), (Claimant.GUEST, False),
        (Claimant.OPERATION, True), (Claimant.OPERATION, False),
        (Claimant.ANY_GUEST, True), (Claimant.ANY_GUEST, False),
        # The server itself would get one disk twice.
        (Claimant.OWN_ROW, True), (Claimant.OWN_ROW, False),
        # The guest was off, or had it not.
        (Claimant.ROW, False), (Claimant.ANY_ROW, False),
    ))

    def test_it_is_left_out_in_these_worlds_only(self):
        self.assertEqual(112, len(worlds()))
        for world in worlds():
            self.assertEqual(
                (world.claimant, world.was_open) not in self.LEFT_OUT,
                world.is_given, world)

    def test_it_is_never_removed(self):
        for world in worlds():
            finding, = world.plan.findings
            self.assertEqual(
                (Action.KEEP, None),
                (finding.action, finding.withheld), world)
            self.assertFalse(world.plan.settles_in, world)
