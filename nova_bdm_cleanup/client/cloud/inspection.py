# SPDX-License-Identifier: Apache-2.0
"""One server in both APIs, judged by the rules.

A record that one API created between two requests must not look orphaned in
the other.  So Nova is asked before Cinder and once more after it: a mapping
that Nova showed first and Cinder does not know afterwards is dangling; an
attachment that Cinder showed and Nova does not know afterwards is stale.
When Nova's answers differ, the server is inspected again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
import contextlib
import dataclasses
import datetime
import enum
import functools
import math
from typing import Callable

from nova_bdm_cleanup import rules
from nova_bdm_cleanup.client.cloud.cinder import CloudCinder
from nova_bdm_cleanup.client.cloud.nova import (
    ComputeServer,
    Lock,
    mappings_of,
    Nova,
)
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules import facts, spelling
from nova_bdm_cleanup.rules.facts import Action, Finding, InCinder
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.rules.table import first, Row, Table

#: The states of a volume before its attach is complete.
_ATTACHING = ('attaching', 'reserved')

#: Attempts to inspect a server that changes meanwhile.
_LOOKS = 3


class Interruption(enum.Enum):
    """The certainty that a task state outlives its operation.

    Nova leaves it for ever where nova-compute ends in the middle.
    """

    #: The plugin says so.
    CERTAIN = 'certain'
    #: It is old, and nothing says so.
    POSSIBLE = 'possible'


@dataclasses.dataclass(frozen=True)
class Inspection:
    """The state of one server in both APIs."""

    server: ComputeServer
    plan: facts.Plan
    volumes: Mapping[str, facts.Volume | None]
    attachments: Mapping[str, facts.Attachment]
    #: None: the server is not locked.
    lock: Lock | None = None
    #: None: an operation on it is in progress, or none is.
    interruption: Interruption | None = None
    #: It is in ``ERROR``, and a reboot cannot start it.
    lacks_root: bool = False
    #: A live migration has not been completed: its guest may be on another
    #: host than Nova says.
    may_be_elsewhere: bool = False
    #: The ids of stale attachments that connect other hosts, while the guest
    #: has the disks by others, and no migration is open.
    of_other_hosts: frozenset[str] = frozenset()
    #: The volumes that Nova and Cinder agree the server has.
    agreed: frozenset[str] = frozenset()

    @property
    def of_status(self) -> tuple[facts.Finding, ...]:
        """Return the findings where perhaps only a status is wrong."""
        return tuple(f for f in self.plan.findings if is_of_status(
            f, self.volumes.get(f.volume_id or ''), self.agreed))

    @property
    def is_interrupted(self) -> bool:
        """Return whether a reset of its state and a reboot end its task."""
        return (self.interruption is Interruption.CERTAIN
                and not self.ends_by_delete)

    @property
    def needs_reboot(self) -> bool:
        """Return whether only a reboot brings the server back."""
        return self.is_interrupted or self.server.has_failed

    @property
    def is_offloaded(self) -> bool:
        """Return whether no host has it, and an unshelve gives it one."""
        return self.server.is_shelved and self.interruption is None

    @property
    def ends_by_delete(self) -> bool:
        """Return whether Nova ends its state by a delete only, if at all."""
        return self.server.is_lost or self.interruption is not None and (
            not self.server.is_startable or self.server.is_being_deleted)

    @property
    def findings(self) -> tuple[facts.Finding, ...]:
        """Return the findings that are not healthy."""
        return tuple(f for f in self.plan.findings
                     if f.reason is not Reason.HEALTHY)

    @property
    def not_connected(self) -> tuple[facts.Finding, ...]:
        """Return the mappings that a hard reboot keeps, and whose disks it
        does not connect.
        """
        return tuple(f for f in rules.not_given(self.plan).values()
                     if not f.is_due)


class Witness:
    """A volume that Nova names and Cinder must know.

    A Cinder of another region, or one restored from an old database, answers
    that every volume is gone.  So it must know at least one volume.

    :param answer: Cinder's answer, if it is known already
    """

    def __init__(self, nova: Nova, cinder: CloudCinder,
                 answer: facts.WitnessAnswer | None = None) -> None:
        self._nova = nova
        self._cinder = cinder
        self._answer = answer

    def answer(self) -> facts.WitnessAnswer:
        """Return Cinder's answer; ask for it only the first time."""
        if self._answer is None:
            self._answer = self._cinder.witness(
                volume for page in self._nova.servers(self._cinder.sees_all)
                for server in page for volume in server.volumes)
        return self._answer


