# SPDX-License-Identifier: Apache-2.0
"""A graceful shutdown of nova-compute: the real manager, without a signal."""

from __future__ import annotations

from typing import Any

import fixtures
from nova.compute import manager as nova_manager
import testtools

from nova_bdm_cleanup.node.instance import NovaInstance
from nova_bdm_cleanup.tests.cloud import fixture
from nova_bdm_cleanup.tests.functional import scenario

RECORDS_TASKS = hasattr(nova_manager.ComputeManager, '_record_task_start')


class _ShutdownTestCase(scenario.ScenarioTestCase):

    def setUp(self):
        super().setUp()
        self.server = self.create_server(fixture.Disk(at_boot=True))
        self.volume, = self.server.volumes
        self.cloud.lose_attachment(self.server, self.volume)
        self.tasks: list[str] = []

    @property
    def manager(self) -> Any:
        return self.cloud.nova.computes[self.server.host].manager

    def reboot_and_record(self) -> None:
        """Keep what a shutdown would wait for while a disk is removed."""
        destroy = NovaInstance.destroy

        def record(instance, bdm):
            tasks = getattr(instance._manager, '_in_progress_tasks', {})
            self.tasks += [task['name'] for task in tasks.values()]
            destroy(instance, bdm)

        with fixtures.MockPatchObject(NovaInstance, 'destroy', record):
            view = self.reboot(self.server)
        self.assert_removed(view, self.volume, 'volume-available',
                            by_api=self.ACTION is not None)


class RebootTest(_ShutdownTestCase):

    @testtools.skipUnless(RECORDS_TASKS, 'Nova does not say that it stops')
    def test_shutdown_withholds_the_removal(self):
        self.manager.set_shutdown_in_progress()
        self.addCleanup(self.manager._shutdown_in_progress.clear)
        view = self.reboot(self.server)
        line, = self.assert_finding(
            self.server, self.volume,
            ('INFO', 'withheld', 'volume-available'),
            ('WARNING', 'not-connected', 'volume-available'))[:1]
        self.assertIn('not acted on (shutting-down)', line.text)
        self.assertFalse(view.has_disk(self.volume))
        self.assertIsNotNone(view.block_device(self.volume))
        self.assertEqual([], self.journal())
        self.manager._shutdown_in_progress.clear()
        self.reboot_and_record()

    def test_cleanup_is_recorded_as_a_task(self):
        self.reboot_and_record()
        self.assertEqual(['reboot_instance', 'bdm_cleanup']
                         if RECORDS_TASKS else [], self.tasks)


class BootTest(_ShutdownTestCase, scenario.Resumed):
    """Nova does not record what it does at its start."""

    def test_cleanup_at_boot_is_recorded_as_a_task(self):
        self.reboot_and_record()
        self.assertEqual(
            ['bdm_cleanup'] if RECORDS_TASKS else [], self.tasks)
        self.assertFalse(getattr(self.manager, '_in_progress_tasks', None))
