# SPDX-License-Identifier: Apache-2.0
"""The table of the attachments, row by row."""

from __future__ import annotations

import dataclasses

import testscenarios

from nova_bdm_cleanup.rules import attachments, facts, mappings, table
from nova_bdm_cleanup.rules.facts import Policy, Reason
from nova_bdm_cleanup.rules.world import World
from nova_bdm_cleanup.tests.unit import base, make
from nova_bdm_cleanup.tests.unit.make import decide

load_tests = testscenarios.load_tests_apply_scenarios


STALE = make.attachment(id='attachment-9', volume_id='volume-9')
HEALTHY = (make.bdm(), make.volume(attached_to=(make.attached_to(),)),
           make.attachment())
VOLUME_9 = make.volume(id='volume-9')
SECOND = dataclasses.replace(STALE, volume_id='volume-1')


PRE_QUEENS = make.bdm(attachment_id=None)


def beside_a_healthy_disk(attachment, volumes=(VOLUME_9,), **values):
    bdm, volume, its = HEALTHY
    return make.snapshot([bdm], [volume, *volumes], [its, attachment],
                         **values)


def second_of_a_healthy_disk(attachment, host, own_host=make.HOST,
                             own=HEALTHY[2], **values):
    """A further attachment of the volume, with the hosts that Cinder tells."""
    return make.snapshot(
        [make.bdm()], [make.volume(attached_to=(
            make.attached_to(host=own_host),
            make.attached_to(attachment_id=attachment.id, host=host)))],
        [own, attachment], **values)


