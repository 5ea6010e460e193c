# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""The decision table, row by row."""

from __future__ import annotations

import dataclasses
import datetime

import testscenarios

from nova_bdm_cleanup import conf
from nova_bdm_cleanup import model
from nova_bdm_cleanup.model import Reason
from nova_bdm_cleanup import rules
from nova_bdm_cleanup.tests.unit import base
from nova_bdm_cleanup.tests.unit import make

load_tests = testscenarios.load_tests_apply_scenarios


def decide(snapshot, now=make.NOW, **policy):
    return rules.decide(snapshot, conf.Policy(**policy), now)


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
    ('an available volume and what a cleanup disconnected, however young',
     dataclasses.replace(YOUNG, is_disconnected=True),
     make.volume(status='available'), (), Reason.VOLUME_AVAILABLE),
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


class BdmTableTest(base.TestCase):
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
        self.assertEqual(self.expected in model.DANGLING, finding.is_due)
        if finding.is_due:
            self.assertEqual(
                model.RemoveBdm(self.bdm, self.attachments), finding.action)
        else:
            self.assertIsNone(finding.action)


class BdmTest(base.TestCase):
    """What the first table says about time, roots and siblings."""

    def test_grace_period_is_over_at_its_last_second(self):
        grace = datetime.timedelta(seconds=300)

        def reason(age):
            bdm = dataclasses.replace(YOUNG, created_at=make.NOW - age)
            return reasons(decide(make.snapshot(
                [bdm], [make.volume(status='available')]),
                grace_period=grace))

        second = datetime.timedelta(seconds=1)
        self.assertEqual([Reason.ATTACH_IN_FLIGHT], reason(grace - second))
        self.assertEqual([Reason.VOLUME_AVAILABLE], reason(grace))

    def test_mapping_from_the_future_is_young(self):
        # The clocks of the API's host and of this one differ.
        bdm = dataclasses.replace(YOUNG, created_at=make.ago(-3600))
        self.assertEqual(
            [Reason.ATTACH_IN_FLIGHT],
            reasons(decide(make.snapshot(
                [bdm], [make.volume(status='available')]))))

    def test_mapping_of_unknown_age_is_young(self):
        bdm = dataclasses.replace(YOUNG, created_at=None)
        self.assertEqual(
            [Reason.ATTACH_IN_FLIGHT],
            reasons(decide(make.snapshot(
                [bdm], [make.volume(status='available')]))))

    def test_no_grace_period(self):
        bdm = dataclasses.replace(YOUNG, created_at=make.NOW)
        self.assertEqual(
            [Reason.VOLUME_AVAILABLE],
            reasons(decide(make.snapshot(
                [bdm], [make.volume(status='available')]),
                grace_period=datetime.timedelta(0))))

    def test_stuck_from_the_limit_on(self):
        def reason(age):
            return reasons(decide(make.snapshot(
                [make.bdm()],
                [make.volume(status='attaching', updated_at=make.ago(age))]),
                stuck_after=datetime.timedelta(seconds=120)))

        self.assertEqual([Reason.OPERATION_IN_FLIGHT], reason(119))
        self.assertEqual([Reason.STUCK], reason(120))

    def test_stuck_says_since_when(self):
        [finding] = decide(make.snapshot(
            [make.bdm()],
            [make.volume(status='attaching', updated_at=make.ago(7200))])
        ).findings
        self.assertEqual(
            'the volume is attaching since 2026-03-14 01:00:00+00:00',
            finding.explanation)

    def test_missing_is_no_proof_to_the_credentials_of_a_project(self):
        # Cinder says the same of a volume of another project, which an
        # administrator may have attached.
        plan = decide(make.snapshot(
            [make.bdm()], [make.volume(id='volume-2')], missing=['volume-1'],
            sees_all=False))
        self.assertEqual([Reason.CANNOT_SEE_PROJECT], reasons(plan))
        self.assertEqual((), plan.due)

    def test_available_is_proof_to_the_credentials_of_a_project(self):
        plan = decide(make.snapshot(
            [make.bdm()], [make.volume(status='available')], sees_all=False))
        self.assertEqual(1, plan.removals)

    def test_mapping_without_a_volume_is_in_flight(self):
        bdm = make.bdm(volume_id=None, attachment_id=None,
                       has_connection_info=False)
        self.assertEqual([Reason.OPERATION_IN_FLIGHT],
                         reasons(decide(make.snapshot([bdm]))))

    def test_only_volume_to_volume_is_ever_removed(self):
        for kind in (('image', 'volume'), ('snapshot', 'volume'),
                     ('blank', 'volume'), ('image', 'local'),
                     ('blank', 'local'), ('volume', 'local'), (None, None)):
            for boot_index in (0, None):
                bdm = make.bdm(source_type=kind[0], destination_type=kind[1],
                               boot_index=boot_index)
                plan = decide(make.snapshot([bdm], missing=['volume-1']))
                self.assertEqual((), plan.due, kind)

    def test_dangling_root_is_never_removed(self):
        bdm = make.bdm(boot_index=0)
        for volume, missing in (
                ((), ['volume-1']),
                ([make.volume(status='available')], ()),
                ([make.volume(attached_to=(
                    make.attached_to(make.OTHER_SERVER),))], ())):
            [finding] = decide(
                make.snapshot([bdm], volume, missing=missing)).findings
            self.assertEqual(Reason.ROOT_VOLUME_DANGLING, finding.reason)
            self.assertIsNone(finding.action)

    def test_dangling_root_made_from_an_image_is_told(self):
        # The usual way to boot from a volume.
        for source in ('image', 'snapshot', 'blank'):
            bdm = make.bdm(source_type=source, boot_index=0)
            [finding] = decide(
                make.snapshot([bdm], missing=['volume-1'])).findings
            self.assertEqual(Reason.ROOT_VOLUME_DANGLING, finding.reason)

    def test_the_left_over_attachment_of_a_dangling_root_stays(self):
        plan = decide(make.snapshot(
            [make.bdm(boot_index=0)], [make.volume(status='available')],
            [make.attachment(), make.attachment(id='attachment-2')]))
        self.assertEqual([Reason.ROOT_VOLUME_DANGLING], reasons(plan))

    def test_second_mapping_of_the_root_volume_stays(self):
        plan = decide(make.snapshot(
            [make.bdm(boot_index=0),
             make.bdm(uuid='bdm-2', attachment_id=None)],
            missing=['volume-1']))
        self.assertEqual([Reason.ROOT_VOLUME_DANGLING] * 2, reasons(plan))
        self.assertEqual((), plan.due)

    def test_second_mapping_of_a_volume_made_from_an_image_stays(self):
        plan = decide(make.snapshot(
            [make.bdm(source_type='image'),
             make.bdm(uuid='bdm-2', attachment_id=None)],
            missing=['volume-1']))
        self.assertEqual((), plan.due)
        for finding in plan.findings:
            self.assertIn('; kept, since', finding.explanation)

    def test_two_dangling_mappings_of_one_volume_both_go(self):
        plan = decide(make.snapshot(
            [make.bdm(), make.bdm(uuid='bdm-2', attachment_id=None)],
            missing=['volume-1']))
        self.assertEqual(2, plan.removals)

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
                [(f.bdm, f.action.attachments) for f in plan.due])

    def test_a_dangling_mapping_waits_for_its_sibling(self):
        # The same volume is being attached once more: its attachment is not
        # the old mapping's to delete.
        plan = decide(make.snapshot(
            [make.bdm(attachment_id='attachment-0'),
             make.bdm(uuid='bdm-2', has_connection_info=False,
                      created_at=make.ago(5))],
            [make.volume(status='available')],
            [make.attachment(status='reserved', connected=False)]))
        self.assertIn(Reason.ATTACH_IN_FLIGHT, reasons(plan))
        self.assertEqual((), plan.due)

    def test_a_duplicate_mapping_without_attachment_stays(self):
        plan = decide(make.snapshot(
            [make.bdm(), make.bdm(uuid='bdm-2', attachment_id=None,
                                  has_connection_info=False)],
            [make.volume()], [make.attachment()]))
        self.assertEqual([Reason.HEALTHY, Reason.ATTACHMENT_MISMATCH],
                         reasons(plan))

    def test_an_attachment_that_another_mapping_carries_is_not_deleted(self):
        # attachment-1 is of volume-1, but the mapping of volume-2 names it.
        plan = decide(make.snapshot(
            [make.bdm(attachment_id=None),
             make.bdm(uuid='bdm-2', volume_id='volume-2')],
            [make.volume(status='available'), make.volume(id='volume-2')],
            [make.attachment()]))
        self.assertIn(Reason.CROSS_WIRED, reasons(plan))
        self.assertEqual((), plan.due)

    def test_an_attachment_of_another_server_is_not_deleted_with_it(self):
        # It is in view only because another mapping names it.
        plan = decide(make.snapshot(
            [make.bdm(attachment_id=None),
             make.bdm(uuid='bdm-2', volume_id='volume-2')],
            [make.volume(status='available'), make.volume(id='volume-2')],
            [make.attachment(server_id=make.OTHER_SERVER)]))
        self.assertEqual([()], [f.action.attachments for f in plan.due])

    def test_the_attachment_of_the_mapping_goes_last(self):
        # Should it end half way, the volume is in use by it again.
        plan = decide(make.snapshot(
            [make.bdm(attachment_id='b')], [make.volume(status='available')],
            [make.attachment(id='a'), make.attachment(id='b'),
             make.attachment(id='c'),
             make.attachment(id='d', status='reserved', connected=False)]))
        [finding] = plan.due
        self.assertEqual(['d', 'a', 'c', 'b'],
                         [a.id for a in finding.action.attachments])

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


