# SPDX-License-Identifier: Apache-2.0
"""The guards: why an action is not carried out."""

from __future__ import annotations

import dataclasses

from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Reason, WitnessAnswer
from nova_bdm_cleanup.tests.unit import base, make
from nova_bdm_cleanup.tests.unit.make import decide

STALE = make.attachment(id='attachment-9', volume_id='volume-9')
VOLUME_9 = make.volume(id='volume-9')


def missing(count=1, **values):
    """So many mappings of volumes that do not exist."""
    gone = ['gone-%d' % n for n in range(count)]
    return make.snapshot(
        [make.bdm(uuid=name, volume_id=name, attachment_id=None)
         for name in gone], missing=gone, **values)


class GuardTest(base.TestCase):
    """What the operator allows."""

    def test_words_of_remove_when(self):
        looks = {
            Reason.VOLUME_MISSING: missing(),
            Reason.VOLUME_AVAILABLE: make.snapshot(
                [make.bdm()], [make.volume(status='available')]),
            Reason.ATTACHED_ELSEWHERE: make.snapshot(
                [make.bdm()], [make.volume(attached_to=(
                    make.attached_to(make.OTHER_SERVER),))]),
        }
        for allowed in looks:
            for reason, look in looks.items():
                [finding] = decide(
                    look, remove_when=frozenset([allowed])).findings
                self.assertEqual(reason, finding.reason)
                self.assertEqual(
                    None if reason is allowed else Reason.NOT_SELECTED,
                    finding.withheld)

    def test_stale_attachments_can_be_left(self):
        plan = decide(make.snapshot([], [VOLUME_9], [STALE]),
                      stale_attachments=False)
        [finding] = plan.findings
        self.assertEqual(Reason.NOT_SELECTED, finding.withheld)
        self.assertTrue(finding.goes)

    def test_leaving_stale_attachments_does_not_keep_mappings(self):
        plan = decide(make.snapshot(
            [make.bdm()], [make.volume(status='available')],
            [make.attachment()]), stale_attachments=False)
        self.assertEqual(1, plan.removals)

    def test_as_many_as_the_cap_are_removed(self):
        plan = decide(missing(3), max_removals=3)
        self.assertEqual(3, plan.removals)

    def test_one_more_than_the_cap_and_none_is_removed(self):
        plan = decide(missing(4), max_removals=3)
        self.assertEqual((), plan.due)
        self.assertEqual([Reason.OVER_LIMIT] * 4,
                         [f.withheld for f in plan.findings])

    def test_over_the_cap_stale_attachments_go_all_the_same(self):
        look = missing(2)
        look = dataclasses.replace(
            look, volumes={**look.volumes, 'volume-9': VOLUME_9},
            attachments=(STALE,))
        plan = decide(look, max_removals=1)
        self.assertEqual([Reason.STALE_ATTACHMENT],
                         [f.reason for f in plan.due])

    def test_what_is_not_selected_does_not_count(self):
        look = missing(2)
        look = dataclasses.replace(
            look, bdms=look.bdms + (make.bdm(volume_id='volume-9'),),
            volumes={**look.volumes, 'volume-9': dataclasses.replace(
                VOLUME_9, status='available')})
        plan = decide(look, max_removals=1, remove_when=frozenset(
            [Reason.VOLUME_AVAILABLE]))
        self.assertEqual(1, plan.removals)


def stale(count, **values):
    return tuple(dataclasses.replace(STALE, id='stale-%03d' % n, **values)
                 for n in range(count))


RESERVED = {'status': 'reserved', 'connected': False}


class AttachmentLimitTest(base.TestCase):
    """Attachments have a limit of their own."""

    def test_as_many_as_the_limit_are_deleted(self):
        for values in ({}, RESERVED):
            plan = decide(make.snapshot([], [VOLUME_9], stale(3, **values)),
                          max_attachments=3)
            self.assertEqual((3, 0), (make.deletions(plan), plan.removals))

    def test_over_the_limit_only_the_rest_is_left(self):
        for values in ({}, RESERVED):
            plan = decide(make.snapshot(
                [], [VOLUME_9], reversed(stale(300, **values))))
            self.assertEqual(['stale-%03d' % n for n in range(8)],
                             sorted(f.attachment_id for f in plan.due))
            self.assertEqual({None, Reason.OVER_LIMIT},
                             {f.withheld for f in plan.findings})

    def test_what_connects_a_host_goes_first(self):
        reserved = stale(9, **RESERVED)
        connected = dataclasses.replace(STALE, id='zzz')
        plan = decide(make.snapshot([], [VOLUME_9], [*reserved, connected]),
                      max_attachments=2)
        self.assertEqual({'zzz', 'stale-000'},
                         {f.attachment_id for f in plan.due})

    def test_they_never_withhold_a_mapping(self):
        for values in ({}, RESERVED):
            plan = decide(make.snapshot(
                [make.bdm()], [make.volume(status='available'), VOLUME_9],
                stale(300, **values)))
            self.assertEqual((1, 8), (plan.removals, make.deletions(plan)))

    def test_left_over_ones_count(self):
        left_over = [make.attachment(id='left-%03d' % n) for n in range(300)]
        plan = decide(make.snapshot(
            [make.bdm()], [make.volume(status='available'), VOLUME_9],
            [make.attachment(), *left_over, *stale(5)]), max_attachments=4)
        [finding] = plan.due
        self.assertEqual(
            ['left-000', 'left-001', 'left-002', 'left-003', 'attachment-1'],
            [a.id for a in finding.left_over])
        self.assertEqual((1, 4), (plan.removals, make.deletions(plan)))

    def test_left_over_ones_that_are_connected_go_first(self):
        plan = decide(make.snapshot(
            [make.bdm()], [make.volume(status='available')],
            [make.attachment(), make.attachment(id='a', **RESERVED),
             make.attachment(id='b', **RESERVED), make.attachment(id='c')]),
            max_attachments=2)
        [finding] = plan.due
        self.assertEqual(['a', 'c', 'attachment-1'],
                         [a.id for a in finding.left_over])

    def test_a_mapping_over_its_limit_leaves_the_room_to_others(self):
        left_over = [make.attachment(id='left-%d' % n) for n in range(4)]
        plan = decide(make.snapshot(
            [make.bdm(), make.bdm(uuid='bdm-2', volume_id='volume-2')],
            [make.volume(status='available'),
             make.volume(id='volume-2', status='available'), VOLUME_9],
            [*left_over, *stale(4)]), max_attachments=4, max_removals=1)
        self.assertEqual((0, 4), (plan.removals, make.deletions(plan)))

    def test_the_words_name_the_limit(self):
        plan = decide(make.snapshot(
            [make.bdm(uuid='bdm-%d' % n, volume_id='gone-%d' % n)
             for n in range(9)], [VOLUME_9], stale(9),
            missing=['gone-%d' % n for n in range(9)]))
        self.assertEqual({'max_removals', 'max_attachments'}, {
            f.obstacle.split('[bdm_cleanup] ')[1].split(' ')[0]
            for f in plan.findings if f.withheld})


