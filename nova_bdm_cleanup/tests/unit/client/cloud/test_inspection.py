# SPDX-License-Identifier: Apache-2.0
"""Inspection of one server in Nova and Cinder."""

from __future__ import annotations

from collections.abc import Sequence
import datetime
import itertools
from typing import Any, Callable

from nova_bdm_cleanup.client.cloud import findings, inspection
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules.facts import WitnessAnswer
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.tests.unit import loopback
from nova_bdm_cleanup.tests.unit.client.cloud import base

MINUTE = datetime.timedelta(minutes=1)


class InspectionCase(base.CloudCase):

    def proved(self, user: str = 'admin',
               project: str | None = 'own') -> inspection.Cloud:
        """Return the cloud, after the check for the admin role."""
        cloud = self.seen_by(user, project)
        cloud.cinder.prove_admin()
        return cloud

    def inspect(self) -> Any:
        return self.proved().inspect(self.alpha)

    def findings(self) -> Sequence[findings.CloudFinding]:
        return findings.findings_of(self.inspect(), self.proved())

    def reasons(self, **options: Any) -> list[str]:
        """Return the reasons of the findings."""
        seen = self.proved(**options).inspect(self.alpha)
        assert seen is not None
        return [str(f.reason) for f in seen.findings]


class InspectionTest(InspectionCase):

    def test_swap_without_an_end_withholds_removals(self) -> None:
        self.cloud.lose_attachment(self.disk)
        self.cloud.attachment(
            'by the swap', self.alpha, self.cloud.volume('new', 'in-use'))
        self.assertEqual({'volume-available', 'stale-attachment'},
                         set(self.reasons()))
        self.cloud.swaps[self.alpha] = [[]]
        for volume in self.cloud.volumes.values():
            volume['updated_at'] = loopback._stamp(datetime.timedelta())
        self.assertEqual({Reason.SWAP_INTERRUPTED}, {
            f.withheld for f in self.inspect().findings})

    def test_reboot_ends_swap_that_has_not_ended_for_an_hour(self) -> None:
        new = self.cloud.volume('new', 'in-use')
        self.cloud.attachment('by the swap', self.alpha, new)
        self.cloud.volumes[self.disk]['status'] = 'detaching'
        self.cloud.swaps[self.alpha] = [[]]
        found = self.findings()
        self.assertEqual(
            {self.disk: 'swap-interrupted', new: 'swap-interrupted'},
            {i.volume: str(i.reason) for i in found})
        self.assertEqual({'openstack bdm clean ' + self.alpha},
                         {str(i.action) for i in found})
        self.assertTrue(all(i.is_for_reboot for i in found))
        # That of a swap that never connected is released.
        self.cloud.attachment('by the swap', self.alpha, new, 'reserved',
                              connected=False)
        self.assertEqual({'stuck': 'release', 'stale-attachment': 'release'}, {
            str(i.reason): str(i.remedy)
            for i in self.findings()})

    def test_missing_volume_may_be_one_that_nova_created(self) -> None:
        self.cloud.lose_volume(self.disk)
        [finding] = self.inspect().findings
        self.assertEqual(('volume-missing', True),
                         (finding.reason, finding.is_due))
        self.assertIn('only with the word created in [bdm_cleanup] remove',
                      finding.explanation)

    def test_duplicate_mapping_needs_a_look(self) -> None:
        self.cloud.mappings[self.alpha].append(dict(
            self.cloud.mappings[self.alpha][0], bdm_uuid='another'))
        seen = self.inspect()
        self.assertEqual(['duplicate-mapping'] * 2,
                         [str(f.reason) for f in seen.findings])
        self.assertEqual((), seen.plan.due)
        self.assertIn('the API does not show that',
                      seen.findings[0].explanation)
        self.assertEqual({'look'}, {
            str(i.remedy) for i in findings.findings_of(seen, self.proved())})

    def test_server_that_is_deleted_meanwhile(self) -> None:
        """Delete it between two requests to Nova, or during one to Cinder."""
        gone = 404, {'itemNotFound': {'message': 'Instance'}}
        answers: tuple[tuple[str, Callable[[], Any]], ...] = (
            ('os-volume_attachments', lambda: gone),
            ('attachments.*instance_id', lambda: self.cloud.servers.pop(
                self.alpha, None) and None))
        for pattern, answer in answers:
            self.cloud.calm()
            self.cloud.on(pattern, answer)
            self.assertIsNone(self.inspect(), pattern)

    def test_disk_of_busy_server_is_not_removed(self) -> None:
        self.cloud.lose_attachment(self.disk)
        for fields in ({'OS-EXT-STS:task_state': 'migrating'},
                       {'status': 'VERIFY_RESIZE'}):
            before = dict(self.cloud.servers[self.alpha])
            self.cloud.servers[self.alpha].update(fields)
            finding, = self.inspect().findings
            self.assertEqual(('operation-in-flight', False),
                             (str(finding.reason), finding.is_removal), fields)
            self.cloud.servers[self.alpha] = before

    def test_server_that_changes_is_proved_again(self) -> None:
        self.cloud.lose_attachment(self.disk)
        looks: list[int] = []

        def rename() -> None:
            looks.append(1)
            if len(looks) == 1:
                self.cloud.servers[self.alpha]['name'] = 'changed'

        self.cloud.on('attachments.*instance_id', rename)
        self.assertEqual(['volume-available'], self.reasons())
        # Before the first look, after it, and after the second.
        self.assertEqual(3, self.cloud.asked('/servers/[^/]+$'))

    def at(self, status: str, age: datetime.timedelta) -> list[str]:
        """Return the reasons for a volume in a state of this age."""
        self.cloud.volumes[self.disk].update(
            status=status, updated_at=loopback._stamp(age))
        return self.reasons()

    def test_old_detach_is_stuck(self) -> None:
        self.assertEqual(['stuck'], self.at('detaching', 120 * MINUTE))
        self.assertEqual(['operation-in-flight'],
                         self.at('detaching', MINUTE))

    def test_old_attach_without_a_record_is_stuck(self) -> None:
        self.cloud.lose_attachment(self.disk)
        self.cloud.mappings[self.alpha][0]['attachment_id'] = None
        for status, age, expected in (
                ('available', 120 * MINUTE, 'attach-in-flight'),
                ('attaching', MINUTE, 'attach-in-flight'),
                ('attaching', 120 * MINUTE, 'stuck')):
            self.assertEqual([expected], self.at(status, age), status)

    def test_reserved_is_in_order_while_a_server_is_shelved(self) -> None:
        self.cloud.attachments[loopback.uid('attachment of disk')].update(
            status='reserved', connection_info={})
        self.assertEqual(['reserved-only'], self.at('reserved', 120 * MINUTE))
        # In the API it looks like an attach in progress.
        self.assertEqual(['operation-in-flight'], self.at('reserved', MINUTE))
        self.cloud.servers[self.alpha].update(
            {'status': 'SHELVED_OFFLOADED', 'OS-EXT-SRV-ATTR:host': None})
        self.assertEqual([], self.reasons())

    def test_young_half_moved_disk_may_be_moved(self) -> None:
        self.cloud.half_move(self.disk)
        for status in ('reserved', 'attaching', 'detaching', 'in-use'):
            self.assertEqual(['half-moved'], self.at(status, 120 * MINUTE))
            self.assertEqual(
                ['half-moved' if status == 'in-use'
                 else 'operation-in-flight'], self.at(status, MINUTE), status)

    def test_locked_half_moved_disk_is_first_in_flight(self) -> None:
        self.cloud.half_move(self.disk)
        self.cloud.servers[self.alpha]['locked'] = True
        self.assertEqual(['operation-in-flight'], self.at('reserved', MINUTE))
        self.assertEqual(['half-moved'], self.at('reserved', 120 * MINUTE))

    def test_mapping_from_before_queens_is_healthy(self) -> None:
        self.cloud.mappings[self.alpha][0]['attachment_id'] = None
        self.assertEqual([], self.reasons())

    def test_second_mapping_is_a_duplicate(self) -> None:
        self.cloud.mapping(self.alpha, self.disk)
        self.assertEqual(['duplicate-mapping'], self.reasons())

    def test_disk_of_a_former_host_is_half_moved(self) -> None:
        self.cloud.evacuate(self.alpha)
        attachment = self.cloud.attachments[
            loopback.uid('attachment of disk')]
        for host, expected in (
                (attachment['host'], ['half-moved']), ('compute2', []),
                ('COMPUTE2.example.org', []), (None, [])):
            attachment['host'] = host
            self.assertEqual(expected, self.reasons(), host)

    def test_disk_of_a_former_host_is_kept_and_not_connected(self) -> None:
        self.cloud.evacuate(self.alpha)
        seen = self.inspect()
        finding, = seen.findings
        self.assertIn('Cinder attaches the volume to host compute1',
                      finding.explanation)
        self.assertFalse(finding.is_removal)

    def test_only_administrators_see_hosts(self) -> None:
        self.cloud.evacuate(self.alpha)
        self.assertEqual([], self.reasons(user='member'))

    def test_server_on_no_host_has_no_other_host(self) -> None:
        self.cloud.evacuate(self.alpha)
        self.cloud.servers[self.alpha]['OS-EXT-SRV-ATTR:host'] = None
        self.assertEqual([], self.reasons())

    def test_missing_answer_ends_the_inspection(self) -> None:
        for pattern in ('GET .*/servers/[^/]*$', 'os-volume_attachments',
                        'GET .*/attachments', 'GET .*/volumes'):
            self.cloud.calm()
            self.cloud.on(pattern, lambda: (500, None))
            self.assertRaises(errors.Unanswered, self.inspect)


