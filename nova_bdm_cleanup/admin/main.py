# SPDX-License-Identifier: Apache-2.0
"""The command for the compute node: ``nova-bdm-cleanup``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import contextlib
import io
import os
import sys
import traceback
from typing import Any, Callable

from oslo_config import cfg

from nova_bdm_cleanup import VERSION
from nova_bdm_cleanup.admin import journal, repair, status
from nova_bdm_cleanup.node.store.database import StoreError
from nova_bdm_cleanup.rules import spelling
from nova_bdm_cleanup.terminal import (
    CommandError,
    escape_unknown,
    ExitCode,
    NOT_WRITTEN,
    printable,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    args = _parser().parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        escape_unknown(stream)
    try:
        # At once, so that the reader cannot change how the command ends.
        with contextlib.redirect_stdout(io.StringIO()) as output:
            code = args.run(args)
        return _print(output.getvalue(), code)
    except CommandError as exc:
        return _complain(exc, exc.code)
    except cfg.Error as exc:
        return _complain(exc, ExitCode.BAD_INPUT)
    except StoreError as exc:
        return _complain(exc, ExitCode.REFUSED)
    except KeyboardInterrupt:
        return _complain('interrupted', ExitCode.INTERRUPTED)
    except Exception as exc:
        if args.debug:
            traceback.print_exc()
        return _complain('%s: %s (this is a bug; --debug shows where)'
                         % (type(exc).__name__, exc), ExitCode.BROKEN)


def _print(text: str, code: int) -> int:
    """Print the output; return the exit code."""
    try:
        print(text, end='', flush=True)
        return code
    except OSError as exc:
        failure = exc
    # The interpreter would complain when it flushes the rest.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(failure, BrokenPipeError):
        # The reader has closed it.
        return code
    return _complain(NOT_WRITTEN % failure.strerror, ExitCode.PARTLY)


def _complain(problem: object, code: ExitCode) -> ExitCode:
    # Text from a damaged store must not control the terminal.
    print('nova-bdm-cleanup: %s' % printable(str(problem)), file=sys.stderr)
    return code


def _check(args: argparse.Namespace) -> int:
    # No other command needs this import, which takes as long as the rest.
    from nova_bdm_cleanup.admin import check

    return check.run(args)


def _parser() -> argparse.ArgumentParser:
    config = argparse.ArgumentParser(add_help=False)
    group = config.add_argument_group('configuration')
    # Before the command or after it: without a default, neither parser
    # overwrites the value given to the other.
    group.add_argument(
        '--config-file', metavar='PATH', action='append',
        default=argparse.SUPPRESS,
        help='configuration file of nova-compute; may be given several times. '
             'Default: the files that nova-compute reads')
    group.add_argument(
        '--config-dir', metavar='DIR', action='append',
        default=argparse.SUPPRESS,
        help='directory of configuration files; may be given several times')
    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument('--json', action='store_true',
                         help='print everything as JSON')
    store = argparse.ArgumentParser(add_help=False)
    store.add_argument(
        '--journal', metavar='FILE',
        help='the store to read. Default: [bdm_cleanup] store of nova.conf')
    entry = argparse.ArgumentParser(add_help=False)
    entry.add_argument('entry', metavar='ENTRY',
                       help='as shown by "journal list" and in the log')

    parser = argparse.ArgumentParser(
        prog='nova-bdm-cleanup', allow_abbrev=False, parents=[config],
        description='What the bdm-cleanup plugin of nova-compute did on this '
                    'host.')
    parser.add_argument('--version', action='version', version=VERSION)
    parser.add_argument('--debug', action='store_true',
                        help='show the traceback of an error')
    commands = parser.add_subparsers(metavar='COMMAND', required=True)
    _add(commands, 'check', _check, 'whether the plugin can work on this host',
         'Run it with the Python of nova-compute and as its user. Nothing is '
         'changed, but an empty store is created if there is none.',
         as_json, config)
    entries = commands.add_parser(
        'journal', allow_abbrev=False,
        help='what was removed on this host, and how to undo it',
        description='Show what the plugin did on this host, and how to undo '
                    'it.').add_subparsers(metavar='COMMAND', required=True)
    listing = _add(entries, 'list', journal.list_entries,
                   'one line for each entry, oldest first', '',
                   store, config, as_json)
    listing.add_argument(
        '--server', metavar='UUID', type=spelling.identifier,
        help='only the entries of this server')
    listing.add_argument(
        '--since', metavar='WHEN', type=journal.since,
        default=float('-inf'),
        help='only later entries: 30m, 12h, 7d, or a date and time such as '
             '2026-01-31T13:00 (in UTC, if it has no time zone)')
    _add(entries, 'show', journal.show, 'all of one entry', '',
         store, config, entry, as_json)
    _add(entries, 'undo', journal.undo_entry,
         'the commands that attach again what was removed', '',
         store, config, entry).add_argument(
             '--volume', metavar='ID', action='append',
             help='only this volume; may be given several times')
    repairs = _add(
        commands, 'repair', repair.run,
        'have mappings take over the attachments by which running guests have '
        'their disks',
        'Run it as root, or as the user of nova-compute, on the host of the '
        'servers. The running nova-compute does it. The guests are left as '
        'they are; nothing is done about a disk unless Cinder, the kernel, '
        'the guest and Nova agree.',
        as_json, config)
    repairs.add_argument('servers', metavar='SERVER', nargs='*',
                         type=spelling.identifier,
                         help='the ID of a server of this host')
    repairs.add_argument('--all', action='store_true',
                         help='all servers of this host')
    answer = repairs.add_mutually_exclusive_group()
    answer.add_argument('--dry-run', action='store_true',
                        help='only show what would be done, and who agrees')
    answer.add_argument('--yes', action='store_true', help='do not ask')
    _add(commands, 'status', status.run,
         'whether the plugin works in the running nova-compute, and the open '
         'findings of this host',
         'The findings are those of its last audit round. Nothing is changed.',
         as_json, config)
    return parser


def _add(commands: Any, name: str, run: Callable[[argparse.Namespace], int],
         purpose: str, more: str,
         *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add a command.

    :param run: returns its exit code
    :param parents: have the arguments that it shares with others
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name, allow_abbrev=False, help=purpose, parents=parents,
        description='%s%s. %s' % (purpose[0].upper(), purpose[1:], more))
    parser.set_defaults(run=run)
    return parser


if __name__ == '__main__':
    sys.exit(main())
