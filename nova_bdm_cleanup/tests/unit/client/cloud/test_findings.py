# SPDX-License-Identifier: Apache-2.0
"""Findings in a cloud, and their remedies."""

from __future__ import annotations

import dataclasses
import datetime
from unittest import mock

from nova_bdm_cleanup.client.cloud import findings
from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.client.cloud.inspection import (
    Cloud,
    Inspection,
    Interruption,
)
from nova_bdm_cleanup.client.cloud.nova import ComputeServer
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.facts import Action, Finding
from nova_bdm_cleanup.rules.reasons import Reason, RECONNECTED, Remedy
from nova_bdm_cleanup.tests.unit import base, make

FINDING = CloudFinding(Reason.VOLUME_AVAILABLE, 'words', server='server-1',
              volume='volume-1', attachment='attachment-1')


def findings_of(seen: Inspection,
                plugin: bool | None = None) -> tuple[CloudFinding, ...]:
    """Return the findings at a server, shown to an administrator.

    :param plugin: whether its host has the plugin; None: not known
    """
    return findings.findings_of(seen, Cloud(
        mock.Mock(), mock.Mock(), facts.Policy(), None, mock.Mock(),
        lambda node: plugin, lambda: make.NOW))


class RemedyTest(base.TestCase):

    def test_action_follows_reason_and_withheld(self) -> None:
        release = 'openstack bdm release attachment-1'
        for fields, words in (
                ({}, 'openstack bdm clean server-1'),
                ({'reason': Reason.STUCK}, release),
                ({'reason': Reason.SERVER_GONE, 'needs_look': True},
                 'look: ' + release),
                ({'reason': Reason.VOLUME_UNREFERENCED, 'attachment': None},
                 'openstack bdm release volume-1'),
                ({'reason': Reason.CROSS_WIRED},
                 'look: openstack bdm show server-1'),
                ({'withheld': Reason.SERVER_LOCKED},
                 'look: openstack server unlock server-1; '
                 'openstack bdm clean server-1'),
                ({'withheld': Reason.OVER_LIMIT},
                 'look: openstack bdm explain over-limit'),
                ({'reason': Reason.VOLUME_BUSY}, 'wait')):
            finding = dataclasses.replace(FINDING, **fields)
            self.assertEqual(words, str(finding.action))
            self.assertEqual(words.startswith('look')
                             and not finding.needs_look,
                             finding.remedy is Remedy.PERSON)


