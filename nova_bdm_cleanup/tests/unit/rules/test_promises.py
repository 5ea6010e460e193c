# SPDX-License-Identifier: Apache-2.0
"""The promises of the documents, as properties of the rules.

Each test is named after a promise and quotes its sentence.  The tests know the
documents, the data classes of the facts and the public functions, and no row
of a table.  ``test_properties`` has what no document says.
"""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import datetime
import itertools
import random
from typing import Any

import hypothesis
from hypothesis import strategies as st

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.rules import addresses, decision, facts
from nova_bdm_cleanup.rules.facts import (
    Action,
    Attach,
    Claimant,
    InCinder,
    WitnessAnswer,
)
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import base, make, worlds
from nova_bdm_cleanup.tests.unit.rules import cases
from nova_bdm_cleanup.tests.unit.rules.cases import (
    as_seen,
    Case,
    deleted,
    GENEROUS,
    named,
    of_any_look,
    ours,
    roots,
)

SETTLE = GENEROUS.settle_time

#: Attachments in each state; a user can create all of them.
ATTACHMENTS: tuple[dict[str, Any], ...] = (
    {}, {'connected': False},
    {'status': 'reserved'}, {'status': 'reserved', 'connected': False},
    {'status': 'attaching'}, {'status': 'attaching', 'connected': False})


