# SPDX-License-Identifier: Apache-2.0
"""The derived properties of facts, findings and plans."""

from __future__ import annotations

import dataclasses
import datetime

import testscenarios

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.rules import addresses, disks, facts, table
from nova_bdm_cleanup.rules.facts import Action
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import base, make

load_tests = testscenarios.load_tests_apply_scenarios

#: The id of a project, and how Keystone writes it.
PROJECT = '6f1c7d2e-9b3a-4c58-a0de-5b7f1e2c3d4a'
WITHOUT_DASHES = PROJECT.replace('-', '')

STALE = make.attachment(id='attachment-9', volume_id='volume-9')


class FrozenTest(base.TestCase):

    def test_no_fact_and_no_row_of_a_table_can_be_changed(self):
        for module in (addresses, disks, facts, table):
            found = [getattr(each, '__dataclass_params__', None)
                     for each in vars(module).values()]
            self.assertTrue(any(found))
            for params in filter(None, found):
                self.assertTrue(params.frozen, module)


class DefaultsTest(base.TestCase):

    def test_records_are_not_connected_by_default(self):
        self.assertFalse(facts.Bdm('bdm-1').has_connection_info)
        self.assertFalse(facts.Attachment(
            'attachment-1', 'volume-1', make.SERVER, 'reserved').connected)

    def test_a_disk_has_no_address_unless_told(self):
        self.assertEqual((frozenset(), frozenset()), (
            facts.Bdm('bdm-1').addresses, facts.Attachment(
                'attachment-1', 'volume-1', make.SERVER, '').addresses))

    def test_a_finding_keeps_the_mapping_and_gives_the_disk(self):
        finding = facts.Finding(Reason.HEALTHY, '', make.bdm())
        self.assertEqual((False, False, False, False, '', {}), (
            finding.is_removal, finding.lacks_attachment, finding.is_root,
            finding.depends_on_root, finding.address,
            rules.not_given(facts.Plan((finding,)))))

    def test_a_reconnect_may_delete_what_it_completes(self):
        one, other = make.attachment(), make.attachment(id='attachment-2')
        reserved = make.attachment(status='reserved', connected=False)
        for first, deleted in ((None, (other,)), (reserved, (other,)),
                               (one, (other, one))):
            self.assertEqual(deleted, facts.Finding(
                Reason.HALF_MOVED, '', make.bdm(), dependent=(other,),
                first=first).deleted)

    def test_a_list_of_attachments_is_complete_unless_told(self):
        self.assertFalse(facts.Answers({}, ()).is_cut)


class AttachmentTest(base.TestCase):
    """The progress of an attachment, according to its record in Cinder."""

    def test_status_and_connection_give_the_progress(self):
        for status, connected, expected in (
                ('attached', True, ()),
                ('attached', False, ('is_legacy',)),
                ('attaching', True, ()),
                ('attaching', False, ()),
                ('reserved', True, ('is_half_connected',)),
                ('reserved', False, ('only_reserves',))):
            record = make.attachment(status=status, connected=connected)
            self.assertEqual(expected, tuple(
                name for name in ('is_legacy', 'is_half_connected',
                                  'only_reserves') if getattr(record, name)))


class VolumeTest(base.TestCase):

    def test_state_is_the_status_in_words(self):
        self.assertEqual('reserved', make.volume(status='reserved').state)
        self.assertEqual('in no state', make.volume(status='').state)

    def test_a_volume_is_foreign_only_if_both_projects_are_known(self):
        for its, own, is_foreign in (
                (make.OTHER_PROJECT, make.PROJECT, True),
                (make.PROJECT, make.PROJECT, False),
                (WITHOUT_DASHES, PROJECT, False),
                (None, make.PROJECT, False), (make.PROJECT, None, False),
                (None, None, False)):
            self.assertIs(
                is_foreign, make.volume(project=its).is_foreign_to(own))
        self.assertFalse(facts.ABSENT.is_foreign_to(make.PROJECT))


    def test_label_is_no_part_of_what_is_compared(self):
        self.assertEqual(make.volume(), make.volume(
            label=facts.Label('data', 1)))

    def test_error_and_maintenance_do_not_end_by_themselves(self):
        for status, expected in (('error', True), ('error_deleting', True),
                                 ('maintenance', True), ('in-use', False),
                                 ('extending', False)):
            self.assertIs(expected,
                          make.volume(status=status).is_out_of_order)


class BdmTest(base.TestCase):

    def test_change_is_newer_if_no_clock_explains_it(self):
        last = make.NOW.timestamp()
        for seconds, expected in ((3600, False), (3601, True)):
            self.assertIs(expected, make.bdm(updated_at=make.ago(
                -seconds)).is_newer_than_swaps(last))
        self.assertFalse(make.bdm(updated_at=None).is_newer_than_swaps(0))


