# SPDX-License-Identifier: Apache-2.0
"""Whoever looks something up at night finds it in the documentation."""

from __future__ import annotations

import ast
import inspect
import pathlib
import re

from oslo_config import cfg

from nova_bdm_cleanup.cleanup import loglines
from nova_bdm_cleanup.cli import journal_command, status_command
from nova_bdm_cleanup.fleet.issues import FleetReason
from nova_bdm_cleanup.plugin import options, startup
from nova_bdm_cleanup.plugin.loader import GROUP
from nova_bdm_cleanup.rules import facts
from nova_bdm_cleanup.tests.unit import base
from nova_bdm_cleanup.watch import lines as watch_lines

ROOT = pathlib.Path(__file__).resolve().parents[3]
GUIDE = ROOT / 'doc' / 'source' / 'guide'
RUNBOOK = ROOT / 'nova_bdm_cleanup' / 'runbook.rst'

#: With whole log lines.
LINES = (GUIDE / 'audit-lines.rst', GUIDE / 'get-started.rst')

#: A log line, with ids shortened.
LINE = re.compile(
    r' +(DEBUG|INFO|WARNING|ERROR) \.\.\. '
    r'(\[instance: [0-9a-f]{8}-\.\.\.\] )?'
    r'bdm-cleanup: event=(?P<event>\S+) reason=(?P<reason>\S+) volume=\S+ '
    r'attachment=\S+ device=\S+ request_id=\S+: \S')

#: The same without what it says of one server.
SHORT = re.compile(
    r'   (DEBUG|INFO|WARNING|ERROR) '
    r'bdm-cleanup: event=(?P<event>\S+) reason=(?P<reason>\S+) \.\.\.: \S')


#: What others say, within a line of ours.
OF_OTHERS = ('Volume device not found at /dev/disk/by-id/x.',
             'database or disk is full',
             '409 (ConflictNovaUsingAttachment ...)')

#: Where a value comes in a text of the code.
VALUE = re.compile(r'%(?:\(\w+\))?[sdrg]|%\.\df|\{[^}]*\}')


def templates() -> list[re.Pattern[str]]:
    """Every text of the code that says something, values left open."""
    found = []
    for path in (ROOT / 'nova_bdm_cleanup').rglob('*.py'):
        if 'tests' in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
            if isinstance(node, ast.Constant) and isinstance(
                    node.value, str):
                parts = VALUE.split(node.value)
                if len(re.findall('[a-z]', ''.join(parts))) > 3:
                    found.append(re.compile('(.*?)'.join(
                        map(re.escape, parts)), re.S))
    return found


def is_said(text: str, known: list[re.Pattern[str]]) -> bool:
    """Whether the code can say something, values and all."""
    if not re.search(r'\s', text) or text in OF_OTHERS or re.fullmatch(
            r'[-0-9:+ ]+|[A-Z]+ /\S+', text):
        return True
    for glue in ('; ', ': '):
        head, found, rest = text.partition(glue)
        if found and is_said(head, known) and is_said(rest, known):
            return True
    return any(all(is_said(value, known) for value in match.groups())
               for match in (t.fullmatch(text) for t in known) if match)


def sections(page: pathlib.Path) -> dict[str, str]:
    """The text of a page by section title, whatever the level."""
    found: dict[str, list[str]] = {}
    lines = page.read_text(encoding='utf-8').split('\n')
    current: list[str] = []
    for line, underline in zip(lines, [*lines[1:], '']):
        if line and re.fullmatch(r'([-=])\1*', underline) and len(
                underline) >= len(line) and not re.fullmatch(r'[-=]+', line):
            current = found.setdefault(line, [])
        current.append(line)
    return {title: '\n'.join(text) for title, text in found.items()}


def events() -> set[str]:
    """Every event name that a call for a log line writes."""
    names = set()
    source = inspect.getsource(loglines) + inspect.getsource(watch_lines)
    for node in ast.walk(ast.parse(source)):
        if (isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == '_line'):
            names.add(ast.literal_eval(node.args[1]))
    return names


