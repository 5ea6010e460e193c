# SPDX-License-Identifier: Apache-2.0
"""The systemd units that are shipped."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import unittest

from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit.client import commandcase

UNITS = pathlib.Path(__file__).resolve().parents[4] / 'etc' / 'systemd'
ANALYZE = shutil.which('systemd-analyze')


class UnitsTest(commandcase.CommandCase):

    def lines(self, name: str) -> list[str]:
        """Return the values of a service setting, for this test."""
        text = (UNITS / 'bdm-audit.service').read_text(encoding='utf-8')
        return [line.replace('${STATE_DIRECTORY}', self.state).replace(
            '$$MORE_OPTIONS', self.more).replace('$$', '$')
            for line in re.findall('^%s=(.*)$' % name, text, re.M)]

    def audit(self) -> int:
        """Run what the service runs."""
        for line in self.lines('ExecStartPre'):
            subprocess.run(line.split(), check=True)
        [line] = self.lines('ExecStart')
        shell, flag, script = shlex.split(line)
        self.assertEqual(['/bin/sh', '-c'], [shell, flag])
        [arguments] = re.findall('; openstack bdm audit (.*?) > ', script)
        code, _ = self.bdm('audit', *arguments.split())
        self.go_on(script, self.stdout.getvalue(), code)
        return code

    def go_on(self, script: str, printed: str, code: int) -> None:
        """Run the rest of the script, with the output of the command."""
        programs = pathlib.Path(self.tempdir())
        (programs / 'printed').write_text(printed)
        (programs / 'openstack').write_text(
            '#!/bin/sh\n[ -f "$OS_CLIENT_CONFIG_FILE" ] || exit 77\n'
            'cat %s/printed\nexit %d\n' % (programs, code))
        (programs / 'clouds.yaml').touch()
        (programs / 'openstack').chmod(0o755)
        done = subprocess.run(['/bin/sh', '-c', script], check=False, env={
            'PATH': '%s:%s' % (programs, os.environ['PATH']),
            'CREDENTIALS_DIRECTORY': str(programs)})
        self.assertEqual(code, done.returncode)

    def setUp(self) -> None:
        super().setUp()
        self.state = self.tempdir()
        self.more = ''

    def test_nightly_audit_leaves_report_and_plan(self) -> None:
        self.assertEqual(ExitCode.OK, self.audit())
        self.break_volume()
        self.assertEqual(ExitCode.FINDINGS, self.audit())
        self.assertEqual(ExitCode.FINDINGS, self.audit())
        state = pathlib.Path(self.state)
        page = (state / 'report.html').read_text(encoding='utf-8')
        self.assertIn('1 finding:', page)
        self.assertIn('0 new, 1 as before', page)
        [night] = (state / 'nights').iterdir()
        self.assertRegex(night.name, r'^\d{4}-\d\d-\d\d\.json$')
        # In the morning.
        code, (row,) = self.bdm('clean', '--plan', str(state / 'plan.json'),
                                '--dry-run')
        self.assertEqual((ExitCode.FINDINGS, self.disk),
                         (code, row['Volume']))

    def test_an_incomplete_audit_is_compared_with_no_other(self) -> None:
        self.cloud.silent_hosts = ['compute7']
        self.assertEqual(ExitCode.PARTLY, self.audit())
        self.assertEqual(['nights', 'plan.json', 'report.html'],
                         sorted(os.listdir(self.state)))
        self.assertEqual([], os.listdir(os.path.join(self.state, 'nights')))

    def test_an_audit_that_is_refused_leaves_the_last_plan(self) -> None:
        self.break_volume()
        self.audit()
        plan = pathlib.Path(self.state, 'plan.json')
        before = plan.read_text(encoding='utf-8')
        self.cloud.on('GET .*/attachments', lambda: (403, {}))
        self.assertEqual(ExitCode.REFUSED, self.audit())
        # Without the plugin the openstack command writes to stdout.
        [line] = self.lines('ExecStart')
        self.go_on(shlex.split(line)[2], 'no such command', 2)
        self.assertEqual(before, plan.read_text(encoding='utf-8'))

    def test_openstacksdk_may_ask_for_addresses(self) -> None:
        # Without netlink every audit ended with "[Errno 97] Address family
        # not supported by protocol".
        [families] = self.lines('RestrictAddressFamilies')
        self.assertIn('AF_NETLINK', families.split())

    def test_systemd_249_knows_every_specifier(self) -> None:
        # "%d", the directory of the credentials, came with 250.
        for path in sorted(UNITS.iterdir()):
            self.assertNotIn('%', path.read_text(encoding='utf-8'), path)

    def test_a_virtual_environment_can_be_put_in_front(self) -> None:
        environment = dict(line.split('=', 1)
                           for line in self.lines('Environment'))
        self.assertIn('/usr/bin', environment['PATH'].split(':'))
        # The shell searches it for the command, which has no path.
        [line] = self.lines('ExecStart')
        self.assertRegex(line, '; openstack bdm')

    def test_prometheus_is_told(self) -> None:
        text = (UNITS / 'bdm-audit-prometheus.conf').read_text(
            encoding='utf-8')
        [(option, path)] = re.findall(
            '^Environment="MORE_OPTIONS=(--prometheus) (.*)"$', text, re.M)
        [directory] = re.findall('^ReadWritePaths=(.*)$', text, re.M)
        self.assertEqual(directory, os.path.dirname(path))
        self.more = '%s %s' % (option, path.replace(directory, self.state))
        self.assertEqual(ExitCode.OK, self.audit())
        self.assertIn(os.path.basename(path), os.listdir(self.state))

    @unittest.skipUnless(ANALYZE, 'there is no systemd-analyze')
    def test_systemd_knows_every_setting(self) -> None:
        units = pathlib.Path(self.tempdir())
        copies = [str(shutil.copy(UNITS / name, units)) for name in (
            'bdm-audit.service', 'bdm-audit.timer')]
        changes = units / 'bdm-audit.service.d'
        changes.mkdir()
        shutil.copy(UNITS / 'bdm-audit-prometheus.conf', changes)
        done = subprocess.run(
            [str(ANALYZE), 'verify', '--man=no', *copies],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            encoding='utf-8')
        self.assertNotRegex(done.stdout, 'Unknown|Failed to parse|Invalid')
