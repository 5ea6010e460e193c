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
"""The command for the compute node: ``nova-bdm-cleanup``."""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from typing import Optional, Sequence

from nova_bdm_cleanup import version
from nova_bdm_cleanup.cli import check_command
from nova_bdm_cleanup.cli import journal_command
from nova_bdm_cleanup.cli import novaconf
from nova_bdm_cleanup.cli import status_command
from nova_bdm_cleanup.exitcodes import CommandError
from nova_bdm_cleanup.exitcodes import ExitCode
from nova_bdm_cleanup.store.database import StoreError

#: One module each, with ``add_parser(subparsers)``.  It sets the default
#: ``run``, a function of the parsed arguments that returns the exit code.
_COMMANDS = (check_command, journal_command, status_command)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command.

    :param argv: the arguments, by default those of the process
    :returns: the exit code
    """
    args = _parser().parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal cannot show is no reason to show nothing.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors='backslashreplace')
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except CommandError as exc:
        return _complain(exc, exc.code)
    except StoreError as exc:
        return _complain(exc, ExitCode.REFUSED)
    except BrokenPipeError:
        # Whoever reads the output has seen enough.  The interpreter would
        # complain when it flushes the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
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
                        version=version.VERSION)
    parser.add_argument('--debug', action='store_true',
                        help='show where in the program an error happened')
    novaconf.add_arguments(parser)
    subparsers = parser.add_subparsers(metavar='COMMAND', required=True)
    for command in _COMMANDS:
        command.add_parser(subparsers)
    return parser


if __name__ == '__main__':
    sys.exit(main())