class LightestTest(base.TestCase):
    """The remedy, where it is lighter than the usual one of a reason."""

    def test_reserved_attachment_is_released_not_cleaned(self) -> None:
        """Release a reserved attachment even if a reboot would fix it."""
        for reason, status, connected, withheld, remedy in (
                (Reason.STALE_ATTACHMENT, 'reserved', False, None,
                 Remedy.RELEASE),
                (Reason.STALE_ATTACHMENT, 'reserved', False,
                 Reason.OVER_LIMIT, Remedy.RELEASE),
                (Reason.STALE_ATTACHMENT, 'reserved', False,
                 Reason.SERVER_LOCKED, Remedy.PERSON),
                (Reason.STALE_ATTACHMENT, 'reserved', True, None,
                 Remedy.CLEAN),
                (Reason.STALE_ATTACHMENT, 'attached', True, None,
                 Remedy.CLEAN),
                (Reason.STUCK, 'reserved', False, None, Remedy.PERSON),
                (Reason.STUCK, 'attaching', False, None, Remedy.PERSON)):
            attachment = make.attachment(status=status, connected=connected)
            [finding] = findings_of(Inspection(
                ComputeServer(attachment.server_id, 'web', 'ACTIVE'),
                facts.Plan((Finding(reason, '', attachment=attachment,
                                    withheld=withheld),)),
                {attachment.volume_id: make.volume(
                    updated_at=make.ago(24 * 60 * 60))},
                {attachment.id: attachment}))
            self.assertIs(remedy, finding.remedy, (reason, status, withheld))
            if reason is Reason.STALE_ATTACHMENT:
                self.assertEqual(withheld is None, finding.is_for_reboot)

    def test_wrong_status_is_set_without_an_outage(self) -> None:
        """Print first what takes no disk away."""
        in_use = 'openstack volume set --state in-use volume'
        for reason, status, action in (
                (Reason.VOLUME_AVAILABLE, 'available', Action.REMOVE),
                (Reason.ROOT_VOLUME_DANGLING, 'available', Action.KEEP),
                (Reason.STUCK, 'attaching', Action.KEEP),
                (Reason.VOLUME_BUSY, 'error', Action.KEEP),
                (Reason.VOLUME_BUSY, 'maintenance', Action.KEEP)):
            for agreed in (True, False):
                bdm = make.bdm(volume_id='volume')
                [finding] = findings_of(Inspection(
                    ComputeServer('server', 'web', 'ACTIVE', host='host'),
                    facts.Plan((Finding(reason, '', bdm, action=action),)),
                    {'volume': facts.Volume('volume', status)}, {},
                    agreed=frozenset(['volume'] if agreed else ())))
                self.assertEqual(agreed, (in_use,)
                                 == finding.action.commands, finding)
                self.assertEqual(
                    agreed and action is Action.REMOVE,
                    'a hard reboot takes it away' in finding.explanation)
                self.assertEqual(reason is Reason.VOLUME_AVAILABLE,
                                 finding.is_for_reboot)
                self.assertFalse(finding.passes)

    def test_busy_volume_passes(self) -> None:
        [finding] = findings_of(Inspection(
            ComputeServer('server', 'web', 'ACTIVE', host='host'),
            facts.Plan((Finding(Reason.VOLUME_BUSY, '',
                                make.bdm(volume_id='volume')),)),
            {'volume': facts.Volume('volume', 'extending')}, {},
            agreed=frozenset(['volume'])))
        self.assertTrue(finding.passes)

    def test_kept_disk_has_no_step_that_may_lose_it(self) -> None:
        """Print no refresh: it may disconnect another server's disk."""
        for reason in RECONNECTED:
            for action, host, status, expected in (
                    (Action.RECONNECT, 'compute-1', 'ACTIVE',
                     'openstack bdm clean server-1'),
                    (Action.KEEP, 'compute-1', 'ACTIVE',
                     'look: openstack bdm show server-1'),
                    (Action.KEEP, None, 'SHELVED_OFFLOADED',
                     'look: openstack server unshelve server-1')):
                [finding] = findings_of(Inspection(
                    ComputeServer('server-1', 'web', status, host=host),
                    facts.Plan((Finding(
                        reason, '', bdm=make.bdm(), action=action),)),
                    {'volume-1': make.volume()}, {}))
                self.assertEqual(expected, str(finding.action))
                is_due = action is Action.RECONNECT
                self.assertEqual((is_due, is_due), (
                    finding.is_for_reboot, finding.is_reconnect))

    def test_stuck_volume_without_record_needs_a_person(self) -> None:
        for status in ('attaching', 'reserved'):
            bdm = make.bdm(attachment_id=None)
            seen = Inspection(
                ComputeServer('server-1', 'web', 'ACTIVE'),
                facts.Plan((Finding(Reason.STUCK, '', bdm=bdm),)),
                {'volume-1': make.volume(status=status)}, {})
            [finding] = findings_of(seen)
            self.assertEqual('look', str(finding.remedy))


