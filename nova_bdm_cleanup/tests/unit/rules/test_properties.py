# SPDX-License-Identifier: Apache-2.0
"""Properties of every plan that no document promises."""

from __future__ import annotations

import hypothesis

from nova_bdm_cleanup.rules import decision, facts
from nova_bdm_cleanup.rules.facts import Attach
from nova_bdm_cleanup.rules.reasons import Reason, REMOVED
from nova_bdm_cleanup.tests.unit import base, make, worlds
from nova_bdm_cleanup.tests.unit.node.cleanup import fakes
from nova_bdm_cleanup.tests.unit.rules.cases import (
    Case,
    deleted,
    GENEROUS,
    of_any_look,
    ours,
)

#: No migration is under way.
SETTLED = (None, '', 'none', 'success', 'error')


class StrategyTest(base.TestCase):
    """The strategy, whose worlds must reach every rule."""

    def test_every_reason_of_the_rules_comes_up(self):
        seen = set()
        due = {'removal': set(), 'reconnect': set()}

        @of_any_look
        def collect(test, case):
            for finding in case.plan.findings:
                seen.update([finding.reason, finding.withheld])
                if finding.is_due:
                    due['reconnect' if finding.is_reconnect
                        else 'removal'].add(finding.reason)

        collect(self)
        self.assertEqual(set(), {
            Reason.HEALTHY, Reason.VOLUME_MISSING, Reason.VOLUME_AVAILABLE,
            Reason.ATTACHED_ELSEWHERE, Reason.NEVER_ATTACHED,
            Reason.STALE_ATTACHMENT,
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
            {*REMOVED, Reason.STALE_ATTACHMENT}, due['removal'])
        self.assertLessEqual(
            {Reason.HALF_MOVED, Reason.RESERVED_ONLY,
             Reason.ATTACHMENT_MISMATCH, Reason.ROOT_VOLUME_DANGLING},
            due['reconnect'])


class DecidePropertiesTest(base.TestCase):
    """The properties of one plan."""

    @of_any_look
    def test_never_a_mapping_that_could_serve_the_guest(self, case: Case):
        for finding in case.removals:
            if finding in case.taken:
                continue
            self.assertFalse(finding.bdm.has_connection_info)
            self.assertFalse(finding.disconnect)
            self.assertEqual((), finding.dependent)
            # One row and one attachment remain, which belong together.
            serving, = ours(case.seen, finding.volume_id)
            self.assertEqual(('attached', True),
                             (serving.status, serving.connected))
            self.assertNotIn(serving.id, case.deleted)
            self.assertTrue([
                b for b in case.kept if b.attachment_id == serving.id
                and b.volume_id == finding.volume_id
                and b.has_connection_info])

    @of_any_look
    def test_removed_volume_is_missing_available_or_in_use(self, case: Case):
        for finding in case.removals:
            volume = case.world.volumes.get(finding.volume_id)
            if volume is not None:
                self.assertIsNot(Reason.VOLUME_MISSING, finding.reason)
                self.assertIn(volume.status, (
                    'available', 'awaiting-transfer', 'in-use',
                    *(('reserved', 'attaching') if finding.reason
                      is Reason.NEVER_ATTACHED else ())))
                self.assertIn(volume.migration_status, SETTLED)

    @of_any_look
    def test_never_a_young_mapping_that_was_never_connected(self, case: Case):
        for finding in case.removals:
            if not finding.bdm.has_connection_info and case.seen.attaches[
                    finding.bdm.uuid] is Attach.UNKNOWN:
                self.assertGreaterEqual(
                    make.NOW - finding.bdm.created_at,
                    case.policy.grace_period)

    @of_any_look
    def test_never_the_only_attachment_of_a_volume_with_a_mapping(
            self, case: Case):
        # The attachments of a disk whose mapping stays are not all deleted.
        for bdm in case.kept:
            its = {a.id for a in case.seen.attachments
                   if a.volume_id == bdm.volume_id
                   and a.server_id == make.SERVER and a.status == 'attached'}
            if its:
                self.assertNotEqual(set(), its - case.deleted, bdm)

    @of_any_look
    def test_a_removal_leaves_no_attachment_of_its_volume(self, case: Case):
        for finding in case.taken:
            self.assertEqual([], [
                a for a in ours(case.seen, finding.volume_id)
                if a.id not in case.deleted and not a.is_legacy])

    @of_any_look
    def test_nothing_stale_goes_while_anything_moves(self, case: Case):
        moving = any(
            v and (v.status in ('detaching', 'retyping', 'maintenance')
                   or v.migration_status not in SETTLED)
            for i, v in case.seen.volumes.items() if i != worlds.FOREIGN)
        stale = [f for f in case.plan.due
                 if f.reason is Reason.STALE_ATTACHMENT]
        self.assertFalse(moving and stale)

    @of_any_look
    def test_only_selected_reasons_are_due(self, case: Case):
        for finding in case.plan.due:
            if finding.is_removal:
                self.assertIn(finding.reason, case.policy.remove)

    @of_any_look
    def test_every_mapping_of_a_volume_has_one_finding(self, case: Case):
        self.assertEqual(
            sorted(b.uuid for b in case.seen.bdms
                   if b.destination_type == 'volume'),
            sorted(f.bdm.uuid for f in case.plan.findings if f.bdm))

    @of_any_look
    def test_removal_has_a_reason_that_calls_for_removal(self, case: Case):
        for finding in case.plan.findings:
            self.assertTrue(finding.explanation)
            if finding.is_removal:
                self.assertIn(finding.reason,
                              REMOVED if finding.bdm
                              else [Reason.STALE_ATTACHMENT])


class DeletedTest(base.TestCase):
    """The properties of a plan that is carried out in Cinder only."""

    @worlds.profile()
    @hypothesis.given(worlds.worlds())
    def test_healthy_mappings_stay_healthy(self, world):
        def plan() -> facts.Plan:
            return decision.decide(
                worlds.look(world, hidden=None), GENEROUS, make.NOW)

        def having(*reasons):
            return {f.bdm.uuid for f in plan().findings
                    if f.bdm and f.reason in reasons and not f.is_removal}

        before = having(Reason.HEALTHY)
        cinder = fakes.Cinder(world)
        for finding in plan().due:
            for attachment in deleted(finding):
                cinder.delete_attachment(attachment.id)
        # A duplicate mapping shows only when nothing else is wrong.
        self.assertLessEqual(before, having(
            Reason.HEALTHY, Reason.DUPLICATE_MAPPING))
