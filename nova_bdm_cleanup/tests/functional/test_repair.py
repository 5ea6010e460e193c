# SPDX-License-Identifier: Apache-2.0
"""``nova-bdm-cleanup repair``, and the nova-compute that carries it out."""

from __future__ import annotations

import contextlib
import io
import json
import os
import time

import fixtures
from oslo_concurrency import lockutils

from nova_bdm_cleanup.admin import main
from nova_bdm_cleanup.node import adoption, repairs
from nova_bdm_cleanup.node.store import processes, spool
from nova_bdm_cleanup.node.store.processes import Process
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.functional import test_adoption
from nova_bdm_cleanup.tests.functional.moving import HERE


class RepairTest(test_adoption.AdoptionTestCase):

    def setUp(self):
        super().setUp()
        self.mode = 'enforce'
        # The hosts of this process share their configuration.
        processes.record(
            Process(HERE, os.getpid(), time.time(), '', {'mode': 'enforce'}),
            str(self.store_path))

    def repair(self, *words, host=HERE):
        """Run the command; return exit code, output and errors."""
        path = self.store_path.parent / 'nova.conf'
        path.write_text(
            f'[DEFAULT]\nhost = {host}\n[bdm_cleanup]\nmode = {self.mode}\n'
            f'store = {self.store_path}\n')
        # nova-compute makes it at its start; here the store has changed since.
        self.wait_until(lambda: os.path.isdir(
            spool.Spool(str(self.store_path), host).path))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main.main(['repair', '--config-file', str(path), *words])
        return code, out.getvalue(), err.getvalue()

    def leave_failed_rollback(self):
        self.leave_damaged(*test_adoption.FAILED_ROLLBACK)

    def test_dry_run_shows_who_agrees(self):
        self.leave_failed_rollback()
        begun = time.monotonic()
        code, out, err = self.repair('--dry-run', self.server.id)
        self.assertLess(time.monotonic() - begun, 10)
        self.assertEqual((ExitCode.FINDINGS, ''), (code, err), out)
        lines = out.splitlines()
        self.assertRegex(
            lines[0], 'Server +Volume +Device +Reason +Cinder +kernel +guest '
            '+Nova +Result')
        for volume in (self.server.root, self.data):
            line, = (line for line in lines if line.startswith(
                f'{self.server.id}  {volume}'))
            self.assertRegex(line, 'half-moved +yes +yes +yes +yes +to adopt')
        self.check_unchanged()

    def test_all_servers_of_the_host(self):
        self.leave_failed_rollback()
        other = self.create_server(host=HERE, name='other')
        self.start_recording()
        code, out, err = self.repair('--yes', '--all', '--json')
        self.assertEqual((ExitCode.OK, ''), (code, err), out)
        found = {each['server']: each['findings'] for each in json.loads(out)}
        self.assertEqual({self.server.id, other.id}, set(found))
        self.assertEqual(['adopted'] * 2, [
            each['outcome'] for each in found[self.server.id]])
        self.check_adopted(self.server.root, self.data)

    def test_mappings_take_over_without_the_option_reconnect(self):
        """The option is for what the plugin does by itself."""
        self.leave_failed_rollback()
        self.set_options(reconnect=False)
        code, out, err = self.repair('--yes', self.server.id)
        self.assertEqual((ExitCode.OK, ''), (code, err), out)
        self.check_adopted(self.server.root, self.data)
        # What is healthy needs nothing.
        self.start_recording()
        code, out, err = self.repair('--yes', self.server.id)
        self.assertEqual((ExitCode.NOTHING, '', ''), (code, out, err))
        self.assertEqual([], self.changes())

    def test_observe_only_shows(self):
        self.leave_failed_rollback()
        self.set_options(mode='observe')
        code, out, err = self.repair('--dry-run', self.server.id)
        self.assertEqual(ExitCode.FINDINGS, code, err)
        # The command asks for nothing else; nor does nova-compute do it.
        answer = spool.Spool(str(self.store_path), HERE).ask(
            {'server': self.server.id, 'dry_run': False})
        self.assertEqual('refused', answer['problem'])
        self.check_unchanged()

    def test_party_that_does_not_agree_is_named(self):
        self.leave_failed_rollback()
        self.cloud.lose_power(self.server)
        self.damaged = self.state()
        code, out, err = self.repair('--yes', self.server.id)
        self.assertEqual(ExitCode.FINDINGS, code, err)
        self.assertIn('guest does not agree', out)
        self.assertIn('does not run on this host', out)
        self.check_unchanged()

    def test_server_that_is_not_here(self):
        unknown = self.unknown_server()
        code, out, err = self.repair('--yes', unknown.id)
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertIn('this Nova has no such server', out)

    def test_lock_that_nova_holds(self):
        self.leave_failed_rollback()
        self.useFixture(fixtures.MockPatchObject(
            adoption, '_LOCK_PATIENCE', 0.2))
        with lockutils.lock(self.server.id):
            code, out, err = self.repair('--yes', self.server.id)
        self.assertEqual(ExitCode.REFUSED, code, out)
        self.assertIn('busy', out)
        self.check_unchanged()

    def test_error_is_an_answer(self):
        self.leave_failed_rollback()
        with fixtures.MockPatchObject(
                adoption, 'preview', side_effect=RuntimeError('broken')):
            code, out, err = self.repair('--dry-run', self.server.id)
        self.assertEqual(ExitCode.REFUSED, code)
        self.assertIn('failed: broken', out)
        # The thread goes on.
        self.assertEqual(ExitCode.FINDINGS, self.repair(
            '--dry-run', self.server.id)[0])

    def test_spool_that_cannot_be_used_is_logged_once(self):
        server = self.create_server(host=HERE)
        path = spool.Spool(str(self.store_path), HERE).path
        self.wait_until(lambda: os.path.isdir(path))
        os.chmod(path, 0o777)  # noqa: S103
        self.wait_until(lambda: bool(self.cloud.log('repair" does not work')))
        time.sleep(2.5 * repairs._INTERVAL)
        self.assertEqual(1, len(self.cloud.log('repair" does not work')))
        os.chmod(path, 0o700)
        self.assertEqual(ExitCode.NOTHING, self.repair(
            '--dry-run', server.id)[0])
        # It is made again.
        os.rmdir(path)
        self.assertEqual(ExitCode.NOTHING, self.repair(
            '--dry-run', server.id)[0])