class NeverRemovedTest(base.TestCase):

    @of_any_look
    def test_root_disk_is_never_removed(self, case: Case) -> None:
        """Quote "It never removes a root disk" (README)."""
        for finding in case.removals:
            self.assertNotIn(finding.volume_id, roots(case.seen))

    @of_any_look
    def test_never_a_volume_that_cinder_shows_in_use_by_this_server(
            self, case: Case) -> None:
        """Quote "[never] remove a root disk, or a volume that Cinder shows
        ``in-use`` by this server" (behaviour).
        """
        for finding in case.taken:
            volume = case.seen.volumes.get(finding.volume_id or '')
            if volume is None:
                continue
            its = ours(case.seen, volume.id)
            if finding.reason is Reason.NEVER_ATTACHED:
                self.assertNotIn('attached', [a.status for a in its])
                self.assertIs(Attach.FAILED,
                              case.seen.attaches[finding.bdm.uuid])
                continue
            # One that was reset to available can be attached elsewhere; so
            # what is left of it must be deleted as well.
            if volume.status == 'available':
                self.assertLessEqual({
                    a.id for a in its
                    if a.status == 'attached' and a.connected}, case.deleted)
                continue
            self.assertIn(volume.status, ('in-use', 'awaiting-transfer'))
            self.assertEqual([], its)
            # Cinder has two lists.
            self.assertEqual([], [
                e for e in volume.attached_to if e.server_id == make.SERVER
                and (e.attachment_id in named(case.seen)
                     or volume.project != make.OTHER_PROJECT)])

    @of_any_look
    def test_mappings_with_another_source_are_only_reported(
            self, case: Case) -> None:
        """Quote "Only mappings of disks that were attached *as volumes*
        (source and destination ``volume``) are removed" (behaviour).
        """
        self.assertFalse(case.policy.remove_created)
        for finding in case.removals:
            assert finding.bdm
            self.assertEqual(('volume', 'volume'), (
                finding.bdm.source_type, finding.bdm.destination_type))
        for finding in case.under(remove_created=True).removals:
            if finding.bdm and finding.bdm.source_type != 'volume':
                self.assertEqual(
                    ('volume', Reason.VOLUME_MISSING, None),
                    (finding.bdm.destination_type, finding.reason,
                     case.seen.volumes[finding.volume_id]))
                self.assertFalse(finding.bdm.is_root)

    @of_any_look
    def test_never_an_attachment_of_another_server(self, case: Case) -> None:
        """Quote "[never] delete an attachment of another server" (behaviour)
        and "deletes it only if it names this server and volume"
        (security).
        """
        for values in ATTACHMENTS:
            # Each volume has one more of another server.
            seen = case.changed(attachments=(*case.seen.attachments, *(
                make.attachment(id='other-' + volume_id, volume_id=volume_id,
                                server_id=make.OTHER_SERVER, **values)
                for volume_id in case.seen.volumes)))
            for finding in seen.plan.due:
                for attachment in (*deleted(finding), *filter(
                        None, [finding.first])):
                    self.assertEqual(
                        (make.SERVER, finding.volume_id),
                        (attachment.server_id, attachment.volume_id))

    @of_any_look
    def test_no_attachment_that_a_kept_mapping_names(
            self, case: Case) -> None:
        """Quote "For each attachment in Cinder that names this server and
        that no mapping of the server names" (behaviour).
        """
        # Also if it is the mapping of another volume.
        odd = case.changed(bdms=(*case.seen.bdms, *(
            make.bdm(uuid='odd-' + attachment_id, volume_id='volume-odd',
                     attachment_id=attachment_id)
            for attachment_id in case.deleted)))
        for each in (case, odd):
            self.assertEqual(set(), each.deleted.intersection(
                b.attachment_id for b in each.kept))

    @of_any_look
    def test_attachment_from_before_queens_stays(self, case: Case) -> None:
        """Quote "Its attachments in Cinder are deleted [...]. One from before
        Queens stays" (behaviour).
        """
        for finding in case.plan.due:
            for attachment in deleted(finding):
                self.assertFalse(attachment.is_legacy)

    @of_any_look
    def test_stale_attachments_go_only_with_a_root_disk(
            self, case: Case) -> None:
        """Quote "They are only reported [...] if Nova lists no root disk of
        the server" (risks).
        """
        bare = dataclasses.replace(case.seen, bdms=tuple(
            b for b in case.seen.bdms if not b.is_root))
        plan = decision.decide(bare, case.policy, make.NOW)
        self.assertEqual([], [f for f in plan.due if f.bdm is None])

    @of_any_look
    def test_no_other_host_is_disconnected(self, case: Case) -> None:
        """Quote "The device on another host whose stale attachment is deleted:
        the plugin works on one host only" (risks).
        """
        for finding in case.plan.due:
            if (finding.action is Action.DISCONNECT_AND_DELETE
                    and finding.attachment):
                volume = case.seen.volumes.get(finding.volume_id or '')
                self.assertIsNotNone(volume)
                self.assertEqual(make.HOST, volume and volume.host_of(
                    finding.attachment.id))

    @of_any_look
    def test_a_half_moved_disk_is_never_removed(self, case: Case) -> None:
        """Quote "what a failed move has left is reconnected, or only
        reported" (behaviour).
        """
        seen = case.seen
        known = {a.id for a in seen.attachments}
        for bdm in seen.bdms:
            volume = seen.volumes.get(bdm.volume_id or '')
            if not (bdm.is_in_cinder and bdm.has_connection_info and volume
                    # Cinder offers it to every server.
                    and volume.status != 'available'
                    and bdm.attachment_id
                    and bdm.attachment_id not in known):
                continue
            reserving = {a.id for a in ours(seen, bdm.volume_id)
                         if a.only_reserves and a.id not in named(seen)}
            finding, = [f for f in case.plan.findings if f.bdm is bdm]
            if not reserving:
                continue
            self.assertFalse(finding.is_removal)
            # Its reconnect uses one of them.
            used = {finding.first.id} if finding.first else set()
            self.assertEqual(
                reserving - used if finding.is_due else set(),
                reserving & case.deleted)
            self.assertEqual(finding.is_reconnect, bool(used))
            self.assertLessEqual(used, {
                a.id for a in ours(seen, bdm.volume_id) if a.only_reserves})
            if (volume.status in facts.TAKEN and not volume.is_migrating
                    and all(a.status != 'attached'
                            for a in ours(seen, bdm.volume_id))
                    and all(e.server_id != make.SERVER
                            for e in volume.attached_to)):
                self.assertIs(Reason.HALF_MOVED, finding.reason)

    @worlds.profile(.5)
    @hypothesis.given(
        st.booleans(),
        st.lists(st.sampled_from([
            make.attachment(),
            make.attachment(id='attachment-2'),
            make.attachment(id='attachment-3', server_id=make.OTHER_SERVER),
        ]), unique_by=lambda a: a.id))
    def test_volume_set_to_available_by_hand_is_removed(
            self, multiattach: bool,
            attachments: list[facts.Attachment]) -> None:
        """Quote "A volume that was set to ``available`` by hand is removed:
        Cinder lets any server attach it" (behaviour).
        """
        plan = make.decide(make.snapshot(
            [make.bdm()], [make.volume(
                status='available', multiattach=multiattach)], attachments))
        due = [f for f in plan.due if f.bdm and f.bdm.uuid == 'bdm-1']
        self.assertEqual(1, len(due))
        self.assertTrue(due[0].disconnect)
        self.assertIsNot(InCinder.ATTACHED, due[0].in_cinder)


