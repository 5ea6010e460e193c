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

from nova_bdm_cleanup.rules.facts import Guest, Server
from nova_bdm_cleanup.rules.reasons import Reason


class Mode(enum.Enum):
    """The effect of an operation on the guest and its disks.

    It decides what a cleanup may do, and when.
    """

    #: The guest is usually on, and Nova starts it again by the rows.  A
    #: removal powers it off first; if all removals are withheld, it keeps its
    #: disks.
    REBOOT = 'reboot'
    #: The guest keeps its disks, unless the driver restarts it.  Nothing is
    #: removed.
    REPORT = 'report'
    #: Nova starts the guest by the rows.  Nothing is removed unless the guest
    #: is provably off.
    START = 'start'
    #: The server leaves this host: the driver disconnects its disks, and Nova
    #: makes new attachments.  Nothing is removed unless the guest is provably
    #: off.
    LEAVE = 'leave'
    #: The server comes to this host, where nothing of it is connected.  The
    #: addresses in its rows are another host's: nothing is disconnected by
    #: them, and Nova gives the driver new ones.
    ARRIVE = 'arrive'
    #: The driver disconnects the disks for good.  Nothing is removed.
    DISCONNECT = 'disconnect'
    #: Nova does nothing with the disks.  Nothing is removed.
    LOOK = 'look'
    #: Nova does nothing with the disks, and the guest goes on with them:
    #: mappings take over the attachments by which it has them.  No mapping is
    #: removed, and nothing is disconnected.
    ADOPT = 'adopt'

    @property
    def removes(self) -> bool:
        """Tell whether anything is removed, reconnected or adopted, unless
        that is withheld.
        """
        return self in (Mode.REBOOT, Mode.START, Mode.LEAVE, Mode.ARRIVE,
                        Mode.ADOPT)

    @property
    def is_operation(self) -> bool:
        """Tell whether Nova carries out an operation of the server, whose
        events say what is left.

        Otherwise the cleanup itself claims the server, and gives it back.
        """
        return self not in (Mode.LOOK, Mode.ADOPT)

    @property
    def starts_guest(self) -> bool:
        """Tell whether Nova starts the guest by the addresses in its rows."""
        return self in (Mode.REBOOT, Mode.REPORT, Mode.START)

    @property
    def guest(self) -> Guest:
        """Return the guest in the operation; a look is for a hard reboot."""
        return (Guest.STARTS if self.starts_guest or self is Mode.LOOK
                else {Mode.ARRIVE: Guest.ARRIVES, Mode.ADOPT: Guest.GOES_ON}
                .get(self, Guest.OTHER))

    @property
    def may_run(self) -> bool:
        """Tell whether the guest may be on while it is cleaned up."""
        return self in (Mode.REBOOT, Mode.REPORT, Mode.ADOPT)


