# SPDX-License-Identifier: Apache-2.0
"""The comparison of two looks, and the need for a witness."""

from __future__ import annotations

import dataclasses

import testscenarios

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.rules import decision, facts
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import base, make
from nova_bdm_cleanup.tests.unit.make import decide

load_tests = testscenarios.load_tests_apply_scenarios

STALE = make.attachment(id='attachment-9', volume_id='volume-9')
VOLUME_9 = make.volume(id='volume-9')


class WitnessTest(base.TestCase):
    """The looks for which Cinder has to prove that it is the right one."""

    def needed(self, *args, **kwargs):
        return decision.needs_witness(make.snapshot(*args, **kwargs))

    def test_witness_is_needed_only_if_a_volume_is_missing(self):
        self.assertFalse(self.needed())
        self.assertFalse(self.needed([make.bdm()], [make.volume()]))
        self.assertTrue(self.needed([make.bdm()], missing=['volume-1']))

    def test_a_volume_of_another_mapping_is_enough(self):
        for project in (make.PROJECT, make.OTHER_PROJECT, None):
            self.assertFalse(self.needed(
                [make.bdm(), make.bdm(uuid='bdm-2', volume_id='volume-2')],
                [make.volume(id='volume-2', project=project)],
                missing=['volume-1']))

    def test_volume_of_a_stale_attachment_is_enough(self):
        for project, needed in ((make.PROJECT, False),
                                (make.OTHER_PROJECT, True), (None, True)):
            self.assertEqual(needed, self.needed(
                [make.bdm()], [dataclasses.replace(
                    VOLUME_9, project=project)], [STALE],
                missing=['volume-1']))
        self.assertTrue(self.needed(
            [make.bdm()], [dataclasses.replace(VOLUME_9, project=None)],
            [STALE], missing=['volume-1'], project=None))


BDM, LEFT_OVER = make.bdm(), make.attachment()
LOOK = make.snapshot([BDM], [make.volume(status='available'), VOLUME_9],
                     [LEFT_OVER, STALE])
WITHOUT = dataclasses.replace(LOOK, attachments=(STALE,))


def with_bdm(**changes):
    return {'bdms': (make.root(), dataclasses.replace(BDM, **changes))}


def with_left_over(**changes):
    return {'attachments': (dataclasses.replace(LEFT_OVER, **changes), STALE)}


#: id, the first look, the differences of the second.
DIFFERENCES = (
    ('another reason', LOOK,
     {'volumes': {'volume-1': make.volume(), 'volume-9': VOLUME_9}}),
    ('another reason to do the same', WITHOUT,
     {'volumes': {'volume-1': None, 'volume-9': VOLUME_9}}),
    # A swap or "nova-manage volume_attachment refresh" ran in between.
    ('another attachment in the mapping', LOOK,
     with_bdm(attachment_id='attachment-2')),
    ('another volume in the mapping', LOOK, with_bdm(volume_id='volume-2')),
    ('not connected any more', LOOK, with_bdm(has_connection_info=False)),
    ('the root now', LOOK, with_bdm(boot_index=0)),
    ('another row', LOOK, with_bdm(uuid='bdm-2')),
    ('gone', LOOK, {'bdms': (make.root(),)}),
    ('its attachment is reserved', LOOK, with_left_over(status='reserved')),
    ('its attachment is not connected', LOOK,
     with_left_over(connected=False)),
    ('its attachment is of another server', LOOK,
     with_left_over(server_id=make.OTHER_SERVER)),
    ('an attachment more', LOOK, {'attachments': (
        LEFT_OVER, STALE, make.attachment(id='attachment-2'))}),
    ('an attachment less', LOOK, {'attachments': (STALE,)}),
)


class DifferenceTest(base.TestCase):
    """Differences of the second look: only these records are left alone."""

    scenarios = base.scenarios(DIFFERENCES, 'first', 'changes')

    def test_changed_record_is_withheld(self):
        first = decide(self.first)
        self.assertEqual(2, len(first.due))
        plan = rules.confirm(first, decide(
            dataclasses.replace(self.first, **self.changes)))
        self.assertEqual([Reason.STALE_ATTACHMENT],
                         [f.reason for f in plan.due])
        [refused] = [f for f in plan.findings if not f.is_due]
        self.assertEqual(Reason.SECOND_LOOK_DIFFERS, refused.withheld)


