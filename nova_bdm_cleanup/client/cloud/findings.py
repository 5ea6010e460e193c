# SPDX-License-Identifier: Apache-2.0
"""The findings in a cloud, and the action for each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import datetime

from nova_bdm_cleanup.client.cloud import commands
from nova_bdm_cleanup.client.cloud.inspection import Cloud, Inspection
from nova_bdm_cleanup.client.cloud.nova import ComputeServer
from nova_bdm_cleanup.client.cloud.remedies import Way, way_of
from nova_bdm_cleanup.rules import disks, facts
from nova_bdm_cleanup.rules.facts import Finding, Label, Volume
from nova_bdm_cleanup.rules.reasons import (
    Code,
    DANGLING,
    ENDED_HALF_WAY,
    Reason,
    RECONNECTED,
    Remedy,
    REMOVED,
)
from nova_bdm_cleanup.rules.table import first, Row, Table

#: What a reboot does on a host without the plugin.
WITHOUT_PLUGIN = (
    'host %s does not show the plugin in mode enforce. Without it, a reboot '
    'keeps the mapping and may fail, or, from Nova 28 on, may remove it and '
    'leave the device on the host (CVE-2023-2088)')

#: The words for the remedies in a total.
_TO_DO = {Remedy.RELEASE: 'to release', Remedy.REPAIR: 'to repair',
          Remedy.CLEAN: 'to clean', Remedy.PERSON: 'to look at',
          Remedy.WAIT: 'to wait for'}


class Verb(Code):
    """The way an operator resolves a finding; a text begins with it."""

    #: Run the commands as they are.
    RUN = ''
    #: Run the commands after a person has looked.
    LOOK = 'look'
    #: Ask an administrator to run the commands.
    ASK = 'ask an administrator'
    #: Wait: it passes.
    WAIT = 'wait'


class CommandLine(str):
    """A line with a command to copy; the output never breaks it."""

    __slots__ = ()


@dataclasses.dataclass(frozen=True)
class Advice:
    """A text, and the commands to run after reading it."""

    text: str
    #: Command lines, with the machine where it is not this one.
    commands: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """Render it with each command on a line of its own."""
        return [self.text + ':' if self.commands else self.text,
                *map(CommandLine, self.commands)]

    def __str__(self) -> str:
        return ': '.join(filter(None, (self.text, '; '.join(self.commands))))


@dataclasses.dataclass(frozen=True)
class Instruction:
    """The action for an operator to take on a finding."""

    verb: Verb
    #: Command lines, with the machine where it is not this one.
    commands: tuple[str, ...] = ()
    #: When the wait is over, if known.
    until: datetime.datetime | None = None

    @property
    def lines(self) -> list[str]:
        """Render it with each command on a line of its own."""
        if self.verb is Verb.WAIT:
            return ['wait until %s UTC' % self.until.strftime('%H:%M')
                    if self.until else 'wait']
        first, *others = self.commands
        return [CommandLine(line) for line in (
            '%s: %s' % (self.verb, first) if self.verb is not Verb.RUN
            else first, *others)]

    def __str__(self) -> str:
        return '; '.join(self.lines)


@dataclasses.dataclass(frozen=True)
class CloudFinding:
    """One inconsistency, as a row of a report."""

    reason: Reason
    explanation: str
    server: str | None = None
    server_name: str | None = None
    project: str | None = None
    host: str | None = None
    volume: str | None = None
    attachment: str | None = None
    device: str | None = None
    #: The user who created the server.
    user: str | None = None
    #: That of the volume.
    label: Label = dataclasses.field(default=Label(), compare=False)
    #: The last change of the volume: the finding is at least as old.
    since: datetime.datetime | None = None
    #: Why a hard reboot would not act on it although it is the remedy.
    withheld: Reason | None = None
    #: The remedy instead of the usual one for the reason.
    instead: Remedy | None = None
    #: The command must be told more before it acts, and shows what.
    needs_look: bool = False
    #: A hard reboot removes it, unless it is the root disk, which is not
    #: shown.
    may_be_root: bool = False
    #: The age before which its command would refuse it as too new.
    wait: datetime.timedelta | None = None
    #: The commands for a person to run, if known.
    steps: tuple[str, ...] = ()
    #: Nova refuses every command before the state of the server is reset: a
    #: reboot of ``bdm clean`` resets it, or a person does.
    reset_by: Remedy | None = None
    #: The command's options for the ages of young and stuck.
    options: str = ''
    #: The reader is not an administrator.
    is_for_member: bool = False
    #: The number of findings that it stands for.
    count: int = 1
    #: The records about it for people, by side.
    sides: Mapping[str, Sequence[str]] = dataclasses.field(
        default_factory=dict, compare=False)

    @property
    def remedy(self) -> Remedy:
        if self.instead is not None:
            return self.instead
        if self.withheld is not None or self.may_be_root:
            return Remedy.PERSON
        # Only healthy disks have none, and they are no finding here.
        return self.reason.remedy or Remedy.PERSON

    @property
    def passes(self) -> bool:
        """Return whether it usually passes by itself."""
        return self.reason.passes and self.remedy is Remedy.WAIT

    @property
    def is_for_reboot(self) -> bool:
        """Return whether a hard reboot resolves it, even if less would do."""
        return self.withheld is None and not self.may_be_root and (
            self.instead in (Remedy.CLEAN, Remedy.REPAIR)
            or self.reason not in RECONNECTED
            and self.reason.remedy is Remedy.CLEAN)

    @property
    def is_reconnect(self) -> bool:
        """Return whether a hard reboot reconnects its disk."""
        return (self.is_for_reboot and self.volume is not None
                and self.reason not in (*REMOVED, Reason.STALE_ATTACHMENT))

    @property
    def is_attachment_over_limit(self) -> bool:
        """Return whether a reboot keeps it, one of too many attachments.

        The reboot still removes the mappings.
        """
        return (self.reason is Reason.STALE_ATTACHMENT
                and self.withheld is Reason.OVER_LIMIT)

    @property
    def stops_a_reboot(self) -> bool:
        """Return whether it needs a look before a reboot for other findings.

        Not where the reboot changes nothing, or gives the answer.
        """
        return (self.remedy is Remedy.PERSON and not self.is_for_reboot
                and not self.is_attachment_over_limit
                and self.reason not in (*ENDED_HALF_WAY, Reason.VOLUME_BUSY))

    @property
    def action(self) -> Instruction:
        """Return the action for the operator."""
        return self.action_on(self.attachment or self.volume)

    def action_on(self, target: str | None) -> Instruction:
        """Return the action with another target for "bdm release"."""
        if self.remedy is Remedy.WAIT:
            return Instruction(Verb.WAIT, until=(
                self.since + self.wait + datetime.timedelta(minutes=1)
                if self.since and self.wait else None))
        commands = self._commands(target)
        if self.is_for_member and (
                self.needs_look or self.steps or self.may_be_root
                or self.reset_by
                or self.withheld is Reason.SERVER_LOCKED
                or self.remedy is Remedy.RELEASE
                or self.reason is Reason.CANNOT_SEE_PROJECT):
            return Instruction(Verb.ASK, commands)
        if self.needs_look or self.remedy is Remedy.PERSON:
            return Instruction(Verb.LOOK, commands)
        return Instruction(Verb.RUN, commands)

    def _commands(self, target: str | None) -> tuple[str, ...]:
        then = self._commands_then(target)
        if self.reset_by is None or self.server is None:
            return then
        if self.reset_by is Remedy.PERSON:
            return commands.set_error(self.server), *then
        if self.remedy is Remedy.CLEAN or self.reason in ENDED_HALF_WAY:
            then = self.steps
        return (commands.clean(self.server, resets_state=True) + self.options,
                *then)

    def _commands_then(self, target: str | None) -> tuple[str, ...]:
        """Return the commands once nothing stands in their way."""
        if self.is_for_member and self.server and (
                self.reason is Reason.SERVER_GONE or self.may_be_root):
            # Only an administrator sees whether it is gone, or the root.
            return ('openstack bdm audit --all-projects --server %s'
                    % self.server,)
        if self.remedy is Remedy.RELEASE:
            return ('openstack bdm release %s%s' % (target, self.options),)
        if self.withheld is Reason.SERVER_LOCKED and self.server:
            return (commands.unlock(self.server),
                    commands.clean(self.server) + self.options)
        if self.withheld is not None:
            return (commands.explain(self.withheld),)
        if self.remedy is Remedy.CLEAN:
            return (commands.clean(self.server) + self.options,)
        if self.remedy is Remedy.REPAIR and self.server:
            return (commands.repair(self.server, self.host),)
        return self.steps or (commands.show(self.server) + self.options,)

    @property
    def key(self) -> tuple[str | None, ...]:
        """Return the identity of the finding across inspections."""
        return (str(self.reason), self.server, self.volume, self.attachment)


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A finding about a server, with what ends it if nothing hinders."""

    found: CloudFinding
    seen: Inspection
    cloud: Cloud
    #: It counts whether the host shows the plugin.
    heeds_plugin: bool
    #: An operator must look at a finding of the server before a reboot.
    is_stopped: bool

    @property
    def server(self) -> ComputeServer:
        return self.seen.server

    @property
    def needs_host(self) -> bool:
        """Return whether nova-compute of its host has to end it."""
        return not self.seen.ends_by_delete and (
            self.seen.interruption is not None
            or self.found.remedy in (Remedy.CLEAN, Remedy.REPAIR))

    @property
    def lacks_plugin(self) -> bool:
        """Return whether the plugin has to end it, and its host has none."""
        return (self.heeds_plugin and (
            self.found.remedy in (Remedy.CLEAN, Remedy.REPAIR)
            or self.found.reset_by is Remedy.CLEAN
            or self.found.withheld is Reason.SERVER_LOCKED)
            and self.cloud.lacks_plugin(self.server.node))

    @property
    def without_plugin(self) -> str:
        return WITHOUT_PLUGIN % self.server.host

    @property
    def evacuate(self) -> tuple[str, ...]:
        server = self.server.id
        # Nova refuses it while the server has a task.
        return (*((commands.list_events(server), commands.set_error(server))
                  if self.seen.interruption else ()),
                commands.evacuate(server))