#: id, the look, the reason (None: no finding of its own), deleted?
STALE_ROWS = (
    ('only reserved is deleted', beside_a_healthy_disk(
        dataclasses.replace(STALE, status='reserved', connected=False)),
     Reason.STALE_ATTACHMENT, True),
    ('only reserved, for a volume in order, is deleted',
     beside_a_healthy_disk(dataclasses.replace(
         STALE, volume_id='volume-1', status='reserved', connected=False)),
     Reason.STALE_ATTACHMENT, True),
    ('connected without a mapping is deleted',
     beside_a_healthy_disk(STALE), Reason.STALE_ATTACHMENT, True),
    ('connected by a swap that has not ended stays',
     beside_a_healthy_disk(STALE, swaps=[facts.Swap(make.ago(60))]),
     Reason.SWAP_INTERRUPTED, False),
    ('connected but not attached without a mapping is deleted',
     beside_a_healthy_disk(dataclasses.replace(STALE, status='attaching')),
     Reason.STALE_ATTACHMENT, True),
    ('legacy without a mapping is deleted', beside_a_healthy_disk(
        dataclasses.replace(STALE, connected=False)),
     Reason.STALE_ATTACHMENT, True),
    ('attaching and not connected yet has to wait', beside_a_healthy_disk(
        dataclasses.replace(STALE, status='attaching', connected=False)),
     Reason.OPERATION_IN_FLIGHT, False),
    ('of another server is cross-wired', beside_a_healthy_disk(
        dataclasses.replace(STALE, server_id=make.OTHER_SERVER)),
     Reason.CROSS_WIRED, False),
    ('of no server is cross-wired', beside_a_healthy_disk(
        dataclasses.replace(STALE, server_id=None)),
     Reason.CROSS_WIRED, False),
    ('of a volume that Cinder does not know contradicts',
     beside_a_healthy_disk(STALE, volumes=(), missing=['volume-9']),
     Reason.STATUS_CONTRADICTION, False),
    ('of a volume that is busy is kept', beside_a_healthy_disk(
        STALE, [dataclasses.replace(VOLUME_9, status='error')]),
     Reason.VOLUME_BUSY, False),
    ('of a volume that is deleted right now is kept', beside_a_healthy_disk(
        STALE, [dataclasses.replace(VOLUME_9, status='deleting')]),
     Reason.VOLUME_BUSY, False),
    ('while its own volume is being detached has to wait',
     beside_a_healthy_disk(
         STALE, [dataclasses.replace(VOLUME_9, status='detaching')]),
     Reason.OPERATION_IN_FLIGHT, False),
    ('while a volume is retyped has to wait', beside_a_healthy_disk(
        STALE, [VOLUME_9, make.volume(id='volume-8', status='retyping')]),
     Reason.OPERATION_IN_FLIGHT, False),
    ('while a volume is in maintenance has to wait', beside_a_healthy_disk(
        STALE, [VOLUME_9, make.volume(id='volume-8', status='maintenance')]),
     Reason.OPERATION_IN_FLIGHT, False),
    ('while a volume migrates has to wait', beside_a_healthy_disk(
        STALE, [VOLUME_9, make.volume(id='volume-8',
                                      migration_status='migrating')]),
     Reason.OPERATION_IN_FLIGHT, False),
    ('while an administrator holds the server has to wait',
     beside_a_healthy_disk(STALE, locked_by_admin=True),
     Reason.OPERATION_IN_FLIGHT, False),
    ('a second of a healthy volume, no host known, is a duplicate',
     beside_a_healthy_disk(SECOND), Reason.DUPLICATE_ATTACHMENT, False),
    ('a second of a healthy volume, of this host, is a duplicate',
     second_of_a_healthy_disk(SECOND, make.HOST),
     Reason.DUPLICATE_ATTACHMENT, False),
    ('a second of a healthy volume, of another host, is deleted',
     second_of_a_healthy_disk(SECOND, make.OTHER_HOST),
     Reason.STALE_ATTACHMENT, True),
    # Up to Nova 26 a host could be renamed, and Cinder keeps its old name.
    *(('a second of a healthy volume, of this host by the name %s, is a '
       'duplicate' % name, second_of_a_healthy_disk(SECOND, name),
       Reason.DUPLICATE_ATTACHMENT, False)
      for name in ('compute-1.example.org', 'COMPUTE-1', 'Compute-1.local')),
    ('a second of a healthy volume, of a host with another initiator, is '
     'deleted', second_of_a_healthy_disk(
         dataclasses.replace(SECOND, initiators=frozenset(('5001',))),
         make.OTHER_HOST, own=make.attachment(
             initiators=frozenset(('5002', '5003')))),
     Reason.STALE_ATTACHMENT, True),
    ('a second of a healthy volume, by the same initiator, is a duplicate '
     'whatever its host is called', second_of_a_healthy_disk(
         dataclasses.replace(SECOND, initiators=frozenset(('5001', '5002'))),
         make.OTHER_HOST, own=make.attachment(
             initiators=frozenset(('5002', '5003')))),
     Reason.DUPLICATE_ATTACHMENT, False),
    # A guest whose live migration went wrong may run over there.
    ('a second of a volume that is healthy on another host is a duplicate',
     second_of_a_healthy_disk(SECOND, make.HOST, make.OTHER_HOST),
     Reason.DUPLICATE_ATTACHMENT, False),
    ('a second of a volume that is healthy nobody knows where is a duplicate',
     second_of_a_healthy_disk(SECOND, make.OTHER_HOST, None),
     Reason.DUPLICATE_ATTACHMENT, False),
    ('a legacy second of a healthy volume is a duplicate',
     beside_a_healthy_disk(dataclasses.replace(SECOND, connected=False)),
     Reason.DUPLICATE_ATTACHMENT, False),
    ('reserved yet connected, a second of a healthy volume, is a duplicate',
     beside_a_healthy_disk(dataclasses.replace(SECOND, status='reserved')),
     Reason.DUPLICATE_ATTACHMENT, False),
    ('while Nova lists no root disk contradicts',
     beside_a_healthy_disk(STALE, roots=()),
     Reason.STATUS_CONTRADICTION, False),
    ('seen with the credentials of the project only is kept',
     beside_a_healthy_disk(STALE, sees_all=False),
     Reason.CANNOT_SEE_PROJECT, False),
    ('only reserved, seen with the credentials of the project, is kept',
     beside_a_healthy_disk(dataclasses.replace(
         STALE, status='reserved', connected=False), sees_all=False),
     Reason.CANNOT_SEE_PROJECT, False),
    ('of a volume of another project is left alone', beside_a_healthy_disk(
        STALE, [dataclasses.replace(VOLUME_9, project=make.OTHER_PROJECT)]),
     None, False),
    ('of a volume of nobody knows what project is kept',
     beside_a_healthy_disk(
         STALE, [dataclasses.replace(VOLUME_9, project=None)]),
     Reason.CANNOT_SEE_PROJECT, False),
    ('of a volume whose mapping is in flight is that row\'s affair',
     make.snapshot([make.bdm()], [make.volume(status='reserved')],
                   [make.attachment(), make.attachment(id='attachment-2')]),
     None, False),
    ('of a volume whose mapping is older than Queens is that mapping\'s',
     make.snapshot([PRE_QUEENS], [make.volume(
         attached_to=(make.attached_to(),))],
         [make.attachment(connected=False)]), None, False),
    ('of a volume that an image mapping has is accounted for',
     make.snapshot([], [make.volume()], [make.attachment()],
                   roots=[make.bdm(source_type='image', boot_index=0)]),
     None, False),
    ('of a volume that a busy image mapping has is that row\'s affair',
     make.snapshot([], [make.volume(status='detaching')],
                   [make.attachment(), make.attachment(id='attachment-2')],
                   roots=[make.bdm(source_type='image', boot_index=0)]),
     None, False),
)