class HindranceTest(base.TestCase):
    """Hindrances of the usual remedy, and the remedy then."""

    def test_task_is_reset_before_an_evacuation(self) -> None:
        """Nova evacuates no server that has a task."""
        server = ComputeServer(
            'server-1', 'web', 'ACTIVE', host='compute-1', host_status='DOWN',
            task_state='rebooting_hard')
        plan = facts.Plan((Finding(
            Reason.INTERRUPTED, '', withheld=Reason.SERVER_LOCKED),))
        for interruption in Interruption:
            [finding] = findings_of(Inspection(
                server, plan, {}, {}, interruption=interruption))
            self.assertEqual((
                'openstack server event list server-1',
                'openstack server set --state error server-1',
                'openstack server evacuate server-1'),
                finding.action.commands)

    def test_look_comes_before_the_rebuild_of_an_interrupted_server(
            self) -> None:
        seen = Inspection(
            ComputeServer('server-1', 'web', 'ACTIVE', host='compute-1',
                          task_state='shelving_offloading'),
            facts.Plan((Finding(Reason.INTERRUPTED, ''),
                        Finding(Reason.CROSS_WIRED, '', bdm=make.bdm()))),
            {'volume-1': make.volume()}, {},
            interruption=Interruption.CERTAIN)
        self.assertEqual({(
            'openstack server set --state error server-1',
            'openstack bdm show server-1')}, {
                found.action.commands for found in findings_of(seen)})

    def test_plugin_comes_before_all_that_needs_it(self) -> None:
        check = 'on host compute-1: nova-bdm-cleanup check'
        reboot = 'openstack server reboot --hard server-1'
        for reason, withheld, command in (
                (Reason.VOLUME_AVAILABLE, None, check),
                (Reason.VOLUME_AVAILABLE, Reason.SERVER_LOCKED, check),
                (Reason.SERVER_IN_ERROR, None, reboot)):
            seen = Inspection(
                ComputeServer('server-1', 'web', 'ERROR', host='compute-1'),
                facts.Plan((Finding(reason, '', bdm=make.bdm(),
                                    withheld=withheld),)), {}, {})
            for plugin in (False, None, True):
                [finding] = findings_of(seen, plugin)
                self.assertEqual(plugin is False, (command,)
                                 == finding.action.commands, finding)


class FindingsOfTest(base.TestCase):

    def test_healthy_mapping_is_no_finding(self) -> None:
        finding, = findings_of(Inspection(
            ComputeServer('server-1', 'web', 'ACTIVE', project='own',
                          host='compute-1'),
            facts.Plan((
                Finding(Reason.VOLUME_AVAILABLE, 'available', bdm=make.bdm(),
                        withheld=Reason.SERVER_LOCKED),
                Finding(Reason.HEALTHY, 'attached',
                        bdm=make.bdm(volume_id='volume-2')))),
            {'volume-1': make.volume()}, {}))
        self.assertEqual(CloudFinding(
            Reason.VOLUME_AVAILABLE,
            'available; it is kept, since the server is locked',
            server='server-1', server_name='web', project='own',
            host='compute-1', volume='volume-1', attachment='attachment-1',
            device='/dev/vdb', since=make.ago(60),
            withheld=Reason.SERVER_LOCKED), finding)


class ForReaderTest(base.TestCase):

    def test_printed_command_has_the_given_periods(self) -> None:
        """Check that the printed command uses the same periods."""
        for policy, options in (
                (facts.Policy(), ''),
                (facts.Policy(stuck_after=datetime.timedelta()),
                 ' --stuck-after 0'),
                (facts.Policy(grace_period=datetime.timedelta(minutes=1)),
                 ' --grace-period 60')):
            cloud = Cloud(mock.Mock(), mock.Mock(), policy, None, mock.Mock())
            for reason, command in (
                    (Reason.STUCK, 'openstack bdm release attachment-1'),
                    (Reason.HALF_MOVED, 'openstack bdm clean server-1'),
                    (Reason.CROSS_WIRED,
                     'look: openstack bdm show server-1')):
                finding = dataclasses.replace(FINDING, reason=reason)
                self.assertEqual(
                    command + options,
                    str(findings.for_reader(finding, cloud).action))

    def test_total_counts_findings_by_remedy(self) -> None:
        for reasons, words in (
                ([Reason.STUCK], '1 finding: 1 to release'),
                ([Reason.STUCK] * 2 + [Reason.CROSS_WIRED,
                                       Reason.VOLUME_MISSING],
                 '4 findings: 2 to release, 1 to clean, 1 to look at')):
            self.assertEqual(words, findings.total([
                dataclasses.replace(FINDING, reason=r) for r in reasons]))
        self.assertEqual('7 findings: 7 to clean', findings.total([
            dataclasses.replace(FINDING, count=7)]))
