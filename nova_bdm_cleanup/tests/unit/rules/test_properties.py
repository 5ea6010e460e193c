# SPDX-License-Identifier: Apache-2.0
"""The properties of every world: the promises that the rules make."""

from __future__ import annotations

import dataclasses

import hypothesis
from hypothesis import strategies as st

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Policy, WitnessAnswer
from nova_bdm_cleanup.rules.reasons import Reason, REMOVED
from nova_bdm_cleanup.tests.unit import base, make, worlds
from nova_bdm_cleanup.tests.unit.node.cleanup import fakes

#: A policy that allows everything that the operator can forbid.
ALL = Policy(max_removals=100)

#: No migration is under way.
SETTLED = (None, '', 'none', 'success', 'error')


def decide(snapshot, policy=ALL):
    return rules.decide(snapshot, policy, make.NOW)


def asked_for(plan):
    """Return the removals that the tables ask for, also the withheld ones."""
    return {(f.bdm, f.attachment) for f in plan.findings if f.is_removal}


def deleted(plan):
    """Return the ids of the attachments that a plan deletes."""
    return {a.id for f in plan.due
            for a in (f.left_over if f.bdm else [f.attachment])}


def foreign(seen, volume_id):
    """Return whether only attachments that a mapping names count."""
    volume = seen.volumes.get(volume_id)
    return volume is not None and volume.project == make.OTHER_PROJECT


def ours(seen, volume_id):
    """Return the attachments of a volume to the server that count."""
    carried = {b.attachment_id for b in seen.bdms}
    return [a for a in seen.attachments if a.volume_id == volume_id
            and a.server_id == make.SERVER
            and (a.id in carried or not foreign(seen, volume_id))]


class Case:
    """A world, a look at it, and the decision."""

    def __init__(self, look, policy):
        self.world, self.seen = look
        self.policy = policy
        self.plan = decide(self.seen, policy)
        self.gone = deleted(self.plan)
        #: The attachments that mappings name.
        self.carried = {b.attachment_id for b in self.seen.bdms}
        self.removals = [f for f in self.plan.due if f.bdm]
        #: Removals after which another mapping keeps the disk.
        self.spare = [f for f in self.removals
                      if f.reason is Reason.DUPLICATE_MAPPING]
        self.taken = [f for f in self.removals if f not in self.spare]
        self.stay = [b for b in self.seen.bdms
                     if b not in [f.bdm for f in self.removals]]

    def under(self, **policy):
        """Return the case of the same look with another policy."""
        return Case((self.world, self.seen),
                    dataclasses.replace(self.policy, **policy))

    def changed(self, **seen):
        """Return the case of another look with the same policy."""
        return Case((self.world, dataclasses.replace(self.seen, **seen)),
                    self.policy)


def cases():
    return st.builds(Case, worlds.looks(), worlds.policies)


def of_any_look(test):
    """Run a test with many worlds, a look at each of them, and policies."""
    return worlds.profile()(hypothesis.given(cases())(test))


class StrategyTest(base.TestCase):
    """The strategy, whose worlds must reach every rule."""

    def test_every_reason_of_the_rules_comes_up(self):
        seen = set()
        due = set()

        @worlds.profile(share=4)
        @hypothesis.given(cases())
        def collect(case):
            for finding in case.plan.findings:
                seen.update([finding.reason, finding.withheld])
                if finding.is_due:
                    due.add(finding.reason)

        collect()
        self.assertEqual(set(), {
            Reason.HEALTHY, Reason.VOLUME_MISSING, Reason.VOLUME_AVAILABLE,
            Reason.ATTACHED_ELSEWHERE, Reason.STALE_ATTACHMENT,
            Reason.ATTACH_IN_FLIGHT, Reason.OPERATION_IN_FLIGHT,
            Reason.ROOT_VOLUME_DANGLING, Reason.ATTACHMENT_MISMATCH,
            Reason.LEGACY_ATTACHMENT,
            Reason.STATUS_CONTRADICTION, Reason.DUPLICATE_ATTACHMENT,
            Reason.DUPLICATE_MAPPING, Reason.SWAP_INTERRUPTED,
            Reason.CROSS_WIRED, Reason.VOLUME_BUSY, Reason.STUCK,
            Reason.RESERVED_ONLY, Reason.HALF_MOVED,
            Reason.CANNOT_SEE_PROJECT, Reason.SERVER_LOCKED,
            Reason.NOT_SELECTED, Reason.OVER_LIMIT, Reason.CINDER_SUSPECT}
            - seen)
        self.assertEqual(
            {*REMOVED, Reason.STALE_ATTACHMENT}, due)