class ConfirmTest(base.TestCase):
    """The second look, which can only reduce the plan."""

    def test_attachment_connected_meanwhile_is_not_deleted(self):
        reserved = dataclasses.replace(
            STALE, status='reserved', connected=False)
        plan = rules.confirm(
            decide(dataclasses.replace(LOOK, attachments=(reserved,))),
            decide(dataclasses.replace(LOOK, attachments=(STALE,))))
        self.assertNotIn(Reason.STALE_ATTACHMENT,
                         [f.reason for f in plan.due])

    def test_a_second_look_that_withholds_says_why(self):
        first = decide(LOOK)
        plan = rules.confirm(first, first.withhold(
            Reason.REBOOT_LOST, 'in plain words'))
        self.assertEqual([(Reason.REBOOT_LOST, 'in plain words')] * 2,
                         [(f.withheld, f.obstacle) for f in plan.findings])

    def test_the_second_look_decides_about_the_disk(self):
        healthy = make.snapshot([BDM], [make.volume()], [LEFT_OVER])
        claims = facts.Claims({'bdm-1': (make.claim(),)})
        gone = make.snapshot([BDM], [make.volume(status='error')])
        given, claimed, detached = (
            make.judge(healthy), make.judge(healthy, claims),
            make.judge(gone))
        for first in (given, claimed, detached):
            for second, left_out in (
                    (given, []), (claimed, ['bdm-1']),
                    (detached, ['bdm-1'])):
                plan = rules.confirm(first, second)
                self.assertEqual(left_out, [*rules.not_given(plan)])
                self.assertEqual([f.reason for f in first.findings],
                                 [f.reason for f in plan.findings])

    def test_a_row_that_is_gone_keeps_its_verdict(self):
        first = decide(LOOK)
        plan = rules.confirm(first, facts.Plan())
        self.assertEqual([f.in_cinder for f in first.findings],
                         [f.in_cinder for f in plan.findings])
        self.assertEqual((), plan.due)


RESERVED = make.attachment(status='reserved', connected=False)
UNSAVED = dataclasses.replace(RESERVED, id='attachment-2')
HALF_MOVED = make.snapshot([BDM], [make.volume(status='reserved')],
                           [RESERVED, UNSAVED])
#: Cinder connects another host.
ELSEWHERE = make.snapshot([BDM], [make.volume(attached_to=(
    make.attached_to(host=make.OTHER_HOST),))], [LEFT_OVER])


class ConfirmReconnectTest(base.TestCase):
    """The second look at disks that are reconnected."""

    def confirmed(self, second):
        first = decide(HALF_MOVED)
        self.assertTrue(first.due[0].is_reconnect)
        finding, = rules.confirm(first, decide(second)).findings
        return finding

    def test_same_facts_confirm_it(self):
        self.assertTrue(self.confirmed(HALF_MOVED).is_due)

    def test_only_the_attachment_that_is_used_is_replaced(self):
        attaching = dataclasses.replace(RESERVED, status='attaching')
        for values in (
                # The other one would be used.
                {'attachments': (UNSAVED,)},
                {'attachments': (RESERVED,)},
                {'attachments': (attaching, UNSAVED)},
                {'attachments': (RESERVED, dataclasses.replace(
                    UNSAVED, id='attachment-3'))},
                {'bdms': (make.root(), dataclasses.replace(
                    BDM, attachment_id='attachment-2'))}):
            finding = self.confirmed(dataclasses.replace(
                HALF_MOVED, **values))
            self.assertIs(Reason.SECOND_LOOK_DIFFERS, finding.withheld)

    def test_removal_does_not_confirm_a_reconnect(self):
        root = make.bdm(boot_index=0)
        first = decide(make.snapshot(
            [root], [make.volume(status='available')], roots=()))
        self.assertTrue(first.due[0].is_reconnect)
        for action in facts.Action:
            second = facts.Plan(tuple(dataclasses.replace(f, action=action)
                                      for f in first.findings))
            finding, = rules.confirm(first, second).findings
            self.assertEqual(action is facts.Action.RECONNECT, finding.is_due)

    def test_second_look_that_withholds_says_why(self):
        first = decide(HALF_MOVED)
        finding, = rules.confirm(first, decide(dataclasses.replace(
            HALF_MOVED, server=make.server(is_locked=True)))).findings
        self.assertIs(Reason.SERVER_LOCKED, finding.withheld)


