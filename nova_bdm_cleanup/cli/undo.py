# SPDX-License-Identifier: Apache-2.0
"""What can be undone, and the supported commands that do it.

Undoing a removal is attaching the volume again.  Nothing else that the plugin
does can be undone, and nothing else has to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import shlex
from typing import Any

from nova_bdm_cleanup import terminal
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.facts import Reason
from nova_bdm_cleanup.store.records import INTERRUPTED, objects, Recorded
from nova_bdm_cleanup.terminal import CommandError, ExitCode

#: The lowest microversion that attaches a multiattach volume; the journal
#: does not say which ones are.  It knows tags (2.49) as well.
_MICROVERSION = '2.60'

#: The lowest that can ask for the deletion together with the server.
_MICROVERSION_DELETE = '2.79'


#: Why there is nothing to undo, of a mapping removed for such a reason.
_NOTHING = {
    str(Reason.DUPLICATE_MAPPING):
        'the server has volume %s by another mapping',
    str(Reason.ATTACHED_ELSEWHERE):
        'volume %s was attached to another server and not to this one. To '
        'attach it to this one again is for its owner to decide: of a '
        'multiattach volume that would be a second writer',
}


@dataclasses.dataclass(frozen=True)
class Removal:
    """A mapping that was removed, or may have been."""

    volume: str
    #: Why it was removed, as recorded.
    why: str
    bdm: Mapping[str, Any]
    #: Why it is undone only when the volume is named; empty: it is anyway.
    doubt: str = ''

    @property
    def lost(self) -> tuple[str, ...]:
        """What the mapping had and the API cannot ask for."""
        lost = []
        boot_index = self.bdm.get('boot_index')
        if isinstance(boot_index, int) and boot_index >= 0:
            lost.append('its place %d in the boot order' % boot_index)
        if self.bdm.get('device_type') not in (None, 'disk'):
            lost.append('its device type %s' % self.bdm['device_type'])
        return tuple(lost)

    def command(self, server: str, project: str) -> str:
        """What the shell is to do: nothing unless the project is right.

        Joined by operators, so that it does the same when it is pasted: an
        ``exit`` would close the shell that it is pasted into.
        """
        asked = ['openstack', 'volume', 'show', '-f', 'value', '-c',
                 'os-vol-tenant-attr:tenant_id', self.volume]
        told = ['echo', 'volume %s is not in project %s: it is not attached'
                % (self.volume, project)]
        return ('test "$(%s)" = %s ||\n    { %s >&2; false; } &&\n    %s' % (
            _words(asked), _quoted(project), _words(told),
            _words(self._attach(server))))

    def _attach(self, server: str) -> Sequence[str]:
        words = ['openstack', '--os-compute-api-version', _MICROVERSION,
                 'server', 'add', 'volume']
        for ours, theirs in (('device_name', 'device'), ('tag', 'tag')):
            if self.bdm.get(ours):
                # In one word: a tag may begin with a dash.
                words.append('--%s=%s' % (theirs, self.bdm[ours]))
        if self.bdm.get('delete_on_termination'):
            words[2] = _MICROVERSION_DELETE
            words.append('--enable-delete-on-termination')
        return [*words, server, self.volume]


def run(entry: Recorded, volumes: Sequence[str] | None) -> int:
    """Print the commands that attach again what was removed.

    :param volumes: only these, if there are any
    """
    removals, notes = examine(entry)
    if volumes is None:
        chosen = [r for r in removals if not r.doubt]
        notes = [*('Not without --volume %s: %s' % (r.volume, r.doubt)
                   for r in removals if r.doubt), *notes]
    else:
        chosen = _named(removals, volumes)
        notes = []
    server = str(entry.record.get('server'))
    project = str(entry.record.get('project') or None)
    print('# Entry %s of %s UTC, server %s'
          % (entry.id, terminal.moment(entry.time), terminal.clean(server)))
    if chosen:
        print('# It asks for the same device; libvirt may choose another')
    for removal in chosen:
        print('# %s' % terminal.clean(removal.why))
        print('# The volume must still belong to project %s, which is tested '
              'first' % terminal.clean(project))
        print(removal.command(server, project))
        for lost in removal.lost:
            print('# It will not get back %s' % terminal.clean(lost))
    for note in notes:
        print('# %s' % terminal.clean(note))
    return ExitCode.OK if chosen else ExitCode.NOTHING


def examine(entry: Recorded
            ) -> tuple[list[Removal], Sequence[str]]:
    """What an entry removed, and sentences about what cannot be undone.

    :returns: the removals in the order of their device names, because a
        hypervisor that chooses the names itself hands them out in order
    """
    removals, notes = [], []
    for action in objects(entry.record, 'actions'):
        nothing = _NOTHING.get(str(action.get('reason')))
        if nothing:
            notes += ['Nothing to undo: ' + nothing % bdm.get('volume_id')
                      for bdm in objects(action, 'bdm')]
        elif action.get('kind') == 'remove-bdm':
            for bdm in objects(action, 'bdm'):
                if _may_be_gone(entry, bdm):
                    removals.append(_removal(entry, action, bdm))
                else:
                    notes.append('Not removed, nothing to undo: volume %s'
                                 % bdm.get('volume_id'))
        notes += ['Cannot be undone: attachment %s of volume %s was deleted '
                  'as stale; no mapping in Nova used it'
                  % (a.get('id'), a.get('volume_id'))
                  for a in objects(action, 'attachment')
                  if 'done' in _outcomes(entry, 'delete-attachment',
                                         'attachment', a.get('id'))]
    return sorted(removals, key=_device_order), notes


def _outcomes(entry: Recorded, step: str, key: str,
              value: Any) -> set[str]:
    return {s.outcome for s in entry.steps
            if s.name == step and s.subject.get(key) == value}


def _may_be_gone(entry: Recorded, bdm: Mapping[str, Any]) -> bool:
    """Removed; or nobody knows, after a crash or a lost answer."""
    return bool(_outcomes(entry, 'destroy', 'bdm', bdm.get('uuid'))
                or entry.outcome == INTERRUPTED)


def _removal(entry: Recorded, action: Mapping[str, Any],
             bdm: Mapping[str, Any]) -> Removal:
    doubt = ''
    outcomes = _outcomes(entry, 'destroy', 'bdm', bdm.get('uuid'))
    if 'done' not in outcomes:
        doubt = ('%s, so the mapping may have been removed or not. Look at '
                 '"openstack server volume list" first'
                 % ('deleting the mapping failed' if outcomes
                    else 'the entry has no end'))
    elif action.get('reason') == 'volume-missing':
        doubt = ('the volume did not exist in Cinder, so there is nothing to '
                 'attach, unless Cinder was wrong')
    elif not bdm.get('volume_id'):
        doubt = 'the mapping named no volume'
    return Removal(
        volume=spelling.identifier(str(bdm.get('volume_id'))),
        bdm=bdm, doubt=doubt,
        why='%s: %s' % (action.get('reason'), action.get('explanation')))


def _device_order(removal: Removal) -> tuple[int, str]:
    # /dev/vdz comes before /dev/vdaa.
    name = str(removal.bdm.get('device_name') or '')
    return len(name), name


def _named(removals: Sequence[Removal],
           volumes: Sequence[str]) -> list[Removal]:
    wanted = set(map(spelling.identifier, volumes))
    unknown = sorted(wanted - {r.volume for r in removals})
    if unknown:
        raise CommandError(
            ExitCode.BAD_INPUT, 'the entry removed no mapping of volume %s '
            'that could be undone' % ', '.join(map(terminal.clean, unknown)))
    return [r for r in removals if r.volume in wanted]


def _words(words: Sequence[str]) -> str:
    return ' '.join(map(_quoted, words))


def _quoted(word: str) -> str:
    """A word for the shell, also when it cannot be printed as it is."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'%s'" % ''.join(
        c if c.isprintable() and c not in "\\'"
        else ''.join('\\x%02x' % b for b in c.encode('utf-8', 'replace'))
        for c in word)
