# SPDX-License-Identifier: Apache-2.0
"""The age of what a verdict against a disk rests on."""

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

    def test_verdict_settles_after_the_seconds_of_the_row(self):
        plan = make.judge(self.seen)
        self.assertTrue(plan.due)
        self.assertEqual(datetime.timedelta(seconds=self.seconds),
                         plan.settles_in)


class KeptTest(base.TestCase):
    """A disk that stays, and would not be given to the driver."""

    #: Name, snapshot, seconds until it is settled, and whether it is given
    #: then.
    scenarios = [(name, {'seen': look, 'seconds': seconds, 'given': given})
                 for name, look, seconds, given in (
        ('a volume that is deleted', seen(volume=make.volume(
            status='deleting', updated_at=YOUNG), attachments=()), 7, False),
        ('a volume in use by nobody', seen(volume=make.volume(
            updated_at=YOUNG), attachments=()), 7, False),
        ('Cinder connects it to another host', seen(volume=make.volume(
            updated_at=YOUNG, attached_to=(make.attached_to(
                host=make.OTHER_HOST),))), 7, False),
        ('Cinder connects it by another address', seen(
            volume=make.volume(updated_at=OLD), attachments=[young(
                OWN, attached_at=YOUNG,
                addresses=make.addresses('volume-9'))]), 7, False),
        ('it is the root disk', seen(
            young(BDM, boot_index=0), young(AVAILABLE, updated_at=YOUNG),
            ()), 7, True),
        ('it is attached', seen(
            volume=make.volume(status='error', updated_at=YOUNG)), 0, True),
        ('it is attached by another attachment', seen(
            volume=make.volume(updated_at=YOUNG),
            attachments=[make.attachment(id='attachment-3')]), 0, True),
        ('it is healthy', seen(volume=make.volume(updated_at=YOUNG)), 0,
         True),
    )]

    def test_disk_is_given_until_its_verdict_is_settled(self):
        plan = make.judge(self.seen)
        self.assertEqual(datetime.timedelta(seconds=self.seconds),
                         plan.settles_in)
        self.assertEqual({}, rules.not_given(plan))
        later = make.judge(self.seen, now=make.NOW + datetime.timedelta(
            seconds=self.seconds))
        self.assertEqual([] if self.given else ['bdm-1'],
                         [*rules.not_given(later)])

    def test_two_looks_that_agree_are_enough(self):
        plan = make.judge(self.seen)
        again = rules.agreed(plan, plan)
        self.assertFalse(again.settles_in)
        self.assertEqual([] if self.given else ['bdm-1'],
                         [*rules.not_given(again)])


class AgreedTest(base.TestCase):

    def look(self, bdm=BDM, age=3, **values):
        return make.judge(seen(bdm, make.volume(
            **{'status': 'available', 'updated_at': make.ago(age), **values}),
            ()))

    def test_times_that_change_do_not_count(self):
        # The owner of a volume can renew its time, and a clock may be ahead.
        for age in (0, -3, -7200):
            plan = rules.agreed(self.look(), self.look(age=age))
            self.assertFalse(plan.settles_in)
            self.assertTrue(plan.due)
        self.assertFalse(rules.agreed(self.look(), self.look(
            young(BDM, updated_at=YOUNG))).settles_in)

    def test_attachment_without_a_mapping_settles(self):
        look = make.judge(make.snapshot(
            [], [make.volume(updated_at=OLD)], [young(OWN,
                                                      attached_at=YOUNG)]))
        self.assertTrue(look.settles_in)
        self.assertFalse(rules.agreed(look, look).settles_in)

    def test_another_address_is_another_verdict(self):
        moved = seen(volume=make.volume(updated_at=YOUNG, attached_to=(
            make.attached_to(host=make.OTHER_HOST),)))
        here = seen(volume=make.volume(updated_at=YOUNG))
        for before, seconds in ((here, 7), (moved, 0)):
            self.assertEqual(
                datetime.timedelta(seconds=seconds), rules.agreed(
                    make.judge(before), make.judge(moved)).settles_in)

    def test_another_verdict_is_not_settled(self):
        for before in (facts.Plan(), self.look(status='error'),
                       self.look(young(BDM, attachment_id='attachment-9')),
                       self.look(young(BDM, boot_index=0))):
            self.assertEqual(
                datetime.timedelta(seconds=7),
                rules.agreed(before, self.look()).settles_in)


class NothingIsAgainstADiskTest(base.TestCase):

    def test_nothing_is_waited_for(self):
        for look in (
                seen(volume=make.volume(updated_at=YOUNG)),
                seen(volume=make.volume(status='detaching',
                                        updated_at=YOUNG))):
            plan = make.judge(look)
            self.assertEqual((), plan.due)
            self.assertFalse(plan.settles_in)

    def test_a_withheld_removal_that_leaves_a_disk_out_is_waited_for(self):
        plan = make.judge(seen(volume=young(AVAILABLE, updated_at=YOUNG),
                               attachments=()),
                          policy=facts.Policy(remove=frozenset()))
        self.assertEqual((), plan.due)
        self.assertTrue(plan.settles_in)

    def test_a_stale_attachment_that_is_withheld_is_not_waited_for(self):
        look = make.snapshot([], [make.volume(updated_at=OLD)],
                             [young(OWN, attached_at=YOUNG)])
        self.assertTrue(make.judge(look).settles_in)
        self.assertFalse(make.judge(look, policy=facts.Policy(
            remove=frozenset())).settles_in)

    def test_causal_reads_need_no_wait(self):
        plan = make.judge(seen(volume=young(AVAILABLE, updated_at=YOUNG)),
                          policy=facts.Policy(
                              settle_time=datetime.timedelta(0)))
        self.assertTrue(plan.due)
        self.assertFalse(plan.settles_in)

    def test_a_claimed_address_is_not_given_although_it_is_out_of_date(self):
        plan = make.judge(
            seen(volume=make.volume(updated_at=YOUNG, attached_to=(
                make.attached_to(host=make.OTHER_HOST),))),
            facts.Claims({'bdm-1': (make.claim(),)}))
        self.assertEqual(['bdm-1'], [*rules.not_given(plan)])

    def test_a_claimed_address_is_not_waited_for(self):
        """Check that no record makes a disk another's for a moment only."""
        plan = make.judge(
            seen(volume=make.volume(updated_at=YOUNG)), facts.Claims(
                {'bdm-1': (make.claim(),)}))
        self.assertFalse(plan.settles_in)
        self.assertEqual(['bdm-1'], [*rules.not_given(plan)])
