# SPDX-License-Identifier: Apache-2.0
"""A hard reboot: its refusals and its result."""

from __future__ import annotations

import datetime
import re
from typing import Any

from nova_bdm_cleanup.client.cloud import changes, reboot
from nova_bdm_cleanup.client.cloud.inspection import Cloud
from nova_bdm_cleanup.rules.reasons import Reason, Remedy
from nova_bdm_cleanup.tests.unit import loopback
from nova_bdm_cleanup.tests.unit.client.cloud import base

RESET = reboot.Consent(resets_state=True)


class RebootCase(base.CloudCase):

    def setUp(self) -> None:
        super().setUp()
        self.use_clock(changes, reboot)
        self.cloud.lose_attachment(self.disk)

    def seen(self) -> Cloud:
        cloud = self.seen_by()
        cloud.cinder.prove_admin()
        return cloud

    def look(self, **fields: Any) -> reboot.RebootPreview:
        self.cloud.servers[self.alpha].update(fields)
        return reboot.preview(self.seen(), self.alpha)


class LookTest(RebootCase):

    def test_only_some_states_allow_a_hard_reboot(self) -> None:
        for status in ('ACTIVE', 'SHUTOFF', 'PAUSED', 'SUSPENDED', 'ERROR'):
            plan = self.look(status=status)
            self.assertEqual(([self.disk], [], []), (
                [i.volume for i in plan.findings if i.volume], plan.others,
                plan.refusals))
        for status in ('RESCUE', 'SOFT_DELETED', 'SHELVED', 'odd'):
            why, = self.look(status=status).refusals
            self.assertIn('is %s cannot be hard-rebooted' % status, why)

    def test_server_without_host_is_left_to_release(self) -> None:
        why, = self.look(**{'status': 'SHELVED_OFFLOADED',
                            'OS-EXT-SRV-ATTR:host': None}).refusals
        self.assertIn('openstack bdm release', why)

    def test_busy_server_is_refused(self) -> None:
        plan = self.look(**{'OS-EXT-STS:task_state': 'rebooting_hard'})
        self.assertEqual(
            ['an operation on it is in progress (rebooting_hard)'],
            plan.refusals)
        self.assertEqual([], plan.findings)

    def test_stuck_volume_does_not_prevent_the_reboot(self) -> None:
        second = self.cloud.attach(self.alpha, 'second')
        self.cloud.volumes[second]['status'] = 'detaching'
        plan = self.look()
        self.assertEqual([second], [i.volume for i in plan.others])
        self.assertEqual([], plan.refusals)

    def half_shelve(self) -> str:
        """Have Nova forget half-way that it has connected a disk."""
        second = self.cloud.attach(self.alpha, 'second')
        self.cloud.volumes[second]['status'] = 'reserved'
        self.cloud.attachments[loopback.uid('attachment of second')].update(
            status='reserved', connection_info={})
        return second

    def test_the_reboot_reconnects_what_is_half_attached(self) -> None:
        second = self.half_shelve()
        for reason in (Reason.RESERVED_ONLY, Reason.HALF_MOVED):
            if reason is Reason.HALF_MOVED:
                self.cloud.half_move(second)
                # Nova may carry out a move of a younger one.
                self.cloud.volumes[second]['updated_at'] = (
                    loopback._stamp(datetime.timedelta(hours=2)))
            plan = self.look()
            self.assertEqual(
                ({(self.disk, Reason.VOLUME_AVAILABLE), (second, reason)},
                 [], []),
                ({(i.volume, i.reason) for i in plan.findings},
                 plan.others, plan.refusals))

    def test_reserved_volume_alone_is_reason_to_reboot(self) -> None:
        self.cloud.mappings[self.alpha].clear()
        second = self.half_shelve()
        plan = self.look()
        self.assertEqual(([second], []), (
            [i.volume for i in plan.findings], plan.refusals))

    def test_half_moved_disk_of_a_guest_elsewhere_prevents_no_reboot(
            self) -> None:
        second = self.cloud.attach(self.alpha, 'second')
        self.cloud.evacuate(self.alpha)
        self.cloud.servers[self.alpha]['status'] = 'SHUTOFF'
        plan = self.look()
        self.assertEqual(
            ([self.disk], [(second, Reason.HALF_MOVED)], []),
            ([i.volume for i in plan.findings],
             [(i.volume, i.reason) for i in plan.others], plan.refusals))

    def test_disk_not_reconnected_alone_is_no_reason_to_reboot(
            self) -> None:
        self.cloud.mappings[self.alpha].clear()
        second = self.half_shelve()
        self.cloud.volumes[second]['os-vol-tenant-attr:tenant_id'] = 'other'
        why, = self.look().refusals
        self.assertIn('reserved-only of volume %s' % second, why)

    def test_a_mapping_too_many_is_for_the_reboot_to_tell(self) -> None:
        second = self.cloud.attach(self.alpha, 'second')
        self.cloud.mapping(self.alpha, second, loopback.uid('lost'))
        plan = self.look()
        self.assertEqual(
            {(self.disk, Reason.VOLUME_AVAILABLE, Remedy.CLEAN),
             (second, Reason.DUPLICATE_MAPPING, Remedy.PERSON)},
            {(i.volume, i.reason, i.remedy) for i in plan.findings})
        self.assertEqual([], plan.refusals)

    def test_server_without_a_host_is_refused(self) -> None:
        why, = self.look(status='ERROR', hostId='').refusals
        self.assertIn('only its delete ends that (ERROR)', why)

    def test_interrupted_server_needs_the_option(self) -> None:
        self.cloud.interrupt(self.alpha)
        why, = self.look().refusals
        self.assertIn('interrupted (shelving); give --reset-state', why)
        plan = reboot.preview(self.seen(), self.alpha, consent=RESET)
        self.assertEqual(
            ([], [Reason.INTERRUPTED, Reason.VOLUME_AVAILABLE]),
            (plan.refusals, [i.reason for i in plan.findings]))

    def test_option_is_for_interrupted_servers_only(self) -> None:
        self.cloud.servers[self.alpha]['OS-EXT-STS:task_state'] = 'shelving'
        plan = reboot.preview(self.seen(), self.alpha, consent=RESET)
        self.assertEqual(['an operation on it is in progress (shelving)'],
                         plan.refusals)

    def test_reset_that_was_not_shown_is_an_objection(self) -> None:
        before = self.look()
        self.cloud.interrupt(self.alpha)
        now = reboot.preview(self.seen(), self.alpha, consent=RESET)
        self.assertEqual(
            'a reboot would also reset the state of the server (interrupted)',
            now.objection(before.findings, before.findings))


