# SPDX-License-Identifier: Apache-2.0
"""The tables of the mappings, row by row."""

from __future__ import annotations

import dataclasses
import datetime

import testscenarios

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.rules import facts, mappings
from nova_bdm_cleanup.rules.facts import Policy, Reason
from nova_bdm_cleanup.rules.world import World
from nova_bdm_cleanup.tests.unit import base, make
from nova_bdm_cleanup.tests.unit.make import decide

load_tests = testscenarios.load_tests_apply_scenarios


def reasons(plan):
    return [f.reason for f in plan.findings]


YOUNG = make.bdm(attachment_id=None, has_connection_info=False,
                 created_at=make.ago(10))
UNCONNECTED = dataclasses.replace(YOUNG, created_at=make.ago(86400))
PRE_QUEENS = make.bdm(attachment_id=None)

#: id, what is special about the mapping, the volume (None: it does not
#: exist), the attachments, the reason.
ROWS = (
    ('a volume that does not exist is removed',
     make.bdm(), None, (), Reason.VOLUME_MISSING),
    ('a missing volume with an attachment is a contradiction',
     make.bdm(), None, (make.attachment(),), Reason.STATUS_CONTRADICTION),
    ('an available volume and a young mapping: an attach begins',
     YOUNG, make.volume(status='available'), (), Reason.ATTACH_IN_FLIGHT),
    ('a missing volume and a young mapping: an attach begins',
     YOUNG, None, (), Reason.ATTACH_IN_FLIGHT),
    ('a reserved volume and a young mapping: an attach begins',
     YOUNG, make.volume(status='reserved'),
     (make.attachment(status='reserved', connected=False),),
     Reason.ATTACH_IN_FLIGHT),
    ('an available volume and a connected mapping, however young, is removed',
     make.bdm(created_at=make.ago(1)), make.volume(status='available'), (),
     Reason.VOLUME_AVAILABLE),
    ('an available volume without attachment is removed',
     make.bdm(), make.volume(status='available'), (),
     Reason.VOLUME_AVAILABLE),
    ('an available volume and an old unconnected mapping is removed',
     UNCONNECTED, make.volume(status='available'), (),
     Reason.VOLUME_AVAILABLE),
    ('an available volume with an attachment left over is removed',
     make.bdm(), make.volume(status='available'), (make.attachment(),),
     Reason.VOLUME_AVAILABLE),
    ('an available volume with another attachment left over is removed',
     make.bdm(), make.volume(status='available'),
     (make.attachment(id='attachment-2'),), Reason.VOLUME_AVAILABLE),
    ('an available volume that lists an attachment of ours contradicts',
     make.bdm(), make.volume(status='available',
                             attached_to=(make.attached_to(),)),
     (), Reason.STATUS_CONTRADICTION),
    ('an in-use volume with its own attachment is healthy',
     make.bdm(), make.volume(), (make.attachment(),), Reason.HEALTHY),
    ('an attached volume that Nova does not connect is a contradiction',
     make.bdm(has_connection_info=False), make.volume(),
     (make.attachment(),), Reason.STATUS_CONTRADICTION),
    ('an in-use volume is healthy although others are attached as well',
     make.bdm(), make.volume(multiattach=True, attached_to=(
         make.attached_to(),
         make.attached_to(make.OTHER_SERVER, 'attachment-2'))),
     (make.attachment(),), Reason.HEALTHY),
    ('a detaching volume is healthy where another server detaches it',
     make.bdm(), make.volume(status='detaching', multiattach=True),
     (make.attachment(),), Reason.HEALTHY),
    ('a reserved volume is healthy where another server reserves it',
     make.bdm(), make.volume(status='reserved', multiattach=True),
     (make.attachment(),), Reason.HEALTHY),
    ('an attaching volume is healthy where another server attaches it',
     make.bdm(), make.volume(status='attaching', multiattach=True),
     (make.attachment(),), Reason.HEALTHY),
    ('a detaching multiattach volume without our attachment has to wait',
     make.bdm(), make.volume(status='detaching', multiattach=True), (),
     Reason.OPERATION_IN_FLIGHT),
    ('an attachment that is not attached yet: an operation is under way',
     make.bdm(), make.volume(),
     (make.attachment(status='attaching'),), Reason.OPERATION_IN_FLIGHT),
    ('the attachment missing and another one attached: a person decides',
     make.bdm(), make.volume(), (make.attachment(id='attachment-2'),),
     Reason.ATTACHMENT_MISMATCH),
    ('the attachment reserved and another one attached: a person decides',
     make.bdm(), make.volume(),
     (make.attachment(status='reserved', connected=False),
      make.attachment(id='attachment-2')), Reason.ATTACHMENT_MISMATCH),
    ('only the list of the volume names this server: a person decides',
     make.bdm(), make.volume(attached_to=(
         make.attached_to(attachment_id='attachment-2'),)), (),
     Reason.ATTACHMENT_MISMATCH),
    ('the list names this server without an id: a person decides',
     make.bdm(), make.volume(attached_to=(
         make.attached_to(attachment_id=None),)), (),
     Reason.ATTACHMENT_MISMATCH),
    ('a volume attached to another server only is removed',
     make.bdm(), make.volume(attached_to=(
         make.attached_to(make.OTHER_SERVER, 'attachment-2'),)), (),
     Reason.ATTACHED_ELSEWHERE),
    ('a multiattach volume attached to other servers only is removed',
     make.bdm(), make.volume(multiattach=True, attached_to=(
         make.attached_to(make.OTHER_SERVER, 'attachment-2'),
         make.attached_to('server-3', 'attachment-3'))), (),
     Reason.ATTACHED_ELSEWHERE),
    ('a volume attached to another server and to us by another record stays',
     make.bdm(), make.volume(multiattach=True, attached_to=(
         make.attached_to(make.OTHER_SERVER, 'attachment-2'),
         make.attached_to(attachment_id='attachment-3'))), (),
     Reason.ATTACHMENT_MISMATCH),
    ('an in-use volume of nobody contradicts itself',
     make.bdm(), make.volume(), (), Reason.STATUS_CONTRADICTION),
    ('an in-use volume of a host and no server contradicts itself',
     make.bdm(), make.volume(attached_to=(
         make.attached_to(None, 'attachment-2'),)), (),
     Reason.STATUS_CONTRADICTION),
    ('only reserved, and Nova has connected it: a shelve ended half way',
     make.bdm(), make.volume(status='reserved'),
     (make.attachment(status='reserved', connected=False),),
     Reason.RESERVED_ONLY),
    ('the same of a multiattach volume that others use',
     make.bdm(), make.volume(multiattach=True, attached_to=(
         make.attached_to(make.OTHER_SERVER, 'attachment-2'),)),
     (make.attachment(status='reserved', connected=False),),
     Reason.RESERVED_ONLY),
    ('only reserved, and Nova has not connected it: an attach',
     dataclasses.replace(UNCONNECTED, attachment_id='attachment-1'),
     make.volume(status='reserved'),
     (make.attachment(status='reserved', connected=False),),
     Reason.OPERATION_IN_FLIGHT),
    ('a reserved volume has to wait',
     make.bdm(), make.volume(status='reserved'), (),
     Reason.OPERATION_IN_FLIGHT),
    ('an attaching volume has to wait',
     make.bdm(), make.volume(status='attaching'), (make.attachment(),),
     Reason.OPERATION_IN_FLIGHT),
    ('a detaching volume has to wait, its attachment in order',
     make.bdm(), make.volume(status='detaching'), (make.attachment(),),
     Reason.OPERATION_IN_FLIGHT),
    ('a volume that says detaching for too long is stuck',
     make.bdm(), make.volume(status='detaching', updated_at=make.ago(3600)),
     (make.attachment(),), Reason.STUCK),
    ('a volume that nobody knows the age of is not stuck',
     make.bdm(), make.volume(status='detaching', updated_at=None), (),
     Reason.OPERATION_IN_FLIGHT),
    ('a volume under migration is busy',
     make.bdm(), make.volume(status='available',
                             migration_status='migrating'), (),
     Reason.VOLUME_BUSY),
    ('a migration that Cinder has no known word for is busy',
     make.bdm(), make.volume(migration_status='unheard-of'),
     (make.attachment(),), Reason.VOLUME_BUSY),
    ('a migration that ended does not matter',
     make.bdm(), make.volume(status='available',
                             migration_status='success'), (),
     Reason.VOLUME_AVAILABLE),
    ('a migration that failed does not matter',
     make.bdm(), make.volume(migration_status='error'),
     (make.attachment(),), Reason.HEALTHY),
    ('the attachment belongs to another server: cross-wired',
     make.bdm(), make.volume(status='available'),
     (make.attachment(server_id=make.OTHER_SERVER),), Reason.CROSS_WIRED),
    ('the attachment belongs to no server: cross-wired',
     make.bdm(), make.volume(), (make.attachment(server_id=None),),
     Reason.CROSS_WIRED),
    ('the attachment belongs to another volume: cross-wired',
     make.bdm(), make.volume(), (make.attachment(volume_id='volume-2'),),
     Reason.CROSS_WIRED),
    ('before Queens: this server in the list of the volume is healthy',
     PRE_QUEENS, make.volume(attached_to=(make.attached_to(),)),
     (make.attachment(connected=False),), Reason.HEALTHY),
    ('before Queens: only other servers in the list is removed',
     PRE_QUEENS, make.volume(attached_to=(
         make.attached_to(make.OTHER_SERVER, 'attachment-2'),)), (),
     Reason.ATTACHED_ELSEWHERE),
    ('before Queens: nobody in the list contradicts',
     PRE_QUEENS, make.volume(), (), Reason.STATUS_CONTRADICTION),
    ('before Queens: an available volume is removed',
     PRE_QUEENS, make.volume(status='available'), (),
     Reason.VOLUME_AVAILABLE),
    ('before Queens: a missing volume is removed',
     PRE_QUEENS, None, (), Reason.VOLUME_MISSING),
    ('before Queens: a multiattach volume that others change is healthy',
     PRE_QUEENS, make.volume(status='attaching', multiattach=True,
                             attached_to=(make.attached_to(),)), (),
     Reason.HEALTHY),
    ('never connected, and the list names this server: a person decides',
     UNCONNECTED, make.volume(attached_to=(make.attached_to(),)), (),
     Reason.ATTACHMENT_MISMATCH),
    ('attached to another server and to a host is removed',
     make.bdm(), make.volume(attached_to=(
         make.attached_to(None, 'attachment-3'),
         make.attached_to(make.OTHER_SERVER, 'attachment-2'))), (),
     Reason.ATTACHED_ELSEWHERE),
    ('never connected, and its volume in the use of somebody unknown',
     UNCONNECTED, make.volume(), (), Reason.STATUS_CONTRADICTION),
) + tuple(
    ('a volume that is %s is busy' % status, make.bdm(),
     make.volume(status=status), (make.attachment(),), Reason.VOLUME_BUSY)
    for status in ('creating', 'deleting', 'error', 'error_deleting',
                   'maintenance', 'retyping', 'extending', 'uploading',
                   'backing-up', 'restoring-backup', 'awaiting-transfer',
                   'downloading', 'AVAILABLE', 'unheard-of'))


