# SPDX-License-Identifier: Apache-2.0
"""``nova-bdm-cleanup journal``: the removals, and how to undo them."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import re
import time
from typing import Any

from nova_bdm_cleanup import terminal
from nova_bdm_cleanup.admin import configuration, undo
from nova_bdm_cleanup.node.option_group import GROUP
from nova_bdm_cleanup.node.store.journal import Journal, objects, RecordedEntry
from nova_bdm_cleanup.terminal import CommandError, ExitCode

#: Seconds of each unit of an age.
_SECONDS_OF_UNIT = {
    's': 1, 'm': 60, 'h': 3600, 'd': 86400, 'w': 604800}

#: The columns and fields that identify an entry, in the order of output.
_IDENTIFYING_FIELDS = (
    ('Server', 'server'), ('Project', 'project'), ('Host', 'host'),
    ('Trigger', 'trigger'), ('Request', 'request_id'),
    ('Plugin', 'plugin'), ('Nova', 'nova'))


def since(word: str) -> float:
    """Convert an age or a date and time to seconds since the epoch."""
    ago = re.fullmatch(r'([0-9]{1,9})([smhdw])', word)
    if ago:
        return time.time() - int(ago.group(1)) * _SECONDS_OF_UNIT[ago.group(2)]
    try:
        # Python before 3.11 does not parse the letter for UTC.
        when = datetime.datetime.fromisoformat(
            re.sub('[Zz]$', '+00:00', word))
        if when.tzinfo is None:
            when = when.replace(tzinfo=datetime.timezone.utc)
        return when.timestamp()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            '%r is neither an age such as 12h nor a date and time such as '
            '2026-01-31T13:00' % word) from None


def _journal(args: argparse.Namespace) -> Journal:
    path = args.journal or configuration.load(args)[GROUP].store
    journal = Journal(path)
    if not journal.exists():
        raise CommandError(
            ExitCode.NOTHING,
            'there is no store at %s. Either nothing was removed on this host '
            'yet, or the store of nova-compute is elsewhere (--config-file, '
            '--journal)' % path)
    return journal


def _find(args: argparse.Namespace) -> RecordedEntry:
    entry = _journal(args).find(args.entry)
    if entry is None:
        raise CommandError(ExitCode.NOTHING, 'the journal has no entry %s'
                           % terminal.clean(args.entry))
    return entry


def list_entries(args: argparse.Namespace) -> int:
    """Run ``journal list``."""
    entries = _journal(args).entries(args.server, args.since)
    if args.json:
        print(json.dumps([_as_dict(e) for e in entries], indent=2))
    elif entries:
        print(terminal.table(
            ('Entry', 'Time (UTC)', 'Server', 'Trigger', 'Removed',
             'Outcome'),
            [(e.id, terminal.moment(e.time), e.record.get('server'),
              e.record.get('trigger'),
              '%d of %d' % (e.carried_out, e.removals), e.outcome)
             for e in entries]))
    return ExitCode.OK if entries else ExitCode.NOTHING


def show(args: argparse.Namespace) -> int:
    """Run ``journal show``."""
    entry = _find(args)
    if args.json:
        print(json.dumps(_as_dict(entry), indent=2))
        return ExitCode.OK
    record = entry.record
    print(terminal.columns([
        ('Entry', entry.id), ('Time', terminal.moment(entry.time) + ' UTC'),
        *((title, record.get(key)) for title, key in _IDENTIFYING_FIELDS),
        ('Outcome', entry.outcome)]))
    for action in objects(record, 'actions'):
        print('\n%s (%s): %s' % tuple(terminal.clean(action.get(k)) for k in (
            'kind', 'reason', 'explanation')))
        # The mapping and the attachments, as they were.
        for key in ('bdm', 'attachment', 'attachments'):
            for row in objects(action, key):
                print(terminal.columns(
                    [('%s %s' % (key.rstrip('s'), name), value)
                     for name, value in row.items() if value is not None],
                    indent='  '))
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
         for f in objects(record, 'findings')], indent='  '))
    return ExitCode.OK


def undo_entry(args: argparse.Namespace) -> int:
    """Run ``journal undo``."""
    return undo.run(_find(args), args.volume)


def _as_dict(entry: RecordedEntry) -> dict[str, Any]:
    """Return the fields for scripts, which are documented and stay."""
    return {
        'entry': entry.id,
        'time': _time(entry.time),
        'outcome': entry.outcome,
        'removed': list(entry.removed),
        'steps': [{**dataclasses.asdict(s), 'time': _time(s.time)}
                  for s in entry.steps],
        'record': entry.record,
    }


def _time(seconds: float) -> str:
    return terminal.moment(seconds).replace(' ', 'T') + 'Z'
