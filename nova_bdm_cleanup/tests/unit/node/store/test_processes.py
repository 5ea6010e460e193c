# SPDX-License-Identifier: Apache-2.0
"""The records of nova-computes, and which of them still run."""

from __future__ import annotations

import errno
import fcntl
import os
import pathlib
import subprocess
import sys
import textwrap
from unittest import mock

from nova_bdm_cleanup.node.store import processes
from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.node.store.processes import Processes
from nova_bdm_cleanup.tests.unit import base, running

#: A program that acts as a nova-compute, has a child process, and waits.
_CHILD = textwrap.dedent("""
    import subprocess, sys
    from nova_bdm_cleanup.tests.unit import running
    running.start(sys.argv[1], 'compute1')
    subprocess.Popen(['sleep', '60'], stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL)
    print(flush=True)
    sys.stdin.read()
    """)

_ROOT = pathlib.Path(__file__).resolve().parents[5]


class ProcessesTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(base.NoSyncing())
        self.path = os.path.join(self.tempdir(), 'a', 'store')

    def processes(self, host: str = 'compute1') -> Processes:
        return Processes(self.path, host)

    def test_nothing_is_known_at_first(self) -> None:
        found = self.processes()
        self.assertEqual((None, (), False), (
            found.last(), found.hosts(), found.is_running()))
        self.assertFalse(os.path.exists(os.path.dirname(self.path)))

    def test_comes_back_as_written(self) -> None:
        process = running.start(self.path, mode='enforce', audit_interval=60)
        self.assertEqual(process, self.processes().last())
        self.assertTrue(self.processes().is_running())
        self.assertIsNone(self.processes('compute2').last())
        self.assertFalse(self.processes('compute2').is_running())
        # The last record counts.
        refused = running.start(self.path, problem='not this Nova')
        self.assertEqual(refused, self.processes().last())

    def test_every_host_name_has_its_process(self) -> None:
        for host in ('compute2', 'a/b c', 'compute2'):
            running.start(self.path, host)
            self.assertTrue(self.processes(host).is_running())
        self.assertEqual(('a/b c', 'compute2'), self.processes().hosts())

    def test_ended_process_is_not_running(self) -> None:
        running.start(self.path)
        running.end(self.path)
        self.assertFalse(self.processes().is_running())
        running.start(self.path)
        self.assertTrue(self.processes().is_running())

    def test_killed_process_is_not_running(self) -> None:
        """Check that a surviving child process does not hold the lock."""
        with subprocess.Popen(
                [sys.executable, '-c', _CHILD, self.path], cwd=_ROOT,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            self.assertTrue(self.processes().is_running())
            last = self.processes().last()
            assert last is not None
            self.assertEqual(child.pid, last.pid)
            child.kill()
            # It is a zombie: its parent has not waited for it.
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            self.assertFalse(self.processes().is_running())

    def test_start_does_not_wait_for_the_earlier_process(self) -> None:
        """Check that neither process waits for the other."""
        with subprocess.Popen(
                [sys.executable, '-c', _CHILD, self.path], cwd=_ROOT,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            running.start(self.path)
            child.kill()
        self.assertTrue(self.processes().is_running())

    def test_symbolic_link_as_lock_is_refused(self) -> None:
        running.start(self.path, 'compute2')
        os.symlink('elsewhere', self.path + '-compute1.lock')
        for act in (lambda: running.start(self.path),
                    self.processes().is_running):
            error = self.assertRaises(StoreError, act)
            self.assertIn(self.path + '-compute1.lock', str(error))

    def test_file_system_without_locks_is_an_error(self) -> None:
        running.start(self.path, 'compute2')
        for act in (lambda: running.start(self.path),
                    self.processes('compute2').is_running):
            with mock.patch('fcntl.flock', autospec=True, side_effect=OSError(
                    errno.ENOLCK, 'No locks available')):
                error = self.assertRaises(StoreError, act)
            self.assertIn('No locks available', str(error))
        # The next attempt takes the lock.
        running.start(self.path)
        self.assertTrue(self.processes().is_running())

    def test_wait_for_a_held_lock_ends(self) -> None:
        """Check that nova-compute does not wait forever."""
        running.start(self.path)
        running.end(self.path)
        with open(self.path + '-compute1.lock') as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with mock.patch.object(processes, 'LOCK_TIMEOUT', 0.01):
                error = self.assertRaises(
                    StoreError, running.start, self.path)
            self.assertIn('another process has held the lock', str(error))
        running.start(self.path)
        self.assertTrue(self.processes().is_running())

    def test_damaged_record_is_an_error(self) -> None:
        for change, value in (
                ('UPDATE process SET identity = ?', '{'),
                ('UPDATE process SET identity = ?', '7'),
                ('UPDATE process SET identity = ?', '{}'),
                ('UPDATE process SET facts = ?', 'null'),
                ('UPDATE process SET facts = ?', '["x"]')):
            running.start(self.path)
            base.sql(self.path, change, value)
            text = str(self.assertRaises(StoreError, self.processes().last))
            self.assertIn(self.path, text)
            self.assertIn('damaged', text)