class DecidePropertiesTest(base.TestCase):
    """The properties of one plan."""

    @of_any_look
    def test_never_a_root(self, case):
        roots = {b.volume_id for b in case.seen.bdms if b.is_root}
        for finding in case.removals:
            self.assertNotIn(finding.volume_id, roots)

    @of_any_look
    def test_only_mappings_from_volume_to_volume(self, case):
        for finding in case.removals:
            self.assertEqual(('volume', 'volume'), (
                finding.bdm.source_type, finding.bdm.destination_type))

    @of_any_look
    def test_never_a_volume_that_cinder_attaches_to_this_server(self, case):
        for finding in case.taken:
            volume = case.world.volumes.get(finding.volume_id)
            if volume is None:
                continue
            # A volume reset to available can be attached elsewhere; so the
            # remaining attachment must be deleted as well.
            if volume.status == 'available':
                self.assertLessEqual({
                    a.id for a in ours(case.seen, volume.id)
                    if a.status == 'attached' and a.connected}, case.gone)
            else:
                self.assertEqual('in-use', volume.status)
                self.assertEqual([], ours(case.seen, volume.id))
                self.assertEqual([], [
                    a for a in case.world.volume(volume.id).attached_to
                    if a.server_id == make.SERVER
                    and (a.attachment_id in case.carried
                         or not foreign(case.seen, volume.id))])

    @of_any_look
    def test_never_a_mapping_that_could_serve_the_guest(self, case):
        for finding in case.spare:
            self.assertFalse(finding.bdm.has_connection_info)
            self.assertFalse(finding.disconnect)
            self.assertEqual((), finding.left_over)
            # One row and one attachment remain, which belong together.
            serving, = ours(case.seen, finding.volume_id)
            self.assertEqual(('attached', True),
                             (serving.status, serving.connected))
            self.assertNotIn(serving.id, case.gone)
            self.assertTrue([
                b for b in case.stay if b.attachment_id == serving.id
                and b.volume_id == finding.volume_id
                and b.has_connection_info])

    @of_any_look
    def test_never_a_half_moved_disk(self, case):
        seen = case.seen
        known = {a.id for a in seen.attachments}
        for bdm in seen.bdms:
            volume = seen.volumes.get(bdm.volume_id)
            if not (bdm.is_in_cinder and bdm.has_connection_info and volume
                    # Cinder offers it to every server.
                    and volume.status != 'available'
                    and bdm.attachment_id
                    and bdm.attachment_id not in known):
                continue
            reserving = {a.id for a in ours(seen, bdm.volume_id)
                         if a.only_reserves and a.id not in case.carried}
            finding, = [f for f in case.plan.findings if f.bdm is bdm]
            if not reserving:
                self.assertIsNot(Reason.HALF_MOVED, finding.reason)
                continue
            self.assertFalse(finding.is_removal)
            self.assertEqual(set(), reserving & case.gone)
            if (volume.status in facts.TAKEN
                    and volume.migration_status in SETTLED
                    and all(a.status != 'attached'
                            for a in ours(seen, bdm.volume_id))
                    and all(a.server_id != make.SERVER
                            for a in volume.attached_to)):
                self.assertIs(Reason.HALF_MOVED, finding.reason)

    @of_any_look
    def test_nothing_while_a_swap_is_unfinished(self, case):
        if case.seen.swaps is facts.Ending.NONE:
            self.assertEqual((), case.plan.due)
        worse = case.changed(swaps=facts.Ending.FAILURE)
        left = [f for f in worse.plan.due if f.bdm is None]
        self.assertEqual([], left)

    @of_any_look
    def test_only_of_volumes_in_such_a_state(self, case):
        for finding in case.removals:
            volume = case.world.volumes.get(finding.volume_id)
            if volume is not None:
                self.assertIsNot(Reason.VOLUME_MISSING, finding.reason)
                self.assertIn(volume.status, ('available', 'in-use'))
                self.assertIn(volume.migration_status, SETTLED)

    @of_any_look
    def test_never_a_young_mapping_that_was_never_connected(self, case):
        for finding in case.removals:
            if not finding.bdm.has_connection_info:
                self.assertGreaterEqual(
                    make.NOW - finding.bdm.created_at,
                    case.policy.grace_period)

    @of_any_look
    def test_never_an_attachment_of_another_server(self, case):
        self.assertLessEqual(case.gone, {
            a.id for a in case.seen.attachments
            if a.server_id == make.SERVER})

    @of_any_look
    def test_never_an_attachment_that_a_mapping_needs(self, case):
        self.assertEqual(set(), case.gone.intersection(
            b.attachment_id for b in case.stay))

    @of_any_look
    def test_never_the_only_attachment_of_a_volume_with_a_mapping(self, case):
        # The attachments of a disk whose mapping stays are not all deleted.
        for bdm in case.stay:
            its = {a.id for a in case.seen.attachments
                   if a.volume_id == bdm.volume_id
                   and a.server_id == make.SERVER and a.status == 'attached'}
            if its:
                self.assertNotEqual(set(), its - case.gone, bdm)

    @of_any_look
    def test_a_removal_leaves_no_attachment_of_its_volume(self, case):
        for finding in case.taken:
            self.assertEqual([], [
                a for a in ours(case.seen, finding.volume_id)
                if a.id not in case.gone and not a.is_legacy])

    @of_any_look
    def test_nothing_that_was_attached_before_queens(self, case):
        self.assertEqual([], [a for a in case.seen.attachments
                              if a.id in case.gone and a.is_legacy])

    @of_any_look
    def test_nothing_stale_goes_while_anything_moves(self, case):
        moving = any(
            v and (v.status in ('detaching', 'retyping', 'maintenance')
                   or v.migration_status not in SETTLED)
            for i, v in case.seen.volumes.items() if i != worlds.FOREIGN)
        stale = [f for f in case.plan.due
                 if f.reason is Reason.STALE_ATTACHMENT]
        self.assertFalse(moving and stale)

    @of_any_look
    def test_never_beyond_the_limits(self, case):
        limit = case.policy.max_removals
        self.assertLessEqual(len(case.removals), limit)
        self.assertEqual(case.plan.removals, len(case.removals))
        self.assertLessEqual(len(case.plan.due), len(case.removals) + limit)

    @of_any_look
    def test_all_of_a_kind_or_none(self, case):
        free = case.under(max_removals=99)
        for kind in ('bdm', 'attachment'):
            found, all_of_it = (
                [getattr(f, kind) for f in plan.due if getattr(f, kind)]
                for plan in (case.plan, free.plan))
            self.assertIn(found, (all_of_it, []))

    @worlds.profile()
    @hypothesis.given(cases(), st.integers(1, 40), st.sampled_from([
        {}, {'status': 'reserved', 'connected': False},
        {'connected': False}]))
    def test_attachments_never_change_which_mappings_go(
            self, case, count, values):
        more = case.changed(
            volumes={**case.seen.volumes,
                     'volume-8': make.volume(id='volume-8')},
            attachments=(*case.seen.attachments, *(make.attachment(
                id='more-%d' % n, volume_id='volume-8', **values)
                for n in range(count))))
        before = {f.bdm for f in case.removals}
        after = {f.bdm for f in more.removals}
        # One of them may be left over from a failed swap.
        self.assertLessEqual(after, before)
        if case.seen.swaps is not facts.Ending.FAILURE:
            self.assertEqual(before, after)

    @worlds.profile()
    @hypothesis.given(cases(), st.data())
    def test_no_foreign_record_changes_anything(self, case, data):
        seen = case.seen
        volumes = {**seen.volumes, 'volume-8': make.volume(
            id='volume-8', project=make.OTHER_PROJECT,
            status=data.draw(st.sampled_from([
                'in-use', 'reserved', 'detaching'])))}
        volume_id = data.draw(st.sampled_from(sorted(
            v for v in volumes if foreign(dataclasses.replace(
                seen, volumes=volumes), v))))
        records = [make.attachment(
            id='forged-%d' % n, volume_id=volume_id,
            **data.draw(st.sampled_from([
                {}, {'status': 'reserved', 'connected': False},
                {'connected': False}, {'status': 'attaching'}])))
            for n in range(data.draw(st.integers(1, 12)))]
        volumes[volume_id] = dataclasses.replace(
            volumes[volume_id], attached_to=(
                *volumes[volume_id].attached_to,
                *(make.attached_to(attachment_id=a.id, host=make.OTHER_HOST)
                  for a in records if a.status == 'attached')))
        self.assertEqual(case.plan, case.changed(
            volumes=volumes,
            attachments=(*seen.attachments, *records)).plan)

    @of_any_look
    def test_nothing_of_a_locked_server(self, case):
        if case.world.server.is_locked:
            self.assertEqual((), case.plan.due)

    @of_any_look
    def test_only_what_the_operator_selects(self, case):
        for finding in case.plan.due:
            self.assertIn(finding.reason, case.policy.remove)

    @of_any_look
    def test_nothing_is_missing_in_a_suspect_cinder(self, case):
        self.assertNotIn(Reason.VOLUME_MISSING, [
            f.reason for f in case.changed(
                witness=WitnessAnswer.UNKNOWN).plan.due])

    @of_any_look
    def test_every_mapping_of_a_volume_has_one_finding(self, case):
        self.assertEqual(
            sorted(b.uuid for b in case.seen.bdms
                   if b.destination_type == 'volume'),
            sorted(f.bdm.uuid for f in case.plan.findings if f.bdm))

    @of_any_look
    def test_what_goes_has_a_reason_that_calls_for_it(self, case):
        for finding in case.plan.findings:
            self.assertTrue(finding.explanation)
            if finding.is_removal:
                self.assertIn(finding.reason,
                              REMOVED if finding.bdm
                              else [Reason.STALE_ATTACHMENT])

    @worlds.profile()
    @hypothesis.given(cases(), st.randoms())
    def test_the_order_of_the_facts_does_not_matter(self, case, random):
        def shuffled(items):
            items = list(items)
            random.shuffle(items)
            return items

        other = case.changed(
            bdms=tuple(shuffled(case.seen.bdms)),
            attachments=tuple(shuffled(case.seen.attachments)),
            volumes={i: v and dataclasses.replace(
                v, attached_to=tuple(shuffled(v.attached_to)))
                for i, v in shuffled(case.seen.volumes.items())})

        def essence(plan):
            return {dataclasses.replace(f, left_over=frozenset(f.left_over))
                    for f in plan.findings}

        self.assertEqual(essence(case.plan), essence(other.plan))
        self.assertEqual(case.plan, decide(case.seen, case.policy))