class InterruptionTest(InspectionCase):
    """A task state that outlives its operation."""

    def shown(self) -> list[tuple[str, str]]:
        """Return reason and action of each finding."""
        seen = self.inspect()
        return [(str(i.reason), str(i.action))
                for i in findings.findings_of(seen, self.proved())]

    def alter(self, age: datetime.timedelta = MINUTE, **fields: Any) -> None:
        """Change the server; of its task, host and change there are short
        names.
        """
        self.cloud.servers[self.alpha].update({
            {'task': 'OS-EXT-STS:task_state'}.get(name, name): value
            for name, value in fields.items()},
            updated=loopback._stamp(age) + 'Z')

    @property
    def clean(self) -> str:
        return 'openstack bdm clean --reset-state ' + self.alpha

    def test_event_of_the_plugin_proves_it(self) -> None:
        self.alter()
        self.cloud.interrupt(self.alpha)
        self.assertEqual([('interrupted', self.clean)], self.shown())

    def test_disks_are_judged_for_the_reboot_after_the_reset(self) -> None:
        self.alter()
        self.cloud.half_move(self.disk)
        self.cloud.volumes[self.disk]['updated_at'] = loopback._stamp(MINUTE)
        self.cloud.interrupt(self.alpha)
        self.assertEqual(
            [('interrupted', self.clean), ('half-moved', self.clean)],
            self.shown())

    def test_later_operation_disproves_it(self) -> None:
        self.alter()
        self.cloud.interrupt(self.alpha)
        events = next(iter(self.cloud.action_events.values()))
        events.insert(0, 'compute_shelve_offload_instance')
        self.assertEqual([], self.shown())
        del events[0]
        self.alter(task='unshelving')
        self.assertEqual([], self.shown())
        self.alter(task='shelving')
        self.cloud.record(self.alpha, 'shelve')
        self.assertEqual([], self.shown())

    def test_lock_begins_no_operation(self) -> None:
        self.alter()
        self.cloud.interrupt(self.alpha)
        self.cloud.record(self.alpha, 'lock')
        self.cloud.record(self.alpha, 'unlock')
        self.assertEqual([('interrupted', self.clean)], self.shown())

    def test_old_task_without_an_event_is_a_question(self) -> None:
        self.cloud.lose_attachment(self.disk)
        self.alter(task='shelving')
        self.assertEqual([('operation-in-flight', 'wait')], self.shown())
        self.alter(120 * MINUTE)
        steps = ('look: openstack server event list %s; '
                 'openstack server set --state error %s; '
                 'openstack server reboot --hard %s' % ((self.alpha,) * 3))
        self.assertEqual([('interrupted', steps)] * 2, self.shown())
        seen = self.inspect()
        for finding in seen.findings:
            self.assertIn('may have been interrupted', finding.explanation)
            self.assertFalse(finding.is_due)

    def test_local_disks_may_be_deleted_in_an_offload(self) -> None:
        rebuild = ('openstack server rebuild --image \'my alpha-shelved\' '
                   + self.alpha)
        self.alter(name='my alpha')
        self.cloud.interrupt(self.alpha, task='shelving_offloading')
        self.assertEqual(
            [('interrupted', 'look: %s; %s' % (self.clean, rebuild))],
            self.shown())
        self.assertIn('in the image that the shelve has made',
                      self.inspect().findings[0].explanation)
        self.cloud.actions.clear()
        self.alter(120 * MINUTE)
        (_, action), = self.shown()
        self.assertTrue(action.endswith('; ' + rebuild), action)

    def test_no_host_means_that_only_a_delete_ends_it(self) -> None:
        delete = 'openstack server delete ' + self.alpha
        events = 'openstack server event list ' + self.alpha
        error = 'openstack server set --state error ' + self.alpha
        self.cloud.lose_attachment(self.disk)
        for fields, expected in (
                # The create failed.
                ({'status': 'ERROR', 'hostId': ''},
                 [('volume-available', 'look: ' + delete)]),
                ({'status': 'ACTIVE', 'hostId': ''},
                 [('volume-available', 'look: ' + delete)]),
                ({'status': 'ERROR', 'hostId': 'of compute1',
                  'OS-SRV-USG:launched_at': None},
                 [('volume-available', 'look: ' + delete)]),
                ({'status': 'SHELVED_OFFLOADED', 'hostId': '',
                  'task': 'spawning'},
                 [('interrupted', 'look: %s; %s' % (events, delete))] * 2),
                ({'status': 'ERROR', 'hostId': '', 'task': 'deleting'},
                 [('interrupted', 'look: %s; %s; %s' % (
                     events, error, delete))] * 2)):
            self.alter(120 * MINUTE, **{'task': None, **fields})
            self.assertEqual(expected, self.shown(), fields)
            for finding in self.inspect().findings:
                self.assertIn('nly its delete ends that', finding.explanation)

    def test_disk_of_a_server_that_never_ran_is_a_finding(self) -> None:
        self.alter(status='ERROR', **{'OS-SRV-USG:launched_at': None})
        self.assertEqual(
            [('interrupted', 'look: openstack server delete ' + self.alpha)],
            self.shown())

    def test_server_that_is_created_is_no_finding(self) -> None:
        self.cloud.lose_attachment(self.disk)
        self.alter(status='BUILD', hostId='', task='scheduling')
        self.assertEqual([('operation-in-flight', 'wait')], self.shown())

    def test_interrupted_delete_is_no_reason_to_reboot(self) -> None:
        self.alter()
        self.cloud.interrupt(self.alpha, 'delete', 'deleting')
        self.assertEqual([(
            'interrupted', 'look: openstack server event list %s; '
            'openstack server set --state error %s; openstack server delete '
            '%s' % ((self.alpha,) * 3))], self.shown())

    def test_dangling_root_is_for_a_person(self) -> None:
        self.alter(image='')
        self.cloud.servers[self.alpha][
            'OS-EXT-SRV-ATTR:root_device_name'] = '/dev/vdb'
        self.cloud.lose_volume(self.disk)
        self.cloud.interrupt(self.alpha)
        error = 'look: openstack server set --state error ' + self.alpha
        self.assertEqual(
            {('interrupted', error + '; openstack bdm show ' + self.alpha),
             ('root-volume-dangling', '%s; openstack server stop %s; '
              'openstack bdm explain root-volume-dangling' % (
                  error, self.alpha))}, set(self.shown()))

    def test_stuck_disk_is_released_after_the_reboot(self) -> None:
        self.alter()
        self.cloud.volumes[self.disk]['status'] = 'detaching'
        self.cloud.interrupt(self.alpha)
        self.assertEqual(
            [('interrupted', self.clean),
             ('stuck', self.clean + '; openstack bdm release '
              + loopback.uid('attachment of disk'))], self.shown())

    def test_server_without_volumes_is_no_finding(self) -> None:
        self.cloud.mappings[self.alpha].clear()
        self.cloud.lose_attachment(self.disk)
        self.alter(120 * MINUTE, task='shelving')
        self.assertEqual([], self.shown())


