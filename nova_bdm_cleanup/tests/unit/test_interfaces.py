# SPDX-License-Identifier: Apache-2.0
"""The interfaces, which change only on purpose.

``interfaces.txt`` lists all that configuration files, scripts, log searches,
alerts and other releases rely on.  A commit that changes an interface also
updates that file, and adds a release note::

    python3 -m nova_bdm_cleanup.tests.unit.test_interfaces
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
import logging
import pathlib
import re
from typing import Any
from unittest import mock

from osc_lib.command import command
from oslo_config import cfg
from oslo_upgradecheck import upgradecheck

from nova_bdm_cleanup.admin import main, status
from nova_bdm_cleanup.client import audit, clean, explain, release, show
from nova_bdm_cleanup.client.cloud import metrics as audit_metrics
from nova_bdm_cleanup.node import options
from nova_bdm_cleanup.node.audit import metrics
from nova_bdm_cleanup.node.store.database import SCHEMA
from nova_bdm_cleanup.rules.reasons import Reason
from nova_bdm_cleanup.terminal import ExitCode
from nova_bdm_cleanup.tests.unit import base, promtool, test_docs

FILE = pathlib.Path(__file__).with_name('interfaces.txt')

_COMMANDS: dict[str, Any] = {
    'openstack bdm audit': audit.AuditBdm,
    'openstack bdm clean': clean.CleanBdm,
    'openstack bdm explain': explain.ExplainBdm,
    'openstack bdm release': release.ReleaseBdm,
    'openstack bdm show': show.ShowBdm,
}

#: The columns in JSON output.
_COLUMNS = {
    'openstack bdm audit': audit.COLUMNS,
    'openstack bdm clean': clean.CleanBdm.columns,
    'openstack bdm release': release.ReleaseBdm.columns,
    'openstack bdm show': show.SHOW_COLUMNS,
}


class _Plain(command.Lister):
    """A command without arguments of its own."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Do nothing."""


def interfaces() -> Iterator[str]:
    """Yield a line for each interface."""
    for opt in options.OPTS:
        yield 'option %s: %s' % (opt.name, ' '.join(str(value) for value in (
            type(opt).__name__, repr(opt.default), *_bounds(opt))))
    for reason in sorted(Reason, key=str):
        yield 'reason %s: %s, %s%s' % (
            reason, logging.getLevelName(reason.level),
            reason.remedy or 'no remedy',
            ', in audit rounds' if reason.is_in_round else '')
    for event in sorted(test_docs.events()):
        yield 'event %s' % event
    for code in ExitCode:
        yield 'exit code %d: %s' % (code, code.name.lower())
    yield from _codes_of_the_node()
    for metric in map(promtool.declared, (
            *metrics.NODE_METRICS, *audit_metrics.AUDIT_METRICS)):
        yield 'metric %s %s{%s}' % (
            metric.kind, metric.name, ','.join(metric.labels))
    for feature, statements in SCHEMA.items():
        for statement in statements:
            yield 'store %s 1: %s' % (feature, ' '.join(statement.split()))
    yield from _words('nova-bdm-cleanup', main._parser())
    yield from _commands()


def _commands() -> Iterator[str]:
    """Yield the lines of the ``openstack`` commands."""
    of_cliff = [
        ' '.join(action.option_strings)
        for action in _Plain(mock.Mock(), None).get_parser('')._actions]
    for name, ours in _COMMANDS.items():
        yield from _words(
            name, ours(mock.Mock(), None).get_parser(name), of_cliff)
        codes = str(ours.__doc__).partition('Exit codes: ')[2]
        yield 'exit codes of %s: %s' % (
            name, ', '.join(re.findall(r'\b\d+\b', codes)))
    for name, columns in _COLUMNS.items():
        for column in columns:
            yield 'column of %s: %s' % (name, column)


def _codes_of_the_node() -> Iterator[str]:
    for state in status.State:
        yield 'state %s: exit code %d' % state.value
    for verdict in upgradecheck.Code:
        yield 'exit code of check %d: %s' % (verdict, verdict.name.lower())


def _bounds(opt: cfg.Opt) -> list[str]:
    of = getattr(opt.type, 'item_type', opt.type)
    found = [(name, getattr(of, name, None)) for name in ('min', 'max')]
    if getattr(of, 'choices', None):
        found.append(('choices', ','.join(map(str, of.choices))))
    return ['%s=%s' % each for each in found if each[1] is not None]


def _words(command: str, parser: argparse.ArgumentParser,
           others: Sequence[str] = ('-h --help',)) -> Iterator[str]:
    """Yield the arguments of a command.

    :param others: the arguments that cliff or argparse adds to all commands
    """
    for action in parser._actions:
        words = ' '.join(action.option_strings) or action.dest
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield from _words('%s %s' % (command, name), sub)
        elif words not in others and action.help is not argparse.SUPPRESS:
            yield 'command %s %s' % (command, words)


class InterfacesTest(base.TestCase):

    def test_nothing_is_changed_by_accident(self) -> None:
        self.assertEqual(FILE.read_text(encoding='utf-8').splitlines(),
                         list(interfaces()))


if __name__ == '__main__':
    FILE.write_text(''.join('%s\n' % line for line in interfaces()),
                    encoding='utf-8')
