# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm clean``."""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
import math
import statistics
from typing import Any

from nova_bdm_cleanup import terminal
from nova_bdm_cleanup.client import change_command, output
from nova_bdm_cleanup.client.cloud import commands, plan_file, reboot
from nova_bdm_cleanup.client.cloud.changes import Result, Status
from nova_bdm_cleanup.client.cloud.findings import CloudFinding
from nova_bdm_cleanup.client.cloud.inspection import Cloud
from nova_bdm_cleanup.openstack import errors
from nova_bdm_cleanup.rules import disks
from nova_bdm_cleanup.rules.reasons import Reason, Remedy

#: Words for whether a host has the plugin.
_PLUGIN = {True: 'enforce', False: 'NOT SEEN', None: 'not known'}


class CleanBdm(change_command.ChangeCommand):
    """Hard-reboot servers so that the plugin cleans them.

    Shows the removals and the reconnects, asks, reboots one server at a time
    on each host, waits, and shows what both APIs say afterwards. Each server
    is checked again right before its reboot, and skipped if it has changed.
    Servers in ERROR and stopped servers are cleaned, too; a stopped server
    runs afterwards, unless --stop-again is given.

    The compute host must have the plugin in mode enforce. If Placement shows
    that it does not, its servers are refused, unless --without-plugin is
    given. "removed" and "reconnected" are shown only for what the plugin has
    done: it records an event in the server's reboot. From Nova 28 on a reboot
    without the plugin can remove a mapping, too, and leave the device on the
    host: this is shown as "gone", and the command stops. Servers that an
    operator must look at first, and servers that are locked, are refused.

    Nova refuses everything for a server whose nova-compute ended in an
    operation. With --reset-state, the state of a server that the audit finds
    interrupted is set to error before the reboot. This cannot be undone: the
    operation is given up.

    Exit codes: 0 all was cleaned or there is nothing, 5 there is something to
    clean (with --dry-run), 4 some of it was not cleaned, 3 refused, or an API
    does not answer, and nothing was changed, 2 bad input, 130 interrupted,
    255 the command itself failed.
    """

    verb = 'Hard-reboot'
    thing = 'server'
    columns = ('Server', 'Server Name', 'Host', 'Volume', 'Attachment',
               'Device', 'Reason', 'Result')
    asked = ('Server', 'Volume', 'Reason')

    short = ('Server Name', 'Volume', 'Result')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('servers', metavar='<server>', nargs='*',
                            help='Server (name or ID)')
        parser.add_argument(
            '--all-projects', action='store_true',
            help='Find servers by their name in all projects '
                 '(administrators)')
        parser.add_argument(
            '--stop-again', action='store_true',
            help='Stop servers again that were stopped before: their guests '
                 'run only for a moment')
        parser.add_argument(
            '--locked', action='store_true',
            help='Also reboot servers that their owners have locked')
        parser.add_argument(
            '--without-plugin', action='store_true',
            help='Also reboot servers on hosts that do not show the plugin in '
                 'mode enforce: Nova alone keeps a mapping, or removes it and '
                 'leaves the device on the host')
        parser.add_argument(
            '--reset-state', action='store_true',
            help='Set the state of servers whose operation was interrupted to '
                 'error before, so that Nova reboots them (administrators)')
        parser.add_argument(
            '--at-once', metavar='<number>', type=output.number, default=4,
            help='Reboot at most this many servers at a time, and one on each '
                 'host; 0: no limit in all (default: 4)')
        parser.add_argument(
            '--timeout', metavar='<seconds>', type=output.number,
            default=600,
            help='How long to wait for one reboot (default: 600)')
        return parser

    def take_action(self, args: argparse.Namespace) -> output.Rows:
        if bool(args.servers) == bool(args.plan):
            raise errors.BadInput('give servers or --plan')
        self.need_terminal(args)
        plan = self.read_plan(args)
        cloud = self.connect(args)
        cloud.cinder.prove_admin()
        self.consent = consent = reboot.Consent(
            args.locked, args.reset_state, args.without_plugin)
        todo, known = (
            self._planned(cloud, plan) if args.plan
            else self._named(cloud, [
                cloud.nova.find(name, args.all_projects).id
                for name in args.servers]))
        columns, rows = self.carry_out(
            args, [reboot.Reboot(cloud, args.timeout, p, args.stop_again,
                                 consent) for p in todo], known,
            args.at_once)
        self.appendix = [commands.undo(host) for host in sorted({
            r.subject.host for *_, r in rows
            if r.status is Status.REMOVED and r.subject.host})]
        if self.appendix:
            self.last_line += '; a removal is undone on its host:'
        return columns, rows

    def announce(self, args: argparse.Namespace,
                 todo: Sequence[reboot.Reboot]) -> None:
        if not todo:
            return
        hosts: dict[str | None, list[reboot.RebootPreview]] = {}
        for change in todo:
            self._note_rest(change.shown)
            hosts.setdefault(change.shown.server.host, []).append(change.shown)
        self.app.stderr.write(terminal.table(
            ('Host', 'Plugin', 'Servers', 'Disks', 'Memory Lost',
             'Stopped, Then Stopped Again' if args.stop_again
             else 'Stopped, Then Running'),
            [(host, _PLUGIN[previews[0].has_plugin], len(previews),
              sum(len(p.findings) for p in previews),
              ', '.join(p.server.name for p in previews if p.loses_memory),
              ', '.join(p.server.name for p in previews
                        if p.server.status == 'SHUTOFF'))
             for host, previews in hosts.items()]) + '\n')
        how_long = len(todo) > 1 and _how_long(todo, args.at_once)
        if how_long:
            self.say(how_long)

    def sentences(self, row: Mapping[str, Any]) -> Iterator[str]:
        yield '%s, host %s' % (row['Server'], row['Host'] or '-')
        if row['Reason']:
            yield row['Reason']
        yield from row['Result'].lines

    def row(self, result: Result) -> tuple[Any, ...]:
        finding = result.subject
        if not isinstance(finding, CloudFinding):
            return (finding.id, finding.name, finding.host, *[None] * 4,
                    result)
        return (finding.server, finding.server_name, finding.host,
                finding.volume, finding.attachment, finding.device,
                str(finding.reason), result)

    def explanation(self, result: Result) -> Iterable[str]:
        finding = result.subject
        yield finding.explanation
        if finding.remedy is Remedy.RELEASE:
            yield 'no reboot is needed for that:'
            yield from finding.action.lines

    def _look(self, cloud: Cloud, server: str) -> reboot.RebootPreview:
        return reboot.preview(cloud, server, self.consent)

    def _named(self, cloud: Cloud, servers: Sequence[str]
               ) -> tuple[list[reboot.RebootPreview], list[Result]]:
        """Return reboots and refusals for the servers on the command line."""
        todo: list[reboot.RebootPreview] = []
        known: list[Result] = []
        for server in dict.fromkeys(servers):
            now = self._look(cloud, server)
            if now.refusals:
                known += _refused(now, now.findings or (now.server,))
            elif now.findings:
                todo.append(now)
            else:
                self._note_rest(now)
                self.note('Server %s: there is nothing to clean', server)
        return todo, known

    def _planned(self, cloud: Cloud, plan: Sequence[CloudFinding]
                 ) -> tuple[list[reboot.RebootPreview], list[Result]]:
        """Return the reboots that a plan still needs, and known results."""
        todo: list[reboot.RebootPreview] = []
        known: list[Result] = []
        wanted: dict[str, list[CloudFinding]] = {}
        for finding in plan:
            if finding.remedy is Remedy.CLEAN and finding.server:
                wanted.setdefault(finding.server, []).append(finding)
        if not wanted:
            self.note('The plan has nothing to clean')
        looks = {}
        for server, findings in wanted.items():
            try:
                looks[server] = self._look(cloud, server)
                known += looks[server].over(findings)
            except errors.BadInput as exc:
                known += [Result(i, Status.SKIPPED, str(exc))
                          for i in findings]
        done = {r.subject.volume for r in known if r.is_well}
        for server, now in looks.items():
            left = [i for i in wanted[server] if not now.settled(i)]
            if now.refusals:
                known += _refused(now, left)
                continue
            since = {i.key: i.since for i in now.findings}
            why = now.objection(left, plan) or '; '.join(
                'volume %s has changed since the audit' % i.volume
                for i in left if i.volume not in done
                and plan_file.has_changed(i, since[i.key]))
            if why:
                known += [Result(i, Status.SKIPPED, why) for i in left]
            elif left:
                todo.append(now)
        return todo, known

    def _note_rest(self, plan: reboot.RebootPreview) -> None:
        """Print what the table of the hosts does not show."""
        server = plan.server
        others = dict.fromkeys((i.volume, i.reason, tuple(i.action.lines))
                               for i in plan.others)
        for volume, reason, lines in others:
            self.note('Server %s: a reboot does not end %s of volume %s:',
                      server.id, reason, volume)
            for line in lines:
                self.note_command(line)
        if not plan.findings:
            return
        for f in plan.not_connected:
            self.note('Server %s: the mapping of volume %s (%s) stays, and '
                      '%s', server.id, f.volume_id, f.reason,
                      disks.effect_of(f))
        if plan.resets_state:
            self.note('Server %s: its operation (%s) is given up: its state '
                      'is set to error first, which cannot be undone. What '
                      'else it has left: %s', server.id, server.task,
                      commands.explain(Reason.INTERRUPTED))
        if plan.loses_memory:
            self.say('WARNING: server %s is %s: a hard reboot loses the '
                     'memory of its guest' % (server.id, server.status))


def _how_long(todo: Sequence[reboot.Reboot], at_once: int) -> str:
    """Say how long the reboots will take; empty: this is not known."""
    known = [t for t in (c.recently_took() for c in todo) if t is not None]
    if not known:
        return ''
    each = max(1, round(statistics.median(known)))
    hosts = collections.Counter(change.place for change in todo)
    width = min(at_once or len(hosts), len(hosts))
    turns = max(*hosts.values(), math.ceil(len(todo) / width))
    pace = ', one at a time' if width == 1 else (
        ' on %d hosts, one at a time on each%s' % (
            len(hosts), ' and %d in all' % width if width < len(hosts)
            else ''))
    return '%d servers%s; recent reboots took %d s: about %d s in all' % (
        len(todo), pace, each, turns * each)


def _refused(now: reboot.RebootPreview,
             subjects: Iterable[Any]) -> list[Result]:
    return [Result(subject, Status.REFUSED, '; '.join(now.refusals))
            for subject in subjects]