class ShelvedTest(InspectionCase):
    """An unshelve that ended half way: no host has the server."""

    def setUp(self) -> None:
        super().setUp()
        self.cloud.servers[self.alpha].update(
            {'status': 'SHELVED_OFFLOADED', 'OS-EXT-SRV-ATTR:host': None,
             'hostId': ''})

    def shown(self) -> list[tuple[str, str]]:
        seen = self.inspect()
        return [(str(i.reason), str(i.action))
                for i in findings.findings_of(seen, self.proved())]

    @property
    def unshelve(self) -> str:
        return 'look: openstack server unshelve ' + self.alpha

    def test_attached_disk_ends_with_the_next_unshelve(self) -> None:
        self.assertEqual([('half-moved', self.unshelve)], self.shown())
        explanation = self.findings()[0].explanation
        for words in ('although the server is shelved',
                      'the next unshelve ends it, on a host with the word '
                      'move'):
            self.assertIn(words, explanation)

    def test_unknown_attachment_ends_with_the_next_unshelve(self) -> None:
        self.cloud.lose_attachment(self.disk)
        self.assertEqual([('volume-available', self.unshelve)], self.shown())
        self.assertIn('the next unshelve removes the mapping',
                      self.findings()[0].explanation)
        self.cloud.servers[self.alpha].update(
            {'image': '', 'OS-EXT-SRV-ATTR:root_device_name': '/dev/vdb'})
        self.assertEqual([('root-volume-dangling', self.unshelve)],
                         self.shown())
        self.cloud.lose_volume(self.disk)
        self.assertEqual(
            [('root-volume-dangling',
              'look: openstack bdm explain root-volume-dangling')],
            self.shown())

    def test_second_attachment_of_a_mapping_waits_for_the_unshelve(
            self) -> None:
        self.cloud.attachment('second', self.alpha, self.disk, 'reserved',
                              False)
        self.assertEqual([('half-moved', self.unshelve)], self.shown())

    def test_attachment_without_a_mapping_is_released(self) -> None:
        self.cloud.mappings[self.alpha].clear()
        self.assertEqual(
            [('stale-attachment', 'openstack bdm release '
              + loopback.uid('attachment of disk'))], self.shown())

    def test_unshelve_under_way_is_no_finding(self) -> None:
        self.cloud.servers[self.alpha]['OS-EXT-STS:task_state'] = 'spawning'
        self.assertEqual([('operation-in-flight', 'wait')], self.shown())


