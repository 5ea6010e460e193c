# SPDX-License-Identifier: Apache-2.0
"""What holds in every world: the promises that the rules make."""

from __future__ import annotations

import dataclasses
import itertools

import hypothesis
from hypothesis import strategies as st

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Policy, Reason, WitnessAnswer
from nova_bdm_cleanup.tests.unit import base, make, worlds
from nova_bdm_cleanup.tests.unit.cleanup import fakes

#: Nothing that the operator could forbid stands in the way.
ALL = Policy(max_removals=100, max_attachments=100)


def decide(snapshot, policy=ALL):
    return rules.decide(snapshot, policy, make.NOW)


def removals(plan):
    return [f for f in plan.due if f.bdm]


def spare(plan):
    """Removals of mappings whose disk the server keeps."""
    return [f for f in removals(plan)
            if f.reason is Reason.DUPLICATE_MAPPING]


def taken(plan):
    """Removals that take a disk from the server."""
    return [f for f in removals(plan)
            if f.reason is not Reason.DUPLICATE_MAPPING]


def asked_for(plan):
    """What the tables would have removed, whatever withholds it."""
    return {(f.bdm, f.attachment) for f in plan.findings if f.goes}


def deleted(plan):
    """Every attachment that a plan deletes."""
    return list(itertools.chain.from_iterable(
        f.left_over if f.bdm else [f.attachment] for f in plan.due))


def foreign(look, volume_id):
    """Whether only what a mapping names counts of a volume's attachments."""
    volume = look.volumes.get(volume_id)
    return volume is not None and volume.project == make.OTHER_PROJECT and \
        all(b.attachment_id for b in look.bdms if b.volume_id == volume_id)


def ours(look, volume_id):
    """The attachments of a volume to the server that count."""
    carried = {b.attachment_id for b in look.bdms}
    return [a for a in look.attachments if a.volume_id == volume_id
            and a.server_id == make.SERVER
            and (a.id in carried or not foreign(look, volume_id))]


def of_any_look(test):
    """Run a test with many worlds, a look at each, and policies."""
    return worlds.profile()(hypothesis.given(
        worlds.looks(), worlds.policies)(test))


class StrategyTest(base.TestCase):
    """The worlds are worth looking at."""

    def test_every_reason_of_the_rules_comes_up(self):
        seen = set()
        due = set()

        @worlds.profile(share=4)
        @hypothesis.given(worlds.looks(), worlds.policies)
        def collect(look, policy):
            for finding in decide(look[1], policy).findings:
                seen.update([finding.reason, finding.withheld])
                if finding.is_due:
                    due.add(finding.reason)

        collect()
        self.assertEqual(set(), {
            Reason.HEALTHY, Reason.VOLUME_MISSING, Reason.VOLUME_AVAILABLE,
            Reason.ATTACHED_ELSEWHERE, Reason.STALE_ATTACHMENT,
            Reason.ATTACH_IN_FLIGHT, Reason.OPERATION_IN_FLIGHT,
            Reason.ROOT_VOLUME_DANGLING, Reason.ATTACHMENT_MISMATCH,
            Reason.STATUS_CONTRADICTION, Reason.DUPLICATE_ATTACHMENT,
            Reason.DUPLICATE_MAPPING, Reason.SWAP_INTERRUPTED,
            Reason.CROSS_WIRED, Reason.VOLUME_BUSY, Reason.STUCK,
            Reason.CANNOT_SEE_PROJECT, Reason.OPTED_OUT,
            Reason.NOT_SELECTED, Reason.OVER_LIMIT, Reason.CINDER_SUSPECT}
            - seen)
        self.assertEqual(
            {*facts.REMOVED, Reason.STALE_ATTACHMENT}, due)


