# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm release``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from osc_lib.command import command

from nova_bdm_cleanup.fleet import audit, plan_file, release
from nova_bdm_cleanup.fleet.issues import Issue, Remedy
from nova_bdm_cleanup.fleet.release import ReleaseResult, Target
from nova_bdm_cleanup.fleet.release_facts import NO_CONNECTOR, ReleaseStep
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.osc import base
from nova_bdm_cleanup.terminal import ExitCode

_COLUMNS = ('Volume', 'Attachment', 'Server', 'Host', 'Call', 'Result',
            'Explanation')


class ReleaseBdm(base.BdmCommand, command.Lister):
    """Release volumes held for servers that are gone or never attached them.

    Shows what it would do, and does it with --yes. For administrators.

    Each attachment is released by the one call that also tells the back end:
    "attachment delete" where Cinder kept the connector or only reserved the
    volume; "os-force_detach" with a connector where it did not;
    "os-complete" where an attach ended half way and the server exists;
    "os-terminate_connection" where Cinder has no record at all and the
    connector of a host is given; "os-roll_detaching" where a detach ended
    half way and the server exists.
    The state of a volume is never set by hand. A disk is never taken from a
    server that has a host: the explanation then says what to do first.

    Before that it makes sure that no cell of Nova has the server, that the
    attachment is of that volume, that the volume is in a state that Cinder
    can compute a new one from and is not being migrated, and that no other
    user of the volume is touched. Each step is checked again right before it
    is done, and read back after it.

    A host that had such a volume may still have its device. Instance IDs
    that Nova does not know may belong to another service that attaches
    volumes, such as Ironic without Nova: look before you say --yes.

    Exit codes: 6 all of it was released, 5 there is something to release
    (without --yes), 0 there is nothing, 4 some of it was not released, 3 all
    of it was refused, 2 bad input, 255 the command itself failed.
    """

    short = ('Volume', 'Call', 'Result')
    below = ('Attachment', 'Explanation')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'targets', metavar='<volume or attachment>', nargs='*',
            help='ID of a volume or of an attachment')
        parser.add_argument(
            '--orphans', action='store_true',
            help='All that an audit of all projects finds')
        parser.add_argument(
            '--server', metavar='<server>',
            help='Whatever an audit of this server (ID) finds')
        parser.add_argument(
            '--plan', metavar='<file>',
            help='What "bdm audit -f json" printed into this file, if '
                 'nothing of it has changed; -: standard input')
        parser.add_argument('--yes', action='store_true',
                            help='Do it, not only show it')
        parser.add_argument(
            '--max', metavar='<number>', type=base.number(0), default=10,
            help='Release nothing if there is more than this to release '
                 '(default: 10)')
        parser.add_argument(
            '--connector', metavar='<file>',
            help='For what Cinder kept no connector of: the '
                 'output of "nova-manage volume_attachment get_connector '
                 '--json" on the host that had the volume, or "none" if no '
                 'host ever had it; "none" is not believed where Cinder names '
                 'a host or kept a connection, or the volume is multiattach '
                 'or has another attachment')
        return parser

    def take_action(self, args: argparse.Namespace
                    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        if sum(map(bool, (args.targets, args.orphans, args.server,
                          args.plan))) != 1:
            raise errors.BadInput('give volumes or attachments, or --orphans, '
                                  'or --server, or --plan')
        connector = (release.read_connector(args.connector)
                     if args.connector else NO_CONNECTOR)
        if connector.is_none and not args.targets:
            raise errors.BadInput('--connector none is your word for what you '
                                  'name: give volumes or attachments')
        self.connect(args)
        releaser = release.Releaser(
            self.nova, self.cinder, base.policy(args), connector,
            self.progress, base.now)
        releaser.check()
        wanted = (plan_file.read_plan(args.plan, Remedy.RELEASE)
                  if args.plan else self._find(args)
                  if args.orphans or args.server else ())
        steps = releaser.plan(
            [releaser.resolve(name) for name in args.targets]
            or [Target(i.volume or '', i.attachment) for i in wanted])
        if args.orphans:
            steps = self._without_elsewhere(steps)
        if args.plan:
            _compare(wanted, steps)
        return _COLUMNS, [_row(o) for o in self._carry_out(
            args, releaser, steps)]

    def _find(self, args: argparse.Namespace) -> list[Issue]:
        """What there is to release, as an audit finds it."""
        auditor = audit.FleetAudit(
            self.nova, self.cinder, base.policy(args),
            audit.Scope(servers=(args.server,) if args.server else (),
                        all_projects=True), self.progress, base.now,
            self.project_of_token())
        found = [i for i in auditor.issues() if i.remedy is Remedy.RELEASE]
        for gap in auditor.gaps:
            self.say('INCOMPLETE: %s' % gap)
        if auditor.gaps:
            raise errors.Refused('the audit is incomplete; name what is to be '
                                 'released')
        return found

    def _without_elsewhere(self, steps: Sequence[ReleaseStep]
                           ) -> tuple[ReleaseStep, ...]:
        """To this Nova every server of another one looks like an orphan."""
        left = sum(s.is_elsewhere for s in steps)
        if left:
            self.say('%d attachments were left: their host is no compute '
                     'host of this Nova, so another Nova that uses the same '
                     'Cinder may have their server' % left)
        return tuple(s for s in steps if not s.is_elsewhere)

    def _carry_out(self, args: argparse.Namespace, releaser: release.Releaser,
                   steps: Sequence[ReleaseStep]) -> list[ReleaseResult]:
        due = sum(s.call is not None for s in steps)
        if not args.yes:
            self._end(due and ExitCode.FINDINGS, steps, due)
            if due:
                self.note('Nothing was changed; --yes does it')
            return [ReleaseResult(s, False, 'planned' if s.call else 'refused')
                    for s in steps]
        if due > args.max:
            raise errors.Refused('%d are to be released, and --max allows %d; '
                                 'nothing was changed' % (due, args.max))
        outcomes: list[ReleaseResult] = []
        try:
            for number, outcome in enumerate(releaser.act(steps), 1):
                self.progress('released', number)
                outcomes.append(outcome)
        except KeyboardInterrupt:
            # What became of the others must be told all the same.
            words = iter(('unknown: interrupted',))
            outcomes += [ReleaseResult(s, False, next(words, 'not begun'))
                         for s in steps[len(outcomes):]]
        done = sum(o.done for o in outcomes)
        self._end(ExitCode.REPAIRED if done == len(steps)
                  else ExitCode.PARTLY, steps, due)
        return outcomes

    def _end(self, code: int, steps: Sequence[ReleaseStep], due: int) -> None:
        self.exit_code = ExitCode(code)
        if not steps:
            self.exit_code = ExitCode.OK
            self.note('There is nothing to release')
        elif not due:
            self.exit_code = ExitCode.REFUSED


def _compare(planned: Iterable[Issue], steps: Iterable[ReleaseStep]) -> None:
    """Refuse a plan whose facts have changed."""
    now = {(s.volume, s.attachment_id): s for s in steps}
    changed = []
    for issue in planned:
        step = now.get((issue.volume or '', issue.attachment))
        if (step is None or plan_file.has_changed(issue, step.since)
                or step.server not in (issue.server, None)):
            changed.append('volume %s (%s)' % (issue.volume, issue.reason))
    if changed:
        raise errors.Refused('the facts have changed since the plan was '
                             'made: %s; audit again' % ', '.join(changed))


def _row(outcome: ReleaseResult) -> tuple[Any, ...]:
    step = outcome.step
    return (step.volume, step.attachment_id, step.server, step.host,
            step.call and str(step.call), outcome.text, step.explanation)
