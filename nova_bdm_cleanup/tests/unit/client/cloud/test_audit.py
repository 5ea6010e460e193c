# SPDX-License-Identifier: Apache-2.0
"""The audit over HTTP: its findings, what it ignores, and its gaps."""

from __future__ import annotations

import datetime
from typing import Any, Callable

from nova_bdm_cleanup.client.cloud import audit
from nova_bdm_cleanup.client.cloud.audit import Scope
from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.openstack.api import Budget
from nova_bdm_cleanup.rules.reasons import Reason, Remedy
from nova_bdm_cleanup.tests.unit import loopback, wire
from nova_bdm_cleanup.tests.unit.client.cloud import base

ALL = Scope(all_projects=True)
MINUTE = datetime.timedelta(minutes=1)
FORBIDDEN = 403, {'forbidden': {'message': 'Policy'}}


class AuditCase(base.CloudCase):

    def audit(self, scope: Scope = ALL, user: str = 'admin',
              budget: Budget | None = None) -> list[CloudFinding]:
        """Run the audit and return its findings."""
        self.budget = budget or self.budget
        self.auditor = audit.CloudAudit(self.seen_by(user), scope)
        return list(self.auditor.findings())

    def reasons(self, scope: Scope = ALL,
                **options: Any) -> list[tuple[Any, str | None]]:
        return sorted((str(i.reason), i.volume)
                      for i in self.audit(scope, **options))


class SpellingTest(AuditCase):
    """A server ID in a form that no filter matches."""

    def setUp(self) -> None:
        super().setUp()
        self.written = self.cloud.volume('written', 'reserved')
        self.attachment = self.cloud.attachment(
            'written', self.alpha.replace('-', ''), self.written, 'reserved',
            False)

    def test_attachment_is_found_in_any_spelling(self) -> None:
        for scope in (ALL, Scope(all_projects=True, thorough=True)):
            finding, = self.audit(scope)
            self.assertEqual(
                (Reason.STALE_ATTACHMENT, self.alpha, self.written,
                 'openstack bdm release ' + self.attachment),
                (finding.reason, finding.server, finding.volume,
                 str(finding.action)))

    def test_attachment_of_a_healthy_disk_is_stale(self) -> None:
        self.cloud.attachments[self.attachment]['volume_id'] = self.disk
        del self.cloud.volumes[self.written]
        finding, = self.audit()
        self.assertEqual((Reason.STALE_ATTACHMENT, self.attachment),
                         (finding.reason, finding.attachment))

    def test_volume_of_another_project_or_gone_is_no_finding(self) -> None:
        volume = self.cloud.volumes[self.written]
        volume['os-vol-tenant-attr:tenant_id'] = 'other'
        self.assertEqual([], self.audit())
        volume['os-vol-tenant-attr:tenant_id'] = 'own'
        self.cloud.on('GET .*/servers/' + self.alpha,
                      lambda: self.cloud.lose_attachment(self.written))
        self.assertEqual([], self.audit())


