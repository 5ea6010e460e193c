# SPDX-License-Identifier: Apache-2.0
"""The removals that can be undone, and the supported commands for it.

A removal is undone by attaching the volume again.  No other action of the
plugin can be undone, and none has to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import shlex
from typing import Any

from nova_bdm_cleanup import terminal
from nova_bdm_cleanup.node.store.journal import (
    ADOPT,
    INTERRUPTED,
    objects,
    RECONNECT,
    RecordedEntry,
)
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.terminal import CommandError, ExitCode

#: The lowest microversion that attaches a multiattach volume; the journal
#: does not say which ones are.  It knows tags (2.49) as well.
_MICROVERSION = '2.60'

#: The lowest that can ask for the deletion together with the server.
_MICROVERSION_DELETE = '2.79'

#: Why there is nothing to undo, by the reason of the removal.
_NOTHING_TO_UNDO = {
    str(Reason.DUPLICATE_MAPPING):
        'the server has volume %s through another mapping',
    str(Reason.ATTACHED_ELSEWHERE):
        'volume %s was attached to another server and not to this one. If it '
        'is a multiattach volume and both servers need it, its owner can '
        'attach it again',
}


#: The same of what keeps a disk, whether it has ended or not.
_KEPT_DISKS = {
    RECONNECT: 'volume %s was not removed: the plugin has given it one '
               'attachment to this host, or the next hard reboot does',
    ADOPT: 'volume %s was not removed: its mapping has taken over the '
           'attachment by which the guest has it, or the next '
           '"nova-bdm-cleanup repair" does'}


@dataclasses.dataclass(frozen=True)
class Removal:
    """A mapping that was removed, or may have been."""

    volume: str
    #: Why it was removed, as recorded.
    why: str
    bdm: Mapping[str, Any]
    #: Why it is undone only if the operator names the volume; empty: it is
    #: undone in any case.
    doubt: str = ''

    @property
    def device(self) -> str:
        return str(self.bdm.get('device_name') or '')

    def lost(self) -> Iterator[str]:
        """Yield the mapping's properties that the API cannot request."""
        boot_index = self.bdm.get('boot_index')
        if isinstance(boot_index, int) and boot_index >= 0:
            yield 'its place %d in the boot order' % boot_index
        if self.bdm.get('device_type') not in (None, 'disk'):
            yield 'its device type %s' % self.bdm['device_type']

    def command(self, server: str, project: str) -> str:
        """Return the commands for a shell, which test the project first.

        They are joined by operators, so that they also work when pasted: an
        ``exit`` would close the shell that they are pasted into.
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


def run(entry: RecordedEntry, volumes: Sequence[str] | None) -> int:
    """Print the commands that attach the removed volumes again.

    :param volumes: only these volumes, if given
    """
    removals, notes = examine(entry)
    if volumes is None:
        chosen = [r for r in removals if not r.doubt]
        notes = [*('Skipped: %s' % r.doubt for r in removals if r.doubt),
                 *notes]
    else:
        wanted = set(map(spelling.identifier, volumes))
        chosen, notes = [r for r in removals if r.volume in wanted], []
        unknown = wanted - {r.volume for r in removals}
        if unknown:
            raise CommandError(
                ExitCode.BAD_INPUT, 'the entry has no removal of volume %s '
                'that can be undone' % ', '.join(
                    map(terminal.clean, sorted(unknown))))
    server = str(entry.record.get('server'))
    project = str(entry.record.get('project') or None)
    print('# Entry %s of %s UTC, server %s'
          % (entry.id, terminal.moment(entry.time), terminal.clean(server)))
    if chosen:
        print('# The commands ask for the same device names; libvirt may '
              'choose others')
    for removal in chosen:
        print('# %s' % terminal.clean(removal.why))
        print('# The volume must still belong to project %s, which is tested '
              'first' % terminal.clean(project))
        print(removal.command(server, project))
        for lost in removal.lost():
            print('# Not restored: %s' % terminal.clean(lost))
    for note in notes:
        print('# %s' % terminal.clean(note))
    return ExitCode.OK if chosen else ExitCode.NOTHING


def examine(entry: RecordedEntry) -> tuple[list[Removal], list[str]]:
    """Return an entry's removals, and notes on those that cannot be undone.

    :returns: the removals in the order of their device names, because a
        hypervisor that chooses the names itself hands them out in order
    """
    removals, notes = [], []
    for action in objects(entry.record, 'actions'):
        reason = str(action.get('reason'))
        kept = _KEPT_DISKS.get(str(action.get('kind')))
        if kept:
            notes += ['Nothing to undo: ' + kept % bdm.get('volume_id')
                      for bdm in objects(action, 'bdm')]
            continue
        for bdm in objects(action, 'bdm'):
            doubt = _doubt(entry, reason, bdm)
            if reason in _NOTHING_TO_UNDO:
                notes.append('Nothing to undo: '
                             + _NOTHING_TO_UNDO[reason] % bdm.get('volume_id'))
            elif doubt is None:
                notes.append('Not removed, nothing to undo: volume %s'
                             % bdm.get('volume_id'))
            else:
                removals.append(Removal(
                    spelling.identifier(str(bdm.get('volume_id'))),
                    '%s: %s' % (reason, action.get('explanation')), bdm,
                    doubt))
        notes += ['Cannot be undone: attachment %s of volume %s was deleted '
                  'as stale; no mapping in Nova referred to it'
                  % (a.get('id'), a.get('volume_id'))
                  for a in objects(action, 'attachment')
                  if 'done' in _outcomes(entry, 'delete-attachment',
                                         'attachment', a.get('id'))]
    # /dev/vdz comes before /dev/vdaa.
    removals.sort(key=lambda r: (len(r.device), r.device))
    return removals, notes


def _doubt(entry: RecordedEntry, reason: str,
           bdm: Mapping[str, Any]) -> str | None:
    """Return why a mapping may not have been removed.

    Empty: it was removed; None: it was not.
    """
    outcomes = _outcomes(entry, 'destroy', 'bdm', bdm.get('uuid'))
    if not outcomes and entry.outcome != INTERRUPTED:
        return None
    volume = bdm.get('volume_id')
    if 'done' not in outcomes:
        # The answer was lost, or nova-compute crashed.
        return ('%s, so the mapping of volume %s may have been removed or '
                'not. Use --volume %s if "openstack server volume list" does '
                'not show the volume'
                % ('deleting the mapping failed' if outcomes
                   else 'the entry is unfinished', volume, volume))
    if reason == Reason.VOLUME_MISSING:
        return ('volume %s did not exist in Cinder. Use --volume %s if '
                'Cinder was wrong' % (volume, volume))
    return '' if volume else 'the mapping named no volume'


def _outcomes(entry: RecordedEntry, step: str, key: str,
              value: Any) -> set[str]:
    return {s.outcome for s in entry.steps
            if s.name == step and s.subject.get(key) == value}


def _words(words: Sequence[str]) -> str:
    return ' '.join(map(_quoted, words))


def _quoted(word: str) -> str:
    """Quote a word for the shell, with characters that do not print."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'%s'" % ''.join(
        c if c.isprintable() and c not in "\\'"
        else ''.join('\\x%02x' % b for b in c.encode('utf-8', 'replace'))
        for c in word)
