# SPDX-License-Identifier: Apache-2.0
"""``nova-bdm-cleanup status``: the plugin in the nova-compute that runs."""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterator, Sequence
import dataclasses
import enum
import json
import shutil
import time
from typing import Any

from nova_bdm_cleanup import terminal, VERSION
from nova_bdm_cleanup.admin import configuration
from nova_bdm_cleanup.node import validation
from nova_bdm_cleanup.node.option_group import GROUP
from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.node.store.findings import (
    FindingStore,
    RecordedFinding,
    Round,
)
from nova_bdm_cleanup.node.store.journal import Journal, MAPPINGS
from nova_bdm_cleanup.node.store.processes import Process, Processes
from nova_bdm_cleanup.rules.mappings import NOT_RECONNECTED
from nova_bdm_cleanup.rules.reasons import Reason, Remedy
from nova_bdm_cleanup.terminal import ExitCode

#: Audit intervals without a successful round after which the state is stale.
_STALE_AFTER_INTERVALS = 3

_RESTART = 'restart nova-compute'
_REMEDY = 'set [bdm_cleanup] mode = enforce (or observe) and ' + _RESTART


class State(enum.Enum):
    """The state of the plugin, and the exit code; both are interfaces."""

    ACTIVE = 'active', ExitCode.OK
    NOT_ACTIVE = 'not-active', ExitCode.NOTHING
    REFUSED = 'refused', ExitCode.REFUSED
    STALE = 'stale', ExitCode.PARTLY
    CANNOT_TELL = 'cannot-tell', ExitCode.PARTLY

    def __str__(self) -> str:
        return self.value[0]


#: The reasons of what a cleanup ends.
_CLEANED = frozenset(str(reason) for reason in Reason
                     if reason.remedy is Remedy.CLEAN)

#: The columns of the open findings, and their fields.
_OPEN_COLUMNS = (
    ('Server', 'server'), ('Volume', 'volume'), ('Reason', 'reason'),
    ('Since (UTC)', 'since'), ('What to do', 'what_to_do'))


@dataclasses.dataclass(frozen=True)
class NodeStatus:
    """The plugin in one nova-compute."""

    state: State
    #: Why it is in this state; empty when all is well.
    why: str
    #: The problems of the options in the configuration files.
    option_problems: Sequence[str]
    process: Process | None = None
    last: Round = Round()
    #: The findings of the audit.
    known: tuple[RecordedFinding, ...] = ()
    #: Who had the most removals within the last hour, and how many.
    charged: tuple[str, int] = ('', 0)
    #: The nova-computes of other names, if this one was never started.
    others: tuple[str, ...] = ()

    @property
    def other_version(self) -> str:
        """Return what to do if it is not the version that is installed."""
        version = self.process and self.process.facts.get('version')
        return '' if version in (None, VERSION) else (
            '%s; %s is installed: %s' % (version, VERSION, _RESTART))

    @property
    def is_audited(self) -> bool:
        """Return whether the open findings are known."""
        return bool(self.process and self.process.facts.get('audit_interval')
                    and self.last.succeeded)

    @property
    def findings(self) -> dict[str, int]:
        """Count the open findings by reason."""
        return dict(sorted(collections.Counter(
            s.reason for s in self.known if s.announced).items()))

    @property
    def open(self) -> tuple[RecordedFinding, ...]:
        """Return the findings that need an action, the worst first."""
        return tuple(sorted(
            (s for s in self.known if s.announced),
            key=lambda s: s.reason != Reason.ROOT_VOLUME_DANGLING))


def status_of(host: str, path: str, now: float,
              option_problems: Sequence[str] = (),
              mode: str = 'off') -> NodeStatus:
    """Return the status from the store and the kernel.

    :param option_problems: the problems of the options in the files
    :param mode: the mode in the files
    :raises StoreError: when the store cannot be read
    """
    processes, store = Processes(path, host), FindingStore(path, host)
    process = processes.last()
    remedy = 'to activate it: ' + (_REMEDY if mode == 'off' else _RESTART)
    if option_problems:
        remedy = 'it stays off because of its options'
    if process is None:
        others = processes.hosts()
        return NodeStatus(
            State.NOT_ACTIVE, 'not running yet in a nova-compute named %s; %s'
            % (host, 'for %s, give its --config-file' % ' or '.join(others)
               if others else remedy), option_problems, others=others)
    last = store.last_round()
    interval = process.facts.get('audit_interval', 0)
    age = now - max(last.succeeded or 0.0, process.since)
    state, why = State.ACTIVE, ''
    if not processes.is_running():
        state, why = State.NOT_ACTIVE, (
            'the nova-compute with the plugin (process %s) has ended; if '
            'another one runs, it runs without the plugin; %s'
            % (process.pid, remedy))
    elif process.problem:
        state, why = State.REFUSED, process.problem
    elif interval and age > _STALE_AFTER_INTERVALS * interval:
        state, why = State.STALE, (
            'no round of the audit has succeeded for %d s%s'
            % (age, last.problem and ': ' + last.problem))
    return NodeStatus(
        state, why, option_problems, process, last,
        # The findings of an audit that is now off are out of date.
        store.findings() if interval else (),
        Journal(path, clock=lambda: now).most_charged(MAPPINGS))


