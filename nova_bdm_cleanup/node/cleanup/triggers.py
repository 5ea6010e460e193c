# SPDX-License-Identifier: Apache-2.0
"""The triggers: the operations of Nova in which a server is cleaned up.

A new trigger needs a :class:`Trigger` here, in ``TRIGGERS``, and rows in
:mod:`nova_bdm_cleanup.node.hooks.table`.  A new :class:`Choice` is a new word
of ``[bdm_cleanup] triggers``, and its help is part of the option's.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import enum

from nova_bdm_cleanup.rules.facts import Server
from nova_bdm_cleanup.rules.reasons import Reason


class InstanceHost(enum.Enum):
    """The host that Nova names for an instance while it is cleaned up."""

    #: This compute host.
    THIS = 'this'
    #: None: the instance is offloaded, and its volumes are connected nowhere.
    NONE = 'none'
    #: Perhaps the source host, where its volumes are connected.
    ANY = 'any'


class Payer(enum.Enum):
    """Whose hourly limit the removals of a trigger count towards."""

    #: The project of the server, whose members can ask for the operation: they
    #: must not use up the limit of others.
    PROJECT = 'project {0.project}'
    #: The host: only the operator brings the operation about.
    HOST = 'this host'
    #: The server alone: the operation can no longer be refused, or a limit
    #: that servers share would leave some of them on a host that is down.
    SERVER = 'server {0.uuid}'

    def of(self, server: Server) -> str:
        """Return who is charged for a server."""
        return self.value.format(server)


@dataclasses.dataclass(frozen=True)
class Choice:
    """A word of ``[bdm_cleanup] triggers``."""

    word: str
    #: The meaning of the word, for the help of the option.
    help: str


@dataclasses.dataclass(frozen=True)
class Trigger:
    """An operation of Nova in which a server is cleaned up."""

    #: The name in the journal, in the metrics and in the table of hooks.
    name: str
    #: The task states of an instance in this operation.
    states: frozenset[str | None]
    #: The reason for doing nothing if the instance is in another state.
    lost: Reason
    #: What Nova does when nothing is cleaned up, for the log.
    goes_on: str
    #: What cleans up the rest, for the log.
    next_try: str
    #: Who is charged for its removals.
    payer: Payer
    #: The word that selects it; None: it is selected whenever the plugin is
    #: on, or it has no hook.
    choice: Choice | None = None
    #: The guest is usually on.  A removal powers it off first; if all removals
    #: are withheld, the guest keeps its disks.  With any other trigger nothing
    #: is removed unless the guest is provably off.
    guest_is_on: bool = False
    #: Nova holds its lock of the instance, or none is needed.  Otherwise the
    #: cleanup takes it.
    nova_holds_lock: bool = False
    #: It removes something, unless that is withheld.
    removes: bool = True
    #: The host that Nova names for the instance.
    instance_host: InstanceHost = InstanceHost.THIS
    #: The addresses in the rows are those of this host.  Those of a server
    #: that comes to it are not: nothing is disconnected by them, and Nova
    #: gives the driver new ones.
    uses_rows_addresses: bool = True
    #: The reason for which every removal is withheld; None: it is not.  Disks
    #: that must not be connected are still taken out of the driver's list.
    withheld_for: Reason | None = None
    #: Whether to look for stale attachments, too.
    finds_stale: bool = False
    #: The maximum duration of a cleanup in seconds, besides the options.
    max_seconds: float | None = None


STARTS = Choice('start', """\
starts of servers that are off, also by an undelete, and interrupted starts
that nova-compute resumes. A guest that already runs is not changed.""")

HOST_BOOTS = Choice('host_boot', """\
servers that nova-compute resumes when the host boots. It does so only if
``[DEFAULT] resume_guests_state_on_host_boot`` is set.""")

MOVES = Choice('move', """\
operations that take a server from its host or bring it to another one:
resizes, cold migrations and their reverts, shelves, unshelves, evacuations and
the return of the old host, and live migrations. What dangles is looked for
before anything is changed. It is removed when the guest is off, before Nova
creates new attachments; if it may not be removed, the operation is refused. A
live migration removes nothing: it is refused if it would attach a volume of
another project, or one that is not ``available``, or disconnect the disk of
another guest.""")

DELETES = Choice('delete', """\
deletes of servers, also when soft-deleted servers are reclaimed, or guests are
found that were deleted while the host was down. A disk that another guest of
this host already uses is not disconnected.""")

HARD_REBOOT = Trigger(
    name='hard_reboot',
    states=frozenset((
        'rebooting_hard', 'reboot_pending_hard', 'reboot_started_hard')),
    lost=Reason.REBOOT_LOST,
    goes_on='the reboot goes on',
    next_try='the next hard reboot tries again',
    payer=Payer.PROJECT,
    guest_is_on=True,
    nova_holds_lock=True,
    finds_stale=True)

#: It changes nothing, and before Nova 28 a soft reboot asks Cinder for
#: nothing.
SOFT_REBOOT = Trigger(
    name='soft_reboot',
    states=frozenset(('rebooting', 'reboot_pending', 'reboot_started')),
    lost=Reason.REBOOT_LOST,
    goes_on='the reboot goes on',
    next_try='a hard reboot tries again',
    payer=Payer.PROJECT,
    guest_is_on=True,
    nova_holds_lock=True,
    withheld_for=Reason.SOFT_REBOOT,
    finds_stale=True,
    max_seconds=5.0)

#: Also undelete, and an interrupted start that nova-compute resumes.
START = Trigger(
    name='start',
    states=frozenset(('powering-on', 'restoring')),
    lost=Reason.START_LOST,
    goes_on='the start goes on',
    next_try='the next start tries again',
    payer=Payer.PROJECT,
    choice=STARTS,
    finds_stale=True)

#: Nova sets no task state while it resumes a guest.
HOST_BOOT = Trigger(
    name='host_boot',
    states=frozenset((None,)),
    lost=Reason.START_LOST,
    goes_on='the server is resumed',
    next_try='the next cleanup of the server tries again',
    payer=Payer.HOST,
    choice=HOST_BOOTS)

# In every move Nova asks Cinder for the attachments before it defines the
# guest again: a dangling mapping makes the operation fail half way, or is
# attached again.

#: The source's part of a resize or a cold migration, and the destination's
#: part of a revert.
MOVE = Trigger(
    name='move',
    states=frozenset(('resize_prep', 'resize_migrating', 'resize_reverting')),
    lost=Reason.MOVE_LOST,
    goes_on='the move goes on',
    next_try='the other host tries again',
    payer=Payer.PROJECT,
    choice=MOVES)

#: The other host's part of these: it takes over what the first one could not
#: remove.  It disconnects nothing, and so needs no lock, which Nova holds only
#: in a revert from another cell.
FINISH = Trigger(
    name='finish',
    states=frozenset(('resize_finish', 'resize_reverting')),
    lost=Reason.MOVE_LOST,
    goes_on='the move goes on',
    next_try='a hard reboot tries again',
    payer=Payer.SERVER,
    choice=MOVES,
    nova_holds_lock=True,
    uses_rows_addresses=False)

#: The instance leaves its host.
SHELVE = Trigger(
    name='shelve',
    states=frozenset(('shelving', 'shelving_offloading')),
    lost=Reason.MOVE_LOST,
    goes_on='the server is shelved',
    next_try='an unshelve tries again',
    payer=Payer.PROJECT,
    choice=MOVES,
    nova_holds_lock=True)

#: The instance comes back, perhaps on another host.
UNSHELVE = Trigger(
    name='unshelve',
    states=frozenset(('unshelving',)),
    lost=Reason.MOVE_LOST,
    goes_on='the server is unshelved',
    next_try='the next unshelve tries again',
    payer=Payer.PROJECT,
    choice=MOVES,
    nova_holds_lock=True,
    instance_host=InstanceHost.NONE,
    uses_rows_addresses=False)

#: The former host is down.
EVACUATE = Trigger(
    name='evacuate',
    states=frozenset(('rebuilding',)),
    lost=Reason.MOVE_LOST,
    goes_on='the evacuation goes on',
    next_try='the next evacuation tries again',
    payer=Payer.SERVER,
    choice=MOVES,
    instance_host=InstanceHost.ANY,
    uses_rows_addresses=False)

#: The host is back from which the instance was evacuated.
RETURN = Trigger(
    name='return',
    states=frozenset(),
    lost=Reason.MOVE_LOST,
    goes_on='nova-compute starts',
    next_try='an operator has to look for its device on this host',
    payer=Payer.HOST,
    choice=MOVES,
    removes=False,
    instance_host=InstanceHost.ANY)

#: The guest runs, and keeps what it has.
LIVE_MIGRATION = Trigger(
    name='live_migration',
    states=frozenset(('migrating',)),
    lost=Reason.MOVE_LOST,
    goes_on='the live migration goes on',
    next_try='a hard reboot removes it',
    payer=Payer.HOST,
    choice=MOVES,
    guest_is_on=True,
    withheld_for=Reason.GUEST_RUNNING,
    max_seconds=10.0)

#: Its volumes are disconnected once more, and then the instance is gone.  Nova
#: sets no task state when it deletes what is soft-deleted.
DELETE = Trigger(
    name='delete',
    states=frozenset(),
    lost=Reason.MOVE_LOST,
    goes_on='the server is deleted',
    next_try='an operator has to look for its device on this host',
    payer=Payer.PROJECT,
    choice=DELETES,
    removes=False)

#: The periodic audit.  It changes nothing, and has no hook.
AUDIT = Trigger(
    name='audit',
    states=frozenset(),
    lost=Reason.NOT_LOOKED_AT,
    goes_on='an audit changes nothing',
    next_try='the next round looks again',
    payer=Payer.HOST)

#: All triggers with hooks; the words of the option are in this order.
TRIGGERS: Sequence[Trigger] = (
    HARD_REBOOT, SOFT_REBOOT, START, HOST_BOOT, MOVE, FINISH, SHELVE,
    UNSHELVE, EVACUATE, RETURN, LIVE_MIGRATION, DELETE)

#: The triggers that no word selects.
ALWAYS_ON: Sequence[Trigger] = tuple(
    trigger for trigger in TRIGGERS if trigger.choice is None)

#: The words of ``[bdm_cleanup] triggers``.
CHOICES: Sequence[Choice] = tuple(dict.fromkeys(
    trigger.choice for trigger in TRIGGERS if trigger.choice is not None))


def selected_by(*choices: Choice) -> tuple[Trigger, ...]:
    """Return the triggers that some words of the option select."""
    return tuple(trigger for trigger in TRIGGERS if trigger.choice in choices)