class DecidePropertiesTest(base.TestCase):
    """Of one plan."""

    @of_any_look
    def test_never_a_root(self, look, policy):
        world, seen = look
        roots = {b.volume_id for b in world.rows.values() if b.is_root}
        for finding in removals(decide(seen, policy)):
            self.assertNotIn(finding.volume_id, roots)

    @of_any_look
    def test_never_the_attachment_of_a_root(self, look, policy):
        world, seen = look
        carried = {b.attachment_id for b in world.rows.values() if b.is_root}
        for attachment in deleted(decide(seen, policy)):
            self.assertNotIn(attachment.id, carried)

    @of_any_look
    def test_only_mappings_from_volume_to_volume(self, look, policy):
        for finding in removals(decide(look[1], policy)):
            self.assertEqual(('volume', 'volume'), (
                finding.bdm.source_type, finding.bdm.destination_type))

    @of_any_look
    def test_never_a_volume_that_cinder_attaches_to_this_server(
            self, look, policy):
        world, seen = look
        policy = dataclasses.replace(policy, max_attachments=99)
        plan = decide(seen, policy)
        gone = {a.id for a in deleted(plan)}
        for finding in taken(plan):
            volume = world.volumes.get(finding.volume_id)
            if volume is None:
                continue
            # Whoever resets a status to available gives the volume away; the
            # attachment that is left must then go as well.
            if volume.status == 'available':
                self.assertLessEqual({
                    a.id for a in ours(seen, volume.id)
                    if a.status == 'attached'}, gone)
            else:
                self.assertEqual('in-use', volume.status)
                self.assertEqual([], ours(seen, volume.id))
                carried = {b.attachment_id for b in seen.bdms}
                self.assertEqual([], [
                    a for a in world.volume(volume.id).attached_to
                    if a.server_id == make.SERVER
                    and (a.attachment_id in carried
                         or not foreign(seen, volume.id))])

    @of_any_look
    def test_never_a_mapping_that_could_serve_the_guest(self, look, policy):
        plan = decide(look[1], policy)
        removed = {f.bdm.uuid for f in removals(plan)}
        gone = {a.id for a in deleted(plan)}
        for finding in spare(plan):
            self.assertFalse(finding.bdm.has_connection_info)
            self.assertFalse(finding.disconnect)
            self.assertEqual((), finding.left_over)
            # One row and one attachment are left, which go together.
            serving, = [a for a in ours(look[1], finding.volume_id)]
            self.assertEqual(('attached', True),
                             (serving.status, serving.connected))
            self.assertNotIn(serving.id, gone)
            self.assertTrue([
                b for b in look[1].bdms if b.attachment_id == serving.id
                and b.volume_id == finding.volume_id
                and b.has_connection_info and b.uuid not in removed])

    @of_any_look
    def test_never_a_disk_of_a_swap_that_has_not_ended(self, look, policy):
        seen = look[1]
        hypothesis.assume(seen.swaps)
        carried = {b.attachment_id for b in seen.bdms}
        left = [a for a in seen.attachments if a.id not in carried
                and a.server_id == make.SERVER and not foreign(
                    seen, a.volume_id)
                and (a.connected or a.status == 'attached')
                and seen.volumes[a.volume_id].host_of(a.id) in (
                    None, make.HOST)]
        plan = decide(seen, policy)
        self.assertEqual([], [
            a for a in left if a in [f.attachment for f in plan.due]])
        if left:
            self.assertEqual([], [
                f for f in taken(plan)
                if f.bdm.created_at is None
                or any(f.bdm.created_at <= s.began for s in seen.swaps)])

    @worlds.profile()
    @hypothesis.given(worlds.looks(), worlds.policies, st.data())
    def test_another_swap_that_has_not_ended_keeps_more(
            self, look, policy, data):
        ages = st.integers(0, 2000)
        seen = dataclasses.replace(look[1], attachments=tuple(
            dataclasses.replace(a, attached_at=make.ago(data.draw(ages)))
            for a in look[1].attachments))
        began = data.draw(ages)
        swap = facts.Swap(make.ago(began), data.draw(st.one_of(
            st.none(), st.integers(0, began).map(make.ago))))
        before = asked_for(decide(seen, policy))
        for swaps in ((*seen.swaps, swap), (swap, *seen.swaps)):
            after = asked_for(decide(
                dataclasses.replace(seen, swaps=swaps), policy))
            self.assertLessEqual(after, before)
            self.assertLessEqual(after, asked_for(decide(
                dataclasses.replace(seen, swaps=(swap,)), policy)))

    @of_any_look
    def test_missing_only_when_it_is(self, look, policy):
        world, seen = look
        for finding in removals(decide(seen, policy)):
            if finding.reason is Reason.VOLUME_MISSING:
                self.assertNotIn(finding.volume_id, world.volumes)

    @of_any_look
    def test_never_a_volume_that_is_busy_or_migrates(self, look, policy):
        for finding in removals(decide(look[1], policy)):
            volume = look[0].volumes.get(finding.volume_id)
            if volume is not None:
                self.assertIn(volume.status, ('available', 'in-use'))
                self.assertIn(volume.migration_status,
                              (None, '', 'none', 'success', 'error'))

    @of_any_look
    def test_never_a_young_mapping_that_was_never_connected(
            self, look, policy):
        for finding in removals(decide(look[1], policy)):
            if not finding.bdm.has_connection_info:
                self.assertGreaterEqual(
                    make.NOW - finding.bdm.created_at, policy.grace_period)

    @of_any_look
    def test_never_an_attachment_of_another_server(self, look, policy):
        for attachment in deleted(decide(look[1], policy)):
            self.assertEqual(make.SERVER, attachment.server_id)

    @of_any_look
    def test_never_an_attachment_that_a_mapping_needs(self, look, policy):
        plan = decide(look[1], policy)
        removed = {f.bdm.uuid for f in removals(plan)}
        needed = {b.attachment_id for b in look[1].bdms
                  if b.uuid not in removed}
        self.assertEqual(
            set(), needed.intersection(a.id for a in deleted(plan)))

    @of_any_look
    def test_never_the_only_attachment_of_a_volume_with_a_mapping(
            self, look, policy):
        # What serves the disk of a mapping that stays is not taken away.
        plan = decide(look[1], policy)
        gone = {a.id for a in deleted(plan)}
        removed = {f.bdm.uuid for f in removals(plan)}
        for bdm in look[1].bdms:
            ours = {a.id for a in look[1].attachments
                    if a.volume_id == bdm.volume_id and bdm.volume_id
                    and a.server_id == make.SERVER
                    and a.status == 'attached'}
            if bdm.uuid not in removed and ours:
                self.assertNotEqual(set(), ours - gone, bdm)

    @of_any_look
    def test_a_removal_leaves_no_attachment_of_its_volume(
            self, look, policy):
        plan = decide(look[1],
                      dataclasses.replace(policy, max_attachments=99))
        gone = {a.id for a in deleted(plan)}
        for finding in taken(plan):
            self.assertEqual([], [
                a for a in ours(look[1], finding.volume_id)
                if a.id not in gone])

    @of_any_look
    def test_nothing_stale_goes_while_anything_moves(self, look, policy):
        moving = look[0].server.locked_by_admin or any(
            v and (v.status in ('detaching', 'retyping', 'maintenance')
                   or v.migration_status not in (
                       None, '', 'none', 'success', 'error'))
            for i, v in look[1].volumes.items() if i != worlds.FOREIGN)
        stale = [f for f in decide(look[1], policy).due
                 if f.reason is Reason.STALE_ATTACHMENT]
        self.assertFalse(moving and stale)

    @of_any_look
    def test_never_beyond_the_limits(self, look, policy):
        plan = decide(look[1], policy)
        self.assertLessEqual(plan.removals, policy.max_removals)
        self.assertEqual(plan.removals, len(removals(plan)))
        carried = {b.attachment_id for b in look[1].bdms}
        self.assertLessEqual(
            len([a for a in deleted(plan) if a.id not in carried]),
            policy.max_attachments)

    @of_any_look
    def test_all_mappings_or_none(self, look, policy):
        free = decide(look[1], dataclasses.replace(policy, max_removals=99))
        self.assertIn(
            [f.bdm for f in removals(decide(look[1], policy))],
            ([f.bdm for f in removals(free)], []))

    @worlds.profile()
    @hypothesis.given(worlds.looks(), worlds.policies, st.integers(1, 40),
                      st.sampled_from([
                          {}, {'status': 'reserved', 'connected': False},
                          {'connected': False}]))
    def test_attachments_never_change_which_mappings_go(
            self, look, policy, count, values):
        _world, seen = look
        more = dataclasses.replace(
            seen, volumes={**seen.volumes,
                           'volume-8': make.volume(id='volume-8')},
            attachments=(*seen.attachments, *(make.attachment(
                id='more-%d' % n, volume_id='volume-8', **values)
                for n in range(count))))
        before = {f.bdm for f in removals(decide(seen, policy))}
        after = {f.bdm for f in removals(decide(more, policy))}
        # Those of a swap that has not ended keep what it may have met.
        self.assertLessEqual(after, before)
        if not seen.swaps:
            self.assertEqual(before, after)

    @worlds.profile()
    @hypothesis.given(worlds.looks(), worlds.policies, st.data())
    def test_no_foreign_record_changes_anything(self, look, policy, data):
        _world, seen = look
        stranger = make.volume(id='volume-8', project=make.OTHER_PROJECT,
                               status=data.draw(st.sampled_from([
                                   'in-use', 'reserved', 'detaching'])))
        volumes = {**seen.volumes, 'volume-8': stranger}
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
        self.assertEqual(decide(seen, policy), decide(dataclasses.replace(
            seen, volumes=volumes,
            attachments=(*seen.attachments, *records)), policy))

    @of_any_look
    def test_never_what_is_opted_out(self, look, policy):
        world, seen = look
        for finding in decide(seen, policy).due:
            self.assertFalse(
                world.server.keep
                and finding.reason is not Reason.ATTACHED_ELSEWHERE
                and not foreign(seen, finding.volume_id))
            volume = seen.volumes.get(finding.volume_id)
            self.assertFalse(volume and volume.keep
                             and volume.project != make.OTHER_PROJECT)

    @of_any_look
    def test_only_what_the_operator_selects(self, look, policy):
        for finding in decide(look[1], policy).due:
            if finding.bdm:
                self.assertIn(finding.reason, policy.remove_when)
            else:
                self.assertTrue(policy.stale_attachments)

    @of_any_look
    def test_nothing_is_missing_in_a_suspect_cinder(self, look, policy):
        plan = decide(dataclasses.replace(
            look[1], witness=WitnessAnswer.UNKNOWN), policy)
        self.assertNotIn(Reason.VOLUME_MISSING,
                         [f.reason for f in plan.due])

    @of_any_look
    def test_every_mapping_of_a_volume_has_one_finding(self, look, policy):
        self.assertEqual(
            sorted(b.uuid for b in look[1].bdms
                   if b.destination_type == 'volume'),
            sorted(f.bdm.uuid for f in decide(look[1], policy).findings
                   if f.bdm))

    @of_any_look
    def test_an_action_has_a_reason_that_calls_for_it(self, look, policy):
        for finding in decide(look[1], policy).findings:
            self.assertTrue(finding.explanation)
            if finding.goes and finding.bdm:
                self.assertIn(finding.reason, facts.REMOVED)
            elif finding.goes:
                self.assertIs(Reason.STALE_ATTACHMENT, finding.reason)

    @worlds.profile()
    @hypothesis.given(worlds.looks(), worlds.policies, st.randoms())
    def test_the_order_of_the_facts_does_not_matter(
            self, look, policy, random):
        def shuffled(items):
            items = list(items)
            random.shuffle(items)
            return items

        _world, seen = look
        other = dataclasses.replace(
            seen, bdms=tuple(shuffled(seen.bdms)),
            attachments=tuple(shuffled(seen.attachments)),
            volumes={i: v and dataclasses.replace(
                v, attached_to=tuple(shuffled(v.attached_to)))
                for i, v in shuffled(seen.volumes.items())})

        def essence(plan):
            return {(
                f.reason, f.explanation, f.withheld, f.bdm, f.attachment,
                f.goes, f.disconnect, frozenset(f.left_over))
                for f in plan.findings}

        self.assertEqual(essence(decide(seen, policy)),
                         essence(decide(other, policy)))
        self.assertEqual(decide(seen, policy), decide(seen, policy))