class Payer(enum.Enum):
    """Whose hourly limit the removals of a trigger count towards."""

    #: The project of the server, whose members can ask for the operation: they
    #: must not use up the limit of others.
    PROJECT = 'project {0.project}'
    #: The host: only the operator brings the operation about.
    HOST = 'this host'
    #: The server alone: with a limit that servers share, some of them would
    #: fail to leave a host that is down.
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
    mode: Mode
    #: The word that selects it; None: it is selected whenever the plugin is
    #: on, or it has no hook.
    choice: Choice | None = None
    #: Nova holds its lock of the instance, or none is needed.  Otherwise the
    #: cleanup takes it.
    nova_holds_lock: bool = False
    #: An administrator's lock of the server withholds every removal.
    heeds_lock: bool = True
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
the return of the old host, and live migrations. What dangles is removed when
the guest is off, before Nova creates new attachments; if it may not be
removed, Nova goes on as without the plugin. An unshelve or an evacuation that
failed can be repeated: each disk has one attachment before Nova connects it. A
disk whose address another server of the host claims is not disconnected. In a
live migration nothing is removed.""")

DELETES = Choice('delete', """\
deletes of servers, also when soft-deleted servers are reclaimed, or guests are
found that were deleted while the host was down. A disk whose address another
server of the host claims is not disconnected.""")

HARD_REBOOT = Trigger(
    name='hard_reboot',
    states=frozenset((
        'rebooting_hard', 'reboot_pending_hard', 'reboot_started_hard')),
    lost=Reason.REBOOT_LOST,
    goes_on='the reboot goes on',
    next_try='the next hard reboot tries again',
    payer=Payer.PROJECT,
    mode=Mode.REBOOT,
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
    mode=Mode.REPORT,
    nova_holds_lock=True,
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
    mode=Mode.START,
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
    mode=Mode.START,
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
    next_try='a hard reboot tries again',
    payer=Payer.PROJECT,
    mode=Mode.LEAVE,
    choice=MOVES)

#: nova-compute died in the source's part of a move, and now starts the guest
#: on the source.
INTERRUPTED_MOVE = Trigger(
    name='interrupted_move',
    states=frozenset(('resize_migrating',)),
    lost=Reason.MOVE_LOST,
    goes_on='the guest is started',
    next_try='a hard reboot tries again',
    payer=Payer.HOST,
    mode=Mode.START,
    choice=MOVES)

#: The instance leaves its host.
SHELVE = Trigger(
    name='shelve',
    states=frozenset(('shelving', 'shelving_offloading')),
    lost=Reason.MOVE_LOST,
    goes_on='the server is shelved',
    next_try='an unshelve tries again',
    payer=Payer.PROJECT,
    mode=Mode.LEAVE,
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
    mode=Mode.ARRIVE,
    choice=MOVES,
    nova_holds_lock=True,
    finds_stale=True)

#: The former host is down.  Only an administrator evacuates a server, and
#: Masakari locks it before that.
EVACUATE = Trigger(
    name='evacuate',
    states=frozenset(('rebuilding',)),
    lost=Reason.MOVE_LOST,
    goes_on='the evacuation goes on',
    next_try='the next evacuation tries again',
    payer=Payer.SERVER,
    mode=Mode.ARRIVE,
    choice=MOVES,
    heeds_lock=False,
    finds_stale=True)

#: The host is back from which the instance was evacuated.
RETURN = Trigger(
    name='return',
    states=frozenset(),
    lost=Reason.MOVE_LOST,
    goes_on='nova-compute starts',
    next_try='an operator has to look for its device on this host',
    payer=Payer.HOST,
    mode=Mode.DISCONNECT,
    choice=MOVES)

#: Its end on the source.  The guest runs on the other host, and keeps what it
#: has.
LIVE_MIGRATION = Trigger(
    name='live_migration',
    states=frozenset(('migrating',)),
    lost=Reason.MOVE_LOST,
    goes_on='the live migration goes on',
    next_try='a hard reboot removes it',
    payer=Payer.HOST,
    mode=Mode.DISCONNECT,
    choice=MOVES,
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
    mode=Mode.DISCONNECT,
    choice=DELETES)

#: The periodic audit.  It changes nothing, and has no hook.  Cinder may be
#: slow for many servers, and their looks must not fill the interval.
AUDIT = Trigger(
    name='audit',
    states=frozenset((None,)),
    lost=Reason.MOVE_LOST,
    goes_on='an audit changes nothing',
    next_try='the next round looks again',
    payer=Payer.HOST,
    mode=Mode.LOOK,
    finds_stale=True,
    max_seconds=15.0)

#: A live migration has failed, and the guest still runs on this host: Nova has
#: rolled it back, or has given it up at its start.
ROLLBACK = Trigger(
    name='rollback',
    states=frozenset((None,)),
    lost=Reason.MOVE_LOST,
    goes_on='the guest goes on',
    next_try='"nova-bdm-cleanup repair" tries again',
    payer=Payer.HOST,
    mode=Mode.ADOPT,
    # The plugin takes it before the first look.
    nova_holds_lock=True,
    finds_stale=True)

#: An administrator has asked for it on this host; it has no hook.
REPAIR = dataclasses.replace(ROLLBACK, name='repair', max_seconds=30.0)

#: The guest of a server is still on that is about to be rebooted hard.
BEFORE_REBOOT = dataclasses.replace(
    HARD_REBOOT, name='before_reboot', mode=Mode.ADOPT)

#: All triggers with hooks; the words of the option are in this order.
TRIGGERS: Sequence[Trigger] = (
    HARD_REBOOT, SOFT_REBOOT, START, HOST_BOOT, MOVE, INTERRUPTED_MOVE, SHELVE,
    UNSHELVE, EVACUATE, RETURN, LIVE_MIGRATION, ROLLBACK, DELETE)

#: The triggers that no word selects.
ALWAYS_ON: Sequence[Trigger] = tuple(
    trigger for trigger in TRIGGERS if trigger.choice is None)

#: The words of ``[bdm_cleanup] triggers``.
CHOICES: Sequence[Choice] = tuple(dict.fromkeys(
    trigger.choice for trigger in TRIGGERS if trigger.choice is not None))


def selected_by(*choices: Choice) -> tuple[Trigger, ...]:
    """Return the triggers that some words of the option select."""
    return tuple(trigger for trigger in TRIGGERS if trigger.choice in choices)