class DocumentationTest(base.TestCase):

    def test_every_reason_has_a_section_that_can_be_linked_to(self) -> None:
        found = sections(RUNBOOK)
        known = {str(r) for r in (*facts.Reason, *FleetReason)}
        for reason in known:
            self.assertIn('\nYou: ', found[reason])
        self.assertEqual(known, set(re.findall(
            r'^\.\. _(.*):$', RUNBOOK.read_text(encoding='utf-8'), re.M)))

    def test_every_reason_of_the_plugin_is_shown_in_a_log_line(self) -> None:
        found = sections(RUNBOOK)
        for reason in facts.Reason:
            lines = [line for line in found[str(reason)].split('\n')
                     if SHORT.match(line)]
            self.assertTrue(lines, reason)
            for line in lines:
                self.assertTrue('reason=%s ' % reason in line
                                or '(%s)' % reason in line, line)

    def test_every_audit_event_has_a_section(self) -> None:
        entries = dict(re.findall(
            r'^   ([a-z-]+)\n((?:      .*\n|\n)+)',
            (GUIDE / 'audit-lines.rst').read_text(encoding='utf-8'), re.M))
        self.assertEqual(events(), set(entries))
        for entry in entries.values():
            self.assertIn('**What to do:** ', ' '.join(entry.split()))

    def test_the_lines_shown_are_of_events_and_reasons_that_exist(
            self) -> None:
        reasons = {str(r) for r in facts.Reason} | {'-'}
        for page, form in ((RUNBOOK, SHORT), *((p, LINE) for p in LINES)):
            text = page.read_text(encoding='utf-8')
            shown = [form.match(line) for line in text.split('\n')
                     if re.match(r' +[A-Z]+ .*event=', line)]
            self.assertGreater(len(shown), 4)
            for line in shown:
                assert line is not None, page
                self.assertIn(line['event'], events())
                self.assertIn(line['reason'], reasons)

    def test_the_messages_shown_are_what_the_code_says(self) -> None:
        known = templates()
        text = RUNBOOK.read_text(encoding='utf-8')
        shown = [line.partition('...: ')[2] for line in text.split('\n')
                 if SHORT.match(line)]
        shown += [line.partition('request_id=')[2].partition(': ')[2]
                  for page in LINES
                  for line in page.read_text(encoding='utf-8').split('\n')
                  if LINE.match(line)]
        # What is no command in the output of "journal undo".
        shown += re.findall(r'^   # ((?!nova-).*)', (
            GUIDE / 'cli' / 'nova-bdm-cleanup.rst').read_text(
                encoding='utf-8'), re.M)
        self.assertGreater(len(shown), 50)
        # In the text, what is no name, option or command.
        shown += [words for words in (
            ' '.join(quoted.split()) for quoted in re.findall(
                '``([^`]+)``', text))
            if len(re.findall(r'\b[a-z]+\b', words)) > 4
            and not re.match(r'openstack |nova-|multipath |\[|-', words)]
        self.assertIn('this Cinder knows no volume of this cell: a wrong '
                      'region, or a restored database?', shown)
        self.assertEqual([], [m for m in shown if not (
            is_said(m, known) or is_said('# ' + m, known))])
        self.assertFalse(is_said('the volume is away with the fairies',
                                 known))

    def test_no_two_pages_have_the_same_title(self) -> None:
        titles = [re.findall(r'(?m)^=+\n(.+)\n=+$',
                             page.read_text(encoding='utf-8'))[0]
                  for page in (ROOT / 'doc' / 'source').rglob('*.rst')]
        self.assertGreater(len(titles), 20)
        self.assertEqual(sorted(set(titles)), sorted(titles))

    def test_the_tables_shown_have_the_titles_of_the_code(self) -> None:
        text = (GUIDE / 'cli' / 'nova-bdm-cleanup.rst').read_text(
            encoding='utf-8')
        (first, second), = re.findall(
            r'# nova-bdm-cleanup status\n((?:   .*\n)+)\n   (.*)', text)
        listing, = re.findall(r'journal list --since .*\n   (.*)', text)
        for module, titles in (
                (status_command, re.findall('^   (.*?)  ', first, re.M)),
                (status_command, re.split('  +', second)),
                (journal_command, re.split('  +', listing))):
            source = inspect.getsource(module)
            self.assertGreater(len(titles), 4)
            for title in titles:
                self.assertIn("'%s'" % title, source)

    def test_the_line_at_start_has_the_values_of_the_options(self) -> None:
        conf = cfg.ConfigOpts()
        conf([])
        conf.register_opt(cfg.StrOpt('state_path', default='/var/lib/nova'))
        options.register_opts(conf)
        for name, value in (('mode', 'observe'), ('audit_interval', 3600)):
            conf.set_override(name, value, group=GROUP)
        self.assertIn(
            startup._options(conf, []) + '\n',
            (GUIDE / 'get-started.rst').read_text(encoding='utf-8'))

    def test_options_that_are_named_exist(self) -> None:
        names = {opt.dest for opt in options.OPTS}
        for page in (RUNBOOK, *(ROOT / 'doc' / 'source').rglob('*.rst')):
            text = page.read_text(encoding='utf-8')
            for name in re.findall(r'\[bdm_cleanup\]\s+([a-z_]+)', text):
                self.assertIn(name, names, page)