@dataclasses.dataclass
class Cloud:
    """Both APIs, as seen with the credentials of a command."""

    nova: Nova
    cinder: CloudCinder
    #: The rules' limits for young, stuck and too many.
    policy: facts.Policy
    #: The project of the credentials.
    project: str | None
    #: Called with the current step and its count.
    progress: Callable[[str, int], None]
    #: Returns whether a compute node has the plugin in mode ``enforce``;
    #: None: it is not known.
    has_plugin: Callable[[str | None], bool | None] = lambda node: None
    #: Returns the time, with its time zone.
    now: Callable[[], datetime.datetime] = functools.partial(
        datetime.datetime.now, datetime.timezone.utc)

    def __post_init__(self) -> None:
        self.witness = Witness(self.nova, self.cinder)

    def lacks_plugin(self, node: str | None) -> bool:
        """Return whether a compute node is known to be without the plugin."""
        return self.has_plugin(node) is False

    def inspect(self, server_id: str, named: Sequence[str] = (),
                closely: bool = False,
                witness: Witness | None = None,
                heeds_owners_lock: bool = True) -> Inspection | None:
        """Inspect a server; return None where Nova does not know it.

        :param named: attachments that name it, also where Cinder's list for
            the server leaves them out
        :param closely: list the attachments at once, as in a second attempt
        :param witness: replaces the one of this cloud; it is asked only
            where Cinder knows no volume of the server
        :param heeds_owners_lock: keep also what its owner has locked; the
            plugin does not
        :raises ApiError: when any request went unanswered
        """
        nova, cinder = self.nova, self.cinder
        server = nova.server(server_id)
        for attempt in range(_LOOKS):
            if server is None:
                return None
            self._check_project(server)
            disks = nova.disks(server)
            if disks is None:
                return None
            bdms = mappings_of(server, disks)
            volumes, attachments, _ = cinder.look(
                server.id, bdms, server.project, named,
                closely or attempt > 0)
            after = nova.server(server.id)
            settled = after == server and nova.disks(server) == disks
            if settled:
                break
            server = after
        if server is None:
            return None
        bdms = tuple(_with_legacy(b, server, volumes) for b in bdms)
        lock = nova.lock(server)
        interruption = (self._interruption(server) if disks and settled
                        else None)
        shown = server
        if interruption is Interruption.CERTAIN:
            # Its disks are judged for the reboot after the reset.
            server = server.reset()
        snapshot = facts.Snapshot(
            server=facts.Server(
                uuid=server.id, project=server.project,
                host=server.host or '',
                is_offloaded=server.is_shelved,
                is_locked=lock is not None and (
                    heeds_owners_lock or not lock.is_owners),
                is_busy=server.is_busy),
            bdms=bdms, volumes=volumes, attachments=attachments,
            sees_all=cinder.sees_all)
        policy, now = self.policy, self.now()
        plan = rules.judge(
            snapshot, _CommandSources(
                nova, server, snapshot.server, witness or self.witness),
            policy, now)
        by_id = {a.id: a for a in attachments}
        swapped = self._swapped(server, bdms, attachments)
        agreed = _agreed(server, bdms, volumes, attachments)
        plan = facts.Plan(tuple(
            in_context(ContextFacts(
                f, server, settled, volumes.get(f.volume_id or ''),
                by_id.get(f.attachment_id or ''), policy, now,
                interruption, shown, swapped, agreed))
            for f in (*([Finding(Reason.OPERATION_IN_FLIGHT, '')]
                        if interruption or disks and settled
                        and shown.has_failed else ()), *plan.findings)))
        return Inspection(
            shown, plan, volumes, by_id, lock, interruption,
            nova.lacks_root(shown), self._may_be_elsewhere(shown, plan),
            self._of_other_hosts(shown, plan, {b.volume_id for b in bdms}),
            agreed)

    def _of_other_hosts(self, server: ComputeServer, plan: facts.Plan,
                        mapped: Collection[str | None]) -> frozenset[str]:
        # Beside a mapping, only what connects another host is stale.
        found = frozenset(
            f.attachment.id for f in plan.findings
            if f.reason is Reason.STALE_ATTACHMENT and f.attachment
            and f.attachment.status == 'attached'
            and f.attachment.volume_id in mapped)
        if not found or not server.has_guest:
            return frozenset()
        # Nova tells administrators only.
        with contextlib.suppress(errors.Forbidden):
            if not self.nova.is_migrated(server.id):
                return found
        return frozenset()

    def _may_be_elsewhere(self, server: ComputeServer, plan: facts.Plan
                          ) -> bool:
        if not server.has_guest or not any(
                f.reason is Reason.HALF_MOVED for f in plan.findings):
            return False
        with contextlib.suppress(errors.Forbidden):
            return self.nova.has_failed_live_migration(server.id)
        return False

    def _swapped(self, server: ComputeServer, bdms: Sequence[facts.Bdm],
                 attachments: Sequence[facts.Attachment]) -> frozenset[str]:
        mapped = {b.volume_id for b in bdms}
        found = frozenset(
            a.id for a in attachments
            if spelling.is_same(a.server_id or '', server.id)
            and a.volume_id not in mapped and not a.only_reserves)
        return (found if found and self.cinder.sees_all
                and self.nova.swaps(server.id) is not facts.Ending.SUCCESS
                else frozenset())

    def _interruption(self, server: ComputeServer) -> Interruption | None:
        if not server.task_state:
            return None
        # What is on no host is not seen when a nova-compute starts.
        if not server.is_nowhere and self.nova.was_interrupted(server):
            return Interruption.CERTAIN
        return Interruption.POSSIBLE if self.policy.is_stuck(
            server.updated_at, self.now()) else None

    def _check_project(self, server: ComputeServer) -> None:
        """Refuse the wrong project: Cinder silently hides attachments."""
        if not self.cinder.sees_all and (
                not self.project or not server.project
                or not spelling.is_same(server.project, self.project)):
            raise errors.ProjectHidden(
                'server %s belongs to another project; give --all-projects '
                'and the credentials of an administrator' % server.id)