class AttachmentsTest(base.TestCase):
    """Each row of the second table: an attachment that no mapping carries."""

    scenarios = [
        (name, {'seen': seen, 'expected': expected, 'deleted': deleted})
        for name, seen, expected, deleted in STALE_ROWS]

    def test_row(self):
        plan = decide(self.seen)

        found = [f for f in plan.findings if f.attachment and not f.bdm]
        self.assertEqual([self.expected] if self.expected else [],
                         [f.reason for f in found])
        self.assertEqual(
            [f.attachment for f in found] if self.deleted else [],
            [f.attachment for f in plan.due])


class CoverageTest(base.TestCase):

    def test_every_row_has_a_test_above(self):
        tested = set()
        for _name, seen, _expected, _deleted in STALE_ROWS:
            world = World(seen, Policy(), make.NOW)
            found = mappings.judge(world)
            tested.update(id(table.first(
                attachments.ATTACHMENTS.rows,
                attachments.AttachmentFacts(a, found, world)))
                for a in world.unaccounted)
        self.assertEqual([], [r.cell for r in attachments.ATTACHMENTS.rows
                              if id(r) not in tested])


class AttachmentTest(base.TestCase):
    """What the second table says about hosts and several attachments."""

    def test_explanations_tell_the_cases_apart(self):
        for seen, words in (
                (beside_a_healthy_disk(STALE), 'no mapping of the server has'),
                (beside_a_healthy_disk(dataclasses.replace(
                    STALE, status='reserved', connected=False)),
                 'only reserves'),
                (second_of_a_healthy_disk(SECOND, make.OTHER_HOST),
                 'another host')):
            [finding] = decide(seen).due
            self.assertIn(words, finding.explanation)

    def test_every_mapping_of_the_volume_must_be_of_this_host(self):
        here = make.bdm()
        there = make.bdm(uuid='bdm-2', attachment_id='attachment-2')
        volume = make.volume(attached_to=(
            make.attached_to(),
            make.attached_to(attachment_id='attachment-2',
                             host=make.OTHER_HOST)))
        for bdms in ([here, there], [there, here]):
            plan = decide(make.snapshot(bdms, [volume], [
                make.attachment(), make.attachment(id='attachment-2'),
                SECOND]))
            self.assertEqual((), plan.due)

    def test_several_stale_attachments_of_one_volume_all_go(self):
        plan = decide(make.snapshot([], [VOLUME_9], [
            STALE, dataclasses.replace(STALE, id='attachment-8')]))
        self.assertEqual(2, len(plan.due))

    def test_only_what_may_be_left_on_this_host_is_disconnected(self):
        def disconnected(seen):
            [finding] = decide(seen).due
            return finding.disconnect

        def of_host(host):
            return dataclasses.replace(VOLUME_9, attached_to=(
                make.attached_to(attachment_id='attachment-9', host=host),))

        self.assertTrue(disconnected(beside_a_healthy_disk(
            STALE, [of_host(make.HOST)])))
        self.assertTrue(disconnected(beside_a_healthy_disk(
            STALE, [of_host(make.HOST.upper())])))
        # Its address may be that of another disk here.
        self.assertFalse(disconnected(beside_a_healthy_disk(STALE)))
        self.assertFalse(disconnected(beside_a_healthy_disk(
            STALE, [of_host(make.OTHER_HOST)])))
        self.assertFalse(disconnected(beside_a_healthy_disk(
            dataclasses.replace(STALE, status='reserved', connected=False))))
        # The healthy mapping of the same volume is connected here.
        self.assertFalse(disconnected(
            second_of_a_healthy_disk(SECOND, make.OTHER_HOST)))


