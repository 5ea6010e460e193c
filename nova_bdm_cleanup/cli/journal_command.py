# SPDX-License-Identifier: Apache-2.0
"""``nova-bdm-cleanup journal``: what was removed, and how to undo it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
import datetime
import json
import re
import time
from typing import Any

from nova_bdm_cleanup import terminal
from nova_bdm_cleanup.cli import novaconf, undo
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.store.records import objects, Recorded, Records
from nova_bdm_cleanup.terminal import CommandError, ExitCode

_UNITS = {'s': 1, 'm': 60, 'h': 3600, 'd': 86400, 'w': 604800}

#: What tells one entry from another, in the order in which it is shown.
_HEAD = (('Server', 'server'), ('Project', 'project'), ('Host', 'host'),
         ('Trigger', 'trigger'), ('Request', 'request_id'),
         ('Plugin', 'plugin'), ('Nova', 'nova'))

#: What every entry came from that does not say so.
_FIRST_TRIGGER = 'hard_reboot'


def add_parser(subparsers: Any) -> None:
    """Add the command and its subcommands."""
    parser = subparsers.add_parser(
        'journal', allow_abbrev=False,
        help='what was removed on this host, and how to undo it',
        description='Show what the plugin did on this host, and how to undo '
                    'it.')
    commands = parser.add_subparsers(metavar='COMMAND', required=True)

    listing = _add_command(
        commands, 'list', _list, 'one line for each entry, oldest first')
    listing.add_argument(
        '--server', metavar='UUID', type=spelling.identifier,
        help='only the entries of this server')
    listing.add_argument(
        '--since', metavar='WHEN', type=_since, default=float('-inf'),
        help='only later entries: 30m, 12h, 7d, or a date and time (UTC '
             'unless it says otherwise) such as 2026-01-31T13:00')
    showing = _add_command(commands, 'show', _show, 'all of one entry')
    undoing = _add_command(
        commands, 'undo', _undo,
        'the commands that attach again what was removed')
    for parser in showing, undoing:
        parser.add_argument('entry', metavar='ENTRY',
                            help='as shown by "journal list" and in the log')
    for parser in listing, showing:
        parser.add_argument('--json', action='store_true',
                            help='everything, as JSON')
    undo.add_arguments(undoing)


def _add_command(commands: Any, name: str, run: Any,
                 purpose: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, allow_abbrev=False, help=purpose,
        description=purpose[0].upper() + purpose[1:] + '.')
    parser.add_argument(
        '--journal', metavar='FILE',
        help='the store to read. Default: [bdm_cleanup] store of nova.conf')
    novaconf.add_arguments(parser)
    parser.set_defaults(run=run)
    return parser


def _since(word: str) -> float:
    ago = re.fullmatch(r'([0-9]{1,9})([smhdw])', word)
    if ago:
        return time.time() - int(ago.group(1)) * _UNITS[ago.group(2)]
    try:
        # Before Python 3.11 the letter for UTC is not understood.
        when = datetime.datetime.fromisoformat(
            re.sub('[Zz]$', '+00:00', word))
        if when.tzinfo is None:
            when = when.replace(tzinfo=datetime.timezone.utc)
        return when.timestamp()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            '%r is neither an age such as 12h nor a date and time such as '
            '2026-01-31T13:00' % word) from None


def _records(args: argparse.Namespace) -> Records:
    path = args.journal or novaconf.store_path(novaconf.load(args))
    records = Records(path)
    if not records.exists():
        raise CommandError(
            ExitCode.NOTHING,
            'there is no store at %s. Either nothing was removed on this '
            'host yet, or nova-compute keeps it elsewhere (--config-file, '
            '--journal)' % path)
    return records


def _find(args: argparse.Namespace) -> Recorded:
    entry = _records(args).find(args.entry)
    if entry is None:
        raise CommandError(ExitCode.NOTHING, 'the journal has no entry %s'
                           % terminal.clean(args.entry))
    return entry


def _list(args: argparse.Namespace) -> int:
    entries = _records(args).entries(args.server, args.since)
    if args.json:
        print(json.dumps([_as_dict(e) for e in entries], indent=2))
    elif entries:
        print(terminal.table(
            ('Entry', 'Time (UTC)', 'Server', 'Trigger', 'Removed',
             'Outcome'),
            [(e.id, terminal.moment(e.time), e.record.get('server'),
              e.record.get('trigger', _FIRST_TRIGGER),
              '%d of %d' % (e.carried_out, e.removals), e.outcome)
             for e in entries]))
    return ExitCode.OK if entries else ExitCode.NOTHING


def _show(args: argparse.Namespace) -> int:
    entry = _find(args)
    if args.json:
        print(json.dumps(_as_dict(entry), indent=2))
        return ExitCode.OK
    head = [('Entry', entry.id),
            ('Time', terminal.moment(entry.time) + ' UTC')]
    record = {'trigger': _FIRST_TRIGGER, **entry.record}
    head += [(title, terminal.clean(record.get(key))) for title, key in _HEAD]
    head += [('Outcome', entry.outcome)]
    print(terminal.columns(head))
    for action in objects(entry.record, 'actions'):
        print('\n%s (%s): %s' % tuple(terminal.clean(action.get(k)) for k in (
            'kind', 'reason', 'explanation')))
        for row in _rows(action):
            print(terminal.columns([(key, terminal.clean(value))
                                for key, value in row.items()], indent='  '))
    print('\nSteps')
    print(terminal.table(
        ('Time (UTC)', 'Step', 'Outcome', 'Of'),
        [(terminal.moment(s.time), s.name, s.outcome, ', '.join(
            '%s %s' % pair for pair in s.subject.items()))
         for s in entry.steps], indent='  '))
    print('\nFindings')
    print(terminal.table(
        ('Reason', 'Withheld', 'Volume', 'Device', 'Explanation'),
        [[f.get(k) for k in (
            'reason', 'withheld', 'volume', 'device', 'explanation')]
         for f in objects(entry.record, 'findings')], indent='  '))
    return ExitCode.OK


def _rows(action: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The mapping and the attachments of an action, as they were."""
    return [
        {'%s %s' % (key.rstrip('s'), name): value
         for name, value in row.items() if value is not None}
        for key in ('bdm', 'attachment', 'attachments')
        for row in objects(action, key)]


def _undo(args: argparse.Namespace) -> int:
    return undo.run(args, _find(args))


def _as_dict(entry: Recorded) -> dict[str, Any]:
    """What scripts read; its fields are documented and stay."""
    return {
        'entry': entry.id,
        'time': terminal.moment(entry.time).replace(' ', 'T') + 'Z',
        'outcome': entry.outcome,
        'removed': list(entry.removed),
        'steps': [
            {'time': terminal.moment(s.time).replace(' ', 'T') + 'Z',
             'name': s.name, 'outcome': s.outcome, 'subject': s.subject}
            for s in entry.steps],
        'record': entry.record,
    }
