# SPDX-License-Identifier: Apache-2.0
"""Arguments, configuration and exit codes of the host command."""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
from unittest import mock

import nova_bdm_cleanup
from nova_bdm_cleanup.admin import main
from nova_bdm_cleanup.node.store.journal import Journal
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit.admin import base


class MainTest(base.CommandTest):

    def test_wrong_arguments_print_the_usage(self):
        for words in ((), ('journal',), ('nonsense',), ('journal', 'show'),
                      ('check', '--yaml'),
                      ('journal', 'list', '--since', 'yesterday'),
                      ('journal', 'list', '--since', '99999999999d'),
                      ('journal', 'list', '--jour', 'x'),
                      ('journal', 'undo', 'x', '--execute')):
            code, out, err = self.call(*words)
            self.assertEqual(2, code, words)
            self.assertIn('usage: nova-bdm-cleanup', err)

    def test_help_and_version_end_with_code_0(self):
        for words in (('--help',), ('--version',), ('journal', '--help'),
                      ('journal', 'undo', '--help')):
            code, out, err = self.call(*words)
            self.assertEqual((0, ''), (code, err))
            self.assertNotEqual('', out)

    def test_exception_ends_with_code_255(self):
        self.record(base.removal(1))
        with mock.patch.object(Journal, 'entries', autospec=True,
                               side_effect=KeyError('odd')):
            code, out, err = self.journal('list')
        self.assertEqual((255, ''), (code, out))
        self.assertIn("KeyError: 'odd'", err)
        with mock.patch.object(Journal, 'entries', autospec=True,
                               side_effect=KeyboardInterrupt):
            self.assertEqual(130, self.journal('list')[0])

    def test_debug_shows_where(self):
        self.record(base.removal(1))
        err = io.StringIO()
        with mock.patch.object(Journal, 'entries', autospec=True,
                               side_effect=KeyError), \
                mock.patch('sys.stderr', err):
            main.main(['--debug', 'journal', 'list', '--journal',
                       self.path])
        self.assertIn('Traceback', err.getvalue())

    def process(self, *words, program=('-m', 'nova_bdm_cleanup.admin.main'),
                **more):
        """Run the command in a process; return code, errors, output."""
        root = os.path.dirname(os.path.dirname(nova_bdm_cleanup.__file__))
        run = subprocess.run(
            [sys.executable, *program, *words],
            stderr=subprocess.PIPE, text=True, cwd=self.home,
            env=dict(os.environ, PYTHONPATH=root, LC_ALL='C', PYTHONUTF8='0',
                     PYTHONCOERCECLOCALE='0'),
            **{'stdout': subprocess.PIPE, **more})
        return run.returncode, run.stderr, run.stdout

    def test_closed_pipe_keeps_the_exit_code(self):
        entry = self.record(base.removal(1, tag='t\u00e4g\x1b\udc80'),
                            done=[1])
        words = 'journal', 'undo', '--journal', self.path, entry
        code, errors, output = self.process(*words)
        self.assertEqual((0, ''), (code, errors))
        self.assertIn('\\x1b', output)
        # A reader that closes the pipe does not change the exit code.
        for code, again in ((0, words), (1, ('status',))):
            reader, writer = os.pipe()
            os.close(reader)
            self.assertEqual((code, '', None),
                             self.process(*again, stdout=writer))
            os.close(writer)

    def test_output_that_cannot_be_written(self):
        self.record(base.removal(1))
        with open('/dev/full', 'w') as full:
            code, errors, _ = self.process(
                'journal', 'list', '--journal', self.path, stdout=full)
        self.assertEqual(ExitCode.PARTLY, code)
        self.assertEqual('nova-bdm-cleanup: the output could not be written: '
                         'No space left on device\n', errors)

    def test_needs_neither_nova_nor_a_cloud_library(self):
        self.record(base.removal(1), done=[1])
        program = (
            'import sys\n'
            'from nova_bdm_cleanup.admin import main\n'
            'main.main(sys.argv[1:])\n'
            'print(sorted({m.partition(".")[0] for m in sys.modules}\n'
            '      & {"nova", "openstack"}))')
        code, _, output = self.process(
            'journal', 'list', '--journal', self.path,
            program=('-c', program))
        self.assertEqual((0, '[]'), (code, output.splitlines()[-1]))


class ConfigurationTest(base.CommandTest):

    def test_store_is_in_the_state_path_of_nova_conf(self):
        entry = self.record(base.removal(1))
        os.mkdir(os.path.join(self.home, 'bdm-cleanup'), 0o700)
        os.rename(self.path, os.path.join(
            self.home, 'bdm-cleanup', 'store.sqlite'))
        option = ('--config-file', self.write(
            '[DEFAULT]\nstate_path = %s\n' % self.home))
        for words in ((*option, 'journal', 'list'),
                      ('journal', 'list', *option)):
            code, out, err = self.call(*words)
            self.assertEqual((0, ''), (code, err))
            self.assertIn(entry, out)

    def test_later_file_and_directory_win(self):
        self.record(base.removal(1))
        wrong = '--config-file', self.write(
            '[bdm_cleanup]\nstore = /nowhere/s\n')
        right = self.write('[bdm_cleanup]\nstore = %s\n' % self.path,
                           'nova.conf.d/b.conf')
        for code, words in (
                (1, ()), (0, ('--config-file', right)),
                (0, ('--config-dir', os.path.dirname(right)))):
            self.assertEqual(
                code, self.call('journal', 'list', *wrong, *words)[0], words)

    def test_configuration_of_nova_compute_is_found(self):
        self.record(base.removal(1))
        self.write('[DEFAULT]\n', '.nova/nova.conf')
        self.write('[bdm_cleanup]\nstore = %s\n' % self.path,
                   '.nova/nova-compute.conf')
        self.assertEqual(0, self.call('journal', 'list')[0])

    def test_store_is_in_the_default_state_path(self):
        for spec, path in (
                (None, '/var/lib/nova'),
                (argparse.Namespace(origin='/opt/python/nova/__init__.py'),
                 '/opt/python')):
            with mock.patch('importlib.util.find_spec', autospec=True,
                            return_value=spec):
                code, out, err = self.call(
                    '--config-file', self.write(''), 'journal', 'list')
            self.assertEqual((1, ''), (code, out))
            self.assertIn(path + '/bdm-cleanup/store.sqlite', err)

    def test_unusable_configuration_is_named(self):
        for words, hint in (
                (('--config-file', '/nowhere/nova.conf'), '/nowhere'),
                (('--config-dir', '/nowhere'), '/nowhere'),
                (('--config-file', self.write('nonsense\n', 'a.conf')),
                 'a.conf'),
                (('--config-file', self.write(
                    '[bdm_cleanup]\nstore = $nonsense/s\n', 'b.conf')),
                 'nonsense')):
            code, out, err = self.call('journal', 'list', *words)
            self.assertEqual((2, ''), (code, out), words)
            self.assertIn(hint, err)