STALE = make.attachment(id='attachment-9', volume_id='volume-9')
HEALTHY = (make.bdm(), make.volume(attached_to=(make.attached_to(),)),
           make.attachment())
VOLUME_9 = make.volume(id='volume-9')
SECOND = dataclasses.replace(STALE, volume_id='volume-1')


def beside_a_healthy_disk(attachment, volumes=(VOLUME_9,), **values):
    bdm, volume, its = HEALTHY
    return make.snapshot([bdm], [volume, *volumes], [its, attachment],
                         **values)


def second_of_a_healthy_disk(attachment, host, own_host=make.HOST, **values):
    """A further attachment of the volume, with the hosts that Cinder tells."""
    return make.snapshot(
        [make.bdm()], [make.volume(attached_to=(
            make.attached_to(host=own_host),
            make.attached_to(attachment_id=attachment.id, host=host)))],
        [make.attachment(), attachment], **values)


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


class AttachmentTableTest(base.TestCase):
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
            [f.action.attachment for f in plan.due])


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
            return finding.action.disconnect

        def of_host(host):
            return dataclasses.replace(VOLUME_9, attached_to=(
                make.attached_to(attachment_id='attachment-9', host=host),))

        self.assertTrue(disconnected(beside_a_healthy_disk(
            STALE, [of_host(make.HOST)])))
        # Its address may be that of another disk here.
        self.assertFalse(disconnected(beside_a_healthy_disk(STALE)))
        self.assertFalse(disconnected(beside_a_healthy_disk(
            STALE, [of_host(make.OTHER_HOST)])))
        self.assertFalse(disconnected(beside_a_healthy_disk(
            dataclasses.replace(STALE, status='reserved', connected=False))))
        # The healthy mapping of the same volume is connected here.
        self.assertFalse(disconnected(
            second_of_a_healthy_disk(SECOND, make.OTHER_HOST)))

    def test_what_an_image_mapping_carries_is_accounted_for(self):
        plan = decide(make.snapshot(
            [make.bdm(source_type='image')], [make.volume()],
            [make.attachment()]))
        self.assertEqual((), plan.due)