class FindingTest(base.TestCase):

    def test_finding_without_a_disk_is_of_the_server(self):
        for fields, expected in (
                ({}, True), ({'bdm': make.bdm()}, False),
                ({'attachment': make.attachment()}, False)):
            self.assertIs(expected, facts.Finding(
                Reason.HEALTHY, '', **fields).is_of_server)


class PlanTest(base.TestCase):
    """The derived properties of findings and plans."""

    def test_withhold_leaves_what_is_withheld_already(self):
        due = facts.Finding(Reason.VOLUME_MISSING, 'gone', make.bdm(),
                            action=Action.REMOVE)
        other = dataclasses.replace(due, withheld=Reason.NOT_SELECTED)
        kept = facts.Finding(Reason.HEALTHY, 'attached', make.bdm())
        plan = facts.Plan((due, other, kept)).withhold(Reason.OVER_LIMIT)
        self.assertEqual([Reason.OVER_LIMIT, Reason.NOT_SELECTED, None],
                         [f.withheld for f in plan.findings])

    def test_only_one_kind_is_withheld(self):
        bdm = make.bdm()
        plan = facts.Plan((
            facts.Finding(Reason.VOLUME_MISSING, '', bdm,
                          action=Action.REMOVE),
            facts.Finding(Reason.STALE_ATTACHMENT, '', attachment=STALE,
                          action=Action.DELETE)))
        for of_mappings, left in ((True, [Reason.STALE_ATTACHMENT]),
                                  (False, [Reason.VOLUME_MISSING])):
            self.assertEqual(left, [f.reason for f in plan.withhold(
                Reason.OVER_LIMIT, of_mappings=of_mappings).due])

    def test_only_some_volumes_are_withheld(self):
        plan = facts.Plan(tuple(
            facts.Finding(Reason.VOLUME_MISSING, '', make.bdm(volume_id=name),
                          action=Action.REMOVE) for name in 'ab'))
        self.assertEqual(['b'], [f.volume_id for f in plan.withhold(
            Reason.TIMED_OUT, of_volumes={'a'}).due])

    def test_a_plan_is_settled_with_its_last_finding(self):
        second = datetime.timedelta(seconds=1)
        self.assertEqual(0 * second, facts.Plan().settles_in)
        self.assertEqual(7 * second, facts.Plan(tuple(
            facts.Finding(Reason.STUCK, '', settles_in=count * second)
            for count in (0, 7, 3))).settles_in)

    def test_a_disk_lacks_its_attachment_only_when_that_is_settled(self):
        for in_cinder in facts.InCinder:
            for seconds in (0, 1):
                self.assertIs(
                    not seconds and in_cinder in (
                        facts.InCinder.UNATTACHED, facts.InCinder.ELSEWHERE),
                    facts.Finding(
                        Reason.STUCK, '', in_cinder=in_cinder,
                        settles_in=datetime.timedelta(seconds=seconds)
                    ).lacks_attachment)

    def test_the_findings_about_mappings_are_those_with_a_device(self):
        mapping = facts.Finding(Reason.STUCK, '', make.bdm())
        stale = facts.Finding(Reason.STALE_ATTACHMENT, '', attachment=STALE)
        self.assertEqual(('/dev/vdb', None), (mapping.device, stale.device))
        self.assertEqual(facts.Plan((mapping,)),
                         facts.Plan((mapping, stale)).of_mappings())


class SummedUpTest(base.TestCase):
    """A plan as it is summed up for the log."""

    def kept(self, count, reason=Reason.STALE_ATTACHMENT, withheld=None,
             **values):
        return tuple(facts.Finding(
            reason, 'it only reserves the volume', withheld=withheld,
            attachment=dataclasses.replace(STALE, id='stale-%d' % n),
            **values) for n in range(count))

    def test_a_few_are_told_one_by_one(self):
        plan = facts.Plan(self.kept(4))
        self.assertEqual(plan, plan.summed_up())

    def test_many_findings_are_cut_and_the_rest_counted(self):
        plan = facts.Plan(self.kept(
            300, withheld=Reason.OVER_LIMIT, obstacle='too many'))
        told = plan.summed_up().findings
        self.assertEqual(plan.findings[:4], told[:4])
        [rest] = told[4:]
        self.assertIn('296 more attachments', rest.explanation)
        self.assertEqual(
            (Reason.STALE_ATTACHMENT, Reason.OVER_LIMIT, 'too many', None,
             None, False),
            (rest.reason, rest.withheld, rest.obstacle, rest.volume_id,
             rest.attachment_id, rest.is_due))

    def test_each_kind_is_counted_by_itself(self):
        plan = facts.Plan((
            *self.kept(6, Reason.CROSS_WIRED),
            *self.kept(5, Reason.VOLUME_BUSY),
            *self.kept(7, withheld=Reason.SERVER_LOCKED),
            *self.kept(8, withheld=Reason.OVER_LIMIT)))
        told = [f for f in plan.summed_up().findings if not f.attachment]
        self.assertEqual([
            (Reason.CROSS_WIRED, None, '2 more'),
            (Reason.VOLUME_BUSY, None, '1 more'),
            (Reason.STALE_ATTACHMENT, Reason.SERVER_LOCKED, '3 more'),
            (Reason.STALE_ATTACHMENT, Reason.OVER_LIMIT, '4 more')],
            [(f.reason, f.withheld, f.explanation[:6]) for f in told])
        self.assertEqual([], [f for f in told if f.is_due])

    def test_mappings_and_what_is_to_be_done_are_never_summed_up(self):
        due = tuple(facts.Finding(
            Reason.STALE_ATTACHMENT, '', attachment=STALE,
            action=Action.DELETE) for _ in range(9))
        kept = tuple(facts.Finding(Reason.STUCK, '', make.bdm())
                     for _ in range(9))
        plan = facts.Plan((*kept, *due))
        self.assertEqual(plan, plan.summed_up())


