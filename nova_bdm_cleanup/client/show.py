# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm show``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import operator
from typing import Any, Callable, NamedTuple

from nova_bdm_cleanup import terminal
from nova_bdm_cleanup.client import output
from nova_bdm_cleanup.client.cloud import commands, findings, inspection
from nova_bdm_cleanup.client.cloud.causes import cause_of, ENDINGS
from nova_bdm_cleanup.client.cloud.nova import PastAction, STARTS
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules import disks, facts
from nova_bdm_cleanup.rules.facts import Ending
from nova_bdm_cleanup.rules.reasons import ENDED_HALF_WAY, Reason, Remedy
from nova_bdm_cleanup.terminal import ExitCode


class ShowBdm(output.BdmCommand):
    """Show every volume of one server as Nova and as Cinder see it.

    One row for each block device mapping with a volume, and for each
    attachment in Cinder without a mapping: what Nova says, what Cinder says,
    the verdict and why, and what a hard reboot would do on a compute host
    with the plugin and its default options, also if it keeps a mapping and
    does not connect its disk. If something is not healthy, the last operations
    on the server follow, and how each ended.

    Exit codes: 0 all is healthy, 5 something is not, 4 a request was not
    answered, 3 refused, 2 no such server, 255 the command itself failed.
    """

    short = ('Device', 'Volume', 'Verdict')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('server', metavar='<server>',
                            help='Server (name or ID)')
        parser.add_argument(
            '--all-projects', action='store_true',
            help='Find the server by its name in all projects '
                 '(administrators)')
        return parser

    def take_action(self, args: argparse.Namespace) -> output.Rows:
        cloud = self.connect(args)
        cloud.cinder.prove_admin()
        server = cloud.nova.find(args.server, args.all_projects)
        seen = cloud.inspect(server.id)
        if seen is None:
            raise errors.BadInput(
                'server %s has just been deleted' % server.id)
        self.note('Server %s (%s): %s, host %s, project %s', seen.server.id,
                  seen.server.name, seen.server.status,
                  seen.server.host or '-', seen.server.project or '-')
        found = findings.findings_of(seen, cloud)
        if seen.not_connected or not all(each.passes for each in found):
            self.exit_code = ExitCode.FINDINGS
        lacks_plugin = (self.exit_code is ExitCode.FINDINGS
                        and cloud.lacks_plugin(seen.server.node))
        if lacks_plugin:
            self.note('%s', findings.WITHOUT_PLUGIN % seen.server.host)
        past: list[PastAction] = []
        if found:
            # Its policy may hide them.
            with contextlib.suppress(errors.Refused):
                past = cloud.nova.past(server.id)
            self._tell_past(cloud, found, past)
        start = next((p for p in past if p.action.name in STARTS), None)
        actions = map(_action, found)
        disks = [
            ShownDisk(f, seen, 'none' if f.reason is Reason.HEALTHY
                      else next(actions), _not_given(f, start),
                      lacks_plugin)
            for f in seen.plan.findings]
        return SHOW_COLUMNS, [[fact.value(disk) for fact in FACTS]
                         for disk in disks]

    def _tell_past(self, cloud: inspection.Cloud,
                   found: Sequence[findings.CloudFinding],
                   past: Sequence[PastAction]) -> None:
        """Show the last operations, Cinder's messages, and the cause."""
        lines = [(each.action.began, each.action.name, ENDINGS[each.ending],
                  ', '.join(each.hosts), each.action.request_id)
                 for each in past]
        services: dict[str, bool] = {}
        # They only say why.
        with contextlib.suppress(errors.Refused, errors.Unanswered):
            services = cloud.cinder.services()
        with contextlib.suppress(errors.Refused, errors.Unanswered):
            lines += [(each.at, 'volume ' + each.volume_id, each.text, '',
                       each.request_id)
                      for volume in sorted({i.volume for i in found
                                            if i.volume})
                      for each in cloud.cinder.messages(volume)]
        bad = next((p for p in past if p.ending is not Ending.SUCCESS), None)
        causes = filter(None, dict.fromkeys(
            cause_of(i, services, bad) for i in found))
        self.last_line = ''.join('Perhaps the cause: %s. ' % cause
                                 for cause in causes)
        if lines:
            self.last_line += 'The last operations, the newest first:'
            # Nova's order counts for those of one second.
            self.appendix = terminal.columns(sorted(
                lines, key=operator.itemgetter(0), reverse=True)).split('\n')

    def sentences(self, row: Mapping[str, Any]) -> Iterator[str]:
        if row['Verdict'] != str(Reason.HEALTHY):
            yield from row['Action'].lines
            yield row['Explanation'] + '.'
            yield ' '.join([
                'A hard reboot %s.' % row['Hard Reboot'],
                *(fact.sentence % row[fact.title] for fact in FACTS
                  if fact.sentence and row[fact.title] is not None)])