class PolicyTest(base.TestCase):
    """What the operator allows."""

    def dangling(self, count=1, **values):
        return make.snapshot(
            [make.bdm(uuid='gone-%d' % n, volume_id='gone-%d' % n,
                      attachment_id=None) for n in range(count)],
            missing=['gone-%d' % n for n in range(count)], **values)

    def test_words_of_remove_when(self):
        looks = {
            Reason.VOLUME_MISSING: self.dangling(),
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
        self.assertIsNotNone(finding.action)

    def test_leaving_stale_attachments_does_not_keep_mappings(self):
        plan = decide(make.snapshot(
            [make.bdm()], [make.volume(status='available')],
            [make.attachment()]), stale_attachments=False)
        self.assertEqual(1, plan.removals)

    def test_a_server_can_be_opted_out(self):
        plan = decide(make.snapshot(
            [make.bdm()], [make.volume(status='available'), VOLUME_9],
            [STALE], keep=True))
        self.assertEqual([Reason.OPTED_OUT] * 2,
                         [f.withheld for f in plan.findings])

    def test_a_volume_can_be_opted_out(self):
        plan = decide(make.snapshot(
            [make.bdm(attachment_id=None)],
            [make.volume(status='available', keep=True),
             dataclasses.replace(VOLUME_9, keep=True)], [STALE]))
        self.assertEqual([Reason.OPTED_OUT] * 2,
                         [f.withheld for f in plan.findings])

    def test_as_many_as_the_cap_are_removed(self):
        plan = decide(self.dangling(3), max_removals=3)
        self.assertEqual(3, plan.removals)

    def test_one_more_than_the_cap_and_none_is_removed(self):
        plan = decide(self.dangling(4), max_removals=3)
        self.assertEqual((), plan.due)
        self.assertEqual([Reason.OVER_LIMIT] * 4,
                         [f.withheld for f in plan.findings])

    def test_over_the_cap_stale_attachments_stay_too(self):
        look = self.dangling(2)
        look = dataclasses.replace(
            look, volumes={**look.volumes, 'volume-9': VOLUME_9},
            attachments=(STALE,))
        self.assertEqual((), decide(look, max_removals=1).due)

    def test_attached_stale_attachments_count(self):
        # A list of mappings that is not whole makes healthy ones look so.
        attached = [dataclasses.replace(STALE, id='attachment-%d' % n)
                    for n in range(3)]
        look = make.snapshot([], [VOLUME_9], attached)
        self.assertEqual(3, len(decide(look, max_removals=3).due))
        self.assertEqual((), decide(look, max_removals=2).due)

    def test_reserved_stale_attachments_do_not_count(self):
        reserved = [dataclasses.replace(
            STALE, id='attachment-%d' % n, status='reserved',
            connected=False) for n in range(9)]
        look = make.snapshot([], [VOLUME_9], reserved)
        self.assertEqual(9, len(decide(look, max_removals=1).due))

    def test_what_is_not_selected_does_not_count(self):
        look = self.dangling(2)
        look = dataclasses.replace(
            look, bdms=look.bdms + (make.bdm(volume_id='volume-9'),),
            volumes={**look.volumes, 'volume-9': dataclasses.replace(
                VOLUME_9, status='available')})
        plan = decide(look, max_removals=1, remove_when=frozenset(
            [Reason.VOLUME_AVAILABLE]))
        self.assertEqual(1, plan.removals)

    def test_a_cinder_that_knows_no_witness_is_suspect(self):
        plan = decide(self.dangling(witness=False))
        self.assertEqual([Reason.CINDER_SUSPECT],
                         [f.withheld for f in plan.findings])

    def test_a_suspect_cinder_changes_nothing_else_either(self):
        look = self.dangling(witness=False)
        look = dataclasses.replace(
            look, volumes={**look.volumes, 'volume-9': VOLUME_9},
            attachments=(STALE,))
        self.assertEqual((), decide(look).due)

    def test_a_known_witness_lets_it_happen(self):
        self.assertEqual(1, decide(self.dangling(witness=True)).removals)

    def test_no_witness_to_ask_lets_it_happen(self):
        self.assertEqual(1, decide(self.dangling(witness=None)).removals)

    def test_nothing_missing_needs_no_witness(self):
        plan = decide(make.snapshot(
            [make.bdm()], [make.volume(status='available')], witness=False))
        self.assertEqual(1, plan.removals)

    def test_a_witness_is_needed_only_when_everything_is_gone(self):
        self.assertFalse(rules.needs_witness({}))
        self.assertTrue(rules.needs_witness({'volume-1': None}))
        self.assertFalse(rules.needs_witness(
            {'volume-1': None, 'volume-2': make.volume(id='volume-2')}))


class ConfirmTest(base.TestCase):
    """A second look can only take away."""

    def setUp(self):
        super().setUp()
        self.bdm = make.bdm()
        self.left_over = make.attachment()
        self.look = make.snapshot(
            [self.bdm], [make.volume(status='available'), VOLUME_9],
            [self.left_over, STALE])
        self.first = decide(self.look)
        self.assertEqual(2, len(self.first.due))

    def confirm(self, **changes):
        second = decide(dataclasses.replace(self.look, **changes))
        return rules.confirm(self.first, second)

    def with_attachments(self, **changes):
        return self.confirm(attachments=(
            dataclasses.replace(self.left_over, **changes), STALE))

    def with_bdm(self, **changes):
        return self.confirm(bdms=(
            make.root(), dataclasses.replace(self.bdm, **changes)))

    def assertOnlyTheStaleOneIsLeft(self, plan):
        self.assertEqual([Reason.STALE_ATTACHMENT],
                         [f.reason for f in plan.due])
        [refused] = [f for f in plan.findings if not f.is_due]
        self.assertEqual(Reason.SECOND_LOOK_DIFFERS, refused.withheld)

    def assertNotRemoved(self, plan):
        self.assertEqual([], [f for f in plan.due if f.bdm])

    def test_the_same_again_changes_nothing(self):
        self.assertEqual(self.first, self.confirm())

    def test_another_reason(self):
        self.assertOnlyTheStaleOneIsLeft(self.confirm(
            volumes={'volume-1': make.volume(), 'volume-9': VOLUME_9}))

    def test_another_attachment_in_the_mapping(self):
        # A swap or "nova-manage volume_attachment refresh" came in between.
        self.assertOnlyTheStaleOneIsLeft(
            self.with_bdm(attachment_id='attachment-2'))

    def test_another_volume_in_the_mapping(self):
        self.assertOnlyTheStaleOneIsLeft(
            self.with_bdm(volume_id='volume-2'))

    def test_a_mapping_that_has_become_connected(self):
        self.assertOnlyTheStaleOneIsLeft(
            self.with_bdm(has_connection_info=False))

    def test_a_mapping_that_has_become_the_root(self):
        self.assertOnlyTheStaleOneIsLeft(self.with_bdm(boot_index=0))

    def test_a_mapping_that_is_gone(self):
        self.assertOnlyTheStaleOneIsLeft(self.confirm(bdms=(make.root(),)))

    def test_a_mapping_that_is_another_row(self):
        self.assertOnlyTheStaleOneIsLeft(self.with_bdm(uuid='bdm-2'))

    def test_an_attachment_that_has_changed(self):
        for change in ({'status': 'reserved'}, {'connected': False},
                       {'server_id': make.OTHER_SERVER}):
            self.assertNotRemoved(self.with_attachments(**change))

    def test_an_attachment_more(self):
        self.assertNotRemoved(self.confirm(attachments=(
            self.left_over, STALE, make.attachment(id='attachment-2'))))

    def test_an_attachment_less(self):
        self.assertOnlyTheStaleOneIsLeft(self.confirm(attachments=(STALE,)))

    def test_a_stale_attachment_that_is_gone(self):
        plan = self.confirm(attachments=(self.left_over,))
        self.assertEqual([Reason.VOLUME_AVAILABLE],
                         [f.reason for f in plan.due])

    def test_a_stale_attachment_that_became_connected(self):
        reserved = dataclasses.replace(
            STALE, status='reserved', connected=False)
        first = decide(dataclasses.replace(
            self.look, attachments=(reserved,)))
        second = decide(dataclasses.replace(self.look, attachments=(STALE,)))
        plan = rules.confirm(first, second)
        self.assertNotIn(Reason.STALE_ATTACHMENT,
                         [f.reason for f in plan.due])

    def test_what_only_the_second_look_finds_waits(self):
        only = decide(dataclasses.replace(
            self.look, attachments=(self.left_over,)))
        self.assertEqual(only, rules.confirm(only, self.first))

    def test_a_second_look_that_withholds_everything(self):
        for second in (self.first.withhold(Reason.REBOOT_LOST),
                       self.first.withhold(Reason.CINDER_SUSPECT),
                       model.Plan()):
            self.assertEqual((), rules.confirm(self.first, second).due)

    def test_a_second_look_that_withholds_says_why(self):
        plan = rules.confirm(
            self.first, self.first.withhold(Reason.REBOOT_LOST))
        self.assertEqual([Reason.REBOOT_LOST] * 2,
                         [f.withheld for f in plan.findings])


class PlanTest(base.TestCase):
    """The small arithmetic of findings and plans."""

    def test_withhold_leaves_what_is_withheld_already(self):
        due = model.Finding(Reason.VOLUME_MISSING, 'gone', make.bdm(),
                            action=model.RemoveBdm(make.bdm()))
        other = dataclasses.replace(due, withheld=Reason.NOT_SELECTED)
        kept = model.Finding(Reason.HEALTHY, 'attached', make.bdm())
        plan = model.Plan((due, other, kept)).withhold(Reason.OVER_LIMIT)
        self.assertEqual([Reason.OVER_LIMIT, Reason.NOT_SELECTED, None],
                         [f.withheld for f in plan.findings])

    def test_a_finding_names_its_subject(self):
        of_bdm = model.Finding(Reason.HEALTHY, '', make.bdm())
        of_attachment = model.Finding(Reason.CROSS_WIRED, '',
                                      attachment=STALE)
        of_nothing = model.Finding(Reason.HEALTHY, '')
        self.assertEqual(
            [('volume-1', 'attachment-1', '/dev/vdb'),
             ('volume-9', 'attachment-9', None), (None, None, None)],
            [(f.volume_id, f.attachment_id, f.device)
             for f in (of_bdm, of_attachment, of_nothing)])

    def test_connection_information_is_not_shown(self):
        secret = make.attachment(connection_info={'auth_password': 'hush'})
        self.assertNotIn('hush', repr(secret))
        self.assertEqual(make.attachment(), secret)


class ReasonTest(base.TestCase):
    """The codes are what operators grep for."""

    def test_codes_are_words_for_grep(self):
        for reason in Reason:
            self.assertRegex(reason.value, '^[a-z]+(-[a-z]+)*$')
            self.assertEqual(reason.value, str(reason))
            self.assertEqual(reason.value, '%s' % reason)
