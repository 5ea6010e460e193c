# SPDX-License-Identifier: Apache-2.0
"""One server, looked at from both sides."""

from __future__ import annotations

import datetime
from typing import Any

from nova_bdm_cleanup.fleet import inspection, issues
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules.facts import Reason
from nova_bdm_cleanup.tests.unit import loopback
from nova_bdm_cleanup.tests.unit.fleet import base

MINUTE = datetime.timedelta(minutes=1)


class InspectorCase(base.FleetCase):

    def inspect(self, server: str, user: str = 'admin',
                project: str | None = 'own',
                witness: Any = None) -> Any:
        cloud = self.seen_by(user, project)
        cloud.cinder.prove_admin()
        inspector = inspection.Inspector(cloud)
        inspector.knows_witness = witness
        return inspector.inspect(server)

    def reasons(self, server: str, **options: Any) -> list[str]:
        """What is not as it should be."""
        return [str(f.reason)
                for f in self.inspect(server, **options).findings]


class InspectorTest(InspectorCase):

    def test_in_order(self) -> None:
        self.assertEqual([], self.reasons(self.alpha))

    def test_dangling(self) -> None:
        self.cloud.lose_attachment(self.disk)
        seen = self.inspect(self.alpha)
        finding, = seen.plan.due
        self.assertEqual(('volume-available', self.disk),
                         (str(finding.reason), finding.volume_id))

    def test_swap_that_has_not_ended(self) -> None:
        self.cloud.lose_attachment(self.disk)
        self.cloud.attachment(
            'by the swap', self.alpha, self.cloud.volume('new', 'in-use'))
        self.assertEqual({'volume-available', 'stale-attachment'},
                         set(self.reasons(self.alpha)))
        self.cloud.swaps[self.alpha] = [[]]
        self.assertEqual(['swap-interrupted'] * 2, self.reasons(self.alpha))

    def test_two_mappings_of_one_disk(self) -> None:
        self.cloud.mappings[self.alpha].append(dict(
            self.cloud.mappings[self.alpha][0], bdm_uuid='another'))
        seen = self.inspect(self.alpha)
        self.assertEqual(['duplicate-mapping'] * 2,
                         [str(f.reason) for f in seen.findings])
        self.assertEqual((), seen.plan.due)
        self.assertIn('which the API does not show',
                      seen.findings[0].explanation)
        self.assertEqual({'look'}, {
            str(i.remedy) for i in issues.issues_of(seen)})

    def test_unknown_server(self) -> None:
        self.assertIsNone(self.inspect(loopback.uid('nothing')))

    def test_server_that_is_deleted_between_two_questions(self) -> None:
        self.cloud.on('os-volume_attachments', lambda: (404, {
            'itemNotFound': {'message': 'Instance'}}))
        self.assertIsNone(self.inspect(self.alpha))

    def test_server_that_is_deleted_meanwhile(self) -> None:
        def delete() -> None:
            self.cloud.servers.pop(self.alpha, None)

        self.cloud.on('attachments.*instance_id', delete)
        self.assertIsNone(self.inspect(self.alpha))

    def test_busy_server(self) -> None:
        self.cloud.lose_attachment(self.disk)
        for fields in ({'OS-EXT-STS:task_state': 'migrating'},
                       {'status': 'VERIFY_RESIZE'}):
            before = dict(self.cloud.servers[self.alpha])
            self.cloud.servers[self.alpha].update(fields)
            seen = self.inspect(self.alpha)
            finding, = seen.findings
            self.assertEqual(('operation-in-flight', False),
                             (str(finding.reason), finding.goes))
            self.cloud.servers[self.alpha] = before

    def test_server_that_changes_is_looked_at_again(self) -> None:
        self.cloud.lose_attachment(self.disk)
        looks: list[int] = []

        def rename() -> None:
            looks.append(1)
            if len(looks) == 1:
                self.cloud.servers[self.alpha]['name'] = 'changed'

        self.cloud.on('attachments.*instance_id', rename)
        self.assertEqual(['volume-available'], self.reasons(self.alpha))
        # Before the first look, after it, and after the second.
        self.assertEqual(3, self.cloud.asked('/servers/[^/]+$'))

    def test_old_detach_is_stuck(self) -> None:
        self.cloud.volumes[self.disk]['status'] = 'detaching'
        self.assertEqual(['stuck'], self.reasons(self.alpha))
        self.cloud.volumes[self.disk]['updated_at'] = loopback._stamp(MINUTE)
        self.assertEqual(['operation-in-flight'], self.reasons(self.alpha))

    def test_old_attach_without_a_record_is_stuck(self) -> None:
        self.cloud.lose_attachment(self.disk)
        self.cloud.mappings[self.alpha][0]['attachment_id'] = None
        self.assertEqual(['attach-in-flight'], self.reasons(self.alpha))
        for age, expected in ((MINUTE, 'attach-in-flight'),
                              (120 * MINUTE, 'stuck')):
            self.cloud.volumes[self.disk].update(
                status='attaching', updated_at=loopback._stamp(age))
            self.assertEqual([expected], self.reasons(self.alpha))

    def test_reserved_is_in_order_while_a_server_is_shelved(self) -> None:
        self.cloud.volumes[self.disk]['status'] = 'reserved'
        self.cloud.attachments[loopback.uid('attachment of disk')].update(
            status='reserved', connection_info={})
        self.assertEqual(['reserved-only'], self.reasons(self.alpha))
        # The API does not tell it from an attach that is in progress.
        self.cloud.volumes[self.disk]['updated_at'] = loopback._stamp(MINUTE)
        self.assertEqual(['operation-in-flight'], self.reasons(self.alpha))
        self.cloud.servers[self.alpha].update(
            {'status': 'SHELVED_OFFLOADED', 'OS-EXT-SRV-ATTR:host': None})
        self.assertEqual([], self.reasons(self.alpha))

    def test_mapping_from_before_queens(self) -> None:
        self.cloud.mappings[self.alpha][0]['attachment_id'] = None
        self.assertEqual([], self.reasons(self.alpha))

    def test_second_mapping_without_an_attachment(self) -> None:
        self.cloud.mapping(self.alpha, self.disk)
        self.assertEqual(['duplicate-mapping'], self.reasons(self.alpha))

    def test_any_gap_ends_it(self) -> None:
        for pattern in ('GET .*/servers/[^/]*$', 'os-volume_attachments',
                        'GET .*/attachments', 'GET .*/volumes'):
            self.cloud._rules[:] = []
            self.cloud.on(pattern, lambda: (500, None))
            self.assertRaises(errors.Unanswered, self.inspect, self.alpha)


