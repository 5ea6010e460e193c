# SPDX-License-Identifier: Apache-2.0
"""Base class of the host command's tests, on a real store."""

from __future__ import annotations

import io
import os
from unittest import mock

import fixtures

from nova_bdm_cleanup.admin import main
from nova_bdm_cleanup.node.store.journal import Journal
from nova_bdm_cleanup.tests.unit.base import NoSyncing, TestCase

SERVER = '5e4b0dbb-5d3f-4b2c-8d3c-000000000001'
OTHER = '5e4b0dbb-5d3f-4b2c-8d3c-000000000002'
NOON = 1_800_014_400.0  # 2027-01-15 12:00:00 UTC
MIB4 = 4 * 1024 * 1024


def volume(number):
    return '70100000-0000-4000-8000-%012d' % number


def removal(number, reason='volume-available', **bdm):
    return {
        'kind': 'remove-bdm', 'reason': reason, 'explanation': 'because',
        'attachments': [{'id': 'att-%d' % number, 'status': 'attached'}],
        'bdm': dict({
            'uuid': 'bdm-%d' % number, 'volume_id': volume(number),
            'device_name': '/dev/vd%c' % (97 + number), 'tag': None,
            'delete_on_termination': False, 'boot_index': None,
            'device_type': 'disk', 'disk_bus': 'virtio'}, **bdm)}


def reconnect(number):
    return {**removal(number), 'kind': 'reconnect', 'reason': 'half-moved',
            'attachments': [{'id': 'att-%d' % number, 'status': 'attached',
                             'volume_id': volume(number)}]}


def stale(number):
    return {'kind': 'delete-attachment', 'reason': 'stale-attachment',
            'explanation': 'unused',
            'attachment': {'id': 'att-%d' % number,
                           'volume_id': volume(number)}}


class CommandTest(TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(NoSyncing())
        self.home = self.tempdir()
        self.path = os.path.join(self.home, 'store.sqlite')
        for name in list(os.environ):
            if name.startswith('OS_'):
                self.useFixture(fixtures.EnvironmentVariable(name))
        self.useFixture(fixtures.EnvironmentVariable('HOME', self.home))
        self.now = NOON

    def record(self, *actions, server=SERVER, done=(), failed=(), end='done',
               project='a-project', **more):
        """Record an entry; done and failed are numbers of volumes."""
        journal = Journal(self.path, MIB4, lambda: self.now)
        entry = journal.begin(
            {'server': server, 'host': 'compute-1', 'project': project,
             'request_id': 'req-1', 'plugin': '1.0', 'nova': '34.0.0',
             'trigger': 'hard_reboot',
             'actions': list(actions),
             'findings': [{'reason': a['reason'], 'withheld': None,
                           'volume': 'v', 'attachment': None, 'device': None,
                           'explanation': a['explanation']}
                          for a in actions], **more}, [], server=server)
        for number in done:
            entry.step('delete-attachment', 'done',
                       attachment='att-%d' % number, volume=volume(number))
            entry.step('destroy', 'done', bdm='bdm-%d' % number,
                       volume=volume(number))
        for number in failed:
            entry.step('destroy', 'failed', bdm='bdm-%d' % number,
                       volume=volume(number), detail='no answer')
        if end:
            entry.finish(end, {})
        return entry.id

    def write(self, text, name='nova.conf'):
        """Write a file below the home directory; return its path."""
        path = os.path.join(self.home, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w') as file:
            file.write(text)
        return path

    def call(self, *words):
        """Run the command; return exit code, output and errors."""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch('sys.stdout', out), mock.patch('sys.stderr', err):
            try:
                code = main.main(words)
            except SystemExit as exc:
                code = int(exc.code or 0)
        self.assertNotIn('Traceback', err.getvalue())
        return code, out.getvalue(), err.getvalue()

    def journal(self, *words):
        return self.call('journal', words[0], '--journal', self.path,
                         *words[1:])
