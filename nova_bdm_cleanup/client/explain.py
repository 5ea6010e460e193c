# SPDX-License-Identifier: Apache-2.0
"""The command ``openstack bdm explain``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import difflib
import shutil
import textwrap
from typing import Any

from osc_lib.command import command

from nova_bdm_cleanup import terminal
from nova_bdm_cleanup.client import output, runbook
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.terminal import ExitCode

_LIST = 'openstack bdm explain --list'

#: What the words in the list mean.
_REMEDIES = (
    ('clean', '"openstack bdm clean" resolves it'),
    ('release', '"openstack bdm release" resolves it'),
    ('look', 'an operator follows the steps of the section'),
    ('wait', 'it usually passes by itself'),
    ('none', 'nothing is to be done'))

#: The least width of the sentences.
_NARROW = 30


class ExplainBdm(command.Command):
    """Explain a reason code: what it means, and what to do.

    It prints the section of the runbook, and sends no request to a cloud.

    Exit codes: 0 it was explained, 2 there is no such reason code, or none
    was given.
    """

    app: Any
    auth_required = False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.formatter_class = output.Paragraphs
        parser.add_argument('reason', metavar='<reason>', nargs='?',
                            help='A reason code, such as server-gone')
        parser.add_argument('--list', action='store_true',
                            help='List every reason code with its meaning and '
                            'the kind of remedy')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> ExitCode:
        reason: str | None = parsed_args.reason
        if parsed_args.list and reason is None:
            for line in _listed(shutil.get_terminal_size().columns):
                self.app.stdout.write(line + '\n')
            return ExitCode.OK
        if parsed_args.list or reason is None:
            return self._refuse(
                'give either a reason code or --list; %s shows the codes'
                % _LIST)
        if reason not in runbook.reasons():
            return self._refuse('there is no reason code %s; %s' % (
                terminal.printable(reason), _suggestion(reason)))
        self.app.stdout.write(runbook.section(reason))
        return ExitCode.OK

    def _refuse(self, text: str) -> ExitCode:
        self.app.stderr.write(text + '\n')
        return ExitCode.BAD_INPUT


def _suggestion(reason: str) -> str:
    """Return the command to type instead."""
    near = difflib.get_close_matches(
        reason.strip().lower().replace('_', '-'), runbook.reasons(), n=1)
    if near:
        return ('did you mean "openstack bdm explain %s"? The words after '
                '"event=" are in the page "Log lines"' % near[0])
    return '%s shows the codes' % _LIST


def _listed(width: int) -> Iterator[str]:
    """Yield the lines of the list, by group of the runbook."""
    codes = max(map(len, runbook.reasons()))
    remedies = max(len(name) for name, _ in _REMEDIES)
    form = '  %%-%ds  %%-%ds  ' % (codes, remedies)
    sentences = max(width - len(form % ('', '')), _NARROW)
    for group, reasons in runbook.groups().items():
        yield group
        for reason in reasons:
            lead = form % (reason, _remedy(reason))
            for line in textwrap.wrap(runbook.meaning(reason), sentences,
                                      break_on_hyphens=False):
                yield lead + line
                lead = form % ('', '')
        yield ''
    for name, text in _REMEDIES:
        yield '%-*s  %s' % (remedies, name, text)
    yield 'openstack bdm explain <reason> prints the steps.'


def _remedy(reason: str) -> str:
    """Return the kind of remedy: that of the commands, or of the section."""
    remedy = Reason(reason).remedy
    if remedy is not None:
        return str(remedy)
    return 'none' if runbook.needs_nothing(reason) else 'look'