class ReconnectTest(base.TestCase):
    """The disks that are given one attachment to this host."""

    @of_any_look
    def test_never_a_volume_of_another_project(self, case: Case) -> None:
        """Quote "a volume of another project: keep and report" (issue)."""
        for project in (make.OTHER_PROJECT, None):
            other = case.changed(volumes={
                i: v and dataclasses.replace(v, project=project)
                for i, v in case.seen.volumes.items()})
            self.assertEqual([], other.reconnects)
        for finding in case.reconnects:
            volume = case.seen.volumes[finding.volume_id or '']
            self.assertEqual(make.PROJECT, volume and volume.project)

    @of_any_look
    def test_nothing_is_deleted_that_may_serve_the_guest_elsewhere(
            self, case: Case) -> None:
        """Quote "nothing is deleted that may serve a guest elsewhere"
        (issue).
        """
        for finding in case.changed(guest_is_here=False).reconnects:
            volume = case.seen.volumes[finding.volume_id or '']
            for attachment in finding.dependent:
                if attachment.status == 'attached':
                    self.assertEqual(make.HOST, volume and volume.host_of(
                        attachment.id))
                elif attachment.status != 'error_attaching':
                    self.assertTrue(attachment.only_reserves)

    @of_any_look
    def test_a_guest_that_is_here_only_allows_more(self, case: Case) -> None:
        here, unknown = ({f.bdm for f in case.changed(
            guest_is_here=is_here).reconnects} for is_here in (True, False))
        self.assertLessEqual(unknown, here)

    @of_any_look
    def test_the_volume_keeps_an_attachment_at_each_step(
            self, case: Case) -> None:
        """Quote "this server's only record is then completed" (issue)."""
        for finding in case.reconnects:
            left = {a.id for a in ours(case.seen, finding.volume_id)}
            had_one = bool(left)
            for attachment in finding.replaced_early:
                left.remove(attachment.id)
                self.assertTrue(left)
            first = finding.first
            if first is not None and not first.only_reserves:
                # It is completed, and replaced if it connects no disk here.
                self.assertIn(first.id, left)
                self.assertEqual(finding.dependent, finding.replaced_early)
            self.assertEqual(had_one, bool(left))
            self.assertEqual(
                [a.id for a in finding.dependent],
                [a.id for a in (*finding.replaced_early, *(
                    a for a in finding.dependent if a.id in left))])
            # The new one is there before the others go.
            self.assertEqual({first.id} if first else set(),
                             left - {a.id for a in finding.dependent})

    @of_any_look
    def test_cinder_can_make_the_new_attachment(self, case: Case) -> None:
        """Quote "While the volume is ``attaching`` Cinder refuses the
        create" (issue).
        """
        for finding in case.reconnects:
            volume = case.seen.volumes[finding.volume_id or '']
            if volume and volume.status == 'attaching' and not finding.first:
                # The volume is in use when the others are gone.
                self.assertTrue(finding.replaced_early)
                self.assertEqual({'attached'}, {
                    a.status for a in finding.dependent
                    if a not in finding.replaced_early})

    @of_any_look
    def test_no_record_that_cinder_may_not_end(self, case: Case) -> None:
        for finding in case.reconnects:
            for attachment in finding.dependent:
                self.assertFalse(attachment.is_legacy)
                self.assertFalse(attachment.is_half_connected)

    @of_any_look
    def test_disk_has_one_mapping(self, case: Case) -> None:
        for finding in case.reconnects:
            self.assertEqual([finding.bdm], [
                b for b in case.seen.bdms
                if b.volume_id == finding.volume_id])
            self.assertTrue(finding.bdm and finding.bdm.has_connection_info)
            self.assertFalse(finding.is_removal)

    @of_any_look
    def test_no_reconnect_where_nova_does_not_start_the_guest(
            self, case: Case) -> None:
        for other in (case.changed(guest=facts.Guest.OTHER),
                      case.under(reconnect=False)):
            self.assertEqual([], other.reconnects)
            self.assertEqual(*([f for f in plan.due if f.is_removal]
                               for plan in (case.plan, other.plan)))

    @of_any_look
    def test_whether_the_guest_is_here_is_asked_only_if_it_decides(
            self, case: Case) -> None:
        plans = []
        for is_here in (True, False):
            seen = dataclasses.replace(case.seen, guest_is_here=is_here)
            sources = make.Sources(seen, case.claims)
            # The first verdict does not know the answer.
            plans.append(rules.judge(dataclasses.replace(
                seen, guest_is_here=False), sources, case.policy, make.NOW))
        if 'guest_is_here' not in sources.asked:
            self.assertEqual(*plans)


