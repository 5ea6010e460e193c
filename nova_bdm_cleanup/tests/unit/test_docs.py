# SPDX-License-Identifier: Apache-2.0
"""The documentation of all that an operator may look up at night."""

from __future__ import annotations

import ast
import inspect
import pathlib
import re

from oslo_config import cfg

from nova_bdm_cleanup import VERSION
from nova_bdm_cleanup.client import runbook
from nova_bdm_cleanup.node import options, startup
from nova_bdm_cleanup.node.cleanup import log_lines
from nova_bdm_cleanup.node.option_group import GROUP
from nova_bdm_cleanup.rules.reasons import ONLY_IN_CLOUD, Reason
from nova_bdm_cleanup.tests.unit import base

ROOT = pathlib.Path(__file__).resolve().parents[3]
GUIDE = ROOT / 'doc' / 'source' / 'guide'
INSTALL = ROOT / 'doc' / 'source' / 'install'
RUNBOOK = ROOT / 'nova_bdm_cleanup' / 'runbook.rst'

#: The pages that the README links to, and those that the index of the ways to
#: install links to.
FIRST = (INSTALL / 'index.rst', *(GUIDE / name for name in (
    'get-started.rst', 'security.rst', 'tested.rst')))
TOOLS = tuple(sorted(set(INSTALL.glob('*.rst')) - set(FIRST)))

#: Pages that a forge shows readably: they have no roles and no directives of
#: Sphinx but these.
PLAIN = (*FIRST, *TOOLS)
OF_SPHINX = re.compile(
    r'(?<!`):(?:doc|ref|term|option|download):`'
    r'|^ *\.\. (?!code-block::|list-table::|image::|_)\S+::', re.M)

#: A link to a file, in a page.
LINK = re.compile(r'`[^`<]*<([\w./-]+\.rst)(?:#[\w-]+)?>`__')

#: A log line, with ids shortened.
LINE = re.compile(
    r' +(DEBUG|INFO|WARNING|ERROR) \.\.\. '
    r'(\[instance: [0-9a-f]{8}-\.\.\.\] )?'
    r'bdm-cleanup: event=(?P<event>\S+) reason=(?P<reason>\S+) volume=\S+ '
    r'attachment=\S+ device=\S+ request_id=\S+: \S')

#: The same without the fields about one server.
SHORT = re.compile(
    r' +(DEBUG|INFO|WARNING|ERROR|CRITICAL) '
    r'bdm-cleanup: event=(?P<event>\S+) reason=(?P<reason>\S+) \.\.\.: \S')

#: The rest of a section of the runbook, after the first paragraphs and lines.
FORM = re.compile(
    r'Danger: (no|yes|as)\b[^\n]*(\n[^\n]+)*\n\n'
    r'You:( nothing\b|([^\n]*\n)*?\n1\. )')


def sections(page: pathlib.Path) -> dict[str, str]:
    """Return the text of a page by section title, at every level."""
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
    """Return every event name that a call for a log line writes."""
    names = set()
    for node in ast.walk(ast.parse(inspect.getsource(log_lines))):
        if (isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == '_line'):
            names.add(ast.literal_eval(node.args[1]))
    return names