class OtherHostTest(InspectionCase):
    """A stale attachment of another host, beside a healthy one here."""

    def setUp(self) -> None:
        super().setUp()
        self.stale = self.cloud.attachment(
            'of another host', self.alpha, self.disk, host='compute2')

    def action(self) -> str:
        finding, = self.findings()
        self.assertEqual(('stale-attachment', self.stale),
                         (str(finding.reason), finding.attachment))
        return str(finding.action)

    def test_release_needs_no_outage(self) -> None:
        self.cloud.migrations[self.alpha] = ['completed', 'error']
        self.assertEqual('openstack bdm release ' + self.stale, self.action())

    def test_reboot_is_needed_where_the_guest_may_be_there(self) -> None:
        reboot = 'openstack bdm clean ' + self.alpha
        self.cloud.migrations[self.alpha] = ['running']
        self.assertEqual(reboot, self.action())
        self.cloud.migrations.clear()
        self.cloud.on('os-migrations', lambda: (
            403, {'forbidden': {'message': 'Policy'}}))
        self.assertEqual(reboot, self.action())
        self.cloud.calm()
        self.cloud.servers[self.alpha]['status'] = 'SUSPENDED'
        self.assertEqual(reboot, self.action())

    def test_nova_is_asked_for_migrations_only_then(self) -> None:
        del self.cloud.attachments[self.stale]
        self.assertEqual((), self.inspect().findings)
        self.assertEqual(0, self.cloud.asked('os-migrations'))


