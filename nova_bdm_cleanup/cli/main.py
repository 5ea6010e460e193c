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

from nova_bdm_cleanup import VERSION
from nova_bdm_cleanup.cli import (
    check_command,
    journal_command,
    novaconf,
    status_command,
)
from nova_bdm_cleanup.store.database import StoreError
from nova_bdm_cleanup.terminal import CommandError, ExitCode

#: One module each, with ``add_parser(subparsers)``.  It sets the default
#: ``run``, a function of the parsed arguments that returns the exit code.
_COMMANDS = (check_command, journal_command, status_command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    args = _parser().parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal cannot show is no reason to show nothing.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors='backslashreplace')
    code: int = ExitCode.OK
    try:
        # At once, so that who reads it has no say in how the command ends.
        with contextlib.redirect_stdout(io.StringIO()) as output:
            code = args.run(args)
        print(output.getvalue(), end='', flush=True)
        return code
    except CommandError as exc:
        return _complain(exc, exc.code)
    except StoreError as exc:
        return _complain(exc, ExitCode.REFUSED)
    except BrokenPipeError:
        # Whoever reads the output has seen enough.  The interpreter would
        # complain when it flushes the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code
    except KeyboardInterrupt:
        return _complain('interrupted', ExitCode.BROKEN)
    except Exception as exc:
        if args.debug:
            traceback.print_exc()
        return _complain('%s: %s (this is a bug; --debug shows where)'
                         % (type(exc).__name__, exc), ExitCode.BROKEN)


def _complain(problem: object, code: ExitCode) -> ExitCode:
    print('nova-bdm-cleanup: %s' % problem, file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='nova-bdm-cleanup', allow_abbrev=False,
        description='What the bdm-cleanup plugin of nova-compute did on this '
                    'host.')
    parser.add_argument('--version', action='version',
                        version=VERSION)
    parser.add_argument('--debug', action='store_true',
                        help='show where in the program an error happened')
    novaconf.add_arguments(parser)
    subparsers = parser.add_subparsers(metavar='COMMAND', required=True)
    for command in _COMMANDS:
        command.add_parser(subparsers)
    return parser


if __name__ == '__main__':
    sys.exit(main())
