# SPDX-License-Identifier: Apache-2.0
"""How the host command is called, configured and ends."""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
from unittest import mock

import nova_bdm_cleanup
from nova_bdm_cleanup.cli import main
from nova_bdm_cleanup.store.records import Records
from nova_bdm_cleanup.tests.unit.cli import base


class MainTest(base.CommandTest):

    def test_usage_errors(self):
        for words in ((), ('journal',), ('nonsense',), ('journal', 'show'),
                      ('check', '--yaml'),
                      ('journal', 'list', '--since', 'yesterday'),
                      ('journal', 'list', '--since', '99999999999d'),
                      ('journal', 'list', '--jour', 'x'),
                      ('journal', 'undo', 'x', '--execute')):
            code, out, err = self.call(*words)
            self.assertEqual(2, code, words)
            self.assertIn('usage: nova-bdm-cleanup', err)

    def test_help_and_version(self):
        for words in (('--help',), ('--version',), ('journal', '--help'),
                      ('journal', 'undo', '--help')):
            code, out, err = self.call(*words)
            self.assertEqual((0, ''), (code, err))
            self.assertNotEqual('', out)

    def test_the_tool_breaks(self):
        self.record(base.removal(1))
        with mock.patch.object(Records, 'entries', autospec=True,
                               side_effect=KeyError('odd')):
            code, out, err = self.journal('list')
        self.assertEqual((255, ''), (code, out))
        self.assertIn("KeyError: 'odd'", err)
        with mock.patch.object(Records, 'entries', autospec=True,
                               side_effect=KeyboardInterrupt):
            self.assertEqual(255, self.journal('list')[0])

    def test_debug_shows_where(self):
        self.record(base.removal(1))
        err = io.StringIO()
        with mock.patch.object(Records, 'entries', autospec=True,
                               side_effect=KeyError), \
                mock.patch('sys.stderr', err):
            main.main(['--debug', 'journal', 'list', '--journal',
                       self.path])
        self.assertIn('Traceback', err.getvalue())

    def test_as_a_process(self):
        entry = self.record(base.removal(1, tag='t\u00e4g\x1b\udc80'),
                            done=[1])
        root = os.path.dirname(os.path.dirname(nova_bdm_cleanup.__file__))
        command = [sys.executable, '-m', 'nova_bdm_cleanup.cli.main',
                   'journal', 'undo', '--journal', self.path, entry]
        run = subprocess.run(
            command, capture_output=True, text=True, cwd=self.home,
            env=dict(os.environ, PYTHONPATH=root, LC_ALL='C', PYTHONUTF8='0',
                     PYTHONCOERCECLOCALE='0'))
        self.assertEqual((0, ''), (run.returncode, run.stderr))
        self.assertIn('\\x1b', run.stdout)
        # A reader that has seen enough.
        reader, writer = os.pipe()
        os.close(reader)
        run = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE,
                             text=True, env=dict(os.environ, PYTHONPATH=root))
        os.close(writer)
        self.assertEqual((0, ''), (run.returncode, run.stderr))

    def test_a_reader_that_has_seen_enough_changes_no_code(self):
        root = os.path.dirname(os.path.dirname(nova_bdm_cleanup.__file__))
        reader, writer = os.pipe()
        os.close(reader)
        run = subprocess.run(
            [sys.executable, '-m', 'nova_bdm_cleanup.cli.main', 'status'],
            stdout=writer, stderr=subprocess.PIPE, text=True, cwd=self.home,
            env=dict(os.environ, PYTHONPATH=root))
        os.close(writer)
        self.assertEqual((1, ''), (run.returncode, run.stderr))

    def test_needs_neither_nova_nor_a_cloud_library(self):
        self.record(base.removal(1), done=[1])
        root = os.path.dirname(os.path.dirname(nova_bdm_cleanup.__file__))
        run = subprocess.run(
            [sys.executable, '-c',
             'import sys\n'
             'from nova_bdm_cleanup.cli import main\n'
             'main.main(sys.argv[1:])\n'
             'print(sorted({m.partition(".")[0] for m in sys.modules}\n'
             '      & {"nova", "openstack"}))',
             'journal', 'list', '--journal', self.path],
            capture_output=True, text=True, check=True,
            env=dict(os.environ, PYTHONPATH=root))
        self.assertEqual('[]', run.stdout.splitlines()[-1])