@dataclasses.dataclass(frozen=True)
class _CommandSources:
    """The sources of the rules in a command.

    A command knows no addresses; where they decide, the node does.
    """

    nova: Nova
    shown: ComputeServer
    server: facts.Server
    volumes: Witness

    def current(self) -> facts.Server:
        return self.server

    def attaches(self, bdms: Sequence[facts.Bdm]
                 ) -> Mapping[str, facts.Attach]:
        # The API does not tell which mappings were never connected.
        return {}

    def absent(self, attachments: Sequence[facts.Attachment]
               ) -> frozenset[str]:
        return frozenset()

    def sources(self, bdms: Sequence[facts.Bdm]
                ) -> Mapping[str, facts.Source] | None:
        # Only the host knows them.
        return None

    def left_out(self) -> frozenset[str]:
        return frozenset()

    def guest_is_here(self) -> bool:
        # The node asks the hypervisor.
        return self.shown.has_guest

    def on_host(self, disks: Sequence[tuple[facts.Bdm,
                                            facts.Attachment | None]]
                ) -> Mapping[str, facts.OnHost]:
        # Only the node adopts disks.
        return {}

    def swaps(self) -> facts.Ending:
        # Nothing of a locked server is removed anyway.
        return (facts.Ending.SUCCESS if self.server.is_locked
                else self.nova.swaps(self.server.uuid))

    def last_swap(self) -> float:
        # Nor does the API show when a mapping was changed.
        return math.inf

    def witness(self) -> facts.WitnessAnswer:
        return self.volumes.answer()

    def claims(self, disks: Sequence[facts.Bdm]) -> facts.Claims:
        return facts.Claims()


def _with_legacy(bdm: facts.Bdm, server: ComputeServer,
                 volumes: Mapping[str, facts.Volume | None]) -> facts.Bdm:
    """Return a mapping as one from before Queens, if Cinder says so.

    A mapping without an attachment ID that Cinder does not know may be of an
    attach that has just begun: the API does not tell.
    """
    volume = volumes.get(bdm.volume_id or '')
    if bdm.attachment_id or volume is None or not any(
            a.server_id == server.id for a in volume.attached_to):
        return bdm
    return dataclasses.replace(bdm, has_connection_info=True)