class FindingsTest(AuditCase):

    def test_volume_without_attachment_is_found(self) -> None:
        for status, age, reason in (
                ('in-use', MINUTE, 'volume-unreferenced'),
                ('attaching', 120 * MINUTE, 'stuck'),
                ('attaching', MINUTE, 'operation-in-flight')):
            volume = self.cloud.volume('nobodys', status, age=age)
            self.assertEqual([(reason, volume)], self.reasons(), status)

    def test_detaching_volume_without_mapping_is_stuck(self) -> None:
        self.cloud.volumes[self.disk]['status'] = 'detaching'
        self.cloud.mappings[self.alpha].clear()
        finding, = self.audit()
        self.assertEqual(
            (Reason.STUCK, 'openstack bdm release '
             + loopback.uid('attachment of disk')),
            (finding.reason, str(finding.action)))
        self.cloud.servers[self.alpha]['locked'] = True
        self.assertEqual([('operation-in-flight', self.disk)],
                         self.reasons())

    def test_root_is_an_alarm_only_if_nova_shows_the_root(self) -> None:
        """Raise no alarm about a root that Nova does not show."""
        for user, device, reason, words, remedy, action in (
                ('admin', '/dev/vdb', 'root-volume-dangling',
                 'it is the root disk', Remedy.CLEAN,
                 'openstack bdm clean %(server)s'),
                ('admin', None, 'volume-available',
                 'Nova does not show whether it is the root disk',
                 Remedy.PERSON, 'look: openstack bdm show %(server)s'),
                ('member', '/dev/vdb', 'volume-available',
                 'your credentials do not show whether it is the root disk',
                 Remedy.PERSON, 'ask an administrator: openstack bdm audit '
                 '--all-projects --server %(server)s')):
            server = self.cloud.server('from a volume', image='', **{
                'OS-EXT-SRV-ATTR:root_device_name': device})
            disk = self.cloud.attach(server, 'root')
            self.cloud.attach(server, 'data')
            self.cloud.lose_attachment(disk)
            finding, = self.audit(Scope(), user=user)
            self.assertEqual((reason, disk, remedy), (
                str(finding.reason), finding.volume, finding.remedy))
            self.assertIn(words, finding.explanation)
            self.assertIn(action % {'server': server}, str(finding.action))
            # It gets a new attachment in a hard reboot.
            self.assertEqual(remedy is Remedy.CLEAN, finding.is_for_reboot)
            self.cloud.mappings[server].clear()
            self.cloud.lose_volume(loopback.uid('data'))

    def test_soft_deleted_server_is_audited(self) -> None:
        self.cloud.servers[self.alpha]['status'] = 'SOFT_DELETED'
        self.assertEqual([], self.audit())
        # Cinder names the server, so its findings are reported.
        self.cloud.attach(self.alpha, 'second')
        self.cloud.lose_attachment(self.disk)
        self.assertEqual([('volume-available', self.disk)], self.reasons())

    def test_another_attachment_than_nova_names(self) -> None:
        self.cloud.mappings[self.alpha][0]['attachment_id'] = (
            loopback.uid('another'))
        self.assertEqual([], self.audit())
        self.assertEqual(
            [('attachment-mismatch', self.disk)],
            self.reasons(Scope(all_projects=True, thorough=True)))

    def test_reserved_multiattach_volume_is_of_one_server(self) -> None:
        self.cloud.volumes[self.disk].update(multiattach=True,
                                             status='reserved')
        self.cloud.mapping(self.beta, self.disk, self.cloud.attachment(
            'reserving', self.beta, self.disk, 'reserved', connected=False))
        self.assertEqual(
            {str(Reason.RESERVED_ONLY)}, {r for r, _ in self.reasons()})
        self.assertEqual([self.beta], [i.server for i in self.audit()])

    def test_locked_server_has_to_be_unlocked_first(self) -> None:
        self.cloud.servers[self.alpha]['locked'] = True
        self.cloud.lose_attachment(self.disk)
        finding, = self.audit()
        self.assertEqual([
            'look: openstack server unlock ' + self.alpha,
            'openstack bdm clean ' + self.alpha], finding.action.lines)
        self.assertIn('since the server is locked (Nova has no record of who '
                      'locked it)', finding.explanation)
        finding, = self.audit(Scope(), user='member')
        self.assertEqual('ask an administrator: openstack server unlock '
                         + self.alpha, finding.action.lines[0])

    def test_findings_over_the_limit_say_that_all_are_kept(self) -> None:
        for number in range(9):
            self.cloud.lose_attachment(self.cloud.attach(
                self.alpha, 'disk-%d' % number))
        self.assertEqual(
            {'it is kept: more mappings than [bdm_cleanup] max_removals would '
             'be removed; none is removed'},
            {i.explanation.partition('disk; ')[2]
             or i.explanation.partition('server; ')[2]
             for i in self.audit()})


