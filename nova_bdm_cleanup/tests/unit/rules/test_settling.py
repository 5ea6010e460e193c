# SPDX-License-Identifier: Apache-2.0
"""The age of what a removal rests on."""

from __future__ import annotations

import dataclasses
import datetime

import testscenarios

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.tests.unit import base, make

load_tests = testscenarios.load_tests_apply_scenarios

#: Three seconds old: seven more until it is settled.
YOUNG = make.ago(3)
OLD = make.ago(86400)

BDM = make.bdm(created_at=OLD, updated_at=OLD)
AVAILABLE = make.volume(status='available', updated_at=OLD)
OWN = make.attachment(attached_at=OLD)
#: Of a second disk, which is healthy.
OTHER = (make.bdm(uuid='bdm-2', volume_id='volume-2', updated_at=YOUNG,
                  attachment_id='attachment-2'),
         make.volume(id='volume-2', updated_at=YOUNG),
         make.attachment(id='attachment-2', volume_id='volume-2',
                         attached_at=YOUNG))


def at(moment, attachment_id='attachment-1', server=make.SERVER):
    return dataclasses.replace(
        make.attached_to(server, attachment_id), attached_at=moment)


def seen(bdm=BDM, volume=AVAILABLE, attachments=(OWN,)):
    """Return a look at a dangling disk beside a healthy one."""
    return make.snapshot(
        [bdm, OTHER[0]], filter(None, [volume, OTHER[1]]),
        [*attachments, OTHER[2]], missing=[] if volume else ['volume-1'])


def young(record, **values):
    return dataclasses.replace(record, **values)


class UnsettledTest(base.TestCase):

    #: Name, snapshot, and seconds until it is settled.
    scenarios = [(name, {'seen': look, 'seconds': seconds})
                 for name, look, seconds in (
        ('everything of the dangling disk is old', seen(), 0),
        ('the row was created', seen(young(BDM, created_at=YOUNG)), 7),
        ('the row was updated', seen(young(BDM, updated_at=YOUNG)), 7),
        ('the row was never updated', seen(young(BDM, updated_at=None)), 0),
        ('the volume was updated',
         seen(volume=young(AVAILABLE, updated_at=YOUNG)), 7),
        ('the volume is missing', seen(volume=None, attachments=()), 0),
        ('the volume is missing, and the row is young',
         seen(young(BDM, updated_at=YOUNG), None, ()), 7),
        ('its attachment was connected',
         seen(attachments=[young(OWN, attached_at=YOUNG)]), 7),
        ('only the list of the volume shows that', seen(
            volume=young(AVAILABLE, attached_to=(at(YOUNG),)),
            attachments=[young(OWN, attached_at=None)]), 7),
        ('an attachment of unknown age', seen(
            attachments=[young(OWN, attached_at=None, status='reserved')]), 0),
        ('a clock is ahead',
         seen(volume=young(AVAILABLE, updated_at=make.ago(-60))), 10),
        ('the youngest record counts', seen(
            young(BDM, updated_at=make.ago(8)),
            young(AVAILABLE, updated_at=YOUNG)), 7),
        ('attached to another server a moment ago', seen(
            volume=make.volume(updated_at=OLD, attached_to=(
                at(YOUNG, 'another', make.OTHER_SERVER),)), attachments=()),
         0),
        ('a stale attachment', make.snapshot(
            [], [make.volume(updated_at=OLD)],
            [young(OWN, attached_at=YOUNG)]), 7),
        ('a second row of the volume', make.snapshot(
            [BDM, young(BDM, uuid='bdm-2', updated_at=YOUNG,
                        device_name='/dev/vdc')], [AVAILABLE], [OWN]), 7),
    )]

    def test_removal_waits_the_seconds_of_the_row(self):
        policy = facts.Policy()
        plan = rules.decide(self.seen, policy, make.NOW)
        self.assertTrue(plan.due)
        self.assertEqual(
            datetime.timedelta(seconds=self.seconds),
            max(rules.unsettled_for(
                plan, self.seen, policy, make.NOW).values(),
                default=datetime.timedelta(0)))


class NothingIsDueTest(base.TestCase):

    def test_nothing_is_waited_for(self):
        policy = facts.Policy()
        for look in (
                seen(volume=make.volume(updated_at=YOUNG)),
                seen(volume=make.volume(status='detaching',
                                        updated_at=YOUNG))):
            plan = rules.decide(look, policy, make.NOW)
            self.assertEqual((), plan.due)
            self.assertFalse(
                rules.unsettled_for(plan, look, policy, make.NOW))

    def test_a_withheld_removal_is_not_waited_for(self):
        look = seen(volume=young(AVAILABLE, updated_at=YOUNG))
        policy = facts.Policy(remove=frozenset())
        plan = rules.decide(look, policy, make.NOW)
        self.assertFalse(rules.unsettled_for(plan, look, policy, make.NOW))

    def test_causal_reads_need_no_wait(self):
        look = seen(volume=young(AVAILABLE, updated_at=YOUNG))
        policy = facts.Policy(settle_time=datetime.timedelta(0))
        plan = rules.decide(look, policy, make.NOW)
        self.assertTrue(plan.due)
        self.assertFalse(rules.unsettled_for(plan, look, policy, make.NOW))