class ConfigurationTest(base.CommandTest):

    def nova_conf(self, text, name='nova.conf'):
        path = os.path.join(self.home, name)
        with open(path, 'w') as file:
            file.write(text)
        return path

    def test_state_path_of_nova_conf(self):
        entry = self.record(base.removal(1))
        state = os.path.join(self.home, 'state')
        os.mkdir(state)
        os.mkdir(os.path.join(state, 'bdm-cleanup'), 0o700)
        os.rename(self.path, os.path.join(
            state, 'bdm-cleanup', 'store.sqlite'))
        option = ('--config-file', self.nova_conf(
            '[DEFAULT]\nstate_path = %s\n' % state))
        for words in ((*option, 'journal', 'list'),
                      ('journal', 'list', *option)):
            code, out, err = self.call(*words)
            self.assertEqual((0, ''), (code, err))
            self.assertIn(entry, out)

    def test_later_file_and_directory_win(self):
        self.record(base.removal(1))
        wrong = self.nova_conf('[bdm_cleanup]\nstore = /nowhere/s\n')
        right = '[bdm_cleanup]\nstore = %s\n' % self.path
        self.assertEqual(1, self.call(
            'journal', 'list', '--config-file', wrong)[0])
        self.assertEqual(0, self.call(
            'journal', 'list', '--config-file', wrong, '--config-file',
            self.nova_conf(right, 'b.conf'))[0])
        os.mkdir(os.path.join(self.home, 'nova.conf.d'))
        self.nova_conf(right, 'nova.conf.d/b.conf')
        self.assertEqual(0, self.call(
            'journal', 'list', '--config-file', wrong, '--config-dir',
            os.path.join(self.home, 'nova.conf.d'))[0])

    def test_found_where_nova_compute_looks(self):
        self.record(base.removal(1))
        os.mkdir(os.path.join(self.home, '.nova'))
        self.nova_conf('[DEFAULT]\n', '.nova/nova.conf')
        self.nova_conf('[bdm_cleanup]\nstore = %s\n' % self.path,
                       '.nova/nova-compute.conf')
        self.assertEqual(0, self.call('journal', 'list')[0])

    def test_default_state_path(self):
        empty = self.nova_conf('')
        with mock.patch('importlib.util.find_spec', autospec=True,
                        return_value=None):
            code, out, err = self.call('--config-file', empty, 'journal',
                                       'list')
        self.assertEqual((1, ''), (code, out))
        self.assertIn('/var/lib/nova/bdm-cleanup/store.sqlite', err)
        spec = argparse.Namespace(origin='/opt/python/nova/__init__.py')
        with mock.patch('importlib.util.find_spec', autospec=True,
                        return_value=spec):
            err = self.call('--config-file', empty, 'journal', 'list')[2]
        self.assertIn('/opt/python/bdm-cleanup/store.sqlite', err)

    def test_bad_configuration(self):
        for words, hint in (
                (('--config-file', '/nowhere/nova.conf'), '/nowhere'),
                (('--config-dir', '/nowhere'), '/nowhere'),
                (('--config-file', self.nova_conf('nonsense\n', 'a.conf')),
                 'a.conf'),
                (('--config-file', self.nova_conf(
                    '[bdm_cleanup]\nstore = $nonsense/s\n', 'b.conf')),
                 'nonsense')):
            code, out, err = self.call('journal', 'list', *words)
            self.assertEqual((2, ''), (code, out), words)
            self.assertIn(hint, err)