class ForeignRecordsTest(base.TestCase):
    """Records that other projects can create."""

    @of_any_look
    def test_foreign_records_count_for_nothing(self, case: Case) -> None:
        """Quote "Attachments that another project creates for its own volume
        are ignored: they neither keep a mapping, nor have its disk connected,
        nor are they deleted" (behaviour).
        """
        foreign = {a.id for a in case.seen.attachments
                   if a.server_id == make.SERVER
                   and cases.is_foreign(case.seen, a)}
        for finding in case.plan.due:
            self.assertEqual(set(), foreign & {
                a.id for a in deleted(finding)})
        # The same records, about another server.
        renamed = dataclasses.replace(
            case.seen,
            attachments=tuple(
                dataclasses.replace(a, server_id=make.OTHER_SERVER)
                if a.id in foreign else a for a in case.seen.attachments),
            volumes={i: v and dataclasses.replace(v, attached_to=tuple(
                dataclasses.replace(e, server_id=make.OTHER_SERVER)
                if e.attachment_id in foreign else e for e in v.attached_to))
                for i, v in case.seen.volumes.items()})
        self.assertEqual(*(
            {each for each in as_seen(plan) if each[1] not in foreign}
            for plan in (case.plan, decision.decide(
                renamed, case.policy, make.NOW))))

    @of_any_look
    def test_number_of_foreign_records_changes_nothing(
            self, case: Case) -> None:
        """Quote "A user can create attachments in Cinder that name a server of
        another project. The plugin ignores them" (security).
        """
        seen = case.seen
        mapped = {b.volume_id for b in seen.bdms}
        for status, values in zip(
                itertools.cycle(('in-use', 'reserved', 'detaching')),
                ATTACHMENTS):
            volumes = {**seen.volumes, 'volume-flood': make.volume(
                id='volume-flood', project=make.OTHER_PROJECT, status=status)}
            flood = []
            # Also volumes that were transferred, and that a mapping names.
            for i, volume in volumes.items():
                # Its new owner may use what is in use, and by no server.
                if (not volume or volume.project != make.OTHER_PROJECT
                        or i in mapped and volume.status == 'in-use'
                        and not any(e.server_id for e in volume.attached_to)):
                    continue
                records = [make.attachment(id=f'flood-{i}-{n}', volume_id=i,
                                           **values) for n in range(9)]
                flood += records
                volumes[i] = dataclasses.replace(volume, attached_to=(
                    *volume.attached_to, *(
                        make.attached_to(attachment_id=a.id,
                                         host=make.OTHER_HOST)
                        for a in records if a.status == 'attached')))
            self.assertEqual(case.plan, case.changed(
                volumes=volumes,
                attachments=(*seen.attachments, *flood)).plan)

    @of_any_look
    def test_mappings_and_stale_attachments_are_counted_apart(
            self, case: Case) -> None:
        """Quote "A project can create any number of attachments, so mappings
        and stale attachments are counted apart" (decisions).
        """
        for values in ATTACHMENTS:
            more = case.changed(
                volumes={**case.seen.volumes,
                         'volume-flood': make.volume(id='volume-flood')},
                attachments=(*case.seen.attachments, *(
                    make.attachment(id=f'flood-{n}', volume_id='volume-flood',
                                    **values) for n in range(9))))
            before, after = ({f.bdm for f in each.removals}
                             for each in (case, more))
            # One of them may be left over from a failed swap.
            self.assertLessEqual(after, before)
            if case.seen.swaps is not facts.Ending.FAILURE:
                self.assertEqual(before, after)


