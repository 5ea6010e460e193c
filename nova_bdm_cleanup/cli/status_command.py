# SPDX-License-Identifier: Apache-2.0
"""``nova-bdm-cleanup status``: the plugin in the nova-compute that runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import dataclasses
import json
import shutil
import time
from typing import Any

from nova_bdm_cleanup import terminal, VERSION
from nova_bdm_cleanup.cli import novaconf
from nova_bdm_cleanup.plugin.switch import GROUP
from nova_bdm_cleanup.rules.facts import Reason, REMOVED
from nova_bdm_cleanup.store.database import StoreError
from nova_bdm_cleanup.store.watch import Sighting
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.watch import status
from nova_bdm_cleanup.watch.status import State

#: Documented; scripts go by them.
EXIT_CODES = {
    State.ACTIVE: ExitCode.OK,
    State.NOT_ACTIVE: ExitCode.NOTHING,
    State.REFUSED: ExitCode.REFUSED,
    State.STALE: ExitCode.PARTLY,
    State.CANNOT_TELL: ExitCode.FINDINGS,
}

_REMOVED = frozenset(map(str, REMOVED))

#: The columns of what is open, and what they show of it.
_OPEN = (('Server', 'server'), ('Volume', 'volume'), ('Reason', 'reason'),
         ('Since (UTC)', 'since'), ('What to do', 'what_to_do'))


def run(args: argparse.Namespace) -> int:
    """Show the state, and what is open."""
    conf = novaconf.load(args)
    path = conf[GROUP].store
    try:
        found = status.status_of(conf.host, path, time.time())
    except StoreError as exc:
        found = status.Status(State.CANNOT_TELL, str(exc))
    if args.json:
        print(json.dumps(_as_dict(found), indent=2))
    else:
        print(terminal.columns(_lines(found, conf.host)))
        if found.is_audited and found.open:
            print('\n' + _table(_open(found)))
    return EXIT_CODES[found.state]


def _lines(found: status.Status, host: str) -> Iterator[tuple[str, Any]]:
    """What people read."""
    yield 'Host', host
    yield 'State', '%s: %s' % (found.state, found.why) if found.why else (
        found.state)
    process, last = found.process, found.last
    if process is None:
        return
    facts = process.facts
    version, interval = facts.get('version'), facts.get('audit_interval')
    yield 'Process', process.pid
    yield 'Since', terminal.moment(process.since) + ' UTC'
    yield 'Plugin', version if version == VERSION else (
        '%s; %s is installed: restart nova-compute' % (version, VERSION))
    yield 'Nova', facts.get('nova_version')
    if process.problem:
        # The options may be what is wrong.
        return
    yield 'Mode', facts.get('mode')
    yield 'Triggers', facts.get('triggers')
    yield 'Removals, last hour', '%d of %s' % (
        found.removals_last_hour, facts.get('max_removals_per_hour'))
    if not interval:
        yield 'Audit', 'off'
        yield 'Open findings', ('not known: set [bdm_cleanup] audit_interval '
                                '= 3600 and restart nova-compute')
        return
    yield 'Audit', 'every %s s%s' % (
        interval, ', servers that are stopped are cleaned up'
        if facts.get('sweep_stopped') else '')
    yield 'Last round', '%s UTC: %d servers with %d volumes' % (
        terminal.moment(last.succeeded), last.servers, last.volumes
        ) if last.succeeded else 'none yet'
    if last.failed:
        yield 'Failed since', '%d, the last one with: %s' % (
            last.failed, last.problem)
    yield 'Next round', (terminal.moment(last.next) + ' UTC' if last.next
                         else None)
    yield 'Open findings', (_counts(found) if found.is_audited
                            else 'not known before the first round')


def _counts(found: status.Status) -> str:
    kept = found.findings.get(str(Reason.OPTED_OUT), 0)
    once = sum(not s.announced for s in found.known)
    return ''.join((
        str(len(found.open) or 'none'),
        ', %d marked bdm_cleanup=keep' % kept if kept else '',
        ', %d seen once so far' % once if once else ''))


def _open(found: status.Status) -> list[dict[str, Any]]:
    """What scripts read of what is open."""
    facts = found.process.facts if found.process else {}
    observes = facts.get('mode') == 'observe'
    kept = {s.server for s in found.open if s.reason not in _REMOVED}
    rows = []
    for sighting in found.open:
        row = dataclasses.asdict(sighting)
        del row['announced'], row['held']
        row['since'] = row.pop('first')
        row['what_to_do'] = _what_to_do(
            sighting, observes, sighting.server in kept)
        rows.append(row)
    return rows


def _what_to_do(known: Sighting, observes: bool, needs_look: bool) -> str:
    """A command.

    :param needs_look: something else at the server is not removed
    """
    reason = known.reason
    if reason in _REMOVED:
        if observes:
            reason = str(Reason.OBSERVE_MODE)
        elif known.held:
            reason = str(Reason.OVER_LIMIT)
        else:
            return 'openstack bdm %s %s' % (
                'show' if needs_look else 'clean', known.server)
    return 'openstack bdm explain ' + reason


def _table(rows: list[dict[str, Any]]) -> str:
    """A line for each; on a terminal that is too narrow, a few."""
    titles = [title for title, _ in _OPEN]
    cells = [[terminal.moment(row[key]) if key == 'since' else row[key]
              for _, key in _OPEN] for row in rows]
    table = terminal.table(titles, cells)
    if (max(map(len, table.splitlines()))
            <= shutil.get_terminal_size((len(table), 0)).columns):
        return table
    return '\n\n'.join(terminal.columns(zip(titles, row)) for row in cells)


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
        'open': _open(found) if found.is_audited else None,
    }
