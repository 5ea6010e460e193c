# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm explain``."""

from __future__ import annotations

import argparse
from typing import Any

from osc_lib.command import command

from nova_bdm_cleanup import terminal
from nova_bdm_cleanup.client import output, runbook
from nova_bdm_cleanup.terminal import ExitCode


class ExplainBdm(command.Command):
    """Explain a reason code: what it means, and what to do.

    It prints the section of the runbook, and sends no request to a cloud.

    Exit codes: 0 it was explained, 2 there is no such reason code.
    """

    app: Any
    auth_required = False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.formatter_class = output.Paragraphs
        parser.add_argument('reason', metavar='<reason>',
                            help='A reason code, such as server-gone')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> ExitCode:
        known = runbook.reasons()
        if parsed_args.reason not in known:
            self.app.stderr.write('there is no reason code %s; there are: %s\n'
                                  % (terminal.printable(parsed_args.reason),
                                     ', '.join(known)))
            return ExitCode.BAD_INPUT
        self.app.stdout.write(runbook.section(parsed_args.reason))
        return ExitCode.OK