class WithheldTest(base.TestCase):

    @of_any_look
    def test_limits_hold_for_all_or_none(self, case: Case) -> None:
        """Quote "If more than ``max_removals`` are stale, none is deleted"
        (security), and "mappings and stale
        attachments are counted apart" (decisions).
        """
        unlimited = case.under(max_removals=1000).plan
        for limit in range(3):
            limited = case.under(max_removals=limit).plan
            for is_mapping in (True, False):
                wanted, done = ([f for f in plan.due if f.is_removal
                                 and (f.bdm is not None) == is_mapping]
                                for plan in (unlimited, limited))
                self.assertEqual(wanted if len(wanted) <= limit else [], done)
                self.assertEqual(
                    len(done), limited.removals if is_mapping
                    else limited.deletions)
            # A reconnect takes no disk away.
            self.assertEqual(*([f for f in plan.due if f.is_reconnect]
                               for plan in (unlimited, limited)))

    @of_any_look
    def test_a_limit_or_a_suspect_cinder_leaves_no_disk_out(
            self, case: Case) -> None:
        """Quote "what Cinder shows counts only if [...]. If [it] is suspect
        (``cinder-suspect``), it does not count" (behaviour).
        """
        left_out = rules.not_given(case.judged)
        for finding in case.judged.findings:
            if (finding.bdm and not finding.address
                    and finding.in_cinder is not InCinder.MISSING
                    and finding.withheld is Reason.CINDER_SUSPECT
                    or finding.withheld is Reason.OVER_LIMIT
                    and finding.in_cinder is InCinder.UNATTACHED):
                if finding.bdm and not finding.address:
                    self.assertNotIn(finding.bdm.uuid, left_out)

    @of_any_look
    def test_nothing_is_removed_if_cinder_knows_no_witness(
            self, case: Case) -> None:
        """Quote "Cinder does not know any :term:`witness` either, so nothing
        is removed" (faults).
        """
        lost = dataclasses.replace(
            case.seen, volumes=dict.fromkeys(
                b.volume_id for b in case.seen.bdms if b.volume_id),
            attachments=(), witness=WitnessAnswer.UNKNOWN)
        self.assertEqual((), decision.decide(lost, case.policy, make.NOW).due)
        # Also if Cinder knows another volume of the server.
        self.assertNotIn(Reason.VOLUME_MISSING, [
            f.reason for f in case.changed(
                witness=WitnessAnswer.UNKNOWN).plan.due])

    @worlds.profile()
    @hypothesis.given(st.integers(1, 4))
    def test_one_missing_volume_is_believed_if_the_cell_has_no_other(
            self, number: int) -> None:
        """Quote "No server of the cell has another volume: the plugin believes
        that this one volume is missing" (risks).
        """
        bdms = [make.bdm(uuid=f'bdm-{n}', volume_id=f'volume-{n}',
                         attachment_id=f'attachment-{n}')
                for n in range(number)]
        plan = make.decide(make.snapshot(
            bdms, missing=[str(b.volume_id) for b in bdms],
            witness=WitnessAnswer.NONE_EXISTS))
        self.assertEqual(number == 1, bool(plan.due))

    @of_any_look
    def test_nothing_is_missing_or_stale_to_a_member(
            self, case: Case) -> None:
        """Quote "So no volume counts as missing, and no attachment as stale"
        (commands).
        """
        seen = dataclasses.replace(case.seen, sees_all=False)
        for finding in decision.decide(seen, case.policy, make.NOW).due:
            self.assertIsNotNone(finding.bdm)
            self.assertIsNotNone(seen.volumes.get(finding.volume_id or ''))

    @of_any_look
    def test_a_locked_server_is_only_reported(self, case: Case) -> None:
        """Quote "The findings of a server are only reported [...] if an
        administrator locks it" (configuration), and "The mapping of a disk
        that is not connected may stay" (behaviour).
        """
        free, locked = (
            case.changed(server=make.server(is_locked=is_locked)).judged
            for is_locked in (False, True))
        self.assertEqual((), locked.due)
        self.assertEqual(len(free.findings), len(locked.findings))
        for finding in free.due:
            # One that is younger than settle_time is connected.
            if (finding.bdm and finding.disconnect and finding.is_removal
                    and not finding.settles_in):
                self.assertIn(finding.bdm.uuid, rules.not_given(locked))

    @of_any_look
    def test_nothing_of_a_swap_without_an_end(self, case: Case) -> None:
        """Quote "While Nova has recorded no end of a swap, and it may be under
        way, nothing else of the server is removed" (risks).
        """
        self.assertEqual((), case.changed(swaps=facts.Ending.NONE).plan.due)
        # One that failed may have left an attachment of another volume.
        mapped = {bdm.volume_id for bdm in case.seen.bdms}
        self.assertEqual([], [
            f for f in case.changed(swaps=facts.Ending.FAILURE).plan.due
            if f.bdm is None and f.volume_id not in mapped])

    @worlds.profile()
    @hypothesis.given(cases.cases, cases.cases)
    def test_both_looks_have_to_agree(self, one: Case, two: Case) -> None:
        """Quote "With the guest off, it checks everything again"
        (README).
        """
        # A look at other disks, and looks at the same disks: with another
        # guard, with other records, and unchanged.
        for second in (two, dataclasses.replace(one.changed(
                server=two.seen.server, witness=two.seen.witness,
                sees_all=two.seen.sees_all, swaps=two.seen.swaps),
                policy=two.policy), one.changed(
                    volumes=dict.fromkeys(one.seen.volumes), attachments=()),
                one.changed()):
            agreed = rules.confirm(one.plan, second.plan)
            self.assertLessEqual(
                self._whats(agreed),
                self._whats(one.plan) & self._whats(second.plan))
            # Nor anything that the first look did not find.
            # What Cinder shows of the disk is that of the second look.
            self.assertLessEqual(*(
                {dataclasses.replace(
                    f, in_cinder=facts.InCinder.ATTACHED, address='',
                    was_open=False, is_out_of_date=False, is_connected=True)
                 for f in plan.due} for plan in (agreed, one.plan)))
            self.assertEqual(*(
                [(f.reason, f.bdm, f.attachment, f.is_removal)
                 for f in plan.findings] for plan in (one.plan, agreed)))
        self.assertEqual(one.plan, agreed)

    def _whats(self, plan: facts.Plan) -> set[object]:
        return {(f.reason, f.bdm and f.bdm.uuid, f.volume_id,
                 f.attachment_id, f.action) for f in plan.due}


class SettleTimeTest(base.TestCase):

    def _wait(self, seen: facts.Snapshot,
              now: datetime.datetime = make.NOW) -> datetime.timedelta:
        return make.judge(seen, policy=GENEROUS, now=now).settles_in

    @worlds.profile()
    @hypothesis.given(cases.generous, st.data())
    def test_nothing_rests_on_a_young_record(
            self, case: Case, data: Any) -> None:
        """Quote "If what speaks against a disk rests on a record that is
        younger than ``settle_time``, the cleanup waits for ``settle_time``,
        once, and reads again" (behaviour).
        """
        due = case.plan.due
        hypothesis.assume(due)
        finding = data.draw(st.sampled_from(due))
        age = data.draw(st.sampled_from([0, 1, 9, -1, -7200]))
        young = make.ago(age)
        seen = case.seen
        which = data.draw(st.sampled_from(['mapping', 'volume', 'record']))
        if which == 'mapping':
            seen = dataclasses.replace(seen, bdms=tuple(
                dataclasses.replace(b, updated_at=young)
                if b == finding.bdm else b
                for b in seen.bdms))
            hypothesis.assume(finding.bdm)
        elif which == 'volume':
            volume = seen.volumes.get(finding.volume_id or '')
            hypothesis.assume(volume)
            seen = dataclasses.replace(seen, volumes={
                **seen.volumes, volume.id: dataclasses.replace(
                    volume, updated_at=young)})
        else:
            ids = {a.id for a in deleted(finding)}
            hypothesis.assume(ids)
            seen = dataclasses.replace(seen, attachments=tuple(
                dataclasses.replace(a, attached_at=young)
                if a.id in ids else a for a in seen.attachments))
        plan = decision.decide(seen, GENEROUS, make.NOW)
        if any((f.bdm and f.bdm.uuid, f.attachment_id) == (
                finding.bdm and finding.bdm.uuid, finding.attachment_id)
                for f in plan.due):
            self.assertGreaterEqual(
                self._wait(seen), SETTLE - datetime.timedelta(
                    seconds=max(age, 0)))

    @of_any_look
    def test_wait_is_at_most_the_settle_time(self, case: Case) -> None:
        """Quote "younger than ``settle_time``" (behaviour): what a clock that
        is ahead has dated counts as written now.
        """
        self.assertLessEqual(self._wait(case.seen), SETTLE)
        self.assertGreaterEqual(self._wait(case.seen), datetime.timedelta(0))

    @of_any_look
    def test_no_removal_waits_twice(self, case: Case) -> None:
        """Quote "the cleanup waits [...], once" (behaviour): where no
        record is from the future, nothing has to wait twice.
        """
        seen = case.seen
        later = make.NOW + SETTLE
        times = [t for b in seen.bdms for t in (b.created_at, b.updated_at)]
        times += [v.updated_at for v in seen.volumes.values() if v]
        times += [a.attached_at for a in seen.attachments]
        if all(t is None or t <= make.NOW for t in times):
            self.assertEqual(datetime.timedelta(0), self._wait(seen, later))