class MappingsTest(base.TestCase):
    """Each row of the first table."""

    scenarios = [
        (name, {'bdm': bdm, 'volume': volume, 'attachments': attachments,
                'expected': expected})
        for name, bdm, volume, attachments, expected in ROWS]

    def test_row(self):
        seen = make.snapshot(
            [self.bdm], [self.volume] if self.volume else [],
            self.attachments, missing=() if self.volume else ['volume-1'])

        [finding] = [f for f in decide(seen).findings if f.bdm]

        self.assertEqual(self.expected, finding.reason, finding.explanation)
        self.assertIs(self.bdm, finding.bdm)
        self.assertTrue(finding.explanation)
        self.assertEqual(self.expected in facts.REMOVED, finding.is_due)
        self.assertEqual(
            (finding.is_due, finding.is_due,
             self.attachments if finding.is_due else ()),
            (finding.goes, finding.disconnect, finding.left_over))


class CoverageTest(base.TestCase):

    def test_every_row_has_a_test_above(self):
        tested = set()
        for _name, bdm, volume, attachments, _expected in ROWS:
            for sees_all in (True, False):
                world = World(make.snapshot(
                    [bdm], [volume] if volume else [], attachments,
                    missing=() if volume else ['volume-1'],
                    sees_all=sees_all), Policy(), make.NOW)
                tested.add(id(mappings.judge(world)[bdm.uuid].row))
        self.assertEqual(
            # These have tests of their own, below.
            [Reason.OPERATION_IN_FLIGHT, Reason.HEALTHY,
             *[Reason.DUPLICATE_MAPPING] * 2],
            [r.outcome.reason for section in mappings.MAPPINGS.rows
             for r in section.rows if id(r) not in tested])


