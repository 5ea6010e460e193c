# SPDX-License-Identifier: Apache-2.0
"""Mutants of the host's side and of the hooks, and of what asks Cinder."""

from __future__ import annotations

from nova_bdm_cleanup.tests.mutants.mutant import Mutant

_HOST = 'plugin/host.py'
_SESSIONS = 'plugin/sessions.py'
_NEIGHBOURS = 'plugin/neighbours.py'
_ADDRESSES = 'plugin/addresses.py'
_HOOK = 'plugin/hook.py'
_CLEANING = 'plugin/cleaning.py'
_SWEEPING = 'plugin/sweeping.py'
_CINDER = 'openstack/cinder.py'

MUTANTS = (

    # What Nova says of the server

    Mutant('server-of-another-host',
           'A server is cleaned up that is on another host by now.',
           _HOST, (
               ('not self._is_here(instance)\n                or ',
                ''),)),

    Mutant('task-state-not-looked-at',
           'A server is cleaned up with which something else is going on.',
           _HOST, (
               ('                or instance.task_state not in '
                'self._trigger.states\n',
                ''),)),

    Mutant('sweep-of-a-server-that-is-on',
           'A sweep cleans up a server that somebody has started.',
           _HOST, (
               ('                or self._trigger.gives_way\n'
                '                and instance.vm_state != vm_states.STOPPED):',
                '                ):'),)),

    Mutant('claim-looks-at-nothing',
           'A start, a sweep or the boot of a host goes on with a server that '
           'somebody else has taken.',
           _HOST, (
               ('            if self.server() is None:\n'
                '                raise RebootLost(',
                '            if False:\n'
                '                raise RebootLost('),)),

    Mutant('claim-takes-the-server-from-others',
           'A reboot claims a server that is no longer being rebooted.',
           _HOST, (
               ('            self._instance.save(\n'
                '                expected_task_state='
                'task_states.hard_reboot_states)\n',
                '            self._instance.save()\n'),)),

    Mutant('claim-is-not-pending',
           'After a crash Nova does not take the reboot up again, and the '
           'server stays off.',
           _HOST, (
               ('        self._instance.task_state = '
                'task_states.REBOOT_PENDING_HARD\n',
                ''),)),

    Mutant('former-mapping-of-another-volume',
           'A device goes by the address of another volume.',
           _HOST, (
               ('                and spelling.optional(row.volume_id) == '
                'attachment.volume_id\n',
                ''),)),

    Mutant('swap-that-died-not-seen',
           'A swap that nova-compute never ended counts for nothing.',
           'plugin/begun.py', (
               ('return tuple(swap for swap in found if swap is not None)',
                'return tuple(s for s in found if s is not None and s.ended)'),
           )),

    Mutant('what-is-not-here-disconnected',
           'os-brick looks for a disk that is gone, and finds that of another '
           'server.',
           _HOST, (
               ('here = sessions.narrowed(connection_info, before.keys())',
                'pass'),)),

    Mutant('sessions-of-others-told',
           'os-brick is told the targets of other servers.',
           _SESSIONS, (('if target[1].lower() == name.lower()]', ']'),)),

    Mutant('device-without-a-session-forgotten',
           'A multipath device that lost its paths stays for good.',
           _SESSIONS, (('if not live and not found:', 'if not live:'),)),

    Mutant('name-of-a-device-believed',
           'The encrypted disk of another server is closed, which has the '
           'name by now.',
           _SESSIONS, (("del own['device_path']", 'pass'),)),

    Mutant('silent-disconnect-believed',
           'os-brick leaves a device behind, says nothing, and is believed.',
           _HOST, (
               ('        if left:\n            raise StillConnected(',
                '        if left and error:\n            raise StillConnected('
                ),)),

    Mutant('error-of-a-disconnect-swallowed',
           'Nothing was disconnected, and Cinder gives the volume away.',
           _HOST, (
               ('        if error and not before:\n            raise error\n',
                ''),)),

    # The other servers of the host

    Mutant('neighbour-on-its-way-ignored',
           'A disk goes that a server needs which is moving to this host.',
           _NEIGHBOURS, (('if user.task_state in _MOVING:', 'if False:'),)),

    Mutant('address-of-a-moving-server-ignored',
           'The disk of a server goes that is moving to or from this host.',
           _NEIGHBOURS, (
               ('if row.instance_uuid in moving and _may_have_address(row):',
                'if False:'),)),

    Mutant('migration-to-this-host-ignored',
           'The disk of a server goes that is not on this host yet.',
           _NEIGHBOURS, (
               ('        for uuid in migrating - servers.keys():\n',
                '        for uuid in ():\n'),)),

    Mutant('address-check-without-swaps',
           'The new disk of a swap goes, which no row names before its end.',
           _NEIGHBOURS, (
               ('        moving |= {uuid for uuid in here - moving - ',
                '        moving |= {uuid for uuid in set() - '),)),

    Mutant('address-of-an-attach-ignored',
           'The disk goes that is just being connected for another server.',
           _NEIGHBOURS, (
               ('if row.connection_info is None and row.attachment_id and (',
                'if False and ('),)),

    Mutant('addresses-of-one-path-only',
           'The disk of another server goes, whose other paths have the '
           'address.',
           _ADDRESSES, (
               ('    return frozenset([*_pairs(one, unit or units),\n'
                '                      *_pairs(several, units or unit)])',
                '    return frozenset(_pairs(one, unit or units))'),)),

    Mutant('addresses-in-pairs-only',
           'The disk of another server goes, since lists of unlike length are '
           'cut.',
           _ADDRESSES, (
               ('    return itertools.product(targets, units)',
                '    return zip(targets, units)'),)),

    # The hooks

    Mutant('withheld-disks-left-in-a-reboot',
           'The driver connects a disk again of which the removal failed.',
           _HOOK, (('cleaning.withhold(', 'cleaning.clean('),)),

    Mutant('withheld-disks-left-in-a-start',
           'A start connects a disk again of which the removal failed.',
           'plugin/bring_back.py', (
               ('cleaning.take_out(bdms, withheld)', 'pass'),)),

    Mutant('soft-reboot-removes',
           'A soft reboot takes a disk from a guest that goes on with it.',
           _CLEANING, (
               ('self.cleaner.report if self._trigger.only_reports\n'
                '                        else self.cleaner.clean',
                'self.cleaner.clean'),)),

    Mutant('sweep-removes-what-was-not-told',
           'A sweep removes what the round before did not see and tell.',
           _CLEANING, (
               ('self.host.known_server(),\n            seen=seen)',
                'self.host.known_server())'),)),

    Mutant('start-does-not-wait-for-a-sweep',
           'A start connects a disk while a sweep disconnects it.',
           _SWEEPING, (('over.wait(SWEEP.longest)', 'pass'),)),

    # What asks Cinder

    Mutant('any-failure-is-a-missing-volume',
           'A volume of which Cinder fails to tell counts as deleted.',
           'openstack/api.py', (
               ('answers.quoted(identifier)))\n'
                '        except errors.NotFound:\n',
                'answers.quoted(identifier)))\n'
                '        except errors.ApiError:\n'),)),

    Mutant('server-id-as-somebody-wrote-it',
           'Who writes the id of a server in capitals keeps it from being '
           'cleaned up.',
           _CINDER, (
               ("answers.optional_identifier(record, 'instance')",
                "answers.optional_text(record, 'instance')"),)),

    Mutant('volume-not-on-the-list-is-missing',
           'A volume that is not on Cinder\'s list counts as deleted.',
           _CINDER, (
               ('                found[volume_id] = self.volume(volume_id)\n',
                '                found[volume_id] = None\n'),)),
)