class RunTest(RebootCase):

    def run_change(self, change: reboot.Reboot) -> list[str]:
        return [str(r) for r in changes.make_all(
            [change], False, lambda *told: self.told.append(told)).each]

    def run_reboot(self, *states: str | None, timeout: float = 600) -> Any:
        """Reboot, with these task states meanwhile."""
        cloud = self.seen()
        plan = reboot.preview(cloud, self.alpha)
        left: list[str | None] = list(states)

        def begin() -> None:
            self.cloud.clean_up(self.alpha)
            self.cloud.on('GET .*/servers/[^/]*$', go_on)
            go_on()

        def go_on() -> None:
            self.cloud.servers[self.alpha]['OS-EXT-STS:task_state'] = (
                left.pop(0) if left else None)

        self.cloud.on('POST .*/action', begin)
        return self.run_change(reboot.Reboot(cloud, timeout, plan, False))

    def test_command_waits_until_the_reboot_ends(self) -> None:
        self.assertEqual(['removed'], self.run_reboot(
            'reboot_pending_hard', 'reboot_started_hard', None))
        self.assertEqual(
            [('done 0, under way 1, seconds', 0)] * 2, self.told)
        self.assertEqual(1, self.cloud.asked('POST'))

    def test_state_is_reset_right_before_the_reboot(self) -> None:
        self.cloud.interrupt(self.alpha)
        cloud = self.seen()
        plan = reboot.preview(cloud, self.alpha, consent=RESET)
        change = reboot.Reboot(cloud, 600, plan, False, consent=RESET)

        def begin() -> None:
            if 'reboot' in self.cloud.requests[-1].body:
                self.cloud.clean_up(self.alpha)
                self.cloud.servers[self.alpha]['status'] = 'ACTIVE'

        self.cloud.on('POST .*/action', begin)
        self.assertEqual(['done', 'removed'], self.run_change(change))
        self.assertEqual(
            [{'os-resetState': {'state': 'error'}},
             {'reboot': {'type': 'HARD'}}],
            [r.body for r in self.cloud.requests if r.method == 'POST'
             and r.path.endswith('/action')])

    def test_reboot_refused_after_the_reset_is_unanswered(self) -> None:
        self.cloud.interrupt(self.alpha)
        cloud = self.seen()
        plan = reboot.preview(cloud, self.alpha, consent=RESET)
        change = reboot.Reboot(cloud, 600, plan, False, consent=RESET)
        self.cloud.on('POST .*/action', lambda: (
            409, {'conflictingRequest': {'message': 'too late'}})
            if 'reboot' in self.cloud.requests[-1].body else None)
        self.assertIn('unknown: the state of the server is error now',
                      self.run_change(change)[0])

    def test_reboot_that_does_not_end_is_unanswered(self) -> None:
        [result] = self.run_reboot(
            *['reboot_started_hard'] * 20, timeout=10)
        self.assertIn('unknown: the hard reboot of server %s has not ended '
                      'after 10 s (reboot_started_hard)' % self.alpha, result)
        self.assertEqual(10.0, self.time)

    def test_server_lost_after_the_reboot_is_unanswered(self) -> None:
        """Report no answer if the server is gone, hidden, or gone before
        the stop: "refused" and "not found" would mean that nothing changed.
        """
        def act() -> Any:
            if 'os-stop' in self.cloud.requests[-1].body:
                return gone
            self.cloud.servers[self.alpha]['status'] = 'ACTIVE'
            return None

        def lose() -> Any:
            self.cloud.lose_server(self.alpha)
            return 202, None

        gone = 404, {'itemNotFound': {'message': 'Instance'}}
        hidden = 403, {'forbidden': {'message': 'Policy'}}
        cloud = self.seen()
        plan = self.look(status='SHUTOFF')
        for answer, words in (
                (act, '404 (Instance)'),
                (lambda: self.cloud.on('GET .*/servers/', lambda: hidden),
                 '403 (Policy)'), (lose, 'is gone')):
            self.cloud.calm()
            self.cloud.on('POST .*/action', answer)
            self.cloud.servers[self.alpha]['status'] = 'SHUTOFF'
            [result] = self.run_change(reboot.Reboot(cloud, 600, plan, True))
            self.assertRegex(result, '^unknown: .*' + re.escape(words))

    def test_reboot_of_a_server_that_is_gone_has_failed(self) -> None:
        """Report a failure: it was certainly not done."""
        cloud = self.seen()
        change = reboot.Reboot(cloud, 600, self.look(), True)
        self.cloud.on('POST .*/action',
                      lambda: self.cloud.lose_server(self.alpha))
        [result] = self.run_change(change)
        self.assertIn('failed: ', result)