class MeanwhileTest(AuditCase):
    """Changes while the lists are read, which are no inconsistency."""

    def once(self, pattern: str, change: Any) -> None:
        done: list[bool] = []

        def action() -> None:
            if not done:
                done.append(True)
                change()

        self.cloud.on(pattern, action)

    def detach(self) -> None:
        self.cloud.lose_attachment(self.disk)
        self.cloud.mappings[self.alpha].pop(0)

    def delete(self) -> None:
        self.cloud.lose_attachment(self.other)
        self.cloud.lose_server(self.beta)

    def test_changes_after_the_list_are_no_findings(self) -> None:
        changes: dict[str, Callable[[], object]] = {
            'a server is created': lambda: self.cloud.attach(
                self.cloud.server('new'), 'disk of the new one'),
            'a volume is attached': lambda: self.cloud.attach(
                self.alpha, 'new disk'),
            'a volume is detached': self.detach,
            'a server is deleted': self.delete}
        for name, change in changes.items():
            self.cloud.calm()
            self.once('GET .*/attachments', change)
            self.assertEqual([], self.audit(), name)

    def test_volume_attached_meanwhile_is_no_finding(self) -> None:
        self.cloud.lose_attachment(self.disk)

        # Between the answers of Nova and Cinder: the next look sees it.
        self.once('GET .*instance_id', lambda: self.cloud.attach(
            self.alpha, 'new disk'))
        self.assertEqual([('volume-available', self.disk)], self.reasons())

    def test_server_that_keeps_changing_is_in_flight(self) -> None:
        self.cloud.lose_attachment(self.disk)
        mapping, = self.cloud.mappings[self.alpha]
        self.cloud.on('os-volume_attachments', lambda: mapping.update(
            device=mapping['device'] + 'x'))
        self.assertEqual({'operation-in-flight'},
                         {r for r, _ in self.reasons()})

    def test_attachment_of_a_server_to_come_is_in_flight(self) -> None:
        volume = self.cloud.volume('boot', 'reserved', age=MINUTE)
        self.cloud.attachment('boot', loopback.uid('unborn'), volume,
                              'reserved', connected=False)
        self.assertEqual([('operation-in-flight', volume)], self.reasons())


