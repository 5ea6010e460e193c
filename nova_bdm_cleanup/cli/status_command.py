# SPDX-License-Identifier: Apache-2.0
"""``nova-bdm-cleanup status``: the plugin in the nova-compute that runs."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from nova_bdm_cleanup import terminal, VERSION
from nova_bdm_cleanup.cli import novaconf
from nova_bdm_cleanup.store.database import StoreError
from nova_bdm_cleanup.store.processes import Process
from nova_bdm_cleanup.store.watch import Round
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.watch import status
from nova_bdm_cleanup.watch.status import State

#: Documented; scripts go by them.
_CODES = {
    State.ACTIVE: ExitCode.OK,
    State.NOT_ACTIVE: ExitCode.NOTHING,
    State.REFUSED: ExitCode.REFUSED,
    State.STALE: ExitCode.PARTLY,
    State.CANNOT_TELL: ExitCode.FINDINGS,
}


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        'status', allow_abbrev=False,
        help='whether the plugin works in the nova-compute that runs',
        description='Show whether the plugin works in the nova-compute that '
                    'runs on this host now, and what its audit has found. '
                    'Nothing is changed.')
    parser.add_argument('--json', action='store_true',
                        help='the same as JSON')
    novaconf.add_arguments(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    conf = novaconf.load(args)
    path = novaconf.store_path(conf)
    now = time.time()
    try:
        found = status.status_of(conf.host, path, now)
    except StoreError as exc:
        found = status.Status(State.CANNOT_TELL, str(exc), None, Round(), {},
                              0)
    print(json.dumps(_as_dict(found), indent=2) if args.json
          else terminal.columns([(title, terminal.clean(value)) for
                                 title, value in _lines(found, conf.host)]))
    return _CODES[found.state]


def _lines(found: status.Status, host: str) -> list[tuple[str, Any]]:
    """What people read."""
    lines: list[tuple[str, Any]] = [
        ('Host', host),
        ('State', '%s: %s' % (found.state, found.why) if found.why
         else found.state)]
    if found.process is None:
        return lines
    facts = found.process.facts
    lines += [
        ('Process', found.process.pid),
        ('Since', terminal.moment(found.process.since) + ' UTC'),
        ('Plugin', _plugin(found.process)),
        ('Nova', facts.get('nova_version'))]
    if found.process.problem:
        # The options may be what is wrong.
        return lines
    lines += [
        ('Mode', facts.get('mode')),
        ('Triggers', facts.get('triggers')),
        ('Removals, last hour', '%d of %s' % (
            found.removals_last_hour, facts.get('max_removals_per_hour')))]
    if not facts.get('audit_interval'):
        return [*lines, ('Audit', 'off')]
    last = found.last
    return [
        *lines,
        ('Audit', 'every %s s%s' % (
            facts['audit_interval'], ', servers that are stopped are cleaned '
            'up' if facts.get('sweep_stopped') else '')),
        ('Last round', last.succeeded and (
            '%s UTC: %d servers with %d volumes in %.1f s with %d requests' % (
                terminal.moment(last.succeeded), last.servers, last.volumes,
                last.seconds, last.requests)) or 'none yet'),
        ('Breaker', 'closed' if not last.failed else
         'open: %d rounds have failed, the last one with: %s' % (
             last.failed, last.problem)),
        ('Next round', terminal.moment(last.next) + ' UTC' if last.next
         else None),
        ('Open findings', ', '.join(
            '%d %s' % (number, reason)
            for reason, number in found.findings.items()) or 'none')]


def _plugin(process: Process) -> str:
    running = str(process.facts.get('version'))
    if running == VERSION:
        return running
    return '%s; %s is installed: restart nova-compute' % (
        running, VERSION)


def _as_dict(found: status.Status) -> dict[str, Any]:
    """What scripts read; its fields are documented and stay."""
    process, last = found.process, found.last
    return {
        'state': str(found.state),
        'why': found.why,
        'process': process and {
            'host': process.host,
            'pid': process.pid,
            'since': process.since,
            **process.facts},
        'removals_last_hour': found.removals_last_hour,
        'last_round': None if last.succeeded is None else {
            'begun': last.succeeded, 'servers': last.servers,
            'volumes': last.volumes, 'requests': last.requests,
            'seconds': last.seconds},
        'failed_rounds': last.failed,
        'problem': last.problem,
        'next_round': last.next or None,
        'findings': found.findings,
    }
