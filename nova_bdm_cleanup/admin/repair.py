# SPDX-License-Identifier: Apache-2.0
"""``nova-bdm-cleanup repair``: adopt the disks of guests that go on."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import json
import sys
import time
from typing import Any

from nova_bdm_cleanup import terminal
from nova_bdm_cleanup.admin import configuration
from nova_bdm_cleanup.admin.status import State, status_of
from nova_bdm_cleanup.node import validation
from nova_bdm_cleanup.node.option_group import GROUP
from nova_bdm_cleanup.node.store.journal import objects
from nova_bdm_cleanup.node.store.spool import NoAnswer, Spool
from nova_bdm_cleanup.terminal import CommandError, ExitCode

_UNCHANGED = '; nothing was changed'


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer of nova-compute about one server."""

    server: str
    record: Mapping[str, Any]

    @property
    def problem(self) -> str:
        """Return why there are no findings; empty: there may be some."""
        return terminal.clean(self.record['problem']) \
            if self.record.get('problem') else ''

    @property
    def findings(self) -> Sequence[Mapping[str, Any]]:
        return objects(self.record, 'findings')

    @property
    def due(self) -> Sequence[Mapping[str, Any]]:
        """Return the findings that are, or would be, acted on."""
        return [f for f in self.findings if f.get('is_due') is True]


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if bool(args.servers) == args.all:
        raise CommandError(ExitCode.BAD_INPUT,
                           'name servers, or give --all, and not both')
    if not (args.yes or args.dry_run or sys.stdin.isatty()):
        raise CommandError(
            ExitCode.BAD_INPUT,
            'no terminal to ask on: give --yes, or --dry-run')
    spool = _spool(args)
    try:
        servers = args.servers or sorted(
            map(str, spool.ask({'server': None}).get('servers') or ()))
        previews = [_ask(spool, server, True) for server in servers]
    except NoAnswer as exc:
        raise CommandError(ExitCode.REFUSED, '%s' % exc) from exc
    if args.dry_run:
        _print(previews, args.json)
        return _code_of_preview(previews)
    wanted = [answer for answer in previews if answer.due]
    if wanted and not args.yes:
        print('\n'.join(_lines(wanted)), file=sys.stderr)
        _confirm(sum(len(answer.due) for answer in wanted))
    results = [_repair(spool, answer.server) if answer.due else answer
               for answer in previews]
    _print(results, args.json)
    return _code_of(previews, results)


def _spool(args: argparse.Namespace) -> Spool:
    """Return the spool of the nova-compute that runs.

    :raises CommandError: when none with the plugin does, or it only observes
    """
    conf = configuration.load(args)
    problems = validation.problems(conf)
    validation.forget_wrong_values(conf)
    path, mode = conf[GROUP].store, conf[GROUP].mode
    found = status_of(conf.host, path, time.time(), problems, mode)
    if found.process is None or found.state not in (
            State.ACTIVE, State.STALE):
        raise CommandError(ExitCode.REFUSED, found.why + _UNCHANGED)
    if found.process.facts.get('mode') != 'enforce' and not args.dry_run:
        raise CommandError(
            ExitCode.REFUSED, '[bdm_cleanup] mode is observe, in which only '
            '--dry-run works' + _UNCHANGED)
    return Spool(path, conf.host)


def _ask(spool: Spool, server: str, is_dry_run: bool) -> Answer:
    return Answer(server, spool.ask({
        'server': server, 'dry_run': is_dry_run}))


def _repair(spool: Spool, server: str) -> Answer:
    try:
        return _ask(spool, server, False)
    except NoAnswer as exc:
        return Answer(server, {'problem': 'no answer', 'why': str(exc)})


def _confirm(number: int) -> None:
    print('Change %d records, and leave the guests as they are? [y/N] '
          % number, end='', file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ('y', 'yes'):
        raise CommandError(ExitCode.REFUSED, 'nothing was changed')


def _code_of_preview(answers: Sequence[Answer]) -> ExitCode:
    if any(answer.due for answer in answers):
        return ExitCode.FINDINGS
    return _code_without_change(answers)


def _code_without_change(answers: Sequence[Answer]) -> ExitCode:
    if any(answer.problem for answer in answers):
        return ExitCode.REFUSED
    return ExitCode.FINDINGS if any(
        answer.findings for answer in answers) else ExitCode.NOTHING


def _code_of(previews: Sequence[Answer],
             results: Sequence[Answer]) -> ExitCode:
    wanted = sum(len(answer.due) for answer in previews)
    done = sum(len(answer.due) for answer, preview in zip(results, previews)
               if preview.due)
    if not wanted:
        return _code_without_change(results)
    if any(answer.record.get('problem') == 'no answer'
           for answer in results):
        return ExitCode.PARTLY
    if done >= wanted and not any(answer.problem for answer in results):
        return ExitCode.OK
    return ExitCode.PARTLY if done else ExitCode.REFUSED


def _print(answers: Sequence[Answer], as_json: bool) -> None:
    if as_json:
        print(json.dumps([{'server': answer.server, **answer.record}
                          for answer in answers], indent=2))
        return
    for line in _lines(answers):
        print(line)


def _lines(answers: Sequence[Answer]) -> Iterator[str]:
    """Yield the lines for people: what each party says, side by side."""
    for answer in answers:
        if answer.problem:
            yield '%s  %s: %s' % (
                terminal.clean(answer.server), answer.problem,
                terminal.clean(answer.record.get('why')))
    rows = [(answer.server, finding) for answer in answers
            for finding in answer.findings]
    if not rows:
        return
    parties = list(dict.fromkeys(
        str(party.get('party')) for _, finding in rows
        for party in objects(finding, 'parties')))
    yield terminal.table(
        ('Server', 'Volume', 'Device', 'Reason', *parties, 'Result'),
        [(server, finding.get('volume'), finding.get('device'),
          finding.get('reason'), *_cells(finding, parties),
          finding.get('outcome')) for server, finding in rows])
    for _, finding in rows:
        yield ''
        yield '%s %s' % (terminal.clean(finding.get('volume')),
                         terminal.clean(finding.get('explanation')))
        for party in objects(finding, 'parties'):
            if party.get('agrees') is not True:
                yield '  %s does not agree: %s' % (
                    terminal.clean(party.get('party')),
                    terminal.clean(party.get('words')))


def _cells(finding: Mapping[str, Any],
           parties: Sequence[str]) -> Iterator[str]:
    """Yield whether each party agrees."""
    answers = {str(party.get('party')): party.get('agrees') is True
               for party in objects(finding, 'parties')}
    for party in parties:
        yield {True: 'yes', False: 'no', None: '-'}[answers.get(party)]
