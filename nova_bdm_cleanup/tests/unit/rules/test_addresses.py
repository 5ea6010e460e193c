# SPDX-License-Identifier: Apache-2.0
"""The rule of addresses: its table, and the records that it takes."""

from __future__ import annotations

import dataclasses
from unittest import mock

from hypothesis import given, strategies as st
import testscenarios

from nova_bdm_cleanup.rules import addresses, facts
from nova_bdm_cleanup.rules.addresses import (
    AddressFacts,
    OtherHost,
    Records,
    Verdict,
)
from nova_bdm_cleanup.rules.facts import Action, Move, Progress
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import base, make

load_tests = testscenarios.load_tests_apply_scenarios

POLICY = facts.Policy()


def claim(**values):
    """Return another server's row whose guest is off; Cinder denies it."""
    return facts.Claim(**{
        'server': make.OTHER_SERVER, 'volume_id': 'volume-2',
        'attachment_id': 'attachment-2', 'runs': False, 'may_run': False,
        'is_young': False, 'is_attached': False, **values})


#: Its guest runs.
RUNS = {'runs': True, 'may_run': True}


def move(began=600, progress=Progress.OPEN, changed=None, **values):
    """Return a move of the server to this host."""
    return Move(**{
        'origin': make.OTHER_HOST, 'target': make.HOST, 'progress': progress,
        'began': make.ago(began),
        'changed': changed if changed is None else make.ago(changed),
        **values})


#: A row that the move has written on the host that the server leaves.
WRITTEN_IN_MOVE = make.bdm(updated_at=make.ago(500))

#: id, the facts, the verdict.
VERDICTS = (
    ('free', {'claims': ()}, Verdict.GIVEN),
    ('attached, whatever others claim',
     {'claims': (claim(may_run=True, is_attached=True),),
      'is_confirmed': True}, Verdict.GIVEN),
    ('another host, although attached',
     {'claims': (), 'is_confirmed': True, 'host': OtherHost('there', True)},
     Verdict.ELSEWHERE),
    ('perhaps another host', {'claims': (), 'host': OtherHost('there', False)},
     Verdict.PERHAPS_ELSEWHERE),
    ('unreadable rows', {'claims': (), 'failure': 'conductor is away'},
     Verdict.UNDECIDED),
    ('unreadable rows of an attached disk',
     {'claims': (), 'failure': 'conductor is away', 'is_confirmed': True},
     Verdict.GIVEN),
    ('attached to the other', {'claims': (claim(is_attached=True),)},
     Verdict.TAKEN),
    ('attached to one of the others',
     {'claims': (claim(), claim(is_attached=True))}, Verdict.TAKEN),
    ('the same volume in a guest that runs',
     {'claims': (claim(volume_id='volume-1', may_run=True),)}, Verdict.TAKEN),
    ('the same volume, just attached',
     {'claims': (claim(volume_id='volume-1', is_young=True),)},
     Verdict.TAKEN),
    ('the same volume in a guest that is off',
     {'claims': (claim(volume_id='volume-1'),)}, Verdict.GIVEN),
    ('denied, but the other guest runs', {'claims': (claim(may_run=True),)},
     Verdict.UNDECIDED),
    ('denied, but the other row is new', {'claims': (claim(is_young=True),)},
     Verdict.UNDECIDED),
    ('denied, and the other guest is off', {'claims': (claim(),)},
     Verdict.GIVEN),
    ('silence, and both guests run',
     {'claims': (claim(is_attached=None, **RUNS),),
      'guest_runs': True}, Verdict.UNDECIDED),
    ('silence, and only this guest runs, but the other may be resumed',
     {'claims': (claim(is_attached=None, may_run=True, is_young=True),),
      'guest_runs': True}, Verdict.GIVEN),
    ('silence, and the same volume in a guest that runs',
     {'claims': (claim(is_attached=None, volume_id='volume-1', **RUNS),),
      'guest_runs': True}, Verdict.TAKEN),
    ('denied, while this guest runs and the other may be resumed',
     {'claims': (claim(may_run=True),), 'guest_runs': True},
     Verdict.UNDECIDED),
    ('silence, and only this guest runs',
     {'claims': (claim(is_attached=None),), 'guest_runs': True},
     Verdict.GIVEN),
    ('silence, and neither guest runs',
     {'claims': (claim(is_attached=None),)}, Verdict.UNDECIDED),
)