_AS_FOUND = '{it.found.explanation}'

#: What hinders the usual way to end a finding, and the way then.
HINDRANCES: Table[Row[Proposal, Way]] = Table(
    ('The finding', 'Ended by'), (

    Row('is ended by ``clean`` or ``repair``, or is of a server whose '
        'operation may have been interrupted; and Nova says that '
        'nova-compute of its host is down',
        lambda p: p.server.is_host_down and p.needs_host,
        Way(Remedy.PERSON, lambda p: p.evacuate, '``server evacuate``'),
        _AS_FOUND + '; nova-compute of host {it.server.host} is '
        '{it.server.host_status}: start it again, or, only if the host is '
        'certainly off, evacuate the server'),

    Row('is ended by ``clean``, or by a rebuild after the reset of the state '
        'of its server; and a finding of the server needs a look before a '
        'reboot',
        lambda p: p.is_stopped and (
            p.found.remedy is Remedy.CLEAN
            or p.seen.is_interrupted and p.server.may_lack_disks),
        Way(Remedy.PERSON, shown='``bdm show``'), _AS_FOUND),

    # Nova alone starts it.
    Row('is ``server-in-error``, and its host is known to be without the '
        'plugin',
        lambda p: p.found.reason is Reason.SERVER_IN_ERROR and p.lacks_plugin,
        Way(Remedy.PERSON, lambda p: (commands.reboot(p.server.id),),
            'a hard reboot'), _AS_FOUND),

    Row('is ended by ``clean`` or ``repair``, also after a reset of the state '
        'or an unlock of the server; and its host is known to be without the '
        'plugin',
        lambda p: p.lacks_plugin,
        Way(Remedy.PERSON, lambda p: (commands.check_plugin(p.server.host),),
            'the plugin on its host'),
        _AS_FOUND + '; {it.without_plugin}. Enable it there first, and audit '
        'again'),

    Row('is a ``stale-attachment`` to release, and its volume has changed '
        'within ``--grace-period``',
        lambda p: (p.found.reason is Reason.STALE_ATTACHMENT
                   and p.found.remedy is Remedy.RELEASE
                   and p.cloud.policy.is_young(p.found.since, p.cloud.now())),
        Way(Remedy.WAIT), _AS_FOUND),

    Row('is anything else', lambda p: True, Way(None), _AS_FOUND),
))