class ConfirmPropertiesTest(base.TestCase):
    """Of two looks."""

    @worlds.profile()
    @hypothesis.given(worlds.looks(), worlds.looks())
    def test_it_never_adds(self, one, two):
        first, second = decide(one[1]), decide(two[1])
        agreed = rules.confirm(first, second)
        self.assertLessEqual(set(agreed.due), set(first.due))
        self.assertEqual([(f.reason, f.bdm, f.attachment, f.goes)
                          for f in first.findings],
                         [(f.reason, f.bdm, f.attachment, f.goes)
                          for f in agreed.findings])

    @worlds.profile()
    @hypothesis.given(worlds.looks(), worlds.looks())
    def test_what_the_second_look_would_not_do_is_not_done(self, one, two):
        first, second = decide(one[1]), decide(two[1])

        def deeds(plan):
            return {(f.reason, f.volume_id, f.bdm and f.bdm.uuid,
                     f.attachment_id) for f in plan.due}

        self.assertLessEqual(deeds(rules.confirm(first, second)),
                             deeds(first) & deeds(second))

    @worlds.profile()
    @hypothesis.given(worlds.looks(), worlds.policies)
    def test_the_same_look_again_changes_nothing(self, look, policy):
        plan = decide(look[1], policy)
        self.assertEqual(plan, rules.confirm(plan, decide(look[1], policy)))

    @worlds.profile()
    @hypothesis.given(worlds.looks(), st.data())
    def test_any_one_change_of_what_an_action_touches_stops_it(
            self, look, data):
        _world, seen = look
        first = decide(seen)
        hypothesis.assume(first.due)
        finding = data.draw(st.sampled_from(first.due))
        if finding.bdm:
            other = dataclasses.replace(
                seen, bdms=tuple(b for b in seen.bdms if b != finding.bdm))
        else:
            other = dataclasses.replace(seen, attachments=tuple(
                a for a in seen.attachments if a != finding.attachment))
        again = rules.confirm(first, decide(other))
        self.assertNotIn(finding, again.due)