class PolicyTest(base.TestCase):

    def test_defaults_are_unchanged(self):
        """Keep the defaults: operators rely on their behaviour."""
        policy = facts.Policy()
        self.assertEqual((False, 8, 32, 60.0), (
            policy.observe, policy.max_removals, policy.max_removals_per_hour,
            policy.timeout))
        self.assertEqual((5, 60), tuple(
            age / datetime.timedelta(minutes=1)
            for age in (policy.grace_period, policy.stuck_after)))


    def test_record_is_settled_after_the_settle_time(self):
        second = datetime.timedelta(seconds=1)
        policy = facts.Policy(settle_time=3 * second)
        for age, left in ((0, 3), (2, 1), (3, 0), (4, 0),
                          # A clock is ahead.
                          (-1, 3), (-86400, 3)):
            since = make.ago(age)
            self.assertEqual(left * second,
                             policy.settles_in(since, make.NOW))
        self.assertFalse(policy.settles_in(None, make.NOW))
        causal = facts.Policy(settle_time=0 * second)
        self.assertFalse(causal.settles_in(make.ago(-1), make.NOW))


class EndingTest(base.TestCase):
    """The ending of an operation, from the results of its events."""

    scenarios = base.scenarios((
        ('no event', [], facts.Ending.NONE),
        ('an event without an end', [None], facts.Ending.NONE),
        ('one of two without an end', ['Success', None], facts.Ending.NONE),
        ('after a failure, too', ['Error', None], facts.Ending.NONE),
        ('a failure', ['Success', 'Error'], facts.Ending.FAILURE),
        ('a word of a later release', ['Cancelled'], facts.Ending.FAILURE),
        ('success', ['Success', 'Success'], facts.Ending.SUCCESS),
    ), 'results', 'ending')

    def test_results_give_the_ending(self):
        self.assertIs(self.ending, facts.Ending.of(self.results))


#: The addresses of two disks.
FIRST, SECOND = ('target', '1'), ('target', '2')


def at(*addresses, **values):
    return facts.Source(frozenset(addresses), **values)


class SourceTest(base.TestCase):

    scenarios = base.scenarios((
        ('the same address', at(FIRST), at(FIRST), 'same'),
        ('one path of two', at(FIRST, SECOND), at(FIRST), 'same'),
        ('other addresses', at(FIRST), at(SECOND), 'other'),
        ('the same path, and an address that was renewed',
         at(FIRST, path='/dev/a'), at(SECOND, path='/dev/a'), 'same'),
        # One device has several paths, and a row may lack its own.
        ('other paths', at(path='/dev/a'), at(path='/dev/b'), ''),
        ('the same name', at(name='a'), at(name='a'), 'same'),
        ('other names', at(name='a'), at(name='b'), 'other'),
        ('a name and an address', at(name='a'), at(FIRST), ''),
        ('the same attachment', at(attachment_id='a'),
         at(FIRST, attachment_id='a'), 'same'),
        ('another attachment', at(attachment_id='a'),
         at(FIRST, attachment_id='b'), 'other'),
        ('an unknown attachment', at(attachment_id=''),
         at(FIRST, attachment_id='b'), 'other'),
        ('nothing is known', at(), at(FIRST, attachment_id='b'), ''),
    ), 'one', 'another', 'expected')

    def test_disk_is_named_by_what_is_known_of_it(self) -> None:
        for source, words in (
                (facts.Source(name='pool/one', path='/dev/sda'), 'pool/one'),
                (facts.Source(path='/dev/sda'), '/dev/sda'),
                (facts.Source(frozenset({('target', '1')})),
                 'target unit 1'),
                (facts.Source(), 'another disk')):
            self.assertEqual(words, str(source))

    def test_sources_are_compared_by_what_both_tell(self) -> None:
        for one, another in ((self.one, self.another),
                             (self.another, self.one)):
            self.assertIs(self.expected == 'same', one.is_same(another))
            self.assertIs(self.expected == 'other', one.is_other(another))
