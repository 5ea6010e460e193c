# SPDX-License-Identifier: Apache-2.0
"""Boots of a host: its guests wait, and Cinder may be down."""

from __future__ import annotations

import fixtures

from nova_bdm_cleanup.node import devices, domains
from nova_bdm_cleanup.node.store.disconnects import SuppressedDisconnects
from nova_bdm_cleanup.tests.cloud import proxy
from nova_bdm_cleanup.tests.functional import scenario


class HostBootTestCase(scenario.Resumed):

    def boot(self) -> None:
        """Start nova-compute on a host on which nothing runs."""
        self.start_recording()
        self.cloud.restart_compute()

    def skipped_servers(self) -> tuple[str, int]:
        """Return why servers were skipped, and how many."""
        line, = self.all_log_lines('not-cleaned')
        self.assertEqual('WARNING', line.level)
        return line.reason, int(
            line.text.partition(' more servers')[0].split()[-1])

    def requested_paths(self) -> list[str]:
        """Return the requests without their queries."""
        return [each.partition('?')[0] for each in self.requests()]


class SharedTimeTest(HostBootTestCase):
    """One time limit for all servers nova-compute brings back at its start."""

    def test_reboot_start_and_resume(self):
        servers = [self.create_server(scenario.BOOT_DISK) for _ in range(3)]
        for server in servers:
            self.cloud.lose_attachment(server, *server.volumes)
        rebooted, started, resumed = servers
        self.cloud.change(rebooted, task_state='reboot_pending_hard')
        self.cloud.stop(started)
        self.cloud.change(started, task_state='powering-on')
        self.cloud.lose_power(resumed)
        self.cloud.proxy.on('*', '/v3/', proxy.reset())
        self.boot()
        self.cloud.proxy.clear()
        for server in servers:
            self.assertTrue(self.look(server).has_disk(*server.volumes))
        self.assertEqual(('cinder-unknown', 2), self.skipped_servers())
        self.assertEqual(1, len(self.all_log_lines('skipped')))


class StateTest(HostBootTestCase, scenario.TwoDisks):

    def setUp(self):
        super().setUp()
        self.cloud.lose_attachment(self.server, self.lost)

    def test_server_with_another_task_state(self):
        self.cloud.lose_power(self.server)
        self.cloud.change(self.server, task_state='suspending')
        self.boot()
        line, left_out = self.log_lines(self.server)
        self.assertEqual(('withheld', 'volume-available'),
                         (line.event, line.reason))
        self.assertIn('(start-lost)', line.text)
        self.assertEqual('not-connected', left_out.event)
        view = self.cloud.look(self.server)
        self.assertIsNotNone(view.block_device(self.lost))
        self.assertFalse(view.has_disk(self.lost))
        self.assertEqual([], self.journal())

    def test_stale_attachment_stays(self):
        stale = self.cloud.volume()
        self.cloud.create_attachment(self.server, stale, connected=False)
        view = self.reboot(self.server)
        self.assert_removed(view, self.lost, 'volume-available')
        self.assert_healthy(view, self.kept)
        self.assertEqual(1, len(self.cloud.attachments(stale)))
        self.assertEqual([], [line for line in self.log_lines(self.server)
                              if line.volume == stale])


class LateDisconnectTest(HostBootTestCase):
    """A disk that was kept connected before nova-compute was restarted."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(
            devices, 'unique_devices', lambda _: {'sdb': 'naa.1'}))
        self.notes = SuppressedDisconnects(str(self.store_path), 'compute1')
        self.notes.note('server', 'volume', {
            'driver_volume_type': 'iscsi', 'data': {
                'target_portal': '127.0.0.1:3260', 'target_lun': 5,
                'target_iqn': 'iqn.2010-10.org.openstack:array'}})

    def test_note_stays_if_the_claims_cannot_be_read(self):
        """The next start tries it again."""
        with fixtures.MockPatchObject(
                domains, 'domains', side_effect=OSError('no libvirt')):
            self.boot()
        self.assertEqual(1, len(self.notes.pending()))
        line, = self.cloud.log('not disconnected from this host yet')
        self.assertIn('does not tell which guest has it', line)


class TriggerDisabledTest(scenario.TwoDisks):
    """Stock Nova, since ``host_boot`` is not among the triggers."""

    ARGUMENTS = {'nova_options': scenario.RESUME_GUESTS}

    def test_disabled_trigger_sends_no_requests(self):
        self.cloud.lose_attachment(self.server, self.lost)
        self.cloud.lose_power(self.server)
        self.start_recording()
        self.cloud.restart_compute()
        self.assertTrue(self.look(self.server).has_disk(self.lost))
        self.assertEqual([], self.plugin_requests())
        self.assertEqual([], self.cloud.log('bdm-cleanup: event='))
