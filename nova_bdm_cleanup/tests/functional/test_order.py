# SPDX-License-Identifier: Apache-2.0
"""The order of steps, and what is left if they end half way.

Guest off, host disconnected, Nova's row removed, attachment deleted: in this
order nothing reconnects the disk after a crash, with the plugin and without.
Cinder keeps a stale attachment, which the next reboot deletes, unless the
volume then belongs to another project.
"""

from __future__ import annotations

import json
from typing import Any

import fixtures
from keystoneauth1 import exceptions as ksa_exceptions

from nova_bdm_cleanup.tests.cloud import fixture, proxy, recorder
from nova_bdm_cleanup.tests.functional import scenario


class OrderTestCase(scenario.TwoDisks):

    def setUp(self):
        super().setUp()
        self.attachment, = self.cloud.attachments(self.lost)
        self.cloud.reset_status(self.lost)

    def steps(self):
        """Return the steps about the disk, in order of time."""
        return [(event.party, event.what)
                for event in self.cloud.timeline(self.server.id, self.lost)
                if event.party != recorder.CINDER
                or event.what == 'DELETE'
                and self.attachment.id in event.subject]

    def check_finished(self, view):
        self.check_removed(view)
        self.assertNotIn((recorder.HOST, 'connect'), self.steps())
        self.assertEqual((), self.cloud.attachments(self.lost))
        self.assertEqual('available', view.volume_status(self.lost))


class OrderTest(OrderTestCase):

    def test_steps_are_in_order(self):
        view = self.reboot(self.server)
        self.check_finished(view)
        # Whether the device leaves the powered-off domain makes no difference.
        steps = [step for step in self.steps()
                 if step != (recorder.GUEST, 'detach device')]
        self.assertEqual([
            (recorder.GUEST, 'power off'),
            (recorder.HOST, 'disconnect'),
            (recorder.NOVA, 'remove bdm'),
            (recorder.CINDER, 'DELETE'),
            (recorder.BACK_END, 'terminate_connection'),
            (recorder.BACK_END, 'remove_export'),
        ], steps[:6])
        self.assertEqual((recorder.GUEST, 'power on'), steps[-1])

    def test_removed_mapping_keeps_connection_info(self):
        before = json.loads(self.cloud.row(
            self.server, self.lost).connection_info)
        view = self.reboot(self.server)
        self.assertEqual(before, view.removed_block_device(
            self.lost).connection_info)

    def test_volume_can_be_attached_again(self):
        self.reboot(self.server)
        self.cloud.attach(self.server, self.lost)
        self.assert_healthy(self.look(self.server), self.lost)


class UnknownResultTest(OrderTestCase):
    """Deletions with an unknown result; ``test_faults`` has refusals."""

    def test_lost_answer_leaves_nothing_to_do(self):
        self.cloud.proxy.on('DELETE', '/attachments/', proxy.lose_answer())
        view = self.reboot(self.server)
        self.assertEqual(1, len(self.requests('DELETE')))
        self.cloud.proxy.clear()
        failed, = self.log_lines(self.server, 'failed')
        self.assertEqual(('WARNING', self.lost),
                         (failed.level, failed.volume))
        self.check_finished(view)
        # Nothing is left to do, even if another server gets the volume.
        other = self.create_server(
            fixture.Disk(volume=self.lost, at_boot=True), name='other')
        view = self.reboot(self.server)
        self.assert_gone(view, self.lost, shared=True)
        self.assertEqual([], self.requests('DELETE'))
        self.assertEqual([], self.log_lines(self.server))
        self.assert_healthy(self.look(other), self.lost)


class CrashAndDisableTest(OrderTestCase):
    """A nova-compute that dies at a step and starts without the plugin.

    Stock Nova then finds only states that it knows without the plugin: it
    reboots, stops and starts the server.
    """

    def check(self, party: str, what: str, row_gone: bool) -> None:
        self.crash(self.server, party, what)
        self.assertEqual(row_gone, self.cloud.look(
            self.server).block_device(self.lost) is None)
        # No row is in a state that only the plugin knows how to read.
        for row in self.cloud.nova.block_devices(self.server.id):
            if row.volume_id and not row.deleted:
                self.assertIn('data', json.loads(row.connection_info))

        self.cloud.switch_plugin_off()
        self.cloud.restart_compute()
        for steps in ([self.cloud.reboot],
                      [self.cloud.stop, self.cloud.start]):
            for step in steps:
                step(self.server)
            view = self.look(self.server)
            self.assert_healthy(view, self.kept)
            # The guest has the disk exactly if Nova has the row.
            self.assertEqual(
                [row_gone] + [not row_gone] * 2,
                [view.block_device(self.lost) is None,
                 view.has_disk(self.lost), self.lost in view.connected])
            if not row_gone:
                # As in stock Nova, the attachment is there, too.
                self.assertEqual((self.attachment,),
                                 view.attachments_of(self.lost))

        self.cloud.switch_plugin_on()
        self.check_finished(self.reboot(self.server))

    def test_nova_alone_recovers_a_crash_before_destroy(self):
        self.check(recorder.NOVA, 'remove bdm', row_gone=False)

    def test_nova_alone_recovers_a_crash_before_delete(self):
        self.check(recorder.REQUEST, 'DELETE', row_gone=True)


class NeutronFailsTest(OrderTestCase):
    """A reboot that fails before Nova or the plugin touches the guest."""

    def test_guest_keeps_running(self):
        asked = []

        def list_ports(*args: Any, **kwargs: Any) -> Any:
            asked.append(kwargs)
            raise ksa_exceptions.ConnectFailure('no Neutron')

        self.start_recording()
        with fixtures.MockPatchObject(
                self.cloud.nova.neutron, 'list_ports', list_ports):
            self.assertRaises(fixture.APIError, self.cloud.reboot, self.server)
        self.assertNotEqual([], asked)
        view = self.look(self.server)
        self.assertNotIn((recorder.GUEST, 'power off'), self.steps())
        self.assertIsNotNone(view.block_device(self.lost))
        self.assertEqual((self.attachment,), view.attachments_of(self.lost))
        self.assertTrue(view.has_disk(self.lost))
        self.assert_healthy(view, self.kept)
        failed, = self.log_lines(self.server, 'failed')
        self.assertIn('prepare: no Neutron', failed.text)
        self.check_removed(self.reboot(self.server))