def run(args: argparse.Namespace) -> int:
    """Show the state and the open findings."""
    conf = configuration.load(args)
    problems = validation.problems(conf)
    validation.forget_wrong_values(conf)
    path = conf[GROUP].store
    try:
        found = status_of(conf.host, path, time.time(), problems,
                          conf[GROUP].mode)
    except StoreError as exc:
        found = NodeStatus(State.CANNOT_TELL, str(exc), problems)
    if args.json:
        print(json.dumps(_as_dict(found), indent=2))
    else:
        print(terminal.fields(_lines(found, conf.host)))
        if found.is_audited and found.open:
            print('\n' + _table(_open(found)))
    return found.state.value[1]


def _lines(found: NodeStatus, host: str) -> Iterator[tuple[str, Any]]:
    """Yield the lines for people."""
    yield 'Host', host
    yield 'State', '%s: %s' % (found.state, found.why) if found.why else (
        found.state)
    yield 'Options', '; '.join(found.option_problems) or 'valid'
    process, last = found.process, found.last
    if process is None:
        return
    facts = process.facts
    interval = facts.get('audit_interval')
    yield 'Process', process.pid
    yield 'Since', terminal.moment(process.since) + ' UTC'
    yield 'Plugin', found.other_version or facts.get('version')
    yield 'Nova', facts.get('nova_version')
    if process.problem:
        # The problem may be the options.
        return
    yield 'Mode', facts.get('mode')
    yield 'Triggers', ', '.join(filter(None, (
        'hard reboot', *facts.get('triggers', '').split(','))))
    payer, removals = found.charged
    yield 'Removals, last hour', '%d of %s%s' % (
        removals, facts.get('max_removals_per_hour'),
        ' (%s)' % payer if payer else '')
    if not interval:
        yield 'Audit', 'off'
        yield 'Open findings', ('not known: set [bdm_cleanup] audit_interval '
                                '= 3600 and restart nova-compute')
        return
    yield 'Audit', 'every %s s' % interval
    yield 'Last round', '%s UTC: %d servers with %d volumes' % (
        terminal.moment(last.succeeded), last.servers, last.volumes
        ) if last.succeeded else 'none yet'
    if not last.failed and last.next - interval > (last.succeeded or 0.0):
        yield 'This round', 'since %s UTC' % terminal.moment(
            last.next - interval)
    if last.failed:
        yield 'Failed rounds', '%d; the last error: %s' % (
            last.failed, last.problem)
    yield 'Next round', (terminal.moment(last.next) + ' UTC' if last.next
                         else None)
    yield 'Open findings', (_counts(found) if found.is_audited
                            else 'not known before the first round')


def _counts(found: NodeStatus) -> str:
    once = sum(not s.announced for s in found.known)
    return ''.join((
        str(len(found.open) or 'none'),
        ', %d seen once so far' % once if once else ''))


def _open(found: NodeStatus) -> list[dict[str, Any]]:
    """Return the fields of the open findings for scripts."""
    facts = found.process.facts if found.process else {}
    observes = facts.get('mode') == 'observe'
    # At these servers there is a finding that a reboot does not end.
    need_a_look = {s.server for s in found.open if not _is_cleaned(s)}
    rows = []
    for sighting in found.open:
        server, reason = sighting.server, sighting.reason
        if not _is_cleaned(sighting):
            to_do = 'bdm explain ' + reason
        elif observes:
            to_do = 'bdm explain %s' % Reason.OBSERVE_MODE
        elif server in need_a_look:
            to_do = 'bdm show ' + server
        elif reason == Reason.NEVER_ATTACHED:
            # The API does not show it to "bdm clean".
            to_do = 'server reboot --hard ' + server
        else:
            to_do = 'bdm clean ' + server
        row = dataclasses.asdict(sighting)
        del row['announced']
        row['since'] = row.pop('first')
        row['what_to_do'] = 'openstack ' + to_do
        rows.append(row)
    return rows


def _is_cleaned(sighting: RecordedFinding) -> bool:
    """Return whether a hard reboot ends a finding."""
    return (sighting.reason in _CLEANED
            and NOT_RECONNECTED not in sighting.explanation)


def _table(rows: list[dict[str, Any]]) -> str:
    """Return a line for each row; on a narrow terminal, a few lines."""
    titles = [title for title, _ in _OPEN_COLUMNS]
    cells = [[terminal.moment(row[key]) if key == 'since' else row[key]
              for _, key in _OPEN_COLUMNS] for row in rows]
    table = terminal.table(titles, cells)
    if (max(map(len, table.splitlines()))
            <= shutil.get_terminal_size((len(table), 0)).columns):
        return table
    return '\n\n'.join(terminal.columns(zip(titles, row)) for row in cells)


def _as_dict(found: NodeStatus) -> dict[str, Any]:
    """Return the fields for scripts, which are documented and stay."""
    process, last = found.process, found.last
    return {
        'state': str(found.state),
        'why': found.why,
        'option_problems': list(found.option_problems),
        'process': process and {
            'host': process.host,
            'pid': process.pid,
            'since': process.since,
            **process.facts},
        'removals_last_hour': found.charged[1],
        'last_round': None if last.succeeded is None else {
            'ended': last.succeeded, 'servers': last.servers,
            'volumes': last.volumes, 'seconds': last.seconds},
        'failed_rounds': last.failed,
        'problem': last.problem,
        'next_round': last.next or None,
        'findings': found.findings,
        'open': _open(found) if found.is_audited else None,
    }
