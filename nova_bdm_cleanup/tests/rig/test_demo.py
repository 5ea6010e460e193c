# SPDX-License-Identifier: Apache-2.0
"""Tests that the demonstration is correct and cleans up after itself."""

from __future__ import annotations

import configparser
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
from typing import Any

import fixtures
import requests
import testtools

from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.cloud import cinder, identity

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
DEMO = CHECKOUT / 'demo'
#: Long enough for a busy machine.
TIMEOUT = 300


class _DemoTestCase(testtools.TestCase):

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


class DemoTest(_DemoTestCase):

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

    def test_chosen_scenario_is_played_alone(self):
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


class PracticeTest(_DemoTestCase):
    """The damaged cloud, and the lines to type."""

    def setUp(self):
        super().setUp()
        self.process = self.start('--keep=broken')
        output = self.read_until(self.process, 'Ctrl-C stops')
        lines = re.findall(r'(?m)^   \$ (.+)$', output.split('prepare')[1])
        enter, install, *self.lines = lines
        self.assertIn(f'{CHECKOUT}[cli]', install)
        # What the line for pip leaves, without its downloads.
        self.shell = f'{enter}\n{self.lines.pop(0)}\n'
        self.environment = self.install()

    def install(self) -> dict[str, str]:
        """Install both commands, with the clients of the unit tests.

        :returns: the environment of a shell that finds them
        """
        sys.path.insert(0, str(CHECKOUT / 'tools'))
        try:
            import run_tests
        finally:
            sys.path.pop(0)
        python = run_tests.unit_environment(sys.executable)
        site = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        setup = configparser.ConfigParser(delimiters=('=',),
                                          interpolation=None)
        setup.read(CHECKOUT / 'setup.cfg')
        info = site / 'nova_bdm_cleanup-0.dist-info'
        info.mkdir()
        (info / 'METADATA').write_text(
            'Metadata-Version: 2.1\nName: nova-bdm-cleanup\nVersion: 0\n')
        (info / 'entry_points.txt').write_text('\n'.join(
            '[%s]%s' % point for point in setup.items('options.entry_points')))
        for name, module in (
                ('openstack', 'openstackclient.shell'),
                ('nova-bdm-cleanup', 'nova_bdm_cleanup.admin.main')):
            script = site / name
            script.write_text(
                f'#!/bin/sh\nexec {python} -W ignore -m {module} "$@"\n')
            script.chmod(0o755)
        return {'PATH': f'{site}:{os.environ["PATH"]}', 'HOME': str(site),
                'PYTHONPATH': f'{site}:{CHECKOUT}', 'PYTHONSAFEPATH': '1'}

    def type(self, line: str, code: int = 0) -> str:
        """Run a line in a shell; return its output.

        :param code: the expected exit code
        """
        done = subprocess.run(
            ['sh', '-c', self.shell + line], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=self.environment, timeout=TIMEOUT)
        self.assertEqual(code, done.returncode, f'{line}\n{done.stdout}')
        return done.stdout

    def test_printed_lines_clean_and_undo(self):
        self.check_project()
        audit, explain, clean, look, undo, again = self.lines
        found = self.type(audit, ExitCode.FINDINGS)
        # The audit shows the reason to explain and the command to clean.
        self.assertIn(explain.split()[-1], found)
        self.assertIn(clean, found)
        self.assertIn(explain.split()[-1], self.type(explain))
        removed = self.type(f'{clean} --yes')
        self.assertIn('removed', removed)
        self.assertEqual(2, self.type(look).count('healthy'))
        commands = self.type(undo)
        self.assertEqual(2, commands.count('server add volume'))
        self.type(commands)
        self.assertEqual(4, self.type(look).count('healthy'))
        self.type(again)
        self.process.send_signal(signal.SIGINT)
        self.assertEqual(0, self.process.wait(TIMEOUT))

    def check_project(self):
        """Audit a project by its name and by its id."""
        project = self.type('openstack project show -f value -c id demo')
        for named in ('demo', project.strip()):
            self.assertIn('volume-missing', self.type(
                f'openstack bdm audit --project {named}', ExitCode.FINDINGS))
        self.type('openstack bdm audit --project admin')
        self.type('openstack bdm audit --project nothing', ExitCode.BAD_INPUT)
        # A member must not look up projects.
        self.type('openstack --os-cloud owner bdm audit --project demo',
                  ExitCode.REFUSED)