def _agreed(server: ComputeServer, bdms: Sequence[facts.Bdm],
            volumes: Mapping[str, facts.Volume | None],
            attachments: Sequence[facts.Attachment]) -> frozenset[str]:
    """Return the volumes that both sides agree the server has."""
    found = set()
    for bdm in bdms:
        volume = volumes.get(bdm.volume_id or '')
        states = {a.status for a in attachments
                  if a.volume_id == bdm.volume_id
                  and a.server_id == server.id}
        # Those of other servers are only shown when they are attached.
        if volume is not None and states == {'attached'} and (
                volume.multiattach or all(
                    each.server_id in (None, server.id)
                    for each in volume.attached_to)):
            found.add(volume.id)
    return frozenset(found)


def is_of_status(finding: Finding, volume: facts.Volume | None,
                 agreed: frozenset[str]) -> bool:
    """Return whether perhaps only the status of a volume is wrong."""
    if finding.bdm is None or finding.withheld or volume is None \
            or volume.id not in agreed:
        return False
    if finding.reason is Reason.VOLUME_BUSY:
        return volume.is_out_of_order
    if finding.reason is Reason.STUCK:
        return volume.status in _ATTACHING and not volume.multiattach
    return finding.reason in (
        Reason.VOLUME_AVAILABLE, Reason.ROOT_VOLUME_DANGLING)


# The rules judge a server that Nova is about to reboot, under Nova's lock and
# with what nova-compute knows.  A command has neither.


@dataclasses.dataclass(frozen=True)
class Shown:
    """The form in which a finding of the rules is shown."""

    #: None: the reason that the rules found.
    reason: Reason | None = None
    #: The rules' decision, or their reason to withhold it, is void.
    is_decided_later: bool = False

    def __str__(self) -> str:
        return '``%s``' % self.reason if self.reason else 'the same'


_ONLY_STATUS = (
    '; but Nova and Cinder agree that the server has it. If the server should '
    'keep it, and the back end has it in order, only the status is wrong, and '
    'the command ends that without an outage')