class GapsTest(AuditCase):
    """Missing answers: reported as gaps, and nothing concluded from them."""

    def test_silent_cell_is_a_gap(self) -> None:
        self.cloud.silent_hosts = ['compute7']
        self.cloud.silent_servers = [self.alpha]
        self.assertEqual([], self.audit())
        self.assertEqual(
            ['the cells of these compute hosts do not answer: compute7',
             'server %s: the cell of server %s does not answer' % (
                 self.alpha, self.alpha),
             '1 server is in cells that do not answer'],
            self.auditor.gaps)

    def test_list_that_breaks_in_the_middle(self) -> None:
        self.cloud.page = 3
        self.cloud.populate(10, 1)
        self.cloud.lose_attachment(self.disk)
        for pattern in ('attachments.*marker', 'servers/detail.*marker',
                        'volumes.*marker'):
            for action in (lambda: (500, {'computeFault': {'message': ''}}),
                           lambda: (200, b'<html>not here</html>'),
                           lambda: (404, b'<html>not here</html>'),
                           lambda: (200, {'other': []})):
                self.cloud.calm()
                self.cloud.on(pattern, action)
                found = {str(i.reason) for i in self.audit()}
                self.assertEqual(1, len(self.auditor.gaps), pattern)
                self.assertLessEqual(found, {'volume-available'})

    def test_servers_that_were_not_listed_may_have_the_volume(self) -> None:
        self.cloud.page = 3
        self.cloud.populate(5, 1)
        # The server created first is the last in the list.
        self.cloud.lose_attachment(self.disk)
        self.cloud.volumes[self.disk]['status'] = 'in-use'
        self.assertEqual([('status-contradiction', self.disk)],
                         self.reasons())
        self.cloud.on('servers/detail.*marker', lambda: (500, None))
        self.assertEqual([], self.reasons())
        self.assertEqual(1, len(self.auditor.gaps))

    def test_nothing_is_concluded(self) -> None:
        """Conclude nothing from a lost connection, an unanswered second
        look and a refused witness.
        """
        self.cloud.lose_attachment(self.disk)
        self.cloud.volumes[self.other]['status'] = 'error'
        for pattern, answer, words in (
                ('GET .*/attachments', wire.reset, 'Cinder does not answer'),
                ('os-volume_attachments', (500, None), 'server %s: GET'
                 % self.alpha),
                ('GET .*/attachments[?].*volume_id', FORBIDDEN, 'Policy')):
            self.cloud.calm()
            self.cloud.on(pattern, lambda a=answer: a)
            self.assertEqual([], self.audit(), pattern)
            self.assertIn(words, self.auditor.gaps[0])

    def test_cinder_without_any_known_volume_is_a_gap(self) -> None:
        self.cloud.volumes.clear()
        self.cloud.attachments.clear()
        self.assertEqual([], self.audit())
        self.assertIn('knows none of the volumes', self.auditor.gaps[0])

    def test_nova_without_any_volume_is_an_answer(self) -> None:
        """Take it for an answer: the last server may be gone."""
        for server in (self.alpha, self.beta):
            self.cloud.lose_server(server)
        lonely = self.cloud.volume('lonely', 'in-use')
        self.assertEqual(
            {('server-gone', self.disk), ('server-gone', self.other),
             ('volume-unreferenced', lonely)}, set(self.reasons()))
        self.assertEqual([], self.auditor.gaps)

    def break_both(self) -> None:
        self.cloud.lose_attachment(self.disk)
        self.cloud.lose_attachment(self.other)

    def test_refused_server_does_not_hide_the_others(self) -> None:
        """Check that the findings of other servers are shown."""
        self.break_both()
        self.cloud.on('GET .*/servers/%s$' % self.alpha, lambda: FORBIDDEN)
        self.assertEqual([('volume-available', self.other)], self.reasons())
        [gap] = self.auditor.gaps
        self.assertIn('server %s: GET' % self.alpha, gap)

    def test_expired_token_ends_the_audit_with_one_gap(self) -> None:
        """Report one gap and send no more requests."""
        self.break_both()
        first, second = sorted((self.alpha, self.beta))
        self.cloud.on('GET .*/servers/%s$' % second, lambda: setattr(
            self.cloud, 'token_is_valid', False))
        finding, = self.audit()
        self.assertEqual(first, finding.server)
        [gap] = self.auditor.gaps
        self.assertIn('server %s, and the rest of the audit'
                      % second, gap)

    def test_refused_list_ends_the_audit(self) -> None:
        for path in ('servers/detail', 'attachments/detail', 'volumes[?]'):
            self.cloud.calm()
            self.cloud.on('GET .*/' + path, lambda: FORBIDDEN)
            self.assertRaises(errors.Refused, self.audit)

    def test_hosts_that_are_not_listed_are_a_gap(self) -> None:
        self.cloud.lose_attachment(self.disk)
        self.cloud.on('GET .*/os-services', lambda: (500, None))
        for scope in (ALL, Scope(host='compute1')):
            self.assertEqual([('volume-available', self.disk)],
                             self.reasons(scope))
            self.assertIn('whether every cell answers', self.auditor.gaps[0])

    def test_unanswered_server_does_not_hide_the_others(self) -> None:
        self.cloud.lose_attachment(self.disk)
        ghost = loopback.uid('ghost')
        for unanswered in ('beta', ghost):
            self.cloud.calm()
            self.cloud.on('servers/detail.*name=beta|instance_id=' + ghost,
                          lambda: (500, None))
            self.assertEqual([('volume-available', self.disk)], self.reasons(
                Scope(servers=(unanswered, 'alpha'), all_projects=True)))
            self.assertEqual(1, len(self.auditor.gaps))

    def test_limit_of_requests_is_kept(self) -> None:
        self.cloud.populate(30, 1)
        for volume in list(self.cloud.volumes):
            if volume != self.disk:
                self.cloud.lose_attachment(volume)
        self.audit(budget=Budget(40))
        self.assertIn('--max-requests', self.auditor.gaps[-1])
        self.assertEqual(40, len(self.cloud.requests))