class ProjectTest(InspectionCase):
    """The wrong project, to which Cinder silently shows no attachment."""

    def test_another_or_unknown_project_is_refused(self) -> None:
        for project in ('other', None):
            exc = self.assertRaises(errors.Refused, self.reasons,
                                    user='member', project=project)
            self.assertIn('belongs to another project', str(exc))
        self.assertEqual(0, self.cloud.asked('attachments'))

    def test_none_is_needed_where_all_are_seen(self) -> None:
        for project in ('other', None):
            self.assertEqual([], self.reasons(project=project))


class WitnessTest(InspectionCase):
    """The witness, for a Cinder that knows no volume."""

    def test_removal_is_withheld_without_a_witness(self) -> None:
        self.cloud.lose_volume(self.disk)
        for witness, withheld in (
                (WitnessAnswer.KNOWN, None),
                (WitnessAnswer.UNKNOWN, Reason.CINDER_SUSPECT)):
            cloud = self.proved()
            cloud.witness = inspection.Witness(
                cloud.nova, cloud.cinder, witness)
            seen = cloud.inspect(self.alpha)
            assert seen is not None
            [finding] = seen.findings
            self.assertEqual((Reason.VOLUME_MISSING, withheld),
                             (finding.reason, finding.withheld))
        self.assertEqual(0, self.cloud.asked('/servers/detail'))

    def test_known_volume_is_asked_for_once(self) -> None:
        self.cloud.lose_volume(self.disk)
        cloud = self.proved()
        for _ in range(2):
            self.assertIs(WitnessAnswer.KNOWN, cloud.witness.answer())
        # Asked once.
        self.assertEqual(1, self.cloud.asked('/servers/detail'))

    def test_some_are_enough(self) -> None:
        cinder = self.cinder()
        cinder.prove_admin()
        asked = map(str, itertools.count())
        self.assertIs(WitnessAnswer.UNKNOWN, cinder.witness(asked))
        self.assertEqual('60', next(asked))

    def test_nova_names_no_volume(self) -> None:
        for server in (self.alpha, self.beta):
            self.cloud.mappings[server].clear()
        self.assertIs(WitnessAnswer.NONE_EXISTS,
                      self.proved().witness.answer())
        self.assertEqual(1, self.cloud.asked('volume'))

    def test_cinder_knows_no_volume(self) -> None:
        """Check that it works also if a page names no volume."""
        self.cloud.page = 1
        self.cloud.lose_volume(self.disk)
        self.cloud.lose_volume(self.other)
        for bare in (self.alpha, self.beta):
            kept = self.cloud.mappings[bare]
            self.cloud.mappings[bare] = []
            self.assertIs(WitnessAnswer.UNKNOWN,
                      self.proved().witness.answer())
            self.cloud.mappings[bare] = kept