def findings_of(seen: Inspection, cloud: Cloud, heeds_plugin: bool = True
                ) -> tuple[CloudFinding, ...]:
    """Return all findings at one server.

    :param heeds_plugin: advise no reboot for a host without the plugin
    """
    found = [_cloud_finding(f, seen) for f in seen.findings]
    is_stopped = any(i.stops_a_reboot for i in found)
    reset_by = None
    if seen.is_interrupted:
        reset_by = Remedy.PERSON if is_stopped else Remedy.CLEAN
    return tuple(for_reader(_unhindered(Proposal(
        dataclasses.replace(i, reset_by=reset_by), seen, cloud, heeds_plugin,
        is_stopped)), cloud) for i in found)


def _unhindered(proposal: Proposal) -> CloudFinding:
    """Return the finding with a way to end it that nothing hinders."""
    found = proposal.found
    row = first(HINDRANCES.rows, proposal)
    way = row.outcome
    if way.remedy is None:
        return found
    steps = way.steps(proposal)
    return dataclasses.replace(
        found, instead=way.remedy, steps=steps, withheld=None,
        reset_by=None if steps else found.reset_by,
        wait=proposal.cloud.policy.grace_period,
        explanation=row.explain(proposal))


def for_reader(found: CloudFinding, cloud: Cloud) -> CloudFinding:
    """Return the finding with commands that the current user can run."""
    return dataclasses.replace(
        found, is_for_member=not cloud.cinder.sees_all,
        options=commands.bounds(cloud.policy))


