# SPDX-License-Identifier: Apache-2.0
"""The reason codes, and how the node and the commands treat them.

A new code needs an entry of :class:`Reason`, a row of a decision table that
gives it, and a section of the runbook.
"""

from __future__ import annotations

import enum
import logging as levels


class Code(str, enum.Enum):
    """Stable words of the interface, printed as they are."""

    def __str__(self) -> str:
        return str(self.value)


class Remedy(Code):
    """The command or the person that resolves a finding."""

    CLEAN = 'clean'
    REPAIR = 'repair'
    RELEASE = 'release'
    PERSON = 'look'
    WAIT = 'wait'


class Reason(Code):
    """The reason codes.  The values are stable: operators grep for them.

    Each has

    * its value,
    * the level of a log line about a disk that is kept, or a change that is
      withheld, for this reason: INFO if it passes by itself or the operator
      chose it, ERROR if data may be lost,
    * its remedy; None: the commands have no finding with this reason, or the
      disk is healthy and needs nothing,
    * whether a round of the periodic audit reports it,
    * for a reason why the cleaner withholds a change: the same in plain
      words, for the log and the documentation.
    """

    level: int
    remedy: Remedy | None
    is_in_round: bool
    words: str

    # The defaults are for a look-up by value only.
    def __new__(cls, value: str, level: int = levels.NOTSET,
                remedy: Remedy | None = None,
                is_in_round: bool = True, words: str = '') -> Reason:
        member = str.__new__(cls, value)
        member._value_ = value
        member.level = level
        member.remedy = remedy
        member.is_in_round = is_in_round
        member.words = words
        return member

    # A healthy block device mapping.
    HEALTHY = 'healthy', levels.DEBUG, None, False

    # A dangling block device mapping: the rules ask for its removal.
    VOLUME_MISSING = (
        'volume-missing', levels.WARNING, Remedy.CLEAN, True)
    VOLUME_AVAILABLE = (
        'volume-available', levels.WARNING, Remedy.CLEAN, True)
    ATTACHED_ELSEWHERE = (
        'attached-elsewhere', levels.WARNING, Remedy.CLEAN, True)

    # A mapping of a disk that the guest never got.
    NEVER_ATTACHED = (
        'never-attached', levels.WARNING, Remedy.CLEAN, True)

    # A second mapping of a healthy disk.
    DUPLICATE_MAPPING = (
        'duplicate-mapping', levels.WARNING, Remedy.CLEAN, True)

    # A Cinder attachment of this server that no record of Nova accounts for.
    STALE_ATTACHMENT = (
        'stale-attachment', levels.WARNING, Remedy.CLEAN, True)

    # A legitimate operation is, or may be, under way: wait.
    ATTACH_IN_FLIGHT = 'attach-in-flight', levels.INFO, Remedy.WAIT, False
    OPERATION_IN_FLIGHT = (
        'operation-in-flight', levels.INFO, Remedy.WAIT, False)
    # Usually it passes, but Cinder may have lost control of the volume.
    VOLUME_BUSY = 'volume-busy', levels.WARNING, Remedy.WAIT, True

    # A disk without a complete attachment to this host: it is reconnected,
    # unless a rule keeps it.
    ATTACHMENT_MISMATCH = (
        'attachment-mismatch', levels.WARNING, Remedy.CLEAN, True)
    RESERVED_ONLY = 'reserved-only', levels.WARNING, Remedy.CLEAN, True
    HALF_MOVED = 'half-moved', levels.WARNING, Remedy.CLEAN, True

    # A person has to decide: the software cannot know which side is right.
    ROOT_VOLUME_DANGLING = (
        'root-volume-dangling', levels.ERROR, Remedy.PERSON, True)
    STATUS_CONTRADICTION = (
        'status-contradiction', levels.WARNING, Remedy.PERSON, True)
    DUPLICATE_ATTACHMENT = (
        'duplicate-attachment', levels.WARNING, Remedy.PERSON, True)
    LEGACY_ATTACHMENT = (
        'legacy-attachment', levels.WARNING, Remedy.RELEASE, True)
    CROSS_WIRED = 'cross-wired', levels.WARNING, Remedy.PERSON, True
    # Only the node knows addresses.
    ADDRESS_CLAIMED = 'address-claimed', levels.WARNING, None, False
    STUCK = 'stuck', levels.WARNING, Remedy.RELEASE, True

    # Only the commands find these.
    # Credentials of one project do not show enough to decide.
    CANNOT_SEE_PROJECT = (
        'cannot-see-project', levels.WARNING, Remedy.PERSON, True)
    # An attachment of a server that Nova does not know.
    SERVER_GONE = 'server-gone', levels.WARNING, Remedy.RELEASE, True
    # Nothing carries out the operation of a server any more.
    INTERRUPTED = 'interrupted', levels.WARNING, Remedy.PERSON, True
    # An operation has failed, and has left the server off.
    SERVER_IN_ERROR = 'server-in-error', levels.WARNING, Remedy.CLEAN, True
    # The volume is in use, but neither Nova nor an attachment names a server.
    VOLUME_UNREFERENCED = (
        'volume-unreferenced', levels.WARNING, Remedy.RELEASE, True)

    # A deleted mapping: its server was evacuated, and its host is back.
    EVACUATED = 'evacuated', levels.WARNING, None, True

    # Why a rule withholds what another rule asks for; the row has the words.
    SERVER_LOCKED = 'server-locked', levels.INFO, None, True
    SWAP_INTERRUPTED = 'swap-interrupted', levels.ERROR, None, True
    NOT_SELECTED = 'not-selected', levels.INFO, None, True
    CINDER_SUSPECT = 'cinder-suspect', levels.WARNING, None, True

    # Why the cleaner withholds it.
    OBSERVE_MODE = (
        'observe-mode', levels.WARNING, None, True,
        '[bdm_cleanup] mode is observe; in mode enforce a hard reboot would '
        'act on it')
    SOFT_REBOOT = (
        'soft-reboot', levels.WARNING, None, True,
        'a soft reboot keeps the disks as they are; a hard reboot would act '
        'on it')
    # The cleaner charges those who can bring the trigger about.
    OVER_LIMIT = (
        'over-limit', levels.WARNING, None, True,
        'the removals of one hour for this project (at a boot of the host: '
        'for all projects; in an evacuation: of this server) would exceed '
        '[bdm_cleanup] max_removals_per_hour; nothing of this kind is removed')
    SECOND_LOOK_DIFFERS = (
        'second-look-differs', levels.WARNING, None, True,
        'the second look found something else')
    TIMED_OUT = (
        'timed-out', levels.WARNING, None, True,
        '[bdm_cleanup] timeout is exceeded; the next cleanup of the server '
        'tries again')
    REBOOT_LOST = (
        'reboot-lost', levels.WARNING, None, True,
        'the server is no longer in a hard reboot on this host')
    START_LOST = (
        'start-lost', levels.WARNING, None, True,
        'the server is not being started on this host')
    MOVE_LOST = (
        'move-lost', levels.WARNING, None, True,
        'the server is no longer in this operation on this host')
    GUEST_RUNNING = (
        'guest-running', levels.WARNING, None, True,
        'the guest is not off; a hard reboot powers it off and cleans up')
    # It would be killed between two steps.
    SHUTTING_DOWN = (
        'shutting-down', levels.INFO, None, True,
        'nova-compute is shutting down; the next cleanup of the server '
        'acts on it')
    JOURNAL_UNWRITABLE = (
        'journal-unwritable', levels.WARNING, None, True,
        'the action cannot be recorded in the journal')

    # A round of the audit has no answer about a server.
    NOT_LOOKED_AT = 'not-looked-at', levels.WARNING, None, True

    # Why no decision was possible, or a step was not possible.
    CINDER_UNKNOWN = (
        'cinder-unknown', levels.WARNING, None, True,
        'Cinder gave no usable answer')
    SERVICE_TOKEN_REQUIRED = (
        'service-token-required', levels.WARNING, None, True,
        'Cinder requires a service token')
    STEP_FAILED = (
        'step-failed', levels.WARNING, None, True,
        'an earlier step of the same disk, or the second look, failed')

    @property
    def passes(self) -> bool:
        """Tell whether it usually passes by itself.

        The commands show it only on request.
        """
        return self.remedy is Remedy.WAIT