#: The cases that the rules leave to others, or do not see in a reboot.
CONTEXT: Table[Row[ContextFacts, Shown]] = Table(
    ('The finding of the rules', 'Shown as'), (

    Row('is of a server in ``ERROR`` or ``ACTIVE``, without a task state, '
        'that no host has, or that never ran; and is ``healthy``',
        lambda c: c.server.is_lost and c.finding.bdm
        and c.finding.reason is Reason.HEALTHY,
        Shown(Reason.INTERRUPTED, is_decided_later=True),
        'the volume is attached to a server that no host has, or that never '
        'ran: its create failed, or its state was reset. Only its delete ends '
        'that'),

    Row('is of such a server, and is anything else',
        lambda c: c.server.is_lost,
        Shown(is_decided_later=True),
        'the server is {it.server.status}, and no host has it, or it never '
        'ran: its create failed, or its state was reset. Only its delete ends '
        'that'),

    # The guest has the disk, but Nova and Cinder refuse to detach it.
    Row('is ``healthy``, its volume is not multiattach, all attachments of '
        'it attach it to the server, and it has been ``attaching`` or '
        '``reserved`` for ``--stuck-after``',
        lambda c: c.lags,
        Shown(Reason.STUCK),
        'the volume has been {it.volume.status} since '
        '{it.volume.updated_at:%Y-%m-%d %H:%M:%S} UTC' + _ONLY_STATUS),

    Row('is ``healthy``, and its volume has not been ``detaching`` for '
        '``--stuck-after``',
        lambda c: c.finding.reason is Reason.HEALTHY and not c.hangs,
        Shown(),
        '{it.finding.explanation}'),

    Row('is that the server has a task state, and that the nova-compute of '
        'its host has been started since: an event of the last action says '
        'that nothing carries it out',
        lambda c: c.finding.is_of_server
        and c.interruption is Interruption.CERTAIN,
        Shown(Reason.INTERRUPTED),
        'nova-compute ended in an operation on the server ({it.shown.task}), '
        'and nothing goes on with it. Nova refuses all others until the state '
        'of the server is reset{it.words_on_disks}'),

    Row('is of a server with a task state that no host has, that never ran, '
        'or that is being deleted; nothing of it has changed for '
        '``--stuck-after``',
        lambda c: c.interruption is Interruption.POSSIBLE
        and (not c.server.is_startable or c.server.is_being_deleted),
        Shown(Reason.INTERRUPTED, is_decided_later=True),
        'an operation on the server ({it.shown.task}) may have been '
        'interrupted: nothing of it has changed for --stuck-after. It was if '
        'one of its events has no end, and the service that began it has been '
        'started since. Then only its delete ends that'),

    Row('is that the server is in ``ERROR``, without a task state',
        lambda c: c.finding.is_of_server and c.server.has_failed,
        Shown(Reason.SERVER_IN_ERROR),
        'an operation on the server has failed, and has left it in ERROR; a '
        'hard reboot starts it. If its guest runs, only the state is wrong: '
        'openstack server set --state active {it.server.id}'),

    # Without the plugin on its host.
    Row('is of a server with a task state, where nothing has changed for '
        '``--stuck-after``, and no event says that nothing carries it out',
        lambda c: c.interruption is Interruption.POSSIBLE,
        Shown(Reason.INTERRUPTED, is_decided_later=True),
        'an operation on the server ({it.shown.task}) may have been '
        'interrupted: nothing of it has changed for --stuck-after. It was if '
        'one of its events has no end, and the service that began it has been '
        'started since. Then the reset of its state and a reboot end '
        'that{it.words_on_disks}'),

    Row('is of a server with an operation in progress',
        lambda c: c.server.is_busy or not c.is_settled,
        Shown(Reason.OPERATION_IN_FLIGHT, is_decided_later=True),
        'an operation on the server is in progress ({it.server.task}); '
        '{it.finding.explanation}'),

    # Nova sets no task state in a swap.  The node knows what the guest has.
    Row('is of a server with a swap that has not succeeded, and may have '
        'connected another volume: is of that volume, is withheld for the '
        'swap, or its volume is ``detaching``; nothing of its volume has '
        'changed for ``--stuck-after``, and the server is not locked',
        lambda c: c.is_of_swap and c.is_stuck and not c.server.locked,
        Shown(Reason.SWAP_INTERRUPTED, is_decided_later=True),
        'a swap of a volume of the server ended half way; a hard reboot ends '
        'it with the disk that the guest has, once it is not under way'),

    Row('is of a volume that is ``reserved`` for ``--stuck-after``, without a '
        'mapping, while another volume of the server is ``detaching``',
        lambda c: c.finding.reason is Reason.OPERATION_IN_FLIGHT
        and c.attachment and not c.finding.bdm and c.is_stuck
        and c.attachment.only_reserves and not c.server.locked,
        Shown(Reason.STALE_ATTACHMENT, is_decided_later=True),
        'no mapping of the server names the attachment, and no host is '
        'connected'),

    # A reboot takes it for a detach under way, however old.
    Row('is ``healthy`` or ``operation-in-flight``, its volume has been '
        '``detaching`` for ``--stuck-after``, and the server is not locked',
        lambda c: c.hangs and not c.server.locked and c.finding.reason in (
            Reason.HEALTHY, Reason.OPERATION_IN_FLIGHT),
        Shown(Reason.STUCK),
        'the volume has been detaching since '
        '{it.volume.updated_at:%Y-%m-%d %H:%M:%S} UTC'),

    # The API shows no age of a mapping; but reserving the volume for an
    # attach changes the volume.
    Row('is ``attach-in-flight``, its volume has been ``attaching`` for '
        '``--stuck-after``, and the server is not locked',
        lambda c: c.finding.reason is Reason.ATTACH_IN_FLIGHT
        and c.volume and c.volume.status == 'attaching'
        and c.is_stuck and not c.server.locked,
        Shown(Reason.STUCK),
        'the volume has been attaching since '
        '{it.volume.updated_at:%Y-%m-%d %H:%M:%S} UTC'),

    Row('is the mapping of a shelved server, whose volume and attachment are '
        '``reserved``',
        lambda c: c.server.is_shelved and c.finding.bdm and c.volume
        and c.attachment
        and c.attachment.status == c.volume.status == 'reserved',
        Shown(Reason.HEALTHY),
        'reserved while the server is shelved'),

    Row('is a ``duplicate-mapping`` that the rules keep: the API does not '
        'show whether Nova ever connected it',
        lambda c: c.finding.reason is Reason.DUPLICATE_MAPPING
        and not c.finding.is_removal,
        Shown(),
        '{it.finding.explanation}; a hard reboot removes the mapping that '
        'Nova never connected, if there is one: the API does not show that'),

    # The API does not show whether Nova has connected the disk.
    Row('is ``reserved-only``, or ``half-moved`` while its volume is '
        '``reserved`` or ``attaching``, for less than ``--stuck-after``',
        lambda c: c.is_half_attached and not c.is_stuck
        and not c.interruption,
        Shown(Reason.OPERATION_IN_FLIGHT, is_decided_later=True),
        'its attachment is not complete, for less than --stuck-after'),

    # "nova-manage volume_attachment refresh" locks the server.
    Row('is ``half-moved`` for less than ``--stuck-after``, and the server is '
        'locked',
        lambda c: c.finding.reason is Reason.HALF_MOVED
        and c.server.locked and not c.is_stuck,
        Shown(Reason.OPERATION_IN_FLIGHT),
        'the server is locked, perhaps while its mapping gets a new '
        'attachment'),

    # The API does not show what Nova created a disk from.
    Row('is a ``volume-missing`` that a hard reboot removes: the API does not '
        'show whether Nova created the disk',
        lambda c: c.finding.reason is Reason.VOLUME_MISSING
        and c.finding.is_removal,
        Shown(),
        '{it.finding.explanation}; if Nova created the disk, from an image, a '
        'snapshot or blank, a hard reboot removes the mapping only with the '
        'word created in [bdm_cleanup] remove'),

    Row('is ``volume-available``, ``root-volume-dangling``, ``stuck``, or '
        '``volume-busy`` in a state that Cinder never ends by itself; and all '
        'attachments of the server to the volume are ``attached``, and, '
        'unless it is multiattach, no other server has any',
        lambda c: c.is_of_status,
        Shown(),
        '{it.finding.explanation}' + _ONLY_STATUS),

    Row('is ``volume-busy`` in another such state',
        lambda c: c.finding.reason is Reason.VOLUME_BUSY
        and c.volume and c.volume.is_out_of_order,
        Shown(),
        '{it.finding.explanation}, and Cinder does not end that by itself'),

    Row('is anything else',
        lambda c: True,
        Shown(),
        '{it.finding.explanation}'),
))