GONE = make.bdm(uuid='bdm-2', attachment_id=None)

#: id, the first mapping of a volume, another of the same server, the volume,
#: the attachments, the reason and whether the second is removed.
DANGLING_ROWS = (
    ('the root disk', make.bdm(boot_index=0), GONE, None, (),
     Reason.ROOT_VOLUME_DANGLING, False),
    ('made from an image', make.bdm(source_type='image'), GONE, None, (),
     Reason.VOLUME_MISSING, False),
    ('another mapping is kept', YOUNG, GONE, None, (),
     Reason.ATTACH_IN_FLIGHT, False),
    ('its attachment is named by the mapping of another volume',
     make.bdm(volume_id='volume-2'), GONE, make.volume(status='available'),
     (make.attachment(),), Reason.CROSS_WIRED, False),
    ('none of these', make.bdm(), GONE, None, (),
     Reason.VOLUME_MISSING, True),
)


class DanglingTest(base.TestCase):
    """Each row of the second table."""

    scenarios = [
        (name, {'bdms': (first, second), 'volume': volume,
                'attachments': attachments, 'expected': expected,
                'removed': removed})
        for name, first, second, volume, attachments, expected, removed
        in DANGLING_ROWS]

    def test_row(self):
        plan = decide(make.snapshot(
            self.bdms, [self.volume] if self.volume else [],
            self.attachments, missing=() if self.volume else ['volume-1']))

        [finding] = [f for f in plan.findings if f.bdm is GONE]
        self.assertEqual((self.expected, self.removed),
                         (finding.reason, finding.is_due))
        if not self.removed and self.expected in facts.REMOVED:
            self.assertIn('; kept, since', finding.explanation)

    def test_every_row_has_a_test(self):
        # But for interrupted swaps, which have tests of their own.
        self.assertEqual(len(mappings.DANGLING_MAPPINGS.rows) - 1,
                         len(DANGLING_ROWS))


