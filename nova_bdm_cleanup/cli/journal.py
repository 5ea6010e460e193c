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
"""``nova-bdm-cleanup journal``: what was removed, and how to undo it."""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
import time
from typing import Any, Dict, List, Mapping, Sequence

from nova_bdm_cleanup.cli import config
from nova_bdm_cleanup.cli.exitcodes import CommandError
from nova_bdm_cleanup.cli.exitcodes import ExitCode
from nova_bdm_cleanup.cli import text
from nova_bdm_cleanup.cli import undo
from nova_bdm_cleanup import journal as journals

_UNITS = {'s': 1, 'm': 60, 'h': 3600, 'd': 86400, 'w': 604800}

#: What tells one entry from another, in the order in which it is shown.
_HEAD = (('Server', 'server'), ('Project', 'project'), ('Host', 'host'),
         ('Request', 'request_id'), ('Plugin', 'plugin'), ('Nova', 'nova'))


def add_parser(subparsers: Any) -> None:
    """Add the command and its subcommands."""
    parser = subparsers.add_parser(
        'journal', allow_abbrev=False,
        help='what was removed on this host, and how to undo it',
        description='Show what the plugin did on this host, and undo it.')
    commands = parser.add_subparsers(metavar='COMMAND', required=True)

    listing = _add_command(
        commands, 'list', _list, 'one line for each entry, oldest first')
    listing.add_argument('--server', metavar='UUID',
                         help='only the entries of this server')
    listing.add_argument(
        '--since', metavar='WHEN', type=_since,
        help='only later entries: 30m, 12h, 7d, or a date and time (UTC '
             'unless it says otherwise) such as 2026-01-31T13:00')
    _add_json(listing)

    showing = _add_command(commands, 'show', _show, 'all of one entry')
    _add_entry(showing)
    _add_json(showing)

    undoing = _add_command(
        commands, 'undo', _undo,
        'the commands that attach again what was removed')
    _add_entry(undoing)
    undo.add_arguments(undoing)


def _add_command(commands: Any, name: str, run: Any,
                 purpose: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, allow_abbrev=False, help=purpose,
        description=purpose[0].upper() + purpose[1:] + '.')
    parser.add_argument(
        '--journal', metavar='FILE',
        help='the journal to read. Default: [bdm_cleanup] journal of '
             'nova.conf')
    config.add_arguments(parser)
    parser.set_defaults(run=run)
    return parser


def _add_entry(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('entry', metavar='ENTRY',
                        help='as shown by "journal list" and in the log')


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--json', action='store_true',
                        help='everything, as JSON')


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


def _read(args: argparse.Namespace) -> Sequence[journals.Recorded]:
    path = args.journal or config.journal_path(config.load(args))
    contents = journals.read(path)
    if not contents.files:
        raise CommandError(
            ExitCode.NOTHING,
            'there is no journal at %s. Either nothing was removed on this '
            'host yet, or nova-compute keeps it elsewhere (--config-file, '
            '--journal)' % path)
    if contents.skipped:
        print('nova-bdm-cleanup: %d lines of %s are torn or damaged and were '
              'skipped' % (contents.skipped, path), file=sys.stderr)
    return contents.entries


def _find(args: argparse.Namespace) -> journals.Recorded:
    for entry in _read(args):
        if entry.id == args.entry:
            return entry
    raise CommandError(ExitCode.NOTHING,
                       'the journal has no entry %s' % text.clean(args.entry))


def _list(args: argparse.Namespace) -> int:
    entries = [
        e for e in _read(args)
        if args.server in (None, e.record.get('server'))
        and (args.since is None or e.time >= args.since)]
    if args.json:
        _print_json([_as_dict(e) for e in entries])
    elif entries:
        print(text.table(
            ('Entry', 'Time (UTC)', 'Server', 'Removed', 'Outcome'),
            [(e.id, text.moment(e.time), e.record.get('server'),
              '%d of %d' % (e.carried_out, e.removals), e.outcome)
             for e in entries]))
    return ExitCode.OK if entries else ExitCode.NOTHING


def _show(args: argparse.Namespace) -> int:
    entry = _find(args)
    if args.json:
        _print_json(_as_dict(entry))
        return ExitCode.OK
    head = [('Entry', entry.id), ('Time', text.moment(entry.time) + ' UTC')]
    head += [(title, text.clean(entry.record.get(key)))
             for title, key in _HEAD]
    head += [('Outcome', entry.outcome)]
    print(text.columns(head))
    for action in journals.objects(entry.record, 'actions'):
        print('\n%s (%s): %s' % tuple(text.clean(action.get(k)) for k in (
            'kind', 'reason', 'explanation')))
        for row in _rows(action):
            print(text.columns([(key, text.clean(value))
                                for key, value in row.items()], indent='  '))
    print('\nSteps')
    print(text.table(
        ('Time (UTC)', 'Step', 'Outcome', 'Of'),
        [(text.moment(s.time), s.name, s.outcome, ', '.join(
            '%s %s' % pair for pair in s.subject.items()))
         for s in entry.steps], indent='  '))
    print('\nFindings')
    print(text.table(
        ('Reason', 'Withheld', 'Volume', 'Device', 'Explanation'),
        [[f.get(k) for k in (
            'reason', 'withheld', 'volume', 'device', 'explanation')]
         for f in journals.objects(entry.record, 'findings')], indent='  '))
    return ExitCode.OK


def _rows(action: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The mapping and the attachments of an action, as they were."""
    return [
        {'%s %s' % (key.rstrip('s'), name): value
         for name, value in row.items() if value is not None}
        for key in ('bdm', 'attachment', 'attachments')
        for row in journals.objects(action, key)]


def _undo(args: argparse.Namespace) -> int:
    return undo.run(args, _find(args))


def _as_dict(entry: journals.Recorded) -> Dict[str, Any]:
    return {
        'entry': entry.id,
        'time': text.moment(entry.time).replace(' ', 'T') + 'Z',
        'outcome': entry.outcome,
        'removed': list(entry.removed),
        'steps': [
            {'time': text.moment(s.time).replace(' ', 'T') + 'Z',
             'name': s.name, 'outcome': s.outcome, 'subject': s.subject}
            for s in entry.steps],
        'record': entry.record,
    }


def _print_json(what: Any) -> None:
    print(json.dumps(what, indent=2))
