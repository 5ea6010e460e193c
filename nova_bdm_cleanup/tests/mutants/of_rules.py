# SPDX-License-Identifier: Apache-2.0
"""Mutants of the decision tables, and of what they are told."""

from __future__ import annotations

from nova_bdm_cleanup.tests.mutants.mutant import Mutant

_MAPPINGS = 'rules/mappings.py'
_ATTACHMENTS = 'rules/attachments.py'
_GUARDS = 'rules/guards.py'
_DECISION = 'rules/decision.py'
_WORLD = 'rules/world.py'

MUTANTS = (

    # What a mapping is found to be

    Mutant('kept-disk-of-somebody-else-connected',
           'The guest comes back with a volume that is just being attached to '
           'another server.',
           'rules/mappings.py', (
               ("        return self.volume.status != 'in-use' or "
                'bool(self.other_servers)\n',
                '        return False\n'),)),

    Mutant('young-attach-removed',
           'An attach that has only just begun loses its mapping.',
           _MAPPINGS, (
               ('lambda m: not m.bdm.has_connection_info and m.is_young,',
                'lambda m: False,'),)),

    Mutant('migration-ignored',
           'A volume that Cinder is migrating loses its mapping.',
           _MAPPINGS, (
               ('lambda m: m.volume.is_migrating, (', 'lambda m: False, ('),)),

    Mutant('busy-volume-judged',
           'A volume with which Cinder is busy, or which it lost control of, '
           'is judged as one that is in use.',
           _MAPPINGS, (
               ('lambda m: m.volume.status not in KNOWN, (',
                'lambda m: False, ('),)),

    Mutant('in-flight-volume-removed',
           'A volume that is just being attached or detached loses its '
           'mapping.',
           _MAPPINGS, (
               ('Keep(Reason.OPERATION_IN_FLIGHT),\n'
                "            'the volume is {it.volume.status}'),",
                'Remove(Reason.VOLUME_AVAILABLE),\n'
                "            'the volume is {it.volume.status}'),"),)),

    Mutant('duplicate-that-serves-removed',
           'Of two mappings that the guest may use either, one goes.',
           _MAPPINGS, (
               ('return (not self.bdm.has_connection_info\n'
                '                and not self.volume.multiattach\n',
                'return (not self.volume.multiattach\n'),)),

    Mutant('attachment-mismatch-removed',
           'A disk that another attachment than the mapping\'s own may serve '
           'is taken away.',
           _MAPPINGS, (
               ('Keep(Reason.ATTACHMENT_MISMATCH),',
                'Remove(Reason.ATTACHED_ELSEWHERE),'),)),

    # Which of the dangling mappings are kept all the same

    Mutant('swap-ignored',
           'After a swap of volumes that died, a mapping goes although the '
           'guest may run with the new volume.',
           _MAPPINGS, (('lambda m: m.swapped_to,', 'lambda m: (),'),)),

    Mutant('root-removed',
           'A server loses its root disk.',
           _MAPPINGS, (
               ('lambda m: [b for b in m.siblings if b.is_root],',
                'lambda m: [],'),)),

    Mutant('sibling-that-is-kept-ignored',
           'A volume is disconnected of which another mapping is kept.',
           _MAPPINGS, (('lambda m: m.kept,', 'lambda m: (),'),)),

    Mutant('cinder-told-with-the-first-mapping',
           'Of several mappings of a volume, one is still there when Cinder '
           'may give the volume away.',
           _MAPPINGS, (
               ('        if self.bdm is not self.siblings[-1]:\n'
                '            return ()\n', ''),)),

    # What becomes of an attachment that no mapping names

    Mutant('foreign-attachment-deleted',
           'Another project\'s attachment of its own volume is deleted.',
           _ATTACHMENTS, (
               ('lambda a: a.attachment.id in a.world.foreign,',
                'lambda a: False,'),)),

    Mutant('stale-while-a-volume-moves',
           'The second attachment of a detach, a migration or a swap that '
           'goes on is deleted.',
           _ATTACHMENTS, (
               ('lambda a: a.world.is_moving,', 'lambda a: False,'),)),

    Mutant('new-volume-of-a-swap-deleted',
           'The attachment goes through which the guest runs after a swap '
           'that died.',
           _ATTACHMENTS, (
               ('lambda a: a.attachment in a.world.swapped_to,',
                'lambda a: False,'),)),

    Mutant('stale-while-an-attach-connects',
           'The attachment of an attach or a move goes that has got as far as '
           'the back end.',
           _ATTACHMENTS, (
               ('lambda a: not (a.attachment.connected or '
                'a.attachment.is_legacy),',
                'lambda a: False,'),)),

    Mutant('second-attachment-of-this-host-deleted',
           'An attachment goes that connects this host just as the one in '
           'order does, and the back end takes the disk from both.',
           _ATTACHMENTS, (
               ('                and _short(self.host) != _short(here)\n',
                ''),)),

    Mutant('disconnected-here-for-another-host',
           'A device of this host goes for an attachment that connects '
           'another one.',
           _ATTACHMENTS, (
               ('not self.mappings\n'
                '                and spelling.host(self.host)\n'
                '                == spelling.host(self.world.server.host))',
                'not self.mappings)'),)),

    # Why an action is not carried out

    Mutant('mark-ignored',
           'What its owner marked to be kept is removed.',
           _GUARDS, (('[f for f in due.findings if due.is_kept(f)]', '()'),)),

    Mutant('witness-ignored',
           'A wrong region says politely that all is gone, and is believed.',
           _GUARDS, (
               ('due.world.snapshot.witness is WitnessAnswer.UNKNOWN',
                'False'),)),

    Mutant('removals-of-a-server-without-limit',
           'A server loses more disks at once than the operator allows.',
           _GUARDS, (
               ('len(due.mappings) > due.world.policy.max_removals',
                'False'),)),

    # Two looks compared

    Mutant('second-look-without-the-reason',
           'A disk goes although the second look found something else about '
           'it.',
           _DECISION, (
               ('        finding.reason,\n        finding.volume_id,',
                '        finding.volume_id,'),)),

    Mutant('second-look-without-the-attachments',
           'A disk goes although somebody attached or detached it between the '
           'two looks.',
           _DECISION, (
               ('        finding.attachment,\n        finding.disconnect,\n',
                ''),
               ('                  for a in finding.left_over)',
                '                  for a in ())'),)),

    Mutant('second-look-without-what-it-withholds',
           'A disk goes although the second look would have left it.',
           _DECISION, (
               ('_identity(f): (f.withheld, f.obstacle)',
                "_identity(f): (None, '')"),)),

    # What the tables are told

    Mutant('migration-is-no-move',
           'The second attachment of a volume that Cinder migrates is '
           'deleted.',
           _WORLD, (
               ('(v.status in _MOVING or v.is_migrating)',
                'v.status in _MOVING'),)),
)