def young(age, attachment_id=None):
    return dataclasses.replace(YOUNG, created_at=make.ago(age),
                               attachment_id=attachment_id)


def begun(age):
    return make.volume(status='attaching', updated_at=make.ago(age))


AVAILABLE = make.volume(status='available')
SECONDS = {'grace_period': datetime.timedelta(seconds=300),
           'stuck_after': datetime.timedelta(seconds=120)}

#: id, the look, the policy, the reasons, how many mappings go.
LOOKS = (
    ('young until the last second',
     make.snapshot([young(299)], [AVAILABLE]), SECONDS,
     [Reason.ATTACH_IN_FLIGHT], 0),
    ('old from then on', make.snapshot([young(300)], [AVAILABLE]), SECONDS,
     [Reason.VOLUME_AVAILABLE], 1),
    # The clocks of the API's host and of this one differ.
    ('from the future', make.snapshot([young(-3600)], [AVAILABLE]), {},
     [Reason.ATTACH_IN_FLIGHT], 0),
    ('of unknown age', make.snapshot(
        [dataclasses.replace(YOUNG, created_at=None)], [AVAILABLE]), {},
     [Reason.ATTACH_IN_FLIGHT], 0),
    ('no grace period', make.snapshot([young(0)], [AVAILABLE]),
     {'grace_period': datetime.timedelta(0)}, [Reason.VOLUME_AVAILABLE], 1),
    ('under way until the last second',
     make.snapshot([make.bdm()], [begun(119)]), SECONDS,
     [Reason.OPERATION_IN_FLIGHT], 0),
    ('stuck from then on', make.snapshot([make.bdm()], [begun(120)]),
     SECONDS, [Reason.STUCK], 0),
    # What the mapping names will not become right by waiting.
    ('cross-wired is told before young', make.snapshot(
        [young(10, 'attachment-1')], [make.volume(status='reserved')],
        [make.attachment(server_id=make.OTHER_SERVER)]), {},
     [Reason.CROSS_WIRED], 0),
    # The list names the attachment of a volume that is not to be seen.
    ('a contradiction is told before what a token cannot see', make.snapshot(
        [make.bdm()], [], [make.attachment()], missing=['volume-1'],
        sees_all=False), {}, [Reason.STATUS_CONTRADICTION], 0),
    # Cinder says the same of a volume of another project, which an
    # administrator may have attached.
    ('missing is no proof to the credentials of a project', make.snapshot(
        [make.bdm()], [make.volume(id='volume-2')], missing=['volume-1'],
        sees_all=False), {}, [Reason.CANNOT_SEE_PROJECT], 0),
    ('available is proof to the credentials of a project', make.snapshot(
        [make.bdm()], [AVAILABLE], sees_all=False), {},
     [Reason.VOLUME_AVAILABLE], 1),
    ('a mapping without a volume is in flight', make.snapshot(
        [make.bdm(volume_id=None, attachment_id=None,
                  has_connection_info=False)]), {},
     [Reason.OPERATION_IN_FLIGHT], 0),
    ('the left-over attachments of a dangling root stay', make.snapshot(
        [make.bdm(boot_index=0)], [AVAILABLE],
        [make.attachment(), make.attachment(id='attachment-2')]), {},
     [Reason.ROOT_VOLUME_DANGLING], 0),
    ('a root in use by another server', make.snapshot(
        [make.bdm(boot_index=0)], [make.volume(attached_to=(
            make.attached_to(make.OTHER_SERVER),))]), {},
     [Reason.ROOT_VOLUME_DANGLING], 0),
    # The usual way to boot from a volume.
    *(('a root made from %s' % source, make.snapshot(
        [make.bdm(source_type=source, boot_index=0)],
        missing=['volume-1']), {}, [Reason.ROOT_VOLUME_DANGLING], 0)
      for source in ('image', 'snapshot', 'blank')),
)