#: The reasons that only the commands find; no log line has them.
ONLY_IN_CLOUD = frozenset((
    Reason.CANNOT_SEE_PROJECT,
    Reason.INTERRUPTED,
    Reason.SERVER_GONE,
    Reason.SERVER_IN_ERROR,
    Reason.VOLUME_UNREFERENCED,
))

#: The reasons that no table of rules gives.
WITHOUT_RULE = frozenset((Reason.EVACUATED, Reason.NOT_LOOKED_AT))

#: The reasons for which a block device mapping dangles, and is removed.
DANGLING = frozenset((
    Reason.VOLUME_MISSING,
    Reason.VOLUME_AVAILABLE,
    Reason.ATTACHED_ELSEWHERE,
    Reason.NEVER_ATTACHED,
))

#: Cinder does not connect to this host what Nova has connected.  A reboot
#: that does not reconnect it changes nothing.
ENDED_HALF_WAY = frozenset((Reason.RESERVED_ONLY, Reason.HALF_MOVED))

#: The reasons for which a disk is reconnected, unless a rule keeps it.
RECONNECTED = ENDED_HALF_WAY | {Reason.ATTACHMENT_MISMATCH}

#: The reasons for which a mapping is removed, dangling or not.
REMOVED = DANGLING | {Reason.DUPLICATE_MAPPING}
