# SPDX-License-Identifier: Apache-2.0
"""``bdm clean`` reports as removed only what the plugin has removed."""

from __future__ import annotations

import pathlib
import shutil
import threading
from typing import Any

import fixtures
from keystoneauth1 import exceptions as ksa_exceptions
from nova.virt.libvirt.driver import LibvirtDriver

from nova_bdm_cleanup.client.cloud import changes
from nova_bdm_cleanup.node import credentials
from nova_bdm_cleanup.node.hooks import requirements
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.cloud import fixture, identity
from nova_bdm_cleanup.tests.functional import commands, moving, scenario

#: What Nova's own cleanup, of 28 and later, leaves to the operator.
GONE = ('gone, but not by the plugin: the host may still have the device '
        '(CVE-2023-2088)')


class CleanTestCase(commands.CommandWithWitnessTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.server = self.create_server(*[scenario.BOOT_DISK] * 2)
        self.lost, self.kept = self.server.volumes
        self.cloud.lose_attachment(self.server, self.lost)

    def clean(self, *arguments: str) -> tuple[int, str]:
        """Return the exit code and the result for the lost disk."""
        code, rows = self.bdm('clean', self.server.id, '--yes', *arguments)
        return code, rows[0]['Result']


class ProofTest(CleanTestCase):

    def request_id(self) -> str:
        actions = self.cloud.request(
            'GET', '/servers/%s/os-instance-actions' % self.server.id)
        return str(next(a['request_id'] for a in actions['instanceActions']
                        if a['action'] == 'reboot'))

    def assert_not_by_plugin(self) -> None:
        code, result = self.clean()
        where = 'host %s, request %s' % (self.server.host, self.request_id())
        if not requirements.has_builtin():
            self.assertEqual(ExitCode.PARTLY, code)
            self.assertIn('failed: it is still there', result)
            return
        self.assertEqual((ExitCode.PARTLY, '; '.join((
            GONE, 'the plugin recorded nothing: it is not installed on the '
            'host, is off, is in mode observe, or its rules keep the disk',
            where))), (code, result))
        # The result is true.
        self.assertTrue(
            self.cloud.nova.connected[self.server.host][self.lost])

    def switch_off(self) -> None:
        self.cloud.switch_plugin_off()
        self.addCleanup(self._restart_with_plugin)
        self._restart()

    def _restart_with_plugin(self) -> None:
        self.cloud.switch_plugin_on()
        self._restart()

    def _restart(self) -> None:
        for host in self.cloud.hosts:
            self.cloud.restart_compute(host)

    def test_enforce_mode_removes_the_disk(self) -> None:
        self.assertEqual((ExitCode.OK, 'removed'), self.clean())
        self.assert_gone(self.cloud.look(self.server), self.lost)

    def test_reboot_by_stock_nova_is_no_removal(self) -> None:
        self.switch_off()
        self.assert_not_by_plugin()

    def test_reboot_in_observe_mode_is_no_removal(self) -> None:
        self.set_options(mode='observe')
        self.assert_not_by_plugin()

    def test_store_that_cannot_be_written(self) -> None:
        directory = pathlib.Path(self.store_path).parent
        # The spool may be there already.
        shutil.rmtree(directory)
        directory.write_text('in the way')
        code, result = self.clean()
        self.assertEqual((ExitCode.PARTLY, '; '.join((
            'failed: it is still there (volume-available)',
            'the plugin did not complete it (journal-unwritable)',
            'the guest came back without the disk',
            'host %s, request %s' % (self.server.host, self.request_id())))),
            (code, result))
        self.assertFalse(self.cloud.look(self.server).has_disk(self.lost))

    def test_withheld_removal_shows_its_reason(self) -> None:
        """Show the reason, where the API does not show it before."""
        self.cloud.lose_attachment(self.server, self.kept)
        self.set_options(max_removals_per_hour=1)
        code, result = self.clean()
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertIn('the plugin did not complete it (over-limit)', result)

    def test_no_answer_of_cinder(self) -> None:
        """Break the requests of the host, and not those of the command."""
        self.useFixture(fixtures.MockPatchObject(
            credentials, 'client',
            side_effect=ksa_exceptions.ConnectFailure('no route')))
        code, result = self.clean()
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertIn('the plugin did not complete it (cinder-unknown)',
                      result)


class SeveralHostsTest(commands.CommandTestCase):

    ARGUMENTS = moving.MoveTestCase.ARGUMENTS

    def test_hosts_reboot_servers_at_the_same_time(self) -> None:
        """Clean a server of each host; afterwards, say how long it took."""
        servers = [self.create_server(
            *[scenario.BOOT_DISK] * 2, name=host, host=host)
            for host in self.cloud.hosts]
        both, reboot = threading.Barrier(2), LibvirtDriver.reboot

        def wait(*args: Any, **kwargs: Any) -> None:
            # Neither ends before the other one has begun.
            both.wait(fixture.TIMEOUT)
            reboot(*args, **kwargs)

        self.useFixture(fixtures.MockPatchObject(
            LibvirtDriver, 'reboot', wait))
        self.useFixture(fixtures.MockPatchObject(changes, '_POLL', 0.1))
        names = [server.id for server in servers]
        for server in servers:
            self.cloud.lose_attachment(server, server.volumes[0])
        code, rows = self.bdm('clean', *names, '--yes')
        self.assertEqual((ExitCode.OK, ['removed'] * 2),
                         (code, [row['Result'] for row in rows]))
        self.assertNotIn('took', self.stderr.getvalue())
        for server in servers:
            self.cloud.lose_attachment(server, server.volumes[1])
        self.bdm('clean', *names, '--dry-run')
        self.assertRegex(
            self.stderr.getvalue(), '2 servers on 2 hosts, one at a time on '
            r'each; recent reboots took \d+ s: about \d+ s in all')


class LockedServerTest(CleanTestCase):
    """The lock of an owner, and that of an administrator."""

    def lock(self, by: identity.Caller) -> str:
        """Lock the server, and return what the command then says."""
        self.cloud.act(self.server, {'lock': None}, by=by)
        code, result = self.clean()
        self.assertEqual(ExitCode.REFUSED, code)
        return result

    def test_lock_of_owner_needs_the_option(self) -> None:
        result = self.lock(self.cloud.owner)
        self.assertIn('refused: locked by its owner', result)
        self.assertIn('give --locked to reboot it', result)
        self.assertEqual((ExitCode.OK, 'removed'), self.clean('--locked'))

    def test_lock_of_administrator_is_always_refused(self) -> None:
        self.assertIn('refused: locked by an administrator',
                      self.lock(self.cloud.admin))
        self.assertEqual(ExitCode.REFUSED, self.clean('--locked')[0])