class LookTest(base.TestCase):
    """What the tables say about time, credentials and roots."""

    scenarios = [
        (name, {'seen': seen, 'policy': policy, 'expected': expected,
                'removals': removals})
        for name, seen, policy, expected, removals in LOOKS]

    def test_row(self):
        plan = decide(self.seen, **self.policy)
        self.assertEqual((self.expected, self.removals),
                         (reasons(plan), plan.removals))
        self.assertEqual(self.removals, len(plan.due))


class MappingTest(base.TestCase):
    """What the tables say about siblings, and in which words."""

    def test_before_queens_one_entry_of_several_is_enough(self):
        for others in ((make.attached_to(make.OTHER_SERVER, 'attachment-2'),
                        make.attached_to()),
                       (make.attached_to(),
                        make.attached_to(make.OTHER_SERVER, 'attachment-2'))):
            for status in ('in-use', 'reserved'):
                plan = decide(make.snapshot(
                    [PRE_QUEENS], [make.volume(
                        status=status, multiattach=True,
                        attached_to=others)]))
                self.assertEqual([Reason.HEALTHY], reasons(plan))

    def test_reserved_for_a_server_that_is_shelved(self):
        reserved = make.attachment(status='reserved', connected=False)
        for is_offloaded, reason in ((True, Reason.HEALTHY),
                                     (False, Reason.RESERVED_ONLY)):
            plan = decide(make.snapshot(
                [make.bdm()], [make.volume(status='reserved')], [reserved],
                is_offloaded=is_offloaded))
            self.assertEqual([reason], [f.reason for f in plan.findings])

    def test_stuck_says_since_when(self):
        [finding] = decide(make.snapshot(
            [make.bdm()],
            [make.volume(status='attaching', updated_at=make.ago(7200))])
        ).findings
        self.assertEqual(
            'the volume has been attaching since 2026-03-14 01:00:00 UTC',
            finding.explanation)

    def test_the_attachment_goes_with_the_last_mapping_of_the_volume(self):
        # Cinder is told when no mapping of the volume is connected any more.
        never = make.bdm(uuid='bdm-0', attachment_id=None,
                         has_connection_info=False)
        for bdms in ([never, make.bdm()], [make.bdm(), never]):
            plan = decide(make.snapshot(
                bdms, [make.volume(status='available')],
                [make.attachment()]))
            self.assertEqual(
                [(make.bdm(), ()), (never, (make.attachment(),))],
                [(f.bdm, f.left_over) for f in plan.due])

    def test_an_attachment_of_another_server_is_not_deleted_with_it(self):
        # It is in view only because another mapping names it.
        plan = decide(make.snapshot(
            [make.bdm(attachment_id=None),
             make.bdm(uuid='bdm-2', volume_id='volume-2')],
            [make.volume(status='available'), make.volume(id='volume-2')],
            [make.attachment(server_id=make.OTHER_SERVER)]))
        self.assertEqual([()], [f.left_over for f in plan.due])

    def test_the_attachment_of_the_mapping_goes_last(self):
        # Should it end half way, the volume is in use by it again.
        plan = decide(make.snapshot(
            [make.bdm(attachment_id='b')], [make.volume(status='available')],
            [make.attachment(id='c'), make.attachment(id='b'),
             make.attachment(id='e', status='reserved', connected=False),
             make.attachment(id='a'),
             make.attachment(id='d', status='reserved', connected=False)]))
        [finding] = plan.due
        self.assertEqual(['d', 'e', 'a', 'c', 'b'],
                         [a.id for a in finding.left_over])

    def test_explanations_name_what_was_seen(self):
        [finding] = decide(make.snapshot(
            [make.bdm()], [make.volume(attached_to=(
                make.attached_to('server-9'), make.attached_to('server-3')))],
        )).findings
        self.assertEqual('Cinder attaches the volume to server server-3, '
                         'server-9 and not to this one', finding.explanation)
        [finding] = decide(make.snapshot(
            [make.bdm()], [make.volume(status='available')],
            [make.attachment(id='b'), make.attachment(id='a')])).findings
        self.assertEqual('Cinder says that the volume is available, with '
                         'attachment a, b left over', finding.explanation)