class RightsTest(AuditCase):

    def test_member_audits_only_the_own_project(self) -> None:
        self.cloud.attach(self.cloud.server('foreign', 'other'), 'foreign')
        self.cloud.lose_attachment(self.disk)
        self.assertEqual([('volume-available', self.disk)],
                         self.reasons(Scope(), user='member'))
        self.assertEqual((2, 2, 1), self.auditor.size)

    def test_host_limits_the_audit_to_its_servers(self) -> None:
        gamma = self.cloud.server('gamma', **{
            'OS-EXT-SRV-ATTR:host': 'compute2'})
        disk = self.cloud.attach(gamma, 'gamma disk')
        self.cloud.lose_attachment(disk)
        self.cloud.lose_attachment(self.disk)
        self.assertEqual([('volume-available', disk)],
                         self.reasons(Scope(host='compute2')))
        self.cloud.lose_server(gamma)
        self.assertEqual([], self.audit(Scope(host='compute2')))
        exc = self.assertRaises(errors.BadInput, self.audit,
                                Scope(host='nowhere'))
        self.assertIn('no compute host nowhere', str(exc))

    def test_member_is_shown_no_admin_commands(self) -> None:
        """Print no admin commands, and do not say a server is gone."""
        shared = self.cloud.volume('shared', 'in-use')
        foreign = self.cloud.server('foreign', 'other')
        self.cloud.attachment('shared', foreign, shared)
        lonely = self.cloud.volume('lonely', 'in-use')
        self.cloud.attachment('stale', self.alpha, self.cloud.volume(
            'stale', 'in-use'))
        self.cloud.lose_volume(self.other)
        found = {i.volume: i for i in self.audit(Scope(), user='member')}
        self.assertIn('is not visible to you', found[shared].explanation)
        self.assertEqual({
            shared: 'openstack bdm audit --all-projects --server ' + foreign,
            lonely: 'openstack bdm release ' + lonely,
            loopback.uid('stale'): 'openstack bdm show ' + self.alpha,
            self.other: 'openstack bdm show ' + self.beta},
            {v: str(i.action).partition('ask an administrator: ')[2]
             for v, i in found.items()})
        for volume, words in ((loopback.uid('stale'), 'is being migrated'),
                              (self.other, 'do not show the volume')):
            self.assertIn(words, found[volume].explanation)