@dataclasses.dataclass(frozen=True)
class ContextFacts:
    """The facts about one finding of the rules that the table may use."""

    finding: Finding
    server: ComputeServer
    #: Nova said the same before Cinder was asked and after it.
    is_settled: bool
    volume: facts.Volume | None
    attachment: facts.Attachment | None
    policy: facts.Policy
    now: datetime.datetime
    interruption: Interruption | None
    #: The server with its task, also where its state will be reset.
    shown: ComputeServer
    #: The attachments by which a swap that has not succeeded may have
    #: connected volumes.
    swapped: frozenset[str] = frozenset()
    #: The volumes that both sides agree the server has.
    agreed: frozenset[str] = frozenset()

    @property
    def is_of_status(self) -> bool:
        return is_of_status(self.finding, self.volume, self.agreed)

    @property
    def words_on_disks(self) -> str:
        return ('. Nova may have deleted its local disks: if it is in ERROR '
                'after the reboot, its root disk is in the image that the '
                'shelve has made') if self.shown.may_lack_disks else ''

    @property
    def is_stuck(self) -> bool:
        return self.volume is not None and self.policy.is_stuck(
            self.volume.updated_at, self.now)

    @property
    def is_of_swap(self) -> bool:
        return bool(self.swapped) and (
            self.hangs or self.finding.attachment_id in self.swapped
            or self.finding.withheld is Reason.SWAP_INTERRUPTED)

    @property
    def is_half_attached(self) -> bool:
        return (self.finding.reason is Reason.RESERVED_ONLY
                or self.finding.reason is Reason.HALF_MOVED
                and self.volume is not None
                and self.volume.status in facts.IN_FLIGHT)

    @property
    def lags(self) -> bool:
        return (self.finding.reason is Reason.HEALTHY and self.is_stuck
                and self.volume is not None
                and self.volume.id in self.agreed
                and self.volume.status in _ATTACHING
                # Perhaps by another server.
                and not self.volume.multiattach)

    @property
    def hangs(self) -> bool:
        return (self.volume is not None and self.is_stuck
                and self.volume.status == 'detaching')


def in_context(context: ContextFacts) -> Finding:
    """Return a finding of the rules as it is outside a reboot."""
    row = first(CONTEXT.rows, context)
    finding = dataclasses.replace(
        context.finding, reason=row.outcome.reason or context.finding.reason,
        explanation=row.explain(context))
    return dataclasses.replace(
        finding, action=Action.KEEP, in_cinder=InCinder.ATTACHED,
        withheld=None) \
        if row.outcome.is_decided_later else finding