class DuplicateTest(base.TestCase):
    """A second mapping of a disk that is in order."""

    def second(self, **values):
        return make.bdm(uuid='bdm-2', device_name='/dev/vdc', **values)

    def decide(self, second, first=None, attachments=(), **volume):
        first = first or make.bdm()
        return decide(make.snapshot(
            [first, second], [make.volume(**volume)],
            [make.attachment(), *attachments],
            roots=() if first.is_root else (make.root(),)))

    def test_one_that_was_never_connected_goes_alone(self):
        # Whether it names no attachment, a dead one or that of the first.
        for attachment_id in (None, 'attachment-0', 'attachment-1'):
            second = self.second(attachment_id=attachment_id,
                                 has_connection_info=False)
            plan = self.decide(second)
            self.assertEqual([Reason.HEALTHY, Reason.DUPLICATE_MAPPING],
                             reasons(plan))
            [finding] = plan.due
            self.assertEqual((second, False, ()), (
                finding.bdm, finding.disconnect, finding.left_over))
            self.assertIn('(bdm-1, device /dev/vdb)', finding.explanation)

    def test_one_that_the_guest_may_use_stays(self):
        for attachment_id, expected in (
                ('attachment-0', [Reason.HEALTHY, Reason.DUPLICATE_MAPPING]),
                ('attachment-1', [Reason.DUPLICATE_MAPPING] * 2)):
            plan = self.decide(self.second(attachment_id=attachment_id))
            self.assertEqual((expected, ()), (reasons(plan), plan.due))

    def test_it_stays_while_anything_is_not_certain(self):
        spare = self.second(attachment_id=None, has_connection_info=False)
        self.assertEqual(1, len(self.decide(spare).due))
        for plan in (
                self.decide(dataclasses.replace(
                    spare, created_at=make.ago(5))),
                self.decide(spare, multiattach=True),
                self.decide(spare, status='detaching'),
                self.decide(spare, migration_status='migrating'),
                self.decide(spare, attachments=[
                    make.attachment(id='attachment-2')]),
                self.decide(spare, attachments=[make.attachment(
                    id='attachment-2', status='reserved', connected=False)]),
                self.decide(spare, attached_to=(
                    make.attached_to(attachment_id='attachment-2'),)),
                self.decide(spare, make.bdm(boot_index=0)),
                self.decide(spare, make.bdm(source_type='image')),
                self.decide(spare, make.bdm(has_connection_info=False)),
                self.decide(dataclasses.replace(spare, boot_index=0)),
                self.decide(dataclasses.replace(spare,
                                                source_type='snapshot')),
                decide(make.snapshot([make.bdm(), spare], [make.volume()],
                                     [make.attachment(connected=False)])),
                decide(make.snapshot(
                    [make.bdm(), spare], [make.volume()],
                    [make.attachment(status='attaching')]))):
            self.assertEqual((), plan.due)