def _action(found: findings.CloudFinding) -> findings.Instruction:
    """Return what to do; a person has looked already."""
    action = found.action
    if found.remedy is Remedy.PERSON and action.commands == (
            commands.show(found.server),):
        return findings.Instruction(
            action.verb, (commands.explain(found.reason),))
    return action


def _not_given(finding: facts.Finding, start: PastAction | None) -> str:
    """Say whether the last start of the guest left out a disk.

    :param start: None: none of the last operations started it
    """
    reason = start.not_connected.get(
        finding.volume_id or '') if start else None
    return '; the last %s did not connect it (%s)' % (
        start.action.name, reason) if start and reason and (
            finding.bdm and finding.reason is not Reason.HEALTHY) else ''


@dataclasses.dataclass(frozen=True)
class ShownDisk:
    """One volume of a server, or an attachment that no mapping accounts for.

    It has all sources of the facts.
    """

    finding: facts.Finding
    #: The server, with its volumes and attachments.
    seen: inspection.Inspection
    action: findings.Instruction | str
    #: That the last start of the guest did not connect it; empty: it did, or
    #: it is not known.
    not_given: str
    #: The host is known to be without the plugin.
    lacks_plugin: bool

    @property
    def volume(self) -> facts.Volume | None:
        return self.seen.volumes.get(self.finding.volume_id or '')

    @property
    def volume_status(self) -> str:
        if self.finding.reason is Reason.CANNOT_SEE_PROJECT:
            return 'unknown'
        return self.volume.status if self.volume else 'does not exist'

    @property
    def attachments(self) -> list[facts.Attachment]:
        """Return the attachments of the volume to the server."""
        finding = self.finding
        return [a for a in self.seen.attachments.values()
                if a.id == finding.attachment_id
                or finding.bdm and a.volume_id == finding.volume_id
                and a.server_id == self.seen.server.id]

    @property
    def host(self) -> str | None:
        """Return the host that Cinder names."""
        hosts = [self.volume.host_of(a.id) for a in self.attachments] \
            if self.volume else []
        return next(filter(None, hosts), None)

    @property
    def hard_reboot(self) -> str:
        """Return the effect of a hard reboot on it."""
        finding = self.finding
        if finding.is_of_server or not self.seen.server.is_startable:
            return 'is refused'
        if finding.depends_on_root:
            return 'keeps it if it is the root disk, which is not shown'
        without = (', and ' + disks.effect_of(finding)
                   if finding in self.seen.not_connected else '')
        if finding.withheld is not None:
            return 'keeps it (%s)%s' % (finding.withheld, without)
        plugin = (', once its host has the plugin in mode enforce'
                  if self.lacks_plugin else '')
        if finding.is_reconnect:
            return 'reconnects it' + (
                ', unless the guest is on another host'
                if self.is_decided_by_host else '') + plugin
        if finding.is_removal:
            return ('removes the mapping' if finding.bdm
                    else 'deletes the attachment') + plugin
        if finding.reason is Reason.DUPLICATE_MAPPING:
            # The API does not show whether it was connected.
            return 'removes it if Nova never connected it'
        if self.is_decided_by_host:
            return 'keeps it, and its host decides whether it is connected'
        return 'keeps it' + without

    @property
    def is_decided_by_host(self) -> bool:
        """Tell whether an address, or where the guest is, decides if it is
        connected: the commands know neither.
        """
        return self.finding.bdm is not None and (
            self.finding.reason in ENDED_HALF_WAY
            and not self.finding.is_due
            or self.finding.reason is Reason.HALF_MOVED
            and self.seen.may_be_elsewhere)


class Fact(NamedTuple):
    """A column of the output."""

    title: str
    value: Callable[[ShownDisk], Any]
    #: Its text below the row on a terminal; empty: none.
    sentence: str = ''


#: The columns, in their order.
FACTS = (
    Fact('Device', lambda d: d.finding.device),
    Fact('Volume', lambda d: d.finding.volume_id),
    Fact('Volume Status',
         lambda d: None if d.finding.is_of_server else d.volume_status),
    Fact('Attachment in Nova',
         lambda d: d.finding.bdm.attachment_id if d.finding.bdm else None),
    Fact('Attachment in Cinder',
         lambda d: None if d.finding.is_of_server
         else ', '.join('%s (%s)' % (a.id, a.status)
                        for a in d.attachments) or 'none',
         'Attachment in Cinder: %s.'),
    Fact('Host', lambda d: d.host),
    Fact('Verdict', lambda d: str(d.finding.reason)),
    Fact('Hard Reboot', lambda d: d.hard_reboot),
    Fact('Explanation', lambda d: d.finding.explanation + d.not_given),
    Fact('Connects',
         lambda d: None if d.finding.depends_on_root or d.is_decided_by_host
         else d.finding.bdm
         and disks.fate_of(d.finding) is disks.Fate.GIVEN),
    Fact('Action', lambda d: d.action),
)

SHOW_COLUMNS = tuple(fact.title for fact in FACTS)