class DocumentationTest(base.TestCase):

    def test_every_reason_has_a_section_that_can_be_linked_to(self) -> None:
        found = sections(RUNBOOK)
        known = {str(r) for r in Reason}
        self.assertEqual(set(), known - set(found))
        self.assertEqual(known, set(re.findall(
            r'^\.\. _(.*):$', RUNBOOK.read_text(encoding='utf-8'), re.M)))

    def test_every_reason_of_the_plugin_is_shown_in_a_log_line(self) -> None:
        found = sections(RUNBOOK)
        # The group has a line for all of them.
        withheld = set(map(Reason, runbook.groups()['Removal withheld']))
        for reason in set(Reason) - ONLY_IN_CLOUD:
            lines = [line for line in found[str(reason)].split('\n')
                     if SHORT.match(line)]
            self.assertTrue(lines or reason in withheld, reason)
            for line in lines:
                self.assertIn('reason=%s ' % reason, line)

    def test_links_of_the_readme_lead_to_pages_without_sphinx(self) -> None:
        """Check that a forge shows what the README links to."""
        readme = ROOT / 'README.rst'
        for page in (readme, *PLAIN):
            text = page.read_text(encoding='utf-8')
            self.assertEqual([], OF_SPHINX.findall(text), page)
            for link in LINK.findall(text):
                self.assertTrue((page.parent / link).exists(), (page, link))
        self.assertEqual(
            {*FIRST, *map(ROOT.joinpath, ('CONTRIBUTING.rst', 'SUPPORT.rst'))},
            {ROOT / link for link in LINK.findall(
                readme.read_text(encoding='utf-8'))})

    def test_every_tool_has_a_page_of_the_same_form(self) -> None:
        """Check the questions that each page answers, and its last line."""
        index = (INSTALL / 'index.rst').read_text(encoding='utf-8')
        self.assertEqual({page.name for page in TOOLS}, {
            link for link in LINK.findall(index) if '/' not in link})
        for page in TOOLS:
            found = sections(page)
            for question in ('Install and check', 'Upgrade and go back',
                             'Remove', 'After an upgrade of the platform'):
                self.assertIn(question, found, page)
            self.assertRegex(page.read_text(encoding='utf-8'),
                             r'\nTried: [^\n]+(\n[^\n]+)*\n\Z')

    def test_the_wheel_that_is_installed_is_of_this_version(self) -> None:
        for page in (ROOT / 'README.rst', GUIDE / 'get-started.rst', *TOOLS):
            self.assertEqual({VERSION}, set(re.findall(
                r'nova_bdm_cleanup-(\d[\w.]*)-py3-none-any\.whl',
                page.read_text(encoding='utf-8'))) or {VERSION}, page)

    def test_the_first_output_of_an_audit_is_of_a_real_one(self) -> None:
        page = (GUIDE / 'get-started.rst').read_text(encoding='utf-8')
        played = {line.strip() for line in (
            GUIDE / 'a-night.rst').read_text(encoding='utf-8').split('\n')}
        shown = re.findall(r'^   (Nothing .*|\d+\. openstack .*|\d+ find.*)',
                           page, re.M)
        self.assertEqual(3, len(shown))
        self.assertLessEqual(set(shown), played)

    def test_every_reason_has_a_section_of_the_same_form(self) -> None:
        """Check the order: meaning, log line, danger, what to do."""
        found = sections(RUNBOOK)
        for reason in Reason:
            title, meaning, rest = found[str(reason)].split('\n\n', 2)
            self.assertEqual('%s\n%s' % (reason, '-' * len(reason)), title)
            self.assertRegex(meaning, r'^[A-Z`][^:]')
            if meaning.endswith(' ::'):
                lines, _, rest = rest.partition('\n\n')
                for line in lines.split('\n'):
                    self.assertRegex(line, SHORT, reason)
            self.assertRegex(rest, '^' + FORM.pattern, reason)

    def test_no_command_of_the_runbook_is_broken(self) -> None:
        """Check that each command is on one line, for copying."""
        for text in RUNBOOK.read_text(encoding='utf-8').split('``')[1::2]:
            # These are too long for a line.
            if not text.startswith('openstack --os-'):
                self.assertNotIn('\n', text)

    def test_every_audit_event_has_a_section(self) -> None:
        entries = dict(re.findall(
            r'^   ([a-z-]+)\n((?:      .*\n|\n)+)',
            (GUIDE / 'log-lines.rst').read_text(encoding='utf-8'), re.M))
        self.assertEqual(events(), set(entries))
        for entry in entries.values():
            self.assertRegex(entry, r'\n      You: \S')

    def test_the_lines_shown_are_of_events_and_reasons_that_exist(
            self) -> None:
        reasons = {str(r) for r in Reason} | {'-'}
        for page, form in ((RUNBOOK, SHORT), (GUIDE / 'log-lines.rst', SHORT),
                           (GUIDE / 'get-started.rst', LINE)):
            text = page.read_text(encoding='utf-8')
            shown = [form.match(line) for line in text.split('\n')
                     if re.match(r' +[A-Z]+ .*event=', line)]
            self.assertGreater(len(shown), 1)
            for line in shown:
                assert line is not None, page
                self.assertIn(line['event'], events())
                self.assertIn(line['reason'], reasons)

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