class SwapTest(base.TestCase):
    """What a swap of volumes leaves that Nova has not ended."""

    BEGAN = make.ago(7200)
    SWAP = facts.Swap(BEGAN)
    NEW = make.attachment(id='attachment-2', volume_id='volume-2',
                          attached_at=make.ago(7199))

    def decide(self, old=None, new=NEW, host=make.HOST, bdm=None,
               swaps=(SWAP,), **about_new):
        """By default: a mapping of an ``available`` volume, and the new
        volume, attached.
        """
        volumes = [make.volume(id='volume-2', attached_to=(
            make.attached_to(attachment_id=new.id, host=host),), **about_new)]
        if old is None:
            old = make.volume(status='available')
        return decide(make.snapshot(
            [bdm or make.bdm()], [*volumes, old] if old else volumes, [new],
            missing=() if old else ['volume-1'], swaps=swaps,
            roots=() if bdm and bdm.is_root else (make.root(),)))

    def assert_kept(self, plan):
        self.assertEqual([Reason.SWAP_INTERRUPTED] * 2, reasons(plan))
        self.assertEqual((), plan.due)

    def test_both_disks_are_kept(self):
        self.assert_kept(self.decide())
        # It belongs to another server by now, or is gone.
        self.assert_kept(self.decide(old=make.volume(attached_to=(
            make.attached_to(make.OTHER_SERVER, 'attachment-3'),))))
        self.assert_kept(self.decide(old=False))
        self.assert_kept(self.decide(bdm=make.bdm(boot_index=0)))
        # Cinder does not say which host, or when; or has no connection.
        self.assert_kept(self.decide(host=None))
        self.assert_kept(self.decide(new=dataclasses.replace(
            self.NEW, attached_at=None, connected=False)))

    def test_the_words_name_both_sides(self):
        finding = self.decide().findings[0]
        for words in ('volume is available', 'volume-2', 'attachment-2'):
            self.assertIn(words, finding.explanation)

    def test_without_a_swap_they_go(self):
        self.assertEqual(2, len(self.decide(swaps=()).due))

    def test_what_that_swap_cannot_have_made_does_not_count(self):
        for plan in (
                self.decide(host=make.OTHER_HOST),
                self.decide(project=make.OTHER_PROJECT),
                self.decide(new=dataclasses.replace(
                    self.NEW, status='reserved', connected=False)),
                self.decide(new=dataclasses.replace(
                    self.NEW, attached_at=make.ago(86400))),
                # It failed, and the attachment is newer.
                self.decide(swaps=[facts.Swap(make.ago(20000),
                                              make.ago(19999))])):
            self.assertIn(Reason.VOLUME_AVAILABLE,
                          [f.reason for f in plan.due])
            self.assertNotIn(Reason.SWAP_INTERRUPTED, reasons(plan))

    def test_any_of_them_counts(self):
        # One before it failed, and one after it died as well.
        failed = facts.Swap(make.ago(20000), make.ago(19999))
        died = facts.Swap(make.ago(600))
        for others in ([failed], [died], [failed, died]):
            for swaps in ([self.SWAP, *others], [*others, self.SWAP]):
                self.assert_kept(self.decide(swaps=swaps))

    def test_no_later_swap_is_the_end_of_one(self):
        # It waited for its turn, while others were begun and ended.
        waited = dataclasses.replace(self.NEW, attached_at=make.ago(60))
        for later in (facts.Swap(make.ago(7199)),
                      facts.Swap(make.ago(7199), make.ago(3600))):
            self.assert_kept(self.decide(new=waited,
                                         swaps=[later, self.SWAP]))

    def test_a_swap_that_failed_ends_when_it_says_so(self):
        # By the grace period two clocks may differ.
        swap = facts.Swap(make.ago(7200), make.ago(5000))
        for age, kept in ((7501, False), (7500, True), (4700, True),
                          (4699, False)):
            plan = self.decide(swaps=[swap], new=dataclasses.replace(
                self.NEW, attached_at=make.ago(age)))
            self.assertEqual(kept, not plan.due, age)

    def test_one_swap_must_have_met_both_sides(self):
        # The mapping is older than the second one only, which failed before
        # the attachment was made.
        bdm = make.bdm(created_at=make.ago(3600))
        second = facts.Swap(make.ago(3000), make.ago(2999))
        plan = self.decide(bdm=bdm, swaps=[self.SWAP, second])
        self.assertEqual([Reason.VOLUME_AVAILABLE],
                         [f.reason for f in plan.due])
        self.assertIn(Reason.SWAP_INTERRUPTED, reasons(plan))
        self.assert_kept(self.decide(
            bdm=bdm, swaps=[self.SWAP, facts.Swap(second.began)],
            new=dataclasses.replace(self.NEW, attached_at=make.ago(2990))))

    def test_two_disks_of_which_both_swaps_died(self):
        early = make.attachment(id='attachment-3', volume_id='volume-3',
                                attached_at=make.ago(50000))
        plan = decide(make.snapshot(
            [make.bdm(), make.bdm(uuid='bdm-4', volume_id='volume-4',
                                  attachment_id='attachment-4')],
            [make.volume(status='available'),
             make.volume(id='volume-4', status='available'),
             make.volume(id='volume-2'), make.volume(id='volume-3')],
            [self.NEW, early],
            swaps=[self.SWAP, facts.Swap(make.ago(50000))]))
        self.assertEqual([Reason.SWAP_INTERRUPTED] * 4, reasons(plan))
        self.assertEqual((), plan.due)

    def test_a_mapping_that_is_newer_than_the_swap_goes(self):
        [finding] = self.decide(bdm=make.bdm(created_at=make.ago(600))).due
        self.assertEqual(Reason.VOLUME_AVAILABLE, finding.reason)

    def test_the_new_disk_is_kept_when_the_old_one_is_in_order(self):
        # Somebody has rolled back the state of the old volume.
        plan = decide(make.snapshot(
            [make.bdm()], [make.volume(), make.volume(id='volume-2')],
            [make.attachment(), self.NEW], swaps=[self.SWAP]))
        self.assertEqual([Reason.HEALTHY, Reason.SWAP_INTERRUPTED],
                         reasons(plan))
        self.assertEqual((), plan.due)

    def test_it_is_asked_for_only_where_it_matters(self):
        self.assertTrue(rules.needs_swaps(make.snapshot(
            [make.bdm()], attachments=[make.attachment(), self.NEW])))
        for attachments in ([make.attachment()], [make.attachment(
                id='attachment-2', status='reserved', connected=False)]):
            self.assertFalse(rules.needs_swaps(make.snapshot(
                [make.bdm()], attachments=attachments)))

    def test_how_it_ended(self):
        end = make.ago(60)
        for events, expected in (
                ([], facts.Swap(self.BEGAN)),
                ([(None, None)], facts.Swap(self.BEGAN)),
                ([('Error', end)], facts.Swap(self.BEGAN, end)),
                ([('Success', end), (None, None)], facts.Swap(self.BEGAN)),
                ([('Success', end)], None)):
            self.assertEqual(expected, facts.Swap.unless_it_ended_well(
                self.BEGAN, events))