class VerdictTest(base.TestCase):

    scenarios = base.scenarios(VERDICTS, 'asked', 'expected')

    def test_facts_have_the_verdict_of_the_row(self):
        found, words = addresses.verdict_on(
            AddressFacts(**{'volume_id': 'volume-1', **self.asked}))
        self.assertIs(self.expected, found)
        self.assertTrue(words)


class VerdictPropertyTest(base.TestCase):

    claims = st.lists(st.builds(
        facts.Claim, st.just('server-2'), st.sampled_from(['volume-1', 'v2']),
        st.none(), st.booleans(), st.booleans(), st.booleans(),
        st.sampled_from([None, True, False])).map(
            lambda c: dataclasses.replace(c, may_run=c.may_run or c.runs)),
        max_size=3)

    @given(claims, st.booleans())
    def test_no_guest_that_runs_loses_an_address(self, claims, runs):
        verdict, _ = addresses.verdict_on(
            AddressFacts(claims, 'volume-1', guest_runs=runs))
        if any(c.runs or c.is_attached or c.is_attached is False and (
                c.may_run or c.is_young) for c in claims):
            self.assertIsNot(Verdict.GIVEN, verdict)

    @given(claims)
    def test_no_guest_that_may_run_loses_an_address_to_one_that_is_off(
            self, claims):
        verdict, _ = addresses.verdict_on(AddressFacts(claims, 'volume-1'))
        if any(c.may_run or c.is_young for c in claims):
            self.assertIsNot(Verdict.GIVEN, verdict)

    @given(claims, claims, st.booleans())
    def test_one_more_row_gives_nothing(self, claims, more, runs):
        def is_given(rows):
            return addresses.verdict_on(AddressFacts(
                rows, 'volume-1', guest_runs=runs))[0] is Verdict.GIVEN

        self.assertLessEqual(is_given([*claims, *more]), is_given(claims))

    @given(claims)
    def test_silence_gives_no_more_than_a_denial_to_a_guest_that_is_off(
            self, claims):
        def is_given(answer):
            return addresses.verdict_on(AddressFacts(
                [dataclasses.replace(c, is_attached=answer) for c in claims],
                'volume-1'))[0] is Verdict.GIVEN

        self.assertLessEqual(is_given(None), is_given(False))


#: id, the row, the moves, the host of the attachment, the attachment, and
#: whether the address is another host's.
HOSTS = (
    ('attached here', make.bdm(), (), make.HOST,
     make.attachment(), False),
    ('attached under another name, and never moved', make.bdm(), (),
     make.OTHER_HOST, make.attachment(), False),
    ('attached to a host that the server left', make.bdm(),
     (move(progress=Progress.COMPLETE),), make.OTHER_HOST, make.attachment(),
     True),
    ('a move that reserved the volume, and died', WRITTEN_IN_MOVE, (move(),),
     None, make.attachment(status='reserved', connected=False), True),
    ('a move whose attachment was deleted', WRITTEN_IN_MOVE, (move(),),
     None, None, True),
    ('a move that failed, recorded after the row',
     WRITTEN_IN_MOVE, (move(progress=Progress.FAILED, changed=400),),
     None, None, True),
    ('a row written after the move failed', WRITTEN_IN_MOVE,
     (move(progress=Progress.FAILED, changed=550),), None, None, False),
    ('a move that has connected it here', WRITTEN_IN_MOVE, (move(),),
     None, make.attachment(status='attaching'), False),
    ('a move that is complete and wrote the row', WRITTEN_IN_MOVE,
     (move(progress=Progress.COMPLETE),), None, None, False),
    ('an evacuation that did not write the row', make.bdm(),
     (move(progress=Progress.COMPLETE),), None, None, True),
    ('a disk that was attached after the move',
     make.bdm(created_at=make.ago(60)), (move(),), None, None, False),
    ('a failed move away from this host', WRITTEN_IN_MOVE,
     (move(origin=make.HOST, target=make.OTHER_HOST),), None, None, False),
    ('a resize that waits for its confirmation, and failed in it',
     WRITTEN_IN_MOVE, (move(progress=Progress.of('confirming')),), None, None,
     False),
    ('a revert that did not write the rows', WRITTEN_IN_MOVE,
     (move(progress=Progress.of('reverted'), changed=400),), None, None, True),
    ('a revert that wrote the rows', WRITTEN_IN_MOVE,
     (move(progress=Progress.of('reverted'), changed=550),), None, None,
     False),
    ('a later move away from here that failed hides nothing', make.bdm(),
     (move(began=300, origin=make.HOST, target='compute-3',
           progress=Progress.FAILED, changed=200),
      move(progress=Progress.COMPLETE)), None, None, True),
    ('a name that is the same on every host',
     make.bdm(has_address=False), (move(progress=Progress.COMPLETE),),
     None, None, False),
    ('attached here, whatever the clocks of the records', make.bdm(),
     (move(progress=Progress.COMPLETE),), make.HOST, make.attachment(),
     False),
    ('a host that was renamed after the move', make.bdm(),
     (move(origin='compute-3', target=make.OTHER_HOST,
           progress=Progress.COMPLETE),), make.OTHER_HOST, make.attachment(),
     False),
    ('before Queens, attached to a host that the server left',
     make.bdm(attachment_id=None), (move(progress=Progress.COMPLETE),),
     make.OTHER_HOST, make.attachment(), True),
    ('only the last move counts', WRITTEN_IN_MOVE,
     (move(progress=Progress.COMPLETE), move(began=700)), None, None, False),
)


