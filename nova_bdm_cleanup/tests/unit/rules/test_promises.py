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
from nova_bdm_cleanup.rules import addresses, facts
from nova_bdm_cleanup.rules.facts import Action, Claim, Move, WitnessAnswer
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
        for finding in case.plan.due:
            if finding.bdm:
                self.assertEqual(('volume', 'volume'), (
                    finding.bdm.source_type, finding.bdm.destination_type))
        created = dataclasses.replace(case.policy, remove_created=True)
        for finding in rules.decide(case.seen, created, make.NOW).due:
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
                for attachment in deleted(finding):
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
        plan = rules.decide(bare, case.policy, make.NOW)
        self.assertEqual([], [f for f in plan.due if f.bdm is None])

    @of_any_look
    def test_no_other_host_is_disconnected(self, case: Case) -> None:
        """Quote "The device on another host whose stale attachment is deleted:
        the plugin works on one host only" (risks).
        """
        for finding in case.plan.due:
            if (finding.decision.row == Action.DISCONNECT_AND_DELETE
                    and finding.attachment):
                volume = case.seen.volumes.get(finding.volume_id or '')
                self.assertIsNotNone(volume)
                self.assertEqual(make.HOST, volume and volume.host_of(
                    finding.attachment.id))

    @of_any_look
    def test_a_half_moved_disk_is_left_to_a_person(self, case: Case) -> None:
        """Quote "disks are only ``reserved`` or have the other host's address
        [...] (end of the :doc:`runbook`)" (risks).
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
                self.assertIsNot(Reason.HALF_MOVED, finding.reason)
                continue
            self.assertFalse(finding.is_removal)
            self.assertEqual(set(), reserving & case.deleted)
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
        self.assertFalse(due[0].decision.connect)


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
            for plan in (case.plan, rules.decide(
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
                        and not volume.attached_to):
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
                wanted, done = ([f for f in plan.due
                                 if (f.bdm is not None) == is_mapping]
                                for plan in (unlimited, limited))
                self.assertEqual(wanted if len(wanted) <= limit else [], done)
            self.assertEqual(sum(f.bdm is not None for f in limited.due),
                             limited.removals)

    @of_any_look
    def test_disks_over_a_limit_are_connected(self, case: Case) -> None:
        """Quote "a disk is not connected [...], except: [...] disks over a
        limit (``over-limit``)" (behaviour).
        """
        for finding in case.plan.findings:
            if finding.bdm and finding.withheld in (
                    Reason.OVER_LIMIT, Reason.CINDER_SUSPECT):
                self.assertTrue(finding.decision.connect)

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
        self.assertEqual((), rules.decide(lost, case.policy, make.NOW).due)
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
        for finding in rules.decide(seen, case.policy, make.NOW).due:
            self.assertIsNotNone(finding.bdm)
            self.assertIsNotNone(seen.volumes.get(finding.volume_id or ''))

    @of_any_look
    def test_a_locked_server_is_only_reported(self, case: Case) -> None:
        """Quote "The findings of a server are only reported [...] if an
        administrator locks it" (configuration), and "not connected, even if
        its mapping stays" (behaviour).
        """
        free, locked = (
            rules.decide(dataclasses.replace(
                case.seen, server=make.server(is_locked=is_locked)),
                case.policy, make.NOW) for is_locked in (False, True))
        self.assertEqual((), locked.due)
        self.assertEqual(len(free.findings), len(locked.findings))
        for finding in free.due:
            # One that is younger than settle_time is connected.
            if finding.bdm and finding.disconnect and case.policy.is_settled(
                    finding.bdm.updated_at or finding.bdm.created_at,
                    make.NOW):
                self.assertIn(finding.bdm.uuid, locked.not_connected)

    @of_any_look
    def test_nothing_of_a_swap_without_an_end(self, case: Case) -> None:
        """Quote "A swap of volumes without an end: its disks are never
        removed" (risks).
        """
        self.assertEqual((), case.changed(swaps=facts.Ending.NONE).plan.due)
        # One that failed may have left an attachment.
        self.assertEqual([], [
            f for f in case.changed(swaps=facts.Ending.FAILURE).plan.due
            if f.bdm is None])

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
            self.assertLessEqual({*agreed.due}, {*one.plan.due})
            self.assertEqual(*(
                [(f.reason, f.bdm, f.attachment, f.is_removal)
                 for f in plan.findings] for plan in (one.plan, agreed)))
        self.assertEqual(one.plan, agreed)

    def _whats(self, plan: facts.Plan) -> set[object]:
        return {(f.reason, f.bdm and f.bdm.uuid, f.volume_id,
                 f.attachment_id, f.decision.row) for f in plan.due}


class SettleTimeTest(base.TestCase):

    def _wait(self, seen: facts.Snapshot,
              now: datetime.datetime = make.NOW) -> datetime.timedelta:
        plan = rules.decide(seen, GENEROUS, now)
        return max(rules.unsettled_for(plan, seen, GENEROUS, now).values(),
                   default=datetime.timedelta(0))

    @worlds.profile()
    @hypothesis.given(cases.generous, st.data())
    def test_nothing_rests_on_a_young_record(
            self, case: Case, data: Any) -> None:
        """Quote "If a removal rests on a record that is younger than
        ``settle_time``, the cleanup waits and reads again" (behaviour).
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
        plan = rules.decide(seen, GENEROUS, make.NOW)
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
        """Quote "the cleanup waits and reads again" (behaviour): where no
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
    """What Cinder shows decides which disks are connected."""

    def _disks(self, case: Case) -> Iterable[tuple[facts.Finding, facts.Bdm]]:
        for finding in case.plan.findings:
            bdm = finding.bdm
            if bdm and bdm.volume_id and bdm.is_in_cinder:
                yield finding, bdm

    @of_any_look
    def test_root_disk_and_its_volume_are_connected(self, case: Case) -> None:
        """Quote "a disk is not connected [...], except: [...] the root disk,
        and disks with the same volume" (behaviour).
        """
        for finding, bdm in self._disks(case):
            if bdm.volume_id in roots(case.seen) and not finding.is_due:
                self.assertTrue(finding.decision.connect, finding)

    @of_any_look
    def test_a_volume_in_use_without_any_attachment(self, case: Case) -> None:
        """Quote "[connected is] a disk whose volume is ``in-use`` without any
        attachment" (behaviour).
        """
        for finding, bdm in self._disks(case):
            volume = case.seen.volumes.get(bdm.volume_id or '')
            if (volume and volume.status == 'in-use'
                    and not volume.attached_to and not any(
                        a.volume_id == bdm.volume_id
                        for a in case.seen.attachments)):
                self.assertTrue(finding.decision.connect, finding)

    @of_any_look
    def test_disk_that_cinder_attaches_here_is_connected(
            self, case: Case) -> None:
        """Quote "If Cinder shows no attachment of this server, a disk is not
        connected" (behaviour): one that it shows is enough for a healthy disk.
        """
        for finding, _ in self._disks(case):
            if finding.reason == Reason.HEALTHY:
                self.assertTrue(finding.decision.connect, finding)


class AddressTest(base.TestCase):
    """The rule of addresses."""

    def _addressed(self, case: Case) -> Iterable[facts.Bdm]:
        """Return the disks whose row has an address."""
        return [b for b in case.seen.bdms if b.is_in_cinder and b.volume_id
                and b.has_connection_info]

    def _is_shown_here(self, seen: facts.Snapshot, bdm: facts.Bdm) -> bool:
        """Return whether any record attaches the disk to server and host."""
        volume = seen.volumes.get(bdm.volume_id or '')
        if volume is None:
            return False
        # Cinder has two lists.
        return any(
            a.status == 'attached'
            and volume.host_of(a.id) in (make.HOST, None)
            for a in ours(seen, bdm.volume_id)) or any(
                e.server_id == make.SERVER and e.host == make.HOST
                and (volume.project != make.OTHER_PROJECT
                     or e.attachment_id in named(seen))
                for e in volume.attached_to)

    def _may_have(self, records: addresses.Records, claim: Claim) -> bool:
        """Return whether another guest has or may have the address.

        While Cinder does not tell, a guest that runs has it, and not one that
        does not run.
        """
        if claim.is_attached is None and records.guest_runs:
            return claim.runs
        return (claim.may_run or claim.is_young
                or claim.is_attached is not False)

    def _given(self, plan: facts.Plan) -> set[str]:
        return {f.bdm.uuid for f in plan.findings if f.bdm} - {*plan.left_out}

    def _due(self, plan: facts.Plan) -> set[object]:
        return {(f.bdm and f.bdm.uuid, f.attachment_id) for f in plan.due}

    @of_any_look
    def test_no_address_that_another_guest_has_or_may_have(
            self, case: Case) -> None:
        """Quote "[never] give the driver a disk, to connect or to disconnect,
        whose address another guest has or may have" (behaviour).
        """
        left_out = case.applied().left_out
        for bdm in self._addressed(case):
            if (any(self._may_have(case.records, c)
                    for c in case.records.claims.get(bdm.uuid, ()))
                    and not self._is_shown_here(case.seen, bdm)):
                self.assertIn(bdm.uuid, left_out)

    @of_any_look
    def test_unread_rows_give_no_disk(self, case: Case) -> None:
        """Quote "whose address another guest has or may have" (behaviour):
        where rows could not be read, any guest may have it.
        """
        left_out = case.applied(dataclasses.replace(
            case.records, failure='no answer')).left_out
        asked = addresses.unconfirmed(case.seen, case.policy, make.NOW)
        self.assertLessEqual({b.uuid for b in asked}, {*left_out})

    @of_any_look
    def test_a_free_address_is_given(self, case: Case) -> None:
        """Quote "is named by no other row of this host [...]: given to the
        driver" (behaviour).
        """
        left_out = case.applied(addresses.Records()).left_out
        for bdm in self._addressed(case):
            volume = case.seen.volumes.get(bdm.volume_id or '')
            if volume is None or all(
                    e.host in (make.HOST, None) for e in volume.attached_to):
                self.assertNotIn(bdm.uuid, left_out)

    @of_any_look
    def test_rows_are_read_for_disks_not_shown_here(self, case: Case) -> None:
        """Quote "Nova's rows are read only if Cinder does not show a disk
        attached to this server and this host" (decisions).
        """
        asked = {b.uuid for b in addresses.unconfirmed(
            case.seen, case.policy, make.NOW)}
        for bdm in self._addressed(case):
            if not self._is_shown_here(case.seen, bdm):
                self.assertIn(bdm.uuid, asked)
            elif all(b.volume_id != bdm.volume_id or b == bdm
                     for b in case.seen.bdms):
                finding, = (f for f in case.plan.findings if f.bdm == bdm)
                own = [a for a in ours(case.seen, bdm.volume_id)
                       if a.id == bdm.attachment_id]
                if finding.reason == Reason.HEALTHY and own and (
                        own[0].status == 'attached' and own[0].connected):
                    host = case.seen.volumes[bdm.volume_id].host_of(own[0].id)
                    if host == make.HOST:
                        self.assertNotIn(bdm.uuid, asked)

    @worlds.profile()
    @hypothesis.given(cases.cases, st.data())
    def test_one_more_claim_gives_no_disk(
            self, case: Case, data: Any) -> None:
        """Quote "is named by no other row of this host" (behaviour): another
        row never gives one.
        """
        hypothesis.assume(case.seen.bdms)
        uuid = data.draw(st.sampled_from([b.uuid for b in case.seen.bdms]))
        claims = [*case.records.claims.get(uuid, ())]
        claims.insert(data.draw(st.integers(0, len(claims))),
                      data.draw(cases.claims))
        more = case.applied(dataclasses.replace(
            case.records, claims={**case.records.claims, uuid: claims}))
        self.assertLessEqual(self._given(more), self._given(case.applied()))

    @worlds.profile(.5)
    @hypothesis.given(cases.generous, st.data())
    def test_more_doubt_gives_and_removes_no_more(
            self, case: Case, data: Any) -> None:
        """Quote "The cleanup of this disk stops if another server may have
        the disk or its address" (behaviour).
        """
        # While this guest runs, another one that does not run has the disk
        # only if Cinder shows that.
        doubts = data.draw(st.sets(st.sampled_from(
            ['may_run', 'is_young', 'failure', 'claim',
             *['is_attached'] * (not case.records.guest_runs)]), min_size=1))
        changes: dict[str, Any] = {
            name: value for name, value in (
                ('may_run', True), ('is_young', True), ('is_attached', None))
            if name in doubts}
        claims = {uuid: [dataclasses.replace(c, **changes) for c in each]
                  for uuid, each in case.records.claims.items()}
        if 'claim' in doubts:
            claims = {b.uuid: [*claims.get(b.uuid, ()), Claim(
                make.OTHER_SERVER, 'volume-9', None, True, True, True)]
                for b in case.seen.bdms}
        doubtful = case.applied(dataclasses.replace(
            case.records, claims=claims,
            failure='no answer' if 'failure' in doubts
            else case.records.failure))
        certain = case.applied()
        self.assertLessEqual(self._given(doubtful), self._given(certain))
        self.assertLessEqual(self._due(doubtful), self._due(certain))

    @of_any_look
    def test_the_rule_removes_nothing_itself(self, case: Case) -> None:
        """Quote "This is decided apart from the removal" (behaviour)."""
        plan, applied = case.plan, case.applied()
        self.assertLessEqual(self._due(applied), self._due(plan))
        self.assertLessEqual(self._given(applied), self._given(plan))
        self.assertLessEqual({*plan.not_connected}, {*applied.not_connected})

    @of_any_look
    def test_rows_alone_decide_without_an_answer_of_cinder(
            self, case: Case) -> None:
        """Quote "the rule holds [...] if Cinder does not answer, is suspect,
        or has used up the time: then Nova's rows alone decide" (behaviour).
        """
        silent = dataclasses.replace(case.records, moves=(), claims={
            uuid: [dataclasses.replace(c, is_attached=None) for c in each]
            for uuid, each in case.records.claims.items()})
        findings = addresses.without_cinder(
            case.seen.bdms, case.seen.server, silent, Reason.CINDER_UNKNOWN)
        left_out = {f.bdm.uuid for f in findings if f.bdm}
        for bdm in self._addressed(case):
            if case.records.failure or any(
                    self._may_have(silent, c)
                    for c in silent.claims.get(bdm.uuid, ())):
                self.assertIn(bdm.uuid, left_out)
            elif not case.records.claims.get(bdm.uuid):
                self.assertNotIn(bdm.uuid, left_out)

    @of_any_look
    def test_silence_removes_nothing(self, case: Case) -> None:
        """Quote "If Cinder does not answer, it removes nothing" (README)."""
        for finding in addresses.without_cinder(
                case.seen.bdms, case.seen.server, case.records,
                Reason.CINDER_UNKNOWN):
            self.assertFalse(finding.is_removal)
            self.assertTrue(finding.address)

    @worlds.profile(.5)
    @hypothesis.given(
        st.sampled_from([0, 1, None]),
        st.sampled_from(['attached', 'reserved']),
        st.booleans(), st.sampled_from(['in-use', 'reserved', 'available']),
        st.sampled_from(facts.Progress), st.sampled_from([601, 7200, 86400]),
        st.sampled_from([None, 590, 5, 0, -60]))
    def test_the_address_of_another_host_is_not_given(
            self, boot_index: int | None, status: str, is_own: bool,
            volume_status: str, progress: facts.Progress, written: int,
            changed: int | None) -> None:
        """Quote "If a row has one, because a move ended half way, its disk is
        neither connected nor disconnected on this host" (decisions).
        """
        # The row was last written on the host that the server left.
        bdm = make.bdm(
            boot_index=boot_index, created_at=make.ago(90000),
            updated_at=make.ago(written),
            attachment_id='attachment-1' if is_own else 'attachment-gone')
        is_attached = status == 'attached'
        seen = make.snapshot(
            [bdm], [make.volume(status=volume_status, attached_to=(
                make.attached_to(host=make.OTHER_HOST),) * is_attached)],
            [make.attachment(status=status, connected=is_attached)],
            roots=(make.root(),) * (boot_index != 0))
        plan = addresses.apply(
            make.decide(seen), seen, GENEROUS, make.NOW,
            addresses.Records(moves=[Move(
                make.OTHER_HOST, make.HOST, progress, make.ago(600),
                None if changed is None else make.ago(changed))]))
        self.assertIn(bdm.uuid, plan.left_out)
        self.assertIn(bdm.uuid, plan.not_connected)


class AgainTest(base.TestCase):

    @of_any_look
    def test_the_same_facts_give_the_same_decisions(self, case: Case) -> None:
        """Quote "The next reboot decides again" (behaviour): by the facts
        alone.
        """
        plan = case.applied()
        self.assertEqual(plan, case.changed().applied())
        self.assertEqual(as_seen(plan), as_seen(addresses.apply(
            plan, case.seen, case.policy, make.NOW, case.records)))

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

        seen, records = case.seen, case.records
        other = dataclasses.replace(
            case.changed(
                bdms=shuffled(seen.bdms),
                attachments=shuffled(seen.attachments),
                volumes={i: v and dataclasses.replace(
                    v, attached_to=shuffled(v.attached_to))
                    for i, v in shuffled(seen.volumes.items())}),
            records=dataclasses.replace(records, claims={
                i: shuffled(claims)
                for i, claims in records.claims.items()}))
        self.assertEqual(*(
            {(dataclasses.replace(f, left_over=()), frozenset(f.left_over))
             for f in plan.findings} for plan in (case.plan, other.plan)))
        # A mapping from before Queens names no attachment: its host is that of
        # the first entry.
        listed = other.changed(
            volumes={i: seen.volumes[i] for i in other.seen.volumes})
        self.assertEqual(*(
            (as_seen(plan), {*plan.left_out})
            for plan in (case.applied(), listed.applied())))

    @of_any_look
    def test_stale_attachments_come_after_all_mappings(
            self, case: Case) -> None:
        """Quote "After all mappings, the stale attachments are deleted"
        (behaviour).
        """
        kinds = [f.bdm is None for f in case.plan.due]
        self.assertEqual(sorted(kinds), kinds)

    @worlds.profile()
    @hypothesis.given(worlds.worlds())
    def test_second_cleanup_removes_nothing(self, world: Any) -> None:
        """Quote "The cleanup is complete" (faults): the next hard
        reboot has nothing to do.
        """
        def plan() -> facts.Plan:
            return rules.decide(
                worlds.look(world, hidden=None), GENEROUS, make.NOW)

        for finding in plan().due:
            if finding.bdm:
                del world.rows[finding.bdm.uuid]
            for attachment in deleted(finding):
                world.drop(attachment.id)
        self.assertEqual((), plan().due)

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
            return rules.decide(
                worlds.look(world, hidden=None), GENEROUS, make.NOW)

        plan = decided()
        for finding in plan.due:
            if finding.bdm and finding.left_over:
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
            {a.id for a in finding.left_over},
            {a.id for f in later.due for a in deleted(f)} | reported)
