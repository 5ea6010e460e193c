# SPDX-License-Identifier: Apache-2.0
"""The trait of the mode on the compute node in Placement, and who reads it."""

from __future__ import annotations

import threading

import fixtures
from nova.scheduler.client import report

from nova_bdm_cleanup.node.hooks import placement
from nova_bdm_cleanup.openstack.traits import ENFORCE, OBSERVE
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.cloud import identity
from nova_bdm_cleanup.tests.functional import commands, scenario

HOST = 'compute1'

#: A trait that an operator has set.
FOREIGN = 'CUSTOM_FAST_STORAGE'


class TraitTest(scenario.ScenarioTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(placement._failing.clear)

    def traits(self) -> set[str]:
        """Return the traits of the host."""
        nova = self.cloud.nova
        return set(nova.placement.get(
            f'/resource_providers/{nova.compute_rp_uuids[HOST]}/traits',
            version='1.6').body['traits'])

    def ours(self) -> set[str]:
        return {t for t in self.traits() if 'BDM_CLEANUP' in t}

    def set_traits(self, traits: set[str]) -> None:
        """Set the traits of the host as an operator does."""
        nova = self.cloud.nova
        path = f'/resource_providers/{nova.compute_rp_uuids[HOST]}'
        provider = nova.placement.get(path).body
        for trait in traits:
            nova.placement.put(f'/traits/{trait}', {}, version='1.6')
        self.assertEqual(200, nova.placement.put(f'{path}/traits', {
            'traits': sorted(traits),
            'resource_provider_generation': provider['generation']},
            version='1.6').status)

    def restart(self) -> None:
        self.cloud.restart_compute(reports_resources=True)

    def update(self) -> None:
        """Run the periodic task in which Nova reports what the host has."""
        self.cloud.nova.computes[HOST].manager.update_available_resource(
            self.cloud.nova.context())

    def break_placement(self) -> None:
        """Have Placement refuse to change traits."""
        self.useFixture(fixtures.MockPatchObject(
            report.SchedulerReportClient, 'set_traits_for_provider',
            side_effect=report.exception.ResourceProviderUpdateFailed(
                url='/traits', error='refused')))

    def warnings(self) -> list[str]:
        return [line for line in self.cloud.log()
                if 'Placement does not show the mode' in line]

    def test_start_sets_the_trait_of_the_mode(self) -> None:
        self.restart()
        self.assertEqual({ENFORCE}, self.ours())

    def test_nova_reports_what_it_reports_alone(self) -> None:
        self.restart()
        found = self.traits()
        self.cloud.switch_plugin_off()
        self.restart()
        self.set_traits(self.traits() - {ENFORCE})
        self.restart()
        self.assertEqual(found - {ENFORCE}, self.traits())

    def test_updates_of_nova_keep_the_trait(self) -> None:
        self.restart()
        self.set_traits({*self.traits(), FOREIGN})
        manager = self.cloud.nova.computes[HOST].manager
        # Once from its cache, and once when that is read again.
        self.update()
        manager.reportclient.clear_provider_cache()
        self.update()
        self.assertEqual({ENFORCE}, self.ours())
        self.assertIn(FOREIGN, self.traits())

    def test_trait_follows_the_mode(self) -> None:
        self.restart()
        self.set_options(mode='observe')
        self.update()
        self.assertEqual({OBSERVE}, self.ours())
        self.set_options(mode='enforce')
        self.update()
        self.assertEqual({ENFORCE}, self.ours())

    def test_lost_trait_comes_back(self) -> None:
        self.restart()
        self.set_traits(self.traits() - {ENFORCE})
        self.cloud.nova.computes[HOST].manager.reportclient \
            .clear_provider_cache()
        self.update()
        self.assertEqual({ENFORCE}, self.ours())

    def test_stop_removes_the_trait(self) -> None:
        """The next nova-compute may be without the plugin."""
        self.restart()
        self.set_traits({*self.traits(), FOREIGN})
        self.cloud.restart_compute_without_plugin()
        self.update()
        self.assertEqual(set(), self.ours())
        self.assertIn(FOREIGN, self.traits())

    def test_refusal_is_logged_once_and_repeated(self) -> None:
        self.set_options(mode='observe')
        self.break_placement()
        for _ in range(3):
            self.update()
        self.assertEqual(1, len(self.warnings()))

    def test_silent_placement_does_not_keep_nova_waiting(self) -> None:
        self.restart()
        over = threading.Event()
        self.addCleanup(over.set)
        self.useFixture(fixtures.MockPatchObject(
            placement, '_PATIENCE', 0.05))
        self.useFixture(fixtures.MockPatchObject(
            report.SchedulerReportClient, 'get_provider_traits',
            side_effect=lambda *args: over.wait(60)))
        self.set_options(mode='observe')
        # It would take a minute.
        self.update()
        self.assertFalse(over.is_set())


class CommandsTest(commands.CommandWithWitnessTestCase):
    """The commands, with a real Placement."""

    def setUp(self) -> None:
        super().setUp()
        self.cloud.restart_compute(reports_resources=True)
        self.server = self.create_server(scenario.BOOT_DISK)
        self.lost, = self.server.volumes
        self.cloud.lose_attachment(self.server, self.lost)

    def remove_plugin(self) -> None:
        self.cloud.restart_compute_without_plugin()
        self.addCleanup(
            self.cloud.restart_compute, reports_resources=True)
        self.addCleanup(self.cloud.switch_plugin_on)

    def assert_clean_is_refused(self) -> None:
        self.assertEqual({self.lost: (
            'volume-available', 'look: on host compute1: nova-bdm-cleanup '
            'check')}, self.run_audit(server=self.server))
        code, rows = self.bdm('clean', self.server.id, '--yes')
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertIn('refused: host compute1 does not show the plugin',
                      rows[0]['Result'])
        self.assertEqual([], [action for action in self.cloud.look(
            self.server).actions if action.action == 'reboot'])

    def test_clean_on_a_host_that_enforces(self) -> None:
        self.assertEqual({self.lost: (
            'volume-available', 'openstack bdm clean ' + self.server.id)},
            self.run_audit(server=self.server))
        self.run_all_actions(self.server)

    def test_host_without_the_plugin(self) -> None:
        self.remove_plugin()
        self.assert_clean_is_refused()
        code, rows = self.bdm('clean', self.server.id, '--yes',
                              '--without-plugin')
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertIn('the plugin recorded nothing', rows[0]['Result'])

    def test_host_that_observes(self) -> None:
        self.set_options(mode='observe')
        self.cloud.nova.computes[HOST].manager.update_available_resource(
            self.cloud.nova.context())
        self.assert_clean_is_refused()

    def test_user_whom_placement_refuses(self) -> None:
        """Have an administrator of Nova and Cinder, but not of Placement."""
        self.remove_plugin()
        code, rows = self.bdm(
            'audit', '--server', self.server.id, by=identity.Caller(
                'other-admin', self.cloud.admin.project, identity.ADMIN))
        self.assertEqual(
            [(ExitCode.FINDINGS, 'openstack bdm clean ' + self.server.id)],
            [(code, row['Action']) for row in rows])