class OtherHostTest(base.TestCase):

    scenarios = base.scenarios(
        HOSTS, 'bdm', 'moves', 'host', 'attachment', 'is_elsewhere')

    def test_disk_of_another_host_has_its_reason(self):
        seen = make.snapshot(
            [self.bdm], [make.volume(attached_to=(
                make.attached_to(host=self.host),) if self.host else ())],
            [self.attachment] if self.attachment else [])
        plan = addresses.apply(make.decide(seen), seen, POLICY, make.NOW,
                               Records(moves=self.moves))
        finding = plan.findings[0]
        self.assertEqual(self.is_elsewhere,
                         finding.reason is Reason.OTHER_HOSTS_ADDRESS)
        self.assertEqual(self.is_elsewhere, bool(finding.address))
        # What is only perhaps elsewhere is disconnected by a removal.
        self.assertEqual(
            self.is_elsewhere and any(
                m.progress is Progress.COMPLETE for m in self.moves),
            not finding.decision.has_address_here)


class SilenceTest(base.TestCase):
    """Nova's rows alone decide."""

    def left_out(self, bdm, **records):
        return [f.reason for f in addresses.without_cinder(
            (bdm,), make.server(), Records(**records), Reason.TIMED_OUT)]

    def test_the_records_decide(self):
        for bdm, moves, expected in (
                (make.bdm(), (), []),
                (make.bdm(), (move(progress=Progress.COMPLETE),),
                 [Reason.OTHER_HOSTS_ADDRESS]),
                (WRITTEN_IN_MOVE, (move(progress=Progress.COMPLETE),), []),
                # Only Cinder tells whether its attachment is connected.
                (WRITTEN_IN_MOVE, (move(),), [])):
            self.assertEqual(expected, self.left_out(bdm, moves=moves))

    def test_the_other_rows_decide(self):
        other = claim(is_attached=None)
        for claims, runs, expected in (
                ((), False, []),
                ((other,), True, []),
                ((other,), False, [Reason.TIMED_OUT]),
                ((dataclasses.replace(other, **RUNS),), True,
                 [Reason.TIMED_OUT])):
            self.assertEqual(expected, self.left_out(
                make.bdm(), claims={'bdm-1': claims}, guest_runs=runs))

    def test_servers_share_a_multiattach_volume(self):
        """Check that neither of them is left without it."""
        shared = make.bdm(is_multiattach=True)
        same = claim(is_attached=None, volume_id=shared.volume_id)
        same = dataclasses.replace(same, **RUNS)
        other = dataclasses.replace(same, volume_id='volume-9')
        for bdm, found, is_left_out in (
                (shared, same, False), (make.bdm(), same, True),
                (shared, other, True)):
            self.assertEqual(is_left_out, bool(self.left_out(
                bdm, claims={'bdm-1': (found,)})))

    def test_local_disk_has_no_address(self):
        self.assertEqual([], self.left_out(
            make.bdm(destination_type='local'),
            claims={'bdm-1': (claim(may_run=True),)}))


