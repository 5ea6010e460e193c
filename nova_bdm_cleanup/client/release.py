# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm release``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from nova_bdm_cleanup.client import change_command, output
from nova_bdm_cleanup.client.cloud import audit, plan_file
from nova_bdm_cleanup.client.cloud.changes import Result, Status
from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.client.cloud.inspection import Cloud
from nova_bdm_cleanup.client.cloud.release.releaser import (
    read_connector,
    Release,
    Releaser,
    Target,
)
from nova_bdm_cleanup.client.cloud.release.steps import ReleaseStep
from nova_bdm_cleanup.client.cloud.release.volumes import Connector
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules.reasons import Remedy


class ReleaseBdm(change_command.ChangeCommand):
    """Release volumes held for servers that are gone or did not attach them.

    Shows the steps, asks, and makes one after the other. For administrators.

    Each attachment is released by the one call that also tells the back end,
    and only if no server, no other user of the volume and no operation is in
    the way; the explanation names it. The state of a volume is never set by
    hand. Each step is checked again right before it is done, and its result is
    read back.

    A host that had such a volume may still have its device. A server that
    Nova never knew, or has purged, may still exist: another Nova, or another
    service such as Ironic without Nova, may have it. So --orphans and --plan
    release only attachments of servers that Nova says it has deleted. Check
    this before you name such a volume or attachment.

    Exit codes: 0 all was released or there is nothing, 5 there is something
    to release (with --dry-run), 4 some of it was not released, 3 all of it
    was refused, or an API does not answer, and nothing was changed, 2 bad
    input, 130 interrupted, 255 the command itself failed.
    """

    verb = 'Release'
    thing = 'attachment'
    columns = ('Volume', 'Attachment', 'Server', 'Host', 'Call', 'Result',
               'Explanation')
    asked = ('Volume', 'Attachment', 'Call')

    short = ('Volume', 'Call', 'Result')
    below = ('Attachment', 'Result', 'Explanation')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'targets', metavar='<volume or attachment>', nargs='*',
            help='ID of a volume or of an attachment')
        parser.add_argument(
            '--orphans', action='store_true',
            help='Release all that an audit of all projects finds, except for '
                 'servers that another Nova may have')
        parser.add_argument(
            '--server', metavar='<server>',
            help='Release all that an audit of this server (ID) finds')
        parser.add_argument(
            '--connector', metavar='<file>',
            help='The connector of the host that had the volume, if Cinder '
                 'has none: a file with the output of "nova-manage '
                 'volume_attachment get_connector --json" on that host, or '
                 '"none" if no host ever had the volume. "none" is refused if '
                 'Cinder names a host or has connection information, or if '
                 'the volume is multiattach or has another attachment')
        parser.add_argument(
            '--same-cloud', action='store_true',
            help='Confirm that this Nova and this Cinder belong together. '
                 'Needed only if no server has a volume; not accepted if Nova '
                 'names volumes and Cinder knows none of them')
        parser.add_argument(
            '--gone-host', metavar='<host>', action='append', default=[],
            help='Confirm that this host is gone for good, and that no other '
                 'Nova has its servers; may be repeated. Needed only for '
                 'servers that Nova never knew, or has purged, and not '
                 'accepted for a compute host of this Nova')
        return parser

    def take_action(self, args: argparse.Namespace) -> output.Rows:
        if sum(map(bool, (args.targets, args.orphans, args.server,
                          args.plan))) != 1:
            raise errors.BadInput('give volumes or attachments, or --orphans, '
                                  'or --server, or --plan')
        self.need_terminal(args)
        connector = (read_connector(args.connector)
                     if args.connector else Connector())
        if connector.is_none and not args.targets:
            raise errors.BadInput('--connector none confirms that no host had '
                                  'a volume: give volumes or attachments')
        plan = [i for i in self.read_plan(args)
                if i.remedy is Remedy.RELEASE]
        cloud = self.connect(args)
        releaser = Releaser(cloud, connector, args.same_cloud,
                            args.gone_host)
        releaser.check()
        if args.orphans or args.server:
            plan = self._find(cloud, args.server)
        steps = releaser.plan(
            [releaser.resolve(name) for name in args.targets]
            or [Target(i.volume or '', i.attachment) for i in plan])
        if not steps:
            self.note('The plan has nothing to release' if args.plan
                      else 'There is nothing to release')
        if args.orphans:
            steps = self._without_strangers(steps)
        known = _differences(plan, steps) if args.plan else []
        todo = [s for s in steps if s not in [r.subject for r in known]]
        known += [Result(s, Status.REFUSED) for s in todo if s.call is None]
        todo = [s for s in todo if s.call is not None]
        return self.carry_out(
            args, [Release(releaser, s) for s in todo], known)

    def row(self, result: Result) -> tuple[Any, ...]:
        step = result.subject
        return (step.volume, step.attachment_id, step.server, step.host,
                step.call and str(step.call), result, step.advice)

    def explanation(self, result: Result) -> Iterable[str]:
        lines: list[str] = result.subject.advice.lines
        return lines

    def _find(self, cloud: Cloud, server: str | None) -> list[CloudFinding]:
        """Return the findings of an audit that can be released."""
        auditor = audit.CloudAudit(cloud, audit.Scope(
            servers=(server,) if server else (), all_projects=True))
        found = [i for i in auditor.findings() if i.remedy is Remedy.RELEASE]
        for gap in auditor.gaps:
            self.say('INCOMPLETE: %s' % gap)
        if auditor.gaps:
            raise errors.Refused('the audit is incomplete; give volumes or '
                                 'attachments')
        return found

    def _without_strangers(self, steps: Sequence[ReleaseStep]
                           ) -> tuple[ReleaseStep, ...]:
        """Drop steps for other Novas' servers, which look like orphans."""
        left = sum(s.needs_look for s in steps)
        if left:
            self.say('%s skipped: another Nova may have the servers. Nova '
                     'never knew them, or has purged them. Look at them '
                     'first: openstack bdm audit --all-projects --long '
                     '--reason server-gone' % (
                         '1 attachment was' if left == 1
                         else '%d attachments were' % left))
        return tuple(s for s in steps if not s.needs_look)


def _differences(plan: Iterable[CloudFinding],
                 steps: Sequence[ReleaseStep]) -> list[Result]:
    """Return the parts of a plan that are not to be done, and why."""
    planned = {(i.volume, i.attachment): i for i in plan}
    done = {s.volume for s in steps if s.is_settled}
    found = []
    for step in steps:
        finding = planned.get((step.volume, step.attachment_id)) or (
            planned.get((step.volume, None)))
        if step.is_settled:
            found.append(Result(
                step, Status.SKIPPED, 'nothing remains to be done', True))
        elif (finding is None or step.server not in (finding.server, None)
                or step.volume not in done
                and plan_file.has_changed(finding, step.since)):
            found.append(Result(
                step, Status.SKIPPED, 'it has changed since the audit'))
        elif step.needs_look:
            found.append(Result(
                step, Status.REFUSED, 'another Nova may have the server; look '
                'at it, and name its volume or attachment'))
    return found