class IdempotenceTest(base.TestCase):
    """Of a plan that was carried out."""

    @worlds.profile()
    @hypothesis.given(worlds.worlds(), worlds.policies, st.booleans())
    def test_after_a_plan_nothing_is_left_to_do(
            self, world, policy, as_service):
        hidden = None if as_service else ()
        policy = dataclasses.replace(policy, max_attachments=99)
        plan = decide(worlds.look(world, hidden=hidden), policy)
        host, cinder = fakes.Host(world), fakes.Cinder(world)
        host.power_off()
        for finding in plan.due:
            if finding.bdm:
                if finding.disconnect:
                    world.connected.discard(finding.volume_id)
                host.destroy(finding.bdm)
                for attachment in finding.left_over:
                    cinder.delete_attachment(attachment.id)
            else:
                world.connected.discard(finding.volume_id)
                cinder.delete_attachment(finding.attachment_id)

        self.assertEqual([], world.violations)
        self.assertEqual(
            (), decide(worlds.look(world, hidden=hidden), policy).due)

    @worlds.profile()
    @hypothesis.given(worlds.worlds())
    def test_healthy_mappings_stay_healthy(self, world):
        def having(*reasons):
            return {f.bdm.uuid for f in decide(worlds.look(
                world, hidden=None)).findings
                if f.bdm and f.reason in reasons and not f.goes}

        before = having(Reason.HEALTHY)
        cinder = fakes.Cinder(world)
        for attachment in deleted(decide(worlds.look(world, hidden=None))):
            cinder.delete_attachment(attachment.id)
        # That there are two of one disk shows when nothing else is wrong.
        self.assertLessEqual(before, having(
            Reason.HEALTHY, Reason.DUPLICATE_MAPPING))