class ApplyTest(base.TestCase):

    def test_a_dangling_row_keeps_its_reason_and_is_not_disconnected(self):
        seen = make.snapshot([make.bdm()], [make.volume(status='available')])
        plan = addresses.apply(
            make.decide(seen), seen, POLICY, make.NOW,
            Records(moves=(move(progress=Progress.COMPLETE),)))
        finding, = plan.due
        self.assertIs(Reason.VOLUME_AVAILABLE, finding.reason)
        self.assertIs(Action.REMOVE, finding.decision.row)
        self.assertFalse(finding.decision.has_address_here)

    def test_a_dangling_root_disk_keeps_its_reason(self):
        seen = make.snapshot([make.bdm(boot_index=0)],
                             [make.volume(status='available')], roots=())
        finding, = addresses.apply(
            make.decide(seen), seen, POLICY, make.NOW,
            Records(moves=(move(progress=Progress.COMPLETE),))).findings
        self.assertIs(Reason.ROOT_VOLUME_DANGLING, finding.reason)
        self.assertTrue(finding.address)

    def test_the_rule_holds_over_a_limit_and_for_a_suspect_cinder(self):
        seen = make.snapshot([make.bdm()], [make.volume(status='available')])
        records = Records(claims={'bdm-1': (claim(may_run=True),)})
        for reason in Reason:
            plan = addresses.apply(
                make.decide(seen).withhold(reason), seen, POLICY, make.NOW,
                records)
            self.assertEqual(['bdm-1'], list(plan.left_out), reason)
            self.assertEqual(['bdm-1'], list(plan.not_connected), reason)
            # Whatever happens to the plan afterwards.
            self.assertEqual(
                ['bdm-1'], list(plan.withhold(Reason.OVER_LIMIT).left_out))

    def test_the_rule_holds_for_a_root_disk(self):
        root = make.bdm(boot_index=0)
        seen = make.snapshot([root], [make.volume(status='available')],
                             roots=())
        plan = addresses.apply(
            make.decide(seen), seen, POLICY, make.NOW,
            Records(claims={'bdm-1': (claim(may_run=True),)}))
        finding, = plan.findings
        self.assertIs(Reason.ROOT_VOLUME_DANGLING, finding.reason)
        self.assertFalse(finding.connects)

    def test_nova_is_not_asked_about_a_healthy_disk(self):
        for volume, attachments, asked in (
                (make.volume(), [make.attachment()], 0),
                (make.volume(attached_to=(make.attached_to(),)),
                 [make.attachment()], 0),
                (make.volume(attached_to=(
                    make.attached_to(host=make.OTHER_HOST),)),
                 [make.attachment()], 1),
                (make.volume(), [make.attachment(status='reserved')], 1),
                (make.volume(), [make.attachment(server_id='x')], 1),
                (make.volume(status='available'), [], 1)):
            seen = make.snapshot([make.bdm()], [volume], attachments)
            self.assertEqual(asked, len(addresses.unconfirmed(
                seen, POLICY, make.NOW)), seen)

    def test_an_audit_asks_nova_only_where_its_moves_can_tell(self):
        for volume, attachments, with_age, without in (
                (make.volume(attached_to=(make.attached_to(),)),
                 [make.attachment()], False, False),
                (make.volume(attached_to=(
                    make.attached_to(host=make.OTHER_HOST),)),
                 [make.attachment()], True, True),
                (make.volume(status='available'), [], True, False)):
            for bdm, is_asked in ((make.bdm(), with_age),
                                  (make.bdm(created_at=None), without)):
                read = mock.Mock(return_value=())
                addresses.apply_moves(
                    facts.Plan(), make.snapshot([bdm], [volume], attachments),
                    POLICY, make.NOW, read)
                self.assertEqual(is_asked, read.called)

    def test_a_disk_that_was_never_connected_has_no_address(self):
        seen = make.snapshot(
            [make.bdm(has_connection_info=False)],
            [make.volume(status='available')])
        self.assertEqual((), addresses.unconfirmed(seen, POLICY, make.NOW))