class MissingTest(InspectorCase):
    """Whether a Cinder that knows no volume is believed."""

    def test_witness(self) -> None:
        self.cloud.lose_volume(self.disk)
        self.cloud.on('GET .*/volumes/' + self.disk, lambda: (404, {
            'itemNotFound': {'message': 'volume'}}))
        for witness, withheld in ((True, None),
                                  (False, Reason.CINDER_SUSPECT)):
            [finding] = self.inspect(self.alpha, witness=witness).findings
            self.assertEqual((Reason.VOLUME_MISSING, withheld),
                             (finding.reason, finding.withheld))


class ProjectTest(InspectorCase):
    """To the wrong project Cinder shows no attachment, without a word."""

    def test_own(self) -> None:
        self.assertEqual([], self.reasons(self.alpha, user='member'))

    def test_another_or_unknown(self) -> None:
        for project in ('other', None):
            exc = self.assertRaises(errors.Refused, self.inspect, self.alpha,
                                    user='member', project=project)
            self.assertIn('belongs to another project', str(exc))
        self.assertEqual(0, self.cloud.asked('attachments'))

    def test_none_is_needed_where_all_are_seen(self) -> None:
        for project in ('other', None):
            self.assertEqual([], self.reasons(self.alpha, project=project))


class WitnessTest(base.FleetCase):

    def inspector(self) -> inspection.Inspector:
        cloud = self.seen_by()
        cloud.cinder.prove_admin()
        return inspection.Inspector(cloud)

    def test_known_volume(self) -> None:
        self.cloud.lose_volume(self.disk)
        self.assertIs(True, self.inspector().knows_witness)

    def test_known_to_nobody(self) -> None:
        self.cloud.lose_volume(self.disk)
        self.cloud.lose_volume(self.other)
        self.assertIs(False, self.inspector().knows_witness)

    def test_nova_names_no_volume(self) -> None:
        for server in (self.alpha, self.beta):
            self.cloud.mappings[server].clear()
        self.assertIsNone(self.inspector().knows_witness)
        self.assertEqual(1, self.cloud.asked('volume'))

    def test_first_page_names_no_volume(self) -> None:
        self.cloud.page = 1
        self.cloud.lose_volume(self.disk)
        self.cloud.lose_volume(self.other)
        for bare in (self.alpha, self.beta):
            kept = self.cloud.mappings[bare]
            self.cloud.mappings[bare] = []
            self.assertIs(False, self.inspector().knows_witness)
            self.cloud.mappings[bare] = kept

    def test_asked_once(self) -> None:
        inspector = self.inspector()
        self.assertIs(True, inspector.knows_witness)
        before = len(self.cloud.requests)
        self.assertIs(True, inspector.knows_witness)
        self.assertEqual(before, len(self.cloud.requests))

    def test_known_already(self) -> None:
        inspector = self.inspector()
        inspector.knows_witness = None
        before = len(self.cloud.requests)
        self.assertIsNone(inspector.knows_witness)
        self.assertEqual(before, len(self.cloud.requests))
