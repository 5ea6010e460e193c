# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""The command ``openstack bdm show``."""

from __future__ import annotations

import argparse
from typing import Any, Iterable, Optional, Sequence, Tuple

from osc_lib.command import command

from nova_bdm_cleanup import errors
from nova_bdm_cleanup.exitcodes import ExitCode
from nova_bdm_cleanup.fleet import inspection
from nova_bdm_cleanup.fleet.issues import QUIET
from nova_bdm_cleanup.model import Attachment
from nova_bdm_cleanup.model import Finding
from nova_bdm_cleanup.model import Reason
from nova_bdm_cleanup.model import RemoveBdm
from nova_bdm_cleanup.osc import base

_COLUMNS = ('Device', 'Volume', 'Volume Status', 'Attachment in Nova',
            'Attachment in Cinder', 'Host', 'Verdict', 'Hard Reboot',
            'Explanation')


class ShowBdm(base.BdmCommand, command.Lister):
    """Show every volume of one server as Nova and as Cinder see it.

    One row for each block device mapping with a volume, and for each
    attachment in Cinder that no mapping accounts for: what Nova says, what
    Cinder says, the verdict and why, and what a hard reboot would do on a
    compute host with the plugin and its default options.

    Exit codes: 0 all is in order, 5 something is not, 4 a question went
    unanswered, 3 refused, 2 no such server, 255 the command itself failed.
    """

    short = ('Device', 'Volume', 'Volume Status', 'Verdict')
    below = ('Hard Reboot', 'Attachment in Cinder', 'Explanation')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('server', metavar='<server>',
                            help='Server (name or ID)')
        parser.add_argument(
            '--all-projects', action='store_true',
            help='Find the server by its name in all projects '
                 '(administrators)')
        return parser

    def take_action(self, args: argparse.Namespace
                    ) -> Tuple[Sequence[str], Iterable[Sequence[Any]]]:
        self.connect(args)
        self.cinder.prove_admin()
        server = self.nova.find(args.server, args.all_projects)
        inspector = inspection.Inspector(
            self.nova, self.cinder, base.policy(args),
            inspection.Witness(self.nova, self.cinder), base.now,
            self.project_of_token())
        seen = inspector.inspect(server.id)
        if seen is None:
            raise errors.BadInput(
                'server %s has just been deleted' % server.id)
        self.note('Server %s (%s): %s, host %s, project %s', seen.server.id,
                  seen.server.name, seen.server.status,
                  seen.server.host or '-', seen.server.project or '-')
        if any(f.reason not in QUIET for f in seen.findings):
            self.exit_code = ExitCode.FINDINGS
        return _COLUMNS, [_row(f, seen) for f in seen.plan.findings]


def _row(finding: Finding, seen: inspection.Inspection) -> Tuple[Any, ...]:
    volume = seen.volumes.get(finding.volume_id or '')
    status = volume.status if volume else 'does not exist'
    if finding.reason is Reason.CANNOT_SEE_PROJECT:
        status = 'unknown'
    return (
        finding.device, finding.volume_id, status,
        finding.bdm.attachment_id if finding.bdm else None,
        _in_cinder(finding, seen), _host(finding, seen),
        str(finding.reason), _would(finding), finding.explanation)


def _in_cinder(finding: Finding, seen: inspection.Inspection) -> str:
    """The attachments of this disk, and their states."""
    return ', '.join('%s (%s)' % (a.id, a.status)
                     for a in _attachments(finding, seen)) or 'none'


def _host(finding: Finding, seen: inspection.Inspection) -> Optional[str]:
    """The host that one of them connects, where Cinder tells it."""
    volume = seen.volumes.get(finding.volume_id or '')
    hosts = [volume.host_of(a.id) for a in _attachments(finding, seen)] \
        if volume else []
    return next(filter(None, hosts), None)


def _attachments(finding: Finding,
                 seen: inspection.Inspection) -> Tuple[Attachment, ...]:
    return tuple(a for a in seen.attachments.values()
                 if a.id == finding.attachment_id
                 or finding.bdm and a.volume_id == finding.volume_id
                 and a.server_id == seen.server.id)


def _would(finding: Finding) -> str:
    """What a hard reboot would do with it."""
    if finding.withheld is not None:
        return 'keeps it (%s)' % finding.withheld
    if isinstance(finding.action, RemoveBdm):
        return 'removes the mapping'
    if finding.action is not None:
        return 'deletes the attachment'
    if finding.reason is Reason.DUPLICATE_MAPPING:
        # The API does not show whether it was connected.
        return 'removes it if Nova never connected it'
    return 'keeps it'
