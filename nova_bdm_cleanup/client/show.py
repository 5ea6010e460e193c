# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm show``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from nova_bdm_cleanup.client import output
from nova_bdm_cleanup.client.cloud import findings, inspection
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.rules.reasons import Remedy
from nova_bdm_cleanup.terminal import ExitCode

_COLUMNS = ('Device', 'Volume', 'Volume Status', 'Attachment in Nova',
            'Attachment in Cinder', 'Host', 'Verdict', 'Hard Reboot',
            'Explanation', 'Connects', 'Action')


class ShowBdm(output.BdmCommand):
    """Show every volume of one server as Nova and as Cinder see it.

    One row for each block device mapping with a volume, and for each
    attachment in Cinder that no mapping accounts for: what Nova says, what
    Cinder says, the verdict and why, and what a hard reboot would do on a
    compute host with the plugin and its default options: also where it keeps
    a mapping and does not connect its disk.

    Exit codes: 0 all is in order, 5 something is not, 4 a question went
    unanswered, 3 refused, 2 no such server, 255 the command itself failed.
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
        if seen.left_out or any(
                not f.reason.passes for f in seen.findings):
            self.exit_code = ExitCode.FINDINGS
        actions = (_action(findings.advised(found, cloud))
                   for found in findings.findings_of(seen))
        return _COLUMNS, [
            _row(f, seen, 'none' if f.reason is facts.Reason.HEALTHY
                 else next(actions)) for f in seen.plan.findings]

    def sentences(self, row: Mapping[str, Any]) -> Iterator[str]:
        if row['Verdict'] != str(facts.Reason.HEALTHY):
            yield from row['Action'].lines
            yield row['Explanation'] + '.'
            yield 'A hard reboot %s. Attachment in Cinder: %s.' % (
                row['Hard Reboot'], row['Attachment in Cinder'])


def _action(found: findings.CloudFinding) -> findings.Action:
    """Return what to do; a person has looked already."""
    action = found.action
    if found.remedy is Remedy.PERSON and action.commands == (
            findings.show_command(found.server),):
        return findings.Action(action.verb, (
            'openstack bdm explain %s' % found.reason,))
    return action


def _row(finding: facts.Finding, seen: inspection.Inspection,
         action: findings.Action | str) -> tuple[Any, ...]:
    volume = seen.volumes.get(finding.volume_id or '')
    status = volume.status if volume else 'does not exist'
    if finding.reason is facts.Reason.CANNOT_SEE_PROJECT:
        status = 'unknown'
    attachments = [a for a in seen.attachments.values()
                   if a.id == finding.attachment_id
                   or finding.bdm and a.volume_id == finding.volume_id
                   and a.server_id == seen.server.id]
    hosts = [volume.host_of(a.id) for a in attachments] if volume else []
    return (
        finding.device, finding.volume_id, status,
        finding.bdm.attachment_id if finding.bdm else None,
        ', '.join('%s (%s)' % (a.id, a.status)
                  for a in attachments) or 'none',
        next(filter(None, hosts), None), str(finding.reason),
        _would(finding, seen), finding.explanation,
        finding.bdm and finding.decision.connect, action)


def _would(finding: facts.Finding, seen: inspection.Inspection) -> str:
    """What a hard reboot would do with it."""
    without = ', and ' + facts.WITHOUT_DISK if finding in seen.left_out else ''
    if finding.withheld is not None:
        return 'keeps it (%s)%s' % (finding.withheld, without)
    if finding.is_removal:
        return ('removes the mapping' if finding.bdm
                else 'deletes the attachment')
    if finding.reason is facts.Reason.DUPLICATE_MAPPING:
        # The API does not show whether it was connected.
        return 'removes it if Nova never connected it'
    return 'keeps it' + without