class ConnectedTest(base.TestCase):
    """The disks that the driver is given."""

    def _disks(self, case: Case) -> Iterable[tuple[facts.Finding, facts.Bdm]]:
        """Yield the disks that Nova would give the driver, and that stay."""
        for finding in case.judged.findings:
            bdm = finding.bdm
            if (bdm and bdm.volume_id and bdm.is_in_cinder
                    and bdm.has_connection_info and not finding.is_due):
                yield finding, bdm

    def _is_claimed(self, claims: facts.Claims, bdm: facts.Bdm) -> bool:
        """Return whether a claim is above that its guest had the disk."""
        found = claims.others.get(bdm.uuid, ())
        return bool(found) and not (bdm.uuid in claims.open and all(
            claim.claimant in (Claimant.ROW, Claimant.ANY_ROW)
            for claim in found))

    def _is_anothers(self, case: Case, bdm: facts.Bdm) -> bool:
        """Return whether the disk may be another's, by claims and Cinder."""
        seen, claims = case.seen, case.claims
        volume_id = bdm.volume_id or ''
        is_unknown = seen.volumes.get(volume_id) is None and \
            not self._is_proved_missing(seen, volume_id)
        return self._is_claimed(claims, bdm) or bool(
            claims.others.get(bdm.uuid)) and not (
                is_unknown or self._places(seen, bdm))

    def _places(self, seen: facts.Snapshot, bdm: facts.Bdm) -> list[
            tuple[str | None, frozenset[facts.Address]]]:
        """Return where Cinder connects the disk for the server."""
        volume = seen.volumes.get(bdm.volume_id or '') or facts.ABSENT
        if not bdm.attachment_id:
            return [(e.host, frozenset()) for e in volume.attached_to
                    if e.server_id == make.SERVER]
        own = [a for a in seen.attachments if a.id == bdm.attachment_id]
        return [(volume.host_of(a.id), a.addresses)
                for a in own or ours(seen, bdm.volume_id)
                if (a.server_id, a.volume_id) == (make.SERVER, bdm.volume_id)
                and (a.connected or a.status == 'attached')]

    def _contradicts(self, seen: facts.Snapshot, bdm: facts.Bdm) -> bool:
        """Return whether Cinder connects the disk elsewhere only."""
        places = self._places(seen, bdm)
        return bool(places) and all(
            host not in (make.HOST, None)
            or bool(shown and bdm.addresses and not shown & bdm.addresses)
            for host, shown in places)

    def _is_shown(self, seen: facts.Snapshot, bdm: facts.Bdm) -> bool:
        """Return whether Cinder may attach the disk to the server."""
        volume = seen.volumes.get(bdm.volume_id or '') or facts.ABSENT
        is_foreign = volume.project == make.OTHER_PROJECT
        return bool(ours(seen, bdm.volume_id)) or any(
            a.id == bdm.attachment_id and a.server_id == make.SERVER
            for a in seen.attachments) or (
                is_foreign and not bdm.attachment_id) or any(
                    e.server_id == make.SERVER and (
                        not is_foreign or e.attachment_id in named(seen))
                    for e in volume.attached_to)

    def _is_proved_missing(self, seen: facts.Snapshot,
                           volume_id: str | None) -> bool:
        witness = (seen.witness if decision.needs_witness(seen)
                   else WitnessAnswer.KNOWN)
        return seen.volumes.get(volume_id or '') is None and seen.sees_all \
            and not ours(seen, volume_id) and (
                witness is WitnessAnswer.KNOWN
                or witness is WitnessAnswer.NONE_EXISTS and len(
                    {b.volume_id for b in seen.bdms if b.volume_id}) == 1)

    @of_any_look
    def test_an_address_that_others_claim_is_only_kept(
            self, case: Case) -> None:
        """Quote "is claimed, but the guest of this server had it open when the
        operation began" (behaviour).
        """
        for finding, bdm in self._disks(case):
            if bdm.uuid in case.given and bdm.addresses:
                self.assertFalse(self._is_anothers(case, bdm), finding)

    @of_any_look
    def test_a_free_disk_that_cinder_does_not_contradict_is_given(
            self, case: Case) -> None:
        """Quote "The mapping of a disk that is not connected may stay"
        (behaviour): these are all reasons not to connect one.
        """
        # Also if Cinder knows nothing of the server.
        self._check_disks(case)
        self._check_disks(case.changed(
            volumes=dict.fromkeys(case.seen.volumes), attachments=()))

    def _check_disks(self, case: Case) -> None:
        for finding, bdm in self._disks(case):
            seen, volume = case.seen, case.seen.volumes.get(
                bdm.volume_id or '')
            if bdm.addresses and (
                    self._is_anothers(case, bdm)
                    or self._contradicts(seen, bdm) and not (
                        finding.settles_in
                        and not case.claims.others.get(bdm.uuid))):
                expected = False
            elif volume is None and not self._is_shown(seen, bdm):
                expected = not self._is_proved_missing(seen, bdm.volume_id)
            elif finding.settles_in:
                expected = True
            elif self._is_shown(seen, bdm):
                # What is available can be attached by any server.
                expected = not (finding.is_removal and finding.withheld
                                is not Reason.OVER_LIMIT)
            elif not volume.multiattach and any(
                    e.server_id not in (make.SERVER, None)
                    for e in volume.attached_to):
                expected = False
            else:
                expected = (bdm.volume_id in roots(seen)
                            or finding.withheld is Reason.OVER_LIMIT)
            self.assertEqual(expected, bdm.uuid in case.given, finding)

    @worlds.profile(.5)
    @hypothesis.given(cases.cases, st.data())
    def test_records_of_a_member_decide_over_no_neighbour(
            self, case: Case, data: Any) -> None:
        """Quote "Neither ``attached`` nor the connection information in Cinder
        gives a disk" (behaviour).
        """
        seen = case.seen
        known = {b.volume_id: b for b in seen.bdms if b.volume_id}
        wanted = st.sampled_from(['as it is', 'right', 'wrong', 'unknown'])

        def forged(volume: facts.Volume | None, is_bare: bool
                   ) -> facts.Volume | None:
            """Return a volume whose attachments name any host."""
            if volume is None or volume.project != make.PROJECT:
                return volume
            return dataclasses.replace(volume, attached_to=tuple(
                dataclasses.replace(e, host=None if is_bare else {
                    'as it is': e.host, 'right': make.HOST,
                    'wrong': make.OTHER_HOST, 'unknown': None
                    }[data.draw(wanted)])
                if e.server_id == make.SERVER else e
                for e in volume.attached_to))

        def written(attachment: facts.Attachment, is_bare: bool
                    ) -> facts.Attachment:
            """Return an attachment as a member of the project can make it."""
            volume = seen.volumes.get(attachment.volume_id)
            bdm = known.get(attachment.volume_id)
            if (volume is None or bdm is None
                    or volume.project != make.PROJECT
                    or attachment.server_id != make.SERVER):
                return attachment
            return dataclasses.replace(
                attachment, status='attached', connected=True,
                addresses=frozenset() if is_bare else {
                    'as it is': attachment.addresses,
                    'right': bdm.addresses,
                    'wrong': make.addresses('volume-9'),
                    'unknown': frozenset()}[data.draw(wanted)])

        # The first one names neither a host nor an address.
        bare, lying = (case.changed(
            volumes={i: forged(v, is_bare) for i, v in seen.volumes.items()},
            attachments=tuple(written(a, is_bare) for a in seen.attachments))
            for is_bare in (True, False))
        claimed = {b.uuid for b in seen.bdms
                   if b.addresses and case.claims.others.get(b.uuid)}
        self.assertLessEqual(lying.given & claimed, bare.given)
        for finding, bdm in self._disks(lying):
            if bdm.uuid in lying.given & claimed:
                self.assertFalse(self._is_claimed(case.claims, bdm), finding)

    @worlds.profile()
    @hypothesis.given(cases.cases, st.data())
    def test_one_more_claim_gives_no_disk(
            self, case: Case, data: Any) -> None:
        """Quote "The address in the mapping [...] is not claimed" (behaviour):
        another claim never gives one, and removes none.
        """
        hypothesis.assume(case.seen.bdms)
        uuid = data.draw(st.sampled_from([b.uuid for b in case.seen.bdms]))
        found = [*case.claims.others.get(uuid, ())]
        found.insert(data.draw(st.integers(0, len(found))),
                     data.draw(cases.claims_of_others))
        more = case.claimed(others={
            **case.claims.others, uuid: tuple(found)})
        self.assertLessEqual(more.given, case.given)
        self.assertEqual(as_seen(case.judged), as_seen(more.judged))

    @of_any_look
    def test_claims_on_a_disk_decide_over_no_record(self, case: Case) -> None:
        """Quote "This is decided apart from the removal" (behaviour)."""
        free = make.judge(case.seen, policy=case.policy)
        self.assertEqual(as_seen(free), as_seen(case.judged))
        self.assertLessEqual(case.given, cases.given(free))

    @of_any_look
    def test_claims_alone_decide_without_an_answer_of_cinder(
            self, case: Case) -> None:
        """Quote "The table holds [...] if Cinder does not answer"."""
        plan = addresses.without_cinder(
            case.seen.bdms, case.claims, Reason.CINDER_UNKNOWN)
        self.assertEqual(
            {b.uuid for b in case.seen.bdms if b.is_in_cinder and b.addresses
             and self._is_claimed(case.claims, b)},
            {*rules.not_given(plan)})

    @of_any_look
    def test_silence_removes_nothing(self, case: Case) -> None:
        """Quote "If Cinder does not answer, it removes nothing" (README)."""
        self.assertEqual([], [
            f for f in addresses.without_cinder(
                case.seen.bdms, case.claims, Reason.CINDER_UNKNOWN).findings
            if f.is_removal])


