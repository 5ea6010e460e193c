# SPDX-License-Identifier: Apache-2.0
"""The mode ``observe``: stock Nova, and lines in the log.

Each case is played twice, without the plugin and with it in that mode, and has
to end in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
import dataclasses
from typing import Any

import fixtures
from oslo_config import cfg

from nova_bdm_cleanup.node.hooks import requirements
from nova_bdm_cleanup.tests.cloud import fixture, proxy
from nova_bdm_cleanup.tests.cloud.damage import DAMAGE
from nova_bdm_cleanup.tests.functional import scenario

Act = Callable[[fixture.Server], object]
#: A server, and the volume about which Nova and Cinder disagree.
Damaged = tuple[fixture.Server, str]


class ObserveTestCase(scenario.ScenarioTestCase):

    ARGUMENTS = {
        'plugin_options': {'mode': 'observe', 'triggers': 'all'},
        'nova_options': scenario.RESUME_GUESTS}

    def damaged(self, kind: str) -> Damaged:
        server = self.create_server(*[scenario.BOOT_DISK] * 2)
        lost = server.volumes[0]
        return server, DAMAGE[kind].inflict(self.cloud, server, lost) or lost

    def compare(self, kinds: Iterable[str], *acts: Act
                ) -> dict[str, tuple[fixture.Server, dict[str, Any]]]:
        """Play some acts with each kind of damage.

        :param acts: the operations on the server
        :returns: by kind, the server that was observed, and its outcome
        """
        ends = []
        for switch in (self.cloud.switch_plugin_off,
                       self.cloud.switch_plugin_on):
            switch()
            # Nova 34 caches the methods for RPC messages.
            for host in self.cloud.hosts:
                self.cloud.restart_compute(host)
            self.start_recording()
            ends.append({kind: self._play(*self.damaged(kind), acts)
                         for kind in kinds})
        stock, observed = ends
        for kind, (_, end) in stock.items():
            for name, value in end.items():
                self.assertEqual(value, observed[kind][1][name], (kind, name))
        self.assertEqual([], self.journal())
        return observed

    def _play(self, server: fixture.Server, lost: str, acts: Iterable[Act]
              ) -> tuple[fixture.Server, dict[str, Any]]:
        """Return a server and its outcome, without values that always vary."""
        errors = []
        for act in acts:
            try:
                error = act(server)
            except fixture.APIError as exc:
                error = exc
            errors.append(getattr(error, 'status', None))
        # Nova may choose the host at random.
        host = self.cloud.nova.instance(server.id).host or server.host
        view = self.cloud.look(dataclasses.replace(server, host=host))
        connected = self.cloud.nova.connected
        disks = {
            name: {'row': view.block_device(volume) is not None,
                   'disk': view.has_disk(volume),
                   'attachments': sorted(
                       each.status for each in view.attachments_of(volume)),
                   'connected': [bool(connected[each][volume]) for each in (
                       host, *sorted({*self.cloud.hosts} - {host}))]}
            for name, volume in (
                ('lost', lost), ('root', server.root),
                *(('disk %d' % n, v) for n, v in enumerate(server.volumes)))
            if volume and (
                # The order of rows decides how far Nova gets before it fails.
                volume == lost or view.status != 'ERROR' and not any(errors))}
        return server, {
            'errors': errors, 'status': view.status, 'task': view.task_state,
            'runs': view.is_running, **disks}

    def check_logged(self, server: fixture.Server, reason: str) -> None:
        """Check that the audit line says what would be removed."""
        line, = self.log_lines(server)
        self.assertEqual(('withheld', reason), (line.event, line.reason))
        self.assertTrue(line.text.endswith(
            'not acted on (observe-mode): [bdm_cleanup] mode is observe; in '
            'mode enforce a hard reboot would act on it'), line.text)


class RebootTest(ObserveTestCase):

    REASONS = {'attachment-deleted': 'volume-available',
               'volume-deleted': 'volume-missing',
               'stale-attachment': 'stale-attachment'}

    def setUp(self) -> None:
        super().setUp()
        #: Whether Nova has its own cleanup, as in 28 and later.
        self.has_builtin = requirements.has_builtin()

    def check_cleaned_up(self, ends: dict[str, tuple[
            fixture.Server, dict[str, Any]]]) -> None:
        for kind, (server, end) in ends.items():
            self.check_logged(server, self.REASONS[kind])
            lost = end['lost']
            if kind == 'stale-attachment':
                self.assertEqual(not self.has_builtin,
                                 bool(lost['attachments']))
            else:
                self.assertEqual(not self.has_builtin, lost['row'])
            if self.has_builtin:
                self.assertEqual('ACTIVE', end['status'])

    def test_stock_nova_cleans_up(self):
        self.check_cleaned_up(self.compare(self.REASONS, self.cloud.reboot))

    def test_soft_reboot_is_left_to_nova(self):
        self.check_cleaned_up(self.compare(
            ['attachment-deleted'],
            lambda server: self.cloud.reboot(server, hard=False)))

    def test_cinder_refuses_stock_nova(self):
        """End the reboot as without the plugin."""
        ends = self.compare(
            ['stale-attachment'], self.break_cinder, self.cloud.reboot,
            self.repair_cinder)
        server, end = ends['stale-attachment']
        self.check_logged(server, 'stale-attachment')
        self.assertEqual([None, 500 if self.has_builtin else None, None],
                         end['errors'])

    def break_cinder(self, server: fixture.Server) -> None:
        self.cloud.proxy.on('DELETE', '/attachments/', proxy.status(500))

    def repair_cinder(self, server: fixture.Server) -> None:
        self.cloud.proxy.clear()

    def test_typo_in_reloaded_files(self):
        """Act as stock Nova from then on, until the typo is corrected."""
        server, lost = self.damaged('attachment-deleted')
        self.useFixture(fixtures.MockPatch(
            'nova_bdm_cleanup.node.options.settings',
            side_effect=cfg.ConfigFileValueError))
        self.cloud.reboot(server)
        row = self.cloud.look(server).block_device(lost)
        self.assertEqual(self.has_builtin, row is None)