class ConfirmPropertiesTest(base.TestCase):
    """The properties of two looks."""

    @worlds.profile()
    @hypothesis.given(worlds.looks(), worlds.looks())
    def test_what_the_second_look_would_not_do_is_not_done(self, one, two):
        first, second = decide(one[1]), decide(two[1])
        agreed = rules.confirm(first, second)

        def deeds(plan):
            return {(f.reason, f.volume_id, f.bdm and f.bdm.uuid,
                     f.attachment_id) for f in plan.due}

        self.assertLessEqual(deeds(agreed), deeds(first) & deeds(second))
        # Nor anything that the first look did not find.
        self.assertLessEqual(set(agreed.due), set(first.due))
        self.assertEqual([(f.reason, f.bdm, f.attachment, f.is_removal)
                          for f in first.findings],
                         [(f.reason, f.bdm, f.attachment, f.is_removal)
                          for f in agreed.findings])

    @of_any_look
    def test_the_same_look_again_changes_nothing(self, case):
        self.assertEqual(case.plan, rules.confirm(
            case.plan, decide(case.seen, case.policy)))


class DeletedTest(base.TestCase):
    """The properties of a plan that is carried out in Cinder only."""

    @worlds.profile()
    @hypothesis.given(worlds.worlds())
    def test_healthy_mappings_stay_healthy(self, world):
        def having(*reasons):
            return {f.bdm.uuid for f in decide(worlds.look(
                world, hidden=None)).findings
                if f.bdm and f.reason in reasons and not f.is_removal}

        before = having(Reason.HEALTHY)
        cinder = fakes.Cinder(world)
        for attachment in deleted(decide(worlds.look(world, hidden=None))):
            cinder.delete_attachment(attachment)
        # A duplicate mapping shows only when nothing else is wrong.
        self.assertLessEqual(before, having(
            Reason.HEALTHY, Reason.DUPLICATE_MAPPING))