class OptOutTest(base.TestCase):
    """The mark of the server, and that of the volume."""

    def test_a_server_is_not_kept_on_a_disk_of_somebody_else(self):
        elsewhere = make.volume(attached_to=(
            make.attached_to(make.OTHER_SERVER),))
        [finding] = decide(make.snapshot(
            [make.bdm()], [elsewhere], keep=True)).findings
        self.assertIsNone(finding.withheld)
        self.assertEqual(Reason.ATTACHED_ELSEWHERE, finding.reason)

    def test_a_server_is_not_kept_on_a_volume_of_another_project(self):
        for project, withheld in (
                (make.OTHER_PROJECT, None),
                (make.PROJECT, Reason.OPTED_OUT), (None, Reason.OPTED_OUT)):
            [finding] = decide(make.snapshot(
                [make.bdm()], [make.volume(status='available',
                                           project=project)],
                keep=True)).findings
            self.assertEqual(withheld, finding.withheld)

    def test_a_volume_of_the_project_is_kept_wherever_it_is(self):
        elsewhere = make.volume(keep=True, attached_to=(
            make.attached_to(make.OTHER_SERVER),))
        [finding] = decide(make.snapshot([make.bdm()], [elsewhere])).findings
        self.assertEqual(Reason.OPTED_OUT, finding.withheld)

    def test_another_project_keeps_nothing_in_a_server(self):
        for project, withheld in (
                (make.OTHER_PROJECT, None),
                (make.PROJECT, Reason.OPTED_OUT), (None, Reason.OPTED_OUT)):
            [finding] = decide(make.snapshot(
                [make.bdm()], [make.volume(status='available', keep=True,
                                           project=project)])).findings
            self.assertEqual(withheld, finding.withheld)


class WitnessTest(base.TestCase):
    """Nothing is missing in a Cinder that may be the wrong one."""

    def test_with_a_known_witness_it_happens(self):
        self.assertEqual(2, decide(
            missing(2, witness=WitnessAnswer.KNOWN)).removals)

    def test_where_none_exists_a_single_one_is_believed(self):
        self.assertEqual(1, decide(
            missing(1, witness=WitnessAnswer.NONE_EXISTS)).removals)

    def test_several_bear_witness_for_each_other(self):
        plan = decide(missing(2, witness=WitnessAnswer.NONE_EXISTS))
        self.assertEqual([Reason.CINDER_SUSPECT] * 2,
                         [f.withheld for f in plan.findings])

    def test_two_mappings_of_one_volume_are_no_witness(self):
        plan = decide(make.snapshot(
            [make.bdm(), make.bdm(uuid='bdm-2', attachment_id=None)],
            missing=['volume-1'], witness=WitnessAnswer.NONE_EXISTS))
        self.assertEqual(2, plan.removals)

    def test_without_a_witness_nothing_at_all_is_done(self):
        look = missing(witness=WitnessAnswer.UNKNOWN)
        plan = decide(dataclasses.replace(
            look, volumes={**look.volumes, 'volume-9': VOLUME_9},
            attachments=(STALE,)))
        self.assertEqual([Reason.CINDER_SUSPECT] * 2,
                         [f.withheld for f in plan.findings])

    def test_unless_told_nobody_has_proved_anything(self):
        look = missing()
        look = facts.Snapshot(look.server, look.bdms, look.volumes, ())
        self.assertEqual((), decide(look).due)

    def test_nothing_missing_needs_no_witness(self):
        for answer in WitnessAnswer:
            plan = decide(make.snapshot(
                [make.bdm()], [make.volume(status='available')],
                witness=answer))
            self.assertEqual(1, plan.removals)
