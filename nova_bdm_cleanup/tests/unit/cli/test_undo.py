# SPDX-License-Identifier: Apache-2.0
"""The commands that attach again what was removed, and a shell runs them."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
from unittest import mock

from openstackclient.compute.v2 import server

from nova_bdm_cleanup.tests.unit.cli import base

#: Stands in for the openstack command; every volume is in one project.
CLOUD = """
openstack() {
    case "$1 $2" in
        "volume show") echo "${PROJECT-a-project}";;
        *) printf "%s\\0" "$@";;
    esac
}
"""


def commands(out):
    """The commands that attach, in words."""
    return [shlex.split(line) for line in out.splitlines()
            if line.startswith('    openstack')]


class UndoTest(base.CommandTest):

    def test_plain(self):
        entry = self.record(base.removal(1), done=[1])
        code, out, err = self.journal('undo', entry)
        self.assertEqual((0, ''), (code, err))
        self.assertEqual(
            [['openstack', '--os-compute-api-version', '2.60', 'server', 'add',
              'volume', '--device=/dev/vdb', base.SERVER, base.volume(1)]],
            commands(out))
        self.assertIn('# volume-available: because', out)
        self.assertIn('# It asks for the same device; libvirt may choose '
                      'another\n', out)

    def test_all_that_the_mapping_had(self):
        entry = self.record(
            base.removal(1, tag='-a b\'$(x)', delete_on_termination=True),
            done=[1])
        code, out, err = self.journal('undo', entry)
        self.assertEqual(
            [['openstack', '--os-compute-api-version', '2.79', 'server', 'add',
              'volume', '--device=/dev/vdb', "--tag=-a b'$(x)",
              '--enable-delete-on-termination', base.SERVER, base.volume(1)]],
            commands(out))

    def test_a_shell_understands_every_tag(self):
        for tag in ('plain', "it's", '$HOME `id` "x"\\', '\x1b[2J\n\t\\\'',
                    'bl\u00e5\u00e5 \u2028', '\u0000'.replace('\0', '\x7f')):
            entry = self.record(base.removal(1, tag=tag), done=[1])
            out = self.journal('undo', entry)[1]
            run = subprocess.run(
                ['bash', '-c', CLOUD + out],
                capture_output=True, check=True)
            self.assertIn('--tag=' + tag,
                          run.stdout.decode().split('\0'))

    def run_in_a_shell(self, out, **variables):
        """What the shell did, and what it said."""
        run = subprocess.run(
            ['bash', '-c', CLOUD + out + 'echo the shell goes on'],
            capture_output=True, text=True, env=dict(os.environ, **variables))
        self.assertIn('the shell goes on', run.stdout)
        return run.stdout, run.stderr

    def test_only_in_the_project_that_the_volume_was_in(self):
        entry = self.record(base.removal(1), base.removal(2), done=[1, 2])
        out = self.journal('undo', entry)[1]
        self.assertIn('# The volume must still belong to project a-project',
                      out)
        done, said = self.run_in_a_shell(out)
        self.assertEqual((2, ''), (done.count('--device='), said))
        # Somebody else's by now; or its project is not shown, or it is gone.
        for project in ('another', ''):
            done, said = self.run_in_a_shell(out, PROJECT=project)
            self.assertNotIn('--device=', done)
            for number in (1, 2):
                self.assertIn('volume %s is not in project a-project'
                              % base.volume(number), said)

    def test_a_record_that_names_no_project_attaches_nothing(self):
        for project in (None, ''):
            entry = self.record(base.removal(1), done=[1], project=project)
            out = self.journal('undo', entry)[1]
            self.assertNotIn('--device=',
                             self.run_in_a_shell(out, PROJECT='')[0])

    def test_a_project_is_a_word_for_the_shell_too(self):
        project = "a b'$(id)\n"
        entry = self.record(base.removal(1), done=[1], project=project)
        out = self.journal('undo', entry)[1]
        self.assertNotIn('--device=', self.run_in_a_shell(out)[0])
        self.assertIn('volume %s is not in project a b\'$(id)'
                      % base.volume(1), self.run_in_a_shell(out)[1])

    def test_in_the_order_of_the_devices(self):
        entry = self.record(
            base.removal(1, device_name='/dev/vdaa'), base.removal(2),
            base.removal(3), done=[3, 2, 1])
        self.assertEqual([base.volume(2), base.volume(3), base.volume(1)],
                         [c[-1] for c in commands(
                             self.journal('undo', entry)[1])])

    def test_what_cannot_be_asked_for(self):
        entry = self.record(base.removal(1, boot_index=1, device_type='lun'),
                            done=[1])
        out = self.journal('undo', entry)[1]
        self.assertIn('# It will not get back its place 1 in the boot order',
                      out)
        self.assertIn('# It will not get back its device type lun', out)

    def test_volume_that_did_not_exist(self):
        entry = self.record(base.removal(1, 'volume-missing'), base.removal(2),
                            done=[1, 2])
        code, out, err = self.journal('undo', entry)
        self.assertEqual(0, code)
        self.assertEqual([base.volume(2)], [c[-1] for c in commands(out)])
        self.assertIn('did not exist in Cinder', out)
        # Cinder may have been wrong: a name given is a name meant.
        out = self.journal('undo', entry, '--volume', base.volume(1))[1]
        self.assertEqual([base.volume(1)], [c[-1] for c in commands(out)])

    def test_mapping_too_many(self):
        entry = self.record(base.removal(1, reason='duplicate-mapping'),
                            done=[1])
        code, out, err = self.journal('undo', entry)
        self.assertEqual((1, []), (code, commands(out)))
        self.assertIn('the server has volume %s by another mapping'
                      % base.volume(1), out)

    def test_volume_that_another_server_has(self):
        """Cinder would attach a multiattach volume to this one, too."""
        entry = self.record(base.removal(1, reason='attached-elsewhere'),
                            base.removal(2), done=[1, 2])
        code, out, err = self.journal('undo', entry)
        self.assertEqual((0, [base.volume(2)]),
                         (code, [c[-1] for c in commands(out)]))
        self.assertIn('# Nothing to undo: volume %s was attached to another '
                      'server' % base.volume(1), out)
        entry = self.record(base.removal(1, reason='attached-elsewhere'),
                            done=[1])
        code, out, err = self.journal('undo', entry)
        self.assertEqual((1, []), (code, commands(out)))
        self.assertIn('# Nothing to undo: volume', out)
        code, out, err = self.journal(
            'undo', entry, '--volume', base.volume(1))
        self.assertEqual((2, ''), (code, out))

    def test_stale_attachment(self):
        entry = self.record(base.stale(1), done=[1])
        code, out, err = self.journal('undo', entry)
        self.assertEqual((1, []), (code, commands(out)))
        self.assertIn('attachment att-1 of volume %s was deleted as stale'
                      % base.volume(1), out)

    def test_not_removed_in_the_end(self):
        entry = self.record(base.removal(1), base.stale(2), end='nothing')
        code, out, err = self.journal('undo', entry)
        self.assertEqual((1, []), (code, commands(out)))
        self.assertIn('Not removed, nothing to undo: volume %s'
                      % base.volume(1), out)
        self.assertNotIn('att-2', out)
        code, out, err = self.journal(
            'undo', entry, '--volume', base.volume(1))
        self.assertEqual((2, ''), (code, out))

    def test_interrupted(self):
        entry = self.record(base.removal(1), base.removal(2), done=[1],
                            end=None)
        code, out, err = self.journal('undo', entry)
        self.assertEqual([base.volume(1)], [c[-1] for c in commands(out)])
        self.assertIn('Not without --volume %s' % base.volume(2), out)
        out = self.journal('undo', entry, '--volume', base.volume(2))[1]
        self.assertEqual([base.volume(2)], [c[-1] for c in commands(out)])

    def test_deleted_perhaps(self):
        # Only the conductor's answer may have been lost.
        entry = self.record(base.removal(1), base.removal(2),
                            base.removal(3), done=[1], failed=[2],
                            end='partly')
        code, out, err = self.journal('undo', entry)
        self.assertEqual([base.volume(1)], [c[-1] for c in commands(out)])
        self.assertIn('Not without --volume %s: deleting' % base.volume(2),
                      out)
        self.assertIn('Not removed, nothing to undo: volume %s'
                      % base.volume(3), out)
        out = self.journal('undo', entry, '--volume', base.volume(2))[1]
        self.assertEqual([base.volume(2)], [c[-1] for c in commands(out)])

    def test_only_some(self):
        entry = self.record(base.removal(1), base.removal(2), base.removal(3),
                            done=[1, 2, 3])
        out = self.journal('undo', entry, '--volume', base.volume(3),
                           '--volume', base.volume(1))[1]
        self.assertEqual([base.volume(1), base.volume(3)],
                         [c[-1] for c in commands(out)])
        out = self.journal('undo', entry.upper(), '--volume', '{%s}' %
                           base.volume(2).replace('-', '').upper())[1]
        self.assertEqual([base.volume(2)], [c[-1] for c in commands(out)])
        code, out, err = self.journal('undo', entry, '--volume', 'other')
        self.assertEqual((2, ''), (code, out))
        self.assertIn('no mapping of volume other', err)

    def test_the_openstack_command_knows_the_options(self):
        entry = self.record(
            base.removal(1, tag='-t', delete_on_termination=True), done=[1])
        [words] = commands(self.journal('undo', entry)[1])
        parser = server.AddServerVolume(
            mock.Mock(), argparse.Namespace()).get_parser('x')
        args = parser.parse_args(words[6:])
        self.assertEqual(
            (base.SERVER, base.volume(1), '/dev/vdb', '-t', True),
            (args.server, args.volume, args.device, args.tag,
             args.enable_delete_on_termination))