def _cloud_finding(finding: Finding, seen: Inspection) -> CloudFinding:
    server = seen.server
    volume = seen.volumes.get(finding.volume_id or '')
    instead, steps, explanation = way_of(finding, seen)
    if finding in seen.not_connected:
        explanation += '; a hard reboot keeps it, and ' \
            + disks.effect_of(finding)
    if finding.withheld is Reason.SERVER_LOCKED:
        explanation += '; it is kept, since the server is locked' + (
            ' (%s)' % seen.lock.words if seen.lock else '')
    elif finding.obstacle:
        explanation += '; it is kept: ' + finding.obstacle
    nova = ['server is %s' % server.status]
    if server.task_state:
        nova.append('task: %s' % server.task_state)
    if finding.bdm is not None:
        nova += ['mapping %s' % finding.bdm.uuid,
                 'device %s' % (finding.bdm.device_name or 'not shown'),
                 'attachment %s' % (finding.bdm.attachment_id or 'none')]
    elif finding.attachment is not None:
        nova.append('no mapping names it')
    found = CloudFinding(
        reason=finding.reason, explanation=explanation,
        server=server.id, server_name=server.name, project=server.project,
        user=server.user, host=server.host,
        volume=finding.volume_id, label=volume.label if volume else Label(),
        attachment=finding.attachment_id, device=finding.device,
        since=volume.updated_at if volume else None,
        withheld=finding.withheld, instead=instead,
        # Which host was connected, if any?  Has the host its local disks?
        needs_look=finding.reason is Reason.LEGACY_ATTACHMENT
        or seen.is_interrupted and server.may_lack_disks,
        may_be_root=finding.depends_on_root and finding.reason in DANGLING,
        steps=steps,
        sides={'Nova': nova} if finding.is_of_server else sides_of(
            nova, volume, [
                a for a in seen.attachments.values()
                if a.id == finding.attachment_id
                or finding.volume_id and a.volume_id == finding.volume_id]))
    if found.remedy is Remedy.RELEASE \
            and found.attachment not in seen.attachments:
        # Only Nova has the attachment.  The volume can be released.
        return dataclasses.replace(found, attachment=None)
    return found


def sides_of(nova: Sequence[str], volume: Volume | None,
             attachments: Iterable[facts.Attachment]
             ) -> dict[str, Sequence[str]]:
    """Return the records of each API, in words.

    :param nova: Nova's words
    """
    words = ['the volume does not exist, or is not shown']
    if volume is not None:
        words = ['volume is %s' % volume.status]
        if volume.multiattach:
            words.append('multiattach')
        if volume.is_migrating:
            words.append('migration: %s' % volume.migration_status)
        words += ['attached to server %s%s' % (
            a.server_id or '-', _on(a.host)) for a in volume.attached_to]
    return {'Nova': nova, 'Cinder': words, 'Attachments': [
        '%s: %s, %s connection, server %s%s' % (
            a.id, a.status, 'with a' if a.connected else 'without',
            a.server_id or '-',
            _on(volume.host_of(a.id) if volume else None))
        for a in attachments]}


def _on(host: str | None) -> str:
    return ' on host %s' % host if host else ''


def total(findings: Sequence[CloudFinding]) -> str:
    """Return the number of findings for each remedy, in words."""
    counts: Counter[Remedy] = Counter()
    for found in findings:
        counts[found.remedy if found.action.verb in (Verb.RUN, Verb.WAIT)
               else Remedy.PERSON] += found.count
    number = sum(counts.values())
    if not number:
        return 'Nothing is inconsistent'
    return '%d finding%s: %s' % (number, '' if number == 1 else 's', ', '.join(
        '%d %s' % (counts[remedy], words) for remedy, words in _TO_DO.items()
        if counts[remedy]))
