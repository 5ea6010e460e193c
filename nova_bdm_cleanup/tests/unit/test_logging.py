# SPDX-License-Identifier: Apache-2.0
"""No log line has an error in the words of oslo.log, which are not masked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
import logging
import pathlib

from oslo_config import cfg
from oslo_log import formatters, log as oslo_log

from nova_bdm_cleanup.node.cleanup import log_lines
from nova_bdm_cleanup.tests.unit import base

PACKAGE = pathlib.Path(__file__).resolve().parents[2]

#: The methods that log, by how the code names the object.
METHODS = {
    'LOG': frozenset((
        'debug', 'info', 'warning', 'error', 'critical', 'exception', 'log')),
    'log': frozenset(vars(log_lines.LogLines)),
    'lines': frozenset(vars(log_lines.LogLines))}

#: Its text is the name of a step, and the log has the error already.
OWN_ERROR = 'StepFailed'


def calls(node: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Yield whose methods are called below a node, which, and in what line;
    functions have no owner.
    """
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            *owners, name = ast.unparse(call.func).split('.')
            yield owners[-1] if owners else '', name, call.lineno


def logged_in_handlers(tree: ast.Module) -> list[int]:
    """Return the lines in which an ``except`` block logs, also by a function
    or a method of the same module.
    """
    functions = [node for node in ast.walk(tree)
                 if isinstance(node, ast.FunctionDef)]
    logging_functions: set[str] = set()

    def logs(node: ast.AST) -> list[int]:
        return [line for owner, name, line in calls(node)
                if name in METHODS.get(owner, ())
                or owner in ('', 'self') and name in logging_functions]

    known = -1
    while known < len(logging_functions):
        known = len(logging_functions)
        logging_functions.update(f.name for f in functions if logs(f))
    return sorted(
        line for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) != OWN_ERROR)
        for line in logs(node))


class ExceptBlockTest(base.TestCase):

    def test_nothing_is_logged_in_one(self):
        for path in sorted(PACKAGE.joinpath('node').rglob('*.py')):
            tree = ast.parse(path.read_text('utf-8'))
            self.assertEqual([], logged_in_handlers(tree), path)

    def test_errors_are_masked_where_a_traceback_is_logged(self):
        for path in sorted(PACKAGE.joinpath('node').rglob('*.py')):
            tree = ast.parse(path.read_text('utf-8'))
            self.assertNotIn('exception', [
                name for owner, name, _ in calls(tree) if owner == 'LOG'])
            for node in ast.walk(tree):
                if isinstance(node, ast.keyword) and node.arg == 'exc_info':
                    self.assertNotIsInstance(node.value, ast.Constant, path)

    def test_it_finds_what_it_looks_for(self):
        for line in ('LOG.warning("x")', 'self.log.unrecorded(1)', 'warn()',
                     'cleanup.lines.failed(1)', 'self.indirect()'):
            tree = ast.parse(
                'def warn():\n    LOG.error("x")\n'
                'def indirect(): warn()\n'
                f'try: pass\nexcept ValueError:\n    if x:\n        {line}\n')
            self.assertEqual([7], logged_in_handlers(tree), line)


class MaskedTest(base.TestCase):

    def test_control_characters(self):
        self.assertEqual(r'a\x1b[31m b', log_lines.masked('a\x1b[31m\n b'))

    def test_traceback(self):
        """Write the frames, and no secret."""
        secrets = ("{'auth_password': 'hidden%d\x1b[2J'}" % number
                   for number in (1, 2))
        try:
            try:
                raise ValueError(next(secrets))
            except ValueError as exc:
                raise RuntimeError(next(secrets)) from exc
        except RuntimeError as exc:
            failure = exc
        shown = log_lines.with_traceback(failure)
        conf = cfg.ConfigOpts()
        oslo_log.register_options(conf)
        text = formatters.ContextFormatter(config=conf).format(
            logging.LogRecord(
                'nova', logging.ERROR, __file__, 1, 'it failed', (),
                (type(shown), shown, shown.__traceback__)))
        self.assertIn('in test_traceback', text)
        self.assertIn('auth_password', text)
        for word in ('hidden1', 'hidden2', '\x1b'):
            self.assertNotIn(word, text)
