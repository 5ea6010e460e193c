# SPDX-License-Identifier: Apache-2.0
"""What brings a cleanup about, and what it may do there."""

from __future__ import annotations

import dataclasses

from nova_bdm_cleanup.rules.facts import Reason


@dataclasses.dataclass(frozen=True)
class Trigger:
    """One of the moments at which a server is cleaned up."""

    #: For the journal.
    name: str
    #: Nova's task states in which a server is there.
    states: frozenset[str | None]
    #: Why nothing is done when it is in another one.
    lost: Reason
    #: What happens when nothing is done, for the log.
    goes_on: str
    #: What does what is left to be done, for the log.
    next_try: str
    #: The guest is on as a rule and is switched off.  Elsewhere nothing is
    #: done where it cannot be proved that the guest is off.
    switches_off: bool = False
    #: Nova holds its lock of the server meanwhile.  Elsewhere it is taken.
    is_locked: bool = False
    #: The server is on no host, and its disks are connected nowhere.
    is_hostless: bool = False
    #: It comes from another host, on which its disks are connected.
    comes_from_elsewhere: bool = False
    #: Nothing is ever removed, for this reason.
    only_reports: Reason | None = None
    #: Stale attachments are looked for, too.
    finds_stale: bool = False
    #: So many seconds are waited at most, whatever the options allow.
    longest: float | None = None


HARD_REBOOT = Trigger(
    name='hard_reboot',
    states=frozenset((
        'rebooting_hard', 'reboot_pending_hard', 'reboot_started_hard')),
    lost=Reason.REBOOT_LOST,
    goes_on='the reboot goes on',
    next_try='the next hard reboot tries again',
    switches_off=True,
    is_locked=True,
    finds_stale=True)

#: It changes nothing, and no release before Nova 28 asks Cinder for anything
#: in one.
SOFT_REBOOT = Trigger(
    name='soft_reboot',
    states=frozenset(('rebooting', 'reboot_pending', 'reboot_started')),
    lost=Reason.REBOOT_LOST,
    goes_on='the reboot goes on',
    next_try='a hard reboot tries again',
    switches_off=True,
    is_locked=True,
    only_reports=Reason.SOFT_REBOOT,
    finds_stale=True,
    longest=5.0)

#: Also undelete, and a start that nova-compute takes up again.
START = Trigger(
    name='start',
    states=frozenset(('powering-on', 'restoring')),
    lost=Reason.START_LOST,
    goes_on='the start goes on',
    next_try='the next start tries again',
    finds_stale=True)

#: Nova marks the server in no way while it resumes it.
HOST_BOOT = Trigger(
    name='host_boot',
    states=frozenset((None,)),
    lost=Reason.START_LOST,
    goes_on='the server is resumed',
    next_try='the next cleanup of the server tries again')

#: The periodic audit.  It changes nothing.
AUDIT = Trigger(
    name='audit',
    states=frozenset(),
    lost=Reason.NOT_LOOKED_AT,
    goes_on='nothing was to be changed',
    next_try='the next round looks again')

#: The names of those that bring a server back on its own host.  The others are
#: in :mod:`move_triggers`.
BRINGS_BACK = (HARD_REBOOT.name, START.name, HOST_BOOT.name)