FOREIGN = dataclasses.replace(VOLUME_9, project=make.OTHER_PROJECT)
FOREIGN_KINDS = (
    {}, {'connected': False}, {'status': 'reserved', 'connected': False},
    {'status': 'reserved'}, {'status': 'attaching', 'connected': False},
    {'status': 'attaching'})


class ForeignTest(base.TestCase):
    """What another project wrote on a volume of its own."""

    def test_it_is_left_alone_without_a_word(self):
        for values in FOREIGN_KINDS:
            plan = decide(beside_a_healthy_disk(
                dataclasses.replace(STALE, **values), [FOREIGN]))
            self.assertEqual([Reason.HEALTHY],
                             [f.reason for f in plan.findings])

    def test_it_does_not_count(self):
        # Eight of them kept a dangling disk for ever.
        plan = decide(make.snapshot(
            [make.bdm()], [make.volume(status='available'), FOREIGN],
            [dataclasses.replace(STALE, id='foreign-%d' % n)
             for n in range(99)]))
        self.assertEqual([Reason.VOLUME_AVAILABLE],
                         [f.reason for f in plan.due])

    def test_its_volume_does_not_move_the_server(self):
        moving = dataclasses.replace(FOREIGN, id='volume-8',
                                     status='detaching')
        plan = decide(make.snapshot(
            [], [VOLUME_9, moving],
            [STALE, dataclasses.replace(
                STALE, id='foreign', volume_id='volume-8')]))
        self.assertEqual([STALE], [f.attachment for f in plan.due])

    def test_the_volume_of_a_mapping_moves_the_server_whosever_it_is(self):
        moving = make.volume(status='detaching', project=make.OTHER_PROJECT)
        plan = decide(make.snapshot(
            [make.bdm()], [VOLUME_9, moving], [make.attachment(), STALE]))
        self.assertEqual((), plan.due)

    def test_what_a_mapping_names_is_never_foreign(self):
        # An administrator may attach a volume of another project.
        plan = decide(make.snapshot(
            [make.bdm()], [make.volume(project=make.OTHER_PROJECT)],
            [make.attachment()]))
        self.assertEqual([Reason.HEALTHY],
                         [f.reason for f in plan.findings])

    def test_a_second_one_of_a_mapped_foreign_volume_is_left_alone(self):
        for values in FOREIGN_KINDS:
            plan = decide(make.snapshot(
                [make.bdm()], [make.volume(project=make.OTHER_PROJECT)],
                [make.attachment(), dataclasses.replace(SECOND, **values)]))
            self.assertEqual([Reason.HEALTHY],
                             [f.reason for f in plan.findings])

    def test_whose_it_is_must_be_known(self):
        for server, project in ((make.PROJECT, None), (None, make.PROJECT),
                                (None, None)):
            plan = decide(beside_a_healthy_disk(
                STALE, [dataclasses.replace(VOLUME_9, project=project)],
                project=server))
            self.assertEqual(
                [Reason.HEALTHY, Reason.CANNOT_SEE_PROJECT],
                [f.reason for f in plan.findings])
            self.assertEqual((), plan.due)