class TransferredTest(base.TestCase):
    """A volume that has come to belong to another project.

    What its new project writes about the server decides nothing.
    """

    FORGED = make.attachment(id='forged')

    def decide(self, bdm, attachments, host=make.OTHER_HOST, **values):
        listed = values.pop('attached_to', ())
        return decide(make.snapshot(
            [bdm], [make.volume(project=make.OTHER_PROJECT, attached_to=(
                *listed, *(make.attached_to(attachment_id=a.id, host=host)
                           for a in attachments
                           if a.status == 'attached')), **values)],
            attachments))

    def test_with_its_own_attachment_it_is_healthy(self):
        for attachments in ([make.attachment()],
                            [make.attachment(), self.FORGED]):
            self.assertEqual(
                [Reason.HEALTHY],
                reasons(self.decide(make.bdm(), attachments)))

    def test_available_it_is_removed(self):
        [finding] = self.decide(make.bdm(), [], status='available').due
        self.assertEqual(Reason.VOLUME_AVAILABLE, finding.reason)

    def test_only_what_the_mapping_names_is_deleted_with_it(self):
        forged = [self.FORGED, make.attachment(
            id='forged-2', status='reserved', connected=False)]
        [finding] = self.decide(
            make.bdm(), [make.attachment(status='attaching'), *forged],
            status='available').due
        self.assertEqual([make.attachment(status='attaching')],
                         list(finding.left_over))
        self.assertNotIn('forged', finding.explanation)

    def test_attached_elsewhere_it_is_removed_whatever_is_forged(self):
        for forged in (self.FORGED,
                       make.attachment(id='forged', status='attaching')):
            [finding] = self.decide(
                make.bdm(), [forged], multiattach=True, attached_to=(
                    make.attached_to(make.OTHER_SERVER, 'attachment-2'),)).due
            self.assertEqual(Reason.ATTACHED_ELSEWHERE, finding.reason)
            self.assertEqual((), finding.left_over)

    def test_attached_here_by_what_no_mapping_names_it_stays(self):
        """An administrator attached it, and a migration failed later."""
        elsewhere = make.attached_to(make.OTHER_SERVER, 'attachment-2')
        live = make.attachment(id='live')
        [finding] = self.decide(
            make.bdm(attachment_id='died'), [live], host=make.HOST,
            multiattach=True, attached_to=(elsewhere,)).findings
        self.assertEqual((Reason.ATTACHMENT_MISMATCH, False, True), (
            finding.reason, finding.goes, finding.connects))
        for host in (make.OTHER_HOST, None, ''):
            [finding] = self.decide(
                make.bdm(attachment_id='died'), [live], host=host,
                multiattach=True, attached_to=(elsewhere,)).due
            self.assertEqual(Reason.ATTACHED_ELSEWHERE, finding.reason)

    def test_by_a_forged_attachment_alone_it_is_not_attached(self):
        self.assertEqual(
            [Reason.STATUS_CONTRADICTION],
            reasons(self.decide(make.bdm(), [self.FORGED])))

    def test_before_queens_its_list_decides_all_the_same(self):
        self.assertEqual([Reason.HEALTHY], reasons(self.decide(
            PRE_QUEENS, [make.attachment(connected=False)])))


class WordsTest(base.TestCase):
    """What a log line can hold."""

    def test_long_lists_are_cut(self):
        many = [make.attachment(id='attachment-%03d' % n)
                for n in range(2, 302)]
        for status in ('available', 'in-use'):
            [finding] = decide(make.snapshot(
                [make.bdm()], [make.volume(status=status)], many)).findings
            self.assertLess(len(finding.explanation), 400)
            self.assertIn('more', finding.explanation)
        [finding] = decide(make.snapshot([make.bdm()], [make.volume(
            multiattach=True, attached_to=[
                make.attached_to('server-%03d' % n) for n in range(2, 302)])],
        )).findings
        self.assertLess(len(finding.explanation), 400)
