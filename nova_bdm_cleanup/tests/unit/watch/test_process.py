# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""Real processes: which one is meant, and whether it still runs."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import fixtures

from nova_bdm_cleanup.tests.unit import base
from nova_bdm_cleanup.watch import process

#: Says who it is, and waits.
CHILD = textwrap.dedent("""
    import json, sys
    from nova_bdm_cleanup.watch import process
    print(json.dumps(process.identity()), flush=True)
    sys.stdin.read()
    """)

ROOT = pathlib.Path(__file__).resolve().parents[4]


class ProcessTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.me = process.identity()

    def child(self):
        """A process that runs, and what it said of itself."""
        child = subprocess.Popen(
            [sys.executable, '-c', CHILD], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.wait)
        self.addCleanup(child.stdin.close)
        self.addCleanup(child.kill)
        self.addCleanup(child.stdout.close)
        return child, json.loads(child.stdout.readline())

    def test_this_one(self):
        self.assertEqual(os.getpid(), self.me['pid'])
        self.assertIs(True, process.runs(self.me))

    def test_killed(self):
        child, identity = self.child()
        self.assertEqual(child.pid, identity['pid'])
        self.assertIs(True, process.runs(identity))
        child.send_signal(signal.SIGKILL)
        # Nobody has waited for it yet.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        self.assertIs(False, process.runs(identity))
        child.wait()
        self.assertIs(False, process.runs(identity))

    def test_its_number_is_given_to_another(self):
        child, identity = self.child()
        # The other one, in the words of the one that had the number before.
        for started in (identity['started'] - 1, self.me['started'], None):
            self.assertIs(False, process.runs(
                dict(identity, started=started)), started)
        self.assertNotEqual(self.me['started'], identity['started'])

    def test_another_boot(self):
        self.assertIs(False, process.runs(dict(self.me, boot='another')))
        self.useFixture(fixtures.MonkeyPatch(
            'nova_bdm_cleanup.watch.process._boot', lambda: 'next'))
        self.assertIs(False, process.runs(self.me))

    def test_another_container(self):
        self.assertIsNone(process.runs(
            dict(self.me, namespace='pid:[1]')))
        self.useFixture(fixtures.MonkeyPatch(
            'nova_bdm_cleanup.watch.process._namespace', lambda: 'pid:[2]'))
        self.assertIsNone(process.runs(self.me))
        # Whatever ran before the boot has ended, wherever it was.
        self.assertIs(False, process.runs(dict(self.me, boot='another')))

    def test_what_nobody_wrote(self):
        for identity in ({}, {'pid': 0}, {'boot': self.me['boot']},
                         {**self.me, 'pid': 0, 'started': None},
                         {**self.me, 'pid': 2 ** 22 + 1, 'started': None}):
            self.assertIsNot(True, process.runs(identity), identity)

    def test_a_name_that_looks_like_fields(self):
        directory = self.tempdir()
        odd = os.path.join(directory, ') Z 1 (x')
        os.symlink(sys.executable, odd)
        child = subprocess.Popen([odd, '-c', CHILD], cwd=ROOT,
                                 stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        self.addCleanup(child.wait)
        self.addCleanup(child.stdin.close)
        self.addCleanup(child.stdout.close)
        child.stdout.readline()
        started = process._started(child.pid)
        self.assertGreaterEqual(started, self.me['started'])

    def test_a_process_that_may_not_be_looked_at(self):
        def hidden(*args, **kwargs):
            raise PermissionError(13, 'Permission denied')

        self.useFixture(fixtures.MonkeyPatch(
            'nova_bdm_cleanup.watch.process._boot', lambda: 'b'))
        self.useFixture(fixtures.MonkeyPatch(
            'nova_bdm_cleanup.watch.process._namespace', lambda: 'n'))
        self.useFixture(fixtures.MonkeyPatch('pathlib.Path.read_text',
                                             hidden))
        self.assertIsNone(process.runs(
            {**self.me, 'boot': 'b', 'namespace': 'n'}))
