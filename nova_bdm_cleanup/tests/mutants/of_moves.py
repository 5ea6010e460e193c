# SPDX-License-Identifier: Apache-2.0
"""Mutants of what happens when a server leaves its host."""

from __future__ import annotations

from nova_bdm_cleanup.tests.mutants.mutant import Mutant

_MOVES = 'plugin/moves.py'
_TRIGGERS = 'cleanup/move_triggers.py'

MUTANTS = (

    # Before the driver

    Mutant('disk-of-another-guest-disconnected-in-a-move',
           'A migration takes a disk from another guest of the host.',
           _MOVES, (
               ('        return actions.obstacle_to_disconnect(\n'
                '            cleanup.host, cleanup.cinder, bdm)\n',
                "        return ''\n"),)),

    Mutant('disk-of-another-guest-disconnected-in-a-shelve',
           'A shelve takes a disk from another guest of the host.',
           _MOVES, (('if kept:', 'if False:'),)),

    Mutant('disk-of-another-guest-disconnected-in-a-delete',
           'Deleting a server takes a disk from another guest of the host.',
           _MOVES, (
               ('    disconnecting = {**leaving, **_by_state(names, '
                'move_triggers.DELETE)}\n',
                '    disconnecting = leaving\n'),)),

    Mutant('root-that-dangles-moves-along',
           'A migration attaches a root disk that is somebody else\'s.',
           _MOVES, (
               ('_DANGLES = DANGLING | {Reason.ROOT_VOLUME_DANGLING, '
                'Reason.SWAP_INTERRUPTED}',
                '_DANGLES = DANGLING | {Reason.SWAP_INTERRUPTED}'),)),

    Mutant('server-that-moves-stands-in-its-own-way',
           'Every migration of a server with a dangling mapping is refused.',
           'plugin/neighbours.py', (
               ('        moving.discard(self._instance.uuid)\n', ''),)),

    # After it

    Mutant('move-removes-nothing',
           'A migration goes on with what dangles, and ends half done.',
           _MOVES, (('_remove(given, trigger)', 'pass'),)),

    Mutant('what-could-not-be-removed-moves-along',
           'A step failed, and the migration attaches a stranger\'s disk.',
           _MOVES, (
               ('    if left:\n        raise _refusal(',
                '    if False:\n        raise _refusal('),)),

    Mutant('what-was-seen-before-forgotten',
           'libvirt does not answer once, and the migration attaches a '
           'stranger\'s disk.',
           _MOVES, (('if server == instance.uuid:', 'if False:'),)),

    Mutant('healthy-disks-left-out-of-a-move',
           'The old host stays let in to all volumes of the server.',
           _MOVES, (
               ('cleaning.take_out(bdms, removed)',
                'cleaning.take_out(bdms, {b.uuid for b in bdms})'),)),

    Mutant('way-back-not-looked-at',
           'Taking a migration back ends half done.',
           _TRIGGERS, (
               ("frozenset(('resize_migrating', 'resize_reverting'))",
                "frozenset(('resize_migrating',))"),)),

    Mutant('shelve-waits-for-its-own-lock',
           'No server with a dangling mapping can be shelved.',
           _TRIGGERS, (
               ("    next_try='an unshelve tries again',\n"
                '    is_locked=True)',
                "    next_try='an unshelve tries again')"),)),

    # Where the server comes to

    Mutant('dangling-disk-unshelved',
           'No call brings a shelved server back.',
           _MOVES, (
               ("    if given['instance'].vm_state == "
                'vm_states.SHELVED_OFFLOADED:\n',
                '    if False:\n'),)),

    Mutant('removed-mapping-handed-to-nova',
           'A mapping is gone, and Nova fails to connect its disk.',
           _MOVES, (
               ("    cleaning.withhold(given['self'],",
                "    cleaning.clean(given['self'],"),)),

    Mutant('evacuation-not-looked-at',
           'An evacuation attaches another project\'s volume.',
           _MOVES, (
               ("    if given.get('evacuate'):\n",
                "    if not given.get('evacuate'):\n"),)),

    Mutant('evacuation-removes',
           'The old host cannot disconnect the disk when it comes back.',
           _TRIGGERS, (
               (',\n    only_reports=Reason.EVACUATED)', ')'),)),

    # Live migrations

    Mutant('volume-of-another-project-migrates-alive',
           'A live migration attaches another project\'s volume.',
           _MOVES, (
               ("    if not spelling.is_same(volume.project or '', "
                'instance.project_id):\n',
                '    if False:\n'),)),

    Mutant('every-live-migration-refused',
           'A host cannot be drained for what Nova lets through harmlessly.',
           _MOVES, (('if refuses_all or whose]', ']'),)),
)
