# SPDX-License-Identifier: Apache-2.0
"""Commands that attach removed volumes again, run in a shell."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
from unittest import mock

from openstackclient.compute.v2 import server

from nova_bdm_cleanup.tests.unit.admin import base

#: A fake openstack command; every volume is in one project.
CLOUD = """
openstack() {
    case "$1 $2" in
        "volume show") echo "${PROJECT-a-project}";;
        *) printf "%s\\0" "$@";;
    esac
}
"""


def commands(out):
    """Return the attach commands, split into words."""
    return [shlex.split(line) for line in out.splitlines()
            if line.startswith('    openstack')]


class UndoTest(base.CommandTest):

    def test_command_attaches_the_removed_volume(self):
        entry = self.record(base.removal(1), done=[1])
        code, out, err = self.journal('undo', entry)
        self.assertEqual((0, ''), (code, err))
        self.assertEqual(
            [['openstack', '--os-compute-api-version', '2.60', 'server', 'add',
              'volume', '--device=/dev/vdb', base.SERVER, base.volume(1)]],
            commands(out))
        self.assertIn('# volume-available: because', out)
        self.assertIn('# The commands ask for the same device names; libvirt '
                      'may choose others\n', out)

    def test_command_restores_device_tag_and_delete_flag(self):
        entry = self.record(
            base.removal(1, tag='-a b\'$(x)', delete_on_termination=True),
            done=[1])
        [words] = commands(self.journal('undo', entry)[1])
        self.assertEqual(['openstack', '--os-compute-api-version', '2.79',
                          'server', 'add', 'volume'], words[:6])
        # As the openstack command parses it.
        args = server.AddServerVolume(
            mock.Mock(), argparse.Namespace()).get_parser('x').parse_args(
            words[6:])
        self.assertEqual(
            (base.SERVER, base.volume(1), '/dev/vdb', "-a b'$(x)", True),
            (args.server, args.volume, args.device, args.tag,
             args.enable_delete_on_termination))

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
        """Run commands in a shell; return its output and errors."""
        run = subprocess.run(
            ['bash', '-c', CLOUD + out + 'echo the shell goes on'],
            capture_output=True, text=True, env=dict(os.environ, **variables))
        self.assertIn('the shell goes on', run.stdout)
        return run.stdout, run.stderr

    def test_volume_of_another_project_is_not_attached(self):
        entry = self.record(base.removal(1), base.removal(2), done=[1, 2])
        out = self.journal('undo', entry)[1]
        self.assertIn('# The volume must still belong to project a-project',
                      out)
        done, said = self.run_in_a_shell(out)
        self.assertEqual((2, ''), (done.count('--device='), said))
        # In another project; or gone, or its project is not shown.
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

    def test_volumes_are_in_the_order_of_the_devices(self):
        entry = self.record(
            base.removal(1, device_name='/dev/vdaa'), base.removal(2),
            base.removal(3), done=[3, 2, 1])
        self.assertEqual([base.volume(2), base.volume(3), base.volume(1)],
                         self.undone(entry)[1])

    def test_lost_boot_order_and_device_type_are_named(self):
        entry = self.record(base.removal(1, boot_index=1, device_type='lun'),
                            done=[1])
        out = self.journal('undo', entry)[1]
        self.assertIn('# Not restored: its place 1 in the boot order',
                      out)
        self.assertIn('# Not restored: its device type lun', out)

    def undone(self, entry, *volumes):
        """Return the exit code, the attached volumes and the output."""
        code, out, err = self.journal('undo', entry, *(
            word for volume in volumes for word in ('--volume', volume)))
        return code, [words[-1] for words in commands(out)], out + err

    def test_only_removed_mappings_are_undone(self):
        one, two, three = map(base.volume, (1, 2, 3))
        missing = base.removal(1, 'volume-missing'), base.removal(2)
        elsewhere = base.removal(1, 'attached-elsewhere')
        unfinished = base.removal(1), base.removal(2)
        kept = base.removal(1), base.stale(2)
        perhaps = *unfinished, base.removal(3)
        for actions, end, volumes, code, attached, said in (
                (missing, {'done': [1, 2]}, (), 0, [two],
                 'did not exist in Cinder'),
                # Cinder may have been wrong: --volume overrides it.
                (missing, {'done': [1, 2]}, (one,), 0, [one], ''),
                ([base.removal(1, 'duplicate-mapping')], {'done': [1]}, (),
                 1, [], 'the server has volume %s through another '
                        'mapping' % one),
                # Cinder would also attach a multiattach volume here.
                ([elsewhere, base.removal(2)], {'done': [1, 2]}, (), 0, [two],
                 '# Nothing to undo: volume %s was attached to another server'
                 % one),
                ([elsewhere], {'done': [1]}, (), 1, [], 'Nothing to undo'),
                ([elsewhere], {'done': [1]}, (one,), 2, [], one),
                ([base.stale(1)], {'done': [1]}, (), 1, [],
                 'attachment att-1 of volume %s was deleted as stale' % one),
                (kept, {'end': 'partly'}, (), 1, [],
                 'Not removed, nothing to undo: volume %s' % one),
                (kept, {'end': 'partly'}, (one,), 2, [], one),
                (unfinished, {'done': [1], 'end': None}, (), 0, [one],
                 'Use --volume %s if "openstack server volume list"' % two),
                (unfinished, {'done': [1], 'end': None}, (two,), 0, [two], ''),
                # Perhaps only the conductor's answer was lost.
                (perhaps, {'done': [1], 'failed': [2], 'end': 'partly'}, (),
                 0, [one], '# Skipped: deleting the mapping failed, so the '
                 'mapping of volume %s may' % two),
                (perhaps, {'done': [1], 'failed': [2], 'end': 'partly'}, (),
                 0, [one], 'Not removed, nothing to undo: volume %s' % three),
                (perhaps, {'done': [1], 'failed': [2], 'end': 'partly'},
                 (two,), 0, [two], ''),
                (perhaps, {'done': [1, 2, 3]}, (three, one), 0, [one, three],
                 ''),
                (perhaps, {'done': [1, 2, 3]}, ('other',), 2, [],
                 'no removal of volume other')):
            entry = self.record(*actions, **end)
            row = actions, end, volumes
            found = self.undone(entry, *volumes)
            self.assertEqual((code, attached), found[:2], row)
            self.assertIn(said, found[2], row)

    def test_an_attachment_that_is_still_there_is_not_told(self):
        entry = self.record(base.stale(2), end='partly')
        self.assertNotIn('att-2', self.undone(entry)[2])

    def test_ids_are_accepted_in_any_spelling(self):
        entry = self.record(base.removal(1), base.removal(2), done=[1, 2])
        two = base.volume(2)
        self.assertEqual([two], self.undone(
            entry.upper(), '{%s}' % two.replace('-', '').upper())[1])

    def test_reconnected_disk_has_nothing_to_undo(self):
        for end in ('done', 'partly', None):
            entry = self.record(base.reconnect(1), end=end)
            code, out, err = self.journal('undo', entry)
            self.assertEqual((1, '', []), (code, err, commands(out)))
            self.assertIn('# Nothing to undo: volume %s was not removed'
                          % base.volume(1), out)
            # Also if its attachment was deleted.
            self.assertNotIn('Cannot be undone', out)

    def test_removal_beside_a_reconnect_is_undone(self):
        entry = self.record(base.removal(2), base.reconnect(1), done=[2])
        code, out, err = self.journal('undo', entry)
        self.assertEqual((0, ''), (code, err))
        self.assertEqual([base.volume(2)],
                         [words[-1] for words in commands(out)])
        self.assertIn('Nothing to undo: volume ' + base.volume(1), out)
        code, out, err = self.journal('undo', entry, '--volume',
                                      base.volume(1))
        self.assertEqual((2, ''), (code, out))
        self.assertIn('no removal of volume', err)
