# SPDX-License-Identifier: Apache-2.0
"""Tests that the demonstration is correct and cleans up after itself."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
from typing import Any

import requests
import testtools

from nova_bdm_cleanup.tests.cloud import cinder, identity

DEMO = pathlib.Path(__file__).resolve().parents[3] / 'demo'
#: Long enough for a busy machine.
TIMEOUT = 300


class DemoTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = tempfile.mkdtemp()
        self.addCleanup(os.rmdir, self.directory)
        # A background process of a shell ignores Ctrl-C, and so would all
        # processes started here.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(
            signal.SIGINT, signal.default_int_handler))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(DEMO), *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            # Files left behind are found when this is removed.
            env={**os.environ, 'TMPDIR': self.directory})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait, TIMEOUT)
        self.addCleanup(process.terminate)
        return process

    def read_until(self, process: subprocess.Popen[str], text: str) -> str:
        output = ''
        for line in process.stdout:
            output += line
            if text in line:
                return output
        raise AssertionError(f'{text!r} is missing in:\n{output}')

    def test_tables_match_cloud(self):
        process = self.start('--keep')
        output = self.read_until(process, 'Ctrl-C stops')
        owner, servers = self.log_in(output)
        client = cinder.client(
            re.search(r'Cinder +(\S+)/v3', output).group(1), owner)
        volumes = {volume.name.replace('web-', ''): volume
                   for volume in client.volumes.list()}
        rows = [line.split() for line in output.split('After the hard reboot')
                [1].splitlines() if re.match('   (root|data|left)', line)]
        self.assertEqual(7, len(rows))
        for name, device, status, *_ in rows:
            if status == 'not':
                self.assertNotIn(name, volumes)
                continue
            volume = volumes[name]
            self.assertEqual(volume.status, status, name)
            devices = [attachment['device']
                       for attachment in volume.attachments
                       if attachment['server_id'] == servers['web']['id']]
            self.assertEqual([] if device == '-' else [f'/dev/{device}'],
                             devices)
            self.assertEqual(
                device != '-',
                volume.id in [each['id'] for each in servers['web'][
                    'os-extended-volumes:volumes_attached']])
        self.assertEqual('ACTIVE', servers['web']['status'])
        process.send_signal(signal.SIGINT)
        self.assertEqual(0, process.wait(TIMEOUT))

    def log_in(self, output: str) -> tuple[identity.Caller, dict[str, Any]]:
        """Log in as the owner and get the servers, over plain HTTP."""
        clouds = pathlib.Path(
            re.search(r'clouds +(\S+)', output).group(1)).read_text()
        project = re.search('project_id: (.*)', clouds).group(1)
        owner = identity.Caller('owner', project)
        url = re.search(r'Nova +(http\S+)', output).group(1)
        answer = requests.get(f'{url}/servers/detail', timeout=TIMEOUT,
                              headers={'X-Auth-Token': owner.token})
        return owner, {server['name']: server
                       for server in answer.json()['servers']}

    def test_one_scenario(self):
        process = self.start('--scenario', 'root-detached')
        output, _ = process.communicate(timeout=TIMEOUT)
        self.assertEqual(0, process.returncode, output)
        self.assertIn('reason=root-volume-dangling', output)
        self.assertTrue(output.startswith('\n1. '), output[:200])
        self.assertNotIn('\033', output)

    def test_interrupt_cleans_up(self):
        process = self.start()
        self.read_until(process, 'with the plugin')
        process.send_signal(signal.SIGINT)
        self.assertEqual(130, process.wait(TIMEOUT))
        self.assertEqual([], os.listdir(self.directory))

    def test_list(self):
        process = self.start('--list')
        output, _ = process.communicate(timeout=TIMEOUT)
        self.assertEqual(0, process.returncode)
        self.assertIn('* attached-elsewhere ', output)