class JudgeTest(base.TestCase):
    """Questions of the rules to Nova and Cinder, and when they ask."""

    def asked(self, seen, **arguments):
        sources = make.Sources(seen)
        rules.judge(seen, sources, facts.Policy(), make.NOW, **arguments)
        return sources.asked

    def test_names_of_disks_in_order_ask_only_the_guest(self):
        self.assertEqual(['sources'], self.asked(make.snapshot(
            [make.bdm(addresses=frozenset())], [make.volume()],
            [make.attachment()])))

    def test_guest_that_nova_does_not_start_is_not_asked(self):
        for seen in (
                dataclasses.replace(make.snapshot(
                    [make.bdm(addresses=frozenset())], [make.volume()],
                    [make.attachment()]), guest=facts.Guest.OTHER),
                make.snapshot([make.bdm(has_connection_info=False)])):
            self.assertNotIn('sources', self.asked(seen))

    def test_addresses_of_disks_in_order_ask_for_claims(self):
        self.assertEqual(['sources', 'claims'], self.asked(make.snapshot(
            [BDM], [make.volume()], [LEFT_OVER])))

    def test_a_removal_asks_for_everything_that_withholds_it(self):
        self.assertEqual(['sources', 'current', 'swaps', 'claims'],
                         self.asked(LOOK))
        self.assertEqual(
            ['sources', 'current', 'swaps', 'witness', 'claims'], self.asked(
                make.snapshot([BDM], missing=['volume-1'])))

    def test_a_reconnect_asks_for_everything_that_withholds_it(self):
        self.assertEqual(['sources', 'current', 'swaps', 'claims'],
                         self.asked(HALF_MOVED))

    def test_place_of_the_guest_is_asked_only_if_it_decides(self):
        completed = make.snapshot(
            [BDM], [make.volume(status='attaching')],
            [dataclasses.replace(RESERVED, status='attaching')])
        for seen, is_asked in (
                (HALF_MOVED, False), (LOOK, False), (ELSEWHERE, True),
                # When it is completed, Cinder may show another host.
                (completed, True),
                (dataclasses.replace(
                    ELSEWHERE, guest=facts.Guest.OTHER), False)):
            self.assertEqual(is_asked, 'guest_is_here' in self.asked(seen))
        # First of all: what would be changed depends on it.
        self.assertEqual('guest_is_here', self.asked(ELSEWHERE)[1])

    def test_device_is_asked_for_only_if_an_attach_has_died(self):
        attaching = dataclasses.replace(
            RESERVED, status='attaching', connected=True)
        unconnected = make.bdm(has_connection_info=False)
        for bdm, ending, attachment, is_asked in (
                (unconnected, facts.Attach.FAILED, attaching, True),
                (unconnected, facts.Attach.FAILED, RESERVED, False),
                (unconnected, facts.Attach.UNKNOWN, attaching, False),
                (BDM, facts.Attach.FAILED, attaching, False)):
            seen = dataclasses.replace(
                make.snapshot([bdm], [make.volume(status='attaching')],
                              [attachment]), attaches={'bdm-1': ending})
            self.assertEqual(is_asked, 'absent' in self.asked(seen))

    def test_guest_that_is_here_lets_go_of_another_host(self):
        for is_here, expected in ((True, 'half-moved+'),
                                  (False, 'half-moved')):
            seen = dataclasses.replace(ELSEWHERE, guest_is_here=is_here)
            plan = rules.judge(
                ELSEWHERE, make.Sources(seen), facts.Policy(), make.NOW)
            self.assertEqual(expected, make.reasons_in(plan))

    def test_a_missing_root_disk_asks_for_a_witness(self):
        # It is not removed, and no driver can connect it.
        seen = make.snapshot([make.bdm(boot_index=0)], missing=['volume-1'],
                             roots=())
        self.assertIn('witness', self.asked(seen))
        for witness, left_out in (
                (facts.WitnessAnswer.KNOWN, ['bdm-1']),
                (facts.WitnessAnswer.NONE_EXISTS, ['bdm-1']),
                (facts.WitnessAnswer.UNKNOWN, [])):
            self.assertEqual(left_out, [*rules.not_given(make.judge(
                dataclasses.replace(seen, witness=witness)))])

    def test_a_suspect_cinder_leaves_no_disk_out(self):
        seen = make.snapshot(
            [BDM, make.bdm(uuid='bdm-2', volume_id='volume-2')],
            missing=['volume-1', 'volume-2'])
        for witness in (facts.WitnessAnswer.NONE_EXISTS,
                        facts.WitnessAnswer.UNKNOWN):
            plan = make.judge(dataclasses.replace(seen, witness=witness))
            self.assertEqual({Reason.CINDER_SUSPECT},
                             {f.withheld for f in plan.findings})
            self.assertEqual({}, rules.not_given(plan))

    def test_answers_withhold_what_they_concern(self):
        for reason, values in (
                (Reason.SERVER_LOCKED, {'server': make.server(
                    is_locked=True)}),
                (Reason.SWAP_INTERRUPTED, {'swaps': facts.Ending.NONE})):
            plan = make.judge(dataclasses.replace(LOOK, **values))
            self.assertEqual({reason}, {f.withheld for f in plan.findings})

    def test_attachments_of_no_mapping_count_only_if_they_are_to(self):
        sources = make.Sources(LOOK)
        plan = rules.judge(LOOK, sources, facts.Policy(), make.NOW, False)
        self.assertEqual(['bdm-1'], [f.bdm.uuid for f in plan.findings])
        only_stale = dataclasses.replace(LOOK, bdms=(make.root(),))
        self.assertEqual([], self.asked(only_stale, is_any_attachment=False))
        self.assertEqual(['current', 'swaps'], self.asked(only_stale))