class AdviceTest(AuditCase):
    """Printed commands, which must have an effect now."""

    def advice(self) -> str:
        finding, = self.audit()
        return str(finding.action)

    def at(self, age: datetime.timedelta, period: int) -> str:
        then = (datetime.datetime.now(datetime.timezone.utc)
                - age + period * MINUTE + MINUTE)
        return then.strftime('wait until %H:%M UTC')

    def test_young_attachment_has_to_wait(self) -> None:
        volume = self.cloud.volume('reserved', 'reserved', age=MINUTE)
        for name, server, words in (
                ('stale', self.alpha, self.at(MINUTE, 5)),
                ('unborn', loopback.uid('unborn'), self.at(MINUTE, 5)),
                ('nobody', None, self.at(MINUTE, 60))):
            self.cloud.attachments.pop(loopback.uid(name), None)
            record = self.cloud.attachment(name, server, volume, 'reserved',
                                           connected=False)
            self.assertEqual(words, self.advice(), name)
            del self.cloud.attachments[record]

    def test_release_that_would_be_refused_is_only_a_look(self) -> None:
        """Advise only a look where "release" would refuse."""
        volume = self.cloud.volume('held', 'in-use')
        record = self.cloud.attachment('gone', loopback.uid('ghost'), volume)
        # Another Nova may have it.
        self.assertEqual('look: openstack bdm release ' + record,
                         self.advice())
        self.cloud.remember('ghost')
        self.assertEqual('openstack bdm release ' + record, self.advice())
        attachment = self.cloud.attachments[record]
        kept = dict(attachment)
        # The host was taken down since; an attachment from before Queens.
        for fields, verb in (({'host': 'elsewhere'}, ''),
                             ({'connection_info': {}}, 'look: ')):
            attachment.update(fields)
            self.assertEqual(verb + 'openstack bdm release ' + record,
                             self.advice())
            attachment.update(kept)
        self.cloud.attachment('begun', None, volume, 'reserved', False)
        self.assertEqual('look: openstack bdm release ' + record,
                         self.advice())

    def root(self) -> tuple[str, str]:
        gamma = self.cloud.server('gamma', image='', **{
            'OS-EXT-SRV-ATTR:root_device_name': '/dev/vdb'})
        return gamma, self.cloud.attach(gamma, 'root')

    def test_disk_of_another_host_is_reconnected_by_a_reboot(self) -> None:
        self.cloud.evacuate(self.alpha)
        for status in ('ACTIVE', 'PAUSED'):
            self.cloud.servers[self.alpha]['status'] = status
            finding, = self.audit()
            self.assertTrue(finding.is_for_reboot)
            self.assertFalse(finding.stops_a_reboot)
            self.assertEqual(['openstack bdm clean ' + self.alpha],
                             finding.action.lines)

    def test_failed_live_migration_needs_no_reboot(self) -> None:
        """It would start a guest that runs on the other host."""
        self.cloud.evacuate(self.alpha)
        for states, remedy in ((['error'], Remedy.REPAIR),
                               (['completed'], Remedy.CLEAN)):
            self.cloud.migrations[self.alpha] = states
            finding, = self.audit()
            self.assertEqual(remedy, finding.remedy)
            self.assertTrue(finding.is_for_reboot)
            self.assertFalse(finding.stops_a_reboot)
            self.assertEqual({
                Remedy.REPAIR: 'on host compute2: nova-bdm-cleanup repair ',
                Remedy.CLEAN: 'openstack bdm clean '}[remedy] + self.alpha,
                str(finding.action))

    def test_server_in_error_is_started_by_a_reboot(self) -> None:
        self.cloud.servers[self.alpha]['status'] = 'ERROR'
        finding, = self.audit()
        self.assertEqual(
            (Reason.SERVER_IN_ERROR, None, Remedy.CLEAN),
            (finding.reason, finding.volume, finding.remedy))
        self.assertEqual('openstack bdm clean ' + self.alpha, self.advice())
        # Without volumes it is none of ours.
        self.cloud.servers[self.cloud.server('empty')]['status'] = 'ERROR'
        self.assertEqual(1, len(self.audit()))

    def test_reboot_of_server_in_error_ends_what_it_has_left(self) -> None:
        self.cloud.servers[self.alpha]['status'] = 'ERROR'
        self.cloud.attachment('of a move', self.alpha, self.disk, 'reserved',
                              connected=False)
        self.assertEqual({'openstack bdm clean ' + self.alpha}, {
            str(finding.action) for finding in self.audit()})

    def test_server_on_host_that_is_down_is_evacuated(self) -> None:
        for status, reason in (('ACTIVE', Reason.HALF_MOVED),
                               ('ERROR', Reason.SERVER_IN_ERROR)):
            self.cloud.servers[self.alpha].update(
                status=status, host_status='DOWN')
            if reason is Reason.HALF_MOVED:
                self.cloud.evacuate(self.alpha)
            found = {finding.reason: finding for finding in self.audit()}
            self.assertEqual(
                'look: openstack server evacuate ' + self.alpha,
                str(found[reason].action))
            self.assertIn('is DOWN: start it again, or, only if the host is '
                          'certainly off', found[reason].explanation)

    def test_disk_that_the_guest_may_have_elsewhere_is_left_to_a_person(
            self) -> None:
        self.cloud.evacuate(self.alpha)
        # Nova does not show where the guest was last.
        self.cloud.servers[self.alpha]['status'] = 'SHUTOFF'
        finding, = self.audit()
        self.assertEqual((Reason.HALF_MOVED, self.disk, 'compute2'),
                         (finding.reason, finding.volume, finding.host))
        # A reboot changes nothing about it.
        self.assertFalse(finding.is_for_reboot)
        self.assertFalse(finding.stops_a_reboot)
        self.assertEqual([
            'look: openstack bdm show ' + self.alpha],
            finding.action.lines)
        # Only this server is looked at.
        self.assertEqual(0, self.cloud.asked('/servers/' + self.beta))
        self.assertEqual([], self.audit(Scope(), user='member'))

    def test_free_root_is_reconnected_by_a_reboot(self) -> None:
        gamma, root = self.root()
        self.cloud.lose_attachment(root)
        self.assertEqual('openstack bdm clean ' + gamma, self.advice())

    def test_half_moved_disk_of_a_shelved_server_is_unshelved(self) -> None:
        self.cloud.half_move(self.disk)
        self.cloud.volumes[self.disk].update(
            status='in-use', updated_at=loopback._stamp(120 * MINUTE))
        self.cloud.servers[self.alpha].update({
            'status': 'SHELVED_OFFLOADED', 'OS-EXT-SRV-ATTR:host': None})
        finding, = self.audit()
        self.assertEqual(
            (Reason.HALF_MOVED, False, 'look: openstack server unshelve '
             + self.alpha),
            (finding.reason, finding.is_for_reboot, str(finding.action)))

    def test_host_of_a_repair_is_named_if_the_guest_may_run(self) -> None:
        self.cloud.half_move(self.disk)
        self.cloud.volumes[self.disk].update(
            status='in-use', updated_at=loopback._stamp(120 * MINUTE))
        words = 'on host compute1: nova-bdm-cleanup repair ' + self.alpha
        for status, is_named in (('ACTIVE', True), ('SHUTOFF', False)):
            self.cloud.servers[self.alpha]['status'] = status
            finding, = self.audit()
            self.assertEqual(is_named, words in finding.explanation)
        # The root disk is not there to be adopted.
        _, root = self.root()
        self.cloud.lose_attachment(root)
        self.assertNotIn('repair', next(
            f.explanation for f in self.audit() if f.volume == root))

    def test_free_root_of_another_project_gets_a_new_attachment(self) -> None:
        gamma, root = self.root()
        self.cloud.lose_attachment(root)
        self.cloud.volumes[root]['os-vol-tenant-attr:tenant_id'] = 'other'
        self.assertEqual([
            'look: openstack server stop ' + gamma,
            'on host compute1: nova-manage volume_attachment get_connector '
            '--json > connector.json',
            'on a controller: nova-manage volume_attachment refresh %s %s '
            'connector.json' % (gamma, root),
            'openstack server start ' + gamma], self.advice().split('; '))

    def test_half_moved_root_is_reconnected_by_a_reboot(self) -> None:
        gamma, root = self.root()
        self.cloud.half_move(root)
        self.cloud.volumes[root]['updated_at'] = loopback._stamp(120 * MINUTE)
        finding, = self.audit()
        self.assertEqual((Reason.HALF_MOVED, Remedy.CLEAN), (
            finding.reason, finding.remedy))
        self.assertEqual('openstack bdm clean ' + gamma, self.advice())

    def test_young_half_moved_disk_has_to_wait(self) -> None:
        """Nova does not show whether it carries out a move."""
        for reason, status, prepare in (
                (Reason.RESERVED_ONLY, 'reserved', self.reserved),
                (Reason.HALF_MOVED, 'attaching', self.attaching),
                (Reason.HALF_MOVED, 'reserved', self.cloud.half_move)):
            prepare(self.disk)
            for age, expected in ((MINUTE, Reason.OPERATION_IN_FLIGHT),
                                  (120 * MINUTE, reason)):
                self.cloud.volumes[self.disk].update(
                    status=status, updated_at=loopback._stamp(age))
                found = self.audit()
                self.assertEqual(
                    [expected], [f.reason for f in found] or [
                        Reason.OPERATION_IN_FLIGHT], (status, age))
                self.assertEqual(
                    [expected is reason] * len(found),
                    [f.is_for_reboot for f in found])

    def attaching(self, volume: str) -> None:
        self.cloud.attachments[loopback.uid('attachment of disk')].update(
            status='attaching')

    def reserved(self, volume: str) -> None:
        self.cloud.attachments[loopback.uid('attachment of disk')].update(
            status='reserved', connection_info={})

    def test_root_that_is_gone_is_explained(self) -> None:
        gamma, root = self.root()
        self.cloud.lose_volume(root)
        self.assertEqual(
            'look: openstack server stop %s; openstack bdm explain '
            'root-volume-dangling' % gamma, self.advice())