class AgainTest(base.TestCase):

    @of_any_look
    def test_the_same_facts_give_the_same_decisions(self, case: Case) -> None:
        """Quote "The next reboot decides again" (behaviour): by the facts
        alone.
        """
        self.assertEqual(case.judged, case.changed().judged)

    @of_any_look
    def test_the_order_of_the_answers_decides_nothing(
            self, case: Case) -> None:
        """Quote "The first row that fits decides" (behaviour): the order of
        the facts does not.
        """
        order = random.Random(0)

        def shuffled(items: Iterable[Any]) -> tuple[Any, ...]:
            found = [*items]
            order.shuffle(found)
            return tuple(found)

        seen = case.seen
        other = dataclasses.replace(
            case.changed(
                bdms=shuffled(seen.bdms),
                attachments=shuffled(seen.attachments),
                volumes={i: v and dataclasses.replace(
                    v, attached_to=shuffled(v.attached_to))
                    for i, v in shuffled(seen.volumes.items())}),
            claims=dataclasses.replace(case.claims, others={
                i: shuffled(claims)
                for i, claims in case.claims.others.items()}))
        self.assertEqual(*(
            {(dataclasses.replace(f, dependent=()), frozenset(f.dependent))
             for f in plan.findings} for plan in (case.plan, other.plan)))
        self.assertEqual(case.given, other.given)

    @of_any_look
    def test_stale_attachments_come_after_all_mappings(
            self, case: Case) -> None:
        """Quote "After all mappings, the stale attachments are deleted"
        (behaviour).
        """
        kinds = [f.bdm is None for f in case.plan.due if f.is_removal]
        self.assertEqual(sorted(kinds), kinds)

    @worlds.profile()
    @hypothesis.given(worlds.worlds())
    def test_second_cleanup_removes_nothing(self, world: Any) -> None:
        """Quote "The cleanup is complete" (faults): the next hard
        reboot has nothing to do.
        """
        def plan() -> facts.Plan:
            return decision.decide(
                worlds.look(world, hidden=None), GENEROUS, make.NOW)

        for finding in plan().due:
            if finding.is_reconnect:
                continue
            if finding.bdm:
                del world.rows[finding.bdm.uuid]
            for attachment in deleted(finding):
                world.drop(attachment.id)
        self.assertEqual([], [f for f in plan().due if f.is_removal])

    @worlds.profile(.15)
    @hypothesis.given(worlds.worlds())
    def test_a_killed_removal_is_continued(self, world: Any) -> None:
        """Quote "Cinder has a stale attachment. [...] The next hard reboot
        deletes the attachment" (faults).
        """
        world.rows.setdefault('bdm-root', make.root())
        # That of a volume that was transferred waits for an administrator.
        hypothesis.assume(all(
            v.project == make.PROJECT for v in world.volumes.values()))
        hypothesis.assume(all(
            a.status == 'attached' for a in world.attachments.values()))

        def decided() -> facts.Plan:
            return decision.decide(
                worlds.look(world, hidden=None), GENEROUS, make.NOW)

        plan = decided()
        for finding in plan.due:
            if finding.bdm and finding.dependent and finding.is_removal:
                break
        else:
            return
        del world.rows[finding.bdm.uuid]
        later = decided()
        # It waits for operations.  Beside another dangling disk it looks like
        # the new attachment of a swap that was interrupted.
        reported = {f.attachment.id for f in later.findings if f.attachment
                    and {f.reason, f.withheld} & {
                        Reason.OPERATION_IN_FLIGHT, Reason.SWAP_INTERRUPTED}}
        self.assertLessEqual(
            {a.id for a in finding.dependent},
            {a.id for f in later.due for a in deleted(f)} | reported)
