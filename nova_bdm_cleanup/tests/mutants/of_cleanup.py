# SPDX-License-Identifier: Apache-2.0
"""Mutants of the looks, of the order of the steps, and of the triggers."""

from __future__ import annotations

from nova_bdm_cleanup.tests.mutants.mutant import Mutant

_CLEANER = 'cleanup/cleaner.py'
_ACTIONS = 'cleanup/actions.py'
_TRIGGERS = 'cleanup/clock_triggers.py'

_UNDEFINE = (
    "            self._step(finding, 'undefine', lambda: "
    'self.host.undefine(bdm),\n'
    '                       bdm=bdm.uuid, volume=bdm.volume_id)\n')

MUTANTS = (

    # The looks

    Mutant('no-second-look',
           'What changed while the guest was switched off is not noticed.',
           _CLEANER, (
               ('        again = self._look_again(plan) if '
                'self.trigger.switches_off else plan\n',
                '        again = plan\n'),)),

    Mutant('no-look-under-the-lock',
           'What somebody did while the lock was waited for is not noticed.',
           _CLEANER, (('plan = self._look_again(plan)', 'pass'),)),

    Mutant('lock-that-is-not-had-ignored',
           'A server is cleaned up while Nova works on it.',
           _CLEANER, (
               ('plan = plan.withhold(self._reason_of(exc),\n'
                '                                         '
                'loglines.masked(exc))',
                'plan = self._look(bdms)'),)),

    Mutant('errors-taken-for-gone',
           'While Cinder is in trouble, every volume counts as deleted.',
           _CLEANER, (
               ('        volumes, attachments, is_cut = self._ask(\n'
                '            lambda: self.cinder.look(server.uuid, bdms, '
                'server.project))\n',
                '        try:\n'
                '            volumes, attachments, is_cut = self._ask(\n'
                '                lambda: self.cinder.look('
                'server.uuid, bdms, server.project))\n'
                '        except errors.ApiError:\n'
                '            volumes = dict.fromkeys('
                'b.volume_id for b in bdms if b.volume_id)\n'
                '            attachments, is_cut = (), False\n'),)),

    Mutant('server-that-is-lost-cleaned-up',
           'A server is cleaned up that has left this host, or the reboot.',
           _CLEANER, (
               ('current = self.host.server()',
                'current = self.host.server() or server'),)),

    Mutant('running-guest-not-asked',
           'A guest that runs all the same loses its disk under its feet.',
           _CLEANER, (
               ('or self.host.is_off())', 'or True)'),)),

    # The plan

    Mutant('journal-after-the-act',
           'After a crash nobody can tell what was removed, or undo it.',
           _CLEANER, (
               ('        begun = time.monotonic()\n'
                '        deletions = ',
                '        class NotYet:\n'
                "            id = '-'\n"
                '\n'
                '            def step(self, *step: Any, **subject: Any):\n'
                '                pass\n'
                '\n'
                '        acting = actions.Actions(\n'
                '            self.host, self.cinder, NotYet(), '
                'self.audit,\n'
                '            self.trigger, self.deadline)\n'
                '        record = self._record(plan)\n'
                '        self._act_in_order(acting, plan)\n'
                '        begun = time.monotonic()\n'
                '        deletions = '),
               ('self._record(plan),', 'record,'),
               ('        acting = actions.Actions(self.host, self.cinder, '
                'entry,\n'
                '                                 self.audit, self.trigger, '
                'self.deadline)\n'
                '        self._act_in_order(acting, plan)\n',
                '        acting.entry = entry\n'))),

    Mutant('removals-of-an-hour-without-limit',
           'Something that goes wrong everywhere empties the whole host.',
           _CLEANER, (
               ('Charge(REMOVALS, plan.removals, limit)',
                'Charge(REMOVALS, 0, limit)'),)),

    Mutant('deletions-of-an-hour-without-limit',
           'Stale attachments go without end.',
           _CLEANER, (
               ('Charge(deletions, len(plan.due) - plan.removals, limit)',
                'Charge(deletions, 0, limit)'),)),

    Mutant('guest-that-stays-on-ignored',
           'The guest could not be switched off, and loses its disk under its '
           'feet.',
           _CLEANER, (
               ('        except actions.StepFailed:\n'
                '            return\n',
                '        except actions.StepFailed:\n'
                '            pass\n'),)),

    Mutant('sibling-that-changed-ignored',
           'Cinder is told although another mapping of the volume is kept.',
           _CLEANER, (('acting.leave(finding)', 'pass'),)),

    Mutant('withheld-disks-not-named',
           'The driver connects a disk again of which the removal failed.',
           _CLEANER, (
               ('        return self.removed.union(self._left_out)\n',
                '        return self.removed\n'),)),

    Mutant('second-look-without-an-answer',
           'A disk that the first look proved to be nobody\'s is connected, '
           'since nobody answered the second.',
           _CLEANER, (
               ('            return first.withhold(self._reason_of(exc))\n',
                '            self._left_out = {}\n'
                '            return first.withhold(self._reason_of(exc))\n'),
           )),

    # The order of the steps

    Mutant('row-after-cinder',
           'Cinder gives the volume away while Nova would connect it again '
           '(CVE-2023-2088).',
           _ACTIONS, (
               ('        self._destroy(finding, bdm)\n'
                '        self._tidy(finding, bdm)\n'
                '        self._tell(finding)\n'
                '        for attachment in finding.left_over:\n'
                '            self._delete(finding, attachment)\n',
                '        for attachment in finding.left_over:\n'
                '            self._delete(finding, attachment)\n'
                '        self._destroy(finding, bdm)\n'
                '        self._tidy(finding, bdm)\n'
                '        self._tell(finding)\n'),)),

    Mutant('disconnect-after-the-row',
           'After a crash nobody knows what is still connected.',
           _ACTIONS, (
               ('        if bdm.has_connection_info and not ',
                '        self._destroy(finding, bdm)\n'
                '        if bdm.has_connection_info and not '),
               ('        self._destroy(finding, bdm)\n'
                '        self._tidy(finding, bdm)\n',
                '        self._tidy(finding, bdm)\n'),)),

    Mutant('power-off-after-the-disconnect',
           'The guest writes to a disk that is being taken away.',
           _ACTIONS, (
               ("self._step(None, 'power-off', self.host.power_off)", 'pass'),
               ('            self._disconnect(finding, bdm, bdm=bdm.uuid)\n'
                '        else:\n',
                '            self._disconnect(finding, bdm, '
                'bdm=bdm.uuid)\n'
                '            if self.trigger.switches_off:\n'
                "                self._step(None, 'power-off', "
                'self.host.power_off)\n'
                '        else:\n'))),

    Mutant('no-claim',
           'After a crash Nova leaves the server off, or somebody else is at '
           'work on it.',
           _ACTIONS, (
               ("        self._step(None, 'claim', self.host.claim, "
                'quiet=True)\n',
                ''),)),

    Mutant('claim-after-the-power-off',
           'After a crash between the two Nova leaves the server off.',
           _ACTIONS, (
               ("        self._step(None, 'claim', self.host.claim, "
                'quiet=True)\n',
                ''),
               ("            self._step(None, 'power-off', "
                'self.host.power_off)\n',
                "            self._step(None, 'power-off', "
                'self.host.power_off)\n'
                "        self._step(None, 'claim', self.host.claim, "
                'quiet=True)\n'),)),

    Mutant('no-claim-before-a-disk-of-a-sweep',
           'A sweep begins with a disk of a server that somebody starts.',
           _ACTIONS, (
               ('        if self.trigger.gives_way:\n'
                '            self.host.claim()\n',
                ''),)),

    Mutant('no-claim-after-an-undefine',
           'A sweep disconnects a disk of a server that somebody started '
           'while libvirt hung.',
           _ACTIONS, (
               ('            # libvirt may have hung, longer than a start '
                'waits.\n'
                "            self._step(finding, 'claim', self.host.claim, "
                'quiet=True)\n',
                ''),)),

    Mutant('no-claim-after-a-disconnect',
           'A sweep removes the row of a disk that somebody connected again '
           'meanwhile.',
           _ACTIONS, (
               ('            # Disconnecting may have taken a while.\n'
                "            self._step(finding, 'claim', self.host.claim, "
                'quiet=True)\n',
                '            pass\n'),)),

    Mutant('no-undefine',
           'Nova takes the disk for one of its own when it resizes the '
           'server.',
           _ACTIONS, ((_UNDEFINE, ''),)),

    Mutant('undefine-after-the-row',
           'After a crash the definition of the guest names a disk that no '
           'mapping tells of.',
           _ACTIONS, (
               (_UNDEFINE, ''),
               ('        self._destroy(finding, bdm)\n'
                '        self._tidy(finding, bdm)\n',
                '        self._destroy(finding, bdm)\n'
                '        if self.trigger.gives_way:\n' + _UNDEFINE
                + '        self._tidy(finding, bdm)\n'),)),

    Mutant('no-guard',
           'A volume is connected to this host while another one of its '
           'target is disconnected, and comes back.',
           _ACTIONS, (
               ('                if finding.disconnect:\n',
                '                if finding.disconnect and not finding.bdm:'
                '\n'),)),

    Mutant('stale-attachment-stays-connected',
           'What is left of a stale attachment on this host reads the volume '
           'of somebody else.',
           _ACTIONS, (
               ('        if finding.disconnect:\n'
                "            # Cinder's",
                '        if False:\n'
                "            # Cinder's"),)),

    # What a step asks

    Mutant('neighbours-not-asked',
           'A disk goes that another server of this host uses.',
           _ACTIONS, (
               ("if host.used_by_others(bdm.volume_id or ''):",
                'if False:'),)),

    Mutant('address-not-asked',
           'The disk goes that has the address of the old one by now.',
           _ACTIONS, (('if host.is_reused(bdm, is_attached):', 'if False:'),)),

    Mutant('address-of-a-mapping-that-dangles',
           'The device is left for good, since a row that dangles has its '
           'address.',
           _ACTIONS, (('return attached', 'return True'),)),

    Mutant('failed-disconnect-taken-for-success',
           'Cinder gives a volume away that this host still has.',
           _ACTIONS, (
               ('        raise StepFailed(name) from failure\n',
                "        if name == 'disconnect':\n"
                '            return True\n'
                '        raise StepFailed(name) from failure\n'),)),

    Mutant('failed-step-does-not-stop-the-chain',
           'Cinder is told although Nova kept the row.',
           _ACTIONS, (
               ('        raise StepFailed(name) from failure\n', ''),)),

    Mutant('sibling-goes-on-after-a-stop',
           'The second mapping of a volume goes on where the first one '
           'stopped, and Cinder is told.',
           _ACTIONS, (('if volume_id in self._stopped:', 'if False:'),)),

    Mutant('legacy-attachment-plainly-deleted',
           'The back end goes on mapping a volume to this host that belongs '
           'to somebody else.',
           _ACTIONS, (('if not attachment.is_legacy:', 'if True:'),)),

    Mutant('legacy-attachment-of-a-neighbour-detached',
           'The back end takes a volume from the whole host that another '
           'server uses.',
           _ACTIONS, (
               ('if self.host.used_by_others(attachment.volume_id):',
                'if False:'),)),

    Mutant('half-connected-attachment-plainly-deleted',
           'The back end goes on mapping a volume, since Cinder takes it for '
           'never connected.',
           _ACTIONS, (
               ('complete=attachment.is_half_connected)',
                'complete=False)'),)),

    # The triggers

    Mutant('no-lock-where-the-guest-is-off',
           'A server is cleaned up while Nova works on it.',
           _CLEANER, (('locks.enter_context(self.host.lock())', 'pass'),)),

    Mutant('sweep-does-not-give-way',
           'A sweep goes on with a server that somebody wants.',
           _TRIGGERS, (
               ('    longest=10.0,\n    gives_way=True)',
                '    longest=10.0)'),)),
)