class FloodTest(AuditCase):
    """Thousands of reservations of one volume, for unknown servers."""

    def flood(self, count: int, age: datetime.timedelta = 60 * MINUTE) -> str:
        volume = self.cloud.volume('flooded', 'reserved', age=age)
        for number in range(count):
            self.cloud.attachment(
                'flood-%d' % number, loopback.uid('nobody-%d' % number),
                volume, 'reserved', connected=False)
        return volume

    def test_flood_ends_in_one_summary_row(self) -> None:
        volume = self.flood(5000)
        found = self.audit()
        self.assertEqual(51, len(found))
        for finding in found[:-1]:
            self.assertEqual(
                'look: openstack bdm release %s' % finding.attachment,
                str(finding.action))
        last = found[-1]
        self.assertEqual(
            (Reason.SERVER_GONE, volume, None, None, 4950,
             'look: openstack bdm release %s --max 5000' % volume),
            (last.reason, last.volume, last.server, last.attachment,
             last.count, str(last.action)))
        self.assertIn('4950 more attachments of this volume', last.explanation)
        self.assertEqual(1, self.cloud.asked('/volumes/' + volume))
        self.assertEqual(1, self.cloud.asked(
            '/attachments/detail.*volume_id=' + volume))

    def test_flood_costs_few_requests(self) -> None:
        """Check that reservations cost little more than listing them."""
        self.cloud.page = 10
        self.audit()
        without = len(self.cloud.requests)
        self.cloud.requests.clear()
        self.flood(500)
        self.audit()
        self.assertEqual([], self.auditor.gaps)
        # Their pages, two requests for each server that is looked for, and
        # the first pages of their volume.
        self.assertLessEqual(
            len(self.cloud.requests), without + 500 // 10 + 2 * 50 + 7)

    def test_new_ones_pass(self) -> None:
        self.flood(60, MINUTE)
        self.assertEqual([Reason.OPERATION_IN_FLIGHT] * 51,
                         [i.reason for i in self.audit()])

    def test_attachments_not_looked_at_are_a_gap(self) -> None:
        """Report attachments that were not looked at as a gap."""
        volume = self.flood(60)
        for number in range(50):
            self.cloud.server('nobody-%d' % number, status='SOFT_DELETED')
        self.assertEqual({Reason.STALE_ATTACHMENT},
                         {i.reason for i in self.audit()})
        self.assertEqual(
            ['volume %s: 10 more attachments of this volume name servers that '
             'Nova did not list; they were not looked at' % volume],
            self.auditor.gaps)

    def test_a_server_with_two_volumes_is_asked_for_once(self) -> None:
        ghost = self.cloud.server('ghost')
        volumes = [self.cloud.attach(ghost, name) for name in ('a', 'b')]
        self.cloud.lose_server(ghost)
        self.assertEqual(sorted(volumes),
                         sorted(str(i.volume) for i in self.audit()))
        self.assertEqual(1, self.cloud.asked('/servers/' + ghost))

    def test_a_server_that_ends_meanwhile(self) -> None:
        """Check that Nova is asked first: a deleted server took its
        attachments along.
        """
        ghost = self.cloud.server('ghost', status='SOFT_DELETED')
        volume = self.cloud.attach(ghost, 'a')

        def end() -> None:
            if ghost in self.cloud.servers:
                self.cloud.lose_attachment(volume)
                self.cloud.lose_server(ghost)

        self.cloud.on('/servers/' + ghost, end)
        self.assertEqual([], self.audit())


class SizeTest(AuditCase):
    """2,000 servers with 10,000 attachments."""

    def test_progress_counts_servers_and_attachments(self) -> None:
        self.cloud.page = 1
        self.cloud.lose_attachment(self.disk)
        self.assertEqual([('volume-available', self.disk)], self.reasons())
        for what, count in (('servers', 2), ('attachments', 1),
                            ('volumes that are in-use', 1)):
            self.assertEqual(list(range(1, count + 1)), [
                n for w, n in self.told if w == what])

    def test_requests_grow_with_pages(self) -> None:
        self.cloud.populate(1998, 5)
        self.assertEqual([], self.audit())
        self.assertEqual((2000, 9992, 9992), self.auditor.size)
        # The cells and two pages of servers; the proof of the role, ten
        # pages of attachments and an empty one, ten pages of volumes in use
        # and one for each of the three other states.
        self.assertEqual({'Nova': 3, 'Cinder': 26}, dict(self.budget.made))

    def test_a_suspect_costs_a_few_requests(self) -> None:
        self.cloud.populate(100, 5)
        self.audit()
        before = len(self.cloud.requests)
        self.cloud.requests.clear()
        for number in range(10):
            self.cloud.lose_attachment(
                loopback.uid('volume-%d-0' % number))
        self.assertEqual(10, len(self.audit()))
        self.assertLessEqual(len(self.cloud.requests) - before, 10 * 12)
